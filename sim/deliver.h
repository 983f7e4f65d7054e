/* SPDX-License-Identifier: MIT */
/*
 * One attempt to move the head of a send queue, shared by the files that know
 * a part of it: deliver.c (requester), respond.c (receives), remote.c (RDMA
 * and atomics), datagram.c (UD), window.c (memory windows).
 *
 * A step is given the send lock. It returns true when the head has changed
 * and the next may be looked at, false when the queue waits or has failed.
 */
#ifndef SIM_DELIVER_H
#define SIM_DELIVER_H

#include "sim/play.h"

enum sim_op_class {
	SIM_OP_SEND,
	SIM_OP_WRITE,
	SIM_OP_READ,
	SIM_OP_ATOMIC,
	SIM_OP_BIND,
	SIM_OP_INVALIDATE,
};

/* What an opcode is, on which queue pairs, and how it completes (2.8). */
struct sim_op {
	bool is_known;
	uint8_t class; /* enum sim_op_class */
	uint8_t wc;    /* enum ibv_wc_opcode of the requester */
	uint8_t recv_wc;
	bool has_imm;
	bool has_inv;
	bool takes_recv;
	uint32_t types; /* bit n: enum ibv_qp_type n */
	uint32_t access;
};

const struct sim_op *sim_op_of(unsigned opcode);

struct delivery {
	struct sim_world *w;
	struct sim_qp *qp;
	struct sim_host *host;
	const struct sim_model *model;
	struct sim_wqe *wqe;
	const struct sim_op *op;
	struct sim_qp *peer;
	bool is_armed;	 /* sim_is_armed, asked once */
	uint64_t now_ns; /* 0 until somebody needs the time */
	uint64_t len;	 /* what goes over the wire; a fault may shorten it */
	int from_count;
	int to_count;
	uint32_t from_proc;
	uint32_t to_proc;
	/* The receive queue that is met: the peer's own, or a shared one. */
	struct sim_ring *ring;
	struct sim_srq *srq;
	uint32_t recv_cq;
	uint32_t recv_pd;
	bool is_stuck;	 /* a stopped process has the peer's queue */
	bool is_overrun; /* the receive's completion found no room */
	/* Sleeps on the receive's completion. It is woken when ours is there,
	 * too: an answer never comes before the acknowledge. */
	struct sim_cq *sleeper;
	/* A responder that went to ERR: its send queue is flushed when we
	 * hold no lock. */
	struct sim_qp *failed;
	struct sim_span from[SIM_SPAN_MAX]; /* last: not cleared */
	struct sim_span to[SIM_SPAN_MAX];
};

/* The head waits no more. An atomic store is dear, and it seldom did. */
static inline void sim_wait_over(struct sim_qp *qp)
{
	if (atomic_load_explicit(&qp->wait_until_ns, memory_order_relaxed))
		atomic_store(&qp->wait_until_ns, 0);
}

static inline void sim_wake_sleeper(struct delivery *d)
{
	if (d->sleeper)
		sim_cq_wake(d->w, d->sleeper);
	d->sleeper = NULL;
}

static inline uint64_t sim_delivery_now(struct delivery *d)
{
	if (!d->now_ns)
		d->now_ns = sim_now_ns();
	return d->now_ns;
}

/* Has a line of the plan claimed this message? */
static inline bool sim_is_struck(const struct delivery *d)
{
	return (d->wqe->tx_mask | d->wqe->rx_mask) != 0;
}

static inline bool sim_is_reliable(const struct sim_qp *qp)
{
	return qp->type == IBV_QPT_RC || qp->type == IBV_QPT_XRC_SEND;
}

/* deliver.c: how the head of the send queue ends. */
void sim_end_head(struct delivery *d, enum ibv_wc_status status);
void sim_fail_sender(struct delivery *d, enum ibv_wc_status status);
bool sim_no_answer(struct delivery *d);
/* A copy failed, and not for the responder's memory. */
bool sim_copy_failed(struct delivery *d, enum sim_copy_result why);
/* No receive is posted. Its queue's locks are held, and released. */
bool sim_no_receive(struct delivery *d);
void sim_await_ack(struct delivery *d);
/* With the peer's receive lock held: is it up, and connected to us? */
bool sim_takes_messages(struct delivery *d);
bool sim_reaches(const struct sim_host *from, const struct sim_av *av,
		 const struct sim_host *to);

/* bytes.c: bytes, and the lines of a plan that strike them. */
void sim_cut_spans(struct sim_span *spans, int *count, uint64_t len);
enum sim_copy_result sim_copy_data(struct delivery *d);
uint64_t sim_bus_address(const struct sim_mr *mr, uint64_t addr);
void sim_strike_length(struct delivery *d);
void sim_strike_bytes(struct delivery *d);
/* A line that loses the message; *goes_on is then what the step returns. The
 * peer's receive lock is held, and released when it is lost. */
bool sim_strike_drop(struct delivery *d, bool *goes_on);
bool sim_wants_duplicate(struct delivery *d);
/* Of armed worlds: it leaves; it arrives. */
void sim_tap_departure(struct delivery *d);
void sim_tap_arrival(struct delivery *d);

/* respond.c */
bool sim_open_recv(struct delivery *d);
void sim_close_recv(struct delivery *d);
struct sim_wqe *sim_recv_head(struct delivery *d);
void sim_push_recv_cqe(struct delivery *d, struct sim_wqe *recv,
		       enum ibv_wc_status status, uint32_t wc_flags);
/* The responder goes to ERR, with this event (or 0). Receive lock held. */
void sim_fail_responder(struct delivery *d, int event);
bool sim_meet_receive(struct delivery *d);
/* 5.3: the completion was lost, so a reliable message is not acknowledged. The
 * receive lock is held, and released when true. */
bool sim_lost_in_overrun(struct delivery *d);

/* remote.c, window.c, datagram.c: the steps of the other classes. */
bool sim_meet_remote(struct delivery *d);
bool sim_step_window(struct delivery *d);
bool sim_step_datagram(struct delivery *d);
/* Take an rkey out of use on behalf of a queue pair; false: not its to take. */
bool sim_invalidate(struct sim_world *w, const struct sim_qp *qp,
		    uint32_t rkey);

#endif
