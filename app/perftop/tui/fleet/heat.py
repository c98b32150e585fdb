"""One number of all machines: as a heat map with a cell for each machine, or over time with a line
for each machine.

Where the names of machines contain a rack, each rack is a column of the heat map; otherwise the
machines form one sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isfinite

from perftop.base.format import GHZ, MISSING
from perftop.draw import heat_ramp, theme
from perftop.draw.columns import Run, fit, number
from perftop.draw.strips import BLANK, Line, foreign, spread
from perftop.session.fleet.fleet import natural, racks
from perftop.session.fleet.machine import FIELDS, PAST_S, TRACED, Machine, mean
from perftop.tui.fleet import words
from perftop.tui.fleet.words import MIN_LOSS, Look, amount, calm, cell, unit

SIZES = (6, 4, 3, 2, 1)
"""Possible widths of a machine's cell; the widest that fits is used. Cells from 4 on show
numbers."""
LABEL = 6
"""Width of the labels at the left, in cells."""
WIDE = 150
"""Minimum width of a screen that has a sentence about the displayed number, in cells."""
FEET = 3
"""Number of lines below racks: their means, and their power."""
TIME_NAME, TIME_WIDE = 16, 120
"""Width of a name in the time view, and the minimum width of a time view that has a sentence about
the displayed number, both in cells."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The positions of machines in the heat map."""

    columns: tuple[tuple[str, tuple[Machine | None, ...]], ...]
    """Title and machines of each column, from the top; None is a gap."""
    labels: tuple[str, ...]
    """A label for each row."""
    size: int
    racked: bool

    def place(self, name: str) -> tuple[int, int]:
        """Returns the column and the row of a machine; 0, 0 if the grid does not contain it."""
        for x, (_, machines) in enumerate(self.columns):
            for y, machine in enumerate(machines):
                if machine is not None and machine.name == name:
                    return x, y
        return 0, 0

    def neighbour(self, name: str, dx: int, dy: int) -> str:
        """Returns the name of the nearest machine in a direction, skipping gaps; at an edge, the
        given name."""
        x, y = self.place(name)
        while True:
            x, y = x + dx, y + dy
            if not (0 <= x < len(self.columns) and 0 <= y < len(self.labels)):
                return name
            column = self.columns[x][1]
            if y < len(column) and (found := column[y]) is not None:
                return found.name


def grid(machines: Sequence[Machine], width: int, height: int) -> Grid:
    """Returns the grid with the widest cells that fit."""
    room = width - LABEL - 1
    by_rack = racks(machines)
    numbers = {_number(machine) for each in by_rack.values() for machine in each}
    rows = sorted(numbers, key=lambda number: (natural(number), number))  # 2 next to 02
    fits = len(by_rack) > 1 and len(rows) + FEET <= height and len(machines) > 2 * len(by_rack)
    for size in SIZES[:3] if fits else ():
        if len(by_rack) * (size + 1) <= room:
            columns = []
            for rack, each in by_rack.items():
                at = {_number(machine): machine for machine in each}
                columns.append((rack, tuple(map(at.get, rows))))
            return Grid(tuple(columns), tuple(rows), size, racked=True)
    ordered = sorted(machines, key=lambda m: natural(m.name))
    for size in SIZES:
        across = max(1, room // (size + 1))
        tall = max(1, ceil(len(ordered) / across))
        if tall <= height or size == SIZES[-1]:
            break
    tall = min(max(tall, min(height, 8)), max(1, height))
    pieces = [ordered[at : at + tall] for at in range(0, len(ordered), tall)][:across]
    return Grid(tuple(("", tuple(each)) for each in pieces), ("",) * tall, size, racked=False)


def _number(machine: Machine) -> str:
    """Returns the number at the end of a machine's host name, as text; '' if it has none."""
    stem = machine.name.partition(".")[0]
    return stem[len(stem.rstrip("0123456789")) :]


def heat(look: Look, height: int) -> list[Line]:
    """Returns the heat map, in exactly `height` lines."""
    made = grid(look.rows, look.width, height - 3 - FEET)
    lines = _legend(look)
    x, y = made.place(look.chosen)
    if made.racked:
        runs: list[Run] = [(" " * (LABEL + 1), "text")]
        for at, (title, _) in enumerate(made.columns):
            text = foreign(title)[-made.size :]
            runs.append((f"{text:^{made.size}} ", "key" if at == x else "dim"))
        lines.append(calm(*runs))
    inks = theme.letters(look.theme)
    for at, label in enumerate(made.labels):
        runs = [(f"{label:>{LABEL}} ", "key" if at == y and made.racked else "faint")]
        for _, machines in made.columns:
            machine = machines[at] if at < len(machines) else None
            if machine is None:
                runs.append((" " * (made.size + 1), "text"))
            else:
                runs += _cell(look, machine, made.size, inks)
        lines.append(calm(*runs))
    if made.racked and made.size >= 4:
        lines += _feet(made)
    return [*lines, *[BLANK] * height][:height]


def _legend(look: Look) -> list[Line]:
    """Returns the legend: the displayed number, the heat ramp, and the number of machines on each
    step of the ramp."""
    key, wide = look.shown, look.width >= WIDE
    top, name = words.ramp_top(look, key), unit(key)
    left: list[Run] = [(" ", "text"), (f"{FIELDS[key].label} {name}", "bright")]
    left += [(f"  {FIELDS[key].help}", "dim")] if wide else []
    left += [(f"  {look.captions['metric']}", "key"), (" another number", "dim")]
    low = amount(key, top / 2) if key in words.CLOCKS else "0"
    high = f" {'≥' if name == '%' and top < 1 else ''}{amount(key, top)} {name} "
    step = 4 if wide else 2
    ramp: list[Run] = [(f"{low} ", "dim")]
    ramp += [(theme.BOTH * step, f"heat{at}") for at in range(theme.HEAT)]
    lines = [calm(*spread(left, [*ramp, (high, "dim")], look.width))]
    if wide:
        steps = [words.level(machine.numbers[key], key, top) for machine in look.rows]
        counts = "".join(f"{steps.count(at) or '':>{step}}" for at in range(theme.HEAT))
        machines: list[Run] = [("machines ", "faint"), (counts, "dim"), (" " * len(high), "text")]
        lines.append(calm(*spread([], machines, look.width)))
    return lines


def _cell(look: Look, machine: Machine, size: int, inks: Sequence[str]) -> list[Run]:
    """Returns the cell of a machine: the sign of its worst episode and its number, in the colour of
    its step of the ramp. Only machines with a sign show a number; small losses are not shown."""
    gap: Run = (theme.CURSOR[1], "mark") if machine.name == look.chosen else (" ", "text")
    sign, style = words.worst_sign(machine)
    if not machine.answers:
        return [(f" {sign} ···"[:size] if size >= 6 else f"{sign:^{size}}", style), gap]
    key = look.shown
    value = machine.numbers[key]
    step = words.level(value, key, words.ramp_top(look, key))
    if step < 0:
        return [(fit(sign if sign != " " else MISSING[:size], size), "faint"), gap]
    if size < 4:
        return [(f"{sign:^{size}}", inks[step]), gap]
    text = ""
    if sign != " " and (key != "lost" or value >= MIN_LOSS):
        scale, _ = FIELDS[key].scale(GHZ)
        text = f"{scale * value:.{int(key in words.CLOCKS)}f}"
    return [(fit(f" {sign}{text:>{size - 3}} "[:size], size), inks[step]), gap]


def _feet(made: Grid) -> list[Line]:
    """Returns the lines below the racks: means of each rack, and its total power."""
    racks_ = [[m for m in column if m is not None] for _, column in made.columns]
    means = [mean([m.numbers for m in rack if m.answers]) for rack in racks_]
    lines: list[Line] = []
    for key, digits in (("lost", 1), ("busy", 0)):
        runs: list[Run] = [(f" {key:<{LABEL}}", "dim")]
        for each in means:
            text, style = number(100 * each[key], digits, made.size - 1)
            if key == "lost":
                style = "bright" if each[key] >= MIN_LOSS else "faint"
            runs += [(text, style), ("  ", "text")]
        lines.append(calm(*runs))
    runs = [(f" {'kW':<{LABEL}}", "dim")]
    for rack in racks_:
        watts = [v for m in rack if isfinite(v := m.numbers["power_w"])]
        text, _ = number(sum(watts) / 1e3 if watts else float("nan"), 1, made.size - 1)
        runs += [(text, "dim"), ("  ", "text")]
    return [*lines, calm(*runs)]


# --- over time


def _time_key(look: Look) -> str:
    """Returns the key of the number to show over time: the chosen one if its history is kept, else
    "lost"."""
    return look.shown if look.shown in TRACED else "lost"


def time_heads(look: Look) -> list[Line]:
    key = _time_key(look)
    left: list[Run] = [(" ", "text"), (f"{FIELDS[key].label} {unit(key)}", "bright")]
    if look.width >= TIME_WIDE:
        left += [(f"  {FIELDS[key].help}  ", "dim"), (look.captions["metric"], "key"),
                 (" another number", "dim")]  # fmt: skip
    ramp: list[Run] = [("0 ", "dim"), *[(theme.BOTH * 2, f"heat{i}") for i in range(theme.HEAT)],
                       (" ", "text")]  # fmt: skip
    cells, start = look.width - TIME_NAME - 12, TIME_NAME + 11
    _, times = words.axis_lines(look.now, PAST_S, cells, left=start)
    return [calm(*spread(left, ramp, look.width)), times]


def time_row(look: Look, machine: Machine) -> Line:
    """Returns the line of a machine: its number over the last minutes, the newest at the right."""
    chosen, key = machine.name == look.chosen, _time_key(look)
    name = fit(foreign(machine.name), TIME_NAME)
    runs: list[Run] = [(theme.CHOSEN if chosen else " ", "key"), words.worst_sign(machine),
                       (" ", "text"), (name, "bright" if chosen else "text"),
                       cell(machine, key, 6), ("  ", "text")]  # fmt: skip
    top = words.ramp_top(look, key)
    for value in machine.past.series(key, look.width - TIME_NAME - 12, look.now):
        if isfinite(value):
            runs += heat_ramp.whole(max(0, words.level(value, key, top)), 1, look.ascii)
        else:
            runs.append((" ", "text"))
    return runs, "chosen" if chosen else "calm"
