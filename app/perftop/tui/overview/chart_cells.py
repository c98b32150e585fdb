"""The charts of the overview: their values from the history for all units, and the cells of the
charts.

The newest column is at the right edge. Columns from before the start of the history are blank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor

import numpy as np

from perftop.base.arrays import Floats, Ints
from perftop.draw import charts
from perftop.draw.charts import IPC_SCALE_ENDS, Look, axis_top, rows_of
from perftop.draw.columns import Run
from perftop.model.kinds import Episode
from perftop.model.smt import bounds
from perftop.session.session import Session
from perftop.tui.overview.chart_numbers import Unit, lowered_chart
from perftop.tui.shared.episode_style import (
    MIN_AWAKE_UTIL,
    find_losing_cpu,
    gap_cause,
    is_running_at,
)
from perftop.tui.shared.time_axis import Axis, BinValues, Lookup, fit_axis

# --- the values of columns


class ColumnHistory:
    """Values of the columns of charts, read from the history: one series for each key, CPU and
    core."""

    def __init__(
        self, session: Session, metrics: Sequence[str], rows: Sequence[int],
        lookups: dict[str, Lookup],
    ) -> None:  # fmt: skip
        """`metrics`: keys of the metrics to read for the CPUs at the positions `rows`. `lookups`:
        functions that read further series, by key."""
        self._session, self.metrics = session, metrics
        self._keys = "cpus", *lookups
        self._bins = BinValues(
            {"cpus": lambda history, at: history.fields(metrics, rows, at), **lookups}
        )
        self._values: dict[str, Floats] = {}
        """Values by key, as arrays (..., columns)."""
        self.axis = Axis(0, 1, 0, 0)
        """The axis of charts whose cells are one column."""

    def read(self, columns: int, window_s: float, now_ns: int, *, past: bool) -> bool:
        """Reads the values of `columns` columns up to the raw time `now_ns`; live, at most once in
        SLOW_NS. `past`: whether the user chose the moment. Returns whether values were read."""
        history = self._session.history
        first_ns = None if history is None else history.first_ns
        first_ns = now_ns if first_ns is None else min(first_ns, now_ns)
        axis = fit_axis(now_ns, window_s, columns, first_ns)
        if axis == self.axis or (not past and axis.is_drawn_like(self.axis)):
            return False
        self.axis = axis
        if history is not None:
            self._bins.read(history, self.axis)
            self._values = {key: np.moveaxis(self._bins[key], 0, -1) for key in self._keys}
        return True

    @property
    def dots(self) -> Axis:
        """The axis of charts of dots, whose cells are two columns."""
        return replace(self.axis, cell_columns=2)

    def series(self, key: str) -> Floats:
        """Returns the values of all columns, (..., columns); NaN where they are unknown."""
        values = self._values.get(key)
        return self.of_cpus[self.metrics.index(key)] if values is None else values

    @property
    def of_cpus(self) -> Floats:
        """Values of the metrics of CPUs, (metrics, CPUs, columns)."""
        return self._values["cpus"]


# --- cells

CLOCK_STEP_HZ = 1e9
"""The ends of a clock's scale are multiples of this, in Hz."""


def _may_be_bounds(session: Session) -> bool:
    """Returns whether the SMT states may be known only within bounds: if no counter shows them, or
    if the counter's calibration factor is not settled and can still be refused."""
    key = session.reader.splitter.any_counter()
    calibration = session.calibrations.get(key or "")
    return key is None or (calibration is not None and calibration.state != "settled")


@dataclass(slots=True)
class UnitCharts:
    """The lines of a unit's charts. `clock` and `rate` are empty if there is no such chart."""

    area: list[list[Run]]
    clock: list[list[Run]]
    rate: list[list[Run]]
    low_hz: float
    high_hz: float = 0.0
    lost_s: Sequence[float] = ()
    """Seconds lost below the ceiling, by cause, in the order of `charts.GAP_CAUSES`."""
    causes: Sequence[list[Run]] = ()
    """Lines with these seconds, beside the chart of the clock; empty if there is no room."""


class ChartDrawer:
    """Draws the charts of some units, repeatedly for successive moments."""

    def __init__(self, session: Session, units: Sequence[Unit], *, counted: bool) -> None:
        self._session, self._units, self._counted = session, units, counted
        rows = [row for unit in units for row in unit.rows]
        at = {row: i for i, row in enumerate(rows)}
        self._cpus_of_units = [[at[row] for row in unit.rows] for unit in units]
        """For each unit, the indices of its CPUs in arrays of CPU values."""
        self._first = np.array([rows[0] for rows in self._cpus_of_units], int)
        self._last = np.array([rows[-1] for rows in self._cpus_of_units], int)
        types = [unit.type for unit in units]
        self._units_by_type = [
            np.flatnonzero([unit.type == type_ for unit in units]) for type_ in {*types}
        ]
        """For each type of core, the indices of its units."""
        cores = [[*unit.cpus] for unit in units]
        self._pairs = [i for i, unit in enumerate(units) if unit.is_pair]
        account = () if len(self._pairs) == len(units) else ("user", "system", "steal")
        keys = ["util", *account, *(("busy_hz", "ipc") if counted else ())]
        lookups: dict[str, Lookup] = {}
        if counted:  # pairs exist only if clocks are counted
            lookups["cores"] = lambda history, at: history.cores(cores, at)
        self._may_be_bounds_only = _may_be_bounds(session)
        self.past = ColumnHistory(session, keys, rows, lookups)
        self._top = 1.0
        self._scale_tops: dict[int, float] = {}
        """Upper end of the clock scale, by type of core."""

    def draw(
        self, episodes: Iterable[Episode], area_rows: int, rows: int, rate_rows: int, look: Look,
        span_ns: tuple[int, int],
    ) -> list[UnitCharts]:  # fmt: skip
        """Returns the charts of all units. Call `past.read` first. `area_rows`, `rows` and
        `rate_rows`: lines of the charts of states, of clocks and of the IPC; 0 if there are no
        such charts. `span_ns`: raw times between which lost seconds are summed."""
        unit_charts = [UnitCharts([], [], [], 0.0) for _ in self._units]
        episodes = [e for e in episodes if lowered_chart(e)]
        singles = [i for i, unit in enumerate(self._units) if not unit.is_pair]
        areas: list[tuple[Sequence[int], list[list[list[Run]]]]] = []
        if self._pairs and area_rows:
            areas.append((self._pairs, self._state_charts(area_rows, look)))
        if singles and area_rows:
            areas.append((singles, self._account_charts(singles, episodes, area_rows, look)))
        for unit_indices, unit_areas in areas:
            for i, area in zip(unit_indices, unit_areas, strict=True):
                unit_charts[i].area = area
        if self._counted:
            busier = self._busiest_cpu_values()
            how = self._add_clock_charts(unit_charts, busier, episodes, rows, look)
            for chart, lost_s in zip(
                unit_charts, self._lost_seconds(busier, how, span_ns), strict=True
            ):
                chart.lost_s = lost_s
            if rate_rows:
                self._add_rate_charts(unit_charts, busier["ipc"], episodes, rate_rows, look)
        return unit_charts

    def _account_charts(
        self, which: Sequence[int], episodes: Sequence[Episode], rows: int, look: Look
    ) -> list[list[list[Run]]]:
        """Returns the uses of CPU time. The account divides the busy time, which is measured more
        finely than the ticks of the account."""
        at = [self._cpus_of_units[i][0] for i in which]
        busy, user, kernel, steal = (
            self.past.series(key)[at] for key in ("util", "user", "system", "steal")
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            part = kernel / (user + kernel)
        part = np.where(np.isfinite(part), part, 0.0)
        heat = self._episode_columns(
            which, episodes, "steal", charts.AFTER_EPISODE, charts.DURING_EPISODE
        )
        values = _by_column(busy * (1 - part), busy * part, steal, heat)
        return draw_to_lines(charts.account, values, rows, look)

    def _state_charts(self, rows: int, look: Look) -> list[list[list[Run]]]:
        """Returns charts of the SMT states of cores. Where the states are unknown, their bounds are
        drawn, which follow from the utilisation of both threads."""
        _, lp0, lp1, both, _ = self.past.series("cores")[self._pairs].swapaxes(0, 1)
        first, second = (
            self.past.series("util")[[self._cpus_of_units[i][at] for i in self._pairs]]
            for at in (0, 1)
        )
        # A lone thread is stored as the first; which it was follows from the busy shares.
        is_second = np.isnan(first) & np.isfinite(second)
        lp0, lp1 = np.where(is_second, lp1, lp0), np.where(is_second, lp0, lp1)
        open_, unknown, axis = np.zeros(both.shape), np.isnan(both), self.past.axis
        if self._may_be_bounds_only and np.count_nonzero(
            unknown[:, axis.columns - axis.known_columns :]
        ):
            low, high = bounds(first, second)
            open_ = np.where(unknown, high[..., 3] - low[..., 3], 0.0)
            lp0, lp1, both = (
                np.where(unknown, low[..., at], value)
                for at, value in enumerate((lp0, lp1, both), 1)
            )
        values = _by_column(both, open_, lp0, lp1)
        return draw_to_lines(charts.states, values, rows, look)

    def _episode_columns(
        self, which: Sequence[int], episodes: Sequence[Episode], name: str, over: int, now: int
    ) -> Ints:
        """Returns markers of episodes that make the number `name` worse, (charts, columns): `now`
        during a running episode, `over` during an ended one, else 0."""
        axis = self.past.axis
        markers = np.zeros((len(which), axis.columns), np.intp)
        for episode in episodes:
            visible = axis.cells_of(episode) if lowered_chart(episode) == name else None
            if visible is None:
                continue
            value = now if is_running_at(episode, axis.now_ns) else over
            affected = [n for n, i in enumerate(which)
                   if not {*self._units[i].cpus}.isdisjoint(episode.cpus)]  # fmt: skip
            columns = slice(visible[0].start, visible[0].stop)
            markers[affected, columns] = np.maximum(markers[affected, columns], value)
        return markers

    def busy_shares(self) -> Floats:
        """Returns the mean busy share of each unit's CPUs, (units, columns); a CPU that is offline
        is not busy."""
        first, last = (self.past.series("util")[cpus] for cpus in (self._first, self._last))
        is_known = np.isfinite(first) | np.isfinite(last)
        return np.where(is_known, (np.nan_to_num(first) + np.nan_to_num(last)) / 2, np.nan)

    def _busiest_cpu_values(self) -> Mapping[str, Floats]:
        """Returns, for each metric, the value of the busier CPU of each unit in each column,
        (units, columns). If both CPUs are equally busy, it is the value of the first."""
        keys, values = self.past.metrics, self.past.of_cpus
        util = values[keys.index("util")]
        rank = np.where(np.isnan(util), -1.0, util.round(2))  # as in `busiest_rows`
        later = rank[self._last] > rank[self._first]
        found = np.where(later, values[:, self._last], values[:, self._first])
        return dict(zip(keys, found, strict=True))

    def _add_clock_charts(
        self, all_charts: list[UnitCharts], busier: Mapping[str, Floats],
        episodes: Sequence[Episode], rows: int, look: Look,
    ) -> Ints:  # fmt: skip
        """Adds the charts of clocks. Returns the state of each column, (units, columns)."""
        hz = busier["busy_hz"]
        all_units = [*range(len(self._units))]
        how = np.zeros(hz.shape, np.intp)
        for number, gap in enumerate(charts.GAP_CAUSES):
            alike = [e for e in episodes if gap_cause(e.kind, e.cause) == gap]
            if alike:
                codes = charts.ENDED_GAP + number, charts.LOSING + number
                columns = self._episode_columns(all_units, alike, "clock", *codes)
                how = np.where(columns, columns, how)
        asleep = ~(busier["util"] >= MIN_AWAKE_UTIL)
        how[asleep & (how == charts.AWAKE)] = charts.ASLEEP
        ceiling = self.past.series("cores")[:, -1]
        low, high = self._clock_ends(hz, ceiling)
        losses = np.nan_to_num(ceiling - hz)[:, 1::2] / 1e9
        ends = zip(low.tolist(), high.tolist(), strict=True)
        for unit_charts, columns, loss, (floor_hz, top_hz) in zip(
            all_charts, _by_column(hz, ceiling, how), losses.tolist(), ends, strict=True
        ):
            lines = rows_of(charts.clock_area(columns, (floor_hz, top_hz), rows, look))
            unit_charts.clock = charts.with_gap_numbers(lines, loss)
            unit_charts.low_hz, unit_charts.high_hz = floor_hz, top_hz
        return how

    def _lost_seconds(
        self, busier: Mapping[str, Floats], how: Ints, span_ns: tuple[int, int]
    ) -> list[list[float]]:
        """Returns, by unit and cause, the running time of the busier CPU that was lost below its
        ceiling, in seconds. A gap outside episodes has no known cause."""
        axis, ceiling = self.past.axis, self.past.series("cores")[:, -1]
        ends_ns = axis.edges.clip(*span_ns)
        with np.errstate(divide="ignore", invalid="ignore"):
            lost = busier["util"] * (1 - busier["busy_hz"] / ceiling) * np.diff(ends_ns) / 1e9
        lost = np.where((how == charts.ASLEEP) | (lost < 0), 0.0, np.nan_to_num(lost))
        causes = np.where(how < charts.LOSING, 0, (how - charts.LOSING) % len(charts.GAP_CAUSES))
        count, units = len(charts.GAP_CAUSES), len(causes)
        keys = causes + count * np.arange(units)[:, None]
        sums = np.bincount(keys.ravel(), lost.ravel(), count * units)
        by_unit: list[list[float]] = sums.astype(float).reshape(units, count).tolist()
        return by_unit

    def _clock_ends(self, hz: Floats, ceiling: Floats) -> tuple[Floats, Floats]:
        """Returns the lower and upper ends of the clock scales, in Hz. All units of a type have one
        scale, whose ends are whole GHz. It comes from the base clock and the highest ceiling seen,
        and only ever grows."""
        low, high = np.zeros(len(hz)), np.zeros(len(hz))
        base = self._session.hello.base_hz
        for kind, alike in enumerate(self._units_by_type):
            most = float(np.fmax.reduce(ceiling[alike], axis=None, initial=0.0))
            most = most or float(np.fmax.reduce(hz[alike], axis=None, initial=CLOCK_STEP_HZ))
            top = ceil(most / CLOCK_STEP_HZ - 1e-6) * CLOCK_STEP_HZ
            self._scale_tops[kind] = top = max(top, self._scale_tops.get(kind, 0.0))
            base_hz = base.hz if base is not None else top / 2
            floor_hz = floor(base_hz / CLOCK_STEP_HZ) * CLOCK_STEP_HZ
            low[alike] = min(floor_hz, top - 2 * CLOCK_STEP_HZ)
            high[alike] = top
        return np.maximum(low, 0.0), high

    def _add_rate_charts(
        self, all_charts: list[UnitCharts], values: Floats, episodes: Sequence[Episode],
        rows: int, look: Look,
    ) -> None:  # fmt: skip
        """Adds the IPC charts. `values`: the IPC of the busier CPU of each unit; for units with a
        CPU that is losing IPC, that CPU's values replace them."""
        running = [e for e in episodes if is_running_at(e, self.past.axis.now_ns)]
        for i, unit in enumerate(self._units):
            if (at := find_losing_cpu(unit.cpus, running)) is not None:
                values[i] = self.past.series("ipc")[self._cpus_of_units[i][at]]
        self._top = axis_top(values, IPC_SCALE_ENDS, self._top)
        all_units = [*range(len(self._units))]
        how = self._episode_columns(all_units, episodes, "IPC", charts.AWAKE, charts.LOSING)
        for unit_charts, columns in zip(all_charts, _by_column(values, how), strict=True):
            unit_charts.rate = rows_of(charts.rate(columns, self._top, rows, look))


def draw_to_lines(
    draw: Callable[[Floats, int, Look], list[charts.Column]], values: Floats, rows: int, look: Look
) -> list[list[list[Run]]]:
    """Returns the lines of several charts, whose columns are drawn together. `values`: (charts,
    columns, kinds)."""
    count, wide, kinds = values.shape
    columns = draw(values.reshape(-1, kinds), rows, look)
    return [rows_of(columns[wide * chart : wide * (chart + 1)]) for chart in range(count)]


def _by_column(*kinds: Floats | Ints) -> Floats:
    """Stacks arrays (charts, columns) into one array (charts, columns, kinds)."""
    return np.stack(kinds, axis=2, dtype=float)
