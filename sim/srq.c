/* SPDX-License-Identifier: MIT */
/* Shared receive queues, and the domains of XRC. */
#include "sim/core.h"

#include <errno.h>

#include "sim/diag.h"

static int check(struct sim_ctx *ctx, const struct sim_srq_config *config)
{
	const struct sim_model *model =
		sim_model_of(sim_host_of(ctx->world, ctx->host));
	const struct ibv_srq_attr *attr = &config->attr;

	if (!sim_pd_mine(ctx->world, config->pd))
		return -EINVAL;
	if (!model->srq_limit) {
		sim_diag(model->name, "R26, 2.2: no shared receive queues",
			 "create_srq refused");
		return -EOPNOTSUPP;
	}
	if (attr->max_wr > model->srq_max_wr ||
	    attr->max_sge > model->srq_max_sge)
		return -EINVAL;
	if (config->type == IBV_SRQT_XRC &&
	    (!sim_xrcd_get(ctx->world, config->xrcd) ||
	     !sim_cq_mine(ctx->world, config->cq)))
		return -EINVAL;
	return model->check_queue ? model->check_queue("SRQ") : 0;
}

int sim_srq_create(struct sim_ctx *ctx, const struct sim_srq_config *config,
		   uint32_t *out)
{
	struct sim_world *w = ctx->world;
	const struct sim_model *model = sim_model_of(sim_host_of(w, ctx->host));
	struct sim_ring_request want = {
		.max_sge = config->attr.max_sge ? config->attr.max_sge : 1};
	struct sim_xrcd *xrcd = sim_xrcd_get(w, config->xrcd);
	struct sim_cq *cq = sim_cq_get(w, config->cq);
	struct sim_srq *srq;
	int rc = check(ctx, config);

	if (rc)
		return rc;
	/* 2.9: both drivers hold 2^n - 1. */
	want.depth = config->attr.max_wr
			     ? sim_round_up(config->attr.max_wr + 1) - 1
			     : 1;
	srq = sim_object_claim(ctx, SIM_SRQ, model->srq_limit, &rc);
	if (!srq)
		return rc == -EUSERS ? -ENOMEM : rc;
	rc = sim_ring_init(w, &srq->ring, &want);
	if (rc) {
		sim_object_release(w, &srq->object, SIM_SRQ);
		return rc;
	}
	srq->pd = config->pd;
	srq->type = config->type;
	srq->xrcd = config->xrcd;
	srq->cq = config->cq;
	srq->cookie = config->cookie;
	srq->async_channel = ctx->async_channel;
	srq->limit = 0; /* only modify_srq arms it */
	srq->users = srq->has_waiters = 0;
	atomic_fetch_add(&sim_pd_get(w, config->pd)->users, 1);
	if (xrcd)
		atomic_fetch_add(&xrcd->users, 1);
	if (cq)
		atomic_fetch_add(&cq->users, 1);
	*out = sim_object_publish(w, &srq->object, SIM_SRQ);
	srq->num = *out;
	return 0;
}

int sim_srq_modify(struct sim_ctx *ctx, struct sim_srq *srq, uint32_t limit)
{
	struct sim_world *w = ctx->world;
	int rc = 0;

	sim_take(w, &srq->lock);
	/* 2.9: a limit that can never be crossed is refused. */
	if (limit >= srq->ring.depth)
		rc = -EINVAL;
	else
		srq->limit = limit;
	/* Armed below the count that is there: at once. */
	if (!rc && limit && srq->ring.tail - srq->ring.head < limit) {
		srq->limit = 0;
		sim_async(w, srq->async_channel, srq->cookie,
			  IBV_EVENT_SRQ_LIMIT_REACHED);
	}
	sim_drop(&srq->lock);
	return rc;
}

void sim_srq_free_ring(struct sim_world *w, struct sim_srq *srq)
{
	sim_ring_fini(w, &srq->ring);
}

int sim_srq_destroy(struct sim_ctx *ctx, uint32_t handle)
{
	struct sim_world *w = ctx->world;
	struct sim_srq *srq = sim_srq_mine(w, handle);
	struct sim_xrcd *xrcd;
	struct sim_pd *pd;
	struct sim_cq *cq;

	if (!srq)
		return -EINVAL;
	if (atomic_load(&srq->users))
		return -EBUSY;
	sim_take(w, &srq->lock);
	atomic_store(&srq->object.handle, 0);
	srq->ring.head = srq->ring.tail;
	sim_drop(&srq->lock);
	sim_srq_free_ring(w, srq);
	pd = sim_pd_get(w, srq->pd);
	xrcd = sim_xrcd_get(w, srq->xrcd);
	cq = sim_cq_get(w, srq->cq);
	if (pd)
		atomic_fetch_sub(&pd->users, 1);
	if (xrcd)
		atomic_fetch_sub(&xrcd->users, 1);
	if (cq)
		atomic_fetch_sub(&cq->users, 1);
	sim_object_release(w, &srq->object, SIM_SRQ);
	return 0;
}

int sim_post_srq_recv(struct sim_ctx *ctx, struct sim_srq *srq,
		      struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct sim_world *w = ctx->world;
	int rc = 0;

	sim_take(w, &srq->lock);
	for (; wr; wr = wr->next) {
		struct sim_ring *ring = &srq->ring;

		if (wr->num_sge < 0 || (uint32_t)wr->num_sge > ring->max_sge)
			rc = EINVAL;
		else if (ring->tail - ring->head >= ring->depth)
			rc = ENOMEM;
		if (rc)
			break;
		sim_put_recv(w, ring, srq->pd, wr, 0, false);
	}
	sim_drop(&srq->lock);
	if (rc)
		*bad = wr;
	sim_kick_srq_senders(w, srq);
	return rc;
}

int sim_xrcd_open(struct sim_ctx *ctx, uint64_t inode, uint32_t *out)
{
	struct sim_world *w = ctx->world;
	struct sim_xrcd *xrcd;
	int rc;

	for (uint32_t i = 0; inode && i < sim_top(w, SIM_XRCD); i++) {
		xrcd = &w->seg->xrcd[i];
		if (!atomic_load(&xrcd->object.handle) ||
		    xrcd->inode != inode || xrcd->object.host != ctx->host)
			continue;
		atomic_fetch_add(&xrcd->users, 1);
		*out = atomic_load(&xrcd->object.handle);
		return 0;
	}
	xrcd = sim_object_claim(ctx, SIM_XRCD, SIM_XRCD_MAX, &rc);
	if (!xrcd)
		return rc == -EUSERS ? -ENOMEM : rc;
	xrcd->inode = inode;
	atomic_store(&xrcd->users, 1);
	*out = sim_object_publish(w, &xrcd->object, SIM_XRCD);
	return 0;
}

int sim_xrcd_close(struct sim_ctx *ctx, uint32_t handle)
{
	struct sim_xrcd *xrcd = sim_xrcd_get(ctx->world, handle);

	if (!xrcd)
		return -EINVAL;
	/* Each opener has one; the rest are queue pairs and queues. */
	if (atomic_load(&xrcd->users) > 1)
		return -EBUSY;
	sim_object_release(ctx->world, &xrcd->object, SIM_XRCD);
	return 0;
}
