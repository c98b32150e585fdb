"""The right side of the fleet's screen: how many machines are below their ceiling over time, what
happened on all of them, and more of the selected one."""

from __future__ import annotations

from math import isfinite

from perftop.base.format import time_of_day
from perftop.draw import bars, theme
from perftop.draw.strips import BLANK, Line, Run, fit, foreign, spread
from perftop.session.fleet.fleet import Happening
from perftop.session.fleet.machine import Machine
from perftop.tui.fleet import look as words
from perftop.tui.fleet.look import Look

WIDTH = 33
SPAN_S = 1800.0
"""Time that the chart of machines below their ceiling covers."""
MANY = 0.05
"""Share of all machines from which on they are red."""
CHART = 4
"""Lines of that chart."""


def side(look: Look, height: int, width: int) -> list[Line]:
    """Exactly `height` lines."""
    detail = _selected(look, width)
    lines = below(look, width, CHART) if height >= 24 else []
    room = height - len(lines) - len(detail) - 3
    lines += [*([BLANK] if lines else []), *happened(look, max(3, room), width, brief=True)]
    lines = [*lines[: max(0, height - len(detail) - 1)], BLANK, *detail]
    return [*lines, *[BLANK] * height][:height]


def below(look: Look, width: int, tall: int) -> list[Line]:
    """The number of machines below their ceiling, as columns over the last half hour."""
    cells = width - 5
    counts = look.fleet.below(cells, look.now, SPAN_S)
    top, every = max(5.0, *counts), len(look.fleet.machines)
    now = int(counts[-1])
    title = spread([("machines below ceiling", "dim")],
                   [("now ", "dim"), (str(now), "alarm" if now else "text")], width)  # fmt: skip
    lines: list[Line] = [(title, "calm")]
    for y in range(tall):
        label = f"{top:.0f}" if not y else "0" if y == tall - 1 else ""
        runs: list[Run] = [(f"{label:>4} ", "faint")]
        for count in counts:
            eighths = round(8 * tall * count / top) - 8 * (tall - 1 - y)
            many = count >= max(3, MANY * every)
            style = ("loss-3" if eighths > 8 else "alarm") if many else "kernel-5"
            runs.append((theme.LEVELS[max(0, min(8, eighths))], style))
        lines.append((runs, "calm"))
    lines.append(([("     ", "text"), (theme.RULE * cells, "rule")], "calm"))
    times = words.times(look.now, SPAN_S, cells)
    return [*lines, ([(f"     {times}", "faint")], "calm")]


def happened(look: Look, most: int, width: int, *, brief: bool) -> list[Line]:
    """Episodes of all machines, the newest first."""
    title = spread([("episodes of all machines", "dim")], [("length", "dim")], width)
    lines: list[Line] = [(title, "calm")]
    found = look.fleet.happened(most)
    if not found:
        lines.append(([("none so far", "faint")], "calm"))
    return [*lines, *((_event(look, each, width, brief=brief), "calm") for each in found)]


def _event(look: Look, each: Happening, width: int, *, brief: bool) -> list[Run]:
    runs_now = each.end is None
    style = "text" if runs_now else "faint"
    length = words.span((look.now if each.end is None else each.end) - each.start)
    name, cause = words.where(each, len(look.fleet.machines)), words.told(each.kind, each.cause)
    room = width - 11 - len(length) - 1
    if brief:
        wide = min(max(len(name), 7), room - 4)
        what = f"{fit(name, wide)} {words.short(each.kind, each.cause)}"
    else:
        wide = min(24, max(10, room // 4))
        deep = words.deepest(each)
        names = "" if len(each.machines) == 1 else foreign(" · " + ", ".join(each.machines[:8]))
        what = f"{fit(name, wide)} {cause}{', ' * bool(deep)}{deep}{names}"
    left: list[Run] = [
        (f"{time_of_day(each.start)} ", style),
        (words.sign(each.kind), "alarm" if runs_now else "dim"),
        (f" {fit(what, room)}", style),
    ]  # fmt: skip
    return spread(left, [(length, style)], width)


def _selected(look: Look, width: int) -> list[Line]:
    """Six lines or more on the selected machine; none if there is none."""
    machine = look.selected
    if machine is None:
        return []
    name = fit(foreign(machine.name), width - 10).rstrip()
    lines: list[Line] = [(spread([(name, "bright")], [("selected", "dim")], width), "calm")]
    model = foreign(machine.model or "model unknown")
    cores = f"{machine.cores} cores" if machine.cores else ""
    model = f"{fit(model, width - len(cores) - 2).rstrip()}, {cores}" if cores else model
    lines.append(([(fit(model, width), "dim")], "calm"))
    lines += [([*each], "calm") for each in _states(machine, width)]
    events = [event for event in machine.running if event.wrong]
    for event in events[:2]:
        words_ = words.told(*event.group)
        started = words.since(event.start, look.now)
        runs: list[Run] = [(f"{words.sign(event.kind)} ", "alarm"), (words_, "text"),
                           (f" since {started}", "dim")]  # fmt: skip
        lines.append((runs, "calm"))
    facts = [("runs", machine.tasks), ("probe", _probe(machine))]
    lines += [([(f"{key:<6}", "dim"), (fit(foreign(text), width - 6), "text")], "calm")
              for key, text in facts if text]  # fmt: skip
    if not machine.answers:
        lines.append(([(fit(words.why(machine, look.now), width), "alarm")], "calm"))
    return lines


def _states(machine: Machine, width: int) -> list[list[Run]]:
    numbers = machine.numbers
    shares = [numbers[key] for key in ("neither", "lp0", "lp1", "both")]
    if not all(isfinite(share) for share in shares):
        return []
    runs: list[Run] = []
    for key in ("both", "lp0", "lp1", "neither"):
        runs += [(f"{key} ", "dim"), (f"{100 * numbers[key]:.0f} ", "text")]
    return [bars.smt(shares, width), runs]


def _probe(machine: Machine) -> str:
    parts = [f"perfprobe {machine.version}"] if machine.version else []
    if isfinite(machine.probe_share):
        parts.append(f"{100 * machine.probe_share:.2f} % of a CPU")
    return ", ".join(parts)
