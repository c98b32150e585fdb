"""Tables in panels and views: tasks by CPU time, and two ranges of time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite, isnan, nan

from perftop.base.text import ELLIPSIS, clock_time, fit, signed
from perftop.draw import columns, theme
from perftop.draw.columns import Cell, Column, Run
from perftop.draw.strips import panel_title, safe_cells, wrap_line
from perftop.draw.strips import width as text_width
from perftop.model.control_groups import process_owner
from perftop.model.tasks import TaskSnapshot
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.task_times import UNKNOWN_CPU
from perftop.tui.shared.canvas import PanelLine
from perftop.tui.shared.row_numbers import GROUPINGS, Grouping, ViewSettings
from perftop.tui.shared.verdict import Verdict, verdict_at

MAX_CPU_COLUMNS = 4
MIN_WIDTH_FOR_OWNERS = 88
MIN_ALARM_WAIT = 0.2
"""Minimum share of its time that a task waited, for the share to be red."""
MAX_COMMAND_LENGTH = 400
"""Maximum length of a command line, in characters."""
NO_OWNER_TEXT = "no unit or container"
"""Owner of tasks in the root control group, or in an unknown group."""
MIN_NORMAL_SHARE = 0.05
"""Share of a CPU below which a task is drawn dim."""
INDENT = 2
"""Cells before the names in a panel, reserved for the marker of a line."""
_BAR = Column("bar", "", 18, is_left=True, gap=4, rank=3, max_width=38)
_LEGEND: list[Run] = [("━", "lp0"), (" runs ", "dim"), ("┅", "queue"), (" waits", "dim"),
                      (" ─", "faint"), (" sleeps", "dim")]  # fmt: skip
"""The heading of the bars; a narrow column has its first four runs."""


MIN_HEIGHT_FOR_HEADINGS = 8
"""Minimum height in lines of a panel with a separate line of column headings."""
MIN_WIDTH_FOR_KEY = 60
"""Minimum width in cells of a panel with a key at the end of its title."""


def title_key(key: str, label: str, width: int) -> list[Run]:
    """Returns the key that opens the full list of a panel, for its title."""
    return [(key, "key"), (f" {label}", "dim")] if width >= MIN_WIDTH_FOR_KEY else []


def task_panel(
    session: Session, interval: Interval, settings: ViewSettings, width: int, height: int
) -> list[PanelLine]:
    ranked = task_ranking(session, interval, settings.grouping)
    if not ranked.tasks:
        reason = "no task has run for a noticeable time"
        if missing := next((m.why for m in session.hello.missing if m.what == "tasks"), None):
            reason = safe_cells(missing)
        elif (interval.values["util"][session.selected] > MIN_NORMAL_SHARE).any():
            reason = "no task data yet (sampled once a second)"
        parts, max_rows = wrap_line(reason, max(1, width - INDENT)), max(0, height - 2)
        if hidden_parts := parts[max_rows:]:
            parts[max_rows:] = [fit(" ".join(hidden_parts), width - INDENT)]
        reason_lines = [[(" " * INDENT + part, "dim")] for part in parts]
        return [(runs, None) for runs in (panel_title("who runs", "", width), *reason_lines)]
    title = "who runs", "% of a CPU"
    if session.is_past(interval):
        span = f"at {clock_time(interval.time)}"
        if settings.range_ns is not None:
            span = f"in {settings.range_name}, {interval.elapsed_s:.1f} s"
        title = "who ran", f"% of a CPU, {span}"
    is_low = height < MIN_HEIGHT_FOR_HEADINGS
    table = task_columns(session, interval, ranked, width, is_low=is_low)
    if is_low:  # all headings except the names' are on the title's line
        numbers = [column for column in table if column.key not in {"name", "pid", "owner"}]
        number_headings = columns.headings(numbers)
        number_headings.append((" " * max(0, width - columns.total_width(table)), "dim"))
        title_lines = [panel_title(title[0], "", width, number_headings)]
    else:
        index = GROUPINGS.index(settings.grouping) + 1
        label = f"by {GROUPINGS[index % len(GROUPINGS)]}"
        key = title_key(settings.captions["owners"], label, width)
        headings = columns.join_columns(table, map(_heading, table))
        title_lines = [panel_title(*title, width, key), headings]
    lines: list[PanelLine] = [(runs, None) for runs in title_lines]
    for task in ranked.top_tasks(max(0, height - len(lines))):
        cells = task_cells(task, table, session, interval)
        lines.append((columns.join_columns(table, cells), task.cpu))
    return lines


def _heading(column: Column) -> Cell:
    if column.key != "bar":
        return column.heading, "dim"
    return _LEGEND if text_width(_LEGEND) <= column.room else _LEGEND[:4]


@dataclass(frozen=True, slots=True)
class RankedTask:
    pid: int
    comm: str
    shares: dict[int, float]
    threads: float
    """Number of threads whose shares are summed; over a range, the mean number."""
    wait_share: float
    """Share of time that the task waited for a CPU, as a mean of its threads; NaN if unknown."""
    switches_per_s: float
    """Context switches per second, voluntary and involuntary; NaN if unknown."""

    @property
    def share(self) -> float:
        return sum(self.shares.values())

    @property
    def cpu(self) -> int:
        return max(self.shares, key=self.shares.__getitem__)


def task_columns(
    session: Session, interval: Interval, ranking: TaskRanking, width: int, *, is_low: bool
) -> list[Column]:
    """Returns the columns that fit. Spare cells go to the bar first, then to the names. `is_low`:
    the table has few lines and no bars."""
    indent, by_task = 0 if is_low else INDENT, ranking.grouping == "task"
    min_width, max_width = (indent + 9, indent + 16) if by_task else (indent + 24, indent + 48)
    name = Column("name", ranking.grouping, min_width, is_left=True, gap=indent, growth_rank=1)
    names = [replace(name, max_width=max_width)]
    if by_task:
        names.append(Column("pid", "", 8))
        tasks = ranking.tasks if width >= MIN_WIDTH_FOR_OWNERS and session.details else ()
        if any(owner_name(session, pid) for pid, _ in tasks):
            names.append(Column("owner", "owner", 13, is_left=True))
    cpus = sorted(session.topology[row].cpu for row in session.selected)
    shown_cpus = cpus[:MAX_CPU_COLUMNS]
    share = Column("share", "runs", 8, scale=100.0, digits=1)
    shares = [replace(share, key=f"cpu {n}", heading=f"CPU {n}", source=n) for n in shown_cpus]
    waits = Column("waits", "waits", 7, rank=1, scale=100.0, digits=1)
    fixed_width = indent + 9 + 8 + columns.total_width([*shares, waits]) + _BAR.room
    if is_low or len(cpus) > MAX_CPU_COLUMNS or fixed_width > width:
        shares = [Column("cpu", "CPU", 5), replace(share, width=7)]
    has_waits = interval.snapshot.waits is not None
    has_totals = session.run.tracks_losses and not session.is_past(interval)
    has_commands = any(command_line(session, pid) for pid, _ in ranking.tasks)
    command = Column("command", "command", 20, is_left=True, rank=4, max_width=80, weight=3)
    further_columns = [
        (not is_low, _BAR),
        (has_waits, waits),
        (has_waits, Column("switches", "switches/s", 12, rank=5)),
        (bool(session.evaluator.variants["ipc"]), Column("ipc", "IPC", 6, rank=2, digits=2)),
        (has_totals, Column("total", "total s", 10, rank=6, digits=1, source=ranking)),
        (has_commands, command),
    ]
    further = [column for is_shown, column in further_columns if is_shown]
    return columns.fit_columns([*names, *shares, *further], width)


def task_cells(
    task: RankedTask, shown_columns: list[Column], session: Session, interval: Interval
) -> Iterator[Cell]:
    style = "text" if task.share >= MIN_NORMAL_SHARE else "dim"
    for column in shown_columns:
        match column.key:
            case "name":
                yield cut_name(task.comm, column.room), style
            case "pid":
                yield str(task.pid), "dim"
            case "command":
                yield fit_command(command_line(session, task.pid), task.comm, column.room), "dim"
            case "owner":
                yield cut_name(owner_name(session, task.pid), column.room), "dim"
            case "cpu":
                yield str(task.cpu), "dim"
            case "bar":
                yield task_bar(task.share / task.threads, task.wait_share, column.room)
            case "waits":
                wait_style = "alarm" if task.wait_share > MIN_ALARM_WAIT else style
                yield column.cell(task.wait_share, wait_style)
            case "switches":
                yield column.cell(task.switches_per_s, style)
            case "ipc":
                cpu, *other_cpus = task.shares
                names = {(t.pid, t.comm) for t in interval.snapshot.tasks_on(str(cpu))}
                # The IPC of a CPU is a task's only if no other task ran there.
                is_alone = not other_cpus and names <= {(task.pid, task.comm)}
                ipc = interval.values["ipc"][session.position[cpu]] if is_alone else nan
                yield column.cell(float(ipc), style)
            case "total":
                yield column.cell(column.source.cpu_seconds(task), style)
            case _:
                share = task.share if column.key == "share" else task.shares.get(column.source, 0.0)
                yield column.cell(share, style, resting=not share)


def task_bar(run_share: float, wait_share: float, size: int) -> list[Run]:
    """Returns a bar of the shares of time for which a task ran, waited for a CPU, and slept."""
    runs = min(size, round(size * min(1.0, run_share)))
    waits = 0 if isnan(wait_share) else min(size - runs, round(size * wait_share))
    return [
        (theme.STROKE * runs, "lp0"),
        (theme.WAIT_STROKE * waits, "queue"),
        (theme.RULE * (size - runs - waits), "rule"),
    ]


def owner_name(session: Session, pid: int) -> str:
    """Returns the owner of a process: its job, pod, container or unit (without the suffix of a
    service), else the name of its parent; '' if unknown."""
    details = session.details.get(str(pid), {})
    parent = details.get("parent")
    name = process_owner(details).removesuffix(".service")
    return name or (parent if isinstance(parent, str) else "")


def command_line(session: Session, pid: int) -> str:
    """Returns the command line of a process; '' if unknown: only those that ran most are read."""
    command = session.details.get(str(pid), {}).get("command")
    return safe_cells(command[:MAX_COMMAND_LENGTH]) if isinstance(command, str) else ""


def fit_command(command: str, comm: str, size: int) -> str:
    """Returns the command line of a task named `comm` in `size` cells: if it does not fit, without
    the program's directory, and without the program itself if it is the task's name."""
    if len(command) <= size:
        return command
    program, space, arguments = command.partition(" ")
    program = program.rpartition("/")[2]
    text = program + space + arguments
    is_repeated = len(text) > size and program == comm and arguments
    return fit(arguments if is_repeated else text, size)


def group_name(session: Session, pid: int, comm: str, grouping: Grouping) -> str:
    """Returns the name under which a task is listed: its own, its job's, or its group's path."""
    if grouping == "task":
        return comm
    details = session.details.get(str(pid), {})
    if grouping == "job":
        return process_owner(details) or NO_OWNER_TEXT
    group = details.get("group")
    return group if isinstance(group, str) and group else NO_OWNER_TEXT


def cut_name(name: str, size: int) -> str:
    """Returns a name that is safe to draw, in at most `size` cells; a path keeps its end."""
    name = safe_cells(name)
    if name.startswith("/") and len(name) > size > 1:
        return ELLIPSIS + name[1 - size :]
    return fit(name, min(len(name), size))


class TaskRanking:
    """The tasks of one record on the selected CPUs, the busiest first. Threads with one name in one
    process are one task; with another `grouping`, all tasks of a job or control group are."""

    def __init__(self, session: Session, snapshot: TaskSnapshot, grouping: Grouping) -> None:
        self.snapshot, self.selected, self.grouping = snapshot, session.selected, grouping
        self._session = session
        self._shares: dict[tuple[int, str], dict[int, float]] = {}
        tasks_by_cpu = snapshot.top_tasks or snapshot.tasks
        for row in session.selected:
            cpu = session.topology[row].cpu
            for task in snapshot.tasks_on(name) if (name := str(cpu)) in tasks_by_cpu else ():
                shares = self._shares.setdefault(self._task_key(task.pid, task.comm), {})
                shares[cpu] = shares.get(cpu, 0.0) + task.share
        ranks = [(-round(sum(s.values()), 3), *task) for task, s in self._shares.items()]
        self.tasks = [(pid, comm) for _, pid, comm in sorted(ranks)]

    def _task_key(self, pid: int, comm: str) -> tuple[int, str]:
        """Returns the PID and name under which a task is listed; for a group, the PID is 0."""
        name = group_name(self._session, pid, comm, self.grouping)
        return pid if self.grouping == "task" else 0, name

    def cpu_seconds(self, task: RankedTask) -> float:
        """Returns the CPU seconds that a task has used since perftop began to read tasks."""
        tasks = self._session.run.times.tasks
        if self.grouping != "task":
            return self._group_seconds.get(task.comm, nan)
        keys = ((task.pid, task.comm, cpu) for cpu in (*self._session.position, UNKNOWN_CPU))
        times_s = [tasks[key].run_s for key in keys if key in tasks]
        return sum(times_s) if times_s else nan

    @cached_property
    def _group_seconds(self) -> dict[str, float]:
        seconds = defaultdict[str, float](float)
        for (pid, comm, _), times in self._session.run.times.tasks.items():
            seconds[group_name(self._session, pid, comm, self.grouping)] += times.run_s
        return seconds

    def top_tasks(self, count: int) -> list[RankedTask]:
        ranked_tasks = []
        for pid, comm in self.tasks[:count]:
            shares = self._shares[pid, comm]
            tasks = (task for cpu in shares for task in self.snapshot.activity_on(str(cpu)))
            threads = [t for t in tasks if self._task_key(t.task.pid, t.task.comm) == (pid, comm)]
            counts = self.snapshot.thread_counts
            members = {(thread.task.pid, thread.task.comm) for thread in threads}
            size = sum(counts[member] for member in members) if counts else len(threads)
            wait = sum(thread.wait for thread in threads) / size
            switches = sum(thread.switches_per_s for thread in threads)
            ranked_tasks.append(RankedTask(pid, comm, shares, size, wait, switches))
        return ranked_tasks

    @cached_property
    def names_by_cpu(self) -> dict[int, list[tuple[float, str]]]:
        """Shares and names with PIDs of the tasks on each CPU, by its number, the busiest first."""
        names: dict[int, list[tuple[float, str]]] = {}
        for (pid, comm), shares in self._shares.items():
            for cpu, share in shares.items():
                names.setdefault(cpu, []).append((share, safe_cells(f"{comm} {pid}")))
        return {cpu: sorted(tasks, reverse=True) for cpu, tasks in names.items()}

    @cached_property
    def waiting_by_cpu(self) -> dict[int, float]:
        """The mean number of tasks that wait on each CPU; empty if waits are unknown."""
        if self.snapshot.waits is None:
            return {}
        cpus = [row.cpu for row in self._session.topology]  # also siblings of selected CPUs
        waits = {cpu: [task.wait for task in self.snapshot.activity_on(str(cpu))] for cpu in cpus}
        return {cpu: sum(w for w in waits[cpu] if not isnan(w)) for cpu in cpus}


def task_ranking(session: Session, interval: Interval, grouping: Grouping = "task") -> TaskRanking:
    """Returns the ranking. It is cached, because a task record is shown for a second, separately
    for the present, which stands beside a moment of the past."""
    rankings: dict[tuple[Grouping, bool], TaskRanking] = session.caches["task rankings"]
    key, inputs = (grouping, session.is_past(interval)), (interval.snapshot, session.selected)
    last = rankings.get(key)
    if last is None or last.snapshot is not inputs[0] or last.selected is not inputs[1]:
        last = rankings[key] = TaskRanking(session, interval.snapshot, grouping)
    return last


# --- The comparison of the selected range (B) with the held range (A).

MIN_DIFFERENCE = 0.01
"""Minimum difference in CPUs for the sentence to mention it, and for a loss to be red."""
MIN_WIDTH_FOR_GAPS = 46
"""Minimum width in cells of a comparison with wide gaps between its columns."""


def comparison_panel(
    session: Session, interval: Interval, settings: ViewSettings, width: int, height: int
) -> list[PanelLine]:
    """Returns the comparison of the selected range with range A: a sentence, and a table of rates,
    because the ranges differ in length. Rates are shares of all CPUs' time, or numbers of CPUs."""
    assert settings.held_range is not None
    sides = settings.held_range, (interval, verdict_at(session, interval, is_range=True))
    number_width = 9 if width >= MIN_WIDTH_FOR_GAPS else 7
    name_column = Column("name", "", 10, is_left=True, gap=1, max_width=24)
    number_columns = [Column(side, side, number_width) for side in ("A", "B")]
    number_columns.append(Column("B - A", "B − A", number_width + 1))
    unit_column = Column("unit", "", 6)
    shown_columns = columns.fit_columns([name_column, *number_columns, unit_column], width)

    def row(name: str, values: Sequence[float], unit: str, *, is_loss: bool) -> list[Run]:
        a, b = values
        digits = 2 if unit == "CPUs" else 1
        texts = [f"{value:.{digits}f}" if isfinite(value) else "–" for value in (a, b)]
        difference = signed(b - a, digits) if isfinite(b - a) else "–"
        style = "alarm" if is_loss and b - a > MIN_DIFFERENCE else "bright"
        styles = "text", "dim", "text", style, "dim"
        cells = zip((name, *texts, difference, unit), styles, strict=True)
        return columns.join_columns(shown_columns, cells)

    busy = [100 * side.values.mean("util", session.selected) for side, _ in sides]
    lost_percent = [nan if verdict is None else 100 * verdict.lost_share for _, verdict in sides]
    waiting_tasks, (a, b) = zip(*(_waits_and_tasks(verdict) for _, verdict in sides), strict=True)
    lengths = " and ".join(f"{side.elapsed_s:.1f} s" for side, _ in sides)
    lines = [
        panel_title("B against A", lengths, width),
        columns.headings(shown_columns),
        row("busy", busy, "%", is_loss=False),
        row("lost", lost_percent, "%", is_loss=True),
        row("waited", waiting_tasks, "CPUs", is_loss=True),
    ]
    differences = {name: b[name] - a[name] for name in sorted({*a, *b})}
    order = sorted(differences, key=lambda name: -abs(differences[name]))
    lines += [
        row(safe_cells(name), (a[name], b[name]), "CPUs", is_loss=False)
        for name in order[: max(0, height - len(lines) - 2)]
    ]
    most_gained = max(order, key=differences.__getitem__, default="")
    most_lost = min(order, key=differences.__getitem__, default="")
    parts = [
        f"{safe_cells(name)} used {abs(differences[name]):.2f} CPUs {word}"
        for name, word, sign in ((most_gained, "more", 1), (most_lost, "less", -1))
        if name and sign * differences[name] >= MIN_DIFFERENCE
    ]
    sentence = ", ".join(parts) if parts else "No task used more or less"
    return [(line, None) for line in (*lines, [], [(f" {sentence}", "bright")])]


def _waits_and_tasks(verdict: Verdict | None) -> tuple[float, defaultdict[str, float]]:
    """Returns two results: the mean number of tasks that waited for a CPU, NaN if unknown; and, by
    name of the tasks, the mean number of CPUs on which they ran."""
    waiting_tasks, cpus = nan, defaultdict[str, float](float)
    if verdict is not None and verdict.report is not None:
        totals = verdict.report.totals
        if totals.times.has_waits:
            waiting_tasks = float(verdict.report.sums.waited_s.sum()) / totals.elapsed_s
        for times in totals.times.tasks.values():
            cpus[times.comm] += times.run_s / totals.elapsed_s
    return waiting_tasks, cpus
