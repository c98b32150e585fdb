"""The registers of an LP other than counters: clocks, thermal, limits, power, residency."""

from __future__ import annotations

from functools import partial

from fakekernel.activity import Core, Package, Piece
from fakekernel.models import Model
from fakekernel.pmu import Readers
from perfprobe.sources.sim.stages import Integral

NANO = 10**9
TEMPERATURE = 0x88390000  # reading valid, resolution 1, 57 below TjMax
UNITS = 0x000A0E03  # power 1/8 W, energy 2^-14 J, time 2^-10 s
ENERGY_MUL, ENERGY_DIV = 1 << 14, 1000 * NANO  # factors from mW x ns to energy units
WATT_150 = 150 * 8
PL1, PL2 = 1 << 10, 1 << 11


def clocks(core: Core, model: Model, lp: int) -> Readers:
    """TSC, MPERF and APERF, and AMD's read-only copies."""
    shift = model.mperf_shift
    ref = core.integral(lambda p: p.mask >> lp & 1, model.tsc_hz, NANO << shift)
    cycles = core.integral(lambda p: p.hz if p.mask >> lp & 1 else 0, 1, NANO << shift)
    read: Readers = {0x10: lambda t: t * model.tsc_hz // NANO, 0xE7: ref, 0xE8: cycles}
    return read | {0xC00000E7: ref, 0xC00000E8: cycles} if model.amd else read


def _sticky_bits(pieces: list[Piece], bits: str) -> int:
    """Sticky bits: those that any piece of the plan sets; they are never cleared."""
    seen = 0
    for piece in pieces:
        seen |= int(getattr(piece, bits))
    return seen


def thermal(core: Core, model: Model) -> Readers:
    logged = TEMPERATURE | _sticky_bits(core.pieces, "therm") << 1
    return {
        0x19C: lambda t: logged | core.piece(t).therm,
        0x19A: lambda _: 0,
        0x1A2: lambda _: model.tjmax << 16,
    }


def limits(package: Package, model: Model) -> Readers:
    pieces = package.all_pieces
    reasons = _sticky_bits(pieces, "limit") << 16
    logged = TEMPERATURE | _sticky_bits(pieces, "therm") << 1
    read: Readers = {0x1B1: lambda t: logged | _sticky_bits(list(package.pieces(t)), "therm")}
    if model.limit_reasons:
        read[model.limit_reasons] = lambda t: (
            reasons | _sticky_bits(list(package.pieces(t)), "limit")
        )
    return read


def power(package: Package) -> Readers:
    """Energy of the package: 20 W, and 10 W for each active LP."""
    energy = package.integral(
        lambda parts: 20_000 + 10_000 * sum(p.mask.bit_count() for p in parts),
        ENERGY_MUL,
        ENERGY_DIV,
    )
    limited = package.integral(
        lambda parts: any(p.limit & (PL1 | PL2) for p in parts), 1 << 10, NANO
    )
    return {
        0x606: lambda _: UNITS,
        0x610: lambda _: WATT_150 | 3 << 15 | (WATT_150 * 6 // 5 | 3 << 15) << 32,
        0x611: lambda t: energy(t) & 0xFFFFFFFF,
        0x613: lambda t: limited(t) & 0xFFFFFFFF,
    }


def residency(core: Core, model: Model) -> Readers:
    return {
        address: core.integral(partial(_is_in, state), model.tsc_hz, NANO)
        for address, state in model.residency
    }


def _is_in(state: int, piece: Piece) -> int:
    return piece.cstate == state


def package_residency(package: Package, model: Model) -> Readers:
    def residency(deep: bool) -> Integral:
        return package.integral(
            lambda parts: (
                (shallowest := min(p.cstate for p in parts)) > 0 and (shallowest == 6) == deep
            ),
            model.tsc_hz,
            NANO,
        )

    return {0x60D: residency(deep=False), 0x3F9: residency(deep=True), 0x3F8: lambda _: 0}


def _constant(value: int, _t: int) -> int:
    return value


def fixed_facts(model: Model) -> Readers:
    ratio = model.base_mhz // 100
    values = {0xCE: ratio << 8 | 10 << 40, 0x1A0: 0x850089, **model.turbo}
    if model.hwp:
        top = model.turbo_hz // 100_000_000
        values |= {
            0x770: 1,
            0x771: top | ratio << 8 | 10 << 16 | 8 << 24,
            0x774: 8 | top << 8 | 0x80 << 24,
        }
    return {address: partial(_constant, value) for address, value in values.items()}


def core_registers(core: Core, model: Model) -> Readers:
    """The read-only registers of a core."""
    if model.amd:
        return {0xC0010299: lambda _: UNITS}
    smi = core.steps(lambda p: p.smi)
    return {
        0x34: lambda t: smi(t) & 0xFFFFFFFF,
        **thermal(core, model),
        **residency(core, model),
        **fixed_facts(model),
    }


def package_registers(package: Package, model: Model) -> Readers:
    if model.amd:
        return {0xC001029B: power(package)[0x611]}
    return {**limits(package, model), **power(package), **package_residency(package, model)}
