/* SPDX-License-Identifier: MIT */
/* Backend standard: any other verbs device, when nobody else wants it. */
#include "lib/registry.h"

static int claim(const struct vb_verbs *verbs, struct ibv_context *context,
		 char reason[128])
{
	(void)verbs;
	(void)context;
	(void)reason;
	return VB_CLAIM_YES;
}

static const struct vb_backend standard = {
	.key = "standard",
	.name = "verbs device",
	.rank = 1000, /* the last */
	.claim = claim,
};
VB_BACKEND(standard);
