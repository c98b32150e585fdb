"""The cells of all charts of a small machine, from its past."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import floor

import numpy as np

from perftop.base.arrays import Floats, Ints
from perftop.draw import charts
from perftop.draw.charts import RATES, Look, rows_of, top
from perftop.draw.strips import Run
from perftop.model.episode import Episode
from perftop.model.smt import bounds
from perftop.session.session import Session
from perftop.tui.overview.chart_numbers import Unit, lost
from perftop.tui.overview.chart_time import Past
from perftop.tui.shared.column_ring import Lookup
from perftop.tui.shared.episode_style import going
from perftop.tui.shared.sheet import AWAKE
from perftop.tui.shared.trouble import loser

_FLOOR_HZ = 0.5e9
"""The floor of a clock's scale is a multiple of this."""


def _may_be_bounds(session: Session) -> bool:
    """Whether only bounds of the states are known, or may be: a factor can be refused until it is
    settled."""
    key = session.sieve.splitter.counted()
    found = session.calibrations.get(key or "")
    return key is None or (found is not None and found.state != "settled")


@dataclass(slots=True)
class Drawn:
    """The chart lines of a unit; those of clock and rate are empty where there is no chart."""

    area: list[list[Run]]
    clock: list[list[Run]]
    rate: list[list[Run]]
    low_hz: float


class Drawing:
    """Charts of the same units, one moment after the other."""

    def __init__(self, session: Session, units: Sequence[Unit], *, counted: bool) -> None:
        self._session, self._units, self._counted = session, units, counted
        rows = [row for unit in units for row in unit.rows]
        at = {row: i for i, row in enumerate(rows)}
        self._of = [[at[row] for row in unit.rows] for unit in units]
        """By unit, the indices of its CPUs in values of CPUs."""
        self._first = np.array([mine[0] for mine in self._of], int)
        self._last = np.array([mine[-1] for mine in self._of], int)
        types = [unit.type for unit in units]
        self._alike = [np.flatnonzero([one == type_ for one in types]) for type_ in {*types}]
        """The units of each type."""
        cores = [[*unit.cpus] for unit in units]
        self._pairs = [i for i, unit in enumerate(units) if unit.pair]
        account = () if len(self._pairs) == len(units) else ("user", "system", "steal")
        keys = ["util", *account, *(("busy_hz", "ipc") if counted else ())]
        lookups: dict[str, Lookup] = {}
        if counted:  # where there are pairs, too
            lookups["cores"] = lambda history, at: history.cores(cores, at)
        self._bounded = _may_be_bounds(session)
        self.past = Past(session, keys, rows, lookups)
        self._top = 1.0

    def draw(
        self, episodes: Iterable[Episode], rows: int, rate_rows: int, look: Look
    ) -> list[Drawn]:
        """The charts after `past.read`. `rate_rows`: lines of the charts of IPC; 0: none."""
        drawn = [Drawn([], [], [], 0.0) for _ in self._units]
        episodes = [e for e in episodes if lost(e)]
        singles = [i for i, unit in enumerate(self._units) if not unit.pair]
        made: list[tuple[Sequence[int], list[list[list[Run]]]]] = []
        if self._pairs:
            made.append((self._pairs, self._states(rows, look)))
        if singles:
            made.append((singles, self._account(singles, episodes, rows, look)))
        for which, found in made:
            for i, mine in zip(which, found, strict=True):
                drawn[i].area = mine
        if self._counted:
            busier = self._busier()
            self._clocks(drawn, busier, episodes, rows, look)
            if rate_rows:
                self._rates(drawn, busier["ipc"], episodes, rate_rows, look)
        return drawn

    def _account(
        self, which: Sequence[int], episodes: Sequence[Episode], rows: int, look: Look
    ) -> list[list[list[Run]]]:
        """Where the time of CPUs goes. The account divides what is known to be busy, which is finer
        than the ticks of the account."""
        at = [self._of[i][0] for i in which]
        busy, user, kernel, steal = (
            self.past.of(key)[at] for key in ("util", "user", "system", "steal")
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            part = kernel / (user + kernel)
        part = np.where(np.isfinite(part), part, 0.0)
        heat = self._marked(which, episodes, "steal", charts.OVER, charts.HOT)
        values = _by_column(busy * (1 - part), busy * part, steal, heat)
        return [rows_of(charts.account(columns, rows, look)) for columns in values]

    def _states(self, rows: int, look: Look) -> list[list[list[Run]]]:
        """The states of cores; where they are unknown, what the utilisation of both allows."""
        _, lp0, lp1, both, _ = self.past.of("cores")[self._pairs].swapaxes(0, 1)
        open_, unknown, span = np.zeros(both.shape), np.isnan(both), self.past.span
        if self._bounded and np.count_nonzero(unknown[:, span.columns - span.known :]):
            util = self.past.of("util")
            first, second = ([self._of[i][at] for i in self._pairs] for at in (0, 1))
            low, high = bounds(util[first], util[second])
            open_ = np.where(unknown, high[..., 3] - low[..., 3], 0.0)
            lp0, lp1, both = (
                np.where(unknown, low[..., at], value)
                for at, value in enumerate((lp0, lp1, both), 1)
            )
        values = _by_column(both, open_, lp0, lp1)
        return [rows_of(charts.states(columns, rows, look)) for columns in values]

    def _marked(
        self, which: Sequence[int], episodes: Sequence[Episode], name: str, over: int, now: int
    ) -> Ints:
        """(charts, columns): `now` while an episode runs that makes this number worse, `over` while
        one ran that has ended, else 0."""
        span = self.past.span
        found = np.zeros((len(which), span.columns), np.intp)
        for episode in episodes:
            stretch = span.stretch(episode) if lost(episode) == name else None
            if stretch is None:
                continue
            value = now if going(episode, span.now_ns) else over
            hit = [n for n, i in enumerate(which)
                   if not {*self._units[i].cpus}.isdisjoint(episode.cpus)]  # fmt: skip
            columns = slice(stretch[0].start, stretch[0].stop)
            found[hit, columns] = np.maximum(found[hit, columns], value)
        return found

    def _busier(self) -> Mapping[str, Floats]:
        """(units, columns) by metric: the value of the CPU that had more to do in each column, of
        two that had as much the first."""
        keys, values = self.past.metrics, self.past.of_cpus
        util = values[keys.index("util")]
        rank = np.where(np.isnan(util), -1.0, util.round(2))  # as `busiest` has it
        later = rank[self._last] > rank[self._first]
        found = np.where(later, values[:, self._last], values[:, self._first])
        return dict(zip(keys, found, strict=True))

    def _clocks(
        self, drawn: list[Drawn], busier: Mapping[str, Floats], episodes: Sequence[Episode],
        rows: int, look: Look,
    ) -> None:  # fmt: skip
        hz = busier["busy_hz"]
        every = [*range(len(self._units))]
        how = self._marked(every, episodes, "clock", charts.AWAKE, charts.LOST)
        asleep = ~(busier["util"] >= AWAKE)
        how[asleep & (how != charts.LOST)] = charts.ASLEEP
        ceiling = self.past.of("cores")[:, -1]
        low, high = self._ends(np.where(asleep, np.nan, hz), hz, ceiling)
        ends = zip(low.tolist(), high.tolist(), strict=True)
        for one, columns, (floor_hz, top_hz) in zip(
            drawn, _by_column(hz, ceiling, how), ends, strict=True
        ):
            one.clock = rows_of(charts.clock(columns, (floor_hz, top_hz), rows, look))
            one.low_hz = floor_hz

    def _ends(self, awake: Floats, hz: Floats, ceiling: Floats) -> tuple[Floats, Floats]:
        """The ends of the scales, which units of one type share: the floor below the lowest clock
        at work, and the highest ceiling."""
        low, high = np.zeros(len(hz)), np.zeros(len(hz))
        for mine in self._alike:
            most = float(np.fmax.reduce(ceiling[mine], axis=None, initial=0.0))
            most = most or float(np.fmax.reduce(hz[mine], axis=None, initial=_FLOOR_HZ))
            least = float(np.fmin.reduce(awake[mine], axis=None, initial=most))
            bottom = floor(least / _FLOOR_HZ + 1e-6) * _FLOOR_HZ
            low[mine], high[mine] = min(bottom, most - _FLOOR_HZ), most
        return low, high

    def _rates(
        self, drawn: list[Drawn], values: Floats, episodes: Sequence[Episode], rows: int, look: Look
    ) -> None:
        """`values`: of the CPU that had more to do; a CPU that loses some takes its place."""
        running = [e for e in episodes if going(e, self.past.span.now_ns)]
        for i, unit in enumerate(self._units):
            if (at := loser(unit.cpus, running, "ipc")) is not None:
                values[i] = self.past.of("ipc")[self._of[i][at]]
        self._top = top(values, RATES, self._top)
        every = [*range(len(self._units))]
        how = self._marked(every, episodes, "IPC", charts.AWAKE, charts.LOST)
        for one, columns in zip(drawn, _by_column(values, how), strict=True):
            one.rate = rows_of(charts.rate(columns, self._top, rows, look))


def _by_column(*kinds: Floats | Ints) -> Floats:
    """(charts, columns, kinds), from kinds of (charts, columns)."""
    return np.stack(kinds, axis=2, dtype=float)
