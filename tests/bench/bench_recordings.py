"""Measures what recordings and recorders cost: samples per second of each verb that reads a
recording, rows per second of an export, memory, time to the first picture of a replay, and the CPU
time of each recorder on this machine. Takes six minutes, in which nothing else should run.

Run by hand: PYTHONPATH=tests/support python tests/bench/bench_recordings.py [RUNS]  (3)
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import bench_peers
import terminal
from bench_peers import PERFTOP
from recording_files import write_recording
from sim_streams import messages_lasting

SPAN_S = 600.0
SAMPLE = ("--source", "os", "--sample", "100ms")
READER = """
import socket, sys, time
connection = socket.socket(socket.AF_UNIX)
while connection.connect_ex(sys.argv[1]):
    time.sleep(0.1)
while connection.recv(1 << 16):
    pass
"""
"""A program that reads the stream of `serve`, which ends its probe if nobody reads."""
Goal = tuple[str, float, float, str]
"""Name, measured value, goal and unit. A unit that ends in /s has a lower bound, others an upper
bound."""


def usage(argv: list[str]) -> tuple[float, float]:
    """Returns the CPU time in s and the peak memory in MB of a verb, without those of its
    children."""
    process = subprocess.Popen([*PERFTOP, *argv], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, argv
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def best_usage(argv: list[str], runs: int) -> tuple[float, float]:
    times, sizes = zip(*(usage(argv) for _ in range(runs)), strict=True)
    return min(times), max(sizes)


def write(spec: str, path: str) -> int:
    """Writes a recording, and returns its number of messages. It runs in a process of its own,
    because Linux counts the memory of a parent in the peak of its later children."""
    hello, messages = messages_lasting(spec, SPAN_S)
    write_recording(Path(path), hello, messages)
    return len(messages)


def reading(directory: Path, runs: int) -> Iterator[Goal]:
    for cpus, goal in ((8, 10_000.0), (96, 5_000.0)):
        for scenario, least in (("steady", goal), ("halts", goal / 2)):
            path = str(directory / f"{scenario}{cpus}.perftop")
            with ProcessPoolExecutor(1, get_context("spawn")) as writer:
                count = writer.submit(write, f"sim:{scenario},cpus={cpus}", path).result()
            for verb, files in (("summary", 1), ("why", 1), ("diff", 2)):
                cpu_s, peak_mb = best_usage([verb, *[path] * files], runs)
                name = f"{verb}, {cpus} CPUs, {scenario}"
                yield name, files * count / cpu_s, least, "samples/s"
                yield f"{name}, peak", peak_mb, 80.0, "MB"
            if scenario == "steady":
                cpu_s, _ = best_usage(["export", path, "--every", "100ms"], runs)
                rows = cpus * count / cpu_s
                yield f"CSV, {cpus} CPUs", rows, 150_000.0 if cpus == 96 else 0.0, "rows/s"
                paints = (first_picture_s(path) for _ in range(runs))
                yield f"first picture of a replay, {cpus} CPUs", min(paints), 0.5, "s"


def first_picture_s(path: str) -> float:
    """Returns the s from the start of a replay to its first numbers on the screen."""
    start_s, text = time.monotonic(), b""
    process, fd = terminal.start([*PERFTOP, "replay", path], 160, 50)
    while b"busy" not in text and time.monotonic() - start_s < terminal.LIMIT_S:
        if select.select([fd], [], [], 1.0)[0]:
            text += os.read(fd, 1 << 16)
    elapsed_s = time.monotonic() - start_s
    terminal.stop(process, fd)
    return elapsed_s


def recorders(directory: Path) -> Iterator[Goal]:
    """Measures the CPU time of recorders and servers in s a minute, with that of their probes."""
    output = ("-o", str(directory / "new.perftop"), "--force")
    ring = ("-o", str(directory / "ring"), "--ring", "5m")
    listen = ("--listen", f"unix:{directory / 'exporter'}")
    probe = [sys.executable, "-m", "perfprobe", "stream", "--source", "os", "--sample", "0.1"]
    argv_by_name = {
        "record": ([*PERFTOP, "record", *SAMPLE, *output], 0.30),
        "ring": ([*PERFTOP, "record", *SAMPLE, *ring], 0.32),
        "ring with --on": ([*PERFTOP, "record", *SAMPLE, *ring, "--on", "throttle"], 0.45),
        "exporter": ([*PERFTOP, "exporter", "--source", "os", *listen], 0.18),
    }  # fmt: skip
    for name, (argv, goal) in argv_by_name.items():
        yield name, sum(bench_peers.cost(argv)), goal, "s/min"
    alone = sum(bench_peers.cost(probe))
    path = str(directory / "serve")
    with subprocess.Popen([sys.executable, "-c", READER, path]) as reader:
        cost = sum(bench_peers.cost([*PERFTOP, "serve", *SAMPLE, "--socket", path]))
        reader.terminate()
    yield "serve, and the probe alone", cost, alone, "s/min"
    if shutil.which("perf"):
        yield "perf stat -I, and record", sum(bench_peers.cost(bench_peers.PERF)), 0.30, "s/min"


def main() -> int:
    runs, missed = int(sys.argv[1]) if sys.argv[1:] else 3, 0
    with TemporaryDirectory() as directory:
        for part in (reading(Path(directory), runs), recorders(Path(directory))):
            for row, value, goal, unit in part:
                is_reached = value >= goal if unit.endswith("s/s") else value <= goal
                missed += not is_reached
                verdict = "reached" if is_reached else "NOT reached"
                print(f"{row:44}{value:12.2f} of {goal:12.2f} {unit:10}{verdict}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
