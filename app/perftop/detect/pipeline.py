"""Passes samples to all detectors, which see only the samples in which something happens."""

from __future__ import annotations

from typing import Protocol

from perftop.base.arrays import Bools
from perftop.detect.engine import DetectorInput, RunningEpisodes, gap_ns
from perftop.detect.halts import Halts
from perftop.detect.neighbours import Neighbours
from perftop.detect.quotas import QuotaStops
from perftop.detect.ramps import Ramps
from perftop.detect.simd_licenses import Licenses
from perftop.detect.smis import Smis
from perftop.detect.steals import Steals
from perftop.detect.suspects import Suspects
from perftop.detect.throttles import Throttles
from perftop.detect.turbo_drops import Drops
from perftop.model.episode import Episode
from perftop.model.sample_reader import Sample, SampleBatch, SampleReader

MIN_AHEAD, MAX_AHEAD = 16, 256
"""Number of samples that a detector examines at once: few after a sample in which something
happened, twice as many each time that nothing did."""


class Detector(Protocol):
    """A detector, which starts and ends the episodes of one kind."""

    available: bool
    """Whether this stream has the counters that the detector needs."""

    def calm(self, batch: SampleBatch, first: int, last: int) -> int:
        """Takes the samples of a batch from `first` on in which nothing happens. Returns the index
        of the first sample in which something does, or `last`. There is no gap between the
        samples."""

    def sample(self, data: DetectorInput) -> list[Episode]:
        """Takes one sample. Returns the episodes that it ended."""


class Detection:
    def __init__(self, reader: SampleReader, episodes: RunningEpisodes) -> None:
        self._reader, self._episodes = reader, episodes
        self._gap_ns = gap_ns(reader.hello.sample_ns)
        self.quotas = QuotaStops(reader, episodes)
        self.neighbours = Neighbours(reader, episodes, self.quotas)
        # Drops come before other detectors, which leave out losses that a drop covers; quotas come
        # before neighbours, which do not blame a task for what a quota took.
        detectors: list[Detector] = [
            Suspects(reader, episodes), Drops(reader, episodes), Ramps(reader), self.quotas,
            self.neighbours, Throttles(reader, episodes), Licenses(reader, episodes),
            Halts(reader, episodes), Smis(reader, episodes), Steals(reader, episodes),
        ]  # fmt: skip
        self._detectors = [detector for detector in detectors if detector.available]
        self._ahead = [MIN_AHEAD for _ in self._detectors]
        self._batch: SampleBatch | None = None
        self._next: list[int] = []
        """Index in the batch, by detector, of the first sample that it has not taken."""

    def take(self, batch: SampleBatch, first: int, last: int) -> tuple[int, list[Episode]]:
        """Takes samples of a batch from `first` on, up to a sample in which an episode started or
        ended, or up to `last`. Returns the index of the next sample, and the episodes that have
        ended."""
        if batch is not self._batch:
            self._batch, self._next = batch, [0 for _ in self._detectors]
        for number, detector in enumerate(self._detectors):
            if isinstance(detector, Throttles):  # a drop may have started in the last sample
                self._next[number] = min(self._next[number], first)
        gaps = batch.once(self._gaps)
        at = first
        while at < last:
            if gaps[at]:
                due = at
            else:
                stop = last
                if gaps[at:last].any():
                    stop = at + int(gaps[at:last].argmax())
                for number in range(len(self._detectors)):
                    self._skip(number, batch, stop)
                due = min(self._next)
                if due >= stop:
                    at = stop
                    continue
            count, ended = len(self._episodes.running), list[Episode]()
            data = self._input(batch, due)
            for number, detector in enumerate(self._detectors):
                if self._next[number] <= due:
                    ended += detector.sample(data)
                    self._next[number] = due + 1
            at = due + 1
            if ended or len(self._episodes.running) != count:
                return at, ended
        return last, []

    def _skip(self, number: int, batch: SampleBatch, stop: int) -> None:
        """Lets a detector take the samples in which nothing happens, up to `stop`."""
        detector, at = self._detectors[number], self._next[number]
        while at < stop:
            end = min(stop, at + self._ahead[number])
            due = detector.calm(batch, at, end)
            self._ahead[number] = min(2 * self._ahead[number], MAX_AHEAD)
            at = due
            if due < end:
                self._ahead[number] = MIN_AHEAD
                break
        self._next[number] = at

    def _gaps(self, batch: SampleBatch) -> Bools:
        span_ns = batch.time_ns - batch.since_ns
        return (span_ns <= 0) | (span_ns > self._gap_ns)

    def _input(self, batch: SampleBatch, at: int) -> DetectorInput:
        since_ns, time_ns = int(batch.since_ns[at]), int(batch.time_ns[at])
        records = batch.frames[at].records
        return DetectorInput(Sample(batch, at), since_ns, time_ns, batch.cores, records)
