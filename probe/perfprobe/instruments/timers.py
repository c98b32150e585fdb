"""Measures the cost and resolution of each method to read the time or a count, and the order of
instructions that it guarantees; the rate of the TSC; and the offsets between the TSCs of CPUs. A
method that reads the TSC is a stamp; the calls of any other method are timed by stamps before and
after them. All methods are run repeatedly on one CPU.

Offsets are measured by messages between two CPUs. The TSC is read when a message is sent, when the
other CPU sees it, and when the reply is back. At the second read, the first CPU's TSC was between
the first and the third value, however long each direction took. So each exchange bounds the offset
on both sides, and the tightest bounds of all exchanges are used.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from operator import sub
from pathlib import Path
from typing import Any, Literal, NamedTuple

from perfprobe._native import ffi, lib
from perfprobe.cpu import cpuid, identity, model, topology
from perfprobe.cpu.cpuid import Leaves
from perfprobe.cpu.model import AMD
from perfprobe.errors import Unavailable, check_result, error_sentence
from perfprobe.instruments import disturbance
from perfprobe.instruments.measurement import (
    CONFIDENCE,
    DISTURBED_FACTOR,
    TRIMMED_SHARE,
    Counts,
    RepeatedMean,
    RepeatLimits,
    combined_mean,
    common_step,
    describe_spread,
    histogram,
    repeat_until_stable,
    trimmed_mean,
)
from perfprobe.kernel.access import Problem
from perfprobe.native import affinity, tsc_rate
from perfprobe.native.affinity import pinned_to
from perfprobe.perf import perf_events, perf_pmus
from perfprobe.perf.perf_events import Event, Kernel, RefusedError
from perfprobe.registers import msr
from perfprobe.wire import Rate

CLOCK_MONOTONIC_COARSE = 6  # linux/time.h; Python has no name for it
CPU_CLOCK = Event("cpu-clock", perf_events.SOFTWARE, 0)
CALLS_PER_SAMPLE = 8
"""Calls in a sample of a method that is as fast as the stamps before and after a sample."""

ValueUnit = Literal["ticks", "ns", "count"]


@dataclass(frozen=True, slots=True)
class Method:
    name: str
    kind: int
    """The PP_TIMER_ number of the method in the C helper."""
    guarantees: str | None
    """The guaranteed order of instructions; None if not documented."""
    value_unit: ValueUnit = "ticks"
    calls_per_sample: int = 1
    clock_id: int = 0
    """The clock of clock_gettime, for methods that call it."""
    resource: str = ""
    """The resource that the method needs (see open_resource); '': none."""


_AFTER_EARLIER = "earlier instructions are done"
_BEFORE_LATER = "later ones may start before it"
_VDSO_GUARANTEE = f"{_AFTER_EARLIER}, {_BEFORE_LATER}: the kernel uses RDTSCP or LFENCE;RDTSC"

METHODS = (
    Method("rdtsc", lib.PP_TIMER_RDTSC, "none: may move before earlier and after later ones"),
    Method("rdtscp", lib.PP_TIMER_RDTSCP,
           f"{_AFTER_EARLIER}, their loads visible; {_BEFORE_LATER}", resource="rdtscp"),
    Method("lfence;rdtsc", lib.PP_TIMER_LFENCE_RDTSC, f"{_AFTER_EARLIER}; {_BEFORE_LATER}"),
    Method("rdtscp;lfence", lib.PP_TIMER_RDTSCP_LFENCE,
           f"{_AFTER_EARLIER}, their loads visible; later ones wait", resource="rdtscp"),
    Method("mfence;lfence;rdtsc", lib.PP_TIMER_MFENCE_LFENCE_RDTSC,
           f"{_AFTER_EARLIER}, their loads and stores visible; {_BEFORE_LATER}"),
    Method("cpuid;rdtsc", lib.PP_TIMER_CPUID_RDTSC,
           f"CPUID serialises: {_AFTER_EARLIER}, their stores visible; {_BEFORE_LATER}"),
    Method("MONOTONIC", lib.PP_TIMER_CLOCK, _VDSO_GUARANTEE, "ns", CALLS_PER_SAMPLE,
           time.CLOCK_MONOTONIC),
    Method("MONOTONIC_RAW", lib.PP_TIMER_CLOCK, _VDSO_GUARANTEE, "ns", CALLS_PER_SAMPLE,
           time.CLOCK_MONOTONIC_RAW),
    Method("MONOTONIC_COARSE", lib.PP_TIMER_CLOCK,
           "none: reads what the kernel wrote at its last timer tick", "ns", CALLS_PER_SAMPLE,
           CLOCK_MONOTONIC_COARSE),
    Method("empty system call", lib.PP_TIMER_SYSCALL, None, "count"),
    Method("rdpmc (perf page)", lib.PP_TIMER_PERF_PAGE, "none: RDPMC may move as RDTSC may",
           "count", CALLS_PER_SAMPLE, resource="page"),
    Method("perf read(2)", lib.PP_TIMER_PERF_READ, None, "count", resource="perf"),
    Method("MSR read", lib.PP_TIMER_MSR, None, "count", resource="msr"),
)  # fmt: skip
"""All methods, in the order of the printed table."""
BRACKET = Method("bracket", lib.PP_TIMER_NOTHING, None)


Resource = tuple[str | None, dict[str, int]]
"""The note of a MethodRun, and fields of its pp_timer."""


def open_resource(name: str, cpu: int, leaves: Leaves, stack: contextlib.ExitStack) -> Resource:
    """Opens the resource that a method needs; `stack` closes it. Raises RefusedError."""
    instructions, kernel = perf_events.INSTRUCTIONS, Kernel()
    if name == "rdtscp":
        if not cpuid.has_feature(leaves, "rdtscp"):
            raise RefusedError(Problem("this CPU, or its hypervisor, has no RDTSCP"))
        return None, {}
    if name == "msr":
        try:
            registers = stack.enter_context(msr.Registers(Path("/"), cpu))
            registers.read(msr.TSC)
        except msr.MsrError as error:
            raise RefusedError(Problem(error.cause, error.fix)) from None
        return f"{msr.register_name(msr.TSC)}, the TSC", {"fd": registers.fd, "arg": msr.TSC}
    note = "instructions"
    try:
        group = perf_pmus.open_core_event(kernel, cpu, instructions, by_rdpmc=name == "page")
    except RefusedError as refused:
        if name == "page":
            raise
        reason = f"instructions cannot be read ({refused.problem.why})"
        note = f"cpu-clock, a software event: {reason}"
        group = perf_events.open_event(kernel, CPU_CLOCK, cpu)
    stack.callback(group.close)
    return note, {"arg": group.address}


def ordering_guarantees(method: Method, leaves: Leaves) -> str | None:
    if method.guarantees == _VDSO_GUARANTEE and (source := identity.clocksource()) != "tsc":
        return f"not known of the clock source {source or '?'}"
    is_amd_fence = "lfence" in method.name and cpuid.vendor(leaves) in AMD
    if is_amd_fence and not cpuid.has_feature(leaves, "serializing-lfence"):
        return f"{method.guarantees}; if LFENCE serialises, as Linux has it on AMD"
    return method.guarantees


# --- runs -----------------------------------------------------------------------------------------

EPSILON = 0.001
PASSES = 5
"""Number of times that every method is measured, so that its error includes slow drift."""
WARM_UP_S = 0.01
"""Time in s for which a method runs before it is measured, so that the core reaches its clock."""
LIMITS = RepeatLimits(max_s=0.03, max_samples=1_000_000, max_round_s=0.004, min_s=0.012)
"""Limits of a method in one pass; all methods and passes then take about 2 s. `min_s` is three
ticks of a 250 Hz timer."""


@dataclass(slots=True, eq=False)
class MethodRun:
    """The samples of one method."""

    method: Method
    timer: Any = None
    """The pp_timer object of the C helper; None if the method is not available."""
    note: str | None = None
    """The counter or register that the method reads, unless its name says so."""
    sample_ticks: Counts = field(default_factory=Counter)
    """TSC ticks of the samples. A sample is the time of its calls and of the stamps before and
    after them; for a stamp, the time between two stamps."""
    clock_steps: Counts = field(default_factory=Counter)
    """Differences in ns between consecutive values of a clock."""
    pass_means: list[RepeatedMean] = field(default_factory=list)
    """The mean ticks of a sample in each pass."""
    problem: Problem | None = None
    """The reason why the method is not available, or failed while it ran."""

    @property
    def repeated_mean(self) -> RepeatedMean:
        return combined_mean(self.pass_means)


@dataclass(frozen=True, slots=True)
class Measurement:
    """The samples of all methods, and the TSC's rate."""

    empty_run: MethodRun
    """Samples without a call: the cost of the stamps before and after calls."""
    method_runs: list[MethodRun]
    stream_rate: Rate
    """The TSC's rate as measured for the hello of a stream."""
    rate: Rate
    """The TSC's rate over the whole measurement."""

    @property
    def tsc_step(self) -> float | None:
        """The step by which the TSC advances, in ticks; None if unknown."""
        usable_runs = (run for run in self.method_runs if run.problem is None)
        return common_step(tick for run in usable_runs for tick in run.sample_ticks)


def measure_methods(cpu: int, leaves: Leaves, methods: Sequence[Method] = METHODS) -> Measurement:
    """Measures the methods on one CPU. Raises Unavailable if no code can run on that CPU."""
    try:
        with contextlib.ExitStack() as stack, pinned_to(cpu):
            start = tsc_rate.read_bracket()
            stream_rate = tsc_rate.calibrate()
            empty_run = _open_run(BRACKET, cpu, leaves, stack)
            method_runs = [_open_run(method, cpu, leaves, stack) for method in methods]
            for _ in range(PASSES):
                for run in (empty_run, *method_runs):
                    if run.problem is not None:
                        continue
                    try:
                        _measure(run)
                    except OSError as error:
                        if error.errno == errno.EXDEV:  # the CPU went offline during the run
                            raise
                        run.problem = Problem(f"it failed while it ran: {error.strerror}")
            rate = tsc_rate.rate_between(start, tsc_rate.read_bracket())
            return Measurement(empty_run, method_runs, stream_rate, rate)
    except OSError as error:
        went_offline = error.errno == errno.EXDEV
        text = "the CPU went offline meanwhile" if went_offline else error_sentence(error)
        raise Unavailable(f"nothing can be measured on CPU {cpu}: {text}") from None


def _open_run(method: Method, cpu: int, leaves: Leaves, stack: contextlib.ExitStack) -> MethodRun:
    """Returns a run of this method without samples; `stack` releases its resources."""
    calls, clock_id = method.calls_per_sample, method.clock_id
    fields = {"kind": method.kind, "calls": calls, "fd": -1, "arg": clock_id}
    note = None
    if method.resource:
        try:
            note, timer_fields = open_resource(method.resource, cpu, leaves, stack)
        except RefusedError as refused:
            return MethodRun(method, problem=refused.problem)
        fields |= timer_fields
    return MethodRun(method, ffi.new("pp_timer *", fields), note)


def _measure(run: MethodRun) -> None:
    ticks, values = (ffi.new("uint64_t[]", LIMITS.max_round_samples) for _ in range(2))

    def run_samples(size: int) -> None:
        check_result(lib.pp_timer_run(run.timer, size, ticks, values))

    def measure(size: int) -> float:
        run_samples(size)
        ticks_by_sample: Any = ffi.unpack(ticks, size)
        run.sample_ticks.update(ticks_by_sample)
        if run.method.value_unit == "ns":
            answers: Any = ffi.unpack(values, size)
            run.clock_steps.update(map(sub, answers[1:], answers))
        return trimmed_mean(ticks_by_sample)

    warm_s = time.monotonic() + WARM_UP_S
    while time.monotonic() < warm_s:
        run_samples(LIMITS.first_round_samples)
    run.pass_means.append(repeat_until_stable(measure, EPSILON, LIMITS))


# --- offsets between CPUs -------------------------------------------------------------------------

EXCHANGE_COUNT = 2000
MAX_TOTAL_S = 1.0
MAX_PAIR_S = 0.25
"""Time limit in s of the exchanges of two CPUs. Idle CPUs need a few ms; busy CPUs delay them."""
MAX_CPUS = 64
"""Maximum number of CPUs whose offset is measured."""


class Exchange(NamedTuple):
    """TSC values of a message and its reply: `sent` and `returned` here, `received` there."""

    sent: int
    received: int
    returned: int


class OffsetBounds(NamedTuple):
    """Bounds, in ticks, of how far the other CPU's TSC is ahead of this CPU's."""

    low: float
    high: float


def offset_bounds(exchanges: Iterable[Exchange], step: float = 1.0) -> OffsetBounds | None:
    """Returns the bounds in ticks of the offset between two TSCs; None without exchanges, or if no
    constant offset fits them. A TSC that advances by `step` ticks may be up to `step` too low."""
    exchanges = list(exchanges)
    if not exchanges:
        return None
    low = max(e.received - e.returned for e in exchanges) - step
    high = min(e.received - e.sent for e in exchanges) + step
    return OffsetBounds(low, high) if low <= high else None


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
        exchanges = exchange_stamps(cpu, limit_s)
    except OSError as error:
        text = _UNREACHED_REASON.get(error.errno or 0)
        name = errno.errorcode.get(error.errno or 0, error.errno)
        text = text or f"no thread could be started there ({name})"
        return Offset(cpu, base_cpu, 0, why=text)
    if not exchanges:
        return Offset(cpu, base_cpu, 0, why=f"it did not answer within {limit_s * 1e3:.0f} ms")
    bounds, count, ns = offset_bounds(exchanges, step), len(exchanges), 1e9 / tsc_hz
    if bounds is None:
        text = "no constant offset agrees with all exchanges: one of the clocks was set or runs off"
        return Offset(cpu, base_cpu, count, why=text)
    offset, half_width = (bounds.low + bounds.high) / 2, (bounds.high - bounds.low) / 2
    return Offset(cpu, base_cpu, count, offset, half_width, offset * ns, half_width * ns)


_UNREACHED_REASON = {
    errno.EINVAL: "it went offline, or this process may not run on it",
    errno.EXDEV: "a CPU went offline meanwhile",
}


def exchange_stamps(cpu: int, limit_s: float) -> list[Exchange]:
    """Exchanges messages between the calling thread, which is pinned to a CPU, and a thread on
    `cpu`, for at most `limit_s`. Returns the exchanges. Raises OSError."""
    array: Any = ffi.new("pp_exchange[]", EXCHANGE_COUNT)
    count = check_result(lib.pp_exchange_stamps(cpu, EXCHANGE_COUNT, round(limit_s * 1e9), array))
    return [Exchange(e.sent, e.received, e.returned) for e in array[0:count]]


# --- JSON output ----------------------------------------------------------------------------------


def measure(requested_cpu: int | None) -> dict[str, Any]:
    """Returns the JSON output of `timers`, after measuring for about 2 s. Raises ValueError for a
    CPU that does not exist, and Unavailable for a CPU that cannot be measured."""
    start = time.monotonic()
    rows = topology.require_cpus()
    allowed = sorted(os.sched_getaffinity(0))
    row = affinity.require_cpu(
        lib.pp_current_cpu() if requested_cpu is None else requested_cpu, rows, allowed
    )
    cpu, leaves = row.cpu, affinity.cpuid_leaves(row.cpu)
    cpu_why = "where the measurement was started" if requested_cpu is None else "asked for"
    counts_before = disturbance.read_counts(cpu)
    result = measure_methods(cpu, leaves)
    counts_after = disturbance.read_counts(cpu)
    chosen_cpus = spread_cpus(allowed)
    step, source = result.tsc_step, identity.clocksource()
    offsets = measure_offsets(chosen_cpus, step or 1.0, result.rate.hz)
    note = "CLOCK_MONOTONIC_RAW is derived from this TSC: this is the rate that the kernel assumes"
    uarch = model.select_uarch(identity.read_identity(), leaves)
    return {
        **identity.machine_names(),
        "cpu": cpu,
        "cpu_why": cpu_why,
        "tsc": {
            **asdict(result.rate),
            "note": note if source == "tsc" else None,
            "hello": asdict(result.stream_rate),
            "said": [asdict(rate) for rate in model.tsc_rate_candidates(uarch, leaves, None)],
            "invariant": cpuid.has_feature(leaves, "invariant-tsc"),
            "clocksource": source,
            "step_ticks": step,
            "step_why": None if step is not None else "too few different readings",
        },
        "trimmed": TRIMMED_SHARE,
        "far": DISTURBED_FACTOR,
        "epsilon": EPSILON,
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
        "guarantees": ordering_guarantees(method, leaves),
        "calls": method.calls_per_sample,
        "usable": run.problem is None,
    }
    if run.problem is not None:
        return row | {"why": run.problem.why, "fix": run.problem.fix}
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
    bins = histogram(run.sample_ticks, tsc_step)
    return {
        **{f"{name}_ticks": _round_scaled(value) for name, value in ticks.items()},
        **{f"{name}_ns": _round_scaled(value, 1e9 / hz) for name, value in ticks.items()},
        "note": run.note,
        "samples": samples.count,
        "settled": total_mean.is_stable,
        "far": samples.disturbed_share,
        "histogram": {
            "first_ticks": _round_scaled((bins.first - stamps.mean) / calls),
            "width_ticks": _round_scaled(bins.width / calls),
            "counts": bins.counts,
            "beyond": bins.outlier_count,
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
