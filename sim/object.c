/* SPDX-License-Identifier: MIT */
/* Protection domains, memory regions and completion channels. */
#include "sim/core.h"

#include <errno.h>

#include "sim/diag.h"

/* Count one more against a limit of the device; false when it is reached. */
static bool take(_Atomic uint32_t *count, uint32_t limit)
{
	uint32_t have = atomic_load(count);

	do {
		if (have >= limit)
			return false;
	} while (!atomic_compare_exchange_weak(count, &have, have + 1));
	return true;
}

static void limit_diag(const struct sim_model *model, const char *what,
		       uint32_t limit)
{
	sim_diag(model->name, what, "refused: the device has %u of them",
		 limit);
}

int sim_pd_alloc(struct sim_ctx *ctx, uint32_t *out)
{
	struct sim_world *w = ctx->world;
	struct sim_host *host = sim_host_of(w, ctx->host);
	const struct sim_model *model = sim_model_of(host);
	struct sim_pd *pd;
	int rc = model->check_pd ? model->check_pd(host) : 0;

	if (rc)
		return rc;
	if (!take(&host->pd_count, model->pd_limit)) {
		limit_diag(model, "R4: protection domains", model->pd_limit);
		return -ENOMEM;
	}
	pd = sim_object_claim(ctx, w->seg->pd, sizeof(*pd), SIM_PD_MAX);
	if (!pd) {
		atomic_fetch_sub(&host->pd_count, 1);
		return -ENOMEM;
	}
	atomic_store(&pd->users, 0);
	*out = sim_object_publish(&pd->object, (uint32_t)(pd - w->seg->pd));
	return 0;
}

static void release(struct sim_object *object, _Atomic uint32_t *count)
{
	atomic_fetch_sub(count, 1);
	atomic_store(&object->handle, 0);
	object->proc = 0;
}

int sim_pd_dealloc(struct sim_ctx *ctx, uint32_t handle)
{
	struct sim_pd *pd = sim_pd_mine(ctx->world, handle);

	if (!pd)
		return -EINVAL;
	if (atomic_load(&pd->users))
		return -EBUSY;
	release(&pd->object,
		&sim_host_of(ctx->world, pd->object.host)->pd_count);
	return 0;
}

/* R5: whose regions the limit counts. */
static bool take_mr(struct sim_host *host, const struct sim_model *model,
		    struct sim_pd *pd)
{
	bool per_pd = model->mr_limit_is_pds && model->mr_limit_is_pds(host);

	/* A domain's users are its regions and its queue pairs; the latter
	 * are few enough not to blur a limit of 100. */
	if (per_pd)
		return atomic_load(&pd->users) < model->mr_limit &&
		       take(&host->mr_count, SIM_MR_MAX);
	return take(&host->mr_count, model->mr_limit);
}

int sim_mr_reg(struct sim_ctx *ctx, const struct sim_mr_request *request,
	       uint32_t *out, uint32_t *key)
{
	struct sim_world *w = ctx->world;
	struct sim_host *host = sim_host_of(w, ctx->host);
	const struct sim_model *model = sim_model_of(host);
	struct sim_pd *pd = sim_pd_mine(w, request->pd);
	struct sim_mr *mr;
	uint32_t slot;
	int rc;

	if (!pd)
		return -EINVAL;
	rc = model->check_mr(host, request->addr, request->length,
			     request->access);
	if (rc)
		return rc;
	if (!take_mr(host, model, pd)) {
		limit_diag(model, "R5: memory regions", model->mr_limit);
		return -ENOMEM;
	}
	mr = sim_object_claim(ctx, w->seg->mr, sizeof(*mr), SIM_MR_MAX);
	if (!mr) {
		atomic_fetch_sub(&host->mr_count, 1);
		return -ENOMEM;
	}
	slot = (uint32_t)(mr - w->seg->mr);
	mr->pd = request->pd;
	mr->access = request->access;
	mr->addr = request->addr;
	mr->length = request->length;
	mr->iova = request->iova;
	mr->is_aliased = model->aliases_mr &&
			 model->aliases_mr(host, mr->addr, mr->length);
	/* Fresh on every registration: slot above, generation below. */
	mr->key = slot << 12 | mr->object.generation;
	atomic_fetch_add(&pd->users, 1);
	*key = mr->key;
	*out = sim_object_publish(&mr->object, slot);
	return 0;
}

int sim_mr_dereg(struct sim_ctx *ctx, uint32_t handle)
{
	struct sim_world *w = ctx->world;
	struct sim_mr *mr = sim_mr_mine(w, handle);
	struct sim_pd *pd;

	if (!mr)
		return -EINVAL;
	/* Invisible from here; then pass through each lock under which a
	 * delivery may already have looked it up. */
	atomic_store(&mr->object.handle, 0);
	for (uint32_t i = 0; i < SIM_QP_MAX; i++) {
		struct sim_qp *qp = &w->seg->qp[i];

		if (qp->object.proc != w->proc || qp->pd != mr->pd)
			continue;
		sim_lock(&qp->sq_lock);
		sim_lock(&qp->rq_lock);
		sim_unlock(&qp->rq_lock);
		sim_unlock(&qp->sq_lock);
	}
	pd = sim_pd_get(w, mr->pd);
	if (pd)
		atomic_fetch_sub(&pd->users, 1);
	release(&mr->object, &sim_host_of(w, mr->object.host)->mr_count);
	return 0;
}

const struct sim_mr *sim_mr_check(struct sim_world *w, uint32_t pd,
				  const struct sim_sge *range, uint32_t access)
{
	uint32_t slot = range->lkey >> 12;
	const struct sim_mr *mr;

	if (slot >= SIM_MR_MAX)
		return NULL;
	mr = &w->seg->mr[slot];
	if (atomic_load_explicit(&mr->object.handle, memory_order_acquire) ==
		    0 ||
	    mr->key != range->lkey || mr->pd != pd)
		return NULL;
	if ((mr->access & access) != access || range->addr < mr->iova ||
	    range->length > mr->length ||
	    range->addr - mr->iova > mr->length - range->length)
		return NULL;
	return mr;
}

int sim_channel_create(struct sim_ctx *ctx, uint32_t *out, int *fd)
{
	struct sim_world *w = ctx->world;
	struct sim_channel *channel =
		sim_object_claim(ctx, w->seg->channel, sizeof(*channel),
				 SIM_CHANNEL_MAX);
	uint32_t handle;
	int rc;

	if (!channel)
		return -ENOMEM;
	atomic_store(&channel->users, 0);
	handle = sim_object_publish(&channel->object,
				    (uint32_t)(channel - w->seg->channel));
	rc = sim_notify_socket(w, handle, fd);
	if (rc) {
		atomic_store(&channel->object.handle, 0);
		channel->object.proc = 0;
		return rc;
	}
	*out = handle;
	return 0;
}

int sim_channel_destroy(struct sim_ctx *ctx, uint32_t handle)
{
	struct sim_channel *channel = sim_channel_mine(ctx->world, handle);

	if (!channel)
		return -EINVAL;
	if (atomic_load(&channel->users))
		return -EBUSY;
	atomic_store(&channel->object.handle, 0);
	channel->object.proc = 0;
	return 0;
}
