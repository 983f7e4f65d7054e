/* SPDX-License-Identifier: MIT */
/*
 * Goal: the device with the wanted GID is found, on whatever ACTIVE port, and
 * every context that is not is closed. Method: private worlds with other knobs.
 */
#include "lib/registry.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/boot.h"
#include "tests/harness.h"
#include "tests/rig.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

static void want_127(uint8_t last, uint8_t gid[16])
{
	memset(gid, 0, 16);
	gid[10] = gid[11] = 0xff;
	gid[12] = 127;
	gid[15] = last;
}

static int find(const char *model, uint8_t last, struct vb_found *found,
		char why[256])
{
	uint8_t gid[16];
	struct rig rig;
	int before, rc;

	setenv("VERBENA_QUIET", "1", 1);
	rig_open(&rig, model, NULL);
	before = sim_world_object_count(rig.world);
	want_127(last, gid);
	why[0] = 0;
	rc = vb_registry_find(rig_verbs(), gid, found, why);
	if (rc == 0)
		CHECK_EQ(rig_verbs()->close_device(found->context), 0);
	CHECK_EQ(sim_world_object_count(rig.world), before);
	rig_close(&rig);
	return rc;
}

Test(registry, A2_finds_the_device_by_gid_and_its_index)
{
	struct vb_found found;
	char why[256];

	CHECK_EQ(find("apple-tb", 5, &found, why), 0);
	CHECK_EQ(found.gid_index, 5);
	CHECK_EQ(found.port_num, 1);
	CHECK(strcmp(found.name, "rdma_en5") == 0, "%s", found.name);
	CHECK_EQ(find("mlx5", 6, &found, why), 0);
	CHECK_EQ(found.gid_index, 6);
}

Test(registry, DA24_looks_at_every_active_port)
{
	struct vb_found found;
	char why[256];

	CHECK_EQ(find("apple-tb,ports=2", 1, &found, why), 0);
	CHECK_EQ(found.port_num, 2);
}

Test(registry, says_what_it_saw_when_there_is_none)
{
	struct vb_found found;
	char why[256];

	CHECK_EQ(find("apple-tb", 9, &found, why), -ENODEV);
	CHECK_HAS(why, "127.0.0.9");
	CHECK_HAS(why, "1 devices, 0 would not open, 1 active ports");
	CHECK_EQ(find("apple-tb,cable=down", 1, &found, why), -ENODEV);
	CHECK_HAS(why, "0 active ports");
}

Test(registry, local_address_becomes_a_gid)
{
	struct sockaddr_in6 six = {.sin6_family = AF_INET6,
				   .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	uint8_t gid[16], want[16];
	int fds[2], fd;

	rig_sockets(fds);
	want_127(1, want);
	CHECK_EQ(vb_boot_local_gid(fds[0], gid), 0);
	CHECK(memcmp(gid, want, 16) == 0, "IPv4");
	close(fds[0]);
	close(fds[1]);
	fd = socket(AF_INET6, SOCK_STREAM, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&six, sizeof(six)) != 0)
		SKIP("no IPv6 here");
	CHECK_EQ(vb_boot_local_gid(fd, gid), 0);
	CHECK_EQ(gid[15], 1);
	CHECK_EQ(gid[10], 0);
	close(fd);
	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	CHECK_EQ(vb_boot_local_gid(fds[0], gid), -EINVAL);
	close(fds[0]);
	close(fds[1]);
}
