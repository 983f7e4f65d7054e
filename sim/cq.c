/* SPDX-License-Identifier: MIT */
/* Completion queues: push, poll, arm. */
#include "sim/core.h"

#include <errno.h>
#include <string.h>
#include <valgrind/memcheck.h>

#include "sim/diag.h"

static struct sim_cqe *entry(struct sim_world *w, const struct sim_cq *cq,
			     uint32_t index)
{
	struct sim_cqe *ring = sim_at(w, cq->ring);

	return &ring[index & (cq->size - 1)];
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
	cq->ring = sim_arena_alloc(w, cq->size * sizeof(struct sim_cqe));
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
	sim_cq_free_ring(w, cq);
	sim_object_release(w, &cq->object, SIM_CQ);
	return 0;
}

void sim_cq_free_ring(struct sim_world *w, struct sim_cq *cq)
{
	uint64_t ring = cq->ring;

	/* Forgotten first: dying in between leaks it, and never frees it
	 * twice. */
	cq->ring = 0;
	sim_arena_free(w, ring, cq->size * sizeof(struct sim_cqe));
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
	ring = sim_arena_alloc(w, size * sizeof(struct sim_cqe));
	if (!ring)
		return -ENOMEM;
	sim_lock(&cq->lock);
	old = *cq;
	used = cq->tail - cq->head;
	if (used <= depth) {
		struct sim_cqe *to = sim_at(w, ring);

		for (uint32_t i = 0; i < used; i++)
			to[i] = *entry(w, cq, old.head + i);
		cq->ring = ring;
		cq->size = size;
		cq->depth = model->cq_depth_rounds ? size - 1 : depth;
		atomic_store(&cq->head, 0);
		atomic_store(&cq->tail, used);
	}
	*granted = cq->depth;
	sim_unlock(&cq->lock);
	if (used > depth) {
		sim_arena_free(w, ring, size * sizeof(struct sim_cqe));
		return -EINVAL;
	}
	sim_arena_free(w, old.ring, old.size * sizeof(struct sim_cqe));
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

bool sim_cq_push(struct sim_world *w, uint32_t handle,
		 const struct sim_cqe *cqe)
{
	struct sim_cq *cq = sim_cq_get(w, handle);
	const struct sim_host *host;
	const struct sim_model *model;
	bool is_full, wake = false;

	if (!cq)
		return true;
	sim_lock(&cq->lock);
	host = sim_host_of(w, cq->object.host);
	model = sim_model_of(host);
	is_full = atomic_load(&cq->is_overrun) ||
		  cq->tail - cq->head >= cq->depth;
	if (is_full) {
		/* 3.6: Soft-RoCE's goes on, one completion the poorer. */
		if ((model->overrun_fails_responder ||
		     !atomic_exchange(&cq->is_overrun, 1)) &&
		    sim_raises(host, IBV_EVENT_CQ_ERR))
			sim_async(w, cq->async_channel, cq->cookie,
				  IBV_EVENT_CQ_ERR);
		sim_diag("cq",
			 "5.7: a queue must hold all completions that "
			 "can be outstanding",
			 "overrun of a queue of %u: completion of wr_id 0x%llx "
			 "is lost and the queue is dead",
			 cq->depth, (unsigned long long)cqe->wr_id);
	} else {
		*entry(w, cq, cq->tail) = *cqe;
		atomic_store_explicit(&cq->tail, cq->tail + 1,
				      memory_order_release);
	}
	if (cq->channel && wakes(cq, cqe)) {
		atomic_store(&cq->armed, SIM_ARM_NONE);
		wake = true;
	}
	sim_unlock(&cq->lock);
	if (wake)
		sim_cq_wake(w, cq);
	return !is_full;
}

void sim_cq_purge(struct sim_world *w, uint32_t handle, uint32_t qp)
{
	struct sim_cq *cq = sim_cq_get(w, handle);
	uint32_t to;

	if (!cq)
		return;
	sim_lock(&cq->lock);
	to = cq->head;
	for (uint32_t i = cq->head; i != cq->tail; i++)
		if (entry(w, cq, i)->qp != qp)
			*entry(w, cq, to++) = *entry(w, cq, i);
	atomic_store_explicit(&cq->tail, to, memory_order_release);
	sim_unlock(&cq->lock);
}

bool sim_cq_is_empty(const struct sim_cq *cq)
{
	return atomic_load_explicit(&cq->tail, memory_order_acquire) ==
	       atomic_load_explicit(&cq->head, memory_order_relaxed);
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
	if (cqe->is_recv)
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

int sim_cq_poll(struct sim_ctx *ctx, struct sim_cq *cq, int count,
		struct ibv_wc *wc)
{
	struct sim_world *w = ctx->world;
	int got = 0;

	if (sim_cq_is_empty(cq)) {
		uint64_t due = atomic_load_explicit(&cq->deadline_ns,
						    memory_order_relaxed);
		if (due != SIM_NO_LIMIT) {
			uint64_t now = sim_now_ns();

			if (now >= due)
				sim_run_timers(w, cq, now);
		}
		if (sim_cq_is_empty(cq))
			return atomic_load(&cq->is_overrun) ? -EIO : 0;
	}
	sim_lock(&cq->lock);
	while (got < count && cq->head != cq->tail) {
		const struct sim_cqe *cqe = entry(w, cq, cq->head);

		if (cqe->qp) {
			to_wc(cqe, &wc[got++]);
			free_slots(w, cqe);
		}
		atomic_store_explicit(&cq->head, cq->head + 1,
				      memory_order_release);
	}
	sim_unlock(&cq->lock);
	return got;
}

void sim_cq_arm(struct sim_ctx *ctx, struct sim_cq *cq, bool solicited_only)
{
	enum sim_arm want = solicited_only ? SIM_ARM_SOLICITED : SIM_ARM_NEXT;

	sim_lock(&cq->lock);
	/* A stronger arm is not weakened by a later solicited-only one. */
	if (atomic_load(&cq->armed) != SIM_ARM_NEXT)
		atomic_store(&cq->armed, want);
	/* mlx5's arm carries the consumer index, so that what is there but
	 * unpolled raises the event (section 10, correction 6). */
	if (cq->channel && !sim_cq_is_empty(cq) &&
	    sim_model_of(sim_host_of(ctx->world, ctx->host))
		    ->arm_sees_unpolled) {
		atomic_store(&cq->armed, SIM_ARM_NONE);
		sim_cq_wake(ctx->world, cq);
	}
	sim_unlock(&cq->lock);
	if (cq->channel && atomic_load(&cq->deadline_ns) != SIM_NO_LIMIT)
		sim_timer_start(ctx->world);
}
