"""CPUID of the fake machines: leaf and subleaf to EAX, EBX, ECX, EDX."""

from __future__ import annotations

from dataclasses import dataclass

from fakekernel.models import Model

Regs = tuple[int, int, int, int]


@dataclass(frozen=True)
class Place:
    """The position of an LP, and the numbers of cores and threads of its package."""

    package: int
    core: int
    thread: int
    cores: int
    threads: int

    @property
    def shifts(self) -> tuple[int, int]:
        smt = (self.threads - 1).bit_length()
        return smt, smt + (self.cores - 1).bit_length()

    @property
    def apic(self) -> int:
        smt, package = self.shifts
        return self.package << package | self.core << smt | self.thread


def _words(text: str) -> list[int]:
    raw = text.encode()
    return [int.from_bytes(raw[i : i + 4], "little") for i in range(0, len(raw), 4)]


def _vendor(model: Model, leaf: int) -> Regs:
    b, d, c = _words("AuthenticAMD" if model.amd else "GenuineIntel")
    return leaf, b, c, d


def signature(model: Model) -> int:
    family, number, stepping = model.signature
    base, extended = (0xF, family - 0xF) if family >= 0xF else (family, 0)
    return stepping | (number & 0xF) << 4 | base << 8 | (number >> 4) << 16 | extended << 20


def _topology(place: Place, sub: int) -> Regs:
    smt, package = place.shifts
    if sub == 0:
        return smt, place.threads, 1 << 8, place.apic
    if sub == 1:
        return package, place.threads * place.cores, 2 << 8 | 1, place.apic
    return 0, 0, sub, place.apic


def _perfmon(model: Model, kvm: bool) -> Regs:
    no_any = model.version >= 5 or kvm
    bitmap = (1 << model.fixed) - 1 if model.version >= 5 else 0
    return (
        model.version | model.gp << 8 | model.width << 16 | 7 << 24,
        0,
        bitmap,
        model.fixed | model.width << 5 | no_any << 15,
    )


def _intel(model: Model, kvm: bool) -> dict[tuple[int, int], Regs]:
    leaves: dict[tuple[int, int], Regs] = {
        (6, 0): (1 << 0 | 1 << 1 | 1 << 4 | model.hwp << 7, 0, 1, 0),
        (0xA, 0): _perfmon(model, kvm),
        (0x80000007, 0): (0, 0, 0, 1 << 8),
        (0x80000008, 0): (48 << 8 | 46, 0, 0, 0),
    }
    if model.leaf15[0]:
        leaves[0x15, 0] = (*model.leaf15, 0)
        leaves[0x16, 0] = (model.base_mhz, model.turbo_hz // 1_000_000, 100, 0)
    return leaves


def _amd(place: Place) -> dict[tuple[int, int], Regs]:
    return {
        (6, 0): (1 << 2, 0, 1, 0),
        (0x80000001, 0): (0, 0, 1 << 22 | 1 << 23, 0),  # TopologyExtensions, PerfCtrExtCore
        (0x80000007, 0): (0, 0, 0, 1 << 8 | 1 << 10),
        (0x80000008, 0): (48 << 8 | 48, 1 << 1, 0, 0),
        (0x8000001E, 0): (place.apic, place.core | (place.threads - 1) << 8, 0, 0),
        (0x80000021, 0): (1 << 2, 0, 0, 0),
        (0x80000022, 0): (0, 6, 0, 0),
    }


def leaves(model: Model, place: Place, kvm: bool = False) -> dict[tuple[int, int], Regs]:
    threads = place.threads * place.cores
    table: dict[tuple[int, int], Regs] = {
        (0, 0): _vendor(model, model.max_leaf),
        (1, 0): (
            signature(model),
            place.apic << 24 | threads << 16,
            kvm << 31 | 1 << 15,
            (not model.amd) << 22 | 1 << 28 | 1 << 5 | 1 << 4,
        ),
        (0x80000000, 0): _vendor(model, 0x80000022) if model.amd else (0x80000008, 0, 0, 0),
    }
    table |= {(0xB, sub): _topology(place, sub) for sub in range(3)}
    table |= _amd(place) if model.amd else _intel(model, kvm)
    brand = _words(model.brand.ljust(48, "\0"))
    for i in range(3):
        a, b, c, d = brand[4 * i : 4 * i + 4]
        table[0x80000002 + i, 0] = (a, b, c, d)
    if kvm:
        b, c, d = _words("KVMKVMKVM\0\0\0")
        table[0x40000000, 0] = (0x40000001, b, c, d)
    return table


def answer(table: dict[tuple[int, int], Regs], model: Model, leaf: int, sub: int) -> Regs:
    """The result of the instruction: for a leaf that is too high, Intel CPUs return their highest
    leaf."""
    limit = 0x80000000
    if not model.amd and model.max_leaf < leaf < limit and (leaf, sub) not in table:
        leaf = model.max_leaf
    if (leaf, sub) in table:
        return table[leaf, sub]
    return (0, 0, 0, 0) if (leaf, 1) in table else table.get((leaf, 0), (0, 0, 0, 0))
