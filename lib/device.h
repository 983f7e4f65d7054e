/* SPDX-License-Identifier: MIT */
/* The inside of open devices, for what is made on them. */
#ifndef VB_DEVICE_H
#define VB_DEVICE_H

#include "lib/registry.h"

/* An open context; `refs`: the handle, its domains, those who asked for it. */
struct vb_shared {
	struct vb_registry *registry;
	const struct vb_backend *backend;
	struct ibv_context *context;
	struct vb_device_info info; /* as the registry knew it */
	struct vb_config config;    /* as it was opened */
	int refs;
};

struct vb_domain {
	struct vb_domain *next;
	struct vb_shared *shared;
	struct ibv_pd *pd;
	void *strategy;
	int refs; /* the handle, each region and each queue pair */
	int qps;
	char name[];
};

/* Log that a verbs call, `what`, failed with errno `rc` of either sign, and
 * remember it for vb_last_error. The negative errno. */
int vb_shared_failed(struct vb_shared *shared, int rc, const char *what);

/* enum ibv_access_flags that its backend wants. */
unsigned vb_shared_access(const struct vb_shared *shared);

/* One reference less; 0, or what failed to close with the last. */
int vb_domain_put(struct vb_domain *domain);

#endif
