"""The tasks that run, ranked by their share of CPU time, with their table, for panels and
views."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import isnan, nan
from weakref import WeakKeyDictionary

from perftop.draw import columns, theme
from perftop.draw.columns import Cell, Column, Run, fit_columns, total_width
from perftop.draw.strips import safe_cells
from perftop.model.tasks import Task, TaskSnapshot, process_owner
from perftop.session.interval import Interval
from perftop.session.session import Session

MAX_CPU_COLUMNS = 4
"""Maximum number of CPUs for which each CPU has a column."""
MIN_WIDTH_FOR_OWNERS = 88
MIN_BAR_WIDTH_FOR_LEGEND = 23
MIN_BOLD_WAIT = 0.2
"""Minimum share of time waiting that is bold."""
NO_OWNER = "no unit or container"
"""Name of the owner of tasks of the root control group, and of those whose group is unknown."""
DIM_SHARE = 0.05
"""Tasks with a smaller share of a CPU are dim."""
INDENT = 2
"""Cells before the names in a panel, for the marker of a line."""
_BAR = Column("bar", "", 16, is_left=True, gap=4, rank=3, max_width=38)
_LEGEND: list[Run] = [("━", "lp0"), (" runs ", "dim"), ("━", "text"), (" waits ", "dim"),
                      ("─", "faint"), (" sleeps", "dim")]  # fmt: skip


@dataclass(frozen=True, slots=True)
class RankedTask:
    """A task with the CPUs on which it ran."""

    pid: int
    comm: str
    shares: dict[int, float]
    """Shares of CPU time, by number of the CPU."""
    threads: int
    """Number of threads whose shares are added up."""
    wait: float
    """Share of time for which the task waited for a CPU, averaged over its threads; NaN if
    unknown."""
    switches: float
    """Context switches per second, voluntary and involuntary; NaN if unknown."""

    @property
    def share(self) -> float:
        return sum(self.shares.values())

    @property
    def cpu(self) -> int:
        """Number of the CPU on which the task runs most."""
        return max(self.shares, key=self.shares.__getitem__)


def task_columns(
    session: Session, interval: Interval, ranking: Ranking, width: int, *, low: bool
) -> list[Column]:
    """Returns the columns that fit. Spare cells go to the bar first, then to the names. `low`: the
    table has few lines and no bars."""
    indent = 0 if low else INDENT
    names = [
        Column(
            "name",
            "task",
            indent + 9,
            is_left=True,
            gap=indent,
            max_width=indent + 16,
            growth_turn=1,
        ),
        Column("pid", "", 8),
    ]
    tasks = ranking.tasks if width >= MIN_WIDTH_FOR_OWNERS and session.details else ()
    if ranking.by_owner:
        names = [Column("name", "owner", indent + 24, is_left=True, gap=indent)]
    elif any(owner_name(session, pid) for pid, _ in tasks):
        names.append(Column("owner", "owner", 13, is_left=True))
    cpus = sorted(session.topology[row].cpu for row in session.shown)
    shares = [Column(f"cpu {cpu}", f"CPU {cpu}", 8, scale=100.0, digits=1, source=cpu)
              for cpu in cpus[: MAX_CPU_COLUMNS + 1]]  # fmt: skip
    waits = Column("waits", "waits", 7, rank=1, scale=100.0, digits=1)
    least = indent + 9 + 8 + total_width([*shares, waits]) + _BAR.room
    if low or len(cpus) > MAX_CPU_COLUMNS or least > width:
        shares = [Column("cpu", "CPU", 5), Column("share", "runs", 7, scale=100.0, digits=1)]
    available = {
        "waits": interval.snapshot.waits is not None,
        "bar": not low,
        "switches": interval.snapshot.waits is not None and not low,
        "ipc": bool(session.evaluator.chosen["ipc"]),
    }
    more = [_BAR, waits, Column("switches", "switches/s", 12, rank=4),
            Column("ipc", "IPC", 6, rank=2, digits=2)]  # fmt: skip
    return fit_columns(
        [*names, *shares, *(column for column in more if available[column.key])], width
    )


def task_headings(shown: list[Column]) -> list[Run]:
    """Returns the headings of the columns; a wide column of bars has a legend as its heading."""
    cells = [
        _LEGEND if column.key == "bar" and column.room >= MIN_BAR_WIDTH_FOR_LEGEND
        else (column.heading, "dim") for column in shown
    ]  # fmt: skip
    return columns.columns_line(shown, cells)


def task_cells(
    task: RankedTask, shown: list[Column], session: Session, interval: Interval
) -> Iterator[Cell]:
    style = "text" if task.share >= DIM_SHARE else "dim"
    for column in shown:
        match column.key:
            case "name":
                yield safe_cells(task.comm), style
            case "pid":
                yield str(task.pid), "dim"
            case "owner":
                yield safe_cells(owner_name(session, task.pid)), "dim"
            case "cpu":
                yield str(task.cpu), "dim"
            case "bar":
                yield task_bar(task.share / task.threads, task.wait, column.room)
            case "waits":
                yield column.cell(task.wait, "bright" if task.wait > MIN_BOLD_WAIT else style)
            case "switches":
                yield column.cell(task.switches, style)
            case "ipc":
                yield column.cell(_ipc(session, interval, task), style)
            case _:
                share = task.share if column.key == "share" else task.shares.get(column.source, 0.0)
                yield column.cell(share, style, resting=not share)


def task_bar(ran: float, waited: float, size: int) -> list[Run]:
    """Returns a bar of the shares of time for which a task ran, waited for a CPU, and slept."""
    runs = min(size, round(size * min(1.0, ran)))
    waits = 0 if isnan(waited) else min(size - runs, round(size * waited))
    return [
        (theme.CLOCK * runs, "lp0"),
        (theme.CLOCK * waits, "dim"),
        (theme.RULE * (size - runs - waits), "rule"),
    ]


def _ipc(session: Session, interval: Interval, task: RankedTask) -> float:
    """Returns the IPC of the CPU on which this task, and no other task, ran; NaN if the task ran on
    several CPUs or shared its CPU."""
    cpu, *more = task.shares
    tasks = interval.snapshot.tasks_on(str(cpu))
    if more or any((other.pid, other.comm) != (task.pid, task.comm) for other in tasks):
        return nan
    return float(interval.values["ipc"][session.position[cpu]])


def owner_name(session: Session, pid: int) -> str:
    """Returns the owner of a process (a job, pod, container or unit), without the suffix of a
    service; else the name of its parent; '' if unknown."""
    details = session.details.get(str(pid), {})
    parent = details.get("parent")
    name = process_owner(details).removesuffix(".service")
    return name or (parent if isinstance(parent, str) else "")


class Ranking:
    """The tasks of one record on the CPUs that the user asked for, the busiest first. Threads of a
    process that have the same name count as one task; `by_owner`: all tasks of one owner do."""

    def __init__(self, session: Session, snapshot: TaskSnapshot, *, by_owner: bool) -> None:
        self.snapshot, self.shown, self.by_owner = snapshot, session.shown, by_owner
        self._session = session
        self._shares: dict[tuple[int, str], dict[int, float]] = {}
        known = snapshot.top_tasks or snapshot.tasks
        for row in session.shown:
            cpu = session.topology[row].cpu
            for task in snapshot.tasks_on(name) if (name := str(cpu)) in known else ():
                shares = self._shares.setdefault(self._key_of(task), {})
                shares[cpu] = shares.get(cpu, 0.0) + task.share
        ranks = [(-round(sum(of.values()), 3), *task) for task, of in self._shares.items()]
        self.tasks = [(pid, comm) for _, pid, comm in sorted(ranks)]
        """Pid and name of each task, the busiest first."""
        self._tasks_made: list[RankedTask] = []

    def _key_of(self, task: Task) -> tuple[int, str]:
        """Returns the PID and name under which a task is listed; for an owner, the PID is 0."""
        if not self.by_owner:
            return task.pid, task.comm
        return 0, process_owner(self._session.details.get(str(task.pid), {})) or NO_OWNER

    def first(self, count: int) -> list[RankedTask]:
        """Returns the `count` busiest tasks. They are made when first needed, because a screen
        shows few tasks."""
        for pid, comm in self.tasks[len(self._tasks_made) : count]:
            shares = self._shares[pid, comm]
            tasks = (task for cpu in shares for task in self.snapshot.activity_on(str(cpu)))
            threads = [thread for thread in tasks if self._key_of(thread.task) == (pid, comm)]
            wait = sum(thread.wait for thread in threads) / len(threads)
            switches = sum(thread.switches for thread in threads)
            self._tasks_made.append(RankedTask(pid, comm, shares, len(threads), wait, switches))
        return self._tasks_made[:count]

    @cached_property
    def names_by_cpu(self) -> dict[int, list[tuple[float, str]]]:
        """The tasks that ran on each CPU, by number of the CPU: their share of its time, and their
        name with their pid."""
        names: dict[int, list[tuple[float, str]]] = {}
        for (pid, comm), shares in self._shares.items():
            for cpu, share in shares.items():
                names.setdefault(cpu, []).append((share, safe_cells(f"{comm} {pid}")))
        return names


_LAST_RANKINGS: tuple[WeakKeyDictionary[Session, Ranking], ...]
_LAST_RANKINGS = WeakKeyDictionary(), WeakKeyDictionary()
"""The last rankings of each session, of tasks and of owners, cached because a record of tasks is
shown for a second."""


def ranking(session: Session, interval: Interval, *, by_owner: bool = False) -> Ranking:
    last = _LAST_RANKINGS[by_owner].get(session)
    if last is None or last.snapshot is not interval.snapshot or last.shown is not session.shown:
        last = Ranking(session, interval.snapshot, by_owner=by_owner)
        _LAST_RANKINGS[by_owner][session] = last
    return last


def ipc_alone(session: Session, interval: Interval, row: int) -> float:
    """Returns the IPC of the CPU at this position without its sibling; NaN if unknown, or
    if the interval is in the past."""
    return session.neighbours.siblings.ipc_alone(row) if interval.seq else nan
