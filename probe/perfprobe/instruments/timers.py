"""Measures the cost and resolution of each method to read the time or a count, and the order that
it guarantees; the rate of the TSC; and the offsets between the TSCs of CPUs.

Offsets are measured by messages between two CPUs. The TSC is read when a message is sent, when the
other CPU sees it, and when the reply is back. At the second read, the first CPU's TSC was between
the first and the third value, however long each direction took. So each exchange bounds the offset
on both sides, and the tightest bounds of all exchanges are used.
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
    describe_spread,
    histogram,
)
from perfprobe.instruments.timer_runs import BRACKET, Measurement, MethodRun
from perfprobe.native import affinity
from perfprobe.native.affinity import pinned_to

EXCHANGE_COUNT = 2000
MAX_TOTAL_S = 1.0
MAX_PAIR_S = 0.25
"""Time limit in s of the exchanges of two CPUs. Idle CPUs need a few ms; busy CPUs delay them."""
MAX_CPUS = 64
"""Maximum number of CPUs whose offset is measured."""


class Exchange(NamedTuple):
    """TSC values of a message and its reply: `sent` and `back` here, `received` there."""

    sent: int
    received: int
    back: int


class OffsetBounds(NamedTuple):
    """Bounds, in ticks, of how far the other CPU's TSC is ahead of this CPU's."""

    low: float
    high: float


def offset_bounds(exchanges: Iterable[Exchange], step: float = 1.0) -> OffsetBounds | None:
    """Returns the bounds in ticks of the offset between two TSCs; None without exchanges, or if no
    constant offset fits them. A TSC that advances by `step` ticks may be up to `step` too low."""
    rows = list(exchanges)
    if not rows:
        return None
    low = max(row.received - row.back for row in rows) - step
    high = min(row.received - row.sent for row in rows) + step
    return OffsetBounds(low, high) if low <= high else None


# --- offsets --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Offset:
    """The offset of the TSC of `cpu` from that of the CPU `against`."""

    cpu: int
    against: int
    exchanges: int
    offset_ticks: float | None = None
    error_ticks: float | None = None
    """Maximum distance of the true offset from `offset_ticks`."""
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
    first, other_cpus = cpus[0], cpus[1:]
    limit_s = min(MAX_PAIR_S, MAX_TOTAL_S / max(1, len(other_cpus)))
    try:
        with pinned_to(first):
            return [_offset_against(first, cpu, limit_s, step, tsc_hz) for cpu in other_cpus]
    except OSError as error:
        return [Offset(cpu, first, 0, why=f"CPU {first}: {error.strerror}") for cpu in other_cpus]


def _offset_against(base_cpu: int, cpu: int, limit_s: float, step: float, tsc_hz: float) -> Offset:
    try:
        rows = exchange_stamps(cpu, limit_s)
    except OSError as error:
        text = _UNREACHED_REASON.get(error.errno or 0)
        name = errno.errorcode.get(error.errno or 0, error.errno)
        text = text or f"no thread could be started there ({name})"
        return Offset(cpu, base_cpu, 0, why=text)
    if not rows:
        return Offset(cpu, base_cpu, 0, why=f"it did not answer within {limit_s * 1e3:.0f} ms")
    limits, result, ns = offset_bounds(rows, step), len(rows), 1e9 / tsc_hz
    if limits is None:
        text = "no constant offset agrees with all exchanges: one of the clocks was set or runs off"
        return Offset(cpu, base_cpu, result, why=text)
    offset, half_width = (limits.low + limits.high) / 2, (limits.high - limits.low) / 2
    return Offset(cpu, base_cpu, result, offset, half_width, offset * ns, half_width * ns)


_UNREACHED_REASON = {
    errno.EINVAL: "it went offline, or this process may not run on it",
    errno.EXDEV: "a CPU went offline meanwhile",
}


def exchange_stamps(cpu: int, limit_s: float) -> list[Exchange]:
    """Exchanges messages between the calling thread, which is pinned to a CPU, and a thread on
    `cpu`, for at most `limit_s`. Returns the exchanges. Raises OSError."""
    array: Any = ffi.new("pp_exchange[]", EXCHANGE_COUNT)
    count = check_result(lib.pp_exchange_stamps(cpu, EXCHANGE_COUNT, round(limit_s * 1e9), array))
    return [Exchange(e.sent, e.seen, e.back) for e in array[0:count]]


# --- JSON output ----------------------------------------------------------------------------------


def measure(requested_cpu: int | None) -> dict[str, Any]:
    """Returns the JSON output of `timers`, after measuring for about 2 s. Raises ValueError for a
    CPU that does not exist, and Unavailable for a CPU that cannot be measured."""
    start = time.monotonic()
    rows = topology.read_cpus()
    allowed = sorted(os.sched_getaffinity(0))
    row = affinity.require_cpu(
        lib.pp_current_cpu() if requested_cpu is None else requested_cpu, rows, allowed
    )
    cpu, leaves = row.cpu, affinity.cpuid_leaves(row.cpu)
    cpu_why = "where the measurement was started" if requested_cpu is None else "asked for"
    counts_before = disturbance.read_counts(cpu)
    result = timer_runs.measure_methods(cpu, leaves)
    counts_after = disturbance.read_counts(cpu)
    chosen_cpus = spread_cpus(allowed)
    offsets = measure_offsets(chosen_cpus, result.tsc_step or 1.0, result.rate.hz)
    return {
        **identity.machine_names(),
        "cpu": cpu,
        "cpu_why": cpu_why,
        "tsc": _tsc_report(leaves, result),
        "trimmed": TRIMMED_SHARE,
        "far": DISTURBED_FACTOR,
        "epsilon": timer_runs.EPSILON,
        "confidence": CONFIDENCE,
        "bracket_ticks": _round_scaled(result.empty_run.repeated_mean.mean),
        "methods": [_method_row(run, result, leaves) for run in result.method_runs],
        "offsets": [asdict(offset) for offset in offsets],
        "offsets_left_out": len(allowed) - len(chosen_cpus),
        "disturbances": disturbance.disturbances_during(
            cpu, affinity.siblings(row, rows), counts_before, counts_after
        ),
        "elapsed_s": round(time.monotonic() - start, 3),
    }


def _tsc_report(leaves: Leaves, measurement: Measurement) -> dict[str, Any]:
    source = identity.clocksource()
    note = "CLOCK_MONOTONIC_RAW is derived from this TSC: this is the rate that the kernel assumes"
    by_cpuid = model.tsc_rate_candidates(
        model.uarch_of(identity.read_identity(), leaves), leaves, None
    )
    return {
        **asdict(measurement.rate),
        "note": note if source == "tsc" else None,
        "hello": asdict(measurement.stream_rate),
        "said": [asdict(rate) for rate in by_cpuid],
        "invariant": cpuid.has_feature(leaves, "invariant-tsc"),
        "clocksource": source,
        "step_ticks": measurement.tsc_step,
        "step_why": None if measurement.tsc_step is not None else "too few different readings",
    }


# --- a method -------------------------------------------------------------------------------------

_COST_KEYS = ("least", "median", "mean", "error", "sigma", "mean_all")
TIMER_KEYS = ("name", "guarantees", "calls", "usable", "why", "fix", "note", "samples", "settled",
        "far", *(f"{what}_{unit}" for what in _COST_KEYS for unit in ("ticks", "ns")),
        "step_ns", "step_from", "histogram")  # fmt: skip
"""Keys of each method in the JSON output; unknown values are null. Costs are of one call."""


def _method_row(run: MethodRun, measurement: Measurement, leaves: Leaves) -> dict[str, Any]:
    method = run.method
    row = dict.fromkeys(TIMER_KEYS) | {
        "name": method.name,
        "guarantees": timer_runs.ordering_guarantees(method, leaves),
        "calls": method.calls_per_sample,
        "usable": run.trouble is None,
    }
    if run.trouble is not None:
        return row | {"why": run.trouble.why, "fix": run.trouble.fix}
    stamp = method.kind < BRACKET.kind
    base = RepeatedMean(0, 0, 0, is_stable=True) if stamp else measurement.empty_run.repeated_mean
    row |= _cost_row(run, base, measurement.rate.hz, measurement.tsc_step)
    return row | _step_report(run, stamp, measurement)


def _cost_row(
    run: MethodRun, stamps: RepeatedMean, hz: float, tsc_step: float | None
) -> dict[str, Any]:
    """Returns the costs of one call of a method. `stamps` is the cost in ticks of the stamps in
    each sample, which is subtracted; `tsc_step` is the TSC's step in ticks."""
    total_mean, samples = run.repeated_mean, describe_spread(run.sample_ticks)
    calls = run.method.calls_per_sample
    errors = [error for error in (total_mean.error, stamps.error) if error is not None]
    ticks = {
        "least": (samples.least - stamps.mean) / calls,
        "median": (samples.median - stamps.mean) / calls,
        "mean": (total_mean.mean - stamps.mean) / calls,
        "error": sum(errors) / calls if len(errors) == 2 else None,
        "sigma": samples.sigma / calls,
        "mean_all": (samples.mean_all - stamps.mean) / calls,
    }
    drawn = histogram(run.sample_ticks, tsc_step)
    return {
        **{f"{name}_ticks": _round_scaled(value) for name, value in ticks.items()},
        **{f"{name}_ns": _round_scaled(value, 1e9 / hz) for name, value in ticks.items()},
        "note": run.note,
        "samples": samples.count,
        "settled": total_mean.is_stable,
        "far": samples.disturbed_share,
        "histogram": {
            "first_ticks": _round_scaled((drawn.first - stamps.mean) / calls),
            "width_ticks": _round_scaled(drawn.width / calls),
            "counts": drawn.counts,
            "beyond": drawn.outlier_count,
        },
    }


def _round_scaled(value: float | None, factor: float = 1.0) -> float | None:
    """Returns value times factor, rounded to four decimals; None for None."""
    return None if value is None else round(value * factor, 4)


def _step_report(run: MethodRun, stamp: bool, measurement: Measurement) -> dict[str, Any]:
    if stamp:
        step = measurement.tsc_step
        ns = None if step is None else step * 1e9 / measurement.rate.hz
        return {"step_ns": _round_scaled(ns), "step_from": "the TSC's"}
    if run.method.value_unit != "ns":
        return {"step_from": "a count: it has no time of its own"}
    found_step = common_step(run.clock_steps)
    if found_step is not None:
        return {"step_ns": found_step, "step_from": "its answers"}
    return {"step_ns": time.clock_getres(run.method.clock_id) * 1e9, "step_from": "clock_getres"}
