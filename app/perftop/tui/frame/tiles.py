"""The machine's numbers if no core has counters: the kernel's accounting of CPU time, and the waits
of tasks. Each number has its history below it if there is room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import groupby
from math import isnan, nan
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from perftop.draw import theme
from perftop.draw.columns import Run, number
from perftop.draw.strips import shed, width
from perftop.model.numbers import METRICS, NUMBERS
from perftop.tui.frame.machine_line import extent
from perftop.tui.shared.column_ring import Ring

if TYPE_CHECKING:
    from perftop.base.arrays import Floats
    from perftop.session.history import History
    from perftop.session.history_chunk import Times
    from perftop.session.interval import Interval
    from perftop.session.session import Session

GAP = 3
MIN_WORDY = 110
"""Minimum columns of the screen for the full names of tiles."""


class Tile(NamedTuple):
    key: str
    name: str
    brief: str
    """The short name, used if there is little room."""
    rank: int
    """Importance; 0 is the most important tile, which even narrow screens show."""
    area: str
    """Style of the chart of its history."""
    min_top: float | None = None
    """Minimum upper end of the scale of its history; None: the scale is fixed, from 0 to 1."""


_TILES = (
    Tile("util", "busy", "busy", 0, "user-9"),
    Tile("user", "user", "user", 5, "user-7"),
    Tile("system", "kernel", "kernel", 4, "kernel-9"),
    Tile("steal", "steal", "steal", 1, "steal", min_top=0.1),
    Tile("pressure_cpu", "waits for a CPU", "waits", 2, "dim"),
    Tile("pressure_io", "for a disk", "disk", 7, "dim", min_top=0.1),
    Tile("pressure_memory", "for memory", "memory", 9, "dim", min_top=0.1),
    Tile("load_1", "load", "load", 3, "dim", 1.0),
    Tile("interrupts_hz", "interrupts", "irqs", 6, "dim", 1000.0),
    Tile("context_switches_hz", "switches", "switches", 8, "dim", 1000.0),
)
_OLDER_LOADS = "load_5", "load_15"
HOT = METRICS["steal"].stands_out


class Column(NamedTuple):
    """A tile with room for its history."""

    tile: Tile
    room: int
    """Width in cells, including the gap after the tile: the cells of its text, and an equal part of
    the spare cells."""
    number: list[Run]
    used: int
    """Width of the number with its name and unit, in cells."""

    @property
    def cells(self) -> int:
        """Width of its history, in cells."""
        return max(1, self.room - GAP)


def serve(session: Session) -> bool:
    """Returns whether tiles replace the machine's numbers, which is so if no clock is counted."""
    return not session.evaluator.chosen["busy_hz"]


def values(session: Session, interval: Interval) -> Mapping[str, float]:
    """Returns the numbers of the tiles, by key. An unknown number is NaN or absent."""
    counted = interval.values.group(extent(session).cpus).tolist()
    chosen = session.evaluator.chosen
    served = {key: value for key, value in zip(chosen, counted, strict=True) if chosen[key]}
    return interval.machine | served


def numbers(known: Mapping[str, float], size: int) -> list[Run]:
    """Returns the tiles in one line. On narrow screens the least important tiles are left out."""
    pieces = [
        (tile.rank, _number(tile, known, wordy=size >= MIN_WORDY))
        for tile in _TILES
        if not isnan(known.get(tile.key, nan))
    ]
    return [(" ", "text"), *shed(pieces, size - 2, GAP)]


def _number(tile: Tile, known: Mapping[str, float], *, wordy: bool) -> list[Run]:
    value = known[tile.key]
    name: Run = (f"{tile.name if wordy else tile.brief} ", "dim")
    hot = tile.key == "steal" and value >= HOT
    style = "alarm" if hot else "bright" if tile.rank < 3 else "text"
    if tile.key == "load_1":
        older = [number(known[key], 2, 6, "dim") for key in _OLDER_LOADS if key in known and wordy]
        return [name, number(value, 2, 5, style), *older]
    if NUMBERS[tile.key].rate:
        return [name, number(value, 0, 5, style), (" /s", "dim")]
    return [name, number(100 * value, 1, 5, style), (" %", "dim")]


def columns(known: Mapping[str, float], size: int) -> list[Column]:
    """Returns the tiles that fit, chosen by importance; they share the spare cells equally."""
    numbers: dict[str, tuple[list[Run], int]] = {}
    """The runs of each number and their width in cells, by key."""
    left = size - 2 + GAP
    for tile in sorted(_TILES, key=lambda tile: tile.rank):
        if isnan(known.get(tile.key, nan)):
            continue
        runs = _number(tile, known, wordy=True)
        used = width(runs)
        if used + GAP > left:
            break
        numbers[tile.key] = runs, used
        left -= used + GAP
    made: list[Column] = []
    for tile in (tile for tile in _TILES if tile.key in numbers):
        at, (runs, used) = len(made), numbers[tile.key]
        extra = left * (at + 1) // len(numbers) - left * at // len(numbers)
        made.append(Column(tile, used + GAP + extra, runs, used))
    return made


def wide(columns: Sequence[Column]) -> list[Run]:
    """Returns the line of the numbers, each at the left end of its column."""
    runs: list[Run] = [(" ", "text")]
    for column in columns:
        runs += [*column.number, (" " * (column.room - column.used), "text")]
    return runs[:-1]


class Past:
    """The history of each tile's number in one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._metrics = [tile.key for tile in _TILES if tile.key in METRICS]
        self._others = [tile.key for tile in _TILES if tile.key not in METRICS]
        self._ring = Ring({"tiles": self._values})

    def lines(
        self, columns: Sequence[Column], interval: Interval, step_ns: int, size: int, rows: int = 1
    ) -> list[list[Run]]:
        """Returns the `rows` lines of charts below the numbers. Each cell covers `step_ns`; the
        newest value is at the right end of its column."""
        keys = [*self._metrics, *self._others]
        newest, history = -(-interval.time_ns // step_ns), self._session.history
        table = np.zeros((size, len(keys)))
        if history is not None:
            self._ring.read(history, newest * step_ns, step_ns, size, interval.time_ns)
            table = self._ring["tiles"]
        lines: list[list[Run]] = [[(" ", "text")] for _ in range(rows)]
        for column in columns:
            tile, cells = column.tile, column.cells
            past = table[-cells:, keys.index(tile.key)].tolist()
            top = 1.0 if tile.min_top is None else max(tile.min_top, *past)
            styles = _heat(past) if tile.key == "steal" else [(tile.area, cells)]
            for line, text in zip(lines, _cells(past, top, rows), strict=True):
                at = 0
                for style, count in styles:
                    line.append((text[at : at + count], style))
                    at += count
                line.append((" " * (column.room - cells), "text"))
        return [line[:-1] for line in lines]

    def _values(self, history: History, edges_ns: Times) -> Floats:
        """Returns (bins, tiles): the mean over the CPUs that the user asked for, or the number of
        the machine. An unknown value is 0, because both are drawn as blank."""
        fields = history.fields(self._metrics, self._session.shown, edges_ns)
        known = np.isfinite(fields)
        means = np.where(known, fields, 0.0).sum(2) / np.maximum(known.sum(2), 1)
        others = history.machine(self._others, edges_ns)
        return np.concatenate([means, np.where(np.isfinite(others), others, 0.0)], axis=1)


def _cells(past: Sequence[float], top: float, rows: int) -> list[str]:
    """Returns a chart of these values as lines, the top line first. Any value above 0 is
    visible."""
    values = np.array(past)
    eighths = np.maximum(np.rint(8 * rows * values / top), values > 0).clip(0, 8 * rows)
    columns = _columns(rows)
    drawn = [columns[height] for height in eighths.astype(int).tolist()]
    return [*map("".join, zip(*drawn, strict=True))]


@cache
def _columns(rows: int) -> list[str]:
    """Returns, for each height in eighths of a cell, a column of cells from top to bottom."""
    return [
        "".join(theme.LEVELS[min(max(height - base, 0), 8)] for base in range(8 * rows - 8, -8, -8))
        for height in range(8 * rows + 1)
    ]


def _heat(past: Sequence[float]) -> list[tuple[str, int]]:
    """Returns the styles of the cells of steal, with the number of adjacent cells of each. The last
    cells, in which steal has been high without a break, are red."""
    keys = ["over" if value >= HOT else "steal" for value in past]
    at = len(keys)
    while at and keys[at - 1] == "over":
        at -= 1
        keys[at] = "alarm"
    return [(key, len([*same])) for key, same in groupby(keys)]
