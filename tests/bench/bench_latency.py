"""Measures two delays: from the arrival of a frame in the app to the last byte on the terminal, and
from the command to the first numbers.

Run by hand: python tests/bench/bench_latency.py
"""

from __future__ import annotations

import asyncio
import os
import select
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import terminal

SPAN_S, QUIET_S = 10.0, 0.03
PERIOD_NS = 100_000_000


def run_app(cpus: int, report: int) -> None:
    """Runs the app in this process on a simulated machine, and reports the arrival time of each
    frame."""
    from perfprobe import wire
    from perfprobe.sources.sim.source import SimSource
    from perftop.process.streams import Stream
    from perftop.tui.app import PerfTopApp
    from perftop.tui.stream import LiveSource

    async def stream() -> AsyncIterator[list[wire.Message]]:
        source = SimSource(f"sim:smt-mix,cpus={cpus},speed=max", PERIOD_NS)
        yield [source.hello]
        due = time.monotonic()
        while True:
            for message in source.poll():
                due += PERIOD_NS / 1e9
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                os.write(report, b"%f\n" % time.monotonic())
                yield [message]

    @asynccontextmanager
    async def opener() -> AsyncIterator[Stream]:
        yield stream()

    PerfTopApp(LiveSource(opener, PERIOD_NS)).run()


def latencies(cpus: int) -> list[float]:
    """Returns the ms from each frame to the end of the burst of bytes that follows the frame."""
    ours, theirs = os.pipe()
    argv = [sys.executable, __file__, str(cpus), str(theirs)]
    process, fd = terminal.start(argv, 160, 50, pass_fds=(theirs,))
    os.close(theirs)
    terminal.drain(fd, 4.0)
    os.read(ours, 1 << 16)
    results: list[float] = []
    end = time.monotonic() + SPAN_S
    arrived = last = 0.0
    while time.monotonic() < end:
        ready = select.select([ours, fd], [], [], QUIET_S)[0]
        if ours in ready:
            if last > arrived > 0:
                results.append(1000 * (last - arrived))
            arrived = float(os.read(ours, 4096).split()[-1])
        if fd in ready:
            os.read(fd, 1 << 16)
            last = time.monotonic()
    terminal.stop(process, fd)
    os.close(ours)
    return results


def start_delays_ms(source: str, mark: bytes) -> tuple[float, float]:
    """Returns the ms from the start of the command to its first text, and to the first numbers."""
    start = time.monotonic()
    argv = [sys.executable, "-m", "perftop", "--source", source]
    process, fd = terminal.start(argv, 160, 50)
    text, painted = b"", 0.0
    while mark not in text and time.monotonic() - start < 10:
        if select.select([fd], [], [], 1.0)[0]:
            text += os.read(fd, 1 << 16)
            painted = painted or (time.monotonic() if b"perftop" in text else 0.0)
    now = time.monotonic()
    terminal.stop(process, fd)
    return 1000 * (painted - start), 1000 * (now - start)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        run_app(int(sys.argv[1]), int(sys.argv[2]))
        sys.exit()
    for cpus in (64, 256, 1024):
        found = sorted(latencies(cpus))
        tail = found[int(0.95 * len(found))]
        print(f"{cpus:5} CPUs: frame to terminal p50 {statistics.median(found):5.1f} ms, "
              f"p95 {tail:5.1f} ms ({len(found)} refreshes)")  # fmt: skip
    for source in ("auto", "sim:smt-mix,cpus=64"):
        paints, numbers = zip(*(start_delays_ms(source, b"busy") for _ in range(7)), strict=True)
        print(f"{source}: first paint {statistics.median(paints):.0f} ms, first numbers "
              f"{statistics.median(numbers):.0f} ms (median of 7)")  # fmt: skip
