#!/bin/sh
# SPDX-License-Identifier: MIT
# Install what the build and the tests need, with apt-get; do nothing, and do
# it fast, when all is there.
set -u

# Each with its reason in README.md.
packages="gcc make libc6-dev pkg-config libibverbs-dev libjansson-dev valgrind
libcriterion-dev ibverbs-utils ibverbs-providers perftest python3-pyverbs
qperf ucx-utils openmpi-bin libopenmpi-dev clang-format clang
libclang-rt-14-dev"

# For make bench only.
[ "${1-}" = bench ] && packages="$packages libfabric-bin gnuplot-nox python3"

missing=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' $packages \
	2>/dev/null | awk -v want="$packages" '
	$2 == "installed" { have[$1] = 1 }
	END { n = split(want, p); for (i = 1; i <= n; i++)
		if (!(p[i] in have)) printf "%s ", p[i] }')
[ -z "$missing" ] && exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "verbena needs packages; as root on Debian 12, type:" >&2
	echo "  apt-get update && apt-get install -y --no-install-recommends" \
		$missing >&2
	exit 1
fi
echo "installing: $missing"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp) && trap 'rm -f "$log"' EXIT
{ apt-get update -q && apt-get install -q -y --no-install-recommends \
	$missing; } >"$log" 2>&1 && exit 0
cat "$log" >&2
echo "ci/deps.sh: apt-get could not install: $missing" >&2
exit 1
