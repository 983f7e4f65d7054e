/* SPDX-License-Identifier: MIT */
/* How far apart two processors are: a store of one, seen by the other, one way,
 * in microseconds. Each end spins for a while and then lets others run. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 100000

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static void await(_Atomic int *word, int value)
{
	for (int i = 1; atomic_load(word) != value; i++)
		if (i % 10000 == 0)
			sched_yield();
}

int main(void)
{
	_Atomic int *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct timespec start, end;
	pid_t pid;

	if (word == MAP_FAILED || (pid = fork()) < 0)
		return 1;
	pin(pid ? 1 : 0);
	clock_gettime(CLOCK_MONOTONIC, &start);
	for (int i = 1; i <= ROUNDS; i++) {
		if (pid)
			atomic_store(word, 2 * i - 1);
		await(word, pid ? 2 * i : 2 * i - 1);
		if (!pid)
			atomic_store(word, 2 * i);
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	if (!pid)
		return 0;
	waitpid(pid, NULL, 0);
	printf("%.3f\n", ((double)(end.tv_sec - start.tv_sec) * 1e6 +
			  (double)(end.tv_nsec - start.tv_nsec) / 1e3) /
				 ROUNDS / 2);
	return 0;
}
