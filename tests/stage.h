/* SPDX-License-Identifier: MIT */
/*
 * A stage: two transports against each other in a deterministic run. What every
 * protocol test stands on: the same scenario gives the same trace, in each
 * build and each time. How the run goes is README.md of sim, rules 1 … 9.
 *
 * Each end probes, exchanges capabilities over the stream, activates, runs its
 * script and closes. Scripts run in tasks and never CHECK; the test looks at
 * what they left in their end.
 */
#ifndef TESTS_STAGE_H
#define TESTS_STAGE_H

#include <stdio.h>

#include "lib/verbena.h"
#include "sim/sim.h"
#include "tests/spy.h"

#define STAGE_TIMEOUT_NS 300000000u

struct stage_end {
	struct stage *stage;
	int side; /* 0 = a, 1 = b */
	struct vb_boot boot;
	struct vb_options options; /* clock, idle, stream, address are set */
	/* 0 or a negative errno, for `rc`. NULL: nothing to say. */
	int (*script)(struct stage_end *end);
	bool has_connect;    /* vb_connect does all but the script */
	bool skips_activate; /* the script does it */
	struct vb_transport *transport;
	uint8_t caps[VB_CAPS_BYTES], peer_caps[VB_CAPS_BYTES];
	struct spy spy;
	uint64_t boot_sent, boot_received; /* bytes of the stream */
	uint64_t frames_received;	   /* at the end */
	/* Of use to scripts, which may not CHECK. */
	uint64_t took_ns;
	uint32_t stride, slots;
	bool has_crc;
	char transport_name[16];	   /* when there was one */
	int probed, activated, rc, closed; /* what each step returned */
	struct vb_cause cause;		   /* before close */
};

struct stage {
	struct sim_world *world;
	struct sim_play play;
	struct sim_play_result result;
	int played; /* what sim_play returned */
	char *trace;
	size_t trace_bytes;
	struct stage_end end[2];
};

/* A private world of this model on both hosts ("a|b": one each); `plan` is
 * armed, NULL for none. Strides are 4 KiB, deadlines 300 ms of the run's time.
 */
void stage_init(struct stage *stage, const char *model, const char *plan);

/* Run both ends. Can be called once. */
void stage_run(struct stage *stage, enum sim_personality personality);

/* Everything down; checks that no object is left. */
void stage_fini(struct stage *stage);

/* Let so much of the run's time pass. */
void stage_sleep(uint64_t ns);

/* Send, or receive and check, bytes [from, from + len) of one fixed stream.
 * 0, the transport's error, or -EBADMSG for a wrong byte. */
int stage_send_pattern(struct vb_transport *t, uint64_t from, uint64_t len);
int stage_recv_pattern(struct vb_transport *t, uint64_t from, uint64_t len);
void stage_fill_pattern(void *bytes, uint64_t from, uint64_t len);
bool stage_is_pattern(const void *bytes, uint64_t from, uint64_t len);

#endif
