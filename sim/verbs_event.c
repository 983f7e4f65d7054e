/* SPDX-License-Identifier: MIT */
/* Asynchronous events: read one, acknowledge one. */
#include "sim/play.h"
#include "sim/verbs_front.h"

#include <sys/socket.h>

enum element { OF_CQ, OF_QP, OF_SRQ, OF_PORT };

static enum element element_of(uint32_t type)
{
	switch (type) {
	case IBV_EVENT_CQ_ERR:
		return OF_CQ;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		return OF_QP;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		return OF_SRQ;
	default:
		return OF_PORT;
	}
}

/* An event of an object that was destroyed meanwhile is not delivered. */
static bool is_alive(struct sim_world *w, enum element of, uint64_t cookie)
{
#define LOOK(table, kind)                                      \
	for (uint32_t i = 0; i < sim_top(w, kind); i++)        \
		if (w->seg->table[i].object.proc == w->proc && \
		    w->seg->table[i].object.handle &&          \
		    w->seg->table[i].cookie == cookie)         \
			return true;
	if (of == OF_CQ)
		LOOK(cq, SIM_CQ)
	if (of == OF_QP)
		LOOK(qp, SIM_QP)
	if (of == OF_SRQ)
		LOOK(srq, SIM_SRQ)
#undef LOOK
	return of == OF_PORT;
}

/* The counters of an element: mutex, condition, acknowledged, delivered. */
struct account {
	pthread_mutex_t *mutex;
	pthread_cond_t *cond;
	uint32_t *acked;
	uint32_t *delivered;
};

static bool account_of(const struct ibv_async_event *event,
		       struct account *account)
{
	struct front_cq *cq = (struct front_cq *)event->element.cq;
	struct front_qp *qp = (struct front_qp *)event->element.qp;
	struct front_srq *srq = (struct front_srq *)event->element.srq;

	switch (element_of(event->event_type)) {
	case OF_CQ:
		*account = (struct account){&cq->cq.mutex, &cq->cq.cond,
					    &cq->cq.async_events_completed,
					    &cq->async_delivered};
		return true;
	case OF_QP:
		*account = (struct account){&qp->qp.mutex, &qp->qp.cond,
					    &qp->qp.events_completed,
					    &qp->async_delivered};
		return true;
	case OF_SRQ:
		*account = (struct account){&srq->srq.mutex, &srq->srq.cond,
					    &srq->srq.events_completed,
					    &srq->async_delivered};
		return true;
	case OF_PORT:
		return false;
	}
	return false;
}

int ibv_get_async_event(struct ibv_context *context,
			struct ibv_async_event *event)
{
	struct sim_world *w = ctx_of(context)->world;
	struct account account;
	struct sim_event record;
	ssize_t got;

	do {
		if (sim_is_played(w) &&
		    !sim_play_await_bytes("an asynchronous event",
					  context->async_fd)) {
			errno = EIO;
			return -1;
		}
		got = recv(context->async_fd, &record, sizeof(record), 0);
		if (got < 0)
			return -1;
	} while (got != sizeof(record) ||
		 !is_alive(w, element_of(record.type), record.cookie));
	event->event_type = (enum ibv_event_type)record.type;
	if (element_of(record.type) == OF_PORT)
		event->element.port_num = (int)record.cookie;
	else
		event->element.qp = (void *)(uintptr_t)record.cookie;
	if (account_of(event, &account)) {
		pthread_mutex_lock(account.mutex);
		(*account.delivered)++;
		pthread_mutex_unlock(account.mutex);
	}
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct account account;

	if (!account_of(event, &account))
		return;
	pthread_mutex_lock(account.mutex);
	(*account.acked)++;
	pthread_cond_signal(account.cond);
	pthread_mutex_unlock(account.mutex);
}
