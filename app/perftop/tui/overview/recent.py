"""The past beside the rows, and the time axis below it: each cell is one interval, the newest at
the right edge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from perftop.base.arrays import Codes, Floats
from perftop.base.times import clock
from perftop.draw import histories, theme
from perftop.draw.strips import Run, joined
from perftop.session.history import edges
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.overview.layout import BEFORE
from perftop.tui.shared import episode_style, time_axis
from perftop.tui.shared.placed_column import Placed
from perftop.tui.shared.places import Place
from perftop.tui.shared.time_axis import TICK, Axis
from perftop.tui.shared.trouble import Trouble

_STEP = 0.5
"""Steps of the highest IPC of a scale."""
NAMED = 24
"""Minimum cells of an axis with a clock time in it."""


def axis(session: Session, interval: Interval, cells: int) -> Axis:
    """The time that `cells` cells cover: each is as long as the interval, in whole samples."""
    sample_ns = session.hello.sample_ns
    span_ns = max(1, round(interval.elapsed_s * 1e9 / sample_ns)) * sample_ns
    return Axis(interval.time_ns, span_ns, cells, interval.time_ns)


class Recent:
    """Utilisation and IPC of rows in the last spans."""

    def __init__(
        self, session: Session, interval: Interval, places: Sequence[Place], work: int, ipc: int,
        top_ipc: float, *, ascii_: bool,
    ) -> None:  # fmt: skip
        """`work` and `ipc`: cells of each; 0 where no column shows it. `top_ipc`: the scale so
        far, which only grows."""
        self._session, self._places, self._ascii = session, places, ascii_
        self._work_axis, self._ipc_axis = (axis(session, interval, n) for n in (work, ipc))
        self._work: dict[int, bytes] = {}
        self._ipc: dict[int, Codes] = {}
        self.top_ipc = top_ipc

    def fetch(self, wanted: Iterable[int]) -> None:
        """Look up these rows together, which costs little more than one alone."""
        rows = [*wanted]
        if not rows:
            return
        work, ipc = self._work_axis.bins, self._ipc_axis.bins
        if work:
            self._work.update(zip(rows, self._shares(rows), strict=True))
        if ipc:
            cpus = [self._places[row].rows[0] for row in rows]
            values = self._of("ipc", cpus, self._ipc_axis)
            busy = self._of("util", cpus, self._ipc_axis) >= histories.QUIET
            values = np.where(busy, values, np.nan)
            highest = float(np.fmax.reduce(values, axis=None, initial=0.0))
            self.top_ipc = max(self.top_ipc, _STEP * np.ceil(highest / _STEP), _STEP)
            self._ipc.update(zip(rows, histories.heights(values, self.top_ipc), strict=True))

    def _shares(self, rows: Sequence[int]) -> list[bytes]:
        places = [self._places[row] for row in rows]
        cpus = [place.rows[at] for at in (0, -1) for place in places]
        steps = histories.steps(self._of("util", cpus, self._work_axis))
        first, second = steps[: len(places)], steps[len(places) :]
        pairs = np.array([len(place.rows) == 2 for place in places])
        cells = np.where(pairs[:, None], histories.paired(first, second), first)
        return [line.tobytes() for line in cells]

    def _of(self, key: str, cpus: list[int], along: Axis) -> Floats:
        """(rows, cells): a metric of CPUs given by position."""
        history = self._session.history
        if history is None:
            return np.full((len(cpus), along.bins), np.nan)
        return history.field(key, cpus, edges(along.end_ns, along.bin_ns, along.bins)).T

    def work(self, row: int) -> tuple[Run, ...]:
        if row not in self._work:
            self.fetch([row])
        cells = self._work[row]
        if len(self._places[row].rows) == 2:
            return histories.halves(cells)
        return histories.field(cells, ascii_=self._ascii)

    def ipc(self, row: int, trouble: Trouble | None) -> tuple[Run, ...]:
        """IPC of the first thread, red while an episode lowered it."""
        if row not in self._ipc:
            self.fetch([row])
        cells = self._ipc[row]
        if trouble is not None and (self._places[row].rows[0], "ipc") in trouble.lost:
            first = max(0, self._ipc_axis.bin(trouble.episode.start_ns + 1))
            cells = histories.lost(cells.copy(), first)
        return histories.columns(cells.tobytes(), "ipc", ascii_=self._ascii)


def rule(columns: Iterable[Placed], session: Session, interval: Interval) -> list[Run]:
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
        text = TICK + clock(session.unix(along.start_ns + at * along.bin_ns))
        if all(run[0] == theme.RULE for run in line[at : at + len(text) + 1]):
            line[at : at + len(text)] = [(sign, "dim") for sign in text]
    return joined(line)
