"""`selftest`: checks every counter in use against code whose counts are known by construction. The
source is opened and read as for a stream.

Expected values follow from the code that ran, its CPU time and CLOCK_MONOTONIC, never from
perftop's own computations. Other tasks can only add to a count. A hypervisor or a limit on CPU time
can only halt a busy CPU. A check is repeated if such disturbances may explain its error.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain
from typing import Any

from perfprobe.errors import Unavailable
from perfprobe.instruments.selftest import cpu_checks, instruments, load
from perfprobe.instruments.selftest.load import FrameLog, read_instant
from perfprobe.instruments.selftest.verdict import (
    Check,
    Outcome,
    Result,
    conclude,
    judge,
    rank,
)
from perfprobe.sources import Source
from perfprobe.wire import Missing

MAX_TRIES = 3

Outcomes = Iterator[tuple[Check, Outcome]]


class StopRequested(Exception):  # noqa: N818 - a request, not an error
    """The caller asked to stop."""


class CheckResults:
    """Results of checks, each from the best of several tries."""

    def __init__(
        self, log: FrameLog, cpus: Sequence[int], end: float, stopped: Callable[[], bool]
    ) -> None:
        self.results: list[Result] = []
        self._log, self._cpus, self._end, self._stopped = log, cpus, end, stopped

    def try_checks(self, checks: Sequence[Check], attempt: Callable[[], Outcomes]) -> None:
        best: dict[tuple[Check, int], Outcome] = {}
        for _ in range(MAX_TRIES):
            if self._stopped():
                raise StopRequested
            for check, outcome in attempt():
                # Disturbances make a good counter seem bad, but hardly ever a bad counter good.
                earlier = best.get((check, outcome.cpu), outcome)
                best[check, outcome.cpu] = min(earlier, outcome, key=partial(rank, check))
            judged = {check for check, _ in best}
            verdicts = {judge(check, outcome) for (check, _), outcome in best.items()}
            if (judged >= set(checks) and verdicts <= {"trusted"}) or time.monotonic() > self._end:
                break
        for check in checks:
            tries = [outcome for (tried, _), outcome in best.items() if tried == check]
            if check is cpu_checks.OFFSET_CHECK:
                cpus = self._cpus[1:]  # offsets are relative to the first CPU
            else:  # on hybrids some CPUs lack some counters
                column = self._log.counters.get(check.counter)
                having = None if column is None else column.counter.cpus
                cpus = [cpu for cpu in self._cpus if having is None or cpu in having]
            if cpus:
                self.results.append(conclude(check, tries, cpus, self._origin(check)))

    def add(self, check: Check, outcomes: Outcomes) -> None:
        tries = [outcome for _, outcome in outcomes]
        self.results.append(conclude(check, tries, [], self._origin(check)))

    def _origin(self, check: Check) -> str:
        column = self._log.counters.get(check.counter)
        return column.counter.origin if column else ORIGINS.get(check.counter, "idle transitions")


ORIGINS = {"tsc": "RDTSC"}
"""Origins of values that are checked but are not counters of the stream."""
_ALL_CHECKS = (*chain.from_iterable(cpu_checks.CHECKS_BY_CODE.values()), *cpu_checks.PATTERN_CHECKS)
CHECKED_KEYS = tuple(dict.fromkeys(check.counter for check in _ALL_CHECKS))


# --- the test -------------------------------------------------------------------------------------

SAMPLE_S = 0.02
MAX_RETRY_S = 6.0
"""Time in s after which no check is tried again, so that selftest takes less than ten seconds."""


def run(
    source: Source,
    should_stop: Callable[[], bool] = lambda: False,
    *,
    source_name: str | None = None,
) -> dict[str, Any]:
    """Returns the JSON output of `selftest`. Raises Unavailable if no CPU can be used, and
    StopRequested once `should_stop` returns true. `source_name` is the source that the user asked
    for with `--all`; if given, the output has a verdict on each source and instrument."""
    hello = source.hello
    allowed = os.sched_getaffinity(0)
    cpus = [row.cpu for row in hello.topology if row.online and row.cpu in allowed]
    if not cpus:
        raise Unavailable("selftest may not run on any CPU of this machine")
    begin, started = read_instant(), time.monotonic()
    log = FrameLog(source)
    results = CheckResults(log, cpus, started + MAX_RETRY_S, should_stop)
    if len(cpus) > 1 and hello.tsc_hz is not None:
        offsets = partial(cpu_checks.offset_outcomes, cpus, hello.tsc_hz.hz)
        results.try_checks([cpu_checks.OFFSET_CHECK], offsets)
    for kind, measures in cpu_checks.CHECKS_BY_CODE.items():
        if checks := [check for check in measures if check.counter in log.counters]:
            results.try_checks(checks, partial(_working_outcomes, log, cpus, kind))
    checks = [check for check in cpu_checks.PATTERN_CHECKS if check.counter in log.counters]
    results.try_checks(checks, partial(_resting_outcomes, log, cpus))
    span = instruments.copy_memory(log)
    other_rows = instruments.counter_rows(log, span)
    results.add(cpu_checks.RATE_CHECK, cpu_checks.rate_outcomes(hello, begin, read_instant()))
    missing_by_key: dict[str, Missing] = {}
    for missing in hello.missing:
        if missing.what in (*CHECKED_KEYS, "traced") and missing.what not in log.counters:
            missing_by_key.setdefault(missing.what, missing)
    all_results = results.results + [
        Result(key, "", "not there", why=missing.why, fix=missing.fix, cpus=missing.cpus or ())
        for key, missing in missing_by_key.items()
    ]
    unusable = [result.counter for result in all_results if result.verdict == "unusable"]
    extra_output: dict[str, Any] = {}
    if source_name is not None:
        extra_output = instruments.report(log, span, all_results, source_name)
    contradicted = instruments.wrong_instruments(extra_output.get("instruments", ()))
    return {
        "host": hello.host,
        "boot_id": hello.boot_id,
        "source": hello.source,
        "virtualisation": hello.virtualisation,
        "time": time.time(),
        "elapsed_s": round(time.monotonic() - started, 3),
        "checks": [asdict(result) for result in all_results],
        "unchecked": [
            key for key in log.counters if key not in (*CHECKED_KEYS, "tsc", "stat_iowait_s")
        ],
        "others": other_rows,
        "wrong": [*dict.fromkeys([*unusable, *contradicted])],
        **extra_output,
    }


def _working_outcomes(log: FrameLog, cpus: Sequence[int], kind: int) -> Outcomes:
    log.restart()
    loads = load.run_chains(cpus, kind)
    log.read_until_after(max((run.span.end for run in loads.values()), default=0))
    position = {row.cpu: i for i, row in enumerate(log.hello.topology)}
    for cpu, run in loads.items():
        window = cpu_checks.LoopWindow(log, position[cpu], cpu, run)
        for check, measure in cpu_checks.CHECKS_BY_CODE[kind].items():
            if check.counter in log.counters and (outcome := measure(window)) is not None:
                yield check, outcome


def _resting_outcomes(log: FrameLog, cpus: Sequence[int]) -> Outcomes:
    log.restart()
    times = load.run_patterns(paired_cpus(log.hello.cores, cpus))
    if not times.spans:
        return
    log.read_until_after(max(value[-1].end for value in times.spans.values()))
    yield from cpu_checks.pattern_outcomes(log, times)


def paired_cpus(cores: Sequence[Sequence[int]], cpus: Sequence[int]) -> list[list[int]]:
    """Returns the CPUs by core; CPUs without a sibling are paired with each other."""
    groups = [[cpu for cpu in core if cpu in set(cpus)] for core in cores]
    single_cpus = [group[0] for group in groups if len(group) == 1]
    pairs = [single_cpus[i : i + 2] for i in range(0, len(single_cpus), 2)]
    return [group for group in groups if len(group) > 1] + pairs
