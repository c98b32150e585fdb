"""Checks every counter in use against code whose count follows from how it is built.

The source is opened and read as for a stream. Expected values come from the code that ran, from the
scheduler's account of it and from CLOCK_MONOTONIC, never from perftop's own computations. Other
tasks can only add to a count; a hypervisor or a limit on CPU time can only halt a busy CPU. Errors
that they may explain are tried again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from perfprobe.errors import Unavailable
from perfprobe.frozen import asdict
from perfprobe.instruments.selftest import (
    beyond,
    clocks,
    declared,
    instruments,
    load,
    resting,
    working,
)
from perfprobe.instruments.selftest.declared import Declared
from perfprobe.instruments.selftest.results import Found, Results, not_there, unchecked, wrong
from perfprobe.instruments.selftest.tape import Tape
from perfprobe.instruments.selftest.verdict import Check
from perfprobe.sources import Source

SAMPLE_S = 0.02
PATIENCE_S = 6.0
"""After this nothing is tried again, so that selftest takes less than ten seconds."""

Test = tuple[list[Check], Callable[[], Found]]
"""The checks that an attempt may serve, and the attempt."""


def run(
    source: Source, stopped: Callable[[], bool] = lambda: False, *, every: str | None = None
) -> dict[str, Any]:
    """The answer of `selftest`. Raises Unavailable if no CPU can be used, Stopped soon after
    `stopped` returns true. `every`: with a verdict on each source and instrument; the source that
    was asked for."""
    hello = source.hello
    allowed = os.sched_getaffinity(0)
    cpus = [row.cpu for row in hello.topology if row.online and row.cpu in allowed]
    if not cpus:
        raise Unavailable("selftest may not run on any CPU of this machine")
    begin, started = clocks.now(), time.monotonic()
    tape = Tape(source)
    results = Results(tape, cpus, started + PATIENCE_S, stopped)
    pair = _declared(tape, cpus)
    try:
        for checks, attempt in _tests(tape, cpus, pair):
            results.of(checks, attempt)
    finally:
        if pair is not None:
            pair.close()
    span = beyond.second(tape)
    others = beyond.see(tape, span)
    results.once(clocks.RATE, clocks.rate(hello, begin, clocks.now()))
    found = [*results.found, *not_there(tape)]
    more = {} if every is None else instruments.answer(tape, span, found, others, every)
    return {
        "host": hello.host,
        "boot_id": hello.boot_id,
        "source": hello.source,
        "virtualisation": hello.virtualisation,
        "time": time.time(),
        "elapsed_s": round(time.monotonic() - started, 3),
        "checks": [asdict(result) for result in found],
        "unchecked": unchecked(tape),
        "others": others,
        "wrong": [*dict.fromkeys([*wrong(found), *instruments.wrong(more.get("instruments", ()))])],
        **more,
    }


def _tests(tape: Tape, cpus: Sequence[int], pair: Declared | None) -> Iterator[Test]:
    hz = tape.hello.tsc_hz
    if len(cpus) > 1 and hz is not None:
        yield [clocks.SAME], lambda: clocks.same(cpus, hz.hz)
    for kind, looks in working.LOOKS.items():
        checks = [check for check in looks if check.counter in tape.columns]
        if checks:
            yield checks, partial(_working, tape, cpus, kind)
    checks = [check for check in resting.CHECKS if check.counter in tape.columns]
    more = declared.CHECKS.values() if pair else ()
    yield [*checks, *more], partial(_resting, tape, cpus, pair)


def _working(tape: Tape, cpus: Sequence[int], kind: int) -> Found:
    tape.begin()
    loads = load.chains(cpus, kind)
    tape.past(max((each.run.spell.end for each in loads.values()), default=0))
    yield from working.see(working.LOOKS[kind], tape, loads)


def _resting(tape: Tape, cpus: Sequence[int], pair: Declared | None) -> Found:
    tape.begin()
    if pair is not None:
        pair.begin()
    times = load.patterns(paired(tape.hello.cores, cpus))
    if not times.spells:
        return
    if pair is not None:
        yield from pair.see(times)
    tape.past(max(spells[-1].end for spells in times.spells.values()))
    yield from resting.see(tape, times)


def paired(cores: Sequence[Sequence[int]], cpus: Sequence[int]) -> list[list[int]]:
    """The CPUs by core; CPUs without a sibling are paired with each other."""
    groups = [[cpu for cpu in core if cpu in set(cpus)] for core in cores]
    alone = [group[0] for group in groups if len(group) == 1]
    pairs = [alone[i : i + 2] for i in range(0, len(alone), 2)]
    return [group for group in groups if len(group) > 1] + pairs


def _declared(tape: Tape, cpus: Sequence[int]) -> Declared | None:
    if "both_s" in tape.columns or "busy_s" not in tape.columns or len(cpus) < 2:
        return None
    with suppress(OSError):  # the missing busy_s has given the reason
        return Declared((cpus[0], cpus[1]))
    return None
