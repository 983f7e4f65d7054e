/* SPDX-License-Identifier: MIT */
/*
 * The Apple UC transport's data path: a byte stream cut into strides.
 *
 * Every SEND and every RECV is one whole stride, because both must cover the
 * same number of Thunderbolt frames (R15). A stride carries magic, length,
 * payload; the magic is all that compat mode has to notice a desync.
 */
#include "lib/apple_uc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define POLL_BATCH 32

static struct vb_where at_send(const struct apple_uc *uc, uint32_t slot)
{
	return (struct vb_where){
		.is_send = true,
		.offset_bytes = (int64_t)uc->send_offset[slot],
		.frame = (int64_t)uc->send_frame[slot],
		.slot = (int)slot,
	};
}

static struct vb_where at_recv(const struct apple_uc *uc, int slot)
{
	return (struct vb_where){
		.offset_bytes = (int64_t)uc->queued_bytes,
		.frame = (int64_t)uc->frames_received,
		.slot = slot,
	};
}

int uc_post_recv(struct apple_uc *uc, uint32_t slot)
{
	uint8_t *memory = uc_slot(uc, &uc->recv_ring, slot);
	struct ibv_sge sge = {
		.addr = (uintptr_t)memory,
		.length = uc->stride,
		.lkey = uc->recv_ring.mr->lkey,
	};
	struct ibv_recv_wr wr = {.wr_id = UC_RECV_TAG | slot,
				 .sg_list = &sge,
				 .num_sge = 1};
	struct ibv_recv_wr *bad;
	int rc;

	/* A header of the last lap must not pass for a new one (D-A4). */
	memset(memory, 0, sizeof(struct uc_header));
	rc = uc->context->ops.post_recv(uc->qp, &wr, &bad);
	if (rc)
		return vb_fail(&uc->base, VB_DEVICE, -abs(rc),
			       at_recv(uc, (int)slot),
			       "post_recv of slot %u failed: %s", slot,
			       strerror(abs(rc)));
	uc->recv_posted[slot] = true;
	return 0;
}

static int post_send(struct apple_uc *uc, uint32_t slot, uint32_t len)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)uc_slot(uc, &uc->send_ring, slot),
		.length = uc->stride,
		.lkey = uc->send_ring.mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = slot,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_send_wr *bad;
	int rc;

	uc->send_frame[slot] = uc->frames_sent;
	uc->send_offset[slot] = uc->base.sent_bytes - len;
	rc = uc->context->ops.post_send(uc->qp, &wr, &bad);
	if (rc)
		return vb_fail(&uc->base, VB_DEVICE, -abs(rc),
			       at_send(uc, slot),
			       "post_send of frame %llu (slot %u) failed: %s",
			       (unsigned long long)uc->frames_sent, slot,
			       strerror(abs(rc)));
	uc->send_busy[slot] = true;
	uc->sends_busy++;
	uc->frames_sent++;
	return 0;
}

/* --- completions -------------------------------------------------------- */

static const char *status_name(int status)
{
	static const char *const names[] = {
		[IBV_WC_LOC_LEN_ERR] = "local length error",
		[IBV_WC_LOC_QP_OP_ERR] = "local queue pair operation error",
		[IBV_WC_LOC_PROT_ERR] = "local protection error",
		[IBV_WC_WR_FLUSH_ERR] = "flushed",
		[IBV_WC_FATAL_ERR] = "fatal error",
	};
	size_t count = sizeof(names) / sizeof(*names);

	return (size_t)status < count && names[status] ? names[status]
						       : "error";
}

static int completion_failed(struct apple_uc *uc, const struct ibv_wc *wc)
{
	bool is_recv = wc->wr_id & UC_RECV_TAG;
	uint32_t slot = (uint32_t)(wc->wr_id & UC_SLOT_MASK);
	struct vb_where where = VB_NOWHERE;

	if (slot < uc->slots)
		where = is_recv ? at_recv(uc, (int)slot) : at_send(uc, slot);
	if (uc->base.cause.code == VB_OK)
		uc->base.cause.wc_status = wc->status;
	return vb_fail(&uc->base, VB_COMPLETION, -EIO, where,
		       "%s of frame %lld (slot %u) completed with status %d: "
		       "%s",
		       is_recv ? "receive" : "send", (long long)where.frame,
		       slot, wc->status, status_name(wc->status));
}

static int send_completed(struct apple_uc *uc, const struct ibv_wc *wc)
{
	if (wc->wr_id >= uc->slots || !uc->send_busy[wc->wr_id])
		return vb_fail(&uc->base, VB_PROTOCOL, -EPROTO, VB_NOWHERE,
			       "send completion for wr_id 0x%llx, which is not "
			       "in flight",
			       (unsigned long long)wc->wr_id);
	uc->send_busy[wc->wr_id] = false;
	uc->sends_busy--;
	return 0;
}

/* D-A3, D-A16, D-A17: nothing from the wire is believed. */
static int recv_completed(struct apple_uc *uc, const struct ibv_wc *wc)
{
	uint64_t slot = wc->wr_id & ~UC_RECV_TAG;
	struct uc_header header;
	struct uc_queued *queued;

	if (slot >= uc->slots || !uc->recv_posted[slot])
		return vb_fail(&uc->base, VB_PROTOCOL, -EPROTO, VB_NOWHERE,
			       "receive completion for wr_id 0x%llx, which is "
			       "not posted",
			       (unsigned long long)wc->wr_id);
	if (wc->byte_len != uc->stride || wc->opcode != IBV_WC_RECV)
		return vb_fail(&uc->base, VB_PROTOCOL, -EPROTO,
			       at_recv(uc, (int)slot),
			       "frame %llu (slot %llu) has %u bytes and opcode "
			       "%d; a stride is %u",
			       (unsigned long long)uc->frames_received,
			       (unsigned long long)slot, wc->byte_len,
			       wc->opcode, uc->stride);
	memcpy(&header, uc_slot(uc, &uc->recv_ring, (uint32_t)slot),
	       sizeof(header));
	if (header.magic != UC_MAGIC)
		return vb_fail(&uc->base, VB_PROTOCOL, -EPROTO,
			       at_recv(uc, (int)slot),
			       "bad frame magic 0x%08x (want 0x%08x) in frame "
			       "%llu, slot %llu, at stream offset %llu",
			       header.magic, UC_MAGIC,
			       (unsigned long long)uc->frames_received,
			       (unsigned long long)slot,
			       (unsigned long long)uc->queued_bytes);
	if (header.len > uc_payload(uc))
		return vb_fail(&uc->base, VB_PROTOCOL, -EPROTO,
			       at_recv(uc, (int)slot),
			       "frame %llu (slot %llu) says %u payload bytes, "
			       "at most %u fit",
			       (unsigned long long)uc->frames_received,
			       (unsigned long long)slot, header.len,
			       uc_payload(uc));
	uc->recv_posted[slot] = false;
	queued = &uc->queue[(uc->queue_head + uc->queue_count) % uc->slots];
	queued->slot = (uint32_t)slot;
	queued->off = 0;
	queued->len = header.len;
	uc->queue_count++;
	uc->frames_received++;
	uc->queued_bytes += header.len;
	return 0;
}

int uc_progress(struct apple_uc *uc)
{
	struct ibv_wc wc[POLL_BATCH];
	int count = uc->context->ops.poll_cq(uc->cq, POLL_BATCH, wc);

	if (count < 0)
		return vb_fail(&uc->base, VB_DEVICE, -EIO, VB_NOWHERE,
			       "poll_cq failed: %d", count);
	/* The whole batch is looked at, so that what is known of each slot
	 * stays true; the first failure is the one that counts (D-A18). */
	for (int i = 0; i < count; i++) {
		if (wc[i].status != IBV_WC_SUCCESS)
			completion_failed(uc, &wc[i]);
		else if (wc[i].wr_id & UC_RECV_TAG)
			recv_completed(uc, &wc[i]);
		else
			send_completed(uc, &wc[i]);
	}
	return uc->base.cause.code ? uc->base.cause.error : count;
}

/* --- waiting ------------------------------------------------------------ */

static struct vb_where at_wait(const struct apple_uc *uc,
			       const struct uc_wait *wait)
{
	return (struct vb_where){
		.is_send = wait->is_send,
		.offset_bytes =
			(int64_t)(wait->is_send ? uc->base.sent_bytes
						: uc->base.received_bytes),
		.frame = (int64_t)(wait->is_send ? uc->frames_sent
						 : uc->frames_received),
		.slot = -1,
	};
}

static int timed_out(struct apple_uc *uc, const struct uc_wait *wait,
		     uint64_t idle_ns)
{
	struct vb_where where = at_wait(uc, wait);

	return vb_fail(&uc->base, VB_TIMEOUT, -ETIMEDOUT, where,
		       "%s: nothing moved for %llu ms; waiting at stream "
		       "offset %lld for frame %lld",
		       wait->what, (unsigned long long)(idle_ns / 1000000),
		       (long long)where.offset_bytes, (long long)where.frame);
}

static int peer_gone(struct apple_uc *uc, const struct uc_wait *wait)
{
	struct vb_where where = at_wait(uc, wait);

	return vb_fail(&uc->base, VB_PEER_GONE, -ECONNRESET, where,
		       "%s: the peer closed the connection; stream offset "
		       "%lld, frame %lld",
		       wait->what, (long long)where.offset_bytes,
		       (long long)where.frame);
}

/* When there is something to decide though nothing came. */
static uint64_t next_look(const struct apple_uc *uc, const struct uc_wait *wait)
{
	uint64_t watch = wait->watched_ns + UC_WATCH_NS;
	uint64_t left = UINT64_MAX - wait->since_ns;
	uint64_t end =
		wait->since_ns +
		(uc->base.timeout_ns < left ? uc->base.timeout_ns : left);

	return watch < end ? watch : end;
}

int uc_wait_once(struct apple_uc *uc, struct uc_wait *wait)
{
	struct vb_runtime *runtime = &uc->base.runtime;
	uint64_t now, idle;
	int rc = uc_progress(uc);

	if (rc != 0) {
		wait->since_ns = 0;
		return rc < 0 ? rc : 0;
	}
	now = runtime->now_ns(runtime->arg);
	if (wait->since_ns == 0) {
		wait->since_ns = now;
		wait->watched_ns = now;
	}
	idle = now - wait->since_ns;
	if (now - wait->watched_ns >= UC_WATCH_NS) {
		wait->watched_ns = now;
		rc = uc_watch_peer(uc);
		if (rc < 0)
			return rc;
	}
	/* Its end may overtake its last frames: drain for a while (D-A6). */
	if (uc->peer_ended && idle >= uc->base.grace_ns &&
	    now - uc->peer_ended_ns >= uc->base.grace_ns)
		return peer_gone(uc, wait);
	if (idle >= uc->base.timeout_ns)
		return timed_out(uc, wait, idle);
	runtime->idle(runtime->arg, idle, next_look(uc, wait));
	return 0;
}

/* --- the stream --------------------------------------------------------- */

static int post_pending(struct apple_uc *uc)
{
	struct uc_header header = {UC_MAGIC, uc->pending_len};
	uint32_t slot = (uint32_t)uc->pending;

	if (uc->pending < 0)
		return 0;
	memcpy(uc_slot(uc, &uc->send_ring, slot), &header, sizeof(header));
	uc->pending = -1;
	uc->pending_len = 0;
	return post_send(uc, slot, header.len);
}

static int free_slot(const struct apple_uc *uc)
{
	for (uint32_t i = 0; i < uc->slots; i++)
		if (!uc->send_busy[i])
			return (int)i;
	return -1;
}

static int acquire_pending(struct apple_uc *uc)
{
	struct uc_wait wait = {.what = "send", .is_send = true};

	while (uc->pending < 0) {
		int slot = free_slot(uc);
		int rc;

		if (slot >= 0) {
			uc->pending = slot;
			uc->pending_len = 0;
			return 0;
		}
		rc = uc_wait_once(uc, &wait);
		if (rc)
			return rc;
	}
	return 0;
}

int uc_send(struct vb_transport *t, const void *data, size_t size)
{
	struct apple_uc *uc = (struct apple_uc *)t;
	const uint8_t *from = data;

	if (!uc->is_live)
		return -ENOTCONN; /* */
	while (size > 0) {
		uint32_t room, take;
		uint8_t *to;
		int rc = acquire_pending(uc);

		if (rc)
			return rc;
		room = uc_payload(uc) - uc->pending_len;
		take = size < room ? (uint32_t)size : room;
		to = uc_slot(uc, &uc->send_ring, (uint32_t)uc->pending) +
		     sizeof(struct uc_header) + uc->pending_len;
		memcpy(to, from, take);
		uc->pending_len += take;
		t->sent_bytes += take;
		from += take;
		size -= take;
		if (uc->pending_len == uc_payload(uc)) {
			rc = post_pending(uc);
			if (rc)
				return rc;
		}
	}
	return 0;
}

int uc_flush(struct vb_transport *t)
{
	return post_pending((struct apple_uc *)t);
}

/* Hand out bytes of the oldest frame; give its slot back when it is empty. */
static int consume(struct apple_uc *uc, uint8_t *to, size_t size,
		   uint32_t *taken)
{
	struct uc_queued *queued = &uc->queue[uc->queue_head];
	uint32_t left = queued->len - queued->off;
	uint32_t take = size < left ? (uint32_t)size : left;

	memcpy(to,
	       uc_slot(uc, &uc->recv_ring, queued->slot) +
		       sizeof(struct uc_header) + queued->off,
	       take);
	queued->off += take;
	*taken = take;
	uc->base.received_bytes += take;
	if (queued->off < queued->len)
		return 0;
	uc->queue_head = (uc->queue_head + 1) % uc->slots;
	uc->queue_count--;
	return uc_post_recv(uc, queued->slot);
}

int uc_recv(struct vb_transport *t, void *data, size_t size)
{
	struct apple_uc *uc = (struct apple_uc *)t;
	struct uc_wait wait = {.what = "receive"};
	uint8_t *to = data;
	int rc = uc->is_live ? post_pending(uc) : -ENOTCONN;

	while (rc == 0 && size > 0) {
		uint32_t taken = 0;

		if (uc->queue_count == 0) {
			rc = uc_wait_once(uc, &wait);
			continue;
		}
		rc = consume(uc, to, size, &taken);
		to += taken;
		size -= taken;
	}
	return rc;
}
