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
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEFAULT_BYTES	   (64ull << 20)
#define DEFAULT_TIMEOUT_MS 2000u
#define DEFAULT_MODEL	   "apple-tb"
/* An endpoint that reports nothing is ended: many times what it may wait. */
#define WATCHDOG_TIMEOUTS 30

static const char *const param_names[] = {"bytes", "timeout_ms"};

struct child {
	pid_t pid;
	int pipe; /* reads the report */
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
	for (int i = 0; i < 6; i++)
		snprintf(text[i], sizeof(text[i]), "%" PRIu64, values[i]);
	setenv("VERBENA_WORLD", world, 1);
	setenv("VERBENA_HOST", host, 1);
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
		 const char *world, int side, const int socks[2],
		 struct child *child)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) != 0)
		return -errno;
	fflush(NULL);
	child->pid = fork();
	if (child->pid == 0)
		become_endpoint(tool, plan, world, side, socks[side], ends[1]);
	close(ends[1]);
	child->pipe = ends[0];
	return child->pid < 0 ? -errno : 0;
}

/* The report, or the fact that there is none by the deadline. */
static void collect(struct child *child, int side, uint64_t end_ns,
		    struct fault_endpoint *report)
{
	struct pollfd poll_fd = {.fd = child->pipe, .events = POLLIN};
	uint64_t now = sim_now_ns();
	int wait_ms = now < end_ns ? (int)((end_ns - now) / 1000000) + 1 : 0;
	ssize_t got = 0;
	int status;

	if (poll(&poll_fd, 1, wait_ms) > 0)
		got = read(child->pipe, report, sizeof(*report));
	if (got != sizeof(*report)) {
		memset(report, 0, sizeof(*report));
		report->side = side;
		report->verdict = FAULT_CRASH;
		report->rc = -ECHILD;
		report->wrong_at = report->wrong_from = -1;
		report->cause.slot = -1;
		snprintf(report->cause.text, sizeof(report->cause.text),
			 "endpoint %c ended without a report", 'a' + side);
		kill(child->pid, SIGKILL);
	}
	close(child->pipe);
	waitpid(child->pid, &status, 0);
}

static int run_endpoints(const struct fault_tool *tool,
			 const struct fault_plan *plan, const char *world,
			 struct fault_run *run)
{
	uint64_t timeout_ms =
		fault_plan_param(plan, "timeout_ms", DEFAULT_TIMEOUT_MS);
	uint64_t bytes = fault_plan_param(plan, "bytes", DEFAULT_BYTES);
	struct child child[SIM_HOST_COUNT];
	int socks[2], count = 0;
	uint64_t end_ns;
	int rc = connect_pair(socks);

	if (rc)
		return rc;
	/* No timing is asserted here; this only bounds a hang. 1 MiB/s is far
	 * below what any machine moves. */
	end_ns = sim_now_ns() +
		 (timeout_ms * WATCHDOG_TIMEOUTS + bytes / 1024) * 1000000;
	for (; !rc && count < SIM_HOST_COUNT; count++)
		rc = spawn(tool, plan, world, count, socks, &child[count]);
	close(socks[0]);
	close(socks[1]);
	for (int side = 0; side < count; side++)
		collect(&child[side], side, end_ns, &run->end[side]);
	return rc;
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

int fault_scenario_run(const struct fault_tool *tool,
		       const struct fault_plan *plan, struct fault_run *run,
		       struct sim_fault faults[SIM_FAULT_MAX],
		       char error[FAULT_ERROR_MAX])
{
	char name[SIM_NAME_MAX];
	struct sim_world_config config = {.name = name, .is_observer = true};
	struct sim_world *world;
	struct sim_fault *live;
	uint64_t start = sim_now_ns();
	int count, rc = check_plan(plan, error);

	if (rc)
		return rc;
	snprintf(name, sizeof(name), "replay.%d", (int)getpid());
	for (int host = 0; host < SIM_HOST_COUNT; host++)
		config.model[host] = plan->device[host][0] ? plan->device[host]
							   : DEFAULT_MODEL;
	rc = sim_world_open(&config, &world, error);
	if (rc)
		return rc;
	memset(run, 0, sizeof(*run));
	rc = plan->line_count ? fault_plan_arm(plan, world) : 0;
	if (!rc)
		rc = run_endpoints(tool, plan, name, run);
	sim_world_reap(world, 0);
	live = sim_world_faults(world, &count);
	memcpy(faults, live, sizeof(*faults) * (size_t)count);
	for (int i = 0; i < count; i++)
		run->stale += faults[i].effective == 0;
	run->first_fired = find_first_fired(faults, count);
	run->is_as_expected = is_as_expected(plan, run);
	run->seconds = (double)(sim_now_ns() - start) / 1e9;
	sim_world_close(world);
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
