/* SPDX-License-Identifier: MIT */
/*
 * Memory windows: bound by a work request to a part of a region, and keys
 * taken out of use. Windows share the regions' table and key space.
 */
#include "sim/deliver.h"

#include <errno.h>

int sim_mw_alloc(struct sim_ctx *ctx, uint32_t pd_handle, int type,
		 uint32_t *out, uint32_t *key)
{
	struct sim_world *w = ctx->world;
	struct sim_pd *pd = sim_pd_mine(w, pd_handle);
	struct sim_mr *mw;
	int rc;

	if (!pd)
		return -EINVAL;
	mw = sim_object_claim(ctx, SIM_MR, SIM_MR_MAX, &rc);
	if (!mw)
		return -ENOMEM;
	mw->kind = type == IBV_MW_TYPE_1 ? SIM_MR_WINDOW_1 : SIM_MR_WINDOW_2;
	mw->pd = pd_handle;
	mw->region = 0;
	mw->qp_num = 0;
	mw->access = 0;
	mw->addr = mw->length = mw->iova = 0;
	mw->is_aliased = 0;
	mw->map_fd = -1;
	mw->key = (uint32_t)(mw - w->seg->mr) << 12 | mw->object.generation;
	atomic_fetch_add(&pd->users, 1);
	*key = mw->key;
	*out = sim_object_publish(w, &mw->object, SIM_MR);
	return 0;
}

static void unbind(struct sim_world *w, struct sim_mr *mw)
{
	struct sim_mr *region = sim_mr_get(w, mw->region);

	mw->region = 0;
	mw->access = 0;
	mw->length = 0;
	if (region)
		atomic_fetch_sub(&region->windows, 1);
}

int sim_mw_dealloc(struct sim_ctx *ctx, uint32_t handle)
{
	struct sim_world *w = ctx->world;
	struct sim_mr *mw = sim_mr_mine(w, handle);
	struct sim_pd *pd;

	if (!mw || mw->kind == SIM_MR_REGION)
		return -EINVAL;
	atomic_store(&mw->object.handle, 0);
	sim_mr_wait_unused(w, mw);
	unbind(w, mw);
	pd = sim_pd_get(w, mw->pd);
	if (pd)
		atomic_fetch_sub(&pd->users, 1);
	sim_object_release(w, &mw->object, SIM_MR);
	return 0;
}

bool sim_invalidate(struct sim_world *w, const struct sim_qp *qp, uint32_t rkey)
{
	struct sim_mr *mw = sim_mr_by_key(w, rkey);

	if (!mw || mw->kind != SIM_MR_WINDOW_2 || !mw->region ||
	    mw->pd != qp->pd)
		return false;
	unbind(w, mw);
	return true;
}

/* A bind's region must allow what the window will, and windows at all. */
static bool may_bind(struct delivery *d, const struct sim_mr *mw,
		     const struct sim_mr *region)
{
	const uint32_t writes =
		IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	const uint64_t addr = d->wqe->op.bind.addr;
	const uint64_t length = d->wqe->op.bind.length;
	uint32_t access = d->wqe->op.bind.access;

	if (!mw || mw->kind == SIM_MR_REGION || mw->pd != d->qp->pd)
		return false;
	if (length == 0)
		return true; /* a bind of nothing takes the key out of use */
	if (!region || region->kind != SIM_MR_REGION ||
	    region->pd != d->qp->pd || !(region->access & IBV_ACCESS_MW_BIND))
		return false;
	if ((access & writes) && !(region->access & IBV_ACCESS_LOCAL_WRITE))
		return false;
	if (access & IBV_ACCESS_ZERO_BASED)
		return false;
	return addr >= region->iova && length <= region->length &&
	       addr - region->iova <= region->length - length;
}

static bool bind(struct delivery *d)
{
	struct sim_mr *mw = sim_mr_get(d->w, d->wqe->op.bind.window);
	struct sim_mr *region = sim_mr_get(d->w, d->wqe->op.bind.region);

	if (!may_bind(d, mw, region))
		return false;
	/* Type 2 is bound once, until it is invalidated. */
	if (mw->kind == SIM_MR_WINDOW_2 && mw->region)
		return false;
	if (mw->region)
		unbind(d->w, mw);
	mw->key = d->wqe->op.bind.rkey;
	if (d->wqe->op.bind.length == 0)
		return true;
	mw->addr = region->addr + (d->wqe->op.bind.addr - region->iova);
	mw->iova = d->wqe->op.bind.addr;
	mw->length = d->wqe->op.bind.length;
	mw->access = d->wqe->op.bind.access;
	mw->qp_num = d->qp->qp_num;
	mw->region = d->wqe->op.bind.region;
	atomic_fetch_add(&region->windows, 1);
	return true;
}

bool sim_step_window(struct delivery *d)
{
	bool is_done = d->op->class == SIM_OP_BIND
			       ? bind(d)
			       : sim_invalidate(d->w, d->qp, d->wqe->imm);

	if (!is_done) {
		sim_fail_sender(d, IBV_WC_MW_BIND_ERR);
		return false;
	}
	sim_end_head(d, IBV_WC_SUCCESS);
	return true;
}
