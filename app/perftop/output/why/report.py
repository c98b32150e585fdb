"""What `perftop why` found: the answer, what cost most, what was ruled out and what was not seen.
All of it is read off a session; nothing is detected here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from perfprobe.frozen import field, frozen
from perftop.base.format import length, many
from perftop.base.text import safe
from perftop.model.episode import Episode
from perftop.model.machine_totals import OF_BEST
from perftop.output.episode_words import pieces, worded
from perftop.output.waits import queue
from perftop.output.why import phrases
from perftop.output.why.checks import Check, checks
from perftop.session.losses import OTHER, STEAL, WAIT, Cause, Sums
from perftop.session.missing import by_reason, lasting
from perftop.session.session import Session

TOLD = 0.01
"""A cause is told from this share on."""
MOST_TOLD = 4
ALL = 0.97
"""Share of the time looked at from which it is all of it."""
STILL_NS = 1_000_000_000
"""A cause that was seen so short before the end still acts."""
MOST_STOLEN = 3
"""CPUs of which stolen time is told one by one."""


@frozen
class Finding:
    cause: Cause
    share: float
    lost_s: float
    said: str
    by: str
    """The cause in a few words."""
    cpus: list[int]
    for_s: float | None
    """Seconds of the time looked at in which it acted; None: not known."""
    running: bool
    confidence: str
    evidence: list[str]
    hint: str
    """What to do about it; '' where we know nothing better."""
    details: dict[str, Any] = field(default_factory=dict)
    """The evidence as in an episode's line of JSON."""

    @property
    def unit(self) -> str:
        return "cycles" if self.cause[0] in phrases.OF_CYCLES else "time"


@frozen
class Report:
    job: str | None
    """Name of the watched job; None: all working CPUs."""
    sums: Sums
    findings: list[Finding]
    """All causes, the costliest first."""
    checks: list[Check]
    not_seen: list[tuple[str, str, str | None]]
    """What, why, and what helps."""
    hides: str
    """What would look like something else for that; '' if nothing would."""
    elapsed_s: float
    samples: int
    suspect: int

    @property
    def told(self) -> list[Finding]:
        return [one for one in self.findings if one.share >= TOLD]


def report(
    session: Session, first_ns: int, name: str | None = None, *, past: bool = False
) -> Report:
    """`first_ns`: raw time of the first frame. `name`: of a command that we ran. `past`: it is a
    recording."""
    sums = session.lost_time()
    job = name or _job(session)
    episodes = session.episodes(first_ns, session.now_ns)
    span_ns = session.now_ns - first_ns
    found = [
        _finding(
            session, sums, cause, _of(cause, episodes, session.now_ns), job, span_ns, past=past
        )
        for cause, share in sums.shares().items()
        if share > 0
    ]
    reasons = by_reason(lasting(session), lambda missing: _NAMES.get(missing.what))
    unseen = [(", ".join(what), why, fix) for (why, fix), what in reasons.items()]
    if not session.run_times.waits_told:
        unseen.append(("waiting for a CPU", "known after 3 s, if this kernel tells it", None))
    return Report(
        job, sums, found, checks(session, sums, episodes),
        unseen or [OWN_WAITS], _hides(session), span_ns / 1e9, max(0, session.frames - 1),
        session.suspect_samples,
    )  # fmt: skip


_NAMES = {
    "busy_hz": "clock", "ipc": "IPC", "involuntary": "halts", "turbo_ceiling_hz": "turbo ceiling",
    "steal": "steal", "tasks": "who runs", "smt": "SMT states", OF_BEST: "memory bandwidth",
}  # fmt: skip
"""What a cause could hide behind if it is missing, by key."""


OWN_WAITS = ("a program's own waits", "locks, disks, network are not counted", None)
"""What no counter shows; told where all else was seen."""


def _hides(session: Session) -> str:
    chosen = session.evaluator.chosen
    if not chosen["busy_hz"]:
        guest = session.hello.virtualisation is not None
        beside = " or a busy sibling outside" if guest else ""
        return f"A low clock{beside} would look like slow code here."
    if not session.sieve.turbo.cpus.any():
        return "No turbo table is known: clocks are held against the base clock."
    return ""


def _job(session: Session) -> str | None:
    """Name of the watched job; of one that is watched by its PID, that of most of its threads."""
    name = session.neighbours.watching.name
    if name is None or not name.isdecimal():
        return None if name is None else safe(name, 16)
    names = [one.comm for one in session.run_times.threads.values()]
    return safe(max(set(names), key=names.count), 16) if names else f"process {name}"


def _of(cause: Cause, episodes: Sequence[Episode], now_ns: int) -> list[Episode]:
    """The episodes of that cause, the one that cost most first."""
    alike = [cause]
    if cause == STEAL:
        alike.append(("neighbour", "hypervisor"))
    found = [e for e in episodes if (e.kind, e.cause) in alike]
    return sorted(found, key=lambda e: -e.lost_s(now_ns))


def _finding(
    session: Session, sums: Sums, cause: Cause, episodes: list[Episode], job: str | None,
    span_ns: int, *, past: bool,
) -> Finding:  # fmt: skip
    lost_s = sums.by_cause[cause]
    cpus = [row.cpu for row, s in zip(session.topology, lost_s.tolist(), strict=True)
            if s > 0.05 * float(lost_s.max())]  # fmt: skip
    now_ns = session.now_ns
    running = not past and (
        any(e.end_ns is None or e.end_ns > now_ns - STILL_NS for e in episodes) or not episodes
    )
    worst = episodes[0] if episodes else None
    known: dict[str, Any] = {
        "cause": cause, "share": sums.share(cause), "lost_s": float(lost_s.sum()), "cpus": cpus,
        "for_s": _length_s(episodes, now_ns, span_ns), "running": running,
        "said": phrases.said(session, cause, cpus, episodes, job or "", over=not running),
        "by": phrases.subject(cause, worst), "hint": phrases.hint(cause, worst),
        "confidence": "measured" if worst is None else worst.confidence,
        "evidence": [] if worst is None else _pieces(worst),
        "details": {} if worst is None else worded(worst.evidence),
    }  # fmt: skip
    if cause[1] == OTHER:
        known |= {"confidence": "unknown", "evidence": ["no limit was seen to act"]}
    if cause == STEAL:
        known["evidence"] = [_stolen(session, lost_s, cpus, span_ns)]
        known["confidence"] = "measured"
    if cause == WAIT and (waits := queue(session, job)) is not None:
        if job is None:
            known["for_s"] = min(session.run_times.waiting_s, span_ns / 1e9)
        known |= {
            "said": waits.said, "by": waits.by, "evidence": waits.evidence, "hint": waits.hint,
            "cpus": waits.cpus, "confidence": "measured" if waits.known else "unknown",
        }  # fmt: skip
    return Finding(**known)


def _pieces(worst: Episode) -> list[str]:
    """The evidence without the clocks, which stand in the line above."""
    drop = {"busy_hz", "ceiling_hz"} if worst.kind in phrases.OF_CYCLES else set()
    evidence = {key: value for key, value in worst.evidence.items() if key not in drop}
    return pieces(worst.cause, evidence)


def _stolen(session: Session, lost_s: np.ndarray, cpus: Sequence[int], span_ns: int) -> str:
    if len(cpus) <= MOST_STOLEN:
        each = [f"{lost_s[session.position[cpu]]:.2f} s on CPU {cpu}" for cpu in cpus]
        return f"steal {' and '.join(each)}, in {length(span_ns)}"
    return f"steal {lost_s.sum():.2f} s on {many(len(cpus), 'CPU')}, in {length(span_ns)}"


def _length_s(episodes: Sequence[Episode], now_ns: int, span_ns: int) -> float | None:
    """Seconds of the last `span_ns` in which at least one of them ran; None: there are none."""
    if not episodes:
        return None
    whole, until_ns = 0, now_ns - span_ns
    for episode in sorted(episodes, key=lambda e: e.start_ns):
        end_ns = now_ns if episode.end_ns is None else min(episode.end_ns, now_ns)
        whole += max(0, end_ns - max(episode.start_ns, until_ns))
        until_ns = max(until_ns, end_ns)
    return whole / 1e9


def all_the_time(finding: Finding, elapsed_s: float) -> bool:
    return finding.for_s is not None and finding.for_s >= ALL * elapsed_s
