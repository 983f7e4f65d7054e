/* SPDX-License-Identifier: MIT */
/*
 * Goal: what goes wrong between two queue pairs ends as sections 5.3 to 5.6
 * say on the default device, and as Soft-RoCE has it where 3.6 says so.
 * Method: rows that say what is spoilt and what each end then has: completion,
 * state and event.
 */
#include "tests/sim/scene.h"

#include <errno.h>
#include <stdlib.h>

/* --- 5.3 ---------------------------------------------------------------- */

/* 5.3: local key, range, domain (5.6: and LOCAL_WRITE of a sink); local
 * length. The responder never hears of it. */
Test(outcomes, local_mistakes_on_rc_are_the_requesters_alone)
{
	static const struct scene_row rows[] = {
		{"wrong lkey", IBV_WR_SEND, IBV_WC_LOC_PROT_ERR, NONE, 0, 0},
		{"foreign lkey", IBV_WR_SEND, IBV_WC_LOC_PROT_ERR, NONE, 0, 0},
		{"local range", IBV_WR_SEND, IBV_WC_LOC_PROT_ERR, NONE, 0, 0},
		{"foreign lkey", IBV_WR_RDMA_WRITE, IBV_WC_LOC_PROT_ERR, NONE,
		 0, 0},
		{"local range", IBV_WR_RDMA_WRITE, IBV_WC_LOC_PROT_ERR, NONE, 0,
		 0},
		{"wrong lkey", IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_LOC_PROT_ERR,
		 NONE, 0, 0},
		{"foreign lkey", IBV_WR_RDMA_READ, IBV_WC_LOC_PROT_ERR, NONE, 0,
		 0},
		{"local range", IBV_WR_RDMA_READ, IBV_WC_LOC_PROT_ERR, NONE, 0,
		 0},
		{"plain lkey", IBV_WR_RDMA_READ, IBV_WC_LOC_PROT_ERR, NONE, 0,
		 0},
		{"wrong lkey", IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_LOC_PROT_ERR,
		 NONE, 0, 0},
		{"foreign lkey", IBV_WR_ATOMIC_FETCH_AND_ADD,
		 IBV_WC_LOC_PROT_ERR, NONE, 0, 0},
		{"plain lkey", IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_LOC_PROT_ERR,
		 NONE, 0, 0},
		{"short", IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WC_LOC_LEN_ERR, NONE,
		 0, 0},
		{"short", IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WC_LOC_LEN_ERR, NONE,
		 0, 0},
		{"over a GiB", IBV_WR_SEND, IBV_WC_LOC_LEN_ERR, NONE, 0, 0},
		{"over a GiB", IBV_WR_RDMA_WRITE, IBV_WC_LOC_LEN_ERR, NONE, 0,
		 0},
		/* 5.6: a source needs no flag at all. */
		{"plain lkey", IBV_WR_SEND, IBV_WC_SUCCESS, IBV_WC_SUCCESS, 0,
		 0},
		{"plain lkey", IBV_WR_RDMA_WRITE, IBV_WC_SUCCESS, NONE, 0, 0},
		/* Local before remote, whatever the remote would say. */
		{"wrong lkey, flag of the queue pair", IBV_WR_RDMA_WRITE,
		 IBV_WC_LOC_PROT_ERR, NONE, 0, 0},
	};

	scene_check_rows(rows, COUNT(rows), "mlx5", IBV_QPT_RC);
}

/* 5.3: remote key, range, domain and flags (5.6: on region and queue pair);
 * correction 1 of section 10. */
Test(outcomes, remote_keys_and_flags_on_rc_fail_both_ends)
{
#define ACCESS	IBV_WC_REM_ACCESS_ERR, NONE, IBV_EVENT_QP_ACCESS_ERR, true
#define INV_REQ IBV_WC_REM_INV_REQ_ERR, NONE, IBV_EVENT_QP_REQ_ERR, true
	static const struct scene_row rows[] = {
		{"foreign rkey", IBV_WR_RDMA_WRITE, ACCESS},
		{"foreign rkey", IBV_WR_RDMA_READ, ACCESS},
		{"foreign rkey", IBV_WR_ATOMIC_FETCH_AND_ADD, ACCESS},
		{"remote range", IBV_WR_RDMA_READ, ACCESS},
		{"remote range", IBV_WR_ATOMIC_CMP_AND_SWP, ACCESS},
		{"plain rkey", IBV_WR_RDMA_READ, ACCESS},
		{"plain rkey", IBV_WR_ATOMIC_CMP_AND_SWP, ACCESS},
		{"plain rkey", IBV_WR_ATOMIC_FETCH_AND_ADD, ACCESS},
		{"wrong rkey", IBV_WR_ATOMIC_CMP_AND_SWP, ACCESS},
		{"flag of the queue pair", IBV_WR_ATOMIC_CMP_AND_SWP, INV_REQ},
		{"flag of the queue pair", IBV_WR_ATOMIC_FETCH_AND_ADD,
		 INV_REQ},
		{"depth 0", IBV_WR_RDMA_READ, INV_REQ},
		{"depth 0", IBV_WR_ATOMIC_FETCH_AND_ADD, INV_REQ},
		/* A write needs none of the responder's resources. */
		{"depth 0", IBV_WR_RDMA_WRITE, IBV_WC_SUCCESS, NONE, 0, false},
		/* Check order: flags, resources, and then the key. */
		{"flag of the queue pair, wrong rkey", IBV_WR_RDMA_WRITE,
		 INV_REQ},
		{"flag of the queue pair, wrong rkey", IBV_WR_RDMA_READ,
		 INV_REQ},
		{"depth 0, wrong rkey", IBV_WR_RDMA_READ, INV_REQ},
		/* C9-88 is about keys, not about the queue pair's flags. */
		{"empty, flag of the queue pair", IBV_WR_RDMA_WRITE, INV_REQ},
		{"empty, foreign rkey, remote range", IBV_WR_RDMA_WRITE,
		 IBV_WC_SUCCESS, NONE, 0, false},
	};

	scene_check_rows(rows, COUNT(rows), "mlx5", IBV_QPT_RC);
}

/* 5.3: what a receive meets: length, key, range (5.6: LOCAL_WRITE); none. */
Test(outcomes, receives_that_do_not_fit_on_rc_fail_both_ends)
{
	static const struct scene_row rows[] = {
		{"receive 7", IBV_WR_SEND, IBV_WC_REM_INV_REQ_ERR,
		 IBV_WC_LOC_LEN_ERR, 0, true},
		{"receive wrong", IBV_WR_SEND, IBV_WC_REM_OP_ERR,
		 IBV_WC_LOC_PROT_ERR, 0, true},
		{"receive foreign", IBV_WR_SEND, IBV_WC_REM_OP_ERR,
		 IBV_WC_LOC_PROT_ERR, 0, true},
		{"receive plain", IBV_WR_SEND, IBV_WC_REM_OP_ERR,
		 IBV_WC_LOC_PROT_ERR, 0, true},
		{"receive range", IBV_WR_SEND, IBV_WC_REM_OP_ERR,
		 IBV_WC_LOC_PROT_ERR, 0, true},
		/* 5.7: its sges are ignored, and it is needed. */
		{"receive wrong", IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_SUCCESS,
		 IBV_WC_SUCCESS, 0, false},
		{"receive 7", IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_SUCCESS,
		 IBV_WC_SUCCESS, 0, false},
		{"no receive", IBV_WR_RDMA_WRITE_WITH_IMM,
		 IBV_WC_RNR_RETRY_EXC_ERR, NONE, 0, false},
		{"no receive", IBV_WR_SEND, IBV_WC_RNR_RETRY_EXC_ERR, NONE, 0,
		 false},
		/* A region's key is nobody's to take out of use. */
		{"invalidate nothing", IBV_WR_SEND_WITH_INV,
		 IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR, 0, true},
	};

	scene_check_rows(rows, COUNT(rows), FAST, IBV_QPT_RC);
}

/* 5.2, rule 1: the responder that a message fails flushes its own sends. */
Test(outcomes, a_responder_that_fails_flushes_what_it_sends)
{
	static const struct scene_row row = {
		"wrong rkey", IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR, NONE, 0,
		false};
	struct ibv_qp_attr slow = {.min_rnr_timer = 0};
	struct ibv_wc wc;
	struct scene s;

	scene_set(&s, "mlx5", NULL, IBV_QPT_RC);
	/* No receiver: it waits, and no timer looks at it. */
	CHECK_EQ(ibv_modify_qp(s.rig.end[0].qp, &slow, IBV_QP_MIN_RNR_TIMER),
		 0);
	CHECK_EQ(rig_send(&s.rig.end[1], 5, 0, 8), 0);
	scene_play(&s, &row);
	scene_check_requester(&s, &row);
	wc = rig_wc(&s.rig.end[1]);
	CHECK_EQ(wc.wr_id, 5);
	CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
	scene_strike(&s);
}

/* 5.3: bad content, which is the opcode for the type (2.8). */
Test(outcomes, an_opcode_of_another_type_is_the_requesters_error)
{
	static const struct {
		const char *model;
		enum ibv_qp_type type;
		enum ibv_wr_opcode opcode;
	} rows[] = {
		{"mlx5", IBV_QPT_UC, IBV_WR_RDMA_READ},
		{"mlx5", IBV_QPT_UC, IBV_WR_ATOMIC_CMP_AND_SWP},
		{"mlx5", IBV_QPT_UC, IBV_WR_ATOMIC_FETCH_AND_ADD},
		{"rxe", IBV_QPT_UC, IBV_WR_RDMA_READ},
		{"rxe", IBV_QPT_UC, IBV_WR_LOCAL_INV},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct scene_row row = {
			"", rows[i].opcode, IBV_WC_LOC_QP_OP_ERR, NONE,
			0,  false};

		scene_check_rows(&row, 1, rows[i].model, rows[i].type);
	}
}

/* 5.3: the peer is destroyed (5.1 has the states); and 5.9: the whole budget
 * is spent first. */
Test(outcomes, a_peer_that_is_gone_ends_in_a_timeout)
{
	struct ibv_wc wc;
	struct scene s;

	scene_set(&s, FAST, NULL, IBV_QPT_RC);
	CHECK_EQ(ibv_destroy_qp(s.rig.end[1].qp), 0);
	s.rig.end[1].qp = NULL;
	scene_prepare(&s, IBV_WR_RDMA_WRITE);
	struct ibv_send_wr *bad;

	CHECK_EQ(ibv_post_send(s.rig.end[0].qp, &s.wr, &bad), 0);
	wc = end_wait(&s.rig.end[0]);
	CHECK_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
	CHECK_EQ(wc.vendor_err, 0x81);
	CHECK_EQ(end_state(&s.rig.end[0]), IBV_QPS_ERR);
	scene_strike(&s);
}

/* 5.3: lost on the way: the message is sent again before what follows. */
Test(outcomes, a_gap_on_rc_is_closed_in_order)
{
	struct scene s;

	scene_set(&s, FAST, "a.qp0.tx #1 drop", IBV_QPT_RC);
	for (int i = 0; i < 3; i++) {
		memset(s.rig.end[0].memory + 8 * i, '0' + i, 8);
		CHECK_EQ(rig_recv(&s.rig.end[1], 10 + i, RECV_AT + 8 * i, 8),
			 0);
		CHECK_EQ(rig_send(&s.rig.end[0], i, 8 * i, 8), 0);
	}
	for (int i = 0; i < 3; i++) {
		struct ibv_wc wc = end_wait(&s.rig.end[0]);

		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		CHECK_EQ(wc.wr_id, i);
		CHECK_EQ(rig_wc(&s.rig.end[1]).wr_id, 10 + i);
		CHECK_EQ(s.rig.end[1].memory[RECV_AT + 8 * i], '0' + i);
	}
	CHECK_EQ(end_state(&s.rig.end[1]), IBV_QPS_RTS);
	CHECK_EQ(rig_fault(&s.rig, 0)->fired, 1);
	scene_strike(&s);
}

/* 5.3: a number that is not the expected one; 5.4: UC begins with any. */
Test(outcomes, a_wrong_first_number_is_no_answer_on_rc_and_nothing_on_uc)
{
	static const struct {
		enum ibv_qp_type type;
		struct scene_row row;
	} rows[] = {
		{IBV_QPT_RC,
		 {"", IBV_WR_SEND, IBV_WC_RETRY_EXC_ERR, NONE, 0, false}},
		{IBV_QPT_RC,
		 {"", IBV_WR_RDMA_WRITE, IBV_WC_RETRY_EXC_ERR, NONE, 0, false}},
		{IBV_QPT_UC, {"", IBV_WR_SEND, IBV_WC_SUCCESS, 0, 0, false}},
	};
	struct ibv_qp_attr to = {.rq_psn = 7};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct scene s;

		scene_set(&s, FAST, NULL, rows[i].type);
		scene_reconnect(&s, 1, IBV_QP_RQ_PSN, &to);
		scene_play(&s, &rows[i].row);
		scene_check_requester(&s, &rows[i].row);
		scene_check_responder(&s, &rows[i].row);
		scene_strike(&s);
	}
}

/* 2.10, 3.6: the path MTU is over the wire's, and taken; what is longer than
 * the wire's never arrives. */
Test(outcomes, a_path_mtu_over_the_wires_loses_what_is_longer)
{
	static const struct {
		enum ibv_qp_type type;
		uint32_t len;
		enum ibv_wc_status requester;
		int received;
	} rows[] = {
		{IBV_QPT_RC, 1024, IBV_WC_SUCCESS, 1},
		{IBV_QPT_RC, 1025, IBV_WC_RETRY_EXC_ERR, 0},
		{IBV_QPT_UC, 1024, IBV_WC_SUCCESS, 1},
		{IBV_QPT_UC, 1025, IBV_WC_SUCCESS, 0},
	};
	struct ibv_qp_attr to = {.path_mtu = IBV_MTU_4096};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct ibv_wc wc;
		struct scene s;

		scene_set(&s, "rxe,timers=1000", NULL, rows[i].type);
		for (int end = 0; end < 2; end++)
			scene_reconnect(&s, end, IBV_QP_PATH_MTU, &to);
		CHECK_EQ(rig_recv(&s.rig.end[1], 1, 0, 4096), 0);
		CHECK_EQ(rig_send(&s.rig.end[0], 2, 0, rows[i].len), 0);
		CHECK_EQ(end_wait(&s.rig.end[0]).status, rows[i].requester);
		CHECK_EQ(ibv_poll_cq(s.rig.end[1].cq, 1, &wc),
			 rows[i].received);
		CHECK_EQ(end_state(&s.rig.end[1]), IBV_QPS_RTS);
		scene_strike(&s);
	}
}

/* --- 5.4 ---------------------------------------------------------------- */

/* 5.4: what a responder refuses is silence on both ends; the receive and the
 * memory stay as they were. */
Test(outcomes, uc_drops_without_a_word_what_its_responder_refuses)
{
	static const char *const models[] = {"mlx5", "rxe"};
	static const char *const mistakes[] = {
		"wrong rkey",	"foreign rkey",		  "plain rkey",
		"remote range", "flag of the queue pair", "no receive"};
	static const enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE_WITH_IMM,
						     IBV_WR_RDMA_WRITE};

	for (size_t i = 0; i < 2 * 2 * COUNT(mistakes); i++) {
		struct scene_row row = {mistakes[i / 4],
					opcodes[i % 2],
					IBV_WC_SUCCESS,
					NONE,
					0,
					false};
		struct scene s;

		/* A plain write needs no receive. */
		if (strstr(row.what, "receive"))
			row.opcode = i % 2 ? IBV_WR_SEND
					   : IBV_WR_RDMA_WRITE_WITH_IMM;
		scene_set(&s, models[i / 2 % 2], NULL, IBV_QPT_UC);
		memset(s.rig.end[0].memory, 0xaa, 8);
		scene_play(&s, &row);
		scene_check_requester(&s, &row);
		scene_check_responder(&s, &row);
		CHECK_EQ(s.rig.end[1].memory[0], 0);
		CHECK_EQ(s.rig.end[1].memory[RECV_AT], 0);
		/* The next message finds the receive, if there was one. */
		CHECK_EQ(rig_send(&s.rig.end[0], 1, 0, 8), 0);
		if (s.has_recv)
			CHECK_EQ(rig_wc(&s.rig.end[1]).wr_id, RECV_ID);
		rig_no_wc(&s.rig.end[1]);
		scene_strike(&s);
	}
}

/* 5.4: the requester's own errors are local, and fail it (5.1: to ERR). */
Test(outcomes, local_mistakes_on_uc_are_the_requesters_alone)
{
	static const struct scene_row rows[] = {
		{"wrong lkey", IBV_WR_SEND, IBV_WC_LOC_PROT_ERR, NONE, 0, 0},
		{"foreign lkey", IBV_WR_RDMA_WRITE, IBV_WC_LOC_PROT_ERR, NONE,
		 0, 0},
		{"local range", IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WC_LOC_PROT_ERR,
		 NONE, 0, 0},
		{"over a GiB", IBV_WR_SEND, IBV_WC_LOC_LEN_ERR, NONE, 0, 0},
		{"plain lkey", IBV_WR_SEND, IBV_WC_SUCCESS, IBV_WC_SUCCESS, 0,
		 0},
	};

	scene_check_rows(rows, COUNT(rows), "mlx5", IBV_QPT_UC);
}

/* 5.4: a receive that does not fit is the responder's error, or nobody's. */
Test(outcomes, a_uc_receive_that_does_not_fit_is_the_models)
{
	static const struct {
		const char *model;
		struct scene_row row;
	} rows[] = {
		{"mlx5",
		 {"receive 7", IBV_WR_SEND, 0, IBV_WC_LOC_LEN_ERR, 0, true}},
		{"mlx5",
		 {"receive wrong", IBV_WR_SEND, 0, IBV_WC_LOC_PROT_ERR, 0,
		  true}},
		{"mlx5,uc_short_recv=drop",
		 {"receive 7", IBV_WR_SEND, 0, NONE, 0, false}},
		{"rxe", {"receive 7", IBV_WR_SEND, 0, NONE, 0, false}},
	};

	for (size_t i = 0; i < COUNT(rows); i++)
		scene_check_rows(&rows[i].row, 1, rows[i].model, IBV_QPT_UC);
}

/* 5.4: what is lost leaves its receive to the next; order is kept. */
Test(outcomes, a_gap_on_uc_is_told_to_nobody)
{
	struct scene s;

	scene_set(&s, "mlx5", "a.qp0.tx #1 drop", IBV_QPT_UC);
	for (int i = 0; i < 3; i++) {
		memset(s.rig.end[0].memory, '0' + i, 8);
		CHECK_EQ(rig_recv(&s.rig.end[1], 10 + i, RECV_AT + 8 * i, 8),
			 0);
		CHECK_EQ(rig_send(&s.rig.end[0], i, 0, 8), 0);
		CHECK_EQ(rig_wc(&s.rig.end[0]).status, IBV_WC_SUCCESS);
	}
	CHECK_EQ(rig_wc(&s.rig.end[1]).wr_id, 10);
	CHECK_EQ(rig_wc(&s.rig.end[1]).wr_id, 11);
	rig_no_wc(&s.rig.end[1]);
	CHECK_EQ(s.rig.end[1].memory[RECV_AT], '0');
	CHECK_EQ(s.rig.end[1].memory[RECV_AT + 8], '2');
	CHECK_EQ(end_state(&s.rig.end[1]), IBV_QPS_RTS);
	CHECK_EQ(end_event_type(&s.rig.end[1]), 0);
	scene_strike(&s);
}
