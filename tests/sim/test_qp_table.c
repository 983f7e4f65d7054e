/* SPDX-License-Identifier: MIT */
/*
 * Goal: transitions and masks are those of section 3.2. Method: every pair of
 * states for both types against the list of legal ones; every single missing
 * required bit and every bit outside the table is refused.
 */
#include "sim/core.h"

#include <errno.h>

#include "tests/harness.h"

#define ALL_BITS ((IBV_QP_RATE_LIMIT << 1) - 1)

struct row {
	enum ibv_qp_type type;
	enum ibv_qp_state from, to;
	int required;
	int optional;
};

static const struct row rows[] = {
	{IBV_QPT_RC, IBV_QPS_RESET, IBV_QPS_INIT,
	 IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
	{IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_INIT, 0,
	 IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
	{IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR,
	 IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
	 IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
	{IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS,
	 IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		 IBV_QP_MAX_QP_RD_ATOMIC,
	 IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS |
		 IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE},
	{IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_RTS, 0,
	 IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH |
		 IBV_QP_PATH_MIG_STATE | IBV_QP_MIN_RNR_TIMER},
	{IBV_QPT_RC, IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
	{IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_RTS, 0,
	 IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS |
		 IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE},
	{IBV_QPT_RC, IBV_QPS_SQD, IBV_QPS_SQD, 0,
	 IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		 IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
		 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_ALT_PATH |
		 IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX |
		 IBV_QP_MIN_RNR_TIMER | IBV_QP_PATH_MIG_STATE},
	{IBV_QPT_RC, IBV_QPS_SQE, IBV_QPS_RTS, 0, 0},
	{IBV_QPT_UC, IBV_QPS_RESET, IBV_QPS_INIT,
	 IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, 0},
	{IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_INIT, 0,
	 IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
	{IBV_QPT_UC, IBV_QPS_INIT, IBV_QPS_RTR,
	 IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN,
	 IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
	{IBV_QPT_UC, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN,
	 IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS |
		 IBV_QP_PATH_MIG_STATE},
	{IBV_QPT_UC, IBV_QPS_RTS, IBV_QPS_RTS, 0,
	 IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH |
		 IBV_QP_PATH_MIG_STATE},
	{IBV_QPT_UC, IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
	{IBV_QPT_UC, IBV_QPS_SQD, IBV_QPS_RTS, 0,
	 IBV_QP_CUR_STATE | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS |
		 IBV_QP_PATH_MIG_STATE},
	{IBV_QPT_UC, IBV_QPS_SQD, IBV_QPS_SQD, 0,
	 IBV_QP_AV | IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX |
		 IBV_QP_PATH_MIG_STATE},
	{IBV_QPT_UC, IBV_QPS_SQE, IBV_QPS_RTS, 0,
	 IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS},
	{IBV_QPT_UD, IBV_QPS_RESET, IBV_QPS_INIT,
	 IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, 0},
	{IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_INIT, 0,
	 IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY},
	{IBV_QPT_UD, IBV_QPS_INIT, IBV_QPS_RTR, 0,
	 IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
	{IBV_QPT_UD, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN,
	 IBV_QP_CUR_STATE | IBV_QP_QKEY},
	{IBV_QPT_UD, IBV_QPS_RTS, IBV_QPS_RTS, 0,
	 IBV_QP_CUR_STATE | IBV_QP_QKEY},
	{IBV_QPT_UD, IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
	{IBV_QPT_UD, IBV_QPS_SQD, IBV_QPS_RTS, 0,
	 IBV_QP_CUR_STATE | IBV_QP_QKEY},
	{IBV_QPT_UD, IBV_QPS_SQD, IBV_QPS_SQD, 0,
	 IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
	{IBV_QPT_UD, IBV_QPS_SQE, IBV_QPS_RTS, 0,
	 IBV_QP_CUR_STATE | IBV_QP_QKEY},
};
#define ROW_COUNT (sizeof(rows) / sizeof(*rows))

static const struct row *find(enum ibv_qp_type type, int from, int to)
{
	for (size_t i = 0; i < ROW_COUNT; i++)
		if (rows[i].type == type && (int)rows[i].from == from &&
		    (int)rows[i].to == to)
			return &rows[i];
	return NULL;
}

static void check_row(const struct row *row)
{
	int allowed = row->required | row->optional | IBV_QP_STATE;

	CHECK_EQ(sim_qp_check_transition(row->type, row->from, row->to,
					 allowed),
		 0);
	for (int bit = 1; bit <= ALL_BITS; bit <<= 1) {
		int with = row->required | IBV_QP_STATE | bit;
		int without = allowed & ~bit;
		int rc = sim_qp_check_transition(row->type, row->from, row->to,
						 with);

		CHECK((rc == 0) == ((bit & allowed) != 0),
		      "type %d, %d to %d, bit 0x%x: %d", row->type, row->from,
		      row->to, bit, rc);
		if (!(bit & row->required))
			continue;
		CHECK_EQ(sim_qp_check_transition(row->type, row->from, row->to,
						 without),
			 -EINVAL);
	}
}

Test(qp_table, legal_transitions_need_and_allow_the_listed_attributes)
{
	for (size_t i = 0; i < ROW_COUNT; i++)
		check_row(&rows[i]);
}

Test(qp_table, every_other_transition_is_refused)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC,
						 IBV_QPT_UD};

	for (int t = 0; t < 3; t++)
		for (int from = IBV_QPS_RESET; from <= IBV_QPS_ERR; from++)
			for (int to = IBV_QPS_INIT; to < IBV_QPS_ERR; to++) {
				if (find(types[t], from, to))
					continue;
				CHECK(sim_qp_check_transition(types[t], from,
							      to, ALL_BITS) ==
					      -EINVAL,
				      "type %d, %d to %d", types[t], from, to);
			}
}

Test(qp_table, any_state_resets_and_all_but_reset_err)
{
	for (int from = IBV_QPS_RESET; from <= IBV_QPS_ERR; from++) {
		CHECK_EQ(sim_qp_check_transition(IBV_QPT_UC, from,
						 IBV_QPS_RESET, IBV_QP_STATE),
			 0);
		CHECK_EQ(sim_qp_check_transition(IBV_QPT_UC, from, IBV_QPS_ERR,
						 IBV_QP_STATE),
			 from == IBV_QPS_RESET ? -EINVAL : 0);
	}
	CHECK_EQ(sim_qp_check_transition(IBV_QPT_RC, 99, IBV_QPS_INIT, 0),
		 -EINVAL);
}
