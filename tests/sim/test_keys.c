/* SPDX-License-Identifier: MIT */
/*
 * Goal: keys of regions and windows are good for what section 5.6 says, and
 * for as long. Method: a scene's pair; what a key allows is tried with a
 * message, and both ends are looked at.
 */
#include "tests/sim/scene.h"

#include <errno.h>

static void post(struct scene *s)
{
	struct ibv_send_wr *bad;

	CHECK_EQ(ibv_post_send(s->rig.end[0].qp, &s->wr, &bad), 0);
}

/* A write of 8 bytes by this key to this address of end 1. */
static int write_by(struct scene *s, uint32_t rkey, uint64_t addr)
{
	scene_prepare(s, IBV_WR_RDMA_WRITE);
	s->wr.wr.rdma.rkey = rkey;
	s->wr.wr.rdma.remote_addr = addr;
	post(s);
	return end_wait(&s->rig.end[0]).status;
}

/* 5.6: a new key each time, and the old ones dead. */
Test(keys, a_key_is_fresh_on_every_registration)
{
	uint32_t first = 0, last = 0;
	struct rig_end *end;
	struct scene s;

	scene_set(&s, "mlx5", NULL, IBV_QPT_RC);
	end = &s.rig.end[1];
	for (int i = 0; i < 100; i++) {
		struct ibv_mr *mr =
			ibv_reg_mr(end->pd, end->memory, 64, ALL_ACCESS);

		CHECK(mr, "reg_mr: errno %d", errno);
		CHECK(mr->rkey != last && mr->rkey != first, "key 0x%x again",
		      mr->rkey);
		last = mr->rkey;
		first = first ? first : last;
		CHECK_EQ(ibv_dereg_mr(mr), 0);
	}
	CHECK_EQ(write_by(&s, first, (uintptr_t)end->memory),
		 IBV_WC_REM_ACCESS_ERR);
	CHECK_EQ(end_event_type(end), IBV_EVENT_QP_ACCESS_ERR);
	scene_strike(&s);
}

/* 5.6: also for requests that are queued: at the responder... */
Test(keys, a_posted_receive_loses_its_key)
{
	struct scene s;

	scene_set(&s, "mlx5", NULL, IBV_QPT_RC);
	CHECK_EQ(rig_recv(&s.rig.end[1], RECV_ID, 0, 8), 0);
	CHECK_EQ(ibv_dereg_mr(s.rig.end[1].mr), 0);
	s.rig.end[1].mr = NULL;
	CHECK_EQ(rig_send(&s.rig.end[0], 1, 0, 8), 0);
	CHECK_EQ(rig_wc(&s.rig.end[0]).status, IBV_WC_REM_OP_ERR);
	CHECK_EQ(rig_wc(&s.rig.end[1]).status, IBV_WC_LOC_PROT_ERR);
	CHECK_EQ(end_state(&s.rig.end[1]), IBV_QPS_ERR);
	scene_strike(&s);
}

/* ... and at the requester, while it waits for a receive. */
Test(keys, a_waiting_send_loses_its_key)
{
	struct scene s;

	scene_set(&s, "mlx5", NULL, IBV_QPT_RC);
	CHECK_EQ(rig_send(&s.rig.end[0], 1, 0, 8), 0);
	CHECK_EQ(ibv_dereg_mr(s.rig.end[0].mr), 0);
	s.rig.end[0].mr = NULL;
	CHECK_EQ(rig_recv(&s.rig.end[1], RECV_ID, 0, 8), 0);
	CHECK_EQ(rig_wc(&s.rig.end[0]).status, IBV_WC_LOC_PROT_ERR);
	rig_no_wc(&s.rig.end[1]);
	CHECK_EQ(end_state(&s.rig.end[1]), IBV_QPS_RTS);
	scene_strike(&s);
}

/* 5.6: an address of a request is the region's own: its iova, or an offset. */
Test(keys, addresses_are_in_the_terms_of_the_region)
{
	static const uint64_t bases[] = {0x7000001000, 0};

	for (int i = 0; i < 2; i++) {
		struct ibv_mr *mr[2];
		struct scene s;

		scene_set(&s, "mlx5", NULL, IBV_QPT_RC);
		for (int end = 0; end < 2; end++) {
			struct rig_end *it = &s.rig.end[end];

			mr[end] =
				bases[i]
					? ibv_reg_mr_iova(it->pd, it->memory,
							  8192, bases[i],
							  ALL_ACCESS)
					: ibv_reg_mr(
						  it->pd, it->memory, 8192,
						  ALL_ACCESS |
							  IBV_ACCESS_ZERO_BASED);
			CHECK(mr[end], "reg_mr: errno %d", errno);
		}
		memcpy(s.rig.end[0].memory + 16, "by iova!", 8);
		scene_prepare(&s, IBV_WR_RDMA_WRITE);
		s.sge.addr = bases[i] + 16;
		s.sge.lkey = mr[0]->lkey;
		s.wr.wr.rdma.remote_addr = bases[i] + 4096;
		s.wr.wr.rdma.rkey = mr[1]->rkey;
		post(&s);
		CHECK_EQ(rig_wc(&s.rig.end[0]).status, IBV_WC_SUCCESS);
		CHECK(memcmp(s.rig.end[1].memory + 4096, "by iova!", 8) == 0,
		      "data");
		/* The real address is of no use; nor is what is behind. */
		CHECK_EQ(write_by(&s, mr[1]->rkey,
				  i ? 8192 - 7
				    : (uintptr_t)s.rig.end[1].memory),
			 IBV_WC_REM_ACCESS_ERR);
		for (int end = 0; end < 2; end++)
			CHECK_EQ(ibv_dereg_mr(mr[end]), 0);
		scene_strike(&s);
	}
}

/* --- windows ------------------------------------------------------------ */

static void bind(struct rig_end *end, struct ibv_mw *mw, uint32_t rkey,
		 struct ibv_mr *mr, unsigned access)
{
	struct ibv_send_wr wr = {.wr_id = WR_ID,
				 .opcode = IBV_WR_BIND_MW,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = rkey;
	wr.bind_mw.bind_info =
		(struct ibv_mw_bind_info){mr, (uintptr_t)end->memory, 64,
					  access};
	CHECK_EQ(ibv_post_send(end->qp, &wr, &bad), 0);
}

static struct ibv_mw *window(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, type);

	CHECK(mw, "alloc_mw: errno %d", errno);
	return mw;
}

/* 5.3, 5.6: each fails the queue pair, and nothing but it. */
Test(keys, a_bind_that_may_not_be_is_an_error)
{
	static const struct {
		const char *what;
		unsigned access;
	} rows[] = {
		{"a region without MW_BIND", IBV_ACCESS_REMOTE_READ},
		{"a region of another domain", IBV_ACCESS_REMOTE_READ},
		{"a window of another domain", IBV_ACCESS_REMOTE_READ},
		{"writes, and no LOCAL_WRITE", IBV_ACCESS_REMOTE_WRITE},
		{"bound already", IBV_ACCESS_REMOTE_READ},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct ibv_mr *mr, *readable;
		struct rig_end *end;
		struct ibv_mw *mw;
		struct ibv_wc wc;
		struct scene s;

		scene_set(&s, "mlx5", NULL, IBV_QPT_RC);
		end = &s.rig.end[1];
		readable = ibv_reg_mr(end->pd, end->memory, 64,
				      IBV_ACCESS_MW_BIND);
		mr = i == 0   ? s.plain[1]
		     : i == 1 ? s.foreign[1]
		     : i == 3 ? readable
			      : end->mr;
		mw = window(i == 2 ? s.pd[1] : end->pd, IBV_MW_TYPE_2);
		if (i == 4) {
			bind(end, mw, ibv_inc_rkey(mw->rkey), mr,
			     rows[i].access);
			CHECK_EQ(rig_wc(end).status, IBV_WC_SUCCESS);
		}
		bind(end, mw, ibv_inc_rkey(mw->rkey) ^ 0x80, mr,
		     rows[i].access);
		wc = rig_wc(end);
		CHECK(wc.status == IBV_WC_MW_BIND_ERR && wc.wr_id == WR_ID,
		      "%s: status %d", rows[i].what, wc.status);
		CHECK_EQ(end_state(end), IBV_QPS_ERR);
		CHECK_EQ(end_state(&s.rig.end[0]), IBV_QPS_RTS);
		CHECK_EQ(ibv_dealloc_mw(mw), 0);
		CHECK_EQ(ibv_dereg_mr(readable), 0);
		scene_strike(&s);
	}
}

/* 5.6: type 1 is bound by the verb, and has a new key each time. */
Test(keys, a_window_of_type_1_is_bound_by_the_verb)
{
	struct ibv_mw_bind how = {.wr_id = 5, .send_flags = IBV_SEND_SIGNALED};
	struct rig_end *end;
	struct ibv_mw *mw;
	struct scene s;
	uint32_t old;

	scene_set(&s, "mlx5", NULL, IBV_QPT_RC);
	end = &s.rig.end[1];
	mw = window(end->pd, IBV_MW_TYPE_1);
	how.bind_info =
		(struct ibv_mw_bind_info){end->mr, (uintptr_t)end->memory + 64,
					  8, IBV_ACCESS_REMOTE_WRITE};
	memcpy(s.rig.end[0].memory, "type one", 8);
	for (int i = 0; i < 2; i++) {
		old = mw->rkey;
		CHECK_EQ(ibv_bind_mw(end->qp, mw, &how), 0);
		CHECK(mw->rkey != old, "the key stays");
		CHECK_EQ(rig_wc(end).opcode, IBV_WC_BIND_MW);
		memset(end->memory + 64, 0, 8);
		CHECK_EQ(write_by(&s, mw->rkey, (uintptr_t)end->memory + 64),
			 IBV_WC_SUCCESS);
		CHECK(memcmp(end->memory + 64, "type one", 8) == 0, "data");
	}
	CHECK_EQ(write_by(&s, old, (uintptr_t)end->memory + 64),
		 IBV_WC_REM_ACCESS_ERR);
	CHECK_EQ(end_event_type(end), IBV_EVENT_QP_ACCESS_ERR);
	CHECK_EQ(ibv_dealloc_mw(mw), 0);
	scene_strike(&s);
}

/* 5.6: what a window does not span or allow, its region's flags or not. */
Test(keys, a_window_opens_no_more_than_it_was_bound_to)
{
	for (int i = 0; i < 3; i++) {
		struct rig_end *end;
		struct ibv_mw *mw;
		uint32_t rkey;
		struct scene s;
		int status;

		scene_set(&s, "mlx5", NULL, IBV_QPT_RC);
		end = &s.rig.end[1];
		mw = window(end->pd, IBV_MW_TYPE_2);
		rkey = ibv_inc_rkey(mw->rkey);
		bind(end, mw, rkey, end->mr,
		     i == 1 ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE);
		CHECK_EQ(rig_wc(end).status, IBV_WC_SUCCESS);
		status = write_by(&s, rkey,
				  (uintptr_t)end->memory + (i == 2 ? 57 : 56));
		CHECK(status == (i ? IBV_WC_REM_ACCESS_ERR : IBV_WC_SUCCESS),
		      "row %d: status %d", i, status);
		CHECK_EQ(end_event_type(end), i ? IBV_EVENT_QP_ACCESS_ERR : 0);
		CHECK_EQ(ibv_dealloc_mw(mw), 0);
		scene_strike(&s);
	}
}

/* 2.8: LOCAL_INV takes a window's key out of use, on UC not with rxe. */
Test(keys, a_local_invalidate_ends_a_window)
{
	static const struct {
		const char *model;
		enum ibv_qp_type type;
		enum ibv_wc_status status;
	} rows[] = {
		{"mlx5", IBV_QPT_RC, IBV_WC_SUCCESS},
		{"mlx5", IBV_QPT_UC, IBV_WC_SUCCESS},
		{"rxe", IBV_QPT_RC, IBV_WC_SUCCESS},
		{"rxe", IBV_QPT_UC, IBV_WC_LOC_QP_OP_ERR},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct ibv_send_wr wr = {.wr_id = 6,
					 .opcode = IBV_WR_LOCAL_INV,
					 .send_flags = IBV_SEND_SIGNALED},
				   *bad;
		struct rig_end *end;
		struct ibv_mw *mw;
		struct scene s;

		scene_set(&s, rows[i].model, NULL, rows[i].type);
		end = &s.rig.end[1];
		mw = window(end->pd, IBV_MW_TYPE_2);
		wr.invalidate_rkey = ibv_inc_rkey(mw->rkey);
		bind(end, mw, wr.invalidate_rkey, end->mr,
		     IBV_ACCESS_REMOTE_WRITE);
		CHECK_EQ(rig_wc(end).status, IBV_WC_SUCCESS);
		CHECK_EQ(ibv_post_send(end->qp, &wr, &bad), 0);
		CHECK_EQ(rig_wc(end).status, rows[i].status);
		CHECK_EQ(end_state(end),
			 rows[i].status ? IBV_QPS_ERR : IBV_QPS_RTS);
		if (rows[i].type == IBV_QPT_RC)
			CHECK_EQ(write_by(&s, wr.invalidate_rkey,
					  (uintptr_t)end->memory),
				 IBV_WC_REM_ACCESS_ERR);
		/* Its region is free again, or not (3.3: EINVAL on rxe). */
		CHECK_EQ(ibv_dereg_mr(end->mr), rows[i].status ? EINVAL : 0);
		if (!rows[i].status)
			end->mr = NULL;
		CHECK_EQ(ibv_dealloc_mw(mw), 0);
		scene_strike(&s);
	}
}
