/* SPDX-License-Identifier: MIT */
/*
 * The registry: which backends there are, and what the last walk has found.
 * What a walk does is in walk.c; the contract is section 4 of spec/registry.md.
 */
#include "lib/registry.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Those of this library, in any order: rank decides. */
static const struct vb_backend *shipped[VB_BACKEND_MAX];
static int shipped_count;

static __thread char last_error[256];

void vb_backend_ships(const struct vb_backend *backend)
{
	if (shipped_count < VB_BACKEND_MAX)
		shipped[shipped_count++] = backend;
}

const char *vb_last_error(void)
{
	return last_error;
}

int vb_registry_fail(int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(last_error, sizeof(last_error), format, args);
	va_end(args);
	return error;
}

void vb_registry_log(struct vb_registry *registry, enum vb_level level,
		     const char *format, ...)
{
	char line[256];
	va_list args;

	if (!registry->log)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	registry->log(registry->arg, level, line);
}

int vb_registry_create(const struct vb_registry_options *options,
		       struct vb_registry **out)
{
	static const struct vb_registry_options none;
	struct vb_registry *registry = calloc(1, sizeof(*registry));

	if (!registry)
		return vb_registry_fail(-ENOMEM, "no memory for a registry");
	if (!options)
		options = &none;
	pthread_mutex_init(&registry->lock, NULL);
	registry->pid = getpid();
	registry->refs = 1;
	registry->takes_swapped = options->takes_swapped;
	registry->given = options->verbs;
	registry->sysfs = options->sysfs ? options->sysfs : "/sys";
	registry->log = options->log;
	registry->arg = options->arg;
	for (int i = 0; i < shipped_count && !options->has_no_backends; i++)
		vb_backend_register(registry, shipped[i]);
	*out = registry;
	return 0;
}

void vb_registry_ref(struct vb_registry *registry)
{
	__atomic_add_fetch(&registry->refs, 1, __ATOMIC_ACQ_REL);
}

void vb_registry_destroy(struct vb_registry *registry)
{
	if (registry)
		vb_registry_unref(registry);
}

void vb_registry_unref(struct vb_registry *registry)
{
	if (__atomic_sub_fetch(&registry->refs, 1, __ATOMIC_ACQ_REL))
		return;
	vb_registry_forget(registry);
	vb_verbs_put(registry->verbs);
	pthread_mutex_destroy(&registry->lock);
	free(registry);
}

int vb_registry_backend(const struct vb_registry *registry, const char *key)
{
	for (int i = 0; key && i < registry->backend_count; i++)
		if (strcmp(registry->backend[i]->key, key) == 0)
			return i;
	return -1;
}

/* --- who may come in --- */

/* The registry whose walk this thread is in: its lock is ours already. */
static __thread struct vb_registry *walking;

int vb_registry_take(struct vb_registry *registry)
{
	if (!registry)
		return vb_registry_fail(-EINVAL, "no registry given");
	if (walking == registry)
		return vb_registry_fail(-EDEADLK,
					"the registry is called from a "
					"function of its own backend");
	if (registry->pid != getpid())
		return vb_registry_fail(-ECHILD,
					"this registry is of process %d, which "
					"has forked: create another",
					(int)registry->pid);
	pthread_mutex_lock(&registry->lock);
	return 0;
}

static int walk(struct vb_registry *registry)
{
	int rc;

	walking = registry;
	rc = vb_registry_walk(registry);
	walking = NULL;
	return rc;
}

/* A walk that had no device list is not the last word: the next asks again. */
int vb_registry_enter(struct vb_registry *registry)
{
	int rc = vb_registry_take(registry);

	if (rc)
		return rc;
	if (!registry->generation)
		rc = walk(registry);
	if (rc == -ENOMEM) {
		pthread_mutex_unlock(&registry->lock);
		return rc;
	}
	return 0;
}

int vb_registry_refresh(struct vb_registry *registry)
{
	int rc = vb_registry_take(registry);

	if (rc)
		return rc;
	rc = walk(registry);
	pthread_mutex_unlock(&registry->lock);
	return rc;
}

int vb_backend_register(struct vb_registry *registry,
			const struct vb_backend *backend)
{
	int at, rc;

	if (!backend || !backend->key || !backend->name || !backend->claim)
		return vb_registry_fail(-EINVAL, "a backend has a key, a name "
						 "and a claim function");
	rc = vb_registry_take(registry);
	if (rc)
		return rc;
	at = registry->backend_count;
	if (registry->generation)
		rc = vb_registry_fail(-EBUSY,
				      "backend '%s' comes after the first walk",
				      backend->key);
	else if (vb_registry_backend(registry, backend->key) >= 0)
		rc = vb_registry_fail(-EEXIST, "there is a backend '%s'",
				      backend->key);
	else if (at == VB_BACKEND_MAX)
		rc = vb_registry_fail(-ENOSPC, "at most %d backends",
				      VB_BACKEND_MAX);
	for (; !rc && at > 0 && registry->backend[at - 1]->rank > backend->rank;
	     at--)
		registry->backend[at] = registry->backend[at - 1];
	if (!rc) {
		registry->backend[at] = backend;
		registry->backend_count++;
	}
	pthread_mutex_unlock(&registry->lock);
	return rc;
}

/* --- what there is --- */

static bool is_of(const struct vb_device_info *info, const char *key)
{
	return !key || strcmp(info->backend, key) == 0;
}

/* Copies of those of this backend, behind those there are. */
static int copy_those_of(const struct vb_registry *registry, const char *key,
			 struct vb_devices *out)
{
	for (int i = 0; i < registry->info_count; i++) {
		int rc;

		if (!is_of(&registry->info[i], key))
			continue;
		rc = vb_info_copy(&registry->info[i], &out->info[out->count]);
		if (rc)
			return rc;
		out->count++;
	}
	return 0;
}

int vb_devices_list(struct vb_registry *registry, const char *key,
		    struct vb_devices *out)
{
	int rc;

	memset(out, 0, sizeof(*out));
	rc = vb_registry_enter(registry);
	if (rc)
		return rc;
	if (key && vb_registry_backend(registry, key) < 0)
		rc = vb_registry_fail(-ENOENT, "no backend '%s'", key);
	out->generation = registry->generation;
	if (!rc && registry->info_count) {
		out->info = calloc((size_t)registry->info_count,
				   sizeof(*out->info));
		rc = out->info ? 0 : -ENOMEM;
	}
	for (int i = 0; !rc && i < registry->backend_count; i++)
		if (!key || strcmp(registry->backend[i]->key, key) == 0)
			rc = copy_those_of(registry, registry->backend[i]->key,
					   out);
	pthread_mutex_unlock(&registry->lock);
	if (rc == -ENOMEM)
		vb_registry_fail(rc, "no memory for the device list");
	if (rc)
		vb_devices_free(out);
	return rc;
}

void vb_devices_free(struct vb_devices *devices)
{
	if (!devices)
		return;
	for (int i = 0; i < devices->count; i++)
		vb_info_fini(&devices->info[i]);
	free(devices->info);
	devices->info = NULL;
	devices->count = 0;
}

bool vb_available(struct vb_registry *registry, const char *key)
{
	bool is = false;

	if (!key || vb_registry_enter(registry))
		return false;
	for (int i = 0; i < registry->info_count && !is; i++)
		is = is_of(&registry->info[i], key);
	pthread_mutex_unlock(&registry->lock);
	return is;
}

int vb_registry_report(struct vb_registry *registry, struct vb_report *out)
{
	size_t bytes;
	int rc;

	memset(out, 0, sizeof(*out));
	rc = vb_registry_enter(registry);
	if (rc)
		return rc;
	bytes = sizeof(*out->absent) * (size_t)registry->absent_count;
	out->generation = registry->generation;
	out->list_error = registry->list_error;
	if (bytes) {
		out->absent = malloc(bytes);
		rc = out->absent ? 0 : -ENOMEM;
	}
	if (out->absent) {
		memcpy(out->absent, registry->absent, bytes);
		out->count = registry->absent_count;
	}
	pthread_mutex_unlock(&registry->lock);
	return rc;
}

void vb_report_free(struct vb_report *report)
{
	if (!report)
		return;
	free(report->absent);
	report->absent = NULL;
	report->count = 0;
}
