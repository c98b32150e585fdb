"""Sentences on episodes that have ended. They are kept, as nothing changes such an episode any more
and the newest are told at each refresh, in several places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from perftop.output.sentences import MAX_SENTENCE, Part, sentence

if TYPE_CHECKING:
    from perftop.model.episode import Episode
    from perftop.session.session import Session

_MOST_KEPT = 256
"""More than any screen shows."""
_KEPT: WeakKeyDictionary[Session, dict[tuple[int, ...], tuple[list[Episode], list[Part]]]]
_KEPT = WeakKeyDictionary()
"""By session, sentences by the ids of their episodes and the most characters. The episodes are held
with them, so that no other object gets their ids."""


def over(session: Session, episodes: Sequence[Episode], most: int = MAX_SENTENCE) -> list[Part]:
    """`sentence` of episodes that have ended, in the past tense."""
    kept = _KEPT.setdefault(session, {})
    key = (most, *map(id, episodes))
    if key not in kept:
        if len(kept) >= _MOST_KEPT:
            kept.clear()
        told = sentence(session.topology, episodes, over=True, most=most)
        kept[key] = [*episodes], told
    return kept[key][1]
