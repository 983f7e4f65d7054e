/* SPDX-License-Identifier: MIT */
/*
 * The Apple UC transport and its bootstrap stream: the readiness byte, and
 * afterwards the only sign that the peer is gone.
 */
#include "lib/apple_uc.h"

#include <errno.h>
#include <string.h>

static uint64_t now_of(struct apple_uc *uc)
{
	return uc->base.runtime.now_ns(uc->base.runtime.arg);
}

/* Milliseconds until `end`, at least 1 while it is not past. */
static int left_ms(uint64_t now, uint64_t end)
{
	uint64_t ms = now < end ? (end - now) / 1000000 : 0;

	return ms > 1000 ? 1000 : (int)ms + 1;
}

/* Taken nothing (D-A31), not now (D-A13), or a signal: no failure. */
static bool is_again(long rc)
{
	return rc == -EAGAIN || rc == -EWOULDBLOCK || rc == -EINTR;
}

static int boot_failed(struct apple_uc *uc, long rc, const char *what)
{
	if (rc == 0)
		return vb_fail(&uc->base, VB_PEER_GONE, -ECONNRESET, VB_NOWHERE,
			       "the peer closed the bootstrap stream before "
			       "its readiness byte");
	return vb_fail(&uc->base, VB_PEER_GONE, (int)rc, VB_NOWHERE,
		       "readiness byte: %s: %s", what, strerror((int)-rc));
}

static int send_byte(struct apple_uc *uc, uint8_t byte, uint64_t end)
{
	const struct vb_boot *boot = &uc->base.boot;

	for (;;) {
		long n = boot->send(boot->arg, &byte, 1);
		uint64_t now = now_of(uc);

		if (n == 1)
			return 0;
		if (n != 0 && !is_again(n))
			return boot_failed(uc, n, "send");
		if (now >= end)
			return vb_fail(&uc->base, VB_TIMEOUT, -ETIMEDOUT,
				       VB_NOWHERE,
				       "readiness byte: the bootstrap stream "
				       "takes nothing");
		boot->wait(boot->arg, true, left_ms(now, end));
	}
}

static int recv_byte(struct apple_uc *uc, uint8_t *byte, uint64_t end)
{
	const struct vb_boot *boot = &uc->base.boot;

	for (;;) {
		long n = boot->recv(boot->arg, byte, 1, false);
		uint64_t now = now_of(uc);

		if (n == 1)
			return 0;
		if (!is_again(n))
			return boot_failed(uc, n, "recv");
		if (now >= end)
			return vb_fail(&uc->base, VB_TIMEOUT, -ETIMEDOUT,
				       VB_NOWHERE,
				       "the peer's readiness byte did not come "
				       "within %llu ms",
				       (unsigned long long)uc->base.timeout_ns /
					       1000000);
		boot->wait(boot->arg, false, left_ms(now, end));
	}
}

int uc_exchange_ready(struct apple_uc *uc, uint8_t mine, uint8_t *peer)
{
	uint64_t now = now_of(uc);
	uint64_t end = uc->base.timeout_ns < UINT64_MAX - now
			       ? now + uc->base.timeout_ns
			       : UINT64_MAX;
	int rc = send_byte(uc, mine, end);

	return rc ? rc : recv_byte(uc, peer, end);
}

int uc_watch_peer(struct apple_uc *uc)
{
	const struct vb_boot *boot = &uc->base.boot;
	uint8_t byte;
	long n;

	if (uc->peer_ended)
		return 1;
	n = boot->recv(boot->arg, &byte, 1, true);
	if (is_again(n))
		return 0;
	if (n > 0)
		/* nothing crosses it once live (D-A11). */
		return vb_fail(&uc->base, VB_PROTOCOL, -EPROTO, VB_NOWHERE,
			       "a byte (0x%02x) on the bootstrap stream of a "
			       "live transport",
			       byte);
	uc->peer_ended = true;
	uc->peer_ended_ns = now_of(uc);
	return 1;
}
