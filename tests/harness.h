/* SPDX-License-Identifier: MIT */
/*
 * One test body, two runners. With HARNESS_CRITERION a Test is Criterion's;
 * without, it is run by the plain main of tests/plain.c, a fork each, for
 * Valgrind, ThreadSanitizer and AddressSanitizer, under which Criterion
 * cannot run or hides what they find.
 *
 * Only the test's own thread may CHECK; threads and processes that a test
 * starts return verdicts.
 */
#ifndef TESTS_HARNESS_H
#define TESTS_HARNESS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef HARNESS_CRITERION

#include <criterion/criterion.h>

#define CHECK(condition, ...) cr_assert(condition, __VA_ARGS__)
#define SKIP(...)	      cr_skip_test(__VA_ARGS__)

#else

void harness_add(const char *suite, const char *name, void (*run)(void));
void harness_failed(const char *file, int line, const char *format, ...)
	__attribute__((noreturn, format(printf, 3, 4)));
void harness_skipped(const char *format, ...)
	__attribute__((noreturn, format(printf, 1, 2)));

#define Test(suite, name)                                                   \
	static void test_##suite##_##name(void);                            \
	__attribute__((constructor)) static void add_##suite##_##name(void) \
	{                                                                   \
		harness_add(#suite, #name, test_##suite##_##name);          \
	}                                                                   \
	static void test_##suite##_##name(void)

#define CHECK(condition, ...)                                            \
	do {                                                             \
		if (!(condition))                                        \
			harness_failed(__FILE__, __LINE__, __VA_ARGS__); \
	} while (0)
#define SKIP(...) harness_skipped(__VA_ARGS__)

#endif

/* Both values are evaluated once and shown on failure. */
#define CHECK_EQ(have, want)                                                  \
	do {                                                                  \
		long long have_ = (long long)(have);                          \
		long long want_ = (long long)(want);                          \
		CHECK(have_ == want_, "%s: have %lld, want %lld (%s)", #have, \
		      have_, want_, #want);                                   \
	} while (0)

#define CHECK_HAS(text, part)                                                \
	do {                                                                 \
		const char *text_ = (text);                                  \
		const char *part_ = (part);                                  \
		CHECK(strstr(text_, part_) != NULL, "no '%s' in: %s", part_, \
		      text_);                                                \
	} while (0)

#endif
