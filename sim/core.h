/* SPDX-License-Identifier: MIT */
/*
 * The core under the verbs front: objects, queues, delivery, taps.
 *
 * Functions return 0 or a negative errno; -EINVAL for a handle that is not a
 * live object of this process. Safe from any thread.
 */
#ifndef SIM_CORE_H
#define SIM_CORE_H

#include "sim/model.h"
#include "sim/world.h"

/* object.c: protection domains, regions, completion channels. */
int sim_pd_alloc(struct sim_ctx *ctx, uint32_t *pd);
int sim_pd_dealloc(struct sim_ctx *ctx, uint32_t pd);

struct sim_mr_request {
	uint64_t addr;
	uint64_t length;
	uint64_t iova;
	uint32_t pd;
	uint32_t access;
};
int sim_mr_reg(struct sim_ctx *ctx, const struct sim_mr_request *request,
	       uint32_t *mr, uint32_t *key);
/* On return no delivery uses the region any more. */
int sim_mr_dereg(struct sim_ctx *ctx, uint32_t mr);

/* The live region or window whose key this is, or NULL. */
struct sim_mr *sim_mr_by_key(struct sim_world *w, uint32_t key);

/* The region that `key` names, if it lies in `pd`, spans the range and allows
 * `access`; else NULL. The result is good while the caller holds a lock of a
 * queue pair of that process: dereg waits for those. */
const struct sim_mr *sim_mr_check(struct sim_world *w, uint32_t pd,
				  const struct sim_sge *range, uint32_t access);

/* The same for an rkey, on behalf of the queue pair that it arrived at. */
const struct sim_mr *sim_mr_check_remote(struct sim_world *w,
					 const struct sim_qp *qp,
					 const struct sim_sge *range,
					 uint32_t access);
/* Pass through every lock under which the key is in use. */
void sim_mr_wait_unused(struct sim_world *w, const struct sim_mr *mr);

/* Does a region of this process begin in this range? */
bool sim_mr_is_on(struct sim_world *w, uint64_t addr, uint64_t length);

/* Are the pages of a range there, and may they be written? Best effort. */
bool sim_is_mapped(uint64_t addr, uint64_t length, bool is_written);

struct sim_mr_change {
	struct sim_mr_request to; /* pd 0: as it is */
	bool changes_range;
	bool changes_access;
};
int sim_mr_rereg(struct sim_ctx *ctx, uint32_t mr,
		 const struct sim_mr_change *change);

/* window.c */
int sim_mw_alloc(struct sim_ctx *ctx, uint32_t pd, int type, uint32_t *mw,
		 uint32_t *key);
int sim_mw_dealloc(struct sim_ctx *ctx, uint32_t mw);

/* srq.c */
struct sim_srq_config {
	struct ibv_srq_attr attr;
	uint32_t pd;
	uint32_t type;
	uint32_t xrcd;
	uint32_t cq;
	uint64_t cookie;
};
int sim_srq_create(struct sim_ctx *ctx, const struct sim_srq_config *config,
		   uint32_t *srq);
int sim_srq_modify(struct sim_ctx *ctx, struct sim_srq *srq, uint32_t limit);
int sim_srq_destroy(struct sim_ctx *ctx, uint32_t srq);
void sim_srq_free_ring(struct sim_world *w, struct sim_srq *srq);
int sim_post_srq_recv(struct sim_ctx *ctx, struct sim_srq *srq,
		      struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
/* An XRC domain; a named one (inode) is opened again by others of its host. */
int sim_xrcd_open(struct sim_ctx *ctx, uint64_t inode, uint32_t *xrcd);
int sim_xrcd_close(struct sim_ctx *ctx, uint32_t xrcd);

/* qp.c: multicast membership; -EBUSY, -EINVAL, -ENOMEM. */
int sim_mcast_attach(struct sim_ctx *ctx, struct sim_qp *qp,
		     const uint8_t gid[16], uint16_t lid);
int sim_mcast_detach(struct sim_ctx *ctx, struct sim_qp *qp,
		     const uint8_t gid[16], uint16_t lid);

/* datagram.c: the Internet checksum's sum over an IPv4 header of 20 bytes;
 * 0xffff when the checksum in it is right. */
uint16_t sim_ipv4_sum(const uint8_t header[20]);

/* An address handle, as posting finds it behind a request. */
struct sim_ah {
	struct ibv_ah ah;
	struct sim_av av;
};

/* An asynchronous event on a context's descriptor: type, and the program's
 * object (or port number). */
struct sim_event {
	uint64_t cookie;
	uint32_t type;
	uint32_t reserved;
};
void sim_async(struct sim_world *w, uint32_t channel, uint64_t cookie,
	       int type);

int sim_channel_create(struct sim_ctx *ctx, uint32_t *channel, int *fd);
int sim_channel_destroy(struct sim_ctx *ctx, uint32_t channel);

/* cq.c */
int sim_cq_create(struct sim_ctx *ctx, uint32_t depth, uint32_t channel,
		  uint64_t cookie, uint32_t *cq, uint32_t *granted);
int sim_cq_destroy(struct sim_ctx *ctx, uint32_t cq);
/* Its memory and its place, also of one half made or half gone. */
void sim_cq_end(struct sim_world *w, struct sim_cq *cq);
int sim_cq_poll(struct sim_ctx *ctx, struct sim_cq *cq, int count,
		struct ibv_wc *wc);
void sim_cq_arm(struct sim_ctx *ctx, struct sim_cq *cq, bool solicited_only);
bool sim_cq_is_empty(struct sim_world *w, const struct sim_cq *cq);
/* -EINVAL when what is in it would not fit. */
int sim_cq_resize(struct sim_ctx *ctx, struct sim_cq *cq, uint32_t depth,
		  uint32_t *granted);
/* Overrun: it takes no more, and what would complete there stalls (3.5). */
bool sim_cq_is_dead(struct sim_world *w, uint32_t cq);
/* Both locks: nobody completes or polls. */
static inline void sim_cq_hold(struct sim_world *w, struct sim_cq *cq)
{
	sim_take(w, &cq->lock);
	sim_take(w, &cq->poll_lock);
}

static inline bool sim_cq_hold_unless_stopped(struct sim_world *w,
					      struct sim_cq *cq)
{
	if (!sim_take_unless_stopped(w, &cq->lock))
		return false;
	if (sim_take_unless_stopped(w, &cq->poll_lock))
		return true;
	sim_drop(&cq->lock);
	return false;
}

static inline void sim_cq_release(struct sim_cq *cq)
{
	sim_drop(&cq->poll_lock);
	sim_drop(&cq->lock);
}

/* Kick senders that have been owed one for so long, whatever this process does
 * meanwhile. Is any still owed? */
#define SIM_KICK_NS 1000000
bool sim_kick_overdue(struct sim_world *w, uint64_t now_ns);

/* Append a completion; wakes a sleeper when the queue was armed. False: there
 * was no room. */
bool sim_cq_push(struct sim_world *w, uint32_t cq, const struct sim_cqe *cqe);
/* The same, but a sleeper is the caller's to wake: *sleeper, or NULL. */
bool sim_cq_push_quietly(struct sim_world *w, uint32_t cq,
			 const struct sim_cqe *cqe, struct sim_cq **sleeper);
/* Wake those who sleep on completions; who pushed them may have died before. */
void sim_cq_wake_all(struct sim_world *w);
/* The same in steps, with the queue's lock held in between: is there room;
 * append; and end: the queue whose sleeper is the caller's to wake, or NULL. */
struct sim_cq *sim_cq_open(struct sim_world *w, uint32_t cq);
/* The same (NULL: there is no such queue). False: not opened, as a stopped
 * process is in the middle of it. */
bool sim_cq_open_unless_stopped(struct sim_world *w, uint32_t handle,
				struct sim_cq **cq);
bool sim_cq_append(struct sim_world *w, struct sim_cq *cq,
		   const struct sim_cqe *cqe);
struct sim_cq *sim_cq_close(struct sim_cq *cq, const struct sim_cqe *cqe);
static inline bool sim_cq_has_room(struct sim_cq *cq)
{
	if (cq->tail - cq->head_seen >= cq->depth)
		cq->head_seen = atomic_load(&cq->head);
	return !atomic_load(&cq->is_overrun) &&
	       cq->tail - cq->head_seen < cq->depth;
}

static inline struct sim_cq_slot *
sim_cq_slot(struct sim_world *w, const struct sim_cq *cq, uint32_t index)
{
	return sim_at(w, cq->ring + (uint64_t)(index & (cq->size - 1)) *
					    cq->stride);
}
/* Forget the completions of a queue pair that is going away. */
void sim_cq_purge(struct sim_world *w, uint32_t cq, uint32_t qp);

/*
 * notify.c. A channel's descriptor is a datagram socket that any process can
 * reach; a datagram is only a doorbell, what is owed is in the segment: a
 * buffer that is full loses nothing.
 */
int sim_notify_socket(struct sim_world *w, uint32_t channel, int *fd);
/* The queue owes an event: mark it, and ring. */
void sim_cq_wake(struct sim_world *w, struct sim_cq *cq);
/* Wait for a doorbell of the channel (as its descriptor's mode says) and take
 * one owed event; *cookie is its queue's. A negative errno. */
int sim_channel_take(struct sim_world *w, uint32_t channel, int fd,
		     uint64_t *cookie);

/* qp.c */
struct sim_qp_config {
	const struct ibv_qp_init_attr *attr; /* caps are what was asked */
	uint32_t pd;
	uint32_t send_cq;
	uint32_t recv_cq;
	uint32_t srq;
	uint32_t xrcd; /* XRC_RECV: has this, and nothing above */
	uint64_t cookie;
};
int sim_qp_create(struct sim_ctx *ctx, const struct sim_qp_config *config,
		  uint32_t *qp);
int sim_qp_modify(struct sim_ctx *ctx, struct sim_qp *qp,
		  const struct ibv_qp_attr *attr, int mask);
/* 3.1: -EHOSTUNREACH when an Ethernet port finds nobody at this address. */
int sim_check_dgid(struct sim_ctx *ctx, const uint8_t dgid[16]);
int sim_qp_destroy(struct sim_ctx *ctx, uint32_t qp);
/* Not while a stopped process is in the middle of what is left of it. */
bool sim_qp_may_reap(struct sim_world *w, struct sim_qp *qp);
/* An asynchronous event of the queue pair, if its device has such. */
void sim_qp_raise(struct sim_world *w, const struct sim_qp *qp, int event);
/* To ERR, with everything flushed. No lock held. */
void sim_qp_fail(struct sim_world *w, struct sim_qp *qp);
/* For the reaper: the rings of one that died half made or half gone. */
void sim_qp_free_rings(struct sim_world *w, struct sim_qp *qp);
/* The queue pair with a 24-bit number, or NULL. */
struct sim_qp *sim_qp_by_num(struct sim_world *w, uint32_t qp_num);

struct sim_ring_request {
	uint32_t depth;
	uint32_t max_sge;
	uint32_t max_inline;
	uint32_t frame_budget;
};
int sim_ring_init(struct sim_world *w, struct sim_ring *ring,
		  const struct sim_ring_request *want);
void sim_ring_fini(struct sim_world *w, struct sim_ring *ring);

/* Complete everything outstanding with WR_FLUSH_ERR, in a queue pair that is in
 * ERR. The caller holds the lock of the queue that is flushed (of receives: the
 * taking side's, not the posting side's). */
void sim_sq_flush(struct sim_world *w, struct sim_qp *qp);
void sim_rq_flush(struct sim_world *w, struct sim_qp *qp);

/* All of a queue pair's locks. */
static inline void sim_qp_hold(struct sim_world *w, struct sim_qp *qp)
{
	sim_take(w, &qp->sq_lock);
	sim_take(w, &qp->rq_lock);
	sim_take(w, &qp->post_lock);
}

static inline void sim_qp_release(struct sim_qp *qp)
{
	sim_drop(&qp->post_lock);
	sim_drop(&qp->rq_lock);
	sim_drop(&qp->sq_lock);
}

/* Is it gone, though we are in the middle of it? */
static inline bool sim_qp_is_left(const struct sim_qp *qp)
{
	return qp && atomic_load_explicit(&qp->is_left, memory_order_acquire);
}

/* qp_table.c: -EINVAL for an illegal step or a wrong mask (3.2). */
int sim_qp_check_transition(enum ibv_qp_type type, enum ibv_qp_state from,
			    enum ibv_qp_state to, int mask);

/* post.c. With `is_batch` either all requests are posted or none. */
int sim_post_send(struct sim_ctx *ctx, struct sim_qp *qp,
		  struct ibv_send_wr *wr, struct ibv_send_wr **bad,
		  bool is_batch);
/* Shared by receives of both kinds: write one into a ring. */
void sim_put_recv(struct sim_world *w, struct sim_ring *ring, uint32_t pd,
		  const struct ibv_recv_wr *wr, uint32_t frames, bool is_over);
int sim_post_recv(struct sim_ctx *ctx, struct sim_qp *qp,
		  struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* deliver.c: carry on with whatever this queue pair has to send. Takes the
 * send lock; the caller holds no lock. */
void sim_send_progress(struct sim_world *w, struct sim_qp *qp);
/* The same with the send lock held. A queue pair whose own sends have to be
 * flushed afterwards, with no lock held, or NULL. */
struct sim_qp *sim_send_run(struct sim_world *w, struct sim_qp *qp);
/* Has the head of the send queue left once? Send lock held. */
bool sim_is_started(struct sim_world *w, const struct sim_qp *qp);
/* The same for the queue pair that sends to this one, if it waits. */
void sim_kick_sender(struct sim_world *w, struct sim_qp *qp);
/* Every sender that found this shared queue empty. */
void sim_kick_srq_senders(struct sim_world *w, struct sim_srq *srq);
/* Look again at waiting sends that complete on this queue and are due. */
void sim_run_timers(struct sim_world *w, struct sim_cq *cq, uint64_t now_ns);

/* Does the operation fill local memory? */
bool sim_op_is_sink(unsigned opcode);

/* late.c, all for late worlds and nothing in others. The device has these
 * buffers now. */
void sim_late_poison(struct sim_world *w, uint32_t pd, struct sim_wqe *wqe);
/* A send was posted; and leaves: was its buffer changed in between? Only its
 * own process can tell. */
void sim_late_posted(struct sim_world *w, const struct sim_qp *qp,
		     struct sim_wqe *wqe);
void sim_late_leaves(struct sim_world *w, const struct sim_qp *qp,
		     struct sim_wqe *wqe);

/* copy.c: the data mover. */
struct sim_span {
	uint64_t addr;
	uint64_t length;
	const struct sim_mr *mr; /* that it lies in; NULL: none to map */
};
enum sim_copy_result {
	SIM_COPY_OK,
	SIM_COPY_BAD_SOURCE,
	SIM_COPY_BAD_TARGET,
	SIM_COPY_GONE,	  /* a process ended under us */
	SIM_COPY_STUCK,	  /* the one that helps is stopped: later */
	SIM_COPY_REFUSED, /* process_vm_* is not permitted here */
};
struct sim_copy {
	uint32_t from_proc;
	uint32_t to_proc;
	const struct sim_span *from;
	const struct sim_span *to;
	int from_count;
	int to_count;
};
/* Move bytes from the spans of one process to those of another, in order,
 * until the sources are exhausted. The targets are at least as long. */
enum sim_copy_result sim_copy(struct sim_world *w, const struct sim_copy *copy);
/* The same, and how many bytes have moved when it fails. */
enum sim_copy_result sim_copy_counted(struct sim_world *w,
				      const struct sim_copy *copy,
				      uint64_t *done);

#define SIM_SPAN_MAX 33 /* 32 sges, and the 40 bytes before a datagram */
/* bytes.c: where a request's sges are, or -1: a key does not allow it. */
int sim_spans_of(struct sim_world *w, uint32_t pd, struct sim_wqe *wqe,
		 uint32_t access, struct sim_span *spans);

/*
 * parcel.c. A small message to another process goes through the segment, with
 * no system call: its bytes wait in or beside its completion, and the owner
 * copies them into its receive when it polls.
 */
#define SIM_PARCEL_MAX 16384 /* above, one copy by the kernel is quicker */
/* With the queue's lock held: room for the bytes of the completion that is
 * appended next, or NULL. */
void *sim_parcel_put(struct sim_world *w, struct sim_cq *cq,
		     struct sim_cqe *cqe);
/* By who polls, in order: the receive of a late completion is found and
 * filled, and the room is free; *cqe is what to tell. The slot itself is not
 * written: its next user would have to fetch it from here. */
void sim_parcel_take(struct sim_world *w, struct sim_cq *cq,
		     struct sim_cq_slot *slot, struct sim_cqe *cqe);
/* With both locks held: the bytes arrive; once, whatever comes later. */
void sim_parcel_land(struct sim_world *w, const struct sim_cq *cq,
		     struct sim_cq_slot *slot);
/* Copy now what waits in a queue, from any process: its memory goes. The same
 * with both locks held. */
void sim_parcels_land(struct sim_world *w, uint32_t cq);
void sim_parcels_land_held(struct sim_world *w, struct sim_cq *cq);
/* The same in all queues of a process where what waits is for one of these
 * places, which are now read or written in another way. False: not in all, as a
 * stopped process has one. */
bool sim_parcels_land_at(struct sim_world *w, uint32_t proc,
			 const struct sim_span *spans, int count);
/* A new queue: it had none. */
void sim_parcels_init(struct sim_world *w, struct sim_cq *cq);
void sim_parcels_free(struct sim_world *w, struct sim_cq *cq);

/* share.c */
/* Copy a long message to the queue's owner, who may help. False: not for this,
 * and nothing was done. The peer's receive lock is held. */
bool sim_share_copy(struct sim_world *w, struct sim_cq *cq,
		    const struct sim_copy *copy, enum sim_copy_result *result);
/* By the owner: nobody begins another piece. */
void sim_share_close(struct sim_cq *cq);
/* By the owner, which has nothing else to do. */
void sim_share_help(struct sim_world *w, struct sim_cq *cq);
/* Of a poster that is gone. */
void sim_share_reap(struct sim_world *w, uint32_t proc);

/* mover.c */
/* May this process not copy itself? */
bool sim_mover_is_needed(void);
/* Have the thread that copies for others, if anybody wants one. */
void sim_mover_start(struct sim_world *w);
void sim_mover_stop(struct sim_world *w);
/* Of a process that is gone. */
void sim_mover_reap(struct sim_world *w, uint32_t proc);
void sim_mover_forget(void);
/* Between `near`, of this process, and `far`, of another. */
enum sim_copy_result sim_mover_move(struct sim_world *w, uint32_t proc,
				    uint64_t far, char *near, uint64_t length,
				    bool is_read);

/* mapping.c: let peers map this region, if its memory can be shared. */
void sim_map_region(struct sim_world *w, struct sim_mr *mr);
/* Copy between `far`, in that region of another process, and `near`. False: it
 * cannot be mapped, and nothing was done. */
bool sim_map_copy(struct sim_world *w, const struct sim_mr *mr, uint64_t far,
		  void *near, uint64_t length, bool is_read);
static inline bool sim_may_map(const struct sim_span *span)
{
	return span->mr && span->mr->map_fd >= 0;
}
/* The world is left: its regions are seen no more. */
/* Of regions that have ended, here and elsewhere. */
void sim_map_sweep(struct sim_world *w);
void sim_map_leave(void);
void sim_map_forget(void);

/* timer.c: a thread that runs this process's timers while it sleeps on a
 * descriptor; started on first need, only for queues with a channel. */
void sim_timer_start(struct sim_world *w);
/* And look after the kicks that this process owes. */
void sim_timer_watch_kicks(struct sim_world *w);
void sim_timer_stop(void);
/* A thread of ours in a program: it gets none of the program's signals. */
bool sim_thread_start(pthread_t *it, void *(*start)(void *), void *arg);
/* In a fork's child, where the thread does not exist. */
void sim_timer_forget(void);

/* tap.c */
/* Lines that claim this event, as a mask; counts it as reached. */
uint64_t sim_tap_message(struct sim_world *w, const struct sim_qp *qp,
			 enum sim_site site, uint64_t ordinal);
/* Is there reason to look at events (enum sim_watch)? The one branch of the
 * taps; `make bench` compares with a build that has none. */
static inline bool sim_is_armed(const struct sim_world *w)
{
#ifdef SIM_UNTAPPED
	(void)w;
	return false;
#else
	return __builtin_expect(atomic_load_explicit(&w->seg->watched,
						     memory_order_relaxed) != 0,
				0);
#endif
}
/* errno of an armed `fail` that strikes this call, else 0. */
int sim_tap_call(struct sim_ctx *ctx, enum sim_call call);
/* One direction of a bootstrap stream, at one end. */
struct sim_way {
	enum sim_site site;
	enum sim_effect stop; /* SIM_EFFECT_COUNT: nothing stops it */
	bool is_stopped;
	uint64_t offset; /* of the next byte */
};
/* Has it come to a byte that a line withholds? */
bool sim_way_is_stopped(struct sim_world *w, int host, struct sim_way *way);
/* Strike the next bytes; how many pass. And the same for one who only looks:
 * nothing has been struck yet. */
size_t sim_way_foretell(struct sim_world *w, int host,
			const struct sim_way *way, uint8_t *bytes, size_t len);
size_t sim_way_pass(struct sim_world *w, int host, struct sim_way *way,
		    uint8_t *bytes, size_t len);
/* The first line of the mask with this effect, or NULL; takes it out. */
struct sim_fault *sim_tap_take(struct sim_world *w, uint64_t *mask,
			       enum sim_effect effect);
void sim_tap_fired(struct sim_fault *fault, uint64_t ordinal,
		   bool is_effective);

#endif
