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
	int (*close)(struct vb_transport *t, struct vb_cause *cause);
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

/* Latch the first failure and return its errno; later ones change nothing. */
int vb_fail(struct vb_transport *t, enum vb_code code, int error,
	    struct vb_where where, const char *format, ...)
	__attribute__((format(printf, 5, 6)));

#endif
