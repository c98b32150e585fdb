"""What drawing costs: CPU of a refresh of the whole app without its waiting, beside a plain ANSI
writer in the same run. The numbers are made beforehand; only showing them is measured. The bytes go
to /dev/null.

Run by hand: python tests/bench/bench_refresh.py [--profile] [view ...]
"""

from __future__ import annotations

import asyncio
import cProfile
import os
import pstats
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import timing
from bench_screen import plain_us
from textual.drivers.headless_driver import HeadlessDriver

from perfprobe import wire
from perfprobe.sources.sim.source import open_sim
from perftop.process.probe_stream import Stream
from perftop.tui import app
from perftop.tui.app import PerfTopApp

SAMPLE_NS = 100_000_000
WARM, COUNTED = 60, 60
SETTLE_S = 0.03
"""Longer than Textual puts off a paint."""
KEYS = {"overview": "1", "heat": "2", "time": "3", "table": "4", "episodes": "5",
        "neighbours": "6", "core": "enter"}  # fmt: skip


class Sink(HeadlessDriver):
    """A terminal without a reader; Textual renders for it as for any other."""

    size = (160, 50)
    written = 0

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self._out = os.open(os.devnull, os.O_WRONLY)
        self._size = Sink.size

    @property
    def is_headless(self) -> bool:
        return False

    def write(self, data: str) -> None:
        Sink.written += os.write(self._out, data.encode())


class Told(PerfTopApp):
    """The app, which is told messages instead of reading a stream."""

    CSS_PATH = str(Path(app.__file__).with_name(PerfTopApp.CSS_PATH))

    def __init__(self) -> None:
        super().__init__(_silent, SAMPLE_NS)
        self.driver_class = Sink


@asynccontextmanager
async def _silent() -> AsyncIterator[Stream]:
    async def nothing() -> AsyncIterator[wire.Message]:
        await asyncio.Event().wait()
        yield wire.Note("never", 0)

    yield nothing()


def messages(cpus: int, count: int) -> list[wire.Message]:
    source = open_sim(f"sim:smt-mix,cpus={cpus},speed=max", SAMPLE_NS)
    found: list[wire.Message] = [source.hello]
    while len(found) < count:
        found += source.poll()
    source.close()
    return found


async def driven(app: Told, view: str, feed: list[wire.Message], act: Acts) -> None:
    """Runs the app, and `act` once it has shown the first samples in this view."""
    running = asyncio.ensure_future(app.run_async())
    while app.current_mode != "monitor":  # noqa: ASYNC110 - nothing announces it
        await asyncio.sleep(0.05)
    take = app._take
    for message in feed[:WARM]:
        take(message)
    await asyncio.sleep(0.3)
    from textual import events

    app.post_message(events.Key(KEYS[view], None))
    await asyncio.sleep(0.5)
    await act(app, feed[WARM:])
    app.exit()
    await running


Acts = Callable[[Told, list[wire.Message]], Awaitable[None]]


def refresh_us(cpus: int, view: str, profile: cProfile.Profile | None) -> tuple[float, float]:
    """CPU us and bytes of one refresh, the median."""
    found: list[tuple[float, float]] = []

    async def idle_us() -> float:
        start = time.process_time_ns()
        await asyncio.sleep(SETTLE_S)
        return (time.process_time_ns() - start) / 1000

    async def act(app: Told, feed: list[wire.Message]) -> None:
        asleep = statistics.median([await idle_us() for _ in range(20)])
        tell = app._tell
        app._tell = lambda: None  # type: ignore[method-assign]
        for message in feed:
            app._take(message)
            before = Sink.written
            if profile:
                profile.enable()
            start = time.process_time_ns()
            tell()
            await asyncio.sleep(SETTLE_S)
            us = (time.process_time_ns() - start) / 1000
            if profile:
                profile.disable()
            found.append((us - asleep, Sink.written - before))

    asyncio.run(driven(Told(), view, messages(cpus, WARM + COUNTED), act))
    times, sizes = zip(*found, strict=True)
    return statistics.median(times), statistics.median(sizes)


if __name__ == "__main__":
    os.environ |= {"COLORTERM": "truecolor", "TERM": "xterm-256color"}
    profile = cProfile.Profile() if "--profile" in sys.argv else None
    views = [word for word in sys.argv[1:] if word in KEYS] or ["overview"]
    sizes = [int(word) for word in sys.argv[1:] if word.isdigit()] or [2, 64, 256, 1024]
    for columns, lines in ((160, 50), (240, 70))[: 1 if profile else 2]:
        Sink.size = (columns, lines)
        reference = plain_us(columns, lines)
        rows = []
        for view in views:
            for cpus in sizes:
                us, size = refresh_us(cpus, view, profile)
                rows.append((f"{view}, {cpus} CPUs: {size:.0f} bytes", us, reference))
        timing.table(f"drawing at {columns}x{lines}", rows)
    if profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(60)
