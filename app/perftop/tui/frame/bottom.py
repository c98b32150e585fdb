"""The lines below the view: the metrics that this source cannot count, the prompt, and the line of
keys, which is the last line of the screen. This module also defines the screens with a prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from rich.segment import Segment
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, Static

from perftop.base.text import fit, join_words, to_ascii
from perftop.draw.columns import Run
from perftop.draw.strips import BLANK, Line, safe_cells, width
from perftop.session.values import LISTED_NAMES, lasting_reasons, names_by_reason
from perftop.tui.frame import top
from perftop.tui.frame.top import FrameLines, ScreenState
from perftop.tui.shared import canvas
from perftop.tui.shared.canvas import PageWidget
from perftop.tui.shared.keys import KEYS, KEYS_BY_ID, VIEW_ORDER, bindings
from perftop.tui.shared.paint import DirectScreen, is_ascii

if TYPE_CHECKING:
    from perftop.session.session import Session

_LABELS = {key.id: key.label for key in KEYS}
KeyEntry = tuple[str, ...]
"""The id of a key, or the ids of two keys with opposite effects, which share a label."""
_ENTRY_GROUPS: tuple[tuple[KeyEntry, ...], ...] = (
    (("back",), ("open",), ("core_up", "core_down"), ("heat_worst",), ("heat_zoom",), ("fold",),
     ("try",), ("why",), ("output",)),
    (("pause",), ("slower", "faster"), ("step_back", "step_on"), ("next_episode",),
     ("previous_episode",), ("narrower", "wider"), ("jump",), ("shorter", "longer"),
     ("begin", "finish")),
    (("clear",), ("filter",), ("sort",), ("sort_next",), ("metric",), ("columns",), ("order",),
     ("reverse",), ("units",)),
    (("mark",), ("record",), ("theme",)),
)  # fmt: skip
"""Groups of keys, in display order: keys that move the cursor or open views, keys for time, keys
that select and sort, and keys that record or change settings."""
_LIVE_ORDER = ("pause", "next_episode", "sort", "filter", "wider", "mark", "record", "jump",
               "order", "longer", "theme")  # fmt: skip
_REPLAY_ORDER = ("pause", "faster", "step_on", "next_episode", "jump", "finish", "filter", "sort",
                 "wider", "order", "mark", "longer", "theme")  # fmt: skip
"""The keys that all views have, most important first, in a live session and in a recording. If two
keys share a label, the second is listed."""
_ROW_KEYS = frozenset({"sort", "order", "filter"})
"""Ids of keys that have no effect on the page of a core."""
_PAIR_LABELS = {"faster": "speed", "step_on": "step", "finish": "ends", "wider": "window"}
"""The label that two keys share, by the id of the second key."""
FIRST_HINTS, FIRST_COMMON_KEYS = 1, 4
"""The order of importance in a live session: the first FIRST_HINTS keys of the view, or more if
more must be shown; the first FIRST_COMMON_KEYS keys that all views have; the other keys of the
view; all other keys. In a recording, all keys of the view come after the FIRST_COMMON_KEYS."""
GAP, GROUP_GAP = 2, 3
"""Cells between two keys, and between two groups of keys."""


class KeyPiece(NamedTuple):
    """A part of the line of keys, and the id of the key that a click on this part presses."""

    text: str
    style: str
    key: str = ""


class ShownKeys(NamedTuple):
    """The inputs of the line of keys, besides its width."""

    view: str
    hints: tuple[str, ...]
    """Ids of the view's own keys, the most important first."""
    labels: Mapping[str, str] = {}
    """Labels that replace the usual ones, by id."""
    min_hints: int = 0
    """Number of the `hints` that must be shown."""
    replay: bool = False
    views: Sequence[str] = VIEW_ORDER
    """Ids of the keys that open views."""


class KeyLine(FrameLines):
    """The line of keys. A click on a key runs its action. Keys that do not fit are in the help."""

    _pieces: Sequence[KeyPiece] = ()
    shown: ShownKeys | None = None
    """Set by the monitor, which calls `update` after each change."""

    def page(self, width: int, height: int) -> list[Line]:  # noqa: ARG002 - always one line
        if self.shown is None:
            return []
        self._pieces = key_pieces(self.shown, self.settings.captions, width)
        return [([(piece.text, piece.style) for piece in self._pieces], "calm")]

    async def on_click(self, event: events.Click) -> None:
        assert isinstance(self.screen, PromptScreen)
        await self.screen.run_key(key_at(self._pieces, event.x))


def key_at(pieces: Iterable[KeyPiece], x: int) -> str:
    """Returns the id of the key at cell `x` of the line; '' if there is none."""
    keys = [piece.key for piece in pieces for _ in piece.text]
    return keys[x] if x < len(keys) else ""


def key_pieces(shown: ShownKeys, captions: Mapping[str, str], width: int) -> list[KeyPiece]:
    """Returns the line of keys: the views, as many keys as fit, help and quit. The views are merged
    into one entry if the first `min_hints` hints, the key `back`, or the key that plays a recording
    would not fit otherwise."""
    view, hints, new_labels, min_hints, replay, views = shown
    labels = {**_LABELS, **new_labels}
    pair_labels = labels | _PAIR_LABELS

    def pieces(entry: KeyEntry) -> list[KeyPiece]:
        *first, last = entry
        label, style = (pair_labels if first else labels)[last], "bright" if last == view else "dim"
        keys = [KeyPiece(captions[key], "key", key) for key in entry]
        return [*_join_pieces([[key] for key in keys], 1), KeyPiece(f" {label}", style, last)]

    by_key = {key: entry for group in _ENTRY_GROUPS for entry in group for key in entry}
    order = _REPLAY_ORDER if replay else _LIVE_ORDER
    common = [key for key in order if view in VIEW_ORDER or key not in _ROW_KEYS]
    common = common if views is VIEW_ORDER else []
    first = 0 if replay else max(min_hints, FIRST_HINTS)
    by_importance = [*hints[:first], *common[:FIRST_COMMON_KEYS], *hints[first:], *common]
    entries = dict.fromkeys(by_key[key] for key in by_importance)
    required_keys = {"back", *hints[:min_hints], *(["pause"] if replay else [])}
    required = {entry for entry in entries if entry[-1] in required_keys}

    ends, rule = _join_pieces([pieces(("help",)), pieces(("quit",))], GAP), [KeyPiece("│", "rule")]
    all_views = _join_pieces([pieces((name,)) for name in views], GAP)
    numbers = f"{captions[views[0]]}-{captions[views[-1]]}"
    merged_views = [KeyPiece(numbers, "key", "next_view"), KeyPiece(" views", "dim", "next_view")]
    line = ends
    for view_pieces in (all_views, merged_views):
        shown_entries: set[KeyEntry] = set()
        line = _join_pieces([view_pieces, ends], GAP)
        if _pieces_width(line) > width - 2:
            line = ends  # even the views alone do not fit
            continue
        for entry in entries:
            candidates = {*shown_entries, entry}
            groups = [[pieces(e) for e in group if e in candidates] for group in _ENTRY_GROUPS]
            middle = _join_pieces(
                [_join_pieces(group, GAP) for group in groups if group], GROUP_GAP
            )
            longer_line = _join_pieces([view_pieces, rule, middle, rule, ends], GAP)
            if _pieces_width(longer_line) <= width - 2:
                line, shown_entries = longer_line, candidates
        if required <= shown_entries:
            break
    return [KeyPiece(" ", "text"), *line]


def _join_pieces(parts: Sequence[list[KeyPiece]], gap: int) -> list[KeyPiece]:
    pieces: list[KeyPiece] = []
    for i, part in enumerate(parts):
        pieces += [KeyPiece(" " * gap, "text"), *part] if i else part
    return pieces


def _pieces_width(pieces: Sequence[KeyPiece]) -> int:
    return sum(len(piece.text) for piece in pieces)


_REPORTED_METRICS = ("busy_hz", "ipc", "halt", "turbo_ceiling_hz")
"""Keys of the metrics whose absence is reported, the most important first."""
_MAX_NAMED = 3
"""Maximum number of metrics named if there is little room."""
_DOCTOR_HINT: Run = ("perftop doctor", "key")


class MissingMetricsLine(FrameLines):
    """The line with the metrics that are missing, the reason, and the fix; hidden if none is
    missing."""

    _runs: Sequence[Run] = ()
    _text_line = 0
    """Number of blank lines of the widget before the text."""

    def on_mount(self) -> None:
        self.lay_out()

    def show(self, state: ScreenState) -> None:
        """Shows which metrics the session lacks. Must be called for each new session."""
        self._state = state
        self.lay_out()

    def lay_out(self) -> None:
        size, session = self.screen.size, self._state.session
        self._runs = missing_metric_runs(session, size.width) if session is not None else []
        self._text_line = int(size.height >= top.MIN_HEIGHT_FOR_GAPS)
        lines = (1 + self._text_line) * bool(self._runs) + self._text_line
        self.display = lines > 0 and size.height >= top.MIN_HEIGHT_FOR_NUMBERS
        self.styles.height = lines
        self.redraw()

    def page(self, width: int, height: int) -> list[Line]:
        lines = [*[BLANK] * self._text_line, ([*self._runs], "calm")]
        is_due = canvas.LAST_NOTE in self.settings.tour_notes and self._state.session is not None
        if is_due and canvas.has_note_rows(self.screen.size):
            captions, names = self.settings.captions, VIEW_ORDER[: VIEW_ORDER.index("time")]
            x = 1 + sum(len(f"{captions[name]} {_LABELS[name]}") + GAP for name in names)
            note = canvas.note_line(self.settings, canvas.LAST_NOTE, x, width, is_above=True)
            lines = [*lines[: height - 1], note]
        return lines


def missing_metric_runs(session: Session, size: int) -> list[Run]:
    """Returns the metrics that no CPU has, the most frequent reason, and the fix. A text that does
    not fit is shortened; `perftop doctor`, to which it refers, prints all of it."""
    names = {key: LISTED_NAMES[key] for key in _REPORTED_METRICS}
    machine_wide = [missing for missing in lasting_reasons(session) if missing.cpus is None]
    reasons = names_by_reason(machine_wide, lambda missing: names.get(missing.what))
    if not reasons:
        return []
    (reason, fix), missing_names = max(reasons.items(), key=lambda item: len(item[1]))
    missing_names.sort(key=list(names.values()).index)
    head = safe_cells(reason.partition(": ")[0].replace("no core PMU", "no PMU"))
    head = head[:1].upper() + head[1:]
    verb = "cannot be counted" if "PMU" in head else "cannot be known"
    text: Run = (f" {head}: {join_words(missing_names)} {verb}", "dim")
    short_text: Run = (f" {head}: {', '.join(missing_names[:_MAX_NAMED])} unknown", "dim")
    dot: Run = (" · ", "faint")
    more_label: Run = ("more: ", "dim")
    fix_runs: list[Run] = [dot, (safe_cells(fix), "dim")] if fix else []
    wordings: list[list[Run]] = [
        [text, *fix_runs, dot, more_label, _DOCTOR_HINT],
        [text, dot, more_label, _DOCTOR_HINT],
        [short_text, dot, _DOCTOR_HINT],
        [(f" {head}", "dim"), dot, _DOCTOR_HINT],
    ]
    shown = next((runs for runs in wordings if width(runs) <= size), None)
    return shown or [(fit(f" {head}", size), "dim")]


# --- The prompt: a label, the typed text, and the explanation of the text or its error. It is only
# visible while the user types.

MAX_TEXT_LENGTH = 400
"""Maximum length of the prompt's text, in characters; longer pasted text is cut."""
MIN_WIDTH_FOR_EXPLANATION = 110
"""Minimum columns of a screen that shows the explanation beside the text, not below it."""


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
        # Without this binding, Tab would change the view.
        Binding("tab,shift+tab", "ignore_key", show=False),
    ]

    def __init__(self, on_close: Callable[[], object]) -> None:
        super().__init__()
        self._on_close = on_close
        self._label = Static(markup=False, id="prompt-label")
        self._input = _OneLineInput(max_length=MAX_TEXT_LENGTH, select_on_focus=False, compact=True)
        self._input.highlighter = self._underline_error  # type: ignore[assignment]
        self._input.cursor_blink = False  # nothing in perftop blinks
        self._words = Static(markup=False, id="prompt-words")
        self._explanation: tuple[str, int | None] = "", None
        self._asked_label = ""
        """The label of the current or last question."""
        self._explain_text: Callable[[str], str]
        self._accept: Callable[[str], None]
        self._undo_question: Callable[[], None]

    def compose(self) -> ComposeResult:
        yield self._label
        yield self._input
        yield self._words

    def ask(
        self,
        label: str,
        hint: str,
        preview: Callable[[str], str],
        *,
        on_accept: Callable[[str], None] = lambda _: None,
        on_cancel: Callable[[], None] = lambda: None,
        text: str = "",
    ) -> None:
        """Opens the prompt with this text. `hint` is shown while the text is empty. `preview`
        returns the explanation of a text, or raises ValueError with a one-line message; the error
        may have an `offset`, the index of the first wrong character. `on_accept` is called after
        Enter with a valid text, `on_cancel` after Esc."""
        self._asked_label, self._explain_text = label, preview
        self._accept, self._undo_question = on_accept, on_cancel
        self._label.update(label)
        self._input.value = text
        self._input.cursor_position = len(text)
        self._input.placeholder = to_ascii(hint) if is_ascii(self.app) else hint
        self.explain("")
        self.display = self._input.can_focus = True
        if text:
            self._preview(text)
        self.screen.set_focus(self._input)  # `focus` would take effect after the next keys

    def is_asking(self, label: str) -> bool:
        return self.display and self._asked_label == label

    @property
    def has_error(self) -> bool:
        return self._explanation[1] is not None

    def _underline_error(self, text: Text) -> Text:
        """Underlines the text from the first character that cannot be parsed."""
        if self._explanation[1] is not None:
            text.stylize("underline", self._explanation[1])
        return text

    @property
    def text(self) -> str:
        return self._input.value

    def _preview(self, text: str) -> bool:
        """Shows the explanation of the text, or its error. Returns whether the text is valid."""
        try:
            self.explain(self._explain_text(text))
        except ValueError as error:
            self.explain(str(error) if text else "", getattr(error, "offset", 0))
        return not self.has_error

    def explain(self, words: str, error_offset: int | None = None) -> None:
        """Shows an explanation of the text; with `error_offset`, an error at this character."""
        if (words, error_offset) == self._explanation:
            return
        self._explanation = words, error_offset
        safe_text = safe_cells(words)
        self._words.update(to_ascii(safe_text) if is_ascii(self.app) else safe_text)
        self._words.set_class(error_offset is not None, "-wrong")
        self._input.refresh()

    def action_leave(self) -> None:
        """Closes the prompt and restores the state from before the question."""
        self._close()
        self._undo_question()
        self._on_close()

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width < MIN_WIDTH_FOR_EXPLANATION, "-narrow")

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.display:  # an event sent before Esc may arrive after the prompt has closed
            self._preview(event.value)

    def accept(self, text: str) -> None:
        if self._preview(text):
            self._close()
            self._on_close()
            self._accept(text)

    def _close(self) -> None:
        # a hidden input would get all keys if a pending `focus` took effect now
        self.display = self._input.can_focus = False

    def on_descendant_blur(self) -> None:
        """Returns the focus to the prompt after a click elsewhere, which still takes effect."""
        if self.display and self.screen.focused is not None:
            self._input.focus()

    def action_ignore_key(self) -> None:
        pass


class PromptScreen(DirectScreen):
    """A screen with clickable keys, and with a prompt, which is mounted when it first asks."""

    prompt: Prompt | None = None

    @property
    def main_widget(self) -> Widget:
        """The widget that has the focus while the prompt is closed."""
        raise NotImplementedError

    async def ask(
        self, label: str, hint: str, preview: Callable[[str], str], **options: Any
    ) -> None:
        if self.prompt is None:
            self.prompt = Prompt(lambda: self.set_focus(self.main_widget))
            await self.mount(self.prompt, before=next(iter(self.query(KeyLine)), None))
        self.prompt.ask(label, hint, preview, **options)

    def leave_prompt(self) -> bool:
        """Closes an open prompt. Needed if a click has taken the focus, because the prompt then
        does not receive Esc. Returns whether the prompt was open."""
        if self.prompt is None or not self.prompt.display:
            return False
        self.prompt.action_leave()
        return True

    async def run_key(self, key: str) -> None:
        """Runs the action of a clicked key, '' for none. First closes an open prompt."""
        if not key:
            return
        self.leave_prompt()
        for owner in (self.main_widget, self, self.app):
            if await self.app.run_action(KEYS_BY_ID[key].action, owner):
                break


class PageScreen(PromptScreen):
    """A screen with a single page of lines: a fleet, or two recordings."""

    HELP_ENTRIES: ClassVar[Sequence[tuple[str, str]]] = ()
    """Numbers and signs of this screen with their meanings, for the help."""

    def __init__(self) -> None:
        super().__init__()
        self.page = _Page(id="page")

    def compose(self) -> ComposeResult:
        yield self.page

    @property
    def main_widget(self) -> PageWidget:
        return self.page

    def page_lines(self, width: int, height: int) -> list[Line]:
        raise NotImplementedError

    def action_help(self) -> None:
        from perftop.tui.frame.overlays import HelpEntry, HelpSection, help_screen

        bindings = [active.binding for active in self.active_bindings.values()]
        entries = [HelpEntry([(name, "key")], text) for name, text in self.HELP_ENTRIES]
        sections = [HelpSection("numbers and signs", entries)] if entries else []
        self.app.push_screen(help_screen(bindings, sections))


class _Page(PageWidget, can_focus=True):
    def page(self, width: int, height: int) -> list[Line]:
        assert isinstance(self.screen, PageScreen)
        return self.screen.page_lines(width, height)


class _OneLineInput(Input):
    """An input whose placeholder is cut to one line. Textual wraps a long placeholder and writes
    the line break, which on the last row of a terminal scrolls the whole screen."""

    def on_key(self, event: events.Key) -> None:
        """Handles Enter and Esc immediately. Keys that follow in the same burst are not part of the
        text; the app forwards them to whichever widget then has the focus."""
        prompt, active = self.parent, self.screen.active_bindings.get(event.key)
        if not self.can_focus:
            event.prevent_default()
        elif isinstance(prompt, Prompt) and active and active.binding.action in {"leave", "submit"}:
            event.stop().prevent_default()
            prompt.action_leave() if active.binding.action == "leave" else prompt.accept(self.value)

    def render_line(self, y: int) -> Strip:
        strip, segments = super().render_line(y), []
        for segment in strip:
            text, newline, _ = segment.text.partition("\n")
            segments.append(Segment(text, segment.style))
            if newline:
                return Strip(segments).adjust_cell_length(self.size.width, self.rich_style)
        return strip
