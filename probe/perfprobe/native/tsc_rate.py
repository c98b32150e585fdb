"""Measures the rate of the TSC against CLOCK_MONOTONIC_RAW. A bracket is a reading of both clocks
at one moment: raw ns, the TSC, and the width in ticks of the time in which they were read."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from perfprobe._native import lib

if TYPE_CHECKING:
    from perfprobe.wire import Rate

Bracket = tuple[int, int, int]
SPAN_S = 0.04
"""Length of the measurement in s. Brackets of 0.1 us leave an error of a few millionths."""
TRIES = 9
raw_ns = partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC_RAW)
"""Returns ns of CLOCK_MONOTONIC_RAW; a partial, because calls of a Python function are slower."""


_span_start: Bracket | None = None


def start_span() -> None:
    """Starts the measurement that the next `calibrate` ends. Called before modules are imported and
    the source is opened, so that `calibrate` need not sleep for all of SPAN_S: the first message is
    then sent after 70 instead of 105 ms."""
    global _span_start  # noqa: PLW0603 - the process has one start
    _span_start = read_bracket()


def calibrate(span_s: float = SPAN_S) -> Rate:
    """Returns the TSC's rate, measured over `span_s` since `start_span` or, without it, since now.
    Sleeps for the rest of that time."""
    global _span_start
    start, _span_start = _span_start or read_bracket(), None
    time.sleep(max(0.0, span_s - (raw_ns() - start[0]) / 1e9))
    return rate_between(start, read_bracket())


def rate_between(start: Bracket, end: Bracket) -> Rate:
    """Returns the TSC's rate between two brackets, with an error from their widths."""
    from perfprobe.wire import Rate  # imported here, so that `start_span` does not wait for it

    (raw0, tsc0, width0), (raw1, tsc1, width1) = start, end
    elapsed = raw1 - raw0
    hz = (tsc1 - tsc0) / elapsed * 1e9
    seconds = round(elapsed / 1e9, 2)
    origin = f"counted against CLOCK_MONOTONIC_RAW for {seconds} s"
    return Rate(hz, origin, (width0 + width1) / 2 / (tsc1 - tsc0))


def read_bracket() -> Bracket:
    """Returns the narrowest of TRIES brackets; wider ones may have been interrupted."""
    return narrowest_bracket(raw_ns, lib.pp_stamp)


def narrowest_bracket(read_inner: Callable[[], int], read_outer: Callable[[], int]) -> Bracket:
    """Calls `read_inner` between two calls of `read_outer`, TRIES times. Returns from the shortest
    try: the inner value, the middle of the outer values, and their difference."""
    best = (0, 0, 1 << 62)
    for _ in range(TRIES):
        before, value, after = read_outer(), read_inner(), read_outer()
        if after - before < best[2]:
            best = (value, (before + after) // 2, after - before)
    return best


def suspended_ns() -> int:
    """Returns the time in ns for which the machine has been suspended since boot. Under load, a
    single pair of reads can be apart by a whole time slice."""
    read_boot = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
    read_monotonic = partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC)
    boot_ns, monotonic_ns, _ = narrowest_bracket(read_boot, read_monotonic)
    return boot_ns - monotonic_ns
