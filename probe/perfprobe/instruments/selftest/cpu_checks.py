"""Checks the time-stamp counter, and the counters of CPUs that run a known loop without a pause or
sleep and work in a known pattern. The two threads of a core (lp0 and lp1) have different patterns.

Most counters of busy CPUs are read twice within the work, so code before and after the loop does
not count; the thread's CPU time shows how long other tasks ran meanwhile. The counters of a pattern
are read before and after the whole pattern.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

from perfprobe.instruments import timers
from perfprobe.instruments.selftest import load
from perfprobe.instruments.selftest.load import (
    PERIOD_NS,
    PERIODS,
    CounterAdvance,
    FrameLog,
    Instant,
    LoopRun,
    PatternRuns,
    WorkSpan,
)
from perfprobe.instruments.selftest.verdict import Check, Outcome
from perfprobe.polled.proc_counts import TICK_S
from perfprobe.wire import Hello

OFFSET_CHECK = Check("tsc", "the same on all CPUs", "s", 1.0,
             "it is bounded by messages there and back, some 0.1 µs each")  # fmt: skip
RATE_CHECK = Check("tsc", "against CLOCK_MONOTONIC_RAW all through this test", "Hz", 5e-5,
             "the rate in use was counted for some 50 ms")  # fmt: skip
MAX_OFFSET_S = 1e-6
"""Maximum offset in s between the TSCs of two CPUs. It is much less than the time of a migration,
so no task reads an earlier time after it has moved."""
MAX_TSC_STEP = 100.0
"""Upper bound of the step by which the TSC advances, in ticks; the largest known step is 24.5."""


def rate_outcomes(hello: Hello, begin: Instant, end: Instant) -> Iterator[tuple[Check, Outcome]]:
    """Compares the TSC's rate in hello with its rate over the longer time of this test."""
    if hello.tsc_hz is not None:
        counted = (end[1] - begin[1]) / (end[0] - begin[0]) * 1e9
        yield RATE_CHECK, Outcome(hello.topology[0].cpu, counted, hello.tsc_hz.hz, counted)


def offset_outcomes(cpus: Sequence[int], tsc_hz: float) -> Iterator[tuple[Check, Outcome]]:
    """Checks the offset of each CPU's TSC from that of the first CPU, less its error."""
    for offset in timers.measure_offsets(cpus, MAX_TSC_STEP, tsc_hz):
        if offset.offset_ns is not None and offset.error_ns is not None:
            min_offset_s = max(0.0, abs(offset.offset_ns) - offset.error_ns) / 1e9
            min_offset_s = math.copysign(min_offset_s, offset.offset_ns)
            yield OFFSET_CHECK, Outcome(offset.cpu, 0.0, min_offset_s, MAX_OFFSET_S)


# --- counters of a busy CPU -----------------------------------------------------------------------

MAX_PER_S = 5e10
"""Upper bound of the cycles or instructions of other tasks per second: 8 a cycle at 6 GHz."""
MIN_WINDOW_SHARE = 0.3
"""Minimum share of a run of the loop that must be between the first and the last sample in it."""

TICK_REASON = "interrupts and the kernel's tick count too"
INSTRUCTIONS_CHECK = Check(
    "instructions", "a loop of known length", "instructions", 0.01, TICK_REASON
)  # fmt: skip
KERNEL_INSTRUCTIONS_CHECK = Check(
    "kernel_instructions", "system calls: what is left is the loop around them", "instructions",
    0.02, "some CPUs count entering the kernel on either side",
)  # fmt: skip
KERNEL_CYCLES_CHECK = Check(
    "kernel_cycles", "system calls: what is left is the chain around them", "cycles",
    0.15, "entering and leaving the kernel falls to either side",
)  # fmt: skip
TSC_CHECK = Check("msr_tsc", "at work, against RDTSC", "cycles", 0.001, "read one after the other")
CYCLES_CHECK = Check("cycles", "a chain of multiplications", "cycles", 0.02, TICK_REASON)
APERF_CHECK = Check("aperf", "a chain of multiplications", "cycles", 0.02, TICK_REASON)
REF_CHECK = Check(
    "ref", "at work, against the TSC", "cycles", 0.01, "short halts while the clock changes"
)
MPERF_CHECK = Check("mperf", "at work, against the TSC", "cycles", 0.01, REF_CHECK.tolerance_reason)
BUSY_CHECK = Check("busy_s", "at work throughout", "s", 0.01, "work and samples begin apart")
NEVER_IDLE_CHECK = Check(
    "idle_s", "at work throughout: never idle", "s", 0.01, BUSY_CHECK.tolerance_reason
)
USER_TIME_CHECK = Check("stat_user_s", "at work in user space", "s", 2.5 * TICK_S / 0.13,
             "it counts in ticks, and the work took some 13 of them")  # fmt: skip


@dataclass(frozen=True, slots=True)
class LoopWindow:
    """The part of one CPU's run of a loop between the first and the last sample in it."""

    log: FrameLog
    row: int
    cpu: int
    run: LoopRun

    def advance(self, key: str) -> CounterAdvance | None:
        begin, end = self.run.mark_stamps[0], self.run.mark_stamps[-1]
        result = self.log.advance(key, self.row, begin, end, inside=True)
        if result is None or result.end - result.begin < MIN_WINDOW_SHARE * (end - begin):
            return None
        return result

    def turns(self, advance: CounterAdvance) -> float | None:
        return self.run.turns_between(advance.begin, advance.end)

    def seconds(self, advance: CounterAdvance) -> float:
        span = self.run.span
        return span.length_s * (advance.end - advance.begin) / (span.end - span.begin)

    @property
    def instructions_per_turn(self) -> float:
        return load.loop_instructions(self.run.kind)

    @property
    def cycles_per_turn(self) -> float | None:
        cycles = self.run.cycles_per_instruction
        return None if cycles is None else load.chain_instructions(self.run.kind) * cycles

    @property
    def lost_s(self) -> float:
        """Seconds of the run in which the thread did not run. When they occurred is unknown."""
        return self.run.span.lost_s


Measure = Callable[[LoopWindow], Outcome | None]
"""A function that compares a counter with its expected value; None if it was not read twice."""


def _counted_outcome(
    window: LoopWindow, key: str, per_turn: float | None, subtracted_key: str = ""
) -> Outcome | None:
    """Checks a count that is proportional to the loop's turns and that other tasks can only
    increase. If `subtracted_key` is given, the count with this key is subtracted."""
    advance = window.advance(key)
    turns = window.turns(advance) if advance else None
    part = window.advance(subtracted_key) if subtracted_key else CounterAdvance(0, 0, 0.0)
    if advance is None or part is None or turns is None or per_turn is None:
        return None
    expected, measured = turns * per_turn, advance.amount - part.amount
    max_gain = window.lost_s * MAX_PER_S
    return Outcome(window.cpu, expected, measured, expected, max_gain=max_gain)


def _constant_rate_outcome(window: LoopWindow, key: str) -> Outcome | None:
    """Checks a counter that advances at a constant rate while the CPU is busy, against the TSC, by
    the candidate factor that fits best."""
    advance = window.advance(key)
    if advance is None:
        return None
    ticks = advance.end - advance.begin
    candidates = (ticks / factor for factor in tick_factors(window.log, key))
    expected = min(candidates, key=lambda value: abs(value - advance.amount))
    # A hypervisor or a limit on CPU time stops the counter; other tasks do not. All lost time may
    # be due to the hypervisor.
    max_loss = window.lost_s / window.seconds(advance) * expected
    return Outcome(window.cpu, expected, advance.amount, expected, max_loss=max_loss)


def tick_factors(log: FrameLog, key: str) -> list[float]:
    """Returns candidates for the number of TSC ticks in one tick of the counter."""
    hello = log.hello
    candidates = [m.factor for m in hello.multipliers if m.counter == key]
    if not candidates and key == "mperf" and hello.tsc_hz and hello.base_hz:
        return [1.0, hello.tsc_hz.hz / hello.base_hz.hz]
    return candidates or [1.0]


def _time_outcome(window: LoopWindow, key: str, *, busy: bool) -> Outcome | None:
    """Checks a CPU's busy (`busy`) or idle time during work without a pause."""
    advance = window.advance(key)
    if advance is None:
        return None
    span_s, lost_s = window.seconds(advance), window.lost_s
    expected_s, max_loss, max_gain = (span_s, lost_s, 0.0) if busy else (0.0, 0.0, lost_s)
    return Outcome(window.cpu, expected_s, advance.amount, span_s, max_loss, max_gain)


def _user_outcome(window: LoopWindow) -> Outcome | None:
    """Checks the user time of a CPU between the samples before and after the run. Other tasks may
    have added all remaining time, and as much again by delaying the read. The kernel counts the
    loop as nice time if perftop was started by nice(1)."""
    span, log = window.run.span, window.log
    advance = log.advance("stat_user_s", window.row, span.begin, span.end, inside=False)
    if advance is None:
        return None
    amount = advance.amount
    if os.getpriority(os.PRIO_PROCESS, 0) > 0 and "stat_nice_s" in log.counters:
        nice = log.advance("stat_nice_s", window.row, span.begin, span.end, inside=False)
        amount += nice.amount if nice is not None else 0.0
    expected = span.cpu_ns / 1e9
    ticks = 2 * TICK_S
    rest_s = window.seconds(advance) - expected + window.lost_s
    return Outcome(window.cpu, expected, amount, expected, max_loss=ticks, max_gain=rest_s + ticks)


CHECKS_BY_CODE: Mapping[int, Mapping[Check, Measure]] = {
    load.FREE_LOOP: {
        INSTRUCTIONS_CHECK: lambda w: _counted_outcome(w, "instructions", w.instructions_per_turn),
    },
    load.IMUL_LOOP: {
        CYCLES_CHECK: lambda w: _counted_outcome(w, "cycles", w.cycles_per_turn),
        APERF_CHECK: lambda w: _counted_outcome(w, "aperf", w.cycles_per_turn),
        TSC_CHECK: partial(_constant_rate_outcome, key="msr_tsc"),
        REF_CHECK: partial(_constant_rate_outcome, key="ref"),
        MPERF_CHECK: partial(_constant_rate_outcome, key="mperf"),
        BUSY_CHECK: partial(_time_outcome, key="busy_s", busy=True),
        NEVER_IDLE_CHECK: partial(_time_outcome, key="idle_s", busy=False),
        USER_TIME_CHECK: _user_outcome,
    },
    load.ENTER_LOOP: {
        KERNEL_INSTRUCTIONS_CHECK: lambda w: _counted_outcome(
            w, "instructions", w.instructions_per_turn, "kernel_instructions"
        ),
        KERNEL_CYCLES_CHECK: lambda w: _counted_outcome(
            w, "cycles", w.cycles_per_turn, "kernel_cycles"
        ),
    },
}
"""By kind of loop, the checks made while it runs, and their measures."""


# --- sleep and work in a known pattern ------------------------------------------------------------

WAKING_REASON = "interrupts, samples and waking up are work too"
SPAN_S = PERIODS * PERIOD_NS / 1e9
IDLE_CHECK = Check("idle_s", "asleep in a known pattern", "s", 0.02, WAKING_REASON)
PATTERN_BUSY_CHECK = Check("busy_s", "at work in a known pattern", "s", 0.02, WAKING_REASON)
STAT_CHECK = Check("stat_idle_s", "asleep in a known pattern", "s", 2 * TICK_S / SPAN_S,
             "it counts in ticks")  # fmt: skip
HALTED_CHECK = Check(
    "ref", "halted while asleep, in a known pattern", "cycles", 0.02, WAKING_REASON
)
STATES = ("neither_s", "lp0_s", "lp1_s", "both_s")
_SIBLING_PATTERN = "siblings at work in turns and together"
TRACED_CHECKS = {key: Check(key, _SIBLING_PATTERN, "s", 0.02, WAKING_REASON) for key in STATES}
TICK_CHECKS = {
    key: Check(key, _SIBLING_PATTERN, "TSC cycles", 0.03, WAKING_REASON)
    for key in ("one_thread", "any_thread", "distributed")
}
CPU_CHECKS = (IDLE_CHECK, PATTERN_BUSY_CHECK, STAT_CHECK, HALTED_CHECK)
PATTERN_CHECKS = (*CPU_CHECKS, *TRACED_CHECKS.values(), *TICK_CHECKS.values())


def pattern_states(
    first: Sequence[WorkSpan], second: Sequence[WorkSpan], advance: CounterAdvance
) -> dict[str, int]:
    """Returns the TSC ticks between the reads of `advance` in which neither of two patterns worked,
    only the first, only the second, and both, by the keys in STATES."""
    ticks0, ticks1 = (sum(span.end - span.begin for span in spans) for spans in (first, second))
    pairs = product(first, second)
    both = sum(max(0, min(a.end, b.end) - max(a.begin, b.begin)) for a, b in pairs)
    neither = advance.end - advance.begin - ticks0 - ticks1 + both
    return dict(zip(STATES, (neither, ticks0 - both, ticks1 - both, both), strict=True))


@dataclass(frozen=True, slots=True)
class PatternReads:
    """Reads of counters before and after all patterns."""

    log: FrameLog
    runs: PatternRuns

    def advance(self, key: str, row: int) -> CounterAdvance | None:
        if key not in self.log.counters:
            return None
        spans = [span for value in self.runs.spans.values() for span in value]
        begin, end = min(s.begin for s in spans), max(s.end for s in spans)
        return self.log.advance(key, row, begin, end, inside=False)

    def seconds(self, ticks: float) -> float:
        span = next(iter(self.runs.spans.values()))
        begin, end = span[0], span[-1]
        return ticks * (end.end_ns - begin.begin_ns) / (end.end - begin.begin) / 1e9

    def outcome(
        self, cpus: Sequence[int], expected: float, measured: float, total: float, unit_s: float
    ) -> Outcome:
        """Returns the outcome for a count of the first of `cpus`, which disturbances on any of
        `cpus` may change. All counts are in a unit of `unit_s`."""
        doubt = self.runs.disturbed_s(cpus) / unit_s
        is_clear = self.runs.is_conclusive(cpus, total * unit_s)
        return Outcome(cpus[0], expected, measured, total, doubt, doubt, is_clear)


def pattern_outcomes(log: FrameLog, runs: PatternRuns) -> Iterator[tuple[Check, Outcome]]:
    reads = PatternReads(log, runs)
    for row, cpu_row in enumerate(log.hello.topology):
        if cpu_row.cpu in runs.spans:
            yield from _cpu_outcomes(reads, row, cpu_row.cpu)
    for row, cpus in enumerate(log.hello.cores):
        if len(cpus) == 2 and set(cpus) <= runs.spans.keys():
            yield from _core_outcomes(reads, row, (cpus[0], cpus[1]))


def _cpu_outcomes(reads: PatternReads, row: int, cpu: int) -> Iterator[tuple[Check, Outcome]]:
    spans, other_tasks_s = reads.runs.spans[cpu], reads.runs.other_tasks_s[cpu]
    lost_s = reads.runs.lost_s(cpu)
    for check, asleep in ((IDLE_CHECK, True), (PATTERN_BUSY_CHECK, False), (STAT_CHECK, True)):
        advance = reads.advance(check.counter, row)
        if advance is None:
            continue
        states = pattern_states(spans, (), advance)
        total_s, busy_s = reads.seconds(sum(states.values())), reads.seconds(states["lp0_s"])
        measured = advance.amount
        if check is STAT_CHECK and (iowait := reads.advance("stat_iowait_s", row)):
            measured += iowait.amount  # time in iowait is also idle time
        expected, max_loss, max_gain = busy_s, lost_s, other_tasks_s
        if asleep:
            expected, max_loss, max_gain = total_s - busy_s, other_tasks_s, lost_s
        conclusive = reads.runs.is_conclusive([cpu], total_s)
        yield check, Outcome(cpu, expected, measured, total_s, max_loss, max_gain, conclusive)
    if (advance := reads.advance("ref", row)) is not None:
        states = pattern_states(spans, (), advance)
        ticks, busy_ticks, unit_s = sum(states.values()), states["lp0_s"], reads.seconds(1)
        yield HALTED_CHECK, reads.outcome([cpu], busy_ticks, advance.amount, ticks, unit_s)


def _core_outcomes(
    reads: PatternReads, row: int, cpus: tuple[int, int]
) -> Iterator[tuple[Check, Outcome]]:
    """Yields the outcomes for the counters of a core and of its two CPUs."""
    first, second = (reads.runs.spans[cpu] for cpu in cpus)
    for key in STATES:
        if (advance := reads.advance(key, row)) is not None:
            states = pattern_states(first, second, advance)
            expected, total_s = reads.seconds(states[key]), reads.seconds(sum(states.values()))
            outcome = reads.outcome(cpus, expected, advance.amount, total_s, 1.0)
            yield TRACED_CHECKS[key], outcome
    position = {cpu_row.cpu: i for i, cpu_row in enumerate(reads.log.hello.topology)}
    for key, check in TICK_CHECKS.items():
        for lp, cpu in enumerate(cpus):
            if (advance := reads.advance(key, position[cpu])) is None:
                continue
            states = pattern_states(first, second, advance)
            total, alone = sum(states.values()), states[f"lp{lp}_s"]
            # The counts follow from the definitions of the events.
            ticks = {
                "one_thread": alone,
                "any_thread": total - states["neither_s"],
                "distributed": alone + states["both_s"] / 2,
            }[key]
            amounts = (advance.amount * factor for factor in tick_factors(reads.log, key))
            amount = min(amounts, key=lambda amount: abs(amount - ticks))
            ordered_cpus = (cpu, cpus[1 - lp])
            yield check, reads.outcome(ordered_cpus, ticks, amount, total, reads.seconds(1))
