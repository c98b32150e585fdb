"""The increments of all counters over a span (`Delta`), and limits of these increments
(`CounterLimits`).

`DeltaLayout` describes the arrays of a `Delta`: the rows and values of all blocks are stored one
after another, so that the number of numpy calls does not grow with the number of blocks. Further
functions handle arrays whose first axis is the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, Self

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Bools, Codes, Floats, Ints, Words


class Doubt(IntEnum):
    """Reasons why a CPU's counter is suspect in a sample. Code 0 means that it is not suspect. A
    metric that uses a suspect counter is unknown. Exports contain the names; do not change them."""

    text: str
    """The reason, for users."""

    def __new__(cls, code: int, text: str = "") -> Self:
        doubt = int.__new__(cls, code)
        doubt._value_, doubt.text = code, text
        return doubt

    JUMPED = 1, "changed by more than is possible: overwritten by another program, or misread"
    FAST = 2, "ran faster than the TSC"
    UNLIKE = 3, "differs from APERF or MPERF: reprogrammed by another program"
    IPC = 4, "more instructions than any core retires in so many cycles"
    ABOVE = 5, "exceeds the total that it is part of: reprogrammed by another program"
    STILL = 6, "does not count on a busy CPU: defective, or reprogrammed by another program"
    OUTSIDE = 7, "contradicts how long the siblings ran: defective, or reprogrammed"
    APART = 8, "the siblings' counts differ"
    BACKWARDS = 9, "time stamps ran backwards"
    TAKEN = 10, "its register was changed by another program"
    SLOTS = 11, "the shares of the issue slots do not add up"
    IDLE = 12, "differs from /proc/stat: the kernel's idle transitions were misread"


MIN_REDUCED_SAMPLES = 16
"""Minimum number of values in a sample for which np.add.reduce adds samples in their order. It adds
fewer values pairwise, which rounds differently."""
IS_LASTING = np.isin(
    np.arange(256),
    [Doubt.UNLIKE, Doubt.ABOVE, Doubt.STILL, Doubt.OUTSIDE, Doubt.APART, Doubt.SLOTS, Doubt.IDLE],
)
"""Mask, by code, of doubts that last until two consecutive samples are free of doubt. Their cause
is a dead counter, or another program that uses the counter."""


def add_samples(total: Floats, samples: Floats) -> Floats:
    """Returns the total plus all samples (first axis). The samples are added in order, so that the
    result does not depend on how many are added at once."""
    if len(samples) == 1:
        return np.asarray(total + samples[0])
    if total.size < MIN_REDUCED_SAMPLES:
        return np.array(np.add.accumulate(np.concatenate([total[None], samples]))[-1])
    return np.asarray(np.add.reduce(np.concatenate([(total + samples[0])[None], samples[1:]])))


def first_true(mask: Bools, first: int = 0, last: int | None = None) -> int:
    """Returns the index of the first sample with a true element, from `first` up to but not
    including `last` (None: to the end). If there is none, returns the end of the range."""
    part = mask[first:last]
    if part.ndim > 1:
        part = np.logical_or.reduce(part, axis=tuple(range(1, part.ndim)))
    index = int(part.argmax()) if len(part) else 0
    return first + (index if len(part) and part[index] else len(part))


def latest_known_values(
    is_known: Bools, *series: tuple[np.ndarray, np.ndarray]
) -> list[np.ndarray]:
    """Returns, for each series, the latest known value of each row before the first sample and
    after each sample: (1 + samples, rows). `is_known`: mask (samples, rows). A series consists of
    the values before the first sample, (rows), and of those in each sample, (samples, rows)."""
    if np.count_nonzero(is_known) == is_known.size:  # the usual case
        return [np.concatenate([first_values[None], values]) for first_values, values in series]
    # With a single sample, as on a live screen, this is three times as fast.
    if len(is_known) == 1:
        return [np.array([b, np.where(is_known[0], values[0], b)]) for b, values in series]
    samples, columns = np.arange(1, len(is_known) + 1)[:, None], is_known.shape[1]
    source = np.maximum.accumulate(np.where(is_known, samples, 0))
    source = columns * source + np.arange(columns)  # take() is twice as fast as indexing
    latest = []
    for first_values, values in series:
        all_values = np.concatenate([first_values[None], values])
        all_values[1:] = all_values.take(source)
        latest.append(all_values)
    return latest


def distinct(values: Ints) -> list[int]:
    """Returns the distinct values in order. np.unique would import numpy.ma (30 ms, 2 MB)."""
    return sorted({*values.tolist()})


def median(values: Floats) -> Floats:
    """Returns the median along the first axis. np.median would import numpy.ma, too."""
    ordered, count = np.sort(values, axis=0), len(values)
    return np.asarray((ordered[(count - 1) // 2] + ordered[count // 2]) / 2)


def carry_lasting_doubts(new_codes: Codes, previous: Codes) -> Codes:
    """Returns the doubt codes of a sample: its own, and where it has none, the lasting doubts
    (`IS_LASTING`) of the previous sample."""
    return np.where((new_codes == 0) & IS_LASTING[previous], previous, new_codes)


def doubts_by_cpu(codes: Codes, keys: Any) -> dict[int, set[tuple[str, Doubt]]]:
    """Returns, for each CPU's index in hello, the keys of its suspect counters and the doubts.
    `codes`: doubt codes (CPUs, counters)."""
    by_cpu: dict[int, set[tuple[str, Doubt]]] = {}
    for row, counter in zip(*np.nonzero(codes), strict=True):
        by_cpu.setdefault(int(row), set()).add((keys[counter], Doubt(codes[row, counter])))
    return by_cpu


@dataclass(frozen=True, slots=True)
class BlockSlices:
    """The part of a Delta's arrays that belongs to one block."""

    block: wire.Block
    count: int
    """Number of rows of the block."""
    columns: int
    rows: slice
    values: slice
    """The values of the block. Values of the same row are adjacent."""


class DeltaLayout:
    """The position of every block of a stream in the arrays of a Delta."""

    def __init__(self, hello: wire.Hello) -> None:
        self.blocks: list[BlockSlices] = []
        self.rows = self.values = 0
        """Number of rows and number of values in all blocks together."""
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
        """The rows that have values, and the index of each such row's first value."""
        self.cpu_blocks = [slices for slices in self.blocks if slices.block.scope == "cpu"]
        self.cpu_rows: Bools = np.zeros(self.rows, bool)
        """Mask of the rows that belong to blocks of CPU scope."""
        for slices in self.cpu_blocks:
            self.cpu_rows[slices.rows] = True
        self.stamp_rows = next((p.rows for p in self.blocks if p.block.name == "cpu"), None)
        """The rows of the `cpu` block, which contain the time stamps of the CPUs even if the block
        has no counters; None if the stream lacks this block."""

    def delta_indexes(self, block: str, column: int) -> tuple[Ints, Ints]:
        """Returns, for each row of a block, two indexes into a Delta: of the row's ticks, and of
        its increment in this column."""
        slices = next(slices for slices in self.blocks if slices.block.name == block)
        rows = np.arange(slices.count)
        return slices.rows.start + rows, self.rows + slices.values.start + column * len(rows) + rows

    def repeat_by_value(self, rows: np.ndarray) -> np.ndarray:
        """Converts (frames, rows) to (frames, values) by repeating each row's element."""
        return rows.take(self.row_of, axis=1)  # take() is four times as fast as indexing

    def any_value(self, values: Bools) -> Bools:
        """Converts a mask (frames, values) to (frames, rows): whether any value is true."""
        result: Bools = np.zeros((len(values), self.rows), bool)
        if len(self._with_values):
            result[:, self._with_values] = np.logical_or.reduceat(values, self._starts, axis=1)
        return result


@dataclass(slots=True)
class BlockDelta:
    """The part of a Delta that belongs to one block, as views of its arrays. If the Delta has
    several samples, all arrays have a leading axis."""

    ticks: Floats
    """(rows): length of the span in stamp ticks; 0 where the row was not read."""
    increments: Floats
    """(rows, columns): the counters' increments in base units. A gauge is multiplied by the ticks,
    so that sums give means. NaN where unknown or suspect."""
    width: Floats
    """(rows): total duration of the reads at both ends, in stamp ticks; 0 in a sum of samples."""

    @property
    def reads(self) -> Floats:
        """(rows): share of the span that its two reads took; 0 where the row was not read."""
        zeros = np.zeros(self.ticks.shape)
        return np.divide(self.width, self.ticks, out=zeros, where=self.ticks > 0)


class Delta:
    """Increments of all counters over one span, or over each of several samples. They are stored in
    one array, so that one numpy operation adds a sample to a sum.
    """

    def __init__(
        self,
        layout: DeltaLayout,
        sums: Floats,
        widths: Floats,
        doubts: Codes,
        keys: tuple[str, ...],
        skew_ns: Ints,
    ) -> None:
        self._layout, self._sums, self._widths = layout, sums, widths
        self.doubts = doubts
        """(CPUs, counters), with a leading axis for several samples: codes of `Doubt`, 0 for none.
        The counters are in the order of `keys`."""
        self.keys = keys
        self.skew_ns = skew_ns
        """Maximum time in ns between the first and the last wake-up for reading one frame."""

    @cached_property
    def tables(self) -> Mapping[str, BlockDelta]:
        return {slices.block.name: self._table(slices) for slices in self._layout.blocks}

    def _table(self, slices: BlockSlices) -> BlockDelta:
        """Returns a view of one block. The array contains the ticks of all rows, then all
        increments by block and column, because numpy is twice as fast on contiguous columns.
        """
        sums = self._sums
        increments = sums[..., self._layout.rows :][..., slices.values]
        shape = *sums.shape[:-1], slices.columns, slices.count
        increments = increments.reshape(shape).swapaxes(-1, -2)
        return BlockDelta(sums[..., slices.rows], increments, self._widths[..., slices.rows])

    def values_at(self, indexes: Ints) -> Floats:
        """Returns the ticks or increments at indexes from `DeltaLayout.delta_indexes`."""
        return self._sums.take(indexes, axis=-1)

    def write(self, ticks: Floats, increments: Floats, width: Floats) -> None:
        """Sets all ticks, increments and read durations. The arguments have the layout of frames:
        (samples, rows) and (samples, values), with the values of a row adjacent."""
        self._sums[:, : self._layout.rows] = ticks
        tables = self.tables
        for slices in self._layout.blocks:
            of_rows = increments[:, slices.values].reshape(
                len(increments), slices.count, slices.columns
            )
            tables[slices.block.name].increments[...] = of_rows
        self._widths[...] = width

    def add(self, samples: Delta, doubted: Ints) -> None:
        """Adds samples. `doubted`: indexes of the samples with suspect counters. Doubts of later
        samples replace those of earlier samples."""
        self._sums[:] = add_samples(self._sums, samples._sums)
        self.skew_ns = max(self.skew_ns, samples.skew_ns.max(initial=0))
        for sample in doubted.tolist():
            codes = samples.doubts[sample]
            self.doubts = np.where(codes != 0, codes, self.doubts)

    @property
    def unread_values(self) -> Bools | None:
        """Mask (samples, values) of the unknown values in rows that were read; None if there are
        none."""
        if not np.isnan(self._sums.sum()):
            return None
        return np.asarray(np.isnan(self._sums[..., self._layout.rows :]))

    @property
    def suspect_counters(self) -> dict[int, set[tuple[str, Doubt]]]:
        """For each CPU's index in hello, the keys of its suspect counters and the doubts."""
        return doubts_by_cpu(self.doubts, self.keys)

    def __getitem__(self, samples: int | slice | None) -> Delta:
        """Returns one sample, or a slice of the samples, as a view. Index None adds a leading axis
        of length 1 to a single sample."""
        parts = self._sums[samples], self._widths[samples], self.doubts[samples]
        return Delta(self._layout, *parts, self.keys, self.skew_ns[samples])

    def copy(self) -> Delta:
        parts = self._sums.copy(), self._widths.copy(), self.doubts.copy()
        return Delta(self._layout, *parts, self.keys, self.skew_ns)

    def minus(self, earlier: Delta) -> Delta:
        """Returns the increments after the end of `earlier`, which must have the same start. Doubts
        and skew cannot be subtracted, so they still include those of `earlier`."""
        sums = self._sums - earlier._sums
        return Delta(self._layout, sums, self._widths, self.doubts, self.keys, self.skew_ns)


# --- The scale, width and upper bound of each counter.

MAX_HZ = 10e9
"""Upper bound of any clock. A faster cycle counter was overwritten and did not wrap."""
MAX_IPC = 16.0
MAX_EVENTS_PER_S = 1000 * MAX_HZ
"""Upper bound of the rate of any event, per second. It exceeds MAX_HZ, because an event of a queue
may count all entries of the queue in each cycle."""
MAX_PER_SECOND = {
    "cycles": MAX_HZ, "instructions": MAX_HZ * MAX_IPC, "events": MAX_EVENTS_PER_S, "s": 1.0,
}  # fmt: skip
"""Upper bound of the rate of a counter of CPU scope, per second, by unit."""
UNLIMITED = 1e30
"""Used for "no upper bound". It is finite, so that its product with 0 seconds is 0."""
TIME_SLACK_S = 0.05
"""Time in s by which a counter of seconds may exceed its span, because it advances in ticks of 10
ms and a whole idle period is added at its end."""
PERF_TIMES = ("perf_enabled_s", "perf_running_s")


class CounterLimits:
    """The scale, width and upper bound of each value's increments, for all blocks."""

    def __init__(self, blocks: Sequence[BlockSlices]) -> None:
        def property_of_values(
            property_of: Callable[[wire.Counter, wire.Scope], object], kind: type
        ) -> np.ndarray:
            parts: list[np.ndarray] = []
            for place in blocks:
                block = place.block
                values = [property_of(c, block.scope) for c in counters_by_column(block)]
                parts.append(np.tile(np.array(values, kind), place.count))
            return np.concatenate(parts)

        self._scale: Floats = property_of_values(lambda c, _: c.scale, float)
        self._mask: Words = property_of_values(lambda c, _: (1 << c.bits) - 1, np.uint64)
        is_gauge = property_of_values(lambda c, _: c.kind == "gauge", bool)
        self._gauges: Ints = np.flatnonzero(is_gauge)
        is_full_width = property_of_values(lambda c, _: c.bits == 64 and c.kind != "gauge", bool)
        self._max_rates: Floats = property_of_values(_max_per_second, float)
        self._slack: Floats = property_of_values(
            lambda c, _: TIME_SLACK_S if c.unit == "s" else 1e6, float
        )
        self._min_step = np.where(is_full_width, -self._slack, -np.inf)
        """Lower bound of each increment. The kernel's 64-bit sums may decrease slightly."""
        self.multiplexed = [*_multiplexed(blocks)]

    def increments(self, old: Words, new: Words, ticks: Floats, row_of: Ints) -> Floats:
        """Returns increments in base units, modulo each counter's width, so that a wrap needs no
        special case. A gauge is multiplied by the ticks. `ticks`: stamp ticks of each row.
        `row_of`: the row of each value."""
        steps = new - old
        steps &= self._mask
        increments: Floats = steps.view(np.int64) * self._scale
        if len(gauges := self._gauges):  # gauges are signed and weighted by time
            values = new[:, gauges].view(np.int64) * ticks[:, row_of[gauges]]
            increments[:, gauges] = values * self._scale[gauges]
        return increments

    def scale_multiplexed(self, increments: Floats) -> Floats:
        """Scales counts of multiplexed counters up to the whole span, in place."""
        for block in self.multiplexed:
            table = increments[:, block.values].reshape(-1, len(block.running), len(block.columns))
            enabled, running = (table[..., index, None] for index in block.times)
            with np.errstate(divide="ignore", invalid="ignore"):
                factor = np.where(running > 0, enabled / running, np.nan)
            table[:] = np.where(block.columns, table * factor, table)
        return increments

    def is_wrong(self, increments: Floats, seconds: Floats) -> Bools:
        """Returns a mask of impossible increments. `seconds`: each value's span; overwritten."""
        seconds *= self._max_rates
        seconds += self._slack
        result: Bools = increments > seconds
        if not np.minimum.reduce(increments, axis=None, initial=0.0) >= 0:
            result |= increments < self._min_step
        for block in self.multiplexed:  # values scaled by wrong times are wrong too
            table = result[:, block.values].reshape(-1, len(block.running), len(block.columns))
            table |= block.columns & table[..., block.times].any(axis=-1, keepdims=True)
        return result


def _max_per_second(counter: wire.Counter, scope: wire.Scope) -> float:
    if counter.kind != "counter" or scope != "cpu":
        return UNLIMITED
    return MAX_PER_SECOND.get(counter.unit, UNLIMITED)


@dataclass(frozen=True, slots=True)
class MultiplexedBlock:
    """A block whose counters perf multiplexes, and its slices in the arrays of a Delta."""

    rows: slice
    values: slice
    columns: Bools
    """Mask of the columns that are scaled up."""
    times: tuple[int, int]
    """Column indexes of PERF_TIMES."""
    running: Ints
    """For each row, the index of its perf_running_s among the values of all blocks."""
    is_mixed: bool
    """Whether the block also has counters that are not multiplexed."""


def _multiplexed(blocks: Sequence[BlockSlices]) -> Iterator[MultiplexedBlock]:
    for slices in blocks:
        if (times := perf_time_columns(slices.block)) is not None:
            counters = counters_by_column(slices.block)
            is_scaled = [c.origin.startswith("perf") and c.key not in PERF_TIMES for c in counters]
            running = slices.values.start + times[1] + slices.columns * np.arange(slices.count)
            is_mixed = is_scaled.count(True) + len(times) < len(is_scaled)
            columns = np.array(is_scaled, bool)
            yield MultiplexedBlock(slices.rows, slices.values, columns, times, running, is_mixed)


def counters_by_column(block: wire.Block) -> list[wire.Counter]:
    return [c for c in block.counters for _ in range(c.columns)]


def perf_time_columns(block: wire.Block) -> tuple[int, int] | None:
    """Returns the column indexes of PERF_TIMES; None if the block does not have both."""
    keys = [c.key for c in counters_by_column(block)]
    enabled, running = PERF_TIMES
    has_both = enabled in keys and running in keys
    return (keys.index(enabled), keys.index(running)) if has_both else None
