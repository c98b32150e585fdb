"""Episodes and marks of a whole recording, as far as a pass over it has found them.

A session that entered the file in its middle has seen some of them as well, with a start that may
be too late. What the pass has found takes the place of these.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perftop.model.episode import Episode

MOST = 1 << 16
"""Episodes and marks kept: about 100 MB."""
LISTED_NS = 10_000_000_000
"""Episodes are listed for certain so long after their end."""


class FileEpisodes:
    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.ended: list[Episode] = []
        """Ended episodes in the order in which they were listed, which is nearly that of their
        ends."""
        self.running: list[Episode] = []
        """Episodes that still run at the end of the file; known once the pass is complete."""
        self.marks: list[Episode] = []
        self.until_ns = 0
        """Raw ns up to which the pass has come."""
        self.complete = False
        self.left_out = 0
        """How many the file has beyond MOST."""
        self._spans = np.zeros((2, 0), np.int64)
        self._merged: tuple[object, list[Episode]] = None, []

    def add(self, episode: Episode) -> None:
        if len(self.ended) + len(self.marks) + len(self.running) >= MOST:
            self.left_out += 1
        elif episode.kind == "mark":
            self.marks.append(episode)
        elif episode.end_ns is None:
            self.running.append(episode)
        else:
            self.ended.append(episode)

    def name(self, mark: Episode) -> None:
        """Adds a mark of the user, which the file does not have."""
        self.marks = sorted([*self.marks, mark], key=_start_ns)

    def overlapping(self, since_ns: int, until_ns: int) -> list[Episode]:
        """Ended episodes that ran after `since_ns` and had begun by `until_ns`, in their order."""
        if self._spans.shape[1] != len(self.ended):
            spans = [(e.start_ns, e.end_ns) for e in self.ended]
            self._spans = np.array(spans, np.int64).reshape(-1, 2).T
        starts, ends = self._spans
        return [self.ended[i] for i in np.flatnonzero((starts <= until_ns) & (ends > since_ns))]

    def with_seen(self, seen: list[Episode]) -> list[Episode]:
        """All ended episodes: these, and of those that a session has seen the ones that the pass
        has not come to yet."""
        if self.complete:
            return self.ended
        of = len(self.ended), self.until_ns, len(seen), *(id(e) for e in seen[-1:])
        if of != self._merged[0]:
            found = [*self.ended, *self.beyond(seen)]
            self._merged = of, sorted(found, key=lambda e: e.end_ns or 0)
        return self._merged[1]

    def beyond(self, seen: Sequence[Episode]) -> list[Episode]:
        """The seen episodes that the pass has not found."""
        if self.complete:
            return []
        listed_ns = self.until_ns - LISTED_NS
        late = [e for e in seen if e.end_ns is None or e.end_ns > listed_ns]
        return [e for e in late if not self._known(e)]

    def _known(self, seen: Episode) -> bool:
        """Whether the pass has found this episode, perhaps with another start."""
        end_ns = seen.start_ns if seen.end_ns is None else seen.end_ns
        return any(
            e.kind == seen.kind and (not e.cpus or not set(e.cpus).isdisjoint(seen.cpus))
            for e in self.overlapping(seen.start_ns, end_ns)
        )

    def with_marks(self, seen: list[Episode]) -> list[Episode]:
        """All marks, oldest first."""
        if self.complete:
            return self.marks
        known = {(e.start_ns, str(e.evidence["label"])): e for e in (*seen, *self.marks)}
        return sorted(known.values(), key=_start_ns)


def _start_ns(episode: Episode) -> int:
    return episode.start_ns
