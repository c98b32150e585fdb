"""Plays a recording: reads it into a session at its own pace, and jumps to any other moment of
it."""

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
from perftop.recording.codec import BLOCK_MESSAGES, TimedMessage
from perftop.recording.file import AnyRecording
from perftop.session import selection
from perftop.session.episodes import RecordingEpisodes
from perftop.session.history import MAX_BYTES, History
from perftop.session.session import MAX_BATCH, Session

if TYPE_CHECKING:
    from perftop.session.interval import Interval

WARM_UP_NS = 30_000_000_000
"""Time in ns that is read before the target of a jump: three times what the slowest detector needs.
So numbers and episodes are those of a session that was running from the start; only the starts and
stops of siblings are counted in these seconds alone."""
MAX_READ_ON_NS = 2 * WARM_UP_NS
"""Time ahead, in ns, up to which it is faster to read on than to enter the file again."""
AFTER_END_NS = 1 << 63
"""A time after all messages."""
SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, math.inf)
"""Playing speeds, as multiples of the original speed; the last: as fast as the file can be read."""
BATCH_S = 0.05
"""Longest time in s for which a seek reads before keys are handled."""
SEEK_PAUSE_S = 0.005
"""Pause in s between two batches of a seek, for keys and the screen."""


class Playback:
    """Reads a recording into a session, from the block that contains a given moment. Several
    playbacks of one recording are independent."""

    def __init__(
        self, recording: AnyRecording, time_ns: int, found: RecordingEpisodes | None = None,
        room: int = MAX_BYTES,
    ) -> None:  # fmt: skip
        """`found`: episodes of the whole file. `room`: budget of the history, in bytes."""
        messages = recording.messages(time_ns)
        first: list[TimedMessage] = []
        while len(first) < BLOCK_MESSAGES and not (first and isinstance(first[-1], wire.Frame)):
            if (message := next(messages, None)) is None:
                break
            first.append(message)
        self._begin_ns = first[-1].time_ns if first else recording.hello.raw_ns
        self._messages = chain(first, messages)
        starts_inside = first and time_ns > recording.first_ns
        hello = _hello_as_of(recording.hello, first[-1]) if starts_inside else recording.hello
        self.session = Session(hello, History(hello, room), summarises=False)
        self.session.log.recording = found
        self._next_message = next(self._messages, None)

    @property
    def is_over(self) -> bool:
        """Whether all messages were read."""
        return self._next_message is None

    @property
    def cost(self) -> float:
        """CPU seconds per second that the probe used during the part that was read."""
        elapsed_ns = self.session.now_ns - self._begin_ns
        return self.session.probe_cpu_s() / (elapsed_ns / 1e9) if elapsed_ns > 0 else math.nan

    @property
    def ends_ns(self) -> tuple[int, int] | None:
        """Ends of the first and the last sample in history, in raw ns; None: there are no
        samples."""
        first_ns, last_ns = self.session.past.first_ns, self.session.past.last_ns
        return None if first_ns is None or last_ns is None else (first_ns, last_ns)

    def shown_ns(self, time_ns: int) -> int | None:
        """The end of the sample that is shown at this moment, in raw ns; None: there is no
        sample."""
        times = self.session.past.times()
        index = int(times.searchsorted(time_ns, side="right")) - 1
        return int(times[max(0, index)]) if len(times) else None

    def messages_until(self, time_ns: float) -> Iterator[TimedMessage]:
        """Yields the next messages, up to this moment. The caller applies them to the session."""
        while self._next_message is not None and self._next_message.time_ns <= time_ns:
            message = self._next_message
            self._next_message = next(self._messages, None)
            yield message

    def sample(self) -> None:
        """Read on to the end of the next sample."""
        ends_ns = self.ends_ns
        for message in self.messages_until(AFTER_END_NS):
            self.session.apply(message)
            if self.ends_ns != ends_ns:
                return


def _hello_as_of(hello: wire.Hello, message: TimedMessage) -> wire.Hello:
    """The hello as it would have been at this frame, since earlier notes may have changed which
    CPUs are online."""
    blocks = message.blocks if isinstance(message, wire.Frame) else {}
    for block in hello.blocks:
        rows = blocks.get(block.name)
        if block.scope == "cpu" and rows is not None:
            words = np.frombuffer(row_heads(rows.head, len(hello.topology)), "<u8")
            flags = words.reshape(-1, wire.HEAD)[:, 4]
            offline = flags & np.uint64(wire.ROW_OFFLINE) != 0
            sampled = flags & np.uint64(wire.ROW_SAMPLED) != 0
            topology = [
                replace(row, online=bool(online or (row.online and not offline_note)))
                for row, offline_note, online in zip(hello.topology, offline, sampled, strict=True)
            ]
            return replace(hello, topology=topology)
    return hello


class PlayClock:
    """Computes the moment of the recording that is shown while it is played."""

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

    def change(self, by: int) -> None:
        index = SPEEDS.index(self.speed) + by
        self.speed = SPEEDS[max(0, min(len(SPEEDS) - 1, index))]


def frame_range(recording: AnyRecording) -> tuple[int, int]:
    """Raw ns of the first frame and of the last message. Raises Failed if there is no sample to
    show."""
    first: list[int] = []
    for message in recording.messages():
        if isinstance(message, wire.Frame):
            first.append(message.time_ns)
        if len(first) > 1:
            break
    else:
        damage = f": {recording.damage}" if recording.damage else ""
        raise Failed(f"there is no sample in it{damage}", DAMAGED if recording.damage else 1)
    return first[0], max(first[1], recording.last_ns)


@dataclass(frozen=True, slots=True)
class Seeker:
    """Jumps to another moment of a recording. This may take long, because the recording is read up
    to that moment. So progress is reported, and the task can be cancelled."""

    recording: AnyRecording
    episodes: RecordingEpisodes
    clock: Callable[[], float]
    progress: Callable[[int], None]
    """Called with the moment up to which the recording was read."""

    async def go(self, playback: Playback | None, time_ns: int) -> Playback:
        """A playback that has read up to this moment: the given one, if it is near, or else a new
        one."""
        ends_ns = None if playback is None else playback.ends_ns
        if playback is not None and ends_ns is not None and ends_ns[0] <= time_ns <= ends_ns[1]:
            return playback
        if playback is None or not 0 <= time_ns - playback.session.now_ns <= MAX_READ_ON_NS:
            playback = Playback(self.recording, time_ns - WARM_UP_NS, self.episodes)
        await self._read(playback, time_ns)
        return playback

    async def next_episode(
        self, playback: Playback, filter_episodes: Interval, by: int, cpus: list[int] | None
    ) -> tuple[Playback, int] | None:
        """The moment of the next known episode or mark of the file after an interval, or, if `by`
        is -1, of the last one before it, and a playback that has read up to there. None: there is
        none."""
        session = playback.session
        episodes = selection.reachable_episodes(session, cpus)
        moments = {selection.moment_of(session, episode, filter_episodes) for episode in episodes}
        for time_ns in sorted(
            (ns for ns in moments if (ns - filter_episodes.time_ns) * by > 0), reverse=by < 0
        ):
            playback_there = await self.go(playback, time_ns)
            # Samples are discrete, so this may be the moment already shown.
            shown_ns = playback_there.shown_ns(time_ns)
            if shown_ns is not None and (shown_ns - filter_episodes.time_ns) * by > 0:
                return playback_there, time_ns
        return None

    async def extend_back(self, playback: Playback, since_ns: int) -> None:
        """Extends the history of a playback back to this moment, as far as there is room."""
        history = playback.session.past
        if (begin_ns := history.begin_ns) is None:
            return
        longer_playback = Playback(
            self.recording, since_ns - WARM_UP_NS, self.episodes, history.free_bytes
        )
        await self._read(longer_playback, begin_ns, gently=True)
        history.prepend(longer_playback.session.past)

    async def _read(self, playback: Playback, time_ns: int, *, gently: bool = False) -> None:
        """Reads up to this moment, but at least one sample. `gently`: keys and the screen have
        priority, as nobody is waiting for the result."""
        end_s = self.clock() + BATCH_S
        ahead = playback.messages_until(time_ns)
        while messages := list(islice(ahead, MAX_BATCH)):
            for _ in playback.session.parts(messages):
                pass
            if gently or self.clock() > end_s:
                self.progress(messages[-1].time_ns)
                await asyncio.sleep(SEEK_PAUSE_S)
                end_s = self.clock() + BATCH_S
        if playback.ends_ns is None:
            playback.sample()
