/* SPDX-License-Identifier: MIT */
/* The transport contract: dispatch, and the one latched failure. */
#include "lib/transport.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "lib/boot.h"
#include "lib/runtime.h"

#define DEFAULT_TIMEOUT_NS 30000000000ull
#define DEFAULT_GRACE_NS   100000000ull
#define DEFAULT_BACKLOG	   (1ull << 30) /* ggml-rpc's longest call */

int vb_fail(struct vb_transport *t, enum vb_code code, int error,
	    struct vb_where where, const char *format, ...)
{
	struct vb_cause *cause = &t->cause;
	va_list args;

	if (cause->code != VB_OK)
		return cause->error;
	cause->code = code;
	cause->error = error;
	cause->is_send = where.is_send;
	cause->offset_bytes = where.offset_bytes;
	cause->frame = where.frame;
	cause->slot = where.slot;
	va_start(args, format);
	vsnprintf(cause->text, sizeof(cause->text), format, args);
	va_end(args);
	return error;
}

static uint64_t or_default(uint64_t given, uint64_t otherwise)
{
	return given ? given : otherwise;
}

void vb_transport_init(struct vb_transport *t,
		       const struct vb_transport_ops *ops,
		       const struct vb_options *options)
{
	*t = (struct vb_transport){
		.ops = ops,
		.cause = VB_NO_CAUSE,
		.runtime = vb_runtime_or_default(&options->runtime),
		.boot = options->boot ? *options->boot
				      : vb_boot_socket(options->fd),
		.timeout_ns =
			or_default(options->timeout_ns, DEFAULT_TIMEOUT_NS),
		.grace_ns = or_default(options->grace_ns, DEFAULT_GRACE_NS),
		.backlog = {.limit_bytes = or_default(options->backlog_bytes,
						      DEFAULT_BACKLOG)},
	};
}

#define STRIDE_MAX (1u << 30)

int vb_options_check(struct vb_transport *t, const struct vb_options *options)
{
	const struct {
		const char *field;
		uint64_t value;
		bool is_wrong;
		const char *limit;
	} rows[] = {
		{"stride_bytes", options->stride_bytes,
		 options->stride_bytes % 4096 ||
			 options->stride_bytes > STRIDE_MAX,
		 "a multiple of 4096 up to 1 GiB"},
		{"slots", options->slots, options->slots > VB_SLOTS_MAX,
		 "at most 64"},
		{"mode", options->mode, options->mode > VB_HARDENED_ONLY,
		 "one of enum vb_mode"},
		{"transport", options->transport,
		 options->transport > VB_TRANSPORT_TCP,
		 "one of enum vb_transport_kind"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (rows[i].is_wrong)
			return vb_fail(t, VB_DEVICE, -EINVAL, VB_NOWHERE,
				       "%s %llu is not %s", rows[i].field,
				       (unsigned long long)rows[i].value,
				       rows[i].limit);
	return 0;
}

/* Every call but vb_cause and its like begins here. */
static int enter(struct vb_transport *t)
{
	t->reserved = t->peeked = 0;
	return t->cause.code ? t->cause.error : 0;
}

int vb_activate(struct vb_transport *t, const uint8_t caps[VB_CAPS_BYTES])
{
	int rc = enter(t);

	return rc ? rc : t->ops->activate(t, caps);
}

int vb_send(struct vb_transport *t, const void *data, size_t size)
{
	int rc = enter(t);

	return rc ? rc : t->ops->send(t, data, size);
}

int vb_recv(struct vb_transport *t, void *data, size_t size)
{
	int rc = enter(t);

	return rc ? rc : t->ops->recv(t, data, size);
}

int vb_flush(struct vb_transport *t)
{
	int rc = enter(t);

	return rc ? rc : t->ops->flush(t);
}

int vb_send_reserve(struct vb_transport *t, void **space, size_t *size)
{
	int rc = enter(t);

	if (!rc)
		rc = t->ops->reserve(t, space, size);
	if (!rc)
		t->reserved = *size;
	return rc;
}

int vb_send_commit(struct vb_transport *t, size_t size)
{
	size_t reserved = t->reserved;
	int rc = enter(t);

	if (rc || size == 0)
		return rc;
	return size > reserved ? -EINVAL : t->ops->commit(t, size);
}

int vb_recv_peek(struct vb_transport *t, const void **data, size_t *size)
{
	int rc = enter(t);

	if (!rc)
		rc = t->ops->flush(t);
	if (rc)
		return rc;
	*size = vb_backlog_peek(t, data);
	if (*size == 0)
		rc = t->ops->peek(t, data, size);
	if (!rc)
		t->peeked = *size;
	return rc;
}

int vb_recv_consume(struct vb_transport *t, size_t size)
{
	size_t peeked = t->peeked;
	int rc = enter(t);

	if (rc || size == 0)
		return rc;
	if (size > peeked)
		return -EINVAL;
	if (!t->backlog.head)
		return t->ops->consume(t, size);
	vb_backlog_consume(t, size);
	t->received_bytes += size;
	return 0;
}

int vb_close(struct vb_transport *t, struct vb_cause *cause)
{
	if (t)
		return t->ops->close(t, cause);
	if (cause)
		*cause = VB_NO_CAUSE;
	return 0;
}

const struct vb_cause *vb_cause(const struct vb_transport *t)
{
	return &t->cause;
}

const char *vb_transport_name(const struct vb_transport *t)
{
	return t->ops->name;
}

uint64_t vb_sent_bytes(const struct vb_transport *t)
{
	return t->sent_bytes;
}

uint64_t vb_received_bytes(const struct vb_transport *t)
{
	return t->received_bytes;
}

const char *vb_code_name(enum vb_code code)
{
	static const char *const names[] = {
		[VB_OK] = "ok",
		[VB_NO_DEVICE] = "no-device",
		[VB_DEVICE] = "device",
		[VB_TIMEOUT] = "timeout",
		[VB_PEER_GONE] = "peer-gone",
		[VB_PROTOCOL] = "protocol",
		[VB_COMPLETION] = "completion",
		[VB_OVERFLOW] = "overflow",
	};

	return (unsigned)code < sizeof(names) / sizeof(*names) ? names[code]
							       : "unknown";
}
