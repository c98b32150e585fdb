"""The panel "who loses to whom", and the lines of pairs, which the neighbour view has as well."""

from __future__ import annotations

from math import isnan

from perfprobe.frozen import frozen
from perftop.base.format import many, rough, time_of_day
from perftop.draw.strips import Run, fit
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.panels.pairs import Pair, Pairs, Side
from perftop.tui.panels.panel import INDENT, sized, title

NOBODY = "No CPU is losing time to a neighbour"
_NAME = 12, 22
"""Minimum and maximum cells of a name."""
_CPU, _TAKES, _FROM, _IPC, _SINCE, _CAUSE = 8, 12, 6, 22, 10, 12
"""Cells of columns, with the gap behind each."""
_WHY = 30
"""Minimum cells of the evidence."""


@frozen
class Columns:
    """Cells by column; 0: it is not shown."""

    name: int
    cpu: int
    takes: int
    ipc: int
    since: int
    cause: int
    why: int


def columns(width: int, *, since: bool) -> Columns:
    """The columns that fit, the most important first; names take the spare width, then evidence.
    `since`: also when it began, why, and the evidence."""
    takes = _TAKES if width >= 72 else 6
    room = width - INDENT - takes - _FROM * (takes == _TAKES) - 2 * _NAME[0]
    cpu = _CPU if room >= 2 * _CPU else 0
    room -= 2 * cpu
    began = _SINCE if since and room >= _SINCE else 0
    room -= began
    ipc = _IPC if room >= _IPC else 0
    room -= ipc
    cause = _CAUSE if since and room >= _CAUSE else 0
    room -= cause
    name = min(_NAME[1], _NAME[0] + max(0, room) // 2)
    room -= 2 * (name - _NAME[0])
    return Columns(name, cpu, takes, ipc, began, cause, room if since and room >= _WHY else 0)


def headings(c: Columns) -> list[Run]:
    """Titles above lines of pairs."""
    between = "from" if c.takes == _TAKES else ""
    parts = (
        (" " * INDENT, INDENT), ("who takes", c.name + c.cpu), ("lost", c.takes),
        ("", _FROM if between else 0), ("who loses", c.name + c.cpu), ("IPC", c.ipc),
        ("since", c.since), ("cause", c.cause), ("evidence", c.why),
    )  # fmt: skip
    return [("".join(fit(text, size) for text, size in parts if size), "dim")]


def line(pair: Pair, c: Columns, since: str) -> list[Run]:
    """One pair: who takes how much from whom; red while it lasts."""
    over = bool(pair.lasted)
    text, red, bold = ("dim",) * 3 if over else ("text", "alarm", "bright")
    share = "" if isnan(pair.lost) else rough(pair.lost)
    runs: list[Run] = [(f"{pair.sign} ", red), *_side(pair.taker, c, text)]
    if c.takes == _TAKES:
        verb = "took  " if over else "takes "
        runs += [(verb, "dim"), (f"{share:<{c.takes - 6}}", red), (f"{'from':<{_FROM}}", "dim")]
    else:
        runs.append((f"{share:<{c.takes}}", red))
    runs += _side(pair.loser, c, bold)
    if c.ipc:
        runs += _ipc(pair, c.ipc, text)
    runs.append((fit(since, c.since) if c.since else "", "dim"))
    runs.append((fit(pair.cause, c.cause) if c.cause else "", text))
    why = [f"for {pair.lasted}" if over else "", "inferred" if pair.inferred else "", pair.why]
    runs.append((fit(" · ".join(filter(None, why)), c.why) if c.why else "", "dim"))
    return runs


def _side(side: Side, c: Columns, key: str) -> list[Run]:
    name: Run = (fit(side.name, c.name - 1) + " ", key) if side.name else (
        f"{'–':<{c.name}}", "faint")  # fmt: skip
    cpu = "" if side.cpu is None else f"CPU {side.cpu}"
    return [name, (fit(cpu, c.cpu) if c.cpu else "", "dim")]


def _ipc(pair: Pair, size: int, key: str) -> list[Run]:
    if isnan(pair.ipc) or isnan(pair.alone):
        return [(" " * size, "text")]
    runs: list[Run] = [("IPC ", "dim"), (f"{pair.ipc:.2f}", key), (", alone ", "dim"),
                       (f"{pair.alone:.2f}", key)]  # fmt: skip
    return [*runs, (" " * (size - sum(len(text) for text, _ in runs)), "text")]


def lines(session: Session, interval: Interval, width: int, height: int) -> list[list[Run]]:
    """The panel, exactly `width` cells by `height` lines."""
    pairs = _pairs(session, interval)
    if not pairs:
        return sized(
            [title("who loses to whom", "", width), [(f"{' ' * INDENT}{NOBODY}", "dim")]],
            width, height,
        )  # fmt: skip
    shown = min(len(pairs), max(0, height - 1))
    rest = f"{shown} of {many(len(pairs), 'pair')}" if shown < len(pairs) else many(shown, "pair")
    link: list[Run] = [("6", "key"), (" all pairs", "dim")] if width >= 60 else []
    placed = columns(width, since=False)
    found = [title("who loses to whom", rest, width, link)]
    found += [line(one, placed, time_of_day(session.unix(one.since_ns))) for one in pairs[:shown]]
    return sized(found, width, height)


def cpus(session: Session, interval: Interval, height: int) -> list[int | None]:
    """By line of the panel, the CPU that loses; None where there is none."""
    found: list[int | None] = [pair.cpu for pair in _pairs(session, interval)]
    return [None, *found, *[None] * height][:height]


def any_pair(session: Session, interval: Interval) -> bool:
    """Whether some CPU loses to a neighbour."""
    return any(True for _ in Pairs(session, interval, session.neighbours.watched_job).episodes())


def _pairs(session: Session, interval: Interval) -> list[Pair]:
    watched_job = session.neighbours.watched_job
    return Pairs(session, interval, watched_job).running(frozenset(session.shown))
