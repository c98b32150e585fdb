"""Measures the cost and resolution of each method to read the time or a count, and the order that
it guarantees; the rate of the TSC; and the offsets between the TSCs of CPUs.

Offsets come from messages between CPUs. A message is stamped when it leaves, when the other CPU has
seen it, and when the answer is back. At the middle stamp the first CPU's clock was between the
first and the last stamp, however long each direction took. So each exchange bounds the offset from
both sides, and the tightest bounds of all exchanges apply. The two directions need not take equally
long.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from perfprobe._native import ffi, lib
from perfprobe.cpu import cpuid, identity, model, topology
from perfprobe.cpu.cpuid import Leaves
from perfprobe.errors import check_result
from perfprobe.instruments import disturbance, timer_runs
from perfprobe.instruments.measurement import (
    CONFIDENCE,
    DISTURBED_FACTOR,
    TRIMMED_SHARE,
    RepeatedMean,
    common_step,
    histogram,
    spread,
)
from perfprobe.instruments.timer_runs import BRACKET, Measurement, Run
from perfprobe.native import affinity
from perfprobe.native.affinity import pinned_to

EXCHANGE_COUNT = 2000
MAX_TOTAL_S = 1.0
MAX_PAIR_S = 0.25
"""Time limit in s for a pair of CPUs. Idle CPUs need a few ms; on busy CPUs the exchanges wait."""
MAX_CPUS = 64


class Exchange(NamedTuple):
    """The stamps of one message, in the order in which they were taken."""

    sent: int
    seen: int
    """The stamp of the other CPU's clock."""
    back: int


class Bounds(NamedTuple):
    """The least and the greatest value by which the other CPU's clock may be ahead of this
    CPU's."""

    low: float
    high: float


def offset_bounds(exchanges: Iterable[Exchange], step: float = 1.0) -> Bounds | None:
    """Returns the bounds of the offset in ticks; None if there are no exchanges, or if no constant
    offset fits all of them.

    A reading is up to `step` behind its clock, because the counter advances in steps.
    """
    rows = list(exchanges)
    if not rows:
        return None
    low = max(row.seen - row.back for row in rows) - step
    high = min(row.seen - row.sent for row in rows) + step
    return Bounds(low, high) if low <= high else None


# --- offsets --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Offset:
    cpu: int
    against: int
    exchanges: int
    offset_ticks: float | None = None
    error_ticks: float | None = None
    """The true offset is at most this far from `offset_ticks`. This is a bound, not a
    probability."""
    offset_ns: float | None = None
    error_ns: float | None = None
    why: str | None = None
    """The reason why there is no offset; None if there is one."""


def spread_cpus(cpus: Sequence[int]) -> list[int]:
    """Returns at most MAX_CPUS of the CPUs, evenly spaced, so that every package is represented."""
    if len(cpus) <= MAX_CPUS:
        return list(cpus)
    return [cpus[i * (len(cpus) - 1) // (MAX_CPUS - 1)] for i in range(MAX_CPUS)]


def measure_offsets(cpus: Sequence[int], step: float, tsc_hz: float) -> list[Offset]:
    """Returns the offset of each CPU against the first CPU."""
    first, others = cpus[0], cpus[1:]
    limit_s = min(MAX_PAIR_S, MAX_TOTAL_S / max(1, len(others)))
    try:
        with pinned_to(first):
            return [_offset_against(first, cpu, limit_s, step, tsc_hz) for cpu in others]
    except OSError as error:
        return [Offset(cpu, first, 0, why=f"CPU {first}: {error.strerror}") for cpu in others]


def _offset_against(first: int, cpu: int, limit_s: float, step: float, tsc_hz: float) -> Offset:
    try:
        rows = exchange_stamps(cpu, limit_s)
    except OSError as error:
        why = _UNREACHED_REASON.get(error.errno or 0)
        name = errno.errorcode.get(error.errno or 0, error.errno)
        why = why or f"no thread could be started there ({name})"
        return Offset(cpu, first, 0, why=why)
    if not rows:
        return Offset(cpu, first, 0, why=f"it did not answer within {limit_s * 1e3:.0f} ms")
    limits, result, ns = offset_bounds(rows, step), len(rows), 1e9 / tsc_hz
    if limits is None:
        why = "no constant offset agrees with all exchanges: one of the clocks was set or runs off"
        return Offset(cpu, first, result, why=why)
    offset, half = (limits.low + limits.high) / 2, (limits.high - limits.low) / 2
    return Offset(cpu, first, result, offset, half, offset * ns, half * ns)


_UNREACHED_REASON = {
    errno.EINVAL: "it went offline, or this process may not run on it",
    errno.EXDEV: "a CPU went offline meanwhile",
}


def exchange_stamps(cpu: int, limit_s: float) -> list[Exchange]:
    """Exchanges between the CPU that the caller is pinned to and `cpu`. Raises OSError."""
    out: Any = ffi.new("pp_exchange[]", EXCHANGE_COUNT)
    count = check_result(lib.pp_exchange_stamps(cpu, EXCHANGE_COUNT, round(limit_s * 1e9), out))
    return [Exchange(e.sent, e.seen, e.back) for e in out[0:count]]


# --- the answer -----------------------------------------------------------------------------------


def measure(requested_cpu: int | None) -> dict[str, Any]:
    """Returns the answer of `timers`; takes some 2 s. Raises ValueError for a CPU that does not
    exist, and Unavailable for a CPU that cannot be measured."""
    start = time.monotonic()
    rows = topology.read()
    allowed = sorted(os.sched_getaffinity(0))
    row = affinity.require_cpu(
        lib.pp_current_cpu() if requested_cpu is None else requested_cpu, rows, allowed
    )
    cpu, leaves = row.cpu, affinity.cpuid_leaves(row.cpu)
    cpu_why = "where the measurement was started" if requested_cpu is None else "asked for"
    before = disturbance.read_counts(cpu)
    result = timer_runs.measure_methods(cpu, leaves)
    after = disturbance.read_counts(cpu)
    some = spread_cpus(allowed)
    offsets = measure_offsets(some, result.grid or 1.0, result.rate.hz)
    return {
        **identity.machine_names(),
        "cpu": cpu,
        "cpu_why": cpu_why,
        "tsc": _tsc_report(leaves, result),
        "trimmed": TRIMMED_SHARE,
        "far": DISTURBED_FACTOR,
        "epsilon": timer_runs.EPSILON,
        "confidence": CONFIDENCE,
        "bracket_ticks": _round_scaled(result.bracket.repeated_mean.mean),
        "methods": [_method_row(run, result, leaves) for run in result.rows],
        "offsets": [asdict(offset) for offset in offsets],
        "offsets_left_out": len(allowed) - len(some),
        "disturbances": disturbance.disturbances_during(
            cpu, affinity.siblings(row, rows), before, after
        ),
        "elapsed_s": round(time.monotonic() - start, 3),
    }


def _tsc_report(leaves: Leaves, measurement: Measurement) -> dict[str, Any]:
    source = identity.clocksource()
    note = "CLOCK_MONOTONIC_RAW is derived from this TSC: this is the rate that the kernel assumes"
    by_cpuid = model.tsc_hz(model.uarch_of(identity.identity(), leaves), leaves, None)
    return {
        **asdict(measurement.rate),
        "note": note if source == "tsc" else None,
        "hello": asdict(measurement.stream_rate),
        "said": [asdict(rate) for rate in by_cpuid],
        "invariant": cpuid.has_feature(leaves, "invariant-tsc"),
        "clocksource": source,
        "step_ticks": measurement.grid,
        "step_why": None if measurement.grid is not None else "too few different readings",
    }


# --- a method -------------------------------------------------------------------------------------

_COST_KEYS = ("least", "median", "mean", "error", "sigma", "mean_all")
TIMER_KEYS = ("name", "guarantees", "calls", "usable", "why", "fix", "note", "samples", "settled",
        "far", *(f"{what}_{unit}" for what in _COST_KEYS for unit in ("ticks", "ns")),
        "step_ns", "step_from", "histogram")  # fmt: skip
"""Keys of every method; unknown values are null. Costs are those of one call."""


def _method_row(run: Run, measurement: Measurement, leaves: Leaves) -> dict[str, Any]:
    method = run.method
    row = dict.fromkeys(TIMER_KEYS) | {
        "name": method.name,
        "guarantees": timer_runs.guarantees(method, leaves),
        "calls": method.calls,
        "usable": run.trouble is None,
    }
    if run.trouble is not None:
        return row | {"why": run.trouble.why, "fix": run.trouble.fix}
    stamp = method.kind < BRACKET.kind
    less = RepeatedMean(0.0, 0.0, 0, settled=True) if stamp else measurement.bracket.repeated_mean
    row |= _cost_row(run, less, measurement.rate.hz, measurement.grid)
    return row | _step_report(run, stamp, measurement)


def _cost_row(run: Run, stamps: RepeatedMean, hz: float, grid: float | None) -> dict[str, Any]:
    """Costs of one call. `stamps` is the cost of the stamps in each sample, in ticks."""
    whole, samples, calls = run.repeated_mean, spread(run.ticks), run.method.calls
    errors = [error for error in (whole.error, stamps.error) if error is not None]
    ticks = {
        "least": (samples.least - stamps.mean) / calls,
        "median": (samples.median - stamps.mean) / calls,
        "mean": (whole.mean - stamps.mean) / calls,
        "error": sum(errors) / calls if len(errors) == 2 else None,
        "sigma": samples.sigma / calls,
        "mean_all": (samples.mean_all - stamps.mean) / calls,
    }
    drawn = histogram(run.ticks, grid)
    return {
        **{f"{name}_ticks": _round_scaled(value) for name, value in ticks.items()},
        **{f"{name}_ns": _round_scaled(value, 1e9 / hz) for name, value in ticks.items()},
        "note": run.timer.note,
        "samples": samples.count,
        "settled": whole.settled,
        "far": samples.far_share,
        "histogram": {
            "first_ticks": _round_scaled((drawn.first - stamps.mean) / calls),
            "width_ticks": _round_scaled(drawn.width / calls),
            "counts": drawn.counts,
            "beyond": drawn.outlier_count,
        },
    }


def _round_scaled(value: float | None, factor: float = 1.0) -> float | None:
    """Returns the value with four decimals; in ticks and in ns further decimals are noise."""
    return None if value is None else round(value * factor, 4)


def _step_report(run: Run, stamp: bool, measurement: Measurement) -> dict[str, Any]:
    if stamp:
        ns = None if measurement.grid is None else measurement.grid * 1e9 / measurement.rate.hz
        return {"step_ns": _round_scaled(ns), "step_from": "the TSC's"}
    if run.method.answers != "ns":
        return {"step_from": "a count: it has no time of its own"}
    seen = common_step(run.steps)
    if seen is not None:
        return {"step_ns": seen, "step_from": "its answers"}
    return {"step_ns": time.clock_getres(run.method.clock) * 1e9, "step_from": "clock_getres"}
