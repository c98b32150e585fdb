"""Plays a recording: what lies behind is in a session, what lies ahead is read when it is time for
it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain

import numpy as np

from perfprobe import wire
from perfprobe.frozen import replace
from perftop.base.errors import DAMAGED, Failed
from perftop.model.differences import row_heads
from perftop.recording.codec import BLOCK, Timed
from perftop.recording.parts import AnyRecording
from perftop.session.episodes import RecordingEpisodes
from perftop.session.history import BYTES, History
from perftop.session.session import Session

WARM_NS = 30_000_000_000
"""Time that is read before a moment that is entered: three times what the slowest detector needs.
So numbers and episodes are those of a session that was there from the start."""
END_NS = 1 << 63
"""After all messages."""
SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, math.inf)
"""Multiples of the recording's own pace; the last one: as fast as it can be read."""


class Passage:
    """Begins with the block of the recording that holds a moment. Passages of one recording do not
    disturb each other."""

    def __init__(
        self, recording: AnyRecording, time_ns: int, found: RecordingEpisodes | None = None,
        room: int = BYTES,
    ) -> None:  # fmt: skip
        """`found`: what is known of the whole file. `room`: bytes of its history."""
        self._ahead = recording.messages(time_ns)
        self.trouble: str | None = None
        """Why the file cannot be read any further, if that is not what its content says."""
        first: list[Timed] = []
        while len(first) < BLOCK and not (first and isinstance(first[-1], wire.Frame)):
            if (message := self._read()) is None:
                break
            first.append(message)
        self._begin_ns = first[-1].time_ns if first else recording.hello.raw_ns
        self._ahead = chain(first, self._ahead)
        entered = first and time_ns > recording.first_ns
        hello = _as_of(recording.hello, first[-1]) if entered else recording.hello
        self.session = Session(hello, History(hello, room))
        self.session.file = found
        self._next = self._read()

    @property
    def over(self) -> bool:
        """Whether nothing lies ahead."""
        return self._next is None

    @property
    def cost(self) -> float:
        """CPU seconds per second that the probe has used, of what lies behind."""
        elapsed_ns = self.session.now_ns - self._begin_ns
        return self.session.probe_cpu_s() / (elapsed_ns / 1e9) if elapsed_ns > 0 else math.nan

    @property
    def ends_ns(self) -> tuple[int, int] | None:
        """First and last moment of the samples that were read and are kept."""
        first_ns, last_ns = self.session.past.first_ns, self.session.past.last_ns
        return None if first_ns is None or last_ns is None else (first_ns, last_ns)

    def shown_ns(self, time_ns: int) -> int | None:
        """The end of the sample that is shown at this moment; None: there is none."""
        times = self.session.past.times()
        at = int(times.searchsorted(time_ns, side="right")) - 1
        return int(times[max(0, at)]) if len(times) else None

    def until(self, time_ns: float) -> Iterator[Timed]:
        """What lies ahead up to this moment. Whoever takes it applies it to the session."""
        while self._next is not None and self._next.time_ns <= time_ns:
            message = self._next
            self._next = self._read()
            yield message

    def sample(self) -> None:
        """Read on to the end of the next sample."""
        ends_ns = self.ends_ns
        for message in self.until(END_NS):
            self.session.apply(message)
            if self.ends_ns != ends_ns:
                return

    def _read(self) -> Timed | None:
        try:
            return next(self._ahead, None)
        except OSError as error:
            self.trouble = f"unreadable from there on: {error.strerror or error}"
            return None


class Pace:
    """What time it is in the recording, while it is played."""

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
        at = SPEEDS.index(self.speed) + by
        self.speed = SPEEDS[max(0, min(len(SPEEDS) - 1, at))]


def reach(recording: AnyRecording) -> tuple[int, int]:
    """Raw ns of the first frame and of the last message. Raises Failed where there is no sample to
    show."""
    first: list[int] = []
    for message in recording.messages():
        if isinstance(message, wire.Frame):
            first.append(message.time_ns)
        if len(first) > 1:
            break
    else:
        why = f": {recording.damage}" if recording.damage else ""
        raise Failed(f"there is no sample in it{why}", DAMAGED if recording.damage else 1)
    return first[0], max(first[1], recording.last_ns)


def _as_of(hello: wire.Hello, message: Timed) -> wire.Hello:
    """Hello as it would have been at this frame: which CPUs are there was told by notes that may
    lie before it."""
    blocks = message.blocks if isinstance(message, wire.Frame) else {}
    for block in hello.blocks:
        rows = blocks.get(block.name)
        if block.scope == "cpu" and rows is not None:
            words = np.frombuffer(row_heads(rows.head, len(hello.topology)), "<u8")
            flags = words.reshape(-1, wire.HEAD)[:, 4]
            gone = flags & np.uint64(wire.ROW_OFFLINE) != 0
            there = flags & np.uint64(wire.ROW_SAMPLED) != 0
            topology = [
                replace(row, online=bool(here or (row.online and not off)))
                for row, off, here in zip(hello.topology, gone, there, strict=True)
            ]
            return replace(hello, topology=topology)
    return hello
