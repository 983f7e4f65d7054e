/* SPDX-License-Identifier: MIT */
/*
 * The trace of a deterministic run: one line an event, fixed columns, virtual
 * time first. Ordinals only: no number, key or address that the device or the
 * machine chose, so that two runs of one scenario give the same bytes.
 */
#include "sim/play.h"

#include <stdarg.h>

#define LINE_MAX 128
#define FNV_SEED 0xcbf29ce484222325u
#define FNV_STEP 0x100000001b3u

static FILE *file;
static uint64_t lines;
static uint64_t hash;
static uint64_t completions[SIM_HOST_COUNT];

void sim_trace_open(FILE *out)
{
	file = out;
	lines = 0;
	hash = FNV_SEED;
	for (int host = 0; host < SIM_HOST_COUNT; host++)
		completions[host] = 0;
}

uint64_t sim_trace_lines(void)
{
	return lines;
}

uint64_t sim_trace_hash(void)
{
	return hash;
}

static void put(int host, const char *event, const char *object,
		uint64_t ordinal, const char *format, va_list args)
{
	char line[LINE_MAX];
	char words[LINE_MAX / 2];
	int len;

	vsnprintf(words, sizeof(words), format, args);
	len = snprintf(line, sizeof(line), "%10llu %c %-6s %-16s %5llu %s\n",
		       (unsigned long long)sim_now_ns(),
		       host < 0 ? '-' : 'a' + host, event, object,
		       (unsigned long long)ordinal, words);
	for (int i = 0; i < len; i++)
		hash = (hash ^ (uint8_t)line[i]) * FNV_STEP;
	lines++;
	if (file)
		fwrite(line, 1, (size_t)len, file);
}

void sim_trace(int host, const char *event, const char *object,
	       uint64_t ordinal, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	put(host, event, object, ordinal, format, args);
	va_end(args);
}

void sim_trace_qp(const struct sim_qp *qp, const char *event, uint64_t ordinal,
		  const char *format, ...)
{
	char name[16];
	va_list args;

	snprintf(name, sizeof(name), "qp%u", qp->ordinal);
	va_start(args, format);
	put((int)qp->object.host, event, name, ordinal, format, args);
	va_end(args);
}

void sim_trace_wcs(struct sim_world *w, const struct ibv_wc *wc, int count)
{
	int host = sim_play_host();

	for (int i = 0; host >= 0 && i < count; i++) {
		const struct sim_qp *qp = sim_qp_by_num(w, wc[i].qp_num);
		uint64_t ordinal = completions[host]++;

		if (qp)
			sim_trace_qp(qp, "done", ordinal,
				     "opcode=%d status=%d len=%u", wc[i].opcode,
				     wc[i].status, wc[i].byte_len);
		else
			sim_trace(host, "done", "gone", ordinal,
				  "opcode=%d status=%d", wc[i].opcode,
				  wc[i].status);
	}
}
