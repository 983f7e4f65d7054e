/* SPDX-License-Identifier: MIT */
/*
 * The layout of a world's segment, and the rules for touching it.
 *
 * Everything refers by index, never by pointer. Objects are named by handles:
 * slot number in the low bits, generation above, so that a handle of a dead
 * object, or garbage, is an error and not another object.
 *
 * Lock order: reap lock; one send queue; one receive queue; one completion
 * queue; world lock. All are robust: an owner's death is noticed by the
 * next taker, and each structure is valid after every single store. Objects and
 * memory of the arena are claimed and given back without one.
 */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include <infiniband/verbs.h>
#include <pthread.h>

#include "sim/sim.h"

#define SIM_PROC_MAX	 64
#define SIM_PD_MAX	 4096
#define SIM_CQ_MAX	 4096
#define SIM_QP_MAX	 4096
#define SIM_MR_MAX	 131072
#define SIM_CHANNEL_MAX	 4096
#define SIM_SRQ_MAX	 4096
#define SIM_XRCD_MAX	 256
#define SIM_MCAST_MAX	 1024
#define SIM_ATOMIC_LOCKS 64
#define SIM_KNOB_MAX	 24
#define SIM_GID_MAX	 16
#define SIM_PORT_MAX	 2
#define SIM_ARENA_BYTES	 (512ull << 20)
#define SIM_PLAN_MAX	 8192
#define SIM_NONE	 UINT32_MAX
#define SIM_LINE	 64  /* bytes of a cache line */
#define SIM_APART	 128 /* lines are fetched in pairs */

/* Handles: 20 bits of slot, 12 bits of generation, never 0. */
#define SIM_SLOT_BITS	 20
#define SIM_SLOT(handle) ((handle) & ((1u << SIM_SLOT_BITS) - 1))

/* A lock that one instruction takes and a store drops; a dead owner's goes to
 * the next taker. All zero is free. */
struct sim_latch {
	_Atomic uint32_t owner; /* `locker` of a world's view */
	_Atomic uint32_t waiters;
};

enum sim_life {
	SIM_FREE = 0,
	SIM_LIVE = 1,
};

/* The kinds of objects, each with a table. */
enum sim_kind_of_object {
	SIM_PD,
	SIM_CHANNEL,
	SIM_CQ,
	SIM_QP,
	SIM_MR,
	SIM_SRQ,
	SIM_XRCD,
	SIM_OBJECTS,
};

#define SIM_CLAIMED 0x80000000u
#define SIM_ORPHAN  0x40000000u /* its owner is gone, and it cannot end */

/* The head of every object. `handle` is 0 while the slot is free. */
struct sim_object {
	_Atomic uint32_t handle;
	uint32_t generation;
	/* Place of the owner, with SIM_CLAIMED while the rest of the head is
	 * not its yet; 0 = the slot is free. */
	_Atomic uint32_t proc;
	uint32_t host;
	uint32_t context; /* of its owner, that it was made on */
};

/* Who asks holds the lock; see mover.c. */
struct sim_mover {
	struct sim_latch lock;
	_Atomic uint32_t turn;
	_Atomic uint32_t is_there;
	uint32_t is_read, is_bad;
	uint64_t addr, length;
	uint64_t block; /* arena offset */
};

struct sim_proc {
	_Atomic uint32_t life;	/* enum sim_life */
	_Atomic uint32_t lives; /* how many this place has had */
	int32_t pid;
	uint32_t host;
	uint32_t is_observer;
	uint32_t is_retired; /* an observer that has seen its program end */
	_Atomic uint64_t pinned_bytes; /* of its regions, whole pages */
	struct sim_mover mover;
};

struct sim_pd {
	struct sim_object object;
	_Atomic uint32_t users; /* MRs and QPs on it */
};

/* Regions and memory windows share one table, as they share one key space. */
enum sim_mr_kind { SIM_MR_REGION, SIM_MR_WINDOW_1, SIM_MR_WINDOW_2 };

struct sim_mr {
	struct sim_object object;
	uint32_t kind;		  /* enum sim_mr_kind */
	uint32_t region;	  /* a bound window's: handle; 0 = not bound */
	uint32_t qp_num;	  /* the only queue pair of a type 2 window */
	_Atomic uint32_t windows; /* bound to this region */
	uint32_t key;
	uint32_t pd;
	uint32_t access;
	uint32_t
		is_aliased; /* R6: only the low 32 address bits reach the bus */
	int32_t map_fd;	    /* of its owner: peers map it; -1: not so */
	uint64_t map_offset;
	uint64_t map_inode; /* of that file: the descriptor may be another's */
	uint64_t addr;
	uint64_t length;
	uint64_t iova;
};

struct sim_channel {
	struct sim_object object;
	_Atomic uint32_t users;
	_Atomic uint32_t pending; /* queues on it that owe an event */
};

enum sim_arm { SIM_ARM_NONE, SIM_ARM_NEXT, SIM_ARM_SOLICITED };

struct sim_cqe {
	/* Of a late one with few bytes: all of them, in place of what its
	 * receive and queue pair tell as well. */
	union {
		struct {
			uint64_t wr_id;
			uint32_t qp_num;
			uint32_t src_qp;
			uint32_t vendor_err;
			/* 1 + where in the queue's parcels; 0 = none */
			uint32_t parcel;
		};
		uint8_t tiny[24];
	};
	uint32_t qp;	    /* handle */
	uint32_t wqe_index; /* frees the slots up to this one when polled */
	uint32_t byte_len;
	uint32_t imm;
	uint16_t wc_flags;
	uint8_t status;
	uint8_t opcode;
	uint8_t is_recv;
	uint8_t is_solicited;
	uint8_t sl;
	uint16_t slid;
	uint16_t pkey_index;
	uint8_t is_srq; /* its slot was free when it was taken */
	/* The owner, when it polls, finds its receive and fills it: from the
	 * slot's own bytes, or from a parcel (parcel.c). */
	uint8_t is_late;
	uint8_t fails_qp; /* filling its receive has failed */
	uint8_t reserved[5];
	_Atomic uint32_t turn; /* 1 + index of the completion in this slot */
};
_Static_assert(sizeof(struct sim_cqe) == 64, "one cache line a completion");

/* Small messages travel with their completion; but in a large queue, whose
 * slots are only as long as that. */
struct sim_cq_slot {
	struct sim_cqe cqe;
	uint8_t bytes[SIM_LINE];
};

/* A long message on its way, in pieces; see share.c. */
struct sim_share {
	_Atomic uint32_t claimed; /* pieces, by either end */
	_Atomic uint32_t back;	  /* of those, from the end */
	_Atomic uint32_t helpers;
	_Atomic uint32_t has_failed; /* one of them */
	_Atomic uint32_t is_taken;
	_Atomic uint32_t is_stuck; /* by a helper that is stopped */
	_Atomic uint32_t pieces;
	_Atomic uint32_t from; /* locker of the poster */
	uint32_t piece_bytes;
	uint32_t to_proc;
	uint64_t from_addr, to_addr, length;
};

/*
 * Those who complete hold `lock`, who polls holds `poll_lock`; neither waits
 * for the other. Who changes what is in between holds both, in that order. They
 * are on lines apart, as they are on different cores.
 */
struct sim_cq {
	struct sim_object object;
	uint64_t ring;	 /* arena offset of `size` slots, `stride` apart */
	uint32_t size;	 /* power of two */
	uint32_t stride; /* a slot, or of a large queue: without its bytes */
	uint32_t depth;
	uint32_t channel; /* handle, or 0 */
	_Atomic uint32_t users;
	uint64_t cookie; /* the program's ibv_cq, for its event */
	uint32_t async_channel;
	_Atomic uint32_t is_overrun;
	/* Earliest moment at which a waiting send of a queue pair that
	 * completes here has to be looked at again; SIM_NO_LIMIT = none. */
	_Atomic uint64_t deadline_ns;
	uint64_t parcels; /* see parcel.c; arena offset, 0 = none needed yet */
	_Atomic uint32_t landed; /* none before this one waits to be filled */

	_Alignas(SIM_APART) struct sim_latch lock;
	_Atomic uint32_t armed;
	_Atomic uint32_t is_event_pending; /* woken, and not yet told */
	_Atomic uint32_t tail;
	uint32_t head_seen; /* room is there up to it at least */
	uint32_t parcel_tail, parcel_head_seen;

	_Alignas(SIM_APART) struct sim_latch poll_lock;
	_Atomic uint32_t head;
	_Atomic uint32_t parcel_head;
	/* For who polls in vain: queue pair whose head wants a receive of its
	 * peer's; and one with receives that its peer was not told of, since
	 * when (0: see kick_later). Handles; 0 = none. */
	_Atomic uint32_t starved;
	_Atomic uint32_t owes_kick;
	_Atomic uint64_t owes_since_ns;
	_Atomic uint32_t wants_help; /* share is open */

	_Alignas(SIM_APART) struct sim_share share;
};

/* Where a datagram goes. */
struct sim_av {
	uint8_t dgid[16];
	uint32_t flow_label;
	uint16_t dlid;
	uint8_t is_global;
	uint8_t port;
	uint8_t sl;
	uint8_t sgid_index;
	uint8_t traffic_class;
	uint8_t hop_limit;
};

/* What an opcode needs beyond its bytes. */
union sim_operand {
	struct {
		uint64_t addr;
		uint64_t compare_add;
		uint64_t swap;
		uint32_t rkey;
	} remote;
	struct {
		struct sim_av av;
		uint32_t qpn;
		uint32_t qkey;
	} ud;
	struct {
		uint64_t addr;
		uint64_t length;
		uint32_t window;
		uint32_t region;
		uint32_t access;
		uint32_t rkey;
	} bind;
};

struct sim_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

enum sim_wqe_flag {
	SIM_WQE_SIGNALED = 1 << 0,
	SIM_WQE_SOLICITED = 1 << 1,
	SIM_WQE_INLINE = 1 << 2,
	SIM_WQE_TAPPED = 1 << 3,   /* the taps have seen it; mask is valid */
	SIM_WQE_DUP_SENT = 1 << 4, /* first copy of a duplicated message */
	SIM_WQE_RX_TAPPED = 1 << 5,
	SIM_WQE_OVER_BUDGET = 1 << 6, /* R13, accepted: its data never lands */
	SIM_WQE_COMPLETED = 1 << 7,   /* R21, completed before it left */
	SIM_WQE_LOST = 1 << 8,	      /* dropped; sent again on timeout */
	SIM_WQE_HELD = 1 << 9,	      /* late: it leaves at its time */
	SIM_WQE_DUE = 1 << 10,	      /* and that has come */
	SIM_WQE_OWED = 1 << 11,	 /* done, but for its completion (success) */
	SIM_WQE_STUCK = 1 << 12, /* a stopped process has a lock: look again */
};

/* A work request in a ring; its sges, or its inline bytes, follow it. */
struct sim_wqe {
	uint64_t wr_id;
	uint64_t tx_mask; /* lines of the plan that claimed it when it left */
	uint64_t rx_mask; /* and when it arrived */
	uint64_t tx_ordinal;
	uint64_t rx_ordinal;
	uint32_t len;
	uint32_t frames_end; /* running total of frames up to and with it */
	uint32_t imm;	     /* or the rkey to invalidate */
	uint32_t srq_num;    /* XRC: which shared receive queue */
	uint16_t flags;
	uint8_t opcode;
	uint8_t num_sge;
	uint8_t attempts;     /* acknowledge timeouts so far */
	uint8_t rnr_attempts; /* receiver-not-ready timeouts so far */
	uint8_t is_summed;    /* `sum` is there */
	uint8_t reserved;
	uint32_t sum; /* late: of its bytes, when it was posted */
	uint32_t reserved2;
	union sim_operand op;
};
_Static_assert(sizeof(struct sim_wqe) % 16 == 0, "sges follow aligned");

/*
 * A ring of work requests. tail: next to post; head: next to execute; done:
 * next whose slot is free again (moves when its completion is polled). All
 * run freely; depth is a power of two.
 */
struct sim_ring {
	uint64_t base; /* arena offset */
	uint32_t stride;
	uint32_t size;	/* slots, power of two */
	uint32_t depth; /* work requests the model granted */
	uint32_t max_sge;
	uint32_t frame_budget;
	/* Who posts and polls is on another core than who takes. */
	_Alignas(SIM_APART) _Atomic uint32_t tail;
	_Atomic uint32_t done;
	uint32_t frames_posted;	      /* running total at tail */
	_Atomic uint32_t frames_done; /* running total at done */
	_Alignas(SIM_APART) _Atomic uint32_t head;
};

/* A receive queue that many queue pairs draw from. */
struct sim_srq {
	struct sim_object object;
	struct sim_latch lock;
	struct sim_ring ring;
	uint32_t pd;
	uint32_t type; /* enum ibv_srq_type */
	uint32_t xrcd; /* XRC: domain and completion queue */
	uint32_t cq;
	uint32_t num;
	uint32_t async_channel;
	uint64_t cookie;
	uint32_t limit;		      /* one shot; 0 = not armed */
	_Atomic uint32_t has_waiters; /* a sender found it empty */
	_Atomic uint32_t users;
};

struct sim_xrcd {
	struct sim_object object;
	uint64_t inode; /* of the file that names it; 0 = its own */
	_Atomic uint32_t users;
};

/* One queue pair attached to one multicast group. */
struct sim_mcast {
	_Atomic uint32_t qp; /* handle; 0 = free */
	uint8_t gid[16];
	uint16_t lid;
};

/* Does a path lead to the peer? Found out once: nothing moves. */
enum sim_path { SIM_PATH_UNKNOWN, SIM_PATH_IS, SIM_PATH_IS_NOT };

/*
 * What a sender of a small message knows of the receives ahead without a look
 * at each: up to `end`, all are of regions that may be filled and of at least
 * `min_len` bytes. Under the take lock.
 */
struct sim_credit {
	uint32_t end;
	uint32_t min_len;
	uint32_t slow_until; /* receives before this one are looked at */
};

/*
 * Receives are posted under `post_lock` and taken under `rq_lock`; who changes
 * both sides holds both, `rq_lock` first.
 */
struct sim_qp {
	struct sim_object object;
	uint32_t qp_num;
	uint32_t ordinal; /* creation order on its host: qpN of a plan */
	uint32_t pd;
	uint32_t send_cq;
	uint32_t recv_cq;
	uint32_t type;
	uint32_t sq_sig_all;
	uint32_t srq;
	uint32_t xrcd;
	uint32_t async_channel;
	uint64_t cookie; /* the program's ibv_qp, for its events */
	_Atomic uint32_t mcast_count;
	_Atomic uint32_t openers; /* handles beyond the first (XRC targets) */
	_Atomic uint32_t is_met;  /* COMM_EST was sent */
	_Atomic uint32_t owes_drained; /* SQ_DRAINED, when the head is done */
	_Atomic uint32_t state;	       /* enum ibv_qp_state */
	_Atomic uint32_t dest;	  /* number of the peer, for who may not lock */
	_Atomic uint32_t is_left; /* destroyed while a stopped process has a
				   * lock of it; see leave_to_stopped */
	struct ibv_qp_cap cap;
	struct ibv_qp_attr attr;

	_Alignas(SIM_APART) struct sim_latch sq_lock;
	uint64_t tx_count;
	_Atomic uint64_t wait_until_ns; /* the send head; 0 = does not wait */
	uint32_t path;			/* enum sim_path, to the peer */
	struct sim_ring sq;
	struct sim_ring rq;
	_Alignas(SIM_APART) struct sim_latch post_lock;
	_Atomic uint32_t has_waiter; /* the peer found no receive */
	uint32_t posted_min;	     /* shortest since the credit was taken */
	_Alignas(SIM_APART) struct sim_latch rq_lock;
	struct sim_credit credit;
	uint64_t rx_count;
};

struct sim_port {
	uint8_t state;
	uint16_t lid;
};

struct sim_host {
	int32_t model; /* index in the model list */
	char model_text[SIM_NAME_MAX * 2];
	int32_t knob[SIM_KNOB_MAX];
	/* The model's, as its knobs have made them. */
	struct ibv_device_attr attr;
	struct ibv_port_attr port_attr;
	uint32_t qp_types, events;
	uint32_t clock_khz;   /* of timestamps; 0 = has none */
	uint32_t timer_speed; /* 0 = 1: as the wire's */
	uint32_t holds_to_memlock;
	struct sim_port port[SIM_PORT_MAX];
	int32_t port_count;
	int32_t active_port; /* the cabled one, 0 = none */
	uint64_t guid;
	int32_t gid_count; /* the table is longer: others are empty */
	uint8_t gid[SIM_GID_MAX][16];
	uint8_t gid_type[SIM_GID_MAX]; /* enum ibv_gid_type */
	/* Objects, claimed or live, by their owners' places. */
	_Atomic uint32_t count[SIM_OBJECTS][SIM_PROC_MAX];
	_Atomic uint32_t qp_ordinal;
	_Atomic uint32_t frames_posted; /* R14: the port's shared budget */
	_Atomic uint64_t call_count[SIM_CALL_COUNT];
};

/* Why events have to be looked at: they have a plan, or the late personality,
 * or are those of a deterministic run. */
enum sim_watch {
	SIM_WATCH_PLAN = 1 << 0,
	SIM_WATCH_LATE = 1 << 1,
	SIM_WATCH_RUN = 1 << 2,
};

/* A free list a size class; see arena.c. */
#define SIM_ARENA_CLASSES 18 /* 4 KiB … 512 MiB */
#define SIM_ARENA_BLOCK	  4096u

struct sim_segment {
	uint64_t magic;
	uint64_t bytes;
	uint64_t id; /* tells worlds of one name apart */
	pthread_mutex_t lock;
	pthread_mutex_t reap_lock; /* above all others */
	struct sim_host host[SIM_HOST_COUNT];
	struct sim_proc proc[SIM_PROC_MAX];

	_Atomic uint32_t watched; /* enum sim_watch: the taps' one branch */
	_Atomic uint32_t movers_wanted; /* somebody may not copy himself */
	uint64_t late_ns;		/* 0 = eager */
	uint32_t spares_owned;
	int32_t fault_count;
	struct sim_fault fault[SIM_FAULT_MAX];
	char plan[SIM_PLAN_MAX];

	/* Where the next free slot may be. */
	_Atomic uint32_t slot_hint[SIM_OBJECTS];
	_Atomic uint32_t slot_top[SIM_OBJECTS]; /* none was ever used from here
						 * on: sim_top */

	/* In blocks of SIM_ARENA_BLOCK bytes; see arena.c. */
	_Atomic uint32_t arena_next;
	_Atomic uint64_t arena_free[SIM_ARENA_CLASSES];
	_Atomic uint32_t arena_link[SIM_ARENA_BYTES / SIM_ARENA_BLOCK];

	/* Queues that have had late completions: a bit each. */
	_Atomic uint64_t late_cqs[SIM_CQ_MAX / 64];

	struct sim_pd pd[SIM_PD_MAX];
	struct sim_channel channel[SIM_CHANNEL_MAX];
	struct sim_cq cq[SIM_CQ_MAX];
	struct sim_qp qp[SIM_QP_MAX];
	struct sim_mr mr[SIM_MR_MAX];
	struct sim_srq srq[SIM_SRQ_MAX];
	struct sim_xrcd xrcd[SIM_XRCD_MAX];
	struct sim_mcast mcast[SIM_MCAST_MAX];
	/* Atomics are atomic among RDMA atomics: regions whose slots agree in
	 * the low bits share a lock. */
	pthread_mutex_t atomic_lock[SIM_ATOMIC_LOCKS];
};

/* This process's view of a world. */
struct sim_world {
	struct sim_segment *seg;
	char *arena;
	char name[SIM_NAME_MAX]; /* "" = private */
	int fd;			 /* -1 = private */
	uint32_t proc;		 /* my slot; a reaper's: the dead one's */
	uint32_t locker; /* which life of which slot, or who I am without */
	pid_t pid;
	bool may_not_copy; /* process_vm_* was refused: movers do */
	int notify_fd;	   /* unbound datagram socket, -1 until first used */
};

#define SIM_LOCKER_BITS 8	    /* of the slot; its life above, 23 bits */
#define SIM_NO_PLACE	0x80000000u /* or this and a pid: one without */
_Static_assert(SIM_PROC_MAX <= 1 << SIM_LOCKER_BITS, "slots fit a locker");

static inline uint32_t sim_locker_slot(uint32_t locker)
{
	return locker & SIM_NO_PLACE ? SIM_NONE
				     : locker & ((1u << SIM_LOCKER_BITS) - 1);
}

/* The least power of two that is at least `value`; 1 for 0. */
static inline uint32_t sim_round_up(uint32_t value)
{
	uint32_t size = 1;

	while (size < value)
		size *= 2;
	return size;
}

/* Where a verbs context lives: which process, which host. */
struct sim_ctx {
	struct sim_world *world;
	uint32_t host;
	uint32_t async_channel; /* for its asynchronous events; 0 none */
	uint32_t id; /* which of its process's; imports share one; 0 all */
};

/* Who looks for objects of a kind looks at the slots below this one. */
static inline uint32_t sim_top(struct sim_world *w,
			       enum sim_kind_of_object kind)
{
	return atomic_load(&w->seg->slot_top[kind]);
}

static inline struct sim_host *sim_host_of(struct sim_world *w, uint32_t host)
{
	return &w->seg->host[host];
}

/*
 * Object tables. A lookup checks slot, generation and (for owner lookups) that
 * this process owns the object; NULL for anything else.
 */
#define SIM_TABLE(type, max)                                                   \
	static inline struct sim_##type *sim_##type##_get(struct sim_world *w, \
							  uint32_t handle)     \
	{                                                                      \
		uint32_t slot = SIM_SLOT(handle);                              \
		if (handle == 0 || slot >= (max))                              \
			return NULL;                                           \
		struct sim_##type *it = &w->seg->type[slot];                   \
		if (atomic_load_explicit(&it->object.handle,                   \
					 memory_order_acquire) != handle)      \
			return NULL;                                           \
		return it;                                                     \
	}                                                                      \
	static inline struct sim_##type *sim_##type##_mine(                    \
		struct sim_world *w, uint32_t handle)                          \
	{                                                                      \
		struct sim_##type *it = sim_##type##_get(w, handle);           \
		return it && it->object.proc == w->proc ? it : NULL;           \
	}

SIM_TABLE(pd, SIM_PD_MAX)
SIM_TABLE(channel, SIM_CHANNEL_MAX)
SIM_TABLE(cq, SIM_CQ_MAX)
SIM_TABLE(qp, SIM_QP_MAX)
SIM_TABLE(mr, SIM_MR_MAX)
SIM_TABLE(srq, SIM_SRQ_MAX)
SIM_TABLE(xrcd, SIM_XRCD_MAX)

/*
 * Claim a free slot and return it with generation and owner set, not yet
 * visible; publish makes the handle valid. NULL with *rc -EUSERS when the host
 * has `limit` of them already, -ENOMEM when the table is full, -EINVAL for a
 * process that has no place in the world.
 */
void *sim_object_claim(struct sim_ctx *ctx, enum sim_kind_of_object kind,
		       uint32_t limit, int *rc);
uint32_t sim_object_publish(struct sim_world *w, struct sim_object *object,
			    enum sim_kind_of_object kind);
/* Give the slot back; its handle is dead already, or never lived. */
void sim_object_release(struct sim_world *w, struct sim_object *object,
			enum sim_kind_of_object kind);
/* How many a host has, claimed or live. */
uint32_t sim_object_count(const struct sim_host *host,
			  enum sim_kind_of_object kind);
/* It ended, or its owner did, while a stopped process is in the middle of
 * something with it: its place is nobody's from now on. */
void sim_object_orphan(struct sim_world *w, struct sim_object *object,
		       enum sim_kind_of_object kind);
/* A process is gone, and so are its objects, also those that it was about to
 * claim or release. */
void sim_object_forget(struct sim_world *w, uint32_t proc);

void sim_mutex_init(pthread_mutex_t *mutex);

/* Take a robust lock; a dead owner's lock is made usable again. */
void sim_lock(pthread_mutex_t *mutex);
void sim_unlock(pthread_mutex_t *mutex);

/* The locker of a process without a place in the world. */
uint32_t sim_no_place(void);
/* The locks of queue pairs and completion queues. */
void sim_take_slow(struct sim_world *w, struct sim_latch *latch);
bool sim_take_slow_unless_stopped(struct sim_world *w, struct sim_latch *latch);
void sim_wake_waiter(struct sim_latch *latch);

static inline void sim_take(struct sim_world *w, struct sim_latch *latch)
{
	uint32_t free = 0;

	if (!atomic_compare_exchange_strong_explicit(&latch->owner, &free,
						     w->locker,
						     memory_order_acquire,
						     memory_order_relaxed))
		sim_take_slow(w, latch);
}

/* False: not taken, as the process that has it was stopped by a signal. */
static inline bool sim_take_unless_stopped(struct sim_world *w,
					   struct sim_latch *latch)
{
	uint32_t free = 0;

	return atomic_compare_exchange_strong_explicit(&latch->owner, &free,
						       w->locker,
						       memory_order_acquire,
						       memory_order_relaxed) ||
	       sim_take_slow_unless_stopped(w, latch);
}

static inline void sim_drop(struct sim_latch *latch)
{
	atomic_store_explicit(&latch->owner, 0, memory_order_release);
	if (atomic_load_explicit(&latch->waiters, memory_order_relaxed))
		sim_wake_waiter(latch);
}

/* Blocks of the arena; offset 0 = no room. */
uint64_t sim_arena_alloc(struct sim_world *w, size_t bytes);
void sim_arena_free(struct sim_world *w, uint64_t offset, size_t bytes);

static inline void *sim_at(struct sim_world *w, uint64_t offset)
{
	return w->arena + offset;
}

static inline struct sim_wqe *
sim_wqe_at(struct sim_world *w, const struct sim_ring *ring, uint32_t index)
{
	return sim_at(w, ring->base + (uint64_t)(index & (ring->size - 1)) *
					      ring->stride);
}

static inline struct sim_sge *sim_wqe_sge(struct sim_wqe *wqe)
{
	return (struct sim_sge *)(wqe + 1);
}

/* Is the process in this slot still running? When in doubt, yes. */
bool sim_proc_is_alive(struct sim_world *w, uint32_t slot);
/* Stopped by a signal (and not by a debugger)? */
bool sim_proc_is_stopped(struct sim_world *w, uint32_t slot);

/* Give a range of a file its pages; 0 or a positive errno. */
int sim_reserve(int fd, uint64_t offset, uint64_t bytes);

/* Free this process's objects and its place; the mapping stays, for threads
 * that are still in a call. */
void sim_world_leave(struct sim_world *w);

/* surround.c: the folder of a host's surroundings, if they are not mounted, and
 * how it is removed with its world. */
void sim_tree_name(const char *world, int host, char tree[SIM_TREE_MAX]);
void sim_remove_tree(const char *path);

/* The world that verbs of this process act on; joins it on first use. NULL
 * with errno set, and one line printed, when there is none. */
struct sim_world *sim_self(void);
int sim_self_host(struct sim_world *w);

/* Free what is left of a context of this process. */
void sim_ctx_reap(struct sim_ctx *ctx);

/* Free every object of a process slot; the reaper's half of sim_world_reap. */
void sim_proc_reap_objects(struct sim_world *w, uint32_t proc);

#endif
