"""Evaluates the runs of `perftop ramp`: the clock over time, when it rose and became steady,
disturbances, and the joint results of all runs. In a run, the probe executes a chain of dependent
instructions, in pieces of equal length. A chunk is a few adjacent pieces. Its slowest piece shows
whether the CPU was halted, in contrast to a low clock. If cycles were counted (in user and kernel
mode), the clock is their number divided by the time between the same two stamps. Interrupts and
other tasks do not change it, but halts do, because a halted CPU counts no cycles. So halted pieces
are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from perftop.base.arrays import Floats, Ints

SMOOTHING_CHUNKS = 5
"""Number of chunks in a running median, which ignores up to two consecutive outliers."""
MIN_GAP_S = 5e-6
"""Minimum length of a gap in s. Most interrupts are shorter; a change of the clock halts the CPU
for 6 us or more."""
MAX_HALT_S = 60e-6
"""Maximum length of a short gap in s. A change of the clock or of SIMD power halts the CPU for at
most 50 us."""


@dataclass(frozen=True)
class PhaseTrace:
    """One phase of a run, as arrays with an element per chunk. Times are in seconds since the start
    of the load."""

    start_s: Floats
    end_s: Floats
    chain_s: Floats
    """Seconds that the chain took, running or halted, without the time for reading the clock."""
    work_s: Floats
    """Seconds that the pieces would take at 1 Hz, or at 1 step/s if the cycles of a step are
    unknown."""
    chain_hz: Floats
    """Clock computed from the time of the chain; equal to `hz` if no cycles were counted."""
    hz: Floats
    """Clock, without the slowest piece of the chunk; for a chunk of one halted piece, that of its
    neighbours."""
    smooth: Floats
    gap_s: Floats
    """Seconds by which the slowest piece exceeds the others, and its start."""
    gap_at_s: Floats
    stopped_s: Floats | None
    """Seconds for which the core was halted (counted no cycles) during the slowest piece; None if
    cycles were not counted."""
    switches: Ints


@dataclass(frozen=True)
class Gap:
    """A time in which the chain did not run."""

    at_s: float
    length_s: float
    kind: str
    """`preempted`: by another task. `short`: at most MAX_HALT_S, by a change of the clock or SIMD
    power, or an interrupt. `long`: longer, by the hypervisor, the firmware or interrupts."""
    halted: bool | None
    """Whether no cycles were counted in most of the gap, so that no interrupt caused it; None if
    cycles were not counted."""


def phase_traces(answer: Mapping[str, Any], run: Mapping[str, Any]) -> list[PhaseTrace]:
    known_chunks = {key: values for key, values in run["chunks"].items() if values is not None}
    chunks = {key: np.array(values, np.int64) for key, values in known_chunks.items()}
    phases = (chunks["phase"] == phase for phase in range(len(answer["phases"])))
    return [
        _phase_trace(answer, run, {key: values[mask] for key, values in chunks.items()})
        for mask in phases
    ]


def _phase_trace(
    answer: Mapping[str, Any], run: Mapping[str, Any], columns: Mapping[str, Ints]
) -> PhaseTrace:
    tsc_hz, stamp = answer["tsc"]["hz"], run["stamp_ticks"]
    pieces, longest_piece = columns["pieces"], columns["longest"]
    has_pieces = pieces > 1
    spent_ticks = columns["end"] - columns["begin"] - columns["aside"]
    rest_ticks = spent_ticks - np.where(has_pieces, longest_piece, 0)
    chained_ticks = np.maximum(1, rest_ticks - stamp * (pieces - has_pieces))
    piece_s = run["steps"] * (answer["step_cycles"] or 1)
    chain_hz = piece_s * (pieces - has_pieces) / chained_ticks * tsc_hz
    chain = running_median(chain_hz)
    gap_s = (longest_piece - stamp) / tsc_hz - piece_s / chain
    is_gap = ~has_pieces & (gap_s >= MIN_GAP_S)
    chain_hz = np.where(is_gap, chain, chain_hz)
    work_s = piece_s * pieces.astype(float)
    hz, smooth, stopped_s = chain_hz, chain, None
    if answer["cycles_why"] is None:  # cycles were counted
        cycles = columns["cycles"] - np.where(has_pieces, columns["longest_cycles"], 0)
        hz = cycles / np.maximum(1, rest_ticks) * tsc_hz
        smooth = running_median(hz)
        hz = np.where(is_gap, smooth, hz)
        stopped_s = longest_piece / tsc_hz - columns["longest_cycles"] / np.maximum(1, smooth)
        work_s *= np.median(hz / chain_hz) if len(hz) else 1  # in units of the cycles of hz
    return PhaseTrace(
        columns["begin"] / tsc_hz, columns["end"] / tsc_hz, (spent_ticks - stamp * pieces) / tsc_hz,
        work_s, chain_hz, hz, smooth, gap_s, columns["longest_at"] / tsc_hz, stopped_s,
        columns["switches"],
    )  # fmt: skip


def running_median(values: Floats) -> Floats:
    """Returns the running median of SMOOTHING_CHUNKS values. Near the ends, the window is smaller
    but still symmetric."""
    medians = values.copy()
    # values near the ends keep the median of the largest window that fits
    for reach in range(1, SMOOTHING_CHUNKS // 2 + 1):
        if len(values) > 2 * reach:
            windows = sliding_window_view(values, 2 * reach + 1)
            medians[reach:-reach] = np.median(windows, axis=1)
    return medians


# --- one run: the rise of the clock, its steadiness, and disturbances

BAND_SHARE = 0.02
"""Share of the steady clock by which the clock may vary. A step of 100 MHz exceeds it, except on
the fastest CPUs."""
STEADY_SHARE = 0.5
"""Share of a phase, at its end, in which the clock must be steady. A clock that settles only within
it settled for longer than it then stayed, so it does not count as steady."""
STEADY_SECTIONS = 4
"""Number of sections of the steady part, whose differences are the error of the clock."""
MAX_OUTSIDE_SHARE = 0.2
"""Maximum share of the work of the steady part that may be outside the band."""
SWITCH_SPAN_S = 1e-3
"""Seconds after a switch between wide and scalar code in which its cost is measured; the effect is
shorter."""
MIN_IDLE_SHARE = 0.9
"""Minimum idle share of the sleep before the load, for the CPU to count as idle."""
MAX_LOST_SHARE = 0.03
"""Maximum share of the load in which the chain did not run. In a VM, timer interrupts alone take up
to 2 %, in short harmless gaps."""
MAX_SIBLING_BUSY = 0.1


@dataclass(frozen=True)
class Level:
    """The clock in the steady part of a phase."""

    isa: str
    hz: float
    error_hz: float
    low_hz: float
    high_hz: float
    """The clock was between `low_hz` and `high_hz` for 90 % of the work."""
    steady: bool
    chain_hz: float
    """Clock computed from the time of the chain. It verifies `hz` if cycles were counted; otherwise
    both are equal."""


@dataclass(frozen=True)
class Climb:
    """The results of one run. A time is None if the clock did not reach that level."""

    t90_s: float | None
    t99_s: float | None
    steady_s: float | None
    first_hz: float
    first_s: float
    """Seconds of the first chunk. A clock reached within it counts as reached at its end."""
    levels: list[Level]
    gaps: list[Gap]
    bursts_s: list[float]
    """Lengths in s of the times at which the clock left the band after the climb."""
    lost: float
    """Share of the time in which the chain did not run."""
    lost_at_switch_s: list[float]
    """Seconds lost at each change of code."""
    disturbed: dict[str, float | None]
    """Disturbances of the run, by key: `idle`: idle share of the sleep before the load, if too
    small (None: unknown); `steal_s`: stolen seconds; `lost`: lost share of the time; `preempted`:
    number of preemptions; `sibling`: busy share of the sibling."""

    @property
    def is_usable(self) -> bool:
        return self.steady_s is not None

    @property
    def moments(self) -> list[tuple[str, float]]:
        """Names of the levels that the clock reached, each with its time."""
        points = (("90 %", self.t90_s), ("99 %", self.t99_s), ("steady", self.steady_s))
        return [(name, at_s) for name, at_s in points if at_s is not None]


def steady_level(trace: PhaseTrace, isa: str) -> Level | None:
    """Returns the clock in the steady part of a phase; None if it has too few chunks."""
    if not len(trace.hz):
        return None
    begin_s = trace.start_s[0] + (1 - STEADY_SHARE) * (trace.end_s[-1] - trace.start_s[0])
    tail = trace.start_s >= begin_s
    hz, work = trace.hz[tail], trace.work_s[tail]
    if len(hz) < STEADY_SECTIONS * SMOOTHING_CHUNKS:
        return None
    median_hz = weighted_quantile(hz, work, 0.5)
    sections = (np.array_split(values, STEADY_SECTIONS) for values in (hz, work))
    medians = [weighted_quantile(h, w, 0.5) for h, w in zip(*sections, strict=True)]
    error = max(abs(median - median_hz) for median in medians)
    is_outside = np.abs(trace.smooth[tail] - median_hz) > BAND_SHARE * median_hz
    is_steady = work[is_outside].sum() <= MAX_OUTSIDE_SHARE * work.sum()
    low, high = weighted_quantile(hz, work, 0.05), weighted_quantile(hz, work, 0.95)
    by_chain = weighted_quantile(trace.chain_hz[tail], work, 0.5)
    return Level(isa, median_hz, error, low, high, bool(is_steady), by_chain)


def weighted_quantile(values: Floats, weights: Floats, share: float) -> float:
    """Returns the weighted quantile: the value below which this share of the weight is."""
    order = np.argsort(values)
    cumulative = np.cumsum(weights[order])
    index = int(np.searchsorted(cumulative, share * cumulative[-1]))
    return float(values[order][min(index, len(values) - 1)])


def fit_climb(trace: PhaseTrace, steady_hz: float) -> tuple[float, list[float]]:
    """Returns the time in s at which the climb ended, and the length in s of each later burst in
    which the clock left the band. The end is chosen so that the least time is on the wrong side: in
    the band before the end, or outside the band after it. So a burst that is shorter than the
    steady time before it does not belong to the climb."""
    is_outside = np.abs(trace.smooth - steady_hz) > BAND_SHARE * steady_hz
    length_s = trace.end_s - trace.start_s
    wrong_s = np.concatenate([[0.0], np.cumsum(np.where(is_outside, -length_s, length_s))])
    first = int(np.argmin(wrong_s))
    edges = np.flatnonzero(np.diff(is_outside[first:].astype(int), prepend=0, append=0)) + first
    bursts = [
        float(trace.end_s[stop - 1] - trace.start_s[start])
        for start, stop in zip(edges[::2], edges[1::2], strict=True)
    ]
    return float(trace.end_s[first - 1]) if first else 0.0, bursts


def evaluate_run(answer: Mapping[str, Any], run: Mapping[str, Any]) -> Climb:
    phases = phase_traces(answer, run)
    isas = [phase["isa"] for phase in answer["phases"]]
    levels = [steady_level(trace, isa) for trace, isa in zip(phases, isas, strict=True)]
    known_levels = [level for level in levels if level is not None]
    t90 = t99 = steady_s = None
    bursts_s: list[float] = []
    begin, first = phases[0], levels[0]
    if first is not None:
        reached = (np.flatnonzero(begin.smooth >= share * first.hz) for share in (0.9, 0.99))
        t90, t99 = (float(begin.end_s[part[0]]) if len(part) else None for part in reached)
        since_s, bursts_s = fit_climb(begin, first.hz)
        since_s = max(since_s, t99 or 0.0)
        if first.steady and since_s <= (1 - STEADY_SHARE) * begin.end_s[-1]:
            steady_s = since_s
    gaps: list[Gap] = []
    for trace in phases:
        for i in np.flatnonzero(trace.gap_s >= MIN_GAP_S).tolist():
            length = float(trace.gap_s[i])
            kind = "short" if length <= MAX_HALT_S else "long"
            kind = "preempted" if trace.switches[i] else kind
            halted = None if trace.stopped_s is None else bool(trace.stopped_s[i] > length / 2)
            gaps.append(Gap(float(trace.gap_at_s[i]), length, kind, halted))
    lost_at_switch_s = []  # compared with running at the new level at once
    for trace, level in zip(phases[1:], levels[1:], strict=True) if None not in levels[1:] else ():
        assert level is not None
        is_soon = trace.end_s <= trace.start_s[0] + SWITCH_SPAN_S
        chain_s = float(trace.chain_s[is_soon].sum())
        lost_s = chain_s - float(trace.work_s[is_soon].sum()) / level.hz
        lost_at_switch_s.append(max(0.0, lost_s))
    spans = sum(float(trace.chain_s.sum()) for trace in phases)
    worked_s = sum(float((trace.work_s / trace.smooth).sum()) for trace in phases)
    lost_share = max(0.0, 1 - worked_s / spans) if spans else 0.0
    first_hz, first_s = (begin.hz[0], begin.end_s[0]) if len(begin.hz) else (0.0, 0.0)
    return Climb(
        t90, t99, steady_s, float(first_hz), float(first_s), known_levels, gaps, bursts_s,
        lost_share, lost_at_switch_s, find_disturbances(run, lost_share, answer["siblings"]),
    )  # fmt: skip


def find_disturbances(
    run: Mapping[str, Any], lost_share: float, siblings: Sequence[int]
) -> dict[str, float | None]:
    """Returns the disturbances of the run, as in `Climb.disturbed`."""
    surroundings = run["around"]
    disturbances: dict[str, float | None] = {}
    idle_s = surroundings["idle_s"]
    share = None if idle_s is None else max(0.0, idle_s / run["idle_s"])
    if share is None or share < MIN_IDLE_SHARE:
        disturbances["idle"] = share
    if surroundings["steal_s"]:
        disturbances["steal_s"] = surroundings["steal_s"]
    if lost_share > MAX_LOST_SHARE:
        disturbances |= {"lost": lost_share, "preempted": surroundings["switches"]}
    idle_s = surroundings["siblings_idle_s"]
    if siblings and idle_s is not None:
        busy_share = 1 - idle_s / (len(siblings) * (run["idle_s"] + run["load_s"]))
        if busy_share > MAX_SIBLING_BUSY:
            disturbances["sibling"] = busy_share
    return disturbances


# --- all runs of one CPU

MIN_CLEAN_RUNS = 3
"""Minimum number of undisturbed runs. With fewer, disturbed ones count as well, with a note."""
MAX_START_S, MAX_DISTANCE_S, MAX_DISTANCE_SHARE = 5e-3, 20e-6, 0.02
"""A gap recurs if it begins before MAX_START_S in several runs, at times that differ by at most
MAX_DISTANCE_S plus the share MAX_DISTANCE_SHARE of that time. All are in seconds since the start of
the load. Later, too many gaps coincide by chance."""


@dataclass(frozen=True)
class Spread:
    """Median, minimum and maximum over the runs, in seconds."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True)
class Halt:
    """A gap that most runs have at about the same time."""

    at_s: float
    length_s: float
    runs: int


@dataclass(frozen=True)
class Ramp:
    """The joint results of all runs of one CPU."""

    climbs: list[Climb]
    used: list[int]
    """Indices in `climbs` of the runs that count."""
    steady_hz: float | None
    error_hz: float | None
    """The largest of three errors: between runs, within a run, and of the TSC rate."""
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
    """The steady clock computed from the chain; in steps/s if the cycles of a step are unknown."""

    @property
    def confidence(self) -> float:
        """Probability that the next run is no slower than the slowest run that counts: the share of
        runs that count (others are regarded as slower) times the probability that the next run is
        not the slowest."""
        count = len(self.used)
        return count / max(1, len(self.climbs)) * count / (count + 1)

    @property
    def is_clean(self) -> bool:
        return not any(self.climbs[i].disturbed for i in self.used)


def summarise_runs(answer: Mapping[str, Any]) -> Ramp:
    climbs = [evaluate_run(answer, run) for run in answer["runs"]]
    usable_runs = [i for i, climb in enumerate(climbs) if climb.is_usable]
    clean_runs = [i for i in usable_runs if not climbs[i].disturbed]
    used_runs = clean_runs if len(clean_runs) >= MIN_CLEAN_RUNS else usable_runs
    used_climbs = [climbs[i] for i in used_runs]
    steady_levels = [climb.levels[0] for climb in used_climbs]
    hz = error_hz = chain_hz = None
    if steady_levels:
        hz = float(np.median([level.hz for level in steady_levels]))
        error_between = max(abs(level.hz - hz) for level in steady_levels)
        error_within = max(level.error_hz for level in steady_levels)
        error_hz = max(error_between, error_within, (answer["tsc"]["error"] or 0.0) * hz)
        chain_hz = float(np.median([level.chain_hz for level in steady_levels]))
    scalar = [
        level.hz for climb in used_climbs for level in climb.levels[1:] if level.isa == "scalar"
    ]
    lost_s = [climb.lost_at_switch_s for climb in used_climbs if climb.lost_at_switch_s]
    return Ramp(
        climbs=climbs,
        used=used_runs,
        steady_hz=hz,
        error_hz=error_hz,
        first_hz=float(np.median([climb.first_hz for climb in used_climbs or climbs] or [0.0])),
        t90_s=_spread([climb.t90_s for climb in used_climbs]),
        t99_s=_spread([climb.t99_s for climb in used_climbs]),
        steady_s=_spread([climb.steady_s for climb in used_climbs]),
        scalar_hz=float(np.median(scalar)) if scalar else None,
        switch_s=np.median(lost_s, axis=0).tolist() if lost_s else [],
        halts=recurring_gaps(used_climbs),
        chain_hz=chain_hz,
    )


def recurring_gaps(climbs: Sequence[Climb]) -> list[Halt]:
    """Returns the gaps that recur in more than half of the runs, in the order of time."""
    early_gaps = sorted(
        (gap.at_s, gap.length_s, run)
        for run, climb in enumerate(climbs)
        for gap in climb.gaps
        if gap.at_s < MAX_START_S and gap.kind != "preempted" and gap.halted is not False
    )
    halts: list[Halt] = []
    while early_gaps:
        first = early_gaps[0][0]
        last = first + MAX_DISTANCE_S + MAX_DISTANCE_SHARE * first
        near_gaps = [gap for gap in early_gaps if gap[0] <= last]
        runs = len({run for _, _, run in near_gaps})
        if runs > max(1, len(climbs) / 2):
            at_s, length, _ = np.median(near_gaps, axis=0).tolist()
            halts.append(Halt(at_s, length, runs))
            early_gaps = early_gaps[len(near_gaps) :]
        else:
            early_gaps = early_gaps[1:]
    return halts


def _spread(values: Sequence[float | None]) -> Spread | None:
    known_values = [value for value in values if value is not None]
    return (
        Spread(float(np.median(known_values)), min(known_values), max(known_values))
        if known_values
        else None
    )


def median_run(ramp: Ramp) -> int:
    """Returns the index of the run with the median time until the clock is steady; it is the one
    shown."""
    run_numbers = ramp.used or range(len(ramp.climbs))
    order = sorted(run_numbers, key=lambda i: ramp.climbs[i].steady_s or 0.0)
    return order[len(order) // 2]
