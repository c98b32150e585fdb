"""Lines of the view of neighbours as runs of text. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isnan

from perftop.base.format import MISSING, ClockUnit, many, percent
from perftop.base.text import ranges
from perftop.draw import theme
from perftop.draw.strips import Run, fit, number, shed
from perftop.tui.neighbours.values import Job, Runner, Victim

WHY = 120
"""Cells of a line from which on there is room for what a loss rests on."""
WHOM = 5
"""Which of the columns says to whom."""
WAITS = 0.05
"""A thread that waits so much is told in amber."""


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    width: int
    """With the gap to its left."""
    left: bool = False


def _columns(width: int, wishes: list[Column], rest: list[Column]) -> list[Column]:
    """The last ones share what is left."""
    room = width - 2 - sum(column.width for column in wishes)
    least = sum(column.width for column in rest)
    if len(rest) > 1 and room < least:
        return [*wishes, Column(rest[0].title, max(8, room), rest[0].left)]
    more = max(0, room - least)
    first = rest[0].width + (more // 3 if len(rest) > 1 else more)
    shared = [Column(rest[0].title, first, left=True)]
    shared += [Column(c.title, c.width + more - more // 3, left=True) for c in rest[1:]]
    return [*wishes, *shared]


def victim_columns(width: int) -> list[Column]:
    who = Column("who loses", 17 if width < WHY else 28, left=True)
    wishes = [Column("cpu", 5), who, Column("lost %", 7), Column("since", 11),
              Column("cause", 12, left=True)]  # fmt: skip
    rest = [Column("to whom", 18, left=True), Column("rests on", 36, left=True)]
    return _columns(width, wishes, rest if width >= WHY else rest[:1])


def runner_columns(width: int) -> list[Column]:
    wishes = [
        Column("cpu", 5), Column("thread", 20 if width < WHY else 28, left=True),
        Column("run %", 8), Column("wait %", 8), Column("CPU IPC", 9), Column("preempted/s", 13),
    ]  # fmt: skip
    return _columns(width, wishes, [Column("on the sibling", 16, left=True)])


def heading(columns: list[Column]) -> list[Run]:
    return [(" ", "text"), *((_cell(c.title, c), "dim") for c in columns)]


def _cell(text: str, column: Column) -> str:
    if column.left:
        return "  " + fit(text, max(0, column.width - 2))
    return f"{text:>{column.width}}"


def victim(one: Victim, columns: list[Column], when: Callable[[int], str], *, chosen: bool
           ) -> list[Run]:  # fmt: skip
    text, bright, alarm = ("dim", "text", "text") if one.lasted else ("text", "bright", "alarm")
    sign = " " if one.lasted else theme.EPISODES["neighbour"]
    inferred = "inferred" if one.inferred else ""
    why = [one.lasted, inferred, one.why]
    whom = [one.culprit] if len(columns) > WHOM + 1 else [one.culprit, one.lasted]
    cells = [
        ("" if one.lasted else str(one.cpu), text),
        (one.who or MISSING, text if one.who else "faint"),
        (f"{sign}{percent(one.lost):>5}", alarm),
        (when(one.since_ns), "dim"),
        (one.cause, text),
        (" · ".join(filter(None, whom)), bright),
        (" · ".join(filter(None, why)), "dim"),
    ]
    pairs = zip(cells, columns, strict=False)
    return [_mark(chosen), *((_cell(text, column), key) for (text, key), column in pairs)]


def runner(one: Runner, columns: list[Column], *, chosen: bool) -> list[Run]:
    moved, elapsed_s = one.moved, one.moved.elapsed_s
    idle = moved.run_s == 0
    runs: list[Run] = [
        _mark(chosen),
        (_cell(str(one.cpu), columns[0]), "text"),
        (_cell(f"{one.comm} ({one.tid})", columns[1]), "dim" if idle else "text"),
        _share(moved.run_s / elapsed_s if elapsed_s else float("nan"), columns[2].width),
        _share(moved.wait, columns[3].width, WAITS) if not idle or moved.wait_s > 0
        else (f"{'-':>{columns[3].width}}", "faint"),
        number(one.ipc, 2, columns[4].width),
        number(moved.involuntary / elapsed_s if elapsed_s else float("nan"), 0, columns[5].width),
        (_cell(one.beside, columns[6]), "dim"),
    ]  # fmt: skip
    return runs


def _mark(chosen: bool) -> Run:
    return (theme.CHOSEN, "mark") if chosen else (" ", "text")


def _share(value: float, width: int, least: float = 2.0) -> Run:
    return number(100 * value, 1, width, "warn" if value >= least else "text")


def job(one: Job, unit: ClockUnit, width: int) -> list[Run]:
    """The watched job in a line; the least important goes first where there is no room."""
    if not one.threads:
        none = "  no thread of that name or number runs"
        looks = "  nothing is told of its threads yet"
        return [(f" {one.name}", "bright"), (looks if one.threads is None else none, "dim")]
    moved = one.moved
    threads = many(one.threads, "thread")
    pieces: list[tuple[int, list[Run]]] = [
        (0, [(f" {one.name}", "bright"), (f"  {threads}", "text")]),
        (3, [("on ", "dim"), (_on(one.cpus), "text")]),
    ]
    if moved.elapsed_s:
        pieces.append((1, [("runs ", "dim"), (f"{moved.run_s / moved.elapsed_s:.2f}", "text"),
                           (" CPUs", "dim")]))  # fmt: skip
        waits = moved.wait
        wait = MISSING if isnan(waits) else f"{percent(waits)} %"
        key = "warn" if waits >= WAITS else "text"
        pieces.append((1, [("waits ", "dim"), (wait, key)]))
    if not isnan(one.busy_hz):
        pieces.append((2, [(f"{one.busy_hz * unit.per_hz:.{unit.digits}f}", "text"),
                           (f" {unit.name}", "dim")]))  # fmt: skip
    if not isnan(one.ipc):
        pieces.append((2, [("IPC ", "dim"), (f"{one.ipc:.2f}", "text")]))
    if moved.elapsed_s:
        asleep, aside = moved.voluntary / moved.elapsed_s, moved.involuntary / moved.elapsed_s
        pieces.append((4, [("sleeps ", "dim"), (f"{asleep:.0f}/s", "text")]))
        pieces.append((4, [("preempted ", "dim"), (f"{aside:.0f}/s", "text")]))
    return shed(pieces, width, 3)


def _on(cpus: list[int], most: int = 24) -> str:
    text = ranges(cpus)
    if len(text) > most:
        return f"{len(cpus)} CPUs"
    return f"CPU{'s' if len(cpus) > 1 else ''} {text}"


def calm(name: str | None, looked_at: list[str], width: int) -> list[list[Run]]:
    """Nobody loses; what was looked at to say so."""
    text = " nobody loses to others" if name is None else f" {name} loses nothing to others"
    return [[(text, "text")], *wrapped("looked at: ", looked_at, width)]


def untold(reasons: list[str], width: int) -> list[list[Run]]:
    """What cannot be seen here, a line each or as many as it takes."""
    lines: list[list[Run]] = []
    for reason in reasons:
        lines += wrapped("not told: ", reason.split(" · "), width)
    return lines


def wrapped(before: str, texts: list[str], width: int) -> list[list[Run]]:
    """Texts one after the other, as many in a line as there is room for."""
    lines, held = [], f" {before}"
    for i, text in enumerate(texts):
        if i and len(held) + len(text) > width - 4:
            lines.append([(held.removesuffix(" · "), "dim")])
            held = " " * (1 + len(before))
        held += text + (" · " if i + 1 < len(texts) else "")
    return [*lines, [(held, "dim")]]
