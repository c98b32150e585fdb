"""Computes numbers from increments: metrics of CPUs, lost time, and numbers of the machine.

A metric is a ratio of two sums (see `model.numbers`). The two sums are stored, so the metric of any
span and any group of CPUs can be computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Bools, Floats, Ints
from perftop.base.text import printable
from perftop.model.counters import Counters, Quantities, aliased_counters
from perftop.model.delta import Delta
from perftop.model.numbers import (
    CORE,
    COUNTER_BY_NAME,
    EVENT_PREFIX,
    INDEX,
    L3_COUNTERS,
    MACHINE,
    METRICS,
    PACKAGE_NAMES,
    PER_KI,
    RARE_METRICS,
    Formula,
    Metric,
    Variant,
)

COUNT_UNITS = frozenset({"1", "events", "cycles", "instructions"})
"""Units of counts, whose rate has the unit 1/s."""


class MetricRegistry:
    """The metrics of one stream: METRICS, then two for each chosen event, then RARE_METRICS. A
    metric of METRICS has the same index in every stream."""

    def __init__(self, hello: wire.Hello | None = None) -> None:
        blocks = [block for block in hello.blocks if block.scope == "cpu"] if hello else []
        counters_by_key = {counter.key: counter for block in blocks for counter in block.counters}
        counters_by_key |= aliased_counters(hello) if hello else {}
        event_counters = [
            c
            for c in counters_by_key.values()
            if c.key.startswith(EVENT_PREFIX) and c.kind == "counter"
        ]
        self.events = {metric.key: metric for c in event_counters for metric in _event_metrics(c)}
        keys, rare = counters_by_key.keys(), RARE_METRICS.items()
        self.events |= {key: metric for key, metric in rare if keys >= {*metric.variants[0].needs}}
        """Metrics that only some streams have."""
        self.counters = tuple(counter.key for counter in event_counters)
        self.metrics: dict[str, Metric] = METRICS | self.events
        self.index = {key: i for i, key in enumerate(self.metrics)}
        self.lows = np.array([metric.low for metric in self.metrics.values()])
        self.highs = np.array([metric.high for metric in self.metrics.values()])
        self.is_sum = np.array([metric.is_sum for metric in self.metrics.values()])


STATIC_METRICS = MetricRegistry()
"""The metrics that every stream has."""


def _event_metrics(counter: wire.Counter) -> Iterator[Metric]:
    """Yields the metrics of a chosen event: counts per second and per thousand instructions."""
    key = counter.key
    label = printable(key.removeprefix(EVENT_PREFIX))
    description = printable(counter.name) or label
    description = f"{description[:1].upper()}{description[1:]}"
    unit = "1/s" if counter.unit in COUNT_UNITS else f"{printable(counter.unit)}/s"
    per_second = Variant((key,), "count / time", lambda q: q[key], lambda q: q.seconds(key))
    yield Metric(key, label, unit, f"{description}, per second.", (per_second,), is_sum=True)
    per_ki = Variant(
        (key, "instructions"),
        "1000 count / instructions",
        lambda q: 1000.0 * q[key],
        lambda q: q["instructions"],
    )
    text = f"{description}, per thousand instructions."
    names = key + PER_KI, label + PER_KI
    yield Metric(*names, "1", text, (per_ki,), digits=2, while_running=True)


class Evaluator:
    def __init__(self, counters: Counters) -> None:
        hello = counters.hello
        self._counters = counters
        self._base_hz = hello.base_hz.hz if hello.base_hz else float("nan")
        self._cpus = len(hello.topology)
        self.registry = MetricRegistry(hello)
        self.metrics = self.registry.metrics
        self.variants: dict[str, list[tuple[Variant, Bools]]] = {}
        """The usable variants of each metric, each with a mask of the CPUs that use it."""
        self._masks: dict[str, Bools] = {}
        for metric in self.metrics.values():
            self.variants[metric.key] = variants = []
            is_unserved = np.ones(self._cpus, bool)
            for variant in metric.variants:
                if variant.needs_tsc and not counters.has_tsc:
                    continue
                mask = np.logical_and.reduce(
                    [is_unserved, *map(counters.is_counted, variant.needs)]
                )
                if mask.any():
                    variants.append((variant, mask))
                    is_unserved = is_unserved & ~mask
            self._masks[metric.key] = ~is_unserved
        self._formulas: list[tuple[int, Formula, Formula, Bools | None]] = []
        """Index of the metric, numerator, denominator, and the CPUs; None: all."""
        for key, variants in self.variants.items():
            index = self.registry.index[key]
            for variant, mask in variants:
                if variant.numerator is not None and variant.denominator is not None:
                    formulas = variant.numerator, variant.denominator
                    self._formulas.append((index, *formulas, None if mask.all() else mask))
        self._busy: list[tuple[Formula, Formula, Bools]] = []
        """Formulas of busy time from the kernel's idle times, used where `ref` was not counted."""
        for variant in METRICS["util"].variants:
            if "ref" not in variant.needs and variant.numerator and variant.denominator:
                mask = np.logical_and.reduce([*map(counters.is_counted, variant.needs)])
                self._busy += [(variant.numerator, variant.denominator, mask)] * bool(mask.any())

    def origin(self, key: str) -> str | None:
        """Returns the formulas and counters of a metric, as text; None if no CPU has the metric."""
        parts, columns = [], self._counters.columns
        for variant, _ in self.variants[key]:
            origins = dict.fromkeys(columns[need].counter.origin for need in variant.needs)
            parts.append(f"{variant.origin} ({', '.join(origins)})")
        return " | ".join(parts) or None

    def cpus_with(self, key: str) -> Bools:
        """Returns a mask of the CPUs that have the metric."""
        return self._masks[key]

    def needed_counters(self, key: str) -> set[str]:
        """Returns the keys of all counters that the metric uses in this stream."""
        keys = self.metrics[key].source_metrics or (key,)
        variants = (variant for part in keys for variant, _ in self.variants[part])
        return {counter_key for variant in variants for counter_key in variant.needs}

    def first_missing_counter(self, key: str) -> str | None:
        """Returns the first needed counter that the stream lacks; None if a CPU has the metric."""
        if self.variants[key]:
            return None
        needed_keys = self.metrics[key].variants[0].needs
        return next((k for k in needed_keys if k not in self._counters.columns), "tsc")

    def evaluate(self, delta: Delta) -> Values:
        """Returns all metrics of a span, or of each of several samples."""
        q = Quantities(self._counters, delta, self._base_hz)
        samples = delta.doubts.shape[:-2]
        top, bottom = np.full((2, *samples, len(self.metrics), self._cpus), np.nan)
        with np.errstate(divide="ignore", invalid="ignore"):
            for i, numerator, denominator, mask in self._formulas:
                if mask is None:  # all CPUs
                    top[..., i, :], bottom[..., i, :] = numerator(q), denominator(q)
                else:
                    top[..., i, mask] = numerator(q)[..., mask]
                    bottom[..., i, mask] = denominator(q)[..., mask]
            if "ref" in self._counters.multiplexed:
                # Busy time comes from idle times where `ref` was not counted. If `ref` is an
                # estimate, involuntary halts are unknown: a small difference of two large times.
                is_uncounted = self._counters.is_partly_counted(delta, "ref")
                util = INDEX["util"]
                for numerator, denominator, mask in self._busy if is_uncounted.any() else ():
                    rows = np.broadcast_to(is_uncounted & mask, top[..., util, :].shape)
                    top[..., util, :][rows] = numerator(q)[rows]
                    bottom[..., util, :][rows] = denominator(q)[rows]
                    is_uncounted = is_uncounted & ~mask
                estimated = self._counters.is_estimated(delta, "ref")
                if estimated.any():
                    top[..., INDEX["involuntary"], :][estimated] = np.nan
        return Values(top, bottom, registry=self.registry)


class Values:
    """Metrics of one span, for single CPUs and for any group of CPUs. With a leading axis: metrics
    of each of several samples."""

    def __init__(
        self,
        numerators: Floats,
        denominators: Floats,
        values: Floats | None = None,
        registry: MetricRegistry = STATIC_METRICS,
    ) -> None:
        self.registry = registry
        self.numerators, self.denominators = numerators, denominators
        """(metrics, CPUs), in the order of the registry."""
        if values is None:
            lows, highs = registry.lows[:, None], registry.highs[:, None]
            values = ratio(numerators, denominators, lows, highs)
        self.metrics = values

    def __getitem__(self, key: str) -> Floats:
        """Returns a metric by CPU; NaN where it is unknown or nothing ran."""
        return self.metrics[..., self.registry.index[key], :]

    def samples(self, samples: int | slice) -> Values:
        """Returns one of several samples, or a slice of them, as a view."""
        parts = self.numerators[samples], self.denominators[samples], self.metrics[samples]
        return Values(*parts, registry=self.registry)

    def mean(self, key: str, rows: list[int] | slice) -> float:
        """Returns a metric for a group of CPUs. CPUs with an unknown value are left out."""
        return float(self.group(rows)[self.registry.index[key]])

    def group(
        self, rows: list[int] | slice | Ints, metrics: list[int] | slice = slice(None)
    ) -> Floats:
        """Returns metrics for a group of CPUs. `metrics`: at least two indexes in the registry,
        because numpy adds a single row in another order, which changes the last digit."""
        lows, highs = self.registry.lows[metrics], self.registry.highs[metrics]
        return ratio(*self.group_sums(rows, metrics), lows, highs)

    def group_sums(
        self, rows: list[int] | slice | Ints, metrics: list[int] | slice = slice(None)
    ) -> tuple[Floats, Floats]:
        """Returns the sums of the numerators and of the denominators over a group of CPUs."""
        sums = self.numerators, self.denominators
        top, bottom = (part[..., metrics, :][..., rows] for part in sums)
        is_known = np.isfinite(top) & np.isfinite(bottom)
        if np.count_nonzero(is_known) < is_known.size:
            top, bottom = (np.where(is_known, part, 0.0) for part in (top, bottom))
        total, base = np.add.reduce(top, axis=-1), np.add.reduce(bottom, axis=-1)
        if self.registry.events:
            counts = np.where(self.registry.is_sum[metrics], is_known.sum(axis=-1), 1)
            base = base / np.maximum(counts, 1)
        return total, base


def ratio(top: Floats, bottom: Floats, low: Floats | float, high: Floats | float) -> Floats:
    """Returns quotients, clipped to `low` and `high`; NaN where `bottom` is not positive."""
    values = np.full(top.shape, np.nan)
    np.divide(top, bottom, out=values, where=bottom > 0)
    np.maximum(values, low, out=values)
    np.minimum(values, high, out=values)
    return values


LOST_RATIO = "lost_ratio"
LOSS_PARTS = "steal", "involuntary", "clock"
MIN_WANTED_SHARE = 0.1
"""Minimum share of a sample for which a CPU must have work, so that its losses count. A CPU with
less work wakes up only occasionally, and its clock has no time to rise."""


class LostSeconds(NamedTuple):
    """Seconds that each CPU lost while it had work, for one span or for each of several samples. 0
    for CPUs without enough work, NaN where a counter failed.

    The wanted time of a CPU is the time in which the operating system has work for it: wanted =
    elapsed - idle - polling idle. A sample counts for a CPU if at least MIN_WANTED_SHARE of it is
    wanted time. Each moment of the wanted time belongs to at most one part, in this order:

    1. steal: the hypervisor ran something else.
    2. involuntary: the core was halted in the rest of the wanted time.
    3. clock: the CPU ran, in run = wanted - steal - involuntary, more slowly than its ceiling
       allows. The missing seconds are run * (1 - clock / ceiling).

        lost_ratio = (steal + involuntary + clock) / wanted

    All parts are in seconds, so they are added up over CPUs and samples before the division. As
    clock is at most run, the sum of the parts is at most wanted. A part that the stream's counters
    cannot give is left out of the sum. If a part is unknown only in this sample, the whole sample
    is unknown for this CPU.

    The time that a task loses while its CPU works for other tasks (waits, a busy sibling) is no
    loss of the CPU; `session.losses` adds it.
    """

    wanted_s: Floats
    parts_s: Floats
    """(LOSS_PARTS, CPUs). Halts are a difference of two clocks, and may be slightly negative."""

    def samples(self, samples: slice) -> LostSeconds:
        return LostSeconds(self.wanted_s[samples], self.parts_s[samples])


TICK_S = 0.01
"""Length in s of a tick of /proc/stat, on x86 independent of the kernel's own tick."""
MAX_CARRIED_S = 2 * TICK_S
"""Maximum stolen time in s that is carried from one sample to the next: two ticks. Older ticks fell
into time in which the CPU was idle."""
MIN_LONG_SAMPLE_NS = 100_000_000
"""Minimum length in ns of samples that carry no stolen time over: a tick of 10 ms is a small
part."""


def distribute_steal(
    stolen_s: Floats, wanted_s: Floats, carried_s: Floats
) -> tuple[Floats, Floats]:
    """Distributes ticks of steal over short samples. A tick may include time of earlier samples, so
    a sample may have more stolen time than wanted time. The excess is carried to the next samples.
    Arrays are (samples, CPUs). Returns the stolen seconds of each sample, and the excess of each
    CPU after the last. `carried_s`: the excess before the first."""
    steal_s = np.minimum(stolen_s, wanted_s)
    if not np.count_nonzero(carried_s) and not np.count_nonzero(stolen_s > wanted_s):
        return steal_s, carried_s
    for sample, (stolen, wanted) in enumerate(zip(stolen_s, wanted_s, strict=True)):
        whole_s = carried_s + np.nan_to_num(stolen)
        steal_s[sample] = np.where(np.isnan(stolen + wanted), np.nan, np.minimum(whole_s, wanted))
        carried_s = np.minimum(whole_s - np.nan_to_num(steal_s[sample]), MAX_CARRIED_S)
    return steal_s, carried_s


def lost_time(
    values: Values,
    ceiling_hz: Floats,
    evaluator: Evaluator,
    estimated: Bools | None = None,
    distribute_steal: Callable[[Floats, Floats], Floats] | None = None,
) -> LostSeconds:
    """Returns the lost time of each CPU, and writes `lost_ratio` into the values; where it is
    unknown, both of its sums are 0. `ceiling_hz`: by CPU, the lowest clock that turbo may have
    allowed; NaN where unknown. `estimated`: mask of the CPUs whose halts are left out, because
    their counts are estimates. `distribute_steal`: a function that distributes stolen seconds
    over short samples, given stolen and wanted seconds; None for long samples."""
    top, bottom = values.numerators, values.denominators
    span_s, poll = bottom[..., INDEX["util"], :], values["poll"]
    spare_share = values["idle"] + np.where(np.isnan(poll), 0.0, poll)
    wanted_share = np.minimum(np.maximum(1 - spare_share, 0.0), 1.0)
    is_busy = wanted_share >= MIN_WANTED_SHARE
    parts = np.zeros((*wanted_share.shape[:-1], len(LOSS_PARTS), wanted_share.shape[-1]))
    steal, halted, clock = (parts[..., index, :] for index in range(len(LOSS_PARTS)))
    # A part stays 0 on CPUs whose counters do not provide it.
    stolen_share, stolen_s = values["steal"], top[..., INDEX["steal"], :]
    if distribute_steal is not None:
        stolen_share = distribute_steal(stolen_s, wanted_share * span_s) / span_s
    np.minimum(stolen_share, wanted_share, out=steal, where=evaluator.cpus_with("steal"))
    left_share = wanted_share - steal
    # Not clipped to the metric's range, which starts at 0: clipping each sample would turn noise
    # into a loss.
    index = INDEX["involuntary"]
    halted_s = top[..., index, :]
    # Stolen time that `distribute_steal` moves to another sample must not count as a halt.
    if distribute_steal is not None:
        late_s = stolen_s - steal * span_s
        halted_s = halted_s + np.where(evaluator.cpus_with("steal"), late_s, 0.0)
    max_halt = np.minimum(wanted_share, left_share)
    halt = ratio(halted_s, bottom[..., index, :], -wanted_share, max_halt)
    has_halts = evaluator.cpus_with("involuntary")
    if estimated is not None:
        has_halts = has_halts & ~estimated
    np.copyto(halted, halt, where=has_halts)
    below_share = np.minimum(np.maximum(1 - values["busy_hz"] / ceiling_hz, 0.0), 1.0)
    np.copyto(clock, below_share, where=evaluator.cpus_with("busy_hz") & ~np.isnan(ceiling_hz))
    clock *= left_share - np.maximum(halted, 0.0)
    parts *= span_s[..., None, :]
    np.copyto(parts, 0.0, where=~is_busy[..., None, :])
    wanted_s = np.where(is_busy, wanted_share * span_s, 0.0)
    index, metric, lost_s = INDEX[LOST_RATIO], METRICS[LOST_RATIO], parts.sum(axis=-2)
    is_known = np.isfinite(lost_s) & np.isfinite(wanted_s)
    sums = np.where(is_known, lost_s, 0.0), np.where(is_known, wanted_s, 0.0)
    top[..., index, :], bottom[..., index, :] = sums
    values.metrics[..., index, :] = ratio(*sums, metric.low, metric.high)
    return LostSeconds(wanted_s, parts)


MAX_RESTING_SHARE, MIN_AWAKE_SHARE = 0.01, 0.02
"""Busy shares at which a CPU starts to count as at rest (below the first) or as awake (from the
second). In between, it keeps its state, so that its numbers do not flicker."""


def resting_cpus(util: Floats, resting_before: Bools | None = None) -> Bools:
    """Returns a mask of the CPUs at rest. They run so rarely that a number per running time, such
    as clock or IPC, only describes a few wake-ups. A CPU with unknown busy share is not at rest.
    `resting_before`: the previous interval's mask; without it, only MAX_RESTING_SHARE counts."""
    mask: Bools = util < MAX_RESTING_SHARE
    if resting_before is not None and len(resting_before) == len(util):
        mask |= resting_before & (util < MIN_AWAKE_SHARE)
    return np.asarray(mask)


# --- The numbers of the machine and of its packages, cores and L3s: power, temperature, memory
# traffic, pressure, load and interrupts. Memory traffic is compared with the highest traffic in
# any second of this run, because documented maxima are unreliable.

READ_KEY, WRITE_KEY = TRAFFIC_KEYS = ("memory_read_bytes", "memory_write_bytes")
MIN_AVERAGED_S = 0.95
"""Minimum time in s over which traffic is averaged: ten samples of 100 ms, less their jitter. A
burst from a queue may exceed what memory sustains for longer."""
SEARCH_SAMPLES = 32
"""Number of samples that are searched at once for the end of the current second."""


def memory_traffic(counters: Counters, delta: Delta) -> tuple[Floats, Floats] | None:
    """Returns, by package, the bytes read and written, and the seconds of the span; None if the
    stream does not count them."""
    parts = [counters.increments(delta, key) for key in TRAFFIC_KEYS]
    if parts[0] is None or parts[1] is None:
        return None
    ticks = delta.tables[counters.columns[READ_KEY].block].ticks
    return parts[0] + parts[1], ticks / counters.stamp_hz


class BestTraffic:
    """The highest traffic of each package in any second so far, in bytes/s; NaN before a full
    second."""

    def __init__(self, counters: Counters) -> None:
        count = len(counters.hello.packages)
        self.best_rate: Floats = np.full(count, np.nan)
        self._sums = np.zeros((2, count))
        """Bytes and seconds of the current, incomplete second."""

    def learn(self, increments: Floats, seconds: Floats) -> Floats:
        """Adds bytes and seconds of samples from `memory_traffic`. Returns the best rate after each
        sample, (samples, packages). Seconds with an unknown sample are ignored."""
        is_read, rates, first = seconds > 0, np.empty(increments.shape), 0
        parts = np.where(is_read, [increments, seconds], 0.0)
        while first < len(increments):  # each pass ends when any package has a full second
            new_parts = parts[:, first : first + SEARCH_SAMPLES]
            sums = np.concatenate([self._sums[:, None], new_parts], axis=1)
            sums = np.add.accumulate(sums, axis=1)[:, 1:]
            is_full = (sums[1] >= MIN_AVERAGED_S) | np.isnan(sums[0])
            ends = np.flatnonzero(is_full.any(axis=1))
            last = int(ends[0]) if len(ends) else len(is_full) - 1
            self._sums = sums[:, last].copy()
            rates[first : first + last] = self.best_rate
            if (is_new := is_full[last]).any():
                with np.errstate(invalid="ignore", divide="ignore"):
                    rate = self._sums[0] / self._sums[1]
                self.best_rate = np.where(is_new, np.fmax(self.best_rate, rate), self.best_rate)
                self._sums[:, is_new] = 0.0
            rates[first + last] = self.best_rate
            first += last + 1
        return rates

    def share(self, rate: Floats) -> Floats:
        """Returns rates, in bytes per second, as shares of the best rate. A burst of less than a
        second can exceed the best rate; its share is limited to 1."""
        return np.minimum(rate / np.where(self.best_rate > 0, self.best_rate, np.nan), 1.0)


MEMORY_SHARE = "memory_of_best"
MEMORY_COUNTERS = {f"{key}_per_s": key for key in TRAFFIC_KEYS}
"""Counters of memory reads and writes, by the name of their rates."""
CORE_ENERGY = CORE["core_power_w"].counter
MIN_BUSY_SHARE = 0.5
"""Minimum busy share at which a CPU must have cache misses, so that zero traffic is an error."""
Rates = dict[str, Floats]
"""Rates of counters per second, and means of gauges, by key and row; NaN if not read."""


class MachineTotals:
    """Computes the numbers whose counters are in the stream."""

    def __init__(self, counters: Counters, best: BestTraffic) -> None:
        self._counters, self._best_traffic = counters, best
        names = COUNTER_BY_NAME.items()
        self._names = [(name, key) for name, key in names if key in counters.columns]
        self._cores, self._topology = len(counters.hello.cores), counters.hello.topology
        self._machine_keys: list[str] = []
        """Keys of counters with several columns. The arrays below are for all other counters."""
        self._rows: list[tuple[str, slice]] = []
        ticks, increments, units_per_second = [np.zeros(0, int)], [np.zeros(0, int)], [np.zeros(0)]
        first = 0
        for key in dict.fromkeys([*COUNTER_BY_NAME.values(), CORE_ENERGY, *L3_COUNTERS.values()]):
            column = counters.columns.get(key)
            if column is None:
                continue
            if column.counter.columns > 1:
                self._machine_keys.append(key)
                continue
            tick_indexes, increment_indexes = counters.value_indexes(column)
            self._rows.append((key, slice(first, first := first + len(tick_indexes))))
            gauge = column.counter.kind == "gauge"  # a Delta stores it multiplied by ticks
            ticks.append(tick_indexes)
            increments.append(increment_indexes)
            units_per_second.append(np.full(len(tick_indexes), 1.0 if gauge else counters.stamp_hz))
        self._ticks, self._increment_indexes, self._units_per_second = map(
            np.concatenate, (ticks, increments, units_per_second)
        )

    def rates(self, delta: Delta) -> Rates:
        """Returns the rates of the stream's counters of the machine, packages, cores and L3s."""
        increments = delta.values_at(self._increment_indexes)
        span = delta.values_at(self._ticks) / self._units_per_second
        values = np.divide(increments, span, out=np.full(len(span), np.nan), where=span > 0)
        rates = {key: values[rows] for key, rows in self._rows}
        for key in self._machine_keys:
            if (rate := self._counters.rates(delta, key)) is not None:
                rates[key] = rate
        return rates

    def numbers(self, rates: Rates) -> dict[str, float]:
        """Returns the numbers of the machine. A sum with an unknown part is NaN."""
        numbers: dict[str, float] = {}
        for name, key in self._names:
            if name == MEMORY_SHARE:
                if {*MEMORY_COUNTERS} <= numbers.keys():
                    total = sum(numbers[name] for name in MEMORY_COUNTERS)
                    best_rate = float(self._best_traffic.best_rate.sum() or np.nan)
                    numbers[name] = min(total / best_rate, 1.0)  # in this order, NaN stays NaN
                continue
            by_row = rates.get(key)
            if by_row is not None and len(by_row):
                if len(by_row) == 1:  # the usual case; saves 8 % of an interval
                    value = float(by_row[0])
                else:
                    value = float(by_row.max() if name == "temperature_c" else by_row.sum())
                is_share = MACHINE[name].unit == "ratio"
                numbers[name] = min(max(value, 0.0), 1.0) if is_share else value
        return numbers

    def package_values(self, rates: Rates) -> dict[str, Floats]:
        """Returns the numbers in PACKAGE_NAMES, each by package in the order of hello."""
        keys = {name: COUNTER_BY_NAME[name] for name in PACKAGE_NAMES if name != MEMORY_SHARE}
        numbers = {name: rates[key] for name, key in keys.items() if key in rates}
        if {*MEMORY_COUNTERS} <= numbers.keys():
            read_bytes, written_bytes = (numbers[name] for name in MEMORY_COUNTERS)
            numbers[MEMORY_SHARE] = self._best_traffic.share(read_bytes + written_bytes)
        return numbers

    def core_power_w(self, rates: Rates, rows: Ints) -> Floats:
        """Returns the power of each core in W; NaN where unknown. `rows`: row of each core in
        blocks of core scope; -1 for a core without a row."""
        watts = rates.get(CORE_ENERGY)
        if watts is None or len(watts) != self._cores:
            return np.full(len(rows), np.nan)
        return np.asarray(np.append(watts, np.nan)[rows])

    def l3_values(self, rates: Rates, util: Floats) -> dict[str, Floats]:
        """Returns the traffic and the occupancy of each L3, in the row of the CPU that reads its
        counters. Zero traffic of an L3 with a busy CPU is unknown: some monitors are dead."""
        numbers, topology = {}, self._topology
        for name, key in L3_COUNTERS.items():
            by_cpu = rates.get(key)
            if by_cpu is None or len(by_cpu) != len(topology):
                continue
            for row in np.flatnonzero(by_cpu == 0).tolist():
                sharing_rows = [i for i, cpu in enumerate(topology) if cpu.l3 == topology[row].l3]
                by_cpu[row] = np.nan if (util[sharing_rows] >= MIN_BUSY_SHARE).any() else 0.0
            numbers[name] = by_cpu
        return numbers
