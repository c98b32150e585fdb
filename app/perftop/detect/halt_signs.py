"""What else is seen while CPUs stand still, each in seconds of standing still that it explains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from perfprobe.frozen import frozen
from perftop.base.arrays import Floats
from perftop.detect.engine.detector_input import Seen
from perftop.detect.engine.standstill import SMALL_IDLE
from perftop.detect.engine.thermal import Modulation, Thermal
from perftop.model.cores import packages
from perftop.model.sample_reader import Sieve

STEP_HZ = 100e6
"""Step between two clocks of an Intel core since Sandy Bridge. Steps of others are finer."""
BETWEEN = 0.1
"""Share of a step. A core whose mean clock is further from both neighbours has changed its
clock."""
HDC = 0.02
"""Minimum share of reference cycles by which MPERF must be ahead. MPERF may tick by the nameplate
frequency, up to a per cent off the TSC."""
SMI_S = 10e-6, 10e-3
"""Shortest and longest time that one SMI may cost. Entering and leaving alone takes the first; an
operating system would lose ticks by the second."""


@frozen
class Sign:
    cause: str
    confidence: Literal["measured", "inferred"] = "inferred"


SIGNS = {
    "modulation": Sign("modulation", "measured"),
    "thermal": Sign("modulation"),
    "hdc": Sign("hdc"),
    "smi": Sign("smm"),
    "simd": Sign("simd"),
    "pcu": Sign("clock-change", "measured"),
    "between": Sign("clock-change"),
}
"""Causes and how sure they are, in the order in which they are believed."""


class Signs:
    def __init__(self, sieve: Sieve) -> None:
        hello, self._counters = sieve.hello, sieve.counters
        self._rows = len(hello.topology)
        self._package = packages(hello)
        intel = hello.identity is not None and hello.identity.vendor == "GenuineIntel"
        base = hello.base_hz.hz / STEP_HZ if hello.base_hz else 0.5
        self._steps = intel and abs(base - round(base)) < BETWEEN
        self._thermal, self._modulation = Thermal(sieve), Modulation(sieve)

    def explained(self, seen: Seen, share: Floats, span_s: Floats) -> Floats:
        """Seconds of standstill that each sign explains, (SIGNS, CPUs), for CPUs that lose this
        share of a span. 0: none, or the stream has no such sign."""
        lost_s = share * span_s
        found: dict[str, Callable[[], Any]] = {
            "thermal": lambda: lost_s * self._hot(seen),
            "modulation": lambda: span_s * self._modulation.shares(seen),
            "hdc": lambda: span_s * self._forced(seen),
            "smi": lambda: self._stopped_s(seen, share, span_s),
            "simd": lambda: self._moved(seen, "license_throttle") / seen.sample.values["busy_hz"],
            "pcu": lambda: span_s * self._transition(seen),
            "between": lambda: lost_s * self._between(seen),
        }
        with np.errstate(divide="ignore", invalid="ignore"):
            seconds = np.array([found[key]() for key in SIGNS])
        return np.where(np.isfinite(seconds), seconds, 0.0)

    def _moved(self, seen: Seen, key: str) -> Floats:
        moved = self._counters.moved(seen.sample.delta, key)
        return np.full(self._rows, np.nan) if moved is None else moved

    def _share(self, seen: Seen, key: str) -> Floats:
        """Share of the TSC's ticks in the span of its block."""
        column = self._counters.columns.get(key)
        if column is None:
            return np.full(self._rows, np.nan)
        ticks = self._counters.tsc_ticks(seen.sample.delta, column.block)
        return self._moved(seen, key) / ticks

    def _hot(self, seen: Seen) -> Floats:
        most = np.fmax.reduce(self._thermal.shares(seen), axis=0)
        return seen.cores.by_cpu(most)

    def _forced(self, seen: Seen) -> Floats:
        """Under hardware duty cycling MPERF counts on where the reference counter stops."""
        ref = self._share(seen, "ref")
        more = self._share(seen, "mperf") - ref
        return np.where(more >= HDC * ref, more, 0.0)

    def _stopped_s(self, seen: Seen, share: Floats, span_s: Floats) -> Floats:
        """The loss of the CPU that loses least, for an SMI stops all."""
        busy = share[np.isfinite(share) & (seen.sample.values["idle"] < SMALL_IDLE)]
        all_s = span_s * (busy.min() if len(busy) else 0.0)
        each_s = all_s / self._moved(seen, "smi")
        return np.where((each_s >= SMI_S[0]) & (each_s <= SMI_S[1]), all_s, 0.0)

    def _transition(self, seen: Seen) -> Floats:
        delta = seen.sample.delta
        changing, ticks = (
            self._counters.moved(delta, key) for key in ("pcu_transition", "pcu_ticks")
        )
        if changing is None or ticks is None:
            return np.full(self._rows, np.nan)
        return np.asarray(np.append(changing / ticks, np.nan)[self._package])

    def _between(self, seen: Seen) -> Floats:
        if not self._steps:
            return np.zeros(self._rows)
        step = seen.sample.values["busy_hz"] / STEP_HZ
        return np.where(np.abs(step - np.rint(step)) >= BETWEEN, 1.0, 0.0)
