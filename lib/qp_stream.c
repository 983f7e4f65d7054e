/* SPDX-License-Identifier: MIT */
/*
 * A byte stream over one queue pair: set up, and taken down.
 *
 * The order of every step is part of the contract: regions are registered
 * before RTR, and the queue pair goes before the memory that it can write
 * to (A-33, L-13).
 */
#include "lib/qp_stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int qs_failed(struct qp_stream *qs, int error, const char *call)
{
	return vb_fail(&qs->base, VB_DEVICE, error ? -abs(error) : -EIO,
		       VB_NOWHERE, "%s on %s failed: %s", call, qs->found.name,
		       strerror(abs(error)));
}

int qs_modify(struct qp_stream *qs, struct ibv_qp_attr *attr, int mask,
	      const char *state)
{
	char call[32] = "modify_qp to ";
	int rc = qs->verbs->modify_qp(qs->qp, attr, mask);

	strncat(call, state, sizeof(call) - strlen(call) - 1);
	return rc ? qs_failed(qs, rc, call) : 0;
}

struct ibv_qp_attr qs_path(const struct qp_stream *qs,
			   const struct vb_caps *peer, uint32_t psn)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = qs->mtu,
		.rq_psn = psn,
		.dest_qp_num = peer->qpn,
		.ah_attr =
			{.is_global = 1,
			 .dlid = peer->lid, /* 0 where capabilities have none */
			 .port_num = qs->found.port.num,
			 .grh = {.hop_limit = 1,
				 .sgid_index = (uint8_t)qs->found.gid.index}},
	};

	memcpy(attr.ah_attr.grh.dgid.raw, peer->gid, 16);
	return attr;
}

/* --- probe --- */

/*
 * Aligned to its size rounded up to a power of two, so that a ring never
 * crosses a 4 GiB line (R6). Padding tells nothing, as it is zeroed (D-A20).
 */
static int ring_init(struct qp_stream *qs, struct qs_ring *ring, uint32_t slots)
{
	size_t bytes = (size_t)slots * qs->wire.stride_bytes;
	size_t align = 16384; /* the page of an Apple host (R7) */
	int rc;

	while (align < bytes)
		align *= 2;
	rc = vb_memory_open(&qs->base.runtime, align, bytes, &ring->memory);
	if (rc)
		return vb_fail(&qs->base, VB_DEVICE, rc, VB_NOWHERE,
			       "no memory for a ring of %zu bytes", bytes);
	rc = vb_region_open(qs->domain, ring->memory.bytes, bytes,
			    &ring->region);
	return rc ? qs_failed(qs, rc, "reg_mr") : 0;
}

static uint32_t slots_in(const struct qp_stream *qs, uint32_t depth)
{
	uint32_t frame = qs->kind->frame_bytes;

	return frame ? depth / (qs->wire.stride_bytes / frame) : depth;
}

/* D-A15: what was granted decides how many strides the rings may hold. */
static int fit_rings(struct qp_stream *qs)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	uint32_t sends, recvs;
	int rc = qs->verbs->query_qp(qs->qp, &attr, IBV_QP_CAP, &init);

	if (rc)
		return qs_failed(qs, rc, "query_qp");
	sends = slots_in(qs, init.cap.max_send_wr);
	recvs = slots_in(qs, init.cap.max_recv_wr);
	qs->send_slots = SMALLER(qs->send_slots, sends);
	qs->recv_slots = SMALLER(qs->recv_slots, recvs);
	qs->inline_bytes = SMALLER(init.cap.max_inline_data, qs->inline_bytes);
	if (qs->send_slots && qs->recv_slots)
		return 0;
	return vb_fail(&qs->base, VB_DEVICE, -ENOSPC, VB_NOWHERE,
		       "%s grants queues of %u and %u %s, which hold %u and %u "
		       "strides",
		       qs->found.name, init.cap.max_send_wr,
		       init.cap.max_recv_wr,
		       qs->kind->frame_bytes ? "frames" : "requests", sends,
		       recvs);
}

/* The errno is create_cq's. */
static int create_cqs(struct qp_stream *qs, const struct qs_depth *depth)
{
	struct ibv_context *context = qs->found.hold.context;
	bool has_two = qs->kind->has_two_cqs;
	uint32_t entries = 1 + depth->sends + (has_two ? 0 : depth->recvs);

	errno = 0;
	qs->send_cq = qs->recv_cq =
		qs->verbs->create_cq(context, (int)entries, NULL, NULL, 0);
	if (qs->send_cq && has_two)
		qs->recv_cq =
			qs->verbs->create_cq(context, (int)depth->recvs + 1,
					     NULL, NULL, 0);
	return qs->recv_cq ? 0 : -1;
}

static int create_qp(struct qp_stream *qs)
{
	struct qs_depth depth = qs->kind->depth(qs);
	struct ibv_qp_init_attr init = {
		.qp_type = qs->kind->qp_type,
		.cap = {.max_send_wr = depth.sends,
			.max_recv_wr = depth.recvs,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = depth.inline_bytes},
	};

	if (create_cqs(qs, &depth))
		return qs_failed(qs, errno, "create_cq");
	init.send_cq = qs->send_cq;
	init.recv_cq = qs->recv_cq;
	qs->inline_bytes = depth.inline_bytes;
	qs->qp = qs->verbs->create_qp(vb_domain_pd(qs->domain), &init);
	if (!qs->qp && depth.inline_bytes) {
		/* Some devices have none (D-L9). */
		init.cap.max_inline_data = qs->inline_bytes = 0;
		qs->qp = qs->verbs->create_qp(vb_domain_pd(qs->domain), &init);
	}
	return qs->qp ? 0 : qs_failed(qs, errno, "create_qp");
}

static int to_init(struct qp_stream *qs)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = qs->found.port.num,
		.qp_access_flags = VB_ACCESS,
	};

	return qs_modify(qs, &attr,
			 IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				 IBV_QP_ACCESS_FLAGS,
			 "INIT");
}

#define RING_MAX (1ull << 30)

static int check_rings(struct qp_stream *qs)
{
	uint32_t frame = qs->kind->frame_bytes;
	uint64_t bytes = (uint64_t)qs->recv_slots * qs->wire.stride_bytes;

	if (bytes > RING_MAX)
		return vb_fail(
			&qs->base, VB_DEVICE, -EINVAL, VB_NOWHERE,
			"slots %u of stride_bytes %u: a ring has at most "
			"1 GiB",
			qs->recv_slots, qs->wire.stride_bytes);
	if (frame && bytes / frame > 4095)
		return vb_fail(
			&qs->base, VB_DEVICE, -EINVAL, VB_NOWHERE,
			"slots %u of stride_bytes %u are %llu frames, at "
			"most 4095",
			qs->recv_slots, qs->wire.stride_bytes,
			(unsigned long long)(bytes / frame));
	return 0;
}

/* As many strides as the mode may need; what is agreed can only be less. */
static int set_shape(struct qp_stream *qs, const struct vb_options *options)
{
	const struct qs_kind *kind = qs->kind;

	qs->wire.is_whole = kind->is_whole;
	qs->wire.stride_bytes = options->stride_bytes ? options->stride_bytes
						      : kind->stride_bytes;
	qs->send_slots = kind->send_slots;
	qs->recv_slots = kind->recv_slots;
	if (qs->mode != VB_COMPAT)
		qs->send_slots = kind->hardened_slots;
	if (options->slots) {
		qs->is_slots_given = true;
		qs->send_slots = qs->recv_slots = options->slots;
	}
	return check_rings(qs);
}

static int choose_kind(struct qp_stream *qs, enum vb_transport_kind asked,
		       enum vb_transport_kind of_device)
{
	static const struct qs_kind *const kinds[] = {&vb_kind_apple_uc,
						      &vb_kind_rc};
	enum vb_transport_kind kind = asked ? asked : of_device;

	if (kind == VB_TRANSPORT_AUTO)
		kind = VB_TRANSPORT_RC;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (kinds[i]->kind == kind) {
			qs->kind = kinds[i];
			qs->base.ops = &kinds[i]->ops;
			return 0;
		}
	return vb_fail(&qs->base, VB_NO_DEVICE, -EOPNOTSUPP, VB_NOWHERE,
		       "there is no transport of kind %d, for %s", kind,
		       qs->found.name);
}

static int probe(struct qp_stream *qs, const struct vb_options *options)
{
	enum vb_transport_kind of_device = VB_TRANSPORT_AUTO;
	int rc = vb_options_check(&qs->base, options);

	if (rc == 0)
		rc = vb_find(qs, options, &of_device);
	if (rc == 0)
		rc = choose_kind(qs, options->transport, of_device);
	if (rc == 0)
		rc = set_shape(qs, options);
	if (rc)
		return rc;
	rc = vb_domain_open(qs->found.device, "", &qs->domain);
	if (rc)
		return qs_failed(qs, rc, "alloc_pd");
	rc = create_qp(qs);
	if (rc == 0)
		rc = fit_rings(qs);
	if (rc == 0)
		rc = to_init(qs);
	if (rc == 0)
		rc = ring_init(qs, &qs->send_ring, qs->send_slots);
	if (rc == 0)
		rc = ring_init(qs, &qs->recv_ring, qs->recv_slots);
	return rc;
}

static void set_caps(struct qp_stream *qs, uint8_t caps[VB_CAPS_BYTES])
{
	qs->mine = (struct vb_caps){
		.platform = qs->kind->platform,
		.is_hardened = qs->mode != VB_COMPAT,
		.qpn = qs->qp->qp_num,
		.psn = qs->mode == VB_COMPAT
			       ? qs->qp->qp_num & 0xffffff
			       : vb_caps_hardened_psn(qs->qp->qp_num),
		.lid = qs->found.port.lid,
	};
	memcpy(qs->mine.gid, qs->found.gid.raw, 16);
	vb_caps_pack(&qs->mine, caps);
}

int vb_probe(const struct vb_options *options, uint8_t caps[VB_CAPS_BYTES],
	     struct vb_transport **transport, struct vb_cause *cause)
{
	struct qp_stream *qs = calloc(1, sizeof(*qs));
	int rc;

	memset(caps, 0, VB_CAPS_BYTES);
	if (!qs)
		return -ENOMEM;
	vb_transport_init(&qs->base, NULL, options);
	qs->mode = options->mode;
	qs->wants_crc = options->has_crc;
	qs->pending = -1;
	rc = probe(qs, options);
	if (cause)
		*cause = qs->base.cause;
	if (rc) {
		qs_close(&qs->base, NULL);
		return rc;
	}
	set_caps(qs, caps); /* A-12, N-2: only when all is there */
	*transport = &qs->base;
	return 0;
}

/* --- close --- */

/* D-A34: when the device will not let go, it may still write: keep it. */
static int ring_fini(struct qp_stream *qs, struct qs_ring *ring)
{
	int rc = vb_region_close(&ring->region);

	if (rc)
		return qs_failed(qs, rc, "dereg_mr (its memory is kept)");
	vb_memory_close(&qs->base.runtime, &ring->memory);
	return 0;
}

static int device_fini(struct qp_stream *qs)
{
	int held = vb_context_put(&qs->found.hold);
	int rc = qs->found.device ? vb_device_close(qs->found.device) : 0;

	qs->found.device = NULL;
	rc = rc ? rc : held;
	return rc ? qs_failed(qs, rc, "closing the device") : 0;
}

static int destroy_cq(struct qp_stream *qs, struct ibv_cq **cq)
{
	int rc = *cq ? qs->verbs->destroy_cq(*cq) : 0;

	if (rc)
		return qs_failed(qs, rc, "destroy_cq");
	*cq = NULL;
	return 0;
}

static int cqs_fini(struct qp_stream *qs)
{
	int rc = 0;

	if (qs->recv_cq == qs->send_cq)
		qs->recv_cq = NULL;
	rc = destroy_cq(qs, &qs->recv_cq);
	return rc ? rc : destroy_cq(qs, &qs->send_cq);
}

/* Whatever goes, in the legal order. Never ERR before destroy: then every unmap
 * fails (R49, A-34). False: some of it is still there. */
static bool release(struct qp_stream *qs)
{
	int rc = qs->qp ? qs->verbs->destroy_qp(qs->qp) : 0;
	int sent, received;

	if (rc) {
		qs_failed(qs, rc, "destroy_qp (its rings are kept)");
		return false;
	}
	qs->qp = NULL;
	sent = ring_fini(qs, &qs->send_ring);
	received = ring_fini(qs, &qs->recv_ring);
	rc = cqs_fini(qs);
	if (rc || sent || received)
		return false;
	device_fini(qs);
	return true;
}

/* Of transports that are closed: what their devices did not let go. */
static struct qp_stream *kept;
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;

static void keep(struct qp_stream *qs)
{
	pthread_mutex_lock(&kept_lock);
	qs->next_kept = kept;
	kept = qs;
	pthread_mutex_unlock(&kept_lock);
}

int vb_release_kept(void)
{
	struct qp_stream *qs, *next;
	int count = 0;

	pthread_mutex_lock(&kept_lock);
	qs = kept;
	kept = NULL;
	pthread_mutex_unlock(&kept_lock);
	for (; qs; qs = next) {
		next = qs->next_kept;
		if (release(qs)) {
			free(qs);
		} else {
			keep(qs);
			count++;
		}
	}
	return count;
}

int qs_close(struct vb_transport *t, struct vb_cause *cause)
{
	struct qp_stream *qs = (struct qp_stream *)t;
	bool is_released;
	int rc;

	qs_drain(qs);
	vb_backlog_fini(t);
	is_released = release(qs);
	rc = t->cause.error;
	if (cause)
		*cause = t->cause;
	if (is_released)
		free(qs);
	else
		keep(qs);
	return rc;
}
