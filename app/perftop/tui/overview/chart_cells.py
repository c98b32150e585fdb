"""The charts of the overview: columns of time, their values from the history for all units, the
cells of the charts, and the axis below with round times and episodes.

The newest column is at the right edge. Columns from before the start of the history are blank and
have no axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from math import ceil, floor

import numpy as np

from perftop.base.arrays import Floats, Ints
from perftop.draw import charts, theme
from perftop.draw.charts import RATES, Look, rows_of, top
from perftop.draw.columns import Run
from perftop.draw.strips import joined
from perftop.model.episode import Episode
from perftop.model.smt import bounds
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.overview.chart_numbers import Unit, lost
from perftop.tui.shared.column_ring import Lookup, Ring
from perftop.tui.shared.episode_style import going
from perftop.tui.shared.row_episodes import loser
from perftop.tui.shared.sheet import AWAKE
from perftop.tui.shared.time_axis import TICK, Unix, round_times, strokes

STEPS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)
"""Possible distances between ticks, in seconds."""
_APART = 2
"""Minimum distance between two time labels, in cells."""


@dataclass(frozen=True, slots=True)
class Span:
    """The time covered by a chart, in bins of equal length. The last bin contains the newest
    moment."""

    end_ns: int
    """End of the last bin in raw ns, a multiple of `bin_ns`; it may be later than `now_ns`."""
    bin_ns: int
    wide: int
    """Columns of each bin."""
    columns: int
    known: int
    """Number of columns, from the right, that the history covers."""
    now_ns: int
    """The newest moment, in raw ns."""
    per: int = 1
    """Columns of each cell of the axis."""

    @property
    def cells(self) -> int:
        return self.columns // self.per

    @property
    def free(self) -> int:
        """Number of cells, from the left, before the start of the history."""
        return (self.columns - self.known) // self.per

    @property
    def bins(self) -> int:
        """Number of bins in the chart."""
        return self.columns // self.wide

    @property
    def start_ns(self) -> int:
        return self.end_ns - self.bins * self.bin_ns

    def column(self, time_ns: int) -> int:
        """Returns the first column of the bin that contains a moment; it may be off the chart."""
        before = (self.end_ns - time_ns) // self.bin_ns  # an edge belongs to the earlier bin
        return self.columns - (before + 1) * self.wide

    def stretch(self, episode: Episode) -> tuple[range, bool] | None:
        """Returns the cells of an episode, and whether its start is visible; None if the episode is
        off the chart or begins after the newest moment."""
        if episode.start_ns > self.now_ns:
            return None
        end_ns = self.now_ns if episode.end_ns is None else min(episode.end_ns, self.now_ns)
        first = self.column(episode.start_ns + 1)
        last = max(first, self.column(end_ns)) + self.wide - 1
        edge = self.columns - self.known
        if last < edge or first >= self.columns:
            return None
        seen = first >= edge
        first, last = max(edge, first), min(last, self.columns - 1)
        return range(first // self.per, last // self.per + 1), seen


# --- the values of columns

MAX_COLUMNS_IN_BIN = 4
"""Maximum columns of a bin while the history is short, so that it fills more of the chart."""
_SHORTER = 0.6, 0.8
"""Shorter bin lengths used while the history is short, as fractions of the usual length."""
_STEADY = 3
"""Number of successive intervals of a new length after which bins adopt it. A single such interval
may just have ended late."""


class ColumnHistory:
    """Values of the columns of charts, read from the history: one series for each key, CPU and
    core."""

    def __init__(
        self, session: Session, metrics: Sequence[str], rows: Sequence[int],
        lookups: dict[str, Lookup],
    ) -> None:  # fmt: skip
        """`metrics`: keys of metrics, read for the CPUs at the positions `rows`. `lookups`: further
        series, by key."""
        self._session, self.metrics = session, metrics
        self._keys = "cpus", *lookups
        self._ring = Ring(
            {"cpus": lambda history, at: history.fields(metrics, rows, at), **lookups}
        )
        self._found: dict[str, Floats] = {}
        """Values by key, as arrays (..., columns)."""
        self._step_ns = 0
        self._unusual = 0
        self.span = Span(0, 1, 1, 0, 0, 0)

    def read(self, interval: Interval, columns: int, window_s: float) -> None:
        """Reads the values of `columns` columns up to the end of this interval. Bins are whole
        samples. Once there is enough history, a bin is as long as an interval, or longer if the
        window requires it."""
        now_ns, history = interval.time_ns, self._session.history
        first_ns = None if history is None else history.first_ns
        since_ns = now_ns if first_ns is None else min(first_ns - 1, now_ns - 1)
        for bin_ns, wide in self._bins(self._step(interval), columns, window_s):
            end_ns = -(-now_ns // bin_ns) * bin_ns
            known = (end_ns - since_ns - 1) // bin_ns + 1
            if known * wide <= columns:
                break
        known = min(known * wide, columns // wide * wide)
        self.span = Span(end_ns, bin_ns, wide, columns, known, now_ns)
        if history is not None:
            self._ring.read(history, end_ns, bin_ns, self.span.bins, now_ns)
            self._found = {key: self._columns(self._ring[key]) for key in self._keys}

    def _bins(self, step_ns: int, columns: int, window_s: float) -> list[tuple[int, int]]:
        """Returns possible bin lengths, in ns, with their number of columns. Those that spread the
        history over most columns come first."""
        sample_ns = self._session.hello.sample_ns
        usual = max(step_ns, _whole(window_s * 1e9 / columns, sample_ns))
        shorter = [_whole(part * usual, sample_ns) for part in _SHORTER]
        return [
            *((usual, wide) for wide in range(MAX_COLUMNS_IN_BIN, 1, -1)),
            *((bin_ns, 1) for bin_ns in shorter if bin_ns < usual),
            (usual, 1),
        ]

    def _step(self, interval: Interval) -> int:
        """Returns the usual length of an interval in ns, rounded to whole samples."""
        sample_ns = self._session.hello.sample_ns
        step_ns = max(1, round(interval.elapsed_s * 1e9 / sample_ns)) * sample_ns
        self._unusual = 0 if step_ns == self._step_ns else self._unusual + 1
        if not self._step_ns or self._unusual >= _STEADY:
            self._step_ns, self._unusual = step_ns, 0
        return self._step_ns

    def series(self, key: str) -> Floats:
        """Returns the values of all columns, (..., columns); NaN where they are unknown."""
        found = self._found.get(key)
        return self.of_cpus[self.metrics.index(key)] if found is None else found

    @property
    def of_cpus(self) -> Floats:
        """Values of the metrics of CPUs, (metrics, CPUs, columns)."""
        return self._found["cpus"]

    def _columns(self, values: Floats) -> Floats:
        """Returns the values of columns, (..., columns), from the values of bins, (bins, ...)."""
        known = values.transpose(*range(1, values.ndim), 0)
        if self.span.wide == 1:
            return known
        known = known.repeat(self.span.wide, axis=-1)
        missing = self.span.columns - known.shape[-1]
        found = np.full((*known.shape[:-1], self.span.columns), np.nan)
        found[..., missing:] = known
        return found

    @property
    def dots(self) -> Span:
        """The span of a chart in which each cell is two columns."""
        return replace(self.span, per=2)


def _whole(ns: float, sample_ns: int) -> int:
    """Returns the length in ns, rounded up to whole samples."""
    return max(1, ceil(ns / sample_ns)) * sample_ns


# --- cells

_FLOOR_HZ = 0.5e9
"""The lower end of a clock's scale is a multiple of this, in Hz."""


def _may_be_bounds(session: Session) -> bool:
    """Returns whether the SMT states may be known only within bounds: if no counter shows them, or
    if the counter's calibration factor is not settled and can still be refused."""
    key = session.reader.splitter.any_counter()
    found = session.calibrations.get(key or "")
    return key is None or (found is not None and found.state != "settled")


@dataclass(slots=True)
class UnitCharts:
    """The lines of a unit's charts. `clock` and `rate` are empty if there is no such chart."""

    area: list[list[Run]]
    clock: list[list[Run]]
    rate: list[list[Run]]
    low_hz: float


class ChartDrawer:
    """Draws the charts of some units, repeatedly for successive moments."""

    def __init__(self, session: Session, units: Sequence[Unit], *, counted: bool) -> None:
        self._session, self._units, self._counted = session, units, counted
        rows = [row for unit in units for row in unit.rows]
        at = {row: i for i, row in enumerate(rows)}
        self._of = [[at[row] for row in unit.rows] for unit in units]
        """For each unit, the indices of its CPUs in arrays of CPU values."""
        self._first = np.array([rows[0] for rows in self._of], int)
        self._last = np.array([rows[-1] for rows in self._of], int)
        types = [unit.type for unit in units]
        self._alike = [np.flatnonzero([one == type_ for one in types]) for type_ in {*types}]
        """For each type of core, the indices of its units."""
        cores = [[*unit.cpus] for unit in units]
        self._pairs = [i for i, unit in enumerate(units) if unit.pair]
        account = () if len(self._pairs) == len(units) else ("user", "system", "steal")
        keys = ["util", *account, *(("busy_hz", "ipc") if counted else ())]
        lookups: dict[str, Lookup] = {}
        if counted:  # pairs exist only if clocks are counted
            lookups["cores"] = lambda history, at: history.cores(cores, at)
        self._bounded = _may_be_bounds(session)
        self.past = ColumnHistory(session, keys, rows, lookups)
        self._top = 1.0

    def draw(
        self, episodes: Iterable[Episode], rows: int, rate_rows: int, look: Look
    ) -> list[UnitCharts]:
        """Returns the charts of all units. Call `past.read` first. `rate_rows`: lines of the IPC
        charts; 0 if there are none."""
        drawn = [UnitCharts([], [], [], 0.0) for _ in self._units]
        episodes = [e for e in episodes if lost(e)]
        singles = [i for i, unit in enumerate(self._units) if not unit.pair]
        made: list[tuple[Sequence[int], list[list[list[Run]]]]] = []
        if self._pairs:
            made.append((self._pairs, self._states(rows, look)))
        if singles:
            made.append((singles, self._account(singles, episodes, rows, look)))
        for which, found in made:
            for i, area in zip(which, found, strict=True):
                drawn[i].area = area
        if self._counted:
            busier = self._busier()
            self._clocks(drawn, busier, episodes, rows, look)
            if rate_rows:
                self._rates(drawn, busier["ipc"], episodes, rate_rows, look)
        return drawn

    def _account(
        self, which: Sequence[int], episodes: Sequence[Episode], rows: int, look: Look
    ) -> list[list[list[Run]]]:
        """The uses of CPU time. The account divides the busy time, which is measured more finely
        than the ticks of the account."""
        at = [self._of[i][0] for i in which]
        busy, user, kernel, steal = (
            self.past.series(key)[at] for key in ("util", "user", "system", "steal")
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            part = kernel / (user + kernel)
        part = np.where(np.isfinite(part), part, 0.0)
        heat = self._marked(which, episodes, "steal", charts.OVER, charts.HOT)
        values = _by_column(busy * (1 - part), busy * part, steal, heat)
        return [rows_of(charts.account(columns, rows, look)) for columns in values]

    def _states(self, rows: int, look: Look) -> list[list[list[Run]]]:
        """Returns charts of the SMT states of cores. Where the states are unknown, their bounds are
        drawn, which follow from the utilisation of both threads."""
        _, lp0, lp1, both, _ = self.past.series("cores")[self._pairs].swapaxes(0, 1)
        open_, unknown, span = np.zeros(both.shape), np.isnan(both), self.past.span
        if self._bounded and np.count_nonzero(unknown[:, span.columns - span.known :]):
            util = self.past.series("util")
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
        """Returns markers of episodes that make the number `name` worse, (charts, columns): `now`
        during a running episode, `over` during an ended one, else 0."""
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
        """Returns, by metric, the value of the busier CPU in each column, (units, columns). If both
        CPUs are equally busy, it is the value of the first."""
        keys, values = self.past.metrics, self.past.of_cpus
        util = values[keys.index("util")]
        rank = np.where(np.isnan(util), -1.0, util.round(2))  # as in `busiest`
        later = rank[self._last] > rank[self._first]
        found = np.where(later, values[:, self._last], values[:, self._first])
        return dict(zip(keys, found, strict=True))

    def _clocks(
        self, drawn: list[UnitCharts], busier: Mapping[str, Floats], episodes: Sequence[Episode],
        rows: int, look: Look,
    ) -> None:  # fmt: skip
        hz = busier["busy_hz"]
        every = [*range(len(self._units))]
        how = self._marked(every, episodes, "clock", charts.AWAKE, charts.LOST)
        asleep = ~(busier["util"] >= AWAKE)
        how[asleep & (how != charts.LOST)] = charts.ASLEEP
        ceiling = self.past.series("cores")[:, -1]
        low, high = self._ends(np.where(asleep, np.nan, hz), hz, ceiling)
        ends = zip(low.tolist(), high.tolist(), strict=True)
        for one, columns, (floor_hz, top_hz) in zip(
            drawn, _by_column(hz, ceiling, how), ends, strict=True
        ):
            one.clock = rows_of(charts.clock(columns, (floor_hz, top_hz), rows, look))
            one.low_hz = floor_hz

    def _ends(self, awake: Floats, hz: Floats, ceiling: Floats) -> tuple[Floats, Floats]:
        """Returns the lower and upper ends of the clock scales, in Hz. All units of a type have the
        same scale: from just below the lowest clock of a busy CPU to the highest ceiling."""
        low, high = np.zeros(len(hz)), np.zeros(len(hz))
        for alike in self._alike:
            most = float(np.fmax.reduce(ceiling[alike], axis=None, initial=0.0))
            most = most or float(np.fmax.reduce(hz[alike], axis=None, initial=_FLOOR_HZ))
            least = float(np.fmin.reduce(awake[alike], axis=None, initial=most))
            bottom = floor(least / _FLOOR_HZ + 1e-6) * _FLOOR_HZ
            low[alike], high[alike] = min(bottom, most - _FLOOR_HZ), most
        return low, high

    def _rates(
        self,
        drawn: list[UnitCharts],
        values: Floats,
        episodes: Sequence[Episode],
        rows: int,
        look: Look,
    ) -> None:
        """Adds the IPC charts to `drawn`. `values`: the IPC of the busier CPU of each unit; for
        units with a CPU that is losing IPC, that CPU's values replace them."""
        running = [e for e in episodes if going(e, self.past.span.now_ns)]
        for i, unit in enumerate(self._units):
            if (at := loser(unit.cpus, running, "ipc")) is not None:
                values[i] = self.past.series("ipc")[self._of[i][at]]
        self._top = top(values, RATES, self._top)
        every = [*range(len(self._units))]
        how = self._marked(every, episodes, "IPC", charts.AWAKE, charts.LOST)
        for one, columns in zip(drawn, _by_column(values, how), strict=True):
            one.rate = rows_of(charts.rate(columns, self._top, rows, look))


def _by_column(*kinds: Floats | Ints) -> Floats:
    """Stacks arrays (charts, columns) into one array (charts, columns, kinds)."""
    return np.stack(kinds, axis=2, dtype=float)


# --- the axis


def ticks(span: Span, step_s: int, unix: Unix) -> list[tuple[int, str]]:
    """Returns the columns of round times and their labels, from the left."""
    first_ns = span.end_ns - span.known * span.bin_ns // span.wide
    seen = takewhile(lambda one: one[0] <= span.now_ns, round_times(first_ns, step_s, unix))
    return [(span.column(at_ns), text) for at_ns, text in seen]


def in_cells(span: Span, columns: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    """Converts (column, text) pairs to (cell, text) pairs; those before the history are left
    out."""
    found = ((column // span.per, text) for column, text in columns)
    return [(cell, text) for cell, text in found if cell >= span.free]


def step(span: Span, room: int) -> int:
    """Returns the smallest distance between ticks, in seconds, that leaves `room` cells for each
    tick."""
    return next(
        (s for s in STEPS_S if s * 10**9 * span.wide >= room * span.per * span.bin_ns), STEPS_S[-1]
    )


def rule(
    span: Span, episodes: Iterable[Episode], marks: Iterable[tuple[int, str]], *, inside: bool
) -> list[Run]:
    """Returns the line of the axis, with a stroke for each episode and the episode's sign at its
    start. `inside`: whether times are written into this line; they never cover signs or running
    episodes."""
    cells: list[Run] = [(" ", "text")] * span.free
    cells += [(theme.RULE, "rule")] * (span.cells - span.free)
    for cell, _ in marks:
        if 0 <= cell < span.cells and not inside:
            cells[cell] = (TICK, "faint")
    strokes(cells, episodes, span.now_ns, span.stretch)
    if inside:
        _write(cells, marks, span)
    return joined(cells)


def _write(cells: list[Run], marks: Iterable[tuple[int, str]], span: Span) -> None:
    """Writes the times into the line. They may cover its rule and the strokes of ended episodes."""
    ended = (theme.CLOCK, "over"), (theme.CLOCK, "dim")
    bare = (theme.RULE, "rule"), (" ", "text"), *ended
    firm = {at for at, run in enumerate(cells) if run not in bare}
    free = span.free
    for cell, text in marks:
        first, last = _placed(cell, text, span.cells)
        taken = range(max(0, first - 1), min(span.cells, last + 1))
        if first < free or not firm.isdisjoint(taken):
            continue
        for near in taken:
            cells[near] = (" ", "text")
        cells[first:last] = [(sign, "dim") for sign in text]
        free = last + _APART


def times(span: Span, marks: Iterable[tuple[int, str]]) -> list[Run]:
    """Returns the line below the axis, with each time centred under its tick."""
    line, free = "", 0
    for cell, text in marks:
        first, last = _placed(cell, text, span.cells)
        if first >= free:
            line = line.ljust(first) + text
            free = last + _APART
    return [(line.ljust(span.cells), "dim")]


def _placed(cell: int, text: str, cells: int) -> tuple[int, int]:
    first = max(0, min(cell - len(text) // 2, cells - len(text)))
    return first, first + len(text)
