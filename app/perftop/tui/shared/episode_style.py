"""How episodes are drawn in all views, which of them run, and their sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from perftop.draw.strips import foreign
from perftop.model.kinds import KINDS, kind_of
from perftop.output.sentences import MAX_SENTENCE, Part, cause, evidence, sentence

if TYPE_CHECKING:
    from perftop.model.episode import Episode
    from perftop.session.interval import Interval
    from perftop.session.session import Session

_RANKS = {kind: rank for rank, kind in enumerate(KINDS)}
_MAX_SENTENCES = 256
"""More than any screen shows."""
_SENTENCES: WeakKeyDictionary[Session, dict[tuple[int, ...], tuple[list[Episode], list[Part]]]]
_SENTENCES = WeakKeyDictionary()
"""By session, sentences by the ids of their episodes and the length. The episodes are kept with
them, so that no other object gets their ids."""


def rank(episode: Episode) -> tuple[int, int]:
    """Sort key: the worst kind first, then the oldest."""
    return _RANKS.get(episode.kind, len(_RANKS)), episode.start_ns


def wrong(episode: Episode) -> bool:
    """Whether its kind means that something is wrong."""
    return kind_of(episode).wrong


def severity(episode: Episode, *, over: bool = False) -> str:
    """The style for how bad it is; an episode that is `over` has no alarm or warning style."""
    if over:
        return "over" if wrong(episode) else "dim"
    return "alarm" if wrong(episode) else "warn" if episode.kind == "suspect" else "text"


def sign(episode: Episode) -> str:
    return kind_of(episode).sign


def because(episode: Episode) -> str:
    """Its cause and the evidence for it."""
    parts = cause(episode.kind, episode.cause), evidence(episode.cause, episode.evidence)
    return foreign(" · ".join(part for part in parts if part))


def ended_sentence(
    session: Session, episodes: Sequence[Episode], most: int = MAX_SENTENCE
) -> list[Part]:
    """`sentence` of episodes that have ended. It is kept, as nothing changes such an episode and
    the newest are drawn at each refresh, in several places."""
    kept = _SENTENCES.setdefault(session, {})
    key = (most, *map(id, episodes))
    if key not in kept:
        if len(kept) >= _MAX_SENTENCES:
            kept.clear()
        parts = sentence(session.topology, episodes, over=True, most=most)
        kept[key] = [*episodes], parts
    return kept[key][1]


def going(episode: Episode, now_ns: int) -> bool:
    """Whether it runs at this moment."""
    return episode.start_ns <= now_ns and (episode.end_ns is None or episode.end_ns > now_ns)


def during(session: Session, interval: Interval) -> list[Episode]:
    """The episodes of this interval: for the newest interval those that run now, for one of the
    past or of a recording those that overlap it."""
    if interval.seq and session.log.recording is None:
        return list(session.running)
    return overlapping(session, interval)


def overlapping(session: Session, interval: Interval) -> list[Episode]:
    """The episodes that ran at any moment of this interval."""
    since_ns = interval.time_ns - round(interval.elapsed_s * 1e9)
    return session.episodes(since_ns, interval.time_ns)
