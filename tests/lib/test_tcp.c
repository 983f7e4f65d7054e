/* SPDX-License-Identifier: MIT */
/*
 * Goal: the fallback is the same stream under the same contract. Method: two
 * ends over the run's stream, which holds 64 KiB, with no device in sight.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/harness.h"
#include "tests/rig.h"
#include "tests/stage.h"

#define BYTES 1000000u

static void play(struct stage *stage, int (*a)(struct stage_end *),
		 int (*b)(struct stage_end *))
{
	stage->end[0].script = a;
	stage->end[1].script = b;
	for (int i = 0; i < 2; i++) {
		stage->end[i].has_connect = true;
		stage->end[i].options.transport = VB_TRANSPORT_TCP;
	}
	stage_run(stage, SIM_EAGER);
	for (int i = 0; i < 2; i++)
		CHECK(strcmp(stage->end[i].transport_name, "tcp") == 0, "%s",
		      stage->end[i].transport_name);
}

static int both_send(struct stage_end *end)
{
	int rc = stage_send_pattern(end->transport, 0, BYTES);

	if (!rc)
		rc = vb_flush(end->transport);
	if (!rc)
		rc = stage_recv_pattern(end->transport, 0, 100);
	return rc ? rc : stage_recv_pattern(end->transport, 100, BYTES - 100);
}

Test(tcp, DA10_two_ends_that_send_first_do_not_wait_for_ever)
{
	struct stage stage;

	stage_init(&stage, "apple-tb", NULL);
	play(&stage, both_send, both_send);
	for (int i = 0; i < 2; i++)
		CHECK(stage.end[i].rc == 0, "%s", stage.end[i].cause.text);
	stage_fini(&stage);
}

Test(tcp, DA10_what_may_wait_has_a_limit_that_is_told)
{
	struct stage stage;

	stage_init(&stage, "apple-tb", NULL);
	stage.end[0].options.backlog_bytes = 10000;
	play(&stage, both_send, both_send);
	CHECK_EQ(stage.end[0].rc, -ENOBUFS);
	CHECK_HAS(stage.end[0].cause.text, "the limit is 10000");
	CHECK(stage.end[1].rc < 0, "the other");
	stage_fini(&stage);
}

static int recv_one(struct stage_end *end)
{
	return stage_recv_pattern(end->transport, 0, 1);
}

static int send_much(struct stage_end *end)
{
	return stage_send_pattern(end->transport, 0, BYTES);
}

static int do_nothing(struct stage_end *end)
{
	(void)end;
	stage_sleep(3 * STAGE_TIMEOUT_NS);
	return 0;
}

static int leave(struct stage_end *end)
{
	(void)end;
	sim_stream_shutdown();
	return 0;
}

Test(tcp, A31_DA5_silence_and_an_end_are_errors_with_a_cause)
{
	static int (*const scripts[])(struct stage_end *) = {recv_one,
							     send_much};

	for (int i = 0; i < 2; i++) {
		struct stage stage;

		stage_init(&stage, "apple-tb", NULL);
		play(&stage, scripts[i], do_nothing);
		CHECK_EQ(stage.end[0].rc, -ETIMEDOUT);
		CHECK_EQ(stage.end[0].cause.code, VB_TIMEOUT);
		CHECK_EQ(stage.end[0].cause.is_send, i == 1);
		stage_fini(&stage);
		stage_init(&stage, "apple-tb", NULL);
		play(&stage, scripts[i], leave);
		CHECK_EQ(stage.end[0].rc, -ECONNRESET);
		CHECK_EQ(stage.end[0].cause.code, VB_PEER_GONE);
		CHECK_EQ(stage.end[0].closed, -ECONNRESET);
		stage_fini(&stage);
	}
}

static int zero_sizes(struct stage_end *end)
{
	uint8_t byte = 1;

	if (vb_send(end->transport, &byte, 0) ||
	    vb_recv(end->transport, &byte, 0) || vb_flush(end->transport) ||
	    vb_activate(end->transport, end->caps) != -EALREADY)
		return -EBADMSG;
	return vb_sent_bytes(end->transport) ||
			       vb_received_bytes(end->transport)
		       ? -EBADMSG
		       : 0;
}

Test(tcp, DA19_sizes_of_zero_do_nothing)
{
	struct stage stage;

	stage_init(&stage, "apple-tb", NULL);
	play(&stage, zero_sizes, zero_sizes);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(stage.end[i].rc, 0);
	stage_fini(&stage);
}

/* The limit is for what nobody asked for. */
static int peek_all(struct stage_end *end)
{
	uint64_t at = 0;
	const void *data;
	size_t size;
	int rc = 0;

	while (!rc && at < BYTES) {
		rc = vb_recv_peek(end->transport, &data, &size);
		if (!rc && !stage_is_pattern(data, at, size))
			rc = -EBADMSG;
		at += size;
		if (!rc)
			rc = vb_recv_consume(end->transport, size);
	}
	return rc;
}

Test(tcp, DA10_who_only_receives_has_no_limit)
{
	struct stage stage;

	stage_init(&stage, "apple-tb", NULL);
	stage.end[0].options.backlog_bytes = 10;
	play(&stage, peek_all, send_much);
	for (int i = 0; i < 2; i++)
		CHECK(stage.end[i].rc == 0, "%s", stage.end[i].cause.text);
	stage_fini(&stage);
}

Test(tcp, what_is_no_socket_is_no_peer_that_is_gone)
{
	struct vb_options options = {.fd = -1, .transport = VB_TRANSPORT_TCP};
	struct vb_transport *t = NULL;
	struct vb_cause cause;

	CHECK_EQ(vb_connect(&options, &t, &cause), -EBADF);
	CHECK_EQ(cause.code, VB_DEVICE);
	CHECK_EQ(cause.offset_bytes, -1);
	CHECK(t == NULL, "a transport");
	CHECK_EQ(vb_close(NULL, &cause), 0);
	CHECK_EQ(cause.code, VB_OK);
}

/* A real socket, its peer gone: an error, not a signal. */
Test(tcp, DA14_a_peer_that_left_is_an_error_not_a_signal)
{
	struct vb_options options = {.timeout_ns = 2000000000};
	struct vb_transport *t;
	uint8_t bytes[4096] = {0};
	int fds[2], rc = 0;

	rig_sockets(fds);
	options.fd = fds[0];
	CHECK_EQ(vb_tcp_open(&options, &t), 0);
	close(fds[1]);
	signal(SIGPIPE, SIG_DFL);
	for (int i = 0; i < 100 && !rc; i++)
		rc = vb_send(t, bytes, sizeof(bytes));
	CHECK_EQ(rc, -ECONNRESET);
	CHECK_EQ(vb_cause(t)->code, VB_PEER_GONE);
	CHECK_EQ(vb_close(t, NULL), -ECONNRESET);
	close(fds[0]);
}

Test(tcp, N1_capabilities_that_do_not_come_are_waited_for_once)
{
	struct vb_options options = {.timeout_ns = 20000000,
				     .transport = VB_TRANSPORT_TCP};
	struct vb_transport *t = NULL;
	struct vb_cause cause;
	int fds[2];

	rig_sockets(fds);
	options.fd = fds[0];
	CHECK_EQ(vb_connect(&options, &t, &cause), -ETIMEDOUT);
	CHECK_EQ(cause.code, VB_TIMEOUT);
	CHECK_HAS(cause.text, "capabilities");
	close(fds[1]);
	CHECK_EQ(vb_connect(&options, &t, &cause), -ECONNRESET);
	CHECK(t == NULL, "a transport");
	close(fds[0]);
}
