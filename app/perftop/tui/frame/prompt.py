"""A line to type into, above the last line of the screen: its purpose, the text, and in words the
text's result or error. It is visible only while it is in use."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.highlighter import Highlighter
from rich.segment import Segment
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
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

    def __init__(self, done: Callable[[], object], *, ascii_: bool) -> None:
        """`done`: is called when the prompt has closed."""
        super().__init__()
        self._done, self._ascii = done, ascii_
        self._error = _Underline()
        self._label = Static(markup=False, id="prompt-label")
        self._input = _OneLine(
            highlighter=self._error, max_length=MAX_LENGTH, select_on_focus=False, compact=True
        )
        self._input.cursor_blink = False  # nothing in perftop blinks
        self._words = Static(markup=False, id="prompt-words")
        self._explained: tuple[str, int | None] = "", None
        self._asked = ""
        """The label of the current question, or of the last one."""
        self._meaning: Callable[[str], str]
        self._accept: Callable[[str], None]
        self._undo: Callable[[], None]

    def compose(self) -> ComposeResult:
        yield self._label
        yield self._input
        yield self._words

    def ask(
        self, label: str, hint: str, preview: Callable[[str], str], *,
        accept: Callable[[str], None] = lambda _: None, leave: Callable[[], None] = lambda: None,
        text: str = "",
    ) -> None:  # fmt: skip
        """Opens the prompt with this text; `hint` is shown while it is empty. `preview` is called
        with each text and returns what it means; it raises ValueError with one line for the user,
        and perhaps `at`, the character at which the error begins. `accept` is called with a valid
        text and Enter, `leave` with Esc."""
        self._asked, self._meaning, self._accept, self._undo = label, preview, accept, leave
        self._label.update(label)
        self._input.value = text
        self._input.cursor_position = len(text)
        self._input.placeholder = plain(hint) if self._ascii else hint
        self.explain("")
        self.display = True
        if text:
            self._preview(text)
        self._input.focus()

    def asks(self, label: str) -> bool:
        """Whether the prompt is open with this question."""
        return self.display and self._asked == label

    @property
    def wrong(self) -> bool:
        return self._error.at is not None

    def _preview(self, text: str) -> bool:
        """Shows what the text means, or what is wrong with it. Returns whether it is valid."""
        try:
            self.explain(self._meaning(text))
        except ValueError as error:
            self.explain(str(error) if text else "", getattr(error, "at", 0))
        return not self.wrong

    def explain(self, words: str, wrong_at: int | None = None) -> None:
        """Shows what the text means, or its error and the character at which the error begins."""
        if (words, wrong_at) == self._explained:
            return
        self._explained = words, wrong_at
        shown = foreign(words)
        self._words.update(plain(shown) if self._ascii else shown)
        self._words.set_class(wrong_at is not None, "-wrong")
        self._error.at = wrong_at
        self._input.refresh()

    def leave(self) -> None:
        """Closes the prompt; all stays as it was before the question."""
        self.display = False
        self._undo()
        self._done()

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width < MIN_BESIDE, "-narrow")

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.display:  # an event from before Esc may arrive after it
            self._preview(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if self.display and self._preview(event.value):
            self.display = False
            self._done()
            self._accept(event.value)

    def on_descendant_blur(self) -> None:
        """A click elsewhere takes effect, but the focus returns to the prompt."""
        if self.display and self.screen.focused is not None:
            self._input.focus()

    def action_leave(self) -> None:
        self.leave()

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


class _Underline(Highlighter):
    """Underlines the text from the first character that cannot be parsed."""

    at: int | None = None

    def highlight(self, text: Text) -> None:
        if self.at is not None:
            text.stylize("underline", self.at)
