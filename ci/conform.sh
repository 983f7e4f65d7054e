#!/bin/sh
# SPDX-License-Identifier: MIT
# Unmodified programs on the default device: one row a suite, with its own
# pass, skip and fail counts. A case passes when each of its programs exits 0
# and has printed what only a finished run prints.
set -u
verbena=$PWD/build/debug/verbena
work=$(mktemp -d)
world=conform$$
port=$((20000 + $$ % 10000)) # below those that the system gives out
server=
client=
clean() {
	kill $server $client 2>/dev/null
	wait
	rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' HUP INT TERM
export VERBENA_QUIET=1
# UNDER: a program that runs another, for all of it under harder conditions.
as="timeout -k 5 60 ${UNDER-} $verbena run -w $world"
on="$as --"
: >"$work/rows"

verdict() { # suite case pass|fail|skip [reason]
	[ -t 2 ] && printf '\r\033[K%s: %s' "$1" "$2" >&2
	echo "$1 $3" >>"$work/rows"
	case $3 in
	skip) echo "$1: $4" >>"$work/skips" ;;
	fail) {
		echo "FAIL $1: $2"
		tail -n 8 "$work/server" "$work/client"
	} >>"$work/failures" ;;
	esac
}

# In the background, because a signal is only seen while waiting.
client() {
	$on "$@" >"$work/client" 2>&1 &
	client=$!
	wait $client
	set -- $?
	client=
	return $1
}

# Two ends of one program, the second told where the first is. It starts anew
# while the first is not listening yet.
pair() { # suite result case program arguments…
	suite=$1 result=$2 name=$3
	shift 3
	port=$((port + 1))
	$on "$@" -p $port >"$work/server" 2>&1 &
	server=$!
	tries=50
	until client "$@" -p $port 127.0.0.1; do
		tries=$((tries - 1))
		[ $tries -gt 0 ] && grep -qE \
			"Couldn.t connect to 127|Connection refused" \
			"$work/client" || break
		sleep 0.1
	done && ended=pass || ended=fail
	grep -qE "$result" "$work/client" || ended=fail
	# The pingpongs say so on either end, and exit 0.
	grep -q 'invalid data' "$work/server" "$work/client" && ended=fail
	[ $ended = fail ] && kill $server 2>/dev/null
	wait $server || ended=fail
	server=
	verdict "$suite" "$name" $ended
}

alone() { # suite result program arguments…
	suite=$1 result=$2
	shift 2
	: >"$work/server"
	ended=fail
	client "$@" && grep -qE "$result" "$work/client" && ended=pass
	verdict "$suite" "$*" $ended
}

utils() {
	alone ibverbs-utils 'mlx5_0.*506b4b0300000100' ibv_devices
	alone ibverbs-utils 'PORT_ACTIVE' ibv_devinfo -v
	# It never ends by itself.
	alone ibverbs-utils 'async event FD' sh -c \
		'timeout 1 stdbuf -oL ibv_asyncwatch; [ $? = 124 ]'
	for kind in rc uc ud srq; do
		for option in "" -c -e "-g 1" "-c -e -g 1"; do
			pair ibverbs-utils 'iters in' \
				"ibv_${kind}_pingpong $option" \
				ibv_${kind}_pingpong $option
		done
	done
	for option in -N "-N -c -e -g 1"; do
		pair ibverbs-utils 'iters in' "ibv_rc_pingpong $option" \
			ibv_rc_pingpong $option
	done
	# Here -c is a number of clients, and nothing checks the bytes.
	for option in "" -e "-g 1"; do
		pair ibverbs-utils '^success' "ibv_xsrq_pingpong $option" \
			ibv_xsrq_pingpong $option
	done
}

measure() { # program types options, one a line
	for type in $2; do
		IFS='
'
		for option in $3; do
			unset IFS
			pair perftest '^ *[0-9]+ +[0-9]+ +[0-9.]+ +[0-9.]+' \
				"$1 -c $type $option" \
				"$1" -F -n 200 -c "$type" $option
		done
		unset IFS
	done
}

perftest() {
	plain='-m 1024
		--use_old_post_send'
	bw="$plain
		-b
		-q 8"
	# Events are for sends, reads and atomics; sizes not for atomics.
	measure ib_send_bw "RC UC UD XRC" "$bw
		-a -n 20
		-e"
	measure ib_write_bw "RC UC XRC" "$bw
		-a -n 20"
	measure ib_read_bw "RC XRC" "$bw
		-a -n 20
		-e"
	measure ib_atomic_bw "RC XRC" "$bw
		-e"
	measure ib_send_lat "RC UC UD XRC" "$plain
		-a -n 20"
	# It takes any event for its reply: one for what was there when the
	# queue was armed makes it send too soon, into a queue of one request.
	on="$as -m mlx5,arm=later --"
	measure ib_send_lat "RC UC UD XRC" -e
	on="$as --"
	measure ib_write_lat "RC UC XRC" "$plain
		-a -n 20"
	measure ib_read_lat "RC XRC" "$plain
		-a -n 20
		-e"
	measure ib_atomic_lat "RC XRC" "$plain
		-e"
	for program in ib_send_bw ib_send_lat; do
		measure $program RC "--use-srq
			--use-srq -e -a -n 20"
	done
}

qperf() {
	port=$((port + 1))
	$on qperf -lp $port >"$work/server" 2>&1 &
	server=$!
	# The client waits 5 s for it to listen.
	for test in rc_bw rc_bi_bw rc_lat rc_rdma_read_bw rc_rdma_read_lat \
		rc_rdma_write_bw rc_rdma_write_lat rc_rdma_write_poll_lat \
		rc_compare_swap_mr rc_fetch_add_mr ver_rc_compare_swap \
		ver_rc_fetch_add uc_bw uc_bi_bw uc_lat uc_rdma_write_bw \
		uc_rdma_write_lat uc_rdma_write_poll_lat ud_bw ud_bi_bw ud_lat
	do
		client qperf -lp $port 127.0.0.1 -t 1 $test &&
			grep -qE '(bw|latency|msg_rate) += +[1-9]' \
				"$work/client" && ended=pass || ended=fail
		verdict qperf $test $ended
	done
	kill $server
	wait $server
	server=
}

pyverbs() { # suite model device modules…
	suite=$1 model=$2 device=$3
	shift 3
	if [ ! -d /usr/share/doc/rdma-core/tests ]; then
		verdict $suite all skip \
			"python3-pyverbs is installed without its documents"
		return
	fi
	rm -rf "$work/tests"
	cp -r /usr/share/doc/rdma-core/tests "$work/tests"
	find "$work/tests" -name '*.gz' -exec gunzip {} +
	: >"$work/server"
	# The distribution's own Python: only that one finds the bindings.
	on="$as -m $model --"
	client env -C "$work" /usr/bin/python3 tests/run_tests.py \
		--dev $device -v "$@"
	on="$as --"
	if ! grep -qE '^(OK|FAILED)' "$work/client"; then
		verdict $suite "did not finish" fail
		return
	fi
	awk -v suite=$suite '
	/^Ran / { ran = $2 }
	/^(OK|FAILED)/ {
		failed = /^FAILED/
		gsub(/[^a-z0-9=]+/, " ")
		for (i = 1; i <= NF; i++) { split($i, v, "="); n[v[1]] = v[2] }
	}
	END {
		bad = n["failures"] + n["errors"]
		# Other ways to fail, and nothing that ran at all.
		if (!bad && (failed || n["skipped"] + 0 == ran)) {
			bad = 1
			ran++
		}
		for (i = 1; i <= ran; i++)
			print suite, i <= bad ? "fail" : \
				i <= bad + n["skipped"] ? "skip" : "pass"
	}' "$work/client" >>"$work/rows"
	sed -n "s/.* skipped ['\"]\(.*\)['\"]\$/$suite: \1/p" "$work/client" \
		>>"$work/skips"
	grep -E '^(FAIL|ERROR):' -A 12 "$work/client" >>"$work/failures"
}

over_ucx() {
	export UCX_NET_DEVICES=mlx5_0:1 OMPI_ALLOW_RUN_AS_ROOT=1 \
		OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
	# Without sysfs ucx_perftest ends in an assertion, on any device.
	if ! unshare -m --propagation unchanged test -d /sys/class; then
		for suite in UCX OpenMPI; do
			verdict $suite all skip \
				"no mount namespace for its device node, or no sysfs"
		done
		return
	fi
	mpicc -O1 -Wall -Werror -o "$work/mpi" ci/mpi_pingpong.c || exit 1
	# UCX connects rc_verbs through a datagram transport: ":aux".
	for tls in rc_verbs,ud_verbs:aux,self ud_verbs,self; do
		export UCX_TLS=$tls
		for test in tag_lat tag_bw stream_bw ucp_put_bw ucp_get \
			ucp_fadd
		do
			size=4096
			[ $test = ucp_fadd ] && size=8
			pair UCX '^Final: +2000 ' "$tls $test" \
				ucx_perftest -t $test -n 2000 -s $size
		done
		alone OpenMPI 'rank 1: 0 wrong' mpirun -np 2 --oversubscribe \
			--mca pml ucx --mca btl self \
			--mca pml_ucx_tls any --mca pml_ucx_devices any \
			"$work/mpi"
	done
	# A datagram's packet type matters on Ethernet only.
	on="$as -m mlx5,link=roce --"
	for tls in rc_verbs,ud_verbs:aux,self ud_verbs,self; do
		export UCX_TLS=$tls
		pair UCX '^Final: +2000 ' "roce $tls tag_bw" \
			ucx_perftest -t tag_bw -n 2000 -s 4096
	done
	on="$as --"
	# Without it, at UCX's lower level, which needs no such transport.
	export UCX_TLS=rc_verbs,self
	for test in am_lat put_lat add_lat; do
		pair UCX '^Final: +2000 ' "rc_verbs,self $test" ucx_perftest \
			-d mlx5_0:1 -x rc_verbs -t $test -n 2000 -s 8
	done
}

utils
perftest
qperf
for link in ib roce; do
	pyverbs pyverbs:mlx5-$link mlx5,link=$link mlx5_0
done
pyverbs pyverbs:rxe rxe rxe0
# The generic core once more, with counts of its own; raw packets are Ethernet's.
pyverbs pyverbs:core mlx5,link=roce mlx5_0 tests.test_device tests.test_cq \
	tests.test_qp tests.test_mr tests.test_cqex tests.test_qpex \
	tests.test_addr tests.test_pd
over_ucx
[ -t 2 ] && printf '\r\033[K' >&2
[ -s "$work/failures" ] && cat "$work/failures"
awk '
!($1 in seen) { seen[$1]; order[++suites] = $1 }
{ count[$1, $2]++; bad += $2 == "fail" }
END {
	printf "%-18s %5s %5s %5s\n", "suite", "pass", "skip", "fail"
	for (i = 1; i <= suites; i++)
		printf "%-18s %5d %5d %5d\n", order[i], count[order[i], "pass"],
			count[order[i], "skip"], count[order[i], "fail"]
	exit bad > 0
}' "$work/rows"
status=$?
if [ -s "$work/skips" ]; then
	echo "skipped, and why:"
	sort "$work/skips" | uniq -c | sort -rn | cut -c 1-100
fi
exit $status
