/* SPDX-License-Identifier: MIT */
/*
 * A device model: attributes, limits and a few pure functions, as data.
 *
 * Adding a model is adding one file that ends with SIM_MODEL(...). Every
 * disputed behaviour is a named knob; a model text is "NAME,knob=value,...".
 */
#ifndef SIM_MODEL_H
#define SIM_MODEL_H

#include <string.h>

#include "sim/world.h"

/* What happens to a message that finds no receive request posted. */
enum sim_no_recv {
	SIM_NO_RECV_HOLD, /* Apple: held until credit exists (R19) */
	SIM_NO_RECV_DROP, /* UC, UD on InfiniBand: lost (5.4) */
	SIM_NO_RECV_RNR,  /* RC: receiver-not-ready, retried (5.3) */
};

/* What a message meets at the receive request it is matched with. */
struct sim_fit {
	uint64_t send_len;
	uint64_t recv_len;
	uint64_t recv_ordinal;
	uint32_t qp_num;
};

struct sim_qp_request {
	const struct ibv_qp_init_attr *attr;
	const struct sim_host *host;
};

struct sim_model {
	const char *name;
	const char *what;
	int rank; /* order of listing; the lowest is the default */
	const char *device_name;
	int node_type;	    /* enum ibv_node_type */
	int transport_type; /* enum ibv_transport_type, or 100: Thunderbolt */
	/* What a host starts with; init_host changes what its knobs say, and
	 * everybody else reads the host's. */
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	const struct sim_knob *knobs;
	int knob_count;

	uint32_t pd_limit, cq_limit, qp_limit, mr_limit,
		srq_limit; /* a device */
	uint32_t srq_max_wr, srq_max_sge;
	uint32_t dm_bytes;   /* device memory */
	uint32_t ece_vendor; /* 0: no enhanced connections */
	bool has_windows, has_multicast, has_xrc, has_rereg;
	uint32_t qp_types; /* bit n: enum ibv_qp_type n; the host's count */
	/* enum ibv_qp_create_flags. A group never gets its sender's own
	 * datagrams, so BLOCK_SELF_MCAST_LB has nothing to change. */
	uint32_t qp_create_flags;
	uint32_t max_send_sge, max_recv_sge;
	uint32_t max_inline, min_inline; /* granted even when none is asked */
	uint32_t frame_bytes; /* unit of the queue budget; 0 = requests */
	bool cq_depth_rounds; /* depth becomes 2^n - 1 (2.9) */
	/* Arming raises an event for completions that are already there. */
	bool (*arm_sees_unpolled)(const struct sim_host *host);
	/* errno of a post in a state that forbids it, or over the budget;
	 * negative where the device returns it negative (R13). */
	int errno_send_state, errno_recv_state;
	int errno_send_full, errno_recv_full;
	int errno_send_sge, errno_recv_sge, errno_inline;
	int errno_qp_limit;

	/* 0 or a negative errno; each explains itself through sim_diag. */
	int (*check_qp)(const struct sim_qp_request *request);
	int (*check_mr)(const struct sim_host *host, uint64_t addr,
			uint64_t length, uint32_t access);
	int (*check_pd)(const struct sim_host *host);
	/* Is there memory for a queue of this kind ("QP", "CQ", "SRQ")? */
	int (*check_queue)(const char *kind);
	int (*check_modify)(const struct sim_host *host,
			    const struct sim_qp *qp,
			    const struct ibv_qp_attr *attr, int mask);
	int (*check_send)(const struct sim_host *host, const struct sim_qp *qp,
			  const struct ibv_send_wr *wr, uint64_t len);
	/* Frames granted for the frames asked for. */
	uint32_t (*grant)(const struct sim_host *host, uint32_t asked);
	/* First state in which post_recv is taken. */
	enum ibv_qp_state (*recv_from)(const struct sim_host *host);
	enum sim_no_recv (*no_recv)(const struct sim_qp *qp);
	/* Status of the receive: SUCCESS, or why it fails. NULL: a message
	 * fits that is no longer, and else has the misfit's status. */
	enum ibv_wc_status (*fit)(const struct sim_host *host,
				  const struct sim_fit *fit);
	uint8_t misfit_status;
	/* A cable has two ends: no path from a host to itself (R42). */
	bool is_point_to_point;
	const uint8_t *vendor_err; /* by wc status; NULL: always 0 */
	/* On Ethernet a datagram's `sl` tells what packet it was (UCX). */
	bool sl_is_packet_type;
	bool fails_qp_on_misfit; /* else only that receive fails (R17) */
	/* UC: a misfit is lost without a completion. NULL: it completes. */
	bool (*drops_misfit)(const struct sim_host *host);
	/* May a datagram of this PSN setting pass (R32)? NULL: yes. */
	bool (*psn_ok)(const struct sim_host *host, const struct sim_qp *from,
		       const struct sim_qp *to);
	/* Called last while a host is set up: GIDs, ports. */
	void (*init_host)(struct sim_host *host, uint32_t index);
	/* R24, knob: this opcode completes and does nothing. */
	bool (*ignores_opcode)(const struct sim_host *host, unsigned opcode);
	uint32_t events; /* bit n: raises enum ibv_event_type n (5.8) */
	bool has_moderation;
	int errno_mr_bound;	  /* of dereg_mr under a window */
	bool pins_memory;	  /* regions are real pages, and locked (3.1) */
	uint32_t local_inv_types; /* bit n: LOCAL_INV on enum ibv_qp_type n */
	/* 3.6, where Soft-RoCE differs from cards. */
	bool keeps_early_sends;	 /* refused before RTS, and go out after it */
	bool reclaims_when_done; /* sends; else when a later one is polled */
	bool no_recv_beside_srq;
	bool srq_tells_uc_misfit; /* though drops_misfit */
	bool overrun_fails_responder;
	bool keeps_dead_completions; /* of a queue pair that is destroyed */
	bool rounds_rd_atomic;
	uint8_t recv_prot_status; /* of a receive with a bad sge; 0: LOC_PROT */
	bool recv_says_grh;	  /* in every completion of a receive */
	bool retry_7_is_forever;
	bool takes_any_length;	   /* over max_msg_sz */
	bool loses_long_datagrams; /* sender SUCCESS; else LOC_LEN_ERR */
	bool rereg_keeps_range;
	bool errors_say_send;	 /* opcode of a failed completion */
	uint32_t inline_per_sge; /* granted for each send sge */
	/* R21, knob: a send completes when posted, not when it leaves. */
	bool (*completes_at_post)(const struct sim_host *host);
	/* R13, knob: over the budget is taken, and its data never lands. */
	bool (*takes_over_budget)(const struct sim_host *host);
	/* R14, knob: the budget is one for all queues of the port. */
	bool (*budget_is_ports)(const struct sim_host *host);
	/* R5, knob: the region limit is a protection domain's. */
	bool (*mr_limit_is_pds)(const struct sim_host *host);
	/* R6, knob: DMA uses only the low 32 address bits. */
	bool (*aliases_mr)(const struct sim_host *host, uint64_t addr,
			   uint64_t length);
};

/*
 * What the kernel's core and every InfiniBand-like card share, for the slots
 * above: memory registration (3.1), the model's own queue pair types and limits
 * (2.2, 2.7, 2.9), attributes of modify_qp (3.1), opcodes at post (3.5),
 * receives from INIT on, RNR for RC (5.3).
 */
int sim_model_check_mr(const struct sim_host *host, uint64_t addr,
		       uint64_t length, uint32_t access);
int sim_model_check_qp(const struct sim_qp_request *request);
int sim_model_check_modify(const struct sim_host *host, const struct sim_qp *qp,
			   const struct ibv_qp_attr *attr, int mask);
int sim_model_check_send(const struct sim_host *host, const struct sim_qp *qp,
			 const struct ibv_send_wr *wr, uint64_t len);
/* Has this process the capability, as in capabilities(7)? */
bool sim_has_capability(int capability);
enum ibv_qp_state sim_model_recv_from(const struct sim_host *host);
enum sim_no_recv sim_model_no_recv(const struct sim_qp *qp);
bool sim_model_psn_ok(const struct sim_host *host, const struct sim_qp *from,
		      const struct sim_qp *to);

/* One port, down until cabled, and the GIDs of its addresses: fe80:: and the
 * GUID, then 127.0.0.1 … `loopbacks`; each once for every type of the mask
 * (bit n: enum ibv_gid_type n), in that order (2.5). */
void sim_model_init_host(struct sim_host *host, uint64_t guid, uint32_t types,
			 int loopbacks);

/* Append to the host's GID table: the IPv4-mapped form of 127.0.0.n, or, for
 * 0, fe80:: with an interface identifier. */
void sim_model_add_gid(struct sim_host *host, int n, uint64_t identifier,
		       enum ibv_gid_type type);

/* What the table says at an index; zeros in an empty slot. */
static inline const uint8_t *sim_gid_at(const struct sim_host *host,
					uint32_t index)
{
	static const uint8_t empty[16];

	return index < (uint32_t)host->gid_count ? host->gid[index] : empty;
}

static inline bool sim_is_v2(const struct sim_host *host, uint32_t index)
{
	return index < (uint32_t)host->gid_count &&
	       host->gid_type[index] == IBV_GID_TYPE_ROCE_V2;
}

/* Is it the mapped form of an IPv4 address? */
static inline bool sim_is_ipv4(const uint8_t gid[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	return memcmp(gid, mapped, sizeof(mapped)) == 0;
}

static inline bool sim_raises(const struct sim_host *host, int event)
{
	return host->events >> event & 1;
}

static inline uint8_t sim_vendor_err(const struct sim_model *model,
				     uint8_t status)
{
	return model->vendor_err ? model->vendor_err[status] : 0;
}

/* Knobs that more than one model has; their files name them. */
#define SIM_KNOB_MEMLOCK                                                   \
	{                                                                  \
		"memlock", "ignore|enforce", "3.1",                        \
			"whether regions count against RLIMIT_MEMLOCK, a " \
			"process each"                                     \
	}
#define SIM_KNOB_TIMERS                                                        \
	{                                                                      \
		"timers", "#1 of 1..1000", "5.9",                              \
			"how many times faster acknowledge and RNR timers run" \
	}

/* Registers a model; ends its file. */
#define SIM_MODEL(model)                                   \
	static const struct sim_model *const model##_entry \
		__attribute__((used, section("sim_models"))) = &(model)

/* Is this a work request opcode at all? (deliver.c has the table.) */
bool sim_is_opcode(unsigned opcode);

const struct sim_model *sim_model_of(const struct sim_host *host);
const char *sim_model_default(void);

/* Parse a model text into `host`; on failure `error` names the word. */
int sim_model_apply(struct sim_host *host, uint32_t index, const char *text,
		    char error[SIM_ERROR_MAX]);

/* Join both ends of the cable: a port is ACTIVE when both ends can be. */
void sim_model_cable(struct sim_host host[SIM_HOST_COUNT]);

/* Frames that a message takes, 0 where the device counts requests. An empty
 * message still needs one to carry its end mark. */
static inline uint32_t sim_frames(uint32_t frame_bytes, uint64_t len)
{
	if (!frame_bytes)
		return 0;
	return len ? (uint32_t)((len + frame_bytes - 1) / frame_bytes) : 1;
}

/* Value of knob number i: an index into its words, or the number itself. */
static inline int32_t sim_knob(const struct sim_host *host, int i)
{
	return host->knob[i];
}

#endif
