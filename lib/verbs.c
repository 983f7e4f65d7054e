/* SPDX-License-Identifier: MIT */
/* Loading the verbs table: a host without the library must still start. */
#include "lib/verbs.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifdef __APPLE__
#define DEFAULT_LIBRARY "librdma.dylib"
#else
#define DEFAULT_LIBRARY "libibverbs.so.1"
#endif

#ifndef VB_APPLE_SDK
static void *find(void *library, const char *other, const char *symbol)
{
	void *in = other ? dlopen(other, RTLD_NOW | RTLD_LOCAL) : library;

	return in ? dlsym(in, symbol) : NULL;
}
#endif

static int resolve(struct vb_verbs *verbs)
{
	/* dlsym gives an object pointer; POSIX says it holds a function's. */
#define X(name, result, arguments)                                    \
	*(void **)&verbs->name = dlsym(verbs->library, "ibv_" #name); \
	if (!verbs->name)                                             \
		return -ENODEV;
	VB_VERBS(X)
#undef X
#ifndef VB_APPLE_SDK
	/* A library of its own stays: what it gave is called till the end. */
#define X(name, symbol, in, result, arguments) \
	*(void **)&verbs->name = find(verbs->library, in, symbol);
	VB_VERBS_OPTIONAL(X)
#undef X
#endif
	return 0;
}

int vb_verbs_load(const char *library, struct vb_verbs **out)
{
	struct vb_verbs *verbs = calloc(1, sizeof(*verbs));
	int rc = -ENODEV;

	if (!verbs)
		return -ENOMEM;
	verbs->refs = 1;
	verbs->library = dlopen(library ? library : DEFAULT_LIBRARY,
				RTLD_NOW | RTLD_LOCAL);
	if (verbs->library)
		rc = resolve(verbs);
	if (rc) {
		vb_verbs_put(verbs);
		return rc;
	}
	*out = verbs;
	return 0;
}

void vb_verbs_put(struct vb_verbs *verbs)
{
	if (!verbs || __atomic_sub_fetch(&verbs->refs, 1, __ATOMIC_ACQ_REL))
		return;
	if (verbs->library)
		dlclose(verbs->library);
	free(verbs);
}

int vb_verbs_get(struct vb_verbs *given, struct vb_verbs **verbs)
{
	if (!given)
		return vb_verbs_load(NULL, verbs);
	__atomic_add_fetch(&given->refs, 1, __ATOMIC_ACQ_REL);
	*verbs = given;
	return 0;
}

int vb_query_port(const struct vb_verbs *verbs, struct ibv_context *context,
		  uint8_t port, struct ibv_port_attr *attr)
{
	memset(attr, 0, sizeof(*attr));
#ifndef VB_APPLE_SDK
	struct verbs_context *ex = verbs_get_ctx_op(context, query_port);

	if (ex)
		return ex->query_port(context, port, attr, sizeof(*attr));
#endif
	return verbs->query_port(context, port,
				 (struct _compat_ibv_port_attr *)attr);
}

#ifndef VB_APPLE_SDK
static enum vb_gid_type type_of(uint32_t gid_type)
{
	switch (gid_type) {
	case IBV_GID_TYPE_IB:
	case IBV_GID_TYPE_ROCE_V1:
		return VB_GID_IB_ROCE_V1;
	case IBV_GID_TYPE_ROCE_V2:
		return VB_GID_ROCE_V2;
	default:
		return VB_GID_UNKNOWN;
	}
}

/* EOPNOTSUPP or ENOSYS: it cannot tell, which says nothing of the GID. */
static int query_typed(const struct vb_verbs *verbs,
		       struct ibv_context *context, uint8_t port,
		       uint32_t index, struct vb_gid *gid)
{
	struct ibv_gid_entry entry = {0};
	int rc = EOPNOTSUPP;

	if (verbs->query_gid_ex)
		rc = verbs->query_gid_ex(context, port, index, &entry, 0,
					 sizeof(entry));
	memcpy(gid->raw, entry.gid.raw, 16);
	gid->type = type_of(entry.gid_type);
	return rc;
}
#endif

int vb_query_gid(const struct vb_verbs *verbs, struct ibv_context *context,
		 uint8_t port, uint32_t index, struct vb_gid *gid,
		 bool *has_type)
{
	union ibv_gid raw = {0};
	int rc;

#ifndef VB_APPLE_SDK
	rc = query_typed(verbs, context, port, index, gid);
	*has_type = rc != EOPNOTSUPP && rc != ENOSYS;
	if (*has_type)
		return rc;
#endif
	*has_type = false;
	rc = verbs->query_gid(context, port, (int)index, &raw);
	memcpy(gid->raw, raw.raw, 16);
	return rc;
}
