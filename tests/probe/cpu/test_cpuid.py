"""CPUID leaves: dumps of real CPUs, values written by hand, and garbage."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest
from cpu_models import FakeCpuid
from hypothesis import given
from hypothesis import strategies as st

from perfprobe.cpu import cpuid
from perfprobe.cpu.cpuid import Crystal, LeafRegisters, Perfmon

INTEL = (0x1B, 0x756E6547, 0x6C65746E, 0x49656E69)

# Read from /dev/cpu/0/cpuid of a Firecracker guest on an EPYC of family 25, model 17, stepping 1.
GENOA_GUEST: dict[int, LeafRegisters] = {
    0x00: (0x1C, 0x68747541, 0x444D4163, 0x69746E65),
    0x01: (0xA10F11, 0x20800, 0xFFFA3203, 0x178BFBFF),
    0x06: (0x4, 0, 0, 0),
    0x07: (0x1, 0xF1BF07AB, 0x405FC6, 0x10),
    0x0A: (0, 0, 0, 0),
    0x15: (0, 0, 0, 0),
    0x16: (0, 0, 0, 0),
    0x1A: (0, 0, 0, 0),
    0x80000000: (0x80000021, 0x68747541, 0x444D4163, 0x69746E65),
    0x80000007: (0, 0, 0, 0x100),
    0x80000008: (0x303030, 0x50020005, 0x7001, 0),
    # this leaf is above the highest leaf and must be ignored
    0x80000022: (0xFFFFFFFF, 0xFFFFFFFF, 0, 0),
}


def intel(**leaves: LeafRegisters) -> FakeCpuid:
    """Returns leaves by hexadecimal name: x0A=(EAX, EBX, ECX, EDX)."""
    return FakeCpuid({0: INTEL, **{int(name[1:], 16): regs for name, regs in leaves.items()}})


def test_vendor_comes_from_leaf_0() -> None:
    assert cpuid.vendor(intel()) == "GenuineIntel"
    assert cpuid.vendor(FakeCpuid(GENOA_GUEST)) == "AuthenticAMD"
    assert cpuid.vendor(FakeCpuid({0: (1, 0xFFFFFFFF, 0, 7)})) is None


# --- counters ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("registers", "expected"), [
    ((0x07300404, 0, 0, 0x603), Perfmon(4, 4, 48, 3, 48, False, frozenset(range(7)))),  # Skylake-SP
    ((0x08300805, 0, 0, 0x8604), Perfmon(5, 8, 48, 4, 48, True, frozenset(range(8)))),  # Ice Lake
    # Knights Landing: two counters of 40 bits. Nehalem denies the architectural reference event.
    ((0x07280203, 0, 0, 0x503), Perfmon(3, 2, 40, 3, 40, False, frozenset(range(7)))),
    ((0x07300403, 0x4, 0, 0x603),
     Perfmon(3, 4, 48, 3, 48, False, frozenset({0, 1, 3, 4, 5, 6}))),
    # Fewer than three fixed counters are believed only from version 5 on.
    ((0x07300404, 0, 0, 0x601), Perfmon(4, 4, 48, 3, 48, False, frozenset(range(7)))),
    ((0x07300405, 0, 0, 0x601), Perfmon(5, 4, 48, 1, 48, False, frozenset(range(7)))),
    (GENOA_GUEST[0x0A], Perfmon(0, 0, 0, 0, 0, False)),
])  # fmt: skip
def test_perfmon_leaf_is_decoded(registers: LeafRegisters, expected: Perfmon) -> None:
    assert cpuid.perfmon(intel(x0A=registers)) == expected


@pytest.mark.parametrize("registers", [
    (0x07300004, 0, 0, 0x603),  # no general counter
    (0x0730FF04, 0, 0, 0x603),  # 255 counters: their selects would be other registers
    (0x07000404, 0, 0, 0x603),  # general counters of 0 bits
    (0x07FF0404, 0, 0, 0x603),  # counters of 255 bits
    (0x07300404, 0, 0, 0x003),  # fixed counters of 0 bits
    (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
])  # fmt: skip
def test_garbled_perfmon_is_none(registers: LeafRegisters) -> None:
    assert cpuid.perfmon(intel(x0A=registers)) is None
    assert cpuid.has_working_any_thread(intel(x0A=registers)) is False


@pytest.mark.parametrize(("eax", "edx", "usable"), [
    (0x07300403, 0x603, True),  # Nehalem to Broadwell
    (0x07300404, 0x603, True),  # Skylake to Cascade Lake
    (0x07280203, 0x503, True),  # Knights Landing
    (0x07300404, 0x8603, False),  # Goldmont Plus has version 4, but no AnyThread
    (0x08300805, 0x8604, False),  # Ice Lake
    (0x07300402, 0x603, False),  # version 2 never had AnyThread
    (0x07300402, 0x8603, False),  # KVM
    (0, 0, False),
])  # fmt: skip
def test_any_thread_is_usable_if_cpuid_allows_it(eax: int, edx: int, usable: bool) -> None:
    assert cpuid.has_working_any_thread(intel(x0A=(eax, 0, 0, edx))) is usable


def test_amd_counters_come_from_a_leaf_that_some_cpus_lack() -> None:
    highest = (0x80000028, 0, 0, 0)
    genoa = FakeCpuid({0: INTEL, 0x80000000: highest, 0x80000022: (0x1, 0xFFFFFFF6, 0, 0)})
    assert cpuid.amd_counter_count(genoa) == 6
    milan = FakeCpuid({0: INTEL, 0x80000000: highest, 0x80000022: (0xFFFFFFFE, 0x6, 0, 0)})
    assert cpuid.amd_counter_count(milan) is None
    assert cpuid.amd_counter_count(FakeCpuid(GENOA_GUEST)) is None


# --- clocks, bits --------------------------------------------------------------------------------


@pytest.mark.parametrize(("registers", "expected"), [
    ((2, 168, 0, 0), Crystal(168, 2, None)),
    ((2, 276, 0, 0), Crystal(276, 2, None)),
    ((2, 192, 25_000_000, 0), Crystal(192, 2, 25_000_000)),
    ((3, 171, 0, 0), Crystal(171, 3, None)),
    ((0, 168, 0, 0), None),
    ((2, 0, 25_000_000, 0), None),
])  # fmt: skip
def test_crystal_leaf_is_decoded(registers: LeafRegisters, expected: Crystal | None) -> None:
    assert cpuid.crystal(intel(x15=registers)) == expected


@pytest.mark.parametrize(("feature", "number", "registers"), [
    ("hypervisor", 0x01, (0, 0, 0x80000000, 0)),
    ("thermal", 0x01, (0, 0, 0, 0x00400000)),
    ("power-limit", 0x06, (0x10, 0, 0, 0)),
    ("hwp", 0x06, (0x80, 0, 0, 0)),
    ("aperfmperf", 0x06, (0, 0, 1, 0)),
    ("rtm-always-aborts", 0x07, (0, 0, 0, 0x800)),
    ("tsx-force-abort", 0x07, (0, 0, 0, 0x2000)),
    ("hybrid", 0x07, (0, 0, 0, 0x8000)),
    ("invariant-tsc", 0x80000007, (0, 0, 0, 0x100)),
    ("aperfmperf-read-only", 0x80000007, (0, 0, 0, 0x400)),
    ("rdtscp", 0x80000001, (0, 0, 0, 1 << 27)),
    ("serializing-lfence", 0x80000021, (4, 0, 0, 0)),
    ("amd-perfmon-v2", 0x80000022, (1, 0, 0, 0)),
])  # fmt: skip
def test_a_feature_is_one_bit_of_a_leaf(
    feature: str, number: int, registers: LeafRegisters
) -> None:
    highest = {0: INTEL, 0x80000000: (0x80000022, 0, 0, 0)}
    assert cpuid.has_feature(FakeCpuid({**highest, number: registers}), feature) is True
    a, b, c, d = (~word & 0xFFFFFFFF for word in registers)
    assert cpuid.has_feature(FakeCpuid({**highest, number: (a, b, c, d)}), feature) is False
    assert cpuid.has_feature(FakeCpuid({0: INTEL}), feature) is False
    assert cpuid.has_feature(cpuid.read_no_leaf, feature) is None


def test_leaves_beyond_the_highest_are_absent() -> None:
    # Intel CPUs return the registers of the highest leaf.
    old = FakeCpuid({0: (0x0D, *INTEL[1:]), 0x15: (2, 168, 0, 0), 0x16: (2100, 0, 0, 0)})
    assert cpuid.crystal(old) is None
    assert cpuid.base_mhz(old) is None


@given(st.tuples(*[st.integers(0, 2**32 - 1)] * 4))
def test_no_registers_raise(registers: LeafRegisters) -> None:
    def leaves(leaf: int, subleaf: int = 0, /) -> LeafRegisters | None:
        return (0xFFFFFFFF, *registers[1:]) if leaf & 0x7FFFFFFF == 0 else registers

    cpuid.vendor(leaves)
    result = cpuid.perfmon(leaves)
    assert result is None or (
        result.general_count <= 32 and result.general_bits <= 64 and result.fixed_bits <= 64
    )
    cpuid.has_working_any_thread(leaves)
    cpuid.amd_counter_count(leaves)
    cpuid.crystal(leaves)
    cpuid.base_mhz(leaves)
    cpuid.core_type(leaves)


# --- the driver ----------------------------------------------------------------------------------


def test_leaves_are_read_from_the_cpuid_device(tmp_path: Path) -> None:
    path = tmp_path / "dev/cpu/3/cpuid"
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:  # sparse; the driver's offset is leaf | subleaf << 32
        for offset, registers in (
            (0x0, INTEL),
            (0x15, (2, 168, 0, 0)),
            (0x80000000, (0x80000008, 1, 2, 3)),
            (0x1_00000014, (5, 6, 7, 8)),
        ):
            file.seek(offset)
            file.write(struct.pack("<4I", *registers))
    device = cpuid.leaves_from_driver(tmp_path, 3)
    assert device(0) == INTEL
    assert device(0x14, 1) == (5, 6, 7, 8)
    assert device(0x80000000) == (0x80000008, 1, 2, 3)
    assert device(0x18, 1) is None  # a read at the end of the file is short
    assert cpuid.crystal(device) == Crystal(168, 2, None)
    path.unlink()
    assert device(0x15, 0) == (2, 168, 0, 0)  # each leaf is read once, because a read wakes the CPU
    assert device(0x16, 0) is None


def test_a_missing_cpuid_device_has_no_leaves(tmp_path: Path) -> None:
    assert cpuid.leaves_from_driver(tmp_path, 0)(0) is None
    (tmp_path / "dev/cpu/0").mkdir(parents=True)
    os.mkfifo(tmp_path / "dev/cpu/0/cpuid")
    assert cpuid.leaves_from_driver(tmp_path, 0)(0) is None
