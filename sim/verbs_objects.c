/* SPDX-License-Identifier: MIT */
/* Protection domains, memory regions, channels, completion queues. */
#define _GNU_SOURCE
#include "sim/verbs_front.h"

#include <stdlib.h>
#include <unistd.h>

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct front_pd *front;
	int rc = -front_tap(context, SIM_CALL_ALLOC_PD);

	if (rc)
		return fail_ptr(rc);
	front = calloc(1, sizeof(*front));
	if (!front)
		return fail_ptr(-ENOMEM);
	rc = sim_pd_alloc(ctx_of(context), &front->pd.handle);
	if (rc) {
		free(front);
		return fail_ptr(rc);
	}
	front->pd.context = context;
	return &front->pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	struct front_pd *front = (struct front_pd *)pd;
	int rc = -front_tap(pd->context, SIM_CALL_DEALLOC_PD);

	if (!rc && __atomic_load_n(&front->children, __ATOMIC_ACQUIRE))
		rc = -EBUSY;
	if (!rc && front->parent)
		__atomic_sub_fetch(&front->parent->children, 1,
				   __ATOMIC_ACQ_REL);
	else if (!rc)
		rc = sim_pd_dealloc(ctx_of(pd->context), pd->handle);
	if (!rc)
		free(front);
	return -rc;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length,
				uint64_t iova, unsigned int access)
{
	struct sim_mr_request request = {
		.addr = (uintptr_t)addr,
		.length = length,
		.iova = iova,
		.pd = pd->handle,
		.access = access,
	};
	struct ibv_mr *mr;
	int rc = -front_tap(pd->context, SIM_CALL_REG_MR);

	if (rc)
		return fail_ptr(rc);
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return fail_ptr(-ENOMEM);
	rc = sim_mr_reg(ctx_of(pd->context), &request, &mr->handle, &mr->lkey);
	if (rc) {
		free(mr);
		return fail_ptr(rc);
	}
	mr->context = pd->context;
	mr->pd = pd;
	mr->addr = addr;
	mr->length = length;
	mr->rkey = mr->lkey;
	return mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
			  int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr,
				(unsigned)access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length,
			       uint64_t iova, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned)access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	int rc = -front_tap(mr->context, SIM_CALL_DEREG_MR);

	if (!rc)
		rc = sim_mr_dereg(ctx_of(mr->context), mr->handle);
	if (!rc)
		free(mr);
	return -rc;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct front_channel *front;
	int rc = -front_tap(context, SIM_CALL_CREATE_COMP_CHANNEL);

	if (rc)
		return fail_ptr(rc);
	front = calloc(1, sizeof(*front));
	if (!front)
		return fail_ptr(-ENOMEM);
	rc = sim_channel_create(ctx_of(context), &front->handle,
				&front->channel.fd);
	if (rc) {
		free(front);
		return fail_ptr(rc);
	}
	front->channel.context = context;
	return &front->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct front_channel *front = (struct front_channel *)channel;
	struct ibv_context *context = channel->context;
	int rc;

	pthread_mutex_lock(&context->mutex);
	rc = channel->refcnt
		     ? -EBUSY
		     : sim_channel_destroy(ctx_of(context), front->handle);
	pthread_mutex_unlock(&context->mutex);
	if (rc)
		return -rc;
	close(channel->fd);
	free(front);
	return 0;
}

static void count_channel(struct ibv_comp_channel *channel, int change)
{
	if (!channel)
		return;
	pthread_mutex_lock(&channel->context->mutex);
	channel->refcnt += change;
	pthread_mutex_unlock(&channel->context->mutex);
}

struct front_cq *front_create_cq(struct ibv_context *context, int cqe,
				 void *cq_context,
				 struct ibv_comp_channel *channel,
				 int comp_vector)
{
	struct front_cq *front;
	struct ibv_cq *cq;
	uint32_t granted;
	int rc = -front_tap(context, SIM_CALL_CREATE_CQ);

	if (!rc && (cqe < 1 || comp_vector < 0 ||
		    comp_vector >= context->num_comp_vectors))
		rc = -EINVAL;
	if (rc)
		return fail_ptr(rc);
	front = calloc(1, sizeof(*front));
	if (!front)
		return fail_ptr(-ENOMEM);
	cq = &front->cq;
	rc = sim_cq_create(ctx_of(context), (uint32_t)cqe,
			   channel ? ((struct front_channel *)channel)->handle
				   : 0,
			   (uintptr_t)cq, &cq->handle, &granted);
	if (rc) {
		free(front);
		return fail_ptr(rc);
	}
	cq->context = context;
	cq->channel = channel;
	cq->cq_context = cq_context;
	cq->cqe = (int)granted;
	pthread_mutex_init(&cq->mutex, NULL);
	pthread_cond_init(&cq->cond, NULL);
	count_channel(channel, 1);
	return front;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe,
			     void *cq_context, struct ibv_comp_channel *channel,
			     int comp_vector)
{
	struct front_cq *front =
		front_create_cq(context, cqe, cq_context, channel, comp_vector);

	return front ? &front->cq : NULL;
}

int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	struct sim_ctx *ctx = ctx_of(cq->context);
	struct sim_cq *inner = sim_cq_mine(ctx->world, cq->handle);
	uint32_t granted;
	int rc;

	if (!inner || cqe < 1)
		return EINVAL;
	rc = sim_cq_resize(ctx, inner, (uint32_t)cqe, &granted);
	if (!rc)
		cq->cqe = (int)granted;
	return -rc;
}

void front_wait_acked(pthread_mutex_t *mutex, pthread_cond_t *cond,
		      const uint32_t *acked, const uint32_t *delivered)
{
	pthread_mutex_lock(mutex);
	while (*acked != *delivered)
		pthread_cond_wait(cond, mutex);
	pthread_mutex_unlock(mutex);
}

/* Waits for acknowledgement of all delivered events, as the library does. */
int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct front_cq *front = (struct front_cq *)cq;
	int rc = -front_tap(cq->context, SIM_CALL_DESTROY_CQ);

	if (!rc)
		rc = sim_cq_destroy(ctx_of(cq->context), cq->handle);
	if (rc)
		return -rc;
	front_wait_acked(&cq->mutex, &cq->cond, &cq->comp_events_completed,
			 &front->events_delivered);
	front_wait_acked(&cq->mutex, &cq->cond, &cq->async_events_completed,
			 &front->async_delivered);
	count_channel(cq->channel, -1);
	pthread_cond_destroy(&cq->cond);
	pthread_mutex_destroy(&cq->mutex);
	free(front);
	return 0;
}
