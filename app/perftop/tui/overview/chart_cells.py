"""The cells of the overview's charts, and their values from the history. A unit is a core or CPU
that has a chart. The newest column is at the right edge; columns before the history are blank."""

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
    ChartUnit,
    lowered_metric_name,
)
from perftop.tui.shared import episode_style
from perftop.tui.shared.episode_style import MIN_AWAKE_UTIL, gap_cause, is_running_at
from perftop.tui.shared.time_axis import Axis, BinValues, Lookup, fit_axis

# --- the values of columns


class ColumnHistory:
    """The values of chart columns: a series of each metric for each CPU, and further series."""

    def __init__(
        self, session: Session, metrics: Sequence[str], positions: Sequence[int],
        lookups: dict[str, Lookup],
    ) -> None:  # fmt: skip
        """`metrics`: keys of the metrics to read for the CPUs at these positions. `lookups`:
        functions that read the further series, by key."""
        self._history, self.metrics = session.past, metrics
        self._cpu_bins = BinValues(
            lambda history, edges: history.metrics(metrics, positions, edges)
        )
        self._bins = {key: BinValues(lookup) for key, lookup in lookups.items()}
        self.axis = Axis(0, 1, 0, 0)
        """The time axis of the columns."""

    def update(self, columns: int, window_s: float, now_ns: int, *, is_past: bool) -> bool:
        """Reads the values of columns up to `now_ns` (monotonic). Returns whether it did: unless
        the user has chosen the moment (`is_past`), it does so once in REDRAW_PERIOD_NS."""
        first_ns = self._history.first_ns
        first_ns = now_ns if first_ns is None else min(first_ns, now_ns)
        axis = fit_axis(now_ns, window_s, columns, first_ns)
        if axis == self.axis or (not is_past and axis.redraw_key == self.axis.redraw_key):
            return False
        self.axis = axis
        for bins in (self._cpu_bins, *self._bins.values()):
            bins.update(self._history, axis)
        return True

    def series(self, key: str) -> Floats:
        """Returns the values with this key, (..., columns); NaN where unknown."""
        if key in self.metrics:
            return np.asarray(self.cpu_values[self.metrics.index(key)])
        return np.asarray(np.moveaxis(self._bins[key].values, 0, -1))

    @property
    def cpu_values(self) -> Floats:
        """The values of all metrics, (metrics, CPUs, columns)."""
        return np.asarray(np.moveaxis(self._cpu_bins.values, 0, -1))


# --- cells

CLOCK_STEP_HZ = 1e9
"""The ends of a clock's scale are multiples of this, in Hz."""


@dataclass(slots=True)
class UnitCharts:
    """The charts of a core or CPU, one above the other."""

    lines: list[list[Run]] = field(default_factory=list)
    labels: list[Run] = field(default_factory=list)
    """The name or the scale to the left of each line."""
    clock_ends_hz: tuple[float, float] = 0.0, 0.0
    """The lower and the upper end of the clock scale."""
    lost_s: Sequence[float] = ()
    """Seconds lost below the ceiling, for each cause in `charts.GAP_CAUSES`."""
    lines_beside: list[list[Run]] = field(default_factory=list)
    """The CPU seconds by task, or the seconds lost by cause, to the right of the lines."""
    title_end: Sequence[Run] = ()
    """The title of `lines_beside`, at the end of the charts' title."""

    def add(self, lines: Iterable[list[Run]], labels: Iterable[Run]) -> None:
        self.lines += lines
        self.labels += labels


def _lowered_chart(episode: Episode) -> str:
    """Returns the name of the chart in which the episode explains low values; '' if there is none.
    A ramp explains a low clock, although it is no problem."""
    return "clock" if episode.kind == "ramp" else lowered_metric_name(episode)


class ChartDrawer:
    def __init__(self, session: Session, units: Sequence[ChartUnit], *, counted: bool) -> None:
        self._session, self._units = session, units
        counts = np.array([len(unit.positions) for unit in units])
        self._last = counts.cumsum() - 1
        self._first = self._last - counts + 1
        """Indexes of the first and the last CPU of each unit in arrays of CPU values."""
        types = [unit.core.type for unit in units]
        self._units_by_type = [[i for i, t in enumerate(types) if t == kind] for kind in {*types}]
        self._pairs = [i for i, unit in enumerate(units) if unit.is_pair]
        self._singles = [i for i, unit in enumerate(units) if not unit.is_pair]
        keys = ["util", *(("user", "system", "steal") if self._singles else ()),
                *(("busy_hz", "ipc") if counted else ())]  # fmt: skip
        lookups: dict[str, Lookup] = {}
        if counted:  # pairs exist only if clocks are counted
            cores = [[*unit.cpus] for unit in units]
            lookups["cores"] = lambda history, edges: history.cores(cores, edges)
        positions = [position for unit in units for position in unit.positions]
        self.history = ColumnHistory(session, keys, positions, lookups)
        self._top_ipc = 1.0
        """Upper end of the IPC scale so far."""
        self._clock_tops_hz = [0.0] * len(self._units_by_type)
        """Upper end of the clock scale so far, for each type of core."""

    def draw(
        self, episodes: Iterable[Episode], clock_rows: int, rate_rows: int, area_rows: int,
        glyphs: Glyphs, clock: ClockUnit, span_ns: tuple[int, int], cuts: Sequence[int] = (),
    ) -> list[UnitCharts]:  # fmt: skip
        """Returns the charts of all units, from the values in `history`. `clock_rows`, `rate_rows`,
        `area_rows`: lines of the charts of the clock, of the IPC, and of SMT states or CPU time; 0:
        no such chart. `span_ns`: monotonic times in ns between which lost seconds are summed.
        `cuts`: columns before which gaps are labelled again."""
        unit_charts = [UnitCharts() for _ in self._units]
        episodes = [e for e in episodes if _lowered_chart(e)]
        if clock_rows:
            # The values of the busier CPU of each unit or, if both are equally busy, of the first.
            cpu_values, util = self.history.cpu_values, self.history.series("util")
            rank = np.where(np.isnan(util), -1.0, util.round(2))  # as in `busiest_cpu_indexes`
            is_last_busier = rank[self._last] > rank[self._first]
            first, last = cpu_values[:, self._first], cpu_values[:, self._last]
            busier_values = np.where(is_last_busier, last, first)
            values = dict(zip(self.history.metrics, busier_values, strict=True))
            ends_hz = self._add_clock_charts(
                unit_charts, values, episodes, clock_rows, glyphs, span_ns, cuts
            )
            marks = [""] * clock_rows
            marks[-1], marks[0] = (f"{hz * clock.per_hz:.4g}" for hz in ends_hz)
            for chart in unit_charts:
                chart.labels += [(mark, "faint") for mark in marks]
            if rate_rows:
                ipc = np.where(values["util"] >= MIN_AWAKE_UTIL, values["ipc"], np.nan)
                self._add_rate_charts(unit_charts, ipc, episodes, rate_rows, glyphs)
        if self._pairs and area_rows:
            labels: list[Run] = [("", "text")] * area_rows
            labels[0], labels[-1] = ("lp0", "lp0"), ("lp1", "lp1")
            areas = self._state_charts(area_rows, glyphs)
            for i, area in zip(self._pairs, areas, strict=True):
                unit_charts[i].add(area, labels)
        if self._singles and area_rows:
            areas = self._account_charts(episodes, area_rows, glyphs)
            marks = [""] * area_rows
            marks[-1], marks[0] = "0", "100"
            if area_rows >= 5:
                marks[area_rows // 2] = "50"
            for i, area in zip(self._singles, areas, strict=True):
                unit_charts[i].add(area, [(mark, "faint") for mark in marks])
        return unit_charts

    def _account_charts(
        self, episodes: Sequence[Episode], rows: int, glyphs: Glyphs
    ) -> list[list[list[Run]]]:
        """Returns charts of CPU time by use. The busy time is measured exactly; the user and kernel
        times, which the kernel counts in coarse ticks, only divide it."""
        busy, user, kernel, steal = (
            self.history.series(key)[self._first[self._singles]]
            for key in ("util", "user", "system", "steal")
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            kernel_share = kernel / (user + kernel)
        kernel_share = np.where(np.isfinite(kernel_share), kernel_share, 0.0)
        markers = self._episode_columns(
            episodes, "steal", charts.AFTER_EPISODE, charts.DURING_EPISODE
        )[self._singles]
        values = _stack(busy * (1 - kernel_share), busy * kernel_share, steal, markers)
        return draw_charts(charts.cpu_time_chart, values, rows, glyphs)

    def _state_charts(self, rows: int, glyphs: Glyphs) -> list[list[list[Run]]]:
        """Returns charts of the SMT states of cores. Where the states are unknown, the charts show
        the bounds of the states, which follow from the utilisation of both threads."""
        _, lp0, lp1, both, _ = self.history.series("cores")[self._pairs].swapaxes(0, 1)
        first, second = (
            self.history.series("util")[cpus[self._pairs]] for cpus in (self._first, self._last)
        )
        # The only online thread of a core is stored as its first thread; the busy shares show which
        # of the two it is.
        is_second = np.isnan(first) & np.isfinite(second)
        lp0, lp1 = np.where(is_second, lp1, lp0), np.where(is_second, lp0, lp1)
        open_, unknown = np.zeros(both.shape), np.isnan(both)
        if unknown[:, self.history.axis.blank_cells :].any():
            low, high = state_bounds(first, second)
            open_ = np.where(unknown, high[..., 3] - low[..., 3], 0.0)
            lp0, lp1, both = (
                np.where(unknown, low[..., state], value)
                for state, value in enumerate((lp0, lp1, both), 1)
            )
        values = _stack(both, open_, lp0, lp1)
        return draw_charts(charts.smt_chart, values, rows, glyphs)

    def _episode_columns(
        self, episodes: Sequence[Episode], name: str, ended_marker: int, running_marker: int
    ) -> Ints:
        """Returns an array (units, columns): `running_marker` and `ended_marker` in the columns of
        running and ended episodes that lower the chart with the name `name`, else 0."""
        axis = self.history.axis
        markers = np.zeros((len(self._units), axis.columns), np.intp)
        for episode in episodes:
            visible = axis.cells_of(episode) if _lowered_chart(episode) == name else None
            if visible is None:
                continue
            value = running_marker if is_running_at(episode, axis.now_ns) else ended_marker
            units = [i for i, unit in enumerate(self._units)
                     if not {*unit.cpus}.isdisjoint(episode.cpus)]  # fmt: skip
            columns = slice(visible[0].start, visible[0].stop)
            markers[units, columns] = np.maximum(markers[units, columns], value)
        return markers

    def busy_shares(self) -> Floats:
        """Returns the mean busy share of each unit's CPUs, (units, columns); 0 if offline."""
        first, last = (self.history.series("util")[cpus] for cpus in (self._first, self._last))
        is_known = np.isfinite(first) | np.isfinite(last)
        return np.where(is_known, (np.fmax(first, 0.0) + np.fmax(last, 0.0)) / 2, np.nan)

    def _add_clock_charts(
        self, all_charts: list[UnitCharts], values: Mapping[str, Floats],
        episodes: Sequence[Episode], rows: int, glyphs: Glyphs, span_ns: tuple[int, int],
        cuts: Sequence[int],
    ) -> tuple[float, float]:  # fmt: skip
        """Adds the charts of clocks, and the running time of the busier CPU in s that its low clock
        cost, by cause; outside episodes the cause is unknown. Returns the ends of the scale."""
        hz, ceiling = values["busy_hz"], self.history.series("cores")[:, -1]
        gap_states = np.zeros(hz.shape, np.intp)
        for number, gap in enumerate(charts.GAP_CAUSES):
            if matching := [e for e in episodes if gap_cause(e.kind, e.cause) == gap]:
                codes = charts.ENDED_GAP + number, charts.LOSING + number
                columns = self._episode_columns(matching, "clock", *codes)
                gap_states = np.where(columns, columns, gap_states)
        asleep = values["util"] < MIN_AWAKE_UTIL  # NaN before the session
        gap_states[asleep & (gap_states == charts.AWAKE)] = charts.ASLEEP
        columns_s = np.diff(self.history.axis.edges.clip(*span_ns)) / 1e9
        with np.errstate(divide="ignore", invalid="ignore"):
            lost_s = values["util"] * (1 - hz / ceiling) * columns_s
        lost_s = np.where(gap_states == charts.ASLEEP, 0.0, np.fmax(lost_s, 0.0))
        count = len(charts.GAP_CAUSES)
        causes = np.where(gap_states < charts.LOSING, 0, (gap_states - charts.LOSING) % count)
        sums = [np.where(causes == cause, lost_s, 0.0).sum(axis=1) for cause in range(count)]
        ends_hz, losses = self._clock_ends(hz, ceiling), np.nan_to_num(ceiling - hz) / 1e9
        for unit_charts, columns, loss, lost_by_cause in zip(
            all_charts, _stack(hz, ceiling, gap_states), losses.tolist(),
            np.stack(sums, axis=1).tolist(), strict=True,
        ):  # fmt: skip
            chart = charts.clock_chart(columns, ends_hz, rows, glyphs)
            unit_charts.lines += chart_lines(charts.add_gap_numbers(chart, loss, cuts))
            unit_charts.clock_ends_hz, unit_charts.lost_s = ends_hz, lost_by_cause
        return ends_hz

    def _clock_ends(self, hz: Floats, ceiling: Floats) -> tuple[float, float]:
        """Returns the lower and upper ends of the scale of all clocks, in Hz. It covers, for each
        type of core, the base clock to the highest ceiling so far, in whole GHz."""
        for kind, units in enumerate(self._units_by_type):
            clocks = ceiling if np.isfinite(ceiling[units]).any() else hz
            highest_hz = np.fmax.reduce(clocks[units], axis=None, initial=CLOCK_STEP_HZ)
            top_hz = ceil(highest_hz / CLOCK_STEP_HZ - 1e-6) * CLOCK_STEP_HZ
            self._clock_tops_hz[kind] = max(top_hz, self._clock_tops_hz[kind])
        base, top_hz = self._session.hello.base_hz, min(self._clock_tops_hz)
        floor_hz = floor((top_hz / 2 if base is None else base.hz) / CLOCK_STEP_HZ) * CLOCK_STEP_HZ
        return max(0.0, min(floor_hz, top_hz - 2 * CLOCK_STEP_HZ)), max(self._clock_tops_hz)

    def _add_rate_charts(
        self, all_charts: list[UnitCharts], values: Floats, episodes: Sequence[Episode],
        rows: int, glyphs: Glyphs,
    ) -> None:  # fmt: skip
        """Adds the IPC charts. `values`: the IPC of the busier CPU of each unit. If an episode
        lowers the IPC of the other CPU, that CPU is shown instead."""
        running = [e for e in episodes if is_running_at(e, self.history.axis.now_ns)]
        for i, unit in enumerate(self._units):
            if (losing_cpu := episode_style.find_losing_index(unit.cpus, running)) is not None:
                values[i] = self.history.series("ipc")[self._first[i] + losing_cpu]
        self._top_ipc = scale_top(values, IPC_SCALE_ENDS, self._top_ipc)
        losing = self._episode_columns(episodes, "IPC", 1, 1).ravel().tolist()
        styles = (
            charts.area_chart(values.ravel() / self._top_ipc, rows, style, ascii_=glyphs == "ascii")
            for style in ("ipc", "loss")
        )
        columns = [drawn[kind] for *drawn, kind in zip(*styles, losing, strict=True)]
        labels: list[Run] = [(f"IPC{self._top_ipc:>2g}", "dim"), *[("", "dim")] * (rows - 1)]
        width = values.shape[1]
        for i, unit_charts in enumerate(all_charts):
            unit_charts.add(chart_lines(columns[width * i : width * (i + 1)]), labels)


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
