/* SPDX-License-Identifier: MIT */
/*
 * Delivery: the head of a send queue meets the peer's receive queue.
 *
 * Whoever makes progress possible does the work, in its own context: the
 * poster, the peer that posts a receive, or a poll that finds a timer due.
 * What cannot proceed stays at the head. The outcomes are the tables 5.3 and
 * 5.4 of spec/device-models.md, and R15 … R21 for Thunderbolt.
 */
#include "sim/core.h"

#include <string.h>

#include "sim/diag.h"

#define SPAN_MAX 32

/* One attempt to move the head of `qp`'s send queue. */
struct delivery {
	struct sim_world *w;
	struct sim_qp *qp;
	struct sim_host *host;
	const struct sim_model *model;
	struct sim_wqe *wqe;
	struct sim_qp *peer;
	uint64_t now_ns; /* 0 until somebody needs the time */
	uint64_t len;	 /* what goes over the wire; a fault may shorten it */
	struct sim_span from[SPAN_MAX];
	struct sim_span to[SPAN_MAX];
	int from_count;
	int to_count;
	/* A responder that went to ERR: its send queue is flushed when we
	 * hold no lock. */
	struct sim_qp *failed;
};

static uint64_t now(struct delivery *d)
{
	if (!d->now_ns)
		d->now_ns = sim_now_ns();
	return d->now_ns;
}

static uint8_t vendor_err(const struct sim_model *model, uint8_t status)
{
	return model->vendor_err ? model->vendor_err[status] : 0;
}

/* --- ending the head of the send queue ---------------------------------- */

static void push_send_cqe(struct delivery *d, uint32_t index,
			  enum ibv_wc_status status)
{
	struct sim_wqe *wqe = d->wqe;
	struct sim_cqe cqe = {
		.wr_id = wqe->wr_id,
		.qp = d->qp->object.handle,
		.wqe_index = index,
		.qp_num = d->qp->qp_num,
		.byte_len = wqe->len,
		.status = (uint8_t)status,
		.opcode = IBV_WC_SEND,
		.vendor_err = vendor_err(d->model, (uint8_t)status),
	};

	sim_cq_push(d->w, d->qp->send_cq, &cqe);
}

static void end_head(struct delivery *d, enum ibv_wc_status status)
{
	bool is_told = (d->wqe->flags & SIM_WQE_SIGNALED) || status;

	bool is_due = is_told && !(d->wqe->flags & SIM_WQE_COMPLETED);
	uint32_t index = d->qp->sq.head;

	/* The head first: dying in between loses one completion, and never
	 * reports a request twice. */
	d->qp->wait_until_ns = 0;
	atomic_store(&d->qp->sq.head, index + 1);
	if (is_due)
		push_send_cqe(d, index, status);
}

/* The requester's error: the request gets its status, all others flush. The
 * caller holds the send lock only. */
static void fail_sender(struct delivery *d, enum ibv_wc_status status)
{
	struct sim_qp *qp = d->qp;

	atomic_store(&qp->state, IBV_QPS_ERR);
	end_head(d, status);
	sim_sq_flush(d->w, qp);
	sim_lock(&qp->rq_lock);
	sim_rq_flush(d->w, qp);
	sim_unlock(&qp->rq_lock);
}

/* --- waiting ------------------------------------------------------------ */

static void set_deadline(struct sim_cq *cq, uint64_t due)
{
	uint64_t have = atomic_load(&cq->deadline_ns);

	while (due < have &&
	       !atomic_compare_exchange_weak(&cq->deadline_ns, &have, due))
		;
}

/* Stay at the head until `due`; whoever polls then looks again. */
static void wait_until(struct delivery *d, uint64_t due)
{
	struct sim_cq *cq = sim_cq_get(d->w, d->qp->send_cq);

	d->qp->wait_until_ns = due;
	if (!cq)
		return;
	set_deadline(cq, due);
	if (!cq->channel || !atomic_load(&cq->armed))
		return;
	/* The program may be asleep. Ours: a thread keeps its timers. Another
	 * process's: an event on an empty queue makes it look and arm again. */
	if (d->qp->object.proc == d->w->proc)
		sim_timer_start(d->w);
	else
		sim_cq_wake(d->w, cq);
}

/* The RNR timer codes of 5.9, in units of 10 µs. */
static uint64_t rnr_ns(uint8_t code)
{
	static const uint32_t units[32] = {65536, 1,	2,     3,     4,
					   6,	  8,	12,    16,    24,
					   32,	  48,	64,    96,    128,
					   192,	  256,	384,   512,   768,
					   1024,  1536, 2048,  3072,  4096,
					   6144,  8192, 12288, 16384, 24576,
					   32768, 49152};

	return (uint64_t)units[code & 31] * 10000;
}

/* The acknowledge timer ran out: send again, or give up. True: given up. */
static bool retries_are_spent(struct delivery *d)
{
	if (d->wqe->attempts >= d->qp->attr.retry_cnt) {
		fail_sender(d, IBV_WC_RETRY_EXC_ERR);
		return true;
	}
	d->wqe->attempts++;
	d->qp->wait_until_ns = 0;
	return false;
}

/* RC, no acknowledge: wait, and count when the timer ran out. */
static void await_ack(struct delivery *d)
{
	const struct ibv_qp_attr *attr = &d->qp->attr;
	uint64_t timeout = attr->timeout ? 4096ull << attr->timeout : 0;

	if (d->qp->wait_until_ns && now(d) >= d->qp->wait_until_ns &&
	    retries_are_spent(d))
		return;
	if (timeout && !d->qp->wait_until_ns)
		wait_until(d, now(d) + timeout);
}

/* RC, receiver not ready. rnr_retry 7 never gives up, but still looks. */
static void await_receiver(struct delivery *d)
{
	const struct ibv_qp_attr *attr = &d->qp->attr;

	if (d->qp->wait_until_ns && now(d) >= d->qp->wait_until_ns) {
		if (attr->rnr_retry < 7 &&
		    d->wqe->rnr_attempts >= attr->rnr_retry) {
			fail_sender(d, IBV_WC_RNR_RETRY_EXC_ERR);
			return;
		}
		if (d->wqe->rnr_attempts < 7)
			d->wqe->rnr_attempts++;
		d->qp->wait_until_ns = 0;
	}
	if (!d->qp->wait_until_ns)
		wait_until(d, now(d) + rnr_ns(d->peer->attr.min_rnr_timer));
}

/* Nobody answers. True: the head is finished and the next may go. */
static bool no_answer(struct delivery *d)
{
	switch (d->model->no_recv(d->qp)) {
	case SIM_NO_RECV_HOLD:
		return false;
	case SIM_NO_RECV_DROP:
		end_head(d, IBV_WC_SUCCESS);
		return true;
	case SIM_NO_RECV_RNR:
		await_ack(d);
		return false;
	}
	return false;
}

static bool no_receive(struct delivery *d)
{
	if (d->model->no_recv(d->qp) != SIM_NO_RECV_RNR)
		return no_answer(d);
	await_receiver(d);
	return false;
}

/* --- finding the peer --------------------------------------------------- */

static bool reaches(const struct sim_host *from, const struct ibv_ah_attr *ah,
		    const struct sim_host *to)
{
	int port = ah->port_num ? ah->port_num - 1 : from->active_port - 1;

	if (port < 0 || port >= SIM_PORT_MAX || !to->active_port ||
	    from->port[port].state != IBV_PORT_ACTIVE)
		return false;
	if (!ah->is_global)
		return ah->dlid == to->port[to->active_port - 1].lid;
	for (int i = 0; i < to->gid_count; i++)
		if (memcmp(to->gid[i], ah->grh.dgid.raw, 16) == 0)
			return true;
	return false;
}

/* The queue pair this one is connected to, if there is a path to it. */
static struct sim_qp *find_peer(struct delivery *d)
{
	struct sim_qp *qp = d->qp;
	struct sim_qp *peer = sim_qp_by_num(d->w, qp->attr.dest_qp_num);

	if (!peer || peer->type != qp->type)
		return NULL;
	if (d->model->is_point_to_point && peer->object.host == qp->object.host)
		return NULL;
	if (!reaches(d->host, &qp->attr.ah_attr,
		     sim_host_of(d->w, peer->object.host)))
		return NULL;
	return peer;
}

/* With the peer's receive lock held: is it up, and connected to us? */
static bool takes_messages(struct delivery *d)
{
	const struct sim_qp *peer = d->peer;
	uint32_t state = atomic_load(&peer->state);

	/* The slot may have a new tenant since it was looked up. */
	return atomic_load(&peer->object.handle) &&
	       peer->qp_num == d->qp->attr.dest_qp_num &&
	       state >= IBV_QPS_RTR && state <= IBV_QPS_SQE &&
	       peer->attr.dest_qp_num == d->qp->qp_num &&
	       (!d->model->psn_ok || d->model->psn_ok(d->host, d->qp, peer));
}

/* --- moving the bytes --------------------------------------------------- */

static uint64_t bus_address(const struct sim_mr *mr, uint64_t addr)
{
	uint64_t at = mr->addr + (addr - mr->iova);

	/* R6: the high half is the region's, the low half the address's. */
	return mr->is_aliased
		       ? (mr->addr & ~0xffffffffull) | (at & 0xffffffffull)
		       : at;
}

/* The spans of a request's sges, up to `len` bytes; -1 on a bad key. */
static int spans_of(struct sim_world *w, const struct sim_qp *qp,
		    struct sim_wqe *wqe, uint32_t access,
		    struct sim_span spans[SPAN_MAX])
{
	struct sim_sge *sge = sim_wqe_sge(wqe);
	int count = 0;

	for (int i = 0; i < wqe->num_sge; i++) {
		const struct sim_mr *mr;

		if (sge[i].length == 0)
			continue;
		mr = sim_mr_check(w, qp->pd, &sge[i], access);
		if (!mr)
			return -1;
		spans[count].addr = bus_address(mr, sge[i].addr);
		spans[count].length = sge[i].length;
		count++;
	}
	return count;
}

static void cut_spans(struct sim_span *spans, int *count, uint64_t len)
{
	for (int i = 0; i < *count; i++) {
		if (spans[i].length >= len) {
			spans[i].length = len;
			*count = len ? i + 1 : i;
			return;
		}
		len -= spans[i].length;
	}
}

/*
 * Inline data lives in the segment, which every process has mapped, each at
 * its own address: whoever does the work copies from its own mapping.
 */
static enum sim_copy_result copy_data(struct delivery *d)
{
	struct sim_span here = {(uintptr_t)(d->wqe + 1), d->len};
	bool is_inline = d->wqe->flags & SIM_WQE_INLINE;
	struct sim_copy copy = {
		.from_proc = is_inline ? d->w->proc : d->qp->object.proc,
		.to_proc = d->peer->object.proc,
		.from = is_inline ? &here : d->from,
		.from_count = is_inline ? 1 : d->from_count,
		.to = d->to,
		.to_count = d->to_count,
	};

	return d->len ? sim_copy(d->w, &copy) : SIM_COPY_OK;
}

/* Change byte `at` of what has landed; false when it is outside, or equal. */
static bool poke(struct delivery *d, const struct sim_fault *fault)
{
	uint64_t skip = fault->at;
	uint8_t old = 0, new;

	if (fault->at >= d->len)
		return false;
	for (int i = 0; i < d->to_count; skip -= d->to[i++].length) {
		struct sim_span far = {d->to[i].addr + skip, 1};
		struct sim_span near = {(uintptr_t)&old, 1};
		struct sim_copy in = {
			d->peer->object.proc, d->w->proc, &far, &near, 1, 1};
		struct sim_copy out = {d->w->proc, d->peer->object.proc,
				       &near,	   &far,
				       1,	   1};

		if (skip >= d->to[i].length)
			continue;
		if (sim_copy(d->w, &in) != SIM_COPY_OK)
			return false;
		new = fault->effect == SIM_EFFECT_SET
			      ? (uint8_t)fault->value
			      : (uint8_t)(old ^ fault->value);
		if (new == old)
			return false;
		old = new;
		return sim_copy(d->w, &out) == SIM_COPY_OK;
	}
	return false;
}

/* A line with this effect, struck on leaving or on arrival. */
static struct sim_fault *take_fault(struct delivery *d, enum sim_effect effect,
				    uint64_t *ordinal)
{
	struct sim_fault *fault = sim_tap_take(d->w, &d->wqe->tx_mask, effect);

	*ordinal = d->wqe->tx_ordinal;
	if (fault)
		return fault;
	*ordinal = d->wqe->rx_ordinal;
	return sim_tap_take(d->w, &d->wqe->rx_mask, effect);
}

static void strike_bytes(struct delivery *d)
{
	static const enum sim_effect effects[] = {SIM_EFFECT_CORRUPT,
						  SIM_EFFECT_SET};
	struct sim_fault *fault;
	uint64_t ordinal;

	for (int i = 0; i < 2; i++)
		while ((fault = take_fault(d, effects[i], &ordinal)))
			sim_tap_fired(fault, ordinal, poke(d, fault));
}

static void strike_length(struct delivery *d)
{
	struct sim_fault *fault;
	uint64_t ordinal;

	while ((fault = take_fault(d, SIM_EFFECT_TRUNC, &ordinal))) {
		sim_tap_fired(fault, ordinal, fault->at < d->len);
		if (fault->at < d->len)
			d->len = fault->at;
	}
}

/* --- the responder ------------------------------------------------------ */

static void push_recv_cqe(struct delivery *d, struct sim_wqe *recv,
			  enum ibv_wc_status status)
{
	struct sim_qp *peer = d->peer;
	bool has_imm = d->wqe->opcode == IBV_WR_SEND_WITH_IMM;
	struct sim_cqe cqe = {
		.wr_id = recv->wr_id,
		.qp = peer->object.handle,
		.wqe_index = peer->rq.head,
		.qp_num = peer->qp_num,
		.src_qp = d->qp->qp_num,
		.byte_len = (uint32_t)d->len,
		.imm = has_imm ? d->wqe->imm : 0,
		.wc_flags = has_imm ? IBV_WC_WITH_IMM : 0,
		.status = (uint8_t)status,
		.opcode = IBV_WC_RECV,
		.vendor_err = vendor_err(d->model, (uint8_t)status),
		.is_recv = 1,
		.is_solicited = !!(d->wqe->flags & SIM_WQE_SOLICITED),
	};

	/* The head first: dying here may lose a completion from a process
	 * that is gone, and never reports a receive twice. */
	atomic_store(&peer->rq.head, peer->rq.head + 1);
	sim_cq_push(d->w, peer->recv_cq, &cqe);
}

static void fail_responder(struct delivery *d)
{
	atomic_store(&d->peer->state, IBV_QPS_ERR);
	sim_rq_flush(d->w, d->peer);
	d->failed = d->peer;
}

/*
 * The receive could not be filled. RC: both ends fail, the requester with
 * `answer`. UC: the requester never hears of it. The caller holds both locks;
 * the receive lock is released here, before the requester's own is taken.
 */
static void misfit(struct delivery *d, struct sim_wqe *recv,
		   enum ibv_wc_status status, enum ibv_wc_status answer)
{
	const struct sim_host *far = sim_host_of(d->w, d->peer->object.host);
	bool is_lost = d->qp->type == IBV_QPT_UC && d->model->drops_misfit &&
		       d->model->drops_misfit(far);

	if (!is_lost)
		push_recv_cqe(d, recv, status);
	if (!is_lost && d->model->fails_qp_on_misfit)
		fail_responder(d);
	sim_unlock(&d->peer->rq_lock);
	if (d->qp->type == IBV_QPT_RC)
		fail_sender(d, answer);
	else
		end_head(d, IBV_WC_SUCCESS);
}

/* The bytes could not be moved; says who is to blame. Both locks held. */
static bool copy_failed(struct delivery *d, struct sim_wqe *recv,
			enum sim_copy_result why)
{
	switch (why) {
	case SIM_COPY_BAD_TARGET:
		misfit(d, recv, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
		return true;
	case SIM_COPY_GONE:
		sim_unlock(&d->peer->rq_lock);
		return no_answer(d);
	case SIM_COPY_BAD_SOURCE:
		sim_unlock(&d->peer->rq_lock);
		fail_sender(d, IBV_WC_LOC_PROT_ERR);
		return false;
	case SIM_COPY_REFUSED:
		sim_unlock(&d->peer->rq_lock);
		fail_sender(d, IBV_WC_FATAL_ERR);
		return false;
	case SIM_COPY_OK:
		break;
	}
	return false;
}

/* Sent once; is there a line that sends it again? */
static bool wants_duplicate(struct delivery *d)
{
	uint64_t ordinal;
	struct sim_fault *fault;

	if (d->wqe->flags & SIM_WQE_DUP_SENT)
		return false;
	fault = take_fault(d, SIM_EFFECT_DUP, &ordinal);
	if (!fault)
		return false;
	sim_tap_fired(fault, ordinal, true);
	d->wqe->flags |= SIM_WQE_DUP_SENT;
	return true;
}

/* Match with the receive at the peer's head. Both locks held; the receive
 * lock is released. True: look at the (possibly new) head again. */
static bool fill_receive(struct delivery *d)
{
	struct sim_qp *peer = d->peer;
	struct sim_wqe *recv = sim_wqe_at(d->w, &peer->rq, peer->rq.head);
	struct sim_fit fit = {d->len, recv->len, peer->rq.head, peer->qp_num};
	enum ibv_wc_status status =
		d->model->fit(sim_host_of(d->w, peer->object.host), &fit);
	enum sim_copy_result copied = SIM_COPY_OK;

	if (status != IBV_WC_SUCCESS) {
		misfit(d, recv, status, IBV_WC_REM_INV_REQ_ERR);
		return true;
	}
	d->to_count = spans_of(d->w, peer, recv, IBV_ACCESS_LOCAL_WRITE, d->to);
	if (d->to_count < 0) {
		misfit(d, recv, IBV_WC_LOC_PROT_ERR, IBV_WC_REM_OP_ERR);
		return true;
	}
	if (!(recv->flags & SIM_WQE_OVER_BUDGET))
		copied = copy_data(d);
	if (copied != SIM_COPY_OK)
		return copy_failed(d, recv, copied);
	if (d->wqe->tx_mask | d->wqe->rx_mask)
		strike_bytes(d);
	push_recv_cqe(d, recv, IBV_WC_SUCCESS);
	sim_unlock(&peer->rq_lock);
	if ((d->wqe->tx_mask | d->wqe->rx_mask) && wants_duplicate(d))
		return true;
	end_head(d, IBV_WC_SUCCESS);
	return true;
}

/* Lost on the wire: UC never knows; RC sends again after a timeout. */
static bool strike_drop(struct delivery *d, bool *goes_on)
{
	uint64_t ordinal;
	struct sim_fault *fault = take_fault(d, SIM_EFFECT_DROP, &ordinal);

	if (!fault)
		return false;
	sim_tap_fired(fault, ordinal, true);
	/* A sticky line loses each attempt, until the retries are spent. */
	if (d->qp->type == IBV_QPT_RC && fault->times == SIM_NO_LIMIT)
		d->wqe->tx_mask |= 1ull << (fault - d->w->seg->fault);
	sim_unlock(&d->peer->rq_lock);
	*goes_on = d->qp->type != IBV_QPT_RC;
	if (*goes_on) {
		end_head(d, IBV_WC_SUCCESS);
	} else {
		d->wqe->flags |= SIM_WQE_LOST;
		await_ack(d);
	}
	return true;
}

/* The message meets the peer. True: look at the head again. */
static bool meet(struct delivery *d)
{
	struct sim_qp *peer = d->peer;
	bool has_recv, goes_on;

	sim_lock(&peer->rq_lock);
	if (!takes_messages(d)) {
		sim_unlock(&peer->rq_lock);
		return no_answer(d);
	}
	has_recv = peer->rq.head != peer->rq.tail;
	if (!has_recv && d->model->no_recv(d->qp) != SIM_NO_RECV_DROP) {
		sim_unlock(&peer->rq_lock);
		return no_receive(d);
	}
	if (!(d->wqe->flags & SIM_WQE_RX_TAPPED)) {
		d->wqe->flags |= SIM_WQE_RX_TAPPED;
		d->wqe->rx_ordinal = peer->rx_count++;
		d->wqe->rx_mask = sim_tap_message(d->w, peer, SIM_SITE_QP_RX,
						  d->wqe->rx_ordinal);
	}
	if (d->wqe->tx_mask | d->wqe->rx_mask) {
		if (strike_drop(d, &goes_on))
			return goes_on;
		strike_length(d);
	}
	if (!has_recv) {
		sim_unlock(&peer->rq_lock);
		return no_receive(d);
	}
	cut_spans(d->from, &d->from_count, d->len);
	return fill_receive(d);
}

/* --- the requester ------------------------------------------------------ */

static void tap_head(struct delivery *d)
{
	struct sim_wqe *wqe = d->wqe;

	if (wqe->flags & SIM_WQE_TAPPED)
		return;
	wqe->flags |= SIM_WQE_TAPPED;
	wqe->tx_ordinal = d->qp->tx_count++;
	wqe->tx_mask =
		sim_tap_message(d->w, d->qp, SIM_SITE_QP_TX, wqe->tx_ordinal);
	/* R21, knob: completed while it may still wait for credit. */
	if (d->model->completes_at_post &&
	    d->model->completes_at_post(d->host) &&
	    (wqe->flags & SIM_WQE_SIGNALED)) {
		push_send_cqe(d, d->qp->sq.head, IBV_WC_SUCCESS);
		wqe->flags |= SIM_WQE_COMPLETED;
	}
}

/* Try the head once. True: look at the head again. */
static bool step(struct delivery *d)
{
	struct sim_qp *qp = d->qp;

	d->wqe = sim_wqe_at(d->w, &qp->sq, qp->sq.head);
	d->len = d->wqe->len;
	tap_head(d);
	/* R24, knob other_opcodes=ignore: it completes and does nothing. */
	if (d->wqe->opcode != IBV_WR_SEND &&
	    d->wqe->opcode != IBV_WR_SEND_WITH_IMM) {
		end_head(d, IBV_WC_SUCCESS);
		return true;
	}
	if (d->wqe->flags & SIM_WQE_LOST) {
		if (now(d) < qp->wait_until_ns)
			return false;
		d->wqe->flags &= (uint16_t)~SIM_WQE_LOST;
		if (retries_are_spent(d))
			return false;
	}
	if (d->len > d->model->port.max_msg_sz) {
		fail_sender(d, IBV_WC_LOC_LEN_ERR);
		return false;
	}
	d->from_count = spans_of(d->w, qp, d->wqe, 0, d->from);
	if (d->from_count < 0) {
		sim_diag(d->model->name, "5.3, 5.6: local key, range or domain",
			 "send with wr_id 0x%llx on qp 0x%x fails: its lkey is "
			 "not of a region that spans the sge",
			 (unsigned long long)d->wqe->wr_id, qp->qp_num);
		fail_sender(d, IBV_WC_LOC_PROT_ERR);
		return false;
	}
	d->peer = find_peer(d);
	return d->peer ? meet(d) : no_answer(d);
}

static bool has_work(const struct sim_qp *qp)
{
	return atomic_load_explicit(&qp->sq.head, memory_order_relaxed) !=
	       atomic_load_explicit(&qp->sq.tail, memory_order_acquire);
}

void sim_send_progress(struct sim_world *w, struct sim_qp *qp)
{
	struct delivery d = {.w = w, .qp = qp};
	bool goes_on = true;

	if (!has_work(qp))
		return;
	d.host = sim_host_of(w, qp->object.host);
	d.model = sim_model_of(d.host);
	sim_lock(&qp->sq_lock);
	while (goes_on && has_work(qp)) {
		switch (atomic_load(&qp->state)) {
		case IBV_QPS_RTS:
			goes_on = step(&d);
			break;
		case IBV_QPS_ERR:
		case IBV_QPS_SQE:
			sim_sq_flush(w, qp);
			break;
		default: /* SQD holds what is posted */
			goes_on = false;
			break;
		}
	}
	sim_unlock(&qp->sq_lock);
	if (d.failed)
		sim_send_progress(w, d.failed);
}

void sim_kick_sender(struct sim_world *w, struct sim_qp *qp)
{
	struct sim_qp *sender = sim_qp_by_num(w, atomic_load(&qp->dest));

	if (sender && has_work(sender))
		sim_send_progress(w, sender);
}

/* A peer that does not answer may be dead; then its objects go first. */
static void look_for_the_dead(struct sim_world *w, struct sim_qp *qp)
{
	struct sim_qp *peer = sim_qp_by_num(w, atomic_load(&qp->dest));
	uint32_t proc = peer ? peer->object.proc : 0;

	if (proc && proc != w->proc && !sim_proc_is_alive(w, proc))
		sim_world_reap(w, w->seg->proc[proc].pid);
}

void sim_run_timers(struct sim_world *w, struct sim_cq *cq, uint64_t now_ns)
{
	uint32_t handle = atomic_load(&cq->object.handle);

	atomic_store(&cq->deadline_ns, SIM_NO_LIMIT);
	for (uint32_t i = 0; i < SIM_QP_MAX; i++) {
		struct sim_qp *qp = &w->seg->qp[i];

		uint64_t due = atomic_load(&qp->wait_until_ns);

		if (!atomic_load(&qp->object.handle) || qp->send_cq != handle ||
		    !due)
			continue;
		if (due > now_ns) {
			set_deadline(cq, due);
			continue;
		}
		look_for_the_dead(w, qp);
		sim_send_progress(w, qp);
	}
}
