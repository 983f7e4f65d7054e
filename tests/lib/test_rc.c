/* SPDX-License-Identifier: MIT */
/*
 * Goal: rc keeps the invariants L-n of ggml-rpc's Linux path and has none of
 * its defects D-Ln. Method: deterministic runs of both ends in compat mode,
 * whose verbs are spied on; where the peer must be odd, a plan makes it so.
 */
#include <errno.h>
#include <stdlib.h>

#include "tests/harness.h"
#include "tests/lib/shapes.h"

static const struct shape *const rc = &shapes[2];

static void play(struct stage *stage, const char *plan,
		 int (*a)(struct stage_end *), int (*b)(struct stage_end *))
{
	shape_init(stage, rc, plan);
	stage->end[0].script = a;
	stage->end[1].script = b;
	stage_run(stage, SIM_EAGER);
}

static void both_well(struct stage *stage)
{
	for (int i = 0; i < 2; i++)
		CHECK(stage->end[i].rc == 0, "%d: %s", i,
		      stage->end[i].cause.text);
}

/* --- the wire --- */

static int send_odd_sizes(struct stage_end *end)
{
	int error = stage_send_pattern(end->transport, 0, 8);

	if (!error)
		error = stage_send_pattern(end->transport, 8, 300000);
	if (!error)
		error = stage_send_pattern(end->transport, 300008, 256);
	if (!error)
		error = stage_send_pattern(end->transport, 300264, 257);
	return error ? error : stage_recv_pattern(end->transport, 0, 1);
}

/* The reads of a peer that takes one SEND for one, or part of one. */
static int recv_odd_sizes(struct stage_end *end)
{
	int error = stage_recv_pattern(end->transport, 0, 308);

	if (!error)
		error = stage_recv_pattern(end->transport, 308, 300213);
	return error ? error : stage_send_pattern(end->transport, 0, 1);
}

Test(rc, L3_L5_a_send_ends_with_its_call_and_is_signaled)
{
	struct stage stage;

	shape_init(&stage, rc, NULL);
	for (int i = 0; i < 2; i++)
		stage.end[i].options.stride_bytes = 0; /* 256 KiB */
	stage.end[0].script = send_odd_sizes;
	stage.end[1].script = recv_odd_sizes;
	stage_run(&stage, SIM_EAGER);
	both_well(&stage);
	/* Up to 256 bytes inline (8), all signaled (2). */
	CHECK_HAS(stage.end[0].spy.log,
		  "send:8:a send:262144:2 send:37856:2 send:256:a send:257:2 ");
	CHECK_EQ(spy_count(&stage.end[0].spy, "send:"), 5);
	stage_fini(&stage);
}

Test(rc, L5_DL9_a_device_without_inline_is_used_without)
{
	struct stage stage;

	shape_init(&stage, rc, NULL);
	stage.end[0].spy.bad.no_inline = true;
	stage.end[0].script = send_odd_sizes;
	stage.end[1].script = recv_odd_sizes;
	stage_run(&stage, SIM_EAGER);
	both_well(&stage);
	CHECK_EQ(spy_count(&stage.end[0].spy, "create_qp "), 2);
	CHECK_EQ(stage.end[0].spy.asked.cap.max_inline_data, 0);
	CHECK_EQ(spy_count(&stage.end[0].spy, ":a "), 0);
	stage_fini(&stage);
}

static int outlast(struct stage_end *end)
{
	(void)end;
	stage_sleep(20 * STAGE_TIMEOUT_NS);
	return 0;
}

static int send_and_wait(struct stage_end *end)
{
	char byte = 1;
	int error = vb_send(end->transport, &byte, 1);

	return error ? error : vb_recv(end->transport, &byte, 1);
}

/* What flushed the receives is in the other queue, and is the cause; also when
 * it gets there after we have looked. */
Test(rc, DA18_a_failed_send_is_the_cause_and_not_the_receives_that_it_flushed)
{
	for (int is_late = 0; is_late < 2; is_late++) {
		struct stage stage;

		stage_init(&stage, "mlx5", "a.qp0.tx #0 drop sticky");
		stage.end[0].options.timeout_ns = 10000000000ull;
		stage.end[0].spy.bad.sends_come_last = is_late;
		stage.end[0].script = send_and_wait;
		stage.end[1].script = outlast;
		stage_run(&stage, SIM_EAGER);
		CHECK_EQ(stage.end[0].rc, -EIO);
		CHECK_EQ(stage.end[0].cause.wc_status, IBV_WC_RETRY_EXC_ERR);
		CHECK(stage.end[0].cause.is_send, "%s",
		      stage.end[0].cause.text);
		stage_fini(&stage);
	}
}

static int send_too_much(struct stage_end *end)
{
	static char bytes[8192];
	int error;

	stage_sleep(1000000);
	error = vb_send(end->transport, bytes, sizeof(bytes));
	return error ? error : outlast(end);
}

/* And the other way round, with a send that waits for the peer's receives. */
Test(rc, DA18_a_failed_receive_is_the_cause_and_not_the_send_that_it_flushed)
{
	struct stage stage;

	stage_init(&stage, "mlx5", NULL);
	stage.end[0].options.stride_bytes = 4096;
	stage.end[1].options.stride_bytes = 8192;
	stage.end[0].script = shape_send;
	stage.end[1].script = send_too_much;
	stage_run(&stage, SIM_EAGER);
	CHECK_EQ(stage.end[0].rc, -EIO);
	CHECK_EQ(stage.end[0].cause.wc_status, IBV_WC_LOC_LEN_ERR);
	CHECK(!stage.end[0].cause.is_send, "%s", stage.end[0].cause.text);
	stage_fini(&stage);
}

Test(rc, L1_receives_are_posted_before_rtr_and_asked_for_as_the_seed_does)
{
	static const char first[] =
		"create_cq create_cq create_qp modify:1:39 reg_mr:4096:";
	struct stage stage;
	const char *log;

	play(&stage, NULL, shape_send, shape_recv);
	both_well(&stage);
	log = stage.end[0].spy.log;
	CHECK_HAS(log, first);
	/* All 24 in INIT; 1 is RTR. */
	CHECK_EQ(stage.end[0].spy.early_posts, 24);
	CHECK(strstr(log, "recv:4096:100017 modify:2:"), "%s", log);
	CHECK_EQ(stage.end[0].spy.asked.qp_type, IBV_QPT_RC);
	CHECK_EQ(stage.end[0].spy.asked.cap.max_send_wr, 4);
	CHECK_EQ(stage.end[0].spy.asked.cap.max_recv_wr, 28);
	CHECK_EQ(stage.end[0].spy.asked.cap.max_inline_data, 256);
	CHECK_EQ(stage.end[0].spy.rts.timeout, 14);
	CHECK_EQ(stage.end[0].spy.rts.retry_cnt, 7);
	CHECK_EQ(stage.end[0].spy.rts.rnr_retry, 7);
	CHECK_EQ(stage.end[0].spy.rtr.min_rnr_timer, 1);
	stage_fini(&stage);
}

/* --- receivers that are slow, late or short --- */

static int send_40(struct stage_end *end)
{
	int error = 0;

	for (int i = 0; !error && i < 40; i++)
		error = stage_send_pattern(end->transport, (uint64_t)i * 100,
					   100);
	return error ? error : stage_recv_pattern(end->transport, 0, 1);
}

static int sleep_and_recv_40(struct stage_end *end)
{
	int error;

	stage_sleep(STAGE_TIMEOUT_NS / 3);
	error = stage_recv_pattern(end->transport, 0, 4000);
	return error ? error : stage_send_pattern(end->transport, 0, 1);
}

Test(rc, L7_a_sender_waits_for_a_receiver_that_is_full)
{
	struct stage stage;

	play(&stage, NULL, send_40, sleep_and_recv_40);
	both_well(&stage);
	CHECK(stage.result.time_ns >= STAGE_TIMEOUT_NS / 3, "no wait");
	stage_fini(&stage);
}

static int send_and_flush(struct stage_end *end)
{
	uint64_t before = sim_play_now_ns();
	int error = stage_send_pattern(end->transport, 0, 100);

	if (!error)
		error = stage_recv_pattern(end->transport, 0, 1);
	end->took_ns = sim_play_now_ns() - before;
	return error;
}

Test(rc, L8_L9_DL10_a_peer_that_is_not_ready_costs_all_retries)
{
	struct stage stage;

	shape_init(&stage, rc, NULL);
	stage.end[0].options.timeout_ns = 20 * STAGE_TIMEOUT_NS;
	stage.end[0].script = send_and_flush;
	stage.end[1].skips_activate = true;
	stage.end[1].script = outlast;
	stage_run(&stage, SIM_EAGER);
	CHECK_EQ(stage.end[0].rc, -EIO);
	CHECK_EQ(stage.end[0].cause.code, VB_COMPLETION);
	CHECK_EQ(stage.end[0].cause.wc_status, IBV_WC_RETRY_EXC_ERR);
	CHECK_HAS(stage.end[0].cause.text, "the peer does not answer");
	/* 8 times 67 ms at least. */
	CHECK(stage.end[0].took_ns >= 536000000, "%llu ns",
	      (unsigned long long)stage.end[0].took_ns);
	CHECK_EQ(stage.end[0].closed, -EIO); /* latched */
	stage_fini(&stage);
}

static int send_100(struct stage_end *end)
{
	int error = stage_send_pattern(end->transport, 0, 100);

	return error ? error : stage_recv_pattern(end->transport, 0, 1);
}

/* One SEND of 100 bytes, read as 10 and 90, between bytes that stay. */
static int recv_10(struct stage_end *end)
{
	uint8_t bytes[30];
	int error;

	memset(bytes, 0xee, sizeof(bytes));
	error = vb_recv(end->transport, bytes + 10, 10);
	for (int i = 0; !error && i < 10; i++)
		if (bytes[i] != 0xee || bytes[20 + i] != 0xee)
			error = -EBADMSG;
	if (!error)
		error = stage_recv_pattern(end->transport, 10, 90);
	return error ? error : stage_send_pattern(end->transport, 0, 1);
}

Test(rc, L12_DL2_a_send_longer_than_the_read_stays_in_its_slot)
{
	struct stage stage;

	play(&stage, NULL, send_100, recv_10);
	both_well(&stage);
	stage_fini(&stage);
}

Test(rc, L3_DL2_an_empty_send_ends_the_stream)
{
	struct stage stage;

	play(&stage, "a.qp0.tx #0 trunc len=0", send_100, recv_10);
	CHECK_EQ(stage.end[1].rc, -EPROTO);
	CHECK_HAS(stage.end[1].cause.text, "completion of 0 bytes");
	CHECK(stage.end[0].rc < 0, "the other");
	stage_fini(&stage);
}

/* --- waiting and failing --- */

static int sleep_and_send(struct stage_end *end)
{
	stage_sleep(STAGE_TIMEOUT_NS / 2 + 123);
	return stage_send_pattern(end->transport, 0, 1);
}

static int wait_for_one(struct stage_end *end)
{
	uint64_t before = sim_play_now_ns();
	int error = stage_recv_pattern(end->transport, 0, 1);

	end->took_ns = sim_play_now_ns() - before;
	return error;
}

/* There is no event to lose: it looks at the queue each time it wakes. */
Test(rc, L11_DL12_what_comes_while_it_idles_is_seen_at_once)
{
	static const enum sim_personality ways[] = {SIM_EAGER, SIM_LATE,
						    SIM_PREEMPT};

	for (int i = 0; i < 3; i++) {
		struct stage stage;

		shape_init(&stage, rc, NULL);
		stage.end[0].script = sleep_and_send;
		stage.end[1].script = wait_for_one;
		stage_run(&stage, ways[i]);
		both_well(&stage);
		CHECK(stage.end[1].took_ns < STAGE_TIMEOUT_NS / 2 + 2000000,
		      "%llu ns", (unsigned long long)stage.end[1].took_ns);
		CHECK_EQ(spy_count(&stage.end[1].spy, "comp_channel"), 0);
		stage_fini(&stage);
	}
}

static int fail_and_try_all(struct stage_end *end)
{
	struct vb_transport *t = end->transport;
	int error = stage_recv_pattern(t, 0, 1);
	uint8_t byte = 0;

	if (vb_send(t, &byte, 1) != error || vb_flush(t) != error ||
	    vb_recv(t, &byte, 1) != error || vb_send(t, &byte, 0) != error)
		return -EBADMSG;
	return error;
}

static int fall_silent(struct stage_end *end)
{
	(void)end;
	stage_sleep(5 * STAGE_TIMEOUT_NS);
	return 0;
}

Test(rc, DL10_DL13_a_failure_is_latched_and_returned_never_an_abort)
{
	struct stage stage;

	play(&stage, NULL, fail_and_try_all, fall_silent);
	CHECK_EQ(stage.end[0].rc, -ETIMEDOUT);
	stage_fini(&stage);
}

/* The seed's peer that stayed on the socket: what it sends there is seen. */
static int write_on_the_socket(struct stage_end *end)
{
	(void)end;
	stage_sleep(2000000);
	return sim_stream_send("\x0e", 1) == 1 ? 0 : -EBADMSG;
}

Test(rc, DL1_a_peer_that_stayed_on_the_socket_is_noticed)
{
	struct stage stage;

	shape_init(&stage, rc, NULL);
	stage.end[0].script = wait_for_one;
	stage.end[1].skips_activate = true;
	stage.end[1].script = write_on_the_socket;
	stage_run(&stage, SIM_EAGER);
	CHECK_EQ(stage.end[0].rc, -EPROTO);
	CHECK_HAS(stage.end[0].cause.text, "0x0e");
	stage_fini(&stage);
}

/* --- without devices --- */

Test(rc, DL11_a_device_that_does_not_open_is_told_and_nothing_is_kept)
{
	struct stage stage;

	play(&stage, "a.verbs.open_device #0 fail=EACCES", NULL, NULL);
	CHECK_EQ(stage.end[0].probed, -ENODEV);
	CHECK_HAS(stage.end[0].cause.text, "1 left out");
	CHECK_HAS(stage.end[0].cause.text, strerror(EACCES));
	CHECK_EQ(stage.end[1].activated, 1);
	stage_fini(&stage);
}
