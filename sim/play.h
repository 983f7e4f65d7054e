/* SPDX-License-Identifier: MIT */
/*
 * Deterministic runs, seen from the core: the hooks that it calls while tasks
 * of sim_play() use it. The contract is in README.md, "A deterministic run".
 *
 * Only the task that has the baton runs, so nothing here takes a lock. Threads
 * that are no task of the run pass through all of it untouched.
 */
#ifndef SIM_PLAY_H
#define SIM_PLAY_H

#include "sim/core.h"

struct sim_playing;

/* The run that this process is in, or NULL. */
extern struct sim_playing *sim_playing;

static inline bool sim_is_played(const struct sim_world *w)
{
	return sim_is_armed(w) && sim_playing;
}

/* A call that a task may be interrupted at: PREEMPT. */
void sim_play_call(void);
/* Something happened that a task of this host may wait for. */
void sim_play_happened(uint32_t host);
/* A poll found nothing. False: the run is over. */
bool sim_play_found_nothing(struct sim_world *w, const struct sim_cq *cq);
/* Wait until something happens to this thread's host, or the clock has come to
 * `until_ns`. May return early. False: the run is over. */
bool sim_play_wait(const char *what, uint64_t until_ns);
/* The same, until a descriptor has something to read; at once when it is
 * non-blocking. */
bool sim_play_await_bytes(const char *what, int fd);
bool sim_play_is_over(void);
/* A program's buffer changed under the device. */
void sim_play_changed(void);
/* The host of this task; -1 in a thread that is none. */
int sim_play_host(void);

/* trace.c: one line, "TIME HOST EVENT OBJECT ORDINAL WORDS". */
void sim_trace(int host, const char *event, const char *object,
	       uint64_t ordinal, const char *format, ...)
	__attribute__((format(printf, 5, 6)));
/* The same, of a queue pair. */
void sim_trace_qp(const struct sim_qp *qp, const char *event, uint64_t ordinal,
		  const char *format, ...)
	__attribute__((format(printf, 4, 5)));
void sim_trace_wcs(struct sim_world *w, const struct ibv_wc *wc, int count);
void sim_trace_open(FILE *out);
/* Lines so far, and the hash over all their bytes. */
uint64_t sim_trace_lines(void);
uint64_t sim_trace_hash(void);

/* stream.c: forget what is in the stream of the last run. */
void sim_stream_open(struct sim_world *w);

/* clock.c: from now on the clock says this; and no more. */
void sim_clock_set(uint64_t now_ns);
void sim_clock_free(void);
/* A moment of real time, as a condition variable wants it. */
void sim_clock_after(unsigned seconds, struct timespec *until);

#endif
