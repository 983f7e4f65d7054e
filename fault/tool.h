/* SPDX-License-Identifier: MIT */
/* Subcommands of `verbena`; each takes its own arguments and exits like one:
 * 0 well, 1 the run went badly, 2 bad input, 3 a plan line did nothing. */
#ifndef FAULT_TOOL_H
#define FAULT_TOOL_H

int cmd_run(int argc, char **argv);
int cmd_replay(int argc, char **argv);
int cmd_demo(int argc, char **argv);
int cmd_models(int argc, char **argv);
int cmd_sites(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_devices(int argc, char **argv);

#define EXIT_BAD   1
#define EXIT_USAGE 2
#define EXIT_STALE 3

/* "verbena: text" on standard error; returns EXIT_USAGE. */
int tool_refuse(const char *text);

#endif
