"""Recordings of several machines as a source of the fleet: one axis, by the clock of each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from perftop.base.errors import USAGE, Failed
from perftop.base.format import time_of_day
from perftop.recording.codec import Timed
from perftop.recording.file import AnyRecording, has_parts, recording
from perftop.session.fleet.fleet import Fleet
from perftop.session.fleet.live_machine import LiveMachine
from perftop.session.fleet.machine import SPAN_S, Machine

ENDING = "*.perftop"
MOST_FILES = 256
WARM_S = SPAN_S + 5.0
"""Time read before a moment that is entered, so that its numbers cover their whole span."""
TICK_S = 0.5
"""How often it plays on."""
TOGETHER = 64
"""Messages read at once."""


class RecordingsSource:
    """Plays from the beginning; every moment of it can be entered."""

    every_s = 1.0
    problem = ""

    def __init__(self, directory: Path, *, playing: bool = True) -> None:
        """Raises Failed if there is no recording, or none that can be read. One that cannot is a
        machine that does not answer."""
        found = (path for path in directory.glob(ENDING) if path.is_file() or has_parts(path))
        paths = [directory] if has_parts(directory) else sorted(found)
        if not paths:
            raise Failed(f"{directory}: holds no recording (NAME.perftop)", USAGE)
        if len(paths) > MOST_FILES:
            raise Failed(f"{directory}: {len(paths)} recordings; {MOST_FILES} at most", USAGE)
        with ExitStack() as stack:
            self._tracks = list[_Track]()
            failed: dict[str, Failed] = {}
            for path in paths:
                try:
                    file = recording(path)
                except Failed as why:
                    failed[path.stem] = why
                else:
                    stack.enter_context(file)
                    self._tracks.append(_Track(path, file))
            if not self._tracks:
                raise next(iter(failed.values()))
            self._open = stack.pop_all()
        self.first = min(track.first for track in self._tracks)
        self.last = max(track.last for track in self._tracks)
        self.what = "recorded"
        self._unread = {name: Machine(name) for name in failed}
        for name, failure in failed.items():
            self._unread[name].fall_silent(self.first, str(failure))
        played = (track.live.machine for track in self._tracks)
        self.fleet = Fleet([*played, *self._unread.values()])
        self._now = self.first
        self._wanted: float | None = self.first + 1.0
        self._playing = playing
        self._reading = False

    @property
    def now(self) -> float:
        return self._now

    @property
    def moment(self) -> str:
        how = "reading" if self._reading else "playing" if self._playing else "paused"
        return f"{how} · {time_of_day(self._now)} of {time_of_day(self.last)}"

    @property
    def over(self) -> bool:
        """Whether all of it was played."""
        return self._now >= self.last and self._wanted is None

    def facts(self) -> Sequence[str]:
        return ["times by each machine's own clock"]

    async def run(self) -> None:
        """Play on, or go where the viewer wants, until cancelled."""
        with self._open:
            while True:
                began, wanted = time.monotonic(), self._wanted
                self._wanted = None
                if wanted is not None:
                    await self._go(min(max(wanted, self.first), self.last))
                await asyncio.sleep(0 if self._wanted is not None else TICK_S)
                if self._playing and self._wanted is None:
                    await self._go(min(self._now + time.monotonic() - began, self.last))
                    self._playing = self._now < self.last

    async def _go(self, moment: float) -> None:
        """Read each machine up to this moment, or anew if it lies before or far ahead."""
        anew = moment < self._now or moment > self._now + WARM_S
        self._reading = anew
        tracks = [_Track(t.path, t.recording, t.last) if anew else t for t in self._tracks]
        for track in tracks:
            if anew:
                await asyncio.to_thread(track.enter, moment)
            else:
                track.go(moment)
                await asyncio.sleep(0)
        if anew:  # all at once: the screen never mixes two moments
            self._tracks = tracks
            played = {track.live.machine.name: track.live.machine for track in tracks}
            self.fleet.machines = played | self._unread
        self._now, self._reading = moment, False

    def travel(self, by: int) -> bool:
        """A second back or on for each step; it stands still there."""
        at = self._now if self._wanted is None else self._wanted
        self._wanted, self._playing = at + by, False
        return True

    def pause(self) -> None:
        self._playing = not self._playing


class _Track:
    """One recording, read up to a moment."""

    def __init__(self, path: Path, recording: AnyRecording, last: float | None = None) -> None:
        self.path, self.recording = path, recording
        self.live = LiveMachine(Machine(path.stem, ("replay", str(path))))
        self.live.take([recording.hello], 0.0)
        self.first = self._unix(recording.first_ns)
        self.last = self._unix(recording.last_ns) if last is None else last
        self._ahead: Iterator[Timed] = recording.messages()
        self._next: Timed | None = next(self._ahead, None)

    def _unix(self, time_ns: int) -> float:
        session = self.live.session
        assert session is not None
        return session.unix(time_ns)

    def enter(self, moment: float) -> None:
        """Begin shortly before this moment."""
        hello = self.recording.hello
        since_ns = hello.raw_ns + round((moment - WARM_S) * 1e9) - hello.wall_ns
        self._ahead = self.recording.messages(max(0, since_ns))
        self._next = next(self._ahead, None)
        self.go(moment)

    def go(self, moment: float) -> None:
        """Read on up to this moment."""
        machine, some = self.live.machine, list[Timed]()
        while self._next is not None and self._unix(self._next.time_ns) <= moment:
            some.append(self._next)
            self._next = next(self._ahead, None)
            if len(some) == TOGETHER:
                self.live.take(some)
                some.clear()
        self.live.take(some)
        if self._next is None and moment > self.last:
            machine.fall_silent(moment, f"its recording ends at {time_of_day(self.last)}")
        elif moment < self.first:
            machine.fall_silent(moment, f"its recording begins at {time_of_day(self.first)}")
