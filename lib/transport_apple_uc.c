/* SPDX-License-Identifier: MIT */
/*
 * The Apple UC transport: SENDs and RECVs of whole strides, because both must
 * cover the same number of 4 KiB Thunderbolt frames (R15). Compat mode is the
 * wire of ggml-rpc's (spec/apple-and-ggml-transports.md, 3).
 */
#include <string.h>

#include "lib/qp_stream.h"

#define PSN 0u /* any, but the same at both ends: UC never sends again */

static int to_rtr(struct qp_stream *qs, const struct vb_caps *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = qs->mtu,
		.rq_psn = PSN,
		.dest_qp_num = peer->qpn,
		.ah_attr = {.is_global = 1,
			    .dlid = peer->lid,
			    .port_num = qs->found.port.num,
			    .grh = {.hop_limit = 1,
				    .sgid_index =
					    (uint8_t)qs->found.gid.index}},
	};

	memcpy(attr.ah_attr.grh.dgid.raw, peer->gid, 16);
	return qs_modify(qs, &attr,
			 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				 IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
			 "RTR");
}

/* S3 … S5. Receives last: before RTS some refuse them (A-6, R28). */
static int arm(struct qp_stream *qs, const struct vb_caps *peer)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .sq_psn = PSN};
	int rc = to_rtr(qs, peer);

	if (rc == 0)
		rc = qs_modify(qs, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN, "RTS");
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
	.ops = {.name = "apple_uc",
		.activate = qs_activate,
		.send = qs_send,
		.recv = qs_recv,
		.flush = qs_flush,
		.reserve = qs_reserve,
		.commit = qs_commit,
		.peek = qs_peek,
		.consume = qs_consume,
		.close = qs_close},
	.kind = VB_TRANSPORT_APPLE_UC,
	.platform = VB_PLATFORM_APPLE,
	.qp_type = IBV_QPT_UC,
	.stride_bytes = 131072,
	.send_slots = 16,
	.recv_slots = 16,
	.frame_bytes = 4096,
	.framing = VB_FRAMING_COMPAT,
	.is_whole = true,
	.has_ready = true,
	.depth = depth,
	.arm = arm,
};
