/* SPDX-License-Identifier: MIT */
/*
 * Goal: the tool does what its help says, tells bad input in one line, and
 * leaves nothing behind. Method: run it as a user would.
 */
#include "tests/rig.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/harness.h"

static int lines_in(const char *text)
{
	int count = 0;

	for (; *text; text++)
		count += *text == '\n';
	return count;
}

static const struct {
	const char *arguments;
	const char *says;
} bad_input[] = {
	{"run -w %s -m cx9 -- true", "unknown model 'cx9'"},
	{"run -w %s -m apple-tb,psn=x -- true", "psn takes ignore|match"},
	{"run -w %s -p 'a.qp0.tx #5 corupt' -- true",
	 "plan:1:13: 'corupt' is no effect"},
	{"run -w %s -p /no/such.plan -- true",
	 "cannot read plan '/no/such.plan'"},
	{"run -w %s -- /no/such/program", "cannot run '/no/such/program'"},
	{"run -w %s -- no-such-program-at-all", "cannot run 'no-such-program"},
	{"run -w %s/ -- true", "bad world name"},
	{"run -w %s -H c -- true", "--host is a or b"},
	{"replay 'scenario what'; : %s", "unknown scenario 'what'"},
	{"replay 'scenario uc.bulk size=1'; : %s", "no parameter 'size'"},
	{"replay 'scenario uc.bulk bytes=7'; : %s", "multiple of 8"},
	{"replay 'device a=cx9;seed 1'; : %s", "unknown model 'cx9'"},
	{"replay /no/such.plan; : %s", "cannot read plan"},
	{"nothing; : %s", "unknown command 'nothing'"},
};

Test(tool, bad_input_is_one_line_and_exit_2)
{
	for (size_t i = 0; i < sizeof(bad_input) / sizeof(*bad_input); i++) {
		struct rig_output out;
		char command[512];

		snprintf(command, sizeof(command), "$VERBENA %s",
			 bad_input[i].arguments);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		rig_shell(&out, command, rig_name());
#pragma GCC diagnostic pop
		CHECK_HAS(out.text, bad_input[i].says);
		CHECK(lines_in(out.text) == 1, "%s: %s", command, out.text);
		CHECK(strncmp(out.text, "verbena: ", 9) == 0, "%s", out.text);
		if (!strstr(bad_input[i].arguments, ";"))
			CHECK_EQ(out.status, 2);
		CHECK_EQ(rig_worlds_left(rig_name()), 0);
	}
}

Test(tool, bad_use_is_exit_2)
{
	static const char *const uses[] = {"",		 "run",
					   "run --what", "replay",
					   "plan a b",	 "replay --json",
					   "x"};
	struct rig_output out;

	for (size_t i = 0; i < sizeof(uses) / sizeof(*uses); i++) {
		rig_shell(&out, "$VERBENA %s", uses[i]);
		CHECK(out.status == 2, "'%s': %d", uses[i], out.status);
	}
}

Test(tool, run_gives_the_programs_status)
{
	struct rig_output out;

	rig_shell(&out, "$VERBENA run -w %s -- sh -c 'exit 7'", rig_name());
	CHECK_EQ(out.status, 7);
	rig_shell(&out, "$VERBENA run -w %s -- sh -c 'kill -9 $$'", rig_name());
	CHECK_EQ(out.status, 128 + 9);
	rig_shell(&out, "$VERBENA run -w %s -- true", rig_name());
	CHECK_EQ(out.status, 0);
	CHECK(out.text[0] == 0, "silent: %s", out.text);
	CHECK_EQ(rig_worlds_left(rig_name()), 0);
}

/* 4.6: what UCX and NCCL look for; the machine's own folders stay as they
 * were. `prefix` takes permissions from the tool. */
static void look_around(const char *prefix)
{
	struct rig_output before, out, after;

	rig_shell(&before, "ls /dev /sys/class");
	rig_shell(&out,
		  "%s $VERBENA run -w %s -- sh -c '"
		  "test -c /dev/infiniband/uverbs0 -a -r "
		  "/dev/infiniband/uverbs0 -a -w /dev/infiniband/uverbs0 && "
		  "cd /sys/class/infiniband/mlx5_0 && cat node_guid "
		  "ports/1/state ports/1/rate ports/1/gids/1 "
		  "ports/1/gid_attrs/types/1 && ls -d /dev/shm /dev/null "
		  "/sys/class/net/lo && cd /sys && "
		  "ls class//./net/../infiniband_verbs'",
		  prefix, rig_name());
	CHECK(out.status == 0, "%s: %s", prefix, out.text);
	CHECK_HAS(out.text,
		  "506b:4b03:0000:0100\n4: ACTIVE\n100 Gb/sec (4X EDR)\n"
		  "0000:0000:0000:0000:0000:ffff:7f00:0001\nIB/RoCE v1\n"
		  "/dev/null\n/dev/shm\n/sys/class/net/lo\n"
		  "abi_version\nuverbs0\n");
	rig_shell(&after, "ls /dev /sys/class");
	CHECK(!strcmp(before.text, after.text), "%s", after.text);
	CHECK_EQ(rig_worlds_left(rig_name()), 0);
}

Test(tool, a_program_sees_the_emulated_devices_node_and_sysfs)
{
	struct rig_output out;

	rig_shell(&out, "unshare -m true && ls -d /sys/class");
	if (out.status != 0)
		SKIP("no mount namespace, or no sysfs: %s", out.text);
	look_around("");
}

Test(tool, a_program_sees_them_where_nothing_may_be_mounted)
{
	look_around("setpriv --bounding-set=-sys_admin "
		    "--inh-caps=-sys_admin");
}

/* The root is then no mount point, and nothing of it can be covered. */
Test(tool, run_works_in_a_chroot_and_without_sysfs)
{
	static const char *const grounds[] = {
		"mount -t tmpfs t /mnt && cd /mnt && mkdir r r/proc r/dev && "
		"for d in bin sbin lib lib64 usr etc; do "
		"[ -L /$d ] && cp -d /$d r/ || { [ -d /$d ] && mkdir r/$d && "
		"mount --rbind /$d r/$d; } || true; done; "
		"mount -t proc p r/proc && mount --rbind /dev r/dev && "
		"mkdir -p r$BUILD && mount --bind $BUILD r$BUILD && "
		"chroot r $VERBENA",
		"umount -l /sys; $VERBENA",
	};

	for (int i = 0; i < 2; i++) {
		struct rig_output out;

		rig_shell(&out, "unshare -m true");
		if (out.status != 0)
			SKIP("no permission to make a mount namespace");
		rig_shell(&out, "unshare -m sh -c '%s run -w %s -- echo ran'",
			  grounds[i], rig_name());
		CHECK(out.status == 0 && !strcmp(out.text, "ran\n"),
		      "ground %d: %d, %s", i, out.status, out.text);
	}
}

Test(tool, a_line_that_never_fired_makes_the_run_say_so)
{
	struct rig_output out;

	rig_shell(&out,
		  "$VERBENA run -w %s -p 'a.qp0.tx #5 drop;"
		  "a.verbs.open_device #0 fail=EPERM' -H a -- ibv_devices",
		  rig_name());
	CHECK_EQ(out.status, 3);
	CHECK_HAS(out.text, "f1: a.qp0.tx #5 drop\n"
			    "      armed, but its site had no event");
	CHECK_HAS(out.text, "2 of 2 lines did nothing");
	rig_shell(&out,
		  "$VERBENA run -w %s -p 'a.verbs.open_device #0 "
		  "fail=EPERM' -H a -- ibv_devinfo",
		  rig_name());
	CHECK(out.status != 0 && out.status != 3, "status %d", out.status);
	CHECK_HAS(out.text, "Failed to open device");
	CHECK_HAS(out.text, "effective: 1 event seen, fired 1 (first at #0)");
}

Test(tool, another_plan_or_none_cannot_be_changed_later)
{
	struct rig_output out;

	rig_shell(&out,
		  "R=\"$VERBENA run -w %s\"; $R -- sleep 30 & s=$!; "
		  "n=0; until ls /dev/shm/verbena.%s >/dev/null 2>&1 || "
		  "[ $n -ge 200 ]; do n=$((n+1)); sleep 0.05; done; sleep 0.2; "
		  "$R -p 'a.qp0.tx #0 drop' -- true; r=$?; "
		  "$R -m apple-tb -- true; echo $r $?; kill $s; wait $s",
		  rig_name(), rig_name());
	CHECK_HAS(out.text, "is running model 'mlx5', not 'apple-tb'");
	CHECK_HAS(out.text, "2\n");
	CHECK_EQ(rig_worlds_left(rig_name()), 0);
}

/* --- replay ------------------------------------------------------------- */

static json_t *replay(const char *plan, int *status)
{
	struct rig_output out;
	json_error_t error;
	json_t *root;

	/* A world left behind is text behind the object, and so an error. */
	rig_shell(&out,
		  "$VERBENA replay --json '%s' 2>/dev/null & p=$!; wait $p; "
		  "s=$?; [ ! -e /dev/shm/verbena.replay.$p ] || echo left; "
		  "exit $s",
		  plan);
	root = json_loads(out.text, 0, &error);
	CHECK(root, "%s: %s", error.text, out.text);
	*status = out.status;
	return root;
}

static json_t *endpoint(json_t *root, int side)
{
	return json_array_get(json_object_get(root, "endpoints"), side);
}

static long long number(json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static const char *word(json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

Test(tool, a_clean_replay_passes_on_both_ends)
{
	json_t *root;
	int status;

	root = replay("scenario uc.bulk bytes=4194304;seed 7", &status);
	CHECK_EQ(status, 0);
	for (int side = 0; side < 2; side++) {
		CHECK(strcmp(word(endpoint(root, side), "verdict"), "pass") ==
			      0,
		      "pass");
		CHECK_EQ(number(endpoint(root, side), "received_bytes"),
			 4194304);
	}
	json_decref(root);
}

Test(tool, a_corrupted_frame_gives_the_same_verdict_10_times)
{
	for (int i = 0; i < 10; i++) {
		json_t *root, *b;
		int status;

		root = replay("scenario uc.bulk bytes=8388608;"
			      "a.qp0.tx #37 corrupt at=0 xor=1 expect=fail@b",
			      &status);
		CHECK_EQ(status, 0);
		b = endpoint(root, 1);
		CHECK(strcmp(word(b, "verdict"), "fail") == 0, "verdict");
		CHECK(strcmp(word(b, "cause"), "protocol") == 0, "cause");
		CHECK_EQ(number(b, "frame"), 37);
		CHECK_EQ(number(b, "slot"), 5);
		CHECK_EQ(number(b, "offset_bytes"), 37 * 131064);
		json_decref(root);
	}
}

Test(tool, a_lost_frame_is_located_by_the_payload)
{
	json_t *root, *b;
	int status;

	root = replay("scenario uc.bulk bytes=8388608 timeout_ms=300;"
		      "a.qp0.tx #3 drop expect=timeout@b",
		      &status);
	CHECK_EQ(status, 0);
	b = endpoint(root, 1);
	CHECK_EQ(number(b, "wrong_at"), 3 * 131064);
	CHECK_EQ(number(b, "wrong_from"), 4 * 131064);
	json_decref(root);
}

static const struct {
	const char *line;
	const char *verdict_a, *verdict_b; /* NULL: whatever */
} struck[] = {
	/* A payload byte: nothing in this wire format sees it. */
	{"a.qp0.tx #2 corrupt at=5000 xor=1", NULL, "corrupt"},
	{"b.qp0.rx #2 corrupt at=5000 xor=1", NULL, "corrupt"},
	{"a.qp0.tx #2 trunc len=4096", NULL, "fail"},
	{"b.verbs.create_qp #0 fail=EBUSY", "fail", "fail"},
	{"a.verbs.get_device_list #0 fail=ENOSYS", "fail", "fail"},
	/* Capabilities are bytes 0 … 23 of the stream, readiness is 24. */
	{"b.boot.in @24 flip xor=0x40", "fail", "fail"},
	{"b.boot.in @8 flip xor=0x01", "fail", "fail"},
	/* The other end is live, and ends by whichever it sees first. */
	{"a.boot.out @24 stall", NULL, "timeout"},
	{"a.boot.in @24 stall", "timeout", NULL},
	{"b.boot.in @20 stall", NULL, "timeout"},
	{"a.verbs.destroy_qp #0 fail=EBUSY", "fail", NULL},
	{"a.boot.out @0 eof", NULL, "fail"},
	{"b.boot.in @10 eof", NULL, "fail"},
};

Test(tool, each_effect_has_its_verdict_on_both_ends)
{
	for (size_t i = 0; i < sizeof(struck) / sizeof(*struck); i++) {
		char plan[256];
		json_t *root;
		int status;

		snprintf(plan, sizeof(plan),
			 "scenario uc.bulk bytes=2097152 timeout_ms=400;%s",
			 struck[i].line);
		root = replay(plan, &status);
		CHECK(status == 1, "%s: status %d", plan, status);
		CHECK_EQ(number(root, "stale"), 0);
		for (int side = 0; side < 2; side++) {
			const char *want = side ? struck[i].verdict_b
						: struck[i].verdict_a;
			const char *have =
				word(endpoint(root, side), "verdict");

			CHECK(!want || strcmp(have, want) == 0,
			      "%s: %c has %s, want %s: %s", plan, 'a' + side,
			      have, want, word(endpoint(root, side), "text"));
		}
		json_decref(root);
	}
}

Test(tool, a_plan_that_does_not_fit_is_exit_3)
{
	json_t *root;
	int status;

	root = replay("scenario uc.bulk bytes=1048576;a.qp0.tx #999 drop",
		      &status);
	CHECK_EQ(status, 3);
	CHECK_EQ(number(root, "stale"), 1);
	json_decref(root);
}

Test(tool, what_a_run_prints_as_replay_is_the_same_plan)
{
	struct rig_output first, second;
	char *command;

	rig_shell(&first,
		  "$VERBENA replay 'scenario uc.bulk bytes=1048576;"
		  "a.qp0.tx #1 corrupt at=0 xor=1' | sed 's/, [0-9.]* s$//'");
	command = strstr(first.text, "again ");
	CHECK(command, "%s", first.text);
	rig_shell(&second, "%.*s | sed 's/, [0-9.]* s$//'",
		  (int)strcspn(command + 6, "\n"), command + 6);
	CHECK(strcmp(first.text, second.text) == 0, "%s\n%s", first.text,
	      second.text);
}

Test(tool, lists_are_also_for_machines)
{
	static const char *const lists[] = {"models", "sites"};

	for (int i = 0; i < 2; i++) {
		struct rig_output out;
		json_t *root;

		rig_shell(&out, "$VERBENA %s --json", lists[i]);
		root = json_loads(out.text, 0, NULL);
		CHECK(root, "%s", out.text);
		json_decref(root);
		rig_shell(&out, "$VERBENA %s", lists[i]);
		CHECK_EQ(out.status, 0);
	}
}

Test(tool, a_stream_cut_inside_a_read_counts_as_fired)
{
	struct rig_output out;

	rig_shell(&out,
		  "R=\"timeout 20 $VERBENA run -w %s\"; P=%d; "
		  "$R -H a -p 'a.boot.in @10 eof' -- ibv_rc_pingpong -p $P "
		  ">/dev/null & s=$!; sleep 0.5; "
		  "$R -H b -- ibv_rc_pingpong -p $P 127.0.0.1; wait $s",
		  rig_name(), rig_free_port());
	CHECK_HAS(out.text, "effective: ");
	CHECK_HAS(out.text, "fired 1 (first at #10)");
}

/* An endpoint cannot be started: nobody else is killed, and one line says so.
 * The bystander shares the process group; 7 descriptors are one too few. */
Test(tool, a_replay_that_cannot_start_kills_nobody)
{
	struct rig_output out;

	for (int limit = 6; limit <= 9; limit++) {
		rig_shell(&out,
			  "sleep 30 & b=$!; ( ulimit -n %d; exec $VERBENA "
			  "replay 'scenario uc.bulk bytes=8' ); "
			  "echo status $?; kill $b && echo alive",
			  limit);
		CHECK(strstr(out.text, "alive\n"), "%d: %s", limit, out.text);
		CHECK(strstr(out.text, "status 2\n") ||
			      strstr(out.text, "status 0\n"),
		      "%d: %s", limit, out.text);
	}
}

Test(tool, signals_end_a_replay_and_leave_nothing)
{
	static const char *const signals[] = {"INT", "TERM", "HUP"};
	struct rig_output out;

	for (int i = 0; i < 3; i++) {
		rig_shell(&out,
			  "env --default-signal=INT,HUP,TERM $VERBENA replay "
			  "'scenario uc.bulk "
			  "bytes=1099511627776' & p=$!; n=0; "
			  "until [ -e /dev/shm/verbena.replay.$p ] || "
			  "[ $n -ge 200 ]; do n=$((n+1)); sleep 0.02; done; "
			  "sleep 0.0%d; kill -%s $p; wait $p; echo $?; "
			  "[ ! -e /dev/shm/verbena.replay.$p ] && echo clean",
			  i * 3, signals[i]);
		CHECK(strstr(out.text, "clean\n"), "%s: %s", signals[i],
		      out.text);
	}
}

Test(tool, signals_reach_the_program_once_and_its_status_comes_back)
{
	struct rig_output out;

	rig_shell(&out,
		  "$VERBENA run -w %s -- sh -c "
		  "'trap \"n=x\\$n\" TERM; while [ -z $n ]; do sleep 0.1; "
		  "done; sleep 0.3; echo got $n; exit 9' & p=$!; sleep 0.5; "
		  "kill -TERM $p; wait $p; echo status $?",
		  rig_name());
	CHECK_HAS(out.text, "got x\n");
	CHECK_HAS(out.text, "status 9\n");
	rig_shell(&out,
		  "trap '' HUP; $VERBENA run -w %s -- sh -c "
		  "'kill -HUP $$; echo lives'",
		  rig_name());
	CHECK_HAS(out.text, "lives\n");
}

Test(tool, the_users_model_does_not_disturb_the_tool)
{
	struct rig_output out;

	rig_shell(&out, "VERBENA_MODEL=mlx5 $VERBENA replay 'scenario uc.bulk "
			"bytes=1048576'");
	CHECK(out.status == 0, "%s", out.text);
	rig_shell(&out,
		  "VERBENA_MODEL=nonsense $VERBENA run -w %s -- "
		  "ibv_devices",
		  rig_name());
	CHECK(out.status == 0 && strstr(out.text, "mlx5_0"), "%s", out.text);
}

Test(tool, a_plan_file_that_is_empty_or_no_text)
{
	struct rig_output out;

	rig_shell(&out, "f=$(mktemp); $VERBENA plan $f; "
			"printf 'seed 1\\0x' >$f; $VERBENA plan $f; echo $?; "
			"rm $f; $VERBENA plan /tmp");
	CHECK_HAS(out.text, "plan 1\n");
	CHECK_HAS(out.text, "Invalid or incomplete multibyte");
	CHECK_HAS(out.text, "Is a directory");
}

/* ibv_uc_pingpong sends from the buffer that it has posted for receiving. */
Test(tool, late_shows_an_unmodified_program_what_it_does_too_early)
{
	struct rig_output out;

	for (int spares = 0; spares < 2; spares++) {
		rig_shell(
			&out,
			"R=\"timeout 60 $VERBENA run -w %s\"; P=%d; "
			"$R --late=50 %s -- ibv_uc_pingpong -c -p $P & s=$!; "
			"sleep 0.5; $R -- ibv_uc_pingpong -c -p $P localhost; "
			"echo status $?; wait $s",
			rig_name(), rig_free_port(),
			spares ? "--no-poison" : "");
		CHECK_HAS(out.text, "status 0\n");
		CHECK((strstr(out.text, "invalid data") == NULL) == spares,
		      "%s", out.text);
	}
}

Test(tool, late_is_the_first_programs_to_choose)
{
	static const struct {
		const char *first, *second, *told;
	} rows[] = {
		{"", "--late", "was made without --late"},
		{"--late=7", "--late=8", "was made with another --late"},
		{"--late=7", "--late=7 --no-poison", "with another --late"},
		{"--late=7", "--late=7", ""},
		{"--late=7", "", ""},
	};
	struct rig_output out;

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		rig_shell(&out,
			  "R=\"$VERBENA run -w %s\"; $R %s -- sh -c \""
			  "$R %s -- true\"; echo status $?",
			  rig_name(), rows[i].first, rows[i].second);
		CHECK_HAS(out.text, rows[i].told);
		CHECK_HAS(out.text,
			  rows[i].told[0] ? "status 2\n" : "status 0\n");
	}
}

Test(tool, late_wants_microseconds)
{
	static const char *const wrong[] = {"--late=0", "--late=x",
					    "--late=1000001", "--no-poison"};
	struct rig_output out;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		rig_shell(&out, "$VERBENA run -w %s %s -- true", rig_name(),
			  wrong[i]);
		CHECK_EQ(out.status, 2);
		CHECK_HAS(out.text, "late");
	}
}
