/* SPDX-License-Identifier: MIT */
/*
 * The private node, IBVERBS_PRIVATE_34, as stubs.
 *
 * perftest, UCX, libfabric and pyverbs are linked with the stock libmlx5,
 * libefa and librdmacm, which import these at load. Their devices are never
 * ours, so nothing beyond registration is ever called with effect.
 */
#include "sim/verbs_front.h"

#include <stdbool.h>

/* One list: X(name) for each stub that answers EOPNOTSUPP. */
/* clang-format cannot settle on a layout for such a list. */
/* clang-format off */
#define STUBS(X) \
	X(__ioctl_final_num_attrs) X(execute_ioctl) X(ibv_cmd_advise_mr) \
	X(ibv_cmd_alloc_dm) X(ibv_cmd_alloc_mw) X(ibv_cmd_alloc_pd) \
	X(ibv_cmd_attach_mcast) X(ibv_cmd_close_xrcd) X(ibv_cmd_create_ah) \
	X(ibv_cmd_create_counters) X(ibv_cmd_create_cq) \
	X(ibv_cmd_create_cq_ex) X(ibv_cmd_create_flow) \
	X(ibv_cmd_create_flow_action_esp) X(ibv_cmd_create_qp) \
	X(ibv_cmd_create_qp_ex) X(ibv_cmd_create_qp_ex2) \
	X(ibv_cmd_create_rwq_ind_table) X(ibv_cmd_create_srq) \
	X(ibv_cmd_create_srq_ex) X(ibv_cmd_create_wq) X(ibv_cmd_dealloc_mw) \
	X(ibv_cmd_dealloc_pd) X(ibv_cmd_dereg_mr) X(ibv_cmd_destroy_ah) \
	X(ibv_cmd_destroy_counters) X(ibv_cmd_destroy_cq) \
	X(ibv_cmd_destroy_flow) X(ibv_cmd_destroy_flow_action) \
	X(ibv_cmd_destroy_qp) X(ibv_cmd_destroy_rwq_ind_table) \
	X(ibv_cmd_destroy_srq) X(ibv_cmd_destroy_wq) \
	X(ibv_cmd_detach_mcast) X(ibv_cmd_free_dm) X(ibv_cmd_get_context) \
	X(ibv_cmd_modify_cq) X(ibv_cmd_modify_flow_action_esp) \
	X(ibv_cmd_modify_qp) X(ibv_cmd_modify_qp_ex) X(ibv_cmd_modify_srq) \
	X(ibv_cmd_modify_wq) X(ibv_cmd_open_qp) X(ibv_cmd_open_xrcd) \
	X(ibv_cmd_poll_cq) X(ibv_cmd_post_recv) X(ibv_cmd_post_send) \
	X(ibv_cmd_post_srq_recv) X(ibv_cmd_query_context) \
	X(ibv_cmd_query_device_any) X(ibv_cmd_query_mr) \
	X(ibv_cmd_query_port) X(ibv_cmd_query_qp) X(ibv_cmd_query_srq) \
	X(ibv_cmd_read_counters) X(ibv_cmd_reg_dm_mr) \
	X(ibv_cmd_reg_dmabuf_mr) X(ibv_cmd_reg_mr) X(ibv_cmd_req_notify_cq) \
	X(ibv_cmd_rereg_mr) X(ibv_cmd_resize_cq) X(verbs_init_cq)
/* clang-format on */

#define X(name)                    \
	int name(void);            \
	int name(void)             \
	{                          \
		return EOPNOTSUPP; \
	}
STUBS(X)
#undef X

extern bool verbs_allow_disassociate_destroy;
bool verbs_allow_disassociate_destroy;

void __verbs_log(void *context, uint32_t level, const char *format, ...);
void *_verbs_init_and_alloc_context(void);
void *verbs_open_device(void *device, void *private_data);
void verbs_register_driver_34(const void *ops);
void verbs_set_ops(void *context, const void *ops);
void verbs_uninit_context(void *context);

/* The real one prints only at a level that its environment asks for. */
void __verbs_log(void *context, uint32_t level, const char *format, ...)
{
	(void)context;
	(void)level;
	(void)format;
}

void *_verbs_init_and_alloc_context(void)
{
	return fail_ptr(-EOPNOTSUPP);
}

void *verbs_open_device(void *device, void *private_data)
{
	(void)device;
	(void)private_data;
	return fail_ptr(-EOPNOTSUPP);
}

/* A provider introduces itself at load; there is no hardware to match. */
void verbs_register_driver_34(const void *ops)
{
	(void)ops;
}

void verbs_set_ops(void *context, const void *ops)
{
	(void)context;
	(void)ops;
}

void verbs_uninit_context(void *context)
{
	(void)context;
}

/* Of drivers before rdma-core. There is no device for any of them here. */
void ibv_register_driver(const char *name, void *init);
void ibv_register_driver(const char *name, void *init)
{
	(void)name;
	(void)init;
}
