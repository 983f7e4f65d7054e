/* SPDX-License-Identifier: MIT */
/*
 * What every fuzzer stands on: an input that is taken piece by piece, and zeros
 * when it has ended; and MUST, which ends the run with the place when a
 * property does not hold.
 */
#ifndef CI_FUZZ_INPUT_H
#define CI_FUZZ_INPUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                                  \
	do {                                                             \
		if (!(condition)) {                                      \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, \
				__LINE__, #condition);                   \
			abort();                                         \
		}                                                        \
	} while (0)

struct input {
	const uint8_t *at;
	size_t left;
};

static inline void input_bytes(struct input *in, void *to, size_t size)
{
	size_t take = size < in->left ? size : in->left;

	memset(to, 0, size);
	if (take)
		memcpy(to, in->at, take);
	in->at += take;
	in->left -= take;
}

static inline uint8_t input_u8(struct input *in)
{
	uint8_t value;

	input_bytes(in, &value, sizeof(value));
	return value;
}

static inline uint16_t input_u16(struct input *in)
{
	uint16_t value;

	input_bytes(in, &value, sizeof(value));
	return value;
}

static inline uint32_t input_u32(struct input *in)
{
	uint32_t value;

	input_bytes(in, &value, sizeof(value));
	return value;
}

static inline uint64_t input_u64(struct input *in)
{
	uint64_t value;

	input_bytes(in, &value, sizeof(value));
	return value;
}

/* libFuzzer's door. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
