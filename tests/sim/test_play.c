/* SPDX-License-Identifier: MIT */
/*
 * Goal: a deterministic run is one. Method: the Apple UC transport sends 14
 * strides each way in each personality, again and again; and tasks that do one
 * thing wrong show how it is told.
 */
#include <errno.h>
#include <stdlib.h>

#include "tests/harness.h"
#include "tests/rig.h"
#include "tests/stage.h"

#define STRIDE_PAYLOAD 4088u
#define STRIDES	       14u

static int send_14(struct stage_end *end)
{
	return stage_send_pattern(end->transport, 0, STRIDES * STRIDE_PAYLOAD);
}

static int recv_14(struct stage_end *end)
{
	return stage_recv_pattern(end->transport, 0, STRIDES * STRIDE_PAYLOAD);
}

static const char *const names[] = {"eager", "late", "preempt"};

/* One run; its hash. */
static uint64_t transfer(enum sim_personality personality, bool prints)
{
	struct stage stage;
	uint64_t hash;

	stage_init(&stage, "apple-tb", NULL);
	stage.end[0].script = send_14;
	stage.end[1].script = recv_14;
	stage_run(&stage, personality);
	CHECK(stage.played == 0, "%s", stage.result.text);
	for (int i = 0; i < 2; i++) {
		CHECK(stage.end[i].rc == 0, "%d: %s", stage.end[i].rc,
		      stage.end[i].cause.text);
		CHECK_EQ(stage.end[i].closed, 0);
	}
	CHECK_EQ(stage.result.changed, 0);
	hash = stage.result.hash;
	if (prints)
		printf("hash %s %016llx: %llu events, %llu turns, %llu ns\n",
		       names[personality], (unsigned long long)hash,
		       (unsigned long long)stage.result.events,
		       (unsigned long long)stage.result.turns,
		       (unsigned long long)stage.result.time_ns);
	if (getenv("SHOW"))
		fputs(stage.trace, stdout);
	stage_fini(&stage);
	return hash;
}

Test(play, a_scenario_has_one_trace)
{
	for (int p = SIM_EAGER; p <= SIM_PREEMPT; p++) {
		uint64_t first = transfer(p, true);

		for (int i = 1; i < 20; i++)
			CHECK_EQ(transfer(p, false), first);
	}
}

/* What `plain --repeat` times: ci/bench.py. */
Test(play, a_transfer_of_14_strides_eager)
{
	transfer(SIM_EAGER, false);
}

/* --- tasks over bare verbs --- */

/* Two connected ends, made before the run; what the tasks found. */
struct bare {
	struct rig rig;
	struct sim_play play;
	struct sim_play_result result;
	int rc[4];
	struct ibv_wc wc[2];
	uint64_t time_ns;
	uint8_t seen;
	int steps;
};

typedef void (*task_fn)(void *arg);

static void bare_init(struct bare *bare, const char *model,
		      enum ibv_qp_type type)
{
	setenv("VERBENA_QUIET", "1", 1);
	memset(bare, 0, sizeof(*bare));
	rig_pair(&bare->rig, model, NULL, type);
	bare->play.world = bare->rig.world;
}

static int bare_run(struct bare *bare, task_fn a, task_fn b)
{
	struct sim_task tasks[2] = {{0, a, bare}, {1, b, bare}};

	return sim_play(&bare->play, tasks, 2, &bare->result);
}

/* As programs do: nothing but polls, until there is one. What poll returned
 * last. */
static int await_wc(struct rig_end *end, struct ibv_wc *wc)
{
	int got;

	do {
		got = ibv_poll_cq(end->cq, 1, wc);
	} while (got == 0);
	return got;
}

/* Host a receives, as its task begins. */
static void recv_one(void *arg)
{
	struct bare *bare = arg;
	struct rig_end *end = &bare->rig.end[0];

	bare->rc[2] = rig_recv(end, 7, 0, 4096);
	bare->seen = end->memory[0];
	bare->rc[0] = await_wc(end, &bare->wc[0]);
}

static void send_one(void *arg)
{
	struct bare *bare = arg;
	struct rig_end *end = &bare->rig.end[1];

	memset(end->memory, 1, 4096);
	bare->rc[3] = rig_send(end, 3, 0, 4096);
	bare->rc[1] = await_wc(end, &bare->wc[1]);
	bare->time_ns = sim_play_now_ns();
}

static void send_and_scribble(void *arg)
{
	struct bare *bare = arg;
	struct rig_end *end = &bare->rig.end[1];

	memset(end->memory, 1, 4096);
	bare->rc[3] = rig_send(end, 3, 0, 4096);
	memset(end->memory, 2, 4096); /* too early */
	bare->rc[1] = await_wc(end, &bare->wc[1]);
}

Test(play, late_shows_a_buffer_that_is_reused_before_its_completion)
{
	for (int p = SIM_EAGER; p <= SIM_LATE; p++) {
		bool is_late = p == SIM_LATE;
		struct bare bare;

		bare_init(&bare, "mlx5", IBV_QPT_RC);
		bare.play.personality = p;
		CHECK_EQ(bare_run(&bare, recv_one, send_and_scribble), 0);
		for (int i = 0; i < 2; i++)
			CHECK_EQ(bare.rc[i], 1);
		CHECK_EQ(bare.wc[0].status, IBV_WC_SUCCESS);
		CHECK_EQ(bare.rig.end[0].memory[4095], is_late ? 2 : 1);
		CHECK_EQ(bare.result.changed, is_late);
		/* What the device owned meanwhile. */
		CHECK_EQ(bare.seen, is_late ? 0xa5 : 0);
		rig_close(&bare.rig);
	}
}

/* Host b, to or from the first 8 bytes of host a's memory. */
static int post_one_sided(struct bare *bare, enum ibv_wr_opcode opcode)
{
	struct rig_end *end = &bare->rig.end[1];
	struct ibv_sge sge = {(uintptr_t)end->memory, 8, end->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = opcode,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)bare->rig.end[0].memory;
	wr.wr.rdma.rkey = bare->rig.end[0].mr->rkey;
	return ibv_post_send(end->qp, &wr, &bad);
}

static void read_one(void *arg)
{
	struct bare *bare = arg;
	struct rig_end *end = &bare->rig.end[1];

	bare->rc[3] = post_one_sided(bare, IBV_WR_RDMA_READ);
	bare->seen = end->memory[0];
	bare->rc[1] = await_wc(end, &bare->wc[1]);
}

static void do_nothing(void *arg)
{
	(void)arg;
}

Test(play, late_poisons_what_a_read_will_fill)
{
	struct bare bare;

	bare_init(&bare, "mlx5", IBV_QPT_RC);
	bare.play.personality = SIM_LATE;
	CHECK_EQ(bare_run(&bare, do_nothing, read_one), 0);
	CHECK_EQ(bare.seen, 0xa5);
	/* Refused, as the queue pair allows no reads from afar. */
	CHECK_EQ(bare.wc[1].status, IBV_WC_REM_INV_REQ_ERR);
	rig_close(&bare.rig);
}

Test(play, waits_that_nothing_can_end_are_told_at_once)
{
	struct bare bare;

	bare_init(&bare, "mlx5", IBV_QPT_UC);
	/* Nobody sends; the other waits for the stream. */
	CHECK_EQ(bare_run(&bare, recv_one, do_nothing), -EDEADLK);
	CHECK(bare.result.is_deadlock, "no deadlock");
	CHECK_HAS(bare.result.text,
		  "deadlock at 0 ns: a waits for a completion (qp0: 0 sends, 1 "
		  "receives outstanding)");
	/* It was told, by a poll that failed. */
	CHECK(bare.rc[0] < 0, "poll: %d", bare.rc[0]);
	rig_close(&bare.rig);
}

static void wait_for_stream(void *arg)
{
	struct bare *bare = arg;
	uint8_t byte;

	bare->rc[1] = sim_stream_wait(false, SIM_NO_LIMIT);
	bare->rc[3] = (int)sim_stream_recv(&byte, 1, false);
}

Test(play, a_deadlock_names_each_that_waits)
{
	struct bare bare;

	bare_init(&bare, "mlx5", IBV_QPT_UC);
	CHECK_EQ(bare_run(&bare, recv_one, wait_for_stream), -EDEADLK);
	CHECK_HAS(bare.result.text, "a waits for a completion");
	CHECK_HAS(bare.result.text, "; b waits for bytes of the stream");
	CHECK_EQ(bare.rc[1], 0);
	CHECK_EQ(bare.rc[3], -ECONNRESET);
	rig_close(&bare.rig);
}

static void never_heed(void *arg)
{
	struct rig_end *end = &((struct bare *)arg)->rig.end[0];
	struct ibv_wc wc;

	for (;;)
		ibv_poll_cq(end->cq, 1, &wc);
}

Test(play, a_task_that_does_not_heed_the_end_is_ended)
{
	struct bare bare;

	bare_init(&bare, "mlx5", IBV_QPT_UC);
	CHECK_EQ(bare_run(&bare, never_heed, do_nothing), -EDEADLK);
	rig_close(&bare.rig);
}

static void say_byte_after_byte(void *arg)
{
	uint8_t byte = 0;

	(void)arg;
	while (sim_stream_send(&byte, 1) == 1 &&
	       sim_stream_wait(false, SIM_NO_LIMIT) &&
	       sim_stream_recv(&byte, 1, false) == 1)
		;
}

Test(play, a_run_without_end_stops_at_its_limits)
{
	struct bare bare;

	bare_init(&bare, "mlx5", IBV_QPT_UC);
	bare.play.event_limit = 1000;
	CHECK_EQ(bare_run(&bare, say_byte_after_byte, say_byte_after_byte),
		 -ELOOP);
	CHECK_HAS(bare.result.text, "no end after 100");
	CHECK_HAS(bare.result.text, "the limit of events");
	CHECK(!bare.result.is_deadlock, "deadlock");
	rig_close(&bare.rig);
}

static void spin_over_sends(void *arg)
{
	struct rig_end *end = &((struct bare *)arg)->rig.end[0];
	struct ibv_wc wc;

	while (rig_send(end, 1, 0, 8) == 0 && ibv_poll_cq(end->cq, 1, &wc) >= 0)
		;
}

static void spin_over_idling(void *arg)
{
	struct bare *bare = arg;

	while (sim_play_now_ns() == 0)
		sim_play_idle(0);
	bare->rc[0] = 1;
}

Test(play, so_does_a_task_that_never_waits)
{
	static const task_fn spins[] = {spin_over_sends, spin_over_idling};

	for (int i = 0; i < 2; i++) {
		struct bare bare;

		bare_init(&bare, "mlx5", IBV_QPT_UC);
		bare.play.event_limit = 1000;
		CHECK_EQ(bare_run(&bare, spins[i], do_nothing), -ELOOP);
		rig_close(&bare.rig);
	}
}

/* rnr_retry 7 tries for ever; that nothing comes of it is no event. */
static void send_for_ever(void *arg)
{
	struct bare *bare = arg;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS};

	(void)rig_modify(&bare->rig.end[1], NULL, IBV_QPS_RESET);
	for (int step = IBV_QPS_INIT; step <= IBV_QPS_RTR; step++)
		(void)rig_modify(&bare->rig.end[1], &bare->rig.end[0], step);
	attr.timeout = 14;
	attr.retry_cnt = attr.rnr_retry = 7;
	attr.max_rd_atomic = 1;
	bare->rc[3] =
		ibv_modify_qp(bare->rig.end[1].qp, &attr,
			      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
				      IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				      IBV_QP_MAX_QP_RD_ATOMIC);
	send_one(arg);
}

Test(play, timers_that_wake_nobody_are_a_deadlock)
{
	struct bare bare;

	bare_init(&bare, "mlx5", IBV_QPT_RC);
	CHECK_EQ(bare_run(&bare, do_nothing, send_for_ever), -EDEADLK);
	CHECK_EQ(bare.rc[3], 0);
	CHECK_HAS(bare.result.text, "timers run on and on");
	CHECK_HAS(bare.result.text, "b waits for a completion (qp0: 1 sends");
	rig_close(&bare.rig);
}

/* --- time --- */

Test(play, timers_run_on_a_clock_that_nobody_waits_for)
{
	struct bare bare;
	struct ibv_qp_attr attr = {.min_rnr_timer = 31}; /* 491.52 ms */

	bare_init(&bare, "mlx5", IBV_QPT_RC);
	CHECK_EQ(ibv_modify_qp(bare.rig.end[0].qp, &attr, IBV_QP_MIN_RNR_TIMER),
		 0);
	CHECK_EQ(bare_run(&bare, do_nothing, send_one), 0);
	CHECK_EQ(bare.rc[1], 1);
	CHECK_EQ(bare.wc[1].status, IBV_WC_RNR_RETRY_EXC_ERR);
	/* The rig's rnr_retry is 3: sent once and three times again. */
	CHECK_EQ(bare.time_ns, 4 * 491520000ull);
	rig_close(&bare.rig);
}

static void idle_for_an_hour(void *arg)
{
	struct bare *bare = arg;

	while (sim_play_now_ns() < 3000000000000ull)
		sim_play_idle(3000000000000ull);
	bare->time_ns = sim_play_now_ns();
}

static void poll_till_a_second(void *arg)
{
	struct bare *bare = arg;
	struct rig_end *end = &bare->rig.end[1];
	struct ibv_wc wc;

	while (sim_play_now_ns() < 1000000000 &&
	       ibv_poll_cq(end->cq, 1, &wc) == 0)
		bare->steps++;
	bare->rc[1] = sim_play_now_ns() == 1000000000;
}

Test(play, the_clock_goes_to_the_next_deadline_and_to_no_other)
{
	struct bare bare;

	bare_init(&bare, "mlx5", IBV_QPT_RC);
	CHECK_EQ(bare_run(&bare, idle_for_an_hour, poll_till_a_second), 0);
	CHECK_EQ(bare.time_ns, 3000000000000ull);
	/* A loop that reads the clock between polls gets on by milliseconds. */
	CHECK_EQ(bare.rc[1], 1);
	CHECK(bare.steps < 10000, "%d polls", bare.steps);
	rig_close(&bare.rig);
}

/* --- who is next --- */

static void recv_with_event(void *arg)
{
	struct bare *bare = arg;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq, *found = NULL;
	void *context;

	channel = ibv_create_comp_channel(bare->rig.end[0].context);
	cq = ibv_create_cq(bare->rig.end[0].context, 4, NULL, channel, 0);
	bare->rc[0] = ibv_req_notify_cq(cq, 0);
	/* Nothing completes on it: the end is told here, too. */
	bare->rc[2] = ibv_get_cq_event(channel, &found, &context);
	ibv_destroy_cq(cq);
	ibv_destroy_comp_channel(channel);
}

Test(play, a_sleep_on_a_channel_is_a_wait_like_any)
{
	struct bare bare;

	bare_init(&bare, "mlx5", IBV_QPT_RC);
	CHECK_EQ(bare_run(&bare, recv_with_event, do_nothing), -EDEADLK);
	CHECK_HAS(bare.result.text, "a waits for an event of its channel");
	CHECK_EQ(bare.rc[0], 0);
	CHECK_EQ(bare.rc[2], -1);
	rig_close(&bare.rig);
}

/* As some do: one queue a few times, then the next. */
static void recv_on_one_of_two(void *arg)
{
	struct bare *bare = arg;
	struct rig_end *end = &bare->rig.end[0];
	struct ibv_cq *other = ibv_create_cq(end->context, 4, NULL, NULL, 0);
	int got = 0;

	(void)rig_recv(end, 7, 0, 4096);
	for (int turn = 0; got == 0; turn++)
		got = ibv_poll_cq(turn % 16 < 8 ? other : end->cq, 1,
				  &bare->wc[0]);
	bare->rc[0] = got;
	ibv_destroy_cq(other);
}

Test(play, a_completion_on_a_queue_not_polled_yet_is_no_deadlock)
{
	struct bare bare;

	bare_init(&bare, "mlx5", IBV_QPT_RC);
	CHECK_EQ(bare_run(&bare, recv_on_one_of_two, send_one), 0);
	CHECK_EQ(bare.rc[0], 1);
	rig_close(&bare.rig);
}

static void write_one(void *arg)
{
	struct bare *bare = arg;
	struct rig_end *end = &bare->rig.end[1];

	memset(end->memory, 9, 8);
	bare->rc[3] = post_one_sided(bare, IBV_WR_RDMA_WRITE);
	bare->rc[1] = await_wc(end, &bare->wc[1]);
}

/* Polls, and looks at its memory. */
static void watch_memory(void *arg)
{
	struct bare *bare = arg;
	struct rig_end *end = &bare->rig.end[0];

	while (end->memory[0] != 9 &&
	       ibv_poll_cq(end->cq, 1, &bare->wc[0]) == 0)
		;
	bare->seen = end->memory[0];
}

/* Region and queue pair that peers may write to. */
static void let_write(struct rig_end *end)
{
	struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_REMOTE_WRITE};

	CHECK_EQ(ibv_dereg_mr(end->mr), 0);
	end->mr = ibv_reg_mr(end->pd, end->memory, RIG_BYTES,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	CHECK(end->mr, "reg_mr");
	CHECK_EQ(ibv_modify_qp(end->qp, &attr, IBV_QP_ACCESS_FLAGS), 0);
}

Test(play, a_write_that_is_sent_again_wakes_who_looks_for_it)
{
	static const char *const plans[] = {NULL, "b.qp0.tx #0 drop",
					    "a.qp0.rx #0 drop"};

	for (int i = 0; i < 3; i++) {
		struct bare bare;

		setenv("VERBENA_QUIET", "1", 1);
		memset(&bare, 0, sizeof(bare));
		rig_pair(&bare.rig, "mlx5", plans[i], IBV_QPT_RC);
		bare.play.world = bare.rig.world;
		let_write(&bare.rig.end[0]);
		CHECK_EQ(bare_run(&bare, watch_memory, write_one), 0);
		CHECK_EQ(bare.wc[1].status, IBV_WC_SUCCESS);
		CHECK_EQ(bare.seen, 9);
		rig_close(&bare.rig);
	}
}

static void send_and_deregister(void *arg)
{
	struct bare *bare = arg;
	struct rig_end *end = &bare->rig.end[1];

	memset(end->memory, 7, 4096);
	bare->rc[3] = rig_send(end, 3, 0, 4096);
	bare->rc[3] |= ibv_dereg_mr(end->mr);
	bare->rc[1] = await_wc(end, &bare->wc[1]);
	end->mr = NULL;
}

Test(play, late_does_not_take_a_lost_region_for_a_changed_buffer)
{
	struct bare bare;

	bare_init(&bare, "mlx5", IBV_QPT_UC);
	bare.play.personality = SIM_LATE;
	CHECK_EQ(bare_run(&bare, do_nothing, send_and_deregister), 0);
	CHECK_EQ(bare.wc[1].status, IBV_WC_LOC_PROT_ERR);
	CHECK_EQ(bare.result.changed, 0);
	rig_close(&bare.rig);
}

/* The trace of one preempted transfer; freed by the caller. */
static char *preempted(const uint64_t *switches, int count, uint64_t seed)
{
	struct stage stage;
	char *trace;

	stage_init(&stage, "apple-tb", NULL);
	stage.end[0].script = send_14;
	stage.end[1].script = recv_14;
	stage.play.switches = switches;
	stage.play.switch_count = count;
	stage.play.seed = seed;
	stage_run(&stage, SIM_PREEMPT);
	CHECK_EQ(stage.played, 0);
	CHECK_EQ(stage.end[1].rc, 0);
	trace = strdup(stage.trace);
	stage_fini(&stage);
	return trace;
}

/* The ordinals of its "switch" lines. */
static int find_switches(const char *trace, uint64_t *switches, int max)
{
	int count = 0;

	for (const char *at = trace;
	     (at = strstr(at, " switch call ")) && count < max; at++)
		switches[count++] =
			strtoull(at + strlen(" switch call "), NULL, 10);
	return count;
}

Test(play, the_switches_of_a_seed_can_be_listed)
{
	uint64_t switches[1024];
	char *seeded = preempted(NULL, 0, 0x5eed);
	char *other = preempted(NULL, 0, 0xfeed);
	int count = find_switches(seeded, switches, 1024);
	char *listed = preempted(switches, count, 0);

	CHECK(count > 10, "%d switches", count);
	CHECK(strcmp(seeded, listed) == 0, "another trace");
	CHECK(strcmp(seeded, other) != 0, "one trace for two seeds");
	free(seeded);
	free(other);
	free(listed);
}

/* --- the stream --- */

static int send_8(struct stage_end *end)
{
	return stage_send_pattern(end->transport, 0, 8);
}

static int recv_8(struct stage_end *end)
{
	return stage_recv_pattern(end->transport, 0, 8);
}

/* What both ends' activation returned, under a plan. */
static void activate_under(const char *plan, int activated[2])
{
	struct stage stage;

	stage_init(&stage, "apple-tb", plan);
	stage.end[0].script = send_8;
	stage.end[1].script = recv_8;
	stage_run(&stage, SIM_EAGER);
	CHECK_EQ(stage.played, 0);
	CHECK(strstr(stage.trace, " fault  f1 "), "no strike:\n%s",
	      stage.trace);
	for (int i = 0; i < 2; i++)
		activated[i] = stage.end[i].activated;
	stage_fini(&stage);
}

Test(play, faults_strike_the_stream)
{
	int activated[2];

	/* Byte 24 is the readiness byte. */
	activate_under("b.boot.in @24 flip xor=0x40", activated);
	CHECK_EQ(activated[0], 0);
	CHECK_EQ(activated[1], -EPROTO);
	activate_under("a.boot.out @24 stall", activated);
	CHECK_EQ(activated[1], -ETIMEDOUT);
	activate_under("a.boot.out @24 eof", activated);
	CHECK_EQ(activated[1], -ECONNRESET);
}

/* 100 bytes one way under a plan: what was peeked, what came, and then. */
struct flow {
	long sent, after_end, peeked, got, then;
	uint8_t peek[200], bytes[200];
};

static void flow_out(void *arg)
{
	struct flow *flow = arg;
	uint8_t bytes[100] = {0};

	flow->sent = sim_stream_send(bytes, 100);
	if (flow->after_end)
		sim_stream_end();
	if (flow->after_end)
		flow->after_end = sim_stream_send(bytes, 10);
}

static void flow_in(void *arg)
{
	struct flow *flow = arg;

	sim_stream_wait(false, 1000);
	flow->peeked = sim_stream_recv(flow->peek, 200, true);
	flow->got = sim_stream_recv(flow->bytes, 200, false);
	sim_stream_wait(false, 2000);
	flow->then = sim_stream_recv(flow->bytes + 100, 100, false);
}

static void run_flow(struct flow *flow, const char *plan)
{
	struct sim_task tasks[2] = {{0, flow_out, flow}, {1, flow_in, flow}};
	struct sim_play_result result;
	struct sim_play play = {0};
	struct rig rig;

	rig_open(&rig, "mlx5", plan);
	play.world = rig.world;
	CHECK_EQ(sim_play(&play, tasks, 2, &result), 0);
	if (plan)
		CHECK_EQ(rig_fault(&rig, 0)->fired, 1);
	rig_close(&rig);
}

Test(play, a_peek_at_the_stream_shows_what_a_read_will_give)
{
	static const struct {
		const char *plan;
		long got, then;
	} rows[] = {
		{"b.boot.in @0 flip xor=0xff", 100, -EAGAIN},
		{"b.boot.in @50 eof", 50, 0},
		{"b.boot.in @50 stall", 50, -EAGAIN},
		{"a.boot.out @50 eof", 50, 0},
		/* It ends where it has just come to. */
		{"a.boot.out @100 eof", 100, 0},
		{"a.boot.out @100 stall", 100, -EAGAIN},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct flow flow = {0};

		run_flow(&flow, rows[i].plan);
		CHECK_EQ(flow.sent, 100);
		CHECK_EQ(flow.peeked, rows[i].got);
		CHECK_EQ(flow.got, rows[i].got);
		CHECK_EQ(flow.then, rows[i].then);
		CHECK_EQ(memcmp(flow.peek, flow.bytes, (size_t)flow.got), 0);
		CHECK_EQ(flow.peek[0], i == 0 ? 0xff : 0);
	}
}

Test(play, a_stream_takes_nothing_after_its_end)
{
	struct flow flow = {.after_end = 1};

	run_flow(&flow, NULL);
	CHECK_EQ(flow.after_end, -EPIPE);
	CHECK_EQ(flow.got, 100);
	CHECK_EQ(flow.then, 0);
}

/* --- what is refused --- */

static void play_again(void *arg)
{
	struct bare *bare = arg;

	bare->rc[0] = bare_run(bare, do_nothing, do_nothing);
}

Test(play, what_cannot_be_played_is_refused)
{
	struct sim_world_config config = {.name = rig_name()};
	struct sim_task nowhere = {2, do_nothing, NULL};
	char error[SIM_ERROR_MAX];
	struct sim_world *shared;
	struct bare bare;

	bare_init(&bare, "mlx5", IBV_QPT_RC);
	CHECK_EQ(bare_run(&bare, play_again, do_nothing), 0);
	CHECK_EQ(bare.rc[0], -EBUSY);
	CHECK_EQ(sim_play(&bare.play, &nowhere, 1, &bare.result), -EINVAL);
	CHECK_EQ(sim_play(&bare.play, &nowhere, 0, &bare.result), -EINVAL);
	CHECK_EQ(sim_world_open(&config, &shared, error), 0);
	bare.play.world = shared;
	CHECK_EQ(bare_run(&bare, do_nothing, do_nothing), -EINVAL);
	sim_world_close(shared);
	CHECK_EQ(sim_stream_send("x", 1), -ENOTCONN);
	rig_close(&bare.rig);
}

/* --- many tasks --- */

struct talker {
	int turns;
	int order[4];
};

static struct talker talk;

static void take_turns(void *arg)
{
	int me = (int)(intptr_t)arg;

	for (int i = 0; i < 3; i++) {
		talk.order[me] = talk.turns++;
		sim_play_idle(sim_play_now_ns() + 1000);
	}
}

Test(play, tasks_of_one_moment_run_in_their_order)
{
	struct sim_task tasks[4];
	struct sim_play_result result;
	struct rig rig;
	struct sim_play play = {0};

	rig_open(&rig, "mlx5", NULL);
	play.world = rig.world;
	for (int i = 0; i < 4; i++)
		tasks[i] = (struct sim_task){i % 2, take_turns,
					     (void *)(intptr_t)i};
	CHECK_EQ(sim_play(&play, tasks, 4, &result), 0);
	CHECK_EQ(talk.turns, 12);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(talk.order[i], 8 + i);
	CHECK_EQ(result.time_ns, 3000);
	rig_close(&rig);
}
