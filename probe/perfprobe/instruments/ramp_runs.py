"""Runs from idle to load, measured by the C helper on the CPU that the caller is pinned to. They
count cycles where a counter can be read fast enough."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from perfprobe._native import ffi, lib
from perfprobe.errors import Unavailable
from perfprobe.frozen import frozen
from perfprobe.instruments import disturbance
from perfprobe.kernel import perf_groups, perf_pmus
from perfprobe.kernel.access import Trouble
from perfprobe.kernel.perf_events import CYCLES, HARDWARE, Event, Group, Kernel, Refused, System

ISAS = ("scalar", "avx2", "avx512")
"""In the order of the PP_RAMP_ numbers."""
RUNS = 5
STEP_CYCLES = 3
"""Cycles of a step of the chain on most cores. Pieces have this many steps a time on all cores."""
PIECE_S = 5e-6
"""Length of a piece if the clock runs at the TSC's rate; clocks are 0.3 to 2 times that. The
shortest known halts take 6 us."""
GROW, MOST_S = 100, 1e-3
"""A chunk lasts at most a GROW-th of the time so far, and at most MOST_S."""
DEAREST = 0.05
"""Maximum share of a piece that a stamp with the counter may take. It is subtracted, but not
exactly. RDPMC and its overhead take some 40 ns, ten times that if a hypervisor emulates it."""
OFF = 1e-3
"""Maximum share of the load for which the counter may be off; the clock would be too low by it."""
TAKEN = Trouble("the kernel gave the counter to others while it was needed", "stop the other tool")
MOMENTS = ("begin", "end", "longest_at")
AMOUNTS = ("aside", "longest", "pieces", "phase", "switches", "cycles", "longest_cycles")
UNCOUNTED: dict[str, None] = {"cycles": None, "longest_cycles": None}
_FASTEST = 8
"""Upper bound of clock / TSC rate; it bounds the number of chunks."""


@frozen
class Workload:
    """The sleep and the phases of one run."""

    idle_ns: int
    phases: list[tuple[str, float]]
    """ISA and seconds of each phase, in order."""

    @property
    def load_s(self) -> float:
        return sum(seconds for _, seconds in self.phases)


def measured(
    work: Workload, tsc_hz: float, cpu: int, others: Sequence[int]
) -> tuple[list[dict[str, Any]], Trouble | None]:
    """All runs, and why they have no cycles. Either all runs have them or none, so that their
    clocks are comparable. `others` are the CPU's siblings."""
    parent = os.getppid()
    runs: list[dict[str, Any]] = []
    with _counter(cpu, tsc_hz) as (counter, trouble):
        while len(runs) < RUNS and os.getppid() == parent:  # else nobody waits for the result
            runs.append(_run(work, tsc_hz, cpu, others, counter))
    if counter and any(run["chunks"]["cycles"] is None for run in runs):
        trouble = TAKEN
        for run in runs:
            run["chunks"] |= UNCOUNTED
    return runs, trouble


@contextlib.contextmanager
def _counter(cpu: int, tsc_hz: float) -> Iterator[tuple[int, Trouble | None]]:
    """Yields the address of a group that counts cycles, or 0 and the reason."""
    try:
        group = opened(cpu)
    except Refused as refused:
        yield 0, refused.trouble
        return
    try:
        trouble = _unfit(group.address, tsc_hz)
        yield (0 if trouble else group.address), trouble
    finally:
        group.close()


def _unfit(counter: int, tsc_hz: float) -> Trouble | None:
    """Why the counter cannot be read between pieces; None if it can. One chunk shows it."""
    _, _, result = _load(Workload(0, [("scalar", 0.0)]), tsc_hz, counter)
    if result.uncounted:
        return TAKEN
    spent = result.stamp_ticks / tsc_hz
    if spent > DEAREST * PIECE_S:
        return Trouble(f"RDPMC takes {spent * 1e9:.0f} ns here: too long for pieces of 5 µs")
    return None


def _run(
    work: Workload, tsc_hz: float, cpu: int, others: Sequence[int], counter: int
) -> dict[str, Any]:
    before = disturbance.now(cpu)
    status, chunks, result = _load(work, tsc_hz, counter)
    after = disturbance.now(cpu)
    if status == -errno.EXDEV:
        raise Unavailable(f"--cpu {cpu}: it went off or left the CPU set while it was measured")
    if status not in {0, -errno.ENOSPC}:
        raise Unavailable(f"--cpu {cpu}: {os.strerror(-status)}")
    counted = counter and not result.uncounted and result.off_ns <= OFF * work.load_s * 1e9
    return {
        "steps": _blocks(tsc_hz) * lib.PP_RAMP_BLOCK,
        "idle_s": work.idle_ns / 1e9,
        "load_s": work.load_s,
        "late_s": result.late_ns / 1e9,
        "stamp_ticks": result.stamp_ticks,
        "around": disturbance.moved(cpu, others, before, after),
        "chunks": _columns(chunks, result.chunks) | ({} if counted else UNCOUNTED),
    }


def _load(work: Workload, tsc_hz: float, counter: int) -> tuple[int, Any, Any]:
    """Status, chunks and result of one run."""
    capacity = 4 * GROW * _FASTEST + round(_FASTEST * work.load_s / MOST_S)
    most = round(MOST_S / PIECE_S)
    order = ffi.new("pp_ramp_order *", [work.idle_ns, _blocks(tsc_hz), GROW, most, counter])
    phases = ffi.new(
        "pp_ramp_phase[]",
        [(ISAS.index(isa), max(1, round(seconds * tsc_hz))) for isa, seconds in work.phases],
    )
    chunks: Any = ffi.new("pp_ramp_chunk[]", capacity)
    result: Any = ffi.new("pp_ramp_result *")
    status = lib.pp_ramp_run(order, phases, len(work.phases), chunks, capacity, result)
    return status, chunks, result


def _blocks(tsc_hz: float) -> int:
    """Blocks of steps in a piece."""
    return max(1, round(PIECE_S * tsc_hz / (lib.PP_RAMP_BLOCK * STEP_CYCLES)))


def _columns(chunks: Any, count: int) -> dict[str, list[int] | None]:
    """The chunks as columns. Moments are TSC ticks since the first stamp."""
    start = chunks[0].begin if count else 0
    some = [chunks[i] for i in range(count)]
    return {
        **{key: [getattr(chunk, key) - start for chunk in some] for key in MOMENTS},
        **{key: [getattr(chunk, key) for chunk in some] for key in AMOUNTS},
    }


def opened(cpu: int, kernel: Kernel | None = None, root: Path = Path("/")) -> Group:
    """The CPU's counter of cycles in all rings, running until it is closed. Raises Refused if RDPMC
    cannot read it: read(2) takes a microsecond, and a piece takes only five."""
    pmu = perf_pmus.core_at(root, cpu)
    event = Event("cycles", HARDWARE, pmu.extended | CYCLES)
    settled = perf_groups.settle(kernel or System(), [event], cpu, timed=True, root=root)
    if settled.group is None:
        raise Refused(settled.missing[event.key])
    if not settled.group.direct:
        settled.group.close()
        raise Refused(pmu.indirect())
    return settled.group
