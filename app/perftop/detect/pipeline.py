"""Passes samples to all detectors. A detector skips samples in which its episodes cannot start,
change or end. The detectors of suspect counters and of neighbours are in this file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from perftop.base.arrays import Bools, Ints
from perftop.detect.engine import (
    MIN_BUSY,
    Detector,
    PauseLimits,
    RunningEpisodes,
    busy_cpus,
    demand_share,
    highest_values,
)
from perftop.detect.losses import NeighbourLosses
from perftop.detect.memory_pressure import L3_RECORD, CacheLosses, L3Groups, MemoryLosses
from perftop.detect.ramps import Ramps
from perftop.detect.siblings import SiblingLosses
from perftop.detect.standstill import Halts, Throttles
from perftop.detect.taken_time import InterruptStorms, MemoryStalls, QuotaStops, Smis, Steals
from perftop.detect.turbo_drops import Licenses, TurboDrops
from perftop.detect.watched_job import JobStops, JobWaits, TurboBudget
from perftop.model.confidence import Hypervisor
from perftop.model.counters import packages
from perftop.model.delta import Doubt, first_true
from perftop.model.kinds import Episode
from perftop.model.numbers import INDEX
from perftop.model.sample_reader import (
    Sample,
    SampleBatch,
    SampleReader,
    record_indexes,
    task_snapshots,
)
from perftop.model.tasks import RunningTasks, WatchedJob

MIN_LOOK_AHEAD, MAX_LOOK_AHEAD = 16, 256
"""Minimum and maximum number of samples that a detector examines at once. It starts with the
minimum after a sample in which an episode could start, and doubles it after other calls."""


class Detection:
    def __init__(
        self, reader: SampleReader, episodes: RunningEpisodes, kinds: Collection[str] | None = None,
        *, is_shown: bool,
    ) -> None:  # fmt: skip
        """`kinds`: the kinds of episodes to detect; None: all. `is_shown`: whether a screen reads
        the state of `neighbours` between two calls of `process`."""
        self._reader, self._episodes, self._is_shown = reader, episodes, is_shown
        self._gap_ns = PauseLimits(reader.hello.sample_ns).gap_ns
        self.quotas = QuotaStops(reader, episodes)
        self.neighbours = Neighbours(reader, episodes, self.quotas)
        self.ramps = Ramps(reader)
        # Each detector with the kinds that require it: those that it detects and those whose
        # detectors read its episodes. Detectors of drops and quotas come first, because others read
        # their episodes: time lost in a drop is not counted again, and no task is blamed for time
        # lost to a quota.
        detectors: list[tuple[Detector, set[str]]] = [
            (SuspectCounters(reader, episodes), {"suspect"}),
            (
                TurboDrops(reader, episodes, self.neighbours.watched_job),
                {"turbo-drop", "neighbour", "throttle", "license"},
            ),
            (self.ramps, {"ramp"}),
            (self.quotas, {"quota", "neighbour"}),
            (self.neighbours, {"neighbour", "stopped"}),
            (InterruptStorms(reader, episodes), {"interrupt"}),
            (MemoryStalls(reader, episodes), {"memory-stall"}),
            (Throttles(reader, episodes), {"throttle"}),
            (Licenses(reader, episodes), {"license"}),
            (Halts(reader, episodes), {"involuntary-halt"}),
            (Smis(reader, episodes), {"smi"}),
            (Steals(reader, episodes), {"steal"}),
        ]
        self._detectors = [
            detector for detector, kinds_needing_it in detectors
            if detector.is_available
            and (
                kinds is None or not kinds_needing_it.isdisjoint(kinds)
                # The detector of neighbours also reads the threads of a watched job.
                or (detector is self.neighbours and reader.hello.watch is not None)
            )
        ]  # fmt: skip
        self._batch_sizes = [MIN_LOOK_AHEAD for _ in self._detectors]
        self._batch: SampleBatch | None = None
        self._next_index: list[int] = []
        """For each detector, the index in the batch of the first unprocessed sample."""

    def process(self, batch: SampleBatch, first: int, last: int) -> tuple[int, list[Episode]]:
        """Processes samples of a batch from `first` up to `last`, or up to one in which an episode
        starts or ends. Returns the index of the next sample, and the episodes that ended."""
        if batch is not self._batch:
            self._batch, self._next_index = batch, [0 for _ in self._detectors]
        if self._episodes.running:  # a drop may have started in the last sample
            for number, detector in enumerate(self._detectors):
                if detector.follows_drops:
                    self._next_index[number] = min(self._next_index[number], first)
        gaps = batch.cached(self._gap_mask)
        index = first
        while index < last:
            due = index
            if not gaps[index]:
                stop = first_true(gaps, index)
                for number, next_index in enumerate(self._next_index):
                    if next_index < min(last, stop):
                        self._skip_samples(number, batch, last, stop)
                due, stop = min(self._next_index, default=stop), min(stop, last)
                if due >= stop:
                    index = stop
                    continue
            count, ended = len(self._episodes.running), list[Episode]()
            sample = Sample(batch, due)
            for number, detector in enumerate(self._detectors):
                if self._next_index[number] <= due:
                    ended += detector.process(sample)
                    self._next_index[number] = due + 1
            index = due + 1
            if ended or len(self._episodes.running) != count:
                return index, ended
        return last, []

    def release_batch(self) -> None:
        """Releases the last batch after all of its samples were processed."""
        self._batch = None

    def _skip_samples(self, number: int, batch: SampleBatch, last: int, stop: int) -> None:
        """Lets a detector skip samples up to `last` in which its episodes cannot start. It may look
        ahead up to `stop`, unless a screen shows its state."""
        detector, index = self._detectors[number], self._next_index[number]
        if detector.follows_drops and any(e.kind == "turbo-drop" for e in self._episodes.running):
            return
        if self._is_shown and detector is self.neighbours:
            stop = min(last, stop)
        while index < min(last, stop):
            end = min(stop, index + self._batch_sizes[number])
            due = detector.skip_calm_samples(batch, index, end)
            self._batch_sizes[number] = min(2 * self._batch_sizes[number], MAX_LOOK_AHEAD)
            index = due
            if due < end:
                self._batch_sizes[number] = MIN_LOOK_AHEAD
                break
        self._next_index[number] = index

    def _gap_mask(self, batch: SampleBatch) -> Bools:
        span_ns = batch.time_ns - batch.since_ns
        return (span_ns <= 0) | (span_ns > self._gap_ns)


# --- Detects suspect counters, the affected CPUs, and the time span. A program that reprograms
# counters does so on many CPUs. Each CPU's counter becomes suspect in a different sample, once its
# work contradicts the count. All these CPUs form one episode, whose cause lists the counters.

MIN_CLEAN_NS, MIN_CLEAN_SAMPLES = 1_000_000_000, 3
"""Time in ns and number of samples without a suspect counter that end an episode."""
MAX_JOIN_NS = 2_000_000_000
"""Maximum time in ns from an episode's start until another counter joins it."""
TIME_STAMP_CAUSE = "time stamps"
"""The cause if whole reads are wrong, not single counters."""


@dataclass(slots=True)
class _SuspectEpisode:
    episode: Episode
    last_ns: int
    first_doubts: dict[str, Doubt] = field(default_factory=dict)
    """The first doubt about each counter of the episode."""
    samples: Counter[int] = field(default_factory=Counter)
    """Number of suspect samples of each CPU."""
    new_cpus: set[int] = field(default_factory=set)
    """CPUs on which a counter of the episode is suspect in the newest sample."""

    def includes(self, key: str, time_ns: int) -> bool:
        """Returns whether this suspect counter belongs to the episode."""
        if (key == TIME_STAMP_CAUSE) != (TIME_STAMP_CAUSE in self.first_doubts):
            return False
        return key in self.first_doubts or time_ns - self.episode.start_ns <= MAX_JOIN_NS


class SuspectCounters(Detector):
    def __init__(self, reader: SampleReader, episodes: RunningEpisodes) -> None:
        self._topology, self._episodes = reader.hello.topology, episodes
        self._running: list[_SuspectEpisode] = []

    def skip_calm_samples(self, batch: SampleBatch, first: int, last: int) -> int:
        if self._running:
            return first
        doubted_samples = batch.doubted_samples[batch.doubted_samples.searchsorted(first) :]
        return min(last, int(doubted_samples[0])) if len(doubted_samples) else last

    def process(self, sample: Sample) -> list[Episode]:
        since_ns, time_ns = sample.since_ns, sample.time_ns
        doubts_by_key: dict[str, dict[int, Doubt]] = {}
        """The doubts about each counter, by CPU number."""
        for row, doubts in sample.delta.suspect_counters.items() if sample.is_doubted else ():
            for key, doubt in doubts:
                name = TIME_STAMP_CAUSE if doubt == Doubt.BACKWARDS else key
                doubts_by_key.setdefault(name, {})[self._topology[row].cpu] = doubt
        for running in self._running:
            running.new_cpus.clear()
        for key, cpus in sorted(doubts_by_key.items()):
            including = (e for e in self._running if e.includes(key, time_ns))
            suspect = next(including, None)
            if suspect is None:
                suspect = _SuspectEpisode(self._episodes.begin("suspect", key, since_ns), time_ns)
                self._running.append(suspect)
            suspect.first_doubts.setdefault(key, min(cpus.values()))
            suspect.last_ns = time_ns
            suspect.new_cpus.update(cpus)
        for running in self._running if doubts_by_key else ():
            running.samples.update(running.new_cpus)
            episode = running.episode
            episode.cpus, episode.cause = sorted(running.samples), ", ".join(running.first_doubts)
            reasons = {key: doubt.name.lower() for key, doubt in running.first_doubts.items()}
            episode.evidence = {**reasons, "samples": max(running.samples.values())}
        clean_ns = max(MIN_CLEAN_NS, MIN_CLEAN_SAMPLES * (time_ns - since_ns))
        finished = [e for e in self._running if time_ns - e.last_ns >= clean_ns]
        self._running = [e for e in self._running if e not in finished]
        return [self._episodes.end(e.episode, e.last_ns) for e in finished]


# --- Detects losses to neighbours, on the watched job's CPUs or, without a job, on all busy CPUs.
# Losses to the hypervisor are detected in this file. Other files detect losses to siblings, to
# memory traffic and in run queues, and a clock that other tasks of the package lower.

HYPERVISOR_START, HYPERVISOR_END = 0.05, 0.02
"""Shares of the time at which a loss starts and below which it ends. Hosts themselves use up to 5
%. Most steal is counted in ticks, so an occasional tick continues a loss."""
_RECORDS = {"tasks", "watched", L3_RECORD}
MIN_JOB_BUSY = 0.1
"""Minimum busy share of a CPU of a watched job: lower, because the user asked about the job."""
MIN_STOLEN_S = 0.03
"""Minimum stolen time in s of a reported loss: three ticks of 10 ms. One may be due to rounding."""


class Neighbours(Detector):
    """Detects losses to neighbours. Also updates the watched job and the tasks on each CPU."""

    def __init__(self, reader: SampleReader, episodes: RunningEpisodes, quotas: QuotaStops) -> None:
        hello = reader.hello
        self.watched_job = WatchedJob(hello.watch)
        self.running_tasks = RunningTasks([row.cpu for row in hello.topology])
        self._position = reader.position
        groups = packages(hello)
        self.siblings = SiblingLosses(reader, episodes, self.running_tasks, groups)
        self.hypervisor = HypervisorLosses(reader, episodes, groups)
        self.l3_groups = L3Groups({row.cpu: row.l3 for row in hello.topology})
        self.cache = CacheLosses(reader, episodes, self.running_tasks, self.l3_groups)
        self.memory = MemoryLosses(
            reader, episodes, self.running_tasks, groups, self.l3_groups, self.cache
        )
        self._traffic = [losses for losses in (self.cache, self.memory) if losses.is_available]
        self._learners: list[SiblingLosses | MemoryLosses] = [self.siblings, *self._traffic]
        """The detectors that learn the IPC of undisturbed programs."""
        self._job_waits = JobWaits(
            reader, episodes, self.running_tasks, self.watched_job, groups, quotas
        )
        self._turbo_budget = TurboBudget(reader, episodes, self.running_tasks)
        self._job_stops = JobStops(reader, episodes, self.watched_job)

    def skip_calm_samples(self, batch: SampleBatch, first: int, last: int) -> int:
        if self.watched_job.name is not None or not self.hypervisor.losses.is_quiet:
            return first
        for detector in self._learners:
            if not detector.losses.is_quiet:
                return first
        self.siblings.regroup(batch.cores)
        last = self.hypervisor.skip_calm_samples(batch, first, last)
        indexes = [i for i in batch.cached(_task_record_indexes) if first <= i < last]
        while first < last:
            changes = (i for i in indexes if i >= first and self._shows_change(batch, i))
            end = next(changes, last - 1) + 1
            due = self._learn(batch, first, end)
            for index in indexes:
                if first <= index < due:
                    self._read_records(batch, index)
                    time_ns, busy = int(batch.time_ns[index]), batch.cached(busy_cpus)[index]
                    for detector in self._learners:
                        detector.update_programs(busy, time_ns)
            first = due
            if due < end:
                break
        return first

    def _shows_change(self, batch: SampleBatch, index: int) -> bool:
        """Returns whether a sample's records show a changed program on a busy CPU."""
        if (tasks := batch.cached(self._top_tasks).get(index)) is None:
            return False
        busy = batch.cached(busy_cpus)[index]
        return any(detector.has_program_changed(busy, tasks) for detector in self._learners)

    def _top_tasks(self, batch: SampleBatch) -> dict[int, Ints]:
        """Returns `RunningTasks.top_task_ids` for the samples with a record of tasks, by index."""
        snapshots = batch.cached(task_snapshots)
        ids_of = self.running_tasks.top_task_ids_of
        return {index: ids_of(tasks) for index, tasks in snapshots.items()}

    def _learn(self, batch: SampleBatch, first: int, last: int) -> int:
        """Learns from samples. Returns the index of the first possible loss, or `last`."""
        if not batch.cached(busy_cpus)[first:last].any():
            return last
        due, look_ahead = self.siblings.look_ahead(batch, first, last)
        learned = [detector.programs.learned_sums for detector in self._traffic]
        ends = []
        for detector in self._traffic:
            due = detector.skip_calm_samples(batch, first, due)
            ends.append(due)
        for detector, sums, end in zip(self._traffic, learned, ends, strict=True):
            if end > due:  # undo learning from later samples
                detector.programs.learned_sums = sums
                detector.skip_calm_samples(batch, first, due)
        self.siblings.learn_ahead(look_ahead, batch.time_ns[first:due])
        return due

    def _read_records(self, batch: SampleBatch, index: int) -> None:
        records, time_ns = batch.frames[index].records, int(batch.time_ns[index])
        if (snapshot := batch.cached(task_snapshots).get(index)) is not None:
            self.running_tasks.update(snapshot, batch.cached(self._top_tasks)[index], time_ns)
        self.watched_job.read_record(records, time_ns)
        self.l3_groups.read_records(records, time_ns)

    def process(self, sample: Sample) -> list[Episode]:
        self._read_records(sample.batch, sample.index)
        job_pids = None
        if self.watched_job.name is not None:
            job_pids = self.watched_job.pids()
            rows = [self._position[cpu] for cpu in self.watched_job.cpus() if cpu in self._position]
            busy = np.asarray(sample.get(demand_share) >= MIN_JOB_BUSY)
            busy &= np.isin(np.arange(len(busy)), rows)
        elif (
            sample.batch.cached(highest_values).util_and_steal[sample.index] < MIN_BUSY
            and self.siblings.losses.is_quiet
            and self.hypervisor.losses.is_quiet
        ):
            return []
        else:
            busy = sample.get(busy_cpus)
        ended = self.siblings.process(sample, busy, job_pids)
        ended += self.hypervisor.process(sample, busy)
        ended += self.cache.process(sample, busy, job_pids)
        ended += self.memory.process(sample, busy, job_pids)
        if job_pids is not None:
            ended += self._job_waits.process(sample, job_pids)
            ended += self._turbo_budget.process(sample, busy, job_pids)
            ended += self._job_stops.process(sample)
        return ended

    def share(self, episode: Episode, cpu: int) -> float | None:
        """Returns the share that a CPU has lost so far in a running episode; None if unknown."""
        index = self._position.get(cpu, -1)
        measured_losses = self.siblings.losses, self.hypervisor.losses, self._job_waits.losses
        for losses in (*measured_losses, self.memory.losses, self.cache.losses):
            if any(loss.episode is episode for loss in losses.running):
                is_known = index >= 0 and losses.is_in_episode[index]
                return losses.lost_share(index) if is_known else None
        return None


def _task_record_indexes(batch: SampleBatch) -> list[int]:
    """Returns the indexes of the samples with records of tasks or of L3s."""
    frames = batch.frames
    return [i for i in batch.cached(record_indexes) if not _RECORDS.isdisjoint(frames[i].records)]


class HypervisorLosses:
    """Detects that the hypervisor takes time of busy CPUs."""

    def __init__(self, reader: SampleReader, episodes: RunningEpisodes, groups: Ints) -> None:
        self._cpu_lists = reader.single_cpus
        self._host = reader.hello.virtualisation
        self._has_steal = bool(reader.evaluator.variants.get("steal"))
        limits = HYPERVISOR_START, HYPERVISOR_END
        self.losses = NeighbourLosses(
            reader, episodes, "hypervisor", groups, *limits, min_loss=MIN_STOLEN_S
        )

    def skip_calm_samples(self, batch: SampleBatch, first: int, last: int) -> int:
        """Returns the first sample in which a loss may start, or `last`. Not valid during a
        loss."""
        if not self._has_steal:
            return last
        return first_true(batch.cached(highest_values).steal >= HYPERVISOR_START, first, last)

    def process(self, sample: Sample, busy: Bools) -> list[Episode]:
        steal = sample.batch.cached(highest_values).steal[sample.index]
        if not self._has_steal or (self.losses.is_quiet and steal < HYPERVISOR_START):
            return []
        index, values = INDEX["steal"], sample.values
        shares = np.where(busy | self.losses.is_in_episode, values.metrics[index], np.nan)
        all_cpus: Bools = np.ones(len(busy), bool)
        ended = self.losses.step(
            shares, values.denominators[index], all_cpus, sample.since_ns, sample.time_ns
        )
        self.losses.begin(all_cpus, self._cpu_lists, sample.time_ns)
        for loss in self.losses.running:
            # Steal is measured, but a guest cannot see which other guest uses the time.
            evidence, suspect = loss.episode.evidence, sample.delta.suspect_counters
            evidence["who"], evidence["rests_on"] = Hypervisor(self._host), "stat_steal_s"
            for key in sorted({key for index in loss.members for key, _ in suspect.get(index, ())}):
                evidence[f"{key} doubted"] = evidence.get(f"{key} doubted", 0) + 1
        return ended
