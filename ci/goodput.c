/* SPDX-License-Identifier: MIT */
/*
 * What a stream of lib's costs: `goodput HOST|- PORT MODE BYTES SLOTS
 * ROUNDS`, "-" for the end that listens. One way BYTES in calls of 1 MiB from
 * one buffer, as perftest does; then requests and replies of 8 bytes. The end
 * that connects prints MB/s and microseconds a round trip.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "lib/verbena.h"

#define CALL_BYTES (1u << 20)

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int meet(const char *host, const char *port)
{
	struct sockaddr_in at = {.sin_family = AF_INET,
				 .sin_port = htons((uint16_t)atoi(port)),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (strcmp(host, "-") == 0) {
		if (bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0 ||
		    listen(fd, 1) != 0)
			return -1;
		return accept(fd, NULL, NULL);
	}
	inet_pton(AF_INET, host, &at.sin_addr);
	for (int i = 0; i < 200; i++) {
		if (connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0)
			return fd;
		usleep(20000);
	}
	return -1;
}

/* Of a call's bytes those that there is room for, or that are there; neither
 * written nor read, as perftest does not. */
static int in_place(struct vb_transport *t, bool is_sender, uint64_t total)
{
	int rc = 0;

	for (uint64_t n = 0; !rc && n < total;) {
		const void *data;
		void *space;
		size_t size;

		rc = is_sender ? vb_send_reserve(t, &space, &size)
			       : vb_recv_peek(t, &data, &size);
		if (rc)
			break;
		size = size < total - n ? size : total - n;
		n += size;
		rc = is_sender ? vb_send_commit(t, size)
			       : vb_recv_consume(t, size);
	}
	return rc;
}

static int copied(struct vb_transport *t, bool is_sender, char *bytes,
		  uint64_t total)
{
	int rc = 0;

	for (uint64_t n = 0; !rc && n < total; n += CALL_BYTES)
		rc = is_sender ? vb_send(t, bytes, CALL_BYTES)
			       : vb_recv(t, bytes, CALL_BYTES);
	return rc;
}

static int stream(struct vb_transport *t, bool is_sender, char *bytes,
		  uint64_t total)
{
	int rc = bytes ? copied(t, is_sender, bytes, total)
		       : in_place(t, is_sender, total);
	char done;

	if (rc)
		return rc;
	if (is_sender)
		return vb_recv(t, &done, 1);
	rc = vb_send(t, "", 1);
	return rc ? rc : vb_flush(t);
}

static int round_trips(struct vb_transport *t, bool is_first, int rounds)
{
	char word[8] = "verbena";
	int rc = 0;

	for (int i = 0; !rc && i < 2 * rounds; i++) {
		if ((i % 2 == 0) == is_first) {
			rc = vb_send(t, word, sizeof(word));
			if (!rc)
				rc = vb_flush(t);
		} else {
			rc = vb_recv(t, word, sizeof(word));
		}
	}
	return rc;
}

int main(int argc, char **argv)
{
	struct vb_options options = {0};
	struct vb_transport *t;
	struct vb_cause cause;
	char *bytes = aligned_alloc(4096, CALL_BYTES);
	bool connects = argc == 8 && strcmp(argv[1], "-") != 0;
	double start, middle, end;
	uint64_t total;
	int rc;

	if (argc != 8 || !bytes)
		return 2;
	total = strtoull(argv[4], NULL, 10);
	memset(bytes, 7, CALL_BYTES);
	options.fd = meet(argv[1], argv[2]);
	options.mode = (enum vb_mode)atoi(argv[3]);
	options.slots = (uint32_t)atoi(argv[5]);
	rc = vb_connect(&options, &t, &cause);
	if (rc) {
		fprintf(stderr, "goodput: %s\n", cause.text);
		return 1;
	}
	start = seconds();
	rc = stream(t, connects, *argv[7] == '1' ? bytes : NULL, total);
	middle = seconds();
	if (!rc)
		rc = round_trips(t, connects, atoi(argv[6]));
	end = seconds();
	if (connects)
		printf("%s %.0f %.3f\n", vb_transport_name(t),
		       (double)total / (middle - start) / 1e6,
		       (end - middle) / atoi(argv[6]) * 1e6);
	if (rc)
		fprintf(stderr, "goodput: %s\n", vb_cause(t)->text);
	vb_close(t, NULL);
	free(bytes);
	return rc != 0;
}
