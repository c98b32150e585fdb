"""Rows over time, as cells: one field in the colours of the heat ramp."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby

import numpy as np

from perftop.base.arrays import Floats
from perftop.draw import charts, heat_ramp, theme
from perftop.draw.strips import Run
from perftop.model.numbers import Number
from perftop.model.smt import STATES
from perftop.session.session import Session
from perftop.tui.shared.fields import Scale, scale
from perftop.tui.shared.places import Place
from perftop.tui.shared.time_axis import Axis

_KNOWN = theme.HEAT + 1
"""Number of values that half a cell can have: unknown, or a step of the ramp."""
_AREAS = {"ipc": "ipc", "system": "kernel", "kernel_cycles": "kernel",
          "kernel_instructions": "kernel"}  # fmt: skip
"""Colours of tall lanes, as in the charts of the overview; all other fields have those of time."""


class Lanes:
    """One field over one axis. Rows are looked up when they are first drawn; those in sight are
    looked up together, which costs little more than one alone."""

    def __init__(
        self, session: Session, field: Number, axis: Axis, places: Sequence[Place], *, ascii_: bool
    ) -> None:
        self._session, self._field, self.axis, self._places = session, field, axis, places
        self._ascii = ascii_
        self.values: dict[int, Floats] = {}
        """Arrays (lanes, bins), by row."""
        self._levels: dict[int, np.ndarray] = {}
        self._charts: dict[tuple[int, int, int], list[list[Run]]] = {}
        self.scale = Scale(0.0, 1.0)

    def settle(self, rows: list[int], now: Floats, before: Lanes | None) -> None:
        """Look up the first rows. Their values and those of all CPUs `now` set the scale; the scale
        of `before` is kept while it suits them."""
        block = self._looked_up(rows, before)
        values = np.concatenate([block.ravel(), now])
        self.scale = scale(self._field, values, before.scale if before else None)
        self._keep(rows, block)

    def __contains__(self, row: int) -> bool:
        return row in self._levels

    def fetch(self, rows: Iterable[int]) -> None:
        missing = [row for row in dict.fromkeys(rows) if row not in self]
        self._keep(missing, self._looked_up(missing, None))

    def flat(self, row: int, lanes: Sequence[int]) -> list[Run]:
        """A line with one lane in whole cells, or with two in the halves of cells."""
        levels = self._levels[row]
        codes = levels[lanes[0]] * _KNOWN + levels[lanes[-1]]
        return _strip(codes.tobytes(), ascii_=self._ascii)

    def tall(self, row: int, lane: int, lines: int) -> list[list[Run]]:
        """A lane several lines high, in which height also shows the value."""
        at = row, lane, lines
        if at not in self._charts:
            low, high = self.scale.low, self.scale.high
            share = (self.values[row][lane] - low) / (high - low)
            area = _AREAS.get(self._field.key, "user")
            self._charts[at] = charts.area(share, lines, area, ascii_=self._ascii).lines()
        return self._charts[at]

    def _looked_up(self, rows: list[int], before: Lanes | None) -> Floats:
        """(lanes, bins) of these rows, one below the other. If `before` has them, only its last
        bin, which may have been incomplete, and newer ones are read from the history."""
        bins = self.axis.bins
        if before is None or not rows or any(row not in before for row in rows):
            return self._asked(rows, bins)
        then = before.axis
        moved = (self.axis.end_ns - then.end_ns) // then.bin_ns
        if (then.bin_ns, then.bins) != (self.axis.bin_ns, bins) or not 0 <= moved < bins:
            return self._asked(rows, bins)
        held = np.concatenate([before.values[row] for row in rows])
        block = np.concatenate([held[:, moved:-1], self._asked(rows, moved + 1)], axis=1)
        if (
            begin_ns := self._session.past.begin_ns
        ) is not None:  # history no longer has these bins
            block[:, : max(0, self.axis.bin(begin_ns + 1))] = np.nan
        return block

    def _asked(self, rows: list[int], bins: int) -> Floats:
        """The last `bins` bins of these rows, from the history."""
        history, places = self._session.past, [self._places[row] for row in rows]
        edges = self.axis.edges[-bins - 1 :]
        if self._field.of_core:
            states = history.states([place.cpus for place in places], edges)
            return states[:, :, STATES.index(self._field.key)].T
        return history.field(self._field.key, [cpu for p in places for cpu in p.rows], edges).T

    def _keep(self, rows: list[int], block: Floats) -> None:
        levels = (self.scale.levels(block) + 1).astype(np.uint8)
        end = 0
        for row, count in zip(rows, self._counts(rows), strict=True):
            start, end = end, end + count
            self.values[row], self._levels[row] = block[start:end], levels[start:end]

    def _counts(self, rows: list[int]) -> list[int]:
        """Number of lanes of each row."""
        return [1 if self._field.of_core else len(self._places[row].rows) for row in rows]


def strip(levels: np.ndarray, *, ascii_: bool) -> list[Run]:
    """A line of whole cells from steps of the ramp; -1: unknown."""
    codes = (levels + 1).astype(np.uint8)
    return _strip((codes * _KNOWN + codes).tobytes(), ascii_=ascii_)


@lru_cache(maxsize=1024)
def _strip(codes: bytes, *, ascii_: bool) -> list[Run]:
    """Cells from the levels of their halves; equal neighbours become one run. Cached, as most
    strips stay equal from one refresh to the next: callers must not change the list."""
    cells = _cells(ascii_=ascii_)
    runs: list[Run] = []
    for code, same in groupby(codes):
        shape, key = cells[code]
        runs.append((shape * len(list(same)), key))
    return runs


@lru_cache(maxsize=2)
def _cells(*, ascii_: bool) -> list[Run]:
    """Look of a cell for every pair of levels, upper half first, both from unknown upwards."""
    levels = range(heat_ramp.UNKNOWN, theme.HEAT)
    return [_cell(upper, lower, ascii_=ascii_) for upper in levels for lower in levels]


def _cell(upper: int, lower: int, *, ascii_: bool) -> Run:
    if max(upper, lower) < 0:
        return " ", "text"
    if not ascii_:
        return heat_ramp.halves(upper, lower, 1, ascii_)[0]
    shape, _ = heat_ramp.whole(upper, 1, ascii_)[0]
    return shape, f"heat{max(heat_ramp.FAINT, upper)}"


def marked(runs: list[Run], marks: Mapping[int, Run]) -> list[Run]:
    """The runs with these signs in place of some cells; `marks` is by cell."""
    if not marks:
        return runs
    found: list[Run] = []
    at = 0
    for text, key in runs:
        start, end = at, at + len(text)
        for cell in sorted(cell for cell in marks if start <= cell < end):
            found += [(text[at - start : cell - start], key), marks[cell]]
            at = cell + 1
        found.append((text[at - start :], key))
        at = end
    return [run for run in found if run[0]]
