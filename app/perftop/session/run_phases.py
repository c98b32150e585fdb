"""Phases of a job: from one mark to the next, or, without marks, stretches in which one program ran
most.

The session notes the times of the job's threads at each mark and about once a second. A phase is
the difference of two such moments, so marks need no sums of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from perftop.session.episodes import RUN_ENDED, RUN_STARTED
from perftop.session.task_times import RunTimes

MAX_MARKS = 64
"""Maximum number of marks at which times are noted; later marks begin no phase."""
MAX_MOMENTS = 128
"""Maximum number of other moments; with more, every second one is dropped."""
FIRST_STEP_NS = 900_000_000
"""Initial minimum time in ns between two moments. It doubles whenever moments are dropped."""
MAX_UNNAMED_PHASES = 6
MIN_PHASE_NS = 200_000_000
"""Minimum time in ns before the first mark for that time to be a phase of its own."""


class Moment(NamedTuple):
    time_ns: int
    label: str | None
    """Label of the mark; None: the moment is no mark."""
    times: RunTimes


class Moments:
    """The times of a job at its marks, and at moments between them."""

    def __init__(self) -> None:
        self.marks: list[Moment] = []
        self.periodic: list[Moment] = []
        """Other moments, about once a second."""
        self._step_ns = FIRST_STEP_NS

    def mark(self, time_ns: int, label: str, times: RunTimes) -> None:
        if len(self.marks) < MAX_MARKS:
            self.marks.append(Moment(time_ns, label, times.job_copy()))

    def note(self, time_ns: int, times: RunTimes) -> None:
        if self.periodic and time_ns - self.periodic[-1].time_ns < self._step_ns:
            return
        self.periodic.append(Moment(time_ns, None, times.job_copy()))
        if len(self.periodic) > MAX_MOMENTS:
            self.periodic = self.periodic[::2]
            self._step_ns *= 2


@dataclass(frozen=True)
class RunPhase:
    label: str
    start_ns: int
    end_ns: int
    times: RunTimes
    """Times of the job's threads in this phase."""

    @property
    def elapsed_s(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9

    def largest(self) -> tuple[str, float]:
        """Returns the program that ran most, and the seconds that it ran; '' if none did."""
        run_s: dict[str, float] = {}
        for times in self.times.threads.values():
            run_s[times.comm] = run_s.get(times.comm, 0.0) + times.run_s
        return max(run_s.items(), key=lambda pair: pair[1], default=("", 0.0))


def phases(moments: Moments, start: Moment, end: Moment) -> list[RunPhase]:
    """Returns the phases of the job from `start` to `end`, or to the marks at its start and its
    end, if there are such marks."""
    named_marks: list[Moment] = []
    for mark in moments.marks:
        assert mark.label is not None
        if mark.label.startswith(RUN_STARTED):
            start, named_marks = mark, []
        elif mark.label.startswith(RUN_ENDED):
            end = mark
            break
        else:
            named_marks.append(mark)
    if named_marks and named_marks[0].time_ns - start.time_ns < MIN_PHASE_NS:
        return _phases_between([start._replace(label=named_marks[0].label), *named_marks[1:], end])
    if named_marks:
        return _phases_between([start._replace(label="before"), *named_marks, end])
    between = [m for m in moments.periodic if start.time_ns < m.time_ns < end.time_ns]
    return _phases_by_largest([start, *between, end])


def _phases_between(moments: Sequence[Moment]) -> list[RunPhase]:
    return [
        RunPhase(first.label or "", first.time_ns, last.time_ns, last.times.since(first.times))
        for first, last in pairwise(moments)
        if last.time_ns > first.time_ns
    ]


def _phases_by_largest(moments: Sequence[Moment]) -> list[RunPhase]:
    """Returns phases named after the program that ran most. A stretch in which nothing ran belongs
    to the phase before it, or, at the start, to the phase after it. As long as there are more than
    MAX_UNNAMED_PHASES, the shortest phase is joined with its shorter neighbour."""
    edges: list[Moment] = []
    name = ""
    for phase, moment in zip(_phases_between(moments), moments, strict=False):
        largest, run_s = phase.largest()
        if not edges or (run_s > 0 and name and largest != name):
            edges.append(moment)
        if run_s > 0:
            name = largest
    edges.append(moments[-1])
    while len(edges) > MAX_UNNAMED_PHASES + 1:
        lengths = [last.time_ns - first.time_ns for first, last in pairwise(edges)]
        shortest = lengths.index(min(lengths))
        joins_next = shortest == 0 or (
            shortest + 1 < len(lengths) and lengths[shortest + 1] < lengths[shortest - 1]
        )
        del edges[shortest + 1 if joins_next else shortest]
    return [replace(phase, label=phase.largest()[0]) for phase in _phases_between(edges)]
