/* SPDX-License-Identifier: MIT */
/* The device list, and opening and closing a device. */
#define _GNU_SOURCE
#include "sim/verbs_front.h"

#include <arpa/inet.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct front_device devices[SIM_HOST_COUNT];
static struct front_context *contexts; /* open ones, for imports */
static uint32_t last_id;

/* The same pointer for the same device, as long as the process lives; and the
 * same contents, as others read them, but in another world. */
static struct front_device *device_of(struct sim_world *w, uint32_t host)
{
	const struct sim_model *model = sim_model_of(sim_host_of(w, host));
	struct front_device front;

	memset(&front, 0, sizeof(front));
	front.foreign_ops = &devices; /* nobody's operations */
	front.host = host;
	front.device.node_type = (enum ibv_node_type)model->node_type;
	front.device.transport_type =
		(enum ibv_transport_type)model->transport_type;
	snprintf(front.device.name, sizeof(front.device.name), "%s",
		 model->device_name);
	snprintf(front.device.dev_name, sizeof(front.device.dev_name),
		 "uverbs0");
	snprintf(front.device.dev_path, sizeof(front.device.dev_path),
		 "/sys/class/infiniband_verbs/uverbs0");
	snprintf(front.device.ibdev_path, sizeof(front.device.ibdev_path),
		 "/sys/class/infiniband/%s", model->device_name);
	pthread_mutex_lock(&lock);
	if (memcmp(&devices[host], &front, sizeof(front)) != 0)
		devices[host] = front;
	pthread_mutex_unlock(&lock);
	return &devices[host];
}

struct ibv_device **ibv_get_device_list(int *num_devices)
{
	struct sim_world *w = sim_self();
	struct ibv_device **list;
	struct sim_ctx ctx = {.world = w};
	int error;

	if (num_devices)
		*num_devices = 0;
	if (!w)
		return NULL;
	ctx.host = (uint32_t)sim_self_host(w);
	error = sim_tap_call(&ctx, SIM_CALL_GET_DEVICE_LIST);
	if (error)
		return fail_ptr(-error);
	list = calloc(2, sizeof(*list));
	if (!list)
		return fail_ptr(-ENOMEM);
	list[0] = &device_of(w, ctx.host)->device;
	if (num_devices)
		*num_devices = 1;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	struct sim_world *w = sim_self();
	uint32_t host = ((struct front_device *)device)->host;

	return w ? htobe64(sim_host_of(w, host)->guid) : 0;
}

/* Needs netlink; -1 says that the kernel cannot tell. */
int ibv_get_device_index(struct ibv_device *device)
{
	(void)device;
	return -1;
}

/* A context with `cmd_fd` as its command descriptor, which it then owns; -1:
 * there is no kernel behind us, a descriptor that answers nothing will do. */
static struct ibv_context *open_context(struct ibv_device *device, int cmd_fd,
					uint32_t id)
{
	struct sim_world *w = sim_self();
	struct front_context *front;
	struct ibv_context *context;
	int error, rc;

	if (!w)
		return NULL;
	front = calloc(1, sizeof(*front));
	if (!front)
		return fail_ptr(-ENOMEM);
	front->sim.world = w;
	front->sim.host = ((struct front_device *)device)->host;
	front->sim.id =
		id ? id : __atomic_add_fetch(&last_id, 1, __ATOMIC_RELAXED);
	context = &front->verbs.context;
	error = front_tap(context, SIM_CALL_OPEN_DEVICE);
	rc = error ? -error
		   : sim_channel_create(&front->sim, &front->async_channel,
					&context->async_fd);
	if (rc) {
		free(front);
		return fail_ptr(rc);
	}
	front->sim.async_channel = front->async_channel;
	front->verbs.sz = sizeof(front->verbs);
	context->abi_compat = (void *)UINTPTR_MAX; /* extended */
	context->device = device;
	context->num_comp_vectors = 1;
	context->cmd_fd = cmd_fd < 0 ? context->async_fd : cmd_fd;
	pthread_mutex_init(&context->mutex, NULL);
	front_fill_ops(front);
	pthread_mutex_lock(&lock);
	front->next = contexts;
	contexts = front;
	pthread_mutex_unlock(&lock);
	return context;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	return open_context(device, -1, 0);
}

int ibv_close_device(struct ibv_context *context)
{
	struct front_context *front = front_of(context);
	struct front_context **at = &contexts;
	bool is_last = true;

	pthread_mutex_lock(&lock);
	while (*at != front)
		at = &(*at)->next;
	*at = front->next;
	for (struct front_context *left = contexts; left; left = left->next)
		is_last &= left->sim.id != front->sim.id;
	pthread_mutex_unlock(&lock);
	sim_channel_destroy(&front->sim, front->async_channel);
	/* 3.1: a kernel cleans up when the last descriptor is closed. */
	if (is_last)
		sim_ctx_reap(&front->sim);
	if (context->cmd_fd != context->async_fd)
		close(context->cmd_fd);
	close(context->async_fd);
	pthread_mutex_destroy(&context->mutex);
	free(front);
	return 0;
}

/* The device of the context whose command descriptor this is a copy of, if
 * that context is this process's. */
struct ibv_context *ibv_import_device(int cmd_fd)
{
	struct ibv_device *device = NULL;
	struct stat have, want;
	uint32_t id = 0;

	if (fstat(cmd_fd, &want) != 0)
		return NULL;
	pthread_mutex_lock(&lock);
	for (struct front_context *at = contexts; at; at = at->next)
		if (fstat(at->verbs.context.cmd_fd, &have) == 0 &&
		    have.st_dev == want.st_dev && have.st_ino == want.st_ino) {
			device = at->verbs.context.device;
			id = at->sim.id;
		}
	pthread_mutex_unlock(&lock);
	return device ? open_context(device, cmd_fd, id)
		      : fail_ptr(-EOPNOTSUPP);
}

/* The world copies on the far side's behalf, so fork needs no care. */
int ibv_fork_init(void)
{
	return 0;
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

int ibv_dontfork_range(void *base, size_t size);
int ibv_dofork_range(void *base, size_t size);

int ibv_dontfork_range(void *base, size_t size)
{
	(void)base;
	(void)size;
	return 0;
}

int ibv_dofork_range(void *base, size_t size)
{
	(void)base;
	(void)size;
	return 0;
}
