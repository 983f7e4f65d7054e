/* SPDX-License-Identifier: MIT */
/* Address handles: where a datagram goes, kept in the program's memory. */
#include "sim/verbs_front.h"

#include <endian.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "sim/diag.h"

static int check(struct ibv_context *context, const struct ibv_ah_attr *attr)
{
	struct sim_ctx *ctx = ctx_of(context);
	const struct sim_host *host = sim_host_of(ctx->world, ctx->host);

	if (attr->port_num < 1 || attr->port_num > host->port_count)
		return -EINVAL;
	if (attr->is_global && attr->grh.sgid_index >= host->gid_count)
		return -EINVAL;
	/* 3.1: RoCE has no addresses but global ones. */
	if (!attr->is_global &&
	    host->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET) {
		sim_diag(sim_model_of(host)->name, "3.1: RoCE without GRH",
			 "create_ah refused: is_global is 0");
		return -EINVAL;
	}
	return 0;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct ibv_context *context = pd->context;
	struct sim_ah *it;
	int rc = check(context, attr);

	if (!rc)
		rc = sim_check_dgid(ctx_of(context), attr->grh.dgid.raw);
	if (!front_host(context)->attr.max_ah)
		rc = -EOPNOTSUPP;
	if (rc)
		return fail_ptr(rc);
	it = calloc(1, sizeof(*it));
	if (!it)
		return fail_ptr(-ENOMEM);
	it->ah.context = context;
	it->ah.pd = pd;
	memcpy(it->av.dgid, attr->grh.dgid.raw, 16);
	it->av.flow_label = attr->grh.flow_label;
	it->av.dlid = attr->dlid;
	it->av.is_global = attr->is_global;
	it->av.port = attr->port_num;
	it->av.sl = attr->sl;
	it->av.sgid_index = attr->grh.sgid_index;
	it->av.traffic_class = attr->grh.traffic_class;
	it->av.hop_limit = attr->grh.hop_limit;
	/* 3.1: a domain with address handles is busy. */
	__atomic_add_fetch(&((struct front_pd *)pd)->children, 1,
			   __ATOMIC_ACQ_REL);
	return &it->ah;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	__atomic_sub_fetch(&((struct front_pd *)ah->pd)->children, 1,
			   __ATOMIC_ACQ_REL);
	free((struct sim_ah *)ah);
	return 0;
}

/* The index of a GID with this type, -1 when there is none. */
static int find_gid(struct ibv_context *context, const uint8_t gid[16],
		    enum ibv_gid_type type)
{
	const struct sim_host *host = front_host(context);

	for (int i = 0; i < host->gid_count; i++)
		if (host->gid_type[i] == type &&
		    memcmp(host->gid[i], gid, 16) == 0)
			return i;
	return -1;
}

/* Who sent to whom, by what kind of packet: what is in the 40 bytes before a
 * datagram tells. */
struct path {
	uint8_t from[16], to[16];
	enum ibv_gid_type type;
	uint32_t flow_label;
	uint8_t traffic_class, hop_limit;
};

static void read_path(struct ibv_context *context, const struct ibv_grh *grh,
		      struct path *path)
{
	const uint8_t *ipv4 = (const uint8_t *)grh + 20;
	bool is_ethernet = front_host(context)->port_attr.link_layer ==
			   IBV_LINK_LAYER_ETHERNET;

	if (is_ethernet && ipv4[0] == 0x45 && sim_ipv4_sum(ipv4) == 0xffff) {
		memset(path, 0, sizeof(*path));
		path->from[10] = path->from[11] = 0xff;
		path->to[10] = path->to[11] = 0xff;
		memcpy(path->from + 12, ipv4 + 12, 4);
		memcpy(path->to + 12, ipv4 + 16, 4);
		path->type = IBV_GID_TYPE_ROCE_V2;
		path->traffic_class = ipv4[1];
		path->hop_limit = ipv4[8];
		return;
	}
	path->flow_label = be32toh(grh->version_tclass_flow) & 0xfffff;
	path->traffic_class =
		(uint8_t)(be32toh(grh->version_tclass_flow) >> 20);
	path->hop_limit = grh->hop_limit;
	memcpy(path->from, grh->sgid.raw, 16);
	memcpy(path->to, grh->dgid.raw, 16);
	path->type = !is_ethernet		    ? IBV_GID_TYPE_IB
		     : grh->next_hdr == IPPROTO_UDP ? IBV_GID_TYPE_ROCE_V2
						    : IBV_GID_TYPE_ROCE_V1;
}

/* The way back to who sent this. */
int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port,
			struct ibv_wc *wc, struct ibv_grh *grh,
			struct ibv_ah_attr *attr)
{
	struct path path;
	int index;

	memset(attr, 0, sizeof(*attr));
	attr->dlid = wc->slid;
	attr->sl = wc->sl;
	attr->src_path_bits = wc->dlid_path_bits;
	attr->port_num = port;
	if (!(wc->wc_flags & IBV_WC_GRH))
		return 0;
	read_path(context, grh, &path);
	index = find_gid(context, path.to, path.type);
	if (index < 0)
		return -1;
	attr->is_global = 1;
	memcpy(attr->grh.dgid.raw, path.from, 16);
	attr->grh.sgid_index = (uint8_t)index;
	attr->grh.flow_label = path.flow_label;
	attr->grh.traffic_class = path.traffic_class;
	attr->grh.hop_limit = path.hop_limit;
	return 0;
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc,
				     struct ibv_grh *grh, uint8_t port)
{
	struct ibv_ah_attr attr;

	if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr))
		return NULL;
	return ibv_create_ah(pd, &attr);
}
