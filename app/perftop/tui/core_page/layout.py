"""The panels on the page of a core, their heights and widths. They depend on the source and the
room only, so that nothing moves when values change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

LABEL = 12
"""Cells to the left of the charts, for the names of lines or marks of a scale."""
NAME, VALUE = 12, 7
"""Cells to the right of the charts, for the name of a number and for each number."""
MIN_WIDTH_FOR_NUMBERS = 56
"""Minimum cells of a page with numbers beside the charts."""
MIN_WIDTH_FOR_ORIGINS = 160
"""Minimum cells of a page that shows the origin of numbers."""
MIN_CHART = 90
"""Minimum cells of the charts beside such origins."""
MAX_ORIGIN = 60
MAX_EVENTS = 4
"""Chosen events over time; of further ones the table has the numbers."""
MIN_HEIGHT_FOR_PAIRS = 36
"""Minimum lines for strips of each sibling, and for empty lines between groups of panels."""
MIN_HEIGHT_FOR_ACCOUNT = 50
"""Minimum lines for the system's account of time in addition to the SMT states."""


TRAFFIC, L3 = "traffic", "l3"
"""Panels of what moves between its package, and its L3, and memory."""


@dataclass(frozen=True, slots=True)
class Known:
    """The abilities of the source for a core."""

    threads: int
    metrics: frozenset[str]
    states: bool
    """Its SMT states are known, if only within bounds."""
    virtual: bool
    who: bool
    events: tuple[str, ...] = ()
    """Metrics of chosen events."""
    shared: tuple[str, ...] = ()
    """TRAFFIC and L3, where they are counted."""


@dataclass(frozen=True, slots=True)
class Panel:
    key: str
    """"clock", "smt", "account", or the key of a metric drawn as strips."""
    strips: int
    """Number of strips, one above the other: one for each CPU, or one for the core."""
    tall: int
    """Lines of each strip."""
    gap: bool = False
    """An empty line above it."""

    @property
    def lines(self) -> int:
        return self.strips * self.tall


@dataclass(frozen=True, slots=True)
class Page:
    panels: tuple[Panel, ...]
    who: bool
    axis: int
    """Lines of the time axis."""
    notes: int
    """Lines of notes."""
    columns: int
    """Width of the charts, in cells."""
    values: int
    """Numbers side by side: one for each CPU, or 1 for the core; 0 if there are none."""
    origin: int
    """Cells for the origin of numbers; 0 if it is not shown."""


@dataclass(frozen=True, slots=True)
class _Wish:
    panel: Panel
    most: int
    weight: int
    """Its share of the room, relative to the weights of the others."""
    rank: int
    """The highest is dropped first if there is no room for all."""
    step: int = 1
    """Lines by which its strips grow."""


def page(known: Known, width: int, lines: int) -> Page:
    who = known.who and lines >= 12
    axis = 2 if lines >= 12 else 1 if lines >= 6 else 0
    notes = next((n for least, n in ((60, 5), (40, 3), (24, 2), (14, 1)) if lines >= least), 0)
    room = lines - 1 - who - axis - notes
    columns, values, origin = _widths(known.threads, width)
    return Page(tuple(_panels(known, room)), who, axis, notes, columns, values, origin)


def _widths(threads: int, width: int) -> tuple[int, int, int]:
    room = max(1, width - LABEL - 1)
    if width < MIN_WIDTH_FOR_NUMBERS:
        return room, 0, 0
    values = threads if NAME + VALUE * threads <= 0.45 * width else 1
    room -= NAME + VALUE * values
    origin = min(MAX_ORIGIN, max(0, room - MIN_CHART)) if width >= MIN_WIDTH_FOR_ORIGINS else 0
    return max(1, room - origin), values, origin


def _panels(known: Known, room: int) -> Iterable[Panel]:
    """Panels from the top: each gets its minimum height, then spare lines go by weight."""
    wishes = _wishes(
        known, tall=room >= MIN_HEIGHT_FOR_PAIRS, taller=room >= MIN_HEIGHT_FOR_ACCOUNT
    )
    gaps = sum(wish.panel.gap for wish in wishes)
    while len(wishes) > 1 and sum(wish.panel.lines for wish in wishes) + gaps > room:
        wishes.remove(max(wishes, key=lambda wish: wish.rank))
    room -= gaps
    spare = room - sum(wish.panel.lines for wish in wishes)
    while growing := [
        w for w in wishes if w.panel.tall < w.most and w.panel.strips * w.step <= spare
    ]:
        least = min(growing, key=lambda wish: wish.panel.tall / wish.weight)
        at = wishes.index(least)
        panel = replace(least.panel, tall=least.panel.tall + least.step)
        wishes[at] = replace(least, panel=panel)
        spare -= panel.strips * least.step
    return (wish.panel for wish in wishes)


def _wishes(known: Known, *, tall: bool, taller: bool) -> list[_Wish]:
    """Panels the source can fill, in their order on the page."""
    paired = known.threads > 1 and known.states
    account = known.metrics >= {"user", "system"}
    found = []
    if "busy_hz" in known.metrics:
        found.append(_Wish(Panel("clock", 1, 3), 16, 6, 1))
    if paired:
        found.append(_Wish(Panel("smt", 1, 2, gap=tall and bool(found)), 14, 6, 2, step=2))
    elif account:
        found.append(_Wish(Panel("account", 1, 3, gap=tall and bool(found)), 14, 6, 2))
    most = 6 if known.threads == 1 else 3
    found.append(_Wish(Panel("util", known.threads, 1, gap=tall), most, 1, 0))
    ranks = {"steal": 1, "involuntary": 3, "ipc": 4, "kernel_cycles": 5}
    for key in ("ipc", "involuntary", "kernel_cycles", "steal"):
        if key in known.metrics and (key != "steal" or known.virtual):
            each = tall and known.threads == 2 and key != "steal"
            panel = Panel(key, 2, 2) if each else Panel(key, 1, 1)
            found.append(_Wish(panel, 3, 1, ranks[key]))
    for rank, key in enumerate(known.shared, 6):
        found.append(_Wish(Panel(key, 1, 1), 3, 1, rank))
    for rank, key in enumerate(known.events[:MAX_EVENTS], 8):
        found.append(_Wish(Panel(key, 1, 1), 3, 1, rank))
    if account and paired and taller:
        found.append(_Wish(Panel("account", 1, 4, gap=True), 6, 2, 12))
    return found
