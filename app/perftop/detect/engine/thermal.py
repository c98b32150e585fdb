"""How long cores and their packages said that they were too hot, by polled status bits."""

from __future__ import annotations

import numpy as np

from perfprobe.frozen import frozen
from perftop.base.arrays import Floats, Ints
from perftop.detect.engine.detector_input import Seen
from perftop.model.counters import BlockCounter
from perftop.model.sample_reader import Sieve, Verdicts

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


@frozen
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
