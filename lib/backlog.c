/* SPDX-License-Identifier: MIT */
/* Received bytes that had to make room, oldest first. */
#include <errno.h>
#include <string.h>

#include "lib/transport.h"

struct vb_piece {
	struct vb_piece *next;
	size_t size;
	size_t off; /* already taken */
	uint8_t bytes[];
};

int vb_backlog_put(struct vb_transport *t, const void *data, size_t size)
{
	struct vb_backlog *backlog = &t->backlog;

	if (size > backlog->limit_bytes - backlog->bytes)
		return vb_fail(t, VB_OVERFLOW, -ENOBUFS, VB_NOWHERE,
			       "both ends send and this one does not receive: "
			       "%llu bytes wait here, the limit is %llu",
			       (unsigned long long)(backlog->bytes + size),
			       (unsigned long long)backlog->limit_bytes);
	return size ? vb_backlog_add(t, data, size) : 0;
}

int vb_backlog_add(struct vb_transport *t, const void *data, size_t size)
{
	struct vb_backlog *backlog = &t->backlog;
	struct vb_piece *piece;

	piece = t->runtime.alloc(t->runtime.arg, sizeof(void *),
				 sizeof(*piece) + size);
	if (!piece)
		return vb_fail(t, VB_DEVICE, -ENOMEM, VB_NOWHERE,
			       "no memory for %zu received bytes", size);
	piece->next = NULL;
	piece->size = size;
	piece->off = 0;
	memcpy(piece->bytes, data, size);
	if (backlog->tail)
		backlog->tail->next = piece;
	else
		backlog->head = piece;
	backlog->tail = piece;
	backlog->bytes += size;
	return 0;
}

static void drop_head(struct vb_transport *t)
{
	struct vb_piece *head = t->backlog.head;

	t->backlog.head = head->next;
	if (!head->next)
		t->backlog.tail = NULL;
	t->runtime.free(t->runtime.arg, head);
}

size_t vb_backlog_peek(const struct vb_transport *t, const void **data)
{
	const struct vb_piece *head = t->backlog.head;

	if (!head)
		return 0;
	*data = head->bytes + head->off;
	return head->size - head->off;
}

void vb_backlog_consume(struct vb_transport *t, size_t size)
{
	struct vb_piece *head = t->backlog.head;

	head->off += size;
	t->backlog.bytes -= size;
	if (head->off == head->size)
		drop_head(t);
}

size_t vb_backlog_take(struct vb_transport *t, void *data, size_t size)
{
	uint8_t *to = data;
	size_t done = 0, left;
	const void *from;

	while (done < size && (left = vb_backlog_peek(t, &from)) > 0) {
		size_t take = size - done < left ? size - done : left;

		memcpy(to + done, from, take);
		vb_backlog_consume(t, take);
		done += take;
	}
	return done;
}

void vb_backlog_fini(struct vb_transport *t)
{
	while (t->backlog.head)
		drop_head(t);
	t->backlog.bytes = 0;
}
