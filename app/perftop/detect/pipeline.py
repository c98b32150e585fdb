"""All detectors, called one after another with each sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from perftop.detect.engine import DetectorInput, RunningEpisodes
from perftop.detect.halts import Halts
from perftop.detect.neighbours import Neighbours
from perftop.detect.ramps import Ramps
from perftop.detect.simd_licenses import Licenses
from perftop.detect.smis import Smis
from perftop.detect.steals import Steals
from perftop.detect.throttles import Throttles
from perftop.detect.turbo_drops import Drops
from perftop.model.episode import Episode
from perftop.model.sample_reader import Sample, SampleReader


class Detector(Protocol):
    """Begins and ends episodes of a detector."""

    there: bool
    """Whether this stream can show any."""

    def sample(self, seen: DetectorInput) -> list[Episode]:
        """The episodes that this sample ended."""


class Detection:
    def __init__(self, reader: SampleReader, detector: RunningEpisodes) -> None:
        self._reader = reader
        self.neighbours = Neighbours(reader, detector)
        first: list[Detector] = [Drops(reader, detector), Ramps(reader), self.neighbours]
        others = Throttles, Licenses, Halts, Smis, Steals
        every = [*first, *(watcher(reader, detector) for watcher in others)]
        self._detectors = [watcher for watcher in every if watcher.there]

    def sample(
        self, sample: Sample, since_ns: int, time_ns: int, records: Mapping[str, object]
    ) -> list[Episode]:
        """The episodes that this sample ended."""
        seen = DetectorInput(sample, since_ns, time_ns, self._reader.cores, records)
        return [episode for watcher in self._detectors for episode in watcher.sample(seen)]
