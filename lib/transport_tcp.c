/* SPDX-License-Identifier: MIT */
/*
 * The fallback: the same stream over the bootstrap connection itself. Bytes as
 * they are, so that the peer may be anything that reads a socket.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/transport.h"

#define PIECE_BYTES 65536u

struct tcp {
	struct vb_transport base;
	uint8_t piece[PIECE_BYTES];
};

static int broken(struct vb_transport *t, long rc, bool is_send)
{
	struct vb_where where = {
		.is_send = is_send,
		.offset_bytes =
			(int64_t)(is_send ? t->sent_bytes : t->received_bytes),
		.frame = -1,
		.slot = -1,
	};

	if (vb_is_end(rc))
		return vb_fail(t, VB_PEER_GONE, -ECONNRESET, where,
			       "%s: the peer closed the connection; stream "
			       "offset %lld",
			       is_send ? "send" : "receive",
			       (long long)where.offset_bytes);
	return vb_fail(t, VB_DEVICE, (int)rc, where, "%s: %s",
		       is_send ? "send" : "receive", strerror((int)-rc));
}

/* D-A10: both ends may send first. 1: something came; 0: nothing. */
static int make_room(struct vb_transport *t)
{
	uint8_t piece[PIECE_BYTES];
	long n = t->boot.recv(t->boot.arg, piece, sizeof(piece), false);
	int rc;

	/* Its end is for vb_recv to find: it may still take ours. */
	if (n <= 0)
		return 0;
	rc = vb_backlog_put(t, piece, (size_t)n);
	return rc ? rc : 1;
}

static int tcp_send(struct vb_transport *t, const void *data, size_t size)
{
	struct vb_wait wait = {.what = "send", .is_send = true};
	const uint8_t *from = data;

	while (size > 0) {
		long n = t->boot.send(t->boot.arg, from, size);
		int rc;

		if (n > 0) {
			from += n;
			size -= (size_t)n;
			t->sent_bytes += (uint64_t)n;
			wait.since_ns = 0;
			continue;
		}
		if (n < 0 && !vb_is_again(n))
			return broken(t, n, true);
		rc = make_room(t);
		if (rc == 0)
			rc = vb_wait_boot(t, &wait, true);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int tcp_recv(struct vb_transport *t, void *data, size_t size)
{
	struct vb_wait wait = {.what = "receive"};
	size_t done = vb_backlog_take(t, data, size);

	t->received_bytes += done;
	while (done < size) {
		long n = t->boot.recv(t->boot.arg, (uint8_t *)data + done,
				      size - done, false);
		int rc = 0;

		if (n > 0) {
			done += (size_t)n;
			t->received_bytes += (uint64_t)n;
			wait.since_ns = 0;
		} else if (vb_is_again(n)) {
			rc = vb_wait_boot(t, &wait, false);
		} else {
			rc = broken(t, n, false);
		}
		if (rc)
			return rc;
	}
	return 0;
}

static int tcp_reserve(struct vb_transport *t, void **space, size_t *size)
{
	struct tcp *tcp = (struct tcp *)t;

	*space = tcp->piece;
	*size = sizeof(tcp->piece);
	return 0;
}

static int tcp_commit(struct vb_transport *t, size_t size)
{
	return tcp_send(t, ((struct tcp *)t)->piece, size);
}

/* Nothing is in the backlog: there it goes, and is looked at; its limit is for
 * what nobody has asked for. */
static int tcp_peek(struct vb_transport *t, const void **data, size_t *size)
{
	struct vb_wait wait = {.what = "receive"};
	uint8_t piece[PIECE_BYTES];

	for (;;) {
		long n = t->boot.recv(t->boot.arg, piece, sizeof(piece), false);
		int rc;

		if (n > 0)
			rc = vb_backlog_add(t, piece, (size_t)n);
		else if (vb_is_again(n))
			rc = vb_wait_boot(t, &wait, false);
		else
			rc = broken(t, n, false);
		if (rc)
			return rc;
		*size = vb_backlog_peek(t, data);
		if (*size)
			return 0;
	}
}

/* What was peeked at is in the backlog, which is not our concern. */
static int tcp_consume(struct vb_transport *t, size_t size)
{
	(void)t;
	(void)size;
	return -EINVAL;
}

static int tcp_activate(struct vb_transport *t, const uint8_t *caps)
{
	(void)t;
	(void)caps;
	return -EALREADY; /* it is live when it is open */
}

static int tcp_flush(struct vb_transport *t)
{
	(void)t;
	return 0;
}

static int tcp_close(struct vb_transport *t, struct vb_cause *cause)
{
	int rc = t->cause.error;

	if (cause)
		*cause = t->cause;
	vb_backlog_fini(t);
	free(t);
	return rc;
}

static const struct vb_transport_ops tcp_ops = {
	.name = "tcp",
	.activate = tcp_activate,
	.send = tcp_send,
	.recv = tcp_recv,
	.flush = tcp_flush,
	.reserve = tcp_reserve,
	.commit = tcp_commit,
	.peek = tcp_peek,
	.consume = tcp_consume,
	.close = tcp_close,
};

int vb_tcp_open(const struct vb_options *options,
		struct vb_transport **transport)
{
	struct tcp *tcp = calloc(1, sizeof(*tcp));

	if (!tcp)
		return -ENOMEM;
	vb_transport_init(&tcp->base, &tcp_ops, options);
	*transport = &tcp->base;
	return 0;
}
