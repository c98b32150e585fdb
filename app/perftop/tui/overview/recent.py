"""Histories beside the rows, and the time axis below them: each cell is one interval, the newest at
the right edge."""

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
from perftop.tui.shared.column_ring import Ring
from perftop.tui.shared.places import Place
from perftop.tui.shared.row_episodes import RowEpisode
from perftop.tui.shared.time_axis import TICK, Axis

_STEP = 0.5
"""Steps of the highest IPC of a scale."""
NAMED = 24
"""Minimum cells of an axis with a clock time in it."""


def axis(session: Session, interval: Interval, cells: int) -> Axis:
    """The time that `cells` cells cover: each is as long as the interval, in whole samples."""
    sample_ns = session.hello.sample_ns
    span_ns = max(1, round(interval.elapsed_s * 1e9 / sample_ns)) * sample_ns
    return Axis(interval.time_ns, span_ns, cells, interval.time_ns)


class RowHistories:
    """Utilisation and IPC of rows in the last spans. It is kept from one interval to the next, as
    spans that are over are not looked up again."""

    def __init__(
        self, session: Session, places: Sequence[Place], work: int, ipc: int, *, ascii_: bool
    ) -> None:
        """`work` and `ipc`: cells of each; 0 where no column shows it."""
        self._session, self._places, self._ascii = session, places, ascii_
        self._work_cells, self._ipc_cells = work, ipc
        self._pairs = np.array([len(place.rows) == 2 for place in places], bool)
        self._sight: list[int] = []
        self._ring = self._past(self._sight)
        self._interval: Interval
        self._work: dict[int, bytes] = {}
        self._ipc: dict[int, Codes] = {}
        self.top_ipc = 0.0

    def read(self, interval: Interval, sight: list[int], top_ipc: float) -> None:
        """Looks up the rows in sight up to the end of this interval. `top_ipc`: the scale so far,
        which only grows."""
        if sight != self._sight:
            self._sight, self._ring = sight, self._past(sight)
        self._interval, self.top_ipc = interval, top_ipc
        self._work.clear()
        self._ipc.clear()
        self._add(sight, self._ring)

    def _past(self, rows: Sequence[int]) -> Ring:
        """The past of the first and of the last CPU of these rows."""
        places = [self._places[row] for row in rows]
        first, last = ([place.rows[at] for place in places] for at in (0, -1))
        keys, every = ("util", "ipc") if self._ipc_cells else ("util",), first + last
        return Ring({"past": lambda history, at: history.fields(keys, every, at)})

    def _add(self, rows: Sequence[int], ring: Ring) -> None:
        """Makes the cells of these rows together, which costs little more than for one row."""
        work, ipc, history = self._work_cells, self._ipc_cells, self._session.history
        if not rows:
            return
        bins = max(work, ipc)
        if history is None:
            past = np.full((bins, 2, 2 * len(rows)), np.nan)
        else:
            bin_ns = axis(self._session, self._interval, bins).bin_ns
            end_ns = -(-self._interval.time_ns // bin_ns) * bin_ns
            # The span of a past moment is shown whole, as far as it is over by now.
            ring.read(history, end_ns, bin_ns, bins, min(end_ns, self._session.now_ns))
            past = ring["past"]
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
        """IPC of the first thread, red while an episode lowered it."""
        if row not in self._ipc:
            self._add([row], self._past([row]))
        cells = self._ipc[row]
        if trouble is not None and (self._places[row].rows[0], "ipc") in trouble.lost:
            along = axis(self._session, self._interval, self._ipc_cells)
            first = max(0, along.bin(trouble.episode.start_ns + 1))
            cells = heat_ramp.lost(cells.copy(), first)
        return heat_ramp.columns(cells.tobytes(), "ipc", ascii_=self._ascii)


def rule(columns: Iterable[Column], session: Session, interval: Interval) -> list[Run]:
    """The line below the rows: an axis below each column that shows the past."""
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
    line = time_axis.rule(along, episodes, interval.time_ns)
    if cells >= NAMED:
        at = cells // 6
        text = TICK + time_of_day(session.unix(along.start_ns + at * along.bin_ns))
        if all(run[0] == theme.RULE for run in line[at : at + len(text) + 1]):
            line[at : at + len(text)] = [(sign, "dim") for sign in text]
    return joined(line)
