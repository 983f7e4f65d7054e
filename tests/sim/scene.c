/* SPDX-License-Identifier: MIT */
/* What the tests of section 5 stand on; see scene.h. */
#include "tests/sim/scene.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>

void scene_pair(struct rig *rig, const char *model, enum ibv_qp_type type)
{
	setenv("VERBENA_QUIET", "1", 1);
	rig_pair(rig, model, NULL, type);
}

/* Poll until something comes; only bounded. */
struct ibv_wc end_wait(struct rig_end *end)
{
	uint64_t start = sim_now_ns();
	struct ibv_wc wc = {0};

	while (sim_now_ns() - start < 20000000000ull)
		if (ibv_poll_cq(end->cq, 1, &wc) == 1)
			return wc;
	CHECK(false, "no completion in 20 s");
	return wc;
}

/* CQ_ERR is 0, so that only the element tells none from it. */
int end_event(struct rig_end *end, void **element)
{
	struct pollfd poll_fd = {end->context->async_fd, POLLIN, 0};
	struct ibv_async_event event;

	if (poll(&poll_fd, 1, 0) != 1)
		return 0;
	CHECK_EQ(ibv_get_async_event(end->context, &event), 0);
	ibv_ack_async_event(&event);
	*element = event.element.qp;
	return (int)event.event_type;
}

void end_check_event(struct rig_end *end, int type, void *element)
{
	void *have = NULL;

	CHECK_EQ(end_event(end, &have), type);
	CHECK(have == element, "event %d is of another element", type);
}

int end_state(struct rig_end *end)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK_EQ(ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init), 0);
	return attr.qp_state;
}

/* Through the states up to this one. */
void scene_bring(struct rig *rig, int i, enum ibv_qp_state state)
{
	struct rig_end *end = &rig->end[i], *peer = &rig->end[1 - i];

	for (int step = IBV_QPS_INIT; step <= IBV_QPS_RTS && step <= (int)state;
	     step++)
		CHECK_EQ(rig_modify(end, peer, step), 0);
	if (state > IBV_QPS_RTS)
		CHECK_EQ(rig_modify(end, peer, state), 0);
}

/* Another queue pair in the place of an end's, in RESET. */
void end_replace(struct rig_end *end, struct ibv_qp_init_attr *init)
{
	if (!init->send_cq)
		init->send_cq = end->cq;
	if (!init->recv_cq)
		init->recv_cq = end->cq;
	CHECK_EQ(ibv_destroy_qp(end->qp), 0);
	end->qp = ibv_create_qp(end->pd, init);
	CHECK(end->qp, "create_qp: errno %d", errno);
}

void scene_connect(struct rig *rig)
{
	for (int i = 0; i < 2; i++)
		CHECK_EQ(rig_modify(&rig->end[i], NULL, IBV_QPS_RESET), 0);
	rig_connect(rig, IBV_QPS_RTS);
}

/* RTR to RTS with these budgets, RC. */
void end_to_rts(struct rig_end *end, uint8_t timeout, uint8_t retry_cnt,
		uint8_t rnr_retry)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
				   .timeout = timeout,
				   .retry_cnt = retry_cnt,
				   .rnr_retry = rnr_retry,
				   .max_rd_atomic = 1};

	CHECK_EQ(ibv_modify_qp(end->qp, &attr,
			       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
				       IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				       IBV_QP_MAX_QP_RD_ATOMIC),
		 0);
}

/* A request of 8 bytes of the end's memory. */
struct ibv_send_wr end_request(struct rig_end *end, struct ibv_sge *sge,
			       uint64_t wr_id)
{
	*sge = (struct ibv_sge){(uintptr_t)end->memory, 8, end->mr->lkey};
	return (struct ibv_send_wr){.wr_id = wr_id,
				    .sg_list = sge,
				    .num_sge = 1,
				    .opcode = IBV_WR_SEND};
}

int end_post(struct rig_end *end, uint64_t wr_id, unsigned flags)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = end_request(end, &sge, wr_id), *bad;

	wr.send_flags = flags;
	return ibv_post_send(end->qp, &wr, &bad);
}

void end_allow(struct rig_end *end, unsigned flags)
{
	struct ibv_qp_attr attr = {.qp_access_flags = flags};

	CHECK_EQ(ibv_modify_qp(end->qp, &attr, IBV_QP_ACCESS_FLAGS), 0);
}

void scene_set(struct scene *s, const char *model, const char *plan,
	       enum ibv_qp_type type)
{
	memset(s, 0, sizeof(*s));
	setenv("VERBENA_QUIET", "1", 1);
	rig_pair(&s->rig, model, plan, type);
	for (int i = 0; i < 2; i++) {
		struct rig_end *end = &s->rig.end[i];

		CHECK_EQ(ibv_dereg_mr(end->mr), 0);
		end->mr =
			ibv_reg_mr(end->pd, end->memory, RIG_BYTES, ALL_ACCESS);
		s->plain[i] = ibv_reg_mr(end->pd, end->memory, RIG_BYTES, 0);
		s->pd[i] = ibv_alloc_pd(end->context);
		s->foreign[i] = ibv_reg_mr(s->pd[i], end->memory, RIG_BYTES,
					   ALL_ACCESS);
		CHECK(end->mr && s->plain[i] && s->foreign[i], "reg_mr");
		end_allow(end, ALL_ACCESS);
	}
}

void scene_strike(struct scene *s)
{
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(ibv_dereg_mr(s->plain[i]), 0);
		CHECK_EQ(ibv_dereg_mr(s->foreign[i]), 0);
		CHECK_EQ(ibv_dealloc_pd(s->pd[i]), 0);
	}
	rig_close(&s->rig);
}

static bool is_atomic(enum ibv_wr_opcode opcode)
{
	return opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
	       opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
}

/* A request that is right: 8 bytes of end 0, 8 bytes of end 1. */
void scene_prepare(struct scene *s, enum ibv_wr_opcode opcode)
{
	struct rig_end *end = s->rig.end;

	s->sge = (struct ibv_sge){(uintptr_t)end[0].memory, 8, end[0].mr->lkey};
	s->wr = (struct ibv_send_wr){.wr_id = WR_ID,
				     .sg_list = &s->sge,
				     .num_sge = 1,
				     .opcode = opcode,
				     .send_flags = IBV_SEND_SIGNALED};
	if (is_atomic(opcode)) {
		s->wr.wr.atomic.remote_addr = (uintptr_t)end[1].memory;
		s->wr.wr.atomic.rkey = end[1].mr->rkey;
		s->wr.wr.atomic.compare_add = 1;
	} else {
		s->wr.wr.rdma.remote_addr = (uintptr_t)end[1].memory;
		s->wr.wr.rdma.rkey = end[1].mr->rkey;
	}
	s->recv_sge = (struct ibv_sge){(uintptr_t)end[1].memory + RECV_AT,
				       RECV_LEN, end[1].mr->lkey};
	s->has_recv = opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_INV ||
		      opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static void set_rkey(struct scene *s, uint32_t rkey)
{
	if (is_atomic(s->wr.opcode))
		s->wr.wr.atomic.rkey = rkey;
	else
		s->wr.wr.rdma.rkey = rkey;
}

/* Nothing may be outstanding at a responder that accepts no read. */
static void set_dest_depth_0(struct rig_end *end)
{
	struct ibv_qp_attr sqd = {.qp_state = IBV_QPS_SQD}, none = {0},
			   rts = {.qp_state = IBV_QPS_RTS};

	CHECK_EQ(ibv_modify_qp(end->qp, &sqd, IBV_QP_STATE), 0);
	CHECK_EQ(ibv_modify_qp(end->qp, &none, IBV_QP_MAX_DEST_RD_ATOMIC), 0);
	CHECK_EQ(ibv_modify_qp(end->qp, &rts, IBV_QP_STATE), 0);
}

static void spoil_local(struct scene *s, const char *what)
{
	if (strstr(what, "wrong lkey"))
		s->sge.lkey ^= 1;
	if (strstr(what, "foreign lkey"))
		s->sge.lkey = s->foreign[0]->lkey;
	if (strstr(what, "plain lkey"))
		s->sge.lkey = s->plain[0]->lkey;
	if (strstr(what, "local range"))
		s->sge.addr += RIG_BYTES - 7;
	if (strstr(what, "over a GiB"))
		s->sge.length = (1u << 30) + 1;
	if (strstr(what, "short"))
		s->sge.length = 4;
	if (strstr(what, "empty"))
		s->sge.length = 0;
}

static void spoil_remote(struct scene *s, const char *what)
{
	if (strstr(what, "wrong rkey"))
		set_rkey(s, s->rig.end[1].mr->rkey ^ 1);
	if (strstr(what, "foreign rkey"))
		set_rkey(s, s->foreign[1]->rkey);
	if (strstr(what, "plain rkey"))
		set_rkey(s, s->plain[1]->rkey);
	if (strstr(what, "remote range"))
		*(is_atomic(s->wr.opcode) ? &s->wr.wr.atomic.remote_addr
					  : &s->wr.wr.rdma.remote_addr) +=
			RIG_BYTES;
	if (strstr(what, "flag of the queue pair"))
		end_allow(&s->rig.end[1], 0);
	if (strstr(what, "depth 0"))
		set_dest_depth_0(&s->rig.end[1]);
	if (strstr(what, "invalidate nothing"))
		s->wr.invalidate_rkey = s->rig.end[1].mr->rkey;
	if (strstr(what, "receive wrong"))
		s->recv_sge.lkey ^= 1;
	if (strstr(what, "receive foreign"))
		s->recv_sge.lkey = s->foreign[1]->lkey;
	if (strstr(what, "receive plain"))
		s->recv_sge.lkey = s->plain[1]->lkey;
	if (strstr(what, "receive range"))
		s->recv_sge.addr += RIG_BYTES;
	if (strstr(what, "receive 7"))
		s->recv_sge.length = 7;
	if (strstr(what, "no receive"))
		s->has_recv = false;
}

int end_event_type(struct rig_end *end)
{
	void *element = NULL;
	int type = end_event(end, &element);

	CHECK(!element || element == end->qp, "event %d of another", type);
	return type;
}

void scene_play(struct scene *s, const struct scene_row *row)
{
	struct ibv_recv_wr recv = {.wr_id = RECV_ID,
				   .sg_list = &s->recv_sge,
				   .num_sge = 1},
			   *bad_recv;
	struct ibv_send_wr *bad;

	scene_prepare(s, row->opcode);
	spoil_local(s, row->what);
	spoil_remote(s, row->what);
	if (s->has_recv)
		CHECK_EQ(ibv_post_recv(s->rig.end[1].qp, &recv, &bad_recv), 0);
	CHECK_EQ(ibv_post_send(s->rig.end[0].qp, &s->wr, &bad), 0);
}

void scene_check_responder(struct scene *s, const struct scene_row *row)
{
	struct ibv_wc wc = {.status = IBV_WC_GENERAL_ERR};
	int got = ibv_poll_cq(s->rig.end[1].cq, 1, &wc);

	CHECK(got == (row->responder != NONE),
	      "%s, opcode %d: %d completions at the responder", row->what,
	      row->opcode, got);
	if (got)
		CHECK((int)wc.status == row->responder && wc.wr_id == RECV_ID,
		      "%s, opcode %d: responder %d, want %d", row->what,
		      row->opcode, wc.status, row->responder);
	CHECK(end_state(&s->rig.end[1]) ==
		      (row->fails ? IBV_QPS_ERR : IBV_QPS_RTS),
	      "%s, opcode %d: responder in state %d", row->what, row->opcode,
	      end_state(&s->rig.end[1]));
	int event = end_event_type(&s->rig.end[1]);

	CHECK(event == row->event, "%s, opcode %d: event %d, want %d",
	      row->what, row->opcode, event, row->event);
	CHECK_EQ(end_event_type(&s->rig.end[0]), 0);
}

void scene_check_requester(struct scene *s, const struct scene_row *row)
{
	struct ibv_wc wc = end_wait(&s->rig.end[0]);

	CHECK((int)wc.status == row->requester && wc.wr_id == WR_ID,
	      "%s, opcode %d: requester %d, want %d", row->what, row->opcode,
	      wc.status, row->requester);
	CHECK(end_state(&s->rig.end[0]) ==
		      (wc.status ? IBV_QPS_ERR : IBV_QPS_RTS),
	      "%s, opcode %d: requester in state %d", row->what, row->opcode,
	      end_state(&s->rig.end[0]));
}

void scene_check_rows(const struct scene_row *rows, size_t count,
		      const char *model, enum ibv_qp_type type)
{
	for (size_t i = 0; i < count; i++) {
		struct scene s;

		scene_set(&s, model, NULL, type);
		scene_play(&s, &rows[i]);
		scene_check_requester(&s, &rows[i]);
		scene_check_responder(&s, &rows[i]);
		/* A receive that was not taken is still there: it flushes. */
		if (s.has_recv && rows[i].responder == NONE) {
			CHECK_EQ(rig_modify(&s.rig.end[1], NULL, IBV_QPS_ERR),
				 0);
			CHECK_EQ(rig_wc(&s.rig.end[1]).status,
				 IBV_WC_WR_FLUSH_ERR);
		}
		scene_strike(&s);
	}
}

/* End 1 anew, with another path MTU or expected number. */
void scene_reconnect(struct scene *s, int i, int changed,
		     const struct ibv_qp_attr *to)
{
	struct rig_end *end = &s->rig.end[i];
	bool is_rc = end->qp->qp_type == IBV_QPT_RC;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK_EQ(ibv_query_qp(end->qp, &attr, IBV_QP_AV, &init), 0);
	CHECK_EQ(rig_modify(end, NULL, IBV_QPS_RESET), 0);
	CHECK_EQ(rig_modify(end, NULL, IBV_QPS_INIT), 0);
	attr.qp_state = IBV_QPS_RTR;
	if (changed & IBV_QP_PATH_MTU)
		attr.path_mtu = to->path_mtu;
	if (changed & IBV_QP_RQ_PSN)
		attr.rq_psn = to->rq_psn;
	CHECK_EQ(ibv_modify_qp(end->qp, &attr,
			       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				       (is_rc ? IBV_QP_MAX_DEST_RD_ATOMIC |
							IBV_QP_MIN_RNR_TIMER
					      : 0)),
		 0);
	CHECK_EQ(rig_modify(end, NULL, IBV_QPS_RTS), 0);
}
