"""The user's choices. All views of a screen share them, so the selected core and the filter are the
same in every view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from perftop.session.filter import Filter

Units = Literal["GHz", "MHz", "base"]
UNITS: tuple[Units, ...] = ("GHz", "MHz", "base")
"""Units of clocks; `base`: multiples of the base clock."""
WINDOWS_S = (5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Selectable spans of time axes, in seconds."""


@dataclass(slots=True)
class Sorting:
    order: str = "topology"
    """One of "topology", "CPU number", "worst first" and "task", or the key of a number; the view
    of episodes has other orders."""
    reverse: bool = False


@dataclass(slots=True)
class Choice(Sorting):
    cpu: int | None = None
    """The first CPU of the selected core; the core stays selected when rows are sorted or
    regrouped."""
    metric: str = "util"
    """Key of the metric that the heat map and the time view show."""
    units: Units = "GHz"
    window_s: float = 60.0
    columns: tuple[str, ...] = ()
    """Keys of the table's columns, in display order; empty: all columns."""
    filter: Filter | None = None
    mask: frozenset[int] | None = None
    """Positions of the CPUs that currently match the filter; None: there is no filter."""
    pinned_ns: int | None = None
    """Raw time at which time axes end while paused, so that charts stand still; None: at the shown
    moment."""
    cursor_ns: int | None = None
    """Raw time of the cursor in charts; None while the newest numbers are shown."""
    range_ns: tuple[int, int] | None = None
    """Raw times of the start and the end of the selected range; None if there is none."""
    stale: bool = False
    """Whether the stream has ended, so that the shown numbers are its last numbers."""
    ascii: bool = False
