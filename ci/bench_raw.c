/* SPDX-License-Identifier: MIT */
/* What a 1 MiB write could cost at best, in MiB/s: bench_raw process (a loop of
 * process_vm_writev into another process) or bench_raw memcpy. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BYTES (1u << 20)
#define TIMES 3000

static double now_s(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
	char *from = aligned_alloc(4096, BYTES),
	     *to = aligned_alloc(4096, BYTES);
	struct iovec near = {from, BYTES}, far = {to, BYTES};
	double start;
	pid_t pid;

	if (argc != 2 || !from || !to)
		return 1;
	memset(from, 1, BYTES);
	memset(to, 2, BYTES);
	if (strcmp(argv[1], "memcpy") == 0) {
		start = now_s();
		for (int i = 0; i < TIMES; i++) {
			from[i % BYTES]++;
			memcpy(to, from, BYTES);
			__asm__ volatile("" : : "r"(to) : "memory");
		}
	} else {
		pid = fork();
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			pause();
		}
		start = now_s();
		for (int i = 0; i < TIMES; i++)
			if (process_vm_writev(pid, &near, 1, &far, 1, 0) !=
			    BYTES)
				return 1;
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	printf("%.0f\n", TIMES / (now_s() - start));
	return 0;
}
