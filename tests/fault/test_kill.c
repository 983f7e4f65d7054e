/* SPDX-License-Identifier: MIT */
/*
 * Goal: whichever process is killed, and whenever, the other one ends with an
 * error within its deadline, and nothing stays behind. Method: the scenario's
 * own endpoints, one of them killed at a random moment, 50 times. The seed is
 * printed on failure.
 */
#define _GNU_SOURCE
#include "tests/rig.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fault/fault.h"
#include "tests/harness.h"

#define ROUNDS	   50
#define BYTES	   "33554432"
#define TIMEOUT_MS "1000"
/* A survivor has its deadline of 1 s at each of a few steps, and a loaded
 * machine; a hang has for ever. */
#define HANG_MS 30000

struct victim {
	pid_t pid;
	int pipe;
};

static struct victim start(const char *world, int side, int sock)
{
	char fd_text[2][16], side_text[2] = {(char)('0' + side), 0};
	struct victim victim;
	int ends[2];

	CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
	victim.pid = fork();
	if (victim.pid == 0) {
		snprintf(fd_text[0], sizeof(fd_text[0]), "%d", sock);
		snprintf(fd_text[1], sizeof(fd_text[1]), "%d", ends[1]);
		fcntl(sock, F_SETFD, 0);
		fcntl(ends[1], F_SETFD, 0);
		setenv("VERBENA_WORLD", world, 1);
		setenv("VERBENA_HOST", side ? "b" : "a", 1);
		setenv("VERBENA_MODEL", "apple-tb", 1);
		setenv("LD_LIBRARY_PATH", BUILD_DIR, 1);
		execl(BUILD_DIR "/verbena", "verbena", "endpoint", side_text,
		      fd_text[0], fd_text[1], BYTES, "1", TIMEOUT_MS,
		      (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	victim.pipe = ends[0];
	return victim;
}

/* Both endpoints, over a connection of their own. */
static void start_both(const char *world, struct victim victim[2])
{
	int socks[2];

	rig_sockets(socks);
	for (int i = 0; i < 2; i++)
		fcntl(socks[i], F_SETFD, FD_CLOEXEC);
	for (int side = 0; side < 2; side++)
		victim[side] = start(world, side, socks[side]);
	close(socks[0]);
	close(socks[1]);
}

/* The survivor's report; false when there is none in time. */
static bool report_of(struct victim *victim, struct fault_endpoint *report)
{
	struct pollfd poll_fd = {.fd = victim->pipe, .events = POLLIN};
	bool told =
		poll(&poll_fd, 1, HANG_MS) > 0 &&
		read(victim->pipe, report, sizeof(*report)) == sizeof(*report);

	if (!told)
		kill(victim->pid, SIGKILL);
	close(victim->pipe);
	waitpid(victim->pid, NULL, 0);
	return told;
}

static void nap_us(unsigned us)
{
	struct timespec nap = {.tv_nsec = us * 1000l};

	nanosleep(&nap, NULL);
}

static void round_of(const char *world, int round, unsigned us)
{
	struct fault_endpoint report;
	struct victim victim[2];
	int killed = round % 2;

	start_both(world, victim);
	nap_us(us);
	kill(victim[killed].pid, SIGKILL);
	waitpid(victim[killed].pid, NULL, 0);
	close(victim[killed].pipe);
	CHECK(report_of(&victim[1 - killed], &report),
	      "round %d: %c killed after %u us, the other hangs", round,
	      'a' + killed, us);
	/* Pass: it was done before the kill. Otherwise it says why. */
	CHECK(report.verdict == FAULT_PASS || report.verdict == FAULT_FAIL ||
		      report.verdict == FAULT_TIMEOUT,
	      "round %d: verdict %s", round,
	      fault_verdict_name(report.verdict));
	CHECK(report.verdict == FAULT_PASS || report.cause.text[0],
	      "round %d: no reason", round);
	CHECK(report.wrong_at == -1, "round %d: a wrong byte", round);
	/* The survivor may have left before the victim was dead. */
	sim_world_sweep(world);
	sim_world_sweep(world);
	CHECK_EQ(rig_worlds_left(world), 0);
}

Test(kill, the_survivor_ends_and_the_next_run_starts_clean_50_times)
{
	uint64_t seed = (uint64_t)time(NULL);
	char world[32];

	snprintf(world, sizeof(world), "%s", rig_name());
	for (int round = 0; round < ROUNDS; round++) {
		/* Start-up takes some ms, the transfer about 50. */
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		round_of(world, round, (unsigned)(seed >> 33) % 60000);
	}
}

Test(kill, both_killed_leave_a_world_that_starts_afresh)
{
	struct fault_endpoint report;
	struct victim victim[2];
	char world[32];

	snprintf(world, sizeof(world), "%s", rig_name());
	for (int round = 0; round < 3; round++) {
		start_both(world, victim);
		nap_us(20000);
		for (int i = 0; i < 2 && round < 2; i++)
			kill(victim[i].pid, SIGKILL);
		for (int i = 0; i < 2; i++) {
			bool told = report_of(&victim[i], &report);

			/* The last round is not disturbed, and is clean. */
			if (round == 2)
				CHECK(told && report.verdict == FAULT_PASS,
				      "%s", told ? report.cause.text : "hung");
		}
	}
	sim_world_sweep(world);
	CHECK_EQ(rig_worlds_left(world), 0);
}
