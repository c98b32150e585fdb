"""Simulates a chain of known work on a CPU with given clocks and halts, as a probe measures it
on the way from idle to load. It uses none of perftop's arithmetic."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

TSC_HZ = 2.0e9
STEP_CYCLES = 3
STEPS = 64 * 52  # 5 us at the rate of the TSC
CYCLES = STEPS * STEP_CYCLES
GROWTH, MAX_PIECES = 100, 200
STOPPED_HZ = 1.0
COLUMNS = ("begin", "end", "aside", "longest", "longest_at", "pieces", "phase", "switches",
           "cycles", "longest_cycles")  # fmt: skip

Clock = Sequence[tuple[float, float]]
"""Pairs of end time in s and clock in Hz; the last clock continues."""
Halts = Sequence[tuple[float, float]]
"""Pairs of start time and length, in s."""


def _work(clock: Clock, halts: Halts, load_s: float) -> tuple[Any, Any]:
    """Returns times in s, and the cycles done up to each time."""
    edges = sorted({0.0, 2 * load_s, *(t for t, _ in clock if t < 2 * load_s),
                    *(t for at, long in halts for t in (at, at + long))})  # fmt: skip
    result, total = [0.0], 0.0
    for a, b in itertools.pairwise(edges):
        middle = (a + b) / 2
        hz = next((hz for until, hz in clock if middle < until), clock[-1][1])
        if any(at <= middle < at + long for at, long in halts):
            hz = STOPPED_HZ
        total += hz * (b - a)
        result.append(total)
    return np.array(edges), np.array(result)


def run(
    clock: Clock, halts: Halts = (), load_s: float = 0.5, *, preempted: Sequence[int] = (),
    noise: np.random.Generator | None = None, stamp: int = 0, phases: Sequence[float] = (),
    counter: float | None = None, running: Sequence[int] = (), **around: Any,
) -> dict[str, Any]:  # fmt: skip
    """Returns a run as reported by the probe. `preempted`: indices of the halts in which another
    task is known to run. `phases`: start times in s of the phases after the first. `counter`:
    counted cycles per true cycle; `running`: indices of the halts in which the counter continues,
    because only the chain stops."""
    edges, result = _work(clock, halts, load_s)
    pieces = int(np.interp(load_s, edges, result) / CYCLES) + 1
    ends = np.interp(CYCLES * np.arange(1, pieces + 1), result, edges)
    ends += np.arange(1, pieces + 1) * stamp / TSC_HZ
    if noise is not None:  # adds interrupts of some us, and small delays everywhere
        late = np.where(noise.random(pieces) < 0.003, noise.uniform(1e-6, 4e-6, pieces), 0.0)
        ends += np.cumsum(late + noise.uniform(0, 2e-8, pieces))
    ticks = np.concatenate([[0], np.floor(ends * TSC_HZ).astype(int)]).tolist()
    unhalted = _work(clock, [halt for i, halt in enumerate(halts) if i not in running], load_s)
    cycles = np.interp(np.array(ticks) / TSC_HZ, *unhalted) * (counter or 0)
    chunks: dict[str, list[int]] = {key: [] for key in COLUMNS}
    at, so_far, phase = 0, 0, 0
    while at < pieces:
        if phase < len(phases) and ticks[at] >= phases[phase] * TSC_HZ:
            phase, so_far = phase + 1, 0
        size = min(max(1, so_far // GROWTH), MAX_PIECES, pieces - at)
        chunk_ticks = ticks[at : at + size + 1]
        spans = np.diff(chunk_ticks)
        slowest = int(spans.argmax())
        preemptions = [halts[i][0] for i in preempted]
        switches = sum(chunk_ticks[0] <= t * TSC_HZ < chunk_ticks[-1] for t in preemptions)
        counted = np.diff(np.round(cycles[at : at + size + 1])).astype(int)
        row = (chunk_ticks[0], chunk_ticks[-1], 0, int(spans[slowest]), chunk_ticks[slowest], size,
               phase, switches, int(counted.sum()), int(counted[slowest]))  # fmt: skip
        for key, value in zip(chunks, row, strict=True):
            chunks[key].append(value)
        at, so_far = at + size, so_far + size
    some = chunks | ({} if counter else {"cycles": None, "longest_cycles": None})
    quiet = {"idle_s": 0.499, "steal_s": 0.0, "interrupts": 100, "siblings_idle_s": None,
             "switches": len(preempted)}  # fmt: skip
    return {"steps": STEPS, "idle_s": 0.5, "load_s": load_s, "late_s": 6e-5, "stamp_ticks": stamp,
            "around": quiet | around, "chunks": some}  # fmt: skip


def answer(*runs: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Returns the answer of a probe, with cycles if all runs have them."""
    uncounted = any(run["chunks"]["cycles"] is None for run in runs)
    return {
        "host": "n1", "model": "Xeon", "virtualisation": None, "cpu": 3, "isa": "scalar",
        "siblings": [], "tsc": {"hz": TSC_HZ, "origin": "given", "error": 1e-6, "invariant": True},
        "cycles_why": "no PMU here" if uncounted else None, "cycles_fix": None,
        "step_cycles": STEP_CYCLES, "uarch": "Skylake",
        "phases": [{"isa": "scalar", "seconds": 0.5}], "runs": list(runs),
    } | changes  # fmt: skip
