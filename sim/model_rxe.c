/* SPDX-License-Identifier: MIT */
/*
 * Soft-RoCE (rdma_rxe) of Linux, which differs from cards (3.6).
 *
 * Section numbers are those of spec/device-models.md. One deviation:
 * queue pair numbers do not start at 17.
 */
#define _GNU_SOURCE
#include "sim/model.h"

#include <errno.h>

#include "sim/diag.h"

#define NAME	   "rxe"
#define SGE_MAX	   32
#define WR_MAX	   1048576
#define INLINE_MAX 512 /* 2.9 */

static int check_send(const struct sim_host *host, const struct sim_qp *qp,
		      const struct ibv_send_wr *wr, uint64_t len)
{
	int rc = sim_model_check_send(host, qp, wr, len);

	if (rc)
		return rc;
	if ((wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	     wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) &&
	    wr->wr.atomic.remote_addr % 8 != 0) {
		sim_diag(NAME, "3.6: refused here, a completion on cards",
			 "post_send refused on qp 0x%x: atomic at an "
			 "unaligned address",
			 qp->qp_num);
		return -EINVAL;
	}
	return 0;
}

enum knob {
	KERNEL,
	LOOPBACKS,
	MEMLOCK,
	TIMERS,
};

static const struct sim_knob knobs[] = {
	[KERNEL] = {"kernel", "6.1|6.12", "2.4, 10.2",
		    "6.12 has long messages and LAST_WQE_REACHED"},
	[LOOPBACKS] = {"loopbacks", "#6 of 0..7", "2.5",
		       "GIDs of 127.0.0.1 … n; 1 leaves index 2 on empty"},
	[MEMLOCK] = SIM_KNOB_MEMLOCK,
	[TIMERS] = SIM_KNOB_TIMERS,
};

/* Queues hold 2^n - 1 requests and say so (2.9). */
static uint32_t grant(const struct sim_host *host, uint32_t asked)
{
	(void)host;
	return asked ? sim_round_up(asked + 1) - 1 : 0;
}

static bool drops_misfit(const struct sim_host *host)
{
	(void)host;
	return true;
}

static void init_host(struct sim_host *host, uint32_t index)
{
	/* From the MAC 02:00:0a:00:00:0N, as an EUI. */
	sim_model_init_host(host, 0x00000afffe000001ull + index,
			    1u << IBV_GID_TYPE_ROCE_V2,
			    sim_knob(host, LOOPBACKS));
	host->holds_to_memlock = sim_knob(host, MEMLOCK) == 1;
	host->timer_speed = (uint32_t)sim_knob(host, TIMERS);
	if (sim_knob(host, KERNEL) == 1) {
		host->port_attr.max_msg_sz = 0x80000000;
		host->events |= 1u << IBV_EVENT_QP_LAST_WQE_REACHED;
	}
}

static const struct sim_model rxe = {
	.name = NAME,
	.what = "Soft-RoCE, the kernel's rdma_rxe",
	.rank = 30,
	.device_name = "rxe0",
	.node_type = IBV_NODE_CA,
	.transport_type = IBV_TRANSPORT_IB,
	.attr =
		{
			.fw_ver = "0.0.0",
			.max_mr_size = UINT64_MAX,
			.page_size_cap = 0xfffff000,
			.vendor_id = 0xffffff,
			.max_qp = 1048560,
			.max_qp_wr = WR_MAX,
			.device_cap_flags = 0x01223c76,
			.max_sge = SGE_MAX,
			.max_sge_rd = SGE_MAX,
			.max_cq = 1048576,
			.max_cqe = 32767,
			.max_mr = 524287,
			.max_pd = 1048576,
			.max_qp_rd_atom = 128,
			.max_res_rd_atom = 0x3f000,
			.max_qp_init_rd_atom = 128,
			.atomic_cap = IBV_ATOMIC_HCA,
			.max_mw = 524287,
			.max_mcast_grp = 8192,
			.max_mcast_qp_attach = 56,
			.max_total_mcast_qp_attach = 8192 * 56,
			.max_ah = 32767,
			.max_srq = 917503,
			.max_srq_wr = WR_MAX,
			.max_srq_sge = 27,
			.max_pkeys = 64,
			.local_ca_ack_delay = 15,
		},
	.port =
		{
			.max_mtu = IBV_MTU_4096,
			.active_mtu = IBV_MTU_1024,
			.gid_tbl_len = 1024,
			.port_cap_flags = 0x00010000, /* CM_SUP */
			.max_msg_sz = 0x800000,
			.pkey_tbl_len = 1,
			.max_vl_num = 1,
			.active_width = 1, /* 1X */
			.active_speed = 1, /* SDR */
			.phys_state = 5,
			.link_layer = IBV_LINK_LAYER_ETHERNET,
		},
	.knobs = knobs,
	.knob_count = sizeof(knobs) / sizeof(*knobs),
	.pd_limit = SIM_PD_MAX,
	.cq_limit = SIM_CQ_MAX,
	.qp_limit = SIM_QP_MAX,
	.mr_limit = SIM_MR_MAX,
	.srq_limit = SIM_SRQ_MAX,
	.srq_max_wr = WR_MAX,
	.srq_max_sge = 27,
	.has_windows = true,
	.pins_memory = true,
	.has_multicast = true,
	.has_rereg = true,
	.rereg_keeps_range = true,
	.events = 1u << IBV_EVENT_CQ_ERR | 1u << IBV_EVENT_SQ_DRAINED |
		  1u << IBV_EVENT_SRQ_LIMIT_REACHED,
	.qp_types = 1u << IBV_QPT_RC | 1u << IBV_QPT_UC | 1u << IBV_QPT_UD,
	.max_send_sge = SGE_MAX,
	.max_recv_sge = SGE_MAX,
	.max_inline = INLINE_MAX,
	.inline_per_sge = 16,
	.cq_depth_rounds = true,
	.errno_send_state = EINVAL,
	.errno_recv_state = EINVAL,
	.errno_send_full = ENOMEM,
	.errno_recv_full = ENOMEM,
	.errno_send_sge = EINVAL,
	.errno_recv_sge = EINVAL,
	.errno_inline = EINVAL,
	.errno_qp_limit = ENOMEM,
	.errno_mr_bound = EINVAL,
	.check_qp = sim_model_check_qp,
	.check_mr = sim_model_check_mr,
	.check_modify = sim_model_check_modify,
	.check_send = check_send,
	.grant = grant,
	.recv_from = sim_model_recv_from,
	.no_recv = sim_model_no_recv,
	.misfit_status = IBV_WC_REM_INV_REQ_ERR,
	.drops_misfit = drops_misfit,
	.psn_ok = sim_model_psn_ok,
	.fails_qp_on_misfit = true,
	.recv_prot_status = IBV_WC_LOC_QP_OP_ERR,
	.recv_says_grh = true,
	.retry_7_is_forever = true,
	.takes_any_length = true,
	.loses_long_datagrams = true,
	.errors_say_send = true,
	.local_inv_types = 1u << IBV_QPT_RC,
	.keeps_early_sends = true,
	.reclaims_when_done = true,
	.no_recv_beside_srq = true,
	.srq_tells_uc_misfit = true,
	.overrun_fails_responder = true,
	.keeps_dead_completions = true,
	.rounds_rd_atomic = true,
	.init_host = init_host,
};

SIM_MODEL(rxe);
