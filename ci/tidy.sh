#!/bin/sh
# SPDX-License-Identifier: MIT
# The house style that a machine can check: layout, lengths, rooms, banned
# calls. Prints each breach with its place; exits 1 when there is one.
set -u
breaches=$(mktemp) && trap 'rm -f "$breaches"' EXIT
sources=$(git ls-files -co --exclude-standard '*.c' '*.h')

clang-format --dry-run $sources 2>&1 | grep 'warning:' >>"$breaches"

awk '
FNR == 1 && !/SPDX/ { print FILENAME ":1: no SPDX line" }
FNR == 801 { print FILENAME ": over 800 lines" }
/^[a-z].*[^;,]$/ && /\(/ && !/^(static const|struct|enum|union|#|typedef)/ { head = FNR; name = $0 }
/^\{$/ { start = FNR }
/^\}$/ && start { if (FNR - start - 1 > 70) print FILENAME ":" start ": function of " FNR - start - 1 " lines"; start = 0 }
' $sources >>"$breaches"

# lib ships alone; sim knows nothing of fault; outsiders use the doors.
grep -nE '#include "(sim|fault)/' lib/*.[ch] >>"$breaches"
grep -nE '#include "(lib|fault)/' sim/*.[ch] >>"$breaches"
grep -nE '#include "(sim/[^s]|sim/s[^i]|lib/[^v]|lib/verbs)' fault/*.[ch] \
	>>"$breaches"

# Only sim/clock.c and lib/runtime.c read a clock; nobody draws at random.
grep -nE '\b(clock_gettime|gettimeofday)\(' sim/*.c lib/*.c fault/*.c |
	grep -vE '^(sim/clock|lib/runtime)\.c' >>"$breaches"
grep -nE '\b(rand|random|srand|gets|strcpy|sprintf|usleep|sleep)\(' \
	sim/*.c lib/*.c fault/*.c >>"$breaches"
grep -nE '\b(TODO|FIXME|XXX)\b' $sources >>"$breaches"

cat "$breaches"
count=$(wc -l <"$breaches")
echo "tidy: $count breaches in $(echo $sources | wc -w) files"
[ "$count" = 0 ]
