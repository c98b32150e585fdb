"""The tasks that used each CPU: a lane below the CPU's chart, with the same columns, and the
seconds of each task.

Tasks of the same name count as one task. The five tasks that used most CPU time have a colour each,
and keep it while they are among the five. Busy time that the records of tasks do not cover is "not
seen".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import isnan, nan

import numpy as np

from perftop.base.arrays import Floats
from perftop.draw import charts, theme
from perftop.draw.charts import NAMED_TAKERS, TAKERS, UNSEEN, Look
from perftop.draw.columns import Run, fit
from perftop.draw.strips import merge_runs, safe_cells
from perftop.model.tasks import TaskActivity
from perftop.session.history import MAX_TASKS_AGE_NS
from perftop.session.session import Session
from perftop.tui.overview.chart_cells import draw_to_lines
from perftop.tui.overview.chart_numbers import QUEUE_LETTER, Unit
from perftop.tui.panels.tables import cut_name, group_name
from perftop.tui.shared.choice import Grouping
from perftop.tui.shared.time_axis import Axis

SUMS_WIDTH = 37
"""Width of the sums to the right of a chart, in cells."""
MIN_WIDTH_FOR_SUMS = 140
"""Minimum width of a screen with sums, in cells."""
MIN_SUM_S = 0.05
"""Minimum sum that has a line of its own, in seconds."""
_NAME_WIDTH, _BAR_WIDTH = 13, 9
_OTHERS_INDEX, _UNSEEN_INDEX = NAMED_TAKERS, NAMED_TAKERS + 1


@dataclass(frozen=True, slots=True)
class LaneTask:
    """The times of a task on the CPUs of the lanes. Arrays are by column, and NaN where unknown."""

    comm: str
    pid: int | None
    """PID of the task; None for several tasks together, and for time of unknown tasks."""
    part: int
    """Index of the task's part of a lane, which has its colour."""
    run_s: float
    wait_s: float
    longest_wait_s: float
    """Lower bound, in s, of the longest wait of the task: the largest mean wait in a record."""
    ran: Floats
    """Share of the time for which the task ran."""
    waited: Floats
    """Share of the time for which the task waited for a CPU."""
    last_ns: int
    """Raw time of the last record in which the task ran."""


class TaskLanes:
    """The lanes of some units, and their sums over a window. The lane of a core shows the mean of
    its CPUs."""

    def __init__(self, session: Session, units: Sequence[Unit]) -> None:
        self._session = session
        self._cpus = [[str(cpu) for cpu in unit.cpus] for unit in units]
        self._cpu_counts = np.array([[len(unit.cpus)] for unit in units])
        self._records: list[tuple[int, list[list[TaskActivity]]]] = []
        """Raw time of each record of tasks, and by unit the tasks on its CPUs; the oldest record
        first."""
        self._times_ns: Floats = np.zeros(0)
        self._record_shares: Floats = np.zeros((len(units), 1, TAKERS))
        """Shares by unit, record and colour. The last record is a dummy of zeros, for columns
        without a record."""
        self._waiting_counts: Floats = np.zeros((len(units), 1))
        """Mean number of waiting tasks, by unit and record. The last record is a dummy of zeros, as
        in `_record_shares`."""
        self._read_ns = 0, 0
        """Raw times of the start and the end of the span whose records were read."""
        self._grouping: Grouping = "task"
        self._names: list[str] = [""] * NAMED_TAKERS
        """The task, job or control group of each colour; '' if there is none."""
        self._shares = np.zeros((len(units), 0, TAKERS))
        self._record_of_column = np.zeros(0, int)
        self._scale = self._column_s = np.zeros((len(units), 0))
        """By unit and column: the factor that fits the tasks to the busy time, and the seconds of
        CPU time within the range."""
        self._drawn_lines: dict[tuple[object, ...], list[list[Run]]] = {}
        """Cache of the lines drawn since the last read, by kind of line, unit, number of rows and
        look."""
        self._seconds = np.zeros((len(units), TAKERS))
        self._idle_s = np.zeros(len(units))
        self.basis: object = None
        """The axis and the range that were read last."""

    def read(
        self, axis: Axis, util: Floats, span_ns: tuple[int, int], grouping: Grouping = "task"
    ) -> None:
        """Reads the tasks for the columns of this axis. `util`: busy shares, (units, columns).
        `span_ns`: raw times between which seconds are summed. `grouping`: which tasks share a
        colour. Lanes and sums change with the axis."""
        self.basis = axis, span_ns, grouping
        has_changed = self._read_records(axis.start_ns, axis.now_ns) or grouping != self._grouping
        self._grouping = grouping
        if has_changed:
            self._add_up()
        self._drawn_lines.clear()
        columns = axis.columns
        ends_ns = axis.end_ns - axis.bin_ns * np.arange(columns - 1, -1, -1.0)
        times_ns = self._times_ns
        # A record covers the time before it; the newest columns have no record yet.
        at = times_ns.searchsorted(ends_ns).clip(0, max(0, len(times_ns) - 1))
        if len(times_ns):
            is_far = np.abs(times_ns[at] - ends_ns) > MAX_TASKS_AGE_NS
            at = np.where(is_far, len(times_ns), at)
        shares, self._record_of_column = self._record_shares[:, at], at
        known = shares.sum(axis=2)
        with np.errstate(divide="ignore", invalid="ignore"):
            self._scale = np.where(known > util, util / known, np.where(np.isnan(util), nan, 1.0))
        shares *= self._scale[..., None]
        shares[..., _UNSEEN_INDEX] = np.maximum(0.0, util - shares.sum(axis=2))
        self._shares = shares
        first_ns, last_ns = span_ns
        inside_ns = np.minimum(ends_ns, last_ns) - np.maximum(ends_ns - axis.bin_ns, first_ns)
        column_s = np.where(np.isfinite(util), inside_ns.clip(0) / 1e9, 0.0) * self._cpu_counts
        self._column_s = column_s
        self._seconds = np.nan_to_num(shares * column_s[..., None]).sum(axis=1)
        self._idle_s = column_s.sum(axis=1) - self._seconds.sum(axis=1)

    def _read_records(self, start_ns: int, end_ns: int) -> bool:
        """Reads the records of the axis, and keeps those from shortly before it, so that its first
        columns have a record. Returns whether the records have changed."""
        first_ns, last_ns = self._read_ns
        previous_records = self._records
        old_records = previous_records
        if not first_ns <= start_ns <= end_ns or end_ns < last_ns:
            old_records, last_ns = [], start_ns - 1
        snapshots = self._session.past.task_records(last_ns, end_ns) if end_ns > last_ns else []
        new_records = [
            (
                time_ns,
                [
                    [task for cpu in cpus for task in snapshot.activity_on(cpu)]
                    for cpus in self._cpus
                ],
            )
            for time_ns, snapshot in snapshots
        ]
        self._read_ns = start_ns, end_ns
        if (
            not new_records
            and old_records is previous_records
            and (not old_records or old_records[0][0] > start_ns - MAX_TASKS_AGE_NS)
        ):
            return False
        self._records = [
            record
            for record in (*old_records, *new_records)
            if record[0] > start_ns - MAX_TASKS_AGE_NS
        ]
        return True

    def _add_up(self) -> None:
        """Adds up the shares in each record by the colours of the tasks."""
        self._times_ns = np.array([time_ns for time_ns, _ in self._records], float)
        self._choose_names()
        place = {name: i for i, name in enumerate(self._names) if name}
        by_task = self._grouping == "task"
        self._record_shares = np.zeros((len(self._cpus), len(self._records) + 1, TAKERS))
        self._waiting_counts = np.zeros(self._record_shares.shape[:2])
        for record, (_, tasks_of_units) in enumerate(self._records):
            for unit, tasks in enumerate(tasks_of_units):
                for (pid, comm, share), wait, _ in tasks:
                    name = comm if by_task else self._name(pid, comm)
                    colour = place.get(name, _OTHERS_INDEX)
                    self._record_shares[unit, record, colour] += share
                    self._waiting_counts[unit, record] += 0.0 if isnan(wait) else wait
        self._record_shares /= self._cpu_counts[..., None]

    def _name(self, pid: int, comm: str) -> str:
        return group_name(self._session, pid, comm, self._grouping)

    def _choose_names(self) -> None:
        used, by_task = dict[str, float](), self._grouping == "task"
        for _, tasks_of_units in self._records:
            for (pid, comm, share), *_ in chain.from_iterable(tasks_of_units):
                name = comm if by_task else self._name(pid, comm)
                used[name] = used.get(name, 0.0) + share
        top = sorted(used, key=lambda name: -used[name])[:NAMED_TAKERS]
        new = [name for name in top if name not in self._names]
        self._names = [name if name in top else "" for name in self._names]
        for i, name in enumerate(self._names):
            if not name and new:
                self._names[i] = new.pop(0)

    def lane(self, unit: int, rows: int, look: Look) -> list[list[Run]]:
        """Returns the lane of a CPU in `rows` lines. The lowest line has the name of a task where
        the task fills enough cells."""
        if ("lane", unit, rows, look) not in self._drawn_lines:
            lanes = draw_to_lines(charts.takers, self._shares, rows, look)
            with_names = self._name_line if look == "colour" else self._letter_line
            for i, lines in enumerate(lanes):
                lines[-1] = [run for signs, key in lines[-1] for run in with_names(signs, key)]
                self._drawn_lines["lane", i, rows, look] = lines
        return self._drawn_lines["lane", unit, rows, look]

    def queue(self, unit: int, rows: int, look: Look) -> list[list[Run]]:
        """Returns the tasks that waited for a CPU, in `rows` lines above its chart: each line is
        one task."""
        key = "queue", unit, rows, look
        if key not in self._drawn_lines:
            waiting = self._waiting_counts[unit, self._record_of_column]
            signs = theme.LEVELS if look == "colour" else " " * 4 + QUEUE_LETTER * 5
            eighths = np.rint(8 * waiting) - 8 * np.arange(rows - 1, -1, -1)[:, None]
            levels = eighths.clip(0, 8).astype(int).tolist()
            self._drawn_lines[key] = [
                [("".join(signs[n] for n in line), "queue")] for line in levels
            ]
        return self._drawn_lines[key]

    def _name_line(self, signs: str, key: str) -> list[Run]:
        """Returns a run with the name of its task, if the name fits and all cells are full."""
        full, number = theme.LEVELS[8], key.removeprefix("task")
        named = number.isdecimal() and int(number) < NAMED_TAKERS
        name = safe_cells(self._names[int(number)]) if named else ""
        if not name or signs != full * len(signs) or len(signs) < len(name) + 2:
            return [(signs, key)]
        return [(full, key), (name, f"ground/{key}"), (full * (len(signs) - len(name) - 1), key)]

    def _letter_line(self, signs: str, key: str) -> list[Run]:
        """Returns a run of letters, in which the name follows the letter where there is room."""
        for letter, name in zip(charts.TAKER_LETTERS, map(safe_cells, self._names), strict=False):
            words = f"{letter}={name} "
            for found in re.finditer(f"{letter}{{{len(words) + 1},}}", signs):
                signs = signs[: found.start()] + words + signs[found.start() + len(words) :]
        return [(signs, key)]

    def sums(self, unit: int, rows: int, look: Look) -> list[list[Run]]:
        """Returns the seconds of each task on a CPU, the longest first, in `rows` lines, at least
        three, of SUMS_WIDTH cells. With the idle time, the seconds add up to the window."""
        if (drawn := self._drawn_lines.get(("sums", unit, rows, look))) is not None:
            return drawn
        seconds, idle_s = self._seconds[unit].tolist(), float(self._idle_s[unit])
        whole_s = sum(seconds) + idle_s
        order = sorted((i for i in range(NAMED_TAKERS) if seconds[i] >= MIN_SUM_S),
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
            is_task = i < NAMED_TAKERS
            bar = theme.LEVELS[8] * round(_BAR_WIDTH * seconds[i] / max(whole_s, 1e-9))
            sign, key = (
                (UNSEEN, "dim/rule") if i == _UNSEEN_INDEX else (theme.LEVELS[8], f"task{i}")
            )
            if look != "colour":
                sign, key = charts.TAKER_LETTERS[i], "text"
            name = fit(cut_name(names[i], _NAME_WIDTH), _NAME_WIDTH)
            lines.append([
                (sign, key), (f" {name}", "text" if is_task else "dim"),
                (f"{seconds[i]:>6.1f}", "bright" if i == kinds[0] else "text"), (" s  ", "dim"),
                (bar, key if i != _UNSEEN_INDEX else "rule"),
            ])  # fmt: skip
        idle = f"{'idle':<{_NAME_WIDTH}}{idle_s:>6.1f}"
        lines.append([(theme.NEITHER, "faint"), (f" {idle} s", "dim")])
        lines += [[]] * (rows - len(lines))
        drawn = [merge_runs(line, SUMS_WIDTH) for line in lines]
        self._drawn_lines["sums", unit, rows, look] = drawn
        return drawn

    def window_s(self, unit: int) -> float:
        """Returns the seconds to which the sums of a unit add up."""
        return float(self._column_s[unit].sum())

    @property
    def idle_s(self) -> float:
        """Idle seconds of all CPUs in the window."""
        return float(self._idle_s.sum())

    def task_times(self) -> list[LaneTask]:
        """Returns what each task did on all CPUs of the lanes, the one that ran longest first, and
        then the busy time of unknown tasks. With the idle time, these add up to the window."""
        shape = 2, len(self._cpus), len(self._records) + 1
        by_task: dict[tuple[str, int], Floats] = {}
        longest_s: dict[tuple[str, int], float] = {}
        last_ns: dict[tuple[str, int], int] = {}
        before_ns = None
        for record, (time_ns, tasks_of_units) in enumerate(self._records):
            elapsed_s = 0.0 if before_ns is None else (time_ns - before_ns) / 1e9
            before_ns = time_ns
            for unit, tasks in enumerate(tasks_of_units):
                for (pid, comm, share), wait, switches in tasks:
                    key = comm, pid
                    by_task.setdefault(key, np.zeros(shape))[:, unit, record] += share, wait
                    # It waited at most once before each time that it ran.
                    wait_s = wait * elapsed_s / (switches * elapsed_s + 1)
                    longest_s[key] = float(np.fmax(longest_s.get(key, nan), wait_s))
                    last_ns[key] = time_ns
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
