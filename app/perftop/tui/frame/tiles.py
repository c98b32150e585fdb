"""The machine's numbers where no core can be counted: what CPUs did by the system's account, and
what tasks waited for, each with its own past below it where there is room."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from math import isnan, nan
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from perftop.draw import theme
from perftop.draw.braille import codes_of
from perftop.draw.strips import Run, number, shed, width
from perftop.samples.metrics import METRICS
from perftop.tui.frame.machine_line import extent
from perftop.tui.shared.column_ring import Ring

if TYPE_CHECKING:
    from perftop.base.arrays import Floats
    from perftop.session.history import History
    from perftop.session.interval import Interval
    from perftop.session.sample_history import Times
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


def _there(told: Mapping[str, float]) -> list[Tile]:
    return [tile for tile in _TILES if not isnan(told.get(tile.key, nan))]


def numbers(told: Mapping[str, float], size: int) -> list[Run]:
    """All in one line; the least important ones go first where it is narrow."""
    pieces = [(tile.rank, _number(tile, told, wordy=size >= WORDY)) for tile in _there(told)]
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


class Past:
    """The past of each tile's number, of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._metrics = [tile.key for tile in _TILES if tile.key in METRICS]
        self._others = [tile.key for tile in _TILES if tile.key not in METRICS]
        self._ring = Ring(
            {"cpus": self._means, "machine": lambda past, at: past.machine(self._others, at)}
        )

    def lines(
        self, columns: Sequence[Column], interval: Interval, step_ns: int, size: int, rows: int = 1
    ) -> list[list[Run]]:
        """Below each number a cell each `step_ns`, in so many lines; the newest value is at the
        right end of its column."""
        lines: list[list[Run]] = [[(" ", "text")] for _ in range(rows)]
        end_ns, history = -(-interval.time_ns // step_ns) * step_ns, self._session.history
        if history is not None:
            self._ring.read(history, end_ns, step_ns, size, interval.time_ns)
        found = np.full((len(columns), max((each.cells for each in columns), default=1)), nan)
        for i, each in enumerate(columns if history is not None else ()):
            found[i, -each.cells :] = self._of(each.tile.key)[-each.cells :]
        made = _cells([each.tile for each in columns], found, rows)
        for (tile, room, cells, *_), values, texts in zip(columns, found, made, strict=True):
            keys = _heat(values[-cells:]) if tile.key == "steal" else [(tile.area, cells)]
            for line, text in zip(lines, texts, strict=True):
                line += [*_coloured(text[-cells:], keys), (" " * (room - cells), "text")]
        return [line[:-1] for line in lines]

    def _of(self, key: str) -> Floats:
        """The values of a tile, by bin; NaN where they are not known."""
        if key in METRICS:
            return self._ring["cpus"][:, self._metrics.index(key)]
        return self._ring["machine"][:, self._others.index(key)]

    def _means(self, history: History, edges_ns: Times) -> Floats:
        """(bins, metrics): over the CPUs that the user asked for."""
        fields = history.fields(self._metrics, self._session.shown, edges_ns)
        known = np.isfinite(fields)
        with np.errstate(invalid="ignore"):
            means: Floats = np.where(known, fields, 0.0).sum(2) / known.sum(2)
        return means


def _cells(tiles: Sequence[Tile], values: Floats, rows: int) -> list[list[str]]:
    """By tile the lines of cells of its values, from the top; unknown ones are blank."""
    most, known = 8 * rows, np.where(np.isfinite(values), values, 0.0)
    tops = np.fmax.reduce(known, axis=1, initial=0.0).tolist()
    scales = [
        1.0 if tile.least is None else max(tile.least, top)
        for tile, top in zip(tiles, tops, strict=True)
    ]
    eighths = np.rint(most * known / np.array(scales)[:, None])
    eighths = np.minimum(np.maximum(eighths, known > 0), most).astype(int)
    bases = np.arange(most - 8, -8, -8)[:, None]
    levels = np.minimum(np.maximum(eighths[:, None] - bases, 0), 8)
    cells = values.shape[1]
    text = _LEVELS[levels].tobytes().decode("utf-32-le")
    lines = [text[at : at + cells] for at in range(0, len(text), cells)]
    return [lines[at : at + rows] for at in range(0, len(lines), rows)]


_LEVELS = codes_of(theme.LEVELS).astype("<u4")


def _coloured(text: str, keys: Sequence[tuple[str, int]]) -> Iterator[Run]:
    """The text in stretches of these styles and lengths."""
    at = 0
    for key, count in keys:
        yield text[at : at + count], key
        at += count


def _heat(values: Floats) -> list[tuple[str, int]]:
    """Styles of cells of steal and how many have each: red as far back as it has been high without
    a break."""
    hot = (values >= HOT).tolist()
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
    kept: list[tuple[Tile, list[Run], int]] = []
    left = size - 2 + GAP
    for tile in sorted(_there(told), key=lambda tile: tile.rank):
        number = _number(tile, told, wordy=True)
        used = width(number)
        if used + GAP > left:
            break
        kept.append((tile, number, used))
        left -= used + GAP
    kept.sort(key=lambda one: _TILES.index(one[0]))
    ends = [left * (i + 1) // len(kept) for i in range(len(kept))]
    rooms = [
        used + GAP + end - start
        for (*_, used), start, end in zip(kept, [0, *ends], ends, strict=False)
    ]
    return [
        Column(tile, room, max(1, room - GAP), number, used)
        for (tile, number, used), room in zip(kept, rooms, strict=True)
    ]
