"""A command between samples of this machine, while there is more to run than CPUs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from nights import by_day

from perfprobe import wire
from perftop.process import launch
from perftop.process.command_window import CommandWindow
from perftop.process.job import Job
from perftop.process.streams import spawn

pytestmark = pytest.mark.machine

CLOCK = "import time, sys; now = lambda: time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW); a = now()"
WORK = f"{CLOCK}; sum(range(10**6)); open(sys.argv[1], 'w').write(f'{{a}} {{now()}}')"


@contextlib.contextmanager
def load() -> Iterator[None]:
    """More to run than there are CPUs."""
    cpus = len(os.sched_getaffinity(0))
    burners = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cpus + 1)
    ]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


async def measure(job: Job, sample_s: str) -> tuple[CommandWindow, list[wire.Frame]]:
    bracket, frames = CommandWindow(job), []
    argv = launch.probe_command("stream", "--source", "os", "--sample", sample_s)
    async with spawn(argv) as stream:
        async for messages in stream:
            for message in messages:
                if isinstance(message, wire.Hello):
                    bracket.begin(message)
                elif isinstance(message, wire.Frame) and bracket.admit(message):
                    frames.append(message)
                    if bracket.take(message):
                        return bracket, frames
    return bracket, frames


@pytest.mark.parametrize("sample_s", by_day(["0.01", "0.1"], ["0.1"]))
def test_the_run_lies_inside_by_the_commands_own_clock(tmp_path: Path, sample_s: str) -> None:
    told = tmp_path / "told"
    with load():
        for _ in range(2):
            with Job([sys.executable, "-S", "-c", WORK, str(told)]) as job:
                bracket, frames = asyncio.run(measure(job, sample_s))
            begun_ns, done_ns = map(int, told.read_text(encoding="ascii").split())
            run, bounds = bracket.run, bracket.bounds
            assert run is not None
            assert bounds is not None
            assert bounds.first_ns[1] <= run.start_ns <= begun_ns
            assert done_ns <= run.end_ns <= bounds.last_ns[0]
            assert (run.status, bracket.missed) == (0, [])
            # What is summed up is from the first of these frames to the last.
            assert frames[0].time_ns <= bounds.first_ns[0]
            assert bounds.last_ns[1] <= frames[-1].time_ns + 10**9
            assert 0 < bounds.slack_s(run.start_ns, run.end_ns) < 5
