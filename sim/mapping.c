/* SPDX-License-Identifier: MIT */
/*
 * Memory that peers copy to and from directly (verbena run --map-memory).
 *
 * On registration, whole pages of private memory are replaced, at their
 * address, by pages of a file that only has a descriptor; peers open that
 * through /proc and map it. It is opt-in, because a thread that writes to those
 * pages while they are registered may lose what it writes, and because fork
 * then shares them. What is not whole pages, or no private memory, stays as it
 * is and is copied by the kernel.
 */
#define _GNU_SOURCE
#include "sim/core.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int file = -1; /* this process's */
static uint64_t file_bytes;

/* A peer's region in this process, by its slot in the table. */
struct view {
	uint32_t key; /* 0: none */
	int32_t pid;
	uint64_t offset;
	void *at;
	uint64_t length;
};
static struct view *views;

static bool is_wanted(void)
{
	const char *text = getenv("VERBENA_MAP_MEMORY");

	return text && *text == '1';
}

/* What lies at [start, end): the file at *offset; private memory; or else. */
enum ground { OURS, PRIVATE, OTHER };

static enum ground look_at(uint64_t start, uint64_t end, uint64_t *offset)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	enum ground found = OTHER;
	uint64_t at = start;
	struct stat own;
	char line[512];

	if (!maps)
		return OTHER;
	if (fstat(file, &own) != 0)
		own.st_ino = 0;
	while (at < end && fgets(line, sizeof(line), maps)) {
		unsigned long from, to, skip, inode;
		char rights[5];

		if (sscanf(line, "%lx-%lx %4s %lx %*s %lu", &from, &to, rights,
			   &skip, &inode) != 5 ||
		    to <= at)
			continue;
		if (from <= start && to >= end && own.st_ino &&
		    inode == own.st_ino) {
			*offset = skip + (start - from);
			found = OURS;
			break;
		}
		if (from > at || inode || strcmp(rights, "rw-p") != 0 ||
		    strstr(line, "[stack"))
			break;
		found = to >= end ? PRIVATE : OTHER;
		at = to;
	}
	fclose(maps);
	return found;
}

/* Put the pages into the file, at *offset, and the file in their place. */
static bool replace(uint64_t start, uint64_t bytes, uint64_t *offset)
{
	void *at = (void *)(uintptr_t)start;

	*offset = file_bytes;
	if (ftruncate(file, (off_t)(file_bytes + bytes)) != 0)
		return false;
	file_bytes += bytes;
	for (uint64_t done = 0; done < bytes;) {
		ssize_t n = pwrite(file, (char *)at + done, bytes - done,
				   (off_t)(*offset + done));

		if (n <= 0)
			return false;
		done += (uint64_t)n;
	}
	return mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		    file, (off_t)*offset) == at;
}

void sim_map_region(struct sim_world *w, struct sim_mr *mr)
{
	uint64_t offset = 0;
	enum ground ground;

	mr->map_fd = -1;
	if (w->fd < 0 || mr->length == 0 || mr->addr % PAGE ||
	    mr->length % PAGE || !is_wanted())
		return;
	pthread_mutex_lock(&lock);
	if (file < 0)
		file = memfd_create("verbena", MFD_CLOEXEC);
	ground = file < 0 ? OTHER
			  : look_at(mr->addr, mr->addr + mr->length, &offset);
	if (ground == OURS ||
	    (ground == PRIVATE && replace(mr->addr, mr->length, &offset))) {
		mr->map_offset = offset;
		mr->map_fd = file;
	}
	pthread_mutex_unlock(&lock);
}

static void *open_view(struct sim_world *w, const struct sim_mr *mr)
{
	char path[64];
	void *at;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d",
		 (int)w->seg->proc[mr->object.proc].pid, mr->map_fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	at = mmap(NULL, mr->length, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		  (off_t)mr->map_offset);
	close(fd);
	return at == MAP_FAILED ? NULL : at;
}

/* The view of a region, made when it is first looked for; NULL without one. */
static void *view_of(struct sim_world *w, const struct sim_mr *mr)
{
	struct view *view;
	int32_t pid;

	if (!views)
		views = calloc(SIM_MR_MAX, sizeof(*views));
	if (!views)
		return NULL;
	view = &views[mr - w->seg->mr];
	pid = w->seg->proc[mr->object.proc].pid;
	if (view->key == mr->key && view->pid == pid &&
	    view->offset == mr->map_offset)
		return view->at;
	if (view->at)
		munmap(view->at, view->length);
	view->at = open_view(w, mr);
	view->key = mr->key;
	view->pid = pid;
	view->offset = mr->map_offset;
	view->length = mr->length;
	return view->at;
}

bool sim_map_span(struct sim_world *w, const struct sim_mr *mr,
		  struct sim_span *span)
{
	char *at = NULL;

	if (mr->map_fd < 0 || mr->kind != SIM_MR_REGION || mr->is_aliased)
		return false;
	pthread_mutex_lock(&lock);
	at = view_of(w, mr);
	pthread_mutex_unlock(&lock);
	if (at)
		span->addr = (uintptr_t)at + (span->addr - mr->addr);
	return at != NULL;
}

void sim_map_leave(void)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; views && i < SIM_MR_MAX; i++)
		if (views[i].at)
			munmap(views[i].at, views[i].length);
	free(views);
	views = NULL;
	pthread_mutex_unlock(&lock);
}

void sim_map_forget(void)
{
	pthread_mutex_init(&lock, NULL);
	if (file >= 0)
		close(file); /* the parent's; its pages stay shared with it */
	file = -1;
	file_bytes = 0;
}
