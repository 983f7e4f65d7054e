/* SPDX-License-Identifier: MIT */
/*
 * verbena-boot.so, loaded before a program when its plan strikes boot.in or
 * boot.out: the taps of the bootstrap stream.
 *
 * The stream is the first connected TCP socket on which the program moves
 * bytes with read, write, send or recv. Everything else passes untouched.
 */
#define _GNU_SOURCE
#include "sim/sim.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

typedef ssize_t (*send_fn)(int, const void *, size_t, int);
typedef ssize_t (*recv_fn)(int, void *, size_t, int);
typedef ssize_t (*read_fn)(int, void *, size_t);
typedef ssize_t (*write_fn)(int, const void *, size_t);
typedef int (*poll_fn)(struct pollfd *, nfds_t, int);

static send_fn real_send;
static recv_fn real_recv;
static read_fn real_read;
static write_fn real_write;
static poll_fn real_poll;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_world *world;
static int host;
static ino_t stream_inode; /* 0 until the stream is known */
static uint64_t in_offset, out_offset;
static bool is_in_stopped, is_out_stopped;
static enum sim_effect in_stop;

static void find(void *slot, const char *name)
{
	*(void **)slot = dlsym(RTLD_NEXT, name);
}

__attribute__((constructor)) static void start(void)
{
	char error[SIM_ERROR_MAX];
	const char *side = getenv("VERBENA_HOST");
	struct sim_world_config config = {.name = getenv("VERBENA_WORLD"),
					  .is_passive = true};

	find(&real_send, "send");
	find(&real_recv, "recv");
	find(&real_read, "read");
	find(&real_write, "write");
	find(&real_poll, "poll");
	if (!config.name || !side || sim_world_open(&config, &world, error))
		world = NULL; /* not under `verbena run`: pass everything */
	else
		host = side[0] - 'a';
}

/* With the lock held: is this descriptor the bootstrap stream? */
static bool is_stream(int fd)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);
	struct stat st;
	int type;

	if (!world || fstat(fd, &st) != 0 || !S_ISSOCK(st.st_mode))
		return false;
	if (stream_inode)
		return st.st_ino == stream_inode;
	if (getpeername(fd, (struct sockaddr *)&peer, &len) != 0 ||
	    (peer.ss_family != AF_INET && peer.ss_family != AF_INET6))
		return false;
	len = sizeof(type);
	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) != 0 ||
	    type != SOCK_STREAM)
		return false;
	stream_inode = st.st_ino;
	return true;
}

static bool is_nonblocking(int fd, int flags)
{
	return (flags & MSG_DONTWAIT) || (fcntl(fd, F_GETFL) & O_NONBLOCK);
}

/* What a stalled or ended stream gives to a reader. */
static ssize_t stopped_read(int fd, int flags)
{
	if (in_stop == SIM_EFFECT_EOF)
		return 0;
	if (!is_nonblocking(fd, flags))
		real_poll(NULL, 0, -1); /* until a signal */
	errno = is_nonblocking(fd, flags) ? EAGAIN : EINTR;
	return -1;
}

/* Has the reader come to a byte that a line withholds? */
static bool at_stop(void)
{
	uint8_t none;

	if (!is_in_stopped &&
	    sim_tap_stream(world, host, SIM_SITE_BOOT_IN, in_offset, &none, 0,
			   &in_stop) == 0)
		is_in_stopped = in_stop == SIM_EFFECT_EOF ||
				in_stop == SIM_EFFECT_STALL;
	return is_in_stopped;
}

static ssize_t stream_recv(int fd, void *bytes, size_t len, int flags)
{
	ssize_t got;

	pthread_mutex_lock(&lock);
	if (!is_stream(fd) || len == 0) {
		pthread_mutex_unlock(&lock);
		return real_recv(fd, bytes, len, flags);
	}
	if (at_stop()) {
		pthread_mutex_unlock(&lock);
		return stopped_read(fd, flags);
	}
	pthread_mutex_unlock(&lock);
	got = real_recv(fd, bytes, len, flags);
	if (got <= 0 || (flags & MSG_PEEK))
		return got;
	pthread_mutex_lock(&lock);
	got = (ssize_t)sim_tap_stream(world, host, SIM_SITE_BOOT_IN, in_offset,
				      bytes, (size_t)got, &in_stop);
	in_offset += (uint64_t)got;
	pthread_mutex_unlock(&lock);
	return got ? got : stream_recv(fd, bytes, len, flags);
}

/* Send what may pass; swallow the rest. */
static ssize_t stream_send(int fd, const void *bytes, size_t len, int flags)
{
	enum sim_effect stop = SIM_EFFECT_COUNT;
	uint8_t *copy;
	size_t pass;
	ssize_t sent;

	pthread_mutex_lock(&lock);
	if (!is_stream(fd) || len == 0) {
		pthread_mutex_unlock(&lock);
		return real_send(fd, bytes, len, flags);
	}
	copy = malloc(len);
	if (is_out_stopped || !copy) {
		free(copy);
		pthread_mutex_unlock(&lock);
		return (ssize_t)len;
	}
	memcpy(copy, bytes, len);
	pass = sim_tap_stream(world, host, SIM_SITE_BOOT_OUT, out_offset, copy,
			      len, &stop);
	sent = pass ? real_send(fd, copy, pass, flags) : 0;
	free(copy);
	if (sent > 0)
		out_offset += (uint64_t)sent;
	if (pass < len && sent == (ssize_t)pass) {
		uint8_t none;

		/* Arrived at the line's own byte: it strikes. */
		sim_tap_stream(world, host, SIM_SITE_BOOT_OUT, out_offset,
			       &none, 0, &stop);
		is_out_stopped = true;
		if (stop == SIM_EFFECT_EOF)
			shutdown(fd, SHUT_WR);
		sent = (ssize_t)len;
	}
	pthread_mutex_unlock(&lock);
	return sent;
}

static bool is_socket(int fd)
{
	struct stat st;

	return world && fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
}

ssize_t send(int fd, const void *bytes, size_t len, int flags)
{
	return stream_send(fd, bytes, len, flags);
}

ssize_t recv(int fd, void *bytes, size_t len, int flags)
{
	return stream_recv(fd, bytes, len, flags);
}

ssize_t write(int fd, const void *bytes, size_t len)
{
	return is_socket(fd) ? stream_send(fd, bytes, len, 0)
			     : real_write(fd, bytes, len);
}

ssize_t read(int fd, void *bytes, size_t len)
{
	return is_socket(fd) ? stream_recv(fd, bytes, len, 0)
			     : real_read(fd, bytes, len);
}

/* A stalled stream is never readable. */
int poll(struct pollfd *fds, nfds_t count, int timeout)
{
	struct pollfd *copy;
	bool hides = false;
	int ready;

	pthread_mutex_lock(&lock);
	for (nfds_t i = 0; world && stream_inode && i < count; i++)
		hides |= (fds[i].events & POLLIN) && is_stream(fds[i].fd) &&
			 at_stop() && in_stop == SIM_EFFECT_STALL;
	pthread_mutex_unlock(&lock);
	copy = hides ? malloc(count * sizeof(*copy)) : NULL;
	if (!copy)
		return real_poll(fds, count, timeout);
	memcpy(copy, fds, count * sizeof(*copy));
	for (nfds_t i = 0; i < count; i++)
		if (is_stream(fds[i].fd))
			copy[i].fd = -1;
	ready = real_poll(copy, count, timeout);
	for (nfds_t i = 0; i < count; i++)
		fds[i].revents = copy[i].revents;
	free(copy);
	return ready;
}

/* What a program built with _FORTIFY_SOURCE calls instead. */
ssize_t __read_chk(int fd, void *bytes, size_t len, size_t room);
ssize_t __recv_chk(int fd, void *bytes, size_t len, size_t room, int flags);
int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t room);

ssize_t __read_chk(int fd, void *bytes, size_t len, size_t room)
{
	return len > room ? (abort(), -1) : read(fd, bytes, len);
}

ssize_t __recv_chk(int fd, void *bytes, size_t len, size_t room, int flags)
{
	return len > room ? (abort(), -1) : recv(fd, bytes, len, flags);
}

int __poll_chk(struct pollfd *fds, nfds_t count, int timeout, size_t room)
{
	return count > room / sizeof(*fds) ? (abort(), -1)
					   : poll(fds, count, timeout);
}
