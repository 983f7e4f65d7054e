/* SPDX-License-Identifier: MIT */
/*
 * ConnectX-5 on InfiniBand, the default device.
 *
 * Section numbers are those of spec/device-models.md. One deviation, for the
 * default world: the GID table has 16 entries, not 8, so that index 0 (the
 * port GUID) and 127.0.0.1 … 127.0.0.8 fit.
 */
#define _GNU_SOURCE
#include "sim/model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "sim/diag.h"

#define NAME	    "mlx5"
#define INLINE_MAX  828 /* RC, 2.9 */
#define INLINE_FREE 60	/* granted to an RC queue pair that asks for none */

enum knob {
	UC_SHORT_RECV,
};

static const struct sim_knob knobs[] = {
	[UC_SHORT_RECV] = {"uc_short_recv", "loc_len|drop", "5.4, 7",
			   "a UC message longer than its receive"},
};

/* libmlx5 reads MLX_QP_ALLOC_TYPE, MLX_CQ_ALLOC_TYPE and MLX_SRQ_ALLOC_TYPE;
 * HUGE means huge pages or nothing. */
static int check_queue(const char *kind)
{
	const size_t huge_page_bytes = 2 << 20;
	char variable[32];
	const char *type;
	void *page;

	snprintf(variable, sizeof(variable), "MLX_%s_ALLOC_TYPE", kind);
	type = getenv(variable);
	if (!type || strcmp(type, "HUGE") != 0)
		return 0;
	page = mmap(NULL, huge_page_bytes, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	if (page == MAP_FAILED) {
		sim_diag(NAME, "libmlx5: no huge page is free",
			 "create refused: %s=HUGE", variable);
		return -ENOMEM;
	}
	munmap(page, huge_page_bytes);
	return 0;
}

static uint32_t grant(const struct sim_host *host, uint32_t asked)
{
	(void)host;
	return sim_round_up(asked);
}

static enum ibv_wc_status fit(const struct sim_host *host,
			      const struct sim_fit *f)
{
	(void)host;
	return f->send_len > f->recv_len ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS;
}

/* Seen in public logs, or unconfirmed where the spec says so (3.5). */
static const uint8_t vendor_errs[] = {
	[IBV_WC_LOC_LEN_ERR] = 0x68,	    [IBV_WC_LOC_PROT_ERR] = 0x51,
	[IBV_WC_WR_FLUSH_ERR] = 0xf9,	    [IBV_WC_REM_INV_REQ_ERR] = 0x8a,
	[IBV_WC_REM_ACCESS_ERR] = 0x88,	    [IBV_WC_REM_OP_ERR] = 0x89,
	[IBV_WC_RETRY_EXC_ERR] = 0x81,	    [IBV_WC_RNR_RETRY_EXC_ERR] = 0x87,
	[IBV_WC_TM_RNDV_INCOMPLETE] = 0x00,
};

static bool drops_misfit(const struct sim_host *host)
{
	return sim_knob(host, UC_SHORT_RECV) == 1;
}

static void init_host(struct sim_host *host, uint32_t index)
{
	sim_model_init_host(host, 0x506b4b0300000100ull + index);
	host->port[0].lid = (uint16_t)(index + 1);
	host->max_qp_shown = 262144;
}

static const struct sim_model mlx5 = {
	.name = NAME,
	.what = "ConnectX-5 on InfiniBand",
	.rank = 10,
	.device_name = "mlx5_0",
	.node_type = IBV_NODE_CA,
	.transport_type = IBV_TRANSPORT_IB,
	.attr =
		{
			.fw_ver = "16.35.2000",
			.max_mr_size = UINT64_MAX,
			.page_size_cap = 0xfffffffffffff000ull,
			.vendor_id = 0x02c9,
			.vendor_part_id = 4119,
			.max_qp_wr = 32768,
			.device_cap_flags = 0xe5721c36,
			.max_sge = 30,
			.max_sge_rd = 30,
			.max_cq = 16777216,
			.max_cqe = 4194303,
			.max_mr = 16777216,
			.max_pd = 16777216,
			.max_qp_rd_atom = 16,
			.max_res_rd_atom = 4194304,
			.max_qp_init_rd_atom = 16,
			.atomic_cap = IBV_ATOMIC_HCA,
			.max_mw = 16777216,
			.max_mcast_grp = 2097152,
			.max_mcast_qp_attach = 240,
			.max_total_mcast_qp_attach = 503316480,
			.max_ah = 2147483647,
			.max_srq = 8388608,
			.max_srq_wr = 32767,
			.max_srq_sge = 31,
			.max_pkeys = 128,
			.local_ca_ack_delay = 16,
		},
	.port =
		{
			.max_mtu = IBV_MTU_4096,
			.active_mtu = IBV_MTU_4096,
			.gid_tbl_len = SIM_GID_MAX,
			.port_cap_flags = 0x2651e848,
			.max_msg_sz = 0x40000000,
			.pkey_tbl_len = 128,
			.sm_lid = 1,
			.max_vl_num = 4,
			.subnet_timeout = 18,
			.active_width = 2,  /* 4X */
			.active_speed = 32, /* 25 Gbps a lane */
			.phys_state = 5,
			.link_layer = IBV_LINK_LAYER_INFINIBAND,
		},
	.gid_type = IBV_GID_TYPE_IB,
	.knobs = knobs,
	.knob_count = sizeof(knobs) / sizeof(*knobs),
	.pd_limit = SIM_PD_MAX,
	.cq_limit = SIM_CQ_MAX,
	.qp_limit = SIM_QP_MAX,
	.mr_limit = SIM_MR_MAX,
	.srq_limit = SIM_SRQ_MAX,
	.srq_max_wr = 32767,
	.srq_max_sge = 31,
	.dm_bytes = 131072,
	.has_windows = true,
	.has_multicast = true,
	.has_xrc = true,
	.has_rereg = true,
	.events = 1u << IBV_EVENT_CQ_ERR | 1u << IBV_EVENT_QP_FATAL |
		  1u << IBV_EVENT_QP_REQ_ERR | 1u << IBV_EVENT_QP_ACCESS_ERR |
		  1u << IBV_EVENT_COMM_EST | 1u << IBV_EVENT_SQ_DRAINED |
		  1u << IBV_EVENT_SRQ_LIMIT_REACHED |
		  1u << IBV_EVENT_QP_LAST_WQE_REACHED,
	.has_timestamps = true,
	.has_moderation = true,
	.qp_types = 1u << IBV_QPT_RC | 1u << IBV_QPT_UC | 1u << IBV_QPT_UD |
		    1u << IBV_QPT_XRC_SEND | 1u << IBV_QPT_XRC_RECV,
	.qp_create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB,
	.max_send_sge = 30,
	.max_recv_sge = 30,
	.max_inline = INLINE_MAX,
	.min_inline = INLINE_FREE,
	.cq_depth_rounds = true,
	.arm_sees_unpolled = true,
	.errno_send_state = ENOMEM, /* 3.5: odd, and relied upon */
	.errno_recv_state = EINVAL,
	.errno_send_full = ENOMEM,
	.errno_recv_full = ENOMEM,
	.errno_send_sge = ENOMEM,
	.errno_recv_sge = EINVAL,
	.errno_inline = ENOMEM,
	.errno_qp_limit = ENOMEM,
	.check_qp = sim_model_check_qp,
	.check_mr = sim_model_check_mr,
	.check_queue = check_queue,
	.check_modify = sim_model_check_modify,
	.check_send = sim_model_check_send,
	.grant = grant,
	.recv_from = sim_model_recv_from,
	.no_recv = sim_model_no_recv,
	.fit = fit,
	.drops_misfit = drops_misfit,
	.psn_ok = sim_model_psn_ok,
	.vendor_err = vendor_errs,
	.fails_qp_on_misfit = true,
	.init_host = init_host,
};

SIM_MODEL(mlx5);
