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

/* From the slot after the last one claimed, so that a full table costs a scan
 * and any other next to nothing. */
static struct sim_object *find_free(struct sim_world *w,
				    enum sim_kind_of_object kind)
{
	const struct table *t = &tables[kind];
	uint32_t *hint = &w->seg->slot_hint[kind];

	for (uint32_t i = 0; i < t->max; i++) {
		uint32_t slot = (*hint + i) % t->max;
		struct sim_object *object = slot_of(w, t, slot);

		if (object->handle || object->proc)
			continue;
		*hint = slot + 1;
		if (slot >= w->seg->slot_top[kind])
			atomic_store(&w->seg->slot_top[kind], slot + 1);
		return object;
	}
	return NULL;
}

void *sim_object_claim(struct sim_ctx *ctx, enum sim_kind_of_object kind,
		       uint32_t limit, int *rc)
{
	struct sim_world *w = ctx->world;
	uint32_t *count = &sim_host_of(w, ctx->host)->count[kind];
	struct sim_object *object = NULL;

	/* A fork's child, or a process that has left: nobody's. */
	*rc = -EINVAL;
	if (w->proc == 0)
		return NULL;
	*rc = -EUSERS;
	sim_lock(&w->seg->lock);
	if (*count < limit) {
		object = find_free(w, kind);
		*rc = object ? 0 : -ENOMEM;
	}
	if (object) {
		(*count)++;
		object->generation = object->generation % 4095 + 1;
		object->host = ctx->host;
		object->context = ctx->id;
		object->proc = w->proc;
	}
	sim_unlock(&w->seg->lock);
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

void sim_object_release(struct sim_world *w, struct sim_object *object,
			enum sim_kind_of_object kind)
{
	sim_lock(&w->seg->lock);
	sim_host_of(w, object->host)->count[kind]--;
	atomic_store(&object->handle, 0);
	object->proc = 0;
	sim_unlock(&w->seg->lock);
}

void sim_object_recount(struct sim_world *w)
{
	sim_lock(&w->seg->lock);
	for (int host = 0; host < SIM_HOST_COUNT; host++)
		memset(w->seg->host[host].count, 0,
		       sizeof(w->seg->host[host].count));
	for (int kind = 0; kind < SIM_OBJECTS; kind++)
		for (uint32_t slot = 0; slot < sim_top(w, kind); slot++) {
			struct sim_object *object =
				slot_of(w, &tables[kind], slot);

			if (object->proc)
				sim_host_of(w, object->host)->count[kind]++;
		}
	sim_unlock(&w->seg->lock);
}
