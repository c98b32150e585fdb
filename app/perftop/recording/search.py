"""Goes to another moment of a recording. That takes as long as reading does, so whoever waits is
told how far it has come, and may give up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING

from perfprobe.frozen import frozen
from perftop.recording.player import WARM_NS, Passage
from perftop.session import navigation as episode_navigation
from perftop.session.session import MAX_BATCH

if TYPE_CHECKING:
    from perftop.recording.parts import AnyRecording
    from perftop.session.episodes import RecordingEpisodes
    from perftop.session.interval import Interval

BATCH_S = 0.05
"""Read at once: a key is answered after that."""
BREATH_S = 0.005
"""Pause between two batches, for keys and the screen."""
NEAR_NS = 2 * WARM_NS
"""Ahead of what was read: read on rather than enter the file anew, which costs as much."""
Found = tuple[Passage, int]
"""A passage, and the moment in it, raw ns."""


@frozen
class Search:
    recording: AnyRecording
    found: RecordingEpisodes
    clock: Callable[[], float]
    come: Callable[[int], None]
    """Told to which moment it has come by now."""

    async def go(self, passage: Passage | None, time_ns: int) -> Passage:
        """One that has come to this moment: this one, if that is near."""
        ends_ns = None if passage is None else passage.ends_ns
        if passage is not None and ends_ns is not None and ends_ns[0] <= time_ns <= ends_ns[1]:
            return passage
        if passage is None or not 0 <= time_ns - passage.session.now_ns <= NEAR_NS:
            passage = Passage(self.recording, time_ns - WARM_NS, self.found)
        await self._read(passage, time_ns)
        return passage

    async def beside(
        self, passage: Passage, at: Interval, by: int, cpus: list[int] | None
    ) -> Found | None:
        """The next episode or mark that the file is known to have, or for -1 the one before, as
        seen from an interval."""
        session = passage.session
        episodes = episode_navigation.reachable(session, cpus)
        moments = {episode_navigation.moment_of(session, episode, at) for episode in episodes}
        for time_ns in sorted((ns for ns in moments if (ns - at.time_ns) * by > 0), reverse=by < 0):
            found = await self.go(passage, time_ns)
            # Samples are apart: this may be the moment that is shown already.
            shown_ns = found.shown_ns(time_ns)
            if shown_ns is not None and (shown_ns - at.time_ns) * by > 0:
                return found, time_ns
        return None

    async def deepen(self, passage: Passage, since_ns: int) -> None:
        """Reads what lies before a passage from this moment on, as far as its history has room."""
        history = passage.session.past
        if (begin_ns := history.begin_ns) is None:
            return
        older = Passage(self.recording, since_ns - WARM_NS, self.found, history.free_bytes)
        await self._read(older, begin_ns, gently=True)
        history.prepend(older.session.past)

    async def _read(self, passage: Passage, time_ns: int, *, gently: bool = False) -> None:
        """Reads up to this moment, and at least to a first sample. `gently`: keys and the screen
        come first, as nobody waits for it."""
        end_s = self.clock() + BATCH_S
        ahead = passage.until(time_ns)
        while messages := list(islice(ahead, MAX_BATCH)):
            for _ in passage.session.play(messages):
                pass
            if gently or self.clock() > end_s:
                self.come(messages[-1].time_ns)
                await asyncio.sleep(BREATH_S)
                end_s = self.clock() + BATCH_S
        if passage.ends_ns is None:
            passage.sample()
