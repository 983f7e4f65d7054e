/* SPDX-License-Identifier: MIT */
/*
 * The device, the port and the GID that answer to the bootstrap address. All
 * ACTIVE ports are looked at (D-A24); of entries with the same address the one
 * for RoCE v2 is taken, as ggml-rpc does.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/boot.h"
#include "lib/qp_stream.h"

struct search {
	struct qp_stream *qs;
	struct vb_registry *registry;
	const char *device; /* a name, or NULL: any */
	uint8_t gid[16];
	int devices, active_ports;
	char backend[VB_NAME_MAX]; /* of what is found */
};

/* 255: grh.sgid_index is a byte (D-A23). */
static const struct vb_gid *find_gid(const struct search *search,
				     const struct vb_port *port)
{
	const struct vb_gid *found = NULL;

	for (int i = 0; i < port->gid_count; i++) {
		const struct vb_gid *gid = &port->gids[i];

		if (memcmp(gid->raw, search->gid, 16) != 0 || gid->index > 255)
			continue;
		if (!found || (found->type != VB_GID_ROCE_V2 &&
			       gid->type == VB_GID_ROCE_V2))
			found = gid;
	}
	return found;
}

static bool find_port(struct search *search, const struct vb_device_info *info)
{
	struct vb_found *found = &search->qs->found;

	for (int i = 0; i < info->port_count; i++) {
		const struct vb_gid *gid;

		if (info->ports[i].state != IBV_PORT_ACTIVE)
			continue;
		search->active_ports++;
		gid = find_gid(search, &info->ports[i]);
		if (!gid)
			continue;
		found->port = info->ports[i];
		found->port.gids = NULL; /* the list's */
		found->gid = *gid;
		found->node_guid = info->node_guid;
		snprintf(found->name, sizeof(found->name), "%s", info->name);
		snprintf(search->backend, sizeof(search->backend), "%s",
			 info->backend);
		return true;
	}
	return false;
}

/* 1: found; 0: not; or a negative errno. */
static int look(struct search *search)
{
	struct vb_devices devices;
	bool is_found = false;
	int rc = vb_devices_list(search->registry, NULL, &devices);

	if (rc)
		return rc;
	search->devices = devices.count;
	search->active_ports = 0;
	for (int i = 0; i < devices.count && !is_found; i++)
		if (!search->device ||
		    strcmp(search->device, devices.info[i].name) == 0)
			is_found = find_port(search, &devices.info[i]);
	vb_devices_free(&devices);
	return is_found;
}

/* What was left out, or that there was no list; the first of it. */
static void tell_report(struct vb_registry *registry, char text[128])
{
	struct vb_report report = {0};

	/* Without a list there was no walk, and to ask is to walk again. */
	if (registry->generation == 0)
		snprintf(text, 128, "no device list: %s",
			 strerror(-registry->list_error));
	else if (vb_registry_report(registry, &report) == 0 && report.count)
		snprintf(text, 128, "%d left out, %.40s: %.60s", report.count,
			 report.absent[0].name, report.absent[0].text);
	else
		snprintf(text, 128, "0 left out");
	vb_report_free(&report);
}

static int not_found(struct search *search)
{
	char gid[INET6_ADDRSTRLEN] = "", rest[128];

	inet_ntop(AF_INET6, search->gid, gid, sizeof(gid));
	tell_report(search->registry, rest);
	return vb_fail(&search->qs->base, VB_NO_DEVICE, -ENODEV, VB_NOWHERE,
		       "no device%s%.32s has GID %s: %d devices, %d active "
		       "ports, %s",
		       search->device ? " named " : "",
		       search->device ? search->device : "", gid,
		       search->devices, search->active_ports, rest);
}

static int find_and_open(struct search *search, enum vb_transport_kind *kind)
{
	struct qp_stream *qs = search->qs;
	int rc = look(search);

	if (rc == 0)
		return not_found(search);
	if (rc == 1)
		rc = vb_device_open(search->registry, search->backend,
				    qs->found.name, NULL, &qs->found.device);
	if (rc)
		return vb_fail(&qs->base, VB_NO_DEVICE, rc, VB_NOWHERE, "%s",
			       vb_last_error());
	qs->found.hold = vb_device_context(qs->found.device);
	qs->verbs = search->registry->verbs;
	*kind = search->registry
			->backend[vb_registry_backend(search->registry,
						      search->backend)]
			->transport;
	return 0;
}

int vb_find(struct qp_stream *qs, const struct vb_options *options,
	    enum vb_transport_kind *kind)
{
	static const uint8_t zero[16];
	struct vb_registry_options with = {.verbs = options->verbs};
	struct search search = {.qs = qs,
				.registry = options->registry,
				.device = options->device};
	int rc;

	memcpy(search.gid, options->gid, 16);
	if (memcmp(search.gid, zero, 16) == 0) {
		rc = vb_boot_local_gid(options->fd, search.gid);
		if (rc)
			return vb_fail(&qs->base, VB_NO_DEVICE, rc, VB_NOWHERE,
				       "the bootstrap socket has no local IP "
				       "address: %s",
				       strerror(-rc));
	}
	if (!search.registry) {
		rc = vb_registry_create(&with, &search.registry);
		if (rc)
			return vb_fail(&qs->base, VB_NO_DEVICE, rc, VB_NOWHERE,
				       "no memory for a registry");
	}
	rc = find_and_open(&search, kind);
	if (!options->registry)
		vb_registry_destroy(search.registry);
	return rc;
}
