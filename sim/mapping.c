/* SPDX-License-Identifier: MIT */
/*
 * Memory that peers copy to and from directly.
 *
 * A region may lie in memory that can be shared in any case: one shared mapping
 * of a memfd that its process still has open, sealed against shrinking (a peer
 * would otherwise die of SIGBUS with it). Peers open that through /proc and map
 * it.
 *
 * With `verbena run --map-memory`, whole pages of private memory are on
 * registration replaced, at their address, by pages of such a file. It is
 * opt-in, because a thread that writes to those pages meanwhile may lose what
 * it writes, and because fork then shares them. What is not whole pages, or
 * neither, stays as it is and is copied by the kernel.
 */
#define _GNU_SOURCE
#include "sim/core.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define PAGE	  4096u
#define SHARE_MIN 65536u /* a shorter region is not worth the look at it */
#define LOOK_NS	  1000000
#define AT_ONCE	  (64u << 20) /* up to here all pages together, not by faults */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int file = -1; /* this process's, for --map-memory */
static uint64_t file_bytes;

/* A peer's region in this process. */
struct view {
	uint32_t key; /* 0: none */
	int32_t pid;
	uint64_t inode;
	uint64_t offset;
	uint64_t length;
	char *at;		   /* NULL: it could not be mapped */
	_Atomic uint64_t alive_ns; /* when its process was last seen */
};
#define VIEWS 1024
static struct view views[VIEWS]; /* by the region's slot, modulo */
/* Who copies reads; who unmaps writes, and so never under a copy. */
static pthread_rwlock_t views_lock = PTHREAD_RWLOCK_INITIALIZER;

static bool is_wanted(void)
{
	const char *text = getenv("VERBENA_MAP_MEMORY");

	return text && *text == '1';
}

/* Is there a page of a file? Cheaper than the list of all mappings. */
static bool is_of_file(uint64_t addr)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entry = 0;
	ssize_t n;

	if (fd < 0)
		return false;
	n = pread(fd, &entry, sizeof(entry),
		  (off_t)(addr / PAGE * sizeof(entry)));
	close(fd);
	return n == sizeof(entry) && entry >> 61 & 1;
}

/* What memory lies at [start, end). */
enum ground { SHARED, PRIVATE, OTHER };

struct place {
	dev_t device;
	uint64_t inode;
	uint64_t offset;
};

static enum ground look_at(uint64_t start, uint64_t end, struct place *place)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	enum ground found = OTHER;
	uint64_t at = start;
	char line[512];

	if (!maps)
		return OTHER;
	while (at < end && fgets(line, sizeof(line), maps)) {
		unsigned long from, to, skip, inode;
		unsigned int major, minor;
		char rights[5];

		if (sscanf(line, "%lx-%lx %4s %lx %x:%x %lu", &from, &to,
			   rights, &skip, &major, &minor, &inode) != 7 ||
		    to <= at)
			continue;
		if (from <= start && to >= end && strcmp(rights, "rw-s") == 0) {
			place->device = makedev(major, minor);
			place->inode = inode;
			place->offset = skip + (start - from);
			found = SHARED;
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

static bool is_sealed(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && (seals & F_SEAL_SHRINK);
}

/* This process's descriptor of that file, or -1. */
static int find_file(const struct place *place)
{
	DIR *dir = opendir("/proc/self/fd");
	const struct dirent *entry;
	int found = -1;

	while (dir && found < 0 && (entry = readdir(dir))) {
		int fd = atoi(entry->d_name); /* ".": 0, and as good as any */
		struct stat is;

		if (fstat(fd, &is) == 0 && is.st_ino == place->inode &&
		    is.st_dev == place->device && is_sealed(fd))
			found = fd;
	}
	if (dir)
		closedir(dir);
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

/* Have a file, which only grows. */
static bool have_file(struct place *place)
{
	struct stat is;

	if (file < 0) {
		file = memfd_create("verbena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		if (file >= 0)
			fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK);
	}
	if (file < 0 || fstat(file, &is) != 0)
		return false;
	place->inode = is.st_ino;
	return true;
}

void sim_map_region(struct sim_world *w, struct sim_mr *mr)
{
	uint64_t end = mr->addr + mr->length;
	bool is_wanted_all = is_wanted();
	struct place place;
	enum ground ground;
	int fd = -1;

	mr->map_fd = -1;
	if (w->fd < 0 || mr->length == 0 || mr->addr % PAGE ||
	    mr->length % PAGE || mr->is_aliased)
		return;
	if (!is_wanted_all && (mr->length < SHARE_MIN || !is_of_file(mr->addr)))
		return;
	pthread_mutex_lock(&lock);
	ground = look_at(mr->addr, end, &place);
	if (ground == SHARED)
		fd = find_file(&place);
	else if (ground == PRIVATE && is_wanted_all && have_file(&place) &&
		 replace(mr->addr, mr->length, &place.offset))
		fd = file;
	if (fd >= 0) {
		mr->map_offset = place.offset;
		mr->map_inode = place.inode;
		mr->map_fd = fd;
	}
	pthread_mutex_unlock(&lock);
}

/* The number may have become another file's, of whatever kind. */
static bool is_the_file(const struct stat *is, const struct sim_mr *mr)
{
	return S_ISREG(is->st_mode) && is->st_ino == mr->map_inode &&
	       (uint64_t)is->st_size >= mr->map_offset + mr->length;
}

/* 0: it has no owner, or no more. */
static int32_t pid_of(const struct sim_world *w, const struct sim_mr *mr)
{
	uint32_t proc = atomic_load(&mr->object.proc);

	return proc < SIM_PROC_MAX ? w->seg->proc[proc].pid : 0;
}

static char *open_view(struct sim_world *w, const struct sim_mr *mr)
{
	int now = mr->length <= AT_ONCE ? MAP_POPULATE : 0;
	void *at = MAP_FAILED;
	struct stat is;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid_of(w, mr),
		 mr->map_fd);
	/* Looked at before it is opened: that alone may change some. */
	if (stat(path, &is) != 0 || !is_the_file(&is, mr))
		return NULL;
	fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return NULL;
	if (fstat(fd, &is) == 0 && is_the_file(&is, mr) && is_sealed(fd))
		at = mmap(NULL, mr->length, PROT_READ | PROT_WRITE,
			  MAP_SHARED | now, fd, (off_t)mr->map_offset);
	close(fd);
	if (at == MAP_FAILED)
		return NULL;
	madvise(at, mr->length, MADV_DONTFORK);
	return at;
}

/* Lock held. */
static void close_view(struct view *view)
{
	if (view->at)
		munmap(view->at, view->length);
	*view = (struct view){0};
}

static struct view *place_of(const struct sim_world *w, const struct sim_mr *mr)
{
	return &views[(mr - w->seg->mr) % VIEWS];
}

static bool is_view_of(const struct sim_world *w, const struct view *view,
		       const struct sim_mr *mr)
{
	return view->key == mr->key && view->pid == pid_of(w, mr) &&
	       view->inode == mr->map_inode && view->offset == mr->map_offset &&
	       view->length == mr->length;
}

/* A view keeps the memory of a region that has ended. Lock held. */
static void sweep(struct sim_world *w)
{
	for (int i = 0; i < VIEWS; i++) {
		const struct sim_mr *mr = &w->seg->mr[views[i].key >> 12];

		if (views[i].key && (!atomic_load(&mr->object.handle) ||
				     !is_view_of(w, &views[i], mr)))
			close_view(&views[i]);
	}
}

void sim_map_sweep(struct sim_world *w)
{
	pthread_rwlock_wrlock(&views_lock);
	sweep(w);
	pthread_rwlock_unlock(&views_lock);
}

static void make_view(struct sim_world *w, const struct sim_mr *mr)
{
	struct view *view = place_of(w, mr);

	pthread_rwlock_wrlock(&views_lock);
	sweep(w);
	/* Two that live at one place: the second is left to the kernel. */
	if (!view->key)
		*view = (struct view){
			.key = mr->key,
			.pid = pid_of(w, mr),
			.inode = mr->map_inode,
			.offset = mr->map_offset,
			.length = mr->length,
			.at = open_view(w, mr),
		};
	pthread_rwlock_unlock(&views_lock);
}

/* Nothing fails when who had the memory is gone; now and then we look. */
static bool is_owner_there(struct sim_world *w, const struct sim_mr *mr,
			   struct view *view)
{
	uint32_t proc = atomic_load(&mr->object.proc);
	uint64_t now = sim_now_ns();

	if (now - atomic_load(&view->alive_ns) < LOOK_NS)
		return true;
	if (proc >= SIM_PROC_MAX || !sim_proc_is_alive(w, proc))
		return false;
	atomic_store(&view->alive_ns, now);
	return true;
}

/* Who waits in memory for the last word has the others then. */
static void copy_in_order(char *to, const char *from, uint64_t length)
{
	uint64_t word, first = length - sizeof(word);

	if (length < sizeof(word) ||
	    ((uintptr_t)to + length) % sizeof(word) != 0) {
		memcpy(to, from, length);
		return;
	}
	memcpy(to, from, first);
	memcpy(&word, from + first, sizeof(word));
	__atomic_store_n((uint64_t *)(void *)(to + first), word,
			 __ATOMIC_RELEASE);
}

bool sim_map_copy(struct sim_world *w, const struct sim_mr *mr, uint64_t far,
		  void *near, uint64_t length, bool is_read)
{
	struct view *view = place_of(w, mr);
	char *at = NULL;

	pthread_rwlock_rdlock(&views_lock);
	if (!is_view_of(w, view, mr)) {
		pthread_rwlock_unlock(&views_lock);
		make_view(w, mr);
		pthread_rwlock_rdlock(&views_lock);
	}
	if (is_view_of(w, view, mr) && view->at && is_owner_there(w, mr, view))
		at = view->at + (far - mr->addr);
	if (at && is_read)
		memcpy(near, at, length);
	else if (at)
		copy_in_order(at, near, length);
	pthread_rwlock_unlock(&views_lock);
	return at != NULL;
}

void sim_map_leave(void)
{
	pthread_rwlock_wrlock(&views_lock);
	for (int i = 0; i < VIEWS; i++)
		close_view(&views[i]);
	pthread_rwlock_unlock(&views_lock);
}

void sim_map_forget(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_rwlock_init(&views_lock, NULL);
	memset(views, 0, sizeof(views)); /* not mapped in a child */
	if (file >= 0)
		close(file); /* the parent's; its pages stay shared with it */
	file = -1;
	file_bytes = 0;
}
