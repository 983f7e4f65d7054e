/* SPDX-License-Identifier: MIT */
/*
 * Goal: queue pairs, a completion queue and a shared receive queue may be used
 * by many threads at once. Method: four of them post on the same queue pairs
 * and poll the same queues of both ends, until each message has completed on
 * both; the threads count, and the test's thread judges.
 */
#include "tests/rig.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tests/harness.h"

#define THREADS	 4
#define QPS	 4
#define MESSAGES 500 /* a thread */
#define TOTAL	 (THREADS * MESSAGES)
#define RECEIVES 128

struct play {
	struct rig rig;
	struct ibv_qp *qp[2][QPS];
	struct ibv_srq *srq;
	_Atomic uint32_t sent, received, wrong;
};

static void post_recv(struct play *play, uint64_t slot)
{
	struct ibv_sge sge = {(uintptr_t)play->rig.end[1].memory + slot * 64,
			      64, play->rig.end[1].mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	if (ibv_post_srq_recv(play->srq, &wr, &bad))
		atomic_fetch_add(&play->wrong, 1);
}

static void poll_both(struct play *play)
{
	struct ibv_wc wc[4];
	int got = ibv_poll_cq(play->rig.end[0].cq, 4, wc);

	for (int i = 0; i < got; i++)
		atomic_fetch_add(wc[i].status ? &play->wrong : &play->sent, 1);
	got = ibv_poll_cq(play->rig.end[1].cq, 4, wc);
	for (int i = 0; i < got; i++) {
		const uint8_t *bytes =
			play->rig.end[1].memory + wc[i].wr_id * 64;

		/* All of a message's bytes are the same. */
		if (wc[i].status || wc[i].byte_len != 32 ||
		    memcmp(bytes, bytes + 1, 31) != 0)
			atomic_fetch_add(&play->wrong, 1);
		atomic_fetch_add(&play->received, 1);
		post_recv(play, wc[i].wr_id);
	}
}

static void *act(void *arg)
{
	struct play *play = arg;
	uint8_t bytes[32];
	struct ibv_sge sge = {(uintptr_t)bytes, sizeof(bytes), 0};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags =
					 IBV_SEND_SIGNALED | IBV_SEND_INLINE};
	struct ibv_send_wr *bad;

	for (uint32_t i = 0; i < MESSAGES; i++) {
		memset(bytes, (int)i, sizeof(bytes));
		/* Full: others' completions free it, too. */
		while (ibv_post_send(play->qp[0][i % QPS], &wr, &bad))
			poll_both(play);
		poll_both(play);
	}
	for (long turn = 0; turn < 10000000 && !atomic_load(&play->wrong) &&
			    (atomic_load(&play->sent) < TOTAL ||
			     atomic_load(&play->received) < TOTAL);
	     turn++)
		poll_both(play);
	return NULL;
}

/* The queue pairs of both ends, each but the first made here. */
static void make(struct play *play)
{
	struct ibv_srq_init_attr shared = {.attr = {RECEIVES, 1, 0}};

	rig_open(&play->rig, "mlx5", NULL);
	for (int end = 0; end < 2; end++)
		rig_make(&play->rig.end[end], IBV_QPT_RC, 1);
	play->srq = ibv_create_srq(play->rig.end[1].pd, &shared);
	CHECK(play->srq, "create_srq: errno %d", errno);
	for (int end = 0; end < 2; end++)
		for (int i = 0; i < QPS; i++) {
			struct rig_end *at = &play->rig.end[end];
			struct ibv_qp_init_attr init = {.send_cq = at->cq,
							.recv_cq = at->cq,
							.srq = end ? play->srq
								   : NULL,
							.cap = {16, 1, 1, 1,
								64},
							.qp_type = IBV_QPT_RC};

			play->qp[end][i] = ibv_create_qp(at->pd, &init);
			CHECK(play->qp[end][i], "create_qp: errno %d", errno);
		}
	for (uint64_t slot = 0; slot < RECEIVES; slot++)
		post_recv(play, slot);
}

/* Each pair in turn takes the rig's place, which knows how to connect. */
static void connect_all(struct play *play)
{
	struct ibv_qp *own[2] = {play->rig.end[0].qp, play->rig.end[1].qp};

	for (int i = 0; i < QPS; i++) {
		for (int end = 0; end < 2; end++)
			play->rig.end[end].qp = play->qp[end][i];
		rig_connect(&play->rig, IBV_QPS_RTS);
	}
	for (int end = 0; end < 2; end++)
		play->rig.end[end].qp = own[end];
}

Test(threads, share_queue_pairs_and_queues)
{
	pthread_t thread[THREADS];
	static struct play play;

	setenv("VERBENA_QUIET", "1", 1);
	make(&play);
	connect_all(&play);
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&thread[i], NULL, act, &play), 0);
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_join(thread[i], NULL), 0);
	CHECK_EQ(play.wrong, 0);
	CHECK_EQ(play.sent, TOTAL);
	CHECK_EQ(play.received, TOTAL);
	for (int end = 0; end < 2; end++)
		for (int i = 0; i < QPS; i++)
			CHECK_EQ(ibv_destroy_qp(play.qp[end][i]), 0);
	CHECK_EQ(ibv_destroy_srq(play.srq), 0);
	rig_close(&play.rig);
}

/* Others read the list's entries while this one asks for it again. */
static void *list_again(void *arg)
{
	_Atomic uint32_t *wrong = arg;

	for (int i = 0; i < MESSAGES; i++) {
		struct ibv_device **list = ibv_get_device_list(NULL);

		if (!list || strcmp(ibv_get_device_name(list[0]), "rdma_en5"))
			atomic_fetch_add(wrong, 1);
		if (list)
			ibv_free_device_list(list);
	}
	return NULL;
}

Test(threads, a_device_list_is_the_same_for_all)
{
	pthread_t threads[THREADS];
	_Atomic uint32_t wrong = 0;
	struct rig rig;

	setenv("VERBENA_QUIET", "1", 1);
	rig_open(&rig, "apple-tb", NULL);
	for (int i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, list_again,
					(void *)&wrong),
			 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	CHECK_EQ(wrong, 0);
	rig_close(&rig);
}
