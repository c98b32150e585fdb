"""Calls all detectors, one after another, with each sample."""

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
    """A detector, which starts and ends the episodes of one kind."""

    available: bool
    """Whether this stream has the counters that the detector needs."""

    def sample(self, data: DetectorInput) -> list[Episode]:
        """Returns the episodes that this sample ended."""


class Detection:
    def __init__(self, reader: SampleReader, episodes: RunningEpisodes) -> None:
        self._reader = reader
        self.neighbours = Neighbours(reader, episodes)
        # Drops come first: other detectors leave out losses that a drop covers.
        detectors: list[Detector] = [
            Drops(reader, episodes), Ramps(reader), self.neighbours, Throttles(reader, episodes),
            Licenses(reader, episodes), Halts(reader, episodes), Smis(reader, episodes),
            Steals(reader, episodes),
        ]  # fmt: skip
        self._detectors = [detector for detector in detectors if detector.available]

    def sample(
        self, sample: Sample, since_ns: int, time_ns: int, records: Mapping[str, object]
    ) -> list[Episode]:
        """Returns the episodes that this sample ended."""
        data = DetectorInput(sample, since_ns, time_ns, self._reader.cores, records)
        return [episode for detector in self._detectors for episode in detector.sample(data)]
