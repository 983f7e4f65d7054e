/* SPDX-License-Identifier: MIT */
/*
 * Running a plan's scenario: a world, two endpoint processes joined by a TCP
 * connection on loopback, a watchdog, and the reports of both.
 */
#define _GNU_SOURCE
#include "fault/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEFAULT_BYTES	   (64ull << 20)
#define DEFAULT_TIMEOUT_MS 2000u
#define DEFAULT_MODEL	   "apple-tb"
/* An endpoint that reports nothing is ended: many times what it may wait. */
#define WATCHDOG_TIMEOUTS 30

static const char *const param_names[] = {"bytes", "timeout_ms"};

struct child {
	pid_t pid; /* 0: none was started */
	int pipe;  /* reads the report */
};

/* What a running scenario waits for, besides its children. */
struct watch {
	uint64_t end_ns;
	int signal_fd;
	int signal; /* one that came; 0 */
	sigset_t before;
};

static int check_plan(const struct fault_plan *plan, char *error)
{
	uint64_t bytes = fault_plan_param(plan, "bytes", DEFAULT_BYTES);
	uint64_t timeout =
		fault_plan_param(plan, "timeout_ms", DEFAULT_TIMEOUT_MS);

	if (plan->scenario[0] && strcmp(plan->scenario, "uc.bulk") != 0) {
		snprintf(error, FAULT_ERROR_MAX,
			 "unknown scenario '%s'; there is uc.bulk",
			 plan->scenario);
		return -EINVAL;
	}
	for (int i = 0; i < plan->param_count; i++)
		if (strcmp(plan->param[i].key, param_names[0]) != 0 &&
		    strcmp(plan->param[i].key, param_names[1]) != 0) {
			snprintf(error, FAULT_ERROR_MAX,
				 "scenario uc.bulk has no parameter '%s'; it "
				 "takes bytes and timeout_ms",
				 plan->param[i].key);
			return -EINVAL;
		}
	if (bytes == 0 || bytes % 8 || bytes > 1ull << 40 || timeout < 1 ||
	    timeout > 3600000) {
		snprintf(error, FAULT_ERROR_MAX,
			 "uc.bulk: bytes is a multiple of 8, at most 2^40; "
			 "timeout_ms is 1 to 3600000");
		return -EINVAL;
	}
	return 0;
}

/* Two connected TCP sockets on 127.0.0.1; both ends close on exec. */
static int connect_pair(int fds[2])
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int on = 1, rc = 0;

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	fds[0] = fds[1] = -1;
	if (listener < 0)
		return -errno;
	if (bind(listener, (struct sockaddr *)&at, len) != 0 ||
	    listen(listener, 1) != 0 ||
	    getsockname(listener, (struct sockaddr *)&at, &len) != 0)
		goto err_listener;
	fds[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fds[1] < 0 || connect(fds[1], (struct sockaddr *)&at, len) != 0)
		goto err_listener;
	fds[0] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fds[0] < 0)
		goto err_listener;
	setsockopt(fds[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fds[1], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	close(listener);
	return 0;
err_listener:
	rc = -errno;
	if (fds[1] >= 0)
		close(fds[1]);
	close(listener);
	return rc;
}

/* In the child: become the endpoint. Environment and descriptors are all that
 * it gets; the library directory makes it find our libibverbs.so.1. */
static void become_endpoint(const struct fault_tool *tool,
			    const struct fault_plan *plan, const char *world,
			    int side, int sock, int pipe_fd)
{
	sigset_t none;
	char text[6][32], preload[sizeof(tool->lib_dir) + 32];
	char host[2] = {(char)('a' + side), 0};
	uint64_t values[] = {
		(uint64_t)side,
		(uint64_t)sock,
		(uint64_t)pipe_fd,
		fault_plan_param(plan, "bytes", DEFAULT_BYTES),
		plan->seed,
		fault_plan_param(plan, "timeout_ms", DEFAULT_TIMEOUT_MS),
	};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	for (int i = 0; i < 6; i++)
		snprintf(text[i], sizeof(text[i]), "%" PRIu64, values[i]);
	setenv("VERBENA_WORLD", world, 1);
	setenv("VERBENA_HOST", host, 1);
	unsetenv("VERBENA_MODEL");
	setenv("LD_LIBRARY_PATH", tool->lib_dir, 1);
	if (fault_plan_has_stream(plan)) {
		snprintf(preload, sizeof(preload), "%s/verbena-boot.so",
			 tool->lib_dir);
		setenv("LD_PRELOAD", preload, 1);
	}
	fcntl(sock, F_SETFD, 0);
	fcntl(pipe_fd, F_SETFD, 0);
	execl(tool->exe, tool->exe, "endpoint", text[0], text[1], text[2],
	      text[3], text[4], text[5], (char *)NULL);
	_exit(127);
}

static int spawn(const struct fault_tool *tool, const struct fault_plan *plan,
		 const char *world, int side, int sock, struct child *child)
{
	int ends[2], error;

	if (pipe2(ends, O_CLOEXEC) != 0)
		return -errno;
	fflush(NULL);
	child->pid = fork();
	error = errno;
	if (child->pid == 0)
		become_endpoint(tool, plan, world, side, sock, ends[1]);
	close(ends[1]);
	child->pipe = ends[0];
	if (child->pid > 0)
		return 0;
	close(ends[0]);
	child->pid = 0;
	return -error;
}

/* Wait until `fd` is readable, the time is over or a signal has come. */
static bool wait_for(struct watch *watch, int fd)
{
	struct pollfd fds[] = {{.fd = fd, .events = POLLIN},
			       {.fd = watch->signal_fd, .events = POLLIN}};
	struct signalfd_siginfo info;

	while (!watch->signal) {
		uint64_t now = sim_now_ns();
		int ms = now < watch->end_ns
				 ? (int)((watch->end_ns - now) / 1000000) + 1
				 : 0;
		int ready = poll(fds, 2, ms);

		if (ready < 0 && errno == EINTR)
			continue;
		if (fds[1].revents &&
		    read(watch->signal_fd, &info, sizeof(info)) > 0)
			watch->signal = (int)info.ssi_signo;
		return ready > 0 && fds[0].revents;
	}
	return false;
}

/* The report, or the fact that there is none in time; the child is gone. */
static void collect(struct watch *watch, struct child *child, int side,
		    struct fault_endpoint *report)
{
	int pidfd = (int)syscall(SYS_pidfd_open, child->pid, 0);
	ssize_t got = 0;

	if (wait_for(watch, child->pipe))
		got = read(child->pipe, report, sizeof(*report));
	if (got != sizeof(*report)) {
		memset(report, 0, sizeof(*report));
		fault_endpoint_init(report, side);
		report->verdict = FAULT_CRASH;
		report->rc = -ECHILD;
		snprintf(report->cause.text, sizeof(report->cause.text),
			 "endpoint %c ended, or hung, without a report",
			 'a' + side);
		kill(child->pid, SIGKILL);
	} else if (pidfd < 0 || !wait_for(watch, pidfd)) {
		kill(child->pid, SIGKILL);
	}
	if (pidfd >= 0)
		close(pidfd);
	close(child->pipe);
	waitpid(child->pid, NULL, 0);
}

static int run_endpoints(const struct fault_tool *tool,
			 const struct fault_plan *plan, const char *world,
			 struct watch *watch, struct fault_run *run)
{
	uint64_t timeout_ms =
		fault_plan_param(plan, "timeout_ms", DEFAULT_TIMEOUT_MS);
	uint64_t bytes = fault_plan_param(plan, "bytes", DEFAULT_BYTES);
	struct child child[SIM_HOST_COUNT] = {{0}};
	int socks[2];
	int rc = connect_pair(socks);

	if (rc)
		return rc;
	/* No timing is asserted here; this only bounds a hang. 1 MiB/s is far
	 * below what any machine moves. */
	watch->end_ns =
		sim_now_ns() +
		(timeout_ms * WATCHDOG_TIMEOUTS + bytes / 1024) * 1000000;
	for (int side = 0; !rc && side < SIM_HOST_COUNT; side++)
		rc = spawn(tool, plan, world, side, socks[side], &child[side]);
	close(socks[0]);
	close(socks[1]);
	for (int side = 0; side < SIM_HOST_COUNT; side++) {
		if (child[side].pid <= 0)
			continue;
		if (rc) /* half a pair is no run */
			kill(child[side].pid, SIGKILL);
		collect(watch, &child[side], side, &run->end[side]);
	}
	return rc ? rc : watch->signal ? -EINTR : 0;
}

/* Signals that end us are taken in wait_for, so that what was made is
 * removed. One that our parent has us ignore stays ignored. */
static int open_watch(struct watch *watch)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	sigset_t mine;

	sigemptyset(&mine);
	signal(SIGCHLD, SIG_DFL);
	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++) {
		struct sigaction now;

		sigaction(signals[i], NULL, &now);
		if (now.sa_handler != SIG_IGN)
			sigaddset(&mine, signals[i]);
	}
	watch->signal = 0;
	watch->signal_fd = signalfd(-1, &mine, SFD_CLOEXEC);
	if (watch->signal_fd < 0)
		return -errno;
	sigprocmask(SIG_BLOCK, &mine, &watch->before);
	return 0;
}

static void close_watch(struct watch *watch)
{
	close(watch->signal_fd);
	if (watch->signal) {
		/* Everything is down; now die of it, as one expects. */
		signal(watch->signal, SIG_DFL);
		raise(watch->signal);
	}
	sigprocmask(SIG_SETMASK, &watch->before, NULL);
}

static bool meets(const struct fault_line *line, const struct fault_run *run)
{
	bool any = false;

	for (int side = 0; side < SIM_HOST_COUNT; side++)
		if (line->expect_host < 0 || line->expect_host == side)
			any |= line->expect >> run->end[side].verdict & 1;
	return any;
}

/* Without a word of expectation, a run is expected to pass. */
static bool is_as_expected(const struct fault_plan *plan,
			   const struct fault_run *run)
{
	bool any = false;

	for (int i = 0; i < plan->line_count; i++) {
		if (!plan->line[i].expect)
			continue;
		any = true;
		if (!meets(&plan->line[i], run))
			return false;
	}
	return any || (run->end[0].verdict == FAULT_PASS &&
		       run->end[1].verdict == FAULT_PASS);
}

static int find_first_fired(const struct sim_fault *faults, int count)
{
	for (int i = 0; i < count; i++)
		if (faults[i].effective)
			return i;
	return -1;
}

static void sum_up(const struct fault_plan *plan, struct fault_run *run,
		   const struct sim_fault *faults, uint64_t start_ns)
{
	for (int i = 0; i < plan->line_count; i++)
		run->stale += faults[i].effective == 0;
	run->first_fired = find_first_fired(faults, plan->line_count);
	run->is_as_expected = is_as_expected(plan, run);
	run->seconds = (double)(sim_now_ns() - start_ns) / 1e9;
}

static int open_world(const struct fault_plan *plan, char name[SIM_NAME_MAX],
		      struct sim_world **world, char *error)
{
	struct sim_world_config config = {.name = name, .is_observer = true};

	/* What a replay that was killed may have left. */
	sim_world_sweep("replay.");
	snprintf(name, SIM_NAME_MAX, "replay.%d", (int)getpid());
	for (int host = 0; host < SIM_HOST_COUNT; host++)
		config.model[host] = plan->device[host][0] ? plan->device[host]
							   : DEFAULT_MODEL;
	return fault_plan_open_world(plan, &config, world, error);
}

int fault_scenario_run(const struct fault_tool *tool,
		       const struct fault_plan *plan, struct fault_run *run,
		       struct sim_fault faults[SIM_FAULT_MAX],
		       char error[FAULT_ERROR_MAX])
{
	char name[SIM_NAME_MAX];
	struct sim_world *world;
	struct watch watch;
	uint64_t start_ns = sim_now_ns();
	int count, rc = check_plan(plan, error);

	if (rc)
		return rc;
	rc = open_watch(&watch);
	if (rc) {
		snprintf(error, FAULT_ERROR_MAX, "cannot watch for signals: %s",
			 strerror(-rc));
		return rc;
	}
	/* From here on a signal waits until the world can be removed. */
	rc = open_world(plan, name, &world, error);
	if (rc) {
		close_watch(&watch);
		return rc;
	}
	memset(run, 0, sizeof(*run));
	rc = run_endpoints(tool, plan, name, &watch, run);
	sim_world_reap(world, 0);
	memcpy(faults, sim_world_faults(world, &count),
	       sizeof(*faults) * SIM_FAULT_MAX);
	sim_world_close(world);
	close_watch(&watch);
	sum_up(plan, run, faults, start_ns);
	if (rc)
		snprintf(error, FAULT_ERROR_MAX, "cannot run the scenario: %s",
			 strerror(-rc));
	return rc;
}

int fault_tool_find(struct fault_tool *tool, char error[FAULT_ERROR_MAX])
{
	static const char *const places[] = {"", "/../lib/verbena"};
	char dir[PATH_MAX], path[PATH_MAX + 64];
	ssize_t len =
		readlink("/proc/self/exe", tool->exe, sizeof(tool->exe) - 1);

	if (len < 0) {
		snprintf(error, FAULT_ERROR_MAX, "/proc is not mounted");
		return -errno;
	}
	tool->exe[len] = 0;
	snprintf(dir, sizeof(dir), "%s", tool->exe);
	*strrchr(dir, '/') = 0;
	/* The dynamic linker's lists know no quotes. */
	if (strpbrk(dir, " :;")) {
		snprintf(error, FAULT_ERROR_MAX,
			 "verbena cannot be used from '%.150s': its path holds "
			 "a space, ':' or ';'",
			 dir);
		return -EINVAL;
	}
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s%s/libibverbs.so.1", dir,
			 places[i]);
		if (access(path, R_OK) != 0)
			continue;
		snprintf(tool->lib_dir, sizeof(tool->lib_dir), "%.4000s%s", dir,
			 places[i]);
		return 0;
	}
	snprintf(error, FAULT_ERROR_MAX,
		 "no libibverbs.so.1 of verbena beside %.150s", tool->exe);
	return -ENOENT;
}
