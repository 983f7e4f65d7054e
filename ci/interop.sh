#!/bin/sh
# SPDX-License-Identifier: MIT
# Does lib's Apple transport speak what llama.cpp's does? Theirs ("the seed") is
# compiled as it is, and talks to ours in both roles (compat, and hardened, which is
# compat to it), then to itself: BYTES each
# way on an emulated MODEL, each byte checked. SEED is the source of theirs,
# which is not in this repository; without it, exit 77.
set -u
seed=${SEED:-../shared/seeds/ggml-rpc-transport-apple.cpp.txt}
bytes=${BYTES:-1073741824}
verbena=$PWD/build/release/verbena
build=build/interop

if [ ! -r "$seed" ]; then
	echo "interop: skipped: no $seed (SEED=FILE says where it is)" >&2
	exit 77
fi
if ! command -v "${CXX:=g++}" >/dev/null; then
	echo "interop: skipped: no C++ compiler '$CXX'" >&2
	exit 77
fi

# Of ggml, the least that the seed compiles with.
mkdir -p $build
cat >$build/transport.h <<'END'
#pragma once
#define RPC_CONN_CAPS_SIZE 24
END
cat >$build/ggml-impl.h <<'END'
#pragma once
#include <cstdio>
#define GGML_LOG_INFO(...) fprintf(stderr, __VA_ARGS__)
#define GGML_LOG_ERROR(...) fprintf(stderr, __VA_ARGS__)
END
cat >$build/transport-apple.h <<'END'
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
class apple_rdma {
public:
	static std::unique_ptr<apple_rdma>
	probe(int fd, const uint8_t *target_gid, uint8_t *caps);
	~apple_rdma();
	bool activate(const uint8_t *caps);
	bool send(const void *data, size_t size);
	bool recv(void *data, size_t size);
	bool flush();
	bool broken() const;
private:
	struct impl;
	explicit apple_rdma(std::unique_ptr<impl> p);
	std::unique_ptr<impl> pimpl;
};
END
# The first line says which package it is from.
sed '1{/^[^ ]* [0-9.]*$/d}' "$seed" >$build/seed.cpp
make -j2 MODE=release all &&
	$CXX -std=c++17 -O2 -I$build -Ddlopen=interop_dlopen \
		-c -o $build/seed.o $build/seed.cpp &&
	$CXX -std=c++17 -O2 -Wall -Wextra -Werror -I. -I$build \
		-c -o $build/interop.o ci/interop.cpp &&
	$CXX -flto=auto -o $build/interop $build/interop.o $build/seed.o \
		build/release/libverbena.a -libverbs -ldl -lpthread || exit 1

work=$(mktemp -d)
server=
client=
# shellcheck disable=SC2086,SC2317 # the trap calls it; none is no argument
clean() {
	kill $server $client 2>/dev/null
	wait
	rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' HUP INT TERM
export VERBENA_QUIET=1
mkfifo "$work/server"

# In the background only. Bounded: to send, the seed waits for its peer for ever,
# also when that is gone.
end() { # host ours|hardened|seed server|client arguments…
	host=$1
	shift
	exec timeout -k 5 "${LIMIT:-300}" "$verbena" run -w interop$$ \
		-m "${MODEL:-apple-tb}" -H "$host" -- $build/interop "$@"
}

pair() { # client server
	rm -f "$work/client" "$work/errors"
	end b "$2" server "$bytes" >"$work/server" 2>>"$work/errors" &
	server=$!
	exec 3<"$work/server"
	failed=
	if read -r port <&3; then
		end a "$1" client "$bytes" "$port" \
			>"$work/client" 2>>"$work/errors" &
		client=$!
		wait "$client" || failed=" client $?"
		client=
		[ -n "$failed" ] && kill "$server" 2>/dev/null
	fi
	wait "$server" || failed="$failed server $?"
	server=
	if [ -z "$failed" ]; then
		read -r there <&3 && read -r back <"$work/client" ||
			failed=" no result"
	fi
	exec 3<&-
	if [ -n "$failed" ]; then
		# 124: it took longer than LIMIT seconds.
		printf '%-8s %-8s FAIL:%s\n' "$1" "$2" "$failed"
		cat "$work/errors" >&2
		return 1
	fi
	echo "$1 $2 $bytes $there $back" | awk '{
		printf "%-8s %-8s %12.0f %10.3f %7.0f %10.3f %7.0f\n", $1, $2,
			$3, $4, $3 / $4 / 1e6, $5, $3 / $5 / 1e6 }'
}

printf '%-8s %-8s %12s %10s %7s %10s %7s\n' client server "bytes each" \
	"there: s" MB/s "back: s" MB/s
status=0
pair ours seed || status=1
pair seed ours || status=1
# Compat to a peer that cannot do better.
pair hardened seed || status=1
pair seed hardened || status=1
pair seed seed || status=1
exit $status
