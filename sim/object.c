/* SPDX-License-Identifier: MIT */
/* Protection domains, memory regions and completion channels. */
#include "sim/core.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "sim/diag.h"

/* The errno of a failed claim; a limit of the device explains itself. */
static int refuse(const struct sim_model *model, int rc, const char *rule,
		  uint32_t limit)
{
	if (rc != -EUSERS)
		return rc;
	sim_diag(model->name, rule, "refused: the device has %u of them",
		 limit);
	return -ENOMEM;
}

int sim_pd_alloc(struct sim_ctx *ctx, uint32_t *out)
{
	struct sim_world *w = ctx->world;
	struct sim_host *host = sim_host_of(w, ctx->host);
	const struct sim_model *model = sim_model_of(host);
	struct sim_pd *pd;
	int rc = model->check_pd ? model->check_pd(host) : 0;

	if (rc)
		return rc;
	pd = sim_object_claim(ctx, SIM_PD, model->pd_limit, &rc);
	if (!pd)
		return refuse(model, rc, "R4: protection domains",
			      model->pd_limit);
	atomic_store(&pd->users, 0);
	*out = sim_object_publish(w, &pd->object, SIM_PD);
	return 0;
}

int sim_pd_dealloc(struct sim_ctx *ctx, uint32_t handle)
{
	struct sim_pd *pd = sim_pd_mine(ctx->world, handle);

	if (!pd)
		return -EINVAL;
	if (atomic_load(&pd->users))
		return -EBUSY;
	sim_object_release(ctx->world, &pd->object, SIM_PD);
	return 0;
}

/* R5: whose regions the limit counts. A domain's users are its regions and
 * its queue pairs; the latter are too few to blur a limit of 100. */
static uint32_t mr_limit(const struct sim_host *host,
			 const struct sim_model *model, struct sim_pd *pd)
{
	if (!model->mr_limit_is_pds || !model->mr_limit_is_pds(host))
		return model->mr_limit;
	return atomic_load(&pd->users) < model->mr_limit ? SIM_MR_MAX : 0;
}

/* Bytes of the pages that a range touches, and where they begin. */
static uint64_t pages_of(uint64_t addr, uint64_t length, uint64_t *start)
{
	const uint64_t in_page = 4095;

	*start = addr & ~in_page;
	return (addr + length + in_page - *start) & ~in_page;
}

/* The kernel pins what is registered: the pages are there from now on, or the
 * range is refused. Kernels before 5.14 cannot be asked. */
bool sim_is_mapped(uint64_t addr, uint64_t length, bool is_written)
{
	static _Alignas(4096) uint8_t probe[4096];
	int advice = is_written ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
	uint64_t start, bytes = pages_of(addr, length, &start);

	return bytes == 0 ||
	       madvise((void *)(uintptr_t)start, bytes, advice) == 0 ||
	       madvise(probe, sizeof(probe), advice) != 0;
}

bool sim_mr_is_on(struct sim_world *w, uint64_t addr, uint64_t length)
{
	for (uint32_t i = 0; i < sim_top(w, SIM_MR); i++) {
		const struct sim_mr *mr = &w->seg->mr[i];

		if (mr->object.proc == w->proc && mr->object.handle &&
		    mr->addr >= addr && mr->addr - addr < length)
			return true;
	}
	return false;
}

static int check_memlock(struct sim_world *w, const struct sim_host *host,
			 uint64_t bytes)
{
	uint64_t have = atomic_load(&w->seg->proc[w->proc].pinned_bytes);
	struct rlimit limit;

	if (!host->holds_to_memlock || sim_has_capability(CAP_IPC_LOCK) ||
	    getrlimit(RLIMIT_MEMLOCK, &limit) != 0 ||
	    (limit.rlim_cur && have + bytes <= limit.rlim_cur))
		return 0;
	sim_diag(sim_model_of(host)->name, "3.1: RLIMIT_MEMLOCK",
		 "reg_mr refused: %llu bytes beside %llu, of %llu",
		 (unsigned long long)bytes, (unsigned long long)have,
		 (unsigned long long)limit.rlim_cur);
	return limit.rlim_cur ? -ENOMEM : -EPERM;
}

/* Lock a region's memory as the kernel does, or say why not. */
static int pin(struct sim_world *w, const struct sim_host *host,
	       const struct sim_mr_request *request)
{
	uint64_t start, bytes;
	int rc;

	if (!sim_model_of(host)->pins_memory)
		return 0;
	bytes = pages_of(request->addr, request->length, &start);
	rc = check_memlock(w, host, bytes);
	if (!rc && !sim_is_mapped(request->addr, request->length,
				  request->access & IBV_ACCESS_LOCAL_WRITE))
		rc = -EFAULT;
	if (rc == -EFAULT)
		sim_diag(sim_model_of(host)->name,
			 "3.1: not mapped, or not writable",
			 "reg_mr refused: %llu bytes at 0x%llx",
			 (unsigned long long)request->length,
			 (unsigned long long)request->addr);
	return rc;
}

static void count_pinned(struct sim_world *w, const struct sim_mr *mr,
			 bool is_added)
{
	uint64_t start, bytes = pages_of(mr->addr, mr->length, &start);
	uint32_t proc = atomic_load(&mr->object.proc);

	atomic_fetch_add(&w->seg->proc[proc].pinned_bytes,
			 is_added ? bytes : -bytes);
}

int sim_mr_reg(struct sim_ctx *ctx, const struct sim_mr_request *request,
	       uint32_t *out, uint32_t *key)
{
	struct sim_world *w = ctx->world;
	struct sim_host *host = sim_host_of(w, ctx->host);
	const struct sim_model *model = sim_model_of(host);
	struct sim_pd *pd = sim_pd_mine(w, request->pd);
	bool is_zero_based = request->access & IBV_ACCESS_ZERO_BASED;
	struct sim_mr *mr;
	int rc;

	if (!pd)
		return -EINVAL;
	sim_mover_start(w);
	rc = model->check_mr(host, request->addr, request->length,
			     request->access);
	if (!rc && model->pins_memory && !is_zero_based &&
	    (request->iova ^ request->addr) % 4096)
		rc = -EINVAL;
	if (!rc)
		rc = pin(w, host, request);
	if (rc)
		return rc;
	mr = sim_object_claim(ctx, SIM_MR, mr_limit(host, model, pd), &rc);
	if (!mr)
		return refuse(model, rc, "R5: memory regions", model->mr_limit);
	mr->kind = SIM_MR_REGION;
	mr->region = mr->qp_num = 0;
	atomic_store(&mr->windows, 0);
	mr->pd = request->pd;
	mr->access = request->access;
	mr->addr = request->addr;
	mr->length = request->length;
	mr->iova = is_zero_based ? 0 : request->iova;
	mr->is_aliased = model->aliases_mr &&
			 model->aliases_mr(host, mr->addr, mr->length);
	/* Fresh on every registration: slot above, generation below. */
	mr->key = (uint32_t)(mr - w->seg->mr) << 12 | mr->object.generation;
	sim_map_region(w, mr);
	atomic_fetch_add(&pd->users, 1);
	count_pinned(w, mr, true);
	*key = mr->key;
	*out = sim_object_publish(w, &mr->object, SIM_MR);
	return 0;
}

/* Receives that name the key are looked at when they are taken. */
static void doubt_receives(struct sim_world *w, struct sim_qp *qp, uint32_t key)
{
	for (uint32_t i = qp->rq.head; i != qp->rq.tail; i++) {
		struct sim_wqe *wqe = sim_wqe_at(w, &qp->rq, i);
		const struct sim_sge *sge = sim_wqe_sge(wqe);

		for (int n = 0; n < wqe->num_sge; n++)
			if (sge[n].lkey == key)
				qp->credit.slow_until = qp->rq.tail;
	}
}

void sim_mr_wait_unused(struct sim_world *w, const struct sim_mr *mr)
{
	for (uint32_t i = 0; i < sim_top(w, SIM_QP); i++) {
		struct sim_qp *qp = &w->seg->qp[i];

		/* Of one without a handle nothing is there yet, or any more. */
		if (qp->object.proc != w->proc ||
		    !atomic_load(&qp->object.handle) || qp->pd != mr->pd)
			continue;
		sim_qp_hold(w, qp);
		doubt_receives(w, qp, mr->key);
		sim_qp_release(qp);
	}
	for (uint32_t i = 0; i < sim_top(w, SIM_SRQ); i++) {
		struct sim_srq *srq = &w->seg->srq[i];

		if (srq->object.proc != w->proc ||
		    !atomic_load(&srq->object.handle) || srq->pd != mr->pd)
			continue;
		sim_take(w, &srq->lock);
		sim_drop(&srq->lock);
	}
}

/* Nobody uses the region any more when this returns. Messages that came are
 * there, and none that comes is left for its receive to be looked at later. */
static void take_out_of_use(struct sim_world *w, struct sim_mr *mr)
{
	sim_mr_wait_unused(w, mr);
	for (uint32_t i = 0; i < sim_top(w, SIM_CQ); i++)
		if (w->seg->cq[i].object.proc == w->proc)
			sim_parcels_land(w, w->seg->cq[i].object.handle);
	atomic_store(&mr->object.handle, 0);
	sim_mr_wait_unused(w, mr);
}

int sim_mr_rereg(struct sim_ctx *ctx, uint32_t handle,
		 const struct sim_mr_change *change)
{
	struct sim_world *w = ctx->world;
	const struct sim_host *host = sim_host_of(w, ctx->host);
	const struct sim_model *model = sim_model_of(host);
	struct sim_mr *mr = sim_mr_mine(w, handle);
	struct sim_pd *to = sim_pd_mine(w, change->to.pd);
	struct sim_pd *from;
	struct sim_mr_request next;
	int rc;

	if (!mr || mr->kind != SIM_MR_REGION || (change->to.pd && !to))
		return -EINVAL;
	if (change->changes_range && model->rereg_keeps_range)
		return -EOPNOTSUPP;
	next = (struct sim_mr_request){mr->addr, mr->length, mr->iova, mr->pd,
				       mr->access};
	if (change->changes_range) {
		next.addr = next.iova = change->to.addr;
		next.length = change->to.length;
	}
	if (change->changes_access)
		next.access = change->to.access;
	rc = model->check_mr(host, next.addr, next.length, next.access);
	if (!rc)
		rc = pin(w, host, &next);
	if (rc)
		return rc;
	/* While it changes; the key stays. */
	take_out_of_use(w, mr);
	from = sim_pd_get(w, mr->pd);
	if (to) {
		atomic_fetch_add(&to->users, 1);
		if (from)
			atomic_fetch_sub(&from->users, 1);
		mr->pd = change->to.pd;
	}
	count_pinned(w, mr, false);
	mr->addr = next.addr;
	mr->length = next.length;
	mr->iova = next.iova;
	mr->access = next.access;
	if (change->changes_range)
		mr->map_fd = -1;
	count_pinned(w, mr, true);
	atomic_store(&mr->object.handle, handle);
	return 0;
}

int sim_mr_dereg(struct sim_ctx *ctx, uint32_t handle)
{
	struct sim_world *w = ctx->world;
	struct sim_mr *mr = sim_mr_mine(w, handle);
	struct sim_pd *pd;

	if (!mr)
		return -EINVAL;
	if (mr->kind != SIM_MR_REGION)
		return -EINVAL;
	if (atomic_load(&mr->windows))
		return -sim_model_of(sim_host_of(w, ctx->host))->errno_mr_bound;
	take_out_of_use(w, mr);
	count_pinned(w, mr, false);
	pd = sim_pd_get(w, mr->pd);
	if (pd)
		atomic_fetch_sub(&pd->users, 1);
	sim_object_release(w, &mr->object, SIM_MR);
	return 0;
}

static bool spans(const struct sim_mr *mr, const struct sim_sge *range,
		  uint32_t access)
{
	return (mr->access & access) == access && range->addr >= mr->iova &&
	       range->length <= mr->length &&
	       range->addr - mr->iova <= mr->length - range->length;
}

struct sim_mr *sim_mr_by_key(struct sim_world *w, uint32_t key)
{
	uint32_t slot = key >> 12;
	struct sim_mr *mr = slot < SIM_MR_MAX ? &w->seg->mr[slot] : NULL;

	if (!mr ||
	    !atomic_load_explicit(&mr->object.handle, memory_order_acquire) ||
	    mr->key != key)
		return NULL;
	return mr;
}

const struct sim_mr *sim_mr_check(struct sim_world *w, uint32_t pd,
				  const struct sim_sge *range, uint32_t access)
{
	const struct sim_mr *mr = sim_mr_by_key(w, range->lkey);

	if (!mr || mr->kind != SIM_MR_REGION || mr->pd != pd)
		return NULL;
	return spans(mr, range, access) ? mr : NULL;
}

/* A window's key: bound, for this queue pair, to a region that is there. */
static bool is_window_ok(struct sim_world *w, const struct sim_mr *mw,
			 const struct sim_qp *qp)
{
	if (mw->kind == SIM_MR_WINDOW_2 && mw->qp_num != qp->qp_num)
		return false;
	return mw->region && sim_mr_get(w, mw->region);
}

const struct sim_mr *sim_mr_check_remote(struct sim_world *w,
					 const struct sim_qp *qp,
					 const struct sim_sge *range,
					 uint32_t access)
{
	const struct sim_mr *mr = sim_mr_by_key(w, range->lkey);

	if (!mr || mr->object.proc != qp->object.proc)
		return NULL;
	/* An XRC target has no domain of its own; its XRC domain vouches. */
	if (qp->type != IBV_QPT_XRC_RECV && mr->pd != qp->pd)
		return NULL;
	if (mr->kind != SIM_MR_REGION && !is_window_ok(w, mr, qp))
		return NULL;
	return spans(mr, range, access) ? mr : NULL;
}

int sim_channel_create(struct sim_ctx *ctx, uint32_t *out, int *fd)
{
	struct sim_world *w = ctx->world;
	struct sim_channel *channel;
	uint32_t handle;
	int rc;

	channel = sim_object_claim(ctx, SIM_CHANNEL, SIM_CHANNEL_MAX, &rc);
	if (!channel)
		return rc;
	atomic_store(&channel->users, 0);
	atomic_store(&channel->pending, 0);
	handle = sim_object_publish(w, &channel->object, SIM_CHANNEL);
	rc = sim_notify_socket(w, handle, fd);
	if (rc)
		sim_object_release(w, &channel->object, SIM_CHANNEL);
	else
		*out = handle;
	return rc;
}

int sim_channel_destroy(struct sim_ctx *ctx, uint32_t handle)
{
	struct sim_channel *channel = sim_channel_mine(ctx->world, handle);

	if (!channel)
		return -EINVAL;
	if (atomic_load(&channel->users))
		return -EBUSY;
	sim_object_release(ctx->world, &channel->object, SIM_CHANNEL);
	return 0;
}
