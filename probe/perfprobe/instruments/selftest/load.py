"""Runs code with known counts (known.c) on all CPUs at once, and measures how much other tasks
disturbed it.

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
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from perfprobe._native import ffi, lib
from perfprobe.errors import REMEDIES, Unavailable, check_result
from perfprobe.instruments import disturbance
from perfprobe.polled.proc_counts import TICK_S

FREE_LOOP, ADD_LOOP = lib.PP_KNOWN_FREE, lib.PP_KNOWN_ADD
IMUL_LOOP, ENTER_LOOP = lib.PP_KNOWN_IMUL, lib.PP_KNOWN_ENTER


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
    """The CPU that worked; -1 if the thread was moved to another CPU meanwhile."""

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

    def turns_between(self, begin: int, end: int) -> float | None:
        """Returns the loop iterations between two TSC stamps; None if one is outside the run."""
        first, last = self._turns_at(begin), self._turns_at(end)
        return None if first is None or last is None else (last - first) * self.turns_per_mark

    def _turns_at(self, stamp: int) -> float | None:
        """Returns the interpolated position of a TSC stamp among the marks; None outside them."""
        marks = self.mark_stamps
        if not marks[0] <= stamp <= marks[-1]:
            return None
        low, high = 0, len(marks) - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if marks[middle] <= stamp else (low, middle)
        return low + (stamp - marks[low]) / (marks[high] - marks[low])


loop_instructions = lib.pp_known_turn
"""Instructions that one iteration of the loop executes in user space, by kind of code."""
chain_instructions = lib.pp_known_chain
"""Instructions of one iteration that form a chain, in which each waits for the previous one."""


def run_loop(kind: int, turns: int, marks: int) -> LoopRun:
    """Runs a loop in the calling thread: `turns` iterations before each of the marks."""
    c_marks = ffi.new("uint64_t[]", marks)
    span: Any = ffi.new("pp_work_span *")
    check_result(lib.pp_known_run(kind, turns, c_marks, marks, span))
    return LoopRun(kind, turns, tuple(c_marks), _work_span(span))


def run_pattern(begin_ns: int, period_ns: int, work_ns: int, periods: int) -> list[WorkSpan]:
    """Works for `work_ns` at the start of each of `periods` periods, and sleeps in between."""
    spans: Any = ffi.new("pp_work_span[]", periods)
    lib.pp_known_pattern(begin_ns, period_ns, work_ns, spans, periods)
    return [_work_span(span) for span in spans]


def _work_span(s: Any) -> WorkSpan:
    return WorkSpan(s.begin, s.end, s.begin_ns, s.end_ns, s.cpu_ns, s.cpu)


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
class ChainRun:
    """A run of dependent instructions, and the cycles of each of them (None if unknown)."""

    run: LoopRun
    cycles_per_instruction: int | None


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


def run_chains(cpus: Sequence[int], kind: int) -> dict[int, ChainRun]:
    """Runs the loop of this kind on all CPUs at once. CPUs whose thread was moved are left out."""
    process = run_pinned({cpu: partial(_run_chain, kind) for cpu in cpus})
    return {cpu: result for cpu, result in process.items() if result.run.span.cpu == cpu}


def _run_chain(kind: int) -> ChainRun:
    """Runs the loop of this kind, and measures the latency of IMUL in units of ADD, which takes one
    cycle on every x86-64 CPU."""
    unit, product = (
        min(_shortest_turn_ticks(kind_of_loop) for _ in range(3)) / chain_instructions(kind_of_loop)
        for kind_of_loop in (ADD_LOOP, IMUL_LOOP)
    )
    ratio = product / unit
    span = run_loop(kind, TRIAL_TURNS[kind], TRIAL_MARKS).span
    turn_ns = max(1.0, span.cpu_ns / (TRIAL_TURNS[kind] * TRIAL_MARKS))
    run = run_loop(kind, max(1, round(MARK_INTERVAL_NS / turn_ns)), MARKS_PER_RUN)
    whole_cycles = round(ratio)
    return ChainRun(run, whole_cycles if abs(ratio - whole_cycles) <= MAX_CYCLE_FRACTION else None)


def _shortest_turn_ticks(kind: int) -> float:
    turns = TRIAL_TURNS[kind]
    marks = run_loop(kind, turns, TRIAL_MARKS).mark_stamps
    return min(b - a for a, b in itertools.pairwise(marks)) / turns


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
    busy = {
        cpu: disturbance.seconds_of_ticks(ticks_before, ticks_after, cpu, disturbance.BUSY_FIELDS)
        for cpu in spans
    }
    other_tasks_s = {cpu: _other_tasks_s(busy[cpu], own_spans) for cpu, own_spans in spans.items()}
    return PatternRuns(spans, other_tasks_s)


def _other_tasks_s(busy_s: float | None, own_spans: Sequence[WorkSpan]) -> float:
    """Returns an upper bound of the seconds that other tasks ran on a CPU. /proc/stat, by which it
    was busy for `busy_s`, counts ticks, so two ticks and two standard deviations are added."""
    if busy_s is None:
        return math.inf
    own_s = sum(span.cpu_ns for span in own_spans) / 1e9
    ticks = max(0.0, busy_s - own_s) / TICK_S
    return (ticks + 2 + 2 * math.sqrt(ticks)) * TICK_S
