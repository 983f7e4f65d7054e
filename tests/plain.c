/* SPDX-License-Identifier: MIT */
/*
 * The plain runner: each test in a fork of its own, so that one that crashes
 * ends alone. Usage: plain [--repeat N] [PREFIX...]; a test runs when its
 * suite/name begins with one of them; N times in its process, which is timed.
 * The last line counts, in the plain form.
 */
#ifndef HARNESS_CRITERION

#include "tests/harness.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TEST_MAX  1024
#define EXIT_FAIL 1
#define EXIT_SKIP 77

struct test {
	const char *suite;
	const char *name;
	void (*run)(void);
};

static struct test tests[TEST_MAX];
static int test_count;

void harness_add(const char *suite, const char *name, void (*run)(void))
{
	if (test_count == TEST_MAX) {
		fputs("tests/plain.c: TEST_MAX is too small\n", stderr);
		abort();
	}
	tests[test_count++] = (struct test){suite, name, run};
}

void harness_failed(const char *file, int line, const char *format, ...)
{
	va_list args;

	fprintf(stderr, "%s:%d: ", file, line);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\n");
	exit(EXIT_FAIL);
}

void harness_skipped(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, "\n");
	exit(EXIT_SKIP);
}

static bool is_wanted(const struct test *test, int argc, char **argv)
{
	char full[256];

	snprintf(full, sizeof(full), "%s/%s", test->suite, test->name);
	for (int i = 1; i < argc; i++)
		if (strncmp(full, argv[i], strlen(argv[i])) == 0)
			return true;
	return argc == 1;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void repeat(const struct test *test, int times)
{
	uint64_t start = now_ns();

	for (int i = 0; i < times; i++)
		test->run();
	printf("%s/%s: %d runs, %.0f a second\n", test->suite, test->name,
	       times, times / ((double)(now_ns() - start) / 1e9));
}

static int run_one(const struct test *test, int times)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		if (times)
			repeat(test, times);
		else
			test->run();
		exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return EXIT_FAIL;
	return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAIL;
}

int main(int argc, char **argv)
{
	int passed = 0, failed = 0, skipped = 0, times = 0;

	if (argc > 2 && strcmp(argv[1], "--repeat") == 0) {
		times = atoi(argv[2]);
		argc -= 2;
		argv += 2;
	}

	for (int i = 0; i < test_count; i++) {
		int status;

		if (!is_wanted(&tests[i], argc, argv))
			continue;
		status = run_one(&tests[i], times);
		passed += status == 0;
		skipped += status == EXIT_SKIP;
		failed += status != 0 && status != EXIT_SKIP;
		if (status)
			printf("%s %s/%s\n",
			       status == EXIT_SKIP ? "SKIP" : "FAIL",
			       tests[i].suite, tests[i].name);
	}
	printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
	return failed > 0 || passed == 0;
}

#endif
