/* SPDX-License-Identifier: MIT */
/* The shapes of a stream over one queue pair: kind and mode, on a model. */
#ifndef TESTS_LIB_SHAPES_H
#define TESTS_LIB_SHAPES_H

#include "lib/qp_stream.h"
#include "tests/stage.h"

struct shape {
	const char *name;
	const char *model;
	enum vb_transport_kind kind;
	enum vb_mode mode;
	bool has_crc;
	uint32_t slots; /* of the receive ring, by default */
	uint32_t sends; /* that may be in flight */
};

#define SHAPE_COUNT 5
extern const struct shape shapes[SHAPE_COUNT];

/* A stage on which both ends have this shape. */
void shape_init(struct stage *stage, const struct shape *shape,
		const char *plan);

static inline int shape_cqs(const struct shape *shape)
{
	return strcmp(shape->model, "apple-tb") == 0 ? 1 : 2;
}

/* What an end calls after its rings are gone: RC has two queues. */
static inline const char *shape_last_calls(const struct shape *shape)
{
	return shape_cqs(shape) == 2
		       ? "destroy_cq destroy_cq dealloc_pd close_device "
		       : "destroy_cq dealloc_pd close_device ";
}

static inline struct qp_stream *qs_of(struct stage_end *end)
{
	return (struct qp_stream *)end->transport;
}

/* Scripts: so many strides one way, then an answer of 5 bytes. */
int shape_send(struct stage_end *end);
int shape_recv(struct stage_end *end);
#define SHAPE_BYTES (60u * 4096)

#endif
