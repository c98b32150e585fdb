"""The cells of the overview's charts, and their values from the history. A unit is a core or CPU
that has a chart. The newest column is at the right edge; columns before the start of the history
are blank."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor

import numpy as np

from perftop.base.arrays import Floats, Ints
from perftop.base.text import ClockUnit
from perftop.draw import charts
from perftop.draw.charts import IPC_SCALE_ENDS, Glyphs, chart_lines, scale_top
from perftop.draw.columns import Run
from perftop.model.kinds import Episode
from perftop.model.smt import state_bounds
from perftop.session.session import Session
from perftop.tui.overview.chart_numbers import (
    SELECTION_BAR,
    ChartUnit,
    lowered_metric_name,
    share_marks,
)
from perftop.tui.shared.episode_style import (
    MIN_AWAKE_UTIL,
    find_losing_index,
    gap_cause,
    is_running_at,
)
from perftop.tui.shared.time_axis import Axis, BinValues, Lookup, fit_axis

# --- the values of columns


class ColumnHistory:
    """The values of chart columns, read from the history: a series of each metric for each CPU, and
    further series."""

    def __init__(
        self, session: Session, metrics: Sequence[str], rows: Sequence[int],
        lookups: dict[str, Lookup],
    ) -> None:  # fmt: skip
        """`metrics`: keys of the metrics to read for the CPUs at the positions `rows`. `lookups`:
        functions that read the further series, by key."""
        self._session, self.metrics = session, metrics
        self._keys = "cpus", *lookups
        self._bins = BinValues(
            {"cpus": lambda history, edges: history.metrics(metrics, rows, edges), **lookups}
        )
        self._values: dict[str, Floats] = {}
        """Values by key. The last dimension of the arrays is the column."""
        self.axis = Axis(0, 1, 0, 0)
        """The time axis of the columns."""

    def update(self, columns: int, window_s: float, now_ns: int, *, is_past: bool) -> bool:
        """Reads the values of `columns` columns up to `now_ns` (monotonic). Returns whether values
        were read: the newest ones are read only once in REDRAW_PERIOD_NS. `is_past`: whether the
        user has chosen the moment."""
        history = self._session.history
        first_ns = None if history is None else history.first_ns
        first_ns = now_ns if first_ns is None else min(first_ns, now_ns)
        axis = fit_axis(now_ns, window_s, columns, first_ns)
        if axis == self.axis or (not is_past and axis.can_reuse_charts_of(self.axis)):
            return False
        self.axis = axis
        if history is not None:
            self._bins.update(history, self.axis)
            self._values = {key: np.moveaxis(self._bins[key], 0, -1) for key in self._keys}
        return True

    def series(self, key: str) -> Floats:
        """Returns the values with this key, (..., columns); NaN where unknown."""
        values = self._values.get(key)
        return self.cpu_values[self.metrics.index(key)] if values is None else values

    @property
    def cpu_values(self) -> Floats:
        return self._values["cpus"]


# --- cells

CLOCK_STEP_HZ = 1e9
"""The ends of a clock's scale are multiples of this, in Hz."""


@dataclass(slots=True)
class UnitCharts:
    """The charts of a core or CPU. Charts that are not shown have no lines."""

    clock_lines: Sequence[list[Run]] = ()
    rate_lines: Sequence[list[Run]] = ()
    """The chart of the IPC."""
    area_lines: Sequence[list[Run]] = ()
    """The chart of SMT states or CPU time."""
    low_hz: float = 0.0
    """The lower end of the clock scale, in Hz."""
    high_hz: float = 0.0
    top_ipc: float = 0.0
    """The upper end of the IPC scale."""
    lost_s: Sequence[float] = ()
    """Seconds lost below the ceiling, for each cause in `charts.GAP_CAUSES`."""
    lines: list[list[Run]] = field(default_factory=list)
    """All charts, one above the other, with the names and scales to their left."""
    lines_beside: list[list[Run]] = field(default_factory=list)
    """The CPU seconds by task, or the seconds lost by cause, to the right of the lines."""
    title_end: Sequence[Run] = ()
    """The title of `lines_beside`, at the end of the charts' title."""

    def join_lines(
        self, unit: ChartUnit, queue_lines: Sequence[list[Run]], lane_lines: Sequence[list[Run]],
        clock: ClockUnit, left_width: int, *, is_marked: bool,
    ) -> None:  # fmt: skip
        """Makes `lines` of the charts, the waiting tasks above them, and the tasks that ran below
        them. `left_width`: width of the names and scales, in cells."""
        clock_marks = [""] * len(self.clock_lines)
        if clock_marks:
            ends = (f"{hz * clock.per_hz:.4g}" for hz in (self.high_hz, self.low_hz))
            clock_marks[0], clock_marks[-1] = ends
        names: list[Run] = [(f"+{task}", "faint") for task in range(len(queue_lines), 0, -1)]
        names += [(mark, "faint") for mark in clock_marks]
        ipc = f"IPC{self.top_ipc:>2g}"
        names += [("" if row else ipc, "dim") for row in range(len(self.rate_lines))]
        area_rows = len(self.area_lines)
        area_names: list[Run] = [("", "text")] * area_rows
        if area_rows and unit.is_pair:
            area_names[0], area_names[-1] = ("lp0", "lp0"), ("lp1", "lp1")
        elif area_rows:
            area_names = [(mark, "faint") for mark in share_marks(area_rows)]
        names += [*area_names, *(("" if row else "who", "dim") for row in range(len(lane_lines)))]
        bar: Run = (SELECTION_BAR, "key") if is_marked else (" ", "text")
        areas = [*queue_lines, *self.clock_lines, *self.rate_lines, *self.area_lines, *lane_lines]
        self.lines = [[bar, (f"{name:>{left_width - 2}} ", style), *area]
                      for (name, style), area in zip(names, areas, strict=True)]  # fmt: skip


def _lowered_chart(episode: Episode) -> str:
    """Returns the name of the chart in which the episode explains low values; '' if there is none.
    A ramp explains a low clock, although it is no problem."""
    return "clock" if episode.kind == "ramp" else lowered_metric_name(episode)


class ChartDrawer:
    def __init__(self, session: Session, units: Sequence[ChartUnit], *, counted: bool) -> None:
        self._session, self._units = session, units
        rows = [row for unit in units for row in unit.positions]
        index_of_row = {row: i for i, row in enumerate(rows)}
        self._cpus_of_units = [[index_of_row[row] for row in unit.positions] for unit in units]
        """For each unit, the indexes of its CPUs in arrays of CPU values."""
        self._first = np.array([cpus[0] for cpus in self._cpus_of_units], int)
        self._last = np.array([cpus[-1] for cpus in self._cpus_of_units], int)
        types = {unit.type for unit in units}
        self._units_by_type = [np.flatnonzero([u.type == type_ for u in units]) for type_ in types]
        cores = [[*unit.cpus] for unit in units]
        self._pairs = [i for i, unit in enumerate(units) if unit.is_pair]
        account = () if len(self._pairs) == len(units) else ("user", "system", "steal")
        keys = ["util", *account, *(("busy_hz", "ipc") if counted else ())]
        lookups: dict[str, Lookup] = {}
        if counted:  # pairs exist only if clocks are counted
            lookups["cores"] = lambda history, edges: history.cores(cores, edges)
        self.history = ColumnHistory(session, keys, rows, lookups)
        self._top_ipc = 1.0
        """Upper end of the IPC scale so far."""
        self._clock_tops_hz: dict[int, float] = {}
        """Upper end of the clock scale so far, by index in `_units_by_type`."""

    def draw(
        self, episodes: Iterable[Episode], clock_rows: int, rate_rows: int, area_rows: int,
        glyphs: Glyphs, span_ns: tuple[int, int], cuts: Sequence[int] = (),
    ) -> list[UnitCharts]:  # fmt: skip
        """Returns the charts of all units, from the values in `history`. `clock_rows`, `rate_rows`,
        `area_rows`: lines of the charts of the clock, of the IPC, and of SMT states or CPU time; 0:
        no such chart. `span_ns`: monotonic times in ns between which lost seconds are summed.
        `cuts`: columns before which gaps are labelled again."""
        unit_charts = [UnitCharts() for _ in self._units]
        episodes = [e for e in episodes if _lowered_chart(e)]
        single_indexes = [i for i, unit in enumerate(self._units) if not unit.is_pair]
        if self._pairs and area_rows:
            areas = self._state_charts(area_rows, glyphs)
            for i, area in zip(self._pairs, areas, strict=True):
                unit_charts[i].area_lines = area
        if single_indexes and area_rows:
            areas = self._account_charts(single_indexes, episodes, area_rows, glyphs)
            for i, area in zip(single_indexes, areas, strict=True):
                unit_charts[i].area_lines = area
        if clock_rows:
            busiest_values = self._busiest_cpu_values()
            gap_states = self._add_clock_charts(
                unit_charts, busiest_values, episodes, clock_rows, glyphs, cuts
            )
            lost_s = self._lost_seconds(busiest_values, gap_states, span_ns)
            for chart, lost_s_of_unit in zip(unit_charts, lost_s, strict=True):
                chart.lost_s = lost_s_of_unit
            if rate_rows:
                is_awake = busiest_values["util"] >= MIN_AWAKE_UTIL
                values = np.where(is_awake, busiest_values["ipc"], np.nan)
                self._add_rate_charts(unit_charts, values, episodes, rate_rows, glyphs)
        return unit_charts

    def _account_charts(
        self, unit_indexes: Sequence[int], episodes: Sequence[Episode], rows: int, glyphs: Glyphs
    ) -> list[list[list[Run]]]:
        """Returns charts of CPU time by use. The busy time is measured exactly; the user and kernel
        times, which the kernel counts in coarse ticks, only divide it."""
        cpu_indexes = [self._cpus_of_units[i][0] for i in unit_indexes]
        busy, user, kernel, steal = (
            self.history.series(key)[cpu_indexes] for key in ("util", "user", "system", "steal")
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            kernel_share = kernel / (user + kernel)
        kernel_share = np.where(np.isfinite(kernel_share), kernel_share, 0.0)
        markers = self._episode_columns(
            unit_indexes, episodes, "steal", charts.AFTER_EPISODE, charts.DURING_EPISODE
        )
        values = _stack(busy * (1 - kernel_share), busy * kernel_share, steal, markers)
        return draw_charts(charts.cpu_time_chart, values, rows, glyphs)

    def _state_charts(self, rows: int, glyphs: Glyphs) -> list[list[list[Run]]]:
        """Returns charts of the SMT states of cores. Where the states are unknown, the charts show
        the bounds of the states, which follow from the utilisation of both threads."""
        _, lp0, lp1, both, _ = self.history.series("cores")[self._pairs].swapaxes(0, 1)
        first, second = (
            self.history.series("util")[[self._cpus_of_units[i][thread] for i in self._pairs]]
            for thread in (0, 1)
        )
        # The only online thread of a core is stored as its first thread; the busy shares show which
        # of the two it is.
        is_second = np.isnan(first) & np.isfinite(second)
        lp0, lp1 = np.where(is_second, lp1, lp0), np.where(is_second, lp0, lp1)
        open_, unknown, axis = np.zeros(both.shape), np.isnan(both), self.history.axis
        if unknown[:, axis.columns - axis.known_columns :].any():
            low, high = state_bounds(first, second)
            open_ = np.where(unknown, high[..., 3] - low[..., 3], 0.0)
            lp0, lp1, both = (
                np.where(unknown, low[..., state], value)
                for state, value in enumerate((lp0, lp1, both), 1)
            )
        values = _stack(both, open_, lp0, lp1)
        return draw_charts(charts.smt_chart, values, rows, glyphs)

    def _episode_columns(
        self, unit_indexes: Sequence[int], episodes: Sequence[Episode], name: str,
        ended_marker: int, running_marker: int,
    ) -> Ints:  # fmt: skip
        """Returns an array (units, columns): `running_marker` and `ended_marker` in the columns of
        running and ended episodes that lower the chart with the name `name`, else 0."""
        axis = self.history.axis
        markers = np.zeros((len(unit_indexes), axis.columns), np.intp)
        for episode in episodes:
            visible = axis.cells_of(episode) if _lowered_chart(episode) == name else None
            if visible is None:
                continue
            value = running_marker if is_running_at(episode, axis.now_ns) else ended_marker
            affected_units = [n for n, i in enumerate(unit_indexes)
                        if not {*self._units[i].cpus}.isdisjoint(episode.cpus)]  # fmt: skip
            columns = slice(visible[0].start, visible[0].stop)
            markers[affected_units, columns] = np.maximum(markers[affected_units, columns], value)
        return markers

    def busy_shares(self) -> Floats:
        """Returns the mean busy share of each unit's CPUs, (units, columns); 0 for an offline
        CPU."""
        first, last = (self.history.series("util")[cpus] for cpus in (self._first, self._last))
        is_known = np.isfinite(first) | np.isfinite(last)
        return np.where(is_known, (np.fmax(first, 0.0) + np.fmax(last, 0.0)) / 2, np.nan)

    def _busiest_cpu_values(self) -> Mapping[str, Floats]:
        """Returns, for each metric, the values of the busier CPU of each unit, (units, columns). If
        both CPUs are equally busy, the first is used."""
        keys, values = self.history.metrics, self.history.cpu_values
        util = values[keys.index("util")]
        rank = np.where(np.isnan(util), -1.0, util.round(2))  # as in `busiest_cpu_indexes`
        is_last_busier = rank[self._last] > rank[self._first]
        busiest_values = np.where(is_last_busier, values[:, self._last], values[:, self._first])
        return dict(zip(keys, busiest_values, strict=True))

    def _add_clock_charts(
        self, all_charts: list[UnitCharts], busiest_values: Mapping[str, Floats],
        episodes: Sequence[Episode], rows: int, glyphs: Glyphs, cuts: Sequence[int],
    ) -> Ints:  # fmt: skip
        """Adds the charts of clocks. Returns the cause of the gap below the ceiling as a code of
        `charts`, (units, columns)."""
        hz = busiest_values["busy_hz"]
        all_units = [*range(len(self._units))]
        gap_states = np.zeros(hz.shape, np.intp)
        for number, gap in enumerate(charts.GAP_CAUSES):
            if matching := [e for e in episodes if gap_cause(e.kind, e.cause) == gap]:
                codes = charts.ENDED_GAP + number, charts.LOSING + number
                columns = self._episode_columns(all_units, matching, "clock", *codes)
                gap_states = np.where(columns, columns, gap_states)
        asleep = ~(busiest_values["util"] >= MIN_AWAKE_UTIL)
        gap_states[asleep & (gap_states == charts.AWAKE)] = charts.ASLEEP
        ceiling = self.history.series("cores")[:, -1]
        low_hz, high_hz = self._clock_ends(hz, ceiling)
        losses = np.nan_to_num(ceiling - hz) / 1e9
        for unit_charts, columns, loss in zip(
            all_charts, _stack(hz, ceiling, gap_states), losses.tolist(), strict=True
        ):
            chart = charts.clock_chart(columns, (low_hz, high_hz), rows, glyphs)
            unit_charts.clock_lines = chart_lines(charts.add_gap_numbers(chart, loss, cuts))
            unit_charts.low_hz, unit_charts.high_hz = low_hz, high_hz
        return gap_states

    def _lost_seconds(
        self, busiest_values: Mapping[str, Floats], gap_states: Ints, span_ns: tuple[int, int]
    ) -> list[list[float]]:
        """Returns, for each unit and cause, the running time of the busier CPU that its clock below
        the ceiling cost, in s. Outside episodes the cause is unknown."""
        ceiling, count = self.history.series("cores")[:, -1], len(charts.GAP_CAUSES)
        columns_s = np.diff(self.history.axis.edges.clip(*span_ns)) / 1e9
        with np.errstate(divide="ignore", invalid="ignore"):
            gap_shares = 1 - busiest_values["busy_hz"] / ceiling
            lost_s = busiest_values["util"] * gap_shares * columns_s
        lost_s = np.where(gap_states == charts.ASLEEP, 0.0, np.fmax(lost_s, 0.0))
        causes = np.where(gap_states < charts.LOSING, 0, (gap_states - charts.LOSING) % count)
        sums = [np.where(causes == cause, lost_s, 0.0).sum(axis=1) for cause in range(count)]
        by_unit: list[list[float]] = np.stack(sums, axis=1).tolist()
        return by_unit

    def _clock_ends(self, hz: Floats, ceiling: Floats) -> tuple[float, float]:
        """Returns the lower and upper ends of the scale of all clocks, in Hz. It covers, for each
        type of core, the base clock to the highest ceiling so far, in whole GHz."""
        low_hz = high_hz = 0.0
        base = self._session.hello.base_hz
        for kind, unit_indexes in enumerate(self._units_by_type):
            clocks = ceiling if np.isfinite(ceiling[unit_indexes]).any() else hz
            highest_hz = np.fmax.reduce(clocks[unit_indexes], axis=None, initial=CLOCK_STEP_HZ)
            top_hz = ceil(highest_hz / CLOCK_STEP_HZ - 1e-6) * CLOCK_STEP_HZ
            self._clock_tops_hz[kind] = top_hz = max(top_hz, self._clock_tops_hz.get(kind, 0.0))
            base_hz = base.hz if base is not None else top_hz / 2
            floor_hz = floor(base_hz / CLOCK_STEP_HZ) * CLOCK_STEP_HZ
            floor_hz = max(0.0, min(floor_hz, top_hz - 2 * CLOCK_STEP_HZ))
            low_hz = min(low_hz, floor_hz) if high_hz else floor_hz
            high_hz = max(high_hz, top_hz)
        return low_hz, high_hz

    def _add_rate_charts(
        self, all_charts: list[UnitCharts], values: Floats, episodes: Sequence[Episode],
        rows: int, glyphs: Glyphs,
    ) -> None:  # fmt: skip
        """Adds the IPC charts. `values`: the IPC of the busier CPU of each unit. If an episode
        lowers the IPC of the other CPU, that CPU is shown instead."""
        running = [e for e in episodes if is_running_at(e, self.history.axis.now_ns)]
        for i, unit in enumerate(self._units):
            if (losing_cpu := find_losing_index(unit.cpus, running)) is not None:
                values[i] = self.history.series("ipc")[self._cpus_of_units[i][losing_cpu]]
        self._top_ipc = scale_top(values, IPC_SCALE_ENDS, self._top_ipc)
        all_units, shares = [*range(len(self._units))], values.ravel() / self._top_ipc
        losing = self._episode_columns(all_units, episodes, "IPC", 1, 1).ravel().tolist()
        styles = (
            charts.area_chart(shares, rows, style, ascii_=glyphs == "ascii")
            for style in ("ipc", "loss")
        )
        columns = [drawn[kind] for *drawn, kind in zip(*styles, losing, strict=True)]
        width = values.shape[1]
        for i, unit_charts in enumerate(all_charts):
            unit_charts.rate_lines = chart_lines(columns[width * i : width * (i + 1)])
            unit_charts.top_ipc = self._top_ipc


def draw_charts(
    draw: Callable[[Floats, int, Glyphs], list[charts.ChartColumn]], values: Floats, rows: int,
    glyphs: Glyphs,
) -> list[list[list[Run]]]:  # fmt: skip
    """Returns the lines of several charts. The columns of all charts are drawn in one call of
    `draw`, which is faster. `values`: (charts, columns, kinds)."""
    count, width, kinds = values.shape
    columns = draw(values.reshape(-1, kinds), rows, glyphs)
    return [chart_lines(columns[width * chart : width * (chart + 1)]) for chart in range(count)]


def _stack(*kinds: Floats | Ints) -> Floats:
    """Stacks arrays (charts, columns) to one array (charts, columns, kinds)."""
    return np.stack(kinds, axis=2, dtype=float)
