"""The panel with the numbers of the selected core, with a column for each CPU."""

from __future__ import annotations

from collections.abc import Iterator

from perftop.draw.columns import AT_REST, Column, Run, fit
from perftop.draw.strips import QUIET, foreign
from perftop.model.episode import Episode
from perftop.model.numbers import NUMBERS
from perftop.session.interval import MIN_COUNTED_SHARE, Interval
from perftop.session.session import Session
from perftop.session.values import doubted
from perftop.tui.panels.pairs import ipc_alone
from perftop.tui.panels.panel import INDENT, PanelLine, title
from perftop.tui.shared import episode_style
from perftop.tui.shared.choice import Choice
from perftop.tui.shared.fields import clock_of, placed
from perftop.tui.shared.row_episodes import lowered_number

_NAME, _UNIT = 18, 4
"""Widths of the numbers' names and units, in cells."""
_VALUE = 7, 12
"""Minimum and maximum width of a CPU's column, in cells."""
_ROWS = ("util", "busy_hz", "ipc", "ipc_alone", "user", "system", "kernel_cycles", "idle",
         "involuntary", "steal", "runs")  # fmt: skip
"""Keys of the numbers, from top to bottom."""
_NAMES = {
    "kernel_cycles": "kernel cycles", "idle": "halts, idle", "involuntary": "halts, involuntary",
}  # fmt: skip
"""Names of the numbers that are not shown by their label, by key."""


def lines(
    session: Session, interval: Interval, choice: Choice, width: int, height: int  # noqa: ARG001
) -> list[PanelLine]:  # fmt: skip
    core = next((core for core in session.cores if choice.cpu in core), [])
    if not core:
        return [(title("no core", "selected", width), None)]
    room = width - INDENT - _NAME - _UNIT
    cpus = core if len(core) <= max(1, room // _VALUE[0]) else [c for c in core if c == choice.cpu]
    size = max(1, min(_VALUE[1], room // len(cpus)))
    headings = "".join(f"{f'CPU {cpu}':>{size}}" for cpu in cpus)
    lost = _lost(session, interval, cpus)
    events = session.evaluator.registry.events.items()
    rows = [(key, _NAMES.get(key, NUMBERS[key].label)) for key in _ROWS]
    rows += [(key, fit(metric.label, _NAME - 1).rstrip()) for key, metric in events]
    clock = clock_of(session, choice.units)
    found: list[list[Run]] = [
        title(_name(session, core), "selected", width),
        [(" " * (INDENT + _NAME) + headings, "dim")],
    ]
    for key, name in rows:
        if not _counted(session, key):
            continue
        episode = lost.get(key)
        red = set(episode.cpus) if episode is not None else set()
        sign: Run = (f"{episode_style.sign(episode)} ", "alarm") if episode else ("  ", "text")
        if key == "runs":
            spare = _NAME - len(name)  # the first CPU's task may begin right after the name
            cells = [_task(interval, cpu, size + (0 if i else spare)) for i, cpu in enumerate(cpus)]
            cells = [(text, "alarm" if cpu in red and style == "text" else style)
                     for cpu, (text, style) in zip(cpus, cells, strict=True)]  # fmt: skip
            found.append([sign, (name, "text"), *cells])
            continue
        number = session.evaluator.metrics.get(key)
        column, unit = Column(key, name, size, digits=2), ""
        if number is not None:
            column = placed(number, clock, size)
            unit = "/s" if number.rate else number.unit_name(clock)
        cells = [*_cells(session, interval, column, cpus, red)]
        found.append([sign, (f"{name:<{_NAME}}", "text"), *cells, (f" {unit}", "dim")])
    return [(line, None) for line in found]


def _lost(session: Session, interval: Interval, cpus: list[int]) -> dict[str, Episode]:
    """Returns the worst running episode on these CPUs, by the key of the number that it makes
    worse."""
    found: dict[str, Episode] = {}
    for episode in sorted(episode_style.during(session, interval), key=episode_style.rank):
        key = lowered_number(episode)
        if key and episode_style.wrong(episode) and not set(cpus).isdisjoint(episode.cpus):
            found.setdefault(key, episode)
    return found


def _name(session: Session, core: list[int]) -> str:
    row = session.topology[session.position[core[0]]]
    if len(core) == 1 or row.core is None:
        return f"CPU {core[0]}"
    several = len({other.package for other in session.topology}) > 1
    return f"core {row.package}:{row.core}" if several else f"core {row.core}"


def _counted(session: Session, key: str) -> bool:
    """Returns whether the panel shows this number, which depends on the stream."""
    if key == "runs":
        return bool(session.tasks)
    if key == "ipc_alone":
        return bool(session.evaluator.chosen["ipc"]) and any(len(c) == 2 for c in session.cores)
    if key == "kernel_cycles" and session.evaluator.chosen["system"]:
        return False
    return bool(session.evaluator.chosen[key])


def _task(interval: Interval, cpu: int, size: int) -> Run:
    """Returns the task that ran most on the CPU."""
    ran = interval.snapshot.activity_on(str(cpu))
    if not ran:
        return f"{AT_REST:>{size}}", "faint"
    pid = f" {ran[0].task.pid}"
    comm = foreign(ran[0].task.comm)
    room = max(1, size - 1 - len(pid))
    return f"{fit(comm, min(len(comm), room)) + pid:>{size}}", "text"


def _cells(
    session: Session, interval: Interval, column: Column, cpus: list[int], red: set[int]
) -> Iterator[Run]:
    """Yields a number of each CPU. The number is red for CPUs on which an episode makes it
    worse."""
    key, number = column.key, column.shows
    doubts, shares = doubted(key, session, interval), interval.shares.get(key)
    for cpu in cpus:
        row = session.position[cpu]
        if number is None:
            value = _ipc_alone(session, interval, cpu)
        else:
            value = float(interval.values[key][row])
        quiet = number is not None and number.unit == "ratio" and value < QUIET
        text, style = column.cell(
            value,
            "alarm" if cpu in red else "dim" if quiet else "text",
            online=bool(interval.online[row]),
            resting=number is not None and number.of_running and bool(interval.resting[row]),
            doubted=bool(doubts[row]),
            estimated=shares is not None and shares[row] < MIN_COUNTED_SHARE,
        )
        yield column.place(text), style


def _ipc_alone(session: Session, interval: Interval, cpu: int) -> float:
    """Returns the IPC of a CPU without its sibling: from the evidence of an episode in this
    interval, else the current estimate."""
    for episode in episode_style.during(session, interval):
        alone = episode.evidence.get("ipc_alone") if cpu in episode.cpus else None
        if isinstance(alone, int | float):
            return float(alone)
    return ipc_alone(session, interval, session.position[cpu])
