"""Who loses to others: the CPUs of the job that is watched, or all that are busy if none is."""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Bools
from perftop.detect.engine.detector_input import Seen
from perftop.detect.engine.episode_log import Detector
from perftop.detect.neighbours.hypervisor import Hypervisor
from perftop.detect.neighbours.memory import Memory
from perftop.detect.neighbours.run_queues import Scheduler
from perftop.detect.neighbours.shared_power import Budget
from perftop.detect.neighbours.siblings import Siblings
from perftop.detect.neighbours.work import BUSY, JOB_BUSY, busy_cpus, wanted
from perftop.model.cores import packages
from perftop.model.episode import Episode
from perftop.model.job_threads import Watching
from perftop.model.l3_groups import L3Groups
from perftop.model.running_tasks import Company
from perftop.model.sample_reader import Sieve


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
        if quiet and self.watching.name is None and seen.sample.highest.busy < BUSY:
            return []
        if self.watching.name is None:
            busy = seen.sample.part(busy_cpus)
            return [
                *self.siblings.sample(seen, busy, None),
                *self.hypervisor.sample(seen, busy),
                *self.memory.sample(seen, busy, None),
            ]
        own = self.watching.pids()
        busy = self._mine() & np.asarray(seen.sample.part(wanted) >= JOB_BUSY)
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
