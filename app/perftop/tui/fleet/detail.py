"""The selected machine of a fleet, below the heat map: its numbers in a line, and its clock over
time."""

from __future__ import annotations

from math import isfinite, nan

import numpy as np

from perftop.draw import braille, theme
from perftop.draw.strips import BLANK, Line, Run, fit, foreign, shed
from perftop.session.fleet.machine import PAST_S, Machine
from perftop.tui.fleet import look as words
from perftop.tui.fleet.look import TOLD, Look, amount

_SHOWN = (("lost", "lost"), ("busy", "busy"), ("clock_hz", ""), ("below", "below"),
          ("both", "both"), ("involuntary", "inv"), ("steal", "steal"),
          ("power_w", ""))  # fmt: skip


def numbers(look: Look, machine: Machine) -> Line:
    pieces: list[tuple[int, list[Run]]] = [(0, [(f" {foreign(machine.name)}", "bright")])]
    if not machine.answers:
        why = fit(words.why(machine, look.now), look.width - len(machine.name) - 6).rstrip()
        return [*pieces[0][1], ("  ", "text"), (why, "alarm")], "chosen"
    for rank, (key, name) in enumerate(_SHOWN, 1):
        value = machine.numbers[key]
        if not isfinite(value):
            continue
        loud = key == "lost" and value >= TOLD
        runs: list[Run] = [(f"{name} " if name else "", "dim"),
                           (amount(key, value), "alarm" if loud else "text"),
                           (words.behind(key, machine.numbers), "dim")]  # fmt: skip
        if key == "below" and machine.cause[0]:
            runs.append((f": {words.told(*machine.cause)}", "dim"))
        pieces.append((rank, runs))
    age: list[Run] = [("age ", "dim"), (words.span(look.now - machine.heard), "text")]
    return shed([*pieces, (2, age)], look.width - 1, 2), "chosen"


def chart(look: Look, machine: Machine, width: int, height: int) -> list[Line]:
    """The clock of a machine under its ceiling over time; without a clock, what it lost."""
    cells = width - 6
    clocks = machine.past.series("clock_hz", 2 * cells, look.now)
    has_clock = any(map(isfinite, clocks))
    ceilings = machine.past.series("ceiling_hz", cells, look.now) if has_clock else [nan] * cells
    key = "clock_hz" if has_clock else "lost"
    values = np.array(clocks if has_clock else machine.past.series(key, 2 * cells, look.now))
    tall = max(1, height - 3)
    known = values[np.isfinite(values)]
    if not len(known):
        return [([(" no past yet", "faint")], "calm"), *[BLANK] * (height - 1)]
    high = max([hz for hz in ceilings if isfinite(hz)] + [float(known.max())])
    low = min(float(known.min()) * 0.98, high * 0.9) if has_clock else 0.0
    high = high if high > low else low + 1.0
    name = "clock, and the ceiling that turbo allows" if has_clock else "lost"
    unit = "GHz" if has_clock else "%"
    title = f" {unit:<5}{name} · {foreign(machine.name)}"
    lines: list[Line] = [([(fit(title, width), "dim")], "calm")]
    dots = braille.line(values, low, high, braille.TALL * tall, thick=2)
    codes = braille.codes(dots)
    lost = _below(values, ceilings) if has_clock else [False] * cells
    for y in range(tall):
        edge = high if not y else low if y == tall - 1 else nan
        label = amount(key, edge) if isfinite(edge) else ""
        runs: list[Run] = [(f"{label:>5} ", "faint")]
        for x, code in enumerate(codes[y].tolist()):
            sign = chr(code)
            if sign == " " and not y and isfinite(ceilings[x]):
                runs.append((theme.LIMIT, "dim"))
            else:
                runs.append((sign, "alarm" if lost[x] else "clock"))
        lines.append((runs, "calm"))
    axis = " " * 6 + words.times(look.now, PAST_S, cells)
    rule: Line = ([("      ", "text"), (theme.RULE * cells, "rule")], "calm")
    return [*lines, rule, ([(axis, "faint")], "calm")][:height]


def _below(values: object, ceilings: list[float]) -> list[bool]:
    """The cells in which the clock is clearly below its ceiling."""
    pairs = np.asarray(values, float).reshape(-1, 2)
    with np.errstate(invalid="ignore"):
        low = np.fmin(pairs[:, 0], pairs[:, 1])
        found: list[bool] = (low < 0.95 * np.array(ceilings)).tolist()
    return found
