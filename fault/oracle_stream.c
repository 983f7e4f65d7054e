/* SPDX-License-Identifier: MIT */
/*
 * Self-locating payload: each 8-byte word is an invertible mix of (seed,
 * offset), so that a wrong word names the offset it came from, and a shift, a
 * duplicate, a stale buffer and a flip can be told apart.
 */
#include "fault/fault.h"

/* The finalizer of MurmurHash3 (public domain), a bijection of 64 bits. */
#define MULTIPLY_1 0xff51afd7ed558ccdull
#define MULTIPLY_2 0xc4ceb9fe1a85ec53ull
#define INVERSE_1  0x4f74430c22a54005ull
#define INVERSE_2  0x9cb4b2f8129337dbull

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 33) * MULTIPLY_1;
	x = (x ^ x >> 33) * MULTIPLY_2;
	return x ^ x >> 33;
}

static uint64_t unmix(uint64_t x)
{
	x = (x ^ x >> 33) * INVERSE_2;
	x = (x ^ x >> 33) * INVERSE_1;
	return x ^ x >> 33;
}

uint64_t fault_word_at(uint64_t seed, uint64_t at)
{
	return mix(at / 8 + mix(seed));
}

int64_t fault_word_offset(uint64_t seed, uint64_t word, uint64_t limit)
{
	uint64_t index = unmix(word) - mix(seed);

	return index < limit / 8 ? (int64_t)(index * 8) : -2;
}
