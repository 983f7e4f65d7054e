/* SPDX-License-Identifier: MIT */
/*
 * Imports: a second context, domain or region for what the process has already.
 * They are of one process here: what another process made is EOPNOTSUPP,
 * because a region's bytes are its maker's. Device memory: verbs_memory.c.
 */
#include "sim/verbs_front.h"

#include <stdlib.h>

/* Is it there, though not ours? */
static int why_not(bool is_there)
{
	return is_there ? -EOPNOTSUPP : -EINVAL;
}

struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t handle)
{
	struct sim_world *w = ctx_of(context)->world;
	struct front_pd *front;

	if (!sim_pd_mine(w, handle))
		return fail_ptr(why_not(sim_pd_get(w, handle) != NULL));
	front = calloc(1, sizeof(*front));
	if (!front)
		return fail_ptr(-ENOMEM);
	front->pd.context = context;
	front->pd.handle = handle;
	return &front->pd;
}

void ibv_unimport_pd(struct ibv_pd *pd)
{
	free((struct front_pd *)pd);
}

/* As the kernel does not know it, its address is NULL. */
struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	struct sim_world *w = ctx_of(pd->context)->world;
	const struct sim_mr *inner = sim_mr_mine(w, handle);
	struct ibv_mr *mr;

	if (!inner || inner->kind != SIM_MR_REGION)
		return fail_ptr(why_not(!inner && sim_mr_get(w, handle)));
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return fail_ptr(-ENOMEM);
	mr->context = pd->context;
	mr->pd = pd;
	mr->handle = handle;
	mr->length = inner->length;
	mr->lkey = mr->rkey = inner->key;
	return mr;
}

void ibv_unimport_mr(struct ibv_mr *mr)
{
	free(mr);
}
