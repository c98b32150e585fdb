"""Apps on a simulated machine, and a terminal that keeps the text written to it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.color import ColorSystem
from sim_streams import SAMPLE_NS
from sim_streams import messages as simulated
from textual import events
from textual.drivers.headless_driver import HeadlessDriver
from textual.geometry import Size
from waiting import until_quiet, until_true

from perfprobe import wire
from perftop.process.streams import Stream
from perftop.tui import app
from perftop.tui.app import PerfTopApp
from perftop.tui.frame.top import CpuCost
from perftop.tui.stream import LiveSource


class Terminal(HeadlessDriver):
    """A driver to which Textual writes as to a real terminal."""

    _size: Any

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.written = 0
        """Number of characters written so far."""
        self.keeps_text = True
        """Whether to keep the text, which takes time."""
        self.drawn = Cells()

    @property
    def is_headless(self) -> bool:
        return False

    def write(self, data: str) -> None:
        self.written += len(data)
        if self.keeps_text:
            self.drawn.write(data, self.size[0])

    @property
    def size(self) -> tuple[int, int]:
        """Returns the terminal's columns and lines."""
        columns, lines = self._size
        return columns, lines

    def resize(self, size: tuple[int, int]) -> None:
        self._size = size
        self.process_message(events.Resize(Size(*size), Size(*size)))

    def lines(self) -> list[str]:
        return self.drawn.lines(*self.size)


class TerminalApp(PerfTopApp):
    CSS_PATH = str(Path(app.__file__).with_name(str(PerfTopApp.CSS_PATH)))

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.driver_class = Terminal
        # All tests use one colour system, because rich's styles cache the codes of the first one.
        self.console._color_system = ColorSystem.TRUECOLOR

    @property
    def terminal(self) -> Terminal:
        assert isinstance(self._driver, Terminal)
        return self._driver

    def composed_lines(self) -> list[str]:
        """Returns the lines that Textual's compositor would draw on the whole screen."""
        with self._context():
            strips = self.screen._compositor.render_strips(Size(*self.terminal.size))
        return ["".join(segment.text for segment in strip) for strip in strips]


class ScriptedApp(TerminalApp):
    """An app that gets its messages from a test instead of a stream."""

    source: LiveSource

    def __init__(self, **options: Any) -> None:
        source = LiveSource(_silent, SAMPLE_NS)
        source.cost = CpuCost(lambda: 0.0)
        start_s = source.clock()
        source.clock = lambda: start_s  # On a slow machine, a stream without messages would hang.
        super().__init__(source, **options)


@asynccontextmanager
async def _silent() -> AsyncIterator[Stream]:
    async def nothing() -> AsyncIterator[list[wire.Message]]:
        await asyncio.Event().wait()
        yield [wire.Note("never", 0)]

    yield nothing()


def messages(cpus: int, count: int, scenario: str = "smt-mix") -> list[wire.Message]:
    hello, result = simulated(f"{scenario},cpus={cpus}", count - 1)
    return [hello, *result]


@asynccontextmanager
async def shown_app(
    feed: list[wire.Message], size: tuple[int, int] = (160, 50)
) -> AsyncIterator[ScriptedApp]:
    """Yields the app when it has shown these messages on a terminal of `size` columns and lines."""
    scripted = ScriptedApp()
    run = asyncio.ensure_future(scripted.run_async(size=size))
    await until_true(lambda: scripted.is_ready, "the app is up")
    scripted.source.process(feed)
    await wait_until_drawn(scripted)
    yield scripted
    scripted.exit()
    await run


async def wait_until_drawn(scripted: ScriptedApp) -> None:
    """Waits until the terminal shows all messages."""
    await until_quiet()
    await until_true(lambda: scripted.terminal.lines() == scripted.composed_lines(), "all is drawn")


_PIECES = re.compile(
    r"\x1b\[(\d+);(\d+)H|\x1b\[(\d+)([P@])|\x1b\[([0-9;]*)m"
    r"|\x1b\][^\x07]*\x07|\x1b\[[0-9;?]*[A-Za-z]|([^\x1b\r\n]+)"
)
Cell = tuple[str, str, str, frozenset[int]]
"""A character, its foreground and background colours, and its other attributes."""
BLANK: Cell = (" ", "", "", frozenset())


class Cells:
    def __init__(self) -> None:
        self._cells: dict[tuple[int, int], Cell] = {}
        """Cells by line and column; a missing cell is blank."""
        self._x = self._y = 0
        self._style = BLANK[1:]

    def write(self, data: str, columns: int) -> None:
        """Writes to a terminal with this number of columns. `data` ends at the end of an escape
        sequence or of a character."""
        x, y, style = self._x, self._y, self._style
        for result in _PIECES.finditer(data):
            if result[1]:
                y, x = int(result[1]) - 1, int(result[2]) - 1
            elif result[3]:
                self._move(x, y, int(result[3]) * (-1 if result[4] == "P" else 1), columns)
            elif result[5] is not None:
                style = _styled(style, result[5])
            for sign in result[6] or "":
                self._cells[y, x] = (sign, *style)
                x += cell_len(sign)
        self._x, self._y, self._style = x, y, style

    def _move(self, x: int, y: int, shift: int, columns: int) -> None:
        """Deletes cells if `shift` is negative, otherwise inserts blanks."""
        before = {i: self._cells.get((y, i), BLANK) for i in range(x, columns)}
        for i in range(x, columns):
            self._cells[y, i] = before.get(i - shift, BLANK)

    def lines(self, columns: int, lines: int) -> list[str]:
        return ["".join([cell[0] for cell in self.cells(columns, y)]) for y in range(lines)]

    def cells(self, columns: int, y: int) -> list[Cell]:
        return [self._cells.get((y, x), BLANK) for x in range(columns)]

    def visible_cells(self, columns: int, y: int) -> list[tuple[str, ...]]:
        """Returns the visible attributes of the cells of a line; of a blank, only the
        background."""
        return [cell[:3] if cell[0] != " " else (" ", cell[2]) for cell in self.cells(columns, y)]


def _styled(style: tuple[str, str, frozenset[int]], codes: str) -> tuple[str, str, frozenset[int]]:
    """Returns the style after an escape sequence that changes it."""
    fore, ground, others = style
    left = [int(code or 0) for code in codes.split(";")]
    while left:
        code = left.pop(0)
        if code == 0:
            fore, ground, others = "", "", frozenset()
        elif code in {38, 48}:
            count = 4 if left[0] == 2 else 2
            colour, left = str(left[:count]), left[count:]
            fore, ground = (colour, ground) if code == 38 else (fore, colour)
        elif code // 10 in {3, 9}:
            fore = str(code)
        elif code // 10 in {4, 10}:
            ground = str(code)
        else:
            others |= {code}
    return fore, ground, others
