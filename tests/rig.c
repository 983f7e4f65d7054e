/* SPDX-License-Identifier: MIT */
/* What tests stand on; see rig.h. */
#define _GNU_SOURCE
#include "tests/rig.h"

#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fault/fault.h"
#include "lib/verbs.h"
#include "tests/harness.h"

void rig_arm(struct sim_world *world, const char *text)
{
	struct sim_fault faults[SIM_FAULT_MAX];
	struct fault_plan plan;
	char error[FAULT_ERROR_MAX] = "";
	int rc = fault_plan_parse("test", text, &plan, error);

	CHECK(rc == 0, "%s", error);
	CHECK_EQ(sim_world_arm(world, faults, fault_plan_faults(&plan, faults),
			       "test"),
		 0);
}

static void open_world(struct rig *rig, const char *model, uint64_t late_ns)
{
	struct sim_world_config config = {.model = {model, model},
					  .late_ns = late_ns};
	char error[SIM_ERROR_MAX] = "";
	int rc;

	memset(rig, 0, sizeof(*rig));
	rc = sim_world_open(&config, &rig->world, error);
	CHECK(rc == 0, "%s", error);
	sim_world_use(rig->world);
}

static void open_devices(struct rig *rig)
{
	for (int host = 0; host < 2; host++) {
		struct ibv_device **list;
		int count;

		sim_host_set(host);
		list = ibv_get_device_list(&count);
		CHECK_EQ(count, 1);
		rig->end[host].context = ibv_open_device(list[0]);
		ibv_free_device_list(list);
		CHECK(rig->end[host].context, "open_device");
	}
	sim_host_set(-1);
}

void rig_open(struct rig *rig, const char *model, const char *plan)
{
	open_world(rig, model, 0);
	if (plan)
		rig_arm(rig->world, plan);
	open_devices(rig);
}

void rig_open_late(struct rig *rig, const char *model, uint64_t late_ns)
{
	open_world(rig, model, late_ns);
	open_devices(rig);
}

void rig_make(struct rig_end *end, enum ibv_qp_type type, uint32_t depth)
{
	struct ibv_qp_init_attr init = {
		.qp_type = type,
		.cap = {.max_send_wr = depth,
			.max_recv_wr = depth,
			.max_send_sge = 1,
			.max_recv_sge = 1},
	};

	end->pd = ibv_alloc_pd(end->context);
	CHECK(end->pd, "alloc_pd: %s", strerror(errno));
	end->cq = ibv_create_cq(end->context, 8191, NULL, NULL, 0);
	CHECK(end->cq, "create_cq: %s", strerror(errno));
	end->memory = aligned_alloc(RIG_BYTES, RIG_BYTES);
	memset(end->memory, 0, RIG_BYTES);
	end->mr = ibv_reg_mr(end->pd, end->memory, RIG_BYTES,
			     IBV_ACCESS_LOCAL_WRITE);
	CHECK(end->mr, "reg_mr: %s", strerror(errno));
	init.send_cq = init.recv_cq = end->cq;
	end->qp = ibv_create_qp(end->pd, &init);
	CHECK(end->qp, "create_qp: %s", strerror(errno));
}

/* Attributes of every step at once; the mask says which are meant. */
static void fill_attr(struct rig_end *end, const struct rig_end *peer,
		      struct ibv_qp_attr *attr)
{
	struct ibv_port_attr port = {0};
	union ibv_gid gid = {0};

	memset(attr, 0, sizeof(*attr));
	attr->port_num = 1;
	attr->dest_qp_num = peer ? peer->qp->qp_num : 0;
	attr->ah_attr.port_num = 1;
	attr->ah_attr.is_global = 1;
	attr->ah_attr.grh.hop_limit = 1;
	attr->ah_attr.grh.sgid_index = 1;
	attr->max_dest_rd_atomic = attr->max_rd_atomic = 1;
	attr->min_rnr_timer = 1;
	attr->timeout = 8; /* 1 ms */
	attr->retry_cnt = 3;
	attr->rnr_retry = 3;
	CHECK_EQ(ibv_query_port(end->context, 1, &port), 0);
	attr->path_mtu = port.active_mtu;
	if (!peer)
		return;
	CHECK_EQ(ibv_query_gid(peer->context, 1, 1, &gid), 0);
	attr->ah_attr.grh.dgid = gid;
}

static int mask_of(enum ibv_qp_type type, enum ibv_qp_state state)
{
	bool is_rc = type == IBV_QPT_RC;

	switch (state) {
	case IBV_QPS_INIT:
		return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		       IBV_QP_ACCESS_FLAGS;
	case IBV_QPS_RTR:
		return IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
		       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		       (is_rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER
			      : 0);
	case IBV_QPS_RTS:
		return IBV_QP_STATE | IBV_QP_SQ_PSN |
		       (is_rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					IBV_QP_RNR_RETRY |
					IBV_QP_MAX_QP_RD_ATOMIC
			      : 0);
	default:
		return IBV_QP_STATE;
	}
}

int rig_modify(struct rig_end *end, const struct rig_end *peer,
	       enum ibv_qp_state state)
{
	struct ibv_qp_attr attr;

	fill_attr(end, peer, &attr);
	attr.qp_state = state;
	return ibv_modify_qp(end->qp, &attr, mask_of(end->qp->qp_type, state));
}

void rig_connect(struct rig *rig, enum ibv_qp_state state)
{
	for (int step = IBV_QPS_INIT; step <= (int)state; step++)
		for (int i = 0; i < 2; i++)
			CHECK_EQ(rig_modify(&rig->end[i], &rig->end[1 - i],
					    step),
				 0);
}

void rig_pair(struct rig *rig, const char *model, const char *plan,
	      enum ibv_qp_type type)
{
	rig_open(rig, model, plan);
	rig_make(&rig->end[0], type, 64);
	rig_make(&rig->end[1], type, 64);
	rig_connect(rig, IBV_QPS_RTS);
}

void rig_close(struct rig *rig)
{
	for (int i = 0; i < 2; i++) {
		struct rig_end *end = &rig->end[i];

		if (end->qp)
			CHECK_EQ(ibv_destroy_qp(end->qp), 0);
		if (end->mr)
			CHECK_EQ(ibv_dereg_mr(end->mr), 0);
		if (end->cq)
			CHECK_EQ(ibv_destroy_cq(end->cq), 0);
		if (end->pd)
			CHECK_EQ(ibv_dealloc_pd(end->pd), 0);
		if (end->context)
			CHECK_EQ(ibv_close_device(end->context), 0);
		free(end->memory);
	}
	CHECK_EQ(sim_world_object_count(rig->world), 0);
	sim_world_use(NULL);
	sim_world_close(rig->world);
}

int rig_send(struct rig_end *end, uint64_t wr_id, uint32_t offset, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)end->memory + offset, len,
			      end->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = wr_id,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;

	return ibv_post_send(end->qp, &wr, &bad);
}

int rig_recv(struct rig_end *end, uint64_t wr_id, uint32_t offset, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)end->memory + offset, len,
			      end->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = wr_id, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	return ibv_post_recv(end->qp, &wr, &bad);
}

struct ibv_wc rig_wc(struct rig_end *end)
{
	struct ibv_wc wc = {0};

	CHECK_EQ(ibv_poll_cq(end->cq, 1, &wc), 1);
	return wc;
}

void rig_no_wc(struct rig_end *end)
{
	struct ibv_wc wc;

	CHECK_EQ(ibv_poll_cq(end->cq, 1, &wc), 0);
}

struct sim_fault *rig_fault(struct rig *rig, int line)
{
	int count;
	struct sim_fault *faults = sim_world_faults(rig->world, &count);

	CHECK(line < count, "no line %d", line);
	return &faults[line];
}

/* The macros of verbs.h stand before the exports that a table points to. */
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_get_device_list

struct vb_verbs *rig_verbs(void)
{
	static struct vb_verbs verbs = {
#define X(name, result, arguments) .name = ibv_##name,
		VB_VERBS(X)
#undef X
			.refs = 1000000, /* never the last reference */
	};

	return &verbs;
}

void rig_sockets(int fds[2])
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	int on = 1;

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK_EQ(bind(listener, (struct sockaddr *)&at, len), 0);
	CHECK_EQ(listen(listener, 1), 0);
	CHECK_EQ(getsockname(listener, (struct sockaddr *)&at, &len), 0);
	fds[1] = socket(AF_INET, SOCK_STREAM, 0);
	CHECK_EQ(connect(fds[1], (struct sockaddr *)&at, len), 0);
	fds[0] = accept(listener, NULL, NULL);
	CHECK(fds[0] >= 0, "accept: %s", strerror(errno));
	for (int i = 0; i < 2; i++)
		setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	close(listener);
}

void rig_shell(struct rig_output *output, const char *format, ...)
{
	char command[4096];
	size_t used;
	va_list args;
	FILE *pipe;
	int status;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	setenv("BUILD", BUILD_DIR, 1);
	setenv("VERBENA", BUILD_DIR "/verbena", 1);
	setenv("RIG_COMMAND", command, 1);
	/* The timeout only ends what hangs. */
	pipe = popen("exec timeout -k 5 120 sh -c \"$RIG_COMMAND\" 2>&1", "r");
	CHECK(pipe, "popen: %s", strerror(errno));
	used = fread(output->text, 1, sizeof(output->text) - 1, pipe);
	output->text[used] = 0;
	status = pclose(pipe);
	output->status = WIFEXITED(status) ? WEXITSTATUS(status)
					   : 128 + WTERMSIG(status);
}

int rig_free_port(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	CHECK_EQ(bind(fd, (struct sockaddr *)&at, len), 0);
	CHECK_EQ(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	close(fd);
	return ntohs(at.sin_port);
}

int rig_worlds_left(const char *part)
{
	DIR *dir = opendir("/dev/shm");
	struct dirent *entry;
	int count = 0;

	CHECK(dir, "/dev/shm: %s", strerror(errno));
	while ((entry = readdir(dir)))
		count += strncmp(entry->d_name, "verbena", 7) == 0 &&
			 strstr(entry->d_name, part);
	closedir(dir);
	return count;
}

/* A failed test leaves its world to this. */
static void sweep_own(void)
{
	sim_world_sweep(rig_name());
}

const char *rig_name(void)
{
	static char name[32];

	if (!name[0])
		atexit(sweep_own);
	snprintf(name, sizeof(name), "test-%d.", (int)getpid());
	return name;
}

/* A user's own settings are not for the tests; and what tests that were
 * killed left is nobody's. */
__attribute__((constructor)) static void start_clean(void)
{
	unsetenv("VERBENA_WORLD");
	unsetenv("VERBENA_HOST");
	unsetenv("VERBENA_MODEL");
	unsetenv("VERBENA_QUIET");
	sim_world_sweep("test-");
}
