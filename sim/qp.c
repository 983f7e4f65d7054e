/* SPDX-License-Identifier: MIT */
/* Queue pairs: create, modify, destroy, and flush. */
#include "sim/core.h"

#include <errno.h>
#include <string.h>

#include "sim/diag.h"

#define QPN_SLOT_BITS 12
_Static_assert(SIM_QP_MAX <= 1 << QPN_SLOT_BITS, "slots fit a number");

/* Numbers are unique in the world, and not reused until a slot has been
 * through all its generations: 12 bits of generation over 12 of slot. */
static uint32_t number_of(uint32_t handle)
{
	return (handle >> SIM_SLOT_BITS) << QPN_SLOT_BITS | SIM_SLOT(handle);
}

struct sim_qp *sim_qp_by_num(struct sim_world *w, uint32_t qp_num)
{
	uint32_t slot = qp_num & ((1u << QPN_SLOT_BITS) - 1);
	uint32_t generation = qp_num >> QPN_SLOT_BITS;

	return sim_qp_get(w, generation << SIM_SLOT_BITS | slot);
}

static size_t ring_bytes(const struct sim_ring *ring)
{
	return (size_t)ring->size * ring->stride;
}

static void free_ring(struct sim_world *w, struct sim_ring *ring)
{
	uint64_t base = ring->base;

	/* Forgotten first: dying in between leaks it, and never frees it
	 * twice. */
	ring->base = 0;
	sim_arena_free(w, base, ring_bytes(ring));
}

void sim_qp_free_rings(struct sim_world *w, struct sim_qp *qp)
{
	free_ring(w, &qp->sq);
	free_ring(w, &qp->rq);
}

struct ring_request {
	uint32_t depth;
	uint32_t max_sge;
	uint32_t max_inline;
	uint32_t frame_budget;
};

static int ring_init(struct sim_world *w, struct sim_ring *ring,
		     const struct ring_request *want)
{
	uint32_t tail = want->max_sge * (uint32_t)sizeof(struct sim_sge);

	if (tail < want->max_inline)
		tail = want->max_inline;
	memset(ring, 0, sizeof(*ring));
	ring->depth = want->depth;
	ring->max_sge = want->max_sge;
	ring->frame_budget = want->frame_budget;
	ring->stride = (uint32_t)sizeof(struct sim_wqe) + (tail + 15) / 16 * 16;
	ring->size = sim_round_up(want->depth);
	ring->base = sim_arena_alloc(w, ring_bytes(ring));
	return ring->base ? 0 : -ENOMEM;
}

/* What the model grants for what was asked, into qp->cap. */
static void grant_caps(const struct sim_host *host, struct sim_qp *qp,
		       const struct ibv_qp_cap *asked)
{
	const struct sim_model *model = sim_model_of(host);

	qp->cap = *asked;
	qp->cap.max_send_wr = model->grant(host, asked->max_send_wr);
	qp->cap.max_recv_wr = model->grant(host, asked->max_recv_wr);
	if (qp->cap.max_send_sge == 0)
		qp->cap.max_send_sge = 1;
	if (qp->cap.max_recv_sge == 0)
		qp->cap.max_recv_sge = 1;
	if (qp->cap.max_inline_data < model->min_inline)
		qp->cap.max_inline_data = model->min_inline;
}

static int init_rings(struct sim_world *w, const struct sim_host *host,
		      struct sim_qp *qp)
{
	bool has_frames = sim_model_of(host)->frame_bytes != 0;
	const struct ibv_qp_cap *cap = &qp->cap;
	struct ring_request sq = {cap->max_send_wr, cap->max_send_sge,
				  cap->max_inline_data, 0};
	struct ring_request rq = {cap->max_recv_wr, cap->max_recv_sge, 0, 0};
	int rc;

	if (has_frames) {
		sq.frame_budget = cap->max_send_wr;
		rq.frame_budget = cap->max_recv_wr;
	}
	rc = ring_init(w, &qp->sq, &sq);
	if (rc)
		return rc;
	rc = ring_init(w, &qp->rq, &rq);
	if (rc)
		free_ring(w, &qp->sq);
	return rc;
}

int sim_qp_create(struct sim_ctx *ctx, const struct sim_qp_config *config,
		  uint32_t *out)
{
	struct sim_world *w = ctx->world;
	struct sim_host *host = sim_host_of(w, ctx->host);
	const struct sim_model *model = sim_model_of(host);
	struct sim_qp_request request = {config->attr, host};
	struct sim_pd *pd = sim_pd_mine(w, config->pd);
	struct sim_cq *scq = sim_cq_mine(w, config->send_cq);
	struct sim_cq *rcq = sim_cq_mine(w, config->recv_cq);
	struct sim_qp *qp;
	int rc;

	if (!pd || !scq || !rcq)
		return -EINVAL;
	rc = model->check_qp(&request);
	if (rc)
		return rc;
	qp = sim_object_claim(ctx, SIM_QP, model->qp_limit, &rc);
	if (rc == -EUSERS) {
		sim_diag(model->name, "R3: queue pairs",
			 "create_qp refused: the device has %u of them",
			 model->qp_limit);
		return -model->errno_qp_limit;
	}
	if (!qp)
		return rc;
	grant_caps(host, qp, &config->attr->cap);
	rc = init_rings(w, host, qp);
	if (rc) {
		sim_object_release(w, &qp->object, SIM_QP);
		return rc;
	}
	qp->pd = config->pd;
	qp->send_cq = config->send_cq;
	qp->recv_cq = config->recv_cq;
	qp->type = config->attr->qp_type;
	qp->sq_sig_all = config->attr->sq_sig_all != 0;
	qp->ordinal = atomic_fetch_add(&host->qp_ordinal, 1);
	qp->state = IBV_QPS_RESET;
	qp->dest = 0;
	memset(&qp->attr, 0, sizeof(qp->attr));
	qp->tx_count = qp->rx_count = qp->wait_until_ns = 0;
	qp->qp_num = number_of(qp->object.generation << SIM_SLOT_BITS |
			       (uint32_t)(qp - w->seg->qp));
	atomic_fetch_add(&pd->users, 1);
	atomic_fetch_add(&scq->users, 1);
	atomic_fetch_add(&rcq->users, 1);
	*out = sim_object_publish(w, &qp->object, SIM_QP);
	return 0;
}

static void flush_ring(struct sim_world *w, struct sim_qp *qp, bool is_recv)
{
	struct sim_ring *ring = is_recv ? &qp->rq : &qp->sq;
	const struct sim_model *model =
		sim_model_of(sim_host_of(w, qp->object.host));

	while (ring->head != ring->tail) {
		struct sim_wqe *wqe = sim_wqe_at(w, ring, ring->head);
		struct sim_cqe cqe = {
			.wr_id = wqe->wr_id,
			.qp = qp->object.handle,
			.wqe_index = ring->head,
			.qp_num = qp->qp_num,
			.status = IBV_WC_WR_FLUSH_ERR,
			.opcode = is_recv ? IBV_WC_RECV : IBV_WC_SEND,
			.vendor_err =
				model->vendor_err
					? model->vendor_err[IBV_WC_WR_FLUSH_ERR]
					: 0,
			.is_recv = is_recv,
		};

		/* The head first: dying here loses one completion of a dead
		 * process, and never reports a request twice. */
		atomic_store(&ring->head, ring->head + 1);
		sim_cq_push(w, is_recv ? qp->recv_cq : qp->send_cq, &cqe);
	}
}

void sim_sq_flush(struct sim_world *w, struct sim_qp *qp)
{
	qp->wait_until_ns = 0;
	flush_ring(w, qp, false);
}

void sim_rq_flush(struct sim_world *w, struct sim_qp *qp)
{
	flush_ring(w, qp, true);
}

/* What the receive queue held of a budget that the port shares (R14). */
static void give_back_frames(struct sim_world *w, struct sim_qp *qp)
{
	uint32_t held = qp->rq.frames_posted - qp->rq.frames_done;

	if (qp->rq.frame_budget)
		atomic_fetch_sub(
			&sim_host_of(w, qp->object.host)->frames_posted, held);
}

/* RESET: everything is discarded, without completions (5.2, rule 7). */
static void reset_rings(struct sim_world *w, struct sim_qp *qp)
{
	/* Purged first: a poll gives back the frames of what it takes. */
	sim_cq_purge(w, qp->send_cq, qp->object.handle);
	sim_cq_purge(w, qp->recv_cq, qp->object.handle);
	give_back_frames(w, qp);
	qp->sq.head = qp->sq.done = qp->sq.tail;
	qp->rq.head = qp->rq.done = qp->rq.tail;
	qp->sq.frames_done = qp->sq.frames_posted;
	qp->rq.frames_done = qp->rq.frames_posted;
	qp->wait_until_ns = 0;
}

static void store_attr(struct sim_qp *qp, const struct ibv_qp_attr *in,
		       int mask)
{
	struct ibv_qp_attr *at = &qp->attr;

#define KEEP(bit, field)                       \
	do {                                   \
		if (mask & (bit))              \
			at->field = in->field; \
	} while (0)
	KEEP(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	KEEP(IBV_QP_PKEY_INDEX, pkey_index);
	KEEP(IBV_QP_PORT, port_num);
	KEEP(IBV_QP_AV, ah_attr);
	KEEP(IBV_QP_PATH_MTU, path_mtu);
	KEEP(IBV_QP_TIMEOUT, timeout);
	KEEP(IBV_QP_RETRY_CNT, retry_cnt);
	KEEP(IBV_QP_RNR_RETRY, rnr_retry);
	KEEP(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	KEEP(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	KEEP(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
#undef KEEP
	/* Numbers of 24 bits: upper bits are ignored (3.1). */
	if (mask & IBV_QP_RQ_PSN)
		at->rq_psn = in->rq_psn & 0xffffff;
	if (mask & IBV_QP_SQ_PSN)
		at->sq_psn = in->sq_psn & 0xffffff;
	if (mask & IBV_QP_DEST_QPN) {
		at->dest_qp_num = in->dest_qp_num & 0xffffff;
		atomic_store(&qp->dest, at->dest_qp_num);
	}
}

static int check_modify(struct sim_ctx *ctx, const struct sim_qp *qp,
			const struct ibv_qp_attr *attr, int mask)
{
	struct sim_host *host = sim_host_of(ctx->world, ctx->host);
	const struct sim_model *model = sim_model_of(host);
	enum ibv_qp_state from = qp->state;
	enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : from;
	int rc = sim_qp_check_transition(qp->type, from, to, mask);

	if (rc) {
		sim_diag(model->name, "3.2: required and optional attributes",
			 "modify_qp refused on qp 0x%x: state %d to %d with "
			 "attribute mask 0x%x",
			 qp->qp_num, from, to, mask);
		return rc;
	}
	if ((mask & IBV_QP_PORT) &&
	    (attr->port_num < 1 || attr->port_num > host->port_count))
		return -EINVAL;
	if ((mask & IBV_QP_AV) && attr->ah_attr.port_num != qp->attr.port_num &&
	    attr->ah_attr.port_num != 0) {
		sim_diag(model->name,
			 "3.1: path port differs from the queue "
			 "pair's",
			 "modify_qp refused on qp 0x%x: port %d", qp->qp_num,
			 attr->ah_attr.port_num);
		return -EINVAL;
	}
	return model->check_modify(host, qp, attr, mask);
}

int sim_qp_modify(struct sim_ctx *ctx, struct sim_qp *qp,
		  const struct ibv_qp_attr *attr, int mask)
{
	struct sim_world *w = ctx->world;
	int rc;

	sim_lock(&qp->sq_lock);
	sim_lock(&qp->rq_lock);
	rc = check_modify(ctx, qp, attr, mask);
	if (rc) {
		sim_unlock(&qp->rq_lock);
		sim_unlock(&qp->sq_lock);
		return rc;
	}
	store_attr(qp, attr, mask);
	if (mask & IBV_QP_STATE)
		atomic_store(&qp->state, attr->qp_state);
	if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RESET)
		reset_rings(w, qp);
	if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_ERR) {
		sim_sq_flush(w, qp);
		sim_rq_flush(w, qp);
	}
	sim_unlock(&qp->rq_lock);
	sim_unlock(&qp->sq_lock);
	/* SQD -> RTS: what was held may go. RTR: a held sender may go. */
	sim_send_progress(w, qp);
	sim_kick_sender(w, qp);
	return 0;
}

int sim_qp_destroy(struct sim_ctx *ctx, uint32_t handle)
{
	struct sim_world *w = ctx->world;
	struct sim_qp *qp = sim_qp_mine(w, handle);
	struct sim_cq *scq, *rcq;
	struct sim_pd *pd;

	if (!qp)
		return -EINVAL;
	sim_lock(&qp->sq_lock);
	sim_lock(&qp->rq_lock);
	atomic_store(&qp->object.handle, 0);
	atomic_store(&qp->state, IBV_QPS_RESET);
	sim_cq_purge(w, qp->send_cq, handle);
	sim_cq_purge(w, qp->recv_cq, handle);
	give_back_frames(w, qp);
	sim_qp_free_rings(w, qp);
	qp->sq.head = qp->sq.tail = qp->rq.head = qp->rq.tail = 0;
	sim_unlock(&qp->rq_lock);
	sim_unlock(&qp->sq_lock);
	pd = sim_pd_get(w, qp->pd);
	scq = sim_cq_get(w, qp->send_cq);
	rcq = sim_cq_get(w, qp->recv_cq);
	if (pd)
		atomic_fetch_sub(&pd->users, 1);
	if (scq)
		atomic_fetch_sub(&scq->users, 1);
	if (rcq)
		atomic_fetch_sub(&rcq->users, 1);
	sim_object_release(w, &qp->object, SIM_QP);
	return 0;
}
