"""Checks counters of CPUs, and of cores with two threads (lp0 and lp1), that sleep and work in a
known pattern. The counters are read before and after the whole pattern."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from perfprobe.instruments.selftest.frame_log import CounterAdvance, FrameLog
from perfprobe.instruments.selftest.load import PERIOD_NS, PERIODS, PatternRuns, WorkSpan
from perfprobe.instruments.selftest.verdict import Check, Outcome
from perfprobe.instruments.selftest.working import tick_factors
from perfprobe.polled.proc_counts import TICK_S

WAKING_IS_WORK = "interrupts, samples and waking up are work too"
SPAN_S = PERIODS * PERIOD_NS / 1e9
IDLE_CHECK = Check("idle_s", "asleep in a known pattern", "s", 0.02, WAKING_IS_WORK)
BUSY_CHECK = Check("busy_s", "at work in a known pattern", "s", 0.02, WAKING_IS_WORK)
STAT_CHECK = Check("stat_idle_s", "asleep in a known pattern", "s", 2 * TICK_S / SPAN_S,
             "it counts in ticks")  # fmt: skip
REF_CHECK = Check("ref", "halted while asleep, in a known pattern", "cycles", 0.02, WAKING_IS_WORK)
STATES = ("neither_s", "lp0_s", "lp1_s", "both_s")
_SIBLINGS = "siblings at work in turns and together"
TRACED_CHECKS = {key: Check(key, _SIBLINGS, "s", 0.02, WAKING_IS_WORK) for key in STATES}
TICK_CHECKS = {
    key: Check(key, _SIBLINGS, "TSC cycles", 0.03, WAKING_IS_WORK)
    for key in ("one_thread", "any_thread", "distributed")
}
CPU_CHECKS = (IDLE_CHECK, BUSY_CHECK, STAT_CHECK, REF_CHECK)
CHECKS = (*CPU_CHECKS, *TRACED_CHECKS.values(), *TICK_CHECKS.values())


@dataclass(frozen=True, slots=True)
class PatternTicks:
    """TSC ticks between two reads: of the whole time (`total`), of the time in which the first or
    the second pattern worked, and of the time in which both worked."""

    total: int
    first: int
    second: int
    both: int

    def states(self) -> tuple[int, int, int, int]:
        """Returns the TSC ticks in each state, in the order of STATES."""
        neither = self.total - self.first - self.second + self.both
        return neither, self.first - self.both, self.second - self.both, self.both


def pattern_ticks(
    first: Sequence[WorkSpan], second: Sequence[WorkSpan], advance: CounterAdvance
) -> PatternTicks:
    """Returns how long each of two patterns worked, and both together, between the reads of
    `advance`."""
    ticks0, ticks1 = (sum(span.end - span.begin for span in spans) for spans in (first, second))
    pairs = product(first, second)
    both = sum(max(0, min(a.end, b.end) - max(a.begin, b.begin)) for a, b in pairs)
    return PatternTicks(advance.end - advance.begin, ticks0, ticks1, both)


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


def outcomes(log: FrameLog, runs: PatternRuns) -> Iterator[tuple[Check, Outcome]]:
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
    for check, asleep in ((IDLE_CHECK, True), (BUSY_CHECK, False), (STAT_CHECK, True)):
        advance = reads.advance(check.counter, row)
        if advance is None:
            continue
        ticks = pattern_ticks(spans, (), advance)
        total_s = reads.seconds(ticks.total)
        expected = reads.seconds(ticks.total - ticks.first if asleep else ticks.first)
        measured = advance.amount
        if check is STAT_CHECK and (iowait := reads.advance("stat_iowait_s", row)):
            measured += iowait.amount  # time in iowait is also idle time
        max_loss, max_gain = (other_tasks_s, lost_s) if asleep else (lost_s, other_tasks_s)
        conclusive = reads.runs.is_conclusive([cpu], total_s)
        yield check, Outcome(cpu, expected, measured, total_s, max_loss, max_gain, conclusive)
    if (advance := reads.advance("ref", row)) is not None:
        ticks = pattern_ticks(spans, (), advance)
        yield REF_CHECK, _ticking_outcome(reads, [cpu], advance.amount, ticks.first, ticks.total)


def _ticking_outcome(
    reads: PatternReads, cpus: Sequence[int], measured: float, expected: float, total: int
) -> Outcome:
    """Returns the outcome for a count of the first of `cpus`, which disturbances on any of `cpus`
    may change. All counts are in TSC ticks."""
    ticks = reads.runs.disturbed_s(cpus) / reads.seconds(1)
    conclusive = reads.runs.is_conclusive(cpus, reads.seconds(total))
    return Outcome(cpus[0], expected, measured, total, ticks, ticks, conclusive)


def _core_outcomes(
    reads: PatternReads, row: int, cpus: tuple[int, int]
) -> Iterator[tuple[Check, Outcome]]:
    """Yields the outcomes for the counters of a core and of its two CPUs."""
    first, second = (reads.runs.spans[cpu] for cpu in cpus)
    doubt = reads.runs.disturbed_s(cpus)
    for i, key in enumerate(STATES):
        if (advance := reads.advance(key, row)) is not None:
            ticks = pattern_ticks(first, second, advance)
            expected, total_s = reads.seconds(ticks.states()[i]), reads.seconds(ticks.total)
            is_clear = reads.runs.is_conclusive(cpus, total_s)
            outcome = Outcome(cpus[0], expected, advance.amount, total_s, doubt, doubt, is_clear)
            yield TRACED_CHECKS[key], outcome
    position = {cpu_row.cpu: i for i, cpu_row in enumerate(reads.log.hello.topology)}
    for key, check in TICK_CHECKS.items():
        for lp, cpu in enumerate(cpus):
            if (advance := reads.advance(key, position[cpu])) is not None:
                ticks = pattern_ticks(first, second, advance)
                expected = expected_ticks(key, lp, ticks)
                amounts = (advance.amount * factor for factor in tick_factors(reads.log, key))
                amount = min(amounts, key=lambda amount: abs(amount - expected))
                ordered_cpus = (cpu, cpus[1 - lp])
                yield check, _ticking_outcome(reads, ordered_cpus, amount, expected, ticks.total)


def expected_ticks(key: str, lp: int, ticks: PatternTicks) -> float:
    """Returns the count of an SMT event on thread `lp` (0 or 1) that follows from the event's
    definition, in TSC ticks."""
    _, lp0, lp1, both = ticks.states()
    if key == "one_thread":
        return (lp0, lp1)[lp]
    if key == "any_thread":
        return lp0 + lp1 + both
    return (lp0, lp1)[lp] + both / 2
