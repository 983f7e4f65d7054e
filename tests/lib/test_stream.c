/* SPDX-License-Identifier: MIT */
/*
 * Goal: a stream over one queue pair keeps the invariants of its contract in
 * every shape. Method: deterministic runs of both ends; the verbs of each are
 * spied on, and its state is looked at after every call.
 */
#include <errno.h>
#include <stdlib.h>

#include "tests/harness.h"
#include "tests/lib/pair.h"
#include "tests/lib/shapes.h"

static const enum sim_personality personalities[] = {SIM_EAGER, SIM_LATE,
						     SIM_PREEMPT};

/* --- what holds in every run --- */

/* Sizes around a stride of 4096, full ones before short ones. */
static const uint32_t sizes[] = {1,    4096, 4088, 40960, 0,	 7,
				 4080, 4097, 3,	   99999, 12288, 5};
#define SIZE_COUNT (sizeof(sizes) / sizeof(*sizes))

/* After any call: what is posted, what waits, what is in flight (A-17, A-22,
 * L-1). */
static int state_holds(struct stage_end *end)
{
	struct qp_stream *qs = qs_of(end);

	if (qs->posted_count + qs->queue_count != qs->recv_slots ||
	    qs->posted_count != (uint32_t)end->spy.recvs_out ||
	    qs->sends_busy != (uint32_t)end->spy.sends_out ||
	    qs->sends_busy > qs->send_slots)
		return -EUCLEAN;
	if (qs->pending >= 0 && qs->send_busy[qs->pending])
		return -EUCLEAN;
	return 0;
}

static int out(struct stage_end *end)
{
	uint64_t at = 0;
	int rc = 0;

	for (size_t i = 0; !rc && i < SIZE_COUNT; at += sizes[i++]) {
		rc = stage_send_pattern(end->transport, at, sizes[i]);
		if (!rc && i % 3 == 0)
			rc = vb_flush(end->transport);
		if (!rc)
			rc = state_holds(end);
	}
	return rc ? rc : vb_flush(end->transport);
}

static int in(struct stage_end *end)
{
	uint64_t total = 0, at = 0, take = 3;
	int rc = 0;

	for (size_t i = 0; i < SIZE_COUNT; i++)
		total += sizes[i];
	for (; !rc && at < total; at += take, take = take * 5 % 30007 + 1) {
		take = take < total - at ? take : total - at;
		rc = stage_recv_pattern(end->transport, at, take);
		if (!rc)
			rc = state_holds(end);
	}
	return rc;
}

static int out_in(struct stage_end *end)
{
	int rc = out(end);

	return rc ? rc : in(end);
}

static int in_out(struct stage_end *end)
{
	int rc = in(end);

	return rc ? rc : out(end);
}

typedef void (*look_fn)(const struct shape *shape, struct stage *stage,
			struct stage_end *end);

/* Every shape in every personality; then look at both ends. */
static void in_all_shapes(look_fn look)
{
	for (int s = 0; s < SHAPE_COUNT; s++)
		for (int p = 0; p < 3; p++) {
			struct stage stage;

			shape_init(&stage, &shapes[s], NULL);
			stage.end[0].script = out_in;
			stage.end[1].script = in_out;
			stage_run(&stage, personalities[p]);
			for (int i = 0; i < 2; i++) {
				CHECK(stage.end[i].rc == 0, "%s, %d: %d %s",
				      shapes[s].name, p, stage.end[i].rc,
				      stage.end[i].cause.text);
				CHECK_EQ(stage.end[i].closed, 0);
				look(&shapes[s], &stage, &stage.end[i]);
			}
			stage_fini(&stage);
		}
}

static void look_for_marks(const struct shape *shape, struct stage *stage,
			   struct stage_end *end)
{
	(void)stage;
	CHECK(end->spy.unmarked == 0, "%s: %d", shape->name, end->spy.unmarked);
}

Test(stream, A14_every_stride_carries_its_magic)
{
	in_all_shapes(look_for_marks);
}

static void look_for_padding(const struct shape *shape, struct stage *stage,
			     struct stage_end *end)
{
	(void)stage;
	CHECK(end->spy.dirty == 0, "%s: %d", shape->name, end->spy.dirty);
}

Test(stream, DA20_DA21_padding_is_zero_in_every_lap)
{
	in_all_shapes(look_for_padding);
}

static void look_at_flight(const struct shape *shape, struct stage *stage,
			   struct stage_end *end)
{
	CHECK(end->spy.touched == 0 && stage->result.changed == 0,
	      "%s: %d and %llu", shape->name, end->spy.touched,
	      (unsigned long long)stage->result.changed);
}

Test(stream, A21_L4_what_is_in_flight_is_not_touched)
{
	in_all_shapes(look_at_flight);
}

static void look_at_most(const struct shape *shape, struct stage *stage,
			 struct stage_end *end)
{
	(void)stage;
	CHECK(end->spy.sends_most <= (int)shape->sends, "%s: %d", shape->name,
	      end->spy.sends_most);
}

Test(stream, A17_A22_L2_no_more_sends_are_in_flight_than_slots)
{
	in_all_shapes(look_at_most);
}

static void look_at_reposts(const struct shape *shape, struct stage *stage,
			    struct stage_end *end)
{
	(void)stage;
	CHECK(end->spy.reposted == 0, "%s: %d", shape->name, end->spy.reposted);
	/* Once at the start, and once for each frame consumed. */
	CHECK_EQ(spy_count(&end->spy, "recv:4096:"),
		 shape->slots + end->frames_received);
}

Test(stream, A23_A24_A25_A26_L1_L6_a_slot_is_posted_once_a_frame)
{
	in_all_shapes(look_at_reposts);
}

static void look_at_order(const struct shape *shape, struct stage *stage,
			  struct stage_end *end)
{
	(void)stage;
	CHECK(end->spy.misordered == 0, "%s: %d", shape->name,
	      end->spy.misordered);
}

Test(stream, A19_A20_frames_are_posted_in_the_order_of_the_stream)
{
	in_all_shapes(look_at_order);
}

static void look_at_psn(const struct shape *shape, struct stage *stage,
			struct stage_end *end)
{
	struct stage_end *peer = &stage->end[1 - end->side];

	CHECK(end->spy.rts.sq_psn == peer->spy.rtr.rq_psn, "%s: %u and %u",
	      shape->name, end->spy.rts.sq_psn, peer->spy.rtr.rq_psn);
	CHECK_EQ(end->spy.rtr.path_mtu, peer->spy.rtr.path_mtu);
}

Test(stream, A11_both_ends_have_the_same_psn_and_mtu)
{
	in_all_shapes(look_at_psn);
}

static void look_at_teardown(const struct shape *shape, struct stage *stage,
			     struct stage_end *end)
{
	const char *log = end->spy.log;
	char last[128];

	(void)stage;
	snprintf(last, sizeof(last), "destroy_qp dereg_mr dereg_mr %s",
		 shape_last_calls(shape));
	CHECK(strcmp(log + strlen(log) - strlen(last), last) == 0, "%s: %s",
	      shape->name, log);
	CHECK_EQ(spy_count(&end->spy, "modify:6"), 0); /* ERR */
}

Test(stream, A33_A34_regions_go_after_what_can_write_to_them)
{
	in_all_shapes(look_at_teardown);
}

/* --- both at once --- */

static int both_send_first(struct stage_end *end)
{
	int rc = stage_send_pattern(end->transport, 0, SHAPE_BYTES);

	if (!rc)
		rc = vb_flush(end->transport);
	return rc ? rc : stage_recv_pattern(end->transport, 0, SHAPE_BYTES);
}

Test(stream, DA10_two_ends_that_send_first_do_not_wait_for_ever)
{
	for (int s = 0; s < SHAPE_COUNT; s++)
		for (int p = 0; p < 3; p++) {
			struct stage stage;

			shape_init(&stage, &shapes[s], NULL);
			stage.end[0].script = both_send_first;
			stage.end[1].script = both_send_first;
			stage_run(&stage, personalities[p]);
			for (int i = 0; i < 2; i++)
				CHECK(stage.end[i].rc == 0, "%s: %s",
				      shapes[s].name, stage.end[i].cause.text);
			stage_fini(&stage);
		}
}

Test(stream, DA10_what_may_wait_has_a_limit_that_is_told)
{
	for (int s = 0; s < SHAPE_COUNT; s++) {
		struct stage stage;
		int refused = 0;

		shape_init(&stage, &shapes[s], NULL);
		for (int i = 0; i < 2; i++) {
			stage.end[i].script = both_send_first;
			stage.end[i].options.backlog_bytes = 8000;
		}
		stage_run(&stage, SIM_EAGER);
		for (int i = 0; i < 2; i++) {
			CHECK(stage.end[i].rc < 0, "%s", shapes[s].name);
			refused += stage.end[i].rc == -ENOBUFS;
			if (stage.end[i].rc == -ENOBUFS)
				CHECK_EQ(stage.end[i].cause.code, VB_OVERFLOW);
			if (stage.end[i].rc == -ENOBUFS)
				CHECK_HAS(stage.end[i].cause.text,
					  "the limit is 8000");
		}
		CHECK(refused > 0, "%s", shapes[s].name);
		stage_fini(&stage);
	}
}

/* --- what the device says is not believed --- */

/* What end b makes of a device that misbehaves, in every shape. */
static void misbehave(void (*bend)(struct spy *spy), int rc, const char *text)
{
	for (int s = 0; s < SHAPE_COUNT; s++) {
		struct stage stage;
		struct stage_end *end = &stage.end[1];

		shape_init(&stage, &shapes[s], NULL);
		stage.end[0].script = shape_send;
		end->script = shape_recv;
		bend(&end->spy);
		stage_run(&stage, SIM_EAGER);
		CHECK(end->rc == rc, "%s: %d %s", shapes[s].name, end->rc,
		      end->cause.text);
		CHECK_HAS(end->cause.text, text);
		CHECK(stage.end[0].rc < 0, "%s: the other", shapes[s].name);
		stage_fini(&stage);
	}
}

static void swap_recvs(struct spy *spy)
{
	spy->bad.swap_recvs = true;
}

Test(stream, A27_receives_out_of_order_are_refused)
{
	misbehave(swap_recvs, -EPROTO, "not the oldest");
}

static void duplicate(struct spy *spy)
{
	spy->bad.duplicate_recv = true;
}

Test(stream, A24_DA17_a_receive_twice_is_refused)
{
	misbehave(duplicate, -EPROTO, "not the oldest");
}

static void foreign_id(struct spy *spy)
{
	spy->bad.wrong_wr_id = QS_RECV_TAG | 63;
}

Test(stream, DA16_DL11_an_index_out_of_range_is_refused)
{
	misbehave(foreign_id, -EPROTO, "wr_id 0x10003f");
}

static void too_long(struct spy *spy)
{
	spy->bad.wrong_byte_len = 4097;
}

Test(stream, L12_DL2_DA3_a_length_over_the_slot_is_refused)
{
	misbehave(too_long, -EPROTO, "completion of 4097 bytes");
}

static void nothing(struct spy *spy)
{
	spy->bad.zero_byte_len = true;
}

Test(stream, L3_DL2_a_receive_of_nothing_is_refused)
{
	misbehave(nothing, -EPROTO, "completion of 0 bytes");
}

static void wrong_opcode(struct spy *spy)
{
	spy->bad.wrong_opcode = IBV_WC_RECV_RDMA_WITH_IMM;
}

Test(stream, DA3_a_receive_of_another_kind_is_refused)
{
	misbehave(wrong_opcode, -EPROTO, "opcode");
}

static void dead_poll(struct spy *spy)
{
	spy->bad.poll_result = -EIO;
}

Test(stream, A29_a_poll_that_fails_is_latched)
{
	misbehave(dead_poll, -EIO, "poll_cq");
}

/* The first completions are looked at when all slots are busy. */
Test(stream, A22_a_full_send_queue_is_waited_for)
{
	for (int s = 0; s < SHAPE_COUNT; s++) {
		struct stage stage;

		if (shapes[s].sends == 1)
			continue;
		shape_init(&stage, &shapes[s],
			   "a.verbs.post_send #4 fail=ENOMEM");
		stage.end[0].script = shape_send;
		stage.end[1].script = shape_recv;
		stage_run(&stage, SIM_EAGER);
		for (int i = 0; i < 2; i++)
			CHECK(stage.end[i].rc == 0, "%s: %s", shapes[s].name,
			      stage.end[i].cause.text);
		stage_fini(&stage);
	}
}

/* --- deadlines --- */

static int drip(struct stage_end *end)
{
	int rc = 0;

	for (int i = 0; !rc && i < 10; i++) {
		stage_sleep(STAGE_TIMEOUT_NS * 2 / 3);
		rc = stage_send_pattern(end->transport, (uint64_t)i, 1);
		if (!rc)
			rc = vb_flush(end->transport);
	}
	return rc ? rc : stage_recv_pattern(end->transport, 0, 5);
}

static int drink(struct stage_end *end)
{
	int rc = stage_recv_pattern(end->transport, 0, 10);

	if (!rc)
		rc = stage_send_pattern(end->transport, 0, 5);
	return rc ? rc : vb_flush(end->transport);
}

Test(stream, A32_whatever_moves_puts_the_deadline_off)
{
	for (int s = 0; s < SHAPE_COUNT; s++) {
		struct stage stage;

		shape_init(&stage, &shapes[s], NULL);
		stage.end[0].script = drip;
		stage.end[1].script = drink;
		/* The dripping end waits for 5 bytes only at the end. */
		stage_run(&stage, SIM_EAGER);
		for (int i = 0; i < 2; i++)
			CHECK(stage.end[i].rc == 0, "%s: %s", shapes[s].name,
			      stage.end[i].cause.text);
		stage_fini(&stage);
	}
}

static int sleep_long(struct stage_end *end)
{
	(void)end;
	stage_sleep(10 * STAGE_TIMEOUT_NS);
	return 0;
}

static int send_and_measure(struct stage_end *end)
{
	uint64_t before = sim_play_now_ns();
	int rc = stage_send_pattern(end->transport, 0, SHAPE_BYTES);

	end->took_ns = sim_play_now_ns() - before;
	return rc;
}

static int recv_and_measure(struct stage_end *end)
{
	uint64_t before = sim_play_now_ns();
	int rc = stage_recv_pattern(end->transport, 0, 1);

	end->took_ns = sim_play_now_ns() - before;
	return rc;
}

/* A sender and a receiver of every shape, alone with such a peer. */
static void alone_with(int (*peer)(struct stage_end *), look_fn look)
{
	static int (*const scripts[])(struct stage_end *) = {send_and_measure,
							     recv_and_measure};

	for (int s = 0; s < SHAPE_COUNT; s++)
		for (int i = 0; i < 2; i++) {
			struct stage stage;

			shape_init(&stage, &shapes[s], NULL);
			stage.end[0].script = scripts[i];
			stage.end[1].script = peer;
			stage_run(&stage, SIM_EAGER);
			CHECK(stage.end[0].rc < 0, "%s %d", shapes[s].name, i);
			CHECK_EQ(stage.end[0].closed, stage.end[0].rc);
			look(&shapes[s], &stage, &stage.end[0]);
			stage_fini(&stage);
		}
}

static void look_for_deadline(const struct shape *shape, struct stage *stage,
			      struct stage_end *end)
{
	(void)stage;
	CHECK(end->rc == -ETIMEDOUT, "%s: %s", shape->name, end->cause.text);
	CHECK_EQ(end->cause.code, VB_TIMEOUT);
	CHECK_EQ(end->cause.is_send, end->script == send_and_measure);
	CHECK(end->took_ns - STAGE_TIMEOUT_NS <= 2000000, "%s: %llu ns",
	      shape->name, (unsigned long long)end->took_ns);
}

/* One deadline for whoever waits, since something last moved. */
Test(stream, A31_DA1_DA5_DA29_DL4_DL5_a_silent_peer_is_given_the_deadline)
{
	alone_with(sleep_long, look_for_deadline);
}

static int end_stream(struct stage_end *end)
{
	(void)end;
	stage_sleep(1000000);
	sim_stream_end();
	return 0;
}

static void look_for_grace(const struct shape *shape, struct stage *stage,
			   struct stage_end *end)
{
	(void)stage;
	CHECK(end->took_ns <= STAGE_TIMEOUT_NS / 10 + 3000000, "%s: %llu ns",
	      shape->name, (unsigned long long)end->took_ns);
}

/* The grace for frames that its end overtook, and a look at it each ms. */
Test(stream, A31_L10_DA6_DA8_a_peers_end_is_seen_within_the_grace)
{
	alone_with(end_stream, look_for_grace);
}

static int end_then_send(struct stage_end *end)
{
	int rc;

	stage_sleep(STAGE_TIMEOUT_NS / 2);
	sim_stream_end();
	stage_sleep(STAGE_TIMEOUT_NS / 20);
	rc = stage_send_pattern(end->transport, 0, 5);
	return rc ? rc : vb_flush(end->transport);
}

static int recv_5(struct stage_end *end)
{
	return stage_recv_pattern(end->transport, 0, 5);
}

/* A clock that moves while it is looked at, as real ones do. */
static uint64_t moving_now(void *arg)
{
	static uint64_t looks;

	(void)arg;
	return sim_play_now_ns() + ++looks;
}

/* The grace begins with the end, however long nothing has moved before. */
Test(stream, DA6_frames_after_a_peers_end_are_waited_for)
{
	for (int s = 0; s < SHAPE_COUNT; s++) {
		struct stage stage;

		shape_init(&stage, &shapes[s], NULL);
		stage.end[0].script = end_then_send;
		stage.end[1].script = recv_5;
		stage.end[1].options.runtime.now_ns = moving_now;
		stage_run(&stage, SIM_EAGER);
		CHECK(stage.end[1].rc == 0, "%s: %s", shapes[s].name,
		      stage.end[1].cause.text);
		stage_fini(&stage);
	}
}

/* --- devices --- */

Test(stream, DA25_the_queue_pair_too_many_is_told_with_its_reason)
{
	struct vb_options options = {
		.fd = -1,
		.verbs = rig_verbs(),
		.gid = {[10] = 0xff, 0xff, 127, 0, 0, 1},
	};
	struct vb_transport *transports[10], *one_more;
	uint8_t caps[VB_CAPS_BYTES];
	struct vb_cause cause;
	struct rig rig;

	setenv("VERBENA_QUIET", "1", 1);
	rig_open(&rig, "apple-tb", NULL);
	for (int i = 0; i < 10; i++)
		CHECK_EQ(vb_probe(&options, caps, &transports[i], &cause), 0);
	CHECK_EQ(vb_probe(&options, caps, &one_more, &cause), -EBUSY);
	CHECK_HAS(cause.text, "create_qp on rdma_en5");
	CHECK_HAS(cause.text, strerror(EBUSY));
	for (int i = 0; i < 10; i++)
		CHECK_EQ(vb_close(transports[i], NULL), 0);
	rig_close(&rig);
}

Test(stream, DA26_strides_of_one_frame_are_never_more)
{
	struct stage stage;

	shape_init(&stage, &shapes[0], NULL);
	stage.end[0].script = shape_send;
	stage.end[1].script = shape_recv;
	stage_run(&stage, SIM_EAGER);
	CHECK_EQ(stage.end[0].rc, 0);
	CHECK_EQ(spy_count(&stage.end[0].spy, "send:"),
		 spy_count(&stage.end[0].spy, "send:4096:2 "));
	stage_fini(&stage);
}

Test(stream, DA32_what_a_call_returned_is_told_not_errno)
{
	struct stage stage;

	shape_init(&stage, &shapes[0], NULL);
	stage.end[0].spy.bad.fail_rtr = ENETUNREACH;
	errno = 0;
	stage_run(&stage, SIM_EAGER);
	CHECK_EQ(stage.end[0].activated, 1);
	CHECK_EQ(stage.end[0].cause.error, -ENETUNREACH);
	CHECK_HAS(stage.end[0].cause.text, strerror(ENETUNREACH));
	stage_fini(&stage);
}

/* Two threads, under ThreadSanitizer, too: what a completion says is there, is
 * there for who polled it. */
static int pair_both_send(struct pair_end *end)
{
	int rc = stage_send_pattern(end->transport, 0, 40 * PAIR_PAYLOAD);

	if (!rc)
		rc = vb_flush(end->transport);
	return rc ? rc
		  : stage_recv_pattern(end->transport, 0, 40 * PAIR_PAYLOAD);
}

Test(stream, DA33_DA10_two_threads_see_what_was_completed)
{
	struct pair pair;

	pair_init(&pair, "apple-tb", NULL);
	for (int i = 0; i < 2; i++) {
		pair.end[i].script = pair_both_send;
		pair.end[i].options.timeout_ns = 20000000000ull;
	}
	pair_run(&pair);
	for (int i = 0; i < 2; i++)
		CHECK(pair.end[i].rc == 0, "%s", pair.end[i].cause.text);
	pair_fini(&pair);
}
