"""The machine's numbers where no core can be counted: what CPUs did by the system's account, and
what tasks waited for, each with its own past below it where there is room."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from math import isnan, nan
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from perftop.draw import theme
from perftop.draw.strips import Run, number, shed, width
from perftop.model.numbers import METRICS
from perftop.tui.frame.machine_line import extent
from perftop.tui.shared.column_ring import Ring

if TYPE_CHECKING:
    from perftop.base.arrays import Floats
    from perftop.session.history import History
    from perftop.session.history_chunk import Times
    from perftop.session.interval import Interval
    from perftop.session.session import Session

GAP = 3
WORDY = 110
"""Columns from which tiles have their whole names."""


class Tile(NamedTuple):
    key: str
    name: str
    brief: str
    """The name where there is little room."""
    rank: int
    """From 0, which stays where it is narrow."""
    area: str
    """Colour of its past."""
    unit: str = " %"
    least: float | None = None
    """Least top of the scale of its past, where it is mostly small; None: the scale is fixed."""

    def scale(self, values: Sequence[float]) -> float:
        """The value of a full cell."""
        return 1.0 if self.least is None else max(self.least, *values)


_TILES = (
    Tile("util", "busy", "busy", 0, "user-9"),
    Tile("user", "user", "user", 5, "user-7"),
    Tile("system", "kernel", "kernel", 4, "kernel-9"),
    Tile("steal", "steal", "steal", 1, "steal", least=0.1),
    Tile("pressure_cpu", "waits for a CPU", "waits", 2, "dim"),
    Tile("pressure_io", "for a disk", "disk", 7, "dim", least=0.1),
    Tile("pressure_memory", "for memory", "memory", 9, "dim", least=0.1),
    Tile("load_1", "load", "load", 3, "dim", "", 1.0),
    Tile("interrupts_hz", "interrupts", "irqs", 6, "dim", " /s", 1000.0),
    Tile("context_switches_hz", "switches", "switches", 8, "dim", " /s", 1000.0),
)
_BY_RANK = sorted(_TILES, key=lambda tile: tile.rank)
HOT = METRICS["steal"].stands_out


def serve(session: Session) -> bool:
    """Whether tiles take the place of the machine's numbers: no clock is counted."""
    return not session.evaluator.chosen["busy_hz"]


def values(session: Session, interval: Interval) -> Mapping[str, float]:
    """What the tiles show, by key; NaN or absent where it is not known."""
    found = interval.values.group(extent(session).cpus).tolist()
    chosen = session.evaluator.chosen
    served = {key: value for key, value in zip(chosen, found, strict=True) if chosen[key]}
    return interval.machine | served


def numbers(told: Mapping[str, float], size: int) -> list[Run]:
    """All in one line; the least important ones go first where it is narrow."""
    pieces = [
        (tile.rank, _number(tile, told, wordy=size >= WORDY))
        for tile in _TILES
        if not isnan(told.get(tile.key, nan))
    ]
    return [(" ", "text"), *shed(pieces, size - 2, GAP)]


def _number(tile: Tile, told: Mapping[str, float], *, wordy: bool) -> list[Run]:
    value = told[tile.key]
    name: Run = (f"{tile.name if wordy else tile.brief} ", "dim")
    hot = tile.key == "steal" and value >= HOT
    style = "alarm" if hot else "bright" if tile.rank < 3 else "text"
    if tile.key == "load_1":
        older = [number(told[key], 2, 6, "dim") for key in _OLDER if key in told] if wordy else []
        return [name, number(value, 2, 5, style), *older]
    if tile.unit == " /s":
        return [name, number(value, 0, 5, style), (tile.unit, "dim")]
    return [name, number(100 * value, 1, 5, style), (tile.unit, "dim")]


_OLDER = "load_5", "load_15"


def wide(columns: Sequence[Column]) -> list[Run]:
    """The numbers, each at the left end of its column."""
    runs: list[Run] = [(" ", "text")]
    for column in columns:
        runs += [*column.number, (" " * (column.room - column.used), "text")]
    return runs[:-1]


class _Drawn(NamedTuple):
    """The past of one tile: by cell the value, and by line the cells."""

    values: list[float]
    scale: float
    """The value of a full cell."""
    lines: list[str]

    def spans(self, cells: int, rows: int) -> bool:
        return len(self.values) == cells and len(self.lines) == rows

    def moved(self, tile: Tile, gone: int, news: list[float]) -> _Drawn:
        """The same without the first `gone` cells, and with `news` as the last ones."""
        stays = slice(gone, gone + len(self.values) - len(news))
        values = self.values[stays] + news
        if tile.scale(values) != self.scale:
            return _drawn(tile, values, len(self.lines))
        fresh = _cells(news, self.scale, len(self.lines))
        lines = [line[stays] + cells for line, cells in zip(self.lines, fresh, strict=True)]
        return _Drawn(values, self.scale, lines)


def _drawn(tile: Tile, values: list[float], rows: int) -> _Drawn:
    scale = tile.scale(values)
    return _Drawn(values, scale, _cells(values, scale, rows))


class Past:
    """The past of each tile's number, of one session. As bins that are over do not change, only the
    cells of the newest are drawn at a refresh, for as long as the scale stays."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._metrics = [tile.key for tile in _TILES if tile.key in METRICS]
        self._others = [tile.key for tile in _TILES if tile.key not in METRICS]
        self._at = {key: i for i, key in enumerate((*self._metrics, *self._others))}
        self._ring = Ring({"tiles": self._values})
        self._newest = 0
        """Number of the newest bin, counted since the time 0."""
        self._drawn: dict[str, _Drawn] = {}
        """By key, of the tiles that were shown last."""

    def lines(
        self, columns: Sequence[Column], interval: Interval, step_ns: int, size: int, rows: int = 1
    ) -> list[list[Run]]:
        """Below each number a cell each `step_ns`, in so many lines; the newest value is at the
        right end of its column."""
        newest, history = -(-interval.time_ns // step_ns), self._session.history
        gone, self._newest = newest - self._newest, newest
        table, fresh = np.zeros((size, len(self._at))), size
        if history is not None:
            fresh = self._ring.read(history, newest * step_ns, step_ns, size, interval.time_ns)
            table = self._ring["tiles"]
        news = table[size - fresh :].T.tolist()
        drawn: dict[str, _Drawn] = {}
        for tile, _, cells, *_ in columns:
            at, held = self._at[tile.key], self._drawn.get(tile.key)
            if held is None or not held.spans(cells, rows) or cells <= fresh:
                drawn[tile.key] = _drawn(tile, table[-cells:, at].tolist(), rows)
            else:
                drawn[tile.key] = held.moved(tile, gone, news[at])
        self._drawn = drawn
        lines: list[list[Run]] = [[(" ", "text")] for _ in range(rows)]
        for tile, room, cells, *_ in columns:
            values, _, texts = drawn[tile.key]
            keys = _heat(values) if tile.key == "steal" else [(tile.area, cells)]
            for line, text in zip(lines, texts, strict=True):
                line.extend(_coloured(text, keys))
                line.append((" " * (room - cells), "text"))
        return [line[:-1] for line in lines]

    def _values(self, history: History, edges_ns: Times) -> Floats:
        """(bins, tiles): the mean over the CPUs that the user asked for, or the number of the
        machine; 0 where it is unknown, which looks the same."""
        fields = history.fields(self._metrics, self._session.shown, edges_ns)
        known = np.isfinite(fields)
        means = np.where(known, fields, 0.0).sum(2) / np.maximum(known.sum(2), 1)
        others = history.machine(self._others, edges_ns)
        return np.concatenate([means, np.where(np.isfinite(others), others, 0.0)], axis=1)


def _cells(values: Sequence[float], scale: float, rows: int) -> list[str]:
    """The lines of cells of these values, from the top. What is more than 0 is seen."""
    most = 8 * rows
    eighths = [round(most * value / scale) or value > 0 for value in values]
    return [
        "".join([theme.LEVELS[min(max(height - base, 0), 8)] for height in eighths])
        for base in range(most - 8, -8, -8)
    ]


def _coloured(text: str, keys: Sequence[tuple[str, int]]) -> Iterator[Run]:
    """The text in stretches of these styles and lengths."""
    at = 0
    for key, count in keys:
        yield text[at : at + count], key
        at += count


def _heat(values: Sequence[float]) -> list[tuple[str, int]]:
    """Styles of cells of steal and how many have each: red as far back as it has been high without
    a break."""
    hot = [value >= HOT for value in values]
    if True not in hot:  # mostly
        return [("steal", len(hot))]
    now = next((i for i, high in enumerate(reversed(hot)) if not high), len(hot))
    keys = ["over" if high else "steal" for high in hot]
    keys[len(hot) - now :] = ["alarm"] * now
    return [(key, len([*same])) for key, same in groupby(keys)]


class Column(NamedTuple):
    """A tile where there is room for its past."""

    tile: Tile
    room: int
    """Cells with the gap behind it: what its words need, and an equal part of what is left."""
    cells: int
    """Cells of its past."""
    number: list[Run]
    used: int
    """Cells of the number."""


def columns(told: Mapping[str, float], size: int) -> list[Column]:
    """The tiles that fit."""
    fits: dict[str, tuple[Tile, list[Run], int]] = {}
    left = size - 2 + GAP
    for tile in _BY_RANK:
        if isnan(told.get(tile.key, nan)):
            continue
        number = _number(tile, told, wordy=True)
        used = width(number)
        if used + GAP > left:
            break
        fits[tile.key] = tile, number, used
        left -= used + GAP
    kept = [fits[tile.key] for tile in _TILES if tile.key in fits]
    ends = [left * (i + 1) // len(kept) for i in range(len(kept))]
    rooms = [
        used + GAP + end - start
        for (*_, used), start, end in zip(kept, [0, *ends], ends, strict=False)
    ]
    return [
        Column(tile, room, max(1, room - GAP), number, used)
        for (tile, number, used), room in zip(kept, rooms, strict=True)
    ]
