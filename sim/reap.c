/* SPDX-License-Identifier: MIT */
/*
 * Taking over from a process that is gone: free whatever it left, users before
 * what they use. Locks that it held are made usable by their next taker. It
 * may have died anywhere, so counts of users are not believed, and an object
 * without a handle was half made or half gone.
 */
#include "sim/core.h"

static bool is_theirs(struct sim_ctx *ctx, struct sim_object *object)
{
	uint32_t proc = atomic_load(&object->proc);

	if (!ctx->id) /* of who is gone: with what it had just claimed */
		return (proc & ~SIM_CLAIMED) == ctx->world->proc;
	return proc == ctx->world->proc && object->context == ctx->id;
}

static void leave_groups(struct sim_world *w, struct sim_qp *qp)
{
	uint32_t handle = atomic_load(&qp->object.handle);

	for (int i = 0; handle && i < SIM_MCAST_MAX; i++)
		if (atomic_load(&w->seg->mcast[i].qp) == handle)
			atomic_store(&w->seg->mcast[i].qp, 0);
	atomic_store(&qp->mcast_count, 0);
}

static void reap_qps(struct sim_ctx *ctx)
{
	struct sim_world *w = ctx->world;

	for (uint32_t i = 0; i < sim_top(w, SIM_QP); i++) {
		struct sim_qp *qp = &w->seg->qp[i];

		if (is_theirs(ctx, &qp->object))
			leave_groups(w, qp);
		if (!is_theirs(ctx, &qp->object))
			continue;
		if (!sim_qp_may_reap(w, qp)) {
			if (!ctx->id) /* nobody comes back for it */
				sim_object_orphan(w, &qp->object, SIM_QP);
			continue;
		}
		if (sim_qp_destroy(ctx, atomic_load(&qp->object.handle)) == 0)
			continue;
		sim_qp_free_rings(w, qp);
		sim_object_release(w, &qp->object, SIM_QP);
	}
}

static void reap_mrs(struct sim_ctx *ctx)
{
	struct sim_world *w = ctx->world;

	for (uint32_t i = 0; i < sim_top(w, SIM_MR); i++) {
		struct sim_mr *mr = &w->seg->mr[i];

		/* No queue pair of its own is left that could use it. */
		if (!is_theirs(ctx, &mr->object))
			continue;
		atomic_store(&mr->object.handle, 0);
		sim_object_release(w, &mr->object, SIM_MR);
	}
}

static void reap_srqs(struct sim_ctx *ctx)
{
	struct sim_world *w = ctx->world;

	for (uint32_t i = 0; i < sim_top(w, SIM_SRQ); i++) {
		struct sim_srq *srq = &w->seg->srq[i];

		if (!is_theirs(ctx, &srq->object))
			continue;
		sim_take(w, &srq->lock);
		atomic_store(&srq->object.handle, 0);
		sim_drop(&srq->lock);
		sim_srq_free_ring(w, srq);
		sim_object_release(w, &srq->object, SIM_SRQ);
	}
	for (uint32_t i = 0; i < sim_top(w, SIM_XRCD); i++)
		if (is_theirs(ctx, &w->seg->xrcd[i].object))
			sim_object_release(w, &w->seg->xrcd[i].object,
					   SIM_XRCD);
}

static void reap_cqs(struct sim_ctx *ctx)
{
	struct sim_world *w = ctx->world;

	for (uint32_t i = 0; i < sim_top(w, SIM_CQ); i++) {
		struct sim_cq *cq = &w->seg->cq[i];

		if (!is_theirs(ctx, &cq->object))
			continue;
		atomic_store(&cq->object.handle, 0);
		sim_cq_end(w, cq);
	}
}

static void reap_rest(struct sim_ctx *ctx)
{
	struct sim_world *w = ctx->world;

	for (uint32_t i = 0; i < sim_top(w, SIM_CHANNEL); i++)
		if (is_theirs(ctx, &w->seg->channel[i].object))
			sim_object_release(w, &w->seg->channel[i].object,
					   SIM_CHANNEL);
	for (uint32_t i = 0; i < sim_top(w, SIM_PD); i++)
		if (is_theirs(ctx, &w->seg->pd[i].object))
			sim_object_release(w, &w->seg->pd[i].object, SIM_PD);
}

static void reap_all(struct sim_ctx *ctx)
{
	reap_qps(ctx);
	reap_srqs(ctx);
	reap_mrs(ctx);
	reap_cqs(ctx);
	reap_rest(ctx);
}

void sim_proc_reap_objects(struct sim_world *w, uint32_t proc)
{
	/* In the shoes of the dead: every owner check then holds. */
	struct sim_world dead = *w;
	struct sim_ctx ctx = {.world = &dead};

	sim_cq_wake_all(w);
	dead.proc = proc;
	sim_mover_reap(w, proc);
	sim_share_reap(w, proc);
	reap_all(&ctx);
	sim_object_forget(w, proc);
}

void sim_ctx_reap(struct sim_ctx *ctx)
{
	const struct sim_host *host = sim_host_of(ctx->world, ctx->host);

	/* Nearly always there is nothing, and no need to look. */
	for (int kind = 0; kind < SIM_OBJECTS; kind++)
		if (sim_object_count(host, kind)) {
			reap_all(ctx);
			return;
		}
}

int sim_world_object_count(struct sim_world *w)
{
	struct sim_segment *seg = w->seg;
	int count = 0;

#define COUNT(table, kind)                              \
	for (uint32_t i = 0; i < sim_top(w, kind); i++) \
		count += seg->table[i].object.handle != 0;
	COUNT(pd, SIM_PD)
	COUNT(channel, SIM_CHANNEL)
	COUNT(cq, SIM_CQ)
	COUNT(qp, SIM_QP)
	COUNT(mr, SIM_MR)
	COUNT(srq, SIM_SRQ)
	COUNT(xrcd, SIM_XRCD)
#undef COUNT
	return count;
}
