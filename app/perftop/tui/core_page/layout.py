"""The panels on the page of a core, with their heights and widths. They depend only on the source
and the available room, so that nothing moves when values change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

LABEL = 12
"""Number of cells to the left of the charts, for the names of lines or the marks of a scale."""
NAME, VALUE = 12, 7
"""Number of cells to the right of the charts, for the name of a number and for each value."""
MIN_WIDTH_FOR_NUMBERS = 56
"""Minimum width of a page with numbers beside the charts, in cells."""
MIN_WIDTH_FOR_ORIGINS = 160
"""Minimum width of a page that shows the origins of numbers, in cells."""
MIN_CHART = 90
"""Minimum width of the charts on a page that shows origins, in cells."""
MAX_ORIGIN = 60
MAX_EVENTS = 4
"""Maximum number of chosen events with a panel; further events are shown only in the table view."""
MIN_HEIGHT_FOR_PAIRS = 36
"""Minimum number of lines for a strip for each sibling, and for empty lines between groups of
panels."""
MIN_HEIGHT_FOR_ACCOUNT = 50
"""Minimum number of lines for a panel of user and kernel time in addition to the SMT states."""


TRAFFIC, L3 = "traffic", "l3"
"""Keys of the panels of memory traffic: of the core's package, and of its L3."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the source can show about a core."""

    threads: int
    metrics: frozenset[str]
    states: bool
    """Whether the core's SMT states are known, at least within bounds."""
    virtual: bool
    who: bool
    events: tuple[str, ...] = ()
    """Keys of the metrics of chosen events."""
    shared: tuple[str, ...] = ()
    """TRAFFIC and L3, if they are counted."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of the page: a chart with its numbers."""

    key: str
    """"clock", "smt", "account", or the key of a metric drawn as strips."""
    strips: int
    """Number of strips below each other: one for each CPU, or one for the core."""
    tall: int
    """Lines of each strip."""
    gap: bool = False
    """Whether there is an empty line above the panel."""

    @property
    def lines(self) -> int:
        return self.strips * self.tall


@dataclass(frozen=True, slots=True)
class Page:
    """The layout of the page."""

    panels: tuple[Panel, ...]
    who: bool
    axis: int
    """Number of lines of the time axis."""
    notes: int
    """Number of lines of notes."""
    columns: int
    """Width of the charts, in cells."""
    values: int
    """Number of values side by side: one for each CPU, or 1 for the core; 0 if the page has no
    numbers."""
    origin: int
    """Width of the origins of numbers, in cells; 0 if origins are not shown."""


@dataclass(frozen=True, slots=True)
class _Wish:
    """A panel with its minimum height, and how it grows if there is room."""

    panel: Panel
    most: int
    """Maximum lines of each strip."""
    weight: int
    """The panel's share of the room, relative to the weights of other panels."""
    rank: int
    """The panel of the highest rank is dropped first if not all panels fit."""
    step: int = 1
    """Number of lines by which each strip grows at a time."""


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
    """Returns the panels from the top. Each panel gets its minimum height, then spare lines are
    shared by weight."""
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
    """Returns the panels for which the source has data, in their order on the page."""
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
