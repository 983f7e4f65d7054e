/* SPDX-License-Identifier: MIT */
/*
 * The one source of deadlines: set-up, send, receive and close all wait here,
 * for something to move, for the deadline, or for the peer's end.
 */
#include <errno.h>
#include <string.h>

#include "lib/transport.h"

#define WATCH_NS 1000000u /* how often an idle wait looks at the peer */

static uint64_t now_of(const struct vb_transport *t)
{
	return t->runtime.now_ns(t->runtime.arg);
}

static struct vb_where at(const struct vb_transport *t,
			  const struct vb_wait *wait)
{
	return (struct vb_where){
		.is_send = wait->is_send,
		.offset_bytes = (int64_t)(wait->is_send ? t->sent_bytes
							: t->received_bytes),
		.frame = (int64_t)(wait->is_send ? t->frames_sent
						 : t->frames_received),
		.slot = -1,
	};
}

static int timed_out(struct vb_transport *t, const struct vb_wait *wait,
		     uint64_t idle_ns)
{
	struct vb_where where = at(t, wait);

	if (wait->is_set_up)
		return vb_fail(t, VB_TIMEOUT, -ETIMEDOUT, VB_NOWHERE,
			       "%s: the peer's did not come within %llu ms",
			       wait->what,
			       (unsigned long long)(idle_ns / 1000000));
	return vb_fail(t, VB_TIMEOUT, -ETIMEDOUT, where,
		       "%s: nothing moved for %llu ms; waiting at stream "
		       "offset %lld for frame %lld",
		       wait->what, (unsigned long long)(idle_ns / 1000000),
		       (long long)where.offset_bytes, (long long)where.frame);
}

static int peer_gone(struct vb_transport *t, const struct vb_wait *wait)
{
	struct vb_where where = at(t, wait);

	return vb_fail(t, VB_PEER_GONE, -ECONNRESET, where,
		       "%s: the peer closed the connection; stream offset "
		       "%lld, frame %lld",
		       wait->what, (long long)where.offset_bytes,
		       (long long)where.frame);
}

bool vb_is_again(long rc)
{
	return rc == -EAGAIN || rc == -EWOULDBLOCK || rc == -EINTR;
}

bool vb_is_end(long rc)
{
	return rc == 0 || rc == -ECONNRESET || rc == -EPIPE;
}

/* Has the bootstrap stream ended? Nothing crosses it once live. */
static int watch_peer(struct vb_transport *t, uint64_t now)
{
	uint8_t byte;
	long n;

	if (t->peer_ended)
		return 0;
	n = t->boot.recv(t->boot.arg, &byte, 1, true);
	if (vb_is_again(n))
		return 0;
	if (n > 0)
		return vb_fail(t, VB_PROTOCOL, -EPROTO, VB_NOWHERE,
			       "a byte (0x%02x) on the bootstrap stream of a "
			       "live transport",
			       byte);
	if (!vb_is_end(n))
		return vb_fail(t, VB_DEVICE, (int)n, VB_NOWHERE,
			       "the bootstrap stream of a live transport: %s",
			       strerror((int)-n));
	t->peer_ended = true;
	t->peer_ended_ns = now;
	return 0;
}

/* The deadline's end; never, if it is past what a clock can say. */
static uint64_t end_of(const struct vb_transport *t, const struct vb_wait *wait)
{
	uint64_t left = UINT64_MAX - wait->since_ns;

	return wait->since_ns + (t->timeout_ns < left ? t->timeout_ns : left);
}

static void begin(struct vb_wait *wait, uint64_t now)
{
	if (wait->since_ns == 0)
		wait->since_ns = wait->watched_ns = now;
}

int vb_wait_idle(struct vb_transport *t, struct vb_wait *wait)
{
	uint64_t now = now_of(t), idle, watch, end;
	int rc;

	begin(wait, now);
	idle = now - wait->since_ns;
	if (now - wait->watched_ns >= WATCH_NS) {
		wait->watched_ns = now;
		rc = watch_peer(t, now);
		if (rc)
			return rc;
	}
	if (t->peer_ended && idle >= t->grace_ns &&
	    now - t->peer_ended_ns >= t->grace_ns)
		return peer_gone(t, wait);
	if (idle >= t->timeout_ns)
		return timed_out(t, wait, idle);
	watch = wait->watched_ns + WATCH_NS;
	end = end_of(t, wait);
	t->runtime.idle(t->runtime.arg, idle, watch < end ? watch : end);
	return 0;
}

int vb_wait_boot(struct vb_transport *t, struct vb_wait *wait, bool for_write)
{
	uint64_t now = now_of(t), left;

	begin(wait, now);
	if (now - wait->since_ns >= t->timeout_ns)
		return timed_out(t, wait, now - wait->since_ns);
	left = (end_of(t, wait) - now) / 1000000;
	t->boot.wait(t->boot.arg, for_write,
		     left > 1000 ? 1000 : (int)left + 1);
	return 0;
}

int vb_boot_move(struct vb_transport *t, void *bytes, size_t len, bool is_send,
		 const char *what)
{
	struct vb_wait wait = {.what = what,
			       .is_send = is_send,
			       .is_set_up = true};
	struct vb_boot *boot = &t->boot;

	for (size_t done = 0; done < len;) {
		uint8_t *from = (uint8_t *)bytes + done;
		long n = is_send ? boot->send(boot->arg, from, len - done)
				 : boot->recv(boot->arg, from, len - done,
					      false);

		if (n > 0) {
			done += (size_t)n;
			wait.since_ns = 0;
		} else if (vb_is_again(n) || (n == 0 && is_send)) {
			int rc = vb_wait_boot(t, &wait, is_send);

			if (rc)
				return rc;
		} else {
			return vb_fail(t,
				       vb_is_end(n) ? VB_PEER_GONE : VB_DEVICE,
				       n ? (int)n : -ECONNRESET, VB_NOWHERE,
				       "%s: %s", what,
				       n ? strerror((int)-n)
					 : "the peer closed the bootstrap "
					   "stream");
		}
	}
	return 0;
}
