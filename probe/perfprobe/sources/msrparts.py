"""Registers as parts of what a CPU's thread reads."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfprobe import cpuid, msr
from perfprobe.cpuid import Leaves
from perfprobe.msr import MsrError, Registers
from perfprobe.pmu import METHODS, Plan
from perfprobe.programmer import Programmer
from perfprobe.sampler import MSR, Slot
from perfprobe.uarch_facts import Uarch
from perfprobe.wire import Counter, Missing, Scope

SMI_COUNT = 0x34
INTEL = "GenuineIntel"


@dataclass(frozen=True, slots=True)
class Reading:
    """A register as a counter."""

    counter: Counter
    register: int


class ReadOnly:
    """Registers that are only ever read, from descriptors that cannot write."""

    def __init__(self, root: Path, scope: Scope, table: Mapping[int, Sequence[Reading]]) -> None:
        """`table` by CPU: on hybrids they differ."""
        self.scope: Scope = scope
        self.counters = _counters(table)
        self.missing: list[Missing] = []
        self._root, self._table = root, table
        self._columns = {counter.key: i for i, counter in enumerate(self.counters)}
        self._open: dict[int, Registers] = {}

    def open(self, cpu: int) -> list[Slot]:
        readings = self._table.get(cpu, ())
        device = self._device(cpu) if readings else None
        if device is None:
            return []
        columns = self._columns
        return [Slot(MSR, columns[r.counter.key], device.fd, r.register) for r in readings]

    def _device(self, cpu: int) -> Registers | None:
        if cpu not in self._open:
            with contextlib.suppress(MsrError):
                self._open[cpu] = Registers(self._root, cpu)
        return self._open.get(cpu)

    def shut(self, cpu: int) -> None:
        device = self._open.pop(cpu, None)
        if device is not None:
            device.close()

    def close(self) -> None:
        for cpu in list(self._open):
            self.shut(cpu)


class Programmed(ReadOnly):
    """Counters that were programmed for us."""

    def __init__(
        self, root: Path, table: Mapping[int, Sequence[Reading]], programmer: Programmer
    ) -> None:
        super().__init__(root, "cpu", table)
        self.cpus = list(table)
        self.programmer = programmer
        self.told: list[str] = []
        """What could not be restored; known once it is closed."""

    def _device(self, cpu: int) -> Registers | None:
        return self.programmer.device(cpu)

    def shut(self, cpu: int) -> None:
        self.programmer.shut(cpu)

    def close(self) -> None:
        self.told += self.programmer.end()


def _counters(table: Mapping[int, Sequence[Reading]]) -> list[Counter]:
    """Each once; with the CPUs that have it, where not all of the table do."""
    found: dict[str, Counter] = {}
    having: dict[str, list[int]] = {}
    for cpu, readings in table.items():
        for reading in readings:
            found.setdefault(reading.counter.key, reading.counter)
            having.setdefault(reading.counter.key, []).append(cpu)
    return [
        counter if len(having[key]) == len(table) else replace(counter, cpus=sorted(having[key]))
        for key, counter in found.items()
    ]


# --- what a model has -----------------------------------------------------------------------------


_NAMES = {
    "ref": "reference cycles",
    "kernel_cycles": "kernel cycles",
    "kernel_instructions": "kernel instructions",
    "mperf": "MPERF",
    "aperf": "APERF",
    "smi": "SMIs",
}
_UNITS = {
    **dict.fromkeys(("ref", "cycles", "kernel_cycles", "mperf", "aperf"), "cycles"),
    **dict.fromkeys(("instructions", "kernel_instructions"), "instructions"),
}


def _counter(key: str, origin: str, *, bits: int = 64, scale: float = 1.0) -> Counter:
    name = _NAMES.get(key, key.replace("_", " "))
    return Counter(key, name, _UNITS.get(key, "1"), origin, bits=bits, scale=scale)


_ORDER = ("ref", *METHODS.values(), "cycles", "kernel_cycles", "instructions")
"""Of reading: what is divided by each other lies close together. Others follow."""


def programmed(plan: Plan) -> list[Reading]:
    rank = {key: i for i, key in enumerate(_ORDER)}
    counted = sorted(plan.counted, key=lambda c: rank.get(c.key, len(rank)))
    return [Reading(_counter(c.key, c.origin, bits=c.bits), c.register) for c in counted]


def tsc() -> Reading:
    """Under a sysroot: stamps are of another clock there."""
    return Reading(Counter("tsc", "time-stamp counter", "cycles", msr.name(msr.TSC)), msr.TSC)


def clocks(uarch: Uarch) -> list[Reading]:
    found = uarch.clocks
    if found is None:
        return []
    return [
        Reading(_counter(key, msr.name(register), scale=float(1 << found.shift)), register)
        for key, register in (("mperf", found.mperf), ("aperf", found.aperf))
    ]


def stand_ins(uarch: Uarch, counted: set[str]) -> list[Reading]:
    """MPERF and APERF for counters of the same rate that are not programmed."""
    found = uarch.clocks
    if found is None or uarch.uses_base_clock_for_aperf:
        return []
    return [
        Reading(_counter(key, f"{name}, {msr.name(r)}", scale=float(1 << found.shift)), r)
        for key, name, r in (("ref", "MPERF", found.mperf), ("cycles", "APERF", found.aperf))
        if key not in counted
    ]


def smi(uarch: Uarch) -> list[Reading]:
    if uarch.vendor != INTEL or not uarch.clocks:
        return []
    return [Reading(_counter("smi", msr.name(SMI_COUNT), bits=32), SMI_COUNT)]


def residencies(uarch: Uarch, scope: Scope) -> list[Reading]:
    return [
        Reading(Counter(f"{scope}_{r.name}", f"{scope} {r.name}", "cycles", msr.name(r.msr)), r.msr)
        for r in uarch.residencies
        if r.scope == scope and r.tick == "tsc"
    ]


def thermal(uarch: Uarch, leaves: Leaves, scope: Scope) -> list[Reading]:
    """The status registers as they are; bits as in Uarch.thermal."""
    found = uarch.thermal
    register = None if found is None else found.core if scope == "core" else found.package
    if register is None or not cpuid.has(leaves, "thermal"):
        return []
    key = f"{scope}_thermal_status"
    counter = Counter(key, f"{scope} thermal status", "1", msr.name(register), "gauge")
    return [Reading(counter, register)]


def readable(device: Registers, readings: Sequence[Reading]) -> tuple[list[Reading], list[str]]:
    """Those that this CPU really has, and the keys of the others."""
    there, lost = [], []
    for reading in readings:
        try:
            device.read(reading.register)
        except MsrError:
            lost.append(reading.counter.key)
        else:
            there.append(reading)
    return there, lost
