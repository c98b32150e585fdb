"""Histories in the rows of the overview, and the time axis below them. Each cell is one interval,
and the newest is at the right edge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from perftop.base.arrays import Codes, Floats
from perftop.base.format import time_of_day
from perftop.draw import heat_ramp, theme
from perftop.draw.columns import Column, Run
from perftop.draw.strips import joined
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.overview.layout import BEFORE
from perftop.tui.shared import episode_style, time_axis
from perftop.tui.shared.places import Place
from perftop.tui.shared.row_episodes import RowEpisode
from perftop.tui.shared.time_axis import TICK, Axis, BinValues

_STEP = 0.5
"""The top of an IPC scale is a multiple of this."""
NAMED = 24
"""Minimum width of an axis that contains a clock time, in cells."""


def axis(session: Session, interval: Interval, cells: int) -> Axis:
    """Returns an axis of `cells` cells. Each cell is as long as the interval, in whole samples."""
    sample_ns = session.hello.sample_ns
    bin_ns = max(1, round(interval.elapsed_s * 1e9 / sample_ns)) * sample_ns
    return Axis(interval.time_ns, bin_ns, cells, interval.time_ns)


class RowHistories:
    """Utilisation and IPC histories of rows. The object is kept from one interval to the next, so
    that cells of past intervals are not read again."""

    def __init__(
        self, session: Session, places: Sequence[Place], work: int, ipc: int, *, ascii_: bool
    ) -> None:
        """`work` and `ipc`: widths of the utilisation and the IPC history, in cells; 0 if no column
        shows it."""
        self._session, self._places, self._ascii = session, places, ascii_
        self._work_cells, self._ipc_cells = work, ipc
        self._pairs = np.array([len(place.rows) == 2 for place in places], bool)
        self._sight: list[int] = []
        self._bins = self._past(self._sight)
        self._interval: Interval
        self._work: dict[int, bytes] = {}
        self._ipc: dict[int, Codes] = {}
        self.top_ipc = 0.0

    def read(self, interval: Interval, sight: list[int], top_ipc: float) -> None:
        """Reads the histories of the rows in sight up to the end of this interval. `top_ipc`: the
        top of the IPC scale so far; the scale only grows."""
        if sight != self._sight:
            self._sight, self._bins = sight, self._past(sight)
        self._interval, self.top_ipc = interval, top_ipc
        self._work.clear()
        self._ipc.clear()
        self._add(sight, self._bins)

    def _past(self, rows: Sequence[int]) -> BinValues:
        """Returns the history of the first and the last CPU of each of these rows."""
        places = [self._places[row] for row in rows]
        first, last = ([place.rows[at] for place in places] for at in (0, -1))
        keys, every = ("util", "ipc") if self._ipc_cells else ("util",), first + last
        return BinValues({"past": lambda history, at: history.fields(keys, every, at)})

    def _add(self, rows: Sequence[int], values: BinValues) -> None:
        """Makes the cells of all these rows at once, which costs little more than for one row."""
        work, ipc, history = self._work_cells, self._ipc_cells, self._session.history
        if not rows:
            return
        bins = max(work, ipc)
        if history is None:
            past = np.full((bins, 2, 2 * len(rows)), np.nan)
        else:
            bin_ns = axis(self._session, self._interval, bins).bin_ns
            end_ns = -(-self._interval.time_ns // bin_ns) * bin_ns
            # At a past moment, the newest cell is read to its end, unless that is later than now.
            now_ns = min(end_ns, self._session.now_ns)
            values.read(history, Axis(end_ns, bin_ns, bins, now_ns))
            past = values["past"]
        if work:
            self._work.update(zip(rows, self._shares(rows, past[-work:, 0]), strict=True))
        if ipc:
            util, of_first = past[-ipc:, 0, : len(rows)], past[-ipc:, 1, : len(rows)]
            shown = np.where(util >= heat_ramp.QUIET, of_first, np.nan).T
            highest = float(np.fmax.reduce(shown, axis=None, initial=0.0))
            self.top_ipc = max(self.top_ipc, _STEP * np.ceil(highest / _STEP), _STEP)
            self._ipc.update(zip(rows, heat_ramp.heights(shown, self.top_ipc), strict=True))

    def _shares(self, rows: Sequence[int], util: Floats) -> list[bytes]:
        steps = heat_ramp.steps(util.T)
        first, second = steps[: len(rows)], steps[len(rows) :]
        pairs = self._pairs[[*rows], None]
        cells = np.where(pairs, heat_ramp.paired(first, second), first)
        return [line.tobytes() for line in cells]

    def work(self, row: int) -> tuple[Run, ...]:
        if row not in self._work:
            self._add([row], self._past([row]))
        return heat_ramp.history(self._work[row], pair=bool(self._pairs[row]), ascii_=self._ascii)

    def ipc(self, row: int, trouble: RowEpisode | None) -> tuple[Run, ...]:
        """Returns the IPC history of the first thread. Cells during the running episode `trouble`
        are red if it lowers the IPC."""
        if row not in self._ipc:
            self._add([row], self._past([row]))
        cells = self._ipc[row]
        if trouble is not None and (self._places[row].rows[0], "ipc") in trouble.lost:
            along = axis(self._session, self._interval, self._ipc_cells)
            first = max(0, along.bin(trouble.episode.start_ns + 1))
            cells = heat_ramp.lost(cells.copy(), first)
        return heat_ramp.columns(cells.tobytes(), "ipc", ascii_=self._ascii)


def rule(columns: Iterable[Column], session: Session, interval: Interval) -> list[Run]:
    """Returns the line below the rows, with an axis below each column that shows a history."""
    runs: list[Run] = [(" " * BEFORE, "text")]
    for column in columns:
        runs.append((" " * (column.gap if column.left else column.width), "text"))
        if column.key in {"work", "past ipc"}:
            runs += _rule(session, interval, column.width - column.gap)
        elif column.left:
            runs.append((" " * (column.width - column.gap), "text"))
    return runs


def _rule(session: Session, interval: Interval, cells: int) -> list[Run]:
    along = axis(session, interval, cells)
    episodes = filter(episode_style.wrong, time_axis.episodes(along, session))
    line = time_axis.rule(along, episodes)
    if cells >= NAMED:
        at = cells // 6
        text = TICK + time_of_day(session.unix(along.start_ns + at * along.bin_ns))
        if all(run[0] == theme.RULE for run in line[at : at + len(text) + 1]):
            line[at : at + len(text)] = [(sign, "dim") for sign in text]
    return joined(line)
