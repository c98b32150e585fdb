"""The terminal app. It shows the screen of a source: a stream, a recording, a command, a fleet, or
two recordings. The app has what all screens share: themes, the user's key bindings, and how keys,
signals and bugs end perftop."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from textual import events
from textual.app import App
from textual.binding import BindingType
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.screen import Screen
from textual.widget import Widget

from perftop.base import errors
from perftop.base.errors import Failed
from perftop.base.files import make_directory, read_own_file, replace, user_directory
from perftop.draw import theme
from perftop.process.signals import END_SIGNALS, check_loop, on_signal
from perftop.tui.config import Config
from perftop.tui.shared import keys
from perftop.tui.terminal import Terminal, can_be_resumed, drawing_on_stdout

MAX_THEME_BYTES = 100
"""Maximum size of the file with the chosen theme, in bytes."""


class Source:
    """What the app shows. A key with the action `source('NAME')` works on every screen of a source
    that has a method NAME; for other sources, it does nothing and is not listed."""

    app: PerfTopApp

    def make_screen(self) -> Screen[Any]:
        """Returns the main screen. Called once, when `app` is set."""
        raise NotImplementedError

    async def feed(self) -> None:
        """Reads the source until it ends or the app ends."""
        raise NotImplementedError

    def start(self) -> None:
        """Called when the event loop runs, before the screen is mounted."""

    def ready(self) -> None:
        """Called when the main screen is mounted."""

    def say(self, notice: str) -> None:
        """Shows a message until the user presses a key or some seconds have passed."""

    def key_unknown(self, key: str) -> None:
        """Called when a key was pressed that has no action on the main screen."""

    def notice_read(self) -> None:
        """Called when the user has pressed a key on the main screen, and so has read the notice."""

    # --- shutdown

    def handles(self, number: signal.Signals) -> bool:  # noqa: ARG002 - for overrides
        """Handles a signal or Ctrl-C. Returns False if the signal is to end the app."""
        return False

    def leave(self) -> None:
        """Called when the app ends."""

    def end_recording(self) -> str:
        """Ends a recording. Returns the message to print to stderr once the screen has closed; ''
        if there is none."""
        return ""


class PerfTopApp(App[None]):
    TITLE = "perftop"
    CSS_PATH = "perftop.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings("app", "replay")]

    def __init__(
        self, source: Source, config: Config | None = None, *, ascii_: bool = False
    ) -> None:
        super().__init__()
        self.config, self.ascii = config or Config(), ascii_
        self.source = source
        source.app = self
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
        # On a terminal with 16 colours, the default theme is the one made of these colours.
        themes, name = theme.names(no_color=self.no_color), self.config.theme
        if name == Config().theme and self.console.color_system == "standard":
            name = "perftop-ansi"
        self.theme = name if name in themes else themes[0]
        self._theme_file: Path | None = None
        """The file that stores the theme chosen last; None: it is not stored."""
        self.animation_level = "none"
        self.set_keymap(self.config.keys)
        self._key_targets: WeakKeyDictionary[events.Key, Widget | None] = WeakKeyDictionary()
        """The widget to which each key was forwarded."""

    def get_default_screen(self) -> Screen[Any]:
        return self.source.make_screen()

    def keep_theme(self) -> None:
        """Shows the theme that the user has chosen last, unless the config file names one, and
        stores the theme from now on."""
        self._theme_file = user_directory("STATE", "~/.local/state") / "perftop" / "theme"
        stored = read_own_file(self._theme_file, MAX_THEME_BYTES) or b""
        name = stored.decode(errors="replace").strip()
        if self.config.theme == Config().theme and name in theme.names(no_color=self.no_color):
            self.theme = name

    def get_driver_class(self) -> type[Driver]:
        driver = super().get_driver_class()
        return Terminal if driver is LinuxDriver else driver

    def hold_signals(self) -> None:
        """Lets signals of ENDS wait until there is an event loop: an exception of their handlers
        would leave half of one. Called before the loop is made."""

        def hold(number: int, _: object) -> None:
            self.early_signals.append(signal.Signals(number))

        for number in END_SIGNALS:
            if callable(signal.getsignal(number)):
                signal.signal(number, hold)

    def on_load(self) -> None:
        self.source.start()
        self.run_worker(self.source.feed(), exclusive=True)
        on_signal(END_SIGNALS, self._on_signal, self._hurry)
        for number in self.early_signals:
            self._on_signal(number)

    def on_ready(self) -> None:
        self.source.ready()
        self._up = True
        if self._left is not None:
            self.leave(self._left)

    def post_display_hook(self) -> None:
        self.displays += 1

    # --- keys

    async def on_event(self, event: events.Event) -> None:
        """Drops input that arrives after the app has quit, because no screen is left to handle
        it."""
        if isinstance(event, events.InputEvent) and (self._exit or not self.screen_stack):
            return
        if isinstance(event, events.Key | events.MouseDown) and len(self.screen_stack) == 1:
            self.source.notice_read()  # a notice covered by another screen has not been read yet
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
        elif event.key not in self.screen.active_bindings and len(self.screen_stack) == 1:
            self.source.key_unknown(event.key)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        exists = action != "source" or hasattr(self.source, str(parameters[0]))
        return exists and super().check_action(action, parameters)

    def action_source(self, name: str, *arguments: int) -> object:
        """Calls this method of the source; Textual awaits the result."""
        return getattr(self.source, name)(*arguments)

    def action_redraw(self) -> None:
        """Draws every line; a normal refresh only writes the parts that have changed."""
        self.screen.refresh()

    def action_suspend_process(self) -> None:
        if can_be_resumed():
            super().action_suspend_process()
        else:
            self.source.say("no shell could resume perftop: not suspended")

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

    # --- shutdown

    def action_interrupt(self) -> None:
        if not self.source.handles(signal.SIGINT):
            self.exit()

    def exit(self, *results: Any, **more: Any) -> None:
        self.source.leave()
        super().exit(*results, **more)

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

    def _on_signal(self, number: signal.Signals) -> None:
        """Ends the app as `q` does: the terminal is restored and the probe is stopped. SIGINT ends
        it only if the source does not handle it."""
        if not self.source.handles(number) or number != signal.SIGINT:
            self.leave(128 + number)

    def _handle_exception(self, error: Exception) -> None:
        """Handles an error: restores the terminal and prints why. For a bug in perftop it writes a
        report, and prints its path."""
        if self.is_headless:  # tests need the exception itself
            super()._handle_exception(error)
            return
        if not self._crashed:  # later errors are usually consequences of the first
            self._crashed = True
            self.failure = errors.expected_failure(error) or Failed(errors.save_traceback(error))
        self.exit(return_code=1)

    def crash(self, error: Exception) -> None:
        """Handles a bug in a task that is not one of the app's workers."""
        self._handle_exception(error)


def run_app(app: PerfTopApp, *, mouse: bool, on_start: Callable[[], None] = lambda: None) -> int:
    """Runs the app; returns the exit status. Raises Failed if the app failed or had nothing to
    show. `on_start` is called when no signal can end perftop any more without the app, which
    restores the terminal."""
    check_loop()
    app.keep_theme()
    app.hold_signals()
    on_start()
    with drawing_on_stdout():
        app.run(mouse=mouse)
    if message := app.source.end_recording():
        errors.print_error(message)
    if app.failure is not None and app.failure.status:
        raise app.failure
    return app.return_code or 0
