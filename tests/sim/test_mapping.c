/* SPDX-License-Identifier: MIT */
/*
 * Goal: memory that a program shares in any case is copied to and from without
 * the kernel, and only where that is safe: whatever the other process does with
 * its memory, its file or its descriptor, a message lands where it belongs or
 * is an error. Method: a second process, and calls of the kernel forbidden.
 */
#include "tests/sim/duo.h"

#include "ci/no_vm.h"
#include "tests/harness.h"

#define LONG (512u << 10)

/* One message there, whole. */
static void send_one(struct duo *duo, uint32_t message)
{
	CHECK_EQ(duo_tell(duo, RECEIVE, message, message + 1, LONG), 0);
	duo_send_message(duo, message, LONG);
	CHECK_EQ(duo_tell(duo, POLL, message, message + 1, LONG), 0);
}

static void start(struct duo *duo, enum duo_memory memory)
{
	duo_memory = memory;
	duo_start(duo, true);
}

Test(mapping, sealed_memory_needs_no_call_of_the_kernel)
{
	uint8_t *back;
	struct duo duo;

	start(&duo, DUO_SEALED);
	CHECK_EQ(forbid_copying(), 0);
	send_one(&duo, 0);
	back = duo.side.memory + LONG;
	CHECK_EQ(duo_run(&duo, IBV_WR_RDMA_WRITE, duo.side.memory, LONG,
			 2 * LONG + 64),
		 IBV_WC_SUCCESS);
	CHECK_EQ(duo_run(&duo, IBV_WR_RDMA_READ, back, LONG, 2 * LONG + 64),
		 IBV_WC_SUCCESS);
	CHECK(memcmp(duo.side.memory, back, LONG) == 0,
	      "what was written is not what is read");
	duo_finish(&duo);
}

/* A file that shrinks would end who looks at its end. */
Test(mapping, a_file_that_may_shrink_is_left_to_the_kernel)
{
	struct duo duo;

	start(&duo, DUO_FILE);
	send_one(&duo, 0);
	CHECK_EQ(duo_tell(&duo, RECEIVE, 1, 2, LONG), 0);
	CHECK_EQ(duo_tell(&duo, SHRINK, 0, 0, 0), 0);
	CHECK_EQ(duo_run(&duo, IBV_WR_SEND, duo.side.memory, LONG, 0),
		 IBV_WC_REM_OP_ERR);
	duo_finish(&duo);
}

/* Ours is not the file that is open there now. */
Test(mapping, another_file_at_its_descriptor_is_not_mapped)
{
	struct duo duo;

	start(&duo, DUO_SEALED);
	CHECK_EQ(duo_tell(&duo, SWAP, 0, 0, 0), 0);
	send_one(&duo, 0);
	duo_finish(&duo);
}

Test(mapping, memory_that_is_registered_anew_is_mapped_anew)
{
	struct duo duo;

	start(&duo, DUO_SEALED);
	for (uint32_t i = 0; i < 3; i++) {
		send_one(&duo, i);
		CHECK_EQ(duo_tell(&duo, RENEW, 0, 0, 0), 0);
	}
	duo_finish(&duo);
}

/* 5.6: pages of a region are there until it ends. */
Test(mapping, a_mapping_that_is_gone_is_no_crash_of_the_other_side)
{
	struct duo duo;

	start(&duo, DUO_SEALED);
	send_one(&duo, 0);
	CHECK_EQ(duo_tell(&duo, RECEIVE, 1, 2, LONG), 0);
	CHECK_EQ(duo_tell(&duo, UNMAP, LONG, LONG, 0), 0);
	CHECK_EQ(duo_run(&duo, IBV_WR_SEND, duo.side.memory, LONG, 0),
		 IBV_WC_SUCCESS);
	duo_finish(&duo);
}
