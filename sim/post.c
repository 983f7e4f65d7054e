/* SPDX-License-Identifier: MIT */
/* Posting: check a work request, write it into its ring, start delivery. */
#include "sim/play.h"

#include <errno.h>
#include <string.h>

#include "sim/diag.h"

/* Saturated: what is over 32 bits is over every limit. */
static uint32_t length_of(const struct ibv_sge *sge, int count)
{
	uint64_t total = 0;

	for (int i = 0; i < count; i++)
		total += sge[i].length;
	return total < UINT32_MAX ? (uint32_t)total : UINT32_MAX;
}

/* Before anything in the list is read: it may be shorter than it says. */
static bool is_count_ok(const struct sim_model *model, const struct sim_qp *qp,
			int num_sge, bool is_recv)
{
	uint32_t cap = is_recv ? qp->cap.max_recv_sge : qp->cap.max_send_sge;

	if (num_sge >= 0 && (uint32_t)num_sge <= cap)
		return true;
	sim_diag(model->name,
		 is_recv ? "3.3: num_sge over the granted cap of receives"
			 : "3.3: num_sge over the granted cap of sends",
		 "post refused on qp 0x%x: %d sges, %u granted", qp->qp_num,
		 num_sge, cap);
	return false;
}

static bool has_room(const struct sim_ring *ring, uint32_t frames)
{
	return ring->tail - ring->done < ring->depth &&
	       (!ring->frame_budget ||
		ring->frames_posted - ring->frames_done + frames <=
			ring->frame_budget);
}

static void put_sges(struct sim_wqe *wqe, const struct ibv_sge *sge, int count)
{
	struct sim_sge *out = sim_wqe_sge(wqe);

	for (int i = 0; i < count; i++) {
		out[i].addr = sge[i].addr;
		out[i].length = sge[i].length;
		out[i].lkey = sge[i].lkey;
	}
	wqe->num_sge = (uint8_t)count;
}

/* Inline data is taken now; its buffer is the program's again at return. */
static void put_inline(struct sim_wqe *wqe, const struct ibv_sge *sge,
		       int count)
{
	char *out = (char *)(wqe + 1);

	for (int i = 0; i < count; i++) {
		memcpy(out, (void *)(uintptr_t)sge[i].addr, sge[i].length);
		out += sge[i].length;
	}
	wqe->flags |= SIM_WQE_INLINE;
	wqe->num_sge = 0;
}

static int refuse_state(const struct sim_model *model, const struct sim_qp *qp,
			bool is_recv)
{
	static const char *const states[] = {"RESET", "INIT", "RTR", "RTS",
					     "SQD",   "SQE",  "ERR"};
	uint32_t state = atomic_load(&qp->state);

	sim_diag(model->name,
		 is_recv ? "R28, 5.1: state for post_recv"
			 : "5.1: state for post_send",
		 "post_%s refused on qp 0x%x: state %s",
		 is_recv ? "recv" : "send", qp->qp_num,
		 state < sizeof(states) / sizeof(*states) ? states[state]
							  : "unknown");
	return is_recv ? model->errno_recv_state : model->errno_send_state;
}

static int refuse_full(const struct sim_model *model, const struct sim_qp *qp,
		       uint32_t frames, bool is_recv)
{
	const struct sim_ring *ring = is_recv ? &qp->rq : &qp->sq;

	sim_diag(model->name,
		 is_recv ? "R13, 5.7: receive queue full"
			 : "R11, 5.7: send queue full",
		 "post_%s refused on qp 0x%x: %u requests (%u frames) "
		 "outstanding of %u (%u), %u frames more asked",
		 is_recv ? "recv" : "send", qp->qp_num, ring->tail - ring->done,
		 ring->frames_posted - ring->frames_done, ring->depth,
		 ring->frame_budget, frames);
	return is_recv ? model->errno_recv_full : model->errno_send_full;
}

static bool is_early(struct sim_qp *qp)
{
	return atomic_load(&qp->state) < IBV_QPS_RTS;
}

/* 0 or the errno to return; the caller holds the send lock. */
static int check_send(struct sim_world *w, struct sim_qp *qp,
		      const struct ibv_send_wr *wr, uint64_t len)
{
	struct sim_host *host = sim_host_of(w, qp->object.host);
	const struct sim_model *model = sim_model_of(host);
	int rc;

	if (is_early(qp) && !model->keeps_early_sends)
		return refuse_state(model, qp, false);
	if ((wr->send_flags & IBV_SEND_INLINE) &&
	    len > qp->cap.max_inline_data) {
		sim_diag(model->name, "R25, 3.3: inline over the granted cap",
			 "post_send refused on qp 0x%x: %llu inline bytes, %u "
			 "granted",
			 qp->qp_num, (unsigned long long)len,
			 qp->cap.max_inline_data);
		return model->errno_inline;
	}
	rc = model->check_send(host, qp, wr, len);
	if (rc)
		return -rc;
	if (qp->type == IBV_QPT_UD && !wr->wr.ud.ah)
		return EINVAL;
	/* A request may complete before it leaves (R21, knob), so that its
	 * slot looks free: the ring itself must have room, too. (Of receives
	 * that cannot be; and their head is on the sender's processor.) */
	if (!has_room(&qp->sq, sim_frames(model->frame_bytes, len)) ||
	    qp->sq.tail - qp->sq.head >= qp->sq.size)
		return refuse_full(model, qp,
				   sim_frames(model->frame_bytes, len), false);
	return 0;
}

/* What the opcode needs beyond its bytes. */
static void put_operand(const struct sim_qp *qp, const struct ibv_send_wr *wr,
			struct sim_wqe *wqe)
{
	const struct ibv_mw_bind_info *info = &wr->bind_mw.bind_info;

	wqe->imm = wr->imm_data; /* or invalidate_rkey: a union */
	if (qp->type == IBV_QPT_XRC_SEND)
		wqe->srq_num = wr->qp_type.xrc.remote_srqn;
	if (qp->type == IBV_QPT_UD) {
		wqe->op.ud.av = ((struct sim_ah *)wr->wr.ud.ah)->av;
		wqe->op.ud.qpn = wr->wr.ud.remote_qpn & 0xffffff;
		wqe->op.ud.qkey = wr->wr.ud.remote_qkey;
	} else if (wr->opcode == IBV_WR_BIND_MW) {
		wqe->op.bind.window = wr->bind_mw.mw->handle;
		wqe->op.bind.region = info->mr ? info->mr->handle : 0;
		wqe->op.bind.addr = info->addr;
		wqe->op.bind.length = info->length;
		wqe->op.bind.access = info->mw_access_flags;
		wqe->op.bind.rkey = wr->bind_mw.rkey;
	} else if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		   wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wqe->op.remote.addr = wr->wr.atomic.remote_addr;
		wqe->op.remote.rkey = wr->wr.atomic.rkey;
		wqe->op.remote.compare_add = wr->wr.atomic.compare_add;
		wqe->op.remote.swap = wr->wr.atomic.swap;
	} else {
		wqe->op.remote.addr = wr->wr.rdma.remote_addr;
		wqe->op.remote.rkey = wr->wr.rdma.rkey;
	}
}

static void tap_posted(struct sim_world *w, const struct sim_qp *qp,
		       struct sim_wqe *wqe)
{
	sim_late_posted(w, qp, wqe);
	if (sim_is_played(w))
		sim_trace_qp(qp, "send", qp->sq.tail, "opcode=%d len=%u",
			     wqe->opcode, wqe->len);
}

static void put_send(struct sim_world *w, struct sim_qp *qp,
		     const struct ibv_send_wr *wr, uint64_t len)
{
	struct sim_ring *ring = &qp->sq;
	struct sim_wqe *wqe = sim_wqe_at(w, ring, ring->tail);

	memset(wqe, 0, sizeof(*wqe));
	wqe->wr_id = wr->wr_id;
	wqe->opcode = (uint8_t)wr->opcode;
	wqe->len = (uint32_t)len;
	if (qp->sq_sig_all || (wr->send_flags & IBV_SEND_SIGNALED))
		wqe->flags |= SIM_WQE_SIGNALED;
	if (wr->send_flags & IBV_SEND_SOLICITED)
		wqe->flags |= SIM_WQE_SOLICITED;
	if (wr->send_flags & IBV_SEND_INLINE)
		put_inline(wqe, wr->sg_list, wr->num_sge);
	else
		put_sges(wqe, wr->sg_list, wr->num_sge);
	put_operand(qp, wr, wqe);
	ring->frames_posted += sim_frames(
		sim_model_of(sim_host_of(w, qp->object.host))->frame_bytes,
		len);
	wqe->frames_end = ring->frames_posted;
	if (sim_is_armed(w))
		tap_posted(w, qp, wqe);
	atomic_store_explicit(&ring->tail, ring->tail + 1,
			      memory_order_release);
}

int sim_post_send(struct sim_ctx *ctx, struct sim_qp *qp,
		  struct ibv_send_wr *wr, struct ibv_send_wr **bad,
		  bool is_batch)
{
	struct sim_world *w = ctx->world;
	const struct sim_model *model =
		sim_model_of(sim_host_of(w, qp->object.host));
	uint32_t tail, frames;
	struct sim_qp *failed;
	int rc = 0;

	/* A full queue, for who would wait as long as another is stopped. */
	if (!sim_take_unless_stopped(w, &qp->sq_lock)) {
		*bad = wr;
		return ENOMEM;
	}
	tail = qp->sq.tail;
	frames = qp->sq.frames_posted;
	for (; wr; wr = wr->next) {
		uint64_t len;

		rc = model->errno_send_sge;
		if (!is_count_ok(model, qp, wr->num_sge, false))
			break;
		len = length_of(wr->sg_list, wr->num_sge);
		rc = check_send(w, qp, wr, len);
		if (rc)
			break;
		put_send(w, qp, wr, len);
	}
	/* Nothing of it has been executed yet. */
	if (rc && is_batch) {
		atomic_store(&qp->sq.tail, tail);
		qp->sq.frames_posted = frames;
	}
	/* 3.3: Soft-RoCE's library queues them before its kernel refuses. */
	if (!rc && is_early(qp))
		rc = refuse_state(model, qp, false);
	failed = sim_send_run(w, qp);
	sim_drop(&qp->sq_lock);
	if (rc)
		*bad = wr;
	if (failed)
		sim_send_progress(w, failed);
	return rc;
}

/* 0 or the errno to return; the caller holds the receive lock. */
static int check_recv(struct sim_world *w, struct sim_qp *qp, uint32_t frames,
		      bool *is_over)
{
	struct sim_host *host = sim_host_of(w, qp->object.host);
	const struct sim_model *model = sim_model_of(host);
	uint32_t state = atomic_load(&qp->state);
	bool shares = model->budget_is_ports && model->budget_is_ports(host);

	if (qp->srq || state < model->recv_from(host))
		return refuse_state(model, qp, true);
	if (qp->rq.tail - qp->rq.done >= qp->rq.size)
		return refuse_full(model, qp, frames, true);
	*is_over = !has_room(&qp->rq, frames) ||
		   (shares && atomic_load(&host->frames_posted) + frames >
				      qp->rq.frame_budget);
	if (*is_over &&
	    !(model->takes_over_budget && model->takes_over_budget(host)))
		return refuse_full(model, qp, frames, true);
	return 0;
}

void sim_put_recv(struct sim_world *w, struct sim_ring *ring, uint32_t pd,
		  const struct ibv_recv_wr *wr, uint32_t frames, bool is_over)
{
	struct sim_wqe *wqe = sim_wqe_at(w, ring, ring->tail);

	memset(wqe, 0, sizeof(*wqe));
	wqe->wr_id = wr->wr_id;
	wqe->len = length_of(wr->sg_list, wr->num_sge);
	if (is_over)
		wqe->flags |= SIM_WQE_OVER_BUDGET;
	put_sges(wqe, wr->sg_list, wr->num_sge);
	ring->frames_posted += frames;
	wqe->frames_end = ring->frames_posted;
	if (sim_is_armed(w))
		sim_late_poison(w, pd, wqe);
	atomic_store_explicit(&ring->tail, ring->tail + 1,
			      memory_order_release);
}

/* Keep what a sender may rely on: see struct sim_credit. */
static void note_recv(struct sim_world *w, struct sim_qp *qp)
{
	struct sim_wqe *wqe = sim_wqe_at(w, &qp->rq, qp->rq.tail - 1);
	struct sim_span to[SIM_SPAN_MAX];
	uint32_t len = wqe->len;

	if (sim_spans_of(w, qp->pd, wqe, IBV_ACCESS_LOCAL_WRITE, to) < 0)
		len = 0;
	if (len < qp->posted_min)
		qp->posted_min = len;
}

/*
 * The sender waits for a receive. A copy by us costs a system call, by it none;
 * and if it polls, it finds the receive without being told (cq.c, feed). So it
 * has a little time, until we have polled in vain for a while, or a millisecond
 * (timer.c). Not if either may sleep.
 */
static bool kick_later(struct sim_world *w, struct sim_qp *qp)
{
	struct sim_qp *sender = sim_qp_by_num(w, atomic_load(&qp->dest));
	struct sim_cq *cq = sim_cq_get(w, qp->recv_cq);
	struct sim_cq *theirs = sender ? sim_cq_get(w, sender->send_cq) : NULL;
	uint32_t none = 0, handle = atomic_load(&qp->object.handle);

	if (!cq || !theirs || cq->channel || theirs->channel ||
	    sender->object.proc == w->proc || sim_is_armed(w))
		return false;
	if (atomic_load(&cq->owes_kick) == handle)
		return true;
	if (!atomic_compare_exchange_strong(&cq->owes_kick, &none, handle))
		return false;
	atomic_store(&cq->owes_since_ns, 0);
	sim_timer_watch_kicks(w);
	return true;
}

int sim_post_recv(struct sim_ctx *ctx, struct sim_qp *qp,
		  struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct sim_world *w = ctx->world;
	const struct sim_model *model = sim_model_of(sim_host_of(w, ctx->host));
	bool is_awaited;
	int rc = 0;

	/* A full queue, for who would wait as long as another is stopped. */
	if (!sim_take_unless_stopped(w, &qp->post_lock)) {
		*bad = wr;
		return ENOMEM;
	}
	for (; wr; wr = wr->next) {
		bool is_over = false;
		uint32_t frames;

		rc = model->errno_recv_sge;
		if (!is_count_ok(model, qp, wr->num_sge, true))
			break;
		frames = sim_frames(model->frame_bytes,
				    length_of(wr->sg_list, wr->num_sge));
		rc = check_recv(w, qp, frames, &is_over);
		if (rc)
			break;
		if (sim_is_played(w))
			sim_trace_qp(qp, "recv", qp->rq.tail, "len=%u",
				     length_of(wr->sg_list, wr->num_sge));
		sim_put_recv(w, &qp->rq, qp->pd, wr, frames, is_over);
		note_recv(w, qp);
		if (frames)
			atomic_fetch_add(
				&sim_host_of(w, ctx->host)->frames_posted,
				frames);
	}
	is_awaited =
		atomic_load_explicit(&qp->has_waiter, memory_order_relaxed);
	sim_drop(&qp->post_lock);
	if (rc)
		*bad = wr;
	if (atomic_load(&qp->state) == IBV_QPS_ERR &&
	    sim_take_unless_stopped(w, &qp->rq_lock)) {
		sim_rq_flush(w, qp);
		sim_drop(&qp->rq_lock);
	}
	if (is_awaited && !kick_later(w, qp) &&
	    atomic_exchange(&qp->has_waiter, 0))
		sim_kick_sender(w, qp);
	return rc;
}
