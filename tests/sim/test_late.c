/* SPDX-License-Identifier: MIT */
/*
 * Goal: in a late world a program that uses a buffer too early sees what it has
 * done, and one that does not sees nothing. Method: two connected ends on the
 * real clock; a message is held for longer than any test thread is kept
 * waiting, or for next to nothing where only its arrival counts.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "tests/harness.h"
#include "tests/rig.h"

#define LONG_NS	 1000000000u
#define SHORT_NS 1000000u

static void late_pair(struct rig *rig, enum ibv_qp_type type, uint64_t late_ns)
{
	setenv("VERBENA_QUIET", "1", 1);
	rig_open_late(rig, "mlx5", late_ns);
	rig_make(&rig->end[0], type, 64);
	rig_make(&rig->end[1], type, 64);
	rig_connect(rig, IBV_QPS_RTS);
}

/* A completion, however long it takes: a bounded wait. */
static struct ibv_wc await_wc(struct rig_end *end)
{
	struct ibv_wc wc = {.status = IBV_WC_GENERAL_ERR};
	int got = 0;

	for (int i = 0; i < 20000 && got == 0; i++) {
		got = ibv_poll_cq(end->cq, 1, &wc);
		if (got == 0)
			poll(NULL, 0, 1);
	}
	CHECK_EQ(got, 1);
	return wc;
}

Test(late, a_buffer_reused_too_early_arrives_as_it_is_then)
{
	struct rig rig;

	late_pair(&rig, IBV_QPT_RC, LONG_NS);
	CHECK_EQ(rig_recv(&rig.end[1], 1, 0, 4096), 0);
	memset(rig.end[0].memory, 1, 4096);
	CHECK_EQ(rig_send(&rig.end[0], 2, 0, 4096), 0);
	memset(rig.end[0].memory, 2, 4096);
	rig_no_wc(&rig.end[0]);
	CHECK_EQ(await_wc(&rig.end[0]).status, IBV_WC_SUCCESS);
	CHECK_EQ(rig_wc(&rig.end[1]).byte_len, 4096);
	CHECK_EQ(rig.end[1].memory[0], 2);
	rig_close(&rig);
}

Test(late, inline_bytes_are_taken_at_once)
{
	struct rig rig;
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND,
				 .send_flags =
					 IBV_SEND_SIGNALED | IBV_SEND_INLINE,
				 .num_sge = 1};
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
					.cap = {4, 4, 1, 1, 64}};
	struct ibv_send_wr *bad;
	uint64_t word = 1;
	struct ibv_sge sge = {(uintptr_t)&word, 8, 0};

	late_pair(&rig, IBV_QPT_RC, LONG_NS);
	ibv_destroy_qp(rig.end[0].qp);
	init.send_cq = init.recv_cq = rig.end[0].cq;
	rig.end[0].qp = ibv_create_qp(rig.end[0].pd, &init);
	CHECK(rig.end[0].qp, "create_qp");
	for (int i = 0; i < 2; i++)
		CHECK_EQ(rig_modify(&rig.end[i], NULL, IBV_QPS_RESET), 0);
	rig_connect(&rig, IBV_QPS_RTS);
	CHECK_EQ(rig_recv(&rig.end[1], 1, 0, 8), 0);
	wr.sg_list = &sge;
	CHECK_EQ(ibv_post_send(rig.end[0].qp, &wr, &bad), 0);
	word = 2;
	CHECK_EQ(await_wc(&rig.end[0]).status, IBV_WC_SUCCESS);
	CHECK_EQ(rig_wc(&rig.end[1]).byte_len, 8);
	CHECK_EQ(rig.end[1].memory[0], 1);
	rig_close(&rig);
}

Test(late, what_the_device_owns_is_poisoned_until_it_is_filled)
{
	struct rig rig;

	late_pair(&rig, IBV_QPT_RC, SHORT_NS);
	memset(rig.end[1].memory, 9, 8192);
	CHECK_EQ(rig_recv(&rig.end[1], 1, 0, 4096), 0);
	CHECK_EQ(rig.end[1].memory[0], 0xa5);
	CHECK_EQ(rig.end[1].memory[4095], 0xa5);
	CHECK_EQ(rig.end[1].memory[4096], 9);
	CHECK_EQ(rig_send(&rig.end[0], 2, 0, 100), 0);
	CHECK_EQ(await_wc(&rig.end[1]).byte_len, 100);
	CHECK_EQ(rig.end[1].memory[99], 0);
	CHECK_EQ(rig.end[1].memory[100], 0xa5);
	rig_close(&rig);
}

/* The sender never polls, as one that waits for a word over TCP does not. */
Test(late, messages_leave_though_their_program_only_waits)
{
	struct rig rig;

	late_pair(&rig, IBV_QPT_UC, SHORT_NS);
	for (int i = 0; i < 10; i++)
		CHECK_EQ(rig_recv(&rig.end[1], i, 64 * i, 64), 0);
	for (int i = 0; i < 10; i++) {
		memset(rig.end[0].memory + 64 * i, i + 1, 64);
		CHECK_EQ(rig_send(&rig.end[0], i, 64 * i, 64), 0);
	}
	for (int i = 0; i < 10; i++) {
		CHECK_EQ(await_wc(&rig.end[1]).wr_id, i);
		CHECK_EQ(rig.end[1].memory[64 * i], i + 1);
	}
	rig_close(&rig);
}

Test(late, a_queue_pair_in_error_flushes_what_it_holds)
{
	struct rig rig;

	late_pair(&rig, IBV_QPT_RC, LONG_NS);
	CHECK_EQ(rig_send(&rig.end[0], 5, 0, 8), 0);
	CHECK_EQ(rig_modify(&rig.end[0], NULL, IBV_QPS_ERR), 0);
	CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_WR_FLUSH_ERR);
	rig_close(&rig);
}
