/* SPDX-License-Identifier: MIT */
/*
 * verbena-boot.so, loaded before a program when its plan strikes boot.in or
 * boot.out: the taps of the bootstrap stream.
 *
 * The stream is the first connected TCP socket on which the program moves
 * bytes with read, write, send or recv. Everything else passes untouched.
 */
#define _GNU_SOURCE
#include "sim/core.h"

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

static struct sim_world *world;
static int host;
static _Atomic ino_t stream_inode; /* 0 until the stream is known */

/* One direction of the stream. The lock orders what passes that way; no two
 * directions wait for each other. */
struct way {
	pthread_mutex_t lock;
	struct sim_way way;
};
static struct way in = {PTHREAD_MUTEX_INITIALIZER,
			{SIM_SITE_BOOT_IN, SIM_EFFECT_COUNT, false, 0}};
static struct way out = {PTHREAD_MUTEX_INITIALIZER,
			 {SIM_SITE_BOOT_OUT, SIM_EFFECT_COUNT, false, 0}};

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

/* Is this descriptor the bootstrap stream? The first one asked about is. */
static bool is_stream(int fd)
{
	struct sockaddr_storage peer;
	socklen_t len = sizeof(peer);
	struct stat st;
	ino_t none = 0;
	int type;

	if (!world || fstat(fd, &st) != 0 || !S_ISSOCK(st.st_mode))
		return false;
	if (atomic_load(&stream_inode))
		return st.st_ino == atomic_load(&stream_inode);
	if (getpeername(fd, (struct sockaddr *)&peer, &len) != 0 ||
	    (peer.ss_family != AF_INET && peer.ss_family != AF_INET6))
		return false;
	len = sizeof(type);
	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) != 0 ||
	    type != SOCK_STREAM)
		return false;
	atomic_compare_exchange_strong(&stream_inode, &none, st.st_ino);
	return st.st_ino == atomic_load(&stream_inode);
}

/* With its lock held. */
static bool at_stop(struct way *way)
{
	return sim_way_is_stopped(world, host, &way->way);
}

static bool is_stalled(void)
{
	bool stalled;

	pthread_mutex_lock(&in.lock);
	stalled = at_stop(&in) && in.way.stop == SIM_EFFECT_STALL;
	pthread_mutex_unlock(&in.lock);
	return stalled;
}

/* What a stalled or ended stream gives to a reader: nothing, for as long as
 * the socket's own mode says to wait for it. */
static ssize_t stopped_read(int fd, int flags)
{
	struct timeval limit = {0};
	socklen_t len = sizeof(limit);
	int wait_ms = -1;

	if (in.way.stop == SIM_EFFECT_EOF)
		return 0;
	getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, &len);
	if (limit.tv_sec || limit.tv_usec)
		wait_ms = (int)(limit.tv_sec * 1000 + limit.tv_usec / 1000);
	if ((flags & MSG_DONTWAIT) || (fcntl(fd, F_GETFL) & O_NONBLOCK))
		wait_ms = 0;
	errno = real_poll(NULL, 0, wait_ms) < 0 ? EINTR : EAGAIN;
	return -1;
}

static ssize_t stream_recv(int fd, void *bytes, size_t len, int flags)
{
	bool is_stopped;
	ssize_t got;

	if (len == 0 || !is_stream(fd))
		return real_recv(fd, bytes, len, flags);
	pthread_mutex_lock(&in.lock);
	is_stopped = at_stop(&in);
	pthread_mutex_unlock(&in.lock);
	if (is_stopped)
		return stopped_read(fd, flags);
	got = real_recv(fd, bytes, len, flags);
	if (got <= 0 || (flags & MSG_PEEK))
		return got;
	pthread_mutex_lock(&in.lock);
	got = (ssize_t)sim_way_pass(world, host, &in.way, bytes, (size_t)got);
	pthread_mutex_unlock(&in.lock);
	return got ? got : stopped_read(fd, flags);
}

/* Send what may pass; swallow the rest. */
static ssize_t stream_send(int fd, const void *bytes, size_t len, int flags)
{
	uint8_t *copy;
	size_t pass;
	ssize_t sent = 0;

	if (len == 0 || !is_stream(fd))
		return real_send(fd, bytes, len, flags);
	copy = malloc(len);
	if (!copy)
		return -1;
	memcpy(copy, bytes, len);
	pthread_mutex_lock(&out.lock);
	pass = at_stop(&out) ? 0
			     : sim_tap_stream(world, host, out.way.site,
					      out.way.offset, copy, len,
					      &out.way.stop);
	if (pass)
		sent = real_send(fd, copy, pass, flags);
	if (sent > 0)
		out.way.offset += (uint64_t)sent;
	if (sent == (ssize_t)pass && pass < len) {
		if (out.way.stop == SIM_EFFECT_EOF)
			shutdown(fd, SHUT_WR);
		sent = (ssize_t)len;
	}
	pthread_mutex_unlock(&out.lock);
	free(copy);
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
	struct pollfd *copy = NULL;
	bool hides = false;
	int ready;

	for (nfds_t i = 0; atomic_load(&stream_inode) && i < count; i++)
		hides |= (fds[i].events & POLLIN) && is_stream(fds[i].fd) &&
			 is_stalled();
	if (hides)
		copy = malloc(count * sizeof(*copy));
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
