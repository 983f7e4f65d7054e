/* SPDX-License-Identifier: MIT */
/*
 * The Apple UC transport: strides of whole 4 KiB Thunderbolt frames over one
 * UC queue pair. Shared by its set-up and its data path.
 *
 * The wire is ggml-rpc's ("compat"): constants, states S0 … S11 and invariants
 * A-1 … A-36 are those of spec/apple-and-ggml-transports.md, section 3.
 */
#ifndef VB_APPLE_UC_H
#define VB_APPLE_UC_H

#include "lib/registry.h"
#include "lib/transport.h"
#include "lib/verbs.h"

#define UC_MAGIC	0x52534547u /* "RSEG" in memory order of the seed */
#define UC_FRAME_BYTES	4096u
#define UC_STRIDE_BYTES 131072u
#define UC_SLOTS	16u
#define UC_SLOTS_MAX	64u
#define UC_PSN		0u
#define UC_RECV_TAG	(1ull << 20) /* in wr_id, above the slot */
#define UC_SLOT_MASK	0xffffull
#define UC_READY	0x2a
#define UC_WATCH_NS	1000000u /* how often an idle wait looks at the peer */

/* Host byte order, as the seed sends it. */
struct uc_header {
	uint32_t magic;
	uint32_t len; /* payload bytes; the rest of the stride is padding */
};

/* 24 bytes on the bootstrap stream. */
struct uc_caps {
	uint32_t qpn;
	uint16_t lid;
	uint16_t reserved;
	uint8_t gid[16];
};
_Static_assert(sizeof(struct uc_caps) == VB_CAPS_BYTES, "the peer's layout");

/* A received stride, oldest first; `off` bytes are already handed out. */
struct uc_queued {
	uint32_t slot;
	uint32_t off;
	uint32_t len;
};

struct uc_ring {
	uint8_t *memory;
	struct ibv_mr *mr;
};

struct apple_uc {
	struct vb_transport base;
	struct vb_verbs *verbs;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq; /* both directions; UC_RECV_TAG tells them apart */
	struct ibv_qp *qp;
	struct uc_ring send_ring;
	struct uc_ring recv_ring;
	struct vb_found found;
	uint32_t stride;
	uint32_t slots;

	bool is_activated;
	bool is_live;
	bool send_busy[UC_SLOTS_MAX];
	uint64_t send_frame[UC_SLOTS_MAX];  /* ordinal of what is in flight */
	uint64_t send_offset[UC_SLOTS_MAX]; /* and where it starts */
	uint32_t sends_busy;
	bool recv_posted[UC_SLOTS_MAX];
	struct uc_queued queue[UC_SLOTS_MAX];
	uint32_t queue_head;
	uint32_t queue_count;
	int pending; /* slot being filled, or -1 */
	uint32_t pending_len;
	uint64_t frames_sent;
	uint64_t frames_received;
	uint64_t queued_bytes; /* stream bytes in all frames received so far */
	bool peer_ended;       /* the bootstrap stream has: drain, then fail */
	uint64_t peer_ended_ns;
};

static inline uint32_t uc_payload(const struct apple_uc *uc)
{
	return uc->stride - (uint32_t)sizeof(struct uc_header);
}

static inline uint8_t *uc_slot(const struct apple_uc *uc,
			       const struct uc_ring *ring, uint32_t slot)
{
	return ring->memory + (size_t)slot * uc->stride;
}

/* One wait: since when nothing moved, and when the peer was last looked at. */
struct uc_wait {
	uint64_t since_ns;
	uint64_t watched_ns;
	const char *what;
	bool is_send;
};

/* apple_uc_data.c */
int uc_post_recv(struct apple_uc *uc, uint32_t slot);
/* Reap completions; how many, or the latched errno. */
int uc_progress(struct apple_uc *uc);
/* Reap once; when nothing came, idle, and watch deadline and peer. */
int uc_wait_once(struct apple_uc *uc, struct uc_wait *wait);
int uc_send(struct vb_transport *t, const void *data, size_t size);
int uc_recv(struct vb_transport *t, void *data, size_t size);
int uc_flush(struct vb_transport *t);

/* apple_uc_boot.c: the readiness byte, one each way. Sends ours, waits for
 * the peer's. 0 and *peer, or the latched errno. */
int uc_exchange_ready(struct apple_uc *uc, uint8_t mine, uint8_t *peer);
/* Has the bootstrap stream ended? 0 no; 1 yes; else the latched errno. */
int uc_watch_peer(struct apple_uc *uc);

#endif
