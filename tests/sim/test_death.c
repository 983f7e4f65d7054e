/* SPDX-License-Identifier: MIT */
/*
 * Goal: what a process held when it died is nobody's, also when another has
 * taken its place in the world. Method: a child that joins, leaves a lock taken
 * or a long message open, and dies; and a second one in its place.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sim/core.h"
#include "tests/harness.h"
#include "tests/rig.h"
#include "tests/sim/duo.h"

/* A child in the world that says its slot, and lives until it is killed. */
static pid_t start_child(const char *name, void (*act)(struct sim_world *),
			 uint32_t *slot)
{
	int ends[2];
	pid_t pid;

	CHECK_EQ(pipe(ends), 0);
	pid = fork();
	if (pid == 0) {
		struct sim_world_config config = {.name = name, .host = 2};
		char error[SIM_ERROR_MAX];
		struct sim_world *world;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (sim_world_open(&config, &world, error))
			_exit(1);
		if (act)
			act(world);
		if (write(ends[1], &world->proc, sizeof(world->proc)) < 0)
			_exit(1);
		pause();
		_exit(1);
	}
	close(ends[1]);
	CHECK_EQ(read(ends[0], slot, sizeof(*slot)), sizeof(*slot));
	close(ends[0]);
	return pid;
}

static void end_child(pid_t pid)
{
	CHECK_EQ(kill(pid, SIGKILL), 0);
	CHECK_EQ(waitpid(pid, NULL, 0), pid);
}

static struct sim_world *open_own(const char *name)
{
	struct sim_world_config config = {.name = name,
					  .model = {"mlx5", "mlx5"},
					  .host = 1};
	char error[SIM_ERROR_MAX] = "";
	struct sim_world *world = NULL;

	setenv("VERBENA_QUIET", "1", 1);
	CHECK(sim_world_open(&config, &world, error) == 0, "%s", error);
	return world;
}

static void take_a_lock(struct sim_world *world)
{
	sim_take(world, &world->seg->qp[7].sq_lock);
}

Test(death, a_lock_of_the_dead_is_free_though_its_place_is_taken)
{
	const char *name = rig_name();
	struct sim_world *world = open_own(name);
	uint32_t first, second;
	pid_t pid = start_child(name, take_a_lock, &first);

	end_child(pid);
	pid = start_child(name, NULL, &second);
	CHECK_EQ(first, second);
	alarm(20); /* it would wait for ever */
	sim_take(world, &world->seg->qp[7].sq_lock);
	alarm(0);
	sim_drop(&world->seg->qp[7].sq_lock);
	end_child(pid);
	sim_world_close(world);
}

static uint8_t *place;

/* A long SEND into `place`, from the same address here, and no piece done. */
static void leave_a_share_open(struct sim_world *world)
{
	struct sim_cq *cq = &world->seg->cq[0];

	memset(place, 0x22, 1 << 20);
	cq->share.is_taken = 1;
	cq->share.from = world->locker;
	cq->share.to_proc = cq->object.proc;
	cq->share.from_addr = cq->share.to_addr = (uintptr_t)place;
	cq->share.length = 1 << 20;
	cq->share.piece_bytes = 1 << 18;
	cq->share.pieces = 4;
	cq->wants_help = 1;
}

static void fill_place(struct sim_world *world)
{
	(void)world;
	memset(place, 0x33, 1 << 20);
}

Test(death, nobody_helps_a_dead_sender_from_the_memory_of_its_successor)
{
	const char *name = rig_name();
	struct sim_world *world = open_own(name);
	struct ibv_context *context;
	struct ibv_device **list;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	uint32_t first, second;
	pid_t pid;

	place = aligned_alloc(4096, 1 << 20);
	memset(place, 0x55, 1 << 20);
	sim_world_use(world);
	list = ibv_get_device_list(NULL);
	context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(cq, "create_cq");
	pid = start_child(name, leave_a_share_open, &first);
	end_child(pid);
	pid = start_child(name, fill_place, &second);
	CHECK_EQ(first, second);
	for (int i = 0; i < 1000; i++)
		CHECK_EQ(ibv_poll_cq(cq, 1, &wc), 0);
	CHECK_EQ(place[0], 0x55);
	CHECK_EQ(place[(1 << 20) - 1], 0x55);
	/* It can be shared again. */
	CHECK_EQ(world->seg->cq[0].share.is_taken, 0);
	CHECK_EQ(world->seg->cq[0].wants_help, 0);
	end_child(pid);
	CHECK_EQ(ibv_destroy_cq(cq), 0);
	CHECK_EQ(ibv_close_device(context), 0);
	sim_world_use(NULL);
	sim_world_close(world);
	free(place);
}

/* --- stopped, which is not dead --- */

static void stop_child(pid_t pid)
{
	CHECK_EQ(kill(pid, SIGSTOP), 0);
	CHECK_EQ(waitpid(pid, NULL, WUNTRACED), pid);
}

static void take_the_receiving_side(struct sim_world *world)
{
	sim_take(world, &world->seg->qp[0].rq_lock);
}

static void take_the_sending_side(struct sim_world *world)
{
	sim_take(world, &world->seg->qp[0].sq_lock);
}

static void take_the_posting_side(struct sim_world *world)
{
	sim_take(world, &world->seg->qp[0].post_lock);
}

/* One queue pair, of which a child has a lock, and is stopped. */
static void end_beside_a_stopped(void (*act)(struct sim_world *))
{
	const char *name = rig_name();
	struct sim_world *world = open_own(name);
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
					.cap = {1, 1, 1, 1, 0}};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND}, *bad;
	struct ibv_recv_wr recv = {.wr_id = 1}, *bad_recv;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_context *context;
	struct ibv_device **list;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	uint32_t slot;
	pid_t pid;

	place = aligned_alloc(4096, 4096);
	sim_world_use(world);
	list = ibv_get_device_list(NULL);
	context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(context);
	mr = ibv_reg_mr(pd, place, 4096, IBV_ACCESS_LOCAL_WRITE);
	init.send_cq = init.recv_cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	qp = ibv_create_qp(pd, &init);
	CHECK(qp, "create_qp");
	pid = start_child(name, act, &slot);
	stop_child(pid);
	alarm(20); /* it would wait for ever */
	if (act == take_the_sending_side) {
		CHECK_EQ(ibv_post_send(qp, &wr, &bad), ENOMEM);
		CHECK(bad == &wr, "bad");
	}
	if (act == take_the_posting_side) {
		CHECK_EQ(ibv_post_recv(qp, &recv, &bad_recv), ENOMEM);
		CHECK(bad_recv == &recv, "bad");
	}
	CHECK_EQ(ibv_modify_qp(qp, &attr,
			       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				       IBV_QP_ACCESS_FLAGS),
		 EBUSY);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	CHECK_EQ(ibv_destroy_cq(init.recv_cq), 0);
	CHECK_EQ(ibv_dealloc_pd(pd), 0);
	CHECK_EQ(ibv_close_device(context), 0);
	alarm(0);
	CHECK_EQ(sim_world_object_count(world), 0);
	/* Its place is not another's while the child may come back to it. */
	CHECK_EQ(world->seg->qp[0].is_left, 1);
	CHECK(world->seg->qp[0].object.proc == world->proc, "free");
	end_child(pid);
	sim_world_use(NULL);
	sim_world_close(world);
	free(place);
}

/* What a peer holds in the middle of a delivery to it. */
Test(death, a_queue_pair_ends_though_a_stopped_process_delivers_to_it)
{
	end_beside_a_stopped(take_the_receiving_side);
}

/* And in the middle of a delivery from it, which it began when it posted. */
Test(death, a_queue_pair_ends_though_a_stopped_process_runs_its_sends)
{
	end_beside_a_stopped(take_the_sending_side);
}

Test(death, a_queue_pair_ends_though_a_stopped_process_has_its_posting_side)
{
	end_beside_a_stopped(take_the_posting_side);
}

/* A request waits in its queue; who posted it, and who polls, does not. It is
 * done when the other goes on. */
static void ask_a_stopped(enum ibv_wr_opcode opcode, uint32_t len,
			  bool is_posting)
{
	struct ibv_send_wr wr = {.num_sge = 1,
				 .opcode = opcode,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;
	bool is_answered = opcode == IBV_WR_SEND && !is_posting;
	struct ibv_sge sge;
	struct ibv_wc wc;
	struct duo duo;

	duo_start(&duo, true);
	sge = (struct ibv_sge){(uintptr_t)duo.side.memory, len,
			       duo.side.mr->lkey};
	wr.sg_list = &sge;
	wr.wr.rdma.remote_addr = duo.far.memory;
	wr.wr.rdma.rkey = duo.far.rkey;
	CHECK_EQ(duo_tell(&duo, RECEIVE, 0, is_answered, 131072), 0);
	duo_say(&duo, HOLD, is_posting, 0, 0);
	CHECK_EQ(waitpid(duo.pid, NULL, WUNTRACED), duo.pid);
	alarm(20); /* it would wait for ever */
	CHECK_EQ(ibv_post_send(duo.side.qp, &wr, &bad), 0);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(ibv_poll_cq(duo.side.cq, 1, &wc), 0);
	alarm(0);
	if (is_posting) { /* there is no receive */
		CHECK_EQ(kill(duo.pid, SIGKILL), 0);
		duo_abandon(&duo);
		return;
	}
	CHECK_EQ(kill(duo.pid, SIGCONT), 0);
	duo_await_sends(&duo, 0, 1);
	duo_finish(&duo);
}

Test(death, a_request_to_a_stopped_process_keeps_nobody)
{
	ask_a_stopped(IBV_WR_SEND, 8, false);
	ask_a_stopped(IBV_WR_SEND, 100000, false);
	ask_a_stopped(IBV_WR_RDMA_WRITE, 100000, false);
	ask_a_stopped(IBV_WR_RDMA_READ, 100000, false);
	ask_a_stopped(IBV_WR_SEND, 8, true);
	ask_a_stopped(IBV_WR_SEND, 100000, true);
}

Test(death, a_sender_does_not_wait_for_a_helper_that_is_stopped)
{
	const char *name = rig_name();
	struct sim_world *world = open_own(name);
	struct sim_cq *cq = &world->seg->cq[3];
	enum sim_copy_result result;
	struct sim_span span;
	struct sim_copy copy = {.from_proc = world->proc,
				.from = &span,
				.to = &span,
				.from_count = 1,
				.to_count = 1};
	uint32_t slot;
	pid_t pid;

	place = aligned_alloc(4096, 1 << 20);
	memset(place, 0x44, 1 << 20);
	span = (struct sim_span){.addr = (uintptr_t)place, .length = 1 << 20};
	pid = start_child(name, NULL, &slot);
	cq->object.proc = copy.to_proc = slot;
	cq->share.helpers = 1; /* it is over a piece */
	stop_child(pid);
	alarm(20); /* it would wait for ever */
	for (int i = 0; i < 2; i++) {
		CHECK(sim_share_copy(world, cq, &copy, &result), "plain");
		CHECK_EQ(result, SIM_COPY_STUCK);
	}
	/* It goes on, and is done with it. */
	CHECK_EQ(kill(pid, SIGCONT), 0);
	cq->share.helpers = 0;
	CHECK(sim_share_copy(world, cq, &copy, &result), "plain");
	CHECK_EQ(result, SIM_COPY_OK);
	alarm(0);
	CHECK_EQ(cq->share.is_taken, 0);
	end_child(pid);
	cq->object.proc = 0;
	sim_world_close(world);
	free(place);
}

/* Who has the world's lock may be stopped: objects come and go without it. */
Test(death, no_object_waits_for_the_lock_of_the_world)
{
	struct sim_world *world = open_own(rig_name());
	struct ibv_device **list;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC,
					.cap = {1, 1, 1, 1, 0}};
	static char memory[8192];

	sim_world_use(world);
	alarm(20); /* it would wait for ever */
	sim_lock(&world->seg->lock);
	list = ibv_get_device_list(NULL);
	context = ibv_open_device(list[0]);
	CHECK(context, "open_device: errno %d", errno);
	pd = ibv_alloc_pd(context);
	mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	init.send_cq = init.recv_cq = cq;
	qp = ibv_create_qp(pd, &init);
	CHECK(mr && qp, "errno %d", errno);
	CHECK_EQ(ibv_destroy_qp(qp), 0);
	CHECK_EQ(ibv_dereg_mr(mr), 0);
	CHECK_EQ(ibv_destroy_cq(cq), 0);
	CHECK_EQ(ibv_dealloc_pd(pd), 0);
	CHECK_EQ(ibv_close_device(context), 0);
	ibv_free_device_list(list);
	sim_unlock(&world->seg->lock);
	alarm(0);
	sim_world_use(NULL);
	sim_world_close(world);
}
