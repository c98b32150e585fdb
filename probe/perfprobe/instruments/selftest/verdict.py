"""From what was expected and what was counted to a verdict. Others may have to do with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["trusted", "close", "unusable", "disturbed", "not there"]

CLOSE = 3.0
"""Tolerances: beyond that it is not the error of the test any more."""
RANK: dict[Verdict, int] = {"trusted": 0, "close": 1, "disturbed": 2, "unusable": 3}


@dataclass(frozen=True, slots=True)
class Check:
    """What is held against what. `tolerance` is a share of the scale of what was seen."""

    counter: str
    what: str
    unit: str
    tolerance: float
    why: str
    """Why it is no narrower."""
    in_use: bool = True


@dataclass(frozen=True, slots=True)
class Seen:
    """One CPU, one try."""

    cpu: int
    expected: float
    measured: float
    scale: float
    """What errors are relative to: mostly what was expected, or the whole where that is nothing."""
    less: float = 0.0
    """By how much others - tasks, the hypervisor - may have made it less ..."""
    more: float = 0.0
    """... or more, as far as can be told without the counter."""
    telling: bool = True
    """Others did so little that a number which is right by chance is unlikely."""

    @property
    def error(self) -> float:
        return (self.measured - self.expected) / self.scale


NOTHING: tuple[Verdict, Seen | None] = ("disturbed", None)


@dataclass(frozen=True, slots=True)
class Result:
    counter: str
    what: str
    verdict: Verdict
    origin: str | None = None
    expected: float | None = None
    measured: float | None = None
    unit: str | None = None
    error: float | None = None
    tolerance: float | None = None
    scale: float | None = None
    """What the two are shares of."""
    why: str | None = None
    cpu: int | None = None
    """The one that these numbers are of: the worst."""
    cpus: Sequence[int] = ()
    """All with this verdict."""
    disturbed: Sequence[int] = ()
    """CPUs that said nothing, because others were at work there."""
    in_use: bool = True
    fix: str | None = None


def judge(check: Check, seen: Seen) -> Verdict:
    error, own = abs(seen.error), check.tolerance * seen.scale
    if error <= check.tolerance:
        return "trusted" if seen.telling else "disturbed"
    if -seen.less - own <= seen.measured - seen.expected <= seen.more + own:
        return "disturbed"
    return "close" if error <= CLOSE * check.tolerance else "unusable"


def better(check: Check, one: Seen | None, other: Seen) -> Seen:
    """Of two tries. Noise makes a good counter look bad, and never a bad one good twice."""
    if one is None:
        return other
    return min(one, other, key=lambda seen: (RANK[judge(check, seen)], abs(seen.error)))


def conclude(check: Check, tries: Iterable[Seen], cpus: Sequence[int], origin: str) -> Result:
    """Over all CPUs (`cpus`: those it was tried on): the worst that any undisturbed one says."""
    by_cpu = {seen.cpu: (judge(check, seen), seen) for seen in tries}
    clear = {cpu: found for cpu, found in by_cpu.items() if found[0] != "disturbed"}
    silent = [cpu for cpu in cpus if cpu not in clear]
    verdict, seen = max(
        (clear or by_cpu).values(),
        key=lambda found: (RANK[found[0]], abs(found[1].error)),
        default=NOTHING,
    )
    alike = [cpu for cpu, found in by_cpu.items() if found[0] == verdict]
    if seen is None:
        return Result(
            check.counter, check.what, "disturbed", origin, unit=check.unit,
            tolerance=check.tolerance, why=check.why, disturbed=silent, in_use=check.in_use,
        )  # fmt: skip
    return Result(
        check.counter, check.what, verdict, origin, seen.expected, seen.measured, check.unit,
        seen.error, check.tolerance, seen.scale, check.why, seen.cpu, alike, silent, check.in_use,
    )  # fmt: skip
