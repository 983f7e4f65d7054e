/* SPDX-License-Identifier: MIT */
/*
 * Goal: plan text parses, prints canonically and round-trips; every error
 * names line and column. Method: tables of texts.
 */
#include "fault/fault.h"

#include <errno.h>
#include <stdlib.h>

#include "tests/harness.h"

/* The canonical form of one line under a fresh plan; freed by the caller. */
static char *canonical(const char *text)
{
	static char error[FAULT_ERROR_MAX];
	struct fault_plan plan;
	int rc = fault_plan_parse("t", text, &plan, error);

	CHECK(rc == 0, "%s", error);
	return fault_plan_print(&plan);
}

static const struct {
	const char *text;
	const char *line; /* canonical fault line */
} lines[] = {
	{"a.qp0.tx #37 corrupt at=0 xor=1",
	 "f1: a.qp0.tx #37 corrupt at=0 xor=0x01\n"},
	{"  b.qp3.rx\t#0x10   drop  # lost", "f1: b.qp3.rx #16 drop\n"},
	{"x: a.qp0.tx #5 corrupt at=8 set=255 sticky",
	 "x: a.qp0.tx #5 set at=8 value=0xff sticky\n"},
	{"a.qp0.tx #5 set at=8 value=0",
	 "f1: a.qp0.tx #5 set at=8 value=0x00\n"},
	{"a.qp0.tx #2..9 trunc len=100", "f1: a.qp0.tx #2..9 trunc len=100\n"},
	{"a.qp0.tx #2..9 dup times=2", "f1: a.qp0.tx #2..9 dup times=2\n"},
	{"a.qp0.tx #2.. dup times=1", "f1: a.qp0.tx #2.. dup times=1\n"},
	{"a.qp0.tx #2..2 dup", "f1: a.qp0.tx #2 dup\n"},
	{"a.qp0.tx #3 dup times=4", "f1: a.qp0.tx #3 dup times=4\n"},
	{"a.qp0.tx #*/3 drop", "f1: a.qp0.tx #*/3 drop\n"},
	{"b.verbs.reg_mr #1 fail=ENOMEM sticky expect=fail@b",
	 "f1: b.verbs.reg_mr #1 fail=ENOMEM sticky expect=fail@b\n"},
	{"b.boot.in @8 flip xor=0x40 expect=fail|timeout",
	 "f1: b.boot.in @8 flip xor=0x40 expect=fail|timeout\n"},
	{"b.boot.in @8+4 flip xor=0x40", "f1: b.boot.in @8+4 flip xor=0x40\n"},
	{"a.boot.out @24 stall", "f1: a.boot.out @24 stall\n"},
	{"a.boot.out @0 eof", "f1: a.boot.out @0 eof\n"},
	{"a.verbs.post_send #0 fail=EWOULDBLOCK",
	 "f1: a.verbs.post_send #0 fail=EAGAIN\n"},
	{"f1: a.qp0.tx #0 drop\na.qp0.tx #1 drop",
	 "f1: a.qp0.tx #0 drop\nf2: a.qp0.tx #1 drop\n"},
	{"f2: a.qp0.tx #0 drop\na.qp0.tx #1 drop",
	 "f2: a.qp0.tx #0 drop\nf1: a.qp0.tx #1 drop\n"},
};

Test(plan, lines_print_canonically_and_round_trip)
{
	for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
		char *once = canonical(lines[i].text);
		char *twice = canonical(once);

		CHECK(strncmp(once, "plan 1\n", 7) == 0, "%s", once);
		CHECK(strcmp(once + 7, lines[i].line) == 0, "have %swant %s",
		      once + 7, lines[i].line);
		CHECK(strcmp(once, twice) == 0, "%s%s", once, twice);
		free(once);
		free(twice);
	}
}

Test(plan, headers_and_several_lines_round_trip)
{
	const char *text = "plan 1\n"
			   "scenario uc.bulk bytes=4096 timeout_ms=100\n"
			   "device a=apple-tb b=apple-tb,psn=match\n"
			   "seed 0x5eed\n"
			   "one: a.qp0.tx #5 corrupt at=0 xor=0x01\n"
			   "f2: b.verbs.post_recv #0 fail=EFAULT after=one\n";
	char *printed = canonical(text);

	CHECK(strcmp(text, printed) == 0, "%s", printed);
	free(printed);
}

static const struct {
	const char *text;
	const char *error;
} errors[] = {
	{"plan 2", "t:1:1: this is for plans of version 1"},
	{"\n\nbogus", "t:3:1: expected a site"},
	{"c.qp0.tx #0 drop", "t:1:1: expected a site"},
	{"a.qp0.up #0 drop", "t:1:7: a queue pair has tx and rx, not 'up'"},
	{"a.qpx.tx #0 drop", "t:1:5: 'x' is not a number"},
	{"a.mem #0 drop", "t:1:3: unknown site 'mem'"},
	{"a.verbs.poll #0 fail=EIO", "t:1:9: no verb 'poll'"},
	{"a.qp0.tx", "t:1:9: expected which event"},
	{"a.qp0.tx 5 drop", "t:1:10: an event is #N"},
	{"a.qp0.tx @5 drop", "t:1:10: an event is #N"},
	{"a.qp0.tx #5..3 drop", "t:1:14: the range ends before it starts"},
	{"a.qp0.tx #*/0 drop", "t:1:13: every 0-th is none"},
	{"a.boot.in #5 eof", "t:1:11: a stream is struck at @OFFSET"},
	{"a.boot.in @5+0 eof", "t:1:14: a length of 0"},
	{"a.boot.in @5 eof times=2", "t:1:18: a byte passes only once"},
	{"a.qp0.tx #5", "t:1:12: expected an effect"},
	{"a.qp0.tx #5 corupt at=0 xor=1",
	 "t:1:13: 'corupt' is no effect of this site; it takes drop, corrupt"},
	{"a.qp0.tx #5 flip xor=1", "t:1:13: 'flip' is no effect of this site"},
	{"a.qp0.tx #5 corrupt at=0 xor=0", "t:1:30: 0 is not in 1..255"},
	{"a.qp0.tx #5 corrupt at=0 xor=256", "t:1:30: 256 is not in 1..255"},
	{"a.qp0.tx #5 corrupt at=0", "t:1:13: corrupt needs at= xor="},
	{"a.qp0.tx #5 corrupt at=-1 xor=1", "t:1:24: '-1' is not a number"},
	{"a.qp0.tx #5 trunc", "t:1:13: trunc needs len="},
	{"a.qp0.tx #5 drop at=1", "t:1:18: unexpected 'at=1'"},
	{"a.qp0.tx #5 drop times=0", "t:1:24: times out of range"},
	{"a.qp0.tx #5 drop times=2 times=3", "t:1:26: 'times' given twice"},
	{"a.qp0.tx #5 drop sticky times=3", "t:1:25: sticky is for ever"},
	{"a.qp0.tx #5..9 drop sticky", "t:1:21: sticky needs a first event"},
	{"a.qp0.tx #5 set at=1 at=2 value=1", "t:1:22: 'at' given twice"},
	{"a.qp0.tx #5 corrupt at=1 xor=2 set=3", "t:1:32: 'set' given twice"},
	{"a.qp0.tx #5 drop expect=fail@a expect=pass@b",
	 "t:1:32: 'expect' given twice"},
	{"a.boot.in @3+7 eof", "t:1:16: eof is at one offset"},
	{"a.boot.in @1+18446744073709551615 flip xor=1",
	 "t:1:12: offset out of range"},
	{"a.qp0.tx #010 drop", "t:1:11: '010' is not a number: octal"},
	{"it's: a.qp0.tx #0 drop", "t:1:1: an id is of letters"},
	{"plan 1\nplan 1", "t:2:1: a second plan line"},
	{"a.qp0.tx #5 drop after=x", "t:1:24: after='x': no line above"},
	{"a.qp0.tx #5 drop expect=maybe", "t:1:25: 'maybe' is no verdict"},
	{"a.qp0.tx #5 drop expect=fail@c", "t:1:29: expected @a or @b"},
	{"a.verbs.reg_mr #1 fail=ENOSUCH", "t:1:24: 'ENOSUCH' is not the name"},
	{"a.verbs.reg_mr #1 fail", "t:1:19: 'fail' is no effect"},
	{"x: a.qp0.tx #0 drop\nx: a.qp0.tx #1 drop",
	 "t:2:1: a second line with id 'x'"},
	{"seed 1\nseed 2", "t:2:1: a second seed line"},
	{"seed soon", "t:1:6: 'soon' is not a number"},
	{"scenario uc.bulk bytes", "t:1:18: expected key=value"},
	{"scenario uc.bulk bytes=1 bytes=2", "t:1:26: 'bytes' given twice"},
	{"device c=mlx5", "t:1:8: expected a=MODEL or b=MODEL"},
	{"device", "t:1:1: device needs"},
	{"a.qp0.tx #0 drop\nseed 1", "t:2:1: 'seed' after a fault line"},
	{"a.qp0.tx #99999999999999999999 drop",
	 "t:1:11: '99999999999999999999'"},
};

Test(plan, errors_name_line_and_column)
{
	for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++) {
		char error[FAULT_ERROR_MAX] = "";
		struct fault_plan plan;

		CHECK(fault_plan_parse("t", errors[i].text, &plan, error) ==
			      -EINVAL,
		      "accepted: %s", errors[i].text);
		CHECK(strncmp(error, errors[i].error,
			      strlen(errors[i].error)) == 0,
		      "have %s\nwant %s", error, errors[i].error);
	}
}

Test(plan, more_lines_than_a_world_holds_are_refused)
{
	char text[8192] = "", error[FAULT_ERROR_MAX];
	struct fault_plan plan;

	for (int i = 0; i < SIM_FAULT_MAX; i++)
		strcat(text, "a.qp0.tx #1 drop\n");
	CHECK_EQ(fault_plan_parse("t", text, &plan, error), 0);
	CHECK_EQ(plan.line_count, SIM_FAULT_MAX);
	strcat(text, "a.qp0.tx #1 drop\n");
	CHECK_EQ(fault_plan_parse("t", text, &plan, error), -EINVAL);
	CHECK_HAS(error, "t:65:1: more than 64");
}

Test(plan, garbage_never_crashes_the_parser)
{
	static const char alphabet[] = "ab.qp0tx #@*/=:+|\n\t1f\xff";
	uint64_t state = 20261130;
	char text[64], error[FAULT_ERROR_MAX];
	struct fault_plan plan;

	/* A fixed generator: the same texts every time. */
	for (int round = 0; round < 20000; round++) {
		size_t len = 0;

		while (len < sizeof(text) - 1) {
			state = state * 6364136223846793005u +
				1442695040888963407u;
			text[len++] = alphabet[(state >> 33) %
					       (sizeof(alphabet) - 1)];
		}
		text[len] = 0;
		if (fault_plan_parse("t", text, &plan, error) == 0)
			free(fault_plan_print(&plan));
	}
	/* And every prefix of a good plan. */
	for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++)
		for (size_t len = 0; len < strlen(lines[i].text); len++) {
			snprintf(text, sizeof(text), "%.*s", (int)len,
				 lines[i].text);
			fault_plan_parse("t", text, &plan, error);
		}
}

Test(plan, words_name_the_offset_they_came_from)
{
	for (uint64_t at = 0; at < 1 << 20; at += 8 * 1237) {
		uint64_t word = fault_word_at(7, at);

		CHECK_EQ(fault_word_offset(7, word, 1 << 20), at);
		CHECK_EQ(fault_word_offset(7, word ^ 1, 1 << 20), -2);
		CHECK_EQ(fault_word_offset(8, word, 1 << 20), -2);
	}
}
