"""The cells of the overview's charts, and their values from the history. A unit is a core or CPU
that has a chart. A lane below the chart shows the tasks that ran on the unit. The newest column is
at the right edge; columns before the start of the history are blank."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil, floor, isnan, nan

import numpy as np

from perftop.base.arrays import Floats, Ints
from perftop.draw import charts, theme
from perftop.draw.charts import (
    IPC_SCALE_ENDS,
    NAMED_TASKS,
    TASK_PARTS,
    UNKNOWN_TASK,
    Glyphs,
    chart_lines,
    scale_top,
)
from perftop.draw.columns import Run, fit
from perftop.draw.strips import merge_runs, safe_cells
from perftop.model.kinds import Episode
from perftop.model.smt import state_bounds
from perftop.model.tasks import TaskColumns
from perftop.session.history import MAX_TASKS_AGE_NS
from perftop.session.session import Session
from perftop.tui.overview.chart_numbers import QUEUE_LETTER, ChartUnit, lowered_metric_name
from perftop.tui.panels.tables import cut_name, group_name
from perftop.tui.shared.episode_style import (
    MIN_AWAKE_UTIL,
    find_losing_index,
    gap_cause,
    is_running_at,
)
from perftop.tui.shared.time_axis import Axis, BinValues, Lookup, fit_axis
from perftop.tui.shared.view_settings import Grouping

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

    def read(self, columns: int, window_s: float, now_ns: int, *, is_past: bool) -> bool:
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
            self._bins.read(history, self.axis)
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

    area_lines: Sequence[list[Run]] = ()
    """The chart of SMT states or CPU time, with the lane of tasks below it."""
    clock_lines: Sequence[list[Run]] = ()
    rate_lines: Sequence[list[Run]] = ()
    """The chart of the IPC."""
    low_hz: float = 0.0
    """The lower end of the clock scale, in Hz."""
    high_hz: float = 0.0
    lost_s: Sequence[float] = ()
    """Seconds lost below the ceiling, for each cause in `charts.GAP_CAUSES`."""
    cause_lines: Sequence[list[Run]] = ()
    """The seconds lost by cause, beside the clock chart."""
    title_end: Sequence[Run] = ()
    """The title of the CPU seconds by task, at the end of the chart's title."""


def _lowered_chart(episode: Episode) -> str:
    """Returns the name of the chart in which the episode explains low values; '' if there is none.
    A ramp explains a low clock, although it is no problem."""
    return "clock" if episode.kind == "ramp" else lowered_metric_name(episode)


class ChartDrawer:
    def __init__(self, session: Session, units: Sequence[ChartUnit], *, counted: bool) -> None:
        self._session, self._units, self._counted = session, units, counted
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
        if counted:  # there are pairs only if clocks are counted
            lookups["cores"] = lambda history, edges: history.cores(cores, edges)
        self.history = ColumnHistory(session, keys, rows, lookups)
        self._top_ipc = 1.0
        """Upper end of the IPC scale so far."""
        self._clock_tops_hz: dict[int, float] = {}
        """Upper end of the clock scale so far, by index in `_units_by_type`."""

    def draw(
        self, episodes: Iterable[Episode], area_rows: int, rows: int, rate_rows: int,
        glyphs: Glyphs, span_ns: tuple[int, int],
    ) -> list[UnitCharts]:  # fmt: skip
        """Returns the charts of all units, from the values in `history`. `area_rows`, `rows`,
        `rate_rows`: lines of the charts of states or CPU time, clock and IPC; 0: no such chart.
        `span_ns`: monotonic times in ns between which lost seconds are summed."""
        unit_charts = [UnitCharts() for _ in self._units]
        episodes = [e for e in episodes if _lowered_chart(e)]
        singles = [i for i, unit in enumerate(self._units) if not unit.is_pair]
        if self._pairs and area_rows:
            areas = self._state_charts(area_rows, glyphs)
            for i, area in zip(self._pairs, areas, strict=True):
                unit_charts[i].area_lines = area
        if singles and area_rows:
            areas = self._account_charts(singles, episodes, area_rows, glyphs)
            for i, area in zip(singles, areas, strict=True):
                unit_charts[i].area_lines = area
        if self._counted:
            busiest_values = self._busiest_cpu_values()
            gap_states = self._add_clock_charts(unit_charts, busiest_values, episodes, rows, glyphs)
            lost_s = self._lost_seconds(busiest_values, gap_states, span_ns)
            for chart, lost_s_of_unit in zip(unit_charts, lost_s, strict=True):
                chart.lost_s = lost_s_of_unit
            if rate_rows:
                values = busiest_values["ipc"]
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
            affected = [n for n, i in enumerate(unit_indexes)
                        if not {*self._units[i].cpus}.isdisjoint(episode.cpus)]  # fmt: skip
            columns = slice(visible[0].start, visible[0].stop)
            markers[affected, columns] = np.maximum(markers[affected, columns], value)
        return markers

    def busy_shares(self) -> Floats:
        """Returns the mean busy share of each unit's CPUs, (units, columns); 0 for an offline
        CPU."""
        first, last = (self.history.series("util")[cpus] for cpus in (self._first, self._last))
        is_known = np.isfinite(first) | np.isfinite(last)
        return np.where(is_known, (np.fmax(first, 0.0) + np.fmax(last, 0.0)) / 2, np.nan)

    def _busiest_cpu_values(self) -> Mapping[str, Floats]:
        """Returns, for each metric, the values of the busier CPU of each unit, (units, columns). Of
        two equally busy CPUs, the first is used."""
        keys, values = self.history.metrics, self.history.cpu_values
        util = values[keys.index("util")]
        rank = np.where(np.isnan(util), -1.0, util.round(2))  # as in `busiest_cpu_indexes`
        is_last_busier = rank[self._last] > rank[self._first]
        busiest_values = np.where(is_last_busier, values[:, self._last], values[:, self._first])
        return dict(zip(keys, busiest_values, strict=True))

    def _add_clock_charts(
        self, all_charts: list[UnitCharts], busiest_values: Mapping[str, Floats],
        episodes: Sequence[Episode], rows: int, glyphs: Glyphs,
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
        low, high = self._clock_ends(hz, ceiling)
        losses = np.nan_to_num(ceiling - hz)[:, 1::2] / 1e9
        ends = zip(low.tolist(), high.tolist(), strict=True)
        for unit_charts, columns, loss, (floor_hz, top_hz) in zip(
            all_charts, _stack(hz, ceiling, gap_states), losses.tolist(), ends, strict=True
        ):
            lines = chart_lines(charts.clock_chart(columns, (floor_hz, top_hz), rows, glyphs))
            unit_charts.clock_lines = charts.add_gap_numbers(lines, loss)
            unit_charts.low_hz, unit_charts.high_hz = floor_hz, top_hz
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
            lost = busiest_values["util"] * gap_shares * columns_s
        lost = np.where(gap_states == charts.ASLEEP, 0.0, np.fmax(lost, 0.0))
        causes = np.where(gap_states < charts.LOSING, 0, (gap_states - charts.LOSING) % count)
        sums = [np.where(causes == cause, lost, 0.0).sum(axis=1) for cause in range(count)]
        by_unit: list[list[float]] = np.stack(sums, axis=1).tolist()
        return by_unit

    def _clock_ends(self, hz: Floats, ceiling: Floats) -> tuple[Floats, Floats]:
        """Returns the lower and upper ends of each unit's clock scale, in Hz. Units of one type of
        core share a scale, from the base clock to the highest ceiling so far, in whole GHz."""
        low, high = np.zeros(len(hz)), np.zeros(len(hz))
        base = self._session.hello.base_hz
        for kind, unit_indexes in enumerate(self._units_by_type):
            clocks = ceiling if np.isfinite(ceiling[unit_indexes]).any() else hz
            highest_hz = np.fmax.reduce(clocks[unit_indexes], axis=None, initial=CLOCK_STEP_HZ)
            top_hz = ceil(highest_hz / CLOCK_STEP_HZ - 1e-6) * CLOCK_STEP_HZ
            self._clock_tops_hz[kind] = top_hz = max(top_hz, self._clock_tops_hz.get(kind, 0.0))
            base_hz = base.hz if base is not None else top_hz / 2
            floor_hz = floor(base_hz / CLOCK_STEP_HZ) * CLOCK_STEP_HZ
            low[unit_indexes] = min(floor_hz, top_hz - 2 * CLOCK_STEP_HZ)
            high[unit_indexes] = top_hz
        return np.maximum(low, 0.0), high

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
        all_units = [*range(len(self._units))]
        states = self._episode_columns(all_units, episodes, "IPC", charts.AWAKE, charts.LOSING)
        for unit_charts, columns in zip(all_charts, _stack(values, states), strict=True):
            chart = charts.rate_chart(columns, self._top_ipc, rows, glyphs)
            unit_charts.rate_lines = chart_lines(chart)


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


# --- lanes: the tasks that ran on each unit, below its chart in the same columns, and the CPU
# seconds of each task
#
# Tasks of the same name count as one task. Each of the five tasks that used most CPU time has its
# own colour, and keeps it while it is among the five. Busy time that the records of tasks do not
# cover is "not seen".

SUMS_WIDTH = 37
"""Width of the list of CPU seconds by task, right of a chart, in cells."""
MIN_WIDTH_FOR_SUMS = 140
"""Minimum width, in cells, of a screen that shows CPU seconds by task."""
MIN_SUM_S = 0.05
_NAME_WIDTH, _BAR_WIDTH = 13, 9
_OTHERS_INDEX, _UNSEEN_INDEX = NAMED_TASKS, NAMED_TASKS + 1


@dataclass(frozen=True, slots=True)
class LaneTask:
    """The times of one task on some CPUs. Arrays have an entry for each chart column, NaN where
    unknown."""

    comm: str
    pid: int | None
    """PID of the task; None for several tasks, and for unknown tasks."""
    colour_index: int
    run_s: float
    wait_s: float
    longest_wait_s: float
    """Lower bound of the longest wait of the task for a CPU, in s: its largest mean in a record."""
    run_shares: Floats
    """Share of the time for which the task ran."""
    wait_shares: Floats
    """Share of the time for which the task waited for a CPU."""
    last_ns: int
    """Monotonic time in ns of the last record in which the task ran."""


def task_char(colour_index: int, glyphs: Glyphs) -> Run:
    """Returns the marker with which lanes and lists show a task."""
    if glyphs != "colour":
        return charts.TASK_LETTERS[colour_index], "text"
    if colour_index == _UNSEEN_INDEX:
        return UNKNOWN_TASK, "dim/rule"
    return theme.LEVELS[8], f"task{colour_index}"


class TaskLanes:
    """The lanes of some units, and the CPU seconds of each task in the selected span. The lane of a
    core shows the mean of its CPUs."""

    def __init__(self, session: Session, units: Sequence[ChartUnit]) -> None:
        self._session = session
        self._cpus = [str(cpu) for unit in units for cpu in unit.cpus]
        self._cpu_counts = np.array([[len(unit.cpus)] for unit in units])
        self._unit_of_cpu = np.repeat(np.arange(len(units)), self._cpu_counts[:, 0])
        """Index of the unit of each CPU in `_cpus`."""
        self._times_ns: Floats = np.zeros(0)
        """Monotonic times in ns of the records of tasks, the oldest first."""
        self._tasks = TaskColumns(np.zeros(0, int), [], [], *np.zeros((3, 0)))
        """The tasks on `_cpus` of all records together, in the order of the records."""
        self._record_of_task: Ints = np.zeros(0, int)
        """Index of the record of each task in `_tasks`."""
        self._record_shares: Floats = np.zeros((len(units), 1, TASK_PARTS))
        """Shares by unit, record and colour. One more record of zeros, at the end, is for columns
        without a record."""
        self._waiting_counts: Floats = np.zeros((len(units), 1))
        """Mean number of waiting tasks, by unit and record, with one more record as in
        `_record_shares`."""
        self._read_ns = 0, 0
        """Monotonic times in ns between which records were read."""
        self._grouping: Grouping = "task"
        self._names: list[str] = [""] * NAMED_TASKS
        """The task, job or control group of each colour; '' if there is none."""
        self._shares = np.zeros((len(units), 0, TASK_PARTS))
        self._record_of_column = np.zeros(0, int)
        self._scale = self._column_s = np.zeros((len(units), 0))
        """By unit and column: the factor that scales the time of tasks to the busy time, and the
        seconds of CPU time in the selected span."""
        self._seconds = np.zeros((len(units), TASK_PARTS))
        self._idle_s = np.zeros(len(units))
        self.inputs: object = None
        """The axis, span and grouping of the last read."""

    def read(
        self, axis: Axis, util: Floats, span_ns: tuple[int, int], grouping: Grouping = "task"
    ) -> None:
        """Reads the tasks for the columns of this axis. `util`: busy shares, (units, columns).
        `span_ns`: monotonic times in ns between which seconds are summed. `grouping`: which tasks
        share a colour."""
        self.inputs = axis, span_ns, grouping
        has_changed = self._read_records(axis.start_ns, axis.now_ns) or grouping != self._grouping
        self._grouping = grouping
        if has_changed:
            self._sum_records()
        columns = axis.columns
        ends_ns = axis.end_ns - axis.bin_ns * np.arange(columns - 1, -1, -1.0)
        times_ns = self._times_ns
        # A record covers the time before it; the newest columns have no record yet.
        record_of_column = times_ns.searchsorted(ends_ns).clip(0, max(0, len(times_ns) - 1))
        if len(times_ns):
            is_far = np.abs(times_ns[record_of_column] - ends_ns) > MAX_TASKS_AGE_NS
            record_of_column = np.where(is_far, len(times_ns), record_of_column)
        shares, self._record_of_column = self._record_shares[:, record_of_column], record_of_column
        known = shares.sum(axis=2)
        with np.errstate(divide="ignore", invalid="ignore"):
            self._scale = np.where(known > util, util / known, np.where(np.isnan(util), nan, 1.0))
        shares *= self._scale[..., None]
        shares[..., _UNSEEN_INDEX] = np.maximum(0.0, util - known * self._scale)
        self._shares = shares
        first_ns, last_ns = span_ns
        inside_ns = np.minimum(ends_ns, last_ns) - np.maximum(ends_ns - axis.bin_ns, first_ns)
        column_s = np.where(np.isfinite(util), inside_ns.clip(0) / 1e9, 0.0) * self._cpu_counts
        self._column_s = column_s
        self._seconds = np.fmax(shares * column_s[..., None], 0.0).sum(axis=1)
        self._idle_s = column_s.sum(axis=1) - self._seconds.sum(axis=1)

    def _read_records(self, start_ns: int, end_ns: int) -> bool:
        """Reads the records between these monotonic times in ns, and those shortly before, to which
        the first columns may belong. Returns whether the records have changed."""
        first_ns, last_ns = self._read_ns
        dropped = int(self._times_ns.searchsorted(start_ns - MAX_TASKS_AGE_NS, side="right"))
        if not first_ns <= start_ns <= end_ns or end_ns < last_ns:
            dropped, last_ns = len(self._times_ns), start_ns - 1
        snapshots = self._session.past.task_records(last_ns, end_ns) if end_ns > last_ns else []
        self._read_ns = start_ns, end_ns
        if not snapshots and not dropped:
            return False
        kept = slice(int(self._record_of_task.searchsorted(dropped)), None)
        records = self._record_of_task[kept] - dropped
        self._times_ns = self._times_ns[dropped:]
        new_records = [snapshot.columns(self._cpus) for _, snapshot in snapshots]
        new_indexes = len(self._times_ns) + np.arange(len(new_records))
        task_counts = [len(columns.names) for columns in new_records]
        self._record_of_task = np.concatenate([records, np.repeat(new_indexes, task_counts)])
        self._times_ns = np.concatenate([self._times_ns, [time_ns for time_ns, _ in snapshots]])
        old_columns = [column[kept] for column in self._tasks]
        cpus, pids, names, *numbers = zip(old_columns, *new_records, strict=True)
        self._tasks = TaskColumns(
            np.concatenate(cpus), [*chain(*pids)], [*chain(*names)], *map(np.concatenate, numbers)
        )
        return True

    def _sum_records(self) -> None:
        tasks, names = self._tasks, self._tasks.names
        units, records = len(self._cpu_counts), len(self._times_ns) + 1
        if self._grouping != "task":
            names = [*map(self._name, tasks.pids, names)]
        index_of_name = {name: index for index, name in enumerate(dict.fromkeys(names))}
        indexes = np.array([*map(index_of_name.__getitem__, names)], int)
        used = np.bincount(indexes, tasks.shares, len(index_of_name)).tolist()
        self._choose_names(dict(zip(index_of_name, used, strict=True)))
        by_name = {name: i for i, name in enumerate(self._names) if name}
        parts = np.array([by_name.get(name, _OTHERS_INDEX) for name in index_of_name], int)[indexes]
        places = self._unit_of_cpu[tasks.cpus] * records + self._record_of_task
        bins, size = places * TASK_PARTS + parts, units * records * TASK_PARTS
        sums = np.bincount(bins, tasks.shares, size).reshape(units, records, TASK_PARTS)
        self._record_shares = sums / self._cpu_counts[..., None]
        counts = np.bincount(places, np.fmax(tasks.waits, 0.0), units * records)
        self._waiting_counts = counts.astype(float).reshape(units, records)

    def _name(self, pid: int, comm: str) -> str:
        return group_name(self._session, pid, comm, self._grouping)

    def _choose_names(self, used: Mapping[str, float]) -> None:
        """Assigns the colours to the tasks that used most CPU time. `used`: the sum of shares of
        each task, by name."""
        top = sorted(used, key=lambda name: -used[name])[:NAMED_TASKS]
        new = [name for name in top if name not in self._names]
        self._names = [name if name in top else "" for name in self._names]
        for i, name in enumerate(self._names):
            if not name and new:
                self._names[i] = new.pop(0)

    def lane_lines(self, rows: int, glyphs: Glyphs) -> list[list[list[Run]]]:
        """Returns the lanes of all units, each in `rows` lines. The lowest line contains the names
        of tasks that fill enough cells."""
        with_names = self._name_line if glyphs == "colour" else self._letter_line
        lanes = draw_charts(charts.task_chart, self._shares, rows, glyphs)
        for lines in lanes:
            lines[-1] = [run for chars, key in lines[-1] for run in with_names(chars, key)]
        return lanes

    def queue_lines(self, rows: int, glyphs: Glyphs) -> list[list[list[Run]]]:
        """Returns the number of waiting tasks of each unit as `rows` lines, one for each task."""
        waiting = self._waiting_counts[:, self._record_of_column]
        if not waiting.any():
            return [[[(" " * len(waiting.T), "queue")]] * rows] * len(waiting)
        chars = theme.LEVELS if glyphs == "colour" else " " * 4 + QUEUE_LETTER * 5
        lines, size = charts.level_lines(np.rint(8 * waiting.ravel()), rows, chars), len(waiting.T)
        return [[[(line[begin : begin + size], "queue")] for line in lines]
                for begin in range(0, waiting.size, size)]  # fmt: skip

    def _name_line(self, chars: str, key: str) -> list[Run]:
        """Returns a run of a lane as runs with the name of the task where it first fits into full
        cells."""
        if len(chars) < 3:  # no room for a letter between two full cells
            return [(chars, key)]
        full, number = theme.LEVELS[8], key.removeprefix("task")
        named = number.isdecimal() and int(number) < NAMED_TASKS
        name = safe_cells(self._names[int(number)]) if named else ""
        start = chars.find(full * (len(name) + 2)) + 1
        if not name or not start:
            return [(chars, key)]
        end = start + len(name)
        return [(chars[:start], key), (name, f"ground/{key}"), (chars[end:], key)]

    def _letter_line(self, chars: str, key: str) -> list[Run]:
        """Returns a run of a lane of letters, with the name of the task after its letter where
        there is room."""
        for letter, name in zip(charts.TASK_LETTERS, map(safe_cells, self._names), strict=False):
            words = f"{letter}={name} "
            for match in re.finditer(f"{letter}{{{len(words) + 1},}}", chars):
                chars = chars[: match.start()] + words + chars[match.start() + len(words) :]
        return [(chars, key)]

    def sum_lines(self, unit: int, rows: int, glyphs: Glyphs) -> list[list[Run]]:
        """Returns the CPU seconds of each task on a unit, the most first, in `rows` lines, at least
        three, of SUMS_WIDTH cells. Together with the idle time, they add up to the span."""
        seconds, idle_s = self._seconds[unit].tolist(), float(self._idle_s[unit])
        whole_s = sum(seconds) + idle_s
        order = sorted((i for i in range(NAMED_TASKS) if seconds[i] >= MIN_SUM_S),
                       key=lambda i: -seconds[i])  # fmt: skip
        rest = [i for i in (_OTHERS_INDEX, _UNSEEN_INDEX) if seconds[i] >= MIN_SUM_S]
        if len(order) + len(rest) >= rows and order:
            rest = [_OTHERS_INDEX, *rest[rest[:1] == [_OTHERS_INDEX] :]]
            named_count = max(0, rows - 1 - len(rest))
            seconds[_OTHERS_INDEX] += sum(seconds[i] for i in order[named_count:])
            order = order[:named_count]
        names, kinds = [*self._names, "others", "not seen"], [*order, *rest]
        lines: list[list[Run]] = []
        for i in kinds:
            bar = theme.LEVELS[8] * round(_BAR_WIDTH * seconds[i] / max(whole_s, 1e-9))
            char = task_char(i, glyphs)
            name = fit(cut_name(names[i], _NAME_WIDTH), _NAME_WIDTH)
            lines.append([
                char, (f" {name}", "text" if i < NAMED_TASKS else "dim"),
                (f"{seconds[i]:>6.1f}", "bright" if i == kinds[0] else "text"), (" s  ", "dim"),
                (bar, char[1] if i != _UNSEEN_INDEX else "rule"),
            ])  # fmt: skip
        idle = f"{'idle':<{_NAME_WIDTH}}{idle_s:>6.1f}"
        lines.append([(theme.NEITHER, "faint"), (f" {idle} s", "dim")])
        lines += [[]] * (rows - len(lines))
        return [merge_runs(line, SUMS_WIDTH) for line in lines]

    def window_s(self, unit: int) -> float:
        """Returns the seconds to which the sums of a unit, with the idle time, add up."""
        return float(self._column_s[unit].sum())

    @property
    def idle_s(self) -> float:
        return float(self._idle_s.sum())

    def task_times(self) -> list[LaneTask]:
        """Returns the times of each task on all CPUs of the lanes, the longest running time first,
        and, last, the busy time of unknown tasks. Together with the idle time, the running times
        add up to the span."""
        tasks, shape = self._tasks, (2, len(self._cpu_counts), len(self._times_ns) + 1)
        by_task = defaultdict[tuple[str, int], Floats](lambda: np.zeros(shape))
        longest_s: dict[tuple[str, int], float] = {}
        last_ns: dict[tuple[str, int], int] = {}
        units, records = self._unit_of_cpu[tasks.cpus].tolist(), self._record_of_task.tolist()
        times_ns = self._times_ns.astype(int).tolist()
        elapsed_s = np.diff(self._times_ns, prepend=self._times_ns[:1])[self._record_of_task] / 1e9
        # A task waits at most once before each time that it runs.
        waits_s = (tasks.waits * elapsed_s / (tasks.switches * elapsed_s + 1)).tolist()
        for comm, pid, unit, record, share, wait, wait_s in zip(
            tasks.names, tasks.pids, units, records, tasks.shares, tasks.waits, waits_s, strict=True
        ):
            key = comm, pid
            by_task[key][:, unit, record] += share, wait
            longest_s[key] = float(np.fmax(longest_s.get(key, nan), wait_s))
            last_ns[key] = times_ns[record]
        parts = {name: part for part, name in enumerate(self._names) if name}
        column_s, all_times = self._column_s / self._cpu_counts, list[LaneTask]()
        for key, values in by_task.items():
            ran, waited = values[..., self._record_of_column]
            ran = ran * self._scale
            run_s, wait_s = (float(np.nansum(shares * column_s)) for shares in (ran, waited))
            if run_s > 0:
                all_times.append(LaneTask(
                    *key, parts.get(self._name(key[1], key[0]), _OTHERS_INDEX), run_s,
                    nan if isnan(longest_s[key]) else wait_s, longest_s[key],
                    ran.sum(axis=0), waited.sum(axis=0), last_ns[key],
                ))  # fmt: skip
        all_times.sort(key=lambda times: -times.run_s)
        unseen = (self._shares[..., _UNSEEN_INDEX] * self._cpu_counts).sum(axis=0)
        unseen_s = float(self._seconds[:, _UNSEEN_INDEX].sum())
        all_times.append(LaneTask("not seen", None, _UNSEEN_INDEX, unseen_s, nan, nan, unseen,
                                   np.full(len(unseen), nan), 0))  # fmt: skip
        return all_times
