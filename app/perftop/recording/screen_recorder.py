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
from perftop.recording.writer import Writer, size
from perftop.session.session import Session

WAITING_BYTES = 64_000_000
"""Size of messages that may wait for the disk: half a minute of the largest machines."""
MAX_HOTPLUGS = 4096
"""Hotplug notes that are kept. A machine with more changes learns nothing from them."""
NOTICE_S = 10.0
"""Time for which a notice is shown."""
END_S = 2.0
"""Time that the disk may stand still when the user leaves."""


class ScreenRecorder:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._thread: _RecordingThread | None = None
        self._hotplugs: deque[wire.Note] = deque(maxlen=MAX_HOTPLUGS)
        self._notice, self._until_s = "", 0.0

    def take(self, message: wire.Message) -> None:
        """Takes a message that the session has applied."""
        if isinstance(message, wire.Note) and message.kind == "hotplug":
            self._hotplugs.append(message)
        if self._thread is not None and isinstance(message, wire.Frame | wire.Note):
            self._thread.put(message)

    def turn(self, now_s: float) -> None:
        """Starts to record, or stops."""
        thread = self._thread
        if thread is None or thread.failed:
            self._thread = thread = self._started()
            self._notify(f"recording to {thread.path}", now_s)
        else:
            thread.put(None)

    def news(self, now_s: float) -> tuple[str | None, str]:
        """How much is recorded (None: nothing is), and a notice, for the status line."""
        thread = self._thread
        if thread is not None and thread.failed:
            if self._notice != thread.failed:
                self._notify(thread.failed, now_s)
        elif thread is not None and not thread.is_alive():
            self._notify(f"recorded {thread.told}", now_s)
            self._thread = None
        notice = self._notice if now_s < self._until_s else ""
        if self._thread is None:
            return None, notice
        return "" if self._thread.failed else size(self._thread.bytes), notice

    def heard(self) -> None:
        """Removes the notice, as the user has read it."""
        self._until_s = 0.0

    def end(self) -> str:
        """Ends with the app. Returns what the user should know of it."""
        thread, self._thread = self._thread, None
        if thread is None:
            return ""
        thread.put(None)
        while thread.is_alive():  # there may be much history that is not written yet
            before = thread.bytes
            thread.join(END_S)
            if thread.is_alive() and thread.bytes == before:
                return f"the recording in {thread.path} may lack its end: the disk does not answer"
        return thread.failed or f"recorded {thread.told}"

    def _started(self) -> _RecordingThread:
        hello, history = self._session.hello, self._session.past
        kept = history.frames(0, self._session.now_ns)
        # CPUs that went offline or came back before that; hello has them as of its own time.
        before_ns = history.first_ns or 0
        earlier = [note for note in self._hotplugs if note.time_ns < before_ns]
        path = named(hello, self._session.unix(self._session.now_ns))
        with contextlib.suppress(OSError):  # without a directory opening the file will fail
            path = Path.cwd() / path
        thread = _RecordingThread(path, hello, chain(earlier, kept))
        thread.start()
        return thread

    def _notify(self, notice: str, now_s: float) -> None:
        self._notice, self._until_s = notice, now_s + NOTICE_S


class _RecordingThread(threading.Thread):
    """Writes the kept messages and then those that it is given."""

    def __init__(self, path: Path, hello: wire.Hello, kept: Iterable[Timed]) -> None:
        super().__init__(name="recording", daemon=True)
        self.path = path
        self.failed = ""
        """Why it has stopped; '': it has not."""
        self._hello, self._kept = hello, kept
        self._writer: Writer | None = None
        self._waiting: SimpleQueue[Timed | None] = SimpleQueue()
        self._room = WAITING_BYTES // (1000 + wire.frame_bytes(hello))

    @property
    def bytes(self) -> int:
        return self._writer.bytes if self._writer is not None else 0

    @property
    def told(self) -> str:
        return f"{self._writer.told} in {self.path}" if self._writer is not None else ""

    def put(self, message: Timed | None) -> None:
        """None: that was all."""
        if self.failed:
            return
        if message is not None and self._waiting.qsize() >= self._room:
            self.failed, message = "recording has stopped: the disk accepts no more data", None
        self._waiting.put(message)

    def run(self) -> None:
        try:
            self._writer = writer = Writer(self.path, self._hello)
            messages: Iterable[Timed] = chain(self._kept, iter(self._waiting.get, None))
            for message in messages:
                writer.write(message)
            writer.end()
        except Failed as failed:
            self.failed = str(failed)
        except Exception as error:  # noqa: BLE001 - no mistake of ours may reach the screen
            self.failed = f"recording has stopped: {errors.report(error)}"


def named(hello: wire.Hello, unix: float) -> Path:
    """Name of a recording, from time and host, whose name a stream is free to choose."""
    host = re.sub(r"[^A-Za-z0-9_-]+", "-", hello.host)[:64].strip("-") or "host"
    return Path(f"{host}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(unix))}.perftop")
