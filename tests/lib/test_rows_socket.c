/* SPDX-License-Identifier: MIT */
/*
 * Goal: neither signals nor a socket's own timeout fail a set-up or a transfer
 * (D-A13, D-A31). Method: threads and real sockets; each end has a timer that
 * interrupts its thread, without SA_RESTART, all the time.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "lib/boot.h"
#include "tests/harness.h"
#include "tests/lib/pair.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

#define STORM 500 /* signals to each thread */
#define BYTES (8 * PAIR_PAYLOAD + 5)

/*
 * What a signal may do to a call, and Linux does not while it does not wait:
 * lib's calls, as all of this program's, come by here.
 */
static __thread int interruptions;

static bool is_interrupted(void)
{
	errno = EINTR;
	return interruptions > 0 && interruptions--;
}

ssize_t send(int fd, const void *bytes, size_t len, int flags)
{
	return is_interrupted() ? -1 : sendto(fd, bytes, len, flags, NULL, 0);
}

ssize_t recv(int fd, void *bytes, size_t len, int flags)
{
	return is_interrupted() ? -1
				: recvfrom(fd, bytes, len, flags, NULL, NULL);
}

Test(tcp, DA31_a_call_that_a_signal_interrupts_is_made_again)
{
	struct vb_boot boot;
	uint8_t byte = 7;
	int fds[2];

	rig_sockets(fds);
	boot = vb_boot_socket(fds[0]);
	interruptions = 3;
	CHECK_EQ(boot.send(boot.arg, &byte, 1), 1);
	CHECK_EQ(interruptions, 0);
	CHECK_EQ(write(fds[1], "x", 1), 1);
	CHECK_EQ(boot.wait(boot.arg, false, 10000), 1);
	for (int is_peek = 1; is_peek >= 0; is_peek--) {
		interruptions = 3;
		CHECK_EQ(boot.recv(boot.arg, &byte, 1, is_peek), 1);
		CHECK_EQ(interruptions, 0);
		CHECK_EQ(byte, 'x');
	}
	interruptions = 1;
	CHECK_EQ(boot.recv(boot.arg, &byte, 1, false), -EAGAIN);
	close(fds[0]);
	close(fds[1]);
}

static __thread volatile sig_atomic_t signals;
static __thread timer_t timer;

static const struct itimerspec soon = {.it_value.tv_nsec = 200000};

/* The next comes after this one; and there is a last one, or who is slow (under
 * Valgrind) would come no further. */
static void count_signal(int number)
{
	(void)number;
	if (++signals < STORM)
		timer_settime(timer, 0, &soon, NULL);
}

/* From here on this thread is interrupted; it has been, once. */
static void storm_start(void)
{
	struct sigaction action = {.sa_handler = count_signal};
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID,
				 .sigev_signo = SIGUSR1};

	event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
	sigaction(SIGUSR1, &action, NULL);
	if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
	    timer_settime(timer, 0, &soon, NULL) != 0)
		abort();
	while (!signals)
		nanosleep(&soon.it_value, NULL);
}

static int talk(struct vb_transport *t, int side)
{
	int rc = side ? stage_recv_pattern(t, 0, BYTES)
		      : stage_send_pattern(t, 0, BYTES);

	if (!rc)
		rc = side ? stage_send_pattern(t, 0, BYTES)
			  : stage_recv_pattern(t, 0, BYTES);
	return rc ? rc : vb_flush(t);
}

static int talk_in_a_storm(struct pair_end *end)
{
	storm_start();
	end->activated = vb_activate(end->transport, end->peer_caps);
	end->rc = end->activated ? end->activated
				 : talk(end->transport, end->side);
	timer_delete(timer);
	return end->rc;
}

static void play(const char *model, enum vb_mode mode,
		 int (*script)(struct pair_end *))
{
	struct pair pair;

	pair_init(&pair, model, NULL);
	for (int i = 0; i < 2; i++) {
		pair.end[i].options.mode = mode;
		pair.end[i].options.timeout_ns = 60000000000u;
		pair.end[i].skips_activate = true;
		pair.end[i].script = script;
	}
	pair_run(&pair);
	for (int i = 0; i < 2; i++) {
		CHECK(pair.end[i].rc == 0, "%s, %d, %d: %d %s", model, mode, i,
		      pair.end[i].rc, pair.end[i].cause.text);
		CHECK_EQ(pair.end[i].closed, 0);
	}
	pair_fini(&pair);
}

static void play_all(int (*script)(struct pair_end *))
{
	static const char *const models[] = {"apple-tb", "mlx5"};

	for (int m = 0; m < 2; m++) {
		play(models[m], VB_COMPAT, script);
		play(models[m], VB_HARDENED, script);
	}
}

Test(negotiate, DA31_signals_neither_fail_a_set_up_nor_a_transfer)
{
	play_all(talk_in_a_storm);
}

static int talk_over_tcp_in_a_storm(struct pair_end *end)
{
	struct vb_transport *tcp = NULL;
	int rc = vb_tcp_open(&end->options, &tcp), closed;

	storm_start();
	if (!rc)
		rc = talk(tcp, end->side);
	closed = vb_close(tcp, NULL);
	timer_delete(timer);
	return rc ? rc : closed;
}

Test(tcp, DA31_signals_do_not_fail_a_transfer)
{
	play("apple-tb", VB_COMPAT, talk_over_tcp_in_a_storm);
}

/* One end is waited for, 20 times as long as the other's socket would. */
static int activate_with_a_timeout(struct pair_end *end)
{
	struct timeval limit = {.tv_usec = 1000};
	struct timespec later = {.tv_nsec = 20000000};

	setsockopt(end->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	setsockopt(end->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	if (end->side)
		nanosleep(&later, NULL);
	end->activated = vb_activate(end->transport, end->peer_caps);
	return end->activated ? end->activated
			      : talk(end->transport, end->side);
}

Test(negotiate, DA13_a_timeout_of_the_socket_itself_changes_nothing)
{
	play_all(activate_with_a_timeout);
}
