"""A detector that is stepped by hand, and what it told."""

from __future__ import annotations

import made

from perftop.detect.engine import RunningEpisodes
from perftop.model.episode import Episode

S = made.SAMPLE_NS


class Stepped:
    """Its time, and the episodes that it told."""

    def __init__(self) -> None:
        self.detector = RunningEpisodes()
        self.ended: list[Episode] = []
        self.now_ns = 0

    def step_of(self, ns: int = S) -> tuple[int, int]:
        """Begin and end of the next step, which takes so long."""
        since_ns, self.now_ns = self.now_ns, self.now_ns + ns
        return since_ns, self.now_ns

    @property
    def running(self) -> list[Episode]:
        return self.detector.running

    def spans(self) -> list[tuple[float, float | None]]:
        """Start and end of all episodes in samples; None: still running."""
        found = [*self.ended, *self.running]
        return [(e.start_ns / S, None if e.end_ns is None else e.end_ns / S) for e in found]
