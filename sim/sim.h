/* SPDX-License-Identifier: MIT */
/*
 * The door of sim: worlds, device models and the fault taps.
 *
 * A world is everything an emulated fabric knows: two hosts, their devices,
 * the cable between them, and every object that programs made on them. It is
 * one memory segment, private to a process or shared under a name.
 *
 * Unless a function says otherwise: it returns 0 or a negative errno, prints
 * nothing, and may be called from any thread.
 */
#ifndef SIM_SIM_H
#define SIM_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "sim/sites.h"

#define SIM_HOST_COUNT	 2
#define SIM_FAULT_MAX	 64
#define SIM_FAULT_ID_MAX 16
#define SIM_NAME_MAX	 64
#define SIM_ERROR_MAX	 256
#define SIM_TREE_MAX	 128 /* a folder's name */
#define SIM_NO_LIMIT	 UINT64_MAX

struct sim_world;

/*
 * One armed line of a plan, in the world. The first part is what the plan
 * said and never changes; the counters are moved by the taps of every process.
 */
struct sim_fault {
	char id[SIM_FAULT_ID_MAX];
	uint8_t host;	 /* 0 = a, 1 = b */
	uint8_t site;	 /* enum sim_site */
	uint8_t effect;	 /* enum sim_effect */
	int8_t after;	 /* index of the line that must have fired, or -1 */
	uint32_t object; /* queue pair ordinal on its host, or enum sim_call */
	uint64_t first;	 /* event ordinal, or byte offset in a stream */
	uint64_t last;	 /* inclusive; SIM_NO_LIMIT = open */
	uint64_t every;	 /* 1 = each event from first to last */
	uint64_t times;	 /* how often it may fire; SIM_NO_LIMIT = no limit */
	uint64_t at;	 /* CORRUPT, SET: byte; TRUNC: length */
	uint32_t value;	 /* CORRUPT, FLIP: xor; SET: byte; FAIL: errno */
	uint32_t reserved;

	_Atomic uint64_t reached;   /* events seen at the site */
	_Atomic uint64_t matched;   /* of those, claimed by this line */
	_Atomic uint64_t fired;	    /* of those, struck */
	_Atomic uint64_t effective; /* of those, observably changed */
	_Atomic uint64_t fired_at; /* 1 + ordinal of the first strike, 0 none */
};

struct sim_world_config {
	const char *name;		   /* NULL: private to this process */
	const char *model[SIM_HOST_COUNT]; /* "apple-tb,mr_flags=strict" */
	/* A plan to arm when the world is created; one that exists must run
	 * the same (-EEXIST). NULL: none given. */
	const char *plan_text;
	const struct sim_fault *faults;
	int fault_count;
	int host;	  /* 0: the emptiest host; else 1 = a, 2 = b */
	bool is_observer; /* watches; owns no objects */
	bool is_passive;  /* only reads the plan: joins an existing world,
			   * without a place among its processes */
	/* The late personality: a message leaves so long after it has come to
	 * the head of its queue, and what the device owns is poisoned unless it
	 * is spared. 0: at once. */
	uint64_t late_ns;
	bool spares_owned;
};

/*
 * Open the world: create it, or join it when it exists. A NULL model means
 * "what the world has", and the default model when it is created. On failure
 * `error` holds one line naming what and where: -EINVAL bad name, model or
 * knob; -EEXIST the world runs another model; -EPERM it belongs to another
 * user; -ENOSPC no room in /dev/shm; -EUSERS too many processes.
 */
int sim_world_open(const struct sim_world_config *config,
		   struct sim_world **world, char error[SIM_ERROR_MAX]);

/* Leave; the last one out removes the segment. Frees `world`. */
void sim_world_close(struct sim_world *world);

/* The model of a host, as given ("apple-tb,mr_flags=strict"); lives as long
 * as the world. */
const char *sim_world_model(const struct sim_world *world, int host);

/* Processes in the world, observers and this one included. */
int sim_world_process_count(struct sim_world *world);

/* An observer is done. True for the last one in the world to say so, which is
 * then the one to report on the plan. */
bool sim_world_retire(struct sim_world *world);

/* Remove worlds whose name begins with `prefix` and that nobody lives in. */
void sim_world_sweep(const char *prefix);

/* The host this process is on: what it asked for, or was given on entry. */
int sim_world_host(const struct sim_world *world);

/*
 * Show `host`'s device to this process, and to those it starts, where programs
 * look past libibverbs: /dev/infiniband and /sys/class/infiniband*, in a mount
 * namespace of their own. Where that may not be made, `tree` names a folder
 * that holds both, for verbena-paths.so (VERBENA_PATHS), and is "" elsewhere;
 * it goes with the world. After a negative errno the process is not fit to go
 * on. Call it with one thread, between fork and exec.
 */
int sim_world_surround(const struct sim_world *world, int host,
		       char tree[SIM_TREE_MAX]);

/* Free whatever a dead process left; `pid` 0 means every dead process. */
void sim_world_reap(struct sim_world *world, pid_t pid);

/* Live objects of all kinds, for ledgers: PD + MR + CQ + QP + channel. */
int sim_world_object_count(struct sim_world *world);

/*
 * Arm the lines of a plan. Only once in a world's life and before any queue
 * pair exists, so that ordinals mean the same in each run: -EBUSY otherwise.
 */
int sim_world_arm(struct sim_world *world, const struct sim_fault *faults,
		  int count, const char *plan_text);

/* The armed lines and their counters; valid until the world is closed. */
struct sim_fault *sim_world_faults(struct sim_world *world, int *count);

/* The canonical text that was armed, "" when none. */
const char *sim_world_plan(const struct sim_world *world);

/*
 * Make this world the one that verbs called from this process act on. Without
 * it the first verbs call joins the world that VERBENA_WORLD names. NULL undoes
 * it. Not thread-safe; for tests.
 */
void sim_world_use(struct sim_world *world);

/* The host that verbs called from this thread act on (tests: one thread per
 * endpoint); -1 returns to the process's host. */
void sim_host_set(int host);

/*
 * Ask the taps about bytes [offset, offset + len) of a bootstrap stream and
 * apply flips to them in place. Returns how many bytes may pass before a line
 * ends or stalls the stream (len when none does); *stop then says which.
 */
size_t sim_tap_stream(struct sim_world *world, int host, enum sim_site site,
		      uint64_t offset, uint8_t *bytes, size_t len,
		      enum sim_effect *stop);

/* --- deterministic runs -------------------------------------------------- */

/* How the device uses the freedom it has; README.md says exactly. */
enum sim_personality {
	SIM_EAGER, /* a message is delivered when it is posted */
	SIM_LATE,  /* as late as can be, and what the device owns is poisoned */
	SIM_PREEMPT, /* eager, but tasks are interrupted at chosen calls */
};

/* An endpoint of a run: a thread that acts on its host. */
struct sim_task {
	int host; /* 0 = a, 1 = b */
	void (*run)(void *arg);
	void *arg;
};

#define SIM_TASK_MAX 16

struct sim_play {
	struct sim_world *world; /* private, and nobody else uses it */
	enum sim_personality personality;
	/* PREEMPT: the ordinals of calls to interrupt at, ascending; NULL:
	 * one in four, as the seed says. */
	const uint64_t *switches;
	int switch_count;
	uint64_t seed;
	FILE *trace;		/* one line an event; NULL: only the hash */
	uint64_t event_limit;	/* 0: 10,000,000 lines */
	uint64_t time_limit_ns; /* 0: an hour of the run's own time */
};

struct sim_play_result {
	uint64_t hash; /* over the bytes of the trace */
	uint64_t events;
	uint64_t calls;	  /* that could have been interrupted */
	uint64_t turns;	  /* how often the baton changed hands */
	uint64_t time_ns; /* the run's own, from 0 */
	/* Messages whose buffer was changed between post and departure. */
	uint64_t changed;
	bool is_deadlock;
	char text[SIM_ERROR_MAX]; /* why it did not end by itself */
};

/*
 * Run the tasks to their end, one at a time, in an order and at times that
 * depend on nothing but what they do. Verbs act on `play->world` meanwhile.
 * -EDEADLK: all waited and nothing could come; -ELOOP: a limit was reached.
 * Either way the tasks were told (a poll fails, a stream is reset, the clock is
 * far on) and have ended. -EBUSY: this process is in such a run already;
 * -EINVAL: a shared world, or a task of no host. A task that never comes to a
 * hook is named on standard error after a minute, and the process aborts.
 */
int sim_play(const struct sim_play *play, const struct sim_task *tasks,
	     int count, struct sim_play_result *result);

/*
 * For tasks. Nothing to do: until something happens to this task's host, or
 * the clock has come to `until_ns` (SIM_NO_LIMIT: never). May return early.
 */
void sim_play_idle(uint64_t until_ns);
/* The time; a task that reads it between polls is taken to wait for it. */
uint64_t sim_play_now_ns(void);

/*
 * The bootstrap stream of a run, between host a and host b; faults strike it.
 * Bytes moved (fewer than asked for: it holds 64 KiB), or -EAGAIN, -EPIPE,
 * -ECONNRESET; 0 from recv is the end. Tasks only.
 */
long sim_stream_send(const void *bytes, size_t len);
long sim_stream_recv(void *bytes, size_t len, bool is_peek);
/* Wait until a call would not return -EAGAIN: 1, or 0 when the time is up. */
int sim_stream_wait(bool for_write, uint64_t until_ns);
/* End what we send; and both ways. */
void sim_stream_end(void);
void sim_stream_shutdown(void);

/* One row of `verbena models`. */
struct sim_knob {
	const char *name;
	/* "any|strict", the default first; "#11 of 1..99": a number. */
	const char *values;
	const char *rule; /* row ids in the spec */
	const char *what;
};

struct sim_model_info {
	const char *name;
	const char *what;
	const struct sim_knob *knobs;
	int knob_count;
};

/* The i-th model in order of rank; false past the end. */
bool sim_model_info(int i, struct sim_model_info *info);

/* Nanoseconds of CLOCK_MONOTONIC, which times everything in sim, and of
 * CLOCK_REALTIME, which is only told to programs. In a deterministic run both
 * are the run's own clock. */
uint64_t sim_now_ns(void);
uint64_t sim_wall_ns(void);

#endif
