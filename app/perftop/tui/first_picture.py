"""The first picture: a line that reports that perftop is starting, shown while modules are being
imported. Also whether the user is new, who then gets notes on the screen.

The line is drawn with plain escape sequences, because Textual takes too long to import.
"""

from __future__ import annotations

import os
import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from perftop.base.files import make_directory, open_to_write, user_directory
from perftop.process.signals import Exits

_SHOW_SEQUENCE = (
    "\x1b[?1049h\x1b[?25l\x1b[H\x1b[2J \x1b[1mperftop\x1b[0m  {host} \x1b[2m  starting\x1b[0m"
)
_HIDE_SEQUENCE = "\x1b[?1049l\x1b[?25h"


class Picture:
    on_screen = True

    def hand_over(self) -> None:
        """Called when the app takes over the alternate screen. The app restores the main screen
        when it ends."""
        self.on_screen = False


@contextmanager
def show_picture() -> Iterator[Picture]:
    """Shows the picture on the terminal's alternate screen. The picture is removed at the end of
    the block, also by a signal that asks perftop to end, unless the app has taken over the screen.
    Keys typed within the block are not echoed and can still be read after it."""
    fd, picture = sys.stdout.fileno(), Picture()
    _wait_for_foreground(fd)
    saved_modes = termios.tcgetattr(fd)
    quiet_modes = termios.tcgetattr(fd)
    quiet_modes[3] &= ~termios.ECHO
    with Exits() as exits:
        _write(fd, _SHOW_SEQUENCE.format(host=_host()))
        try:
            with suppress(termios.error):  # the terminal may be gone
                termios.tcsetattr(fd, termios.TCSANOW, quiet_modes)
            exits.let_raise()
            yield picture
        finally:
            exits.ignore_all()
            with suppress(termios.error):
                termios.tcsetattr(fd, termios.TCSANOW, saved_modes)
            if picture.on_screen:
                _write(fd, _HIDE_SEQUENCE)


def _wait_for_foreground(fd: int) -> None:
    """Stops perftop, if it was started in the background, until the shell brings it to the
    foreground. The kernel would stop it too, but only when it changes terminal settings, after the
    picture was drawn."""
    with suppress(OSError):  # the terminal does not control our session
        if os.tcgetpgrp(fd) != os.getpgrp():
            signal.raise_signal(signal.SIGTTOU)


def _host() -> str:
    return "".join(c for c in os.uname().nodename if c.isascii() and c.isprintable())


def _write(fd: int, text: str) -> None:
    with suppress(OSError):
        os.write(fd, text.encode())


def is_first_start() -> bool:
    """Returns whether this user starts the screen for the first time, and stores that; False if
    that cannot be stored."""
    place = user_directory("STATE", "~/.local/state") / "perftop" / "greeted"
    try:
        place.parent.parent.mkdir(parents=True, exist_ok=True)
        make_directory(place.parent)
        os.close(open_to_write(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError:
        return False
    return True
