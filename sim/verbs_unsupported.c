/* SPDX-License-Identifier: MIT */
/*
 * Exports of the public nodes whose objects this version does not emulate. A
 * program that is linked against them starts, and is told when it calls them.
 */
#include "sim/verbs_front.h"

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset,
				 size_t length, uint64_t iova, int fd,
				 int access)
{
	(void)pd;
	(void)offset;
	(void)length;
	(void)iova;
	(void)fd;
	(void)access;
	return fail_ptr(-EOPNOTSUPP);
}

int ibv_resolve_eth_l2_from_gid(struct ibv_context *context,
				struct ibv_ah_attr *attr, uint8_t mac[6],
				uint16_t *vid)
{
	(void)context;
	(void)attr;
	(void)mac;
	(void)vid;
	errno = EOPNOTSUPP;
	return -1;
}

/* 0: no order beyond what the specification promises. */
int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op,
			       uint32_t flags)
{
	(void)qp;
	(void)op;
	(void)flags;
	return 0;
}
