/* SPDX-License-Identifier: MIT */
/*
 * Which queue pair transitions are legal, and which attributes each requires
 * and allows: the tables of spec/device-models.md, section 3.2.
 */
#include "sim/core.h"

#include <errno.h>

#define STATES (IBV_QPS_ERR + 1)

struct step {
	bool is_legal;
	int required;
	int optional;
};

/* Short names for the attribute bits, for the tables below only. */
enum {
	CUR = IBV_QP_CUR_STATE,
	NOTIFY = IBV_QP_EN_SQD_ASYNC_NOTIFY,
	ACCESS = IBV_QP_ACCESS_FLAGS,
	PKEY = IBV_QP_PKEY_INDEX,
	PORT = IBV_QP_PORT,
	AV = IBV_QP_AV,
	MTU = IBV_QP_PATH_MTU,
	TIMEOUT = IBV_QP_TIMEOUT,
	RETRY = IBV_QP_RETRY_CNT,
	RNR = IBV_QP_RNR_RETRY,
	RQPSN = IBV_QP_RQ_PSN,
	RD = IBV_QP_MAX_QP_RD_ATOMIC,
	ALT = IBV_QP_ALT_PATH,
	RNRT = IBV_QP_MIN_RNR_TIMER,
	SQPSN = IBV_QP_SQ_PSN,
	DRD = IBV_QP_MAX_DEST_RD_ATOMIC,
	MIG = IBV_QP_PATH_MIG_STATE,
	DEST = IBV_QP_DEST_QPN,
	QKEY = IBV_QP_QKEY,
};

#define RESET IBV_QPS_RESET
#define INIT  IBV_QPS_INIT
#define RTR   IBV_QPS_RTR
#define RTS   IBV_QPS_RTS
#define SQD   IBV_QPS_SQD
#define SQE   IBV_QPS_SQE

static const struct step rc_steps[STATES][STATES] = {
	[RESET][INIT] = {true, PKEY | PORT | ACCESS, 0},
	[INIT][INIT] = {true, 0, PKEY | PORT | ACCESS},
	[INIT][RTR] = {true, AV | MTU | DEST | RQPSN | DRD | RNRT,
		       ALT | ACCESS | PKEY},
	[RTR][RTS] = {true, TIMEOUT | RETRY | RNR | SQPSN | RD,
		      CUR | ALT | ACCESS | RNRT | MIG},
	[RTS][RTS] = {true, 0, CUR | ACCESS | ALT | MIG | RNRT},
	[RTS][SQD] = {true, 0, NOTIFY},
	[SQD][RTS] = {true, 0, CUR | ALT | ACCESS | RNRT | MIG},
	[SQD][SQD] = {true, 0,
		      PORT | AV | TIMEOUT | RETRY | RNR | RD | DRD | ALT |
			      ACCESS | PKEY | RNRT | MIG},
	[SQE][RTS] = {true, 0, 0},
};

static const struct step uc_steps[STATES][STATES] = {
	[RESET][INIT] = {true, PKEY | PORT | ACCESS, 0},
	[INIT][INIT] = {true, 0, PKEY | PORT | ACCESS},
	[INIT][RTR] = {true, AV | MTU | DEST | RQPSN, ALT | ACCESS | PKEY},
	[RTR][RTS] = {true, SQPSN, CUR | ALT | ACCESS | MIG},
	[RTS][RTS] = {true, 0, CUR | ACCESS | ALT | MIG},
	[RTS][SQD] = {true, 0, NOTIFY},
	[SQD][RTS] = {true, 0, CUR | ALT | ACCESS | MIG},
	[SQD][SQD] = {true, 0, AV | ALT | ACCESS | PKEY | MIG},
	[SQE][RTS] = {true, 0, CUR | ACCESS},
};

static const struct step ud_steps[STATES][STATES] = {
	[RESET][INIT] = {true, PKEY | PORT | QKEY, 0},
	[INIT][INIT] = {true, 0, PKEY | PORT | QKEY},
	[INIT][RTR] = {true, 0, PKEY | QKEY},
	[RTR][RTS] = {true, SQPSN, CUR | QKEY},
	[RTS][RTS] = {true, 0, CUR | QKEY},
	[RTS][SQD] = {true, 0, NOTIFY},
	[SQD][RTS] = {true, 0, CUR | QKEY},
	[SQD][SQD] = {true, 0, PKEY | QKEY},
	[SQE][RTS] = {true, 0, CUR | QKEY},
};

/* XRC follows RC, each end requiring only its own half. */
static const struct step xrc_ini_steps[STATES][STATES] = {
	[RESET][INIT] = {true, PKEY | PORT | ACCESS, 0},
	[INIT][INIT] = {true, 0, PKEY | PORT | ACCESS},
	[INIT][RTR] = {true, AV | MTU | DEST | RQPSN, ALT | ACCESS | PKEY},
	[RTR][RTS] = {true, TIMEOUT | RETRY | RNR | SQPSN | RD,
		      CUR | ALT | ACCESS | MIG},
	[RTS][RTS] = {true, 0, CUR | ACCESS | ALT | MIG},
	[RTS][SQD] = {true, 0, NOTIFY},
	[SQD][RTS] = {true, 0, CUR | ALT | ACCESS | MIG},
	[SQD][SQD] = {true, 0,
		      PORT | AV | TIMEOUT | RETRY | RNR | RD | ALT | ACCESS |
			      PKEY | MIG},
};

static const struct step xrc_tgt_steps[STATES][STATES] = {
	[RESET][INIT] = {true, PKEY | PORT | ACCESS, 0},
	[INIT][INIT] = {true, 0, PKEY | PORT | ACCESS},
	[INIT][RTR] = {true, AV | MTU | DEST | RQPSN | DRD | RNRT,
		       ALT | ACCESS | PKEY},
	[RTR][RTS] = {true, TIMEOUT | SQPSN, CUR | ALT | ACCESS | RNRT | MIG},
	[RTS][RTS] = {true, 0, CUR | ACCESS | ALT | MIG | RNRT},
	[RTS][SQD] = {true, 0, NOTIFY},
	[SQD][RTS] = {true, 0, CUR | ALT | ACCESS | RNRT | MIG},
	[SQD][SQD] = {true, 0,
		      PORT | AV | TIMEOUT | DRD | ALT | ACCESS | PKEY | RNRT |
			      MIG},
};

/* A raw packet queue pair has a port and nothing else. */
static const struct step raw_steps[STATES][STATES] = {
	[RESET][INIT] = {true, PORT, 0}, [INIT][INIT] = {true, 0, PORT},
	[INIT][RTR] = {true, 0, 0},	 [RTR][RTS] = {true, 0, 0},
	[RTS][RTS] = {true, 0, 0},	 [RTS][SQD] = {true, 0, 0},
	[SQD][RTS] = {true, 0, 0},	 [SQD][SQD] = {true, 0, 0},
	[SQE][RTS] = {true, 0, 0},
};

static const struct step *step_of(enum ibv_qp_type type, unsigned from,
				  unsigned to)
{
	switch ((unsigned)type) {
	case IBV_QPT_UC:
		return &uc_steps[from][to];
	case IBV_QPT_UD:
		return &ud_steps[from][to];
	case IBV_QPT_RAW_PACKET:
		return &raw_steps[from][to];
	case IBV_QPT_XRC_SEND:
		return &xrc_ini_steps[from][to];
	case IBV_QPT_XRC_RECV:
		return &xrc_tgt_steps[from][to];
	default:
		return &rc_steps[from][to];
	}
}

int sim_qp_check_transition(enum ibv_qp_type type, enum ibv_qp_state from,
			    enum ibv_qp_state to, int mask)
{
	const struct step *step;

	if ((unsigned)from >= STATES || (unsigned)to >= STATES)
		return -EINVAL;
	mask &= ~IBV_QP_STATE;
	/* Every type: any -> RESET; any but RESET -> ERR; no attributes. */
	if (to == RESET)
		return mask ? -EINVAL : 0;
	if (to == IBV_QPS_ERR)
		return mask || from == RESET ? -EINVAL : 0;
	step = step_of(type, from, to);
	if (!step->is_legal || (mask & step->required) != step->required ||
	    (mask & ~(step->required | step->optional)))
		return -EINVAL;
	return 0;
}
