/* SPDX-License-Identifier: MIT */
/* The bootstrap channel over a connected socket, and the local address. */
#ifndef VB_BOOT_H
#define VB_BOOT_H

#include "lib/verbena.h"

/* A channel whose arg is the descriptor. */
struct vb_boot vb_boot_socket(int fd);

/* The socket's local address as a GID: ::ffff:a.b.c.d for IPv4, the address
 * itself for IPv6. -EINVAL for any other family. */
int vb_boot_local_gid(int fd, uint8_t gid[16]);

#endif
