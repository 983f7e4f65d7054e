/* SPDX-License-Identifier: MIT */
/*
 * Goal: nothing that the wire or the device does is believed, and what is seen
 * is told with its place. Method: a plan strikes the wire, or the table of
 * pair.c misbehaves; the receiving end's cause is looked at.
 */
#include "tests/lib/pair.h"

#include <errno.h>
#include <sys/socket.h>

#include "lib/qp_stream.h"
#include "tests/harness.h"

static int recv_and_end(struct pair_end *end)
{
	int rc = stage_recv_pattern(end->transport, 0, 20 * PAIR_PAYLOAD);

	shutdown(end->fd, SHUT_RDWR);
	return rc;
}

static int send_20_and_wait(struct pair_end *end)
{
	int rc = stage_send_pattern(end->transport, 0, 20 * PAIR_PAYLOAD);

	if (!rc)
		rc = vb_flush(end->transport);
	pair_wait_for_end(end);
	return rc;
}

static void strike(const char *plan, struct pair *pair)
{
	pair_init(pair, "apple-tb", plan);
	pair->end[0].script = send_20_and_wait;
	pair->end[1].script = recv_and_end;
	pair_run(pair);
}

Test(apple_uc, A30_a_bad_magic_is_seen_where_it_is)
{
	struct pair pair;

	strike("a.qp0.tx #7 corrupt at=2 xor=0x10", &pair);
	CHECK_EQ(pair.end[1].rc, -EPROTO);
	CHECK_EQ(pair.end[1].cause.code, VB_PROTOCOL);
	CHECK_EQ(pair.end[1].cause.frame, 7);
	CHECK_EQ(pair.end[1].cause.slot, 7);
	CHECK_EQ(pair.end[1].cause.offset_bytes, 7 * PAIR_PAYLOAD);
	CHECK(!pair.end[1].cause.is_send, "receiving");
	pair_fini(&pair);
}

Test(apple_uc, A30_a_length_over_the_payload_is_never_copied)
{
	struct pair pair;

	strike("a.qp0.tx #1 set at=7 value=0x80", &pair);
	CHECK_EQ(pair.end[1].rc, -EPROTO);
	CHECK_HAS(pair.end[1].cause.text, "payload");
	CHECK_EQ(pair.end[1].cause.frame, 1);
	pair_fini(&pair);
}

Test(apple_uc, A28_a_failed_completion_is_told_with_its_status)
{
	struct pair pair;

	/* One frame short: the counts differ, and the receive fails (R15). */
	strike("a.qp0.tx #3 trunc len=126976", &pair);
	CHECK_EQ(pair.end[1].rc, -EIO);
	CHECK_EQ(pair.end[1].cause.code, VB_COMPLETION);
	CHECK_EQ(pair.end[1].cause.wc_status, IBV_WC_LOC_LEN_ERR);
	CHECK_EQ(pair.end[1].cause.frame, 3);
	pair_fini(&pair);
}

Test(apple_uc, DA3_a_short_stride_flagged_success_is_refused)
{
	struct pair pair;

	/* Inside the last frame: the counts agree, the lengths do not. */
	strike("a.qp0.tx #3 trunc len=131071", &pair);
	CHECK_EQ(pair.end[1].rc, -EPROTO);
	CHECK_HAS(pair.end[1].cause.text, "131071 bytes");
	pair_fini(&pair);
}

Test(apple_uc, DA4_a_success_without_data_is_no_frame)
{
	struct pair pair;

	/* The completion says so, the slot holds what the last lap left. */
	pair_init(&pair, "apple-tb", NULL);
	pair.end[0].script = send_20_and_wait;
	pair.end[1].script = recv_and_end;
	pair.end[1].spy.bad.undo_slot_1_of_lap_2 = true;
	pair_run(&pair);
	CHECK_EQ(pair.end[1].rc, -EPROTO);
	CHECK_HAS(pair.end[1].cause.text, "bad frame magic 0x00000000");
	CHECK_EQ(pair.end[1].cause.frame, 17);
	pair_fini(&pair);
}

Test(apple_uc, DA2_compat_mode_cannot_see_a_lost_stride)
{
	struct pair pair;

	/* Recorded, not praised: the stream shifts by one stride, and only
	 * the missing bytes at the end are noticed. */
	strike("a.qp0.tx #3 drop", &pair);
	CHECK_EQ(pair.end[1].rc, -ETIMEDOUT);
	CHECK_EQ(pair.end[1].cause.offset_bytes, 19 * PAIR_PAYLOAD);
	pair_fini(&pair);
}

Test(apple_uc, DA16_a_foreign_wr_id_is_refused)
{
	static const uint64_t ids[] = {QS_RECV_TAG | 16, QS_RECV_TAG | 0xffff,
				       QS_RECV_TAG << 1 | QS_RECV_TAG, 99};

	for (size_t i = 0; i < sizeof(ids) / sizeof(*ids); i++) {
		struct pair pair;

		pair_init(&pair, "apple-tb", NULL);
		pair.end[0].script = send_20_and_wait;
		pair.end[1].script = recv_and_end;
		pair.end[1].spy.bad.wrong_wr_id = ids[i];
		pair_run(&pair);
		CHECK_EQ(pair.end[1].rc, -EPROTO);
		CHECK_HAS(pair.end[1].cause.text, "wr_id");
		pair_fini(&pair);
	}
}

Test(apple_uc, DA17_A24_a_completion_twice_is_refused)
{
	struct pair pair;

	pair_init(&pair, "apple-tb", NULL);
	pair.end[0].script = send_20_and_wait;
	pair.end[1].script = recv_and_end;
	pair.end[1].spy.bad.duplicate_recv = true;
	pair_run(&pair);
	CHECK_EQ(pair.end[1].rc, -EPROTO);
	CHECK_HAS(pair.end[1].cause.text, "not posted");
	pair_fini(&pair);
}

static int recv_with_dead_poll(struct pair_end *end)
{
	end->spy.bad.poll_result = -EIO;
	return recv_and_end(end);
}

Test(apple_uc, A29_a_negative_poll_is_latched)
{
	struct pair pair;

	pair_init(&pair, "apple-tb", NULL);
	pair.end[0].script = send_20_and_wait;
	pair.end[1].script = recv_with_dead_poll;
	pair_run(&pair);
	CHECK_EQ(pair.end[1].rc, -EIO);
	CHECK_HAS(pair.end[1].cause.text, "poll_cq");
	pair_fini(&pair);
}

Test(apple_uc, DA18_good_frames_of_a_failed_batch_are_discarded)
{
	struct pair pair;

	/* All five arrive before the reader looks: one batch, the third bad. */
	pair_init(&pair, "apple-tb", "a.qp0.tx #2 corrupt at=0 xor=1");
	pair.end[0].script = pair_send_and_leave; /* 3 strides and 5 bytes */
	pair.end[1].script = pair_recv_after_end;
	pair_run(&pair);
	CHECK_EQ(pair.end[1].rc, -EPROTO);
	CHECK_EQ(pair.end[1].cause.frame, 2);
	pair_fini(&pair);
}

Test(apple_uc, post_failures_name_the_call_and_the_slot)
{
	struct pair pair;

	strike("a.verbs.post_send #4 fail=EINVAL", &pair);
	CHECK_EQ(pair.end[0].rc, -EINVAL);
	CHECK_EQ(pair.end[0].cause.frame, 4);
	CHECK_EQ(pair.end[0].cause.offset_bytes, 4 * PAIR_PAYLOAD);
	CHECK(pair.end[0].cause.is_send, "sending");
	pair_fini(&pair);
	/* The 16 of the start are 0 … 15; this is the first repost. */
	strike("b.verbs.post_recv #16 fail=EFAULT", &pair);
	CHECK_EQ(pair.end[1].rc, -EFAULT);
	CHECK_HAS(pair.end[1].cause.text, "post_recv of slot 0");
	pair_fini(&pair);
}

Test(apple_uc, options_out_of_range_are_refused_by_name)
{
	struct vb_transport *transport;
	uint8_t caps[VB_CAPS_BYTES];
	struct vb_cause cause;
	struct pair pair;

	pair_init(&pair, "apple-tb", NULL);
	pair.end[0].options.stride_bytes = 5000;
	CHECK_EQ(vb_probe(&pair.end[0].options, caps, &transport, &cause),
		 -EINVAL);
	CHECK_HAS(cause.text, "stride_bytes 5000");
	pair.end[0].options.stride_bytes = 0;
	pair.end[0].options.slots = 65;
	CHECK_EQ(vb_probe(&pair.end[0].options, caps, &transport, &cause),
		 -EINVAL);
	CHECK_HAS(cause.text, "slots 65");
	pair_fini(&pair);
}

/* No transport has compat frames that end early; the parser is not to know. */
Test(apple_uc, A30_a_short_frame_has_no_more_payload_than_came)
{
	struct vb_wire wire = {.framing = VB_FRAMING_COMPAT,
			       .stride_bytes = 4096};
	uint8_t frame[64] = {0};
	uint32_t len = 0, size = vb_frame_pack(&wire, frame, 40, 0);
	char why[VB_WHY];

	CHECK_EQ(vb_frame_parse(&wire, frame, size, 0, &len, why), 0);
	CHECK_EQ(len, 40);
	CHECK_EQ(vb_frame_parse(&wire, frame, size - 1, 0, &len, why), -EPROTO);
	CHECK_HAS(why, "40 payload bytes, at most 39 fit");
}
