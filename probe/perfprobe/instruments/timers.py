"""The cost of reading the time or a count here, the resolution and the order that each way
guarantees; the rate of the TSC; the offsets between the TSCs of CPUs."""

from __future__ import annotations

import os
import time
from typing import Any

from perfprobe._native import lib
from perfprobe.cpu import clock_rates, cpuid, identity, model, topology
from perfprobe.cpu.cpuid import Leaves
from perfprobe.frozen import asdict
from perfprobe.instruments import disturbance, timer_methods, timer_runs, tsc_offsets
from perfprobe.instruments.distribution import FAR, TRIM, histogram, spread, step
from perfprobe.instruments.repetition import CONFIDENCE, Repeated
from perfprobe.instruments.timer_methods import BRACKET
from perfprobe.instruments.timer_runs import Measured, Run
from perfprobe.native import affinity, cpuid_reader


def answer(asked: int | None) -> dict[str, Any]:
    """The answer of `timers`; takes some 2 s. Raises ValueError for a CPU that does not exist,
    Unavailable for one that cannot be measured."""
    start = time.monotonic()
    rows = topology.read()
    allowed = sorted(os.sched_getaffinity(0))
    row = affinity.usable(lib.pp_current_cpu() if asked is None else asked, rows, allowed)
    cpu, its = row.cpu, cpuid_reader.of(row.cpu)
    before = disturbance.now(cpu)
    found = timer_runs.measured(cpu, its)
    after = disturbance.now(cpu)
    some = tsc_offsets.chosen(allowed)
    offsets = tsc_offsets.measure(some, found.grid or 1.0, found.hz.hz)
    return {
        "host": identity.hostname(),
        "model": identity.identity().name or None,
        "kernel": identity.kernel(),
        "virtualisation": identity.virtualisation(),
        "cpu": cpu,
        "cpu_why": "where the measurement was started" if asked is None else "asked for",
        "tsc": _tsc(its, found),
        "trimmed": TRIM,
        "far": FAR,
        "epsilon": timer_runs.EPSILON,
        "confidence": CONFIDENCE,
        "bracket_ticks": _rounded(found.bracket.repeated.mean),
        "methods": [_told(one, found, its) for one in found.rows],
        "offsets": [asdict(one) for one in offsets],
        "offsets_left_out": len(allowed) - len(some),
        "disturbances": disturbance.seen(cpu, affinity.siblings(row, rows), before, after),
        "elapsed_s": round(time.monotonic() - start, 3),
    }


def _tsc(its: Leaves, found: Measured) -> dict[str, Any]:
    source = identity.clocksource()
    note = "CLOCK_MONOTONIC_RAW is derived from this TSC: this is the rate that the kernel assumes"
    by_cpuid = clock_rates.tsc_hz(model.of(identity.identity(), its), its, None)
    return {
        **asdict(found.hz),
        "note": note if source == "tsc" else None,
        "hello": asdict(found.hello),
        "said": [asdict(rate) for rate in by_cpuid],
        "invariant": cpuid.has(its, "invariant-tsc"),
        "clocksource": source,
        "step_ticks": found.grid,
        "step_why": None if found.grid is not None else "too few different readings",
    }


# --- a method -------------------------------------------------------------------------------------

_COSTS = ("least", "median", "mean", "error", "sigma", "mean_all")
KEYS = ("name", "guarantees", "calls", "usable", "why", "fix", "note", "samples", "settled", "far",
        *(f"{what}_{unit}" for what in _COSTS for unit in ("ticks", "ns")),
        "step_ns", "step_from", "histogram")  # fmt: skip
"""Keys of every method; unknown values are null. Costs are those of one call."""


def _told(run: Run, found: Measured, its: Leaves) -> dict[str, Any]:
    method = run.method
    row = dict.fromkeys(KEYS) | {
        "name": method.name,
        "guarantees": timer_methods.guarantees(method, its),
        "calls": method.calls,
        "usable": run.trouble is None,
    }
    if run.trouble is not None:
        return row | {"why": run.trouble.why, "fix": run.trouble.fix}
    stamp = method.kind < BRACKET.kind
    less = Repeated(0.0, 0.0, 0, settled=True) if stamp else found.bracket.repeated
    row |= _costs(run, less, found.hz.hz, found.grid)
    return row | _step(run, stamp, found)


def _costs(run: Run, less: Repeated, hz: float, grid: float | None) -> dict[str, Any]:
    """Costs of one call. `less` is the part of each sample that is not the calls, in ticks."""
    whole, samples, calls = run.repeated, spread(run.ticks), run.method.calls
    errors = [one for one in (whole.error, less.error) if one is not None]
    ticks = {
        "least": (samples.least - less.mean) / calls,
        "median": (samples.median - less.mean) / calls,
        "mean": (whole.mean - less.mean) / calls,
        "error": sum(errors) / calls if len(errors) == 2 else None,
        "sigma": samples.sigma / calls,
        "mean_all": (samples.mean_all - less.mean) / calls,
    }
    drawn = histogram(run.ticks, grid)
    return {
        **{f"{name}_ticks": _rounded(value) for name, value in ticks.items()},
        **{f"{name}_ns": _rounded(value, 1e9 / hz) for name, value in ticks.items()},
        "note": run.timer.note,
        "samples": samples.count,
        "settled": whole.settled,
        "far": samples.far,
        "histogram": {
            "first_ticks": _rounded((drawn.first - less.mean) / calls),
            "width_ticks": _rounded(drawn.width / calls),
            "counts": drawn.counts,
            "beyond": drawn.beyond,
        },
    }


def _rounded(value: float | None, factor: float = 1.0) -> float | None:
    """Four decimals: in ticks and in ns further ones are noise."""
    return None if value is None else round(value * factor, 4)


def _step(run: Run, stamp: bool, found: Measured) -> dict[str, Any]:
    if stamp:
        ns = None if found.grid is None else found.grid * 1e9 / found.hz.hz
        return {"step_ns": _rounded(ns), "step_from": "the TSC's"}
    if run.method.answers != "ns":
        return {"step_from": "a count: it has no time of its own"}
    seen = step(run.steps)
    if seen is not None:
        return {"step_ns": seen, "step_from": "its answers"}
    return {"step_ns": time.clock_getres(run.method.clock) * 1e9, "step_from": "clock_getres"}
