/* SPDX-License-Identifier: MIT */
/*
 * Goal: what the kernel's core refuses at creation on every Linux device (3.1)
 * and which values modify_qp takes (3.1, 3.2) is what the spec says, with the
 * errno that it says. Method: each row's mistake, made through verbs on both
 * Linux models, and on Thunderbolt for what a device may lack; where a refusal
 * must leave a thing as it was, that is looked at, too. Use and end of what was
 * created: test_rules_use.c.
 */
#define _GNU_SOURCE
#include "tests/rig.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/harness.h"

#define COUNT(rows) (sizeof(rows) / sizeof(*(rows)))
#define RTR_MASK                                                        \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | \
	 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RTS_MASK                                                            \
	(IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | \
	 IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)

static const char *const models[] = {"mlx5", "rxe"};

static void open_as(struct rig *rig, const char *model, enum ibv_qp_type type)
{
	setenv("VERBENA_QUIET", "1", 1);
	rig_open(rig, model, NULL);
	rig_make(&rig->end[0], type, 8);
	rig_make(&rig->end[1], type, 8);
}

/* Has this process the capability from here on? */
static bool hold(int capability, bool on)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3,
						  0};
	struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3];

	CHECK_EQ(syscall(SYS_capget, &header, caps), 0);
	caps[0].effective &= ~(1u << capability);
	if (on)
		caps[0].effective |= caps[0].permitted & 1u << capability;
	CHECK_EQ(syscall(SYS_capset, &header, caps), 0);
	return caps[0].effective >> capability & 1;
}

/* --- 3.1: memory -------------------------------------------------------- */

/* Where in its memory, and as what, a region is asked for. */
struct region {
	uint64_t at;
	size_t length;
	uint64_t iova;
	unsigned int access;
	int error;
};

static void check_region(struct rig_end *end, uint8_t *memory,
			 const struct region *row)
{
	struct ibv_mr *mr;

	errno = 0;
	mr = ibv_reg_mr_iova(end->pd, memory + row->at, row->length,
			     (uintptr_t)memory + row->iova, row->access);
	CHECK(!mr == !!row->error && (mr || errno == row->error),
	      "%s: %zu bytes at %llu, iova %llu, flags 0x%x: errno %d, want %d",
	      ibv_get_device_name(end->context->device), row->length,
	      (unsigned long long)row->at, (unsigned long long)row->iova,
	      row->access, errno, row->error);
	if (mr)
		CHECK_EQ(ibv_dereg_mr(mr), 0);
}

#define LOCAL  IBV_ACCESS_LOCAL_WRITE
#define WRITE  IBV_ACCESS_REMOTE_WRITE
#define ATOMIC IBV_ACCESS_REMOTE_ATOMIC
#define READ   IBV_ACCESS_REMOTE_READ

/* 3.1: reg_mr, up to iova: flags and the range. */
Test(rules, a_region_has_known_flags_and_keeps_its_offset_in_the_page)
{
	static const struct region rows[] = {
		{0, 64, 0, 0, 0},
		{0, 64, 0, READ, 0},
		{0, 64, 0, LOCAL | 1u << 15, EINVAL},
		{0, 64, 0, LOCAL | 1u << 19, EINVAL},
		{0, 64, 0, LOCAL | 1u << 30, EINVAL},
		{0, 64, 0, LOCAL | 0x3ff00000, 0},
		{0, 64, 0, WRITE, EINVAL},
		{0, 64, 0, ATOMIC, EINVAL},
		{0, 64, 0, LOCAL | WRITE | ATOMIC, 0},
		{0, 64, 0, LOCAL | IBV_ACCESS_ON_DEMAND, EOPNOTSUPP},
		{8, SIZE_MAX, 8, 0, EINVAL},
		{0, 0, 0, 0, EINVAL},
		{1, 0, 1, 0, 0},
		{0, 64, 1, 0, EINVAL},
		{5, 64, 0, 0, EINVAL},
		{5, 64, 5 + 16 * 4096, 0, 0},
	};
	struct rig rig;

	for (int m = 0; m < 2; m++) {
		open_as(&rig, models[m], IBV_QPT_RC);
		for (size_t i = 0; i < COUNT(rows); i++)
			check_region(&rig.end[0], rig.end[0].memory, &rows[i]);
		rig_close(&rig);
	}
}

/* 3.1: reg_mr, EFAULT. Four pages: read-only, writable, none, writable. */
Test(rules, a_region_must_be_mapped_and_writable)
{
	static const struct region rows[] = {
		{0, 4096, 0, READ, 0},
		{0, 4096, 0, LOCAL, EFAULT},
		{0, 8192, 0, LOCAL | WRITE, EFAULT},
		{4096, 4096, 4096, LOCAL, 0},
		{4096, 4097, 4096, LOCAL, EFAULT},
		{4096, 4097, 4096, 0, EFAULT},
		{8192, 1, 8192, 0, EFAULT},
		{12288, 4096, 12288, LOCAL, 0},
	};
	uint8_t *at = mmap(NULL, 16384, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct rig rig;

	CHECK(at != MAP_FAILED, "mmap: %s", strerror(errno));
	if (madvise(at, 4096, MADV_POPULATE_READ) != 0 && errno == EINVAL)
		SKIP("needs Linux 5.14 to ask whether memory is there");
	CHECK_EQ(mprotect(at, 4096, PROT_READ), 0);
	CHECK_EQ(munmap(at + 8192, 4096), 0);
	for (int m = 0; m < 2; m++) {
		open_as(&rig, models[m], IBV_QPT_RC);
		for (size_t i = 0; i < COUNT(rows); i++)
			check_region(&rig.end[0], at, &rows[i]);
		rig_close(&rig);
	}
}

/* 3.1: reg_mr, RLIMIT_MEMLOCK; the ends have RIG_BYTES each. */
Test(rules, locked_memory_has_a_limit_for_who_has_not_the_right)
{
	static const char *const enforcing[] = {"mlx5,memlock=enforce",
						"rxe,memlock=enforce"};
	const struct region fits = {0, RIG_BYTES, 0, 0, 0},
			    over = {0, RIG_BYTES + 1, 0, 0, ENOMEM},
			    none = {0, 64, 0, 0, EPERM};
	struct rlimit limit;
	struct rig rig;

	CHECK_EQ(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
	if (limit.rlim_max < 3 * RIG_BYTES)
		SKIP("the hard limit of locked memory is below 3 MiB");
	for (int m = 0; m < 2; m++) {
		struct rig_end *end = &rig.end[0];

		limit.rlim_cur = 3 * RIG_BYTES;
		CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
		open_as(&rig, enforcing[m], IBV_QPT_RC);
		CHECK(!hold(CAP_IPC_LOCK, false), "CAP_IPC_LOCK stays");
		check_region(end, end->memory, &fits);
		check_region(end, end->memory, &fits); /* given back */
		check_region(end, end->memory, &over);
		limit.rlim_cur = 0;
		CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
		check_region(end, end->memory, &none);
		if (hold(CAP_IPC_LOCK, true))
			check_region(end, end->memory, &fits);
		rig_close(&rig);
	}
}

/* 3.1: rereg_mr, flags. What was refused leaves the region as it was. */
Test(rules, a_region_is_changed_by_known_flags_only)
{
	static const int flags[] = {0, 8, 8 | IBV_REREG_MR_CHANGE_ACCESS};
	struct rig rig;
	struct rig_end *end = &rig.end[0];

	for (int m = 0; m < 2; m++) {
		open_as(&rig, models[m], IBV_QPT_RC);
		rig_connect(&rig, IBV_QPS_RTS);
		for (size_t i = 0; i < COUNT(flags); i++) {
			errno = 0;
			CHECK_EQ(ibv_rereg_mr(end->mr, flags[i], NULL, NULL, 0,
					      0),
				 IBV_REREG_MR_ERR_INPUT);
			CHECK_EQ(errno, EINVAL);
		}
		CHECK_EQ(rig_recv(&rig.end[1], 1, 0, 8), 0);
		CHECK_EQ(rig_send(end, 1, 0, 8), 0);
		CHECK_EQ(rig_wc(end).status, IBV_WC_SUCCESS);
		CHECK_EQ(ibv_rereg_mr(end->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL,
				      NULL, 0, LOCAL),
			 0);
		rig_close(&rig);
	}
}

/* 3.1: rereg_mr, alloc_mw, create_srq, modify_cq: driver lacks the op. */
Test(rules, what_a_device_lacks_is_not_supported)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_modify_cq_attr moderate = {IBV_CQ_ATTR_MODERATE, {1, 1}};
	struct rig rig;
	struct rig_end *end = &rig.end[0];

	open_as(&rig, "apple-tb", IBV_QPT_UC);
	CHECK_EQ(ibv_rereg_mr(end->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL,
			      0, LOCAL),
		 IBV_REREG_MR_ERR_CMD);
	CHECK_EQ(errno, EOPNOTSUPP);
	errno = 0;
	CHECK(!ibv_alloc_mw(end->pd, IBV_MW_TYPE_1), "alloc_mw");
	CHECK_EQ(errno, EOPNOTSUPP);
	errno = 0;
	CHECK(!ibv_create_srq(end->pd, &srq), "create_srq");
	CHECK_EQ(errno, EOPNOTSUPP);
	CHECK_EQ(ibv_modify_cq(end->cq, &moderate), EOPNOTSUPP);
	rig_close(&rig);
	open_as(&rig, "rxe", IBV_QPT_RC);
	CHECK_EQ(ibv_modify_cq(end->cq, &moderate), EOPNOTSUPP);
	rig_close(&rig);
}

/* --- 3.1: creation ------------------------------------------------------ */

/* 3.1: create_cq. */
Test(rules, a_completion_queue_has_a_vector_and_a_depth_of_the_device)
{
	struct ibv_device_attr attr;
	struct rig rig;

	for (int m = 0; m < 2; m++) {
		open_as(&rig, models[m], IBV_QPT_RC);
		struct ibv_context *context = rig.end[0].context;
		const int vectors = context->num_comp_vectors;

		CHECK_EQ(ibv_query_device(context, &attr), 0);
		const int rows[][3] = {
			{1, vectors - 1, 0}, {8, vectors, EINVAL},
			{8, -1, EINVAL},     {0, 0, EINVAL},
			{-1, 0, EINVAL},     {attr.max_cqe + 1, 0, EINVAL},
		};
		for (size_t i = 0; i < COUNT(rows); i++) {
			errno = 0;
			struct ibv_cq *cq =
				ibv_create_cq(context, rows[i][0], NULL, NULL,
					      rows[i][1]);

			CHECK(!cq == !!rows[i][2] && errno == rows[i][2],
			      "%s, row %zu: errno %d", models[m], i, errno);
			if (cq)
				CHECK_EQ(ibv_destroy_cq(cq), 0);
		}
		rig_close(&rig);
	}
}

static struct ibv_qp_init_attr init_of(struct rig_end *end, int type)
{
	return (struct ibv_qp_init_attr){.qp_type = (enum ibv_qp_type)type,
					 .send_cq = end->cq,
					 .recv_cq = end->cq,
					 .cap = {4, 4, 1, 1, 0}};
}

static void refuse_qp(struct rig_end *end, struct ibv_qp_init_attr *init,
		      int error)
{
	errno = 0;
	CHECK(!ibv_create_qp(end->pd, init) && errno == error,
	      "%s, type %d: errno %d, want %d",
	      ibv_get_device_name(end->context->device), init->qp_type, errno,
	      error);
}

/* 3.1, 2.7: create_qp, types that the core or the driver does not know; raw
 * packets without CAP_NET_RAW; no completion queue. 3.3: over the caps; mlx5
 * may grant more sges than it says. */
Test(rules, a_queue_pair_has_a_known_type_completion_queues_and_fits)
{
	static const int unknown[] = {0, 1, 5, 6, 7, 11, 31, 34, 254};
	static const struct ibv_qp_cap over[2][5] = {
		{{32769, 1, 1, 1, 0},
		 {1, 32769, 1, 1, 0},
		 {1, 1, 65, 1, 0},
		 {1, 1, 1, 33, 0},
		 {1, 1, 1, 1, 1025}},
		{{1048577, 1, 1, 1, 0},
		 {1, 1048577, 1, 1, 0},
		 {1, 1, 33, 1, 0},
		 {1, 1, 1, 33, 0},
		 {1, 1, 1, 1, 513}},
	};
	struct ibv_qp_init_attr init;
	struct rig rig;
	struct rig_end *end = &rig.end[0];

	for (int m = 0; m < 2; m++) {
		open_as(&rig, models[m], IBV_QPT_RC);
		for (size_t i = 0; i < COUNT(unknown); i++) {
			init = init_of(end, unknown[i]);
			refuse_qp(end, &init, EINVAL);
		}
		for (size_t i = 0; i < COUNT(over[m]); i++) {
			init = init_of(end, IBV_QPT_RC);
			init.cap = over[m][i];
			refuse_qp(end, &init, EINVAL);
		}
		init = init_of(end, IBV_QPT_DRIVER);
		refuse_qp(end, &init, EOPNOTSUPP);
		init = init_of(end, IBV_QPT_RAW_PACKET);
		if (hold(CAP_NET_RAW, true))
			refuse_qp(end, &init, EOPNOTSUPP);
		hold(CAP_NET_RAW, false);
		refuse_qp(end, &init, EPERM);
		init = init_of(end, IBV_QPT_RC);
		init.send_cq = NULL;
		refuse_qp(end, &init, EINVAL);
		init = init_of(end, IBV_QPT_RC);
		init.recv_cq = NULL;
		refuse_qp(end, &init, EINVAL);
		rig_close(&rig);
	}
}

/* 3.1: create_qp, unused fields of the extended call. */
Test(rules, an_extended_queue_pair_leaves_unused_fields_alone)
{
	static const uint32_t unused[] = {0, IBV_QP_INIT_ATTR_MAX_TSO_HEADER,
					  IBV_QP_INIT_ATTR_IND_TABLE,
					  IBV_QP_INIT_ATTR_RX_HASH, 1u << 31};
	struct ibv_qp_init_attr_ex ex = {.qp_type = IBV_QPT_UD,
					 .cap = {4, 4, 1, 1, 0}};
	struct rig rig;

	for (size_t i = 0; i < 2 * COUNT(unused); i++) {
		struct ibv_qp *qp;

		open_as(&rig, models[i % 2], IBV_QPT_RC);
		ex.pd = rig.end[0].pd;
		ex.send_cq = ex.recv_cq = rig.end[0].cq;
		ex.comp_mask = IBV_QP_INIT_ATTR_PD | unused[i / 2];
		errno = 0;
		qp = ibv_create_qp_ex(rig.end[0].context, &ex);
		CHECK(unused[i / 2] ? errno == EINVAL || errno == EOPNOTSUPP
				    : qp != NULL,
		      "comp_mask 0x%x: errno %d", ex.comp_mask, errno);
		CHECK(!qp == !!unused[i / 2], "comp_mask 0x%x", ex.comp_mask);
		if (qp)
			CHECK_EQ(ibv_destroy_qp(qp), 0);
		rig_close(&rig);
	}
}

/* --- 3.1, 3.2: modify_qp, create_ah ------------------------------------- */

static struct ibv_qp_attr queried(struct rig_end *end)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	CHECK_EQ(ibv_query_qp(end->qp, &attr, IBV_QP_STATE, &init), 0);
	return attr;
}

static int to(struct rig_end *end, struct ibv_qp_attr *attr,
	      enum ibv_qp_state state, int mask)
{
	attr->qp_state = state;
	return ibv_modify_qp(end->qp, attr, mask | IBV_QP_STATE);
}

/* All that leads end 0 to RTS; it is back in INIT. */
static struct ibv_qp_attr path_of(struct rig *rig)
{
	struct ibv_qp_attr attr;

	rig_connect(rig, IBV_QPS_RTS);
	attr = queried(&rig->end[0]);
	CHECK_EQ(rig_modify(&rig->end[0], NULL, IBV_QPS_RESET), 0);
	CHECK_EQ(rig_modify(&rig->end[0], NULL, IBV_QPS_INIT), 0);
	return attr;
}

/* 3.1: modify_qp, bits, pairs, port. What is refused changes nothing. */
Test(rules, a_step_has_known_bits_a_legal_pair_and_a_port_of_the_device)
{
	struct ibv_qp_attr attr;
	struct rig rig;
	struct rig_end *end = &rig.end[0];

	for (int m = 0; m < 2; m++) {
		open_as(&rig, models[m], IBV_QPT_RC);
		attr = path_of(&rig);
		for (unsigned int bit = 1u << 21; bit;
		     bit <<= 1 + (bit >> 24 & 1))
			CHECK_EQ(to(end, &attr, IBV_QPS_RTR,
				    RTR_MASK | (int)bit),
				 EOPNOTSUPP);
		CHECK_EQ(to(end, &attr, IBV_QPS_RTS, RTS_MASK), EINVAL);
		CHECK_EQ(to(end, &attr, IBV_QPS_RTR, RTR_MASK & ~IBV_QP_AV),
			 EINVAL);
		CHECK_EQ(to(end, &attr, IBV_QPS_RTR, RTR_MASK | IBV_QP_QKEY),
			 EINVAL);
		for (uint8_t port = 0; port <= 2; port++) {
			attr.port_num = port;
			CHECK_EQ(to(end, &attr, IBV_QPS_INIT, IBV_QP_PORT),
				 port == 1 ? 0 : EINVAL);
		}
		CHECK_EQ(end->qp->state, IBV_QPS_INIT);
		CHECK_EQ(queried(end).qp_state, IBV_QPS_INIT);
		CHECK_EQ(queried(end).port_num, 1);
		rig_close(&rig);
	}
}

/* 3.1: modify_qp, CUR_STATE. */
Test(rules, what_a_program_says_of_the_state_is_believed)
{
	static const enum ibv_qp_state said[] = {IBV_QPS_RESET, IBV_QPS_INIT,
						 IBV_QPS_ERR};
	const int mask = RTS_MASK | IBV_QP_CUR_STATE;
	struct ibv_qp_attr attr;
	struct rig rig;
	struct rig_end *end = &rig.end[0];

	for (int m = 0; m < 2; m++) {
		open_as(&rig, models[m], IBV_QPT_RC);
		attr = path_of(&rig);
		for (size_t i = 0; i < COUNT(said); i++) {
			attr.cur_qp_state = said[i];
			CHECK_EQ(to(end, &attr, IBV_QPS_RTS, mask), EINVAL);
		}
		attr.cur_qp_state = IBV_QPS_RTR; /* it is in INIT */
		CHECK_EQ(to(end, &attr, IBV_QPS_RTS, mask), 0);
		CHECK_EQ(queried(end).qp_state, IBV_QPS_RTS);
		/* Also when it is the worse for it. */
		CHECK_EQ(to(end, &attr, IBV_QPS_RTS, IBV_QP_CUR_STATE), EINVAL);
		rig_close(&rig);
	}
}

#define FIELD(name) offsetof(struct ibv_qp_attr, name)

/* 3.2: value checks. 3.1: AV. 3.3: GID index 3. One byte is changed of what
 * leads to RTS (of path_mtu, the low one). */
static const struct {
	const char *model;
	size_t field;
	uint8_t value;
	int error;
} values[] = {
	{"mlx5", FIELD(max_rd_atomic), 16, 0},
	{"mlx5", FIELD(max_rd_atomic), 17, EINVAL},
	{"mlx5", FIELD(max_dest_rd_atomic), 16, 0},
	{"mlx5", FIELD(max_dest_rd_atomic), 17, EINVAL},
	{"mlx5", FIELD(max_rd_atomic), 0, 0},
	{"mlx5", FIELD(timeout), 0, 0},
	{"mlx5", FIELD(timeout), 31, 0},
	{"mlx5", FIELD(min_rnr_timer), 31, 0},
	{"mlx5", FIELD(path_mtu), 0, EINVAL},
	{"mlx5", FIELD(path_mtu), 6, EINVAL},
	{"mlx5,mtu=1024", FIELD(path_mtu), IBV_MTU_4096, 0},
	{"rxe", FIELD(max_rd_atomic), 128, 0},
	{"rxe", FIELD(max_rd_atomic), 129, EINVAL},
	{"rxe", FIELD(max_dest_rd_atomic), 128, 0},
	{"rxe", FIELD(max_dest_rd_atomic), 129, EINVAL},
	{"rxe", FIELD(max_rd_atomic), 0, 0},
	{"rxe", FIELD(timeout), 0, 0},
	{"rxe", FIELD(timeout), 31, 0},
	{"rxe", FIELD(timeout), 32, EINVAL},
	{"rxe", FIELD(min_rnr_timer), 31, 0},
	{"rxe", FIELD(path_mtu), 0, EINVAL},
	{"rxe", FIELD(path_mtu), 6, EINVAL},
	{"rxe", FIELD(path_mtu), IBV_MTU_4096, 0},
	{"mlx5", FIELD(ah_attr.is_global), 0, 0},
	{"mlx5,link=roce", FIELD(ah_attr.is_global), 0, EINVAL},
	{"rxe", FIELD(ah_attr.is_global), 0, EINVAL},
	{"mlx5", FIELD(ah_attr.port_num), 2, EINVAL},
	{"rxe", FIELD(ah_attr.port_num), 2, EINVAL},
	{"mlx5", FIELD(ah_attr.port_num), 0, EINVAL},
	{"rxe", FIELD(ah_attr.port_num), 0, EINVAL},
	{"mlx5,link=roce", FIELD(ah_attr.grh.dgid), 1, EHOSTUNREACH},
	{"rxe", FIELD(ah_attr.grh.dgid), 1, EHOSTUNREACH},
	{"mlx5", FIELD(ah_attr.grh.sgid_index), 7, EINVAL}, /* empty */
	{"mlx5", FIELD(ah_attr.grh.sgid_index), 8, EINVAL}, /* beyond */
	{"mlx5,link=roce,loopbacks=1", FIELD(ah_attr.grh.sgid_index), 3, 0},
	{"mlx5,link=roce", FIELD(ah_attr.grh.sgid_index), 255, EINVAL},
	{"rxe,loopbacks=1", FIELD(ah_attr.grh.sgid_index), 1, 0},
	{"rxe,loopbacks=1", FIELD(ah_attr.grh.sgid_index), 3, EINVAL},
};

/* 3.1: create_ah: the rows of an address, and port 0. */
static void check_ah(struct ibv_pd *pd, struct ibv_ah_attr attr, int error)
{
	struct ibv_ah *ah;

	errno = 0;
	ah = ibv_create_ah(pd, &attr);
	CHECK(!ah == !!error && errno == error, "create_ah: errno %d, want %d",
	      errno, error);
	if (ah)
		CHECK_EQ(ibv_destroy_ah(ah), 0);
	attr.port_num = 0;
	CHECK(!ibv_create_ah(pd, &attr) && errno == EINVAL,
	      "create_ah, port 0: errno %d", errno);
}

Test(rules, values_of_a_path_have_the_devices_limits)
{
	struct ibv_qp_attr attr, kept;
	struct rig rig;
	int rc;

	for (size_t i = 0; i < COUNT(values); i++) {
		size_t at = values[i].field;

		open_as(&rig, values[i].model, IBV_QPT_RC);
		attr = path_of(&rig);
		((uint8_t *)&attr)[at] = values[i].value;
		if (at >= FIELD(ah_attr) && at < FIELD(alt_ah_attr))
			check_ah(rig.end[0].pd, attr.ah_attr, values[i].error);
		rc = to(&rig.end[0], &attr, IBV_QPS_RTR, RTR_MASK);
		if (!rc)
			rc = to(&rig.end[0], &attr, IBV_QPS_RTS, RTS_MASK);
		CHECK(rc == values[i].error, "row %zu: %d", i, rc);
		kept = queried(&rig.end[0]);
		CHECK(rc || ((uint8_t *)&kept)[at] == values[i].value,
		      "row %zu: not kept", i);
		rig_close(&rig);
	}
}

/* 3.1: psn. 3.2: dest_qp_num; rounded depths. The pair works with what is
 * left of them. */
Test(rules, numbers_lose_their_upper_bits_and_depths_are_rounded_on_rxe)
{
	struct ibv_qp_attr attr;
	struct rig rig;
	struct rig_end *end = &rig.end[0];

	for (int m = 0; m < 2; m++) {
		open_as(&rig, models[m], IBV_QPT_RC);
		attr = path_of(&rig);
		attr.rq_psn |= 0xab000000;
		attr.sq_psn |= 0x01000000;
		attr.dest_qp_num |= 0xff000000;
		attr.max_rd_atomic = attr.max_dest_rd_atomic = 5;
		CHECK_EQ(to(end, &attr, IBV_QPS_RTR, RTR_MASK), 0);
		CHECK_EQ(to(end, &attr, IBV_QPS_RTS, RTS_MASK), 0);
		attr = queried(end);
		CHECK_EQ(attr.rq_psn | attr.sq_psn, 0);
		CHECK_EQ(attr.dest_qp_num, rig.end[1].qp->qp_num);
		CHECK_EQ(attr.max_rd_atomic, m ? 8 : 5);
		CHECK_EQ(attr.max_dest_rd_atomic, m ? 8 : 5);
		for (int i = 0; i < 2; i++) {
			CHECK_EQ(rig_recv(&rig.end[1 - i], 1, 0, 8), 0);
			CHECK_EQ(rig_send(&rig.end[i], 2, 0, 8), 0);
			CHECK_EQ(rig_wc(&rig.end[i]).status, IBV_WC_SUCCESS);
			CHECK_EQ(rig_wc(&rig.end[1 - i]).wr_id, 1);
		}
		rig_close(&rig);
	}
}

/* 3.1: ALT_PATH port differs from the queue pair's. */
Test(rules, an_alternate_path_has_a_port_of_the_device)
{
	struct ibv_qp_attr attr;
	struct rig rig;

	for (int m = 0; m < 2; m++)
		for (uint8_t port = 0; port <= 2; port++) {
			open_as(&rig, models[m], IBV_QPT_RC);
			attr = path_of(&rig);
			attr.alt_ah_attr = attr.ah_attr;
			attr.alt_port_num = attr.alt_ah_attr.port_num = port;
			CHECK_EQ(to(&rig.end[0], &attr, IBV_QPS_RTR,
				    RTR_MASK | IBV_QP_ALT_PATH),
				 port == 1 ? 0 : EINVAL);
			rig_close(&rig);
		}
}

/* 3.1: create_qp, an SRQ of another type. */
Test(rules, a_shared_queue_of_xrc_serves_no_other_type)
{
	struct ibv_xrcd_init_attr domain = {.comp_mask =
						    IBV_XRCD_INIT_ATTR_FD |
						    IBV_XRCD_INIT_ATTR_OFLAGS,
					    .fd = -1};
	struct ibv_srq_init_attr_ex shared = {.attr = {4, 1, 0},
					      .comp_mask =
						      IBV_SRQ_INIT_ATTR_TYPE |
						      IBV_SRQ_INIT_ATTR_PD |
						      IBV_SRQ_INIT_ATTR_XRCD |
						      IBV_SRQ_INIT_ATTR_CQ,
					      .srq_type = IBV_SRQT_XRC};
	struct ibv_qp_init_attr init;
	struct rig rig;

	open_as(&rig, "mlx5", IBV_QPT_RC);
	shared.pd = rig.end[0].pd;
	shared.cq = rig.end[0].cq;
	shared.xrcd = ibv_open_xrcd(rig.end[0].context, &domain);
	CHECK(shared.xrcd, "open_xrcd: errno %d", errno);
	init = init_of(&rig.end[0], IBV_QPT_RC);
	init.srq = ibv_create_srq_ex(rig.end[0].context, &shared);
	CHECK(init.srq, "create_srq_ex: errno %d", errno);
	refuse_qp(&rig.end[0], &init, EINVAL);
	CHECK_EQ(ibv_destroy_srq(init.srq), 0);
	CHECK_EQ(ibv_close_xrcd(shared.xrcd), 0);
	rig_close(&rig);
}
