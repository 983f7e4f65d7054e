/* SPDX-License-Identifier: MIT */
/* Extended completion queues: one completion at a time, read field by field. */
#define _GNU_SOURCE
#include "sim/verbs_front.h"

#include "sim/diag.h"

static struct front_cq *front_cq_of(struct ibv_cq_ex *ex)
{
	return (struct front_cq *)ex;
}

static int next_poll(struct ibv_cq_ex *ex)
{
	struct front_cq *front = front_cq_of(ex);
	int got = front_poll_cq(&front->cq, 1, &front->wc);

	if (got == 0)
		return ENOENT;
	if (got < 0)
		return -got;
	ex->wr_id = front->wc.wr_id;
	ex->status = front->wc.status;
	return 0;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	return attr && attr->comp_mask ? EINVAL : next_poll(ex);
}

static void end_poll(struct ibv_cq_ex *ex)
{
	(void)ex;
}

#define READ(type, name, field)                         \
	static type read_##name(struct ibv_cq_ex *ex)   \
	{                                               \
		return (type)front_cq_of(ex)->wc.field; \
	}
READ(enum ibv_wc_opcode, opcode, opcode)
READ(uint32_t, vendor_err, vendor_err)
READ(uint32_t, byte_len, byte_len)
READ(__be32, imm_data, imm_data)
READ(uint32_t, qp_num, qp_num)
READ(uint32_t, src_qp, src_qp)
READ(unsigned int, wc_flags, wc_flags)
READ(uint32_t, slid, slid)
READ(uint8_t, sl, sl)
READ(uint8_t, dlid_path_bits, dlid_path_bits)

/* Ticks of the device's free-running clock (2.3), which is ours. */
static uint64_t read_completion_ts(struct ibv_cq_ex *ex)
{
	uint64_t khz = front_host(ex->context)->clock_khz;
	uint64_t now = sim_now_ns();

	return now / 1000000 * khz + now % 1000000 * khz / 1000000;
}

static uint64_t read_wallclock_ns(struct ibv_cq_ex *ex)
{
	(void)ex;
	return sim_wall_ns();
}

/* No frame of ours carries a VLAN tag, and no flow rule sets one. */
static uint16_t read_cvlan(struct ibv_cq_ex *ex)
{
	(void)ex;
	return 0;
}

static uint32_t read_flow_tag(struct ibv_cq_ex *ex)
{
	(void)ex;
	return 0;
}

/* What a device can tell; tag matching, which none has, is not among it. */
static uint64_t known_flags(struct ibv_context *context)
{
	uint64_t flags = IBV_WC_STANDARD_FLAGS;

	if (front_host(context)->clock_khz)
		flags |= IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			 IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK |
			 IBV_WC_EX_WITH_CVLAN | IBV_WC_EX_WITH_FLOW_TAG;
	return flags;
}

static void fill_readers(struct ibv_cq_ex *ex)
{
	ex->start_poll = start_poll;
	ex->next_poll = next_poll;
	ex->end_poll = end_poll;
	ex->read_opcode = read_opcode;
	ex->read_vendor_err = read_vendor_err;
	ex->read_byte_len = read_byte_len;
	ex->read_imm_data = read_imm_data;
	ex->read_qp_num = read_qp_num;
	ex->read_src_qp = read_src_qp;
	ex->read_wc_flags = read_wc_flags;
	ex->read_slid = read_slid;
	ex->read_sl = read_sl;
	ex->read_dlid_path_bits = read_dlid_path_bits;
	ex->read_completion_ts = read_completion_ts;
	ex->read_completion_wallclock_ns = read_wallclock_ns;
	ex->read_cvlan = read_cvlan;
	ex->read_flow_tag = read_flow_tag;
}

struct ibv_cq_ex *front_create_cq_ex(struct ibv_context *context,
				     struct ibv_cq_init_attr_ex *attr)
{
	const uint32_t known =
		IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
	const uint32_t flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED |
			       IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	struct front_cq *front;

	if (attr->wc_flags & ~known_flags(context)) {
		sim_diag("create_cq_ex", "4.5: wc_flags of the device",
			 "refused: wc_flags 0x%llx",
			 (unsigned long long)(attr->wc_flags &
					      ~known_flags(context)));
		return fail_ptr(-EOPNOTSUPP);
	}
	if ((attr->comp_mask & ~known) ||
	    ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) &&
	     (attr->flags & ~flags)))
		return fail_ptr(-EINVAL);
	front = front_create_cq(context, (int)attr->cqe, attr->cq_context,
				attr->channel, (int)attr->comp_vector);
	if (!front)
		return NULL;
	front->wc_flags = attr->wc_flags;
	fill_readers(&front->ex);
	return &front->ex;
}

/* Moderation changes when events come, never whether; ours come at once. */
int front_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
{
	struct sim_ctx *ctx = ctx_of(cq->context);

	if (!sim_cq_mine(ctx->world, cq->handle))
		return EINVAL;
	if (attr->attr_mask & ~(uint32_t)IBV_CQ_ATTR_MODERATE)
		return EINVAL;
	return front_model(cq->context)->has_moderation ? 0 : EOPNOTSUPP;
}
