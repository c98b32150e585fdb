"""Methods of reading the time or a counter: the order of instructions that each guarantees, whether
it is available, and repeated runs of all methods on one CPU. A method that reads the TSC is a
stamp; the calls of any other method are timed by stamps before and after them."""

from __future__ import annotations

import contextlib
import errno
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import sub
from pathlib import Path
from typing import Any, Literal

from perfprobe._native import ffi, lib
from perfprobe.cpu import cpuid, identity
from perfprobe.cpu.cpuid import EAX, EDX, EXTENDED_LEAVES, Leaves
from perfprobe.cpu.model import AMD
from perfprobe.errors import Unavailable, check_result, error_sentence
from perfprobe.instruments.measurement import (
    Counts,
    RepeatedMean,
    RepeatLimits,
    combined_mean,
    common_step,
    repeat_until_stable,
    trimmed_mean,
)
from perfprobe.kernel.access import Trouble
from perfprobe.native import tsc_rate
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
    """The resource that the method needs: a key of `_OPENERS`; '': none."""


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


def _open_rdtscp(_cpu: int, leaves: Leaves, _stack: contextlib.ExitStack) -> Resource:
    registers = cpuid.read_leaf(leaves, EXTENDED_LEAVES | 0x01)
    if registers is None or not registers[EDX] >> 27 & 1:
        raise RefusedError(Trouble("this CPU, or its hypervisor, has no RDTSCP"))
    return None, {}


def _open_page(cpu: int, _leaves: Leaves, stack: contextlib.ExitStack) -> Resource:
    group = perf_pmus.open_core_event(Path("/"), cpu, perf_events.INSTRUCTIONS, by_rdpmc=True)
    stack.callback(group.close)
    return "instructions", {"arg": group.address}


def _open_perf(cpu: int, _leaves: Leaves, stack: contextlib.ExitStack) -> Resource:
    note = "instructions"
    try:
        group = perf_pmus.open_core_event(Path("/"), cpu, perf_events.INSTRUCTIONS)
    except RefusedError as refused:
        reason = f"instructions cannot be read ({refused.trouble.why})"
        note = f"cpu-clock, a software event: {reason}"
        group = perf_events.open_event(Kernel(), CPU_CLOCK, cpu)
    stack.callback(group.close)
    return note, {"arg": group.address}


def _open_msr(cpu: int, _leaves: Leaves, stack: contextlib.ExitStack) -> Resource:
    try:
        registers = stack.enter_context(msr.Registers(Path("/"), cpu))
        registers.read(msr.TSC)
    except msr.MsrError as error:
        raise RefusedError(Trouble(error.cause, error.fix)) from None
    return f"{msr.register_name(msr.TSC)}, the TSC", {"fd": registers.fd, "arg": msr.TSC}


_OPENERS: dict[str, Callable[[int, Leaves, contextlib.ExitStack], Resource]] = {
    "rdtscp": _open_rdtscp, "page": _open_page, "perf": _open_perf, "msr": _open_msr,
}  # fmt: skip


def ordering_guarantees(method: Method, leaves: Leaves) -> str | None:
    if method.value_unit == "ns" and method.guarantees == _VDSO_GUARANTEE:
        source = identity.clocksource()
        return (
            _VDSO_GUARANTEE if source == "tsc" else f"not known of the clock source {source or '?'}"
        )
    if "lfence" in method.name and cpuid.vendor(leaves) in AMD:
        registers = cpuid.read_leaf(leaves, EXTENDED_LEAVES | 0x21)
        if registers is None or not registers[EAX] >> 2 & 1:
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
    trouble: Trouble | None = None
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
        usable_runs = (run for run in self.method_runs if run.trouble is None)
        return common_step(tick for run in usable_runs for tick in run.sample_ticks)


def measure_methods(cpu: int, leaves: Leaves, methods: Sequence[Method] = METHODS) -> Measurement:
    """Measures the methods on one CPU. Raises Unavailable if no code can run on that CPU."""
    try:
        with contextlib.ExitStack() as stack, pinned_to(cpu):
            began = tsc_rate.read_bracket()
            hello = tsc_rate.calibrate()
            empty_run = _open_run(BRACKET, cpu, leaves, stack)
            rows = [_open_run(method, cpu, leaves, stack) for method in methods]
            for _ in range(PASSES):
                for run in (empty_run, *rows):
                    if run.trouble is not None:
                        continue
                    try:
                        _measure(run)
                    except OSError as error:
                        if error.errno == errno.EXDEV:  # the CPU went offline during the run
                            raise
                        run.trouble = Trouble(f"it failed while it ran: {error.strerror}")
            return Measurement(
                empty_run, rows, hello, tsc_rate.rate_between(began, tsc_rate.read_bracket())
            )
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
            note, timer_fields = _OPENERS[method.resource](cpu, leaves, stack)
        except RefusedError as refused:
            return MethodRun(method, trouble=refused.trouble)
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
