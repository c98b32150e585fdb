"""The terminal app. It shows the screen of a source: a stream, a recording, a command, a fleet, or
two recordings. They share its themes, keys, shutdown (keys, signals, bugs) and terminal driver."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import weakref
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Full
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from textual import events
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.binding import BindingType
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.screen import Screen
from textual.timer import Timer
from textual.widget import Widget
from textual.worker import WorkerFailed

from perftop.base import END_SIGNALS, errors
from perftop.base.errors import Failed
from perftop.base.files import make_directory, read_own_file, replace, user_directory
from perftop.base.text import supports_unicode
from perftop.draw import theme
from perftop.process.signals import END_REQUEST, check_loop, hold_signals, on_signal, run_loop
from perftop.tui.config import Config
from perftop.tui.shared import keys

MAX_THEME_BYTES = 100


class ScreenSource:
    """Supplies the main screen and its data. A key with the action `source('NAME')` calls the
    method NAME. If the source has no such method, the key has no effect and is not listed."""

    app: PerfTopApp

    def make_screen(self) -> Screen[Any]:
        """Returns the main screen. Called once, after `app` was set."""
        raise NotImplementedError

    async def read_data(self) -> None:
        """Reads the data until they end or the app ends."""
        raise NotImplementedError

    def on_screen_ready(self) -> None:
        """Called when the main screen is mounted."""

    def show_notice(self, notice: str) -> None:
        """Shows a message until the user presses a key or some seconds have passed."""

    def on_unknown_key(self, key: str) -> None:
        """Called after a key that has no action on the main screen."""

    def on_notice_read(self) -> None:
        """Called after a key or click on the main screen: the user has read the notice."""

    # --- shutdown

    def handle_signal(self, number: signal.Signals) -> bool:  # noqa: ARG002 - for overrides
        """Handles a signal or Ctrl-C. Returns False if the app is to end."""
        return False

    def on_app_end(self) -> None:
        """Called when the app ends."""

    def end_recording(self) -> str:
        """Ends a recording. Returns a message for stderr after the screen has closed, or ''."""
        return ""


class PerfTopApp(App[None]):
    TITLE = "perftop"
    CSS_PATH = "perftop.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings("app", "replay")]

    def __init__(
        self, source: ScreenSource, config: Config | None = None, *, ascii_: bool = False
    ) -> None:
        super().__init__()
        self.config, self.ascii = config or Config(), ascii_
        self.source = source
        source.app = self
        self.failure: Failed | None = None
        """Why no new data can be shown; None if there was no failure."""
        self.is_ready = self._has_crashed = False
        self._requested_status: int | None = None
        """Exit status with which the app has been asked to end; None before that."""
        self.display_count = 0
        for theme_ in theme.THEMES:
            self.register_theme(theme_)
        # On a terminal with 16 colours, the default theme consists of these colours.
        themes, name = theme.theme_names(no_color=self.no_color), self.config.theme
        if name == Config().theme and self.console.color_system == "standard":
            name = "perftop-ansi"
        self.theme = name if name in themes else themes[0]
        self._theme_file: Path | None = None
        """The file in which the theme chosen last is stored; None if it is not stored."""
        self.animation_level = "none"
        self.set_keymap(self.config.keys)
        self._key_targets: WeakKeyDictionary[events.Key, Widget | None] = WeakKeyDictionary()
        """The widget to which each key was forwarded."""

    def get_default_screen(self) -> Screen[Any]:
        return self.source.make_screen()

    def set_timer(self, *arguments: Any, **options: Any) -> Timer:
        """Sets a timer that also ends, if late, on a busy machine. Textual's would never end if the
        process had to wait for a CPU as it begins; a resize timer would then lose all later
        resizes."""
        timer = super().set_timer(*arguments, **options)
        timer._skip = False  # noqa: SLF001
        return timer

    def restore_theme(self) -> None:
        """Shows the theme chosen last, unless the config file names one. Stores later choices."""
        self._theme_file = user_directory("STATE", "~/.local/state") / "perftop" / "theme"
        stored = read_own_file(self._theme_file, MAX_THEME_BYTES) or b""
        name = stored.decode(errors="replace").strip()
        names = theme.theme_names(no_color=self.no_color)
        if self.config.theme == Config().theme and name in names:
            self.theme = name

    def get_driver_class(self) -> type[Driver]:
        driver = super().get_driver_class()
        return TerminalDriver if driver is LinuxDriver else driver

    def on_load(self) -> None:
        self.run_worker(self.source.read_data(), exclusive=True)

        def limit_terminal_wait() -> None:
            """Called by the signal handler, because the event loop may wait for the terminal."""
            if isinstance(self._driver, TerminalDriver):
                self._driver.limit_wait()

        on_signal(END_SIGNALS, self._on_signal, limit_terminal_wait)

    def on_ready(self) -> None:
        self.source.on_screen_ready()
        self.is_ready = True
        if self._requested_status is not None:
            self.end_with_status(self._requested_status)

    def post_display_hook(self) -> None:
        self.display_count += 1

    # --- keys

    async def on_event(self, event: events.Event) -> None:
        """Ignores input that arrives after the app has quit, because there is no screen."""
        if isinstance(event, events.InputEvent) and (self._exit or not self.screen_stack):
            return
        if isinstance(event, events.Key | events.MouseDown) and len(self.screen_stack) == 1:
            # a notice that is covered by another screen has not been read yet
            self.source.on_notice_read()
        if isinstance(event, events.Key) and not event.is_forwarded:
            self._key_targets[event] = self.focused
        await super().on_event(event)

    async def _on_key(self, event: events.Key) -> None:
        """Forwards a key again if an earlier key has moved the focus in the meantime: when `/` and
        a filter arrive in one burst, the filter belongs to the prompt that `/` opens."""
        focused = self.focused
        if focused is not None and self._key_targets.get(event) is not focused:
            event.prevent_default()
            repeated_key = events.Key(event.key, event.character)
            self._key_targets[repeated_key] = focused
            focused._forward_event(repeated_key)  # noqa: SLF001 - no public name
        elif event.key not in self.screen.active_bindings and len(self.screen_stack) == 1:
            self.source.on_unknown_key(event.key)

    async def run_action(self, *action: Any, **options: Any) -> bool:
        """Ignores actions after the app has quit, because views can no longer be mounted."""
        return not self._exit and await super().run_action(*action, **options)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        is_available = action != "source" or hasattr(self.source, str(parameters[0]))
        return is_available and super().check_action(action, parameters)

    def action_source(self, name: str, *arguments: int) -> object:
        """Calls this method of the source; Textual awaits the result."""
        return getattr(self.source, name)(*arguments)

    def action_redraw(self) -> None:
        """Draws all lines. A normal refresh writes only the parts that have changed."""
        self.screen.refresh()

    def action_suspend_process(self) -> None:
        if can_be_resumed():
            super().action_suspend_process()
        else:
            self.source.show_notice("no shell could resume perftop: not suspended")

    def action_theme(self, name: str = "") -> None:
        """Sets this theme, or the next theme if no name is given."""
        names = theme.theme_names(no_color=self.no_color)
        self.theme = name or names[(names.index(self.theme) + 1) % len(names)]
        if self._theme_file is not None:
            with suppress(OSError):
                make_directory(self._theme_file.parent, parents=True)
                replace(self._theme_file, self.theme.encode())

    # --- shutdown

    def action_interrupt(self) -> None:
        if not self.source.handle_signal(signal.SIGINT):
            self.exit()

    def exit(self, *results: Any, **options: Any) -> None:
        self.source.on_app_end()
        if isinstance(self._driver, TerminalDriver):
            self._driver.discard_output()
        super().exit(*results, **options)

    def end_with_status(self, status: int) -> None:
        """Ends the app with this exit status; if it is still starting, as soon as it is ready."""
        self._requested_status = status
        if self.is_ready:
            self.exit(return_code=status)

    def is_drawing(self) -> bool:
        """Returns whether the terminal has not yet accepted the last output."""
        return isinstance(self._driver, TerminalDriver) and self._driver.is_writing()

    def _on_signal(self, number: signal.Signals) -> None:
        """Ends the app as `q` does. SIGINT ends it only if the source does not handle SIGINT."""
        if not self.source.handle_signal(number) or number != signal.SIGINT:
            self.end_with_status(128 + number)

    def _handle_exception(self, error: Exception) -> None:
        """Ends the app after an error and sets `failure`, which is printed once the terminal has
        been restored. For a bug in perftop, first writes a report; the failure is its path."""
        if self.is_headless:  # tests need the exception itself
            super()._handle_exception(error)
            return
        if not self._has_crashed:  # later errors are usually consequences of the first
            self._has_crashed = True
            # WorkerFailed lacks the traceback of the error in the worker
            cause = error.error if isinstance(error, WorkerFailed) else error
            self.failure = errors.expected_failure(cause) or Failed(errors.save_traceback(cause))
        self.exit(return_code=1)


def run_app(
    source: ScreenSource, config: Config, *, mouse: bool, on_start: Callable[[], None] | None = None
) -> int:
    """Runs the app; returns the exit status. Raises Failed if the app failed or had nothing to
    show. Holds signals that end perftop until the app handles them, so that the terminal is always
    restored. `on_start`: called once signals are held."""
    app = PerfTopApp(source, config, ascii_=not supports_unicode())
    check_loop()  # checked first, so that a failure occurs before the app takes over the terminal
    app.restore_theme()
    hold_signals()
    if on_start is not None:
        on_start()
    with drawing_on_stdout():
        run_loop(app.run_async, mouse=mouse)
    if message := source.end_recording():
        errors.print_error(message)
    if app.failure is not None and app.failure.status:
        raise app.failure
    return app.return_code or 0


# --- The driver of the terminal, which may vanish or block at any moment.
#
# If the terminal vanishes, Textual's own driver reads from it in a busy loop. Its writing thread
# dies, and the app waits forever once the queue to this thread is full. This driver discards text
# for a vanished terminal, and sends SIGHUP to perftop, as the kernel does to the first process on a
# terminal that vanishes.
#
# Textual's reading thread wakes up ten times a second, and each wake-up costs more than 10 % of a
# refresh. This driver's reading thread sleeps until a key is pressed. Waking up the writing thread
# costs 5 % of a refresh, so this driver gives it only the text that the terminal does not accept
# immediately.

CANCEL_SEQUENCE = b"\x18"
"""Character that ends an incomplete escape sequence."""
POLL_S = 0.05
"""Seconds between two attempts to write to a terminal that blocks."""
MAX_QUEUED_TEXTS = 2
"""Maximum number of texts (a refresh has a few) queued for a slow terminal. The response to a key
waits for them; with Textual's limit of 30, that can take half a minute."""
MAX_END_WAIT_S = 1.0
"""Maximum time in s for which perftop waits for a blocked terminal when it ends."""
ESCAPE_CHECK_S = 0.1
"""Seconds between two checks for the rest of a sequence that begins with Esc. If the rest does not
arrive, the user has pressed the Esc key."""


class TerminalDriver(LinuxDriver):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        screen = self._file
        self._is_lost = threading.Event()
        self._wait_left_s = float("inf")
        """Seconds for which perftop may still wait for the terminal. Only waits count: if the app
        needs a second to start after a signal, it can still restore the terminal."""
        if END_REQUEST.age_s():  # a signal arrived before there was a driver
            self.limit_wait()
        self._file: Any = _TerminalFile(screen.fileno(), screen.encoding, self._report_hangup)
        self.exit_event: _EndEvent = _EndEvent(self.fileno, self._report_hangup)

    def limit_wait(self) -> None:
        """Limits the wait for the terminal, because perftop is ending."""
        self._wait_left_s = min(self._wait_left_s, MAX_END_WAIT_S)

    def is_writing(self) -> bool:
        return bool(self._file.is_writing())

    def discard_output(self) -> None:
        """Discards text that the terminal has not yet accepted, because the screen closes."""
        self._file.discard_output()

    def start_application_mode(self) -> None:
        super().start_application_mode()  # type: ignore[no-untyped-call]
        if self._writer_thread is None:  # the terminal has vanished already
            self._report_hangup()
        else:
            self._writer_thread._queue.maxsize = MAX_QUEUED_TEXTS  # noqa: SLF001

    # These two signal handlers may interrupt a write. If they wrote themselves, they would wait
    # forever for the lock that the interrupted write holds. The event loop writes instead.

    def _sigtstp_application(self, *_: object) -> None:
        self._call_in_loop(super()._sigtstp_application)

    def _sigcont_application(self, *_: object) -> None:
        self._call_in_loop(self._resume)

    def _call_in_loop(self, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the event loop may have ended
            self._loop.call_soon_threadsafe(callback)

    def _resume(self) -> None:
        """Resumes after a stop. After SIGSTOP, unlike Ctrl-Z, the reading and the writing thread
        still exist, and must end before new ones start. An app that is ending must not start new
        threads, because nothing would end them."""
        if self._app._exit:  # noqa: SLF001
            return
        if not self._must_signal_resume:
            self.suspend_application_mode()
        super()._sigcont_application()

    def run_input_thread(self) -> None:
        """Posts events for typed input until the app ends. Then discards input that arrives within
        ESCAPE_CHECK_S, so that the shell does not get it."""
        parser, decode = XTermParser(self._debug), getincrementaldecoder("utf-8")("replace").decode
        while not self.exit_event.is_set():
            in_sequence = parser._timeout_time is not None  # noqa: SLF001
            typed_bytes = b""
            if self.exit_event.wait_for_input(ESCAPE_CHECK_S if in_sequence else None):
                with suppress(OSError):  # the terminal may have just vanished
                    typed_bytes = os.read(self.fileno, 4096)
            if text := decode(typed_bytes):  # '', as for half a character, would end the parser
                for event in parser.feed(text):
                    self.process_message(event)
            for event in parser.tick():
                self.process_message(event)
        if select.select([self.fileno], [], [], ESCAPE_CHECK_S)[0]:
            with suppress(OSError):
                os.read(self.fileno, 4096)

    def write(self, data: str | None) -> None:
        """Writes `data`; waits if the terminal is slow. None ends the writing thread."""
        writer = self._writer_thread
        if writer is None or self._is_lost.is_set():
            return
        rest = data if data is None else self._file.write_now(data)
        queue: Any = writer._queue  # noqa: SLF001
        while rest != b"" and self._may_wait():
            with suppress(Full):
                queue.put(rest, timeout=POLL_S)
                return
            self._wait_left_s -= POLL_S

    def close(self) -> None:
        self.write(None)
        writer = self._writer_thread
        while writer is not None and writer.is_alive() and self._may_wait():
            writer.join(POLL_S)
            self._wait_left_s -= POLL_S
        self._writer_thread = None  # a second stop must not wait for a thread that has ended

    def _may_wait(self) -> bool:
        return not self._is_lost.is_set() and self._wait_left_s > 0

    def _report_hangup(self) -> None:
        """Sends SIGHUP to perftop once. May be called from any thread, any number of times."""
        if not self._is_lost.is_set():
            self._is_lost.set()
            os.kill(os.getpid(), signal.SIGHUP)


def can_be_resumed() -> bool:
    """Returns whether a shell can resume perftop after a stop, that is, whether an ancestor in this
    session belongs to another process group."""
    import psutil  # no other part of the screen needs it, and it takes 1 MB

    with suppress(psutil.Error, OSError):  # processes of other users, such as sudo, may be hidden
        process = psutil.Process()
        while (pid := process.ppid()) > 0:
            if os.getsid(pid) != os.getsid(0):
                return False
            if os.getpgid(pid) != os.getpgrp():
                return True
            process = psutil.Process(pid)
        return False
    return True


class _TerminalFile:
    """The terminal as a file for Textual's writing thread. It has no lock: at exit, the interpreter
    would wait for a thread that holds it."""

    def __init__(self, fd: int, encoding: str, on_vanish: Any) -> None:
        self._fd, self._encoding, self._report_hangup = fd, encoding, on_vanish
        self._nonblocking_fd = -1
        """Second descriptor of the terminal, on which writes do not block; -1 if opening it is not
        allowed, as for a user after su. O_NONBLOCK for `fd` itself would affect other programs that
        share the open file."""
        with suppress(OSError):
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY
            self._nonblocking_fd = os.open(f"/proc/self/fd/{fd}", flags)
            weakref.finalize(self, os.close, self._nonblocking_fd)
        self._queued_count = 0
        """Number of texts that the main thread has passed to the writing thread."""
        self._written_count = 0
        """Number of texts that the writing thread has written or discarded."""
        self._is_cut = False
        """Whether the last text may have been cut within an escape sequence."""
        self._discarded_count = 0
        """Number of queued texts whose unwritten parts must be discarded."""

    def fileno(self) -> int:
        return self._fd

    def is_writing(self) -> bool:
        return self._queued_count != self._written_count

    def discard_output(self) -> None:
        self._is_cut, self._discarded_count = self.is_writing(), self._queued_count

    def write_now(self, text: str) -> bytes:
        """Writes as much as the terminal accepts now, or nothing while the writing thread has text
        to write. Returns the rest, for the writing thread."""
        data = text.encode(self._encoding, "backslashreplace")
        if self._is_cut:
            self._is_cut, data = False, CANCEL_SEQUENCE + data
        if self._nonblocking_fd >= 0 and not self.is_writing():
            try:
                data = data[os.write(self._nonblocking_fd, data) :]
            except BlockingIOError:
                pass
            except OSError:
                self._report_hangup()
                return b""
        self._queued_count += data != b""
        return data

    def write(self, data: bytes) -> None:
        """Writes all of `data`, unless it is discarded. Called by the writing thread."""
        while data and self._discarded_count <= self._written_count:
            try:
                data = data[os.write(self._fd, data[: select.PIPE_BUF]) :]
            except BlockingIOError:  # another program has set O_NONBLOCK on the shared open file
                select.select([], [self._fd], [], POLL_S)
            except OSError:
                self._report_hangup()
                break
        self._written_count += 1

    def flush(self) -> None:
        """Does nothing, because nothing is buffered."""


class _EndEvent(threading.Event):
    """The event that ends the reading thread. A vanished terminal counts as set, too."""

    def __init__(self, fd: int, on_vanish: Any) -> None:
        super().__init__()
        self._fd, self._report_hangup = fd, on_vanish
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        """An eventfd that is readable while the event is set, to wake up the reading thread."""
        weakref.finalize(self, os.close, self._wake_fd)
        self._poll = select.poll()
        """Used only by the reading thread, because two threads must not share a poll object."""
        self._poll.register(fd, select.POLLIN)
        self._poll.register(self._wake_fd, select.POLLIN)

    def set(self) -> None:
        super().set()
        os.eventfd_write(self._wake_fd, 1)

    def clear(self) -> None:
        super().clear()
        with suppress(BlockingIOError):
            os.eventfd_read(self._wake_fd)

    def is_set(self) -> bool:
        if super().is_set():
            return True
        poll = select.poll()
        poll.register(self._fd, select.POLLHUP)
        hung_up = any(flags & select.POLLHUP for _, flags in poll.poll(0))
        if hung_up:
            self._report_hangup()
        return hung_up

    def wait_for_input(self, seconds: float | None) -> bool:
        """Waits for input, the event or the loss of the terminal, at most this long; None: without
        limit. Returns whether there is input."""
        ready_fds = self._poll.poll(None if seconds is None else 1000 * seconds)
        return (self._fd, select.POLLIN) in ready_fds


@contextmanager
def drawing_on_stdout() -> Iterator[None]:
    """Makes Textual draw on the terminal of stdout if stderr is not a terminal, as with `2>file`.
    Textual draws on `sys.__stderr__`, which is therefore replaced while the app runs. Messages are
    still written to `sys.stderr`, which the user has redirected."""
    stderr, terminal = sys.__stderr__, sys.__stdout__
    if terminal is None or not terminal.isatty() or (stderr is not None and stderr.isatty()):
        yield
        return
    fd, encoding = terminal.fileno(), terminal.encoding
    # With stderr's error handler, a character that cannot be encoded does not end the app.
    with open(fd, "w", encoding=encoding, errors="backslashreplace", closefd=False) as screen:
        sys.__stderr__ = screen  # type: ignore[misc]
        try:
            yield
        finally:
            sys.__stderr__ = stderr  # type: ignore[misc]
