/* SPDX-License-Identifier: MIT */
/*
 * Which world, and which host of it, verbs called from this process act on.
 *
 * The environment says: VERBENA_WORLD (default: one world a user),
 * VERBENA_MODEL (only used when the world is created) and VERBENA_HOST.
 */
#define _GNU_SOURCE
#include "sim/core.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sim/diag.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_world *self;
static bool is_given; /* by sim_world_use: not ours to close */
static __thread int thread_host = -1;

/* A fork's child inherits the mapping and its contexts, but nothing in the
 * world is its own: slot 0 owns nothing, so that every call on an inherited
 * object is an error. It joins anew when it asks for devices. */
static void forget_in_child(void)
{
	pthread_mutex_init(&lock, NULL);
	sim_timer_forget();
	sim_mover_forget();
	sim_map_forget();
	if (!self || is_given)
		return;
	self->proc = 0;
	if (self->fd >= 0)
		close(self->fd);
	if (self->notify_fd >= 0)
		close(self->notify_fd);
	self->fd = self->notify_fd = -1;
	self = NULL;
}

static int host_from_env(char *error)
{
	const char *text = getenv("VERBENA_HOST");

	if (!text || !*text)
		return 0;
	if (strlen(text) == 1 && text[0] >= 'a' &&
	    text[0] < 'a' + SIM_HOST_COUNT)
		return text[0] - 'a' + 1;
	snprintf(error, SIM_ERROR_MAX, "VERBENA_HOST='%.40s': not a or b",
		 text);
	return -EINVAL;
}

static int join(void)
{
	char error[SIM_ERROR_MAX], name[SIM_NAME_MAX];
	const char *world = getenv("VERBENA_WORLD");
	const char *model = getenv("VERBENA_MODEL");
	struct sim_world_config config = {.model = {model, model}};
	int rc;

	snprintf(name, sizeof(name), "uid%u", (unsigned)geteuid());
	config.name = world && *world ? world : name;
	config.host = host_from_env(error);
	rc = config.host < 0 ? config.host
			     : sim_world_open(&config, &self, error);
	if (rc) {
		sim_diag("world", "no emulated devices", "%s", error);
		return rc;
	}
	pthread_atfork(NULL, NULL, forget_in_child);
	return 0;
}

struct sim_world *sim_self(void)
{
	struct sim_world *w = __atomic_load_n(&self, __ATOMIC_ACQUIRE);
	int rc = 0;

	if (w)
		return w;
	pthread_mutex_lock(&lock);
	if (!self)
		rc = join();
	w = self;
	pthread_mutex_unlock(&lock);
	if (rc)
		errno = -rc;
	return w;
}

int sim_self_host(struct sim_world *w)
{
	return thread_host >= 0 ? thread_host : sim_world_host(w);
}

void sim_world_use(struct sim_world *world)
{
	self = world;
	is_given = world != NULL;
}

void sim_host_set(int host)
{
	thread_host = host;
}

/* At exit the objects of a program that did not clean up are freed, as a
 * kernel does when the last descriptor closes. */
__attribute__((destructor)) static void leave(void)
{
	sim_timer_stop();
	if (self && !is_given)
		sim_world_leave(self);
}
