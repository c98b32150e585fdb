"""An app on a simulated machine and a terminal that keeps what is written to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from drawn_cells import Cells
from rich.color import ColorSystem
from simulated import SAMPLE_NS
from simulated import messages as simulated
from textual import events
from textual.drivers.headless_driver import HeadlessDriver
from textual.geometry import Size
from waiting import quiet, until

from perfprobe import wire
from perftop.process.streams import Stream
from perftop.tui import app
from perftop.tui.app import PerfTopApp


class Terminal(HeadlessDriver):
    """Textual renders for it as for any terminal."""

    _size: Any

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.written = 0
        """Characters so far."""
        self.keeps = True
        """Whether the text is kept, which takes time."""
        self.drawn = Cells()

    @property
    def is_headless(self) -> bool:
        return False

    def write(self, data: str) -> None:
        self.written += len(data)
        if self.keeps:
            self.drawn.write(data, self.size[0])

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        columns, lines = self._size
        return columns, lines

    def resize(self, size: tuple[int, int]) -> None:
        self._size = size
        self.process_message(events.Resize(Size(*size), Size(*size)))

    def lines(self) -> list[str]:
        return self.drawn.lines(*self.size)


class Painted(PerfTopApp):
    """An app on such a terminal."""

    CSS_PATH = str(Path(app.__file__).with_name(str(PerfTopApp.CSS_PATH)))

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.driver_class = Terminal
        # As in all tests: rich's styles remember the codes of the first system that they meet.
        self.console._color_system = ColorSystem.TRUECOLOR

    @property
    def terminal(self) -> Terminal:
        assert isinstance(self._driver, Terminal)
        return self._driver

    def composed(self) -> list[str]:
        """What Textual's compositor would draw on the whole screen."""
        with self._context():
            strips = self.screen._compositor.render_strips(Size(*self.terminal.size))
        return ["".join(segment.text for segment in strip) for strip in strips]

    def _take(self, messages: list[wire.Message]) -> None:
        self.source.take(messages)


class Told(Painted):
    """The app, which is told messages instead of reading a stream."""

    def __init__(self) -> None:
        super().__init__(_silent, SAMPLE_NS, cpu_clock=lambda: 0.0)


@asynccontextmanager
async def _silent() -> AsyncIterator[Stream]:
    async def nothing() -> AsyncIterator[list[wire.Message]]:
        await asyncio.Event().wait()
        yield [wire.Note("never", 0)]

    yield nothing()


def messages(cpus: int, count: int, scenario: str = "smt-mix") -> list[wire.Message]:
    hello, found = simulated(f"{scenario},cpus={cpus}", count - 1)
    return [hello, *found]


@asynccontextmanager
async def shown(feed: list[wire.Message], size: tuple[int, int] = (160, 50)) -> AsyncIterator[Told]:
    """The app, once it has shown these messages on a terminal of so many columns and lines."""
    told = Told()
    run = asyncio.ensure_future(told.run_async(size=size))
    await until(lambda: told._up, "the app is up")
    told._take(feed)
    await drawn(told)
    yield told
    told.exit()
    await run


async def drawn(told: Told) -> None:
    """Wait until the terminal shows what was told."""
    await quiet()
    await until(lambda: told.terminal.lines() == told.composed(), "all is drawn")
