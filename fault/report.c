/* SPDX-License-Identifier: MIT */
/* The account of a plan after a run: armed -> reached -> fired -> effective. */
#include "fault/fault.h"

#include <inttypes.h>

static const char *state_of(const struct sim_fault *fault)
{
	if (fault->effective)
		return "effective";
	if (fault->fired)
		return "fired, but changed nothing";
	if (fault->reached)
		return "reached, but never fired";
	return "armed, but its site had no event";
}

int fault_report(struct sim_world *world, FILE *out)
{
	struct fault_plan plan;
	char error[FAULT_ERROR_MAX];
	int count, stale = 0;
	struct sim_fault *faults = sim_world_faults(world, &count);

	/* The world keeps the canonical text, so this cannot fail. */
	if (count == 0 ||
	    fault_plan_parse("plan", sim_world_plan(world), &plan, error))
		return 0;
	fprintf(out, "verbena: plan of %d line%s:\n", count,
		count == 1 ? "" : "s");
	for (int i = 0; i < count; i++) {
		struct sim_fault *fault = &faults[i];

		fprintf(out, "  ");
		fault_line_print(&plan, i, out);
		fprintf(out,
			"\n      %s: %" PRIu64 " event%s seen, fired %" PRIu64,
			state_of(fault), fault->reached,
			fault->reached == 1 ? "" : "s", fault->fired);
		if (fault->fired_at)
			fprintf(out, " (first at #%" PRIu64 ")",
				fault->fired_at - 1);
		fprintf(out, ", effective %" PRIu64 "\n", fault->effective);
		stale += fault->effective == 0;
	}
	if (stale)
		fprintf(out,
			"verbena: %d of %d line%s did nothing: the plan "
			"does not fit this run\n",
			stale, count, count == 1 ? "" : "s");
	return stale;
}
