"""One span of time: samples summed up, and what is known of them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfprobe.frozen import frozen
from perftop.base.arrays import Bools, Codes, Floats
from perftop.model.counters import Counters
from perftop.model.delta import Delta, Doubt, listed
from perftop.model.evaluation import LOST_RATIO, Values, resting
from perftop.model.numbers import COUNTS, INDEX
from perftop.model.sample_reader import Sample, Sieve
from perftop.model.smt import Split
from perftop.model.tasks import Look, Moved
from perftop.model.turbo import Ceilings

ALWAYS = 0.99
"""Counted share of the time below which counters were multiplexed; a smaller gap is only due to
their start."""
Tasks = Mapping[str, Any]
"""The task that ran most, by CPU as text: pid, name and share, as the wire has them."""


@frozen
class Interval:
    """What is known of one span of time; arrays by position of CPU or core."""

    seq: int
    """Counts the intervals of a session; 0: looked up in its history."""
    time: float  # Unix time of its end
    time_ns: int  # the same, raw
    elapsed_s: float
    skew_s: float  # largest spread of wake-ups among the samples
    values: Values
    split: Split
    counts: dict[str, Floats]
    ceilings: Ceilings
    counted: Floats | None
    """Share of the time for which perf counted; None: all of it, or not perf."""
    shares: dict[str, Floats]
    """The same for each chosen event, by the key of its counter."""
    online: Bools
    resting: Bools
    """CPUs whose numbers per running time are not shown; they hardly ran."""
    doubts: Codes
    """(CPUs, counters): the newest reason why a counter was left out of a sample."""
    keys: tuple[str, ...]
    """The counters that `doubts` is about."""
    samples: int
    look: Look
    """Who ran where, as of its end; empty where nobody told of late."""
    machine: dict[str, float]
    """What no CPU has of its own: power, temperature, pressure. Without those not counted here."""
    core_power_w: Floats
    """Power by core; NaN where it is not counted by core."""
    caches: dict[str, Floats]
    """Traffic and occupancy of each L3, by position of the CPU that has them; NaN elsewhere."""
    packages: dict[str, Floats]
    """Power, temperature, traffic to memory by package, in the order of hello's packages."""

    watched: Moved | None = None
    """What the threads of the watched job did, by the looks at them in this time; None: no job is
    watched."""

    @property
    def tasks(self) -> Tasks:
        return self.look.tasks

    @property
    def suspect(self) -> dict[int, set[tuple[str, Doubt]]]:
        """Counters that were left out, and why, by position of the CPU."""
        return listed(self.doubts, self.keys)

    @property
    def ceiling_hz(self) -> Floats:
        """Clock that turbo allows each core for certain; NaN: unknown."""
        return self.ceilings.hz


@dataclass(slots=True)
class Span:
    """Sums being made. Samples that are doubted in part take two further sums: of the metrics of
    good samples, and of what can be split."""

    delta: Delta
    start_ns: int
    samples: int = 0
    _lost: Floats | None = None
    """(2, CPUs): numerators and denominators of `lost_ratio`, which is a sum over samples: what was
    allowed changes from one to the next."""
    _good: Floats | None = None
    """(2, metrics, CPUs): numerators and denominators of the samples in which both are known."""
    _whole: Delta | None = None
    _only: tuple[Sample, bytes] | None = None
    """The sample, while it is the only one and nothing in it is doubted, and who was online then:
    what it says of itself is what the sums would say."""

    def add(self, sample: Sample, sieve: Sieve) -> None:
        if sample.doubted and self._good is None:
            before = sieve.evaluator.evaluate(self.delta)
            self._good = np.zeros((2, *before.top.shape))
            self._count(before)
            self._whole = self.delta.copy()
        if self._good is not None and self._whole is not None:
            self._count(sample.values)
            self._whole.add(sample.whole)
        values, place = sample.among.values, (sample.at, INDEX[LOST_RATIO])
        top, bottom = values.top[place], values.bottom[place]
        if self._lost is None:
            self._lost = np.array([top, bottom])
        else:
            self._lost[0] += top
            self._lost[1] += bottom
        self.delta.add(sample.delta, doubted=sample.doubted)
        self.samples += 1
        alone = self.samples == 1 and self._good is None
        self._only = (sample, sieve.online.tobytes()) if alone else None

    def _count(self, values: Values) -> None:
        assert self._good is not None
        known = np.isfinite(values.top) & np.isfinite(values.bottom)
        self._good += np.where(known, [values.top, values.bottom], 0.0)

    def values(self, sieve: Sieve) -> Values:
        """Over all of it; of what was doubted in some samples, over the others."""
        values = sieve.evaluator.evaluate(self.delta)
        if self._lost is None:
            return values
        parts = np.array([values.top, values.bottom])
        if self._good is not None:
            parts = np.where(np.isfinite(parts).all(axis=0), parts, self._good)
        parts[:, INDEX[LOST_RATIO]] = self._lost
        top, bottom = parts
        return Values(top, bottom, registry=values.registry)

    def interval(
        self, sieve: Sieve, end_ns: int, unix: float, seq: int, look: Look,
        rested: Bools | None = None,
    ) -> Interval:  # fmt: skip
        """What the sums say; `sieve` knows who is online at the end. `rested`: who was at rest
        before."""
        counters, events = sieve.counters, sieve.evaluator.registry.counters
        values, split, ceilings = self._known(sieve)
        totals, rates = sieve.totals, sieve.totals.rates(self.delta)
        counts = {
            key: self.delta.tables[column.block].moved[:, column.first]
            for key in (*COUNTS, *events)
            if (column := counters.columns.get(key))
        }
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
            core_power_w=totals.by_core(rates, sieve.cores.told),
            caches=totals.by_l3(rates, values["util"]),
            packages=totals.by_package(rates),
            counted=counters.counted(self.delta),
            shares=self._shares(counters, events),
            online=sieve.online.copy(),
            resting=resting(values["util"], rested),
            doubts=self.delta.doubts,
            keys=self.delta.keys,
            samples=self.samples,
            look=look,
        )

    def _shares(self, counters: Counters, events: Sequence[str]) -> dict[str, Floats]:
        each = ((key, counters.counted(self.delta, key)) for key in events)
        return {key: share for key, share in each if share is not None}

    def _known(self, sieve: Sieve) -> tuple[Values, Split, Ceilings]:
        if self._only is not None and self._only[1] == sieve.online.tobytes():
            sample, _ = self._only
            return sample.values, sample.split, sample.ceilings
        values = self.values(sieve)
        whole = self._whole or self.delta
        split_values = values if self._whole is None else sieve.evaluator.evaluate(whole)
        split = sieve.splitter.split(whole, split_values, sieve.online)
        return values, split, sieve.ceilings(self.delta, values)


def nothing(sieve: Sieve, start_ns: int) -> Span:
    return Span(sieve.counters.nothing(), start_ns)
