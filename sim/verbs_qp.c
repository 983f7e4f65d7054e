/* SPDX-License-Identifier: MIT */
/* Queue pairs. */
#include "sim/verbs_front.h"

#include <stdlib.h>
#include <string.h>

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_context *context = pd->context;
	struct sim_ctx *ctx = ctx_of(context);
	struct sim_qp_config config = {.attr = attr, .pd = pd->handle};
	struct sim_qp *inner;
	struct ibv_qp *qp;
	int rc = -front_tap(context, SIM_CALL_CREATE_QP);

	if (rc)
		return fail_ptr(rc);
	if (!attr->send_cq || !attr->recv_cq)
		return fail_ptr(-EINVAL);
	config.send_cq = attr->send_cq->handle;
	config.recv_cq = attr->recv_cq->handle;
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return fail_ptr(-ENOMEM);
	rc = sim_qp_create(ctx, &config, &qp->handle);
	if (rc) {
		free(qp);
		return fail_ptr(rc);
	}
	inner = sim_qp_mine(ctx->world, qp->handle);
	attr->cap = inner->cap;
	qp->context = context;
	qp->qp_context = attr->qp_context;
	qp->pd = pd;
	qp->send_cq = attr->send_cq;
	qp->recv_cq = attr->recv_cq;
	qp->srq = attr->srq;
	qp->qp_num = inner->qp_num;
	qp->qp_type = attr->qp_type;
	qp->state = IBV_QPS_RESET;
	pthread_mutex_init(&qp->mutex, NULL);
	pthread_cond_init(&qp->cond, NULL);
	return qp;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct sim_ctx *ctx = ctx_of(qp->context);
	struct sim_qp *inner = sim_qp_mine(ctx->world, qp->handle);
	int rc = -front_tap(qp->context, SIM_CALL_MODIFY_QP);

	if (!rc)
		rc = inner ? sim_qp_modify(ctx, inner, attr, mask) : -EINVAL;
	if (!rc && (mask & IBV_QP_STATE))
		qp->state = attr->qp_state;
	return -rc;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init)
{
	struct sim_ctx *ctx = ctx_of(qp->context);
	struct sim_qp *inner = sim_qp_mine(ctx->world, qp->handle);
	int error = front_tap(qp->context, SIM_CALL_QUERY_QP);

	(void)mask; /* a hint of what is wanted; all of it is cheap */
	if (error)
		return error;
	if (!inner)
		return EINVAL;
	*attr = inner->attr;
	attr->qp_state = atomic_load(&inner->state);
	attr->cur_qp_state = attr->qp_state;
	attr->cap = inner->cap;
	memset(init, 0, sizeof(*init));
	init->qp_context = qp->qp_context;
	init->send_cq = qp->send_cq;
	init->recv_cq = qp->recv_cq;
	init->srq = qp->srq;
	init->qp_type = qp->qp_type;
	init->cap = inner->cap;
	init->sq_sig_all = (int)inner->sq_sig_all;
	qp->state = attr->qp_state;
	return 0;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct sim_ctx *ctx = ctx_of(qp->context);
	int rc = -front_tap(qp->context, SIM_CALL_DESTROY_QP);

	if (!rc)
		rc = sim_qp_destroy(ctx, qp->handle);
	if (rc)
		return -rc;
	pthread_cond_destroy(&qp->cond);
	pthread_mutex_destroy(&qp->mutex);
	free(qp);
	return 0;
}

/* Only a queue pair made with the extended call has builders behind it, and
 * this version has no such call. */
struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	(void)qp;
	return fail_ptr(-EOPNOTSUPP);
}
