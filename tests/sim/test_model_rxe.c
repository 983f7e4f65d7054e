/* SPDX-License-Identifier: MIT */
/*
 * Goal: `rxe` differs from a card where section 3.6 says so, and only there.
 * Method: the mistakes of that table on a connected pair; both ends looked at.
 */
#include "tests/rig.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "tests/harness.h"

static void pair(struct rig *rig, enum ibv_qp_type type)
{
	setenv("VERBENA_QUIET", "1", 1);
	rig_pair(rig, "rxe", NULL, type);
}

static bool has_event(const struct rig_end *end)
{
	struct pollfd fd = {.fd = end->context->async_fd, .events = POLLIN};

	return poll(&fd, 1, 0) == 1;
}

Test(rxe, attributes_are_those_of_2_2_and_2_4)
{
	struct ibv_device_attr device;
	struct ibv_gid_entry gid;
	struct ibv_port_attr port;
	struct rig rig;

	pair(&rig, IBV_QPT_RC);
	CHECK_EQ(ibv_query_device(rig.end[0].context, &device), 0);
	CHECK_EQ(device.vendor_id, 0xffffff);
	CHECK_EQ(device.max_sge, 32);
	CHECK_EQ(device.max_cqe, 32767);
	CHECK_EQ(ibv_query_port(rig.end[0].context, 1, &port), 0);
	CHECK_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	CHECK_EQ(port.lid, 0);
	CHECK_EQ(port.active_mtu, IBV_MTU_1024);
	CHECK_EQ(port.max_msg_sz, 0x800000);
	CHECK_EQ(ibv_query_gid_ex(rig.end[0].context, 1, 1, &gid, 0), 0);
	CHECK_EQ(gid.gid_type, IBV_GID_TYPE_ROCE_V2);
	CHECK_EQ(gid.gid.raw[12], 127);
	rig_close(&rig);
}

/* 2.7, 2.9, 3.1, 3.6. */
Test(rxe, refuses_what_it_lacks)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
				   .path_mtu = IBV_MTU_1024,
				   .ah_attr = {.port_num = 1}},
			   reset = {0};
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_XRC_SEND,
					.cap = {10, 10, 2, 1, 0}};
	struct ibv_ah_attr flat = {.port_num = 1, .dlid = 1};
	struct ibv_qp *qp;
	struct rig rig;

	pair(&rig, IBV_QPT_RC);
	init.send_cq = init.recv_cq = rig.end[0].cq;
	CHECK(!ibv_create_qp(rig.end[0].pd, &init) && errno == EOPNOTSUPP,
	      "XRC: errno %d", errno);
	init.qp_type = (enum ibv_qp_type)7; /* unknown to the core */
	CHECK(!ibv_create_qp(rig.end[0].pd, &init) && errno == EINVAL,
	      "type 7: errno %d", errno);
	init.qp_type = IBV_QPT_RC;
	init.cap.max_inline_data = 513;
	CHECK(!ibv_create_qp(rig.end[0].pd, &init) && errno == EINVAL,
	      "inline: errno %d", errno);
	init.cap.max_inline_data = 0;
	qp = ibv_create_qp(rig.end[0].pd, &init);
	CHECK(qp, "create_qp: errno %d", errno);
	CHECK_EQ(init.cap.max_send_wr, 15);
	CHECK_EQ(init.cap.max_inline_data, 32);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	CHECK(!ibv_create_ah(rig.end[0].pd, &flat) && errno == EINVAL,
	      "address without GRH: errno %d", errno);
	reset.qp_state = IBV_QPS_RESET;
	CHECK_EQ(ibv_modify_qp(rig.end[0].qp, &reset, IBV_QP_STATE), 0);
	CHECK_EQ(rig_modify(&rig.end[0], &rig.end[1], IBV_QPS_INIT), 0);
	CHECK_EQ(ibv_modify_qp(rig.end[0].qp, &attr,
			       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				       IBV_QP_MAX_DEST_RD_ATOMIC |
				       IBV_QP_MIN_RNR_TIMER),
		 EINVAL);
	CHECK_EQ(ibv_rereg_mr(rig.end[1].mr, IBV_REREG_MR_CHANGE_TRANSLATION,
			      NULL, rig.end[1].memory, 64, 0),
		 IBV_REREG_MR_ERR_CMD);
	rig_close(&rig);
}

/* A short receive, and one whose key is wrong: RC. */
Test(rxe, blames_the_responder_in_its_own_words)
{
	static const struct {
		uint32_t lkey_flip, recv_len;
		enum ibv_wc_status responder, requester;
	} rows[] = {
		{0, 4, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_INV_REQ_ERR},
		{1, 64, IBV_WC_LOC_QP_OP_ERR, IBV_WC_REM_OP_ERR},
	};

	for (int i = 0; i < 2; i++) {
		struct rig rig;
		struct ibv_sge sge;
		struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
		struct ibv_wc wc;

		pair(&rig, IBV_QPT_RC);
		sge = (struct ibv_sge){(uintptr_t)rig.end[1].memory,
				       rows[i].recv_len,
				       rig.end[1].mr->lkey ^ rows[i].lkey_flip};
		CHECK_EQ(ibv_post_recv(rig.end[1].qp, &wr, &bad), 0);
		CHECK_EQ(rig_send(&rig.end[0], 5, 0, 64), 0);
		CHECK_EQ(rig_wc(&rig.end[1]).status, rows[i].responder);
		wc = rig_wc(&rig.end[0]);
		CHECK_EQ(wc.status, rows[i].requester);
		CHECK_EQ(wc.wr_id, 5);
		CHECK_EQ(wc.vendor_err, 0);
		CHECK_EQ(wc.opcode, IBV_WC_SEND);
		CHECK(!has_event(&rig.end[0]) && !has_event(&rig.end[1]),
		      "an event");
		rig_close(&rig);
	}
}

Test(rxe, every_receive_says_grh)
{
	struct rig rig;

	pair(&rig, IBV_QPT_RC);
	CHECK_EQ(rig_recv(&rig.end[1], 1, 0, 64), 0);
	CHECK_EQ(rig_send(&rig.end[0], 2, 0, 64), 0);
	CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_SUCCESS);
	CHECK_EQ(rig_wc(&rig.end[1]).wc_flags, IBV_WC_GRH);
	rig_close(&rig);
}

Test(rxe, a_long_uc_message_is_lost_in_silence)
{
	struct rig rig;

	pair(&rig, IBV_QPT_UC);
	CHECK_EQ(rig_recv(&rig.end[1], 1, 0, 4), 0);
	CHECK_EQ(rig_send(&rig.end[0], 2, 0, 64), 0);
	CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_SUCCESS);
	rig_no_wc(&rig.end[1]);
	rig_close(&rig);
}

Test(rxe, an_unaligned_atomic_is_refused_at_post)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				 .num_sge = 1},
			   *bad = NULL;
	struct ibv_sge sge;
	struct rig rig;

	pair(&rig, IBV_QPT_RC);
	sge = (struct ibv_sge){(uintptr_t)rig.end[0].memory, 8,
			       rig.end[0].mr->lkey};
	wr.sg_list = &sge;
	wr.wr.atomic.remote_addr = (uintptr_t)rig.end[1].memory + 4;
	wr.wr.atomic.rkey = rig.end[1].mr->rkey;
	CHECK_EQ(ibv_post_send(rig.end[0].qp, &wr, &bad), EINVAL);
	CHECK(bad == &wr, "bad_wr");
	rig_no_wc(&rig.end[0]);
	rig_close(&rig);
}
