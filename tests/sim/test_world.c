/* SPDX-License-Identifier: MIT */
/*
 * Goal: worlds are created by the first, joined by others, removed with the
 * last, and taken over from the dead. Method: processes that fork, join, make
 * objects and die; then a look at /dev/shm and at the tables.
 */
#include "tests/rig.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness.h"

static int join(const char *name, const char *model, struct sim_world **world,
		char *error)
{
	struct sim_world_config config = {.name = name,
					  .model = {model, model}};

	error[0] = 0;
	return sim_world_open(&config, world, error);
}

Test(world, the_last_one_out_removes_it)
{
	struct sim_world *first, *second;
	char error[SIM_ERROR_MAX];

	CHECK_EQ(join(rig_name(), "mlx5", &first, error), 0);
	CHECK_EQ(join(rig_name(), NULL, &second, error), 0);
	CHECK_EQ(sim_world_process_count(second), 2);
	CHECK(strcmp(sim_world_model(second, 1), "mlx5") == 0, "model");
	CHECK_EQ(rig_worlds_left(rig_name()), 1);
	sim_world_close(first);
	CHECK_EQ(rig_worlds_left(rig_name()), 1);
	sim_world_close(second);
	CHECK_EQ(rig_worlds_left(rig_name()), 0);
}

Test(world, programs_are_spread_over_the_hosts)
{
	struct sim_world *worlds[4];
	char error[SIM_ERROR_MAX];
	static const int hosts[] = {0, 1, 0, 1};

	for (int i = 0; i < 4; i++) {
		CHECK_EQ(join(rig_name(), NULL, &worlds[i], error), 0);
		CHECK_EQ(sim_world_host(worlds[i]), hosts[i]);
	}
	for (int i = 0; i < 4; i++)
		sim_world_close(worlds[i]);
}

Test(world, another_model_is_refused_and_the_same_is_welcome)
{
	struct sim_world *first, *second;
	char error[SIM_ERROR_MAX];

	CHECK_EQ(join(rig_name(), "apple-tb", &first, error), 0);
	CHECK_EQ(join(rig_name(), "mlx5", &second, error), -EEXIST);
	CHECK_HAS(error, "is running model 'apple-tb', not 'mlx5'");
	CHECK_EQ(join(rig_name(), "apple-tb", &second, error), 0);
	sim_world_close(second);
	sim_world_close(first);
}

static const struct {
	const char *name, *model, *error;
} bad[] = {
	{"", "mlx5", "bad world name ''"},
	{"a/b", "mlx5", "bad world name 'a/b'"},
	{".hidden", "mlx5", "bad world name '.hidden'"},
	{"ok", "cx7", "unknown model 'cx7'; there is mlx5, apple-tb"},
	{"ok", "", "unknown model ''"},
	{"ok", "apple-tb,speed=9", "model apple-tb has no knob 'speed'"},
	{"ok", "apple-tb,psn=maybe", "'psn=maybe': psn takes ignore|match"},
	{"ok", "apple-tb,grant=many", "'grant=many': grant takes 0..4095"},
	{"ok", "apple-tb,grant=-1", "'grant=-1': grant takes 0..4095"},
	{"ok", "apple-tb,ports=3", "'ports=3': ports takes 1..2"},
	{"ok", "apple-tb,psn=match,psn=match", "'psn' given twice"},
	{"ok", "apple-tb,", "model apple-tb has no knob ''"},
};

Test(world, bad_names_and_models_are_told_and_leave_nothing)
{
	char error[SIM_ERROR_MAX], name[64];
	struct sim_world *world;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		snprintf(name, sizeof(name), "%s%s", bad[i].name,
			 strcmp(bad[i].name, "ok") ? "" : rig_name());
		CHECK(join(name, bad[i].model, &world, error) == -EINVAL,
		      "accepted: %s %s", name, bad[i].model);
		CHECK_HAS(error, bad[i].error);
	}
	CHECK_EQ(rig_worlds_left(rig_name()), 0);
}

/* In a child of another user: what joining gives. */
static int join_as_nobody(const char *name)
{
	char error[SIM_ERROR_MAX];
	struct sim_world *world;

	if (setgid(65534) || setuid(65534))
		_exit(100);
	_exit(join(name, NULL, &world, error) == -EPERM &&
			      strstr(error, "belongs to another user (uid 0)")
		      ? 0
		      : 1);
}

Test(world, another_users_world_is_refused_both_ways)
{
	char path[128], error[SIM_ERROR_MAX], name[32];
	struct sim_world *world;
	struct stat st;
	int status, fd;
	pid_t pid;

	if (geteuid() != 0)
		SKIP("needs root, to be two users");
	snprintf(name, sizeof(name), "%s", rig_name());
	CHECK_EQ(join(name, NULL, &world, error), 0);
	pid = fork();
	if (pid == 0)
		join_as_nobody(name);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	sim_world_close(world);
	/* Theirs, and we are root: not even then. */
	snprintf(path, sizeof(path), "/dev/shm/verbena.%s", rig_name());
	fd = open(path, O_CREAT | O_EXCL | O_RDWR, 0666);
	CHECK(fd >= 0 && fchown(fd, 65534, 65534) == 0, "%s", path);
	close(fd);
	CHECK_EQ(join(rig_name(), NULL, &world, error), -EPERM);
	CHECK_HAS(error, "belongs to another user (uid 65534)");
	CHECK(stat(path, &st) == 0 && st.st_size == 0, "theirs is untouched");
	unlink(path);
}

Test(world, a_link_in_its_place_is_refused)
{
	char path[128], error[SIM_ERROR_MAX];
	struct sim_world *world;

	snprintf(path, sizeof(path), "/dev/shm/verbena.%s", rig_name());
	CHECK_EQ(symlink("/dev/null", path), 0);
	CHECK_EQ(join(rig_name(), NULL, &world, error), -EPERM);
	CHECK_HAS(error, "is not a world of ours");
	unlink(path);
}

/* Join, make a connected-looking set of objects, and die or wait. */
static void make_and_die(int out)
{
	struct ibv_device **list;
	struct rig_end end = {0};

	list = ibv_get_device_list(NULL);
	end.context = list ? ibv_open_device(list[0]) : NULL;
	if (!end.context)
		_exit(1);
	rig_make(&end, IBV_QPT_RC, 8);
	if (write(out, "x", 1) != 1)
		_exit(1);
	kill(getpid(), SIGKILL);
}

Test(world, the_dead_are_reaped_with_all_they_had)
{
	char error[SIM_ERROR_MAX], byte, name[32];
	struct sim_world *world;
	int pipe_fds[2];
	pid_t pid;

	/* Its child's name is its parent's: rig_name is of the pid. */
	snprintf(name, sizeof(name), "%s", rig_name());
	CHECK_EQ(join(name, NULL, &world, error), 0);
	CHECK_EQ(pipe(pipe_fds), 0);
	pid = fork();
	if (pid == 0) {
		setenv("VERBENA_WORLD", name, 1);
		close(pipe_fds[0]);
		make_and_die(pipe_fds[1]);
	}
	close(pipe_fds[1]);
	CHECK_EQ(read(pipe_fds[0], &byte, 1), 1);
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
	CHECK_EQ(sim_world_object_count(world), 5);
	CHECK_EQ(sim_world_process_count(world), 2);
	sim_world_reap(world, 0);
	CHECK_EQ(sim_world_object_count(world), 0);
	CHECK_EQ(sim_world_process_count(world), 1);
	sim_world_close(world);
	CHECK_EQ(rig_worlds_left(name), 0);
}

static void open_and_die(const char *name, const char *model)
{
	char error[SIM_ERROR_MAX];
	struct sim_world *world;

	if (join(name, model, &world, error))
		_exit(1);
	kill(getpid(), SIGKILL);
}

Test(world, one_with_only_dead_members_starts_afresh)
{
	char error[SIM_ERROR_MAX];
	struct sim_world *world;
	pid_t pid = fork();
	char name[32];

	snprintf(name, sizeof(name), "test-%d.",
		 (int)(pid ? getpid() : getppid()));
	if (pid == 0)
		open_and_die(name, "apple-tb");
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
	CHECK_EQ(rig_worlds_left(name), 1);
	/* Another model: it is not the old world that is joined. */
	CHECK_EQ(join(name, "mlx5", &world, error), 0);
	CHECK_EQ(sim_world_process_count(world), 1);
	sim_world_close(world);
	CHECK_EQ(rig_worlds_left(name), 0);
}

Test(world, only_the_last_observer_reports)
{
	struct sim_world_config config = {.name = rig_name(),
					  .is_observer = true};
	struct sim_world *first, *second, *program;
	char error[SIM_ERROR_MAX];

	CHECK_EQ(sim_world_open(&config, &first, error), 0);
	CHECK_EQ(sim_world_open(&config, &second, error), 0);
	CHECK_EQ(join(rig_name(), NULL, &program, error), 0);
	CHECK(!sim_world_retire(second), "the first still watches");
	CHECK(sim_world_retire(first), "now the last");
	sim_world_close(program);
	sim_world_close(second);
	sim_world_close(first);
	CHECK_EQ(rig_worlds_left(rig_name()), 0);
}

/* In a fork's child: what it inherited is dead to it, its own works. */
static int use_inherited(struct ibv_device *device, struct ibv_pd *pd)
{
	struct ibv_context *own;
	struct ibv_pd *mine;

	if (ibv_dealloc_pd(pd) != EINVAL || ibv_alloc_pd(pd->context))
		return 1;
	own = ibv_open_device(device);
	mine = own ? ibv_alloc_pd(own) : NULL;
	return mine && ibv_dealloc_pd(mine) == 0 ? 0 : 2;
}

Test(world, a_fork_child_has_nothing_and_disturbs_nothing)
{
	struct ibv_device **list;
	struct ibv_context *context;
	struct ibv_pd *pd;
	int status;
	pid_t pid;

	setenv("VERBENA_WORLD", rig_name(), 1);
	list = ibv_get_device_list(NULL);
	CHECK(list, "list: %s", strerror(errno));
	context = ibv_open_device(list[0]);
	CHECK(context, "open: %s", strerror(errno));
	pd = ibv_alloc_pd(context);
	CHECK(pd, "alloc_pd: %s", strerror(errno));
	pid = fork();
	if (pid == 0)
		_exit(use_inherited(list[0], pd));
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	CHECK_EQ(ibv_dealloc_pd(pd), 0);
	CHECK_EQ(ibv_close_device(context), 0);
	ibv_free_device_list(list);
}

static void *poll_for_ever(void *arg)
{
	struct ibv_wc wc;

	for (;;)
		ibv_poll_cq(arg, 1, &wc);
	return NULL;
}

/* A program whose main returns while another of its threads polls. */
static void exit_under_a_poller(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct rig_end end = {0};
	pthread_t thread;

	end.context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	rig_make(&end, IBV_QPT_RC, 8);
	pthread_create(&thread, NULL, poll_for_ever, end.cq);
	poll(NULL, 0, 20);
	exit(0);
}

Test(world, exit_while_a_thread_polls_is_no_crash)
{
	char name[32];
	int status;
	pid_t pid;

	snprintf(name, sizeof(name), "%s", rig_name());
	setenv("VERBENA_WORLD", name, 1);
	pid = fork();
	if (pid == 0)
		exit_under_a_poller();
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	CHECK_EQ(rig_worlds_left(name), 0);
}

/* Make and unmake for ever, until killed. */
static void churn(int out)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = ibv_open_device(list[0]);
	char byte = 0;

	if (!context || write(out, &byte, 1) != 1)
		_exit(1);
	for (;;) {
		struct rig_end end = {.context = context};

		rig_make(&end, IBV_QPT_UC, 8);
		ibv_destroy_qp(end.qp);
		ibv_dereg_mr(end.mr);
		ibv_destroy_cq(end.cq);
		ibv_dealloc_pd(end.pd);
		free(end.memory);
	}
}

Test(world, a_death_inside_any_call_leaves_no_object_and_no_count)
{
	char error[SIM_ERROR_MAX], byte, name[32];
	struct sim_world *world;

	/* 10 queue pairs, 11 domains: what leaks is soon missing. */
	snprintf(name, sizeof(name), "%s", rig_name());
	setenv("VERBENA_WORLD", name, 1);
	setenv("VERBENA_HOST", "a", 1);
	CHECK_EQ(join(name, "apple-tb", &world, error), 0);
	for (int round = 0; round < 60; round++) {
		struct timespec nap = {.tv_nsec = 300000 + round * 17000};
		int pipe_fds[2];
		pid_t pid;

		CHECK_EQ(pipe(pipe_fds), 0);
		pid = fork();
		if (pid == 0)
			churn(pipe_fds[1]);
		close(pipe_fds[1]);
		CHECK(read(pipe_fds[0], &byte, 1) == 1, "round %d: no device",
		      round);
		nanosleep(&nap, NULL);
		kill(pid, SIGKILL);
		CHECK_EQ(waitpid(pid, NULL, 0), pid);
		close(pipe_fds[0]);
		sim_world_reap(world, 0);
		CHECK_EQ(sim_world_object_count(world), 0);
	}
	sim_world_close(world);
}
