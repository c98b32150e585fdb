"""Draws a ramp in the terminal: the clock over the time since the load began, on a log scale."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from perftop.base.arrays import Floats
from perftop.base.text import in_ascii, painted
from perftop.base.times import rounded
from perftop.draw import charts
from perftop.draw.charts import rows_of
from perftop.verbs.ramp.climb import Climb
from perftop.verbs.ramp.runs import Ramp
from perftop.verbs.ramp.trace import Trace

LABELS = 6
"""Cells of the labels at the left."""
STEP_HZ = 1e8
"""Step to which the ends of the scale are rounded."""
_COLOURS = {"clock": "32", "dim": "2", "faint": "2", "warn": "33"}
"""SGR codes by style, from the terminal's own palette; other styles have no colour."""


def columns(parts: Sequence[Trace], width: int) -> tuple[Floats, Floats]:
    """The moment at the left end of each column, in seconds, and the clock in it: the median of the
    chunks that begin there, else the clock of the chunk that covers the column."""
    start = np.concatenate([part.start_s for part in parts])
    end = np.concatenate([part.end_s for part in parts])
    hz = np.concatenate([part.smooth for part in parts])
    edges = np.geomspace(max(end[0] / 2, 1e-7), end[-1], width + 1)
    first, last = np.searchsorted(start, edges[:-1]), np.searchsorted(start, edges[1:])
    covers = np.clip(last - 1, 0, len(hz) - 1)
    values = [
        np.median(hz[a:b]) if b > a else hz[c]
        for a, b, c in zip(first.tolist(), last.tolist(), covers.tolist(), strict=True)
    ]
    return edges[:-1], np.array(values)


def draw(
    ramp: Ramp, climb: Climb, parts: Sequence[Trace], width: int, height: int,
    *, unicode: bool, colour: bool,
) -> list[str]:  # fmt: skip
    """Lines of the chart, empty if there is nothing to draw. `parts`: phases of the run of
    `climb`."""
    room = width - LABELS
    if not sum(len(part.hz) for part in parts) or room < 20:
        return []
    edges, hz = columns(parts, room)
    steady = ramp.steady_hz if ramp.steady_hz is not None else math.nan
    low, high = charts.span(np.append(hz, steady), STEP_HZ, None)
    chart = charts.graph(
        hz, np.full(room, steady), np.full(room, charts.key("clock")), low, high, height,
        ascii_=not unicode,
    )  # fmt: skip
    moments = {_column(edges, at_s): name for name, at_s in climb.moments}  # the later of two
    lines = rows_of(charts.ruled(chart.columns(), moments))
    numbers = charts.marks(low, high, height, height // 2)
    labels = {line: f"{value / 1e9:{LABELS - 1}.2f} " for line, value in numbers.items()}
    drawn = [
        _styled(labels.get(i, " " * LABELS), "dim", colour)
        + "".join(_styled(text, key, colour) for text, key in line).rstrip()
        for i, line in enumerate(lines)
    ]
    drawn.append(_styled(_gap_line(climb, edges, unicode=unicode), "warn", colour))
    drawn.append(_styled(" " * LABELS + _axis(edges), "dim", colour))
    return drawn if unicode else [in_ascii(line) for line in drawn]


def _column(edges: Floats, at_s: float) -> int:
    return max(0, int(np.searchsorted(edges, at_s, side="right")) - 1)


def _gap_line(climb: Climb, edges: Floats, *, unicode: bool) -> str:
    """A line with a sign at each gap."""
    marks = {"short": "▼", "long": "▽", "preempted": "x"} if unicode else dict.fromkeys(
        ("short", "long"), "v") | {"preempted": "x"}  # fmt: skip
    cells = [" "] * len(edges)
    for gap in climb.gaps:
        cells[_column(edges, gap.at_s)] = marks[gap.kind]
    return f"{'gaps':<{LABELS}}" + "".join(cells).rstrip()


def _axis(edges: Floats) -> str:
    """The line of the time axis: a label at the column of each power of ten."""
    line = ""
    for power in range(-6, 3):
        at = 10.0**power
        column = _column(edges, at)
        if edges[0] <= at and column < len(edges) - 8 and at < edges[-1]:
            line = line.ljust(column) + f"{rounded(at).replace('.0', '')} "
    return line.rstrip()


def _styled(text: str, key: str, colour: bool) -> str:
    return painted(text, _COLOURS.get(key, "") if colour and text.strip() else "")
