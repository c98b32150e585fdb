"""The machine's numbers where no core can be counted: what CPUs did by the system's account, and
what tasks waited for, each with its own past below it where there is room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan, nan
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from perftop.draw import theme
from perftop.draw.strips import Run, number, shed, width
from perftop.samples.metrics import METRICS
from perftop.session import history
from perftop.tui.frame.machine_line import extent

if TYPE_CHECKING:
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
    area: str
    """Colour of its past."""
    weight: int = 3
    """Share of the line that it gets."""


_TILES = (
    Tile("util", "busy", "busy", 0, "user-9"),
    Tile("user", "user", "user", 3, "user-7"),
    Tile("system", "kernel", "kernel", 4, "kernel-9"),
    Tile("steal", "steal", "steal", 1, "steal"),
    Tile("pressure_cpu", "waits for a CPU", "waits", 2, "dim", 4),
    Tile("pressure_io", "for a disk", "disk", 6, "dim"),
    Tile("pressure_memory", "for memory", "memory", 7, "dim"),
)
HOT = METRICS["steal"].stands_out
LEAST = 0.1
"""Least top of the scale of a number that is mostly small."""
_SMALL = frozenset({"steal", "pressure_io", "pressure_memory"})


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
    wordy = size >= WORDY
    pieces = [
        (tile.rank, _number(tile, told, tile.name if wordy else tile.brief))
        for tile in _there(told)
    ]
    return [(" ", "text"), *shed(pieces, size - 2, GAP)]


def _number(tile: Tile, told: Mapping[str, float], name: str) -> list[Run]:
    value = told[tile.key]
    hot = tile.key == "steal" and value >= HOT
    style = "alarm" if hot else "bright" if tile.rank < 3 else "text"
    return [(f"{name} ", "dim"), number(100 * value, 1, 5, style), (" %", "dim")]


def wide(told: Mapping[str, float], size: int) -> list[Run]:
    """The numbers, each at the left end of its column."""
    runs: list[Run] = [(" ", "text")]
    shown = _there(told)
    for tile, room in zip(shown, _columns(shown, size), strict=True):
        one = _number(tile, told, tile.name)
        runs += [*one, (" " * max(0, room - width(one)), "text")]
    return runs[:-1]


def past(session: Session, interval: Interval, step_ns: int, size: int) -> list[Run]:
    """What became of each number, below it, a cell each `step_ns`; the newest value is at the right
    end of its column."""
    runs: list[Run] = [(" ", "text")]
    shown = _there(values(session, interval))
    for tile, room in zip(shown, _columns(shown, size), strict=True):
        cells = max(1, room - GAP)
        found = _series(session, tile.key, history.edges(interval.time_ns, step_ns, cells))
        top = max((v for v in found if not isnan(v)), default=0.0)
        scale = max(LEAST, top) if tile.key in _SMALL else 1.0
        runs += [*_cells(tile, found, scale), (" " * (room - cells), "text")]
    return runs[:-1]


def _series(session: Session, key: str, edges_ns: Times) -> list[float]:
    """A number of the machine over each of these spans; NaN where it is not known."""
    if session.history is None:
        return [nan] * (len(edges_ns) - 1)
    if key not in METRICS:
        return [*map(float, session.history.machine(key, edges_ns))]
    field = session.history.field(key, session.shown, edges_ns)
    known = np.isfinite(field)
    with np.errstate(invalid="ignore"):
        means = np.where(known, field, 0.0).sum(1) / known.sum(1)
    return [*map(float, means)]


def _cells(tile: Tile, values: list[float], scale: float) -> list[Run]:
    """Cells of these values. Steal is red as far back as it has been high without a break."""
    runs: list[Run] = []
    now = True
    for value in reversed(values):
        hot = tile.key == "steal" and value >= HOT
        now &= hot
        eighths = 0 if isnan(value) else max(min(8, round(8 * value / scale)), int(value > 0))
        runs.append((theme.LEVELS[eighths], "alarm" if now else "over" if hot else tile.area))
    return runs[::-1]


def _columns(shown: Sequence[Tile], size: int) -> list[int]:
    """Cells of each tile, the gap behind it included."""
    whole, weights = size - 2 + GAP, [tile.weight for tile in shown]
    ends = [whole * sum(weights[: i + 1]) // sum(weights) for i in range(len(weights))]
    return [end - start for start, end in zip([0, *ends], ends, strict=False)]
