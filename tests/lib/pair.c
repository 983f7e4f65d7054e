/* SPDX-License-Identifier: MIT */
/* Two transports against each other; see pair.h. */
#include "tests/lib/pair.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/harness.h"

/* The end whose thread this is; the hooks have no other way to know. */
static __thread struct pair_end *me;

static void note(const char *call)
{
	size_t used = strlen(me->log);

	if (used + strlen(call) + 2 < PAIR_LOG_MAX)
		snprintf(me->log + used, PAIR_LOG_MAX - used, "%s ", call);
}

#define PASS(name, result, declare, pass)      \
	static result hook_##name declare      \
	{                                      \
		note(#name);                   \
		return rig_verbs()->name pass; \
	}
PASS(alloc_pd, struct ibv_pd *, (struct ibv_context * c), (c))
PASS(dealloc_pd, int, (struct ibv_pd * pd), (pd))
PASS(create_cq, struct ibv_cq *,
     (struct ibv_context * c, int n, void *x, struct ibv_comp_channel *ch,
      int v),
     (c, n, x, ch, v))
PASS(destroy_cq, int, (struct ibv_cq * cq), (cq))
PASS(create_qp, struct ibv_qp *,
     (struct ibv_pd * pd, struct ibv_qp_init_attr *attr), (pd, attr))
PASS(destroy_qp, int, (struct ibv_qp * qp), (qp))
PASS(close_device, int, (struct ibv_context * c), (c))

static struct ibv_mr *hook_reg_mr(struct ibv_pd *pd, void *addr, size_t len,
				  int access)
{
	struct ibv_mr *mr = rig_verbs()->reg_mr(pd, addr, len, access);
	char text[64];

	snprintf(text, sizeof(text), "reg_mr:%zu:%x%s", len, access,
		 (uintptr_t)addr % 16384 ? ":unaligned" : "");
	note(text);
	return mr;
}

static int hook_dereg_mr(struct ibv_mr *mr)
{
	note("dereg_mr");
	return me->bad.fail_dereg ? me->bad.fail_dereg
				  : rig_verbs()->dereg_mr(mr);
}

static int hook_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	char text[64];

	snprintf(text, sizeof(text), "modify:%d:%x", attr->qp_state, mask);
	note(text);
	if (attr->qp_state == IBV_QPS_RTR && me->bad.fail_rtr)
		return me->bad.fail_rtr;
	return rig_verbs()->modify_qp(qp, attr, mask);
}

static int (*real_post_send)(struct ibv_qp *, struct ibv_send_wr *,
			     struct ibv_send_wr **);
static int (*real_post_recv)(struct ibv_qp *, struct ibv_recv_wr *,
			     struct ibv_recv_wr **);
static int (*real_poll_cq)(struct ibv_cq *, int, struct ibv_wc *);

static int hook_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
			  struct ibv_send_wr **bad)
{
	char text[64];

	snprintf(text, sizeof(text), "send:%u:%x", wr->sg_list->length,
		 wr->send_flags);
	note(text);
	return real_post_send(qp, wr, bad);
}

static int hook_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
			  struct ibv_recv_wr **bad)
{
	char text[64];

	snprintf(text, sizeof(text), "recv:%u:%llx", wr->sg_list->length,
		 (unsigned long long)wr->wr_id);
	note(text);
	if ((wr->wr_id & 0xffff) == 1) {
		me->slot_1 = (uint8_t *)(uintptr_t)wr->sg_list->addr;
		me->slot_1_posts++;
		memcpy(me->posted_head, me->slot_1, sizeof(me->posted_head));
	}
	return real_post_recv(qp, wr, bad);
}

/* Has the peer ended its side, and long ago as grace periods go? */
static bool pair_has_ended(int fd)
{
	static __thread uint64_t since;
	uint8_t byte;

	if (!since && recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
		since = sim_now_ns();
	return since && sim_now_ns() - since > 5000000;
}

static int hook_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc)
{
	int got;

	if (me->bad.poll_result < 0)
		return me->bad.poll_result;
	/* Looked at only after the end: what was sent before it comes late. */
	if (me->bad.is_late && !pair_has_ended(me->fd))
		return 0;
	got = real_poll_cq(cq, count - 1, wc);
	if (me->bad.undo_slot_1_of_lap_2 && me->slot_1_posts == 2)
		for (int i = 0; i < got; i++)
			if ((wc[i].wr_id & 0xffff) == 1)
				memcpy(me->slot_1, me->posted_head, 8);
	for (int i = 0; i < got; i++) {
		if (wc[i].opcode != IBV_WC_RECV)
			continue;
		if (me->bad.wrong_wr_id)
			wc[i].wr_id = me->bad.wrong_wr_id;
		if (me->bad.wrong_byte_len)
			wc[i].byte_len = me->bad.wrong_byte_len;
		if (me->bad.duplicate_recv)
			wc[got++] = wc[i];
		me->bad.duplicate_recv = false;
		break;
	}
	return got;
}

static struct ibv_context *hook_open_device(struct ibv_device *device)
{
	struct ibv_context *context = rig_verbs()->open_device(device);

	if (!context)
		return NULL;
	note("open_device");
	context->ops.post_send = hook_post_send;
	context->ops.post_recv = hook_post_recv;
	context->ops.poll_cq = hook_poll_cq;
	return context;
}

static struct vb_verbs *hooked(void)
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

/* The functions behind the tables of a context, before they are hooked. */
static void find_real(struct pair *pair)
{
	struct ibv_device **list;
	struct ibv_context *context;

	sim_world_use(pair->world);
	list = rig_verbs()->get_device_list(NULL);
	context = rig_verbs()->open_device(list[0]);
	CHECK(context, "open_device: %s", strerror(errno));
	real_post_send = context->ops.post_send;
	real_post_recv = context->ops.post_recv;
	real_poll_cq = context->ops.poll_cq;
	rig_verbs()->close_device(context);
	rig_verbs()->free_device_list(list);
}

void pair_init(struct pair *pair, const char *model, const char *plan)
{
	struct sim_world_config config = {.model = {model, model}};
	char error[SIM_ERROR_MAX] = "";
	int fds[2], rc;

	setenv("VERBENA_QUIET", "1", 1);
	memset(pair, 0, sizeof(*pair));
	rc = sim_world_open(&config, &pair->world, error);
	CHECK(rc == 0, "%s", error);
	find_real(pair);
	if (plan)
		rig_arm(pair->world, plan);
	rig_sockets(fds);
	for (int side = 0; side < 2; side++) {
		struct pair_end *end = &pair->end[side];

		end->pair = pair;
		end->side = side;
		end->fd = fds[side];
		end->options.fd = fds[side];
		end->options.verbs = hooked();
		end->options.timeout_ns = 300000000;
		end->options.grace_ns = 20000000;
	}
}

static int move_caps(int fd, uint8_t *bytes, bool is_send)
{
	for (size_t done = 0; done < VB_CAPS_BYTES;) {
		ssize_t n = is_send ? send(fd, bytes + done,
					   VB_CAPS_BYTES - done, MSG_NOSIGNAL)
				    : recv(fd, bytes + done,
					   VB_CAPS_BYTES - done, 0);

		if (n <= 0)
			return -ECONNRESET;
		done += (size_t)n;
	}
	return 0;
}

void pair_hooks_as(struct pair_end *end)
{
	me = end;
}

static void *run(void *arg)
{
	struct pair_end *end = arg;
	uint8_t mine[VB_CAPS_BYTES];

	me = end;
	sim_host_set(end->side);
	end->probed =
		vb_probe(&end->options, mine, &end->transport, &end->cause);
	move_caps(end->fd, mine, true);
	if (move_caps(end->fd, end->peer_caps, false) || end->probed)
		return NULL;
	if (end->is_nonblocking)
		fcntl(end->fd, F_SETFL, O_NONBLOCK);
	if (!end->skips_activate)
		end->activated = vb_activate(end->transport, end->peer_caps);
	if (end->activated == 0 && end->script)
		end->rc = end->script(end);
	end->cause = *vb_cause(end->transport);
	end->closed = vb_close(end->transport, NULL);
	return NULL;
}

void pair_run(struct pair *pair)
{
	for (int side = 0; side < 2; side++)
		CHECK_EQ(pthread_create(&pair->end[side].thread, NULL, run,
					&pair->end[side]),
			 0);
	for (int side = 0; side < 2; side++)
		pthread_join(pair->end[side].thread, NULL);
}

void pair_fini(struct pair *pair)
{
	for (int side = 0; side < 2; side++)
		if (pair->end[side].fd >= 0)
			close(pair->end[side].fd);
	CHECK_EQ(sim_world_object_count(pair->world), 0);
	sim_world_use(NULL);
	sim_world_close(pair->world);
}

/* --- scripts ------------------------------------------------------------ */

/* Is the far end of this socket told that the connection is over? */
static bool is_shut(int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
	uint8_t byte;

	while (poll(&poll_fd, 1, 10000) == 1) {
		if (recv(fd, &byte, 1, MSG_DONTWAIT) <= 0)
			return true;
	}
	return false;
}

int pair_wait_for_end(struct pair_end *end)
{
	return is_shut(end->fd) ? 0 : -EBADMSG;
}

int pair_send_and_leave(struct pair_end *end)
{
	int rc = stage_send_pattern(end->transport, 0, 3 * PAIR_PAYLOAD + 5);

	if (!rc)
		rc = vb_flush(end->transport);
	shutdown(end->fd, SHUT_WR); /* its end overtakes its frames */
	return rc;
}

int pair_recv_after_end(struct pair_end *end)
{
	struct pollfd poll_fd = {.fd = end->fd, .events = POLLIN};

	/* Look only when the peer's end has already come. */
	poll(&poll_fd, 1, 10000);
	return stage_recv_pattern(end->transport, 0, 3 * PAIR_PAYLOAD + 5);
}
