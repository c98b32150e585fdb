"""The markers, styles and sentences of episodes in all views, and which episodes run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from perftop.draw.strips import foreign
from perftop.model.kinds import KINDS, kind_of
from perftop.output.sentences import MAX_SENTENCE, Part, cause, evidence, sentence

if TYPE_CHECKING:
    from perftop.model.kinds import Episode
    from perftop.session.interval import Interval
    from perftop.session.session import Session

_RANKS = {kind: rank for rank, kind in enumerate(KINDS)}
_MAX_SENTENCES = 256
"""Maximum number of cached sentences of a session; no screen shows as many."""
_SENTENCES: WeakKeyDictionary[Session, dict[tuple[int, ...], tuple[list[Episode], list[Part]]]]
_SENTENCES = WeakKeyDictionary()
"""Cached sentences, by session, then by the maximum length and the ids of the episodes. The
episodes are stored with their sentence, so that no other object can get their ids."""


def rank(episode: Episode) -> tuple[int, int]:
    """Returns a sort key: the worst kind first, then the oldest episode."""
    return _RANKS.get(episode.kind, len(_RANKS)), episode.start_ns


def is_loss(episode: Episode) -> bool:
    """Returns whether the kind of the episode means that something is wrong."""
    return kind_of(episode).is_wrong


def severity(episode: Episode, *, over: bool = False) -> str:
    """Returns the style for the severity of the episode. An episode that has ended (`over`) has no
    alarm or warning style."""
    if over:
        return "over" if is_loss(episode) else "dim"
    return "alarm" if is_loss(episode) else "warn" if episode.kind == "suspect" else "text"


def sign(episode: Episode) -> str:
    return kind_of(episode).sign


def because(episode: Episode) -> str:
    """Returns the cause of the episode and the evidence for it."""
    parts = cause(episode.kind, episode.cause), evidence(episode.cause, episode.evidence)
    return foreign(" · ".join(part for part in parts if part))


def ended_sentence(
    session: Session, episodes: Sequence[Episode], max_cells: int = MAX_SENTENCE
) -> list[Part]:
    """Returns `sentence` of episodes that have ended. The result is cached, because an ended
    episode does not change, and the newest are drawn at each refresh in several places."""
    cache = _SENTENCES.setdefault(session, {})
    key = (max_cells, *map(id, episodes))
    if key not in cache:
        if len(cache) >= _MAX_SENTENCES:
            cache.clear()
        parts = sentence(session.topology, episodes, over=True, most=max_cells)
        cache[key] = [*episodes], parts
    return cache[key][1]


def going(episode: Episode, now_ns: int) -> bool:
    """Returns whether the episode runs at this moment."""
    return episode.start_ns <= now_ns and (episode.end_ns is None or episode.end_ns > now_ns)


def episodes_during(session: Session, interval: Interval) -> list[Episode]:
    """Returns the episodes of this interval. For the newest interval of a live session, these are
    the episodes that run now; for an earlier interval or in a recording, the episodes that overlap
    the interval."""
    if interval.seq and session.log.recording is None:
        return list(session.running)
    return overlapping(session, interval)


def overlapping(session: Session, interval: Interval) -> list[Episode]:
    """Returns the episodes that ran at any moment of this interval."""
    since_ns = interval.time_ns - round(interval.elapsed_s * 1e9)
    return session.episodes(since_ns, interval.time_ns)


_GAP_OF_KIND = {"license": "licence", "ramp": "ramp", "throttle": "heat"}
_GAP_OF_CAUSE = {"current": "power", "thermal": "heat", "prochot": "heat", "vr": "heat",
                 "hwp": "policy", "policy": "policy", "license": "licence"}  # fmt: skip


def gap_of(episode: Episode) -> str:
    """Returns what holds the clock below its ceiling during an episode; one of
    `charts.GAPS`."""
    by_cause = "power" if episode.cause.startswith("power") else "unknown"
    return _GAP_OF_KIND.get(episode.kind) or _GAP_OF_CAUSE.get(episode.cause, by_cause)
