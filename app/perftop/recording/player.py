"""Plays a recording: reads it into a session, and jumps to any moment of it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np

from perfprobe import wire
from perftop.base.errors import DAMAGED, Failed
from perftop.model.differences import row_heads
from perftop.recording.file import AnyRecording, damage_suffix
from perftop.session import selection
from perftop.session.episodes import RecordingEpisodes
from perftop.session.history import MAX_BYTES, History
from perftop.session.packing import BLOCK_MESSAGES, TimedMessage
from perftop.session.session import MAX_BATCH, Session

if TYPE_CHECKING:
    from perftop.model.kinds import Episode

WARM_UP_NS = 30_000_000_000
"""Time in ns that is read before the target of a jump: three times what the slowest detector needs.
So numbers and episodes equal those of a session that was read from the start. Only starts and stops
of siblings are counted within this time."""
MAX_SKIP_BY_READING_NS = 2 * WARM_UP_NS
"""Maximum time in ns of a jump forward that is made by reading on, which is faster than a seek."""
AFTER_END_NS = 1 << 63
"""A raw time in ns after all messages."""
SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, math.inf)
"""Playing speeds, as multiples of the original speed; the last is as fast as possible."""
BATCH_S = 0.05
"""Maximum seconds for which a seek reads before keys are handled."""
SEEK_PAUSE_S = 0.005
"""Seconds between two batches of a seek, for keys and the screen."""


class Playback:
    """Reads a recording into its own session, starting at the block that contains a given
    moment."""

    def __init__(
        self, recording: AnyRecording, time_ns: int, episodes: RecordingEpisodes | None = None,
        room: int = MAX_BYTES,
    ) -> None:  # fmt: skip
        """`episodes`: those of the whole file. `room`: maximum size of the history in bytes."""
        messages = recording.messages(time_ns)
        first: list[TimedMessage] = []
        while len(first) < BLOCK_MESSAGES and not (first and isinstance(first[-1], wire.Frame)):
            if (message := next(messages, None)) is None:
                break
            first.append(message)
        self._begin_ns = first[-1].time_ns if first else recording.hello.raw_ns
        self._messages = chain(first, messages)
        starts_inside = first and time_ns > recording.first_ns
        hello = _hello_at(recording.hello, first[-1]) if starts_inside else recording.hello
        self.session = Session(hello, History(hello, room), summarises=False)
        self.session.log.recording = episodes
        self._next_message = next(self._messages, None)

    @property
    def is_over(self) -> bool:
        """Whether all messages were read."""
        return self._next_message is None

    @property
    def cost(self) -> float:
        """CPU time per second that the probe used, over the part that was read."""
        elapsed_ns = self.session.now_ns - self._begin_ns
        return self.session.probe_cpu_s() / (elapsed_ns / 1e9) if elapsed_ns > 0 else math.nan

    @property
    def ends_ns(self) -> tuple[int, int] | None:
        """Ends of the first and the last sample in history, in raw ns; None if there is no
        sample."""
        first_ns, last_ns = self.session.past.first_ns, self.session.past.last_ns
        return None if first_ns is None or last_ns is None else (first_ns, last_ns)

    def messages_until(self, time_ns: float) -> Iterator[TimedMessage]:
        """Yields the next messages, up to this moment, for the caller to apply to the session."""
        while self._next_message is not None and self._next_message.time_ns <= time_ns:
            message = self._next_message
            self._next_message = next(self._messages, None)
            yield message

    def read_sample(self) -> None:
        """Reads to the end of the next sample."""
        ends_ns = self.ends_ns
        for message in self.messages_until(AFTER_END_NS):
            self.session.apply(message)
            if self.ends_ns != ends_ns:
                return


def _hello_at(hello: wire.Hello, message: TimedMessage) -> wire.Hello:
    """Returns hello with the CPUs that were online at this frame, which earlier notes may have
    changed."""
    blocks = message.blocks if isinstance(message, wire.Frame) else {}
    for block in hello.blocks:
        rows = blocks.get(block.name)
        if block.scope == "cpu" and rows is not None:
            words = np.frombuffer(row_heads(rows.head, len(hello.topology)), "<u8")
            flags = words.reshape(-1, wire.HEAD)[:, 4]
            offline = flags & np.uint64(wire.ROW_OFFLINE) != 0
            sampled = flags & np.uint64(wire.ROW_SAMPLED) != 0
            topology = [
                replace(row, online=bool(was_read or (row.online and not is_offline)))
                for row, is_offline, was_read in zip(hello.topology, offline, sampled, strict=True)
            ]
            return replace(hello, topology=topology)
    return hello


class PlayClock:
    """Computes which moment of the recording is shown while it is played."""

    def __init__(self) -> None:
        self.speed = 1.0
        self._at_ns = 0.0
        self._clock_s = 0.0

    def begin(self, at_ns: int, clock_s: float) -> None:
        self._at_ns, self._clock_s = at_ns, clock_s

    def now_ns(self, clock_s: float) -> float:
        if math.isinf(self.speed):
            return math.inf
        self._at_ns += (clock_s - self._clock_s) * 1e9 * self.speed
        self._clock_s = clock_s
        return self._at_ns

    def change_speed(self, steps: int) -> None:
        index = SPEEDS.index(self.speed) + steps
        self.speed = SPEEDS[max(0, min(len(SPEEDS) - 1, index))]


def frame_range(recording: AnyRecording) -> tuple[int, int]:
    """Returns the raw times in ns of the first frame and of the last message. Raises Failed if
    there are no samples."""
    first: list[int] = []
    for message in recording.messages():
        if isinstance(message, wire.Frame):
            first.append(message.time_ns)
        if len(first) > 1:
            break
    else:
        damage = damage_suffix(recording)
        raise Failed(f"it has no samples{damage}", DAMAGED if damage else 1)
    return first[0], max(first[1], recording.last_ns)


@dataclass(frozen=True, slots=True)
class Seeker:
    """Jumps to a moment of a recording. This can be slow, because samples before it must be read,
    so progress is reported, and the task can be cancelled."""

    recording: AnyRecording
    episodes: RecordingEpisodes
    clock: Callable[[], float]
    progress: Callable[[int], None]
    """Called with the raw time in ns of the last message read."""

    async def seek(self, playback: Playback | None, time_ns: int) -> Playback:
        """Returns a playback that has been read up to this moment: the given one if the moment is
        near, else a new one."""
        ends_ns = None if playback is None else playback.ends_ns
        if playback is not None and ends_ns is not None and ends_ns[0] <= time_ns <= ends_ns[1]:
            return playback
        if playback is None or not 0 <= time_ns - playback.session.now_ns <= MAX_SKIP_BY_READING_NS:
            playback = Playback(self.recording, time_ns - WARM_UP_NS, self.episodes)
        await self._read(playback, time_ns)
        return playback

    async def go_to_episode(
        self, playback: Playback | None, episode: Episode
    ) -> tuple[Playback, selection.TimeRange]:
        """Returns a playback that has been read up to the end of the range that displays this
        episode, and the range."""
        playback = await self.seek(playback, episode.start_ns)
        end_ns = AFTER_END_NS if episode.end_ns is None else episode.end_ns
        sample_ns = self.recording.hello.sample_ns
        # One sample more than is shown: the range ends with the first sample that reaches its end.
        max_ns = selection.max_shown_ns(playback.session) + sample_ns
        end_ns = min(end_ns, episode.start_ns + max_ns)
        end_ns = max(end_ns, episode.start_ns + sample_ns)
        playback = await self.seek(playback, min(end_ns, self.recording.last_ns))
        times = playback.session.past.times()
        if not len(times):  # a gap, or the end of the file after a last sample long before
            return playback, (episode.start_ns, episode.start_ns)
        return playback, selection.episode_range(playback.session, episode, times)

    async def next_episode(
        self, playback: Playback, shown_ns: int, direction: int, cpus: list[int] | None
    ) -> tuple[Playback, selection.TimeRange] | None:
        """Finds the next episode or mark of the file that begins after this moment, or, if
        `direction` is -1, the last one before it. Returns the result of `go_to_episode`; None if
        there is none."""
        episodes = selection.reachable_episodes(playback.session, cpus)
        ahead = (e for e in episodes if (e.start_ns - shown_ns) * direction > 0)
        for episode in sorted(ahead, key=lambda e: e.start_ns * direction):
            playback_there, ends_ns = await self.go_to_episode(playback, episode)
            is_shown = (ends_ns[0] - shown_ns) * direction <= 0
            if playback_there.ends_ns is not None and not is_shown:
                return playback_there, ends_ns
        return None

    async def extend_back(self, playback: Playback, since_ns: int) -> None:
        """Extends the history of a playback back to this moment, if memory permits."""
        history = playback.session.past
        if (begin_ns := history.begin_ns) is None:
            return
        start_ns, room = since_ns - WARM_UP_NS, history.free_bytes
        longer_playback = Playback(self.recording, start_ns, self.episodes, room)
        await self._read(longer_playback, begin_ns, low_priority=True)
        history.prepend(longer_playback.session.past)

    async def _read(self, playback: Playback, time_ns: int, *, low_priority: bool = False) -> None:
        """Reads up to this moment, and at least one sample. With `low_priority`, keys and the
        screen are handled first, because the user is not waiting for the result."""
        end_s = self.clock() + BATCH_S
        next_messages = playback.messages_until(time_ns)
        while messages := list(islice(next_messages, MAX_BATCH)):
            for _ in playback.session.apply_in_parts(messages):
                pass
            if low_priority or self.clock() > end_s:
                self.progress(messages[-1].time_ns)
                await asyncio.sleep(SEEK_PAUSE_S)
                end_s = self.clock() + BATCH_S
        if playback.ends_ns is None:
            playback.read_sample()
