/* SPDX-License-Identifier: MIT */
/*
 * From the peer's capabilities to a live transport: which mode, and the one
 * exchange after which both ends are live, or both on the socket (A-9, N-3).
 * What leaves an end in doubt shuts the socket down, so that the other one is
 * never left waiting (D-A12, D-L1).
 */
#include <errno.h>
#include <string.h>

#include "lib/qp_stream.h"

/* The ends may disagree (two generals): nothing but an end of the connection
 * tells the peer for certain. */
static int give_up(struct qp_stream *qs)
{
	qs->base.boot.shutdown(qs->base.boot.arg);
	return qs->base.cause.error;
}

/* Both ends know. */
static int stay(struct qp_stream *qs, enum vb_code code, const char *why)
{
	vb_fail(&qs->base, code, -ENOTCONN, VB_NOWHERE, "%s", why);
	return 1;
}

static void use_compat(struct qp_stream *qs)
{
	const struct qs_kind *kind = qs->kind;

	qs->wire.framing = kind->framing;
	qs->wire.has_crc = false;
	qs->mtu = qs->found.port.active_mtu;
	if (!qs->is_slots_given) {
		qs->recv_slots = SMALLER(qs->recv_slots, kind->recv_slots);
		qs->send_slots = SMALLER(qs->send_slots, kind->send_slots);
	}
	/* L-2: a peer without frames has never more than one to take. */
	if (kind->framing == VB_FRAMING_NONE)
		qs->send_slots = 1;
}

static void use_hardened(struct qp_stream *qs, const struct vb_choice *choice)
{
	qs->wire.framing = VB_FRAMING_HARDENED;
	qs->wire.has_crc = choice->features & VB_FEATURE_CRC;
	qs->wire.stride_bytes = choice->stride_bytes;
	qs->send_slots = qs->recv_slots = choice->slots;
	qs->mtu = choice->mtu;
}

/* --- the one exchange --- */

/* Tell whether this end is armed, and hear of the other. 0, or latched. */
typedef int (*exchange_fn)(struct qp_stream *qs, const struct vb_choice *choice,
			   bool is_armed, bool *is_peer_armed);

static int exchange_byte(struct qp_stream *qs, const struct vb_choice *choice,
			 bool is_armed, bool *is_peer_armed)
{
	struct vb_transport *t = &qs->base;
	uint8_t mine = is_armed ? QS_READY : 0, peer;
	int rc = vb_boot_move(t, &mine, 1, true, "readiness byte");

	(void)choice;
	if (rc == 0)
		rc = vb_boot_move(t, &peer, 1, false, "readiness byte");
	if (rc)
		return rc;
	if (peer != QS_READY && peer != 0)
		return vb_fail(t, VB_PROTOCOL, -EPROTO, VB_NOWHERE,
			       "readiness byte 0x%02x is neither 0x%02x nor 0",
			       peer, QS_READY);
	*is_peer_armed = peer == QS_READY;
	return 0;
}

static int exchange_commit(struct qp_stream *qs, const struct vb_choice *choice,
			   bool is_armed, bool *is_peer_armed)
{
	struct vb_transport *t = &qs->base;
	uint8_t mine[VB_COMMIT_BYTES], peer[VB_COMMIT_BYTES];
	char why[VB_WHY];
	int rc;

	vb_commit_pack(choice, is_armed, mine);
	rc = vb_boot_move(t, mine, sizeof(mine), true, "commit");
	if (rc == 0)
		rc = vb_boot_move(t, peer, sizeof(peer), false, "commit");
	if (rc)
		return rc;
	rc = vb_commit_parse(peer, choice, is_peer_armed, why);
	return rc ? vb_fail(t, VB_PROTOCOL, rc, VB_NOWHERE, "%s", why) : 0;
}

/* The peer always hears (S6); our own failure is told after that, unless the
 * exchange itself fails, which is worse. */
static int settle(struct qp_stream *qs, const struct vb_choice *choice,
		  bool is_armed, exchange_fn exchange)
{
	struct vb_cause armed = qs->base.cause;
	bool is_peer_armed = false;

	qs->base.cause = VB_NO_CAUSE;
	if (exchange(qs, choice, is_armed, &is_peer_armed) != 0)
		return give_up(qs);
	qs->base.cause = armed;
	if (!is_armed)
		return 1;
	if (!is_peer_armed)
		return stay(qs, VB_DEVICE,
			    "the peer could not activate its queue pair");
	qs->is_live = true;
	return 0;
}

/* --- modes --- */

/* D-A28: a cable has two ends. Only emulated devices share an address: those of
 * the loopback. */
static bool is_self(const struct qp_stream *qs, const struct vb_caps *peer)
{
	if (qs->kind->platform != VB_PLATFORM_APPLE ||
	    memcmp(peer->gid, qs->mine.gid, 16) != 0)
		return false;
	return peer->qpn == qs->mine.qpn ||
	       vb_gid_scope_of(peer->gid) != VB_GID_LOOPBACK;
}

static int activate_compat(struct qp_stream *qs, const struct vb_caps *peer)
{
	bool is_armed;

	use_compat(qs);
	if (qs->mode == VB_HARDENED_ONLY)
		vb_fail(&qs->base, VB_PROTOCOL, -EPROTO, VB_NOWHERE,
			"the peer speaks compat mode only");
	else if (is_self(qs, peer))
		vb_fail(&qs->base, VB_PROTOCOL, -EPROTO, VB_NOWHERE,
			"the peer has this end's own GID: a device is not "
			"connected with itself");
	else
		qs->kind->arm(qs, peer);
	is_armed = qs->base.cause.code == VB_OK;
	if (qs->kind->has_ready)
		return settle(qs, NULL, is_armed, exchange_byte);
	/* Without an exchange the peer is live by now (D-L1). */
	if (!is_armed)
		return give_up(qs);
	qs->is_live = true;
	return 0;
}

static int exchange_records(struct qp_stream *qs, const struct vb_record *mine,
			    struct vb_record *peer)
{
	struct vb_transport *t = &qs->base;
	uint8_t bytes[VB_RECORD_MAX_BYTES];
	char why[VB_WHY];
	int length, rc;

	vb_record_pack(mine, bytes);
	rc = vb_boot_move(t, bytes, VB_RECORD_BYTES, true, "capability record");
	if (rc == 0)
		rc = vb_boot_move(t, bytes, VB_RECORD_HEAD_BYTES, false,
				  "capability record");
	if (rc)
		return rc;
	length = vb_record_length(bytes, why);
	if (length < 0)
		return vb_fail(t, VB_PROTOCOL, length, VB_NOWHERE, "%s", why);
	rc = vb_boot_move(t, bytes + VB_RECORD_HEAD_BYTES,
			  (size_t)length - VB_RECORD_HEAD_BYTES, false,
			  "capability record");
	if (rc)
		return rc;
	rc = vb_record_parse(bytes, (size_t)length, peer, why);
	return rc ? vb_fail(t, VB_PROTOCOL, rc, VB_NOWHERE, "%s", why) : 0;
}

static int activate_hardened(struct qp_stream *qs, const struct vb_caps *peer)
{
	struct vb_record theirs = {0};
	struct vb_record mine = {
		.version = VB_RECORD_VERSION,
		.platform = (uint8_t)qs->kind->platform,
		.transport = (uint8_t)qs->kind->kind,
		.features = qs->wants_crc ? VB_FEATURE_CRC : 0,
		.stride_bytes = qs->wire.stride_bytes,
		.slots = (uint16_t)SMALLER(qs->send_slots, qs->recv_slots),
		.mtu = qs->found.port.active_mtu,
		.port = qs->found.port.num,
		.device = qs->found.node_guid,
		.qpn = qs->mine.qpn,
	};
	struct vb_choice choice;
	char why[VB_WHY];

	if (exchange_records(qs, &mine, &theirs) != 0)
		return give_up(qs);
	if (theirs.qpn != peer->qpn) {
		vb_fail(&qs->base, VB_PROTOCOL, -EPROTO, VB_NOWHERE,
			"capabilities of queue pair 0x%x, record of 0x%x",
			peer->qpn, theirs.qpn);
		return give_up(qs);
	}
	/* What does not fit here does not fit there. */
	if (vb_record_agree(&mine, &theirs, &choice, why) != 0)
		return stay(qs, VB_PROTOCOL, why);
	use_hardened(qs, &choice);
	qs->kind->arm(qs, peer);
	return settle(qs, &choice, qs->base.cause.code == VB_OK,
		      exchange_commit);
}

/* D-N1, N-6: the other platform's end would wait for, or send, a byte that
 * this one knows nothing of. Two hardened ends both see it. */
static int refuse(struct qp_stream *qs, const struct vb_caps *peer)
{
	static const char *const names[] = {
		[VB_PLATFORM_NONE] = "of no known layout",
		[VB_PLATFORM_APPLE] = "an Apple end's",
		[VB_PLATFORM_LINUX] = "a Linux end's",
	};

	vb_fail(&qs->base, VB_PROTOCOL, -EPROTO, VB_NOWHERE,
		"the peer's capabilities are %s, this end is %s",
		names[peer->platform], qs->kind->ops.name);
	if (qs->mine.is_hardened && peer->is_hardened)
		return 1;
	return give_up(qs);
}

int qs_activate(struct vb_transport *t, const uint8_t *caps)
{
	struct qp_stream *qs = (struct qp_stream *)t;
	struct vb_caps peer;
	int rc;

	if (qs->is_activated)
		return -EALREADY; /* one exchange, once */
	qs->is_activated = true;
	rc = vb_caps_parse(caps, &peer);
	if (rc == 1) /* N-1: and not a byte more on the stream */
		return stay(qs, VB_NO_DEVICE, "the peer has no RDMA device");
	if (rc || peer.platform != qs->kind->platform)
		return refuse(qs, &peer);
	if (qs->mine.is_hardened && peer.is_hardened)
		return activate_hardened(qs, &peer);
	return activate_compat(qs, &peer);
}
