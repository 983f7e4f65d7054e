/* SPDX-License-Identifier: MIT */
/*
 * One endpoint of the scenario uc.bulk, in a process of its own: a sends
 * `bytes` to b, which checks them; then the other way round. It knows lib and
 * a socket, and nothing of sim: what it runs on is what programs run on.
 */
#define _GNU_SOURCE
#include "fault/fault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define CHUNK_BYTES 1000000u /* deliberately no multiple of a stride */

struct endpoint {
	struct fault_endpoint report;
	struct vb_transport *transport;
	int fd;
	uint64_t bytes;
	uint64_t seed;
	uint64_t timeout_ms;
};

/* Different streams for the two directions. */
static uint64_t direction_seed(const struct endpoint *e, int sender)
{
	return e->seed * 2 + (uint64_t)sender;
}

static int move_all(int fd, void *bytes, size_t len, bool is_send)
{
	for (size_t done = 0; done < len;) {
		char *at = (char *)bytes + done;
		ssize_t n = is_send ? send(fd, at, len - done, MSG_NOSIGNAL)
				    : recv(fd, at, len - done, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -ECONNRESET;
		done += (size_t)n;
	}
	return 0;
}

static int connect_transport(struct endpoint *e)
{
	struct timeval patience = {
		.tv_sec = (time_t)(e->timeout_ms / 1000),
		.tv_usec = (suseconds_t)(e->timeout_ms % 1000 * 1000),
	};
	struct vb_options options = {
		.fd = e->fd,
		.timeout_ns = e->timeout_ms * 1000000,
	};
	uint8_t mine[VB_CAPS_BYTES], peer[VB_CAPS_BYTES];
	int probed, rc;

	setsockopt(e->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	/* A failed probe still tells the peer: all zero, no RDMA. */
	probed = vb_probe(&options, mine, &e->transport, &e->report.cause);
	rc = move_all(e->fd, mine, sizeof(mine), true);
	if (!rc)
		rc = move_all(e->fd, peer, sizeof(peer), false);
	if (probed)
		return probed;
	if (rc) {
		e->report.cause.code =
			rc == -EAGAIN ? VB_TIMEOUT : VB_PEER_GONE;
		snprintf(e->report.cause.text, sizeof(e->report.cause.text),
			 "no capabilities from the peer: %s", strerror(-rc));
		return rc;
	}
	rc = vb_activate(e->transport, peer);
	return rc > 0 ? -ENOTCONN : rc;
}

static int send_stream(struct endpoint *e, uint64_t *chunk)
{
	uint64_t seed = direction_seed(e, e->report.side);
	int rc = 0;

	for (uint64_t at = 0; !rc && at < e->bytes; at += CHUNK_BYTES) {
		uint64_t len = e->bytes - at < CHUNK_BYTES ? e->bytes - at
							   : CHUNK_BYTES;

		for (uint64_t i = 0; i < len; i += 8)
			chunk[i / 8] = fault_word_at(seed, at + i);
		rc = vb_send(e->transport, chunk, len);
	}
	return rc ? rc : vb_flush(e->transport);
}

static void check(struct endpoint *e, const uint64_t *chunk, uint64_t at,
		  uint64_t len, uint64_t seed)
{
	for (uint64_t i = 0; i < len && e->report.wrong_at == -1; i += 8) {
		if (chunk[i / 8] == fault_word_at(seed, at + i))
			continue;
		e->report.wrong_at = (int64_t)(at + i);
		e->report.wrong_from =
			fault_word_offset(seed, chunk[i / 8], e->bytes);
	}
}

static int recv_stream(struct endpoint *e, uint64_t *chunk)
{
	uint64_t seed = direction_seed(e, 1 - e->report.side);

	for (uint64_t at = 0; at < e->bytes; at += CHUNK_BYTES) {
		uint64_t len = e->bytes - at < CHUNK_BYTES ? e->bytes - at
							   : CHUNK_BYTES;
		uint64_t before = vb_received_bytes(e->transport);
		int rc = vb_recv(e->transport, chunk, len);
		uint64_t got = vb_received_bytes(e->transport) - before;

		/* What came before a failure counts, too. */
		check(e, chunk, at, got / 8 * 8, seed);
		if (rc)
			return rc;
	}
	return 0;
}

static int run(struct endpoint *e)
{
	uint64_t *chunk = calloc(1, CHUNK_BYTES);
	bool sends_first = e->report.side == 0;
	int rc, closed;

	if (!chunk)
		return -ENOMEM;
	rc = connect_transport(e);
	if (!rc)
		rc = sends_first ? send_stream(e, chunk)
				 : recv_stream(e, chunk);
	if (!rc)
		rc = sends_first ? recv_stream(e, chunk)
				 : send_stream(e, chunk);
	free(chunk);
	if (!e->transport)
		return rc;
	e->report.sent_bytes = vb_sent_bytes(e->transport);
	e->report.received_bytes = vb_received_bytes(e->transport);
	if (vb_cause(e->transport)->code)
		e->report.cause = *vb_cause(e->transport);
	closed = vb_close(e->transport, rc ? NULL : &e->report.cause);
	return rc ? rc : closed;
}

void fault_endpoint_init(struct fault_endpoint *report, int side)
{
	report->side = side;
	report->wrong_at = report->wrong_from = -1;
	report->cause.frame = report->cause.offset_bytes = -1;
	report->cause.slot = -1;
}

static enum fault_verdict verdict_of(const struct fault_endpoint *report)
{
	if (report->rc)
		return report->cause.code == VB_TIMEOUT ? FAULT_TIMEOUT
							: FAULT_FAIL;
	return report->wrong_at >= 0 ? FAULT_CORRUPT : FAULT_PASS;
}

/* Arguments, from our own runner: SIDE SOCKET PIPE BYTES SEED TIMEOUT_MS. */
int fault_endpoint_main(int argc, char **argv)
{
	struct endpoint e = {0};
	int pipe_fd;

	if (argc != 7)
		return 2;
	fault_endpoint_init(&e.report, atoi(argv[1]));
	e.fd = atoi(argv[2]);
	pipe_fd = atoi(argv[3]);
	e.bytes = strtoull(argv[4], NULL, 0);
	e.seed = strtoull(argv[5], NULL, 0);
	e.timeout_ms = strtoull(argv[6], NULL, 0);
	e.report.rc = run(&e);
	e.report.verdict = verdict_of(&e.report);
	close(e.fd);
	/* Under PIPE_BUF: one write, whole or not at all. */
	if (write(pipe_fd, &e.report, sizeof(e.report)) != sizeof(e.report))
		return 1;
	return e.report.verdict == FAULT_PASS ? 0 : 1;
}
