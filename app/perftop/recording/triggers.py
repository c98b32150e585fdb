"""Which moments a black box keeps: those around episodes of chosen kinds or causes."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from perftop.samples.episode import Episode
from perftop.session.session import Session

AROUND_NS = 30_000_000_000
"""Kept before an episode and behind it."""


Wanted = tuple[str, int, int]
"""The kind of an episode, and the raw times between which all is to be kept."""


class Triggers:
    """`kinds`: kinds or causes of episodes. `longest_ns`: of a longer episode only so much is kept,
    and its end."""

    def __init__(self, kinds: Collection[str], longest_ns: int) -> None:
        self._kinds, self._longest_ns = frozenset(kinds), longest_ns
        self._cursor = 0

    def take(self, session: Session) -> Iterator[Wanted]:
        """What is to be kept by now; the same again as long as an episode runs."""
        ended, self._cursor = session.episodes_since(self._cursor)
        for episode in (*ended, *session.running):
            if not self._kinds.isdisjoint((episode.kind, episode.cause)):
                yield from self._around(episode, session.now_ns)

    def _around(self, episode: Episode, now_ns: int) -> Iterator[Wanted]:
        end_ns = now_ns if episode.end_ns is None else episode.end_ns
        last_ns = min(end_ns, episode.start_ns + self._longest_ns)
        yield episode.kind, episode.start_ns - AROUND_NS, last_ns + AROUND_NS
        if episode.end_ns is not None and last_ns < end_ns:
            yield episode.kind, end_ns - AROUND_NS, end_ns + AROUND_NS
