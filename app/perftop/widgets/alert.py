"""One line for the worst that is going on; if nothing is, for what this source cannot tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perftop import theme
from perftop.format import evidence, ranges
from perftop.widgets.status import Status
from perftop.widgets.strips import Run, fit, foreign

if TYPE_CHECKING:
    from perftop.detect import Episode
    from perftop.session import Interval, Session

_WORST = ("turbo-drop", "throttle", "involuntary-halt", "neighbour", "steal", "license", "smi")
"""Kinds of episodes that mean something is wrong, worst first."""

NEW_NS = 10_000_000_000
"""How long a warning is shown: after that it is no news."""


def line(
    session: Session | None, interval: Interval | None, status: Status, width: int
) -> list[Run]:
    if status.failed is not None:
        return _failed(status, interval, width)
    if session is None:
        return []
    episodes, now_ns = session.detector.running, session.now_ns
    if status.paused is not None and interval is not None:
        now_ns = interval.time_ns
        episodes = [e for e in (*episodes, *session.ended) if going(e, interval)]
    running = sorted(episodes, key=rank)
    if running and severity(running[0]) != "text":
        return _running(running, now_ns, width)
    warning = _warning(session, now_ns, width)
    if warning or not running:
        return warning or _missing(session, width)
    return _running(running, now_ns, width)


def going(episode: Episode, interval: Interval) -> bool:
    """It had begun and not ended at this moment."""
    end_ns = episode.end_ns
    return episode.start_ns <= interval.time_ns and (end_ns is None or end_ns > interval.time_ns)


def _failed(status: Status, interval: Interval | None, width: int) -> list[Run]:
    """The reason comes first: what else there is to say goes where there is no room for both."""
    text, quits = foreign(status.failed or ""), " · q quits "
    newest = interval is not None and status.paused is None
    last = f" · these are the last numbers{quits}" if newest else quits
    room = width - 3 - len(text)
    end = next((end for end in (last, quits, "") if len(end) <= room), "")
    text = fit(text, min(len(text), max(8, width - 3)))
    return [(f" {theme.DROPPED} {text}", "alarm"), (end, "text")]


def rank(episode: Episode) -> tuple[int, int]:
    worst = _WORST.index(episode.kind) if episode.kind in _WORST else len(_WORST)
    return worst, episode.start_ns


def severity(episode: Episode) -> str:
    """How bad it is, as a style."""
    return "alarm" if episode.kind in _WORST else "warn" if episode.kind == "suspect" else "text"


def _running(running: list[Episode], now_ns: int, width: int) -> list[Run]:
    """The worse one in a sentence with its evidence, and how many more."""
    episode = running[0]
    alike = [e for e in running if e.kind == episode.kind and e.cause == episode.cause]
    cpus = ranges({cpu for e in alike for cpu in e.cpus})
    since_s = max(0.0, (now_ns - min(e.start_ns for e in alike)) / 1e9)
    what = f"{episode.kind} {since_s:.0f} s  CPU {cpus}{_depth(alike)}"
    rests_on = evidence(episode.cause, episode.evidence)
    rest = f"  {episode.cause}" + (f" · {rests_on}" if rests_on else "")
    others = len(running) - len(alike)
    more = f"  and {others} more" if others else ""
    key = severity(episode)
    sign = {"alarm": theme.DROPPED, "warn": theme.SUSPECT}.get(key, " ")
    room = width - len(more) - 4
    what, rest = foreign(what), foreign(rest)
    shown = fit(what, min(len(what), room))
    left = max(0, room - len(shown))
    return [(f" {sign} ", key), (shown, key), (fit(rest, min(len(rest), left)), "dim"),
            (more, "text")]  # fmt: skip


def _depth(alike: list[Episode]) -> str:
    """Of the deepest, in what its kind is measured in."""
    depth = max((e.depth for e in alike if e.depth is not None), default=None)
    if depth is None:
        return ""
    return f" −{depth / 1e9:.2f} GHz" if alike[0].kind == "turbo-drop" else f" {depth:.1%}"


def _warning(session: Session, now_ns: int, width: int) -> list[Run]:
    """The newest thing that the probe had warned of, while it is new."""
    if not session.warnings or not 0 <= now_ns - session.warned_ns < NEW_NS:
        return []
    text = f" ! {foreign(session.warnings[-1])}"
    return [(fit(text, min(len(text), width)), "warn")]


_COLUMNS = {"busy_hz": "clock", "ipc": "IPC", "halt": "halts", "kernel_cycles": "kernel share",
            "turbo_ceiling_hz": "turbo ceiling"}  # fmt: skip
"""Columns that people miss, by what is missing."""


def _missing(session: Session, width: int) -> list[Run]:
    """What no CPU of this source can tell, why, and how to mend it; else who tells that."""
    reasons: dict[tuple[str, str | None], list[str]] = {}
    for missing in session.missing():
        if missing.cpus is None and missing.what in _COLUMNS:
            reasons.setdefault((missing.why, missing.fix), []).append(_COLUMNS[missing.what])
    if not reasons:
        return []
    (why, fix), names = max(reasons.items(), key=lambda item: len(item[1]))
    names.sort(key=list(_COLUMNS.values()).index)
    why, mend = why.split(": ")[0], f" · {fix}" if fix else ""
    long, short = (f" {why}: {', '.join(some)} unknown" for some in (names, names[:3]))
    texts = (long + mend, f"{long} · perftop doctor", f"{short} · perftop doctor")
    text = next((text for text in texts if len(text) <= width), texts[-1])
    return [(fit(foreign(text), min(len(text), width)), "dim")]
