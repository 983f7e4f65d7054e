/* SPDX-License-Identifier: MIT */
/*
 * The builders behind an extended queue pair: ibv_wr_start opens a batch,
 * builders add requests to it, setters complete the last one, and
 * ibv_wr_complete posts all of it or none.
 */
#include "sim/verbs_front.h"

#include <stdlib.h>
#include <string.h>

#include "sim/diag.h"

/* A request under construction; its sges and inline bytes are in the batch's
 * arrays, which move while they grow. */
struct built {
	struct ibv_send_wr wr;
	size_t sge_at;
	size_t inline_at;
	size_t inline_len;
	bool is_inline;
	struct ibv_sge inline_sge;
};

struct front_batch {
	struct built *built;
	struct ibv_sge *sge;
	uint8_t *bytes;
	size_t built_count, built_max;
	size_t sge_count, sge_max;
	size_t byte_count, byte_max;
	int error; /* the first, latched; told by complete */
};

/* Room for `more` elements behind `count`; false without memory. */
static bool grow(void *array, size_t *max, size_t count, size_t more,
		 size_t size)
{
	size_t want = count + more;
	void *bigger;

	if (want <= *max)
		return true;
	want = want * 2 > 16 ? want * 2 : 16;
	bigger = realloc(*(void **)array, want * size);
	if (!bigger)
		return false;
	*(void **)array = bigger;
	*max = want;
	return true;
}

static struct front_batch *batch_of(struct ibv_qp_ex *qp)
{
	return ((struct front_qp *)qp)->batch;
}

static struct built *last(struct ibv_qp_ex *qp)
{
	struct front_batch *batch = batch_of(qp);

	return batch->built_count ? &batch->built[batch->built_count - 1]
				  : NULL;
}

static struct ibv_send_wr *add(struct ibv_qp_ex *qp, enum ibv_wr_opcode opcode)
{
	static __thread struct ibv_send_wr nowhere;
	struct front_batch *batch = batch_of(qp);
	struct built *it;

	if (!grow(&batch->built, &batch->built_max, batch->built_count, 1,
		  sizeof(*batch->built))) {
		batch->error = ENOMEM;
		return &nowhere;
	}
	it = &batch->built[batch->built_count++];
	memset(it, 0, sizeof(*it));
	it->wr.wr_id = qp->wr_id;
	it->wr.send_flags = qp->wr_flags;
	it->wr.opcode = opcode;
	it->sge_at = batch->sge_count;
	return &it->wr;
}

static void wr_send(struct ibv_qp_ex *qp)
{
	add(qp, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *qp, __be32 imm)
{
	add(qp, IBV_WR_SEND_WITH_IMM)->imm_data = imm;
}

static void wr_send_inv(struct ibv_qp_ex *qp, uint32_t rkey)
{
	add(qp, IBV_WR_SEND_WITH_INV)->invalidate_rkey = rkey;
}

static struct ibv_send_wr *add_rdma(struct ibv_qp_ex *qp,
				    enum ibv_wr_opcode opcode, uint32_t rkey,
				    uint64_t addr)
{
	struct ibv_send_wr *wr = add(qp, opcode);

	wr->wr.rdma.rkey = rkey;
	wr->wr.rdma.remote_addr = addr;
	return wr;
}

static void wr_rdma_read(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr)
{
	add_rdma(qp, IBV_WR_RDMA_READ, rkey, addr);
}

static void wr_rdma_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr)
{
	add_rdma(qp, IBV_WR_RDMA_WRITE, rkey, addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *qp, uint32_t rkey,
			      uint64_t addr, __be32 imm)
{
	add_rdma(qp, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr)->imm_data = imm;
}

static struct ibv_send_wr *add_atomic(struct ibv_qp_ex *qp,
				      enum ibv_wr_opcode opcode, uint32_t rkey,
				      uint64_t addr)
{
	struct ibv_send_wr *wr = add(qp, opcode);

	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.remote_addr = addr;
	return wr;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *qp, uint32_t rkey,
			      uint64_t addr, uint64_t compare, uint64_t swap)
{
	struct ibv_send_wr *wr =
		add_atomic(qp, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr);

	wr->wr.atomic.compare_add = compare;
	wr->wr.atomic.swap = swap;
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *qp, uint32_t rkey,
				uint64_t addr, uint64_t value)
{
	add_atomic(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr)
		->wr.atomic.compare_add = value;
}

static void wr_bind_mw(struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t rkey,
		       const struct ibv_mw_bind_info *info)
{
	struct ibv_send_wr *wr = add(qp, IBV_WR_BIND_MW);

	wr->bind_mw.mw = mw;
	wr->bind_mw.rkey = rkey;
	wr->bind_mw.bind_info = *info;
}

static void wr_local_inv(struct ibv_qp_ex *qp, uint32_t rkey)
{
	add(qp, IBV_WR_LOCAL_INV)->invalidate_rkey = rkey;
}

static void wr_set_ud_addr(struct ibv_qp_ex *qp, struct ibv_ah *ah,
			   uint32_t qpn, uint32_t qkey)
{
	struct built *it = last(qp);

	if (!it)
		return;
	it->wr.wr.ud.ah = ah;
	it->wr.wr.ud.remote_qpn = qpn;
	it->wr.wr.ud.remote_qkey = qkey;
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *qp, uint32_t srqn)
{
	struct built *it = last(qp);

	if (it)
		it->wr.qp_type.xrc.remote_srqn = srqn;
}

static void wr_set_sge_list(struct ibv_qp_ex *qp, size_t count,
			    const struct ibv_sge *list)
{
	struct front_batch *batch = batch_of(qp);
	struct built *it = last(qp);

	if (!it)
		return;
	if (!grow(&batch->sge, &batch->sge_max, batch->sge_count, count,
		  sizeof(*list))) {
		batch->error = ENOMEM;
		return;
	}
	it->sge_at = batch->sge_count;
	it->wr.num_sge = (int)count;
	memcpy(batch->sge + batch->sge_count, list, count * sizeof(*list));
	batch->sge_count += count;
}

static void wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr,
		       uint32_t length)
{
	struct ibv_sge sge = {addr, length, lkey};

	wr_set_sge_list(qp, 1, &sge);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *qp, size_t count,
				    const struct ibv_data_buf *list)
{
	struct front_batch *batch = batch_of(qp);
	struct built *it = last(qp);

	if (!it)
		return;
	it->is_inline = true;
	it->inline_at = batch->byte_count;
	for (size_t i = 0; i < count; i++) {
		if (!grow(&batch->bytes, &batch->byte_max, batch->byte_count,
			  list[i].length, 1)) {
			batch->error = ENOMEM;
			return;
		}
		memcpy(batch->bytes + batch->byte_count, list[i].addr,
		       list[i].length);
		batch->byte_count += list[i].length;
		it->inline_len += list[i].length;
	}
}

static void wr_set_inline_data(struct ibv_qp_ex *qp, void *addr, size_t length)
{
	struct ibv_data_buf buf = {addr, length};

	wr_set_inline_data_list(qp, 1, &buf);
}

static void clear(struct front_batch *batch)
{
	batch->built_count = batch->sge_count = batch->byte_count = 0;
	batch->error = 0;
}

static void wr_start(struct ibv_qp_ex *qp)
{
	pthread_mutex_lock(&qp->qp_base.mutex);
	clear(batch_of(qp));
}

static void wr_abort(struct ibv_qp_ex *qp)
{
	clear(batch_of(qp));
	pthread_mutex_unlock(&qp->qp_base.mutex);
}

/* Pointers into the arrays, now that these stay where they are. */
static struct ibv_send_wr *link_up(struct front_batch *batch)
{
	for (size_t i = 0; i < batch->built_count; i++) {
		struct built *it = &batch->built[i];

		it->wr.sg_list = batch->sge + it->sge_at;
		if (it->is_inline) {
			it->inline_sge.addr =
				(uintptr_t)(batch->bytes + it->inline_at);
			it->inline_sge.length = (uint32_t)it->inline_len;
			it->wr.sg_list = &it->inline_sge;
			it->wr.num_sge = 1;
			it->wr.send_flags |= IBV_SEND_INLINE;
		}
		it->wr.next = i + 1 < batch->built_count
				      ? &batch->built[i + 1].wr
				      : NULL;
	}
	return &batch->built[0].wr;
}

static int wr_complete(struct ibv_qp_ex *qp)
{
	struct ibv_context *context = qp->qp_base.context;
	struct sim_ctx *ctx = ctx_of(context);
	struct sim_qp *inner = sim_qp_mine(ctx->world, qp->qp_base.handle);
	struct front_batch *batch = batch_of(qp);
	int rc = batch->error ? batch->error
			      : front_tap(context, SIM_CALL_POST_SEND);
	struct ibv_send_wr *bad;

	if (!rc && !inner)
		rc = EINVAL;
	/* 3.5: here the state is EINVAL, with rollback. */
	if (!rc && atomic_load(&inner->state) < IBV_QPS_RTS)
		rc = EINVAL;
	if (!rc && batch->built_count)
		rc = sim_post_send(ctx, inner, link_up(batch), &bad, true);
	clear(batch);
	pthread_mutex_unlock(&qp->qp_base.mutex);
	return rc;
}

static const uint64_t known_ops =
	IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
	IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
	IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
	IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV |
	IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV;

/* A builder that was not asked for stays NULL, as on real devices. */
static void fill_builders(struct ibv_qp_ex *ex, uint64_t ops)
{
#define GIVE(bit, slot)                  \
	do {                             \
		if (ops & (bit))         \
			ex->slot = slot; \
	} while (0)
	GIVE(IBV_QP_EX_WITH_SEND, wr_send);
	GIVE(IBV_QP_EX_WITH_SEND_WITH_IMM, wr_send_imm);
	GIVE(IBV_QP_EX_WITH_SEND_WITH_INV, wr_send_inv);
	GIVE(IBV_QP_EX_WITH_RDMA_READ, wr_rdma_read);
	GIVE(IBV_QP_EX_WITH_RDMA_WRITE, wr_rdma_write);
	GIVE(IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, wr_rdma_write_imm);
	GIVE(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, wr_atomic_cmp_swp);
	GIVE(IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, wr_atomic_fetch_add);
	GIVE(IBV_QP_EX_WITH_BIND_MW, wr_bind_mw);
	GIVE(IBV_QP_EX_WITH_LOCAL_INV, wr_local_inv);
#undef GIVE
	ex->wr_set_ud_addr = wr_set_ud_addr;
	ex->wr_set_xrc_srqn = wr_set_xrc_srqn;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
}

int front_batch_init(struct front_qp *front, uint64_t send_ops)
{
	if (send_ops & ~known_ops) {
		sim_diag("create_qp_ex", "2.8: operations of the device",
			 "refused: send_ops_flags 0x%llx",
			 (unsigned long long)(send_ops & ~known_ops));
		return -EOPNOTSUPP;
	}
	front->batch = calloc(1, sizeof(*front->batch));
	if (!front->batch)
		return -ENOMEM;
	front->is_ex = true;
	fill_builders(&front->ex, send_ops);
	return 0;
}

void front_batch_fini(struct front_qp *front)
{
	if (!front->batch)
		return;
	free(front->batch->built);
	free(front->batch->sge);
	free(front->batch->bytes);
	free(front->batch);
}
