/* SPDX-License-Identifier: MIT */
/*
 * Exports of the public nodes whose objects this version does not emulate:
 * address handles, shared receive queues, multicast, imports. A program that
 * is linked against them starts, and is told when it calls them.
 */
#include "sim/verbs_front.h"

#define NO_PTR(name, ...)                     \
	name(__VA_ARGS__)                     \
	{                                     \
		return fail_ptr(-EOPNOTSUPP); \
	}
#define NO_INT(name, ...)          \
	int name(__VA_ARGS__)      \
	{                          \
		return EOPNOTSUPP; \
	}
#define NO_VOID(name, ...)     \
	void name(__VA_ARGS__) \
	{                      \
	}
#define U __attribute__((unused))

struct ibv_ah *
NO_PTR(ibv_create_ah, struct ibv_pd *pd U,
       struct ibv_ah_attr *attr
	       U) struct ibv_ah *NO_PTR(ibv_create_ah_from_wc,
					struct ibv_pd *pd U,
					struct ibv_wc *wc U,
					struct ibv_grh *grh U,
					uint8_t port
						U) NO_INT(ibv_init_ah_from_wc,
							  struct ibv_context
								  *context U,
							  uint8_t port U,
							  struct ibv_wc *wc U,
							  struct ibv_grh *grh U,
							  struct ibv_ah_attr
								  *attr U)
	NO_INT(ibv_destroy_ah, struct ibv_ah *ah U) struct ibv_srq *NO_PTR(
		ibv_create_srq, struct ibv_pd *pd U,
		struct ibv_srq_init_attr *attr
			U) NO_INT(ibv_modify_srq, struct ibv_srq *srq U,
				  struct ibv_srq_attr *attr U,
				  int mask U) NO_INT(ibv_query_srq,
						     struct ibv_srq *srq U,
						     struct ibv_srq_attr *attr
							     U)
		NO_INT(ibv_destroy_srq, struct ibv_srq *srq U) NO_INT(
			ibv_attach_mcast, struct ibv_qp *qp U,
			const union ibv_gid *gid U,
			uint16_t lid U) NO_INT(ibv_detach_mcast,
					       struct ibv_qp *qp U,
					       const union ibv_gid *gid U,
					       uint16_t lid U)
			NO_INT(ibv_resize_cq, struct ibv_cq *cq U,
			       int cqe U) NO_INT(ibv_set_ece,
						 struct ibv_qp *qp U,
						 struct ibv_ece *ece U)
				NO_INT(ibv_query_ece, struct ibv_qp *qp U,
				       struct ibv_ece *ece U) struct ibv_pd
					*NO_PTR(ibv_import_pd,
						struct ibv_context *context U,
						uint32_t handle U)
						NO_VOID(ibv_unimport_pd,
							struct ibv_pd *pd
								U) struct
	ibv_mr *NO_PTR(ibv_import_mr, struct ibv_pd *pd U,
		       uint32_t handle U) NO_VOID(ibv_unimport_mr,
						  struct ibv_mr *mr
							  U) struct ibv_dm
		*NO_PTR(ibv_import_dm, struct ibv_context *context U,
			uint32_t handle U) NO_VOID(ibv_unimport_dm,
						   struct ibv_dm *dm
							   U) struct ibv_mr
			*NO_PTR(ibv_reg_dmabuf_mr, struct ibv_pd *pd U,
				uint64_t offset U, size_t length U,
				uint64_t iova U, int fd U, int access U)
				NO_INT(ibv_resolve_eth_l2_from_gid,
				       struct ibv_context *context U,
				       struct ibv_ah_attr *attr U,
				       uint8_t mac[6] U, uint16_t *vid U)

					int ibv_rereg_mr(struct ibv_mr *mr U,
							 int flags U,
							 struct ibv_pd *pd U,
							 void *addr U,
							 size_t length U,
							 int access U)
{
	errno = EOPNOTSUPP;
	return IBV_REREG_MR_ERR_INPUT; /* the old region stays valid */
}

/* 0: no order beyond what the specification promises. */
int ibv_query_qp_data_in_order(struct ibv_qp *qp U, enum ibv_wr_opcode op U,
			       uint32_t flags U)
{
	return 0;
}
