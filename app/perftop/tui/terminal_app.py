"""The base class of the terminal apps: themes, the user's key bindings, and how signals and bugs
end an app."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from textual import events
from textual.app import App, ComposeResult
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.screen import Screen

from perftop.base import errors
from perftop.base.errors import Failed
from perftop.draw import theme
from perftop.process.signals import ENDS, check_loop, on_signal
from perftop.tui.config import Config
from perftop.tui.shared.canvas import PageWidget
from perftop.tui.shared.paint import DirectScreen
from perftop.tui.terminal import Terminal


class TerminalApp(App[None]):
    CSS_PATH = "perftop.tcss"
    ENABLE_COMMAND_PALETTE = False

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.failure: Failed | None = None
        """Why no new data can be shown; None if there was no failure."""
        self._up = self._crashed = False
        self._left: int | None = None
        """Exit status if the app is to end; None: the app continues."""
        self.displays = 0
        """Number of times that the app has drawn on the terminal."""
        for shade in theme.THEMES:
            self.register_theme(shade)
        self.theme = self._first_theme(config.theme)
        self.animation_level = "none"
        self.set_keymap(config.keys)

    def _first_theme(self, chosen: str) -> str:
        """Returns the theme for the start. On a terminal with 16 colours, that is the theme made of
        these colours, unless the user has chosen another theme."""
        themes = theme.names(no_color=self.no_color)
        if chosen == Config().theme and self.console.color_system == "standard":
            chosen = "perftop-ansi"
        return chosen if chosen in themes else themes[0]

    def get_driver_class(self) -> type[Driver]:
        driver = super().get_driver_class()
        return Terminal if driver is LinuxDriver else driver

    # Textual calls these two methods after the methods of the same name in a derived class.

    def on_load(self) -> None:
        on_signal(ENDS, self._signalled, self._hurry)

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
        if not (self._exit and isinstance(event, events.InputEvent)):
            await super().on_event(event)

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


class PageApp(TerminalApp):
    """An app with a single widget, which fills the screen."""

    page: PageWidget

    def get_default_screen(self) -> Screen[Any]:
        return DirectScreen()

    def compose(self) -> ComposeResult:
        yield self.page


def show(app: TerminalApp, *, mouse: bool) -> int:
    """Runs the app; returns the exit status. Raises Failed if the app failed or had nothing to
    show."""
    check_loop()
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
    shown, terminal = sys.__stderr__, sys.__stdout__
    if terminal is None or not terminal.isatty() or (shown is not None and shown.isatty()):
        yield
        return
    # With stderr's error handler, a character that cannot be encoded does not end the app.
    with open(terminal.fileno(), "w", encoding=terminal.encoding, errors="backslashreplace",
              closefd=False) as screen:  # fmt: skip
        sys.__stderr__ = screen  # type: ignore[misc]
        try:
            yield
        finally:
            sys.__stderr__ = shown  # type: ignore[misc]
