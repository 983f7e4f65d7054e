/* SPDX-License-Identifier: MIT */
/*
 * A verbs table that logs one end's calls, watches what must always hold, and
 * misbehaves on demand. An end is a thread: it says who it is with spy_as.
 */
#ifndef TESTS_SPY_H
#define TESTS_SPY_H

#include "lib/verbs.h"

#define SPY_LOG_MAX  8192
#define SPY_SLOT_MAX 64

struct spy {
	/* Each call, in order: "reg_mr:2097152:7 modify:2:101181 ...". */
	char log[SPY_LOG_MAX];

	/* What is watched. */
	int sends_out, sends_most; /* in flight: now, and the most ever */
	int recvs_out;		   /* posted and not completed */
	int unmarked;		   /* SENDs of a stride without its magic */
	int misordered;		   /* hardened SENDs out of sequence */
	uint32_t sequence;	   /* of the next */
	int dirty;		   /* SENDs of a stride with padding not 0 */
	int touched;		   /* SENDs changed while in flight */
	int reposted;		   /* receives posted while posted */
	int early_posts;	   /* receives before RTR */
	int state;		   /* the queue pair's, as last asked for */
	uint64_t send_sum[SPY_SLOT_MAX];
	bool recv_is_posted[SPY_SLOT_MAX];
	struct ibv_sge send_at[SPY_SLOT_MAX];
	struct ibv_qp_attr rtr, rts; /* as given to modify_qp */
	struct ibv_qp_init_attr asked;

	/* Misbehaviour of this end's device. */
	struct {
		int fail_dereg;		 /* errno of dereg_mr */
		int fail_rtr;		 /* errno of modify_qp to RTR */
		int poll_result;	 /* returned by poll_cq when negative */
		uint64_t wrong_wr_id;	 /* of the next receive completion */
		bool duplicate_recv;	 /* hand the next one out twice */
		bool swap_recvs;	 /* of two in one batch */
		uint32_t wrong_byte_len; /* of the next receive completion */
		bool zero_byte_len;	 /* the same, and 0 */
		int wrong_opcode;	 /* of the next receive completion */
		bool no_inline;		 /* create_qp refuses any */
		/* "Success without DMA": when slot 1 completes again, it holds
		 * what it held when it was posted. */
		bool undo_slot_1_of_lap_2;
		/* Sends complete only after a receive has failed. */
		bool sends_come_last;
		/* While it says so, nothing is polled. */
		bool (*holds)(void *arg);
		void *arg;
	} bad;
	uint8_t slot_1_head[8]; /* when it was last posted */
	uint8_t *slot_1;
	int slot_1_posts;
};

/* The calling thread's verbs calls are this end's from here on; NULL: they are
 * nobody's, and not looked at. */
void spy_as(struct spy *spy);
/* The rig's table, spied on. */
struct vb_verbs *spy_verbs(void);
/* How often a word stands in the log. */
int spy_count(const struct spy *spy, const char *word);

#endif
