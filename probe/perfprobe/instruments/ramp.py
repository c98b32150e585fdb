"""From idle to a steady clock: raw points of a few runs on one CPU. perftop interprets them.

Each run sleeps, which lets the CPU go idle, and then works without a pause. Wide code runs in three
phases (wide, scalar, wide), so that one run shows both levels and both changes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfprobe._native import lib
from perfprobe.cpu import cpuid, identity, model, topology
from perfprobe.errors import Unavailable, Usage
from perfprobe.frozen import asdict
from perfprobe.instruments.ramp_runs import ISAS, RUNS, STEP_CYCLES, Workload, measured
from perfprobe.native import affinity, cpuid_reader, tsc_rate
from perfprobe.wire import Cpu

NEEDS = {"avx2": "AVX2 and FMA", "avx512": "AVX-512F and FMA"}
SHORTEST_S, LONGEST_S = 1.0, 60.0
MOST_IDLE_S = 0.5
"""Longest sleep before a run: enough for the deepest idle state, and for governors to forget the
previous run."""

_THREE = (
    "Nehalem", "Westmere", "Sandy Bridge", "Ivy Bridge", "Haswell", "Broadwell", "Skylake",
    "Kaby Lake", "Comet Lake", "Cascade Lake", "Cooper Lake", "Cannon Lake", "Ice Lake",
    "Tiger Lake", "Rocket Lake", "Sapphire Rapids", "Emerald Rapids", "Granite Rapids", "Zen",
)  # fmt: skip
_THREE_ON_P = ("Alder Lake", "Raptor Lake", "Bartlett Lake", "Meteor Lake", "Arrow Lake")
"""Names of cores whose 64-bit multiplication takes STEP_CYCLES. Small cores take longer, and not
all equally long."""


def measure(asked: int | None, isa: str, seconds: float) -> dict[str, Any]:
    """The answer of `ramp`; takes `seconds`. Raises ValueError for arguments that no machine can
    fulfil, Unavailable for those that this one cannot."""
    rows = _check(isa, seconds)
    here = chosen(asked, rows, os.sched_getaffinity(0))
    cpu = here.cpu
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's handler would wait for the C to return
    try:
        with affinity.pinned(cpu):
            return _measure(here, affinity.siblings(here, rows), workload(isa, seconds))
    except OSError as error:
        raise Unavailable(f"--cpu {cpu}: cannot run there: {error.strerror}") from error


def _check(isa: str, seconds: float) -> list[Cpu]:
    if isa not in ISAS:
        raise Usage(f"--isa {isa}: there are {', '.join(ISAS)}")
    if not SHORTEST_S <= seconds <= LONGEST_S:
        raise Usage(f"--seconds {seconds:g}: from {SHORTEST_S:g} to {LONGEST_S:g}")
    rows = topology.read(Path("/"))
    if not rows:
        raise Unavailable(topology.nothing(Path("/")))
    return rows


def chosen(asked: int | None, rows: Sequence[Cpu], allowed: set[int]) -> Cpu:
    """The CPU to measure: the one asked for, else the last that this process may run on, because
    interrupts go to the first ones."""
    if asked is None:
        online = {row.cpu for row in rows if row.online}
        asked = max(online & allowed or allowed)
    return affinity.usable(asked, rows, allowed)


def workload(isa: str, seconds: float) -> Workload:
    """One run's share of `seconds`: a sleep and its phases."""
    each = seconds / RUNS
    idle = min(MOST_IDLE_S, each / 2)
    load = each - idle
    if isa == "scalar":
        return Workload(round(idle * 1e9), [(isa, load)])
    return Workload(round(idle * 1e9), [(isa, load / 2), ("scalar", load / 4), (isa, load / 4)])


def step_cycles(name: str, core_type: str | None) -> int | None:
    """Cycles of a step of the chain, by the name of the microarchitecture; None: unknown."""
    known = name.startswith(_THREE) or (core_type == "P" and name.startswith(_THREE_ON_P))
    return STEP_CYCLES if known else None


def _measure(here: Cpu, others: Sequence[int], work: Workload) -> dict[str, Any]:
    cpu = here.cpu
    isa = work.phases[0][0]
    if not lib.pp_ramp_isas() >> ISAS.index(isa) & 1:
        lacks = "this CPU or its system does not have it"
        raise Unavailable(f"--isa {isa} needs {NEEDS[isa]}: {lacks}; try --isa scalar")
    who = identity.identity()
    said = cpuid_reader.of(cpu)
    known = model.of(who, said, here.type)
    tsc = tsc_rate.calibrate()
    runs, trouble = measured(work, tsc.hz, cpu, others)
    return {
        "host": identity.hostname(),
        "model": who.name or None,
        "virtualisation": identity.virtualisation(),
        "cpu": cpu,
        "isa": isa,
        "siblings": list(others),
        "tsc": asdict(tsc) | {"invariant": cpuid.has(said, "invariant-tsc")},
        "cycles_why": trouble and trouble.why,
        "cycles_fix": trouble and trouble.fix,
        "step_cycles": step_cycles(known.name, known.core_type),
        "uarch": known.name,
        "phases": [{"isa": name, "seconds": seconds} for name, seconds in work.phases],
        "runs": runs,
    }
