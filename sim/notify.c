/* SPDX-License-Identifier: MIT */
/*
 * Waking a sleeper: a channel's descriptor is a datagram socket in the
 * abstract namespace, named by world and channel, so that any process can
 * reach it. One datagram is one event. A lost one (full buffer) is harmless,
 * because then the buffer is not empty and the sleeper wakes anyway.
 */
#define _GNU_SOURCE
#include "sim/core.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static socklen_t channel_name(struct sim_world *w, uint32_t channel,
			      struct sockaddr_un *name)
{
	memset(name, 0, sizeof(*name));
	name->sun_family = AF_UNIX;
	/* sun_path[0] stays 0: abstract, gone with its last descriptor. */
	int n = snprintf(name->sun_path + 1, sizeof(name->sun_path) - 1,
			 "verbena/%016llx/%x", (unsigned long long)w->seg->id,
			 channel);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)n);
}

int sim_notify_socket(struct sim_world *w, uint32_t channel, int *out)
{
	struct sockaddr_un name;
	socklen_t len = channel_name(w, channel, &name);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&name, len) != 0) {
		int rc = -errno;

		close(fd);
		return rc;
	}
	*out = fd;
	return 0;
}

/* The sending socket of this process, made on first use. */
static int sender(struct sim_world *w)
{
	int fd = __atomic_load_n(&w->notify_fd, __ATOMIC_ACQUIRE);
	int none = -1;

	if (fd >= 0)
		return fd;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	if (!__atomic_compare_exchange_n(&w->notify_fd, &none, fd, false,
					 __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		close(fd);
		return none;
	}
	return fd;
}

void sim_notify(struct sim_world *w, uint32_t channel, uint64_t cookie)
{
	struct sockaddr_un name;
	socklen_t len = channel_name(w, channel, &name);
	int fd = sender(w);

	if (fd >= 0)
		(void)!sendto(fd, &cookie, sizeof(cookie),
			      MSG_DONTWAIT | MSG_NOSIGNAL,
			      (struct sockaddr *)&name, len);
}
