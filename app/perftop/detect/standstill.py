"""The share of time for which a CPU stood still although the system had work, and its error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.detect.engine import Seen
from perftop.model.counters import BlockCounter
from perftop.model.numbers import INDEX
from perftop.model.sample_reader import Sieve, Verdicts

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

HOT = {
    "thermal": {"thermal", "critical temperature", "running average thermal limit"},
    "prochot": {"PROCHOT"},
}
"""Names of the bits by the cause that they tell."""
FLAGS = "limit_reasons", "package_thermal", "core_thermal"
MODULATED = 1 << 4
"""Bit of register 19AH: the OS, or firmware, has the core stand still part of the time. Bits 3:0
hold the duty in sixteenths. CPUs without CPUID.06H:EAX bit 5 know eighths only, in bits 3:1; bit 0
is reserved there, and 0."""


@dataclass(frozen=True, slots=True)
class _Flags:
    """Bits of one counter that tell one cause."""

    column: BlockCounter
    cause: int
    """Number of the cause in HOT."""
    bits: list[int]
    places: Ints
    """Their columns in the block."""
    by_core: bool


class Thermal:
    def __init__(self, sieve: Sieve) -> None:
        hello, self._counters = sieve.hello, sieve.counters
        scope = {block.name: block.scope for block in hello.blocks}
        self._flags = [
            _Flags(column, cause, bits, column.first + 1 + np.array(bits),
                   scope[column.block] == "core")
            for key in FLAGS
            if (column := sieve.counters.columns.get(key)) is not None
            for cause, names in enumerate(HOT.values())
            if (bits := [i for i, name in enumerate(column.counter.parts) if name in names])
        ]  # fmt: skip

    @property
    def told(self) -> bool:
        """This stream has such bits."""
        return bool(self._flags)

    def any(self, seen: Seen) -> bool:
        """A poll in this sample found one set."""
        return bool(self._flags) and seen.sample.part(self._set)

    def _set(self, among: Verdicts) -> list[bool]:
        tables = among.delta.tables
        found = [
            tables[flags.column.block].moved[..., flags.places].any(axis=(-2, -1))
            for flags in self._flags
        ]
        told: list[bool] = np.logical_or.reduce(found).tolist()
        return told

    def shares(self, seen: Seen) -> Floats:
        """(HOT, cores) share of the polls in this sample that found it; NaN: there were no
        polls."""
        result = np.full((len(HOT), len(seen.cores.lists)), np.nan)
        for flags in self._flags:
            first = flags.column.first
            moved = seen.sample.delta.tables[flags.column.block].moved[:, first:]
            polls = np.where(moved[:, 0] > 0, moved[:, 0], np.nan)
            most = moved[:, [1 + bit for bit in flags.bits]].max(axis=1) / polls
            rows = seen.cores.told if flags.by_core else seen.cores.package
            share = np.append(most, np.nan)[rows]  # row -1: told of nobody
            result[flags.cause] = np.fmax(result[flags.cause], share)
        return result


class Modulation:
    """What register 19AH asks of a CPU, as last read."""

    def __init__(self, sieve: Sieve) -> None:
        self._column = sieve.counters.columns.get("modulation")
        self.told = self._column is not None
        """This stream has the register."""
        self._rows = len(sieve.hello.topology)

    def any(self, seen: Seen) -> bool:
        """Whether the register of any CPU is not 0."""
        return self.told and seen.sample.part(self._set)

    def _set(self, among: Verdicts) -> list[bool]:
        assert self._column is not None
        moved = among.delta.tables[self._column.block].moved[..., self._column.first]
        told: list[bool] = np.any(moved, axis=-1).tolist()
        return told

    def shares(self, seen: Seen) -> Floats:
        """Share of the time that each CPU is to stand still, by position; 0: none is asked for."""
        if self._column is None:
            return np.full(self._rows, np.nan)
        table = seen.sample.delta.tables[self._column.block]
        with np.errstate(divide="ignore", invalid="ignore"):
            level = np.rint(table.moved[:, self._column.first] / table.ticks)
        known = np.isfinite(level)
        bits = np.where(known, level, 0).astype(int)
        duty = (bits & 15) / 16
        # No duty at all is reserved: nobody says what it does.
        asked = np.where((bits & MODULATED != 0) & (duty > 0), 1 - duty, 0.0)
        return np.where(known, asked, np.nan)
