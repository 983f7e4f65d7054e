/* SPDX-License-Identifier: MIT */
/* Two processes in one world; see duo.h. */
#define _GNU_SOURCE
#include "tests/sim/duo.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ci/no_vm.h"
#include "sim/core.h"
#include "tests/harness.h"

uint8_t duo_byte(uint32_t message, uint32_t at)
{
	return (uint8_t)(message * 31 + at * 7 + 1);
}

enum duo_memory duo_memory;

static int make_file(void)
{
	int fd = memfd_create("duo", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, MEMORY))
		return -1;
	if (duo_memory == DUO_SEALED && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK))
		return -1;
	return fd;
}

static bool have_memory(struct side *side)
{
	void *at;

	side->fd = -1;
	if (duo_memory == DUO_MALLOC) {
		at = aligned_alloc(4096, MEMORY);
	} else {
		side->fd = make_file();
		at = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED,
			  side->fd, 0);
		if (at == MAP_FAILED)
			return false;
	}
	side->memory = memset(at, 0, MEMORY);
	side->mr = ibv_reg_mr(side->pd, side->memory, MEMORY, ACCESS);
	return side->mr;
}

static void drop_memory(struct side *side)
{
	if (side->fd < 0) {
		free(side->memory);
	} else {
		munmap(side->memory, MEMORY);
		close(side->fd);
	}
}

static bool make(struct side *side)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
					.cap = {DEPTH, DEPTH, 1, 1, 0}};

	if (!list)
		return false;
	side->context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	side->pd = ibv_alloc_pd(side->context);
	side->cq = ibv_create_cq(side->context, 2 * DEPTH, NULL, NULL, 0);
	if (!have_memory(side))
		return false;
	init.send_cq = init.recv_cq = side->cq;
	side->qp = ibv_create_qp(side->pd, &init);
	side->other_cq = ibv_create_cq(side->context, 16, NULL, NULL, 0);
	init.send_cq = init.recv_cq = side->other_cq;
	side->other = ibv_create_qp(side->pd, &init);
	return side->qp && side->other;
}

static int connect_to(struct side *side, struct ibv_qp *qp, uint32_t far_qp)
{
	struct ibv_qp_attr attr = {.port_num = 1,
				   .qp_access_flags = ACCESS,
				   .path_mtu = IBV_MTU_4096,
				   .dest_qp_num = far_qp,
				   .max_dest_rd_atomic = 1,
				   .max_rd_atomic = 1,
				   .min_rnr_timer = 1,
				   .timeout = 14,
				   .retry_cnt = 7,
				   .rnr_retry = 7,
				   .ah_attr = {.port_num = 1, .is_global = 1}};
	static const int masks[] = {IBV_QP_STATE | IBV_QP_PKEY_INDEX |
					    IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
				    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
					    IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					    IBV_QP_MAX_DEST_RD_ATOMIC |
					    IBV_QP_MIN_RNR_TIMER,
				    IBV_QP_STATE | IBV_QP_SQ_PSN |
					    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
					    IBV_QP_RNR_RETRY |
					    IBV_QP_MAX_QP_RD_ATOMIC};
	int rc = ibv_query_gid(side->context, 1, 1, &attr.ah_attr.grh.dgid);

	attr.ah_attr.grh.sgid_index = 1;
	for (int i = 0; i < 3 && !rc; i++) {
		attr.qp_state = (enum ibv_qp_state)(IBV_QPS_INIT + i);
		rc = ibv_modify_qp(qp, &attr, masks[i]);
	}
	return rc;
}

/* --- the other process: verdicts, no checks ------------------------------ */

/* Receives a … b - 1, each of its own place of `value` bytes. */
static int receive(struct side *side, const struct note *note)
{
	int rc = 0;

	for (uint32_t i = note->a; i < note->b && !rc; i++) {
		struct ibv_sge sge = {(uintptr_t)side->memory +
					      (i % DEPTH) * note->value,
				      (uint32_t)note->value, side->mr->lkey};
		struct ibv_recv_wr wr = {.wr_id = i,
					 .sg_list = &sge,
					 .num_sge = 1};
		struct ibv_recv_wr *bad;

		rc = ibv_post_recv(side->qp, &wr, &bad);
	}
	return rc;
}

/* Completions a … b - 1 in order, whole: 0, or 1 + the first that is not. The
 * place of each is `value` bytes. */
static uint32_t poll_all(struct side *side, const struct note *note)
{
	for (uint32_t i = note->a; i < note->b; i++) {
		const uint8_t *place = side->memory + (i % DEPTH) * note->value;
		struct ibv_wc wc;
		int got;

		for (long turn = 0; (got = ibv_poll_cq(side->cq, 1, &wc)) == 0;
		     turn++)
			if (turn > 200000000)
				return i + 1;
		if (got < 0 || wc.status || wc.wr_id != i ||
		    wc.qp_num != side->qp->qp_num ||
		    wc.src_qp != side->far_num || wc.vendor_err)
			return i + 1;
		for (uint32_t at = 0; at < wc.byte_len; at++)
			if (place[at] != duo_byte(i, at))
				return i + 1;
	}
	return 0;
}

/* So many completions, whatever they say: how many did not come. */
static uint32_t drain(struct side *side, uint32_t count)
{
	struct ibv_wc wc;

	for (long turn = 0; count && turn < 200000000; turn++)
		if (ibv_poll_cq(side->cq, 1, &wc) == 1)
			count--;
	return count;
}

static uint64_t renew(struct side *side)
{
	if (ibv_dereg_mr(side->mr))
		return 1;
	drop_memory(side);
	return !have_memory(side);
}

static uint64_t swap(const struct side *side)
{
	int other = make_file();

	return other < 0 || dup2(other, side->fd) != side->fd || close(other);
}

static void hold(const struct side *side, bool is_posting)
{
	struct sim_world *w = sim_self();
	struct sim_qp *qp = sim_qp_by_num(w, side->qp->qp_num);

	struct sim_latch *latch = is_posting ? &qp->post_lock : &qp->rq_lock;

	sim_take(w, latch);
	raise(SIGSTOP);
	sim_drop(latch);
}

static void obey(struct side *side, int from, int to)
{
	struct note note;

	while (read(from, &note, sizeof(note)) == sizeof(note)) {
		switch (note.order) {
		case CONNECT:
			side->far_num = note.a;
			note.value =
				(uint64_t)(connect_to(side, side->qp, note.a) |
					   connect_to(side, side->other,
						      note.b));
			break;
		case RECEIVE:
			note.value = (uint64_t)receive(side, &note);
			break;
		case POLL:
			note.value = poll_all(side, &note);
			break;
		case DRAIN:
			note.value = drain(side, note.b);
			break;
		case PEEK:
			note.value = side->memory[note.a];
			break;
		case UNMAP:
			note.value =
				(uint64_t)munmap(side->memory + note.a, note.b);
			break;
		case UNREGISTER:
			note.value = (uint64_t)ibv_dereg_mr(side->mr);
			break;
		case DESTROY:
			note.value = (uint64_t)ibv_destroy_qp(side->qp);
			break;
		case RENEW:
			note.value = renew(side);
			break;
		case SHRINK:
			note.value = (uint64_t)ftruncate(side->fd, 0);
			break;
		case SWAP:
			note.value = swap(side);
			break;
		case HOLD:
			hold(side, note.a);
			break;
		case END:
			return;
		}
		if (write(to, &note, sizeof(note)) != sizeof(note))
			return;
	}
}

static void live(const char *name, bool may_copy, int from, int to)
{
	struct sim_world_config config = {.name = name, .host = 2};
	char error[SIM_ERROR_MAX];
	struct sim_world *world;
	struct side side = {0};
	struct card card;

	if (!may_copy && forbid_copying())
		_exit(1);
	if (sim_world_open(&config, &world, error))
		_exit(1);
	sim_world_use(world);
	if (!make(&side))
		_exit(2);
	card = (struct card){side.qp->qp_num, side.other->qp_num, side.mr->rkey,
			     (uintptr_t)side.memory};
	if (write(to, &card, sizeof(card)) != sizeof(card))
		_exit(3);
	obey(&side, from, to);
	sim_world_close(world);
	_exit(0);
}

/* --- this process --------------------------------------------------------- */

void duo_say(struct duo *duo, enum order order, uint32_t a, uint32_t b,
	     uint64_t value)
{
	struct note note = {order, a, b, value};

	CHECK_EQ(write(duo->to, &note, sizeof(note)), sizeof(note));
}

uint64_t duo_tell(struct duo *duo, enum order order, uint32_t a, uint32_t b,
		  uint64_t value)
{
	struct note note = {order, a, b, value};

	CHECK_EQ(write(duo->to, &note, sizeof(note)), sizeof(note));
	CHECK_EQ(read(duo->from, &note, sizeof(note)), sizeof(note));
	return note.value;
}

void duo_start(struct duo *duo, bool may_copy)
{
	struct sim_world_config config = {.name = rig_name(),
					  .model = {"mlx5", "mlx5"},
					  .host = 1};
	const char *name = config.name; /* the child's own would differ */
	char error[SIM_ERROR_MAX] = "";
	int down[2], up[2];

	setenv("VERBENA_QUIET", "1", 1);
	memset(duo, 0, sizeof(*duo));
	CHECK(pipe(down) == 0 && pipe(up) == 0, "pipe");
	duo->pid = fork();
	CHECK(duo->pid >= 0, "fork");
	if (duo->pid == 0) {
		char go;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(down[1]);
		close(up[0]);
		/* The world's first process is the other one. */
		if (read(down[0], &go, 1) == 1)
			live(name, may_copy, down[0], up[1]);
		_exit(9);
	}
	close(down[0]);
	close(up[1]);
	duo->to = down[1];
	duo->from = up[0];
	if (!may_copy)
		CHECK_EQ(forbid_copying(), 0);
	CHECK(sim_world_open(&config, &duo->world, error) == 0, "%s", error);
	sim_world_use(duo->world);
	CHECK(make(&duo->side), "this side: errno %d", errno);
	CHECK_EQ(write(duo->to, "g", 1), 1);
	CHECK_EQ(read(duo->from, &duo->far, sizeof(duo->far)),
		 sizeof(duo->far));
	CHECK_EQ(duo_tell(duo, CONNECT, duo->side.qp->qp_num,
			  duo->side.other->qp_num, 0),
		 0);
	CHECK_EQ(connect_to(&duo->side, duo->side.qp, duo->far.qp_num), 0);
	CHECK_EQ(connect_to(&duo->side, duo->side.other, duo->far.other_num),
		 0);
}

static void clear(struct duo *duo)
{
	close(duo->to);
	close(duo->from);
	CHECK_EQ(ibv_destroy_qp(duo->side.qp), 0);
	CHECK_EQ(ibv_destroy_qp(duo->side.other), 0);
	CHECK_EQ(ibv_destroy_cq(duo->side.other_cq), 0);
	CHECK_EQ(ibv_dereg_mr(duo->side.mr), 0);
	CHECK_EQ(ibv_destroy_cq(duo->side.cq), 0);
	CHECK_EQ(ibv_dealloc_pd(duo->side.pd), 0);
	CHECK_EQ(ibv_close_device(duo->side.context), 0);
	sim_world_use(NULL);
	sim_world_close(duo->world);
	drop_memory(&duo->side);
	CHECK_EQ(rig_worlds_left(rig_name()), 0);
}

/* It has been killed. */
void duo_abandon(struct duo *duo)
{
	int status;

	CHECK_EQ(waitpid(duo->pid, &status, 0), duo->pid);
	CHECK(WIFSIGNALED(status), "status %d", status);
	clear(duo);
}

void duo_finish(struct duo *duo)
{
	struct note note = {.order = END};
	int status;

	signal(SIGPIPE, SIG_IGN); /* it may be dead */
	CHECK(write(duo->to, &note, sizeof(note)) == sizeof(note) ||
		      errno == EPIPE,
	      "errno %d", errno);
	CHECK_EQ(waitpid(duo->pid, &status, 0), duo->pid);
	CHECK_EQ(status, 0);
	clear(duo);
}

void duo_post_sends(struct duo *duo, uint32_t a, uint32_t b, uint32_t len)
{
	for (uint32_t i = a; i < b; i++) {
		uint8_t *memory = duo->side.memory + (size_t)i * len;
		struct ibv_sge sge = {(uintptr_t)memory, len,
				      duo->side.mr->lkey};
		struct ibv_send_wr wr = {.wr_id = i,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_SEND,
					 .send_flags = IBV_SEND_SIGNALED};
		struct ibv_send_wr *bad;

		for (uint32_t at = 0; at < len; at++)
			memory[at] = duo_byte(i, at);
		CHECK_EQ(ibv_post_send(duo->side.qp, &wr, &bad), 0);
	}
}

void duo_await_sends(struct duo *duo, uint32_t a, uint32_t b)
{
	for (uint32_t i = a; i < b; i++) {
		struct ibv_wc wc = {.wr_id = UINT64_MAX};
		int got = 0;

		for (long turn = 0; !got && turn < 200000000; turn++)
			got = ibv_poll_cq(duo->side.cq, 1, &wc);
		CHECK_EQ(got, 1);
		CHECK_EQ(wc.wr_id, i);
		CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	}
}

enum ibv_wc_status duo_run_on(struct duo *duo, struct ibv_qp *qp,
			      enum ibv_wr_opcode opcode, uint8_t *memory,
			      uint32_t len, uint64_t remote)
{
	struct ibv_sge sge = {(uintptr_t)memory, len, duo->side.mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = opcode,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int got = 0;

	wr.wr.rdma.remote_addr = duo->far.memory + remote;
	wr.wr.rdma.rkey = duo->far.rkey;
	if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.compare_add = qp == duo->side.other;
		wr.wr.atomic.rkey = duo->far.rkey;
	}
	CHECK_EQ(ibv_post_send(qp, &wr, &bad), 0);
	for (long turn = 0; !got && turn < 200000000; turn++)
		got = ibv_poll_cq(qp->send_cq, 1, &wc);
	CHECK_EQ(got, 1);
	return wc.status;
}

enum ibv_wc_status duo_run(struct duo *duo, enum ibv_wr_opcode opcode,
			   uint8_t *memory, uint32_t len, uint64_t remote)
{
	return duo_run_on(duo, duo->side.qp, opcode, memory, len, remote);
}

void duo_send_message(struct duo *duo, uint32_t message, uint32_t len)
{
	for (uint32_t at = 0; at < len; at++)
		duo->side.memory[at] = duo_byte(message, at);
	CHECK_EQ(duo_run(duo, IBV_WR_SEND, duo->side.memory, len, 0),
		 IBV_WC_SUCCESS);
}
