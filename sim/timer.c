/* SPDX-License-Identifier: MIT */
/*
 * A thread that runs this process's timers while the program sleeps on a
 * completion channel, and the kicks that it owes to senders that wait for its
 * receives. Started on first need; most programs that poll, and a deterministic
 * run, never have one.
 */
#include "sim/play.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake;
static pthread_t thread;
static bool is_running;
static bool is_stopping;
static bool is_kicked; /* there may be an earlier deadline */
static _Atomic bool watches_kicks;

/* Run what is due; the moment of what comes next, SIM_NO_LIMIT for nothing. In
 * a late world another process may make a message of ours wait, and does not
 * tell: look as often as messages leave. */
static uint64_t run_due(struct sim_world *w)
{
	uint64_t now = sim_now_ns();
	uint64_t next = w->seg->late_ns ? now + w->seg->late_ns : SIM_NO_LIMIT;

	for (uint32_t i = 0; i < sim_top(w, SIM_CQ); i++) {
		struct sim_cq *cq = &w->seg->cq[i];
		uint64_t due;

		if (cq->object.proc != w->proc ||
		    !atomic_load(&cq->object.handle))
			continue;
		if (atomic_load(&cq->deadline_ns) <= now)
			sim_run_timers(w, cq, now);
		due = atomic_load(&cq->deadline_ns);
		next = due < next ? due : next;
	}
	if (watches_kicks && !sim_kick_overdue(w, now)) {
		watches_kicks = false;
		/* One that has come since then. */
		if (sim_kick_overdue(w, now))
			watches_kicks = true;
	}
	if (watches_kicks && now + SIM_KICK_NS < next)
		next = now + SIM_KICK_NS;
	return next;
}

static void *run(void *arg)
{
	struct sim_world *w = arg;

	pthread_mutex_lock(&lock);
	while (!is_stopping) {
		uint64_t due;

		is_kicked = false;
		pthread_mutex_unlock(&lock);
		due = run_due(w);
		pthread_mutex_lock(&lock);
		if (is_stopping || is_kicked)
			continue;
		if (due == SIM_NO_LIMIT) {
			pthread_cond_wait(&wake, &lock);
		} else {
			struct timespec until = {
				.tv_sec = (time_t)(due / 1000000000u),
				.tv_nsec = (long)(due % 1000000000u),
			};
			pthread_cond_timedwait(&wake, &lock, &until);
		}
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

bool sim_thread_start(pthread_t *it, void *(*start)(void *), void *arg)
{
	sigset_t all, old;
	bool is_started;

	/* The program's signals are for its own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	is_started = pthread_create(it, NULL, start, arg) == 0;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return is_started;
}

void sim_timer_start(struct sim_world *w)
{
	pthread_condattr_t attr;

	if (sim_is_played(w))
		return;
	pthread_mutex_lock(&lock);
	is_kicked = true;
	if (is_running) {
		pthread_cond_signal(&wake);
	} else {
		pthread_condattr_init(&attr);
		pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
		pthread_cond_init(&wake, &attr);
		pthread_condattr_destroy(&attr);
		is_stopping = false;
		is_running = sim_thread_start(&thread, run, w);
	}
	pthread_mutex_unlock(&lock);
}

void sim_timer_watch_kicks(struct sim_world *w)
{
	if (!atomic_load(&watches_kicks) &&
	    !atomic_exchange(&watches_kicks, true))
		sim_timer_start(w);
}

void sim_timer_stop(void)
{
	pthread_mutex_lock(&lock);
	if (!is_running) {
		pthread_mutex_unlock(&lock);
		return;
	}
	is_stopping = true;
	pthread_cond_signal(&wake);
	pthread_mutex_unlock(&lock);
	pthread_join(thread, NULL);
	watches_kicks = false;
	is_running = false;
}

void sim_timer_forget(void)
{
	pthread_mutex_init(&lock, NULL);
	watches_kicks = false;
	is_running = false;
}
