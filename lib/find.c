/* SPDX-License-Identifier: MIT */
/* Finding the device that has a GID, for the transports. */
#include "lib/registry.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct walk {
	struct vb_verbs *verbs;
	const uint8_t *gid;
	int devices;
	int unopened;
	int active_ports;
};

static int find_gid(struct walk *walk, struct vb_found *found)
{
	for (int i = 0; i < found->port.gid_tbl_len; i++) {
		if (walk->verbs->query_gid(found->context, found->port_num, i,
					   &found->gid) != 0)
			continue;
		if (memcmp(found->gid.raw, walk->gid, 16) == 0)
			return i;
	}
	return -1;
}

static bool find_port(struct walk *walk, struct vb_found *found)
{
	struct ibv_device_attr attr;

	if (walk->verbs->query_device(found->context, &attr) != 0)
		return false;
	for (unsigned port = 1; port <= attr.phys_port_cnt; port++) {
		found->port_num = (uint8_t)port;
		if (vb_query_port(walk->verbs, found->context, found->port_num,
				  &found->port) != 0 ||
		    found->port.state != IBV_PORT_ACTIVE)
			continue;
		walk->active_ports++;
		found->gid_index = find_gid(walk, found);
		if (found->gid_index >= 0)
			return true;
	}
	return false;
}

static bool try_device(struct walk *walk, struct ibv_device *device,
		       struct vb_found *found)
{
	const char *name = walk->verbs->get_device_name(device);

	walk->devices++;
	memset(found, 0, sizeof(*found));
	found->context = walk->verbs->open_device(device);
	if (!found->context) {
		walk->unopened++;
		return false;
	}
	snprintf(found->name, sizeof(found->name), "%s", name ? name : "");
	if (find_port(walk, found))
		return true;
	walk->verbs->close_device(found->context);
	found->context = NULL;
	return false;
}

int vb_registry_find(struct vb_verbs *verbs, const uint8_t gid[16],
		     struct vb_found *found, char why[256])
{
	struct walk walk = {.verbs = verbs, .gid = gid};
	char text[INET6_ADDRSTRLEN] = "";
	struct ibv_device **list;
	bool is_found = false;

	list = verbs->get_device_list(NULL);
	if (!list) {
		snprintf(why, 256, "no device list: %s", strerror(errno));
		return -ENODEV;
	}
	for (int i = 0; list[i] && !is_found; i++)
		is_found = try_device(&walk, list[i], found);
	verbs->free_device_list(list);
	if (is_found)
		return 0;
	inet_ntop(AF_INET6, gid, text, sizeof(text));
	snprintf(why, 256,
		 "no device has GID %s: %d devices, %d would not open, %d "
		 "active ports",
		 text, walk.devices, walk.unopened, walk.active_ports);
	return -ENODEV;
}
