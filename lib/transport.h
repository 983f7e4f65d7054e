/* SPDX-License-Identifier: MIT */
/* What every transport is made of, and the ops a kind of transport fills. */
#ifndef VB_TRANSPORT_H
#define VB_TRANSPORT_H

#include "lib/verbena.h"

struct vb_transport_ops {
	const char *name;
	int (*activate)(struct vb_transport *t, const uint8_t *caps);
	int (*send)(struct vb_transport *t, const void *data, size_t size);
	int (*recv)(struct vb_transport *t, void *data, size_t size);
	int (*flush)(struct vb_transport *t);
	int (*reserve)(struct vb_transport *t, void **space, size_t *size);
	int (*commit)(struct vb_transport *t, size_t size);
	/* What is in the backlog comes first, and what is pending is posted:
	 * not these calls' concern. */
	int (*peek)(struct vb_transport *t, const void **data, size_t *size);
	int (*consume)(struct vb_transport *t, size_t size);
	int (*close)(struct vb_transport *t, struct vb_cause *cause);
};

/*
 * Received bytes that had to make room: a sender that waits for a peer which
 * sends, too, takes the peer's bytes here, or both wait for ever (D-A10).
 */
struct vb_backlog {
	struct vb_piece *head, *tail;
	uint64_t bytes;
	uint64_t limit_bytes;
};

/* The head of every transport. */
struct vb_transport {
	const struct vb_transport_ops *ops;
	struct vb_cause cause; /* latched: code VB_OK until the first failure */
	struct vb_runtime runtime;
	struct vb_boot boot;
	uint64_t timeout_ns;
	uint64_t grace_ns;
	uint64_t sent_bytes;
	uint64_t received_bytes;
	uint64_t frames_sent;
	uint64_t frames_received;
	struct vb_backlog backlog;
	size_t reserved, peeked; /* by the last call, if it was one of those */
	bool peer_ended; /* the bootstrap stream has: drain, then fail */
	uint64_t peer_ended_ns;
};

/* Where a failure was seen; -1 where that means nothing. */
struct vb_where {
	bool is_send;
	int64_t offset_bytes;
	int64_t frame;
	int slot;
};

#define VB_NOWHERE \
	((struct vb_where){.offset_bytes = -1, .frame = -1, .slot = -1})

#define VB_NO_CAUSE \
	((struct vb_cause){.offset_bytes = -1, .frame = -1, .slot = -1})

/* Latch the first failure and return its errno; later ones change nothing. */
int vb_fail(struct vb_transport *t, enum vb_code code, int error,
	    struct vb_where where, const char *format, ...)
	__attribute__((format(printf, 5, 6)));

/* The head, from options. */
void vb_transport_init(struct vb_transport *t,
		       const struct vb_transport_ops *ops,
		       const struct vb_options *options);

#define VB_SLOTS_MAX 64u

/* Before anything is looked for. 0, or the latched -EINVAL. */
int vb_options_check(struct vb_transport *t, const struct vb_options *options);

/* --- wait.c: the one source of deadlines --- */

/* One wait: since when nothing moved, and when the peer was last looked at. */
struct vb_wait {
	const char *what;
	bool is_send;
	bool is_set_up;	   /* there is no stream to have a place in */
	uint64_t since_ns; /* 0: something has just moved */
	uint64_t watched_ns;
};

/*
 * Nothing moved: look at deadline and peer, then idle once. 0, or the latched
 * errno. A peer whose bootstrap stream has ended is given grace_ns, because its
 * end may overtake its last frames (D-A6).
 */
int vb_wait_idle(struct vb_transport *t, struct vb_wait *wait);
/* The same where the bootstrap stream is what is waited for. */
int vb_wait_boot(struct vb_transport *t, struct vb_wait *wait, bool for_write);
/* Move all bytes over the bootstrap stream. 0, or the latched errno. */
int vb_boot_move(struct vb_transport *t, void *bytes, size_t len, bool is_send,
		 const char *what);
/* Taken nothing (D-A31), not now (D-A13), or a signal: no failure. */
bool vb_is_again(long rc);
/* The stream's end, and not something wrong at this one. */
bool vb_is_end(long rc);

/* --- backlog.c --- */

/* Append a copy. 0, or the latched errno: no memory, or over the limit. */
int vb_backlog_put(struct vb_transport *t, const void *data, size_t size);
/* The same, over any limit; size is not 0. */
int vb_backlog_add(struct vb_transport *t, const void *data, size_t size);
/* Take up to `size` bytes; how many. */
size_t vb_backlog_take(struct vb_transport *t, void *data, size_t size);
/* The oldest bytes in one piece, where they are; 0: there are none. */
size_t vb_backlog_peek(const struct vb_transport *t, const void **data);
/* Those, gone: no more than were peeked at. */
void vb_backlog_consume(struct vb_transport *t, size_t size);
void vb_backlog_fini(struct vb_transport *t);

#endif
