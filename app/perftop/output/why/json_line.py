"""What `perftop why --json` prints: one object. Keys may be added; these stay. Ratios are 0 to 1,
times are Unix seconds; what is not known is null.

`answer` is the sentence; `job` the watched job, or null: then all working CPUs are meant.
`lost_ratio` is the share of `wanted_s` that all `causes` took, which are ordered by it. A cause has
`kind` and `cause` as an episode's line has them (`cause` is "other" where no episode tells it),
`lost_ratio`, `lost_s`, `for_s` (null: not known), `running`, `cpus`, `text`, `confidence`,
`evidence` (lines) with `details` (numbers), and `try` (null: we know nothing better). `looked_for`
has what was looked for and is not named as a cause from 1 % on or not; `not_seen` what could not be
seen, with `why` and `fix`; `seen` what all of it rests on.
"""

from __future__ import annotations

from perftop.output.stat_json import Line, number
from perftop.output.why.answer import answer
from perftop.output.why.report import Finding, Report
from perftop.session.session import Session


def line(session: Session, report: Report, run: Line | None) -> Line:
    """`run`: of the command, as in the summary of `stat`."""
    return {
        "type": "why",
        "answer": answer(session, report),
        "job": report.job,
        "lost_ratio": number(report.sums.lost_ratio),
        "wanted_s": number(report.sums.whole_s),
        "causes": [_cause(one) for one in report.findings],
        "looked_for": [
            {"key": check.key, "lost_ratio": number(check.share), "text": check.looked_for,
             "found": check.found}
            for check in report.checks
        ],
        "not_seen": [
            {"what": what, "why": why, "fix": fix} for what, why, fix in report.not_seen
        ],
        "seen": _seen(session, report),
        "run": run,
    }  # fmt: skip


def _cause(one: Finding) -> Line:
    return {
        "kind": one.cause[0],
        "cause": one.cause[1],
        "lost_ratio": number(one.share),
        "lost_s": number(one.lost_s),
        "for_s": None if one.for_s is None else number(one.for_s),
        "running": one.running,
        "cpus": one.cpus,
        "text": one.said,
        "confidence": one.confidence,
        "evidence": one.evidence,
        "details": one.details,
        "try": one.hint or None,
    }


def _seen(session: Session, report: Report) -> Line:
    hello = session.hello
    end = session.unix(session.now_ns)
    return {
        "host": hello.host,
        "source": hello.source,
        "virtualisation": hello.virtualisation,
        "cpus": [session.topology[row].cpu for row in session.shown],
        "start": end - report.elapsed_s,
        "end": end,
        "elapsed_s": number(report.elapsed_s),
        "samples": report.samples,
        "suspect": report.suspect,
        "lost": session.lost,
    }
