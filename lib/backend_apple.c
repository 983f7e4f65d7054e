/* SPDX-License-Identifier: MIT */
/* Backend apple: RDMA over Thunderbolt (R40: transport and link layer). */
#include "lib/registry.h"

#define THUNDERBOLT 100

static int claim(const struct vb_verbs *verbs, struct ibv_context *context,
		 char reason[128])
{
	struct ibv_port_attr port;

	(void)reason;
	if (!context->device ||
	    (int)context->device->transport_type != THUNDERBOLT ||
	    vb_query_port(verbs, context, 1, &port) != 0)
		return VB_CLAIM_NO;
	return port.link_layer == THUNDERBOLT ? VB_CLAIM_YES : VB_CLAIM_NO;
}

static void defaults(struct vb_config *config)
{
	config->max_send_sge = config->max_recv_sge = 1; /* R18 */
	config->max_rd_atomic = config->max_dest_rd_atomic = 0;
}

static const struct vb_backend apple = {
	.key = "apple",
	.name = "Apple Thunderbolt",
	.rank = 30,
	.claim = claim,
	.defaults = defaults,
	.transport = VB_TRANSPORT_APPLE_UC,
	.qp_kinds = 1u << VB_QP_UC, /* R1 */
};
VB_BACKEND(apple);
