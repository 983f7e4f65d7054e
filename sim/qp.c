/* SPDX-License-Identifier: MIT */
/* Queue pairs: create, modify, destroy, and flush. */
#include "sim/play.h"

#include <errno.h>
#include <string.h>

#include "sim/diag.h"

#define QPN_SLOT_BITS 12
/* Bits of modify_qp that the kernel's core knows. */
#define KNOWN_ATTRIBUTES (((IBV_QP_DEST_QPN << 1) - 1) | IBV_QP_RATE_LIMIT)
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

void sim_ring_fini(struct sim_world *w, struct sim_ring *ring)
{
	uint64_t base = ring->base;

	/* Forgotten first: dying in between leaks it, and never frees it
	 * twice. */
	ring->base = 0;
	sim_arena_free(w, base, ring_bytes(ring));
}

void sim_qp_free_rings(struct sim_world *w, struct sim_qp *qp)
{
	sim_ring_fini(w, &qp->sq);
	sim_ring_fini(w, &qp->rq);
}

int sim_ring_init(struct sim_world *w, struct sim_ring *ring,
		  const struct sim_ring_request *want)
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
		       const struct ibv_qp_cap *asked, bool has_srq)
{
	const struct sim_model *model = sim_model_of(host);

	qp->cap = *asked;
	qp->cap.max_send_wr = model->grant(host, asked->max_send_wr);
	qp->cap.max_recv_wr = model->grant(host, asked->max_recv_wr);
	if (qp->cap.max_send_sge == 0)
		qp->cap.max_send_sge = 1;
	if (qp->cap.max_recv_sge == 0)
		qp->cap.max_recv_sge = 1;
	if (has_srq && model->no_recv_beside_srq)
		qp->cap.max_recv_wr = qp->cap.max_recv_sge = 0;
	if (qp->cap.max_inline_data < model->min_inline)
		qp->cap.max_inline_data = model->min_inline;
	if (qp->cap.max_inline_data <
	    model->inline_per_sge * qp->cap.max_send_sge)
		qp->cap.max_inline_data =
			model->inline_per_sge * qp->cap.max_send_sge;
}

static int init_rings(struct sim_world *w, const struct sim_host *host,
		      struct sim_qp *qp)
{
	bool has_frames = sim_model_of(host)->frame_bytes != 0;
	const struct ibv_qp_cap *cap = &qp->cap;
	struct sim_ring_request sq = {cap->max_send_wr, cap->max_send_sge,
				      cap->max_inline_data, 0};
	struct sim_ring_request rq = {cap->max_recv_wr, cap->max_recv_sge, 0,
				      0};
	int rc;

	if (has_frames) {
		sq.frame_budget = cap->max_send_wr;
		rq.frame_budget = cap->max_recv_wr;
	}
	rc = sim_ring_init(w, &qp->sq, &sq);
	if (rc)
		return rc;
	rc = sim_ring_init(w, &qp->rq, &rq);
	if (rc)
		sim_ring_fini(w, &qp->sq);
	return rc;
}

/* The objects a queue pair stands on; each counts it as a user. */
struct parts {
	struct sim_pd *pd;
	struct sim_cq *scq, *rcq;
	struct sim_srq *srq;
	struct sim_xrcd *xrcd;
};

static void count_users(const struct parts *parts, int change)
{
	if (parts->pd)
		atomic_fetch_add(&parts->pd->users, (uint32_t)change);
	if (parts->scq)
		atomic_fetch_add(&parts->scq->users, (uint32_t)change);
	if (parts->rcq)
		atomic_fetch_add(&parts->rcq->users, (uint32_t)change);
	if (parts->srq)
		atomic_fetch_add(&parts->srq->users, (uint32_t)change);
	if (parts->xrcd)
		atomic_fetch_add(&parts->xrcd->users, (uint32_t)change);
}

static int find_parts(struct sim_world *w, const struct sim_qp_config *config,
		      struct parts *parts)
{
	unsigned type = config->attr->qp_type;

	parts->pd = sim_pd_mine(w, config->pd);
	parts->scq = sim_cq_mine(w, config->send_cq);
	parts->rcq = sim_cq_mine(w, config->recv_cq);
	parts->srq = sim_srq_mine(w, config->srq);
	parts->xrcd = sim_xrcd_get(w, config->xrcd);
	if (config->srq && (!parts->srq || (parts->srq->type == IBV_SRQT_XRC) !=
						   (type == IBV_QPT_XRC_RECV)))
		return -EINVAL;
	if (type == IBV_QPT_XRC_RECV)
		return parts->xrcd ? 0 : -EINVAL;
	if (!parts->pd || !parts->scq)
		return -EINVAL;
	return parts->rcq || type == IBV_QPT_XRC_SEND ? 0 : -EINVAL;
}

static struct sim_qp *claim(struct sim_ctx *ctx, int *rc)
{
	struct sim_host *host = sim_host_of(ctx->world, ctx->host);
	const struct sim_model *model = sim_model_of(host);
	struct sim_qp *qp = sim_object_claim(ctx, SIM_QP, model->qp_limit, rc);

	if (*rc == -EUSERS) {
		sim_diag(model->name, "R3: queue pairs",
			 "create_qp refused: the device has %u of them",
			 model->qp_limit);
		*rc = -model->errno_qp_limit;
	}
	return qp;
}

/* Nothing is known of the receives that are posted. */
static void forget_credit(struct sim_qp *qp)
{
	qp->credit = (struct sim_credit){.end = qp->rq.head,
					 .slow_until = qp->rq.tail};
	qp->posted_min = UINT32_MAX;
}

static void init_qp(struct sim_ctx *ctx, const struct sim_qp_config *config,
		    struct sim_qp *qp)
{
	struct sim_world *w = ctx->world;

	qp->pd = config->pd;
	qp->send_cq = config->send_cq;
	qp->recv_cq = config->recv_cq;
	qp->srq = config->srq;
	qp->xrcd = config->xrcd;
	qp->cookie = config->cookie;
	qp->async_channel = ctx->async_channel;
	qp->type = config->attr->qp_type;
	qp->sq_sig_all = config->attr->sq_sig_all != 0;
	qp->ordinal =
		atomic_fetch_add(&sim_host_of(w, ctx->host)->qp_ordinal, 1);
	qp->state = IBV_QPS_RESET;
	qp->openers = 0;
	qp->has_waiter = 0;
	qp->path = SIM_PATH_UNKNOWN;
	forget_credit(qp);
	qp->dest = qp->mcast_count = qp->is_met = qp->owes_drained = 0;
	qp->is_left = 0;
	memset(&qp->attr, 0, sizeof(qp->attr));
	qp->tx_count = qp->rx_count = qp->wait_until_ns = 0;
	qp->qp_num = number_of(qp->object.generation << SIM_SLOT_BITS |
			       (uint32_t)(qp - w->seg->qp));
}

int sim_qp_create(struct sim_ctx *ctx, const struct sim_qp_config *config,
		  uint32_t *out)
{
	struct sim_world *w = ctx->world;
	struct sim_host *host = sim_host_of(w, ctx->host);
	struct sim_qp_request request = {config->attr, host};
	struct parts parts;
	struct sim_qp *qp;
	int rc = find_parts(w, config, &parts);

	if (!rc)
		rc = sim_model_of(host)->check_qp(&request);
	if (!rc && sim_model_of(host)->check_queue)
		rc = sim_model_of(host)->check_queue("QP");
	if (rc)
		return rc;
	qp = claim(ctx, &rc);
	if (!qp)
		return rc;
	grant_caps(host, qp, &config->attr->cap, config->srq != 0);
	rc = init_rings(w, host, qp);
	if (rc) {
		sim_object_release(w, &qp->object, SIM_QP);
		return rc;
	}
	init_qp(ctx, config, qp);
	count_users(&parts, 1);
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
				sim_vendor_err(model, IBV_WC_WR_FLUSH_ERR),
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
	/* What is being posted gets there before we look; what is posted later
	 * sees the state, and flushes. */
	if (sim_take_unless_stopped(w, &qp->post_lock))
		sim_drop(&qp->post_lock);
	flush_ring(w, qp, true);
}

/* With all locks held. */
static void flush_all(struct sim_world *w, struct sim_qp *qp)
{
	sim_sq_flush(w, qp);
	flush_ring(w, qp, true);
}

void sim_qp_fail(struct sim_world *w, struct sim_qp *qp)
{
	sim_qp_hold(w, qp);
	atomic_store(&qp->state, IBV_QPS_ERR);
	flush_all(w, qp);
	sim_qp_release(qp);
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
	forget_credit(qp);
	qp->sq.frames_done = qp->sq.frames_posted;
	qp->rq.frames_done = qp->rq.frames_posted;
	qp->wait_until_ns = 0;
	/* The first message of the next life is told again (5.8). */
	atomic_store(&qp->is_met, 0);
}

static uint8_t round_depth(uint8_t depth)
{
	return depth ? (uint8_t)sim_round_up(depth) : 0;
}

static void store_attr(const struct sim_host *host, struct sim_qp *qp,
		       const struct ibv_qp_attr *in, int mask)
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
	KEEP(IBV_QP_QKEY, qkey);
	KEEP(IBV_QP_ALT_PATH, alt_ah_attr);
	KEEP(IBV_QP_ALT_PATH, alt_port_num);
	KEEP(IBV_QP_ALT_PATH, alt_pkey_index);
	KEEP(IBV_QP_ALT_PATH, alt_timeout);
	KEEP(IBV_QP_PATH_MIG_STATE, path_mig_state);
	KEEP(IBV_QP_EN_SQD_ASYNC_NOTIFY, en_sqd_async_notify);
	KEEP(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
#undef KEEP
	if (sim_model_of(host)->rounds_rd_atomic) {
		at->max_rd_atomic = round_depth(at->max_rd_atomic);
		at->max_dest_rd_atomic = round_depth(at->max_dest_rd_atomic);
	}
	qp->path = SIM_PATH_UNKNOWN;
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

int sim_check_dgid(struct sim_ctx *ctx, const uint8_t dgid[16])
{
	const struct sim_host *host = sim_host_of(ctx->world, ctx->host);

	if (host->port_attr.link_layer != IBV_LINK_LAYER_ETHERNET ||
	    dgid[0] == 0xff)
		return 0;
	for (uint32_t far = 0; far < SIM_HOST_COUNT; far++) {
		const struct sim_host *there = sim_host_of(ctx->world, far);

		for (int i = 0; i < there->gid_count; i++)
			if (memcmp(there->gid[i], dgid, 16) == 0)
				return 0;
	}
	sim_diag(sim_model_of(host)->name, "3.1: no neighbour has the address",
		 "refused: the dgid is of no port here");
	return -EHOSTUNREACH;
}

/* A path's port is the queue pair's, an alternate path's is its own. */
static bool are_ports_ok(const struct sim_host *host, const struct sim_qp *qp,
			 const struct ibv_qp_attr *attr, int mask)
{
	if ((mask & IBV_QP_AV) && attr->ah_attr.port_num != qp->attr.port_num)
		return false;
	return !(mask & IBV_QP_ALT_PATH) ||
	       (attr->alt_ah_attr.port_num == attr->alt_port_num &&
		attr->alt_port_num >= 1 &&
		attr->alt_port_num <= host->port_count);
}

static int check_modify(struct sim_ctx *ctx, const struct sim_qp *qp,
			const struct ibv_qp_attr *attr, int mask)
{
	struct sim_host *host = sim_host_of(ctx->world, ctx->host);
	const struct sim_model *model = sim_model_of(host);
	/* 3.1: what the program says of the state is believed. */
	enum ibv_qp_state from =
		mask & IBV_QP_CUR_STATE ? attr->cur_qp_state : qp->state;
	enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : from;
	int rc;

	if ((mask & IBV_QP_CUR_STATE) &&
	    (from < IBV_QPS_RTR || from > IBV_QPS_SQE))
		return -EINVAL;
	if (mask & ~KNOWN_ATTRIBUTES)
		return -EOPNOTSUPP;
	rc = sim_qp_check_transition(qp->type, from, to, mask);
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
	if (!are_ports_ok(host, qp, attr, mask)) {
		sim_diag(model->name,
			 "3.1: path port differs from the queue "
			 "pair's",
			 "modify_qp refused on qp 0x%x: port %d", qp->qp_num,
			 attr->ah_attr.port_num);
		return -EINVAL;
	}
	rc = model->check_modify(host, qp, attr, mask);
	if (!rc && (mask & IBV_QP_AV))
		rc = sim_check_dgid(ctx, attr->ah_attr.grh.dgid.raw);
	return rc;
}

void sim_qp_raise(struct sim_world *w, const struct sim_qp *qp, int event)
{
	/* Its handle may be gone, and others left. */
	if (qp->cookie && sim_raises(sim_host_of(w, qp->object.host), event))
		sim_async(w, qp->async_channel, qp->cookie, event);
}

/* Events of a state that was asked for (5.8). */
static void tell_state(struct sim_world *w, struct sim_qp *qp,
		       const struct ibv_qp_attr *attr, int mask, uint32_t from)
{
	bool asks = attr->qp_state == IBV_QPS_SQD &&
		    (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) &&
		    attr->en_sqd_async_notify;

	if (asks && !sim_is_started(w, qp))
		sim_qp_raise(w, qp, IBV_EVENT_SQ_DRAINED);
	atomic_store(&qp->owes_drained, asks && sim_is_started(w, qp));
	if (attr->qp_state == IBV_QPS_ERR && from != IBV_QPS_ERR && qp->srq)
		sim_qp_raise(w, qp, IBV_EVENT_QP_LAST_WQE_REACHED);
}

/* The kernel's uverbs layer drops what the other half of XRC has (programs
 * pass the masks of RC). */
static int mask_for(const struct sim_qp *qp, int mask)
{
	if (qp->type == IBV_QPT_XRC_SEND)
		return mask &
		       ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (qp->type == IBV_QPT_XRC_RECV)
		return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT |
				IBV_QP_RNR_RETRY);
	return mask;
}

/* All locks. False: a stopped process has one. */
static bool hold_unless_stopped(struct sim_world *w, struct sim_qp *qp)
{
	if (!sim_take_unless_stopped(w, &qp->sq_lock))
		return false;
	if (sim_take_unless_stopped(w, &qp->rq_lock)) {
		if (sim_take_unless_stopped(w, &qp->post_lock))
			return true;
		sim_drop(&qp->rq_lock);
	}
	sim_drop(&qp->sq_lock);
	return false;
}

int sim_qp_modify(struct sim_ctx *ctx, struct sim_qp *qp,
		  const struct ibv_qp_attr *attr, int mask)
{
	struct sim_world *w = ctx->world;
	uint32_t from;
	int rc;

	sim_mover_start(w);
	mask = mask_for(qp, mask);
	if (!hold_unless_stopped(w, qp))
		return -EBUSY;
	rc = check_modify(ctx, qp, attr, mask);
	if (rc) {
		sim_qp_release(qp);
		return rc;
	}
	store_attr(sim_host_of(w, ctx->host), qp, attr, mask);
	from = atomic_load(&qp->state);
	if (mask & IBV_QP_STATE)
		atomic_store(&qp->state, attr->qp_state);
	if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_RESET)
		reset_rings(w, qp);
	if ((mask & IBV_QP_STATE) && attr->qp_state == IBV_QPS_ERR)
		flush_all(w, qp);
	if (mask & IBV_QP_STATE)
		tell_state(w, qp, attr, mask, from);
	if (sim_is_played(w) && (mask & IBV_QP_STATE))
		sim_trace_qp(qp, "state", (uint64_t)attr->qp_state, "from=%u",
			     from);
	sim_qp_release(qp);
	/* SQD -> RTS: what was held may go. RTR: a held sender may go. */
	sim_send_progress(w, qp);
	sim_kick_sender(w, qp);
	return 0;
}

static void drop_users(struct sim_world *w, const struct sim_qp *qp)
{
	struct parts parts = {
		sim_pd_get(w, qp->pd),	    sim_cq_get(w, qp->send_cq),
		sim_cq_get(w, qp->recv_cq), sim_srq_get(w, qp->srq),
		sim_xrcd_get(w, qp->xrcd),
	};

	count_users(&parts, -1);
}

/*
 * A peer that was stopped in the middle of a delivery would keep us here until
 * it goes on. A device would not: so the queue pair ends for its owner, its
 * place stays taken (sim_qp_may_reap), and the peer finds it gone when it comes
 * back from the call in which it was stopped, and touches nothing more.
 */
static void leave_to_stopped(struct sim_world *w, struct sim_qp *qp)
{
	struct sim_cq *cq = sim_cq_get(w, qp->recv_cq);

	atomic_store(&qp->is_left, 1);
	atomic_store(&qp->object.handle, 0);
	atomic_store(&qp->state, IBV_QPS_RESET);
	if (cq)
		sim_share_close(cq);
	drop_users(w, qp);
}

bool sim_qp_may_reap(struct sim_world *w, struct sim_qp *qp)
{
	bool is_held;

	if (!atomic_load(&qp->is_left))
		return true;
	is_held = !hold_unless_stopped(w, qp);
	if (!is_held)
		sim_qp_release(qp);
	return !is_held;
}

int sim_qp_destroy(struct sim_ctx *ctx, uint32_t handle)
{
	struct sim_world *w = ctx->world;
	struct sim_qp *qp = sim_qp_mine(w, handle);

	if (!qp)
		return -EINVAL;
	if (atomic_load(&qp->mcast_count))
		return -EBUSY;
	if (!hold_unless_stopped(w, qp)) {
		leave_to_stopped(w, qp);
		return 0;
	}
	/* What came is put where it belongs while its receives are there. */
	sim_parcels_land(w, qp->recv_cq);
	atomic_store(&qp->object.handle, 0);
	atomic_store(&qp->state, IBV_QPS_RESET);
	if (!sim_model_of(sim_host_of(w, ctx->host))->keeps_dead_completions) {
		sim_cq_purge(w, qp->send_cq, handle);
		sim_cq_purge(w, qp->recv_cq, handle);
	}
	give_back_frames(w, qp);
	sim_qp_free_rings(w, qp);
	qp->sq.head = qp->sq.tail = qp->rq.head = qp->rq.tail = 0;
	sim_qp_release(qp);
	drop_users(w, qp);
	sim_object_release(w, &qp->object, SIM_QP);
	return 0;
}

static struct sim_mcast *find_member(struct sim_world *w, uint32_t qp,
				     const uint8_t gid[16], uint16_t lid)
{
	for (int i = 0; i < SIM_MCAST_MAX; i++) {
		struct sim_mcast *member = &w->seg->mcast[i];

		if (atomic_load(&member->qp) == qp &&
		    (!qp ||
		     (member->lid == lid && memcmp(member->gid, gid, 16) == 0)))
			return member;
	}
	return NULL;
}

int sim_mcast_attach(struct sim_ctx *ctx, struct sim_qp *qp,
		     const uint8_t gid[16], uint16_t lid)
{
	struct sim_world *w = ctx->world;
	uint32_t handle = atomic_load(&qp->object.handle);
	struct sim_mcast *member;

	if (qp->type != IBV_QPT_UD || gid[0] != 0xff)
		return -EINVAL;
	sim_lock(&w->seg->lock);
	member = find_member(w, handle, gid, lid) ? NULL
						  : find_member(w, 0, gid, lid);
	if (member) {
		memcpy(member->gid, gid, 16);
		member->lid = lid;
		atomic_store(&member->qp, handle);
		atomic_fetch_add(&qp->mcast_count, 1);
	}
	sim_unlock(&w->seg->lock);
	return member ? 0 : -EINVAL;
}

int sim_mcast_detach(struct sim_ctx *ctx, struct sim_qp *qp,
		     const uint8_t gid[16], uint16_t lid)
{
	struct sim_world *w = ctx->world;
	struct sim_mcast *member;

	sim_lock(&w->seg->lock);
	member = find_member(w, atomic_load(&qp->object.handle), gid, lid);
	if (member) {
		atomic_store(&member->qp, 0);
		atomic_fetch_sub(&qp->mcast_count, 1);
	}
	sim_unlock(&w->seg->lock);
	return member ? 0 : -EINVAL;
}
