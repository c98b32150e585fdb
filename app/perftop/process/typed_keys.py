"""Keys that are typed while a verb without a screen runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def typed(heard: Callable[[str], None]) -> Iterator[None]:
    """Within the block `heard` gets each key at once, without Enter. Nothing is read in the
    background, or where stdin is no terminal."""
    try:
        fd = sys.stdin.fileno()
        ours = os.tcgetpgrp(fd) == os.getpgrp()
        before = termios.tcgetattr(fd)
    except (AttributeError, ValueError, OSError, termios.error):
        ours = False
    if not ours:
        yield
        return

    def read() -> None:
        with contextlib.suppress(OSError):
            heard(os.read(fd, 1).decode(errors="replace"))

    loop = asyncio.get_running_loop()
    tty.setcbreak(fd, termios.TCSANOW)
    loop.add_reader(fd, read)
    try:
        yield
    finally:
        loop.remove_reader(fd)
        with contextlib.suppress(termios.error):  # the terminal may be gone
            termios.tcsetattr(fd, termios.TCSADRAIN, before)
