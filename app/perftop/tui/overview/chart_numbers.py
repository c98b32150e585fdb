"""Names and numbers beside and above the charts of the overview. Pure: values in, runs of an exact
width out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan, nan

from perfprobe.frozen import frozen
from perftop.base.format import GHZ, ClockUnit
from perftop.draw import theme
from perftop.draw.strips import Run, at_rest, doubted, fit, merged, width

BLOCK = 17
"""Cells of names and numbers before a chart."""
WIDE_BLOCK = 31
"""The same where charts are two lines low."""
AXIS = 7
"""Cells of a scale before a chart, with its margin."""
LOW = 0.05
"""Shares below this are dim."""
BAR = "▌"
"""Marks the selected chart."""


@frozen
class Numbers:
    """What is told of a CPU or a core in one interval; NaN where unknown."""

    name: str
    cpus: str
    """Its CPUs, for a core."""
    shares: Mapping[str, float]
    """Shares of its time by name; which there are depends on the machine."""
    lost: frozenset[str] = frozenset()
    """Names of numbers that an episode makes worse now."""
    unsure: frozenset[str] = frozenset()
    """Names of numbers of which a counter is doubted."""
    sign: Run = (" ", "text")
    """Sign of the worst episode that runs on it."""
    tasks: Sequence[str] = ()
    """Names of its tasks, the busiest first."""
    hz: float = nan
    ceiling_hz: float = nan
    dropped: Run = (" ", "text")
    """Mark behind the clock."""
    ipc: float = nan
    loser: Run = (" ", "text")
    """Mark behind the IPC."""
    online: bool = True
    off: frozenset[str] = frozenset()
    """Names of numbers whose CPU is offline."""
    asleep: bool = False
    """Whether it does too little for its clock and IPC to mean something."""
    chosen: bool = False
    clock: ClockUnit = GHZ


_LEGEND: Mapping[str, Run] = {
    "user": (theme.USER, "user-9"), "kernel": (theme.KERNEL, "kernel-9"),
    "steal": (theme.STEAL, "over"), "busy": (theme.USER, "user-9"),
}  # fmt: skip
"""Signs of the areas of a chart."""


def share(value: float, size: int, *, lost: bool = False, unsure: bool = False) -> Run:
    """A share in per cent; a small one is dim, a lost one red."""
    if isnan(value):
        return f"{'–':>{size}}", "faint"
    key = "alarm" if lost else "dim" if value < LOW else "text"
    told = f"{100 * value:>{size}.1f}", key
    return doubted(told) if unsure else told


def title(of: Numbers, size: int, *, colour: bool) -> list[Run]:
    """The line above a chart: sign, name and numbers, a thin rule, and its tasks at the right. At
    most `size` cells."""
    left: list[Run] = [of.sign, (f"  {of.name:<8}", "bright")]
    if not of.online:
        return merged([*left, ("off", "dim")], size)
    left += [_bold(of), (" %", "dim")]
    pieces = [_piece(of, name, colour=colour) for name in of.shares if name != "busy"]
    least = 2 + width(_tasks(of.tasks[:1], size // 3))
    room = size - width(left) - sum(map(width, pieces))
    while pieces and room < least:
        room += width(pieces.pop())
    tasks = _tasks(of.tasks, room - 8) or _tasks(of.tasks[:1], room - 2)
    left += [run for piece in pieces for run in piece]
    rule = room - width(tasks) - 1
    if rule < 6:
        return merged([*left, (" " * max(0, rule), "text"), *tasks], size)
    line: list[Run] = [("  ", "text"), (theme.RULE * (rule - 3 if tasks else rule - 2), "rule")]
    return [*left, *line, (" ", "text"), *tasks]


def _bold(of: Numbers) -> Run:
    busy = of.shares.get("busy", nan)
    return ("   –", "faint") if isnan(busy) else (f"{100 * busy:>5.1f}", "bright")


def _piece(of: Numbers, name: str, *, colour: bool) -> list[Run]:
    value = share(of.shares[name], 6, lost=name in of.lost, unsure=name in of.unsure)
    if name not in _LEGEND:
        return [(f"  {name}", "dim"), value]
    sign, key = _LEGEND[name]
    if name in of.lost:
        key = "alarm"
    elif colour and name != "steal":
        sign = theme.USER
    return [("  ", "text"), (sign, key), (f" {name}", "dim"), value]


def _tasks(names: Sequence[str], room: int) -> list[Run]:
    """As many tasks as fit, the first in the colour of text."""
    found: list[Run] = []
    for i, name in enumerate(names[:3]):
        told = f"  {name}" if found else name
        room -= len(told)
        if room < 0:
            break
        found.append((told, "dim" if i else "text"))
    return found


def block(of: Numbers, rows: int) -> list[list[Run]]:
    """The lines before a chart, each BLOCK cells wide, or WIDE_BLOCK if there are only two."""
    if rows == 2:
        return _low_block(of)
    names = [*of.shares]
    first = [[*_name(of), (f"  {of.cpus}", "dim")]] if of.cpus else [_name(of)]
    if of.cpus and rows >= len(names) + 2:
        first = [_name(of), [(of.cpus, "dim")]]
    lines = [*first, *(_number(of, name) for name in names[: rows - len(first)])]
    if not of.online:
        lines = [_name(of), [("off", "dim")]]
    return _framed(of, lines, rows, BLOCK)


def _low_block(of: Numbers) -> list[list[Run]]:
    """Two lines: the name with the first number, then the two that follow."""
    names = [*of.shares]
    half = (WIDE_BLOCK - 5) // 2
    left = [*_name(of), *([(f"  {of.cpus}", "dim")] if of.cpus else [])]
    gap: Run = ("  ", "text")
    upper, lower = merged(left, half), list[Run]()
    for name in names[:1]:
        upper = [*upper, gap, *_number(of, name, half - 2)]
    for name in names[1:3]:
        lower += [gap, *_number(of, name, half - 2)] if lower else _number(of, name, half)
    if not of.online:
        upper, lower = _name(of), [("off", "dim")]
    return _framed(of, [upper, lower], 2, WIDE_BLOCK)


def _framed(of: Numbers, lines: list[list[Run]], rows: int, size: int) -> list[list[Run]]:
    """Lines with the margin before them: the bar of the selected one, and the sign."""
    found = []
    for at in range(rows):
        line = merged([(" ", "text"), *(lines[at] if at < len(lines) else [])], size - 3)
        sign = of.sign if at == 0 else (" ", "text")
        if not of.chosen:
            found.append([(" ", "text"), sign, *line, (" ", "text")])
            continue
        ground = [(text, f"{key}/chosen-back") for text, key in (sign, *line)]
        found.append([(BAR, "key"), *ground, (" ", "text")])
    return found


def _name(of: Numbers) -> list[Run]:
    what, _, number = of.name.partition(" ")
    return [(f"{what} ", "dim"), (number, "bright")]


def _number(of: Numbers, name: str, size: int = BLOCK - 5) -> list[Run]:
    room, key = size - len(name), name if name in {"both", "lp0", "lp1"} else "dim"
    if name in of.off:
        return [(name, key), (f"{'off':>{room}}", "dim")]
    value = share(of.shares[name], room, lost=name in of.lost, unsure=name in of.unsure)
    return [(name, key), value]


def scale(rows: int) -> list[str]:
    """Marks of a scale of shares before a chart."""
    marks = [""] * rows
    marks[0], marks[-1] = "100", "0"
    if rows >= 6:
        marks[rows // 2] = "50"
    return [f"{mark:>{AXIS - 2}}" for mark in marks]


def beside_clock(of: Numbers, low_hz: float, rows: int, *, ipc: bool) -> list[list[Run]]:
    """The lines behind the chart of the clock: its ceiling, the clock, the scale's floor; and IPC
    if that has no chart of its own. 9 cells wide."""
    unit = of.clock
    key = "dim" if of.asleep else "bright"
    told = _told(of.hz * unit.per_hz, unit.digits, key, lost="clock" in of.lost)
    now: list[Run] = [told, (" ", "text"), of.dropped]
    rate: list[Run] = [_told(of.ipc, 2, key, lost="IPC" in of.lost), (" IPC", "dim")]
    if rows == 2:
        return [_sized(now), _sized(rate if ipc else [])]
    lines: list[list[Run]] = [[] for _ in range(rows)]
    lines[0] = [_told(of.ceiling_hz * unit.per_hz, unit.digits, "dim")]
    lines[-1] = [_told(low_hz * unit.per_hz, unit.digits, "faint")]
    lines[max(1, rows // 2 - 1)] = now
    if ipc:
        lines[max(1, rows // 2 - 1) + 1] = rate
    return [_sized(line) for line in lines]


def beside_rate(of: Numbers, rows: int) -> list[list[Run]]:
    """The lines behind the chart of IPC, a cell narrower: they end the line."""
    lines: list[list[Run]] = [[] for _ in range(rows)]
    lines[-1] = [("   0", "faint")] if rows > 2 else []
    lines[max(0, rows // 2 - 1)] = [
        _told(of.ipc, 2, "dim" if of.asleep else "bright", lost="IPC" in of.lost),
        (" ", "text"), of.loser,
    ]  # fmt: skip
    return [merged(line, RIGHT - 1) for line in lines]


RIGHT = 9
"""Cells behind a chart."""


def _told(value: float, digits: int, key: str, *, lost: bool = False) -> Run:
    """A number left of the mark behind it; empty if unknown."""
    if isnan(value) and key == "faint":
        return "", "text"
    if isnan(value):
        return at_rest(5) if key == "dim" else (f"{'–':>5}", "faint")
    return f"{value:>5.{digits}f}", "alarm" if lost else key


def _sized(line: list[Run]) -> list[Run]:
    return merged(line, RIGHT)


def over_rate(of: Numbers, size: int) -> list[Run]:
    """Tasks above the chart of IPC, the busiest first."""
    return merged(_tasks([fit(name, min(len(name), size)) for name in of.tasks], size), size)
