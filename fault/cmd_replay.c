/* SPDX-License-Identifier: MIT */
/* verbena replay and verbena demo: a plan's scenario, run and told. */
#define _GNU_SOURCE
#include "fault/fault.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fault/tool.h"

struct replay_options {
	const char *plan;
	bool is_json;
};

static const struct argp_option options[] = {
	{"json", 'j', NULL, 0, "for machines", 0},
	{0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct replay_options *replay = state->input;

	switch (key) {
	case 'j':
		replay->is_json = true;
		return 0;
	case ARGP_KEY_ARG:
		if (replay->plan)
			argp_error(state, "more than one plan");
		replay->plan = arg;
		return 0;
	case ARGP_KEY_END:
		if (!replay->plan)
			argp_error(state, "no plan given");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int status_of(const struct fault_run *run)
{
	if (run->stale)
		return EXIT_STALE;
	return run->is_as_expected ? 0 : EXIT_BAD;
}

int cmd_replay(int argc, char **argv)
{
	static const struct argp argp = {
		options,
		parse,
		"PLAN",
		"Run the scenario of a plan between two processes on an "
		"emulated cable. PLAN is a file or the text itself, in which "
		"';' ends a line."
		"\vExit status: 0 when every line had its expected verdict (or "
		"none was named and all went well), 1 when not, 2 for bad "
		"input, 3 when a line of the plan did nothing.",
		NULL,
		NULL,
		NULL};
	struct replay_options replay = {0};
	struct sim_fault faults[SIM_FAULT_MAX];
	char error[FAULT_ERROR_MAX];
	struct fault_tool tool;
	struct fault_plan plan;
	struct fault_run run;

	argv[0] = "verbena replay";
	argp_parse(&argp, argc, argv, 0, NULL, &replay);
	if (fault_tool_find(&tool, error) ||
	    fault_plan_load(replay.plan, &plan, error) ||
	    fault_scenario_run(&tool, &plan, &run, faults, error))
		return tool_refuse(error);
	if (replay.is_json)
		fault_run_json(&plan, &run, faults);
	else
		fault_run_tell(&tool, &plan, &run, faults);
	return status_of(&run);
}

static const struct {
	const char *title;
	const char *plan;
} acts[] = {
	{"64 MiB each way over the emulated cable",
	 "scenario uc.bulk bytes=67108864\n"
	 "device a=apple-tb b=apple-tb\n"},
	{"the same, with one bit of the 38th frame's magic flipped",
	 "scenario uc.bulk bytes=67108864\n"
	 "device a=apple-tb b=apple-tb\n"
	 "a.qp0.tx #37 corrupt at=0 xor=0x01 expect=fail@b\n"},
	{"the same, with the 38th frame lost on the wire",
	 "scenario uc.bulk bytes=67108864\n"
	 "device a=apple-tb b=apple-tb\n"
	 "a.qp0.tx #37 drop expect=timeout@b\n"},
};
#define ACT_COUNT (sizeof(acts) / sizeof(*acts))

static int run_act(const struct fault_tool *tool, size_t act)
{
	struct sim_fault faults[SIM_FAULT_MAX];
	char error[FAULT_ERROR_MAX];
	struct fault_plan plan;
	struct fault_run run;

	printf("%zu. %s\n", act + 1, acts[act].title);
	fflush(stdout);
	if (fault_plan_parse("demo", acts[act].plan, &plan, error) ||
	    fault_scenario_run(tool, &plan, &run, faults, error))
		return tool_refuse(error);
	fault_run_tell(tool, &plan, &run, faults);
	return status_of(&run);
}

int cmd_demo(int argc, char **argv)
{
	static const struct argp argp = {
		NULL,
		NULL,
		NULL,
		"Two processes send 64 MiB each way over an emulated "
		"Thunderbolt cable; then with a corrupted and a lost frame.",
		NULL,
		NULL,
		NULL};
	struct fault_tool tool;
	char error[FAULT_ERROR_MAX];
	int status = 0;

	argv[0] = "verbena demo";
	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	if (fault_tool_find(&tool, error))
		return tool_refuse(error);
	for (size_t act = 0; act < ACT_COUNT && !status; act++)
		status = run_act(&tool, act);
	if (!status)
		printf("All %zu went as they should: the flipped bit was seen "
		       "where it was; the lost\nframe was only seen when bytes "
		       "ran out, because this wire format has no\nsequence "
		       "number.\n",
		       ACT_COUNT);
	return status;
}
