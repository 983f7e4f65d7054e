/* SPDX-License-Identifier: MIT */
/*
 * Copying where process_vm_readv and writev are forbidden (seccomp): through
 * the segment, by a thread in the process whose memory it is. It sleeps until
 * it is asked, so that one-sided operations still need no call of the program.
 */
#define _GNU_SOURCE
#include "sim/core.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define CHUNK	(256u << 10)
#define WAIT_NS 1000000

enum turn { IDLE, ASKED, DONE, ENDED };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_t thread;
static struct sim_world *served; /* NULL: no thread */

static struct sim_mover *mover_of(struct sim_world *w, uint32_t proc)
{
	return &w->seg->proc[proc].mover;
}

static void wait_while(struct sim_mover *mover, uint32_t turn,
		       const struct timespec *limit)
{
	syscall(SYS_futex, &mover->turn, FUTEX_WAIT, turn, limit, NULL, 0);
}

static void set_turn(struct sim_mover *mover, uint32_t turn)
{
	atomic_store(&mover->turn, turn);
	syscall(SYS_futex, &mover->turn, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Between the block and this process's memory. */
static void serve(struct sim_world *w, struct sim_mover *mover)
{
	char *block = sim_at(w, mover->block);
	void *memory = (void *)(uintptr_t)mover->addr;

	mover->is_bad =
		!sim_is_mapped(mover->addr, mover->length, !mover->is_read);
	if (mover->is_bad)
		return;
	if (mover->is_read)
		memcpy(block, memory, mover->length);
	else
		memcpy(memory, block, mover->length);
}

static void *run(void *arg)
{
	struct sim_world *w = arg;
	struct sim_mover *mover = mover_of(w, w->proc);

	for (;;) {
		switch ((enum turn)atomic_load(&mover->turn)) {
		case ASKED:
			serve(w, mover);
			set_turn(mover, DONE);
			break;
		case ENDED:
			return NULL;
		case IDLE:
			wait_while(mover, IDLE, NULL);
			break;
		case DONE:
			wait_while(mover, DONE, NULL);
			break;
		}
	}
}

bool sim_mover_is_needed(void)
{
	char from = 1, to = 0;
	struct iovec here = {&to, 1}, there = {&from, 1};

	return process_vm_readv(getpid(), &here, 1, &there, 1, 0) != 1;
}

void sim_mover_start(struct sim_world *w)
{
	struct sim_mover *mover = mover_of(w, w->proc);

	if (!atomic_load_explicit(&w->seg->movers_wanted,
				  memory_order_relaxed) ||
	    w->fd < 0 || atomic_load(&mover->is_there))
		return;
	pthread_mutex_lock(&lock);
	if (!served) {
		if (!mover->block)
			mover->block = sim_arena_alloc(w, CHUNK);
		atomic_store(&mover->turn, IDLE);
		if (mover->block && sim_thread_start(&thread, run, w)) {
			served = w;
			atomic_store(&mover->is_there, 1);
		}
	}
	pthread_mutex_unlock(&lock);
}

void sim_mover_stop(struct sim_world *w)
{
	struct sim_mover *mover = mover_of(w, w->proc);

	pthread_mutex_lock(&lock);
	if (served == w) {
		/* Nobody asks any more once this is ours and not there. */
		sim_take(w, &mover->lock);
		atomic_store(&mover->is_there, 0);
		set_turn(mover, ENDED);
		sim_drop(&mover->lock);
		pthread_join(thread, NULL);
		served = NULL;
		sim_arena_free(w, mover->block, CHUNK);
		mover->block = 0;
	}
	pthread_mutex_unlock(&lock);
}

void sim_mover_reap(struct sim_world *w, uint32_t proc)
{
	struct sim_mover *mover = mover_of(w, proc);

	sim_take(w, &mover->lock);
	atomic_store(&mover->is_there, 0);
	sim_arena_free(w, mover->block, CHUNK);
	mover->block = 0;
	sim_drop(&mover->lock);
}

void sim_mover_forget(void)
{
	pthread_mutex_init(&lock, NULL);
	served = NULL;
}

/* The mover's lock is held: have it move one chunk. */
static enum sim_copy_result ask(struct sim_world *w, uint32_t proc,
				struct sim_mover *mover)
{
	const struct timespec limit = {.tv_nsec = WAIT_NS};

	set_turn(mover, ASKED);
	while (atomic_load(&mover->turn) == ASKED) {
		wait_while(mover, ASKED, &limit);
		if (atomic_load(&mover->turn) == ASKED &&
		    !sim_proc_is_alive(w, proc))
			return SIM_COPY_GONE;
	}
	if (!mover->is_bad)
		return SIM_COPY_OK;
	return mover->is_read ? SIM_COPY_BAD_SOURCE : SIM_COPY_BAD_TARGET;
}

enum sim_copy_result sim_mover_move(struct sim_world *w, uint32_t proc,
				    uint64_t far, char *near, uint64_t length,
				    bool is_read)
{
	struct sim_mover *mover = mover_of(w, proc);
	enum sim_copy_result rc = SIM_COPY_OK;

	sim_take(w, &mover->lock);
	if (!atomic_load(&mover->is_there))
		rc = SIM_COPY_REFUSED;
	while (length && rc == SIM_COPY_OK) {
		uint64_t n = length < CHUNK ? length : CHUNK;

		mover->is_read = is_read;
		mover->addr = far;
		mover->length = n;
		if (!is_read)
			memcpy(sim_at(w, mover->block), near, n);
		rc = ask(w, proc, mover);
		if (rc == SIM_COPY_OK && is_read)
			memcpy(near, sim_at(w, mover->block), n);
		far += n;
		near += n;
		length -= n;
	}
	sim_drop(&mover->lock);
	return rc;
}
