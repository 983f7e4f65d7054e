/* SPDX-License-Identifier: MIT */
/* The `verbena` tool: one subcommand, its arguments behind it. */
#include "fault/fault.h"

#include <argp.h>
#include <stdlib.h>
#include <string.h>

#include "fault/tool.h"

struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *what; /* NULL: for our own use */
};

static const struct command commands[] = {
	{"run", cmd_run, "run a program on an emulated device"},
	{"replay", cmd_replay, "run a plan's scenario between two processes"},
	{"demo", cmd_demo, "a clean run, a corrupted frame, a lost frame"},
	{"plan", cmd_plan, "check a plan and print it in canonical form"},
	{"devices", cmd_devices, "what libverbena finds here, and what not"},
	{"models", cmd_models, "the device models and their knobs"},
	{"sites", cmd_sites, "what a plan can strike, and how"},
	{"endpoint", fault_endpoint_main, NULL},
};
#define COMMAND_COUNT (sizeof(commands) / sizeof(*commands))

static int usage(FILE *out)
{
	fprintf(out,
		"Usage: verbena COMMAND [ARGUMENT...]\n"
		"RDMA programs on emulated devices, with faults on purpose.\n"
		"\n");
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		if (commands[i].what)
			fprintf(out, "  %-8s %s\n", commands[i].name,
				commands[i].what);
	fprintf(out,
		"\n`verbena COMMAND --help` tells more. Exit status: 0 "
		"well, 1 the run went\nbadly, 2 bad input, 3 a line of the "
		"plan did nothing.\n");
	return out == stdout ? 0 : EXIT_USAGE;
}

int tool_refuse(const char *text)
{
	fprintf(stderr, "verbena: %s\n", text);
	return EXIT_USAGE;
}

/* What could not be written was not told. */
static int flushed(int status)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	tool_refuse("cannot write to standard output");
	return status ? status : EXIT_BAD;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";

	argp_err_exit_status = EXIT_USAGE;
	if (argc < 2)
		return usage(stderr);
	if (strcmp(name, "--help") == 0 || strcmp(name, "help") == 0)
		return usage(stdout);
	for (size_t i = 0; i < COMMAND_COUNT; i++)
		if (strcmp(commands[i].name, name) == 0)
			return flushed(commands[i].run(argc - 1, argv + 1));
	fprintf(stderr,
		"verbena: unknown command '%.60s'; see `verbena "
		"--help`\n",
		name);
	return EXIT_USAGE;
}
