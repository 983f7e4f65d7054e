/* SPDX-License-Identifier: MIT */
/*
 * Goal: open devices, domains and configurations keep rows O, A, D and C of
 * spec/registry.md, section 4. Method: a scripted host that logs its calls.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>

#include "tests/harness.h"
#include "tests/lib/fake.h"

#define MLX 0x02c9

/* Two of mlx and one other; walked, with an empty log. */
static struct vb_registry *walked(void)
{
	struct vb_registry *registry;

	fake_init();
	fake_add("mlx5_1", MLX);
	fake_add("mlx5_10", MLX);
	fake_add("rxe0", 1);
	registry = fake_registry(true);
	CHECK(vb_available(registry, "mlx"), "%s", fake.lines);
	fake.log[0] = 0;
	return registry;
}

static struct vb_device *opened(struct vb_registry *registry, const char *key,
				const char *name)
{
	struct vb_device *device = NULL;

	CHECK(vb_device_open(registry, key, name, NULL, &device) == 0, "%s",
	      vb_last_error());
	return device;
}

/* What was opened is closed, what was listed is freed. */
static void check_balance(void)
{
	for (int i = 0; i < fake.count; i++)
		CHECK_EQ(fake.device[i].opens, fake.device[i].closes);
	CHECK_EQ(fake_calls("list "), fake_calls("free "));
}

/* --- O
 * ----------------------------------------------------------------------------
 */

Test(open, O1_O7_O14_a_device_is_opened_and_nothing_else_done)
{
	struct vb_registry *registry = walked();
	struct vb_device *device = opened(registry, "mlx", "mlx5_1");

	CHECK_LOG("list open:mlx5_1 free ");
	CHECK_EQ(vb_device_info(device)->vendor_id, MLX);
	CHECK_EQ(vb_device_close(device), 0);
	CHECK_LOG("list open:mlx5_1 free close:mlx5_1 ");
	vb_registry_destroy(registry);
	check_balance();
}

Test(open, O2_an_unknown_name_is_told_with_all_there_are)
{
	struct vb_registry *registry = walked();
	struct vb_device *device;

	CHECK_EQ(vb_device_open(registry, "mlx", "mlx5_7", NULL, &device),
		 -ENOENT);
	CHECK_HAS(vb_last_error(), "'mlx5_7'");
	CHECK_HAS(vb_last_error(), "NVIDIA ConnectX");
	CHECK_HAS(vb_last_error(), "mlx: mlx5_1 mlx5_10; ");
	CHECK_HAS(vb_last_error(), "standard: rxe0");
	CHECK_HAS(fake.lines, "mlx5_7");
	CHECK_LOG("");
	CHECK_EQ(vb_device_open(registry, "none", "mlx5_1", NULL, &device),
		 -ENOENT);
	vb_registry_destroy(registry);
}

Test(open, O3_anothers_device_is_told_and_not_opened)
{
	struct vb_registry *registry = walked();
	struct vb_device *device;

	CHECK_EQ(vb_device_open(registry, "mlx", "rxe0", NULL, &device),
		 -ENXIO);
	CHECK_HAS(vb_last_error(), "rxe0 belongs to backend standard");
	CHECK_LOG("");
	vb_registry_destroy(registry);
}

Test(open, O4_D13_A5_a_configuration_is_kept_as_it_is)
{
	struct vb_registry *registry = walked();
	struct vb_config config;
	struct vb_device *device;

	memset(&config, 0xee, sizeof(config));
	CHECK_EQ(vb_device_open(registry, "mlx", "mlx5_1", &config, &device),
		 0);
	CHECK_EQ(memcmp(vb_device_config(device), &config, sizeof(config)), 0);
	config.port_num = 3; /* a copy */
	CHECK_EQ(vb_device_config(device)->port_num, 0xee);
	CHECK_EQ(vb_device_close(device), 0);
	vb_registry_destroy(registry);
}

Test(open, O5_names_match_whole_and_in_their_case)
{
	struct vb_registry *registry = walked();
	struct vb_device *device;

	CHECK_EQ(vb_device_open(registry, "mlx", "MLX5_1", NULL, &device),
		 -ENOENT);
	CHECK_EQ(vb_device_open(registry, "mlx", "mlx5_", NULL, &device),
		 -ENOENT);
	device = opened(registry, "mlx", "mlx5_10");
	CHECK_EQ(fake.device[0].opens, 1); /* by the walk */
	CHECK_EQ(fake.device[1].opens, 2);
	CHECK_EQ(vb_device_close(device), 0);
	vb_registry_destroy(registry);
}

Test(open, O6_two_opens_are_two_devices)
{
	struct vb_registry *registry = walked();
	struct vb_device *a = opened(registry, "mlx", "mlx5_1");
	struct vb_device *b = opened(registry, "mlx", "mlx5_1");
	struct vb_domain *domain;

	CHECK_EQ(fake_calls("open:mlx5_1 "), 2);
	CHECK_EQ(vb_domain_open(a, "d", &domain), 0);
	CHECK(!vb_domain_find(b, "d"), "shared");
	CHECK_EQ(vb_device_close(a), 0);
	CHECK_EQ(vb_device_close(b), 0);
	CHECK_EQ(fake_calls("close:mlx5_1 "), 2);
	vb_registry_destroy(registry);
}

/* Fails with this, leaves nothing open, and later succeeds (O17). */
static void fails_and_recovers(struct vb_registry *registry, int want,
			       const char *text, void (*mend)(void))
{
	struct vb_device *device = NULL;

	CHECK_EQ(vb_device_open(registry, "mlx", "mlx5_1", NULL, &device),
		 want);
	CHECK(!device, "a device");
	CHECK_HAS(vb_last_error(), text);
	CHECK_HAS(fake.lines, text);
	mend();
	CHECK_EQ(vb_device_close(opened(registry, "mlx", "mlx5_1")), 0);
	vb_registry_destroy(registry);
	for (int i = 0; i < fake.count; i++)
		CHECK_EQ(fake.device[i].opens, fake.device[i].closes);
}

static void mend_list(void)
{
	fake.list_errno = 0;
}

static void mend_count(void)
{
	fake.count = 3;
}

static void mend_name(void)
{
	fake.device[0].name = "mlx5_1";
}

static void mend_open(void)
{
	fake.device[0].open_errno = 0;
}

static void mend_guid(void)
{
	fake.device[0].attr.node_guid = htobe64(0x1122334455667701);
}

Test(open, O8_O17_no_list_at_reopen_is_an_error)
{
	struct vb_registry *registry = walked();

	fake.list_errno = ENOMEM;
	fails_and_recovers(registry, -ENOMEM, "get_device_list", mend_list);
}

Test(open, O9_O17_an_empty_list_at_reopen_is_an_error_and_freed)
{
	struct vb_registry *registry = walked();

	fake.count = 0;
	fails_and_recovers(registry, -ENODEV, "no longer present", mend_count);
	CHECK_EQ(fake_calls("list "), fake_calls("free "));
}

Test(open, O10_O17_one_that_has_vanished_is_an_error)
{
	struct vb_registry *registry = walked();

	fake.device[0].name = "mlx5_2";
	fails_and_recovers(registry, -ENODEV, "no longer present", mend_name);
}

Test(open, O11_O17_one_that_does_not_open_is_told_with_its_errno)
{
	struct vb_registry *registry = walked();

	fake.device[0].open_errno = EACCES;
	fails_and_recovers(registry, -EACCES, "Permission denied", mend_open);
	CHECK_EQ(fake_calls("list "), fake_calls("free "));
}

Test(open, O15_O17_another_device_under_its_name_is_ESTALE)
{
	struct vb_registry *registry = walked();

	fake.device[0].attr.node_guid = htobe64(0x99);
	fails_and_recovers(registry, -ESTALE, "0000000000000099", mend_guid);
}

Test(open, O15_unless_that_is_wanted)
{
	struct vb_registry_options options = {.verbs = fake_verbs(),
					      .takes_swapped = true};
	struct vb_registry *registry;

	fake_init();
	fake_add("mlx5_1", MLX);
	CHECK_EQ(vb_registry_create(&options, &registry), 0);
	CHECK(vb_available(registry, "mlx"), "none");
	fake.device[0].attr.node_guid = htobe64(0x99);
	CHECK_EQ(vb_device_close(opened(registry, "mlx", "mlx5_1")), 0);
	vb_registry_destroy(registry);
}

Test(open, O12_O13_open_walks_if_nobody_has_and_skips_holes)
{
	struct vb_registry *registry;

	fake_init();
	fake_add("hole", 1)->is_null = true;
	fake_add("mlx5_1", MLX);
	registry = fake_registry(true);
	CHECK_EQ(vb_device_close(opened(registry, "mlx", "mlx5_1")), 0);
	CHECK_EQ(fake.lists, 2); /* the walk, and this */
	vb_registry_destroy(registry);
	check_balance();
}

Test(open, O16_what_is_missing_is_EINVAL_and_no_configuration_the_defaults)
{
	struct vb_registry *registry = walked();
	struct vb_device *device;

	CHECK_EQ(vb_device_open(registry, "mlx", NULL, NULL, &device), -EINVAL);
	CHECK_EQ(vb_device_open(registry, NULL, "mlx5_1", NULL, &device),
		 -EINVAL);
	CHECK_EQ(vb_device_open(NULL, "mlx", "mlx5_1", NULL, &device), -EINVAL);
	CHECK_LOG("");
	device = opened(registry, "mlx", "mlx5_1");
	CHECK_EQ(vb_device_config(device)->max_send_wr, 512);
	CHECK_EQ(vb_device_close(device), 0);
	vb_registry_destroy(registry);
}

/* --- A
 * ----------------------------------------------------------------------------
 */

Test(open, A4_a_context_is_open_till_the_last_hold_is_given_back)
{
	struct vb_registry *registry = walked();
	struct vb_device *device = opened(registry, "mlx", "mlx5_1");
	struct vb_context context = vb_device_context(device);

	CHECK(context.context == &fake.device[0].context, "another");
	CHECK_EQ(vb_device_close(device), 0);
	CHECK_EQ(fake_calls("close:"), 0);
	vb_registry_destroy(registry); /* its owner is done, too */
	CHECK_EQ(vb_context_put(&context), 0);
	CHECK_EQ(fake_calls("close:mlx5_1"), 1);
	CHECK_EQ(vb_context_put(&context), 0); /* nothing any more */
	CHECK_EQ(fake_calls("close:mlx5_1"), 1);
}

/* --- D
 * ----------------------------------------------------------------------------
 */

Test(open, D1_D2_D3_D6_D7_one_protection_domain_a_name)
{
	struct vb_registry *registry = walked();
	struct vb_device *device = opened(registry, "mlx", "mlx5_1");
	struct vb_domain *domain[20], *again;
	char name[8] = "d";

	CHECK(!vb_domain_find(device, "d"), "there");
	CHECK_EQ(fake_calls("alloc_pd"), 0);
	for (int i = 0; i < 20; i++) {
		name[1] = (char)('a' + i);
		CHECK_EQ(vb_domain_open(device, i ? name : "", &domain[i]), 0);
	}
	name[0] = 'x'; /* copied */
	CHECK_EQ(fake_calls("alloc_pd"), 20);
	CHECK(vb_domain_find(device, "") == domain[0], "the empty name");
	CHECK_EQ(vb_domain_open(device, "db", &again), 0);
	CHECK(again == domain[1], "another");
	CHECK(vb_domain_find(device, "d") == NULL, "a part of a name");
	CHECK_EQ(fake_calls("alloc_pd"), 20);
	CHECK_EQ(vb_device_close(device), 0);
	CHECK_EQ(fake_calls("dealloc_pd"), 20);
	CHECK_EQ(fake_calls("close:mlx5_1"), 1);
	vb_registry_destroy(registry);
}

Test(open, D4_a_failed_domain_is_not_kept)
{
	struct vb_registry *registry = walked();
	struct vb_device *device = opened(registry, "mlx", "mlx5_1");
	struct vb_domain *domain;

	fake.pd_errno = ENOMEM;
	CHECK_EQ(vb_domain_open(device, "d", &domain), -ENOMEM);
	CHECK_HAS(vb_last_error(), "alloc_pd of mlx5_1: Cannot allocate");
	CHECK(!vb_domain_find(device, "d"), "kept");
	fake.pd_errno = 0;
	CHECK_EQ(vb_domain_open(device, "d", &domain), 0);
	CHECK_EQ(vb_device_close(device), 0);
	CHECK_EQ(fake_calls("dealloc_pd"), 1);
	vb_registry_destroy(registry);
}

static int strategies, strategy_rc;

static int open_strategy(const struct vb_verbs *verbs,
			 struct ibv_context *context, void **strategy)
{
	(void)verbs;
	(void)context;
	*strategy = &strategies;
	strategies += strategy_rc == 0;
	return strategy_rc;
}

static void close_strategy(void *strategy)
{
	CHECK(strategy == &strategies, "another");
	strategies--;
	CHECK_EQ(fake_calls("dealloc_pd"), 0); /* before it (D8) */
}

Test(open, D5_D8_a_backends_part_comes_first_and_goes_first)
{
	static const struct vb_backend planned = {
		.key = "planned",
		.name = "",
		.claim = fake_claim_any,
		.domain_open = open_strategy,
		.domain_close = close_strategy,
	};
	struct vb_registry *registry;
	struct vb_domain *domain;
	struct vb_device *device;

	fake_init();
	fake_add("a", 1);
	registry = fake_registry(false);
	CHECK_EQ(vb_backend_register(registry, &planned), 0);
	device = opened(registry, "planned", "a");
	fake.log[0] = 0;
	strategy_rc = -EPERM;
	CHECK_EQ(vb_domain_open(device, "d", &domain), -EPERM);
	CHECK_LOG("");
	strategy_rc = 0;
	fake.pd_errno = ENOMEM;
	CHECK_EQ(vb_domain_open(device, "d", &domain), -ENOMEM);
	CHECK_EQ(strategies, 0);
	fake.pd_errno = 0;
	CHECK_EQ(vb_domain_open(device, "d", &domain), 0);
	CHECK_EQ(strategies, 1);
	fake.log[0] = 0;
	CHECK_EQ(vb_device_close(device), 0);
	CHECK_EQ(strategies, 0);
	CHECK_LOG("dealloc_pd:a close:a ");
	vb_registry_destroy(registry);
}

Test(open, D9_a_region_keeps_domain_and_context_and_is_reported)
{
	static char memory[4096];
	struct vb_registry *registry = walked();
	struct vb_device *device = opened(registry, "mlx", "mlx5_1");
	struct vb_region region;
	struct vb_domain *domain;

	CHECK_EQ(vb_domain_open(device, "d", &domain), 0);
	CHECK_EQ(vb_region_open(domain, memory, 4096, &region), 0);
	CHECK_EQ(region.rkey, 22);
	/* 2.1: mlx has atomics, too. */
	CHECK_EQ(fake.access, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
				      IBV_ACCESS_REMOTE_WRITE |
				      IBV_ACCESS_REMOTE_ATOMIC);
	fake.log[0] = 0;
	CHECK_EQ(vb_device_close(device), 0);
	CHECK_LOG("");
	CHECK_HAS(fake.lines, "mlx5_1 is closed with 1 regions and 0 queue "
			      "pairs left in domain 'd'");
	vb_registry_destroy(registry);
	CHECK_EQ(vb_region_close(&region), 0);
	CHECK_LOG("dereg_mr:mlx5_1 dealloc_pd:mlx5_1 close:mlx5_1 ");
}

Test(open, D10_what_fails_to_close_is_told_and_not_tried_again)
{
	static char memory[64];
	struct vb_registry *registry = walked();
	struct vb_device *device = opened(registry, "mlx", "mlx5_1");
	struct vb_region region;
	struct vb_domain *domain;

	CHECK_EQ(vb_domain_open(device, "d", &domain), 0);
	CHECK_EQ(vb_region_open(domain, memory, 64, &region), 0);
	/* A region that stays registered stays. */
	fake.dereg_rc = EBUSY;
	CHECK_EQ(vb_region_close(&region), -EBUSY);
	fake.dereg_rc = 0;
	CHECK_EQ(vb_region_close(&region), 0);
	fake.dealloc_rc = EBUSY;
	fake.device[0].close_rc = EIO;
	CHECK_EQ(vb_device_close(device), -EBUSY);
	CHECK_EQ(fake_calls("dealloc_pd"), 1);
	CHECK_EQ(fake_calls("close:mlx5_1"), 1);
	CHECK_HAS(fake.lines, "dealloc_pd of mlx5_1: Device or resource busy");
	CHECK_HAS(fake.lines, "close_device of mlx5_1: Input/output error");
	vb_registry_destroy(registry);
}

Test(open, D11_nothing_is_EINVAL_before_any_call)
{
	struct vb_registry *registry = walked();
	struct vb_device *device = opened(registry, "mlx", "mlx5_1");
	struct vb_region region;
	struct vb_domain *domain;
	char byte;

	CHECK_EQ(vb_domain_open(NULL, "d", &domain), -EINVAL);
	CHECK_EQ(vb_domain_open(device, NULL, &domain), -EINVAL);
	CHECK_EQ(vb_region_open(NULL, &byte, 1, &region), -EINVAL);
	CHECK_EQ(fake_calls("alloc_pd") + fake_calls("reg_mr"), 0);
	CHECK_EQ(vb_device_close(device), 0);
	vb_registry_destroy(registry);
}

static void *make_d(void *device)
{
	struct vb_domain *domain = NULL;

	return vb_domain_open(device, "d", &domain) == 0 ? domain : NULL;
}

Test(open, D12_two_threads_make_one_domain)
{
	struct vb_registry *registry = walked();
	struct vb_device *device = opened(registry, "mlx", "mlx5_1");
	pthread_t thread[8];
	void *first = NULL;

	for (int i = 0; i < 8; i++)
		CHECK_EQ(pthread_create(&thread[i], NULL, make_d, device), 0);
	for (int i = 0; i < 8; i++) {
		void *domain;

		pthread_join(thread[i], &domain);
		CHECK(domain && (!first || domain == first), "another");
		first = domain;
	}
	CHECK_EQ(fake_calls("alloc_pd"), 1);
	CHECK_EQ(vb_device_close(device), 0);
	vb_registry_destroy(registry);
}

/* --- C
 * ----------------------------------------------------------------------------
 */

Test(open, C1_C2_C4_defaults_and_what_backends_make_of_them)
{
	struct vb_registry *registry = walked();
	struct vb_config common, config;
	uint64_t seed = 1;

	vb_config_init(&common, &seed);
	CHECK_EQ(common.max_send_wr, 512);
	CHECK_EQ(common.max_recv_wr, 512);
	CHECK_EQ(common.max_send_sge, 30);
	CHECK_EQ(common.max_recv_sge, 30);
	CHECK_EQ(common.path_mtu, IBV_MTU_4096);
	CHECK_EQ(common.retry_cnt, 7);
	CHECK_EQ(common.rnr_retry, 7);
	CHECK_EQ(common.qp_timeout, 14);
	CHECK_EQ(common.min_rnr_timer, 12);
	CHECK_EQ(common.max_rd_atomic, 16);
	CHECK_EQ(common.max_dest_rd_atomic, 16);
	CHECK_EQ(common.pkey_index, 0);
	CHECK_EQ(common.port_num, 1);
	seed = 1;
	CHECK_EQ(vb_config_default(registry, "mlx", &seed, &config), 0);
	CHECK_EQ(memcmp(&config, &common, sizeof(config)), 0);
	seed = 1;
	CHECK_EQ(vb_config_default(registry, "efa", &seed, &config), 0);
	common.max_send_sge = common.max_recv_sge = 1;
	common.max_rd_atomic = common.max_dest_rd_atomic = 0;
	CHECK_EQ(memcmp(&config, &common, sizeof(config)), 0);
	CHECK_EQ(vb_config_default(registry, "none", &seed, &config), -ENOENT);
	vb_registry_destroy(registry);
}

Test(open, C5_psns_differ_and_a_seed_repeats_them)
{
	struct vb_config a, b, c;
	uint64_t seed = 7;

	vb_config_init(&a, &seed);
	vb_config_init(&b, &seed);
	CHECK(a.psn != b.psn, "one PSN");
	CHECK_EQ(a.psn >> 24, 0);
	seed = 7;
	vb_config_init(&c, &seed);
	CHECK_EQ(a.psn, c.psn);
	vb_config_init(&a, NULL);
	vb_config_init(&b, NULL);
	CHECK(a.psn != b.psn, "one PSN");
}

Test(open, C6_what_a_device_does_not_grant_is_named_with_value_and_limit)
{
	struct vb_excess excess[8];
	struct vb_port port = {.num = 1,
			       .active_mtu = IBV_MTU_1024,
			       .pkey_count = 1};
	struct vb_device_info info = {.name = "efa_0",
				      .max_qp_wr = 512,
				      .max_sge = 1,
				      .port_count = 1,
				      .ports = &port};
	struct vb_config config;

	vb_config_init(&config, NULL);
	CHECK_EQ(vb_config_check(&config, &info, excess, 8), 3);
	CHECK(strcmp(excess[0].field, "max_send_sge") == 0, "%s",
	      excess[0].field);
	CHECK_EQ(excess[0].value, 30);
	CHECK_EQ(excess[0].limit, 1);
	CHECK(strcmp(excess[2].field, "path_mtu") == 0, "%s", excess[2].field);
	CHECK_EQ(excess[2].limit, IBV_MTU_1024);
	CHECK_HAS(vb_last_error(),
		  "efa_0: max_send_sge is 30, the device grants 1");
	vb_config_clamp(&config, &info);
	CHECK_EQ(vb_config_check(&config, &info, excess, 8), 0);
	config.port_num = 2;
	CHECK_EQ(vb_config_check(&config, &info, excess, 8), 1);
	CHECK(strcmp(excess[0].field, "port_num") == 0, "%s", excess[0].field);
}
