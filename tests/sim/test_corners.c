/* SPDX-License-Identifier: MIT */
/*
 * Goal: rows of section 5 that are easily got wrong hold, too. Method: a
 * pair in a private world, both ends looked at.
 */
#include "tests/sim/scene.h"

#include <errno.h>

/* End 1 receives into a queue of one completion. */
static struct ibv_cq *narrow(struct rig *rig, const char *model)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_UC,
					.cap = {8, 8, 1, 1, 0}};
	struct ibv_cq *cq;

	scene_pair(rig, model, IBV_QPT_UC);
	cq = ibv_create_cq(rig->end[1].context, 1, NULL, NULL, 0);
	init.recv_cq = cq;
	end_replace(&rig->end[1], &init);
	scene_connect(rig);
	return cq;
}

static void close_narrow(struct rig *rig, struct ibv_cq *cq)
{
	CHECK_EQ(ibv_destroy_qp(rig->end[1].qp), 0);
	rig->end[1].qp = NULL;
	CHECK_EQ(ibv_destroy_cq(cq), 0);
	rig_close(rig);
}

static struct ibv_srq *share(struct rig *rig)
{
	struct ibv_srq_init_attr init = {
		.attr = {.max_wr = 8, .max_sge = 1, .srq_limit = 4}};
	struct ibv_qp_init_attr qp = {.qp_type = IBV_QPT_RC,
				      .cap = {8, 8, 1, 1, 0}};

	scene_pair(rig, "mlx5", IBV_QPT_RC);
	qp.srq = ibv_create_srq(rig->end[1].pd, &init);
	end_replace(&rig->end[1], &qp);
	scene_connect(rig);
	return qp.srq;
}

static void unshare(struct rig *rig, struct ibv_srq *srq)
{
	CHECK_EQ(ibv_destroy_qp(rig->end[1].qp), 0);
	rig->end[1].qp = NULL;
	CHECK_EQ(ibv_destroy_srq(srq), 0);
	rig_close(rig);
}

/* 5.3, check order: resources (the receive) before the key. */
Test(corners, a_missing_receive_is_seen_before_a_wrong_key)
{
	static const struct scene_row row = {"wrong rkey, no receive",
					     IBV_WR_RDMA_WRITE_WITH_IMM,
					     IBV_WC_RNR_RETRY_EXC_ERR,
					     NONE,
					     0,
					     false};

	scene_check_rows(&row, 1, FAST, IBV_QPT_RC);
}

/* 5.3: the receive that a write with immediate took says why. */
Test(corners, a_receive_that_a_refused_write_took_is_an_access_error)
{
	static const struct scene_row row = {"wrong rkey",
					     IBV_WR_RDMA_WRITE_WITH_IMM,
					     IBV_WC_REM_ACCESS_ERR,
					     IBV_WC_LOC_ACCESS_ERR,
					     IBV_EVENT_QP_ACCESS_ERR,
					     true};

	scene_check_rows(&row, 1, "mlx5", IBV_QPT_RC);
}

/* 5.3: a duplicate is acknowledged again, and not received. */
Test(corners, a_duplicate_on_rc_takes_no_second_receive)
{
	struct rig rig;

	rig_pair(&rig, "mlx5", "a.qp0.tx #0 dup", IBV_QPT_RC);
	CHECK_EQ(rig_recv(&rig.end[1], 1, 0, 8), 0);
	CHECK_EQ(rig_recv(&rig.end[1], 2, 64, 8), 0);
	CHECK_EQ(rig_send(&rig.end[0], 3, 0, 8), 0);
	CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_SUCCESS);
	rig_no_wc(&rig.end[0]);
	CHECK_EQ(rig_wc(&rig.end[1]).wr_id, 1);
	rig_no_wc(&rig.end[1]);
	CHECK_EQ(rig_fault(&rig, 0)->fired, 1);
	CHECK_EQ(rig_fault(&rig, 0)->effective, 0);
	rig_close(&rig);
}

/* 5.2, rule 6: whatever brought the queue pair to ERR, and once. */
Test(corners, a_send_that_fails_tells_of_the_last_request_once)
{
	struct ibv_srq *srq;
	struct rig rig;

	srq = share(&rig);
	rig.end[1].mr->lkey ^= 1;
	CHECK_EQ(rig_send(&rig.end[1], 1, 0, 8), 0);
	rig.end[1].mr->lkey ^= 1;
	CHECK_EQ(rig_wc(&rig.end[1]).status, IBV_WC_LOC_PROT_ERR);
	end_check_event(&rig.end[1], IBV_EVENT_QP_LAST_WQE_REACHED,
			rig.end[1].qp);
	CHECK_EQ(rig_modify(&rig.end[1], NULL, IBV_QPS_ERR), 0);
	end_check_event(&rig.end[1], 0, NULL);
	unshare(&rig, srq);
}

/* 5.1: what was started is finished, and then the queue is drained. */
Test(corners, a_drained_queue_has_finished_what_it_started)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_SQD,
				   .en_sqd_async_notify = 1};
	struct rig rig;

	scene_pair(&rig, "mlx5", IBV_QPT_RC);
	CHECK_EQ(rig_send(&rig.end[0], 1, 0, 8), 0); /* and waits */
	CHECK_EQ(ibv_modify_qp(rig.end[0].qp, &attr,
			       IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY),
		 0);
	CHECK_EQ(rig_send(&rig.end[0], 2, 0, 8), 0); /* is held */
	end_check_event(&rig.end[0], 0, NULL);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(rig_recv(&rig.end[1], i, 0, 8), 0);
	CHECK_EQ(rig_wc(&rig.end[0]).wr_id, 1);
	rig_no_wc(&rig.end[0]);
	end_check_event(&rig.end[0], IBV_EVENT_SQ_DRAINED, rig.end[0].qp);
	end_check_event(&rig.end[0], 0, NULL);
	CHECK_EQ(rig_wc(&rig.end[1]).wr_id, 0);
	rig_no_wc(&rig.end[1]);
	rig_close(&rig);
}

/* 5.1, 5.2, rule 8: what is taken back takes no room. */
Test(corners, completions_that_reset_took_back_leave_their_room)
{
	struct ibv_wc wc;
	struct ibv_cq *cq;
	struct rig rig;

	cq = narrow(&rig, "mlx5");
	for (int i = 0; i < 2; i++) {
		scene_connect(&rig);
		CHECK_EQ(rig_recv(&rig.end[1], i, 0, 8), 0);
		CHECK_EQ(rig_send(&rig.end[0], i, 0, 8), 0);
	}
	end_check_event(&rig.end[1], 0, NULL);
	CHECK_EQ(ibv_poll_cq(cq, 1, &wc), 1);
	CHECK_EQ(wc.wr_id, 1);
	close_narrow(&rig, cq);
}

/* 3.5, 5.7: a card's queue is dead after an overrun; 3.6: Soft-RoCE's has
 * lost one completion, and that is all. */
Test(corners, an_overrun_kills_a_cards_queue_and_not_rxes)
{
	static const struct {
		const char *model;
		bool lives;
	} rows[] = {{"mlx5", false}, {"rxe", true}};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct ibv_wc wc;
		struct ibv_cq *cq;
		struct rig rig;

		cq = narrow(&rig, rows[i].model);
		for (int n = 0; n < 2; n++) {
			CHECK_EQ(rig_recv(&rig.end[1], n, 0, 8), 0);
			CHECK_EQ(rig_send(&rig.end[0], n, 0, 8), 0);
		}
		end_check_event(&rig.end[1], IBV_EVENT_CQ_ERR, cq);
		CHECK_EQ(ibv_poll_cq(cq, 1, &wc), 1);
		CHECK_EQ(wc.wr_id, 0);
		CHECK_EQ(ibv_poll_cq(cq, 1, &wc) == 0, rows[i].lives);
		CHECK_EQ(rig_recv(&rig.end[1], 2, 0, 8), 0);
		CHECK_EQ(rig_send(&rig.end[0], 2, 0, 8), 0);
		CHECK_EQ(ibv_poll_cq(cq, 1, &wc) == 1, rows[i].lives);
		close_narrow(&rig, cq);
	}
}

/* 5.8: COMM_EST is of the first message in each RTR. */
Test(corners, the_first_message_is_told_in_each_life)
{
	struct rig rig;

	scene_pair(&rig, "mlx5", IBV_QPT_RC);
	for (int i = 0; i < 2; i++) {
		for (int end = 0; end < 2; end++)
			CHECK_EQ(rig_modify(&rig.end[end], NULL, IBV_QPS_RESET),
				 0);
		scene_bring(&rig, 1, IBV_QPS_RTR);
		scene_bring(&rig, 0, IBV_QPS_RTS);
		CHECK_EQ(rig_recv(&rig.end[1], 1, 0, 8), 0);
		CHECK_EQ(rig_send(&rig.end[0], 2, 0, 8), 0);
		CHECK_EQ(end_event_type(&rig.end[1]), IBV_EVENT_COMM_EST);
	}
	rig_close(&rig);
}

/* 3.3: Soft-RoCE's slots are free when their sends are done. */
Test(corners, an_unsignaled_stream_never_fills_rxes_queue)
{
	struct rig rig;

	scene_pair(&rig, "rxe", IBV_QPT_UC);
	for (int i = 0; i < 500; i++)
		CHECK_EQ(end_post(&rig.end[0], i, 0), 0);
	rig_no_wc(&rig.end[0]);
	rig_close(&rig);
}

/* ibv_create_srq(3): its srq_limit is irrelevant. */
Test(corners, a_shared_queue_is_made_without_a_limit)
{
	struct ibv_srq_attr attr;
	struct ibv_srq *srq;
	struct rig rig;

	srq = share(&rig);
	CHECK_EQ(ibv_query_srq(srq, &attr), 0);
	CHECK_EQ(attr.srq_limit, 0);
	unshare(&rig, srq);
}
