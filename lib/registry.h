/* SPDX-License-Identifier: MIT */
/* The registry's inside, shared by its files. */
#ifndef VB_REGISTRY_H
#define VB_REGISTRY_H

#include <pthread.h>
#include <sys/types.h>

#include "lib/verbs.h"

#define VB_BACKEND_MAX 32
#define VB_GID_LIMIT   4096 /* of a table: no device has as many */

struct vb_registry {
	pthread_mutex_t lock; /* held through a walk: others wait for it */
	int refs;	      /* itself, and each open context */
	bool takes_swapped;
	pid_t pid;
	struct vb_verbs *verbs;
	struct vb_verbs *given; /* what the options said, or NULL */
	const char *sysfs;
	void (*log)(void *arg, enum vb_level level, const char *line);
	void *arg;

	/* In order: rank, then as registered. */
	const struct vb_backend *backend[VB_BACKEND_MAX];
	int backend_count;

	/* Of the last walk that had a device list; 0: there was none. */
	uint64_t generation;
	int list_error;
	struct vb_device_info *info;
	int info_count;
	struct vb_absent *absent;
	int absent_count;
};

/* A backend that ships: one line at the end of its file. */
void vb_backend_ships(const struct vb_backend *backend);
#define VB_BACKEND(it)                                           \
	__attribute__((constructor)) static void ship_##it(void) \
	{                                                        \
		vb_backend_ships(&it);                           \
	}                                                        \
	struct vb_backend

/* registry.c. Say something to the log callback, if there is one. */
void vb_registry_log(struct vb_registry *registry, enum vb_level level,
		     const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Remember a failure for vb_last_error, and return its errno. */
int vb_registry_fail(int error, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Take the lock; and with the registry walked. A negative errno: not taken. */
int vb_registry_take(struct vb_registry *registry);
int vb_registry_enter(struct vb_registry *registry);
/* The index of a backend, or -1. Lock held. */
int vb_registry_backend(const struct vb_registry *registry, const char *key);

/* References; the last ends it. */
void vb_registry_ref(struct vb_registry *registry);
void vb_registry_unref(struct vb_registry *registry);

/* walk.c: with the lock held, look at the host's devices. */
int vb_registry_walk(struct vb_registry *registry);
void vb_registry_forget(struct vb_registry *registry);

/* device_info.c: what a device says of itself. A negative errno, and why in
 * `reason` (128 bytes); then nothing is kept. */
int vb_info_query(struct vb_registry *registry, struct ibv_context *context,
		  struct vb_device_info *info, char *reason);
int vb_info_copy(const struct vb_device_info *from, struct vb_device_info *to);
void vb_info_fini(struct vb_device_info *info);
/* A port by its number, or NULL. */
const struct vb_port *vb_info_port(const struct vb_device_info *info, int num);

#endif
