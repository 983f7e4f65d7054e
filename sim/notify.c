/* SPDX-License-Identifier: MIT */
/*
 * Waking a sleeper: a channel's descriptor is a datagram socket in the
 * abstract namespace, named by world and channel. A datagram is a doorbell
 * that names a queue; that the queue owes an event is in the segment, so that
 * one lost to a full buffer is found when the others have been taken.
 */
#define _GNU_SOURCE
#include "sim/play.h"

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

static void post(struct sim_world *w, uint32_t channel, const void *record,
		 size_t size)
{
	struct sockaddr_un name;
	socklen_t len = channel_name(w, channel, &name);
	int fd = sender(w);

	if (fd >= 0)
		(void)!sendto(fd, record, size, MSG_DONTWAIT | MSG_NOSIGNAL,
			      (struct sockaddr *)&name, len);
}

static void ring(struct sim_world *w, uint32_t channel, uint32_t cq)
{
	post(w, channel, &cq, sizeof(cq));
}

void sim_async(struct sim_world *w, uint32_t channel, uint64_t cookie, int type)
{
	struct sim_event event = {.cookie = cookie, .type = (uint32_t)type};

	if (!channel)
		return;
	post(w, channel, &event, sizeof(event));
	if (sim_is_played(w))
		for (uint32_t host = 0; host < SIM_HOST_COUNT; host++)
			sim_play_happened(host);
}

void sim_cq_wake(struct sim_world *w, struct sim_cq *cq)
{
	struct sim_channel *channel = sim_channel_get(w, cq->channel);

	if (!channel || atomic_exchange(&cq->is_event_pending, 1))
		return; /* owed already, and rung */
	atomic_fetch_add(&channel->pending, 1);
	if (sim_is_played(w))
		sim_play_happened(channel->object.host);
	ring(w, cq->channel, atomic_load(&cq->object.handle));
}

/* Does this queue owe an event of this channel? Take it. */
static bool take(struct sim_world *w, struct sim_channel *channel,
		 struct sim_cq *cq)
{
	if (!cq || cq->object.proc != w->proc ||
	    !atomic_load(&cq->object.handle) ||
	    sim_channel_get(w, cq->channel) != channel ||
	    !atomic_exchange(&cq->is_event_pending, 0))
		return false;
	atomic_fetch_sub(&channel->pending, 1);
	return true;
}

static struct sim_cq *take_any(struct sim_world *w, struct sim_channel *channel)
{
	for (uint32_t i = 0; i < sim_top(w, SIM_CQ); i++)
		if (take(w, channel, &w->seg->cq[i]))
			return &w->seg->cq[i];
	return NULL;
}

int sim_channel_take(struct sim_world *w, uint32_t handle, int fd,
		     uint64_t *cookie)
{
	struct sim_channel *channel = sim_channel_mine(w, handle);
	struct sim_cq *cq = NULL;

	if (!channel)
		return -EINVAL;
	while (!cq) {
		uint32_t named = 0;
		ssize_t got;

		if (sim_is_played(w) &&
		    !sim_play_await_bytes("an event of its channel", fd))
			return -EIO;
		got = recv(fd, &named, sizeof(named), 0);

		if (got < 0)
			return -errno;
		cq = sim_cq_mine(w, named);
		if (!take(w, channel, cq))
			cq = take_any(w, channel);
	}
	/* Owed, and its doorbell lost: ring again, but not twice for one. */
	if (atomic_load(&channel->pending) > 0 &&
	    recv(fd, &(uint32_t){0}, sizeof(uint32_t),
		 MSG_PEEK | MSG_DONTWAIT) < 0)
		ring(w, handle, 0);
	*cookie = cq->cookie;
	return 0;
}
