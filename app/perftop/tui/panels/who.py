"""The panel "who runs": tasks by the share of a CPU that they had."""

from __future__ import annotations

from math import isnan, nan
from weakref import WeakKeyDictionary

from perfprobe.frozen import frozen
from perftop.draw import strips, theme
from perftop.draw.strips import Run, fit, foreign
from perftop.model.tasks import TaskSnapshot
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.panels.panel import INDENT, LOW, sized, title, wrapped

FEW = 4
"""Most CPUs that have a column each."""
_PID, _CPU, _SHARE, _WAITS, _IPC, _SWITCHES, _JOB = 8, 5, 7, 7, 6, 12, 13
"""Cells of columns, with the gap before each."""
_NAME = 9, 16
"""Minimum and maximum cells of a name."""
_BAR = 12, 34
"""Minimum and maximum cells of the bar."""
_JOBS = 88
"""Minimum width of the panel for the column of jobs."""
_MUCH = 0.2
"""Share of waiting from which it is bold."""
_LITTLE = 0.05
"""Tasks with a smaller share are drawn dim."""


@frozen
class Runner:
    """A task on one CPU, or one that was seen on several."""

    pid: int
    comm: str
    shares: dict[int, float]
    """Share of each CPU's time, by CPU."""
    threads: int = 1
    """Number of threads that are taken together."""
    wait: float = nan
    """Share of its own time that it waited for a CPU; NaN if unknown."""
    switches: float = nan
    """How often a second it gave up or lost its CPU; NaN if unknown."""

    @property
    def share(self) -> float:
        return sum(self.shares.values())


@frozen
class _Columns:
    name: int
    each: tuple[int, ...]
    """CPUs with a column each; empty: one column has the CPU's number."""
    job: int
    waits: int
    bar: int
    switches: int
    ipc: int
    indent: int


def lines(session: Session, interval: Interval, width: int, height: int) -> list[list[Run]]:
    """The panel, exactly `width` cells by `height` lines."""
    ranking = _ranking(session, interval)
    if not ranking.tasks:
        why = _folded(_why(session, interval), max(1, width - INDENT), height - 1)
        told = [[(" " * INDENT + part, "dim")] for part in why]
        return sized([title("who runs", "", width), *told], width, height)
    waits = interval.look.waits is not None
    named = ranking.tasks if width >= _JOBS and session.details else ()
    jobs = any(job(session, pid) for pid, _ in named)
    columns = _columns(session, width, height, told=waits, jobs=jobs)
    if height < LOW:
        heads = [title("who runs", "", width, _over(columns, width))]
    else:
        heads = [title("who runs", "% of a CPU", width), _headings(columns, names=True)]
    found = ranking.first(max(0, height - len(heads)))
    rows = [_line(one, columns, session, interval) for one in found]
    return sized([*heads, *rows], width, height)


def cpus(session: Session, interval: Interval, height: int) -> list[int | None]:
    """By line of the panel, the CPU on which its task runs most; None where there is no task."""
    found = _ranking(session, interval).first(height)
    heads: list[int | None] = [None] if height < LOW or not found else [None, None]
    tasks = [max(one.shares, key=one.shares.__getitem__) for one in found]
    return [*heads, *tasks, *[None] * height][:height]


class _Ranking:
    """The tasks on the CPUs that the user asked for, in one look. Threads of one process that have
    one name are one."""

    def __init__(self, session: Session, look: TaskSnapshot) -> None:
        self.look, self.shown = look, session.shown
        self._shares: dict[tuple[int, str], dict[int, float]] = {}
        known = look.others or look.tasks
        for row in session.shown:
            cpu = session.topology[row].cpu
            for pid, comm, share in look.told(name) if (name := str(cpu)) in known else ():
                shares = self._shares.setdefault((pid, comm), {})
                shares[cpu] = shares.get(cpu, 0.0) + share
        ranks = [(-round(sum(of.values()), 3), *task) for task, of in self._shares.items()]
        self.tasks = [(pid, comm) for _, pid, comm in sorted(ranks)]
        """Pid and name of each, the busiest first."""
        self._made: list[Runner] = []

    def first(self, most: int) -> list[Runner]:
        """So many of the busiest; a screen shows few of them."""
        self._made += [self._runner(*task) for task in self.tasks[len(self._made) : most]]
        return self._made[:most]

    def _runner(self, pid: int, comm: str) -> Runner:
        """The waits of several threads are their mean, and their switches are added up."""
        shares = self._shares[pid, comm]
        there = (ran for cpu in shares for ran in self.look.on(str(cpu)))
        ran = [one for one in there if one.task[:2] == (pid, comm)]
        wait, switches = sum(one.wait for one in ran) / len(ran), sum(one.switches for one in ran)
        return Runner(pid, comm, shares, len(ran), wait, switches)


_KEPT: WeakKeyDictionary[Session, _Ranking] = WeakKeyDictionary()
"""By session, who runs on the CPUs asked for: a look is shown for a second."""


def _ranking(session: Session, interval: Interval) -> _Ranking:
    kept = _KEPT.get(session)
    if kept is None or kept.look is not interval.look or kept.shown is not session.shown:
        kept = _KEPT[session] = _Ranking(session, interval.look)
    return kept


def runners(session: Session, interval: Interval) -> list[Runner]:
    """The tasks on the CPUs that the user asked for, the busiest first."""
    ranking = _ranking(session, interval)
    return ranking.first(len(ranking.tasks))


def job(session: Session, pid: int) -> str:
    """The unit or container that a process belongs to, else what started it; '' if unknown."""
    known = session.details.get(str(pid), {})
    group, parent = known.get("group"), known.get("parent")
    for part in reversed(group.split("/") if isinstance(group, str) else ()):
        name, _, kind = part.rpartition(".")
        if kind == "service" and not name.startswith("user@"):
            return name
    return parent if isinstance(parent, str) else ""


def _why(session: Session, interval: Interval) -> str:
    """Why no task is told of."""
    if reason := next((m.why for m in session.hello.missing if m.what == "tasks"), None):
        return foreign(reason)
    if (interval.values["util"][session.shown] > _LITTLE).any():
        return "who ran is not known: tasks are looked at once a second"
    return "no task has run for a noticeable time"


def _folded(text: str, room: int, lines: int) -> list[str]:
    """The text in lines of `room` cells; the last one ends with a sign if the text goes on."""
    parts = wrapped(text, room)
    last = max(0, lines - 1)
    return [*parts[:last], *([fit(" ".join(parts[last:]), room)] if parts[last:] else [])]


def _columns(session: Session, width: int, height: int, *, told: bool, jobs: bool) -> _Columns:
    """The columns that fit, the most important first; the bar and the names take what is left.
    `told`: the stream tells how long tasks wait. `jobs`: some job is known."""
    indent = 0 if height < LOW else INDENT
    few = len(session.shown) <= FEW and height >= LOW
    shown = sorted(session.topology[row].cpu for row in session.shown) if few else ()
    least = indent + _NAME[0] + _PID
    each = tuple(shown) if least + len(shown) * (_SHARE + 1) + _WAITS + _BAR[0] <= width else ()
    room = width - least - (len(each) * (_SHARE + 1) if each else _CPU + _SHARE)
    waits = _WAITS if room >= _WAITS and told else 0
    room -= waits
    counted = bool(session.evaluator.chosen["ipc"])
    ipc = _IPC if counted and room >= _IPC else 0
    room -= ipc
    job = _JOB if jobs else 0
    room -= job
    switches = _SWITCHES if told and height >= LOW and room >= _SWITCHES + _BAR[0] + 4 else 0
    room -= switches
    bar = min(_BAR[1], room - 4) if height >= LOW and room - 4 >= _BAR[0] else 0
    room -= bar + (4 if bar else 0)
    name = min(_NAME[1], _NAME[0] + max(0, room))
    return _Columns(name, each, job, waits, bar, switches, ipc, indent)


def _headings(c: _Columns, *, names: bool = False) -> list[Run]:
    """Titles of the columns; `names` puts that of the tasks before them."""
    runs: list[Run] = []
    if names:
        runs.append((" " * c.indent + f"{'task':<{c.name + _PID}}", "dim"))
        runs.append((f"  {'job':<{c.job - 2}}" if c.job else "", "dim"))
    shares = [f"CPU {cpu}" for cpu in c.each] or ["CPU", "runs"]
    sizes = [_SHARE + 1] * len(c.each) or [_CPU, _SHARE]
    runs += [(f"{text:>{size}}", "dim") for text, size in zip(shares, sizes, strict=True)]
    if c.bar:
        legend: list[Run] = [("    ━", "lp0"), (" runs ", "dim"), ("━", "text"), (" waits ", "dim"),
                             ("─", "faint"), (" sleeps", "dim")]  # fmt: skip
        legend = legend if c.bar >= 23 else [("    ", "dim")]
        size = sum(len(part) for part, _ in legend)
        runs += [*legend, (" " * (c.bar + 4 - size), "dim")]
    runs.append((f"{'waits':>{c.waits}}" if c.waits else "", "dim"))
    runs.append((f"{'switches/s':>{c.switches}}" if c.switches else "", "dim"))
    runs.append((f"{'IPC':>{c.ipc}}" if c.ipc else "", "dim"))
    return runs


def _over(c: _Columns, width: int) -> list[Run]:
    """Titles that stand in the panel's first line, at its right edge: the columns end before it
    where names need no more room."""
    before = c.indent + c.name + _PID + c.job
    runs = _headings(c)
    return [*runs, (" " * max(0, width - before - strips.width(runs)), "dim")]


def _line(one: Runner, c: _Columns, session: Session, interval: Interval) -> list[Run]:
    key = "text" if one.share >= _LITTLE else "dim"
    name = fit(foreign(one.comm), c.name)
    runs: list[Run] = [(" " * c.indent, "text"), (name, key), (f"{one.pid:>{_PID}}", "dim")]
    if c.job:
        runs.append((f"  {fit(foreign(job(session, one.pid)), c.job - 2)}", "dim"))
    if c.each:
        runs += [_share(one.shares.get(cpu, 0.0), _SHARE + 1, key) for cpu in c.each]
    else:
        where = max(one.shares, key=one.shares.__getitem__)
        runs += [(f"{where:>{_CPU}}", "dim"), _share(one.share, _SHARE, key)]
    if c.bar:
        runs += [("    ", "text"), *bar(one.share / one.threads, one.wait, c.bar)]
    if c.waits:
        runs.append(_number(100 * one.wait, 1, c.waits, "bright" if one.wait > _MUCH else key))
    if c.switches:
        runs.append(_number(one.switches, 0, c.switches, key))
    if c.ipc:
        runs.append(_number(_ipc(session, interval, one), 2, c.ipc, key))
    return runs


def _share(share: float, size: int, key: str) -> Run:
    return (f"{100 * share:>{size}.1f}", key) if share else (f"{theme.NEITHER:>{size}}", "faint")


def _number(value: float, digits: int, size: int, key: str) -> Run:
    return (f"{'–':>{size}}", "faint") if isnan(value) else (f"{value:>{size}.{digits}f}", key)


def bar(ran: float, waited: float, size: int) -> list[Run]:
    """How a task spent its time, by shares: it ran, waited for a CPU, and slept."""
    runs = min(size, round(size * min(1.0, ran)))
    waits = 0 if isnan(waited) else min(size - runs, round(size * waited))
    sleeps = size - runs - waits
    return [
        (theme.CLOCK * runs, "lp0"),
        (theme.CLOCK * waits, "dim"),
        (theme.RULE * sleeps, "rule"),
    ]


def _ipc(session: Session, interval: Interval, one: Runner) -> float:
    """IPC of the CPU on which this task ran and no other; NaN if there is none."""
    cpu, *more = one.shares
    beside = interval.look.told(str(cpu))
    if more or any((task.pid, task.comm) != (one.pid, one.comm) for task in beside):
        return nan
    return float(interval.values["ipc"][session.position[cpu]])
