/* SPDX-License-Identifier: MIT */
/* Plans: canonical text, loading, arming. */
#define _GNU_SOURCE
#include "fault/fault.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void print_where(const struct sim_fault *fault, FILE *out)
{
	char host = (char)('a' + fault->host);

	switch ((enum sim_site)fault->site) {
	case SIM_SITE_QP_TX:
		fprintf(out, "%c.qp%u.tx", host, fault->object);
		break;
	case SIM_SITE_QP_RX:
		fprintf(out, "%c.qp%u.rx", host, fault->object);
		break;
	case SIM_SITE_CALL:
		fprintf(out, "%c.verbs.%s", host,
			fault_call_word(fault->object));
		break;
	case SIM_SITE_BOOT_OUT:
		fprintf(out, "%c.boot.out", host);
		break;
	case SIM_SITE_BOOT_IN:
		fprintf(out, "%c.boot.in", host);
		break;
	case SIM_SITE_COUNT:
		break;
	}
}

static bool is_stream(const struct sim_fault *fault)
{
	return fault->site == SIM_SITE_BOOT_IN ||
	       fault->site == SIM_SITE_BOOT_OUT;
}

static void print_which(const struct fault_line *line, FILE *out)
{
	const struct sim_fault *fault = &line->fault;

	if (is_stream(fault)) {
		fprintf(out, " @%" PRIu64, fault->first);
		if (fault->last != fault->first && !line->is_sticky)
			fprintf(out, "+%" PRIu64,
				fault->last - fault->first + 1);
	} else if (fault->every > 1) {
		fprintf(out, " #*/%" PRIu64, fault->every);
	} else if (line->is_sticky || fault->last == fault->first ||
		   (fault->times != SIM_NO_LIMIT &&
		    fault->last == fault->first + fault->times - 1)) {
		fprintf(out, " #%" PRIu64, fault->first);
	} else if (fault->last == SIM_NO_LIMIT) {
		fprintf(out, " #%" PRIu64 "..", fault->first);
	} else {
		fprintf(out, " #%" PRIu64 "..%" PRIu64, fault->first,
			fault->last);
	}
}

static void print_effect(const struct sim_fault *fault, FILE *out)
{
	size_t len;
	const char *word = fault_effect_word(fault->effect, &len);

	fprintf(out, " %.*s", (int)len, word);
	switch ((enum sim_effect)fault->effect) {
	case SIM_EFFECT_CORRUPT:
		fprintf(out, " at=%" PRIu64 " xor=0x%02x", fault->at,
			fault->value);
		break;
	case SIM_EFFECT_SET:
		fprintf(out, " at=%" PRIu64 " value=0x%02x", fault->at,
			fault->value);
		break;
	case SIM_EFFECT_TRUNC:
		fprintf(out, " len=%" PRIu64, fault->at);
		break;
	case SIM_EFFECT_FLIP:
		fprintf(out, " xor=0x%02x", fault->value);
		break;
	case SIM_EFFECT_FAIL:
		fprintf(out, "=%s", strerrorname_np((int)fault->value));
		break;
	case SIM_EFFECT_DROP:
	case SIM_EFFECT_DUP:
	case SIM_EFFECT_EOF:
	case SIM_EFFECT_STALL:
	case SIM_EFFECT_COUNT:
		break;
	}
}

static void print_tail(const struct fault_plan *plan,
		       const struct fault_line *line, FILE *out)
{
	const struct sim_fault *fault = &line->fault;
	const char *separator = " expect=";

	if (fault->after >= 0)
		fprintf(out, " after=%s", plan->line[fault->after].fault.id);
	if (line->is_sticky)
		fprintf(out, " sticky");
	else if (fault->times != SIM_NO_LIMIT && fault->times > 1)
		fprintf(out, " times=%" PRIu64, fault->times);
	else if (fault->times == 1 && fault->last != fault->first)
		fprintf(out, " times=1");
	for (int i = 0; i < FAULT_VERDICT_COUNT; i++) {
		if (!(line->expect >> i & 1))
			continue;
		fprintf(out, "%s%s", separator, fault_verdict_name(i));
		separator = "|";
	}
	if (line->expect && line->expect_host >= 0)
		fprintf(out, "@%c", 'a' + line->expect_host);
}

void fault_line_print(const struct fault_plan *plan, int line, FILE *out)
{
	const struct fault_line *it = &plan->line[line];

	fprintf(out, "%s: ", it->fault.id);
	print_where(&it->fault, out);
	print_which(it, out);
	print_effect(&it->fault, out);
	print_tail(plan, it, out);
}

static void print_headers(const struct fault_plan *plan, FILE *out)
{
	fprintf(out, "plan 1\n");
	if (plan->scenario[0]) {
		fprintf(out, "scenario %s", plan->scenario);
		for (int i = 0; i < plan->param_count; i++)
			fprintf(out, " %s=%" PRIu64, plan->param[i].key,
				plan->param[i].value);
		fprintf(out, "\n");
	}
	if (plan->device[0][0] || plan->device[1][0]) {
		fprintf(out, "device");
		for (int host = 0; host < SIM_HOST_COUNT; host++)
			if (plan->device[host][0])
				fprintf(out, " %c=%s", 'a' + host,
					plan->device[host]);
		fprintf(out, "\n");
	}
	if (plan->has_seed)
		fprintf(out, "seed 0x%" PRIx64 "\n", plan->seed);
}

char *fault_plan_print(const struct fault_plan *plan)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	print_headers(plan, out);
	for (int i = 0; i < plan->line_count; i++) {
		fault_line_print(plan, i, out);
		fputc('\n', out);
	}
	if (fclose(out) != 0) {
		free(text);
		return NULL;
	}
	return text;
}

/* The whole file; NULL with errno, EILSEQ for one that is no text. */
static char *read_file(const char *path)
{
	FILE *file = fopen(path, "re");
	char *text = NULL;
	size_t size = 0;
	ssize_t len;
	int error = 0;

	if (!file)
		return NULL;
	errno = 0;
	len = getdelim(&text, &size, 0, file);
	if (ferror(file))
		error = errno ? errno : EIO;
	else if (len > 0 && text[len - 1] == 0)
		error = EILSEQ; /* a NUL would end the plan early */
	fclose(file);
	if (len < 0 && !error) {
		free(text);
		return strdup("");
	}
	if (!error)
		return text;
	free(text);
	errno = error;
	return NULL;
}

int fault_plan_load(const char *argument, struct fault_plan *plan,
		    char error[FAULT_ERROR_MAX])
{
	const char *name = argument;
	char *text = read_file(argument);
	int rc;

	if (!text && errno == ENOENT && strpbrk(argument, " \t;\n")) {
		name = "plan";
		text = strdup(argument);
		for (char *at = text; at && *at; at++)
			if (*at == ';')
				*at = '\n';
	}
	if (!text) {
		rc = -errno;
		snprintf(error, FAULT_ERROR_MAX,
			 "cannot read plan '%.100s': "
			 "%s",
			 argument, strerror(errno));
		return rc;
	}
	rc = fault_plan_parse(name, text, plan, error);
	free(text);
	return rc;
}

uint64_t fault_plan_param(const struct fault_plan *plan, const char *key,
			  uint64_t otherwise)
{
	for (int i = 0; i < plan->param_count; i++)
		if (strcmp(plan->param[i].key, key) == 0)
			return plan->param[i].value;
	return otherwise;
}

bool fault_plan_has_stream(const struct fault_plan *plan)
{
	for (int i = 0; i < plan->line_count; i++)
		if (is_stream(&plan->line[i].fault))
			return true;
	return false;
}

int fault_plan_faults(const struct fault_plan *plan,
		      struct sim_fault faults[SIM_FAULT_MAX])
{
	for (int i = 0; i < plan->line_count; i++)
		faults[i] = plan->line[i].fault;
	return plan->line_count;
}

int fault_plan_open_world(const struct fault_plan *plan,
			  struct sim_world_config *config,
			  struct sim_world **world, char error[FAULT_ERROR_MAX])
{
	struct sim_fault faults[SIM_FAULT_MAX];
	char *text = fault_plan_print(plan);
	int rc;

	config->plan_text = text ? text : "";
	config->faults = faults;
	config->fault_count = fault_plan_faults(plan, faults);
	rc = sim_world_open(config, world, error);
	free(text);
	config->plan_text = NULL;
	config->faults = NULL;
	return rc;
}
