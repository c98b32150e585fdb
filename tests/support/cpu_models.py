"""CPUID of some CPU models, to test the table of models."""

from __future__ import annotations

from dataclasses import replace

from perfprobe.cpu.cpuid import LeafRegisters, Leaves
from perfprobe.cpu.model_tables import MODEL_ROWS
from perfprobe.cpu.model_terms import CounterBudget, Uarch
from perfprobe.wire import Multiplier

INTEL = "GenuineIntel"
AMD = "AuthenticAMD"

Perfmon = tuple[int, int]  # EAX and EDX of leaf 0AH
V3 = (0x07300403, 0x603)
V4 = (0x07300404, 0x603)
V4_GONE = (0x07300404, 0x8603)
V5 = (0x08300805, 0x8604)
V5_GRACEMONT = (0x08300605, 0x8603)
V6 = (0x08300806, 0x8603)
V3_NARROW = (0x07280203, 0x503)
V3_BONNELL = (0x07280203, 0x2501)


def listed_uarch(name: str) -> Uarch:
    """Returns a microarchitecture from the table of models."""
    return next(row.uarch for row in MODEL_ROWS if row.uarch.name == name)


SKYLAKE_COUNTERS = CounterBudget(4, 3, 48, 48)
SKYLAKE_SP = replace(listed_uarch("Skylake-SP"), budget=SKYLAKE_COUNTERS)


class FakeCpuid:
    """A `cpuid` function that reads leaves from a table and has only subleaf 0."""

    def __init__(self, leaves: dict[int, LeafRegisters]) -> None:
        self.leaves = leaves

    def __call__(self, leaf: int, subleaf: int = 0, /) -> LeafRegisters | None:
        return self.leaves.get(leaf) if subleaf == 0 else None


def machine(
    perfmon: Perfmon | None = None,
    crystal: tuple[int, int, int] | None = None,
    mhz: int = 0,
    **leaves: LeafRegisters,
) -> Leaves:
    """Returns the leaves of an Intel CPU: 0AH; 15H as (EBX, EAX, ECX), which are ratio and crystal;
    16H; other leaves."""
    table: dict[int, LeafRegisters] = {0: (0x20, 0x756E6547, 0x6C65746E, 0x49656E69)}
    if perfmon is not None:
        table[0x0A] = (perfmon[0], 0, 0, perfmon[1])
    if crystal is not None:
        table[0x15] = (crystal[1], crystal[0], crystal[2], 0)
    table[0x16] = (mhz, 0, 0, 0)
    table.update({int(name[1:], 16): registers for name, registers in leaves.items()})
    return FakeCpuid(table)


def epyc(leaf22: LeafRegisters | None, *, hypervisor: bool = False, counts: bool = True) -> Leaves:
    table: dict[int, LeafRegisters] = {
        0x00: (0x10, 0x68747541, 0x444D4163, 0x69746E65),
        0x01: (0xA00F11, 0, hypervisor << 31, 0),
        0x06: (0x4, 0, counts, 0),
        0x0A: (0, 0, 0, 0),
        0x80000000: (0x80000022 if leaf22 else 0x80000021, 0, 0, 0),
        0x80000007: (0, 0, 0, 0x500 if counts else 0x100),
        0x80000008: (0, 2 if counts else 0, 0, 0),
    }
    if leaf22:
        table[0x80000022] = leaf22
    return FakeCpuid(table)


def factors(result: list[Multiplier], key: str) -> list[float]:
    return [candidate.factor for candidate in result if candidate.counter == key]


# SMT methods; tests/data/cpu_models.txt names these and the Perfmons above.
ANY = ("any-thread", "traced", "bounds")
ONE_ANY = ("one-thread", "any-thread", "traced", "bounds")
ONE_DIST = ("one-thread", "distributed", "traced", "bounds")
SOFT = ("traced", "bounds")
SINGLE = ("single",)
ANY_ONLY = ("any-thread",)
