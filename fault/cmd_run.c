/* SPDX-License-Identifier: MIT */
/* verbena run: any program on an emulated device, with a plan. */
#define _GNU_SOURCE
#include "fault/fault.h"

#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault/tool.h"

#define DEFAULT_LATE_US "200"

struct run_options {
	const char *world;
	const char *model;
	const char *plan;
	const char *host;
	bool maps_memory;
	uint64_t late_ns;
	bool spares_owned;
	char **program;
};

static const struct argp_option options[] = {
	{"world", 'w', "NAME", 0,
	 "the world to create or join (default: one a user)", 0},
	{"model", 'm', "MODEL", 0,
	 "device model of a new world, NAME[,knob=value...]", 0},
	{"plan", 'p', "PLAN", 0,
	 "fault plan of a new world: a file, or the text (';' ends a line)", 0},
	{"map-memory", 'M', NULL, 0,
	 "let peers copy directly to and from registered whole pages", 0},
	{"late", 'l', "US", OPTION_ARG_OPTIONAL,
	 "read each send's buffer US microseconds (default 200) after its turn "
	 "has come, and fill what the device owns with 0xa5",
	 0},
	{"no-poison", 'n', NULL, 0,
	 "with --late: leave what the device owns as it is", 0},
	{"host", 'H', "a|b", 0, "which end of the cable (default: the emptier)",
	 0},
	{0},
};

/* False: not a number of microseconds up to a second. */
static bool parse_late(const char *text, uint64_t *late_ns)
{
	char *end;
	unsigned long us = strtoul(text ? text : DEFAULT_LATE_US, &end, 10);

	*late_ns = us * 1000;
	return !*end && us >= 1 && us <= 1000000;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct run_options *run = state->input;

	switch (key) {
	case 'w':
		run->world = arg;
		return 0;
	case 'm':
		run->model = arg;
		return 0;
	case 'p':
		run->plan = arg;
		return 0;
	case 'H':
		run->host = arg;
		return 0;
	case 'M':
		run->maps_memory = true;
		return 0;
	case 'n':
		run->spares_owned = true;
		return 0;
	case 'l':
		if (!parse_late(arg, &run->late_ns))
			argp_error(state,
				   "--late=%s: microseconds, 1 to 1000000",
				   arg);
		return 0;
	case ARGP_KEY_ARG:
		run->program = &state->argv[state->next - 1];
		state->next = state->argc;
		return 0;
	case ARGP_KEY_END:
		if (!run->program)
			argp_error(state, "no program given");
		if (run->spares_owned && !run->late_ns)
			argp_error(state, "--no-poison is for --late");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
static volatile sig_atomic_t child_pid;

/* The program decides what a signal means; we only stay for the report. What
 * a terminal sends, it sends to both of us already. */
static void forward(int signal, siginfo_t *info, void *context)
{
	(void)context;
	if (child_pid > 0 && info->si_code <= 0)
		kill((pid_t)child_pid, signal);
}

/* Held back until there is a program to forward them to. A signal that our
 * own parent has us ignore stays ignored, for both. */
static void catch_signals(sigset_t *before)
{
	struct sigaction action = {.sa_sigaction = forward,
				   .sa_flags = SA_RESTART | SA_SIGINFO};
	sigset_t mine;

	sigemptyset(&mine);
	signal(SIGCHLD, SIG_DFL); /* else there is no status to wait for */
	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++) {
		struct sigaction old;

		sigaction(signals[i], NULL, &old);
		if (old.sa_handler == SIG_IGN)
			continue;
		sigaddset(&mine, signals[i]);
		sigaction(signals[i], &action, NULL);
	}
	sigprocmask(SIG_BLOCK, &mine, before);
}

/* In the program, before exec: as if we had never been. */
static void release_signals(const sigset_t *before)
{
	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++) {
		struct sigaction now;

		sigaction(signals[i], NULL, &now);
		if (now.sa_handler != SIG_IGN)
			signal(signals[i], SIG_DFL);
	}
	sigprocmask(SIG_SETMASK, before, NULL);
}

static void prepend_env(const char *name, const char *value, char separator)
{
	const char *old = getenv(name);
	char *text;

	if (!old || !*old) {
		setenv(name, value, 1);
	} else if (asprintf(&text, "%s%c%s", value, separator, old) >= 0) {
		setenv(name, text, 1);
		free(text);
	}
}

static void preload(const struct fault_tool *tool, const char *library)
{
	char path[sizeof(tool->lib_dir) + 32];

	snprintf(path, sizeof(path), "%s/%s", tool->lib_dir, library);
	prepend_env("LD_PRELOAD", path, ' ');
}

struct start {
	sigset_t before; /* the signal mask we were given */
	int error_pipe;
};

static void become(const struct fault_tool *tool, struct sim_world *world,
		   const struct run_options *run, bool has_stream,
		   const struct start *start)
{
	char host[2] = {(char)('a' + sim_world_host(world)), 0};
	char tree[SIM_TREE_MAX];
	int error;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	release_signals(&start->before);
	unsetenv("VERBENA_MODEL"); /* only for worlds made without us */
	setenv("VERBENA_WORLD", run->world, 1);
	setenv("VERBENA_HOST", host, 1);
	if (run->maps_memory)
		setenv("VERBENA_MAP_MEMORY", "1", 1);
	prepend_env("LD_LIBRARY_PATH", tool->lib_dir, ':');
	if (has_stream)
		preload(tool, "verbena-boot.so");
	/* Below 0: not the program's fault. */
	error = sim_world_surround(world, sim_world_host(world), tree);
	if (tree[0]) {
		setenv("VERBENA_PATHS", tree, 1);
		preload(tool, "verbena-paths.so");
	}
	if (!error) {
		execvp(run->program[0], run->program);
		error = errno;
	}
	if (write(start->error_pipe, &error, sizeof(error)) < 0)
		_exit(126);
	_exit(127);
}

/* Start the program; a positive errno when it cannot be, a negative one when
 * its surroundings cannot. */
static int start_program(const struct fault_tool *tool, struct sim_world *world,
			 const struct run_options *run, bool has_stream,
			 const sigset_t *before, pid_t *pid)
{
	struct start start = {.before = *before};
	int pipe_fds[2], error = 0;
	ssize_t got;

	if (pipe2(pipe_fds, O_CLOEXEC) != 0)
		return errno;
	start.error_pipe = pipe_fds[1];
	fflush(NULL);
	*pid = fork();
	if (*pid < 0) {
		error = errno;
	} else if (*pid == 0) {
		become(tool, world, run, has_stream, &start);
	} else {
		child_pid = *pid;
	}
	close(pipe_fds[1]);
	sigprocmask(SIG_SETMASK, before, NULL);
	if (*pid < 0) {
		close(pipe_fds[0]);
		return error;
	}
	/* The pipe closes at a successful exec. */
	do {
		got = read(pipe_fds[0], &error, sizeof(error));
	} while (got < 0 && errno == EINTR);
	close(pipe_fds[0]);
	if (got > 0)
		waitpid(*pid, NULL, 0);
	return error;
}

static int wait_for(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return EXIT_BAD;
	}
	child_pid = 0;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status)
				   : WEXITSTATUS(status);
}

/* With the plan's own models, unless the command line names one. */
static int enter(const struct run_options *run, const struct fault_plan *plan,
		 struct sim_world **world, char *error)
{
	struct sim_world_config config = {.name = run->world,
					  .late_ns = run->late_ns,
					  .spares_owned = run->spares_owned,
					  .is_observer = true};

	for (int host = 0; host < SIM_HOST_COUNT; host++)
		config.model[host] = run->model ? run->model
				     : plan && plan->device[host][0]
					     ? plan->device[host]
					     : NULL;
	if (run->host)
		config.host = run->host[0] - 'a' + 1;
	return plan ? fault_plan_open_world(plan, &config, world, error)
		    : sim_world_open(&config, world, error);
}

static int run_program(const struct fault_tool *tool,
		       const struct run_options *run,
		       const struct fault_plan *plan)
{
	char error[FAULT_ERROR_MAX];
	struct fault_plan armed;
	struct sim_world *world;
	int status, failed, stale = 0;
	sigset_t before;
	pid_t pid = 0;

	catch_signals(&before);
	/* What was killed with all its tools is still there. */
	sim_world_sweep("");
	if (enter(run, plan, &world, error))
		return tool_refuse(error);
	/* Joined without --plan: the world may have one all the same. */
	if (fault_plan_parse("plan", sim_world_plan(world), &armed, error))
		memset(&armed, 0, sizeof(armed));
	failed = start_program(tool, world, run, fault_plan_has_stream(&armed),
			       &before, &pid);
	if (failed) {
		sim_world_close(world);
		snprintf(error, sizeof(error), "%s '%.100s': %s",
			 failed < 0 ? "cannot show its device to"
				    : "cannot run",
			 run->program[0], strerror(abs(failed)));
		return tool_refuse(error);
	}
	status = wait_for(pid);
	/* Its objects go now, so that its peers need not find out. */
	sim_world_reap(world, 0);
	if (sim_world_retire(world))
		stale = fault_report(world, stderr);
	sim_world_close(world);
	return status ? status : stale ? EXIT_STALE : 0;
}

int cmd_run(int argc, char **argv)
{
	static const struct argp argp = {
		options,
		parse,
		"[--] PROGRAM [ARGUMENT...]",
		"Run a program on an emulated RDMA device. Programs that join "
		"the same world see each other: the first creates it, the last "
		"one out removes it and reports on the plan."
		"\vExit status: that of PROGRAM, or 128 and the signal that "
		"ended it; 2 when it could not be run; 3 when it ended well "
		"but a line of the plan did nothing.",
		NULL,
		NULL,
		NULL};
	struct run_options run = {0};
	struct fault_tool tool;
	struct fault_plan plan;
	char error[FAULT_ERROR_MAX], name[SIM_NAME_MAX];

	argv[0] = "verbena run";
	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &run);
	if (run.host && (strlen(run.host) != 1 || run.host[0] < 'a' ||
			 run.host[0] >= 'a' + SIM_HOST_COUNT))
		return tool_refuse("--host is a or b");
	if (fault_tool_find(&tool, error) ||
	    (run.plan && fault_plan_load(run.plan, &plan, error)))
		return tool_refuse(error);
	if (!run.world) {
		snprintf(name, sizeof(name), "uid%u", (unsigned)geteuid());
		run.world = name;
	}
	return run_program(&tool, &run, run.plan ? &plan : NULL);
}
