"""Loads of known counts, run on all CPUs at once, and how much others disturbed them."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from functools import partial

from perfprobe.frozen import frozen
from perfprobe.instruments import disturbance
from perfprobe.instruments.selftest import known_code
from perfprobe.instruments.selftest.known_code import Run, Spell
from perfprobe.sources.os import procstat
from perfprobe.sources.os.procstat import TICK_S

MARK_NS = 500_000
MARKS = 260
"""Marks of a run: 130 ms, so that at least five samples lie within it."""
TRIAL_MARKS = 16
TRIAL_TURNS = {
    known_code.FREE: 500,
    known_code.ADD: 300,
    known_code.IMUL: 100,
    known_code.ENTER: 20,
}
"""Turns a mark for about 10 µs; the shortest of such marks was not interrupted."""
WHOLE = 0.08
"""Maximum distance of a measured latency from a whole number of cycles."""

PERIOD_NS, TIMES = 100_000_000, 9
ON_NS = (40_000_000, 50_000_000)
SHIFT_NS = (0, 20_000_000)
"""Delays of the first and the second CPU of a core; they differ so that mixing them up shows."""
BUSY = tuple(set(range(len(procstat.FIELDS))) - set(procstat.ASLEEP))
QUIET = 0.2
"""Maximum share of the time that others may keep a CPU busy. If they were as busy as the pattern, a
counter that shows half of the truth would look right."""
LEAD_NS = 60_000_000
"""Time before the first work, long enough for a sample."""


@frozen
class Chain:
    """A run of dependent instructions, and the cycles that each takes (None: unknown)."""

    run: Run
    cycles: int | None


@frozen
class Times:
    """The patterns by CPU, and seconds for which others kept the CPU busy."""

    spells: dict[int, list[Spell]]
    others_s: dict[int, float]

    def telling(self, cpus: Sequence[int], whole_s: float) -> bool:
        return all(self.others_s[cpu] <= QUIET * whole_s for cpu in cpus)

    def doubt_s(self, cpus: Sequence[int]) -> float:
        return sum(self.others_s[cpu] + self.lost_s(cpu) for cpu in cpus)

    def lost_s(self, cpu: int) -> float:
        """Seconds of the work in which the thread did not run: others ran, or a hypervisor or a
        limit on CPU time stopped it."""
        return sum(s.lost * (s.end_ns - s.begin_ns) for s in self.spells[cpu]) / 1e9


def chains(cpus: Sequence[int], kind: int) -> dict[int, Chain]:
    """Runs code of this kind on all CPUs at once, without those where it was moved."""
    done = known_code.at_once({cpu: partial(_chain, kind) for cpu in cpus})
    return {cpu: found for cpu, found in done.items() if found.run.spell.cpu == cpu}


def _chain(kind: int) -> Chain:
    """IMUL's latency is measured in units of ADD, which takes one cycle on every x86-64."""
    unit, product = (
        min(_turn_ticks(each) for _ in range(3)) / known_code.chain(each)
        for each in (known_code.ADD, known_code.IMUL)
    )
    ratio = product / unit
    spell = known_code.run(kind, TRIAL_TURNS[kind], TRIAL_MARKS).spell
    turn_ns = max(1.0, spell.own_ns / (TRIAL_TURNS[kind] * TRIAL_MARKS))
    run = known_code.run(kind, max(1, round(MARK_NS / turn_ns)), MARKS)
    whole = round(ratio)
    return Chain(run, whole if abs(ratio - whole) <= WHOLE else None)


def _turn_ticks(kind: int) -> float:
    turns = TRIAL_TURNS[kind]
    marks = known_code.run(kind, turns, TRIAL_MARKS).marks
    return min(b - a for a, b in itertools.pairwise(marks)) / turns


def patterns(cores: Sequence[Sequence[int]]) -> Times:
    """Runs patterns on all CPUs at once; the first and the second CPU of a core have different
    ones."""
    places = {cpu: lp % 2 for core in cores for lp, cpu in enumerate(core)}
    begin = time.monotonic_ns() + LEAD_NS
    work = {
        cpu: partial(known_code.pattern, begin + SHIFT_NS[lp], PERIOD_NS, ON_NS[lp], TIMES)
        for cpu, lp in places.items()
    }
    before = disturbance.ticks()
    spells = known_code.at_once(work)
    after = disturbance.ticks()
    busy = {cpu: disturbance.spent_s(before, after, cpu, BUSY) for cpu in spells}
    others = {cpu: _others(busy[cpu], own) for cpu, own in spells.items()}
    return Times(spells, others)


def _others(busy_s: float | None, own: Sequence[Spell]) -> float:
    """Seconds that others may have run on the CPU. /proc/stat samples at ticks, so two standard
    deviations and two ticks are added."""
    if busy_s is None:
        return math.inf
    ours = sum(spell.own_ns for spell in own) / 1e9
    ticks = max(0.0, busy_s - ours) / TICK_S
    return (ticks + 2 + 2 * math.sqrt(ticks)) * TICK_S
