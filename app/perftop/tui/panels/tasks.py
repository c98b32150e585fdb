"""The tasks that run, ranked by their share of CPU time, and who loses to whom: a pair of tasks for
each CPU that loses time or IPC to a neighbour; with the tables of both, for panels and views."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isnan, nan
from typing import Any
from weakref import WeakKeyDictionary

from perftop.base.text import whole_percent
from perftop.detect.losses import NEIGHBOUR
from perftop.draw import columns, theme
from perftop.draw.columns import Cell, Column, Run, fit, fit_columns, total_width
from perftop.draw.strips import safe_cells
from perftop.model.kinds import CrowdedCpu, Episode, Host, TaskOnCpu
from perftop.model.tasks import Task, TaskSnapshot, WatchedJob, process_owner
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.shared import episode_style

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


# --- Who loses to whom: a pair of tasks for each CPU that loses time or IPC to a neighbour, and the
# table of such pairs.

NO_LOSS_TEXT = "No CPU is losing time to a neighbour"
MIN_WIDTH_FOR_WORDS = 72
"""Minimum width for words between the names, such as "takes 30 % from"."""
MIN_NAME_WIDTH, MAX_NAME_WIDTH = 12, 22


@dataclass(frozen=True, slots=True)
class LossSide:
    """One side of a pair: a task on a CPU."""

    name: str
    """Name and pid of the task, without control characters; '' if unknown."""
    cpu: int | None = None
    """Number of the CPU; None: this side has no CPU of its own, like the hypervisor."""


@dataclass(frozen=True, slots=True)
class LossPair:
    sign: str
    taker: LossSide
    loser: LossSide
    """The task on the CPU that loses."""
    cpu: int
    """Number of the CPU that loses."""
    lost: float
    """The share that the CPU loses, from 0 to 1; NaN if unknown."""
    ipc: float
    """IPC of the losing CPU; NaN if unknown, or if the CPU loses time instead of IPC."""
    alone: float
    """IPC of the losing CPU without the taker; NaN like `ipc`."""
    since_ns: int


# --- pairs at a single point in time


def running_pairs(
    session: Session, interval: Interval, watched_job: WatchedJob, shown_rows: frozenset[int]
) -> list[LossPair]:
    """Returns the pairs whose losing CPU has a position in `shown_rows`, the greatest loss first;
    of equal losses, the oldest first. `watched_job`: the job at the moment of the interval."""
    position = session.position
    pairs = [
        _pair(session, interval, watched_job, episode, cpu)
        for episode in _neighbour_episodes(session, interval)
        for cpu in episode.cpus
        if position.get(cpu) in shown_rows
    ]
    return sorted(pairs, key=lambda pair: (-round(pair.lost, 3), pair.since_ns, pair.cpu))


def any_pair(session: Session, interval: Interval) -> bool:
    """Returns whether any CPU loses to a neighbour."""
    return any(True for _ in _neighbour_episodes(session, interval))


def _neighbour_episodes(session: Session, interval: Interval) -> Iterator[Episode]:
    """Yields the neighbour episodes that ran at the end of the interval."""
    for episode in (*session.running, *session.ended):
        if episode.kind == NEIGHBOUR and episode_style.is_running_at(episode, interval.time_ns):
            yield episode


def _pair(
    session: Session, interval: Interval, watched_job: WatchedJob, episode: Episode, cpu: int
) -> LossPair:
    def task(cpu: int) -> str:
        activity = interval.snapshot.activity_on(str(cpu))
        return safe_cells(f"{activity[0].task.comm} {activity[0].task.pid}") if activity else ""

    share = session.neighbours.share(episode, cpu) if interval.seq else None
    lost_share = (nan if episode.depth is None else episode.depth) if share is None else share
    row, ipc, alone = session.position[cpu], nan, nan
    if episode.cause in {"sibling", "memory", "cache"}:
        ipc = float(interval.values["ipc"][row])
        alone = ipc_alone(session, interval, row) if episode.cause == "sibling" else nan
        alone = _float_or_nan(episode.evidence.get("ipc_alone")) if isnan(alone) else alone
    taker = _taker(episode.evidence, cpu)
    if episode.cause == "sibling":
        core_index = int(session.reader.cores.of_cpu[row])
        core = session.cores[core_index] if core_index >= 0 else []
        siblings = (LossSide(task(sibling), sibling) for sibling in core if sibling != cpu)
        taker = next((side for side in siblings if side.name), taker)
    threads = [thread for thread in watched_job.threads.values() if thread.cpu == cpu]
    loser = f"{len(threads)} threads" if len(threads) > 1 else task(cpu)
    if len(threads) == 1:
        loser = safe_cells(f"{threads[0].comm} {threads[0].tid}")
    return LossPair(
        episode_style.sign(episode), taker, LossSide(loser, cpu), cpu, lost_share, ipc, alone,
        episode.start_ns,
    )  # fmt: skip


def ipc_alone(session: Session, interval: Interval, row: int) -> float:
    """Returns the IPC of the CPU at this position without its sibling; NaN if unknown, or
    if the interval is in the past."""
    return session.neighbours.siblings.ipc_alone(row) if interval.seq else nan


def _taker(evidence: Mapping[str, Any], cpu: int) -> LossSide:
    """Returns the taker that the evidence names: the taker on this CPU, else the first taker."""
    who_tasks, own_tasks = evidence.get("who"), evidence.get("self")
    if isinstance(who_tasks, Host):
        return LossSide("hypervisor")
    takers = [
        task for task in who_tasks or own_tasks or () if isinstance(task, TaskOnCpu | CrowdedCpu)
    ]
    takers = [task for task in takers if task.cpu == cpu] or takers
    if not takers:
        return LossSide("")
    first = takers[0]
    if isinstance(first, CrowdedCpu):
        return LossSide(f"itself: {first.threads} threads", first.cpu)
    return LossSide(safe_cells(f"{first.comm} {first.pid}{_more_text(takers)}"), first.cpu)


def _more_text(items: Sequence[object]) -> str:
    return f" (+{len(items) - 1})" if len(items) > 1 else ""


def _float_or_nan(value: object) -> float:
    return float(value) if isinstance(value, int | float) else nan


# --- lines


def pair_columns(width: int) -> list[Column]:
    """Returns the columns that fit. Spare cells go to the names."""
    words = width >= MIN_WIDTH_FOR_WORDS

    def column(key: str, heading: str, size: int, rank: int = 0) -> Column:
        return Column(key, heading, size, is_left=True, gap=0, rank=rank)

    columns = fit_columns([
        column("sign", "", INDENT),
        column("taker", "who takes", MIN_NAME_WIDTH), column("taker cpu", "", 8, rank=1),
        *([column("takes", "lost", 12), column("from", "", 6)] if words else
          [column("lost", "lost", 6)]),
        column("loser", "who loses", MIN_NAME_WIDTH), column("loser cpu", "", 8, rank=1),
        column("ipc", "IPC", 22, rank=3),
    ], width)  # fmt: skip
    # Both columns of names are equally wide.
    name = min(MAX_NAME_WIDTH, MIN_NAME_WIDTH + max(0, width - total_width(columns)) // 2)
    return [replace(c, width=name) if c.key in {"taker", "loser"} else c for c in columns]


def pair_line(pair: LossPair, shown: Sequence[Column]) -> list[Run]:
    """Returns the line of a pair: the taker, the share in red, and the loser."""
    share = "" if isnan(pair.lost) else whole_percent(pair.lost)
    ipc: list[Run] = [("IPC ", "dim"), (f"{pair.ipc:.2f}", "text"), (", alone ", "dim"),
                      (f"{pair.alone:.2f}", "text")]  # fmt: skip
    cells: dict[str, Cell] = {
        "sign": (pair.sign, "alarm"),
        "takes": [("takes ", "dim"), (share, "alarm")],
        "lost": (share, "alarm"),
        "from": ("from", "dim"),
        "ipc": [] if isnan(pair.ipc) or isnan(pair.alone) else ipc,
    }
    names = {column.key: column.width - 1 for column in shown}
    for key, side, style in (("taker", pair.taker, "text"), ("loser", pair.loser, "bright")):
        cells[key] = (fit(side.name, names[key]), style) if side.name else ("–", "faint")
        cells[f"{key} cpu"] = ("" if side.cpu is None else f"CPU {side.cpu}", "dim")
    return columns.columns_line(shown, [cells[column.key] for column in shown])
