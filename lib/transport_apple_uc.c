/* SPDX-License-Identifier: MIT */
/*
 * The Apple UC transport: SENDs and RECVs of whole strides, because both must
 * cover the same number of 4 KiB Thunderbolt frames (R15). Compat mode is the
 * wire of ggml-rpc's (spec/apple-and-ggml-transports.md, 3).
 */
#include "lib/qp_stream.h"

#define PSN 0u /* any, but the same at both ends: UC never sends again */

/* S3 … S5. Receives last: before RTS some refuse them (A-6, R28). */
static int arm(struct qp_stream *qs, const struct vb_caps *peer)
{
	struct ibv_qp_attr rtr = qs_path(qs, peer, PSN);
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .sq_psn = PSN};
	int rc = qs_modify(qs, &rtr, VB_PATH_MASK, "RTR");

	if (rc == 0)
		rc = qs_modify(qs, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN, "RTS");
	return rc ? rc : qs_post_recvs(qs);
}

/* TN3205 counts in frames. */
static struct qs_depth depth(const struct qp_stream *qs)
{
	uint32_t frames = qs->wire.stride_bytes / 4096;

	return (struct qs_depth){.sends = qs->send_slots * frames,
				 .recvs = qs->recv_slots * frames};
}

const struct qs_kind vb_kind_apple_uc = {
	.ops = QS_OPS("apple_uc"),
	.kind = VB_TRANSPORT_APPLE_UC,
	.platform = VB_PLATFORM_APPLE,
	.qp_type = IBV_QPT_UC,
	.stride_bytes = 131072,
	.send_slots = 16,
	.recv_slots = 16,
	.hardened_slots = 16,
	.frame_bytes = 4096,
	.framing = VB_FRAMING_COMPAT,
	.is_whole = true,
	.has_ready = true,
	.depth = depth,
	.arm = arm,
};
