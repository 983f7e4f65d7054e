/* SPDX-License-Identifier: MIT */
/*
 * Processes that die: `verbena run -w NAME -- stress SECONDS`. Four workers,
 * eight queue pairs between any two, sends of all sizes and reads, each byte
 * checked; two workers are killed every second and take their places anew. Exit
 * 1 when a worker saw a wrong byte, or none moved for ten seconds.
 */
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORKERS	  4
#define QPS	  8
#define DEPTH	  16
#define MESSAGE	  12288
#define STILL_SEC 10
#define ACCESS                                             \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | \
	 IBV_ACCESS_REMOTE_WRITE)

/* What a worker tells the others of itself. */
struct entry {
	_Atomic uint32_t life; /* 0: not there; else which one this is */
	_Atomic uint64_t beats;
	_Atomic uint64_t messages, reads;
	uint32_t qp_num[WORKERS][QPS];
	/* The life of the other that a queue pair is set up for. */
	_Atomic uint32_t faces[WORKERS][QPS];
	uint64_t fixed; /* MESSAGE bytes that never change, and their key */
	uint32_t rkey;
};

static struct entry *table;

struct link {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	uint32_t peer_life; /* that it is connected to; 0 none */
	uint32_t sent;
	bool is_busy; /* a send or read is under way */
	bool is_read;
	uint8_t *out, *in; /* MESSAGE, and DEPTH * MESSAGE bytes */
};

struct worker {
	int me;
	uint32_t life;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	uint8_t *memory, *fixed;
	struct link link[WORKERS][QPS];
};

static void die(const char *what)
{
	fprintf(stderr, "stress: %s\n", what);
	_exit(1);
}

static uint8_t byte_of(uint32_t seed, uint32_t at)
{
	return (uint8_t)(seed * 131 + at * 17 + (at >> 8));
}

/* A message: its seed and length, and bytes that follow from them. */
static void write_message(uint8_t *to, uint32_t seed, uint32_t len)
{
	memcpy(to, &seed, 4);
	memcpy(to + 4, &len, 4);
	for (uint32_t at = 8; at < len; at++)
		to[at] = byte_of(seed, at);
}

static bool is_whole(const uint8_t *from, uint32_t len)
{
	uint32_t seed, told;

	memcpy(&seed, from, 4);
	memcpy(&told, from + 4, 4);
	if (told != len)
		return false;
	for (uint32_t at = 8; at < len; at++)
		if (from[at] != byte_of(seed, at))
			return false;
	return true;
}

static void post_recv(struct worker *w, struct link *link, uint64_t slot)
{
	struct ibv_sge sge = {(uintptr_t)link->in + slot * MESSAGE, MESSAGE,
			      w->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = slot, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;

	if (ibv_post_recv(link->qp, &wr, &bad))
		die("post_recv");
}

static void set_up(struct worker *w)
{
	const size_t per_link = (size_t)MESSAGE * (DEPTH + 1);
	const size_t bytes = per_link * WORKERS * QPS + MESSAGE;
	struct ibv_device **list = ibv_get_device_list(NULL);
	uint8_t *at;

	if (!list)
		die("no world");
	w->context = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	w->pd = ibv_alloc_pd(w->context);
	w->memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
	w->mr = ibv_reg_mr(w->pd, w->memory, bytes, ACCESS);
	if (!w->mr)
		die("reg_mr");
	w->fixed = w->memory;
	write_message(w->fixed, (uint32_t)w->me + 1, MESSAGE);
	at = w->memory + MESSAGE;
	for (int i = 0; i < WORKERS; i++)
		for (int k = 0; k < QPS; k++, at += per_link) {
			struct link *link = &w->link[i][k];
			struct ibv_qp_init_attr init = {.cap = {DEPTH, DEPTH, 1,
								1, 0},
							.qp_type = IBV_QPT_RC,
							.sq_sig_all = 1};

			link->out = at;
			link->in = at + MESSAGE;
			link->cq = ibv_create_cq(w->context, 4 * DEPTH, NULL,
						 NULL, 0);
			init.send_cq = init.recv_cq = link->cq;
			link->qp = ibv_create_qp(w->pd, &init);
			if (!link->qp)
				die("create_qp");
			table[w->me].qp_num[i][k] = link->qp->qp_num;
			atomic_store(&table[w->me].faces[i][k], 0);
		}
	table[w->me].fixed = (uintptr_t)w->fixed;
	table[w->me].rkey = w->mr->rkey;
	atomic_store(&table[w->me].life, w->life);
}

static void modify(struct ibv_qp *qp, struct ibv_qp_attr *attr,
		   enum ibv_qp_state state, int mask)
{
	attr->qp_state = state;
	if (ibv_modify_qp(qp, attr, mask | IBV_QP_STATE))
		die("modify_qp");
}

/* Towards this life of the other; what was under way is forgotten. */
static void turn_to(struct worker *w, int peer, int k, uint32_t life)
{
	struct link *link = &w->link[peer][k];
	struct ibv_qp_attr attr = {
		.port_num = 1,
		.qp_access_flags = ACCESS,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = table[peer].qp_num[w->me][k],
		.max_dest_rd_atomic = 4,
		.max_rd_atomic = 4,
		.min_rnr_timer = 1,
		.timeout = 10,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = {.port_num = 1, .is_global = 1},
	};
	struct ibv_wc wc;

	modify(link->qp, &attr, IBV_QPS_RESET, 0);
	while (ibv_poll_cq(link->cq, 1, &wc) > 0)
		;
	link->is_busy = false;
	attr.ah_attr.grh.sgid_index = 1;
	ibv_query_gid(w->context, 1, 1, &attr.ah_attr.grh.dgid);
	modify(link->qp, &attr, IBV_QPS_INIT,
	       IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	for (uint64_t slot = 0; slot < DEPTH; slot++)
		post_recv(w, link, slot);
	modify(link->qp, &attr, IBV_QPS_RTR,
	       IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	modify(link->qp, &attr, IBV_QPS_RTS,
	       IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
		       IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
	link->peer_life = life;
	atomic_store(&table[w->me].faces[peer][k], life);
}

static void post_one(struct worker *w, int peer, struct link *link)
{
	uint32_t seed = (uint32_t)rand();
	uint32_t len = 8 + seed % 3 * (seed % 97) + seed % 5 * (seed % 2000);
	struct ibv_sge sge = {(uintptr_t)link->out, 0, w->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = DEPTH, .sg_list = &sge, .num_sge = 1};
	struct ibv_send_wr *bad;

	link->is_read = link->sent++ % 8 == 7;
	if (link->is_read) {
		wr.opcode = IBV_WR_RDMA_READ;
		wr.wr.rdma.remote_addr = table[peer].fixed;
		wr.wr.rdma.rkey = table[peer].rkey;
		sge.length = MESSAGE;
	} else {
		wr.opcode = IBV_WR_SEND;
		sge.length = len > MESSAGE ? MESSAGE : len;
		write_message(link->out, seed, sge.length);
	}
	link->is_busy = true;
	if (ibv_post_send(link->qp, &wr, &bad))
		die("post_send");
}

/* False: the queue pair has failed and is connected anew. */
static bool take_all(struct worker *w, struct link *link)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(link->cq, 1, &wc) > 0) {
		atomic_fetch_add(&table[w->me].beats, 1);
		if (wc.status)
			return false;
		if (wc.wr_id == DEPTH) {
			if (link->is_read && !is_whole(link->out, MESSAGE))
				die("wrong byte in a read");
			atomic_fetch_add(&table[w->me].reads, link->is_read);
			link->is_busy = false;
			continue;
		}
		if (!is_whole(link->in + wc.wr_id * MESSAGE, wc.byte_len))
			die("wrong byte in a message");
		atomic_fetch_add(&table[w->me].messages, 1);
		post_recv(w, link, wc.wr_id);
	}
	return true;
}

static void step(struct worker *w, int peer, int k)
{
	struct link *link = &w->link[peer][k];
	uint32_t life = atomic_load(&table[peer].life);

	if (!life)
		return;
	if (link->peer_life != life || !take_all(w, link)) {
		/* The other has to turn to us anew as well. */
		turn_to(w, peer, k, life);
		return;
	}
	if (!link->is_busy &&
	    atomic_load(&table[peer].faces[w->me][k]) == w->life)
		post_one(w, peer, link);
}

static void work(int me, uint32_t life)
{
	static struct worker w;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	srand(life);
	w.me = me;
	w.life = life;
	set_up(&w);
	for (;;)
		for (int peer = 0; peer < WORKERS; peer++)
			for (int k = 0; k < QPS && peer != me; k++)
				step(&w, peer, k);
}

static pid_t start(int me, uint32_t life)
{
	pid_t pid;

	atomic_store(&table[me].life, 0);
	pid = fork();
	if (pid == 0)
		work(me, life);
	return pid;
}

static long long world_bytes(void)
{
	char path[256];
	struct stat st;

	snprintf(path, sizeof(path), "/dev/shm/verbena.%s",
		 getenv("VERBENA_WORLD"));
	return stat(path, &st) ? -1 : st.st_size;
}

static uint64_t sum(size_t offset)
{
	uint64_t total = 0;

	for (int i = 0; i < WORKERS; i++)
		total += *(_Atomic uint64_t *)((char *)&table[i] + offset);
	return total;
}

static void end_all(const pid_t *pids)
{
	for (int i = 0; i < WORKERS; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
}

int main(int argc, char **argv)
{
	int seconds = argc > 1 ? atoi(argv[1]) : 60, still = 0, status;
	uint32_t life = 0;
	uint64_t before = 0;
	long long bytes = 0;
	pid_t pids[WORKERS];

	table = mmap(NULL, sizeof(*table) * WORKERS, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (table == MAP_FAILED || !getenv("VERBENA_WORLD"))
		die("run me with verbena run");
	srand((unsigned)time(NULL));
	for (int i = 0; i < WORKERS; i++)
		pids[i] = start(i, ++life);
	for (int second = 0; second < seconds; second++) {
		int first = rand() % WORKERS;

		sleep(1);
		for (int i = 0; i < WORKERS; i++)
			if (waitpid(pids[i], &status, WNOHANG) != 0) {
				end_all(pids);
				die("a worker ended by itself");
			}
		still = sum(offsetof(struct entry, beats)) == before ? still + 1
								     : 0;
		before = sum(offsetof(struct entry, beats));
		if (still == STILL_SEC) {
			end_all(pids);
			die("nothing moves");
		}
		if (bytes && world_bytes() != bytes)
			die("the world has grown");
		bytes = world_bytes();
		for (int i = 0; i < 2; i++) {
			int who = (first + i) % WORKERS;

			kill(pids[who], SIGKILL);
			waitpid(pids[who], NULL, 0);
			pids[who] = start(who, ++life);
		}
	}
	end_all(pids);
	printf("%d s, %u lives, %llu messages and %llu reads, each byte right; "
	       "world of %lld bytes\n",
	       seconds, life,
	       (unsigned long long)sum(offsetof(struct entry, messages)),
	       (unsigned long long)sum(offsetof(struct entry, reads)), bytes);
	return 0;
}
