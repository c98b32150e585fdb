"""The user's choices. All views of a screen share them, so the selected core and the filter are the
same in every view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perftop.session.interval import Interval
    from perftop.session.selection import Filter
    from perftop.session.session import Session
    from perftop.tui.shared.verdict import Verdict

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
    by_owner: bool = False
    """Whether "who runs" lists owners (units, containers, jobs) instead of tasks."""
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
    held: tuple[Interval, Verdict | None] | None = None
    """The numbers of the range B, which was held, and the verdict on it; None if there is none."""
    stale: bool = False
    """Whether the stream has ended, so that the shown numbers are its last numbers."""
    ascii: bool = False
    _mask_source: tuple[Filter, Session, Sequence[object]] | None = None
    """The filter, session and topology from which the mask was made."""

    @property
    def is_comparing(self) -> bool:
        """Whether a range is selected that is not the one held."""
        ranges = self.ranges_ns
        return self.range_ns is not None and "B" in ranges and ranges["B"] != self.range_ns

    @property
    def ranges_ns(self) -> dict[str, tuple[int, int]]:
        """Raw times of the starts and the ends of the held range, B, and of the selected one, A."""
        ranges = {}
        if self.held is not None:
            end_ns = self.held[0].time_ns
            ranges["B"] = end_ns - round(self.held[0].elapsed_s * 1e9), end_ns
        if self.range_ns is not None and self.range_ns != ranges.get("B"):
            ranges["A"] = self.range_ns
        return ranges

    def set_filter(self, text: str, cpu: int | None) -> None:
        """Sets the filter to this text, and selects the core of this CPU. If the text is not a
        valid filter, raises FilterError and changes nothing."""
        from perftop.session.selection import parse  # late: needs numpy

        self.filter = parse(text)
        self.cpu = cpu
        self.mask = self._mask_source = None  # makes views check the selected core again

    def update_mask(self, session: Session | None, interval: Interval | None) -> None:
        """Computes the mask if it may have changed. An equal mask does not replace the old object,
        because views compare masks by identity."""
        if session is None or self.filter is None:
            self.mask = self._mask_source = None
            return
        source = self.filter, session, list(session.topology)
        if self.filter.is_steady and source == self._mask_source:
            return
        self._mask_source = source
        mask = frozenset(self.filter.cpus(session, interval).nonzero()[0].tolist())
        if mask != self.mask:
            self.mask = mask

    def matches(self, session: Session | None) -> str:
        """Returns how many CPUs match, as text of a fixed width, unless no CPU matches."""
        if session is None or self.mask is None:
            return ""
        count, total = len(self.mask.intersection(session.shown)), len(session.shown)
        return f"{count:>{len(str(total))}} of {total} CPUs" if count else "no CPU matches"
