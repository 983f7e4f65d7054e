/* SPDX-License-Identifier: MIT */
/*
 * The one table of fault sites and effects: what can be struck, and how.
 *
 * The enums here, the plan parser, `verbena sites` and the coverage report are
 * all generated from these lists, so a site added here is a site everywhere.
 * The identities are those of spec/fault-and-simulation.md, section 7a.
 */
#ifndef SIM_SITES_H
#define SIM_SITES_H

/* X(NAME, "word", KIND, "what one event is") */
#define SIM_SITES(X)                                                        \
	X(QP_TX, "tx", MESSAGE, "a message leaving queue pair N")           \
	X(QP_RX, "rx", MESSAGE, "a message arriving at queue pair N")       \
	X(CALL, "verbs", CALL, "one call of the named verb")                \
	X(BOOT_OUT, "boot.out", STREAM, "a byte written to the TCP stream") \
	X(BOOT_IN, "boot.in", STREAM, "a byte read from the TCP stream")

/* X(NAME, "word", KIND it strikes, "arguments", "what it does") */
#define SIM_EFFECTS(X)                                                     \
	X(DROP, "drop", MESSAGE, "", "lost on the wire")                   \
	X(CORRUPT, "corrupt", MESSAGE,                                     \
	  "at= xor=", "one byte xored on arrival")                         \
	X(SET, "set", MESSAGE,                                             \
	  "at= value=", "one byte overwritten on arrival")                 \
	X(TRUNC, "trunc", MESSAGE, "len=", "cut to len bytes")             \
	X(DUP, "dup", MESSAGE, "", "delivered twice; RC knows it again")   \
	X(FAIL, "fail=ERRNO", CALL, "", "the call fails and does nothing") \
	X(FLIP, "flip", STREAM, "xor=", "bytes xored in the stream")       \
	X(EOF, "eof", STREAM, "", "the stream ends here")                  \
	X(STALL, "stall", STREAM, "", "nothing passes from here on")

/* X(NAME, "word"): the verbs a plan can make fail. */
#define SIM_CALLS(X)                                  \
	X(GET_DEVICE_LIST, "get_device_list")         \
	X(OPEN_DEVICE, "open_device")                 \
	X(QUERY_DEVICE, "query_device")               \
	X(QUERY_PORT, "query_port")                   \
	X(QUERY_GID, "query_gid")                     \
	X(ALLOC_PD, "alloc_pd")                       \
	X(DEALLOC_PD, "dealloc_pd")                   \
	X(REG_MR, "reg_mr")                           \
	X(DEREG_MR, "dereg_mr")                       \
	X(CREATE_COMP_CHANNEL, "create_comp_channel") \
	X(CREATE_CQ, "create_cq")                     \
	X(DESTROY_CQ, "destroy_cq")                   \
	X(CREATE_QP, "create_qp")                     \
	X(MODIFY_QP, "modify_qp")                     \
	X(QUERY_QP, "query_qp")                       \
	X(DESTROY_QP, "destroy_qp")                   \
	X(POST_SEND, "post_send")                     \
	X(POST_RECV, "post_recv")                     \
	X(POLL_CQ, "poll_cq")                         \
	X(REQ_NOTIFY_CQ, "req_notify_cq")

enum sim_kind { SIM_KIND_MESSAGE, SIM_KIND_CALL, SIM_KIND_STREAM };

#define X(name, ...) SIM_SITE_##name,
enum sim_site { SIM_SITES(X) SIM_SITE_COUNT };
#undef X

#define X(name, ...) SIM_EFFECT_##name,
enum sim_effect { SIM_EFFECTS(X) SIM_EFFECT_COUNT };
#undef X

#define X(name, ...) SIM_CALL_##name,
enum sim_call { SIM_CALLS(X) SIM_CALL_COUNT };
#undef X

#endif
