"""Computes samples from frames. A sample is the change from one frame to the next: increments of
counters, metrics, SMT states and turbo ceilings. Impossible values are left out.

This module computes both live numbers and numbers from history. A reader that resumes from a saved
state computes the same samples from the same frames.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Bools, Codes, Floats, Ints
from perftop.model.counters import Cores, Counters, rename_misplaced
from perftop.model.delta import Delta, Doubt, carry_lasting_doubts
from perftop.model.evaluation import (
    MIN_LONG_SAMPLE_NS,
    BestTraffic,
    Evaluator,
    LostSeconds,
    MachineTotals,
    Values,
    distribute_steal,
    lost_time,
    memory_traffic,
)
from perftop.model.plausibility import PlausibilityChecks, SiblingChecks
from perftop.model.smt import SmtShares, Splitter, core_lists
from perftop.model.tasks import TaskSnapshot
from perftop.model.turbo import Ceilings, Turbo

Array = TypeVar("Array", Floats, Ints)
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(slots=True)
class SampleBatch:
    """Consecutive samples that were computed together. Arrays have a leading axis of samples."""

    frames: Sequence[wire.Frame]
    """The frame at the end of each sample."""
    since_ns: Ints
    time_ns: Ints
    """Start and end of each sample, in raw ns."""
    delta: Delta
    """Increments; NaN for suspect counters."""
    trusted_delta: Delta
    """Increments without cores whose SMT states are suspect; SMT states use these."""
    values: Values
    split: SmtShares
    ceilings: Ceilings
    lost: LostSeconds
    doubted_samples: Ints
    """Indexes of the samples with a counter that is suspect or was not counted on some CPU. A
    metric over several samples leaves out the samples in which it is unknown."""
    cores: Cores
    best_traffic: Floats | None
    """(samples, packages): the highest memory traffic so far, in bytes per second; None if it is
    not counted or not learned."""
    _computed: dict[Callable[[SampleBatch], Any], Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.frames)

    def suspect_cpus(self, first: int, last: int) -> int:
        """Returns the number of CPUs with a suspect counter, added up over the samples from `first`
        up to but not including `last`."""
        doubted_samples = self.doubted_between(first, last)
        return int(self.delta.doubts[doubted_samples].any(axis=2).sum())

    def doubted_between(self, first: int, last: int) -> Ints:
        """Returns the elements of `doubted_samples` from `first` up to but not including `last`."""
        if not len(self.doubted_samples):  # the usual case
            return self.doubted_samples
        begin, end = self.doubted_samples.searchsorted([first, last])
        return self.doubted_samples[begin:end]

    def cached(self, make: Callable[[SampleBatch], T]) -> T:
        """Returns `make(batch)`, which is computed only once for each batch."""
        value = self._computed.get(make)
        if value is None:
            value = self._computed[make] = make(self)
        result: T = value
        return result


def task_snapshots(batch: SampleBatch) -> dict[int, TaskSnapshot]:
    """Returns the task records in the batch, by index of the sample. Not every sample has one."""
    records = ((index, batch.frames[index].records) for index in batch.cached(record_indexes))
    snapshots = ((index, TaskSnapshot.from_records(of_frame)) for index, of_frame in records)
    return {index: snapshot for index, snapshot in snapshots if snapshot is not None}


def record_indexes(batch: SampleBatch) -> list[int]:
    """Returns the indexes of the samples with records."""
    return [index for index, frame in enumerate(batch.frames) if frame.records]


class Sample:
    """One sample of a batch, the input of detectors. Its times are in raw ns. Its attributes
    are extracted from the batch on first use."""

    def __init__(self, batch: SampleBatch, index: int) -> None:
        self.batch, self.index, self.cores = batch, index, batch.cores
        self.since_ns, self.time_ns = int(batch.since_ns[index]), int(batch.time_ns[index])
        self.records: Mapping[str, object] = batch.frames[index].records
        """Records of the frame, except counters. They are untrusted: readers must check them."""

    @cached_property
    def delta(self) -> Delta:
        return self.batch.delta[self.index]

    @cached_property
    def values(self) -> Values:
        return self.batch.values.samples(self.index)

    @cached_property
    def split(self) -> SmtShares:
        return self.batch.split[self.index]

    @cached_property
    def ceilings(self) -> Ceilings:
        return self.batch.ceilings[self.index]

    @property
    def is_doubted(self) -> bool:
        doubted_samples = self.batch.doubted_samples
        index = doubted_samples.searchsorted(self.index)
        return bool(index < len(doubted_samples) and doubted_samples[index] == self.index)

    def get(self, make: Callable[[SampleBatch], SampleIndexable[T]]) -> T:
        """Returns this sample's element of `make(batch)`, which is computed once per batch."""
        return self.batch.cached(make)[self.index]


class SampleIndexable(Protocol[T_co]):
    def __getitem__(self, sample: int, /) -> T_co: ...


class SampleReader:
    """Computes samples from the frames of one stream."""

    def __init__(self, hello: wire.Hello) -> None:
        hello = rename_misplaced(hello)
        self.hello = hello
        self.counters = Counters(hello)
        self.evaluator = Evaluator(self.counters)
        # An updated hello may list an online CPU but not its core, because the kernel lists no core
        # for a CPU that is offline.
        listed_cpus = {cpu for core in hello.cores for cpu in core}
        rows_with_core = (row for row in hello.topology if row.online and row.core is not None)
        is_complete = all(row.cpu in listed_cpus for row in rows_with_core)
        self.cores = Cores(hello, hello.cores if is_complete else core_lists(hello.topology))
        self.splitter = Splitter(self.counters, self.cores)
        self.position = {row.cpu: i for i, row in enumerate(hello.topology)}
        chosen = self.position if hello.selected is None else hello.selected
        self.selected = [position for cpu, position in self.position.items() if cpu in chosen]
        """Indexes of the selected CPUs. Others are only read because they are siblings of these."""
        self.single_cpus = [[row.cpu] for row in hello.topology]
        """For each CPU, a list with only that CPU, for episodes of single CPUs."""
        self.online: Bools = np.array([row.online for row in hello.topology])
        self._checks = PlausibilityChecks(self.counters)
        self._siblings = SiblingChecks(self.counters, self.splitter)
        self._doubts = self.counters.empty_delta().doubts
        """Doubt codes of the last sample alone, without lasting doubts of earlier samples."""
        self._taken_rows = self._doubts != 0
        """Mask (CPUs, counters) of counters whose registers another program uses."""
        self._carried_s: Floats = np.zeros(len(hello.topology))
        """Stolen seconds of each CPU that count in later samples (see `distribute_steal`)."""
        self._was_read: Bools | bool = False
        """Mask of the values that have ever been read, or one bool for all values."""
        self._has_started = False
        self.turbo = Turbo(self.counters, self.cores)
        self.memory = BestTraffic(self.counters)
        self.totals = MachineTotals(self.counters, self.memory)

    def copy(self) -> SampleReader:
        """Returns a reader in the same state between two frames. Cores, calibrations and the best
        memory traffic are shared."""
        return self.resume(self)

    def resume(self, earlier: SampleReader) -> SampleReader:
        """Returns a reader that continues from the state of an earlier copy, which may be that of
        another reader of this stream. All else is shared with this reader, so that cores,
        calibrations and the best memory traffic are those of its newest sample."""
        reader = copy.copy(self)
        reader.counters, reader.online = earlier.counters.copy(), earlier.online.copy()
        reader._doubts, reader._taken_rows = earlier._doubts, earlier._taken_rows  # noqa: SLF001
        reader._carried_s, reader._was_read = earlier._carried_s, earlier._was_read  # noqa: SLF001
        return reader

    @property
    def nbytes(self) -> int:
        """Size in bytes of the state that copies do not share."""
        arrays = self.online, self._doubts, self._taken_rows, self._carried_s, self._was_read
        return self.counters.differences.nbytes + sum(np.asarray(part).nbytes for part in arrays)

    def regroup(self, topology: Sequence[wire.Cpu]) -> None:
        self.cores = Cores(self.hello, core_lists(topology), topology)
        self.splitter.regroup(self.cores)
        self.turbo.regroup(self.cores)

    def apply_note(self, note: wire.Note) -> tuple[int, bool] | None:
        """Applies a note about a CPU or its registers. For a hotplug note, returns the index of the
        CPU and whether it is online now; None for CPUs that are not in hello and so have no
        rows."""
        self._apply_ownership(note)
        cpu, online = note.data.get("cpu"), bool(note.data.get("online"))
        row = self.position.get(cpu) if isinstance(cpu, int) else None
        if note.kind != "hotplug" or row is None:
            return None
        self.online[row] = online
        if not online:
            self.counters.differences.forget_cpu(row)
        return row, online

    def _apply_ownership(self, note: wire.Note) -> None:
        """Applies an untrusted note that another program started or stopped using registers."""
        cpus, keys = note.data.get("cpus"), note.data.get("counters")
        if note.kind not in {"taken", "given-back"}:
            return
        if not (isinstance(cpus, list) and isinstance(keys, list)):
            return
        rows = [self.position[cpu] for cpu in cpus if type(cpu) is int and cpu in self.position]
        key_indexes = self.counters.key_indexes
        columns = [key_indexes[key] for key in keys if isinstance(key, str) and key in key_indexes]
        self._taken_rows = self._taken_rows.copy()  # copies share the old array
        self._taken_rows[np.ix_(rows, columns)] = note.kind == "taken"

    def skip(self, frames: Sequence[wire.Frame]) -> None:
        """Uses frames only as the baseline of the next sample."""
        if frames:
            self.counters.steps(frames)

    def batches(
        self, frames: Sequence[wire.Frame], before_ns: int = 0, *, learn: bool = False
    ) -> Iterator[SampleBatch]:
        """Yields the samples of frames. The first frame of a stream is only a baseline and has no
        sample. `before_ns`: raw time at which the first sample begins. `learn`: the samples are
        new, so the factors of SMT events are updated from them; a batch ends where a factor
        changes.

        Doubts and factors pass from sample to sample, so one call for many frames gives the same
        result as one call per frame. A caller that stops before the last batch must not continue
        with later frames.
        """
        if not frames:
            return
        delta = self.counters.steps(frames)
        if not self._has_started:
            self._has_started, before_ns = True, frames[0].time_ns
            delta, frames = delta[1:], frames[1:]
        if not frames:
            return
        self._checks.check(self.counters, delta)
        self.counters.blank_doubted(delta)
        values, traffic = self.evaluator.evaluate(delta), None
        siblings = self._siblings.counts(delta, values["util"], self.online)
        if learn:
            traffic = memory_traffic(self.counters, delta)
        while frames:
            count, factor_in_use = len(frames), self.splitter.counter_and_factor
            if learn:
                count = self._siblings.learn(siblings, delta)
                if factor_in_use != self.splitter.counter_and_factor:
                    siblings = self._siblings.counts(delta, values["util"], self.online)
            own_doubts = self._siblings.check(siblings, delta)
            best = None if traffic is None else self.memory.learn(*(p[:count] for p in traffic))
            parts = delta, values
            if count < len(frames):
                parts = delta[:count], values.samples(slice(count))
            yield self._batch(frames[:count], before_ns, *parts, own_doubts[:count], best)
            if count == len(frames):
                return
            before_ns = frames[count - 1].time_ns
            frames, delta = frames[count:], delta[count:]
            values = values.samples(slice(count, None))
            traffic = None if traffic is None else (traffic[0][count:], traffic[1][count:])
            siblings = self._siblings.counts(delta, values["util"], self.online)

    def _batch(
        self, frames: Sequence[wire.Frame], before_ns: int, delta: Delta, values: Values,
        own_doubts: Codes, best: Floats | None,
    ) -> SampleBatch:  # fmt: skip
        doubted_samples: Ints = np.zeros(0, int)
        counts = map(np.count_nonzero, (own_doubts, self._doubts, self._taken_rows))
        if any(counts):  # map() is faster here than a generator
            doubts = carry_lasting_doubts(
                own_doubts, np.concatenate([self._doubts[None], own_doubts[:-1]])
            )
            doubts[self._taken_rows & (doubts == 0)] = Doubt.TAKEN
            doubted_samples = np.flatnonzero(doubts.any(axis=(1, 2)))
        trusted_delta = delta
        if len(doubted_samples):
            delta = delta.copy()
            delta.doubts = doubts
            self.counters.blank_doubted(delta)
            values = self.evaluator.evaluate(delta)
            trusted_delta = self._without_suspects(delta, doubted_samples)
        estimated = None
        if "ref" in self.counters.multiplexed:
            estimated = self.counters.is_estimated(delta, "ref")
            was_missed = self.counters.was_not_counted(delta, "ref")
            doubted_samples = np.union1d(doubted_samples, np.flatnonzero(was_missed.any(axis=-1)))
        if len(partly_read := self._partly_read_samples(delta)):
            doubted_samples = np.union1d(doubted_samples, partly_read)
        self._doubts = own_doubts[-1].copy()  # a view would keep the whole batch in memory
        split = self.splitter.split(delta, values, self.online)
        ceilings = self.turbo.ceilings(delta, values["util"], self.online)
        distribute_steal = (
            self._distribute_steal if self.hello.sample_ns < MIN_LONG_SAMPLE_NS else None
        )
        low_hz = self.cores.by_cpu(ceilings.low_hz)
        lost = lost_time(values, low_hz, self.evaluator, estimated, distribute_steal)
        ends_ns = [before_ns, *[frame.time_ns for frame in frames]]
        times = np.array([min(end_ns, sys.maxsize) for end_ns in ends_ns], np.int64)
        return SampleBatch(
            frames, times[:-1], times[1:], delta, trusted_delta, values, split, ceilings, lost,
            doubted_samples, self.cores, best,
        )  # fmt: skip

    def _partly_read_samples(self, delta: Delta) -> Ints:
        """Returns the indexes of the samples that lack a value which was read before. Metrics over
        an interval leave out these samples."""
        if (is_unread := delta.unread_values) is None:
            self._was_read = True
            return np.zeros(0, int)
        was_read = np.logical_or.accumulate(
            np.concatenate([np.broadcast_to(self._was_read, (1, is_unread.shape[1])), ~is_unread])
        )
        self._was_read = was_read[-1].copy()
        return np.flatnonzero((is_unread & was_read[:-1]).any(axis=1))

    def _distribute_steal(self, stolen_s: Floats, wanted_s: Floats) -> Floats:
        settled_s, self._carried_s = distribute_steal(stolen_s, wanted_s, self._carried_s)
        return settled_s

    def _without_suspects(self, delta: Delta, doubted_samples: Ints) -> Delta:
        """Returns the increments without the cores whose states depend on a suspect counter."""
        keys = {"tsc", self.splitter.any_counter(), *self.evaluator.needed_counters("util")}
        indexes = [i for i, key in enumerate(self.counters.keys) if key in keys]
        trusted_delta = delta.copy()
        for sample in doubted_samples.tolist():
            is_suspect = delta.doubts[sample][:, indexes].any(axis=1)
            is_suspect_core = self.cores.threads(is_suspect.astype(float), 0.0).any(axis=1)
            with_siblings = is_suspect | np.append(is_suspect_core, False)[self.cores.core_by_cpu]
            for block in self.hello.blocks:  # these CPUs count as not read
                if block.scope == "cpu":
                    table = trusted_delta.tables[block.name]
                    table.ticks[sample, with_siblings] = 0.0
                    table.increments[sample, with_siblings] = 0.0
        return trusted_delta


class StackedSamples:
    """Consecutive samples from one or more batches, whose arrays can be joined into one."""

    def __init__(self) -> None:
        self._runs: list[tuple[SampleBatch, int, int]] = []
        self.count = 0

    def add(self, batch: SampleBatch, first: int, last: int) -> None:
        """Adds the samples of a batch from `first` up to but not including `last`."""
        runs = self._runs
        if runs and runs[-1][0] is batch and runs[-1][2] == first:
            runs[-1] = batch, runs[-1][1], last
        else:
            runs.append((batch, first, last))
        self.count += last - first

    def stack(self, get: Callable[[SampleBatch], Array]) -> Array:
        """Returns the arrays that `get` returns for the batches, as one array of all samples."""
        parts = [get(batch)[first:last] for batch, first, last in self._runs]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
