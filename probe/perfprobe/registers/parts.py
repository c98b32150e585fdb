"""Parts (see machine/parts.py) whose counters are MSRs, by CPU model and core type."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfprobe._native import lib
from perfprobe.cpu import cpuid, model
from perfprobe.cpu.cpuid import Leaves
from perfprobe.cpu.model import INTEL
from perfprobe.cpu.model_terms import Uarch
from perfprobe.machine.parts import restrict_to_cpus
from perfprobe.native import affinity
from perfprobe.native.sampler import MsrField, MsrFlagCounts, Slot
from perfprobe.registers import msr
from perfprobe.registers.msr import MsrError, Registers
from perfprobe.wire import Counter, Cpu, Identity, Missing, Scope, with_columns


@dataclass(frozen=True, slots=True)
class CpuKind:
    """The CPUs of one core type, their microarchitecture and CPUID leaves."""

    cpus: list[int]
    online: list[int]
    uarch: Uarch
    leaves: Leaves


def cpu_kinds(
    root: Path, rows: Sequence[Cpu], identity: Identity, method: str | None
) -> Iterator[CpuKind]:
    """Yields a kind for each core type; a single kind also has the offline CPUs."""
    types = sorted({row.type or "" for row in rows if row.online})
    for name in types:
        members = [row for row in rows if (row.type or "") == name or len(types) == 1]
        online = [row.cpu for row in members if row.online]
        first = online[0]
        leaves: Leaves = (
            cpuid.leaves_from_driver(root, first)
            if root != Path("/")
            else affinity.cpuid_leaves(first)
        )
        uarch = model.select_uarch(identity, leaves, name or None, method)
        yield CpuKind([row.cpu for row in members], online, uarch, leaves)


# --- parts ----------------------------------------------------------------------------------------

SMI_COUNT = 0x34
UNREADABLE_REASON = "this CPU does not have the register, or its hypervisor hides it"


@dataclass(frozen=True, slots=True)
class Reading:
    """A counter that is read from an MSR: the register, a bit field, or polls of masked bits."""

    counter: Counter
    register: int
    field: MsrField | None = None
    mask: int = 0


class RegisterPart:
    """A part whose counters are MSRs, read through read-only descriptors."""

    def __init__(self, root: Path, scope: Scope, table: Mapping[int, Sequence[Reading]]) -> None:
        """`table`: the readings of each CPU; on hybrids they differ."""
        self.scope: Scope = scope
        self.counters = _counters(table)
        self.missing: list[Missing] = []
        self._root, self._table = root, table
        self._columns = {counter.key: first for first, counter in with_columns(self.counters)}
        self._open: dict[int, Registers] = {}
        self._polled: dict[int, list[MsrFlagCounts]] = {}

    def open(self, cpu: int) -> list[Slot]:
        readings, slots = self._table.get(cpu, ()), list[Slot]()
        device = self._device(cpu) if readings else None
        if device is None:
            return slots
        for reading in readings:
            column, fd = self._columns[reading.counter.key], device.fd
            if reading.field is not None:
                slots.append(Slot(lib.PP_FIELD, column, fd, reading.field.address))
            elif reading.mask:
                flags = MsrFlagCounts(reading.register, reading.mask)
                self._polled.setdefault(cpu, []).append(flags)
                slots.append(Slot(lib.PP_FLAGS, column, fd, flags.address, flags.columns))
            else:
                slots.append(Slot(lib.PP_MSR, column, fd, reading.register))
        return slots

    def _device(self, cpu: int) -> Registers | None:
        if cpu not in self._open:
            with contextlib.suppress(MsrError):
                self._open[cpu] = Registers(self._root, cpu)
        return self._open.get(cpu)

    def close_cpu(self, cpu: int) -> None:
        self._polled.pop(cpu, None)
        device = self._open.pop(cpu, None)
        if device is not None:
            device.close()

    def close(self) -> None:
        for cpu in list(self._open):
            self.close_cpu(cpu)


def _counters(table: Mapping[int, Sequence[Reading]]) -> list[Counter]:
    """Returns each counter of the readings once, with the CPUs that have it if others lack it."""
    counters: dict[str, Counter] = {}
    cpus: dict[str, list[int]] = {}
    for cpu, readings in table.items():
        for reading in readings:
            counters.setdefault(reading.counter.key, reading.counter)
            cpus.setdefault(reading.counter.key, []).append(cpu)
    return [
        restrict_to_cpus(counter, sorted(cpus[key]), len(table))
        for key, counter in counters.items()
    ]


# --- registers of a model -------------------------------------------------------------------------


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


def msr_counter(key: str, origin: str, *, bits: int = 64, scale: float = 1.0) -> Counter:
    name = _NAMES.get(key, key.replace("_", " "))
    return Counter(key, name, _UNITS.get(key, "1"), origin, bits=bits, scale=scale)


def tsc_reading() -> Reading:
    """Returns the reading of the TSC, which stamps under a sysroot do not count."""
    return _plain_reading(msr.TSC, "tsc", "time-stamp counter", "cycles")


def clock_readings(uarch: Uarch) -> list[Reading]:
    """Returns the readings of MPERF and APERF, and on Intel of the count of SMIs."""
    clock = uarch.clocks
    if clock is None:
        return []
    registers = {"mperf": clock.mperf, "aperf": clock.aperf}
    scale = float(1 << clock.unit_shift)
    readings = [
        Reading(msr_counter(key, msr.register_name(register), scale=scale), register)
        for key, register in registers.items()
    ]
    smi = Reading(msr_counter("smi", msr.register_name(SMI_COUNT), bits=32), SMI_COUNT)
    return [*readings, smi] if uarch.vendor == INTEL else readings


def residency_readings(uarch: Uarch, scope: Scope) -> list[Reading]:
    return [
        _plain_reading(r.msr, f"{scope}_{r.name}", f"{scope} {r.name}", "cycles")
        for r in uarch.residencies
        if r.scope == scope
    ]


def _plain_reading(register: int, key: str, name: str, unit: str) -> Reading:
    return Reading(Counter(key, name, unit, msr.register_name(register)), register)


def register_content(device: Registers, register: int) -> int | None:
    """Returns the content of an MSR; None if it cannot be read."""
    try:
        return device.read(register)
    except MsrError:
        return None
