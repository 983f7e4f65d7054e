/* SPDX-License-Identifier: MIT */
/*
 * What tests stand on: a private world with two hosts, seen through verbs; a
 * transport pair in two threads; and programs run as a user would.
 */
#ifndef TESTS_RIG_H
#define TESTS_RIG_H

#include <infiniband/verbs.h>
#include <sys/types.h>

#include "lib/verbena.h"
#include "sim/sim.h"

#define RIG_BYTES (1u << 20)

/* One end: an open device of its host, and one connected queue pair. */
struct rig_end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	uint8_t *memory; /* RIG_BYTES, registered, zero */
};

struct rig {
	struct sim_world *world;
	struct rig_end end[2];
};

/* A private world of this model on both hosts, devices opened, nothing made
 * on them. `plan` is armed, NULL for none. Fails the test on any error. */
void rig_open(struct rig *rig, const char *model, const char *plan);

/* The same, in the late personality: see sim_world_config. */
void rig_open_late(struct rig *rig, const char *model, uint64_t late_ns);

/* Arm a world with a plan's text. */
void rig_arm(struct sim_world *world, const char *text);

/* PD, CQ, region and a queue pair in RESET on one end. `depth` is asked for
 * both queues. */
void rig_make(struct rig_end *end, enum ibv_qp_type type, uint32_t depth);

/* Both ends from RESET to the given state, towards each other. */
void rig_connect(struct rig *rig, enum ibv_qp_state state);

/* rig_open, rig_make on both ends, rig_connect to RTS. */
void rig_pair(struct rig *rig, const char *model, const char *plan,
	      enum ibv_qp_type type);

/* Everything down again; checks that the world holds no object afterwards. */
void rig_close(struct rig *rig);

/* One modify of `end` towards `peer`, 0 or a positive errno. */
int rig_modify(struct rig_end *end, const struct rig_end *peer,
	       enum ibv_qp_state state);

/* Post one request over [offset, offset + len) of the end's memory; 0 or what
 * the verb returned. */
int rig_send(struct rig_end *end, uint64_t wr_id, uint32_t offset,
	     uint32_t len);
int rig_recv(struct rig_end *end, uint64_t wr_id, uint32_t offset,
	     uint32_t len);

/* Exactly one completion, or the test fails; and none at all. */
struct ibv_wc rig_wc(struct rig_end *end);
void rig_no_wc(struct rig_end *end);

/* Counters of line `id` of the armed plan. */
struct sim_fault *rig_fault(struct rig *rig, int line);

/* --- transports --------------------------------------------------------- */

/* The verbs table over the front that is linked into the tests. */
struct vb_verbs *rig_verbs(void);

/* Two connected TCP sockets on 127.0.0.1. */
void rig_sockets(int fds[2]);

/* --- programs ----------------------------------------------------------- */

struct rig_output {
	int status; /* exit status, 128 + signal, or -1: ended by deadline */
	char text[16384]; /* standard output and error together */
};

/* A shell command with VERBENA set to the tool and BUILD to its folder. */
void rig_shell(struct rig_output *output, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* A TCP port of loopback that nobody listens on just now. */
int rig_free_port(void);

/* Number of worlds in /dev/shm whose name holds `part`, and of folders beside
 * them. */
int rig_worlds_left(const char *part);

/* A name no other test process uses. */
const char *rig_name(void);

#endif
