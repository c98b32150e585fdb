"""Values of time bins up to the shown moment. Complete bins do not change, so only the newest bins
are looked up at each refresh."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from perftop.base.arrays import Floats
from perftop.session.history import History, edges
from perftop.session.history_chunk import Times

Lookup = Callable[[History, Times], Floats]
"""Returns the values of bins that are given by their edges; the first axis is that of the bins."""


class Ring:
    """The values of several lookups in the same time bins, by key."""

    def __init__(self, lookups: Mapping[str, Lookup]) -> None:
        self._lookups = lookups
        self._held: dict[str, Floats] = {}
        self._of: tuple[int, int, int, int] | None = None
        """Length and number of the stored bins, their end, and the newest moment in them; times are
        in ns."""
        self._begin_ns = 0
        """The start of the history when the bins were read, in raw ns."""

    def __getitem__(self, key: str) -> Floats:
        """Returns the values of a lookup, (bins, ...); NaN where unknown."""
        return self._held[key]

    def read(self, history: History, end_ns: int, bin_ns: int, bins: int, now_ns: int) -> int:
        """Moves on to the bins that end at `end_ns`, a multiple of their length. The last bin
        contains the moment `now_ns`. Returns how many bins, counted from the newest, were looked
        up."""
        moved = self._moved(history, end_ns, bin_ns, bins, now_ns)
        self._of, self._begin_ns = (bin_ns, bins, end_ns, now_ns), history.begin_ns or 0
        if not moved:
            return 0
        at = edges(end_ns, bin_ns, moved)
        at[-1] = now_ns
        for key, lookup in self._lookups.items():
            found = lookup(history, at)
            if moved < bins:
                found = np.concatenate([self._held[key][: bins - moved], found])
            self._held[key] = found
        return moved

    def _moved(self, history: History, end_ns: int, bin_ns: int, bins: int, now_ns: int) -> int:
        """Returns how many bins must be looked up, and moves the values of the other bins to the
        front."""
        if self._of is None or self._of[:2] != (bin_ns, bins):
            return bins
        if (history.begin_ns or 0) < self._begin_ns:  # older samples were added to the history
            return bins
        held_end_ns, before_ns = self._of[2:]
        ahead = (end_ns - held_end_ns) // bin_ns
        # The newest stored bin may have been looked up before it was complete.
        if not 0 <= ahead < bins or now_ns < before_ns:
            return bins
        moved = ahead + (before_ns != held_end_ns)
        for key, values in self._held.items():
            self._held[key] = values[ahead:]
        return min(moved, bins)
