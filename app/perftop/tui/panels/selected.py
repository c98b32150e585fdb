"""The panel with the numbers of the selected core, a column a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan

from perftop.base.format import ClockUnit
from perftop.draw import theme
from perftop.draw.strips import QUIET, Run, at_rest, doubted, estimated, fit, foreign, rate
from perftop.model.episode import Episode
from perftop.model.numbers import Number
from perftop.session import values as columns
from perftop.session.interval import ALWAYS, Interval
from perftop.session.session import Session
from perftop.tui.panels.pairs import ipc_alone
from perftop.tui.panels.panel import INDENT, sized, title
from perftop.tui.shared import episode_style, trouble
from perftop.tui.shared.fields import clock_of

_NAME = 18
"""Cells of the names of the numbers."""
_UNIT = 4
_VALUE = 7, 12
"""Minimum and maximum cells of a CPU's column."""
_ROWS = (
    ("util", "busy"), ("busy_hz", "clock"), ("ipc", "IPC"), ("ipc_alone", "IPC alone"),
    ("user", "user"), ("system", "kernel"), ("kernel_cycles", "kernel cycles"),
    ("idle", "halts, idle"),
    ("involuntary", "halts, involuntary"), ("steal", "steal"), ("runs", "runs"),
)  # fmt: skip
"""Numbers from the top, and what they are called here."""


def lines(
    session: Session, interval: Interval, width: int, height: int,
    *, cpu: int | None, units: str = "GHz",
) -> list[list[Run]]:  # fmt: skip
    """The panel of the core of `cpu`, exactly `width` cells by `height` lines."""
    core = next((core for core in session.cores if cpu in core), [])
    if not core:
        return sized([title("no core", "selected", width)], width, height)
    room = max(1, (width - INDENT - _NAME - _UNIT) // _VALUE[0])
    cpus = core if len(core) <= room else [cpu] if cpu is not None else core[:1]
    size = max(1, min(_VALUE[1], (width - INDENT - _NAME - _UNIT) // len(cpus)))
    clock, signs = clock_of(session, units), _signs(session, interval, cpus)
    found = [title(_name(session, core), "selected", width), _heading(cpus, size)]
    found += [
        _row(session, interval, key, name, cpus, size, clock, signs)
        for key, name in (*_ROWS, *_events(session))
        if _known(session, key)
    ]
    return sized(found, width, height)


def _events(session: Session) -> Iterator[tuple[str, str]]:
    """Chosen events, and what they are called here."""
    for key, metric in session.evaluator.registry.events.items():
        yield key, fit(metric.label, _NAME - 1).rstrip()


def _name(session: Session, core: list[int]) -> str:
    row = session.topology[session.position[core[0]]]
    if len(core) == 1 or row.core is None:
        return f"CPU {core[0]}"
    several = len({other.package for other in session.topology}) > 1
    return f"core {row.package}:{row.core}" if several else f"core {row.core}"


def _heading(cpus: list[int], size: int) -> list[Run]:
    return [(" " * (INDENT + _NAME) + "".join(f"{f'CPU {cpu}':>{size}}" for cpu in cpus), "dim")]


def _known(session: Session, key: str) -> bool:
    if key == "runs":
        return bool(session.tasks)
    if key == "ipc_alone":
        return bool(session.evaluator.chosen["ipc"]) and any(len(c) == 2 for c in session.cores)
    if key == "kernel_cycles" and session.evaluator.chosen["system"]:
        return False
    return bool(session.evaluator.chosen[key])


def _signs(session: Session, interval: Interval, cpus: list[int]) -> dict[str, Episode]:
    """The worst running episode by the number that it makes worse."""
    found: dict[str, Episode] = {}
    mine = set(cpus)
    going = episode_style.during(session, interval)
    for episode in sorted(going, key=episode_style.rank):
        key = trouble.number(episode)
        if key and episode_style.wrong(episode) and not mine.isdisjoint(episode.cpus):
            found.setdefault(key, episode)
    return found


def _row(
    session: Session, interval: Interval, key: str, name: str, cpus: list[int], size: int,
    clock: ClockUnit, signs: dict[str, Episode],
) -> list[Run]:  # fmt: skip
    lost = signs.get(key)
    sign: Run = (f"{episode_style.sign(lost)} ", "alarm") if lost else ("  ", "text")
    mine = set(lost.cpus) if lost is not None else set()
    if key == "runs":
        room = _NAME - len(name)  # the first task may begin close behind the name
        cells = [
            _task(interval, cpu, size + (0 if i else room), lost=cpu in mine)
            for i, cpu in enumerate(cpus)
        ]
        return [sign, (name, "text"), *cells]
    metric = session.evaluator.metrics.get(key)
    if metric is None:
        cells, unit = [_alone(session, interval, cpu, size, lost=cpu in mine) for cpu in cpus], ""
    else:
        cells = [*_cells(session, interval, metric, cpus, size, clock, mine)]
        unit = "/s" if metric.rate else metric.unit_name(clock)
    return [sign, (f"{name:<{_NAME}}", "text"), *cells, (f" {unit}", "dim")]


def _task(interval: Interval, cpu: int, size: int, *, lost: bool) -> Run:
    ran = interval.look.on(str(cpu))
    if not ran:
        return f"{theme.NEITHER:>{size}}", "faint"
    pid = f" {ran[0].task.pid}"
    comm = foreign(ran[0].task.comm)
    room = max(1, size - 1 - len(pid))
    return f"{fit(comm, min(len(comm), room)) + pid:>{size}}", "alarm" if lost else "text"


def _cells(
    session: Session, interval: Interval, metric: Number, cpus: list[int], size: int,
    clock: ClockUnit, hit: set[int],
) -> Iterator[Run]:  # fmt: skip
    """A metric of each CPU; red on those that are `hit`."""
    values, doubts = interval.values[metric.key], columns.doubted(metric.key, session, interval)
    scale, digits = metric.scale(clock)
    for cpu in cpus:
        row = session.position[cpu]
        value = float(values[row])
        if not interval.online[row]:
            yield _off(size)
        elif metric.of_running and interval.resting[row]:
            yield at_rest(size)
        elif isnan(value):
            yield _unknown(size)
        else:
            quiet = metric.unit == "ratio" and value < QUIET
            style = "alarm" if cpu in hit else "dim" if quiet else "text"
            told: Run = f"{value * scale:>{size}.{digits}f}", style
            if metric.rate:
                told = rate(value, size, style)
                if metric.key in interval.shares and interval.shares[metric.key][row] < ALWAYS:
                    told = estimated(told)
            yield doubted(told) if doubts[row] else told


def _off(size: int) -> Run:
    return f"{'off':>{size}}", "dim"


def _unknown(size: int) -> Run:
    return f"{'–':>{size}}", "faint"


def _alone(session: Session, interval: Interval, cpu: int, size: int, *, lost: bool) -> Run:
    """The IPC without the sibling."""
    row = session.position[cpu]
    if not interval.online[row]:
        return _off(size)
    value = _ipc_alone(session, interval, cpu)
    return _unknown(size) if isnan(value) else (f"{value:>{size}.2f}", "alarm" if lost else "text")


def _ipc_alone(session: Session, interval: Interval, cpu: int) -> float:
    """What a loss of that moment says of it, as the alert does; else what is known of the CPU."""
    for episode in episode_style.during(session, interval):
        told = episode.evidence.get("ipc_alone") if cpu in episode.cpus else None
        if isinstance(told, int | float):
            return float(told)
    return ipc_alone(session, interval, session.position[cpu])
