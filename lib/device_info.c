/* SPDX-License-Identifier: MIT */
/*
 * What a device says of itself: attributes, ports, GIDs with their types (rows
 * I of spec/registry.md). The library is asked first; only the type of a GID
 * that it does not tell comes from sysfs.
 */
#include "lib/registry.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t zero[16];

/* --- GIDs --- */

static bool is_mapped(const uint8_t raw[16])
{
	static const uint8_t prefix[12] = {[10] = 0xff, 0xff};

	return memcmp(raw, prefix, sizeof(prefix)) == 0;
}

enum vb_gid_scope vb_gid_scope_of(const uint8_t raw[16])
{
	static const uint8_t loopback[16] = {[15] = 1};

	if (memcmp(raw, loopback, 16) == 0 ||
	    (is_mapped(raw) && raw[12] == 127))
		return VB_GID_LOOPBACK;
	if ((raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80) ||
	    (is_mapped(raw) && raw[12] == 169 && raw[13] == 254))
		return VB_GID_LINK_LOCAL;
	if (raw[0] == 0xfe && (raw[1] & 0xc0) == 0xc0)
		return VB_GID_SITE_LOCAL;
	return VB_GID_GLOBAL;
}

/* "RoCE v2\n" of sysfs; Unknown, and one warning, when it cannot be read. */
static enum vb_gid_type read_type(struct vb_registry *registry,
				  const char *device, unsigned port,
				  uint32_t index)
{
	char path[256], text[32] = "";
	FILE *file;

	snprintf(path, sizeof(path),
		 "%s/class/infiniband/%s/ports/%u/gid_attrs/types/%u",
		 registry->sysfs, device, port, index);
	file = fopen(path, "re");
	if (file && !fgets(text, sizeof(text), file))
		text[0] = 0;
	if (file)
		fclose(file);
	text[strcspn(text, "\n")] = 0;
	if (strcmp(text, "RoCE v2") == 0)
		return VB_GID_ROCE_V2;
	if (strcmp(text, "IB/RoCE v1") == 0)
		return VB_GID_IB_ROCE_V1;
	vb_registry_log(registry, VB_LOG_WARNING,
			"%s: type '%s' of a GID: taken as unknown", path, text);
	return VB_GID_UNKNOWN;
}

/* One entry of the table; false: it is empty, or cannot be read. */
static bool read_gid(struct vb_registry *registry, struct ibv_context *context,
		     const char *device, unsigned port, uint32_t index,
		     struct vb_gid *gid)
{
	bool has_type;
	int rc = vb_query_gid(registry->verbs, context, (uint8_t)port, index,
			      gid, &has_type);

	if (rc || memcmp(gid->raw, zero, 16) == 0)
		return false;
	if (!has_type)
		gid->type = read_type(registry, device, port, index);
	gid->index = index;
	gid->scope = vb_gid_scope_of(gid->raw);
	return true;
}

static int read_gids(struct vb_registry *registry, struct ibv_context *context,
		     const char *device, struct vb_port *port)
{
	uint32_t len = port->gid_table_len < VB_GID_LIMIT ? port->gid_table_len
							  : VB_GID_LIMIT;
	struct vb_gid *gids = calloc(len ? len : 1, sizeof(*gids));
	struct vb_gid *fitting;

	if (!gids)
		return -ENOMEM;
	for (uint32_t i = 0; i < len; i++)
		if (read_gid(registry, context, device, port->num, i,
			     &gids[port->gid_count]))
			port->gid_count++;
	fitting =
		realloc(gids, sizeof(*gids) * (size_t)(port->gid_count
							       ? port->gid_count
							       : 1));
	port->gids = fitting ? fitting : gids;
	return 0;
}

/* --- ports and attributes --- */

static void read_port(const struct ibv_port_attr *attr, struct vb_port *port)
{
	port->state = (uint8_t)attr->state;
	port->phys_state = attr->phys_state;
	port->link_layer = attr->link_layer;
	port->lmc = attr->lmc;
	port->active_width = attr->active_width;
	port->active_speed = attr->active_speed;
	port->active_mtu = (uint8_t)attr->active_mtu;
	port->max_mtu = (uint8_t)attr->max_mtu;
	port->lid = attr->lid;
	port->sm_lid = attr->sm_lid;
	port->pkey_count = attr->pkey_tbl_len;
	port->capabilities = attr->port_cap_flags;
	port->max_msg_bytes = attr->max_msg_sz;
	port->gid_table_len =
		attr->gid_tbl_len > 0 ? (uint32_t)attr->gid_tbl_len : 0;
}

static int read_ports(struct vb_registry *registry, struct ibv_context *context,
		      unsigned count, struct vb_device_info *info)
{
	int rc = 0;

	info->ports = calloc(count ? count : 1, sizeof(*info->ports));
	if (!info->ports)
		return -ENOMEM;
	for (unsigned num = 1; !rc && num <= count; num++) {
		struct vb_port *port = &info->ports[info->port_count];
		struct ibv_port_attr attr;
		int failed = vb_query_port(registry->verbs, context,
					   (uint8_t)num, &attr);

		if (failed) {
			vb_registry_log(registry, VB_LOG_INFO,
					"port %u of %s is left out: "
					"query_port: %s",
					num, info->name, strerror(abs(failed)));
			continue;
		}
		port->num = (uint8_t)num;
		read_port(&attr, port);
		info->port_count++;
		rc = read_gids(registry, context, info->name, port);
	}
	return rc;
}

int vb_info_query(struct vb_registry *registry, struct ibv_context *context,
		  struct vb_device_info *info, char *reason)
{
	struct ibv_device_attr attr;
	int rc;

	memset(&attr, 0, sizeof(attr));
	rc = registry->verbs->query_device(context, &attr);
	if (rc) {
		snprintf(reason, 128, "query_device: %s (%d)",
			 strerror(abs(rc)), abs(rc));
		return -abs(rc);
	}
	info->node_guid = vb_guid(attr.node_guid);
	/* A provider need not end it. */
	snprintf(info->fw_version, sizeof(info->fw_version), "%.*s",
		 (int)sizeof(attr.fw_ver), attr.fw_ver);
	info->vendor_id = attr.vendor_id;
	info->vendor_part_id = attr.vendor_part_id;
	info->hw_version = attr.hw_ver;
	info->max_qp = attr.max_qp;
	info->max_cq = attr.max_cq;
	info->max_cqe = attr.max_cqe;
	info->max_mr = attr.max_mr;
	info->max_pd = attr.max_pd;
	info->max_qp_wr = attr.max_qp_wr;
	info->max_sge = attr.max_sge;
	rc = read_ports(registry, context, attr.phys_port_cnt, info);
	if (rc) {
		snprintf(reason, 128, "no memory");
		vb_info_fini(info);
	}
	return rc;
}

/* --- copies --- */

int vb_info_copy(const struct vb_device_info *from, struct vb_device_info *to)
{
	size_t count = (size_t)from->port_count;

	*to = *from;
	to->port_count = 0;
	to->ports = calloc(count ? count : 1, sizeof(*to->ports));
	if (!to->ports)
		return -ENOMEM;
	for (int i = 0; i < from->port_count; i++) {
		struct vb_port *port = &to->ports[i];
		size_t bytes =
			sizeof(*port->gids) * (size_t)from->ports[i].gid_count;

		*port = from->ports[i];
		port->gids = malloc(bytes ? bytes : 1);
		if (!port->gids) {
			vb_info_fini(to);
			return -ENOMEM;
		}
		memcpy(port->gids, from->ports[i].gids, bytes);
		to->port_count++;
	}
	return 0;
}

void vb_info_fini(struct vb_device_info *info)
{
	for (int i = 0; i < info->port_count; i++)
		free(info->ports[i].gids);
	free(info->ports);
	info->ports = NULL;
	info->port_count = 0;
}

/* --- choosing --- */

const struct vb_port *vb_info_port(const struct vb_device_info *info, int num)
{
	for (int i = 0; i < info->port_count; i++)
		if (info->ports[i].num == num)
			return &info->ports[i];
	return NULL;
}

static int no_port(const struct vb_device_info *info, int num)
{
	return vb_registry_fail(-ENXIO, "%s has no port %d that answers",
				info->name, num);
}

int vb_gid_select(const struct vb_device_info *info, int num, int scope,
		  int type, const struct vb_gid **out)
{
	const struct vb_port *port = vb_info_port(info, num);

	if (!port)
		return no_port(info, num);
	for (int i = 0; i < port->gid_count; i++) {
		const struct vb_gid *gid = &port->gids[i];

		if ((scope < 0 || (int)gid->scope == scope) &&
		    (type < 0 || (int)gid->type == type)) {
			*out = gid;
			return 0;
		}
	}
	return vb_registry_fail(-ENOENT,
				"no GID of scope %d and type %d on port %d of "
				"%s",
				scope, type, num, info->name);
}

/* How good a RoCE GID is; 0: not at all. */
static int rank_of(const struct vb_gid *gid, bool with_link_local)
{
	if (gid->type != VB_GID_ROCE_V2)
		return 0;
	if (gid->scope == VB_GID_GLOBAL)
		return is_mapped(gid->raw) ? 4 : 3;
	if (gid->scope == VB_GID_SITE_LOCAL)
		return 2;
	return with_link_local && gid->scope == VB_GID_LINK_LOCAL;
}

int vb_gid_choose(const struct vb_device_info *info, int num,
		  bool with_link_local, const struct vb_gid **out)
{
	const struct vb_port *port = vb_info_port(info, num);
	const struct vb_gid *best = NULL;

	if (!port)
		return no_port(info, num);
	for (int i = 0; i < port->gid_count; i++) {
		const struct vb_gid *gid = &port->gids[i];

		if (port->link_layer != IBV_LINK_LAYER_ETHERNET) {
			if (gid->index == 0)
				best = gid;
		} else if (rank_of(gid, with_link_local) >
			   (best ? rank_of(best, with_link_local) : 0)) {
			best = gid;
		}
	}
	if (!best)
		return vb_registry_fail(
			-ENOENT, "port %d of %s has no %s", num, info->name,
			port->link_layer == IBV_LINK_LAYER_ETHERNET
				? "RoCE v2 GID with an address that is routed"
				: "GID at index 0");
	*out = best;
	return 0;
}

/* Mbit/s a lane, and lanes, by the bits of active_speed and active_width. */
static const struct {
	uint8_t bit;
	uint32_t value;
} speeds[] = {{1, 2500},   {2, 5000},	{4, 10000},  {8, 10000},
	      {16, 14000}, {32, 25000}, {64, 50000}, {128, 100000}},
  widths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};

static uint32_t speed_of(const struct vb_port *port)
{
	uint32_t speed = 0, lanes = 0;

	if (port->state != IBV_PORT_ACTIVE)
		return 0;
	for (size_t i = 0; i < sizeof(speeds) / sizeof(*speeds); i++)
		if (port->active_speed == speeds[i].bit)
			speed = speeds[i].value;
	for (size_t i = 0; i < sizeof(widths) / sizeof(*widths); i++)
		if (port->active_width == widths[i].bit)
			lanes = widths[i].value;
	return speed * lanes / 8;
}

uint32_t vb_speed_mbytes(const struct vb_device_info *info)
{
	uint32_t best = 0;

	for (int i = 0; i < info->port_count; i++) {
		uint32_t speed = speed_of(&info->ports[i]);

		best = speed > best ? speed : best;
	}
	return best;
}
