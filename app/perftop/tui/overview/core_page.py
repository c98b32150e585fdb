"""The page of one core: its charts, as in the overview; the tasks that ran on its CPUs; all its
numbers with their history; and the episodes on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from math import isfinite, isnan
from typing import ClassVar

import numpy as np
from textual import events
from textual.binding import BindingType

from perftop.base.arrays import Floats
from perftop.base.text import ClockUnit, fit, round_number, short_duration, time_of_day
from perftop.draw import charts, columns, theme
from perftop.draw.charts import Glyphs, chart_lines
from perftop.draw.columns import Cell, Column, Run
from perftop.draw.strips import Line, join_with_gaps, merge_runs, panel_title, safe_cells, wrap_line
from perftop.model.kinds import Episode
from perftop.model.numbers import L3, NUMBERS, SMALL_SHARE_ENDS, Number
from perftop.model.smt import STATES
from perftop.session.history import MAX_TASKS_AGE_NS
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.values import (
    PACKAGE_FIELDS,
    CpuColumns,
)
from perftop.tui.overview.chart_cells import ColumnHistory
from perftop.tui.overview.charts import ChartedView, ChartPage
from perftop.tui.overview.core_facts import core_facts
from perftop.tui.overview.task_lanes import LaneTask, TaskLanes, task_char
from perftop.tui.shared.canvas import PanelLine
from perftop.tui.shared.core_numbers import (
    NUMBER_KEYS,
    number_line,
    number_line_width,
    worst_by_number,
)
from perftop.tui.shared.cores import Core
from perftop.tui.shared.keys import bindings
from perftop.tui.shared.panels import GAP, MIN_HEIGHT, PanelRow, episode_panel
from perftop.tui.shared.row_numbers import (
    ViewSettings,
    busiest_cpu_indexes,
    core_values,
    ordered_rows,
    session_clock_unit,
)
from perftop.tui.shared.tables import command_line, fit_command

MIN_VALUE_WIDTH, VALUE_WIDTH = 5, 8
"""Minimum and usual width of a value, in cells."""
MIN_FORMULA_WIDTH = 20
"""Minimum width of the formula of a number, in cells."""
MIN_HISTORY_WIDTH, MAX_HISTORY_WIDTH, SCALE_WIDTH = 12, 60, 6
"""Minimum and maximum width of the history of a number, and the width of the number at the upper
end of its scale, in cells."""
PANELS_SHARE, MAX_MIN_PANEL_LINES = 0.55, 24
"""Minimum share of the page's lines that are below the charts, and its upper limit in lines."""
MIN_STACK_HEIGHT, MIN_TABLE_HEIGHT = 12, 5
"""Minimum lines below the charts for numbers below the table of tasks, and of that table."""
TABLE_SHARE = 0.62
"""Share of the width for the table of tasks beside episodes."""
MAX_NUMBERS_BESIDE = 9
"""Maximum count of numbers that are listed beside episodes, so that tasks have the whole width."""
NUMBERS_WIDTH = 78
"""Width of the page in cells for each column of numbers, if the numbers fit into these columns."""
FACT_LABEL_WIDTH = 12
"""Width in cells of the labels of "on this CPU"."""
MIN_WAIT_SHARE = 0.1
"""Minimum share of a cell's time for which a task must wait for the wait to be drawn."""
MIN_UNKNOWN_SHARE = 0.2
"""Minimum share of a cell's time that unknown tasks must use to be drawn."""
WAIT_SIGN = "▒"
_RUNS, _WAITS = (theme.LEVELS[8], "task0"), (WAIT_SIGN, "over")
_LEGEND: list[Run] = [_RUNS, (" runs ", "dim"), _WAITS, (" waits ", "dim")]


class CorePage(ChartedView):
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("core")]
    HINTS: ClassVar[tuple[str, ...]] = ("back", "core_down", "wider", "units")

    _row: int | None = None
    """Index of the shown core in `cores.rows`; None if no core matches the filter."""
    _lines: Sequence[list[Run]] = ()
    _numbers: Sequence[Number]
    _history: ColumnHistory
    _scale_tops: dict[str, float]
    """Upper ends of the scales of the histories at the last refresh, by key of the number."""
    _histories: tuple[object, dict[str, list[Run]]]
    """A cache: the histories drawn, by key of the number, and the inputs used."""
    _tasks: tuple[object, list[PanelLine]]
    _episodes: tuple[object, list[PanelLine]]
    """Caches: the lines of the tasks and of the episodes, and the inputs that they were drawn
    from."""

    @property
    def _core(self) -> Core:
        assert self._row is not None
        return self.cores.rows[self._row]

    def reset(self) -> None:
        self._row = None  # the layout may be made later, when the view has a size

    def make_layout(self) -> None:
        self._row, self.shown_charts = self.selected_row, None
        if self._row is None:
            return
        session, core, height = self.session, self._core, self.size.height
        page_charts = ChartPage(session, self.cores, self.settings, [core.core_position])
        min_panel_lines = min(MAX_MIN_PANEL_LINES, round(PANELS_SHARE * height))
        if page_charts.choose_layout(height, self.size.width, min_panel_lines):
            self.shown_charts = page_charts
        # The numbers of CPUs and cores, the most important first, then those of packages and L3s.
        numbers = [number for number in CpuColumns(session).columns() if number.unit]
        order = {key: i for i, key in enumerate(NUMBER_KEYS)}
        numbers.sort(key=lambda number: order.get(number.key, len(order)))
        packages, caches = self.interval.packages, self.interval.caches
        numbers += [NUMBERS[key] for key, name in PACKAGE_FIELDS.items() if name in packages]
        numbers += [number for key, number in L3.items() if key in caches]
        self._numbers, self._scale_tops = numbers, {}
        self._histories, self._tasks, self._episodes = (None, {}), (None, []), (None, [])
        metrics = session.evaluator.metrics
        keys = ["util", "busy_hz", *(n.key for n in numbers if n.key in metrics)]
        metrics_read = [*dict.fromkeys(keys)]
        self._history = ColumnHistory(session, metrics_read, [core], has_states=True)

    def make_lines(self) -> None:
        self._lines, self.footer_lines = [], []
        page_charts = self.shown_charts
        if self._row is not None and page_charts is not None:
            page_charts.make_lines(self.interval, [self._row])
            self._lines = [*page_charts.lines, []]
        self.line_count = len(self._lines)
        width, room = self.size.width, self.size.height - self.line_count
        if self._row is None or room < MIN_HEIGHT:
            return
        if page_charts is None:
            row = PanelRow((self._draw_numbers,), (1,), width, room)
        elif room < MIN_STACK_HEIGHT:
            row = PanelRow((self._draw_tasks, self._draw_numbers), (7, 5), width, room)
        else:
            row = PanelRow((self._draw_stack,), (1,), width, room)
        self.footer_lines = self.draw_panels(row)

    def line(self, y: int) -> Line:
        return self._lines[y], "calm"

    def on_click(self, event: events.Click) -> None:
        self.handle_footer_click(event)

    def action_neighbour(self, steps: int) -> None:
        """Goes to the core `steps` rows below this one, in the order that all views share."""
        if self._row is None:
            return
        rows = ordered_rows(self.cores, self.settings, self.session, self.interval)
        index = max(0, min(len(rows) - 1, rows.index(self._row) + steps))
        self.settings.cpu = self.cores.rows[rows[index]].cpus[0]
        self.lay_out()

    # --- panels

    def _draw_stack(
        self, session: Session, interval: Interval, settings: ViewSettings, width: int, height: int
    ) -> list[PanelLine]:
        """Returns the tasks on the core and, below them, all its numbers. The episodes are beside
        the numbers if those are few, else beside the tasks."""
        left_width = round(TABLE_SHARE * (width - GAP))
        if len(self._numbers) <= MAX_NUMBERS_BESIDE:
            room = height - len(self._numbers) - 3
            tasks = self._draw_tasks(session, interval, settings, width, room)
            rest = height - len(tasks) - 1
            numbers = self._draw_numbers(session, interval, settings, left_width, rest)
            return [*tasks, ([], None), *self._with_episodes(numbers, width, rest)]
        columns = self._number_columns(width, height - MIN_TABLE_HEIGHT - 1)
        rows = min(-(-len(self._numbers) // columns), height - MIN_TABLE_HEIGHT - 3)
        room = height - rows - 3
        tasks = self._draw_tasks(session, interval, settings, left_width, room)
        numbers = self._draw_numbers(session, interval, settings, width, rows + 2)
        return [*self._with_episodes(tasks, width, room), ([], None), *numbers]

    def _draw_tasks(
        self, session: Session, interval: Interval, settings: ViewSettings, width: int, height: int
    ) -> list[PanelLine]:
        assert self.shown_charts is not None
        lanes = self.shown_charts.lanes
        now_ns = None if session.is_past(interval) else self.shown_charts.axis.now_ns
        inputs = lanes.inputs, now_ns is None, session, width, height
        if inputs != self._tasks[0]:
            table = task_table(session, lanes, now_ns, width, height, settings.glyphs)
            self._tasks = inputs, [(line, None) for line in table]
        return self._tasks[1]

    def _with_episodes(
        self, left_lines: Sequence[PanelLine], width: int, height: int
    ) -> list[PanelLine]:
        """Returns these lines with the episodes on the core, and other facts about it, beside
        them."""
        assert self.shown_charts is not None
        session, interval = self.session, self.interval
        left_width = round(TABLE_SHARE * (width - GAP))
        size = width - GAP - left_width
        episode_counts = [len(session.running), len(session.ended), len(session.marks)]
        moment_ns = interval.time_ns if session.is_past(interval) else None
        inputs = self.shown_charts.lanes.inputs, moment_ns, session, episode_counts, size, height
        if inputs != self._episodes[0]:
            facts, cpus = self._fact_lines(size), frozenset(self._core.cpus)
            panel = episode_panel(session, interval, self.settings, size, height, cpus)
            facts = facts[: max(height // 2, height - len(panel) - 1)]
            room = height - len(facts) - 1
            if len(panel) > room:
                panel = episode_panel(session, interval, self.settings, size, room, cpus)
            panel += [([], None)] * (height - len(facts) - len(panel))
            self._episodes = inputs, [*panel, *((line, None) for line in facts)]
        lines = [*left_lines, *[([], None)] * (height - len(left_lines))]
        return [
            ([*merge_runs(left_line, left_width), (" " * GAP, "text"), *right_line], target)
            for (left_line, _), (right_line, target) in zip(lines, self._episodes[1], strict=True)
        ]

    def _fact_lines(self, size: int) -> list[list[Run]]:
        """Returns other facts about the core's CPUs, in the span of the verdict."""
        assert self.shown_charts is not None
        verdict = self.verdict
        totals = None if verdict is None or verdict.report is None else verdict.report.totals
        *tasks, _ = self.shown_charts.lanes.task_times()
        name = "on this core" if len(self._core.cpus) > 1 else "on this CPU"
        span = "" if totals is None else f"in {totals.elapsed_s:.1f} s"
        lines = [panel_title(name, span, size)]
        for label, text in core_facts(
            self.session, self.interval, self._core, self._numbers, totals, tasks
        ):
            label_width = FACT_LABEL_WIDTH if label else 0
            for i, part in enumerate(wrap_line(safe_cells(text), max(1, size - label_width))):
                head = (f"{'' if i else label:{label_width}}", "dim")
                lines.append([head, (part, "text" if label else "dim")])
        return lines

    def _number_columns(self, width: int, height: int) -> int:
        """Returns the number of columns in which the numbers are listed, so that they fit if
        possible."""
        min_width = number_line_width(len(self._core.cpus), VALUE_WIDTH) + GAP
        needed_columns = -(-len(self._numbers) // max(1, height - 2))
        return max(1, min((width + GAP) // min_width, max(width // NUMBERS_WIDTH, needed_columns)))

    def _draw_numbers(
        self, session: Session, interval: Interval, settings: ViewSettings, width: int, height: int
    ) -> list[PanelLine]:
        """Returns all numbers of the core's CPUs, in one or more columns, with their history and
        their formula if there is room."""
        core, cpus = self._core, [*self._core.cpus]
        columns = self._number_columns(width, height)
        size = (width + GAP) // columns - GAP
        if number_line_width(len(cpus), VALUE_WIDTH) > size:
            cpus = [cpu for cpu in cpus if cpu == settings.cpu]
        value_width = max(MIN_VALUE_WIDTH, min(VALUE_WIDTH, size - number_line_width(0, 0)))
        numbers_width = number_line_width(len(cpus), value_width)
        room = size - numbers_width
        history_width = min(room - SCALE_WIDTH - 1, MAX_HISTORY_WIDTH)
        clock = session_clock_unit(session, settings.units, ghz_if_unknown=True)
        worst = worst_by_number(session, interval, cpus)
        has_histories = history_width >= MIN_HISTORY_WIDTH
        histories = self._drawn_histories(history_width, clock, worst) if has_histories else {}
        formula_width = room - history_width - SCALE_WIDTH - 1 if has_histories else room
        names = "".join(f"{f'CPU {cpu}':>{value_width}}" for cpu in cpus)
        blocks: list[list[list[Run]]] = []
        rows = min(-(-len(self._numbers) // columns), max(0, height - 2))
        for first in range(0, min(len(self._numbers), rows * columns), max(1, rows)):
            lines: list[list[Run]] = [[(f"{names:>{numbers_width - 4}}", "dim")]]
            for number in self._numbers[first : first + rows]:
                key, episode = number.key, worst.get(number.key)
                line = number_line(session, interval, number, cpus, value_width, clock, episode)
                if has_histories:
                    blank = " " * (history_width + SCALE_WIDTH + 1), "text"
                    line += histories.get(key, [blank])
                if formula_width >= MIN_FORMULA_WIDTH:
                    is_metric = key in session.evaluator.variants  # otherwise it is a counter
                    origin = session.evaluator.origin(key) if is_metric else ""
                    line.append((fit(f"  {safe_cells(origin or '')}", formula_width), "faint"))
                lines.append(line)
            blocks.append([merge_runs(line, size) for line in lines])
        title = panel_title(_core_name(core), "", width)
        lines = [join_with_gaps(parts, GAP) for parts in zip_longest(*blocks, fillvalue=())]
        return [(line, None) for line in (title, *lines)]

    def _drawn_histories(
        self, columns: int, clock: ClockUnit, worst: Mapping[str, Episode]
    ) -> dict[str, list[Run]]:
        """Returns the drawn histories by key of the number, for numbers that have a history. Halts
        and steal are those of the CPU with the highest value, other metrics those of the busiest
        CPU."""
        session, interval, core, history = self.session, self.interval, self._core, self._history
        history.update(columns, interval, self.settings)
        inputs = history.axis, clock, [*worst]
        if inputs == self._histories[0]:
            return self._histories[1]
        busiest = busiest_cpu_indexes(history.series("util").T, history.series("busy_hz").T)
        values = {key: core_values(key, history.series(key).T, busiest) for key in history.metrics}
        values |= dict(zip((*STATES, "turbo_ceiling_hz"), history.core_values[0], strict=True))
        drawn: dict[str, list[Run]] = {}
        for number in self._numbers:
            key = number.key
            if number.scope in {"package", "l3"}:
                series = session.past.shared_counter(number.counter, history.axis.edges)
                index = _shared_index(session, number, core)
                if index is not None and index < series.shape[1]:
                    values[key] = series[:, index]
            if key in values:
                drawn[key] = self._history_runs(number, clock, values[key], is_lowered=key in worst)
        self._histories = inputs, drawn
        return drawn

    def _history_runs(
        self, number: Number, clock: ClockUnit, values: Floats, *, is_lowered: bool
    ) -> list[Run]:
        """Returns the drawn history of a number, on a scale from 0, and the upper end of the
        scale."""
        ends: Sequence[float] = charts.SCALE_ENDS
        if number.unit == "ratio":
            ends = SMALL_SHARE_ENDS if number.is_small else (1.0,)
        top = self._scale_tops[number.key] = charts.scale_top(
            values, ends, self._scale_tops.get(number.key)
        )
        style = "loss" if is_lowered else "ipc"
        area = charts.area_chart(values / top, 1, style, ascii_=self.settings.ascii)
        scale_end = round_number(top if number.is_rate else top * number.scale(clock)[0])
        return [(" ", "text"), *chart_lines(area)[0], (fit(f" {scale_end}", SCALE_WIDTH), "faint")]


def _core_name(core: Core) -> str:
    """Returns the name of the core, with its CPUs, package, L3 and type."""
    parts = [
        "" if core.core is None or len(core.cpus) == 1 else f"core {core.core}",
        f"CPU{'s' * (len(core.cpus) > 1)} {', '.join(map(str, core.cpus))}",
        "" if core.package is None else f"package {core.package}",
        "" if core.l3 is None else f"L3 {core.l3}",
        f"{core.type}-core" if core.type else "",
    ]
    return " · ".join(filter(None, parts))


def _shared_index(session: Session, number: Number, core: Core) -> int | None:
    """Returns the index of the core's package or L3 in the series of this number; None if the
    series does not include it."""
    if number.scope == "package":
        packages = enumerate(session.hello.packages)
        return next((i for i, cpus in packages if not {*core.cpus}.isdisjoint(cpus)), None)
    column = session.counters.columns.get(number.counter)
    counted_cpus = {*(column.counter.cpus or ())} if column else set[int]()
    caches = [row.l3 for row in session.topology if row.cpu in counted_cpus]
    return caches.index(core.l3) if core.l3 in caches else None


# --- the table of tasks


def task_table(
    session: Session, lanes: TaskLanes, now_ns: int | None, width: int, height: int, glyphs: Glyphs
) -> list[list[Run]]:
    """Returns a table of the tasks on the core's CPUs: how long each ran and waited, and when it
    last ran. The running times, with those of unknown tasks and the idle time, add up to the
    window. `now_ns`: its end (monotonic ns); None if that is in the past."""
    *all_tasks, unseen_task = lanes.task_times()
    window_s = unseen_task.run_s + lanes.idle_s + sum(task.run_s for task in all_tasks)
    room, shown_tasks = max(0, height - 4), all_tasks
    if len(all_tasks) > room:
        named_count = max(0, room - 1)
        shown_tasks = [*all_tasks[:named_count], _join_task_times(all_tasks[named_count:])]
    # If a process had several names, its command line is that of the last one.
    last_names = {task.pid: task.comm for task in sorted(all_tasks, key=lambda t: t.last_ns)}
    commands = {(pid, name): command_line(session, pid) for pid, name in last_names.items() if pid}
    longest_command = max(map(len, commands.values()), default=0)
    shown_columns = columns.fit_columns([
        Column("sign", "", 2, is_left=True, gap=0),
        Column("task", "task", 12, is_left=True, gap=0, max_width=20, growth_rank=1),
        Column("pid", "pid", 8),
        Column("run", "CPU s", 8, digits=1),
        Column("wait", "waited", 8, rank=2, digits=1),
        Column("longest", "longest", 9, rank=3),
        Column("switches", "switches/s", 12, rank=6),
        Column("when", "", 18, is_left=True, gap=2, rank=4, max_width=48),
        Column("last", "last ran", 10, is_left=True, rank=1),
        Column("command", "command", 18, is_left=True, rank=5, max_width=2 + longest_command),
    ], width)  # fmt: skip
    lines = [panel_title("tasks", f"CPU seconds of {window_s:.1f} s", width)]
    heads: list[Cell] = [
        _LEGEND if column.key == "when" else (column.heading, "dim") for column in shown_columns
    ]
    lines.append(columns.join_columns(shown_columns, heads))
    for task in (*shown_tasks, unseen_task):
        command = commands.get((task.pid or 0, task.comm), "")
        is_running = now_ns is not None and now_ns - task.last_ns <= MAX_TASKS_AGE_NS
        last = "now" if is_running else time_of_day(session.unix_s(task.last_ns))
        cells = [_task_cell(column, task, last, command, glyphs) for column in shown_columns]
        lines.append(columns.join_columns(shown_columns, cells))
    idle = "idle", "dim"
    cells = [(theme.NEITHER, "faint"), idle, ("", "dim"), (f"{lanes.idle_s:.1f}", "dim")]
    lines.append(columns.join_columns(shown_columns[:4], cells))
    return lines


def _join_task_times(tasks: Sequence[LaneTask]) -> LaneTask:
    """Returns the sums of the times of these tasks."""
    return LaneTask(
        f"{len(tasks)} others",
        None,
        charts.NAMED_TASKS,
        sum(task.run_s for task in tasks),
        np.sum([task.run_shares for task in tasks], axis=0),
        np.sum([task.wait_shares for task in tasks], axis=0),
        float(np.nansum([task.wait_s for task in tasks])),
        float(np.fmax.reduce([task.longest_wait_s for task in tasks])),
        float(np.nansum([task.switches_per_s for task in tasks])),
        max(task.last_ns for task in tasks),
    )


def _task_cell(column: Column, task: LaneTask, last: str, command: str, glyphs: Glyphs) -> Cell:
    is_unseen = task.colour_index > charts.NAMED_TASKS
    match column.key:
        case "sign":
            return [task_char(task.colour_index, glyphs)]
        case "task":
            return fit(safe_cells(task.comm), column.room), "text" if task.pid else "dim"
        case "pid":
            return "" if task.pid is None else str(task.pid), "dim"
        case "run":
            return column.cell(task.run_s, "bright")
        case "wait":
            return column.cell(task.wait_s)
        case "longest":
            is_known = isfinite(task.longest_wait_s)
            return short_duration(task.longest_wait_s) if is_known else "–", "dim"
        case "switches":
            return column.cell(task.switches_per_s)
        case "when":
            return _activity_runs(task, column.room, glyphs)
        case "last" if is_unseen:
            return "", "dim"
        case "command" if is_unseen:
            return "in no task scan", "dim"
        case "last":
            return last, "dim"
    return fit_command(command, task.comm, column.room), "dim"


def _activity_runs(task: LaneTask, cells: int, glyphs: Glyphs) -> list[Run]:
    """Returns a line of cells that shows when the task ran and waited."""
    edges = np.linspace(0, len(task.run_shares), cells + 1).round().astype(int)
    runs, is_unseen = list[Run](), task.colour_index > charts.NAMED_TASKS
    for first, last in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        cell = slice(first, max(last, first + 1))
        run, wait = (_known_mean(shares[cell]) for shares in (task.run_shares, task.wait_shares))
        if isnan(run):
            runs.append((" ", "text"))
        elif wait >= MIN_WAIT_SHARE and wait > run:
            runs.append(("w" if glyphs == "ascii" else WAIT_SIGN, "over"))
        elif run < (MIN_UNKNOWN_SHARE if is_unseen else 1 / 16):
            runs.append((theme.NEITHER, "neither"))
        elif is_unseen:
            runs.append((charts.UNKNOWN_TASK, "dim/rule"))
        else:
            level = theme.LEVELS[max(1, min(8, round(8 * run)))]
            runs.append((level, f"task{task.colour_index}"))
    return runs


def _known_mean(values: Floats) -> float:
    """Returns the mean of the values that are not NaN; NaN if there are none."""
    known_values = values[np.isfinite(values)]
    return float(known_values.mean()) if len(known_values) else np.nan
