/* SPDX-License-Identifier: MIT */
/*
 * One-sided operations: RDMA write and read, and atomics. The responder's
 * process takes no part; its queue pair's receive lock orders what arrives.
 */
#include "sim/deliver.h"

#include <string.h>

#include "sim/diag.h"

/* The remote range as a span of the peer's memory. REM_INV_REQ for what the
 * queue pair forbids, REM_ACCESS for what the key does (5.3, check order). */
static enum ibv_wc_status check_request(struct delivery *d)
{
	const struct sim_qp *peer = d->peer;
	bool is_response = d->op->class != SIM_OP_WRITE;

	if (!(peer->attr.qp_access_flags & d->op->access)) {
		sim_diag(d->model->name,
			 "5.6: an rkey needs the flag on region "
			 "and queue pair",
			 "qp 0x%x does not allow access 0x%x", peer->qp_num,
			 d->op->access);
		return IBV_WC_REM_INV_REQ_ERR;
	}
	if (is_response && peer->attr.max_dest_rd_atomic == 0)
		return IBV_WC_REM_INV_REQ_ERR;
	/* Judged before the key. */
	if (d->op->class == SIM_OP_ATOMIC && d->wqe->op.remote.addr % 8)
		return IBV_WC_REM_INV_REQ_ERR;
	return IBV_WC_SUCCESS;
}

static enum ibv_wc_status check_key(struct delivery *d, struct sim_span *span)
{
	struct sim_sge range = {d->wqe->op.remote.addr, d->wqe->len,
				d->wqe->op.remote.rkey};
	const struct sim_mr *mr;

	if (d->op->class == SIM_OP_ATOMIC)
		range.length = 8;
	*span = (struct sim_span){0};
	if (range.length == 0)
		return IBV_WC_SUCCESS; /* C9-88: no key is looked at */
	mr = sim_mr_check_remote(d->w, d->peer, &range, d->op->access);
	if (!mr)
		return IBV_WC_REM_ACCESS_ERR;
	span->addr = sim_bus_address(mr, range.addr);
	span->length = range.length;
	span->mr = mr;
	/* What was sent before is there before this is. */
	d->is_stuck = !sim_parcels_land_at(d->w, d->peer->object.proc, span, 1);
	return IBV_WC_SUCCESS;
}

/* Refused. Reliable: a NAK, and the responder fails too. UC: silence. */
static bool refuse(struct delivery *d, enum ibv_wc_status status)
{
	if (!sim_is_reliable(d->qp)) {
		sim_close_recv(d);
		sim_drop(&d->peer->rq_lock);
		sim_end_head(d, IBV_WC_SUCCESS);
		return true;
	}
	/* 5.3: the receive that a write with immediate has taken. */
	if (d->op->takes_recv && status == IBV_WC_REM_ACCESS_ERR)
		sim_push_recv_cqe(d, sim_recv_head(d), IBV_WC_LOC_ACCESS_ERR,
				  0);
	sim_close_recv(d);
	sim_fail_responder(d, status == IBV_WC_REM_ACCESS_ERR
				      ? IBV_EVENT_QP_ACCESS_ERR
				      : IBV_EVENT_QP_REQ_ERR);
	sim_drop(&d->peer->rq_lock);
	sim_fail_sender(d, status);
	return false;
}

static bool copy_failed(struct delivery *d, enum sim_copy_result why,
			bool is_local)
{
	if (!is_local && why != SIM_COPY_GONE && why != SIM_COPY_REFUSED)
		return refuse(d, IBV_WC_REM_ACCESS_ERR);
	sim_close_recv(d);
	sim_drop(&d->peer->rq_lock);
	return sim_copy_failed(d, why);
}

static bool local_failed(struct delivery *d, enum ibv_wc_status status)
{
	sim_drop(&d->peer->rq_lock);
	sim_fail_sender(d, status);
	return false;
}

/* The immediate's receive, already known to be there, completes. */
static void tell_receiver(struct delivery *d)
{
	if (!d->op->takes_recv)
		return;
	sim_push_recv_cqe(d, sim_recv_head(d), IBV_WC_SUCCESS, 0);
	sim_close_recv(d);
}

/* --- many at once --- */

/*
 * A copy by the kernel costs as much again to begin as 4 KiB cost to move. So
 * requests behind the head that are of its kind, and that nothing has to be
 * asked about, go in the same call. They are a part of one stream of bytes: the
 * spans just follow one another.
 */
#define BATCH_MAX  16
#define BATCH_LONG 65536 /* a request of this length is worth a call */

static bool may_batch(const struct delivery *d)
{
	return atomic_load(&d->qp->state) == IBV_QPS_RTS &&
	       d->peer->object.proc != d->w->proc && d->len < BATCH_LONG &&
	       d->from_count == 1 && d->to_count == 1 && !d->op->has_imm &&
	       !(d->wqe->flags & SIM_WQE_INLINE) && !d->is_armed &&
	       !d->w->may_not_copy;
}

/* One more, behind the `count` there are: its two ends. */
static bool add_to_batch(struct delivery *d, struct sim_wqe *wqe, int count)
{
	bool is_read = d->op->class == SIM_OP_READ;
	struct sim_span *here = (is_read ? d->to : d->from) + count;
	struct sim_span *there = (is_read ? d->from : d->to) + count;
	struct sim_wqe *head = d->wqe;
	enum ibv_wc_status status;

	if (wqe->opcode != head->opcode || wqe->num_sge != 1 ||
	    (wqe->flags & SIM_WQE_INLINE) || wqe->len == 0 ||
	    wqe->len > head->len ||
	    sim_spans_of(d->w, d->qp->pd, wqe,
			 is_read ? IBV_ACCESS_LOCAL_WRITE : 0, here) != 1)
		return false;
	d->wqe = wqe;
	status = check_key(d, there);
	d->wqe = head;
	return status == IBV_WC_SUCCESS && !d->is_stuck;
}

/* How many more there are; the spans of all are in the delivery. */
static int collect_batch(struct delivery *d)
{
	struct sim_ring *ring = &d->qp->sq;
	int count = 1;

	if (!may_batch(d))
		return 0;
	while (count < BATCH_MAX &&
	       ring->head + (uint32_t)count != ring->tail &&
	       add_to_batch(d,
			    sim_wqe_at(d->w, ring,
				       ring->head + (uint32_t)count),
			    count))
		count++;
	d->from_count = d->to_count = count;
	return count - 1;
}

/* Copy the head, and what can go with it; *more is how many that are. If one of
 * them fails, it says so when it is the head; those before it are done, and not
 * done again: who has seen their bytes may have changed them. */
static enum sim_copy_result copy_batch(struct delivery *d, int *more)
{
	struct sim_copy copy = {.from_proc = d->from_proc,
				.to_proc = d->to_proc,
				.from = d->from,
				.to = d->to};
	enum sim_copy_result copied;
	uint64_t done = 0;
	int whole = 0;

	*more = collect_batch(d);
	if (*more == 0)
		return sim_copy_data(d);
	copy.from_count = copy.to_count = 1 + *more;
	copied = sim_copy_counted(d->w, &copy, &done);
	if (copied == SIM_COPY_OK)
		return copied;
	while (done >= d->from[whole].length)
		done -= d->from[whole++].length;
	*more = whole ? whole - 1 : 0;
	d->from_count = d->to_count = 1;
	return whole ? SIM_COPY_OK : sim_copy_data(d);
}

static void end_batch(struct delivery *d, int more)
{
	sim_end_head(d, IBV_WC_SUCCESS);
	for (int i = 0; i < more; i++) {
		d->wqe = sim_wqe_at(d->w, &d->qp->sq, d->qp->sq.head);
		sim_end_head(d, IBV_WC_SUCCESS);
	}
}

static bool do_write(struct delivery *d, const struct sim_span *remote)
{
	enum sim_copy_result copied;
	int more;

	if (d->len < d->wqe->len)
		sim_cut_spans(d->from, &d->from_count, d->len);
	d->to[0] = *remote;
	d->to_count = remote->length != 0;
	d->to_proc = d->peer->object.proc;
	copied = copy_batch(d, &more);
	if (copied != SIM_COPY_OK)
		return copy_failed(d, copied, copied == SIM_COPY_BAD_SOURCE);
	sim_strike_bytes(d);
	tell_receiver(d);
	if (sim_lost_in_overrun(d))
		return sim_no_answer(d);
	sim_drop(&d->peer->rq_lock);
	end_batch(d, more);
	return true;
}

static bool do_read(struct delivery *d, const struct sim_span *remote)
{
	enum sim_copy_result copied;
	int more;

	if (d->to_count < 0)
		return local_failed(d, IBV_WC_LOC_PROT_ERR);
	d->from[0] = *remote;
	d->from_count = remote->length != 0;
	d->from_proc = d->peer->object.proc;
	copied = copy_batch(d, &more);
	if (copied != SIM_COPY_OK)
		return copy_failed(d, copied, copied == SIM_COPY_BAD_TARGET);
	sim_strike_bytes(d);
	sim_drop(&d->peer->rq_lock);
	end_batch(d, more);
	return true;
}

/* Move one word between this process and the peer's. */
static enum sim_copy_result move_word(struct delivery *d, uint64_t *word,
				      const struct sim_span *remote,
				      bool is_read)
{
	struct sim_span here = {.addr = (uintptr_t)word, .length = 8};
	struct sim_copy copy = {
		.from_proc = is_read ? d->peer->object.proc : d->w->proc,
		.to_proc = is_read ? d->w->proc : d->peer->object.proc,
		.from = is_read ? remote : &here,
		.to = is_read ? &here : remote,
		.from_count = 1,
		.to_count = 1,
	};

	return sim_copy(d->w, &copy);
}

static bool do_atomic(struct delivery *d, const struct sim_span *remote)
{
	pthread_mutex_t *lock =
		&d->w->seg->atomic_lock[(d->wqe->op.remote.rkey >> 12) % 64];
	uint64_t old = 0, new;
	struct sim_span here = {.addr = (uintptr_t)&old, .length = 8};
	struct sim_copy out = {d->w->proc, d->qp->object.proc, &here, d->to,
			       1,	   d->to_count};
	enum sim_copy_result copied;

	if (d->len < 8)
		return local_failed(d, IBV_WC_LOC_LEN_ERR);
	sim_lock(lock);
	copied = move_word(d, &old, remote, true);
	new = old + d->wqe->op.remote.compare_add;
	if (d->wqe->opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
		new = old == d->wqe->op.remote.compare_add
			      ? d->wqe->op.remote.swap
			      : old;
	if (copied == SIM_COPY_OK && new != old)
		copied = move_word(d, &new, remote, false);
	sim_unlock(lock);
	if (copied != SIM_COPY_OK)
		return copy_failed(d, copied, false);
	copied = sim_copy(d->w, &out);
	if (copied != SIM_COPY_OK)
		return copy_failed(d, copied, true);
	d->len = 8;
	sim_strike_bytes(d);
	sim_drop(&d->peer->rq_lock);
	sim_end_head(d, IBV_WC_SUCCESS);
	return true;
}

/* Write with immediate takes a receive; without one it waits, or is lost. */
static bool has_receive(struct delivery *d, bool *goes_on)
{
	if (!d->op->takes_recv)
		return true;
	if (sim_open_recv(d) && sim_recv_head(d))
		return true;
	*goes_on = sim_no_receive(d);
	return false;
}

bool sim_meet_remote(struct delivery *d)
{
	struct sim_span remote = {0};
	enum ibv_wc_status status;
	bool goes_on;

	if (!sim_take_unless_stopped(d->w, &d->peer->rq_lock))
		return sim_copy_failed(d, SIM_COPY_STUCK);
	if (!sim_takes_messages(d)) {
		sim_drop(&d->peer->rq_lock);
		return sim_no_answer(d);
	}
	if (d->is_armed)
		sim_tap_arrival(d);
	if (sim_is_struck(d)) {
		if (sim_strike_drop(d, &goes_on))
			return goes_on;
		if (d->op->class == SIM_OP_WRITE)
			sim_strike_length(d);
	}
	status = check_request(d);
	if (status != IBV_WC_SUCCESS)
		return refuse(d, status);
	if (!has_receive(d, &goes_on))
		return goes_on;
	status = check_key(d, &remote);
	if (status != IBV_WC_SUCCESS)
		return refuse(d, status);
	if (d->is_stuck) {
		sim_close_recv(d);
		sim_drop(&d->peer->rq_lock);
		return sim_copy_failed(d, SIM_COPY_STUCK);
	}
	switch ((enum sim_op_class)d->op->class) {
	case SIM_OP_WRITE:
		return do_write(d, &remote);
	case SIM_OP_READ:
		return do_read(d, &remote);
	case SIM_OP_ATOMIC:
		return do_atomic(d, &remote);
	case SIM_OP_SEND:
	case SIM_OP_BIND:
	case SIM_OP_INVALIDATE:
		break;
	}
	return local_failed(d, IBV_WC_LOC_QP_OP_ERR);
}
