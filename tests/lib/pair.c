/* SPDX-License-Identifier: MIT */
/* Two transports against each other; see pair.h. */
#include "tests/lib/pair.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/harness.h"

/* Looked at only after the end: what was sent before it comes late. */
static bool pair_is_early(void *arg)
{
	struct pair_end *end = arg;
	uint8_t byte;

	if (!end->ended_ns &&
	    recv(end->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
		end->ended_ns = sim_now_ns();
	return !end->ended_ns || sim_now_ns() - end->ended_ns <= 5000000;
}

void pair_is_late(struct pair_end *end)
{
	end->spy.bad.holds = pair_is_early;
	end->spy.bad.arg = end;
}

void pair_init(struct pair *pair, const char *model, const char *plan)
{
	struct sim_world_config config = {.model = {model, model}};
	char error[SIM_ERROR_MAX] = "";
	int fds[2], rc;

	setenv("VERBENA_QUIET", "1", 1);
	memset(pair, 0, sizeof(*pair));
	rc = sim_world_open(&config, &pair->world, error);
	CHECK(rc == 0, "%s", error);
	sim_world_use(pair->world);
	if (plan)
		rig_arm(pair->world, plan);
	rig_sockets(fds);
	for (int side = 0; side < 2; side++) {
		struct pair_end *end = &pair->end[side];

		end->pair = pair;
		end->side = side;
		end->fd = fds[side];
		end->options.fd = fds[side];
		end->options.verbs = spy_verbs();
		end->options.timeout_ns = 300000000;
		end->options.grace_ns = 20000000;
	}
}

static int move_caps(int fd, uint8_t *bytes, bool is_send)
{
	for (size_t done = 0; done < VB_CAPS_BYTES;) {
		ssize_t n = is_send ? send(fd, bytes + done,
					   VB_CAPS_BYTES - done, MSG_NOSIGNAL)
				    : recv(fd, bytes + done,
					   VB_CAPS_BYTES - done, 0);

		if (n <= 0)
			return -ECONNRESET;
		done += (size_t)n;
	}
	return 0;
}

static void *run(void *arg)
{
	struct pair_end *end = arg;
	uint8_t mine[VB_CAPS_BYTES];

	spy_as(&end->spy);
	sim_host_set(end->side);
	end->probed =
		vb_probe(&end->options, mine, &end->transport, &end->cause);
	move_caps(end->fd, mine, true);
	if (move_caps(end->fd, end->peer_caps, false) || end->probed)
		return NULL;
	if (end->is_nonblocking)
		fcntl(end->fd, F_SETFL, O_NONBLOCK);
	if (!end->skips_activate)
		end->activated = vb_activate(end->transport, end->peer_caps);
	if (end->activated == 0 && end->script)
		end->rc = end->script(end);
	end->cause = *vb_cause(end->transport);
	end->closed = vb_close(end->transport, NULL);
	return NULL;
}

void pair_run(struct pair *pair)
{
	for (int side = 0; side < 2; side++)
		CHECK_EQ(pthread_create(&pair->end[side].thread, NULL, run,
					&pair->end[side]),
			 0);
	for (int side = 0; side < 2; side++)
		pthread_join(pair->end[side].thread, NULL);
}

void pair_fini(struct pair *pair)
{
	for (int side = 0; side < 2; side++)
		if (pair->end[side].fd >= 0)
			close(pair->end[side].fd);
	CHECK_EQ(sim_world_object_count(pair->world), 0);
	sim_world_use(NULL);
	sim_world_close(pair->world);
}

/* --- scripts ------------------------------------------------------------ */

/* Is the far end of this socket told that the connection is over? */
static bool is_shut(int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
	uint8_t byte;

	while (poll(&poll_fd, 1, 10000) == 1) {
		if (recv(fd, &byte, 1, MSG_DONTWAIT) <= 0)
			return true;
	}
	return false;
}

int pair_wait_for_end(struct pair_end *end)
{
	return is_shut(end->fd) ? 0 : -EBADMSG;
}

int pair_send_and_leave(struct pair_end *end)
{
	int rc = stage_send_pattern(end->transport, 0, 3 * PAIR_PAYLOAD + 5);

	if (!rc)
		rc = vb_flush(end->transport);
	shutdown(end->fd, SHUT_WR); /* its end overtakes its frames */
	return rc;
}

int pair_recv_after_end(struct pair_end *end)
{
	struct pollfd poll_fd = {.fd = end->fd, .events = POLLIN};

	/* Look only when the peer's end has already come. */
	poll(&poll_fd, 1, 10000);
	return stage_recv_pattern(end->transport, 0, 3 * PAIR_PAYLOAD + 5);
}
