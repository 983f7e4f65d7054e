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

/* --- what queue pairs need --- */

/* Log it; true: this one is to fail, with errno set. */
static bool fails(const char *call, const char *detail)
{
	int past = ++fake.qp_calls - fake.fail_at;

	note(call, detail);
	if (!fake.fail_at || past < 0 || past >= fake.fail_count)
		return false;
	errno = FAKE_ERRNO;
	return true;
}

static void *made(size_t bytes)
{
	fake.live++;
	return calloc(1, bytes);
}

static int ended(const char *call, void *object)
{
	if (fails(call, NULL)) {
		fake.refused = object;
		return FAKE_ERRNO;
	}
	if (fake.refused == object)
		fake.refused = NULL;
	fake.live--;
	free(object);
	return 0;
}

static struct ibv_cq *create_cq(struct ibv_context *context, int cqe, void *arg,
				struct ibv_comp_channel *channel, int vector)
{
	char detail[16];
	struct ibv_cq *cq;

	CHECK(!arg && !channel && !vector, "more than a depth");
	snprintf(detail, sizeof(detail), "%d", cqe);
	if (fails("create_cq", detail))
		return NULL;
	cq = made(sizeof(*cq));
	cq->context = context;
	return cq;
}

static int destroy_cq(struct ibv_cq *cq)
{
	return ended("destroy_cq", cq);
}

static struct ibv_qp *new_qp(struct ibv_pd *pd)
{
	struct ibv_qp *qp = made(sizeof(*qp));

	qp->context = pd->context;
	qp->pd = pd;
	qp->qp_num = 0x1a;
	return qp;
}

static struct ibv_qp *create_qp(struct ibv_pd *pd,
				struct ibv_qp_init_attr *attr)
{
	fake.init = *attr;
	return fails("create_qp", NULL) ? NULL : new_qp(pd);
}

static struct ibv_qp *create_efa_qp(struct ibv_context *context,
				    struct ibv_qp_init_attr_ex *attr,
				    struct efadv_qp_init_attr *efa,
				    uint32_t size)
{
	CHECK_EQ(size, sizeof(*efa));
	CHECK(attr->pd->context == context, "another's");
	fake.init_ex = *attr;
	fake.init_efa = *efa;
	return fails("efadv_create_qp_ex", NULL) ? NULL : new_qp(attr->pd);
}

static int destroy_qp(struct ibv_qp *qp)
{
	return ended("destroy_qp", qp);
}

static int modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	static const char *const names[] = {"RESET", "INIT", "RTR", "RTS"};

	CHECK_EQ(qp->qp_num, 0x1a);
	CHECK(fake.steps < FAKE_STEPS, "too many steps");
	fake.step[fake.steps++] = (struct fake_step){*attr, mask};
	return fails("modify_qp", names[attr->qp_state]) ? FAKE_ERRNO : 0;
}

static struct ibv_ah *create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct ibv_ah *ah;

	fake.ah = *attr;
	if (fails("create_ah", NULL))
		return NULL;
	ah = made(sizeof(*ah));
	ah->pd = pd;
	return ah;
}

static int destroy_ah(struct ibv_ah *ah)
{
	return ended("destroy_ah", ah);
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
		.create_cq = create_cq,
		.destroy_cq = destroy_cq,
		.create_qp = create_qp,
		.destroy_qp = destroy_qp,
		.modify_qp = modify_qp,
		.create_ah = fake.lacks_ah ? NULL : create_ah,
		.destroy_ah = fake.lacks_ah ? NULL : destroy_ah,
		.efadv_query_device = query_efa,
		.efadv_create_qp_ex =
			fake.lacks_efadv_qp ? NULL : create_efa_qp,
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

/* --- for queue pairs --- */

const struct vb_endpoint fake_peer = {.qpn = 0x2b,
				      .psn = 0x123456,
				      .lid = 7,
				      .has_gid = true,
				      .gid = {0x20, 9}};

void fake_add_gid(struct fake_device *it, int index, uint32_t type,
		  uint8_t first)
{
	struct fake_gid *gid = &it->port[0].gid[index];

	gid->type = type;
	memset(gid->raw, 0, 16);
	gid->raw[0] = first;
	gid->raw[15] = (uint8_t)(index + 1);
}

static struct fake_device *add_able(const char *name, uint32_t vendor,
				    uint8_t link_layer)
{
	struct fake_device *it = fake_add(name, vendor);

	it->attr.max_qp_wr = 32768;
	it->attr.max_sge = 30;
	it->attr.max_cqe = 65535;
	it->port[0].attr.gid_tbl_len = FAKE_GIDS;
	it->port[0].attr.pkey_tbl_len = 1;
	it->port[0].attr.active_mtu = IBV_MTU_1024;
	it->port[0].attr.link_layer = link_layer;
	fake_add_gid(it, 0, IBV_GID_TYPE_IB, 0xfe);
	return it;
}

void fake_add_three(void)
{
	struct fake_device *it;

	fake_init();
	fake.fail_count = 1;
	it = add_able("mlx5_0", 0x02c9, IBV_LINK_LAYER_ETHERNET);
	fake_add_gid(it, 3, IBV_GID_TYPE_ROCE_V2, 0x20);
	it = add_able("efa_0", 0x1d0f, IBV_LINK_LAYER_UNSPECIFIED);
	it->is_efa = true;
	it->efa = (struct efadv_device_attr){.max_sq_wr = 4096,
					     .max_rq_wr = 32768,
					     .device_caps = 0xf,
					     .max_rdma_size = 1 << 30};
	it = add_able("rdma_en2", 0x05ac, 100);
	it->device.transport_type = 100;
	it->port[0].attr.lid = 2;
}

struct vb_config fake_config(void)
{
	return (struct vb_config){
		.max_send_wr = 512,
		.max_recv_wr = 256,
		.max_send_sge = 4,
		.max_recv_sge = 3,
		.psn = 0xabcdef,
		.port_num = 1,
		.path_mtu = IBV_MTU_4096,
		.retry_cnt = 6,
		.rnr_retry = 5,
		.qp_timeout = 14,
		.min_rnr_timer = 12,
		.max_rd_atomic = 9,
		.max_dest_rd_atomic = 8,
	};
}

void fake_bed_open(struct fake_bed *bed, const char *key,
		   const struct vb_config *config)
{
	struct vb_devices devices;

	bed->registry = fake_registry(true);
	CHECK_EQ(vb_devices_list(bed->registry, key, &devices), 0);
	CHECK_EQ(devices.count, 1);
	CHECK(vb_device_open(bed->registry, key, devices.info->name, config,
			     &bed->device) == 0,
	      "%s", vb_last_error());
	vb_devices_free(&devices);
	CHECK_EQ(vb_domain_open(bed->device, "d", &bed->domain), 0);
	fake.log[0] = 0;
}

struct fake_bed fake_bed(const char *key)
{
	struct vb_config config = fake_config();
	struct fake_bed bed;

	fake_add_three();
	fake_bed_open(&bed, key, &config);
	return bed;
}

void fake_bed_close(struct fake_bed *bed)
{
	CHECK_EQ(vb_device_close(bed->device), 0);
	vb_registry_destroy(bed->registry);
	free(fake.refused);
	for (int i = 0; i < fake.count; i++)
		CHECK_EQ(fake.device[i].opens, fake.device[i].closes);
}

struct vb_qp *fake_qp(struct fake_bed *bed, enum vb_qp_kind kind)
{
	struct vb_qp *qp = NULL;

	CHECK(vb_qp_create(bed->domain, kind, NULL, NULL, &qp) == 0, "%s",
	      vb_last_error());
	return qp;
}
