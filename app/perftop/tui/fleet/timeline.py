"""The fleet over time: a line a machine with one number over the last minutes, the newest at the
right edge."""

from __future__ import annotations

from math import isfinite

from perftop.draw import heat_ramp, theme
from perftop.draw.strips import Line, Run, fit, foreign, spread
from perftop.session.fleet.machine import PAST_S, TRACED, Machine
from perftop.session.fleet.numbers import FIELDS
from perftop.tui.fleet import look as words
from perftop.tui.fleet.look import Look, cell

NAME, WIDE = 16, 120
"""Cells of a name; columns from which the number is told in a sentence."""


def key(look: Look) -> str:
    """The number that is shown: one of which the past is kept."""
    return look.shown if look.shown in TRACED else "lost"


def heads(look: Look) -> list[Line]:
    entry = FIELDS[key(look)]
    name = f"{entry.label} {words.UNITS[entry.unit]}"
    left: list[Run] = [(" ", "text"), (name, "bright"), (f"  {entry.help}  ", "dim"),
                       (look.captions["metric"], "key"), (" another number", "dim")]  # fmt: skip
    ramp: list[Run] = [("0 ", "dim"), *[(theme.BOTH * 2, f"heat{i}") for i in range(theme.HEAT)],
                       (" ", "text")]  # fmt: skip
    if look.width < WIDE:
        left = left[:2]
    room = look.width - NAME - 12
    axis = " " * (NAME + 11) + words.times(look.now, PAST_S, room)
    return [(spread(left, ramp, look.width), "calm"), ([(axis, "faint")], "calm")]


def row(look: Look, machine: Machine) -> Line:
    chosen = machine.name == look.chosen
    shown = key(look)
    room = look.width - NAME - 12
    name = fit(foreign(machine.name), NAME)
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
