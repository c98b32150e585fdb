"""The way to another moment of a recording, and to episodes that are not read yet. It takes as long
as it takes to read: whoever waits is told how far it has come, and may give up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from perftop.recording.player import WARM_NS, Passage
from perftop.session import episode_navigation
from perftop.session.session import MOST_TOGETHER

if TYPE_CHECKING:
    from perfprobe import wire
    from perftop.recording.file import Recording
    from perftop.session.interval import Interval

BATCH_S = 0.05
"""Read at once: a key is answered after that."""
BREATH_S = 0.005
"""For keys and the screen, between two of these."""
NEAR_NS = 2 * WARM_NS
"""Ahead of what was read: read on rather than enter the file anew, which costs as much."""
STRETCH_NS = 120_000_000_000
"""Looked at at once when an episode is sought backwards."""

SEEN_NS = 10_000_000_000
"""Episodes are seen for certain so long after their start."""

Found = tuple[Passage, int]
"""A passage, and the moment in it, raw ns."""


@dataclass(frozen=True, slots=True)
class Search:
    recording: Recording
    first_ns: int
    """Raw: of the recording."""
    named: Sequence[wire.Note]
    """Marks that are not in the file."""
    clock: Callable[[], float]
    come: Callable[[int], None]
    """Told to which moment it has come by now."""

    async def go(self, passage: Passage | None, time_ns: int) -> Passage:
        """One that has come to this moment: this one, if that is near."""
        if passage is None or not 0 <= time_ns - passage.session.now_ns <= NEAR_NS:
            passage = self._entered(time_ns)
        await self._read(passage, time_ns)
        return passage

    async def on(
        self, passage: Passage, at: Interval, span_ns: int, cpus: list[int] | None
    ) -> Found | None:
        """The next episode that is not read yet, as seen from an interval."""
        session = passage.session
        while not passage.over:
            await self._read(passage, session.now_ns + span_ns)
            if (
                episode_navigation.beside(session, at, episode_navigation.kept(session, cpus), 1)
                is not None
            ):
                # As long as an interval that begins with it.
                await self._read(passage, session.now_ns + span_ns)
                time_ns = episode_navigation.beside(
                    session, at, episode_navigation.kept(session, cpus), 1
                )
                return passage, time_ns or session.now_ns
        return None

    async def back(self, end_ns: int, at: Interval, cpus: list[int] | None) -> Found | None:
        """The last episode that began before `end_ns`."""
        while end_ns > self.first_ns:
            begin_ns = end_ns - STRETCH_NS
            passage = self._entered(begin_ns)
            await self._read(passage, end_ns + SEEN_NS)
            session = passage.session
            # Of one that was there when the file was entered the start is not known.
            found = [
                e for e in episode_navigation.kept(session, cpus) if begin_ns <= e.start_ns < end_ns
            ]
            time_ns = episode_navigation.beside(session, at, found, -1)
            if time_ns is not None:
                return passage, time_ns
            end_ns = begin_ns
        return None

    def _entered(self, time_ns: int) -> Passage:
        return Passage(self.recording, time_ns - WARM_NS, self.named)

    async def _read(self, passage: Passage, time_ns: int) -> None:
        """Up to this moment, and to a first sample if there was none before."""
        end_s = self.clock() + BATCH_S
        ahead = passage.until(time_ns)
        while messages := list(islice(ahead, MOST_TOGETHER)):
            for _ in passage.session.play(messages):
                pass
            if self.clock() > end_s:
                self.come(messages[-1].time_ns)
                await asyncio.sleep(BREATH_S)
                end_s = self.clock() + BATCH_S
        if passage.ends_ns is None:
            passage.sample()
