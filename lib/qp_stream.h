/* SPDX-License-Identifier: MIT */
/*
 * A byte stream over one queue pair: strides of a registered ring for sends,
 * and of another for receives. What the transports over verbs share; a kind
 * says what it does differently.
 *
 * Invariants L-n and A-n are those of spec/apple-and-ggml-transports.md, 2.6
 * and 3.4.
 */
#ifndef VB_QP_STREAM_H
#define VB_QP_STREAM_H

#include "lib/memory.h"
#include "lib/registry.h"
#include "lib/transport.h"
#include "lib/wire.h"

#define QS_RECV_TAG (1ull << 20) /* in wr_id, above the slot */
#define QS_READY    0x2a	 /* compat UC's readiness byte */

struct qp_stream;

/* The depths a queue pair is made with, and the longest inline SEND. */
struct qs_depth {
	uint32_t sends, recvs; /* requests, or frames on Thunderbolt */
	uint32_t inline_bytes;
};

struct qs_kind {
	struct vb_transport_ops ops;
	enum vb_transport_kind kind;
	enum vb_platform platform;
	enum ibv_qp_type qp_type;
	uint32_t stride_bytes;	 /* unless the options say */
	uint32_t send_slots;	 /* of compat mode */
	uint32_t recv_slots;	 /* of compat mode */
	uint32_t hardened_slots; /* rings of 2 MiB, which a cache holds */
	uint32_t frame_bytes;	 /* a queue's depth is counted in; or 0 */
	enum vb_framing framing; /* of compat mode */
	bool is_whole;		 /* each SEND is a whole stride */
	bool has_ready;		 /* compat mode exchanges a byte */
	bool has_two_cqs;	 /* one for sends, one for receives */
	struct qs_depth (*depth)(const struct qp_stream *qs);
	/* From INIT to RTS with all receives posted, in the kind's order. */
	int (*arm)(struct qp_stream *qs, const struct vb_caps *peer);
};

/* A received stride, oldest first; `off` bytes are already handed out. */
struct qs_queued {
	uint32_t slot;
	uint32_t off; /* from the stride's start, as is end */
	uint32_t end;
};

struct qs_ring {
	struct vb_memory memory;
	struct vb_region region;
};

/* The device, the port and the GID that answer to the bootstrap address. */
struct vb_found {
	struct vb_device *device;
	struct vb_context hold;
	struct vb_port port; /* without its GIDs */
	struct vb_gid gid;
	uint64_t node_guid;
	char name[VB_NAME_MAX];
};

struct qp_stream {
	struct vb_transport base;
	const struct qs_kind *kind;
	enum vb_mode mode;
	bool wants_crc;
	struct vb_found found;
	struct vb_verbs *verbs;
	struct vb_domain *domain;
	/* Perhaps the same; QS_RECV_TAG tells the directions apart. */
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_qp *qp;
	struct qs_ring send_ring;
	struct qs_ring recv_ring;
	struct vb_caps mine;

	/* How the wire is cut; final once both ends have agreed. */
	struct vb_wire wire;
	uint32_t send_slots, recv_slots;
	uint32_t inline_bytes;
	uint8_t mtu;
	bool is_slots_given; /* the options say how many */

	bool is_activated;
	bool is_live;
	bool send_busy[VB_SLOTS_MAX];
	uint64_t send_frame[VB_SLOTS_MAX];  /* ordinal of what is in flight */
	uint64_t send_offset[VB_SLOTS_MAX]; /* and where it starts */
	uint32_t send_dirty[VB_SLOTS_MAX];  /* payload bytes ever in it */
	uint32_t sends_busy;
	uint8_t posted[VB_SLOTS_MAX]; /* receives, in the order of posting */
	uint32_t posted_head, posted_count;
	struct qs_queued queue[VB_SLOTS_MAX];
	uint32_t queue_head, queue_count;
	bool is_flowing; /* the last look at completions found some */
	bool is_flushed; /* a completion said so */
	int pending;	 /* slot being filled, or -1 */
	uint32_t pending_len;
	uint64_t queued_bytes; /* stream bytes in all frames received so far */
	struct qp_stream *next_kept;
};

static inline uint8_t *qs_slot(const struct qp_stream *qs,
			       const struct qs_ring *ring, uint32_t slot)
{
	return ring->memory.bytes + (size_t)slot * qs->wire.stride_bytes;
}

/* find.c. Open the first device with an ACTIVE port that has the GID. */
int vb_find(struct qp_stream *qs, const struct vb_options *options,
	    enum vb_transport_kind *kind);

/* qp_stream.c */
int qs_failed(struct qp_stream *qs, int error, const char *call);
int qs_modify(struct qp_stream *qs, struct ibv_qp_attr *attr, int mask,
	      const char *state);
/* What every kind says of the way to the peer (VB_PATH_MASK). */
struct ibv_qp_attr qs_path(const struct qp_stream *qs,
			   const struct vb_caps *peer, uint32_t psn);
int qs_close(struct vb_transport *t, struct vb_cause *cause);

/* qp_stream_data.c */
int qs_post_recvs(struct qp_stream *qs);
int qs_send(struct vb_transport *t, const void *data, size_t size);
int qs_recv(struct vb_transport *t, void *data, size_t size);
int qs_flush(struct vb_transport *t);
int qs_reserve(struct vb_transport *t, void **space, size_t *size);
int qs_commit(struct vb_transport *t, size_t size);
/* What is pending has been posted. */
int qs_peek(struct vb_transport *t, const void **data, size_t *size);
int qs_consume(struct vb_transport *t, size_t size);
/* D-A7: wait until the device has taken all sends. */
void qs_drain(struct qp_stream *qs);

/* negotiate.c: S3 … S8, and hardened mode's agreement. */
int qs_activate(struct vb_transport *t, const uint8_t *caps);

#define QS_OPS(its_name)                                                     \
	{                                                                    \
		.name = its_name, .activate = qs_activate, .send = qs_send,  \
		.recv = qs_recv, .flush = qs_flush, .reserve = qs_reserve,   \
		.commit = qs_commit, .peek = qs_peek, .consume = qs_consume, \
		.close = qs_close                                            \
	}

extern const struct qs_kind vb_kind_apple_uc, vb_kind_rc;

#endif
