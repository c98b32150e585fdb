"""Screens of text: the help (keys by purpose, shapes in charts, the meaning of every number), and
the report behind the verdict."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Static

from perftop.base.text import MISSING, to_ascii
from perftop.draw import theme
from perftop.draw.columns import DOUBTED_SIGN, Run
from perftop.draw.strips import safe_cells, width
from perftop.model.kinds import KINDS
from perftop.model.numbers import METRICS
from perftop.session.selection import HELP
from perftop.session.session import Session
from perftop.session.values import missing_text
from perftop.tui.shared import keys
from perftop.tui.shared.paint import ink_of

if TYPE_CHECKING:
    from perftop.output.why_report import Report

MIN_TWO_COLUMNS = 110
"""Minimum columns of the screen for two halves: keys at the left, shapes at the right."""
GAP = 3
"""Cells between the two halves."""
TERM_WIDTH = 20
"""Minimum cells for a key or a shape, left of its explanation."""
MIN_WORDS_WIDTH = 20
"""Minimum cells for an explanation; on narrower screens, long lines are cut."""
Line = list[Run]


class Entry(NamedTuple):
    term: list[Run]
    words: str
    style: str = "text"


class Section(NamedTuple):
    title: str
    entries: list[Entry]


class TextScreen(Screen[None]):
    """A screen of lines that scroll."""

    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings("help")]

    def __init__(self, lines: Callable[[int], list[Line]], *, ascii_: bool = False) -> None:
        """`lines`: returns the lines for a number of columns."""
        super().__init__()
        self._make_lines = lines
        self._ascii = ascii_

    def compose(self) -> ComposeResult:
        with VerticalScroll() as scroll:
            if self._ascii:
                scroll.styles.scrollbar_size_vertical = 0
            yield Static()

    def on_resize(self, event: events.Resize) -> None:
        colors = ink_of(self.app).styles
        text = Text()
        for line in self._make_lines(event.size.width - 2):
            for part, key in line:
                text.append(to_ascii(part) if self._ascii else part, colors[key])
            text.append("\n")
        self.query_one(Static).update(text)


class Help(TextScreen):
    def __init__(
        self, bindings: Sequence[Binding], sections: Sequence[Section],
        more: Sequence[Section] = (), *, ascii_: bool = False,
    ) -> None:  # fmt: skip
        """`bindings`: the keys of the screen below. `sections`: sections beside the keys, if there
        is room, else below them. `more`: sections below both."""
        super().__init__(lambda size: help_page(bindings, sections, more, size), ascii_=ascii_)


class Why(TextScreen):
    """The report of `why` over the span of the verdict."""

    def __init__(self, session: Session, report: Report, *, ascii_: bool = False) -> None:
        from perftop.output import why_text

        styles = {"answer": "bright", "lost": "alarm", "dim": "dim", "try": "key", "text": "text"}
        title: Line = [(" why", "key"), ("   esc back", "dim")]
        lines: list[Line] = [
            [(" ", "text"), *((safe_cells(part.text), styles[part.role]) for part in row)]
            for row in why_text.rows(session, report)
        ]
        super().__init__(lambda _: [title, [], *lines], ascii_=ascii_)


def help_page(
    bindings: Sequence[Binding], right: Sequence[Section], more: Sequence[Section], size: int
) -> list[Line]:
    """Returns all lines of the help, laid out for `size` columns."""
    title: Line = [(" help", "key"), ("   esc back   ", "dim"), ("j k", "dim"), (" scroll", "dim")]
    left = _keys(bindings)
    if right and size >= MIN_TWO_COLUMNS:
        half = (size - GAP) // 2
        lines = [
            [*first, (" " * (half + GAP - width(first)), "text"), *second]
            for first, second in zip_longest(
                _lines(left, half), _lines(right, half), fillvalue=list[Run]()
            )
        ]
    else:
        lines = _lines([*left, *right], size)
    return [title, [], *lines, *_lines(more, size)]


def _lines(sections: Sequence[Section], size: int) -> list[Line]:
    lines: list[Line] = []
    for title, entries in sections:
        rule = "─" * max(0, size - len(title) - 2)
        lines.append([(f" {title} ", "bright"), (rule, "rule")])
        for entry in entries:
            lines += _wrap_entry(entry, size)
        lines.append([])
    return lines


def _wrap_entry(entry: Entry, size: int) -> list[Line]:
    """Returns the lines of an entry: its term, and its explanation, wrapped, to the right."""
    used = width(entry.term)
    column = max(TERM_WIDTH, used + 2) + 2
    room = max(MIN_WORDS_WIDTH, size - column)
    first, *more = textwrap.wrap(entry.words, room) or [""]
    gap = " " * (column - 2 - used)
    lines: list[Line] = [[("  ", "text"), *entry.term, (gap, "text"), (first, entry.style)]]
    return lines + [[(" " * column, "text"), (words, entry.style)] for words in more]


# --- the sections


def _keys(bindings: Sequence[Binding]) -> list[Section]:
    """Returns the keys that work on the screen below the help, in groups; keys with the same action
    share a line."""
    by_id: dict[str | None, list[Binding]] = {}
    for binding in bindings:
        by_id.setdefault(binding.id, []).append(binding)
    sections = []
    for title, ids in keys.GROUPS.items():
        actions: dict[str, list[Binding]] = {}
        for binding in (binding for name in ids for binding in by_id.get(name, ())):
            actions.setdefault(binding.action, []).append(binding)
        entries = []
        for group in actions.values():
            names = " ".join(dict.fromkeys(keys.caption(b.key) for b in group))
            entries.append(Entry([(names, "key")], group[0].tooltip))
        sections += [Section(title, entries)] if entries else []
    return sections


_RAMP: list[Run] = [(theme.BOTH, f"heat{level}") for level in range(theme.HEAT)]
_SHAPES: tuple[tuple[list[Run], str], ...] = (
    ([(theme.BOTH * 4, "both")], "both siblings of a core are active"),
    ([(theme.LP0 * 4, "lp0")], "only the first sibling (lp0): the upper half of the core"),
    ([(theme.LP1 * 4, "lp1")], "only the second sibling (lp1): the lower half"),
    ([(theme.NEITHER * 4, "neither")], "neither"),
    ([(theme.UNKNOWN * 4, "unknown")], "not counted here: any of the states around it"),
    ([(theme.CLOCK * 3 + theme.CLOCK_END, "clock"), (" ", "text"), (theme.CEILING, "dim")],
     "clock while running, from 0, and what turbo allows with as many cores active"),
    ([(theme.DROPPED, "text"), (" ", "text"), (theme.DROPPED, "alarm")],
     "clock below that; red: below the others of its package, too"),
    ([("▅▅▅▅", "user-8"), (" ", "text"), ("▅▅▅▅", "kernel-8")],
     "charts of a CPU: user time, and the kernel's on top of it"),
    ([(theme.STEAL * 4, "hot/hot-back"), (" ", "text"), ("▀▀▀▀", "steal")],
     "steal hangs from the top: the hypervisor ran something else; red while it is much"),
    ([("━━", "lp0"), ("━━", "dim"), ("──", "rule")], "a task runs, waits for a CPU, sleeps"),
    (_RAMP, "heat: from low to high"),
    ([("12.3", "alarm")], "red: an episode runs here now, and this is what it costs"),
    ([("12.3", "warn")], "amber: near a limit"),
    ([(DOUBTED_SIGN + "12.3", "dim")], "a sample that cannot be true was left out"),
    ([(MISSING, "faint")], "not known; the reasons are at the end of this page"),
)  # fmt: skip
SHAPES_AND_COLOURS = Section("shapes and colours", [Entry(*shape) for shape in _SHAPES])
EPISODES = Section(
    "episodes", [Entry([(kind.sign, "text")], kind.meaning) for kind in KINDS.values()]
)
FILTERS = Section("filters", [Entry([(example, "key")], what) for example, what in HELP])


def stream_help(
    session: Session | None, bindings: Sequence[Binding], *, ascii_: bool = False
) -> Help:
    """Returns the help of the screen of a stream, with the meaning of each number, and its formula
    and counters on this machine."""
    more: list[Section] = []
    if session is not None:
        entries = []
        for key, metric in METRICS.items():
            origin = session.evaluator.origin(key)
            if origin is not None:
                entries.append(Entry([(metric.label, "key")], metric.help))
                entries.append(Entry([], safe_cells(origin), "dim"))
        more.append(Section("numbers, and where they come from", entries))
        if lines := [safe_cells(line.removeprefix("n/a: ")) for line in missing_text(session)]:
            more.append(Section("not known here", [Entry([], line) for line in lines]))
    return Help(bindings, [SHAPES_AND_COLOURS, EPISODES, FILTERS], more, ascii_=ascii_)
