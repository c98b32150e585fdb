"""Runs code with known counts (loops.c) on all CPUs at once, and measures how much other tasks
disturbed it. Keeps the raw frames of this time, and computes how far a counter advanced
between two reads. A stamp is a value of the TSC.

A loop has a known number of instructions in each turn (iteration); the TSC is read (a mark) after
every few hundred turns. A pattern alternates sleep and work in fixed periods.
"""

from __future__ import annotations

import errno
import itertools
import math
import os
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from perfprobe import wire
from perfprobe._native import ffi, lib
from perfprobe.errors import REMEDIES, Unavailable, check_result
from perfprobe.instruments import disturbance
from perfprobe.native import tsc_rate
from perfprobe.polled.proc_counts import TICK_S
from perfprobe.sources import Source
from perfprobe.wire import Counter, Frame, Hello

FREE_LOOP, ADD_LOOP = lib.PP_LOOP_FREE, lib.PP_LOOP_ADD
IMUL_LOOP, ENTER_LOOP = lib.PP_LOOP_IMUL, lib.PP_LOOP_ENTER


@dataclass(frozen=True, slots=True)
class WorkSpan:
    """A span of work. `begin` and `end` are TSC stamps, `begin_ns` and `end_ns` are times of
    CLOCK_MONOTONIC, and `cpu_ns` is the thread's CPU time."""

    begin: int
    end: int
    begin_ns: int
    end_ns: int
    cpu_ns: int
    cpu: int
    """The CPU that worked; -1 if the thread was moved to another CPU while it worked."""

    @property
    def length_s(self) -> float:
        return (self.end_ns - self.begin_ns) / 1e9

    @property
    def lost_s(self) -> float:
        """Seconds of the span in which the thread did not run, by its CPU time, because of other
        tasks, a hypervisor or a limit on CPU time."""
        return max(0.0, self.length_s - self.cpu_ns / 1e9)


@dataclass(frozen=True, slots=True)
class LoopRun:
    """A run of a loop; `mark_stamps` are TSC values, `turns_per_mark` iterations apart."""

    kind: int
    turns_per_mark: int
    mark_stamps: tuple[int, ...]
    span: WorkSpan
    cycles_per_instruction: int | None = None
    """Cycles of each instruction of a chain; None if they were not measured or are not whole."""

    def turns_between(self, begin: int, end: int) -> float | None:
        """Returns the loop iterations between two TSC stamps; None if one is outside the run."""
        first, last = self._turns_at(begin), self._turns_at(end)
        return None if first is None or last is None else (last - first) * self.turns_per_mark

    def _turns_at(self, stamp: int) -> float | None:
        """Returns the interpolated position of a TSC stamp among the marks; None outside them."""
        marks = self.mark_stamps
        if not marks[0] <= stamp <= marks[-1]:
            return None
        high = bisect_right(marks, stamp, 1, len(marks) - 1)
        return high - 1 + (stamp - marks[high - 1]) / (marks[high] - marks[high - 1])


loop_instructions = lib.pp_loop_instructions
"""Instructions that one iteration of the loop executes in user space, by kind of code."""
chain_instructions = lib.pp_chain_instructions
"""Instructions of one iteration that form a chain, in which each waits for the previous one."""


def run_loop(kind: int, turns: int, marks: int) -> LoopRun:
    """Runs a loop in the calling thread: `turns` iterations before each of the marks."""
    c_marks = ffi.new("uint64_t[]", marks)
    span: Any = ffi.new("pp_work_span *")
    check_result(lib.pp_loop_run(kind, turns, c_marks, marks, span))
    return LoopRun(kind, turns, tuple(c_marks), _work_span(span))


def run_pattern(begin_ns: int, period_ns: int, work_ns: int, periods: int) -> list[WorkSpan]:
    """Works for `work_ns` at the start of each of `periods` periods, and sleeps in between."""
    spans: Any = ffi.new("pp_work_span[]", periods)
    lib.pp_work_pattern(begin_ns, period_ns, work_ns, spans, periods)
    return [_work_span(span) for span in spans]


def _work_span(span: Any) -> WorkSpan:
    return WorkSpan(span.begin, span.end, span.begin_ns, span.end_ns, span.cpu_ns, span.cpu)


T = TypeVar("T")


def run_pinned(work: Mapping[int, Callable[[], T]]) -> dict[int, T]:
    """Runs the function of each CPU in a thread pinned to that CPU, all at the same time, and
    returns the results. CPUs whose thread could not be pinned or failed are left out. Raises
    Unavailable if not all threads can be started."""
    start_barrier = threading.Barrier(len(work))

    def run(cpu: int, do: Callable[[], T]) -> T | None:
        pinned = False
        with suppress(OSError):
            os.sched_setaffinity(0, {cpu})
            pinned = True
        start_barrier.wait()
        return do() if pinned else None

    with ThreadPoolExecutor(len(work)) as pool:
        try:
            futures = {cpu: pool.submit(run, cpu, do) for cpu, do in work.items()}
        except RuntimeError:  # the limit of threads is reached
            start_barrier.abort()
            reason = f"selftest needs {len(work)} threads, one for each CPU"
            fix = REMEDIES[errno.EAGAIN]
            raise Unavailable(f"{reason}, and not all can be started; {fix}") from None
    results = {cpu: future.result() for cpu, future in futures.items() if not future.exception()}
    return {cpu: result for cpu, result in results.items() if result is not None}


# --- loads on all CPUs ----------------------------------------------------------------------------

MARK_INTERVAL_NS = 500_000
MARKS_PER_RUN = 260
"""Number of marks in a run. A run takes 130 ms and therefore contains at least five samples."""
TRIAL_MARKS = 16
TRIAL_TURNS = {FREE_LOOP: 500, ADD_LOOP: 300, IMUL_LOOP: 100, ENTER_LOOP: 20}
"""Turns of each loop between two marks in a trial run. They take about 10 µs, so that the shortest
of them was not interrupted."""
MAX_CYCLE_FRACTION = 0.08
"""Maximum distance, in cycles, of a measured latency from a whole number of cycles."""

PERIOD_NS, PERIODS = 100_000_000, 9
WORK_NS = (40_000_000, 50_000_000)
PATTERN_DELAY_NS = (0, 20_000_000)
"""Delays of the pattern on the first and the second CPU of a core; they differ so that a counter
that swaps the CPUs is noticed."""
MAX_OTHER_TASKS_SHARE = 0.2
"""Maximum share of a CPU's time that other tasks may use in a conclusive test. If they used as much
as the pattern, a counter that shows half of the true count would seem right."""
START_DELAY_NS = 60_000_000
"""Time in ns before patterns begin, long enough for a sample before them."""


@dataclass(frozen=True, slots=True)
class PatternRuns:
    """The spans of work of each CPU's pattern, and the seconds that other tasks used each CPU."""

    spans: dict[int, list[WorkSpan]]
    other_tasks_s: dict[int, float]

    def is_conclusive(self, cpus: Sequence[int], whole_s: float) -> bool:
        return all(self.other_tasks_s[cpu] <= MAX_OTHER_TASKS_SHARE * whole_s for cpu in cpus)

    def disturbed_s(self, cpus: Sequence[int]) -> float:
        return sum(self.other_tasks_s[cpu] + self.lost_s(cpu) for cpu in cpus)

    def lost_s(self, cpu: int) -> float:
        return sum(span.lost_s for span in self.spans[cpu])


def run_chains(cpus: Sequence[int], kind: int) -> dict[int, LoopRun]:
    """Runs the loop of this kind on all CPUs at once. CPUs whose thread was moved are left out."""
    runs = run_pinned({cpu: partial(_run_chain, kind) for cpu in cpus})
    return {cpu: run for cpu, run in runs.items() if run.span.cpu == cpu}


def _run_chain(kind: int) -> LoopRun:
    """Runs the loop of this kind, and measures the latency of IMUL in units of ADD, which takes one
    cycle on every x86-64 CPU."""
    latencies = []
    for loop in (ADD_LOOP, IMUL_LOOP):
        trials = (run_loop(loop, TRIAL_TURNS[loop], TRIAL_MARKS) for _ in range(3))
        shortest = min(b - a for run in trials for a, b in itertools.pairwise(run.mark_stamps))
        latencies.append(shortest / TRIAL_TURNS[loop] / chain_instructions(loop))
    ratio = latencies[1] / latencies[0]
    span = run_loop(kind, TRIAL_TURNS[kind], TRIAL_MARKS).span
    turn_ns = max(1.0, span.cpu_ns / (TRIAL_TURNS[kind] * TRIAL_MARKS))
    run = run_loop(kind, max(1, round(MARK_INTERVAL_NS / turn_ns)), MARKS_PER_RUN)
    whole_cycles = round(ratio)
    is_whole = abs(ratio - whole_cycles) <= MAX_CYCLE_FRACTION
    return replace(run, cycles_per_instruction=whole_cycles if is_whole else None)


def run_patterns(cores: Sequence[Sequence[int]]) -> PatternRuns:
    """Runs patterns of sleep and work on all CPUs at once, with different patterns on the first and
    the second CPU of a core."""
    thread_by_cpu = {cpu: lp % 2 for core in cores for lp, cpu in enumerate(core)}
    begin = time.monotonic_ns() + START_DELAY_NS
    work = {
        cpu: partial(run_pattern, begin + PATTERN_DELAY_NS[lp], PERIOD_NS, WORK_NS[lp], PERIODS)
        for cpu, lp in thread_by_cpu.items()
    }
    ticks_before = disturbance.read_ticks()
    spans = run_pinned(work)
    ticks_after = disturbance.read_ticks()
    other_tasks_s = dict.fromkeys(spans, math.inf)
    for cpu, own_spans in spans.items():
        busy_s = disturbance.seconds_of_ticks(
            ticks_before, ticks_after, cpu, disturbance.BUSY_FIELDS
        )
        if busy_s is not None:
            # An upper bound: /proc/stat counts ticks, so two ticks and two standard deviations are
            # added.
            ticks = max(0.0, busy_s - sum(span.cpu_ns for span in own_spans) / 1e9) / TICK_S
            other_tasks_s[cpu] = (ticks + 2 + 2 * math.sqrt(ticks)) * TICK_S
    return PatternRuns(spans, other_tasks_s)


# --- frames ---------------------------------------------------------------------------------------

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
            newest_stamps: list[int] = []
            for name, tables in self._reads_by_block.items():
                rows = range(self.hello.rows(self._blocks[name].scope))
                recent = tables[-RECENT_FRAMES:]
                reads = ([s[0] for table in recent if (s := table.stamps(row))] for row in rows)
                newest_stamps.append(min((max(read) for read in reads if read), default=0))
            if newest_stamps and min(newest_stamps) >= stamp:
                return
            due = self._source.due_s()
            time.sleep(max(0.001, min(0.02, (due or 0) - time.monotonic())))

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
        # A counter of a perf group is scaled by the share of time for which the group was counting.
        times = [self.counters.get(key) for key in GROUP_TIME_KEYS]
        own = [time for time in times if time is not None and time.block == column.block]
        if column.counter.origin.startswith("perf") and len(own) == len(times):
            enabled, running = (sum(self._column_advances(time, a, b, row)) for time in own)
            amount *= enabled / running if running and enabled else 1.0
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
        words = self._blocks[column.block].valid_words
        bits = range(column.first_column, column.first_column + column.counter.columns)
        for table in self._reads_by_block.get(column.block, []):
            if table.head[row * wire.HEAD + 4] & wire.ROW_REBASED:
                reads.clear()
            stamps = table.stamps(row)
            valid = (table.valid[row * words + bit // 64] >> bit % 64 & 1 for bit in bits)
            if stamps and all(valid):
                reads.append((*stamps, table))
        return reads

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
