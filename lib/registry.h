/* SPDX-License-Identifier: MIT */
/* The registry, in its first form: find the device that has a GID. */
#ifndef VB_REGISTRY_H
#define VB_REGISTRY_H

#include "lib/verbs.h"

struct vb_found {
	struct ibv_context *context; /* open; the caller closes it */
	struct ibv_port_attr port;
	union ibv_gid gid;
	uint8_t port_num;
	int gid_index;
	char name[64];
};

/*
 * Walk the device list once and open the first device with an ACTIVE port
 * whose GID table holds `gid`. -ENODEV when none has; `why` (256 bytes) then
 * says what was seen. Source: S1 and A-2 of the transport contract, except
 * that all ACTIVE ports are looked at (D-A24).
 */
int vb_registry_find(struct vb_verbs *verbs, const uint8_t gid[16],
		     struct vb_found *found, char why[256]);

#endif
