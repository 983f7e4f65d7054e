/* SPDX-License-Identifier: MIT */
/*
 * The locks of the fast path. pthread's robust ones cost three times as much,
 * and every atomic instruction waits for the cache lines that a sender has just
 * taken from its receiver.
 */
#define _GNU_SOURCE
#include "sim/world.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPINS 100
#if defined(__x86_64__) || defined(__i386__)
#define PAUSE() __builtin_ia32_pause()
#else
#define PAUSE() ((void)0)
#endif
#define WAIT_NS	 1000000
#define PATIENCE 2 /* such waits before we ask what the owner does */

uint32_t sim_no_place(void)
{
	return SIM_NO_PLACE | (uint32_t)getpid();
}

static bool is_alive(struct sim_world *w, uint32_t owner)
{
	uint32_t slot = sim_locker_slot(owner);

	return slot < SIM_PROC_MAX &&
	       atomic_load(&w->seg->proc[slot].lives) ==
		       owner >> SIM_LOCKER_BITS &&
	       sim_proc_is_alive(w, slot);
}

static bool is_gone(struct sim_world *w, uint32_t owner)
{
	if (owner & SIM_NO_PLACE)
		return kill((pid_t)(owner & ~SIM_NO_PLACE), 0) != 0 &&
		       errno == ESRCH;
	return owner != w->locker && !is_alive(w, owner);
}

/* Sleep until the owner has changed; a millisecond at most, because who drops
 * it may not see that we wait. */
static void sleep_on(struct sim_latch *latch, uint32_t owner)
{
	const struct timespec limit = {.tv_nsec = WAIT_NS};

	atomic_fetch_add(&latch->waiters, 1);
	syscall(SYS_futex, &latch->owner, FUTEX_WAIT, owner, &limit, NULL, 0);
	atomic_fetch_sub(&latch->waiters, 1);
}

static bool take(struct sim_world *w, struct sim_latch *latch,
		 bool unless_stopped)
{
	for (int i = 0;; i++) {
		uint32_t owner = atomic_load(&latch->owner);
		bool may_be_mine = owner == 0;

		if (i < SPINS) {
			PAUSE();
		} else if (owner) {
			sleep_on(latch, owner);
			may_be_mine = is_gone(w, owner);
			if (unless_stopped && i > SPINS + PATIENCE &&
			    sim_proc_is_stopped(w, sim_locker_slot(owner)))
				return false;
		}
		if (may_be_mine &&
		    atomic_compare_exchange_strong(&latch->owner, &owner,
						   w->locker))
			return true;
	}
}

void sim_take_slow(struct sim_world *w, struct sim_latch *latch)
{
	take(w, latch, false);
}

bool sim_take_slow_unless_stopped(struct sim_world *w, struct sim_latch *latch)
{
	return take(w, latch, true);
}

void sim_wake_waiter(struct sim_latch *latch)
{
	syscall(SYS_futex, &latch->owner, FUTEX_WAKE, 1, NULL, NULL, 0);
}
