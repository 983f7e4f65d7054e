/* SPDX-License-Identifier: MIT */
/*
 * The Apple Thunderbolt device: UC only, SEND and RECV only, 4 KiB frames.
 *
 * Rule ids (R1 … R61) are rows of spec/apple-and-ggml-transports.md, section
 * 4. Where the sources disagree the row is a knob, its default first.
 */
#define _GNU_SOURCE
#include "sim/model.h"

#include <errno.h>
#include <string.h>

#include "sim/diag.h"

#define NAME		  "apple-tb"
#define THUNDERBOLT	  100 /* transport and link layer in Apple's verbs.h */
#define FRAME_BYTES	  4096
#define FRAMES_MAX	  4095
#define FRAMES_SMALL	  1023 /* granted to any small request (R12) */
#define MESSAGE_MAX	  (FRAMES_MAX * (uint64_t)FRAME_BYTES)
#define MR_ADVERTISED_MAX 0xfa0000
#define QP_LIMIT	  10 /* the 11th is refused, though 11 are shown */
#define LOOPBACKS	  8  /* 127.0.0.1 … 127.0.0.8 */

enum knob {
	RC_REFUSAL,
	MAX_QP_SHOWN,
	MR_SCOPE,
	MR_4G,
	MR_ALIGN,
	MR_FLAGS,
	GRANT,
	OVER_BUDGET,
	BUDGET,
	SEND_DONE,
	OTHER_OPCODES,
	POST_RECV_FROM,
	PSN,
	IPV4_GID,
	PORTS,
	CABLE,
};

static const struct sim_knob knobs[] = {
	[RC_REFUSAL] = {"rc_refusal", "create|rtr", "R1",
			"where an RC queue pair is refused"},
	[MAX_QP_SHOWN] = {"max_qp", "#11 of 1..11", "R4", "max_qp as reported"},
	[MR_SCOPE] = {"mr_scope", "device|pd", "R5",
		      "what the limit of 100 regions counts"},
	[MR_4G] = {"mr_4g", "reject|enforce|alias", "R6",
		   "regions of 4 GiB or across a 4 GiB line; enforce also "
		   "holds to max_mr_size; alias registers and misplaces"},
	[MR_ALIGN] = {"mr_align", "#4096 of 1..65536", "R7",
		      "alignment of a region"},
	[MR_FLAGS] = {"mr_flags", "any|strict", "R8",
		      "strict refuses LOCAL_WRITE alone"},
	[GRANT] = {"grant", "#0 of 0..4095", "R12",
		   "frames granted a queue; 0 rounds up to 1023 or 4095"},
	[OVER_BUDGET] = {"over_budget", "enomem|accept", "R13",
			 "a receive over the budget; accept loses its data"},
	[BUDGET] = {"budget", "qp|port", "R14", "what the budget counts"},
	[SEND_DONE] = {"send_done", "credit|post", "R21",
		       "when a send completes"},
	[OTHER_OPCODES] = {"other_opcodes", "refuse|ignore", "R24",
			   "ignore completes them with no effect"},
	[POST_RECV_FROM] = {"post_recv_from", "rts|rtr|init", "R28",
			    "first state in which post_recv is taken"},
	[PSN] = {"psn", "ignore|match", "R32", "match drops what differs"},
	[IPV4_GID] = {"ipv4_gid", "1|2|none", "R36",
		      "index of the first IPv4 entry of the GID table"},
	[PORTS] = {"ports", "#1 of 1..2", "R38",
		   "1, or 2 with only port 2 cabled"},
	[CABLE] = {"cable", "up|down", "R39", "down: the port is not ACTIVE"},
};

static uint32_t frames_of(uint64_t len)
{
	return sim_frames(FRAME_BYTES, len);
}

static int check_qp(const struct sim_qp_request *request)
{
	static const char *const types[] = {
		[IBV_QPT_RC] = "RC", [IBV_QPT_UC] = "UC", [IBV_QPT_UD] = "UD"};
	const struct ibv_qp_init_attr *attr = request->attr;
	unsigned type = attr->qp_type;
	const struct ibv_qp_cap *cap = &attr->cap;

	if (type == IBV_QPT_RC && sim_knob(request->host, RC_REFUSAL) == 1)
		type = IBV_QPT_UC; /* refused later, at RTR */
	if (type != IBV_QPT_UC) {
		sim_diag(NAME,
			 type == IBV_QPT_UD ? "R2: measured on hardware"
					    : "R1: TN3205",
			 "create_qp refused: type %s (%u), the device has UC "
			 "only",
			 type <= IBV_QPT_UD && types[type] ? types[type]
							   : "unknown",
			 type);
		return -EOPNOTSUPP;
	}
	if (attr->srq) {
		sim_diag(NAME, "R26: absent from Apple's library",
			 "create_qp refused: there are no shared receive "
			 "queues");
		return -EOPNOTSUPP;
	}
	if (cap->max_send_sge > 1 || cap->max_recv_sge > 1) {
		sim_diag(NAME, "R4, R18: max_sge 1",
			 "create_qp refused: %u send and %u receive sges asked",
			 cap->max_send_sge, cap->max_recv_sge);
		return -EINVAL;
	}
	if (cap->max_inline_data) {
		sim_diag(NAME, "R25: inline capacity 0",
			 "create_qp refused: %u inline bytes asked",
			 cap->max_inline_data);
		return -EINVAL;
	}
	if (cap->max_send_wr > FRAMES_MAX || cap->max_recv_wr > FRAMES_MAX) {
		sim_diag(NAME, "R11: TN3205",
			 "create_qp refused: %u send and %u receive frames "
			 "asked, a queue holds at most %d",
			 cap->max_send_wr, cap->max_recv_wr, FRAMES_MAX);
		return -EINVAL;
	}
	return 0;
}

static int check_pd(const struct sim_host *host)
{
	for (int i = 0; i < SIM_PORT_MAX; i++)
		if (host->port[i].state == IBV_PORT_ACTIVE)
			return 0;
	sim_diag(NAME, "R39: TN3205, mlx PR 4530",
		 "alloc_pd refused: no port is ACTIVE, the cable is down");
	return -ENETDOWN;
}

static bool crosses_4g(uint64_t addr, uint64_t length)
{
	return length && (addr >> 32) != ((addr + length - 1) >> 32);
}

static int check_mr(const struct sim_host *host, uint64_t addr, uint64_t length,
		    uint32_t access)
{
	const uint32_t remote =
		IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	uint64_t align = (uint64_t)sim_knob(host, MR_ALIGN);
	int mode = sim_knob(host, MR_4G);

	if (!(access & IBV_ACCESS_LOCAL_WRITE) ||
	    (sim_knob(host, MR_FLAGS) == 1 && !(access & remote))) {
		sim_diag(NAME, "R8: sources disagree, knob mr_flags",
			 "reg_mr refused: access flags 0x%x", access);
		return -EINVAL;
	}
	if (align && addr % align) {
		sim_diag(NAME, "R7: TN3205",
			 "reg_mr refused: address 0x%llx is not %llu-aligned",
			 (unsigned long long)addr, (unsigned long long)align);
		return -EINVAL;
	}
	if (mode < 2 && crosses_4g(addr, length)) {
		sim_diag(NAME, "R6: measured, knob mr_4g",
			 "reg_mr refused: 0x%llx + %llu crosses a 4 GiB line; "
			 "the device would place the data 4 GiB off",
			 (unsigned long long)addr, (unsigned long long)length);
		return -EINVAL;
	}
	if (mode == 1 && length > MR_ADVERTISED_MAX) {
		sim_diag(NAME, "R6: knob mr_4g=enforce",
			 "reg_mr refused: %llu bytes, max_mr_size is %d",
			 (unsigned long long)length, MR_ADVERTISED_MAX);
		return -EINVAL;
	}
	return 0;
}

static bool aliases_mr(const struct sim_host *host, uint64_t addr,
		       uint64_t length)
{
	return sim_knob(host, MR_4G) == 2 && crosses_4g(addr, length);
}

static bool has_gid(const struct sim_host *host, const uint8_t *gid)
{
	static const uint8_t zero[16];

	if (memcmp(gid, zero, 16) == 0)
		return false;
	for (int i = 0; i < host->gid_count; i++)
		if (memcmp(host->gid[i], gid, 16) == 0)
			return true;
	return false;
}

/* The hosts are an array of two and the cable has two ends. */
static const struct sim_host *far_end(const struct sim_host *host,
				      uint32_t index)
{
	return index == 0 ? host + 1 : host - 1;
}

static int check_rtr(const struct sim_host *host, const struct sim_qp *qp,
		     const struct ibv_qp_attr *attr)
{
	static const uint8_t zero[16];
	const struct ibv_ah_attr *ah = &attr->ah_attr;
	const struct sim_host *far = far_end(host, qp->object.host);

	if (qp->type == IBV_QPT_RC) {
		sim_diag(NAME, "R1: knob rc_refusal=rtr",
			 "modify_qp refused: RC reaches RTR on no device");
		return -EOPNOTSUPP;
	}
	if (attr->path_mtu != IBV_MTU_1024 && attr->path_mtu != IBV_MTU_4096) {
		sim_diag(NAME, "R33: 1024 and 4096 are known to work",
			 "modify_qp refused: path_mtu enum %d", attr->path_mtu);
		return -EINVAL;
	}
	if (!ah->is_global || ah->grh.sgid_index >= host->gid_count ||
	    memcmp(host->gid[ah->grh.sgid_index], zero, 16) == 0) {
		sim_diag(NAME, "R30, R34: TN3205, mlx 3467",
			 "modify_qp refused: is_global %d, sgid_index %d of a "
			 "table of %d: no such GID",
			 ah->is_global, ah->grh.sgid_index, host->gid_count);
		return -EINVAL;
	}
	if (!has_gid(far, ah->grh.dgid.raw)) {
		sim_diag(NAME, "R34, R42: exo 1973, TN3205",
			 "modify_qp refused: the other end of the cable does "
			 "not have the destination GID");
		return -ETIMEDOUT;
	}
	return 0;
}

static int check_modify(const struct sim_host *host, const struct sim_qp *qp,
			const struct ibv_qp_attr *attr, int mask)
{
	if (!(mask & IBV_QP_STATE))
		return 0;
	return attr->qp_state == IBV_QPS_RTR ? check_rtr(host, qp, attr) : 0;
}

static int check_send(const struct sim_host *host, const struct sim_qp *qp,
		      const struct ibv_send_wr *wr, uint64_t len)
{
	if (wr->opcode != IBV_WR_SEND && sim_knob(host, OTHER_OPCODES) == 0) {
		sim_diag(NAME, "R24: TN3205",
			 "post_send refused on qp 0x%x: opcode %d, the device "
			 "has SEND only",
			 qp->qp_num, wr->opcode);
		return -EOPNOTSUPP;
	}
	if (len > MESSAGE_MAX) {
		sim_diag(NAME, "R11: TN3205",
			 "post_send refused on qp 0x%x: %llu bytes, a message "
			 "has at most %llu",
			 qp->qp_num, (unsigned long long)len,
			 (unsigned long long)MESSAGE_MAX);
		return -EINVAL;
	}
	return 0;
}

static uint32_t grant(const struct sim_host *host, uint32_t asked)
{
	uint32_t fixed = (uint32_t)sim_knob(host, GRANT);

	if (fixed)
		return fixed < FRAMES_MAX ? fixed : FRAMES_MAX;
	return asked <= FRAMES_SMALL ? FRAMES_SMALL : FRAMES_MAX;
}

static enum ibv_qp_state recv_from(const struct sim_host *host)
{
	static const enum ibv_qp_state from[] = {IBV_QPS_RTS, IBV_QPS_RTR,
						 IBV_QPS_INIT};

	return from[sim_knob(host, POST_RECV_FROM)];
}

static enum sim_no_recv no_recv(const struct sim_qp *qp)
{
	(void)qp;
	return SIM_NO_RECV_HOLD;
}

static enum ibv_wc_status fit(const struct sim_host *host,
			      const struct sim_fit *f)
{
	(void)host;
	if (frames_of(f->send_len) != frames_of(f->recv_len)) {
		sim_diag(NAME, "R15: TN3205 requires equal counts",
			 "recv #%llu on qp 0x%x covers %u frames (%llu B), the "
			 "matching send covers %u (%llu B)",
			 (unsigned long long)f->recv_ordinal, f->qp_num,
			 frames_of(f->recv_len),
			 (unsigned long long)f->recv_len,
			 frames_of(f->send_len),
			 (unsigned long long)f->send_len);
		return IBV_WC_LOC_LEN_ERR;
	}
	/* Lengths inside the last frame may differ, but never overflow. */
	return f->send_len > f->recv_len ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS;
}

static bool psn_ok(const struct sim_host *host, const struct sim_qp *from,
		   const struct sim_qp *to)
{
	return sim_knob(host, PSN) == 0 || from->attr.sq_psn == to->attr.rq_psn;
}

static bool ignores_opcode(const struct sim_host *host, unsigned opcode)
{
	return sim_knob(host, OTHER_OPCODES) == 1 && opcode != IBV_WR_SEND;
}

static bool completes_at_post(const struct sim_host *host)
{
	return sim_knob(host, SEND_DONE) == 1;
}

static bool takes_over_budget(const struct sim_host *host)
{
	return sim_knob(host, OVER_BUDGET) == 1;
}

static bool budget_is_ports(const struct sim_host *host)
{
	return sim_knob(host, BUDGET) == 1;
}

static bool mr_limit_is_pds(const struct sim_host *host)
{
	return sim_knob(host, MR_SCOPE) == 1;
}

static void init_host(struct sim_host *host, uint32_t index)
{
	int ports = sim_knob(host, PORTS) == 2 ? 2 : 1;
	int ipv4 = sim_knob(host, IPV4_GID);

	host->guid = 0x0a00270000000100ull + index;
	host->gid_count = 0;
	/* Index 0, and every index below the IPv4 ones: fe80 from a MAC. */
	for (uint32_t i = 0; i <= (uint32_t)ipv4 && i < 2; i++)
		sim_model_add_gid(host, 0,
				  0x0a0000fffe000001ull + (i << 8) + index,
				  IBV_GID_TYPE_ROCE_V2);
	for (int n = 1; ipv4 < 2 && n <= LOOPBACKS; n++)
		sim_model_add_gid(host, n, 0, IBV_GID_TYPE_ROCE_V2);
	for (int i = 0; i < ports; i++) {
		host->port[i].state = IBV_PORT_DOWN;
		host->port[i].lid = (uint16_t)(index + 1);
	}
	host->port_count = ports;
	host->active_port = sim_knob(host, CABLE) == 0 ? ports : 0;
	host->attr.max_qp = sim_knob(host, MAX_QP_SHOWN);
}

static const struct sim_model apple_tb = {
	.name = NAME,
	.what = "Apple Thunderbolt: UC, SEND/RECV, 4 KiB frames (TN3205)",
	.rank = 20,
	.device_name = "rdma_en5",
	.node_type = IBV_NODE_CA,
	.transport_type = THUNDERBOLT,
	.attr =
		{
			.fw_ver = "1.0",
			.max_mr_size = MR_ADVERTISED_MAX,
			.page_size_cap = FRAME_BYTES,
			.vendor_id = 0x05ac,
			.max_qp_wr = FRAMES_MAX,
			.max_sge = 1,
			.max_sge_rd = 1,
			.max_cq = 11,
			.max_cqe = 65535,
			.max_mr = 100,
			.max_pd = 11,
			.atomic_cap = IBV_ATOMIC_NONE,
			.max_pkeys = 1,
		},
	.port =
		{
			.max_mtu = IBV_MTU_4096,
			.active_mtu = IBV_MTU_4096,
			.gid_tbl_len = SIM_GID_MAX,
			.max_msg_sz = 0x1000000,
			.pkey_tbl_len = 1,
			.active_width = 4, /* 8X */
			.active_speed = 4, /* 10.0 Gbps */
			.phys_state = 5,
			.link_layer = THUNDERBOLT,
		},
	.knobs = knobs,
	.knob_count = sizeof(knobs) / sizeof(*knobs),
	.pd_limit = 11,
	.cq_limit = 11,
	.qp_limit = QP_LIMIT,
	.mr_limit = 100,
	.max_send_sge = 1,
	.max_recv_sge = 1,
	.max_inline = 0,
	.frame_bytes = FRAME_BYTES,
	.errno_send_state = EINVAL,
	.errno_recv_state = EINVAL,
	.errno_send_full = ENOMEM,
	.errno_recv_full = -ENOMEM, /* the sign was measured (R13) */
	.errno_send_sge = EINVAL,
	.errno_recv_sge = EINVAL,
	.errno_inline = EINVAL,
	.errno_qp_limit = EBUSY,
	.check_qp = check_qp,
	.check_pd = check_pd,
	.check_mr = check_mr,
	.check_modify = check_modify,
	.check_send = check_send,
	.grant = grant,
	.recv_from = recv_from,
	.no_recv = no_recv,
	.fit = fit,
	.psn_ok = psn_ok,
	.is_point_to_point = true,
	.ignores_opcode = ignores_opcode,
	.completes_at_post = completes_at_post,
	.takes_over_budget = takes_over_budget,
	.budget_is_ports = budget_is_ports,
	.mr_limit_is_pds = mr_limit_is_pds,
	.aliases_mr = aliases_mr,
	.init_host = init_host,
};

SIM_MODEL(apple_tb);
