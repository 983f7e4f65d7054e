/* SPDX-License-Identifier: MIT */
/* verbena models, sites and plan: what there is, and is this right? */
#define _GNU_SOURCE
#include "fault/fault.h"

#include <argp.h>
#include <jansson.h>
#include <stdlib.h>

#include "fault/tool.h"

struct list_options {
	const char *plan;
	bool is_json;
	bool takes_plan;
};

static const struct argp_option json_option[] = {
	{"json", 'j', NULL, 0, "for machines", 0},
	{0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct list_options *list = state->input;

	switch (key) {
	case 'j':
		list->is_json = true;
		return 0;
	case ARGP_KEY_ARG:
		if (!list->takes_plan || list->plan)
			argp_error(state, "unexpected '%s'", arg);
		list->plan = arg;
		return 0;
	case ARGP_KEY_END:
		if (list->takes_plan && !list->plan)
			argp_error(state, "no plan given");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static json_t *model_json(const struct sim_model_info *info)
{
	json_t *knobs = json_array();

	for (int i = 0; i < info->knob_count; i++)
		json_array_append_new(knobs,
				      json_pack("{s:s, s:s, s:s, s:s}", "name",
						info->knobs[i].name, "values",
						info->knobs[i].values, "rule",
						info->knobs[i].rule, "what",
						info->knobs[i].what));
	return json_pack("{s:s, s:s, s:o}", "name", info->name, "what",
			 info->what, "knobs", knobs);
}

static void model_tell(const struct sim_model_info *info, bool is_default)
{
	printf("%s%s\n    %s\n", info->name, is_default ? " (default)" : "",
	       info->what);
	for (int i = 0; i < info->knob_count; i++)
		printf("    %-15s %-22s %s (%s)\n", info->knobs[i].name,
		       info->knobs[i].values, info->knobs[i].what,
		       info->knobs[i].rule);
}

int cmd_models(int argc, char **argv)
{
	static const struct argp argp = {
		json_option,
		parse,
		NULL,
		"The device models and their knobs: the default of a knob is "
		"its first value, or the number behind '#'.",
		NULL,
		NULL,
		NULL};
	struct list_options list = {0};
	struct sim_model_info info;
	json_t *root;

	argv[0] = "verbena models";
	argp_parse(&argp, argc, argv, 0, NULL, &list);
	if (!list.is_json) {
		for (int i = 0; sim_model_info(i, &info); i++)
			model_tell(&info, i == 0);
		return 0;
	}
	root = json_array();
	for (int i = 0; sim_model_info(i, &info); i++)
		json_array_append_new(root, model_json(&info));
	json_dumpf(root, stdout, JSON_INDENT(2));
	printf("\n");
	json_decref(root);
	return 0;
}

#define X(name, word, kind, what) {word, SIM_KIND_##kind, what},
static const struct {
	const char *word;
	enum sim_kind kind;
	const char *what;
} sites[] = {SIM_SITES(X)};
#undef X

#define X(name, word, kind, args, what) {word, SIM_KIND_##kind, args, what},
static const struct {
	const char *word;
	enum sim_kind kind;
	const char *args;
	const char *what;
} effects[] = {SIM_EFFECTS(X)};
#undef X

static const char *site_form(size_t i)
{
	static const char *const forms[] = {"a.qpN.tx", "a.qpN.rx",
					    "a.verbs.NAME", "a.boot.out",
					    "a.boot.in"};

	return forms[i];
}

static void sites_tell(void)
{
	size_t len;

	printf("WHERE (host a or b)\n");
	for (size_t i = 0; i < SIM_SITE_COUNT; i++)
		printf("  %-13s %-8s one event is %s\n", site_form(i),
		       sites[i].kind == SIM_KIND_STREAM ? "@offset" : "#n",
		       sites[i].what);
	printf("\nEFFECT\n");
	for (size_t i = 0; i < SIM_EFFECT_COUNT; i++)
		printf("  %-13s %-11s %-8s %s\n", effects[i].word,
		       effects[i].args,
		       effects[i].kind == SIM_KIND_MESSAGE ? "message"
		       : effects[i].kind == SIM_KIND_CALL  ? "call"
							   : "stream",
		       effects[i].what);
	printf("\nVERBS\n ");
	for (int call = 0, column = 1; call < SIM_CALL_COUNT; call++) {
		len = (size_t)printf(" %s", fault_call_word(call));
		column += (int)len;
		if (column > 60) {
			printf("\n ");
			column = 1;
		}
	}
	printf("\n\nA line: [id:] WHERE #N|#N..M|#*/K|@OFF[+LEN] EFFECT "
	       "[key=value...]\n        [after=ID] [times=K|sticky] "
	       "[expect=pass|fail|timeout|corrupt|crash[@host]]\n");
}

static void sites_json(void)
{
	static const char *const kinds[] = {"message", "call", "stream"};
	json_t *where = json_array(), *what = json_array();
	json_t *verbs = json_array(), *root;

	for (size_t i = 0; i < SIM_SITE_COUNT; i++)
		json_array_append_new(where,
				      json_pack("{s:s, s:s, s:s}", "site",
						site_form(i), "kind",
						kinds[sites[i].kind], "event",
						sites[i].what));
	for (size_t i = 0; i < SIM_EFFECT_COUNT; i++)
		json_array_append_new(what,
				      json_pack("{s:s, s:s, s:s, s:s}",
						"effect", effects[i].word,
						"kind", kinds[effects[i].kind],
						"arguments", effects[i].args,
						"what", effects[i].what));
	for (int call = 0; call < SIM_CALL_COUNT; call++)
		json_array_append_new(verbs,
				      json_string(fault_call_word(call)));
	root = json_pack("{s:o, s:o, s:o}", "sites", where, "effects", what,
			 "verbs", verbs);
	json_dumpf(root, stdout, JSON_INDENT(2));
	printf("\n");
	json_decref(root);
}

int cmd_sites(int argc, char **argv)
{
	static const struct argp argp = {
		json_option,
		parse,
		NULL,
		"What a line of a plan can strike, and with what effect.",
		NULL,
		NULL,
		NULL};
	struct list_options list = {0};

	argv[0] = "verbena sites";
	argp_parse(&argp, argc, argv, 0, NULL, &list);
	if (list.is_json)
		sites_json();
	else
		sites_tell();
	return 0;
}

int cmd_plan(int argc, char **argv)
{
	static const struct argp argp = {
		NULL,
		parse,
		"PLAN",
		"Check a plan (a file, or the text with ';' for line ends) and "
		"print it in canonical form.",
		NULL,
		NULL,
		NULL};
	struct list_options list = {.takes_plan = true};
	char error[FAULT_ERROR_MAX];
	struct fault_plan plan;
	char *text;

	argv[0] = "verbena plan";
	argp_parse(&argp, argc, argv, 0, NULL, &list);
	if (fault_plan_load(list.plan, &plan, error))
		return tool_refuse(error);
	text = fault_plan_print(&plan);
	if (!text)
		return tool_refuse("no memory");
	fputs(text, stdout);
	free(text);
	return 0;
}
