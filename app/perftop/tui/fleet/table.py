"""The fleet as a table: a row a machine. Columns are chosen by the width alone, so that nothing
jumps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import NamedTuple

from perfprobe.frozen import frozen
from perftop.draw import theme
from perftop.draw.strips import Line, Run, fit, foreign, width
from perftop.session.fleet.fleet import racks
from perftop.session.fleet.machine import Machine
from perftop.tui.fleet import look as words
from perftop.tui.fleet.look import OLD_S, TOLD, Look, amount, cell

NAME = 7, 24
"""Cells of a name: at least, at most."""
HISTORY, BAR, CAUSE = (11, 40), (10, 26), (15, 18)
"""Cells of the history, the clock's bar and the cause: at least, at most."""


@frozen
class Column:
    key: str
    title: str
    size: int
    rank: int
    """Those of the highest rank are left out first."""
    order: str = ""
    """What a click on the title sorts by."""
    left: bool = False


COLUMNS = (
    Column("lost", "lost %", 6, 0, "lost"),
    Column("busy", "busy %", 6, 0, "busy"),
    Column("past", "10 min", HISTORY[0], 9, left=True),
    Column("clock_hz", "GHz", 4, 0, "clock_hz"),
    Column("bar", "clock, ceiling", BAR[0], 4, left=True),
    Column("ceiling_hz", "", 4, 6),
    Column("below", "below %", 7, 3, "below"),
    Column("cause", "main cause", CAUSE[0], 1, left=True),
    Column("both", "both %", 6, 8, "both"),
    Column("involuntary", "inv %", 5, 7, "involuntary"),
    Column("steal", "steal %", 7, 5, "steal"),
    Column("power_w", "W", 4, 10, "power_w"),
    Column("power_limit_w", "of", 4, 11),
    Column("episodes", theme.DROPPED, 1, 5, "episodes"),
    Column("suspects", theme.SUSPECT, 1, 6, "suspects"),
    Column("age", "age s", 5, 2, "age"),
)


@frozen
class Table:
    """Columns with their sizes, for one width."""

    width: int
    name: int
    columns: tuple[Column, ...]
    sizes: dict[str, int]
    top_hz: float
    """The highest ceiling, where the bar ends."""
    shared: frozenset[tuple[str, str]]
    """Causes that several machines share, which are told above."""


class Slot(NamedTuple):
    look: Look
    made: Table
    machine: Machine
    key: str
    size: int


def table(look: Look, wide: int) -> Table:
    """The columns that fit."""
    longest = max((len(name) for name in look.fleet.machines), default=0)
    name = min(max(longest, NAME[0]), NAME[1], max(NAME[0], wide // 6))
    kept = list(COLUMNS)
    room = wide - 3 - name

    def taken() -> int:
        return sum(column.size + 1 for column in kept)

    while taken() > room and len(kept) > 2:
        kept.remove(max(kept, key=lambda column: column.rank))
    sizes = {column.key: column.size for column in kept}
    spare = room - taken()
    for key, (least, most) in (("cause", CAUSE), ("bar", BAR), ("past", HISTORY)):
        if key in sizes:
            more = min(max(0, spare), most - least)
            sizes[key] += more
            spare -= more
    tops = [v for m in look.fleet.answering if isfinite(v := m.numbers["ceiling_hz"])]
    shared = frozenset((h.kind, h.cause) for h in look.running if len(h.machines) > 1)
    return Table(wide, name, tuple(kept), sizes, max(tops, default=0.0), shared)


def headings(look: Look, made: Table) -> Line:
    style = {True: "bright", False: "dim"}
    by_name = look.sight.order == "name"
    runs: list[Run] = [("   ", "text"), (fit("name", made.name), style[by_name])]
    for column in made.columns:
        size, mine = made.sizes[column.key], column.order == look.sight.order != ""
        title = column.title
        if mine:
            title = f"{'▴' if look.sight.reverse else '▾'}{title}"
        if not column.left and len(title) == size + 1:  # the mark stands in the gap before it
            runs.append((title, style[mine]))
            continue
        title = title[-size:] if not column.left else title if len(title) <= size else "clock"
        title = f"{title:<{size}}" if column.left else f"{title:>{size}}"
        runs += [(" ", "text"), (title, style[mine])]
    return runs, "calm"


def order_at(made: Table, x: int) -> str:
    """What a click on the headings at this cell sorts by; '' for nothing."""
    at = 3 + made.name
    if x < at:
        return "name"
    for column in made.columns:
        at += made.sizes[column.key] + 1
        if x < at:
            return column.order
    return ""


def row(look: Look, made: Table, machine: Machine) -> Line:
    chosen = machine.name == look.chosen
    sign, style = words.worst_sign(machine)
    name = fit(foreign(machine.name), made.name)
    runs: list[Run] = [(theme.CHOSEN if chosen else " ", "key"), (sign, style), (" ", "text"),
                       (name, "bright" if chosen else "text")]  # fmt: skip
    if not machine.answers:
        runs += _silent(look, machine, made.width - width(runs))
    else:
        for column in made.columns:
            runs.append((" ", "text"))
            slot = Slot(look, made, machine, column.key, made.sizes[column.key])
            runs += _CELLS.get(column.key, _number)(slot)
    mood: theme.Mood = "chosen" if chosen else "calm"
    return runs, mood


def _silent(look: Look, machine: Machine, room: int) -> list[Run]:
    text = words.why(machine, look.now)
    if text == "connecting":
        return [("  connecting", "dim")]
    waited = words.span(look.now - machine.silent_since)
    said = f"  no answer for {waited}   "
    return [(said, "alarm"), (fit(text, max(0, room - len(said))), "dim")]


def _number(slot: Slot) -> list[Run]:
    return [cell(slot.machine, slot.key, slot.size)]


def _ceiling(slot: Slot) -> list[Run]:
    text, style = cell(slot.machine, slot.key, slot.size)
    return [(text, "dim" if style == "text" else style)]


def _past(slot: Slot) -> list[Run]:
    *before, newest = slot.machine.past.series("busy", slot.size, slot.look.now)
    return [("".join(map(_level, before)), "user-2"), (_level(newest), "kernel-4")]


def _level(share: float) -> str:
    """At most seven eighths, so that rows stay apart."""
    return theme.LEVELS[max(1, min(7, round(share * 7)))] if isfinite(share) else " "


def _bar(slot: Slot) -> list[Run]:
    """The clock in green, what it misses of its ceiling in red, the ceiling as a mark."""
    _, made, machine, _, size = slot
    hz, ceiling = machine.numbers["clock_hz"], machine.numbers["ceiling_hz"]
    if not isfinite(hz):
        absent = fit(foreign(machine.absent or "no clock"), size)
        return [(absent, "faint")]
    end = round((size - 1) * min(1.0, ceiling / made.top_hz)) if isfinite(ceiling) else size - 1
    share = hz / ceiling if isfinite(ceiling) and ceiling > 0 else hz / max(made.top_hz, hz)
    clock = min(end, round(end * share))
    runs: list[Run] = [(theme.CLOCK * clock, "clock")]
    runs += [(theme.CLOCK * (end - clock), "alarm")] if clock < end else []
    mark = theme.CEILING if isfinite(ceiling) else " "
    return [*runs, (mark, "dim"), (" " * (size - 1 - end), "text")]


def _cause(slot: Slot) -> list[Run]:
    _, made, machine, _, size = slot
    kind, cause = machine.cause
    if not kind:
        return [(" " * size, "text")]
    style = "text" if (kind, cause) in made.shared else "alarm"
    return [(fit(words.told(kind, cause), size), style)]


def _episodes(slot: Slot) -> list[Run]:
    count = len({event.group for event in slot.machine.running if event.wrong})
    return [(str(min(count, 9)) if count else theme.NEITHER, "text" if count else "neither")]


def _suspects(slot: Slot) -> list[Run]:
    count = slot.machine.suspects
    return [(theme.SUSPECT if count else theme.NEITHER, "warn" if count else "neither")]


def _age(slot: Slot) -> list[Run]:
    age = max(0.0, slot.look.now - slot.machine.heard)
    text = f"{age:5.1f}" if age < 100 else f"{age:5.0f}"
    return [(text, "warn" if age > OLD_S + 2 * slot.look.every_s else "dim")]


_CELLS: dict[str, Callable[[Slot], list[Run]]] = {
    "past": _past, "bar": _bar, "cause": _cause, "episodes": _episodes, "suspects": _suspects,
    "age": _age, "ceiling_hz": _ceiling,
}  # fmt: skip


def out_of_sight(look: Look, hidden: Sequence[Machine], wide: int) -> Line:
    """The machines without a row: how many, the worst of them, and a cell each by rack."""
    text = f" {len(hidden)} more rows"
    if known := [v for m in hidden if isfinite(v := m.numbers["lost"])]:
        told = "none loses above" if max(known) < TOLD else "the worst loses"
        text += f", {told} {amount('lost', max(known))} %"
    runs: list[Run] = [(text, "dim")]
    left = wide - len(text)
    for rack, machines in racks(hidden).items():
        title = f"   {foreign(rack)} "
        if left < len(title) + 1:
            break
        runs.append((title, "dim"))
        left -= len(title)
        cells = [_small(look, machine) for machine in machines[:left]]
        runs += cells
        left -= len(cells)
    return runs, "calm"


def _small(look: Look, machine: Machine) -> Run:
    """A machine in one cell: its sign, or how much it loses."""
    sign, style = words.worst_sign(machine)
    if sign != " ":
        return sign, style
    value = machine.numbers["lost"]
    step = words.level(value, "lost", words.scale(look, "lost"))
    quiet = not isfinite(value) or value < TOLD
    return ("▄", f"heat{max(1, step)}") if not quiet else ("▄", "user-2")
