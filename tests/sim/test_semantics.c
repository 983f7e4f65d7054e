/* SPDX-License-Identifier: MIT */
/*
 * Goal: states, flushing and shared receive queues are those of sections 5.1,
 * 5.2 and 5.8 on the default device, and Soft-RoCE's where 3.6 says that they
 * differ. Method: a pair in a private world, both ends looked at.
 */
#include "tests/sim/scene.h"

#include <errno.h>
#include <stdlib.h>

/* --- 5.1 ---------------------------------------------------------------- */

/* 5.1: post recv, post send. What is taken in ERR is flushed, and in SQD a
 * send is held. */
Test(semantics, a_state_takes_posts_or_refuses_them)
{
	static const struct {
		enum ibv_qp_state state;
		int recv, send, completions;
	} rows[] = {
		{IBV_QPS_RESET, EINVAL, ENOMEM, 0},
		{IBV_QPS_INIT, 0, ENOMEM, 0},
		{IBV_QPS_RTR, 0, ENOMEM, 0},
		{IBV_QPS_RTS, 0, 0, 1},
		{IBV_QPS_SQD, 0, 0, 0},
		{IBV_QPS_ERR, 0, 0, 2},
	};

	setenv("VERBENA_QUIET", "1", 1);
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct ibv_wc wc[4];
		struct rig rig;

		rig_open(&rig, "mlx5", NULL);
		rig_make(&rig.end[0], IBV_QPT_RC, 8);
		rig_make(&rig.end[1], IBV_QPT_RC, 8);
		scene_bring(&rig, 0, IBV_QPS_RTS);
		CHECK_EQ(rig_recv(&rig.end[0], 0, 0, 8), 0);
		scene_bring(&rig, 1, rows[i].state);
		CHECK_EQ(rig_recv(&rig.end[1], 1, 0, 8), rows[i].recv);
		CHECK_EQ(rig_send(&rig.end[1], 2, 0, 8), rows[i].send);
		int got = ibv_poll_cq(rig.end[1].cq, 4, wc);

		CHECK(got == rows[i].completions, "state %d: %d completions",
		      rows[i].state, got);
		for (int n = 0; n < got; n++)
			CHECK_EQ(wc[n].status, rows[i].state == IBV_QPS_ERR
						       ? IBV_WC_WR_FLUSH_ERR
						       : IBV_WC_SUCCESS);
		CHECK_EQ(ibv_poll_cq(rig.end[0].cq, 4, wc),
			 rows[i].state == IBV_QPS_RTS);
		CHECK_EQ(end_state(&rig.end[1]), rows[i].state);
		rig_close(&rig);
	}
}

/* 5.1: incoming requests; 5.3: a peer in RESET, INIT or ERR. UC: silence. */
Test(semantics, a_state_serves_messages_or_drops_them)
{
	static const struct {
		enum ibv_qp_state state;
		bool is_served;
	} rows[] = {
		{IBV_QPS_RESET, false}, {IBV_QPS_INIT, false},
		{IBV_QPS_RTR, true},	{IBV_QPS_RTS, true},
		{IBV_QPS_SQD, true},	{IBV_QPS_ERR, false},
	};

	setenv("VERBENA_QUIET", "1", 1);
	for (size_t i = 0; i < 2 * COUNT(rows); i++) {
		enum ibv_qp_state state = rows[i / 2].state;
		bool is_served = rows[i / 2].is_served, is_rc = i % 2 == 0;
		struct ibv_wc wc;
		struct rig rig;

		rig_open(&rig, FAST, NULL);
		for (int end = 0; end < 2; end++)
			rig_make(&rig.end[end], is_rc ? IBV_QPT_RC : IBV_QPT_UC,
				 8);
		scene_bring(&rig, 0, IBV_QPS_RTS);
		scene_bring(&rig, 1, state);
		/* INIT: accepted, not processed. */
		if (state != IBV_QPS_RESET)
			CHECK_EQ(rig_recv(&rig.end[1], 1, 0, 8), 0);
		if (state == IBV_QPS_ERR)
			CHECK_EQ(rig_wc(&rig.end[1]).status,
				 IBV_WC_WR_FLUSH_ERR);
		CHECK_EQ(rig_send(&rig.end[0], 2, 0, 8), 0);
		wc = end_wait(&rig.end[0]);
		CHECK(wc.status == (is_served || !is_rc ? IBV_WC_SUCCESS
							: IBV_WC_RETRY_EXC_ERR),
		      "state %d: status %d", state, wc.status);
		CHECK_EQ(end_state(&rig.end[0]),
			 is_served || !is_rc ? IBV_QPS_RTS : IBV_QPS_ERR);
		if (is_served)
			CHECK_EQ(rig_wc(&rig.end[1]).status, IBV_WC_SUCCESS);
		rig_no_wc(&rig.end[1]);
		CHECK_EQ(end_state(&rig.end[1]), state);
		rig_close(&rig);
	}
}

/* 5.1: RESET empties the queues and takes their completions back. */
Test(semantics, reset_leaves_nothing_of_the_life_before)
{
	struct rig rig;

	scene_pair(&rig, "mlx5", IBV_QPT_UC);
	CHECK_EQ(rig_recv(&rig.end[1], 1, 0, 8), 0);
	CHECK_EQ(rig_recv(&rig.end[1], 2, 0, 8), 0);
	CHECK_EQ(rig_send(&rig.end[0], 3, 0, 8), 0);
	scene_connect(&rig);
	rig_no_wc(&rig.end[0]);
	rig_no_wc(&rig.end[1]);
	/* Nor is the second receive there: the message is lost. */
	CHECK_EQ(rig_send(&rig.end[0], 4, 0, 8), 0);
	CHECK_EQ(rig_wc(&rig.end[0]).wr_id, 4);
	rig_no_wc(&rig.end[1]);
	rig_close(&rig);
}

/* 5.1, 5.8: SQD holds what is posted; SQ_DRAINED is for who asks. */
Test(semantics, a_drained_queue_holds_its_sends_until_rts)
{
	static const char *const models[] = {"mlx5", "rxe"};

	for (int i = 0; i < 4; i++) {
		struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD,
					   .en_sqd_async_notify = 1};
		bool asks = i % 2;
		struct rig rig;

		scene_pair(&rig, models[i / 2], IBV_QPT_RC);
		CHECK_EQ(
			ibv_modify_qp(rig.end[0].qp, &attr,
				      IBV_QP_STATE |
					      (asks ? IBV_QP_EN_SQD_ASYNC_NOTIFY
						    : 0)),
			0);
		end_check_event(&rig.end[0], asks ? IBV_EVENT_SQ_DRAINED : 0,
				asks ? rig.end[0].qp : NULL);
		for (int n = 0; n < 2; n++) {
			CHECK_EQ(rig_recv(&rig.end[1], 10 + n, 0, 8), 0);
			CHECK_EQ(rig_send(&rig.end[0], n, 0, 8), 0);
		}
		rig_no_wc(&rig.end[0]);
		rig_no_wc(&rig.end[1]);
		attr.qp_state = IBV_QPS_RTS;
		CHECK_EQ(ibv_modify_qp(rig.end[0].qp, &attr, IBV_QP_STATE), 0);
		for (int n = 0; n < 2; n++) {
			CHECK_EQ(rig_wc(&rig.end[0]).wr_id, n);
			CHECK_EQ(rig_wc(&rig.end[1]).wr_id, 10 + n);
		}
		end_check_event(&rig.end[1], 0, NULL);
		rig_close(&rig);
	}
}

/* 3.3, 3.6: Soft-RoCE refuses an early send, and yet it goes out. */
Test(semantics, rxe_keeps_what_it_refuses_before_rts)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr, *bad = &wr;
	struct rig rig;

	setenv("VERBENA_QUIET", "1", 1);
	rig_open(&rig, "rxe", NULL);
	rig_make(&rig.end[0], IBV_QPT_RC, 8);
	rig_make(&rig.end[1], IBV_QPT_RC, 8);
	rig_connect(&rig, IBV_QPS_RTR);
	CHECK_EQ(rig_recv(&rig.end[1], 1, 64, 8), 0);
	memcpy(rig.end[0].memory, "early...", 8);
	wr = end_request(&rig.end[0], &sge, 2);
	wr.send_flags = IBV_SEND_SIGNALED;
	CHECK_EQ(ibv_post_send(rig.end[0].qp, &wr, &bad), EINVAL);
	CHECK(!bad, "bad_wr names a request that was queued");
	rig_no_wc(&rig.end[1]);
	CHECK_EQ(rig_modify(&rig.end[0], &rig.end[1], IBV_QPS_RTS), 0);
	CHECK_EQ(rig_wc(&rig.end[0]).wr_id, 2);
	CHECK_EQ(rig_wc(&rig.end[1]).wr_id, 1);
	CHECK(memcmp(rig.end[1].memory + 64, "early...", 8) == 0, "data");
	rig_close(&rig);
}

/* --- 5.2 ---------------------------------------------------------------- */

/* 5.2, rules 1 to 4: the second of these, unsignaled, fails. */
Test(semantics, a_failure_keeps_what_finished_and_flushes_the_rest)
{
	static const struct {
		uint64_t wr_id;
		enum ibv_wc_status status;
		uint32_t vendor_err;
	} want[2][3] = {
		{{0, IBV_WC_SUCCESS, 0},
		 {1, IBV_WC_LOC_PROT_ERR, 0x51},
		 {2, IBV_WC_WR_FLUSH_ERR, 0xf9}},
		{{10, IBV_WC_WR_FLUSH_ERR, 0xf9},
		 {11, IBV_WC_WR_FLUSH_ERR, 0xf9}},
	};
	struct ibv_send_wr wr[3], *bad;
	struct ibv_sge sge[3];
	struct ibv_wc wc[8];
	int seen[2] = {0};
	struct rig rig;

	scene_pair(&rig, "mlx5", IBV_QPT_RC);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(rig_recv(&rig.end[0], 10 + i, 0, 8), 0);
	CHECK_EQ(rig_recv(&rig.end[1], 20, 0, 8), 0);
	for (int i = 0; i < 3; i++) {
		wr[i] = end_request(&rig.end[0], &sge[i], i);
		wr[i].next = i < 2 ? &wr[i + 1] : NULL;
	}
	wr[0].send_flags = IBV_SEND_SIGNALED;
	sge[1].lkey ^= 1;
	CHECK_EQ(ibv_post_send(rig.end[0].qp, wr, &bad), 0);
	CHECK_EQ(ibv_poll_cq(rig.end[0].cq, 8, wc), 5);
	/* Order among the two queues is free. */
	for (int i = 0; i < 5; i++) {
		int queue = wc[i].wr_id >= 10, n = seen[queue]++;

		CHECK_EQ(wc[i].wr_id, want[queue][n].wr_id);
		CHECK_EQ(wc[i].status, want[queue][n].status);
		CHECK_EQ(wc[i].vendor_err, want[queue][n].vendor_err);
		CHECK_EQ(wc[i].qp_num, rig.end[0].qp->qp_num);
	}
	CHECK_EQ(end_state(&rig.end[0]), IBV_QPS_ERR);
	CHECK_EQ(rig_wc(&rig.end[1]).wr_id, 20);
	CHECK_EQ(end_state(&rig.end[1]), IBV_QPS_RTS);
	rig_close(&rig);
}

/* 5.2, rules 3 and 5: unsignaled ones too, in the order of their posting. */
Test(semantics, moving_to_error_flushes_what_is_unsignaled)
{
	struct rig rig;

	scene_pair(&rig, "mlx5", IBV_QPT_RC);
	for (int i = 0; i < 3; i++) /* no receiver: they wait */
		CHECK_EQ(end_post(&rig.end[0], i, 0), 0);
	CHECK_EQ(rig_modify(&rig.end[0], NULL, IBV_QPS_ERR), 0);
	CHECK_EQ(end_post(&rig.end[0], 3, 0), 0);
	for (int i = 0; i < 4; i++) {
		struct ibv_wc wc = rig_wc(&rig.end[0]);

		CHECK_EQ(wc.wr_id, i);
		CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
	}
	rig_no_wc(&rig.end[0]);
	/* What waited is gone: a receive finds nothing. */
	CHECK_EQ(rig_recv(&rig.end[1], 9, 0, 8), 0);
	rig_no_wc(&rig.end[1]);
	rig_close(&rig);
}

/* 5.2, rule 8; 3.6. */
Test(semantics, completions_of_a_destroyed_queue_pair_are_the_models)
{
	static const struct {
		const char *model;
		int left;
	} rows[] = {{"mlx5", 0}, {"rxe", 1}};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct ibv_wc wc[4];
		struct rig rig;

		scene_pair(&rig, rows[i].model, IBV_QPT_UC);
		CHECK_EQ(rig_recv(&rig.end[1], 1, 0, 8), 0);
		CHECK_EQ(rig_send(&rig.end[0], 2, 0, 8), 0);
		for (int end = 0; end < 2; end++) {
			CHECK_EQ(ibv_destroy_qp(rig.end[end].qp), 0);
			rig.end[end].qp = NULL;
			CHECK_EQ(ibv_poll_cq(rig.end[end].cq, 4, wc),
				 rows[i].left);
			if (rows[i].left)
				CHECK_EQ(wc[0].wr_id, 2 - end);
		}
		rig_close(&rig);
	}
}

/* --- shared receive queues (5.2, 5.8) ----------------------------------- */

static void post_shared(struct rig_end *end, struct ibv_srq *srq,
			uint64_t wr_id, const struct ibv_mr *mr, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)end->memory, len, mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	CHECK_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
}

/* End 1 draws from a shared queue of this domain with `count` receives. */
static struct ibv_srq *share(struct rig *rig, struct ibv_pd *pd, int count)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_qp_init_attr qp = {.qp_type = rig->end[1].qp->qp_type,
				      .cap = {8, 8, 1, 1, 0}};
	struct ibv_srq *srq = ibv_create_srq(pd, &init);

	CHECK(srq, "create_srq: errno %d", errno);
	qp.srq = srq;
	end_replace(&rig->end[1], &qp);
	scene_connect(rig);
	for (int i = 0; i < count; i++)
		post_shared(&rig->end[1], srq, 100 + i, rig->end[1].mr, 64);
	return srq;
}

static void unshare(struct rig *rig, struct ibv_srq *srq)
{
	CHECK_EQ(ibv_destroy_qp(rig->end[1].qp), 0);
	rig->end[1].qp = NULL;
	CHECK_EQ(ibv_destroy_srq(srq), 0);
}

/* 5.2, rule 6, and correction 2 of section 10. */
Test(semantics, the_last_request_of_a_shared_queue_is_told_by_kernel)
{
	static const struct {
		const char *model;
		bool tells;
	} rows[] = {{"mlx5", true}, {"rxe", false}, {"rxe,kernel=6.12", true}};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct ibv_srq *srq;
		struct rig rig;

		scene_pair(&rig, rows[i].model, IBV_QPT_RC);
		srq = share(&rig, rig.end[1].pd, 2);
		CHECK_EQ(rig_modify(&rig.end[1], NULL, IBV_QPS_ERR), 0);
		end_check_event(&rig.end[1],
				rows[i].tells ? IBV_EVENT_QP_LAST_WQE_REACHED
					      : 0,
				rows[i].tells ? rig.end[1].qp : NULL);
		rig_no_wc(&rig.end[1]);
		/* What is in it is for others: here, for its next life. */
		scene_connect(&rig);
		CHECK_EQ(rig_send(&rig.end[0], 1, 0, 8), 0);
		CHECK_EQ(rig_wc(&rig.end[1]).wr_id, 100);
		unshare(&rig, srq);
		rig_close(&rig);
	}
}

/* 5.2, rule 6: the same when the peer's message brings the error. */
Test(semantics, a_responder_that_fails_leaves_the_shared_queue_alone)
{
	struct ibv_srq *srq;
	struct rig rig;

	scene_pair(&rig, "mlx5", IBV_QPT_RC);
	srq = share(&rig, rig.end[1].pd, 2);
	CHECK_EQ(rig_send(&rig.end[0], 1, 0, 65), 0);
	CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_REM_INV_REQ_ERR);
	CHECK_EQ(rig_wc(&rig.end[1]).status, IBV_WC_LOC_LEN_ERR);
	rig_no_wc(&rig.end[1]);
	end_check_event(&rig.end[1], IBV_EVENT_QP_LAST_WQE_REACHED,
			rig.end[1].qp);
	unshare(&rig, srq);
	rig_close(&rig);
}

/* 5.8: the limit is one shot, and armed again; below it, it fires at once. */
Test(semantics, a_limit_fires_below_it_and_is_armed_again)
{
	struct ibv_srq_attr arm = {.srq_limit = 2, .max_wr = 16}, now;
	struct ibv_srq *srq;
	struct rig rig;

	scene_pair(&rig, "mlx5", IBV_QPT_RC);
	srq = share(&rig, rig.end[1].pd, 3);
	for (int i = 0; i < 2; i++) {
		CHECK_EQ(ibv_modify_srq(srq, &arm, IBV_SRQ_LIMIT), 0);
		end_check_event(&rig.end[1], 0, NULL);
		CHECK_EQ(rig_send(&rig.end[0], 0, 0, 8), 0);
		end_check_event(&rig.end[1], 0,
				NULL); /* 2 are left: not below */
		CHECK_EQ(rig_send(&rig.end[0], 1, 0, 8), 0);
		end_check_event(&rig.end[1], IBV_EVENT_SRQ_LIMIT_REACHED, srq);
		CHECK_EQ(ibv_query_srq(srq, &now), 0);
		CHECK_EQ(now.srq_limit, 0);
		post_shared(&rig.end[1], srq, 200, rig.end[1].mr, 64);
		post_shared(&rig.end[1], srq, 201, rig.end[1].mr, 64);
	}
	arm.srq_limit = 4; /* of 3 */
	CHECK_EQ(ibv_modify_srq(srq, &arm, IBV_SRQ_LIMIT), 0);
	end_check_event(&rig.end[1], IBV_EVENT_SRQ_LIMIT_REACHED, srq);
	/* 5.8, 2.9: no resizing, and no limit that is never crossed. */
	CHECK_EQ(ibv_modify_srq(srq, &arm, IBV_SRQ_MAX_WR), EINVAL);
	arm.srq_limit = 15; /* its size */
	CHECK_EQ(ibv_modify_srq(srq, &arm, IBV_SRQ_LIMIT), EINVAL);
	unshare(&rig, srq);
	rig_close(&rig);
}

/* 5.8: keys are of the queue pair's domain, not of the shared queue's. */
Test(semantics, a_shared_queue_of_another_domain_serves_no_key_of_it)
{
	struct ibv_srq *srq;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct rig rig;

	scene_pair(&rig, "mlx5", IBV_QPT_RC);
	pd = ibv_alloc_pd(rig.end[1].context);
	mr = ibv_reg_mr(pd, rig.end[1].memory, 64, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr, "reg_mr: errno %d", errno);
	srq = share(&rig, pd, 0);
	post_shared(&rig.end[1], srq, 5, mr, 64);
	CHECK_EQ(rig_send(&rig.end[0], 1, 0, 8), 0);
	CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_REM_OP_ERR);
	CHECK_EQ(rig_wc(&rig.end[1]).status, IBV_WC_LOC_PROT_ERR);
	CHECK_EQ(end_state(&rig.end[1]), IBV_QPS_ERR);
	unshare(&rig, srq);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	CHECK_EQ(ibv_dealloc_pd(pd), 0);
	rig_close(&rig);
}

/* 2.9, 3.6. */
Test(semantics, rxe_grants_no_receives_beside_a_shared_queue)
{
	static const struct {
		const char *model;
		uint32_t recv_wr, recv_sge;
	} rows[] = {{"mlx5", 8, 1}, {"rxe", 0, 0}};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct ibv_srq_init_attr init = {.attr = {8, 1, 0}};
		struct ibv_qp_init_attr qp = {.qp_type = IBV_QPT_RC,
					      .cap = {8, 8, 1, 1, 0}};
		struct rig rig;

		scene_pair(&rig, rows[i].model, IBV_QPT_RC);
		qp.srq = ibv_create_srq(rig.end[1].pd, &init);
		end_replace(&rig.end[1], &qp);
		CHECK_EQ(qp.cap.max_recv_wr, rows[i].recv_wr);
		CHECK_EQ(qp.cap.max_recv_sge, rows[i].recv_sge);
		CHECK_EQ(rig_modify(&rig.end[1], NULL, IBV_QPS_INIT), 0);
		CHECK_EQ(rig_recv(&rig.end[1], 0, 0, 8), EINVAL);
		unshare(&rig, qp.srq);
		rig_close(&rig);
	}
}

/* 3.3, 3.6: without a shared queue it is silence (5.4). */
Test(semantics, rxe_tells_of_a_short_shared_receive_on_uc)
{
	struct ibv_srq *srq;
	struct rig rig;

	scene_pair(&rig, "rxe", IBV_QPT_UC);
	srq = share(&rig, rig.end[1].pd, 2);
	CHECK_EQ(rig_send(&rig.end[0], 1, 0, 65), 0);
	CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_SUCCESS);
	CHECK_EQ(rig_wc(&rig.end[1]).status, IBV_WC_REM_INV_REQ_ERR);
	CHECK_EQ(end_state(&rig.end[1]), IBV_QPS_RTS);
	CHECK_EQ(rig_send(&rig.end[0], 2, 0, 64), 0);
	CHECK_EQ(rig_wc(&rig.end[1]).wr_id, 101);
	unshare(&rig, srq);
	rig_close(&rig);
}
