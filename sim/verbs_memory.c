/* SPDX-License-Identifier: MIT */
/* Memory beyond plain regions: re-registration, windows, device memory, and
 * domains over domains. */
#include "sim/verbs_front.h"

#include <stdlib.h>
#include <string.h>

int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
		 size_t length, int access)
{
	struct sim_mr_change change = {
		.to = {.addr = (uintptr_t)addr,
		       .length = length,
		       .access = (uint32_t)access},
		.changes_range = flags & IBV_REREG_MR_CHANGE_TRANSLATION,
		.changes_access = flags & IBV_REREG_MR_CHANGE_ACCESS,
	};
	int rc = 0;

	if (!flags || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED))
		rc = -EINVAL;
	if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) && (!addr || !length))
		rc = -EINVAL;
	if (access && !(flags & IBV_REREG_MR_CHANGE_ACCESS))
		rc = -EINVAL;
	if (!rc && !front_model(mr->context)->has_rereg)
		rc = -EOPNOTSUPP;
	if (!rc && (flags & IBV_REREG_MR_CHANGE_PD))
		change.to.pd = pd->handle;
	if (!rc)
		rc = sim_mr_rereg(ctx_of(mr->context), mr->handle, &change);
	if (rc) {
		errno = -rc;
		/* The old one stays valid. */
		return rc == -EOPNOTSUPP ? IBV_REREG_MR_ERR_CMD
					 : IBV_REREG_MR_ERR_INPUT;
	}
	if (flags & IBV_REREG_MR_CHANGE_PD)
		mr->pd = pd;
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		mr->addr = addr;
		mr->length = length;
	}
	return 0;
}

struct ibv_mw *front_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ibv_mw *mw;
	int rc;

	if (!front_model(pd->context)->has_windows)
		return fail_ptr(-EOPNOTSUPP);
	if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)
		return fail_ptr(-EINVAL);
	mw = calloc(1, sizeof(*mw));
	if (!mw)
		return fail_ptr(-ENOMEM);
	rc = sim_mw_alloc(ctx_of(pd->context), pd->handle, type, &mw->handle,
			  &mw->rkey);
	if (rc) {
		free(mw);
		return fail_ptr(rc);
	}
	mw->context = pd->context;
	mw->pd = pd;
	mw->type = type;
	return mw;
}

int front_dealloc_mw(struct ibv_mw *mw)
{
	int rc = sim_mw_dealloc(ctx_of(mw->context), mw->handle);

	if (!rc)
		free(mw);
	return -rc;
}

/* A type 1 window is bound by this verb, and gets a new key each time. */
int front_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw,
		  struct ibv_mw_bind *bind)
{
	struct ibv_send_wr wr = {
		.wr_id = bind->wr_id,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = bind->send_flags,
	};
	struct ibv_send_wr *bad;
	int rc;

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = bind->bind_info;
	rc = front_post_send(qp, &wr, &bad);
	if (!rc)
		mw->rkey = wr.bind_mw.rkey;
	return rc;
}

/* --- device memory ------------------------------------------------------ */

/* The bytes, which an import shares. */
struct memory {
	struct memory *next;
	uint32_t handle;
	uint32_t users;
	size_t length;
	uint8_t bytes[];
};

struct front_dm {
	struct ibv_dm dm;
	struct memory *memory;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct memory *memories; /* of this process */
static uint32_t last_handle;

static struct memory *make_memory(size_t length)
{
	struct memory *memory = calloc(1, sizeof(*memory) + length);

	if (!memory)
		return NULL;
	memory->length = length;
	pthread_mutex_lock(&lock);
	memory->handle = ++last_handle;
	memory->next = memories;
	memories = memory;
	pthread_mutex_unlock(&lock);
	return memory;
}

static struct memory *find_memory(uint32_t handle)
{
	struct memory *at;

	pthread_mutex_lock(&lock);
	for (at = memories; at && at->handle != handle; at = at->next)
		;
	if (at)
		at->users++;
	pthread_mutex_unlock(&lock);
	return at;
}

static void drop_memory(struct memory *memory)
{
	struct memory **at = &memories;

	pthread_mutex_lock(&lock);
	if (memory->users-- == 0) {
		while (*at != memory)
			at = &(*at)->next;
		*at = memory->next;
		free(memory);
	}
	pthread_mutex_unlock(&lock);
}

static bool is_inside(const struct front_dm *dm, uint64_t offset, size_t length)
{
	return offset <= dm->memory->length &&
	       length <= dm->memory->length - offset && offset % 4 == 0 &&
	       length % 4 == 0;
}

static int copy_to_dm(struct ibv_dm *it, uint64_t offset, const void *from,
		      size_t length)
{
	struct front_dm *dm = (struct front_dm *)it;

	if (!is_inside(dm, offset, length))
		return EFAULT;
	memcpy(dm->memory->bytes + offset, from, length);
	return 0;
}

static int copy_from_dm(void *to, struct ibv_dm *it, uint64_t offset,
			size_t length)
{
	struct front_dm *dm = (struct front_dm *)it;

	if (!is_inside(dm, offset, length))
		return EFAULT;
	memcpy(to, dm->memory->bytes + offset, length);
	return 0;
}

/* A handle on this memory; NULL gives the memory back. */
static struct ibv_dm *wrap(struct ibv_context *context, struct memory *memory)
{
	struct front_dm *dm = calloc(1, sizeof(*dm));

	if (!dm) {
		drop_memory(memory);
		return fail_ptr(-ENOMEM);
	}
	dm->memory = memory;
	dm->dm.context = context;
	dm->dm.handle = memory->handle;
	dm->dm.memcpy_to_dm = copy_to_dm;
	dm->dm.memcpy_from_dm = copy_from_dm;
	return &dm->dm;
}

struct ibv_dm *front_alloc_dm(struct ibv_context *context,
			      struct ibv_alloc_dm_attr *attr)
{
	uint32_t most = front_model(context)->dm_bytes;
	struct memory *memory;

	if (!most)
		return fail_ptr(-EOPNOTSUPP);
	if (attr->comp_mask || attr->length == 0 || attr->log_align_req > 12)
		return fail_ptr(-EINVAL);
	if (attr->length > most)
		return fail_ptr(-ENOMEM);
	memory = make_memory(attr->length);
	return memory ? wrap(context, memory) : fail_ptr(-ENOMEM);
}

int front_free_dm(struct ibv_dm *it)
{
	struct front_dm *dm = (struct front_dm *)it;

	if (sim_mr_is_on(ctx_of(it->context)->world,
			 (uintptr_t)dm->memory->bytes, dm->memory->length))
		return EBUSY;
	drop_memory(dm->memory);
	free(dm);
	return 0;
}

struct ibv_dm *ibv_import_dm(struct ibv_context *context, uint32_t handle)
{
	struct memory *memory = find_memory(handle);

	return memory ? wrap(context, memory) : fail_ptr(-EINVAL);
}

void ibv_unimport_dm(struct ibv_dm *it)
{
	struct front_dm *dm = (struct front_dm *)it;

	drop_memory(dm->memory);
	free(dm);
}

/* Zero-based: requests name offsets into the registered part. */
struct ibv_mr *front_reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *it,
			       uint64_t offset, size_t length,
			       unsigned int access)
{
	struct front_dm *dm = (struct front_dm *)it;
	const unsigned int known =
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
		IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
		IBV_ACCESS_ZERO_BASED | IBV_ACCESS_OPTIONAL_RANGE;
	struct ibv_mr *mr;

	if (!(access & IBV_ACCESS_ZERO_BASED) || (access & ~known) ||
	    offset > dm->memory->length || length > dm->memory->length - offset)
		return fail_ptr(-EINVAL);
	mr = ibv_reg_mr_iova2(pd, dm->memory->bytes + offset, length, 0,
			      access);
	if (mr)
		mr->addr = NULL;
	return mr;
}

/* --- domains over domains ----------------------------------------------- */

struct ibv_td *front_alloc_td(struct ibv_context *context,
			      struct ibv_td_init_attr *attr)
{
	struct ibv_td *td;

	if (attr->comp_mask)
		return fail_ptr(-EINVAL);
	td = calloc(1, sizeof(*td));
	if (!td)
		return fail_ptr(-ENOMEM);
	td->context = context;
	return td;
}

int front_dealloc_td(struct ibv_td *td)
{
	free(td);
	return 0;
}

/* A thread domain changes no result here; and custom allocators, which are for
 * the provider's own buffers, are never called: those are in the world. */
struct ibv_pd *
front_alloc_parent_domain(struct ibv_context *context,
			  struct ibv_parent_domain_init_attr *attr)
{
	const uint32_t known = IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT |
			       IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
	struct front_pd *front, *parent = (struct front_pd *)attr->pd;

	if (!parent)
		return fail_ptr(-EINVAL);
	if (attr->comp_mask & ~known)
		return fail_ptr(-EOPNOTSUPP);
	front = calloc(1, sizeof(*front));
	if (!front)
		return fail_ptr(-ENOMEM);
	front->pd.context = context;
	front->pd.handle = attr->pd->handle;
	front->parent = parent;
	__atomic_add_fetch(&parent->children, 1, __ATOMIC_ACQ_REL);
	return &front->pd;
}
