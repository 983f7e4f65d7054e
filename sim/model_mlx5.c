/* SPDX-License-Identifier: MIT */
/*
 * ConnectX-5, 6 and 7; the default device is a ConnectX-5 on InfiniBand.
 *
 * Section numbers are those of spec/device-models.md. On InfiniBand a port's
 * GID table holds its GUID only; here the addresses of loopback follow it.
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
	LINK,
	GENERATION,
	MTU,
	LOOPBACKS,
	UC_SHORT_RECV,
	MEMLOCK,
	TIMERS,
	ARM,
};

static const struct sim_knob knobs[] = {
	[LINK] = {"link", "ib|roce", "2.1, 2.4, 2.5",
		  "InfiniBand, or Ethernet with GIDs in v1, v2 pairs"},
	[GENERATION] = {"gen", "cx5|cx6|cx7", "2.1, 2.2", "which ConnectX"},
	[MTU] = {"mtu", "link|1024|2048|4096", "2.4",
		 "active_mtu; link: 4096, and 1024 on Ethernet"},
	[LOOPBACKS] = {"loopbacks", "#6 of 0..7", "2.5",
		       "GIDs of 127.0.0.1 … n; 0 leaves the port's own"},
	[UC_SHORT_RECV] = {"uc_short_recv", "loc_len|drop", "5.4, 7",
			   "a UC message longer than its receive"},
	[MEMLOCK] = SIM_KNOB_MEMLOCK,
	[TIMERS] = SIM_KNOB_TIMERS,
	[ARM] = {"arm", "unpolled|later", "5.8; 10, correction 6",
		 "a queue armed with completions in it: an event for those, or "
		 "only for later ones"},
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

static int check_modify(const struct sim_host *host, const struct sim_qp *qp,
			const struct ibv_qp_attr *attr, int mask)
{
	if ((mask & IBV_QP_PKEY_INDEX) &&
	    attr->pkey_index >= host->port_attr.pkey_tbl_len)
		return -EINVAL;
	return sim_model_check_modify(host, qp, attr, mask);
}

static uint32_t grant(const struct sim_host *host, uint32_t asked)
{
	(void)host;
	return sim_round_up(asked);
}

/* Seen in public logs, or unconfirmed where the spec says so (3.5). */
static const uint8_t vendor_errs[] = {
	[IBV_WC_LOC_LEN_ERR] = 0x68,	    [IBV_WC_LOC_PROT_ERR] = 0x51,
	[IBV_WC_WR_FLUSH_ERR] = 0xf9,	    [IBV_WC_REM_INV_REQ_ERR] = 0x8a,
	[IBV_WC_REM_ACCESS_ERR] = 0x88,	    [IBV_WC_REM_OP_ERR] = 0x89,
	[IBV_WC_RETRY_EXC_ERR] = 0x81,	    [IBV_WC_RNR_RETRY_EXC_ERR] = 0x87,
	[IBV_WC_TM_RNDV_INCOMPLETE] = 0x00,
};

static bool arm_sees_unpolled(const struct sim_host *host)
{
	return sim_knob(host, ARM) == 0;
}

static bool drops_misfit(const struct sim_host *host)
{
	return sim_knob(host, UC_SHORT_RECV) == 1;
}

/* What differs between the generations (2.1, 2.2, 2.3). */
static const struct {
	const char *fw_ver;
	uint32_t part_id, cap_flags, clock_khz;
	int max_qp, max_pd;
	uint8_t speed; /* of a lane: EDR, HDR, NDR */
} generations[] = {
	{"16.35.2000", 4119, 0xe5721c36, 156250, 262144, 16777216, 32},
	{"20.35.2000", 4123, 0xe97e1c36, 156250, 262144, 8388608, 64},
	{"28.35.2000", 4129, 0xe97e1c36, 1000000, 131072, 8388608, 128},
};

static void set_generation(struct sim_host *host, int generation)
{
	struct ibv_device_attr *attr = &host->attr;

	snprintf(attr->fw_ver, sizeof(attr->fw_ver), "%s",
		 generations[generation].fw_ver);
	attr->vendor_part_id = generations[generation].part_id;
	attr->device_cap_flags = generations[generation].cap_flags;
	attr->max_qp = generations[generation].max_qp;
	attr->max_pd = generations[generation].max_pd;
	attr->max_res_rd_atom = 16 * attr->max_qp;
	host->port_attr.active_speed = generations[generation].speed;
	host->clock_khz = generations[generation].clock_khz;
}

static void set_ethernet(struct sim_host *host)
{
	struct ibv_port_attr *port = &host->port_attr;

	port->link_layer = IBV_LINK_LAYER_ETHERNET;
	port->active_mtu = IBV_MTU_1024; /* of a netdev with 1500 bytes */
	port->gid_tbl_len = 256;
	port->pkey_tbl_len = 1;
	port->port_cap_flags = 0x04010000; /* CM_SUP, IP_BASED_GIDS */
	port->sm_lid = port->max_vl_num = port->subnet_timeout = 0;
	host->qp_types |= 1u << IBV_QPT_RAW_PACKET;
}

static void init_host(struct sim_host *host, uint32_t index)
{
	static const enum ibv_mtu mtus[] = {0, IBV_MTU_1024, IBV_MTU_2048,
					    IBV_MTU_4096};
	bool is_ethernet = sim_knob(host, LINK) == 1;

	sim_model_init_host(host, 0x506b4b0300000100ull + index,
			    is_ethernet ? 1u << IBV_GID_TYPE_ROCE_V1 |
						  1u << IBV_GID_TYPE_ROCE_V2
					: 1u << IBV_GID_TYPE_IB,
			    sim_knob(host, LOOPBACKS));
	host->holds_to_memlock = sim_knob(host, MEMLOCK) == 1;
	host->timer_speed = (uint32_t)sim_knob(host, TIMERS);
	set_generation(host, sim_knob(host, GENERATION));
	host->port[0].lid = is_ethernet ? 0 : (uint16_t)(index + 1);
	if (is_ethernet)
		set_ethernet(host);
	if (sim_knob(host, MTU))
		host->port_attr.active_mtu = mtus[sim_knob(host, MTU)];
}

static const struct sim_model mlx5 = {
	.name = NAME,
	.what = "ConnectX-5 to 7",
	.rank = 10,
	.device_name = "mlx5_0",
	.node_type = IBV_NODE_CA,
	.transport_type = IBV_TRANSPORT_IB,
	.attr =
		{
			.max_mr_size = UINT64_MAX,
			.page_size_cap = 0xfffffffffffff000ull,
			.vendor_id = 0x02c9,
			.max_qp_wr = 32768,
			.max_sge = 30,
			.max_sge_rd = 30,
			.max_cq = 16777216,
			.max_cqe = 4194303,
			.max_mr = 16777216,
			.max_qp_rd_atom = 16,
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
			.gid_tbl_len = 8,
			.port_cap_flags = 0x2651e848,
			.max_msg_sz = 0x40000000,
			.pkey_tbl_len = 128,
			.sm_lid = 1,
			.max_vl_num = 4,
			.subnet_timeout = 18,
			.active_width = 2, /* 4X */
			.phys_state = 5,
			.link_layer = IBV_LINK_LAYER_INFINIBAND,
		},
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
	.ece_vendor = 0x15b3, /* its PCI vendor */
	.has_windows = true,
	.pins_memory = true,
	.has_multicast = true,
	.has_xrc = true,
	.has_rereg = true,
	.events = 1u << IBV_EVENT_CQ_ERR | 1u << IBV_EVENT_QP_FATAL |
		  1u << IBV_EVENT_QP_REQ_ERR | 1u << IBV_EVENT_QP_ACCESS_ERR |
		  1u << IBV_EVENT_COMM_EST | 1u << IBV_EVENT_SQ_DRAINED |
		  1u << IBV_EVENT_SRQ_LIMIT_REACHED |
		  1u << IBV_EVENT_QP_LAST_WQE_REACHED,
	.has_moderation = true,
	.qp_types = 1u << IBV_QPT_RC | 1u << IBV_QPT_UC | 1u << IBV_QPT_UD |
		    1u << IBV_QPT_XRC_SEND | 1u << IBV_QPT_XRC_RECV,
	.qp_create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB,
	.max_send_sge = 30,
	.max_recv_sge = 30,
	.max_inline = INLINE_MAX,
	.min_inline = INLINE_FREE,
	.cq_depth_rounds = true,
	.arm_sees_unpolled = arm_sees_unpolled,
	.errno_send_state = ENOMEM, /* 3.5: odd, and relied upon */
	.errno_recv_state = EINVAL,
	.errno_send_full = ENOMEM,
	.errno_recv_full = ENOMEM,
	.errno_send_sge = ENOMEM,
	.errno_recv_sge = EINVAL,
	.errno_inline = ENOMEM,
	.errno_qp_limit = ENOMEM,
	.errno_mr_bound = EBUSY,
	.check_qp = sim_model_check_qp,
	.check_mr = sim_model_check_mr,
	.check_queue = check_queue,
	.check_modify = check_modify,
	.check_send = sim_model_check_send,
	.grant = grant,
	.recv_from = sim_model_recv_from,
	.no_recv = sim_model_no_recv,
	.misfit_status = IBV_WC_LOC_LEN_ERR,
	.drops_misfit = drops_misfit,
	.psn_ok = sim_model_psn_ok,
	.sl_is_packet_type = true,
	.vendor_err = vendor_errs,
	.local_inv_types =
		1u << IBV_QPT_RC | 1u << IBV_QPT_UC | 1u << IBV_QPT_XRC_SEND,
	.fails_qp_on_misfit = true,
	.init_host = init_host,
};

SIM_MODEL(mlx5);
