"""The terminal app: reads a stream into a session, tells its screens what is new."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import App
from textual.binding import Binding, BindingType

from perfprobe import wire
from perftop import crash, theme
from perftop.failed import Failed
from perftop.format import utf8
from perftop.messages import Refreshed
from perftop.screens.overview import Overview
from perftop.stream import Stream, spawn
from perftop.widgets.status import Status

if TYPE_CHECKING:
    from perftop.session import Interval, Session

Opener = Callable[[], AbstractAsyncContextManager[Stream]]
INTERVALS_NS = tuple(ms * 1_000_000 for ms in (50, 100, 200, 500, 1000, 2000, 5000))
SIGNALS = (signal.SIGTERM, signal.SIGHUP)
"""They end the app as `q` does: the terminal is given back, the probe told."""
COST_NS = 5_000_000_000
"""What perftop itself costs is told as a mean over this long: it is small and jumps."""


class PerfTopApp(App[None]):
    TITLE = "perftop"
    CSS_PATH = "perftop.tcss"
    ENABLE_COMMAND_PALETTE = False
    DEFAULT_MODE = "overview"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,f10", "quit", "quit", id="quit", tooltip="Quit"),
        Binding("ctrl+c", "quit", "quit", id="interrupt", priority=True, tooltip="Quit"),
        Binding("space", "pause", "pause", id="pause",
                tooltip="Numbers stand still; sampling goes on"),
        Binding("plus,equals_sign", "interval(1)", "longer", id="longer",
                tooltip="Longer interval: what one step of the numbers covers"),
        Binding("minus,underscore", "interval(-1)", "shorter", id="shorter",
                tooltip="Shorter interval, down to the sampling interval"),
        Binding("T", "theme", "theme", id="theme", tooltip="Dark or light"),
    ]  # fmt: skip

    def __init__(
        self,
        opener: Opener,
        interval_ns: int,
        *,
        ascii_: bool = False,
        cpu_clock: Callable[[], float] = time.process_time,
    ) -> None:
        super().__init__()
        self._open = opener
        self._cpu_clock = cpu_clock
        self.status = Status(interval_ns)
        self.failure: Failed | None = None
        """Why the stream ended, if it was not we who ended it."""
        self._session: Session | None = None
        self.interval: Interval | None = None
        self._up = False
        self._signal: signal.Signals | None = None
        self._costs: deque[tuple[int, float]] = deque()
        for shade in theme.THEMES:
            self.register_theme(shade)
        self.theme = theme.THEMES[0].name
        self.animation_level = "none"
        self.add_mode("overview", lambda: Overview(ascii_=ascii_))

    def on_load(self) -> None:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:  # the loop forgets them when it closes
            loop.add_signal_handler(number, self._signalled, number)
        self._feed()  # before the first paint: the probe starts while we draw

    def on_ready(self) -> None:
        self._up = True
        if self._signal is not None:
            self._signalled(self._signal)
        elif self.failure is not None and self.interval is None:
            self._end(self.failure)
        self._tell()

    def _signalled(self, number: signal.Signals) -> None:
        self._signal = number
        if self._up:  # an app that is still starting must not be ended
            self.exit(return_code=128 + number)

    @work(exclusive=True)
    async def _feed(self) -> None:
        try:
            async with self._open() as stream:
                async for message in stream:
                    self._take(message)
            self._end(Failed("the probe has ended", 0))
        except Failed as failed:
            self._end(failed)

    def _take(self, message: wire.Message) -> None:
        if isinstance(message, wire.Hello):
            from perftop.session import Session  # brings numpy, while the probe takes its first

            self._session = Session(message)
            return
        session = self._session
        assert session is not None
        session.apply(message)
        # The first numbers come after one sample, not after a whole interval.
        due_ns = self.status.interval_ns if self.interval else session.hello.sample_ns
        if session.span_ns >= due_ns - session.hello.sample_ns // 2 and session.frames > 1:
            self.interval = session.take()
            if self.status.paused is None:
                self.status = replace(self.status, own=self._own(session))
                self._tell()

    def _own(self, session: Session) -> float:
        """CPU seconds per second, probe and app together, over the last while."""
        costs, now_ns = self._costs, session.now_ns
        costs.append((now_ns, session.probe_cpu_s() + self._cpu_clock()))
        while len(costs) > 2 and now_ns - costs[0][0] > COST_NS:
            costs.popleft()
        elapsed_s = (now_ns - costs[0][0]) / 1e9
        return (costs[-1][1] - costs[0][1]) / elapsed_s if elapsed_s else float("nan")

    def _end(self, failed: Failed) -> None:
        """No more will come. What is on the screen stays; without anything there, so do we not."""
        self.failure = failed
        if self.interval is None:
            if self._up:  # an app that is still starting must not be ended
                self.exit(return_code=failed.status)
            return
        self.status = replace(self.status, failed=str(failed))
        self._tell()

    def _tell(self) -> None:
        """The mode's own screen, whatever lies over it."""
        if self.is_running and self.screen_stack:
            self.screen_stack[0].post_message(Refreshed(self._session, self.interval, self.status))

    def action_pause(self) -> None:
        if self.interval is None:
            return
        moment = self.interval.time if self.status.paused is None else None
        self.status = replace(self.status, paused=moment)
        self._tell()

    def action_interval(self, by: int) -> None:
        """The next longer or shorter one that is not below the sampling interval."""
        now_ns = self.status.interval_ns
        least_ns = self._session.hello.sample_ns if self._session else 0
        steps = [ns for ns in INTERVALS_NS if ns >= least_ns and (ns - now_ns) * by > 0]
        if steps:
            self.status = replace(self.status, interval_ns=min(steps) if by > 0 else max(steps))
            self._tell()

    def action_theme(self) -> None:
        names = [shade.name for shade in theme.THEMES]
        self.theme = names[(names.index(self.theme) + 1) % len(names)]

    def _handle_exception(self, error: Exception) -> None:
        """A mistake of ours: keep a report, give the terminal back, say where the report lies."""
        if self.is_headless:  # a test wants the exception itself
            super()._handle_exception(error)
            return
        self.failure = Failed(crash.report(error))
        self.exit(return_code=1)


@contextmanager
def _drawing_on_stdout() -> Iterator[None]:
    """Textual draws on what `sys.__stderr__` is when it starts, and has no setting for it. With
    `2>file` that is no terminal: while the app runs, it gets the terminal of stdout under that
    name. `sys.stderr` itself, for messages, stays what the user made it."""
    shown, terminal = sys.__stderr__, sys.__stdout__
    if terminal is None or not terminal.isatty() or (shown is not None and shown.isatty()):
        yield
        return
    # Its own stream, as forgiving as stderr's: what cannot be encoded must not end the app.
    with open(terminal.fileno(), "w", encoding=terminal.encoding, errors="backslashreplace",
              closefd=False) as screen:  # fmt: skip
        sys.__stderr__ = screen  # type: ignore[misc]
        try:
            yield
        finally:
            sys.__stderr__ = shown  # type: ignore[misc]


def run(argv: list[str], interval_ns: int, *, mouse: bool = True) -> int:
    """The exit status; Failed if the stream gave out or we did."""
    app = PerfTopApp(lambda: spawn(argv), interval_ns, ascii_=not utf8())
    with _drawing_on_stdout():
        app.run(mouse=mouse)
    if app.failure is not None and app.failure.status:
        raise app.failure
    return app.return_code or 0
