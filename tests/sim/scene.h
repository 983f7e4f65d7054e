/* SPDX-License-Identifier: MIT */
/*
 * What the tests of section 5 look at on both ends of a rig, how they bring
 * one where they want it, and rows of what may be spoilt in a message and what
 * comes of it. Each function fails the test on any error.
 */
#ifndef TESTS_SIM_SCENE_H
#define TESTS_SIM_SCENE_H

#include "tests/rig.h"

#include "tests/harness.h"

#define COUNT(table) (sizeof(table) / sizeof(*(table)))
#define FAST	     "mlx5,timers=1000"

#define ALL_ACCESS                                            \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |    \
	 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | \
	 IBV_ACCESS_MW_BIND)
#define NONE	 (-1) /* no completion */
#define WR_ID	 77
#define RECV_ID	 88
#define RECV_LEN 64u
#define RECV_AT	 4096u

/* rig_pair, in silence. */
void scene_pair(struct rig *rig, const char *model, enum ibv_qp_type type);

/* Through the states up to this one: end i. */
void scene_bring(struct rig *rig, int i, enum ibv_qp_state state);

/* Both ends by way of RESET to RTS. */
void scene_connect(struct rig *rig);

/* Poll until something comes; only bounded. */
struct ibv_wc end_wait(struct rig_end *end);

/* The next event of an end and its element; 0 and NULL when there is none. */
int end_event(struct rig_end *end, void **element);
void end_check_event(struct rig_end *end, int type, void *element);

/* The same, of the end's queue pair. */
int end_event_type(struct rig_end *end);

int end_state(struct rig_end *end);

/* Another queue pair in the place of an end's, in RESET; its queues are the
 * end's unless they are given. */
void end_replace(struct rig_end *end, struct ibv_qp_init_attr *init);

/* RTR to RTS with these budgets, RC. */
void end_to_rts(struct rig_end *end, uint8_t timeout, uint8_t retry_cnt,
		uint8_t rnr_retry);

/* Access flags of the queue pair. */
void end_allow(struct rig_end *end, unsigned flags);

/* A request of 8 bytes of the end's memory; and post one with these flags. */
struct ibv_send_wr end_request(struct rig_end *end, struct ibv_sge *sge,
			       uint64_t wr_id);
int end_post(struct rig_end *end, uint64_t wr_id, unsigned flags);

/* A pair, and on each end a second domain with the same memory. */
struct scene {
	struct rig rig;
	struct ibv_pd *pd[2];
	struct ibv_mr *foreign[2];
	struct ibv_mr *plain[2]; /* of the end's own domain, no flag at all */
	struct ibv_sge sge;
	struct ibv_sge recv_sge;
	struct ibv_send_wr wr;
	bool has_recv;
};

/* A pair that allows everything; and all of it down again. */
void scene_set(struct scene *s, const char *model, const char *plan,
	       enum ibv_qp_type type);
void scene_strike(struct scene *s);

/* End i anew, with another path MTU or expected number (a mask). */
void scene_reconnect(struct scene *s, int i, int changed,
		     const struct ibv_qp_attr *to);

/* A request that is right: 8 bytes of end 0, 8 bytes of end 1. */
void scene_prepare(struct scene *s, enum ibv_wr_opcode opcode);

/* What is spoilt, and what the two ends have then. */
struct scene_row {
	const char *what;
	enum ibv_wr_opcode opcode;
	int requester; /* completion, and ERR unless it is SUCCESS */
	int responder; /* of the receive */
	int event;
	bool fails; /* the responder is in ERR */
};

/* Post what a row says. */
void scene_play(struct scene *s, const struct scene_row *row);
void scene_check_requester(struct scene *s, const struct scene_row *row);
void scene_check_responder(struct scene *s, const struct scene_row *row);

/* Each row on a pair of its own, both ends looked at. */
void scene_check_rows(const struct scene_row *rows, size_t count,
		      const char *model, enum ibv_qp_type type);

#endif
