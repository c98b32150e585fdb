"""From raw frames to differences: wrap, gaps, restarts and rewrites are settled here, once.

A `Delta` holds, for every counter of hello, how much it moved on each row, in base units, and the
stamp ticks that this took. Deltas add up: an interval is the sum of its samples. A row that was not
read contributes nothing (zero ticks; an interrupted read counts as none, and the next
difference covers both), a column that could not be read is NaN, a sample that cannot
be true is left out and its reason kept.

Where perf had more to count than there are counters, it counted in turns. A block with the two
columns of TIMES says for how long; the others in it whose origin begins with "perf" are scaled up
to the whole span, and unknown if they were not counted at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from perfprobe import wire

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]

MAX_HZ = 10e9
"""No clock is faster; a counter of cycles that moved more has been rewritten, not wrapped."""
MAX_IPC = 16.0
TIME_SLACK_S = 0.05
"""A counter of seconds may run ahead of its span: ticks of 10 ms, an idle period booked at once."""

UNLIMITED = 1e30
"""Finite, so that nothing times nothing stays nothing."""

TIMES = ("perf_enabled_s", "perf_running_s")

_USELESS = np.uint64(wire.ROW_ELSEWHERE | wire.ROW_WIDE | wire.ROW_OFFLINE)


@dataclass(slots=True)
class Table:
    """One block over one span."""

    ticks: Floats
    """(rows) stamp ticks covered; 0 where the row was not read."""
    moved: Floats
    """(rows, columns) in base units; gauges: value times ticks, so that sums are means."""


@dataclass(slots=True)
class Delta:
    tables: dict[str, Table]
    suspect: dict[int, set[str]] = field(default_factory=dict)
    """Reasons by position of the CPU."""

    def add(self, other: Delta) -> None:
        for name, table in other.tables.items():
            mine = self.tables[name]
            mine.ticks += table.ticks
            mine.moved += table.moved
        for row, reasons in other.suspect.items():
            self.suspect.setdefault(row, set()).update(reasons)


@dataclass(slots=True)
class _Baseline:
    stamp: Words
    values: Words
    valid: Bools
    known: Bools
    """(rows) there is something to take a difference with."""


@dataclass(frozen=True, slots=True)
class Column:
    """Where a counter lives."""

    counter: wire.Counter
    block: str
    first: int


class Counters:
    """The counters of one stream, and the state needed to take differences between its frames."""

    def __init__(self, hello: wire.Hello) -> None:
        self.hello = hello
        self.columns: dict[str, Column] = {}
        self._limits: dict[str, _Limits] = {}
        self._baselines: dict[str, _Baseline] = {}
        core = {cpu: i for i, group in enumerate(hello.cores) for cpu in group}
        self._core_of = np.array([core.get(row.cpu, -1) for row in hello.topology], int)
        for block in hello.blocks:
            first = 0
            for counter in block.counters:
                self.columns.setdefault(counter.key, Column(counter, block.name, first))
                first += counter.columns
            self._limits[block.name] = _Limits(block)
            self._baselines[block.name] = self._no_baseline(block)

    @property
    def stamp_hz(self) -> float:
        """Ticks of the stamps in a second."""
        if self.hello.stamp == "raw":
            return 1e9
        return self.hello.tsc_hz.hz if self.hello.tsc_hz else float("nan")

    @property
    def has_tsc(self) -> bool:
        """Elapsed time is known in ticks of the TSC, and what these are."""
        counted = self.hello.stamp == "tsc" or "tsc" in self.columns
        return counted and self.hello.tsc_hz is not None

    def tsc_ticks(self, delta: Delta, block: str = "cpu") -> Floats:
        """TSC ticks that the reads of a CPU's row lie apart: by its stamps, or by a counter where
        stamps are of another clock."""
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
            tables[block.name] = Table(np.zeros(n), np.zeros((n, block.columns)))
        return Delta(tables)

    def step(self, frame: wire.Frame) -> Delta:
        """What moved since each row was last read."""
        delta = self.nothing()
        for block in self.hello.blocks:
            rows = frame.blocks.get(block.name)
            if rows is not None:
                self._step_block(block, rows, delta)
        return delta

    def counted(self, delta: Delta) -> Floats | None:
        """Share of the time for which perf counted, by position of the CPU: below 1 it took turns
        and the counts are estimates. None: the stream does not say."""
        columns = [self.columns.get(key) for key in TIMES]
        if None in columns:
            return None
        enabled, running = (delta.tables[c.block].moved[:, c.first] for c in columns if c)
        with np.errstate(divide="ignore", invalid="ignore"):
            share: Floats = running / enabled
        return share

    def forget(self, cpu_row: int) -> None:
        """The CPU went away: what it counts next has nothing to do with what it counted."""
        for block in self.hello.blocks:
            if block.scope == "cpu":
                self._baselines[block.name].known[cpu_row] = False

    def _held(self, known: Bools, sampled: Bools, flags: Words) -> Bools:
        """Rows that wait for a sibling whose read was interrupted or has not come: the next
        difference of all of them then covers the same span, and the core's states stay whole."""
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
            np.zeros(n, np.uint64), np.zeros(shape, np.uint64), np.zeros(shape, bool),
            np.zeros(n, bool),
        )  # fmt: skip

    def _step_block(self, block: wire.Block, rows: wire.Rows, delta: Delta) -> None:
        head, valid, values = unpack(block, rows, self.hello.rows(block.scope))
        base = self._baselines[block.name]
        limits = self._limits[block.name]
        flags = head[:, 4]
        sampled = flags & np.uint64(wire.ROW_SAMPLED) != 0
        read = sampled & (flags & _USELESS == 0)
        if block.scope == "cpu":
            read &= ~self._held(base.known, sampled, flags)
        usable = read & base.known & (flags & np.uint64(wire.ROW_REBASED) == 0)
        table = delta.tables[block.name]

        ticks = (head[:, 0] - base.stamp).astype(np.float64)
        backwards = usable & ((head[:, 0] < base.stamp) | (head[:, 1] < head[:, 0]))
        both = valid & base.valid
        moved = limits.moved(base.values, values, ticks)
        seconds = ticks / self.stamp_hz
        wrong = limits.wrong(moved, seconds) & both
        bad = usable & ~backwards & wrong.any(axis=1)

        good = usable & ~backwards & ~bad
        table.ticks[good] = ticks[good]
        table.moved[good] = np.where(both, limits.scaled(moved), np.nan)[good]
        if block.scope == "cpu":
            for row in np.flatnonzero(backwards):
                delta.suspect.setdefault(int(row), set()).add("time stamps went backwards")
            for row in np.flatnonzero(bad):
                keys = limits.keys[np.flatnonzero(wrong[row])]
                delta.suspect.setdefault(int(row), set()).update(f"{key} jumped" for key in keys)

        base.stamp[read] = head[read, 0]
        base.values[read] = values[read]
        base.valid[read] = valid[read]
        base.known |= read
        base.known &= flags & np.uint64(wire.ROW_OFFLINE) == 0


class _Limits:
    """Per column of a block: how to take a difference and how much of it can be true."""

    def __init__(self, block: wire.Block) -> None:
        per_column = [c for c in block.counters for _ in range(c.columns)]
        self.keys: npt.NDArray[Any] = np.array([c.key for c in per_column])
        self._scale = np.array([c.scale for c in per_column])
        self._gauge = np.array([c.kind == "gauge" for c in per_column])
        self._mask = np.array([(1 << c.bits) - 1 for c in per_column], np.uint64)
        self._full = np.array([c.bits == 64 and c.kind != "gauge" for c in per_column])
        limit = {"cycles": MAX_HZ, "instructions": MAX_HZ * MAX_IPC, "s": 1.0}
        self._limit = np.array(
            [
                limit.get(c.unit, UNLIMITED)
                if c.kind == "counter" and block.scope == "cpu"
                else UNLIMITED
                for c in per_column
            ]
        )
        self._slack: Floats = np.array([TIME_SLACK_S if c.unit == "s" else 1e6 for c in per_column])

        self._times = [np.flatnonzero(self.keys == key) for key in TIMES]
        self._turns = np.array(
            [c.origin.startswith("perf") and c.key not in TIMES for c in per_column], bool
        )

    def moved(self, old: Words, new: Words, ticks: Floats) -> Floats:
        """Differences at each counter's own width; a wrap is a difference like any other."""
        plain = ((new - old) & self._mask).astype(np.float64)
        if self._full.any():  # the kernel's own sums may step back a little: signed, not a wrap
            signed = (new - old).view(np.int64).astype(np.float64)
            plain = np.where(self._full, signed, plain)
        if self._gauge.any():  # signed, and weighted with time
            level = new.view(np.int64).astype(np.float64) * ticks[:, None]
            plain = np.where(self._gauge, level, plain)
        result: Floats = plain * self._scale
        return result

    def scaled(self, moved: Floats) -> Floats:
        """What would have been counted all the time, for what perf counted in turns."""
        if any(len(column) == 0 for column in self._times):
            return moved
        enabled, running = (moved[:, column] for column in self._times)
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = np.where(running > 0, enabled / running, np.nan)
        return np.where(self._turns, moved * factor, moved)

    def wrong(self, moved: Floats, seconds: Floats) -> Bools:
        """Moved more than can be: somebody wrote the counter, or the read is not to be trusted."""
        too_far = moved > self._limit * seconds[:, None] + self._slack
        result: Bools = too_far | (self._full & (moved < -self._slack))
        return result


def unpack(block: wire.Block, rows: wire.Rows, n: int) -> tuple[Words, Bools, Words]:
    """Heads (n, HEAD), validity (n, columns) and values (n, columns) of a block of n rows."""
    head = np.frombuffer(rows.head, "<u8").reshape(-1, wire.HEAD)
    if len(head) != n:
        head = np.broadcast_to(head, (n, wire.HEAD))
    valid = np.frombuffer(rows.valid, np.uint8).reshape(n, -1)
    bits = np.unpackbits(valid, axis=1, count=block.columns, bitorder="little").astype(bool)
    values = np.frombuffer(rows.values, "<u8").reshape(n, block.columns)
    return head, bits, values
