/* SPDX-License-Identifier: MIT */
/*
 * Parcels: small messages between processes.
 *
 * A sender cannot write into the receiver's memory without a system call. It
 * leaves the bytes with the completion (a cache line behind it, or a ring of
 * the queue's when they are more), and only counts the receive as taken; the
 * receiver, who polls in any case, then finds the receive and fills it. Whoever
 * looks at that memory in another way first lands what waits: a write or read
 * from afar, and the end of a region or queue pair.
 */
#include "sim/core.h"

#include <string.h>

#define RING_BYTES (512u << 10)

/* Are a late one's bytes where other fields will be? */
static bool is_tiny(const struct sim_cqe *cqe)
{
	return cqe->byte_len <= sizeof(cqe->tiny);
}

/* Where `need` bytes fit in one piece, or RING_BYTES. */
static uint32_t find_room(struct sim_cq *cq, uint32_t need)
{
	uint32_t head = cq->parcel_head_seen;

	if (cq->parcel_tail >= head) {
		if (cq->parcel_tail + need <= RING_BYTES)
			return cq->parcel_tail;
		return need < head ? 0 : RING_BYTES;
	}
	return cq->parcel_tail + need < head ? cq->parcel_tail : RING_BYTES;
}

/* So that who looks for late completions finds them. */
static void set_late(struct sim_world *w, const struct sim_cq *cq, bool is_late)
{
	uint32_t slot = (uint32_t)(cq - w->seg->cq);
	_Atomic uint64_t *word = &w->seg->late_cqs[slot / 64];
	uint64_t bit = 1ull << slot % 64;

	if (((atomic_load_explicit(word, memory_order_relaxed) & bit) != 0) ==
	    is_late)
		return;
	if (is_late)
		atomic_fetch_or(word, bit);
	else
		atomic_fetch_and(word, ~bit);
}

void *sim_parcel_put(struct sim_world *w, struct sim_cq *cq,
		     struct sim_cqe *cqe)
{
	uint32_t len = cqe->byte_len;
	uint32_t need = (len + SIM_LINE - 1) / SIM_LINE * SIM_LINE;
	uint32_t offset;

	cqe->parcel = 0;
	set_late(w, cq, true);
	if (is_tiny(cqe))
		return cqe->tiny;
	if (len <= SIM_LINE && cq->stride > SIM_LINE)
		return sim_cq_slot(w, cq, cq->tail)->bytes;
	if (!cq->parcels)
		cq->parcels = sim_arena_alloc(w, RING_BYTES);
	if (!cq->parcels)
		return NULL;
	offset = find_room(cq, need);
	if (offset == RING_BYTES) {
		cq->parcel_head_seen = atomic_load(&cq->parcel_head);
		offset = find_room(cq, need);
	}
	if (offset == RING_BYTES)
		return NULL;
	cq->parcel_tail = offset + need;
	cqe->parcel = offset + 1;
	return (char *)sim_at(w, cq->parcels) + offset;
}

/* Where the bytes of a late completion are. */
static void *bytes_of(struct sim_world *w, const struct sim_cq *cq,
		      struct sim_cq_slot *slot)
{
	struct sim_cqe *cqe = &slot->cqe;

	if (is_tiny(cqe))
		return cqe->tiny;
	return cqe->parcel ? (char *)sim_at(w, cq->parcels) + cqe->parcel - 1
			   : (char *)slot->bytes;
}

static bool are_mapped(const struct sim_span *spans, int count)
{
	for (int i = 0; i < count; i++)
		if (!sim_is_mapped(spans[i].addr, spans[i].length, true))
			return false;
	return true;
}

/* Fill the receive; its status. Who polls says that the memory is there; a
 * program that ends things may have let it go before. */
static enum ibv_wc_status fill(struct sim_world *w, const struct sim_cq *cq,
			       struct sim_cq_slot *slot, struct sim_qp *qp,
			       struct sim_wqe *recv, bool is_polled)
{
	uint64_t len = slot->cqe.byte_len;
	struct sim_span to[SIM_SPAN_MAX],
		from = {.addr = (uintptr_t)bytes_of(w, cq, slot),
			.length = len};
	struct sim_copy copy = {
		.from_proc = w->proc,
		.to_proc = cq->object.proc,
		.from = &from,
		.to = to,
		.from_count = 1,
	};

	copy.to_count =
		sim_spans_of(w, qp->pd, recv, IBV_ACCESS_LOCAL_WRITE, to);
	if (copy.to_count < 0 || (!is_polled && copy.to_proc == w->proc &&
				  !are_mapped(to, copy.to_count)))
		return IBV_WC_LOC_PROT_ERR;
	/* Nearly always: one span, and the poller's own. */
	if (copy.to_proc == w->proc && copy.to_count == 1) {
		memcpy((void *)(uintptr_t)to[0].addr,
		       (void *)(uintptr_t)from.addr, len);
		return IBV_WC_SUCCESS;
	}
	return sim_copy(w, &copy) == SIM_COPY_OK ? IBV_WC_SUCCESS
						 : IBV_WC_LOC_PROT_ERR;
}

/* Fill the receive of a late completion; *cqe then says what came of it. */
static void settle(struct sim_world *w, const struct sim_cq *cq,
		   struct sim_cq_slot *slot, struct sim_qp *qp,
		   struct sim_cqe *cqe, bool is_polled)
{
	struct sim_wqe *recv = sim_wqe_at(w, &qp->rq, cqe->wqe_index);

	if (cqe->byte_len)
		cqe->status = (uint8_t)fill(w, cq, slot, qp, recv, is_polled);
	cqe->fails_qp = cqe->status != IBV_WC_SUCCESS;
	cqe->wr_id = recv->wr_id;
	if (!is_tiny(cqe))
		return;
	cqe->qp_num = qp->qp_num;
	cqe->src_qp = atomic_load(&qp->dest);
	cqe->vendor_err = 0;
	cqe->parcel = 0;
}

void sim_parcel_land(struct sim_world *w, const struct sim_cq *cq,
		     struct sim_cq_slot *slot)
{
	struct sim_cqe *cqe = &slot->cqe;
	struct sim_qp *qp = cqe->is_late ? sim_qp_get(w, cqe->qp) : NULL;

	/* A reaper stands in for the owner, whose memory is gone. */
	if (!qp || (cq->object.proc == w->proc &&
		    w->proc != sim_locker_slot(w->locker)))
		return;
	settle(w, cq, slot, qp, cqe, false);
	cqe->is_late = 0;
}

/* Its queue pair ended with a stopped process in the way: nobody knows its
 * receive any more, and it is none that was filled. */
static void forget(struct sim_cqe *cqe)
{
	if (is_tiny(cqe))
		memset(cqe->tiny, 0, sizeof(cqe->tiny));
	cqe->status = IBV_WC_WR_FLUSH_ERR;
}

void sim_parcel_take(struct sim_world *w, struct sim_cq *cq,
		     struct sim_cq_slot *slot, struct sim_cqe *cqe)
{
	uint32_t need =
		(slot->cqe.byte_len + SIM_LINE - 1) / SIM_LINE * SIM_LINE;
	struct sim_qp *qp;

	memcpy(cqe, &slot->cqe, offsetof(struct sim_cqe, turn));
	qp = cqe->is_late ? sim_qp_get(w, cqe->qp) : NULL;
	if (qp)
		settle(w, cq, slot, qp, cqe, true);
	else if (cqe->is_late)
		forget(cqe);
	if (cqe->parcel)
		atomic_store_explicit(&cq->parcel_head, cqe->parcel - 1 + need,
				      memory_order_release);
}

/* With both locks: the first that may wait. */
static uint32_t first_waiting(const struct sim_cq *cq)
{
	return (int32_t)(cq->landed - cq->head) > 0 ? cq->landed : cq->head;
}

void sim_parcels_land_held(struct sim_world *w, struct sim_cq *cq)
{
	for (uint32_t i = first_waiting(cq); i != cq->tail; i++)
		sim_parcel_land(w, cq, sim_cq_slot(w, cq, i));
	cq->landed = cq->tail;
}

void sim_parcels_land(struct sim_world *w, uint32_t handle)
{
	struct sim_cq *cq = sim_cq_get(w, handle);

	if (!cq || cq->head == cq->tail || !sim_cq_hold_unless_stopped(w, cq))
		return;
	sim_parcels_land_held(w, cq);
	sim_cq_release(cq);
}

/* Is what waits in this slot for one of these places? */
static bool is_for(struct sim_world *w, struct sim_cq_slot *slot,
		   const struct sim_span *spans, int count)
{
	const struct sim_cqe *cqe = &slot->cqe;
	struct sim_qp *qp = cqe->is_late ? sim_qp_get(w, cqe->qp) : NULL;
	struct sim_span to[SIM_SPAN_MAX];
	int n;

	if (!qp || !cqe->byte_len)
		return false;
	n = sim_spans_of(w, qp->pd, sim_wqe_at(w, &qp->rq, cqe->wqe_index),
			 IBV_ACCESS_LOCAL_WRITE, to);
	for (int i = 0; i < n; i++)
		for (int j = 0; j < count; j++)
			if (to[i].addr < spans[j].addr + spans[j].length &&
			    spans[j].addr < to[i].addr + to[i].length)
				return true;
	return false;
}

/* All that waits in a queue, if any of it is for these places: others may be
 * for the same, and came before it. */
static bool land_at(struct sim_world *w, struct sim_cq *cq,
		    const struct sim_span *spans, int count)
{
	if (cq->head == cq->tail || cq->landed == cq->tail)
		return true;
	if (!sim_cq_hold_unless_stopped(w, cq))
		return false;
	for (uint32_t i = first_waiting(cq); i != cq->tail; i++)
		if (is_for(w, sim_cq_slot(w, cq, i), spans, count)) {
			sim_parcels_land_held(w, cq);
			break;
		}
	sim_cq_release(cq);
	return true;
}

bool sim_parcels_land_at(struct sim_world *w, uint32_t proc,
			 const struct sim_span *spans, int count)
{
	uint32_t words = (sim_top(w, SIM_CQ) + 63) / 64;
	bool is_done = true;

	for (uint32_t word = 0; word < words; word++) {
		uint64_t bits = atomic_load(&w->seg->late_cqs[word]);

		for (; bits; bits &= bits - 1) {
			int slot = (int)(64 * word) + __builtin_ctzll(bits);
			struct sim_cq *cq = &w->seg->cq[slot];

			if (cq->object.proc == proc &&
			    atomic_load(&cq->object.handle))
				is_done &= land_at(w, cq, spans, count);
		}
	}
	return is_done;
}

void sim_parcels_init(struct sim_world *w, struct sim_cq *cq)
{
	cq->parcels = 0;
	cq->parcel_head = cq->parcel_tail = cq->parcel_head_seen = 0;
	cq->landed = 0;
	set_late(w, cq, false);
}

void sim_parcels_free(struct sim_world *w, struct sim_cq *cq)
{
	uint64_t parcels = cq->parcels;

	cq->parcels = 0;
	sim_arena_free(w, parcels, RING_BYTES);
}
