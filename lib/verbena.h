/* SPDX-License-Identifier: MIT */
/*
 * The door of lib: move a byte stream over an RDMA device, or over the socket.
 *
 * Life of a transport: vb_connect; or probe (before the peers exchange
 * capabilities) and activate (after). Then send, recv and flush in any order,
 * then close. One thread at a time may use a transport; different transports
 * are independent. After fork only the parent may.
 *
 * The stream is one of bytes: where calls begin and end does not matter to the
 * peer (but see VB_TRANSPORT_RC). Both ends may send at once.
 *
 * Functions return 0 or a negative errno, and write their outputs on success
 * only. The first failure of a transport is latched with its cause, and every
 * later call returns it. No pointer is NULL unless it says so; what closes,
 * frees or gives back takes NULL and does nothing.
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
struct vb_registry;
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
	VB_OVERFLOW,   /* both ends send, and backlog_bytes are not enough */
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
 * defaults are CLOCK_MONOTONIC, pause/yield/sleep by idle time, and malloc; but
 * on Linux a ring is a sealed memfd then (two descriptors a transport), whose
 * pages a fork does not copy. `alloc` and `free` come together or not at all;
 * rings and waiting bytes are theirs.
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
 * The bootstrap channel: the stream over which the peers met. Used to set a
 * transport up, and afterwards only watched. Results as of send(2) and
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

enum vb_transport_kind {
	VB_TRANSPORT_AUTO, /* what suits the device that has the address */
	VB_TRANSPORT_APPLE_UC,
	/* In compat mode a SEND ends where a call of vb_send does, and a peer
	 * that is ggml-rpc's must ask for whole SENDs. */
	VB_TRANSPORT_RC,
	VB_TRANSPORT_SRD, /* EFA: a device's; there is no transport yet */
	VB_TRANSPORT_TCP, /* the socket, for vb_connect */
};

enum vb_mode {
	VB_COMPAT, /* byte for byte what ggml-rpc speaks */
	/* Each frame has a sequence number, strides and depth are agreed on;
	 * compat with a peer that cannot. */
	VB_HARDENED,
	VB_HARDENED_ONLY, /* no RDMA with a peer that cannot */
};

struct vb_options {
	int fd; /* connected TCP socket; stays the caller's, must outlive us */
	const struct vb_boot *boot; /* NULL: the socket itself */
	/* NULL: one of our own, each time. A given one is used as it is:
	 * refresh it when addresses change. */
	struct vb_registry *registry;
	struct vb_verbs *verbs; /* for that; NULL: libibverbs.so.1 */
	struct vb_runtime runtime;
	enum vb_transport_kind transport;
	enum vb_mode mode;
	bool has_crc;	     /* hardened: CRC-32C, if the peer wants it, too */
	const char *device;  /* only the one of this name; NULL: any */
	uint8_t gid[16];     /* all zero: the socket's local address */
	uint64_t timeout_ns; /* without progress; 0: 30 s */
	uint64_t grace_ns;   /* after the peer's end; 0: 100 ms */
	/* Of 4096, up to 1 GiB; in compat mode the same at both ends. 0: 131072
	 * (UC), 262144 (RC). */
	uint32_t stride_bytes;
	/* Strides that a ring holds, up to 64, and 1 GiB in all (UC: 4095
	 * frames of 4096). 0: 16 (UC), 24 (RC), 8 (RC hardened). */
	uint32_t slots;
	/* What may wait here when both ends send; 0: 1 GiB. */
	uint64_t backlog_bytes;
};

/*
 * All of it: probe, exchange capabilities over the bootstrap channel, activate;
 * and the socket itself when either end has no RDMA. The peer calls the same,
 * or does as ggml-rpc does. `cause`, when given, says why it is not RDMA (also
 * when 0 is returned; nothing, if it was not asked for), or what failed. Then
 * the bootstrap connection was shut down. -EINVAL: an option.
 */
int vb_connect(const struct vb_options *options,
	       struct vb_transport **transport, struct vb_cause *cause);

/* The socket as a transport, live at once. -ENOMEM. */
int vb_tcp_open(const struct vb_options *options,
		struct vb_transport **transport);

/* "apple_uc", "rc" or "tcp". */
const char *vb_transport_name(const struct vb_transport *transport);

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
 * Connect with the peer's capabilities; then the one exchange that makes both
 * ends live, or neither (compat RC has none).
 *  0: live; from here all bytes go over RDMA.
 *  1: both ends know that they stay on the socket; the cause says why; close
 *     the transport.
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

/*
 * The same without a copy. Reserve: where the next bytes of the stream can be
 * written in place, at least one; waits as vb_send does. The place is good
 * until the next call. Commit: the first `size` of them are written (at most
 * what was reserved, or -EINVAL).
 */
int vb_send_reserve(struct vb_transport *transport, void **space, size_t *size);
int vb_send_commit(struct vb_transport *transport, size_t size);

/*
 * Peek: the next bytes of the stream where they came, at least one; waits, and
 * posts what is pending, as vb_recv does. They are there until the next call.
 * Consume: `size` of them are done with (at most what was peeked at, or
 * -EINVAL).
 */
int vb_recv_peek(struct vb_transport *transport, const void **data,
		 size_t *size);
int vb_recv_consume(struct vb_transport *transport, size_t size);

/* Post a pending partial stride. */
int vb_flush(struct vb_transport *transport);

/*
 * Flush, wait (within the deadline) until the device has taken all sends, and
 * release everything; the transport is gone whatever is returned: the latched
 * failure, or what went wrong in closing. `cause`, when given, tells it. It
 * does not wait for the peer: an end that closes last finds the other one gone
 * if it still waits for something. Memory whose release the device refuses is
 * kept, as it may still write there.
 */
int vb_close(struct vb_transport *transport, struct vb_cause *cause);

/* Try again with what was kept; of how many transports something still is.
 * Any thread. */
int vb_release_kept(void);

/* The latched failure, or one with code VB_OK; valid until vb_close. */
const struct vb_cause *vb_cause(const struct vb_transport *transport);

/* "timeout", "peer-gone", ... for any code. */
const char *vb_code_name(enum vb_code code);

/* Bytes handed to vb_send, and handed out by vb_recv, so far. */
uint64_t vb_sent_bytes(const struct vb_transport *transport);
uint64_t vb_received_bytes(const struct vb_transport *transport);

/*
 * --- devices ---------------------------------------------------------------
 *
 * A registry finds the RDMA devices of this host once, when it is first asked,
 * and gives each to the first backend that claims it. Row by row:
 * spec/registry.md, section 4.
 *
 * Threads: any; who asks first walks, the others wait. From a backend's own
 * function every call is -EDEADLK. After fork the child's calls are -ECHILD: it
 * makes a registry anew. Failures leave a line in vb_last_error().
 */
struct vb_device;
struct vb_domain;
struct vb_qp;
struct ibv_context;
struct ibv_pd;
struct ibv_mr;
struct ibv_cq;
struct ibv_qp;
struct ibv_qp_init_attr;
struct ibv_ah;

#define VB_NAME_MAX 64

enum vb_gid_scope {
	VB_GID_LOOPBACK,   /* ::1, 127/8 */
	VB_GID_LINK_LOCAL, /* fe80::/10, 169.254/16 */
	VB_GID_SITE_LOCAL, /* fec0::/10 */
	VB_GID_GLOBAL,
};

enum vb_gid_type { VB_GID_UNKNOWN, VB_GID_IB_ROCE_V1, VB_GID_ROCE_V2 };

struct vb_gid {
	uint8_t raw[16];
	uint32_t index; /* in the port's table */
	enum vb_gid_scope scope;
	enum vb_gid_type type;
};

/* Enumerators and units as of struct ibv_port_attr. */
struct vb_port {
	uint8_t num; /* from 1 */
	uint8_t state;
	uint8_t phys_state;
	uint8_t link_layer; /* 0 unspecified, 1 InfiniBand, 2 Ethernet */
	uint8_t lmc;
	uint8_t active_width;
	uint8_t active_speed;
	uint8_t active_mtu; /* enum ibv_mtu */
	uint8_t max_mtu;
	uint16_t lid;
	uint16_t sm_lid;
	uint16_t pkey_count;
	uint32_t capabilities;
	uint32_t max_msg_bytes;
	uint32_t gid_table_len;
	int gid_count; /* of those that are set */
	struct vb_gid *gids;
};

struct vb_device_info {
	char name[VB_NAME_MAX];
	const char *backend;	  /* key; lives as long as the registry */
	const char *backend_name; /* for people */
	uint64_t node_guid;	  /* host byte order */
	char fw_version[64];
	uint32_t vendor_id;
	uint32_t vendor_part_id;
	uint32_t hw_version;
	int max_qp, max_cq, max_cqe, max_mr, max_pd, max_qp_wr, max_sge;
	int port_count; /* ports that answered */
	struct vb_port *ports;
};

/* A snapshot, the caller's own. */
struct vb_devices {
	uint64_t generation; /* of the walk, from 1 */
	int count;
	struct vb_device_info *info;
};

/* Why a device is not offered. */
enum vb_why {
	VB_OPEN_FAILED,
	VB_UNCLAIMED,	 /* by every backend */
	VB_UNUSABLE,	 /* a backend's, which cannot use it */
	VB_QUERY_FAILED, /* a backend's, and it does not answer */
};

struct vb_absent {
	char name[VB_NAME_MAX];
	const char *backend; /* key, or NULL */
	enum vb_why why;
	int error; /* negative errno, or 0 */
	char text[160];
};

struct vb_report {
	uint64_t generation;
	int list_error; /* negative errno of the device list, or 0 */
	int count;
	struct vb_absent *absent;
};

enum vb_claim { VB_CLAIM_NO, VB_CLAIM_YES, VB_CLAIM_UNUSABLE };

/*
 * How a queue pair of a device is made and connected. What vb_config_init gives
 * is for a device that says nothing of itself; a backend's own defaults are in
 * vb_config_default. Encodings are those of struct ibv_qp_attr.
 */
struct vb_config {
	uint32_t max_send_wr, max_recv_wr;
	uint32_t max_send_sge, max_recv_sge;
	uint32_t psn; /* 24 bits */
	uint16_t pkey_index;
	uint8_t port_num;
	uint8_t path_mtu; /* enum ibv_mtu */
	uint8_t retry_cnt, rnr_retry;
	uint8_t qp_timeout, min_rnr_timer;
	uint8_t max_rd_atomic, max_dest_rd_atomic;
	/* The source GID: this one, or what vb_gid_choose says. */
	bool has_gid_index;
	uint8_t gid_index;
};

/* Kinds of queue pair: connected, reliable or not; and scalable reliable
 * datagrams, which are EFA's. */
enum vb_qp_kind { VB_QP_RC, VB_QP_UC, VB_QP_SRD };

/* A kind of device. Strings and functions outlive the registry. Transports make
 * their queue pairs themselves: they take access and transport from here. */
struct vb_backend {
	const char *key;  /* unique */
	const char *name; /* for people */
	int rank;	  /* lower is asked first; then as registered */
	/*
	 * Is it ours? `context` is lent: it is closed afterwards. `reason` for
	 * UNUSABLE. A negative errno is taken for NO, and logged.
	 */
	int (*claim)(const struct vb_verbs *verbs, struct ibv_context *context,
		     char reason[128]);
	/* May be NULL: changes the common defaults; twice is as once. */
	void (*defaults)(struct vb_config *config);
	/* May be NULL: what a domain needs besides its protection domain, made
	 * before and ended after it. A negative errno: no domain. */
	int (*domain_open)(const struct vb_verbs *verbs,
			   struct ibv_context *context, void **strategy);
	void (*domain_close)(void *strategy);
	/* enum ibv_access_flags of memory regions and connections; 0: local
	 * write, remote read and write. */
	unsigned access;
	enum vb_transport_kind transport; /* AUTO: RC */
	/* Bits 1 << enum vb_qp_kind that its devices have; 0: RC and UC. */
	unsigned qp_kinds;
	/* May be NULL: can the device make one as configured? Makes nothing. A
	 * negative errno, with `reason`: no. */
	int (*qp_check)(const struct vb_verbs *verbs,
			struct ibv_context *context, enum vb_qp_kind kind,
			const struct vb_config *config, char reason[128]);
	/* NULL: create_qp. Makes one as `attr` says, which it may first change
	 * to what the device takes; NULL with errno. */
	struct ibv_qp *(*qp_create)(const struct vb_verbs *verbs,
				    struct ibv_pd *pd, enum vb_qp_kind kind,
				    struct ibv_qp_init_attr *attr);
};

enum vb_level { VB_LOG_INFO, VB_LOG_WARNING, VB_LOG_ERROR };

struct vb_registry_options {
	struct vb_verbs *verbs; /* NULL: the host's */
	const char *sysfs;	/* NULL: /sys; where GID types are looked for
				 * that the library does not tell */
	bool has_no_backends;	/* without efa, mlx, apple, standard */
	bool takes_swapped;	/* a device of the same name, and other GUID */
	void (*log)(void *arg, enum vb_level level, const char *line);
	void *arg;
};

/* NULL options: the defaults. -ENOMEM. Makes no verbs call. */
int vb_registry_create(const struct vb_registry_options *options,
		       struct vb_registry **registry);
void vb_registry_destroy(struct vb_registry *registry);

/*
 * Before the first walk. -EEXIST: the key is taken; -EBUSY: it has walked;
 * -EINVAL: something is NULL.
 */
int vb_backend_register(struct vb_registry *registry,
			const struct vb_backend *backend);

/* Has the backend with this key a device? */
bool vb_available(struct vb_registry *registry, const char *key);

/* The devices of one backend, or (NULL) of all in order of the backends' rank;
 * in the order of the host's list. No such key: -ENOENT, and an empty one. */
int vb_devices_list(struct vb_registry *registry, const char *key,
		    struct vb_devices *devices);
void vb_devices_free(struct vb_devices *devices);

/* What the last walk left out, and why. */
int vb_registry_report(struct vb_registry *registry, struct vb_report *report);
void vb_report_free(struct vb_report *report);

/* Walk again. Snapshots and open devices stay as they are. */
int vb_registry_refresh(struct vb_registry *registry);

/* The lowest GID index of a port that has this scope and type (-1: any).
 * -ENXIO: no such port; -ENOENT: no such GID. */
int vb_gid_select(const struct vb_device_info *info, int port, int scope,
		  int type, const struct vb_gid **gid);
enum vb_gid_scope vb_gid_scope_of(const uint8_t raw[16]);
/*
 * The GID to connect with, by the port's link layer. Ethernet: RoCE v2, of an
 * IPv4 address, else of a global IPv6 one, else (if `with_link_local`) any.
 * InfiniBand and the rest: the one at index 0 (a LID goes with it on
 * InfiniBand). Errors as above.
 */
int vb_gid_choose(const struct vb_device_info *info, int port,
		  bool with_link_local, const struct vb_gid **gid);

/* The quickest ACTIVE port, in MB/s; 0 when there is none, or none says. */
uint32_t vb_speed_mbytes(const struct vb_device_info *info);

/*
 * Open a device of a backend. `config` is kept as it is; NULL: the backend's
 * defaults. It has a context of its own, and no other object yet.
 *  -ENOENT: no such key, or no such device; -ENXIO: it is another backend's;
 *  -ENODEV: it is no longer there; -ESTALE: its name is another device's now;
 *  else what open_device or the device list said.
 */
int vb_device_open(struct vb_registry *registry, const char *key,
		   const char *name, const struct vb_config *config,
		   struct vb_device **device);
/*
 * Give the handle back. The context is closed when its last domain, region and
 * reference are gone; each that is left is logged. 0, or what failed to close.
 */
int vb_device_close(struct vb_device *device);
/* As the registry knew it, and as it was opened; for the handle's life. */
const struct vb_device_info *vb_device_info(const struct vb_device *device);
const struct vb_config *vb_device_config(const struct vb_device *device);
/* A hold on the context, which stays open until it is given back. */
struct vb_context {
	struct ibv_context *context;
	void *inside;
};
struct vb_context vb_device_context(struct vb_device *device);
int vb_context_put(struct vb_context *context);

/* Domains are named; "" is a name. NULL when there is none yet. */
struct vb_domain *vb_domain_find(struct vb_device *device, const char *name);
/* Find or make: its protection domain, once. The device's own; it goes with it,
 * or with its last region. */
int vb_domain_open(struct vb_device *device, const char *name,
		   struct vb_domain **domain);
struct ibv_pd *vb_domain_pd(const struct vb_domain *domain);

/* A region with the backend's access flags; the memory stays the caller's, and
 * there. It keeps domain and device. */
struct vb_region {
	void *addr;
	size_t length;
	uint32_t lkey, rkey;
	struct vb_domain *domain; /* not the caller's */
	struct ibv_mr *mr;
};
int vb_region_open(struct vb_domain *domain, void *addr, size_t length,
		   struct vb_region *region);
/* 0, or a negative errno: then it is still registered. */
int vb_region_close(struct vb_region *region);

/*
 * Queue pairs: made, connected, posted to through their handles, closed. The
 * device's configuration decides depths, SGEs, port and timers; no inline data.
 * Contract: spec/registry.md, 2.2 and 2.3. One thread at a time may use a queue
 * pair, any may make one.
 */
#define VB_SRD_QKEY 0x4242 /* of every SRD queue pair */

/* What the peers tell each other, in host byte order but for the GID; how it
 * travels is the caller's. */
struct vb_endpoint {
	uint32_t qpn; /* 24 bits, as the PSN */
	uint32_t psn;
	uint16_t lid;
	bool has_gid;
	uint8_t gid[16];
};

/*
 * Make one in RESET. A completion queue that is NULL is made with it, as deep
 * as its work queue; one that is given stays the caller's and outlives it. It
 * keeps domain and device. What is checked is checked before anything is made:
 *  -EINVAL: the configuration has what the device does not grant;
 *  -EOPNOTSUPP: no such kind on this device, or no library for it;
 *  -ENOENT: the port has no GID to connect with;
 *  else what the device said.
 */
int vb_qp_create(struct vb_domain *domain, enum vb_qp_kind kind,
		 struct ibv_cq *send_cq, struct ibv_cq *recv_cq,
		 struct vb_qp **qp);
/* Of this end, for the peer. */
int vb_qp_endpoint(const struct vb_qp *qp, struct vb_endpoint *endpoint);
/*
 * From RESET to RTS, towards `peer`. After a failure it is in RESET as before,
 * and may be connected again; but -ENOTRECOVERABLE: close it.
 *  -EISCONN: it is connected; -EINVAL: not the endpoint of such a queue pair.
 */
int vb_qp_connect(struct vb_qp *qp, const struct vb_endpoint *peer);
/* Lent, for the queue pair's life. vb_qp_ah: the peer's address, which each
 * request of SRD carries; NULL before it is connected, and of other kinds. */
struct ibv_qp *vb_qp_handle(const struct vb_qp *qp);
struct ibv_cq *vb_qp_send_cq(const struct vb_qp *qp);
struct ibv_cq *vb_qp_recv_cq(const struct vb_qp *qp);
struct ibv_ah *vb_qp_ah(const struct vb_qp *qp);
/* -EBUSY and the like of the queue pair itself: it is there as before, with all
 * it has. What else fails to close is told, and given up. */
int vb_qp_close(struct vb_qp *qp);

/* The common defaults. PSNs of one seed's sequence; NULL: of the host's. */
void vb_config_init(struct vb_config *config, uint64_t *seed);
/* The same with a backend's changes. -ENOENT: no such key. */
int vb_config_default(struct vb_registry *registry, const char *key,
		      uint64_t *seed, struct vb_config *config);

/* One thing that a device does not grant. */
struct vb_excess {
	const char *field; /* of struct vb_config */
	uint64_t value, limit;
};
/* What of a configuration a device cannot do, at most `max`; how many there
 * are, 0 when it fits. Nothing is made or asked. */
int vb_config_check(const struct vb_config *config,
		    const struct vb_device_info *info, struct vb_excess *excess,
		    int max);
/* path_mtu no longer than the port's, and depths and sges within limits. */
void vb_config_clamp(struct vb_config *config,
		     const struct vb_device_info *info);

/* One line on the last failure in this thread; "" when there was none. */
const char *vb_last_error(void);

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
