"""Text for a reader that may have stopped reading.

A pipe that nobody empties is full after 64 KiB, and a plain write waits until there is room. Python
goes on with it after a signal, so the signal would not end perftop, and the probe would keep its
counters programmed. Here a write looks around while it waits.
"""

from __future__ import annotations

import os
import select
import stat
import sys
from typing import TextIO

from perftop.base.errors import discard
from perftop.process.signals import ASKED

LOOK_MS = 200
"""How often a write that waits looks whether perftop shall end."""
GRACE_S = 1.0
"""How long the reader has for the rest once perftop shall end."""


def put(out: TextIO, text: str) -> None:
    """Writes the text, at once. What nobody takes by GRACE_S after a signal is lost, and so is all
    that is written there afterwards."""
    try:
        fd = out.fileno()
    except (OSError, ValueError):  # it is no file
        fd = -1
    if fd < 0 or stat.S_ISREG(os.fstat(fd).st_mode):
        out.write(text)
        out.flush()
        return
    out.flush()
    if _unwritten(fd, text.encode(out.encoding, out.errors or "strict")):
        discard(fd)
        if out is not sys.stderr and sys.stderr is not None:
            put(sys.stderr, "perftop: nobody reads the output: the rest of it is lost\n")


def _unwritten(fd: int, data: bytes) -> bytes:
    """Writes to a pipe or a terminal; returns what was left when the time was up."""
    room = select.poll()
    room.register(fd, select.POLLOUT)
    while data:
        if room.poll(LOOK_MS):  # so much fits without waiting
            data = data[os.write(fd, data[: select.PIPE_BUF]) :]
        elif ASKED.for_s() > GRACE_S:
            break
    return data
