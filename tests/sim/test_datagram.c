/* SPDX-License-Identifier: MIT */
/*
 * Goal: datagrams are those of section 5.5, and Soft-RoCE's where 3.6 says
 * that they differ. Method: a UD queue pair on each host; both ends looked at.
 */
#include "tests/sim/scene.h"

#include <errno.h>
#include <stdlib.h>

#define QKEY  0x1111u
#define FLOW  0x12345
#define CLASS 0x6a
#define HOPS  64
#define GRH   40

static int to_state(struct rig_end *end, enum ibv_qp_state state, uint32_t qkey)
{
	struct ibv_qp_attr attr = {.qp_state = state,
				   .port_num = 1,
				   .qkey = qkey};

	return ibv_modify_qp(
		end->qp, &attr,
		IBV_QP_STATE |
			(state == IBV_QPS_INIT
				 ? IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY
				 : 0) |
			(state == IBV_QPS_RTS ? IBV_QP_SQ_PSN : 0));
}

/* Through the states up to this one; SQD and ERR from RTS. */
static void bring(struct rig_end *end, enum ibv_qp_state state, uint32_t qkey)
{
	for (int step = IBV_QPS_INIT; step <= IBV_QPS_RTS && step <= (int)state;
	     step++)
		CHECK_EQ(to_state(end, step, qkey), 0);
	if (state > IBV_QPS_RTS)
		CHECK_EQ(to_state(end, state, qkey), 0);
}

/* The address of end 1 by the GIDs at this index. */
static struct ibv_ah *address(struct rig *rig, uint8_t index)
{
	struct ibv_ah_attr attr = {.port_num = 1,
				   .dlid = 2,
				   .sl = 5,
				   .is_global = 1,
				   .grh = {.sgid_index = index,
					   .flow_label = FLOW,
					   .traffic_class = CLASS,
					   .hop_limit = HOPS}};
	struct ibv_ah *ah;

	CHECK_EQ(ibv_query_gid(rig->end[1].context, 1, index, &attr.grh.dgid),
		 0);
	ah = ibv_create_ah(rig->end[0].pd, &attr);
	CHECK(ah, "create_ah: errno %d", errno);
	return ah;
}

static struct ibv_ah *set_up(struct rig *rig, const char *model, uint8_t index,
			     enum ibv_qp_state state)
{
	setenv("VERBENA_QUIET", "1", 1);
	rig_open(rig, model, NULL);
	for (int i = 0; i < 2; i++)
		rig_make(&rig->end[i], IBV_QPT_UD, 8);
	bring(&rig->end[0], IBV_QPS_RTS, QKEY);
	bring(&rig->end[1], state, QKEY);
	return address(rig, index);
}

/* A datagram of `len` bytes to end 1. */
static struct ibv_send_wr datagram(struct rig *rig, struct ibv_sge *sge,
				   struct ibv_ah *ah, uint32_t len)
{
	struct ibv_send_wr wr = end_request(&rig->end[0], sge, WR_ID);

	sge->length = len;
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = rig->end[1].qp->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	return wr;
}

static struct ibv_wc send_one(struct rig *rig, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	CHECK_EQ(ibv_post_send(rig->end[0].qp, wr, &bad), 0);
	return rig_wc(&rig->end[0]);
}

static void tear_down(struct rig *rig, struct ibv_ah *ah)
{
	CHECK_EQ(ibv_destroy_ah(ah), 0);
	rig_close(rig);
}

/* 5.5, 5.1: a target that is not up, or has no receive. */
Test(datagram, a_target_that_takes_none_is_not_noticed)
{
	static const struct {
		enum ibv_qp_state state;
		bool has_recv, is_served;
	} rows[] = {
		{IBV_QPS_RESET, false, false}, {IBV_QPS_INIT, true, false},
		{IBV_QPS_RTR, true, true},     {IBV_QPS_RTS, false, false},
		{IBV_QPS_RTS, true, true},     {IBV_QPS_SQD, true, true},
		{IBV_QPS_ERR, false, false},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct ibv_send_wr wr;
		struct ibv_sge sge;
		struct ibv_ah *ah;
		struct ibv_wc wc;
		struct rig rig;

		ah = set_up(&rig, "mlx5", 1, rows[i].state);
		if (rows[i].has_recv)
			CHECK_EQ(rig_recv(&rig.end[1], 1, 0, 64), 0);
		wr = datagram(&rig, &sge, ah, 8);
		CHECK_EQ(send_one(&rig, &wr).status, IBV_WC_SUCCESS);
		int got = ibv_poll_cq(rig.end[1].cq, 1, &wc);

		CHECK(got == rows[i].is_served, "state %d: %d completions",
		      rows[i].state, got);
		CHECK_EQ(end_state(&rig.end[1]), rows[i].state);
		/* No connection, so nothing is established in RTR. */
		CHECK_EQ(end_event_type(&rig.end[1]), 0);
		tear_down(&rig, ah);
	}
}

/* 5.5: with bit 31, the sender's own key goes, whatever the rest says. */
Test(datagram, a_key_with_bit_31_is_the_senders_own)
{
	static const struct {
		uint32_t own, remote;
		bool is_served;
	} rows[] = {
		{QKEY, 0x80000000, true},
		{QKEY, 0x80002222, true},
		{0x2222, 0x80000000 | QKEY, false},
		{0x2222, QKEY, true},
		{QKEY, 0x2222, false},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct ibv_send_wr wr;
		struct ibv_sge sge;
		struct ibv_ah *ah;
		struct ibv_wc wc;
		struct rig rig;

		ah = set_up(&rig, "mlx5", 1, IBV_QPS_RTS);
		CHECK_EQ(to_state(&rig.end[0], IBV_QPS_RESET, 0), 0);
		bring(&rig.end[0], IBV_QPS_RTS, rows[i].own);
		CHECK_EQ(rig_recv(&rig.end[1], 1, 0, 64), 0);
		wr = datagram(&rig, &sge, ah, 8);
		wr.wr.ud.remote_qkey = rows[i].remote;
		CHECK_EQ(send_one(&rig, &wr).status, IBV_WC_SUCCESS);
		int got = ibv_poll_cq(rig.end[1].cq, 1, &wc);

		CHECK(got == rows[i].is_served, "own 0x%x, remote 0x%x: %d",
		      rows[i].own, rows[i].remote, got);
		tear_down(&rig, ah);
	}
}

/* 5.5: what a receive says of its sender. */
Test(datagram, a_receive_names_its_sender)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	struct ibv_ah *ah;
	struct ibv_wc wc;
	struct rig rig;

	ah = set_up(&rig, "mlx5", 1, IBV_QPS_RTS);
	CHECK_EQ(rig_recv(&rig.end[1], 1, 0, 64), 0);
	wr = datagram(&rig, &sge, ah, 8);
	wr.opcode = IBV_WR_SEND_WITH_IMM;
	wr.imm_data = 0x01020304;
	CHECK_EQ(send_one(&rig, &wr).status, IBV_WC_SUCCESS);
	wc = rig_wc(&rig.end[1]);
	CHECK_EQ(wc.byte_len, GRH + 8);
	CHECK_EQ(wc.src_qp, rig.end[0].qp->qp_num);
	CHECK_EQ(wc.slid, 1);
	CHECK_EQ(wc.sl, 5);
	CHECK_EQ(wc.pkey_index, 0);
	CHECK_EQ(wc.imm_data, 0x01020304);
	CHECK_EQ(wc.wc_flags, IBV_WC_GRH | IBV_WC_WITH_IMM);
	tear_down(&rig, ah);
}

/* 5.5: with RoCE v2 over IPv4 its header is in the last 20 of the 40 bytes. */
Test(datagram, an_ipv4_header_ends_where_the_data_begins)
{
	static const struct {
		const char *model;
		uint8_t index;
		bool is_ipv4;
		uint8_t sl; /* on a card, the kind of packet */
	} rows[] = {
		{"mlx5,link=roce", 2, false, 0}, /* v1 */
		{"mlx5,link=roce", 3, true, 0xa},
		{"mlx5,link=roce", 1, false, 0x9}, /* v2, of fe80 */
		{"rxe", 1, true, 5},		   /* a service level */
	};
	static const uint8_t loopback[4] = {127, 0, 0, 1};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct ibv_ah_attr back;
		uint8_t *memory;
		struct ibv_send_wr wr;
		struct ibv_sge sge;
		struct ibv_ah *ah;
		struct ibv_wc wc;
		struct rig rig;

		ah = set_up(&rig, rows[i].model, rows[i].index, IBV_QPS_RTS);
		memory = rig.end[1].memory;
		memcpy(rig.end[0].memory, "datagram", 8);
		CHECK_EQ(rig_recv(&rig.end[1], 1, 0, 64), 0);
		wr = datagram(&rig, &sge, ah, 8);
		CHECK_EQ(send_one(&rig, &wr).status, IBV_WC_SUCCESS);
		wc = rig_wc(&rig.end[1]);
		CHECK_EQ(wc.wc_flags, IBV_WC_GRH);
		CHECK_EQ(wc.byte_len, GRH + 8);
		CHECK_EQ(wc.sl, rows[i].sl);
		/* The way back is of the same kind. */
		CHECK_EQ(ibv_init_ah_from_wc(rig.end[1].context, 1, &wc,
					     (struct ibv_grh *)memory, &back),
			 0);
		CHECK_EQ(back.grh.sgid_index, rows[i].index);
		CHECK_EQ(back.grh.hop_limit, HOPS);
		CHECK_EQ(back.grh.traffic_class, CLASS);
		CHECK_EQ(back.grh.flow_label, rows[i].is_ipv4 ? 0 : FLOW);
		CHECK(memory[0] == (rows[i].is_ipv4 ? 0 : 0x60 | CLASS >> 4) &&
			      (memory[20] == 0x45) == rows[i].is_ipv4,
		      "%s, GID %d: 0x%02x and 0x%02x", rows[i].model,
		      rows[i].index, memory[0], memory[20]);
		if (rows[i].is_ipv4)
			CHECK(memcmp(memory + 32, loopback, 4) == 0 &&
				      memcmp(memory + 36, loopback, 4) == 0,
			      "addresses");
		CHECK(memcmp(memory + GRH, "datagram", 8) == 0, "data");
		tear_down(&rig, ah);
	}
}

/* 5.5: one packet at most; 3.6: and rxe does not say so. */
Test(datagram, a_message_over_one_packet_does_not_leave)
{
	static const struct {
		const char *model;
		uint32_t mtu;
		enum ibv_wc_status status;
	} rows[] = {
		{"mlx5", 4096, IBV_WC_LOC_LEN_ERR},
		{"mlx5,link=roce", 1024, IBV_WC_LOC_LEN_ERR},
		{"rxe", 1024, IBV_WC_SUCCESS},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct ibv_send_wr wr;
		struct ibv_sge sge;
		struct ibv_ah *ah;
		struct rig rig;

		ah = set_up(&rig, rows[i].model, 1, IBV_QPS_RTS);
		for (int n = 0; n < 2; n++)
			CHECK_EQ(rig_recv(&rig.end[1], n, 0, 8192), 0);
		wr = datagram(&rig, &sge, ah, rows[i].mtu);
		CHECK_EQ(send_one(&rig, &wr).status, IBV_WC_SUCCESS);
		CHECK_EQ(rig_wc(&rig.end[1]).byte_len, GRH + rows[i].mtu);
		wr = datagram(&rig, &sge, ah, rows[i].mtu + 1);
		CHECK_EQ(send_one(&rig, &wr).status, rows[i].status);
		CHECK_EQ(end_state(&rig.end[0]),
			 rows[i].status ? IBV_QPS_ERR : IBV_QPS_RTS);
		rig_no_wc(&rig.end[1]);
		CHECK_EQ(end_state(&rig.end[1]), IBV_QPS_RTS);
		tear_down(&rig, ah);
	}
}

/* 2.8, 5.3: no other opcodes; 5.6: nor another's key. 5.1: to ERR. */
Test(datagram, local_mistakes_are_the_senders_alone)
{
	static const struct {
		enum ibv_wr_opcode opcode;
		uint32_t lkey_flip;
		enum ibv_wc_status status;
	} rows[] = {
		{IBV_WR_RDMA_WRITE, 0, IBV_WC_LOC_QP_OP_ERR},
		{IBV_WR_RDMA_WRITE_WITH_IMM, 0, IBV_WC_LOC_QP_OP_ERR},
		{IBV_WR_RDMA_READ, 0, IBV_WC_LOC_QP_OP_ERR},
		{IBV_WR_ATOMIC_CMP_AND_SWP, 0, IBV_WC_LOC_QP_OP_ERR},
		{IBV_WR_ATOMIC_FETCH_AND_ADD, 0, IBV_WC_LOC_QP_OP_ERR},
		{IBV_WR_SEND, 1, IBV_WC_LOC_PROT_ERR},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct ibv_send_wr wr;
		struct ibv_sge sge;
		struct ibv_ah *ah;
		struct rig rig;

		ah = set_up(&rig, "mlx5", 1, IBV_QPS_RTS);
		CHECK_EQ(rig_recv(&rig.end[1], 1, 0, 64), 0);
		wr = datagram(&rig, &sge, ah, 8);
		wr.opcode = rows[i].opcode;
		sge.lkey ^= rows[i].lkey_flip;
		CHECK_EQ(send_one(&rig, &wr).status, rows[i].status);
		CHECK_EQ(end_state(&rig.end[0]), IBV_QPS_ERR);
		rig_no_wc(&rig.end[1]);
		CHECK_EQ(end_state(&rig.end[1]), IBV_QPS_RTS);
		tear_down(&rig, ah);
	}
}
