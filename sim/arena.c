/* SPDX-License-Identifier: MIT */
/*
 * Memory for rings inside a world's segment: power-of-two classes with free
 * lists, so that the segment never grows past what was in use at once. Without
 * a lock: who is stopped over it would keep everybody.
 *
 * A list's head is its first block, and above it how often it has changed: a
 * block that was taken and came back meanwhile is not mistaken for itself. The
 * links are apart from the blocks, which are their users'.
 */
#define _GNU_SOURCE
#include "sim/world.h"

#include <errno.h>
#include <fcntl.h>

#include "sim/diag.h"

#define MIN_SHIFT 12 /* 4 KiB */

static int class_of(size_t bytes)
{
	int class = 0;

	while (((size_t)1 << (class + MIN_SHIFT)) < bytes)
		class ++;
	return class;
}

int sim_reserve(int fd, uint64_t offset, uint64_t bytes)
{
	int rc;

	do {
		rc = posix_fallocate(fd, (off_t)offset, (off_t)bytes);
	} while (rc == EINTR);
	return rc;
}

/* Pages are reserved before they are handed out: a full /dev/shm must be an
 * error here, not a SIGBUS in the data path. */
static bool reserve(struct sim_world *w, uint64_t offset, size_t bytes)
{
	if (w->fd < 0)
		return true;
	return sim_reserve(w->fd, w->seg->bytes - SIM_ARENA_BYTES + offset,
			   bytes) == 0;
}

/* There is no memory for it: another, shorter one may still get some. */
static void give_up(struct sim_segment *seg, uint32_t block, uint32_t blocks)
{
	uint32_t end = block + blocks;

	atomic_compare_exchange_strong(&seg->arena_next, &end, block);
}

static uint32_t first_of(uint64_t head)
{
	return (uint32_t)head;
}

static uint64_t after(uint64_t head, uint32_t first)
{
	return ((head >> 32) + 1) << 32 | first;
}

/* A block of the class that was used before, or 0. */
static uint32_t take_used(struct sim_segment *seg, int class)
{
	_Atomic uint64_t *list = &seg->arena_free[class];
	uint64_t head = atomic_load(list);

	while (first_of(head)) {
		uint32_t block = first_of(head);
		uint32_t next = atomic_load(&seg->arena_link[block]);

		if (atomic_compare_exchange_weak(list, &head,
						 after(head, next)))
			return block;
	}
	return 0;
}

/* So many blocks that never were, or 0. */
static uint32_t take_new(struct sim_segment *seg, uint32_t blocks)
{
	uint32_t block = atomic_load(&seg->arena_next);

	do {
		if (blocks > SIM_ARENA_BYTES / SIM_ARENA_BLOCK - block)
			return 0;
	} while (!atomic_compare_exchange_weak(&seg->arena_next, &block,
					       block + blocks));
	return block;
}

uint64_t sim_arena_alloc(struct sim_world *w, size_t bytes)
{
	int class = class_of(bytes);
	size_t size = (size_t)1 << (class + MIN_SHIFT);
	uint32_t blocks = (uint32_t)(size / SIM_ARENA_BLOCK);
	uint32_t block;

	if (class >= SIM_ARENA_CLASSES)
		return 0;
	block = take_used(w->seg, class);
	if (!block) {
		block = take_new(w->seg, blocks);
		if (block &&
		    !reserve(w, (uint64_t)block * SIM_ARENA_BLOCK, size)) {
			give_up(w->seg, block, blocks);
			block = 0;
		}
	}
	if (!block)
		sim_diag("world", "see sim/README.md, a world",
			 "no room for a ring of %zu bytes: the world's memory "
			 "or /dev/shm is full",
			 size);
	return (uint64_t)block * SIM_ARENA_BLOCK;
}

void sim_arena_free(struct sim_world *w, uint64_t offset, size_t bytes)
{
	_Atomic uint64_t *list = &w->seg->arena_free[class_of(bytes)];
	uint32_t block = (uint32_t)(offset / SIM_ARENA_BLOCK);
	uint64_t head;

	if (!offset)
		return;
	head = atomic_load(list);
	do {
		atomic_store(&w->seg->arena_link[block], first_of(head));
	} while (
		!atomic_compare_exchange_weak(list, &head, after(head, block)));
}
