/* SPDX-License-Identifier: MIT */
/*
 * Memory for rings inside a world's segment: power-of-two classes with free
 * lists, so that the segment never grows past what was in use at once.
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
static void give_up(struct sim_segment *seg, uint64_t offset, size_t size)
{
	sim_lock(&seg->lock);
	if (seg->arena_next == offset + size)
		seg->arena_next = offset;
	sim_unlock(&seg->lock);
}

uint64_t sim_arena_alloc(struct sim_world *w, size_t bytes)
{
	struct sim_segment *seg = w->seg;
	int class = class_of(bytes);
	size_t size = (size_t)1 << (class + MIN_SHIFT);
	uint64_t offset = 0;
	bool is_new = false;

	if (class >= SIM_ARENA_CLASSES)
		return 0;
	sim_lock(&seg->lock);
	if (seg->arena_free[class]) {
		offset = seg->arena_free[class];
		seg->arena_free[class] = *(uint64_t *)sim_at(w, offset);
	} else if (seg->arena_next + size <= SIM_ARENA_BYTES) {
		is_new = true;
		offset = seg->arena_next;
		seg->arena_next += size;
	}
	sim_unlock(&seg->lock);
	/* Without the lock: it takes long, and who is stopped over it would
	 * keep everybody. */
	if (is_new && !reserve(w, offset, size)) {
		give_up(seg, offset, size);
		offset = 0;
	}
	if (!offset)
		sim_diag("world", "see sim/README.md, a world",
			 "no room for a ring of %zu bytes: the world's memory "
			 "or /dev/shm is full",
			 size);
	return offset;
}

void sim_arena_free(struct sim_world *w, uint64_t offset, size_t bytes)
{
	int class = class_of(bytes);

	if (!offset)
		return;
	sim_lock(&w->seg->lock);
	*(uint64_t *)sim_at(w, offset) = w->seg->arena_free[class];
	w->seg->arena_free[class] = offset;
	sim_unlock(&w->seg->lock);
}
