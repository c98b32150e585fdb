"""What the screen of two recordings is drawn from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from perftop.base.arrays import Floats
from perftop.tui.pair.track import Alignment, Track
from perftop.tui.shared.keys import captions

SHORTEST_S = 1.0
"""Least time on the axis."""


@dataclass(slots=True)
class Look:
    tracks: tuple[Track, Track]
    alignment: Alignment
    width: int = 80
    height: int = 24
    cursor_s: float = 0.0
    """The moment looked at, since the one that they are aligned at."""
    zoom: float = 1.0
    """The length of both recordings, in lengths of the axis."""
    ascii: bool = False
    helping: bool = False
    captions: Mapping[str, str] = field(default_factory=partial(captions, {}))

    @property
    def origins_ns(self) -> tuple[int, int]:
        """The moments that both are aligned at; the start of a recording that has no such moment,
        or has not come to it yet."""
        found = [track.origin_ns(self.alignment) for track in self.tracks]
        a, b = (track.ends_ns[0] if at is None else at
                for track, at in zip(self.tracks, found, strict=True))  # fmt: skip
        return a, b

    @property
    def aligned(self) -> bool:
        return all(track.origin_ns(self.alignment) is not None for track in self.tracks)

    @property
    def reach_s(self) -> tuple[float, float]:
        """From the start of the one that begins first to the end of the one that ends last."""
        pairs = [*zip(self.tracks, self.origins_ns, strict=True)]
        first_ns = min(track.ends_ns[0] - origin for track, origin in pairs)
        last_ns = max(track.ends_ns[1] - origin for track, origin in pairs)
        return first_ns / 1e9, max(last_ns / 1e9, first_ns / 1e9 + SHORTEST_S)

    @property
    def window_s(self) -> tuple[float, float]:
        """What is on the axis, around the cursor."""
        first, last = self.reach_s
        span = max(SHORTEST_S, (last - first) / self.zoom)
        start = min(max(first, self.cursor_s - span / 2), max(first, last - span))
        return start, start + span

    def edges_ns(self, track: int, cells: int) -> Floats:
        """Raw ns of the edges of the axis' cells in this recording."""
        first, last = self.window_s
        return np.linspace(first, last, cells + 1) * 1e9 + self.origins_ns[track]

    def cell(self, at_s: float, cells: int) -> int:
        """The cell of a moment; below 0 or beyond the last if it is off the axis."""
        first, last = self.window_s
        return int(np.floor((at_s - first) / (last - first) * cells))

    def cursor_cell(self, cells: int) -> int:
        """The cell of the cursor; the end of the axis belongs to the last one."""
        return max(0, min(self.cell(self.cursor_s, cells), cells - 1))

    def move(self, by_s: float) -> None:
        first, last = self.reach_s
        self.cursor_s = min(max(first, self.cursor_s + by_s), last)
