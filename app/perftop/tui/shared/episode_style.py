"""The look of an episode in all views: its rank among others, sign, severity and cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perftop.draw import theme
from perftop.draw.strips import foreign
from perftop.output.sentences import STOLEN, cause, evidence, group

if TYPE_CHECKING:
    from perftop.model.episode import Episode
    from perftop.session.interval import Interval
    from perftop.session.session import Session

_RANKS = {kind: rank for rank, kind in enumerate(theme.EPISODES)}
_WRONG = frozenset(theme.EPISODES) - {"ramp", "suspect", "offline", "online"}
"""Kinds of episodes that mean something is wrong."""


def rank(episode: Episode) -> tuple[int, int]:
    return _RANKS.get(episode.kind, len(_RANKS)), episode.start_ns


def wrong(episode: Episode) -> bool:
    """Whether its kind means that something is wrong."""
    return episode.kind in _WRONG


def severity(episode: Episode, *, over: bool = False) -> str:
    """The style for how bad it is; an episode that is over has no alarm or warning style."""
    if over:
        return "over" if wrong(episode) else "dim"
    return "alarm" if wrong(episode) else "warn" if episode.kind == "suspect" else "text"


def sign(episode: Episode) -> str:
    """The sign of its kind; what the hypervisor takes has one sign, whoever tells it."""
    if group(episode) == STOLEN:
        return theme.STEAL
    return theme.EPISODES.get(episode.kind, "│")


def because(episode: Episode) -> str:
    """Its cause and the evidence for it."""
    parts = cause(episode.kind, episode.cause), evidence(episode.cause, episode.evidence)
    return foreign(" · ".join(part for part in parts if part))


def going(episode: Episode, now_ns: int) -> bool:
    """Whether it runs at this moment."""
    return episode.start_ns <= now_ns and (episode.end_ns is None or episode.end_ns > now_ns)


def during(session: Session, interval: Interval) -> list[Episode]:
    """Those that run in this interval: of the newest one, what runs now; of one looked up in the
    past or in a recording, whose running ones are those at its end, what overlaps it."""
    if interval.seq and session.file is None:
        return list(session.running)
    return overlapping(session, interval)


def overlapping(session: Session, interval: Interval) -> list[Episode]:
    """Those that ran at any moment of this interval."""
    since_ns = interval.time_ns - round(interval.elapsed_s * 1e9)
    return session.episodes(since_ns, interval.time_ns)
