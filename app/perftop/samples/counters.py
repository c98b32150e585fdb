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
from dataclasses import dataclass

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Bools, Floats, Words
from perftop.samples.counter_limits import TIMES, Limits
from perftop.samples.doubt import Codes, Doubt, listed, merged

WIDE_S, WIDE = 1e-3, 4
"""Seconds, and times the width of the next read: a first read that took longer than both was
interrupted between its stamp and its values, so no difference is taken with it. The probe holds
later reads against the widths of those before them, and flags them."""
_USELESS = np.uint64(wire.ROW_ELSEWHERE | wire.ROW_WIDE | wire.ROW_OFFLINE)


@dataclass(slots=True)
class BlockDelta:
    """One block over one span."""

    ticks: Floats
    """(rows) stamp ticks covered; 0 where the row was not read."""
    moved: Floats
    """(rows, columns) in base units; gauges: value times ticks, so that sums give means. NaN: not
    known or doubted."""
    width: Floats
    """(rows) stamp ticks that the reads at both ends of the span took."""


@dataclass(slots=True)
class Delta:
    tables: dict[str, BlockDelta]
    doubts: Codes
    """(CPUs, counters): codes of doubt, 0 for none; counters are in the order of `keys`."""
    keys: tuple[str, ...]

    def add(self, other: Delta) -> None:
        for name, table in other.tables.items():
            mine = self.tables[name]
            mine.ticks += table.ticks
            mine.moved += table.moved
        if other.doubts.any():
            self.doubts = merged(self.doubts, other.doubts)

    @property
    def suspect(self) -> dict[int, set[tuple[str, Doubt]]]:
        """The doubted counters with their doubts, by position of the CPU."""
        return listed(self.doubts, self.keys)

    def copy(self) -> Delta:
        tables = {
            name: BlockDelta(table.ticks.copy(), table.moved.copy(), table.width.copy())
            for name, table in self.tables.items()
        }
        return Delta(tables, self.doubts.copy(), self.keys)


@dataclass(frozen=True, slots=True)
class _Reading:
    """A block of one frame."""

    head: Words
    valid: Bools
    values: Words
    read: Bools
    """(rows) the row was read in this frame and can be used for a difference."""
    width: Floats
    """(rows) stamp ticks that the read took, plus its distance from the read of the core's first
    CPU."""


@dataclass(slots=True)
class _Baseline:
    """What the next reading is compared with."""

    stamp: Words
    width: Floats
    values: Words
    valid: Bools
    first: Bools
    """(rows) nothing was read before it."""
    known: Bools
    """(rows) there is a reading to take a difference with."""

    def advance(self, to: _Reading) -> None:
        read = to.read
        self.stamp[read] = to.head[read, 0]
        self.width[read] = to.width[read]
        self.values[read] = to.values[read]
        self.valid[read] = to.valid[read]
        self.first[read] = ~self.known[read]
        self.known |= read
        self.known &= to.head[:, 4] & np.uint64(wire.ROW_OFFLINE) == 0

    def copy(self) -> _Baseline:
        parts = self.stamp, self.width, self.values, self.valid, self.first, self.known
        return _Baseline(*(part.copy() for part in parts))  # type: ignore[arg-type]

    @property
    def nbytes(self) -> int:
        parts = self.stamp, self.width, self.values, self.valid, self.first, self.known
        return sum(part.nbytes for part in parts)


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
        self._baselines: dict[str, _Baseline] = {}
        core = {cpu: i for i, group in enumerate(hello.cores) for cpu in group}
        self._core_of = np.array([core.get(row.cpu, -1) for row in hello.topology], int)
        position = {row.cpu: at for at, row in enumerate(hello.topology)}
        leader = {cpu: position[group[0]] for group in hello.cores for cpu in group}
        self._leader = np.array([leader.get(row.cpu, position[row.cpu]) for row in hello.topology])
        """Position of the first CPU of the same core, by position of the CPU."""
        for block in hello.blocks:
            first = 0
            for counter in block.counters:
                self.columns.setdefault(counter.key, BlockCounter(counter, block.name, first))
                first += counter.columns
            self._limits[block.name] = Limits(block)
            self._baselines[block.name] = self._no_baseline(block)
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
        ticks: Floats = delta.tables[column.block].moved[:, column.first]
        return ticks

    def nothing(self) -> Delta:
        """An empty span, to add samples to."""
        tables = {}
        for block in self.hello.blocks:
            n = self.hello.rows(block.scope)
            moved = np.zeros((n, block.columns))
            tables[block.name] = BlockDelta(np.zeros(n), moved, np.zeros(n))
        codes = np.zeros((len(self.hello.topology), len(self.keys)), np.uint8)
        return Delta(tables, codes, self.keys)

    def disbelieve(self, delta: Delta) -> None:
        """Set doubted counters to NaN."""
        for row, at in zip(*np.nonzero(delta.doubts), strict=True):
            column = self.columns[self.keys[at]]
            last = column.first + column.counter.columns
            moved = delta.tables[column.block].moved
            if delta.doubts[row, at] != Doubt.BACKWARDS:  # nothing of that read is in it
                moved[row, column.first : last] = np.nan

    def without(self, delta: Delta, rows: list[int]) -> Delta:
        """A copy in which the CPUs at these positions count as not read."""
        result = delta.copy()
        for block in self.hello.blocks:
            if block.scope == "cpu":
                result.tables[block.name].ticks[rows] = 0.0
                result.tables[block.name].moved[rows] = 0.0
        return result

    def step(self, frame: wire.Frame) -> Delta:
        """What moved since each row was last read."""
        delta = self.nothing()
        self._wake(frame)
        for block in self.hello.blocks:
            rows = frame.blocks.get(block.name)
            if rows is not None:
                self._step_block(block, rows, delta)
        return delta

    def skip(self, frame: wire.Frame) -> None:
        """Take this frame as the baseline without a difference; the next step starts from it."""
        self._wake(frame)
        for block in self.hello.blocks:
            rows = frame.blocks.get(block.name)
            if rows is not None:
                self._baselines[block.name].advance(self._read(block, rows))

    def moved(self, delta: Delta, key: str) -> Floats | None:
        """How far a counter moved, summed over its columns, by row; None: there is no such
        counter."""
        column = self.columns.get(key)
        if column is None:
            return None
        last = column.first + column.counter.columns
        parts: Floats = delta.tables[column.block].moved[:, column.first : last]
        moved: Floats = parts[:, 0] if column.counter.columns == 1 else parts.sum(axis=1)
        return moved

    def counted(self, delta: Delta) -> Floats | None:
        """Share of the time in which perf counted, by position of the CPU; below 1 it multiplexed,
        and the counts are estimates. None: the stream does not tell."""
        columns = [self.columns.get(key) for key in TIMES]
        if None in columns:
            return None
        enabled, running = (delta.tables[c.block].moved[:, c.first] for c in columns if c)
        with np.errstate(divide="ignore", invalid="ignore"):
            share: Floats = running / enabled
        return share

    def forget(self, cpu_row: int) -> None:
        """Drop the baseline of a CPU that went offline; its counters may restart."""
        for block in self.hello.blocks:
            if block.scope == "cpu":
                self._baselines[block.name].known[cpu_row] = False

    def _wake(self, frame: wire.Frame) -> None:
        """Drop all baselines after a suspend: the counters may have been reset, and what they
        counted meanwhile measures nothing."""
        slept_ns = asleep_ns(frame)
        if slept_ns != self._asleep_ns:
            self._asleep_ns, self._doubtful = slept_ns, 2
        if self._doubtful:
            self._doubtful -= 1
            for base in self._baselines.values():
                base.known[:] = False

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

    def _no_baseline(self, block: wire.Block) -> _Baseline:
        n = self.hello.rows(block.scope)
        shape = (n, block.columns)
        return _Baseline(
            np.zeros(n, np.uint64), np.zeros(n), np.zeros(shape, np.uint64),
            np.zeros(shape, bool), np.zeros(n, bool), np.zeros(n, bool),
        )  # fmt: skip

    def _read(self, block: wire.Block, rows: wire.Rows) -> _Reading:
        head, valid, values = unpack(block, rows, self.hello.rows(block.scope))
        flags = head[:, 4]
        sampled = flags & np.uint64(wire.ROW_SAMPLED) != 0
        read = sampled & (flags & _USELESS == 0)
        if block.name != "cpu":  # rows of block `cpu` carry the stamps, also without values
            read &= valid.any(axis=1)  # a CPU that is off has no line in /proc/stat
        if block.scope == "cpu":
            read &= ~self._held(self._baselines[block.name].known, sampled, flags)
        width = (head[:, 1] - head[:, 0]).astype(np.float64)
        if block.name == "cpu":
            apart = (head[:, 0] - head[self._leader, 0]).astype(np.int64)
            width += np.where(sampled & sampled[self._leader], np.abs(apart), 0)
        return _Reading(head, valid, values, read, width)

    def _step_block(self, block: wire.Block, rows: wire.Rows, delta: Delta) -> None:
        reading = self._read(block, rows)
        head, values = reading.head, reading.values
        base = self._baselines[block.name]
        limits = self._limits[block.name]
        usable = reading.read & base.known & (head[:, 4] & np.uint64(wire.ROW_REBASED) == 0)
        if block.name == "cpu":
            usable &= ~(base.first & (base.width > WIDE * reading.width + WIDE_S * self.stamp_hz))
        table = delta.tables[block.name]

        ticks = (head[:, 0] - base.stamp).astype(np.float64)
        backwards = usable & ((head[:, 0] < base.stamp) | (head[:, 1] < head[:, 0]))
        both = reading.valid & base.valid
        moved = limits.moved(base.values, values, ticks)
        wrong = limits.wrong(moved, ticks / self.stamp_hz) & both

        good = usable & ~backwards
        if block.scope != "cpu":  # no single counter can be doubted there, only a row left out
            good &= ~wrong.any(axis=1)
        table.ticks[good] = ticks[good]
        table.width[good] = (base.width + reading.width)[good]
        table.moved[good] = np.where(both & ~wrong, limits.scaled(moved), np.nan)[good]
        if block.scope == "cpu" and (backwards.any() or (wrong[good]).any()):
            at = np.array([self.key_at[key] for key in limits.keys.tolist()], int)
            delta.doubts[np.ix_(backwards, at)] = Doubt.BACKWARDS
            rows_, columns = np.nonzero(wrong & good[:, None])
            delta.doubts[rows_, at[columns]] = Doubt.JUMPED
        base.advance(reading)


def unpack(block: wire.Block, rows: wire.Rows, n: int) -> tuple[Words, Bools, Words]:
    """Heads (n, HEAD), validity (n, columns) and values (n, columns) of a block of n rows."""
    head = np.frombuffer(rows.head, "<u8").reshape(-1, wire.HEAD)
    if len(head) != n:
        head = np.broadcast_to(head, (n, wire.HEAD))
    valid = np.frombuffer(rows.valid, np.uint8).reshape(n, 8 * block.valid_words)
    bits = np.unpackbits(valid, axis=1, count=block.columns, bitorder="little").astype(bool)
    values = np.frombuffer(rows.values, "<u8").reshape(n, block.columns)
    return head, bits, values


def asleep_ns(frame: wire.Frame) -> int:
    """Nanoseconds that the machine was suspended from hello to this frame; 0 if the untrusted
    record is not valid."""
    found = frame.records.get("asleep_ns")
    return found if type(found) is int and 0 <= found < wire.LATEST_NS else 0
