"""A bounded queue of encoded messages for a reader that may be slow; if it is full, the oldest
frames are dropped and counted."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from itertools import islice

from perfprobe.errors import OutputError
from perfprobe.wire.encoding import encode
from perfprobe.wire.messages import Bytes, Frame, Message

QUEUE_BYTES = 8 << 20
"""Maximum size of the queue in bytes; two messages are kept whatever their size."""
PIPE_BYTES = 1 << 20
"""Size of the pipe in bytes: a frame of 1024 CPUs is larger than the default of 64 KiB."""
MAX_LOST_FRAMES = 1 << 62
"""Upper bound of `lost` in a frame: the source's own count plus the frames dropped here."""
MAX_PARTS = 512
"""Maximum number of messages in one writev(2); Linux allows 1024."""
FILE_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""Errors of a file that cannot grow. All other errors of a write mean that the reader is gone."""


class EndedError(Exception):
    """The stream must end: its reader or the parent has closed its end, or a signal arrived."""


class Outbox:
    def __init__(
        self, fd: int, limit: int = QUEUE_BYTES, encode: Callable[[Message], bytes] = encode
    ) -> None:
        self.fd = fd
        self._encode = encode
        self.lost = 0
        self._limit = limit
        # for each message: whether it may be dropped (a frame), and its bytes
        self._queue: deque[tuple[bool, bytes]] = deque()
        self._bytes = 0
        self._sent = 0  # number of bytes of the first message that were already written
        os.set_blocking(fd, False)
        # fails if the descriptor is not a pipe, or if the size exceeds this user's limit
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def __bool__(self) -> bool:
        return bool(self._queue)

    @property
    def is_full(self) -> bool:
        """Whether the queue is full, so that the next frame replaces older ones."""
        return self._bytes > self._limit

    def put(self, message: Message) -> None:
        droppable = isinstance(message, Frame)
        if isinstance(message, Frame):
            first = 1 if self._sent else 0  # a partly written message must not be dropped
            while self._bytes > self._limit and len(self._queue) > first + 1:
                frames = (i for i in range(first, len(self._queue)) if self._queue[i][0])
                if (victim := next(frames, None)) is None:
                    break
                self._bytes -= len(self._queue[victim][1])
                del self._queue[victim]
                self.lost += 1
            if self.lost:
                message = replace(message, lost=min(message.lost + self.lost, MAX_LOST_FRAMES))
        data = self._encode(message)
        self._queue.append((droppable, data))
        self._bytes += len(data)

    def flush(self) -> None:
        """Writes what the descriptor accepts of the queue. Raises EndedError without a reader, and
        OutputError if the descriptor is a file that cannot grow."""
        while self._queue:
            parts: list[Bytes] = [data for _, data in islice(self._queue, MAX_PARTS)]
            parts[0] = memoryview(parts[0])[self._sent :]
            try:
                self._sent += os.writev(self.fd, parts)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in FILE_ERRNOS:
                    raise OutputError(f"cannot write stdout: {error.strerror}") from None
                raise EndedError(f"the reader is gone ({error.strerror})") from None
            while self._queue and self._sent >= (size := len(self._queue[0][1])):
                self._queue.popleft()
                self._bytes -= size
                self._sent -= size
