/* SPDX-License-Identifier: MIT */
/* The data path and its events. */
#include "sim/play.h"
#include "sim/verbs_front.h"

#include <sys/socket.h>
#include <sys/types.h>

int front_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		    struct ibv_send_wr **bad)
{
	struct sim_ctx *ctx = ctx_of(qp->context);
	struct sim_qp *inner = sim_qp_mine(ctx->world, qp->handle);
	int error = front_tap(qp->context, SIM_CALL_POST_SEND);

	if (!error && inner)
		return sim_post_send(ctx, inner, wr, bad, false);
	*bad = wr;
	return error ? error : EINVAL;
}

int front_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		    struct ibv_recv_wr **bad)
{
	struct sim_ctx *ctx = ctx_of(qp->context);
	struct sim_qp *inner = sim_qp_mine(ctx->world, qp->handle);
	int error = front_tap(qp->context, SIM_CALL_POST_RECV);

	if (!error && inner)
		return sim_post_recv(ctx, inner, wr, bad);
	*bad = wr;
	return error ? error : EINVAL;
}

int front_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
			struct ibv_recv_wr **bad)
{
	struct sim_ctx *ctx = ctx_of(srq->context);
	struct sim_srq *inner = sim_srq_mine(ctx->world, srq->handle);

	if (inner)
		return sim_post_srq_recv(ctx, inner, wr, bad);
	*bad = wr;
	return EINVAL;
}

int front_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc)
{
	struct sim_ctx *ctx = ctx_of(cq->context);
	struct sim_cq *inner = sim_cq_mine(ctx->world, cq->handle);
	int got;

	if (!inner || count < 0)
		return -EINVAL;
	if (!sim_is_armed(ctx->world))
		return sim_cq_poll(ctx, inner, count, wc);
	/* Empty polls are not events: how many there are is chance. */
	if (!sim_cq_is_empty(ctx->world, inner)) {
		int error = front_tap(cq->context, SIM_CALL_POLL_CQ);

		if (error)
			return -error;
	}
	got = sim_cq_poll(ctx, inner, count, wc);
	if (sim_is_played(ctx->world))
		sim_trace_wcs(ctx->world, wc, got);
	return got;
}

int front_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	struct sim_ctx *ctx = ctx_of(cq->context);
	struct sim_cq *inner = sim_cq_mine(ctx->world, cq->handle);
	int error = front_tap(cq->context, SIM_CALL_REQ_NOTIFY_CQ);

	if (error)
		return error;
	if (!inner)
		return EINVAL;
	sim_cq_arm(ctx, inner, solicited_only != 0);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
		     void **cq_context)
{
	struct sim_ctx *ctx = ctx_of(channel->context);
	struct ibv_cq *found;
	uint64_t cookie;
	int rc = sim_channel_take(ctx->world,
				  ((struct front_channel *)channel)->handle,
				  channel->fd, &cookie);

	if (rc) {
		errno = -rc;
		return -1;
	}
	found = (struct ibv_cq *)(uintptr_t)cookie;
	pthread_mutex_lock(&found->mutex);
	((struct front_cq *)found)->events_delivered++;
	pthread_mutex_unlock(&found->mutex);
	*cq = found;
	*cq_context = found->cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += count;
	pthread_cond_signal(&cq->cond);
	pthread_mutex_unlock(&cq->mutex);
}
