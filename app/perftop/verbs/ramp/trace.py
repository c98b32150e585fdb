"""Reads one run as the probe measured it: the clock in each chunk, and when the chain stood still.

Pure. A chunk consists of neighbouring pieces of a chain of known length, and has the time of its
slowest piece, which tells one halt in the chunk apart from a low clock.

Where cycles were counted, in all rings, the clock is cycles over the time between the same two
stamps. Interrupts and other tasks do not falsify it, because the CPU runs on. A halt does, because
it has no cycles. So pieces that stood still are left out of it, and of the chain's clock too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from perfprobe.frozen import frozen
from perftop.base.arrays import Bools, Floats, Ints

SMOOTH = 5
"""Chunks in a running median; it is not affected by up to two outliers in a row."""
GAP_S = 5e-6
"""Minimum seconds of a gap. Interrupts are mostly shorter; clock changes halt for 6 us or more."""
LONGEST_HALT_S = 60e-6
"""Maximum length of a short gap; halts for a change of clock or SIMD power take at most 50 us."""


@frozen
class Trace:
    """One phase of a run, as arrays by chunk; moments in seconds since the load began."""

    start_s: Floats
    end_s: Floats
    spent_s: Floats
    """Time in the chain, at work or standing still, without the stamps."""
    work_s: Floats
    """Time that its pieces take at 1 Hz, or at 1 step/s where the cycles of a step are unknown."""
    chain_hz: Floats
    """Clock by the chain; equal to `hz` where no cycles were counted."""
    hz: Floats
    """Clock of each chunk without its slowest piece; a chunk of one piece that stood still has the
    clock of its neighbours."""
    smooth: Floats
    gap_s: Floats
    """How much longer the slowest piece took than the others; `gap_at_s`: when it began."""
    gap_at_s: Floats
    stopped_s: Floats | None
    """Time without cycles in the slowest piece; None if cycles were not counted."""
    switches: Ints


@frozen
class Gap:
    """A time in which the chain stood still."""

    at_s: float
    length_s: float
    kind: str
    """preempted: by another task · short: as long as a change of clock or SIMD power, or as an
    interrupt · long: longer, caused by the hypervisor, the firmware or interrupts"""
    halted: bool | None
    """Whether most of it had no cycles, so that no interrupt caused it; None if not counted."""


def counted(answer: Mapping[str, Any]) -> bool:
    """Whether the clocks are from counted cycles, not from the chain."""
    return answer["cycles_why"] is None


def traces(answer: Mapping[str, Any], run: Mapping[str, Any]) -> list[Trace]:
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
        work_s *= np.median(hz / chain_hz) if len(hz) else 1  # in the cycles that hz counts
    return Trace(
        at["begin"] / tsc_hz, at["end"] / tsc_hz, (spent - stamp * pieces) / tsc_hz, work_s,
        chain_hz, hz, smooth, gap_s, at["longest_at"] / tsc_hz, stopped_s, at["switches"],
    )  # fmt: skip


def running_median(values: Floats) -> Floats:
    """Median of SMOOTH neighbours; at the ends, of fewer, equally many on both sides."""
    found = values.copy()
    for reach in range(1, SMOOTH // 2 + 1):  # wider ones leave the ends as they are
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
