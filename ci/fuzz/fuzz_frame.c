/* SPDX-License-Identifier: MIT */
/*
 * Goal: no frame, of whatever size, makes more payload than it has; what is
 * sent is taken; and no single bit of a frame with a CRC goes unseen. Method:
 * the input cuts the wire and fills a frame in memory of just its size.
 */
#include "ci/fuzz/input.h"

#include "lib/wire.h"

static struct vb_wire wire_of(struct input *in)
{
	uint8_t flags = input_u8(in);
	struct vb_wire wire = {
		.framing = (enum vb_framing)((flags & 3) % 3),
		.is_whole = flags & 4,
		.has_crc = flags & 8,
	};

	/* Never less than a header and one byte, as 4096 is the least. */
	wire.stride_bytes = 17 + input_u16(in) % 512;
	return wire;
}

static bool is_text(const char why[VB_WHY])
{
	return why[0] && memchr(why, 0, VB_WHY);
}

static void receive(struct input in, const struct vb_wire *wire)
{
	uint32_t header = vb_frame_header_bytes(wire->framing);
	uint32_t magic = wire->framing == VB_FRAMING_COMPAT ? VB_FRAME_MAGIC
							    : VB_FRAME_HARDENED;
	uint8_t flags = input_u8(&in);
	bool is_marked = flags & 2;
	uint32_t size = flags & 1 ? wire->stride_bytes : input_u32(&in);
	uint32_t sequence = input_u32(&in), len = UINT32_MAX;
	/* A size over the stride is said, not received. */
	uint32_t there = size <= wire->stride_bytes ? size : 0;
	uint8_t *frame = malloc(there ? there : 1);
	char why[VB_WHY];

	memset(why, 'x', sizeof(why));
	input_bytes(&in, frame, there);
	if (is_marked && there >= 4)
		memcpy(frame, &magic, 4);
	if (vb_frame_parse(wire, frame, size, sequence, &len, why) == 0) {
		MUST(size && size <= wire->stride_bytes);
		MUST(len <= vb_frame_payload_bytes(wire));
		MUST((uint64_t)header + len <= size);
		MUST(!wire->is_whole || size == wire->stride_bytes);
	} else {
		MUST(is_text(why));
	}
	free(frame);
}

static void flip(const struct vb_wire *wire, uint8_t *frame, uint32_t size,
		 uint32_t sequence, uint32_t bit)
{
	char why[VB_WHY];
	uint32_t len;

	frame[bit / 8] ^= (uint8_t)(1u << bit % 8);
	MUST(vb_frame_parse(wire, frame, size, sequence, &len, why));
	frame[bit / 8] ^= (uint8_t)(1u << bit % 8);
}

static void send_and_receive(struct input in, const struct vb_wire *wire)
{
	uint32_t header = vb_frame_header_bytes(wire->framing), size, len;
	uint32_t sequence = input_u32(&in);
	uint32_t any_bit = input_u16(&in);
	uint32_t want = input_u16(&in) % (vb_frame_payload_bytes(wire) + 1);
	uint8_t *frame = malloc(wire->stride_bytes), *copy;
	char why[VB_WHY];

	/* Behind the payload, too: padding is anything. */
	input_bytes(&in, frame, wire->stride_bytes);
	size = vb_frame_pack(wire, frame, want, sequence);
	MUST(size <= wire->stride_bytes && size >= header + want);
	copy = malloc(size ? size : 1);
	memcpy(copy, frame, size);
	free(frame);
	/* Without a header there is no empty SEND, and padding is payload. */
	if (size) {
		MUST(!vb_frame_parse(wire, copy, size, sequence, &len, why));
		MUST(len == (header ? want : size));
		if (wire->framing == VB_FRAMING_HARDENED)
			MUST(vb_frame_parse(wire, copy, size, sequence + 1,
					    &len, why));
		if (wire->framing == VB_FRAMING_HARDENED && wire->has_crc)
			flip(wire, copy, size, sequence,
			     any_bit % ((header + want) * 8));
	}
	free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	struct vb_wire wire = wire_of(&in);
	size_t most = in.left < 64 ? in.left : 64;

	MUST(vb_crc32c(0, in.at, most) == vb_crc32c_by_table(0, in.at, most));
	receive(in, &wire);
	send_and_receive(in, &wire);
	return 0;
}
