"""The increments of all counters over a span of time (`Delta`), and their bounds (`CounterLimits`).

A `Delta` also has the suspect counters. `DeltaLayout` is the layout of its arrays: the rows and the
values of all blocks are stored one after another, so that the number of numpy calls does not grow
with the number of blocks. Further functions handle arrays whose first axis is the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Bools, Codes, Floats, Ints, Words


class Doubt(IntEnum):
    """Reason why a CPU's counter is suspect in a sample; code 0: it is not suspect. A metric with a
    suspect counter is unknown."""

    JUMPED = 1
    """The counter went backwards, or advanced further than it can in that time: something overwrote
    it."""
    FAST = 2
    """Reference cycles advanced faster than the TSC."""
    UNLIKE = 3
    """The counter differs from APERF or MPERF, although it agreed with that counter before."""
    IPC = 4
    """More instructions were counted than any core can retire in that number of cycles."""
    ABOVE = 5
    """The count of a part exceeds the count of the whole that contains it."""
    STILL = 6
    """The counter did not advance, although another counter shows that the CPU worked."""
    OUTSIDE = 7
    """The counter is outside the bounds given by the unhalted times of the siblings."""
    APART = 8
    """Two siblings counted different numbers of events in the same time."""
    BACKWARDS = 9
    """The time stamps of the read went backwards, so nothing from that read is used."""
    TAKEN = 10
    """The counter's register does not hold what the probe programmed."""
    SLOTS = 11
    """The counts of the classes of issue slots do not add up to the count of all slots."""
    IDLE = 12
    """The busy time from idle transitions differs from that in /proc/stat."""


MIN_REDUCED_SAMPLES = 16
"""Minimum number of values in a sample for which np.add.reduce adds samples in their order; with
fewer values it adds in pairs, which rounds differently."""
IS_LASTING = np.isin(
    np.arange(256),
    [Doubt.UNLIKE, Doubt.ABOVE, Doubt.STILL, Doubt.OUTSIDE, Doubt.APART, Doubt.SLOTS, Doubt.IDLE],
)
"""Mask, by code, of lasting doubts, whose cause is a dead counter or another program that uses the
counter. The counter is used again only after two consecutive samples without a doubt."""


def add_samples(total: Floats, samples: Floats) -> Floats:
    """Returns the total plus all samples, which are along the first axis. They are added in their
    order, so that the result does not depend on how many samples are added at once."""
    if len(samples) == 1:
        return np.asarray(total + samples[0])
    if total.size < MIN_REDUCED_SAMPLES:
        return np.array(np.add.accumulate(np.concatenate([total[None], samples]))[-1])
    return np.asarray(np.add.reduce(np.concatenate([(total + samples[0])[None], samples[1:]])))


def any_by_sample(mask: Bools) -> Bools:
    """Returns, for each sample (the first of two axes), whether any element is true."""
    return np.asarray(np.logical_or.reduce(mask, axis=-1))


def first_true(mask: Bools, first: int = 0, last: int | None = None) -> int:
    """Returns the index of the first sample with a true element, from `first` up to but not
    including `last` (None: the end); the end of that range if there is none. Samples are along the
    first axis."""
    part = mask[first:last]
    if part.ndim > 1:
        part = np.logical_or.reduce(part, axis=tuple(range(1, part.ndim)))
    index = int(part.argmax()) if len(part) else 0
    return first + (index if len(part) and part[index] else len(part))


def latest_known(known: Bools, *series: tuple[np.ndarray, np.ndarray]) -> list[np.ndarray]:
    """Returns, for each series, its latest known values before the first sample and after each
    sample, (1 + samples, rows). `known`: mask (samples, rows). A series has two arrays: the values
    before the first sample, (rows), and the values of each sample, (samples, rows)."""
    if np.count_nonzero(known) == known.size:  # the usual case
        return [np.concatenate([before[None], values]) for before, values in series]
    # For a single sample, as on a live screen, this takes a third of the time.
    if len(known) == 1:
        return [np.array([b, np.where(known[0], values[0], b)]) for b, values in series]
    samples, columns = np.arange(1, len(known) + 1)[:, None], known.shape[1]
    source = np.maximum.accumulate(np.where(known, samples, 0))
    source = columns * source + np.arange(columns)  # take() needs half of the time of indexing
    latest = []
    for before, values in series:
        every = np.concatenate([before[None], values])
        every[1:] = every.take(source)
        latest.append(every)
    return latest


def distinct(values: Ints) -> list[int]:
    """Returns the distinct values, ascending. np.unique would import numpy.ma: 30 ms and 2 MB."""
    return sorted({*values.tolist()})


def with_lasting(new_codes: Codes, previous: Codes) -> Codes:
    """Returns the doubt codes of a sample: its new codes or, where it has none, the lasting codes
    (`IS_LASTING`) of the previous sample."""
    return np.where((new_codes == 0) & IS_LASTING[previous], previous, new_codes)


def doubts_by_cpu(codes: Codes, keys: Any) -> dict[int, set[tuple[str, Doubt]]]:
    """Returns the suspect counters' keys with their doubts, by index of the CPU in hello. `codes`:
    doubt codes, (CPUs, counters)."""
    by_cpu: dict[int, set[tuple[str, Doubt]]] = {}
    for row, counter in zip(*np.nonzero(codes), strict=True):
        by_cpu.setdefault(int(row), set()).add((keys[counter], Doubt(codes[row, counter])))
    return by_cpu


@dataclass(frozen=True, slots=True)
class BlockSlices:
    """The position of one block of counters in the arrays of a Delta."""

    block: wire.Block
    count: int
    """Number of rows of the block."""
    columns: int
    rows: slice
    values: slice
    """Values of the block; the values of a row are adjacent."""


class DeltaLayout:
    """The layout of all blocks of a stream in the arrays of a Delta."""

    def __init__(self, hello: wire.Hello) -> None:
        self.blocks: list[BlockSlices] = []
        self.rows = self.values = 0
        """Total numbers of rows and values."""
        for block in hello.blocks:
            count, columns = hello.rows(block.scope), block.columns
            rows, values = self.rows + count, self.values + count * columns
            row_slice, value_slice = slice(self.rows, rows), slice(self.values, values)
            self.blocks.append(BlockSlices(block, count, columns, row_slice, value_slice))
            self.rows, self.values = rows, values
        widths = np.repeat([p.columns for p in self.blocks], [p.count for p in self.blocks])
        self.row_of: Ints = np.repeat(np.arange(self.rows), widths)
        """The row of each value."""
        self._with_values: Ints = np.flatnonzero(widths)
        self._starts: Ints = (np.cumsum(widths) - widths)[self._with_values]
        """The rows that have values, and the index of the first value of each."""
        self.cpu_blocks = [place for place in self.blocks if place.block.scope == "cpu"]
        self.cpu_rows: Bools = np.zeros(self.rows, bool)
        """Mask of the rows of blocks of CPU scope."""
        for place in self.cpu_blocks:
            self.cpu_rows[place.rows] = True
        self.stamp_rows = next((p.rows for p in self.blocks if p.block.name == "cpu"), None)
        """The rows of block `cpu`, which have the time stamps of the CPUs even if the block has no
        counters; None if the stream does not have this block."""

    def delta_indexes(self, block: str, column: int) -> tuple[Ints, Ints]:
        """Returns, for each row of a block, two indices into a Delta: the ticks of the row, and
        its difference of this column."""
        place = next(place for place in self.blocks if place.block.name == block)
        rows = np.arange(place.count)
        return place.rows.start + rows, self.rows + place.values.start + column * len(rows) + rows

    def repeat_by_value(self, rows: np.ndarray) -> np.ndarray:
        """Returns (frames, values): the element of each row, repeated for each value of the row.
        `rows`: (frames, rows)."""
        return rows.take(self.row_of, axis=1)  # take() needs a quarter of the time of indexing

    def any_value(self, values: Bools) -> Bools:
        """Returns a mask (frames, rows) of the rows with at least one true value. `values`: mask
        (frames, values)."""
        result: Bools = np.zeros((len(values), self.rows), bool)
        if len(self._with_values):
            result[:, self._with_values] = np.logical_or.reduceat(values, self._starts, axis=1)
        return result


@dataclass(slots=True)
class BlockDelta:
    """The part of a Delta that belongs to one block, as views of its arrays; with a leading axis if
    the Delta has several samples."""

    ticks: Floats
    """(rows) stamp ticks of the span; 0 where the row was not read."""
    increments: Floats
    """(rows, columns) how far each counter advanced, in base units. Gauges are value times ticks,
    so that sums give means. NaN where unknown or suspect."""
    width: Floats
    """(rows) stamp ticks that the reads at both ends of the span took; 0 in a sum of samples."""

    @property
    def reads(self) -> Floats:
        """(rows) share of the span that its two reads took; 0 where the row was not read."""
        zeros = np.zeros(self.ticks.shape)
        return np.divide(self.width, self.ticks, out=zeros, where=self.ticks > 0)


class Delta:
    """Differences of all counters over one span. All numbers are in two arrays, so that one numpy
    operation adds a sample to a sum."""

    def __init__(
        self, layout: DeltaLayout, sums: Floats, widths: Floats, doubts: Codes,
        keys: tuple[str, ...], skew_ns: Ints,
    ) -> None:  # fmt: skip
        self._layout, self._sums, self._widths = layout, sums, widths
        self.doubts = doubts
        """(CPUs, counters), with a leading axis for several samples: codes of Doubt; 0 means that
        there is none. Counters are in the order of `keys`."""
        self.keys = keys
        self.skew_ns = skew_ns
        """Time in ns between the first and the last wake-up of the threads that read one frame; the
        longest of all frames."""

    @cached_property
    def tables(self) -> Mapping[str, BlockDelta]:
        return {place.block.name: self._table(place) for place in self._layout.blocks}

    def _table(self, place: BlockSlices) -> BlockDelta:
        """Returns the part of the arrays that belongs to one block. The sums are the ticks of all
        rows, then the differences of all values, block by block and column by column: numpy is
        twice as fast along a column whose rows are contiguous."""
        sums = self._sums
        increments = sums[..., self._layout.rows :][..., place.values]
        return BlockDelta(
            sums[..., place.rows],
            increments.reshape(*sums.shape[:-1], place.columns, place.count).swapaxes(-1, -2),
            self._widths[..., place.rows],
        )

    def take(self, indexes: Ints) -> Floats:
        """Returns the ticks or increments at these indices; see `DeltaLayout.delta_indexes`."""
        return self._sums.take(indexes, axis=-1)

    def write(self, ticks: Floats, increments: Floats, width: Floats) -> None:
        """Writes the rows and values of all blocks, given in the layout of frames: (samples, rows)
        and (samples, values), where the values of a row are adjacent."""
        self._sums[:, : self._layout.rows] = ticks
        tables = self.tables
        for place in self._layout.blocks:
            of_rows = increments[:, place.values].reshape(
                len(increments), place.count, place.columns
            )
            tables[place.block.name].increments[...] = of_rows
        self._widths[...] = width

    def add(self, samples: Delta, doubted: Ints) -> None:
        """Adds samples. `doubted`: indices of those with suspect counters; the doubts of a later
        sample replace older ones."""
        self._sums[:] = add_samples(self._sums, samples._sums)
        self.skew_ns = max(self.skew_ns, samples.skew_ns.max(initial=0))
        for sample in doubted.tolist():
            codes = samples.doubts[sample]
            self.doubts = np.where(codes != 0, codes, self.doubts)

    @property
    def unread_values(self) -> Bools | None:
        """(samples, values): mask of the values that are unknown although their rows were read;
        None in the usual case that there are none."""
        if not np.isnan(self._sums.sum()):
            return None
        return np.asarray(np.isnan(self._sums[..., self._layout.rows :]))

    @property
    def suspect_counters(self) -> dict[int, set[tuple[str, Doubt]]]:
        """The suspect counters with the doubts about them, by index of the CPU in hello."""
        return doubts_by_cpu(self.doubts, self.keys)

    def __getitem__(self, samples: int | slice | None) -> Delta:
        """Returns one sample, or a slice of the samples; with None, adds a leading axis of length 1
        to a single sample. The result shares the arrays."""
        return Delta(
            self._layout, self._sums[samples], self._widths[samples], self.doubts[samples],
            self.keys, self.skew_ns[samples],
        )  # fmt: skip

    def copy(self) -> Delta:
        return Delta(
            self._layout, self._sums.copy(), self._widths.copy(), self.doubts.copy(), self.keys,
            self.skew_ns,
        )  # fmt: skip

    def since(self, earlier: Delta) -> Delta:
        """Returns the differences from the end of `earlier`, which has the same start, to the end
        of this delta. Doubts and skew cannot be subtracted; they include those of `earlier`."""
        sums = self._sums - earlier._sums
        return Delta(self._layout, sums, self._widths, self.doubts, self.keys, self.skew_ns)


# --- The scale, width and upper bound of each counter

MAX_HZ = 10e9
"""Upper bound of any clock. A cycle counter that advanced faster was rewritten; it did not wrap."""
MAX_IPC = 16.0
MAX_EVENTS = 1000 * MAX_HZ
"""Upper bound of the rate of any event, per second. It is above MAX_HZ, because a counter of a
queue adds all entries of the queue in each cycle."""
MAX_PER_SECOND = {
    "cycles": MAX_HZ, "instructions": MAX_HZ * MAX_IPC, "events": MAX_EVENTS, "s": 1.0,
}  # fmt: skip
"""Upper bound per second of a counter of CPU scope, by unit."""
UNLIMITED = 1e30
"""The value for "no upper bound"; it is finite, so that its product with 0 seconds is 0."""
TIME_SLACK_S = 0.05
"""Time in s by which a counter of seconds may exceed its span: it advances in ticks of 10 ms, and
an idle period is added to it as a whole."""
PERF_TIMES = ("perf_enabled_s", "perf_running_s")


class CounterLimits:
    """The scale, width and upper bound of the differences of each value of all blocks."""

    def __init__(self, blocks: Sequence[BlockSlices]) -> None:
        def property_of_values(
            property_of: Callable[[wire.Counter, wire.Scope], object], kind: type
        ) -> np.ndarray:
            return np.concatenate([
                np.tile(
                    np.array(
                        [property_of(c, p.block.scope) for c in counter_of_columns(p.block)], kind
                    ),
                    p.count,
                )
                for p in blocks
            ])  # fmt: skip

        self._scale: Floats = property_of_values(lambda c, _: c.scale, float)
        self._mask: Words = property_of_values(lambda c, _: (1 << c.bits) - 1, np.uint64)
        self._gauges: Ints = np.flatnonzero(
            property_of_values(lambda c, _: c.kind == "gauge", bool)
        )
        is_full_width = property_of_values(lambda c, _: c.bits == 64 and c.kind != "gauge", bool)
        self._max_rates: Floats = property_of_values(_max_per_second, float)
        self._slack: Floats = property_of_values(
            lambda c, _: TIME_SLACK_S if c.unit == "s" else 1e6, float
        )
        self._min_step = np.where(is_full_width, -self._slack, -np.inf)
        """Lower bound of each difference. A 64-bit sum that the kernel computes may decrease a
        little."""
        self.multiplexed = [*_multiplexed(blocks)]

    def increments(self, old: Words, new: Words, ticks: Floats, row_of: Ints) -> Floats:
        """Returns differences in base units (gauges: value times ticks), modulo the width of each
        counter, so that a wrap needs no special case. `ticks`: stamp ticks of each row. `row_of`:
        the row of each value."""
        steps = new - old
        steps &= self._mask
        increments = steps.view(np.int64).astype(np.float64)
        if len(gauges := self._gauges):  # gauges are signed and weighted by time
            increments[:, gauges] = (
                new[:, gauges].view(np.int64).astype(np.float64) * ticks[:, row_of[gauges]]
            )
        increments *= self._scale
        return increments

    def scale_multiplexed(self, increments: Floats) -> Floats:
        """Returns the differences, scaled up to the whole span where perf multiplexed the
        counters."""
        for block in self.multiplexed:
            table = increments[:, block.values].reshape(-1, len(block.running), len(block.columns))
            enabled, running = (table[..., index, None] for index in block.times)
            with np.errstate(divide="ignore", invalid="ignore"):
                factor = np.where(running > 0, enabled / running, np.nan)
            table[:] = np.where(block.columns, table * factor, table)
        return increments

    def is_wrong(self, increments: Floats, seconds: Floats) -> Bools:
        """Returns a mask of differences that cannot be true: the counter was written, or the read
        cannot be trusted. `seconds`: the span of each value; this method overwrites the array."""
        seconds *= self._max_rates
        seconds += self._slack
        result: Bools = increments > seconds
        if not np.minimum.reduce(increments, axis=None, initial=0.0) >= 0:
            result |= increments < self._min_step
        for block in self.multiplexed:  # values that were scaled by wrong times are wrong too
            table = result[:, block.values].reshape(-1, len(block.running), len(block.columns))
            table |= block.columns & table[..., block.times].any(axis=-1, keepdims=True)
        return result


def _max_per_second(counter: wire.Counter, scope: wire.Scope) -> float:
    if counter.kind != "counter" or scope != "cpu":
        return UNLIMITED
    return MAX_PER_SECOND.get(counter.unit, UNLIMITED)


@dataclass(frozen=True, slots=True)
class Multiplexed:
    """A block whose counters perf multiplexes, and its slices in the arrays of a Delta."""

    rows: slice
    values: slice
    columns: Bools
    """Mask of the columns that are scaled up."""
    times: tuple[int, int]
    """Indices of the columns of PERF_TIMES."""
    running: Ints
    """For each row, the index of its perf_running_s among the values of all blocks."""
    is_mixed: bool
    """Whether some counters of the block are not multiplexed."""


def _multiplexed(blocks: Sequence[BlockSlices]) -> Iterator[Multiplexed]:
    for place in blocks:
        if (times := perf_time_columns(place.block)) is not None:
            counters = counter_of_columns(place.block)
            is_scaled = [c.origin.startswith("perf") and c.key not in PERF_TIMES for c in counters]
            running = place.values.start + times[1] + place.columns * np.arange(place.count)
            mixed = is_scaled.count(True) + len(times) < len(is_scaled)
            columns = np.array(is_scaled, bool)
            yield Multiplexed(place.rows, place.values, columns, times, running, mixed)


def counter_of_columns(block: wire.Block) -> list[wire.Counter]:
    return [c for c in block.counters for _ in range(c.columns)]


def perf_time_columns(block: wire.Block) -> tuple[int, int] | None:
    """Returns the indices of the columns of PERF_TIMES; None if the block does not have both."""
    keys = [c.key for c in counter_of_columns(block)]
    enabled, running = PERF_TIMES
    has_both = enabled in keys and running in keys
    return (keys.index(enabled), keys.index(running)) if has_both else None
