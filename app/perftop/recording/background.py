"""Records what the screen shows, in a thread of its own, so that a slow disk cannot hold up the
screen."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections import deque
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from queue import SimpleQueue

from perfprobe import wire
from perftop.base import errors
from perftop.base.errors import Failed
from perftop.recording.codec import Timed
from perftop.recording.writer import Tape, size
from perftop.session.session import Session

WAITING_BYTES = 64_000_000
"""Size of messages that may wait for the disk: half a minute of the largest machines."""
MOST_HOTPLUGS = 4096
"""Hotplug notes that are kept. A machine that changes more often tells nothing by it."""
NEWS_S = 10.0
END_S = 2.0
"""Time that the disk may stand still when the user leaves."""


class Deck:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._reel: _Reel | None = None
        self._hotplugs: deque[wire.Note] = deque(maxlen=MOST_HOTPLUGS)
        self._notice, self._until_s = "", 0.0

    def take(self, message: wire.Message) -> None:
        """One that the session has applied."""
        if isinstance(message, wire.Note) and message.kind == "hotplug":
            self._hotplugs.append(message)
        if self._reel is not None and isinstance(message, wire.Frame | wire.Note):
            self._reel.put(message)

    def turn(self, now_s: float) -> None:
        """Start, or stop."""
        reel = self._reel
        if reel is None or reel.failed:
            self._reel = reel = self._started()
            self._tell(f"recording to {reel.path}", now_s)
        else:
            reel.put(None)

    def news(self, now_s: float) -> tuple[str | None, str]:
        """How much is recorded (None: nothing is), and what there is to say, for the status
        line."""
        reel = self._reel
        if reel is not None and reel.failed:
            if self._notice != reel.failed:
                self._tell(reel.failed, now_s)
        elif reel is not None and not reel.is_alive():
            self._tell(f"recorded {reel.told}", now_s)
            self._reel = None
        notice = self._notice if now_s < self._until_s else ""
        if self._reel is None:
            return None, notice
        return "" if self._reel.failed else size(self._reel.bytes), notice

    def heard(self) -> None:
        """The user has read the news."""
        self._until_s = 0.0

    def end(self) -> str:
        """The app ends. What is to be said of it."""
        reel, self._reel = self._reel, None
        if reel is None:
            return ""
        reel.put(None)
        while reel.is_alive():  # there may be much history that is not written yet
            before = reel.bytes
            reel.join(END_S)
            if reel.is_alive() and reel.bytes == before:
                return f"the recording in {reel.path} may lack its end: the disk does not answer"
        return reel.failed or f"recorded {reel.told}"

    def _started(self) -> _Reel:
        hello, history = self._session.hello, self._session.past
        kept = history.frames(0, self._session.now_ns)
        # What came and went before that: hello tells how it was at the start.
        before_ns = history.first_ns or 0
        earlier = [note for note in self._hotplugs if note.time_ns < before_ns]
        path = named(hello, self._session.unix(self._session.now_ns))
        with contextlib.suppress(OSError):  # the directory may be gone; opening the file tells that
            path = Path.cwd() / path
        reel = _Reel(path, hello, chain(earlier, kept))
        reel.start()
        return reel

    def _tell(self, notice: str, now_s: float) -> None:
        self._notice, self._until_s = notice, now_s + NEWS_S


class _Reel(threading.Thread):
    def __init__(self, path: Path, hello: wire.Hello, kept: Iterable[Timed]) -> None:
        super().__init__(name="recording", daemon=True)
        self.path = path
        self.failed = ""
        self._hello, self._kept = hello, kept
        self._tape: Tape | None = None
        self._waiting: SimpleQueue[Timed | None] = SimpleQueue()
        self._room = WAITING_BYTES // (1000 + wire.frame_bytes(hello))

    @property
    def bytes(self) -> int:
        return self._tape.bytes if self._tape is not None else 0

    @property
    def told(self) -> str:
        return f"{self._tape.told} in {self.path}" if self._tape is not None else ""

    def put(self, message: Timed | None) -> None:
        """None: that was all."""
        if self.failed:
            return
        if message is not None and self._waiting.qsize() >= self._room:
            self.failed, message = "recording has stopped: the disk accepts no more data", None
        self._waiting.put(message)

    def run(self) -> None:
        try:
            self._tape = tape = Tape(self.path, self._hello)
            messages: Iterable[Timed] = chain(self._kept, iter(self._waiting.get, None))
            for message in messages:
                tape.write(message)
            tape.end()
        except Failed as failed:
            self.failed = str(failed)
        except Exception as error:  # noqa: BLE001 - no mistake of ours may reach the screen
            self.failed = f"recording has stopped: {errors.report(error)}"


def named(hello: wire.Hello, unix: float) -> Path:
    """Name of a recording, from host and time. The host's name is whatever a stream says it is."""
    host = re.sub(r"[^A-Za-z0-9_-]+", "-", hello.host)[:64].strip("-") or "host"
    return Path(f"{host}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(unix))}.perftop")
