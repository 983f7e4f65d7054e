/* SPDX-License-Identifier: MIT */
/*
 * Goal: the transport keeps the invariants A-n of its contract and has none of
 * the seed's defects D-An. Method: two transports in two threads on a private
 * world; each end's results and verbs calls are looked at afterwards.
 */
#include "tests/lib/pair.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/harness.h"

/* --- the stream --------------------------------------------------------- */

/* Sizes around every edge of a stride, and none that nest. */
static const uint32_t sizes[] = {1,
				 7,
				 PAIR_PAYLOAD - 1,
				 PAIR_PAYLOAD,
				 PAIR_PAYLOAD + 1,
				 3 * PAIR_PAYLOAD,
				 0,
				 4096,
				 262144,
				 1000003,
				 5,
				 16 * PAIR_PAYLOAD};
#define SIZE_COUNT (sizeof(sizes) / sizeof(*sizes))

static int send_sizes(struct pair_end *end)
{
	uint64_t at = 0;
	int rc = 0;

	for (size_t i = 0; !rc && i < SIZE_COUNT; at += sizes[i++])
		rc = stage_send_pattern(end->transport, at, sizes[i]);
	return rc ? rc : vb_flush(end->transport);
}

/* The same bytes, cut elsewhere. */
static int recv_sizes(struct pair_end *end)
{
	uint64_t total = 0, at = 0, take = 3;
	int rc = 0;

	for (size_t i = 0; i < SIZE_COUNT; i++)
		total += sizes[i];
	for (; !rc && at < total; at += take, take = take * 5 % 300007 + 1) {
		if (take > total - at)
			take = total - at;
		rc = stage_recv_pattern(end->transport, at, take);
	}
	return rc;
}

static int send_then_recv(struct pair_end *end)
{
	int rc = send_sizes(end);

	return rc ? rc : recv_sizes(end);
}

static int recv_then_send(struct pair_end *end)
{
	int rc = recv_sizes(end);

	return rc ? rc : send_sizes(end);
}

Test(apple_uc, A15_A19_call_boundaries_do_not_matter)
{
	struct pair pair;

	pair_init(&pair, "apple-tb", NULL);
	pair.end[0].script = send_then_recv;
	pair.end[1].script = recv_then_send;
	pair_run(&pair);
	for (int i = 0; i < 2; i++) {
		CHECK(pair.end[i].rc == 0, "%d: %s", pair.end[i].rc,
		      pair.end[i].cause.text);
		CHECK_EQ(pair.end[i].closed, 0);
	}
	pair_fini(&pair);
}

static int send_20_strides(struct pair_end *end)
{
	return stage_send_pattern(end->transport, 0, 20 * PAIR_PAYLOAD);
}

static int recv_20_strides(struct pair_end *end)
{
	return stage_recv_pattern(end->transport, 0, 20 * PAIR_PAYLOAD);
}

Test(apple_uc, A13_A16_every_request_is_a_whole_signaled_stride)
{
	struct pair pair;

	pair_init(&pair, "apple-tb", NULL);
	pair.end[0].script = send_20_strides;
	pair.end[1].script = recv_20_strides;
	pair_run(&pair);
	CHECK_EQ(pair.end[1].rc, 0);
	CHECK_EQ(spy_count(&pair.end[0].spy, "send:131072:2 "), 20);
	CHECK_EQ(spy_count(&pair.end[0].spy, "send:"), 20);
	/* 16 at start, and one more for each stride consumed. */
	CHECK_EQ(spy_count(&pair.end[1].spy, "recv:131072:1000"), 36);
	CHECK_EQ(spy_count(&pair.end[1].spy, "recv:"), 36);
	pair_fini(&pair);
}

static int flush_half(struct pair_end *end)
{
	int rc = stage_send_pattern(end->transport, 0, 100);

	return rc ? rc : vb_flush(end->transport);
}

static int recv_half(struct pair_end *end)
{
	return stage_recv_pattern(end->transport, 0, 100);
}

Test(apple_uc, A18_flush_posts_a_partial_stride_whole)
{
	struct pair pair;

	pair_init(&pair, "apple-tb", NULL);
	pair.end[0].script = flush_half;
	pair.end[1].script = recv_half;
	pair_run(&pair);
	CHECK_EQ(pair.end[1].rc, 0);
	CHECK_EQ(spy_count(&pair.end[0].spy, "send:131072:2 "), 1);
	pair_fini(&pair);
}

static int zero_sizes(struct pair_end *end)
{
	uint8_t none = 0;
	int rc = vb_send(end->transport, &none, 0);

	if (rc || spy_count(&end->spy, "send:"))
		return rc ? rc : -EBADMSG;
	rc = stage_send_pattern(end->transport, 0, 100);
	/* recv of 0 is the turnaround: it posts what is pending. */
	if (!rc)
		rc = vb_recv(end->transport, &none, 0);
	return rc ? rc : spy_count(&end->spy, "send:") == 1 ? 0 : -EBADMSG;
}

Test(apple_uc, DA19_sizes_of_zero_are_specified)
{
	struct pair pair;

	pair_init(&pair, "apple-tb", NULL);
	pair.end[0].script = zero_sizes;
	pair.end[1].script = recv_half;
	pair_run(&pair);
	CHECK_EQ(pair.end[0].rc, 0);
	CHECK_EQ(pair.end[1].rc, 0);
	pair_fini(&pair);
}

Test(apple_uc, strides_of_one_frame_work_for_sweeps)
{
	struct pair pair;

	pair_init(&pair, "apple-tb", NULL);
	for (int i = 0; i < 2; i++) {
		pair.end[i].options.stride_bytes = 4096;
		pair.end[i].options.slots = 8;
	}
	pair.end[0].script = send_20_strides;
	pair.end[1].script = recv_20_strides;
	pair_run(&pair);
	CHECK_EQ(pair.end[1].rc, 0);
	pair_fini(&pair);
}

/* --- set-up and teardown ------------------------------------------------ */

Test(apple_uc, A3_A4_A5_A6_A10_A33_A34_calls_come_in_the_legal_order)
{
	/* Regions of 2 MiB with all three flags, aligned, before RTR; only UC
	 * attributes; 16 receives after RTS; the queue pair first on the way
	 * down, from whatever state it is in. */
	static const char first[] =
		"open_device close_device open_device alloc_pd create_cq "
		"create_qp modify:1:39 "
		"reg_mr:2097152:7 reg_mr:2097152:7 modify:2:101181 "
		"modify:3:10001 recv:131072:100000 recv:131072:100001 ";
	static const char last[] =
		"recv:131072:10000f destroy_qp dereg_mr dereg_mr destroy_cq "
		"dealloc_pd close_device ";
	struct pair pair;

	pair_init(&pair, "apple-tb", NULL);
	pair_run(&pair);
	for (int i = 0; i < 2; i++) {
		const char *log = pair.end[i].spy.log;
		CHECK(strncmp(log, first, strlen(first)) == 0, "%s", log);
		CHECK(strlen(log) > strlen(last) &&
			      strcmp(log + strlen(log) - strlen(last), last) ==
				      0,
		      "%s", log);
		CHECK_EQ(spy_count(&pair.end[i].spy, "recv:"), 16);
	}
	pair_fini(&pair);
}

Test(apple_uc, A2_A12_no_device_with_the_address_leaves_caps_zero)
{
	static const uint8_t zero[VB_CAPS_BYTES];
	uint8_t caps[VB_CAPS_BYTES];
	struct vb_transport *transport;
	struct vb_cause cause;
	struct pair pair;

	pair_init(&pair, "apple-tb,ipv4_gid=none", NULL);
	pair.end[0].options.verbs = rig_verbs();
	memset(caps, 0xff, sizeof(caps));
	CHECK_EQ(vb_probe(&pair.end[0].options, caps, &transport, &cause),
		 -ENODEV);
	CHECK_EQ(cause.code, VB_NO_DEVICE);
	CHECK_HAS(cause.text, "127.0.0.1");
	CHECK(memcmp(caps, zero, sizeof(caps)) == 0, "caps");
	pair_fini(&pair);
}

Test(apple_uc, A1_a_host_without_the_library_has_no_device)
{
	struct vb_verbs *verbs;

	CHECK_EQ(vb_verbs_load("libno-such-verbs.so.9", &verbs), -ENODEV);
}

Test(apple_uc, A35_a_failed_probe_releases_what_it_made)
{
	static const char *const plans[] = {
		"a.verbs.alloc_pd #0 fail=ENOMEM",
		"a.verbs.create_cq #0 fail=ENOMEM",
		"a.verbs.create_qp #0 fail=EBUSY",
		"a.verbs.query_qp #0 fail=EIO",
		"a.verbs.modify_qp #0 fail=EINVAL",
		"a.verbs.reg_mr #0 fail=ENOMEM",
		"a.verbs.reg_mr #1 fail=ENOMEM",
	};

	for (size_t i = 0; i < sizeof(plans) / sizeof(*plans); i++) {
		static const uint8_t zero[VB_CAPS_BYTES];
		struct pair pair;

		pair_init(&pair, "apple-tb", plans[i]);
		pair.end[1].skips_activate = true;
		pair_run(&pair);
		CHECK(pair.end[0].probed < 0, "%s", plans[i]);
		CHECK_EQ(pair.end[0].cause.code, VB_DEVICE);
		CHECK(memcmp(pair.end[1].peer_caps, zero, sizeof(zero)) == 0,
		      "caps");
		pair_fini(&pair); /* nothing left */
	}
}

Test(apple_uc, DA15_rings_fit_the_granted_depth)
{
	struct pair pair;

	pair_init(&pair, "apple-tb,grant=256", NULL);
	pair.end[0].script = send_then_recv;
	pair.end[1].script = recv_then_send;
	pair_run(&pair);
	CHECK_EQ(pair.end[0].rc, 0);
	CHECK_EQ(pair.end[1].rc, 0);
	/* 256 frames are 8 strides. */
	CHECK_HAS(pair.end[0].spy.log, "reg_mr:1048576:7");
	pair_fini(&pair);
	/* Less than one stride cannot work, and is told. */
	pair_init(&pair, "apple-tb,grant=31", NULL);
	pair.end[1].skips_activate = true;
	pair_run(&pair);
	CHECK_EQ(pair.end[0].probed, -ENOSPC);
	CHECK_HAS(pair.end[0].cause.text, "31 frames");
	pair_fini(&pair);
}

/* A runtime that counts what is freed. */
static int rings_freed;

static void *ring_alloc(void *arg, size_t align, size_t size)
{
	(void)arg;
	return aligned_alloc(align, size);
}

static void ring_free(void *arg, void *memory)
{
	(void)arg;
	rings_freed++;
	free(memory);
}

Test(apple_uc, DA34_memory_the_device_will_not_release_is_kept)
{
	struct pair_end *end;
	struct pair pair;

	pair_init(&pair, "apple-tb", NULL);
	end = &pair.end[0];
	end->spy.bad.fail_dereg = EBUSY;
	end->options.runtime.alloc = ring_alloc;
	end->options.runtime.free = ring_free;
	pair_run(&pair);
	CHECK_EQ(end->closed, -EBUSY);
	CHECK_EQ(rings_freed, 0);
	CHECK_EQ(pair.end[1].closed, 0);
	/* The device still has both regions; now it lets go. */
	spy_as(&end->spy);
	CHECK_EQ(vb_release_kept(), 1);
	end->spy.bad.fail_dereg = 0;
	CHECK_EQ(vb_release_kept(), 0);
	CHECK_EQ(rings_freed, 2);
	pair_fini(&pair);
}

/* --- readiness ---------------------------------------------------------- */

Test(apple_uc, DA12_a_missing_readiness_byte_ends_the_connection)
{
	struct pair pair;

	pair_init(&pair, "apple-tb", NULL);
	pair.end[1].skips_activate = true; /* withholds its byte */
	pair.end[1].script = pair_wait_for_end;
	pair_run(&pair);
	CHECK_EQ(pair.end[0].activated, -ETIMEDOUT);
	CHECK_EQ(pair.end[0].cause.code, VB_TIMEOUT);
	CHECK_EQ(pair.end[1].rc, 0); /* never silently TCP */
	pair_fini(&pair);
}

static int send_byte_2b(struct pair_end *end)
{
	uint8_t byte = 0x2b;

	if (send(end->fd, &byte, 1, MSG_NOSIGNAL) != 1)
		return -errno;
	return pair_wait_for_end(end);
}

Test(apple_uc, S6_any_other_readiness_byte_ends_the_connection)
{
	struct pair pair;

	pair_init(&pair, "apple-tb", NULL);
	pair.end[1].skips_activate = true;
	pair.end[1].script = send_byte_2b;
	pair_run(&pair);
	CHECK_EQ(pair.end[0].activated, -EPROTO);
	CHECK_HAS(pair.end[0].cause.text, "0x2b");
	CHECK_EQ(pair.end[1].rc, 0);
	pair_fini(&pair);
}

Test(apple_uc, A7_A9_one_end_that_cannot_activate_keeps_both_on_tcp)
{
	struct pollfd poll_fd = {.events = POLLIN};
	struct pair pair;

	pair_init(&pair, "apple-tb", NULL);
	pair.end[0].spy.bad.fail_rtr = ETIMEDOUT;
	pair_run(&pair);
	CHECK_EQ(pair.end[0].activated, 1);
	CHECK_EQ(pair.end[1].activated, 1);
	CHECK_HAS(pair.end[0].cause.text, "RTR");
	/* The socket is as it was: one byte each way, both consumed. */
	for (int i = 0; i < 2; i++) {
		poll_fd.fd = pair.end[i].fd;
		CHECK_EQ(poll(&poll_fd, 1, 0), 0);
	}
	pair_fini(&pair);
}

static int close_socket(struct pair_end *end)
{
	struct linger now = {.l_onoff = 1};

	setsockopt(end->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	close(end->fd);
	end->fd = -1;
	return 0;
}

Test(apple_uc, DA14_a_peer_that_left_is_an_error_not_a_signal)
{
	struct pair pair;

	pair_init(&pair, "apple-tb", NULL);
	pair.end[1].skips_activate = true;
	pair.end[1].script = close_socket;
	signal(SIGPIPE, SIG_DFL);
	pair_run(&pair);
	CHECK(pair.end[0].activated < 0, "activated");
	CHECK_EQ(pair.end[0].cause.code, VB_PEER_GONE);
	pair_fini(&pair);
}

Test(apple_uc, DA13_a_non_blocking_socket_will_do)
{
	struct pair pair;

	pair_init(&pair, "apple-tb", NULL);
	pair.end[0].is_nonblocking = pair.end[1].is_nonblocking = true;
	pair.end[0].script = send_then_recv;
	pair.end[1].script = recv_then_send;
	pair_run(&pair);
	CHECK_EQ(pair.end[0].rc, 0);
	CHECK_EQ(pair.end[1].rc, 0);
	pair_fini(&pair);
}

/* A channel that takes nothing at first, and gives nothing at first. */
static struct vb_boot slow_inner;
static int slow_sends, slow_recvs;

static long slow_send(void *arg, const void *bytes, size_t len)
{
	if (slow_sends++ < 3)
		return slow_sends == 1 ? 0 : -EAGAIN;
	return slow_inner.send(arg, bytes, len);
}

static long slow_recv(void *arg, void *bytes, size_t len, bool is_peek)
{
	if (slow_recvs++ < 3)
		return -EAGAIN;
	return slow_inner.recv(arg, bytes, len, is_peek);
}

struct vb_boot vb_boot_socket(int fd);

static int again(struct pair_end *end)
{
	return vb_activate(end->transport, end->peer_caps) == -EALREADY
		       ? 0
		       : -EBADMSG;
}

static int send_too_early(struct pair_end *end)
{
	uint8_t byte = 0;

	if (vb_send(end->transport, &byte, 1) != -ENOTCONN ||
	    vb_recv(end->transport, &byte, 1) != -ENOTCONN)
		return -EBADMSG;
	return vb_activate(end->transport, end->peer_caps);
}

Test(apple_uc, A7_A8_nothing_before_activation_and_that_only_once)
{
	struct pair pair;

	pair_init(&pair, "apple-tb", NULL);
	pair.end[0].skips_activate = true;
	pair.end[0].script = send_too_early;
	pair.end[1].script = again;
	pair.end[1].options.timeout_ns = UINT64_MAX; /* "no deadline" */
	pair_run(&pair);
	CHECK_EQ(pair.end[0].rc, 0);
	CHECK_EQ(pair.end[1].rc, 0);
	pair_fini(&pair);
}

Test(apple_uc, DA31_a_channel_that_is_not_ready_is_tried_again)
{
	struct vb_boot slow;
	struct pair pair;

	pair_init(&pair, "apple-tb", NULL);
	slow_inner = slow = vb_boot_socket(pair.end[0].fd);
	slow.send = slow_send;
	slow.recv = slow_recv;
	pair.end[0].options.boot = &slow;
	pair.end[0].script = send_20_strides;
	pair.end[1].script = recv_20_strides;
	pair_run(&pair);
	CHECK_EQ(pair.end[0].activated, 0);
	CHECK_EQ(pair.end[1].rc, 0);
	CHECK(slow_sends >= 4 && slow_recvs >= 4, "not slow");
	pair_fini(&pair);
}

/* --- liveness ----------------------------------------------------------- */

static int do_not_read(struct pair_end *end)
{
	return pair_wait_for_end(end);
}

static int send_40_strides(struct pair_end *end)
{
	int rc = stage_send_pattern(end->transport, 0, 40 * PAIR_PAYLOAD);

	shutdown(end->fd, SHUT_RDWR); /* the reader may go home */
	return rc;
}

Test(apple_uc, DA1_DA5_a_sender_whose_peer_does_not_read_times_out)
{
	struct pair pair;

	pair_init(&pair, "apple-tb", NULL);
	pair.end[0].script = send_40_strides;
	pair.end[1].script = do_not_read;
	pair_run(&pair);
	CHECK_EQ(pair.end[0].rc, -ETIMEDOUT);
	CHECK_EQ(pair.end[0].cause.code, VB_TIMEOUT);
	CHECK(pair.end[0].cause.is_send, "seen while sending");
	pair_fini(&pair);
}

static int recv_forever(struct pair_end *end)
{
	int rc = stage_recv_pattern(end->transport, 0, 1);

	shutdown(end->fd, SHUT_RDWR);
	return rc;
}

Test(apple_uc, DA5_A31_a_silent_peer_times_out_a_receiver)
{
	struct pair pair;

	pair_init(&pair, "apple-tb", NULL);
	pair.end[0].script = recv_forever;
	pair.end[1].script = do_not_read;
	pair_run(&pair);
	CHECK_EQ(pair.end[0].rc, -ETIMEDOUT);
	CHECK_EQ(pair.end[0].cause.offset_bytes, 0);
	pair_fini(&pair);
}

/* A clock that strides a second a look: nothing waits for real. */
static uint64_t fast_now(void *arg)
{
	return *(uint64_t *)arg += 1000000000;
}

static void fast_idle(void *arg, uint64_t idle_ns, uint64_t until_ns)
{
	(void)arg;
	(void)idle_ns;
	(void)until_ns;
}

Test(apple_uc, DA29_deadlines_are_of_the_injected_clock)
{
	uint64_t clock = 0;
	struct pair pair;

	pair_init(&pair, "apple-tb", NULL);
	pair.end[0].options.timeout_ns = 3600000000000ull; /* an hour */
	pair.end[0].options.runtime.now_ns = fast_now;
	pair.end[0].options.runtime.idle = fast_idle;
	pair.end[0].options.runtime.arg = &clock;
	pair.end[0].script = recv_forever;
	pair.end[1].script = do_not_read;
	pair_run(&pair);
	CHECK_EQ(pair.end[0].rc, -ETIMEDOUT);
	pair_fini(&pair);
}

static int leave_at_once(struct pair_end *end)
{
	shutdown(end->fd, SHUT_RDWR);
	return 0;
}

static int recv_then_try_all(struct pair_end *end)
{
	struct vb_transport *t = end->transport;
	uint8_t byte = 0;
	int rc = stage_recv_pattern(t, 0, 1);

	/* D-A8, D-A9: latched, for every call. */
	if (vb_send(t, &byte, 1) != rc || vb_flush(t) != rc ||
	    vb_recv(t, &byte, 1) != rc || vb_send(t, &byte, 0) != rc)
		return -EBADMSG;
	return rc;
}

Test(apple_uc, DA8_DA9_A28_a_gone_peer_is_latched_for_every_call)
{
	struct pair pair;

	pair_init(&pair, "apple-tb", NULL);
	pair.end[0].script = recv_then_try_all;
	pair.end[1].script = leave_at_once;
	pair_run(&pair);
	CHECK_EQ(pair.end[0].rc, -ECONNRESET);
	CHECK_EQ(pair.end[0].cause.code, VB_PEER_GONE);
	CHECK_EQ(pair.end[0].closed, -ECONNRESET);
	pair_fini(&pair);
}

static int send_stray_byte(struct pair_end *end)
{
	if (send(end->fd, "x", 1, MSG_NOSIGNAL) != 1)
		return -errno;
	return pair_wait_for_end(end);
}

Test(apple_uc, DA11_A36_a_stray_byte_is_a_protocol_error)
{
	struct pair pair;

	pair_init(&pair, "apple-tb", NULL);
	pair.end[0].script = recv_forever;
	pair.end[1].script = send_stray_byte;
	pair_run(&pair);
	CHECK_EQ(pair.end[0].rc, -EPROTO);
	CHECK_HAS(pair.end[0].cause.text, "0x78");
	pair_fini(&pair);
}

Test(apple_uc, DA6_frames_that_the_peers_end_overtook_are_not_lost)
{
	struct pair pair;

	/* The completions show 5 ms after the end was seen; the grace is 20. */
	pair_init(&pair, "apple-tb", NULL);
	pair.end[0].script = pair_send_and_leave;
	pair.end[1].script = pair_recv_after_end;
	pair_is_late(&pair.end[1]);
	pair.end[1].options.grace_ns = 2000000000;
	pair_run(&pair);
	CHECK(pair.end[1].rc == 0, "%s", pair.end[1].cause.text);
	pair_fini(&pair);
}

/* 20 strides into 16 slots: four sends are held when the script is over. */
static int send_only(struct pair_end *end)
{
	return stage_send_pattern(end->transport, 0, 20 * PAIR_PAYLOAD + 9);
}

static int recv_late(struct pair_end *end)
{
	poll(NULL, 0, 50);
	return stage_recv_pattern(end->transport, 0, 20 * PAIR_PAYLOAD + 9);
}

Test(apple_uc, DA7_close_waits_for_the_sends_it_holds)
{
	struct pair pair;

	pair_init(&pair, "apple-tb", NULL);
	pair.end[0].options.timeout_ns = pair.end[1].options.timeout_ns =
		10000000000ull;
	pair.end[0].script = send_only;
	pair.end[1].script = recv_late;
	pair_run(&pair);
	CHECK_EQ(pair.end[0].closed, 0);
	CHECK(pair.end[1].rc == 0, "%s", pair.end[1].cause.text);
	pair_fini(&pair);
}
