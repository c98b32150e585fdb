"""A stretch of a recording, summed up."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, nan

from perfprobe.frozen import frozen
from perftop.model.episode import Episode
from perftop.output.run_summary import summary_line
from perftop.output.stat_json import Line, number
from perftop.output.why.answer import answer
from perftop.output.why.report import MOST_TOLD, Finding, report
from perftop.session.episodes import Tally
from perftop.session.session import Session

SHARES = {"p5": 0.05, "p50": 0.5, "p95": 0.95, "p99": 0.99}


@frozen
class Phase:
    label: str
    start: float
    """Unix seconds."""
    elapsed_s: float
    samples: int
    suspect: int
    line: Line
    """The summary as `stat --json` has it."""
    percentiles: dict[str, dict[str, float]]
    """Percentiles of the machine's metrics, by key."""
    both: float
    """Mean share over cores with both threads active; NaN: not known."""
    lost_ratio: float
    answer: str
    findings: list[Finding]
    worst: list[tuple[Finding, Episode | None]]
    """What cost most, with the costliest episode of each cause; None: no episode told of it."""

    def mean(self, key: str) -> float:
        measure = self.line["machine"].get(key)
        return nan if measure is None else float(measure["mean"])


def phase(session: Session, label: str) -> Phase:
    """What the session has summed up since it began anew."""
    first_ns, now_ns = session.run.start_ns, session.now_ns
    elapsed_s = (now_ns - first_ns) / 1e9
    episodes, tally = session.episodes(first_ns, now_ns), Tally()
    for episode in episodes:
        tally.add(episode, now_ns)
    found, extremes = report(session, first_ns, past=True), session.distribution.finish()
    line = summary_line(session, tally.counted, elapsed_s)
    worst = [(one, _worst(one, episodes, first_ns, now_ns)) for one in found.told[:MOST_TOLD]]
    return Phase(
        label, session.unix(first_ns), elapsed_s, max(0, session.frames - 1),
        session.suspect_samples, line,
        {key: dict(zip(SHARES, extremes.percentiles(key, [*SHARES.values()]), strict=True))
         for key in line["machine"]},
        session.whole().split.mean("both"),
        found.sums.lost_ratio, answer(session, found), found.findings, worst,
    )  # fmt: skip


def _worst(
    finding: Finding, episodes: Sequence[Episode], first_ns: int, now_ns: int
) -> Episode | None:
    alike = [e for e in episodes if (e.kind, e.cause) == finding.cause]
    return max(  # by seconds of CPUs within the phase
        alike, key=lambda e: e.lost_share * len(e.cpus) * e.span_s(first_ns, now_ns), default=None
    )


def json_line(made: Phase) -> Line:
    """A phase: the summary of `stat --json` with `label`, `start`, `answer`, `lost_ratio`, `causes`
    by what they cost, and p50, p95 and p99 of the machine's measures."""
    line: Line = {"type": "phase", "label": made.label, "start": made.start, "answer": made.answer}
    machine = {
        key: None if measure is None else measure | {
            name: number(value) for name, value in made.percentiles[key].items()
            if name not in measure and isfinite(value)
        }
        for key, measure in made.line["machine"].items()
    }  # fmt: skip
    rest = {key: value for key, value in made.line.items() if key not in {"type", "run", "machine"}}
    return line | rest | {
        "machine": machine, "lost_ratio": number(made.lost_ratio), "samples": made.samples,
    }  # fmt: skip
