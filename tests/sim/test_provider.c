/* SPDX-License-Identifier: MIT */
/*
 * Goal: one-sided operations, atomics, windows, shared queues, datagrams and
 * their errors have the outcomes of sections 5.3 to 5.8. Method: a connected
 * pair of the default device; both ends, and the event, are looked at.
 */
#include "tests/rig.h"

#include <errno.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness.h"

#define ALL_ACCESS                                            \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |    \
	 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | \
	 IBV_ACCESS_MW_BIND)

/* A pair whose regions and queue pairs allow everything. */
static void pair(struct rig *rig, enum ibv_qp_type type)
{
	setenv("VERBENA_QUIET", "1", 1);
	rig_pair(rig, "mlx5", NULL, type);
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr attr = {.qp_access_flags = ALL_ACCESS};

		CHECK_EQ(ibv_dereg_mr(rig->end[i].mr), 0);
		rig->end[i].mr = ibv_reg_mr(rig->end[i].pd, rig->end[i].memory,
					    RIG_BYTES, ALL_ACCESS);
		CHECK(rig->end[i].mr, "reg_mr");
		if (type == IBV_QPT_RC || type == IBV_QPT_UC)
			CHECK_EQ(ibv_modify_qp(rig->end[i].qp, &attr,
					       IBV_QP_ACCESS_FLAGS),
				 0);
	}
}

/* One request of end 0 on 8 bytes of both ends' memory, from offset 0. */
static struct ibv_send_wr request(struct rig *rig, struct ibv_sge *sge,
				  enum ibv_wr_opcode opcode)
{
	struct ibv_send_wr wr = {.wr_id = 77,
				 .sg_list = sge,
				 .num_sge = 1,
				 .opcode = opcode,
				 .send_flags = IBV_SEND_SIGNALED};

	*sge = (struct ibv_sge){(uintptr_t)rig->end[0].memory, 8,
				rig->end[0].mr->lkey};
	wr.wr.rdma.remote_addr = (uintptr_t)rig->end[1].memory;
	wr.wr.rdma.rkey = rig->end[1].mr->rkey;
	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	    opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)rig->end[1].memory;
		wr.wr.atomic.rkey = rig->end[1].mr->rkey;
	}
	return wr;
}

static void post(struct rig *rig, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	CHECK_EQ(ibv_post_send(rig->end[0].qp, wr, &bad), 0);
}

/* The next event of an end, or 0 when there is none. */
static int event_of(struct rig_end *end)
{
	struct pollfd poll_fd = {end->context->async_fd, POLLIN, 0};
	struct ibv_async_event event;

	if (poll(&poll_fd, 1, 0) != 1)
		return 0;
	CHECK_EQ(ibv_get_async_event(end->context, &event), 0);
	ibv_ack_async_event(&event);
	return (int)event.event_type;
}

Test(provider, write_and_read_move_bytes_without_the_target)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC};

	for (int i = 0; i < 2; i++) {
		struct ibv_send_wr wr;
		struct ibv_sge sge;
		struct rig rig;

		pair(&rig, types[i]);
		memcpy(rig.end[0].memory, "written!", 8);
		wr = request(&rig, &sge, IBV_WR_RDMA_WRITE);
		post(&rig, &wr);
		CHECK_EQ(rig_wc(&rig.end[0]).opcode, IBV_WC_RDMA_WRITE);
		CHECK(memcmp(rig.end[1].memory, "written!", 8) == 0, "write");
		rig_no_wc(&rig.end[1]);
		wr = request(&rig, &sge, IBV_WR_RDMA_READ);
		memcpy(rig.end[1].memory, "read me.", 8);
		post(&rig, &wr);
		/* UC has no read (2.8). */
		CHECK_EQ(rig_wc(&rig.end[0]).status,
			 types[i] == IBV_QPT_RC ? IBV_WC_SUCCESS
						: IBV_WC_LOC_QP_OP_ERR);
		CHECK((memcmp(rig.end[0].memory, "read me.", 8) == 0) ==
			      (types[i] == IBV_QPT_RC),
		      "read");
		rig_close(&rig);
	}
}

Test(provider, write_with_immediate_takes_a_receive_and_ignores_its_sges)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_wc wc;
	struct rig rig;

	pair(&rig, IBV_QPT_RC);
	wr = request(&rig, &sge, IBV_WR_RDMA_WRITE_WITH_IMM);
	wr.imm_data = 0xabcd;
	memcpy(rig.end[0].memory, "with imm", 8);
	CHECK_EQ(rig_recv(&rig.end[1], 5, 4096, 1), 0);
	post(&rig, &wr);
	CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_SUCCESS);
	wc = rig_wc(&rig.end[1]);
	CHECK_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	CHECK_EQ(wc.imm_data, 0xabcd);
	CHECK_EQ(wc.byte_len, 8);
	CHECK_EQ(wc.wr_id, 5);
	CHECK_EQ(rig.end[1].memory[4096], 0);
	rig_close(&rig);
}

Test(provider, atomics_return_the_old_value)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	uint64_t *here, *there;
	struct rig rig;

	pair(&rig, IBV_QPT_RC);
	here = (uint64_t *)rig.end[0].memory;
	there = (uint64_t *)rig.end[1].memory;
	*there = 40;
	wr = request(&rig, &sge, IBV_WR_ATOMIC_FETCH_AND_ADD);
	wr.wr.atomic.compare_add = 2;
	post(&rig, &wr);
	CHECK_EQ(rig_wc(&rig.end[0]).opcode, IBV_WC_FETCH_ADD);
	CHECK_EQ(*here, 40);
	CHECK_EQ(*there, 42);
	wr = request(&rig, &sge, IBV_WR_ATOMIC_CMP_AND_SWP);
	wr.wr.atomic.compare_add = 41;
	wr.wr.atomic.swap = 7;
	post(&rig, &wr);
	CHECK_EQ(rig_wc(&rig.end[0]).opcode, IBV_WC_COMP_SWAP);
	CHECK_EQ(*here, 42);
	CHECK_EQ(*there, 42); /* compared, and not swapped */
	wr.wr.atomic.compare_add = 42;
	post(&rig, &wr);
	rig_wc(&rig.end[0]);
	CHECK_EQ(*there, 7);
	rig_close(&rig);
}

/* 5.3, row by row: what is wrong, and what each end then has. */
static const struct {
	const char *what;
	enum ibv_wr_opcode opcode;
	int status;
	int event;
} rows[] = {
	{"rkey", IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR,
	 IBV_EVENT_QP_ACCESS_ERR},
	{"rkey", IBV_WR_RDMA_READ, IBV_WC_REM_ACCESS_ERR,
	 IBV_EVENT_QP_ACCESS_ERR},
	{"range", IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR,
	 IBV_EVENT_QP_ACCESS_ERR},
	{"flag of the region", IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR,
	 IBV_EVENT_QP_ACCESS_ERR},
	{"flag of the queue pair", IBV_WR_RDMA_WRITE, IBV_WC_REM_INV_REQ_ERR,
	 IBV_EVENT_QP_REQ_ERR},
	{"flag of the queue pair", IBV_WR_RDMA_READ, IBV_WC_REM_INV_REQ_ERR,
	 IBV_EVENT_QP_REQ_ERR},
	{"alignment", IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_REM_INV_REQ_ERR,
	 IBV_EVENT_QP_REQ_ERR},
	/* Judged before the key. */
	{"alignment and rkey", IBV_WR_ATOMIC_FETCH_AND_ADD,
	 IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR},
	{"lkey", IBV_WR_RDMA_WRITE, IBV_WC_LOC_PROT_ERR, 0},
	{"lkey", IBV_WR_RDMA_READ, IBV_WC_LOC_PROT_ERR, 0},
	/* Write: local fetch first. Read: the data never comes back. */
	{"lkey and rkey", IBV_WR_RDMA_WRITE, IBV_WC_LOC_PROT_ERR, 0},
	{"lkey and rkey", IBV_WR_RDMA_READ, IBV_WC_REM_ACCESS_ERR,
	 IBV_EVENT_QP_ACCESS_ERR},
	/* C9-88: no key check without a byte. */
	{"rkey of nothing", IBV_WR_RDMA_WRITE, IBV_WC_SUCCESS, 0},
	{"rkey of nothing", IBV_WR_RDMA_READ, IBV_WC_SUCCESS, 0},
};

static void spoil(struct rig *rig, const char *what, struct ibv_send_wr *wr)
{
	struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_LOCAL_WRITE};
	bool is_atomic = wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;

	if (strstr(what, "rkey")) {
		wr->wr.rdma.rkey ^= is_atomic ? 0 : 1;
		wr->wr.atomic.rkey ^= is_atomic ? 1 : 0;
	}
	if (strstr(what, "lkey"))
		wr->sg_list->lkey ^= 1;
	if (strstr(what, "range"))
		wr->wr.rdma.remote_addr += RIG_BYTES - 7;
	if (strstr(what, "alignment"))
		wr->wr.atomic.remote_addr += 4;
	if (strstr(what, "nothing"))
		wr->sg_list->length = 0;
	if (strstr(what, "flag of the queue pair"))
		CHECK_EQ(ibv_modify_qp(rig->end[1].qp, &attr,
				       IBV_QP_ACCESS_FLAGS),
			 0);
	if (strstr(what, "flag of the region")) {
		CHECK_EQ(ibv_dereg_mr(rig->end[1].mr), 0);
		rig->end[1].mr = ibv_reg_mr(rig->end[1].pd, rig->end[1].memory,
					    RIG_BYTES, IBV_ACCESS_LOCAL_WRITE);
		wr->wr.rdma.rkey = rig->end[1].mr->rkey;
	}
}

Test(provider, errors_of_5_3_on_both_ends)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		bool is_remote = rows[i].event != 0;
		struct ibv_qp_init_attr init;
		struct ibv_qp_attr attr;
		struct ibv_send_wr wr;
		struct ibv_sge sge;
		struct ibv_wc wc;
		struct rig rig;

		pair(&rig, IBV_QPT_RC);
		wr = request(&rig, &sge, rows[i].opcode);
		spoil(&rig, rows[i].what, &wr);
		post(&rig, &wr);
		wc = rig_wc(&rig.end[0]);
		CHECK((int)wc.status == rows[i].status,
		      "%s, opcode %d: status %d, want %d", rows[i].what,
		      rows[i].opcode, wc.status, rows[i].status);
		CHECK_EQ(wc.wr_id, 77);
		CHECK_EQ(event_of(&rig.end[1]), rows[i].event);
		rig_no_wc(&rig.end[1]);
		CHECK_EQ(ibv_query_qp(rig.end[1].qp, &attr, IBV_QP_STATE,
				      &init),
			 0);
		CHECK(attr.qp_state == (is_remote ? IBV_QPS_ERR : IBV_QPS_RTS),
		      "%s: responder in state %d", rows[i].what, attr.qp_state);
		rig_close(&rig);
	}
}

Test(provider, uc_drops_what_rc_refuses)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct rig rig;

	/* 5.4: silence on both ends, and the requester succeeds. */
	pair(&rig, IBV_QPT_UC);
	wr = request(&rig, &sge, IBV_WR_RDMA_WRITE);
	wr.wr.rdma.rkey ^= 1;
	memcpy(rig.end[0].memory, "never!!!", 8);
	post(&rig, &wr);
	CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_SUCCESS);
	CHECK_EQ(rig.end[1].memory[0], 0);
	CHECK_EQ(event_of(&rig.end[1]), 0);
	rig_close(&rig);
}

Test(provider, the_first_message_in_rtr_tells_that_it_came)
{
	struct rig rig;

	setenv("VERBENA_QUIET", "1", 1);
	rig_open(&rig, "mlx5", NULL);
	rig_make(&rig.end[0], IBV_QPT_RC, 8);
	rig_make(&rig.end[1], IBV_QPT_RC, 8);
	rig_connect(&rig, IBV_QPS_RTR);
	CHECK_EQ(rig_modify(&rig.end[0], &rig.end[1], IBV_QPS_RTS), 0);
	CHECK_EQ(rig_recv(&rig.end[1], 0, 0, 8), 0);
	CHECK_EQ(rig_recv(&rig.end[1], 1, 0, 8), 0);
	CHECK_EQ(rig_send(&rig.end[0], 0, 0, 8), 0);
	CHECK_EQ(rig_send(&rig.end[0], 1, 0, 8), 0);
	CHECK_EQ(event_of(&rig.end[1]), IBV_EVENT_COMM_EST);
	CHECK_EQ(event_of(&rig.end[1]), 0);
	rig_close(&rig);
}

/* --- shared receive queues ---------------------------------------------- */

static struct ibv_srq *use_srq(struct rig *rig, uint32_t limit)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq_attr arm = {.srq_limit = limit};
	struct rig_end *end = &rig->end[1];
	struct ibv_qp_init_attr qp = {.qp_type = IBV_QPT_RC,
				      .send_cq = end->cq,
				      .recv_cq = end->cq,
				      .cap = {8, 0, 1, 0, 0}};
	struct ibv_srq *srq = ibv_create_srq(end->pd, &init);

	CHECK(srq, "create_srq: %s", strerror(errno));
	CHECK_EQ(init.attr.max_wr, 15);
	qp.srq = srq;
	CHECK_EQ(ibv_destroy_qp(end->qp), 0);
	end->qp = ibv_create_qp(end->pd, &qp);
	CHECK(end->qp, "create_qp: %s", strerror(errno));
	CHECK_EQ(rig_modify(&rig->end[0], NULL, IBV_QPS_RESET), 0);
	rig_connect(rig, IBV_QPS_RTS);
	for (int i = 0; i < 4; i++) {
		struct ibv_sge sge = {(uintptr_t)end->memory, 64,
				      end->mr->lkey};
		struct ibv_recv_wr wr = {.wr_id = 100 + i,
					 .sg_list = &sge,
					 .num_sge = 1};
		struct ibv_recv_wr *bad;

		CHECK_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
	}
	if (limit)
		CHECK_EQ(ibv_modify_srq(srq, &arm, IBV_SRQ_LIMIT), 0);
	return srq;
}

Test(provider, a_shared_queue_serves_in_order_and_tells_its_limit_once)
{
	struct ibv_srq_attr attr;
	struct ibv_srq *srq;
	struct rig rig;

	pair(&rig, IBV_QPT_RC);
	srq = use_srq(&rig, 3);
	/* Its own receive queue is closed (5.8). */
	CHECK_EQ(rig_recv(&rig.end[1], 0, 0, 8), EINVAL);
	CHECK_EQ(ibv_destroy_srq(srq), EBUSY);
	for (int i = 0; i < 4; i++) {
		CHECK_EQ(event_of(&rig.end[1]),
			 i == 2 ? IBV_EVENT_SRQ_LIMIT_REACHED : 0);
		CHECK_EQ(rig_send(&rig.end[0], i, 0, 8), 0);
		CHECK_EQ(rig_wc(&rig.end[1]).wr_id, 100 + i);
	}
	CHECK_EQ(ibv_query_srq(srq, &attr), 0);
	CHECK_EQ(attr.srq_limit, 0); /* one shot */
	/* Empty: the sender waits, and a receive carries it on. */
	for (int i = 0; i < 4; i++)
		rig_wc(&rig.end[0]);
	CHECK_EQ(rig_send(&rig.end[0], 9, 0, 8), 0);
	rig_no_wc(&rig.end[0]);
	struct ibv_sge sge = {(uintptr_t)rig.end[1].memory, 64,
			      rig.end[1].mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 200, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	CHECK_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
	CHECK_EQ(rig_wc(&rig.end[1]).wr_id, 200);
	CHECK_EQ(rig_wc(&rig.end[0]).wr_id, 9);
	/* 5.2, rule 6: what is in the shared queue is not flushed. */
	CHECK_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
	CHECK_EQ(rig_modify(&rig.end[1], NULL, IBV_QPS_ERR), 0);
	rig_no_wc(&rig.end[1]);
	CHECK_EQ(event_of(&rig.end[1]), IBV_EVENT_QP_LAST_WQE_REACHED);
	CHECK_EQ(ibv_destroy_qp(rig.end[1].qp), 0);
	rig.end[1].qp = NULL;
	CHECK_EQ(ibv_destroy_srq(srq), 0);
	rig_close(&rig);
}

/* --- memory windows ----------------------------------------------------- */

static void bind(struct rig_end *end, struct ibv_mw *mw, uint32_t rkey,
		 uint64_t length)
{
	struct ibv_send_wr wr = {.wr_id = 50,
				 .opcode = IBV_WR_BIND_MW,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = rkey;
	wr.bind_mw.bind_info =
		(struct ibv_mw_bind_info){end->mr, (uintptr_t)end->memory,
					  length, IBV_ACCESS_REMOTE_WRITE};
	CHECK_EQ(ibv_post_send(end->qp, &wr, &bad), 0);
}

Test(provider, a_window_opens_a_part_of_a_region_until_it_is_invalidated)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_mw *mw;
	struct rig rig;

	pair(&rig, IBV_QPT_RC);
	mw = ibv_alloc_mw(rig.end[1].pd, IBV_MW_TYPE_2);
	CHECK(mw, "alloc_mw");
	bind(&rig.end[1], mw, ibv_inc_rkey(mw->rkey), 8);
	CHECK_EQ(rig_wc(&rig.end[1]).opcode, IBV_WC_BIND_MW);
	CHECK_EQ(ibv_dereg_mr(rig.end[1].mr), EBUSY);
	memcpy(rig.end[0].memory, "window..", 8);
	wr = request(&rig, &sge, IBV_WR_RDMA_WRITE);
	wr.wr.rdma.rkey = ibv_inc_rkey(mw->rkey);
	post(&rig, &wr);
	CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_SUCCESS);
	CHECK(memcmp(rig.end[1].memory, "window..", 8) == 0, "data");
	/* A send takes the key out of use, and says which. */
	CHECK_EQ(rig_recv(&rig.end[1], 1, 64, 8), 0);
	wr = request(&rig, &sge, IBV_WR_SEND_WITH_INV);
	wr.invalidate_rkey = ibv_inc_rkey(mw->rkey);
	post(&rig, &wr);
	rig_wc(&rig.end[0]);
	struct ibv_wc wc = rig_wc(&rig.end[1]);

	CHECK_EQ(wc.wc_flags, IBV_WC_WITH_INV);
	CHECK_EQ(wc.invalidated_rkey, ibv_inc_rkey(mw->rkey));
	wr = request(&rig, &sge, IBV_WR_RDMA_WRITE);
	wr.wr.rdma.rkey = ibv_inc_rkey(mw->rkey);
	post(&rig, &wr);
	CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_REM_ACCESS_ERR);
	CHECK_EQ(event_of(&rig.end[1]), IBV_EVENT_QP_ACCESS_ERR);
	CHECK_EQ(ibv_dealloc_mw(mw), 0);
	rig_close(&rig);
}

Test(provider, a_bind_outside_its_region_is_an_error)
{
	struct ibv_mw *mw;
	struct rig rig;

	pair(&rig, IBV_QPT_RC);
	mw = ibv_alloc_mw(rig.end[1].pd, IBV_MW_TYPE_2);
	bind(&rig.end[1], mw, ibv_inc_rkey(mw->rkey), RIG_BYTES + 1);
	CHECK_EQ(rig_wc(&rig.end[1]).status, IBV_WC_MW_BIND_ERR);
	CHECK_EQ(ibv_dealloc_mw(mw), 0);
	rig_close(&rig);
}

/* --- datagrams ---------------------------------------------------------- */

#define QKEY 0x1111

static void to_rts(struct rig_end *end)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = 1,
				   .qkey = QKEY};

	CHECK_EQ(ibv_modify_qp(end->qp, &attr,
			       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				       IBV_QP_QKEY),
		 0);
	attr.qp_state = IBV_QPS_RTR;
	CHECK_EQ(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE), 0);
	attr.qp_state = IBV_QPS_RTS;
	CHECK_EQ(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN),
		 0);
}

static struct ibv_ah *datagrams(struct rig *rig, bool is_global)
{
	struct ibv_ah_attr attr = {.port_num = 1,
				   .dlid = 2,
				   .is_global = is_global,
				   .grh = {.sgid_index = 1}};
	struct ibv_ah *ah;

	setenv("VERBENA_QUIET", "1", 1);
	rig_open(rig, "mlx5", NULL);
	for (int i = 0; i < 2; i++) {
		rig_make(&rig->end[i], IBV_QPT_UD, 8);
		to_rts(&rig->end[i]);
	}
	CHECK_EQ(ibv_query_gid(rig->end[1].context, 1, 1, &attr.grh.dgid), 0);
	ah = ibv_create_ah(rig->end[0].pd, &attr);
	CHECK(ah, "create_ah: %s", strerror(errno));
	return ah;
}

static void send_datagram(struct rig *rig, struct ibv_ah *ah, uint32_t qpn,
			  uint32_t qkey, uint32_t len)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(rig, &sge, IBV_WR_SEND);

	sge.length = len;
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = qkey;
	post(rig, &wr);
}

Test(provider, a_datagram_has_40_bytes_before_it)
{
	for (int is_global = 0; is_global < 2; is_global++) {
		struct ibv_ah *ah;
		struct ibv_wc wc;
		struct rig rig;

		ah = datagrams(&rig, is_global);
		memcpy(rig.end[0].memory, "datagram", 8);
		CHECK_EQ(rig_recv(&rig.end[1], 3, 0, 48), 0);
		send_datagram(&rig, ah, rig.end[1].qp->qp_num, QKEY, 8);
		CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_SUCCESS);
		wc = rig_wc(&rig.end[1]);
		CHECK_EQ(wc.byte_len, 48);
		CHECK_EQ(wc.src_qp, rig.end[0].qp->qp_num);
		CHECK_EQ(wc.slid, 1);
		CHECK_EQ(wc.wc_flags, is_global ? IBV_WC_GRH : 0);
		CHECK_EQ(rig.end[1].memory[0], is_global ? 0x60 : 0);
		CHECK(memcmp(rig.end[1].memory + 40, "datagram", 8) == 0,
		      "data");
		CHECK_EQ(ibv_destroy_ah(ah), 0);
		rig_close(&rig);
	}
}

Test(provider, datagrams_that_do_not_fit_are_lost_in_silence)
{
	struct ibv_ah *ah;
	struct rig rig;

	/* 5.5: wrong key, unknown number, receive too small, no receive. */
	ah = datagrams(&rig, true);
	CHECK_EQ(rig_recv(&rig.end[1], 3, 0, 47), 0);
	send_datagram(&rig, ah, rig.end[1].qp->qp_num, QKEY + 1, 8);
	send_datagram(&rig, ah, rig.end[1].qp->qp_num + 1, QKEY, 8);
	send_datagram(&rig, ah, rig.end[1].qp->qp_num, QKEY, 8);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_SUCCESS);
	rig_no_wc(&rig.end[1]);
	/* Over one packet: that is the sender's own mistake. */
	send_datagram(&rig, ah, rig.end[1].qp->qp_num, QKEY, 4097);
	CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_LOC_LEN_ERR);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	rig_close(&rig);
}

Test(provider, a_group_gets_what_is_sent_to_it)
{
	union ibv_gid group = {.raw = {0xff, 0x0e, [15] = 9}};
	struct ibv_ah_attr attr = {.port_num = 1, .is_global = 1};
	struct ibv_ah *ah, *to_group;
	struct rig rig;

	ah = datagrams(&rig, true);
	attr.grh.dgid = group;
	attr.grh.sgid_index = 1;
	to_group = ibv_create_ah(rig.end[0].pd, &attr);
	CHECK_EQ(ibv_attach_mcast(rig.end[1].qp, &group, 0), 0);
	CHECK_EQ(ibv_destroy_qp(rig.end[1].qp), EBUSY);
	CHECK_EQ(rig_recv(&rig.end[1], 3, 0, 64), 0);
	send_datagram(&rig, to_group, 0xffffff, QKEY, 8);
	CHECK_EQ(rig_wc(&rig.end[1]).wr_id, 3);
	CHECK_EQ(ibv_detach_mcast(rig.end[1].qp, &group, 0), 0);
	CHECK_EQ(ibv_detach_mcast(rig.end[1].qp, &group, 0), EINVAL);
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	CHECK_EQ(ibv_destroy_ah(to_group), 0);
	rig_close(&rig);
}

/* --- the extended interface --------------------------------------------- */

static struct ibv_qp_ex *extend(struct rig *rig)
{
	struct rig_end *end = &rig->end[0];
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_RC,
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.cap = {4, 4, 1, 1, 64},
		.pd = end->pd,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags =
			IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE,
	};

	CHECK(!ibv_qp_to_qp_ex(end->qp), "a plain queue pair has no builders");
	CHECK_EQ(ibv_destroy_qp(end->qp), 0);
	end->qp = ibv_create_qp_ex(end->context, &init);
	CHECK(end->qp, "create_qp_ex: %s", strerror(errno));
	CHECK_EQ(rig_modify(&rig->end[1], NULL, IBV_QPS_RESET), 0);
	rig_connect(rig, IBV_QPS_RTS);
	return ibv_qp_to_qp_ex(end->qp);
}

/* mlx5 takes one flag, rxe none (and says so: EOPNOTSUPP). */
Test(provider, creation_flags_are_the_models)
{
	static const struct {
		const char *model;
		uint32_t flags;
		int error;
	} flags[] = {
		{"mlx5", IBV_QP_CREATE_BLOCK_SELF_MCAST_LB, 0},
		{"mlx5", IBV_QP_CREATE_SCATTER_FCS, EOPNOTSUPP},
		{"rxe", IBV_QP_CREATE_BLOCK_SELF_MCAST_LB, EOPNOTSUPP},
	};

	setenv("VERBENA_QUIET", "1", 1);
	for (size_t i = 0; i < sizeof(flags) / sizeof(*flags); i++) {
		struct ibv_qp_init_attr_ex init = {
			.qp_type = IBV_QPT_UD,
			.cap = {4, 4, 1, 1, 0},
			.comp_mask = IBV_QP_INIT_ATTR_PD |
				     IBV_QP_INIT_ATTR_CREATE_FLAGS,
			.create_flags = flags[i].flags,
		};
		struct ibv_qp *qp;
		struct rig rig;

		rig_pair(&rig, flags[i].model, NULL, IBV_QPT_RC);
		init.pd = rig.end[0].pd;
		init.send_cq = init.recv_cq = rig.end[0].cq;
		errno = 0;
		qp = ibv_create_qp_ex(rig.end[0].context, &init);
		CHECK(!qp == !!flags[i].error && errno == flags[i].error,
		      "%s, flags 0x%x: errno %d", flags[i].model,
		      flags[i].flags, errno);
		if (qp)
			CHECK_EQ(ibv_destroy_qp(qp), 0);
		rig_close(&rig);
	}
}

Test(provider, a_batch_is_posted_whole_or_not_at_all)
{
	struct ibv_data_buf buf;
	struct ibv_qp_ex *ex;
	char text[] = "inline";
	struct rig rig;

	pair(&rig, IBV_QPT_RC);
	ex = extend(&rig);
	CHECK(ex && !ex->wr_rdma_read, "only what was asked for");
	for (int i = 0; i < 6; i++)
		CHECK_EQ(rig_recv(&rig.end[1], i, 4096 * i, 64), 0);
	/* Five do not fit in a queue of four: none goes. */
	ibv_wr_start(ex);
	for (int i = 0; i < 5; i++) {
		ibv_wr_send(ex);
		ibv_wr_set_sge(ex, rig.end[0].mr->lkey,
			       (uintptr_t)rig.end[0].memory, 8);
	}
	CHECK_EQ(ibv_wr_complete(ex), ENOMEM);
	rig_no_wc(&rig.end[1]);
	/* Abandoned: none goes, and the next batch is clean. */
	ibv_wr_start(ex);
	ibv_wr_send(ex);
	ibv_wr_abort(ex);
	buf.addr = text;
	buf.length = 6;
	ibv_wr_start(ex);
	ex->wr_id = 11;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send(ex);
	ibv_wr_set_inline_data_list(ex, 1, &buf);
	ex->wr_id = 12;
	ibv_wr_rdma_write(ex, rig.end[1].mr->rkey,
			  (uintptr_t)rig.end[1].memory + 512);
	ibv_wr_set_sge(ex, rig.end[0].mr->lkey, (uintptr_t)rig.end[0].memory,
		       8);
	CHECK_EQ(ibv_wr_complete(ex), 0);
	CHECK_EQ(rig_wc(&rig.end[0]).wr_id, 11);
	CHECK_EQ(rig_wc(&rig.end[0]).wr_id, 12);
	CHECK_EQ(rig_wc(&rig.end[1]).byte_len, 6);
	CHECK(memcmp(rig.end[1].memory, "inline", 6) == 0, "data");
	rig_close(&rig);
}

Test(provider, an_extended_queue_is_read_field_by_field)
{
	struct ibv_cq_init_attr_ex init = {.cqe = 8,
					   .wc_flags = IBV_WC_STANDARD_FLAGS};
	struct ibv_qp_init_attr qp = {.qp_type = IBV_QPT_RC,
				      .cap = {8, 8, 1, 1, 0}};
	struct ibv_poll_cq_attr none = {0};
	struct rig_end *end;
	struct ibv_cq_ex *ex;
	struct rig rig;

	pair(&rig, IBV_QPT_RC);
	end = &rig.end[1];
	ex = ibv_create_cq_ex(end->context, &init);
	CHECK(ex, "create_cq_ex: %s", strerror(errno));
	qp.send_cq = qp.recv_cq = ibv_cq_ex_to_cq(ex);
	CHECK_EQ(ibv_destroy_qp(end->qp), 0);
	end->qp = ibv_create_qp(end->pd, &qp);
	CHECK_EQ(rig_modify(&rig.end[0], NULL, IBV_QPS_RESET), 0);
	rig_connect(&rig, IBV_QPS_RTS);
	CHECK_EQ(ibv_start_poll(ex, &none), ENOENT);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(rig_recv(end, 30 + i, 0, 8), 0);
		CHECK_EQ(rig_send(&rig.end[0], i, 0, 5 + i), 0);
	}
	CHECK_EQ(ibv_start_poll(ex, &none), 0);
	CHECK_EQ(ex->wr_id, 30);
	CHECK_EQ(ex->status, IBV_WC_SUCCESS);
	CHECK_EQ(ibv_wc_read_byte_len(ex), 5);
	CHECK_EQ(ibv_wc_read_opcode(ex), IBV_WC_RECV);
	CHECK_EQ(ibv_next_poll(ex), 0);
	CHECK_EQ(ex->wr_id, 31);
	CHECK_EQ(ibv_wc_read_src_qp(ex), rig.end[0].qp->qp_num);
	CHECK_EQ(ibv_next_poll(ex), ENOENT);
	ibv_end_poll(ex);
	CHECK_EQ(ibv_destroy_qp(end->qp), 0);
	end->qp = NULL;
	CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(ex)), 0);
	rig_close(&rig);
}

Test(provider, a_queue_is_resized_with_what_is_in_it)
{
	struct rig rig;

	pair(&rig, IBV_QPT_RC);
	for (int i = 0; i < 5; i++) {
		CHECK_EQ(rig_recv(&rig.end[1], i, 0, 8), 0);
		CHECK_EQ(rig_send(&rig.end[0], i, 0, 8), 0);
	}
	CHECK_EQ(ibv_resize_cq(rig.end[1].cq, 4), EINVAL);
	CHECK_EQ(ibv_resize_cq(rig.end[1].cq, 20), 0);
	CHECK_EQ(rig.end[1].cq->cqe, 31);
	for (int i = 0; i < 5; i++)
		CHECK_EQ(rig_wc(&rig.end[1]).wr_id, i);
	rig_close(&rig);
}

/* What pyverbs' test_mlx5_huge_page expects of libmlx5. */
Test(provider, huge_pages_or_nothing_is_nothing_without_them)
{
	static const char *const kinds[] = {"CQ", "QP", "SRQ"};
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC};
	struct rig rig;
	FILE *file = fopen("/proc/sys/vm/nr_hugepages", "re");
	int pages = 0;

	if (file) {
		CHECK_EQ(fscanf(file, "%d", &pages), 1);
		fclose(file);
	}
	if (pages)
		SKIP("this machine has %d huge pages", pages);
	pair(&rig, IBV_QPT_RC);
	init.send_cq = init.recv_cq = rig.end[0].cq;
	for (int i = 0; i < 3; i++) {
		void *made = &made;
		char variable[32];

		snprintf(variable, sizeof(variable), "MLX_%s_ALLOC_TYPE",
			 kinds[i]);
		setenv(variable, "HUGE", 1);
		errno = 0;
		if (i == 0)
			made = ibv_create_cq(rig.end[0].context, 4, NULL, NULL,
					     0);
		else if (i == 1)
			made = ibv_create_qp(rig.end[0].pd, &init);
		else
			made = ibv_create_srq(rig.end[0].pd, &shared);
		unsetenv(variable);
		CHECK(!made && errno == ENOMEM, "%s: %p, errno %d", kinds[i],
		      made, errno);
	}
	rig_close(&rig);
}
