/* SPDX-License-Identifier: MIT */
/*
 * Goal: what `make install` gives is what a program needs, and the documents
 * say what is there. Method: install into a folder of our own; lists of names
 * against the header; README's program, built and run as README says.
 */
#include <stdlib.h>

#include "tests/harness.h"
#include "tests/rig.h"

#define PREFIX "/opt/verbena"
#define LIMIT  "timeout -k 2 20"

/* From the folder of the sources, with a folder $T that goes in any case. */
#define HERE                                                    \
	"cd $BUILD/../.. && T=$(mktemp -d) || exit 1; "         \
	"trap 'rm -rf $T; [ -z \"$s\" ] || kill $s' EXIT; s=; " \
	"trap 'exit 1' HUP INT TERM; I=$T" PREFIX "; "

/* What a make above us was told is not for this one. */
#define INSTALL                                                 \
	"env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -s "      \
	"MODE=$(basename $BUILD) DESTDIR=$T PREFIX=" PREFIX " " \
	"install || exit 1; "

/* The compiler's own list of the header's functions. */
#define DECLARED                                                               \
	"gcc -fsyntax-only -aux-info $T/aux -x c lib/verbena.h && "            \
	"sed -n '/verbena[.]h:/s/^.*[ *]\\([a-z_0-9]*\\) (.*/\\1/p' $T/aux | " \
	"sort >$T/declared; "

static void need_plain_build(void)
{
	const char *mode = strrchr(BUILD_DIR, '/') + 1;

	if (strcmp(mode, "debug") != 0 && strcmp(mode, "release") != 0)
		SKIP("programs outside cannot link what is built for %s", mode);
}

static void check_says(const char *shell_said, const char *want)
{
	CHECK(strcmp(shell_said, want) == 0, "%s", shell_said);
}

Test(install, libraries_show_what_the_header_declares_and_no_more)
{
	struct rig_output out;

	need_plain_build();
	rig_shell(&out, HERE INSTALL DECLARED
		  "test $(wc -l <$T/declared) -ge 45 || echo too few; "
		  "sed -n 's/^\t\t\\(vb_.*\\);/\\1/p' lib/libverbena.map | "
		  "sort >$T/mapped; cd $I/lib; "
		  "nm -D --defined-only libverbena.so | "
		  "sed -n 's/.* . \\(.*\\)@@VERBENA_0$/\\1/p' >$T/shared; "
		  "nm -D --defined-only libverbena.so | grep -v VERBENA_0; "
		  "nm -g --defined-only libverbena.a | "
		  "sed -n 's/.* . //p' | sort >$T/static; "
		  "for f in mapped shared static; do "
		  "diff $T/declared $T/$f && echo $f; done");
	check_says(out.text, "mapped\nshared\nstatic\n");
}

Test(install, the_manual_names_each_function_code_and_option)
{
	struct rig_output out;

	rig_shell(&out, HERE DECLARED
		  "sed -n 's,/[*].*,,; s/\\[.*\\]//; "
		  "/^enum vb_code {/,/^}/s/^\t\\(VB_[A-Z_]*\\),.*/\\1/p; "
		  "/^struct vb_options {/,/^}/s/^\t.*[ *]\\(.*\\);.*/\\1/p' "
		  "lib/verbena.h >$T/words; wc -l <$T/words; "
		  "for word in $(cat $T/declared $T/words); do "
		  "grep -qw $word lib/verbena.3 || echo no $word; done");
	check_says(out.text, "23\n");
}

Test(install, the_manual_is_well_formed)
{
	struct rig_output out;

	rig_shell(&out, "cd $BUILD/../..; "
			"if command -v mandoc >/dev/null; then "
			"mandoc -T lint -W warning lib/verbena.3; "
			"elif command -v man >/dev/null; then "
			"LC_ALL=C.UTF-8 man --warnings -l lib/verbena.3 2>&1 "
			">/dev/null; else exit 77; fi");
	if (out.status == 77)
		SKIP("neither mandoc nor man");
	check_says(out.text, "");
}

/* The first example is a function. */
Test(install, the_manuals_example_compiles)
{
	struct rig_output out;

	rig_shell(&out, HERE
		  "sed -n '/^.Bd/,/^.Ed/{/^.Ed/q;/^.Bd/d;s/\\\\e/\\\\/g;p}' "
		  "lib/verbena.3 >$T/ask.c; grep -c vb_ $T/ask.c; "
		  "gcc -Wall -Wextra -Werror -Ilib -c -o $T/ask.o $T/ask.c");
	check_says(out.text, "8\n");
}

/* "both ends: LINES" for each library and device, an end's lines joined by
 * '|'. The port is waited for: a client that comes too early fails. */
#define PAIR                                                      \
	"pair() { r=; [ $2 = none ] || "                          \
	"r=\"$I/bin/verbena run -w $W -m $2 --\"; " LIMIT         \
	" $r $T/$1 $P >$T/server 2>&1 & s=$!; n=0; "              \
	"until grep -q \":$(printf %%04X $P) 00000000:0000 0A\" " \
	"/proc/net/tcp || [ $n -ge 200 ]; do n=$((n+1)); "        \
	"sleep 0.05; done; " LIMIT " $r $T/$1 $P 127.0.0.1 "      \
	">$T/client 2>&1; c=$?; wait $s; echo \"$1 $2 $? $c: "    \
	"$(cat $T/server $T/client | tr '\\n' '|')\"; s=; }; "

#define BUILD_BOTH                                                           \
	"awk '/^```c$/ {on = 1; next} /^```/ {on = 0} on' README.md "        \
	">$T/hello.c; test $(wc -l <$T/hello.c) -lt 60 || echo too long; "   \
	"export PKG_CONFIG_SYSROOT_DIR=$T PKG_CONFIG_PATH=$I/lib/pkgconfig " \
	"LD_LIBRARY_PATH=$I/lib; cc='gcc -Wall -Wextra -Werror'; cd $T; "    \
	"$cc -o shared hello.c $(pkg-config --cflags --libs verbena); "      \
	"$cc -o static hello.c $(pkg-config --cflags --static --libs "       \
	"verbena | sed s/-lverbena/-l:libverbena.a/); "                      \
	"for f in shared static; do readelf -d $f | "                        \
	"grep -c 'NEEDED.*libverbena.so.0'; done; "

static void check_pair(const char *text, const char *library,
		       const char *device, const char *transport)
{
	char want[256];

	snprintf(want, sizeof(want),
		 "\n%s %s 0 0: over %s |how are you?|over %s |fine, thank "
		 "you|\n",
		 library, device, transport, transport);
	CHECK_HAS(text, want);
}

Test(install, readmes_program_runs_on_each_device_and_on_none)
{
	static const char *const libraries[] = {"shared", "static"};
	struct rig_output out;

	need_plain_build();
	rig_shell(&out,
		  HERE INSTALL "W=%s P=%d; " BUILD_BOTH PAIR
			       "for f in shared static; do "
			       "for m in apple-tb mlx5 none; do "
			       "pair $f $m; done; done",
		  rig_name(), rig_free_port());
	CHECK(strncmp(out.text, "1\n0\n", 4) == 0, "%s", out.text);
	for (int i = 0; i < 2; i++) {
		char want[128];

		check_pair(out.text, libraries[i], "apple-tb", "apple_uc");
		check_pair(out.text, libraries[i], "mlx5", "rc");
		snprintf(want, sizeof(want),
			 "%s none 0 0: over tcp no device has GID ",
			 libraries[i]);
		CHECK_HAS(out.text, want);
	}
	CHECK_HAS(strstr(out.text, "static none"), "|how are you?|over tcp no");
	CHECK_HAS(strstr(out.text, "static none"), "|fine, thank you|\n");
	CHECK_EQ(rig_worlds_left(rig_name()), 0);
}
