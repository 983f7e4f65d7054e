/* SPDX-License-Identifier: MIT */
/*
 * Goal: whatever a library and sysfs say of devices, their ports and GIDs, what
 * the registry offers is within its bounds. Method: a verbs table, and files
 * in place of sysfs, that answer each call from the input; every offer is
 * walked, selected from and copied.
 */
#include "ci/fuzz/input.h"

#include <errno.h>

#include "lib/registry.h"

#define SYSFS	    "/fuzz"
#define DEVICES_MAX 3

static struct {
	struct input in;
	uint8_t flags;
	char name[DEVICES_MAX][80];
	struct ibv_device device[DEVICES_MAX];
	struct ibv_device *list[DEVICES_MAX + 1];
	struct verbs_context open;
	int opens, lists;
} host;

enum { NO_LIST = 1, HAS_EX = 2, HAS_EFA = 4, HAS_GUID = 8, IS_EXTENDED = 16 };

/* Half of the calls work. */
static int code(void)
{
	static const int codes[] = {0, EOPNOTSUPP, ENODATA, ENOSYS, -1, EINVAL};
	uint8_t at = host.in.left ? input_u8(&host.in) : 1;

	return at & 1 ? codes[(at >> 1) % 6] : 0;
}

/* --- the library --- */

static struct ibv_device **get_device_list(int *count)
{
	errno = ENOSYS;
	if (host.flags & NO_LIST)
		return NULL;
	*count = input_u8(&host.in) % (DEVICES_MAX + 1);
	for (int i = 0; i < *count; i++) {
		host.list[i] = input_u8(&host.in) ? &host.device[i] : NULL;
		input_bytes(&host.in, host.name[i], sizeof(host.name[i]) - 1);
		host.device[i].transport_type =
			(enum ibv_transport_type)input_u8(&host.in);
	}
	host.lists++;
	return host.list;
}

static void free_device_list(struct ibv_device **list)
{
	MUST(list == host.list && host.lists-- == 1);
}

static const char *get_device_name(struct ibv_device *device)
{
	return host.name[device - host.device];
}

static struct ibv_context *open_device(struct ibv_device *device)
{
	errno = code();
	if (errno)
		return NULL;
	host.opens++;
	host.open.context.device = device;
	return &host.open.context;
}

static int close_device(struct ibv_context *context)
{
	MUST(context == &host.open.context && host.opens-- == 1);
	return code();
}

static int query_device(struct ibv_context *context,
			struct ibv_device_attr *attr)
{
	(void)context;
	input_bytes(&host.in, attr, sizeof(*attr));
	if (host.flags & 32)
		attr->vendor_id = 0x02c9;
	attr->phys_port_cnt %= 4;
	return code();
}

static void fill(struct ibv_port_attr *attr, size_t size)
{
	struct ibv_port_attr all;

	input_bytes(&host.in, &all, sizeof(all));
	if (input_u8(&host.in) & 1)
		all.gid_tbl_len %= 16;
	memcpy(attr, &all, size < sizeof(all) ? size : sizeof(all));
}

/* As the export does it: the attributes of old, and no byte more. */
static int query_port(struct ibv_context *context, uint8_t num,
		      struct _compat_ibv_port_attr *attr)
{
	(void)context;
	(void)num;
	fill((struct ibv_port_attr *)attr,
	     offsetof(struct ibv_port_attr, flags));
	return code();
}

static int query_port_extended(struct ibv_context *context, uint8_t num,
			       struct ibv_port_attr *attr, size_t size)
{
	(void)context;
	(void)num;
	fill(attr, size);
	return code();
}

static int query_gid(struct ibv_context *context, uint8_t port, int index,
		     union ibv_gid *gid)
{
	MUST(context == &host.open.context && port && index >= 0);
	input_bytes(&host.in, gid, host.in.left ? sizeof(*gid) : 0);
	return code();
}

static int query_gid_ex(struct ibv_context *context, uint32_t port,
			uint32_t index, struct ibv_gid_entry *entry,
			uint32_t flags, size_t size)
{
	MUST(context == &host.open.context && port && !flags);
	MUST(index < VB_GID_LIMIT && size == sizeof(*entry));
	if (input_u8(&host.in) & 1)
		input_bytes(&host.in, entry, size);
	return code();
}

static __be64 get_device_guid(struct ibv_device *device)
{
	(void)device;
	return input_u64(&host.in);
}

static int query_efa(struct ibv_context *context,
		     struct efadv_device_attr *attr, uint32_t size)
{
	(void)context;
	input_bytes(&host.in, attr, size);
	return code();
}

/* --- sysfs: ci/fuzz.sh links fopen to this --- */

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);

FILE *__wrap_fopen(const char *path, const char *mode)
{
	static char text[64];
	size_t size;

	if (strncmp(path, SYSFS "/", sizeof(SYSFS)) != 0)
		return __real_fopen(path, mode);
	MUST(strlen(path) < 256);
	size = input_u8(&host.in) % sizeof(text);
	if (size < 2)
		return NULL;
	if (size == 2)
		return fmemopen("RoCE v2\n", 8, "r");
	if (size == 3)
		return fmemopen("IB/RoCE v1\n", 11, "r");
	input_bytes(&host.in, text, size);
	return fmemopen(text, size, "r");
}

/* --- what is made of it --- */

static bool ends(const char *text, size_t size)
{
	return memchr(text, 0, size) != NULL;
}

static void check_port(const struct vb_device_info *info,
		       const struct vb_port *port)
{
	static const uint8_t zero[16];
	const struct vb_gid *gid;

	MUST(port->num && port->gid_count >= 0);
	MUST(port->gid_table_len <= INT32_MAX);
	MUST(port->gid_count <= VB_GID_LIMIT);
	MUST((uint32_t)port->gid_count <= port->gid_table_len);
	for (int i = 0; i < port->gid_count; i++) {
		gid = &port->gids[i];
		MUST(memcmp(gid->raw, zero, 16) != 0);
		MUST(gid->index < port->gid_table_len);
		MUST(i == 0 || gid->index > gid[-1].index);
		MUST(gid->type <= VB_GID_ROCE_V2);
		MUST(gid->scope == vb_gid_scope_of(gid->raw));
	}
	for (int scope = -1; scope <= VB_GID_GLOBAL; scope++)
		for (int type = -1; type <= VB_GID_ROCE_V2; type++)
			if (!vb_gid_select(info, port->num, scope, type, &gid))
				MUST(gid >= port->gids &&
				     gid < port->gids + port->gid_count &&
				     (type < 0 || (int)gid->type == type) &&
				     (scope < 0 || (int)gid->scope == scope));
	for (int with = 0; with < 2; with++)
		if (!vb_gid_choose(info, port->num, with, &gid))
			MUST(gid >= port->gids &&
			     gid < port->gids + port->gid_count);
}

static void check(const struct vb_device_info *info)
{
	struct vb_config config;
	struct vb_excess excess[4];
	uint64_t seed = 1;

	MUST(ends(info->name, sizeof(info->name)));
	MUST(ends(info->fw_version, sizeof(info->fw_version)));
	MUST(info->backend && info->backend_name);
	MUST(info->port_count >= 0 && info->port_count < 4);
	for (int i = 0; i < info->port_count; i++)
		check_port(info, &info->ports[i]);
	vb_speed_mbytes(info);
	vb_config_init(&config, &seed);
	MUST(vb_config_check(&config, info, excess, 4) >= 0);
	vb_config_clamp(&config, info);
}

/* A device changes behind the registry's back; it may refuse, no more. */
static void reopen(struct vb_registry *registry,
		   const struct vb_device_info *info)
{
	struct vb_device *device = NULL;

	if (vb_device_open(registry, info->backend, info->name, NULL,
			   &device) != 0) {
		MUST(vb_last_error()[0]);
		return;
	}
	check(vb_device_info(device));
	vb_device_close(device);
}

static void log_line(void *arg, enum vb_level level, const char *line)
{
	(void)arg;
	(void)level;
	MUST(strlen(line) < 256);
}

static void ask(struct vb_registry *registry)
{
	struct vb_devices devices;
	struct vb_report report;

	if (vb_devices_list(registry, NULL, &devices) == 0) {
		MUST(host.opens == 0 && host.lists == 0);
		for (int i = 0; i < devices.count; i++)
			check(&devices.info[i]);
		if (devices.count)
			reopen(registry, devices.info);
		vb_devices_free(&devices);
	}
	if (vb_registry_report(registry, &report) == 0) {
		for (int i = 0; i < report.count; i++)
			MUST(ends(report.absent[i].name, VB_NAME_MAX) &&
			     ends(report.absent[i].text, 160));
		vb_report_free(&report);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct vb_verbs verbs = {
		.get_device_list = get_device_list,
		.free_device_list = free_device_list,
		.get_device_name = get_device_name,
		.open_device = open_device,
		.close_device = close_device,
		.query_device = query_device,
		.query_port = query_port,
		.query_gid = query_gid,
		.refs = 1,
	};
	struct vb_registry_options options = {.verbs = &verbs,
					      .sysfs = SYSFS,
					      .log = log_line};
	struct vb_registry *registry;

	memset(&host, 0, sizeof(host));
	host.in = (struct input){data, size};
	host.flags = input_u8(&host.in);
	if (host.flags & HAS_EX)
		verbs.query_gid_ex = query_gid_ex;
	if (host.flags & HAS_EFA)
		verbs.efadv_query_device = query_efa;
	if (host.flags & HAS_GUID)
		verbs.get_device_guid = get_device_guid;
	if (host.flags & IS_EXTENDED)
		host.open.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	host.open.sz = sizeof(host.open);
	host.open.query_port = query_port_extended;
	if (vb_registry_create(&options, &registry) != 0)
		return 0;
	ask(registry);
	vb_registry_refresh(registry);
	ask(registry);
	vb_registry_destroy(registry);
	MUST(host.opens == 0 && host.lists == 0 && verbs.refs == 1);
	return 0;
}
