/* SPDX-License-Identifier: MIT */
/*
 * Goal: messages between two queue pairs have the outcomes of sections 5.2 to
 * 5.7 on the default device. Method: a connected pair in a private world; both
 * ends are looked at each time.
 */
#include "tests/rig.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "tests/harness.h"

static void pair(struct rig *rig, enum ibv_qp_type type)
{
	setenv("VERBENA_QUIET", "1", 1);
	rig_pair(rig, "mlx5", NULL, type);
}

/* Poll until something comes; timers run in real time, so only bounded. */
static struct ibv_wc wait_wc(struct rig_end *end)
{
	uint64_t start = sim_now_ns();
	struct ibv_wc wc = {0};

	while (sim_now_ns() - start < 20000000000ull)
		if (ibv_poll_cq(end->cq, 1, &wc) == 1)
			return wc;
	CHECK(false, "no completion in 20 s");
	return wc;
}

Test(deliver, a_send_fills_a_receive_and_completes_on_both_ends)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC};

	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc;
		struct rig rig;

		pair(&rig, types[i]);
		memcpy(rig.end[0].memory, "hello", 5);
		CHECK_EQ(rig_recv(&rig.end[1], 11, 100, 64), 0);
		CHECK_EQ(rig_send(&rig.end[0], 22, 0, 5), 0);
		wc = rig_wc(&rig.end[0]);
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		CHECK_EQ(wc.wr_id, 22);
		CHECK_EQ(wc.opcode, IBV_WC_SEND);
		CHECK_EQ(wc.qp_num, rig.end[0].qp->qp_num);
		wc = rig_wc(&rig.end[1]);
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
		CHECK_EQ(wc.wr_id, 11);
		CHECK_EQ(wc.opcode, IBV_WC_RECV);
		CHECK_EQ(wc.byte_len, 5);
		CHECK_EQ(wc.src_qp, rig.end[0].qp->qp_num);
		CHECK(memcmp(rig.end[1].memory + 100, "hello", 5) == 0, "data");
		rig_close(&rig);
	}
}

Test(deliver, sges_are_gathered_and_scattered_in_order)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
					.cap = {8, 8, 3, 3, 0}};
	struct ibv_sge from[3], to[2];
	struct ibv_send_wr send = {.sg_list = from,
				   .num_sge = 3,
				   .opcode = IBV_WR_SEND_WITH_IMM,
				   .imm_data = 0x11223344};
	struct ibv_recv_wr recv = {.sg_list = to, .num_sge = 2};
	struct ibv_send_wr *bad_send;
	struct ibv_recv_wr *bad_recv;
	struct ibv_wc wc;
	struct rig rig;

	setenv("VERBENA_QUIET", "1", 1);
	rig_open(&rig, "mlx5", NULL);
	for (int i = 0; i < 2; i++) {
		rig_make(&rig.end[i], IBV_QPT_RC, 8);
		CHECK_EQ(ibv_destroy_qp(rig.end[i].qp), 0);
		init.send_cq = init.recv_cq = rig.end[i].cq;
		init.cap = (struct ibv_qp_cap){8, 8, 3, 3, 0};
		rig.end[i].qp = ibv_create_qp(rig.end[i].pd, &init);
		CHECK(rig.end[i].qp, "create_qp");
	}
	rig_connect(&rig, IBV_QPS_RTS);
	memcpy(rig.end[0].memory, "abcdefghi", 9);
	for (int i = 0; i < 3; i++)
		from[i] = (struct ibv_sge){(uintptr_t)rig.end[0].memory + 6 -
						   3 * i,
					   3, rig.end[0].mr->lkey};
	to[0] = (struct ibv_sge){(uintptr_t)rig.end[1].memory, 4,
				 rig.end[1].mr->lkey};
	to[1] = (struct ibv_sge){(uintptr_t)rig.end[1].memory + 50, 20,
				 rig.end[1].mr->lkey};
	CHECK_EQ(ibv_post_recv(rig.end[1].qp, &recv, &bad_recv), 0);
	CHECK_EQ(ibv_post_send(rig.end[0].qp, &send, &bad_send), 0);
	wc = rig_wc(&rig.end[1]);
	CHECK_EQ(wc.byte_len, 9);
	CHECK_EQ(wc.wc_flags, IBV_WC_WITH_IMM);
	CHECK_EQ(wc.imm_data, 0x11223344);
	CHECK(memcmp(rig.end[1].memory, "ghid", 4) == 0 &&
		      memcmp(rig.end[1].memory + 50, "efabc", 5) == 0,
	      "data");
	rig_no_wc(&rig.end[0]); /* unsignaled */
	rig_close(&rig);
}

Test(deliver, inline_data_is_taken_at_post)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags =
					 IBV_SEND_INLINE | IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;
	char text[8] = "before";
	struct rig rig;

	pair(&rig, IBV_QPT_RC);
	/* No region, and changed before there is a receive to fill. */
	sge = (struct ibv_sge){(uintptr_t)text, 6, 0xdead};
	CHECK_EQ(ibv_post_send(rig.end[0].qp, &wr, &bad), 0);
	memcpy(text, "after!", 6);
	CHECK_EQ(rig_recv(&rig.end[1], 0, 0, 64), 0);
	CHECK_EQ(rig_wc(&rig.end[1]).byte_len, 6);
	CHECK(memcmp(rig.end[1].memory, "before", 6) == 0, "data");
	CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_SUCCESS);
	/* Over the granted cap. */
	sge.length = 61;
	CHECK_EQ(ibv_post_send(rig.end[0].qp, &wr, &bad), ENOMEM);
	rig_close(&rig);
}

Test(deliver, a_lost_receive_is_silence_on_uc)
{
	struct rig rig;

	pair(&rig, IBV_QPT_UC);
	CHECK_EQ(rig_send(&rig.end[0], 1, 0, 8), 0);
	CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_SUCCESS);
	CHECK_EQ(rig_recv(&rig.end[1], 2, 0, 8), 0);
	rig_no_wc(&rig.end[1]); /* the message is gone */
	CHECK_EQ(rig_send(&rig.end[0], 3, 0, 8), 0);
	CHECK_EQ(rig_wc(&rig.end[1]).wr_id, 2);
	rig_close(&rig);
}

Test(deliver, rc_waits_for_a_receiver_and_gives_up_after_rnr_retry)
{
	struct rig rig;

	/* The receive comes in time: delivered by whoever posts it. */
	pair(&rig, IBV_QPT_RC);
	CHECK_EQ(rig_send(&rig.end[0], 1, 0, 8), 0);
	CHECK_EQ(rig_recv(&rig.end[1], 2, 0, 8), 0);
	CHECK_EQ(rig_wc(&rig.end[1]).status, IBV_WC_SUCCESS);
	CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_SUCCESS);
	/* It does not: the requester fails, the responder stays. */
	CHECK_EQ(rig_send(&rig.end[0], 3, 0, 8), 0);
	CHECK_EQ(rig_send(&rig.end[0], 4, 0, 8), 0);
	CHECK_EQ(wait_wc(&rig.end[0]).status, IBV_WC_RNR_RETRY_EXC_ERR);
	CHECK_EQ(wait_wc(&rig.end[0]).status, IBV_WC_WR_FLUSH_ERR);
	rig_no_wc(&rig.end[1]);
	rig_close(&rig);
}

Test(deliver, rc_to_a_queue_pair_that_is_not_ready_retries)
{
	struct rig rig;

	setenv("VERBENA_QUIET", "1", 1);
	rig_open(&rig, "mlx5", NULL);
	rig_make(&rig.end[0], IBV_QPT_RC, 8);
	rig_make(&rig.end[1], IBV_QPT_RC, 8);
	rig_connect(&rig, IBV_QPS_INIT);
	CHECK_EQ(rig_recv(&rig.end[1], 2, 0, 8), 0);
	CHECK_EQ(rig_modify(&rig.end[0], &rig.end[1], IBV_QPS_RTR), 0);
	CHECK_EQ(rig_modify(&rig.end[0], &rig.end[1], IBV_QPS_RTS), 0);
	CHECK_EQ(rig_send(&rig.end[0], 1, 0, 8), 0);
	rig_no_wc(&rig.end[0]);
	CHECK_EQ(rig_modify(&rig.end[1], &rig.end[0], IBV_QPS_RTR), 0);
	CHECK_EQ(wait_wc(&rig.end[0]).status, IBV_WC_SUCCESS);
	CHECK_EQ(rig_wc(&rig.end[1]).wr_id, 2);
	/* Gone altogether: the budget runs out. */
	CHECK_EQ(ibv_destroy_qp(rig.end[1].qp), 0);
	rig.end[1].qp = NULL;
	CHECK_EQ(rig_send(&rig.end[0], 3, 0, 8), 0);
	CHECK_EQ(wait_wc(&rig.end[0]).status, IBV_WC_RETRY_EXC_ERR);
	rig_close(&rig);
}

Test(deliver, a_message_longer_than_its_receive)
{
	struct rig rig;

	pair(&rig, IBV_QPT_RC);
	CHECK_EQ(rig_recv(&rig.end[1], 2, 0, 8), 0);
	CHECK_EQ(rig_recv(&rig.end[1], 3, 0, 8), 0);
	CHECK_EQ(rig_send(&rig.end[0], 1, 0, 9), 0);
	CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_REM_INV_REQ_ERR);
	CHECK_EQ(rig_wc(&rig.end[1]).status, IBV_WC_LOC_LEN_ERR);
	CHECK_EQ(rig_wc(&rig.end[1]).status, IBV_WC_WR_FLUSH_ERR);
	rig_close(&rig);
	pair(&rig, IBV_QPT_UC);
	CHECK_EQ(rig_recv(&rig.end[1], 2, 0, 8), 0);
	CHECK_EQ(rig_send(&rig.end[0], 1, 0, 9), 0);
	CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_SUCCESS);
	CHECK_EQ(rig_wc(&rig.end[1]).status, IBV_WC_LOC_LEN_ERR);
	rig_close(&rig);
}

Test(deliver, a_bad_local_key_fails_the_side_that_used_it)
{
	struct rig rig;
	uint32_t good;

	pair(&rig, IBV_QPT_RC);
	CHECK_EQ(rig_recv(&rig.end[1], 2, 0, 8), 0);
	good = rig.end[0].mr->lkey;
	rig.end[0].mr->lkey ^= 0x1000;
	CHECK_EQ(rig_send(&rig.end[0], 1, 0, 8), 0);
	rig.end[0].mr->lkey = good;
	CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_LOC_PROT_ERR);
	rig_no_wc(&rig.end[1]);
	rig_close(&rig);
	/* At the responder: it fails with its own status, and so do we. */
	pair(&rig, IBV_QPT_RC);
	good = rig.end[1].mr->lkey;
	rig.end[1].mr->lkey ^= 1;
	CHECK_EQ(rig_recv(&rig.end[1], 2, 0, 8), 0);
	rig.end[1].mr->lkey = good;
	CHECK_EQ(rig_send(&rig.end[0], 1, 0, 8), 0);
	CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_REM_OP_ERR);
	CHECK_EQ(rig_wc(&rig.end[1]).status, IBV_WC_LOC_PROT_ERR);
	rig_close(&rig);
}

Test(deliver, ranges_outside_a_region_are_refused)
{
	static const struct {
		uint64_t addr;
		uint32_t len;
	} rows[] = {{RIG_BYTES - 4, 8},
		    {(uint64_t)-8, 8},
		    {0, RIG_BYTES + 1},
		    {(uint64_t)-1, 1}};
	struct rig rig;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct ibv_sge sge;
		struct ibv_send_wr wr = {.sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_SEND};
		struct ibv_send_wr *bad;

		pair(&rig, IBV_QPT_UC);
		sge.addr = (uintptr_t)rig.end[0].memory + rows[i].addr;
		sge.length = rows[i].len;
		sge.lkey = rig.end[0].mr->lkey;
		CHECK_EQ(ibv_post_send(rig.end[0].qp, &wr, &bad), 0);
		/* An error completes although the request was unsignaled. */
		CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_LOC_PROT_ERR);
		rig_close(&rig);
	}
}

Test(deliver, error_state_flushes_both_queues_in_order)
{
	struct rig rig;

	pair(&rig, IBV_QPT_RC);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(rig_recv(&rig.end[0], 10 + i, 0, 8), 0);
	CHECK_EQ(rig_send(&rig.end[0], 20, 0, 8), 0); /* no receiver: waits */
	CHECK_EQ(rig_modify(&rig.end[0], NULL, IBV_QPS_ERR), 0);
	CHECK_EQ(rig_wc(&rig.end[0]).wr_id, 20);
	for (int i = 0; i < 3; i++) {
		struct ibv_wc wc = rig_wc(&rig.end[0]);

		CHECK_EQ(wc.wr_id, 10 + i);
		CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
	}
	/* Posted later: accepted, and flushed too. */
	CHECK_EQ(rig_recv(&rig.end[0], 30, 0, 8), 0);
	CHECK_EQ(rig_send(&rig.end[0], 31, 0, 8), 0);
	CHECK_EQ(rig_wc(&rig.end[0]).wr_id, 30);
	CHECK_EQ(rig_wc(&rig.end[0]).wr_id, 31);
	rig_close(&rig);
}

Test(deliver, reset_discards_without_completions)
{
	struct rig rig;

	pair(&rig, IBV_QPT_RC);
	CHECK_EQ(rig_recv(&rig.end[0], 1, 0, 8), 0);
	CHECK_EQ(rig_send(&rig.end[0], 2, 0, 8), 0);
	CHECK_EQ(rig_modify(&rig.end[0], NULL, IBV_QPS_RESET), 0);
	rig_no_wc(&rig.end[0]);
	rig_close(&rig);
}

Test(deliver, slots_come_back_only_with_a_polled_completion)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND};
	struct ibv_send_wr *bad;
	struct rig rig;

	pair(&rig, IBV_QPT_UC);
	sge = (struct ibv_sge){(uintptr_t)rig.end[0].memory, 8,
			       rig.end[0].mr->lkey};
	/* 64 granted; unsignaled ones are done but hold their slots (5.7). */
	for (int i = 0; i < 63; i++)
		CHECK_EQ(ibv_post_send(rig.end[0].qp, &wr, &bad), 0);
	wr.send_flags = IBV_SEND_SIGNALED;
	CHECK_EQ(ibv_post_send(rig.end[0].qp, &wr, &bad), 0);
	CHECK_EQ(ibv_post_send(rig.end[0].qp, &wr, &bad), ENOMEM);
	CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_SUCCESS);
	CHECK_EQ(ibv_post_send(rig.end[0].qp, &wr, &bad), 0);
	rig_close(&rig);
}

Test(deliver, requests_before_bad_wr_are_posted)
{
	struct ibv_sge sge;
	struct ibv_recv_wr second = {.wr_id = 2, .sg_list = &sge, .num_sge = 9};
	struct ibv_recv_wr first = {.wr_id = 1,
				    .sg_list = &sge,
				    .num_sge = 1,
				    .next = &second};
	struct ibv_recv_wr *bad = NULL;
	struct rig rig;

	pair(&rig, IBV_QPT_UC);
	sge = (struct ibv_sge){(uintptr_t)rig.end[1].memory, 8,
			       rig.end[1].mr->lkey};
	CHECK_EQ(ibv_post_recv(rig.end[1].qp, &first, &bad), EINVAL);
	CHECK(bad == &second, "bad_wr");
	CHECK_EQ(rig_send(&rig.end[0], 0, 0, 8), 0);
	CHECK_EQ(rig_wc(&rig.end[1]).wr_id, 1);
	rig_close(&rig);
}

Test(deliver, a_full_completion_queue_is_lost_and_says_so)
{
	struct ibv_wc wc[4];
	struct rig_end *end;
	struct ibv_cq *cq;
	struct rig rig;

	pair(&rig, IBV_QPT_UC);
	end = &rig.end[0];
	CHECK_EQ(ibv_destroy_qp(end->qp), 0);
	cq = ibv_create_cq(end->context, 1, NULL, NULL, 0);
	CHECK_EQ(cq->cqe, 1);
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_UC,
					.send_cq = cq,
					.recv_cq = end->cq,
					.cap = {8, 8, 1, 1, 0}};

	end->qp = ibv_create_qp(end->pd, &init);
	for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++)
		CHECK_EQ(rig_modify(end, &rig.end[1], state), 0);
	CHECK_EQ(rig_send(end, 1, 0, 8), 0);
	CHECK_EQ(rig_send(end, 2, 0, 8), 0);
	CHECK_EQ(ibv_poll_cq(cq, 4, wc), 1);
	CHECK(ibv_poll_cq(cq, 4, wc) < 0, "the queue is dead");
	CHECK_EQ(ibv_destroy_qp(end->qp), 0);
	end->qp = NULL;
	CHECK_EQ(ibv_destroy_cq(cq), 0);
	rig_close(&rig);
}

Test(deliver, an_armed_queue_wakes_its_channel_once)
{
	struct ibv_comp_channel *channel;
	struct pollfd poll_fd = {.events = POLLIN};
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_UC,
					.cap = {8, 8, 1, 1, 0}};
	struct rig_end *end;
	struct ibv_cq *cq, *woken;
	void *context;
	struct rig rig;

	pair(&rig, IBV_QPT_UC);
	end = &rig.end[1];
	channel = ibv_create_comp_channel(end->context);
	cq = ibv_create_cq(end->context, 8, &rig, channel, 0);
	CHECK(channel && cq, "channel and queue");
	CHECK_EQ(ibv_destroy_comp_channel(channel), EBUSY);
	CHECK_EQ(ibv_destroy_qp(end->qp), 0);
	init.send_cq = init.recv_cq = cq;
	end->qp = ibv_create_qp(end->pd, &init);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(rig_modify(&rig.end[i], NULL, IBV_QPS_RESET), 0);
	rig_connect(&rig, IBV_QPS_RTS);
	poll_fd.fd = channel->fd;
	for (int i = 0; i < 3; i++)
		CHECK_EQ(rig_recv(end, i, 0, 8), 0);
	CHECK_EQ(rig_send(&rig.end[0], 0, 0, 8), 0);
	CHECK_EQ(poll(&poll_fd, 1, 0), 0); /* not armed */
	rig_wc(&(struct rig_end){.cq = cq});
	CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
	CHECK_EQ(poll(&poll_fd, 1, 0), 0); /* nothing yet */
	CHECK_EQ(rig_send(&rig.end[0], 1, 0, 8), 0);
	CHECK_EQ(rig_send(&rig.end[0], 2, 0, 8), 0);
	CHECK_EQ(poll(&poll_fd, 1, 10000), 1);
	CHECK_EQ(ibv_get_cq_event(channel, &woken, &context), 0);
	CHECK(woken == cq && context == &rig, "event");
	CHECK_EQ(poll(&poll_fd, 1, 0), 0); /* one shot */
	ibv_ack_cq_events(cq, 1);
	CHECK_EQ(ibv_destroy_qp(end->qp), 0);
	end->qp = NULL;
	CHECK_EQ(ibv_destroy_cq(cq), 0);
	CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
	rig_close(&rig);
}

/* More queues than a socket buffers datagrams (10): none may be forgotten. */
#define MANY 30

Test(deliver, a_channel_of_many_queues_forgets_none)
{
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq[MANY], *woken;
	struct ibv_qp *qp[MANY];
	bool is_seen[MANY] = {false};
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_UC,
					.cap = {8, 8, 1, 1, 0}};
	struct rig_end *end;
	struct rig rig;
	void *context;

	pair(&rig, IBV_QPT_UC);
	end = &rig.end[0];
	channel = ibv_create_comp_channel(end->context);
	for (int i = 0; i < MANY; i++) {
		struct rig_end one = *end;

		cq[i] = ibv_create_cq(end->context, 8, &is_seen[i], channel, 0);
		init.send_cq = init.recv_cq = cq[i];
		one.qp = qp[i] = ibv_create_qp(end->pd, &init);
		for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++)
			CHECK_EQ(rig_modify(&one, &rig.end[1], state), 0);
		CHECK_EQ(ibv_req_notify_cq(cq[i], 0), 0);
		CHECK_EQ(rig_send(&one, i, 0, 8), 0);
	}
	for (int i = 0; i < MANY; i++) {
		struct pollfd poll_fd = {channel->fd, POLLIN, 0};

		CHECK(poll(&poll_fd, 1, 10000) == 1, "event %d", i);
		CHECK_EQ(ibv_get_cq_event(channel, &woken, &context), 0);
		CHECK(!*(bool *)context, "told twice");
		*(bool *)context = true;
		ibv_ack_cq_events(woken, 1);
	}
	for (int i = 0; i < MANY; i++) {
		CHECK(is_seen[i], "queue %d was forgotten", i);
		CHECK_EQ(ibv_destroy_qp(qp[i]), 0);
		CHECK_EQ(ibv_destroy_cq(cq[i]), 0);
	}
	CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
	rig_close(&rig);
}

Test(deliver, a_message_of_over_32_bits_is_a_length_error)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_UC,
					.cap = {8, 8, 3, 1, 0}};
	struct ibv_sge sge[3];
	struct ibv_send_wr wr = {.sg_list = sge,
				 .num_sge = 3,
				 .opcode = IBV_WR_SEND};
	struct ibv_send_wr *bad;
	struct rig rig;

	pair(&rig, IBV_QPT_UC);
	CHECK_EQ(ibv_destroy_qp(rig.end[0].qp), 0);
	init.send_cq = init.recv_cq = rig.end[0].cq;
	rig.end[0].qp = ibv_create_qp(rig.end[0].pd, &init);
	for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++)
		CHECK_EQ(rig_modify(&rig.end[0], &rig.end[1], state), 0);
	/* The length is judged before the range. */
	for (int i = 0; i < 3; i++)
		sge[i] = (struct ibv_sge){(uintptr_t)rig.end[0].memory,
					  i < 2 ? 1u << 31 : 16,
					  rig.end[0].mr->lkey};
	CHECK_EQ(ibv_post_send(rig.end[0].qp, &wr, &bad), 0);
	CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_LOC_LEN_ERR);
	rig_close(&rig);
}

Test(deliver, objects_in_use_are_busy_and_garbage_is_invalid)
{
	uint32_t handle;
	struct rig rig;

	pair(&rig, IBV_QPT_RC);
	CHECK_EQ(ibv_dealloc_pd(rig.end[0].pd), EBUSY);
	CHECK_EQ(ibv_destroy_cq(rig.end[0].cq), EBUSY);
	handle = rig.end[0].qp->handle;
	rig.end[0].qp->handle = 0xffffffff;
	CHECK_EQ(rig_send(&rig.end[0], 0, 0, 8), EINVAL);
	CHECK_EQ(rig_modify(&rig.end[0], NULL, IBV_QPS_ERR), EINVAL);
	CHECK_EQ(ibv_destroy_qp(rig.end[0].qp), EINVAL);
	/* The other host's object is in the world, and not ours to name... */
	rig.end[0].qp->handle = handle ^ 1u << 20;
	CHECK_EQ(rig_recv(&rig.end[0], 0, 0, 8), EINVAL);
	rig.end[0].qp->handle = handle;
	rig_close(&rig);
}
