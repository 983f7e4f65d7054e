/* SPDX-License-Identifier: MIT */
/* Completion queues: push, poll, arm. */
#include "sim/play.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <valgrind/memcheck.h>

#include "sim/diag.h"

#define LARGE	    65536
#define KICK_NS	    2000 /* of a receiver that polls in vain */
#define EMPTY_POLLS 512	 /* before the processor is offered to others */

static uint32_t stride_of(uint32_t size)
{
	return size > LARGE ? sizeof(struct sim_cqe)
			    : sizeof(struct sim_cq_slot);
}

/* A slot holds the completion whose turn it names; a fresh one, none. */
static uint64_t alloc_ring(struct sim_world *w, uint32_t size)
{
	size_t bytes = (size_t)size * stride_of(size);
	uint64_t ring = sim_arena_alloc(w, bytes);

	if (ring)
		memset(sim_at(w, ring), 0, bytes);
	return ring;
}

static void free_ring(struct sim_world *w, uint64_t ring, uint32_t size)
{
	sim_arena_free(w, ring, (size_t)size * stride_of(size));
}

int sim_cq_create(struct sim_ctx *ctx, uint32_t depth, uint32_t channel,
		  uint64_t cookie, uint32_t *out, uint32_t *granted)
{
	struct sim_world *w = ctx->world;
	struct sim_host *host = sim_host_of(w, ctx->host);
	const struct sim_model *model = sim_model_of(host);
	struct sim_channel *ch = NULL;
	struct sim_cq *cq;
	int rc;

	if (depth < 1 || depth > (uint32_t)host->attr.max_cqe)
		return -EINVAL;
	if (channel && !(ch = sim_channel_mine(w, channel)))
		return -EINVAL;
	rc = model->check_queue ? model->check_queue("CQ") : 0;
	if (rc)
		return rc;
	cq = sim_object_claim(ctx, SIM_CQ, model->cq_limit, &rc);
	if (rc == -EUSERS)
		sim_diag(model->name, "R4: completion queues",
			 "create_cq refused: the device has %u of them",
			 model->cq_limit);
	if (!cq)
		return rc == -EUSERS ? -ENOMEM : rc;
	cq->size = sim_round_up(model->cq_depth_rounds ? depth + 1 : depth);
	cq->depth = model->cq_depth_rounds ? cq->size - 1 : depth;
	cq->stride = stride_of(cq->size);
	cq->ring = alloc_ring(w, cq->size);
	if (!cq->ring) {
		sim_object_release(w, &cq->object, SIM_CQ);
		return -ENOMEM;
	}
	cq->channel = channel;
	cq->cookie = cookie;
	cq->async_channel = ctx->async_channel;
	cq->armed = SIM_ARM_NONE;
	cq->is_event_pending = 0;
	cq->head = cq->tail = cq->is_overrun = cq->users = 0;
	cq->deadline_ns = SIM_NO_LIMIT;
	cq->head_seen = 0;
	sim_parcels_init(w, cq);
	cq->starved = cq->owes_kick = cq->wants_help = 0;
	memset(&cq->share, 0, sizeof(cq->share));
	if (ch)
		atomic_fetch_add(&ch->users, 1);
	*granted = cq->depth;
	*out = sim_object_publish(w, &cq->object, SIM_CQ);
	return 0;
}

int sim_cq_destroy(struct sim_ctx *ctx, uint32_t handle)
{
	struct sim_world *w = ctx->world;
	struct sim_cq *cq = sim_cq_mine(w, handle);
	struct sim_channel *ch;

	if (!cq)
		return -EINVAL;
	if (atomic_load(&cq->users))
		return -EBUSY;
	ch = sim_channel_get(w, cq->channel);
	if (ch && atomic_exchange(&cq->is_event_pending, 0))
		atomic_fetch_sub(&ch->pending, 1);
	if (ch)
		atomic_fetch_sub(&ch->users, 1);
	atomic_store(&cq->object.handle, 0);
	sim_cq_end(w, cq);
	return 0;
}

static void free_rings(struct sim_world *w, struct sim_cq *cq)
{
	uint64_t ring = cq->ring;

	/* Forgotten first: dying in between leaks it, and never frees it
	 * twice. */
	cq->ring = 0;
	free_ring(w, ring, cq->size);
	sim_parcels_free(w, cq);
}

/* Who was stopped over a completion goes on with it: then its memory must be
 * nobody else's. */
void sim_cq_end(struct sim_world *w, struct sim_cq *cq)
{
	if (!sim_cq_hold_unless_stopped(w, cq)) {
		sim_object_orphan(w, &cq->object, SIM_CQ);
		return;
	}
	free_rings(w, cq);
	sim_cq_release(cq);
	sim_object_release(w, &cq->object, SIM_CQ);
}

/* A completion into another slot. Where its bytes do not fit, it is landed. */
static void move(struct sim_world *w, const struct sim_cq *from_cq,
		 uint32_t from, const struct sim_cq *to_cq, uint32_t to)
{
	struct sim_cq_slot *old = sim_cq_slot(w, from_cq, from);
	struct sim_cq_slot *slot = sim_cq_slot(w, to_cq, to);

	if (to_cq->stride < from_cq->stride)
		sim_parcel_land(w, from_cq, old);
	memcpy(slot, old,
	       from_cq->stride < to_cq->stride ? from_cq->stride
					       : to_cq->stride);
	atomic_store(&slot->cqe.turn, to + 1);
}

int sim_cq_resize(struct sim_ctx *ctx, struct sim_cq *cq, uint32_t depth,
		  uint32_t *granted)
{
	struct sim_world *w = ctx->world;
	const struct sim_host *host = sim_host_of(w, ctx->host);
	const struct sim_model *model = sim_model_of(host);
	struct sim_cq old;
	uint32_t size, used;
	uint64_t ring;

	if (depth < 1 || depth > (uint32_t)host->attr.max_cqe)
		return -EINVAL;
	size = sim_round_up(model->cq_depth_rounds ? depth + 1 : depth);
	ring = alloc_ring(w, size);
	if (!ring)
		return -ENOMEM;
	sim_cq_hold(w, cq);
	old = *cq;
	used = cq->tail - cq->head;
	if (used <= depth) {
		cq->ring = ring;
		cq->size = size;
		cq->stride = stride_of(size);
		for (uint32_t i = 0; i < used; i++)
			move(w, &old, old.head + i, cq, i);
		cq->depth = model->cq_depth_rounds ? size - 1 : depth;
		atomic_store(&cq->head, 0);
		cq->head_seen = cq->landed = 0;
		atomic_store(&cq->tail, used);
	}
	*granted = cq->depth;
	sim_cq_release(cq);
	if (used > depth) {
		free_ring(w, ring, size);
		return -EINVAL;
	}
	free_ring(w, old.ring, old.size);
	return 0;
}

static bool wakes(const struct sim_cq *cq, const struct sim_cqe *cqe)
{
	switch ((enum sim_arm)atomic_load(&cq->armed)) {
	case SIM_ARM_NONE:
		return false;
	case SIM_ARM_NEXT:
		return true;
	case SIM_ARM_SOLICITED:
		return cqe->is_solicited || cqe->status != IBV_WC_SUCCESS;
	}
	return false;
}

bool sim_cq_is_dead(struct sim_world *w, uint32_t handle)
{
	const struct sim_cq *cq = sim_cq_get(w, handle);

	return cq && atomic_load(&cq->is_overrun);
}

struct sim_cq *sim_cq_open(struct sim_world *w, uint32_t handle)
{
	struct sim_cq *cq = sim_cq_get(w, handle);

	if (cq)
		sim_take(w, &cq->lock);
	return cq;
}

bool sim_cq_open_unless_stopped(struct sim_world *w, uint32_t handle,
				struct sim_cq **cq)
{
	*cq = sim_cq_get(w, handle);
	return !*cq || sim_take_unless_stopped(w, &(*cq)->lock);
}

bool sim_cq_append(struct sim_world *w, struct sim_cq *cq,
		   const struct sim_cqe *cqe)
{
	const struct sim_host *host = sim_host_of(w, cq->object.host);

	if (sim_cq_has_room(cq)) {
		struct sim_cqe *to = &sim_cq_slot(w, cq, cq->tail)->cqe;

		memcpy(to, cqe, offsetof(struct sim_cqe, turn));
		atomic_store_explicit(&to->turn, cq->tail + 1,
				      memory_order_release);
		atomic_store_explicit(&cq->tail, cq->tail + 1,
				      memory_order_release);
		if (sim_is_played(w))
			sim_play_happened(cq->object.host);
		/* The line of a later one, while there is time. */
		__builtin_prefetch(sim_cq_slot(w, cq, cq->tail + 1), 1);
		return true;
	}
	/* 3.6: Soft-RoCE's goes on, one completion the poorer. */
	if ((sim_model_of(host)->overrun_fails_responder ||
	     !atomic_exchange(&cq->is_overrun, 1)) &&
	    sim_raises(host, IBV_EVENT_CQ_ERR))
		sim_async(w, cq->async_channel, cq->cookie, IBV_EVENT_CQ_ERR);
	sim_diag("cq",
		 "5.7: a queue must hold all completions that "
		 "can be outstanding",
		 "overrun of a queue of %u: completion of wr_id 0x%llx "
		 "is lost and the queue is dead",
		 cq->depth, (unsigned long long)cqe->wr_id);
	return false;
}

struct sim_cq *sim_cq_close(struct sim_cq *cq, const struct sim_cqe *cqe)
{
	bool wake = cq->channel && wakes(cq, cqe);

	if (wake)
		atomic_store(&cq->armed, SIM_ARM_NONE);
	sim_drop(&cq->lock);
	return wake ? cq : NULL;
}

bool sim_cq_push_quietly(struct sim_world *w, uint32_t handle,
			 const struct sim_cqe *cqe, struct sim_cq **sleeper)
{
	struct sim_cq *cq = sim_cq_open(w, handle);
	bool is_in;

	if (!cq)
		return true;
	is_in = sim_cq_append(w, cq, cqe);
	*sleeper = sim_cq_close(cq, cqe);
	return is_in;
}

bool sim_cq_push(struct sim_world *w, uint32_t handle,
		 const struct sim_cqe *cqe)
{
	struct sim_cq *sleeper = NULL;
	bool is_in = sim_cq_push_quietly(w, handle, cqe, &sleeper);

	if (sleeper)
		sim_cq_wake(w, sleeper);
	return is_in;
}

void sim_cq_wake_all(struct sim_world *w)
{
	for (uint32_t i = 0; i < sim_top(w, SIM_CQ); i++) {
		struct sim_cq *cq = &w->seg->cq[i];

		if (atomic_load(&cq->object.handle) && cq->channel &&
		    !sim_cq_is_empty(w, cq))
			sim_cq_wake(w, cq);
	}
}

void sim_cq_purge(struct sim_world *w, uint32_t handle, uint32_t qp)
{
	struct sim_cq *cq = sim_cq_get(w, handle);
	uint32_t to;

	if (!cq)
		return;
	if (!sim_cq_hold_unless_stopped(w, cq))
		return;
	/* The bytes of a message that came arrive all the same. */
	sim_parcels_land_held(w, cq);
	to = cq->head;
	for (uint32_t i = cq->head; i != cq->tail; i++) {
		struct sim_cq_slot *slot = sim_cq_slot(w, cq, i);

		if (slot->cqe.qp != qp && to++ != i)
			move(w, cq, i, cq, to - 1);
	}
	for (uint32_t i = to; i != cq->tail; i++)
		atomic_store(&sim_cq_slot(w, cq, i)->cqe.turn, 0);
	atomic_store_explicit(&cq->tail, to, memory_order_release);
	cq->landed = to;
	/* Nothing is under way: all of the parcels' room is free. */
	if (to == cq->head)
		cq->parcel_tail = cq->parcel_head_seen = cq->parcel_head;
	sim_cq_release(cq);
}

bool sim_cq_is_empty(struct sim_world *w, const struct sim_cq *cq)
{
	uint32_t head = atomic_load_explicit(&cq->head, memory_order_relaxed);

	return atomic_load_explicit(&sim_cq_slot(w, cq, head)->cqe.turn,
				    memory_order_acquire) != head + 1;
}

/* R14: what the freed receive took of a budget that the port shares. */
static void give_back_frames(struct sim_world *w, struct sim_qp *qp,
			     const struct sim_wqe *wqe)
{
	uint32_t frames = wqe->frames_end - atomic_load(&qp->rq.frames_done);

	atomic_fetch_sub(&sim_host_of(w, qp->object.host)->frames_posted,
			 frames);
}

/* Peers write our memory behind Valgrind's back: what arrived is defined. */
static void mark_defined(struct sim_wqe *wqe, uint32_t len)
{
	struct sim_sge *sge = sim_wqe_sge(wqe);

	for (int i = 0; i < wqe->num_sge && len; i++) {
		uint32_t n = sge[i].length < len ? sge[i].length : len;

		VALGRIND_MAKE_MEM_DEFINED((void *)(uintptr_t)sge[i].addr, n);
		len -= n;
	}
}

/* Polling a completion frees its slot and those of all earlier, unsignaled
 * requests of the same queue (5.7). */
static void free_slots(struct sim_world *w, const struct sim_cqe *cqe)
{
	struct sim_qp *qp = sim_qp_get(w, cqe->qp);
	struct sim_ring *ring;
	struct sim_wqe *wqe;

	if (!qp)
		return;
	if (cqe->is_srq)
		return;
	ring = cqe->is_recv ? &qp->rq : &qp->sq;
	wqe = sim_wqe_at(w, ring, cqe->wqe_index);
	if (cqe->is_recv && RUNNING_ON_VALGRIND)
		mark_defined(wqe, cqe->byte_len);
	if (cqe->is_recv && ring->frame_budget)
		give_back_frames(w, qp, wqe);
	/* It may have been freed when it was done: reclaims_when_done. */
	if ((int32_t)(cqe->wqe_index + 1 - atomic_load(&ring->done)) <= 0)
		return;
	atomic_store_explicit(&ring->frames_done, wqe->frames_end,
			      memory_order_relaxed);
	atomic_store_explicit(&ring->done, cqe->wqe_index + 1,
			      memory_order_release);
}

static void to_wc(const struct sim_cqe *cqe, struct ibv_wc *wc)
{
	memset(wc, 0, sizeof(*wc));
	wc->wr_id = cqe->wr_id;
	wc->status = cqe->status;
	wc->opcode = cqe->opcode;
	wc->vendor_err = cqe->vendor_err;
	wc->byte_len = cqe->byte_len;
	wc->imm_data = cqe->imm;
	wc->qp_num = cqe->qp_num;
	wc->src_qp = cqe->src_qp;
	wc->wc_flags = cqe->wc_flags;
	wc->pkey_index = cqe->pkey_index;
	wc->slid = cqe->slid;
	wc->sl = cqe->sl;
}

/* Programs poll in a loop. Where the other end has no core of its own, it only
 * gets on when we let it: now and then, which costs less than what was waited
 * for. */
static __thread uint32_t empty_polls;

/* A send that completes here wants a receive: is there one by now? The peer
 * would see to it later, and with a system call a message. */
static void feed(struct sim_world *w, struct sim_cq *cq)
{
	struct sim_qp *qp = sim_qp_mine(w, atomic_load(&cq->starved));
	struct sim_qp *peer =
		qp ? sim_qp_by_num(w, atomic_load(&qp->dest)) : NULL;

	if (peer && atomic_load(&peer->rq.head) == atomic_load(&peer->rq.tail))
		return;
	atomic_store(&cq->starved, 0);
	if (!peer)
		return;
	/* Whatever is posted from here on, we find ourselves. */
	atomic_store(&peer->has_waiter, 0);
	sim_send_progress(w, qp);
}

/* Receives were posted that the sender has not found in time. */
static void kick(struct sim_world *w, struct sim_cq *cq, uint64_t now,
		 uint64_t patience_ns)
{
	uint64_t since = atomic_load(&cq->owes_since_ns);
	struct sim_qp *qp;

	if (!since) {
		atomic_store(&cq->owes_since_ns, now);
		return;
	}
	if (now < since + patience_ns)
		return;
	qp = sim_qp_mine(w, atomic_exchange(&cq->owes_kick, 0));
	if (qp && atomic_exchange(&qp->has_waiter, 0))
		sim_kick_sender(w, qp);
}

bool sim_kick_overdue(struct sim_world *w, uint64_t now)
{
	bool is_owed = false;

	for (uint32_t i = 0; i < sim_top(w, SIM_CQ); i++) {
		struct sim_cq *cq = &w->seg->cq[i];

		if (cq->object.proc != w->proc ||
		    !atomic_load(&cq->object.handle) ||
		    !atomic_load(&cq->owes_kick))
			continue;
		kick(w, cq, now, SIM_KICK_NS);
		is_owed |= atomic_load(&cq->owes_kick) != 0;
	}
	return is_owed;
}

static int nothing(struct sim_world *w, struct sim_cq *cq)
{
	if (sim_is_played(w))
		return sim_play_found_nothing(w, cq) ? 0 : -EIO;
	if (atomic_load_explicit(&cq->starved, memory_order_relaxed))
		feed(w, cq);
	if (atomic_load_explicit(&cq->owes_kick, memory_order_relaxed))
		kick(w, cq, sim_now_ns(), KICK_NS);
	if (atomic_load_explicit(&cq->wants_help, memory_order_relaxed))
		sim_share_help(w, cq);
	if (++empty_polls % EMPTY_POLLS == 0)
		sched_yield();
	return atomic_load_explicit(&cq->is_overrun, memory_order_relaxed)
		       ? -EIO
		       : 0;
}

static void run_due_timers(struct sim_world *w, struct sim_cq *cq, uint64_t due)
{
	uint64_t now = sim_now_ns();

	if (now >= due)
		sim_run_timers(w, cq, now);
}

int sim_cq_poll(struct sim_ctx *ctx, struct sim_cq *cq, int count,
		struct ibv_wc *wc)
{
	struct sim_world *w = ctx->world;
	struct sim_qp *failed = NULL;
	int got = 0;

	if (sim_cq_is_empty(w, cq)) {
		uint64_t due = atomic_load_explicit(&cq->deadline_ns,
						    memory_order_relaxed);

		if (due != SIM_NO_LIMIT)
			run_due_timers(w, cq, due);
		if (due == SIM_NO_LIMIT || sim_cq_is_empty(w, cq))
			return nothing(w, cq);
	}
	empty_polls = 0;
	sim_take(w, &cq->poll_lock);
	while (got < count && !sim_cq_is_empty(w, cq)) {
		struct sim_cq_slot *slot = sim_cq_slot(w, cq, cq->head);
		const struct sim_cqe *cqe = &slot->cqe;
		struct sim_cqe taken;

		if (cqe->is_late || cqe->parcel) {
			sim_parcel_take(w, cq, slot, &taken);
			cqe = &taken;
		}
		if (cqe->fails_qp)
			failed = sim_qp_get(w, cqe->qp);
		to_wc(cqe, &wc[got++]);
		free_slots(w, cqe);
		atomic_store_explicit(&cq->head, cq->head + 1,
				      memory_order_release);
	}
	sim_drop(&cq->poll_lock);
	/* Its region went while the message was under way. */
	if (failed && atomic_load(&failed->state) != IBV_QPS_ERR)
		sim_qp_fail(w, failed);
	return got;
}

void sim_cq_arm(struct sim_ctx *ctx, struct sim_cq *cq, bool solicited_only)
{
	const struct sim_host *host = sim_host_of(ctx->world, ctx->host);
	const struct sim_model *model = sim_model_of(host);
	enum sim_arm want = solicited_only ? SIM_ARM_SOLICITED : SIM_ARM_NEXT;

	sim_take(ctx->world, &cq->lock);
	/* A stronger arm is not weakened by a later solicited-only one. */
	if (atomic_load(&cq->armed) != SIM_ARM_NEXT)
		atomic_store(&cq->armed, want);
	/* mlx5's arm carries the consumer index, so that what is there but
	 * unpolled raises the event (section 10, correction 6). */
	if (cq->channel && !sim_cq_is_empty(ctx->world, cq) &&
	    model->arm_sees_unpolled && model->arm_sees_unpolled(host)) {
		atomic_store(&cq->armed, SIM_ARM_NONE);
		sim_cq_wake(ctx->world, cq);
	}
	sim_drop(&cq->lock);
	if (cq->channel && atomic_load(&cq->deadline_ns) != SIM_NO_LIMIT)
		sim_timer_start(ctx->world);
}
