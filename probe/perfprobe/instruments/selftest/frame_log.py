"""Keeps raw frames of the stream while code with known counts runs, and computes how far a counter
advanced between two reads. A stamp is a value of the TSC."""

from __future__ import annotations

import time
from dataclasses import dataclass

from perfprobe import wire
from perfprobe.native import tsc_rate
from perfprobe.sources import Source
from perfprobe.wire import Counter, Frame, Hello

MAX_WAIT_S = 0.5
"""Maximum wait for a sample of all CPUs, in s. On a loaded machine samples are late, and a thread
that has ended delivers none."""
RECENT_FRAMES = 3
"""Number of latest frames in which a row's read is searched; some frames may lack the row."""
UNUSABLE_ROW_FLAGS = wire.ROW_ELSEWHERE | wire.ROW_WIDE | wire.ROW_OFFLINE | wire.ROW_UNPINNED
GROUP_TIME_KEYS = ("perf_enabled_s", "perf_running_s")


Instant = tuple[int, int]
"""A moment, as ns of CLOCK_MONOTONIC_RAW and as a value of the TSC."""


def read_instant() -> Instant:
    raw, tsc, _ = tsc_rate.read_bracket()
    return raw, tsc


@dataclass(frozen=True, slots=True)
class BlockCounter:
    """A counter, the name of its block, and the first of its columns in the block."""

    block: str
    first_column: int
    counter: Counter


@dataclass(frozen=True, slots=True)
class CounterAdvance:
    """A counter's advance between two reads, in its unit; `begin` and `end` are TSC stamps."""

    begin: int
    end: int
    amount: float


@dataclass(frozen=True, slots=True)
class _BlockRead:
    """A block of one frame, as u64."""

    head: memoryview
    valid: memoryview
    values: memoryview

    def stamps(self, row: int) -> tuple[int, int] | None:
        """Stamps before and after the read; None if the row is not usable."""
        begin_stamp, end_stamp, _, _, flags = self.head[row * wire.HEAD : (row + 1) * wire.HEAD]
        return (
            (begin_stamp, end_stamp)
            if flags & wire.ROW_SAMPLED and not flags & UNUSABLE_ROW_FLAGS
            else None
        )


Read = tuple[int, int, _BlockRead]
"""Stamps before and after a read, and the block that was read."""


class FrameLog:
    def __init__(self, source: Source) -> None:
        self.hello: Hello = source.hello
        self.counters: dict[str, BlockCounter] = {}
        """Counters by key. If several blocks have a counter, the first block's is used."""
        self._source = source
        self._blocks = {block.name: block for block in self.hello.blocks}
        self._reads_by_block: dict[str, list[_BlockRead]] = {}
        for block in self.hello.blocks:
            for first, counter in wire.with_columns(block.counters):
                self.counters.setdefault(counter.key, BlockCounter(block.name, first, counter))

    def scope(self, key: str) -> wire.Scope:
        return self._blocks[self.counters[key].block].scope

    def rows(self, key: str) -> int:
        return self.hello.rows(self.scope(key))

    def restart(self) -> None:
        """Drops all frames, and reads new ones until each row was read again."""
        self._reads_by_block.clear()
        self.read_until_after(read_instant()[1])

    def read_ready_frames(self) -> None:
        while True:
            frames = [m for m in self._source.poll() if isinstance(m, Frame)]
            for frame in frames:
                for name, rows in frame.blocks.items():
                    parts = (rows.head, rows.valid, rows.values)
                    table = _BlockRead(*(memoryview(bytes(part)).cast("Q") for part in parts))
                    self._reads_by_block.setdefault(name, []).append(table)
            if not frames:
                return

    def read_until_after(self, stamp: int) -> None:
        """Reads frames until each row was read after the stamp, for at most MAX_WAIT_S."""
        deadline_s = time.monotonic() + MAX_WAIT_S
        while time.monotonic() < deadline_s:
            self.read_ready_frames()
            names = self._reads_by_block
            if names and all(self._newest_stamp(name) >= stamp for name in names):
                return
            due = self._source.due_s()
            time.sleep(max(0.001, min(0.02, (due or 0) - time.monotonic())))

    def _newest_stamp(self, name: str) -> int:
        """Returns the stamp after which each usable row of the block was read at least once."""
        rows = range(self.hello.rows(self._blocks[name].scope))
        newest_stamps: dict[int, int] = {}
        for table in self._reads_by_block[name][-RECENT_FRAMES:]:
            newest_stamps |= {row: stamps[0] for row in rows if (stamps := table.stamps(row))}
        return min(newest_stamps.values(), default=0)

    def advance(
        self, key: str, row: int, begin: int, end: int, *, inside: bool
    ) -> CounterAdvance | None:
        """Returns how far a row's counter advanced; None if there are no two reads. With `inside`,
        from the first to the last read between the stamps; otherwise from the last read before
        `begin` to the first read after `end`."""
        column = self.counters[key]
        ends = self._boundary_reads(column, row, begin, end, inside=inside)
        if ends is None:
            return None
        (a0, a1, a), (b0, b1, b) = ends
        amount = sum(self._column_advances(column, a, b, row))
        amount /= self._counted_share(column, a, b, row)
        return CounterAdvance((a0 + a1) // 2, (b0 + b1) // 2, amount)

    def advances(self, key: str, row: int, begin: int, end: int) -> list[float] | None:
        """Returns how far each of the counter's columns advanced from the last read before `begin`
        to the first read after `end`; None if there are no such reads."""
        column = self.counters[key]
        ends = self._boundary_reads(column, row, begin, end, inside=False)
        return None if ends is None else self._column_advances(column, ends[0][2], ends[1][2], row)

    def latest_value(self, key: str, row: int) -> float | None:
        """Returns the last value of a gauge, in its unit; None if it was not read."""
        column = self.counters[key]
        reads = self._reads(column, row)
        if not reads:
            return None
        (raw, *_) = self._raw_row(column, reads[-1][2], row)
        bits = column.counter.bits
        return (raw - (1 << bits) if raw >> (bits - 1) else raw) * column.counter.scale

    def _boundary_reads(
        self, column: BlockCounter, row: int, begin: int, end: int, *, inside: bool
    ) -> tuple[Read, Read] | None:
        """Returns the first and the last read within two stamps (`inside`), or the nearest reads
        around them; None if there are fewer than two."""
        reads = self._reads(column, row)
        if inside:
            inside_reads = [read for read in reads if begin <= read[0] and read[1] <= end]
            first, last = inside_reads[:1], inside_reads[-1:]
        else:
            first = [read for read in reads if read[1] <= begin][-1:]
            last = [read for read in reads if read[0] >= end][:1]
        if not first or not last or first == last:
            return None
        return first[0], last[0]

    def _reads(self, column: BlockCounter, row: int) -> list[Read]:
        """Returns the valid reads of a row since its counters last restarted (ROW_REBASED)."""
        reads: list[Read] = []
        for table in self._reads_by_block.get(column.block, []):
            if table.head[row * wire.HEAD + 4] & wire.ROW_REBASED:
                reads.clear()
            stamps = table.stamps(row)
            if stamps and self._is_valid(column, table, row):
                reads.append((*stamps, table))
        return reads

    def _is_valid(self, column: BlockCounter, table: _BlockRead, row: int) -> bool:
        words = self._blocks[column.block].valid_words
        bits = range(column.first_column, column.first_column + column.counter.columns)
        return all(table.valid[row * words + bit // 64] >> bit % 64 & 1 for bit in bits)

    def _raw_row(self, column: BlockCounter, table: _BlockRead, row: int) -> list[int]:
        first = row * self._blocks[column.block].columns + column.first_column
        return list(table.values[first : first + column.counter.columns])

    def _column_advances(
        self, column: BlockCounter, before: _BlockRead, after: _BlockRead, row: int
    ) -> list[float]:
        """Returns how far each column advanced between two reads. A difference of more than half
        the range of the counter counts as a step back."""
        counter, steps = column.counter, []
        values = (self._raw_row(column, read, row) for read in (before, after))
        for a, b in zip(*values, strict=True):
            delta = (b - a) % (1 << counter.bits)
            step = delta - (1 << counter.bits) if delta >> (counter.bits - 1) else delta
            steps.append(step * counter.scale)
        return steps

    def _counted_share(
        self, column: BlockCounter, before: _BlockRead, after: _BlockRead, row: int
    ) -> float:
        """Returns the share of the time for which the counter's perf group was counting; 1 for a
        counter that is not in a perf group."""
        times = [self.counters.get(key) for key in GROUP_TIME_KEYS]
        own = [time for time in times if time is not None and time.block == column.block]
        if not column.counter.origin.startswith("perf") or len(own) < len(times):
            return 1.0
        enabled, running = (sum(self._column_advances(time, before, after, row)) for time in own)
        return running / enabled if running and enabled else 1.0
