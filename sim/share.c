/* SPDX-License-Identifier: MIT */
/*
 * Long messages, copied from both ends: the poster takes piece after piece, and
 * so does the receiver if it polls in vain meanwhile. One processor alone does
 * not reach what the two can. Nobody waits for help, only for help that has
 * begun.
 */
#define _GNU_SOURCE
#include "sim/core.h"

#include <sched.h>

#define PIECE_BYTES 65536u
#define LEAST_BYTES (4 * PIECE_BYTES)
#define CLOSED	    (1u << 30) /* above every piece, and claims may follow */
#define LOOK_EVERY  4096       /* yields, before the helper is taken for dead */

static bool is_piece(const struct sim_share *share, uint32_t piece)
{
	return piece < atomic_load(&share->pieces);
}

static enum sim_copy_result
copy_piece(struct sim_world *w, const struct sim_share *share, uint32_t piece)
{
	uint64_t at = (uint64_t)piece * PIECE_BYTES;
	uint64_t left = share->length - at;
	struct sim_span from = {share->from + at, 0}, to = {share->to + at, 0};
	struct sim_copy copy = {
		.from_proc = share->from_proc,
		.to_proc = share->to_proc,
		.from = &from,
		.to = &to,
		.from_count = 1,
		.to_count = 1,
	};

	from.length = to.length = left < PIECE_BYTES ? left : PIECE_BYTES;
	return sim_copy(w, &copy);
}

void sim_share_help(struct sim_world *w, struct sim_cq *cq)
{
	struct sim_share *share = &cq->share;
	uint32_t piece;

	if (w->may_not_copy)
		return;
	/* First this, then a claim: who closes sees one if there was the
	 * other. */
	atomic_fetch_add(&share->helpers, 1);
	while (is_piece(share, piece = atomic_fetch_add(&share->next, 1)))
		if (copy_piece(w, share, piece) != SIM_COPY_OK) {
			atomic_store(&share->has_failed, 1);
			break;
		}
	atomic_fetch_sub(&share->helpers, 1);
}

/* False: the helper died over a piece. */
static bool await_helpers(struct sim_world *w, const struct sim_cq *cq)
{
	for (uint32_t i = 1; atomic_load(&cq->share.helpers); i++) {
		if (i % LOOK_EVERY == 0 &&
		    !sim_proc_is_alive(w, cq->object.proc))
			return false;
		sched_yield();
	}
	return true;
}

bool sim_share_copy(struct sim_world *w, struct sim_cq *cq,
		    const struct sim_copy *copy, enum sim_copy_result *result)
{
	struct sim_share *share = &cq->share;
	enum sim_copy_result rc = SIM_COPY_OK;
	uint64_t pieces;
	uint32_t piece;

	if (copy->from_count != 1 || copy->to_count != 1 ||
	    copy->from->length < LEAST_BYTES || copy->from_proc != w->proc ||
	    copy->to_proc == w->proc || copy->to_proc != cq->object.proc ||
	    w->may_not_copy || sim_is_armed(w) ||
	    atomic_exchange(&share->is_taken, 1))
		return false;
	share->from_proc = copy->from_proc;
	share->to_proc = copy->to_proc;
	share->from = copy->from->addr;
	share->to = copy->to->addr;
	share->length = copy->from->length;
	pieces = (share->length + PIECE_BYTES - 1) / PIECE_BYTES;
	atomic_store(&share->pieces, (uint32_t)pieces);
	atomic_store(&share->has_failed, 0);
	atomic_store(&share->next, 0);
	atomic_store(&cq->wants_help, 1);
	while (rc == SIM_COPY_OK &&
	       is_piece(share, piece = atomic_fetch_add(&share->next, 1)))
		rc = copy_piece(w, share, piece);
	atomic_store(&cq->wants_help, 0);
	atomic_store(&share->next, CLOSED);
	if (!await_helpers(w, cq))
		rc = SIM_COPY_GONE;
	if (rc == SIM_COPY_OK && atomic_load(&share->has_failed))
		rc = sim_copy(w, copy); /* and it says why */
	atomic_store(&share->is_taken, 0);
	*result = rc;
	return true;
}
