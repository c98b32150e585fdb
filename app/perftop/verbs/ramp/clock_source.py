"""Describes the origin of the clock: counted cycles, or the chain of multiplications. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perftop.verbs.ramp.runs import Ramp
from perftop.verbs.ramp.trace import counted

AGREE = 0.01
"""Maximum share by which the clock of counted cycles and the chain's may differ. The chain's is off
by a few tenths of a per cent, as only the least cost of a stamp is subtracted."""


def unit(answer: Mapping[str, Any]) -> str:
    """The unit of the clock. If cycles are not counted and the length of a step is unknown, there
    is no clock, but a rate of steps in proportion to it."""
    return "GHz" if counted(answer) or answer["step_cycles"] else "G steps/s"


def name(answer: Mapping[str, Any]) -> str:
    return "busy clock (cycles counter)" if counted(answer) else "probe clock"


def told(answer: Mapping[str, Any], ramp: Ramp) -> list[tuple[str, str]]:
    """Rows that say how the clock was measured, and why it may be wrong."""
    if counted(answer):
        return [("busy clock", f"cycles counter, read by RDPMC{_check(answer, ramp)}")]
    return [("probe clock", _method(answer)), ("no counter", answer["cycles_why"])]


def _check(answer: Mapping[str, Any], ramp: Ramp) -> str:
    """How well the chain's clock agrees with the counter."""
    if ramp.steady_hz is None or not ramp.chain_hz:
        return ""
    chain, known = "a chain of multiplications", answer["step_cycles"]
    if not known:
        return f"; by it, each step of {chain} takes {ramp.steady_hz / ramp.chain_hz:.2f} cycles"
    apart = ramp.chain_hz / ramp.steady_hz - 1
    if abs(apart) <= AGREE:
        return f"; {chain}, {known} cycles each, agrees to {abs(100 * apart):.1f} %"
    says = f"{ramp.chain_hz / 1e9:.2f} GHz, {100 * apart:+.1f} %".replace("-", "−")
    why = f"its steps do not take {known} cycles here, or the counter is wrong"
    return f"; but {chain} says {says}: {why}"


def _method(answer: Mapping[str, Any]) -> str:
    cycles = answer["step_cycles"]
    if cycles:
        return f"a chain of multiplications, {cycles} cycles each, timed by the TSC"
    unknown = f"how many cycles one takes on this CPU ({answer['uarch']}) is not known"
    return f"steps of a chain of multiplications; {unknown}"
