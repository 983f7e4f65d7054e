/* SPDX-License-Identifier: MIT */
/* Diagnosis: a refused or suspicious call explains itself once, in one line. */
#include "sim/diag.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEN_MAX 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *seen[SEEN_MAX];
static int seen_count;

static bool is_first(const char *rule)
{
	bool first = true;

	pthread_mutex_lock(&lock);
	for (int i = 0; i < seen_count && first; i++)
		first = strcmp(seen[i], rule) != 0;
	if (first && seen_count < SEEN_MAX)
		seen[seen_count++] = rule;
	pthread_mutex_unlock(&lock);
	return first;
}

void sim_diag(const char *model, const char *rule, const char *format, ...)
{
	char text[512];
	va_list args;
	const char *quiet = getenv("VERBENA_QUIET");

	if ((quiet && *quiet == '1') || !is_first(rule))
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	/* One write, so that lines of two processes do not mix. */
	fprintf(stderr, "verbena: %s: %s (%s)\n", model, text, rule);
}
