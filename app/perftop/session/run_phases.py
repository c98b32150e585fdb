"""Data that only the summary of a run shows: how long all of its CPUs, one or none were busy, and
the phases of its job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from perftop.base.arrays import Floats
from perftop.model.delta import add_samples
from perftop.model.tasks import TaskSnapshot
from perftop.session.episodes import RUN_ENDED, RUN_STARTED
from perftop.session.losses import TaskTimeSpan
from perftop.session.task_times import PERFTOP_NAMES, RunTimes

CPU_TOLERANCE = 0.5
"""Tolerance in CPUs: sums of busy shares are rounded to whole CPUs, so 15.5 of 16 CPUs count as
all."""
MAX_NAMES = 256


class BusyCpus:
    """Seconds in which all CPUs, only one, or none were busy. They reveal lack of parallelism."""

    def __init__(self) -> None:
        self.all_s = self.one_s = self.none_s = self.between_s = 0.0
        self._alone_s: dict[str, float] = {}
        """By name of a task, the seconds of `one_s` in which it ran most."""

    def add(self, util: Floats, span_s: Floats, snapshots: Mapping[int, TaskSnapshot]) -> None:
        """Adds samples. `util`: busy shares of the selected CPUs, (samples, CPUs); NaN if offline
        or unknown. `snapshots`: by index of the first sample for which each is the latest."""
        is_known = np.isfinite(util)
        count, busy_cpus = is_known.sum(axis=1), np.where(is_known, util, 0.0).sum(axis=1)
        none_busy, all_busy = busy_cpus < CPU_TOLERANCE, busy_cpus >= count - CPU_TOLERANCE
        kind = np.where(busy_cpus < 1 + CPU_TOLERANCE, 3, 4)
        kind[all_busy], kind[none_busy], kind[count == 0] = 2, 1, 0
        seconds = np.array([self.none_s, self.all_s, self.one_s, self.between_s])
        self.none_s, self.all_s, self.one_s, self.between_s = add_samples(
            seconds, np.where(kind[:, None] == np.arange(1, 5), span_s[:, None], 0.0)
        ).tolist()
        for first, last in pairwise([*snapshots, len(kind)]) if 3 in kind else ():
            alone_s, snapshot = span_s[first:last][kind[first:last] == 3], snapshots[first]
            tasks = (task for cpu in snapshot.tasks for task in snapshot.tasks_on(cpu))
            _, name = max(((task.share, task.comm) for task in tasks), default=(0.0, ""))
            if len(alone_s) and name and (name in self._alone_s or len(self._alone_s) < MAX_NAMES):
                before_s = np.array([self._alone_s.get(name, 0.0)])
                (self._alone_s[name],) = add_samples(before_s, alone_s[:, None]).tolist()

    @property
    def single_cpu_task(self) -> str:
        """The task that ran most while one CPU was busy, if for at least half of that time; else
        ''."""
        name = max(self._alone_s, key=lambda task: self._alone_s[task], default="")
        return name if name and self._alone_s[name] >= 0.5 * self.one_s else ""


# --- Phases of a job: from one mark to the next or, without marks, periods in which the same
# program ran most.
#
# The session stores the times of the job's threads at each mark, and about once a second. A phase
# is the difference of two such sums.

MAX_MARKS = 64
"""Maximum number of marks with stored times. Later marks do not start a phase."""
MAX_MOMENTS = 128
"""Maximum number of other moments. If there are more, every second one is dropped."""
FIRST_STEP_NS = 900_000_000
"""Initial minimum time in ns between two moments. It doubles whenever moments are dropped."""
MAX_UNNAMED_PHASES = 6
MIN_PHASE_NS = 200_000_000
"""Minimum time in ns before the first mark that is a separate phase."""


class JobMoment(NamedTuple):
    time_ns: int
    label: str | None
    """Label of the mark; None if the moment is not a mark."""
    times: RunTimes


class JobMoments:
    """The times of a job at its marks, and at moments in between."""

    def __init__(self) -> None:
        self.marks: list[JobMoment] = []
        self.periodic: list[JobMoment] = []
        """Moments that are not marks, about one a second."""
        self._step_ns = FIRST_STEP_NS

    def add_mark(self, time_ns: int, label: str, times: RunTimes) -> None:
        if len(self.marks) < MAX_MARKS:
            self.marks.append(JobMoment(time_ns, label, times.copy(job_only=True)))

    def add_moment(self, time_ns: int, times: RunTimes) -> None:
        if self.periodic and time_ns - self.periodic[-1].time_ns < self._step_ns:
            return
        self.periodic.append(JobMoment(time_ns, None, times.copy(job_only=True)))
        if len(self.periodic) > MAX_MOMENTS:
            self.periodic = self.periodic[::2]
            self._step_ns *= 2


@dataclass(frozen=True)
class RunPhase(TaskTimeSpan):
    """A phase of a job. The times only include the job's threads."""

    label: str

    def largest_program(self) -> tuple[str, float]:
        """Returns the program that ran most, and its running seconds; '' if none ran. perftop
        itself, which a job runs for its marks, counts only if no other program ran."""
        run_s: dict[str, float] = {}
        for times in self.times.threads.values():
            run_s[times.comm] = run_s.get(times.comm, 0.0) + times.run_s
        ranks = ((name not in PERFTOP_NAMES and s > 0, s, name) for name, s in run_s.items())
        _, seconds, name = max(ranks, default=(False, 0.0, ""))
        return name, seconds


BEFORE_MARKS = "before"
"""Name of the phase of a command before its first mark."""


def phases(moments: JobMoments, start: JobMoment, end: JobMoment) -> list[RunPhase]:
    """Returns the phases of the job from `start` or its start mark to `end` or its end mark."""
    named_marks: list[JobMoment] = []
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
        return _phases_between([start._replace(label=BEFORE_MARKS), *named_marks, end])
    moments_between = [m for m in moments.periodic if start.time_ns < m.time_ns < end.time_ns]
    return _phases_by_program([start, *moments_between, end])


def _phases_between(moments: Sequence[JobMoment]) -> list[RunPhase]:
    return [
        RunPhase(
            first.time_ns, last.time_ns, last.times.minus(first.times, span_s), first.label or ""
        )
        for first, last in pairwise(moments)
        if (span_s := (last.time_ns - first.time_ns) / 1e9) > 0
    ]


def _phases_by_program(moments: Sequence[JobMoment]) -> list[RunPhase]:
    """Returns phases named after the program that ran most. A period in which nothing ran belongs
    to the phase before it or, at the start, to the phase after it. While there are more than
    MAX_UNNAMED_PHASES, the shortest phase is joined with its shorter neighbour."""
    bounds: list[JobMoment] = []
    name = ""
    for phase, moment in zip(_phases_between(moments), moments, strict=False):
        largest, run_s = phase.largest_program()
        if not bounds or (run_s > 0 and name and largest != name):
            bounds.append(moment)
        if run_s > 0:
            name = largest
    bounds.append(moments[-1])
    while len(bounds) > MAX_UNNAMED_PHASES + 1:
        lengths = [last.time_ns - first.time_ns for first, last in pairwise(bounds)]
        shortest = lengths.index(min(lengths))
        joins_next = shortest == 0 or (
            shortest + 1 < len(lengths) and lengths[shortest + 1] < lengths[shortest - 1]
        )
        del bounds[shortest + 1 if joins_next else shortest]
    return [replace(phase, label=phase.largest_program()[0]) for phase in _phases_between(bounds)]
