"""Reports of `why` on sessions, and the findings in them."""

from __future__ import annotations

import numpy as np
from fakes import Machine
from fakes import observe as sampled

from perfprobe import wire
from perftop.output.report import Finding, Report
from perftop.output.waiting import waiting_finding
from perftop.output.why_report import report
from perftop.output.why_text import lines
from perftop.session.losses import WAIT_CAUSE, CauseKey, LossSums
from perftop.session.run_sums import Totals
from perftop.session.session import Session
from perftop.session.task_times import TaskTimes


def empty_report(session: Session, job: str | None = None) -> Report:
    """Returns a report on the whole run, in which nothing was lost."""
    nothing = np.zeros(len(session.topology))
    losses = LossSums(nothing, nothing, {})
    run = session.run
    totals = Totals(run.start_ns, session.now_ns, run.times, losses, run.span)
    return Report(
        session, totals, session.run_interval(), [], job, is_past=False, past_tense=False,
        is_whole_run=True,
    )  # fmt: skip


NO_FINDING = Finding(WAIT_CAUSE, 0.0, 0.0, "", "", [], None, False, "unknown", [], "")


def find_wait(session: Session, job: str | None) -> Finding:
    """Returns the wait of the job's tasks over the whole run."""
    result = waiting_finding(empty_report(session, job), NO_FINDING)
    assert result is not None
    return result


def end_command(session: Session, *argv: str, **end: object) -> None:
    """Makes the command the watched job, with the PID 1, and lets it end. `end`: data of the note
    on its end."""
    session.neighbours.watched_job.name = "1"
    session.apply(wire.Note("run-start", session.now_ns, data={"pid": 1, "argv": [*argv]}))
    session.apply(wire.Note("run-end", session.now_ns, data={"pid": 1, **end}))


def command_report(session: Session) -> Report:
    """Returns the report on a command named `job`, which has ended."""
    end_command(session, "job")
    return report(session)


def printed_report(result: Report) -> list[str]:
    return lines(result, colour=False, unicode=True)


def find_finding(result: Report, cause: CauseKey) -> Finding:
    (finding,) = [finding for finding in result.findings if finding.cause == cause]
    return finding


def session_of_job(*threads: TaskTimes) -> Session:
    """Returns a session in which the threads of the job have these times."""
    session: Session = sampled(Machine(cores=2))[0]
    session.run.track_losses()
    session.run.times.threads = {(1, tid): times for tid, times in enumerate(threads, 1)}
    session.run.times.job_has_waits = True
    return session
