/* SPDX-License-Identifier: MIT */
/*
 * Goal: what the registry tells of a device keeps rows I of spec/registry.md,
 * section 4. Method: a scripted host, and a backend that takes every device.
 */
#include <endian.h>
#include <errno.h>
#include <stdio.h>

#include "tests/harness.h"
#include "tests/lib/fake.h"

static struct vb_registry *with_all(void)
{
	static const struct vb_backend all = {.key = "all",
					      .name = "Any",
					      .claim = fake_claim_any};
	struct vb_registry *registry = fake_registry(false);

	CHECK_EQ(vb_backend_register(registry, &all), 0);
	return registry;
}

Test(devices, I1_I10_attributes_are_as_queried_and_the_guid_in_host_order)
{
	struct vb_registry *registry;
	struct vb_devices devices;
	struct fake_device *it;

	fake_init();
	it = fake_add("a", 7);
	it->attr.vendor_part_id = 8;
	it->attr.hw_ver = 9;
	it->attr.max_qp = 10;
	it->attr.max_cq = 11;
	it->attr.max_cqe = 12;
	it->attr.max_mr = 13;
	it->attr.max_pd = 14;
	it->attr.max_qp_wr = 15;
	it->attr.max_sge = 16;
	it->attr.node_guid = htobe64(0x0123456789abcdef);
	memset(it->attr.fw_ver, 'f', sizeof(it->attr.fw_ver)); /* no end */
	registry = with_all();
	fake_list_one(registry, &devices);
	CHECK_EQ(devices.info->vendor_id, 7);
	CHECK_EQ(devices.info->vendor_part_id, 8);
	CHECK_EQ(devices.info->hw_version, 9);
	CHECK_EQ(devices.info->max_qp, 10);
	CHECK_EQ(devices.info->max_cq, 11);
	CHECK_EQ(devices.info->max_cqe, 12);
	CHECK_EQ(devices.info->max_mr, 13);
	CHECK_EQ(devices.info->max_pd, 14);
	CHECK_EQ(devices.info->max_qp_wr, 15);
	CHECK_EQ(devices.info->max_sge, 16);
	CHECK_EQ(devices.info->node_guid, 0x0123456789abcdef);
	CHECK_EQ(strlen(devices.info->fw_version), 63);
	vb_devices_free(&devices);
	vb_registry_destroy(registry);
}

Test(devices, I3_I4_a_port_that_fails_is_left_out_and_255_end)
{
	struct vb_registry *registry;
	struct vb_devices devices;
	struct fake_device *it;

	fake_init();
	it = fake_add("a", 1);
	it->attr.phys_port_cnt = 255; /* four answer */
	it->port[1].rc = EIO;
	it->port[2].attr.lid = 3;
	registry = with_all();
	fake_list_one(registry, &devices);
	CHECK_EQ(devices.info->port_count, 3);
	CHECK_EQ(devices.info->ports[0].num, 1);
	CHECK_EQ(devices.info->ports[1].num, 3);
	CHECK_EQ(devices.info->ports[1].lid, 3);
	CHECK_EQ(devices.info->ports[2].num, 4);
	vb_devices_free(&devices);
	vb_registry_destroy(registry);
}

static void set_gid(struct fake_gid *gid, const char *text, uint32_t type)
{
	/* "a.b.c.d" mapped, or the first two bytes in hex. */
	unsigned b[4];

	memset(gid->raw, 0, 16);
	if (sscanf(text, "%u.%u.%u.%u", &b[0], &b[1], &b[2], &b[3]) == 4) {
		gid->raw[10] = gid->raw[11] = 0xff;
		for (int i = 0; i < 4; i++)
			gid->raw[12 + i] = (uint8_t)b[i];
	} else if (strcmp(text, "::1") == 0) {
		gid->raw[15] = 1;
	} else {
		sscanf(text, "%2x%2x", &b[0], &b[1]);
		gid->raw[0] = (uint8_t)b[0];
		gid->raw[1] = (uint8_t)b[1];
		gid->raw[15] = 9;
	}
	gid->type = type;
}

Test(devices, I5_I9_empty_slots_are_passed_over_and_the_lowest_match_wins)
{
	const struct vb_gid *gid;
	struct vb_registry *registry;
	struct vb_devices devices;
	struct fake_device *it;

	fake_init();
	it = fake_add("a", 1);
	it->port[0].attr.gid_tbl_len = FAKE_GIDS;
	set_gid(&it->port[0].gid[1], "fe80", IBV_GID_TYPE_ROCE_V1);
	set_gid(&it->port[0].gid[3], "10.0.0.1", IBV_GID_TYPE_ROCE_V1);
	set_gid(&it->port[0].gid[4], "10.0.0.1", IBV_GID_TYPE_ROCE_V2);
	set_gid(&it->port[0].gid[6], "10.0.0.2", IBV_GID_TYPE_ROCE_V2);
	it->port[0].gid[7].rc = ENODATA;
	registry = with_all();
	fake_list_one(registry, &devices);
	CHECK_EQ(devices.info->ports[0].gid_count, 4);
	CHECK_EQ(vb_gid_select(devices.info, 1, VB_GID_GLOBAL, VB_GID_ROCE_V2,
			       &gid),
		 0);
	CHECK_EQ(gid->index, 4);
	CHECK_EQ(vb_gid_select(devices.info, 1, -1, -1, &gid), 0);
	CHECK_EQ(gid->index, 1);
	CHECK_EQ(vb_gid_select(devices.info, 2, -1, -1, &gid), -ENXIO);
	CHECK_EQ(vb_gid_select(devices.info, 1, VB_GID_LOOPBACK, -1, &gid),
		 -ENOENT);
	vb_devices_free(&devices);
	vb_registry_destroy(registry);
}

Test(devices, I6_a_type_that_cannot_be_read_is_unknown_and_warned_of)
{
	struct vb_registry *registry;
	struct vb_devices devices;
	struct fake_device *it;

	fake_init();
	fake.lacks_query_gid_ex = true; /* the type is in sysfs: /nowhere */
	it = fake_add("a", 1);
	it->port[0].attr.gid_tbl_len = FAKE_GIDS;
	set_gid(&it->port[0].gid[2], "10.0.0.1", 0);
	registry = with_all();
	fake_list_one(registry, &devices);
	CHECK_EQ(devices.info->ports[0].gid_count, 1);
	CHECK_EQ(devices.info->ports[0].gids[0].type, VB_GID_UNKNOWN);
	CHECK_HAS(fake.lines,
		  "/nowhere/class/infiniband/a/ports/1/gid_attrs/types/2");
	CHECK_EQ(fake.warnings, 1);
	vb_devices_free(&devices);
	vb_registry_destroy(registry);
}

Test(devices, I7_any_length_that_a_table_claims_does_no_harm)
{
	static const int lens[] = {-5, 0, 1024, 2147483647};
	struct vb_registry *registry;
	struct vb_devices devices;

	for (int i = 0; i < 4; i++) {
		struct fake_device *it;

		fake_init();
		it = fake_add("a", 1);
		it->port[0].attr.gid_tbl_len = lens[i];
		set_gid(&it->port[0].gid[0], "10.0.0.1", 0);
		registry = with_all();
		fake_list_one(registry, &devices);
		CHECK_EQ(devices.info->ports[0].gid_count, i >= 2);
		vb_devices_free(&devices);
		vb_registry_destroy(registry);
	}
}

Test(devices, I8_scopes)
{
	static const struct {
		const char *gid;
		enum vb_gid_scope scope;
	} rows[] = {
		{"::1", VB_GID_LOOPBACK},
		{"127.0.0.1", VB_GID_LOOPBACK},
		{"127.255.0.9", VB_GID_LOOPBACK},
		{"fe80", VB_GID_LINK_LOCAL},
		{"febf", VB_GID_LINK_LOCAL},
		{"169.254.3.4", VB_GID_LINK_LOCAL},
		{"fec0", VB_GID_SITE_LOCAL},
		{"feff", VB_GID_SITE_LOCAL},
		{"fd00", VB_GID_GLOBAL},
		{"2001", VB_GID_GLOBAL},
		{"10.0.0.1", VB_GID_GLOBAL},
		{"169.253.0.1", VB_GID_GLOBAL},
	};
	struct fake_gid gid;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		set_gid(&gid, rows[i].gid, 0);
		CHECK(vb_gid_scope_of(gid.raw) == rows[i].scope, "%s: %d",
		      rows[i].gid, vb_gid_scope_of(gid.raw));
	}
}

Test(devices, I11_names_are_bytes)
{
	static char name[64];
	struct vb_registry *registry;
	struct vb_devices devices;

	memset(name, 0xfe, 63);
	fake_init();
	fake_add(name, 1);
	registry = with_all();
	fake_list_one(registry, &devices);
	CHECK_EQ(memcmp(devices.info->name, name, 64), 0);
	vb_devices_free(&devices);
	vb_registry_destroy(registry);
}

Test(devices, I12_speed_is_that_of_the_quickest_active_port)
{
	static const struct {
		uint8_t state, width, speed;
		uint32_t want;
	} rows[] = {
		{IBV_PORT_ACTIVE, 2, 32, 12500},
		{IBV_PORT_ACTIVE, 1, 1, 312},
		{IBV_PORT_DOWN, 2, 32, 0},
		{IBV_PORT_ACTIVE, 0, 32, 0},
		{IBV_PORT_ACTIVE, 2, 0, 0},
		{IBV_PORT_ACTIVE, 16, 128, 25000},
	};
	struct vb_port ports[2] = {{.num = 1}, {.num = 2}};
	struct vb_device_info info = {.port_count = 2, .ports = ports};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		ports[1].state = rows[i].state;
		ports[1].active_width = rows[i].width;
		ports[1].active_speed = rows[i].speed;
		CHECK_EQ(vb_speed_mbytes(&info), rows[i].want);
	}
}

Test(devices, a_gid_is_chosen_by_the_ports_link_layer)
{
	static const struct {
		int link_layer;
		bool with_link_local;
		const char *gids[4]; /* v1 at even indices, v2 at odd ones */
		int want;	     /* index, or a negative errno */
	} rows[] = {
		/* IPv4 before IPv6, whatever the order; never v1. */
		{IBV_LINK_LAYER_ETHERNET,
		 false,
		 {"10.0.0.1", "2001", "10.0.0.1", "10.0.0.1"},
		 3},
		{IBV_LINK_LAYER_ETHERNET,
		 false,
		 {"fe80", "fe80", "2001", "2001"},
		 3},
		{IBV_LINK_LAYER_ETHERNET, false, {"fe80", "fe80"}, -ENOENT},
		{IBV_LINK_LAYER_ETHERNET, true, {"fe80", "fe80"}, 1},
		{IBV_LINK_LAYER_ETHERNET, true, {"10.0.0.1"}, -ENOENT},
		{IBV_LINK_LAYER_INFINIBAND, false, {"fe80", "2001"}, 0},
		{IBV_LINK_LAYER_UNSPECIFIED, false, {"fe80"}, 0},
		{IBV_LINK_LAYER_UNSPECIFIED, false, {NULL}, -ENOENT},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		const struct vb_gid *gid = NULL;
		struct vb_registry *registry;
		struct vb_devices devices;
		struct fake_device *it;
		int rc;

		fake_init();
		it = fake_add("a", 1);
		it->port[0].attr.link_layer = (uint8_t)rows[i].link_layer;
		it->port[0].attr.gid_tbl_len = FAKE_GIDS;
		for (int n = 0; n < 4; n++)
			if (rows[i].gids[n])
				set_gid(&it->port[0].gid[n], rows[i].gids[n],
					n % 2 ? IBV_GID_TYPE_ROCE_V2
					      : IBV_GID_TYPE_ROCE_V1);
		registry = with_all();
		fake_list_one(registry, &devices);
		rc = vb_gid_choose(devices.info, 1, rows[i].with_link_local,
				   &gid);
		CHECK(rc == (rows[i].want < 0 ? rows[i].want : 0),
		      "row %zu: %d", i, rc);
		if (rc == 0)
			CHECK_EQ(gid->index, rows[i].want);
		CHECK_EQ(vb_gid_choose(devices.info, 2, true, &gid), -ENXIO);
		vb_devices_free(&devices);
		vb_registry_destroy(registry);
	}
}
