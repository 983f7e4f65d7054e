/* SPDX-License-Identifier: MIT */
/* Backend efa: Amazon's devices, by whether their provider answers. */
#include "lib/registry.h"

#include <errno.h>
#include <stdio.h>

#define NEEDED (EFADV_DEVICE_ATTR_CAPS_RDMA_READ | CAPS_RDMA_WRITE)
/* In efadv.h since rdma-core 46. */
#define CAPS_RDMA_WRITE (1u << 3)

/* EOPNOTSUPP is what other providers' devices answer. One that has no RDMA
 * write (p4d) fails only when it is used: say so here (3.2, row 2). */
static int claim(const struct vb_verbs *verbs, struct ibv_context *context,
		 char reason[128])
{
	struct efadv_device_attr attr = {0};

	if (!verbs->efadv_query_device ||
	    verbs->efadv_query_device(context, &attr, sizeof(attr)) != 0)
		return VB_CLAIM_NO;
	if ((attr.device_caps & NEEDED) == NEEDED && attr.max_rdma_size > 0)
		return VB_CLAIM_YES;
	snprintf(reason, 128, "it has no RDMA %s (caps 0x%x, max_rdma_size %u)",
		 attr.device_caps & EFADV_DEVICE_ATTR_CAPS_RDMA_READ ? "write"
								     : "read",
		 attr.device_caps, attr.max_rdma_size);
	return VB_CLAIM_UNUSABLE;
}

static void defaults(struct vb_config *config)
{
	config->max_send_sge = config->max_recv_sge = 1;
	config->max_rd_atomic = config->max_dest_rd_atomic = 0;
}

static const struct vb_backend efa = {
	.key = "efa",
	.name = "AWS EFA",
	.rank = 10, /* before any that goes by attributes */
	.claim = claim,
	.defaults = defaults,
	.transport = VB_TRANSPORT_SRD,
	.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
		  IBV_ACCESS_REMOTE_WRITE,
};
VB_BACKEND(efa);
