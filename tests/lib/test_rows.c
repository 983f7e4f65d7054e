/* SPDX-License-Identifier: MIT */
/*
 * Goal: rows of spec/apple-and-ggml-transports.md that a change of lib could
 * break unseen. Method: deterministic runs, in which the scripts look at their
 * spies between one call and the next.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness.h"
#include "tests/lib/shapes.h"

/* A script's way to say that a row is broken. */
#define BROKEN -EUCLEAN

static void both_well(struct stage *stage, const char *what)
{
	for (int i = 0; i < 2; i++)
		CHECK(stage->end[i].activated == 0 && stage->end[i].rc == 0 &&
			      stage->end[i].closed == 0,
		      "%s, %d: %d, %d: %s", what, i, stage->end[i].activated,
		      stage->end[i].rc, stage->end[i].cause.text);
}

static int posted(struct stage_end *end)
{
	return spy_count(&end->spy, "send:");
}

static uint32_t payload_of(struct stage_end *end)
{
	struct qp_stream *qs = qs_of(end);

	return qs->wire.stride_bytes - vb_frame_header_bytes(qs->wire.framing);
}

/* --- N3, DL1: who gives up says so itself --- */

static int shutdowns[2];
static void (*real_shutdown)(void *arg);

static void count_shutdown(void *arg)
{
	shutdowns[((struct stage_end *)arg)->side]++;
	real_shutdown(arg);
}

static int say_8(struct stage_end *end)
{
	int rc = stage_send_pattern(end->transport, 0, 8);

	if (!rc)
		rc = vb_flush(end->transport);
	return rc ? rc : stage_recv_pattern(end->transport, 0, 8);
}

static void give_up(const struct shape *shape, const char *plan, int side)
{
	struct stage stage;

	shape_init(&stage, shape, plan);
	for (int i = 0; i < 2; i++) {
		shutdowns[i] = 0;
		real_shutdown = stage.end[i].boot.shutdown;
		stage.end[i].boot.shutdown = count_shutdown;
		stage.end[i].script = say_8;
	}
	stage_run(&stage, SIM_EAGER);
	CHECK(stage.end[side].activated < 0, "%s: %d", plan,
	      stage.end[side].activated);
	CHECK(shutdowns[side] == 1, "%s: %d shutdowns", plan, shutdowns[side]);
	stage_fini(&stage);
}

/* Compat RC has no exchange: nothing else would tell the peer. */
Test(negotiate, N3_DL1_an_end_that_cannot_activate_shuts_the_stream_down)
{
	static const char *const calls[] = {"modify_qp #1", "modify_qp #2",
					    "post_recv #0", "post_recv #23"};

	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		for (int side = 0; side < 2; side++) {
			char plan[80];

			snprintf(plan, sizeof(plan), "%c.verbs.%s fail=EINVAL",
				 'a' + side, calls[i]);
			give_up(&shapes[2], plan, side);
		}
}

/* --- L13, DL3, A33: memory outlives what can write to it --- */

#define RING_MAX 4

/* The rings of end a, and what its device did to them while they were freed. */
static struct {
	void *memory[RING_MAX];
	size_t bytes[RING_MAX];
	int count;
	int changed; /* while they were freed */
	int posted;  /* SENDs of the peer in that time */
} rings;

static void *alloc_ring(void *arg, size_t align, size_t bytes)
{
	struct stage_end *end = arg;
	void *memory;

	if (posix_memalign(&memory, align, bytes) != 0)
		return NULL;
	if (end->side == 0 && rings.count < RING_MAX) {
		rings.memory[rings.count] = memory;
		rings.bytes[rings.count++] = bytes;
	}
	return memory;
}

/* Of all that are not freed. */
static uint32_t sum_rings(void)
{
	uint32_t sum = 0;

	for (int i = 0; i < rings.count; i++)
		if (rings.memory[i])
			sum = vb_crc32c(sum, rings.memory[i], rings.bytes[i]);
	return sum;
}

/* Noted among the verbs calls; and the peer is given the time to send. */
static void free_ring(void *arg, void *memory)
{
	struct stage_end *end = arg;

	strncat(end->spy.log, "free ", SPY_LOG_MAX - strlen(end->spy.log) - 1);
	if (end->side == 0) {
		int before = posted(&end->stage->end[1]);
		uint32_t sum = sum_rings();

		stage_sleep(1000000);
		rings.changed += sum_rings() != sum;
		rings.posted += posted(&end->stage->end[1]) - before;
		for (int i = 0; i < rings.count; i++)
			if (rings.memory[i] == memory)
				rings.memory[i] = NULL;
	}
	free(memory);
}

static int recv_one_and_leave(struct stage_end *end)
{
	return stage_recv_pattern(end->transport, 0, 1);
}

/* For as long as the other end takes to close, and a little longer. */
static int send_on_and_on(struct stage_end *end)
{
	int rc = 0;

	for (uint64_t i = 0; !rc && i < 100; i++) {
		rc = stage_send_pattern(end->transport, i * 4096, 4096);
		if (!rc)
			rc = vb_flush(end->transport);
		stage_sleep(100000);
	}
	return 0;
}

Test(stream, A33_L13_DL3_a_ring_is_freed_when_no_send_can_reach_it)
{
	for (int s = 0; s < SHAPE_COUNT; s++) {
		char last[128];
		struct stage stage;

		snprintf(last, sizeof(last),
			 "destroy_qp dereg_mr free dereg_mr free %s",
			 shape_last_calls(&shapes[s]));
		memset(&rings, 0, sizeof(rings));
		shape_init(&stage, &shapes[s], NULL);
		for (int i = 0; i < 2; i++) {
			stage.end[i].options.runtime.alloc = alloc_ring;
			stage.end[i].options.runtime.free = free_ring;
			stage.end[i].options.runtime.arg = &stage.end[i];
		}
		stage.end[0].script = recv_one_and_leave;
		stage.end[1].script = send_on_and_on;
		stage_run(&stage, SIM_EAGER);
		CHECK_EQ(stage.end[0].rc, 0);
		CHECK_EQ(rings.count, 2);
		CHECK(rings.posted > 0, "%s: nothing came", shapes[s].name);
		CHECK(rings.changed == 0, "%s: written to", shapes[s].name);
		for (int i = 0; i < 2; i++) {
			const char *log = stage.end[i].spy.log;
			const char *end = strstr(log, "destroy_qp");

			if (strstr(log, "free "))
				CHECK(end && strcmp(end, last) == 0, "%s: %s",
				      shapes[s].name, log);
		}
		stage_fini(&stage);
	}
}

/* --- A3: what a queue pair is asked for --- */

Test(stream, A3_a_default_uc_pair_is_512_frames_deep_with_one_sge)
{
	for (int s = 0; s < 2; s++) {
		struct stage stage;

		shape_init(&stage, &shapes[s], NULL);
		for (int i = 0; i < 2; i++) {
			stage.end[i].options.stride_bytes = 0;
			stage.end[i].script = say_8;
		}
		stage_run(&stage, SIM_EAGER);
		both_well(&stage, shapes[s].name);
		for (int i = 0; i < 2; i++) {
			struct ibv_qp_init_attr *asked =
				&stage.end[i].spy.asked;

			CHECK_EQ(asked->qp_type, IBV_QPT_UC);
			CHECK_EQ(asked->cap.max_send_wr, 512);
			CHECK_EQ(asked->cap.max_recv_wr, 512);
			CHECK_EQ(asked->cap.max_send_sge, 1);
			CHECK_EQ(asked->cap.max_recv_sge, 1);
			CHECK_EQ(asked->cap.max_inline_data, 0);
			CHECK_EQ(spy_count(&stage.end[i].spy, "create_qp"), 1);
		}
		stage_fini(&stage);
	}
}

/* --- A16, A18: when a frame is posted --- */

/* Three frames: whole, in two calls, and in place. */
static int fill_frames(struct stage_end *end)
{
	struct vb_transport *t = end->transport;
	uint32_t payload = payload_of(end);
	int before = posted(end), rc;
	void *space;
	size_t size;

	rc = stage_send_pattern(t, 0, payload);
	if (rc || posted(end) != before + 1)
		return rc ? rc : BROKEN;
	rc = stage_send_pattern(t, payload, payload - 1);
	if (rc || posted(end) != before + 1)
		return rc ? rc : BROKEN;
	rc = stage_send_pattern(t, 2 * payload - 1, 1);
	if (rc || posted(end) != before + 2)
		return rc ? rc : BROKEN;
	rc = vb_send_reserve(t, &space, &size);
	if (rc || size != payload)
		return rc ? rc : BROKEN;
	stage_fill_pattern(space, 2 * payload, payload);
	rc = vb_send_commit(t, payload);
	if (rc || posted(end) != before + 3)
		return rc ? rc : BROKEN;
	return stage_recv_pattern(t, 0, 1);
}

static int take_frames(struct stage_end *end)
{
	uint32_t payload = payload_of(end);
	int rc = stage_recv_pattern(end->transport, 0, 3 * payload);

	if (!rc)
		rc = stage_send_pattern(end->transport, 0, 1);
	return rc ? rc : vb_flush(end->transport);
}

/* Shapes whose calls share a frame; the other's frames end with the call. */
static void play_framed(int (*a)(struct stage_end *),
			int (*b)(struct stage_end *))
{
	for (int s = 0; s < SHAPE_COUNT; s++) {
		struct stage stage;

		if (shapes[s].sends == 1)
			continue;
		shape_init(&stage, &shapes[s], NULL);
		stage.end[0].script = a;
		stage.end[1].script = b;
		stage_run(&stage, SIM_EAGER);
		both_well(&stage, shapes[s].name);
		stage_fini(&stage);
	}
}

Test(stream, A16_a_full_frame_is_posted_by_the_call_that_fills_it)
{
	play_framed(fill_frames, take_frames);
}

/* Its answer waits behind data that is here already. */
static int answer_while_data_waits(struct stage_end *end)
{
	struct vb_transport *t = end->transport;
	int rc = stage_recv_pattern(t, 0, 3), before = posted(end);
	const void *data;
	size_t size;

	if (!rc)
		rc = stage_send_pattern(t, 0, 7);
	if (rc || posted(end) != before)
		return rc ? rc : BROKEN;
	rc = stage_recv_pattern(t, 3, 2);
	if (rc || posted(end) != before + 1)
		return rc ? rc : BROKEN;
	rc = stage_send_pattern(t, 7, 7);
	if (!rc)
		rc = vb_recv_peek(t, &data, &size);
	if (rc || posted(end) != before + 2 || size != 3)
		return rc ? rc : BROKEN;
	rc = stage_send_pattern(t, 14, 7);
	if (!rc)
		rc = vb_recv(t, NULL, 0);
	if (rc || posted(end) != before + 3)
		return rc ? rc : BROKEN;
	return stage_recv_pattern(t, 5, 3);
}

static int ask_and_wait(struct stage_end *end)
{
	int rc = stage_send_pattern(end->transport, 0, 8);

	return rc ? rc : stage_recv_pattern(end->transport, 0, 21);
}

Test(stream, A18_what_is_pending_is_posted_though_data_waits_already)
{
	play_framed(answer_while_data_waits, ask_and_wait);
}

/* --- A26: credit --- */

/* SENDs of the peer that have completed, as it has seen so far. */
static int completed(struct stage_end *end)
{
	struct stage_end *peer = &end->stage->end[1 - end->side];

	return posted(peer) - peer->spy.sends_out;
}

/* It looks at all that comes, and consumes not one frame; then just one. */
static int hoard(struct stage_end *end)
{
	uint32_t payload = payload_of(end);
	int slots = (int)qs_of(end)->recv_slots;
	const void *data;
	size_t size;
	int rc;

	stage_sleep(STAGE_TIMEOUT_NS / 10);
	if (completed(end) != slots)
		return BROKEN;
	rc = stage_recv_pattern(end->transport, 0, 1);
	if (!rc)
		rc = vb_recv_peek(end->transport, &data, &size);
	stage_sleep(STAGE_TIMEOUT_NS / 10);
	if (rc || completed(end) != slots)
		return rc ? rc : BROKEN;
	rc = stage_recv_pattern(end->transport, 1, payload - 1);
	stage_sleep(STAGE_TIMEOUT_NS / 10);
	if (rc || completed(end) != slots + 1)
		return rc ? rc : BROKEN;
	rc = stage_recv_pattern(end->transport, payload, SHAPE_BYTES - payload);
	end->slots = (uint32_t)slots;
	if (!rc)
		rc = stage_send_pattern(end->transport, 0, 5);
	return rc ? rc : vb_flush(end->transport);
}

Test(stream, A26_a_receiver_gives_one_credit_for_one_frame_consumed)
{
	for (int s = 0; s < SHAPE_COUNT; s++) {
		struct stage stage;

		shape_init(&stage, &shapes[s], NULL);
		stage.end[0].script = shape_send;
		stage.end[1].script = hoard;
		stage_run(&stage, SIM_EAGER);
		both_well(&stage, shapes[s].name);
		CHECK_EQ(stage.end[1].slots, shapes[s].slots);
		stage_fini(&stage);
	}
}

/* --- DL9: a device on which nothing connected works --- */

Test(rc, DL9_a_device_that_refuses_every_queue_pair_leaves_both_on_tcp)
{
	for (int s = 2; s < SHAPE_COUNT; s++) {
		struct stage stage;
		struct stage_end *end = stage.end;

		shape_init(&stage, &shapes[s],
			   "a.verbs.create_qp #0 fail=EOPNOTSUPP sticky");
		for (int i = 0; i < 2; i++) {
			end[i].has_connect = true;
			end[i].script = say_8;
		}
		stage_run(&stage, SIM_EAGER);
		both_well(&stage, shapes[s].name);
		for (int i = 0; i < 2; i++)
			CHECK(strcmp(end[i].transport_name, "tcp") == 0, "%s",
			      end[i].transport_name);
		CHECK_EQ(end[0].cause.code, VB_DEVICE);
		CHECK_EQ(end[0].cause.error, -EOPNOTSUPP);
		CHECK_HAS(end[0].cause.text, "create_qp on ");
		CHECK_HAS(end[0].cause.text, strerror(EOPNOTSUPP));
		/* With inline data, and without. */
		CHECK_EQ(spy_count(&end[0].spy, "create_qp"), 2);
		CHECK_EQ(end[1].cause.code, VB_NO_DEVICE);
		CHECK_HAS(end[1].cause.text, "the peer has no RDMA device");
		stage_fini(&stage);
	}
}

/* --- DA31, DA13: a stream that says EINTR and EAGAIN every other time --- */

static long (*real_send)(void *arg, const void *bytes, size_t len);
static long (*real_recv)(void *arg, void *bytes, size_t len, bool is_peek);
static long excuse;
/* Of each end, and of each way: no others may fall into step. */
static unsigned sends[2], recvs[2];

static long send_or_not(void *arg, const void *bytes, size_t len)
{
	struct stage_end *end = arg;

	return sends[end->side]++ % 2 ? real_send(arg, bytes, len) : excuse;
}

static long recv_or_not(void *arg, void *bytes, size_t len, bool is_peek)
{
	struct stage_end *end = arg;

	return recvs[end->side]++ % 2 ? real_recv(arg, bytes, len, is_peek)
				      : excuse;
}

/* A shape, or (past the last) the stream itself as a transport. */
static void play_excused(int s, long with)
{
	struct stage stage;

	shape_init(&stage, &shapes[s % SHAPE_COUNT], NULL);
	excuse = with;
	for (int i = 0; i < 2; i++) {
		struct stage_end *end = &stage.end[i];

		sends[i] = recvs[i] = 0;
		real_send = end->boot.send;
		real_recv = end->boot.recv;
		end->boot.send = send_or_not;
		end->boot.recv = recv_or_not;
		end->has_connect = true;
		if (s == SHAPE_COUNT)
			end->options.transport = VB_TRANSPORT_TCP;
		end->script = i ? shape_recv : shape_send;
	}
	stage_run(&stage, SIM_EAGER);
	both_well(&stage, s < SHAPE_COUNT ? shapes[s].name : "tcp");
	for (int i = 0; i < 2; i++)
		CHECK((strcmp(stage.end[i].transport_name, "tcp") == 0) ==
			      (s == SHAPE_COUNT),
		      "%s", stage.end[i].transport_name);
	stage_fini(&stage);
}

Test(negotiate, DA31_DA13_a_stream_that_says_later_or_EINTR_is_asked_again)
{
	static const long excuses[] = {-EINTR, -EAGAIN};

	for (int s = 0; s <= SHAPE_COUNT; s++)
		for (int i = 0; i < 2; i++)
			play_excused(s, excuses[i]);
}
