/* SPDX-License-Identifier: MIT */
/*
 * Goal: `mlx5` is the card that its knobs name, with what only such a card has:
 * raw packets, work queues, enhanced connections; and what a context, a domain,
 * a region or device memory is imported as. Method: the attributes and the
 * refusals, through verbs.
 */
#include "tests/rig.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/harness.h"

static void open_as(struct rig *rig, const char *model)
{
	setenv("VERBENA_QUIET", "1", 1);
	rig_open(rig, model, NULL);
	rig_make(&rig->end[0], IBV_QPT_RC, 8);
	rig_make(&rig->end[1], IBV_QPT_RC, 8);
}

static struct ibv_gid_entry gid_at(struct rig *rig, uint32_t index)
{
	struct ibv_gid_entry gid;

	CHECK_EQ(ibv_query_gid_ex(rig->end[0].context, 1, index, &gid, 0), 0);
	return gid;
}

/* 2.4, 2.5. */
Test(mlx5, on_ethernet_gids_come_in_pairs_and_the_port_says_so)
{
	struct ibv_gid_entry gid, table[20];
	struct ibv_port_attr port;
	union ibv_gid raw;
	struct rig rig;

	open_as(&rig, "mlx5,link=roce,loopbacks=1");
	CHECK_EQ(ibv_query_port(rig.end[0].context, 1, &port), 0);
	CHECK_EQ(port.state, IBV_PORT_ACTIVE);
	CHECK_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
	CHECK_EQ(port.lid, 0);
	CHECK_EQ(port.active_mtu, IBV_MTU_1024);
	CHECK_EQ(port.gid_tbl_len, 256);
	CHECK_EQ(port.port_cap_flags, 0x04010000);
	CHECK_EQ(port.flags & IBV_QPF_GRH_REQUIRED, 0);
	for (uint32_t i = 0; i < 4; i++) {
		gid = gid_at(&rig, i);
		CHECK_EQ(gid.gid_type,
			 i % 2 ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1);
		CHECK_EQ(gid.gid.raw[0], i < 2 ? 0xfe : 0);
		CHECK_EQ(gid.gid.raw[12], i < 2 ? gid.gid.raw[12] : 127);
	}
	CHECK_EQ(ibv_query_gid_ex(rig.end[0].context, 1, 4, &gid, 0), ENODATA);
	CHECK_EQ(ibv_query_gid(rig.end[0].context, 1, 255, &raw), 0);
	CHECK_EQ(raw.global.interface_id, 0);
	CHECK_EQ(ibv_query_gid(rig.end[0].context, 1, 256, &raw), -1);
	CHECK_EQ(ibv_query_gid_table(rig.end[0].context, table, 20, 0), 4);
	rig_close(&rig);
}

Test(mlx5, on_infiniband_the_ports_own_gid_is_first)
{
	struct ibv_gid_entry gid;
	struct ibv_port_attr port;
	struct rig rig;

	open_as(&rig, "mlx5,loopbacks=0");
	CHECK_EQ(ibv_query_port(rig.end[0].context, 1, &port), 0);
	CHECK_EQ(port.link_layer, IBV_LINK_LAYER_INFINIBAND);
	CHECK_EQ(port.active_mtu, IBV_MTU_4096);
	CHECK_EQ(port.gid_tbl_len, 8);
	gid = gid_at(&rig, 0);
	CHECK_EQ(gid.gid_type, IBV_GID_TYPE_IB);
	CHECK_EQ(gid.gid.global.interface_id,
		 ibv_get_device_guid(rig.end[0].context->device));
	CHECK_EQ(ibv_query_gid_ex(rig.end[0].context, 1, 1, &gid, 0), ENODATA);
	rig_close(&rig);
}

/* 2.1, 2.2, 2.3. */
Test(mlx5, each_generation_has_its_numbers)
{
	static const struct {
		const char *model, *fw;
		uint32_t part;
		int max_qp, speed;
		uint64_t clock;
	} rows[] = {
		{"mlx5", "16.", 4119, 262144, 32, 156250},
		{"mlx5,gen=cx6", "20.", 4123, 262144, 64, 156250},
		{"mlx5,gen=cx7,mtu=2048", "28.", 4129, 131072, 128, 1000000},
	};

	for (int i = 0; i < 3; i++) {
		struct ibv_device_attr_ex attr;
		struct ibv_port_attr port;
		struct rig rig;

		open_as(&rig, rows[i].model);
		CHECK_EQ(ibv_query_device_ex(rig.end[0].context, NULL, &attr),
			 0);
		CHECK_HAS(attr.orig_attr.fw_ver, rows[i].fw);
		CHECK_EQ(attr.orig_attr.vendor_part_id, rows[i].part);
		CHECK_EQ(attr.orig_attr.max_qp, rows[i].max_qp);
		CHECK_EQ(attr.orig_attr.max_res_rd_atom, 16 * rows[i].max_qp);
		CHECK_EQ(attr.hca_core_clock, rows[i].clock);
		CHECK_EQ(ibv_query_port(rig.end[0].context, 1, &port), 0);
		CHECK_EQ(port.active_speed, rows[i].speed);
		CHECK_EQ(port.active_mtu, i < 2 ? IBV_MTU_4096 : IBV_MTU_2048);
		rig_close(&rig);
	}
}

/* May this process send raw packets? And not from here on, if `drop`. */
static bool may_raw(bool drop)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3,
						  0};
	struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3];
	bool may;

	CHECK_EQ(syscall(SYS_capget, &header, caps), 0);
	may = caps[0].effective >> CAP_NET_RAW & 1;
	caps[0].effective &= ~(1u << CAP_NET_RAW);
	if (drop)
		CHECK_EQ(syscall(SYS_capset, &header, caps), 0);
	return may;
}

/* 2.7, 3.1, 3.2. */
Test(mlx5, raw_packets_need_ethernet_and_the_right_to_forge)
{
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1},
			   rtr = {.qp_state = IBV_QPS_RTR},
			   rts = {.qp_state = IBV_QPS_RTS};
	struct rig rig;
	struct rig_end *end = &rig.end[0];

	if (!may_raw(false))
		SKIP("needs CAP_NET_RAW");
	open_as(&rig, "mlx5");
	struct ibv_qp_init_attr attr = {.send_cq = end->cq,
					.recv_cq = end->cq,
					.cap = {4, 4, 1, 1, 0},
					.qp_type = IBV_QPT_RAW_PACKET};
	CHECK(!ibv_create_qp(end->pd, &attr) && errno == EOPNOTSUPP,
	      "on InfiniBand: errno %d", errno);
	rig_close(&rig);
	open_as(&rig, "mlx5,link=roce");
	attr.send_cq = attr.recv_cq = end->cq;
	CHECK_EQ(ibv_destroy_qp(end->qp), 0);
	end->qp = ibv_create_qp(end->pd, &attr);
	CHECK(end->qp, "raw packet: errno %d", errno);
	CHECK_EQ(ibv_modify_qp(end->qp, &init, IBV_QP_STATE), EINVAL);
	CHECK_EQ(ibv_modify_qp(end->qp, &init, IBV_QP_STATE | IBV_QP_PORT), 0);
	CHECK_EQ(ibv_modify_qp(end->qp, &rtr, IBV_QP_STATE), 0);
	CHECK_EQ(ibv_modify_qp(end->qp, &rts, IBV_QP_STATE), 0);
	/* No rule of anybody's steers it: it leaves, and that is all. */
	CHECK_EQ(rig_recv(end, 1, 0, 2048), 0);
	CHECK_EQ(rig_send(end, 2, 0, 1514), 0);
	CHECK_EQ(rig_wc(end).wr_id, 2);
	rig_no_wc(end);
	may_raw(true);
	CHECK(!ibv_create_qp(end->pd, &attr) && errno == EPERM, "errno %d",
	      errno);
	rig_close(&rig);
}

/* 3.1: bit 31. */
Test(mlx5, a_privileged_qkey_is_refused_without_the_right)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = 1,
				   .qkey = 0x80000001};
	const int mask =
		IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_QKEY;
	struct rig rig;

	setenv("VERBENA_QUIET", "1", 1);
	rig_open(&rig, "mlx5", NULL);
	rig_make(&rig.end[0], IBV_QPT_UD, 4);
	rig_make(&rig.end[1], IBV_QPT_UD, 4);
	if (may_raw(false))
		CHECK_EQ(ibv_modify_qp(rig.end[0].qp, &attr, mask), 0);
	may_raw(true);
	CHECK_EQ(ibv_modify_qp(rig.end[1].qp, &attr, mask), EPERM);
	attr.qkey = 1;
	CHECK_EQ(ibv_modify_qp(rig.end[1].qp, &attr, mask), 0);
	rig_close(&rig);
}

Test(mlx5, a_work_queue_holds_receives_and_flushes_them)
{
	struct rig rig;
	struct rig_end *end = &rig.end[0];
	struct ibv_rwq_ind_table_init_attr table_attr = {.log_ind_tbl_size = 1};
	struct ibv_rwq_ind_table *table;
	struct ibv_wq_attr state = {.attr_mask = IBV_WQ_ATTR_STATE,
				    .wq_state = IBV_WQS_RDY};
	struct ibv_recv_wr wr = {.wr_id = 9}, *bad;
	struct ibv_wq *wq, *both[2];
	struct ibv_wc wc;

	if (!may_raw(false))
		SKIP("needs CAP_NET_RAW");
	open_as(&rig, "mlx5,link=roce");
	struct ibv_wq_init_attr attr = {.wq_type = IBV_WQT_RQ,
					.max_wr = 5,
					.max_sge = 1,
					.pd = end->pd,
					.cq = end->cq};
	wq = ibv_create_wq(end->context, &attr);
	CHECK(wq, "create_wq: errno %d", errno);
	CHECK_EQ(attr.max_wr, 8);
	CHECK_EQ(ibv_post_wq_recv(wq, &wr, &bad), EINVAL);
	CHECK_EQ(ibv_modify_wq(wq, &state), 0);
	CHECK_EQ(ibv_post_wq_recv(wq, &wr, &bad), 0);
	both[0] = both[1] = wq;
	table_attr.ind_tbl = both;
	table = ibv_create_rwq_ind_table(end->context, &table_attr);
	CHECK(table, "create_rwq_ind_table: errno %d", errno);
	CHECK_EQ(ibv_destroy_wq(wq), EBUSY);
	rig_no_wc(end);
	state.wq_state = IBV_WQS_ERR;
	CHECK_EQ(ibv_modify_wq(wq, &state), 0);
	wc = rig_wc(end);
	CHECK_EQ(wc.wr_id, 9);
	CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
	CHECK_EQ(wc.qp_num, wq->wq_num);
	CHECK_EQ(ibv_destroy_rwq_ind_table(table), 0);
	CHECK_EQ(ibv_destroy_wq(wq), 0);
	rig_close(&rig);
	open_as(&rig, "mlx5");
	CHECK(!ibv_create_wq(end->context, &attr) && errno == EOPNOTSUPP,
	      "on InfiniBand: errno %d", errno);
	rig_close(&rig);
}

/* 3.5. */
Test(mlx5, enhanced_connections_are_set_before_rtr)
{
	struct ibv_ece ece = {.vendor_id = 0x15b3, .options = 0x10};
	struct rig rig;

	open_as(&rig, "mlx5");
	CHECK_EQ(ibv_set_ece(rig.end[0].qp, &ece), 0);
	ece.options = 0;
	CHECK_EQ(ibv_query_ece(rig.end[0].qp, &ece), 0);
	CHECK_EQ(ece.options, 0x10);
	CHECK_EQ(ece.vendor_id, 0x15b3);
	ece.vendor_id = 0;
	CHECK_EQ(ibv_set_ece(rig.end[0].qp, &ece), EOPNOTSUPP);
	ece.vendor_id = 0x1d0f;
	CHECK_EQ(ibv_set_ece(rig.end[0].qp, &ece), EINVAL);
	rig_connect(&rig, IBV_QPS_RTS);
	ece.vendor_id = 0x15b3;
	CHECK_EQ(ibv_set_ece(rig.end[0].qp, &ece), EINVAL);
	rig_close(&rig);
	open_as(&rig, "rxe");
	CHECK_EQ(ibv_query_ece(rig.end[0].qp, &ece), EOPNOTSUPP);
	rig_close(&rig);
}

/* A second context with its own domain and region handles sends what the first
 * registered, and its end leaves the first's objects alone. */
Test(mlx5, imports_share_what_the_process_has)
{
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_sge sge;
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	struct rig rig;

	setenv("VERBENA_QUIET", "1", 1);
	rig_pair(&rig, "mlx5", NULL, IBV_QPT_RC);
	context = ibv_import_device(dup(rig.end[0].context->cmd_fd));
	CHECK(context, "import_device: errno %d", errno);
	pd = ibv_import_pd(context, rig.end[0].pd->handle);
	CHECK(pd, "import_pd: errno %d", errno);
	mr = ibv_import_mr(pd, rig.end[0].mr->handle);
	CHECK(mr, "import_mr: errno %d", errno);
	CHECK_EQ(mr->rkey, rig.end[0].mr->rkey);
	CHECK_EQ(mr->length, RIG_BYTES);
	CHECK(!mr->addr, "an address of an import");
	rig.end[0].memory[3] = 0x5a;
	sge = (struct ibv_sge){(uintptr_t)rig.end[0].memory, 8, mr->lkey};
	CHECK_EQ(rig_recv(&rig.end[1], 1, 64, 8), 0);
	CHECK_EQ(ibv_post_send(rig.end[0].qp, &wr, &bad), 0);
	CHECK_EQ(rig_wc(&rig.end[0]).status, IBV_WC_SUCCESS);
	CHECK_EQ(rig_wc(&rig.end[1]).status, IBV_WC_SUCCESS);
	CHECK_EQ(rig.end[1].memory[67], 0x5a);
	CHECK(!ibv_import_pd(context, 12345) && errno == EINVAL, "errno %d",
	      errno);
	CHECK(!ibv_import_mr(pd, 12345) && errno == EINVAL, "errno %d", errno);
	CHECK(!ibv_import_device(-1) && errno == EBADF, "errno %d", errno);
	CHECK(!ibv_import_device(0) && errno == EOPNOTSUPP, "errno %d", errno);
	ibv_unimport_mr(mr);
	ibv_unimport_pd(pd);
	CHECK_EQ(ibv_close_device(context), 0);
	rig_close(&rig);
}

/* 2.9, and refused over it, however much. */
Test(mlx5, a_shared_queue_holds_one_less_than_a_power_of_two)
{
	static const struct {
		uint32_t asked, granted;
	} rows[] = {{1, 1},	{8, 15},	 {100, 127},	 {32767, 32767},
		    {32768, 0}, {0x80000001, 0}, {UINT32_MAX, 0}};
	struct rig rig;

	open_as(&rig, "mlx5");
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct ibv_srq_init_attr init = {.attr = {rows[i].asked, 1, 0}};
		struct ibv_srq *srq = ibv_create_srq(rig.end[0].pd, &init);

		CHECK(!srq == !rows[i].granted, "%u: errno %d", rows[i].asked,
		      errno);
		if (!srq) {
			CHECK_EQ(errno, EINVAL);
			continue;
		}
		CHECK_EQ(init.attr.max_wr, rows[i].granted);
		CHECK_EQ(ibv_destroy_srq(srq), 0);
	}
	rig_close(&rig);
}

Test(mlx5, a_partition_key_is_of_the_table)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = 1,
				   .pkey_index = 128};
	const int mask = IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX |
			 IBV_QP_ACCESS_FLAGS;
	struct rig rig;

	open_as(&rig, "mlx5");
	CHECK_EQ(ibv_modify_qp(rig.end[0].qp, &attr, mask), EINVAL);
	attr.pkey_index = 127;
	CHECK_EQ(ibv_modify_qp(rig.end[0].qp, &attr, mask), 0);
	rig_close(&rig);
}

Test(mlx5, device_memory_with_a_region_stays)
{
	struct ibv_alloc_dm_attr attr = {.length = 64};
	struct ibv_dm *dm;
	struct ibv_mr *mr;
	struct rig rig;

	open_as(&rig, "mlx5");
	dm = ibv_alloc_dm(rig.end[0].context, &attr);
	CHECK(dm, "alloc_dm: errno %d", errno);
	mr = ibv_reg_dm_mr(rig.end[0].pd, dm, 0, 64, IBV_ACCESS_ZERO_BASED);
	CHECK(mr, "reg_dm_mr: errno %d", errno);
	CHECK_EQ(ibv_free_dm(dm), EBUSY);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	CHECK_EQ(ibv_free_dm(dm), 0);
	rig_close(&rig);
}

Test(mlx5, imported_device_memory_is_the_same_memory)
{
	struct ibv_alloc_dm_attr attr = {.length = 64};
	const char text[8] = "verbena";
	struct ibv_dm *dm, *other;
	char back[8] = "";
	struct rig rig;

	open_as(&rig, "mlx5");
	dm = ibv_alloc_dm(rig.end[0].context, &attr);
	CHECK(dm, "alloc_dm: errno %d", errno);
	other = ibv_import_dm(rig.end[0].context, dm->handle);
	CHECK(other, "import_dm: errno %d", errno);
	CHECK_EQ(ibv_memcpy_to_dm(dm, 8, text, sizeof(text)), 0);
	/* What is shared goes with its last user. */
	CHECK_EQ(ibv_free_dm(dm), 0);
	CHECK_EQ(ibv_memcpy_from_dm(back, other, 8, sizeof(back)), 0);
	CHECK_HAS(back, "verbena");
	ibv_unimport_dm(other);
	CHECK(!ibv_import_dm(rig.end[0].context, 99) && errno == EINVAL,
	      "errno %d", errno);
	rig_close(&rig);
}

/* An XRC target under a second handle: it is the same queue pair, and is there
 * as long as one of them. */
Test(mlx5, an_xrc_target_opens_by_number)
{
	struct ibv_xrcd_init_attr domain = {.comp_mask =
						    IBV_XRCD_INIT_ATTR_FD |
						    IBV_XRCD_INIT_ATTR_OFLAGS,
					    .fd = -1,
					    .oflags = O_CREAT};
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1},
			   attr;
	struct ibv_qp_init_attr unused;
	struct ibv_qp *target, *other;
	struct rig rig;

	open_as(&rig, "mlx5");
	struct ibv_context *context = rig.end[0].context;
	struct ibv_xrcd *xrcd = ibv_open_xrcd(context, &domain);
	struct ibv_qp_init_attr_ex make = {.qp_type = IBV_QPT_XRC_RECV,
					   .comp_mask = IBV_QP_INIT_ATTR_XRCD,
					   .xrcd = xrcd};
	struct ibv_qp_open_attr open = {.comp_mask = IBV_QP_OPEN_ATTR_NUM |
						     IBV_QP_OPEN_ATTR_XRCD |
						     IBV_QP_OPEN_ATTR_TYPE,
					.xrcd = xrcd,
					.qp_type = IBV_QPT_XRC_RECV};

	CHECK(xrcd, "open_xrcd: errno %d", errno);
	target = ibv_create_qp_ex(context, &make);
	CHECK(target, "create_qp_ex: errno %d", errno);
	open.qp_num = rig.end[0].qp->qp_num;
	CHECK(!ibv_open_qp(context, &open) && errno == EINVAL,
	      "an RC queue pair: errno %d", errno);
	open.qp_num = target->qp_num;
	other = ibv_open_qp(context, &open);
	CHECK(other, "open_qp: errno %d", errno);
	CHECK_EQ(ibv_modify_qp(other, &init,
			       IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX |
				       IBV_QP_ACCESS_FLAGS),
		 0);
	CHECK_EQ(ibv_query_qp(target, &attr, IBV_QP_STATE, &unused), 0);
	CHECK_EQ(attr.qp_state, IBV_QPS_INIT);
	/* The maker's goes first; the queue pair goes with the last one. */
	CHECK_EQ(ibv_destroy_qp(target), 0);
	CHECK_EQ(ibv_query_qp(other, &attr, IBV_QP_STATE, &unused), 0);
	CHECK_EQ(ibv_close_xrcd(xrcd), EBUSY);
	CHECK_EQ(ibv_destroy_qp(other), 0);
	CHECK_EQ(ibv_close_xrcd(xrcd), 0);
	rig_close(&rig);
}
