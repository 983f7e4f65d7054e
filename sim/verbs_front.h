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
	struct verbs_context verbs; /* last: the context is its last member */
};

struct front_channel {
	struct ibv_comp_channel channel;
	uint32_t handle;
};

struct front_cq {
	struct ibv_cq cq;
	uint32_t events_delivered;
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
	return sim_tap_call(ctx_of(context), call);
}

/* verbs_ops.c: fill every slot of both tables of a fresh context. */
void front_fill_ops(struct front_context *front);

/* verbs_data.c, for the tables. */
int front_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		    struct ibv_send_wr **bad);
int front_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		    struct ibv_recv_wr **bad);
int front_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc);
int front_req_notify_cq(struct ibv_cq *cq, int solicited_only);

/* verbs_query.c, for the tables. */
int front_query_port(struct ibv_context *context, uint8_t port,
		     struct ibv_port_attr *attr, size_t size);
int front_query_device_ex(struct ibv_context *context,
			  const struct ibv_query_device_ex_input *input,
			  struct ibv_device_attr_ex *attr, size_t size);

#endif
