"""The truth about a core in a time window: shares, clocks and exact counts, computed without
counters."""

from __future__ import annotations

from typing import Any

from fakekernel.activity import HALT, IDLE, KERNEL, STEAL, UNHALTED, Core, Piece
from perfprobe.sources.sim.stages import Integral

STATES = ("neither", "lp0", "lp1", "both")


def _rates(piece: Piece) -> dict[str, int]:
    """Returns the growth of each quantity per ns: times in ns, cycles in units of 1e-9, and
    instructions in units of 1e-12."""
    rates = {f"mask{piece.mask}": 1}
    for lp, mode in enumerate(piece.modes):
        if mode not in UNHALTED:
            rates[f"{lp}{mode}"] = 1
            continue
        work = piece.hz * piece.ipc[lp]
        rates |= {f"{lp}ref": 1, f"{lp}cycles": piece.hz, f"{lp}instructions": work}
        if mode == KERNEL:
            rates |= {f"{lp}kernel_cycles": piece.hz, f"{lp}kernel_instructions": work}
    return rates


def _advances(core: Core, t0: int, t1: int) -> dict[str, int]:
    """The increase of each quantity from t0 to t1."""
    rates = [_rates(piece) for piece in core.pieces]
    advances = {}
    for name in {name for rate in rates for name in rate}:
        count = Integral(core.stages, [rate.get(name, 0) for rate in rates])
        advances[name] = count(t1) - count(t0)
    return advances


def _ratio(above: float, below: float) -> float | None:
    return above / below if below else None


def _lp(advances: dict[str, int], lp: int, cpu: int, ns: int, tsc_hz: int) -> dict[str, Any]:
    def of(name: str) -> int:
        return advances.get(f"{lp}{name}", 0)

    ref, cycles, instructions = of("ref"), of("cycles"), of("instructions")
    return {
        "cpu": cpu,
        "util": ref / ns,
        "idle": of(IDLE) / ns,
        "involuntary": of(HALT) / ns,
        "steal": of(STEAL) / ns,
        "busy_hz": _ratio(cycles, ref),
        "net_hz": cycles / ns,
        "ipc": _ratio(instructions / 1000, cycles),
        "kernel_cycles": _ratio(of("kernel_cycles"), cycles),
        "kernel_instructions": _ratio(of("kernel_instructions"), instructions),
        "counts": {
            "ref": ref * tsc_hz / 1e9,
            "cycles": cycles / 1e9,
            "instructions": instructions / 1e12,
            "kernel_cycles": of("kernel_cycles") / 1e9,
            "kernel_instructions": of("kernel_instructions") / 1e12,
        },
    }


def window(core: Core, cpus: list[int], t0: int, t1: int, tsc_hz: int) -> dict[str, Any]:
    """The truth of a core from t0 to t1, both in ns."""
    advances, ns = _advances(core, t0, t1), t1 - t0
    masks = [advances.get(f"mask{mask}", 0) / ns for mask in range(1 << len(cpus))]
    return {
        "cpus": cpus,
        "smt": dict(zip(STATES, masks, strict=True)) if len(cpus) == 2 else None,
        "masks": masks,
        "neither": masks[0],
        "active_threads": sum(mask.bit_count() * share for mask, share in enumerate(masks)),
        "lps": [_lp(advances, lp, cpu, ns, tsc_hz) for lp, cpu in enumerate(cpus)],
    }
