/* SPDX-License-Identifier: MIT */
/*
 * The late personality: a device that reads a send's buffer as late as it may,
 * and whose own buffers hold nothing that a program could rely on.
 */
#include "sim/play.h"

#include <string.h>
#include <valgrind/memcheck.h>

#include "sim/diag.h"

#define POISON 0xa5

static void poison(const struct sim_span *spans, int count)
{
	for (int i = 0; i < count; i++)
		memset((void *)(uintptr_t)spans[i].addr, POISON,
		       spans[i].length);
}

void sim_late_poison(struct sim_world *w, uint32_t pd, struct sim_wqe *wqe)
{
	struct sim_span spans[SIM_SPAN_MAX];

	if (w->seg->late_ns && !w->seg->spares_owned)
		poison(spans,
		       sim_spans_of(w, pd, wqe, IBV_ACCESS_LOCAL_WRITE, spans));
}

/* Any function of all bytes will do; eight at a time. */
static uint32_t sum_of(const struct sim_span *spans, int count)
{
	uint64_t sum = 0, word;

	for (int i = 0; i < count; i++) {
		const char *from = (const char *)(uintptr_t)spans[i].addr;
		uint64_t left = spans[i].length;

		for (; left; from += word, left -= word) {
			uint64_t part = 0;

			word = left < sizeof(part) ? left : sizeof(part);
			memcpy(&part, from, word);
			sum = (sum ^ part) * 0x9e3779b97f4a7c15u;
			sum ^= sum >> 32;
		}
	}
	/* What was never written may be sent. */
	VALGRIND_MAKE_MEM_DEFINED(&sum, sizeof(sum));
	return (uint32_t)sum;
}

/* False: its keys do not allow it, which is another matter. */
static bool sum_send(struct sim_world *w, const struct sim_qp *qp,
		     struct sim_wqe *wqe, uint32_t *sum)
{
	struct sim_span spans[SIM_SPAN_MAX];
	int count = sim_spans_of(w, qp->pd, wqe, 0, spans);

	if (count >= 0)
		*sum = sum_of(spans, count);
	return count >= 0;
}

static bool is_watched(struct sim_world *w, const struct sim_qp *qp,
		       const struct sim_wqe *wqe)
{
	return w->seg->late_ns && qp->object.proc == w->proc &&
	       !(wqe->flags & SIM_WQE_INLINE);
}

void sim_late_posted(struct sim_world *w, const struct sim_qp *qp,
		     struct sim_wqe *wqe)
{
	if (!is_watched(w, qp, wqe))
		return;
	if (sim_op_is_sink(wqe->opcode))
		sim_late_poison(w, qp->pd, wqe);
	else
		wqe->is_summed = sum_send(w, qp, wqe, &wqe->sum);
}

void sim_late_leaves(struct sim_world *w, const struct sim_qp *qp,
		     struct sim_wqe *wqe)
{
	uint32_t sum;

	if (!wqe->is_summed || !is_watched(w, qp, wqe) ||
	    !sum_send(w, qp, wqe, &sum) || sum == wqe->sum)
		return;
	sim_diag("late",
		 "ibv_post_send(3): a buffer is the device's until its request "
		 "has completed",
		 "the buffer of the send with wr_id 0x%llx on qp 0x%x (%u "
		 "bytes) was changed after it was posted, before it left",
		 (unsigned long long)wqe->wr_id, qp->qp_num, wqe->len);
	if (sim_is_played(w)) {
		sim_play_changed();
		sim_trace_qp(qp, "reused", wqe->tx_ordinal, "len=%u", wqe->len);
	}
}
