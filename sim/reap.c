/* SPDX-License-Identifier: MIT */
/* Taking over from a process that is gone: free whatever it left. */
#include "sim/core.h"

/* Locks that the dead held are made usable by the next taker (sim_lock); the
 * order below is the legal one: users before what they use. */
static void reap_qps(struct sim_ctx *ctx)
{
	struct sim_world *w = ctx->world;

	for (uint32_t i = 0; i < SIM_QP_MAX; i++) {
		struct sim_qp *qp = &w->seg->qp[i];

		if (qp->object.proc != w->proc)
			continue;
		if (qp->object.handle)
			sim_qp_destroy(ctx, qp->object.handle);
		else
			qp->object.proc = 0; /* died half made */
	}
}

static void reap_rest(struct sim_ctx *ctx)
{
	struct sim_segment *seg = ctx->world->seg;
	uint32_t proc = ctx->world->proc;

#define REAP(table, max, destroy)                                  \
	for (uint32_t i = 0; i < (max); i++) {                     \
		if (seg->table[i].object.proc != proc)             \
			continue;                                  \
		if (seg->table[i].object.handle)                   \
			destroy(ctx, seg->table[i].object.handle); \
		else                                               \
			seg->table[i].object.proc = 0;             \
	}
	REAP(mr, SIM_MR_MAX, sim_mr_dereg)
	REAP(cq, SIM_CQ_MAX, sim_cq_destroy)
	REAP(channel, SIM_CHANNEL_MAX, sim_channel_destroy)
	REAP(pd, SIM_PD_MAX, sim_pd_dealloc)
#undef REAP
}

void sim_proc_reap_objects(struct sim_world *w, uint32_t proc)
{
	/* In the shoes of the dead: every owner check then holds. */
	struct sim_world dead = *w;
	struct sim_ctx ctx = {.world = &dead};

	dead.proc = proc;
	reap_qps(&ctx);
	reap_rest(&ctx);
}

int sim_world_object_count(struct sim_world *w)
{
	struct sim_segment *seg = w->seg;
	int count = 0;

#define COUNT(table, max)                    \
	for (uint32_t i = 0; i < (max); i++) \
		count += seg->table[i].object.handle != 0;
	COUNT(pd, SIM_PD_MAX)
	COUNT(channel, SIM_CHANNEL_MAX)
	COUNT(cq, SIM_CQ_MAX)
	COUNT(qp, SIM_QP_MAX)
	COUNT(mr, SIM_MR_MAX)
#undef COUNT
	return count;
}
