/* SPDX-License-Identifier: MIT */
/*
 * A byte stream over one queue pair: its data path. Bytes are cut into SENDs;
 * wire.c knows what is before them, and checks what comes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/qp_stream.h"

#define POLL_BATCH 32

static struct vb_where at_send(const struct qp_stream *qs, uint32_t slot)
{
	return (struct vb_where){
		.is_send = true,
		.offset_bytes = (int64_t)qs->send_offset[slot],
		.frame = (int64_t)qs->send_frame[slot],
		.slot = (int)slot,
	};
}

static struct vb_where at_recv(const struct qp_stream *qs, int slot)
{
	return (struct vb_where){
		.offset_bytes = (int64_t)qs->queued_bytes,
		.frame = (int64_t)qs->base.frames_received,
		.slot = slot,
	};
}

/* --- posting --- */

static int post_recv(struct qp_stream *qs, uint32_t slot)
{
	uint8_t *memory = qs_slot(qs, &qs->recv_ring, slot);
	struct ibv_sge sge = {
		.addr = (uintptr_t)memory,
		.length = qs->wire.stride_bytes,
		.lkey = qs->recv_ring.region.lkey,
	};
	struct ibv_recv_wr wr = {.wr_id = QS_RECV_TAG | slot,
				 .sg_list = &sge,
				 .num_sge = 1};
	struct ibv_recv_wr *bad;
	uint32_t last = (qs->posted_head + qs->posted_count) % qs->recv_slots;
	int rc;

	/* A header of the last lap must not pass for a new one (D-A4). */
	memset(memory, 0, vb_frame_header_bytes(qs->wire.framing));
	rc = qs->qp->context->ops.post_recv(qs->qp, &wr, &bad);
	if (rc)
		return vb_fail(&qs->base, VB_DEVICE, -abs(rc),
			       at_recv(qs, (int)slot),
			       "post_recv of slot %u failed: %s", slot,
			       strerror(abs(rc)));
	qs->posted[last] = (uint8_t)slot;
	qs->posted_count++;
	return 0;
}

int qs_post_recvs(struct qp_stream *qs)
{
	int rc = 0;

	for (uint32_t slot = 0; rc == 0 && slot < qs->recv_slots; slot++)
		rc = post_recv(qs, slot);
	return rc;
}

/* What an earlier, longer frame left behind the payload tells nothing new to
 * who has read it, and nothing at all is better (D-A21). */
static void scrub(struct qp_stream *qs, uint32_t slot, uint32_t len)
{
	uint8_t *payload = qs_slot(qs, &qs->send_ring, slot) +
			   vb_frame_header_bytes(qs->wire.framing);

	if (qs->wire.is_whole && len < qs->send_dirty[slot])
		memset(payload + len, 0, qs->send_dirty[slot] - len);
	qs->send_dirty[slot] = len;
}

static int wait_for_send(struct qp_stream *qs, struct vb_wait *wait);

/* ENOMEM is a full queue: with sends in flight it will have room. */
static int post_when_room(struct qp_stream *qs, struct ibv_send_wr *wr,
			  uint32_t slot)
{
	struct vb_wait wait = {.what = "send", .is_send = true};
	struct ibv_send_wr *bad;

	for (;;) {
		int rc = qs->qp->context->ops.post_send(qs->qp, wr, &bad);

		if (rc == 0)
			return 0;
		if (abs(rc) != ENOMEM || !qs->sends_busy)
			return vb_fail(&qs->base, VB_DEVICE, -abs(rc),
				       at_send(qs, slot),
				       "post_send of frame %llu (slot %u) "
				       "failed: %s",
				       (unsigned long long)qs->base.frames_sent,
				       slot, strerror(abs(rc)));
		rc = wait_for_send(qs, &wait);
		if (rc)
			return rc;
	}
}

static int post_send(struct qp_stream *qs, uint32_t slot, uint32_t len)
{
	uint8_t *frame = qs_slot(qs, &qs->send_ring, slot);
	struct ibv_sge sge = {
		.addr = (uintptr_t)frame,
		.lkey = qs->send_ring.region.lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = slot,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	int rc;

	scrub(qs, slot, len);
	sge.length = vb_frame_pack(&qs->wire, frame, len,
				   (uint32_t)qs->base.frames_sent);
	if (sge.length <= qs->inline_bytes)
		wr.send_flags |= IBV_SEND_INLINE; /* L-5 */
	qs->send_frame[slot] = qs->base.frames_sent;
	qs->send_offset[slot] = qs->base.sent_bytes - len;
	rc = post_when_room(qs, &wr, slot);
	if (rc)
		return rc;
	qs->send_busy[slot] = true;
	qs->sends_busy++;
	qs->base.frames_sent++;
	return 0;
}

/* --- completions --- */

static const char *status_name(int status)
{
	static const char *const names[] = {
		[IBV_WC_LOC_LEN_ERR] = "local length error",
		[IBV_WC_LOC_QP_OP_ERR] = "local queue pair operation error",
		[IBV_WC_LOC_PROT_ERR] = "local protection error",
		[IBV_WC_WR_FLUSH_ERR] = "flushed",
		[IBV_WC_REM_INV_REQ_ERR] = "remote invalid request error",
		[IBV_WC_REM_ACCESS_ERR] = "remote access error",
		[IBV_WC_REM_OP_ERR] = "remote operation error",
		[IBV_WC_RETRY_EXC_ERR] = "the peer does not answer",
		[IBV_WC_RNR_RETRY_EXC_ERR] = "the peer posts no receives",
		[IBV_WC_FATAL_ERR] = "fatal error",
	};
	size_t count = sizeof(names) / sizeof(*names);

	return (size_t)status < count && names[status] ? names[status]
						       : "error";
}

static int completion_failed(struct qp_stream *qs, const struct ibv_wc *wc)
{
	bool is_recv = wc->wr_id & QS_RECV_TAG;
	uint64_t slot = wc->wr_id & ~QS_RECV_TAG;
	struct vb_where where = VB_NOWHERE;

	if (is_recv && slot < qs->recv_slots)
		where = at_recv(qs, (int)slot);
	else if (!is_recv && slot < qs->send_slots)
		where = at_send(qs, (uint32_t)slot);
	if (qs->base.cause.code == VB_OK)
		qs->base.cause.wc_status = wc->status;
	return vb_fail(&qs->base, VB_COMPLETION, -EIO, where,
		       "%s of frame %lld (slot %llu) completed with status %d: "
		       "%s",
		       is_recv ? "receive" : "send", (long long)where.frame,
		       (unsigned long long)slot, wc->status,
		       status_name(wc->status));
}

static int send_completed(struct qp_stream *qs, const struct ibv_wc *wc)
{
	if (wc->wr_id >= qs->send_slots || !qs->send_busy[wc->wr_id])
		return vb_fail(&qs->base, VB_PROTOCOL, -EPROTO, VB_NOWHERE,
			       "send completion for wr_id 0x%llx, which is not "
			       "in flight",
			       (unsigned long long)wc->wr_id);
	qs->send_busy[wc->wr_id] = false;
	qs->sends_busy--;
	return 0;
}

/* Receives of a queue pair complete as they were posted (R23, A-27): anything
 * else has been lost, doubled or made up (A-24, D-A16, D-A17). */
static bool is_oldest(const struct qp_stream *qs, uint64_t slot)
{
	return qs->posted_count && slot == qs->posted[qs->posted_head];
}

static int recv_completed(struct qp_stream *qs, const struct ibv_wc *wc)
{
	uint64_t slot = wc->wr_id & ~QS_RECV_TAG;
	struct vb_transport *t = &qs->base;
	struct qs_queued *queued;
	char why[VB_WHY];
	uint32_t len;
	int rc;

	if (!is_oldest(qs, slot))
		return vb_fail(t, VB_PROTOCOL, -EPROTO, VB_NOWHERE,
			       "receive completion for wr_id 0x%llx, which is "
			       "not posted, or not the oldest",
			       (unsigned long long)wc->wr_id);
	if (wc->opcode != IBV_WC_RECV)
		return vb_fail(t, VB_PROTOCOL, -EPROTO, at_recv(qs, (int)slot),
			       "receive completion of slot %llu has opcode %d",
			       (unsigned long long)slot, wc->opcode);
	rc = vb_frame_parse(&qs->wire,
			    qs_slot(qs, &qs->recv_ring, (uint32_t)slot),
			    wc->byte_len, (uint32_t)t->frames_received, &len,
			    why);
	if (rc)
		return vb_fail(t, VB_PROTOCOL, rc, at_recv(qs, (int)slot),
			       "%s in frame %llu, slot %llu, at stream offset "
			       "%llu",
			       why, (unsigned long long)t->frames_received,
			       (unsigned long long)slot,
			       (unsigned long long)qs->queued_bytes);
	qs->posted_head = (qs->posted_head + 1) % qs->recv_slots;
	qs->posted_count--;
	queued = &qs->queue[(qs->queue_head + qs->queue_count++) %
			    qs->recv_slots];
	queued->slot = (uint32_t)slot;
	queued->off = vb_frame_header_bytes(qs->wire.framing);
	queued->end = queued->off + len;
	t->frames_received++;
	qs->queued_bytes += len;
	return 0;
}

static int reap(struct qp_stream *qs, struct ibv_cq *cq);

/* Flushed by what failed before, which is perhaps in the other queue. */
static void ask_the_other(struct qp_stream *qs, const struct ibv_cq *cq)
{
	if (qs->send_cq == qs->recv_cq || qs->is_flushed)
		return;
	qs->is_flushed = true;
	reap(qs, cq == qs->send_cq ? qs->recv_cq : qs->send_cq);
}

/* Reap a queue's completions; how many, or the latched errno. */
static int reap(struct qp_stream *qs, struct ibv_cq *cq)
{
	struct ibv_wc wc[POLL_BATCH];
	int count = qs->qp->context->ops.poll_cq(cq, POLL_BATCH, wc);

	if (count < 0)
		return vb_fail(&qs->base, VB_DEVICE, -EIO, VB_NOWHERE,
			       "poll_cq failed: %d", count);
	/* The whole batch is looked at, so that what is known of each slot
	 * stays true; the first failure is the one that counts (D-A18). */
	for (int i = 0; i < count; i++) {
		if (wc[i].status == IBV_WC_WR_FLUSH_ERR)
			ask_the_other(qs, cq);
		if (wc[i].status != IBV_WC_SUCCESS)
			completion_failed(qs, &wc[i]);
		else if (wc[i].wr_id & QS_RECV_TAG)
			recv_completed(qs, &wc[i]);
		else
			send_completed(qs, &wc[i]);
	}
	return qs->base.cause.code ? qs->base.cause.error : count;
}

/* Reap what there is; how many, or the latched errno. */
static int progress(struct qp_stream *qs)
{
	int sent = 0, count;

	if (qs->send_cq != qs->recv_cq && qs->sends_busy)
		sent = reap(qs, qs->send_cq);
	count = sent < 0 ? sent : reap(qs, qs->recv_cq);
	qs->is_flowing = sent + count > 0;
	return count < 0 ? count : sent + count;
}

static int wait_once(struct qp_stream *qs, struct vb_wait *wait)
{
	int rc = progress(qs);

	if (rc == 0)
		return vb_wait_idle(&qs->base, wait);
	wait->since_ns = 0;
	return rc < 0 ? rc : 0;
}

/* --- receiving --- */

/* The oldest frame is done with: only its slot's receive returns credit. */
static int repost_head(struct qp_stream *qs)
{
	uint32_t slot = qs->queue[qs->queue_head].slot;

	qs->queue_head = (qs->queue_head + 1) % qs->recv_slots;
	qs->queue_count--;
	return post_recv(qs, slot);
}

/* D-A10: the peer cannot go on, and perhaps receives only when it can. */
static int make_room(struct qp_stream *qs)
{
	int rc = 0;

	while (rc == 0 && qs->queue_count) {
		struct qs_queued *queued = &qs->queue[qs->queue_head];

		rc = vb_backlog_put(&qs->base,
				    qs_slot(qs, &qs->recv_ring, queued->slot) +
					    queued->off,
				    queued->end - queued->off);
		if (rc == 0)
			rc = repost_head(qs);
	}
	return rc;
}

static int wait_for_send(struct qp_stream *qs, struct vb_wait *wait)
{
	int rc = vb_wait_idle(&qs->base, wait);

	if (rc == 0)
		rc = progress(qs);
	if (rc > 0)
		wait->since_ns = 0;
	if (rc == 0 && qs->posted_count == 0)
		rc = make_room(qs);
	return rc < 0 ? rc : 0;
}

/* --- the stream --- */

/* Not a slot that is only reserved: there are no empty frames (A-15, L-3). */
static int post_pending(struct qp_stream *qs)
{
	uint32_t slot = (uint32_t)qs->pending, len = qs->pending_len;

	if (qs->pending < 0 || len == 0)
		return 0;
	qs->pending = -1;
	qs->pending_len = 0;
	return post_send(qs, slot, len);
}

static int free_slot(const struct qp_stream *qs)
{
	for (uint32_t i = 0; i < qs->send_slots; i++)
		if (!qs->send_busy[i])
			return (int)i;
	return -1;
}

static int acquire_pending(struct qp_stream *qs)
{
	struct vb_wait wait = {.what = "send", .is_send = true};
	int rc = 0;

	if (qs->pending >= 0)
		return 0;
	/* While completions come at once, the slot just sent is the warmest. */
	if (qs->sends_busy && qs->is_flowing) {
		rc = reap(qs, qs->send_cq);
		qs->is_flowing = rc > 0;
	}
	while (rc >= 0) {
		int slot = free_slot(qs);

		if (slot >= 0) {
			qs->pending = slot;
			qs->pending_len = 0;
			return 0;
		}
		rc = wait_for_send(qs, &wait);
	}
	return rc;
}

/* Where the next bytes go, and how many fit there. */
static uint8_t *room_of(const struct qp_stream *qs, uint32_t *room)
{
	uint32_t at = vb_frame_header_bytes(qs->wire.framing) + qs->pending_len;

	*room = qs->wire.stride_bytes - at;
	return qs_slot(qs, &qs->send_ring, (uint32_t)qs->pending) + at;
}

/* Bytes are in the pending slot; `is_end` of what the user gave. Without frames
 * that ends the SEND, too (2.4). */
static int append(struct qp_stream *qs, uint32_t size, bool is_end)
{
	bool is_bare = qs->wire.framing == VB_FRAMING_NONE;
	uint32_t room;

	qs->pending_len += size;
	qs->base.sent_bytes += size;
	room_of(qs, &room);
	return room == 0 || (is_end && is_bare) ? post_pending(qs) : 0;
}

int qs_send(struct vb_transport *t, const void *data, size_t size)
{
	struct qp_stream *qs = (struct qp_stream *)t;
	const uint8_t *from = data;
	int rc = qs->is_live ? 0 : -ENOTCONN; /* */

	while (rc == 0 && size > 0) {
		uint32_t room, take;
		uint8_t *to;

		rc = acquire_pending(qs);
		if (rc)
			break;
		to = room_of(qs, &room);
		take = size < room ? (uint32_t)size : room;
		memcpy(to, from, take);
		from += take;
		size -= take;
		rc = append(qs, take, size == 0);
	}
	return rc;
}

int qs_reserve(struct vb_transport *t, void **space, size_t *size)
{
	struct qp_stream *qs = (struct qp_stream *)t;
	int rc = qs->is_live ? acquire_pending(qs) : -ENOTCONN;
	uint32_t room;

	if (rc)
		return rc;
	*space = room_of(qs, &room);
	*size = room;
	return 0;
}

int qs_commit(struct vb_transport *t, size_t size)
{
	return append((struct qp_stream *)t, (uint32_t)size, true);
}

int qs_flush(struct vb_transport *t)
{
	struct qp_stream *qs = (struct qp_stream *)t;

	return qs->is_live ? post_pending(qs) : -ENOTCONN;
}

int qs_peek(struct vb_transport *t, const void **data, size_t *size)
{
	struct qp_stream *qs = (struct qp_stream *)t;
	struct vb_wait wait = {.what = "receive"};
	int rc = 0;

	while (rc == 0) {
		struct qs_queued *queued = &qs->queue[qs->queue_head];

		if (qs->queue_count == 0) {
			rc = wait_once(qs, &wait);
		} else if (queued->off == queued->end) {
			rc = repost_head(qs); /* empty: of a compat peer */
		} else {
			*data = qs_slot(qs, &qs->recv_ring, queued->slot) +
				queued->off;
			*size = queued->end - queued->off;
			return 0;
		}
	}
	return rc;
}

/* The oldest frame's slot is given back when it is empty. */
int qs_consume(struct vb_transport *t, size_t size)
{
	struct qp_stream *qs = (struct qp_stream *)t;
	struct qs_queued *queued = &qs->queue[qs->queue_head];

	queued->off += (uint32_t)size;
	t->received_bytes += size;
	return queued->off < queued->end ? 0 : repost_head(qs);
}

int qs_recv(struct vb_transport *t, void *data, size_t size)
{
	uint8_t *to = data;
	int rc = qs_flush(t);
	size_t kept = rc ? 0 : vb_backlog_take(t, data, size);

	t->received_bytes += kept;
	to += kept;
	size -= kept;
	while (rc == 0 && size > 0) {
		const void *from;
		size_t left, take;

		rc = qs_peek(t, &from, &left);
		if (rc)
			break;
		take = size < left ? size : left;
		memcpy(to, from, take);
		rc = qs_consume(t, take);
		to += take;
		size -= take;
	}
	return rc;
}

void qs_drain(struct qp_stream *qs)
{
	struct vb_wait wait = {.what = "close", .is_send = true};

	if (!qs->is_live || qs->base.cause.code || qs_flush(&qs->base))
		return;
	while (qs->sends_busy > 0 && wait_for_send(qs, &wait) == 0)
		;
}
