/* SPDX-License-Identifier: MIT */
/* The only place in sim that makes up numbers. */
#ifndef SIM_RAND_H
#define SIM_RAND_H

#include <stdint.h>

/* The n-th number of the sequence that a seed begins (splitmix64, Steele,
 * Lea and Flood 2014): any n at once, in every build the same. */
static inline uint64_t sim_rand(uint64_t seed, uint64_t n)
{
	uint64_t z = seed + (n + 1) * 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

#endif
