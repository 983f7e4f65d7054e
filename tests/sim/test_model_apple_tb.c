/* SPDX-License-Identifier: MIT */
/*
 * Goal: the Thunderbolt device keeps the rules of the spec, row by row. Method:
 * a private world, seen through verbs alone; the row's id is in the name.
 */
#include "tests/rig.h"

#include <errno.h>
#include <stdlib.h>

#include "tests/harness.h"

#define FRAME 4096u

static void open_one(struct rig *rig, const char *model)
{
	setenv("VERBENA_QUIET", "1", 1);
	rig_open(rig, model, NULL);
}

static void pair(struct rig *rig, const char *model)
{
	setenv("VERBENA_QUIET", "1", 1);
	rig_pair(rig, model, NULL, IBV_QPT_UC);
}

/* PD and CQ for tests that make queue pairs of their own. */
static void make_cq(struct rig_end *end)
{
	end->pd = ibv_alloc_pd(end->context);
	end->cq = ibv_create_cq(end->context, 100, NULL, NULL, 0);
	CHECK(end->pd && end->cq, "pd and cq");
}

static struct ibv_qp *create_qp(struct rig_end *end, enum ibv_qp_type type,
				struct ibv_qp_cap cap)
{
	struct ibv_qp_init_attr init = {.qp_type = type,
					.send_cq = end->cq,
					.recv_cq = end->cq,
					.cap = cap};

	errno = 0;
	return ibv_create_qp(end->pd, &init);
}

static const struct ibv_qp_cap small = {.max_send_wr = 16,
					.max_recv_wr = 16,
					.max_send_sge = 1,
					.max_recv_sge = 1};

Test(apple_tb, R1_R2_only_uc_queue_pairs_exist)
{
	static const enum ibv_qp_type refused[] = {IBV_QPT_RC, IBV_QPT_UD,
						   IBV_QPT_RAW_PACKET};
	struct rig rig;

	open_one(&rig, "apple-tb");
	make_cq(&rig.end[0]);
	for (int i = 0; i < 3; i++) {
		CHECK(!create_qp(&rig.end[0], refused[i], small), "type %d",
		      refused[i]);
		CHECK_EQ(errno, EOPNOTSUPP);
	}
	rig.end[0].qp = create_qp(&rig.end[0], IBV_QPT_UC, small);
	CHECK(rig.end[0].qp, "UC");
	rig_close(&rig);
}

Test(apple_tb, R1_knob_refuses_rc_at_rtr_instead)
{
	struct rig rig;

	open_one(&rig, "apple-tb,rc_refusal=rtr");
	rig_make(&rig.end[0], IBV_QPT_RC, 16);
	rig_make(&rig.end[1], IBV_QPT_RC, 16);
	rig_connect(&rig, IBV_QPS_INIT);
	CHECK_EQ(rig_modify(&rig.end[0], &rig.end[1], IBV_QPS_RTR), EOPNOTSUPP);
	CHECK_EQ(rig.end[0].qp->state, IBV_QPS_INIT);
	rig_close(&rig);
}

Test(apple_tb, R3_the_eleventh_queue_pair_is_busy)
{
	struct ibv_device_attr attr;
	struct ibv_qp *qp[10];
	struct rig rig;

	open_one(&rig, "apple-tb");
	make_cq(&rig.end[0]);
	CHECK_EQ(ibv_query_device(rig.end[0].context, &attr), 0);
	CHECK_EQ(attr.max_qp, 11);
	for (int i = 0; i < 10; i++)
		CHECK((qp[i] = create_qp(&rig.end[0], IBV_QPT_UC, small)),
		      "qp %d", i);
	CHECK(!create_qp(&rig.end[0], IBV_QPT_UC, small), "the eleventh");
	CHECK_EQ(errno, EBUSY);
	/* A limit of the device: the other host has its own. */
	make_cq(&rig.end[1]);
	rig.end[1].qp = create_qp(&rig.end[1], IBV_QPT_UC, small);
	CHECK(rig.end[1].qp, "on the other host");
	/* One goes, one may come. */
	CHECK_EQ(ibv_destroy_qp(qp[0]), 0);
	CHECK((qp[0] = create_qp(&rig.end[0], IBV_QPT_UC, small)), "again");
	for (int i = 0; i < 10; i++)
		CHECK_EQ(ibv_destroy_qp(qp[i]), 0);
	rig_close(&rig);
}

Test(apple_tb, R4_limits_of_domains_queues_and_attributes)
{
	struct ibv_device_attr attr;
	struct ibv_pd *pd[12];
	struct ibv_cq *cq[12];
	struct rig rig;

	open_one(&rig, "apple-tb,max_qp=3");
	CHECK_EQ(ibv_query_device(rig.end[0].context, &attr), 0);
	CHECK_EQ(attr.max_qp, 3);
	CHECK_EQ(attr.max_pd, 11);
	CHECK_EQ(attr.max_cq, 11);
	CHECK_EQ(attr.max_mr, 100);
	CHECK_EQ(attr.max_sge, 1);
	CHECK_EQ(attr.max_srq, 0);
	CHECK_EQ(attr.max_qp_rd_atom, 0);
	CHECK_EQ(attr.atomic_cap, IBV_ATOMIC_NONE);
	CHECK_EQ(attr.max_mr_size, 0xfa0000);
	CHECK_EQ(attr.max_qp_wr, 4095);
	for (int i = 0; i < 12; i++)
		pd[i] = ibv_alloc_pd(rig.end[0].context);
	CHECK(pd[10] && !pd[11], "11 protection domains");
	for (int i = 0; i < 12; i++)
		cq[i] = ibv_create_cq(rig.end[0].context, 1, NULL, NULL, 0);
	CHECK(cq[10] && !cq[11], "11 completion queues");
	for (int i = 0; i < 11; i++) {
		CHECK_EQ(ibv_dealloc_pd(pd[i]), 0);
		CHECK_EQ(ibv_destroy_cq(cq[i]), 0);
	}
	rig_close(&rig);
}

/* 100 regions are had from the first domain, `more` from a second one. */
static void register_101(const char *model, int more)
{
	struct ibv_pd *second;
	struct ibv_mr *mr[102];
	struct rig rig;
	int count = 0;

	open_one(&rig, model);
	make_cq(&rig.end[0]);
	second = ibv_alloc_pd(rig.end[0].context);
	rig.end[0].memory = aligned_alloc(FRAME, FRAME);
	for (int i = 0; i < 101; i++) {
		mr[count] = ibv_reg_mr(rig.end[0].pd, rig.end[0].memory, FRAME,
				       IBV_ACCESS_LOCAL_WRITE);
		count += mr[count] != NULL;
	}
	CHECK_EQ(count, 100);
	mr[count] = ibv_reg_mr(second, rig.end[0].memory, FRAME,
			       IBV_ACCESS_LOCAL_WRITE);
	count += mr[count] != NULL;
	CHECK_EQ(count, 100 + more);
	while (count > 0)
		CHECK_EQ(ibv_dereg_mr(mr[--count]), 0);
	CHECK_EQ(ibv_dealloc_pd(second), 0);
	rig_close(&rig);
}

Test(apple_tb, R5_the_101st_region_is_refused_a_device)
{
	register_101("apple-tb", 0);
}

Test(apple_tb, R5_knob_counts_regions_a_domain)
{
	register_101("apple-tb,mr_scope=pd", 1);
}

static int register_at(const char *model, uint64_t addr, uint64_t length,
		       int access)
{
	struct ibv_mr *mr;
	struct rig rig;
	int rc = 0;

	open_one(&rig, model);
	make_cq(&rig.end[0]);
	mr = ibv_reg_mr(rig.end[0].pd, (void *)(uintptr_t)addr, length, access);
	if (mr)
		CHECK_EQ(ibv_dereg_mr(mr), 0);
	else
		rc = errno;
	rig_close(&rig);
	return rc;
}

Test(apple_tb, R6_regions_across_a_4_gib_line)
{
	const uint64_t line = 0x200000000ull;
	const int write = IBV_ACCESS_LOCAL_WRITE;

	CHECK_EQ(register_at("apple-tb", line - FRAME, FRAME, write), 0);
	CHECK_EQ(register_at("apple-tb", line - FRAME, 2 * FRAME, write),
		 EINVAL);
	CHECK_EQ(register_at("apple-tb", line, 1ull << 32, write), 0);
	CHECK_EQ(register_at("apple-tb", line, (1ull << 32) + 1, write),
		 EINVAL);
	/* Advertised, 0xfa0000, but only the knob enforces it. */
	CHECK_EQ(register_at("apple-tb", line, 0xfa0001, write), 0);
	CHECK_EQ(register_at("apple-tb,mr_4g=enforce", line, 0xfa0001, write),
		 EINVAL);
	CHECK_EQ(register_at("apple-tb,mr_4g=alias", line - FRAME, 2 * FRAME,
			     write),
		 0);
}

Test(apple_tb, R7_regions_are_aligned)
{
	const int write = IBV_ACCESS_LOCAL_WRITE;

	CHECK_EQ(register_at("apple-tb", 0x10000800, 64, write), EINVAL);
	CHECK_EQ(register_at("apple-tb", 0x10001000, 64, write), 0);
	CHECK_EQ(register_at("apple-tb,mr_align=16384", 0x10001000, 64, write),
		 EINVAL);
	CHECK_EQ(register_at("apple-tb,mr_align=16384", 0x10004000, 64, write),
		 0);
}

Test(apple_tb, R8_access_flags_need_local_write)
{
	const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_WRITE;

	CHECK_EQ(register_at("apple-tb", 0x10000000, 64, 0), EINVAL);
	CHECK_EQ(register_at("apple-tb", 0x10000000, 64,
			     IBV_ACCESS_LOCAL_WRITE),
		 0);
	CHECK_EQ(register_at("apple-tb", 0x10000000, 64, all), 0);
	CHECK_EQ(register_at("apple-tb,mr_flags=strict", 0x10000000, 64,
			     IBV_ACCESS_LOCAL_WRITE),
		 EINVAL);
	CHECK_EQ(register_at("apple-tb,mr_flags=strict", 0x10000000, 64, all),
		 0);
}

Test(apple_tb, R9_queue_pair_access_flags_are_free)
{
	static const unsigned flags[] = {0, IBV_ACCESS_LOCAL_WRITE |
						    IBV_ACCESS_REMOTE_READ |
						    IBV_ACCESS_REMOTE_WRITE};
	struct rig rig;

	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
					   .port_num = 1,
					   .qp_access_flags = flags[i]};

		open_one(&rig, "apple-tb");
		rig_make(&rig.end[0], IBV_QPT_UC, 16);
		CHECK_EQ(ibv_modify_qp(rig.end[0].qp, &attr,
				       IBV_QP_STATE | IBV_QP_PKEY_INDEX |
					       IBV_QP_PORT |
					       IBV_QP_ACCESS_FLAGS),
			 0);
		rig_close(&rig);
	}
}

Test(apple_tb, R10_R11_depth_is_counted_in_frames)
{
	struct rig rig;

	/* 1023 frames granted: 63 receives of 16 frames, then one of 15. */
	pair(&rig, "apple-tb");
	for (int i = 0; i < 63; i++)
		CHECK_EQ(rig_recv(&rig.end[1], i, 0, 16 * FRAME), 0);
	CHECK(rig_recv(&rig.end[1], 63, 0, 16 * FRAME) != 0, "the 64th");
	CHECK_EQ(rig_recv(&rig.end[1], 63, 0, 15 * FRAME), 0);
	CHECK(rig_recv(&rig.end[1], 64, 0, 1) != 0, "one more frame");
	/* Sends are held, and count, until credit comes. */
	for (int i = 0; i < 64; i++)
		CHECK_EQ(rig_send(&rig.end[1], i, 0,
				  i < 63 ? 16 * FRAME : 15 * FRAME),
			 0);
	CHECK_EQ(rig_send(&rig.end[1], 64, 0, 1), ENOMEM);
	rig_close(&rig);
}

Test(apple_tb, R11_queues_and_messages_have_a_largest_size)
{
	struct ibv_qp_cap big = small;
	struct ibv_sge sge = {.length = 4095 * FRAME + 1};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
	struct rig rig;

	open_one(&rig, "apple-tb");
	make_cq(&rig.end[0]);
	big.max_send_wr = 4096;
	CHECK(!create_qp(&rig.end[0], IBV_QPT_UC, big), "4096 frames");
	CHECK_EQ(errno, EINVAL);
	rig_close(&rig);
	pair(&rig, "apple-tb");
	wr.opcode = IBV_WR_SEND;
	CHECK_EQ(ibv_post_send(rig.end[0].qp, &wr, &bad), EINVAL);
	CHECK(bad == &wr, "bad_wr");
	rig_close(&rig);
}

static uint32_t granted(const char *model, uint32_t asked)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct rig rig;

	open_one(&rig, model);
	rig_make(&rig.end[0], IBV_QPT_UC, asked);
	CHECK_EQ(ibv_query_qp(rig.end[0].qp, &attr, IBV_QP_CAP, &init), 0);
	CHECK_EQ(init.cap.max_send_wr, init.cap.max_recv_wr);
	CHECK_EQ(attr.cap.max_recv_wr, init.cap.max_recv_wr);
	rig_close(&rig);
	return init.cap.max_recv_wr;
}

Test(apple_tb, R12_the_granted_depth_is_rounded)
{
	CHECK_EQ(granted("apple-tb", 256), 1023);
	CHECK_EQ(granted("apple-tb", 1023), 1023);
	CHECK_EQ(granted("apple-tb", 1024), 4095);
	CHECK_EQ(granted("apple-tb", 4095), 4095);
	CHECK_EQ(granted("apple-tb,grant=128", 512), 128);
}

Test(apple_tb, R13_over_budget_receive_is_minus_enomem)
{
	struct rig rig;

	pair(&rig, "apple-tb,grant=32");
	CHECK_EQ(rig_recv(&rig.end[1], 0, 0, 32 * FRAME), 0);
	CHECK_EQ(rig_recv(&rig.end[1], 1, 0, FRAME), -ENOMEM);
	rig_close(&rig);
}

Test(apple_tb, R13_knob_accepts_it_and_loses_its_data)
{
	struct rig rig;

	pair(&rig, "apple-tb,grant=32,over_budget=accept");
	memset(rig.end[0].memory, 0x5a, 2 * FRAME);
	CHECK_EQ(rig_recv(&rig.end[1], 0, 0, 31 * FRAME), 0);
	CHECK_EQ(rig_recv(&rig.end[1], 1, 40 * FRAME, 2 * FRAME), 0);
	CHECK_EQ(rig_send(&rig.end[0], 0, 0, 31 * FRAME), 0);
	CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_SUCCESS);
	CHECK_EQ(rig_send(&rig.end[0], 1, 0, 2 * FRAME), 0);
	CHECK_EQ(rig_wc(&rig.end[1]).wr_id, 0);
	CHECK_EQ(rig_wc(&rig.end[1]).status, IBV_WC_SUCCESS);
	CHECK_EQ(rig.end[1].memory[0], 0x5a);
	CHECK_EQ(rig.end[1].memory[40 * FRAME], 0);
	rig_close(&rig);
}

Test(apple_tb, R14_knob_shares_the_budget_of_a_port)
{
	struct rig_end second;
	struct rig rig;

	pair(&rig, "apple-tb,grant=64,budget=port");
	second = rig.end[1];
	second.qp = create_qp(&rig.end[1], IBV_QPT_UC, small);
	CHECK(second.qp, "a second queue pair");
	for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++)
		CHECK_EQ(rig_modify(&second, &rig.end[0], state), 0);
	CHECK_EQ(rig_recv(&rig.end[1], 0, 0, 40 * FRAME), 0);
	CHECK_EQ(rig_recv(&second, 0, 0, 25 * FRAME), -ENOMEM);
	CHECK_EQ(rig_recv(&second, 0, 0, 24 * FRAME), 0);
	CHECK_EQ(ibv_destroy_qp(second.qp), 0);
	/* What it held is the port's again. */
	CHECK_EQ(rig_recv(&rig.end[1], 1, 0, 24 * FRAME), 0);
	rig_close(&rig);
}

Test(apple_tb, R15_frame_counts_must_be_equal)
{
	static const struct {
		uint32_t send, recv;
		int status;
	} rows[] = {
		{16384, 4096, IBV_WC_LOC_LEN_ERR},
		{16384, 32768, IBV_WC_LOC_LEN_ERR},
		{4097, 4096, IBV_WC_LOC_LEN_ERR},
		{16384, 16384, IBV_WC_SUCCESS},
		{12289, 16384, IBV_WC_SUCCESS}, /* last frame may differ */
		{1, 4096, IBV_WC_SUCCESS},
		{0, 4096, IBV_WC_SUCCESS},
	};
	struct rig rig;

	pair(&rig, "apple-tb");
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct ibv_wc wc;

		CHECK_EQ(rig_recv(&rig.end[1], i, 0, rows[i].recv), 0);
		CHECK_EQ(rig_send(&rig.end[0], i, 0, rows[i].send), 0);
		/* The receive fails; the sender never hears of it (R21). */
		CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_SUCCESS);
		wc = rig_wc(&rig.end[1]);
		CHECK(wc.status == (enum ibv_wc_status)rows[i].status,
		      "row %zu: status %d", i, wc.status);
		CHECK_EQ(wc.wr_id, i);
		if (wc.status == IBV_WC_SUCCESS)
			CHECK_EQ(wc.byte_len, rows[i].send);
	}
	rig_close(&rig);
}

Test(apple_tb, R19_R21_a_send_is_held_until_a_receive_exists)
{
	struct rig rig;

	pair(&rig, "apple-tb");
	memcpy(rig.end[0].memory, "held", 4);
	CHECK_EQ(rig_send(&rig.end[0], 7, 0, 4), 0);
	rig_no_wc(&rig.end[0]);
	rig_no_wc(&rig.end[1]);
	CHECK_EQ(rig_recv(&rig.end[1], 8, 0, FRAME), 0);
	CHECK_EQ(rig_wc(&rig.end[0]).wr_id, 7);
	CHECK_EQ(rig_wc(&rig.end[1]).wr_id, 8);
	CHECK(memcmp(rig.end[1].memory, "held", 4) == 0, "data");
	rig_close(&rig);
}

Test(apple_tb, R21_knob_completes_a_send_when_posted)
{
	struct rig rig;

	pair(&rig, "apple-tb,send_done=post");
	memcpy(rig.end[0].memory, "old", 3);
	CHECK_EQ(rig_send(&rig.end[0], 7, 0, 3), 0);
	CHECK_EQ(rig_wc(&rig.end[0]).wr_id, 7);
	/* Too early to reuse the buffer: it is read when credit comes. */
	memcpy(rig.end[0].memory, "new", 3);
	CHECK_EQ(rig_recv(&rig.end[1], 8, 0, FRAME), 0);
	CHECK_EQ(rig_wc(&rig.end[1]).wr_id, 8);
	CHECK(memcmp(rig.end[1].memory, "new", 3) == 0, "read late");
	rig_no_wc(&rig.end[0]);
	rig_close(&rig);
}

static int post_opcode(struct rig_end *end, enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge = {(uintptr_t)end->memory, 8, end->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 5,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = opcode,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	return ibv_post_send(end->qp, &wr, &bad);
}

Test(apple_tb, R24_send_is_the_only_opcode)
{
	static const enum ibv_wr_opcode refused[] = {
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND_WITH_IMM,
		IBV_WR_ATOMIC_FETCH_AND_ADD};
	struct rig rig;

	pair(&rig, "apple-tb");
	for (int i = 0; i < 4; i++)
		CHECK_EQ(post_opcode(&rig.end[0], refused[i]), EOPNOTSUPP);
	rig_no_wc(&rig.end[0]);
	rig_close(&rig);
	pair(&rig, "apple-tb,other_opcodes=ignore");
	CHECK_EQ(post_opcode(&rig.end[0], IBV_WR_RDMA_WRITE), 0);
	CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_SUCCESS);
	rig_no_wc(&rig.end[1]);
	rig_close(&rig);
}

/* The first state of end 1 in which it takes a receive. */
static int first_recv_state(const char *model)
{
	struct rig rig;
	int state;

	open_one(&rig, model);
	rig_make(&rig.end[0], IBV_QPT_UC, 16);
	rig_make(&rig.end[1], IBV_QPT_UC, 16);
	for (state = IBV_QPS_RESET; state <= IBV_QPS_RTS; state++) {
		if (state)
			CHECK_EQ(rig_modify(&rig.end[1], &rig.end[0], state),
				 0);
		if (rig_recv(&rig.end[1], 0, 0, FRAME) == 0)
			break;
	}
	rig_close(&rig);
	return state;
}

Test(apple_tb, R28_post_recv_is_refused_before_rts)
{
	CHECK_EQ(first_recv_state("apple-tb"), IBV_QPS_RTS);
	CHECK_EQ(first_recv_state("apple-tb,post_recv_from=rtr"), IBV_QPS_RTR);
	CHECK_EQ(first_recv_state("apple-tb,post_recv_from=init"),
		 IBV_QPS_INIT);
}

Test(apple_tb, R30_R31_attribute_masks_are_those_of_uc)
{
	const int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	static const int missing[] = {IBV_QP_AV, IBV_QP_PATH_MTU,
				      IBV_QP_DEST_QPN, IBV_QP_RQ_PSN};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	struct rig rig;

	open_one(&rig, "apple-tb");
	rig_make(&rig.end[0], IBV_QPT_UC, 16);
	rig_make(&rig.end[1], IBV_QPT_UC, 16);
	rig_connect(&rig, IBV_QPS_INIT);
	for (int i = 0; i < 4; i++)
		CHECK_EQ(ibv_modify_qp(rig.end[0].qp, &attr, rtr & ~missing[i]),
			 EINVAL);
	/* What only RC has is refused, too. */
	CHECK_EQ(ibv_modify_qp(rig.end[0].qp, &attr,
			       rtr | IBV_QP_MIN_RNR_TIMER),
		 EINVAL);
	CHECK_EQ(rig_modify(&rig.end[0], &rig.end[1], IBV_QPS_RTR), 0);
	attr.qp_state = IBV_QPS_RTS;
	CHECK_EQ(ibv_modify_qp(rig.end[0].qp, &attr, IBV_QP_STATE), EINVAL);
	CHECK_EQ(ibv_modify_qp(rig.end[0].qp, &attr,
			       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT),
		 EINVAL);
	CHECK_EQ(rig_modify(&rig.end[0], &rig.end[1], IBV_QPS_RTS), 0);
	CHECK_EQ(rig.end[0].qp->state, IBV_QPS_RTS);
	rig_close(&rig);
}

static int modify_rtr(const char *model, int mtu, int sgid_index, bool bad_gid)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	union ibv_gid gid;
	struct rig rig;
	int rc;

	open_one(&rig, model);
	rig_make(&rig.end[0], IBV_QPT_UC, 16);
	rig_make(&rig.end[1], IBV_QPT_UC, 16);
	rig_connect(&rig, IBV_QPS_INIT);
	CHECK_EQ(ibv_query_gid(rig.end[1].context, 1, 1, &gid), 0);
	gid.raw[15] ^= bad_gid ? 0x40 : 0;
	attr.path_mtu = mtu;
	attr.dest_qp_num = rig.end[1].qp->qp_num;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.port_num = 1;
	attr.ah_attr.grh.sgid_index = (uint8_t)sgid_index;
	attr.ah_attr.grh.dgid = gid;
	rc = ibv_modify_qp(rig.end[0].qp, &attr,
			   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN);
	rig_close(&rig);
	return rc;
}

Test(apple_tb, R33_path_mtu_is_1024_or_4096)
{
	CHECK_EQ(modify_rtr("apple-tb", IBV_MTU_1024, 1, false), 0);
	CHECK_EQ(modify_rtr("apple-tb", IBV_MTU_4096, 1, false), 0);
	CHECK_EQ(modify_rtr("apple-tb", IBV_MTU_2048, 1, false), EINVAL);
	CHECK_EQ(modify_rtr("apple-tb", 0, 1, false), EINVAL);
}

Test(apple_tb, R34_rtr_names_what_is_wrong_with_the_gid)
{
	CHECK_EQ(modify_rtr("apple-tb", IBV_MTU_4096, 12, false), EINVAL);
	CHECK_EQ(modify_rtr("apple-tb", IBV_MTU_4096, 200, false), EINVAL);
	CHECK_EQ(modify_rtr("apple-tb", IBV_MTU_4096, 1, true), ETIMEDOUT);
}

Test(apple_tb, R32_knob_drops_all_on_a_psn_mismatch)
{
	static const char *const models[] = {"apple-tb", "apple-tb,psn=match"};

	for (int i = 0; i < 2; i++) {
		struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
					   .sq_psn = 7};
		struct rig rig;

		open_one(&rig, models[i]);
		rig_make(&rig.end[0], IBV_QPT_UC, 16);
		rig_make(&rig.end[1], IBV_QPT_UC, 16);
		rig_connect(&rig, IBV_QPS_RTR);
		CHECK_EQ(ibv_modify_qp(rig.end[0].qp, &attr,
				       IBV_QP_STATE | IBV_QP_SQ_PSN),
			 0);
		CHECK_EQ(rig_modify(&rig.end[1], NULL, IBV_QPS_RTS), 0);
		CHECK_EQ(rig_recv(&rig.end[1], 0, 0, FRAME), 0);
		CHECK_EQ(rig_send(&rig.end[0], 0, 0, FRAME), 0);
		if (i == 0)
			CHECK_EQ(rig_wc(&rig.end[1]).status, IBV_WC_SUCCESS);
		else
			rig_no_wc(&rig.end[1]);
		rig_close(&rig);
	}
}

/* Index of ::ffff:127.0.0.LAST in the table of host `host`, or -1. */
static int index_of(struct rig *rig, int host, int last)
{
	for (int i = 0; i < 16; i++) {
		union ibv_gid gid;

		CHECK_EQ(ibv_query_gid(rig->end[host].context, 1, i, &gid), 0);
		if (gid.raw[10] == 0xff && gid.raw[12] == 127 &&
		    gid.raw[15] == last)
			return i;
	}
	return -1;
}

Test(apple_tb, R36_gid_table_has_loopback_on_both_hosts)
{
	union ibv_gid gid;
	struct rig rig;

	open_one(&rig, "apple-tb");
	for (int host = 0; host < 2; host++) {
		CHECK_EQ(ibv_query_gid(rig.end[host].context, 1, 0, &gid), 0);
		CHECK_EQ(gid.raw[0], 0xfe);
		for (int last = 1; last <= 8; last++)
			CHECK_EQ(index_of(&rig, host, last), last);
	}
	CHECK_EQ(ibv_query_gid(rig.end[0].context, 1, 16, &gid), -1);
	CHECK_EQ(errno, EINVAL);
	rig_close(&rig);
	open_one(&rig, "apple-tb,ipv4_gid=2");
	CHECK_EQ(index_of(&rig, 0, 1), 2);
	rig_close(&rig);
	open_one(&rig, "apple-tb,ipv4_gid=none");
	CHECK_EQ(index_of(&rig, 0, 1), -1);
	rig_close(&rig);
}

Test(apple_tb, R37_R38_R40_names_ports_and_link)
{
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	struct rig rig;

	open_one(&rig, "apple-tb");
	CHECK(strncmp(ibv_get_device_name(rig.end[0].context->device),
		      "rdma_en", 7) == 0,
	      "name");
	CHECK_EQ(rig.end[0].context->device->transport_type, 100);
	CHECK_EQ(ibv_query_device(rig.end[0].context, &device), 0);
	CHECK_EQ(device.phys_port_cnt, 1);
	CHECK_EQ(ibv_query_port(rig.end[1].context, 1, &port), 0);
	CHECK_EQ(port.state, IBV_PORT_ACTIVE);
	CHECK_EQ(port.link_layer, 100);
	CHECK_EQ(port.lid, 2);
	CHECK_EQ(port.active_width, 4);
	CHECK_EQ(port.active_speed, 4);
	CHECK_EQ(port.active_mtu, IBV_MTU_4096);
	CHECK_EQ(ibv_query_port(rig.end[0].context, 2, &port), EINVAL);
	rig_close(&rig);
	open_one(&rig, "apple-tb,ports=2");
	CHECK_EQ(ibv_query_port(rig.end[0].context, 1, &port), 0);
	CHECK_EQ(port.state, IBV_PORT_DOWN);
	CHECK_EQ(ibv_query_port(rig.end[0].context, 2, &port), 0);
	CHECK_EQ(port.state, IBV_PORT_ACTIVE);
	rig_close(&rig);
}

Test(apple_tb, R39_a_cut_cable_is_down_and_gives_no_domain)
{
	struct ibv_port_attr port;
	struct rig rig;

	open_one(&rig, "apple-tb,cable=down");
	CHECK_EQ(ibv_query_port(rig.end[0].context, 1, &port), 0);
	CHECK_EQ(port.state, IBV_PORT_DOWN);
	errno = 0;
	CHECK(!ibv_alloc_pd(rig.end[0].context), "alloc_pd");
	CHECK_EQ(errno, ENETDOWN);
	rig_close(&rig);
}

Test(apple_tb, R18_R25_one_sge_and_no_inline)
{
	struct ibv_qp_cap cap = small;
	struct ibv_sge sge[2] = {{.length = 8}, {.length = 8}};
	struct ibv_send_wr wr = {.sg_list = sge,
				 .num_sge = 2,
				 .opcode = IBV_WR_SEND};
	struct ibv_send_wr *bad;
	struct rig rig;

	open_one(&rig, "apple-tb");
	make_cq(&rig.end[0]);
	cap.max_send_sge = 2;
	CHECK(!create_qp(&rig.end[0], IBV_QPT_UC, cap), "two sges");
	cap = small;
	cap.max_inline_data = 8;
	CHECK(!create_qp(&rig.end[0], IBV_QPT_UC, cap), "inline");
	rig_close(&rig);
	pair(&rig, "apple-tb");
	CHECK_EQ(ibv_post_send(rig.end[0].qp, &wr, &bad), EINVAL);
	wr.num_sge = 1;
	wr.send_flags = IBV_SEND_INLINE;
	CHECK_EQ(ibv_post_send(rig.end[0].qp, &wr, &bad), EINVAL);
	rig_close(&rig);
}
