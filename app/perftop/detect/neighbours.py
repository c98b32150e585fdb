"""Detects losses to neighbours: of the CPUs of the watched job, or of all busy CPUs if no job is
watched. Losses to the hypervisor are detected in this file; losses to siblings, to memory traffic,
in run queues, and of clock to other tasks of the package are detected in files of their own."""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Bools, Ints, first_true
from perftop.detect.engine import DetectorInput, RunningEpisodes, highest
from perftop.detect.losses import MIN_BUSY, MIN_JOB_BUSY, NeighbourLosses, busy_cpus, wanted_share
from perftop.detect.memory_pressure import Memory
from perftop.detect.quotas import QuotaStops
from perftop.detect.siblings import Siblings
from perftop.detect.watched_job import Budget, Scheduler
from perftop.model import memory
from perftop.model.cores import packages
from perftop.model.episode import Episode, Host
from perftop.model.memory import L3Groups
from perftop.model.numbers import INDEX
from perftop.model.sample_reader import SampleBatch, SampleReader
from perftop.model.tasks import RunningTasks, WatchedJob

HYPERVISOR_START, HYPERVISOR_END = 0.05, 0.02
"""Shares of the time, at which a loss starts and below which it ends. Hosts take up to a twentieth
for themselves. Most steal is counted in ticks, and an occasional tick keeps a loss running."""
_RECORDS = {"tasks", "watched", memory.RECORD}
"""Records of a frame that change what is known of tasks, of the watched job and of L3s."""
MIN_STOLEN_S = 0.03
"""Minimum stolen time in s before a loss is reported: three ticks of 10 ms, because a single tick
may be due to rounding."""


class Neighbours:
    """Detects losses to neighbours. Owns the watched job and the tasks on each CPU."""

    def __init__(self, reader: SampleReader, episodes: RunningEpisodes, quotas: QuotaStops) -> None:
        hello = reader.hello
        self.available = True
        self.watched_job, self.running_tasks = WatchedJob(hello.watch), RunningTasks()
        self._position = reader.position
        groups = packages(hello)
        self.siblings = Siblings(reader, episodes, self.running_tasks, groups)
        self.hypervisor = Hypervisor(reader, episodes, groups)
        self.l3_groups = L3Groups(hello.topology)
        self.memory = Memory(reader, episodes, self.running_tasks, groups, self.l3_groups)
        self.scheduler = Scheduler(
            reader, episodes, self.running_tasks, self.watched_job, groups, quotas
        )
        self.budget = Budget(reader, episodes, self.running_tasks)

    def calm(self, batch: SampleBatch, first: int, last: int) -> int:
        detectors = self.siblings, self.hypervisor, self.memory
        if self.watched_job.name is not None or not all(d.losses.quiet for d in detectors):
            return first
        last = first_true(batch.once(_with_records), first, last)
        last = self.hypervisor.calm(batch, first, last)
        if first == last or not batch.once(busy_cpus)[first:last].any():
            return last
        due, outlook = self.siblings.ahead(batch, first, last)
        if self.memory.known and first < due:
            due = self.memory.calm(batch, first, due)
        self.siblings.take(outlook, batch.time_ns[first:due])
        return due

    def sample(self, data: DetectorInput) -> list[Episode]:
        """Returns the episodes that this sample ended."""
        self.running_tasks.take(data.records, data.time_ns)
        self.watched_job.take(data.records, data.time_ns)
        self.l3_groups.take(data.records, data.time_ns)
        own = None
        if self.watched_job.name is not None:
            own = self.watched_job.pids()
            rows = [self._position[cpu] for cpu in self.watched_job.cpus() if cpu in self._position]
            busy = np.asarray(data.sample.part(wanted_share) >= MIN_JOB_BUSY)
            busy &= np.isin(np.arange(len(busy)), rows)
        elif (
            data.sample.batch.once(highest).busy[data.sample.index] < MIN_BUSY
            and self.siblings.losses.quiet
            and self.hypervisor.losses.quiet
        ):
            return []
        else:
            busy = data.sample.part(busy_cpus)
        ended = self.siblings.sample(data, busy, own)
        ended += self.hypervisor.sample(data, busy)
        ended += self.memory.sample(data, busy, own)
        if own is not None:
            ended += self.scheduler.sample(data, own)
            ended += self.budget.sample(data, busy, own)
        return ended

    def share(self, episode: Episode, cpu: int) -> float | None:
        """Returns the share that this CPU has lost so far in a running episode; None if it is not
        known by CPU."""
        at = self._position.get(cpu, -1)
        for detector in (self.siblings, self.hypervisor, self.memory, self.scheduler):
            losses = detector.losses
            if any(loss.episode is episode for loss in losses.running):
                return losses.share(at) if at >= 0 and losses.sure[at] else None
        return None


def _with_records(batch: SampleBatch) -> Bools:
    """Returns, by sample, whether it has records of tasks or of L3s."""
    return np.array([not _RECORDS.isdisjoint(frame.records) for frame in batch.frames], bool)


class Hypervisor:
    """Detects losses of busy CPUs to the hypervisor, which runs something else during their
    time."""

    def __init__(self, reader: SampleReader, episodes: RunningEpisodes, groups: Ints) -> None:
        hello = reader.hello
        self._names = reader.single_cpus
        self._host = hello.virtualisation
        self._known = bool(reader.evaluator.chosen.get("steal"))
        self.losses = NeighbourLosses(
            episodes, "hypervisor", groups, hello.sample_ns,
            start=HYPERVISOR_START, end=HYPERVISOR_END, least=MIN_STOLEN_S,
        )  # fmt: skip

    def calm(self, batch: SampleBatch, first: int, last: int) -> int:
        """Returns the index of the first of these samples in which a loss may start, or `last`. No
        loss must be running."""
        if not self._known:
            return last
        return first_true(batch.once(highest).steal >= HYPERVISOR_START, first, last)

    def sample(self, data: DetectorInput, busy: Bools) -> list[Episode]:
        steal = data.sample.batch.once(highest).steal[data.sample.index]
        if not self._known or (self.losses.quiet and steal < HYPERVISOR_START):
            return []
        at, values = INDEX["steal"], data.sample.values
        shares = np.where(busy | self.losses.sure, values.all[at], np.nan)
        everywhere: Bools = np.ones(len(busy), bool)
        over = self.losses.step(shares, values.bottom[at], everywhere, data.since_ns, data.time_ns)
        self.losses.begin(everywhere, self._names, data.time_ns)
        for loss in self.losses.running:
            # Steal is measured, but a guest cannot see which other guest benefits.
            evidence, suspect = loss.episode.evidence, data.sample.delta.suspect
            evidence["who"], evidence["rests_on"] = Host(self._host), "stat_steal_s"
            for key in sorted({key for at in loss.members for key, _ in suspect.get(at, ())}):
                evidence[f"{key} doubted"] = evidence.get(f"{key} doubted", 0) + 1
        return over
