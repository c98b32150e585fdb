"""The sums over the samples of a run or of a past span: counters, times of tasks and losses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from perftop.base.arrays import Floats
from perftop.model.control_groups import Quotas
from perftop.model.kinds import Episode
from perftop.model.numbers import MACHINE
from perftop.model.sample_reader import SampleBatch, SampleReader, record_indexes, task_snapshots
from perftop.model.tasks import TaskSnapshot, WatchedJob
from perftop.session.history import MAX_TASKS_AGE_NS, History
from perftop.session.interval import Distribution, Span
from perftop.session.losses import (
    SPLIT_LOCK_CAUSE,
    CauseKey,
    Losses,
    LossSums,
    RecordHints,
    TaskTimeSpan,
)
from perftop.session.run_phases import BusyCpus, JobMoment, JobMoments, RunPhase, phases
from perftop.session.task_times import RunTimes

Causes = Callable[[int, int], list[Episode]]
"""Returns the possible causes of losses between two raw times."""


@dataclass(frozen=True)
class Totals(TaskTimeSpan):
    """The times and losses of a span. Those of a run grow; `copy` returns fixed ones."""

    losses: LossSums
    span: Span

    def copy(self) -> Totals:
        return replace(self, times=self.times.copy(), span=self.span.copy())

    def minus(self, earlier: Totals) -> Totals:
        """Returns the totals after the end of `earlier`, which must have the same start."""
        times = self.times.minus(earlier.times, (self.end_ns - earlier.end_ns) / 1e9)
        losses = self.losses.minus(earlier.losses)
        span = self.span.minus(earlier.span, earlier.end_ns)
        return Totals(earlier.end_ns, self.end_ns, times, losses, span)


class RunSums:
    """Sums over samples. Times of tasks and losses are only added up after `track_losses`."""

    def __init__(
        self, reader: SampleReader, start_ns: int, job: WatchedJob, quotas: Quotas,
        hints: RecordHints, causes: Causes, *, summarises: bool = False, by_cpu: bool = True,
    ) -> None:  # fmt: skip
        """`job`, `quotas`, `hints`: those of the stream, which the owner updates before it adds a
        sample. `summarises`: whether `distribution` is needed; `by_cpu`: also of single CPUs."""
        self._reader, self.job, self.quotas = reader, job, quotas
        self._hints, self._causes = hints, causes
        self._summarises, self._by_cpu = summarises, by_cpu
        self.tracks_losses = self._tracks_phases = False
        """Whether losses and times of tasks are added up, and the data of `phases`."""
        self._snapshot = TaskSnapshot()
        """The tasks at the end of the newest sample."""
        self._start(start_ns)

    def _start(self, start_ns: int) -> None:
        cpus = [*self._reader.position]
        self.span = Span.empty(self._reader, start_ns)
        self.end_ns = start_ns
        """Raw time of the end of the newest sample."""
        self.distribution = Distribution(self._reader.selected, by_cpu=self._by_cpu)
        self.times = RunTimes(cpus, self.quotas, self._reader.selected)
        self._losses, self.busy_cpus, self._moments = Losses(cpus), BusyCpus(), JobMoments()

    def begin(self, start_ns: int, snapshot: TaskSnapshot) -> None:
        """Sets the start. `snapshot`: the tasks at that time."""
        self.span.start_ns = self.end_ns = start_ns
        self._snapshot = snapshot

    def reset(self, start_ns: int) -> None:
        """Starts all sums again with the next sample, which begins at `start_ns`."""
        job = self.times.job
        job.reset()
        self._start(start_ns)
        self.times.job = job

    def track_losses(self, *, losses_only: bool = False) -> None:
        """Starts to add up the times of tasks and the time lost to each cause. On a big machine,
        this takes milliseconds of CPU time per second. `losses_only`: omits `busy_cpus` and
        `phases`, which only the summary of a run shows."""
        self.tracks_losses, self._tracks_phases = True, not losses_only

    @property
    def start_ns(self) -> int:
        return self.span.start_ns

    def room_for_samples(self, batch: SampleBatch, first: int, last: int) -> int:
        """Returns how many of these samples may be added at once."""
        if self.job.name is not None:
            return 1  # only the job's newest record is used
        if not self.tracks_losses or last <= first + 1:
            return last - first
        return self._losses.room_for_samples(batch.since_ns[first:last], batch.time_ns[first:last])

    def add(self, batch: SampleBatch, first: int, last: int) -> None:
        """Adds the samples of a batch from `first` up to but not including `last`."""
        self.end_ns = int(batch.time_ns[last - 1])
        self.span.add(batch, first, last)
        if self._summarises:
            self.distribution.add(batch, first, last)
        snapshots = batch.cached(task_snapshots).items()
        new_snapshots = {i: snapshot for i, snapshot in snapshots if first <= i < last}
        if self.tracks_losses:
            for index, snapshot in new_snapshots.items():
                time_ns = batch.frames[index].time_ns
                ran_s, waited_s = self.times.add_snapshot(snapshot, self.start_ns, time_ns)
                if self.job.name is None:
                    self._losses.add_wait(waited_s, ran_s)
            self._add_losses(batch, first, last)
        else:
            self.times.job.add_record(self.job, self.end_ns)
        if self._tracks_phases:
            util = np.where(self._reader.online, batch.values["util"][first:last], np.nan)
            span_s = (batch.time_ns[first:last] - batch.since_ns[first:last]) / 1e9
            snapshots_by_sample = {0: self._snapshot}
            snapshots_by_sample |= {i - first: tasks for i, tasks in new_snapshots.items()}
            self.busy_cpus.add(util[:, self._reader.selected], span_s, snapshots_by_sample)
        self._snapshot = next(reversed(new_snapshots.values()), self._snapshot)

    def _add_losses(self, batch: SampleBatch, first: int, last: int) -> None:
        run_s, part = None, slice(first, last)
        if self.job.name is not None:
            run_s, waited_s = self.times.add_job_record(self.job, self.end_ns)
            # An upper bound of the time for which one task waited for a disk. The kernel averages
            # I/O pressure over the CPUs that are not idle, which include those whose tasks wait.
            counters, key = self._reader.counters, MACHINE["pressure_io"].counter
            if (stalls_s := counters.increments(batch.delta[part], key)) is not None:
                util = batch.values["util"][part]
                cpus = np.minimum(1 + np.nansum(util, 1), util.shape[1])
                self.times.io_stall_s += float(np.nansum(stalls_s[:, 0] * cpus))
            self._losses.add_wait(waited_s)
            if self.job.time_ns == self.end_ns and self._tracks_phases:
                self._moments.add_moment(self.end_ns, self.times)
        lost = batch.lost.samples(part)
        self._losses.add(lost, batch.since_ns[part], batch.time_ns[part], run_s)
        if (oldest_ns := self._losses.oldest_due_ns(self.end_ns)) is not None:
            self._losses.settle(self._causes(oldest_ns, self.end_ns), self.end_ns)

    def add_mark(self, time_ns: int, label: str) -> None:
        """Adds a mark at which a phase may begin."""
        if self._tracks_phases:
            self._moments.add_mark(time_ns, label, self.times)

    def phases(self) -> list[RunPhase]:
        """Returns the watched job's phases since the start. Requires `track_losses` before."""
        start = JobMoment(self.start_ns, None, RunTimes([*self._reader.position]))
        end = JobMoment(self.end_ns, None, self.times.copy(job_only=True))
        return phases(self._moments, start, end)

    def totals(self) -> Totals:
        """Returns the totals since the start. Requires `track_losses` at the start."""
        return Totals(self.start_ns, self.end_ns, self.times, self.lost_time(), self.span)

    def totals_of_past(self, history: History, begin_ns: int, end_ns: int) -> Totals:
        """Returns the totals between two moments from `History.span`, added up again with the
        causes known now."""
        reader, batches = history.reread(self._reader, begin_ns, end_ns)
        job, quotas = WatchedJob(self.job.name), Quotas()
        sums = RunSums(reader, begin_ns, job, quotas, self._hints, self._causes)
        sums.track_losses(losses_only=True)
        sums.times.job.root = self.times.job.root
        if begin_ns > self.start_ns:  # read the counts at the start of the span
            sums.times.job.is_past_start = True
            for time_ns, records in history.records(begin_ns - MAX_TASKS_AGE_NS, begin_ns):
                job.read_record(records, time_ns)
                quotas.read_records(records)
                sums.times.job.add_record(job, time_ns)
            sums.reset(begin_ns)
        for batch in batches:
            first = 0
            for last in sorted({*(i + 1 for i in batch.cached(record_indexes)), len(batch)}):
                newest_frame = batch.frames[last - 1]
                job.read_record(newest_frame.records, newest_frame.time_ns)
                quotas.read_records(newest_frame.records)
                sums.add(batch, first, last)
                first = last
        return sums.totals()

    def lost_time(self) -> LossSums:
        """Returns the losses since the start, by cause, of the watched job or, without a job, of
        the selected CPUs. Requires `track_losses` at the start."""
        assert self.tracks_losses
        position, start_ns, end_ns = self._reader.position, self.start_ns, self.end_ns
        sums = self._losses.sums(self._causes(self._losses.unsettled_ns, end_ns))
        if len(self._reader.selected) < len(position) and self.job.name is None:
            sums = sums.only_cpus(self._reader.selected)
        times = self.times
        if times.was_throttled:  # `tasks` is slow on a big machine
            sums = sums.with_quotas(times.throttled_by_cpu(times.threads or times.tasks))
        blocked_s = times.by_cpu("blocked_s")
        interrupts_s: dict[CauseKey, Floats] = {}
        stalled_s: dict[CauseKey, float] = {}
        if blocked_s.any() or any(kind == "interrupt" for kind, _ in sums.by_cause):
            for episode in self._causes(start_ns, end_ns):
                cause, taken_s = (episode.kind, episode.cause), np.zeros(len(position))
                if episode.kind == "interrupt":
                    seconds = episode.lost_share * episode.span_s(start_ns, end_ns)
                    taken_s[position[episode.cpus[0]]] = seconds
                    interrupts_s[cause] = interrupts_s.get(cause, 0.0) + taken_s
                elif episode.kind == "memory-stall":
                    seconds = episode.lost_s(end_ns, start_ns)
                    stalled_s[cause] = stalled_s.get(cause, 0.0) + seconds
        sums = sums.with_interrupts(interrupts_s, (end_ns - start_ns) / 1e9)
        if times.threads:
            sums = sums.with_stops(times.by_cpu("stop_loss_s"))
            split_s = times.split_locks_by_cpu(self._hints.split_lock_tids())
            sums = sums.with_stops(split_s, SPLIT_LOCK_CAUSE)
        return sums.with_blocked(stalled_s, blocked_s)
