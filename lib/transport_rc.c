/* SPDX-License-Identifier: MIT */
/*
 * The RC transport: each SEND as long as what it carries, no more than a chunk.
 * Compat mode is the wire of ggml-rpc's Linux path (spec/apple-and-ggml-
 * transports.md, 2): no header, and a SEND ends where the call of vb_send does,
 * because that peer takes one SEND for one read.
 */
#include "lib/qp_stream.h"

#define SPARE_SENDS 3u /* as the seed asks: 4 for 1, 28 for 24 */
#define SPARE_RECVS 4u

static int to_rtr(struct qp_stream *qs, const struct vb_caps *peer)
{
	struct ibv_qp_attr attr = qs_path(qs, peer, peer->psn);

	attr.max_dest_rd_atomic = 1;
	attr.min_rnr_timer = 1; /* 0.01 ms */
	return qs_modify(qs, &attr,
			 VB_PATH_MASK | IBV_QP_MAX_DEST_RD_ATOMIC |
				 IBV_QP_MIN_RNR_TIMER,
			 "RTR");
}

static int to_rts(struct qp_stream *qs)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = qs->mine.psn,
		.timeout = 14, /* 67 ms */
		.retry_cnt = 7,
		.rnr_retry = 7, /* for ever: the deadline is ours (D-L4) */
		.max_rd_atomic = 1,
	};

	return qs_modify(qs, &attr,
			 IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				 IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				 IBV_QP_MAX_QP_RD_ATOMIC,
			 "RTS");
}

/* L-1: the receives are there before the peer's first SEND can be. */
static int arm(struct qp_stream *qs, const struct vb_caps *peer)
{
	int rc = qs_post_recvs(qs);

	if (rc == 0)
		rc = to_rtr(qs, peer);
	return rc ? rc : to_rts(qs);
}

static struct qs_depth depth(const struct qp_stream *qs)
{
	return (struct qs_depth){.sends = qs->send_slots + SPARE_SENDS,
				 .recvs = qs->recv_slots + SPARE_RECVS,
				 .inline_bytes = 256};
}

const struct qs_kind vb_kind_rc = {
	.ops = QS_OPS("rc"),
	.kind = VB_TRANSPORT_RC,
	.platform = VB_PLATFORM_LINUX,
	.qp_type = IBV_QPT_RC,
	.stride_bytes = 262144,
	.send_slots = 1,
	.recv_slots = 24,
	.hardened_slots = 8,
	.framing = VB_FRAMING_NONE,
	.has_two_cqs = true,
	.depth = depth,
	.arm = arm,
};
