/* SPDX-License-Identifier: MIT */
/*
 * Goal: what is written and read in place is the same stream, and only what was
 * reserved or peeked at just now counts. Method: as test_stream.c.
 */
#include <errno.h>
#include <string.h>

#include "tests/harness.h"
#include "tests/lib/shapes.h"

#define IN_PLACE_BYTES 100000u

/* Both ways at once; pieces of odd sizes, whatever there is room for. */
static int send_in_place(struct vb_transport *t)
{
	uint64_t at = 0;
	void *space;
	size_t size;
	int rc = 0;

	for (uint64_t want = 1; !rc && at < IN_PLACE_BYTES;
	     want = want * 7 % 9001 + 1) {
		rc = vb_send_reserve(t, &space, &size);
		if (rc)
			break;
		if (size == 0 || vb_send_commit(t, size + 1) != -EINVAL)
			return -EBADMSG;
		rc = vb_send_reserve(t, &space, &size);
		if (rc)
			break;
		size = size < want ? size : want;
		size = size < IN_PLACE_BYTES - at ? size : IN_PLACE_BYTES - at;
		stage_fill_pattern(space, at, size);
		at += size;
		rc = vb_send_commit(t, size);
	}
	return rc ? rc : vb_flush(t);
}

static int recv_in_place(struct vb_transport *t)
{
	uint64_t at = 0;
	const void *data;
	size_t size;
	int rc = 0;

	for (uint64_t want = 5; !rc && at < IN_PLACE_BYTES;
	     want = want * 11 % 7001 + 1) {
		rc = vb_recv_peek(t, &data, &size);
		if (rc)
			break;
		if (size == 0 || vb_recv_consume(t, size + 1) != -EINVAL)
			return -EBADMSG;
		rc = vb_recv_peek(t, &data, &size);
		if (rc)
			break;
		size = size < want ? size : want;
		if (!stage_is_pattern(data, at, size))
			return -EBADMSG;
		at += size;
		rc = vb_recv_consume(t, size);
	}
	return rc;
}

static int both_in_place(struct stage_end *end)
{
	struct vb_transport *t = end->transport;
	void *space;
	size_t size;
	int rc = vb_send_reserve(t, &space, &size);

	/* A reservation that comes to nothing leaves no empty frame. */
	if (!rc)
		rc = vb_flush(t);
	if (!rc)
		rc = send_in_place(t);
	return rc ? rc : recv_in_place(t);
}

Test(in_place, A15_A19_what_is_written_and_read_in_place_is_the_same_stream)
{
	for (int s = 0; s <= SHAPE_COUNT; s++)
		for (int p = SIM_EAGER; p <= SIM_PREEMPT; p++) {
			struct stage stage;

			shape_init(&stage, &shapes[s % SHAPE_COUNT], NULL);
			for (int i = 0; i < 2; i++) {
				stage.end[i].script = both_in_place;
				if (s < SHAPE_COUNT)
					continue;
				stage.end[i].has_connect = true;
				stage.end[i].options.transport =
					VB_TRANSPORT_TCP;
			}
			stage_run(&stage, (enum sim_personality)p);
			for (int i = 0; i < 2; i++)
				CHECK(stage.end[i].rc == 0, "%d, %d: %d %s", s,
				      p, stage.end[i].rc,
				      stage.end[i].cause.text);
			stage_fini(&stage);
		}
}

static int commit_nothing_reserved(struct stage_end *end)
{
	struct vb_transport *t = end->transport;
	uint8_t word[3] = "abc", back[3];
	const void *data;
	void *space;
	size_t size;
	int rc = vb_send(t, word, 3);

	if (rc || vb_send_commit(t, 1) != -EINVAL)
		return rc ? rc : -EBADMSG;
	rc = vb_send_reserve(t, &space, &size);
	if (rc || vb_send(t, word, 3) || vb_send_commit(t, 1) != -EINVAL)
		return rc ? rc : -EBADMSG;
	rc = vb_flush(t);
	if (rc || vb_recv_consume(t, 1) != -EINVAL)
		return rc ? rc : -EBADMSG;
	rc = vb_recv_peek(t, &data, &size);
	if (rc || vb_recv(t, back, 3) || vb_recv_consume(t, 1) != -EINVAL)
		return rc ? rc : -EBADMSG;
	return memcmp(back, word, 3) ? -EBADMSG : vb_recv(t, back, 3);
}

Test(in_place, A15_only_what_was_reserved_or_peeked_at_just_now_counts)
{
	for (int s = 0; s < SHAPE_COUNT; s++) {
		struct stage stage;

		shape_init(&stage, &shapes[s], NULL);
		for (int i = 0; i < 2; i++)
			stage.end[i].script = commit_nothing_reserved;
		stage_run(&stage, SIM_EAGER);
		for (int i = 0; i < 2; i++)
			CHECK(stage.end[i].rc == 0, "%s: %d %s", shapes[s].name,
			      stage.end[i].rc, stage.end[i].cause.text);
		stage_fini(&stage);
	}
}

/* Something waits in the backlog, and something to be posted. */
static int peek_with_pending(struct stage_end *end)
{
	struct vb_transport *t = end->transport;
	const void *data;
	size_t size;
	int rc = stage_send_pattern(t, 0, SHAPE_BYTES);

	if (!rc && !t->backlog.bytes)
		return -EBADMSG;
	if (!rc)
		rc = stage_send_pattern(t, SHAPE_BYTES, 1);
	if (!rc)
		rc = vb_recv_peek(t, &data, &size);
	/* The peer has what it needs for its answer now. */
	return rc ? rc : stage_recv_pattern(t, 0, SHAPE_BYTES + 1);
}

static int answer_at_the_end(struct stage_end *end)
{
	struct vb_transport *t = end->transport;
	int rc = stage_send_pattern(t, 0, SHAPE_BYTES);

	if (!rc)
		rc = stage_recv_pattern(t, 0, SHAPE_BYTES + 1);
	if (!rc)
		rc = stage_send_pattern(t, SHAPE_BYTES, 1);
	return rc ? rc : vb_flush(t);
}

Test(in_place, A18_a_look_at_the_backlog_posts_what_is_pending)
{
	struct stage stage;

	shape_init(&stage, &shapes[0], NULL);
	stage.end[0].script = peek_with_pending;
	stage.end[1].script = answer_at_the_end;
	stage_run(&stage, SIM_EAGER);
	for (int i = 0; i < 2; i++)
		CHECK(stage.end[i].rc == 0, "%d: %d %s", i, stage.end[i].rc,
		      stage.end[i].cause.text);
	stage_fini(&stage);
}
