/* SPDX-License-Identifier: MIT */
/*
 * Goal: whatever a peer and a device say, from the capabilities to the last
 * completion, a stream hands out just the bytes of the frames that were in
 * order before the first failure, and latches that failure. Method: a verbs
 * table whose device completes, writes and answers as the input says; beside
 * it a record of which completions were right, and what was in them.
 */
#include "ci/fuzz/input.h"

#include <endian.h>
#include <errno.h>

#include "lib/qp_stream.h"

#define SLOTS	   8u
#define STREAM_MAX (1u << 18)
#define QPN	   0x1a
#define PEER_QPN   0x2b
#define GUID	   0x1122334455667788u

static const uint8_t our_gid[16] = {0xfe, 0x80, [15] = 1};

struct posted {
	uint64_t wr_id;
	uint8_t *at;
	uint32_t bytes;
};

static struct {
	struct input in;
	uint8_t flags;
	struct ibv_device device, *list[2];
	struct ibv_context context;
	struct ibv_pd pd;
	struct ibv_cq cq;
	struct ibv_qp qp;
	struct ibv_mr mr[2];
	int mrs;
	struct ibv_qp_cap cap;
	uint64_t now_ns;

	struct posted recv[SLOTS]; /* oldest first */
	uint32_t recvs;
	struct posted send[SLOTS];
	uint32_t sends;

	/* What must come out, until the first completion that was wrong. */
	const struct qp_stream *qs;
	bool has_failed;     /* one was handed out */
	bool has_other_fail; /* the device said no, or the stream spoke */
	uint32_t frames;
	uint8_t stream[STREAM_MAX];
	uint32_t stream_bytes;

	uint8_t boot[512]; /* what the peer sends before it is live */
	uint32_t boot_at, boot_bytes;
} host;

enum {
	IS_RC = 1,
	IS_HARDENED = 2,
	HAS_CRC = 4,
	IS_RAW = 8,    /* the peer's set-up is the input's own */
	IS_ENDED = 16, /* and then its stream ends */
	IS_LONG = 32,  /* our strides are of 8192 */
};

static uint32_t our_stride(void)
{
	return host.flags & IS_LONG ? 8192 : 4096;
}

/* --- the device --- */

static struct ibv_device **get_device_list(int *count)
{
	host.list[0] = &host.device;
	*count = 1;
	return host.list;
}

static void free_device_list(struct ibv_device **list)
{
	(void)list;
}

static const char *get_device_name(struct ibv_device *device)
{
	(void)device;
	return "fuzz0";
}

static struct ibv_context *open_device(struct ibv_device *device)
{
	(void)device;
	return &host.context;
}

static int close_device(struct ibv_context *context)
{
	(void)context;
	return 0;
}

static int query_device(struct ibv_context *context,
			struct ibv_device_attr *attr)
{
	(void)context;
	attr->phys_port_cnt = 1;
	attr->node_guid = htobe64(GUID);
	return 0;
}

static int query_port(struct ibv_context *context, uint8_t num,
		      struct _compat_ibv_port_attr *compat)
{
	struct ibv_port_attr *attr = (struct ibv_port_attr *)compat;

	(void)context;
	(void)num;
	attr->state = IBV_PORT_ACTIVE;
	attr->active_mtu = IBV_MTU_4096;
	attr->gid_tbl_len = 1;
	attr->lid = 1;
	attr->link_layer = host.flags & IS_RC ? IBV_LINK_LAYER_ETHERNET : 100;
	return 0;
}

static int query_gid(struct ibv_context *context, uint8_t port, int index,
		     union ibv_gid *gid)
{
	(void)context;
	(void)port;
	(void)index;
	memcpy(gid->raw, our_gid, 16);
	return 0;
}

static struct ibv_pd *alloc_pd(struct ibv_context *context)
{
	host.pd.context = context;
	return &host.pd;
}

static int dealloc_pd(struct ibv_pd *pd)
{
	(void)pd;
	return 0;
}

static struct ibv_mr *reg_memory(struct ibv_pd *pd, void *addr, size_t length,
				 int access)
{
	struct ibv_mr *mr = &host.mr[host.mrs++];

	(void)access;
	*mr = (struct ibv_mr){.context = pd->context,
			      .pd = pd,
			      .addr = addr,
			      .length = length,
			      .lkey = (uint32_t)host.mrs};
	return mr;
}

static int dereg_mr(struct ibv_mr *mr)
{
	(void)mr;
	return 0;
}

static struct ibv_cq *create_cq(struct ibv_context *context, int cqe, void *arg,
				struct ibv_comp_channel *channel, int vector)
{
	(void)cqe;
	(void)arg;
	(void)channel;
	(void)vector;
	host.cq.context = context;
	return &host.cq;
}

static int destroy_cq(struct ibv_cq *cq)
{
	(void)cq;
	return 0;
}

static struct ibv_qp *create_qp(struct ibv_pd *pd,
				struct ibv_qp_init_attr *init)
{
	host.cap = init->cap;
	host.qp.context = pd->context;
	host.qp.qp_num = QPN;
	return &host.qp;
}

static int destroy_qp(struct ibv_qp *qp)
{
	(void)qp;
	host.recvs = host.sends = 0;
	return 0;
}

static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	(void)qp;
	(void)attr;
	(void)mask;
	return 0;
}

static int query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		    struct ibv_qp_init_attr *init)
{
	(void)qp;
	(void)attr;
	(void)mask;
	memset(init, 0, sizeof(*init));
	init->cap = host.cap;
	return 0;
}

/* --- posting --- */

static struct posted posted_of(uint64_t wr_id, const struct ibv_sge *sge)
{
	const struct ibv_mr *mr = &host.mr[sge->lkey - 1];
	uint8_t *at = (uint8_t *)(uintptr_t)sge->addr;

	MUST(sge->lkey >= 1 && sge->lkey <= 2);
	MUST(at >= (uint8_t *)mr->addr);
	MUST(at + sge->length <= (uint8_t *)mr->addr + mr->length);
	return (struct posted){wr_id, at, sge->length};
}

static bool asks_no(void)
{
	return host.in.left && input_u8(&host.in) == 0xff;
}

static bool says_no(void)
{
	bool is_no = asks_no();

	host.has_other_fail |= is_no;
	return is_no;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad)
{
	static const uint8_t zero[16];
	struct posted it = posted_of(wr->wr_id, wr->sg_list);

	(void)qp;
	*bad = wr;
	MUST(host.recvs < SLOTS && it.bytes == host.qs->wire.stride_bytes);
	for (uint32_t i = 0; i < host.recvs; i++)
		MUST(host.recv[i].wr_id != it.wr_id &&
		     host.recv[i].at != it.at);
	/* D-A4 */
	MUST(memcmp(it.at, zero,
		    vb_frame_header_bytes(host.qs->wire.framing)) == 0);
	if (says_no())
		return ENOMEM;
	host.recv[host.recvs++] = it;
	return 0;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	struct posted it = posted_of(wr->wr_id, wr->sg_list);

	(void)qp;
	*bad = wr;
	MUST(host.sends < SLOTS && it.bytes <= host.qs->wire.stride_bytes);
	for (uint32_t i = 0; i < host.sends; i++)
		MUST(host.send[i].wr_id != it.wr_id &&
		     host.send[i].at != it.at);
	/* With sends in flight it is only full, and asked again. */
	if (asks_no()) {
		host.has_other_fail |= host.sends == 0;
		return ENOMEM;
	}
	host.send[host.sends++] = it;
	return 0;
}

/* --- completing --- */

/* The record: is it right, and then what must come out of it? */
static void expect(const struct ibv_wc *wc)
{
	const struct vb_wire *wire = &host.qs->wire;
	char why[VB_WHY];
	uint32_t len;

	if (host.has_failed)
		return;
	host.has_failed = true;
	if (wc->status != IBV_WC_SUCCESS)
		return;
	if (!(wc->wr_id & QS_RECV_TAG)) {
		for (uint32_t i = 0; i < host.sends; i++)
			if (host.send[i].wr_id == wc->wr_id) {
				host.send[i] = host.send[--host.sends];
				host.has_failed = false;
				return;
			}
		return;
	}
	if (!host.recvs || host.recv[0].wr_id != wc->wr_id ||
	    wc->opcode != IBV_WC_RECV ||
	    vb_frame_parse(wire, host.recv[0].at, wc->byte_len, host.frames,
			   &len, why))
		return;
	MUST(len <= sizeof(host.stream) - host.stream_bytes);
	memcpy(host.stream + host.stream_bytes,
	       host.recv[0].at + vb_frame_header_bytes(wire->framing), len);
	host.stream_bytes += len;
	host.frames++;
	memmove(host.recv, host.recv + 1, --host.recvs * sizeof(*host.recv));
	host.has_failed = false;
}

/* What a good peer sends; then the input may change some of it. */
static void receive(struct ibv_wc *wc)
{
	const struct vb_wire *wire = &host.qs->wire;
	struct posted *at = &host.recv[0];
	uint8_t change = input_u8(&host.in);
	uint32_t len = input_u16(&host.in);
	uint8_t *payload = at->at + vb_frame_header_bytes(wire->framing);

	len %= vb_frame_payload_bytes(wire) + 1;
	if (wire->framing == VB_FRAMING_NONE && len == 0)
		len = 1;
	memset(payload, input_u8(&host.in), len);
	input_bytes(&host.in, payload, len < 4 ? len : 4);
	wc->byte_len = vb_frame_pack(wire, at->at, len, host.frames);
	wc->wr_id = at->wr_id;
	wc->opcode = IBV_WC_RECV;
	if (change & 1)
		at->at[input_u8(&host.in) % 32] ^= input_u8(&host.in);
	if (change & 2)
		wc->byte_len = input_u32(&host.in);
	if (change & 4)
		wc->wr_id ^= input_u64(&host.in);
	if (change & 8)
		wc->opcode = (enum ibv_wc_opcode)input_u8(&host.in);
	if (change & 16)
		wc->status = (enum ibv_wc_status)input_u32(&host.in);
	if (change & 32)
		input_bytes(&host.in, at->at, 24);
}

static void complete(struct ibv_wc *wc)
{
	uint8_t kind = input_u8(&host.in) % 4;

	memset(wc, 0, sizeof(*wc));
	if (kind < 2 && host.recvs) {
		receive(wc);
	} else if (kind == 2 && host.sends) {
		wc->wr_id = host.send[input_u8(&host.in) % host.sends].wr_id;
	} else if (kind == 3) {
		wc->wr_id = input_u8(&host.in) % 16u;
		if (input_u8(&host.in) & 1)
			wc->wr_id |= QS_RECV_TAG;
		wc->opcode = (enum ibv_wc_opcode)input_u8(&host.in);
		wc->byte_len = input_u16(&host.in);
	} else { /* nothing of the kind is there */
		wc->status = IBV_WC_WR_FLUSH_ERR;
		wc->wr_id = input_u64(&host.in);
	}
	expect(wc);
}

static int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *wc)
{
	int count = input_u8(&host.in);

	(void)cq;
	/* Nobody looks again after a failure. */
	MUST(!host.has_failed && !host.has_other_fail);
	if (count == 0xff) {
		host.has_other_fail = true;
		return -1;
	}
	count = host.stream_bytes < STREAM_MAX / 2 ? count % 8 : 0;
	MUST(count <= most);
	for (int i = 0; i < count; i++)
		complete(&wc[i]);
	return count;
}

/* --- the peer's stream, and the clock --- */

static long boot_send(void *arg, const void *bytes, size_t len)
{
	(void)arg;
	(void)bytes;
	return (long)len;
}

static long boot_recv(void *arg, void *bytes, size_t len, bool is_peek)
{
	uint32_t left = host.boot_bytes - host.boot_at;

	(void)arg;
	if (!left)
		return host.flags & IS_ENDED ? 0 : -EAGAIN;
	if (len > left)
		len = left;
	memcpy(bytes, host.boot + host.boot_at, len);
	host.boot_at += is_peek ? 0 : (uint32_t)len;
	return (long)len;
}

static int boot_wait(void *arg, bool for_write, int timeout_ms)
{
	(void)arg;
	(void)for_write;
	(void)timeout_ms;
	return 1;
}

static void boot_shutdown(void *arg)
{
	(void)arg;
}

static uint64_t now(void *arg)
{
	(void)arg;
	return host.now_ns += 500000;
}

static void idle(void *arg, uint64_t idle_ns, uint64_t until_ns)
{
	(void)arg;
	(void)idle_ns;
	(void)until_ns;
}

/* --- one life --- */

static const struct vb_verbs table = {
	.get_device_list = get_device_list,
	.free_device_list = free_device_list,
	.get_device_name = get_device_name,
	.open_device = open_device,
	.close_device = close_device,
	.query_device = query_device,
	.query_port = query_port,
	.query_gid = query_gid,
	.alloc_pd = alloc_pd,
	.dealloc_pd = dealloc_pd,
	.reg_mr = reg_memory,
	.dereg_mr = dereg_mr,
	.create_cq = create_cq,
	.destroy_cq = destroy_cq,
	.create_qp = create_qp,
	.destroy_qp = destroy_qp,
	.modify_qp = modify_qp,
	.query_qp = query_qp,
	.refs = 1,
};

static void say(const void *bytes, uint32_t len)
{
	memcpy(host.boot + host.boot_bytes, bytes, len);
	host.boot_bytes += len;
}

static struct vb_record record_of(const struct vb_caps *caps)
{
	struct vb_record record = {
		.version = 1,
		.platform = (uint8_t)caps->platform,
		.transport = host.flags & IS_RC ? VB_TRANSPORT_RC
						: VB_TRANSPORT_APPLE_UC,
		.features = host.flags & HAS_CRC ? VB_FEATURE_CRC : 0,
		.stride_bytes = 4096u * (1 + input_u8(&host.in) % 2),
		.slots = (uint16_t)(1 + input_u8(&host.in) % SLOTS),
		.mtu = 5,
		.port = 1,
		.device = 99,
		.qpn = caps->qpn};

	if (!(host.flags & IS_RAW) || !(input_u8(&host.in) & 1))
		return record;
	record.version = input_u16(&host.in);
	record.features = input_u16(&host.in);
	record.stride_bytes = input_u32(&host.in);
	record.slots = input_u16(&host.in);
	record.mtu = input_u8(&host.in);
	record.device = input_u8(&host.in) & 1 ? GUID : 99;
	return record;
}

/* All that a peer like us says until it is live. */
static void say_all(const struct vb_caps *caps)
{
	struct vb_record record = record_of(caps);
	struct vb_choice choice = {.features = record.features & VB_FEATURE_CRC,
				   .stride_bytes = SMALLER(our_stride(),
							   record.stride_bytes),
				   .slots = SMALLER(SLOTS, record.slots),
				   .mtu = SMALLER(5, record.mtu)};
	static const uint8_t ready = QS_READY;
	uint8_t bytes[VB_RECORD_BYTES];

	if (!(host.flags & HAS_CRC))
		choice.features = 0;
	if (!(host.flags & IS_HARDENED)) {
		if (!(host.flags & IS_RC))
			say(&ready, 1);
		return;
	}
	vb_record_pack(&record, bytes);
	say(bytes, VB_RECORD_BYTES);
	vb_commit_pack(&choice, true, bytes);
	say(bytes, VB_COMMIT_BYTES);
}

/* Some of the right bytes are changed, and more may follow. */
static void spoil(void)
{
	uint8_t count = input_u8(&host.in) % 8;

	for (int i = 0; i < count; i++)
		host.boot[input_u8(&host.in) % 64] = input_u8(&host.in);
	if (input_u8(&host.in) & 1)
		host.boot_bytes = input_u16(&host.in) % sizeof(host.boot);
}

static void peer(uint8_t bytes[VB_CAPS_BYTES])
{
	struct vb_caps caps = {
		.platform = host.flags & IS_RC ? VB_PLATFORM_LINUX
					       : VB_PLATFORM_APPLE,
		.is_hardened = host.flags & IS_HARDENED,
		.qpn = PEER_QPN,
		.psn = host.flags & IS_HARDENED ? vb_caps_hardened_psn(PEER_QPN)
						: PEER_QPN,
		.gid = {0xfe, 0x80, [15] = 2},
	};

	vb_caps_pack(&caps, bytes);
	say_all(&caps);
	if (!(host.flags & IS_RAW))
		return;
	if (input_u8(&host.in) & 1)
		input_bytes(&host.in, bytes, VB_CAPS_BYTES);
	spoil();
}

static int take(struct vb_transport *t, uint64_t *at, uint32_t size)
{
	uint8_t *bytes = malloc(size ? size : 1);
	int rc = vb_recv(t, bytes, size);

	if (rc == 0) {
		MUST(*at + size <= host.stream_bytes);
		MUST(memcmp(bytes, host.stream + *at, size) == 0);
		*at += size;
		MUST(vb_received_bytes(t) == *at);
	}
	free(bytes);
	return rc;
}

static int give(struct vb_transport *t, uint32_t size)
{
	uint8_t *bytes = calloc(size ? size : 1, 1);
	int rc = vb_send(t, bytes, size);

	free(bytes);
	return rc;
}

static void script(struct vb_transport *t)
{
	const struct vb_cause *cause = vb_cause(t);
	uint64_t at = 0;
	int rc = 0;

	for (int i = 0; !rc && host.in.left && i < 64; i++) {
		uint8_t what = input_u8(&host.in) % 4;
		uint32_t size = input_u16(&host.in) % 12000;

		if (what < 2)
			rc = take(t, &at, size);
		else if (what == 2)
			rc = give(t, size);
		else
			rc = vb_flush(t);
		MUST((rc != 0) == (cause->code != VB_OK));
	}
	if (host.has_failed || host.has_other_fail)
		MUST(rc < 0);
	if (rc == 0)
		return;
	MUST(rc == cause->error && memchr(cause->text, 0, 192));
	MUST(take(t, &at, 1) == rc && give(t, 1) == rc && vb_flush(t) == rc);
	/* What is right is never called wrong. */
	if (cause->code == VB_PROTOCOL || cause->code == VB_COMPLETION)
		MUST(host.has_failed || host.boot_at < host.boot_bytes);
	MUST(cause->code != VB_DEVICE || host.has_other_fail);
}

static void live(struct vb_verbs *verbs)
{
	static const struct vb_boot boot = {boot_send, boot_recv, boot_wait,
					    boot_shutdown, NULL};
	struct vb_options options = {
		.boot = &boot,
		.verbs = verbs,
		.runtime = {.now_ns = now, .idle = idle},
		.mode = host.flags & IS_HARDENED ? VB_HARDENED : VB_COMPAT,
		.has_crc = host.flags & HAS_CRC,
		.timeout_ns = 8000000,
		.grace_ns = 2000000,
		.stride_bytes = our_stride(),
		.slots = SLOTS,
		.backlog_bytes = 65536,
	};
	uint8_t caps[VB_CAPS_BYTES];
	struct vb_transport *t = NULL;
	int rc;

	memcpy(options.gid, our_gid, 16);
	MUST(vb_probe(&options, caps, &t, NULL) == 0);
	host.qs = (const struct qp_stream *)t;
	peer(caps);
	rc = vb_activate(t, caps);
	MUST((rc != 0) == (vb_cause(t)->code != VB_OK));
	if (rc == 0)
		script(t);
	vb_close(t, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct vb_verbs verbs = table;

	memset(&host, 0, offsetof(typeof(host), stream));
	host.stream_bytes = host.boot_at = host.boot_bytes = 0;
	memset(host.boot, 0, sizeof(host.boot));
	host.in = (struct input){data, size};
	host.flags = input_u8(&host.in);
	host.context.device = &host.device;
	host.context.ops.poll_cq = poll_cq;
	host.context.ops.post_send = post_send;
	host.context.ops.post_recv = post_recv;
	if (!(host.flags & IS_RC))
		host.device.transport_type = (enum ibv_transport_type)100;
	live(&verbs);
	MUST(verbs.refs == 1 && vb_release_kept() == 0);
	return 0;
}
