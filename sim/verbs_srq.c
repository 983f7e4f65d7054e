/* SPDX-License-Identifier: MIT */
/* Shared receive queues and the domains of XRC. */
#include "sim/verbs_front.h"

#include <stdlib.h>
#include <sys/stat.h>

static struct ibv_srq *create(struct ibv_context *context,
			      struct sim_srq_config *config,
			      struct ibv_srq_init_attr *init, struct ibv_pd *pd)
{
	struct sim_ctx *ctx = ctx_of(context);
	struct front_srq *front = calloc(1, sizeof(*front));
	struct ibv_srq *srq = &front->srq;
	int rc;

	if (!front)
		return fail_ptr(-ENOMEM);
	config->pd = pd->handle;
	config->attr = init->attr;
	config->cookie = (uintptr_t)srq;
	rc = sim_srq_create(ctx, config, &srq->handle);
	if (rc) {
		free(front);
		return fail_ptr(rc);
	}
	init->attr.max_wr = sim_srq_mine(ctx->world, srq->handle)->ring.depth;
	srq->context = context;
	srq->srq_context = init->srq_context;
	srq->pd = pd;
	front->num = srq->handle;
	front->init = *init;
	pthread_mutex_init(&srq->mutex, NULL);
	pthread_cond_init(&srq->cond, NULL);
	return srq;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd,
			       struct ibv_srq_init_attr *attr)
{
	struct sim_srq_config config = {.type = IBV_SRQT_BASIC};

	return create(pd->context, &config, attr, pd);
}

struct ibv_srq *front_create_srq_ex(struct ibv_context *context,
				    struct ibv_srq_init_attr_ex *attr)
{
	struct sim_srq_config config = {.type = IBV_SRQT_BASIC};
	struct ibv_srq_init_attr init = {attr->srq_context, attr->attr};
	struct ibv_srq *srq;

	if (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE)
		config.type = attr->srq_type;
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) || !attr->pd)
		return fail_ptr(-EINVAL);
	if (config.type != IBV_SRQT_BASIC && config.type != IBV_SRQT_XRC)
		return fail_ptr(-EOPNOTSUPP);
	if (config.type == IBV_SRQT_XRC) {
		if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD) ||
		    !(attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ))
			return fail_ptr(-EINVAL);
		config.xrcd = ((struct front_xrcd *)attr->xrcd)->handle;
		config.cq = attr->cq->handle;
	}
	srq = create(context, &config, &init, attr->pd);
	if (srq)
		attr->attr = init.attr;
	return srq;
}

int front_get_srq_num(struct ibv_srq *srq, uint32_t *num)
{
	*num = ((struct front_srq *)srq)->num;
	return 0;
}

/* Resizing is refused (2.9); the limit is what may change. */
int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	struct sim_ctx *ctx = ctx_of(srq->context);
	struct sim_srq *inner = sim_srq_mine(ctx->world, srq->handle);

	if (!inner || (mask & ~IBV_SRQ_LIMIT))
		return EINVAL;
	return mask ? -sim_srq_modify(ctx, inner, attr->srq_limit) : 0;
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	struct sim_ctx *ctx = ctx_of(srq->context);
	struct sim_srq *inner = sim_srq_mine(ctx->world, srq->handle);

	if (!inner)
		return EINVAL;
	attr->max_wr = inner->ring.depth;
	attr->max_sge = inner->ring.max_sge;
	attr->srq_limit = inner->limit;
	return 0;
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	struct front_srq *front = (struct front_srq *)srq;
	int rc = sim_srq_destroy(ctx_of(srq->context), srq->handle);

	if (rc)
		return -rc;
	front_wait_acked(&srq->mutex, &srq->cond, &srq->events_completed,
			 &front->async_delivered);
	pthread_cond_destroy(&srq->cond);
	pthread_mutex_destroy(&srq->mutex);
	free(front);
	return 0;
}

struct ibv_xrcd *front_open_xrcd(struct ibv_context *context,
				 struct ibv_xrcd_init_attr *attr)
{
	struct front_xrcd *front;
	struct stat st = {0};
	int rc;

	if (!front_model(context)->has_xrc)
		return fail_ptr(-EOPNOTSUPP);
	if (!(attr->comp_mask & IBV_XRCD_INIT_ATTR_FD) ||
	    !(attr->comp_mask & IBV_XRCD_INIT_ATTR_OFLAGS))
		return fail_ptr(-EINVAL);
	if (attr->fd >= 0 && fstat(attr->fd, &st) != 0)
		return fail_ptr(-errno);
	front = calloc(1, sizeof(*front));
	if (!front)
		return fail_ptr(-ENOMEM);
	rc = sim_xrcd_open(ctx_of(context), st.st_ino, &front->handle);
	if (rc) {
		free(front);
		return fail_ptr(rc);
	}
	front->xrcd.context = context;
	return &front->xrcd;
}

int front_close_xrcd(struct ibv_xrcd *xrcd)
{
	struct front_xrcd *front = (struct front_xrcd *)xrcd;
	int rc = sim_xrcd_close(ctx_of(xrcd->context), front->handle);

	if (rc)
		return -rc;
	free(front);
	return 0;
}
