/* SPDX-License-Identifier: MIT */
/*
 * Goal: a queue pair that cannot be is refused before anything is made, and
 * whatever call fails leaves nothing half made. Method: a scripted host, where
 * each call fails in turn.
 */
#include <errno.h>
#include <stddef.h>

#include "tests/harness.h"
#include "tests/lib/fake.h"

#define WRONG FAKE_ERRNO

/* --- what is refused --- */

#define OFFSET(field) offsetof(struct vb_config, field)

static const struct row {
	const char *key;
	enum vb_qp_kind kind;
	size_t offset, size; /* of the field that is set, 0: none */
	uint32_t value;
	int want;
	const char *text;
} rows[] = {
	{"mlx", VB_QP_SRD, 0, 0, 0, -EOPNOTSUPP,
	 "mlx5_0: backend mlx has no SRD queue pairs"},
	{"efa", VB_QP_RC, 0, 0, 0, -EOPNOTSUPP, "backend efa has no RC"},
	{"efa", VB_QP_UC, 0, 0, 0, -EOPNOTSUPP, "backend efa has no UC"},
	{"apple", VB_QP_RC, 0, 0, 0, -EOPNOTSUPP, "backend apple has no RC"},
	{"mlx", VB_QP_RC, OFFSET(psn), 4, 1 << 24, -EINVAL,
	 "mlx5_0: psn is 16777216, the device grants 16777215"},
	{"mlx", VB_QP_UC, OFFSET(port_num), 1, 2, -EINVAL,
	 "port_num is 2, the device grants 1"},
	{"mlx", VB_QP_RC, OFFSET(pkey_index), 2, 1, -EINVAL,
	 "pkey_index is 1, the device grants 0"},
	{"mlx", VB_QP_RC, OFFSET(max_send_wr), 4, 65536, -EINVAL,
	 "max_send_wr is 65536, a completion queue of the device has at most "
	 "65535"},
	{"apple", VB_QP_UC, OFFSET(max_recv_wr), 4, UINT32_MAX, -EINVAL,
	 "max_recv_wr is 4294967295, a completion queue"},
	{"efa", VB_QP_SRD, OFFSET(max_send_wr), 4, 4097, -EINVAL,
	 "efa_0: max_send_wr is 4097, the device grants 4096"},
	{"efa", VB_QP_SRD, OFFSET(max_recv_wr), 4, 32769, -EINVAL,
	 "efa_0: max_recv_wr is 32769, the device grants 32768"},
	{"efa", VB_QP_SRD, OFFSET(port_num), 1, 2, -EINVAL, "port_num is 2"},
};

static void refused(struct fake_bed *bed, enum vb_qp_kind kind, int want,
		    const char *text)
{
	struct vb_qp *qp = NULL;

	CHECK_EQ(vb_qp_create(bed->domain, kind, NULL, NULL, &qp), want);
	CHECK(!qp, "a queue pair");
	CHECK_HAS(vb_last_error(), text);
	CHECK_EQ(fake.qp_calls, 0);
	fake_bed_close(bed);
}

Test(qp, what_a_device_does_not_grant_is_refused_before_any_call)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const struct row *row = &rows[i];
		struct vb_config config = fake_config();
		struct fake_bed bed;

		memcpy((char *)&config + row->offset, &row->value, row->size);
		fake_add_three();
		fake_bed_open(&bed, row->key, &config);
		refused(&bed, row->kind, row->want, row->text);
	}
}

Test(qp, depths_at_the_limit_are_taken)
{
	struct vb_config config = fake_config();
	struct fake_bed bed;

	fake_add_three();
	config.max_send_wr = 4096;
	config.max_recv_wr = 32768;
	fake_bed_open(&bed, "efa", &config);
	CHECK_EQ(vb_qp_close(fake_qp(&bed, VB_QP_SRD)), 0);
	fake_bed_close(&bed);
}

Test(qp, a_queue_pair_that_never_receives_has_a_queue_all_the_same)
{
	struct vb_config config = fake_config();
	struct fake_bed bed;

	fake_add_three();
	config.max_recv_wr = 0;
	fake_bed_open(&bed, "mlx", &config);
	CHECK_EQ(vb_qp_close(fake_qp(&bed, VB_QP_RC)), 0);
	CHECK_HAS(fake.log, "create_cq:512 create_cq:1 create_qp ");
	CHECK_EQ(fake.init.cap.max_recv_wr, 0);
	fake_bed_close(&bed);
}

Test(qp, srd_needs_rdma_both_ways_when_it_is_made_too)
{
	struct fake_bed bed = fake_bed("efa");

	fake.device[1].efa.device_caps = 1;
	refused(&bed, VB_QP_SRD, -EOPNOTSUPP, "efa_0: it has no RDMA write");
	bed = fake_bed("efa");
	fake.device[1].efa.max_rdma_size = 0;
	refused(&bed, VB_QP_SRD, -EOPNOTSUPP, "max_rdma_size 0");
	bed = fake_bed("efa");
	fake.device[1].is_efa = false;
	refused(&bed, VB_QP_SRD, -EOPNOTSUPP, "efa_0: efadv_query_device: ");
}

Test(qp, srd_without_its_libraries_is_EOPNOTSUPP)
{
	struct fake_bed bed;

	fake_add_three();
	fake.lacks_efadv_qp = true;
	fake_bed_open(&bed, "efa", NULL);
	refused(&bed, VB_QP_SRD, -EOPNOTSUPP,
		"efa_0: no efadv_create_qp_ex in libefa.so.1");
	fake_add_three();
	fake.lacks_ah = true;
	fake_bed_open(&bed, "efa", NULL);
	refused(&bed, VB_QP_SRD, -EOPNOTSUPP, "create_ah, which SRD needs");
	/* Others do without. */
	fake_add_three();
	fake.lacks_ah = fake.lacks_efadv_qp = true;
	fake_bed_open(&bed, "mlx", NULL);
	CHECK_EQ(vb_qp_close(fake_qp(&bed, VB_QP_RC)), 0);
	fake_bed_close(&bed);
}

Test(qp, a_port_without_a_gid_to_connect_with_is_ENOENT)
{
	struct fake_bed bed;

	fake_add_three();
	memset(&fake.device[0].port[0].gid[3], 0, sizeof(struct fake_gid));
	fake_bed_open(&bed, "mlx", NULL);
	refused(&bed, VB_QP_RC, -ENOENT, "port 1 of mlx5_0 has no RoCE v2");
	fake_add_three();
	memset(fake.device[1].port[0].gid, 0, sizeof(struct fake_gid));
	fake.device[1].port[0].attr.lid = 3; /* is not enough for SRD */
	fake_bed_open(&bed, "efa", NULL);
	refused(&bed, VB_QP_SRD, -ENOENT,
		"port 1 of efa_0 has no GID at index "
		"0");
}

Test(qp, a_peer_of_another_kind_is_refused_before_any_call)
{
	static const struct {
		const char *key;
		enum vb_qp_kind kind;
		struct vb_endpoint peer;
		const char *text;
	} cases[] = {
		{"mlx", VB_QP_RC, {.qpn = 1}, "RC queue pair gave no GID or "},
		{"apple",
		 VB_QP_UC,
		 {.qpn = 1},
		 "UC queue pair gave no GID or "},
		{"efa", VB_QP_SRD, {.qpn = 1, .lid = 1}, "gave no GID"},
		{"mlx", VB_QP_RC, {.qpn = 1 << 24, .lid = 1}, "QPN 0x1000000"},
		{"efa",
		 VB_QP_SRD,
		 {.psn = 1 << 24, .has_gid = true},
		 "PSN 0x1000000"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct fake_bed bed = fake_bed(cases[i].key);
		struct vb_qp *qp = fake_qp(&bed, cases[i].kind);
		int calls = fake.qp_calls;

		CHECK_EQ(vb_qp_connect(qp, &cases[i].peer), -EINVAL);
		CHECK_HAS(vb_last_error(), cases[i].text);
		CHECK_EQ(fake.qp_calls, calls);
		CHECK_EQ(vb_qp_connect(qp, &fake_peer), 0);
		CHECK_EQ(vb_qp_close(qp), 0);
		fake_bed_close(&bed);
	}
}

Test(qp, what_is_missing_is_EINVAL_and_what_is_connected_EISCONN)
{
	struct fake_bed bed = fake_bed("mlx");
	struct vb_endpoint here;
	struct vb_qp *qp = NULL;

	CHECK_EQ(vb_qp_create(NULL, VB_QP_RC, NULL, NULL, &qp), -EINVAL);
	CHECK_EQ(vb_qp_create(bed.domain, VB_QP_RC, NULL, NULL, NULL), -EINVAL);
	CHECK_EQ(vb_qp_create(bed.domain, (enum vb_qp_kind)3, NULL, NULL, &qp),
		 -EINVAL);
	CHECK_EQ(vb_qp_create(bed.domain, (enum vb_qp_kind) - 1, NULL, NULL,
			      &qp),
		 -EINVAL);
	CHECK_LOG("");
	CHECK_EQ(vb_qp_close(NULL), 0);
	qp = fake_qp(&bed, VB_QP_RC);
	fake.log[0] = 0;
	CHECK_EQ(vb_qp_connect(qp, NULL), -EINVAL);
	CHECK_EQ(vb_qp_connect(NULL, &fake_peer), -EINVAL);
	CHECK_EQ(vb_qp_endpoint(qp, NULL), -EINVAL);
	CHECK_EQ(vb_qp_endpoint(NULL, &here), -EINVAL);
	CHECK_LOG("");
	CHECK_EQ(vb_qp_connect(qp, &fake_peer), 0);
	CHECK_EQ(vb_qp_connect(qp, &fake_peer), -EISCONN);
	CHECK_HAS(vb_last_error(), "mlx5_0: queue pair 0x1a is connected");
	CHECK_EQ(fake.steps, 3);
	CHECK_EQ(vb_qp_close(qp), 0);
	fake_bed_close(&bed);
}

/* --- each call fails in turn --- */

/* After a failed connect: in RESET, as made, and to be connected again. */
static void recovers(struct vb_qp *qp, int live)
{
	const char *end = fake.log + strlen(fake.log);
	bool has_moved = fake.steps > 1;

	CHECK_HAS(vb_last_error(), strerror(WRONG));
	CHECK_EQ(fake.live, live);
	CHECK(!vb_qp_ah(qp), "an address handle");
	if (has_moved) {
		CHECK_EQ(fake.step[fake.steps - 1].attr.qp_state,
			 IBV_QPS_RESET);
		CHECK_EQ(fake.step[fake.steps - 1].mask, IBV_QP_STATE);
	}
	fake.steps = 0;
	CHECK_EQ(vb_qp_connect(qp, &fake_peer), 0);
	CHECK_HAS(end, "modify_qp:INIT modify_qp:RTR modify_qp:RTS ");
}

/* After a failed close: as before when the queue pair is the cause; else gone,
 * and without that one object, which the device has kept. */
static void gives_up(struct vb_qp *qp, int live, const char *last)
{
	CHECK_HAS(vb_last_error(), strerror(WRONG));
	CHECK_HAS(fake.lines, strerror(WRONG));
	if (strcmp(last, "destroy_qp ") == 0) {
		CHECK_EQ(fake.live, live);
		CHECK_EQ(vb_qp_close(qp), 0);
		CHECK_EQ(fake.live, 0);
	} else {
		CHECK_EQ(fake.live, 1);
	}
}

/* A whole life, in which call `at` fails; false when there are fewer. */
static bool live_with(const char *key, enum vb_qp_kind kind, int at)
{
	struct fake_bed bed = fake_bed(key);
	struct vb_qp *qp = NULL;
	int rc, live;

	fake.fail_at = at;
	rc = vb_qp_create(bed.domain, kind, NULL, NULL, &qp);
	if (rc) {
		CHECK_EQ(rc, -WRONG);
		CHECK(!qp, "a queue pair");
		CHECK_EQ(fake.live, 0);
		CHECK_HAS(vb_last_error(), strerror(WRONG));
		CHECK_HAS(fake.lines, strerror(WRONG));
		fake_bed_close(&bed);
		return true;
	}
	live = fake.live;
	rc = vb_qp_connect(qp, &fake_peer);
	if (rc) {
		CHECK_EQ(rc, -WRONG);
		recovers(qp, live);
	}
	live = fake.live;
	fake.log[0] = 0;
	rc = vb_qp_close(qp);
	if (rc) {
		CHECK_EQ(rc, -WRONG);
		gives_up(qp, live, fake.log);
	} else {
		CHECK_EQ(fake.live, 0);
	}
	fake_bed_close(&bed);
	return fake.qp_calls >= at;
}

static void fail_each(const char *key, enum vb_qp_kind kind, int want)
{
	int at = 1;

	while (live_with(key, kind, at))
		at++;
	CHECK_EQ(at - 1, want);
}

/* Three made, three steps, three ended; SRD has an address handle more. */
Test(qp, whatever_call_of_rc_fails_leaves_nothing_half_made)
{
	fail_each("mlx", VB_QP_RC, 9);
}

Test(qp, whatever_call_of_uc_fails_leaves_nothing_half_made)
{
	fail_each("apple", VB_QP_UC, 9);
}

Test(qp, whatever_call_of_srd_fails_leaves_nothing_half_made)
{
	fail_each("efa", VB_QP_SRD, 11);
}

Test(qp, a_failure_says_which_call_of_which_queue_pair)
{
	struct fake_bed bed = fake_bed("efa");
	struct vb_qp *qp;

	fake.fail_at = 3;
	CHECK_EQ(vb_qp_create(bed.domain, VB_QP_SRD, NULL, NULL, &qp), -WRONG);
	CHECK_HAS(vb_last_error(), "create_qp (SRD, 512 sends of 1 SGEs, 256 "
				   "receives of 1) of efa_0: No space");
	fake.fail_at = 0;
	qp = fake_qp(&bed, VB_QP_SRD);
	fake.fail_at = fake.qp_calls + 3;
	CHECK_EQ(vb_qp_connect(qp, &fake_peer), -WRONG);
	CHECK_HAS(vb_last_error(),
		  "modify_qp to RTR, SRD queue pair 0x1a, of efa_0: No space");
	CHECK_EQ(vb_qp_close(qp), 0);
	fake_bed_close(&bed);
}

Test(qp, a_failure_of_the_undoing_does_not_hide_the_cause)
{
	struct fake_bed bed = fake_bed("mlx");
	struct vb_qp *qp;

	fake.fail_at = 3;
	fake.fail_count = 2; /* create_qp, and a destroy_cq */
	CHECK_EQ(vb_qp_create(bed.domain, VB_QP_RC, NULL, NULL, &qp), -WRONG);
	CHECK_HAS(vb_last_error(), "create_qp (RC");
	CHECK_HAS(fake.lines, "destroy_cq of mlx5_0: No space");
	CHECK_EQ(fake.live, 1);
	fake_bed_close(&bed);
}

Test(qp, one_that_cannot_be_reset_is_only_to_be_closed)
{
	struct fake_bed bed = fake_bed("efa");
	struct vb_qp *qp = fake_qp(&bed, VB_QP_SRD);
	int calls;

	fake.fail_at = fake.qp_calls + 3; /* to RTR, and to RESET */
	fake.fail_count = 2;
	CHECK_EQ(vb_qp_connect(qp, &fake_peer), -ENOTRECOVERABLE);
	CHECK_HAS(vb_last_error(), "modify_qp to RTR");
	CHECK_HAS(vb_last_error(), "; and it does not reset");
	calls = fake.qp_calls;
	CHECK_EQ(vb_qp_connect(qp, &fake_peer), -ENOTRECOVERABLE);
	CHECK_EQ(fake.qp_calls, calls);
	CHECK_EQ(vb_qp_close(qp), 0);
	CHECK_EQ(fake.live, 0);
	fake_bed_close(&bed);
}
