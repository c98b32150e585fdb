"""Methods to read the time or a count: the order that each guarantees, whether it is available, and
repeated runs of all methods on one CPU."""

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
from perfprobe.cpu.cpuid import EAX, EDX, EXTENDED, Leaves
from perfprobe.cpu.model import AMD
from perfprobe.errors import Unavailable, check_result, error_sentence
from perfprobe.instruments.measurement import (
    Counts,
    Limits,
    RepeatedMean,
    combined_mean,
    common_step,
    repeat_until_settled,
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
FAST_CALLS = 8
"""Calls in a sample of a method that takes no longer than the stamps around the calls."""

Answers = Literal["ticks", "ns", "count"]


@dataclass(frozen=True, slots=True)
class Method:
    name: str
    kind: int
    guarantees: str | None
    """The guaranteed order of instructions; None if not documented."""
    answers: Answers = "ticks"
    calls: int = 1
    clock: int = 0
    needs: str = ""
    """The resource that the method needs: a key of `_OPENERS`; '': none."""


_EARLIER_DONE = "earlier instructions are done"
_LATER_MAY_START = "later ones may start before it"
_VDSO_ORDER = f"{_EARLIER_DONE}, {_LATER_MAY_START}: the kernel uses RDTSCP or LFENCE;RDTSC"

METHODS = (
    Method("rdtsc", lib.PP_TIMER_RDTSC, "none: may move before earlier and after later ones"),
    Method("rdtscp", lib.PP_TIMER_RDTSCP,
           f"{_EARLIER_DONE}, their loads visible; {_LATER_MAY_START}", needs="rdtscp"),
    Method("lfence;rdtsc", lib.PP_TIMER_LFENCE_RDTSC, f"{_EARLIER_DONE}; {_LATER_MAY_START}"),
    Method("rdtscp;lfence", lib.PP_TIMER_RDTSCP_LFENCE,
           f"{_EARLIER_DONE}, their loads visible; later ones wait", needs="rdtscp"),
    Method("mfence;lfence;rdtsc", lib.PP_TIMER_MFENCE_LFENCE_RDTSC,
           f"{_EARLIER_DONE}, their loads and stores visible; {_LATER_MAY_START}"),
    Method("cpuid;rdtsc", lib.PP_TIMER_CPUID_RDTSC,
           f"CPUID serialises: {_EARLIER_DONE}, their stores visible; {_LATER_MAY_START}"),
    Method("MONOTONIC", lib.PP_TIMER_CLOCK, _VDSO_ORDER, "ns", FAST_CALLS, time.CLOCK_MONOTONIC),
    Method("MONOTONIC_RAW", lib.PP_TIMER_CLOCK, _VDSO_ORDER, "ns", FAST_CALLS,
           time.CLOCK_MONOTONIC_RAW),
    Method("MONOTONIC_COARSE", lib.PP_TIMER_CLOCK,
           "none: reads what the kernel wrote at its last timer tick", "ns", FAST_CALLS,
           CLOCK_MONOTONIC_COARSE),
    Method("empty system call", lib.PP_TIMER_SYSCALL, None, "count"),
    Method("rdpmc (perf page)", lib.PP_TIMER_PERF_PAGE, "none: RDPMC may move as RDTSC may",
           "count", FAST_CALLS, needs="page"),
    Method("perf read(2)", lib.PP_TIMER_PERF_READ, None, "count", needs="perf"),
    Method("MSR read", lib.PP_TIMER_MSR, None, "count", needs="msr"),
)  # fmt: skip
"""All methods, in the order of the printed table. Methods with a clock use clock_gettime."""
BRACKET = Method("bracket", lib.PP_TIMER_NOTHING, None)


@dataclass(frozen=True, slots=True)
class Timer:
    """A method that is ready to run. The stack that it was opened with owns its resources."""

    handle: Any
    note: str | None = None
    """What the method reads, if its name does not show that."""


def open_timer(method: Method, cpu: int, leaves: Leaves, stack: contextlib.ExitStack) -> Timer:
    """Opens a method. Raises RefusedError if the method is not available here."""
    fields = {"kind": method.kind, "calls": method.calls, "fd": -1, "arg": method.clock}
    note = None
    if method.needs:
        note, more = _OPENERS[method.needs](cpu, leaves, stack)
        fields |= more
    return Timer(ffi.new("pp_timer *", fields), note)


Resource = tuple[str | None, dict[str, int]]
"""What the method reads, if its name does not show that, and fields of pp_timer."""


def _open_rdtscp(_cpu: int, leaves: Leaves, _stack: contextlib.ExitStack) -> Resource:
    registers = cpuid.leaf(leaves, EXTENDED | 0x01)
    if registers is None or not registers[EDX] >> 27 & 1:
        raise RefusedError(Trouble("this CPU, or its hypervisor, has no RDTSCP"))
    return None, {}


def _open_page(cpu: int, _leaves: Leaves, stack: contextlib.ExitStack) -> Resource:
    group = perf_pmus.open_core_event(Path("/"), cpu, perf_events.INSTRUCTIONS, direct=True)
    stack.callback(group.close)
    return "instructions", {"arg": group.address}


def _open_perf(cpu: int, _leaves: Leaves, stack: contextlib.ExitStack) -> Resource:
    note = "instructions"
    try:
        group = perf_pmus.open_core_event(Path("/"), cpu, perf_events.INSTRUCTIONS)
    except RefusedError as refused:
        why = f"instructions cannot be read ({refused.trouble.why})"
        note = f"cpu-clock, a software event: {why}"
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


def guarantees(method: Method, leaves: Leaves) -> str | None:
    if method.answers == "ns" and method.guarantees == _VDSO_ORDER:
        source = identity.clocksource()
        return _VDSO_ORDER if source == "tsc" else f"not known of the clock source {source or '?'}"
    if "lfence" in method.name and cpuid.vendor(leaves) in AMD:
        registers = cpuid.leaf(leaves, EXTENDED | 0x21)
        if registers is None or not registers[EAX] >> 2 & 1:
            return f"{method.guarantees}; if LFENCE serialises, as Linux has it on AMD"
    return method.guarantees


# --- runs -----------------------------------------------------------------------------------------

EPSILON = 0.001
MAX_PASSES = 5
"""Number of times that each method is measured, spread out so that slow drift shows in its
error."""
WARM_S = 0.01
"""Time in s for which the same instructions run before each measurement: a core may need this long
to reach its clock."""
LIMITS = Limits(max_s=0.03, max_count=1_000_000, max_round_s=0.004, min_s=0.012)
"""Limits of a method in one pass; all methods and passes then take some 2 s. `min_s` is three
ticks of a 250 Hz timer."""


@dataclass(slots=True, eq=False)
class Run:
    """One method's samples."""

    method: Method
    timer: Timer
    ticks: Counts = field(default_factory=Counter)
    """TSC ticks of a sample: all its calls, and the stamps around the calls unless the method is a
    stamp itself."""
    steps: Counts = field(default_factory=Counter)
    """Differences between consecutive answers."""
    pass_means: list[RepeatedMean] = field(default_factory=list)
    """The mean of each pass."""
    trouble: Trouble | None = None
    """The reason why the method is not available, or failed while it ran."""

    @property
    def repeated_mean(self) -> RepeatedMean:
        return combined_mean(self.pass_means)


@dataclass(frozen=True, slots=True)
class Measurement:
    bracket: Run
    """The cost of the stamps around calls of methods that are not stamps themselves."""
    rows: list[Run]
    stream_rate: Rate
    """The TSC's rate as measured for the hello of a stream."""
    rate: Rate
    """The TSC's rate over the whole measurement."""

    @property
    def grid(self) -> float | None:
        """The step of the TSC in ticks, from all differences of stamps."""
        return common_step(tick for run in self.rows if run.trouble is None for tick in run.ticks)


def measure_methods(cpu: int, leaves: Leaves, wanted: Sequence[Method] = METHODS) -> Measurement:
    """Runs the methods on one CPU, because TSCs may differ. Raises Unavailable if the CPU cannot be
    measured."""
    try:
        with contextlib.ExitStack() as stack, pinned_to(cpu):
            began = tsc_rate.read_bracket()
            hello = tsc_rate.calibrate()
            bracket = Run(BRACKET, open_timer(BRACKET, cpu, leaves, stack))
            rows = [_open_run(method, cpu, leaves, stack) for method in wanted]
            for _ in range(MAX_PASSES):
                for run in (bracket, *rows):
                    if run.trouble is not None:
                        continue
                    try:
                        _measure(run)
                    except OSError as error:
                        if error.errno == errno.EXDEV:  # the CPU went offline during the run
                            raise
                        run.trouble = Trouble(f"it failed while it ran: {error.strerror}")
            return Measurement(
                bracket, rows, hello, tsc_rate.rate_between(began, tsc_rate.read_bracket())
            )
    except OSError as error:
        went_offline = error.errno == errno.EXDEV
        why = "it went offline meanwhile" if went_offline else error_sentence(error)
        raise Unavailable(f"nothing can be measured on CPU {cpu}: {why}") from None


def _open_run(method: Method, cpu: int, leaves: Leaves, stack: contextlib.ExitStack) -> Run:
    try:
        return Run(method, open_timer(method, cpu, leaves, stack))
    except RefusedError as refused:
        return Run(method, Timer(None), trouble=refused.trouble)


def _measure(run: Run) -> None:
    ticks, values = (ffi.new("uint64_t[]", LIMITS.max_size) for _ in range(2))

    def burst(size: int) -> None:
        check_result(lib.pp_timer_run(run.timer.handle, size, ticks, values))

    def measure(size: int) -> float:
        burst(size)
        took: Any = ffi.unpack(ticks, size)
        run.ticks.update(took)
        if run.method.answers == "ns":
            answers: Any = ffi.unpack(values, size)
            run.steps.update(map(sub, answers[1:], answers))
        return trimmed_mean(took)

    warm = time.monotonic() + WARM_S
    while time.monotonic() < warm:
        burst(LIMITS.first_size)
    run.pass_means.append(repeat_until_settled(measure, EPSILON, LIMITS))
