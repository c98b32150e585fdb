"""Compares the CPU time that perftop and the other installed monitors take to watch this machine,
in one run: seconds of CPU per minute at 160x50, including all processes that a program starts. Some
monitors read every process, so the cost depends on the number of processes: the argument adds that
many sleeping ones.

Run by hand: python tests/bench/bench_peers.py [PROCESSES]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import terminal

WARM_S, SPAN_S = 4.0, 20.0
PERFTOP = [sys.executable, "-m", "perftop"]
PERF = ["perf", "stat", "-a", "-I", "1000", "-e", "cpu-clock,context-switches"]
ORDINARY = 200
"""Number of idle processes that a server has in addition to those of a bare guest."""

Kinds = dict[str, dict[str, list[str]]]


@contextmanager
def idle_processes(count: int) -> Iterator[int]:
    """Runs `count` idle processes during the block. Yields the number of all processes."""
    started = [subprocess.Popen(["sleep", "1h"]) for _ in range(count)]
    try:
        yield sum(1 for _ in Path("/proc").glob("[0-9]*"))
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


def command_lines() -> Kinds:
    """Returns command lines by description, without programs that are not installed."""
    results: Kinds = {"default": {"perftop": [*PERFTOP, "--source", "os"]}}
    for name in ("htop", "btop", "top", "s-tui", "glances"):
        results["default"][name] = [name]
    for hz in (1, 10):
        period = f"{1000 // hz}ms"
        results[f"{hz} Hz"] = {
            "perftop": [*PERFTOP, "--source", "os", "-i", period, "--sample", period],
            "htop": ["htop", "-d", str(10 // hz)],
            "top": ["top", "-d", str(1 / hz)],
            "s-tui": ["s-tui", "-r", str(1 / hz)],
            "glances": ["glances", "-t", str(1 / hz)],
        }
    file = str(Path(tempfile.gettempdir(), f"bench-{os.getpid()}.perftop"))
    record = [*PERFTOP, "record", "--source", "os", "-o", file, "--force"]
    stat = [*PERFTOP, "stat", "--source", "os", "-i", "1s", "--sample", "100ms", "--json"]
    results["no screen"] = {
        "perftop": stat,
        "record": record,
        "perf stat": PERF,
    }
    sleep = ["--", "sleep", "1000"]
    results["around a command"] = {
        "perftop": [*PERFTOP, "--source", "os", *sleep],
        "stat": [*PERFTOP, "stat", "--source", "os", *sleep],
        "record": [*record, *sleep],
        "perf stat": ["perf", "stat", "-a", *sleep],
    }
    return {
        kind: {name: argv for name, argv in argvs.items() if shutil.which(argv[0])}
        for kind, argvs in results.items()
    }


def cost(argv: list[str], span_s: float = SPAN_S) -> tuple[float, float]:
    """Returns the CPU time in s per minute of the program itself, and of all processes that it
    started."""
    process, fd = terminal.start(argv, 160, 50)
    terminal.drain(fd, WARM_S)
    pid = process.pid
    own_s, total_s = (terminal.cpu_s(pids) for pids in ([pid], terminal.process_tree(pid)))
    terminal.drain(fd, span_s)
    own_s, total_s = (
        terminal.cpu_s([pid]) - own_s,
        terminal.cpu_s(terminal.process_tree(pid)) - total_s,
    )
    terminal.stop(process, fd)
    return own_s / span_s * 60, (total_s - own_s) / span_s * 60


def table() -> None:
    for kind, argvs in command_lines().items():
        costs = {name: cost(argv) for name, argv in argvs.items()}
        perftop_s = sum(costs["perftop"])
        print(f"\nCPU seconds a minute, {kind}")
        for name, (own_s, others_s) in costs.items():
            total_s = own_s + others_s
            ratio = total_s / perftop_s
            print(
                f"  {name:10}{own_s:7.2f} + {others_s:5.2f}{total_s:8.2f}   {ratio:.2f} x perftop"
            )


if __name__ == "__main__":
    with idle_processes(int(sys.argv[1]) if sys.argv[1:] else 0) as processes:
        print(f"beside {processes} processes")
        table()
