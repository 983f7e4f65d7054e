/* SPDX-License-Identifier: MIT */
/*
 * Taps: where the lines of a plan meet events. A line is armed when the world
 * holds it, reached when its site had an event, matched when it claimed one,
 * fired when it struck, and effective when something observable changed.
 */
#include "sim/play.h"

#include <string.h>

static bool is_in_turn(struct sim_world *w, const struct sim_fault *fault)
{
	return fault->after < 0 ||
	       atomic_load(&w->seg->fault[fault->after].fired) > 0;
}

/* Count the event as reached; does the line claim it? Claims are counted
 * under an atomic, so that `times` holds among many processes. */
static bool claims(struct sim_world *w, struct sim_fault *fault,
		   uint64_t ordinal)
{
	uint64_t have;

	atomic_fetch_add(&fault->reached, 1);
	if (ordinal < fault->first || ordinal > fault->last ||
	    (ordinal - fault->first) % fault->every != 0 ||
	    !is_in_turn(w, fault))
		return false;
	have = atomic_load(&fault->matched);
	do {
		if (have >= fault->times)
			return false;
	} while (!atomic_compare_exchange_weak(&fault->matched, &have,
					       have + 1));
	return true;
}

uint64_t sim_tap_message(struct sim_world *w, const struct sim_qp *qp,
			 enum sim_site site, uint64_t ordinal)
{
	uint64_t mask = 0;

	for (int i = 0; i < w->seg->fault_count; i++) {
		struct sim_fault *fault = &w->seg->fault[i];

		if (fault->site == site && fault->host == qp->object.host &&
		    fault->object == qp->ordinal && claims(w, fault, ordinal))
			mask |= 1ull << i;
	}
	return mask;
}

struct sim_fault *sim_tap_take(struct sim_world *w, uint64_t *mask,
			       enum sim_effect effect)
{
	for (int i = 0; *mask && i < w->seg->fault_count; i++) {
		if (!(*mask >> i & 1) || w->seg->fault[i].effect != effect)
			continue;
		*mask &= ~(1ull << i);
		return &w->seg->fault[i];
	}
	return NULL;
}

void sim_tap_fired(struct sim_fault *fault, uint64_t ordinal, bool is_effective)
{
	uint64_t none = 0;

	atomic_compare_exchange_strong(&fault->fired_at, &none, ordinal + 1);
	atomic_fetch_add(&fault->fired, 1);
	if (is_effective)
		atomic_fetch_add(&fault->effective, 1);
	if (sim_playing)
		sim_trace(fault->host, "fault", fault->id, ordinal,
			  "effective=%d", is_effective);
}

/* The data path's calls have lines of their own. */
static void trace_call(uint32_t host, enum sim_call call, uint64_t ordinal)
{
#define X(name, word) [SIM_CALL_##name] = word,
	static const char *const words[] = {SIM_CALLS(X)};
#undef X

	if (call != SIM_CALL_POST_SEND && call != SIM_CALL_POST_RECV &&
	    call != SIM_CALL_POLL_CQ)
		sim_trace((int)host, "call", words[call], ordinal, "-");
}

int sim_tap_call(struct sim_ctx *ctx, enum sim_call call)
{
	struct sim_world *w = ctx->world;
	struct sim_host *host = sim_host_of(w, ctx->host);
	uint64_t ordinal;
	int error = 0;

	if (!sim_is_armed(w))
		return 0;
	if (sim_playing)
		sim_play_call();
	ordinal = atomic_fetch_add(&host->call_count[call], 1);
	if (sim_playing)
		trace_call(ctx->host, call, ordinal);
	for (int i = 0; i < w->seg->fault_count; i++) {
		struct sim_fault *fault = &w->seg->fault[i];

		if (fault->site != SIM_SITE_CALL || fault->host != ctx->host ||
		    fault->object != (uint32_t)call ||
		    !claims(w, fault, ordinal))
			continue;
		/* A second line on one call would have nothing left to fail. */
		sim_tap_fired(fault, ordinal, error == 0);
		if (!error)
			error = (int)fault->value;
	}
	return error;
}

static void flip(struct sim_fault *fault, uint64_t offset, uint8_t *bytes,
		 size_t len)
{
	for (size_t i = 0; i < len; i++) {
		uint64_t at = offset + i;

		if (at < fault->first || at > fault->last)
			continue;
		bytes[i] ^= (uint8_t)fault->value;
		sim_tap_fired(fault, at, true);
	}
}

size_t sim_tap_stream(struct sim_world *w, int host, enum sim_site site,
		      uint64_t offset, uint8_t *bytes, size_t len,
		      enum sim_effect *stop)
{
	struct sim_fault *stopper = NULL;
	size_t pass = len;

	for (int i = 0; i < w->seg->fault_count; i++) {
		struct sim_fault *fault = &w->seg->fault[i];

		if (fault->site != site || fault->host != host ||
		    !is_in_turn(w, fault))
			continue;
		atomic_fetch_add(&fault->reached, len);
		if (fault->effect == SIM_EFFECT_FLIP)
			continue;
		/* The stream has arrived at `first` when the next byte is
		 * that one, even if no byte follows. */
		if (fault->first <= offset + pass) {
			pass = fault->first > offset
				       ? (size_t)(fault->first - offset)
				       : 0;
			stopper = fault;
			*stop = fault->effect;
		}
	}
	for (int i = 0; i < w->seg->fault_count; i++) {
		struct sim_fault *fault = &w->seg->fault[i];

		if (fault->site == site && fault->host == host &&
		    fault->effect == SIM_EFFECT_FLIP && is_in_turn(w, fault))
			flip(fault, offset, bytes, pass);
	}
	/* It strikes the byte that it withholds, or the one that would come
	 * next. */
	if (stopper && (pass < len || len == 0) &&
	    atomic_load(&stopper->fired) == 0)
		sim_tap_fired(stopper, stopper->first, true);
	return pass;
}

bool sim_way_is_stopped(struct sim_world *w, int host, struct sim_way *way)
{
	uint8_t none;

	if (!way->is_stopped && sim_tap_stream(w, host, way->site, way->offset,
					       &none, 0, &way->stop) == 0)
		way->is_stopped = way->stop != SIM_EFFECT_COUNT;
	return way->is_stopped;
}

size_t sim_way_pass(struct sim_world *w, int host, struct sim_way *way,
		    uint8_t *bytes, size_t len)
{
	size_t pass = sim_tap_stream(w, host, way->site, way->offset, bytes,
				     len, &way->stop);

	way->offset += pass;
	return pass;
}

size_t sim_way_foretell(struct sim_world *w, int host,
			const struct sim_way *way, uint8_t *bytes, size_t len)
{
	for (int i = 0; i < w->seg->fault_count; i++) {
		const struct sim_fault *fault = &w->seg->fault[i];

		if (fault->site != way->site || fault->host != host ||
		    !is_in_turn(w, fault))
			continue;
		for (size_t at = 0; at < len; at++) {
			uint64_t offset = way->offset + at;

			if (offset < fault->first || offset > fault->last)
				continue;
			if (fault->effect == SIM_EFFECT_FLIP)
				bytes[at] ^= (uint8_t)fault->value;
			else
				len = at;
		}
	}
	return len;
}
