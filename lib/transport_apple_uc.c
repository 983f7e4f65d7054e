/* SPDX-License-Identifier: MIT */
/*
 * The Apple UC transport's life: probe, activate, close.
 *
 * The order of every step is part of the contract: regions are registered
 * before RTR, receives posted after RTS and before the readiness byte
 * and the queue pair goes before the memory it can write to.
 */
#include "lib/apple_uc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/boot.h"
#include "lib/runtime.h"

#define DEFAULT_TIMEOUT_NS 30000000000ull
#define DEFAULT_GRACE_NS   100000000ull

#define UC_NO_CAUSE \
	((struct vb_cause){.offset_bytes = -1, .frame = -1, .slot = -1})

static int device_failed(struct apple_uc *uc, int error, const char *call)
{
	return vb_fail(&uc->base, VB_DEVICE, error ? -abs(error) : -EIO,
		       VB_NOWHERE, "%s on %s failed: %s", call, uc->found.name,
		       strerror(abs(error)));
}

/* --- probe -------------------------------------------------------------- */

/*
 * Aligned to its size rounded up to a power of two, so that a ring never
 * crosses a 4 GiB line (R6); zeroed, so that padding tells nothing (D-A20).
 */
static int ring_init(struct apple_uc *uc, struct uc_ring *ring)
{
	/* LOCAL_WRITE alone is refused by some (R8, A-4). */
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
			   IBV_ACCESS_REMOTE_WRITE;
	struct vb_runtime *runtime = &uc->base.runtime;
	size_t bytes = (size_t)uc->slots * uc->stride;
	size_t align = 16384; /* the page of an Apple host (R7) */

	while (align < bytes)
		align *= 2;
	ring->memory = runtime->alloc(runtime->arg, align, bytes);
	if (!ring->memory)
		return vb_fail(&uc->base, VB_DEVICE, -ENOMEM, VB_NOWHERE,
			       "no memory for a ring of %zu bytes", bytes);
	memset(ring->memory, 0, bytes);
	ring->mr = uc->verbs->reg_mr(uc->pd, ring->memory, bytes, access);
	return ring->mr ? 0 : device_failed(uc, errno, "reg_mr");
}

/* D-A15: what was granted decides how many strides the rings may hold. */
static int fit_rings(struct apple_uc *uc)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	uint32_t frames = uc->stride / UC_FRAME_BYTES;
	uint32_t depth;
	int rc = uc->verbs->query_qp(uc->qp, &attr, IBV_QP_CAP, &init);

	if (rc)
		return device_failed(uc, rc, "query_qp");
	depth = init.cap.max_send_wr < init.cap.max_recv_wr
			? init.cap.max_send_wr
			: init.cap.max_recv_wr;
	if (depth / frames < uc->slots)
		uc->slots = depth / frames;
	if (uc->slots > 0)
		return 0;
	return vb_fail(&uc->base, VB_DEVICE, -ENOSPC, VB_NOWHERE,
		       "%s grants queues of %u frames, one stride takes %u",
		       uc->found.name, depth, frames);
}

static int create_qp(struct apple_uc *uc)
{
	uint32_t frames = uc->slots * (uc->stride / UC_FRAME_BYTES);
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_UC,
		.cap = {.max_send_wr = frames,
			.max_recv_wr = frames,
			.max_send_sge = 1,
			.max_recv_sge = 1},
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = uc->found.port_num,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE |
				   IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_WRITE,
	};
	int rc;

	uc->cq = uc->verbs->create_cq(uc->context, (int)(2 * frames + 1), NULL,
				      NULL, 0);
	if (!uc->cq)
		return device_failed(uc, errno, "create_cq");
	init.send_cq = init.recv_cq = uc->cq;
	uc->qp = uc->verbs->create_qp(uc->pd, &init);
	if (!uc->qp)
		return device_failed(uc, errno, "create_qp");
	rc = fit_rings(uc);
	if (rc)
		return rc;
	rc = uc->verbs->modify_qp(uc->qp, &attr,
				  IBV_QP_STATE | IBV_QP_PKEY_INDEX |
					  IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	return rc ? device_failed(uc, rc, "modify_qp to INIT") : 0;
}

static int find_device(struct apple_uc *uc, const struct vb_options *options)
{
	static const uint8_t zero[16];
	uint8_t gid[16];
	char why[256];
	int rc;

	memcpy(gid, options->gid, 16);
	if (memcmp(gid, zero, 16) == 0) {
		rc = vb_boot_local_gid(options->fd, gid);
		if (rc)
			return vb_fail(&uc->base, VB_NO_DEVICE, rc, VB_NOWHERE,
				       "the bootstrap socket has no local IP "
				       "address: %s",
				       strerror(-rc));
	}
	rc = vb_verbs_get(options->verbs, &uc->verbs);
	if (rc)
		return vb_fail(&uc->base, VB_NO_DEVICE, rc, VB_NOWHERE,
			       "no verbs library on this host");
	rc = vb_registry_find(uc->verbs, gid, &uc->found, why);
	if (rc)
		return vb_fail(&uc->base, VB_NO_DEVICE, rc, VB_NOWHERE, "%s",
			       why);
	uc->context = uc->found.context;
	return 0;
}

static int probe(struct apple_uc *uc, const struct vb_options *options)
{
	int rc = find_device(uc, options);

	if (rc)
		return rc;
	uc->pd = uc->verbs->alloc_pd(uc->context);
	if (!uc->pd)
		return device_failed(uc, errno, "alloc_pd");
	rc = create_qp(uc);
	if (rc == 0)
		rc = ring_init(uc, &uc->send_ring);
	if (rc == 0)
		rc = ring_init(uc, &uc->recv_ring);
	return rc;
}

/* --- activate ----------------------------------------------------------- */

static int to_rtr(struct apple_uc *uc, const struct uc_caps *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = uc->found.port.active_mtu,
		.rq_psn = UC_PSN,
		.dest_qp_num = peer->qpn,
		.ah_attr = {.is_global = 1,
			    .dlid = peer->lid,
			    .port_num = uc->found.port_num,
			    .grh = {.hop_limit = 1,
				    .sgid_index =
					    (uint8_t)uc->found.gid_index}},
	};
	int rc;

	memcpy(attr.ah_attr.grh.dgid.raw, peer->gid, 16);
	rc = uc->verbs->modify_qp(uc->qp, &attr,
				  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					  IBV_QP_DEST_QPN | IBV_QP_RQ_PSN);
	return rc ? device_failed(uc, rc, "modify_qp to RTR") : 0;
}

static int to_rts(struct apple_uc *uc)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .sq_psn = UC_PSN};
	int rc = uc->verbs->modify_qp(uc->qp, &attr,
				      IBV_QP_STATE | IBV_QP_SQ_PSN);

	return rc ? device_failed(uc, rc, "modify_qp to RTS") : 0;
}

/* S3 … S5: connected, and every receive posted in slot order. */
static int arm(struct apple_uc *uc, const struct uc_caps *peer)
{
	int rc = to_rtr(uc, peer);

	if (rc == 0)
		rc = to_rts(uc);
	for (uint32_t slot = 0; rc == 0 && slot < uc->slots; slot++)
		rc = uc_post_recv(uc, slot);
	return rc;
}

/* The ends may disagree (two generals): nothing but an end of the connection
 * tells the peer for certain. */
static int give_up(struct apple_uc *uc)
{
	uc->base.boot.shutdown(uc->base.boot.arg);
	return uc->base.cause.error;
}

static int uc_activate(struct vb_transport *t, const uint8_t *caps)
{
	struct apple_uc *uc = (struct apple_uc *)t;
	struct uc_caps peer;
	struct vb_cause armed;
	uint8_t ready = 0;
	bool is_armed;

	if (uc->is_activated)
		return -EALREADY; /* one byte each way, once */
	uc->is_activated = true;
	memcpy(&peer, caps, sizeof(peer));
	is_armed = arm(uc, &peer) == 0;
	/* The peer always gets its byte (S6); our own failure is told after
	 * that, unless the exchange itself fails, which is worse. */
	armed = t->cause;
	t->cause = UC_NO_CAUSE;
	if (uc_exchange_ready(uc, is_armed ? UC_READY : 0, &ready) != 0)
		return give_up(uc);
	if (ready != UC_READY && ready != 0) {
		vb_fail(t, VB_PROTOCOL, -EPROTO, VB_NOWHERE,
			"readiness byte 0x%02x is neither 0x%02x nor 0", ready,
			UC_READY);
		return give_up(uc);
	}
	t->cause = armed;
	if (!is_armed)
		return 1;
	if (ready != UC_READY) {
		vb_fail(t, VB_DEVICE, -ENOTCONN, VB_NOWHERE,
			"the peer could not activate its queue pair");
		return 1;
	}
	uc->is_live = true;
	return 0;
}

/* --- close -------------------------------------------------------------- */

/* D-A7: a queue pair that goes takes its unsent frames along. */
static void drain_sends(struct apple_uc *uc)
{
	struct uc_wait wait = {.what = "close", .is_send = true};

	if (!uc->is_live || uc->base.cause.code || uc_flush(&uc->base))
		return;
	while (uc->sends_busy > 0 && uc_wait_once(uc, &wait) == 0)
		;
}

/* D-A34: when the device will not let go, it may still write: keep it. */
static bool ring_fini(struct apple_uc *uc, struct uc_ring *ring)
{
	struct vb_runtime *runtime = &uc->base.runtime;
	int rc = ring->mr ? uc->verbs->dereg_mr(ring->mr) : 0;

	if (rc) {
		device_failed(uc, rc, "dereg_mr (its memory is kept)");
		return false;
	}
	if (ring->memory)
		runtime->free(runtime->arg, ring->memory);
	return true;
}

static void release(struct apple_uc *uc)
{
	struct vb_verbs *verbs = uc->verbs;
	bool is_free = true;
	int rc;

	/* Never ERR before destroy: then every unmap fails (R49, A-34). */
	rc = uc->qp ? verbs->destroy_qp(uc->qp) : 0;
	if (rc) {
		device_failed(uc, rc, "destroy_qp (its rings are kept)");
		return;
	}
	is_free = ring_fini(uc, &uc->send_ring) && is_free;
	is_free = ring_fini(uc, &uc->recv_ring) && is_free;
	rc = uc->cq ? verbs->destroy_cq(uc->cq) : 0;
	if (rc)
		device_failed(uc, rc, "destroy_cq");
	if (rc || !is_free)
		return;
	rc = uc->pd ? verbs->dealloc_pd(uc->pd) : 0;
	if (rc) {
		device_failed(uc, rc, "dealloc_pd");
		return;
	}
	if (uc->context)
		verbs->close_device(uc->context);
	vb_verbs_put(verbs);
}

static int uc_close(struct vb_transport *t, struct vb_cause *cause)
{
	struct apple_uc *uc = (struct apple_uc *)t;
	int rc;

	drain_sends(uc);
	release(uc);
	rc = t->cause.error;
	if (cause)
		*cause = t->cause;
	free(uc);
	return rc;
}

static const struct vb_transport_ops uc_ops = {
	.name = "apple_uc",
	.activate = uc_activate,
	.send = uc_send,
	.recv = uc_recv,
	.flush = uc_flush,
	.close = uc_close,
};

static int check_options(struct apple_uc *uc)
{
	uint64_t frames = (uint64_t)uc->slots * (uc->stride / UC_FRAME_BYTES);

	if (uc->stride % UC_FRAME_BYTES || uc->stride == 0)
		return vb_fail(&uc->base, VB_DEVICE, -EINVAL, VB_NOWHERE,
			       "stride_bytes %u is not a multiple of %u",
			       uc->stride, UC_FRAME_BYTES);
	if (uc->slots > UC_SLOTS_MAX || frames > 4095)
		return vb_fail(&uc->base, VB_DEVICE, -EINVAL, VB_NOWHERE,
			       "slots %u: at most %u, and 4095 frames in all",
			       uc->slots, UC_SLOTS_MAX);
	return 0;
}

int vb_probe(const struct vb_options *options, uint8_t caps[VB_CAPS_BYTES],
	     struct vb_transport **transport, struct vb_cause *cause)
{
	struct apple_uc *uc = calloc(1, sizeof(*uc));
	struct uc_caps mine = {0};
	int rc;

	memset(caps, 0, VB_CAPS_BYTES);
	if (!uc)
		return -ENOMEM;
	uc->base.ops = &uc_ops;
	uc->base.cause = UC_NO_CAUSE;
	uc->base.runtime = vb_runtime_or_default(&options->runtime);
	uc->base.boot =
		options->boot ? *options->boot : vb_boot_socket(options->fd);
	uc->base.timeout_ns =
		options->timeout_ns ? options->timeout_ns : DEFAULT_TIMEOUT_NS;
	uc->base.grace_ns =
		options->grace_ns ? options->grace_ns : DEFAULT_GRACE_NS;
	uc->stride =
		options->stride_bytes ? options->stride_bytes : UC_STRIDE_BYTES;
	uc->slots = options->slots ? options->slots : UC_SLOTS;
	uc->pending = -1;
	rc = check_options(uc);
	if (rc == 0)
		rc = probe(uc, options);
	if (cause)
		*cause = uc->base.cause;
	if (rc) {
		uc_close(&uc->base, NULL);
		return rc;
	}
	mine.qpn = uc->qp->qp_num;
	mine.lid = uc->found.port.lid;
	memcpy(mine.gid, uc->found.gid.raw, 16);
	memcpy(caps, &mine, sizeof(mine));
	*transport = &uc->base;
	return 0;
}
