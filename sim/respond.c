/* SPDX-License-Identifier: MIT */
/*
 * Delivery, the responder's half: a message meets the receive at the head of
 * the peer's queue, or of the shared queue that it draws from.
 */
#include "sim/deliver.h"

#include <string.h>

#include "sim/diag.h"

/* The shared queue an XRC message names, if it is of the peer's domain. */
static struct sim_srq *xrc_srq(struct delivery *d)
{
	struct sim_srq *srq = sim_srq_get(d->w, d->wqe->srq_num);

	return srq && srq->type == IBV_SRQT_XRC && srq->xrcd == d->peer->xrcd
		       ? srq
		       : NULL;
}

/* False: an XRC message for no queue of the responder's. */
bool sim_open_recv(struct delivery *d)
{
	struct sim_qp *peer = d->peer;

	d->srq = NULL;
	d->ring = &peer->rq;
	d->recv_cq = peer->recv_cq;
	d->recv_pd = peer->pd;
	if (peer->type == IBV_QPT_XRC_RECV) {
		d->srq = xrc_srq(d);
		if (!d->srq)
			return false;
		d->recv_cq = d->srq->cq;
	} else if (peer->srq) {
		d->srq = sim_srq_get(d->w, peer->srq);
	}
	if (!d->srq)
		return true;
	sim_take(d->w, &d->srq->lock);
	d->ring = &d->srq->ring;
	/* 5.8: of the queue pair's domain; an XRC target has none. */
	if (peer->type == IBV_QPT_XRC_RECV)
		d->recv_pd = d->srq->pd;
	return true;
}

void sim_close_recv(struct delivery *d)
{
	if (d->srq)
		sim_drop(&d->srq->lock);
	d->srq = NULL;
}

struct sim_wqe *sim_recv_head(struct delivery *d)
{
	if (d->ring->head == d->ring->tail)
		return NULL;
	return sim_wqe_at(d->w, d->ring, d->ring->head);
}

/* 5.8: below the limit, once. */
static void check_limit(struct delivery *d)
{
	struct sim_srq *srq = d->srq;

	if (!srq->limit || srq->ring.tail - srq->ring.head >= srq->limit)
		return;
	srq->limit = 0;
	sim_async(d->w, srq->async_channel, srq->cookie,
		  IBV_EVENT_SRQ_LIMIT_REACHED);
}

/* The head first: dying here may lose a completion from a process that is
 * gone, and never reports a receive twice. */
static void consume(struct delivery *d)
{
	atomic_store(&d->ring->head, d->ring->head + 1);
	if (!d->srq)
		return;
	/* A shared queue's slots come back out of order; they are free as
	 * soon as the request has been taken. */
	atomic_store(&d->ring->done, d->ring->head);
	check_limit(d);
}

/* Of a datagram: its service level; on a card's Ethernet port bit 3 for UDP
 * (RoCE v2), and 0 for a GRH, 1 for IPv6, 2 for IPv4. */
static uint8_t sl_of(const struct delivery *d)
{
	const struct sim_av *av = &d->wqe->op.ud.av;

	if (d->qp->type != IBV_QPT_UD)
		return 0;
	if (!d->model->sl_is_packet_type ||
	    d->host->port_attr.link_layer != IBV_LINK_LAYER_ETHERNET)
		return av->sl;
	if (!sim_is_v2(d->host, av->sgid_index))
		return 0;
	return sim_is_ipv4(sim_gid_at(d->host, av->sgid_index)) ? 0x8 | 2
								: 0x8 | 1;
}

static uint32_t imm_of(const struct delivery *d)
{
	return d->op->has_imm || d->op->has_inv ? d->wqe->imm : 0;
}

static struct sim_cqe recv_cqe(const struct delivery *d,
			       const struct sim_wqe *recv,
			       enum ibv_wc_status status, uint32_t wc_flags)
{
	struct sim_qp *peer = d->peer;
	struct sim_host *from = d->host;
	return (struct sim_cqe){
		.wr_id = recv->wr_id,
		.qp = peer->object.handle,
		.wqe_index = d->ring->head,
		.qp_num = peer->qp_num,
		.src_qp = d->qp->qp_num,
		.byte_len = (uint32_t)d->len,
		.imm = imm_of(d),
		.wc_flags =
			(uint16_t)(wc_flags |
				   (d->model->recv_says_grh ? IBV_WC_GRH : 0) |
				   (d->op->has_imm ? IBV_WC_WITH_IMM : 0) |
				   (d->op->has_inv ? IBV_WC_WITH_INV : 0)),
		.status = (uint8_t)status,
		.opcode = d->op->recv_wc,
		.vendor_err = sim_vendor_err(d->model, (uint8_t)status),
		.is_recv = 1,
		.is_solicited = !!(d->wqe->flags & SIM_WQE_SOLICITED),
		.is_srq = d->srq != NULL,
		.slid = from->active_port
				? from->port[from->active_port - 1].lid
				: 0,
		.sl = sl_of(d),
	};
}

void sim_push_recv_cqe(struct delivery *d, struct sim_wqe *recv,
		       enum ibv_wc_status status, uint32_t wc_flags)
{
	struct sim_cqe cqe = recv_cqe(d, recv, status, wc_flags);

	consume(d);
	d->is_overrun =
		!sim_cq_push_quietly(d->w, d->recv_cq, &cqe, &d->sleeper);
}

/* The sender's bytes, which are this process's. */
static void gather(const struct delivery *d, char *to)
{
	uint64_t left = d->len;

	if (d->wqe->flags & SIM_WQE_INLINE) {
		memcpy(to, d->wqe + 1, d->len);
		return;
	}
	for (int i = 0; i < d->from_count && left; i++) {
		uint64_t n =
			d->from[i].length < left ? d->from[i].length : left;

		memcpy(to, (void *)(uintptr_t)d->from[i].addr, n);
		to += n;
		left -= n;
	}
}

/* Is a receive ahead that is known to take this message? Take lock held. */
static bool has_credit(struct delivery *d)
{
	struct sim_qp *peer = d->peer;
	struct sim_credit *credit = &peer->credit;
	uint32_t head = peer->rq.head;

	if ((int32_t)(credit->end - head) <= 0) {
		if (!sim_take_unless_stopped(d->w, &peer->post_lock))
			return false;
		credit->end = peer->rq.tail;
		credit->min_len = peer->posted_min;
		peer->posted_min = UINT32_MAX;
		sim_drop(&peer->post_lock);
	}
	return credit->end != head && d->len <= credit->min_len &&
	       (int32_t)(head - credit->slow_until) >= 0;
}

/* May this message be left for the receiver to put where it belongs? */
static bool may_be_late(const struct delivery *d)
{
	return d->len <= SIM_PARCEL_MAX && d->peer->object.proc != d->w->proc &&
	       !d->peer->srq && d->peer->type != IBV_QPT_XRC_RECV &&
	       !d->op->has_inv && !d->model->fit && !d->is_armed &&
	       (d->from_proc == d->w->proc ||
		(d->wqe->flags & SIM_WQE_INLINE) || !d->len);
}

/* Leave the bytes with the completion. False: this message goes another way,
 * and nothing was done. The take lock is held. */
static bool send_late(struct delivery *d)
{
	static const struct sim_wqe unknown; /* the receiver's to look at */
	struct sim_cqe cqe;
	struct sim_cq *cq;
	char *data = NULL;

	if (!may_be_late(d) || !has_credit(d))
		return false;
	d->srq = NULL;
	d->ring = &d->peer->rq;
	d->recv_cq = d->peer->recv_cq;
	cqe = recv_cqe(d, &unknown, IBV_WC_SUCCESS, 0);
	cqe.is_late = 1;
	d->is_stuck = !sim_cq_open_unless_stopped(d->w, d->recv_cq, &cq);
	if (d->is_stuck)
		return false;
	if (cq && sim_cq_has_room(cq))
		data = sim_parcel_put(d->w, cq, &cqe);
	if (!data) {
		if (cq)
			sim_drop(&cq->lock);
		return false;
	}
	gather(d, data);
	atomic_store_explicit(&d->ring->head, d->ring->head + 1,
			      memory_order_release);
	sim_cq_append(d->w, cq, &cqe);
	d->sleeper = sim_cq_close(cq, &cqe);
	return true;
}

void sim_fail_responder(struct delivery *d, int event)
{
	struct sim_qp *peer = d->peer;

	atomic_store(&peer->state, IBV_QPS_ERR);
	sim_rq_flush(d->w, peer);
	d->failed = peer;
	if (event)
		sim_qp_raise(d->w, peer, event);
	/* 5.2, rule 6: it holds no request of the shared queue. */
	if (peer->srq)
		sim_qp_raise(d->w, peer, IBV_EVENT_QP_LAST_WQE_REACHED);
}

/*
 * The receive could not be filled. Reliable: both ends fail, the requester
 * with `answer`. UC: the requester never hears of it. The caller holds both
 * locks; they are released before the requester's own is taken.
 */
static void misfit(struct delivery *d, struct sim_wqe *recv,
		   enum ibv_wc_status status, enum ibv_wc_status answer)
{
	const struct sim_host *far = sim_host_of(d->w, d->peer->object.host);
	bool is_uc = d->qp->type == IBV_QPT_UC;
	bool only_tells = is_uc && d->srq && d->model->srq_tells_uc_misfit;
	bool is_lost = is_uc && !only_tells && d->model->drops_misfit &&
		       d->model->drops_misfit(far);

	if (!is_lost)
		sim_push_recv_cqe(d, recv, status, 0);
	sim_close_recv(d);
	if (!is_lost && !only_tells && d->model->fails_qp_on_misfit)
		sim_fail_responder(d, 0);
	sim_drop(&d->peer->rq_lock);
	if (sim_is_reliable(d->qp))
		sim_fail_sender(d, answer);
	else
		sim_end_head(d, IBV_WC_SUCCESS);
}

static enum ibv_wc_status prot_status(const struct delivery *d)
{
	return d->model->recv_prot_status
		       ? (enum ibv_wc_status)d->model->recv_prot_status
		       : IBV_WC_LOC_PROT_ERR;
}

/* The bytes could not be moved; says who is to blame. Both locks held. */
static bool copy_failed(struct delivery *d, struct sim_wqe *recv,
			enum sim_copy_result why)
{
	if (why == SIM_COPY_BAD_TARGET) {
		misfit(d, recv, prot_status(d), IBV_WC_REM_OP_ERR);
		return true;
	}
	sim_close_recv(d);
	sim_drop(&d->peer->rq_lock);
	return sim_copy_failed(d, why);
}

bool sim_lost_in_overrun(struct delivery *d)
{
	if (!d->is_overrun || !sim_is_reliable(d->qp))
		return false;
	if (d->model->overrun_fails_responder)
		sim_fail_responder(d, 0);
	sim_drop(&d->peer->rq_lock);
	return true;
}

static enum ibv_wc_status fit_of(const struct delivery *d,
				 const struct sim_wqe *recv)
{
	const struct sim_qp *peer = d->peer;
	struct sim_fit fit = {d->len, recv->len, d->ring->head, peer->qp_num};

	if (d->model->fit)
		return d->model->fit(sim_host_of(d->w, peer->object.host),
				     &fit);
	return d->len > recv->len ? (enum ibv_wc_status)d->model->misfit_status
				  : IBV_WC_SUCCESS;
}

/* Is a stopped process in the middle of the queue for its completion? */
static bool is_queue_stuck(struct delivery *d)
{
	struct sim_cq *cq;

	if (!sim_cq_open_unless_stopped(d->w, d->recv_cq, &cq))
		return true;
	if (cq)
		sim_drop(&cq->lock);
	return false;
}

/* Match with the receive at the head. Both locks held, and released. */
static bool fill_receive(struct delivery *d, struct sim_wqe *recv)
{
	struct sim_qp *peer = d->peer;
	enum ibv_wc_status status = fit_of(d, recv);
	enum sim_copy_result copied = SIM_COPY_OK;

	if (status != IBV_WC_SUCCESS) {
		misfit(d, recv, status, IBV_WC_REM_INV_REQ_ERR);
		return true;
	}
	d->to_proc = peer->object.proc;
	d->to_count = sim_spans_of(d->w, d->recv_pd, recv,
				   IBV_ACCESS_LOCAL_WRITE, d->to);
	if (d->to_count < 0) {
		misfit(d, recv, prot_status(d), IBV_WC_REM_OP_ERR);
		return true;
	}
	/* What was sent to the same places is there before this is. */
	if (!sim_parcels_land_at(d->w, d->to_proc, d->to, d->to_count))
		return copy_failed(d, recv, SIM_COPY_STUCK);
	if (!(recv->flags & SIM_WQE_OVER_BUDGET))
		copied = sim_copy_data(d);
	if (copied != SIM_COPY_OK)
		return copy_failed(d, recv, copied);
	/* Before what cannot be done twice. */
	if (is_queue_stuck(d))
		return copy_failed(d, recv, SIM_COPY_STUCK);
	sim_strike_bytes(d);
	/* 5.3: not a key that it may take out of use. */
	if (d->op->has_inv && !sim_invalidate(d->w, peer, d->wqe->imm)) {
		misfit(d, recv, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_ACCESS_ERR);
		return true;
	}
	sim_push_recv_cqe(d, recv, IBV_WC_SUCCESS, 0);
	sim_close_recv(d);
	if (sim_lost_in_overrun(d))
		return sim_no_answer(d);
	sim_drop(&peer->rq_lock);
	if (sim_is_struck(d) && sim_wants_duplicate(d))
		return true;
	sim_end_head(d, IBV_WC_SUCCESS);
	return true;
}

/* No such shared queue at the responder: an invalid request (5.3). */
static bool no_queue(struct delivery *d)
{
	sim_fail_responder(d, IBV_EVENT_QP_REQ_ERR);
	sim_drop(&d->peer->rq_lock);
	sim_fail_sender(d, IBV_WC_REM_INV_REQ_ERR);
	return false;
}

bool sim_meet_receive(struct delivery *d)
{
	struct sim_qp *peer = d->peer;
	struct sim_wqe *recv;
	bool goes_on;

	if (!sim_take_unless_stopped(d->w, &peer->rq_lock))
		return sim_copy_failed(d, SIM_COPY_STUCK);
	if (!sim_takes_messages(d)) {
		sim_drop(&peer->rq_lock);
		return sim_no_answer(d);
	}
	if (send_late(d)) {
		sim_drop(&peer->rq_lock);
		sim_end_head(d, IBV_WC_SUCCESS);
		return true;
	}
	if (d->is_stuck) {
		sim_drop(&peer->rq_lock);
		return sim_copy_failed(d, SIM_COPY_STUCK);
	}
	if (!sim_open_recv(d))
		return no_queue(d);
	recv = sim_recv_head(d);
	if (!recv && d->model->no_recv(d->qp) != SIM_NO_RECV_DROP)
		return sim_no_receive(d);
	if (d->is_armed)
		sim_tap_arrival(d);
	if (sim_is_struck(d)) {
		/* Lost before it takes a receive, which stays. */
		sim_close_recv(d);
		if (sim_strike_drop(d, &goes_on))
			return goes_on;
		sim_strike_length(d);
		if (!sim_open_recv(d))
			return no_queue(d);
		recv = sim_recv_head(d);
	}
	if (!recv)
		return sim_no_receive(d);
	if (d->len < d->wqe->len)
		sim_cut_spans(d->from, &d->from_count, d->len);
	return fill_receive(d, recv);
}
