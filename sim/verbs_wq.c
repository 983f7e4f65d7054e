/* SPDX-License-Identifier: MIT */
/*
 * Receive work queues and the tables that spread packets over them.
 *
 * A work queue is the receive half of a raw packet queue pair, and that is
 * what the core knows of it. Nothing steers packets here, so a receive stays
 * until its queue goes to ERR.
 */
#include "sim/verbs_front.h"

#include <stdlib.h>

struct front_wq {
	struct ibv_wq wq;
	uint32_t tables; /* that hold it */
};

struct front_table {
	struct ibv_rwq_ind_table table;
	size_t count;
	struct front_wq *wqs[];
};

static bool has_wqs(struct ibv_context *context)
{
	return front_host(context)->qp_types >> IBV_QPT_RAW_PACKET & 1;
}

static struct sim_qp *inner_of(struct ibv_wq *wq)
{
	return sim_qp_mine(ctx_of(wq->context)->world, wq->handle);
}

static int post_recv(struct ibv_wq *wq, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad)
{
	struct sim_qp *inner = inner_of(wq);

	return inner ? sim_post_recv(ctx_of(wq->context), inner, wr, bad)
		     : EINVAL;
}

struct ibv_wq *front_create_wq(struct ibv_context *context,
			       struct ibv_wq_init_attr *attr)
{
	struct ibv_qp_init_attr plain = {
		.cap = {.max_recv_wr = attr->max_wr,
			.max_recv_sge = attr->max_sge},
		.qp_type = IBV_QPT_RAW_PACKET,
	};
	struct sim_qp_config config = {.attr = &plain};
	struct front_wq *front;
	int rc;

	/* Flags ask for what happens to packets; none are known here. */
	if (!has_wqs(context) || attr->comp_mask)
		return fail_ptr(-EOPNOTSUPP);
	if (attr->wq_type != IBV_WQT_RQ || !attr->pd || !attr->cq ||
	    !attr->max_wr)
		return fail_ptr(-EINVAL);
	front = calloc(1, sizeof(*front));
	if (!front)
		return fail_ptr(-ENOMEM);
	config.pd = attr->pd->handle;
	config.send_cq = config.recv_cq = attr->cq->handle;
	rc = sim_qp_create(ctx_of(context), &config, &front->wq.handle);
	if (rc) {
		free(front);
		return fail_ptr(rc);
	}
	front->wq.context = context;
	front->wq.pd = attr->pd;
	front->wq.cq = attr->cq;
	front->wq.wq_type = IBV_WQT_RQ;
	front->wq.state = IBV_WQS_RESET;
	front->wq.post_recv = post_recv;
	front->wq.wq_num = inner_of(&front->wq)->qp_num;
	attr->max_wr = inner_of(&front->wq)->cap.max_recv_wr;
	attr->max_sge = inner_of(&front->wq)->cap.max_recv_sge;
	return &front->wq;
}

static int step(struct ibv_wq *wq, struct sim_qp *inner, enum ibv_qp_state to)
{
	struct ibv_qp_attr attr = {.qp_state = to, .port_num = 1};

	return sim_qp_modify(ctx_of(wq->context), inner, &attr,
			     to == IBV_QPS_INIT ? IBV_QP_STATE | IBV_QP_PORT
						: IBV_QP_STATE);
}

int front_modify_wq(struct ibv_wq *wq, struct ibv_wq_attr *attr)
{
	struct sim_qp *inner = inner_of(wq);
	int rc;

	if (!inner || (attr->attr_mask & ~7u))
		return EINVAL;
	if (attr->attr_mask & IBV_WQ_ATTR_FLAGS)
		return EOPNOTSUPP;
	if ((attr->attr_mask & IBV_WQ_ATTR_CURR_STATE) &&
	    attr->curr_wq_state != wq->state)
		return EINVAL;
	if (!(attr->attr_mask & IBV_WQ_ATTR_STATE))
		return 0;
	switch (attr->wq_state) {
	case IBV_WQS_RESET:
		rc = step(wq, inner, IBV_QPS_RESET);
		break;
	case IBV_WQS_RDY:
		rc = wq->state == IBV_WQS_RDY ? 0
					      : step(wq, inner, IBV_QPS_INIT);
		if (!rc && wq->state != IBV_WQS_RDY)
			rc = step(wq, inner, IBV_QPS_RTR);
		break;
	case IBV_WQS_ERR:
		rc = step(wq, inner, IBV_QPS_ERR);
		break;
	default:
		return EINVAL;
	}
	if (!rc)
		wq->state = attr->wq_state;
	return -rc;
}

int front_destroy_wq(struct ibv_wq *wq)
{
	struct front_wq *front = (struct front_wq *)wq;
	int rc;

	if (__atomic_load_n(&front->tables, __ATOMIC_ACQUIRE))
		return EBUSY;
	rc = sim_qp_destroy(ctx_of(wq->context), wq->handle);
	if (!rc)
		free(front);
	return -rc;
}

struct ibv_rwq_ind_table *
front_create_rwq_ind_table(struct ibv_context *context,
			   struct ibv_rwq_ind_table_init_attr *attr)
{
	static uint32_t last_number;
	struct front_table *front;
	size_t count;

	if (!has_wqs(context) || attr->comp_mask)
		return fail_ptr(-EOPNOTSUPP);
	if (attr->log_ind_tbl_size > FRONT_LOG_TABLE_MAX)
		return fail_ptr(-EINVAL);
	count = (size_t)1 << attr->log_ind_tbl_size;
	front = calloc(1, sizeof(*front) + count * sizeof(front->wqs[0]));
	if (!front)
		return fail_ptr(-ENOMEM);
	for (; front->count < count; front->count++) {
		front->wqs[front->count] =
			(struct front_wq *)attr->ind_tbl[front->count];
		__atomic_add_fetch(&front->wqs[front->count]->tables, 1,
				   __ATOMIC_ACQ_REL);
	}
	front->table.context = context;
	front->table.ind_tbl_num =
		(int)__atomic_add_fetch(&last_number, 1, __ATOMIC_RELAXED);
	front->table.ind_tbl_handle = front->table.ind_tbl_num;
	return &front->table;
}

int front_destroy_rwq_ind_table(struct ibv_rwq_ind_table *table)
{
	struct front_table *front = (struct front_table *)table;

	for (size_t i = 0; i < front->count; i++)
		__atomic_sub_fetch(&front->wqs[i]->tables, 1, __ATOMIC_ACQ_REL);
	free(front);
	return 0;
}
