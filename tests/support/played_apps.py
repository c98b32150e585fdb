"""An app on a fake stream or on a recording, as a user sees it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fakes import AnyProbe, Machine, task_records
from make import stopped
from textual.pilot import Pilot
from waiting import until_true

from perftop.process.link import Link
from perftop.recording.file import Recording
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.app import PerfTopApp
from perftop.tui.frame.bottom import KeyLine, MissingMetricsLine
from perftop.tui.frame.monitor import Monitor
from perftop.tui.frame.top import TopLines
from perftop.tui.overview.overview import Overview
from perftop.tui.replay import ReplaySource
from perftop.tui.stream import LiveSource, StreamSource

INTERVAL_NS = 200_000_000
BIG_SCREEN = (160, 50)


class Run:
    """An app on a feed, as a user sees it."""

    def __init__(
        self, app: PerfTopApp, source: StreamSource, feed: AnyProbe, pilot: Pilot[None]
    ) -> None:
        self.app, self.source, self.feed, self.pilot = app, source, feed, pilot

    @property
    def grid(self) -> Overview:
        return self.monitor.query_one(Overview)

    @property
    def monitor(self) -> Monitor:
        screen = self.app.screen_stack[0]
        assert isinstance(screen, Monitor)
        return screen

    @property
    def session(self) -> Session:
        return self.source.session

    @property
    def interval(self) -> Interval:
        assert self.source.interval is not None
        return self.source.interval

    def text(self) -> list[str]:
        screen = self.monitor
        missing = screen.query_one(MissingMetricsLine)
        below = [missing] if missing.display else []
        parts = (screen.query_one(TopLines), self.grid, *below, screen.query_one(KeyLine))
        return [w.render_line(y).text.rstrip() for w in parts for y in range(w.size.height)]

    def has(self, text: str) -> bool:
        return any(text in line for line in self.text())

    async def wait_for_text(self, text: str) -> None:
        await until_true(lambda: self.has(text), f"{text!r} on screen: " + "\n".join(self.text()))

    async def send_intervals(self, count: int, **more: Any) -> None:
        """Sends frames for `count` more intervals, and waits until the app has read them all."""
        before = self.seq()
        self.feed.frames(2 * count, **more)
        await until_true(lambda: self.seq() >= before + count, "intervals taken")
        await self.pilot.pause()

    def seq(self) -> int:
        return self.source.newest_interval.seq if self.source.newest_interval else 0


@asynccontextmanager
async def running_app(
    machine: Machine, size: tuple[int, int] = BIG_SCREEN,
    *, set_batch_length: Callable[[int], None] = lambda _: None,
    link: Callable[[], Link | None] = lambda: None, tour: bool = False, **more: Any,
) -> AsyncIterator[Run]:  # fmt: skip
    """Runs the app on a machine; `set_batch_length`, `link` and `tour` are those of the live
    source."""
    feed = AnyProbe(machine)
    source = stopped(
        LiveSource(feed.open, INTERVAL_NS, set_batch_length=set_batch_length, link=link, tour=tour)
    )
    app = PerfTopApp(source, **more)
    async with app.run_test(size=size) as pilot:
        run = Run(app, source, feed, pilot)
        feed.frames(1, records=task_records(["lmp", "cc1"]))
        await until_true(lambda: run.seq() >= 1, "a first interval after one sample")
        await pilot.pause()
        yield run


def marked_lines(run: Run) -> list[str]:
    """Returns the rows that are highlighted on the screen."""
    lines = (run.grid.render_line(y).text.rstrip() for y in range(run.grid.size.height))
    return [line for line in lines if line.startswith("▌")]


def colour(run: Run) -> int:
    """Returns the largest distance from grey, 0 to 255, of any part of the grid."""
    styles = [s.style for y in range(6) for s in run.grid.render_line(y) if s.text.strip()]
    colors = [style.color.get_truecolor() for style in styles if style and style.color]
    return max(max(c) - min(c) for c in colors)


S = 1_000_000_000


class Viewer(Run):
    """An app on a recording, with a clock that the test advances."""

    source: ReplaySource

    def __init__(
        self, app: PerfTopApp, source: ReplaySource, pilot: Pilot[None], clock: list[float]
    ) -> None:
        self.app, self.source, self.pilot, self._clock = app, source, pilot, clock

    @property
    def at_s(self) -> float:
        """The time shown, in s since the start of the file."""
        assert self.source.interval is not None
        return (self.source.interval.time_ns - self.source.recording_span_ns[0]) / S

    @property
    def header(self) -> str:
        return self.text()[0]

    async def wait(self, seconds: float) -> None:
        self._clock[0] += seconds

    async def wait_until(self, at_s: float) -> None:
        def is_there() -> bool:
            return abs(self.at_s - at_s) < 0.01 and self.source.seek_worker is None

        await until_true(is_there, f"{at_s}, not {self.header}")
        await self.pilot.pause()

    async def press(self, *keys: str, to_s: float | None = None) -> None:
        """Presses the keys, and waits until the app shows the time `to_s`."""
        await self.pilot.press(*keys)
        if to_s is not None:
            await self.wait_until(to_s)


@asynccontextmanager
async def viewing(path: Path, size: tuple[int, int] = (160, 50)) -> AsyncIterator[Viewer]:
    clock = [0.0]
    with Recording(path) as recording:
        source = ReplaySource(recording, INTERVAL_NS)
        source.clock = lambda: clock[0]
        app = PerfTopApp(source)
        async with app.run_test(size=size) as pilot:
            await until_true(lambda: source.interval is not None, "a first moment")
            await pilot.pause()
            yield Viewer(app, source, pilot, clock)
