/* SPDX-License-Identifier: MIT */
/* The tables of objects: claim a slot, publish its handle, give it back. */
#include "sim/world.h"

#include <errno.h>
#include <string.h>

struct table {
	size_t offset; /* in struct sim_segment */
	size_t size;
	uint32_t max;
};

#define TABLE(field, max)                                                \
	{                                                                \
		offsetof(struct sim_segment, field),                     \
			sizeof(((struct sim_segment *)0)->field[0]), max \
	}

static const struct table tables[SIM_OBJECTS] = {
	[SIM_PD] = TABLE(pd, SIM_PD_MAX),
	[SIM_CHANNEL] = TABLE(channel, SIM_CHANNEL_MAX),
	[SIM_CQ] = TABLE(cq, SIM_CQ_MAX),
	[SIM_QP] = TABLE(qp, SIM_QP_MAX),
	[SIM_MR] = TABLE(mr, SIM_MR_MAX),
	[SIM_SRQ] = TABLE(srq, SIM_SRQ_MAX),
	[SIM_XRCD] = TABLE(xrcd, SIM_XRCD_MAX),
};

static struct sim_object *slot_of(struct sim_world *w, const struct table *t,
				  uint32_t slot)
{
	return (struct sim_object *)((char *)w->seg + t->offset +
				     slot * t->size);
}

static void raise_top(_Atomic uint32_t *top, uint32_t to)
{
	uint32_t was = atomic_load(top);

	while (was < to && !atomic_compare_exchange_weak(top, &was, to))
		;
}

/* From the slot after the last one claimed, so that a full table costs a scan
 * and any other next to nothing. */
static struct sim_object *take_free(struct sim_world *w,
				    enum sim_kind_of_object kind)
{
	const struct table *t = &tables[kind];
	uint32_t hint = atomic_load(&w->seg->slot_hint[kind]);

	for (uint32_t i = 0; i < t->max; i++) {
		uint32_t slot = (hint + i) % t->max;
		struct sim_object *object = slot_of(w, t, slot);
		uint32_t nobody = 0;

		if (atomic_load(&object->proc) ||
		    !atomic_compare_exchange_strong(&object->proc, &nobody,
						    w->proc | SIM_CLAIMED))
			continue;
		atomic_store(&w->seg->slot_hint[kind], slot + 1);
		raise_top(&w->seg->slot_top[kind], slot + 1);
		return object;
	}
	return NULL;
}

uint32_t sim_object_count(const struct sim_host *host,
			  enum sim_kind_of_object kind)
{
	uint32_t count = 0;

	for (int proc = 0; proc < SIM_PROC_MAX; proc++)
		count += atomic_load(&host->count[kind][proc]);
	return count;
}

/* Without a lock: a process may be stopped anywhere in here, or die. */
void *sim_object_claim(struct sim_ctx *ctx, enum sim_kind_of_object kind,
		       uint32_t limit, int *rc)
{
	struct sim_world *w = ctx->world;
	struct sim_host *host = sim_host_of(w, ctx->host);
	struct sim_object *object = NULL;

	/* A fork's child, or a process that has left: nobody's. */
	*rc = -EINVAL;
	if (w->proc == 0)
		return NULL;
	*rc = -EUSERS;
	/* Counted first: two that ask for the last one may both be refused,
	 * and are never both given it. */
	atomic_fetch_add(&host->count[kind][w->proc], 1);
	if (sim_object_count(host, kind) <= limit) {
		object = take_free(w, kind);
		*rc = object ? 0 : -ENOMEM;
	}
	if (!object) {
		atomic_fetch_sub(&host->count[kind][w->proc], 1);
		return NULL;
	}
	object->generation = object->generation % 4095 + 1;
	object->host = ctx->host;
	object->context = ctx->id;
	atomic_store(&object->proc, w->proc);
	return object;
}

uint32_t sim_object_publish(struct sim_world *w, struct sim_object *object,
			    enum sim_kind_of_object kind)
{
	const struct table *t = &tables[kind];
	size_t offset = (size_t)((char *)object - (char *)w->seg) - t->offset;
	uint32_t handle = object->generation << SIM_SLOT_BITS |
			  (uint32_t)(offset / t->size);

	atomic_store_explicit(&object->handle, handle, memory_order_release);
	return handle;
}

static void disown(struct sim_world *w, struct sim_object *object,
		   enum sim_kind_of_object kind, uint32_t to)
{
	struct sim_host *host = sim_host_of(w, object->host);
	uint32_t proc = atomic_load(&object->proc) & ~SIM_CLAIMED;

	atomic_store(&object->handle, 0);
	atomic_store(&object->proc, to);
	atomic_fetch_sub(&host->count[kind][proc], 1);
}

void sim_object_release(struct sim_world *w, struct sim_object *object,
			enum sim_kind_of_object kind)
{
	disown(w, object, kind, 0);
}

void sim_object_orphan(struct sim_world *w, struct sim_object *object,
		       enum sim_kind_of_object kind)
{
	disown(w, object, kind, SIM_ORPHAN);
}

void sim_object_forget(struct sim_world *w, uint32_t proc)
{
	for (int host = 0; host < SIM_HOST_COUNT; host++)
		for (int kind = 0; kind < SIM_OBJECTS; kind++)
			atomic_store(&w->seg->host[host].count[kind][proc], 0);
}
