"""Measures the frequency of the TSC against this machine's clock."""

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
"""Length of the measurement. Brackets are some 0.1 us wide, so the error of the rate is a few parts
in a million."""
TRIES = 9
raw_ns = partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC_RAW)
"""Returns ns of CLOCK_MONOTONIC_RAW. It is a partial, because the call of a Python function would
make brackets wider."""


_span_start: Bracket | None = None


def start_span() -> None:
    """Starts the span of the next `calibrate`, so that it need not sleep through the whole span. A
    probe calls this before it imports modules and opens its source: otherwise its first message
    would be sent after 105 instead of 70 ms."""
    global _span_start  # noqa: PLW0603 - its start is a fact of the process
    _span_start = read_bracket()


def calibrate(span_s: float = SPAN_S) -> Rate:
    """Returns the TSC ticks in a second of CLOCK_MONOTONIC_RAW; the widths of the brackets give the
    error. Sleeps for the rest of `span_s`."""
    global _span_start
    start, _span_start = _span_start or read_bracket(), None
    time.sleep(max(0.0, span_s - (raw_ns() - start[0]) / 1e9))
    return rate_between(start, read_bracket())


def rate_between(start: Bracket, end: Bracket) -> Rate:
    """Returns the rate between two brackets."""
    from perfprobe.wire import Rate  # imported here, so that `start_span` does not wait for it

    (raw0, tsc0, width0), (raw1, tsc1, width1) = start, end
    elapsed = raw1 - raw0
    hz = (tsc1 - tsc0) / elapsed * 1e9
    seconds = round(elapsed / 1e9, 2)
    origin = f"counted against CLOCK_MONOTONIC_RAW for {seconds} s"
    return Rate(hz, origin, (width0 + width1) / 2 / (tsc1 - tsc0))


def read_bracket() -> Bracket:
    """Raw ns, the TSC at that moment and the bracket's width in ticks. Returns the narrowest of
    TRIES brackets, because an interrupted read has a wide bracket."""
    return narrowest_bracket(raw_ns, lib.pp_stamp)


def narrowest_bracket(inner: Callable[[], int], outer: Callable[[], int]) -> Bracket:
    """Reads `inner` between two reads of `outer`, TRIES times. Returns the inner value, the outer
    value at that moment and the outer width of the narrowest try."""
    best = (0, 0, 1 << 62)
    for _ in range(TRIES):
        before, value, after = outer(), inner(), outer()
        if after - before < best[2]:
            best = (value, (before + after) // 2, after - before)
    return best


def suspended_ns() -> int:
    """Returns how long the machine has been suspended since boot, in ns; the other clocks stopped
    then."""
    monotonic = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - monotonic
