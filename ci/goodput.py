#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The streams of lib beside perftest, on the same model, in one run.

goodput.py [ROUNDS]: A and B in turns, each end on a processor of its own;
medians, of the ratios those of single turns. By vb_send and vb_recv, from a
buffer and to one: three copies where perftest has one. In place: neither end
writes or reads the bytes, as perftest does not. The provider maps lib's rings in
the peer, and leaves perftest's buffer to the kernel; with MAP=1 in the
environment it maps that, too (verbena run --map-memory). Latency: a round trip
of 8 bytes to what ib_send_lat prints for the message that is really on the wire.
"""
import os
import socket
import statistics
import subprocess
import sys
import time

BUILD = os.environ.get("B", "build/release")
GIB = str(1 << 30)
MAP = ["--map-memory"] if os.environ.get("MAP") == "1" else []


def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def pair(model, first, second):
    """Both ends; what the second one printed."""
    world = f"goodput{os.getpid()}"
    ends = []
    for side, program in enumerate((first, second)):
        command = [f"{BUILD}/verbena", "run", "-w", world, "-m", model, "-H",
                   "ab"[side]] + MAP + ["--", "taskset", "-c", str(side)]
        command += program
        ends.append(subprocess.Popen(command, stdout=subprocess.PIPE,
                                     stderr=subprocess.DEVNULL, text=True))
        time.sleep(0.4)
    text = ends[1].communicate(timeout=120)[0]
    ends[0].communicate(timeout=120)
    return text


def stream(model, mode, slots, copies):
    p = port()
    program = [f"{BUILD}/ci/goodput"]
    rest = [p, str(mode), GIB, str(slots), "20000", copies]
    words = pair(model, program + ["-"] + rest,
                 program + ["127.0.0.1"] + rest).split()
    return float(words[1]), float(words[2])


def perftest(model, program, column, options):
    command = [program, "-F", "-p", port()] + options
    text = pair(model, command, command + ["127.0.0.1"])
    line = [x for x in text.splitlines() if x.split()[:1] == [options[1]]][0]
    return float(line.split()[column])


def bandwidth(model, size, options):
    # Its MB are 2^20.
    return perftest(model, "ib_send_bw", 3,
                    ["-s", str(size), "-n", "8000"] + options) * 1.048576


def latency(model, size, options):
    return perftest(model, "ib_send_lat", 4,
                    ["-s", str(size), "-n", "20000"] + options)


UC = ["-c", "UC", "-x", "1", "--force-link=Ethernet", "-t", "16", "-r", "16"]
# perftest asks for requests where the device counts frames, and posts before
# RTS.
TB = "apple-tb,grant=1023,post_recv_from=rtr"
ROWS = [
    # name, model, mode, slots, copies, SENDs on the wire, perftest's options
    ("apple_uc", TB, 0, 0, "1", 131072, 131072, UC),
    ("apple_uc, in place", TB, 0, 0, "0", 131072, 131072, UC),
    ("hardened", TB, 1, 0, "1", 131072, 131072, UC),
    ("hardened, in place", TB, 1, 0, "0", 131072, 131072, UC),
    ("rc", "mlx5", 0, 0, "1", 262144, 8, []),
    ("rc, in place", "mlx5", 0, 0, "0", 262144, 8, []),
    ("hardened", "mlx5", 1, 0, "1", 262144, 8, []),
    ("hardened, in place", "mlx5", 1, 0, "0", 262144, 8, []),
]


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    os.environ["VERBENA_QUIET"] = "1"
    print(f"{'transport':<20} {'MB/s':>6} {'send_bw':>8} {'ratio':>6}"
          f" {'rtt us':>7} {'send_lat':>8} {'ratio':>6}")
    for name, model, mode, slots, copies, big, small, options in ROWS:
        turns = []
        for _ in range(rounds):
            mbytes, rtt = stream(model, mode, slots, copies)
            bw = bandwidth(model, big, options)
            lat = latency(model, small, options)
            turns.append((mbytes, bw, mbytes / bw, rtt, lat, rtt / lat))
        a, b, ab, c, d, cd = (statistics.median(x) for x in zip(*turns))
        print(f"{name:<20} {a:>6.0f} {b:>8.0f} {ab:>6.2f} {c:>7.2f}"
              f" {d:>8.2f} {cd:>6.2f}")


main()
