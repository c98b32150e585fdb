"""A line to type into, above the last line of the screen. It shows a label, the typed text, and an
explanation of the text or its error. It is visible only while in use."""

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

from perftop.base.text import to_ascii
from perftop.draw.strips import safe_cells
from perftop.tui.shared.keys import bindings

MAX_LENGTH = 400
"""Maximum characters of the text; longer pasted text is cut."""
MIN_WIDTH_FOR_EXPLANATION = 110
"""Minimum columns of the screen for the explanation beside the text; on narrower screens the
explanation is below the text."""


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
        Binding("tab,shift+tab", "stay", show=False),  # without this, Tab would change the view
    ]

    def __init__(self, done: Callable[[], object], *, ascii_: bool) -> None:
        """`done`: called when the prompt has closed."""
        super().__init__()
        self._on_close, self._ascii = done, ascii_
        self._error = _ErrorUnderline()
        self._label = Static(markup=False, id="prompt-label")
        self._input = _OneLineInput(
            highlighter=self._error, max_length=MAX_LENGTH, select_on_focus=False, compact=True
        )
        self._input.cursor_blink = False  # nothing in perftop blinks
        self._words = Static(markup=False, id="prompt-words")
        self._explanation: tuple[str, int | None] = "", None
        self._asked_label = ""
        """The label of the current question, or of the last question."""
        self._explain_text: Callable[[str], str]
        self._accept: Callable[[str], None]
        self._undo_question: Callable[[], None]

    def compose(self) -> ComposeResult:
        yield self._label
        yield self._input
        yield self._words

    def ask(
        self, label: str, hint: str, preview: Callable[[str], str], *,
        accept: Callable[[str], None] = lambda _: None, leave: Callable[[], None] = lambda: None,
        text: str = "",
    ) -> None:  # fmt: skip
        """Opens the prompt with this text; `hint` is shown while the text is empty. `preview` is
        called with each new text and returns its explanation. It raises ValueError with a message
        of one line for an invalid text; the error may have an attribute `at`, the index of the
        first wrong character. `accept` is called with the text when the user presses Enter and the
        text is valid, `leave` when the user presses Esc."""
        self._asked_label, self._explain_text = label, preview
        self._accept, self._undo_question = accept, leave
        self._label.update(label)
        self._input.value = text
        self._input.cursor_position = len(text)
        self._input.placeholder = to_ascii(hint) if self._ascii else hint
        self.explain("")
        self.display = True
        if text:
            self._preview(text)
        self.screen.set_focus(self._input)  # `focus` would act after the next keys

    def asks(self, label: str) -> bool:
        """Returns whether the prompt is open and has this label."""
        return self.display and self._asked_label == label

    @property
    def wrong(self) -> bool:
        return self._error.at is not None

    def _preview(self, text: str) -> bool:
        """Shows the explanation of the text, or its error. Returns whether the text is valid."""
        try:
            self.explain(self._explain_text(text))
        except ValueError as error:
            self.explain(str(error) if text else "", getattr(error, "at", 0))
        return not self.wrong

    def explain(self, words: str, wrong_at: int | None = None) -> None:
        """Shows an explanation of the text, or its error, which begins at character `wrong_at`."""
        if (words, wrong_at) == self._explanation:
            return
        self._explanation = words, wrong_at
        shown = safe_cells(words)
        self._words.update(to_ascii(shown) if self._ascii else shown)
        self._words.set_class(wrong_at is not None, "-wrong")
        self._error.at = wrong_at
        self._input.refresh()

    def leave(self) -> None:
        """Closes the prompt and restores the state from before the question."""
        self.display = False
        self._undo_question()
        self._on_close()

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width < MIN_WIDTH_FOR_EXPLANATION, "-narrow")

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.display:  # an event sent before Esc may arrive after the prompt has closed
            self._preview(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if self.display and self._preview(event.value):
            self.display = False
            self._on_close()
            self._accept(event.value)

    def on_descendant_blur(self) -> None:
        """Returns the focus to the prompt after a click elsewhere; the click itself takes
        effect."""
        if self.display and self.screen.focused is not None:
            self._input.focus()

    def action_leave(self) -> None:
        self.leave()

    def action_stay(self) -> None:
        pass


class _OneLineInput(Input):
    """An input whose placeholder is cut to one line. Textual wraps a long placeholder and writes
    the line break, which on the last row of a terminal scrolls the whole screen."""

    def render_line(self, y: int) -> Strip:
        strip, segments = super().render_line(y), []
        for segment in strip:
            text, broken, _ = segment.text.partition("\n")
            segments.append(Segment(text, segment.style))
            if broken:
                return Strip(segments).adjust_cell_length(self.size.width, self.rich_style)
        return strip


class _ErrorUnderline(Highlighter):
    """A highlighter that underlines the text from the first character that cannot be parsed."""

    at: int | None = None

    def highlight(self, text: Text) -> None:
        if self.at is not None:
            text.stylize("underline", self.at)
