/* SPDX-License-Identifier: MIT */
/*
 * One walk over the host's devices: each is opened, offered to the backends in
 * order, asked about itself and closed again, before the next is looked at
 * (rows E of spec/registry.md). Nothing that fails ends the walk.
 */
#include "lib/registry.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is being gathered; it replaces the last walk's when it is whole. */
struct walk {
	struct vb_registry *registry;
	struct vb_device_info *info;
	int info_count;
	struct vb_absent *absent;
	int absent_count;
	bool has_no_memory;
};

static void fini(struct vb_device_info *info, int count,
		 struct vb_absent *absent)
{
	for (int i = 0; i < count; i++)
		vb_info_fini(&info[i]);
	free(info);
	free(absent);
}

void vb_registry_forget(struct vb_registry *registry)
{
	fini(registry->info, registry->info_count, registry->absent);
	registry->info = NULL;
	registry->absent = NULL;
	registry->info_count = registry->absent_count = 0;
}

static void name_of(struct vb_verbs *verbs, struct ibv_device *device,
		    char name[VB_NAME_MAX])
{
	const char *given = verbs->get_device_name(device);

	snprintf(name, VB_NAME_MAX, "%s", given ? given : "");
}

/* Recorded, and said once. */
static void leave_out(struct walk *walk, struct vb_absent absent,
		      const char *format, ...)
	__attribute__((format(printf, 3, 4)));
static void leave_out(struct walk *walk, struct vb_absent absent,
		      const char *format, ...)
{
	size_t bytes = sizeof(absent) * (size_t)(walk->absent_count + 1);
	struct vb_absent *grown = realloc(walk->absent, bytes);
	va_list args;

	va_start(args, format);
	vsnprintf(absent.text, sizeof(absent.text), format, args);
	va_end(args);
	vb_registry_log(walk->registry,
			absent.why == VB_UNCLAIMED ? VB_LOG_INFO
						   : VB_LOG_WARNING,
			"device %s is left out: %s", absent.name, absent.text);
	if (!grown) {
		walk->has_no_memory = true;
		return;
	}
	walk->absent = grown;
	grown[walk->absent_count++] = absent;
}

/* The first backend whose device it is, or NULL. */
static const struct vb_backend *find_owner(struct walk *walk,
					   struct ibv_context *context,
					   const char *name, char reason[128],
					   bool *is_usable)
{
	struct vb_registry *registry = walk->registry;

	for (int i = 0; i < registry->backend_count; i++) {
		const struct vb_backend *backend = registry->backend[i];
		int claim;

		reason[0] = 0;
		claim = backend->claim(registry->verbs, context, reason);
		if (claim < 0)
			vb_registry_log(registry, VB_LOG_WARNING,
					"backend %s failed to look at %s: %s",
					backend->key, name, strerror(-claim));
		*is_usable = claim == VB_CLAIM_YES;
		if (*is_usable || claim == VB_CLAIM_UNUSABLE)
			return backend;
	}
	return NULL;
}

static void keep(struct walk *walk, const struct vb_device_info *info)
{
	size_t bytes = sizeof(*info) * (size_t)(walk->info_count + 1);
	struct vb_device_info *grown = realloc(walk->info, bytes);

	if (!grown) {
		walk->has_no_memory = true;
		return;
	}
	walk->info = grown;
	grown[walk->info_count++] = *info;
}

static void classify(struct walk *walk, struct ibv_context *context,
		     const char name[VB_NAME_MAX])
{
	struct vb_absent absent = {.why = VB_UNCLAIMED};
	struct vb_device_info info = {0};
	const struct vb_backend *owner;
	char reason[128];
	bool is_usable;

	memcpy(absent.name, name, VB_NAME_MAX);
	owner = find_owner(walk, context, name, reason, &is_usable);
	if (!owner) {
		leave_out(walk, absent, "no backend claims it");
		return;
	}
	absent.backend = owner->key;
	absent.why = VB_UNUSABLE;
	if (!is_usable) {
		reason[sizeof(reason) - 1] = 0;
		leave_out(walk, absent, "backend %s cannot use it: %s",
			  owner->key, reason);
		return;
	}
	absent.why = VB_QUERY_FAILED;
	memcpy(info.name, name, VB_NAME_MAX);
	info.backend = owner->key;
	info.backend_name = owner->name;
	absent.error = vb_info_query(walk->registry, context, &info, reason);
	if (absent.error) {
		leave_out(walk, absent, "%s", reason);
		return;
	}
	keep(walk, &info);
}

static void look_at(struct walk *walk, struct ibv_device *device)
{
	struct vb_verbs *verbs = walk->registry->verbs;
	struct vb_absent absent = {.why = VB_OPEN_FAILED};
	struct ibv_context *context;
	int rc;

	name_of(verbs, device, absent.name);
	errno = 0;
	context = verbs->open_device(device);
	if (!context) {
		absent.error = errno ? -errno : -ENODEV;
		leave_out(walk, absent, "open_device: %s",
			  strerror(-absent.error));
		return;
	}
	classify(walk, context, absent.name);
	rc = verbs->close_device(context);
	if (rc)
		vb_registry_log(walk->registry, VB_LOG_ERROR,
				"close_device of %s: %s", absent.name,
				strerror(abs(rc)));
}

static int no_list(struct vb_registry *registry, int error, const char *what)
{
	registry->list_error = error;
	vb_registry_log(registry, VB_LOG_WARNING, "no devices: %s: %s", what,
			strerror(-error));
	return vb_registry_fail(error, "no devices: %s: %s", what,
				strerror(-error));
}

int vb_registry_walk(struct vb_registry *registry)
{
	struct walk walk = {.registry = registry};
	struct ibv_device **list;
	int count = 0;

	if (!registry->verbs &&
	    vb_verbs_get(registry->given, &registry->verbs) != 0)
		return no_list(registry, -ENODEV, "no verbs library");
	errno = 0;
	list = registry->verbs->get_device_list(&count);
	if (!list)
		return no_list(registry, errno ? -errno : -ENODEV,
			       "get_device_list");
	for (int i = 0; i < count; i++)
		if (list[i])
			look_at(&walk, list[i]);
	registry->verbs->free_device_list(list);
	if (walk.has_no_memory) {
		fini(walk.info, walk.info_count, walk.absent);
		return vb_registry_fail(-ENOMEM, "no memory to walk devices");
	}
	vb_registry_forget(registry);
	registry->info = walk.info;
	registry->info_count = walk.info_count;
	registry->absent = walk.absent;
	registry->absent_count = walk.absent_count;
	registry->list_error = 0;
	registry->generation++;
	return 0;
}
