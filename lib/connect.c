/* SPDX-License-Identifier: MIT */
/* All of it in one call: RDMA where both ends can, else the socket. */
#include <errno.h>

#include "lib/transport.h"

/* Where the ends may disagree nobody is left waiting. */
static int give_up(struct vb_transport *boot, struct vb_cause *why, int rc)
{
	if (boot->cause.code)
		*why = boot->cause;
	boot->boot.shutdown(boot->boot.arg);
	return rc;
}

static int exchange_caps(struct vb_transport *boot, uint8_t *mine,
			 uint8_t *peer)
{
	int rc = vb_boot_move(boot, mine, VB_CAPS_BYTES, true, "capabilities");

	return rc ? rc
		  : vb_boot_move(boot, peer, VB_CAPS_BYTES, false,
				 "capabilities");
}

static int meet(const struct vb_options *options, struct vb_transport **t,
		struct vb_cause *why)
{
	uint8_t mine[VB_CAPS_BYTES] = {0}, peer[VB_CAPS_BYTES];
	struct vb_transport boot; /* only its deadline and its channel */
	int rc, probed = 1;

	vb_transport_init(&boot, NULL, options);
	rc = vb_options_check(&boot, options);
	if (rc)
		return give_up(&boot, why, rc);
	/* A failed probe still tells the peer: all zero, no RDMA (N-1). */
	if (options->transport != VB_TRANSPORT_TCP)
		probed = vb_probe(options, mine, t, why);
	rc = exchange_caps(&boot, mine, peer);
	if (rc)
		give_up(&boot, why, rc);
	else
		rc = probed ? 1 : vb_activate(*t, peer);
	if (rc && !probed) {
		if (vb_cause(*t)->code)
			*why = *vb_cause(*t);
		vb_close(*t, NULL);
	}
	return rc;
}

int vb_connect(const struct vb_options *options,
	       struct vb_transport **transport, struct vb_cause *cause)
{
	struct vb_cause why = VB_NO_CAUSE;
	struct vb_transport *t = NULL;
	int rc = meet(options, &t, &why);

	if (rc == 1)
		rc = vb_tcp_open(options, &t);
	if (cause)
		*cause = why;
	if (rc == 0)
		*transport = t;
	return rc;
}
