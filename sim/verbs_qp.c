/* SPDX-License-Identifier: MIT */
/* Queue pairs: create (both calls), modify, query, destroy; multicast. */
#include "sim/verbs_front.h"

#include <stdlib.h>
#include <string.h>

#include "sim/diag.h"

static void *refuse_mask(const char *what, uint64_t bits)
{
	sim_diag("create_qp_ex", "3.1: unused fields and unknown bits",
		 "refused: %s 0x%llx", what, (unsigned long long)bits);
	return fail_ptr(-EOPNOTSUPP);
}

static void init_locks(struct ibv_qp *qp)
{
	pthread_mutex_init(&qp->mutex, NULL);
	pthread_cond_init(&qp->cond, NULL);
}

/* The part that both calls share; `pd` is NULL only for an XRC target. */
static struct front_qp *create(struct ibv_context *context,
			       struct ibv_qp_init_attr_ex *attr)
{
	struct sim_ctx *ctx = ctx_of(context);
	bool is_target = attr->qp_type == IBV_QPT_XRC_RECV;
	/* The first fields are the plain attributes, in the same order. */
	struct ibv_qp_init_attr plain = {attr->qp_context, attr->send_cq,
					 attr->recv_cq,	   attr->srq,
					 attr->cap,	   attr->qp_type,
					 attr->sq_sig_all};
	struct sim_qp_config config = {.attr = &plain};
	struct front_qp *front = calloc(1, sizeof(*front));
	struct ibv_qp *qp = &front->qp;
	int rc;

	if (!front)
		return fail_ptr(-ENOMEM);
	config.cookie = (uintptr_t)qp;
	if (is_target && (attr->comp_mask & IBV_QP_INIT_ATTR_XRCD)) {
		config.xrcd = ((struct front_xrcd *)attr->xrcd)->handle;
	} else if (attr->pd) {
		config.pd = attr->pd->handle;
		config.send_cq = attr->send_cq ? attr->send_cq->handle : 0;
		config.recv_cq = attr->recv_cq ? attr->recv_cq->handle : 0;
		config.srq = attr->srq ? attr->srq->handle : 0;
	}
	rc = sim_qp_create(ctx, &config, &qp->handle);
	if (rc) {
		free(front);
		return fail_ptr(rc);
	}
	qp->context = context;
	qp->qp_context = attr->qp_context;
	qp->pd = attr->pd;
	qp->send_cq = attr->send_cq;
	qp->recv_cq = attr->recv_cq;
	qp->srq = attr->srq;
	qp->qp_num = sim_qp_mine(ctx->world, qp->handle)->qp_num;
	qp->qp_type = attr->qp_type;
	attr->cap = sim_qp_mine(ctx->world, qp->handle)->cap;
	init_locks(qp);
	return front;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = {
		.qp_context = attr->qp_context,
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.srq = attr->srq,
		.cap = attr->cap,
		.qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct front_qp *front;
	int error = front_tap(pd->context, SIM_CALL_CREATE_QP);

	if (error)
		return fail_ptr(-error);
	front = create(pd->context, &ex);
	if (!front)
		return NULL;
	attr->cap = ex.cap;
	return &front->qp;
}

struct ibv_qp *front_create_qp_ex(struct ibv_context *context,
				  struct ibv_qp_init_attr_ex *attr)
{
	const uint32_t known = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD |
			       IBV_QP_INIT_ATTR_CREATE_FLAGS |
			       IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	struct front_qp *front;
	int rc = -front_tap(context, SIM_CALL_CREATE_QP);

	if (rc)
		return fail_ptr(rc);
	if (attr->comp_mask & ~known)
		return refuse_mask("comp_mask", attr->comp_mask & ~known);
	if ((attr->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) &&
	    (attr->create_flags & ~front_model(context)->qp_create_flags))
		return refuse_mask("create_flags", attr->create_flags);
	if (!(attr->comp_mask & (IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD)))
		return fail_ptr(-EINVAL);
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD))
		attr->pd = NULL;
	front = create(context, attr);
	if (!front)
		return NULL;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		rc = front_batch_init(front, attr->send_ops_flags);
	if (rc) {
		ibv_destroy_qp(&front->qp);
		return fail_ptr(rc);
	}
	return &front->qp;
}

/* Another handle on an XRC target of this process, by number. */
struct ibv_qp *front_open_qp(struct ibv_context *context,
			     struct ibv_qp_open_attr *attr)
{
	const uint32_t need = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
			      IBV_QP_OPEN_ATTR_TYPE;
	struct sim_world *w = ctx_of(context)->world;
	struct sim_qp *inner;
	struct front_qp *front;

	if ((attr->comp_mask & need) != need ||
	    attr->comp_mask >= IBV_QP_OPEN_ATTR_RESERVED ||
	    attr->qp_type != IBV_QPT_XRC_RECV)
		return fail_ptr(-EINVAL);
	inner = sim_qp_by_num(w, attr->qp_num);
	if (!inner || inner->type != IBV_QPT_XRC_RECV ||
	    inner->xrcd != ((struct front_xrcd *)attr->xrcd)->handle)
		return fail_ptr(-EINVAL);
	if (inner->object.proc != w->proc)
		return fail_ptr(-EOPNOTSUPP);
	front = calloc(1, sizeof(*front));
	if (!front)
		return fail_ptr(-ENOMEM);
	atomic_fetch_add(&inner->openers, 1);
	front->is_opened = true;
	front->qp.context = context;
	front->qp.handle = inner->object.handle;
	front->qp.qp_num = attr->qp_num;
	front->qp.qp_type = IBV_QPT_XRC_RECV;
	if (attr->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT)
		front->qp.qp_context = attr->qp_context;
	init_locks(&front->qp);
	return &front->qp;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	struct front_qp *front = (struct front_qp *)qp;

	return front->is_ex ? &front->ex : fail_ptr(-EOPNOTSUPP);
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
	struct front_qp *front = (struct front_qp *)qp;
	struct sim_ctx *ctx = ctx_of(qp->context);
	struct sim_qp *inner;
	int rc = -front_tap(qp->context, SIM_CALL_DESTROY_QP);

	inner = sim_qp_mine(ctx->world, qp->handle);
	if (!rc && inner && atomic_load(&inner->openers)) {
		/* Others have it still. Events were for its maker. */
		atomic_fetch_sub(&inner->openers, 1);
		if (!front->is_opened)
			inner->cookie = 0;
	} else if (!rc) {
		rc = sim_qp_destroy(ctx, qp->handle);
	}
	if (rc)
		return -rc;
	front_wait_acked(&qp->mutex, &qp->cond, &qp->events_completed,
			 &front->async_delivered);
	front_batch_fini(front);
	pthread_cond_destroy(&qp->cond);
	pthread_mutex_destroy(&qp->mutex);
	free(front);
	return 0;
}

/* 3.5: options are set before RTR; what was set is what comes back. */
int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	struct sim_qp *inner =
		sim_qp_mine(ctx_of(qp->context)->world, qp->handle);

	if (!front_model(qp->context)->ece_vendor || !ece->vendor_id)
		return EOPNOTSUPP;
	if (!inner || ece->comp_mask ||
	    ece->vendor_id != front_model(qp->context)->ece_vendor ||
	    atomic_load(&inner->state) > IBV_QPS_INIT)
		return EINVAL;
	((struct front_qp *)qp)->ece_options = ece->options;
	return 0;
}

int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	memset(ece, 0, sizeof(*ece));
	if (!front_model(qp->context)->ece_vendor)
		return EOPNOTSUPP;
	ece->vendor_id = front_model(qp->context)->ece_vendor;
	ece->options = ((struct front_qp *)qp)->ece_options;
	return 0;
}

int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	struct sim_ctx *ctx = ctx_of(qp->context);
	struct sim_qp *inner = sim_qp_mine(ctx->world, qp->handle);

	if (!front_model(qp->context)->has_multicast)
		return EOPNOTSUPP;
	return inner ? -sim_mcast_attach(ctx, inner, gid->raw, lid) : EINVAL;
}

int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	struct sim_ctx *ctx = ctx_of(qp->context);
	struct sim_qp *inner = sim_qp_mine(ctx->world, qp->handle);

	return inner ? -sim_mcast_detach(ctx, inner, gid->raw, lid) : EINVAL;
}
