"""Evaluates one run: when the clock rose, how steady it is, what disturbed the run. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from perfprobe.frozen import frozen
from perftop.base.arrays import Floats
from perftop.verbs.ramp.trace import SMOOTH, Gap, Trace, gaps, traces

BAND = 0.02
"""Share of the steady clock by which it may vary. On all but the fastest CPUs a step of 100 MHz is
more."""
HOLD_S = 0.02
"""Seconds that a clock must hold to be steady; later changes are drops. Governors adjust it every
10 ms."""
TAIL = 0.5
"""Share of a phase, at its end, that is its steady part. A clock that settles within it has held
for a shorter time than it took to settle, and is not steady."""
PARTS = 4
"""Number of parts of the steady part; their differences give the error of the clock."""
ASTRAY = 0.2
"""Maximum share of the steady part's work outside the band; with more, the clock is not steady."""
SWITCH_S = 1e-3
"""Seconds after a change of code in which its cost is measured; it is over by then."""
IDLE = 0.9
"""Minimum idle share of the sleep before the load; below it, the CPU did not start from idle."""
LOST = 0.03
"""Maximum share of the load in which the chain may stand still. A guest's timer interrupts alone
take up to 2 %, in short gaps that do no harm."""
SIBLING = 0.1


@frozen
class Level:
    """The steady part of a phase."""

    isa: str
    hz: float
    error_hz: float
    low_hz: float
    high_hz: float
    """90 % of the work was done between `low_hz` and `high_hz`."""
    steady: bool
    chain_hz: float
    """Clock by the chain: a check of `hz` where cycles were counted, else equal to it."""


@frozen
class Climb:
    """The results of one run; a time is None if the clock did not reach that point."""

    t90_s: float | None
    t99_s: float | None
    steady_s: float | None
    first_hz: float
    first_s: float
    """Length of the first chunk; a clock reached within it counts as reached at its end."""
    levels: list[Level]
    gaps: list[Gap]
    drops: int
    """How often the clock left the band after it had been steady."""
    lost: float
    """Share of the time in which the chain stood still."""
    lost_at_switch_s: list[float]
    """Seconds lost at each change of code."""
    disturbed: dict[str, float | None]
    """What disturbed the run, empty if nothing: `idle`, the idle share of the sleep before, if too
    small; `steal_s`, seconds; `lost`, the share of time; `preempted`, a count; `sibling`, its busy
    share of time."""

    @property
    def usable(self) -> bool:
        return self.steady_s is not None

    @property
    def moments(self) -> list[tuple[str, float]]:
        """Names and times of the points that the clock reached."""
        points = (("90 %", self.t90_s), ("99 %", self.t99_s), ("steady", self.steady_s))
        return [(name, at_s) for name, at_s in points if at_s is not None]


def level(part: Trace, isa: str) -> Level | None:
    """The steady part of a phase; None if it has too few chunks."""
    begin = part.start_s[0] + (1 - TAIL) * (part.end_s[-1] - part.start_s[0]) if len(part.hz) else 0
    tail = part.start_s >= begin
    hz, work = part.hz[tail], part.work_s[tail]
    if len(hz) < PARTS * SMOOTH:
        return None
    middle = weighted(hz, work, 0.5)
    medians = [
        weighted(h, w, 0.5)
        for h, w in zip(np.array_split(hz, PARTS), np.array_split(work, PARTS), strict=True)
    ]
    error = max(abs(median - middle) for median in medians)
    astray = np.abs(part.smooth[tail] - middle) > BAND * middle
    steady = work[astray].sum() <= ASTRAY * work.sum()
    low, high = weighted(hz, work, 0.05), weighted(hz, work, 0.95)
    by_chain = weighted(part.chain_hz[tail], work, 0.5)
    return Level(isa, middle, error, low, high, bool(steady), by_chain)


def weighted(values: Floats, weights: Floats, share: float) -> float:
    """The value below which this share of the weight lies."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    at = int(np.searchsorted(reached, share * reached[-1]))
    return float(values[order][min(at, len(values) - 1)])


def reached_s(part: Trace, hz: float) -> float | None:
    """When this clock was reached: the end of the first chunk that has it, or None."""
    there = np.flatnonzero(part.smooth >= hz)
    return float(part.end_s[there[0]]) if len(there) else None


def settled(part: Trace, steady_hz: float) -> tuple[float, int]:
    """When the clock settled in the band, in seconds, and how often it left the band later."""
    astray = np.abs(part.smooth - steady_hz) > BAND * steady_hz
    since, drops, end = 0.0, 0, 0.0
    for i in np.flatnonzero(astray).tolist():
        if drops == 0 and part.start_s[i] - since < HOLD_S:
            since = float(part.end_s[i])
        elif drops == 0 or part.start_s[i] > end:
            drops += 1
        end = float(part.end_s[i])
    return since, drops


def climb(answer: Mapping[str, Any], run: Mapping[str, Any]) -> Climb:
    parts = traces(answer, run)
    levels = [
        level(part, phase["isa"]) for part, phase in zip(parts, answer["phases"], strict=True)
    ]
    known = [each for each in levels if each is not None]
    t90 = t99 = steady = None
    drops = 0
    first = levels[0]
    if first is not None:
        t90, t99 = (reached_s(parts[0], share * first.hz) for share in (0.9, 0.99))
        since, drops = settled(parts[0], first.hz)
        since = max(since, t99 or 0.0)
        steady = since if first.steady and since <= (1 - TAIL) * parts[0].end_s[-1] else None
    lost = _lost(parts)
    return Climb(
        t90, t99, steady, *_first(parts[0]), known, gaps(parts),
        drops, lost, _switches(parts, levels), disturbed(run, lost, answer["siblings"]),
    )  # fmt: skip


def _first(part: Trace) -> tuple[float, float]:
    """Clock and length of the first chunk, in Hz and seconds."""
    return (float(part.hz[0]), float(part.end_s[0])) if len(part.hz) else (0.0, 0.0)


def _lost(parts: Sequence[Trace]) -> float:
    spans = sum(float(part.spent_s.sum()) for part in parts)
    worked = sum(float((part.work_s / part.smooth).sum()) for part in parts)
    return max(0.0, 1 - worked / spans) if spans else 0.0


def _switches(parts: Sequence[Trace], levels: Sequence[Level | None]) -> list[float]:
    """Seconds lost right after each change of code, against running at the new level at once."""
    found = []
    for (_, part), (_, reached) in zip(pairwise(parts), pairwise(levels), strict=True):
        if reached is None:
            return []
        soon = part.end_s <= part.start_s[0] + SWITCH_S
        spent = float(part.spent_s[soon].sum())
        found.append(max(0.0, spent - float(part.work_s[soon].sum()) / reached.hz))
    return found


def disturbed(
    run: Mapping[str, Any], lost: float, siblings: Sequence[int]
) -> dict[str, float | None]:
    """What disturbed the run, as in `Climb.disturbed`; `idle` is None if it is unknown."""
    around = run["around"]
    found: dict[str, float | None] = {}
    idle = around["idle_s"]
    share = None if idle is None else max(0.0, idle / run["idle_s"])
    if share is None or share < IDLE:
        found["idle"] = share
    if around["steal_s"]:
        found["steal_s"] = around["steal_s"]
    if lost > LOST:
        found |= {"lost": lost, "preempted": around["switches"]}
    idle = around["siblings_idle_s"]
    if siblings and idle is not None:
        busy = 1 - idle / (len(siblings) * (run["idle_s"] + run["load_s"]))
        if busy > SIBLING:
            found["sibling"] = busy
    return found
