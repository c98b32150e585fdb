"""Opens the MSRs that are only read, as parts of a machine, for the CPUs of each core type.

Under a sysroot, stamps are not values of the TSC, so the TSC is read through its MSR right before
the counters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from perfprobe.cpu import model
from perfprobe.cpu.identity import read_identity
from perfprobe.kernel.access import Trouble
from perfprobe.machine.parts import Part, join_missing
from perfprobe.native import tsc_rate
from perfprobe.registers import limits, msr
from perfprobe.registers.limits import Readings
from perfprobe.registers.msr import MsrError, Registers
from perfprobe.registers.parts import (
    CpuKind,
    Reading,
    RegisterPart,
    cpu_kinds,
    readable_readings,
    register_content,
    tsc_reading,
)
from perfprobe.wire import Cpu, Missing, Multiplier, Rate, Scope, Turbo

UNREAD_KEYS = ("aperf", "mperf", "smi", "limit_reasons")
"""Keys of counters that are reported as missing if no MSR can be read."""

FindReadings = Callable[[CpuKind, Registers], Readings]
"""Returns the registers that a kind of CPU may have."""


def open_registers(root: Path, rows: Sequence[Cpu]) -> tuple[list[Part], RegisterSurvey]:
    """Returns the parts with MSRs of these CPUs, and what else was found. All descriptors are
    read-only. There are no parts if no MSR can be read."""
    survey = RegisterSurvey(root)
    try:
        survey.find_kinds(rows)
        parts = survey.parts(lambda _: [])
    except MsrError as error:
        survey.missing = [Missing(key, error.why, error.fix) for key in UNREAD_KEYS]
        return [], survey
    return [part for part in parts if part is not None], survey


class RegisterSurvey:
    """The kinds of CPUs of a machine, which of their MSRs can be read, and contents for hello."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.kinds: list[CpuKind] = []
        self.missing: list[Missing] = []
        self.multipliers: list[Multiplier] = []
        self.tsc_hz: Rate | None = None
        """The TSC's rate, under a sysroot only; elsewhere it is measured with RDTSC."""
        self.base_hz: Rate | None = None
        self.turbo: list[Turbo] = []

    def find_kinds(self, rows: Sequence[Cpu], method: str | None = None) -> None:
        """Finds the kinds of CPUs, the rates of their clocks, and their turbo tables. `method` is
        the SMT method that the user asked for. Raises MsrError if no MSR can be read."""
        self.kinds = list(cpu_kinds(self.root, rows, read_identity(self.root), method))
        first = self.kinds[0]
        with self._open_first_cpu(first) as device:
            if device.read(msr.TSC) == 0 == device.read(msr.TSC):
                raise MsrError(
                    "the msr driver returns 0 for all registers", "it does not reach them"
                )
            platform = register_content(device, msr.PLATFORM_INFO)
            if self.root != Path("/"):
                candidates = model.tsc_rate_candidates(first.uarch, first.leaves, platform)
                self.tsc_hz = _tsc_hz(device, candidates)
        bases = model.base_rate_candidates(first.uarch, first.leaves, platform)
        self.base_hz = bases[0] if bases else None
        hz = self.tsc_hz.hz if self.tsc_hz else None
        for kind in self.kinds:
            self.multipliers += model.multiplier_candidates(kind.uarch, kind.leaves, platform, hz)
            with self._open_first_cpu(kind) as device:
                read_register = partial(register_content, device)
                table = limits.turbo_table(kind.uarch, read_register, self.cpus(kind))
            if isinstance(table, Turbo):
                self.turbo.append(table)
            else:
                self.missing.append(table)

    def cpus(self, kind: CpuKind) -> list[int] | None:
        """Returns a kind's CPUs for a message's field `cpus`; None if there is only one kind."""
        return None if len(self.kinds) == 1 else kind.cpus

    def parts(
        self, replacements: Callable[[CpuKind], Sequence[Reading]]
    ) -> list[RegisterPart | None]:
        """Returns the part of clocks (with the TSC of a sysroot and the `replacements`), which must
        be read right before the counters; then the parts of CPUs, cores and packages. A part
        without registers is None."""

        def clock_registers(kind: CpuKind, _: Registers) -> Readings:
            tsc_readings = [] if self.root == Path("/") else [tsc_reading()]
            return [*tsc_readings, *replacements(kind)]

        return [
            self._part("cpu", clock_registers),
            self._part("cpu", limits.cpu_readings),
            self._part("core", limits.core_readings),
            self._part("package", limits.package_readings),
        ]

    def _part(self, scope: Scope, registers: FindReadings) -> RegisterPart | None:
        """Returns a part with the registers that each kind of CPU can read; None without any."""
        table: dict[int, list[Reading]] = {}
        lacking: list[tuple[int, str, Trouble]] = []
        for kind in self.kinds:
            with self._open_first_cpu(kind) as device:
                usable, missing = readable_readings(device, registers(kind, device))
            table |= dict.fromkeys(kind.cpus, usable)
            lacking += [(c, m.what, Trouble(m.why)) for m in missing for c in kind.cpus]
        self.missing += join_missing(lacking, len(table))
        return RegisterPart(self.root, scope, table) if any(table.values()) else None

    def _open_first_cpu(self, kind: CpuKind) -> Registers:
        return Registers(self.root, kind.online[0])


# --- the TSC below a sysroot ----------------------------------------------------------------------


def _tsc_hz(device: Registers, candidates: Iterable[Rate]) -> Rate:
    """Returns the rate of the TSC in an MSR. The first candidate that agrees with a measurement
    against CLOCK_MONOTONIC_RAW, and has a smaller error, is used; otherwise the measured rate."""
    read_tsc = partial(device.read, msr.TSC)
    tsc0, raw0, width0 = tsc_rate.narrowest_bracket(read_tsc, tsc_rate.raw_ns)
    time.sleep(tsc_rate.SPAN_S)
    tsc1, raw1, width1 = tsc_rate.narrowest_bracket(read_tsc, tsc_rate.raw_ns)
    elapsed = raw1 - raw0
    hz, error = (tsc1 - tsc0) / elapsed * 1e9, (width0 + width1) / 2 / elapsed
    for rate in candidates:
        if rate.error is not None and rate.error < error and abs(rate.hz / hz - 1) < error:
            return rate
    origin = f"{msr.register_name(msr.TSC)} against CLOCK_MONOTONIC_RAW for {elapsed / 1e9:.2f} s"
    return Rate(hz, origin, error)
