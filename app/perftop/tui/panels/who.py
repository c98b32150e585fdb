"""The panel "who runs": tasks by the share of a CPU that they had."""

from __future__ import annotations

from math import isnan, nan
from weakref import WeakKeyDictionary

from perfprobe.frozen import frozen
from perftop.draw import strips, theme
from perftop.draw.strips import Run, fit, foreign
from perftop.samples.running_tasks import Look, Ran
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
    found = runners(session, interval)
    if not found:
        why = _folded(_why(session, interval), max(1, width - INDENT), height - 1)
        told = [[(" " * INDENT + part, "dim")] for part in why]
        return sized([title("who runs", "", width), *told], width, height)
    waits = interval.look.waits is not None
    jobs = {one.pid: job(session, one.pid) for one in found} if width >= _JOBS else {}
    columns = _columns(session, width, height, told=waits, jobs=any(jobs.values()))
    if height < LOW:
        heads = [title("who runs", "", width, _over(columns, width))]
    else:
        heads = [title("who runs", "% of a CPU", width), _headings(columns, names=True)]
    ipc = _ipc(session, interval, found) if columns.ipc else {}
    rows = [_line(one, columns, ipc, jobs) for one in found[: max(0, height - len(heads))]]
    return sized([*heads, *rows], width, height)


def cpus(session: Session, interval: Interval, height: int) -> list[int | None]:
    """By line of the panel, the CPU on which its task runs most; None where there is no task."""
    found = runners(session, interval)
    heads: list[int | None] = [None] if height < LOW or not found else [None, None]
    tasks = [max(one.shares, key=one.shares.__getitem__) for one in found]
    return [*heads, *tasks, *[None] * height][:height]


_KEPT: WeakKeyDictionary[Session, tuple[Look, list[int], list[Runner]]] = WeakKeyDictionary()
"""By session, a look, the CPUs asked for and who runs there: a look is shown for a second."""


def runners(session: Session, interval: Interval) -> list[Runner]:
    """The tasks on the CPUs that the user asked for, the busiest first. Threads of one process that
    have one name are one."""
    look, shown, found = _KEPT.get(session, (None, None, []))
    if look is not interval.look or shown is not session.shown:
        found = _runners(session, interval.look)
        _KEPT[session] = interval.look, session.shown, found
    return found


def _runners(session: Session, look: Look) -> list[Runner]:
    shown = {str(session.topology[row].cpu) for row in session.shown}
    found: dict[tuple[int, str], list[tuple[int, Ran]]] = {}
    for cpu in (look.others or look.tasks).keys() & shown:
        for ran in look.on(cpu):
            found.setdefault((ran.task.pid, ran.task.comm), []).append((int(cpu), ran))
    made = [_runner(pid, comm, ran) for (pid, comm), ran in found.items()]
    return sorted(made, key=lambda one: (-round(one.share, 3), one.pid, one.comm))


def _runner(pid: int, comm: str, ran: list[tuple[int, Ran]]) -> Runner:
    """The waits of several threads are their mean, and their switches are added up."""
    shares: dict[int, float] = {}
    for cpu, one in ran:
        shares[cpu] = shares.get(cpu, 0.0) + one.task.share
    waits = [one.wait for _, one in ran]
    switches = sum(one.switches for _, one in ran)
    return Runner(pid, comm, shares, len(ran), sum(waits) / len(waits), switches)


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
    shown = sorted(session.topology[row].cpu for row in session.shown)
    least = indent + _NAME[0] + _PID
    each = tuple(shown) if least + len(shown) * (_SHARE + 1) + _WAITS + _BAR[0] <= width else ()
    each = each if len(each) <= FEW and height >= LOW else ()
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


def _line(
    one: Runner, c: _Columns, ipc: dict[tuple[int, str], float], jobs: dict[int, str]
) -> list[Run]:
    key = "text" if one.share >= _LITTLE else "dim"
    name = fit(foreign(one.comm), c.name)
    runs: list[Run] = [(" " * c.indent, "text"), (name, key), (f"{one.pid:>{_PID}}", "dim")]
    if c.job:
        runs.append((f"  {fit(foreign(jobs[one.pid]), c.job - 2)}", "dim"))
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
        runs.append(_number(ipc.get((one.pid, one.comm), nan), 2, c.ipc, key))
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


def _ipc(session: Session, interval: Interval, found: list[Runner]) -> dict[tuple[int, str], float]:
    """IPC of the CPUs on which one task ran and no other, by that task."""
    on: dict[int, list[Runner]] = {}
    for one in found:
        for cpu in one.shares:
            on.setdefault(cpu, []).append(one)
    values = interval.values["ipc"]
    return {
        (alone[0].pid, alone[0].comm): float(values[session.position[cpu]])
        for cpu, alone in on.items()
        if len(alone) == 1 and len(alone[0].shares) == 1
    }
