"""The numbers of one span of time: a `Span` sums up samples, and an `Interval` is computed from
these sums. Live intervals, runs, phases and intervals from history are all computed in this way. A
`Distribution` provides extremes and percentiles of a run's samples."""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perftop.base.arrays import Bools, Codes, Float32s, Floats, Ints
from perftop.model.counters import Cores
from perftop.model.delta import Delta, Doubt, add_samples, doubts_by_cpu
from perftop.model.evaluation import LOST_RATIO, STATIC_METRICS, Values, resting_cpus
from perftop.model.numbers import COUNTS, INDEX
from perftop.model.sample_reader import SampleBatch, SampleReader, StackedSamples
from perftop.model.smt import METHODS, STATES, SmtShares
from perftop.model.tasks import TaskSnapshot, ThreadActivity
from perftop.model.turbo import Ceilings

Tasks = Mapping[str, Any]
"""PID, name and share of the task that ran most, as received, by CPU number as text."""


@dataclass(frozen=True)
class Interval:
    """The numbers of one span of time. Arrays are by CPU or by core."""

    seq: int
    """Sequence number of the interval in its session; 0 if it was computed from history."""
    time: float
    """Unix time of the end, in s."""
    time_ns: int
    """Raw time of the end, in ns."""
    elapsed_s: float
    skew_s: float
    """Maximum spread of wake-ups in any sample, in s."""
    values: Values
    split: SmtShares
    counts: dict[str, Floats]
    ceilings: Ceilings
    counted_share: Floats | None
    """Share of the time for which perf counted, by CPU; None if perf did not multiplex counters."""
    event_counted_shares: dict[str, Floats]
    """Share of the time for which perf counted each chosen event, by key of its counter."""
    online: Bools
    is_at_rest: Bools
    """Mask of the CPUs that hardly ran: their numbers per running time are not displayed."""
    doubts: Codes
    """(CPUs, counters): codes of the newest doubt about each counter."""
    keys: tuple[str, ...]
    """Keys of the counters in `doubts`."""
    sample_count: int
    snapshot: TaskSnapshot
    """The tasks on each CPU at the end; empty if there is no recent record."""
    machine: dict[str, float]
    """Numbers of the machine, such as power, temperature and pressure, if they are counted."""
    cores: Cores
    """The cores of the arrays by core."""
    core_power_w: Floats
    """Power by core in W; NaN where unknown."""
    caches: dict[str, Floats]
    """Traffic and occupancy of L3s, in the rows of the CPUs that read them; NaN for other CPUs."""
    packages: dict[str, Floats]
    """Power, temperature and memory traffic by package, in the order of hello."""

    watched: ThreadActivity | None = None
    """Activity of the watched job's threads; None if no job is watched."""

    @property
    def tasks(self) -> Tasks:
        return self.snapshot.tasks

    @property
    def suspect_counters(self) -> dict[int, set[tuple[str, Doubt]]]:
        """For each CPU's index in hello, the keys of its suspect counters and the doubts."""
        return doubts_by_cpu(self.doubts, self.keys)

    @property
    def ceiling_hz(self) -> Floats:
        """Lowest turbo ceiling of each core in Hz; NaN where unknown."""
        return self.ceilings.hz


MAX_MISSING_SHARE = 0.1
"""Maximum share of the samples in which a metric may be unknown, so that its mean over the other
samples is valid for the span. One sample may always be unknown, if most samples are known."""


@dataclass(slots=True)
class Span:
    """Sums over samples. If a counter is suspect, there are two more sums: of metrics, over the
    samples in which they are known, and of the counters from which SMT states are computed."""

    reader: SampleReader
    """The reader of the samples, in its state after the newest of them."""
    delta: Delta
    start_ns: int
    sample_count: int = 0
    suspect_count: int = 0
    """Number of samples with suspect counters, summed over CPUs."""
    _lost_sums: Floats | None = None
    """(2, CPUs): numerators and denominators of `lost_ratio`. They are summed for each sample,
    because ceilings change between samples."""
    _good_sums: Floats | None = None
    """(2, metrics, CPUs): sums of numerators and denominators where both are known."""
    _missing_counts: Ints | int = 0
    """(metrics, CPUs): number of samples in which one of the two is unknown."""
    _trusted_delta: Delta | None = None
    _only_sample: tuple[SampleBatch, int, bytes] | None = None
    """If there is only one sample, without suspect counters: its batch, its index, and the CPUs
    online at its end. The numbers of the span are then those of the sample."""

    @classmethod
    def empty(cls, reader: SampleReader, start_ns: int) -> Span:
        return cls(reader, reader.counters.empty_delta(), start_ns)

    def add(self, batch: SampleBatch, first: int, last: int) -> None:
        """Adds the samples of a batch from `first` up to but not including `last`."""
        doubted_samples = batch.doubted_between(first, last) - first
        if len(doubted_samples) and self._good_sums is None and doubted_samples[0] > 0:
            self.add(batch, first, first := first + int(doubted_samples[0]))
            doubted_samples = doubted_samples - doubted_samples[0]
        if len(doubted_samples):
            self.suspect_count += batch.suspect_cpus(first, last)
        part = slice(first, last)
        values = batch.values
        if len(doubted_samples) and self._good_sums is None:
            sums = self.reader.evaluator.evaluate(self.delta)
            self._good_sums = _known_sums(sums.numerators, sums.denominators)
            is_missing = ~_is_known(sums.numerators, sums.denominators)
            self._missing_counts = self.sample_count * is_missing
            self._trusted_delta = self.delta.copy()
        if self._good_sums is not None and self._trusted_delta is not None:
            top, bottom = values.numerators[part], values.denominators[part]
            self._good_sums = add_samples(self._good_sums, _known_sums(top, bottom).swapaxes(0, 1))
            self._missing_counts = self._missing_counts + (~_is_known(top, bottom)).sum(axis=0)
            self._trusted_delta.add(batch.trusted_delta[part], doubted_samples)
        lost_sums = batch.cached(_lost_sums)[part]
        lost_before = np.zeros(lost_sums.shape[1:]) if self._lost_sums is None else self._lost_sums
        self._lost_sums = add_samples(lost_before, lost_sums)
        self.delta.add(batch.delta[part], doubted_samples)
        self.sample_count += last - first
        is_single = self.sample_count == 1 and self._good_sums is None
        self._only_sample = (batch, first, self.reader.online.tobytes()) if is_single else None

    def copy(self) -> Span:
        """Returns an independent copy, to which samples can be added."""
        trusted_delta = None if self._trusted_delta is None else self._trusted_delta.copy()
        return replace(self, delta=self.delta.copy(), _trusted_delta=trusted_delta)

    def minus(self, earlier: Span, start_ns: int) -> Span:
        """Returns the sums over the samples after `earlier`, an older copy, which ends at
        `start_ns`."""
        trusted_delta, lost_sums, good_sums = self._trusted_delta, self._lost_sums, self._good_sums
        if lost_sums is not None and earlier._lost_sums is not None:
            lost_sums = lost_sums - earlier._lost_sums
        if good_sums is not None:  # unknown if the first suspect sample came later
            good_sums = None if earlier._good_sums is None else good_sums - earlier._good_sums
        if trusted_delta is not None:
            trusted_delta = trusted_delta.minus(earlier._trusted_delta or earlier.delta)
        return Span(
            self.reader, self.delta.minus(earlier.delta), start_ns,
            self.sample_count - earlier.sample_count, self.suspect_count - earlier.suspect_count,
            lost_sums, good_sums,
            self._missing_counts - earlier._missing_counts, trusted_delta,
        )  # fmt: skip

    def values(self) -> Values:
        """Returns the metrics over all samples. A metric that is unknown in some samples is
        computed from the others, if these are enough (MAX_MISSING_SHARE)."""
        values = self.reader.evaluator.evaluate(self.delta)
        if self._lost_sums is None:
            return values
        parts = np.array([values.numerators, values.denominators])
        if self._good_sums is not None:
            is_enough = self._missing_counts <= self._max_missing_count
            good_sums = np.where(is_enough, self._good_sums, np.nan)
            parts = np.where(np.isfinite(parts).all(axis=0), parts, good_sums)
        parts[:, INDEX[LOST_RATIO]] = self._lost_sums
        top, bottom = parts
        return Values(top, bottom, registry=values.registry)

    @property
    def _max_missing_count(self) -> float:
        return min(max(1.0, MAX_MISSING_SHARE * self.sample_count), (self.sample_count - 1) / 2)

    def read_shares(self) -> dict[str, float]:
        """Returns the share of the samples that each metric's mean includes, on the CPU with the
        fewest. Metrics whose mean includes all samples or is unknown are left out."""
        counts = np.asarray(self._missing_counts)
        if not counts.any():
            return {}
        missing = np.where(counts <= self._max_missing_count, counts, 0).max(axis=1)
        shares = (1 - missing / self.sample_count).tolist()
        return {key: shares[row] for key, row in INDEX.items() if missing[row]}

    def interval(
        self, end_ns: int, unix: float, seq: int, snapshot: TaskSnapshot,
        resting_before: Bools | None = None,
    ) -> Interval:  # fmt: skip
        """Returns the numbers of this span. `end_ns`, `unix`: raw time and Unix time of the end.
        `resting_before`: mask of the CPUs at rest in the previous interval."""
        reader = self.reader
        counters, events = reader.counters, reader.evaluator.registry.counters
        batch, index, online = self._only_sample or (None, 0, b"")
        is_current = online == reader.online.tobytes()
        if batch is not None and batch.cores is reader.cores and is_current:
            values, split = batch.values.samples(index), batch.split[index]
            ceilings = batch.ceilings[index]
        else:
            values = self.values()
            trusted_delta, trusted_values = self.delta, values
            if self._trusted_delta is not None:
                trusted_delta = self._trusted_delta
                trusted_values = reader.evaluator.evaluate(trusted_delta)
            split = reader.splitter.split(trusted_delta, trusted_values, reader.online)
            ceilings = reader.turbo.ceilings(self.delta, values["util"], reader.online)
        totals, rates = reader.totals, reader.totals.rates(self.delta)
        columns = ((key, counters.columns.get(key)) for key in (*COUNTS, *events))
        tables = self.delta.tables
        counts = {key: tables[c.block].increments[:, c.index] for key, c in columns if c}
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
            cores=reader.cores,
            core_power_w=totals.core_power_w(rates, reader.cores.block_row),
            caches=totals.l3_values(rates, values["util"]),
            packages=totals.package_values(rates),
            counted_share=counters.counted_share(self.delta),
            event_counted_shares={key: share for key, share in shares if share is not None},
            online=reader.online.copy(),
            is_at_rest=resting_cpus(values["util"], resting_before),
            doubts=self.delta.doubts,
            keys=self.delta.keys,
            sample_count=self.sample_count,
            snapshot=snapshot,
        )


def _lost_sums(batch: SampleBatch) -> Floats:
    """Returns the numerators and denominators of `lost_ratio`, (samples, 2, CPUs)."""
    values, index = batch.values, INDEX[LOST_RATIO]
    return np.stack([values.numerators[:, index], values.denominators[:, index]], axis=1)


def _known_sums(top: Floats, bottom: Floats) -> Floats:
    """Returns the numerators and denominators as one array; 0 where one of the two is unknown."""
    return np.where(_is_known(top, bottom), [top, bottom], 0.0)


def _is_known(top: Floats, bottom: Floats) -> Bools:
    return np.asarray(np.isfinite(top) & np.isfinite(bottom))


# --- Minimum, maximum, percentiles and mean SMT states over the samples of a run, in bounded
# memory.

MAX_BYTES = 16 << 20
"""Maximum size of the kept samples in bytes. When it is reached, every second sample is dropped,
and from then on only every second one is kept. The kept samples are evenly spaced, so percentiles
remain unbiased. Minimum and maximum include all samples."""
MIN_ROWS = 512
"""Minimum number of samples that are kept, so that a dozen of them are below the fifth percentile
even after half were dropped. With more than 256 CPUs, they exceed MAX_BYTES: 64 MB at 1024 CPUs."""
MOVED_ROWS = 16
"""Number of samples that are moved at once when others are dropped."""
SORTED_COLUMNS = 64
"""Number of columns that are copied and sorted at once for percentiles."""
MAX_WAITING_SAMPLES, MAX_WAITING_BYTES = 32, 1 << 16
"""Maximum number of samples, and bytes of their metrics, that wait to be counted together at the
end of a batch. While a sample waits, the arrays of its whole batch stay in memory."""


class Distribution:
    """The distribution of each CPU's metrics, and of each core's states, over the samples of a run.
    Minimum, percentiles and maximum are available after `finish`."""

    def __init__(
        self, shown_rows: list[int], max_bytes: int = MAX_BYTES, min_rows: int = MIN_ROWS, *,
        by_cpu: bool = True,
    ) -> None:  # fmt: skip
        """`max_bytes`: maximum size of the kept samples. `min_rows`: number of samples, at least 2,
        that are kept whatever their size. `by_cpu`: if False, only the machine has a distribution,
        which is the same; single CPUs and cores only have mean SMT states."""
        self._shown_rows = np.array(shown_rows, int)
        self._max_bytes, self._min_rows, self._by_cpu = max_bytes, min_rows, by_cpu
        self._kept_samples = np.empty((0, 0), np.float32)
        """The kept samples, one per row; `_count` rows are used. Other rows take no memory."""
        self._columns = 0
        """Number of columns if CPUs and cores are included; `max_bytes` is the size of those."""
        self._count = 0
        self._stride = 1
        self._seen_count = 0
        self._minima, self._maxima = np.zeros((2, 0))
        self._series: dict[str, Floats] = {}
        """Minimum, fifth percentile and maximum of all columns, by name; set by `finish`."""
        self._cpus = 0
        self._states, self._weights = np.zeros((2, 0, len(STATES)))
        """(cores, states): sums over the samples in which a state is known."""
        self._method_codes: Ints | None = None
        """Code of the method in the last sample, by core."""
        self._methods: list[dict[str, None]] = []
        """All methods used, in the order of their first use, by core."""
        self._waiting_samples = StackedSamples()
        self._registry = STATIC_METRICS
        self._cores: Cores
        """The core list of the waiting samples."""

    def add(self, batch: SampleBatch, first: int, last: int) -> None:
        """Adds the samples of a batch from `first` up to but not including `last`."""
        if self._waiting_samples.count and batch.cores is not self._cores:
            self.count_waiting_samples()
        self._waiting_samples.add(batch, first, last)
        self._cores, self._registry = batch.cores, batch.values.registry
        count, size = self._waiting_samples.count, batch.values.metrics[0].nbytes
        is_enough = count >= MAX_WAITING_SAMPLES or count * size >= MAX_WAITING_BYTES
        if is_enough and last == len(batch):
            self.count_waiting_samples()

    def count_waiting_samples(self) -> None:
        """Adds the waiting samples to the distributions. Adding many takes little longer than
        adding one."""
        if not self._waiting_samples.count:
            return
        samples, self._waiting_samples = self._waiting_samples, StackedSamples()
        values = Values(
            samples.stack(lambda batch: batch.values.numerators),
            samples.stack(lambda batch: batch.values.denominators),
            samples.stack(lambda batch: batch.values.metrics),
            self._registry,
        )
        states = samples.stack(lambda batch: batch.split.states)
        count, self._cpus = len(states), values.metrics.shape[-1]
        has_all = len(self._shown_rows) == self._cpus  # a slice avoids copying the CPUs
        totals = values.group(slice(None) if has_all else self._shown_rows)
        flat = values.metrics.reshape(count, -1), states.reshape(count, -1)
        rows = np.concatenate([totals, *flat], axis=1) if self._by_cpu else totals
        columns = sum(part.shape[1] for part in (totals, *flat))
        if columns != self._columns:
            # These are the first samples, or the core list has changed, so that older samples do
            # not fit.
            self._columns, self._minima, self._maxima = columns, rows[0], rows[0]
            max_rows = max(self._max_bytes // (4 * columns), self._min_rows)
            # Not malloc: after it has freed a block of this size, it no longer returns memory to
            # the kernel.
            pages = mmap.mmap(-1, 4 * max_rows * rows.shape[1])
            self._kept_samples, self._count = (
                np.frombuffer(pages, np.float32).reshape(max_rows, -1),
                0,
            )
            self._seen_count, self._stride = 0, 1
            self._states, self._weights = np.zeros((2, *states.shape[1:]))
            self._method_codes, self._methods = None, [{} for _ in states[0]]
        # Seconds for which a sample covers each core.
        weights = self._cores.max_of_threads(values.denominators[:, INDEX["util"]])
        self._add_states(samples, states, weights)
        self._minima = np.fmin(self._minima, np.fmin.reduce(rows, axis=0))
        self._maxima = np.fmax(self._maxima, np.fmax.reduce(rows, axis=0))
        self._keep_rows(rows)

    def _keep_rows(self, rows: Floats) -> None:
        """Keeps every sample whose number is a multiple of the stride."""
        while len(rows):
            kept_rows = rows[-self._seen_count % self._stride :: self._stride]
            free_rows = len(self._kept_samples) - self._count
            if len(kept_rows) <= free_rows:
                self._kept_samples[self._count : self._count + len(kept_rows)] = kept_rows
                self._count += len(kept_rows)
                self._seen_count += len(rows)
                return
            used_rows = -self._seen_count % self._stride + free_rows * self._stride
            self._kept_samples[self._count :] = kept_rows[:free_rows]
            self._count += free_rows
            self._seen_count += used_rows
            rows = rows[used_rows:]
            # Every second row is dropped, a few rows at a time: numpy copies overlapping arrays,
            # and the memory of a large copy would not be freed.
            self._count = (self._count + 1) // 2
            self._stride *= 2
            for start in range(0, self._count, MOVED_ROWS):
                end = min(start + MOVED_ROWS, self._count)
                self._kept_samples[start:end] = self._kept_samples[2 * start : 2 * end : 2]

    def _add_states(self, samples: StackedSamples, states: Floats, weights: Floats) -> None:
        is_known = np.isfinite(states) & np.isfinite(weights)[..., None]
        times = np.where(is_known, weights[..., None], 0.0)
        with np.errstate(invalid="ignore"):
            sums = np.where(is_known, states * times, 0.0)
        self._states = add_samples(self._states, sums)
        self._weights = add_samples(self._weights, np.broadcast_to(times, sums.shape))
        codes_of_samples = samples.stack(lambda batch: batch.split.method_codes)
        if self._method_codes is not None and (codes_of_samples == self._method_codes).all():
            return
        for codes in codes_of_samples:
            if self._method_codes is None or not np.array_equal(codes, self._method_codes):
                self._method_codes = codes.copy()
                for methods, code in zip(self._methods, codes.tolist(), strict=True):
                    if (method := METHODS[code]) is not None:
                        methods[method] = None

    def finish(self) -> Distribution:
        """Computes the values that the methods below return, from all samples so far."""
        self.count_waiting_samples()
        # float32 may round below the true minimum
        kept_samples = self._kept_samples[: self._count]
        columns = range(0, kept_samples.shape[1], SORTED_COLUMNS)
        blocks = (kept_samples[:, first : first + SORTED_COLUMNS] for first in columns)
        parts = [_percentile(np.sort(block, axis=0), 0.05) for block in blocks]
        p5 = np.fmax(np.concatenate(parts), self._minima) if parts else self._minima
        self._series = {"min": self._minima, "p5": p5, "max": self._maxima}
        return self

    def machine(self, key: str) -> dict[str, float]:
        return self._statistics(self._registry.index[key])

    def percentiles(self, key: str, shares: Sequence[float]) -> list[float]:
        """Returns percentiles of a machine's metric over the samples; NaN without samples."""
        known_values = self._known_values(key)
        if not len(known_values):
            return [float("nan")] * len(shares)
        sorted_values = np.sort(known_values)[:, None]
        return [float(_percentile(sorted_values, share)[0]) for share in shares]

    def samples(self, key: str, max_samples: int) -> list[float]:
        """Returns at most `max_samples` values of a machine's metric, evenly spaced."""
        known_values = self._known_values(key)
        step = max(1, -(-len(known_values) // max_samples))
        return [float(value) for value in known_values[::step]]

    def _known_values(self, key: str) -> Float32s:
        """Returns the known values of a machine's metric."""
        if not self._kept_samples.shape[1]:
            return np.zeros(0, np.float32)
        column = self._kept_samples[: self._count, self._registry.index[key]]
        return column[np.isfinite(column)]

    def cpu(self, key: str, row: int) -> dict[str, float]:
        return self._statistics(self._metric_column(key) + row)

    def group(self, key: str, rows: list[int]) -> dict[str, float]:
        """Returns the minimum, fifth percentile and maximum of a metric over all of these CPUs."""
        if not self._count or not self._by_cpu:
            return dict.fromkeys(self._series, float("nan"))
        columns = [self._metric_column(key) + row for row in rows]
        known_rows = self._kept_samples[: self._count, columns]
        known_rows = known_rows[np.isfinite(known_rows)]
        low, high = (self._series[name][columns] for name in ("min", "max"))
        known_values = np.sort(known_rows)[:, None]
        p5 = float(_percentile(known_values, 0.05)[0]) if len(known_rows) else float("nan")
        lowest = float(np.fmin.reduce(low))
        return {"min": lowest, "p5": max(p5, lowest), "max": float(np.fmax.reduce(high))}

    def split(self, split: SmtShares, core: int) -> tuple[str | None, dict[str, float]]:
        """Returns the method and the mean SMT states of a core in the run; NaN where only bounds
        are known. `split`: the split of the whole run. If a sibling was offline for part of the
        run, sums of counters do not give the states. They are then the means over the samples, in
        which a single online thread counts as lp0."""
        method, means = split.method[core], split.shares(core)
        methods = self._methods[core] if core < len(self._methods) else []
        pair_methods = [name for name in methods if name != "single"]
        if pair_methods and len(pair_methods) < len(methods):
            method = pair_methods[-1]
            means = dict.fromkeys(STATES, np.nan)
        if core < len(self._states) and np.isnan(means["neither"]) and "bounds" not in pair_methods:
            with np.errstate(invalid="ignore"):
                shares = self._states[core] / self._weights[core]
            means = dict(zip(STATES, shares.tolist(), strict=True))
        return method, means

    def core(self, state: str, core: int) -> dict[str, float]:
        first = len(self._registry.index) * (1 + self._cpus)
        return self._statistics(first + core * len(STATES) + STATES.index(state))

    def _metric_column(self, key: str) -> int:
        """Returns the column of the first CPU's values of a metric."""
        return len(self._registry.index) + self._registry.index[key] * self._cpus

    def _statistics(self, i: int) -> dict[str, float]:
        return {
            name: float(series[i]) if i < len(series) else float("nan")
            for name, series in self._series.items()
        }


def _percentile(sorted_rows: Float32s, share: float) -> Floats:
    """Returns a percentile of each column, interpolated; NaN for a column without values. Each
    column is sorted, with NaN last. np.percentile would import numpy.ma (40 ms, 2 MB), and
    np.nanpercentile computes one column at a time."""
    rank = share * (np.maximum((~np.isnan(sorted_rows)).sum(axis=0), 1) - 1)
    lower_indexes, columns = rank.astype(int), np.arange(sorted_rows.shape[1])
    low = sorted_rows[lower_indexes, columns]
    high = sorted_rows[np.ceil(rank).astype(int), columns]
    part = rank - lower_indexes
    step = np.subtract(high, low, dtype=np.float64)
    values: Floats = np.where(part < 0.5, low + step * part, high - step * (1 - part))
    return values
