/* SPDX-License-Identifier: MIT */
/*
 * Goal: between processes, a message is where and when it should be, whichever
 * way its bytes went: with the completion, in a parcel, or by the kernel; and
 * through a mover where the kernel's calls are forbidden. Method: a second
 * process on host b that does what it is told, one step at a time.
 */
#include "tests/rig.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ci/no_vm.h"
#include "tests/harness.h"

#define MEMORY (16u << 20)
#define PLACE  32768
#define DEPTH  512
#define ACCESS                                             \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

enum order { CONNECT, RECEIVE, POLL, PEEK, UNREGISTER, END };

/* An order and its arguments; and the answer. */
struct note {
	enum order order;
	uint32_t a, b;
	uint64_t value;
};

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	uint8_t *memory;
};

/* What the other side tells of itself before it is connected. */
struct card {
	uint32_t qp_num, rkey;
	uint64_t memory;
};

struct duo {
	struct sim_world *world;
	struct side side;
	struct card far;
	int to, from; /* pipes */
	pid_t pid;
};

static uint8_t byte_of(uint32_t message, uint32_t at)
{
	return (uint8_t)(message * 31 + at * 7 + 1);
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
	side->memory = aligned_alloc(4096, MEMORY);
	memset(side->memory, 0, MEMORY);
	side->mr = ibv_reg_mr(side->pd, side->memory, MEMORY, ACCESS);
	init.send_cq = init.recv_cq = side->cq;
	side->qp = ibv_create_qp(side->pd, &init);
	return side->mr && side->qp;
}

static int connect_to(struct side *side, uint32_t far_qp)
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
		rc = ibv_modify_qp(side->qp, &attr, masks[i]);
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
		if (got < 0 || wc.status || wc.wr_id != i)
			return i + 1;
		for (uint32_t at = 0; at < wc.byte_len; at++)
			if (place[at] != byte_of(i, at))
				return i + 1;
	}
	return 0;
}

static void obey(struct side *side, int from, int to)
{
	struct note note;

	while (read(from, &note, sizeof(note)) == sizeof(note)) {
		switch (note.order) {
		case CONNECT:
			note.value = (uint64_t)connect_to(side, note.a);
			break;
		case RECEIVE:
			note.value = (uint64_t)receive(side, &note);
			break;
		case POLL:
			note.value = poll_all(side, &note);
			break;
		case PEEK:
			note.value = side->memory[note.a];
			break;
		case UNREGISTER:
			note.value = (uint64_t)ibv_dereg_mr(side->mr);
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
	card = (struct card){side.qp->qp_num, side.mr->rkey,
			     (uintptr_t)side.memory};
	if (write(to, &card, sizeof(card)) != sizeof(card))
		_exit(3);
	obey(&side, from, to);
	sim_world_close(world);
	_exit(0);
}

/* --- this process --------------------------------------------------------- */

static uint64_t tell(struct duo *duo, enum order order, uint32_t a, uint32_t b,
		     uint64_t value)
{
	struct note note = {order, a, b, value};

	CHECK_EQ(write(duo->to, &note, sizeof(note)), sizeof(note));
	CHECK_EQ(read(duo->from, &note, sizeof(note)), sizeof(note));
	return note.value;
}

static void start(struct duo *duo, bool may_copy)
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
	CHECK_EQ(tell(duo, CONNECT, duo->side.qp->qp_num, 0, 0), 0);
	CHECK_EQ(connect_to(&duo->side, duo->far.qp_num), 0);
}

static void finish(struct duo *duo)
{
	struct note note = {.order = END};
	int status;

	signal(SIGPIPE, SIG_IGN); /* it may be dead */
	CHECK(write(duo->to, &note, sizeof(note)) == sizeof(note) ||
		      errno == EPIPE,
	      "errno %d", errno);
	CHECK_EQ(waitpid(duo->pid, &status, 0), duo->pid);
	CHECK_EQ(status, 0);
	close(duo->to);
	close(duo->from);
	CHECK_EQ(ibv_destroy_qp(duo->side.qp), 0);
	CHECK_EQ(ibv_dereg_mr(duo->side.mr), 0);
	CHECK_EQ(ibv_destroy_cq(duo->side.cq), 0);
	CHECK_EQ(ibv_dealloc_pd(duo->side.pd), 0);
	CHECK_EQ(ibv_close_device(duo->side.context), 0);
	sim_world_use(NULL);
	sim_world_close(duo->world);
	free(duo->side.memory);
	CHECK_EQ(rig_worlds_left(rig_name()), 0);
}

/* Post SENDs a … b - 1 of `len` bytes from places of their own. */
static void post_sends(struct duo *duo, uint32_t a, uint32_t b, uint32_t len)
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
			memory[at] = byte_of(i, at);
		CHECK_EQ(ibv_post_send(duo->side.qp, &wr, &bad), 0);
	}
}

/* Completions a … b - 1, in order. */
static void await_sends(struct duo *duo, uint32_t a, uint32_t b)
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

static enum ibv_wc_status run(struct duo *duo, enum ibv_wr_opcode opcode,
			      uint8_t *memory, uint32_t len, uint64_t remote)
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
		wr.wr.atomic.compare_add = 0;
		wr.wr.atomic.rkey = duo->far.rkey;
	}
	CHECK_EQ(ibv_post_send(duo->side.qp, &wr, &bad), 0);
	for (long turn = 0; !got && turn < 200000000; turn++)
		got = ibv_poll_cq(duo->side.cq, 1, &wc);
	CHECK_EQ(got, 1);
	return wc.status;
}

static void send_message(struct duo *duo, uint32_t message, uint32_t len)
{
	for (uint32_t at = 0; at < len; at++)
		duo->side.memory[at] = byte_of(message, at);
	CHECK_EQ(run(duo, IBV_WR_SEND, duo->side.memory, len, 0),
		 IBV_WC_SUCCESS);
}

static const uint32_t sizes[] = {0,  1,	   8,	 9,	63,    64,
				 65, 4096, 8192, 16384, 16385, 20000};
#define SIZES (sizeof(sizes) / sizeof(*sizes))

/* More than the parcels' room, with nobody polling: the rest goes another way,
 * and all of it is in order and whole. */
static void exchange(bool may_copy)
{
	struct duo duo;

	start(&duo, may_copy);
	for (uint32_t from = 0; from < 4 * DEPTH; from += DEPTH) {
		CHECK_EQ(tell(&duo, RECEIVE, from, from + DEPTH, PLACE), 0);
		for (uint32_t i = from; i < from + DEPTH; i++)
			send_message(&duo, i, sizes[i % SIZES]);
		CHECK_EQ(tell(&duo, POLL, from, from + DEPTH, PLACE), 0);
	}
	finish(&duo);
}

Test(parcel, messages_arrive_whole_and_in_order_whoever_waits)
{
	exchange(true);
}

/* --- where process_vm_* is forbidden. */
Test(parcel, they_do_so_where_copying_is_forbidden)
{
	exchange(false);
}

/* A quarter of the memory there, and back into the upper half of ours. */
static void there_and_back(struct duo *duo)
{
	uint8_t *back = duo->side.memory + MEMORY / 2;

	for (uint32_t at = 0; at < MEMORY / 4; at++)
		duo->side.memory[at] = byte_of(3, at);
	CHECK_EQ(run(duo, IBV_WR_RDMA_WRITE, duo->side.memory, MEMORY / 4,
		     4096),
		 IBV_WC_SUCCESS);
	CHECK_EQ(tell(duo, PEEK, 4096 + 12345, 0, 0), byte_of(3, 12345));
	CHECK_EQ(run(duo, IBV_WR_RDMA_READ, back, MEMORY / 4, 4096),
		 IBV_WC_SUCCESS);
	CHECK(memcmp(duo->side.memory, back, MEMORY / 4) == 0,
	      "what was written is not what is read");
}

static void one_sided(bool may_copy)
{
	uint64_t word;
	struct duo duo;

	start(&duo, may_copy);
	there_and_back(&duo);
	memset(duo.side.memory, 0, 8);
	CHECK_EQ(run(&duo, IBV_WR_ATOMIC_FETCH_AND_ADD, duo.side.memory, 8,
		     4096),
		 IBV_WC_SUCCESS);
	memcpy(&word, duo.side.memory, sizeof(word));
	CHECK_EQ(word & 0xff, byte_of(3, 0));
	finish(&duo);
}

/* The other process has no part in it. */
Test(parcel, one_sided_operations_need_no_call_of_the_target)
{
	one_sided(true);
}

Test(parcel, nor_where_copying_is_forbidden)
{
	one_sided(false);
}

/* With --map-memory: neither the kernel's calls nor a mover are there. */
Test(parcel, mapped_memory_needs_nobody)
{
	struct ibv_mr *second;
	struct duo duo;

	setenv("VERBENA_MAP_MEMORY", "1", 1);
	start(&duo, true);
	CHECK_EQ(forbid_copying(), 0);
	there_and_back(&duo);
	/* Registered once more, it is the same memory. */
	second = ibv_reg_mr(duo.side.pd, duo.side.memory, MEMORY, ACCESS);
	CHECK(second, "reg_mr: errno %d", errno);
	CHECK_EQ(duo.side.memory[54321], byte_of(3, 54321));
	CHECK_EQ(ibv_dereg_mr(second), 0);
	finish(&duo);
}

/* 5.7: sends, writes and reads take effect in their order, polled or not. */
Test(parcel, a_later_read_sees_what_was_sent)
{
	struct duo duo;

	start(&duo, true);
	CHECK_EQ(tell(&duo, RECEIVE, 0, 2, 8192), 0);
	send_message(&duo, 0, 100);
	CHECK_EQ(run(&duo, IBV_WR_RDMA_READ, duo.side.memory + 4096, 100, 0),
		 IBV_WC_SUCCESS);
	CHECK_EQ(duo.side.memory[4096 + 50], byte_of(0, 50));
	/* And a later write is not undone by the poll. */
	send_message(&duo, 1, 100);
	memset(duo.side.memory, 0xee, 100);
	CHECK_EQ(run(&duo, IBV_WR_RDMA_WRITE, duo.side.memory, 1, 8192 + 50),
		 IBV_WC_SUCCESS);
	CHECK_EQ(tell(&duo, POLL, 0, 1, 8192), 0);
	CHECK_EQ(tell(&duo, POLL, 1, 2, 8192), 2); /* byte 50 differs */
	CHECK_EQ(tell(&duo, PEEK, 8192 + 50, 0, 0), 0xee);
	finish(&duo);
}

/* 5.6: what came before the region's end is there, and complete. */
Test(parcel, a_message_that_came_survives_its_region)
{
	struct duo duo;

	start(&duo, true);
	CHECK_EQ(tell(&duo, RECEIVE, 0, 3, 8192), 0);
	send_message(&duo, 0, 8);
	send_message(&duo, 1, 5000);
	CHECK_EQ(tell(&duo, UNREGISTER, 0, 0, 0), 0);
	CHECK_EQ(tell(&duo, POLL, 0, 2, 8192), 0);
	/* The third receive has lost its key: both ends fail. */
	CHECK_EQ(run(&duo, IBV_WR_SEND, duo.side.memory, 8, 0),
		 IBV_WC_REM_OP_ERR);
	CHECK_EQ(tell(&duo, POLL, 2, 3, 8192), 3);
	finish(&duo);
}

/* Its memory is gone, and what waited for it goes too. */
Test(parcel, a_message_for_the_dead_is_dropped)
{
	struct duo duo;
	int before;

	start(&duo, true);
	before = sim_world_object_count(duo.world);
	CHECK_EQ(tell(&duo, RECEIVE, 0, 2, 8192), 0);
	send_message(&duo, 0, 8);
	send_message(&duo, 1, 5000);
	CHECK_EQ(kill(duo.pid, SIGKILL), 0);
	CHECK_EQ(waitpid(duo.pid, NULL, 0), duo.pid);
	sim_world_reap(duo.world, 0);
	CHECK(sim_world_object_count(duo.world) < before, "nothing reaped");
	/* For finish(), one that ends well. */
	duo.pid = fork();
	if (duo.pid == 0)
		_exit(0);
	finish(&duo);
}

/* 5.3: a page of this side that is not there is this side's mistake. */
Test(parcel, a_missing_page_is_blamed_on_its_owner)
{
	static const struct {
		enum ibv_wr_opcode opcode;
		int protection; /* of the near page, once it is registered */
		enum ibv_wc_status status;
	} rows[] = {
		{IBV_WR_RDMA_WRITE, PROT_NONE, IBV_WC_LOC_PROT_ERR},
		{IBV_WR_RDMA_READ, PROT_READ, IBV_WC_LOC_PROT_ERR},
	};

	for (int i = 0; i < 2; i++) {
		uint8_t *page = mmap(NULL, 16384, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct ibv_mr *mr, *own;
		struct duo duo;

		start(&duo, true);
		own = duo.side.mr;
		mr = ibv_reg_mr(duo.side.pd, page, 16384, ACCESS);
		CHECK(mr, "reg_mr: errno %d", errno);
		CHECK_EQ(mprotect(page, 16384, rows[i].protection), 0);
		duo.side.mr = mr;
		CHECK_EQ(run(&duo, rows[i].opcode, page, 16384, 0),
			 rows[i].status);
		duo.side.mr = own;
		CHECK_EQ(ibv_dereg_mr(mr), 0);
		CHECK_EQ(munmap(page, 16384), 0);
		finish(&duo);
	}
}

Test(parcel, sends_that_were_first_go_when_either_side_polls)
{
	static const uint32_t lens[] = {8, 4096, 20000};
	struct duo duo;

	for (size_t i = 0; i < sizeof(lens) / sizeof(*lens); i++) {
		uint32_t len = lens[i];

		start(&duo, true);
		/* The sender: the receiver says nothing and looks at nothing.
		 */
		post_sends(&duo, 0, 20, len);
		CHECK_EQ(tell(&duo, RECEIVE, 0, 20, len), 0);
		await_sends(&duo, 0, 20);
		CHECK_EQ(tell(&duo, POLL, 0, 20, len), 0);
		/* The receiver: the sender looks at nothing. */
		post_sends(&duo, 20, 40, len);
		CHECK_EQ(tell(&duo, RECEIVE, 20, 40, len), 0);
		CHECK_EQ(tell(&duo, POLL, 20, 40, len), 0);
		await_sends(&duo, 20, 40);
		/* Both, and never enough of them. */
		post_sends(&duo, 40, 80, len);
		for (uint32_t at = 40; at < 80; at += 10) {
			CHECK_EQ(tell(&duo, RECEIVE, at, at + 10, len), 0);
			await_sends(&duo, at, at + 10);
			CHECK_EQ(tell(&duo, POLL, at, at + 10, len), 0);
		}
		finish(&duo);
	}
}

/* --- lists of one-sided requests -------------------------------------------
 */

#define LIST 40

/* LIST requests of a page each, posted at once; `bad` has a key of nobody's. */
static void post_list(struct duo *duo, enum ibv_wr_opcode opcode, uint32_t bad)
{
	struct ibv_sge sge[LIST];
	struct ibv_send_wr wr[LIST], *failed;

	memset(wr, 0, sizeof(wr));
	for (uint32_t i = 0; i < LIST; i++) {
		uint32_t len = 4096 - 8 * i;

		sge[i] =
			(struct ibv_sge){(uintptr_t)duo->side.memory + 4096 * i,
					 len, duo->side.mr->lkey};
		wr[i].wr_id = i;
		wr[i].sg_list = &sge[i];
		wr[i].num_sge = 1;
		wr[i].opcode = opcode;
		wr[i].send_flags = IBV_SEND_SIGNALED;
		wr[i].wr.rdma.remote_addr = duo->far.memory + 4096 * i;
		wr[i].wr.rdma.rkey = i == bad ? 0x77777777 : duo->far.rkey;
		wr[i].next = i + 1 < LIST ? &wr[i + 1] : NULL;
	}
	CHECK_EQ(ibv_post_send(duo->side.qp, wr, &failed), 0);
}

/* All before the bad one are done, itself is refused, the rest are flushed. */
static void check_list(struct duo *duo, uint32_t bad)
{
	for (uint32_t i = 0; i < LIST; i++) {
		struct ibv_wc wc;

		CHECK_EQ(ibv_poll_cq(duo->side.cq, 1, &wc), 1);
		CHECK_EQ(wc.wr_id, i);
		CHECK_EQ(wc.status, i < bad    ? IBV_WC_SUCCESS
				    : i == bad ? IBV_WC_REM_ACCESS_ERR
					       : IBV_WC_WR_FLUSH_ERR);
	}
}

Test(parcel, a_list_of_writes_ends_where_one_is_refused)
{
	for (uint32_t bad = 0; bad <= LIST; bad += 10) {
		struct duo duo;

		start(&duo, true);
		for (uint32_t i = 0; i < LIST * 4096; i++)
			duo.side.memory[i] = (uint8_t)(i / 4096 + 1);
		post_list(&duo, IBV_WR_RDMA_WRITE, bad);
		check_list(&duo, bad);
		for (uint32_t i = 0; i < LIST; i++) {
			uint32_t last = 4096 * i + 4096 - 8 * i - 1;
			uint64_t want = i < bad ? i + 1 : 0;

			CHECK_EQ(tell(&duo, PEEK, 4096 * i, 0, 0), want);
			CHECK_EQ(tell(&duo, PEEK, last, 0, 0), want);
			if (i)
				CHECK_EQ(tell(&duo, PEEK, last + 1, 0, 0), 0);
		}
		finish(&duo);
	}
}

Test(parcel, a_list_of_reads_ends_where_one_is_refused)
{
	for (uint32_t bad = 0; bad <= LIST; bad += 20) {
		struct duo duo;

		start(&duo, true);
		for (uint32_t i = 0; i < LIST; i++)
			memset(duo.side.memory + 4096 * i, (int)i + 1, 4096);
		post_list(&duo, IBV_WR_RDMA_WRITE, LIST);
		check_list(&duo, LIST);
		memset(duo.side.memory, 0, LIST * 4096);
		post_list(&duo, IBV_WR_RDMA_READ, bad);
		check_list(&duo, bad);
		for (uint32_t i = 0; i < LIST; i++) {
			uint32_t last = 4096 * i + 4096 - 8 * i - 1;
			uint8_t want = i < bad ? (uint8_t)(i + 1) : 0;

			CHECK_EQ(duo.side.memory[4096 * i], want);
			CHECK_EQ(duo.side.memory[last], want);
			if (i)
				CHECK_EQ(duo.side.memory[last + 1], 0);
		}
		finish(&duo);
	}
}
