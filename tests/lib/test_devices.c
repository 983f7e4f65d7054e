/* SPDX-License-Identifier: MIT */
/*
 * Goal: the registry keeps rows R (registration) and E (enumeration) of
 * spec/registry.md, section 4. Method: a scripted host that logs its
 * calls, and backends of the test's own.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness.h"
#include "tests/lib/fake.h"

/* --- backends of the test's own --- */

#define BACKEND(its_key, its_name, its_rank, its_claim)                   \
	{                                                                 \
		.key = (its_key), .name = (its_name), .rank = (its_rank), \
		.claim = (its_claim),                                     \
	}

static uint32_t vendor_of(const struct vb_verbs *verbs,
			  struct ibv_context *context)
{
	struct ibv_device_attr attr = {0};

	return verbs->query_device(context, &attr) == 0 ? attr.vendor_id : 0;
}

/* Vendor 1, 2, either, and ones that answer otherwise. */
static int claim_1(const struct vb_verbs *v, struct ibv_context *c, char r[128])
{
	(void)r;
	return vendor_of(v, c) == 1 ? VB_CLAIM_YES : VB_CLAIM_NO;
}

static int claim_2(const struct vb_verbs *v, struct ibv_context *c, char r[128])
{
	(void)r;
	return vendor_of(v, c) == 2 ? VB_CLAIM_YES : VB_CLAIM_NO;
}

static int asked;

static int claim_all(const struct vb_verbs *v, struct ibv_context *c,
		     char r[128])
{
	(void)v;
	(void)c;
	(void)r;
	asked++;
	return VB_CLAIM_YES;
}

static int claim_fails(const struct vb_verbs *v, struct ibv_context *c,
		       char r[128])
{
	(void)v;
	(void)c;
	(void)r;
	return -EIO;
}

static int claim_unusable(const struct vb_verbs *v, struct ibv_context *c,
			  char r[128])
{
	(void)v;
	(void)c;
	snprintf(r, 128, "its left half is missing");
	return VB_CLAIM_UNUSABLE;
}

static struct vb_registry *asking;
static int asking_rc;

static int claim_and_ask(const struct vb_verbs *v, struct ibv_context *c,
			 char r[128])
{
	struct vb_devices devices;

	(void)v;
	(void)c;
	(void)r;
	asking_rc = vb_devices_list(asking, NULL, &devices);
	return VB_CLAIM_YES;
}

static const struct vb_backend one = BACKEND("one", "First", 10, claim_1);
static const struct vb_backend two = BACKEND("two", "Second", 20, claim_2);
static const struct vb_backend all = BACKEND("all", "Any", 100, claim_all);

static struct vb_registry *with(const struct vb_backend *a,
				const struct vb_backend *b)
{
	struct vb_registry *registry = fake_registry(false);

	if (a)
		CHECK_EQ(vb_backend_register(registry, a), 0);
	if (b)
		CHECK_EQ(vb_backend_register(registry, b), 0);
	return registry;
}

/* The names of a list, each with a blank behind it. */
static const char *names(struct vb_registry *registry, const char *key)
{
	static char text[512];
	struct vb_devices devices;
	int rc = vb_devices_list(registry, key, &devices);

	text[0] = 0;
	for (int i = 0; i < devices.count; i++) {
		strcat(text, devices.info[i].name);
		strcat(text, " ");
	}
	vb_devices_free(&devices);
	if (rc)
		snprintf(text, sizeof(text), "error %d", -rc);
	return text;
}

#define CHECK_NAMES(registry, key, want)                                  \
	do {                                                              \
		const char *have_ = names(registry, key);                 \
		CHECK(strcmp(have_, want) == 0, "'%s', want '%s'", have_, \
		      want);                                              \
	} while (0)

/* --- R --- */

Test(devices, R1_registering_makes_no_verbs_call)
{
	struct vb_registry *registry;

	fake_init();
	fake_add("a", 1);
	registry = with(&one, &two);
	CHECK_EQ(fake.log[0], 0);
	vb_registry_destroy(registry);
	CHECK_EQ(fake.log[0], 0);
}

Test(devices, R2_A1_a_backend_without_devices_has_an_empty_list)
{
	struct vb_registry *registry;

	fake_init();
	fake_add("a", 1);
	registry = with(&one, &two);
	CHECK(!vb_available(registry, "two"), "available");
	CHECK_NAMES(registry, "two", "");
	CHECK(vb_available(registry, "one"), "not available");
	vb_registry_destroy(registry);
}

Test(devices, R3_R4_keys_are_unique_and_display_names_need_not_be)
{
	static const struct vb_backend same =
		BACKEND("other", "First", 5, claim_2);
	struct vb_registry *registry;

	fake_init();
	fake_add("a", 1);
	fake_add("b", 2);
	registry = with(&one, &same);
	CHECK_EQ(vb_backend_register(registry, &one), -EEXIST);
	CHECK_HAS(vb_last_error(), "'one'");
	CHECK_NAMES(registry, "one", "a ");
	CHECK_NAMES(registry, "other", "b ");
	vb_registry_destroy(registry);
}

Test(devices, R5_a_key_of_nobody_is_ENOENT)
{
	struct vb_registry *registry;
	struct vb_devices devices;

	fake_init();
	registry = with(&one, NULL);
	CHECK(!vb_available(registry, "none"), "available");
	CHECK_EQ(vb_devices_list(registry, "none", &devices), -ENOENT);
	CHECK_EQ(devices.count, 0);
	vb_registry_destroy(registry);
}

Test(devices, R6_E9_rank_decides_then_the_order_of_registration)
{
	static const struct vb_backend first =
		BACKEND("first", "", 1, claim_all);
	static const struct vb_backend also = BACKEND("also", "", 1, claim_all);
	struct vb_registry *registry;

	fake_init();
	fake_add("a", 1);
	registry = with(&all, &first);
	CHECK_EQ(vb_backend_register(registry, &also), 0);
	asked = 0;
	CHECK_NAMES(registry, "first", "a ");
	CHECK_NAMES(registry, "also", "");
	CHECK_NAMES(registry, "all", "");
	/* Nobody is asked after the first that says yes. */
	CHECK_EQ(asked, 1);
	vb_registry_destroy(registry);
}

Test(devices, R7_no_backend_comes_after_the_first_walk)
{
	struct vb_registry *registry;

	fake_init();
	registry = with(&one, NULL);
	CHECK(!vb_available(registry, "one"), "available");
	CHECK_EQ(vb_backend_register(registry, &two), -EBUSY);
	CHECK_HAS(vb_last_error(), "'two'");
	vb_registry_destroy(registry);
}

Test(devices, R8_nothing_of_a_backend_may_be_missing)
{
	static const struct vb_backend wrong[] = {
		BACKEND(NULL, "n", 0, claim_1),
		BACKEND("k", NULL, 0, claim_1),
		BACKEND("k", "n", 0, NULL),
	};
	struct vb_registry *registry;

	fake_init();
	registry = with(NULL, NULL);
	for (int i = 0; i < 3; i++)
		CHECK_EQ(vb_backend_register(registry, &wrong[i]), -EINVAL);
	CHECK_EQ(vb_backend_register(registry, NULL), -EINVAL);
	CHECK_EQ(vb_backend_register(NULL, &one), -EINVAL);
	vb_registry_destroy(registry);
}

/* --- E --- */

Test(devices, E1_E2_E8_E13_one_walk_in_which_each_is_closed_before_the_next)
{
	struct vb_registry *registry;

	fake_init();
	fake_add("a", 1);
	fake_add("b", 2);
	registry = with(&one, &two);
	CHECK_EQ(fake.lists, 0);
	for (int i = 0; i < 5; i++) {
		CHECK(vb_available(registry, "one"), "not available");
		CHECK_NAMES(registry, "two", "b ");
		CHECK_NAMES(registry, NULL, "a b ");
	}
	CHECK_EQ(fake.lists, 1);
	CHECK_EQ(fake.frees, 1);
	CHECK(strcmp(fake.log,
		     "list open:a query:a query:a close:a "
		     "open:b query:b query:b query:b close:b free ") == 0,
	      "%s", fake.log);
	vb_registry_destroy(registry);
}

static void *race(void *arg)
{
	return (void *)(intptr_t)(vb_available(arg, "one") &&
				  !vb_available(arg, "two"));
}

Test(devices, E3_threads_that_come_first_together_walk_once)
{
	pthread_t thread[8];
	struct vb_registry *registry;

	fake_init();
	for (int i = 0; i < 8; i++)
		fake_add("a", 1);
	registry = with(&one, &two);
	for (int i = 0; i < 8; i++)
		CHECK_EQ(pthread_create(&thread[i], NULL, race, registry), 0);
	for (int i = 0; i < 8; i++) {
		void *result;

		pthread_join(thread[i], &result);
		CHECK(result, "thread %d saw another list", i);
	}
	CHECK_EQ(fake.lists, 1);
	vb_registry_destroy(registry);
}

Test(devices, E4_a_list_that_failed_is_told_and_asked_for_again)
{
	struct vb_registry *registry;
	struct vb_report report;

	fake_init();
	fake_add("a", 1);
	fake.list_errno = EPERM;
	registry = with(&one, NULL);
	CHECK_NAMES(registry, NULL, "");
	CHECK_EQ(fake.frees, 0);
	CHECK_HAS(fake.lines, "Operation not permitted");
	CHECK_EQ(vb_registry_report(registry, &report), 0);
	CHECK_EQ(report.list_error, -EPERM);
	vb_report_free(&report);
	fake.list_errno = 0;
	CHECK_NAMES(registry, NULL, "a ");
	CHECK_EQ(vb_registry_report(registry, &report), 0);
	CHECK_EQ(report.list_error, 0);
	vb_report_free(&report);
	vb_registry_destroy(registry);
}

Test(devices, E5_an_empty_list_is_freed_and_is_an_answer)
{
	struct vb_registry *registry;

	fake_init();
	registry = with(&one, NULL);
	CHECK_NAMES(registry, NULL, "");
	CHECK_NAMES(registry, NULL, "");
	CHECK_EQ(fake.lists, 1);
	CHECK_EQ(fake.frees, 1);
	vb_registry_destroy(registry);
}

Test(devices, E6_E15_nothing_in_the_list_is_passed_over)
{
	struct vb_registry *registry;

	fake_init();
	fake_add("a", 1);
	fake_add("hole", 1)->is_null = true;
	fake_add("c", 1);
	fake_add("beyond", 1);
	fake.count = 3; /* the array is longer */
	registry = with(&one, NULL);
	CHECK_NAMES(registry, NULL, "a c ");
	vb_registry_destroy(registry);
}

/* The only entry of a report, with what it must hold. */
static void check_absent(struct vb_registry *registry, enum vb_why why,
			 const char *name, int error, const char *text)
{
	struct vb_report report;

	CHECK_EQ(vb_registry_report(registry, &report), 0);
	CHECK_EQ(report.count, 1);
	CHECK_EQ(report.absent[0].why, why);
	CHECK_EQ(report.absent[0].error, error);
	CHECK(strcmp(report.absent[0].name, name) == 0, "%s",
	      report.absent[0].name);
	CHECK_HAS(report.absent[0].text, text);
	CHECK_HAS(fake.lines, name);
	vb_report_free(&report);
}

Test(devices, E7_one_that_does_not_open_is_told_with_its_errno)
{
	struct vb_registry *registry;

	fake_init();
	fake_add("a", 1);
	fake_add("shut", 1)->open_errno = EACCES;
	fake_add("c", 1);
	registry = with(&one, NULL);
	CHECK_NAMES(registry, NULL, "a c ");
	CHECK_EQ(fake_calls("close:shut"), 0);
	check_absent(registry, VB_OPEN_FAILED, "shut", -EACCES,
		     "Permission denied");
	CHECK_EQ(fake.warnings, 1);
	vb_registry_destroy(registry);
}

Test(devices, E10_one_that_nobody_claims_is_told_and_closed)
{
	struct vb_registry *registry;

	fake_init();
	fake_add("a", 1);
	fake_add("lone", 3);
	registry = with(&one, &two);
	CHECK_NAMES(registry, NULL, "a ");
	CHECK_EQ(fake.device[1].opens, 1);
	CHECK_EQ(fake.device[1].closes, 1);
	check_absent(registry, VB_UNCLAIMED, "lone", 0, "no backend");
	vb_registry_destroy(registry);
}

Test(devices, E11_A3_lists_keep_the_hosts_order_and_all_is_by_rank)
{
	struct vb_registry *registry;

	fake_init();
	fake_add("b2", 2);
	fake_add("a1", 1);
	fake_add("a2", 2);
	fake_add("b1", 1);
	registry = with(&two, &one);
	CHECK_NAMES(registry, "one", "a1 b1 ");
	CHECK_NAMES(registry, "two", "b2 a2 ");
	CHECK_NAMES(registry, NULL, "a1 b1 b2 a2 ");
	vb_registry_destroy(registry);
}

static int claim_without_query(const struct vb_verbs *v, struct ibv_context *c,
			       char r[128])
{
	(void)r;
	(void)v;
	return strcmp(((struct fake_device *)c->device)->name, "mute") == 0
		       ? VB_CLAIM_YES
		       : VB_CLAIM_NO;
}

Test(devices, E12_I2_one_that_does_not_answer_is_offered_to_nobody_else)
{
	static const struct vb_backend its =
		BACKEND("its", "Its", 1, claim_without_query);
	struct vb_registry *registry;

	fake_init();
	fake_add("mute", 1)->query_rc = EIO;
	fake_add("b", 1);
	registry = with(&its, &all);
	asked = 0;
	CHECK_NAMES(registry, NULL, "b ");
	CHECK_EQ(asked, 1); /* of b only */
	check_absent(registry, VB_QUERY_FAILED, "mute", -EIO, "(5)");
	CHECK_EQ(fake.warnings, 1);
	vb_registry_destroy(registry);
}

Test(devices, E8_a_walk_closes_what_it_opened)
{
	struct vb_registry *registry;

	fake_init();
	fake_add("a", 1);
	registry = with(&all, NULL);
	CHECK_NAMES(registry, NULL, "a ");
	CHECK_EQ(fake.device[0].opens, 1);
	CHECK_EQ(fake.device[0].closes, 1);
	vb_registry_destroy(registry);
}

Test(devices, E16_a_backend_that_calls_back_gets_EDEADLK)
{
	static const struct vb_backend curious =
		BACKEND("curious", "", 1, claim_and_ask);
	struct vb_registry *registry;

	fake_init();
	fake_add("a", 1);
	asking = registry = with(&curious, NULL);
	CHECK_NAMES(registry, NULL, "a ");
	CHECK_EQ(asking_rc, -EDEADLK);
	vb_registry_destroy(registry);
}

Test(devices, E17_a_backend_that_fails_is_taken_for_no)
{
	static const struct vb_backend ill = BACKEND("ill", "", 1, claim_fails);
	struct vb_registry *registry;

	fake_init();
	fake_add("a", 1);
	registry = with(&ill, &one);
	CHECK_NAMES(registry, "one", "a ");
	CHECK_HAS(fake.lines, "backend ill failed to look at a");
	vb_registry_destroy(registry);
}

Test(devices, E18_the_host_may_change_and_the_list_does_not_till_refreshed)
{
	struct vb_devices before, after;
	struct vb_registry *registry;

	fake_init();
	fake_add("a", 1);
	registry = with(&one, NULL);
	CHECK_EQ(vb_devices_list(registry, NULL, &before), 0);
	fake_add("b", 1);
	CHECK_NAMES(registry, NULL, "a ");
	CHECK_EQ(vb_registry_refresh(registry), 0);
	CHECK_EQ(vb_devices_list(registry, NULL, &after), 0);
	CHECK_EQ(after.count, 2);
	CHECK_EQ(after.generation, before.generation + 1);
	/* The old snapshot stands. */
	CHECK_EQ(before.count, 1);
	CHECK_EQ(before.info[0].port_count, 1);
	/* A refresh that fails keeps what there was. */
	fake.list_errno = ENOMEM;
	CHECK_EQ(vb_registry_refresh(registry), -ENOMEM);
	CHECK_NAMES(registry, NULL, "a b ");
	vb_devices_free(&before);
	vb_devices_free(&after);
	vb_registry_destroy(registry);
}

Test(devices, mine_but_unusable_is_told_and_offered_to_nobody_else)
{
	static const struct vb_backend picky =
		BACKEND("picky", "", 1, claim_unusable);
	struct vb_registry *registry;

	fake_init();
	fake_add("half", 1);
	registry = with(&picky, &all);
	CHECK_NAMES(registry, NULL, "");
	check_absent(registry, VB_UNUSABLE, "half", 0,
		     "its left half is missing");
	vb_registry_destroy(registry);
}

Test(devices, a_forks_child_is_told_to_make_its_own)
{
	struct vb_registry *registry;
	struct vb_devices devices;
	int status = 0;
	pid_t pid;

	fake_init();
	fake_add("a", 1);
	registry = with(&one, NULL);
	CHECK_NAMES(registry, NULL, "a ");
	pid = fork();
	if (pid == 0)
		_exit(vb_devices_list(registry, NULL, &devices) == -ECHILD ? 0
									   : 1);
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	vb_registry_destroy(registry);
}

/* --- the backends that ship --- */

Test(devices, each_kind_of_device_has_its_backend)
{
	struct vb_registry *registry;
	struct fake_device *it;

	fake_init();
	fake_add("mlx5_0", 0x02c9);
	fake_add("rxe0", 0xffffff);
	it = fake_add("efa_0", 0x1d0f);
	it->is_efa = true;
	it->efa.device_caps = 0xf; /* 2.6 of device-models.md: 0xefa1 */
	it->efa.max_rdma_size = 1 << 30;
	it = fake_add("rdma_en2", 0x05ac);
	it->device.transport_type = 100;
	it->port[0].attr.link_layer = 100;
	registry = fake_registry(true);
	CHECK_NAMES(registry, "efa", "efa_0 ");
	CHECK_NAMES(registry, "mlx", "mlx5_0 ");
	CHECK_NAMES(registry, "apple", "rdma_en2 ");
	CHECK_NAMES(registry, "standard", "rxe0 ");
	CHECK_NAMES(registry, NULL, "efa_0 mlx5_0 rdma_en2 rxe0 ");
	vb_registry_destroy(registry);
}

Test(devices, an_efa_without_rdma_write_is_unusable)
{
	struct vb_registry *registry;
	struct fake_device *it;

	fake_init();
	it = fake_add("p4d", 0x1d0f);
	it->is_efa = true;
	it->efa.device_caps = 1 | 1 << 5; /* read, and memory of others */
	it->efa.max_rdma_size = 1 << 30;
	registry = fake_registry(true);
	CHECK_NAMES(registry, NULL, "");
	check_absent(registry, VB_UNUSABLE, "p4d", 0, "no RDMA write");
	vb_registry_destroy(registry);
}

Test(devices, A2_a_list_is_the_callers_own)
{
	struct vb_registry *registry;
	struct vb_devices devices;

	fake_init();
	fake_add("a", 1);
	registry = with(&one, NULL);
	fake_list_one(registry, &devices);
	memset(devices.info[0].name, 'x', 3);
	devices.info[0].ports[0].num = 99;
	vb_devices_free(&devices);
	CHECK_NAMES(registry, NULL, "a ");
	fake_list_one(registry, &devices);
	CHECK_EQ(devices.info->ports[0].num, 1);
	vb_devices_free(&devices);
	vb_registry_destroy(registry);
}
