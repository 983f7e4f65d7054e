/* SPDX-License-Identifier: MIT */
/*
 * Goal: Debian's programs load and run on the library. Method: symbol lists of
 * the installed binaries against ours; every slot of the tables; and the
 * programs themselves, in pairs, through the tool.
 */
#include "tests/rig.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/harness.h"

/* Everything that `nm` says the files import from our nodes, against what the
 * library exports; prints what is missing. */
#define MISSING                                                             \
	"nm -D --defined-only $BUILD/libibverbs.so.1 | awk '{print $3}' | " \
	"sed 's/@@/@/' | sort -u >$T/have; "                                \
	"nm -D -u %s | awk '{print $2}' | grep '@IBVERBS' | sort -u "       \
	">$T/want; wc -l <$T/want; comm -13 $T/have $T/want"

static void check_imports(const char *files, int at_least)
{
	struct rig_output out;
	char *rest;
	long count;

	rig_shell(&out, "T=$(mktemp -d); trap 'rm -r $T' EXIT; " MISSING,
		  files);
	count = strtol(out.text, &rest, 10);
	CHECK(count >= at_least, "only %ld imports: %s", count, out.text);
	CHECK(strcmp(rest, "\n") == 0, "missing:%s", rest);
}

Test(abi, exports_what_the_utilities_and_perftest_import)
{
	check_imports("/usr/bin/ibv_devices /usr/bin/ibv_devinfo "
		      "/usr/bin/ibv_*_pingpong /usr/bin/ib_send_bw",
		      35);
}

Test(abi, exports_what_pyverbs_and_the_stock_providers_import)
{
	check_imports("/usr/lib/python3/dist-packages/pyverbs/*.so "
		      "/usr/lib/*/libmlx5.so.1 /usr/lib/*/libefa.so.1 "
		      "/usr/lib/*/librdmacm.so.1",
		      120);
}

/* Both ways; but not the pre-2006 names, which are hidden versions of 1.0. */
Test(abi, exports_the_names_of_debians_library_and_no_others)
{
	struct rig_output out;

	rig_shell(&out,
		  "T=$(mktemp -d); trap 'rm -r $T' EXIT; "
		  "for f in /usr/lib/*/libibverbs.so.1 "
		  "$BUILD/libibverbs.so.1; do nm -D --defined-only $f | "
		  "awk '$3 ~ /@@/ || $3 !~ /@IBVERBS_1.0$/ "
		  "{sub(/@@/, \"@\", $3); print $3}' | sort >$T/$(echo $f | "
		  "tr / _); done; cd $T; set -- _usr*; "
		  "diff $1 $(ls | grep -v ^_usr) && echo same");
	CHECK(strcmp(out.text, "same\n") == 0, "%s", out.text);
}

Test(abi, every_slot_of_both_tables_is_filled)
{
	struct verbs_context *verbs;
	struct rig rig;
	void **slot;

	setenv("VERBENA_QUIET", "1", 1);
	rig_open(&rig, "mlx5", NULL);
	slot = (void **)&rig.end[0].context->ops;
	for (size_t i = 0; i < sizeof(struct ibv_context_ops) / sizeof(void *);
	     i++)
		CHECK(slot[i], "ibv_context_ops slot %zu", i);
	verbs = verbs_get_ctx(rig.end[0].context);
	CHECK(verbs && verbs->sz == sizeof(*verbs), "extended context");
	slot = (void **)verbs;
	for (size_t i = 0;
	     i <
	     offsetof(struct verbs_context, _ABI_placeholder3) / sizeof(void *);
	     i++)
		CHECK(slot[i], "verbs_context slot %zu", i);
	rig_close(&rig);
}

Test(abi, layout_is_that_of_rdma_core_44)
{
	CHECK_EQ(sizeof(struct ibv_device), 664);
	CHECK_EQ(sizeof(struct ibv_context), 328);
	CHECK_EQ(sizeof(struct verbs_context), 648);
	CHECK_EQ(offsetof(struct verbs_context, sz), 312);
	CHECK_EQ(offsetof(struct ibv_context, abi_compat), 320);
	CHECK_EQ(sizeof(struct ibv_cq), 128);
	CHECK_EQ(sizeof(struct ibv_qp), 160);
}

Test(abi, missing_operations_answer_not_supported)
{
	struct ibv_xrcd_init_attr xrcd = {0};
	struct ibv_alloc_dm_attr dm = {.length = 8};
	struct rig rig;

	/* What the model lacks, and what nobody has yet. */
	setenv("VERBENA_QUIET", "1", 1);
	rig_open(&rig, "apple-tb", NULL);
	CHECK(!ibv_open_xrcd(rig.end[0].context, &xrcd), "open_xrcd");
	CHECK_EQ(errno, EOPNOTSUPP);
	errno = 0;
	CHECK(!ibv_alloc_dm(rig.end[0].context, &dm), "alloc_dm");
	CHECK_EQ(errno, EOPNOTSUPP);
	errno = 0;
	CHECK(!ibv_import_device(0), "import_device");
	CHECK_EQ(errno, EOPNOTSUPP);
	rig_close(&rig);
}

/* --- programs ----------------------------------------------------------- */

/* Server and client of a pingpong in one world; both outputs, and their exit
 * statuses in a last line "S C". */
static void pingpong(struct rig_output *out, const char *run,
		     const char *program)
{
	rig_shell(out,
		  "T=$(mktemp -d); trap 'rm -r $T' EXIT; P=%d; "
		  "R=\"timeout 60 $VERBENA run -w %s %s --\"; "
		  "$R %s -p $P >$T/s 2>&1 & s=$!; "
		  "n=0; until grep -q : /proc/net/tcp && "
		  "grep -qi \":$(printf %%04X $P) 00000000:0000 0A\" "
		  "/proc/net/tcp || ! kill -0 $s 2>/dev/null || "
		  "[ $n -ge 200 ]; do n=$((n+1)); sleep 0.05; done; "
		  "$R %s -p $P 127.0.0.1; c=$?; wait $s; s=$?; cat $T/s; "
		  "echo \"$s $c\"",
		  rig_free_port(), rig_name(), run, program, program);
	CHECK_EQ(rig_worlds_left(rig_name()), 0);
}

static void check_pingpong(const char *run, const char *program)
{
	struct rig_output out;

	pingpong(&out, run, program);
	CHECK(strstr(out.text, "\n0 0\n"), "%s %s: %s", run, program, out.text);
	/* Both ends say how many iterations they made. */
	char *first = strstr(out.text, "200 iters in");

	CHECK(first && strstr(first + 1, "200 iters in"), "%s", out.text);
	CHECK(!strstr(out.text, "invalid data"), "%s", out.text);
}

Test(abi, rc_pingpong_runs_and_checks_its_data)
{
	check_pingpong("", "ibv_rc_pingpong -c -n 200");
	check_pingpong("", "ibv_rc_pingpong -c -n 200 -s 300001 -m 4096");
}

Test(abi, rc_pingpong_runs_with_events)
{
	check_pingpong("", "ibv_rc_pingpong -c -e -n 200");
}

Test(abi, uc_pingpong_runs_and_checks_its_data)
{
	check_pingpong("", "ibv_uc_pingpong -c -n 200");
	check_pingpong("", "ibv_uc_pingpong -c -n 200 -g 3");
}

Test(abi, uc_pingpong_runs_with_events)
{
	check_pingpong("", "ibv_uc_pingpong -c -e -n 200");
}

Test(abi, ud_and_srq_pingpong_run_and_check_their_data)
{
	check_pingpong("", "ibv_ud_pingpong -c -n 200");
	check_pingpong("", "ibv_ud_pingpong -c -e -n 200 -g 1");
	check_pingpong("", "ibv_rc_pingpong -c -N -n 200");
}

Test(abi, uc_pingpong_runs_on_thunderbolt_when_receives_may_come_early)
{
	/* It posts receives before RTR, which R28's default refuses. */
	check_pingpong("-m apple-tb,post_recv_from=init",
		       "ibv_uc_pingpong -c -n 200 -g 1 -m 4096");
}

Test(abi, rc_pingpong_fails_on_thunderbolt_and_names_the_rule)
{
	struct rig_output out;

	rig_shell(&out, "$VERBENA run -w %s -m apple-tb -- ibv_rc_pingpong -c",
		  rig_name());
	CHECK_EQ(out.status, 1);
	CHECK_HAS(out.text, "verbena: apple-tb: create_qp refused: type RC");
	CHECK_HAS(out.text, "(R1: TN3205)");
	CHECK_HAS(out.text, "Couldn't create QP");
	CHECK_EQ(rig_worlds_left(rig_name()), 0);
}

Test(abi, devices_and_devinfo_show_the_model)
{
	struct rig_output out;

	rig_shell(&out, "$VERBENA run -w %s -m apple-tb -- ibv_devices",
		  rig_name());
	CHECK_EQ(out.status, 0);
	CHECK_HAS(out.text, "rdma_en5");
	rig_shell(&out, "$VERBENA run -w %s -- ibv_devinfo -v", rig_name());
	CHECK_EQ(out.status, 0);
	CHECK_HAS(out.text, "hca_id:\tmlx5_0");
	CHECK_HAS(out.text, "vendor_part_id:\t\t\t4119");
	CHECK_HAS(out.text, "state:\t\t\tPORT_ACTIVE (4)");
	CHECK_HAS(out.text, "0000:0000:0000:0000:0000:ffff:7f00:0001");
	rig_shell(&out, "$VERBENA run -w %s -m apple-tb -- ibv_devinfo -v",
		  rig_name());
	CHECK_EQ(out.status, 0);
	CHECK_HAS(out.text, "max_qp:\t\t\t\t11");
}
