/* SPDX-License-Identifier: MIT */
/* The list of models, and the "NAME,knob=value,..." texts that choose one. */
#define _GNU_SOURCE
#include "sim/model.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct sim_model *const __start_sim_models[];
extern const struct sim_model *const __stop_sim_models[];

#define MODEL_MAX 16

static const struct sim_model *sorted[MODEL_MAX];

static int model_count(void)
{
	return (int)(__stop_sim_models - __start_sim_models);
}

/* By rank; the linker's order means nothing. Before constructors that may open
 * worlds. */
__attribute__((constructor(101))) static void sort_models(void)
{
	assert(model_count() <= MODEL_MAX);
	for (int i = 0; i < model_count(); i++) {
		const struct sim_model *model = __start_sim_models[i];
		int at = i;

		for (; at > 0 && sorted[at - 1]->rank > model->rank; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = model;
	}
}

static const struct sim_model *by_rank(int i)
{
	return i < model_count() ? sorted[i] : NULL;
}

const struct sim_model *sim_model_of(const struct sim_host *host)
{
	return sorted[host->model];
}

const char *sim_model_default(void)
{
	return by_rank(0)->name;
}

bool sim_model_info(int i, struct sim_model_info *info)
{
	const struct sim_model *model = by_rank(i);

	if (!model)
		return false;
	info->name = model->name;
	info->what = model->what;
	info->knobs = model->knobs;
	info->knob_count = model->knob_count;
	return true;
}

static int find_model(const char *word, size_t len, char *error)
{
	int used;

	for (int i = 0; i < model_count(); i++)
		if (strlen(by_rank(i)->name) == len &&
		    strncmp(by_rank(i)->name, word, len) == 0)
			return i;
	used = snprintf(error, SIM_ERROR_MAX, "unknown model '%.*s'; there is",
			(int)(len < 40 ? len : 40), word);
	for (int i = 0; i < model_count(); i++)
		used += snprintf(error + used, SIM_ERROR_MAX - (size_t)used,
				 "%s %s", i ? "," : "", by_rank(i)->name);
	return -EINVAL;
}

static int parse_value(const struct sim_knob *knob, const char *word,
		       size_t len)
{
	const char *at = knob->values;

	if (at[0] == '#') {
		char *end;
		long value = strtol(word, &end, 10);
		long least, most;

		if (sscanf(at, "#%*d of %ld..%ld", &least, &most) != 2 ||
		    len == 0 || end != word + len || value < least ||
		    value > most)
			return -1;
		return (int)value;
	}
	for (int i = 0; at; i++) {
		size_t n = strcspn(at, "|");

		if (n == len && strncmp(at, word, len) == 0)
			return i;
		at = at[n] ? at + n + 1 : NULL;
	}
	return -1;
}

static int set_knob(struct sim_host *host, const struct sim_model *model,
		    const char *word, size_t len, uint32_t *given, char *error)
{
	const char *equals = memchr(word, '=', len);
	size_t name_len = equals ? (size_t)(equals - word) : len;

	for (int i = 0; i < model->knob_count; i++) {
		const struct sim_knob *knob = &model->knobs[i];

		if (strlen(knob->name) != name_len ||
		    strncmp(knob->name, word, name_len) != 0)
			continue;
		int value = equals ? parse_value(knob, equals + 1,
						 len - name_len - 1)
				   : -1;
		if (value < 0) {
			snprintf(error, SIM_ERROR_MAX,
				 "model %s: '%.*s': %s takes %s", model->name,
				 (int)(len < 60 ? len : 60), word, knob->name,
				 knob->values[0] == '#'
					 ? strstr(knob->values, "of ") + 3
					 : knob->values);
			return -EINVAL;
		}
		if (*given & 1u << i) {
			snprintf(error, SIM_ERROR_MAX,
				 "model %s: '%s' given twice", model->name,
				 knob->name);
			return -EINVAL;
		}
		*given |= 1u << i;
		host->knob[i] = value;
		return 0;
	}
	snprintf(error, SIM_ERROR_MAX,
		 "model %s has no knob '%.*s'; see `verbena models`",
		 model->name, (int)(name_len < 60 ? name_len : 60), word);
	return -EINVAL;
}

int sim_model_apply(struct sim_host *host, uint32_t index, const char *text,
		    char error[SIM_ERROR_MAX])
{
	size_t len = strcspn(text, ",");
	int found = find_model(text, len, error);
	const struct sim_model *model;
	uint32_t given = 0; /* bit n: knob n */

	if (found < 0)
		return found;
	if (strlen(text) >= sizeof(host->model_text)) {
		snprintf(error, SIM_ERROR_MAX, "model text over %zu bytes",
			 sizeof(host->model_text) - 1);
		return -EINVAL;
	}
	model = by_rank(found);
	host->model = found;
	snprintf(host->model_text, sizeof(host->model_text), "%s", text);
	for (int i = 0; i < model->knob_count; i++)
		host->knob[i] = model->knobs[i].values[0] == '#'
					? atoi(model->knobs[i].values + 1)
					: 0;
	for (const char *at = text + len; *at == ','; at += len + 1) {
		len = strcspn(at + 1, ",");
		int rc = set_knob(host, model, at + 1, len, &given, error);
		if (rc)
			return rc;
	}
	host->attr = model->attr;
	host->port_attr = model->port;
	host->qp_types = model->qp_types;
	host->events = model->events;
	model->init_host(host, index);
	return 0;
}

void sim_model_cable(struct sim_host host[SIM_HOST_COUNT])
{
	bool fits =
		host[0].port_attr.link_layer == host[1].port_attr.link_layer;

	for (int end = 0; end < SIM_HOST_COUNT; end++) {
		int far = 1 - end;
		bool up =
			fits && host[end].active_port && host[far].active_port;

		if (host[end].active_port)
			host[end].port[host[end].active_port - 1].state =
				up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
	}
}

void sim_model_add_gid(struct sim_host *host, int n, uint64_t identifier,
		       enum ibv_gid_type type)
{
	uint8_t *gid = host->gid[host->gid_count];

	assert(host->gid_count < SIM_GID_MAX);
	memset(gid, 0, 16);
	if (n) {
		gid[10] = gid[11] = 0xff;
		gid[12] = 127;
		gid[15] = (uint8_t)n;
	} else {
		gid[0] = 0xfe;
		gid[1] = 0x80;
		for (int i = 0; i < 8; i++)
			gid[8 + i] = (uint8_t)(identifier >> (56 - 8 * i));
	}
	host->gid_type[host->gid_count++] = (uint8_t)type;
}
