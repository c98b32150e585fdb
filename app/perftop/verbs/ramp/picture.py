"""Draws a ramp as an SVG: each run is a thin line, the middle one a thick line. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

import numpy as np

from perftop.base.format import rounded
from perftop.draw import charts
from perftop.verbs.ramp.climb import Climb
from perftop.verbs.ramp.runs import Ramp
from perftop.verbs.ramp.trace import Trace

WIDTH, HEIGHT = 960, 420
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 50, 60
MOST_POINTS = 600
"""About the most points of a line; more cannot be told apart."""
_INK, _GRID, _LINE, _THIN, _GAP = "#24292f", "#d0d7de", "#1a7f37", "#a8d5b5", "#a85400"


class Scale:
    """Maps seconds (logarithmically) and clocks to coordinates in the picture."""

    def __init__(self, first_s: float, last_s: float, low: float, high: float) -> None:
        self.first_s, self.last_s, self.low, self.high = first_s, last_s, low, high

    def x(self, at_s: float) -> float:
        passed = math.log(max(at_s, self.first_s) / self.first_s)
        share = passed / math.log(self.last_s / self.first_s)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, hz: float) -> float:
        share = (self.high - hz) / (self.high - self.low)
        return TOP + min(1.0, max(0.0, share)) * (HEIGHT - TOP - BOTTOM)


def draw(
    heading: str, answer: str, clock: str, ramp: Ramp, runs: Sequence[Sequence[Trace]], shown: int
) -> str:
    """The text of the SVG. `runs`: the phases of each run; `shown`: index of the thick one."""
    hz = np.concatenate([part.smooth for parts in runs for part in parts])
    ends = [float(part.end_s[i]) for parts in runs for part, i in ((parts[0], 0), (parts[-1], -1))]
    low, high = charts.span(hz, 1e8, None)
    scale = Scale(min(ends) / 2, max(ends), low, high)
    body = [*_grid(scale), *_marks(scale, ramp, ramp.climbs[shown])]
    order = [i for i in range(len(runs)) if i != shown] + [shown]
    body += [_line(scale, runs[i], thick=i == shown) for i in order]
    body += [
        _text(LEFT, 22, heading, 15), _text(LEFT, 40, clock, 11),
        _text(LEFT, HEIGHT - 12, answer, 12),
    ]  # fmt: skip
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {box}>'
    ground = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    return "\n".join([head, ground, *body, "</svg>", ""])


def _text(x: float, y: float, text: str, size: int, anchor: str = "start") -> str:
    look = f'font-size="{size}" fill="{_INK}" text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{escape(text)}</text>'


def _rule(x0: float, y0: float, x1: float, y1: float, colour: str, dashed: str = "") -> str:
    dash = f' stroke-dasharray="{dashed}"' if dashed else ""
    ends = f'x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}"'
    return f'<line {ends} stroke="{colour}"{dash}/>'


def _grid(scale: Scale) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    found = []
    for power in range(-6, 3):
        at = 10.0**power
        if scale.first_s <= at <= scale.last_s:
            x, name = scale.x(at), rounded(at).replace(".0", "")
            found += [_rule(x, TOP, x, bottom, _GRID),
                      _text(x, bottom + 16, name, 11, "middle")]  # fmt: skip
    apart = charts.step(scale.high - scale.low, 6)
    for i in range(math.ceil(scale.low / apart - 1e-9), math.floor(scale.high / apart + 1e-9) + 1):
        y = scale.y(i * apart)
        found += [_rule(LEFT, y, right, y, _GRID),
                  _text(LEFT - 6, y + 4, f"{i * apart / 1e9:.2f}", 11, "end")]  # fmt: skip
    return found


def _marks(scale: Scale, ramp: Ramp, climb: Climb) -> list[str]:
    """The elements for the steady clock, the moments and the gaps."""
    bottom = HEIGHT - BOTTOM
    found = []
    if ramp.steady_hz is not None:
        y = scale.y(ramp.steady_hz)
        found.append(_rule(LEFT, y, WIDTH - RIGHT, y, _LINE, "2 4"))
    for line, (name, at_s) in enumerate(climb.moments):
        x = scale.x(at_s)
        found.append(_rule(x, TOP, x, bottom, _INK, "4 4"))
        found.append(_text(x + 4, bottom - 34 + 14 * line, name, 11))
    for gap in climb.gaps:
        x = scale.x(gap.at_s)
        found.append(_rule(x, bottom + 22, x, bottom + 30, _GAP))
    if climb.gaps:
        found.append(_text(LEFT - 6, bottom + 30, "gaps", 11, "end"))
    return found


def _line(scale: Scale, parts: Sequence[Trace], *, thick: bool) -> str:
    """The line of one run, through the middle of each chunk. Steps would be exact, but look the
    same at this size."""
    at = np.concatenate([(part.start_s + part.end_s) / 2 for part in parts])
    hz = np.concatenate([part.smooth for part in parts])
    apart = max(1, len(at) // MOST_POINTS)
    points = " ".join(
        f"{scale.x(t):.1f},{scale.y(v):.1f}"
        for t, v in zip(at[::apart].tolist(), hz[::apart].tolist(), strict=True)
    )
    colour, width = (_LINE, 2) if thick else (_THIN, 1)
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}"/>'
