"""Checks of the time-stamp counter: equal on all CPUs, and as fast as hello says."""

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
"""Tolerated offset: much less than a task needs to move between CPUs, so no task sees time go
back."""
STEP = 100.0
"""Upper bound of the TSC's step in ticks: the coarsest known is 24.5. Far below the tolerance."""

Instant = tuple[int, int]
"""Ns of CLOCK_MONOTONIC_RAW, and the TSC."""


def now() -> Instant:
    raw, tsc, _ = tsc_rate.bracket()
    return raw, tsc


def rate(hello: Hello, begin: Instant, end: Instant) -> Iterator[tuple[Check, Seen]]:
    """Checks the rate in use against the rate over this longer time."""
    if hello.tsc_hz is not None:
        counted = (end[1] - begin[1]) / (end[0] - begin[0]) * 1e9
        yield RATE, Seen(hello.topology[0].cpu, counted, hello.tsc_hz.hz, counted)


def same(cpus: Sequence[int], tsc_hz: float) -> Iterator[tuple[Check, Seen]]:
    """Checks the least possible offset of each CPU against the first."""
    for found in tsc_offsets.measure(cpus, STEP, tsc_hz):
        if found.offset_ns is not None and found.error_ns is not None:
            least = max(0.0, abs(found.offset_ns) - found.error_ns) / 1e9
            yield SAME, Seen(found.cpu, 0.0, math.copysign(least, found.offset_ns), SCALE_S)
