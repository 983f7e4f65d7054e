/* SPDX-License-Identifier: MIT */
/*
 * Goal: between processes, a message is where and when it should be, whichever
 * way its bytes went: with the completion, in a parcel, or by the kernel; and
 * through a mover where the kernel's calls are forbidden. Method: a second
 * process on host b that does what it is told, one step at a time.
 */
#include "tests/sim/duo.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ci/no_vm.h"
#include "tests/harness.h"

static const uint32_t sizes[] = {0,  1,	   8,	 24,	25,    63,   64,
				 65, 4096, 8192, 16384, 16385, 20000};
#define SIZES (sizeof(sizes) / sizeof(*sizes))

/* More than the parcels' room, with nobody polling: the rest goes another way,
 * and all of it is in order and whole. */
static void exchange(bool may_copy)
{
	struct duo duo;

	duo_start(&duo, may_copy);
	for (uint32_t from = 0; from < 4 * DEPTH; from += DEPTH) {
		CHECK_EQ(duo_tell(&duo, RECEIVE, from, from + DEPTH, PLACE), 0);
		for (uint32_t i = from; i < from + DEPTH; i++)
			duo_send_message(&duo, i, sizes[i % SIZES]);
		CHECK_EQ(duo_tell(&duo, POLL, from, from + DEPTH, PLACE), 0);
	}
	duo_finish(&duo);
}

Test(parcel, messages_arrive_whole_and_in_order_whoever_waits)
{
	exchange(true);
}

/* --- where process_vm_* is forbidden. */
Test(parcel, they_do_so_where_copying_is_forbidden)
{
	exchange(false);
}

/* A quarter of the memory there, and back into the upper half of ours. */
static void there_and_back(struct duo *duo)
{
	uint8_t *back = duo->side.memory + MEMORY / 2;

	for (uint32_t at = 0; at < MEMORY / 4; at++)
		duo->side.memory[at] = duo_byte(3, at);
	CHECK_EQ(duo_run(duo, IBV_WR_RDMA_WRITE, duo->side.memory, MEMORY / 4,
			 4096),
		 IBV_WC_SUCCESS);
	CHECK_EQ(duo_tell(duo, PEEK, 4096 + 12345, 0, 0), duo_byte(3, 12345));
	CHECK_EQ(duo_run(duo, IBV_WR_RDMA_READ, back, MEMORY / 4, 4096),
		 IBV_WC_SUCCESS);
	CHECK(memcmp(duo->side.memory, back, MEMORY / 4) == 0,
	      "what was written is not what is read");
}

static void one_sided(bool may_copy)
{
	uint64_t word;
	struct duo duo;

	duo_start(&duo, may_copy);
	there_and_back(&duo);
	memset(duo.side.memory, 0, 8);
	CHECK_EQ(duo_run(&duo, IBV_WR_ATOMIC_FETCH_AND_ADD, duo.side.memory, 8,
			 4096),
		 IBV_WC_SUCCESS);
	memcpy(&word, duo.side.memory, sizeof(word));
	CHECK_EQ(word & 0xff, duo_byte(3, 0));
	duo_finish(&duo);
}

/* The other process has no part in it. */
Test(parcel, one_sided_operations_need_no_call_of_the_target)
{
	one_sided(true);
}

Test(parcel, nor_where_copying_is_forbidden)
{
	one_sided(false);
}

/* With --map-memory: neither the kernel's calls nor a mover are there. */
Test(parcel, mapped_memory_needs_nobody)
{
	struct ibv_mr *second;
	struct duo duo;

	setenv("VERBENA_MAP_MEMORY", "1", 1);
	duo_start(&duo, true);
	CHECK_EQ(forbid_copying(), 0);
	there_and_back(&duo);
	/* Registered once more, it is the same memory. */
	second = ibv_reg_mr(duo.side.pd, duo.side.memory, MEMORY, ACCESS);
	CHECK(second, "reg_mr: errno %d", errno);
	CHECK_EQ(duo.side.memory[54321], duo_byte(3, 54321));
	CHECK_EQ(ibv_dereg_mr(second), 0);
	duo_finish(&duo);
}

/* 5.7: sends, writes and reads take effect in their order, polled or not. */
Test(parcel, a_later_read_sees_what_was_sent)
{
	struct duo duo;

	duo_start(&duo, true);
	CHECK_EQ(duo_tell(&duo, RECEIVE, 0, 2, 8192), 0);
	duo_send_message(&duo, 0, 100);
	CHECK_EQ(duo_run(&duo, IBV_WR_RDMA_READ, duo.side.memory + 4096, 100,
			 0),
		 IBV_WC_SUCCESS);
	CHECK_EQ(duo.side.memory[4096 + 50], duo_byte(0, 50));
	/* And a later write is not undone by the poll. */
	duo_send_message(&duo, 1, 100);
	memset(duo.side.memory, 0xee, 100);
	CHECK_EQ(duo_run(&duo, IBV_WR_RDMA_WRITE, duo.side.memory, 1,
			 8192 + 50),
		 IBV_WC_SUCCESS);
	CHECK_EQ(duo_tell(&duo, POLL, 0, 1, 8192), 0);
	CHECK_EQ(duo_tell(&duo, POLL, 1, 2, 8192), 2); /* byte 50 differs */
	CHECK_EQ(duo_tell(&duo, PEEK, 8192 + 50, 0, 0), 0xee);
	duo_finish(&duo);
}

/* The same of the end of its queue pair, with nobody polling. */
Test(parcel, a_message_that_came_is_there_when_its_queue_pair_has_ended)
{
	static const uint32_t lengths[] = {8, 24, 60, 5000};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		uint32_t last = lengths[i] - 1;
		struct duo duo;

		duo_start(&duo, true);
		CHECK_EQ(duo_tell(&duo, RECEIVE, 0, 1, 8192), 0);
		duo_send_message(&duo, 5, lengths[i]);
		CHECK_EQ(duo_tell(&duo, DESTROY, 0, 0, 0), 0);
		CHECK_EQ(duo_tell(&duo, PEEK, last, 0, 0), duo_byte(5, last));
		duo_finish(&duo);
	}
}

/* 5.6: what came before the region's end is there, and complete. */
Test(parcel, a_message_that_came_survives_its_region)
{
	struct duo duo;

	duo_start(&duo, true);
	CHECK_EQ(duo_tell(&duo, RECEIVE, 0, 3, 8192), 0);
	duo_send_message(&duo, 0, 8);
	duo_send_message(&duo, 1, 5000);
	CHECK_EQ(duo_tell(&duo, UNREGISTER, 0, 0, 0), 0);
	CHECK_EQ(duo_tell(&duo, POLL, 0, 2, 8192), 0);
	/* The third receive has lost its key: both ends fail. */
	CHECK_EQ(duo_run(&duo, IBV_WR_SEND, duo.side.memory, 8, 0),
		 IBV_WC_REM_OP_ERR);
	CHECK_EQ(duo_tell(&duo, POLL, 2, 3, 8192), 3);
	duo_finish(&duo);
}

/* Its memory is gone, and what waited for it goes too. */
Test(parcel, a_message_for_the_dead_is_dropped)
{
	struct duo duo;
	int before;

	duo_start(&duo, true);
	before = sim_world_object_count(duo.world);
	CHECK_EQ(duo_tell(&duo, RECEIVE, 0, 2, 8192), 0);
	duo_send_message(&duo, 0, 8);
	duo_send_message(&duo, 1, 5000);
	CHECK_EQ(kill(duo.pid, SIGKILL), 0);
	CHECK_EQ(waitpid(duo.pid, NULL, 0), duo.pid);
	sim_world_reap(duo.world, 0);
	CHECK(sim_world_object_count(duo.world) < before, "nothing reaped");
	/* For duo_finish(), one that ends well. */
	duo.pid = fork();
	if (duo.pid == 0)
		_exit(0);
	duo_finish(&duo);
}

/* 5.3: a page of this side that is not there is this side's mistake. */
Test(parcel, a_missing_page_is_blamed_on_its_owner)
{
	static const struct {
		enum ibv_wr_opcode opcode;
		int protection; /* of the near page, once it is registered */
		enum ibv_wc_status status;
	} rows[] = {
		{IBV_WR_RDMA_WRITE, PROT_NONE, IBV_WC_LOC_PROT_ERR},
		{IBV_WR_RDMA_READ, PROT_READ, IBV_WC_LOC_PROT_ERR},
	};

	for (int i = 0; i < 2; i++) {
		uint8_t *page = mmap(NULL, 16384, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct ibv_mr *mr, *own;
		struct duo duo;

		duo_start(&duo, true);
		own = duo.side.mr;
		mr = ibv_reg_mr(duo.side.pd, page, 16384, ACCESS);
		CHECK(mr, "reg_mr: errno %d", errno);
		CHECK_EQ(mprotect(page, 16384, rows[i].protection), 0);
		duo.side.mr = mr;
		CHECK_EQ(duo_run(&duo, rows[i].opcode, page, 16384, 0),
			 rows[i].status);
		duo.side.mr = own;
		CHECK_EQ(ibv_dereg_mr(mr), 0);
		CHECK_EQ(munmap(page, 16384), 0);
		duo_finish(&duo);
	}
}

Test(parcel, sends_that_were_first_go_when_either_side_polls)
{
	static const uint32_t lens[] = {8, 4096, 20000};
	struct duo duo;

	for (size_t i = 0; i < sizeof(lens) / sizeof(*lens); i++) {
		uint32_t len = lens[i];

		duo_start(&duo, true);
		/* The sender: the receiver says nothing and looks at nothing.
		 */
		duo_post_sends(&duo, 0, 20, len);
		CHECK_EQ(duo_tell(&duo, RECEIVE, 0, 20, len), 0);
		duo_await_sends(&duo, 0, 20);
		CHECK_EQ(duo_tell(&duo, POLL, 0, 20, len), 0);
		/* The receiver: the sender looks at nothing. */
		duo_post_sends(&duo, 20, 40, len);
		CHECK_EQ(duo_tell(&duo, RECEIVE, 20, 40, len), 0);
		CHECK_EQ(duo_tell(&duo, POLL, 20, 40, len), 0);
		duo_await_sends(&duo, 20, 40);
		/* Both, and never enough of them. */
		duo_post_sends(&duo, 40, 80, len);
		for (uint32_t at = 40; at < 80; at += 10) {
			CHECK_EQ(duo_tell(&duo, RECEIVE, at, at + 10, len), 0);
			duo_await_sends(&duo, at, at + 10);
			CHECK_EQ(duo_tell(&duo, POLL, at, at + 10, len), 0);
		}
		duo_finish(&duo);
	}
}

/* --- lists of one-sided requests --- */

#define LIST 40

/* LIST requests of a page each, posted at once; `bad` has a key of nobody's. */
static void post_list(struct duo *duo, enum ibv_wr_opcode opcode, uint32_t bad)
{
	struct ibv_sge sge[LIST];
	struct ibv_send_wr wr[LIST], *failed;

	memset(wr, 0, sizeof(wr));
	for (uint32_t i = 0; i < LIST; i++) {
		uint32_t len = 4096 - 8 * i;

		sge[i] =
			(struct ibv_sge){(uintptr_t)duo->side.memory + 4096 * i,
					 len, duo->side.mr->lkey};
		wr[i].wr_id = i;
		wr[i].sg_list = &sge[i];
		wr[i].num_sge = 1;
		wr[i].opcode = opcode;
		wr[i].send_flags = IBV_SEND_SIGNALED;
		wr[i].wr.rdma.remote_addr = duo->far.memory + 4096 * i;
		wr[i].wr.rdma.rkey = i == bad ? 0x77777777 : duo->far.rkey;
		wr[i].next = i + 1 < LIST ? &wr[i + 1] : NULL;
	}
	CHECK_EQ(ibv_post_send(duo->side.qp, wr, &failed), 0);
}

/* All before the bad one are done, itself is refused, the rest are flushed. */
static void check_list(struct duo *duo, uint32_t bad)
{
	for (uint32_t i = 0; i < LIST; i++) {
		struct ibv_wc wc;

		CHECK_EQ(ibv_poll_cq(duo->side.cq, 1, &wc), 1);
		CHECK_EQ(wc.wr_id, i);
		CHECK_EQ(wc.status, i < bad    ? IBV_WC_SUCCESS
				    : i == bad ? IBV_WC_REM_ACCESS_ERR
					       : IBV_WC_WR_FLUSH_ERR);
	}
}

Test(parcel, a_list_of_writes_ends_where_one_is_refused)
{
	for (uint32_t bad = 0; bad <= LIST; bad += 10) {
		struct duo duo;

		duo_start(&duo, true);
		for (uint32_t i = 0; i < LIST * 4096; i++)
			duo.side.memory[i] = (uint8_t)(i / 4096 + 1);
		post_list(&duo, IBV_WR_RDMA_WRITE, bad);
		check_list(&duo, bad);
		for (uint32_t i = 0; i < LIST; i++) {
			uint32_t last = 4096 * i + 4096 - 8 * i - 1;
			uint64_t want = i < bad ? i + 1 : 0;

			CHECK_EQ(duo_tell(&duo, PEEK, 4096 * i, 0, 0), want);
			CHECK_EQ(duo_tell(&duo, PEEK, last, 0, 0), want);
			if (i)
				CHECK_EQ(duo_tell(&duo, PEEK, last + 1, 0, 0),
					 0);
		}
		duo_finish(&duo);
	}
}

Test(parcel, a_list_of_reads_ends_where_one_is_refused)
{
	for (uint32_t bad = 0; bad <= LIST; bad += 20) {
		struct duo duo;

		duo_start(&duo, true);
		for (uint32_t i = 0; i < LIST; i++)
			memset(duo.side.memory + 4096 * i, (int)i + 1, 4096);
		post_list(&duo, IBV_WR_RDMA_WRITE, LIST);
		check_list(&duo, LIST);
		memset(duo.side.memory, 0, LIST * 4096);
		post_list(&duo, IBV_WR_RDMA_READ, bad);
		check_list(&duo, bad);
		for (uint32_t i = 0; i < LIST; i++) {
			uint32_t last = 4096 * i + 4096 - 8 * i - 1;
			uint8_t want = i < bad ? (uint8_t)(i + 1) : 0;

			CHECK_EQ(duo.side.memory[4096 * i], want);
			CHECK_EQ(duo.side.memory[last], want);
			if (i)
				CHECK_EQ(duo.side.memory[last + 1], 0);
		}
		duo_finish(&duo);
	}
}

/* --- what waits, and what comes after it --- */

/* A SEND of the byte 65 has completed here, and nobody polled there. */
static void leave_one(struct duo *duo, uint32_t len)
{
	CHECK_EQ(duo_tell(duo, RECEIVE, 0, 1, PLACE), 0);
	memset(duo->side.memory, 65, len);
	CHECK_EQ(duo_run(duo, IBV_WR_SEND, duo->side.memory, len, 0),
		 IBV_WC_SUCCESS);
}

Test(parcel, a_write_through_another_queue_pair_comes_after_what_waits)
{
	struct duo duo;

	duo_start(&duo, true);
	leave_one(&duo, 64);
	memset(duo.side.memory, 66, 8);
	CHECK_EQ(duo_run_on(&duo, duo.side.other, IBV_WR_RDMA_WRITE,
			    duo.side.memory, 8, 0),
		 IBV_WC_SUCCESS);
	CHECK_EQ(duo_tell(&duo, DRAIN, 0, 1, 0), 0);
	CHECK_EQ(duo_tell(&duo, PEEK, 0, 0, 0), 66);
	CHECK_EQ(duo_tell(&duo, PEEK, 8, 0, 0), 65);
	duo_finish(&duo);
}

Test(parcel, reads_and_atomics_through_another_see_what_waits)
{
	struct duo duo;
	uint64_t word = 0;

	duo_start(&duo, true);
	leave_one(&duo, 64);
	CHECK_EQ(duo_run_on(&duo, duo.side.other, IBV_WR_RDMA_READ,
			    duo.side.memory + 4096, 64, 0),
		 IBV_WC_SUCCESS);
	CHECK_EQ(duo.side.memory[4096 + 63], 65);
	CHECK_EQ(duo_tell(&duo, DRAIN, 0, 1, 0), 0);
	leave_one(&duo, 8);
	CHECK_EQ(duo_run_on(&duo, duo.side.other, IBV_WR_ATOMIC_FETCH_AND_ADD,
			    duo.side.memory + 4096, 8, 0),
		 IBV_WC_SUCCESS);
	memcpy(&word, duo.side.memory + 4096, 8);
	CHECK_EQ(word, 0x4141414141414141);
	CHECK_EQ(duo_tell(&duo, DRAIN, 0, 1, 0), 0);
	CHECK_EQ(duo_tell(&duo, PEEK, 0, 0, 0), 66);
	duo_finish(&duo);
}

Test(parcel, a_long_send_into_the_same_place_comes_after_a_short_one)
{
	struct duo duo;

	duo_start(&duo, true);
	leave_one(&duo, 64);
	CHECK_EQ(duo_tell(&duo, RECEIVE, DEPTH, DEPTH + 1, PLACE), 0);
	memset(duo.side.memory, 66, PLACE);
	CHECK_EQ(duo_run(&duo, IBV_WR_SEND, duo.side.memory, PLACE, 0),
		 IBV_WC_SUCCESS);
	CHECK_EQ(duo_tell(&duo, DRAIN, 0, 2, 0), 0);
	CHECK_EQ(duo_tell(&duo, PEEK, 0, 0, 0), 66);
	duo_finish(&duo);
}

/* --- long messages, copied from both ends --- */

Test(parcel, long_messages_are_whole_while_the_receiver_helps)
{
	const uint32_t len = (1u << 20) - 24, count = 15;
	struct duo duo;
	struct note note;

	for (int round = 0; round < 4; round++) {
		duo_start(&duo, true);
		CHECK_EQ(duo_tell(&duo, RECEIVE, 0, count, len), 0);
		duo_say(&duo, POLL, 0, count, len);
		duo_post_sends(&duo, 0, count, len);
		duo_await_sends(&duo, 0, count);
		CHECK_EQ(read(duo.from, &note, sizeof(note)), sizeof(note));
		CHECK_EQ(note.value, 0);
		duo_finish(&duo);
	}
}

/* The helper ends at any moment: nobody waits for it. */
Test(parcel, a_receiver_that_dies_while_it_helps_is_only_gone)
{
	for (int round = 0; round < 8; round++) {
		const uint32_t len = 1u << 20;
		struct ibv_wc wc = {.status = IBV_WC_SUCCESS};
		struct duo duo;
		int got = 0;

		duo_start(&duo, true);
		CHECK_EQ(duo_tell(&duo, RECEIVE, 0, 15, len), 0);
		duo_say(&duo, POLL, 0, 15, len);
		for (int i = 0; i < round; i++)
			duo_post_sends(&duo, (uint32_t)i, (uint32_t)i + 1, len);
		kill(duo.pid, SIGKILL);
		duo_post_sends(&duo, 10, 15, len);
		/* Its retries end, or all had arrived. */
		for (long turn = 0; turn < 200000000 && got >= 0; turn++) {
			got = ibv_poll_cq(duo.side.cq, 1, &wc);
			if (got == 1 && (wc.status || wc.wr_id == 14))
				break;
		}
		CHECK_EQ(got, 1);
		CHECK(wc.status == IBV_WC_SUCCESS ||
			      wc.status == IBV_WC_RETRY_EXC_ERR,
		      "status %d", wc.status);
		duo_abandon(&duo);
	}
}

/* --- what others of its kind have done --- */

Test(parcel, memory_that_went_before_its_region_is_an_error_and_no_signal)
{
	struct duo duo;

	duo_start(&duo, true);
	leave_one(&duo, 64);
	CHECK_EQ(duo_tell(&duo, UNMAP, 0, 4096, 0), 0);
	CHECK_EQ(duo_tell(&duo, UNREGISTER, 0, 0, 0), 0);
	CHECK_EQ(duo_tell(&duo, DRAIN, 0, 1, 0), 0);
	duo_finish(&duo);
}

/* It is found by a write that lands it; the queue pair fails all the same. */
Test(parcel, a_receive_that_cannot_be_filled_fails_its_queue_pair_whoever_finds)
{
	struct duo duo;

	duo_start(&duo, true);
	CHECK_EQ(duo_tell(&duo, RECEIVE, 0, 3, PLACE), 0);
	duo_post_sends(&duo, 0, 2, 64);
	duo_await_sends(&duo, 0, 2);
	CHECK_EQ(duo_tell(&duo, UNMAP, 0, 4096, 0), 0);
	CHECK_EQ(duo_run_on(&duo, duo.side.other, IBV_WR_RDMA_WRITE,
			    duo.side.memory, 8, PLACE),
		 IBV_WC_SUCCESS);
	/* The third is flushed. */
	CHECK_EQ(duo_tell(&duo, DRAIN, 0, 3, 0), 0);
	duo_finish(&duo);
}

Test(parcel, a_list_of_writes_ends_at_a_page_that_is_not_there)
{
	struct duo duo;

	duo_start(&duo, true);
	memset(duo.side.memory, 1, LIST * 4096);
	CHECK_EQ(duo_tell(&duo, UNMAP, 20 * 4096, 4096, 0), 0);
	post_list(&duo, IBV_WR_RDMA_WRITE, LIST);
	check_list(&duo, 20);
	CHECK_EQ(duo_tell(&duo, PEEK, 19 * 4096, 0, 0), 1);
	CHECK_EQ(duo_tell(&duo, PEEK, 21 * 4096, 0, 0), 0);
	duo_finish(&duo);
}

/* A SEND that waits for a receive, and a write behind it; then nobody polls. */
Test(parcel, what_waits_goes_within_a_millisecond_though_nobody_polls)
{
	const uint32_t flag = 8u << 20;
	struct duo duo;
	uint64_t seen = 0;
	struct ibv_sge sge;
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE};
	struct ibv_send_wr *bad;

	duo_start(&duo, true);
	duo_post_sends(&duo, 0, 1, 64);
	duo.side.memory[flag] = 7;
	sge = (struct ibv_sge){(uintptr_t)duo.side.memory + flag, 1,
			       duo.side.mr->lkey};
	wr.wr.rdma.remote_addr = duo.far.memory + flag;
	wr.wr.rdma.rkey = duo.far.rkey;
	CHECK_EQ(ibv_post_send(duo.side.qp, &wr, &bad), 0);
	CHECK_EQ(duo_tell(&duo, RECEIVE, 0, 1, PLACE), 0);
	for (int i = 0; i < 10000 && !seen; i++) {
		seen = duo_tell(&duo, PEEK, flag, 0, 0);
		poll(NULL, 0, 1);
	}
	CHECK_EQ(seen, 7);
	duo_finish(&duo);
}
