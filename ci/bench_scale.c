/* SPDX-License-Identifier: MIT */
/*
 * The cost of one operation of the emulated device as it fills up, in one
 * process: bench_scale QPS REGIONS OPERATIONS BYTES. Each queue pair is
 * connected to its neighbour; writes go round them. Prints nanoseconds.
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(condition)                                                  \
	do {                                                              \
		if (!(condition)) {                                       \
			fprintf(stderr, "bench_scale: %s\n", #condition); \
			exit(1);                                          \
		}                                                         \
	} while (0)

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;

static struct ibv_qp *make(void)
{
	struct ibv_qp_init_attr init = {.send_cq = cq,
					.recv_cq = cq,
					.cap = {64, 1, 1, 1, 0},
					.qp_type = IBV_QPT_RC};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);

	CHECK(qp);
	return qp;
}

static void bring(struct ibv_qp *qp, uint32_t far)
{
	struct ibv_qp_attr attr = {
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = far,
		.ah_attr = {.port_num = 1, .is_global = 1},
		.max_rd_atomic = 1,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
	};

	attr.ah_attr.grh.sgid_index = 1;
	CHECK(ibv_query_gid(context, 1, 1, &attr.ah_attr.grh.dgid) == 0);
	attr.qp_state = IBV_QPS_INIT;
	CHECK(ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				    IBV_QP_ACCESS_FLAGS) == 0);
	attr.qp_state = IBV_QPS_RTR;
	CHECK(ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				    IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER) == 0);
	attr.qp_state = IBV_QPS_RTS;
	CHECK(ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
				    IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				    IBV_QP_MAX_QP_RD_ATOMIC) == 0);
}

static struct ibv_mr **register_all(char *memory, size_t bytes, int count)
{
	struct ibv_mr **mr = calloc((size_t)count, sizeof(*mr));

	CHECK(mr);
	for (int i = 0; i < count; i++) {
		mr[i] = ibv_reg_mr(pd, memory, bytes,
				   IBV_ACCESS_LOCAL_WRITE |
					   IBV_ACCESS_REMOTE_WRITE);
		CHECK(mr[i]);
	}
	return mr;
}

/* One write, and its completion. */
static void write_one(struct ibv_qp *qp, struct ibv_mr *mr, char *memory,
		      uint32_t bytes)
{
	struct ibv_sge sge = {(uintptr_t)memory, bytes, mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	wr.wr.rdma.remote_addr = (uintptr_t)memory + bytes;
	wr.wr.rdma.rkey = mr->rkey;
	CHECK(ibv_post_send(qp, &wr, &bad) == 0);
	while (ibv_poll_cq(cq, 1, &wc) == 0)
		;
	CHECK(wc.status == IBV_WC_SUCCESS);
}

static double now_ns(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return (double)at.tv_sec * 1e9 + (double)at.tv_nsec;
}

int main(int argc, char **argv)
{
	int qps, regions;
	long operations;
	uint32_t bytes;
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp **qp;
	struct ibv_mr **mr;
	char *memory;
	double start;

	CHECK(argc == 5 && list && list[0]);
	qps = atoi(argv[1]) < 2 ? 2 : atoi(argv[1]);
	regions = atoi(argv[2]);
	operations = atol(argv[3]);
	bytes = (uint32_t)atol(argv[4]);
	context = ibv_open_device(list[0]);
	CHECK(context);
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 1024, NULL, NULL, 0);
	memory = calloc(2, bytes);
	qp = calloc((size_t)qps, sizeof(struct ibv_qp *));
	CHECK(pd && cq && memory && qp);
	mr = register_all(memory, 2 * (size_t)bytes, regions);
	for (int i = 0; i < qps; i++)
		qp[i] = make();
	for (int i = 0; i < qps; i++)
		bring(qp[i], qp[i ^ 1]->qp_num);
	for (long i = 0; i < operations / 10; i++)
		write_one(qp[i % qps], mr[i % regions], memory, bytes);
	start = now_ns();
	for (long i = 0; i < operations; i++)
		write_one(qp[i % qps], mr[i % regions], memory, bytes);
	printf("%.1f\n", (now_ns() - start) / (double)operations);
	return 0;
}
