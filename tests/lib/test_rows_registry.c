/* SPDX-License-Identifier: MIT */
/*
 * Goal: rows of the registry, and of finding a device, that a change of lib
 * could break unseen. Method: a scripted host on which no value stands for
 * another.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/qp_stream.h"
#include "tests/harness.h"
#include "tests/lib/fake.h"

static const struct vb_backend all = {.key = "all",
				      .name = "Any",
				      .claim = fake_claim_any};

static struct vb_registry *with(const struct vb_backend *backend)
{
	struct vb_registry *registry = fake_registry(false);

	CHECK_EQ(vb_backend_register(registry, backend), 0);
	return registry;
}

static const uint8_t address[16] = {[10] = 0xff, 0xff, 10, 0, 0, 9};

static void put_address(struct fake_port *port, int index)
{
	port->attr.state = IBV_PORT_ACTIVE;
	port->attr.gid_tbl_len = FAKE_GIDS;
	memcpy(port->gid[index].raw, address, 16);
	port->gid[index].type = IBV_GID_TYPE_ROCE_V2;
}

/* --- finding: DA23, DA24, DL11 --- */

static struct vb_cause cause;

static int probe(struct vb_verbs *verbs)
{
	struct vb_options options = {.fd = -1, .verbs = verbs};
	struct vb_transport *transport = NULL;
	uint8_t caps[VB_CAPS_BYTES];
	int rc;

	memcpy(options.gid, address, 16);
	rc = vb_probe(&options, caps, &transport, &cause);
	CHECK(!transport, "a transport");
	for (int i = 0; i < fake.count; i++)
		CHECK_EQ(fake.device[i].opens, fake.device[i].closes);
	CHECK_EQ(fake.lists, fake.frees);
	CHECK_EQ(fake.live, 0);
	return rc;
}

static int grant_all(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		     struct ibv_qp_init_attr *init)
{
	(void)qp;
	(void)attr;
	(void)mask;
	*init = fake.init;
	return 0;
}

/* The move to INIT says which port it is, and fails. */
static int probe_to_init(int index)
{
	struct vb_verbs *verbs = fake_verbs();
	struct fake_device *it;

	verbs->query_qp = grant_all;
	fake_init();
	it = fake_add("two", 1);
	it->attr.phys_port_cnt = 2;
	it->port[0].attr.gid_tbl_len = FAKE_GIDS;
	fake_add_gid(it, 1, IBV_GID_TYPE_ROCE_V2, 0x20);
	put_address(&it->port[1], index);
	fake.fail_at = 4; /* after both create_cq and create_qp */
	fake.fail_count = 1;
	return probe(verbs);
}

Test(find, DA24_DL7_of_two_active_ports_the_one_with_the_address_is_taken)
{
	CHECK_EQ(probe_to_init(3), -FAKE_ERRNO);
	CHECK_HAS(cause.text, "modify_qp to INIT on two");
	CHECK_EQ(fake.steps, 1);
	CHECK_EQ(fake.step[0].attr.port_num, 2);
}

Test(find, DA23_an_index_that_a_byte_does_not_hold_is_no_index)
{
	CHECK_EQ(probe_to_init(255), -FAKE_ERRNO);
	CHECK_EQ(probe_to_init(256), -ENODEV);
	CHECK_EQ(probe_to_init(300), -ENODEV);
	CHECK_EQ(cause.code, VB_NO_DEVICE);
	CHECK_HAS(cause.text, "10.0.0.9: 1 devices, 2 active ports");
	CHECK_EQ(fake_calls("alloc_pd"), 0);
}

Test(rc, DL11_a_list_of_no_devices_is_freed)
{
	fake_init();
	CHECK_EQ(probe(fake_verbs()), -ENODEV);
	CHECK_HAS(cause.text, "0 devices, 0 active ports, 0 left out");
	CHECK_LOG("list free ");
}

/* --- I1, I7 --- */

/* Each value another, in both ports. */
static struct ibv_port_attr port_attr(uint8_t base)
{
	return (struct ibv_port_attr){
		.state = (enum ibv_port_state)(base + 1),
		.max_mtu = (enum ibv_mtu)(base + 2),
		.active_mtu = (enum ibv_mtu)(base + 3),
		.gid_tbl_len = base + 4,
		.port_cap_flags = 0x80000000u + base + 5,
		.max_msg_sz = 0x90000000u + base + 6,
		.bad_pkey_cntr = base + 7u,
		.qkey_viol_cntr = base + 8u,
		.pkey_tbl_len = (uint16_t)(0xa000 + base + 9),
		.lid = (uint16_t)(0xb000 + base + 10),
		.sm_lid = (uint16_t)(0xc000 + base + 11),
		.lmc = (uint8_t)(base + 12),
		.max_vl_num = (uint8_t)(base + 13),
		.sm_sl = (uint8_t)(base + 14),
		.subnet_timeout = (uint8_t)(base + 15),
		.init_type_reply = (uint8_t)(base + 16),
		.active_width = (uint8_t)(base + 17),
		.active_speed = (uint8_t)(base + 18),
		.phys_state = (uint8_t)(base + 19),
		.link_layer = (uint8_t)(base + 20),
		.flags = (uint8_t)(base + 21),
		.port_cap_flags2 = (uint16_t)(base + 22),
	};
}

static void check_port(const struct vb_port *port, uint8_t base)
{
	CHECK_EQ(port->state, base + 1);
	CHECK_EQ(port->max_mtu, base + 2);
	CHECK_EQ(port->active_mtu, base + 3);
	CHECK_EQ(port->gid_table_len, base + 4);
	CHECK_EQ(port->capabilities, 0x80000000u + base + 5);
	CHECK_EQ(port->max_msg_bytes, 0x90000000u + base + 6);
	CHECK_EQ(port->pkey_count, 0xa000 + base + 9);
	CHECK_EQ(port->lid, 0xb000 + base + 10);
	CHECK_EQ(port->sm_lid, 0xc000 + base + 11);
	CHECK_EQ(port->lmc, base + 12);
	CHECK_EQ(port->active_width, base + 17);
	CHECK_EQ(port->active_speed, base + 18);
	CHECK_EQ(port->phys_state, base + 19);
	CHECK_EQ(port->link_layer, base + 20);
}

Test(devices, I1_every_field_of_a_port_is_as_queried)
{
	struct vb_registry *registry;
	struct vb_devices devices;
	struct fake_device *it;

	fake_init();
	it = fake_add("a", 1);
	it->attr.phys_port_cnt = 2;
	it->port[0].attr = port_attr(10);
	it->port[1].attr = port_attr(100);
	registry = with(&all);
	fake_list_one(registry, &devices);
	CHECK_EQ(devices.info->port_count, 2);
	check_port(&devices.info->ports[0], 10);
	check_port(&devices.info->ports[1], 100);
	CHECK_EQ(devices.info->ports[1].num, 2);
	vb_devices_free(&devices);
	vb_registry_destroy(registry);
}

Test(devices, I7_entries_past_the_256th_are_read_with_their_index)
{
	static const uint32_t at[] = {0, 7, 8, 255, 256, 299};
	struct vb_registry *registry;
	struct vb_devices devices;
	struct vb_port *port;
	struct fake_device *it;

	fake_init();
	it = fake_add("a", 1);
	it->port[0].attr.gid_tbl_len = 300;
	for (int i = 0; i < 6; i++)
		fake_add_gid(it, (int)at[i], IBV_GID_TYPE_ROCE_V2, 0x20);
	fake_add_gid(it, 300, IBV_GID_TYPE_ROCE_V2, 0x20); /* past its end */
	registry = with(&all);
	fake_list_one(registry, &devices);
	port = devices.info->ports;
	CHECK_EQ(port->gid_count, 6);
	for (int i = 0; i < 6; i++)
		CHECK_EQ(port->gids[i].index, at[i]);
	vb_devices_free(&devices);
	vb_registry_destroy(registry);
}

/* --- I8 --- */

static char sysfs[32];

#define TYPES "class/infiniband/a/ports/1/gid_attrs/types"

/* All folders of TYPES, one after the other: made, or (backwards) removed. */
static void make_folders(bool is_made)
{
	char path[128], *slash;
	int used = snprintf(path, sizeof(path), "%s/%s/", sysfs, TYPES);

	for (int i = 0; i < used; i++)
		if (is_made && i > (int)strlen(sysfs) && path[i] == '/') {
			path[i] = 0;
			CHECK_EQ(mkdir(path, 0700), 0);
			path[i] = '/';
		}
	while (!is_made && (slash = strrchr(path, '/')) > path + 4) {
		*slash = 0;
		CHECK_EQ(rmdir(path), 0);
	}
}

static void write_type(int index, const char *text)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s/%d", sysfs, TYPES, index);
	if (!text) {
		CHECK_EQ(unlink(path), 0);
		return;
	}
	file = fopen(path, "w");
	CHECK(file != NULL, "%s", path);
	fputs(text, file);
	fclose(file);
}

static void count_line(void *arg, enum vb_level level, const char *line)
{
	(void)line;
	*(int *)arg += level == VB_LOG_WARNING;
}

static void check_types(struct vb_registry *registry,
			const enum vb_gid_type *want, int count)
{
	struct vb_devices devices;
	struct vb_port *port;

	CHECK_EQ(vb_backend_register(registry, &all), 0);
	fake_list_one(registry, &devices);
	port = devices.info->ports;
	CHECK_EQ(port->gid_count, count);
	for (int i = 0; i < count; i++)
		CHECK(port->gids[i].type == want[i], "%d: %d, want %d", i,
		      port->gids[i].type, want[i]);
	vb_devices_free(&devices);
	vb_registry_destroy(registry);
}

Test(devices, I8_types_that_the_library_does_not_tell_are_those_of_sysfs)
{
	static const char *const text[] = {"RoCE v2\n", "IB/RoCE v1\n",
					   "RoCE v2", "RoCE v3\n", "\n"};
	static const enum vb_gid_type want[] = {VB_GID_ROCE_V2,
						VB_GID_IB_ROCE_V1,
						VB_GID_ROCE_V2, VB_GID_UNKNOWN,
						VB_GID_UNKNOWN};
	int warnings = 0;
	struct vb_registry_options options = {.verbs = fake_verbs(),
					      .sysfs = sysfs,
					      .has_no_backends = true,
					      .log = count_line,
					      .arg = &warnings};
	struct vb_registry *registry;
	struct fake_device *it;

	fake_init();
	fake.lacks_query_gid_ex = true;
	options.verbs = fake_verbs();
	it = fake_add("a", 1);
	it->port[0].attr.gid_tbl_len = 300;
	snprintf(sysfs, sizeof(sysfs), "/tmp/vb_rows_XXXXXX");
	CHECK(mkdtemp(sysfs) != NULL, "mkdtemp");
	make_folders(true);
	for (int i = 0; i < 5; i++) {
		/* The other type, if it were asked; at 0, 65, ..., 260. */
		fake_add_gid(it, 65 * i, IBV_GID_TYPE_ROCE_V2, 0x20);
		write_type(65 * i, text[i]);
	}
	CHECK_EQ(vb_registry_create(&options, &registry), 0);
	check_types(registry, want, 5);
	CHECK_EQ(warnings, 2);
	for (int i = 0; i < 5; i++)
		write_type(65 * i, NULL);
	make_folders(false);
}

Test(devices, I8_types_that_the_library_tells)
{
	static const uint32_t told[] = {IBV_GID_TYPE_IB, IBV_GID_TYPE_ROCE_V1,
					IBV_GID_TYPE_ROCE_V2, 77};
	static const enum vb_gid_type want[] = {VB_GID_IB_ROCE_V1,
						VB_GID_IB_ROCE_V1,
						VB_GID_ROCE_V2, VB_GID_UNKNOWN};
	struct fake_device *it;

	fake_init();
	it = fake_add("a", 1);
	it->port[0].attr.gid_tbl_len = 4;
	for (int i = 0; i < 4; i++)
		fake_add_gid(it, i, told[i], 0x20);
	check_types(fake_registry(false), want, 4);
}

/* --- I11 --- */

Test(open, I11_a_device_whose_name_is_not_text_can_be_opened)
{
	static char name[2][64]; /* but for the last byte the same */
	struct vb_registry *registry;
	struct vb_device *device;

	fake_init();
	for (int i = 0; i < 2; i++) {
		for (int at = 0; at < 63; at++)
			name[i][at] = (char)(0x80 + at * 2);
		name[i][62] = (char)(0xfe + i);
		fake_add(name[i], 1);
	}
	registry = with(&all);
	CHECK_EQ(vb_device_open(registry, "all", name[1], NULL, &device), 0);
	CHECK_EQ(memcmp(vb_device_info(device)->name, name[1], 64), 0);
	CHECK_EQ(fake.device[0].opens, 1); /* by the walk */
	CHECK_EQ(fake.device[1].opens, 2);
	CHECK_EQ(vb_device_close(device), 0);
	vb_registry_destroy(registry);
}

/* --- C3 --- */

Test(open, C3_a_backends_defaults_made_twice_are_as_once)
{
	struct vb_registry *registry = fake_registry(true);
	int hooks = 0;

	for (int i = 0; i < registry->backend_count; i++) {
		struct vb_config once, twice;

		if (!registry->backend[i]->defaults)
			continue;
		hooks++;
		vb_config_init(&once, NULL);
		registry->backend[i]->defaults(&once);
		twice = once;
		registry->backend[i]->defaults(&twice);
		CHECK(memcmp(&once, &twice, sizeof(once)) == 0, "%s",
		      registry->backend[i]->key);
	}
	CHECK(hooks > 0, "there is none");
	vb_registry_destroy(registry);
}

/* --- E14 --- */

static struct ibv_context *kept[2];
static int opens, claims;

/* A backend that holds on to what it is lent. */
static int claim_and_keep(const struct vb_verbs *verbs,
			  struct ibv_context *context, char reason[128])
{
	(void)verbs;
	(void)reason;
	if (claims < 2)
		kept[claims] = context;
	claims++;
	for (int i = 0; i < fake.count; i++)
		opens += fake.device[i].opens - fake.device[i].closes;
	return VB_CLAIM_YES;
}

Test(devices, E14_a_context_that_a_backend_keeps_is_closed_all_the_same)
{
	static const struct vb_backend keeps = {.key = "keeps",
						.name = "",
						.claim = claim_and_keep};
	struct vb_registry *registry;
	struct vb_device *device;
	struct vb_context hold;

	fake_init();
	fake_add("a", 1);
	fake_add("b", 1);
	registry = with(&keeps);
	opens = claims = 0;
	CHECK(vb_available(registry, "keeps"), "%s", fake.lines);
	CHECK_EQ(claims, 2);
	CHECK_EQ(opens, 2); /* each time just its own */
	CHECK_LOG("list open:a query:a close:a open:b query:b close:b free ");
	for (int i = 0; i < 2; i++)
		CHECK(kept[i] == &fake.device[i].context, "another's");
	/* Nor is one that was lent handed out as an open device's. */
	CHECK_EQ(vb_device_open(registry, "keeps", "a", NULL, &device), 0);
	CHECK_EQ(fake.device[0].opens, 2);
	CHECK_EQ(claims, 2);
	hold = vb_device_context(device);
	CHECK_EQ(vb_context_put(&hold), 0);
	CHECK_EQ(vb_device_close(device), 0);
	CHECK_EQ(fake.device[0].closes, 2);
	vb_registry_destroy(registry);
}

/* --- A5 --- */

static void check_same(const struct vb_device *device,
		       const struct vb_device_info *info,
		       const struct vb_config *config)
{
	CHECK(vb_device_info(device) == info, "the information moved");
	CHECK(vb_device_config(device) == config, "the configuration moved");
	CHECK(strcmp(info->name, "a") == 0, "%s", info->name);
	CHECK(strcmp(info->backend, "all") == 0, "%s", info->backend);
	CHECK_EQ(info->max_qp, 10);
	CHECK_EQ(info->port_count, 2);
	check_port(&info->ports[1], 100);
	CHECK_EQ(info->ports[1].gid_count, 1);
	CHECK_EQ(info->ports[1].gids[0].index, 3);
	CHECK_EQ(memcmp(info->ports[1].gids[0].raw, address, 16), 0);
	CHECK_EQ(config->max_send_wr, 77);
	CHECK_EQ(config->gid_index, 9);
}

static struct vb_device *open_a(struct vb_registry *registry, uint32_t wr)
{
	struct vb_config config = {.max_send_wr = wr, .gid_index = 9};
	struct vb_device *device = NULL;

	CHECK_EQ(vb_device_open(registry, "all", "a", &config, &device), 0);
	memset(&config, 0xee, sizeof(config));
	return device;
}

Test(open, A5_information_and_configuration_stay_while_the_host_changes)
{
	const struct vb_device_info *info;
	const struct vb_config *config;
	struct vb_registry *registry;
	struct vb_device *device, *other;
	struct fake_device *it;

	fake_init();
	it = fake_add("a", 1);
	it->attr.max_qp = 10;
	it->attr.phys_port_cnt = 2;
	it->port[1].attr = port_attr(100);
	memcpy(it->port[1].gid[3].raw, address, 16);
	registry = with(&all);
	device = open_a(registry, 77);
	info = vb_device_info(device);
	config = vb_device_config(device);
	check_same(device, info, config);
	/* It is another now, and others are there; then none at all. */
	it->attr.max_qp = 11;
	it->port[1].attr = port_attr(10);
	fake_add_gid(it, 0, IBV_GID_TYPE_ROCE_V1, 0xfe);
	fake_add("b", 1);
	CHECK_EQ(vb_registry_refresh(registry), 0);
	other = open_a(registry, 78);
	CHECK_EQ(vb_device_info(other)->max_qp, 11);
	check_same(device, info, config);
	CHECK_EQ(vb_device_close(other), 0);
	fake.count = 0;
	CHECK_EQ(vb_registry_refresh(registry), 0);
	check_same(device, info, config);
	vb_registry_destroy(registry);
	check_same(device, info, config);
	CHECK_EQ(vb_device_close(device), 0);
}
