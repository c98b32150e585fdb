"""One span of time: samples summed up, and what is known of them together."""

from __future__ import annotations

from dataclasses import dataclass, field

from perftop.base.arrays import Bools, Floats
from perftop.samples import machine_totals
from perftop.samples.counters import Delta
from perftop.samples.evaluation import Values
from perftop.samples.metrics import COUNTS
from perftop.samples.sample_reader import Sample, Sieve
from perftop.samples.smt import Split
from perftop.samples.turbo import Ceilings

BESIDE = "a suspect sample of its sibling"
"""Why a CPU was left out with which nothing was wrong."""

Tasks = dict[str, list[object]]
"""Who runs where, as the wire has it: by CPU number, pid, name and share."""


@dataclass(frozen=True, slots=True)
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
    online: Bools
    suspect: dict[int, set[str]]
    samples: int
    tasks: Tasks
    """As of its end; empty where nobody told of late."""
    machine: dict[str, float]
    """What no CPU has of its own: power, temperature, pressure. Without those not counted here."""

    @property
    def ceiling_hz(self) -> Floats:
        """By core: what turbo allows for certain; NaN where nothing says."""
        return self.ceilings.hz


@dataclass(slots=True)
class Span:
    """Sums being made."""

    delta: Delta
    start_ns: int
    skew_ns: int = 0
    samples: int = 0
    suspect: dict[int, set[str]] = field(default_factory=dict)

    def add(self, sample: Sample) -> None:
        self.delta.add(sample.delta)
        self.samples += 1
        self.skew_ns = max(self.skew_ns, sample.skew_ns)
        for row in sample.beside:
            self.suspect.setdefault(row, set()).add(BESIDE)
        for row, reasons in sample.delta.suspect.items():
            self.suspect.setdefault(row, set()).update(reasons)

    def interval(self, sieve: Sieve, end_ns: int, unix: float, seq: int, tasks: Tasks) -> Interval:
        """What the sums say; `sieve` knows who is online at the end."""
        counters = sieve.counters
        values = sieve.evaluator.evaluate(self.delta)
        counts = {
            key: self.delta.tables[column.block].moved[:, column.first]
            for key in COUNTS
            if (column := counters.columns.get(key))
        }
        if "cpu" in self.delta.tables and counters.has_tsc:
            counts["tsc"] = counters.tsc_ticks(self.delta)
        return Interval(
            seq=seq,
            time=unix,
            time_ns=end_ns,
            elapsed_s=(end_ns - self.start_ns) / 1e9,
            skew_s=self.skew_ns / 1e9,
            values=values,
            split=sieve.splitter.split(self.delta, values, sieve.online),
            counts=counts,
            ceilings=sieve.ceilings(self.delta, values),
            machine=machine_totals.numbers(sieve.counters, self.delta),
            counted=counters.counted(self.delta),
            online=sieve.online.copy(),
            suspect=self.suspect,
            samples=self.samples,
            tasks=tasks,
        )


def nothing(sieve: Sieve, start_ns: int) -> Span:
    return Span(sieve.counters.nothing(), start_ns)
