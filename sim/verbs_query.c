/* SPDX-License-Identifier: MIT */
/* Attributes of devices and ports, GIDs and partition keys. */
#include "sim/verbs_front.h"

#include <endian.h>
#include <string.h>

static void fill_device(const struct sim_host *host,
			struct ibv_device_attr *attr)
{
	*attr = host->attr;
	attr->node_guid = htobe64(host->guid);
	attr->sys_image_guid = htobe64(host->guid);
	attr->phys_port_cnt = (uint8_t)host->port_count;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	int error = front_tap(context, SIM_CALL_QUERY_DEVICE);

	if (error)
		return error;
	fill_device(front_host(context), attr);
	return 0;
}

int front_query_device_ex(struct ibv_context *context,
			  const struct ibv_query_device_ex_input *input,
			  struct ibv_device_attr_ex *out, size_t size)
{
	struct ibv_device_attr_ex attr;
	int error = front_tap(context, SIM_CALL_QUERY_DEVICE);

	if (error)
		return error;
	if (input && input->comp_mask)
		return EINVAL;
	if (size < sizeof(attr.orig_attr))
		return EINVAL;
	memset(&attr, 0, sizeof(attr));
	fill_device(front_host(context), &attr.orig_attr);
	attr.device_cap_flags_ex = attr.orig_attr.device_cap_flags;
	attr.phys_port_cnt_ex = attr.orig_attr.phys_port_cnt;
	attr.max_dm_size = front_model(context)->dm_bytes;
	attr.hca_core_clock = front_host(context)->clock_khz;
	if (attr.hca_core_clock)
		attr.completion_timestamp_mask = INT64_MAX;
	if (front_host(context)->qp_types >> IBV_QPT_RAW_PACKET & 1)
		attr.max_wq_type_rq = (uint32_t)front_model(context)->qp_limit;
	if (front_model(context)->has_moderation) {
		attr.cq_mod_caps.max_cq_count = 65535;
		attr.cq_mod_caps.max_cq_period = 4095;
	}
	/* A field beyond the caller's size is not written (2.3). */
	memset(out, 0, size);
	memcpy(out, &attr, size < sizeof(attr) ? size : sizeof(attr));
	return 0;
}

int front_query_port(struct ibv_context *context, uint8_t port,
		     struct ibv_port_attr *out, size_t size)
{
	const struct sim_host *host = front_host(context);
	struct ibv_port_attr attr = host->port_attr;
	int error = front_tap(context, SIM_CALL_QUERY_PORT);

	if (error)
		return error;
	if (port < 1 || port > host->port_count)
		return EINVAL;
	attr.state = host->port[port - 1].state;
	attr.lid = host->port[port - 1].lid;
	if (attr.state != IBV_PORT_ACTIVE)
		attr.phys_state = 3; /* disabled */
	memset(out, 0, size);
	memcpy(out, &attr, size < sizeof(attr) ? size : sizeof(attr));
	return 0;
}

/* The export that older, inlined callers reach: a shorter struct, which ends
 * before port_cap_flags2. */
int ibv_query_port(struct ibv_context *context, uint8_t port,
		   struct _compat_ibv_port_attr *attr)
{
	return front_query_port(context, port, (struct ibv_port_attr *)attr,
				offsetof(struct ibv_port_attr,
					 port_cap_flags2));
}

static bool is_gid_index(const struct sim_host *host, uint32_t port,
			 uint32_t index)
{
	return port >= 1 && port <= (uint32_t)host->port_count &&
	       index < (uint32_t)host->port_attr.gid_tbl_len;
}

static bool is_gid_empty(const struct sim_host *host, uint32_t index)
{
	static const uint8_t zero[16];

	return memcmp(sim_gid_at(host, index), zero, 16) == 0;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index,
		  union ibv_gid *gid)
{
	const struct sim_host *host = front_host(context);
	int error = front_tap(context, SIM_CALL_QUERY_GID);

	if (!error && (index < 0 || !is_gid_index(host, port, (uint32_t)index)))
		error = EINVAL;
	if (error) {
		errno = error;
		return -1;
	}
	memcpy(gid->raw, sim_gid_at(host, (uint32_t)index), 16);
	return 0;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port,
		      uint32_t index, struct ibv_gid_entry *out, uint32_t flags,
		      size_t size)
{
	const struct sim_host *host = front_host(context);
	struct ibv_gid_entry entry = {.gid_index = index, .port_num = port};
	int error = front_tap(context, SIM_CALL_QUERY_GID);

	if (error)
		return error;
	if (flags)
		return EOPNOTSUPP;
	if (size < sizeof(entry) || !is_gid_index(host, port, index))
		return EINVAL;
	if (is_gid_empty(host, index))
		return ENODATA;
	memcpy(entry.gid.raw, host->gid[index], 16);
	entry.gid_type = host->gid_type[index];
	memset(out, 0, size);
	memcpy(out, &entry, sizeof(entry));
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context,
			     struct ibv_gid_entry *entries, size_t max,
			     uint32_t flags, size_t size)
{
	const struct sim_host *host = front_host(context);
	size_t count = 0;

	if (flags)
		return -EOPNOTSUPP;
	if (size < sizeof(*entries))
		return -EINVAL;
	for (uint32_t i = 0; i < (uint32_t)host->gid_count; i++) {
		void *at = (char *)entries + count * size;

		if (is_gid_empty(host, i))
			continue;
		if (count == max)
			return -EINVAL;
		if (_ibv_query_gid_ex(context, 1, i, at, 0, size) == 0)
			count++;
	}
	return (ssize_t)count;
}

/* A private export that ibv_devinfo and pyverbs import all the same. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port,
		       unsigned int index, int *type);
int ibv_query_gid_type(struct ibv_context *context, uint8_t port,
		       unsigned int index, int *type)
{
	const struct sim_host *host = front_host(context);

	if (!is_gid_index(host, port, index)) {
		errno = EINVAL;
		return -1;
	}
	/* 0 is IB or RoCE v1, 1 RoCE v2. */
	*type = !is_gid_empty(host, index) &&
		host->gid_type[index] == IBV_GID_TYPE_ROCE_V2;
	return 0;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index,
		   __be16 *pkey)
{
	const struct sim_host *host = front_host(context);

	if (port < 1 || port > host->port_count || index < 0 ||
	    index >= host->port_attr.pkey_tbl_len) {
		errno = EINVAL;
		return -1;
	}
	*pkey = index == 0 ? htobe16(0xffff) : 0;
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	__be16 have;

	for (int i = 0; ibv_query_pkey(context, port, i, &have) == 0; i++)
		if (have == pkey)
			return i;
	return -1;
}
