"""Who loses to others: the CPUs of the job that is watched, or all that are busy if none is."""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Bools, Ints
from perftop.detect.engine import Detector, Seen
from perftop.detect.losses import MIN_BUSY, MIN_JOB_BUSY, Losses, busy_cpus, wanted
from perftop.detect.memory_pressure import Memory
from perftop.detect.siblings import Siblings
from perftop.detect.watched_job import Budget, Scheduler
from perftop.model.cores import packages
from perftop.model.episode import Episode, Host
from perftop.model.memory import L3Groups
from perftop.model.numbers import INDEX
from perftop.model.sample_reader import Sieve
from perftop.model.tasks import Company, Watching


class Neighbours:
    """Begins and ends episodes of a detector; knows the watched job and who else runs where."""

    def __init__(self, sieve: Sieve, detector: Detector) -> None:
        hello = sieve.hello
        self.there = True
        self.watching, self.company = Watching(hello.watch), Company()
        self._position = sieve.position
        groups = packages(hello)
        self.siblings = Siblings(sieve, detector, self.company, groups)
        self.hypervisor = Hypervisor(sieve, detector, groups)
        self.l3_groups = L3Groups(hello.topology)
        self.memory = Memory(sieve, detector, self.company, groups, self.l3_groups)
        self.scheduler = Scheduler(sieve, detector, self.company, self.watching, groups)
        self.budget = Budget(sieve, detector, self.company)

    def sample(self, seen: Seen) -> list[Episode]:
        """The episodes that this sample ended."""
        self.company.take(seen.records, seen.time_ns)
        self.watching.take(seen.records, seen.time_ns)
        self.l3_groups.take(seen.records, seen.time_ns)
        quiet = self.siblings.losses.quiet and self.hypervisor.losses.quiet
        if quiet and self.watching.name is None and seen.sample.highest.busy < MIN_BUSY:
            return []
        if self.watching.name is None:
            busy = seen.sample.part(busy_cpus)
            return [
                *self.siblings.sample(seen, busy, None),
                *self.hypervisor.sample(seen, busy),
                *self.memory.sample(seen, busy, None),
            ]
        own = self.watching.pids()
        busy = self._mine() & np.asarray(seen.sample.part(wanted) >= MIN_JOB_BUSY)
        return [
            *self.siblings.sample(seen, busy, own),
            *self.hypervisor.sample(seen, busy),
            *self.memory.sample(seen, busy, own),
            *self.scheduler.sample(seen, own),
            *self.budget.sample(seen, busy, own),
        ]

    def _mine(self) -> Bools:
        """CPUs on which threads of the job ran of late, by position."""
        mine: Bools = np.zeros(len(self._position), bool)
        mine[[self._position[cpu] for cpu in self.watching.cpus() if cpu in self._position]] = True
        return mine

    def share(self, episode: Episode, cpu: int) -> float | None:
        """What this CPU has lost of late in an episode that runs, if it is told by CPU."""
        mine = self.siblings, self.hypervisor, self.memory, self.scheduler
        for losses in (each.losses for each in mine):
            at = self._position.get(cpu, -1)
            if any(loss.episode is episode for loss in losses.running):
                return losses.share(at) if at >= 0 and losses.sure[at] else None
        return None


HYPERVISOR_START, HYPERVISOR_END = 0.05, 0.02
"""Shares of the time. Hosts take up to a twentieth for themselves. Most steal is counted in ticks,
and one now and then keeps a loss going."""
MIN_STOLEN_S = 0.03
"""Seconds stolen before a loss is told: three ticks of 10 ms, for one may be a rounding."""


class Hypervisor:
    """Begins and ends episodes of a detector."""

    def __init__(self, sieve: Sieve, detector: Detector, groups: Ints) -> None:
        hello = sieve.hello
        self._names = [[row.cpu] for row in hello.topology]
        self._host = hello.virtualisation
        self._known = bool(sieve.evaluator.chosen.get("steal"))
        self.losses = Losses(
            detector,
            "hypervisor",
            groups,
            hello.sample_ns,
            start=HYPERVISOR_START,
            end=HYPERVISOR_END,
            least=MIN_STOLEN_S,
        )

    def sample(self, seen: Seen, busy: Bools) -> list[Episode]:
        if not self._known or (self.losses.quiet and seen.sample.highest.steal < HYPERVISOR_START):
            return []
        at, values = INDEX["steal"], seen.sample.values
        shares = np.where(busy | self.losses.sure, values.all[at], np.nan)
        everywhere: Bools = np.ones(len(busy), bool)
        over = self.losses.step(shares, values.bottom[at], everywhere, seen.since_ns, seen.time_ns)
        self.losses.begin(everywhere, self._names, seen.time_ns)
        for loss in self.losses.running:
            self._tell(loss.episode, loss.members, seen)
        return over

    def _tell(self, episode: Episode, members: list[int], seen: Seen) -> None:
        """Steal is measured; by whom it was taken nobody in a guest can see."""
        evidence = episode.evidence
        evidence["who"], evidence["rests_on"] = Host(self._host), "stat_steal_s"
        doubted = {key for at in members for key, _ in seen.sample.delta.suspect.get(at, ())}
        for key in sorted(doubted):
            evidence[f"{key} doubted"] = evidence.get(f"{key} doubted", 0) + 1
