/* SPDX-License-Identifier: MIT */
/*
 * The data mover: bytes move once, by whoever does the work. memcpy inside a
 * process, and where the other's memory can be mapped; process_vm_readv or
 * writev when one side is another process; both, through a small buffer, when
 * neither side is the caller's.
 */
#define _GNU_SOURCE
#include "sim/core.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "sim/diag.h"

#define VEC_MAX	    64
#define BOUNCE_SIZE 65536

/* One contiguous piece: it ends where a source or a target span ends. */
struct piece {
	uint64_t from;
	uint64_t to;
	uint64_t length;
	const struct sim_span *from_span, *to_span;
};

struct cursor {
	const struct sim_copy *copy;
	int from, to;
	uint64_t from_done, to_done;
};

static bool next_piece(struct cursor *c, struct piece *piece)
{
	const struct sim_copy *copy = c->copy;
	uint64_t from_left, to_left;

	while (c->from < copy->from_count &&
	       c->from_done == copy->from[c->from].length) {
		c->from++;
		c->from_done = 0;
	}
	while (c->to < copy->to_count && c->to_done == copy->to[c->to].length) {
		c->to++;
		c->to_done = 0;
	}
	if (c->from == copy->from_count || c->to == copy->to_count)
		return false;
	piece->from_span = &copy->from[c->from];
	piece->to_span = &copy->to[c->to];
	from_left = piece->from_span->length - c->from_done;
	to_left = piece->to_span->length - c->to_done;
	piece->from = piece->from_span->addr + c->from_done;
	piece->to = piece->to_span->addr + c->to_done;
	piece->length = from_left < to_left ? from_left : to_left;
	c->from_done += piece->length;
	c->to_done += piece->length;
	return true;
}

static enum sim_copy_result failed(int error, bool is_source)
{
	if (error == ESRCH)
		return SIM_COPY_GONE;
	if (error == EFAULT)
		return is_source ? SIM_COPY_BAD_SOURCE : SIM_COPY_BAD_TARGET;
	sim_diag("world", "see sim/README.md, data mover",
		 "copying between processes was refused: %s; they must run as "
		 "the same user and may not be undumpable",
		 strerror(error));
	return SIM_COPY_REFUSED;
}

/* The same through the segment, where the call is refused. */
static enum sim_copy_result move_by_mover(struct sim_world *w, uint32_t proc,
					  bool is_read,
					  const struct piece *pieces, int count)
{
	enum sim_copy_result rc = SIM_COPY_OK;

	for (int i = 0; i < count && rc == SIM_COPY_OK; i++) {
		uint64_t near = is_read ? pieces[i].to : pieces[i].from;
		uint64_t far = is_read ? pieces[i].from : pieces[i].to;

		rc = sim_mover_move(w, proc, far, (char *)(uintptr_t)near,
				    pieces[i].length, is_read);
	}
	return rc;
}

/* One system call for up to VEC_MAX pieces; the far side is process `proc`. */
static enum sim_copy_result move_vec(struct sim_world *w, uint32_t proc,
				     bool is_read, const struct piece *pieces,
				     int count, uint64_t *done)
{
	pid_t pid = w->seg->proc[proc].pid;
	struct iovec local[VEC_MAX], remote[VEC_MAX];
	uint64_t total = 0;
	enum sim_copy_result rc;
	ssize_t got;
	int error;

	if (w->may_not_copy)
		return move_by_mover(w, proc, is_read, pieces, count);
	for (int i = 0; i < count; i++) {
		uint64_t near = is_read ? pieces[i].to : pieces[i].from;
		uint64_t far = is_read ? pieces[i].from : pieces[i].to;

		local[i].iov_base = (void *)(uintptr_t)near;
		remote[i].iov_base = (void *)(uintptr_t)far;
		local[i].iov_len = remote[i].iov_len = pieces[i].length;
		total += pieces[i].length;
	}
	got = is_read ? process_vm_readv(pid, local, (unsigned long)count,
					 remote, (unsigned long)count, 0)
		      : process_vm_writev(pid, local, (unsigned long)count,
					  remote, (unsigned long)count, 0);
	*done += got > 0 ? (uint64_t)got : 0;
	if (got == (ssize_t)total)
		return SIM_COPY_OK;
	/* Short, or EFAULT: a page is not there; of ours, or on the far side.
	 */
	error = got < 0 ? errno : EFAULT;
	for (int i = 0; error == EFAULT && i < count; i++)
		if (!sim_is_mapped((uintptr_t)local[i].iov_base,
				   local[i].iov_len, is_read))
			return failed(error, !is_read);
	if (error == EPERM || error == ENOSYS) {
		rc = move_by_mover(w, proc, is_read, pieces, count);
		w->may_not_copy = rc == SIM_COPY_OK;
		if (rc != SIM_COPY_REFUSED)
			return rc;
	}
	return failed(error, is_read);
}

static const struct sim_span *far_of(const struct piece *piece, bool is_read)
{
	return is_read ? piece->from_span : piece->to_span;
}

/* False: the far side's region is not mapped here, and nothing was done. */
static bool move_mapped(struct sim_world *w, bool is_read,
			const struct piece *piece, uint64_t *done)
{
	uint64_t near = is_read ? piece->to : piece->from;
	uint64_t far = is_read ? piece->from : piece->to;

	if (!sim_may_map(far_of(piece, is_read)) ||
	    !sim_map_copy(w, far_of(piece, is_read)->mr, far,
			  (void *)(uintptr_t)near, piece->length, is_read))
		return false;
	*done += piece->length;
	return true;
}

/* What is not mapped goes together: to begin a call is dear. */
static enum sim_copy_result move(struct sim_world *w, uint32_t proc,
				 bool is_read, const struct piece *pieces,
				 int count, uint64_t *done)
{
	enum sim_copy_result rc = SIM_COPY_OK;

	for (int i = 0, n; i < count && rc == SIM_COPY_OK; i += n) {
		n = 1;
		if (move_mapped(w, is_read, &pieces[i], done))
			continue;
		while (i + n < count &&
		       !sim_may_map(far_of(&pieces[i + n], is_read)))
			n++;
		rc = move_vec(w, proc, is_read, pieces + i, n, done);
	}
	return rc;
}

static enum sim_copy_result move_bounced(struct sim_world *w,
					 const struct sim_copy *copy,
					 struct piece piece)
{
	static __thread char buffer[BOUNCE_SIZE];
	enum sim_copy_result rc = SIM_COPY_OK;
	uint64_t none = 0;

	while (piece.length && rc == SIM_COPY_OK) {
		uint64_t n =
			piece.length < BOUNCE_SIZE ? piece.length : BOUNCE_SIZE;
		struct piece in = {.from = piece.from,
				   .to = (uintptr_t)buffer,
				   .length = n};
		struct piece out = {.from = (uintptr_t)buffer,
				    .to = piece.to,
				    .length = n};

		rc = move_vec(w, copy->from_proc, true, &in, 1, &none);
		if (rc == SIM_COPY_OK)
			rc = move_vec(w, copy->to_proc, false, &out, 1, &none);
		piece.from += n;
		piece.to += n;
		piece.length -= n;
	}
	return rc;
}

enum sim_copy_result sim_copy(struct sim_world *w, const struct sim_copy *copy)
{
	uint64_t done = 0;

	return sim_copy_counted(w, copy, &done);
}

enum sim_copy_result sim_copy_counted(struct sim_world *w,
				      const struct sim_copy *copy,
				      uint64_t *done)
{
	struct cursor cursor = {.copy = copy};
	struct piece pieces[VEC_MAX];
	bool from_me = copy->from_proc == w->proc;
	bool to_me = copy->to_proc == w->proc;
	uint32_t far = from_me ? copy->to_proc : copy->from_proc;
	enum sim_copy_result rc = SIM_COPY_OK;

	for (int n = 0;; n = 0) {
		while (n < VEC_MAX && next_piece(&cursor, &pieces[n]))
			n++;
		if (n == 0)
			return SIM_COPY_OK;
		if (from_me && to_me) {
			for (int i = 0; i < n; i++)
				memmove((void *)(uintptr_t)pieces[i].to,
					(void *)(uintptr_t)pieces[i].from,
					pieces[i].length);
			continue;
		}
		if (from_me || to_me)
			rc = move(w, far, to_me, pieces, n, done);
		for (int i = 0; !from_me && !to_me && i < n && !rc; i++)
			rc = move_bounced(w, copy, pieces[i]);
		if (rc != SIM_COPY_OK)
			return rc;
	}
}
