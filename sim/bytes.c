/* SPDX-License-Identifier: MIT */
/*
 * The bytes of a message: which spans they come from and go to, and the lines
 * of a plan that strike them on the way.
 */
#include "sim/deliver.h"

#include <string.h>

uint64_t sim_bus_address(const struct sim_mr *mr, uint64_t addr)
{
	uint64_t at = mr->addr + (addr - mr->iova);

	/* R6: the high half is the region's, the low half the address's. */
	return mr->is_aliased
		       ? (mr->addr & ~0xffffffffull) | (at & 0xffffffffull)
		       : at;
}

/* The spans of a request's sges, up to `len` bytes; -1 on a bad key. */
int sim_spans_of(struct sim_world *w, uint32_t pd, struct sim_wqe *wqe,
		 uint32_t access, struct sim_span *spans)
{
	struct sim_sge *sge = sim_wqe_sge(wqe);
	int count = 0;

	for (int i = 0; i < wqe->num_sge; i++) {
		const struct sim_mr *mr;

		if (sge[i].length == 0)
			continue;
		mr = sim_mr_check(w, pd, &sge[i], access);
		if (!mr)
			return -1;
		spans[count].addr = sim_bus_address(mr, sge[i].addr);
		spans[count].length = sge[i].length;
		spans[count].mr = mr;
		count++;
	}
	return count;
}

void sim_cut_spans(struct sim_span *spans, int *count, uint64_t len)
{
	for (int i = 0; i < *count; i++) {
		if (spans[i].length >= len) {
			spans[i].length = len;
			*count = len ? i + 1 : i;
			return;
		}
		len -= spans[i].length;
	}
}

/* Has either end gone while we were stopped, for whatever time? */
static bool is_left(const struct delivery *d)
{
	return sim_qp_is_left(d->qp) || sim_qp_is_left(d->peer);
}

/*
 * Inline data lives in the segment, which every process has mapped, each at
 * its own address: whoever does the work copies from its own mapping.
 */
enum sim_copy_result sim_copy_data(struct delivery *d)
{
	struct sim_span here = {.addr = (uintptr_t)(d->wqe + 1),
				.length = d->len};
	bool is_inline = d->wqe->flags & SIM_WQE_INLINE;
	enum sim_copy_result result;
	struct sim_copy copy = {
		.from_proc = is_inline ? d->w->proc : d->from_proc,
		.to_proc = d->to_proc,
		.from = is_inline ? &here : d->from,
		.from_count = is_inline ? 1 : d->from_count,
		.to = d->to,
		.to_count = d->to_count,
	};
	struct sim_cq *cq = NULL;

	if (is_left(d))
		return SIM_COPY_GONE;
	if (!d->len)
		return SIM_COPY_OK;
	if (d->op->class == SIM_OP_SEND && d->recv_cq && !is_inline)
		cq = sim_cq_get(d->w, d->recv_cq);
	if (!cq || !sim_share_copy(d->w, cq, &copy, &result))
		result = sim_copy(d->w, &copy);
	/* The system's call is where a stop is most likely. */
	return is_left(d) ? SIM_COPY_GONE : result;
}

/* Change byte `at` of what has landed; false when it is outside, or equal. */
static bool poke(struct delivery *d, const struct sim_fault *fault)
{
	uint64_t skip = fault->at;
	uint8_t old = 0, new;

	if (fault->at >= d->len)
		return false;
	for (int i = 0; i < d->to_count; skip -= d->to[i++].length) {
		struct sim_span far = {.addr = d->to[i].addr + skip,
				       .length = 1};
		struct sim_span near = {.addr = (uintptr_t)&old, .length = 1};
		struct sim_copy in = {d->to_proc, d->w->proc, &far,
				      &near,	  1,	      1};
		struct sim_copy out = {d->w->proc, d->to_proc, &near,
				       &far,	   1,	       1};

		if (skip >= d->to[i].length)
			continue;
		if (sim_copy(d->w, &in) != SIM_COPY_OK)
			return false;
		new = fault->effect == SIM_EFFECT_SET
			      ? (uint8_t)fault->value
			      : (uint8_t)(old ^ fault->value);
		if (new == old)
			return false;
		old = new;
		return sim_copy(d->w, &out) == SIM_COPY_OK;
	}
	return false;
}

/* A line with this effect, struck on leaving or on arrival. */
static struct sim_fault *take_fault(struct delivery *d, enum sim_effect effect,
				    uint64_t *ordinal)
{
	struct sim_fault *fault = sim_tap_take(d->w, &d->wqe->tx_mask, effect);

	*ordinal = d->wqe->tx_ordinal;
	if (fault)
		return fault;
	*ordinal = d->wqe->rx_ordinal;
	return sim_tap_take(d->w, &d->wqe->rx_mask, effect);
}

void sim_strike_bytes(struct delivery *d)
{
	static const enum sim_effect effects[] = {SIM_EFFECT_CORRUPT,
						  SIM_EFFECT_SET};
	struct sim_fault *fault;
	uint64_t ordinal;

	for (int i = 0; i < 2 && sim_is_struck(d); i++)
		while ((fault = take_fault(d, effects[i], &ordinal)))
			sim_tap_fired(fault, ordinal, poke(d, fault));
}

void sim_strike_length(struct delivery *d)
{
	struct sim_fault *fault;
	uint64_t ordinal;

	while ((fault = take_fault(d, SIM_EFFECT_TRUNC, &ordinal))) {
		sim_tap_fired(fault, ordinal, fault->at < d->len);
		if (fault->at < d->len)
			d->len = fault->at;
	}
}

/* Sent once; is there a line that sends it again? */
bool sim_wants_duplicate(struct delivery *d)
{
	uint64_t ordinal;
	struct sim_fault *fault;

	if (d->wqe->flags & SIM_WQE_DUP_SENT)
		return false;
	fault = take_fault(d, SIM_EFFECT_DUP, &ordinal);
	if (!fault)
		return false;
	/* 5.3: a reliable responder knows it again, and only acknowledges. */
	sim_tap_fired(fault, ordinal, !sim_is_reliable(d->qp));
	d->wqe->flags |= SIM_WQE_DUP_SENT;
	return !sim_is_reliable(d->qp);
}

/* Lost on the wire: UC never knows; RC sends again after a timeout. */
bool sim_strike_drop(struct delivery *d, bool *goes_on)
{
	uint64_t ordinal;
	struct sim_fault *fault = take_fault(d, SIM_EFFECT_DROP, &ordinal);

	if (!fault)
		return false;
	sim_tap_fired(fault, ordinal, true);
	/* A sticky line loses each attempt, until the retries are spent. */
	if (sim_is_reliable(d->qp) && fault->times == SIM_NO_LIMIT)
		d->wqe->tx_mask |= 1ull << (fault - d->w->seg->fault);
	sim_drop(&d->peer->rq_lock);
	*goes_on = !sim_is_reliable(d->qp);
	if (*goes_on) {
		sim_end_head(d, IBV_WC_SUCCESS);
	} else {
		d->wqe->flags |= SIM_WQE_LOST;
		sim_await_ack(d);
	}
	return true;
}

void sim_tap_departure(struct delivery *d)
{
	struct sim_wqe *wqe = d->wqe;

	wqe->tx_ordinal = d->qp->tx_count++;
	if (sim_is_played(d->w))
		sim_trace_qp(d->qp, "leave", wqe->tx_ordinal, "len=%llu",
			     (unsigned long long)d->len);
	sim_late_leaves(d->w, d->qp, wqe);
	wqe->tx_mask =
		sim_tap_message(d->w, d->qp, SIM_SITE_QP_TX, wqe->tx_ordinal);
}

void sim_tap_arrival(struct delivery *d)
{
	/* Again, when it was lost and is sent again. */
	if (sim_is_played(d->w))
		sim_play_happened(d->peer->object.host);
	if (d->wqe->flags & SIM_WQE_RX_TAPPED)
		return;
	d->wqe->flags |= SIM_WQE_RX_TAPPED;
	d->wqe->rx_ordinal = d->peer->rx_count++;
	if (sim_is_played(d->w))
		sim_trace_qp(d->peer, "arrive", d->wqe->rx_ordinal, "len=%llu",
			     (unsigned long long)d->len);
	d->wqe->rx_mask = sim_tap_message(d->w, d->peer, SIM_SITE_QP_RX,
					  d->wqe->rx_ordinal);
}
