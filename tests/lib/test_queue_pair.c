/* SPDX-License-Identifier: MIT */
/*
 * Goal: queue pairs are made, connected and closed as sections 2.2 and 2.3 of
 * spec/registry.md say. Method: a scripted host that logs its calls.
 */
#include "tests/harness.h"
#include "tests/lib/fake.h"

static void check_step(int n, enum ibv_qp_state state, int mask)
{
	CHECK_EQ(fake.step[n].attr.qp_state, state);
	CHECK_EQ(fake.step[n].mask, mask);
}

/* --- RC --- */

Test(qp, rc_is_made_with_queues_of_its_own_and_closed_before_them)
{
	struct fake_bed bed = fake_bed("mlx");
	struct vb_qp *qp = fake_qp(&bed, VB_QP_RC);

	CHECK_LOG("create_cq:512 create_cq:256 create_qp ");
	CHECK_EQ(fake.init.qp_type, IBV_QPT_RC);
	CHECK(fake.init.send_cq == vb_qp_send_cq(qp), "another queue");
	CHECK(fake.init.recv_cq == vb_qp_recv_cq(qp), "another queue");
	CHECK(fake.init.send_cq != fake.init.recv_cq, "one queue");
	CHECK(!fake.init.srq && !fake.init.sq_sig_all, "more than asked");
	CHECK_EQ(fake.init.cap.max_send_wr, 512);
	CHECK_EQ(fake.init.cap.max_recv_wr, 256);
	CHECK_EQ(fake.init.cap.max_send_sge, 4);
	CHECK_EQ(fake.init.cap.max_recv_sge, 3);
	CHECK_EQ(fake.init.cap.max_inline_data, 0);
	CHECK_EQ(vb_qp_handle(qp)->qp_num, 0x1a);
	fake.log[0] = 0;
	CHECK_EQ(vb_qp_connect(qp, &fake_peer), 0);
	CHECK_LOG("modify_qp:INIT modify_qp:RTR modify_qp:RTS ");
	CHECK(!vb_qp_ah(qp), "an address handle");
	fake.log[0] = 0;
	CHECK_EQ(vb_qp_close(qp), 0);
	CHECK_LOG("destroy_qp destroy_cq destroy_cq ");
	CHECK_EQ(fake.live, 0);
	fake_bed_close(&bed);
}

Test(qp, rc_steps_have_their_masks_and_values)
{
	struct fake_bed bed = fake_bed("mlx");
	struct vb_qp *qp = fake_qp(&bed, VB_QP_RC);
	struct ibv_qp_attr *attr;

	CHECK_EQ(vb_qp_connect(qp, &fake_peer), 0);
	CHECK_EQ(fake.steps, 3);
	check_step(0, IBV_QPS_INIT,
		   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			   IBV_QP_ACCESS_FLAGS);
	CHECK_EQ(fake.step[0].attr.port_num, 1);
	CHECK_EQ(fake.step[0].attr.pkey_index, 0);
	CHECK_EQ(fake.step[0].attr.qp_access_flags,
		 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
			 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	check_step(1, IBV_QPS_RTR,
		   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	attr = &fake.step[1].attr;
	CHECK_EQ(attr->ah_attr.is_global, 1);
	CHECK_EQ(attr->ah_attr.dlid, 7);
	CHECK_EQ(attr->ah_attr.port_num, 1);
	CHECK_EQ(attr->ah_attr.grh.hop_limit, 255);
	CHECK_EQ(attr->ah_attr.grh.sgid_index, 3);
	CHECK_EQ(memcmp(attr->ah_attr.grh.dgid.raw, fake_peer.gid, 16), 0);
	CHECK_EQ(attr->ah_attr.grh.flow_label, 0);
	CHECK_EQ(attr->ah_attr.grh.traffic_class, 0);
	CHECK_EQ(attr->path_mtu, IBV_MTU_1024); /* the port's, not 4096 */
	CHECK_EQ(attr->dest_qp_num, 0x2b);
	CHECK_EQ(attr->rq_psn, 0x123456);
	CHECK_EQ(attr->max_dest_rd_atomic, 8);
	CHECK_EQ(attr->min_rnr_timer, 12);
	check_step(2, IBV_QPS_RTS,
		   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			   IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			   IBV_QP_MAX_QP_RD_ATOMIC);
	attr = &fake.step[2].attr;
	CHECK_EQ(attr->timeout, 14);
	CHECK_EQ(attr->retry_cnt, 6);
	CHECK_EQ(attr->rnr_retry, 5);
	CHECK_EQ(attr->sq_psn, 0xabcdef);
	CHECK_EQ(attr->max_rd_atomic, 9);
	CHECK_EQ(vb_qp_close(qp), 0);
	fake_bed_close(&bed);
}

Test(qp, a_peer_without_gid_is_reached_by_its_lid)
{
	struct vb_endpoint near = {.qpn = 1, .lid = 9};
	struct vb_config config = fake_config();
	struct ibv_ah_attr *ah;
	struct fake_bed bed;
	struct vb_qp *qp;

	fake_add_three();
	config.path_mtu = IBV_MTU_512; /* less than the port's: kept */
	fake_bed_open(&bed, "mlx", &config);
	qp = fake_qp(&bed, VB_QP_RC);
	CHECK_EQ(vb_qp_connect(qp, &near), 0);
	ah = &fake.step[1].attr.ah_attr;
	CHECK_EQ(ah->is_global, 0);
	CHECK_EQ(ah->dlid, 9);
	CHECK_EQ(ah->grh.hop_limit, 0);
	CHECK_EQ(fake.step[1].attr.path_mtu, IBV_MTU_512);
	CHECK_EQ(vb_qp_close(qp), 0);
	fake_bed_close(&bed);
}

Test(qp, an_endpoint_is_number_psn_lid_and_the_chosen_gid)
{
	struct fake_bed bed = fake_bed("mlx");
	struct vb_qp *qp = fake_qp(&bed, VB_QP_RC);
	struct vb_endpoint here;

	memset(&here, 0xee, sizeof(here));
	CHECK_EQ(vb_qp_endpoint(qp, &here), 0);
	CHECK_EQ(here.qpn, 0x1a);
	CHECK_EQ(here.psn, 0xabcdef);
	CHECK_EQ(here.lid, 0);
	CHECK(here.has_gid, "no GID");
	CHECK_EQ(memcmp(here.gid, fake.device[0].port[0].gid[3].raw, 16), 0);
	CHECK_EQ(vb_qp_close(qp), 0);
	fake_bed_close(&bed);
}

Test(qp, on_infiniband_a_lid_will_do)
{
	struct vb_endpoint here;
	struct vb_qp *qp;
	struct fake_bed bed;

	fake_add_three();
	memset(fake.device[0].port[0].gid, 0, sizeof(struct fake_gid));
	fake.device[0].port[0].attr.link_layer = IBV_LINK_LAYER_INFINIBAND;
	fake.device[0].port[0].attr.lid = 2;
	fake_bed_open(&bed, "mlx", NULL);
	qp = fake_qp(&bed, VB_QP_RC);
	CHECK_EQ(vb_qp_endpoint(qp, &here), 0);
	CHECK(!here.has_gid, "a GID");
	CHECK_EQ(here.lid, 2);
	CHECK_EQ(vb_qp_close(qp), 0);
	fake_bed_close(&bed);
}

/* --- UC --- */

Test(qp, uc_is_as_rc_without_what_is_rcs)
{
	struct fake_bed bed = fake_bed("apple");
	struct vb_qp *qp = fake_qp(&bed, VB_QP_UC);

	CHECK_EQ(fake.init.qp_type, IBV_QPT_UC);
	CHECK_EQ(vb_qp_connect(qp, &fake_peer), 0);
	CHECK_LOG("create_cq:512 create_cq:256 create_qp "
		  "modify_qp:INIT modify_qp:RTR modify_qp:RTS ");
	check_step(0, IBV_QPS_INIT,
		   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			   IBV_QP_ACCESS_FLAGS);
	CHECK_EQ(fake.step[0].attr.qp_access_flags,
		 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	check_step(1, IBV_QPS_RTR,
		   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN);
	CHECK_EQ(fake.step[1].attr.ah_attr.grh.sgid_index, 0);
	CHECK_EQ(fake.step[1].attr.ah_attr.grh.hop_limit, 255);
	CHECK_EQ(fake.step[1].attr.max_dest_rd_atomic, 0);
	check_step(2, IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_SQ_PSN);
	CHECK_EQ(fake.step[2].attr.sq_psn, 0xabcdef);
	CHECK_EQ(fake.step[2].attr.timeout, 0);
	CHECK_EQ(vb_qp_close(qp), 0);
	fake_bed_close(&bed);
}

/* --- SRD --- */

Test(qp, srd_is_made_by_efadv_with_one_sge_and_its_operations)
{
	struct fake_bed bed = fake_bed("efa");
	struct vb_qp *qp = fake_qp(&bed, VB_QP_SRD);
	struct ibv_qp_init_attr_ex *ex = &fake.init_ex;

	CHECK_LOG("efadv:efa_0 create_cq:512 create_cq:256 "
		  "efadv_create_qp_ex ");
	CHECK_EQ(ex->qp_type, IBV_QPT_DRIVER);
	CHECK_EQ(fake.init_efa.driver_qp_type, EFADV_QP_DRIVER_TYPE_SRD);
	CHECK_EQ(fake.init_efa.comp_mask, 0);
	CHECK_EQ(ex->comp_mask,
		 IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
	CHECK_EQ(ex->send_ops_flags, IBV_QP_EX_WITH_RDMA_WRITE |
					     IBV_QP_EX_WITH_RDMA_READ |
					     IBV_QP_EX_WITH_SEND);
	CHECK(ex->pd == vb_domain_pd(bed.domain), "another domain");
	CHECK(ex->send_cq == vb_qp_send_cq(qp), "another queue");
	CHECK(ex->recv_cq == vb_qp_recv_cq(qp), "another queue");
	CHECK(!ex->srq && !ex->sq_sig_all && !ex->create_flags, "more");
	CHECK_EQ(ex->cap.max_send_wr, 512);
	CHECK_EQ(ex->cap.max_recv_wr, 256);
	CHECK_EQ(ex->cap.max_send_sge, 1); /* 4 and 3 were configured */
	CHECK_EQ(ex->cap.max_recv_sge, 1);
	CHECK_EQ(ex->cap.max_inline_data, 0);
	CHECK_EQ(vb_qp_close(qp), 0);
	fake_bed_close(&bed);
}

Test(qp, srd_makes_its_address_handle_before_any_transition)
{
	struct fake_bed bed = fake_bed("efa");
	struct vb_qp *qp = fake_qp(&bed, VB_QP_SRD);

	CHECK(!vb_qp_ah(qp), "an address handle");
	fake.log[0] = 0;
	CHECK_EQ(vb_qp_connect(qp, &fake_peer), 0);
	CHECK(vb_qp_ah(qp), "no address handle");
	CHECK_LOG("create_ah modify_qp:INIT modify_qp:RTR modify_qp:RTS ");
	CHECK_EQ(fake.ah.port_num, 1);
	CHECK_EQ(fake.ah.is_global, 1);
	CHECK_EQ(memcmp(fake.ah.grh.dgid.raw, fake_peer.gid, 16), 0);
	CHECK_EQ(fake.ah.grh.sgid_index, 0);
	CHECK_EQ(fake.ah.grh.hop_limit | fake.ah.grh.flow_label |
			 fake.ah.grh.traffic_class | fake.ah.dlid | fake.ah.sl |
			 fake.ah.src_path_bits | fake.ah.static_rate,
		 0);
	fake.log[0] = 0;
	CHECK_EQ(vb_qp_close(qp), 0);
	CHECK_LOG("destroy_qp destroy_ah destroy_cq destroy_cq ");
	CHECK_EQ(fake.live, 0);
	fake_bed_close(&bed);
}

Test(qp, srd_steps_have_nothing_but_what_its_kernel_takes)
{
	struct fake_bed bed = fake_bed("efa");
	struct vb_qp *qp = fake_qp(&bed, VB_QP_SRD);

	CHECK_EQ(vb_qp_connect(qp, &fake_peer), 0);
	check_step(0, IBV_QPS_INIT,
		   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			   IBV_QP_QKEY);
	CHECK_EQ(fake.step[0].attr.port_num, 1);
	CHECK_EQ(fake.step[0].attr.pkey_index, 0);
	CHECK_EQ(fake.step[0].attr.qkey, 0x4242);
	check_step(1, IBV_QPS_RTR, IBV_QP_STATE);
	check_step(2, IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_SQ_PSN);
	CHECK_EQ(fake.step[2].attr.sq_psn, 0xabcdef);
	CHECK_EQ(fake.step[2].attr.dest_qp_num, 0);
	CHECK_EQ(fake.step[2].attr.qp_access_flags, 0);
	CHECK_EQ(vb_qp_close(qp), 0);
	fake_bed_close(&bed);
}

Test(qp, srd_goes_from_the_gid_at_0_whatever_the_link_layer)
{
	struct vb_endpoint here;
	struct vb_qp *qp;
	struct fake_bed bed;

	fake_add_three();
	fake.device[1].port[0].attr.link_layer = IBV_LINK_LAYER_ETHERNET;
	fake_add_gid(&fake.device[1], 3, IBV_GID_TYPE_ROCE_V2, 0x20);
	fake_bed_open(&bed, "efa", NULL);
	qp = fake_qp(&bed, VB_QP_SRD);
	CHECK_EQ(vb_qp_endpoint(qp, &here), 0);
	CHECK_EQ(memcmp(here.gid, fake.device[1].port[0].gid[0].raw, 16), 0);
	CHECK_EQ(vb_qp_close(qp), 0);
	fake_bed_close(&bed);
}

/* --- who keeps whom --- */

Test(qp, given_queues_are_used_and_stay_the_callers)
{
	static struct ibv_cq cq;
	struct vb_config config = fake_config();
	struct vb_qp *qp;
	struct fake_bed bed;

	fake_add_three();
	config.max_send_wr = 65536; /* of the caller's, its own business */
	fake_bed_open(&bed, "mlx", &config);
	CHECK_EQ(vb_qp_create(bed.domain, VB_QP_RC, &cq, &cq, &qp), 0);
	CHECK(fake.init.send_cq == &cq && fake.init.recv_cq == &cq, "others");
	CHECK_EQ(vb_qp_close(qp), 0);
	CHECK_LOG("create_qp destroy_qp ");
	fake.log[0] = 0;
	CHECK_EQ(vb_qp_create(bed.domain, VB_QP_RC, &cq, NULL, &qp), 0);
	CHECK(vb_qp_send_cq(qp) == &cq, "another");
	CHECK(vb_qp_recv_cq(qp) != &cq, "the same");
	CHECK_EQ(vb_qp_close(qp), 0);
	CHECK_LOG("create_cq:256 create_qp destroy_qp destroy_cq ");
	fake_bed_close(&bed);
}

Test(qp, D9_a_queue_pair_keeps_domain_and_context_and_is_reported)
{
	struct fake_bed bed = fake_bed("efa");
	struct vb_qp *qp = fake_qp(&bed, VB_QP_SRD);

	CHECK_EQ(vb_device_close(bed.device), 0);
	vb_registry_destroy(bed.registry);
	CHECK_HAS(fake.lines, "efa_0 is closed with 0 regions and 1 queue "
			      "pairs left in domain 'd'");
	CHECK_EQ(vb_qp_connect(qp, &fake_peer), 0);
	fake.log[0] = 0;
	CHECK_EQ(vb_qp_close(qp), 0);
	CHECK_LOG("destroy_qp destroy_ah destroy_cq destroy_cq "
		  "dealloc_pd:efa_0 close:efa_0 ");
}
