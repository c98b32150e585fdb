"""Computes samples from frames, without the values that cannot be true.

Both live numbers and numbers read back from history come from here: a reader that resumes from an
earlier state computes the same samples from the same frames.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Bools, Codes, Floats, Ints
from perftop.model import memory
from perftop.model.cores import Cores
from perftop.model.counters import Counters, rename_misplaced
from perftop.model.delta import Delta, Doubt, with_lasting
from perftop.model.evaluation import Evaluator, Lost, Values, lost_time, write_lost
from perftop.model.gates import Gates, SiblingGates
from perftop.model.machine_totals import MachineTotals
from perftop.model.numbers import INDEX
from perftop.model.smt import Split, Splitter, core_lists
from perftop.model.turbo import Ceilings, Turbo

Array = TypeVar("Array", Floats, Ints)
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class BySample(Protocol[T_co]):
    def __getitem__(self, sample: int, /) -> T_co: ...


class Maxima(NamedTuple):
    """The highest values among the CPUs; 0 where no value is known. In most samples these maxima
    show that most detectors have nothing to do."""

    stolen_s: float
    steal: float
    busy: float
    """The sum of utilisation and steal."""
    involuntary: float


@dataclass(slots=True)
class SampleBatch:
    """Samples that were computed together. All parts have a leading axis of samples."""

    delta: Delta
    values: Values
    fresh: Codes
    """Doubts of each sample by itself, without the lasting doubts of earlier samples."""
    split: Split
    ceilings: Ceilings
    lost: Lost
    doubted: list[bool]
    highest: list[list[float]]
    """The fields of Maxima, for each sample."""
    cores: Cores
    _made: dict[Callable[[SampleBatch], Any], Any] = field(default_factory=dict)

    def once(self, make: Callable[[SampleBatch], T]) -> T:
        """Returns the result of `make` for the batch; `make` is called only once."""
        made = self._made.get(make)
        if made is None:
            made = self._made[make] = make(self)
        result: T = made
        return result


class Sample:
    """The difference between one frame and the previous frame: one index in a batch. Parts that are
    rarely read are extracted from the batch on first use."""

    def __init__(self, batch: SampleBatch, at: int, whole: Delta | None = None) -> None:
        """`whole`: None if no counter of the sample is suspect."""
        self.batch, self.index = batch, at
        self.delta = batch.delta[at]
        """Differences, with NaN for suspect counters."""
        self.whole = whole or self.delta
        """Differences without the CPUs of cores whose SMT states are suspect, so that sums of these
        differences can be split into states."""
        self.doubted = batch.doubted[at]
        """Whether any counter is suspect."""
        self.highest = Maxima(*batch.highest[at])

    @cached_property
    def values(self) -> Values:
        return self.batch.values.samples(self.index)

    @cached_property
    def split(self) -> Split:
        return self.batch.split[self.index]

    @cached_property
    def ceilings(self) -> Ceilings:
        return self.batch.ceilings[self.index]

    @property
    def lost(self) -> Lost:
        lost = self.batch.lost
        return Lost(lost.wanted_s[self.index], lost.parts_s[self.index])

    def part(self, make: Callable[[SampleBatch], BySample[T]]) -> T:
        """Returns the result of `make` for this sample; `make` is called only once for the whole
        batch."""
        return self.batch.once(make)[self.index]


@dataclass(frozen=True, slots=True)
class ReaderState:
    """The state of a reader between two frames; it is never modified."""

    counters: Counters
    online: Bools
    doubts: Codes
    taken: Bools

    @property
    def nbytes(self) -> int:
        return self.counters.nbytes + self.online.nbytes + self.doubts.nbytes + self.taken.nbytes


class SampleReader:
    """Computes samples from the frames of one stream."""

    def __init__(self, hello: wire.Hello) -> None:
        hello = rename_misplaced(hello)
        self.hello = hello
        self.counters = Counters(hello)
        self.evaluator = Evaluator(self.counters)
        # An updated hello may list an online CPU that is in none of its cores, because the kernel
        # lists no core for an offline CPU.
        listed = {cpu for core in hello.cores for cpu in core}
        came = (row for row in hello.topology if row.online and row.core is not None)
        complete = all(row.cpu in listed for row in came)
        self.cores = Cores(hello, hello.cores if complete else core_lists(hello.topology))
        self.splitter = Splitter(self.counters, self.cores)
        self.position = {row.cpu: i for i, row in enumerate(hello.topology)}
        self.single_cpus = [[row.cpu] for row in hello.topology]
        """The list of CPUs at each position, for episodes of single CPUs."""
        self.online: Bools = np.array([row.online for row in hello.topology])
        self._gates = Gates(self.counters)
        self._siblings = SiblingGates(self.counters, self.splitter)
        self._doubts = self.counters.empty_delta().doubts
        """Doubts of the last sample by itself, without the lasting doubts of earlier samples."""
        self._taken = self._doubts != 0
        """(CPUs, counters): mask of the counters whose registers another program uses, according to
        the notes of the probe."""
        self._started = False
        self.turbo = Turbo(self.counters, self.cores)
        self.memory = memory.BestTraffic(self.counters)
        self.totals = MachineTotals(self.counters, self.memory)

    def state(self) -> ReaderState:
        return ReaderState(self.counters.copy(), self.online.copy(), self._doubts, self._taken)

    def resumed(self, state: ReaderState) -> SampleReader:
        """Returns a reader in that state. It shares the current cores, calibrations and best memory
        traffic with this reader."""
        twin = copy.copy(self)
        twin.counters = state.counters.copy()
        twin.online = state.online.copy()
        twin._doubts, twin._taken = state.doubts, state.taken  # noqa: SLF001
        return twin

    def regroup(self, cores: list[list[int]]) -> None:
        self.cores = Cores(self.hello, cores)
        self.splitter.regroup(self.cores)
        self.turbo.regroup(self.cores)

    def hotplug(self, note: wire.Note) -> tuple[int, bool] | None:
        """Returns the position of the CPU that went offline or online, and whether it is online
        now. Returns None for other notes, and for a CPU that hello did not list, because such a CPU
        has no row in any frame."""
        cpu, online = note.data.get("cpu"), bool(note.data.get("online"))
        row = self.position.get(cpu) if isinstance(cpu, int) else None
        if note.kind != "hotplug" or row is None:
            return None
        self.online[row] = online
        if not online:
            self.counters.forget(row)
        return row, online

    def ownership(self, note: wire.Note) -> None:
        """Handles a note that another program took the registers of counters or gave them back. The
        note's data are untrusted."""
        cpus, keys = note.data.get("cpus"), note.data.get("counters")
        if note.kind not in {"taken", "given-back"}:
            return
        if not (isinstance(cpus, list) and isinstance(keys, list)):
            return
        rows = [self.position[cpu] for cpu in cpus if type(cpu) is int and cpu in self.position]
        at = self.counters.key_at
        columns = [at[key] for key in keys if isinstance(key, str) and key in at]
        self._taken = self._taken.copy()  # states that `state` returned must not change
        self._taken[np.ix_(rows, columns)] = note.kind == "taken"

    def skip(self, frames: Sequence[wire.Frame]) -> None:
        """Uses frames only as the baseline of the next sample."""
        if frames:
            self.counters.steps(frames)

    def samples(
        self, frames: Sequence[wire.Frame], *, learn: bool = False
    ) -> Iterator[Sample | None]:
        """Yields the sample of each frame; None for the first frame of the stream, which is only a
        baseline. `learn`: the samples are new, so they are used as evidence for the factors of
        counters.

        The frames are computed together, but doubts and factors carry over from sample to sample,
        so the result is the same as with one call for each frame. A caller that stops before the
        last sample must not continue with later frames."""
        if not frames:
            return
        delta, count = self.counters.steps(frames), len(frames)
        if not self._started:
            self._started = True
            yield None
            delta, count = delta[1:], count - 1
        if count:
            yield from self._judged(delta, count, learn=learn)

    def _judged(self, delta: Delta, count: int, *, learn: bool) -> Iterator[Sample]:
        self._gates.check(self.counters, delta)
        self.counters.blank_doubted(delta)
        values = self.evaluator.evaluate(delta)
        siblings = self._siblings.counts(delta, values["util"], self.online)
        evidence = self._siblings.evidence(siblings, delta) if learn else None
        traffic = memory.traffic(self.counters, delta) if learn else None
        batch, begin, unit = None, 0, self.splitter.unit
        for i in range(count):
            if evidence is not None:
                self._siblings.learn(evidence, i)
            if learn and unit != self.splitter.unit:  # the event or its factor changed
                unit, batch = self.splitter.unit, None
                siblings = self._siblings.counts(delta, values["util"], self.online)
                evidence = self._siblings.evidence(siblings, delta)
            if batch is None:
                begin, fresh = i, self._siblings.check(siblings, delta)[i:]
                rest = (delta[i:], values.samples(slice(i, None))) if i else (delta, values)
                batch = self._batch(*rest, fresh)
            if traffic is not None:
                self.memory.learn(traffic[0][i], traffic[1][i])
            at = i - begin
            self._doubts = batch.fresh[at].copy()  # a view would keep the whole batch in memory
            whole = self._whole(batch.delta[at]) if batch.doubted[at] else None
            yield Sample(batch, at, whole)

    def _batch(self, delta: Delta, values: Values, fresh: Codes) -> SampleBatch:
        doubted: list[bool] = [False] * len(fresh)
        if any(np.count_nonzero(codes) for codes in (fresh, self._doubts, self._taken)):
            doubts = with_lasting(fresh, np.concatenate([self._doubts[None], fresh[:-1]]))
            doubts[self._taken & (doubts == 0)] = Doubt.TAKEN
            doubted = np.asarray(doubts.any(axis=(1, 2))).tolist()
        if any(doubted):
            delta = delta.copy()
            delta.doubts = doubts
            self.counters.blank_doubted(delta)
            values = self.evaluator.evaluate(delta)
        split = self.splitter.split(delta, values, self.online)
        ceilings = self.ceilings(delta, values)
        lost = lost_time(values, self.cores.by_cpu(ceilings.low_hz), self.evaluator)
        write_lost(values, lost)
        steal = values["steal"]
        busy = values["util"] + np.where(np.isnan(steal), 0.0, steal)
        stolen_s = values.top[..., INDEX["steal"], :]
        maxima = np.array([stolen_s, steal, busy, values["involuntary"]])
        highest = np.fmax.reduce(maxima, axis=-1, initial=0.0).T.tolist()
        return SampleBatch(
            delta, values, fresh, split, ceilings, lost, doubted, highest, self.cores
        )

    def _whole(self, delta: Delta) -> Delta:
        """Returns the differences without the cores whose states depend on a suspect counter."""
        keys = {"tsc", self.splitter.any_counter(), *self.evaluator.needs("util")}
        at = [i for i, key in enumerate(self.counters.keys) if key in keys]
        doubted = delta.doubts[:, at].any(axis=1)
        hit = self.cores.threads(doubted.astype(float), 0.0).any(axis=1)
        with_siblings = doubted | np.append(hit, False)[self.cores.of_cpu]
        return self.counters.without_cpus(delta, np.flatnonzero(with_siblings))

    def ceilings(self, delta: Delta, values: Values) -> Ceilings:
        """Returns the turbo ceiling of each core. `values` are the metrics of the same span."""
        return self.turbo.ceilings(delta, values["util"], self.online)


class StackedSamples:
    """Consecutive samples, with each of their parts as one array. The samples were usually computed
    together, so that the arrays already exist."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._runs: list[tuple[SampleBatch, int, int]] = []
        runs = self._runs
        for sample in samples:
            if runs and runs[-1][0] is sample.batch and runs[-1][2] == sample.index:
                runs[-1] = sample.batch, runs[-1][1], sample.index + 1
            else:
                runs.append((sample.batch, sample.index, sample.index + 1))

    def part(self, part: Callable[[SampleBatch], Array]) -> Array:
        """Returns one part of the samples, with a leading axis of samples."""
        parts = [part(batch)[first:last] for batch, first, last in self._runs]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
