"""What the neighbour view shows: who loses, to whom, and how a watched job fares. All text that
comes from outside is made safe to draw."""

from __future__ import annotations

from itertools import islice
from math import nan

import numpy as np

from perfprobe.frozen import frozen
from perftop.detect.losses import MIN_BUSY, MIN_JOB_BUSY
from perftop.draw.strips import foreign
from perftop.model.machine_totals import OF_BEST
from perftop.model.tasks import KEPT_NS, Thread, ThreadActivity, WatchedJob, task
from perftop.session.interval import Interval
from perftop.session.missing import lasting
from perftop.session.session import Session
from perftop.tui.panels.pairs import Pair, Pairs

LEAST_NS = 1_000_000_000
"""Minimum span of the numbers of threads, as a thread runs in slices and sleeps between them."""
_NEEDS = {
    "sibling": ("ipc", "IPC"), "hypervisor": ("steal", "steal"), "scheduler": ("wait", "waits"),
    "package": ("busy_hz", "clock"), "memory": (OF_BEST, "its traffic"), "who": ("tasks", "names"),
}  # fmt: skip
"""Key and name of what is needed to detect a cause, by cause."""


MOST_ENDED = 50
"""Maximum number of ended losses shown, the newest."""


@frozen
class Runner:
    """A thread of the watched job."""

    tid: int
    comm: str
    cpu: int
    moved: ThreadActivity
    ipc: float
    """IPC of its CPU, not of the thread alone."""
    beside: str
    """Tasks that run on its siblings."""


@frozen
class Job:
    name: str
    threads: int | None
    """Number of threads; None before the first records arrive."""
    cpus: list[int]
    moved: ThreadActivity
    busy_hz: float
    ipc: float
    """Like `busy_hz`, of all its CPUs together; NaN if unknown."""


class Neighbourhood:
    """One moment of a session, live or past."""

    def __init__(self, session: Session, interval: Interval, mask: frozenset[int] | None) -> None:
        """`mask`: positions of the CPUs to show; None: all."""
        self._session, self._interval = session, interval
        self._shown = frozenset(session.shown) if mask is None else mask & {*session.shown}
        self._sibling = {
            cpu: [other for other in core if other != cpu] for core in session.cores for cpu in core
        }
        self.watched_job = self._watched()
        self._pairs = Pairs(session, interval, self.watched_job)
        self.span_ns = max(LEAST_NS, round(interval.elapsed_s * 1e9))

    def _watched(self) -> WatchedJob:
        """The job at that moment; for the past it is rebuilt from records in the history."""
        session, then_ns = self._session, self._interval.time_ns
        live = session.neighbours.watched_job
        if live.name is None or then_ns >= session.now_ns:
            return live
        past = WatchedJob(live.name)
        for message in session.past.frames(then_ns - KEPT_NS, then_ns):
            past.take(getattr(message, "records", {}), message.time_ns)
        return past

    # --- who loses

    def running(self) -> list[Pair]:
        return self._pairs.running(self._shown)

    def over(self) -> list[Pair]:
        """Losses that had ended by then, the newest first."""
        return list(islice(self._pairs.over(self._shown), MOST_ENDED))

    def _beside(self, cpu: int) -> str:
        """Tasks on the siblings of this CPU."""
        others = self._sibling.get(cpu, [])
        found = [(task(self._interval.tasks.get(str(other))), other) for other in others]
        return foreign(", ".join(f"{it.comm} {it.pid} on CPU {cpu}" for it, cpu in found if it))

    # --- the watched job

    def job(self) -> Job | None:
        """The watched job; None if none is watched."""
        if self.watched_job.name is None:
            return None
        cpus = sorted({t.cpu for t in self.watched_job.threads.values() if self._known(t)})
        rows = [self._session.position[cpu] for cpu in cpus]
        values = self._interval.values
        return Job(
            foreign(self.watched_job.name),
            len(self.watched_job.threads) + self.watched_job.more
            if self.watched_job.time_ns
            else None,
            cpus,
            self.watched_job.job(self.span_ns),
            values.over("busy_hz", rows) if rows else nan,
            values.over("ipc", rows) if rows else nan,
        )

    def _known(self, thread: Thread) -> bool:
        return thread.cpu in self._session.position

    def runners(self) -> list[Runner]:
        """Threads of the watched job on the CPUs shown, by CPU and thread id."""
        ipc, position = self._interval.values["ipc"], self._session.position
        return [
            Runner(
                thread.tid, foreign(thread.comm), thread.cpu, thread.over(self.span_ns),
                float(ipc[position[thread.cpu]]), self._beside(thread.cpu),
            )
            for thread in sorted(self.watched_job.threads.values(), key=lambda t: (t.cpu, t.tid))
            if self._known(thread) and position[thread.cpu] in self._shown
        ]  # fmt: skip

    # --- what was looked at

    def looked_at(self) -> list[str]:
        """What was looked at, so that a loss would have been seen."""
        values, rows = self._interval.values, sorted(self._shown)
        work = np.nan_to_num(values["util"][rows]) + np.nan_to_num(values["steal"][rows])
        watched = self.watched_job.name is not None
        least = MIN_JOB_BUSY if watched else MIN_BUSY
        busy = int((work >= least).sum())
        what = "CPU" if busy == 1 else "CPUs"
        told_of = [f"{busy} {what} busy {100 * least:.0f} % of the time or more"]
        missing = self._missing()
        if "sibling" not in missing:
            told_of.append("siblings, by IPC alone and together")
        if "hypervisor" not in missing:
            told_of.append("the hypervisor, by steal")
        if "memory" not in missing:
            told_of.append("the memory, by traffic and IPC")
        if watched:
            told_of += ["the scheduler, by waits"] if "scheduler" not in missing else []
            told_of += ["the package, by turbo and power"] if "package" not in missing else []
        return told_of

    def untold(self) -> list[str]:
        """Causes that cannot be seen here, and why."""
        lines = [f"{cause}: {why}" for cause, why in self._missing().items()]
        if self.watched_job.name is None:
            lines.append("scheduler, package: only for a job that is watched: --watch PID|COMM")
        return [foreign(line) for line in lines]

    def _missing(self) -> dict[str, str]:
        reasons = {missing.what: missing for missing in lasting(self._session)}
        unpaired = self._unpaired()
        found = {"sibling": unpaired} if unpaired else {}
        unasked = {"scheduler", "package"} if self.watched_job.name is None else set()
        for cause, (key, label) in _NEEDS.items():
            if cause in found or cause in unasked:
                continue
            if (reason := reasons.get(key)) is not None and reason.cpus is None:
                mend = f" · {reason.fix}" if reason.fix else ""
                found[cause] = f"{label} not known: {reason.why}{mend}"
        if "sibling" not in found and self._bounded():
            found["sibling"] = "how long two threads ran at once is known only within bounds"
        return found

    def _unpaired(self) -> str:
        """Why losses to siblings cannot be seen with any counters; '' if they can."""
        if not any(self._sibling.values()):
            return "no core has two threads here, as far as this system can see"
        paired = any(len(others) == 1 for others in self._sibling.values())
        return "" if paired else "only told of cores with two threads"

    def _bounded(self) -> bool:
        """True if no core with two threads has counted how long both ran at once."""
        how = self._interval.split.method
        cores = enumerate(self._session.cores[: len(how)])
        return {how[at] for at, core in cores if len(core) == 2} <= {"bounds", None}
