/* SPDX-License-Identifier: MIT */
/* Accounts of a scenario's run: a few lines for people, JSON for machines. */
#define _GNU_SOURCE
#include "fault/fault.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* The plan as one argument of the shell. */
static char *one_line(const struct fault_plan *plan)
{
	char *text = fault_plan_print(plan);
	char *from = text, *to = text;

	if (!text)
		return NULL;
	if (strncmp(text, "plan 1\n", 7) == 0)
		from += 7;
	while (*from) {
		*to++ = *from == '\n' ? ';' : *from;
		from++;
	}
	while (to > text && to[-1] == ';')
		to--;
	*to = 0;
	return text;
}

/*
 * The endpoint that saw it. The other one only follows: when it notices that
 * its peer is gone, and how far it got till then, is chance, and is not told.
 */
static int root_of(const struct fault_run *run)
{
	for (int side = 0; side < SIM_HOST_COUNT; side++)
		if (run->end[side].wrong_at >= 0)
			return side;
	for (int side = 0; side < SIM_HOST_COUNT; side++)
		if (run->end[side].verdict != FAULT_PASS &&
		    run->end[side].cause.code != VB_PEER_GONE)
			return side;
	return -1;
}

static void tell_seen(const struct fault_endpoint *end)
{
	const struct vb_cause *cause = &end->cause;

	printf("  %c  %s", 'a' + end->side, fault_verdict_name(end->verdict));
	if (cause->text[0])
		printf("\n     saw     %s: %s", vb_code_name(cause->code),
		       cause->text);
	if (cause->frame >= 0)
		printf("\n     where   %s frame #%" PRId64,
		       cause->is_send ? "sending" : "receiving", cause->frame);
	if (cause->slot >= 0)
		printf(", slot %d", cause->slot);
	if (cause->offset_bytes >= 0)
		printf(", stream offset %" PRId64, cause->offset_bytes);
	if (end->wrong_at >= 0)
		printf("\n     check   the first wrong byte is at stream "
		       "offset "
		       "%" PRId64,
		       end->wrong_at);
	if (end->wrong_at >= 0 && end->wrong_from >= 0)
		printf(":\n             it holds what belongs at %" PRId64
		       " (%+" PRId64 " B)",
		       end->wrong_from, end->wrong_from - end->wrong_at);
	else if (end->wrong_at >= 0)
		printf(":\n             it holds what belongs nowhere in the "
		       "stream");
	printf("\n");
}

static void tell_ends(const struct fault_run *run)
{
	int root = root_of(run);

	for (int side = 0; side < SIM_HOST_COUNT; side++) {
		const struct fault_endpoint *end = &run->end[side];

		if (end->verdict == FAULT_PASS)
			printf("  %c  pass, sent %" PRIu64 " B, received and "
			       "checked %" PRIu64 " B\n",
			       'a' + side, end->sent_bytes,
			       end->received_bytes);
		else if (root < 0 || side == root ||
			 end->verdict == FAULT_CRASH)
			tell_seen(end);
	}
	for (int side = 0; side < SIM_HOST_COUNT; side++)
		if (root >= 0 && side != root &&
		    run->end[side].verdict != FAULT_PASS &&
		    run->end[side].verdict != FAULT_CRASH)
			printf("  %c  then ended, too\n", 'a' + side);
}

static void tell_lines(const struct fault_plan *plan,
		       const struct sim_fault *faults)
{
	for (int i = 0; i < plan->line_count; i++) {
		printf("  plan ");
		fault_line_print(plan, i, stdout);
		if (faults[i].fired_at)
			printf("\n     fired   at event #%" PRIu64 "%s\n",
			       faults[i].fired_at - 1,
			       faults[i].effective ? ""
						   : ", and changed nothing");
		else
			printf("\n     never fired (%" PRIu64
			       " events seen there)\n",
			       faults[i].reached);
	}
}

void fault_run_tell(const struct fault_tool *tool,
		    const struct fault_plan *plan, const struct fault_run *run,
		    const struct sim_fault *faults)
{
	tell_ends(run);
	tell_lines(plan, faults);
	printf("  %s, %.2f s\n",
	       run->stale	     ? "the plan does not fit this run"
	       : run->is_as_expected ? "as expected"
				     : "NOT as expected",
	       run->seconds);
	if (plan->line_count) {
		char *text = one_line(plan);

		printf("  again %s replay '%s'\n", tool->exe, text ? text : "");
		free(text);
	}
}

static json_t *json_end(const struct fault_endpoint *end)
{
	char side[2] = {(char)('a' + end->side), 0};

	return json_pack(
		"{s:s, s:s, s:i, s:s, s:s, s:I, s:I, s:i, s:i, s:I, s:I, s:I, "
		"s:I}",
		"side", side, "verdict", fault_verdict_name(end->verdict),
		"error", -end->rc, "cause", vb_code_name(end->cause.code),
		"text", end->cause.text, "offset_bytes",
		(json_int_t)end->cause.offset_bytes, "frame",
		(json_int_t)end->cause.frame, "slot", end->cause.slot,
		"wc_status", end->cause.wc_status, "sent_bytes",
		(json_int_t)end->sent_bytes, "received_bytes",
		(json_int_t)end->received_bytes, "wrong_at",
		(json_int_t)end->wrong_at, "wrong_from",
		(json_int_t)end->wrong_from);
}

static json_t *json_line(const struct sim_fault *fault)
{
	return json_pack("{s:s, s:I, s:I, s:I, s:I}", "id", fault->id,
			 "reached", (json_int_t)fault->reached, "fired",
			 (json_int_t)fault->fired, "effective",
			 (json_int_t)fault->effective, "first_event",
			 (json_int_t)fault->fired_at - 1);
}

void fault_run_json(const struct fault_plan *plan, const struct fault_run *run,
		    const struct sim_fault *faults)
{
	json_t *ends = json_array(), *lines = json_array();
	char *text = fault_plan_print(plan);
	json_t *root;

	for (int side = 0; side < SIM_HOST_COUNT; side++)
		json_array_append_new(ends, json_end(&run->end[side]));
	for (int i = 0; i < plan->line_count; i++)
		json_array_append_new(lines, json_line(&faults[i]));
	root = json_pack("{s:s, s:b, s:i, s:o, s:o}", "plan", text ? text : "",
			 "as_expected", run->is_as_expected, "stale",
			 run->stale, "endpoints", ends, "lines", lines);
	json_dumpf(root, stdout, JSON_INDENT(2));
	printf("\n");
	json_decref(root);
	free(text);
}
