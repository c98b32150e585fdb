"""The parts of a report of `perftop why`: findings on causes, clues, and results of checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import nan
from typing import Any, NamedTuple

from perftop.model.confidence import Confidence, TaskOnCpu
from perftop.model.kinds import KINDS, Episode
from perftop.session.interval import Interval
from perftop.session.losses import Cause, LossSums, Totals
from perftop.session.session import Session
from perftop.session.task_times import JobTime

MIN_SHARE = 0.01
"""Minimum cost of a named cause, as a share of the time."""
MIN_VICTIM_SHARE = 0.05
"""Minimum share of their own time that tasks must lose to a cause below MIN_SHARE to be named."""
MIN_WANTED_S = 0.1
"""Minimum time in s that a job must have run or waited for a CPU for its losses to be given as
shares. It is the time between two task records, which can miss short-lived tasks."""
MAX_CAUSES = 4
"""Maximum number of causes that are named. Further ones are only counted."""


@dataclass(frozen=True)
class Finding:
    cause: Cause
    share: float
    lost_s: float
    text: str
    culprit: str
    """The cause in a few words, for use inside a sentence."""
    cpus: list[int]
    first_cpu: int | None
    """The CPU that a short text names."""
    active_s: float | None
    """Seconds of the observed time in which the cause was active; None if unknown."""
    is_running: bool
    confidence: Confidence
    evidence: list[str]
    hint: str
    """A remedy; '' if none is known."""
    worst: Episode | None = None
    """The episode of this cause that cost most in the span; None if it has none."""
    details: dict[str, Any] = field(default_factory=dict)
    """The evidence, as in an episode's JSON line."""
    headline: str = ""
    """A sentence with the victim, the loss, the cause and the place, without a full stop. If it is
    '', the answer gives the cause's share of the whole time."""
    victim_share: float = 0.0
    """Share of their own time that the headline's tasks lose; 0 if they needed little CPU time."""
    waiting_tasks: frozenset[tuple[int, str]] = frozenset()
    takers: tuple[TaskOnCpu, ...] = ()
    """PIDs and names of the tasks that waited for a CPU, and the tasks that ran instead."""
    other_waits: tuple[Finding, ...] = ()
    """Waits of further tasks in the same span, the longest first. `share` counts them all."""

    @property
    def unit(self) -> str:
        kind = KINDS.get(self.cause[0])
        return "cycles" if kind is not None and kind.costs_cycles else "time"


class Clue(NamedTuple):
    """A likely reason for lost time whose size is not counted."""

    key: str
    text: str
    hint: str
    highest_share: float = nan
    """Upper bound of the share of the time lost in this way; NaN if unknown."""
    lost_share: float = nan
    """Lost share of the time, according to kernel samples; NaN without samples."""
    activity: str = ""
    """The words after "spends … of its time" in a sentence on the loss."""


@dataclass(frozen=True)
class Check:
    """A kind of loss that was checked for, and the result."""

    key: str
    loss_name: str
    """Name of the loss in the table; '' if only the list of ruled-out losses has it."""
    result: str
    share: float
    """Share of the time that was lost in this way."""
    brief_result: str
    """The result in a few words, for the list of ruled-out losses."""
    measured_share: float = 0.0
    """Measured share of the time (in interrupts, for example), partly lost; NaN if unknown."""

    def is_ruled_out(self, min_share: float) -> bool:
        """Returns whether the loss is certainly below `min_share`, and the measured share is below
        MIN_SHARE or unknown."""
        return self.share < min_share and not self.measured_share >= MIN_SHARE


UnmeasuredLoss = tuple[str, str, str | None]
"""Name of a loss that cannot be measured here, the reason, and how it could be measured."""


@dataclass(frozen=True)
class Report:
    session: Session
    totals: Totals
    interval: Interval
    """The numbers of the span."""
    episodes: list[Episode]
    job: str | None
    """Name of the watched job; None if the report is about all busy CPUs."""
    is_past: bool
    """Whether the span is over, so that causes are no longer active."""
    past_tense: bool
    """Whether sentences on the span are in the past tense."""
    is_whole_run: bool
    findings: list[Finding] = field(default_factory=list)
    """All causes of losses, the costliest first."""
    checks: list[Check] = field(default_factory=list)
    clues: list[Clue] = field(default_factory=list)
    """Empty in a brief report with named findings, whose answer needs no clue."""
    unmeasured_losses: list[UnmeasuredLoss] = field(default_factory=list)

    @property
    def span_ns(self) -> int:
        return self.totals.end_ns - self.totals.start_ns

    @property
    def sums(self) -> LossSums:
        return self.totals.losses

    @property
    def is_too_short(self) -> bool:
        """Whether the job ran or waited for a CPU for too short a time to report shares of it."""
        return self.job is not None and 0 < self.sums.whole_s < MIN_WANTED_S

    @property
    def job_time(self) -> JobTime | None:
        """Times of the job's threads by use; None if no job is watched, or if they are unknown."""
        return self.totals.times.job_time()

    @property
    def disk_share(self) -> float:
        """Share of the time for which the job's threads waited for the disk; 0 if unknown."""
        times = self.job_time
        return times.disk_s / sum(times) if times is not None and sum(times) > 0 else 0.0

    @property
    def blocked_share(self) -> float:
        """Share of the time for which the job's threads waited for the disk or were blocked in the
        kernel for an unknown reason; 0 if unknown."""
        times = self.job_time
        blocked_s = 0.0 if times is None else times.disk_s + times.blocked_s
        return blocked_s / sum(times) if times is not None and blocked_s > 0 else 0.0

    @property
    def lost_ratio(self) -> float:
        """Share of the wanted time that all causes took; NaN where unknown."""
        return nan if self.is_too_short else self.sums.lost_ratio

    @property
    def named_findings(self) -> list[Finding]:
        """The causes that cost at least MIN_SHARE, or whose victims lose MIN_VICTIM_SHARE; [] if
        the time is too short for shares."""
        return [f for f in self.findings if not self.is_too_short
                and (f.share >= MIN_SHARE or f.victim_share >= MIN_VICTIM_SHARE)]  # fmt: skip
