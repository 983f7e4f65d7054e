/* SPDX-License-Identifier: MIT */
/*
 * Two transports against each other, each in a thread of its own, on the two
 * hosts of a private world; and a verbs table that logs and misbehaves.
 */
#ifndef TESTS_LIB_PAIR_H
#define TESTS_LIB_PAIR_H

#include <pthread.h>

#include "lib/verbs.h"
#include "tests/rig.h"
#include "tests/spy.h"
#include "tests/stage.h"

#define PAIR_PAYLOAD 131064u /* payload bytes of a 128 KiB stride */

struct pair;

/* One endpoint's script and what came of it. The script runs in the thread
 * and never asserts; the test looks at the results afterwards. */
struct pair_end {
	struct pair *pair;
	int side;
	int fd;
	struct vb_options options;
	int (*script)(struct pair_end *end);
	struct vb_transport *transport;
	int probed;	       /* what vb_probe returned */
	int activated;	       /* what vb_activate returned */
	int rc;		       /* what the script returned */
	int closed;	       /* what vb_close returned */
	struct vb_cause cause; /* before close */
	bool is_nonblocking;   /* the socket, once capabilities are exchanged */
	bool skips_activate;   /* the script does the rest by hand */
	uint8_t peer_caps[VB_CAPS_BYTES];
	pthread_t thread;
	struct spy spy;
	uint64_t ended_ns; /* when the peer's end was seen; see pair_is_late */
};

struct pair {
	struct sim_world *world;
	struct pair_end end[2];
};

/* A world of this model (and plan, or NULL), sockets, default options with a
 * deadline of 300 ms; scripts are still to be set. */
void pair_init(struct pair *pair, const char *model, const char *plan);

/* Run both ends: probe, exchange capabilities, activate, script, close. */
void pair_run(struct pair *pair);

/* Receives show up only 5 ms after the peer's end of the socket was seen. */
void pair_is_late(struct pair_end *end);

/* Close sockets and world; checks that no object is left in it. */
void pair_fini(struct pair *pair);

/* Scripts. Wait until the peer has ended the connection, -EBADMSG if never. */
int pair_wait_for_end(struct pair_end *end);
/* Three strides and 5 bytes, then the end of our side of the connection. */
int pair_send_and_leave(struct pair_end *end);
/* The same bytes, looked for only when the peer's end has come. */
int pair_recv_after_end(struct pair_end *end);

#endif
