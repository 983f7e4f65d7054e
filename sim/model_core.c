/* SPDX-License-Identifier: MIT */
/*
 * What InfiniBand-like devices share: rules of the kernel's core and of the
 * models' own limits. Section numbers are those of spec/device-models.md.
 */
#define _GNU_SOURCE
#include "sim/model.h"

#include <errno.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sim/diag.h"

int sim_model_check_mr(const struct sim_host *host, uint64_t addr,
		       uint64_t length, uint32_t access)
{
	const uint32_t writes =
		IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	const uint32_t known = IBV_ACCESS_LOCAL_WRITE | writes |
			       IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND |
			       IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB |
			       IBV_ACCESS_OPTIONAL_RANGE;

	if (access & ~known) {
		sim_diag(sim_model_of(host)->name, "3.1",
			 "reg_mr refused: access flags 0x%x", access);
		return access & IBV_ACCESS_ON_DEMAND ? -EOPNOTSUPP : -EINVAL;
	}
	if ((access & writes) && !(access & IBV_ACCESS_LOCAL_WRITE)) {
		sim_diag(sim_model_of(host)->name, "3.1",
			 "reg_mr refused: remote writes (0x%x) need "
			 "LOCAL_WRITE",
			 access);
		return -EINVAL;
	}
	if (addr + length < addr || (length == 0 && addr % 4096 == 0))
		return -EINVAL;
	return 0;
}

bool sim_has_capability(int capability)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3,
						  0};
	struct __user_cap_data_struct have[_LINUX_CAPABILITY_U32S_3];

	return syscall(SYS_capget, &header, have) == 0 &&
	       (have[capability / 32].effective >> capability % 32 & 1);
}

int sim_model_check_qp(const struct sim_qp_request *request)
{
	const struct sim_model *model = sim_model_of(request->host);
	const struct ibv_qp_init_attr *attr = request->attr;
	const struct ibv_qp_cap *cap = &attr->cap;
	uint32_t max_wr = (uint32_t)request->host->attr.max_qp_wr;
	/* 2.7: others are unknown to the core, before any driver sees them. */
	const uint32_t core_types =
		1u << IBV_QPT_RC | 1u << IBV_QPT_UC | 1u << IBV_QPT_UD |
		1u << IBV_QPT_RAW_PACKET | 1u << IBV_QPT_XRC_SEND |
		1u << IBV_QPT_XRC_RECV;

	if ((attr->qp_type > 31u || !(core_types >> attr->qp_type & 1)) &&
	    attr->qp_type != IBV_QPT_DRIVER)
		return -EINVAL;
	if (attr->qp_type == IBV_QPT_RAW_PACKET &&
	    !sim_has_capability(CAP_NET_RAW)) {
		sim_diag(model->name, "3.1: needs CAP_NET_RAW",
			 "create_qp refused: RAW_PACKET");
		return -EPERM;
	}
	if (attr->qp_type > 31u ||
	    !(request->host->qp_types >> attr->qp_type & 1)) {
		sim_diag(model->name, "2.7: no such queue pairs here",
			 "create_qp refused: type %d", attr->qp_type);
		return -EOPNOTSUPP;
	}
	if (cap->max_send_sge > model->max_send_sge ||
	    cap->max_recv_sge > model->max_recv_sge ||
	    cap->max_inline_data > model->max_inline ||
	    cap->max_send_wr > max_wr || cap->max_recv_wr > max_wr) {
		sim_diag(model->name, "2.2, 2.9",
			 "create_qp refused: %u/%u requests, %u/%u sges, %u "
			 "inline bytes asked",
			 cap->max_send_wr, cap->max_recv_wr, cap->max_send_sge,
			 cap->max_recv_sge, cap->max_inline_data);
		return -EINVAL;
	}
	return 0;
}

int sim_model_check_modify(const struct sim_host *host, const struct sim_qp *qp,
			   const struct ibv_qp_attr *attr, int mask)
{
	const struct sim_model *model = sim_model_of(host);

	(void)qp;
	if ((mask & IBV_QP_PATH_MTU) &&
	    (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096))
		return -EINVAL;
	if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) &&
	    attr->max_rd_atomic > host->attr.max_qp_init_rd_atom)
		return -EINVAL;
	if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) &&
	    attr->max_dest_rd_atomic > host->attr.max_qp_rd_atom)
		return -EINVAL;
	if ((mask & IBV_QP_TIMEOUT) && attr->timeout > 31)
		return -EINVAL;
	if ((mask & IBV_QP_QKEY) && attr->qkey >> 31 &&
	    !sim_has_capability(CAP_NET_RAW)) {
		sim_diag(model->name,
			 "3.1: a key with bit 31 needs CAP_NET_RAW",
			 "modify_qp refused: qkey 0x%x", attr->qkey);
		return -EPERM;
	}
	if ((mask & IBV_QP_AV) && attr->ah_attr.is_global &&
	    attr->ah_attr.grh.sgid_index >= host->gid_count) {
		sim_diag(model->name, "3.1",
			 "modify_qp refused: sgid_index %d of a "
			 "table of %d",
			 attr->ah_attr.grh.sgid_index, host->gid_count);
		return -EINVAL;
	}
	if ((mask & IBV_QP_AV) && !attr->ah_attr.is_global &&
	    host->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET) {
		sim_diag(model->name, "3.1: RoCE without GRH",
			 "modify_qp refused: is_global is 0");
		return -EINVAL;
	}
	return 0;
}

int sim_model_check_send(const struct sim_host *host, const struct sim_qp *qp,
			 const struct ibv_send_wr *wr, uint64_t len)
{
	(void)len;
	if (sim_is_opcode(wr->opcode))
		return 0;
	sim_diag(sim_model_of(host)->name,
		 "3.5: numbers outside the table are refused at post",
		 "post_send refused on qp 0x%x: opcode %d", qp->qp_num,
		 wr->opcode);
	return -EINVAL;
}

enum ibv_qp_state sim_model_recv_from(const struct sim_host *host)
{
	(void)host;
	return IBV_QPS_INIT;
}

enum sim_no_recv sim_model_no_recv(const struct sim_qp *qp)
{
	return qp->type == IBV_QPT_RC || qp->type == IBV_QPT_XRC_SEND
		       ? SIM_NO_RECV_RNR
		       : SIM_NO_RECV_DROP;
}

/* RC: a responder that expects another PSN answers nothing of use. UC takes
 * whatever starts a message (5.4). */
bool sim_model_psn_ok(const struct sim_host *host, const struct sim_qp *from,
		      const struct sim_qp *to)
{
	(void)host;
	return from->type == IBV_QPT_UC || from->attr.sq_psn == to->attr.rq_psn;
}

void sim_model_init_host(struct sim_host *host, uint64_t guid, uint32_t types,
			 int loopbacks)
{
	host->guid = guid;
	host->gid_count = 0;
	for (int n = 0; n <= loopbacks; n++)
		for (unsigned type = 0; type < 32; type++)
			if (types >> type & 1)
				sim_model_add_gid(host, n, guid,
						  (enum ibv_gid_type)type);
	host->port[0].state = IBV_PORT_DOWN;
	host->port_count = 1;
	host->active_port = 1;
}
