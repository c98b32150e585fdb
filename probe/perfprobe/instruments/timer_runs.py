"""Runs the timer methods repeatedly on one CPU and keeps their samples."""

from __future__ import annotations

import contextlib
import errno
import time
from collections import Counter
from collections.abc import Sequence
from operator import sub
from typing import Any

from perfprobe._native import ffi, lib
from perfprobe.cpu.cpuid import Leaves
from perfprobe.errors import Unavailable, checked
from perfprobe.frozen import field, frozen, slotted
from perfprobe.instruments import timer_methods
from perfprobe.instruments.distribution import Counts, step, trimmed_mean
from perfprobe.instruments.repetition import Limits, Repeated, repeat, together
from perfprobe.instruments.timer_methods import BRACKET, Method, Timer
from perfprobe.kernel.access import Trouble
from perfprobe.kernel.perf_events import Refused
from perfprobe.native import tsc_rate
from perfprobe.native.affinity import pinned
from perfprobe.wire import Rate

EPSILON = 0.001
PASSES = 5
"""Each method is measured this many times, spread out so that slow drift enters its error."""
WARM_S = 0.01
"""Time for which the same instructions run before each measurement: a core may take this long to
reach its clock."""
LIMITS = Limits(seconds=0.03, count=1_000_000, longest_s=0.004, least_s=0.012)
"""Limits of a method in one pass; all methods and passes then take some 2 s. `least_s` is three
ticks of a 250 Hz timer."""


@slotted
class Run:
    """One method's samples."""

    method: Method
    timer: Timer
    ticks: Counts = field(default_factory=Counter)
    """TSC ticks of a sample: all its calls, and the stamps around them unless the method is a stamp
    itself."""
    steps: Counts = field(default_factory=Counter)
    """Differences between consecutive answers."""
    parts: list[Repeated] = field(default_factory=list)
    """One for each pass."""
    trouble: Trouble | None = None
    """Why it is not available, or failed while it ran."""

    @property
    def repeated(self) -> Repeated:
        return together(self.parts)


@frozen
class Measured:
    bracket: Run
    """The cost of the stamps around methods that are no stamps themselves."""
    rows: list[Run]
    hello: Rate
    """The TSC's rate as a stream would measure it."""
    hz: Rate
    """The TSC's rate over the whole measurement."""

    @property
    def grid(self) -> float | None:
        """The step of the TSC in ticks, from all differences of stamps."""
        return step(tick for run in self.rows if run.trouble is None for tick in run.ticks)


def measured(cpu: int, its: Leaves, wanted: Sequence[Method] = timer_methods.METHODS) -> Measured:
    """Runs the methods on one CPU, because TSCs may differ. Raises Unavailable if the CPU cannot be
    measured."""
    try:
        with contextlib.ExitStack() as stack, pinned(cpu):
            began = tsc_rate.bracket()
            hello = tsc_rate.calibrate()
            bracket = Run(BRACKET, timer_methods.opened(BRACKET, cpu, its, stack))
            rows = [_opened(method, cpu, its, stack) for method in wanted]
            for _ in range(PASSES):
                for run in (bracket, *rows):
                    if run.trouble is None:
                        _attempt(run)
            return Measured(bracket, rows, hello, tsc_rate.between(began, tsc_rate.bracket()))
    except OSError as error:
        gone = error.errno == errno.EXDEV
        why = "it went off meanwhile" if gone else error.strerror or str(error)
        raise Unavailable(f"nothing can be measured on CPU {cpu}: {why}") from None


def _opened(method: Method, cpu: int, its: Leaves, stack: contextlib.ExitStack) -> Run:
    try:
        return Run(method, timer_methods.opened(method, cpu, its, stack))
    except Refused as refused:
        return Run(method, Timer(None), trouble=refused.trouble)


def _attempt(run: Run) -> None:
    try:
        _measure(run)
    except OSError as error:
        if error.errno == errno.EXDEV:  # the CPU went off: no fault of this method
            raise
        run.trouble = Trouble(f"it failed while it ran: {error.strerror}")


def _measure(run: Run) -> None:
    ticks, values = (ffi.new("uint64_t[]", LIMITS.most) for _ in range(2))

    def burst(size: int) -> None:
        checked(lib.pp_timer_run(run.timer.handle, size, ticks, values))

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
        burst(LIMITS.first)
    run.parts.append(repeat(measure, EPSILON, LIMITS))
