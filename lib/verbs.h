/* SPDX-License-Identifier: MIT */
/*
 * The verbs table: every entry point that lib needs, and nothing else of
 * libibverbs. A test hands in a table of its own.
 */
#ifndef VB_VERBS_H
#define VB_VERBS_H

/* Apple's library exports VB_VERBS, and its header has little more (R44). The
 * other macro asks for the same elsewhere, to see that lib can do with it. */
#if defined(__APPLE__) || defined(VERBENA_APPLE_SDK_CHECK)
#define VB_APPLE_SDK
#else
#include <infiniband/efadv.h>
#endif
#include <infiniband/verbs.h>

#include "lib/verbena.h"

/* What is said of every way to a connected peer, in the step to RTR. */
#define VB_PATH_MASK                                                    \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | \
	 IBV_QP_RQ_PSN)

/* Of regions, if their backend does not say, and of the transports' queue
 * pairs: some refuse less (R8). */
#define VB_ACCESS                                          \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_WRITE)

/* Not Apple's; there the optional entries are never there, either. */
struct _compat_ibv_port_attr;
struct ibv_gid_entry;
struct ibv_qp_init_attr_ex;
struct efadv_device_attr;
struct efadv_qp_init_attr;
#ifdef VB_APPLE_SDK
#define IBV_QPT_DRIVER ((enum ibv_qp_type)0xff)
#endif

/* X(name, result, arguments): the exports lib calls. post_send, post_recv and
 * poll_cq are no exports; they go through the context's own table. */
#define VB_VERBS(X)                                                            \
	X(get_device_list, struct ibv_device **, (int *))                      \
	X(free_device_list, void, (struct ibv_device **))                      \
	X(get_device_name, const char *, (struct ibv_device *))                \
	X(open_device, struct ibv_context *, (struct ibv_device *))            \
	X(close_device, int, (struct ibv_context *))                           \
	X(query_device, int, (struct ibv_context *, struct ibv_device_attr *)) \
	X(query_port, int,                                                     \
	  (struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *))     \
	X(query_gid, int,                                                      \
	  (struct ibv_context *, uint8_t, int, union ibv_gid *))               \
	X(alloc_pd, struct ibv_pd *, (struct ibv_context *))                   \
	X(dealloc_pd, int, (struct ibv_pd *))                                  \
	X(reg_mr, struct ibv_mr *, (struct ibv_pd *, void *, size_t, int))     \
	X(dereg_mr, int, (struct ibv_mr *))                                    \
	X(create_cq, struct ibv_cq *,                                          \
	  (struct ibv_context *, int, void *, struct ibv_comp_channel *, int)) \
	X(destroy_cq, int, (struct ibv_cq *))                                  \
	X(create_qp, struct ibv_qp *,                                          \
	  (struct ibv_pd *, struct ibv_qp_init_attr *))                        \
	X(destroy_qp, int, (struct ibv_qp *))                                  \
	X(modify_qp, int, (struct ibv_qp *, struct ibv_qp_attr *, int))        \
	X(query_qp, int,                                                       \
	  (struct ibv_qp *, struct ibv_qp_attr *, int,                         \
	   struct ibv_qp_init_attr *))

/* X(name, symbol, library, result, arguments): may be missing, then NULL. */
#define VB_VERBS_OPTIONAL(X)                                                 \
	X(query_gid_ex, "_ibv_query_gid_ex", NULL, int,                      \
	  (struct ibv_context *, uint32_t, uint32_t, struct ibv_gid_entry *, \
	   uint32_t, size_t))                                                \
	X(get_device_guid, "ibv_get_device_guid", NULL, unsigned long long,  \
	  (struct ibv_device *))                                             \
	X(create_ah, "ibv_create_ah", NULL, struct ibv_ah *,                 \
	  (struct ibv_pd *, struct ibv_ah_attr *))                           \
	X(destroy_ah, "ibv_destroy_ah", NULL, int, (struct ibv_ah *))        \
	X(efadv_query_device, "efadv_query_device", "libefa.so.1", int,      \
	  (struct ibv_context *, struct efadv_device_attr *, uint32_t))      \
	X(efadv_create_qp_ex, "efadv_create_qp_ex", "libefa.so.1",           \
	  struct ibv_qp *,                                                   \
	  (struct ibv_context *, struct ibv_qp_init_attr_ex *,               \
	   struct efadv_qp_init_attr *, uint32_t))

struct vb_verbs {
#define X(name, result, arguments) result(*name) arguments;
	VB_VERBS(X)
#undef X
#define X(name, symbol, in, result, arguments) result(*name) arguments;
	VB_VERBS_OPTIONAL(X)
#undef X
	void *library; /* dlopen handle; NULL for a table handed in */
	int refs;
};

/* A reference to the given table, or to the default library's. */
int vb_verbs_get(struct vb_verbs *given, struct vb_verbs **verbs);

/* Full port attributes where the context's table has the call, else the
 * shorter ones of the export. A positive errno, as verbs calls do. */
int vb_query_port(const struct vb_verbs *verbs, struct ibv_context *context,
		  uint8_t port, struct ibv_port_attr *attr);

/* The GID at `index`; and its type, if the library tells it. A positive errno,
 * or -1. */
int vb_query_gid(const struct vb_verbs *verbs, struct ibv_context *context,
		 uint8_t port, uint32_t index, struct vb_gid *gid,
		 bool *has_type);

/* The library's GUIDs are big endian; be64toh is not everybody's. */
static inline uint64_t vb_guid(unsigned long long guid)
{
	const uint8_t *bytes = (const uint8_t *)&guid;
	uint64_t value = 0;

	for (int i = 0; i < 8; i++)
		value = value << 8 | bytes[i];
	return value;
}

#endif
