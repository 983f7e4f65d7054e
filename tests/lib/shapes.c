/* SPDX-License-Identifier: MIT */
/* The shapes of a stream over one queue pair; see shapes.h. */
#include "tests/lib/shapes.h"

const struct shape shapes[SHAPE_COUNT] = {
	{"compat uc", "apple-tb", VB_TRANSPORT_AUTO, VB_COMPAT, false, 16, 16},
	{"hardened uc", "apple-tb", VB_TRANSPORT_AUTO, VB_HARDENED, true, 16,
	 16},
	{"compat rc", "mlx5", VB_TRANSPORT_AUTO, VB_COMPAT, false, 24, 1},
	{"hardened rc", "rxe", VB_TRANSPORT_AUTO, VB_HARDENED, false, 8, 8},
	{"hardened rc, crc", "mlx5,link=roce", VB_TRANSPORT_RC,
	 VB_HARDENED_ONLY, true, 8, 8},
};

void shape_init(struct stage *stage, const struct shape *shape,
		const char *plan)
{
	stage_init(stage, shape->model, plan);
	for (int i = 0; i < 2; i++) {
		struct vb_options *options = &stage->end[i].options;

		options->transport = shape->kind;
		options->mode = shape->mode;
		options->has_crc = shape->has_crc;
	}
}

int shape_send(struct stage_end *end)
{
	int rc = stage_send_pattern(end->transport, 0, SHAPE_BYTES);

	return rc ? rc : stage_recv_pattern(end->transport, 0, 5);
}

int shape_recv(struct stage_end *end)
{
	int rc = stage_recv_pattern(end->transport, 0, SHAPE_BYTES);

	if (!rc)
		rc = stage_send_pattern(end->transport, 0, 5);
	return rc ? rc : vb_flush(end->transport);
}
