"""The settings that all views of a screen share, such as the selected core and the filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal

from perftop.base.text import Units
from perftop.session.selection import Filter, parse_filter
from perftop.session.session import Session
from perftop.tui.shared.keys import key_captions

if TYPE_CHECKING:
    from perftop.draw.charts import Glyphs
    from perftop.session.interval import Interval
    from perftop.tui.shared.verdict import Verdict

WINDOWS_S = (5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0)


Grouping = Literal["task", "job", "cgroup"]
GROUPINGS: tuple[Grouping, ...] = ("task", "job", "cgroup")


@dataclass(slots=True)
class ViewSettings:
    order: str = "topology"
    """Sort order: "topology", "CPU number", "worst first", "task", or the key of a column."""
    reverse: bool = False
    cpu: int | None = None
    """The first CPU of the selected core. The core stays selected when rows are sorted."""
    metric: str = "util"
    """Key of the metric that the heat map and the time view show."""
    units: Units = "GHz"
    grouping: Grouping = "task"
    """Whether tasks are listed and coloured by their name, by their job (unit, container, pod), or
    by their control group."""
    window_s: float = 60.0
    columns: tuple[str, ...] = ()
    """Keys of the table's columns, in display order; empty: all columns."""
    filter: Filter | None = None
    mask: frozenset[int] | None = None
    """Positions of the CPUs that currently match the filter; None if there is no filter."""
    pinned_ns: int | None = None
    """Monotonic time in ns at which time axes end while paused, so that charts do not move; None
    for the shown moment."""
    cursor_ns: int | None = None
    """Monotonic time in ns of the cursor in charts; None for the newest numbers."""
    range_ns: tuple[int, int] | None = None
    """Monotonic times in ns of the ends of the selected range; None if there is none."""
    held_range: tuple[Interval, Verdict | None] | None = None
    """Range A of a comparison, and the verdict on it; None without a comparison."""
    tour_notes: list[int] = field(default_factory=list)
    """Indexes in `canvas.TOUR_NOTES` of the notes for a new user that were not dismissed yet."""
    captions: Mapping[str, str] = field(default_factory=partial(key_captions, {}))
    is_stale: bool = False
    """Whether the stream has ended, so that the shown numbers are no longer updated."""
    ascii: bool = False
    glyphs: Glyphs = "colour"
    _mask_source: tuple[Filter, Session, Sequence[object]] | None = None
    """The filter, session and topology from which `mask` was computed."""

    @property
    def is_comparing(self) -> bool:
        return "B" in self.ranges_ns

    @property
    def ranges_ns(self) -> dict[str, tuple[int, int]]:
        """Ends of ranges in monotonic ns. "A" is the held range, and "B" the selected one if it
        differs; without a held range, "A" is the selected one."""
        ranges = {}
        if self.held_range is not None:
            end_ns = self.held_range[0].time_ns
            ranges["A"] = end_ns - round(self.held_range[0].elapsed_s * 1e9), end_ns
        if self.range_ns is not None and self.range_ns != ranges.get("A"):
            ranges["B" if ranges else "A"] = self.range_ns
        return ranges

    def set_filter(self, text: str, cpu: int | None) -> None:
        """Sets the filter to this text, and selects the core of this CPU. Raises FilterError, and
        changes nothing, if the text is invalid."""
        self.filter = parse_filter(text)
        self.cpu = cpu
        self.mask = self._mask_source = None  # a new mask makes views check the selected core again

    def update_mask(self, session: Session | None, interval: Interval | None) -> None:
        """Computes the mask if it may have changed. An equal mask stays the same object, because
        views compare masks by identity."""
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

    def match_text(self, session: Session | None) -> str:
        """Returns the number of CPUs that match the filter, as text of a fixed width."""
        if session is None or self.mask is None:
            return ""
        count, total = len(self.mask.intersection(session.selected)), len(session.selected)
        return f"{count:>{len(str(total))}} of {total} CPUs" if count else "no CPU matches"
