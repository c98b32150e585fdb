"""Lanes: the tasks that ran on each unit, below its chart in the same columns, and the CPU seconds
of each task.

Tasks of the same name count as one task. Each of the five tasks that used most CPU time has its own
colour, and keeps it while it is among the five. Busy time that the records of tasks do not cover is
"not seen".
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from math import nan

import numpy as np

from perftop.base.arrays import Floats
from perftop.base.text import fit
from perftop.draw import charts, theme
from perftop.draw.charts import NAMED_TASKS, TASK_PARTS, UNKNOWN_TASK, Glyphs
from perftop.draw.columns import Run
from perftop.draw.strips import cut_runs, merge_runs, safe_cells, width
from perftop.model.tasks import TaskColumns
from perftop.session.history import MAX_TASKS_AGE_NS
from perftop.session.session import Session
from perftop.tui.overview.chart_cells import SUMS_WIDTH, Lines, draw_charts
from perftop.tui.overview.chart_numbers import QUEUE_LETTER, ChartUnit
from perftop.tui.shared.row_numbers import Grouping
from perftop.tui.shared.tables import cut_name, group_name
from perftop.tui.shared.time_axis import Axis

MIN_SUM_S = 0.05
_NAME_WIDTH, _BAR_WIDTH = 13, 12
_OTHERS_INDEX, _UNSEEN_INDEX = NAMED_TASKS, NAMED_TASKS + 1


@dataclass(frozen=True, slots=True)
class LaneTask:
    """The times of one task on some CPUs. Arrays are by chart column, NaN where unknown."""

    comm: str
    pid: int | None
    """PID of the task; None for several tasks, and for unknown tasks."""
    colour_index: int
    run_s: float
    run_shares: Floats
    """Share of the time for which the task ran."""
    wait_shares: Floats
    """Share of the time for which the task waited for a CPU."""
    wait_s: float = nan
    longest_wait_s: float = nan
    """Lower bound of the task's longest wait for a CPU, in s: the largest mean wait in a record."""
    switches_per_s: float = nan
    """Context switches per second of the selected span."""
    last_ns: int = 0
    """Monotonic time in ns of the last record in which the task ran."""


def task_char(colour_index: int, glyphs: Glyphs) -> Run:
    """Returns the marker with which lanes and lists show a task."""
    if glyphs != "colour":
        return charts.TASK_LETTERS[colour_index], "text"
    if colour_index == _UNSEEN_INDEX:
        return UNKNOWN_TASK, "dim/rule"
    return theme.LEVELS[8], f"task{colour_index}"


class TaskLanes:
    """The lanes of units, and CPU seconds by task in a span. The lane of a core is the mean of its
    CPUs."""

    def __init__(self, session: Session, units: Sequence[ChartUnit]) -> None:
        self._session = session
        self._cpus = [str(cpu) for unit in units for cpu in unit.cpus]
        self._cpu_counts = np.array([[len(unit.cpus)] for unit in units])
        self._unit_of_cpu = np.repeat(np.arange(len(units)), self._cpu_counts[:, 0])
        """Index of the unit of each CPU in `_cpus`."""
        self._records: list[tuple[int, TaskColumns]] = []
        """The records of tasks near the columns, by monotonic time in ns, the oldest first."""
        self._read_ns = 0, 0
        """Monotonic times in ns between which records were read."""
        self._grouping: Grouping = "task"
        self._names: list[str] = [""] * NAMED_TASKS
        """The task, job or control group of each colour; '' if there is none."""
        self.inputs: object = None
        """The axis, span and grouping of the last read."""
        self._task_times: list[LaneTask] = []
        """The result of `task_times` for these inputs; empty until it is needed."""
        self._sum_records()

    def update(
        self, axis: Axis, util: Floats, span_ns: tuple[int, int], grouping: Grouping = "task"
    ) -> None:
        """Reads the tasks for the columns of this axis. `util`: busy shares, (units, columns).
        `span_ns`: monotonic ends in ns of sums. `grouping`: which tasks share a colour."""
        self.inputs, self._task_times = (axis, span_ns, grouping), []
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
        total = shares.sum(axis=2)
        with np.errstate(divide="ignore", invalid="ignore"):
            self._scale = np.where(total > util, util / total, np.where(np.isnan(util), nan, 1.0))
        shares *= self._scale[..., None]
        shares[..., _UNSEEN_INDEX] = np.maximum(0.0, util - total * self._scale)
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
        (first_ns, last_ns), old_count = self._read_ns, len(self._records)
        if not first_ns <= start_ns <= end_ns or end_ns < last_ns:
            self._records, last_ns = [], start_ns - 1
        snapshots = self._session.past.task_records(last_ns, end_ns) if end_ns > last_ns else []
        self._read_ns = start_ns, end_ns
        self._records = [r for r in self._records if r[0] > start_ns - MAX_TASKS_AGE_NS]
        has_changed = bool(snapshots) or len(self._records) < old_count
        self._records += [(ns, snapshot.columns(self._cpus)) for ns, snapshot in snapshots]
        return has_changed

    def _sum_records(self) -> None:
        """Assigns the colours to the tasks that used most CPU time, and adds up the shares by unit,
        record and colour. One more record of zeros, at the end, is for columns without a record."""
        units, records = len(self._cpu_counts), len(self._records) + 1
        self._times_ns = np.array([time_ns for time_ns, _ in self._records], float)
        columns = [columns for _, columns in self._records]
        no_tasks = TaskColumns(np.zeros(0, int), [], [], *np.zeros((3, 0)))
        cpus, pids, names_of_records, *numbers = zip(no_tasks, *columns, strict=True)
        names = [*chain(*names_of_records)]
        self._tasks = tasks = TaskColumns(
            np.concatenate(cpus), [*chain(*pids)], names, *map(np.concatenate, numbers)
        )
        counts = [len(record.names) for record in columns]
        self._record_of_task = np.repeat(np.arange(len(columns)), counts)
        if self._grouping != "task":
            names = [*map(self._name, tasks.pids, names)]
        index_of_name = {name: index for index, name in enumerate(dict.fromkeys(names))}
        indexes = np.array([*map(index_of_name.__getitem__, names)], int)
        used_shares = np.bincount(indexes, tasks.shares, len(index_of_name)).tolist()
        share_by_name = dict(zip(index_of_name, used_shares, strict=True))
        top = sorted(share_by_name, key=lambda name: -share_by_name[name])[:NAMED_TASKS]
        new_names = (name for name in top if name not in self._names)
        kept_names = [name if name in top else "" for name in self._names]
        self._names = [name or next(new_names, "") for name in kept_names]
        by_name = {name: i for i, name in enumerate(self._names) if name}
        parts = np.array([by_name.get(name, _OTHERS_INDEX) for name in index_of_name], int)[indexes]
        flat_indexes = self._unit_of_cpu[tasks.cpus] * records + self._record_of_task
        bins, size = flat_indexes * TASK_PARTS + parts, units * records * TASK_PARTS
        sums = np.bincount(bins, tasks.shares, size).reshape(units, records, TASK_PARTS)
        self._record_shares = sums / self._cpu_counts[..., None]
        counts_waiting = np.bincount(flat_indexes, np.fmax(tasks.waits, 0.0), units * records)
        self._waiting_counts = counts_waiting.astype(float).reshape(units, records)

    def _name(self, pid: int, comm: str) -> str:
        return group_name(self._session, pid, comm, self._grouping)

    def lane_lines(self, rows: int, glyphs: Glyphs, cuts: Iterable[int] = ()) -> list[Lines]:
        """Returns the lanes of all units, each in `rows` lines. The lowest line contains the names
        of tasks that fill enough cells; a name does not extend over one of the cells `cuts`."""
        with_names = self._name_line if glyphs == "colour" else self._letter_line
        lanes = draw_charts(charts.task_chart, self._shares, rows, glyphs)
        for lines in lanes:
            edges = sorted({0, width(lines[-1]), *cuts})
            parts = [run for ends in pairwise(edges) for run in cut_runs(lines[-1], *ends)]
            lines[-1] = [run for chars, key in parts for run in with_names(chars, key)]
        return lanes

    def queue_lines(self, rows: int, glyphs: Glyphs) -> list[Lines]:
        """Returns the number of waiting tasks of each unit as `rows` lines, one for each task."""
        waiting = self._waiting_counts[:, self._record_of_column]
        if not waiting.any():
            return [[[(" " * len(waiting.T), "queue")]] * rows] * len(waiting)
        chars = theme.LEVELS if glyphs == "colour" else " " * 4 + QUEUE_LETTER * 5
        lines, size = charts.level_lines(np.rint(8 * waiting.ravel()), rows, chars), len(waiting.T)
        starts = range(0, waiting.size, size)
        return [[[(line[x : x + size], "queue")] for line in lines] for x in starts]

    def _name_line(self, chars: str, key: str) -> list[Run]:
        """Returns a run of a lane with the name of the task where it first fits into full cells."""
        if len(chars) < 3:  # no room for a letter between two full cells
            return [(chars, key)]
        full_block, number = theme.LEVELS[8], key.removeprefix("task")
        is_named = number.isdecimal() and int(number) < NAMED_TASKS
        name = safe_cells(self._names[int(number)]) if is_named else ""
        start = chars.find(full_block * (len(name) + 2)) + 1
        if not name or not start:
            return [(chars, key)]
        end = start + len(name)
        return [(chars[:start], key), (name, f"black/{key}"), (chars[end:], key)]

    def _letter_line(self, chars: str, key: str) -> list[Run]:
        """Returns a run of letters, with the name of a task after its letter if there is room."""
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
        order = [i for i in range(NAMED_TASKS) if seconds[i] >= MIN_SUM_S]
        order.sort(key=lambda i: -seconds[i])
        other_indexes = [i for i in (_OTHERS_INDEX, _UNSEEN_INDEX) if seconds[i] >= MIN_SUM_S]
        if len(order) + len(other_indexes) >= rows and order:
            other_indexes = [_OTHERS_INDEX, *other_indexes[other_indexes[:1] == [_OTHERS_INDEX] :]]
            named_count = max(0, rows - 1 - len(other_indexes))
            seconds[_OTHERS_INDEX] += sum(seconds[i] for i in order[named_count:])
            order = order[:named_count]
        names, kinds = [*self._names, "others", "not seen"], [*order, *other_indexes]
        lines: list[list[Run]] = []
        for i in kinds:
            bar = theme.LEVELS[8] * round(_BAR_WIDTH * seconds[i] / max(whole_s, 1e-9))
            char, name = task_char(i, glyphs), fit(cut_name(names[i], _NAME_WIDTH), _NAME_WIDTH)
            name_run = f" {name}", "text" if i < NAMED_TASKS else "dim"
            number = f"{seconds[i]:>6.1f}", "bright" if i == kinds[0] else "text"
            bar_style = char[1] if i != _UNSEEN_INDEX else "rule"
            lines.append([char, name_run, number, (" s  ", "dim"), (bar, bar_style)])
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
        if self._task_times:
            return self._task_times
        tasks, shape = self._tasks, (3, len(self._cpu_counts), len(self._times_ns) + 1)
        by_task = defaultdict[tuple[str, int], Floats](lambda: np.zeros(shape))
        longest_s: dict[tuple[str, int], float] = {}
        last_ns: dict[tuple[str, int], int] = {}
        units, records = self._unit_of_cpu[tasks.cpus].tolist(), self._record_of_task.tolist()
        times_ns = self._times_ns.astype(int).tolist()
        elapsed_s = np.diff(self._times_ns, prepend=self._times_ns[:1])[self._record_of_task] / 1e9
        # A task waits at most once for each time that it runs.
        waits_s = (tasks.waits * elapsed_s / (tasks.switches_per_s * elapsed_s + 1)).tolist()
        keys, rates = [*zip(tasks.names, tasks.pids, strict=True)], (tasks.shares, tasks.waits)
        rows = zip(keys, units, records, waits_s, *rates, tasks.switches_per_s, strict=True)
        for key, unit, record, wait_s, *numbers in rows:
            by_task[key][:, unit, record] += numbers
            longest_s[key] = float(np.fmax(longest_s.get(key, nan), wait_s))
            last_ns[key] = times_ns[record]
        parts = {name: part for part, name in enumerate(self._names) if name}
        column_s, all_times = self._column_s / self._cpu_counts, list[LaneTask]()
        span_s = float(column_s.sum(axis=1).max())  # some CPUs may be offline
        for key, values in by_task.items():
            ran, waited, switched = values[..., self._record_of_column]
            ran = ran * self._scale
            run_s, wait_s, switch_count = (
                float(np.nansum(numbers * column_s)) for numbers in (ran, waited, switched)
            )
            if run_s > 0:
                colour_index = parts.get(self._name(key[1], key[0]), _OTHERS_INDEX)
                shares, longest_wait_s = (ran.sum(axis=0), waited.sum(axis=0)), longest_s[key]
                # Without a known wait, no record has the waits and the switches of the task.
                has_waits = 1.0 if longest_wait_s >= 0 else nan
                waits = has_waits * wait_s, longest_wait_s, has_waits * switch_count / span_s
                times = LaneTask(*key, colour_index, run_s, *shares, *waits, last_ns[key])
                all_times.append(times)
        all_times.sort(key=lambda times: -times.run_s)
        unseen = (self._shares[..., _UNSEEN_INDEX] * self._cpu_counts).sum(axis=0)
        unseen_s, unknown = float(self._seconds[:, _UNSEEN_INDEX].sum()), np.full(len(unseen), nan)
        all_times.append(LaneTask("not seen", None, _UNSEEN_INDEX, unseen_s, unseen, unknown))
        self._task_times = all_times
        return all_times
