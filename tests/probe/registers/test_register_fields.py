"""The registers of a CPU, a core and a package: their addresses, bit fields and units, compared
with Intel's SDM, AMD's manuals and turbostat."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, cast

import pytest
from cpu_models import AMD, INTEL, V4, machine

from perfprobe.cpu import cpuid, model
from perfprobe.cpu.cpuid import Leaves
from perfprobe.registers import limits, parts
from perfprobe.registers.msr import MsrError, Registers
from perfprobe.registers.parts import CpuKind, Reading
from perfprobe.wire import Cpu, Identity, Missing

SKYLAKE_SP, ZEN_3 = (INTEL, 6, 0x55, 4), (AMD, 0x19, 0x01, 1)
FEATURES = machine(V4, x01=(0x50654, 0, 0, 1 << 22), x06=(0x90, 0, 1, 0))
"""CPUID with thermal status, power limits and HWP."""


class FakeRegisters:
    """A CPU's registers by address; others cannot be read."""

    def __init__(self, words: Mapping[int, int]) -> None:
        self._words = words

    def read(self, register: int) -> int:
        if register not in self._words:
            raise MsrError(f"MSR {register:X}H cannot be read", "it is not there")
        return self._words[register]


def readings_of(
    cpu: tuple[str, int, int, int],
    words: Mapping[int, int] | None = None,
    leaves: Leaves = cpuid.read_no_leaf,
) -> dict[str, Reading | Missing]:
    """Returns what is read for a CPU and its package, by key."""
    kind = CpuKind([0], [0], model.find_uarch(*cpu), leaves)
    device = cast("Registers", FakeRegisters(words or {}))
    results = [*limits.cpu_readings(kind, device), *limits.package_readings(kind, device)]
    return {r.counter.key if isinstance(r, Reading) else r.what: r for r in results}


class Bits(NamedTuple):
    """A bit field of a register, as in a manual; `enable` is the bit that makes it valid."""

    register: int
    last: int
    first: int
    scale: float = 1.0
    below: int = 0
    enable: int = 0


WORDS = {
    0x770: 1, 0x1A2: 95 << 16, 0x606: 0xA0E03, 0x610: 1 << 15 | 1 << 47, 0x64B: 1 << 31 | 2,
    0xC0010299: 0xA1003,
}  # fmt: skip
"""HWP is on; TjMax is 95 degrees; RAPL counts 1/8 W, 2**-14 J (AMD: 2**-16 J) and 2**-10 s; both
power limits are on; level 2 of config-TDP is in use and locked."""
FIELDS = {
    "modulation": Bits(0x19A, 4, 0), "hwp_epp": Bits(0x774, 31, 24), "hwp_max": Bits(0x774, 15, 8),
    "hwp_highest": Bits(0x771, 7, 0), "temperature_c": Bits(0x1B1, 22, 16, below=95),
    "power_limit_w": Bits(0x610, 14, 0, 1 / 8, enable=15),
    "power_limit2_w": Bits(0x610, 46, 32, 1 / 8, enable=47), "turbo_disabled": Bits(0x1A0, 38, 38),
    "tdp_base_hz": Bits(0x64A, 23, 16, 100e6),
}  # fmt: skip
COUNTS = {"mperf": (0xE7, 64, 1.0), "aperf": (0xE8, 64, 1.0), "smi": (0x34, 32, 1.0),
          "power_throttled_s": (0x613, 32, 2.0**-10)}  # fmt: skip
"""Register, width in bits and scale of counters that fill a register."""
PACKAGE_STATES = {"package_pc2": 0x60D, "package_pc3": 0x3F8, "package_pc6": 0x3F9,
                  "package_pc7": 0x3FA}  # fmt: skip
FLAGS = {"limit_reasons": (0x64F, 0xFFFF), "package_thermal": (0x1B1, 0b0100_0001_0101)}
"""Register and status bits (the log bits and the thresholds of the OS are not polled)."""


@pytest.mark.parametrize(("cpu", "fields", "counts", "flags"), [
    (SKYLAKE_SP, FIELDS, COUNTS | {k: (r, 64, 1.0) for k, r in PACKAGE_STATES.items()}, FLAGS),
    (ZEN_3, {"pstate_limit": Bits(0xC0010061, 2, 0)},
     {"mperf": (0xC00000E7, 64, 1.0), "aperf": (0xC00000E8, 64, 1.0),
      "energy_j": (0xC001029B, 32, 2.0**-16)}, {}),
])  # fmt: skip
def test_each_value_is_in_the_bits_that_the_manual_describes(
    cpu: tuple[str, int, int, int],
    fields: dict[str, Bits],
    counts: dict[str, tuple[int, int, float]],
    flags: dict[str, tuple[int, int]],
) -> None:
    readings = [r for r in readings_of(cpu, WORDS, FEATURES).values() if isinstance(r, Reading)]
    seen_fields, seen_counts, seen_flags = {}, {}, {}
    for reading in readings:
        counter, key = reading.counter, reading.counter.key
        assert counter.origin.partition(",")[0].startswith(("MSR", "TjMax 95 °C"))
        if reading.field is not None:
            bits = reading.field._memory
            last, scale = bits.shift + bits.width - 1, counter.scale
            seen_fields[key] = Bits(bits.msr, last, bits.shift, scale, bits.below, bits.enable)
        elif reading.mask:
            seen_flags[key] = reading.register, reading.mask
        else:
            seen_counts[key] = reading.register, counter.bits, counter.scale
    assert (seen_fields, seen_counts, seen_flags) == (fields, counts, flags)


def test_a_model_may_have_the_thermal_status_of_cores_only() -> None:
    bonnell = model.find_uarch(INTEL, 6, 0x1C, 1)
    kind = CpuKind([0], [0], bonnell, cpuid.read_no_leaf)
    assert limits._thermal_readings(kind, "package") == [
        Missing("package_thermal", "no register is known for it (Bonnell)")
    ]


@pytest.mark.parametrize(("rows", "kinds"), [
    ([Cpu(0, True, type="P"), Cpu(1, True, type="E"), Cpu(2, False), Cpu(3, True, type="P")],
     [([1], [1]), ([0, 3], [0, 3])]),
    ([Cpu(0, True), Cpu(1, False)], [([0, 1], [0])]),
    ([Cpu(0, True, type="P"), Cpu(1, False)], [([0, 1], [0])]),
])  # fmt: skip
def test_each_core_type_is_a_kind_of_cpus(
    tmp_path: Path, rows: list[Cpu], kinds: list[tuple[list[int], list[int]]]
) -> None:
    """A single kind has the offline CPUs, too."""
    survey = limits.RegisterSurvey(tmp_path)
    survey.kinds = [*parts.cpu_kinds(tmp_path, rows, Identity(INTEL, 6, 0x97, 2), None)]
    assert [(kind.cpus, kind.online) for kind in survey.kinds] == kinds
    named = [cpus if len(kinds) > 1 else None for cpus, _ in kinds]
    assert [survey.cpus(kind) for kind in survey.kinds] == named


def test_an_unknown_intel_cpu_has_no_clocks_and_no_count_of_smis() -> None:
    assert parts.clock_readings(model.find_uarch(INTEL, 6, 0xFF, 1)) == []


@pytest.mark.parametrize("number", [0xAD, 0xAF, 0xDD])
def test_servers_with_tpmi_have_no_register_of_reasons(number: int) -> None:
    absent = readings_of((INTEL, 6, number, 1))["limit_reasons"]
    assert isinstance(absent, Missing)
    assert "TPMI" in absent.why
