"""One span of time: a `Span` sums up samples, and an `Interval` has the numbers of these sums.

Live intervals, runs, phases and intervals of history are all computed this way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from perftop.base.arrays import Bools, Codes, Floats
from perftop.model.delta import Delta, Doubt, add_samples, doubts_by_cpu
from perftop.model.evaluation import LOST_RATIO, Values, resting_rows
from perftop.model.numbers import COUNTS, INDEX
from perftop.model.sample_reader import SampleBatch, SampleReader
from perftop.model.smt import Split
from perftop.model.tasks import TaskSnapshot, ThreadActivity
from perftop.model.turbo import Ceilings

Tasks = Mapping[str, Any]
"""The task that ran most on each CPU, by CPU number as text: pid, name and share, as received."""


@dataclass(frozen=True)
class Interval:
    """The numbers of one span of time; arrays by position of CPU or core."""

    seq: int
    """Sequence number of the interval in its session; 0: the interval was computed from history."""
    time: float
    """Unix time of the interval's end, in s."""
    time_ns: int
    """Raw time of the interval's end, in ns."""
    elapsed_s: float
    skew_s: float
    """Largest spread of wake-ups among the samples, in s."""
    values: Values
    split: Split
    counts: dict[str, Floats]
    ceilings: Ceilings
    counted: Floats | None
    """Share of the time for which perf counted; None: perf counted all the time, or is not the
    source."""
    shares: dict[str, Floats]
    """Share of the time for which perf counted each selected event, by the key of its counter."""
    online: Bools
    resting: Bools
    """CPUs that hardly ran, so that their numbers per running time are not shown."""
    doubts: Codes
    """(CPUs, counters): codes of the newest reason why a counter was left out of a sample."""
    keys: tuple[str, ...]
    """Keys of the counters in `doubts`."""
    samples: int
    snapshot: TaskSnapshot
    """The tasks on each CPU at the interval's end; empty if there is no recent record."""
    machine: dict[str, float]
    """Numbers of the machine, such as power, temperature and pressure; only those counted on this
    machine."""
    core_power_w: Floats
    """Power in W by core; NaN where it is not counted by core."""
    caches: dict[str, Floats]
    """Traffic and occupancy of each L3, at the position of the CPU that reads its counters; NaN at
    all other positions."""
    packages: dict[str, Floats]
    """Power, temperature and memory traffic by package, in the order of hello's packages."""

    watched: ThreadActivity | None = None
    """Activity of the watched job's threads, from their records in this interval; None: no job is
    watched."""

    @property
    def tasks(self) -> Tasks:
        return self.snapshot.tasks

    @property
    def suspect(self) -> dict[int, set[tuple[str, Doubt]]]:
        """Counters that were left out and the reasons, by position of the CPU."""
        return doubts_by_cpu(self.doubts, self.keys)

    @property
    def ceiling_hz(self) -> Floats:
        """Clock in Hz that turbo certainly allows each core; NaN: unknown."""
        return self.ceilings.hz


@dataclass(slots=True)
class Span:
    """Sums over samples. Samples with suspect counters need two more sums: of the metrics of good
    samples, and of the counters from which SMT states can be computed."""

    delta: Delta
    start_ns: int
    samples: int = 0
    _lost_sums: Floats | None = None
    """(2, CPUs): numerators and denominators of `lost_ratio`. They are summed sample by sample,
    since ceilings change between samples."""
    _good_sums: Floats | None = None
    """(2, metrics, CPUs): sums of numerators and denominators over the samples in which both are
    known."""
    _whole_delta: Delta | None = None
    _only_sample: tuple[SampleBatch, int, bytes] | None = None
    """The batch and the index of the sample, and the CPUs online at its end, as long as it is the
    only sample and has no suspect counters. Its own numbers are then those of the sums."""

    @classmethod
    def empty(cls, reader: SampleReader, start_ns: int) -> Span:
        return cls(reader.counters.empty_delta(), start_ns)

    def add(self, batch: SampleBatch, first: int, last: int, reader: SampleReader) -> None:
        """Adds the samples of a batch from `first` up to, but without, `last`."""
        begin, end = batch.doubted.searchsorted([first, last])
        doubted = batch.doubted[begin:end] - first
        if len(doubted) and self._good_sums is None and doubted[0] > 0:
            self.add(batch, first, first := first + int(doubted[0]), reader)
            doubted = doubted - doubted[0]
        part = slice(first, last)
        values = batch.values
        if len(doubted) and self._good_sums is None:
            sums = reader.evaluator.evaluate(self.delta)
            self._good_sums, self._whole_delta = (
                _known_sums(sums.top, sums.bottom),
                self.delta.copy(),
            )
        if self._good_sums is not None and self._whole_delta is not None:
            good_sums = _known_sums(values.top[part], values.bottom[part]).swapaxes(0, 1)
            self._good_sums = add_samples(self._good_sums, good_sums)
            self._whole_delta.add(batch.whole[part], doubted)
        index = INDEX[LOST_RATIO]
        lost_sums = np.stack([values.top[part, index], values.bottom[part, index]], axis=1)
        self._lost_sums = add_samples(
            np.zeros(lost_sums.shape[1:]) if self._lost_sums is None else self._lost_sums, lost_sums
        )
        self.delta.add(batch.delta[part], doubted)
        self.samples += last - first
        is_single = self.samples == 1 and self._good_sums is None
        self._only_sample = (batch, first, reader.online.tobytes()) if is_single else None

    def values(self, reader: SampleReader) -> Values:
        """Metrics over all samples; a metric that is suspect in some samples is over the others."""
        values = reader.evaluator.evaluate(self.delta)
        if self._lost_sums is None:
            return values
        parts = np.array([values.top, values.bottom])
        if self._good_sums is not None:
            parts = np.where(np.isfinite(parts).all(axis=0), parts, self._good_sums)
        parts[:, INDEX[LOST_RATIO]] = self._lost_sums
        top, bottom = parts
        return Values(top, bottom, registry=values.registry)

    def interval(
        self, reader: SampleReader, end_ns: int, unix: float, seq: int, snapshot: TaskSnapshot,
        rested: Bools | None = None,
    ) -> Interval:  # fmt: skip
        """The numbers of the sums. `reader` has the CPUs online at the end; `rested`: CPUs at rest
        in the previous interval."""
        counters, events = reader.counters, reader.evaluator.registry.counters
        values, split, ceilings = self._evaluated(reader)
        totals, rates = reader.totals, reader.totals.rates(self.delta)
        counts = {
            key: self.delta.tables[column.block].increments[:, column.first]
            for key in (*COUNTS, *events)
            if (column := counters.columns.get(key))
        }
        shares = ((key, counters.counted_share(self.delta, key)) for key in events)
        if "cpu" in self.delta.tables and counters.has_tsc:
            counts["tsc"] = counters.tsc_ticks(self.delta)
        return Interval(
            seq=seq,
            time=unix,
            time_ns=end_ns,
            elapsed_s=(end_ns - self.start_ns) / 1e9,
            skew_s=int(self.delta.skew_ns) / 1e9,
            values=values,
            split=split,
            counts=counts,
            ceilings=ceilings,
            machine=totals.numbers(rates),
            core_power_w=totals.by_core(rates, reader.cores.block_row),
            caches=totals.by_l3(rates, values["util"]),
            packages=totals.by_package(rates),
            counted=counters.counted_share(self.delta),
            shares={key: share for key, share in shares if share is not None},
            online=reader.online.copy(),
            resting=resting_rows(values["util"], rested),
            doubts=self.delta.doubts,
            keys=self.delta.keys,
            samples=self.samples,
            snapshot=snapshot,
        )

    def _evaluated(self, reader: SampleReader) -> tuple[Values, Split, Ceilings]:
        if self._only_sample is not None and self._only_sample[2] == reader.online.tobytes():
            batch, index, _ = self._only_sample
            return batch.values.samples(index), batch.split[index], batch.ceilings[index]
        values = self.values(reader)
        whole_delta = self._whole_delta or self.delta
        split_values = (
            values if self._whole_delta is None else reader.evaluator.evaluate(whole_delta)
        )
        split = reader.splitter.split(whole_delta, split_values, reader.online)
        return values, split, reader.ceilings(self.delta, values)


def _known_sums(top: Floats, bottom: Floats) -> Floats:
    """Returns numerators and denominators as one array, 0 where one of the two is unknown."""
    return np.where(np.isfinite(top) & np.isfinite(bottom), [top, bottom], 0.0)
