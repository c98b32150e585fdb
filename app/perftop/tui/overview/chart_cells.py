"""The layout of the overview's charts, their values from the history, and their cells. A unit is a
core or CPU that has a chart. The newest column is at the right edge; columns before the history are
blank."""

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
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.overview.chart_numbers import (
    CAUSES_WIDTH,
    CLOCK_WIDTH,
    NAME_WIDTH,
    SCALE_WIDTH,
    WIDE_CLOCK_WIDTH,
    ChartUnit,
    lowered_metric_name,
)
from perftop.tui.shared import episode_style
from perftop.tui.shared.cores import Core
from perftop.tui.shared.episode_style import MIN_AWAKE_UTIL, gap_cause, is_running_at
from perftop.tui.shared.row_numbers import ViewSettings
from perftop.tui.shared.time_axis import Axis, BinValues, fit_axis

# --- How many charts fit the overview of a small machine, and how high each of their parts is.

MAX_CHARTS, MAX_CHARTS_BELOW = 16, 4
"""Maximum number of charts, and of charts one below the other if there is room for two sides."""
MIN_WIDTH, MIN_WIDTH_OF_TWO = 60, 120
"""Minimum width of a screen with charts, and with two charts side by side, in cells."""
SUMS_WIDTH, MIN_WIDTH_FOR_SUMS = 37, 140
"""Width of the list of CPU seconds by task, right of a chart, and minimum width of a chart, with
that list, in cells."""
MIN_WIDTH_FOR_CAUSES = 100
"""Minimum width of a chart, with its numbers, that lists lost seconds by cause, in cells."""
GAP = 3
"""Cells between two charts side by side, and before the sums of tasks."""
_MIN_HEIGHT_FOR_GAPS, _MIN_HEIGHT_FOR_TIMES = 28, 22
"""Minimum lines of a view with an axis and a gap below each chart, and with a line of times."""
_MAX_LINES = ((1, 14), (2, 13), (4, 8), (8, 4))
"""Pairs (charts, lines): up to `charts` charts one below the other have at most `lines` lines each,
or more in a view with more than _GROWTH_HEIGHT lines."""
_MAX_LINES_IF_LOW = ((1, 8), (2, 6), (4, 3))
"""Like _MAX_LINES, for a view with fewer than _MIN_HEIGHT_FOR_TIMES lines."""
_CLOCK_PARTS = ((24, 4, 6, 3), (15, 3, 4, 2), (10, 2, 2, 1), (7, 1, 2, 0), (5, 0, 2, 0),
                (0, 0, 0, 0))  # fmt: skip
"""For charts where clocks are counted: the minimum number of rows of a chart, and how many of them
show the IPC, SMT states or CPU time, and tasks. The other rows show the clock."""
_TIME_PARTS = ((24, 2, 6), (12, 2, 4), (10, 2, 3), (6, 1, 2), (4, 1, 1), (0, 0, 1))
"""For charts without clocks: the minimum number of rows of a chart, and how many of them show
waiting tasks and tasks. The other rows show CPU time."""
_MIN_LINES_OF_TITLED, _MIN_LINES_WITH_GAP = (4, 5), 12
"""Minimum lines of a clock's chart with a title, on one and two sides, and with a gap below it."""
_GROWTH_HEIGHT = 36
"""Number of lines of a view beyond which charts become higher."""
_GROWTH_SHARE = 0.75
"""Share of the lines beyond _GROWTH_HEIGHT that charts get; the panels get the rest."""


@dataclass(frozen=True, slots=True)
class ChartLayout:
    """A layout of charts, axes and panels. The parts of a chart are one above the other."""

    width: int
    sides: int
    """Number of charts side by side: 1 or 2."""
    has_title: bool
    """Whether each chart has a line with its name and numbers above it."""
    queue_rows: int
    """Lines that show waiting tasks."""
    clock_rows: int
    """Lines that show the clock; 0 if clocks are not counted."""
    rate_rows: int
    """Lines that show the IPC."""
    area_rows: int
    """Lines that show SMT states or CPU time."""
    lane_rows: int
    """Lines that show the tasks that ran."""
    has_own_axes: bool
    """Whether each chart has an axis; else only the last chart of each side has one."""
    gap_lines: int
    """Blank lines between charts."""
    has_times_line: bool
    """Whether times have a line below the axis; else they are written into the axis."""
    panel_lines: int
    """Number of lines left for the panels."""

    @property
    def rows(self) -> int:
        parts = self.queue_rows, self.clock_rows, self.rate_rows, self.area_rows, self.lane_rows
        return sum(parts)

    @property
    def side_width(self) -> int:
        """Width of a chart with the texts beside it, in cells."""
        return (self.width - GAP * (self.sides - 1)) // self.sides

    @property
    def left_width(self) -> int:
        """Width of the texts to the left of a chart, in cells."""
        return SCALE_WIDTH if self.has_title else NAME_WIDTH

    @property
    def clock_width(self) -> int:
        """Width of the numbers to the right of a clock chart, in cells."""
        is_wide = not self.has_title and self.sides == 1
        return WIDE_CLOCK_WIDTH if is_wide else CLOCK_WIDTH

    @property
    def has_causes(self) -> bool:
        """Whether the seconds lost by cause are listed to the right of each clock chart."""
        return self.clock_rows > 2 and self.side_width >= MIN_WIDTH_FOR_CAUSES

    @property
    def has_sums(self) -> bool:
        """Whether the sums of tasks are listed to the right of each chart of CPU time."""
        return not self.clock_rows and self.rows >= 4 and self.side_width >= MIN_WIDTH_FOR_SUMS

    @property
    def columns(self) -> int:
        """Columns of time of each chart, which are its width in cells."""
        right = self.clock_width + CAUSES_WIDTH * self.has_causes if self.clock_rows else 1
        right += (SUMS_WIDTH + GAP) * self.has_sums
        return self.side_width - self.left_width - right


def chart_layout(
    chart_count: int,
    height: int,
    width: int,
    groups: Sequence[object] = (),
    min_panel_lines: int = 4,
    *,
    clocks: bool,
) -> ChartLayout | None:
    """Returns the most spacious layout for this many charts; None if they do not fit. `clocks`:
    whether clocks are counted. `groups`: package and L3 of each chart; several have headings."""
    if not 0 < chart_count <= MAX_CHARTS or width < MIN_WIDTH:
        return None
    sides = 2 if chart_count > MAX_CHARTS_BELOW and width >= MIN_WIDTH_OF_TWO else 1
    charts, is_low = -(-chart_count // sides), height < _MIN_HEIGHT_FOR_TIMES
    table = _MAX_LINES_IF_LOW if is_low else _MAX_LINES
    max_lines = next((lines for max_charts, lines in table if charts <= max_charts), 0)
    max_lines += int(_GROWTH_SHARE * max(0, height - _GROWTH_HEIGHT)) // charts
    groups_of_sides = {*groups[:charts]}, {*groups[charts:]}
    headings = max(map(len, groups_of_sides)) if len({*groups}) > 1 else 0
    # The legend of clocks, headings, the axis, its times, and a blank line before the panels.
    fixed_lines = clocks + headings + 1 + 2 * (not is_low)
    for lines in range(max_lines, 1, -1):
        has_title = not clocks or lines >= _MIN_LINES_OF_TITLED[sides - 1]
        gap = 1 if lines >= _MIN_LINES_WITH_GAP or (not has_title and lines == 4) else 0
        gap = gap if charts > 1 and height >= _MIN_HEIGHT_FOR_GAPS else 0
        has_own_axes = bool(gap) and not clocks
        rows = lines - has_title - gap - has_own_axes
        last_gap = gap + has_own_axes
        panel_lines = height - fixed_lines - charts * lines + last_gap
        if rows < 2 or panel_lines < min_panel_lines:
            continue
        if clocks:
            _, *parts = next(row for row in _CLOCK_PARTS if rows >= row[0])
            clock_rows, (rates, area, lanes), queue = rows - sum(parts), parts, 0
        else:
            _, queue, lanes = next(row for row in _TIME_PARTS if rows >= row[0])
            clock_rows, rates, area = 0, 0, rows - queue - lanes
        return ChartLayout(
            width, sides, has_title, queue, clock_rows, rates, area, lanes, has_own_axes, gap,
            has_times_line=not is_low, panel_lines=panel_lines,
        )  # fmt: skip
    return None


# --- the values of columns


class ColumnHistory:
    """The values of chart columns: metrics of CPUs, and SMT states and ceilings of cores."""

    def __init__(
        self, session: Session, metrics: Sequence[str], cores: Sequence[Core], *, has_states: bool
    ) -> None:
        """`metrics`: keys of the metrics to read. `has_states`: whether to read values of cores."""
        self._session, self.metrics = session, metrics
        positions = [position for core in cores for position in core.positions]
        cpus = [core.cpus for core in cores]
        self._bins = [BinValues(lambda history, i: history.metrics(metrics, positions, i))]
        if has_states:
            self._bins.append(BinValues(lambda history, i: history.cores(cpus, i)))
        self.axis = Axis(0, 1, 0, 0)
        """The time axis of the columns."""

    def update(self, columns: int, interval: Interval, settings: ViewSettings) -> bool:
        """Reads the values of columns up to the interval, or up to the moment at which axes are
        pinned. Returns whether it did: unless the user has chosen the moment, it does so once in
        REDRAW_PERIOD_NS."""
        history, now_ns = self._session.past, settings.pinned_ns
        now_ns = interval.time_ns if now_ns is None else now_ns
        first_ns = now_ns if history.first_ns is None else min(history.first_ns, now_ns)
        axis = fit_axis(now_ns, settings.window_s, columns, first_ns)
        is_recent = axis.redraw_key == self.axis.redraw_key
        if axis == self.axis or (is_recent and not self._session.is_past(interval)):
            return False
        self.axis = axis
        for bins in self._bins:
            bins.update(history, axis)
        return True

    def series(self, key: str) -> Floats:
        """Returns the values of a metric, (CPUs, columns); NaN where unknown."""
        return np.asarray(self.cpu_values[self.metrics.index(key)])

    @property
    def cpu_values(self) -> Floats:
        """The values of all metrics, (metrics, CPUs, columns)."""
        return np.asarray(np.moveaxis(self._bins[0].values, 0, -1))

    @property
    def core_values(self) -> Floats:
        """The values of the cores: states and ceiling in Hz, (cores, 5, columns)."""
        return np.asarray(np.moveaxis(self._bins[1].values, 0, -1))


# --- cells

Lines = list[list[Run]]
"""The lines of a chart, from the top."""
DrawColumns = Callable[[Floats, int, Glyphs], list[charts.ChartColumn]]
"""A function that draws columns, (columns, kinds), in a number of rows."""
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
    def __init__(
        self, session: Session, units: Sequence[ChartUnit], settings: ViewSettings, *, clocks: bool
    ) -> None:
        self._session, self._units, self._settings = session, units, settings
        counts = np.array([len(unit.positions) for unit in units])
        self._last = counts.cumsum() - 1
        self._first = self._last - counts + 1
        """Indexes of the first and the last CPU of each unit in arrays of CPU values."""
        types = [unit.core.type for unit in units]
        self._units_by_type = [[i for i, t in enumerate(types) if t == kind] for kind in {*types}]
        self._pairs = [i for i, unit in enumerate(units) if unit.is_pair]
        self._singles = [i for i, unit in enumerate(units) if not unit.is_pair]
        keys = ["util"]
        keys += ["user", "system", "steal"] if self._singles else []
        keys += ["busy_hz", "ipc"] if clocks else []
        cores = [*dict.fromkeys(unit.core for unit in units)]
        self.history = ColumnHistory(session, keys, cores, has_states=clocks)
        self._top_ipc = 1.0
        """Upper end of the IPC scale so far."""
        self._clock_tops_hz = [0.0] * len(self._units_by_type)
        """Upper end of the clock scale so far, for each type of core."""

    @property
    def span_ns(self) -> tuple[int, int]:
        """Monotonic times in ns between which seconds are summed: the selected range or window."""
        settings = self._settings
        return settings.range_ns or self.history.axis.window_ns(settings.window_s)

    @property
    def cuts(self) -> list[int]:
        """The columns at which selected ranges begin and end, which no text crosses."""
        ranges_ns = self._settings.ranges_ns.values()
        return [self.history.axis.bin_at(ns) + 1 for ends in ranges_ns for ns in ends]

    def draw(
        self, layout: ChartLayout, episodes: Iterable[Episode], clock: ClockUnit
    ) -> list[UnitCharts]:
        """Returns the charts of all units, from the values in `history`."""
        unit_charts = [UnitCharts() for _ in self._units]
        clock_rows, area_rows = layout.clock_rows, layout.area_rows
        episodes = [e for e in episodes if _lowered_chart(e)]
        if clock_rows:
            # The values of the busier CPU of each unit or, if both are equally busy, of the first.
            cpu_values, util = self.history.cpu_values, self.history.series("util")
            rank = np.where(np.isnan(util), -1.0, util.round(2))  # as in `busiest_cpu_indexes`
            is_last_busier = rank[self._last] > rank[self._first]
            first, last = cpu_values[:, self._first], cpu_values[:, self._last]
            busier_values = np.where(is_last_busier, last, first)
            values = dict(zip(self.history.metrics, busier_values, strict=True))
            ends_hz = self._add_clock_charts(unit_charts, values, episodes, clock_rows)
            marks = [""] * clock_rows
            marks[-1], marks[0] = (f"{hz * clock.per_hz:.4g}" for hz in ends_hz)
            for chart in unit_charts:
                chart.labels += [(mark, "faint") for mark in marks]
            if layout.rate_rows:
                ipc = np.where(values["util"] >= MIN_AWAKE_UTIL, values["ipc"], np.nan)
                self._add_rate_charts(unit_charts, ipc, episodes, layout.rate_rows)
        if self._pairs and area_rows:
            labels: list[Run] = [("", "text")] * area_rows
            labels[0], labels[-1] = ("lp0", "lp0"), ("lp1", "lp1")
            areas = self._state_charts(area_rows)
            for i, area in zip(self._pairs, areas, strict=True):
                unit_charts[i].add(area, labels)
        if self._singles and area_rows:
            areas = self._cpu_time_charts(episodes, area_rows)
            marks = [""] * area_rows
            marks[-1], marks[0] = "0", "100"
            if area_rows >= 5:
                marks[area_rows // 2] = "50"
            for i, area in zip(self._singles, areas, strict=True):
                unit_charts[i].add(area, [(mark, "faint") for mark in marks])
        return unit_charts

    def _cpu_time_charts(self, episodes: Sequence[Episode], rows: int) -> list[Lines]:
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
        return draw_charts(charts.cpu_time_chart, values, rows, self._settings.glyphs)

    def _state_charts(self, rows: int) -> list[Lines]:
        """Returns charts of the SMT states of cores. Where the states are unknown, the charts show
        the bounds of the states, which follow from the utilisation of both threads."""
        _, lp0, lp1, both, _ = self.history.core_values[self._pairs].swapaxes(0, 1)
        first, second = (
            self.history.series("util")[cpus[self._pairs]] for cpus in (self._first, self._last)
        )
        # The only online thread of a core is stored as its first thread; the busy shares show which
        # of the two it is.
        is_second = np.isnan(first) & np.isfinite(second)
        lp0, lp1 = np.where(is_second, lp1, lp0), np.where(is_second, lp0, lp1)
        uncertain, unknown = np.zeros(both.shape), np.isnan(both)
        if unknown[:, self.history.axis.blank_cells :].any():
            low, high = state_bounds(first, second)
            uncertain = np.where(unknown, high[..., 3] - low[..., 3], 0.0)
            lp0, lp1, both = (
                np.where(unknown, low[..., state], value)
                for state, value in enumerate((lp0, lp1, both), 1)
            )
        values = _stack(both, uncertain, lp0, lp1)
        return draw_charts(charts.smt_chart, values, rows, self._settings.glyphs)

    def _episode_columns(
        self, episodes: Sequence[Episode], name: str, ended_marker: int, running_marker: int
    ) -> Ints:
        """Returns an array (units, columns): `running_marker` and `ended_marker` in the columns of
        running and ended episodes that lower the chart with the name `name`, else 0."""
        axis = self.history.axis
        markers = np.zeros((len(self._units), axis.columns), np.intp)
        for episode in episodes:
            visible = axis.episode_cells(episode) if _lowered_chart(episode) == name else None
            if visible is None:
                continue
            value = running_marker if is_running_at(episode, axis.now_ns) else ended_marker
            cpus = {*episode.cpus}
            units = [i for i, unit in enumerate(self._units) if not cpus.isdisjoint(unit.cpus)]
            columns = slice(visible[0].start, visible[0].stop)
            markers[units, columns] = np.maximum(markers[units, columns], value)
        return markers

    def busy_shares(self) -> Floats:
        """Returns the mean busy share of each unit's CPUs, (units, columns); an offline CPU counts
        as idle."""
        first, last = (self.history.series("util")[cpus] for cpus in (self._first, self._last))
        is_known = np.isfinite(first) | np.isfinite(last)
        return np.where(is_known, (np.fmax(first, 0.0) + np.fmax(last, 0.0)) / 2, np.nan)

    def _add_clock_charts(
        self,
        all_charts: list[UnitCharts],
        values: Mapping[str, Floats],
        episodes: Sequence[Episode],
        rows: int,
    ) -> tuple[float, float]:
        """Adds the charts of clocks, and the running time of the busier CPU in s that its low clock
        cost, by cause; outside episodes the cause is unknown. Returns the ends of the scale."""
        hz, ceiling = values["busy_hz"], self.history.core_values[:, -1]
        gap_states = np.zeros(hz.shape, np.intp)
        for number, gap in enumerate(charts.GAP_CAUSES):
            if matching := [e for e in episodes if gap_cause(e.kind, e.cause) == gap]:
                codes = charts.ENDED_GAP + number, charts.LOSING + number
                states = self._episode_columns(matching, "clock", *codes)
                gap_states = np.where(states, states, gap_states)
        is_asleep = values["util"] < MIN_AWAKE_UTIL  # NaN before the session
        gap_states[is_asleep & (gap_states == charts.AWAKE)] = charts.ASLEEP
        columns_s = np.diff(self.history.axis.edges.clip(*self.span_ns)) / 1e9
        with np.errstate(divide="ignore", invalid="ignore"):
            lost_s = values["util"] * (1 - hz / ceiling) * columns_s
        lost_s = np.where(gap_states == charts.ASLEEP, 0.0, np.fmax(lost_s, 0.0))
        count = len(charts.GAP_CAUSES)
        causes = np.where(gap_states < charts.LOSING, 0, (gap_states - charts.LOSING) % count)
        sums = [np.where(causes == cause, lost_s, 0.0).sum(axis=1) for cause in range(count)]
        ends_hz, losses = self._clock_ends(hz, ceiling), np.nan_to_num(ceiling - hz) / 1e9
        columns, lost_by_cause = _stack(hz, ceiling, gap_states), np.stack(sums, axis=1)
        cuts = self.cuts
        for i, unit_charts in enumerate(all_charts):
            chart = charts.clock_chart(columns[i], ends_hz, rows, self._settings.glyphs)
            chart = charts.add_gap_numbers(chart, losses[i].tolist(), cuts)
            unit_charts.lines += chart_lines(chart)
            unit_charts.clock_ends_hz, unit_charts.lost_s = ends_hz, lost_by_cause[i].tolist()
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
        self, all_charts: list[UnitCharts], values: Floats, episodes: list[Episode], rows: int
    ) -> None:
        """Adds the IPC charts. `values`: the IPC of the busier CPU of each unit. If an episode
        lowers the IPC of the other CPU, that CPU is shown instead."""
        running = [e for e in episodes if is_running_at(e, self.history.axis.now_ns)]
        for i, unit in enumerate(self._units):
            if (losing_cpu := episode_style.find_losing_index(unit.cpus, running)) is not None:
                values[i] = self.history.series("ipc")[self._first[i] + losing_cpu]
        self._top_ipc = scale_top(values, IPC_SCALE_ENDS, self._top_ipc)
        losing = self._episode_columns(episodes, "IPC", 1, 1).ravel().tolist()
        shares, ascii_ = values.ravel() / self._top_ipc, self._settings.ascii
        styles = (charts.area_chart(shares, rows, key, ascii_=ascii_) for key in ("ipc", "loss"))
        columns = [drawn[kind] for *drawn, kind in zip(*styles, losing, strict=True)]
        labels: list[Run] = [(f"IPC{self._top_ipc:>2g}", "dim"), *[("", "dim")] * (rows - 1)]
        width = values.shape[1]
        for i, unit_charts in enumerate(all_charts):
            unit_charts.add(chart_lines(columns[width * i : width * (i + 1)]), labels)


def draw_charts(draw: DrawColumns, values: Floats, rows: int, glyphs: Glyphs) -> list[Lines]:
    """Returns the lines of several charts. The columns of all charts are drawn in one call of
    `draw`, which is faster. `values`: (charts, columns, kinds)."""
    count, width, kinds = values.shape
    columns = draw(values.reshape(-1, kinds), rows, glyphs)
    return [chart_lines(columns[width * chart : width * (chart + 1)]) for chart in range(count)]


def _stack(*kinds: Floats | Ints) -> Floats:
    """Stacks arrays (charts, columns) to one array (charts, columns, kinds)."""
    return np.stack(kinds, axis=2, dtype=float)
