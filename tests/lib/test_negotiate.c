/* SPDX-License-Identifier: MIT */
/*
 * Goal: after any set-up both ends are live, or both are on the socket, or the
 * connection is over: never one live and the other not. Method: deterministic
 * runs of both ends in every shape, with each step of it made to fail.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness.h"
#include "tests/lib/shapes.h"

static int say_8(struct stage_end *end)
{
	int rc = stage_send_pattern(end->transport, 0, 8);

	if (!rc)
		rc = vb_flush(end->transport);
	return rc ? rc : stage_recv_pattern(end->transport, 0, 8);
}

/* Two ends of the models and modes given, that connect and say something. */
static void meet(struct stage *stage, const char *models, enum vb_mode a,
		 enum vb_mode b)
{
	stage_init(stage, models, NULL);
	stage->end[0].options.mode = a;
	stage->end[1].options.mode = b;
	for (int i = 0; i < 2; i++) {
		stage->end[i].has_connect = true;
		stage->end[i].script = say_8;
	}
	stage_run(stage, SIM_EAGER);
	CHECK_EQ(stage->played, 0);
}

static void both_are(struct stage *stage, const char *transport)
{
	for (int i = 0; i < 2; i++) {
		struct stage_end *end = &stage->end[i];

		CHECK(end->activated == 0 && end->rc == 0, "%d: %d, %d: %s", i,
		      end->activated, end->rc, end->cause.text);
		CHECK(strcmp(end->transport_name, transport) == 0, "%d: %s", i,
		      end->transport_name);
	}
}

/* --- who has no RDMA --- */

Test(negotiate, N1_an_end_without_rdma_keeps_both_on_the_socket)
{
	static const char *const models[] = {
		"apple-tb|apple-tb,ipv4_gid=none",
		"apple-tb,ipv4_gid=none|apple-tb",
		"apple-tb,ipv4_gid=none|apple-tb,cable=down",
	};

	for (int i = 0; i < 3; i++)
		for (int mode = 0; mode < 3; mode++) {
			struct stage stage;

			meet(&stage, models[i], (enum vb_mode)mode,
			     (enum vb_mode)mode);
			both_are(&stage, "tcp");
			/* Capabilities and our 8 bytes, and nothing else. */
			for (int n = 0; n < 2; n++) {
				CHECK_EQ(stage.end[n].boot_sent, 24 + 8);
				CHECK_EQ(stage.end[n].boot_received, 24 + 8);
				CHECK_EQ(stage.end[n].cause.code, VB_NO_DEVICE);
			}
			stage_fini(&stage);
		}
}

/* Whatever the device says, EINVAL included, is no fault of the options. */
Test(negotiate, N1_a_device_that_refuses_keeps_both_on_the_socket)
{
	struct stage stage;

	stage_init(&stage, "mlx5", "a.verbs.alloc_pd #0 fail=EINVAL");
	for (int i = 0; i < 2; i++) {
		stage.end[i].has_connect = true;
		stage.end[i].script = say_8;
	}
	stage_run(&stage, SIM_EAGER);
	both_are(&stage, "tcp");
	CHECK_HAS(stage.end[0].cause.text, "alloc_pd");
	stage_fini(&stage);
}

/* One end's vb_connect fails: the other hears of it at once. */
static void connect_badly(void (*spoil)(struct vb_options *options), int rc,
			  const char *text)
{
	struct stage stage;

	stage_init(&stage, "mlx5", NULL);
	spoil(&stage.end[0].options);
	for (int i = 0; i < 2; i++) {
		stage.end[i].has_connect = true;
		stage.end[i].script = say_8;
	}
	stage_run(&stage, SIM_EAGER);
	CHECK_EQ(stage.end[0].activated, rc);
	CHECK_HAS(stage.end[0].cause.text, text);
	CHECK(stage.end[1].activated < 0 || stage.end[1].rc < 0, "alone");
	CHECK(stage.result.time_ns < STAGE_TIMEOUT_NS / 2, "it waited");
	stage_fini(&stage);
}

static void too_many_slots(struct vb_options *options)
{
	options->slots = 65;
}

static void no_mode(struct vb_options *options)
{
	options->mode = (enum vb_mode)77;
}

static void no_transport(struct vb_options *options)
{
	options->transport = (enum vb_transport_kind)99;
}

Test(negotiate, N3_A9_a_connect_that_fails_ends_the_stream)
{
	connect_badly(too_many_slots, -EINVAL, "slots 65");
	connect_badly(no_mode, -EINVAL, "mode 77");
	connect_badly(no_transport, -EINVAL, "transport 99");
}

Test(negotiate, N3_A9_an_end_that_waits_in_vain_leaves_nobody_alone)
{
	struct stage stage;

	stage_init(&stage, "apple-tb", "a.boot.in @0 stall");
	for (int i = 0; i < 2; i++)
		stage.end[i].has_connect = true;
	stage.end[1].options.timeout_ns = 100 * STAGE_TIMEOUT_NS;
	stage_run(&stage, SIM_EAGER);
	CHECK_EQ(stage.end[0].activated, -ETIMEDOUT);
	CHECK_HAS(stage.end[0].cause.text, "capabilities");
	CHECK_EQ(stage.end[1].activated, -ECONNRESET);
	/* The run's clock begins at 0, which is "not yet" to a wait. */
	CHECK(stage.result.time_ns < 3 * STAGE_TIMEOUT_NS, "it waited");
	stage_fini(&stage);
}

/* --- probes that fail --- */

Test(negotiate, N2_N5_A12_A35_a_probe_that_fails_late_advertises_nothing)
{
	static const char *const calls[] = {
		"open_device #0", "open_device #1",   "alloc_pd #0",
		"create_cq #0",	  "create_qp sticky", "query_qp #0",
		"modify_qp #0",	  "reg_mr #0",	      "reg_mr #1",
		"create_cq #1", /* last: UC has one */
	};

	for (int s = 0; s < SHAPE_COUNT; s++) {
		size_t count = sizeof(calls) / sizeof(*calls) -
			       (shape_cqs(&shapes[s]) == 1);

		for (size_t i = 0; i < count; i++) {
			static const uint8_t zero[VB_CAPS_BYTES];
			bool is_sticky = strstr(calls[i], "sticky");
			struct stage stage;
			char plan[80];

			snprintf(plan, sizeof(plan),
				 "a.verbs.%.*s fail=ENOMEM%s",
				 is_sticky ? 12 : 20,
				 is_sticky ? "create_qp #0" : calls[i],
				 is_sticky ? " sticky" : "");
			shape_init(&stage, &shapes[s], plan);
			stage_run(&stage, SIM_EAGER);
			CHECK(stage.end[0].probed < 0, "%s: %s", shapes[s].name,
			      plan);
			CHECK(memcmp(stage.end[1].peer_caps, zero,
				     sizeof(zero)) == 0,
			      "%s: %s", shapes[s].name, plan);
			CHECK_EQ(stage.end[1].activated, 1);
			stage_fini(&stage); /* N-5: nothing is left */
		}
	}
}

/* --- activations that fail --- */

/* Not one that believes it is live beside one that does not: at most one that
 * was, and has learnt better when it tried to use it. */
static void agree(struct stage *stage, const char *what)
{
	int a = stage->end[0].activated, b = stage->end[1].activated;

	CHECK(stage->played == 0, "%s: %s", what, stage->result.text);
	CHECK(!(a == 0 && b == 1) && !(a == 1 && b == 0), "%s: %d and %d", what,
	      a, b);
	for (int i = 0; i < 2; i++) {
		bool is_alone = stage->end[i].activated == 0 &&
				stage->end[1 - i].activated < 0;

		CHECK(!is_alone || stage->end[i].rc < 0, "%s: %d is live alone",
		      what, i);
	}
}

static void activate_under(const struct shape *shape, const char *plan)
{
	struct stage stage;
	char what[120];

	snprintf(what, sizeof(what), "%s, %s", shape->name, plan);
	shape_init(&stage, shape, plan);
	for (int i = 0; i < 2; i++)
		stage.end[i].script = say_8;
	stage_run(&stage, SIM_EAGER);
	CHECK(stage.end[0].activated || stage.end[1].activated ||
		      stage.end[0].rc || stage.end[1].rc,
	      "%s: no strike", what);
	agree(&stage, what);
	stage_fini(&stage);
}

Test(negotiate, N3_N5_A9_DL1_one_end_that_cannot_activate_is_never_alone)
{
	static const char *const calls[] = {
		"modify_qp #1",
		"modify_qp #2",
		"post_recv #0",
		"post_recv #7",
	};

	for (int s = 0; s < SHAPE_COUNT; s++)
		for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++)
			for (int side = 0; side < 2; side++) {
				char plan[80];

				snprintf(plan, sizeof(plan),
					 "%c.verbs.%s fail=EINVAL", 'a' + side,
					 calls[i]);
				activate_under(&shapes[s], plan);
			}
}

/* Every byte of the exchange, in every way a stream can break. */
Test(negotiate, N3_A9_DA12_DA27_a_byte_that_goes_wrong_leaves_nobody_alone)
{
	static const char *const effects[] = {"flip xor=0x01", "flip xor=0x80",
					      "eof", "stall"};

	for (int s = 0; s < 2; s++) {
		int end = s == 0 ? 25 : 24 + VB_RECORD_BYTES + VB_COMMIT_BYTES;

		for (int at = 24; at < end; at++)
			for (int i = 0; i < 4; i++) {
				char plan[80];

				snprintf(plan, sizeof(plan),
					 "a.boot.out @%d %s", at, effects[i]);
				activate_under(&shapes[s], plan);
			}
	}
}

/* --- modes --- */

static void modes(const char *model, enum vb_mode a, enum vb_mode b,
		  const char *transport)
{
	struct stage stage;

	meet(&stage, model, a, b);
	both_are(&stage, transport);
	stage_fini(&stage);
}

Test(negotiate, DA23_a_hardened_end_is_compat_to_a_compat_one)
{
	modes("apple-tb", VB_HARDENED, VB_COMPAT, "apple_uc");
	modes("apple-tb", VB_COMPAT, VB_HARDENED, "apple_uc");
	modes("mlx5", VB_HARDENED, VB_COMPAT, "rc");
	modes("rxe", VB_COMPAT, VB_HARDENED, "rc");
	modes("rxe", VB_HARDENED_ONLY, VB_HARDENED, "rc");
	modes("apple-tb", VB_HARDENED, VB_HARDENED_ONLY, "apple_uc");
}

Test(negotiate, N3_a_hardened_only_end_refuses_a_compat_one)
{
	struct stage stage;

	/* Where there is an exchange, both stay on the socket... */
	meet(&stage, "apple-tb", VB_HARDENED_ONLY, VB_COMPAT);
	both_are(&stage, "tcp");
	CHECK_HAS(stage.end[0].cause.text, "compat mode only");
	stage_fini(&stage);
	/* ... and where there is none, nobody does (D-L1). */
	meet(&stage, "mlx5", VB_COMPAT, VB_HARDENED_ONLY);
	CHECK_EQ(stage.end[1].activated, -EPROTO);
	CHECK_HAS(stage.end[1].cause.text, "compat mode only");
	CHECK(stage.end[0].rc < 0, "the other is alone");
	stage_fini(&stage);
}

Test(negotiate, N4_A7_A36_once_live_nothing_crosses_the_socket)
{
	static const uint64_t bytes[SHAPE_COUNT] = {24 + 1, 24 + 60, 24,
						    24 + 60, 24 + 60};

	for (int s = 0; s < SHAPE_COUNT; s++) {
		struct stage stage;

		shape_init(&stage, &shapes[s], NULL);
		stage.end[0].script = shape_send;
		stage.end[1].script = shape_recv;
		stage_run(&stage, SIM_EAGER);
		for (int i = 0; i < 2; i++) {
			CHECK_EQ(stage.end[i].rc, 0);
			CHECK_EQ(stage.end[i].boot_sent, bytes[s]);
			CHECK_EQ(stage.end[i].boot_received, bytes[s]);
		}
		stage_fini(&stage);
	}
}

/* --- what is agreed on --- */

static int note_wire(struct stage_end *end)
{
	struct qp_stream *qs = qs_of(end);

	end->stride = qs->wire.stride_bytes;
	end->slots = qs->recv_slots;
	end->has_crc = qs->wire.has_crc;
	return say_8(end);
}

Test(negotiate, DA27_the_smaller_stride_and_depth_are_both_ends)
{
	static const struct shape *const some[] = {&shapes[1], &shapes[3]};

	for (int s = 0; s < 2; s++) {
		struct stage stage;

		shape_init(&stage, some[s], NULL);
		stage.end[0].options.stride_bytes = 131072;
		stage.end[0].options.slots = 5;
		stage.end[0].options.has_crc = true;
		stage.end[1].options.stride_bytes = 16384;
		stage.end[1].options.slots = 30;
		stage.end[1].options.has_crc = false;
		for (int i = 0; i < 2; i++)
			stage.end[i].script = note_wire;
		stage_run(&stage, SIM_EAGER);
		for (int i = 0; i < 2; i++) {
			CHECK(stage.end[i].rc == 0, "%s",
			      stage.end[i].cause.text);
			CHECK_EQ(stage.end[i].stride, 16384);
			CHECK_EQ(stage.end[i].slots, 5);
			CHECK_EQ(stage.end[i].has_crc, false);
		}
		stage_fini(&stage);
	}
}

Test(negotiate, DA22_DL8_the_smaller_mtu_is_both_ends)
{
	struct stage stage;

	stage_init(&stage, "mlx5,mtu=1024|mlx5,mtu=4096", NULL);
	for (int i = 0; i < 2; i++) {
		stage.end[i].options.mode = VB_HARDENED;
		stage.end[i].script = say_8;
	}
	stage_run(&stage, SIM_EAGER);
	for (int i = 0; i < 2; i++) {
		CHECK(stage.end[i].rc == 0, "%s", stage.end[i].cause.text);
		CHECK_EQ(stage.end[i].spy.rtr.path_mtu, IBV_MTU_1024);
	}
	stage_fini(&stage);
}

/* --- peers that are no peers --- */

/* Both layouts over one model: what tells them apart is in the bytes only. */
static void meet_other(struct stage *stage, int apple, enum vb_mode a,
		       enum vb_mode b)
{
	stage_init(stage, "mlx5", NULL);
	stage->end[0].options.mode = a;
	stage->end[1].options.mode = b;
	for (int i = 0; i < 2; i++) {
		stage->end[i].options.transport =
			i == apple ? VB_TRANSPORT_APPLE_UC : VB_TRANSPORT_RC;
		stage->end[i].has_connect = true;
		stage->end[i].script = say_8;
	}
	stage_run(stage, SIM_EAGER);
	for (int i = 0; i < 2; i++)
		CHECK_HAS(stage->end[i].cause.text,
			  i == apple ? "a Linux end's, this end is apple_uc"
				     : "an Apple end's, this end is rc");
}

Test(negotiate, N6_DN1_the_other_platforms_end_is_refused)
{
	for (int apple = 0; apple < 2; apple++) {
		struct stage stage;

		/* A compat peer may go on alone: then nobody does. */
		meet_other(&stage, apple, VB_COMPAT, VB_COMPAT);
		for (int i = 0; i < 2; i++) {
			CHECK_EQ(stage.end[i].activated, -EPROTO);
			CHECK_EQ(stage.end[i].boot_sent, 24);
		}
		stage_fini(&stage);
		/* Two hardened ends both see it, and have the socket. */
		meet_other(&stage, apple, VB_HARDENED, VB_HARDENED_ONLY);
		both_are(&stage, "tcp");
		stage_fini(&stage);
	}
}

static int activate_with_own(struct stage_end *end)
{
	end->activated = vb_activate(end->transport, end->caps);
	return 0;
}

Test(negotiate, DA28_an_end_is_not_connected_with_itself)
{
	struct stage stage;

	shape_init(&stage, &shapes[0], NULL);
	stage.end[0].skips_activate = true;
	stage.end[0].script = activate_with_own;
	stage_run(&stage, SIM_EAGER);
	CHECK_EQ(stage.end[0].activated, 1);
	CHECK_HAS(stage.end[0].cause.text, "this end's own GID");
	CHECK_EQ(stage.end[1].activated, 1);
	stage_fini(&stage);
}

static void link_local_of(int host, uint8_t gid[16])
{
	struct ibv_device **list;
	struct ibv_context *context;
	union ibv_gid raw;

	sim_host_set(host);
	list = ibv_get_device_list(NULL);
	context = ibv_open_device(list[0]);
	CHECK_EQ(ibv_query_gid(context, 1, 0, &raw), 0);
	memcpy(gid, raw.raw, 16);
	CHECK_EQ(ibv_close_device(context), 0);
	ibv_free_device_list(list);
	sim_host_set(-1);
}

/* On a real host each end of a cable has an address of its own. */
static int activate_with_own_gid(struct stage_end *end)
{
	end->caps[0] ^= 1; /* another queue pair */
	end->activated = vb_activate(end->transport, end->caps);
	return 0;
}

Test(negotiate, DA28_nor_with_another_queue_pair_of_its_own_port)
{
	struct stage stage;

	shape_init(&stage, &shapes[0], NULL);
	for (int i = 0; i < 2; i++)
		link_local_of(i, stage.end[i].options.gid);
	stage.end[0].skips_activate = true;
	stage.end[0].script = activate_with_own_gid;
	stage_run(&stage, SIM_EAGER);
	CHECK_EQ(stage.end[0].activated, 1);
	CHECK_HAS(stage.end[0].cause.text, "this end's own GID");
	stage_fini(&stage);
}

static int activate_with_garbage(struct stage_end *end)
{
	uint8_t caps[VB_CAPS_BYTES];

	memset(caps, 0xa7, sizeof(caps));
	end->activated = vb_activate(end->transport, caps);
	return 0;
}

Test(negotiate, N6_capabilities_of_no_layout_end_the_connection)
{
	for (int s = 0; s < SHAPE_COUNT; s++) {
		struct stage stage;

		shape_init(&stage, &shapes[s], NULL);
		stage.end[0].skips_activate = true;
		stage.end[0].script = activate_with_garbage;
		stage.end[1].script = say_8;
		stage_run(&stage, SIM_EAGER);
		CHECK_EQ(stage.end[0].activated, -EPROTO);
		CHECK_HAS(stage.end[0].cause.text, "no known layout");
		CHECK(stage.end[1].activated < 0 || stage.end[1].rc < 0,
		      "%s: alone", shapes[s].name);
		stage_fini(&stage);
	}
}
