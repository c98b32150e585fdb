"""What the probe measured in one run: the clock in each of its chunks, and where it stood still.

Pure. The chunks are neighbouring pieces of a chain of known length; each has the time of its
slowest piece, so that one halt in it is told apart from a low clock.

Where cycles were counted, in all rings, the clock is theirs: cycles over the time between the same
two stamps. Interrupts and other tasks leave it right, for the CPU runs on. A halt does not: in its
time there are no cycles. So pieces that stood still are left out of it as of the chain's clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from perftop.base.arrays import Bools, Floats, Ints

SMOOTH = 5
"""Chunks in a running median: two that are off in a row leave no trace."""
GAP_S = 5e-6
"""Shorter standstills are what interrupts take; halts for a change of clock take 6 us and more."""
LONGEST_HALT_S = 60e-6
"""Halts for a change of clock or of SIMD power take at most 50 us."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One phase of a run, a chunk each; times in seconds since the load began."""

    start_s: Floats
    end_s: Floats
    spent_s: Floats
    """In the chain, at work or standing still: without stamps."""
    work_s: Floats
    """What its pieces take at 1 Hz, or 1 step/s where the cycles of a step are not known."""
    chain_hz: Floats
    """By the chain, also where cycles were counted; else `hz` is the same."""
    hz: Floats
    """Without each chunk's slowest piece, where it has others, and its neighbours' where it has not
    but stood still."""
    smooth: Floats
    gap_s: Floats
    """By how much the slowest piece was longer than the others, and when it began."""
    gap_at_s: Floats
    stopped_s: Floats | None
    """Of the slowest piece: without cycles. None: they were not counted."""
    switches: Ints


@dataclass(frozen=True, slots=True)
class Gap:
    """The chain stood still."""

    at_s: float
    length_s: float
    kind: str
    """preempted: by another task · short: as long as a change of clock or of SIMD power, or as an
    interrupt · long: longer than that, which is the hypervisor's, the firmware's or interrupts'"""
    halted: bool | None
    """For most of it there were no cycles: it is no interrupt's. None: they were not counted."""


def counted(answer: Mapping[str, Any]) -> bool:
    """The clocks are of counted cycles, not of the chain."""
    return answer["cycles_why"] is None


def traces(answer: Mapping[str, Any], run: Mapping[str, Any]) -> list[Trace]:
    """By phase."""
    chunks = {
        key: np.array(values, np.int64)
        for key, values in run["chunks"].items()
        if values is not None
    }
    count = len(answer["phases"])
    return [_trace(answer, run, chunks, chunks["phase"] == phase) for phase in range(count)]


def _trace(
    answer: Mapping[str, Any], run: Mapping[str, Any], chunks: Mapping[str, Ints], mine: Bools
) -> Trace:
    tsc_hz, stamp = answer["tsc"]["hz"], run["stamp_ticks"]
    at = {key: values[mine] for key, values in chunks.items()}
    pieces, longest = at["pieces"], at["longest"]
    several = pieces > 1
    spent = at["end"] - at["begin"] - at["aside"]
    others = spent - np.where(several, longest, 0)
    chained = np.maximum(1, others - stamp * (pieces - several))
    piece_s = run["steps"] * (answer["step_cycles"] or 1)
    chain_hz = piece_s * (pieces - several) / chained * tsc_hz
    chain = running_median(chain_hz)
    gap_s = (longest - stamp) / tsc_hz - piece_s / chain
    alone = ~several & (gap_s >= GAP_S)
    chain_hz = np.where(alone, chain, chain_hz)
    work_s = piece_s * pieces.astype(float)
    hz, smooth, stopped_s = chain_hz, chain, None
    if counted(answer):
        cycles = at["cycles"] - np.where(several, at["longest_cycles"], 0)
        hz = cycles / np.maximum(1, others) * tsc_hz
        smooth = running_median(hz)
        hz = np.where(alone, smooth, hz)
        stopped_s = longest / tsc_hz - at["longest_cycles"] / np.maximum(1, smooth)
        work_s *= np.median(hz / chain_hz) if len(hz) else 1  # in the same cycles as hz
    return Trace(
        at["begin"] / tsc_hz, at["end"] / tsc_hz, (spent - stamp * pieces) / tsc_hz, work_s,
        chain_hz, hz, smooth, gap_s, at["longest_at"] / tsc_hz, stopped_s, at["switches"],
    )  # fmt: skip


def running_median(values: Floats) -> Floats:
    """Of SMOOTH neighbours; of fewer at the ends, where it leans to no side."""
    found = values.copy()
    for reach in range(1, SMOOTH // 2 + 1):  # a wider one leaves the ends to the one before
        if len(values) > 2 * reach:
            around = sliding_window_view(values, 2 * reach + 1)
            found[reach:-reach] = np.median(around, axis=1)
    return found


def gaps(parts: Sequence[Trace]) -> list[Gap]:
    found = []
    for part in parts:
        for i in np.flatnonzero(part.gap_s >= GAP_S).tolist():
            length = float(part.gap_s[i])
            kind = "short" if length <= LONGEST_HALT_S else "long"
            kind = "preempted" if part.switches[i] else kind
            halted = None if part.stopped_s is None else bool(part.stopped_s[i] > length / 2)
            found.append(Gap(float(part.gap_at_s[i]), length, kind, halted))
    return found
