"""Tables of turbo ratios: how fast the cores of a package may run, by how many of them are active.

Registers hold the table for code of licence 0 only; no register has those of wider SIMD code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from perfprobe import wire
from perfprobe.cpu.model_terms import Uarch
from perfprobe.registers import msr
from perfprobe.wire import Missing, Step

Steps = Iterable[tuple[int, int]]
"""Upper bound of active cores, and the ratio of their clock to the bus clock."""

SEMAPHORE = 0x80
"""Bit 63 of the last register on Ivy Bridge-EP and Haswell-EP; as a ratio it would be 12.8 GHz."""


def table(
    uarch: Uarch, read: Callable[[int], int | None], cpus: list[int] | None = None
) -> wire.Turbo | Missing:
    """The table of one core type. `read` returns None for a register that cannot be read."""
    turbo, bclk_hz = uarch.turbo, uarch.bclk_hz
    if turbo is None:
        return Missing("turbo", f"no register is known that tells it ({uarch.name})", None, cpus)
    if bclk_hz is None:
        return Missing("turbo", f"the bus clock is not known ({uarch.name})", None, cpus)
    needed = [turbo.ratios[0], *([turbo.counts] if turbo.counts is not None else [])]
    words = {register: read(register) for register in (*turbo.ratios, *needed)}
    for register in needed:
        if words[register] is None:
            return Missing("turbo", f"{msr.name(register)} cannot be read", None, cpus)
    found = steps(
        turbo.layout,
        [words[register] or 0 for register in turbo.ratios],
        words[turbo.counts] or 0 if turbo.counts is not None else 0,
        bclk_hz,
    )
    if not found:
        return Missing("turbo", f"{msr.name(needed[0])} holds no ratio", None, cpus)
    names = [msr.name(register) for register in turbo.ratios if words[register]]
    return wire.Turbo(found, f"{', '.join(names)}, licence 0", cpus)


def steps(layout: str, ratios: Sequence[int], counts: int, bclk_hz: float) -> list[Step]:
    """The steps that the registers hold, each frequency once. A ratio of 0 is no entry."""
    if layout == "knl":
        entries: Steps = _deltas(ratios[0])
    elif layout == "groups":
        entries = zip(_bytes([counts]), _bytes(ratios), strict=True)
    else:
        entries = enumerate(_bytes(ratios), 1)
    found: list[Step] = []
    for cores, ratio in entries:
        if not 0 < ratio < SEMAPHORE or cores <= (found[-1].cores if found else 0):
            continue
        step = Step(cores, ratio * bclk_hz)
        if found and found[-1].hz == step.hz:
            found.pop()
        found.append(step)
    return found


def _bytes(words: Sequence[int]) -> bytes:
    return b"".join(word.to_bytes(8, "little") for word in words)


def _deltas(word: int) -> Iterator[tuple[int, int]]:
    """Knights Landing's groups: the first is absolute, the others are deltas to the one before."""
    cores, ratio = word >> 1 & 0x7F, word >> 8 & 0xFF
    yield cores, ratio
    for shift in range(16, 64, 8):
        cores += word >> shift & 0x1F
        ratio -= word >> shift + 5 & 0x7
        yield cores, ratio
