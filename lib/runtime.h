/* SPDX-License-Identifier: MIT */
/* The seams of vb_runtime with their production defaults filled in. */
#ifndef VB_RUNTIME_H
#define VB_RUNTIME_H

#include "lib/verbena.h"

struct vb_runtime vb_runtime_or_default(const struct vb_runtime *given);

/* Has the user given no allocator? Of what vb_runtime_or_default returned. */
bool vb_runtime_is_default_alloc(const struct vb_runtime *runtime);

/* CLOCK_MONOTONIC. */
uint64_t vb_now_ns(void);

#endif
