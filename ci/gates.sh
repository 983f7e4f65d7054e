#!/bin/sh
# SPDX-License-Identifier: MIT
# The memory checkers, over the plain runner: ci/gates.sh asan|tsan|valgrind.
# They are judged by their report files, because exit codes hide leaks.
set -u
gate=$1
build=build/$gate
[ "$gate" = valgrind ] && build=build/debug
reports=$(mktemp -d)
trap 'rm -rf "$reports" "$reports.out"' EXIT
trap 'exit 1' HUP INT TERM

# Suites without child programs: those are other binaries.
inside="apple_uc/ devices/ open/ qp/ find/ stream/ in_place/ negotiate/ rc/ wire/ tcp/
apple_tb/ deliver/ mlx5/ provider/ rxe/ tap/ plan/
qp_table/ rules/ semantics/ accounting/ outcomes/ keys/
datagram/ corners/ parcel/ mapping/ memory/ threads/ world/ play/ late/"
case $gate in
asan)
	ASAN_OPTIONS=detect_leaks=1:log_path=$reports/asan \
	UBSAN_OPTIONS=print_stacktrace=1:log_path=$reports/ubsan \
		$build/tests/plain $inside ;;
tsan)
	TSAN_OPTIONS=log_path=$reports/tsan \
		$build/tests/plain apple_uc/ stream/ rc/ tcp/ deliver/ tap/ threads/ play/ late/ ;;
valgrind)
	valgrind -q --leak-check=full --show-leak-kinds=all \
		--errors-for-leak-kinds=all --log-file="$reports/%p" \
		$build/tests/plain apple_uc/ negotiate/N6_DN1 stream/DA10 rc/L tcp/ play/ ;;
*)
	echo "ci/gates.sh: no gate '$gate'" >&2
	exit 2 ;;
esac >"$reports.out" 2>&1
status=$?

found=$(find "$reports" -type f -size +0 | wc -l)
if [ $status != 0 ] || [ "$found" != 0 ]; then
	cat "$reports.out"
	find "$reports" -type f -size +0 -exec cat {} +
	echo "$gate: $found reports, status $status" >&2
	exit 1
fi
echo "$gate: $(tail -n 1 "$reports.out"), no report"
