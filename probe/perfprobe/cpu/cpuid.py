"""Decodes the leaves of CPUID; the callers supply a function that reads a leaf.

Register layouts: Intel SDM and AMD APM, as used in Linux (asm/perf_event.h, cpufeatures.h,
turbostat). No content of a leaf raises an error; None means that the leaf lacks the information.
"""

from __future__ import annotations

import functools
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from perfprobe.cpu import files

LeafRegisters = tuple[int, int, int, int]
"""Values of eax, ebx, ecx and edx that CPUID returned for a leaf."""
EAX, EBX, ECX, EDX = range(4)

EXTENDED_LEAVES = 0x8000_0000
"""Number of the first extended leaf."""


class Leaves(Protocol):
    """A function that reads a leaf of one CPU; None where the leaf cannot be read. On hybrids the
    leaves differ between core types."""

    def __call__(self, leaf: int, subleaf: int = 0, /) -> LeafRegisters | None: ...


def read_no_leaf(leaf: int, subleaf: int = 0, /) -> LeafRegisters | None:  # noqa: ARG001
    """The `Leaves` of a machine without a cpuid driver: no leaf can be read."""
    return None


def leaves_from_driver(root: Path, cpu: int) -> Leaves:
    """Returns a function that reads each leaf of a CPU once, by the kernel's cpuid driver."""
    path = f"{root}/dev/cpu/{cpu}/cpuid"

    @functools.cache
    def read(leaf: int, subleaf: int = 0, /) -> LeafRegisters | None:
        try:
            fd = files.open_file(path)
            try:
                content = os.pread(fd, 16, leaf | subleaf << 32)
            finally:
                os.close(fd)
        except OSError:
            return None
        return struct.unpack("<4I", content) if len(content) == 16 else None

    return read


def read_leaf(leaves: Leaves, number: int, subleaf: int = 0) -> LeafRegisters | None:
    """Returns the registers of a leaf; None beyond the highest leaf, for which Intel CPUs return
    the highest leaf again."""
    highest = leaves(number & EXTENDED_LEAVES, 0)
    if highest is not None and highest[EAX] < number:
        return None
    return leaves(number, subleaf)


# --- identity ------------------------------------------------------------------------------------


def vendor(leaves: Leaves) -> str | None:
    registers = leaves(0, 0)
    if registers is None:
        return None
    _, ebx, ecx, edx = registers
    name = struct.pack("<3I", ebx, edx, ecx).decode("ascii", "replace").strip("\0 ")
    return name if name.isascii() and name.isprintable() and name else None


_CORE_TYPES: dict[int, Literal["P", "E"]] = {0x40: "P", 0x20: "E"}  # Linux: hybrid_cpu_type


def core_type(leaves: Leaves) -> Literal["P", "E"] | None:
    """Returns the core type of a hybrid's CPU; None on all other CPUs."""
    registers = read_leaf(leaves, 0x1A)
    if registers is None or not has_feature(leaves, "hybrid"):
        return None
    return _CORE_TYPES.get(registers[EAX] >> 24)


# --- single bits ---------------------------------------------------------------------------------

_FEATURE_BITS = {
    "hypervisor": (0x01, ECX, 31),
    "thermal": (0x01, EDX, 22),
    "power-limit": (0x06, EAX, 4),
    "hwp": (0x06, EAX, 7),
    "aperfmperf": (0x06, ECX, 0),
    "rtm-always-aborts": (0x07, EDX, 11),
    "tsx-force-abort": (0x07, EDX, 13),
    "hybrid": (0x07, EDX, 15),
    "invariant-tsc": (EXTENDED_LEAVES | 0x07, EDX, 8),
    "rdtscp": (EXTENDED_LEAVES | 0x01, EDX, 27),
    "serializing-lfence": (EXTENDED_LEAVES | 0x21, EAX, 2),
    "aperfmperf-read-only": (EXTENDED_LEAVES | 0x07, EDX, 10),
    "amd-perfmon-v2": (EXTENDED_LEAVES | 0x22, EAX, 0),
}
"""Leaf, register and bit in which CPUID reports each feature."""


def has_feature(leaves: Leaves, feature: str) -> bool | None:
    """Returns whether the CPU has the feature (False without the leaf); None without CPUID."""
    number, register, bit = _FEATURE_BITS[feature]
    registers = read_leaf(leaves, number)
    if registers is not None:
        return bool(registers[register] >> bit & 1)
    first = leaves(0, 0)
    return None if first is None or first[EAX] == 0 else False


# --- counters ------------------------------------------------------------------------------------


ASSUMED_FIXED_COUNTERS = 3
"""Number of fixed counters of every bare-metal Intel CPU with perfmon version 2 to 4, even if CPUID
reports fewer (Bonnell: 1). Linux assumes the same."""


@dataclass(frozen=True, slots=True)
class Perfmon:
    """Counters of an Intel CPU, from leaves 0AH and 23H: numbers of general and fixed counters and
    their widths in bits. Version 0 means no counters (AMD, most guests)."""

    version: int
    general_count: int
    general_bits: int
    fixed_count: int
    fixed_bits: int
    anythread_deprecated: bool
    events: frozenset[int] = frozenset()
    """Architectural events that the CPU has: 0 cycles, 1 instructions, 2 reference cycles."""


def perfmon(leaves: Leaves) -> Perfmon | None:
    registers = read_leaf(leaves, 0x0A)
    if registers is None:
        return None
    eax, ebx, _, edx = registers
    version = eax & 0xFF
    if version == 0:
        return Perfmon(0, 0, 0, 0, 0, anythread_deprecated=False)
    fixed = edx & 0x1F if version >= 2 else 0
    if (
        0 < fixed < ASSUMED_FIXED_COUNTERS
        and version < 5
        and has_feature(leaves, "hypervisor") is False
    ):
        fixed = ASSUMED_FIXED_COUNTERS
    general, fixed = _counter_numbers_in_leaf_23(leaves) or (eax >> 8 & 0xFF, fixed)
    pmu = Perfmon(
        version,
        general,
        eax >> 16 & 0xFF,
        fixed,
        edx >> 5 & 0xFF if fixed else 0,
        anythread_deprecated=bool(edx >> 15 & 1),
        events=frozenset(n for n in range(min(eax >> 24, 32)) if not ebx >> n & 1),
    )
    # Counters have at most 64 bits, and GLOBAL_CTRL has enable bits for 32 general counters.
    is_fixed_plausible = pmu.fixed_count == 0 or 0 < pmu.fixed_bits <= 64
    is_plausible = 0 < pmu.general_count <= 32 and 0 < pmu.general_bits <= 64 and is_fixed_plausible
    return pmu if is_plausible else None


def _counter_numbers_in_leaf_23(leaves: Leaves) -> tuple[int, int] | None:
    """Returns the numbers of general and fixed counters of this CPU from leaf 23H; on hybrids leaf
    0AH covers only the counters that both core types have. Leaf 23H has a bit for each counter;
    counters after a gap are left out."""
    subleaves = read_leaf(leaves, 0x23)
    bitmaps = read_leaf(leaves, 0x23, 1) if subleaves and subleaves[EAX] & 0b10 else None
    if bitmaps is None or not bitmaps[EAX] or not bitmaps[EBX]:
        return None
    return _count_trailing_ones(bitmaps[EAX]), _count_trailing_ones(bitmaps[EBX])


def _count_trailing_ones(mask: int) -> int:
    """Returns the number of set bits below the first clear bit."""
    return (~mask & (mask + 1)).bit_length() - 1


def has_working_any_thread(leaves: Leaves) -> bool:
    """Returns whether an event with the AnyThread bit counts both threads of a core. The kernel
    passes the bit on even to CPUs that ignore it, so the caller must check.

    AnyThread was introduced with version 3. Linux reads the "deprecated" bit only from version 5
    on, but Goldmont Plus (version 4) sets it too, and no other CPU before version 5 does."""
    pmu = perfmon(leaves)
    return pmu is not None and pmu.version >= 3 and not pmu.anythread_deprecated


def amd_counter_count(leaves: Leaves) -> int | None:
    """Returns the number of core counters from leaf 80000022H; None without PerfMonV2."""
    registers = read_leaf(leaves, EXTENDED_LEAVES | 0x22)
    if registers is None or not registers[EAX] & 1:
        return None
    return registers[EBX] & 0xF or None


# --- clocks --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Crystal:
    """Leaf 15H: the TSC ticks `numerator` times in `denominator` ticks of the core crystal."""

    numerator: int
    denominator: int
    hz: int | None

    @property
    def ratio(self) -> float:
        return self.numerator / self.denominator


def crystal(leaves: Leaves) -> Crystal | None:
    registers = read_leaf(leaves, 0x15)
    if registers is None or not registers[EAX] or not registers[EBX]:
        return None
    return Crystal(registers[EBX], registers[EAX], registers[ECX] or None)


def base_mhz(leaves: Leaves) -> int | None:
    """Returns the nominal base frequency in MHz from leaf 16H; None if unknown."""
    registers = read_leaf(leaves, 0x16)
    return (registers[EAX] & 0xFFFF or None) if registers else None
