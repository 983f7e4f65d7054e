/* SPDX-License-Identifier: MIT */
/*
 * Worlds: create, join, leave, and take over from processes that died.
 *
 * A shared world is one file in /dev/shm. Whoever joins or leaves holds a
 * flock on it, which the kernel drops when its holder dies; the last one out
 * removes the file, and one who finds only dead members starts it afresh.
 */
#define _GNU_SOURCE
#include "sim/world.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/core.h"
#include "sim/model.h"

#define MAGIC	    0x31616e6562726556ull /* "Verbena1" */
#define SHM_PREFIX  "/dev/shm/verbena."
#define HIGH_FD	    900 /* out of the way of the program's own */
#define JOIN_ROUNDS 100

static size_t segment_bytes(void)
{
	size_t page = 4096;

	return (sizeof(struct sim_segment) + page - 1) / page * page +
	       SIM_ARENA_BYTES;
}

void sim_mutex_init(pthread_mutex_t *mutex)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(mutex, &attr);
	pthread_mutexattr_destroy(&attr);
}

void sim_lock(pthread_mutex_t *mutex)
{
	if (pthread_mutex_lock(mutex) == EOWNERDEAD)
		pthread_mutex_consistent(mutex);
}

void sim_unlock(pthread_mutex_t *mutex)
{
	pthread_mutex_unlock(mutex);
}

/*
 * A process lives while it holds the lock on byte `slot` of the world's file,
 * taken through a descriptor that closes on exec: the kernel drops it at
 * death and at exec, whatever pids and namespaces are about.
 */
static int slot_lock(struct sim_world *w, uint32_t slot, int command,
		     struct flock *lock)
{
	*lock = (struct flock){
		.l_type = F_WRLCK,
		.l_whence = SEEK_SET,
		.l_start = slot,
		.l_len = 1,
	};
	return fcntl(w->fd, command, lock);
}

bool sim_proc_is_alive(struct sim_world *w, uint32_t slot)
{
	struct flock lock;

	/* Our own lock does not show; a private world has nobody else. What
	 * cannot be told is alive: the living must not be reaped. */
	if (slot == sim_locker_slot(w->locker) || w->fd < 0)
		return true;
	return slot_lock(w, slot, F_OFD_GETLK, &lock) != 0 ||
	       lock.l_type != F_UNLCK;
}

bool sim_proc_is_stopped(struct sim_world *w, uint32_t slot)
{
	char path[40], text[512] = "", *state;
	FILE *stat;

	if (slot >= SIM_PROC_MAX || slot == sim_locker_slot(w->locker))
		return false;
	snprintf(path, sizeof(path), "/proc/%d/stat", w->seg->proc[slot].pid);
	stat = fopen(path, "re");
	if (!stat)
		return false;
	if (!fgets(text, sizeof(text), stat))
		text[0] = 0;
	fclose(stat);
	state = strrchr(text, ')');
	return state && state[1] == ' ' && state[2] == 'T';
}

static int count_live(struct sim_segment *seg, bool with_observers)
{
	int count = 0;

	for (int i = 0; i < SIM_PROC_MAX; i++)
		if (seg->proc[i].life == SIM_LIVE &&
		    (with_observers || !seg->proc[i].is_observer))
			count++;
	return count;
}

void sim_world_reap(struct sim_world *w, pid_t pid)
{
	struct sim_segment *seg = w->seg;

	/* One reaper at a time. A slot is claimed with its lock held, so that
	 * LIVE without the lock means dead. */
	sim_lock(&seg->reap_lock);
	for (uint32_t i = 1; i < SIM_PROC_MAX; i++) {
		struct sim_proc *proc = &seg->proc[i];

		if (proc->life != SIM_LIVE || (pid && proc->pid != pid) ||
		    sim_proc_is_alive(w, i))
			continue;
		sim_proc_reap_objects(w, i);
		sim_map_sweep(w);
		atomic_store(&proc->life, SIM_FREE);
	}
	sim_unlock(&seg->reap_lock);
}

static bool is_name_ok(const char *name)
{
	size_t len = strlen(name);

	if (len == 0 || len > SIM_NAME_MAX - 1 || name[0] == '.')
		return false;
	return strspn(name, "abcdefghijklmnopqrstuvwxyz"
			    "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == len;
}

static void init_tables(struct sim_segment *seg)
{
	for (int i = 0; i < SIM_ATOMIC_LOCKS; i++)
		sim_mutex_init(&seg->atomic_lock[i]);
}

static int init_segment(struct sim_world *w,
			const struct sim_world_config *config, char *error)
{
	struct sim_segment *seg = w->seg;

	sim_mutex_init(&seg->lock);
	sim_mutex_init(&seg->reap_lock);
	init_tables(seg);
	seg->bytes = segment_bytes();
	seg->arena_next = 1; /* offset 0 means none */
	if (getrandom(&seg->id, sizeof(seg->id), 0) != sizeof(seg->id))
		seg->id = (uint64_t)getpid() << 32 ^ sim_now_ns();
	for (int host = 0; host < SIM_HOST_COUNT; host++) {
		const char *text = config->model[host];
		int rc = sim_model_apply(&seg->host[host], (uint32_t)host,
					 text ? text : sim_model_default(),
					 error);
		if (rc)
			return rc;
	}
	sim_model_cable(seg->host);
	seg->late_ns = config->late_ns;
	seg->spares_owned = config->spares_owned;
	if (seg->late_ns)
		atomic_fetch_or(&seg->watched, SIM_WATCH_LATE);
	if (config->plan_text) {
		int rc = sim_world_arm(w, config->faults, config->fault_count,
				       config->plan_text);
		if (rc) {
			snprintf(error, SIM_ERROR_MAX, "the plan is too long");
			return rc;
		}
	}
	atomic_thread_fence(memory_order_release);
	seg->magic = MAGIC;
	return 0;
}

/* A plan that a joiner gives must be the one that the world runs. */
static int check_plan(struct sim_world *w,
		      const struct sim_world_config *config, char *error)
{
	if (!config->plan_text || strcmp(config->plan_text, w->seg->plan) == 0)
		return 0;
	snprintf(error, SIM_ERROR_MAX,
		 "world '%s' already runs %s; give --plan to its first "
		 "program, or name another --world",
		 w->name, w->seg->plan[0] ? "another plan" : "without a plan");
	return -EEXIST;
}

static int check_late(struct sim_world *w,
		      const struct sim_world_config *config, char *error)
{
	if (!config->late_ns || (config->late_ns == w->seg->late_ns &&
				 config->spares_owned == w->seg->spares_owned))
		return 0;
	snprintf(error, SIM_ERROR_MAX,
		 "world '%s' was made %s; give --late to its first program, "
		 "or name another --world",
		 w->name,
		 w->seg->late_ns ? "with another --late" : "without --late");
	return -EEXIST;
}

/* A model that a joiner names must be the one that the world runs. */
static int check_models(struct sim_world *w,
			const struct sim_world_config *config, char *error)
{
	int rc;

	for (int host = 0; host < SIM_HOST_COUNT; host++) {
		const char *have = w->seg->host[host].model_text;
		const char *want = config->model[host];
		struct sim_host parsed;

		if (!want || strcmp(want, have) == 0)
			continue;
		memset(&parsed, 0, sizeof(parsed));
		rc = sim_model_apply(&parsed, (uint32_t)host, want, error);
		if (rc)
			return rc;
		if (parsed.model == w->seg->host[host].model &&
		    memcmp(parsed.knob, w->seg->host[host].knob,
			   sizeof(parsed.knob)) == 0)
			continue;
		snprintf(error, SIM_ERROR_MAX,
			 "world '%s' is running model '%.50s', not '%.50s'; "
			 "join it without --model, or name another --world",
			 w->name, have, want);
		return -EEXIST;
	}
	rc = check_plan(w, config, error);
	return rc ? rc : check_late(w, config, error);
}

/* The host with the fewest processes of a kind, for one that names none. */
static uint32_t next_host(struct sim_segment *seg, bool is_observer)
{
	int count[SIM_HOST_COUNT] = {0};
	uint32_t best = 0;

	for (int i = 1; i < SIM_PROC_MAX; i++)
		if (seg->proc[i].life == SIM_LIVE &&
		    seg->proc[i].is_observer == is_observer)
			count[seg->proc[i].host]++;
	for (uint32_t host = 1; host < SIM_HOST_COUNT; host++)
		if (count[host] < count[best])
			best = host;
	return best;
}

/* Slot 0 stays empty: an object whose owner is 0 is free. */
static int claim_proc(struct sim_world *w,
		      const struct sim_world_config *config, char *error)
{
	bool is_observer = config->is_observer;

	for (uint32_t i = 1; i < SIM_PROC_MAX; i++) {
		struct sim_proc *proc = &w->seg->proc[i];

		struct flock lock;

		if (proc->life != SIM_FREE ||
		    (w->fd >= 0 && slot_lock(w, i, F_OFD_SETLK, &lock) != 0))
			continue;
		proc->pid = getpid();
		proc->is_observer = is_observer;
		proc->is_retired = 0;
		atomic_store(&proc->pinned_bytes, 0);
		memset(&proc->mover, 0, sizeof(proc->mover));
		proc->host = config->host ? (uint32_t)config->host - 1
					  : next_host(w->seg, is_observer);
		atomic_store(&proc->life, SIM_LIVE);
		/* What a former life has locked is not mine. */
		proc->lives = (proc->lives + 1) & 0x7fffff;
		w->proc = i;
		w->locker = proc->lives << SIM_LOCKER_BITS | i;
		w->pid = getpid();
		return 0;
	}
	snprintf(error, SIM_ERROR_MAX, "world '%s' is full: %d processes",
		 w->name, SIM_PROC_MAX - 1);
	return -EUSERS;
}

static int map_segment(struct sim_world *w, char *error)
{
	int flags = w->fd < 0 ? MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE
			      : MAP_SHARED | MAP_NORESERVE;
	void *at = mmap(NULL, segment_bytes(), PROT_READ | PROT_WRITE, flags,
			w->fd, 0);

	if (at == MAP_FAILED) {
		snprintf(error, SIM_ERROR_MAX, "cannot map world '%s': %s",
			 w->name, strerror(errno));
		return -errno;
	}
	w->seg = at;
	w->arena = (char *)at + segment_bytes() - SIM_ARENA_BYTES;
	return 0;
}

static void shm_path(const char *name, char path[SIM_TREE_MAX])
{
	snprintf(path, SIM_TREE_MAX, SHM_PREFIX "%s", name);
}

static int check_owner(const struct sim_world *w, const struct stat *st,
		       char *error)
{
	if (!S_ISREG(st->st_mode)) {
		snprintf(error, SIM_ERROR_MAX,
			 SHM_PREFIX "%s is not a world of ours", w->name);
		return -EPERM;
	}
	if (st->st_uid == geteuid())
		return 0;
	snprintf(error, SIM_ERROR_MAX,
		 "world '%s' belongs to another user (uid %u); "
		 "choose another name with --world",
		 w->name, (unsigned)st->st_uid);
	return -EPERM;
}

/* Open and lock the file of a world; -EAGAIN when it was removed meanwhile. */
static int lock_file(struct sim_world *w, bool may_create, struct stat *st,
		     char *error)
{
	int flags =
		O_RDWR | O_CLOEXEC | O_NOFOLLOW | (may_create ? O_CREAT : 0);
	char path[SIM_TREE_MAX];
	int fd, rc;

	shm_path(w->name, path);
	fd = open(path, flags, 0600);
	if (fd < 0) {
		rc = -errno;
		if (lstat(path, st) == 0 && check_owner(w, st, error) != 0)
			return -EPERM;
		snprintf(error, SIM_ERROR_MAX, "cannot open %s: %s", path,
			 strerror(-rc));
		return rc;
	}
	w->fd = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_FD);
	if (w->fd >= 0)
		close(fd);
	else
		w->fd = fd; /* few descriptors allowed: a low one will do */
	if (fstat(w->fd, st) != 0 || (rc = check_owner(w, st, error)) != 0) {
		close(w->fd);
		return -EPERM;
	}
	while (flock(w->fd, LOCK_EX) != 0 && errno == EINTR)
		;
	if (fstat(w->fd, st) != 0 || st->st_nlink == 0) {
		close(w->fd);
		return -EAGAIN;
	}
	return 0;
}

/* Size the file; the tables get their pages now, the arena on demand. */
static int size_file(struct sim_world *w, char *error)
{
	int rc;

	if (ftruncate(w->fd, 0) != 0 ||
	    ftruncate(w->fd, (off_t)segment_bytes()) != 0)
		rc = errno;
	else
		rc = posix_fallocate(w->fd, 0,
				     (off_t)(segment_bytes() -
					     SIM_ARENA_BYTES));
	if (rc == 0)
		return 0;
	snprintf(error, SIM_ERROR_MAX,
		 "no room for world '%s' in /dev/shm: %s (it needs %llu MiB to "
		 "start; in a container, raise --shm-size)",
		 w->name, strerror(rc),
		 (segment_bytes() - SIM_ARENA_BYTES) >> 20);
	return -ENOSPC;
}

static void remove_file(struct sim_world *w)
{
	char path[SIM_TREE_MAX];

	for (int host = 0; host < SIM_HOST_COUNT; host++) {
		sim_tree_name(w->name, host, path);
		sim_remove_tree(path);
	}
	shm_path(w->name, path);
	unlink(path);
}

/* With the lock held: create, join, or start afresh after a crash. */
static int enter(struct sim_world *w, const struct sim_world_config *config,
		 const struct stat *st, char *error)
{
	bool is_new = st->st_size == 0;
	int rc;

	if (!is_new && (size_t)st->st_size != segment_bytes()) {
		snprintf(error, SIM_ERROR_MAX,
			 "world '%s' was made by another version of verbena; "
			 "end its programs and remove " SHM_PREFIX
			 "%s, or name another --world",
			 w->name, w->name);
		return -EEXIST;
	}
	if (!is_new) {
		rc = map_segment(w, error);
		if (rc)
			return rc;
		if (w->seg->magic == MAGIC) {
			w->proc = 0;
			sim_world_reap(w, 0);
		}
		if (w->seg->magic == MAGIC && count_live(w->seg, true) > 0)
			return check_models(w, config, error);
		/* Somebody may still have it mapped: leave it to them. */
		munmap(w->seg, segment_bytes());
		w->seg = NULL;
		remove_file(w);
		close(w->fd);
		return -EAGAIN;
	}
	rc = size_file(w, error);
	if (rc == 0)
		rc = map_segment(w, error);
	if (rc == 0)
		rc = init_segment(w, config, error);
	if (rc)
		remove_file(w);
	return rc;
}

static int open_shared(struct sim_world *w,
		       const struct sim_world_config *config, char *error)
{
	struct stat st;
	bool is_open = false;
	int rc = -EAGAIN;

	if (!is_name_ok(config->name)) {
		snprintf(
			error, SIM_ERROR_MAX,
			"bad world name '%.80s': letters, digits, '.', '_' and "
			"'-', at most %d, not starting with '.'",
			config->name, SIM_NAME_MAX - 1);
		return -EINVAL;
	}
	snprintf(w->name, sizeof(w->name), "%s", config->name);
	for (int i = 0; rc == -EAGAIN && i < JOIN_ROUNDS; i++) {
		rc = lock_file(w, !config->is_passive, &st, error);
		if (rc == 0) {
			rc = enter(w, config, &st, error);
			is_open = rc != -EAGAIN;
		}
	}
	if (!is_open)
		return rc;
	if (rc == 0 && !config->is_passive)
		rc = claim_proc(w, config, error);
	flock(w->fd, LOCK_UN);
	if (rc)
		close(w->fd);
	return rc;
}

int sim_world_open(const struct sim_world_config *config,
		   struct sim_world **world, char error[SIM_ERROR_MAX])
{
	struct sim_world *w = calloc(1, sizeof(*w));
	int rc;

	if (!w)
		return -ENOMEM;
	w->fd = -1;
	w->notify_fd = -1;
	w->locker = sim_no_place();
	if (config->name) {
		rc = open_shared(w, config, error);
	} else {
		rc = map_segment(w, error);
		if (rc == 0)
			rc = init_segment(w, config, error);
		if (rc == 0)
			rc = claim_proc(w, config, error);
	}
	if (rc) {
		if (w->seg)
			munmap(w->seg, segment_bytes());
		free(w);
		return rc;
	}
	if (w->fd >= 0 && w->proc && !config->is_observer &&
	    sim_mover_is_needed()) {
		w->may_not_copy = true;
		atomic_store(&w->seg->movers_wanted, 1);
	}
	/* Peers copy to and from our memory; Yama asks us to allow it. */
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	*world = w;
	return 0;
}

void sim_world_leave(struct sim_world *w)
{
	sim_mover_stop(w);
	sim_map_leave();
	if (w->fd >= 0)
		while (flock(w->fd, LOCK_EX) != 0 && errno == EINTR)
			;
	/* A passive one has no slot, nor has a fork's child. */
	if (w->proc) {
		uint32_t proc = w->proc;

		sim_proc_reap_objects(w, proc);
		w->proc = 0;
		atomic_store(&w->seg->proc[proc].life, SIM_FREE);
		if (w->fd >= 0) {
			sim_world_reap(w, 0);
			if (count_live(w->seg, true) == 0)
				remove_file(w);
		}
	}
	if (w->fd >= 0) {
		flock(w->fd, LOCK_UN);
		close(w->fd);
		w->fd = -1;
	}
}

void sim_world_close(struct sim_world *w)
{
	sim_timer_stop();
	sim_world_leave(w);
	if (w->notify_fd >= 0)
		close(w->notify_fd);
	munmap(w->seg, segment_bytes());
	free(w);
}

/* Anybody left in the file that this descriptor is of? */
static void sweep_one(const char *name)
{
	struct sim_world w = {.fd = -1, .locker = sim_no_place()};
	char error[SIM_ERROR_MAX];
	struct stat st;

	snprintf(w.name, sizeof(w.name), "%s", name);
	if (lock_file(&w, false, &st, error) != 0)
		return;
	if ((size_t)st.st_size == segment_bytes() &&
	    map_segment(&w, error) == 0) {
		sim_world_reap(&w, 0);
		if (count_live(w.seg, true) == 0)
			remove_file(&w);
		munmap(w.seg, segment_bytes());
	}
	close(w.fd);
}

void sim_world_sweep(const char *prefix)
{
	DIR *dir = opendir("/dev/shm");
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		const char *name = entry->d_name + strlen("verbena.");

		if (strncmp(entry->d_name, "verbena.", 8) == 0 &&
		    strncmp(name, prefix, strlen(prefix)) == 0 &&
		    is_name_ok(name))
			sweep_one(name);
	}
	if (dir)
		closedir(dir);
}

const char *sim_world_model(const struct sim_world *w, int host)
{
	return w->seg->host[host].model_text;
}

int sim_world_process_count(struct sim_world *w)
{
	return count_live(w->seg, true);
}

bool sim_world_retire(struct sim_world *w)
{
	bool is_last = true;

	sim_world_reap(w, 0);
	sim_lock(&w->seg->lock);
	w->seg->proc[w->proc].is_retired = 1;
	for (int i = 1; i < SIM_PROC_MAX; i++) {
		struct sim_proc *proc = &w->seg->proc[i];

		if (proc->life == SIM_LIVE && proc->is_observer &&
		    !proc->is_retired)
			is_last = false;
	}
	sim_unlock(&w->seg->lock);
	return is_last;
}

int sim_world_host(const struct sim_world *w)
{
	return (int)w->seg->proc[w->proc].host;
}

int sim_world_arm(struct sim_world *w, const struct sim_fault *faults,
		  int count, const char *plan_text)
{
	struct sim_segment *seg = w->seg;

	if (count > SIM_FAULT_MAX || strlen(plan_text) >= SIM_PLAN_MAX)
		return -E2BIG;
	sim_lock(&seg->lock);
	for (int host = 0; host < SIM_HOST_COUNT; host++)
		if ((seg->watched & SIM_WATCH_PLAN) ||
		    seg->host[host].qp_ordinal) {
			sim_unlock(&seg->lock);
			return -EBUSY;
		}
	memcpy(seg->fault, faults, sizeof(*faults) * (size_t)count);
	seg->fault_count = count;
	snprintf(seg->plan, sizeof(seg->plan), "%s", plan_text);
	if (count > 0)
		atomic_fetch_or(&seg->watched, SIM_WATCH_PLAN);
	sim_unlock(&seg->lock);
	return 0;
}

struct sim_fault *sim_world_faults(struct sim_world *w, int *count)
{
	*count = w->seg->fault_count;
	return w->seg->fault;
}

const char *sim_world_plan(const struct sim_world *w)
{
	return w->seg->plan;
}
