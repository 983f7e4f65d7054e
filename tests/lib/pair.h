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
#include "tests/stage.h"

#define PAIR_LOG_MAX 4096
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
	/* Each verbs call of this end, in order: "reg_mr modify:2 ...". */
	char log[PAIR_LOG_MAX];
	uint8_t posted_head[8]; /* of slot 1, when it was last posted */
	uint8_t *slot_1;
	int slot_1_posts;
	/* Misbehaviour of this end's device; see pair.c. */
	struct {
		int fail_dereg;		 /* errno of dereg_mr */
		int fail_rtr;		 /* errno of modify_qp to RTR */
		int poll_result;	 /* returned by poll_cq when negative */
		uint64_t wrong_wr_id;	 /* of the next receive completion */
		bool duplicate_recv;	 /* hand the next one out twice */
		uint32_t wrong_byte_len; /* of the next receive completion */
		/* "Success without DMA": when slot 1 completes again, it holds
		 * what it held when it was posted. */
		bool undo_slot_1_of_lap_2;
		/* Hold receive completions back until the peer has ended. */
		bool is_late;
	} bad;
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

/* The calling thread's verbs calls are this end's from here on. */
void pair_hooks_as(struct pair_end *end);

/* Close sockets and world; checks that no object is left in it. */
void pair_fini(struct pair *pair);

/* Scripts. Wait until the peer has ended the connection, -EBADMSG if never. */
int pair_wait_for_end(struct pair_end *end);
/* Three strides and 5 bytes, then the end of our side of the connection. */
int pair_send_and_leave(struct pair_end *end);
/* The same bytes, looked for only when the peer's end has come. */
int pair_recv_after_end(struct pair_end *end);

#endif
