/* SPDX-License-Identifier: MIT */
/* What peers write for each other, as bytes; see wire.h. */
#include "lib/wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define RECORD_MAGIC 0x31524256u /* "VBR1" */
#define COMMIT_MAGIC 0x31434256u /* "VBC1" */

#define PSN_MASK     0xffffffu
#define HARDENED_LID 0x5642u /* in Apple's reserved 16 bits */
#define HARDENED_PSN 0x56424eu

/* Numbers up to here are no ordinary queue pair of a Linux device. */
#define LINUX_QPN_FIRST 17u

static void put(uint8_t *at, uint64_t value, int bytes)
{
	for (int i = 0; i < bytes; i++)
		at[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t get(const uint8_t *at, int bytes)
{
	uint64_t value = 0;

	for (int i = bytes; i--;)
		value = value << 8 | at[i];
	return value;
}

/* What is in every frame, in a shape that compilers know. */
static void put32(uint8_t *at, uint32_t value)
{
	at[0] = (uint8_t)value;
	at[1] = (uint8_t)(value >> 8);
	at[2] = (uint8_t)(value >> 16);
	at[3] = (uint8_t)(value >> 24);
}

static uint32_t get32(const uint8_t *at)
{
	return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
	       (uint32_t)at[3] << 24;
}

/* --- capabilities --- */

/* In host byte order, as the seeds send them. */
struct caps_bytes {
	uint32_t qpn;
	union {
		uint32_t psn;
		struct {
			uint16_t lid;
			uint16_t reserved;
		};
	};
	uint8_t gid[16];
};
_Static_assert(sizeof(struct caps_bytes) == VB_CAPS_BYTES, "ggml-rpc's size");

uint32_t vb_caps_hardened_psn(uint32_t qpn)
{
	return (qpn ^ HARDENED_PSN) & PSN_MASK;
}

void vb_caps_pack(const struct vb_caps *caps, uint8_t bytes[VB_CAPS_BYTES])
{
	struct caps_bytes out = {.qpn = caps->qpn};

	if (caps->platform == VB_PLATFORM_APPLE) {
		out.lid = caps->lid;
		out.reserved = caps->is_hardened ? HARDENED_LID : 0;
	} else {
		out.psn = caps->psn;
	}
	memcpy(out.gid, caps->gid, 16);
	memcpy(bytes, &out, VB_CAPS_BYTES);
}

int vb_caps_parse(const uint8_t bytes[VB_CAPS_BYTES], struct vb_caps *caps)
{
	static const uint8_t zero[VB_CAPS_BYTES];
	struct caps_bytes in;
	bool is_apple, is_linux;

	memset(caps, 0, sizeof(*caps));
	if (memcmp(bytes, zero, VB_CAPS_BYTES) == 0)
		return 1;
	memcpy(&in, bytes, VB_CAPS_BYTES);
	is_apple = in.reserved == 0 || in.reserved == HARDENED_LID;
	is_linux = in.psn == (in.qpn & PSN_MASK) ||
		   in.psn == vb_caps_hardened_psn(in.qpn);
	if (is_apple && is_linux)
		is_apple = in.qpn < LINUX_QPN_FIRST;
	if (!is_apple && !is_linux)
		return -EPROTO;
	caps->qpn = in.qpn;
	memcpy(caps->gid, in.gid, 16);
	if (is_apple) {
		caps->platform = VB_PLATFORM_APPLE;
		caps->lid = in.lid;
		caps->is_hardened = in.reserved == HARDENED_LID;
	} else {
		caps->platform = VB_PLATFORM_LINUX;
		caps->psn = in.psn;
		caps->is_hardened = in.psn == vb_caps_hardened_psn(in.qpn);
	}
	return 0;
}

/* --- records --- */

void vb_record_pack(const struct vb_record *record,
		    uint8_t bytes[VB_RECORD_BYTES])
{
	memset(bytes, 0, VB_RECORD_BYTES);
	put(bytes, RECORD_MAGIC, 4);
	put(bytes + 4, record->version, 2);
	put(bytes + 6, VB_RECORD_BYTES, 2);
	bytes[8] = record->platform;
	bytes[9] = record->transport;
	put(bytes + 10, record->features, 2);
	put(bytes + 12, record->stride_bytes, 4);
	put(bytes + 16, record->slots, 2);
	bytes[18] = record->mtu;
	bytes[19] = record->port;
	put(bytes + 20, record->device, 8);
	put(bytes + 28, record->qpn, 4);
	put(bytes + VB_RECORD_BYTES - 4,
	    vb_crc32c(0, bytes, VB_RECORD_BYTES - 4), 4);
}

int vb_record_length(const uint8_t head[VB_RECORD_HEAD_BYTES], char why[VB_WHY])
{
	uint64_t magic = get(head, 4), length = get(head + 6, 2);

	if (magic != RECORD_MAGIC) {
		snprintf(why, VB_WHY,
			 "capability record: magic 0x%08llx is not 0x%08x",
			 (unsigned long long)magic, RECORD_MAGIC);
		return -EPROTO;
	}
	if (length < VB_RECORD_BYTES || length > VB_RECORD_MAX_BYTES) {
		snprintf(why, VB_WHY,
			 "capability record: length %llu is not in %d..%d",
			 (unsigned long long)length, VB_RECORD_BYTES,
			 VB_RECORD_MAX_BYTES);
		return -EPROTO;
	}
	return (int)length;
}

/* A later version has more at the end, and its CRC after that. */
int vb_record_parse(const uint8_t *bytes, size_t size, struct vb_record *record,
		    char why[VB_WHY])
{
	int length;

	if (size < VB_RECORD_BYTES) {
		snprintf(why, VB_WHY, "capability record: %zu bytes only",
			 size);
		return -EPROTO;
	}
	length = vb_record_length(bytes, why);
	if (length < 0)
		return length;
	if ((size_t)length != size ||
	    get(bytes + size - 4, 4) != vb_crc32c(0, bytes, size - 4)) {
		snprintf(why, VB_WHY,
			 "capability record of %zu bytes: its length (%d) or "
			 "its CRC is wrong",
			 size, length);
		return -EPROTO;
	}
	*record = (struct vb_record){
		.version = (uint16_t)get(bytes + 4, 2),
		.platform = bytes[8],
		.transport = bytes[9],
		.features = (uint16_t)get(bytes + 10, 2),
		.stride_bytes = (uint32_t)get(bytes + 12, 4),
		.slots = (uint16_t)get(bytes + 16, 2),
		.mtu = bytes[18],
		.port = bytes[19],
		.device = get(bytes + 20, 8),
		.qpn = (uint32_t)get(bytes + 28, 4),
	};
	return 0;
}

int vb_record_agree(const struct vb_record *mine, const struct vb_record *peer,
		    struct vb_choice *choice, char why[VB_WHY])
{
	/* Version 1 is what every later one can speak, too. */
	if (peer->version == 0) {
		snprintf(why, VB_WHY, "the peer's record has version 0");
	} else if (peer->platform != mine->platform ||
		   peer->transport != mine->transport) {
		snprintf(why, VB_WHY,
			 "platform %u, transport %u here; platform %u, "
			 "transport %u at the peer",
			 mine->platform, mine->transport, peer->platform,
			 peer->transport);
	} else if (mine->platform == VB_PLATFORM_APPLE &&
		   peer->device == mine->device && peer->port == mine->port) {
		snprintf(why, VB_WHY,
			 "the peer is on this very port of device %016llx, "
			 "which has no cable to itself",
			 (unsigned long long)mine->device);
	} else {
		*choice = (struct vb_choice){
			.features = mine->features & peer->features,
			.stride_bytes =
				SMALLER(mine->stride_bytes, peer->stride_bytes),
			.slots = SMALLER(mine->slots, peer->slots),
			.mtu = SMALLER(mine->mtu, peer->mtu),
		};
		if (choice->stride_bytes >= 4096 &&
		    choice->stride_bytes % 4096 == 0 && choice->slots &&
		    choice->mtu >= 1 && choice->mtu <= 5)
			return 0;
		snprintf(why, VB_WHY,
			 "no use is in %u slots of %u bytes at MTU %u",
			 choice->slots, choice->stride_bytes, choice->mtu);
	}
	return -EPROTO;
}

void vb_commit_pack(const struct vb_choice *choice, bool is_ready,
		    uint8_t bytes[VB_COMMIT_BYTES])
{
	memset(bytes, 0, VB_COMMIT_BYTES);
	put(bytes, COMMIT_MAGIC, 4);
	bytes[4] = is_ready;
	bytes[5] = choice->mtu;
	put(bytes + 6, choice->features, 2);
	put(bytes + 8, choice->stride_bytes, 4);
	put(bytes + 12, choice->slots, 2);
	put(bytes + 16, vb_crc32c(0, bytes, 16), 4);
}

int vb_commit_parse(const uint8_t bytes[VB_COMMIT_BYTES],
		    const struct vb_choice *choice, bool *is_ready,
		    char why[VB_WHY])
{
	uint8_t want[VB_COMMIT_BYTES];

	if (get(bytes, 4) != COMMIT_MAGIC || bytes[4] > 1 ||
	    get(bytes + 16, 4) != vb_crc32c(0, bytes, 16)) {
		snprintf(why, VB_WHY, "what should be a commit is none");
		return -EPROTO;
	}
	vb_commit_pack(choice, bytes[4], want);
	if (memcmp(bytes, want, VB_COMMIT_BYTES) != 0) {
		snprintf(why, VB_WHY,
			 "the peer committed to %llu slots of %llu bytes, MTU "
			 "%u, features %llu; here it is %u, %u, %u, %u",
			 (unsigned long long)get(bytes + 12, 2),
			 (unsigned long long)get(bytes + 8, 4), bytes[5],
			 (unsigned long long)get(bytes + 6, 2), choice->slots,
			 choice->stride_bytes, choice->mtu, choice->features);
		return -EPROTO;
	}
	*is_ready = bytes[4];
	return 0;
}

/* --- frames --- */

struct compat_header {
	uint32_t magic;
	uint32_t len; /* payload bytes; the rest of the stride is padding */
};

#define HARDENED_BYTES 16u

uint32_t vb_frame_header_bytes(enum vb_framing framing)
{
	switch (framing) {
	case VB_FRAMING_NONE:
		return 0;
	case VB_FRAMING_COMPAT:
		return sizeof(struct compat_header);
	case VB_FRAMING_HARDENED:
		return HARDENED_BYTES;
	}
	return 0;
}

uint32_t vb_frame_payload_bytes(const struct vb_wire *wire)
{
	return wire->stride_bytes - vb_frame_header_bytes(wire->framing);
}

/* Over magic, length and sequence number, then over the payload. */
static uint32_t frame_crc(const uint8_t *frame, uint32_t len)
{
	uint32_t crc = vb_crc32c(0, frame, HARDENED_BYTES - 4);

	return vb_crc32c(crc, frame + HARDENED_BYTES, len);
}

uint32_t vb_frame_pack(const struct vb_wire *wire, uint8_t *frame, uint32_t len,
		       uint32_t sequence)
{
	struct compat_header compat = {VB_FRAME_MAGIC, len};

	if (wire->framing == VB_FRAMING_COMPAT)
		memcpy(frame, &compat, sizeof(compat));
	if (wire->framing == VB_FRAMING_HARDENED) {
		put32(frame, VB_FRAME_HARDENED);
		put32(frame + 4, len);
		put32(frame + 8, sequence);
		put32(frame + 12, wire->has_crc ? frame_crc(frame, len) : 0);
	}
	return wire->is_whole ? wire->stride_bytes
			      : vb_frame_header_bytes(wire->framing) + len;
}

static int bad_magic(uint32_t magic, uint32_t want, char why[VB_WHY])
{
	snprintf(why, VB_WHY, "bad frame magic 0x%08x (want 0x%08x)", magic,
		 want);
	return -EPROTO;
}

static int bad_size(const struct vb_wire *wire, uint32_t size, char why[VB_WHY])
{
	snprintf(why, VB_WHY, "completion of %u bytes; a %s %u", size,
		 wire->is_whole ? "stride is" : "frame has at most",
		 wire->stride_bytes);
	return -EPROTO;
}

static int parse_hardened(const struct vb_wire *wire, const uint8_t *frame,
			  uint32_t size, uint32_t sequence, uint32_t *len,
			  char why[VB_WHY])
{
	uint32_t got = get32(frame + 8);
	uint32_t crc = get32(frame + 12), want;

	if (get32(frame) != VB_FRAME_HARDENED)
		return bad_magic(get32(frame), VB_FRAME_HARDENED, why);
	*len = get32(frame + 4);
	if (*len > size - HARDENED_BYTES ||
	    (!wire->is_whole && *len != size - HARDENED_BYTES)) {
		snprintf(why, VB_WHY,
			 "the header says %u payload bytes, %u came", *len,
			 size - HARDENED_BYTES);
		return -EPROTO;
	}
	if (got != sequence) {
		snprintf(why, VB_WHY, "sequence number %u instead of %u", got,
			 sequence);
		return -EPROTO;
	}
	want = wire->has_crc ? frame_crc(frame, *len) : 0;
	if (crc != want) {
		snprintf(why, VB_WHY, "CRC 0x%08x instead of 0x%08x", crc,
			 want);
		return -EPROTO;
	}
	return 0;
}

int vb_frame_parse(const struct vb_wire *wire, const uint8_t *frame,
		   uint32_t size, uint32_t sequence, uint32_t *len,
		   char why[VB_WHY])
{
	struct compat_header compat;

	if (size > wire->stride_bytes || size == 0 ||
	    size < vb_frame_header_bytes(wire->framing) ||
	    (wire->is_whole && size != wire->stride_bytes))
		return bad_size(wire, size, why);
	switch (wire->framing) {
	case VB_FRAMING_NONE:
		*len = size;
		return 0;
	case VB_FRAMING_HARDENED:
		return parse_hardened(wire, frame, size, sequence, len, why);
	case VB_FRAMING_COMPAT:
		break;
	}
	memcpy(&compat, frame, sizeof(compat));
	if (compat.magic != VB_FRAME_MAGIC)
		return bad_magic(compat.magic, VB_FRAME_MAGIC, why);
	if (compat.len > size - sizeof(compat)) {
		snprintf(why, VB_WHY,
			 "it says %u payload bytes, at most %zu fit",
			 compat.len, size - sizeof(compat));
		return -EPROTO;
	}
	*len = compat.len;
	return 0;
}
