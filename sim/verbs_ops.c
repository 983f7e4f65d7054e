/* SPDX-License-Identifier: MIT */
/*
 * The tables in a context. Inline callers do not test most slots, so each one
 * is filled: with ours, or with a dummy that answers "not supported".
 */
#include "sim/diag.h"
#include "sim/verbs_front.h"

static void tell(void)
{
	sim_diag("verbs", "see sim/README.md, limits of this version",
		 "a program asked for an operation that is not emulated, and "
		 "was told EOPNOTSUPP");
}

static int no_int(void)
{
	tell();
	return EOPNOTSUPP;
}

static void *no_ptr(void)
{
	tell();
	errno = EOPNOTSUPP;
	return NULL;
}

/* Slots of old ABIs, and those that this version does not implement. The
 * casts are safe: a dummy reads no argument. */
static void fill_context_ops(struct ibv_context_ops *ops)
{
#define DUMMY(slot) ops->slot = (void *)no_ptr
	DUMMY(_compat_query_device);
	DUMMY(_compat_query_port);
	DUMMY(_compat_alloc_pd);
	DUMMY(_compat_dealloc_pd);
	DUMMY(_compat_reg_mr);
	DUMMY(_compat_rereg_mr);
	DUMMY(_compat_dereg_mr);
	DUMMY(_compat_create_cq);
	DUMMY(_compat_cq_event);
	DUMMY(_compat_resize_cq);
	DUMMY(_compat_destroy_cq);
	DUMMY(_compat_create_srq);
	DUMMY(_compat_modify_srq);
	DUMMY(_compat_query_srq);
	DUMMY(_compat_destroy_srq);
	DUMMY(_compat_create_qp);
	DUMMY(_compat_query_qp);
	DUMMY(_compat_modify_qp);
	DUMMY(_compat_destroy_qp);
	DUMMY(_compat_create_ah);
	DUMMY(_compat_destroy_ah);
	DUMMY(_compat_attach_mcast);
	DUMMY(_compat_detach_mcast);
	DUMMY(_compat_async_event);
#undef DUMMY
	ops->alloc_mw = front_alloc_mw;
	ops->bind_mw = front_bind_mw;
	ops->dealloc_mw = front_dealloc_mw;
	ops->post_srq_recv = front_post_srq_recv;
	ops->poll_cq = front_poll_cq;
	ops->req_notify_cq = front_req_notify_cq;
	ops->post_send = front_post_send;
	ops->post_recv = front_post_recv;
}

static void fill_verbs(struct verbs_context *verbs)
{
#define NO_INT(slot) verbs->slot = (void *)no_int
#define NO_PTR(slot) verbs->slot = (void *)no_ptr
	NO_INT(advise_mr);
	NO_PTR(alloc_null_mr);
	NO_INT(read_counters);
	NO_INT(attach_counters_point_flow);
	NO_PTR(create_counters);
	NO_INT(destroy_counters);
	NO_INT(modify_flow_action_esp);
	NO_INT(destroy_flow_action);
	NO_PTR(create_flow_action_esp);
	NO_INT(modify_qp_rate_limit);
	NO_INT(post_srq_ops);
	NO_INT(query_rt_values);
	NO_INT(ibv_destroy_flow);
	NO_INT(ABI_placeholder2);
	NO_PTR(ibv_create_flow);
	NO_INT(ABI_placeholder1);
#undef NO_INT
#undef NO_PTR
	verbs->open_qp = front_open_qp;
	verbs->create_wq = front_create_wq;
	verbs->modify_wq = front_modify_wq;
	verbs->destroy_wq = front_destroy_wq;
	verbs->create_rwq_ind_table = front_create_rwq_ind_table;
	verbs->destroy_rwq_ind_table = front_destroy_rwq_ind_table;
	verbs->reg_dm_mr = front_reg_dm_mr;
	verbs->alloc_dm = front_alloc_dm;
	verbs->free_dm = front_free_dm;
	verbs->alloc_parent_domain = front_alloc_parent_domain;
	verbs->alloc_td = front_alloc_td;
	verbs->dealloc_td = front_dealloc_td;
	verbs->create_cq_ex = front_create_cq_ex;
	verbs->modify_cq = front_modify_cq;
	verbs->create_qp_ex = front_create_qp_ex;
	verbs->create_srq_ex = front_create_srq_ex;
	verbs->get_srq_num = front_get_srq_num;
	verbs->open_xrcd = front_open_xrcd;
	verbs->close_xrcd = front_close_xrcd;
	verbs->query_port = front_query_port;
	verbs->query_device_ex = front_query_device_ex;
	/* Private to the real library; nobody else reads behind it. */
	verbs->priv = (struct verbs_ex_private *)verbs;
}

void front_fill_ops(struct front_context *front)
{
	fill_context_ops(&front->verbs.context.ops);
	fill_verbs(&front->verbs);
}
