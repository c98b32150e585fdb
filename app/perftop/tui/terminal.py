"""The terminal, which may vanish or stop taking text at any moment.

Textual's driver would read a vanished terminal again and again without a pause. Its writing thread
would die, and the app would wait for that thread for good as soon as the queue between them is
full. Here such text is dropped, and SIGHUP tells perftop what has happened, as the kernel would
tell the first process on that terminal.

Textual's reading thread wakes up ten times a second, which costs more than a tenth of a refresh
each time. Here it sleeps until a key is pressed. And waking the writing thread costs a twentieth of
a refresh, so it only gets what the terminal does not take at once.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
import weakref
from codecs import getincrementaldecoder
from contextlib import suppress
from queue import Full
from typing import TYPE_CHECKING, Any

from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.drivers._writer_thread import WriterThread

LOOK_S = 0.05
"""Seconds between two looks at a terminal that takes no text."""
MOST_WAITING = 2
"""Texts that wait for a slow terminal; a refresh is one or a few. The answer to a key comes behind
them, which with Textual's 30 may be half a minute later."""
LAST_WORDS_S = 1.0
"""Longest wait for a terminal that takes no text, once perftop is to end."""
TICK_S = 0.1
"""Seconds after which the parser is asked again whether a sequence that has begun with Esc goes on;
if it does not for some time, it was the key."""


class Terminal(LinuxDriver):
    _writer_thread: WriterThread | None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        screen = self._file
        self._gone = threading.Event()
        self._until_s = float("inf")
        """When the terminal is no longer waited for, by the monotonic clock."""
        self._file: Any = _Output(screen.fileno(), screen.encoding, self._vanished)
        self.exit_event: _Ended = _Ended(self.fileno, self._vanished)

    def hurry(self) -> None:
        """Called when perftop is told to end, from a signal's handler."""
        self._until_s = min(self._until_s, time.monotonic() + LAST_WORDS_S)

    def start_application_mode(self) -> None:
        super().start_application_mode()  # type: ignore[no-untyped-call]
        if self._writer_thread is None:  # it vanished before
            self._vanished()
        else:
            self._writer_thread._queue.maxsize = MOST_WAITING  # noqa: SLF001

    # The two handlers of signals may have interrupted a write. Whatever writes there would wait for
    # good for a lock that is held below it, so the event loop does it.

    def _sigtstp_application(self, *_: object) -> None:
        self._soon(super()._sigtstp_application)

    def _sigcont_application(self, *_: object) -> None:
        self._soon(self._goes_on)

    def _soon(self, then: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(then)

    def _goes_on(self) -> None:
        """Goes on behind a stop. SIGSTOP, unlike Ctrl-Z, leaves the threads that read and write;
        beside a second pair of them nothing would end, and the terminal stay as it is now. An app
        that ends has no use for threads either: nobody would end them."""
        if self._app._exit:  # noqa: SLF001
            return
        if not self._must_signal_resume:
            self.suspend_application_mode()
        super()._sigcont_application()

    def run_input_thread(self) -> None:
        """Hands on what is typed, until the end; what comes as late as a tick after it is read
        too, so that the shell does not get it."""
        parser, decode = XTermParser(self._debug), getincrementaldecoder("utf-8")("replace").decode
        while not self.exit_event.is_set():
            begun = parser._timeout_time is not None  # noqa: SLF001
            typed = b""
            if self.exit_event.input_comes(TICK_S if begun else None):
                with suppress(OSError):  # the terminal has just vanished
                    typed = os.read(self.fileno, 4096)
            if text := decode(typed):  # half a character is no text yet; '' would end the parser
                for event in parser.feed(text):
                    self.process_message(event)
            for event in parser.tick():
                self.process_message(event)
        if select.select([self.fileno], [], [], TICK_S)[0]:
            with suppress(OSError):
                os.read(self.fileno, 4096)

    def write(self, data: str | None) -> None:
        """Waits while the terminal is slow. None ends the writing thread."""
        writer = self._writer_thread
        if writer is None or self._gone.is_set():
            return
        rest = data if data is None else self._file.at_once(data)
        queue: Any = writer._queue  # noqa: SLF001
        while rest != b"" and self._waits():
            with suppress(Full):
                queue.put(rest, timeout=LOOK_S)
                return

    def close(self) -> None:
        self.write(None)
        writer = self._writer_thread
        while writer is not None and writer.is_alive() and self._waits():
            writer.join(LOOK_S)
        self._writer_thread = None  # a second stop would wait for one that takes no text

    def _waits(self) -> bool:
        return not self._gone.is_set() and time.monotonic() < self._until_s

    def _vanished(self) -> None:
        """Called from any thread, any number of times."""
        if not self._gone.is_set():
            self._gone.set()
            os.kill(os.getpid(), signal.SIGHUP)


class _Output:
    """The terminal, and the file of Textual's writing thread. It holds no lock that the end of the
    interpreter would wait for."""

    def __init__(self, fd: int, encoding: str, vanished: Any) -> None:
        self._fd, self._encoding, self._vanished = fd, encoding, vanished
        self._quick = _opened_anew(fd)
        """The same terminal, on which no write waits; -1: it cannot be opened."""
        if self._quick >= 0:
            weakref.finalize(self, os.close, self._quick)
        self._waiting = self._written = 0
        """Texts for the writing thread, counted by the main thread, and those that it has written,
        counted by that one."""

    def fileno(self) -> int:
        return self._fd

    def at_once(self, text: str) -> bytes:
        """Writes what the terminal takes now. Returns the rest, for the writing thread; all of it
        while that one still has something to write."""
        data = text.encode(self._encoding, "backslashreplace")
        if self._quick >= 0 and self._waiting == self._written:
            try:
                data = data[os.write(self._quick, data) :]
            except BlockingIOError:
                pass
            except OSError:
                self._vanished()
                return b""
        self._waiting += data != b""
        return data

    def write(self, data: bytes) -> None:
        """Called by the writing thread."""
        self._write(data)
        self._written += 1

    def _write(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:  # somebody has set it so for all who use this terminal
                select.select([], [self._fd], [], LOOK_S)
            except OSError:
                self._vanished()
                return

    def flush(self) -> None:
        """Nothing is kept back."""


def _opened_anew(fd: int) -> int:
    """The file behind `fd`, opened anew for writing without waiting: the flag for that belongs to
    an opened file, and all who have inherited this one would see it. -1 if that is not allowed, as
    for a user who came by su."""
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return -1


class _Ended(threading.Event):
    """Whether reading is to end. The reading thread asks before each read, so a terminal that has
    vanished ends it too."""

    def __init__(self, fd: int, vanished: Any) -> None:
        super().__init__()
        self._fd, self._vanished = fd, vanished
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        """Readable while the event is set, for a thread that sleeps."""
        weakref.finalize(self, os.close, self._wake)
        self._all = select.poll()
        """For the reading thread alone: no two threads may wait for one poll object."""
        self._all.register(fd, select.POLLIN)
        self._all.register(self._wake, select.POLLIN)

    def set(self) -> None:
        super().set()
        os.eventfd_write(self._wake, 1)

    def clear(self) -> None:
        super().clear()
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake)

    def is_set(self) -> bool:
        if super().is_set():
            return True
        poll = select.poll()
        poll.register(self._fd, select.POLLHUP)
        hung_up = any(found & select.POLLHUP for _, found in poll.poll(0))
        if hung_up:
            self._vanished()
        return hung_up

    def input_comes(self, seconds: float | None) -> bool:
        """Waits for input, the end or a terminal that vanishes, so long at the most."""
        found = self._all.poll(None if seconds is None else 1000 * seconds)
        return (self._fd, select.POLLIN) in found
