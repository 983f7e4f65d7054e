#!/bin/sh
# SPDX-License-Identifier: MIT
# One scenario, three personalities, 20 runs each in five builds: one trace. The
# test compares its own runs; this compares the builds.
set -u
want=
for build in debug release asan tsan valgrind; do
	under=
	mode=$build
	if [ "$build" = valgrind ]; then
		mode=debug
		under="valgrind -q --log-file=/dev/null"
	fi
	make -j2 MODE=$mode "build/$mode/tests/plain" || exit 1
	out=$($under "build/$mode/tests/plain" play/a_scenario_has_one_trace)
	have=$(echo "$out" | grep '^hash ')
	if [ -z "$have" ] || ! echo "$out" | grep -q '^1 passed'; then
		echo "hash: $build: not one trace: $out" >&2
		exit 1
	fi
	if [ "$have" != "${want:=$have}" ]; then
		printf 'hash: %s has other traces:\n%s\nnot\n%s\n' \
			"$build" "$have" "$want" >&2
		exit 1
	fi
	echo "hash: $build: 20 runs each, one trace"
done
echo "$want"
