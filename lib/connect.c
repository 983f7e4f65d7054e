/* SPDX-License-Identifier: MIT */
/* All of it in one call: RDMA where both ends can, else the socket. */
#include <errno.h>

#include "lib/transport.h"

static int exchange_caps(const struct vb_options *options, uint8_t *mine,
			 uint8_t *peer, struct vb_cause *cause)
{
	struct vb_transport boot; /* only its deadline and its channel */
	int rc;

	vb_transport_init(&boot, NULL, options);
	rc = vb_boot_move(&boot, mine, VB_CAPS_BYTES, true, "capabilities");
	if (rc == 0)
		rc = vb_boot_move(&boot, peer, VB_CAPS_BYTES, false,
				  "capabilities");
	if (rc)
		*cause = boot.cause;
	return rc;
}

int vb_connect(const struct vb_options *options,
	       struct vb_transport **transport, struct vb_cause *cause)
{
	uint8_t mine[VB_CAPS_BYTES] = {0}, peer[VB_CAPS_BYTES];
	struct vb_cause why = VB_NO_CAUSE;
	struct vb_transport *t = NULL;
	int rc, probed = 1;

	/* A failed probe still tells the peer: all zero, no RDMA (N-1). */
	if (options->transport != VB_TRANSPORT_TCP)
		probed = vb_probe(options, mine, &t, &why);
	rc = probed == -EINVAL ? probed
			       : exchange_caps(options, mine, peer, &why);
	if (rc == 0)
		rc = probed ? 1 : vb_activate(t, peer);
	if (rc && !probed) {
		if (vb_cause(t)->code)
			why = *vb_cause(t);
		vb_close(t, NULL);
	}
	if (rc == 1)
		rc = vb_tcp_open(options, &t);
	if (cause)
		*cause = why;
	if (rc == 0)
		*transport = t;
	return rc;
}
