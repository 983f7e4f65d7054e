/* SPDX-License-Identifier: MIT */
/* The memory of a ring. */
#ifndef VB_MEMORY_H
#define VB_MEMORY_H

#include "lib/verbena.h"

struct vb_memory {
	uint8_t *bytes;	   /* NULL: none */
	size_t size_bytes; /* whole pages of a file */
	int fd;		   /* of the file it is; -1: the runtime's */
};

/*
 * Zeroed, `align_bytes` a power of two and at least a page. Without an
 * allocator of the user's it is a sealed memfd, which stays open: a fork does
 * not copy its pages away from under a device, and a provider in software
 * (verbena's) can map it in the peer. -ENOMEM.
 */
int vb_memory_open(const struct vb_runtime *runtime, size_t align_bytes,
		   size_t size_bytes, struct vb_memory *memory);
void vb_memory_close(const struct vb_runtime *runtime,
		     struct vb_memory *memory);

#endif
