/* SPDX-License-Identifier: MIT */
/*
 * Goal: two queue pairs that the registry made and connected move a message.
 * Method: both hosts of a private world, from the device list to the byte.
 */
#include "tests/rig.h"

#include <stdlib.h>

#include "tests/harness.h"

#define BYTES 4096

struct end {
	struct vb_registry *registry;
	struct vb_device *device;
	struct vb_domain *domain;
	struct vb_region region;
	struct vb_qp *qp;
	uint8_t *memory;
};

/* The device of this host, with what it grants of the defaults. */
static void open_end(struct end *end, int host, const char *key,
		     enum vb_qp_kind kind)
{
	struct vb_registry_options options = {.verbs = rig_verbs(),
					      .sysfs = "/nowhere"};
	struct vb_devices devices;
	struct vb_config config;

	sim_host_set(host);
	CHECK_EQ(vb_registry_create(&options, &end->registry), 0);
	CHECK_EQ(vb_devices_list(end->registry, key, &devices), 0);
	CHECK_EQ(devices.count, 1);
	CHECK_EQ(vb_config_default(end->registry, key, NULL, &config), 0);
	vb_config_clamp(&config, devices.info);
	/* Those of an emulated Ethernet are 127.0.0.n, which nobody chooses. */
	config.has_gid_index = strcmp(key, "standard") == 0;
	config.gid_index = 1;
	/* Apple's own defaults are what its devices grant. */
	CHECK(vb_device_open(end->registry, key, devices.info->name,
			     strcmp(key, "apple") == 0 ? NULL : &config,
			     &end->device) == 0,
	      "%s", vb_last_error());
	vb_devices_free(&devices);
	sim_host_set(-1);
	CHECK_EQ(vb_domain_open(end->device, "", &end->domain), 0);
	end->memory = aligned_alloc(BYTES, BYTES);
	memset(end->memory, host, BYTES);
	CHECK_EQ(vb_region_open(end->domain, end->memory, BYTES, &end->region),
		 0);
	CHECK(vb_qp_create(end->domain, kind, NULL, NULL, &end->qp) == 0, "%s",
	      vb_last_error());
}

static void connect_end(struct end *end, const struct end *to)
{
	struct vb_endpoint peer;

	CHECK_EQ(vb_qp_endpoint(to->qp, &peer), 0);
	CHECK(vb_qp_connect(end->qp, &peer) == 0, "%s", vb_last_error());
}

static void close_end(struct end *end)
{
	CHECK_EQ(vb_qp_close(end->qp), 0);
	CHECK_EQ(vb_region_close(&end->region), 0);
	CHECK_EQ(vb_device_close(end->device), 0);
	vb_registry_destroy(end->registry);
	free(end->memory);
}

static void move(struct end *from, struct end *to)
{
	struct ibv_sge out = {(uintptr_t)from->memory, BYTES,
			      from->region.lkey};
	struct ibv_sge in = {(uintptr_t)to->memory, BYTES, to->region.lkey};
	struct ibv_send_wr send = {.sg_list = &out,
				   .num_sge = 1,
				   .opcode = IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED},
			   *bad_send;
	struct ibv_recv_wr recv = {.sg_list = &in, .num_sge = 1}, *bad_recv;
	struct ibv_wc wc;

	CHECK_EQ(ibv_post_recv(vb_qp_handle(to->qp), &recv, &bad_recv), 0);
	CHECK_EQ(ibv_post_send(vb_qp_handle(from->qp), &send, &bad_send), 0);
	CHECK_EQ(ibv_poll_cq(vb_qp_recv_cq(to->qp), 1, &wc), 1);
	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	CHECK_EQ(wc.byte_len, BYTES);
	CHECK_EQ(ibv_poll_cq(vb_qp_send_cq(from->qp), 1, &wc), 1);
	CHECK_EQ(wc.status, IBV_WC_SUCCESS);
	CHECK_EQ(memcmp(to->memory, from->memory, BYTES), 0);
}

static void both_ways(const char *model, const char *key, enum vb_qp_kind kind)
{
	struct end end[2];
	struct rig rig;

	setenv("VERBENA_QUIET", "1", 1);
	rig_open(&rig, model, NULL);
	for (int i = 0; i < 2; i++)
		open_end(&end[i], i, key, kind);
	for (int i = 0; i < 2; i++)
		connect_end(&end[i], &end[1 - i]);
	move(&end[0], &end[1]);
	memset(end[1].memory, 7, BYTES);
	move(&end[1], &end[0]);
	for (int i = 0; i < 2; i++)
		close_end(&end[i]);
	rig_close(&rig);
}

Test(qp, rc_moves_a_message_on_an_emulated_card)
{
	both_ways("mlx5", "mlx", VB_QP_RC);
}

Test(qp, rc_moves_a_message_from_the_gid_it_is_told)
{
	both_ways("rxe", "standard", VB_QP_RC);
}

Test(qp, uc_moves_a_message_on_an_emulated_card)
{
	both_ways("mlx5", "mlx", VB_QP_UC);
}

Test(qp, uc_moves_a_message_over_an_emulated_cable)
{
	both_ways("apple-tb", "apple", VB_QP_UC);
}
