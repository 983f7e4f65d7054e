/* SPDX-License-Identifier: MIT */
/*
 * Goal: accounting, notification and timers are those of sections 5.7 to 5.9
 * on the default device, and Soft-RoCE's where 3.6 says that they differ.
 * Method: a pair in a private world, both ends looked at; a timer is read
 * where it is kept, and never waited for.
 */
#include "tests/sim/scene.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "sim/core.h"

/* --- 5.7 ---------------------------------------------------------------- */

/* 5.7: only what is signaled completes, in order; sq_sig_all signals all. */
Test(accounting, completions_come_in_order_and_only_when_asked)
{
	for (int all = 0; all < 2; all++) {
		struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
						.sq_sig_all = all,
						.cap = {8, 8, 1, 1, 0}};
		struct rig rig;

		scene_pair(&rig, "mlx5", IBV_QPT_RC);
		end_replace(&rig.end[0], &init);
		scene_connect(&rig);
		for (int i = 0; i < 4; i++) {
			CHECK_EQ(rig_recv(&rig.end[1], 10 + i, 0, 8), 0);
			CHECK_EQ(end_post(&rig.end[0], i,
					  i == 2 ? IBV_SEND_SIGNALED : 0),
				 0);
		}
		for (int i = 0; i < 4; i++) {
			if (all || i == 2)
				CHECK_EQ(rig_wc(&rig.end[0]).wr_id, i);
			CHECK_EQ(rig_wc(&rig.end[1]).wr_id, 10 + i);
		}
		rig_no_wc(&rig.end[0]);
		rig_close(&rig);
	}
}

/* 5.7: done, and yet its slot is taken until its completion is polled. */
Test(accounting, a_receive_slot_is_free_when_its_completion_is_polled)
{
	struct rig rig;

	scene_pair(&rig, "mlx5", IBV_QPT_UC);
	for (int i = 0; i < 64; i++) {
		CHECK_EQ(rig_recv(&rig.end[1], i, 0, 8), 0);
		CHECK_EQ(rig_send(&rig.end[0], i, 0, 8), 0);
		rig_wc(&rig.end[0]);
	}
	CHECK_EQ(rig_recv(&rig.end[1], 64, 0, 8), ENOMEM);
	CHECK_EQ(rig_wc(&rig.end[1]).wr_id, 0);
	CHECK_EQ(rig_recv(&rig.end[1], 64, 0, 8), 0);
	CHECK_EQ(rig_recv(&rig.end[1], 65, 0, 8), ENOMEM);
	rig_close(&rig);
}

/* 5.7: requests before the bad one are posted, the others are not. */
Test(accounting, a_list_of_sends_goes_as_far_as_its_bad_one)
{
	struct ibv_send_wr wr[3], *bad = NULL;
	struct ibv_sge sge[3];
	struct rig rig;

	scene_pair(&rig, "mlx5", IBV_QPT_RC);
	for (int i = 0; i < 3; i++) {
		CHECK_EQ(rig_recv(&rig.end[1], 10 + i, 0, 8), 0);
		wr[i] = end_request(&rig.end[0], &sge[i], i);
		wr[i].send_flags = IBV_SEND_SIGNALED;
		wr[i].next = i < 2 ? &wr[i + 1] : NULL;
	}
	wr[1].num_sge = 2; /* of 1 */
	CHECK_EQ(ibv_post_send(rig.end[0].qp, wr, &bad), ENOMEM);
	CHECK(bad == &wr[1], "bad_wr");
	CHECK_EQ(rig_wc(&rig.end[0]).wr_id, 0);
	rig_no_wc(&rig.end[0]);
	CHECK_EQ(rig_wc(&rig.end[1]).wr_id, 10);
	rig_no_wc(&rig.end[1]);
	rig_close(&rig);
}

/* 5.7: an empty message is one, with and without an empty sge (3.5: whose key
 * nobody looks at). */
Test(accounting, an_empty_message_takes_a_receive)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM};

	for (int i = 0; i < 6; i++) {
		struct ibv_qp_attr attr = {.qp_access_flags =
						   IBV_ACCESS_REMOTE_WRITE};
		struct ibv_send_wr wr, *bad;
		struct ibv_sge sge;
		struct ibv_wc wc;
		struct rig rig;

		scene_pair(&rig, "mlx5", IBV_QPT_RC);
		CHECK_EQ(ibv_modify_qp(rig.end[1].qp, &attr,
				       IBV_QP_ACCESS_FLAGS),
			 0);
		CHECK_EQ(rig_recv(&rig.end[1], 7, 0, 8), 0);
		wr = end_request(&rig.end[0], &sge, 8);
		wr.opcode = opcodes[i / 2];
		wr.send_flags = IBV_SEND_SIGNALED;
		wr.imm_data = 0x01020304;
		wr.num_sge = i % 2;
		sge.length = 0;
		sge.lkey ^= 1;
		CHECK_EQ(ibv_post_send(rig.end[0].qp, &wr, &bad), 0);
		CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_SUCCESS);
		wc = rig_wc(&rig.end[1]);
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		CHECK_EQ(wc.wr_id, 7);
		CHECK_EQ(wc.byte_len, 0);
		CHECK_EQ(wc.wc_flags, i < 2 ? 0 : IBV_WC_WITH_IMM);
		CHECK_EQ(wc.imm_data, i < 2 ? 0 : 0x01020304);
		rig_close(&rig);
	}
}

/* 5.7: over max_rd_atomic reads wait, and do not fail; what follows with a
 * fence carries what they read. */
Test(accounting, reads_over_the_depth_wait_and_a_fence_waits_for_them)
{
	struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_REMOTE_READ};
	struct ibv_send_wr wr[4], *bad;
	struct ibv_sge sge[4];
	struct ibv_mr *mr;
	struct rig rig;

	scene_pair(&rig, "mlx5", IBV_QPT_RC); /* a depth of 1 */
	mr = ibv_reg_mr(rig.end[1].pd, rig.end[1].memory, 64,
			IBV_ACCESS_REMOTE_READ);
	CHECK_EQ(ibv_modify_qp(rig.end[1].qp, &attr, IBV_QP_ACCESS_FLAGS), 0);
	memcpy(rig.end[1].memory, "what is read in 3 parts", 24);
	for (int i = 0; i < 4; i++) {
		wr[i] = end_request(&rig.end[0], &sge[i], i);
		wr[i].next = i < 3 ? &wr[i + 1] : NULL;
		wr[i].send_flags = IBV_SEND_SIGNALED;
		wr[i].opcode = IBV_WR_RDMA_READ;
		sge[i].addr += 8 * i;
		wr[i].wr.rdma.remote_addr =
			(uintptr_t)rig.end[1].memory + 8 * i;
		wr[i].wr.rdma.rkey = mr->rkey;
	}
	wr[3].opcode = IBV_WR_SEND;
	wr[3].send_flags |= IBV_SEND_FENCE;
	sge[3] = (struct ibv_sge){(uintptr_t)rig.end[0].memory, 24,
				  rig.end[0].mr->lkey};
	CHECK_EQ(rig_recv(&rig.end[1], 9, 4096, 24), 0);
	CHECK_EQ(ibv_post_send(rig.end[0].qp, wr, &bad), 0);
	for (int i = 0; i < 4; i++) {
		struct ibv_wc wc = rig_wc(&rig.end[0]);

		CHECK_EQ(wc.wr_id, i);
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	}
	CHECK_EQ(rig_wc(&rig.end[1]).byte_len, 24);
	CHECK(memcmp(rig.end[1].memory + 4096, "what is read in 3 parts", 24) ==
		      0,
	      "data");
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	rig_close(&rig);
}

/* 5.3, 5.7, 5.8: the responder's queue has room for one completion. A card
 * stalls (3.5), Soft-RoCE's responder fails (3.6); the requester gets no
 * answer. */
Test(accounting, an_overrun_at_the_responder_ends_in_a_timeout)
{
	static const struct {
		const char *model;
		enum ibv_qp_state responder;
	} rows[] = {{FAST, IBV_QPS_RTS}, {"rxe,timers=1000", IBV_QPS_ERR}};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
						.cap = {8, 8, 1, 1, 0}};
		struct ibv_wc wc;
		struct ibv_cq *cq;
		struct rig rig;

		scene_pair(&rig, rows[i].model, IBV_QPT_RC);
		cq = ibv_create_cq(rig.end[1].context, 1, NULL, NULL, 0);
		init.recv_cq = cq;
		end_replace(&rig.end[1], &init);
		scene_connect(&rig);
		for (int n = 0; n < 2; n++) {
			CHECK_EQ(rig_recv(&rig.end[1], n, 0, 8), 0);
			CHECK_EQ(rig_send(&rig.end[0], n, 0, 8), 0);
		}
		CHECK_EQ(end_wait(&rig.end[0]).status, IBV_WC_SUCCESS);
		CHECK_EQ(end_wait(&rig.end[0]).status, IBV_WC_RETRY_EXC_ERR);
		end_check_event(&rig.end[1], IBV_EVENT_CQ_ERR, cq);
		CHECK_EQ(end_state(&rig.end[1]), rows[i].responder);
		CHECK_EQ(ibv_poll_cq(cq, 1, &wc), 1);
		CHECK_EQ(wc.wr_id, 0);
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		CHECK_EQ(ibv_destroy_qp(rig.end[1].qp), 0);
		rig.end[1].qp = NULL;
		CHECK_EQ(ibv_destroy_cq(cq), 0);
		rig_close(&rig);
	}
}

/* --- 5.8 ---------------------------------------------------------------- */

/* 3.6: Soft-RoCE has fewer kinds of events. */
Test(accounting, rxe_raises_no_event_of_a_connection_or_an_access)
{
	for (int asks_flag = 0; asks_flag < 2; asks_flag++) {
		struct ibv_qp_attr attr = {
			.qp_access_flags =
				asks_flag ? 0 : IBV_ACCESS_REMOTE_WRITE};
		struct ibv_sge sge;
		struct ibv_send_wr wr, *bad;
		struct rig rig;

		setenv("VERBENA_QUIET", "1", 1);
		rig_open(&rig, "rxe", NULL);
		rig_make(&rig.end[0], IBV_QPT_RC, 8);
		rig_make(&rig.end[1], IBV_QPT_RC, 8);
		scene_bring(&rig, 1, IBV_QPS_RTR);
		scene_bring(&rig, 0, IBV_QPS_RTS);
		CHECK_EQ(rig_recv(&rig.end[1], 0, 0, 8), 0);
		CHECK_EQ(rig_send(&rig.end[0], 1, 0, 8), 0);
		CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_SUCCESS);
		end_check_event(&rig.end[1], 0, NULL); /* COMM_EST */
		end_to_rts(&rig.end[1], 1, 1, 1);
		CHECK_EQ(ibv_modify_qp(rig.end[1].qp, &attr,
				       IBV_QP_ACCESS_FLAGS),
			 0);
		wr = end_request(&rig.end[0], &sge, 2);
		wr.opcode = IBV_WR_RDMA_WRITE;
		wr.wr.rdma.remote_addr = (uintptr_t)rig.end[1].memory;
		wr.wr.rdma.rkey = rig.end[1].mr->rkey;
		CHECK_EQ(ibv_post_send(rig.end[0].qp, &wr, &bad), 0);
		CHECK_EQ(rig_wc(&rig.end[0]).status,
			 asks_flag ? IBV_WC_REM_INV_REQ_ERR
				   : IBV_WC_REM_ACCESS_ERR);
		CHECK_EQ(end_state(&rig.end[1]), IBV_QPS_ERR);
		end_check_event(&rig.end[1], 0, NULL);
		rig_close(&rig);
	}
}

/* End 1's completions go to a queue with a channel. */
static struct ibv_cq *listen_on(struct rig *rig,
				struct ibv_comp_channel **channel)
{
	struct rig_end *end = &rig->end[1];
	struct ibv_qp_init_attr init = {.qp_type = end->qp->qp_type,
					.cap = {8, 8, 1, 1, 0}};
	struct ibv_cq *cq;

	*channel = ibv_create_comp_channel(end->context);
	CHECK(*channel, "create_comp_channel: errno %d", errno);
	cq = ibv_create_cq(end->context, 8, NULL, *channel, 0);
	CHECK(cq, "create_cq: errno %d", errno);
	init.send_cq = init.recv_cq = cq;
	end_replace(end, &init);
	scene_connect(rig);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(rig_recv(end, i, 0, 8), 0);
	return cq;
}

static bool has_woken(struct ibv_comp_channel *channel)
{
	struct pollfd poll_fd = {channel->fd, POLLIN, 0};
	struct ibv_cq *cq;
	void *context;

	if (poll(&poll_fd, 1, 0) != 1)
		return false;
	CHECK_EQ(ibv_get_cq_event(channel, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
	return true;
}

static void stop_listening(struct rig *rig, struct ibv_cq *cq,
			   struct ibv_comp_channel *channel)
{
	CHECK_EQ(ibv_destroy_qp(rig->end[1].qp), 0);
	rig->end[1].qp = NULL;
	CHECK_EQ(ibv_destroy_cq(cq), 0);
	CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
}

/* 5.8: solicited_only wakes for what the sender solicited and for errors. */
Test(accounting, a_solicited_arm_wakes_for_solicited_and_for_errors)
{
	struct ibv_comp_channel *channel;
	struct ibv_wc wc[8];
	struct ibv_cq *cq;
	struct rig rig;

	scene_pair(&rig, "mlx5", IBV_QPT_UC);
	cq = listen_on(&rig, &channel);
	CHECK_EQ(ibv_req_notify_cq(cq, 1), 0);
	CHECK_EQ(end_post(&rig.end[0], 0, 0), 0);
	CHECK(!has_woken(channel), "by a plain send");
	CHECK_EQ(end_post(&rig.end[0], 1, IBV_SEND_SOLICITED), 0);
	CHECK(has_woken(channel), "a solicited send is slept through");
	CHECK_EQ(end_post(&rig.end[0], 2, IBV_SEND_SOLICITED), 0);
	CHECK(!has_woken(channel), "twice by one arm");
	CHECK_EQ(ibv_poll_cq(cq, 8, wc), 3);
	CHECK_EQ(ibv_req_notify_cq(cq, 1), 0);
	CHECK_EQ(rig_modify(&rig.end[1], NULL, IBV_QPS_ERR), 0);
	CHECK(has_woken(channel), "an error is slept through");
	CHECK_EQ(ibv_poll_cq(cq, 8, wc), 1);
	CHECK_EQ(wc[0].status, IBV_WC_WR_FLUSH_ERR);
	stop_listening(&rig, cq, channel);
	rig_close(&rig);
}

/* 5.8, and correction 6 of section 10: what came before the arm. */
Test(accounting, the_race_of_arming_is_seen_on_rxe_only)
{
	static const struct {
		const char *model;
		bool wakes;
	} rows[] = {{"mlx5", true}, {"rxe", false}};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct ibv_comp_channel *channel;
		struct ibv_cq *cq;
		struct rig rig;

		scene_pair(&rig, rows[i].model, IBV_QPT_UC);
		cq = listen_on(&rig, &channel);
		CHECK_EQ(end_post(&rig.end[0], 0, 0), 0);
		CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
		CHECK_EQ(has_woken(channel), rows[i].wakes);
		CHECK_EQ(end_post(&rig.end[0], 1, 0), 0);
		CHECK_EQ(has_woken(channel), !rows[i].wakes);
		/* Without a channel there is nobody to wake, and no error. */
		CHECK_EQ(ibv_req_notify_cq(rig.end[0].cq, 0), 0);
		stop_listening(&rig, cq, channel);
		rig_close(&rig);
	}
}

struct destroyer {
	struct ibv_cq *cq;
	atomic_bool is_done;
	int rc;
};

static void *destroy(void *arg)
{
	struct destroyer *it = arg;

	it->rc = ibv_destroy_cq(it->cq);
	atomic_store(&it->is_done, true);
	return NULL;
}

/* 5.8, and correction 7 of section 10. */
Test(accounting, a_queue_is_destroyed_when_its_events_are_acknowledged)
{
	struct destroyer it = {0};
	struct ibv_comp_channel *channel;
	struct ibv_cq *woken;
	pthread_t thread;
	void *context;
	struct rig rig;

	scene_pair(&rig, "mlx5", IBV_QPT_UC);
	it.cq = listen_on(&rig, &channel);
	CHECK_EQ(ibv_req_notify_cq(it.cq, 0), 0);
	CHECK_EQ(end_post(&rig.end[0], 0, 0), 0);
	CHECK_EQ(ibv_get_cq_event(channel, &woken, &context), 0);
	CHECK(woken == it.cq, "event of another queue");
	CHECK_EQ(ibv_destroy_qp(rig.end[1].qp), 0);
	rig.end[1].qp = NULL;
	CHECK_EQ(pthread_create(&thread, NULL, destroy, &it), 0);
	/* Time for it to be wrong in. */
	for (int i = 0; i < 50 && !atomic_load(&it.is_done); i++)
		usleep(1000);
	CHECK(!atomic_load(&it.is_done), "an event is not acknowledged yet");
	ibv_ack_cq_events(it.cq, 1);
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(it.rc, 0);
	CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
	rig_close(&rig);
}

/* --- 5.9 ---------------------------------------------------------------- */

/* Until when the head of an end's send queue waits; 0: it does not, or for
 * ever. */
static uint64_t deadline_of(struct rig *rig, int i)
{
	return sim_qp_by_num(rig->world, rig->end[i].qp->qp_num)->wait_until_ns;
}

/* Send, and see that it waits this long from then. */
static void check_wait(struct rig *rig, uint64_t ns, const char *what, int row)
{
	uint64_t before = sim_now_ns(), after, until;

	CHECK_EQ(rig_send(&rig->end[0], 1, 0, 8), 0);
	after = sim_now_ns();
	until = deadline_of(rig, 0);
	CHECK(until >= before + ns && until <= after + ns,
	      "%s %d: waits %lld ns, want %llu", what, row,
	      (long long)(until - before), (unsigned long long)ns);
}

/* 5.9: RNR timer codes, which are the responder's. */
Test(accounting, rnr_timers_are_those_of_their_codes)
{
	static const uint32_t us[32] = {655360, 10,    20,     30,     40,
					60,	80,    120,    160,    240,
					320,	480,   640,    960,    1280,
					1920,	2560,  3840,   5120,   7680,
					10240,	15360, 20480,  30720,  40960,
					61440,	81920, 122880, 163840, 245760,
					327680, 491520};

	for (int speed = 1; speed <= 1000; speed *= 1000) {
		struct rig rig;

		scene_pair(&rig, speed == 1 ? "mlx5" : FAST, IBV_QPT_RC);
		for (uint8_t code = 0; code < 32; code++) {
			struct ibv_qp_attr attr = {.min_rnr_timer = code};

			CHECK_EQ(ibv_modify_qp(rig.end[1].qp, &attr,
					       IBV_QP_MIN_RNR_TIMER),
				 0);
			check_wait(&rig, us[code] * 1000ull / speed, "code",
				   code);
			CHECK_EQ(rig_recv(&rig.end[1], 2, 0, 8), 0);
			CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_SUCCESS);
			CHECK_EQ(rig_wc(&rig.end[1]).status, IBV_WC_SUCCESS);
		}
		rig_close(&rig);
	}
}

/* 5.9: 4.096 us x 2^timeout; 0 waits for ever. */
Test(accounting, acknowledge_timers_double_and_0_is_none)
{
	struct rig rig;

	setenv("VERBENA_QUIET", "1", 1);
	rig_open(&rig, "mlx5", NULL);
	rig_make(&rig.end[0], IBV_QPT_RC, 8);
	rig_make(&rig.end[1], IBV_QPT_RC, 8);
	scene_bring(&rig, 1, IBV_QPS_INIT); /* does not answer */
	CHECK_EQ(rig_recv(&rig.end[1], 9, 0, 8), 0);
	for (uint8_t timeout = 31; timeout > 0; timeout--) {
		scene_bring(&rig, 0, IBV_QPS_RTR);
		end_to_rts(&rig.end[0], timeout, 7, 7);
		check_wait(&rig, 4096ull << timeout, "timeout", timeout);
		CHECK_EQ(rig_modify(&rig.end[0], NULL, IBV_QPS_RESET), 0);
	}
	scene_bring(&rig, 0, IBV_QPS_RTR);
	end_to_rts(&rig.end[0], 0, 0, 0);
	CHECK_EQ(rig_send(&rig.end[0], 1, 0, 8), 0);
	for (int i = 0; i < 1000; i++)
		rig_no_wc(&rig.end[0]);
	CHECK_EQ(deadline_of(&rig, 0), 0);
	CHECK_EQ(rig_modify(&rig.end[1], &rig.end[0], IBV_QPS_RTR), 0);
	CHECK_EQ(end_wait(&rig.end[0]).status, IBV_WC_SUCCESS);
	CHECK_EQ(rig_wc(&rig.end[1]).wr_id, 9);
	rig_close(&rig);
}

static void open_lossy(struct rig *rig, const char *model, uint8_t retry_cnt)
{
	setenv("VERBENA_QUIET", "1", 1);
	rig_open(rig, model, "a.qp0.tx #0 drop sticky");
	rig_make(&rig->end[0], IBV_QPT_RC, 8);
	rig_make(&rig->end[1], IBV_QPT_RC, 8);
	rig_connect(rig, IBV_QPS_RTR);
	end_to_rts(&rig->end[0], 14, retry_cnt, 0);
	CHECK_EQ(rig_recv(&rig->end[1], 9, 0, 8), 0);
	CHECK_EQ(rig_send(&rig->end[0], 1, 0, 8), 0);
}

/* 5.9: retry_cnt + 1 attempts; 7 is 7 on a card, and for ever on rxe. */
Test(accounting, an_unanswered_message_is_sent_retry_cnt_times_more)
{
	static const uint8_t counts[] = {0, 1, 7};
	uint64_t start;
	struct ibv_wc wc;
	struct rig rig;

	for (size_t i = 0; i < COUNT(counts); i++) {
		open_lossy(&rig, FAST, counts[i]);
		wc = end_wait(&rig.end[0]);
		CHECK_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
		CHECK_EQ(wc.vendor_err, 0x81);
		CHECK_EQ(rig_fault(&rig, 0)->fired, counts[i] + 1);
		CHECK_EQ(end_state(&rig.end[0]), IBV_QPS_ERR);
		CHECK_EQ(end_state(&rig.end[1]), IBV_QPS_RTR);
		rig_no_wc(&rig.end[1]);
		rig_close(&rig);
	}
	open_lossy(&rig, "rxe,timers=1000", 6);
	CHECK_EQ(end_wait(&rig.end[0]).status, IBV_WC_RETRY_EXC_ERR);
	rig_close(&rig);
	open_lossy(&rig, "rxe,timers=1000", 7);
	start = sim_now_ns();
	while (rig_fault(&rig, 0)->fired < 20 &&
	       sim_now_ns() - start < 20000000000ull)
		rig_no_wc(&rig.end[0]);
	CHECK(rig_fault(&rig, 0)->fired >= 20, "it stopped to send");
	CHECK_EQ(end_state(&rig.end[0]), IBV_QPS_RTS);
	rig_close(&rig);
}

/* 5.3: no receive posted. The responder is none the worse. */
Test(accounting, a_receiver_that_is_not_ready_is_waited_for_rnr_retry_times)
{
	static const uint8_t counts[] = {0, 3, 6, 7};

	setenv("VERBENA_QUIET", "1", 1);
	for (size_t i = 0; i < COUNT(counts); i++) {
		struct rig rig;

		rig_open(&rig, FAST, NULL);
		rig_make(&rig.end[0], IBV_QPT_RC, 8);
		rig_make(&rig.end[1], IBV_QPT_RC, 8);
		rig_connect(&rig, IBV_QPS_RTR);
		/* Acknowledge timeouts are no part of this budget. */
		end_to_rts(&rig.end[0], 1, 0, counts[i]);
		CHECK_EQ(rig_send(&rig.end[0], 1, 0, 8), 0);
		if (counts[i] == 7) {
			for (int n = 0; n < 10000; n++)
				rig_no_wc(&rig.end[0]);
			CHECK_EQ(rig_recv(&rig.end[1], 2, 0, 8), 0);
			CHECK_EQ(end_wait(&rig.end[0]).status, IBV_WC_SUCCESS);
			CHECK_EQ(rig_wc(&rig.end[1]).wr_id, 2);
		} else {
			CHECK_EQ(end_wait(&rig.end[0]).status,
				 IBV_WC_RNR_RETRY_EXC_ERR);
			CHECK_EQ(end_state(&rig.end[0]), IBV_QPS_ERR);
		}
		CHECK_EQ(end_state(&rig.end[1]), IBV_QPS_RTR);
		rig_no_wc(&rig.end[1]);
		rig_close(&rig);
	}
}
