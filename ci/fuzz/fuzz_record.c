/* SPDX-License-Identifier: MIT */
/*
 * Goal: capabilities, records and commits of a peer are read within their
 * bounds, and both ends make the same of them. Method: each parser gets the
 * input in memory of just that size, as it is and with its CRC put right; what
 * it takes is packed and parsed again.
 */
#include "ci/fuzz/input.h"

#include "lib/wire.h"

static void put_crc(uint8_t *bytes, size_t size)
{
	uint32_t crc = vb_crc32c(0, bytes, size - 4);

	for (int i = 0; i < 4; i++)
		bytes[size - 4 + (size_t)i] = (uint8_t)(crc >> 8 * i);
}

static bool is_text(const char why[VB_WHY])
{
	return why[0] && memchr(why, 0, VB_WHY);
}

static void caps(struct input in)
{
	uint8_t *bytes = malloc(VB_CAPS_BYTES), again[VB_CAPS_BYTES];
	static const uint8_t none[VB_CAPS_BYTES];
	struct vb_caps caps;
	int rc;

	input_bytes(&in, bytes, VB_CAPS_BYTES);
	rc = vb_caps_parse(bytes, &caps);
	MUST((rc == 1) == !memcmp(bytes, none, VB_CAPS_BYTES));
	if (rc == 0) {
		MUST(caps.platform == VB_PLATFORM_APPLE ||
		     caps.platform == VB_PLATFORM_LINUX);
		vb_caps_pack(&caps, again);
		MUST(memcmp(bytes, again, VB_CAPS_BYTES) == 0);
	} else {
		MUST(caps.platform == VB_PLATFORM_NONE && !caps.qpn);
	}
	free(bytes);
}

static bool is_same(const struct vb_record *a, const struct vb_record *b)
{
	return a->version == b->version && a->platform == b->platform &&
	       a->transport == b->transport && a->features == b->features &&
	       a->stride_bytes == b->stride_bytes && a->slots == b->slots &&
	       a->mtu == b->mtu && a->port == b->port &&
	       a->device == b->device && a->qpn == b->qpn;
}

/* As negotiate.c does it: the head, then as much as that says. */
static bool record(struct input *in, bool is_mended, struct vb_record *out)
{
	uint8_t head[VB_RECORD_HEAD_BYTES], *bytes, again[VB_RECORD_BYTES];
	struct vb_record second;
	char why[VB_WHY];
	int length, rc;

	input_bytes(in, head, sizeof(head));
	if (is_mended)
		memcpy(head, "VBR1", 4);
	memset(why, 'x', sizeof(why));
	length = vb_record_length(head, why);
	if (length < 0) {
		MUST(is_text(why));
		return false;
	}
	MUST(length >= VB_RECORD_BYTES && length <= VB_RECORD_MAX_BYTES);
	bytes = malloc((size_t)length);
	memcpy(bytes, head, sizeof(head));
	input_bytes(in, bytes + sizeof(head), (size_t)length - sizeof(head));
	if (is_mended)
		put_crc(bytes, (size_t)length);
	rc = vb_record_parse(bytes, (size_t)length, out, why);
	free(bytes);
	if (rc) {
		MUST(is_text(why) && !is_mended);
		return false;
	}
	vb_record_pack(out, again);
	MUST(vb_record_parse(again, sizeof(again), &second, why) == 0);
	MUST(is_same(out, &second));
	return true;
}

/* Any size at all: what is too short is refused before it is read. */
static void cut_record(struct input in)
{
	size_t size = in.left;
	uint8_t *bytes = malloc(size ? size : 1);
	struct vb_record record;
	char why[VB_WHY];

	memset(why, 'x', sizeof(why));
	input_bytes(&in, bytes, size);
	if (vb_record_parse(bytes, size, &record, why) != 0)
		MUST(is_text(why));
	free(bytes);
}

static void commit(struct input *in, bool is_mended,
		   const struct vb_choice *choice)
{
	uint8_t *bytes = malloc(VB_COMMIT_BYTES), packed[VB_COMMIT_BYTES];
	bool is_ready = false, want = input_u8(in) & 1;
	char why[VB_WHY];

	memset(why, 'x', sizeof(why));
	input_bytes(in, bytes, VB_COMMIT_BYTES);
	if (is_mended) {
		memcpy(bytes, "VBC1", 4);
		put_crc(bytes, VB_COMMIT_BYTES);
	}
	if (vb_commit_parse(bytes, choice, &is_ready, why) == 0) {
		vb_commit_pack(choice, is_ready, packed);
		MUST(memcmp(bytes, packed, VB_COMMIT_BYTES) == 0);
	} else {
		MUST(is_text(why));
	}
	vb_commit_pack(choice, want, bytes);
	MUST(vb_commit_parse(bytes, choice, &is_ready, why) == 0);
	MUST(is_ready == want);
	free(bytes);
}

/* Each end calls with its own offer first; an end of ours has a version. */
static void agree(struct input *in, bool is_mended, struct vb_record *a,
		  struct vb_record *b)
{
	struct vb_choice here = {0}, there = {0};
	char why[VB_WHY], why_there[VB_WHY];
	int rc, rc_there;

	memset(why, 'x', sizeof(why));
	memset(why_there, 'x', sizeof(why_there));
	rc = vb_record_agree(a, b, &here, why);
	MUST(b->version || rc);
	rc_there = vb_record_agree(b, a, &there, why_there);
	if (!a->version || !b->version)
		return;
	MUST(rc == rc_there);
	if (rc) {
		MUST(is_text(why) && is_text(why_there));
		return;
	}
	MUST(here.features == there.features && here.slots == there.slots &&
	     here.mtu == there.mtu && here.stride_bytes == there.stride_bytes);
	MUST(here.slots && here.slots <= a->slots && here.slots <= b->slots);
	MUST(here.stride_bytes >= 4096 && here.stride_bytes % 4096 == 0);
	MUST(here.stride_bytes <= a->stride_bytes &&
	     here.stride_bytes <= b->stride_bytes);
	MUST(here.mtu >= 1 && here.mtu <= 5);
	MUST(!(here.features & ~(a->features & b->features)));
	commit(in, is_mended, &here);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	struct vb_record a, b;
	uint8_t flags;

	caps(in);
	cut_record(in);
	flags = input_u8(&in);
	if (!record(&in, flags & 1, &a))
		return 0;
	b = a;
	if (flags & 2 && !record(&in, flags & 1, &b))
		return 0;
	if (flags & 4) /* the same but for the port it is on */
		b.port++;
	agree(&in, flags & 1, &a, &b);
	return 0;
}
