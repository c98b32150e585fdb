"""A line to type into, above the last line of the screen: its purpose, the text, and in words the
text's result or error. It is visible only while it is in use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rich.highlighter import Highlighter
from rich.segment import Segment
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, Static

from perftop.base.text import plain
from perftop.draw.strips import foreign
from perftop.tui.shared.keys import bindings

MAX_LENGTH = 400
"""Characters accepted; pasted text may be of any length."""
MIN_BESIDE = 110
"""Columns from which the words fit beside the text; on narrower screens they are below it."""


class Prompt(Widget):
    DEFAULT_CSS = """
    Prompt {
        display: none;
        height: 1;
        layout: grid;
        grid-size: 3 1;
        grid-columns: auto 2fr 3fr;
        background: $background;
    }
    Prompt.-narrow {
        height: 2;
        grid-size: 2 2;
        grid-columns: auto 1fr;
    }
    Prompt.-narrow > #prompt-words {
        column-span: 2;
    }
    Prompt > Static {
        height: 1;
        padding: 0 1;
        background: $background;
        text-wrap: nowrap;
        text-overflow: ellipsis;
    }
    Prompt > #prompt-label {
        width: auto;
        color: $primary;
        text-style: bold;
    }
    Prompt > #prompt-words {
        color: $dim;
    }
    Prompt > #prompt-words.-wrong {
        color: $error;
    }
    Prompt > Input, Prompt > Input:focus {
        background: $background;
        background-tint: transparent;
    }
    Prompt > Input > .input--cursor, Prompt > Input:ansi > .input--cursor {
        color: $foreground;
        background: $background;
        text-style: reverse;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings("prompt"),
        Binding("tab,shift+tab", "stay", show=False),  # else Tab changes the view
    ]

    @dataclass(eq=False)
    class Changed(Message):
        text: str

    class Accepted(Changed):
        """Enter was pressed; the prompt stays until it is closed."""

    class Left(Message):
        """Esc was pressed; the prompt has closed."""

    def __init__(self, *, ascii_: bool) -> None:
        super().__init__()
        self._ascii = ascii_
        self._wrong = _Wrong()
        self._label = Static(markup=False, id="prompt-label")
        self._input = _OneLine(
            highlighter=self._wrong, max_length=MAX_LENGTH, select_on_focus=False, compact=True
        )
        self._input.cursor_blink = False  # nothing in perftop blinks
        self._words = Static(markup=False, id="prompt-words")
        self._explained: tuple[str, int | None] = "", None
        self.asked = ""
        """Purpose of the current or last use."""

    def compose(self) -> ComposeResult:
        yield self._label
        yield self._input
        yield self._words

    def ask(self, what: str, text: str = "", hint: str = "") -> None:
        """Opens the prompt with this text; `hint` is shown while the text is empty."""
        self.asked = what
        self._label.update(what)
        self._input.value = text
        self._input.cursor_position = len(text)
        self._input.placeholder = plain(hint) if self._ascii else hint
        self.explain("")
        self.display = True
        self._input.focus()

    def asks(self, what: str) -> bool:
        """Whether the prompt is open for this purpose."""
        return self.display and self.asked == what

    @property
    def wrong(self) -> bool:
        return self._wrong.at is not None

    def explain(self, words: str, wrong_at: int | None = None) -> None:
        """Shows the text's result, or its error and the character at which the error begins."""
        if (words, wrong_at) == self._explained:
            return
        self._explained = words, wrong_at
        shown = foreign(words)
        self._words.update(plain(shown) if self._ascii else shown)
        self._words.set_class(wrong_at is not None, "-wrong")
        self._wrong.at = wrong_at
        self._input.refresh()

    def close(self) -> None:
        self.display = False

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width < MIN_BESIDE, "-narrow")

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.display:  # an event from before Esc may arrive after it
            self.post_message(self.Changed(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if self.display:
            self.post_message(self.Accepted(event.value))

    def on_descendant_blur(self) -> None:
        """A click elsewhere takes effect, but the focus comes back to the prompt."""
        if self.display and self.screen.focused is not None:
            self._input.focus()

    def action_leave(self) -> None:
        self.close()
        self.post_message(self.Left())

    def action_stay(self) -> None:
        pass


class _OneLine(Input):
    """Cuts the placeholder to one line. Textual wraps a long one and emits the line break, which
    on the last row of a terminal scrolls the whole screen."""

    def render_line(self, y: int) -> Strip:
        strip, kept = super().render_line(y), []
        for segment in strip:
            text, broken, _ = segment.text.partition("\n")
            kept.append(Segment(text, segment.style))
            if broken:
                return Strip(kept).adjust_cell_length(self.size.width, self.rich_style)
        return strip


class _Wrong(Highlighter):
    """Underlines the text from the first character that cannot be parsed."""

    at: int | None = None

    def highlight(self, text: Text) -> None:
        if self.at is not None:
            text.stylize("underline", self.at)
