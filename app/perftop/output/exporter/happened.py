"""How long episodes ran, and what clocks below their ceiling cost, summed up by package and cause.

A counter cannot take back what it has told, and an episode that runs may prove to have ended some
seconds ago, or to have another cause. So samples wait until nothing of that can come any more.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator

import numpy as np

from perfprobe.frozen import frozen
from perftop.base.arrays import Floats
from perftop.model.cores import Cores
from perftop.model.episode import Episode
from perftop.model.numbers import INDEX
from perftop.model.sample_reader import Sample
from perftop.session.episodes import LATE_NS, LATE_SAMPLES
from perftop.session.session import Session

DROP = "turbo-drop"
CAUSES = ("policy", "license", "power-pl1", "power-pl2", "current", "thermal", "prochot", "vr",
          "hwp", "hypervisor", "unknown")  # fmt: skip
"""Causes of a clock below its ceiling."""
Key = tuple[int, str, str]
"""Position of the package, -1 for what is in none; kind and cause."""
Place = tuple[int, str]
"""Position of the package, and cause."""


@frozen
class _Waiting:
    since_ns: int
    time_ns: int
    lost: Floats
    """Cycles by core that its ceiling would have allowed and that did not come."""
    cores: Cores


class Happened:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._late_ns = max(LATE_NS, LATE_SAMPLES * session.hello.sample_ns)
        self._waiting: deque[_Waiting] = deque()
        self._package = {cpu: at for at, cpus in enumerate(session.hello.packages) for cpu in cpus}
        self.count: defaultdict[Key, int] = defaultdict(int)
        self.seconds: defaultdict[Key, float] = defaultdict(float)
        self.below_s: defaultdict[Place, float] = defaultdict(float)
        """Time in which any core of a package was below its ceiling, by package and cause."""
        self.below_cycles: defaultdict[Place, float] = defaultdict(float)

    def take(self, sample: Sample, since_ns: int) -> None:
        """Add a sample, which is the session's newest."""
        session = self._session
        cores = session.reader.cores
        self._waiting.append(_Waiting(since_ns, session.now_ns, _lost(sample, cores), cores))
        while self._waiting and self._waiting[0].time_ns <= session.now_ns - self._late_ns:
            self._settle(self._waiting.popleft())

    def _settle(self, one: _Waiting) -> None:
        below: dict[Place, float] = {}
        for episode in self._session.episodes(one.since_ns - 1, one.time_ns):
            seconds = episode.span_s(one.since_ns, one.time_ns)
            begins = one.since_ns <= episode.start_ns < one.time_ns
            cause = _cause(episode)
            for package in self._packages(episode):
                key = package, episode.kind, cause
                self.seconds[key] += seconds
                self.count[key] += begins
                if episode.kind == DROP:
                    below[package, cause] = max(below.get((package, cause), 0.0), seconds)
            if episode.kind == DROP and seconds:
                self._lose(episode, one)
        for place, below_s in below.items():
            self.below_s[place] += below_s

    def _packages(self, episode: Episode) -> Iterator[int]:
        yield from sorted({self._package.get(cpu, -1) for cpu in episode.cpus})

    def _lose(self, episode: Episode, one: _Waiting) -> None:
        mine = one.cores.of(episode.cpus)
        for package in np.unique(one.cores.package[mine]).tolist():
            cycles = float(one.lost[mine & (one.cores.package == package)].sum())
            self.below_cycles[package, episode.cause] += cycles


def _lost(sample: Sample, cores: Cores) -> Floats:
    values, at = sample.values, INDEX["busy_hz"]
    cycles, run_s = values.top[at], values.bottom[at]
    known = np.isfinite(cycles) & np.isfinite(run_s)
    ran, ran_s = (cores.total(np.where(known, part, 0.0)) for part in (cycles, run_s))
    allowed = np.nan_to_num(sample.ceilings.low_hz) * ran_s
    return np.asarray(np.maximum(0.0, allowed - ran))


def _cause(episode: Episode) -> str:
    """The cause of a suspect episode lists counters, in as many ways as they can be taken."""
    return "counters" if episode.kind == "suspect" else episode.cause
