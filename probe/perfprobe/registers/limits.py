"""The MSRs that are read for a CPU, a core and a package: clocks, idle states and limits; and
tables of turbo ratios. Only the current state of status registers is read, not their sticky bits,
which the kernel clears. Each core type has its own registers.

Under a sysroot, stamps are not values of the TSC, so the TSC is read through its MSR right before
the counters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from perfprobe import wire
from perfprobe.cpu import cpuid, model
from perfprobe.cpu.identity import read_identity
from perfprobe.cpu.model import INTEL
from perfprobe.cpu.model_terms import TurboRegisters, Uarch
from perfprobe.kernel.access import Problem
from perfprobe.machine.parts import Part, join_missing
from perfprobe.native import tsc_rate
from perfprobe.native.sampler import MsrField
from perfprobe.registers import msr
from perfprobe.registers.msr import MsrError, Registers
from perfprobe.registers.parts import (
    UNREADABLE_REASON,
    CpuKind,
    Reading,
    RegisterPart,
    clock_readings,
    cpu_kinds,
    register_content,
    residency_readings,
    tsc_reading,
)
from perfprobe.wire import Counter, Cpu, Missing, Multiplier, Rate, Scope, Step, Turbo

MODULATION = 0x19A  # MSR IA32_CLOCK_MODULATION
MISC_ENABLE, TURBO_DISABLED = 0x1A0, 38
TDP_CONTROL, TDP_NOMINAL, TDP_RATIO = 0x64B, 0x648, 16
"""Registers of config-TDP, as in turbostat. The lowest two bits of TDP_CONTROL are the level in
use. Level n > 0 has its ratio in register TDP_NOMINAL + n, from bit TDP_RATIO on."""
HWP_ENABLE, HWP_CAPABILITIES, HWP_REQUEST = 0x770, 0x771, 0x774

HWP_FIELDS = {
    "hwp_epp": ("HWP energy preference", HWP_REQUEST, 24),
    "hwp_max": ("highest HWP level requested", HWP_REQUEST, 8),
    "hwp_highest": ("highest HWP level available", HWP_CAPABILITIES, 0),
}
"""By counter key: name, register and first bit of an HWP value, which has 8 bits."""

POWER_LIMITS = {"power_limit_w": ("power limit PL1", 0), "power_limit2_w": ("power limit PL2", 32)}
"""By counter key: name and first bit of a power limit in RAPL's register."""
LIMIT_BITS, LIMIT_ENABLE = 15, 15
"""Width of a power limit in bits, and the position of its enabling bit after its first bit."""
DEFAULT_TIME_EXPONENT = 10
"""Exponent of RAPL's unit of time (2**-10 s) if the register has 0, as in turbostat."""

THRESHOLD_BITS = {6, 8}
"""Thermal status bits of temperature thresholds that the OS has set; they limit nothing."""
CORE_ONLY_BITS = {12, 14}
"""Thermal status bits that a core has, but not a package."""

PSTATE_LIMIT = 0xC0010061
"""AMD's MSR of the P-state current limit, from family 10h on."""
TPMI_MODELS = {
    "Granite Rapids", "Sierra Forest", "Grand Ridge", "Clearwater Forest", "Diamond Rapids",
}  # fmt: skip
"""Models whose limit reasons are in TPMI, not in an MSR."""

Readings = list[Reading | Missing]
"""Registers that a kind of CPU may have, and counters that it is known to lack."""


def _field(
    key: str, name: str, register: int, shift: int, width: int, *, enable: int = 0,
    unit: str = "1", scale: float = 1.0,
) -> Reading:  # fmt: skip
    bits = f"bit {shift}" if width == 1 else f"bits {shift + width - 1}:{shift}"
    origin = f"{msr.register_name(register)} {bits}"
    counter = Counter(key, name, unit, origin, "gauge", scale=scale)
    return Reading(counter, register, MsrField(register, shift, width, enable_bit=enable))


def _flags(key: str, name: str, register: int, bits: dict[int, str]) -> Reading:
    """Returns a reading that polls these status bits (numbers, ascending, and names)."""
    origin, parts = msr.register_name(register), list(bits.values())
    counter = Counter(key, name, "1", origin, "flags", columns=1 + len(bits), parts=parts)
    return Reading(counter, register, mask=sum(1 << bit for bit in bits))


def _unknown_register(key: str, uarch: Uarch) -> Missing:
    return Missing(key, f"no register is known for it ({uarch.name})")


# --- a CPU ----------------------------------------------------------------------------------------


def cpu_readings(kind: CpuKind, device: Registers) -> Readings:
    readings: Readings = [*clock_readings(kind.uarch)]
    if kind.uarch.vendor != INTEL:
        return readings
    if cpuid.has_feature(kind.leaves, "thermal"):
        readings.append(_field("modulation", "clock modulation", MODULATION, 0, 5))
    else:
        readings.append(Missing("modulation", "CPUID does not report clock modulation"))
    if not cpuid.has_feature(kind.leaves, "hwp"):
        reason = "CPUID does not report HWP"
    elif not (register_content(device, HWP_ENABLE) or 0) & 1:
        reason = f"{msr.register_name(HWP_ENABLE)} does not show that HWP is on"
    else:
        fields = HWP_FIELDS.items()
        return [*readings, *(_field(key, *field, 8) for key, field in fields)]
    return [*readings, *(Missing(key, reason) for key in HWP_FIELDS)]


# --- a core or a package --------------------------------------------------------------------------


def package_readings(kind: CpuKind, device: Registers) -> Readings:
    uarch = kind.uarch
    readings = [
        *residency_readings(uarch, "package"),
        _limit_reasons(uarch),
        *_thermal_readings(kind, "package"),
        _temperature(uarch, device),
        *_power_readings(uarch, device),
    ]
    if uarch.vendor != INTEL:
        # AMD: the fastest P-state that firmware allows (0: no limit); the reason is unknown.
        pstate_readings = [_field("pstate_limit", "fastest P-state allowed", PSTATE_LIMIT, 0, 3)]
        return [*readings, *(pstate_readings if uarch.events else [])]
    readings.append(_field("turbo_disabled", "turbo disabled", MISC_ENABLE, TURBO_DISABLED, 1))
    # The base clock of the config-TDP level in use; the hello message has that of the nominal
    # level.
    level = (register_content(device, TDP_CONTROL) or 0) & 3
    if uarch.bclk_hz is not None and level in {1, 2}:
        name, register = f"base clock of config-TDP level {level}", TDP_NOMINAL + level
        field = _field("tdp_base_hz", name, register, TDP_RATIO, 8, unit="Hz", scale=uarch.bclk_hz)
        readings.append(field)
    return readings


def _thermal_readings(kind: CpuKind, scope: Literal["core", "package"]) -> Readings:
    key, thermal = f"{scope}_thermal", kind.uarch.thermal
    msrs = {} if thermal is None else {"core": thermal.core_msr, "package": thermal.package_msr}
    register = msrs.get(scope)
    if thermal is None or register is None:
        return [_unknown_register(key, kind.uarch)]
    if not cpuid.has_feature(kind.leaves, "thermal"):
        return [Missing(key, "CPUID does not report it")]
    hidden_bits = THRESHOLD_BITS if scope == "core" else THRESHOLD_BITS | CORE_ONLY_BITS
    bits = {bit: name for bit, name, _ in thermal.status_bits if bit not in hidden_bits}
    return [_flags(key, f"{scope} thermal status", register, bits)]


def _limit_reasons(uarch: Uarch) -> Reading | Missing:
    if uarch.limits is not None:
        bits = dict(enumerate(uarch.limits.bit_names))
        return _flags("limit_reasons", "limit reasons", uarch.limits.msr, bits)
    if uarch.name in TPMI_MODELS:
        reason = "they are in TPMI here, which Linux 6.11 and later show to root in debugfs"
        return Missing("limit_reasons", reason)
    return _unknown_register("limit_reasons", uarch)


def _temperature(uarch: Uarch, device: Registers) -> Reading | Missing:
    thermal = uarch.thermal
    if thermal is None or thermal.package_msr is None or thermal.tjmax_msr is None:
        return _unknown_register("temperature_c", uarch)
    tjmax_c = (register_content(device, thermal.tjmax_msr) or 0) >> 16 & 0xFF
    if not tjmax_c:
        return Missing("temperature_c", f"{msr.register_name(thermal.tjmax_msr)} has no TjMax")
    origin = f"TjMax {tjmax_c} °C, {msr.register_name(thermal.package_msr)}"
    counter = Counter("temperature_c", "temperature", "°C", origin, "gauge")
    field = MsrField(thermal.package_msr, 16, 7, minuend=tjmax_c)
    return Reading(counter, thermal.package_msr, field)


# --- power ----------------------------------------------------------------------------------------


def _power_readings(uarch: Uarch, device: Registers) -> Readings:
    keys = (*POWER_LIMITS, "power_throttled_s")
    rapl = uarch.rapl
    if rapl is None:
        return [_unknown_register(key, uarch) for key in keys]
    units = register_content(device, rapl.unit_msr)
    if units is None:
        reason = f"{msr.register_name(rapl.unit_msr)}, which has its unit, cannot be read"
        return [Missing(key, reason) for key in keys]
    readings: Readings = []
    # RAPL counts energy in units of 2**-shift J, and throttled time in units of 2**-shift s.
    time_shift = units >> 16 & 0xF or DEFAULT_TIME_EXPONENT
    for key, name, unit, register, shift in (
        ("energy_j", "energy", "J", rapl.energy_msr, units >> 8 & 0x1F),
        ("power_throttled_s", "held back by power limits", "s", rapl.throttled_msr, time_shift),
    ):
        if register is not None:
            origin, scale = msr.register_name(register), 2.0**-shift
            counter = Counter(key, name, unit, origin, bits=32, scale=scale)
            readings.append(Reading(counter, register))
    if rapl.limits_msr is None:
        return [*readings, *(_unknown_register(key, uarch) for key in POWER_LIMITS)]
    # A power limit becomes invalid when it is disabled later.
    word, scale = register_content(device, rapl.limits_msr), 2.0 ** -(units & 0xF)
    for key, (name, first) in POWER_LIMITS.items():
        enable = first + LIMIT_ENABLE
        if word is not None and not word >> enable & 1:
            reason = f"it is off ({msr.register_name(rapl.limits_msr)} bit {enable})"
            readings.append(Missing(key, reason))
        else:
            limit = _field(
                key, name, rapl.limits_msr, first, LIMIT_BITS, enable=enable, unit="W", scale=scale
            )
            readings.append(limit)
    return readings


# --- turbo ratios ---------------------------------------------------------------------------------
# A turbo table has the highest clock of a package's cores by the number of active cores. The MSRs
# have the table of SIMD level (licence) 0 only.

Steps = Iterable[tuple[int, int]]
"""Steps of a turbo table: maximum number of active cores, and clock / bus clock."""

SEMAPHORE_BIT = 0x80
"""Top bit of each byte of a ratio register. On Ivy Bridge-EP and Haswell-EP the last register uses
it as a semaphore, so a byte with this bit is not a ratio."""


def turbo_table(
    uarch: Uarch, read_register: Callable[[int], int | None], cpus: list[int] | None = None
) -> wire.Turbo | Missing:
    """Returns the turbo table of one core type, or the reason why there is none. `read_register`
    returns the content of an MSR; None if it cannot be read."""
    turbo, bclk_hz = uarch.turbo, uarch.bclk_hz
    if turbo is None:
        return Missing("turbo", f"no register is known for it ({uarch.name})", None, cpus)
    if bclk_hz is None:
        return Missing("turbo", f"the bus clock is not known ({uarch.name})", None, cpus)
    needed = [turbo.ratio_msrs[0], *([] if turbo.count_msr is None else [turbo.count_msr])]
    words = {register: read_register(register) for register in (*turbo.ratio_msrs, *needed)}
    for register in needed:
        if words[register] is None:
            return Missing("turbo", f"{msr.register_name(register)} cannot be read", None, cpus)
    table = _ratio_steps(turbo, {register: word or 0 for register, word in words.items()}, bclk_hz)
    if not table:
        return Missing("turbo", f"{msr.register_name(needed[0])} holds no ratio", None, cpus)
    names = [msr.register_name(register) for register in turbo.ratio_msrs if words[register]]
    return wire.Turbo(table, f"{', '.join(names)}, licence 0", cpus)


def _ratio_steps(turbo: TurboRegisters, words: Mapping[int, int], bclk_hz: float) -> list[Step]:
    """Returns the steps of the turbo table in these registers (see TurboRegisters), each clock
    once. A ratio of 0 marks an unused entry."""
    ratios = [words[register] for register in turbo.ratio_msrs]
    if turbo.layout == "knl":
        entries: Steps = _ratio_deltas(ratios[0])
    elif turbo.count_msr is not None:
        bounds = [turbo.cores_per_count * n for n in _split_bytes([words[turbo.count_msr]])]
        entries = zip(bounds, _split_bytes(ratios), strict=True)
    else:
        entries = enumerate(_split_bytes(ratios), 1)
    table: list[Step] = []
    for cores, ratio in entries:
        if not 0 < ratio < SEMAPHORE_BIT or cores <= (table[-1].cores if table else 0):
            continue
        step = Step(cores, ratio * bclk_hz)
        if table and table[-1].hz == step.hz:
            table.pop()
        table.append(step)
    return table


def _split_bytes(words: Sequence[int]) -> bytes:
    return b"".join(word.to_bytes(8, "little") for word in words)


def _ratio_deltas(word: int) -> Iterator[tuple[int, int]]:
    """Yields the steps of Knights Landing's register: one absolute, then deltas to the previous."""
    cores, ratio = word >> 1 & 0x7F, word >> 8 & 0xFF
    yield cores, ratio
    for shift in range(16, 64, 8):
        cores += word >> shift & 0x1F
        ratio -= word >> shift + 5 & 0x7
        yield cores, ratio


# --- opening --------------------------------------------------------------------------------------

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
        for kind in self.kinds:
            self.multipliers += model.multiplier_candidates(kind.uarch, kind.leaves, platform)
            with self._open_first_cpu(kind) as device:
                read_register = partial(register_content, device)
                table = turbo_table(kind.uarch, read_register, self.cpus(kind))
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

        def core_readings(kind: CpuKind, _: Registers) -> Readings:
            return [*residency_readings(kind.uarch, "core"), *_thermal_readings(kind, "core")]

        return [
            self._part("cpu", clock_registers),
            self._part("cpu", cpu_readings),
            self._part("core", core_readings),
            self._part("package", package_readings),
        ]

    def _part(self, scope: Scope, find_readings: FindReadings) -> RegisterPart | None:
        """Returns a part with the registers that each kind of CPU can read; None if there are
        none."""
        table: dict[int, list[Reading]] = {}
        lacking: list[tuple[int, str, Problem]] = []
        for kind in self.kinds:
            usable: list[Reading] = []
            with self._open_first_cpu(kind) as device:
                for reading in find_readings(kind, device):
                    if isinstance(reading, Missing):
                        missing = reading
                    elif register_content(device, reading.register) is None:
                        missing = Missing(reading.counter.key, UNREADABLE_REASON)
                    else:
                        usable.append(reading)
                        continue
                    problem = Problem(missing.why)
                    lacking += [(cpu, missing.what, problem) for cpu in kind.cpus]
            table |= dict.fromkeys(kind.cpus, usable)
        self.missing += join_missing(lacking, len(table))
        return RegisterPart(self.root, scope, table) if any(table.values()) else None

    def _open_first_cpu(self, kind: CpuKind) -> Registers:
        return Registers(self.root, kind.online[0])


# --- the TSC under a sysroot ----------------------------------------------------------------------


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
