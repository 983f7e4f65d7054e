/* SPDX-License-Identifier: MIT */
/* The only place in sim that reads a clock; a deterministic run has its own. */
#include "sim/play.h"

#include <time.h>

/* Set before tasks start and moved by the one that has the baton. */
static bool is_virtual;
static uint64_t virtual_ns;

static uint64_t read_clock(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t sim_now_ns(void)
{
	return is_virtual ? virtual_ns : read_clock(CLOCK_MONOTONIC);
}

uint64_t sim_wall_ns(void)
{
	return is_virtual ? virtual_ns : read_clock(CLOCK_REALTIME);
}

void sim_clock_after(unsigned seconds, struct timespec *until)
{
	clock_gettime(CLOCK_REALTIME, until);
	until->tv_sec += seconds;
}

void sim_clock_set(uint64_t now_ns)
{
	virtual_ns = now_ns;
	is_virtual = true;
}

void sim_clock_free(void)
{
	is_virtual = false;
}
