/* SPDX-License-Identifier: MIT */
/*
 * Goal: what peers write for each other is read back as it was meant, and
 * nothing else is taken for it. Method: bytes, by hand and bit by bit.
 */
#include "lib/wire.h"

#include <errno.h>
#include <stdlib.h>

#include "tests/harness.h"

static struct vb_caps caps_of(uint32_t qpn, uint32_t second)
{
	uint8_t bytes[VB_CAPS_BYTES] = {0};
	struct vb_caps caps;

	memcpy(bytes, &qpn, 4);
	memcpy(bytes + 4, &second, 4);
	bytes[23] = 1;
	CHECK(vb_caps_parse(bytes, &caps) <= 0, "all zero");
	return caps;
}

/* --- capabilities --- */

Test(wire, N1_capabilities_of_zero_are_no_rdma)
{
	static const uint8_t zero[VB_CAPS_BYTES];
	struct vb_caps caps;

	CHECK_EQ(vb_caps_parse(zero, &caps), 1);
}

Test(wire, DN1_the_two_layouts_are_told_apart)
{
	/* The seeds': Apple's LIDs are small; Linux's PSN is its number. */
	CHECK_EQ(caps_of(0x1000, 2).platform, VB_PLATFORM_APPLE);
	CHECK_EQ(caps_of(0x1000, 2).lid, 2);
	CHECK_EQ(caps_of(3, 1).platform, VB_PLATFORM_APPLE);
	CHECK_EQ(caps_of(3, 3).platform, VB_PLATFORM_APPLE);
	CHECK_EQ(caps_of(17, 17).platform, VB_PLATFORM_LINUX);
	CHECK_EQ(caps_of(0x11a, 0x11a).platform, VB_PLATFORM_LINUX);
	CHECK_EQ(caps_of(0x123456, 0x123456).platform, VB_PLATFORM_LINUX);
	CHECK_EQ(caps_of(0xab123456, 0x123456).platform, VB_PLATFORM_LINUX);
	/* Neither. */
	CHECK_EQ(caps_of(0x123456, 0x654321).platform, VB_PLATFORM_NONE);
	CHECK_EQ(caps_of(0x1000, 0x10002).platform, VB_PLATFORM_NONE);
	CHECK(!caps_of(0x1000, 2).is_hardened, "compat");
	CHECK(!caps_of(0x123456, 0x123456).is_hardened, "compat");
}

Test(wire, DA23_capabilities_are_read_as_they_were_written)
{
	for (uint32_t qpn = 17; qpn < 0x1000000; qpn = qpn * 3 + 1)
		for (int i = 0; i < 4; i++) {
			bool is_hardened = i % 2;
			struct vb_caps in,
				caps = {
					.platform = i < 2 ? VB_PLATFORM_APPLE
							  : VB_PLATFORM_LINUX,
					.is_hardened = is_hardened,
					.qpn = qpn,
					.gid = {[0] = 0xfe, [15] = 7},
				};
			uint8_t bytes[VB_CAPS_BYTES];

			if (i < 2)
				caps.lid = 3;
			else
				caps.psn = is_hardened
						   ? vb_caps_hardened_psn(qpn)
						   : qpn;
			vb_caps_pack(&caps, bytes);
			CHECK_EQ(vb_caps_parse(bytes, &in), 0);
			CHECK_EQ(in.platform, caps.platform);
			CHECK_EQ(in.is_hardened, is_hardened);
			CHECK_EQ(in.qpn, qpn);
			CHECK_EQ(in.psn, caps.psn);
			CHECK_EQ(in.lid, caps.lid);
			CHECK(memcmp(in.gid, caps.gid, 16) == 0, "gid");
		}
}

/* --- records --- */

static const struct vb_record offer = {
	.version = VB_RECORD_VERSION,
	.platform = VB_PLATFORM_APPLE,
	.transport = VB_TRANSPORT_APPLE_UC,
	.features = VB_FEATURE_CRC,
	.stride_bytes = 131072,
	.slots = 16,
	.mtu = 5,
	.port = 1,
	.device = 0x1122334455667788,
	.qpn = 0x1234,
};

Test(wire, DA23_records_say_version_platform_stride_and_depth)
{
	uint8_t bytes[VB_RECORD_BYTES];
	struct vb_record in;
	char why[VB_WHY];

	vb_record_pack(&offer, bytes);
	CHECK_EQ(vb_record_parse(bytes, sizeof(bytes), &in, why), 0);
	CHECK_EQ(in.version, offer.version);
	CHECK_EQ(in.platform, offer.platform);
	CHECK_EQ(in.transport, offer.transport);
	CHECK_EQ(in.features, offer.features);
	CHECK_EQ(in.stride_bytes, offer.stride_bytes);
	CHECK_EQ(in.slots, offer.slots);
	CHECK_EQ(in.mtu, offer.mtu);
	CHECK_EQ(in.port, offer.port);
	CHECK_EQ(in.device, offer.device);
	CHECK_EQ(in.qpn, offer.qpn);
	/* Every bit counts. */
	for (int bit = 0; bit < VB_RECORD_BYTES * 8; bit++) {
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		CHECK(vb_record_parse(bytes, sizeof(bytes), &in, why) ==
			      -EPROTO,
		      "bit %d", bit);
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	CHECK_EQ(vb_record_parse(bytes, sizeof(bytes) - 1, &in, why), -EPROTO);
}

/* What this version does not know comes before the CRC. */
Test(wire, a_longer_record_of_a_later_version_is_read)
{
	uint8_t bytes[VB_RECORD_BYTES + 20] = {0};
	size_t size = sizeof(bytes);
	struct vb_record in;
	char why[VB_WHY];
	uint32_t crc;

	vb_record_pack(&offer, bytes);
	bytes[4] = 2;
	bytes[6] = (uint8_t)size;
	bytes[40] = 0x77;
	crc = vb_crc32c(0, bytes, size - 4);
	for (int i = 0; i < 4; i++)
		bytes[size - 4 + (size_t)i] = (uint8_t)(crc >> 8 * i);
	CHECK_EQ(vb_record_length(bytes, why), (int)size);
	CHECK_EQ(vb_record_parse(bytes, size, &in, why), 0);
	CHECK_EQ(in.version, 2);
	CHECK_EQ(in.stride_bytes, offer.stride_bytes);
}

Test(wire, DA27_DA28_offers_that_do_not_fit_do_not_fit_at_either_end)
{
	struct vb_record peer = offer;
	struct vb_choice mine, theirs;
	char why[VB_WHY];

	peer.device++;
	peer.stride_bytes = 16384;
	peer.slots = 40;
	peer.features = 0;
	peer.mtu = 3;
	CHECK_EQ(vb_record_agree(&offer, &peer, &mine, why), 0);
	CHECK_EQ(vb_record_agree(&peer, &offer, &theirs, why), 0);
	CHECK_EQ(mine.stride_bytes, 16384);
	CHECK_EQ(mine.slots, 16);
	CHECK_EQ(mine.features, 0);
	CHECK_EQ(mine.mtu, 3);
	CHECK_EQ(theirs.stride_bytes, 16384);
	CHECK_EQ(theirs.slots, 16);
	/* The same port of the same device (D-A28). */
	peer = offer;
	CHECK_EQ(vb_record_agree(&offer, &peer, &mine, why), -EPROTO);
	CHECK_HAS(why, "1122334455667788");
	peer.port = 2;
	CHECK_EQ(vb_record_agree(&offer, &peer, &mine, why), 0);
	peer.transport = VB_TRANSPORT_RC;
	CHECK_EQ(vb_record_agree(&offer, &peer, &mine, why), -EPROTO);
	CHECK_EQ(vb_record_agree(&peer, &offer, &mine, why), -EPROTO);
	peer.transport = offer.transport;
	peer.stride_bytes = 5000;
	CHECK_EQ(vb_record_agree(&offer, &peer, &mine, why), -EPROTO);
	CHECK_EQ(vb_record_agree(&peer, &offer, &mine, why), -EPROTO);
	CHECK_HAS(why, "5000");
}

Test(wire, DA27_a_commit_echoes_the_choice)
{
	struct vb_choice choice = {.features = 1,
				   .stride_bytes = 8192,
				   .slots = 9,
				   .mtu = 4};
	struct vb_choice other = choice;
	uint8_t bytes[VB_COMMIT_BYTES];
	char why[VB_WHY];
	bool is_ready;

	for (int ready = 0; ready < 2; ready++) {
		vb_commit_pack(&choice, ready, bytes);
		CHECK_EQ(vb_commit_parse(bytes, &choice, &is_ready, why), 0);
		CHECK_EQ(is_ready, ready);
	}
	for (int bit = 0; bit < VB_COMMIT_BYTES * 8; bit++) {
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		CHECK(vb_commit_parse(bytes, &choice, &is_ready, why) ==
			      -EPROTO,
		      "bit %d", bit);
		bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	other.slots++;
	CHECK_EQ(vb_commit_parse(bytes, &other, &is_ready, why), -EPROTO);
	CHECK_HAS(why, "9 slots of 8192");
}

/* --- frames --- */

static const struct vb_wire wires[] = {
	{VB_FRAMING_COMPAT, true, false, 4096},
	{VB_FRAMING_HARDENED, true, false, 4096},
	{VB_FRAMING_HARDENED, true, true, 4096},
	{VB_FRAMING_HARDENED, false, false, 4096},
	{VB_FRAMING_HARDENED, false, true, 4096},
	{VB_FRAMING_NONE, false, false, 4096},
};
#define WIRE_COUNT (sizeof(wires) / sizeof(*wires))

Test(wire, A13_A15_A30_a_frame_is_read_as_it_was_written)
{
	static const uint32_t lens[] = {1, 2, 100, 4080};
	uint8_t frame[4096];
	char why[VB_WHY];
	uint32_t len;

	for (size_t w = 0; w < WIRE_COUNT; w++)
		for (size_t i = 0; i < 4; i++) {
			uint32_t size;

			memset(frame, 0x5a, sizeof(frame));
			size = vb_frame_pack(&wires[w], frame, lens[i], 7);
			CHECK(size <= 4096 &&
				      (!wires[w].is_whole || size == 4096),
			      "%zu: %u", w, size);
			CHECK(vb_frame_parse(&wires[w], frame, size, 7, &len,
					     why) == 0,
			      "%zu: %s", w, why);
			CHECK_EQ(len, lens[i]);
			/* One byte less or more is another frame, or none. */
			if (wires[w].framing != VB_FRAMING_NONE)
				CHECK_EQ(vb_frame_parse(&wires[w], frame,
							size - 1, 7, &len, why),
					 -EPROTO);
			CHECK_EQ(vb_frame_parse(&wires[w], frame, 4097, 7, &len,
						why),
				 -EPROTO);
			CHECK_EQ(vb_frame_parse(&wires[w], frame, 0, 7, &len,
						why),
				 -EPROTO);
		}
}

Test(wire, DA2_DA4_a_hardened_frame_of_another_place_is_refused)
{
	uint8_t frame[4096] = {0};
	char why[VB_WHY];
	uint32_t len;

	for (size_t w = 1; w < 5; w++) {
		uint32_t size = vb_frame_pack(&wires[w], frame, 50, 0xffffffff);

		CHECK_EQ(vb_frame_parse(&wires[w], frame, size, 0xffffffff,
					&len, why),
			 0);
		CHECK_EQ(vb_frame_parse(&wires[w], frame, size, 0, &len, why),
			 -EPROTO);
		CHECK_HAS(why, "sequence number 4294967295 instead of 0");
	}
}

Test(wire, A30_each_bit_of_a_frame_with_a_crc_counts)
{
	uint8_t frame[4096] = {0};
	char why[VB_WHY];
	uint32_t len, size = vb_frame_pack(&wires[4], frame, 100, 3);

	for (uint32_t bit = 0; bit < size * 8; bit++) {
		frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
		CHECK(vb_frame_parse(&wires[4], frame, size, 3, &len, why) ==
			      -EPROTO,
		      "bit %u", bit);
		frame[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

/* RFC 3720, B.4; and each length and offset, as the instruction takes eight
 * bytes at a time. */
Test(wire, the_crc_is_castagnolis_by_instruction_and_by_table)
{
	uint8_t bytes[64] = {0};

	CHECK_EQ(vb_crc32c(0, bytes, 32), 0x8a9136aau);
	memset(bytes, 0xff, 32);
	CHECK_EQ(vb_crc32c(0, bytes, 32), 0x62a8ab43u);
	for (int i = 0; i < 64; i++)
		bytes[i] = (uint8_t)i;
	CHECK_EQ(vb_crc32c(0, bytes, 32), 0x46dd794eu);
	for (size_t from = 0; from < 9; from++)
		for (size_t len = 0; from + len <= 64; len++)
			CHECK_EQ(vb_crc32c(5, bytes + from, len),
				 vb_crc32c_by_table(5, bytes + from, len));
	CHECK_EQ(vb_crc32c(vb_crc32c(0, bytes, 13), bytes + 13, 51),
		 vb_crc32c(0, bytes, 64));
}
