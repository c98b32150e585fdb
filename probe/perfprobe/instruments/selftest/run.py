"""Every counter in use against code whose count is known by how it is built.

The source is the one that a stream has, read as a stream reads it. What is expected comes from the
code that ran, from the scheduler's account of it and from CLOCK_MONOTONIC, never from what perftop
computes. Other tasks can only add to a count, a hypervisor or a limit on CPU time only halt a CPU
that should be at work: what they may have done is tried again.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from perfprobe.instruments.selftest import clocks, declared, load, resting, working
from perfprobe.instruments.selftest.declared import Declared
from perfprobe.instruments.selftest.load import Chain
from perfprobe.instruments.selftest.tape import Tape
from perfprobe.instruments.selftest.verdict import (
    RANK,
    Check,
    Result,
    Seen,
    better,
    conclude,
    judge,
)
from perfprobe.native.errors import Unavailable
from perfprobe.sources import Source
from perfprobe.wire import Missing

SAMPLE_S = 0.02
TRIES = 3
PATIENCE_S = 6.0
"""After that nothing is tried again: the whole takes less than ten seconds."""

Found = Iterator[tuple[Check, Seen]]
Test = tuple[list[Check], Callable[[], Found]]
"""What a try of it may see, and the try."""


class Stopped(Exception):  # noqa: N818 - a wish, not an error
    """Somebody wants no more of it."""


def run(source: Source, stopped: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    """The answer of `selftest`. Raises Unavailable where loads cannot be timed, Stopped soon after
    `stopped` says so."""
    hello = source.hello
    allowed = os.sched_getaffinity(0)
    cpus = [row.cpu for row in hello.topology if row.online and row.cpu in allowed]
    if not cpus:
        raise Unavailable("selftest may not run on any CPU of this machine")
    begin, started = clocks.now(), time.monotonic()
    tape = Tape(source)
    results = _Results(tape, cpus, started + PATIENCE_S, stopped)
    pair = _declared(tape, cpus)
    try:
        for checks, attempt in _tests(tape, cpus, pair):
            results.of(checks, attempt)
    finally:
        if pair is not None:
            pair.close()
    results.once(clocks.RATE, clocks.rate(hello, begin, clocks.now()))
    found = [*results.found, *not_there(tape)]
    return {
        "host": hello.host,
        "boot_id": hello.boot_id,
        "source": hello.source,
        "virtualisation": hello.virtualisation,
        "time": time.time(),
        "elapsed_s": round(time.monotonic() - started, 3),
        "checks": [dataclasses.asdict(result) for result in found],
        "unchecked": unchecked(tape),
        "wrong": wrong(found),
    }


def wrong(results: Iterable[Result]) -> list[str]:
    """Counters in use that are."""
    found = [r.counter for r in results if r.verdict == "unusable" and r.in_use]
    return list(dict.fromkeys(found))


def _tests(tape: Tape, cpus: Sequence[int], pair: Declared | None) -> Iterator[Test]:
    hz = tape.hello.tsc_hz
    if len(cpus) > 1 and hz is not None:
        yield [clocks.SAME], lambda: clocks.same(cpus, hz.hz)
    loads: tuple[tuple[dict[Check, working.See], Callable[[Sequence[int]], dict[int, Chain]]], ...]
    loads = (
        (dict(working.FREE), load.free),
        (dict(working.CHAIN), load.chain),
        (dict(working.ENTER), load.calls),
    )
    for looks, start in loads:
        checks = [check for check in looks if check.counter in tape.columns]
        if checks:
            yield checks, _Working(tape, cpus, looks, start)
    checks = [check for check in resting.CHECKS if check.counter in tape.columns]
    yield [*checks, *(declared.CHECKS.values() if pair else ())], _Resting(tape, cpus, pair)


@dataclasses.dataclass(frozen=True, slots=True)
class _Working:
    tape: Tape
    cpus: Sequence[int]
    looks: dict[Check, working.See]
    start: Callable[[Sequence[int]], dict[int, Chain]]

    def __call__(self) -> Found:
        self.tape.forget()
        self.tape.past(clocks.now()[1])
        loads = self.start(self.cpus)
        self.tape.past(max((each.run.spell.end for each in loads.values()), default=0))
        yield from working.see(self.looks, self.tape, loads)


@dataclasses.dataclass(frozen=True, slots=True)
class _Resting:
    tape: Tape
    cpus: Sequence[int]
    pair: Declared | None

    def __call__(self) -> Found:
        self.tape.forget()
        self.tape.past(clocks.now()[1])
        if self.pair is not None:
            self.pair.begin()
        times = load.patterns(paired(self.tape.hello.cores, self.cpus))
        if not times.spells:
            return
        if self.pair is not None:
            yield from self.pair.see(times)
        self.tape.past(max(spells[-1].end for spells in times.spells.values()))
        yield from resting.see(self.tape, times)


def paired(cores: Sequence[Sequence[int]], cpus: Sequence[int]) -> list[list[int]]:
    """The CPUs by core; those that are alone, two by two."""
    groups = [[cpu for cpu in core if cpu in set(cpus)] for core in cores]
    alone = [group[0] for group in groups if len(group) == 1]
    pairs = [alone[i : i + 2] for i in range(0, len(alone), 2)]
    return [group for group in groups if len(group) > 1] + pairs


def _declared(tape: Tape, cpus: Sequence[int]) -> Declared | None:
    if "both_s" in tape.columns or "busy_s" not in tape.columns or len(cpus) < 2:
        return None
    with suppress(OSError):  # busy_s has said why
        return Declared((cpus[0], cpus[1]))
    return None


class _Results:
    """The best of some tries of each check."""

    def __init__(
        self, tape: Tape, cpus: Sequence[int], end: float, stopped: Callable[[], bool]
    ) -> None:
        self.found: list[Result] = []
        self._tape, self._cpus, self._end, self._stopped = tape, cpus, end, stopped

    def of(self, checks: Sequence[Check], attempt: Callable[[], Found]) -> None:
        best: dict[tuple[Check, int], Seen] = {}
        for _ in range(TRIES):
            if self._stopped():
                raise Stopped
            for check, seen in attempt():
                best[check, seen.cpu] = better(check, best.get((check, seen.cpu)), seen)
            if self._settled(checks, best) or time.monotonic() > self._end:
                break
        for check in checks:
            tries = [seen for (of, _), seen in best.items() if of == check]
            if cpus := self._having(check):
                self.found.append(conclude(check, tries, cpus, self._origin(check)))

    def once(self, check: Check, attempt: Found) -> None:
        tries = [seen for _, seen in attempt]
        self.found.append(conclude(check, tries, [], self._origin(check)))

    @staticmethod
    def _settled(checks: Sequence[Check], best: dict[tuple[Check, int], Seen]) -> bool:
        seen = {check for check, _ in best}
        return seen >= set(checks) and all(
            RANK[judge(check, found)] == 0 for (check, _), found in best.items()
        )

    def _having(self, check: Check) -> Sequence[int]:
        """CPUs that could say something: on hybrids not all have all counters."""
        if check is clocks.SAME:
            return self._cpus[1:]  # against the first
        column = self._tape.columns.get(check.counter)
        if column is None or column.counter.cpus is None:
            return self._cpus
        return [cpu for cpu in self._cpus if cpu in column.counter.cpus]

    def _origin(self, check: Check) -> str:
        column = self._tape.columns.get(check.counter)
        return column.counter.origin if column else ORIGINS.get(check.counter, "idle transitions")


ORIGINS = {"tsc": "RDTSC"}
"""Of what is read beside the stream's counters."""
_ALL = (*working.FREE, *working.CHAIN, *working.ENTER, *resting.CHECKS)
CHECKED = tuple(dict.fromkeys(check.counter for check in _ALL))


def not_there(tape: Tape) -> list[Result]:
    """What would be tested if it could be read here."""
    lacking: dict[str, Missing] = {}
    for missing in tape.hello.missing:
        if missing.what in (*CHECKED, "traced") and missing.what not in tape.columns:
            lacking.setdefault(missing.what, missing)
    return [
        Result(key, "", "not there", why=missing.why, fix=missing.fix, cpus=missing.cpus or ())
        for key, missing in lacking.items()
    ]


def unchecked(tape: Tape) -> list[str]:
    """Counters that no code moves by a known amount."""
    return [key for key in tape.columns if key not in (*CHECKED, "tsc", "stat_iowait_s")]
