"""Joins the results of all runs of one CPU. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from perfprobe.frozen import frozen
from perftop.verbs.ramp.climb import Climb, climb

FEWEST = 3
"""Minimum number of undisturbed runs; with fewer, disturbed ones are used too, with a note."""
SOON_S, NEAR_S, NEAR = 5e-3, 20e-6, 0.02
"""Gaps of several runs belong to the ramp if they begin before SOON_S and lie within NEAR_S plus
NEAR (a share of the time so far) of each other. Later, too many gaps coincide by chance."""


@frozen
class Spread:
    """Median, minimum and maximum of a time over the runs, in seconds."""

    middle: float
    low: float
    high: float


@frozen
class Halt:
    """A gap that most runs have at the same place."""

    at_s: float
    length_s: float
    runs: int


@frozen
class Ramp:
    """The joint results of all runs of one CPU."""

    climbs: list[Climb]
    used: list[int]
    """Indices in `climbs` of the runs that count."""
    steady_hz: float | None
    error_hz: float | None
    first_hz: float
    t90_s: Spread | None
    t99_s: Spread | None
    steady_s: Spread | None
    scalar_hz: float | None
    """Clock of scalar code after wide code; None if only scalar code ran."""
    switch_s: list[float]
    """Seconds lost at each change of code."""
    halts: list[Halt]
    chain_hz: float | None
    """The steady clock by the chain; in steps/s if the cycles of a step are unknown."""

    @property
    def clean(self) -> bool:
        return not any(self.climbs[i].disturbed for i in self.used)


def together(answer: Mapping[str, Any]) -> Ramp:
    climbs = [climb(answer, run) for run in answer["runs"]]
    usable = [i for i, each in enumerate(climbs) if each.usable]
    clean = [i for i in usable if not climbs[i].disturbed]
    used = clean if len(clean) >= FEWEST else usable
    mine = [climbs[i] for i in used]
    hz, error_hz = _steady(mine, answer["tsc"]["error"] or 0.0)
    scalar = [it.hz for each in mine for it in each.levels[1:] if it.isa == "scalar"]
    lost = [each.lost_at_switch_s for each in mine if each.lost_at_switch_s]
    return Ramp(
        climbs=climbs,
        used=used,
        steady_hz=hz,
        error_hz=error_hz,
        first_hz=float(np.median([each.first_hz for each in mine or climbs])) if climbs else 0.0,
        t90_s=_spread([each.t90_s for each in mine]),
        t99_s=_spread([each.t99_s for each in mine]),
        steady_s=_spread([each.steady_s for each in mine]),
        scalar_hz=float(np.median(scalar)) if scalar else None,
        switch_s=np.median(lost, axis=0).tolist() if lost else [],
        halts=recurring(mine),
        chain_hz=float(np.median([it.levels[0].chain_hz for it in mine])) if mine else None,
    )


def _steady(climbs: Sequence[Climb], tsc_error: float) -> tuple[float | None, float | None]:
    """The steady clock and its error in Hz: the largest of the differences between runs, those
    within a run, and the error of the TSC rate."""
    levels = [each.levels[0] for each in climbs]
    if not levels:
        return None, None
    middle = float(np.median([level.hz for level in levels]))
    between = max(abs(level.hz - middle) for level in levels)
    within = float(np.median([level.error_hz for level in levels]))
    return middle, max(between, within, tsc_error * middle)


def recurring(climbs: Sequence[Climb]) -> list[Halt]:
    """Early gaps that more than half of the runs have, in the order of time."""
    early = sorted(
        (gap.at_s, gap.length_s, run)
        for run, each in enumerate(climbs)
        for gap in each.gaps
        if gap.at_s < SOON_S and gap.kind != "preempted" and gap.halted is not False
    )
    found: list[Halt] = []
    while early:
        first = early[0][0]
        near = [gap for gap in early if gap[0] <= first + NEAR_S + NEAR * first]
        runs = len({run for _, _, run in near})
        if runs > max(1, len(climbs) / 2):
            at, length, _ = np.median(near, axis=0).tolist()
            found.append(Halt(at, length, runs))
            early = early[len(near) :]
        else:
            early = early[1:]
    return found


def _spread(values: Sequence[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return Spread(float(np.median(known)), min(known), max(known)) if known else None


def middle(found: Ramp) -> int:
    """Index of the run to show: the middle one of those that count, by the time to be steady."""
    among = found.used or range(len(found.climbs))
    order = sorted(among, key=lambda i: found.climbs[i].steady_s or 0.0)
    return order[len(order) // 2]
