/* SPDX-License-Identifier: MIT */
/*
 * Two processes in one world: the test's own on host a, and one on host b that
 * does what it is told, one step at a time. Both have a queue pair with deep
 * queues, and another with completion queues of its own and no receives.
 */
#ifndef TESTS_SIM_DUO_H
#define TESTS_SIM_DUO_H

#include "tests/rig.h"

#define MEMORY (16u << 20) /* bytes a side */
#define PLACE  32768	   /* a receive that takes any parcel */
#define DEPTH  512	   /* of the first queue pair */
#define ACCESS                                             \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

enum order {
	CONNECT,
	RECEIVE,
	POLL,
	DRAIN,
	PEEK,
	UNMAP,
	UNREGISTER,
	DESTROY, /* the first queue pair */
	RENEW,	 /* other memory, registered anew */
	SHRINK,	 /* the file of the memory, to nothing */
	SWAP,	 /* for another file, at the same descriptor */
	HOLD,	 /* its taking (a: posting) side, and be stopped with that */
	END
};

/* What memory both sides register: of malloc; a memfd; or a sealed one. */
enum duo_memory { DUO_MALLOC, DUO_FILE, DUO_SEALED };
extern enum duo_memory duo_memory; /* set before duo_start */

/* An order and its arguments; and the answer. */
struct note {
	enum order order;
	uint32_t a, b;
	uint64_t value;
};

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	uint32_t far_num; /* that it is connected to */
	/* A second one, with a queue of its own and no receives. */
	struct ibv_cq *other_cq;
	struct ibv_qp *other;
	uint8_t *memory;
	int fd; /* of it, or -1 */
};

/* What the other side tells of itself before it is connected. */
struct card {
	uint32_t qp_num, other_num, rkey;
	uint64_t memory;
};

struct duo {
	struct sim_world *world;
	struct side side;
	struct card far;
	int to, from; /* pipes */
	pid_t pid;
};

/* Byte `at` of message number `message`. */
uint8_t duo_byte(uint32_t message, uint32_t at);

/* A world, both sides in it and connected; `may_copy` false: both with the
 * calls of process_vm forbidden. And its end; `abandon` when the other was
 * killed. */
void duo_start(struct duo *duo, bool may_copy);
void duo_finish(struct duo *duo);
void duo_abandon(struct duo *duo);

/* Give an order; and wait for its answer, which is the value. */
void duo_say(struct duo *duo, enum order order, uint32_t a, uint32_t b,
	     uint64_t value);
uint64_t duo_tell(struct duo *duo, enum order order, uint32_t a, uint32_t b,
		  uint64_t value);

/* Post SENDs a … b - 1 of `len` bytes from places of their own; and take their
 * completions, in order. */
void duo_post_sends(struct duo *duo, uint32_t a, uint32_t b, uint32_t len);
void duo_await_sends(struct duo *duo, uint32_t a, uint32_t b);

/* One request, to its completion. `remote` is an offset in the other's memory;
 * an atomic adds 1 through the other queue pair, 0 through the first. */
enum ibv_wc_status duo_run_on(struct duo *duo, struct ibv_qp *qp,
			      enum ibv_wr_opcode opcode, uint8_t *memory,
			      uint32_t len, uint64_t remote);
enum ibv_wc_status duo_run(struct duo *duo, enum ibv_wr_opcode opcode,
			   uint8_t *memory, uint32_t len, uint64_t remote);
void duo_send_message(struct duo *duo, uint32_t message, uint32_t len);

#endif
