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

static void *find(void *library, const char *other, const char *symbol)
{
	void *in = other ? dlopen(other, RTLD_NOW | RTLD_LOCAL) : library;

	return in ? dlsym(in, symbol) : NULL;
}

static int resolve(struct vb_verbs *verbs)
{
	/* dlsym gives an object pointer; POSIX says it holds a function's. */
#define X(name, result, arguments)                                    \
	*(void **)&verbs->name = dlsym(verbs->library, "ibv_" #name); \
	if (!verbs->name)                                             \
		return -ENODEV;
	VB_VERBS(X)
#undef X
	/* A library of its own stays: what it gave is called till the end. */
#define X(name, symbol, in, result, arguments) \
	*(void **)&verbs->name = find(verbs->library, in, symbol);
	VB_VERBS_OPTIONAL(X)
#undef X
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
	struct verbs_context *ex = verbs_get_ctx_op(context, query_port);

	memset(attr, 0, sizeof(*attr));
	if (ex)
		return ex->query_port(context, port, attr, sizeof(*attr));
	return verbs->query_port(context, port,
				 (struct _compat_ibv_port_attr *)attr);
}
