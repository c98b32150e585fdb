"""One line for the worst running episode; if none runs, for the metrics this source lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perftop.base import findings
from perftop.base.times import length
from perftop.draw import theme
from perftop.draw.strips import Run, fit, foreign
from perftop.output.episode_words import depth, where
from perftop.session.missing import NAMES, by_reason, lasting
from perftop.tui.frame.status import Status
from perftop.tui.shared import episode_style

if TYPE_CHECKING:
    from perftop.samples.episode import Episode
    from perftop.session.interval import Interval
    from perftop.session.session import Session

_STATES = frozenset({"suspect", "offline", "online"})
"""Kinds of episodes that limit what is measured; the badge does not count them."""

NEW_NS = 10_000_000_000
"""How long a warning is shown, in ns since it came."""


def line(
    session: Session | None, interval: Interval | None, status: Status, width: int
) -> list[Run]:
    if status.failed is not None:
        return _failed(status, interval, width)
    if status.notice:
        text, stopped = foreign(f" {status.notice}"), status.recording == ""
        return [(fit(text, min(len(text), width)), "alarm" if stopped else "text")]
    if session is None:
        return []
    replay = status.replay
    if replay is not None and replay.over and replay.damage is not None:
        text = f" {theme.DROPPED} the recording is {foreign(replay.damage)}"
        return [(fit(text, min(len(text), width)), "alarm")]
    running = told(session, interval, status)
    past = status.paused is not None or status.replay is not None
    now_ns = interval.time_ns if interval is not None and past else session.now_ns
    if running and episode_style.severity(running[0]) != "text":
        return _running(session, running, now_ns, width)
    warning = _warning(session, now_ns, width) or _untrusted(session, width)
    if warning or not running:
        return warning or _missing(session, width)
    return _running(session, running, now_ns, width)


def told(session: Session, interval: Interval | None, status: Status) -> list[Episode]:
    """Running episodes, the worst first; while paused and in a recording, those within the shown
    interval."""
    found = session.running
    if interval is not None and (status.paused is not None or status.replay is not None):
        since_ns = interval.time_ns - round(interval.elapsed_s * 1e9)
        shown = session.episodes(since_ns, interval.time_ns)
        found = [e for e in shown if e.end_ns is None or e.end_ns > since_ns]
    return sorted(found, key=episode_style.rank)


def badge(running: list[Episode]) -> list[Run]:
    """The sign of the worst episode and how many run; empty while none runs."""
    counted = [e for e in running if e.kind not in _STATES]
    return (
        [(f"{episode_style.sign(counted[0])}{len(counted)}", episode_style.severity(counted[0]))]
        if counted
        else []
    )


def _failed(status: Status, interval: Interval | None, width: int) -> list[Run]:
    """Why the stream ended; the rest of the line is left out where there is no room for it."""
    text, quits = foreign(status.failed or ""), " · q quits "
    newest = interval is not None and status.paused is None
    last = f" · these are the last numbers{quits}" if newest else quits
    room = width - 3 - len(text)
    end = next((end for end in (last, quits, "") if len(end) <= room), "")
    text = fit(text, min(len(text), max(8, width - 3)))
    return [(f" {theme.DROPPED} {text}", "alarm"), (end, "text")]


def _running(session: Session, running: list[Episode], now_ns: int, width: int) -> list[Run]:
    """The worst episode with its cause and evidence, and the number of others."""
    worst = running[0]
    alike = [e for e in running if e.kind == worst.kind and e.cause == worst.cause]
    place = where(session.topology, {cpu for e in alike for cpu in e.cpus})
    lasted = _lasted(alike, now_ns)
    deepest = max((e.depth for e in alike if e.depth is not None), default=None)
    what = foreign(f"{place} {worst.kind} {lasted} {depth(worst.kind, deepest)}".rstrip())
    others = len(running) - len(alike)
    more = f"  and {others} more" if others else ""
    key, room = episode_style.severity(worst), width - len(more) - 4
    shown = fit(what, min(len(what), room))
    rest = f"  {why}" if (why := episode_style.because(worst)) else ""
    left = max(0, room - len(shown))
    cause = fit(rest, min(len(rest), left))
    return [(f" {episode_style.sign(worst)} ", key), (shown, key), (cause, "dim"), (more, "text")]


def _lasted(alike: list[Episode], now_ns: int) -> str:
    """How long the episodes last. If they have ended after the shown moment, the whole length
    follows, because the evidence covers the whole episode."""
    start_ns = min(e.start_ns for e in alike)
    ends_ns = [now_ns if e.end_ns is None else e.end_ns for e in alike]
    so_far, whole = (
        length(at_ns - start_ns) for at_ns in (min(now_ns, max(ends_ns)), max(ends_ns))
    )
    return so_far if so_far == whole else f"{so_far} of {whole}"


def _warning(session: Session, now_ns: int, width: int) -> list[Run]:
    """The probe's newest warning; empty once it is older than NEW_NS."""
    if not session.warnings or not 0 <= now_ns - session.warned_ns < NEW_NS:
        return []
    text = f" ! {foreign(session.warnings[-1])}"
    return [(fit(text, min(len(text), width)), "warn")]


def _untrusted(session: Session, width: int) -> list[Run]:
    """The counters that failed the last selftest of this boot; empty if none did."""
    verdict = findings.verdict(session.hello.boot_id)
    text = f" ! {foreign(verdict)}" if verdict else ""
    return [(fit(text, min(len(text), width)), "warn")] if text else []


_MISSED = ("busy_hz", "ipc", "halt", "kernel_cycles", "turbo_ceiling_hz")
"""Metrics whose absence is told here, the most important first."""


def _missing(session: Session, width: int) -> list[Run]:
    """The metrics that no CPU of this source has, why, and the fix; where the fix does not fit,
    `perftop doctor`, which tells it."""
    names = {key: NAMES[key] for key in _MISSED}
    everywhere = [missing for missing in lasting(session) if missing.cpus is None]
    reasons = by_reason(everywhere, lambda missing: names.get(missing.what))
    if not reasons:
        return []
    (why, fix), lost = max(reasons.items(), key=lambda item: len(item[1]))
    lost.sort(key=list(names.values()).index)
    why, mend = why.split(": ")[0], f" · {fix}" if fix else ""
    long, short = (f" {why}: {', '.join(some)} unknown" for some in (lost, lost[:3]))
    texts = (long + mend, f"{long} · perftop doctor", f"{short} · perftop doctor")
    text = next((text for text in texts if len(text) <= width), texts[-1])
    return [(fit(foreign(text), min(len(text), width)), "dim")]
