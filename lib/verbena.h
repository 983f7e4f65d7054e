/* SPDX-License-Identifier: MIT */
/*
 * The door of lib: move a byte stream over an RDMA device.
 *
 * Life of a transport: probe (before the peers exchange capabilities),
 * activate (after), then send, recv and flush in any order, then close. One
 * thread at a time may use a transport; different transports are independent.
 *
 * Functions return 0 or a negative errno. The first failure of a transport is
 * latched with its cause, and every later call returns it.
 */
#ifndef VERBENA_H
#define VERBENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VB_CAPS_BYTES 24 /* ggml-rpc's RPC_CONN_CAPS_SIZE */

struct vb_verbs;
struct vb_transport;

/* What went wrong, once something did. */
enum vb_code {
	VB_OK,
	VB_NO_DEVICE,  /* no library, no device, or none with the address */
	VB_DEVICE,     /* a verbs call failed */
	VB_TIMEOUT,    /* no progress within the deadline */
	VB_PEER_GONE,  /* the bootstrap connection ended */
	VB_PROTOCOL,   /* the peer sent what it must not */
	VB_COMPLETION, /* a work request completed with an error */
};

struct vb_cause {
	enum vb_code code;
	int error;    /* the negative errno that calls return */
	bool is_send; /* seen on the sending side of this end */
	/* Where: bytes of the stream that were in order before it; the
	 * ordinal of the frame (one SEND of a whole stride) in its direction;
	 * its ring slot. -1 where that means nothing. */
	int64_t offset_bytes;
	int64_t frame;
	int slot;
	int wc_status;	/* enum ibv_wc_status, for VB_COMPLETION */
	char text[192]; /* one line, for people */
};

/*
 * The three seams to the world outside. Every member may be NULL: production
 * defaults are CLOCK_MONOTONIC, pause/yield/sleep by idle time, and malloc.
 */
struct vb_runtime {
	uint64_t (*now_ns)(void *arg);
	/* Called on every empty poll with the time since the last progress,
	 * and the moment (of now_ns) at which we look again at the latest. */
	void (*idle)(void *arg, uint64_t idle_ns, uint64_t until_ns);
	void *(*alloc)(void *arg, size_t align_bytes, size_t size_bytes);
	void (*free)(void *arg, void *memory);
	void *arg;
};

/*
 * The bootstrap channel: the stream over which the peers met. Used for the
 * readiness byte, and afterwards only watched. Results as of send(2) and
 * recv(2) but with a negative errno; neither blocks.
 */
struct vb_boot {
	long (*send)(void *arg, const void *bytes, size_t len);
	long (*recv)(void *arg, void *bytes, size_t len, bool is_peek);
	/* Wait until readable (or writable), at most timeout_ms. 1 or 0. */
	int (*wait)(void *arg, bool for_write, int timeout_ms);
	/* End both directions: the peer must learn that we gave up. */
	void (*shutdown)(void *arg);
	void *arg;
};

struct vb_options {
	int fd; /* connected TCP socket; stays the caller's, must outlive us */
	const struct vb_boot *boot; /* NULL: the socket itself */
	struct vb_verbs *verbs;	    /* NULL: libibverbs.so.1 */
	struct vb_runtime runtime;
	uint8_t gid[16];       /* all zero: the socket's local address */
	uint64_t timeout_ns;   /* without progress; 0: 30 s */
	uint64_t grace_ns;     /* after the peer's end; 0: 100 ms */
	uint32_t stride_bytes; /* 0: 131072, as ggml-rpc; whole frames */
	uint32_t slots;	       /* 0: 16; rings hold so many strides */
};

/*
 * Find the device whose GID equals the socket's local address, create a queue
 * pair and its rings, and write the capabilities to send to the peer. On
 * failure nothing is kept, caps are all zero ("no RDMA"), and `cause`, when
 * given, says why; -ENODEV means that there is no such device.
 * Contract: spec/apple-and-ggml-transports.md, section 3, S0 … S2.
 */
int vb_probe(const struct vb_options *options, uint8_t caps[VB_CAPS_BYTES],
	     struct vb_transport **transport, struct vb_cause *cause);

/*
 * Connect with the peer's capabilities and exchange the readiness byte.
 *  0: live; from here all bytes go over RDMA.
 *  1: both ends know that they stay on the socket; close the transport.
 *  negative: the ends may disagree; the bootstrap connection was shut down.
 */
int vb_activate(struct vb_transport *transport,
		const uint8_t caps[VB_CAPS_BYTES]);

/*
 * Append to the stream. Call boundaries do not matter to the peer. The last,
 * partial stride stays here until flush, recv or close. Returns when the bytes
 * are in the ring, not when they are delivered. A size of 0 does nothing.
 */
int vb_send(struct vb_transport *transport, const void *data, size_t size);

/*
 * Receive exactly `size` bytes. Posts a pending partial stride first, also
 * when `size` is 0. On failure the contents of `data` are undefined.
 */
int vb_recv(struct vb_transport *transport, void *data, size_t size);

/* Post a pending partial stride. */
int vb_flush(struct vb_transport *transport);

/*
 * Flush, wait (within the deadline) until the device has taken all sends, and
 * release everything; the transport is gone whatever is returned: the latched
 * failure, or what went wrong in closing. `cause`, when given, tells it. Memory
 * whose release the device refuses is kept, as it may still write there.
 */
int vb_close(struct vb_transport *transport, struct vb_cause *cause);

/* The latched failure, or one with code VB_OK; valid until vb_close. */
const struct vb_cause *vb_cause(const struct vb_transport *transport);

/* "timeout", "peer-gone", ... for any code. */
const char *vb_code_name(enum vb_code code);

/* Bytes handed to vb_send, and handed out by vb_recv, so far. */
uint64_t vb_sent_bytes(const struct vb_transport *transport);
uint64_t vb_received_bytes(const struct vb_transport *transport);

/*
 * The verbs entry points, from a library by name (NULL: libibverbs.so.1, on
 * macOS librdma.dylib). -ENODEV when it is not there: a host without it is a
 * host without devices. vb_verbs_put releases it.
 */
int vb_verbs_load(const char *library, struct vb_verbs **verbs);
void vb_verbs_put(struct vb_verbs *verbs);

#ifdef __cplusplus
}
#endif

#endif
