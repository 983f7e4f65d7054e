/* SPDX-License-Identifier: MIT */
/* CRC-32C: by the processor's instruction where it has one, else by table. */
#include "lib/wire.h"

#include <pthread.h>
#include <string.h>

#define POLYNOMIAL 0x82f63b78u /* reflected */

static uint32_t table[256];
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static void make_table(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t crc = i;

		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
		table[i] = crc;
	}
}

uint32_t vb_crc32c_by_table(uint32_t crc, const void *bytes, size_t len)
{
	const uint8_t *at = bytes;

	pthread_once(&table_once, make_table);
	crc = ~crc;
	while (len--)
		crc = crc >> 8 ^ table[(crc ^ *at++) & 0xff];
	return ~crc;
}

#if defined(__x86_64__)

__attribute__((target("sse4.2"))) static uint32_t
by_instruction(uint32_t crc, const uint8_t *at, size_t len)
{
	uint64_t wide = ~crc;

	for (; len >= 8; at += 8, len -= 8) {
		uint64_t word;

		memcpy(&word, at, 8);
		wide = __builtin_ia32_crc32di(wide, word);
	}
	crc = (uint32_t)wide;
	while (len--)
		crc = __builtin_ia32_crc32qi(crc, *at++);
	return ~crc;
}

static bool has_instruction(void)
{
	return __builtin_cpu_supports("sse4.2");
}

#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)

#include <arm_acle.h>

static uint32_t by_instruction(uint32_t crc, const uint8_t *at, size_t len)
{
	crc = ~crc;
	for (; len >= 8; at += 8, len -= 8) {
		uint64_t word;

		memcpy(&word, at, 8);
		crc = __crc32cd(crc, word);
	}
	while (len--)
		crc = __crc32cb(crc, *at++);
	return ~crc;
}

static bool has_instruction(void)
{
	return true;
}

#else

static uint32_t by_instruction(uint32_t crc, const uint8_t *at, size_t len)
{
	return vb_crc32c_by_table(crc, at, len);
}

static bool has_instruction(void)
{
	return false;
}

#endif

uint32_t vb_crc32c(uint32_t crc, const void *bytes, size_t len)
{
	return has_instruction() ? by_instruction(crc, bytes, len)
				 : vb_crc32c_by_table(crc, bytes, len);
}
