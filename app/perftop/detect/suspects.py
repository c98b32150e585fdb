"""Counters that cannot be believed, as episodes: which counters, on which CPUs, from when to when.

Somebody who takes counters takes them on many CPUs, and each CPU shows it in another sample, when
what it does contradicts the count. All of that is one episode, and its cause names the counters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perftop.detect.engine import Detector
from perftop.model.delta import Doubt
from perftop.model.episode import Episode

Found = Mapping[int, set[tuple[str, Doubt]]]
"""The doubted counters of each CPU, by its number."""
CLEAN_NS, CLEAN_SAMPLES = 1_000_000_000, 3
"""An episode ends when none of its counters was doubted for so long: shorter gaps are the same
disturbance seen twice, and a line for each would bury it."""
JOIN_NS = 2_000_000_000
"""Counters that come to be doubted within this time of the first belong to one takeover."""
READ = "time stamps"
"""The cause where not a counter is wrong but the whole read."""


@dataclass(slots=True)
class _Doubted:
    """An episode that runs."""

    episode: Episode
    last_ns: int
    why: dict[str, Doubt] = field(default_factory=dict)
    """The first doubt about each counter."""
    samples: dict[int, int] = field(default_factory=dict)
    """Number of doubted samples of each CPU."""

    def takes(self, key: str, time_ns: int) -> bool:
        if (key == READ) != (READ in self.why):
            return False
        return key in self.why or time_ns - self.episode.start_ns <= JOIN_NS

    def tell(self) -> None:
        """What is known of it by now."""
        episode = self.episode
        episode.cpus, episode.cause = sorted(self.samples), ", ".join(self.why)
        found = {key: why.name.lower() for key, why in self.why.items()}
        episode.evidence = {**found, "samples": max(self.samples.values())}


class Suspects:
    def __init__(self, detector: Detector) -> None:
        self._detector = detector
        self._running: list[_Doubted] = []

    def sample(self, found: Found, since_ns: int, time_ns: int) -> list[Episode]:
        """What the sample from since_ns to time_ns is doubted for. Returns the episodes it ends."""
        if found:
            self._add(found, since_ns, time_ns)
        clean_ns = max(CLEAN_NS, CLEAN_SAMPLES * (time_ns - since_ns))
        over = [one for one in self._running if time_ns - one.last_ns >= clean_ns]
        self._running = [one for one in self._running if one not in over]
        return [self._detector.end(one.episode, one.last_ns) for one in over]

    def _add(self, found: Found, since_ns: int, time_ns: int) -> None:
        by_key: dict[str, dict[int, Doubt]] = {}
        for cpu, doubted in found.items():
            for key, why in doubted:
                name = READ if why == Doubt.BACKWARDS else key
                by_key.setdefault(name, {})[cpu] = why
        told: dict[int, set[int]] = {}
        for key, cpus in sorted(by_key.items()):
            one = self._one(key, since_ns, time_ns)
            one.why.setdefault(key, min(cpus.values()))
            one.last_ns = time_ns
            told.setdefault(id(one), set()).update(cpus)
        for one in self._running:
            for cpu in told.get(id(one), ()):
                one.samples[cpu] = one.samples.get(cpu, 0) + 1
            if id(one) in told:
                one.tell()

    def _one(self, key: str, since_ns: int, time_ns: int) -> _Doubted:
        """The episode that this counter belongs to: one that runs, or a new one."""
        for one in self._running:
            if one.takes(key, time_ns):
                return one
        episode = Episode("suspect", [], since_ns, cause=key)
        self._detector.running.append(episode)
        self._running.append(_Doubted(episode, time_ns))
        return self._running[-1]
