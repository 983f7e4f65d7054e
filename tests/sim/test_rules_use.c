/* SPDX-License-Identifier: MIT */
/*
 * Goal: what is in use stays and waits for its acknowledgements (3.1), a post
 * returns what the device returns (3.3), and retries of 7 and depths of 0 mean
 * what 3.2 says. Method: each on both Linux models, through verbs; where a post
 * is refused, what stays queued is looked at. Creation and modify_qp:
 * test_rules.c.
 */
#include "tests/rig.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tests/harness.h"

static const char *const models[] = {"mlx5", "rxe"};

static void open_as(struct rig *rig, const char *model, enum ibv_qp_type type)
{
	setenv("VERBENA_QUIET", "1", 1);
	rig_open(rig, model, NULL);
	rig_make(&rig->end[0], type, 8);
	rig_make(&rig->end[1], type, 8);
}

static int to(struct rig_end *end, struct ibv_qp_attr attr, int state, int mask)
{
	attr.qp_state = (enum ibv_qp_state)state;
	return ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | mask);
}

static struct ibv_qp_attr attr_of(struct rig_end *end)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK_EQ(ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init), 0);
	return attr;
}

/* A queue pair of these caps in the place of the end's. */
static void replace_qp(struct rig_end *end, struct ibv_cq *recv_cq,
		       uint32_t send_sge)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
					.send_cq = end->cq,
					.recv_cq = recv_cq,
					.cap = {8, 8, send_sge, 1, 0}};

	CHECK_EQ(ibv_destroy_qp(end->qp), 0);
	end->qp = ibv_create_qp(end->pd, &init);
	CHECK(end->qp, "create_qp: errno %d", errno);
}

/* Both ends to RTR and end 0 to RTS, with so many retries of each kind. */
static void connect_with(struct rig *rig, uint8_t retries)
{
	struct ibv_qp_attr attr;

	rig_connect(rig, IBV_QPS_RTR);
	attr = attr_of(&rig->end[0]);
	attr.timeout = 1;
	attr.retry_cnt = attr.rnr_retry = retries;
	CHECK_EQ(to(&rig->end[0], attr, IBV_QPS_RTS,
		    IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			    IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
		 0);
}

/* --- 3.1: the end ------------------------------------------------------- */

#define BUSY_WITH(made, undo)                                  \
	do {                                                   \
		CHECK(made, "%s: %s", #made, strerror(errno)); \
		CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);           \
		CHECK_EQ(undo, 0);                             \
	} while (0)

/* 3.1: destroy_pd/cq/srq/qp, EBUSY; attach_mcast. */
Test(rules, what_is_in_use_stays)
{
	const union ibv_gid group = {.raw = {0xff, 0x0e, [15] = 9}},
			    single = {.raw = {0xfe, 0x80, [15] = 9}};
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_ah_attr path;
	struct rig rig;
	struct rig_end *end = &rig.end[0];

	for (int m = 0; m < 2; m++) {
		open_as(&rig, models[m], IBV_QPT_RC);
		CHECK_EQ(ibv_attach_mcast(end->qp, &group, 0), EINVAL);
		rig_connect(&rig, IBV_QPS_RTS);
		path = attr_of(end).ah_attr;
		struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_UD,
						.send_cq = end->cq,
						.recv_cq = end->cq,
						.cap = {4, 4, 1, 1, 0}};
		struct ibv_pd *pd = ibv_alloc_pd(end->context);
		struct ibv_srq *srq;
		struct ibv_mr *mr;
		struct ibv_mw *mw;
		struct ibv_ah *ah;
		struct ibv_qp *qp;

		BUSY_WITH(mr = ibv_reg_mr(pd, end->memory, 64, 0),
			  ibv_dereg_mr(mr));
		BUSY_WITH(mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2),
			  ibv_dealloc_mw(mw));
		BUSY_WITH(ah = ibv_create_ah(pd, &path), ibv_destroy_ah(ah));
		BUSY_WITH(init.srq = srq = ibv_create_srq(pd, &shared), 0);
		BUSY_WITH(qp = ibv_create_qp(pd, &init), 0);
		CHECK_EQ(ibv_destroy_srq(srq), EBUSY);
		CHECK_EQ(ibv_attach_mcast(qp, &single, 0), EINVAL);
		CHECK_EQ(ibv_attach_mcast(qp, &group, 0), 0);
		CHECK_EQ(ibv_destroy_qp(qp), EBUSY);
		CHECK_EQ(ibv_detach_mcast(qp, &group, 0), 0);
		CHECK_EQ(ibv_destroy_qp(qp), 0);
		CHECK_EQ(ibv_destroy_srq(srq), 0);
		CHECK_EQ(ibv_dealloc_pd(pd), 0);
		CHECK_EQ(ibv_destroy_cq(end->cq), EBUSY);
		rig_no_wc(end);
		rig_close(&rig);
	}
}

/* What a thread destroys, and whether it has. */
struct doomed {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_srq *srq;
	int rc;
	atomic_bool is_gone;
};

static void *destroy(void *arg)
{
	struct doomed *it = arg;

	it->rc = it->cq	  ? ibv_destroy_cq(it->cq)
		 : it->qp ? ibv_destroy_qp(it->qp)
			  : ibv_destroy_srq(it->srq);
	atomic_store(&it->is_gone, true);
	return NULL;
}

static void check_waits(struct doomed *it)
{
	poll(NULL, 0, 20);
	CHECK(!atomic_load(&it->is_gone), "gone before its event");
}

/* The limit only ends what hangs. */
static void check_goes(struct doomed *it, pthread_t thread)
{
	for (int i = 0; i < 1000 && !atomic_load(&it->is_gone); i++)
		poll(NULL, 0, 10);
	CHECK(atomic_load(&it->is_gone), "still waits");
	CHECK_EQ(pthread_join(thread, NULL), 0);
	CHECK_EQ(it->rc, 0);
}

static bool is_readable(int fd, int timeout_ms)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

	return poll(&poll_fd, 1, timeout_ms) == 1;
}

/* 3.1: destroy qp and srq with an event that is not acknowledged. */
static void await_ack(struct rig_end *end, struct doomed it)
{
	struct ibv_async_event event;
	pthread_t thread;

	CHECK(is_readable(end->context->async_fd, 10000), "no event");
	CHECK_EQ(ibv_get_async_event(end->context, &event), 0);
	CHECK_EQ(pthread_create(&thread, NULL, destroy, &it), 0);
	check_waits(&it);
	ibv_ack_async_event(&event);
	check_goes(&it, thread);
}

Test(rules, a_queue_pair_and_a_shared_queue_wait_for_their_acknowledgements)
{
	struct ibv_srq_init_attr shared = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_qp_attr drain = {.en_sqd_async_notify = 1};
	struct ibv_srq_attr limit = {.srq_limit = 3};
	struct rig rig;
	struct rig_end *end = &rig.end[0];

	for (int m = 0; m < 2; m++) {
		open_as(&rig, models[m], IBV_QPT_RC);
		rig_connect(&rig, IBV_QPS_RTS);
		CHECK_EQ(to(end, drain, IBV_QPS_SQD,
			    IBV_QP_EN_SQD_ASYNC_NOTIFY),
			 0);
		await_ack(end, (struct doomed){.qp = end->qp});
		end->qp = NULL;
		struct ibv_srq *srq = ibv_create_srq(end->pd, &shared);

		/* Fewer are there than the limit: it tells so at once. */
		CHECK(srq, "create_srq: errno %d", errno);
		CHECK_EQ(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), 0);
		await_ack(end, (struct doomed){.srq = srq});
		rig_close(&rig);
	}
}

/* A queue with a channel, into which the end's queue pair flushes a receive;
 * armed before that, or not. */
static struct ibv_cq *flush_into(struct rig_end *end,
				 struct ibv_comp_channel **channel,
				 bool is_armed)
{
	struct ibv_cq *cq;

	*channel = ibv_create_comp_channel(end->context);
	CHECK(*channel, "create_comp_channel: errno %d", errno);
	cq = ibv_create_cq(end->context, 8, NULL, *channel, 0);
	CHECK(cq, "create_cq: errno %d", errno);
	replace_qp(end, cq, 1);
	CHECK_EQ(rig_modify(end, NULL, IBV_QPS_INIT), 0);
	CHECK_EQ(rig_recv(end, 1, 0, 8), 0);
	if (is_armed)
		CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
	CHECK_EQ(rig_modify(end, NULL, IBV_QPS_ERR), 0);
	return cq;
}

/* 3.1: destroy cq. 10.7: too many acknowledgements are as bad as too few. */
Test(rules, a_completion_queue_waits_for_as_many_acknowledgements_as_events)
{
	struct ibv_comp_channel *channel;
	struct rig rig;
	struct rig_end *end = &rig.end[0];

	for (int m = 0; m < 2; m++) {
		struct doomed it = {0};
		struct ibv_cq *cq;
		pthread_t thread;
		void *context;

		open_as(&rig, models[m], IBV_QPT_RC);
		it.cq = flush_into(end, &channel, true);
		CHECK(is_readable(channel->fd, 10000), "no event");
		CHECK_EQ(ibv_get_cq_event(channel, &cq, &context), 0);
		CHECK_EQ(ibv_destroy_qp(end->qp), 0);
		end->qp = NULL;
		CHECK_EQ(pthread_create(&thread, NULL, destroy, &it), 0);
		check_waits(&it);
		ibv_ack_cq_events(cq, 2);
		check_waits(&it);
		ibv_ack_cq_events(cq, (unsigned int)-1);
		check_goes(&it, thread);
		CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
		rig_close(&rig);
	}
}

/* 10.6. */
Test(rules, arming_sees_what_is_there_on_mlx5_and_not_on_rxe)
{
	static const char *const arms[] = {"mlx5", "rxe", "mlx5,arm=later"};
	struct ibv_comp_channel *channel;
	struct rig rig;
	struct rig_end *end = &rig.end[0];

	for (int m = 0; m < 3; m++) {
		struct ibv_cq *cq;

		open_as(&rig, arms[m], IBV_QPT_RC);
		cq = flush_into(end, &channel, false);
		CHECK(!is_readable(channel->fd, 0), "an event unasked");
		CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
		CHECK_EQ(is_readable(channel->fd, 0), m == 0);
		CHECK_EQ(ibv_destroy_qp(end->qp), 0);
		end->qp = NULL;
		CHECK_EQ(ibv_destroy_cq(cq), 0);
		CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
		rig_close(&rig);
	}
}

/* --- 3.3 ---------------------------------------------------------------- */

/* One request of `num_sge` times the first `len` bytes of the end. */
static int post(struct rig_end *end, struct ibv_send_wr wr, int num_sge,
		uint32_t len)
{
	const struct ibv_sge sge = {(uintptr_t)end->memory, len, end->mr->lkey};
	struct ibv_sge list[2] = {sge, sge};
	struct ibv_send_wr *bad = NULL;
	int rc;

	wr.sg_list = list;
	wr.num_sge = num_sge;
	rc = ibv_post_send(end->qp, &wr, &bad);
	CHECK(!rc || bad == &wr, "bad_wr is another");
	return rc;
}

/* 3.3: post_send in RESET, INIT, RTR; post_recv in RESET. */
Test(rules, an_early_send_is_refused_and_goes_out_later_on_rxe_only)
{
	struct rig rig;
	struct rig_end *end = &rig.end[0];

	for (int m = 0; m < 2; m++) {
		open_as(&rig, models[m], IBV_QPT_RC);
		CHECK_EQ(rig_recv(end, 0, 0, 8), EINVAL);
		for (int state = IBV_QPS_RESET; state < IBV_QPS_RTS; state++) {
			struct ibv_sge sge = {(uintptr_t)end->memory, 8,
					      end->mr->lkey};
			struct ibv_send_wr wr = {.wr_id = (uint64_t)state,
						 .sg_list = &sge,
						 .num_sge = 1,
						 .opcode = IBV_WR_SEND,
						 .send_flags =
							 IBV_SEND_SIGNALED};
			struct ibv_send_wr *bad = NULL;

			CHECK_EQ(ibv_post_send(end->qp, &wr, &bad),
				 m ? EINVAL : ENOMEM);
			CHECK(bad == (m ? NULL : &wr), "%s: bad_wr %p",
			      models[m], (void *)bad);
			for (int i = 0; i < 2; i++)
				CHECK_EQ(rig_modify(&rig.end[i],
						    &rig.end[1 - i], state + 1),
					 0);
			CHECK_EQ(rig_recv(&rig.end[1], 7, 0, 8), 0);
		}
		for (uint64_t i = 0; m && i < 3; i++)
			CHECK_EQ(rig_wc(end).wr_id, i);
		rig_no_wc(end);
		for (int i = 0; m && i < 3; i++)
			CHECK_EQ(rig_wc(&rig.end[1]).status, IBV_WC_SUCCESS);
		rig_no_wc(&rig.end[1]);
		rig_close(&rig);
	}
}

/* 3.3: num_sge and inline over the cap; FENCE and SOLICITED; ERR. */
Test(rules, a_post_is_within_its_caps_and_in_err_it_is_flushed)
{
	const struct ibv_send_wr plain = {.opcode = IBV_WR_SEND},
				 copied = {.opcode = IBV_WR_SEND,
					   .send_flags = IBV_SEND_INLINE},
				 fenced = {.opcode = IBV_WR_SEND,
					   .send_flags = IBV_SEND_FENCE |
							 IBV_SEND_SOLICITED |
							 IBV_SEND_SIGNALED};
	struct rig rig;
	struct rig_end *end = &rig.end[0];

	for (int m = 0; m < 2; m++) {
		struct ibv_recv_wr recv = {.num_sge = 2}, *bad = NULL;
		const int over = m ? EINVAL : ENOMEM;

		open_as(&rig, models[m], IBV_QPT_RC);
		rig_connect(&rig, IBV_QPS_RTS);
		CHECK_EQ(attr_of(end).cap.max_send_sge, 1);
		CHECK_EQ(post(end, plain, 2, 8), over);
		CHECK_EQ(post(end, copied, 1,
			      attr_of(end).cap.max_inline_data + 1),
			 over);
		CHECK_EQ(ibv_post_recv(end->qp, &recv, &bad), EINVAL);
		CHECK(bad == &recv, "bad_wr is another");
		CHECK_EQ(rig_recv(&rig.end[1], 1, 0, 8), 0);
		CHECK_EQ(post(end, fenced, 1, 8), 0);
		CHECK_EQ(rig_wc(end).status, IBV_WC_SUCCESS);
		CHECK_EQ(rig_modify(end, NULL, IBV_QPS_ERR), 0);
		CHECK_EQ(rig_send(end, 3, 0, 8), 0);
		CHECK_EQ(rig_wc(end).status, IBV_WC_WR_FLUSH_ERR);
		CHECK_EQ(rig_recv(end, 4, 0, 8), 0);
		CHECK_EQ(rig_wc(end).status, IBV_WC_WR_FLUSH_ERR);
		rig_close(&rig);
	}
}

/* 3.3: SQ full; unsignaled post. */
Test(rules, a_send_queue_is_full_until_a_later_signaled_one_is_polled)
{
	const struct ibv_send_wr quiet = {.opcode = IBV_WR_SEND};
	struct rig rig;
	struct rig_end *end = &rig.end[0];

	for (int m = 0; m < 2; m++) {
		uint32_t depth;

		open_as(&rig, models[m], IBV_QPT_RC);
		connect_with(&rig, 7);
		depth = attr_of(end).cap.max_send_wr;
		CHECK_EQ(depth, m ? 15 : 8);
		/* No receive is there: all of it waits. */
		for (uint32_t i = 0; i < depth - 1; i++)
			CHECK_EQ(post(end, quiet, 1, 8), 0);
		CHECK_EQ(rig_send(end, 9, 0, 8), 0);
		CHECK_EQ(post(end, quiet, 1, 8), ENOMEM);
		for (uint32_t i = 0; i < depth; i++)
			CHECK_EQ(rig_recv(&rig.end[1], i, 0, 8), 0);
		CHECK_EQ(rig_wc(end).wr_id, 9);
		rig_no_wc(end);
		for (uint32_t i = 0; i < depth; i++)
			CHECK_EQ(post(end, quiet, 1, 8), 0);
		CHECK_EQ(post(end, quiet, 1, 8), ENOMEM);
		rig_close(&rig);
	}
	/* A stream without any signal ends (3.5). */
	open_as(&rig, "mlx5", IBV_QPT_UC);
	rig_connect(&rig, IBV_QPS_RTS);
	for (int i = 0; i < 8; i++)
		CHECK_EQ(post(end, quiet, 1, 8), 0);
	CHECK_EQ(post(end, quiet, 1, 8), ENOMEM);
	rig_close(&rig);
}

#define REMOTE                                              \
	(IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_ATOMIC)

/* 3.3: RDMA by ibv_post_send, with two sges; atomics. 3.2: a queue pair's
 * LOCAL_WRITE is ignored; max_dest_rd_atomic 0. */
Test(rules, one_sided_requests_are_taken_with_two_sges_and_a_depth)
{
	const struct ibv_qp_attr access = {.qp_access_flags = REMOTE},
				 none = {.max_dest_rd_atomic = 0};
	struct rig rig;
	struct rig_end *end = &rig.end[0], *peer = &rig.end[1];

	for (int m = 0; m < 2; m++) {
		struct ibv_send_wr wr = {.send_flags = IBV_SEND_SIGNALED};

		open_as(&rig, models[m], IBV_QPT_RC);
		replace_qp(end, end->cq, 2);
		CHECK_EQ(ibv_dereg_mr(peer->mr), 0);
		peer->mr = ibv_reg_mr(peer->pd, peer->memory, RIG_BYTES,
				      REMOTE | IBV_ACCESS_LOCAL_WRITE);
		CHECK(peer->mr, "reg_mr: errno %d", errno);
		rig_connect(&rig, IBV_QPS_RTS);
		CHECK_EQ(to(peer, access, IBV_QPS_RTS, IBV_QP_ACCESS_FLAGS), 0);
		wr.wr.rdma.remote_addr = (uintptr_t)peer->memory;
		wr.wr.rdma.rkey = peer->mr->rkey;
		wr.opcode = IBV_WR_RDMA_WRITE;
		memset(end->memory, 0x5a, 4);
		CHECK_EQ(post(end, wr, 2, 4), 0);
		CHECK_EQ(rig_wc(end).status, IBV_WC_SUCCESS);
		CHECK_EQ(peer->memory[7], 0x5a);
		wr.opcode = IBV_WR_RDMA_READ;
		CHECK_EQ(post(end, wr, 2, 4), 0);
		CHECK_EQ(rig_wc(end).status, IBV_WC_SUCCESS);
		wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr.wr.atomic.remote_addr = (uintptr_t)peer->memory;
		wr.wr.atomic.rkey = peer->mr->rkey;
		wr.wr.atomic.compare_add = 1;
		CHECK_EQ(post(end, wr, 1, 8), 0);
		CHECK_EQ(rig_wc(end).status, IBV_WC_SUCCESS);
		CHECK_EQ(peer->memory[0], 0x5b);
		CHECK_EQ(to(peer, none, IBV_QPS_SQD, 0), 0);
		CHECK_EQ(to(peer, none, IBV_QPS_SQD, IBV_QP_MAX_DEST_RD_ATOMIC),
			 0);
		CHECK_EQ(to(peer, none, IBV_QPS_RTS, 0), 0);
		CHECK_EQ(post(end, wr, 1, 8), 0);
		CHECK_EQ(rig_wc(end).status, IBV_WC_REM_INV_REQ_ERR);
		rig_close(&rig);
	}
}

/* Each poll runs what is due, and here a timer takes 10 ns or less. */
#define POLLS 2000

/* The status of the end's one completion, -1 when none comes. */
static int outcome(struct rig_end *end)
{
	struct ibv_wc wc;

	for (int i = 0; i < POLLS; i++)
		if (ibv_poll_cq(end->cq, 1, &wc) == 1)
			return (int)wc.status;
	return -1;
}

/* 3.2: rnr_retry 7 is infinite; retry_cnt 7 is on rxe only. */
Test(rules, seven_retries_are_endless_for_rnr_and_on_rxe_for_all)
{
	static const char *const fast[] = {"mlx5,timers=1000",
					   "rxe,timers=1000"};
	struct rig rig;
	struct rig_end *end = &rig.end[0];

	for (int row = 0; row < 8; row++) {
		const bool is_rnr = row & 1, is_7 = row & 2, is_rxe = row & 4;
		const bool is_endless = is_7 && (is_rnr || is_rxe);

		open_as(&rig, fast[is_rxe], IBV_QPT_RC);
		connect_with(&rig, is_7 ? 7 : 6);
		if (!is_rnr)
			CHECK_EQ(rig_modify(&rig.end[1], NULL, IBV_QPS_RESET),
				 0);
		CHECK_EQ(rig_send(end, 1, 0, 8), 0);
		CHECK_EQ(outcome(end), is_endless ? -1
				       : is_rnr	  ? IBV_WC_RNR_RETRY_EXC_ERR
						  : IBV_WC_RETRY_EXC_ERR);
		if (is_rnr && is_7)
			CHECK_EQ(rig_recv(&rig.end[1], 2, 0, 8), 0);
		if (is_rnr && is_7)
			CHECK_EQ(outcome(end), IBV_WC_SUCCESS);
		rig_close(&rig);
	}
}

/* 3.3: unsignaled post, rxe; dereg of a region with a window, rxe. */
Test(rules, rxe_reclaims_what_is_done_and_calls_a_bound_region_invalid)
{
	const struct ibv_send_wr quiet = {.opcode = IBV_WR_SEND};
	struct ibv_send_wr bind = {.opcode = IBV_WR_BIND_MW,
				   .send_flags = IBV_SEND_SIGNALED};
	struct rig rig;
	struct rig_end *end = &rig.end[0];

	open_as(&rig, "rxe", IBV_QPT_UC);
	rig_connect(&rig, IBV_QPS_RTS);
	for (int i = 0; i < 100; i++)
		CHECK_EQ(post(end, quiet, 1, 8), 0);
	CHECK_EQ(ibv_dereg_mr(end->mr), 0);
	end->mr = ibv_reg_mr(end->pd, end->memory, RIG_BYTES,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	CHECK(end->mr, "reg_mr: errno %d", errno);
	bind.bind_mw.mw = ibv_alloc_mw(end->pd, IBV_MW_TYPE_2);
	CHECK(bind.bind_mw.mw, "alloc_mw: errno %d", errno);
	bind.bind_mw.rkey = ibv_inc_rkey(bind.bind_mw.mw->rkey);
	bind.bind_mw.bind_info =
		(struct ibv_mw_bind_info){end->mr, (uintptr_t)end->memory, 8,
					  IBV_ACCESS_REMOTE_WRITE};
	CHECK_EQ(post(end, bind, 0, 0), 0);
	CHECK_EQ(rig_wc(end).status, IBV_WC_SUCCESS);
	CHECK_EQ(ibv_dereg_mr(end->mr), EINVAL);
	CHECK_EQ(ibv_dealloc_mw(bind.bind_mw.mw), 0);
	rig_close(&rig);
}

/* 3.1: close_device with objects alive. Static, for who looks for leaks. */
Test(rules, a_context_ends_with_what_was_made_on_it)
{
	static struct rig_end left[2];

	for (int m = 0; m < 2; m++) {
		struct rig rig;
		int before;

		open_as(&rig, models[m], IBV_QPT_RC);
		before = sim_world_object_count(rig.world);
		left[m].context = ibv_open_device(rig.end[0].context->device);
		CHECK(left[m].context, "open_device: errno %d", errno);
		rig_make(&left[m], IBV_QPT_RC, 4);
		CHECK_EQ(ibv_close_device(left[m].context), 0);
		CHECK_EQ(sim_world_object_count(rig.world), before);
		rig_close(&rig);
	}
}
