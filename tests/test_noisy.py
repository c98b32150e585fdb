"""A noisy neighbour on the machine at hand, found and named by the command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import command
import pytest

pytestmark = pytest.mark.machine

BURN = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
open("/proc/self/comm", "w").write(sys.argv[2])
print(flush=True)
while True: pass
"""


@contextmanager
def burning(cpu: int, name: str) -> Iterator[int]:
    """The PID of a process of that name that would have this CPU for itself."""
    argv = [sys.executable, "-c", BURN, str(cpu), name]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process.pid
        finally:
            process.kill()


def run_and_waited_ns(pid: int) -> tuple[int, int]:
    """As the kernel has it since the process was born."""
    ran, waited, _ = Path(f"/proc/{pid}/schedstat").read_text().split()
    return int(ran), int(waited)


@pytest.mark.parametrize("by", ["pid", "name"])
def test_who_takes_the_cpu_from_a_job_is_named(by: str) -> None:
    cpu = max(os.sched_getaffinity(0))
    with burning(cpu, "pt-victim") as victim, burning(cpu, "pt-noisy") as noisy:
        watch = str(victim) if by == "pid" else "pt-victim"
        before = run_and_waited_ns(victim)
        found = command.lines(
            command.run("stat", "--json", "--source", "os", "--watch", watch, "-n", "6").stdout,
            "episode",
        )
        ran, waited = (b - a for a, b in zip(before, run_and_waited_ns(victim), strict=True))
    mine = [e for e in found if e["kind"] == "neighbour" and e["cause"] == "scheduler"]
    assert mine, found
    longest = max(mine, key=lambda e: (e["end"] or 1e12) - e["start"])
    assert longest["cpus"] == [cpu]
    assert longest["depth"] == pytest.approx(waited / (ran + waited), abs=0.15)
    assert "pt-noisy" in longest["evidence"]["who"]
    assert str(noisy) in longest["evidence"]["who"]
    assert str(victim) not in longest["evidence"]["who"]


def test_a_job_alone_on_its_cpu_has_no_neighbour() -> None:
    cpu = max(os.sched_getaffinity(0))
    with burning(cpu, "pt-alone") as alone:
        arguments = ["--source", "os", "--watch", str(alone), "-n", "4"]
        found = command.lines(command.run("stat", "--json", *arguments).stdout, "episode")
    named = [e for e in found if e["kind"] == "neighbour" and e["cause"] == "scheduler"]
    assert [e for e in named if "pt-" in str(e["evidence"])] == []
