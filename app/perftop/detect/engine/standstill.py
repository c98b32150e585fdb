"""The share of time for which a CPU stood still although the system had work, and its error."""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Bools, Floats
from perftop.detect.engine.detector_input import Seen
from perftop.model.metrics import INDEX
from perftop.model.sample_reader import Sieve

SMALL_IDLE = 0.05
"""Share of the time. So little idle time cannot hide or make much, however it was measured."""
READ_S = 20e-6
"""Longest reading of a row: its counters lie up to this far apart. Rows that take longer are read
again, or left out."""
ENTRY_S, IDLE_ERROR = 2e-6, 0.1
"""cpuidle rounds each idle period to a microsecond at both ends. Where these are not counted:
hardly any is shorter than 20 us. Its other error is that it books the way into an idle state and
out of it as idle, by which less seems lost than is."""
ROBBED_NS = 60_000_000_000
"""Time after a stolen tick in which the hypervisor may have taken most of the next one."""


class Standstill:
    def __init__(self, sieve: Sieve) -> None:
        rows = len(sieve.hello.topology)
        self._counters = sieve.counters
        self._guest = sieve.hello.virtualisation is not None
        self._exact: Bools = np.zeros(rows, bool)
        for variant, mask in sieve.evaluator.chosen["involuntary"]:
            if "busy_s" in variant.needs:
                self._exact |= mask
        self._entries = sieve.counters.columns.get("idle_entries")
        self._robbed_ns = np.full(rows, -ROBBED_NS)

    def any(self, seen: Seen, least: float) -> bool:
        """Whether any CPU loses this share. Must be called with every sample, for it remembers
        which CPUs were robbed."""
        highest = seen.sample.highest
        if highest.steal > 0:
            self._robbed_ns[seen.sample.values["steal"] > 0] = seen.time_ns
        return highest.involuntary >= least

    def shares(self, seen: Seen) -> tuple[Floats, Floats, Floats]:
        """By position of the CPU: the share, NaN where it means nothing, and below 0 where an error
        is the other way; the seconds it is of; and in seconds (3, CPUs) how much of it idle, the
        reading and steal may have made."""
        values = seen.sample.values
        idle = values["idle"]
        lost_s, span_s = (part[INDEX["involuntary"]] for part in (values.top, values.bottom))
        means = self._exact | (idle < SMALL_IDLE)
        if self._entries is not None:
            means |= np.isfinite(idle)
        robbed = self._guest | (seen.time_ns - self._robbed_ns < ROBBED_NS)
        error = [self._idle_s(seen, idle * span_s), np.full(len(idle), READ_S), TICK_S * robbed]
        known = means & (span_s > 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(known, lost_s / span_s, np.nan)
        return share, np.where(known, span_s, 0.0), np.array(error)

    def _idle_s(self, seen: Seen, idle_s: Floats) -> Floats:
        if self._entries is None:
            guessed = IDLE_ERROR * idle_s
        else:
            table = seen.sample.delta.tables[self._entries.block]
            guessed = ENTRY_S * table.moved[:, self._entries.first]
        return np.where(self._exact | ~np.isfinite(guessed), 0.0, np.minimum(guessed, idle_s))


TICK_S = 0.01
"""Unit of /proc/stat on every x86 kernel, whatever the kernel's own tick is."""
