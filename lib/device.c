/* SPDX-License-Identifier: MIT */
/*
 * Open devices, their domains and regions: who keeps whom (rows O, A, D). A
 * region keeps its domain, a domain its context, and a context is closed with
 * the last of them, in that order, whatever became of the device's handle. A
 * queue pair (queue_pair.c) keeps its domain, too.
 */
#include "lib/device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct vb_device {
	struct vb_shared *shared;
	pthread_mutex_t lock; /* of the list: one protection domain a name */
	struct vb_domain *domains;
};

/* --- keeping and letting go --- */

int vb_shared_failed(struct vb_shared *shared, int rc, const char *what)
{
	int error = -abs(rc);

	vb_registry_log(shared->registry, VB_LOG_ERROR, "%s of %s: %s", what,
			shared->info.name, strerror(-error));
	return vb_registry_fail(error, "%s of %s: %s", what, shared->info.name,
				strerror(-error));
}

/* 0, or what failed; it is gone all the same, and not tried again. */
static int shared_put(struct vb_shared *shared)
{
	int rc = 0;

	if (__atomic_sub_fetch(&shared->refs, 1, __ATOMIC_ACQ_REL))
		return 0;
	rc = shared->registry->verbs->close_device(shared->context);
	if (rc)
		rc = vb_shared_failed(shared, rc, "close_device");
	vb_registry_unref(shared->registry);
	vb_info_fini(&shared->info);
	free(shared);
	return rc;
}

int vb_domain_put(struct vb_domain *domain)
{
	struct vb_shared *shared = domain->shared;
	int rc, closed;

	if (__atomic_sub_fetch(&domain->refs, 1, __ATOMIC_ACQ_REL))
		return 0;
	if (shared->backend->domain_close)
		shared->backend->domain_close(domain->strategy);
	rc = shared->registry->verbs->dealloc_pd(domain->pd);
	if (rc)
		rc = vb_shared_failed(shared, rc, "dealloc_pd");
	free(domain);
	closed = shared_put(shared);
	return rc ? rc : closed;
}

/* --- opening --- */

/* "efa: efa_0; mlx: mlx5_0 mlx5_1; ...": what there is. */
static void tell_all(const struct vb_registry *registry, FILE *out)
{
	for (int i = 0; i < registry->backend_count; i++) {
		const char *key = registry->backend[i]->key;

		fprintf(out, "%s%s:", i ? "; " : "", key);
		for (int n = 0; n < registry->info_count; n++)
			if (strcmp(registry->info[n].backend, key) == 0)
				fprintf(out, " %s", registry->info[n].name);
	}
}

static int not_there(struct vb_registry *registry,
		     const struct vb_backend *backend, const char *name,
		     const struct vb_device_info *others)
{
	char text[200] = "";
	FILE *out = fmemopen(text, sizeof(text), "w");

	if (out) {
		tell_all(registry, out);
		fclose(out);
	}
	if (others)
		vb_registry_fail(-ENXIO,
				 "%s belongs to backend %s, not %s (%s)", name,
				 others->backend, backend->name, text);
	else
		vb_registry_fail(-ENOENT, "%s (%s) has no device '%s' (%s)",
				 backend->key, backend->name, name, text);
	vb_registry_log(registry, VB_LOG_WARNING, "%s", vb_last_error());
	return others ? -ENXIO : -ENOENT;
}

/* Lock held: the device of this backend with this name. */
static int look_up(struct vb_registry *registry, const char *key,
		   const char *name, const struct vb_backend **backend,
		   const struct vb_device_info **info)
{
	const struct vb_device_info *others = NULL;
	int index = vb_registry_backend(registry, key);

	if (index < 0)
		return vb_registry_fail(-ENOENT, "no backend '%s'", key);
	*backend = registry->backend[index];
	for (int i = 0; i < registry->info_count; i++) {
		const struct vb_device_info *it = &registry->info[i];

		if (strcmp(it->name, name) != 0)
			continue;
		if (strcmp(it->backend, key) == 0) {
			*info = it;
			return 0;
		}
		others = it;
	}
	return not_there(registry, *backend, name, others);
}

static int open_from(struct vb_registry *registry, struct ibv_device **list,
		     int count, const struct vb_device_info *info,
		     struct ibv_context **context)
{
	struct vb_verbs *verbs = registry->verbs;

	for (int i = 0; i < count; i++) {
		const char *name =
			list[i] ? verbs->get_device_name(list[i]) : NULL;

		if (!name || strncmp(name, info->name, VB_NAME_MAX - 1) != 0)
			continue;
		if (verbs->get_device_guid && !registry->takes_swapped &&
		    vb_guid(verbs->get_device_guid(list[i])) != info->node_guid)
			return vb_registry_fail(
				-ESTALE,
				"%s is another device now (GUID %016llx, was "
				"%016llx): refresh the registry",
				name,
				(unsigned long long)vb_guid(
					verbs->get_device_guid(list[i])),
				(unsigned long long)info->node_guid);
		errno = 0;
		*context = verbs->open_device(list[i]);
		if (*context)
			return 0;
		/* Before anything else sets it. */
		return vb_registry_fail(errno ? -errno : -ENODEV,
					"open_device of %s: %s", name,
					strerror(errno));
	}
	return vb_registry_fail(-ENODEV,
				"%s was found, and is no longer present: "
				"refresh the registry",
				info->name);
}

static int open_context(struct vb_registry *registry,
			const struct vb_device_info *info,
			struct ibv_context **context)
{
	struct ibv_device **list;
	int count = 0, rc;

	errno = 0;
	list = registry->verbs->get_device_list(&count);
	if (!list)
		return vb_registry_fail(errno ? -errno : -ENODEV,
					"get_device_list: %s", strerror(errno));
	rc = open_from(registry, list, count, info, context);
	registry->verbs->free_device_list(list);
	return rc;
}

static struct vb_device *make(struct vb_registry *registry,
			      const struct vb_backend *backend,
			      const struct vb_device_info *info)
{
	struct vb_device *device = calloc(1, sizeof(*device));
	struct vb_shared *shared = calloc(1, sizeof(*shared));

	if (!device || !shared || vb_info_copy(info, &shared->info) != 0) {
		free(device);
		free(shared);
		return NULL;
	}
	shared->registry = registry;
	shared->backend = backend;
	shared->refs = 1;
	device->shared = shared;
	pthread_mutex_init(&device->lock, NULL);
	return device;
}

static void unmake(struct vb_device *device)
{
	pthread_mutex_destroy(&device->lock);
	free(device);
}

/* With the lock held, from what is found to an open device. */
static int open_found(struct vb_registry *registry, const char *key,
		      const char *name, struct vb_device **out)
{
	const struct vb_device_info *info = NULL;
	const struct vb_backend *backend = NULL;
	struct vb_device *device;
	int rc = look_up(registry, key, name, &backend, &info);

	if (rc)
		return rc;
	device = make(registry, backend, info);
	if (!device)
		return vb_registry_fail(-ENOMEM, "no memory for a device");
	rc = open_context(registry, info, &device->shared->context);
	if (rc) {
		vb_registry_log(registry, VB_LOG_ERROR, "%s", vb_last_error());
		vb_info_fini(&device->shared->info);
		free(device->shared);
		unmake(device);
		return rc;
	}
	vb_registry_ref(registry);
	*out = device;
	return 0;
}

int vb_device_open(struct vb_registry *registry, const char *key,
		   const char *name, const struct vb_config *config,
		   struct vb_device **device)
{
	struct vb_config defaults;
	int rc;

	if (!key || !name || !device)
		return vb_registry_fail(-EINVAL, "open: a backend's key and a "
						 "device's name are needed");
	rc = vb_registry_enter(registry);
	if (rc)
		return rc;
	rc = open_found(registry, key, name, device);
	pthread_mutex_unlock(&registry->lock);
	if (rc)
		return rc;
	if (!config)
		vb_config_default(registry, key, NULL, &defaults);
	(*device)->shared->config = config ? *config : defaults;
	return 0;
}

/* --- the handle --- */

const struct vb_device_info *vb_device_info(const struct vb_device *device)
{
	return &device->shared->info;
}

const struct vb_config *vb_device_config(const struct vb_device *device)
{
	return &device->shared->config;
}

struct vb_context vb_device_context(struct vb_device *device)
{
	struct vb_shared *shared = device->shared;

	__atomic_add_fetch(&shared->refs, 1, __ATOMIC_ACQ_REL);
	return (struct vb_context){shared->context, shared};
}

int vb_context_put(struct vb_context *context)
{
	struct vb_shared *shared = context ? context->inside : NULL;

	if (!shared)
		return 0;
	*context = (struct vb_context){0};
	return shared_put(shared);
}

int vb_device_close(struct vb_device *device)
{
	struct vb_shared *shared;
	struct vb_domain *next;
	int rc = 0, closed;

	if (!device)
		return 0;
	shared = device->shared;
	for (struct vb_domain *it = device->domains; it; it = next) {
		int qps = __atomic_load_n(&it->qps, __ATOMIC_ACQUIRE);
		int regions =
			__atomic_load_n(&it->refs, __ATOMIC_ACQUIRE) - 1 - qps;

		next = it->next;
		if (regions || qps)
			vb_registry_log(shared->registry, VB_LOG_WARNING,
					"%s is closed with %d regions and %d "
					"queue pairs left in domain '%s'",
					shared->info.name, regions, qps,
					it->name);
		closed = vb_domain_put(it);
		rc = rc ? rc : closed;
	}
	unmake(device);
	closed = shared_put(shared);
	return rc ? rc : closed;
}

/* --- domains and regions --- */

static struct vb_domain *find(struct vb_device *device, const char *name)
{
	struct vb_domain *it = device->domains;

	while (it && strcmp(it->name, name) != 0)
		it = it->next;
	return it;
}

struct vb_domain *vb_domain_find(struct vb_device *device, const char *name)
{
	struct vb_domain *found;

	pthread_mutex_lock(&device->lock);
	found = find(device, name);
	pthread_mutex_unlock(&device->lock);
	return found;
}

static int make_domain(struct vb_device *device, const char *name,
		       struct vb_domain **out)
{
	struct vb_shared *shared = device->shared;
	const struct vb_backend *backend = shared->backend;
	struct vb_verbs *verbs = shared->registry->verbs;
	size_t bytes = strlen(name) + 1;
	struct vb_domain *domain = calloc(1, sizeof(*domain) + bytes);
	int rc = 0;

	if (!domain)
		return vb_registry_fail(-ENOMEM, "no memory for a domain");
	memcpy(domain->name, name, bytes);
	if (backend->domain_open)
		rc = backend->domain_open(verbs, shared->context,
					  &domain->strategy);
	if (rc) {
		free(domain);
		return vb_shared_failed(shared, rc,
					"the backend's part of a domain");
	}
	errno = 0;
	domain->pd = verbs->alloc_pd(shared->context);
	if (!domain->pd) {
		rc = errno ? errno : ENOMEM;
		if (backend->domain_close)
			backend->domain_close(domain->strategy);
		free(domain);
		return vb_shared_failed(shared, rc, "alloc_pd");
	}
	domain->shared = shared;
	domain->refs = 1;
	__atomic_add_fetch(&shared->refs, 1, __ATOMIC_ACQ_REL);
	domain->next = device->domains;
	device->domains = domain;
	*out = domain;
	return 0;
}

int vb_domain_open(struct vb_device *device, const char *name,
		   struct vb_domain **domain)
{
	int rc = 0;

	if (!device || !name || !domain)
		return vb_registry_fail(-EINVAL, "a domain has a device and a "
						 "name");
	pthread_mutex_lock(&device->lock);
	*domain = find(device, name);
	if (!*domain)
		rc = make_domain(device, name, domain);
	pthread_mutex_unlock(&device->lock);
	return rc;
}

struct ibv_pd *vb_domain_pd(const struct vb_domain *domain)
{
	return domain->pd;
}

unsigned vb_shared_access(const struct vb_shared *shared)
{
	return shared->backend->access ? shared->backend->access : VB_ACCESS;
}

int vb_region_open(struct vb_domain *domain, void *addr, size_t length,
		   struct vb_region *region)
{
	struct vb_shared *shared;
	struct ibv_mr *mr;

	if (!domain || !addr || !length || !region)
		return vb_registry_fail(-EINVAL, "a region has a domain, an "
						 "address and a length");
	shared = domain->shared;
	errno = 0;
	mr = shared->registry->verbs->reg_mr(domain->pd, addr, length,
					     (int)vb_shared_access(shared));
	if (!mr)
		return vb_shared_failed(shared, errno ? errno : ENOMEM,
					"reg_mr");
	__atomic_add_fetch(&domain->refs, 1, __ATOMIC_ACQ_REL);
	*region = (struct vb_region){addr,     length,		 mr->lkey,
				     mr->rkey, .domain = domain, .mr = mr};
	return 0;
}

int vb_region_close(struct vb_region *region)
{
	struct vb_domain *domain = region ? region->domain : NULL;
	int rc;

	if (!domain)
		return 0;
	rc = domain->shared->registry->verbs->dereg_mr(region->mr);
	if (rc) /* it may still be written to: everything stays */
		return vb_shared_failed(domain->shared, rc, "dereg_mr");
	*region = (struct vb_region){0};
	return vb_domain_put(domain);
}
