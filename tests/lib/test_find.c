/* SPDX-License-Identifier: MIT */
/*
 * Goal: the device with the wanted GID is found, on whatever ACTIVE port, and
 * every context that is not is closed. Method: private worlds with other knobs.
 */
#include "lib/qp_stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "lib/boot.h"
#include "tests/harness.h"
#include "tests/lib/fake.h"
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

/* What a probe found, as it was then. */
static struct vb_found found;
static struct vb_cause cause;

static int find(const char *model, uint8_t last, const char *device)
{
	struct vb_options options = {.fd = -1,
				     .verbs = rig_verbs(),
				     .device = device};
	struct vb_transport *transport;
	uint8_t caps[VB_CAPS_BYTES];
	struct rig rig;
	int before, rc;

	setenv("VERBENA_QUIET", "1", 1);
	rig_open(&rig, model, NULL);
	before = sim_world_object_count(rig.world);
	want_127(last, options.gid);
	rc = vb_probe(&options, caps, &transport, &cause);
	if (rc == 0) {
		found = ((struct qp_stream *)transport)->found;
		CHECK_EQ(vb_close(transport, NULL), 0);
	}
	CHECK_EQ(sim_world_object_count(rig.world), before);
	rig_close(&rig);
	return rc;
}

Test(find, A2_takes_the_device_by_gid_and_its_index)
{
	CHECK_EQ(find("apple-tb", 5, NULL), 0);
	CHECK_EQ(found.gid.index, 5);
	CHECK_EQ(found.port.num, 1);
	CHECK(strcmp(found.name, "rdma_en5") == 0, "%s", found.name);
	CHECK_EQ(find("mlx5", 6, NULL), 0);
	CHECK_EQ(found.gid.index, 6);
}

Test(find, DL7_a_port_that_is_not_active_is_passed_over)
{
	CHECK_EQ(find("apple-tb,ports=2", 1, NULL), 0);
	CHECK_EQ(found.port.num, 2);
}

Test(find, DL6_a_name_or_an_address_that_is_not_there_makes_nothing)
{
	CHECK_EQ(find("apple-tb", 5, "rdma_en5"), 0);
	CHECK_EQ(find("apple-tb", 5, "rdma_en9"), -ENODEV);
	CHECK_HAS(cause.text, "no device named rdma_en9 has GID");
	/* ggml-rpc's variables are its own. */
	setenv("GGML_RDMA_DEV", "rdma_en9", 1);
	setenv("GGML_RDMA_GID", "garbage", 1);
	CHECK_EQ(find("apple-tb", 5, NULL), 0);
	CHECK_EQ(found.gid.index, 5);
	unsetenv("GGML_RDMA_DEV");
	unsetenv("GGML_RDMA_GID");
}

Test(find, A2_says_what_it_saw_when_there_is_none)
{
	CHECK_EQ(find("apple-tb", 9, NULL), -ENODEV);
	CHECK_EQ(cause.code, VB_NO_DEVICE);
	CHECK_HAS(cause.text, "127.0.0.9");
	CHECK_HAS(cause.text, "1 devices, 1 active ports, 0 left out");
	CHECK_EQ(find("apple-tb,cable=down", 1, NULL), -ENODEV);
	CHECK_HAS(cause.text, "0 active ports");
}

/* Two devices with the same GID; neither can make a domain. */
static void find_of_two(const char *name, const char *want)
{
	struct vb_options options = {.fd = -1,
				     .verbs = fake_verbs(),
				     .device = name,
				     .gid = {0xfe, 0x80, [15] = 9}};
	struct vb_transport *transport;
	uint8_t caps[VB_CAPS_BYTES];
	char text[64];

	fake_init();
	fake_add("first", 1);
	fake_add("second", 1);
	for (int i = 0; i < 2; i++) {
		memcpy(fake.device[i].port[0].gid[0].raw, options.gid, 16);
		fake.device[i].port[0].attr.gid_tbl_len = 1;
	}
	fake.pd_errno = ENOMEM;
	CHECK(vb_probe(&options, caps, &transport, &cause) == -ENOMEM, "%s",
	      cause.text);
	snprintf(text, sizeof(text), "alloc_pd on %s failed", want);
	CHECK_HAS(cause.text, text);
	for (int i = 0; i < 2; i++)
		CHECK_EQ(fake.device[i].opens, fake.device[i].closes);
}

Test(find, DA30_of_two_with_one_address_the_first_or_the_named_is_taken)
{
	find_of_two(NULL, "first");
	find_of_two("second", "second");
}

Test(find, local_address_becomes_a_gid)
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
