"""Checks the targets for the cost of perftop. Prints a line for each target with the measured value
and whether the target is reached. Takes fifteen minutes, in which nothing else should run.

Run by hand: PYTHONPATH=tests/support python tests/bench/bench_targets.py
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import bench_latency
import bench_peers
import bench_refresh
import bench_sampling
import terminal
from bench_peers import ORDINARY, PERFTOP, idle_processes

from perfprobe.cpu import topology
from perfprobe.machine import source

Line = tuple[str, float, float, str]
"""Name of the target, measured value, limit, unit."""
RUNS = 7


def costs() -> Iterator[Line]:
    """Measures the total cost on this machine and, if htop is installed, that of htop. htop reads
    every process, so both are measured with the present processes and with those of a typical
    server."""
    kinds = bench_peers.command_lines()
    yield "the default", sum(bench_peers.cost(kinds["default"]["perftop"])), 0.6, "s/min"
    for more in (0, ORDINARY):
        with idle_processes(more) as processes:
            for kind in ("1 Hz", "10 Hz"):
                argvs = kinds[kind]
                if "htop" in argvs:
                    own, htop = (sum(bench_peers.cost(argvs[it])) for it in ("perftop", "htop"))
                    yield f"{kind}, and htop, {processes} processes", own, htop, "s/min"
    yield "stat, 1 s of 100 ms", sum(bench_peers.cost(kinds["no screen"]["perftop"])), 0.3, "s/min"


def large_machines() -> Iterator[Line]:
    """Measures the app on larger, simulated machines."""
    ten = ["--source", "sim:smt-mix,cpus=256", "-i", "100ms", "--sample", "100ms"]
    yield "the app alone, 256 CPUs, 10 Hz", bench_peers.cost([*PERFTOP, *ten])[0], 3.0, "s/min"
    yield "96 CPUs at 1 Hz, idle", cost_of_96_cpus(), 0.6, "s/min"
    with busy_cpus():
        yield "96 CPUs at 1 Hz, at work", cost_of_96_cpus(), 0.6, "s/min"


def cost_of_96_cpus() -> float:
    """Returns the cost of 96 CPUs at 1 Hz in s/min. The app on a simulated machine and the probe on
    this machine are measured; the cost of lanes for the remaining CPUs is computed from the cost of
    one sample."""
    options = ["-i", "1s", "--sample", "1s"]
    app = bench_peers.cost([*PERFTOP, "--source", "sim:smt-mix,cpus=96", *options])[0]
    probe = bench_peers.cost([*PERFTOP, "--source", "os", *options])[1]
    rows = [row for row in topology.read_cpus(Path("/")) if row.cpu in os.sched_getaffinity(0)]
    us, *_ = bench_sampling.run(10, source.os_parts(Path("/"), rows), rows)
    threads = (96 - len(rows)) * us * 60 / 1e6
    print(f"  app {app:.2f} measured; probe {probe:.2f} measured with {len(rows)} CPUs;")
    print(f"  {96 - len(rows)} threads {threads:.2f} computed from {us:.0f} us a sample")
    return app + probe + threads


@contextmanager
def busy_cpus() -> Iterator[None]:
    """Keeps every CPU that this process may use busy during the block."""
    argv = [sys.executable, "-c", "while True: pass"]
    cpus = sorted(os.sched_getaffinity(0))
    started = [subprocess.Popen(["taskset", "-c", str(cpu), *argv]) for cpu in cpus]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def refresh_costs() -> Iterator[Line]:
    for cpus, limit_ms in ((2, 2.0), (1024, 4.0)):
        us, _ = bench_refresh.refresh_us(cpus, "overview", (160, 50))
        yield f"a refresh, {cpus} CPUs", us / 1000, limit_ms, "ms"


def latency() -> Iterator[Line]:
    items = sorted(bench_latency.latencies(1024))
    yield "frame to terminal, 1024 CPUs, p95", items[int(0.95 * len(items))], 25.0, "ms"


def start_delays() -> Iterator[Line]:
    firsts = [bench_latency.start_delays_ms("auto", b"busy") for _ in range(RUNS)]
    paints, numbers = zip(*firsts, strict=True)
    yield "first paint", statistics.median(paints), 150.0, "ms"
    yield "first numbers", statistics.median(numbers), 300.0, "ms"
    yield (
        "the probe's first word",
        statistics.median(first_bytes_ms() for _ in range(RUNS)),
        80.0,
        "ms",
    )


def first_bytes_ms() -> float:
    """Returns the ms from the start of the command to the first bytes of the stream."""
    start = time.monotonic()
    argv = [sys.executable, "-m", "perfprobe", "stream", "--source", "auto"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as probe:
        assert probe.stdout is not None
        assert probe.stdin is not None
        probe.stdout.read(1)
        now = time.monotonic()
        probe.stdin.close()
        probe.stdout.read()
    return 1000 * (now - start)


def memory() -> Iterator[Line]:
    for name, argv in (("live", PERFTOP), ("stat", [*PERFTOP, "stat"])):
        process, fd = terminal.start([*argv, "--source", "os"], 160, 50)
        terminal.drain(fd, 10.0)
        total = sum(map(terminal.rss_mb, terminal.process_tree(process.pid)))
        terminal.stop(process, fd)
        yield f"resident, {name}, both processes", total, 70.0, "MB"


if __name__ == "__main__":
    os.environ |= {"COLORTERM": "truecolor", "TERM": "xterm-256color"}
    missed = 0
    for part in (costs, large_machines, refresh_costs, latency, start_delays, memory):
        for name, value, limit_ms, unit in part():
            missed += value > limit_ms
            verdict = "reached" if value <= limit_ms else "NOT reached"
            print(f"{name:40}{value:9.2f} of {limit_ms:7.2f} {unit:6}{verdict}", flush=True)
    sys.exit(1 if missed else 0)
