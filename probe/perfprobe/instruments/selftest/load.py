"""Runs code with known counts (known.c) on all CPUs at once, and measures how much other tasks
disturbed it."""

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
    """A span of work. `begin` and `end` are TSC stamps, `*_ns` are times of CLOCK_MONOTONIC, and
    `own_ns` is how long the thread ran."""

    begin: int
    end: int
    begin_ns: int
    end_ns: int
    own_ns: int
    cpu: int
    """The CPU of the work; -1 if the thread was moved meanwhile."""

    @property
    def lost_share(self) -> float:
        """Share of the span in which the thread did not run, from the scheduler's statistics."""
        length = self.end_ns - self.begin_ns
        return max(0.0, 1 - self.own_ns / length) if length else 0.0


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a loop, with the TSC after every `turns` turns."""

    kind: int
    turns: int
    marks: tuple[int, ...]
    span: WorkSpan

    def turns_between(self, begin: int, end: int) -> float | None:
        """Turns between two stamps; None if one is outside the marks."""
        first, last = self._turns_at(begin), self._turns_at(end)
        return None if first is None or last is None else (last - first) * self.turns

    def _turns_at(self, stamp: int) -> float | None:
        """Returns the number of marks passed at the stamp, interpolated between two marks."""
        marks = self.marks
        if not marks[0] <= stamp <= marks[-1]:
            return None
        low, high = 0, len(marks) - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if marks[middle] <= stamp else (low, middle)
        return low + (stamp - marks[low]) / (marks[high] - marks[low])


turn_length = lib.pp_known_turn
"""Instructions that one turn of the loop executes in user space, by kind of code."""
chain_length = lib.pp_known_chain
"""Instructions of one turn that form a chain, in which each waits for the previous one."""


def run_loop(kind: int, turns: int, marks: int) -> Run:
    """Runs the loop on the caller's present CPU."""
    c_marks = ffi.new("uint64_t[]", marks)
    out: Any = ffi.new("pp_work_span *")
    check_result(lib.pp_known_run(kind, turns, c_marks, marks, out))
    return Run(kind, turns, tuple(c_marks), _work_span(out))


def run_pattern(begin_ns: int, period_ns: int, on_ns: int, times: int) -> list[WorkSpan]:
    """Sleeps until each of `times` periods begins, then works for `on_ns`."""
    spans: Any = ffi.new("pp_work_span[]", times)
    lib.pp_known_pattern(begin_ns, period_ns, on_ns, spans, times)
    return [_work_span(span) for span in spans]


def _work_span(s: Any) -> WorkSpan:
    return WorkSpan(s.begin, s.end, s.begin_ns, s.end_ns, s.own_ns, s.cpu)


T = TypeVar("T")


def run_pinned(work: Mapping[int, Callable[[], T]]) -> dict[int, T]:
    """Runs each function in a thread pinned to its CPU, all at the same time. Threads that could
    not be pinned or failed are left out. Raises Unavailable if too few threads can be started."""
    gate = threading.Barrier(len(work))

    def run(cpu: int, do: Callable[[], T]) -> T | None:
        pinned = False
        with suppress(OSError):
            os.sched_setaffinity(0, {cpu})
            pinned = True
        gate.wait()
        return do() if pinned else None

    with ThreadPoolExecutor(len(work)) as pool:
        try:
            futures = {cpu: pool.submit(run, cpu, do) for cpu, do in work.items()}
        except RuntimeError:  # no further thread can be started
            gate.abort()
            why = f"selftest needs {len(work)} threads, one for each CPU"
            fix = REMEDIES[errno.EAGAIN]
            raise Unavailable(f"{why}, and not all can be started; {fix}") from None
    results = {cpu: future.result() for cpu, future in futures.items() if not future.exception()}
    return {cpu: result for cpu, result in results.items() if result is not None}


# --- loads on all CPUs ----------------------------------------------------------------------------

MARK_NS = 500_000
MARKS = 260
"""Marks of a run. A run takes 130 ms, so that at least five samples are within it."""
TRIAL_MARKS = 16
TRIAL_TURNS = {FREE_LOOP: 500, ADD_LOOP: 300, IMUL_LOOP: 100, ENTER_LOOP: 20}
"""Turns between two marks that take about 10 µs, so that the shortest such span was not
interrupted."""
MAX_CYCLE_FRACTION = 0.08
"""Maximum distance of a measured latency from a whole number of cycles, in cycles."""

PERIOD_NS, TIMES = 100_000_000, 9
ON_NS = (40_000_000, 50_000_000)
SHIFT_NS = (0, 20_000_000)
"""Delays of the first and the second CPU of a core; they differ so that swapped CPUs are
noticed."""
MAX_OTHERS_SHARE = 0.2
"""Maximum share of the time that other tasks may keep a CPU busy. If they were as busy as the
pattern, a counter that shows half of the true count would seem right."""
LEAD_NS = 60_000_000
"""Time before the work begins, long enough for a sample."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A run of dependent instructions, and the cycles of each instruction (None if unknown)."""

    run: Run
    cycles: int | None


@dataclass(frozen=True, slots=True)
class PatternRuns:
    """The patterns by CPU, and the seconds for which other tasks kept each CPU busy."""

    spans: dict[int, list[WorkSpan]]
    other_tasks_s: dict[int, float]

    def is_conclusive(self, cpus: Sequence[int], whole_s: float) -> bool:
        return all(self.other_tasks_s[cpu] <= MAX_OTHERS_SHARE * whole_s for cpu in cpus)

    def doubt_s(self, cpus: Sequence[int]) -> float:
        return sum(self.other_tasks_s[cpu] + self.lost_s(cpu) for cpu in cpus)

    def lost_s(self, cpu: int) -> float:
        """Returns the seconds of the work in which the thread did not run, because of other tasks,
        a hypervisor or a limit on CPU time."""
        return sum(s.lost_share * (s.end_ns - s.begin_ns) for s in self.spans[cpu]) / 1e9


def run_chains(cpus: Sequence[int], kind: int) -> dict[int, Chain]:
    """Runs code of this kind on all CPUs at once; leaves out CPUs whose thread was moved."""
    process = run_pinned({cpu: partial(_run_chain, kind) for cpu in cpus})
    return {cpu: result for cpu, result in process.items() if result.run.span.cpu == cpu}


def _run_chain(kind: int) -> Chain:
    """Runs code of this kind, and measures IMUL's latency in units of ADD, which takes one cycle on
    every x86-64."""
    unit, product = (
        min(_turn_ticks(each) for _ in range(3)) / chain_length(each)
        for each in (ADD_LOOP, IMUL_LOOP)
    )
    ratio = product / unit
    span = run_loop(kind, TRIAL_TURNS[kind], TRIAL_MARKS).span
    turn_ns = max(1.0, span.own_ns / (TRIAL_TURNS[kind] * TRIAL_MARKS))
    run = run_loop(kind, max(1, round(MARK_NS / turn_ns)), MARKS)
    whole = round(ratio)
    return Chain(run, whole if abs(ratio - whole) <= MAX_CYCLE_FRACTION else None)


def _turn_ticks(kind: int) -> float:
    turns = TRIAL_TURNS[kind]
    marks = run_loop(kind, turns, TRIAL_MARKS).marks
    return min(b - a for a, b in itertools.pairwise(marks)) / turns


def run_patterns(cores: Sequence[Sequence[int]]) -> PatternRuns:
    """Runs patterns on all CPUs at once. The first and the second CPU of a core have different
    patterns."""
    places = {cpu: lp % 2 for core in cores for lp, cpu in enumerate(core)}
    begin = time.monotonic_ns() + LEAD_NS
    work = {
        cpu: partial(run_pattern, begin + SHIFT_NS[lp], PERIOD_NS, ON_NS[lp], TIMES)
        for cpu, lp in places.items()
    }
    before = disturbance.ticks()
    spans = run_pinned(work)
    after = disturbance.ticks()
    busy = {
        cpu: disturbance.seconds_of_ticks(before, after, cpu, disturbance.BUSY_FIELDS)
        for cpu in spans
    }
    others = {cpu: _other_tasks_s(busy[cpu], own) for cpu, own in spans.items()}
    return PatternRuns(spans, others)


def _other_tasks_s(busy_s: float | None, own: Sequence[WorkSpan]) -> float:
    """Returns an upper bound of the seconds that other tasks ran on the CPU. /proc/stat counts at
    ticks, so two standard deviations and two ticks are added."""
    if busy_s is None:
        return math.inf
    ours = sum(span.own_ns for span in own) / 1e9
    ticks = max(0.0, busy_s - ours) / TICK_S
    return (ticks + 2 + 2 * math.sqrt(ticks)) * TICK_S
