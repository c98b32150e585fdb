"""Detects counters whose values cannot be true: which counters, on which CPUs, and from when to
when.

A program that takes counters takes them on many CPUs. Each CPU shows this in a different sample,
when its work contradicts the count. All of this forms one episode, whose cause lists the counters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perftop.detect.engine import DetectorInput, RunningEpisodes
from perftop.model.delta import Doubt
from perftop.model.episode import Episode
from perftop.model.sample_reader import SampleBatch, SampleReader

CLEAN_NS, CLEAN_SAMPLES = 1_000_000_000, 3
"""Time in ns and number of samples without a suspect counter after which an episode ends. Shorter
gaps are within the same disturbance, and one line for each part of it would hide the other
episodes."""
JOIN_NS = 2_000_000_000
"""Time in ns. Counters that become suspect within this time of the first one belong to the same
takeover."""
READ = "time stamps"
"""The cause when the whole read is wrong, not a single counter."""


@dataclass(slots=True)
class _Suspect:
    """A running episode."""

    episode: Episode
    last_ns: int
    why: dict[str, Doubt] = field(default_factory=dict)
    """The first doubt about each counter of the episode."""
    samples: dict[int, int] = field(default_factory=dict)
    """Number of suspect samples of each CPU."""

    def includes(self, key: str, time_ns: int) -> bool:
        """Returns whether a doubt about this counter belongs to the episode."""
        if (key == READ) != (READ in self.why):
            return False
        return key in self.why or time_ns - self.episode.start_ns <= JOIN_NS


class Suspects:
    available = True

    def __init__(self, reader: SampleReader, episodes: RunningEpisodes) -> None:
        self._topology, self._episodes = reader.hello.topology, episodes
        self._running: list[_Suspect] = []

    def calm(self, batch: SampleBatch, first: int, last: int) -> int:
        if self._running:
            return first
        doubted = batch.doubted[batch.doubted.searchsorted(first) :]
        return min(last, int(doubted[0])) if len(doubted) else last

    def sample(self, data: DetectorInput) -> list[Episode]:
        """Returns the episodes that this sample ended."""
        suspect = data.sample.delta.suspect if data.sample.doubted else {}
        doubts = {self._topology[row].cpu: doubts for row, doubts in suspect.items()}
        return self.step(doubts, data.since_ns, data.time_ns)

    def step(
        self, doubts: Mapping[int, set[tuple[str, Doubt]]], since_ns: int, time_ns: int
    ) -> list[Episode]:
        """Returns the episodes that the sample from since_ns to time_ns ended. `doubts`: its
        suspect counters with their doubts, by CPU number."""
        if doubts:
            self._add(doubts, since_ns, time_ns)
        clean_ns = max(CLEAN_NS, CLEAN_SAMPLES * (time_ns - since_ns))
        over = [suspect for suspect in self._running if time_ns - suspect.last_ns >= clean_ns]
        self._running = [suspect for suspect in self._running if suspect not in over]
        return [self._episodes.end(suspect.episode, suspect.last_ns) for suspect in over]

    def _add(
        self, doubts: Mapping[int, set[tuple[str, Doubt]]], since_ns: int, time_ns: int
    ) -> None:
        by_key: dict[str, dict[int, Doubt]] = {}
        for cpu, doubted in doubts.items():
            for key, why in doubted:
                name = READ if why == Doubt.BACKWARDS else key
                by_key.setdefault(name, {})[cpu] = why
        news: dict[int, set[int]] = {}
        for key, cpus in sorted(by_key.items()):
            suspect = next(
                (running for running in self._running if running.includes(key, time_ns)), None
            )
            if suspect is None:
                suspect = _Suspect(Episode("suspect", [], since_ns, cause=key), time_ns)
                self._episodes.running.append(suspect.episode)
                self._running.append(suspect)
            suspect.why.setdefault(key, min(cpus.values()))
            suspect.last_ns = time_ns
            news.setdefault(id(suspect), set()).update(cpus)
        for suspect in self._running:
            if id(suspect) not in news:
                continue
            for cpu in news[id(suspect)]:
                suspect.samples[cpu] = suspect.samples.get(cpu, 0) + 1
            episode = suspect.episode
            episode.cpus, episode.cause = sorted(suspect.samples), ", ".join(suspect.why)
            reasons = {key: why.name.lower() for key, why in suspect.why.items()}
            episode.evidence = {**reasons, "samples": max(suspect.samples.values())}
