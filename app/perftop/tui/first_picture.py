"""The first picture: a line that perftop is starting, while it is still being imported, and once a
hint to the most important keys.

Plain escape sequences draw the line, because the library that draws the screen takes too long to
import.
"""

from __future__ import annotations

import os
import signal
import sys
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from perftop.base.files import user_directory

_SHOW = "\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J \x1b[1mperftop\x1b[0m  {host} \x1b[2m  starting\x1b[0m"
_HIDE = "\x1b[?1049l\x1b[?25h"


class Picture:
    on_screen = True

    def hand_over(self) -> None:
        """Called when something else takes over the second screen, and leaves it at its end."""
        self.on_screen = False


@contextmanager
def shown() -> Iterator[Picture]:
    """The picture, on the terminal's second screen. It is removed at the end of the block, unless
    it was handed over. Typed keys are not echoed meanwhile; they stay to be read."""
    fd, picture = sys.stdout.fileno(), Picture()
    _wait_for_foreground(fd)
    before = termios.tcgetattr(fd)
    quiet = termios.tcgetattr(fd)
    quiet[3] &= ~termios.ECHO
    _write(fd, _SHOW.format(host=_host()))
    try:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(fd, termios.TCSANOW, quiet)
        yield picture
    finally:
        with suppress(termios.error):
            termios.tcsetattr(fd, termios.TCSANOW, before)
        if picture.on_screen:
            _write(fd, _HIDE)


def _wait_for_foreground(fd: int) -> None:
    """Stops in the background until the shell brings perftop to the foreground. The kernel does so
    with a program that sets up the terminal, but later, when the picture is already shown."""
    with suppress(OSError):  # it is not the terminal of our session
        if os.tcgetpgrp(fd) != os.getpgrp():
            signal.raise_signal(signal.SIGTTOU)


def _host() -> str:
    return "".join(c for c in os.uname().nodename if c.isascii() and c.isprintable())


def _write(fd: int, text: str) -> None:
    with suppress(OSError):
        os.write(fd, text.encode())


def hint(captions: Mapping[str, str]) -> str:
    """A hint for people who see the screen for the first time; '' if it was shown before, or if
    that cannot be remembered. `captions`: names of keys, by id."""
    place = user_directory("STATE", "~/.local/state") / "perftop" / "greeted"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch(exist_ok=False)
    except OSError:
        return ""
    shows, opens = captions["help"], captions["open"]
    return f"New here?  {shows} shows keys and shapes · {opens} opens a core · perftop demo"
