#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""make bench: perftest over the provider beside libfabric's shm and UCX's
posix and cma, in turns, and what the provider costs as it fills up.

Prints a table of medians and of their ratios; writes build/bench.json and, with
gnuplot, build/bench.png. Compare within a run only: the two processors of a
virtual machine may be near each other in one minute and far in the next, which
the probe beside each cell shows (a store seen by the other, one way).
"""
import argparse
import json
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUT = os.path.join(TOP, "build")
BUILD = os.path.join(OUT, "release")
VERBENA = os.path.join(BUILD, "verbena")
KIB, MIB = 1024, 1024 * 1024
# As one measures rates with perftest: requests are posted 16 at a time.
LISTS = ("-l", "16")
SIZES = {4 * KIB: "4 KiB", 64 * KIB: "64 KiB", MIB: "1 MiB"}


class Failed(Exception):
    pass


def finish(process):
    """End what we started, and whatever it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def run(command, env=None, seconds=120):
    """Output of a command that ends by itself."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=dict(os.environ, **(env or {})), start_new_session=True)
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        finish(process)
        raise Failed(f"{command}: over {seconds} s")
    if process.returncode:
        raise Failed(f"{command}: {output[-500:]}")
    return output


class Pair:
    """Two ends of one program, each on its processor."""

    port = 20000 + os.getpid() % 20000

    def __init__(self, server, client, env=None):
        self.server, self.client, self.env = server, client, env

    def measure(self, cores):
        Pair.port += 1
        port = str(Pair.port)
        env = dict(os.environ, **(self.env or {}))
        server = subprocess.Popen(
            ["taskset", "-c", str(cores[0])] + self.server(port),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env,
            start_new_session=True)
        try:
            for attempt in range(50):
                time.sleep(0.1)
                try:
                    return run(["taskset", "-c", str(cores[1])]
                               + self.client(port), self.env)
                except Failed as failure:
                    if not re.search("onnect", str(failure)) or attempt == 49:
                        raise
        finally:
            finish(server)


def verbena(*program, options=()):
    world = f"bench{os.getpid()}"

    def end(port, *far):
        return [VERBENA, "run", "-w", world, *options, "--", *program, "-F",
                "-p", port, *far]
    return Pair(lambda port: end(port), lambda port: end(port, "127.0.0.1"),
                {"VERBENA_QUIET": "1"})


def ucx(test, size, count):
    # From the heap: memory that a program allocated itself.
    env = {"UCX_TLS": "self,posix,cma", "UCX_ALLOC_PRIO": "heap",
           "UCX_WARN_UNUSED_ENV_VARS": "n"}
    return Pair(lambda port: ["ucx_perftest", "-p", port, "-f"],
                lambda port: ["ucx_perftest", "-p", port, "127.0.0.1", "-f",
                              "-t", test, "-s", str(size), "-n", str(count),
                              "-w", "1000"], env)


def libfabric(size, count):
    def end(port, *far):
        return ["fi_pingpong", "-p", "shm", "-e", "rdm", "-S", str(size),
                "-I", str(count), *far, "-B" if not far else "-P", port]
    return Pair(lambda port: end(port), lambda port: end(port, "127.0.0.1"))


def perftest_column(n):
    def read(output):
        rows = [line.split() for line in output.splitlines()
                if re.match(r" *\d+ +\d+ +[\d.]+ +[\d.]+", line)]
        return float(rows[-1][n])
    return read


def ucx_column(n):
    """Final: iterations, latency p50, average, overall, MB/s, …, rate."""
    def read(output):
        return float(output.strip().splitlines()[-1].split()[n])
    return read


def libfabric_column(n):
    def read(output):
        line = output.strip().splitlines()[-1].split()
        value = line[n]
        return float(value.rstrip("kmg"))
    return read


def cells(scale):
    """(name, unit, is more better, {program: (pair, reader, factor)})."""
    def many(n):
        return max(int(n * scale), 20)

    yield ("SEND 8 B latency", "us", False, {
        "verbena": (verbena("ib_send_lat", "-s", "8", "-n",
                            str(many(40000))), perftest_column(5), 1),
        "libfabric": (libfabric(8, many(40000)), libfabric_column(6), 1),
        "ucx": (ucx("tag_lat", 8, many(100000)), ucx_column(3), 1)})
    yield ("SEND 8 B rate", "M/s", True, {
        "verbena": (verbena("ib_send_bw", "-s", "8", "-n",
                            str(many(12500) * 16), *LISTS),
                    perftest_column(4), 1),
        "libfabric": (libfabric(8, many(40000)), libfabric_column(7), 1),
        "ucx": (ucx("tag_bw", 8, many(300000)), ucx_column(7), 1e-6)})
    for size, label in SIZES.items():
        count = many(2000 * MIB // size if size > 4 * KIB else 100000)
        for verb, program, test in (("SEND", "ib_send_bw", "tag_bw"),
                                    ("WRITE", "ib_write_bw", "ucp_put_bw"),
                                    ("READ", "ib_read_bw", "ucp_get")):
            row = {"verbena": (verbena(program, "-s", str(size), "-n",
                                       str(max(count // 16, 8) * 16), *LISTS),
                               perftest_column(3), 1),
                   # Its gets are emulated here, a millisecond each.
                   "ucx": (ucx(test, size, count if verb != "READ" else
                               min(count, many(4000))), ucx_column(5), 1)}
            if verb == "SEND":
                row["libfabric"] = (libfabric(size, max(count // 2, 20)),
                                    libfabric_column(5), 1 / 1.048576)
            yield (f"{verb} {label}", "MiB/s", True, row)


def tell(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def side_by_side(rounds, cores, scale, probe):
    results = []
    for name, unit, more, programs in cells(scale):
        samples = {program: [] for program in programs}
        near = []
        for turn in range(rounds):
            tell(f"{name}: {turn + 1} of {rounds}")
            if probe:
                near.append(float(run([probe])))
            for program, (pair, read, factor) in programs.items():
                samples[program].append(read(pair.measure(cores)) * factor)
        medians = {p: statistics.median(v) for p, v in samples.items()}
        results.append({"cell": name, "unit": unit, "more_is_better": more,
                        "cores": len(set(cores)), "median": medians,
                        "samples": samples, "probe_us": near})
    return results


def filling_up(rounds):
    """ns for one 8 B write, against that with 2 queue pairs and 1 region."""
    shapes = [("2 queue pairs, 1 region", 2, 1), ("16 queue pairs", 16, 1),
              ("256 queue pairs", 256, 1), ("1,000 regions", 2, 1000),
              ("100,000 regions", 2, 100000)]
    samples = {name: [] for name, _, _ in shapes}
    world = f"bench{os.getpid()}"
    for turn in range(rounds):
        for name, qps, regions in shapes:
            tell(f"{name}: {turn + 1} of {rounds}")
            samples[name].append(float(run(
                ["taskset", "-c", "1", VERBENA, "run", "-w", world, "--",
                 os.path.join(BUILD, "ci", "bench_scale"), str(qps), str(regions),
                 "300000", "8"], {"VERBENA_QUIET": "1"})))
    return {name: statistics.median(v) for name, v in samples.items()}


def many_processes(rounds):
    """M/s of all pairs together, for 2, 4 and 8 processes at once."""
    result = {}
    for pairs in (1, 2, 4):
        rates = []
        for turn in range(rounds):
            tell(f"{2 * pairs} processes: {turn + 1} of {rounds}")
            pair = verbena("ib_send_bw", "-s", "8", "-n", "400000")
            env = dict(os.environ, **pair.env)
            ports = [str(Pair.port + i + 1) for i in range(pairs)]
            Pair.port += pairs
            servers = [subprocess.Popen(pair.server(port), env=env,
                                        stdout=subprocess.DEVNULL,
                                        start_new_session=True)
                       for port in ports]
            time.sleep(1)
            clients = [subprocess.Popen(pair.client(port), env=env, text=True,
                                        stdout=subprocess.PIPE,
                                        start_new_session=True)
                       for port in ports]
            total = sum(perftest_column(4)(c.communicate(timeout=120)[0])
                        for c in clients)
            for server in servers:
                finish(server)
            rates.append(total)
        result[f"{2 * pairs} processes"] = statistics.median(rates)
    return result


def one_mebibyte(rounds):
    """MiB/s of 1 MiB writes, beside what they could be at best."""
    world = f"bench{os.getpid()}"
    write = ["ib_write_bw", "-s", str(MIB), "-n", "3000"]

    def raw(kind):
        return float(run(["taskset", "-c", "1",
                          os.path.join(BUILD, "ci", "bench_raw"), kind]))

    def pair(*options):
        return perftest_column(3)(
            verbena(*write, options=options).measure((0, 1)))

    def threads():
        return 1e9 / float(run(
            ["taskset", "-c", "1", VERBENA, "run", "-w", world, "--",
             os.path.join(BUILD, "ci", "bench_scale"), "2", "1", "3000",
             str(MIB)], {"VERBENA_QUIET": "1"}))

    takes = {"process_vm_writev": lambda: raw("process"),
             "memcpy": lambda: raw("memcpy"),
             "between processes": pair,
             "inside one process": threads,
             "--map-memory": lambda: pair("--map-memory")}
    samples = {name: [] for name in takes}
    for turn in range(3 * rounds):
        for name, take in takes.items():
            tell(f"1 MiB {name}: {turn + 1} of {3 * rounds}")
            samples[name].append(take())
    return {name: statistics.median(v) for name, v in samples.items()}


def taps(rounds):
    """ns for one 8 B write, with the taps and in a build without them. What
    other tenants take only adds: of many short runs, in turns, the tenth parts
    that were quickest are compared."""
    untapped = os.path.join(OUT, "untapped")
    builds = [BUILD, untapped]
    samples = {build: [] for build in builds}
    for turn in range(12 * rounds):
        tell(f"taps: {turn + 1} of {12 * rounds}")
        for build in builds if turn % 2 else reversed(builds):
            samples[build].append(float(run(
                ["taskset", "-c", "1", os.path.join(build, "verbena"), "run",
                 "-w", f"bench{os.getpid()}", "--",
                 os.path.join(BUILD, "ci", "bench_scale"), "2", "1", "200000",
                 "8"], {"VERBENA_QUIET": "1"})))
    with_taps, without = (sorted(v)[len(v) // 10] for v in samples.values())
    return {"with_ns": with_taps, "without_ns": without, "samples": samples}


def deterministic_runs(rounds):
    """Runs a second of a 14-stride transfer at 4 KiB strides, eager."""
    rates = []
    for turn in range(rounds):
        tell(f"deterministic runs: {turn + 1} of {rounds}")
        told = run([os.path.join(BUILD, "tests", "plain"), "--repeat", "2000",
                    "play/a_transfer_of_14_strides_eager"])
        rates.append(float(re.search(r"([\d.]+) a second", told)[1]))
    return statistics.median(rates)


def ratio(row, other):
    mine, theirs = row["median"]["verbena"], row["median"].get(other)
    # A program too slow for its own report says 0.
    if not theirs or not math.isfinite(theirs):
        return None
    return mine / theirs if row["more_is_better"] else theirs / mine


def show(report):
    print(f"{'':24} {'verbena':>10} {'libfabric':>10} {'ucx':>10} {'':6} "
          f"{'/ libfabric':>11} {'/ ucx':>6} {'probe':>7}")
    for row in report["side_by_side"]:
        values = [row["median"].get(p) for p in ("verbena", "libfabric", "ucx")]
        shown = " ".join(f"{v:10.3f}" if v and v < 100 else
                         f"{v:10.0f}" if v else f"{'':10}" for v in values)
        ratios = [ratio(row, other) for other in ("libfabric", "ucx")]
        beside = " ".join(f"{r:{w}.2f}" if r else " " * w
                          for r, w in zip(ratios, (11, 6)))
        probe = (f"{statistics.median(row['probe_us']):7.3f}"
                 if row["probe_us"] else "")
        core = "" if row["cores"] > 1 else ", one core"
        print(f"{row['cell'] + core:24} {shown} {row['unit']:6} {beside} "
              f"{probe}")
    print("\nRatios over 1: the provider is ahead. libfabric's rate and "
          "bandwidth are those of its ping-pong.")
    first = next(iter(report["filling_up"].values()))
    for name, ns in report["filling_up"].items():
        print(f"{name:24} {ns:10.1f} ns an 8 B write  {ns / first:6.2f}")
    for name, rate in report["many_processes"].items():
        print(f"{name:24} {rate:10.3f} M/s in all")
    mebibyte = report["one_mebibyte"]
    for name, best in (("between processes", "process_vm_writev"),
                       ("inside one process", "memcpy"),
                       ("--map-memory", "memcpy")):
        print(f"{'1 MiB ' + name:24} {mebibyte[name]:10.0f} MiB/s, "
              f"{mebibyte[name] / mebibyte[best]:.2f} of {best}")
    taps_ns = report["taps"]["with_ns"] - report["taps"]["without_ns"]
    rate = next(row["median"]["verbena"] for row in report["side_by_side"]
                if row["cell"] == "SEND 8 B rate")
    print(f"{'taps, no plan loaded':24} {taps_ns:10.2f} ns an operation, "
          f"{taps_ns * rate / 10:.2f} % of a message's time")
    print(f"{'14 strides, run eagerly':24} "
          f"{report['deterministic_runs']:10.0f} runs a second")


def draw(report):
    if not shutil.which("gnuplot"):
        return
    def rows(cores):
        return "\n".join(
            f"\"{r['cell']}\" {ratio(r, 'libfabric') or 'NaN'} "
            f"{ratio(r, 'ucx') or 'NaN'}"
            for r in report["side_by_side"] if r["cores"] == cores)

    script = f"""$two << END
{rows(2)}
END
$one << END
{rows(1)}
END
set terminal pngcairo size 1000,900
set output "{OUT}/bench.png"
set style data histogram
set style fill solid
set xtics rotate by -30
set logscale y
set yrange [0.1:*]
set multiplot layout 2,1 title \\
"The provider against shared-memory transports (over 1: ahead)"
do for [panel in "two one"] {{
set title panel." processor(s)"
plot "$".panel using 2:xtic(1) title "libfabric shm", "" using 3 title \\
"UCX posix, cma", 1 with lines lt -1 notitle
}}
unset multiplot
"""
    subprocess.run(["gnuplot"], input=script, text=True, check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1,
                        help="of the number of operations")
    parser.add_argument("--json", action="store_true",
                        help="print the report as JSON instead")
    options = parser.parse_args()
    probe = os.path.join(BUILD, "ci", "bench_probe")
    report = {
        "side_by_side":
            side_by_side(options.rounds, (0, 1), options.scale, probe)
            + side_by_side(options.rounds, (0, 0), options.scale / 50, None),
        "filling_up": filling_up(options.rounds),
        "many_processes": many_processes(options.rounds),
        "one_mebibyte": one_mebibyte(options.rounds),
        "taps": taps(options.rounds),
        "deterministic_runs": deterministic_runs(options.rounds),
    }
    tell("")
    with open(os.path.join(OUT, "bench.json"), "w") as out:
        json.dump(report, out, indent=1)
    draw(report)
    if options.json:
        json.dump(report, sys.stdout, indent=1)
    else:
        show(report)


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        sys.exit(f"bench: {failure}")
