/* SPDX-License-Identifier: MIT */
/*
 * The ABI front: libibverbs objects around handles of the core.
 *
 * Only verbs_*.c speak the verbs dialect (positive errno, NULL with errno);
 * they unpack, ask the taps, call the core and translate. No behaviour.
 */
#ifndef SIM_VERBS_FRONT_H
#define SIM_VERBS_FRONT_H

#include <errno.h>
#include <stddef.h>

#include "sim/core.h"

/* verbs.h hides some exports behind macros; here they are defined. */
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_get_device_list

struct front_device {
	struct ibv_device device;
	/* The stock libmlx5 and libefa compare the word behind ibv_device
	 * with their own operations to tell whether a device is theirs. */
	const void *foreign_ops;
	uint32_t host;
};

struct front_context {
	struct sim_ctx sim;
	uint32_t async_channel;
	struct front_context *next;
	struct verbs_context verbs; /* last: the context is its last member */
};

struct front_channel {
	struct ibv_comp_channel channel;
	uint32_t handle;
};

/* The extended queue begins with the fields of the plain one. */
struct front_cq {
	union {
		struct ibv_cq cq;
		struct ibv_cq_ex ex;
	};
	uint32_t events_delivered;
	uint32_t async_delivered;
	uint64_t wc_flags;
	struct ibv_wc wc; /* the one that the extended readers look at */
};

struct front_batch;

struct front_qp {
	union {
		struct ibv_qp qp;
		struct ibv_qp_ex ex;
	};
	bool is_ex;
	bool is_opened; /* an XRC target of another handle */
	uint32_t ece_options;
	uint32_t async_delivered;
	struct front_batch *batch;
};

struct front_srq {
	struct ibv_srq srq;
	uint32_t async_delivered;
	uint32_t num;
	struct ibv_srq_init_attr init;
};

struct front_xrcd {
	struct ibv_xrcd xrcd;
	uint32_t handle;
};

/* A domain, or one made over another: both name the same of the core. */
struct front_pd {
	struct ibv_pd pd;
	struct front_pd *parent; /* NULL: a domain of its own */
	uint32_t children;
};

static inline struct front_context *front_of(struct ibv_context *context)
{
	return (struct front_context *)((char *)context -
					offsetof(struct front_context,
						 verbs.context));
}

static inline struct sim_ctx *ctx_of(struct ibv_context *context)
{
	return &front_of(context)->sim;
}

/* NULL with errno, from a negative errno. */
static inline void *fail_ptr(int rc)
{
	errno = -rc;
	return NULL;
}

/* 0, or the errno of a plan's `fail` line. */
static inline int front_tap(struct ibv_context *context, enum sim_call call)
{
	struct sim_ctx *ctx = ctx_of(context);

	return sim_is_armed(ctx->world) ? sim_tap_call(ctx, call) : 0;
}

/* verbs_ops.c: fill every slot of both tables of a fresh context. */
void front_fill_ops(struct front_context *front);

/* For the tables, by file. verbs_data.c: */
int front_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		    struct ibv_send_wr **bad);
int front_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		    struct ibv_recv_wr **bad);
int front_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
			struct ibv_recv_wr **bad);
int front_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc);
int front_req_notify_cq(struct ibv_cq *cq, int solicited_only);

/* verbs_query.c */
int front_query_port(struct ibv_context *context, uint8_t port,
		     struct ibv_port_attr *attr, size_t size);
int front_query_device_ex(struct ibv_context *context,
			  const struct ibv_query_device_ex_input *input,
			  struct ibv_device_attr_ex *attr, size_t size);

/* verbs_objects.c */
struct front_cq *front_create_cq(struct ibv_context *context, int cqe,
				 void *cq_context,
				 struct ibv_comp_channel *channel, int vector);

/* verbs_cq_ex.c */
struct ibv_cq_ex *front_create_cq_ex(struct ibv_context *context,
				     struct ibv_cq_init_attr_ex *attr);
int front_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);

/* verbs_qp.c */
struct ibv_qp *front_create_qp_ex(struct ibv_context *context,
				  struct ibv_qp_init_attr_ex *attr);

struct ibv_qp *front_open_qp(struct ibv_context *context,
			     struct ibv_qp_open_attr *attr);

/* verbs_qp_ex.c: the builders behind an extended queue pair. */
int front_batch_init(struct front_qp *front, uint64_t send_ops);
void front_batch_fini(struct front_qp *front);

/* verbs_srq.c */
struct ibv_srq *front_create_srq_ex(struct ibv_context *context,
				    struct ibv_srq_init_attr_ex *attr);
int front_get_srq_num(struct ibv_srq *srq, uint32_t *num);
struct ibv_xrcd *front_open_xrcd(struct ibv_context *context,
				 struct ibv_xrcd_init_attr *attr);
int front_close_xrcd(struct ibv_xrcd *xrcd);

/* verbs_memory.c: windows, device memory, domains over domains. */
struct ibv_mw *front_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int front_dealloc_mw(struct ibv_mw *mw);
int front_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw,
		  struct ibv_mw_bind *bind);
struct ibv_dm *front_alloc_dm(struct ibv_context *context,
			      struct ibv_alloc_dm_attr *attr);
int front_free_dm(struct ibv_dm *dm);
struct ibv_mr *front_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm,
			       uint64_t offset, size_t length,
			       unsigned int access);
struct ibv_td *front_alloc_td(struct ibv_context *context,
			      struct ibv_td_init_attr *attr);
int front_dealloc_td(struct ibv_td *td);
struct ibv_pd *
front_alloc_parent_domain(struct ibv_context *context,
			  struct ibv_parent_domain_init_attr *attr);

/* verbs_wq.c */
#define FRONT_LOG_TABLE_MAX 9 /* 512 work queues in a table */
struct ibv_wq *front_create_wq(struct ibv_context *context,
			       struct ibv_wq_init_attr *attr);
int front_modify_wq(struct ibv_wq *wq, struct ibv_wq_attr *attr);
int front_destroy_wq(struct ibv_wq *wq);
struct ibv_rwq_ind_table *
front_create_rwq_ind_table(struct ibv_context *context,
			   struct ibv_rwq_ind_table_init_attr *attr);
int front_destroy_rwq_ind_table(struct ibv_rwq_ind_table *table);

/* What the device of a context is. */
static inline const struct sim_host *front_host(struct ibv_context *context)
{
	struct sim_ctx *ctx = ctx_of(context);

	return sim_host_of(ctx->world, ctx->host);
}

static inline const struct sim_model *front_model(struct ibv_context *context)
{
	return sim_model_of(front_host(context));
}

/* Wait until as many events of an object were acknowledged as delivered. */
void front_wait_acked(pthread_mutex_t *mutex, pthread_cond_t *cond,
		      const uint32_t *acked, const uint32_t *delivered);

#endif
