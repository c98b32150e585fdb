"""Checks every counter in use against code whose count is known by its construction.

The source is opened and read as for a stream. Expected values come from the code that ran, from the
scheduler's account of it and from CLOCK_MONOTONIC, never from perftop's own computations. Other
tasks can only add to a count; a hypervisor or a limit on CPU time can only halt a busy CPU. A check
whose error these may explain is tried again.
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
from perfprobe.instruments.selftest import instruments, load, resting, working
from perfprobe.instruments.selftest.tape import FrameLog, now
from perfprobe.instruments.selftest.verdict import Check, Outcome, Result, better, conclude, judge
from perfprobe.sources import Source
from perfprobe.wire import Missing

TRIES = 3

Outcomes = Iterator[tuple[Check, Outcome]]


class Stopped(Exception):  # noqa: N818 - a request, not an error
    """The caller asked to stop."""


class Results:
    """Keeps the best of several tries of each check."""

    def __init__(
        self, tape: FrameLog, cpus: Sequence[int], end: float, stopped: Callable[[], bool]
    ) -> None:
        self.found: list[Result] = []
        self._tape, self._cpus, self._end, self._stopped = tape, cpus, end, stopped

    def of(self, checks: Sequence[Check], attempt: Callable[[], Outcomes]) -> None:
        best: dict[tuple[Check, int], Outcome] = {}
        for _ in range(TRIES):
            if self._stopped():
                raise Stopped
            for check, seen in attempt():
                best[check, seen.cpu] = better(check, best.get((check, seen.cpu)), seen)
            judged = {check for check, _ in best}
            trusted = all(judge(check, seen) == "trusted" for (check, _), seen in best.items())
            if (judged >= set(checks) and trusted) or time.monotonic() > self._end:
                break
        for check in checks:
            tries = [seen for (of, _), seen in best.items() if of == check]
            if cpus := self._having(check):
                self.found.append(conclude(check, tries, cpus, self._origin(check)))

    def once(self, check: Check, attempt: Outcomes) -> None:
        tries = [seen for _, seen in attempt]
        self.found.append(conclude(check, tries, [], self._origin(check)))

    def _having(self, check: Check) -> Sequence[int]:
        """CPUs that have the counter; on hybrids some CPUs lack some counters."""
        if check is working.SAME:
            return self._cpus[1:]  # each is compared with the first
        column = self._tape.columns.get(check.counter)
        if column is None or column.counter.cpus is None:
            return self._cpus
        return [cpu for cpu in self._cpus if cpu in column.counter.cpus]

    def _origin(self, check: Check) -> str:
        column = self._tape.columns.get(check.counter)
        return column.counter.origin if column else ORIGINS.get(check.counter, "idle transitions")


ORIGINS = {"tsc": "RDTSC"}
"""Origins of checks that read no counter of the stream."""
_ALL = (*chain.from_iterable(working.CHECKS_BY_CODE.values()), *resting.CHECKS)
CHECKED = tuple(dict.fromkeys(check.counter for check in _ALL))


# --- the test -------------------------------------------------------------------------------------

SAMPLE_S = 0.02
PATIENCE_S = 6.0
"""Time in s after which no check is tried again, so that selftest takes less than ten seconds."""

Test = tuple[list[Check], Callable[[], Outcomes]]
"""The checks that an attempt serves, and the attempt."""


def run(
    source: Source, stopped: Callable[[], bool] = lambda: False, *, every: str | None = None
) -> dict[str, Any]:
    """Returns the answer of `selftest`. Raises Unavailable if no CPU can be used, and Stopped soon
    after `stopped` returns true. `every`: the source that the user asked for; if given, the answer
    has a verdict on each source and instrument."""
    hello = source.hello
    allowed = os.sched_getaffinity(0)
    cpus = [row.cpu for row in hello.topology if row.online and row.cpu in allowed]
    if not cpus:
        raise Unavailable("selftest may not run on any CPU of this machine")
    begin, started = now(), time.monotonic()
    tape = FrameLog(source)
    results = Results(tape, cpus, started + PATIENCE_S, stopped)
    for checks, attempt in _tests(tape, cpus):
        results.of(checks, attempt)
    span = instruments.second(tape)
    others = instruments.see(tape, span)
    results.once(working.RATE, working.rate(hello, begin, now()))
    lacking: dict[str, Missing] = {}
    for missing in hello.missing:
        if missing.what in (*CHECKED, "traced") and missing.what not in tape.columns:
            lacking.setdefault(missing.what, missing)
    all_results = [
        *results.found,
        *(
            Result(key, "", "not there", why=missing.why, fix=missing.fix, cpus=missing.cpus or ())
            for key, missing in lacking.items()
        ),
    ]
    unusable = [result.counter for result in all_results if result.verdict == "unusable"]
    more = {} if every is None else instruments.answer(tape, span, all_results, others, every)
    return {
        "host": hello.host,
        "boot_id": hello.boot_id,
        "source": hello.source,
        "virtualisation": hello.virtualisation,
        "time": time.time(),
        "elapsed_s": round(time.monotonic() - started, 3),
        "checks": [asdict(result) for result in all_results],
        "unchecked": [key for key in tape.columns if key not in (*CHECKED, "tsc", "stat_iowait_s")],
        "others": others,
        "wrong": [*dict.fromkeys([*unusable, *instruments.wrong(more.get("instruments", ()))])],
        **more,
    }


def _tests(tape: FrameLog, cpus: Sequence[int]) -> Iterator[Test]:
    hz = tape.hello.tsc_hz
    if len(cpus) > 1 and hz is not None:
        yield [working.SAME], lambda: working.same(cpus, hz.hz)
    for kind, looks in working.CHECKS_BY_CODE.items():
        checks = [check for check in looks if check.counter in tape.columns]
        if checks:
            yield checks, partial(_working, tape, cpus, kind)
    checks = [check for check in resting.CHECKS if check.counter in tape.columns]
    yield checks, partial(_resting, tape, cpus)


def _working(tape: FrameLog, cpus: Sequence[int], kind: int) -> Outcomes:
    tape.begin()
    loads = load.chains(cpus, kind)
    tape.past(max((value.run.spell.end for value in loads.values()), default=0))
    yield from working.see(working.CHECKS_BY_CODE[kind], tape, loads)


def _resting(tape: FrameLog, cpus: Sequence[int]) -> Outcomes:
    tape.begin()
    times = load.patterns(paired(tape.hello.cores, cpus))
    if not times.spells:
        return
    tape.past(max(value[-1].end for value in times.spells.values()))
    yield from resting.see(tape, times)


def paired(cores: Sequence[Sequence[int]], cpus: Sequence[int]) -> list[list[int]]:
    """The CPUs by core; CPUs without a sibling are paired with each other."""
    groups = [[cpu for cpu in core if cpu in set(cpus)] for core in cores]
    alone = [group[0] for group in groups if len(group) == 1]
    pairs = [alone[i : i + 2] for i in range(0, len(alone), 2)]
    return [group for group in groups if len(group) > 1] + pairs
