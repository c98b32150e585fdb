"""Measures how the clock of a CPU rises from idle until it is steady: raw points of a few runs on
one CPU, which perftop interprets.

Each run sleeps, which lets the CPU go idle, and then works without a pause. SIMD code runs in three
phases (SIMD, scalar, SIMD), so that one run shows both clocks and both changes. Cycles are counted
where a counter can be read fast enough.

The work is a chain of multiplications, each of which is a step. A piece is the work between two
time stamps, about 5 us; a chunk is a few consecutive pieces, reported as one point.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from perfprobe._native import ffi, lib
from perfprobe.cpu import cpuid, identity, model, topology
from perfprobe.errors import Unavailable, UsageError
from perfprobe.instruments import disturbance
from perfprobe.kernel.access import Problem
from perfprobe.native import affinity, tsc_rate
from perfprobe.perf import perf_pmus
from perfprobe.perf.perf_events import CYCLES, Kernel, RefusedError

ISAS = ("scalar", "avx2", "avx512")
"""Kinds of code that the work may consist of, in the order of the PP_RAMP_ numbers."""
RUNS = 5
STEP_CYCLES = 3
"""Cycles of a multiplication on most cores, from which the length of a piece is computed."""
PIECE_S = 5e-6
"""Length of a piece in s at the TSC's rate; real clocks are 0.3 to 2 times as fast. The shortest
known halt for a change of the clock takes 6 us."""
GROWTH, MAX_PIECES_S = 100, 1e-3
"""Upper bounds of a chunk's length: the time so far divided by GROWTH, and MAX_PIECES_S in s."""
MAX_STAMP_SHARE = 0.05
"""Maximum share of a piece's time for a stamp and a read of the cycle counter, because it is
subtracted only roughly. RDPMC takes about 40 ns, ten times as long if a hypervisor emulates it."""
MAX_UNCOUNTED_SHARE = 1e-3
"""Maximum share of a run for which the kernel may have switched the cycle counter off; the measured
clock would be too low by that share."""
COUNTER_TAKEN = Problem(
    "the kernel gave the counter to other programs while it was needed", "stop the other tool"
)
STAMP_KEYS = ("begin", "end", "longest_at")
"""Keys of a chunk's TSC stamps, in ticks since the first stamp. COUNT_KEYS are its other values."""
COUNT_KEYS = ("aside", "longest", "pieces", "phase", "switches", "cycles", "longest_cycles")
UNCOUNTED: dict[str, None] = {"cycles": None, "longest_cycles": None}
_MAX_CLOCK_RATIO = 8
"""Upper bound of the clock, as a multiple of the TSC's rate; it bounds the number of chunks."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One run: a sleep, then phases of work."""

    idle_ns: int
    phases: list[tuple[str, float]]
    """ISA and length in s of each phase, in order."""

    @property
    def load_s(self) -> float:
        return sum(seconds for _, seconds in self.phases)


def measure_runs(
    work: Workload, tsc_hz: float, cpu: int, siblings: Sequence[int]
) -> tuple[list[dict[str, Any]], Problem | None]:
    """Returns the results of all runs, and the reason if cycles were not counted. Either all runs
    have cycles or none, so that they are comparable. `siblings` are the core's other CPUs."""
    parent = os.getppid()
    runs: list[dict[str, Any]] = []
    with _counter(cpu, tsc_hz) as (counter, problem):
        while len(runs) < RUNS and os.getppid() == parent:  # the command must end with its parent
            runs.append(_measure_run(work, tsc_hz, cpu, siblings, counter))
    if counter and any(run["chunks"]["cycles"] is None for run in runs):
        problem = COUNTER_TAKEN
        for run in runs:
            run["chunks"] |= UNCOUNTED
    return runs, problem


@contextlib.contextmanager
def _counter(cpu: int, tsc_hz: float) -> Iterator[tuple[int, Problem | None]]:
    """Yields the address of a perf group that counts cycles, or 0 and the reason why there is none.
    The group must be readable by RDPMC: read(2) takes 1 us, and a piece only 5 us."""
    try:
        group = perf_pmus.open_core_event(Kernel(), cpu, CYCLES, by_rdpmc=True, with_trial=True)
    except RefusedError as refused:
        yield 0, refused.problem
        return
    try:
        # A short run shows whether the counter can be read between pieces.
        _, _, result = _run_load(Workload(0, [("scalar", 0.0)]), tsc_hz, group.address)
        elapsed_s, problem = result.stamp_ticks / tsc_hz, None
        if result.uncounted:
            problem = COUNTER_TAKEN
        elif elapsed_s > MAX_STAMP_SHARE * PIECE_S:
            reason = f"RDPMC takes {elapsed_s * 1e9:.0f} ns here: too long for pieces of 5 µs"
            problem = Problem(reason)
        yield (0 if problem else group.address), problem
    finally:
        group.close()


def _measure_run(
    work: Workload, tsc_hz: float, cpu: int, siblings: Sequence[int], counter: int
) -> dict[str, Any]:
    counts_before = disturbance.read_counts(cpu)
    status, chunks, result = _run_load(work, tsc_hz, counter)
    counts_after = disturbance.read_counts(cpu)
    if status == -errno.EXDEV:
        raise Unavailable(
            f"--cpu {cpu}: it went offline or left the CPU set during the measurement"
        )
    if status not in {0, -errno.ENOSPC}:
        raise Unavailable(f"--cpu {cpu}: {os.strerror(-status)}")
    counted = (
        counter
        and not result.uncounted
        and result.uncounted_ns <= MAX_UNCOUNTED_SHARE * work.load_s * 1e9
    )
    used_chunks = [chunks[i] for i in range(result.chunks)]
    start = used_chunks[0].begin
    columns: dict[str, list[int] | None] = {
        **{key: [getattr(chunk, key) - start for chunk in used_chunks] for key in STAMP_KEYS},
        **{key: [getattr(chunk, key) for chunk in used_chunks] for key in COUNT_KEYS},
    }
    return {
        "steps": _block_count(tsc_hz) * lib.PP_RAMP_BLOCK,
        "idle_s": work.idle_ns / 1e9,
        "load_s": work.load_s,
        "late_s": result.late_ns / 1e9,
        "stamp_ticks": result.stamp_ticks,
        "around": disturbance.changes_during(cpu, siblings, counts_before, counts_after),
        "chunks": columns | ({} if counted else UNCOUNTED),
    }


def _run_load(work: Workload, tsc_hz: float, counter: int) -> tuple[int, Any, Any]:
    """Runs the workload once. Returns the status of pp_ramp_run, the chunks and the pp_ramp_result;
    `counter` is the address of the perf group, or 0."""
    capacity = 4 * GROWTH * _MAX_CLOCK_RATIO + round(_MAX_CLOCK_RATIO * work.load_s / MAX_PIECES_S)
    pieces = round(MAX_PIECES_S / PIECE_S)
    order = ffi.new(
        "pp_ramp_request *", [work.idle_ns, _block_count(tsc_hz), GROWTH, pieces, counter]
    )
    phases = ffi.new(
        "pp_ramp_phase[]",
        [(ISAS.index(isa), max(1, round(seconds * tsc_hz))) for isa, seconds in work.phases],
    )
    chunks: Any = ffi.new("pp_ramp_chunk[]", capacity)
    result: Any = ffi.new("pp_ramp_result *")
    status = lib.pp_ramp_run(order, phases, len(work.phases), chunks, capacity, result)
    return status, chunks, result


def _block_count(tsc_hz: float) -> int:
    """Returns the number of blocks (PP_RAMP_BLOCK steps each) in a piece of PIECE_S."""
    return max(1, round(PIECE_S * tsc_hz / (lib.PP_RAMP_BLOCK * STEP_CYCLES)))


# --- JSON output ----------------------------------------------------------------------------------

NEEDED_FEATURES = {"avx2": "AVX2 and FMA", "avx512": "AVX-512F and FMA"}
MIN_S, MAX_S = 1.0, 60.0
MAX_IDLE_S = 0.5
"""Maximum sleep in s before a run: enough for the deepest idle state and for governors."""

_THREE_CYCLE_MODELS = (
    "Nehalem", "Westmere", "Sandy Bridge", "Ivy Bridge", "Haswell", "Broadwell", "Skylake",
    "Kaby Lake", "Comet Lake", "Cascade Lake", "Cooper Lake", "Cannon Lake", "Ice Lake",
    "Tiger Lake", "Rocket Lake", "Sapphire Rapids", "Emerald Rapids", "Granite Rapids", "Zen",
)  # fmt: skip
_THREE_CYCLE_MODELS_P = ("Alder Lake", "Raptor Lake", "Bartlett Lake", "Meteor Lake", "Arrow Lake")
"""Models whose P cores need STEP_CYCLES for a 64-bit multiplication. Their E cores need more
cycles, and differ from each other."""


def measure(requested_cpu: int | None, isa: str, seconds: float) -> dict[str, Any]:
    """Returns the JSON output of `ramp`, after measuring for `seconds`. Raises ValueError for
    invalid arguments, and Unavailable if this machine cannot do what they ask for."""
    if isa not in ISAS:
        raise UsageError(f"unknown ISA {isa!r}; known: {', '.join(ISAS)}")
    if not MIN_S <= seconds <= MAX_S:
        raise UsageError(f"--seconds {seconds:g}: must be from {MIN_S:g} to {MAX_S:g}")
    rows = topology.require_cpus()
    row = affinity.require_cpu(requested_cpu, rows, os.sched_getaffinity(0))
    cpu, siblings, work = row.cpu, affinity.siblings(row, rows), workload(isa, seconds)
    # Python's own handler of Ctrl-C would run only after the C function has returned
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        with affinity.pinned_to(cpu):
            if not lib.pp_ramp_isas() >> ISAS.index(isa) & 1:
                text = "this CPU or its system does not have it"
                need = f"--isa {isa} needs {NEEDED_FEATURES[isa]}"
                raise Unavailable(f"{need}: {text}; try --isa scalar")
            cpu_identity, leaves = identity.read_identity(), affinity.cpuid_leaves(cpu)
            uarch = model.select_uarch(cpu_identity, leaves, row.type)
            tsc = tsc_rate.calibrate()
            runs, problem = measure_runs(work, tsc.hz, cpu, siblings)
    except OSError as error:
        raise Unavailable(f"--cpu {cpu}: cannot run there: {error.strerror}") from error
    return {
        "host": identity.hostname(),
        "model": cpu_identity.name or None,
        "virtualisation": identity.virtualisation(),
        "cpu": cpu,
        "isa": isa,
        "siblings": siblings,
        "tsc": asdict(tsc) | {"invariant": cpuid.has_feature(leaves, "invariant-tsc")},
        "cycles_why": problem and problem.why,
        "cycles_fix": problem and problem.fix,
        "step_cycles": step_cycles(uarch.name, uarch.core_type),
        "uarch": uarch.name,
        "phases": [{"isa": name, "seconds": seconds} for name, seconds in work.phases],
        "runs": runs,
    }


def workload(isa: str, seconds: float) -> Workload:
    """Returns the workload of each run; all runs together take `seconds`."""
    run_s = seconds / RUNS
    idle = min(MAX_IDLE_S, run_s / 2)
    load = run_s - idle
    if isa == "scalar":
        return Workload(round(idle * 1e9), [(isa, load)])
    return Workload(round(idle * 1e9), [(isa, load / 2), ("scalar", load / 4), (isa, load / 4)])


def step_cycles(name: str, core_type: str | None) -> int | None:
    """Returns the cycles of a 64-bit multiplication on this microarchitecture; None if unknown."""
    is_known = name.startswith(_THREE_CYCLE_MODELS) or (
        core_type == "P" and name.startswith(_THREE_CYCLE_MODELS_P)
    )
    return STEP_CYCLES if is_known else None
