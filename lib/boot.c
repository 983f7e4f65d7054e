/* SPDX-License-Identifier: MIT */
/* The bootstrap channel over a connected socket, and the local address. */
#include "lib/boot.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0 /* macOS: SO_NOSIGPIPE, set below */
#endif

static int fd_of(void *arg)
{
	return (int)(intptr_t)arg;
}

static long boot_send(void *arg, const void *bytes, size_t len)
{
	ssize_t n;

	/* A signal is no failure, and a dead peer is no reason to die. */
	do {
		n = send(fd_of(arg), bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static long boot_recv(void *arg, void *bytes, size_t len, bool is_peek)
{
	ssize_t n;

	do {
		n = recv(fd_of(arg), bytes, len,
			 MSG_DONTWAIT | (is_peek ? MSG_PEEK : 0));
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static int boot_wait(void *arg, bool for_write, int timeout_ms)
{
	struct pollfd poll_fd = {
		.fd = fd_of(arg),
		.events = for_write ? POLLOUT : POLLIN,
	};

	/* An error or a hang-up is for the next call to report. */
	return poll(&poll_fd, 1, timeout_ms) > 0;
}

static void boot_shutdown(void *arg)
{
	shutdown(fd_of(arg), SHUT_RDWR);
}

struct vb_boot vb_boot_socket(int fd)
{
	struct vb_boot boot = {
		.send = boot_send,
		.recv = boot_recv,
		.wait = boot_wait,
		.shutdown = boot_shutdown,
		.arg = (void *)(intptr_t)fd,
	};
#ifdef SO_NOSIGPIPE
	int on = 1;

	setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof(on));
#endif
	return boot;
}

int vb_boot_local_gid(int fd, uint8_t gid[16])
{
	struct sockaddr_storage at;
	socklen_t len = sizeof(at);

	if (getsockname(fd, (struct sockaddr *)&at, &len) != 0)
		return -errno;
	memset(gid, 0, 16);
	if (at.ss_family == AF_INET) {
		gid[10] = gid[11] = 0xff;
		memcpy(gid + 12, &((struct sockaddr_in *)&at)->sin_addr, 4);
		return 0;
	}
	if (at.ss_family == AF_INET6) {
		memcpy(gid, &((struct sockaddr_in6 *)&at)->sin6_addr, 16);
		return 0;
	}
	return -EINVAL;
}
