/* SPDX-License-Identifier: MIT */
/*
 * What peers write for each other, as bytes: capabilities, hardened records,
 * frame headers. Pure functions, as nothing that comes from a peer is believed.
 *
 * Compat layouts are ggml-rpc's, in host byte order (contract: spec/
 * apple-and-ggml-transports.md, 1, 2.1 and 3.1). Hardened ones are little
 * endian and end with, or carry, a CRC-32C.
 */
#ifndef VB_WIRE_H
#define VB_WIRE_H

#include "lib/verbena.h"

#define VB_WHY 128 /* bytes of a reason */

#define SMALLER(a, b) ((a) < (b) ? (a) : (b))

/* --- capabilities: 24 bytes, before anything else --- */

enum vb_platform {
	VB_PLATFORM_NONE,
	VB_PLATFORM_APPLE, /* qpn, lid, 0, gid */
	VB_PLATFORM_LINUX, /* qpn, psn, gid */
};

struct vb_caps {
	enum vb_platform platform;
	bool is_hardened; /* the sender can; it is compat to who cannot */
	uint32_t qpn;
	uint32_t psn; /* 24 bits; VB_PLATFORM_LINUX */
	uint16_t lid; /* VB_PLATFORM_APPLE */
	uint8_t gid[16];
};

void vb_caps_pack(const struct vb_caps *caps, uint8_t bytes[VB_CAPS_BYTES]);
/* The PSN that says that its sender can do hardened mode. */
uint32_t vb_caps_hardened_psn(uint32_t qpn);
/*
 * 0: read; 1: all zero, no RDMA; -EPROTO: of no known layout. The layouts have
 * no mark (D-N1), but a compat Linux PSN is the queue pair's number, and 16
 * bits of Apple's are 0. What is both is Linux's if the number is above 16:
 * those have no ordinary queue pairs below 17, and LIDs count devices.
 */
int vb_caps_parse(const uint8_t bytes[VB_CAPS_BYTES], struct vb_caps *caps);

/* --- hardened mode: records on the bootstrap stream --- */

#define VB_RECORD_VERSION    1
#define VB_RECORD_BYTES	     40
#define VB_RECORD_HEAD_BYTES 8	 /* magic, version, length */
#define VB_RECORD_MAX_BYTES  256 /* what a later version may say */
#define VB_COMMIT_BYTES	     20

#define VB_FEATURE_CRC (1u << 0)

/* What an end offers. */
struct vb_record {
	uint16_t version;
	uint8_t platform;
	uint8_t transport; /* enum vb_transport_kind */
	uint16_t features;
	uint32_t stride_bytes;
	uint16_t slots;
	uint8_t mtu; /* enum ibv_mtu */
	uint8_t port;
	uint64_t device; /* node GUID: a device has no cable to itself */
	uint32_t qpn;
};

/* What came of both offers. */
struct vb_choice {
	uint16_t features;
	uint32_t stride_bytes;
	uint16_t slots;
	uint8_t mtu;
};

void vb_record_pack(const struct vb_record *record,
		    uint8_t bytes[VB_RECORD_BYTES]);
/* The length of the whole record, or -EPROTO and why. */
int vb_record_length(const uint8_t head[VB_RECORD_HEAD_BYTES],
		     char why[VB_WHY]);
int vb_record_parse(const uint8_t *bytes, size_t size, struct vb_record *record,
		    char why[VB_WHY]);
/* The same at both ends, whose offers are swapped. -EPROTO, and why: they do
 * not fit. */
int vb_record_agree(const struct vb_record *mine, const struct vb_record *peer,
		    struct vb_choice *choice, char why[VB_WHY]);

void vb_commit_pack(const struct vb_choice *choice, bool is_ready,
		    uint8_t bytes[VB_COMMIT_BYTES]);
/* -EPROTO, and why: not a commit, or to another choice. */
int vb_commit_parse(const uint8_t bytes[VB_COMMIT_BYTES],
		    const struct vb_choice *choice, bool *is_ready,
		    char why[VB_WHY]);

/* --- frames --- */

enum vb_framing {
	VB_FRAMING_NONE,     /* compat RC: a SEND is payload */
	VB_FRAMING_COMPAT,   /* compat UC: magic, length */
	VB_FRAMING_HARDENED, /* magic, length, sequence number, CRC-32C or 0 */
};

#define VB_FRAME_MAGIC	  0x52534547u /* "RSEG", of the seed */
#define VB_FRAME_HARDENED 0x47455356u

struct vb_wire {
	enum vb_framing framing;
	bool is_whole; /* each SEND is a whole stride (R15) */
	bool has_crc;
	uint32_t stride_bytes;
};

uint32_t vb_frame_header_bytes(enum vb_framing framing);
uint32_t vb_frame_payload_bytes(const struct vb_wire *wire);
/* Write the header before `len` payload bytes; how many bytes to SEND. */
uint32_t vb_frame_pack(const struct vb_wire *wire, uint8_t *frame, uint32_t len,
		       uint32_t sequence);
/* The payload bytes in a received frame of size `size`. -EPROTO, and why. */
int vb_frame_parse(const struct vb_wire *wire, const uint8_t *frame,
		   uint32_t size, uint32_t sequence, uint32_t *len,
		   char why[VB_WHY]);

/* CRC-32C (Castagnoli), as of RFC 3720, B.4; `crc` is 0 at first. */
uint32_t vb_crc32c(uint32_t crc, const void *bytes, size_t len);
/* The same without the processor's help. */
uint32_t vb_crc32c_by_table(uint32_t crc, const void *bytes, size_t len);

#endif
