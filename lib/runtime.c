/* SPDX-License-Identifier: MIT */
/* The seams of vb_runtime with their production defaults filled in. */
#include "lib/runtime.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

/* Spinning is cheap for a reply that is microseconds away, and ruinous when
 * the peer needs this very core; so it is short. */
#define HOT_NS	     2000u
#define SPIN_NS	     20000u
#define YIELD_NS     2000000u
#define SLEEP_MIN_NS 200000u
#define SLEEP_MAX_NS 5000000u

uint64_t vb_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t default_now(void *arg)
{
	(void)arg;
	return vb_now_ns();
}

/*
 * Who has waited long can wait a little longer: a sixteenth of it, so that a
 * connection that is idle for hours costs next to nothing. All of these come
 * back long before any deadline matters.
 */
static void default_idle(void *arg, uint64_t idle_ns, uint64_t until_ns)
{
	(void)arg;
	(void)until_ns;
	if (idle_ns < HOT_NS) {
		/* A pause is longer than a reply takes. */
	} else if (idle_ns < SPIN_NS) {
#if defined(__x86_64__) || defined(__i386__)
		__builtin_ia32_pause();
#endif
	} else if (idle_ns < YIELD_NS) {
		sched_yield();
	} else {
		uint64_t ns = idle_ns / 16;
		struct timespec nap;

		if (ns < SLEEP_MIN_NS)
			ns = SLEEP_MIN_NS;
		nap.tv_sec = 0;
		nap.tv_nsec = ns < SLEEP_MAX_NS ? (long)ns : SLEEP_MAX_NS;
		nanosleep(&nap, NULL);
	}
}

static void *default_alloc(void *arg, size_t align_bytes, size_t size_bytes)
{
	void *memory;

	(void)arg;
	return posix_memalign(&memory, align_bytes, size_bytes) == 0 ? memory
								     : NULL;
}

static void default_free(void *arg, void *memory)
{
	(void)arg;
	free(memory);
}

bool vb_runtime_is_default_alloc(const struct vb_runtime *runtime)
{
	return runtime->alloc == default_alloc;
}

struct vb_runtime vb_runtime_or_default(const struct vb_runtime *given)
{
	struct vb_runtime runtime = *given;

	if (!runtime.now_ns)
		runtime.now_ns = default_now;
	if (!runtime.idle)
		runtime.idle = default_idle;
	if (!runtime.alloc || !runtime.free) {
		runtime.alloc = default_alloc;
		runtime.free = default_free;
	}
	return runtime;
}
