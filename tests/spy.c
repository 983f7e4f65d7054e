/* SPDX-License-Identifier: MIT */
/* A verbs table that logs, watches and misbehaves; see spy.h. */
#include "tests/spy.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "lib/wire.h"
#include "tests/harness.h"
#include "tests/rig.h"

static __thread struct spy *me;

void spy_as(struct spy *spy)
{
	me = spy;
}

int spy_count(const struct spy *spy, const char *word)
{
	int n = 0;

	for (const char *at = spy->log; (at = strstr(at, word)); at++)
		n++;
	return n;
}

__attribute__((format(printf, 1, 2))) static void note(const char *format, ...)
{
	size_t used;
	va_list args;

	if (!me)
		return;
	used = strlen(me->log);
	va_start(args, format);
	vsnprintf(me->log + used, SPY_LOG_MAX - used, format, args);
	va_end(args);
}

#define PASS(name, result, declare, pass)      \
	static result hook_##name declare      \
	{                                      \
		note(#name " ");               \
		return rig_verbs()->name pass; \
	}
PASS(alloc_pd, struct ibv_pd *, (struct ibv_context * c), (c))
PASS(dealloc_pd, int, (struct ibv_pd * pd), (pd))
PASS(create_cq, struct ibv_cq *,
     (struct ibv_context * c, int n, void *x, struct ibv_comp_channel *ch,
      int v),
     (c, n, x, ch, v))
PASS(destroy_cq, int, (struct ibv_cq * cq), (cq))
PASS(destroy_qp, int, (struct ibv_qp * qp), (qp))
PASS(close_device, int, (struct ibv_context * c), (c))

static struct ibv_qp *hook_create_qp(struct ibv_pd *pd,
				     struct ibv_qp_init_attr *attr)
{
	note("create_qp ");
	if (me)
		me->asked = *attr;
	if (me && me->bad.no_inline && attr->cap.max_inline_data) {
		errno = EINVAL;
		return NULL;
	}
	return rig_verbs()->create_qp(pd, attr);
}

static struct ibv_mr *hook_reg_mr(struct ibv_pd *pd, void *addr, size_t len,
				  int access)
{
	note("reg_mr:%zu:%x%s ", len, access,
	     (uintptr_t)addr % 16384 ? ":unaligned" : "");
	return rig_verbs()->reg_mr(pd, addr, len, access);
}

static int hook_dereg_mr(struct ibv_mr *mr)
{
	note("dereg_mr ");
	return me && me->bad.fail_dereg ? me->bad.fail_dereg
					: rig_verbs()->dereg_mr(mr);
}

static int hook_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	note("modify:%d:%x ", attr->qp_state, mask);
	if (!me)
		return rig_verbs()->modify_qp(qp, attr, mask);
	me->state = (int)attr->qp_state;
	if (attr->qp_state == IBV_QPS_RTR) {
		me->rtr = *attr;
		if (me->bad.fail_rtr)
			return me->bad.fail_rtr;
	}
	if (attr->qp_state == IBV_QPS_RTS)
		me->rts = *attr;
	return rig_verbs()->modify_qp(qp, attr, mask);
}

static __thread int (*real_post_send)(struct ibv_qp *, struct ibv_send_wr *,
				      struct ibv_send_wr **);
static __thread int (*real_post_recv)(struct ibv_qp *, struct ibv_recv_wr *,
				      struct ibv_recv_wr **);
static __thread int (*real_poll_cq)(struct ibv_cq *, int, struct ibv_wc *);

static uint64_t sum_of(const struct ibv_sge *sge)
{
	return vb_crc32c(0, (void *)(uintptr_t)sge->addr, sge->length);
}

static void look_at_sequence(const struct ibv_sge *sge)
{
	uint32_t words[3];

	if (sge->length < sizeof(words))
		return;
	memcpy(words, (void *)(uintptr_t)sge->addr, sizeof(words));
	if (words[0] == VB_FRAME_HARDENED && words[2] != me->sequence++)
		me->misordered++;
}

/* Of a SEND that is a whole stride: "RSEG" or hardened, and padding of 0. */
static void look_at_stride(const struct ibv_sge *sge)
{
	const uint8_t *stride = (void *)(uintptr_t)sge->addr;
	uint32_t magic, len, header;

	memcpy(&magic, stride, 4);
	memcpy(&len, stride + 4, 4);
	header = magic == VB_FRAME_MAGIC ? 8 : 16;
	if (magic != VB_FRAME_MAGIC && magic != VB_FRAME_HARDENED) {
		me->unmarked++;
		return;
	}
	for (uint32_t i = header + len; i < sge->length; i++)
		if (stride[i]) {
			me->dirty++;
			return;
		}
}

static int hook_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
			  struct ibv_send_wr **bad)
{
	uint64_t slot = wr->wr_id;
	int rc;

	note("send:%u:%x ", wr->sg_list->length, wr->send_flags);
	if (!me)
		return real_post_send(qp, wr, bad);
	if (qp->qp_type == IBV_QPT_UC)
		look_at_stride(wr->sg_list);
	look_at_sequence(wr->sg_list);
	if (slot < SPY_SLOT_MAX) {
		me->send_at[slot] = *wr->sg_list;
		me->send_sum[slot] = sum_of(wr->sg_list);
	}
	rc = real_post_send(qp, wr, bad);
	if (rc == 0 && ++me->sends_out > me->sends_most)
		me->sends_most = me->sends_out;
	return rc;
}

static int hook_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
			  struct ibv_recv_wr **bad)
{
	uint64_t slot = wr->wr_id & 0xffff;
	int rc;

	note("recv:%u:%llx ", wr->sg_list->length,
	     (unsigned long long)wr->wr_id);
	if (!me)
		return real_post_recv(qp, wr, bad);
	if (slot == 1) {
		me->slot_1 = (uint8_t *)(uintptr_t)wr->sg_list->addr;
		me->slot_1_posts++;
		memcpy(me->slot_1_head, me->slot_1, sizeof(me->slot_1_head));
	}
	me->early_posts += me->state == IBV_QPS_INIT;
	rc = real_post_recv(qp, wr, bad);
	if (rc || slot >= SPY_SLOT_MAX)
		return rc;
	me->reposted += me->recv_is_posted[slot];
	me->recv_is_posted[slot] = true;
	me->recvs_out++;
	return rc;
}

/* What is known of the end's slots, from what the device really said. */
static void watch(const struct ibv_wc *wc)
{
	uint64_t slot = wc->wr_id & 0xffff;
	bool is_recv = wc->wr_id >> 20;

	if (slot >= SPY_SLOT_MAX)
		return;
	if (is_recv) {
		me->recvs_out--;
		me->recv_is_posted[slot] = false;
		return;
	}
	me->sends_out--;
	me->touched += sum_of(&me->send_at[slot]) != me->send_sum[slot];
}

static bool is_a_recv(const struct ibv_wc *wc)
{
	return wc->status == IBV_WC_SUCCESS && wc->opcode == IBV_WC_RECV;
}

/* The first receive of a batch, bent. How many completions there are then. */
static int bend(struct ibv_wc *wc, int got)
{
	int at = 0;

	while (at < got && !is_a_recv(&wc[at]))
		at++;
	if (at == got)
		return got;
	if (me->bad.swap_recvs && at + 1 < got && is_a_recv(&wc[at + 1])) {
		struct ibv_wc first = wc[at];

		wc[at] = wc[at + 1];
		wc[at + 1] = first;
		me->bad.swap_recvs = false;
	}
	if (me->bad.wrong_wr_id)
		wc[at].wr_id = me->bad.wrong_wr_id;
	if (me->bad.wrong_byte_len || me->bad.zero_byte_len)
		wc[at].byte_len = me->bad.wrong_byte_len;
	if (me->bad.wrong_opcode)
		wc[at].opcode = (enum ibv_wc_opcode)me->bad.wrong_opcode;
	if (me->bad.duplicate_recv)
		wc[got++] = wc[at];
	me->bad.duplicate_recv = false;
	return got;
}

static int hook_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc)
{
	int got;

	if (!me)
		return real_poll_cq(cq, count, wc);
	if (me->bad.poll_result < 0)
		return me->bad.poll_result;
	if (me->bad.holds && me->bad.holds(me->bad.arg))
		return 0;
	if (me->bad.sends_come_last && cq == me->asked.send_cq)
		return 0;
	got = real_poll_cq(cq, count - 1, wc);
	for (int i = 0; i < got; i++) {
		watch(&wc[i]);
		if (wc[i].status != IBV_WC_SUCCESS)
			me->bad.sends_come_last = false;
		if (me->bad.undo_slot_1_of_lap_2 && me->slot_1_posts == 2 &&
		    (wc[i].wr_id & 0xffff) == 1)
			memcpy(me->slot_1, me->slot_1_head, 8);
	}
	return bend(wc, got);
}

static struct ibv_context *hook_open_device(struct ibv_device *device)
{
	struct ibv_context *context = rig_verbs()->open_device(device);

	if (!context)
		return NULL;
	note("open_device ");
	/* Of every context the same; who opened it uses it. */
	real_post_send = context->ops.post_send;
	real_post_recv = context->ops.post_recv;
	real_poll_cq = context->ops.poll_cq;
	context->ops.post_send = hook_post_send;
	context->ops.post_recv = hook_post_recv;
	context->ops.poll_cq = hook_poll_cq;
	return context;
}

struct vb_verbs *spy_verbs(void)
{
	static struct vb_verbs verbs;

	verbs = *rig_verbs();
#define HOOK(name) verbs.name = hook_##name
	HOOK(open_device);
	HOOK(close_device);
	HOOK(alloc_pd);
	HOOK(dealloc_pd);
	HOOK(reg_mr);
	HOOK(dereg_mr);
	HOOK(create_cq);
	HOOK(destroy_cq);
	HOOK(create_qp);
	HOOK(destroy_qp);
	HOOK(modify_qp);
#undef HOOK
	return &verbs;
}
