/* SPDX-License-Identifier: MIT */
/*
 * Delivery, the requester's half: the head of a send queue, how it waits, how
 * it ends, and who carries it on.
 *
 * Whoever makes progress possible does the work, in its own context: the
 * poster, the peer that posts a receive, or a poll that finds a timer due.
 * What cannot proceed stays at the head. The outcomes are the tables 5.3 and
 * 5.4 of spec/device-models.md, and R15 … R21 for Thunderbolt.
 */
#include "sim/deliver.h"

#include <string.h>

#include "sim/diag.h"

#define RC  (1u << IBV_QPT_RC)
#define UC  (1u << IBV_QPT_UC)
#define UD  (1u << IBV_QPT_UD)
#define RAW (1u << IBV_QPT_RAW_PACKET)
#define XRC (1u << IBV_QPT_XRC_SEND)

static const struct sim_op ops[] = {
	[IBV_WR_RDMA_WRITE] = {true, SIM_OP_WRITE, IBV_WC_RDMA_WRITE,
			       .types = RC | UC | XRC,
			       .access = IBV_ACCESS_REMOTE_WRITE},
	[IBV_WR_RDMA_WRITE_WITH_IMM] = {true, SIM_OP_WRITE, IBV_WC_RDMA_WRITE,
					.recv_wc = IBV_WC_RECV_RDMA_WITH_IMM,
					.has_imm = true, .takes_recv = true,
					.types = RC | UC | XRC,
					.access = IBV_ACCESS_REMOTE_WRITE},
	[IBV_WR_SEND] = {true, SIM_OP_SEND, IBV_WC_SEND, .recv_wc = IBV_WC_RECV,
			 .takes_recv = true, .types = RC | UC | UD | RAW | XRC},
	[IBV_WR_SEND_WITH_IMM] = {true, SIM_OP_SEND, IBV_WC_SEND,
				  .recv_wc = IBV_WC_RECV, .has_imm = true,
				  .takes_recv = true,
				  .types = RC | UC | UD | XRC},
	[IBV_WR_RDMA_READ] = {true, SIM_OP_READ, IBV_WC_RDMA_READ,
			      .types = RC | XRC,
			      .access = IBV_ACCESS_REMOTE_READ},
	[IBV_WR_ATOMIC_CMP_AND_SWP] = {true, SIM_OP_ATOMIC, IBV_WC_COMP_SWAP,
				       .types = RC | XRC,
				       .access = IBV_ACCESS_REMOTE_ATOMIC},
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = {true, SIM_OP_ATOMIC, IBV_WC_FETCH_ADD,
					 .types = RC | XRC,
					 .access = IBV_ACCESS_REMOTE_ATOMIC},
	/* Where it is legal is the model's to say. */
	[IBV_WR_LOCAL_INV] = {true, SIM_OP_INVALIDATE, IBV_WC_LOCAL_INV},
	[IBV_WR_BIND_MW] = {true, SIM_OP_BIND, IBV_WC_BIND_MW,
			    .types = RC | UC | XRC},
	[IBV_WR_SEND_WITH_INV] = {true, SIM_OP_SEND, IBV_WC_SEND,
				  .recv_wc = IBV_WC_RECV, .has_inv = true,
				  .takes_recv = true, .types = RC | XRC},
};

const struct sim_op *sim_op_of(unsigned opcode)
{
	if (opcode >= sizeof(ops) / sizeof(*ops) || !ops[opcode].is_known)
		return NULL;
	return &ops[opcode];
}

bool sim_op_is_sink(unsigned opcode)
{
	const struct sim_op *op = sim_op_of(opcode);

	return op && (op->class == SIM_OP_READ || op->class == SIM_OP_ATOMIC);
}

bool sim_is_opcode(unsigned opcode)
{
	return sim_op_of(opcode) != NULL;
}

/* We look ourselves when we poll: see kick_later. */
static void note_starved(struct delivery *d)
{
	struct sim_cq *cq = sim_cq_get(d->w, d->qp->send_cq);

	if (cq && d->qp->object.proc == d->w->proc && !sim_is_armed(d->w))
		atomic_store(&cq->starved, atomic_load(&d->qp->object.handle));
}

/* --- waiting ------------------------------------------------------------ */

static void set_deadline(struct sim_cq *cq, uint64_t due)
{
	uint64_t have = atomic_load(&cq->deadline_ns);

	while (due < have &&
	       !atomic_compare_exchange_weak(&cq->deadline_ns, &have, due))
		;
}

/* Stay at the head until `due`; whoever polls then looks again. */
static void wait_until(struct delivery *d, uint64_t due)
{
	struct sim_cq *cq = sim_cq_get(d->w, d->qp->send_cq);

	d->qp->wait_until_ns = due;
	if (!cq)
		return;
	set_deadline(cq, due);
	/* A late world's program need not look: a thread does. */
	if (!d->w->seg->late_ns && (!cq->channel || !atomic_load(&cq->armed)))
		return;
	/* The program may be asleep. Ours: a thread keeps its timers. Another
	 * process's: an event on an empty queue makes it look and arm again. */
	if (d->qp->object.proc == d->w->proc)
		sim_timer_start(d->w);
	else
		sim_cq_wake(d->w, cq);
}

#define STUCK_NS 20000000 /* each look at a stopped process costs some ms */

/* Whoever has the lock may go on at any time, and does not know of us. */
static void await_stopped(struct delivery *d)
{
	d->wqe->flags |= SIM_WQE_STUCK;
	wait_until(d, sim_now_ns() + STUCK_NS);
}

/* --- ending the head of the send queue ---------------------------------- */

/* Into the queue, which is open, and closed. */
static void push_send_cqe(struct delivery *d, struct sim_cq *cq, uint32_t index,
			  enum ibv_wc_status status)
{
	struct sim_wqe *wqe = d->wqe;
	struct sim_cqe cqe = {
		.wr_id = wqe->wr_id,
		.qp = d->qp->object.handle,
		.wqe_index = index,
		.qp_num = d->qp->qp_num,
		.byte_len = wqe->len,
		.status = (uint8_t)status,
		.opcode = d->op && !(status && d->model->errors_say_send)
				  ? d->op->wc
				  : IBV_WC_SEND,
		.vendor_err = sim_vendor_err(d->model, (uint8_t)status),
	};

	sim_cq_append(d->w, cq, &cqe);
	cq = sim_cq_close(cq, &cqe);
	if (cq)
		sim_cq_wake(d->w, cq);
}

/* For its completion. False: later, as a stopped process has the queue. An
 * error is no matter for later: what follows it is flushed. */
static bool open_send_cq(struct delivery *d, enum ibv_wc_status status,
			 struct sim_cq **cq)
{
	if (!status)
		return sim_cq_open_unless_stopped(d->w, d->qp->send_cq, cq);
	*cq = sim_cq_open(d->w, d->qp->send_cq);
	return true;
}

void sim_end_head(struct delivery *d, enum ibv_wc_status status)
{
	bool is_told = (d->wqe->flags & SIM_WQE_SIGNALED) || status;
	bool is_due = is_told && !(d->wqe->flags & SIM_WQE_COMPLETED);
	uint32_t index = d->qp->sq.head;
	struct sim_cq *cq = NULL;

	if (is_due && !open_send_cq(d, status, &cq)) {
		d->wqe->flags |= SIM_WQE_OWED;
		await_stopped(d);
		return;
	}

	/* The head first: dying in between loses one completion, and never
	 * reports a request twice. */
	sim_wait_over(d->qp);
	atomic_store_explicit(&d->qp->sq.head, index + 1, memory_order_release);
	if (d->model->reclaims_when_done)
		atomic_store(&d->qp->sq.done, index + 1);
	if (cq)
		push_send_cqe(d, cq, index, status);
}

/* The requester's error: the request gets its status, all others flush. The
 * caller holds the send lock only. */
void sim_fail_sender(struct delivery *d, enum ibv_wc_status status)
{
	struct sim_qp *qp = d->qp;

	atomic_store(&qp->state, IBV_QPS_ERR);
	sim_end_head(d, status);
	sim_sq_flush(d->w, qp);
	if (sim_take_unless_stopped(d->w, &qp->rq_lock)) {
		sim_rq_flush(d->w, qp);
		sim_drop(&qp->rq_lock);
	}
	/* 5.2, rule 6: it holds no request of the shared queue. */
	if (qp->srq)
		sim_qp_raise(d->w, qp, IBV_EVENT_QP_LAST_WQE_REACHED);
}

/* The RNR timer codes of 5.9, in units of 10 µs. */
static uint64_t rnr_ns(uint8_t code)
{
	static const uint32_t units[32] = {65536, 1,	2,     3,     4,
					   6,	  8,	12,    16,    24,
					   32,	  48,	64,    96,    128,
					   192,	  256,	384,   512,   768,
					   1024,  1536, 2048,  3072,  4096,
					   6144,  8192, 12288, 16384, 24576,
					   32768, 49152};

	return (uint64_t)units[code & 31] * 10000;
}

/* The acknowledge timer ran out: send again, or give up. True: given up. */
static bool retries_are_spent(struct delivery *d)
{
	bool is_forever =
		d->model->retry_7_is_forever && d->qp->attr.retry_cnt == 7;

	if (!is_forever && d->wqe->attempts >= d->qp->attr.retry_cnt) {
		sim_fail_sender(d, IBV_WC_RETRY_EXC_ERR);
		return true;
	}
	d->wqe->attempts++;
	d->qp->wait_until_ns = 0;
	return false;
}

/* The timers knob: how much sooner than the wire's this host's end. */
static uint64_t scaled(const struct delivery *d, uint64_t ns)
{
	return d->host->timer_speed ? ns / d->host->timer_speed : ns;
}

/* RC, no acknowledge: wait, and count when the timer ran out. */
void sim_await_ack(struct delivery *d)
{
	const struct ibv_qp_attr *attr = &d->qp->attr;
	uint64_t timeout = attr->timeout ? 4096ull << attr->timeout : 0;

	if (d->qp->wait_until_ns &&
	    sim_delivery_now(d) >= d->qp->wait_until_ns && retries_are_spent(d))
		return;
	if (timeout && !d->qp->wait_until_ns)
		wait_until(d, sim_delivery_now(d) + scaled(d, timeout));
}

/* RC, receiver not ready. rnr_retry 7 never gives up, but still looks. */
static void await_receiver(struct delivery *d)
{
	const struct ibv_qp_attr *attr = &d->qp->attr;

	if (d->qp->wait_until_ns &&
	    sim_delivery_now(d) >= d->qp->wait_until_ns) {
		if (attr->rnr_retry < 7 &&
		    d->wqe->rnr_attempts >= attr->rnr_retry) {
			sim_fail_sender(d, IBV_WC_RNR_RETRY_EXC_ERR);
			return;
		}
		if (d->wqe->rnr_attempts < 7)
			d->wqe->rnr_attempts++;
		d->qp->wait_until_ns = 0;
	}
	if (!d->qp->wait_until_ns)
		wait_until(d,
			   sim_delivery_now(d) +
				   scaled(d,
					  rnr_ns(d->peer->attr.min_rnr_timer)));
}

/* Nobody answers. True: the head is finished and the next may go. */
bool sim_no_answer(struct delivery *d)
{
	switch (d->model->no_recv(d->qp)) {
	case SIM_NO_RECV_HOLD:
		return false;
	case SIM_NO_RECV_DROP:
		sim_end_head(d, IBV_WC_SUCCESS);
		return true;
	case SIM_NO_RECV_RNR:
		sim_await_ack(d);
		return false;
	}
	return false;
}

bool sim_copy_failed(struct delivery *d, enum sim_copy_result why)
{
	if (why == SIM_COPY_GONE)
		return sim_no_answer(d);
	if (why == SIM_COPY_STUCK) {
		await_stopped(d);
		return false;
	}
	sim_fail_sender(d, why == SIM_COPY_REFUSED ? IBV_WC_FATAL_ERR
						   : IBV_WC_LOC_PROT_ERR);
	return false;
}

bool sim_no_receive(struct delivery *d)
{
	enum sim_no_recv what = d->model->no_recv(d->qp);
	bool is_there = false;

	if (d->srq && what != SIM_NO_RECV_DROP)
		atomic_store(&d->srq->has_waiters, 1);
	/* Who posts next sees that we wait. */
	if (!d->srq && what != SIM_NO_RECV_DROP) {
		if (!sim_take_unless_stopped(d->w, &d->peer->post_lock)) {
			sim_drop(&d->peer->rq_lock);
			return sim_copy_failed(d, SIM_COPY_STUCK);
		}
		atomic_store(&d->peer->has_waiter, 1);
		is_there = sim_recv_head(d) != NULL;
		sim_drop(&d->peer->post_lock);
		note_starved(d);
	}
	sim_close_recv(d);
	sim_drop(&d->peer->rq_lock);
	if (is_there)
		return true;
	if (what != SIM_NO_RECV_RNR)
		return sim_no_answer(d);
	await_receiver(d);
	return false;
}

/* --- finding the peer --------------------------------------------------- */

bool sim_reaches(const struct sim_host *from, const struct sim_av *av,
		 const struct sim_host *to)
{
	int port = av->port ? av->port - 1 : from->active_port - 1;

	if (port < 0 || port >= SIM_PORT_MAX || !to->active_port ||
	    from->port[port].state != IBV_PORT_ACTIVE)
		return false;
	if (!av->is_global)
		return av->dlid == to->port[to->active_port - 1].lid;
	for (int i = 0; i < to->gid_count; i++)
		if (memcmp(to->gid[i], av->dgid, 16) == 0)
			return true;
	return false;
}

static uint32_t peer_type(uint32_t type)
{
	return type == IBV_QPT_XRC_SEND ? (uint32_t)IBV_QPT_XRC_RECV : type;
}

/* The queue pair this one is connected to, if there is a path to it. */
static struct sim_qp *find_peer(struct delivery *d)
{
	struct sim_qp *qp = d->qp;
	struct sim_qp *peer = sim_qp_by_num(d->w, qp->attr.dest_qp_num);
	const struct ibv_ah_attr *ah = &qp->attr.ah_attr;
	struct sim_av av = {
		.dlid = ah->dlid,
		.is_global = ah->is_global,
		.port = ah->port_num,
	};

	if (!peer || peer->type != peer_type(qp->type))
		return NULL;
	if (qp->path != SIM_PATH_UNKNOWN)
		return qp->path == SIM_PATH_IS ? peer : NULL;
	qp->path = SIM_PATH_IS_NOT;
	if (d->model->is_point_to_point && peer->object.host == qp->object.host)
		return NULL;
	memcpy(av.dgid, ah->grh.dgid.raw, 16);
	if (!sim_reaches(d->host, &av, sim_host_of(d->w, peer->object.host)))
		return NULL;
	qp->path = SIM_PATH_IS;
	return peer;
}

bool sim_takes_messages(struct delivery *d)
{
	struct sim_qp *peer = d->peer;
	uint32_t state = atomic_load(&peer->state);

	/* The slot may have a new tenant since it was looked up. */
	if (!atomic_load(&peer->object.handle) || state < IBV_QPS_RTR ||
	    state > IBV_QPS_SQE || peer->qp_num != d->qp->attr.dest_qp_num ||
	    peer->attr.dest_qp_num != d->qp->qp_num)
		return false;
	if (sim_is_reliable(d->qp) && sim_cq_is_dead(d->w, peer->recv_cq))
		return false;
	if (d->model->psn_ok && !d->model->psn_ok(d->host, d->qp, peer))
		return false;
	/* 5.8: the first message tells a responder that it is connected. */
	if (state == IBV_QPS_RTR && !atomic_load(&peer->is_met) &&
	    !atomic_exchange(&peer->is_met, 1))
		sim_qp_raise(d->w, peer, IBV_EVENT_COMM_EST);
	return true;
}

/* --- one step ----------------------------------------------------------- */

static void tap_head(struct delivery *d)
{
	struct sim_wqe *wqe = d->wqe;
	struct sim_cq *cq;

	if (wqe->flags & SIM_WQE_TAPPED)
		return;
	wqe->flags |= SIM_WQE_TAPPED;
	if (d->is_armed)
		sim_tap_departure(d);
	/* R21, knob: completed while it may still wait for credit. */
	if (d->model->completes_at_post &&
	    d->model->completes_at_post(d->host) &&
	    (wqe->flags & SIM_WQE_SIGNALED)) {
		cq = sim_cq_open(d->w, d->qp->send_cq);
		if (cq)
			push_send_cqe(d, cq, d->qp->sq.head, IBV_WC_SUCCESS);
		wqe->flags |= SIM_WQE_COMPLETED;
	}
}

/* The local end of the bytes: read for a send or a write, filled otherwise. */
static bool find_local(struct delivery *d)
{
	bool is_sink = sim_op_is_sink(d->wqe->opcode);
	struct sim_span *spans = is_sink ? d->to : d->from;
	int count = sim_spans_of(d->w, d->qp->pd, d->wqe,
				 is_sink ? IBV_ACCESS_LOCAL_WRITE : 0, spans);

	*(is_sink ? &d->to_count : &d->from_count) = count;
	d->from_proc = d->to_proc = d->qp->object.proc;
	/* A read with a bad sink is still asked for: the remote's verdict on
	 * its key comes first (5.3). */
	if (count >= 0 || d->op->class == SIM_OP_READ)
		return true;
	sim_diag(d->model->name, "5.3, 5.6: local key, range or domain",
		 "request with wr_id 0x%llx on qp 0x%x fails: its lkey is not "
		 "of a region that spans the sge and allows this",
		 (unsigned long long)d->wqe->wr_id, d->qp->qp_num);
	return false;
}

/* 2.10: a path MTU over what either Ethernet port carries is accepted, and
 * then packets of that size are lost on the way. */
static bool is_over_wire_mtu(const struct delivery *d)
{
	const struct ibv_port_attr *here = &d->host->port_attr;
	const struct ibv_port_attr *there =
		&sim_host_of(d->w, d->peer->object.host)->port_attr;
	enum ibv_mtu wire = here->active_mtu < there->active_mtu
				    ? here->active_mtu
				    : there->active_mtu;

	if (here->link_layer != IBV_LINK_LAYER_ETHERNET ||
	    d->qp->attr.path_mtu <= wire || d->len <= 128u << wire)
		return false;
	sim_diag(d->model->name, "2.10: path_mtu over both ports' active_mtu",
		 "messages over %u bytes on qp 0x%x are lost on the way",
		 128u << wire, d->qp->qp_num);
	return true;
}

static bool connected_step(struct delivery *d)
{
	if (d->len > d->host->port_attr.max_msg_sz &&
	    !d->model->takes_any_length) {
		sim_fail_sender(d, IBV_WC_LOC_LEN_ERR);
		return false;
	}
	if (!find_local(d)) {
		sim_fail_sender(d, IBV_WC_LOC_PROT_ERR);
		return false;
	}
	d->peer = find_peer(d);
	if (!d->peer || is_over_wire_mtu(d))
		return sim_no_answer(d);
	return d->op->class == SIM_OP_SEND ? sim_meet_receive(d)
					   : sim_meet_remote(d);
}

/* On which queue pairs the head's opcode is legal (2.8). */
static uint32_t types_of(const struct delivery *d)
{
	return d->op->class == SIM_OP_INVALIDATE ? d->model->local_inv_types
						 : d->op->types;
}

/* The late personality: not before it has been the head for so long. */
static bool is_held(struct delivery *d)
{
	struct sim_wqe *wqe = d->wqe;

	if (wqe->flags & SIM_WQE_DUE)
		return false;
	if (!(wqe->flags & SIM_WQE_HELD)) {
		wqe->flags |= SIM_WQE_HELD;
		d->now_ns = sim_now_ns();
		wait_until(d, d->now_ns + d->w->seg->late_ns);
		return true;
	}
	if (sim_now_ns() < d->qp->wait_until_ns)
		return true;
	wqe->flags |= SIM_WQE_DUE;
	sim_wait_over(d->qp);
	return false;
}

/* Try the head once. True: look at the head again. */
static bool step(struct delivery *d)
{
	struct sim_qp *qp = d->qp;
	uint32_t head = qp->sq.head;

	d->is_overrun = d->is_stuck = false;
	d->wqe = sim_wqe_at(d->w, &qp->sq, head);
	d->op = sim_op_of(d->wqe->opcode);
	d->len = d->wqe->len;
	if (d->wqe->flags & SIM_WQE_STUCK) {
		if (sim_now_ns() < qp->wait_until_ns)
			return false;
		d->wqe->flags &= (uint16_t)~SIM_WQE_STUCK;
		sim_wait_over(qp);
	}
	if (d->wqe->flags & SIM_WQE_OWED) {
		sim_end_head(d, IBV_WC_SUCCESS);
		return qp->sq.head != head;
	}
	if (d->is_armed && d->w->seg->late_ns && is_held(d))
		return false;
	tap_head(d);
	/* R24, knob other_opcodes=ignore: it completes and does nothing. */
	if (d->model->ignores_opcode &&
	    d->model->ignores_opcode(d->host, d->wqe->opcode)) {
		sim_end_head(d, IBV_WC_SUCCESS);
		return true;
	}
	if (!(types_of(d) >> qp->type & 1)) {
		sim_fail_sender(d, IBV_WC_LOC_QP_OP_ERR);
		return false;
	}
	if (d->wqe->flags & SIM_WQE_LOST) {
		if (sim_delivery_now(d) < qp->wait_until_ns)
			return false;
		d->wqe->flags &= (uint16_t)~SIM_WQE_LOST;
		if (retries_are_spent(d))
			return false;
	}
	if (d->op->class == SIM_OP_BIND || d->op->class == SIM_OP_INVALIDATE)
		return sim_step_window(d);
	if (qp->type == IBV_QPT_UD || qp->type == IBV_QPT_RAW_PACKET)
		return sim_step_datagram(d);
	return connected_step(d);
}

static bool step_and_wake(struct delivery *d)
{
	bool goes_on = step(d);

	sim_wake_sleeper(d);
	return goes_on;
}

static bool has_work(const struct sim_qp *qp)
{
	return atomic_load_explicit(&qp->sq.head, memory_order_relaxed) !=
	       atomic_load_explicit(&qp->sq.tail, memory_order_acquire);
}

bool sim_is_started(struct sim_world *w, const struct sim_qp *qp)
{
	return has_work(qp) &&
	       (sim_wqe_at(w, &qp->sq, qp->sq.head)->flags & SIM_WQE_TAPPED);
}

struct sim_qp *sim_send_run(struct sim_world *w, struct sim_qp *qp)
{
	struct delivery d; /* the spans are large, and filled when needed */
	bool goes_on = true;

	if (!has_work(qp))
		return NULL;
	memset(&d, 0, offsetof(struct delivery, from));
	d.w = w;
	d.qp = qp;
	d.host = sim_host_of(w, qp->object.host);
	d.model = sim_model_of(d.host);
	d.is_armed = sim_is_armed(w);
	while (goes_on && has_work(qp)) {
		switch (atomic_load(&qp->state)) {
		case IBV_QPS_RTS:
			goes_on = step_and_wake(&d);
			break;
		case IBV_QPS_ERR:
		case IBV_QPS_SQE:
			sim_sq_flush(w, qp);
			break;
		case IBV_QPS_SQD: /* finishes what it has started (5.1) */
			goes_on = sim_is_started(w, qp) && step_and_wake(&d);
			break;
		default:
			goes_on = false;
			break;
		}
	}
	if (atomic_load(&qp->owes_drained) &&
	    atomic_load(&qp->state) == IBV_QPS_SQD && !sim_is_started(w, qp) &&
	    atomic_exchange(&qp->owes_drained, 0))
		sim_qp_raise(w, qp, IBV_EVENT_SQ_DRAINED);
	return d.failed;
}

void sim_send_progress(struct sim_world *w, struct sim_qp *qp)
{
	struct sim_qp *failed;

	/* Who is stopped in the middle of it goes on with it. */
	if (!has_work(qp) || !sim_take_unless_stopped(w, &qp->sq_lock))
		return;
	failed = sim_send_run(w, qp);
	sim_drop(&qp->sq_lock);
	if (failed)
		sim_send_progress(w, failed);
}

void sim_kick_sender(struct sim_world *w, struct sim_qp *qp)
{
	struct sim_qp *sender = sim_qp_by_num(w, atomic_load(&qp->dest));

	if (sender && has_work(sender))
		sim_send_progress(w, sender);
}

void sim_kick_srq_senders(struct sim_world *w, struct sim_srq *srq)
{
	uint32_t handle = atomic_load(&srq->object.handle);

	if (!atomic_exchange(&srq->has_waiters, 0))
		return;
	for (uint32_t i = 0; i < sim_top(w, SIM_QP); i++) {
		struct sim_qp *qp = &w->seg->qp[i];

		/* A target of XRC may draw from any queue of its domain. */
		if (atomic_load(&qp->object.handle) &&
		    (qp->srq == handle || qp->type == IBV_QPT_XRC_RECV))
			sim_kick_sender(w, qp);
	}
}

/* A peer that does not answer may be dead; then its objects go first. */
static void look_for_the_dead(struct sim_world *w, struct sim_qp *qp)
{
	struct sim_qp *peer = sim_qp_by_num(w, atomic_load(&qp->dest));
	uint32_t proc = peer ? peer->object.proc : 0;

	if (proc && proc < SIM_PROC_MAX && proc != w->proc &&
	    !sim_proc_is_alive(w, proc))
		sim_world_reap(w, w->seg->proc[proc].pid);
}

void sim_run_timers(struct sim_world *w, struct sim_cq *cq, uint64_t now_ns)
{
	uint32_t handle = atomic_load(&cq->object.handle);

	atomic_store(&cq->deadline_ns, SIM_NO_LIMIT);
	for (uint32_t i = 0; i < sim_top(w, SIM_QP); i++) {
		struct sim_qp *qp = &w->seg->qp[i];

		uint64_t due = atomic_load(&qp->wait_until_ns);

		if (!atomic_load(&qp->object.handle) || qp->send_cq != handle ||
		    !due)
			continue;
		if (due > now_ns) {
			set_deadline(cq, due);
			continue;
		}
		look_for_the_dead(w, qp);
		sim_send_progress(w, qp);
	}
}
