/* SPDX-License-Identifier: MIT */
/* Backend efa: Amazon's devices, by whether their provider answers; and their
 * queue pairs, which are SRD (spec/registry.md, 2.2). */
#include "lib/registry.h"

#ifndef VB_APPLE_SDK /* which has no EFA */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In efadv.h since rdma-core 46. */
#define CAPS_RDMA_WRITE (1u << 3)

/* All that is done needs RDMA both ways. One that has no write (p4d) fails only
 * when it is used: say so before (3.2, row 2). */
static bool has_rdma(const struct efadv_device_attr *attr, char reason[128])
{
	bool can_read = attr->device_caps & EFADV_DEVICE_ATTR_CAPS_RDMA_READ;
	bool can_write = attr->device_caps & CAPS_RDMA_WRITE;

	if (can_read && can_write && attr->max_rdma_size > 0)
		return true;
	snprintf(reason, 128, "it has no RDMA %s (caps 0x%x, max_rdma_size %u)",
		 can_read ? "write" : "read", attr->device_caps,
		 attr->max_rdma_size);
	return false;
}

/* EOPNOTSUPP is what other providers' devices answer. */
static int claim(const struct vb_verbs *verbs, struct ibv_context *context,
		 char reason[128])
{
	struct efadv_device_attr attr = {0};

	if (!verbs->efadv_query_device ||
	    verbs->efadv_query_device(context, &attr, sizeof(attr)) != 0)
		return VB_CLAIM_NO;
	return has_rdma(&attr, reason) ? VB_CLAIM_YES : VB_CLAIM_UNUSABLE;
}

static void defaults(struct vb_config *config)
{
	config->max_send_sge = config->max_recv_sge = 1;
	config->max_rd_atomic = config->max_dest_rd_atomic = 0;
}

static int is_granted(const char *field, uint32_t value, uint32_t limit,
		      char reason[128])
{
	if (value <= limit)
		return 0;
	snprintf(reason, 128, "%s is %u, the device grants %u", field, value,
		 limit);
	return -EINVAL;
}

/* Depths are refused, not clamped: callers count on what they configured. */
static int qp_check(const struct vb_verbs *verbs, struct ibv_context *context,
		    enum vb_qp_kind kind, const struct vb_config *config,
		    char reason[128])
{
	struct efadv_device_attr attr = {0};
	int rc;

	(void)kind;
	if (!verbs->efadv_query_device || !verbs->efadv_create_qp_ex) {
		snprintf(reason, 128, "no efadv_create_qp_ex in libefa.so.1");
		return -EOPNOTSUPP;
	}
	rc = verbs->efadv_query_device(context, &attr, sizeof(attr));
	if (rc) {
		snprintf(reason, 128, "efadv_query_device: %s",
			 strerror(abs(rc)));
		return -abs(rc);
	}
	if (!has_rdma(&attr, reason))
		return -EOPNOTSUPP;
	rc = is_granted("max_send_wr", config->max_send_wr, attr.max_sq_wr,
			reason);
	return rc ? rc
		  : is_granted("max_recv_wr", config->max_recv_wr,
			       attr.max_rq_wr, reason);
}

/* One SGE whatever is configured, as an RDMA request takes no more. */
static struct ibv_qp *qp_create(const struct vb_verbs *verbs, struct ibv_pd *pd,
				enum vb_qp_kind kind,
				struct ibv_qp_init_attr *attr)
{
	struct efadv_qp_init_attr srd = {
		.driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD,
	};
	struct ibv_qp_init_attr_ex ex = {
		.send_cq = attr->send_cq,
		.recv_cq = attr->recv_cq,
		.qp_type = IBV_QPT_DRIVER,
		.comp_mask =
			IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE |
				  IBV_QP_EX_WITH_RDMA_READ |
				  IBV_QP_EX_WITH_SEND,
	};

	(void)kind;
	attr->cap.max_send_sge = attr->cap.max_recv_sge = 1;
	ex.cap = attr->cap;
	return verbs->efadv_create_qp_ex(pd->context, &ex, &srd, sizeof(srd));
}

static const struct vb_backend efa = {
	.key = "efa",
	.name = "AWS EFA",
	.rank = 10, /* before any that goes by attributes */
	.claim = claim,
	.defaults = defaults,
	.transport = VB_TRANSPORT_SRD,
	.access = VB_ACCESS,
	.qp_kinds = 1u << VB_QP_SRD,
	.qp_check = qp_check,
	.qp_create = qp_create,
};
VB_BACKEND(efa);

#endif
