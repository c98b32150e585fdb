"""The fleet's heat map: a cell a machine. Racks are columns where names tell them, else machines
follow each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, isfinite

from perfprobe.frozen import frozen
from perftop.draw import heat_ramp, theme
from perftop.draw.strips import BLANK, Line, Run, fit, foreign, number, spread
from perftop.session.fleet.fleet import natural, racks
from perftop.session.fleet.machine import FIELDS, PAST_S, TRACED, Machine, mean
from perftop.tui.fleet import look as words
from perftop.tui.fleet.look import TOLD, Look, amount, cell

SIZES = (6, 4, 3, 2, 1)
"""Cells of a machine in width, the widest that fits; numbers need 4."""
LABEL = 6
"""Cells of the labels at the left."""
WIDE = 150
"""Minimum columns for a sentence about the number that is shown."""
FEET = 3
"""Lines of means below racks."""


@frozen
class Grid:
    columns: tuple[tuple[str, tuple[Machine | None, ...]], ...]
    """Title and machines of each column, from the top; None: a gap."""
    labels: tuple[str, ...]
    """A label for each row."""
    size: int
    racked: bool

    def place(self, name: str) -> tuple[int, int]:
        """Column and row of a machine."""
        for x, (_, machines) in enumerate(self.columns):
            for y, machine in enumerate(machines):
                if machine is not None and machine.name == name:
                    return x, y
        return 0, 0

    def beside(self, name: str, dx: int, dy: int) -> str:
        """The nearest machine in a direction; the same one at an edge."""
        x, y = self.place(name)
        while True:
            x, y = x + dx, y + dy
            if not (0 <= x < len(self.columns) and 0 <= y < len(self.labels)):
                return name
            column = self.columns[x][1]
            found = column[y] if y < len(column) else None
            if found is not None:
                return found.name
            if dx:  # a short rack: go on along the row
                continue


def grid(machines: Sequence[Machine], width: int, height: int) -> Grid:
    """The grid with the widest cells that fit."""
    room = width - LABEL - 1
    by_rack = racks(machines)
    numbers = {_number(machine) for mine in by_rack.values() for machine in mine}
    rows = sorted(numbers, key=lambda number: (natural(number), number))  # 2 beside 02
    fits = len(by_rack) > 1 and len(rows) + FEET <= height and len(machines) > 2 * len(by_rack)
    for size in SIZES[:3] if fits else ():
        if len(by_rack) * (size + 1) <= room:
            columns = tuple((rack, _column(mine, rows)) for rack, mine in by_rack.items())
            return Grid(columns, tuple(rows), size, racked=True)
    ordered = sorted(machines, key=lambda m: natural(m.name))
    for size in SIZES:
        across = max(1, room // (size + 1))
        tall = max(1, ceil(len(ordered) / across))
        if tall <= height or size == SIZES[-1]:
            break
    tall = min(max(tall, min(height, 8)), max(1, height))
    pieces = [ordered[at : at + tall] for at in range(0, len(ordered), tall)][:across]
    columns = tuple(("", tuple(piece)) for piece in pieces)
    return Grid(columns, ("",) * tall, size, racked=False)


def _number(machine: Machine) -> str:
    """The last number in the name of a machine."""
    stem = machine.name.partition(".")[0]
    return stem[len(stem.rstrip("0123456789")) :]


def _column(mine: Sequence[Machine], rows: Sequence[str]) -> tuple[Machine | None, ...]:
    there = {_number(machine): machine for machine in mine}
    return tuple(there.get(row) for row in rows)


def heat(look: Look, height: int) -> list[Line]:
    """Exactly `height` lines."""
    made = grid(look.rows, look.width, height - 3 - FEET)
    lines = _legend(look)
    if made.racked:
        lines.append((_titles(look, made), "calm"))
    inks = theme.letters(look.theme)
    for y in range(len(made.labels)):
        lines.append((_row(look, made, y, inks), "calm"))
    if made.racked and made.size >= 4:
        lines += _feet(made)
    return [*lines, *[BLANK] * height][:height]


def _legend(look: Look) -> list[Line]:
    """What the cells show, the ramp, and how many machines are on each of its steps."""
    entry = FIELDS[look.shown]
    top = words.scale(look, look.shown)
    unit = words.UNITS[entry.unit]
    name: Run = (f"{entry.label} {unit}", "bright")
    left: list[Run] = [(" ", "text"), name]
    if look.width >= WIDE:
        left.append((f"  {entry.help}", "dim"))
    left += [(f"  {look.captions['metric']}", "key"), (" another number", "dim")]
    low = "0" if look.shown not in {"clock_hz", "ceiling_hz"} else amount(look.shown, top / 2)
    wide = 4 if look.width >= WIDE else 2
    ramp: list[Run] = [(f"{low} ", "dim")]
    ramp += [(theme.BOTH * wide, f"heat{step}") for step in range(theme.HEAT)]
    sign = "≥" if entry.unit == "ratio" and top < 1 else ""
    ramp.append((f" {sign}{amount(look.shown, top)} {unit} ", "dim"))
    lines: list[Line] = [(spread(left, ramp, look.width), "calm")]
    counts = [0] * theme.HEAT
    for machine in look.rows:
        if (step := words.level(machine.numbers[look.shown], look.shown, top)) >= 0:
            counts[step] += 1
    if wide == 4:
        tail = " " * len(ramp[-1][0])
        told = "".join(f"{count or '':>{wide}}" for count in counts)
        lines.append((spread([], [("machines ", "faint"), (told, "dim"), (tail, "text")],
                             look.width), "calm"))  # fmt: skip
    return lines


def _titles(look: Look, made: Grid) -> list[Run]:
    x, _ = made.place(look.chosen)
    runs: list[Run] = [(" " * (LABEL + 1), "text")]
    for at, (title, _) in enumerate(made.columns):
        text = foreign(title)[-made.size :]
        runs.append((f"{text:^{made.size}} ", "key" if at == x else "dim"))
    return runs


def _row(look: Look, made: Grid, y: int, inks: Sequence[str]) -> list[Run]:
    _, here = made.place(look.chosen)
    runs: list[Run] = [
        (f"{made.labels[y]:>{LABEL}} ", "key" if y == here and made.racked else "faint")
    ]
    for _, machines in made.columns:
        machine = machines[y] if y < len(machines) else None
        if machine is None:
            runs.append((" " * (made.size + 1), "text"))
        else:
            runs += _cell(look, machine, made.size, inks)
    return runs


def _cell(look: Look, machine: Machine, size: int, inks: Sequence[str]) -> list[Run]:
    """The sign and number of a machine on its step of the ramp; quiet ones are plain."""
    gap: Run = (" ", "text")
    if machine.name == look.chosen:
        gap = (theme.CURSOR[1], "mark")
    sign, style = words.worst_sign(machine)
    if not machine.answers:
        rest = "···" if size >= 6 else ""
        return [(f"{sign:^{size}}" if not rest else f" {sign} {rest}"[:size], style), gap]
    value = machine.numbers[look.shown]
    step = words.level(value, look.shown, words.scale(look, look.shown))
    if step < 0:
        return [(fit(f"{sign if sign != ' ' else theme.MISSING[:size]}", size), "faint"), gap]
    ink = inks[step]
    if size < 4:
        return [(f"{sign:^{size}}", ink), gap] if sign != " " else [(" " * size, ink), gap]
    told = sign != " " and (look.shown != "lost" or value >= TOLD)
    unit = FIELDS[look.shown].unit
    text = f"{words.SCALES[unit] * value:.{int(unit == 'Hz')}f}"
    shown = f" {sign}{text if told else '':>{size - 3}} "[:size]
    return [(fit(shown, size), ink), gap]


def _feet(made: Grid) -> list[Line]:
    """Means of each rack, and the sum of its power."""
    lines: list[Line] = []
    means = [mean([m.numbers for m in column if m is not None and m.answers])
             for _, column in made.columns]  # fmt: skip
    for key, label in (("lost", "lost"), ("busy", "busy")):
        runs: list[Run] = [(f" {label:<{LABEL}}", "dim")]
        for each in means:
            digits = 1 if key == "lost" else 0
            text, style = number(100 * each[key], digits, made.size - 1)
            loud = key == "lost" and each[key] >= TOLD
            runs += [
                (text, "bright" if loud else "faint" if key == "lost" else style),
                ("  ", "text"),
            ]
        lines.append((runs, "calm"))
    runs = [(f" {'kW':<{LABEL}}", "dim")]
    for _, column in made.columns:
        watts = [v for m in column if m is not None and isfinite(v := m.numbers["power_w"])]
        text, _ = number(sum(watts) / 1e3 if watts else float("nan"), 1, made.size - 1)
        runs += [(text, "dim"), ("  ", "text")]
    return [*lines, (runs, "calm")]


TIME_NAME, TIME_WIDE = 16, 120
"""Cells of a name; columns from which the number is told in a sentence."""


def time_key(look: Look) -> str:
    """The number that is shown: one of which the past is kept."""
    return look.shown if look.shown in TRACED else "lost"


def time_heads(look: Look) -> list[Line]:
    entry = FIELDS[time_key(look)]
    name = f"{entry.label} {words.UNITS[entry.unit]}"
    left: list[Run] = [(" ", "text"), (name, "bright"), (f"  {entry.help}  ", "dim"),
                       (look.captions["metric"], "key"), (" another number", "dim")]  # fmt: skip
    ramp: list[Run] = [("0 ", "dim"), *[(theme.BOTH * 2, f"heat{i}") for i in range(theme.HEAT)],
                       (" ", "text")]  # fmt: skip
    if look.width < TIME_WIDE:
        left = left[:2]
    room = look.width - TIME_NAME - 12
    axis = " " * (TIME_NAME + 11) + words.times(look.now, PAST_S, room)
    return [(spread(left, ramp, look.width), "calm"), ([(axis, "faint")], "calm")]


def time_row(look: Look, machine: Machine) -> Line:
    chosen = machine.name == look.chosen
    shown = time_key(look)
    room = look.width - TIME_NAME - 12
    name = fit(foreign(machine.name), TIME_NAME)
    runs: list[Run] = [(theme.CHOSEN if chosen else " ", "key"), words.worst_sign(machine),
                       (" ", "text"), (name, "bright" if chosen else "text"),
                       cell(machine, shown, 6), (" ", "text"), (" ", "text")]  # fmt: skip
    top = words.scale(look, shown)
    for value in machine.past.series(shown, room, look.now):
        if not isfinite(value):
            runs.append((" ", "text"))
        else:
            runs += heat_ramp.whole(max(0, words.level(value, shown, top)), 1, look.ascii)
    return runs, "chosen" if chosen else "calm"
