"""Describes a ramp in words: the numbers, what disturbed them, how long to warm up. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perftop.base.format import many, rough, rounded
from perftop.base.text import wrapped
from perftop.verbs.ramp.climb import HOLD_S
from perftop.verbs.ramp.runs import Ramp, Spread
from perftop.verbs.ramp.trace import Gap, counted

INDENT = 12
LEAST = 0.001
"""Share of a clock; levels that differ by less count as the same."""
AGREE = 0.01
"""Maximum share by which the clock of counted cycles and the chain's may differ. The chain's is off
by a few tenths of a per cent, as only the least cost of a stamp is subtracted."""


def unit(answer: Mapping[str, Any]) -> str:
    """The unit of the clock. If cycles are not counted and the length of a step is unknown, there
    is no clock, but a rate of steps in proportion to it."""
    return "GHz" if counted(answer) or answer["step_cycles"] else "G steps/s"


def clock_name(answer: Mapping[str, Any]) -> str:
    return "busy clock (cycles counter)" if counted(answer) else "probe clock"


def title(answer: Mapping[str, Any]) -> str:
    where = [answer["host"] or "this machine", answer["model"] or "unknown CPU"]
    return " · ".join([*where, f"CPU {answer['cpu']}", answer["isa"], unit(answer)])


def up(seconds: float) -> float:
    """A time rounded up to two digits."""
    step = 10.0 ** (math.floor(math.log10(seconds)) - 1) if seconds > 0 else 1.0
    return math.ceil(seconds / step - 1e-9) * step


def clock(hz: float, error_hz: float) -> str:
    """A clock in GHz with its error, with as many decimals as the error allows."""
    digits = 2 if error_hz >= 5e6 else 3
    return f"{hz / 1e9:.{digits}f} ± {max(error_hz / 1e9, 10.0**-digits):.{digits}f}"


# --- one sentence ---------------------------------------------------------------------------------


def sentence(answer: Mapping[str, Any], ramp: Ramp) -> str:
    """One sentence: how long to warm up, and the confidence in it."""
    name, runs = f"CPU {answer['cpu']}", len(ramp.climbs)
    if ramp.steady_s is None or ramp.steady_hz is None or ramp.error_hz is None:
        load = rounded(answer["phases"][0]["seconds"])
        told = f"the clock of {name} did not settle within {load}{_between(answer, ramp)}"
        return f"No answer: {told} in any of {many(runs, 'run')}; try longer ones: --seconds."
    count = len(ramp.used)
    steady = f"{clock(ramp.steady_hz, ramp.error_hz)} {unit(answer)}"
    long = rounded(up(ramp.steady_s.high))
    among = f"{count} of {many(runs, 'run')}"
    told = f"Warm up {name} for {long}: in {among} it was steady at {steady} by then"
    sure = f"confidence {100 * count / (count + 1):.0f} % that the next run is no slower"
    if ramp.clean:
        return f"{told}; {sure}."
    return f"{told}; low confidence: the runs were disturbed."


def _between(answer: Mapping[str, Any], ramp: Ramp) -> str:
    first = [climb.levels[0] for climb in ramp.climbs if climb.levels]
    if not first:
        return ""
    low, high = min(level.low_hz for level in first), max(level.high_hz for level in first)
    return f", but went from {low / 1e9:.2f} to {high / 1e9:.2f} {unit(answer)}"


# --- the numbers ----------------------------------------------------------------------------------


def facts(answer: Mapping[str, Any], ramp: Ramp, width: int) -> list[str]:
    rows = [*_source(answer, ramp), *_times(answer, ramp), *_levels(answer, ramp)]
    rows += [("halts", _halts(ramp)), ("gaps", _gaps(ramp)), ("runs", _disturbed(ramp))]
    if not answer["tsc"]["invariant"]:
        rows.append(
            ("TSC", "not known to be invariant: if it follows the clock, all this is wrong")
        )
    if answer["virtualisation"]:
        seen = "only its own idle is seen; the CPU below may have run for others"
        rows.append(("guest", seen))
    return [
        line
        for name, text in rows
        if text
        for line in wrapped(f"{name:<{INDENT}}{text}", width, INDENT)
    ]


def _times(answer: Mapping[str, Any], ramp: Ramp) -> list[tuple[str, str]]:
    first_s = min((climb.first_s for climb in ramp.climbs), default=0.0)
    first = f"{ramp.first_hz / 1e9:.2f} {unit(answer)} in the first {rounded(first_s)}"
    rows = [("first", first if counted(answer) else f"{first}, cold caches in it")]
    rows.append(("90 %", f"{_by(ramp.t90_s)}; 99 % {_by(ramp.t99_s)}"))
    steady = _by(ramp.steady_s)
    if ramp.steady_hz is not None and ramp.error_hz is not None:
        clocks = f"{clock(ramp.steady_hz, ramp.error_hz)} {unit(answer)}"
        steady = f"{steady}: {clocks}{_drops(ramp)}"
    rows.append(("steady", steady))
    return rows


def _by(times: Spread | None) -> str:
    if times is None:
        return "not reached"
    if rounded(times.low) == rounded(times.high):
        return f"by {rounded(times.middle)}"
    return f"by {rounded(times.middle)} ({rounded(times.low)} to {rounded(times.high)})"


def _drops(ramp: Ramp) -> str:
    count = sum(ramp.climbs[i].drops > 0 for i in ramp.used)
    return f"; left later in {many(count, 'run')}" if count else ""


def _levels(answer: Mapping[str, Any], ramp: Ramp) -> list[tuple[str, str]]:
    if ramp.scalar_hz is None or ramp.steady_hz is None or ramp.error_hz is None:
        return []
    isa, change = answer["isa"], ramp.steady_hz / ramp.scalar_hz - 1
    same = abs(ramp.steady_hz - ramp.scalar_hz) <= max(ramp.error_hz, LEAST * ramp.scalar_hz)
    beside = f"scalar code runs at {ramp.scalar_hz / 1e9:.3f} {unit(answer)}: {isa} "
    differs = "no different" if same else f"{100 * change:+.1f} %".replace("-", "−")
    rows = [("level", beside + differs)]
    if len(ramp.switch_s) == 2:
        to_scalar, to_wide = (rounded(seconds) for seconds in ramp.switch_s)
        cost = f"{to_wide} lost from scalar to {isa}, {to_scalar} back, in the first ms each"
        rows.append(("switch", cost))
    return rows


def _halts(ramp: Ramp) -> str:
    if len(ramp.used) < 2:
        return ""
    told = [f"{rounded(h.length_s)} at {rounded(h.at_s)} ({h.runs} runs)" for h in ramp.halts]
    return "; ".join(told) or "none that came back at its place in most runs"


def _gaps(ramp: Ramp) -> str:
    """The mean number of gaps in a run, by kind, over the runs that count."""
    among = [ramp.climbs[i] for i in ramp.used] or ramp.climbs
    if not among:
        return ""
    gaps = [gap for climb in among for gap in climb.gaps]
    known = all(gap.halted is not None for gap in gaps)
    count = Counter(gap.kind for gap in gaps)
    mean = {kind: round(count[kind] / len(among)) for kind in count}
    told = [
        f"{mean[kind]} {text}{'' if known else may}" for kind, text, may in _GAPS if mean.get(kind)
    ]
    if not told:
        return "fewer than one a run"
    return f"a run: {', '.join(told)}{_halted(gaps, len(among)) if known else ''}"


_GAPS = (
    ("short", "of 5 to 60 µs", " (halts, interrupts)"),
    ("long", "longer", " (hypervisor, firmware, interrupts)"),
    ("preempted", "by other tasks", ""),
)
"""Kind, name, and possible causes, which are named if cycles were not counted."""


def _halted(gaps: Sequence[Gap], runs: int) -> str:
    """How many gaps a run had without cycles; in interrupts and other tasks cycles go on."""
    mean = round(sum(gap.halted is True for gap in gaps) / runs)
    return f"; {mean} without cycles, so no interrupts" if mean else "; none without cycles"


def _disturbed(ramp: Ramp) -> str:
    runs, left = len(ramp.climbs), len(ramp.climbs) - len(ramp.used)
    told: dict[str, list[float | None]] = {}
    for climb in ramp.climbs:
        for key, value in climb.disturbed.items():
            told.setdefault(key, []).append(value)
    parts = [f"{_WHY[key].format(_range(key, values))} (in {len(values)})"
             for key, values in told.items()]  # fmt: skip
    if wavering := sum(not climb.usable for climb in ramp.climbs):
        parts.append(f"not steady (in {wavering})")
    if not parts:
        return f"{runs} from idle, undisturbed"
    return f"{left} of {runs} left out: {'; '.join(parts)}"


_WHY = {
    "idle": "before only {} idle",
    "steal_s": "the hypervisor took {}",
    "lost": "stood still for {}",
    "preempted": "preempted {} times",
    "sibling": "its sibling was busy for {}",
}
_TELL: dict[str, Callable[[float], str]] = {
    "steal_s": rounded,
    "preempted": lambda times: f"{times:.0f}",
}


def _range(key: str, values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "an unknown part"
    tell = _TELL.get(key, rough)
    low, high = tell(min(known)), tell(max(known))
    return low if low == high else f"{low} to {high}"


# --- where the clock comes from -------------------------------------------------------------------


def _source(answer: Mapping[str, Any], ramp: Ramp) -> list[tuple[str, str]]:
    """Rows that say how the clock was measured, and why it may be wrong."""
    if counted(answer):
        return [("busy clock", f"cycles counter, read by RDPMC{_agreement(answer, ramp)}")]
    return [("probe clock", _method(answer)), ("no counter", answer["cycles_why"])]


def _agreement(answer: Mapping[str, Any], ramp: Ramp) -> str:
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


# --- several CPUs ---------------------------------------------------------------------------------


def table(found: Sequence[tuple[Mapping[str, Any], Ramp]], failed: Mapping[int, str]) -> list[str]:
    """A row for each CPU; for one that failed, the reason."""
    lines = ["  CPU  first  steady      ±     90 %     99 %   steady  runs"]
    rows = {answer["cpu"]: _row(ramp) for answer, ramp in found}
    rows |= failed
    return lines + [f"{cpu:>5} {rows[cpu]}" for cpu in sorted(rows)]


def _row(ramp: Ramp) -> str:
    hz = "n/a" if ramp.steady_hz is None else f"{ramp.steady_hz / 1e9:.3f}"
    error = "n/a" if ramp.error_hz is None else f"{max(1e-3, ramp.error_hz / 1e9):.3f}"
    times = [
        "n/a" if each is None else rounded(each.high)
        for each in (ramp.t90_s, ramp.t99_s, ramp.steady_s)
    ]
    state = "" if ramp.clean else ", disturbed"
    cells = [f"{ramp.first_hz / 1e9:6.2f}", f"{hz:>7}", f"{error:>6}"]
    cells += [f"{time:>8}" for time in times]
    return " ".join(cells) + f"  {len(ramp.used)} of {len(ramp.climbs)}{state}"


def settles(answer: Mapping[str, Any]) -> str:
    """The line below the table that explains its words."""
    within = f"within 2 % for {rounded(HOLD_S)}"
    return f"Times are the slowest run's; steady is {within}; clocks in {unit(answer)}."
