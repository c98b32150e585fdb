"""All detectors, called one after another with each sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from perftop.detect.engine import Detector, Seen
from perftop.detect.halts import Halts
from perftop.detect.neighbours import Neighbours
from perftop.detect.ramps import Ramps
from perftop.detect.simd_licenses import Licenses
from perftop.detect.smis import Smis
from perftop.detect.steals import Steals
from perftop.detect.throttles import Throttles
from perftop.detect.turbo_drops import Drops
from perftop.model.episode import Episode
from perftop.model.sample_reader import Sample, Sieve


class Watcher(Protocol):
    """Begins and ends episodes of a detector."""

    there: bool
    """Whether this stream can show any."""

    def sample(self, seen: Seen) -> list[Episode]:
        """The episodes that this sample ended."""


class Detection:
    def __init__(self, sieve: Sieve, detector: Detector) -> None:
        self._sieve = sieve
        self.neighbours = Neighbours(sieve, detector)
        first: list[Watcher] = [Drops(sieve, detector), Ramps(sieve), self.neighbours]
        others = Throttles, Licenses, Halts, Smis, Steals
        every = [*first, *(watcher(sieve, detector) for watcher in others)]
        self._watchers = [watcher for watcher in every if watcher.there]

    def sample(
        self, sample: Sample, since_ns: int, time_ns: int, records: Mapping[str, object]
    ) -> list[Episode]:
        """The episodes that this sample ended."""
        seen = Seen(sample, since_ns, time_ns, self._sieve.cores, records)
        return [episode for watcher in self._watchers for episode in watcher.sample(seen)]
