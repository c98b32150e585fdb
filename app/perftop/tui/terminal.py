"""The driver of the terminal, which may vanish or block at any moment.

Textual's driver would read a vanished terminal in a loop without a pause. Its writing thread would
die, and the app would wait for that thread forever as soon as the queue between them is full. This
driver drops such text, and perftop gets SIGHUP, as the kernel would send it to the first process on
that terminal.

Textual's reading thread wakes up ten times a second, which costs more than a tenth of a refresh
each time. This driver's thread sleeps until a key is pressed. Waking the writing thread costs a
twentieth of a refresh, so it only gets what the terminal does not accept immediately."""

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

POLL_S = 0.05
"""Seconds between two attempts to write to a terminal that blocks."""
MAX_QUEUED = 2
"""Texts that wait for a slow terminal; a refresh is one or a few. The answer to a key comes after
them, which with Textual's 30 may be half a minute later."""
MAX_END_S = 1.0
"""Longest wait for a terminal that blocks, once perftop is to end."""
TICK_S = 0.1
"""Seconds after which the parser checks again whether a sequence that began with Esc continues; if
it does not for some time, it was the key."""


class Terminal(LinuxDriver):
    _writer_thread: WriterThread | None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        screen = self._file
        self._lost = threading.Event()
        self._until_s = float("inf")
        """When waiting for the terminal ends, by the monotonic clock."""
        self._file: Any = _Output(screen.fileno(), screen.encoding, self._report_loss)
        self.exit_event: _EndEvent = _EndEvent(self.fileno, self._report_loss)

    def hurry(self) -> None:
        """Called by a signal's handler when perftop is to end."""
        self._until_s = min(self._until_s, time.monotonic() + MAX_END_S)

    def start_application_mode(self) -> None:
        super().start_application_mode()  # type: ignore[no-untyped-call]
        if self._writer_thread is None:  # it vanished before
            self._report_loss()
        else:
            self._writer_thread._queue.maxsize = MAX_QUEUED  # noqa: SLF001

    # The two handlers of signals may have interrupted a write. A write in a handler would wait
    # forever for the lock that the interrupted one holds, so the event loop does it.

    def _sigtstp_application(self, *_: object) -> None:
        self._call_in_loop(super()._sigtstp_application)

    def _sigcont_application(self, *_: object) -> None:
        self._call_in_loop(self._resume)

    def _call_in_loop(self, then: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(then)

    def _resume(self) -> None:
        """Resumes after a stop. SIGSTOP, unlike Ctrl-Z, leaves the threads that read and write;
        with a second pair of them perftop would not end and not restore the terminal. An app that
        is ending needs no new threads either: nothing would end them."""
        if self._app._exit:  # noqa: SLF001
            return
        if not self._must_signal_resume:
            self.suspend_application_mode()
        super()._sigcont_application()

    def run_input_thread(self) -> None:
        """Posts what is typed, until the end. Input within a tick after the end is read too, so
        that the shell does not get it."""
        parser, decode = XTermParser(self._debug), getincrementaldecoder("utf-8")("replace").decode
        while not self.exit_event.is_set():
            in_sequence = parser._timeout_time is not None  # noqa: SLF001
            typed = b""
            if self.exit_event.input_comes(TICK_S if in_sequence else None):
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
        if writer is None or self._lost.is_set():
            return
        rest = data if data is None else self._file.write_now(data)
        queue: Any = writer._queue  # noqa: SLF001
        while rest != b"" and self._may_wait():
            with suppress(Full):
                queue.put(rest, timeout=POLL_S)
                return

    def close(self) -> None:
        self.write(None)
        writer = self._writer_thread
        while writer is not None and writer.is_alive() and self._may_wait():
            writer.join(POLL_S)
        self._writer_thread = None  # a second stop would wait for one that takes no text

    def _may_wait(self) -> bool:
        return not self._lost.is_set() and time.monotonic() < self._until_s

    def _report_loss(self) -> None:
        """Called from any thread, any number of times."""
        if not self._lost.is_set():
            self._lost.set()
            os.kill(os.getpid(), signal.SIGHUP)


class _Output:
    """The terminal as the file of Textual's writing thread. It holds no lock that the end of the
    interpreter would wait for."""

    def __init__(self, fd: int, encoding: str, vanished: Any) -> None:
        self._fd, self._encoding, self._report_loss = fd, encoding, vanished
        self._nonblocking = _opened_again(fd)
        """The terminal opened again, without blocking; -1: it cannot be opened."""
        if self._nonblocking >= 0:
            weakref.finalize(self, os.close, self._nonblocking)
        self._waiting = self._written = 0
        """Number of texts for the writing thread, counted by the main thread, and of those that it
        has written, counted by itself."""

    def fileno(self) -> int:
        return self._fd

    def write_now(self, text: str) -> bytes:
        """Writes what the terminal accepts now. Returns the rest, for the writing thread; all of it
        while that thread still has text to write."""
        data = text.encode(self._encoding, "backslashreplace")
        if self._nonblocking >= 0 and self._waiting == self._written:
            try:
                data = data[os.write(self._nonblocking, data) :]
            except BlockingIOError:
                pass
            except OSError:
                self._report_loss()
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
            except BlockingIOError:  # another program has set the flag, which all share
                select.select([], [self._fd], [], POLL_S)
            except OSError:
                self._report_loss()
                return

    def flush(self) -> None:
        """Nothing is buffered."""


def _opened_again(fd: int) -> int:
    """The file behind `fd`, opened a second time without blocking: the flag belongs to the open
    file, which other programs have inherited. -1 if that is not allowed, as for a user after su."""
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return -1


class _EndEvent(threading.Event):
    """Whether reading is to end. The reading thread checks it before each read, so a terminal that
    has vanished ends it too."""

    def __init__(self, fd: int, vanished: Any) -> None:
        super().__init__()
        self._fd, self._report_loss = fd, vanished
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        """Readable while the event is set, for a thread that sleeps."""
        weakref.finalize(self, os.close, self._wake)
        self._all = select.poll()
        """For the reading thread only: two threads must not wait for one poll object."""
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
        hung_up = any(flags & select.POLLHUP for _, flags in poll.poll(0))
        if hung_up:
            self._report_loss()
        return hung_up

    def input_comes(self, seconds: float | None) -> bool:
        """Waits this long at most for input, the end or the loss of the terminal."""
        found = self._all.poll(None if seconds is None else 1000 * seconds)
        return (self._fd, select.POLLIN) in found
