"""Lines of the neighbour view as runs of text. Pure."""

from __future__ import annotations

from collections.abc import Callable
from math import isnan

from perftop.base.format import MISSING, ClockUnit, many, percent
from perftop.base.text import ranges
from perftop.draw import theme
from perftop.draw.strips import Run, number, shed
from perftop.tui.neighbours.values import Job, Runner, Victim
from perftop.tui.shared.placed_column import Placed

WHY = 120
"""Minimum cells of a line that shows the evidence of a loss."""
WHOM = 5
"""Index of the column "to whom"."""
WAITS = 0.05
"""Minimum share of waiting that is shown in amber."""


def _placed(title: str, width: int, *, left: bool = False) -> Placed:
    return Placed("", title, width, left=left)


def _columns(width: int, wishes: list[Placed], rest: list[Placed]) -> list[Placed]:
    """All columns; those in `rest` come last and share the spare width."""
    room = width - 2 - sum(column.width for column in wishes)
    least = sum(column.width for column in rest)
    if len(rest) > 1 and room < least:
        return [*wishes, _placed(rest[0].title, max(8, room), left=rest[0].left)]
    more = max(0, room - least)
    first = rest[0].width + (more // 3 if len(rest) > 1 else more)
    shared = [_placed(rest[0].title, first, left=True)]
    shared += [_placed(c.title, c.width + more - more // 3, left=True) for c in rest[1:]]
    return [*wishes, *shared]


def victim_columns(width: int) -> list[Placed]:
    who = _placed("who loses", 17 if width < WHY else 28, left=True)
    wishes = [_placed("cpu", 5), who, _placed("lost %", 7), _placed("since", 11),
              _placed("cause", 12, left=True)]  # fmt: skip
    rest = [_placed("to whom", 18, left=True), _placed("rests on", 36, left=True)]
    return _columns(width, wishes, rest if width >= WHY else rest[:1])


def runner_columns(width: int) -> list[Placed]:
    who = _placed("thread", 20 if width < WHY else 28, left=True)
    wishes = [_placed("cpu", 5), who, _placed("run %", 8), _placed("wait %", 8),
              _placed("CPU IPC", 9), _placed("preempted/s", 13)]  # fmt: skip
    return _columns(width, wishes, [_placed("on the sibling", 16, left=True)])


def heading(columns: list[Placed]) -> list[Run]:
    return [(" ", "text"), *((c.text(c.title), "dim") for c in columns)]


def victim(one: Victim, columns: list[Placed], when: Callable[[int], str], *, chosen: bool
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
    return [_mark(chosen), *((column.text(text), key) for (text, key), column in pairs)]


def runner(one: Runner, columns: list[Placed], *, chosen: bool) -> list[Run]:
    moved, elapsed_s = one.moved, one.moved.elapsed_s
    idle = moved.run_s == 0
    runs: list[Run] = [
        _mark(chosen),
        (columns[0].text(str(one.cpu)), "text"),
        (columns[1].text(f"{one.comm} ({one.tid})"), "dim" if idle else "text"),
        _share(moved.run_s / elapsed_s if elapsed_s else float("nan"), columns[2].width),
        _share(moved.wait, columns[3].width, WAITS) if not idle or moved.wait_s > 0
        else (f"{'-':>{columns[3].width}}", "faint"),
        number(one.ipc, 2, columns[4].width),
        number(moved.involuntary / elapsed_s if elapsed_s else float("nan"), 0, columns[5].width),
        (columns[6].text(one.beside), "dim"),
    ]  # fmt: skip
    return runs


def _mark(chosen: bool) -> Run:
    return (theme.CHOSEN, "mark") if chosen else (" ", "text")


def _share(value: float, width: int, least: float = 2.0) -> Run:
    return number(100 * value, 1, width, "warn" if value >= least else "text")


def job(one: Job, unit: ClockUnit, width: int) -> list[Run]:
    """The watched job in one line; the least important parts are dropped if it is too long."""
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
    """Lines for the case that nobody loses, with what was looked at to say so."""
    text = " nobody loses to others" if name is None else f" {name} loses nothing to others"
    return [[(text, "text")], *wrapped("looked at: ", looked_at, width)]


def untold(reasons: list[str], width: int) -> list[list[Run]]:
    """What cannot be seen here; each reason begins a new line and may take several."""
    lines: list[list[Run]] = []
    for reason in reasons:
        lines += wrapped("not told: ", reason.split(" · "), width)
    return lines


def wrapped(before: str, texts: list[str], width: int) -> list[list[Run]]:
    """Texts one after the other, as many in a line as fit."""
    lines, held = [], f" {before}"
    for i, text in enumerate(texts):
        if i and len(held) + len(text) > width - 4:
            lines.append([(held.removesuffix(" · "), "dim")])
            held = " " * (1 + len(before))
        held += text + (" · " if i + 1 < len(texts) else "")
    return [*lines, [(held, "dim")]]
