"""CPUID of the fake machines: EAX, EBX, ECX and EDX by leaf."""

from __future__ import annotations

from fakekernel.models import Model

Regs = tuple[int, int, int, int]


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


def _perfmon(model: Model, kvm: bool) -> Regs:
    no_any = model.version >= 5 or kvm
    bitmap = (1 << model.fixed) - 1 if model.version >= 5 else 0
    return (
        model.version | model.gp << 8 | model.width << 16 | 7 << 24,
        0,
        bitmap,
        model.fixed | model.width << 5 | no_any << 15,
    )


def _intel(model: Model, kvm: bool) -> dict[int, Regs]:
    leaves: dict[int, Regs] = {
        6: (1 << 0 | 1 << 1 | 1 << 4 | model.hwp << 7, 0, 1, 0),
        0xA: _perfmon(model, kvm),
        0x80000007: (0, 0, 0, 1 << 8),
    }
    if model.leaf15[0]:
        leaves[0x15] = (*model.leaf15, 0)
        leaves[0x16] = (model.base_mhz, model.turbo_hz // 1_000_000, 100, 0)
    return leaves


def _amd() -> dict[int, Regs]:
    return {
        6: (1 << 2, 0, 1, 0),
        0x80000007: (0, 0, 0, 1 << 8 | 1 << 10),
        0x80000021: (1 << 2, 0, 0, 0),
        0x80000022: (0, 6, 0, 0),
    }


def leaves(model: Model, kvm: bool) -> dict[int, Regs]:
    table: dict[int, Regs] = {
        0: _vendor(model, model.max_leaf),
        1: (
            signature(model),
            0,
            kvm << 31 | 1 << 15,
            (not model.amd) << 22 | 1 << 28 | 1 << 5 | 1 << 4,
        ),
        0x80000000: _vendor(model, 0x80000022) if model.amd else (0x80000007, 0, 0, 0),
    }
    return table | (_amd() if model.amd else _intel(model, kvm))


def answer(table: dict[int, Regs], model: Model, leaf: int) -> Regs:
    """The result of the instruction: for a leaf that is too high, Intel CPUs return their highest
    leaf."""
    if not model.amd and model.max_leaf < leaf < 0x80000000 and leaf not in table:
        leaf = model.max_leaf
    return table.get(leaf, (0, 0, 0, 0))
