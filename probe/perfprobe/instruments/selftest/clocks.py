"""The time-stamp counter: the same on all CPUs, and as fast as hello says."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from perfprobe.instruments import tsc_offsets
from perfprobe.instruments.selftest.verdict import Check, Seen
from perfprobe.native import tsc_rate
from perfprobe.wire import Hello

SAME = Check("tsc", "the same on all CPUs", "s", 1.0,
             "it is bounded by messages there and back, some 0.1 µs each")  # fmt: skip
RATE = Check("tsc", "against CLOCK_MONOTONIC_RAW all through this test", "Hz", 5e-5,
             "the rate in use was counted for some 50 ms")  # fmt: skip
SCALE_S = 1e-6
"""Much less than a task takes to get from CPU to CPU, so nobody sees time go back."""
STEP = 100.0
"""Ticks in which a TSC moves, at most: 24.5 are the coarsest known. Beside the tolerance little."""

Instant = tuple[int, int]
"""Raw ns and TSC."""


def now() -> Instant:
    raw, tsc, _ = tsc_rate.bracket()
    return raw, tsc


def rate(hello: Hello, begin: Instant, end: Instant) -> Iterator[tuple[Check, Seen]]:
    """What is used is measured against what this longer time says."""
    if hello.tsc_hz is not None:
        counted = (end[1] - begin[1]) / (end[0] - begin[0]) * 1e9
        yield RATE, Seen(hello.topology[0].cpu, counted, hello.tsc_hz.hz, counted)


def same(cpus: Sequence[int], tsc_hz: float) -> Iterator[tuple[Check, Seen]]:
    """How far each is off the first, at least."""
    for found in tsc_offsets.measure(cpus, STEP, tsc_hz):
        if found.offset_ns is not None and found.error_ns is not None:
            least = max(0.0, abs(found.offset_ns) - found.error_ns) / 1e9
            yield SAME, Seen(found.cpu, 0.0, math.copysign(least, found.offset_ns), SCALE_S)
