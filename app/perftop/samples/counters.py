"""From raw frames to differences. Wraps, gaps, restarts and rewrites are handled only here.

A `Delta` holds, for every counter of hello, how much it moved on each row, in base units, and the
stamp ticks that this took. Deltas add up: an interval is the sum of its samples. A row that was not
read adds nothing: its ticks are 0, and the next difference covers its time too; an interrupted read
counts as none. A column that could not be read is NaN. A sample that cannot be true is left out and
its reason is kept.

If perf has more events than there are counters, it multiplexes them. A block with the two columns
of TIMES tells for how long each group was counted; its other columns whose origin begins with
"perf" are scaled up to the whole span, and are unknown if they were not counted at all.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Bools, Codes, Floats, Ints, Words
from perftop.samples.counter_limits import TIMES, Limits
from perftop.samples.doubt import Doubt, listed, merged
from perftop.samples.readings import USELESS, Baseline, Readings, unpack

WIDE_S, WIDE = 1e-3, 4
"""Seconds, and times the width of the next read: a first read that took longer than both was
interrupted between its stamp and its values, so no difference is taken with it. The probe holds
later reads against the widths of those before them, and flags them."""


@dataclass(slots=True)
class BlockDelta:
    """One block over one span, or, with a leading axis, over each of several samples: views of a
    delta."""

    ticks: Floats
    """(rows) stamp ticks covered; 0 where the row was not read."""
    moved: Floats
    """(rows, columns) in base units; gauges: value times ticks, so that sums give means. NaN: not
    known or doubted."""
    width: Floats
    """(rows) stamp ticks that the reads at both ends of the span took; 0 of a sum of samples."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the numbers of a block stand in a delta."""

    name: str
    rows: int
    columns: int
    ticks: int
    moved: int
    width: int


class Delta:
    """Differences of all counters over one span. All numbers lie in two arrays, so that a sample is
    added to a sum at once."""

    __slots__ = ("_layouts", "_sums", "_tables", "_widths", "doubts", "keys", "skew_ns")

    def __init__(
        self, layouts: Sequence[Layout], sums: Floats, widths: Floats, doubts: Codes,
        keys: tuple[str, ...], skew_ns: Ints,
    ) -> None:  # fmt: skip
        self._layouts, self._sums, self._widths = layouts, sums, widths
        self._tables: dict[str, BlockDelta] | None = None
        self.doubts = doubts
        """(CPUs, counters), with a leading axis for several samples: codes of doubt, 0 for none;
        counters are in the order of `keys`."""
        self.keys = keys
        self.skew_ns = skew_ns
        """Longest time between the first and the last wake-up of the reads of a frame."""

    @property
    def tables(self) -> Mapping[str, BlockDelta]:
        if self._tables is None:
            self._tables = {each.name: self._table(each) for each in self._layouts}
        return self._tables

    def _table(self, at: Layout) -> BlockDelta:
        moved = self._sums[..., at.moved : at.moved + at.rows * at.columns]
        return BlockDelta(
            self._sums[..., at.ticks : at.ticks + at.rows],
            moved.reshape(*moved.shape[:-1], at.rows, at.columns),
            self._widths[..., at.width : at.width + at.rows],
        )

    def add(self, other: Delta, *, doubted: bool = True) -> None:
        """`doubted`: whether anything of the other may be."""
        self._sums += other._sums
        self.skew_ns = max(self.skew_ns, other.skew_ns)
        if doubted and other.doubts.any():
            self.doubts = merged(self.doubts, other.doubts)

    @property
    def suspect(self) -> dict[int, set[tuple[str, Doubt]]]:
        """The doubted counters with their doubts, by position of the CPU."""
        return listed(self.doubts, self.keys)

    def __getitem__(self, samples: int | slice) -> Delta:
        """One sample of several, or some of them. Their arrays are shared."""
        return Delta(
            self._layouts, self._sums[samples], self._widths[samples], self.doubts[samples],
            self.keys, self.skew_ns[samples],
        )  # fmt: skip

    def copy(self) -> Delta:
        return Delta(
            self._layouts, self._sums.copy(), self._widths.copy(), self.doubts.copy(), self.keys,
            self.skew_ns,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class BlockCounter:
    """A counter, its block and its first column there."""

    counter: wire.Counter
    block: str
    first: int


class Counters:
    """The counters of one stream, and the state needed to take differences between its frames."""

    def __init__(self, hello: wire.Hello) -> None:
        self.hello = hello
        self.columns: dict[str, BlockCounter] = {}
        self._limits: dict[str, Limits] = {}
        self._baselines: dict[str, Baseline] = {}
        core = {cpu: i for i, group in enumerate(hello.cores) for cpu in group}
        self._core_of = np.array([core.get(row.cpu, -1) for row in hello.topology], int)
        position = {row.cpu: at for at, row in enumerate(hello.topology)}
        leader = {cpu: position[group[0]] for group in hello.cores for cpu in group}
        self._leader = np.array([leader.get(row.cpu, position[row.cpu]) for row in hello.topology])
        """Position of the first CPU of the same core, by position of the CPU."""
        self._layouts = _layouts(hello)
        self._layout = {each.name: each for each in self._layouts}
        for block in hello.blocks:
            first = 0
            for counter in block.counters:
                self.columns.setdefault(counter.key, BlockCounter(counter, block.name, first))
                first += counter.columns
            self._limits[block.name] = Limits(block)
            n = self.hello.rows(block.scope)
            self._baselines[block.name] = Baseline.none(n, block.columns)
        self._home = {
            block.name: np.array(
                [self.columns[key].block == block.name for key in self._limits[block.name].keys],
                bool,
            )
            for block in hello.blocks
        }
        """By block, mask of the columns whose key is not another block's: only times of perf stand
        in several."""
        of_cpus = [b.counters for b in hello.blocks if b.scope == "cpu"]
        self.keys = tuple(dict.fromkeys(c.key for counters in of_cpus for c in counters))
        """Counters of blocks of CPU scope; only these can be doubted."""
        self.key_at = {key: at for at, key in enumerate(self.keys)}
        self._asleep_ns = 0
        self._doubtful = 0
        """Number of further frames that may hold rows from before the machine slept."""

    def copy(self) -> Counters:
        """A copy whose state changes independently."""
        twin = copy.copy(self)
        twin._baselines = {  # noqa: SLF001
            name: base.copy() for name, base in self._baselines.items()
        }
        return twin

    @property
    def nbytes(self) -> int:
        """Bytes of the state that a copy does not share."""
        return sum(base.nbytes for base in self._baselines.values())

    @property
    def stamp_hz(self) -> float:
        """Ticks of the stamps in a second."""
        if self.hello.stamp == "raw":
            return 1e9
        return self.hello.tsc_hz.hz if self.hello.tsc_hz else float("nan")

    @property
    def has_tsc(self) -> bool:
        """Elapsed time is known in TSC ticks, and so is their rate."""
        counted = self.hello.stamp == "tsc" or "tsc" in self.columns
        return counted and self.hello.tsc_hz is not None

    def tsc_ticks(self, delta: Delta, block: str = "cpu") -> Floats:
        """TSC ticks between the reads of each CPU: by the stamps, or by a counter where the stamps
        are of another clock."""
        column = self.columns.get("tsc")
        if column is None:
            return delta.tables[block].ticks
        return delta.tables[column.block].moved[..., column.first]

    def nothing(self, *samples: int) -> Delta:
        """An empty span, to add samples to; with a number, as many of them."""
        last = self._layouts[-1]
        sums = np.zeros((*samples, last.moved + last.rows * last.columns))
        widths = np.zeros((*samples, last.width + last.rows))
        codes = np.zeros((*samples, len(self.hello.topology), len(self.keys)), np.uint8)
        return Delta(self._layouts, sums, widths, codes, self.keys, np.zeros(samples, int))

    def disbelieve(self, delta: Delta) -> None:
        """Set doubted counters to NaN."""
        # Of a read that went backwards nothing is in the differences.
        doubted = (delta.doubts != 0) & (delta.doubts != Doubt.BACKWARDS)
        if not doubted.any():
            return
        for at, key in enumerate(self.keys):
            column, rows = self.columns[key], doubted[..., at]
            last = column.first + column.counter.columns
            delta.tables[column.block].moved[..., column.first : last][rows] = np.nan

    def without(self, delta: Delta, rows: Ints) -> Delta:
        """A copy in which the CPUs at these positions count as not read."""
        result = delta.copy()
        for block in self.hello.blocks:
            if block.scope == "cpu":
                result.tables[block.name].ticks[..., rows] = 0.0
                result.tables[block.name].moved[..., rows, :] = 0.0
        return result

    def steps(self, frames: Sequence[wire.Frame]) -> Delta:
        """What moved since each row was last read, with a leading axis of frames."""
        delta = self.nothing(len(frames))
        drop = [self._wakes(frame) for frame in frames]
        for block in self.hello.blocks:
            self._step_block(block, frames, drop, delta)
        return delta

    def moved(self, delta: Delta, key: str) -> Floats | None:
        """How far a counter moved, summed over its columns, by row; None: there is no such
        counter."""
        column = self.columns.get(key)
        if column is None:
            return None
        last = column.first + column.counter.columns
        parts: Floats = delta.tables[column.block].moved[..., column.first : last]
        return parts[..., 0] if column.counter.columns == 1 else parts.sum(axis=-1)

    def rates(self, delta: Delta, key: str) -> Floats | None:
        """A counter's movement per second, or a gauge's mean, by row of its block; NaN where it was
        not read. None: there is no such counter."""
        column, moved = self.columns.get(key), self.moved(delta, key)
        if column is None or moved is None:
            return None
        ticks = delta.tables[column.block].ticks
        span = ticks if column.counter.kind == "gauge" else ticks / self.stamp_hz
        unknown = np.full(moved.shape, np.nan)
        rates: Floats = np.divide(moved, span, out=unknown, where=span > 0)
        return rates

    def has(self, key: str) -> Bools:
        """Mask by position of the CPUs that have this counter."""
        column, rows = self.columns.get(key), self.hello.topology
        if column is None or column.counter.cpus is None:
            return np.full(len(rows), column is not None)
        return np.isin(np.array([row.cpu for row in rows]), column.counter.cpus)

    def counted(self, delta: Delta, key: str = TIMES[0]) -> Floats | None:
        """Share of the time in which perf counted the block of a counter, by position of the CPU;
        below 1 it multiplexed, and the counts are estimates. None: the stream does not tell."""
        column = self.columns.get(key)
        times = None if column is None else self._limits[column.block].times
        if column is None or times is None:
            return None
        enabled, running = (delta.tables[column.block].moved[..., at] for at in times)
        with np.errstate(divide="ignore", invalid="ignore"):
            share: Floats = running / enabled
        return share

    def forget(self, cpu_row: int) -> None:
        """Drop the baseline of a CPU that went offline; its counters may restart."""
        for block in self.hello.blocks:
            if block.scope == "cpu":
                self._baselines[block.name].known[cpu_row] = False

    def _wakes(self, frame: wire.Frame) -> bool:
        """Whether all baselines must go before this frame: after a suspend the counters may have
        been reset, and what they counted meanwhile measures nothing."""
        slept_ns = asleep_ns(frame)
        if slept_ns != self._asleep_ns:
            self._asleep_ns, self._doubtful = slept_ns, 2
        self._doubtful, wakes = max(0, self._doubtful - 1), self._doubtful > 0
        return wakes

    def _held(self, known: Bools, sampled: Bools, flags: Words) -> Bools:
        """Rows to leave out because a sibling's read was interrupted or is missing. The next
        difference of all siblings then covers the same span, as the states of the core require."""
        wide = flags & np.uint64(wire.ROW_WIDE) != 0
        absent = ~sampled & known & (flags & np.uint64(wire.ROW_OFFLINE) == 0)
        waits = np.zeros(len(self.hello.cores) + 1, bool)
        waits[self._core_of[wide | absent]] = True
        waits[-1] = False  # CPUs of no known core
        held: Bools = waits[self._core_of]
        return held

    def _read(self, block: wire.Block, several: Sequence[wire.Rows]) -> tuple[Readings, Bools]:
        """Some frames of a block, and which of their rows can be used for a difference."""
        at = self._layout[block.name]
        now = unpack(at.rows, at.columns, several)
        if now.plain:
            sampled = np.ones(now.width.shape, bool)
            read: Bools = sampled
        else:
            sampled = now.flagged(wire.ROW_SAMPLED)
            read = sampled & (now.flags & USELESS == 0)
        if block.name != "cpu":  # rows of block `cpu` carry the stamps, also without values
            read = read & now.valid.any(axis=2)  # a CPU that is off has no line in /proc/stat
        else:
            stamps = now.head[..., 0]
            distance = np.abs((stamps - stamps[:, self._leader]).astype(np.int64))
            if not now.plain:
                distance = np.where(sampled & sampled[:, self._leader], distance, 0)
            now.width = now.width + distance
        return now, read

    def _step_block(self, block: wire.Block, frames: Sequence[wire.Frame], drop: list[bool],
                    delta: Delta) -> None:  # fmt: skip
        at = [i for i, frame in enumerate(frames) if block.name in frame.blocks]
        base = self._baselines[block.name]
        edges = [0, *(i + 1 for i in at)]
        before_it = [any(drop[a:b]) for a, b in itertools.pairwise(edges)]
        if at:
            now, read = self._read(block, [frames[i].blocks[block.name] for i in at])
            hold = self._held if block.scope == "cpu" else None
            before = base.take(now, read, before_it, hold)
            self._differences(block, at, now, read, before, delta)
        if any(drop[edges[-1] :]):
            base.known = base.known & False

    def _differences(self, block: wire.Block, at: list[int], now: Readings, read: Bools,
                     before: Baseline, delta: Delta) -> None:  # fmt: skip
        """Write the differences of the frames at these places."""
        usable = read & before.known
        if not now.plain:
            usable &= ~now.flagged(wire.ROW_REBASED)
        if block.name == "cpu":
            long = before.width > WIDE * now.width + WIDE_S * self.stamp_hz
            usable &= ~(before.first & long)
        limits, table = self._limits[block.name], delta.tables[block.name]
        stamps = now.head[..., 0]
        ticks = (stamps - before.stamp).astype(np.float64)
        backwards = usable & ((stamps < before.stamp) | (now.head[..., 1] < stamps))
        both = now.valid & before.valid
        moved = limits.moved(before.values, now.values, ticks)
        wrong = limits.wrong(moved, ticks / self.stamp_hz) & both
        good = usable & ~backwards
        if block.scope != "cpu":  # no single counter can be doubted there, only a row left out
            good &= ~wrong.any(axis=2)
        table.ticks[at] = np.where(good, ticks, 0.0)
        table.width[at] = np.where(good, before.width + now.width, 0.0)
        moved = np.where(both & ~wrong, limits.scaled(moved), np.nan)
        table.moved[at] = np.where(good[..., None], moved, 0.0)
        if block.scope == "cpu":
            delta.skew_ns[at] = np.maximum(delta.skew_ns[at], now.skew_ns)
            wrong &= good[..., None] & self._home[block.name]
            self._doubt(limits, np.array(at), backwards, wrong, delta)

    def _doubt(self, limits: Limits, at: Ints, backwards: Bools, wrong: Bools,
               delta: Delta) -> None:  # fmt: skip
        if backwards.any() or wrong.any():
            keys = np.array([self.key_at[key] for key in limits.keys.tolist()], int)
            sample, row = np.nonzero(backwards)
            delta.doubts[at[sample][:, None], row[:, None], keys] = Doubt.BACKWARDS
            sample, row, column = np.nonzero(wrong)
            delta.doubts[at[sample], row, keys[column]] = Doubt.JUMPED


def _layouts(hello: wire.Hello) -> list[Layout]:
    """Places of each block: first its ticks, then what it moved; and the widths of all blocks in a
    row."""
    found, at, width = [], 0, 0
    for block in hello.blocks:
        rows = hello.rows(block.scope)
        found.append(Layout(block.name, rows, block.columns, at, at + rows, width))
        at, width = at + rows * (1 + block.columns), width + rows
    return found


def asleep_ns(frame: wire.Frame) -> int:
    """Nanoseconds that the machine was suspended from hello to this frame; 0 if the untrusted
    record is not valid."""
    found = frame.records.get("asleep_ns")
    return found if type(found) is int and 0 <= found < wire.LATEST_NS else 0
