/* SPDX-License-Identifier: MIT */
/* Backend mlx: NVIDIA's (Mellanox) devices, by vendor. */
#include "lib/registry.h"

#define MELLANOX 0x02c9

static int claim(const struct vb_verbs *verbs, struct ibv_context *context,
		 char reason[128])
{
	struct ibv_device_attr attr = {0};

	(void)reason;
	return verbs->query_device(context, &attr) == 0 &&
			       attr.vendor_id == MELLANOX
		       ? VB_CLAIM_YES
		       : VB_CLAIM_NO;
}

static const struct vb_backend mlx = {
	.key = "mlx",
	.name = "NVIDIA ConnectX",
	.rank = 20,
	.claim = claim,
	.access = VB_ACCESS | IBV_ACCESS_REMOTE_ATOMIC,
};
VB_BACKEND(mlx);
