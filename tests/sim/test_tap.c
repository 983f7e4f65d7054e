/* SPDX-License-Identifier: MIT */
/*
 * Goal: each effect is observed from the other side, and its line counts
 * armed, reached, fired, effective as it should. Method: one plan a test on a
 * connected Thunderbolt pair.
 */
#include "tests/rig.h"

#include <errno.h>
#include <stdlib.h>

#include "tests/harness.h"

#define FRAME 4096u

static void pair(struct rig *rig, const char *plan)
{
	setenv("VERBENA_QUIET", "1", 1);
	rig_pair(rig, "apple-tb", plan, IBV_QPT_UC);
}

/* Message n: one frame, filled with n + 1, received at n * FRAME. */
static void exchange(struct rig *rig, int from, int to)
{
	for (int n = from; n < to; n++) {
		memset(rig->end[0].memory, n + 1, FRAME);
		CHECK_EQ(rig_recv(&rig->end[1], n, n * FRAME, FRAME), 0);
		CHECK_EQ(rig_send(&rig->end[0], n, 0, FRAME), 0);
		CHECK_EQ(rig_wc(&rig->end[0]).status, IBV_WC_SUCCESS);
	}
}

static void check_line(struct rig *rig, int line, uint64_t reached,
		       uint64_t fired, uint64_t effective)
{
	struct sim_fault *fault = rig_fault(rig, line);

	CHECK_EQ(fault->reached, reached);
	CHECK_EQ(fault->fired, fired);
	CHECK_EQ(fault->effective, effective);
}

Test(tap, drop_loses_one_message_and_keeps_its_receive)
{
	struct rig rig;

	pair(&rig, "a.qp0.tx #1 drop");
	exchange(&rig, 0, 3);
	CHECK_EQ(rig_wc(&rig.end[1]).wr_id, 0);
	CHECK_EQ(rig_wc(&rig.end[1]).wr_id, 1);
	rig_no_wc(&rig.end[1]);
	/* The third message took the second's receive. */
	CHECK_EQ(rig.end[1].memory[FRAME], 3);
	check_line(&rig, 0, 3, 1, 1);
	CHECK_EQ(rig_fault(&rig, 0)->fired_at, 1 + 1);
	rig_close(&rig);
}

Test(tap, corrupt_and_set_change_one_byte_on_arrival)
{
	struct rig rig;

	pair(&rig, "a.qp0.tx #0 corrupt at=5 xor=0x80\n"
		   "b.qp0.rx #1 set at=4095 value=0xee\n"
		   "b.qp0.rx #2 set at=7 value=3\n"
		   "a.qp0.tx #2 corrupt at=4096 xor=1\n");
	exchange(&rig, 0, 3);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(rig_wc(&rig.end[1]).status, IBV_WC_SUCCESS);
	CHECK_EQ(rig.end[1].memory[4], 1);
	CHECK_EQ(rig.end[1].memory[5], 0x81);
	CHECK_EQ(rig.end[1].memory[6], 1);
	CHECK_EQ(rig.end[1].memory[2 * FRAME - 1], 0xee);
	check_line(&rig, 0, 3, 1, 1);
	check_line(&rig, 1, 3, 1, 1);
	/* Set to what it was, and outside the message: fired, no effect. */
	check_line(&rig, 2, 3, 1, 0);
	check_line(&rig, 3, 3, 1, 0);
	rig_close(&rig);
}

Test(tap, trunc_shortens_the_message)
{
	struct ibv_wc wc;
	struct rig rig;

	pair(&rig, "a.qp0.tx #0 trunc len=100\n"
		   "a.qp0.tx #1 trunc len=5000\n");
	exchange(&rig, 0, 2);
	wc = rig_wc(&rig.end[1]);
	CHECK_EQ(wc.byte_len, 100);
	CHECK_EQ(rig.end[1].memory[99], 1);
	CHECK_EQ(rig.end[1].memory[100], 0);
	CHECK_EQ(rig_wc(&rig.end[1]).byte_len, FRAME);
	check_line(&rig, 0, 2, 1, 1);
	check_line(&rig, 1, 2, 1, 0);
	rig_close(&rig);
}

Test(tap, dup_delivers_twice_and_completes_once)
{
	struct rig rig;

	pair(&rig, "a.qp0.tx #0 dup");
	CHECK_EQ(rig_recv(&rig.end[1], 100, 9 * FRAME, FRAME), 0);
	exchange(&rig, 0, 1);
	rig_no_wc(&rig.end[0]);
	CHECK_EQ(rig_wc(&rig.end[1]).wr_id, 100);
	CHECK_EQ(rig_wc(&rig.end[1]).wr_id, 0);
	CHECK_EQ(rig.end[1].memory[9 * FRAME], 1);
	CHECK_EQ(rig.end[1].memory[0], 1);
	check_line(&rig, 0, 1, 1, 1);
	rig_close(&rig);
}

Test(tap, a_call_fails_at_its_ordinal_and_does_nothing)
{
	struct rig rig;

	/* Regions 0 of a and of b are the rig's own. */
	pair(&rig, "a.verbs.post_send #1 fail=ENOMEM\n"
		   "b.verbs.dereg_mr #0 fail=EBUSY\n"
		   "b.verbs.poll_cq #0 fail=EIO\n");
	exchange(&rig, 0, 1);
	CHECK_EQ(rig_send(&rig.end[0], 1, 0, FRAME), ENOMEM);
	exchange(&rig, 1, 2);
	CHECK_EQ(ibv_poll_cq(rig.end[1].cq, 1, NULL), -EIO);
	CHECK_EQ(rig_wc(&rig.end[1]).wr_id, 0);
	CHECK_EQ(rig_wc(&rig.end[1]).wr_id, 1);
	CHECK_EQ(ibv_dereg_mr(rig.end[1].mr), EBUSY);
	check_line(&rig, 0, 3, 1, 1);
	check_line(&rig, 1, 1, 1, 1);
	rig_close(&rig);
}

Test(tap, sticky_times_ranges_and_steps_count_events)
{
	struct rig rig;

	pair(&rig, "a.qp0.tx #1.. corrupt at=0 xor=0x10 times=2\n"
		   "a.qp0.tx #*/2 corrupt at=1 xor=0x10\n"
		   "a.qp0.tx #3 corrupt at=2 xor=0x10 sticky\n"
		   "a.qp0.tx #1..2 corrupt at=3 xor=0x10\n"
		   "b.qp0.tx #0 drop\n");
	exchange(&rig, 0, 5);
	for (int n = 0; n < 5; n++) {
		const uint8_t *at = rig.end[1].memory + n * FRAME;

		CHECK_EQ(at[0], (n + 1) ^ (n == 1 || n == 2 ? 0x10 : 0));
		CHECK_EQ(at[1], (n + 1) ^ (n % 2 == 0 ? 0x10 : 0));
		CHECK_EQ(at[2], (n + 1) ^ (n >= 3 ? 0x10 : 0));
		CHECK_EQ(at[3], (n + 1) ^ (n == 1 || n == 2 ? 0x10 : 0));
	}
	check_line(&rig, 0, 5, 2, 2);
	check_line(&rig, 1, 5, 3, 3);
	check_line(&rig, 2, 5, 2, 2);
	check_line(&rig, 3, 5, 2, 2);
	check_line(&rig, 4, 0, 0, 0); /* armed, and that is all */
	rig_close(&rig);
}

Test(tap, after_waits_for_another_line)
{
	struct rig rig;

	pair(&rig, "one: a.qp0.tx #2 corrupt at=0 xor=0x10\n"
		   "a.qp0.tx #0.. corrupt at=1 xor=0x10 after=one\n");
	exchange(&rig, 0, 4);
	CHECK_EQ(rig.end[1].memory[FRAME + 1], 2);
	CHECK_EQ(rig.end[1].memory[3 * FRAME + 1], 4 ^ 0x10);
	check_line(&rig, 1, 4, 1, 1);
	rig_close(&rig);
}

Test(tap, a_held_message_is_struck_once_whoever_delivers_it)
{
	struct rig rig;

	pair(&rig, "a.qp0.tx #0 corrupt at=0 xor=0x10");
	CHECK_EQ(rig_send(&rig.end[0], 0, 0, 8), 0);
	for (int i = 0; i < 3; i++)
		rig_no_wc(&rig.end[1]);
	CHECK_EQ(rig_recv(&rig.end[1], 0, 0, FRAME), 0);
	CHECK_EQ(rig.end[1].memory[0], 0x10);
	check_line(&rig, 0, 1, 1, 1);
	rig_close(&rig);
}

Test(tap, rc_sends_a_dropped_message_again)
{
	struct ibv_wc wc;
	struct rig rig;
	int got = 0;

	setenv("VERBENA_QUIET", "1", 1);
	rig_pair(&rig, "mlx5", "a.qp0.tx #0 drop", IBV_QPT_RC);
	CHECK_EQ(rig_recv(&rig.end[1], 9, 0, FRAME), 0);
	CHECK_EQ(rig_send(&rig.end[0], 1, 0, FRAME), 0);
	rig_no_wc(&rig.end[1]);
	for (uint64_t start = sim_now_ns();
	     !got && sim_now_ns() - start < 20000000000ull;)
		got = ibv_poll_cq(rig.end[0].cq, 1, &wc);
	CHECK_EQ(got, 1);
	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	CHECK_EQ(rig_wc(&rig.end[1]).wr_id, 9);
	rig_close(&rig);
}

Test(tap, a_sticky_drop_on_rc_spends_the_retries)
{
	struct ibv_wc wc;
	struct rig rig;
	int got = 0;

	setenv("VERBENA_QUIET", "1", 1);
	rig_pair(&rig, "mlx5", "a.qp0.tx #0 drop sticky", IBV_QPT_RC);
	CHECK_EQ(rig_recv(&rig.end[1], 9, 0, FRAME), 0);
	CHECK_EQ(rig_send(&rig.end[0], 1, 0, FRAME), 0);
	for (uint64_t start = sim_now_ns();
	     !got && sim_now_ns() - start < 20000000000ull;)
		got = ibv_poll_cq(rig.end[0].cq, 1, &wc);
	CHECK_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
	rig_no_wc(&rig.end[1]);
	/* The first attempt and the rig's 3 retries. */
	CHECK_EQ(rig_fault(&rig, 0)->fired, 4);
	rig_close(&rig);
}

Test(tap, a_plan_is_armed_once_and_before_any_queue_pair)
{
	struct sim_fault fault = {.every = 1, .times = 1, .after = -1};
	struct rig rig;

	pair(&rig, NULL);
	CHECK_EQ(sim_world_arm(rig.world, &fault, 1, "x"), -EBUSY);
	rig_close(&rig);
	rig_open(&rig, "mlx5", "a.qp0.tx #0 drop");
	CHECK_EQ(sim_world_arm(rig.world, &fault, 1, "x"), -EBUSY);
	rig_close(&rig);
}

Test(tap, stream_flips_ends_and_stalls_at_an_offset)
{
	uint8_t bytes[8] = {0};
	enum sim_effect stop = SIM_EFFECT_COUNT;
	struct rig rig;

	setenv("VERBENA_QUIET", "1", 1);
	rig_open(&rig, "mlx5",
		 "a.boot.in @2+2 flip xor=0x0f\n"
		 "a.boot.in @12 eof\n"
		 "b.boot.out @0 stall\n");
	CHECK_EQ(sim_tap_stream(rig.world, 0, SIM_SITE_BOOT_IN, 0, bytes, 8,
				&stop),
		 8);
	CHECK_EQ(bytes[1], 0);
	CHECK_EQ(bytes[2], 0x0f);
	CHECK_EQ(bytes[3], 0x0f);
	CHECK_EQ(bytes[4], 0);
	CHECK_EQ(sim_tap_stream(rig.world, 0, SIM_SITE_BOOT_IN, 8, bytes, 8,
				&stop),
		 4);
	CHECK_EQ(stop, SIM_EFFECT_EOF);
	CHECK_EQ(rig_fault(&rig, 1)->fired, 1);
	CHECK_EQ(sim_tap_stream(rig.world, 0, SIM_SITE_BOOT_IN, 12, bytes, 0,
				&stop),
		 0);
	CHECK_EQ(rig_fault(&rig, 1)->fired, 1);
	CHECK_EQ(rig_fault(&rig, 0)->fired, 2);
	CHECK_EQ(sim_tap_stream(rig.world, 1, SIM_SITE_BOOT_OUT, 0, bytes, 8,
				&stop),
		 0);
	CHECK_EQ(stop, SIM_EFFECT_STALL);
	rig_close(&rig);
}
