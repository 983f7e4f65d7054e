/* SPDX-License-Identifier: MIT */
/*
 * Long messages, copied from both ends: the poster takes pieces from the front,
 * and a receiver that polls in vain meanwhile from the back. Two processors
 * reach what one cannot, most so if each always has its part in its own cache.
 * Nobody waits for help, only for help that has begun.
 */
#define _GNU_SOURCE
#include "sim/core.h"

#include <sched.h>

#define LEAST_BYTES 65536u /* shorter ones are done before help comes */
#define PIECE_MIN   (LEAST_BYTES / 2) /* to begin one costs as much as 4 KiB */
#define PIECE_MAX   (1u << 20)
#define PIECES	    4
#define CLOSED	    (1u << 30) /* above every piece, and claims may follow */
#define LOOK_EVERY  4096       /* yields, before the helper is taken for dead */

/* Is there a piece left for who asks? */
static bool claim(struct sim_share *share)
{
	return atomic_fetch_add(&share->claimed, 1) <
	       atomic_load(&share->pieces);
}

static enum sim_copy_result
copy_piece(struct sim_world *w, const struct sim_share *share, uint32_t piece)
{
	uint64_t at = (uint64_t)piece * share->piece_bytes;
	uint64_t left = share->length - at;
	struct sim_span from = {.addr = share->from_addr + at, .length = left};
	struct sim_span to = {.addr = share->to_addr + at, .length = left};
	struct sim_copy copy = {
		.from_proc = sim_locker_slot(share->from),
		.to_proc = share->to_proc,
		.from = &from,
		.to = &to,
		.from_count = 1,
		.to_count = 1,
	};

	if (left > share->piece_bytes)
		from.length = to.length = share->piece_bytes;
	return sim_copy(w, &copy);
}

/* Its place may have another tenant, whose memory is none of ours. */
static bool is_posters_life(struct sim_world *w, const struct sim_share *share)
{
	uint32_t from = atomic_load(&share->from);

	return atomic_load(&w->seg->proc[sim_locker_slot(from)].lives) ==
	       from >> SIM_LOCKER_BITS;
}

void sim_share_help(struct sim_world *w, struct sim_cq *cq)
{
	struct sim_share *share = &cq->share;

	if (w->may_not_copy)
		return;
	/* First this, then a claim: who closes sees one if there was the
	 * other. */
	atomic_fetch_add(&share->helpers, 1);
	while (claim(share)) {
		uint32_t back = atomic_fetch_add(&share->back, 1) + 1;

		if (!is_posters_life(w, share) ||
		    copy_piece(w, share, share->pieces - back) != SIM_COPY_OK) {
			atomic_store(&share->has_failed, 1);
			atomic_store(&cq->wants_help, 0);
			break;
		}
	}
	atomic_fetch_sub(&share->helpers, 1);
}

void sim_share_close(struct sim_cq *cq)
{
	atomic_store(&cq->wants_help, 0);
	atomic_store(&cq->share.claimed, CLOSED);
}

void sim_share_reap(struct sim_world *w, uint32_t proc)
{
	for (uint32_t i = 0; i < sim_top(w, SIM_CQ); i++) {
		struct sim_cq *cq = &w->seg->cq[i];

		if (!atomic_load(&cq->share.is_taken) ||
		    sim_locker_slot(atomic_load(&cq->share.from)) != proc)
			continue;
		atomic_store(&cq->wants_help, 0);
		atomic_store(&cq->share.claimed, CLOSED);
		atomic_store(&cq->share.is_taken, 0);
	}
}

/* The helper may have died over a piece, or been stopped. */
static enum sim_copy_result await_helpers(struct sim_world *w,
					  const struct sim_cq *cq)
{
	for (uint32_t i = 1; atomic_load(&cq->share.helpers); i++) {
		if (i % LOOK_EVERY == 0) {
			if (!sim_proc_is_alive(w, cq->object.proc))
				return SIM_COPY_GONE;
			if (sim_proc_is_stopped(w, cq->object.proc))
				return SIM_COPY_STUCK;
		}
		sched_yield();
	}
	return SIM_COPY_OK;
}

/* Whoever has it. True: we, and not for a helper that is stopped over a piece:
 * what it reads, when it goes on, must still be there. */
static bool take(struct sim_world *w, struct sim_cq *cq,
		 enum sim_copy_result *result)
{
	struct sim_share *share = &cq->share;

	*result = SIM_COPY_OK;
	if (!atomic_exchange(&share->is_taken, 1))
		return true;
	if (!atomic_load(&share->is_stuck) ||
	    atomic_load(&share->from) != w->locker)
		return false;
	if (atomic_load(&share->helpers))
		*result = sim_proc_is_alive(w, cq->object.proc) ? SIM_COPY_STUCK
								: SIM_COPY_GONE;
	return true;
}

/* Given back, but not while the helper may come back to it. */
static void end(struct sim_share *share, enum sim_copy_result result)
{
	atomic_store(&share->is_stuck, result == SIM_COPY_STUCK);
	if (result != SIM_COPY_STUCK)
		atomic_store(&share->is_taken, 0);
}

/* Pages of a piece are whole, so that no two pieces are on one. */
static uint32_t piece_of(uint64_t length)
{
	uint64_t piece = (length / PIECES + 4095) / 4096 * 4096;

	return (uint32_t)(piece < PIECE_MIN   ? PIECE_MIN
			  : piece > PIECE_MAX ? PIECE_MAX
					      : piece);
}

bool sim_share_copy(struct sim_world *w, struct sim_cq *cq,
		    const struct sim_copy *copy, enum sim_copy_result *result)
{
	struct sim_share *share = &cq->share;
	enum sim_copy_result rc = SIM_COPY_OK;

	if (copy->from_count != 1 || copy->to_count != 1 ||
	    copy->from->length < LEAST_BYTES || copy->from_proc != w->proc ||
	    copy->to_proc == w->proc || copy->to_proc != cq->object.proc ||
	    sim_may_map(copy->to) || w->may_not_copy || sim_is_armed(w) ||
	    !take(w, cq, result))
		return false;
	if (*result != SIM_COPY_OK) {
		end(share, *result);
		return true;
	}
	atomic_store(&share->from, w->locker);
	share->to_proc = copy->to_proc;
	share->from_addr = copy->from->addr;
	share->to_addr = copy->to->addr;
	share->length = copy->from->length;
	share->piece_bytes = piece_of(share->length);
	atomic_store(&share->pieces,
		     (uint32_t)((share->length + share->piece_bytes - 1) /
				share->piece_bytes));
	atomic_store(&share->back, 0);
	atomic_store(&share->has_failed, 0);
	atomic_store(&share->claimed, 0);
	atomic_store(&cq->wants_help, 1);
	for (uint32_t front = 0; rc == SIM_COPY_OK && claim(share); front++)
		rc = copy_piece(w, share, front);
	atomic_store(&cq->wants_help, 0);
	atomic_store(&share->claimed, CLOSED);
	*result = await_helpers(w, cq);
	if (*result == SIM_COPY_OK)
		*result = rc;
	if (*result == SIM_COPY_OK && atomic_load(&share->has_failed))
		*result = sim_copy(w, copy); /* and it says why */
	end(share, *result);
	return true;
}
