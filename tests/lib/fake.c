/* SPDX-License-Identifier: MIT */
/* A scripted host; see fake.h. */
#include "tests/lib/fake.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness.h"

struct fake fake;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void note(const char *call, const char *name)
{
	size_t used;

	pthread_mutex_lock(&lock);
	used = strlen(fake.log);
	snprintf(fake.log + used, sizeof(fake.log) - used, "%s%s%s ", call,
		 name ? ":" : "", name ? name : "");
	pthread_mutex_unlock(&lock);
}

static struct fake_device *of_context(struct ibv_context *context)
{
	return (struct fake_device *)context->device;
}

static struct ibv_device **get_device_list(int *count)
{
	struct ibv_device **list;

	note("list", NULL);
	fake.lists++;
	if (fake.list_errno) {
		errno = fake.list_errno;
		return NULL;
	}
	list = calloc(FAKE_DEVICES + 1, sizeof(*list));
	for (int i = 0; i < fake.count; i++)
		list[i] =
			fake.device[i].is_null ? NULL : &fake.device[i].device;
	if (count)
		*count = fake.count;
	return list;
}

static void free_device_list(struct ibv_device **list)
{
	note("free", NULL);
	fake.frees++;
	free(list);
}

static const char *get_device_name(struct ibv_device *device)
{
	return ((struct fake_device *)device)->name;
}

static struct ibv_context *open_device(struct ibv_device *device)
{
	struct fake_device *it = (struct fake_device *)device;

	note("open", it->name);
	if (it->open_errno) {
		errno = it->open_errno;
		return NULL;
	}
	it->opens++;
	it->context.device = device;
	return &it->context;
}

static int close_device(struct ibv_context *context)
{
	struct fake_device *it = of_context(context);

	note("close", it->name);
	it->closes++;
	return it->close_rc;
}

static int query_device(struct ibv_context *context,
			struct ibv_device_attr *attr)
{
	struct fake_device *it = of_context(context);

	note("query", it->name);
	*attr = it->attr;
	return it->query_rc;
}

static int query_port(struct ibv_context *context, uint8_t num,
		      struct _compat_ibv_port_attr *attr)
{
	struct fake_port *port;

	if (num < 1 || num > FAKE_PORTS)
		return EINVAL;
	port = &of_context(context)->port[num - 1];
	memcpy(attr, &port->attr, sizeof(port->attr));
	return port->rc;
}

static __be64 get_device_guid(struct ibv_device *device)
{
	return ((struct fake_device *)device)->attr.node_guid;
}

static struct ibv_pd *alloc_pd(struct ibv_context *context)
{
	struct fake_device *it = of_context(context);

	note("alloc_pd", it->name);
	errno = fake.pd_errno;
	it->pd.context = context;
	return fake.pd_errno ? NULL : &it->pd;
}

static int dealloc_pd(struct ibv_pd *pd)
{
	note("dealloc_pd", of_context(pd->context)->name);
	return fake.dealloc_rc;
}

static struct ibv_mr *register_mr(struct ibv_pd *pd, void *addr, size_t length,
				  int access)
{
	struct fake_device *it = of_context(pd->context);

	note("reg_mr", it->name);
	errno = fake.mr_errno;
	fake.access = access;
	it->mr = (struct ibv_mr){.context = pd->context,
				 .pd = pd,
				 .addr = addr,
				 .length = length,
				 .lkey = 11,
				 .rkey = 22};
	return fake.mr_errno ? NULL : &it->mr;
}

static int dereg_mr(struct ibv_mr *mr)
{
	note("dereg_mr", of_context(mr->context)->name);
	return fake.dereg_rc;
}

static struct fake_gid *gid_at(struct ibv_context *context, uint32_t port,
			       uint32_t index)
{
	static struct fake_gid empty;

	return index < FAKE_GIDS
		       ? &of_context(context)->port[port - 1].gid[index]
		       : &empty;
}

static int query_gid(struct ibv_context *context, uint8_t port, int index,
		     union ibv_gid *gid)
{
	memcpy(gid->raw, gid_at(context, port, (uint32_t)index)->raw, 16);
	return 0;
}

static int query_gid_ex(struct ibv_context *context, uint32_t port,
			uint32_t index, struct ibv_gid_entry *entry,
			uint32_t flags, size_t size)
{
	struct fake_gid *gid = gid_at(context, port, index);

	(void)flags;
	(void)size;
	memcpy(entry->gid.raw, gid->raw, 16);
	entry->gid_type = gid->type;
	return gid->rc;
}

static int query_efa(struct ibv_context *context,
		     struct efadv_device_attr *attr, uint32_t size)
{
	struct fake_device *it = of_context(context);

	(void)size;
	note("efadv", it->name);
	*attr = it->efa;
	return it->is_efa ? 0 : EOPNOTSUPP;
}

struct vb_verbs *fake_verbs(void)
{
	static struct vb_verbs verbs;

	verbs = (struct vb_verbs){
		.get_device_list = get_device_list,
		.free_device_list = free_device_list,
		.get_device_name = get_device_name,
		.open_device = open_device,
		.close_device = close_device,
		.query_device = query_device,
		.query_port = query_port,
		.query_gid = query_gid,
		.alloc_pd = alloc_pd,
		.dealloc_pd = dealloc_pd,
		.reg_mr = register_mr,
		.dereg_mr = dereg_mr,
		.get_device_guid = get_device_guid,
		.query_gid_ex = fake.lacks_query_gid_ex ? NULL : query_gid_ex,
		.efadv_query_device = query_efa,
		.refs = 1000000, /* never the last reference */
	};
	return &verbs;
}

void fake_init(void)
{
	memset(&fake, 0, sizeof(fake));
}

struct fake_device *fake_add(const char *name, uint32_t vendor)
{
	struct fake_device *it = &fake.device[fake.count++];

	it->name = name;
	it->attr.vendor_id = vendor;
	it->attr.phys_port_cnt = 1;
	it->attr.node_guid =
		htobe64(0x1122334455667700u + (uint64_t)fake.count);
	it->port[0].attr.state = IBV_PORT_ACTIVE;
	it->port[0].attr.link_layer = IBV_LINK_LAYER_ETHERNET;
	return it;
}

static void keep_line(void *arg, enum vb_level level, const char *line)
{
	size_t used = strlen(fake.lines);

	(void)arg;
	fake.warnings += level == VB_LOG_WARNING;
	snprintf(fake.lines + used, sizeof(fake.lines) - used, "%s\n", line);
}

struct vb_registry *fake_registry(bool ships)
{
	struct vb_registry_options options = {.verbs = fake_verbs(),
					      .sysfs = "/nowhere",
					      .has_no_backends = !ships,
					      .log = keep_line};
	struct vb_registry *registry = NULL;

	CHECK_EQ(vb_registry_create(&options, &registry), 0);
	return registry;
}

int fake_claim_any(const struct vb_verbs *verbs, struct ibv_context *context,
		   char reason[128])
{
	(void)verbs;
	(void)context;
	(void)reason;
	return VB_CLAIM_YES;
}

void fake_list_one(struct vb_registry *registry, struct vb_devices *devices)
{
	CHECK_EQ(vb_devices_list(registry, NULL, devices), 0);
	CHECK_EQ(devices->count, 1);
}

int fake_calls(const char *part)
{
	int count = 0;

	for (const char *at = fake.log; (at = strstr(at, part)); at++)
		count++;
	return count;
}
