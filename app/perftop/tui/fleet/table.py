"""The fleet as a table with a row for each machine. Only the width decides which columns are shown,
so that columns do not move when values change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite

from perftop.draw import columns, theme
from perftop.draw.columns import DOUBTED, Cell, Column, Run, fit
from perftop.draw.strips import Line, foreign
from perftop.session.fleet.fleet import ORDERS, racks
from perftop.session.fleet.machine import FIELDS, Machine
from perftop.tui.fleet import words
from perftop.tui.fleet.words import MIN_LOSS, Look, amount, cell

NAME = 7, 24
"""Minimum and maximum width of a machine's name, in cells."""
OLD_S = 3.0
"""Age of numbers, in seconds, in addition to two intervals of the source, beyond which the age is
highlighted."""


def _number(key: str, room: int, rank: int, heading: str | None = None) -> Column:
    entry = FIELDS[key]
    name = f"{entry.label} %" if heading is None else heading
    return Column(key, name, room + 1, gap=1, rank=rank)


COLUMNS = (
    _number("lost", 6, 0),
    _number("busy", 6, 0),
    Column("past", "10 min", 12, left=True, gap=1, rank=11, most=41, turn=2),
    _number("clock_hz", 4, 0, "GHz"),
    Column("bar", "clock, ceiling", 11, left=True, gap=1, rank=4, most=27, turn=1),
    _number("ceiling_hz", 4, 8, ""),
    _number("below", 7, 3),
    Column("cause", "main cause", 16, left=True, gap=1, rank=1, most=19),
    _number("both", 6, 10),
    _number("involuntary", 5, 9),
    _number("steal", 7, 6),
    _number("power_w", 4, 12, "W"),
    _number("power_limit_w", 4, 13, "of"),
    Column("episodes", theme.DROPPED, 2, gap=1, rank=5),
    Column("suspects", DOUBTED, 2, gap=1, rank=7),
    Column("age", "age s", 6, gap=1, rank=2),
)  # fmt: skip


@dataclass(frozen=True)
class Table:
    """The columns for a width, and values of the whole fleet that cells of all rows depend on."""

    columns: list[Column]
    top_hz: float
    """The highest ceiling of any machine, in Hz, at which the bar of the clock ends."""
    shared: frozenset[tuple[str, str]]
    """Kinds and causes of running episodes that several machines share. The alerts above the table
    show them."""


def table(look: Look, width: int) -> Table:
    """Returns a table with the columns that fit: sign and name, then as many numbers as
    possible."""
    longest = max((len(name) for name in look.fleet.machines), default=0)
    name = min(max(longest, NAME[0]), NAME[1], max(NAME[0], width // 6))
    first = Column("sign", "", 2, gap=0), Column("name", "name", 1 + name, left=True, gap=1)
    kept = columns.fitted([*first, *COLUMNS], width)
    kept = [replace(c, heading="clock") if c.key == "bar" and c.room < 14 else c for c in kept]
    tops = [v for m in look.fleet.answering if isfinite(v := m.numbers["ceiling_hz"])]
    shared = frozenset((h.kind, h.cause) for h in look.running if len(h.machines) > 1)
    return Table(kept, max(tops, default=0.0), shared)


def headings(look: Look, made: Table) -> Line:
    choice = look.choice
    return columns.headings(made.columns, choice.order, rising=choice.reverse), "calm"


def order_at(made: Table, x: int) -> str:
    """Returns the order selected by a click on the headings at cell `x`; '' if there is none."""
    column = columns.column_at(made.columns, x)
    return column.key if column is not None and column.key in ORDERS else ""


def row(look: Look, made: Table, machine: Machine) -> Line:
    chosen = machine.name == look.chosen
    sign, name, *rest = made.columns
    marks: list[Run] = [(theme.CHOSEN if chosen else " ", "key"), words.worst_sign(machine)]
    named = foreign(machine.name), "bright" if chosen else "text"
    runs = columns.line((sign, name), (marks, named))
    if machine.answers:
        runs += columns.line(rest, [_cell(look, made, machine, column) for column in rest])
    elif (text := words.why(machine, look.now)) == "connecting":
        runs.append(("  connecting", "dim"))
    else:
        waited = f"  no answer for {words.span(look.now - machine.silent_since)}   "
        room = columns.total_width(rest) - len(waited)
        runs += [(waited, "alarm"), (fit(text, max(0, room)), "dim")]
    return runs, "chosen" if chosen else "calm"


def _cell(look: Look, made: Table, machine: Machine, column: Column) -> Cell:
    size = column.room
    match column.key:
        case "past":
            *before, newest = machine.past.series("busy", size, look.now)
            return [("".join(map(_bar, before)), "user-2"), (_bar(newest), "kernel-4")]
        case "bar":
            return _clock_bar(made, machine, size)
        case "ceiling_hz":
            text, style = cell(machine, column.key, size)
            return text, "dim" if style == "text" else style
        case "cause":
            kind, cause = machine.cause
            name = words.cause_name(kind, cause) if kind else ""
            return name, "text" if not kind or (kind, cause) in made.shared else "alarm"
        case "episodes":
            count = len({episode.group for episode in machine.running if episode.wrong})
            return (str(min(count, 9)), "text") if count else (theme.NEITHER, "neither")
        case "suspects":
            return (DOUBTED, "warn") if machine.suspects else (theme.NEITHER, "neither")
        case "age":
            age = max(0.0, look.now - machine.updated)
            text = f"{age:.1f}" if age < 100 else f"{age:.0f}"
            return text, "warn" if age > OLD_S + 2 * look.every_s else "dim"
    return cell(machine, column.key, size)


def _bar(share: float) -> str:
    """Returns a bar for a share, at most seven eighths high, so that rows stay apart."""
    return theme.LEVELS[max(1, min(7, round(share * 7)))] if isfinite(share) else " "


def _clock_bar(made: Table, machine: Machine, size: int) -> list[Run]:
    """Returns a bar of a machine's clock: the clock in green, the gap up to its ceiling in red, and
    a mark at the ceiling."""
    hz, ceiling = machine.numbers["clock_hz"], machine.numbers["ceiling_hz"]
    if not isfinite(hz):
        return [(fit(foreign(machine.absent or "no clock"), size), "faint")]
    known = isfinite(ceiling)
    end = round((size - 1) * min(1.0, ceiling / made.top_hz)) if known else size - 1
    share = hz / ceiling if known and ceiling > 0 else hz / max(made.top_hz, hz)
    clock = min(end, round(end * share))
    runs: list[Run] = [(theme.CLOCK * clock, "clock")]
    runs += [(theme.CLOCK * (end - clock), "alarm")] if clock < end else []
    return [*runs, (theme.CEILING if known else " ", "dim"), (" " * (size - 1 - end), "text")]


def out_of_sight(look: Look, hidden: Sequence[Machine], width: int) -> Line:
    """Returns a line about the machines without a visible row: their number, the worst loss among
    them, and a cell for each machine, grouped by rack."""
    text = f" {len(hidden)} more rows"
    if known := [v for m in hidden if isfinite(v := m.numbers["lost"])]:
        what = "none loses above" if max(known) < MIN_LOSS else "the worst loses"
        text += f", {what} {amount('lost', max(known))} %"
    runs: list[Run] = [(text, "dim")]
    left = width - len(text)
    for rack, machines in racks(hidden).items():
        title = f"   {foreign(rack)} "
        if left < len(title) + 1:
            break
        left -= len(title)
        runs += [(title, "dim"), *(_small(look, machine) for machine in machines[:left])]
        left -= len(machines[:left])
    return runs, "calm"


def _small(look: Look, machine: Machine) -> Run:
    """Returns a machine in one cell: its sign, or a block in the colour of how much it loses."""
    sign, style = words.worst_sign(machine)
    if sign != " ":
        return sign, style
    value = machine.numbers["lost"]
    step = words.level(value, "lost", words.ramp_top(look, "lost"))
    return "▄", f"heat{max(1, step)}" if value >= MIN_LOSS else "user-2"
