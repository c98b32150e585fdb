"""The base class of the terminal apps, and the driver of the terminal, which may vanish or block at
any moment.

If the terminal vanishes, Textual's own driver would read from it in a busy loop. Its writing thread
would die, and the app would wait for that thread forever once the queue to the thread is full. This
driver drops text for a vanished terminal, and sends SIGHUP to perftop, as the kernel does to the
first process on a terminal that vanishes.

Textual's reading thread wakes up ten times a second, and each wake-up costs more than a tenth of a
refresh. This driver's reading thread sleeps until a key is pressed. Waking the writing thread costs
a twentieth of a refresh, so that thread only gets text that the terminal does not accept
immediately.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import weakref
from codecs import getincrementaldecoder
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Full
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from textual import events
from textual._xterm_parser import XTermParser
from textual.app import App, ComposeResult
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.screen import Screen
from textual.widget import Widget

from perftop.base import errors
from perftop.base.errors import Failed
from perftop.base.files import make_directory, own_content, replace, user_directory
from perftop.draw import theme
from perftop.process.signals import ENDS, check_loop, on_signal
from perftop.tui.config import Config
from perftop.tui.shared.canvas import PageWidget
from perftop.tui.shared.paint import DirectScreen

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.drivers._writer_thread import WriterThread

POLL_S = 0.05
"""Seconds between two attempts to write to a terminal that blocks."""
MAX_QUEUED = 2
"""Maximum number of texts queued for a slow terminal; a refresh is one text or a few. The response
to a key is written after the queued texts; with Textual's limit of 30, that may take half a
minute."""
MAX_THEME_BYTES = 100
"""Maximum size of the file with the chosen theme, in bytes."""
MAX_END_S = 1.0
"""Maximum seconds to wait for a terminal that blocks, in all, once perftop is to end."""
TICK_S = 0.1
"""Seconds between two checks of whether a sequence that began with Esc continues. If the sequence
does not continue for some time, the user has pressed the Esc key."""


class Terminal(LinuxDriver):
    _writer_thread: WriterThread | None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        screen = self._file
        self._is_lost = threading.Event()
        self._patience_s = float("inf")
        """Seconds for which perftop still waits for the terminal. Only waiting counts: if the start
        takes a second after a signal, the text that restores the terminal is written still."""
        self._file: Any = _Output(screen.fileno(), screen.encoding, self._report_loss)
        self.exit_event: _EndEvent = _EndEvent(self.fileno, self._report_loss)

    def hurry(self) -> None:
        """Limits the wait for the terminal. Called by a signal handler when perftop is to end."""
        self._patience_s = min(self._patience_s, MAX_END_S)

    def start_application_mode(self) -> None:
        super().start_application_mode()  # type: ignore[no-untyped-call]
        if self._writer_thread is None:  # the terminal has vanished already
            self._report_loss()
        else:
            self._writer_thread._queue.maxsize = MAX_QUEUED  # noqa: SLF001

    # These two signal handlers may have interrupted a write. A write in a handler would wait
    # forever for the lock that the interrupted write holds, so the event loop does the work.

    def _sigtstp_application(self, *_: object) -> None:
        self._call_in_loop(super()._sigtstp_application)

    def _sigcont_application(self, *_: object) -> None:
        self._call_in_loop(self._resume)

    def _call_in_loop(self, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the event loop may have ended
            self._loop.call_soon_threadsafe(callback)

    def _resume(self) -> None:
        """Resumes after a stop. SIGSTOP, unlike Ctrl-Z, leaves the reading and the writing thread
        in place; with a second pair of threads, perftop would neither end nor restore the terminal.
        An app that is ending must not start new threads either, because nothing would end them."""
        if self._app._exit:  # noqa: SLF001
            return
        if not self._must_signal_resume:
            self.suspend_application_mode()
        super()._sigcont_application()

    def run_input_thread(self) -> None:
        """Posts events for typed input until the app ends. Also reads, and drops, input that
        arrives within TICK_S after the end, so that the shell does not get that input."""
        parser, decode = XTermParser(self._debug), getincrementaldecoder("utf-8")("replace").decode
        while not self.exit_event.is_set():
            in_sequence = parser._timeout_time is not None  # noqa: SLF001
            typed_bytes = b""
            if self.exit_event.input_comes(TICK_S if in_sequence else None):
                with suppress(OSError):  # the terminal may have just vanished
                    typed_bytes = os.read(self.fileno, 4096)
            if text := decode(typed_bytes):  # '' after a partial character; '' would end the parser
                for event in parser.feed(text):
                    self.process_message(event)
            for event in parser.tick():
                self.process_message(event)
        if select.select([self.fileno], [], [], TICK_S)[0]:
            with suppress(OSError):
                os.read(self.fileno, 4096)

    def write(self, data: str | None) -> None:
        """Writes `data`, and waits while the terminal is slow. None ends the writing thread."""
        writer = self._writer_thread
        if writer is None or self._is_lost.is_set():
            return
        unwritten = data if data is None else self._file.write_now(data)
        queue: Any = writer._queue  # noqa: SLF001
        while unwritten != b"" and self._may_wait():
            with suppress(Full):
                queue.put(unwritten, timeout=POLL_S)
                return
            self._patience_s -= POLL_S

    def close(self) -> None:
        self.write(None)
        writer = self._writer_thread
        while writer is not None and writer.is_alive() and self._may_wait():
            writer.join(POLL_S)
            self._patience_s -= POLL_S
        self._writer_thread = None  # a second stop would wait for a thread that reads no text

    def _may_wait(self) -> bool:
        return not self._is_lost.is_set() and self._patience_s > 0

    def _report_loss(self) -> None:
        """Sends SIGHUP to perftop once. May be called from any thread, any number of times."""
        if not self._is_lost.is_set():
            self._is_lost.set()
            os.kill(os.getpid(), signal.SIGHUP)


class _Output:
    """The terminal as the file to which Textual's writing thread writes. It holds no lock for which
    the interpreter would wait at its end."""

    def __init__(self, fd: int, encoding: str, on_vanish: Any) -> None:
        self._fd, self._encoding, self._report_loss = fd, encoding, on_vanish
        self._nonblocking = _opened_again(fd)
        """File descriptor of the terminal, opened a second time without blocking; -1 if that
        failed."""
        if self._nonblocking >= 0:
            weakref.finalize(self, os.close, self._nonblocking)
        self._waiting = self._written = 0
        """Number of texts given to the writing thread, counted by the main thread; and number of
        texts that the writing thread has written, counted by that thread."""

    def fileno(self) -> int:
        return self._fd

    def write_now(self, text: str) -> bytes:
        """Writes as much as the terminal accepts now, and returns the rest for the writing thread.
        Writes nothing while the writing thread still has text to write."""
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
        """Writes all of `data`. Called by the writing thread."""
        self._write(data)
        self._written += 1

    def _write(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:  # another program has set O_NONBLOCK on the shared open file
                select.select([], [self._fd], [], POLL_S)
            except OSError:
                self._report_loss()
                return

    def flush(self) -> None:
        """Does nothing, because nothing is buffered."""


def _opened_again(fd: int) -> int:
    """Opens the file behind `fd` a second time, without blocking. Setting the flag on `fd` itself
    would affect other programs, which have inherited the open file. Returns the new descriptor, or
    -1 if opening is not allowed, as for a user after su."""
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return -1


class _EndEvent(threading.Event):
    """The event that ends the reading thread, which checks the event before each read. The event
    also counts as set once the terminal has vanished."""

    def __init__(self, fd: int, on_vanish: Any) -> None:
        super().__init__()
        self._fd, self._report_loss = fd, on_vanish
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        """An eventfd that is readable while the event is set; it wakes up a sleeping thread."""
        weakref.finalize(self, os.close, self._wake)
        self._all = select.poll()
        """The poll object of the reading thread; two threads must not use one poll object."""
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
        """Waits at most this long for input, the event or the loss of the terminal; None: without
        limit. Returns whether there is input."""
        ready = self._all.poll(None if seconds is None else 1000 * seconds)
        return (self._fd, select.POLLIN) in ready


# --- the app: themes, the user's key bindings, and how signals and bugs end it


class TerminalApp(App[None]):
    CSS_PATH = "perftop.tcss"
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.failure: Failed | None = None
        """Why no new data can be shown; None if there was no failure."""
        self._up = self._crashed = False
        self.early_signals: list[signal.Signals] = []
        """Signals of ENDS that arrived while the event loop was being made."""
        self._left: int | None = None
        """Exit status if the app is to end; None: the app continues."""
        self.displays = 0
        """Number of times that the app has drawn on the terminal."""
        for shade in theme.THEMES:
            self.register_theme(shade)
        self.theme = self._first_theme(config.theme)
        self._is_usual_theme = config.theme == Config().theme
        self._theme_file: Path | None = None
        """The file that stores the theme chosen last; None: it is not stored."""
        self.animation_level = "none"
        self.set_keymap(config.keys)
        self._key_targets: WeakKeyDictionary[events.Key, Widget | None] = WeakKeyDictionary()
        """The widget to which each key was forwarded."""

    def _first_theme(self, theme_name: str) -> str:
        """Returns the theme for the start. On a terminal with 16 colours, that is the theme made of
        these colours, unless the user has chosen another theme."""
        themes = theme.names(no_color=self.no_color)
        if theme_name == Config().theme and self.console.color_system == "standard":
            theme_name = "perftop-ansi"
        return theme_name if theme_name in themes else themes[0]

    def keep_theme(self) -> None:
        """Shows the theme that the user has chosen last, unless the config file names one, and
        stores the theme from now on."""
        self._theme_file = user_directory("STATE", "~/.local/state") / "perftop" / "theme"
        stored = own_content(self._theme_file, MAX_THEME_BYTES) or b""
        name = stored.decode(errors="replace").strip()
        if self._is_usual_theme and name in theme.names(no_color=self.no_color):
            self.theme = name

    def get_driver_class(self) -> type[Driver]:
        driver = super().get_driver_class()
        return Terminal if driver is LinuxDriver else driver

    # Textual calls these two methods after the methods of the same name in a derived class.

    def hold_signals(self) -> None:
        """Lets signals of ENDS wait until there is an event loop: an exception of their handlers
        would leave half of one. Called before the loop is made."""

        def hold(number: int, _: object) -> None:
            self.early_signals.append(signal.Signals(number))

        for number in ENDS:
            if callable(signal.getsignal(number)):
                signal.signal(number, hold)

    def on_load(self) -> None:
        on_signal(ENDS, self._signalled, self._hurry)
        for number in self.early_signals:
            self._signalled(number)

    def on_ready(self) -> None:
        self._up = True
        if self._left is not None:
            self.leave(self._left)

    def post_display_hook(self) -> None:
        self.displays += 1

    def action_redraw(self) -> None:
        """Draws every line; a normal refresh only writes the parts that have changed."""
        self.screen.refresh()

    async def on_event(self, event: events.Event) -> None:
        """Drops input that arrives after the app has quit, because no screen is left to handle
        it."""
        if self._exit and isinstance(event, events.InputEvent):
            return
        if isinstance(event, events.Key) and not event.is_forwarded:
            self._key_targets[event] = self.focused
        await super().on_event(event)

    async def _on_key(self, event: events.Key) -> None:
        """Forwards a key again if an earlier key has moved the focus since. In pasted text, or over
        a slow link, keys come in one burst: those after `/` belong to the prompt that it opens."""
        focused = self.focused
        if focused is not None and self._key_targets.get(event) is not focused:
            event.prevent_default()
            again = events.Key(event.key, event.character)
            self._key_targets[again] = focused
            focused._forward_event(again)  # noqa: SLF001 - no public name
        elif event.key not in self.screen.active_bindings:
            self.key_unknown(event.key)

    def key_unknown(self, key: str) -> None:
        """Called when a key was pressed that has no action on the visible screen."""

    # --- the end

    def leave(self, status: int) -> None:
        """Ends the app with this exit status. An app that is still starting cannot be ended yet; it
        ends as soon as it has started."""
        self._left = status
        if self._up:
            self.exit(return_code=status)

    def _hurry(self) -> None:
        """Limits the wait for the terminal. Called when a signal arrives, even while the event loop
        waits for the terminal."""
        if isinstance(self._driver, Terminal):
            self._driver.hurry()

    def _signalled(self, number: signal.Signals) -> None:
        """Ends the app as `q` does: the terminal is restored and the probe is stopped."""
        self.leave(128 + number)

    def _handle_exception(self, error: Exception) -> None:
        """Handles an error: restores the terminal and prints why. For a bug in perftop it writes a
        report, and prints its path."""
        if self.is_headless:  # tests need the exception itself
            super()._handle_exception(error)
            return
        if not self._crashed:  # later errors are usually consequences of the first
            self._crashed = True
            self.failure = errors.expected(error) or Failed(errors.report(error))
        self.exit(return_code=1)

    def crash(self, error: Exception) -> None:
        """Handles a bug in a task that is not one of the app's workers."""
        self._handle_exception(error)

    def ended_recording(self) -> str:
        """Ends a recording. Returns the message to print to stderr once the screen has closed; ''
        if there is none."""
        return ""

    # --- keys

    def action_interrupt(self) -> None:
        self.exit()

    def action_theme(self, name: str = "") -> None:
        """Sets this theme, or the next theme if no name is given."""
        names = theme.names(no_color=self.no_color)
        self.theme = name or names[(names.index(self.theme) + 1) % len(names)]
        if self._theme_file is not None:
            with suppress(OSError):
                directory = self._theme_file.parent
                directory.parent.mkdir(parents=True, exist_ok=True)
                make_directory(directory)
                replace(self._theme_file, self.theme.encode())


class PageApp(TerminalApp):
    """An app with a single widget, which fills the screen."""

    page: PageWidget

    def get_default_screen(self) -> Screen[Any]:
        return DirectScreen()

    def compose(self) -> ComposeResult:
        yield self.page


def show(app: TerminalApp, *, mouse: bool, on_start: Callable[[], None] = lambda: None) -> int:
    """Runs the app; returns the exit status. Raises Failed if the app failed or had nothing to
    show. `on_start` is called when no signal can end perftop any more without the app, which
    restores the terminal."""
    check_loop()
    app.keep_theme()
    app.hold_signals()
    on_start()
    with drawing_on_stdout():
        app.run(mouse=mouse)
    if message := app.ended_recording():
        errors.complain(message)
    if app.failure is not None and app.failure.status:
        raise app.failure
    return app.return_code or 0


@contextmanager
def drawing_on_stdout() -> Iterator[None]:
    """Makes Textual draw on the terminal of stdout if stderr is not a terminal, as with `2>file`.
    Textual always draws on `sys.__stderr__`, so `sys.__stderr__` is replaced while the app runs.
    Messages still go to `sys.stderr`, as redirected by the user."""
    stderr, terminal = sys.__stderr__, sys.__stdout__
    if terminal is None or not terminal.isatty() or (stderr is not None and stderr.isatty()):
        yield
        return
    # With stderr's error handler, a character that cannot be encoded does not end the app.
    with open(terminal.fileno(), "w", encoding=terminal.encoding, errors="backslashreplace",
              closefd=False) as screen:  # fmt: skip
        sys.__stderr__ = screen  # type: ignore[misc]
        try:
            yield
        finally:
            sys.__stderr__ = stderr  # type: ignore[misc]
