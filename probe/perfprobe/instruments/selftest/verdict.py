"""Compares expected and measured values of a counter, and judges the counter; the effects of other
tasks and of a hypervisor are allowed for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

Verdict = Literal["trusted", "close", "unusable", "disturbed", "not there"]

CLOSE_FACTOR = 3.0
"""Multiple of a check's tolerance up to which an error is "close"; larger errors are "unusable"."""
VERDICT_RANK: dict[Verdict, int] = {"trusted": 0, "close": 1, "disturbed": 2, "unusable": 3}


@dataclass(frozen=True, slots=True)
class Check:
    """A check of one counter. `tolerance` is the maximum error, relative to `Outcome.scale`."""

    counter: str
    workload: str
    """Description of the CPU's work during which the count is known."""
    unit: str
    tolerance: float
    tolerance_reason: str
    """The reason why the tolerance is not narrower."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one try of a check on one CPU."""

    cpu: int
    expected: float
    measured: float
    scale: float
    """The value to which errors are relative: the expected value or, if that is 0, the whole
    span."""
    max_loss: float = 0.0
    """Upper bound of the loss that other tasks or the hypervisor may have caused."""
    max_gain: float = 0.0
    """Upper bound of the gain that other tasks or the hypervisor may have caused."""
    conclusive: bool = True
    """Whether a right count proves that the counter works, because other tasks hardly ran."""

    @property
    def error(self) -> float:
        return (self.measured - self.expected) / self.scale


NO_OUTCOME: tuple[Verdict, Outcome | None] = ("disturbed", None)


@dataclass(frozen=True, slots=True)
class Result:
    """The verdict on a counter after all tries of a check on all CPUs."""

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
    """The value to which `error` and `tolerance` are relative."""
    why: str | None = None
    cpu: int | None = None
    """The CPU with the worst result, which these numbers describe."""
    cpus: Sequence[int] = ()
    """All CPUs with this verdict."""
    disturbed: Sequence[int] = ()
    """CPUs without a verdict, because other tasks disturbed the check there."""
    fix: str | None = None


def rank(check: Check, outcome: Outcome) -> tuple[int, float]:
    """Returns a key by which outcomes are compared; the best outcome has the lowest."""
    return VERDICT_RANK[judge(check, outcome)], abs(outcome.error)


def judge(check: Check, outcome: Outcome) -> Verdict:
    error, slack = abs(outcome.error), check.tolerance * outcome.scale
    if error <= check.tolerance:
        return "trusted" if outcome.conclusive else "disturbed"
    if -outcome.max_loss - slack <= outcome.measured - outcome.expected <= outcome.max_gain + slack:
        return "disturbed"
    return "close" if error <= CLOSE_FACTOR * check.tolerance else "unusable"


def conclude(check: Check, tries: Iterable[Outcome], cpus: Sequence[int], origin: str) -> Result:
    """Returns the verdict of a check: that of the worst CPU that was not disturbed. `cpus` are the
    CPUs on which the check was tried."""
    by_cpu = {outcome.cpu: (judge(check, outcome), outcome) for outcome in tries}
    undisturbed = {cpu: result for cpu, result in by_cpu.items() if result[0] != "disturbed"}
    disturbed_cpus = [cpu for cpu in cpus if cpu not in undisturbed]
    verdict, outcome = max(
        (undisturbed or by_cpu).values(),
        key=lambda result: rank(check, result[1]),
        default=NO_OUTCOME,
    )
    cpus_with_verdict = [cpu for cpu, result in by_cpu.items() if result[0] == verdict]
    result = Result(check.counter, check.workload, verdict, origin, disturbed=disturbed_cpus)
    result = replace(result, unit=check.unit, tolerance=check.tolerance, why=check.tolerance_reason)
    if outcome is None:
        return result
    expected, measured, error = outcome.expected, outcome.measured, outcome.error
    result = replace(result, expected=expected, measured=measured, error=error)
    return replace(result, cpu=outcome.cpu, cpus=cpus_with_verdict, scale=outcome.scale)
