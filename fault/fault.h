/* SPDX-License-Identifier: MIT */
/*
 * The door of fault: plans, and runs that follow one.
 *
 * A plan is text, one line a fault, no probabilities (spec/fault-and-
 * simulation.md, section 7a). Nothing here is thread-safe.
 */
#ifndef FAULT_FAULT_H
#define FAULT_FAULT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "lib/verbena.h"
#include "sim/sim.h"

#define FAULT_PARAM_MAX 8
#define FAULT_WORD_MAX	48
#define FAULT_ERROR_MAX 256

/* How an endpoint ended; a plan line may expect some of them. */
#define FAULT_VERDICTS(X)                                               \
	X(PASS, "pass", "ended well, every byte right")                 \
	X(FAIL, "fail", "reported an error other than a timeout")       \
	X(TIMEOUT, "timeout", "reported that nothing moved in time")    \
	X(CORRUPT, "corrupt", "reported nothing, but a byte was wrong") \
	X(CRASH, "crash", "ended without a report")

#define X(name, ...) FAULT_##name,
enum fault_verdict { FAULT_VERDICTS(X) FAULT_VERDICT_COUNT };
#undef X

struct fault_param {
	char key[FAULT_WORD_MAX];
	uint64_t value;
};

struct fault_line {
	struct sim_fault fault; /* counters zero */
	uint32_t expect;	/* mask of enum fault_verdict; 0: none given */
	int expect_host;	/* -1: either */
	bool is_sticky;
	int text_line; /* where it stands in the text, 1-based */
};

struct fault_plan {
	char scenario[FAULT_WORD_MAX]; /* "" = none named */
	struct fault_param param[FAULT_PARAM_MAX];
	int param_count;
	char device[SIM_HOST_COUNT][2 * SIM_NAME_MAX]; /* "" = default */
	uint64_t seed;
	bool has_seed;
	struct fault_line line[SIM_FAULT_MAX];
	int line_count;
};

/*
 * Parse a plan. On failure -EINVAL, and `error` holds "NAME:LINE:COLUMN: what
 * is wrong", both counted from 1; `name` is only quoted.
 */
int fault_plan_parse(const char *name, const char *text,
		     struct fault_plan *plan, char error[FAULT_ERROR_MAX]);

/* Canonical text: parses to an equal plan, and prints to the same text. The
 * caller frees it; NULL without memory. */
char *fault_plan_print(const struct fault_plan *plan);

/* One fault line as canonical text, without a newline. */
void fault_line_print(const struct fault_plan *plan, int line, FILE *out);

/*
 * A plan argument of the tool: the path of a file, or the text itself, in
 * which ';' ends a line. -ENOENT when it can only be a path and is not there.
 */
int fault_plan_load(const char *argument, struct fault_plan *plan,
		    char error[FAULT_ERROR_MAX]);

/* Value of a scenario parameter, or `otherwise`. */
uint64_t fault_plan_param(const struct fault_plan *plan, const char *key,
			  uint64_t otherwise);

/* Does any line strike the bootstrap stream? */
bool fault_plan_has_stream(const struct fault_plan *plan);

/* The plan's lines as a world takes them; how many. */
int fault_plan_faults(const struct fault_plan *plan,
		      struct sim_fault faults[SIM_FAULT_MAX]);

/* sim_world_open with this plan armed; the rest of `config` is the caller's. */
int fault_plan_open_world(const struct fault_plan *plan,
			  struct sim_world_config *config,
			  struct sim_world **world,
			  char error[FAULT_ERROR_MAX]);

/*
 * The account of a run: each line armed -> reached -> fired -> effective, as a
 * table. Returns how many lines did not fire or had no effect.
 */
int fault_report(struct sim_world *world, FILE *out);

const char *fault_verdict_name(enum fault_verdict verdict);
int fault_verdict_parse(const char *word, size_t len);
const char *fault_effect_word(enum sim_effect effect, size_t *len);
const char *fault_call_word(enum sim_call call);

/* --- scenarios ---------------------------------------------------------- */

/* What one endpoint of a scenario reports over its pipe. */
struct fault_endpoint {
	int side; /* 0 = a, 1 = b */
	enum fault_verdict verdict;
	int rc;
	struct vb_cause cause;
	uint64_t sent_bytes;
	uint64_t received_bytes;
	/* The first wrong word of the received stream: where it is, and where
	 * in the sender's stream its bytes belong; -1 none, -2 nowhere. */
	int64_t wrong_at;
	int64_t wrong_from;
};

/* Nothing seen yet: every place is -1. */
void fault_endpoint_init(struct fault_endpoint *report, int side);

struct fault_run {
	struct fault_endpoint end[SIM_HOST_COUNT];
	int stale; /* lines that did not fire, or changed nothing */
	double seconds;
	/* Which line fired first, and at what event; -1 none. */
	int first_fired;
	bool is_as_expected;
};

struct fault_tool {
	char exe[4096];	    /* this program */
	char lib_dir[4096]; /* where libibverbs.so.1 is */
};

int fault_tool_find(struct fault_tool *tool, char error[FAULT_ERROR_MAX]);

/* Run the plan's scenario in two processes; report on standard error. */
int fault_scenario_run(const struct fault_tool *tool,
		       const struct fault_plan *plan, struct fault_run *run,
		       struct sim_fault faults[SIM_FAULT_MAX],
		       char error[FAULT_ERROR_MAX]);

/* The endpoint's half, in its own process: never returns a failure that the
 * report does not hold. */
int fault_endpoint_main(int argc, char **argv);

/* People's or a machine's account of a run, on standard output. */
void fault_run_tell(const struct fault_tool *tool,
		    const struct fault_plan *plan, const struct fault_run *run,
		    const struct sim_fault *faults);
void fault_run_json(const struct fault_plan *plan, const struct fault_run *run,
		    const struct sim_fault *faults);

/* Self-locating payload: word at byte offset `at` (a multiple of 8), and the
 * offset a word belongs to, -2 if it is not of this stream. */
uint64_t fault_word_at(uint64_t seed, uint64_t at);
int64_t fault_word_offset(uint64_t seed, uint64_t word, uint64_t limit);

#endif
