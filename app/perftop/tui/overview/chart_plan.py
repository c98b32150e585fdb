"""Which charts a small machine has, how tall they are, and what stands below them. Pure: only what
the source knows, the number of CPUs and the size of the screen decide."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from perfprobe.frozen import frozen

MOST = 16
"""Most charts; a machine with more has rows."""
TITLED = 4
"""Most charts with a title line each; more have their numbers beside them."""
NARROWEST = 60
"""Minimum width."""
COUNTED = 112
"""Minimum width for a chart of IPC beside that of the clock."""
_ROOMY, _LOW = 28, 22
"""Minimum heights: for gaps, and for times on a line of their own."""
_CAPS = ((1, 12), (2, 10), (4, 6), (8, 4), (MOST, 2))
"""Most rows of a chart, by the most charts that may have them, on a screen of 50 lines."""
_LOW_CAPS = ((1, 7), (2, 5), (4, 2))
"""The same on a screen of 24 lines."""
_TALL = 42
"""Height beyond which charts grow with the screen."""
_GROWTH = 0.75
"""Their part of the lines beyond it; the rest is for the panels."""


@frozen
class Plan:
    charts: int
    kind: Literal["titled", "beside"]
    rows: int
    """Lines of each chart."""
    gap: int
    """Blank lines between charts."""
    axes: bool
    """Whether each chart has an axis of its own, and not only the last one."""
    times: bool
    """Whether times have a line of their own; else they stand in the axis."""
    blank: int
    """Blank lines before the panels."""
    headings: int
    """Lines with names of packages, and one with the legend."""
    panels: int
    """Lines of the panels."""


def plan(charts: int, height: int, width: int, *, packages: int, beside: bool) -> Plan | None:
    """The best picture of `charts` CPUs or cores; None if they do not fit. `beside`: they have
    their numbers beside them, as cores with counters have, and an even number of rows."""
    if not 0 < charts <= MOST or width < NARROWEST:
        return None
    beside = beside or charts > TITLED
    for rows in range(_cap(charts, height), 1, -1):
        if beside and rows % 2:
            continue
        for found in _styles(charts, rows, height, packages if beside else 0, beside=beside):
            least = 8 if found.gap else 5 if found.times else 4
            if found.panels >= least:
                return found
    return None


def _cap(charts: int, height: int) -> int:
    table = _LOW_CAPS if height < _LOW else _CAPS
    cap = next((rows for most, rows in table if charts <= most), 0)
    return cap + int(_GROWTH * max(0, height - _TALL)) // charts


def _styles(charts: int, rows: int, height: int, headings: int, *, beside: bool) -> Iterator[Plan]:
    """The pictures to try, the roomiest first."""
    kind: Literal["titled", "beside"] = "beside" if beside else "titled"
    each = rows if beside else 1 + rows
    for gap, axes, times, blank in ((1, not beside, True, 1), (0, False, True, 1),
                                    (0, False, False, 0)):  # fmt: skip
        if height < (_ROOMY if gap else _LOW if times else 0):
            continue
        used = headings + charts * each + (charts - 1) * gap
        used += (charts if axes else 1) + times + blank
        yield Plan(charts, kind, rows, gap, axes, times, blank, headings, height - used)
