/* SPDX-License-Identifier: MIT */
/*
 * One end of a connection whose peer is about to be lost; ci/survive.py loses
 * it. Sends and receives without an end; when a call fails, tells in one line
 * what the failure was, when, and what the wait for it cost:
 *
 *   survive FD TRANSPORT MODE DEADLINE_MS SIDE
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/verbena.h"

#define BYTES_MAX 300000u

static double seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Both ends know who sends how much, in which turn. */
static uint32_t turn_bytes(uint32_t turn)
{
	return turn * 2654435761u % (turn % 8 ? 20000u : BYTES_MAX) + 1;
}

static int turn(struct vb_transport *t, uint8_t *bytes, uint32_t n, int side)
{
	uint32_t len = turn_bytes(n);
	int rc;

	if ((int)(n % 2) == side) {
		memset(bytes, (int)n, len);
		rc = vb_send(t, bytes, len);
		return rc ? rc : vb_flush(t);
	}
	rc = vb_recv(t, bytes, len);
	for (uint32_t i = 0; !rc && i < len; i++)
		if (bytes[i] != (uint8_t)n) {
			fprintf(stderr, "turn %u: byte %u is wrong\n", n, i);
			exit(1);
		}
	return rc;
}

int main(int argc, char **argv)
{
	struct vb_options options = {
		.gid = {[10] = 0xff, 0xff, 127, 0, 0, 1},
		.has_crc = true,
	};
	struct vb_transport *t = NULL;
	struct vb_cause cause = {0};
	double wall = seconds(CLOCK_MONOTONIC);
	double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
	uint8_t *bytes = malloc(BYTES_MAX);
	uint32_t turns = 0;
	int rc, closed = 0;

	if (argc != 6 || !bytes)
		return 2;
	options.fd = atoi(argv[1]);
	options.transport = (enum vb_transport_kind)atoi(argv[2]);
	options.mode = (enum vb_mode)atoi(argv[3]);
	options.timeout_ns = strtoull(argv[4], NULL, 10) * 1000000;
	/* From here on it can be lost: it has come into the world. */
	if (vb_registry_create(NULL, &options.registry) != 0 ||
	    vb_registry_refresh(options.registry) != 0)
		return 2;
	puts("ready");
	fflush(stdout);
	rc = vb_connect(&options, &t, &cause);
	for (; !rc; turns++) {
		wall = seconds(CLOCK_MONOTONIC);
		cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
		rc = turn(t, bytes, turns, atoi(argv[5]));
	}
	cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	printf("{\"rc\": %d, \"at\": %.6f, \"waited\": %.6f, \"cpu\": %.6f, ",
	       rc, seconds(CLOCK_MONOTONIC), seconds(CLOCK_MONOTONIC) - wall,
	       cpu);
	if (t) {
		cause = *vb_cause(t);
		printf("\"transport\": \"%s\", ", vb_transport_name(t));
		closed = vb_close(t, NULL);
	}
	printf("\"turns\": %u, \"closed\": %d, \"kept\": %d, "
	       "\"code\": \"%s\", \"text\": \"%s\"}\n",
	       turns, closed, vb_release_kept(), vb_code_name(cause.code),
	       cause.text);
	vb_registry_destroy(options.registry);
	free(bytes);
	return 0;
}
