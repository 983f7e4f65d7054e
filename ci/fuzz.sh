#!/bin/sh
# SPDX-License-Identifier: MIT
# The fuzzers of ci/fuzz, two at a time: ci/fuzz.sh [SECONDS each, 60]. They
# start from the kept corpus; with KEEP=1 what they find is merged into it. A
# finding's input stays in build/fuzz: build/fuzz/NAME INPUT shows it again.
# shellcheck disable=SC2086 # flags are several words
set -u
seconds=${1:-60}
build=build/fuzz
mkdir -p $build/lib
work=$(mktemp -d)
trap 'kill $(cat "$work"/*.pid 2>/dev/null) 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

flags="-std=gnu11 -g -O1 -Wall -Wextra -Werror -I.
-fsanitize=address,undefined -fno-sanitize-recover=undefined"
fuzz=-fsanitize=fuzzer-no-link
for source in lib/*.c; do
	clang $flags $fuzz -c "$source" -o "$build/${source%.c}.o" || exit 1
done

build() { # name
	fopen=
	[ "$1" = gid ] && fopen=-Wl,--wrap=fopen
	clang $flags -fsanitize=fuzzer $fopen -o $build/"$1" \
		ci/fuzz/fuzz_"$1".c $build/lib/*.o -ldl -lpthread
}

run() { # name
	new=$work/$1 kept=ci/fuzz/corpus/$1
	mkdir -p "$new" "$kept"
	UBSAN_OPTIONS=print_stacktrace=1 $build/"$1" \
		-max_total_time="$seconds" -timeout=10 -max_len=1024 \
		-artifact_prefix=$build/"$1"- "$new" "$kept" \
		>"$new.log" 2>&1 &
	echo $! >"$new.pid"
	wait $!
	ended=$?
	[ -d "$new" ] || return 1 # we are being ended
	rm "$new.pid"
	if [ $ended != 0 ]; then
		grep -av '^#' "$new.log" | tail -n 60 >&2
		echo "fuzz: $1: a finding: $(grep -ao "$build/[^ ]*$" \
			"$new.log" | tail -n 1)" >&2
		return 1
	fi
	[ -z "${KEEP-}" ] || keep "$1" || return 1
	awk -v name="$1" '/^Done/ { runs = $2; took = $5 }
		match($0, /cov: [0-9]+/) { edges = substr($0, RSTART + 5, RLENGTH - 5) }
		END { printf "fuzz: %s: %d runs in %d s, %d edges, no finding\n",
			name, runs, took, edges }' "$new.log"
}

keep() { # name
	mkdir "$work/$1.min"
	$build/"$1" -merge=1 -use_counters=0 "$work/$1.min" "$work/$1" "ci/fuzz/corpus/$1" \
		>"$work/$1.merge" 2>&1 || return 1
	rm -rf "ci/fuzz/corpus/$1"
	mv "$work/$1.min" "ci/fuzz/corpus/$1"
}

set --
for source in ci/fuzz/fuzz_*.c; do
	name=${source#ci/fuzz/fuzz_}
	set -- "$@" "${name%.c}"
	build "${name%.c}" || exit 1
done
status=0
while [ $# -gt 0 ]; do
	run "$1" &
	first=$!
	if [ $# -gt 1 ]; then
		shift
		run "$1" || status=1
	fi
	wait $first || status=1
	shift
done
exit $status
