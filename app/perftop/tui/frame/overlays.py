"""Screens over a view. Lists, and the command palette, which finds every action by name, cover a
part of the view. Screens of text cover all of it: the help, and the report behind the verdict."""

from __future__ import annotations

import contextlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from math import nan
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, NamedTuple, TypeVar

from rich.text import Text
from textual import events, work
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.command import CommandList, CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.containers import VerticalScroll
from textual.css.query import NoMatches
from textual.errors import NoWidget
from textual.geometry import Size
from textual.markup import escape
from textual.screen import ModalScreen, Screen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from perftop.base.text import MISSING, UNITS, ClockUnit, clock_unit, to_ascii
from perftop.draw import theme
from perftop.draw.columns import FALLING, RISING, SUSPECT_SIGN, Run
from perftop.draw.strips import safe_cells, width
from perftop.model.kinds import KINDS
from perftop.model.numbers import METRICS, Number
from perftop.session.selection import HELP
from perftop.session.session import Session
from perftop.session.values import CpuColumns, missing_text
from perftop.tui.shared import keys
from perftop.tui.shared.cores import ORDERS
from perftop.tui.shared.keys import KEYS, bindings, key_caption
from perftop.tui.shared.paint import TerminalSizedScreen, is_ascii, run_writer
from perftop.tui.shared.row_numbers import ViewSettings, metric_fields

if TYPE_CHECKING:
    from perftop.output.report import Report

Result = TypeVar("Result")
Options = Sequence[tuple[str, str]]


class _SafeOptionList(OptionList):
    def _move_page(self, direction: Literal[-1, 1]) -> None:
        """Ignores paging while the list has no room, because Textual would fail."""
        if (self.highlighted or 0) in self._index_to_line:
            super()._move_page(direction)

    async def _on_click(self, event: events.Click) -> None:
        """Ignores a click on an option that has been removed, because Textual would fail."""
        if event.style.meta.get("option", -1) >= self.option_count:
            event.prevent_default()
            event.stop()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Returns the height for a width of at least one cell, because Textual would fail at 0."""
        padding = self.get_component_styles("option-list--option").padding.width
        return super().get_content_height(container, viewport, max(width, padding + 1))

    def _update_lines(self) -> None:
        """Lays out options only if a character fits, because Textual would fail. A list that is
        not on the screen yet has neither a width nor styles."""
        width = self.scrollable_content_region.width
        if width and width > self.get_component_styles("option-list--option").padding.width:
            super()._update_lines()


class _ListScreen(TerminalSizedScreen, ModalScreen[Result | None], Generic[Result]):
    CSS_PATH = "menu.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("menu")]
    HINT: ClassVar[str]
    """The keys named at the lower edge of the list."""

    MARKS: ClassVar[tuple[str, str]]
    """Marks before an option that is not chosen, and before one that is."""

    def __init__(self, title: str, options: Options, chosen: Iterable[str]) -> None:
        super().__init__()
        self.options, self.chosen_keys = options, set(chosen)
        self.list = _SafeOptionList(markup=False)
        self.list.border_title = title
        self.list.border_subtitle = self.HINT

    def compose(self) -> ComposeResult:
        self.set_class(is_ascii(self.app), "-ascii")
        self.list.add_options(map(Option, self.option_texts()))
        yield self.list

    def option_texts(self) -> list[str]:
        texts = [f"{self.MARKS[key in self.chosen_keys]} {label}" for key, label in self.options]
        return [to_ascii(text) for text in texts] if is_ascii(self.app) else texts

    def dismiss(self, result: Result | None = None) -> AwaitComplete:
        """Closes the list, unless an earlier key has closed it already."""
        if self.app.screen_stack[-1] is not self:
            return AwaitComplete()
        return super().dismiss(result)

    def action_move(self, steps: int) -> None:
        if steps > 0:
            self.list.action_cursor_down()
        else:
            self.list.action_cursor_up()

    def on_click(self, event: events.Click) -> None:
        if event.widget is self:  # the click was outside the list
            self.dismiss(None)


class Menu(_ListScreen[str]):
    """A list from which one option is chosen. The result is its key; None if cancelled."""

    HINT = "enter, esc"
    MARKS = " ", theme.SELECTED_SIGN

    def on_mount(self) -> None:
        keys = [key for key, _ in self.options]
        self.list.highlighted = next((keys.index(key) for key in self.chosen_keys & {*keys}), 0)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self.options[event.option_index][0])


class Chooser(_ListScreen[set[str]]):
    """A list in which options can be ticked. The result is the ticked keys; None if cancelled."""

    HINT = "space, a: all, enter"
    MARKS = "[ ]", "[x]"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("chooser")]

    def on_mount(self) -> None:
        self.list.highlighted = 0

    def action_tick(self) -> None:
        if self.list.highlighted is not None:
            self._choose(self.chosen_keys ^ {self.options[self.list.highlighted][0]})

    def action_tick_all(self) -> None:
        """Ticks all options; if all are ticked, unticks all."""
        all_keys = {key for key, _ in self.options}
        self._choose(set() if self.chosen_keys >= all_keys else all_keys)

    def _choose(self, keys: set[str]) -> None:
        self.chosen_keys = keys
        for index, text in enumerate(self.option_texts()):
            self.list.replace_option_prompt_at_index(index, text)

    def on_option_list_option_selected(self, _: OptionList.OptionSelected) -> None:
        self.action_tick()  # the event is from a click, because Enter is bound to `accept`

    def action_accept(self) -> None:
        self.dismiss(self.chosen_keys)


# --- the lists


def sort_menu(session: Session, settings: ViewSettings, *, is_table: bool) -> Menu:
    """Returns the list of orders; only the table can be sorted by every column."""
    field_keys = {field.key for field in metric_fields(session)}
    clock = clock_unit(settings.units, nan)  # only the name of the unit is used
    columns = CpuColumns(session).columns()
    options = [(order, order) for order in ORDERS]
    sortable = [column for column in columns if is_table or column.key in field_keys]
    options += [(column.key, metric_full_name(column, clock)) for column in sortable]
    chosen, arrow = settings.order, RISING if settings.reverse else FALLING
    options = [(key, f"{name}  {arrow}" if key == chosen else name) for key, name in options]
    return Menu("sort by", options, [chosen])


def metric_full_name(column: Number, clock: ClockUnit) -> str:
    if column.is_rate:
        return f"{column.plain_name} {column.unit.removesuffix('/s').removeprefix('1')} per second"
    unit = column.unit_name(clock)
    return f"{column.plain_name}, {unit}" if unit else column.plain_name


def column_chooser(session: Session, settings: ViewSettings) -> Chooser:
    clock = clock_unit(settings.units, nan)  # only the name of the unit is used
    columns = CpuColumns(session).columns()
    options = [(column.key, metric_full_name(column, clock)) for column in columns]
    keys = {key for key, _ in options}
    ticked_keys = keys.intersection(settings.columns) or keys
    return Chooser("columns", options, ticked_keys)


def column_order(
    session: Session, previous: Sequence[str], ticked_keys: set[str]
) -> tuple[str, ...]:
    """Returns the new order of columns: empty, for all columns, if all are ticked; else the ticked
    keys, first those in the previous order, `previous`. Keys in `previous` that this stream does
    not have are kept."""
    keys = [column.key for column in CpuColumns(session).columns()]
    if ticked_keys >= set(keys):
        return ()
    kept_keys = [key for key in previous if key in ticked_keys or key not in keys]
    return (*kept_keys, *(key for key in keys if key in ticked_keys and key not in kept_keys))


# --- the command palette

GATHER_COMMANDS = inspect.unwrap(CommandPalette._gather_commands)  # noqa: SLF001 - no public name
"""Textual's search function without its decorator, which would start a worker."""

Command = tuple[str, str, str]
"""Name, help, and action. The action is one of the screen, unless it names another owner."""


def commands(session: Session | None, themes: Iterable[str]) -> Iterator[Command]:
    yield from ((f"Theme {name}", "", f"app.theme({name!r})") for name in themes)
    yield from ((f"Clocks in {unit}", "", f"cycle('units',{unit!r})") for unit in UNITS)
    yield from ((f"Sort by {order}", "", f"sort({order!r})") for order in ORDERS)
    if session is not None:
        for field in metric_fields(session):
            yield f"Sort by {field.plain_name}", "Highest first", f"sort({field.key!r})"
            yield f"Show {field.plain_name}", "Heat map, time view", f"metric({field.key!r})"
        yield from ((f"Filter {text}", means, f"filter({text!r})") for text, means in HELP)


def cpu_commands(session: Session, query: str) -> Iterator[Command]:
    """Returns commands that go to the CPUs and cores whose numbers are in the query."""
    numbers = set(re.findall(r"[0-9]+", query))
    cpus = [session.topology[position] for position in session.selected]
    names = {f"Go to CPU {row.cpu}": row.cpu for row in cpus if str(row.cpu) in numbers}
    # In descending order, so that a core's first CPU overwrites its siblings.
    for row in reversed(cpus):
        if str(row.core) in numbers:
            names[f"Go to core {row.core} of package {row.package}"] = row.cpu
    return ((name, f"CPU {cpu}", f"go_to_cpu({cpu})") for name, cpu in names.items())


class CommandProvider(Provider):
    session: Session | None = None

    def _all_commands(self, query: str) -> Iterator[tuple[str, str, Callable[[], object]]]:
        run_action, bindings = self.app.run_action, self.screen.active_bindings.values()
        # the first key of each action
        active = {a.binding.id: a for a in reversed(bindings) if a.enabled}
        for key in sorted(KEYS, key=lambda key: key.id == "quit"):  # Enter runs the first entry
            if (active_binding := active.get(key.id)) and key.id not in {"interrupt", "palette"}:
                help_text = escape(f"{key.tooltip}  {key_caption(active_binding.binding.key)}")
                run = partial(run_action, key.action, active_binding.node)
                yield key.label.capitalize(), help_text, run
        if self.screen is self.app.screen_stack[0]:  # no other screen covers the views
            cpu_entries = [] if self.session is None else cpu_commands(self.session, query)
            themes = theme.theme_names(no_color=self.app.no_color)
            for name, help_text, action in (*commands(self.session, themes), *cpu_entries):
                yield name, escape(help_text), partial(run_action, action, self.screen)

    async def discover(self) -> Hits:
        for name, help_text, run in self._all_commands(""):
            yield DiscoveryHit(name, run, help=help_text)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for name, help_text, run in self._all_commands(query):
            if score := matcher.match(name) or 0.1 * (query.casefold() in help_text.casefold()):
                yield Hit(score, matcher.highlight(name), run, name, help_text)


class _PaletteList(CommandList, _SafeOptionList, can_focus=False):
    """The palette's list. A search may shorten it before a click on it arrives."""


class Palette(TerminalSizedScreen, CommandPalette):
    CSS_PATH = "palette.tcss"

    def compose(self) -> ComposeResult:
        for widget in super().compose():
            yield _PaletteList() if isinstance(widget, CommandList) else widget

    async def _on_click(self, event: events.Click) -> None:  # type: ignore[override]
        try:
            self.get_widget_at(event.screen_x, event.screen_y)
        except NoWidget:  # the terminal became smaller, so Textual's handler would fail
            event.prevent_default()

    async def _watch__show_busy(self) -> None:
        with contextlib.suppress(NoMatches):  # the list may have closed before
            await super()._watch__show_busy()

    def dismiss(self, result: None = None) -> AwaitComplete:
        self._stop_no_matches_countdown()  # its end would change the list that has closed
        is_closed = self.app.screen_stack[-1] is not self  # a second Enter may follow the first
        return AwaitComplete() if is_closed else super().dismiss(result)

    @work(exclusive=True, group=CommandPalette._GATHER_COMMANDS_GROUP)  # noqa: SLF001 - as above
    async def _gather_commands(self, search_value: str) -> None:
        """Searches for commands. A search that begins after the list has closed has no effect."""
        with contextlib.suppress(NoMatches):
            await GATHER_COMMANDS(self, search_value)


def command_palette(session: Session | None) -> Palette:
    provider = type("SessionCommands", (CommandProvider,), {"session": session})
    return Palette([provider], placeholder="Search for a command, a CPU or a core")


# --- Screens of text: the help (keys by purpose, shapes in charts, the meaning of every number),
# and the report behind the verdict.

MIN_WIDTH_FOR_COLUMNS = 110
"""Minimum columns of a help screen with keys at the left and shapes at the right."""
GAP = 3
MIN_TERM_WIDTH = 20
"""Minimum cells for a term, such as a key; on a narrow screen, a third of the width."""
MIN_EXPLANATION_WIDTH = 20
"""Minimum cells for an explanation. On narrower screens, lines are cut."""
Line = list[Run]


class HelpEntry(NamedTuple):
    term: list[Run]
    explanation: str
    style: str = "text"


class HelpSection(NamedTuple):
    title: str
    entries: list[HelpEntry]


Sections = Sequence[HelpSection]


class TextScreen(TerminalSizedScreen, Screen[None]):
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings("help")]

    def __init__(self, lines: Callable[[int], list[Line]]) -> None:
        super().__init__()
        self._make_lines, self._text = lines, Static()

    def compose(self) -> ComposeResult:
        with VerticalScroll() as scroll:
            if is_ascii(self.app):  # a size of 0 would leave no room for the text
                scroll.styles.scrollbar_visibility = "hidden"
            yield self._text

    def on_resize(self) -> None:
        colors = run_writer(self.app).styles
        text = Text()
        for line in self._make_lines(self.app.size.width - 2):
            for part, key in line:
                text.append(to_ascii(part) if is_ascii(self.app) else part, colors[key])
            text.append("\n")
        self._text.update(text)


def why_screen(report: Report) -> TextScreen:
    """Returns the screen with the report of `perftop why` for the time that the verdict covers."""
    from perftop.output import why_text

    styles = {"answer": "bright", "lost": "alarm", "dim": "dim", "try": "key", "text": "text"}
    title: Line = [(" why", "key"), ("   esc back", "dim")]
    lines: list[Line] = [
        [(" ", "text"), *((safe_cells(text), styles[style]) for text, style in row)]
        for row in why_text.rows(report)
    ]
    return TextScreen(lambda _: [title, [], *lines])


def help_screen(bindings: Sequence[Binding], right: Sections, below: Sections = ()) -> TextScreen:
    """`bindings`: keys of the screen below. `right`: sections beside the keys or, if there is no
    room, below them. `below`: sections below both."""
    return TextScreen(lambda size: help_page(bindings, right, below, size))


def help_page(
    bindings: Sequence[Binding], right: Sections, below: Sections, size: int
) -> list[Line]:
    title: Line = [(" help", "key"), ("   esc back   ", "dim"), ("j k", "dim"), (" scroll", "dim")]
    key_sections = _key_sections(bindings)
    if right and size >= MIN_WIDTH_FOR_COLUMNS:
        column_width = (size - GAP) // 2
        halves = _section_lines(key_sections, column_width), _section_lines(right, column_width)
        lines = [
            [*first, (" " * (column_width + GAP - width(first)), "text"), *second]
            for first, second in zip_longest(*halves, fillvalue=list[Run]())
        ]
    else:
        lines = _section_lines([*key_sections, *right], size)
    return [title, [], *lines, *_section_lines(below, size)]


def _section_lines(sections: Sections, size: int) -> list[Line]:
    lines: list[Line] = []
    for title, entries in sections:
        rule = "─" * max(0, size - len(title) - 2)
        lines.append([(f" {title} ", "bright"), (rule, "rule")])
        for term, explanation, style in entries:  # the explanation is to the right of the term
            column = max(min(MIN_TERM_WIDTH, size // 3), width(term) + 2) + 2
            room = max(MIN_EXPLANATION_WIDTH, size - column)
            first, *more_lines = textwrap.wrap(explanation, room) or [""]
            gap = " " * (column - 2 - width(term))
            lines.append([("  ", "text"), *term, (gap, "text"), (first, style)])
            lines += [[(" " * column, "text"), (line, style)] for line in more_lines]
        lines.append([])
    return lines


# --- the sections


def _key_sections(bindings: Sequence[Binding]) -> list[HelpSection]:
    """Returns the keys in groups. Keys with the same action share a line."""
    by_id: dict[str | None, list[Binding]] = {}
    for binding in bindings:
        by_id.setdefault(binding.id, []).append(binding)
    sections = []
    for title, ids in keys.KEY_GROUPS.items():
        actions: dict[str, list[Binding]] = {}
        for binding in (binding for name in ids for binding in by_id.get(name, ())):
            actions.setdefault(binding.action, []).append(binding)
        entries = []
        for group in actions.values():
            names = " ".join(dict.fromkeys(keys.key_caption(b.key) for b in group))
            entries.append(HelpEntry([(names, "key")], group[0].tooltip))
        sections += [HelpSection(title, entries)] if entries else []
    return sections


_RAMP: list[Run] = [(theme.BOTH, f"heat{level}") for level in range(theme.HEAT_STEPS)]
_SHAPES: tuple[tuple[list[Run], str], ...] = (
    ([(theme.BOTH * 4, "both")], "both siblings of a core are active"),
    ([(theme.LP0 * 4, "lp0")], "only the first sibling (lp0): the upper half of the core"),
    ([(theme.LP1 * 4, "lp1")], "only the second sibling (lp1): the lower half"),
    ([(theme.NEITHER * 4, "neither")], "neither"),
    ([(theme.UNKNOWN * 4, "unknown")], "not counted here: any of the states around it"),
    ([(theme.STROKE * 3 + theme.STROKE_END, "clock"), (" ", "text"), (theme.CEILING_SIGN, "dim")],
     "clock while running, from 0, and its turbo ceiling for the number of active cores"),
    ([(theme.DROP_SIGN, "text"), (" ", "text"), (theme.DROP_SIGN, "alarm")],
     "clock below its ceiling; red: also below the other cores of its package"),
    ([("▅▅▅▅", "user-8"), (" ", "text"), ("▅▅▅▅", "kernel-8")],
     "charts of a CPU: user time, and kernel time above it"),
    ([(theme.STEAL * 4, "hot/hot-back"), (" ", "text"), ("▀▀▀▀", "steal")],
     "steal, drawn from the top: the hypervisor ran something else; red while it is high"),
    ([("━━", "lp0"), ("┅┅", "dim"), ("──", "rule")], "a task runs, waits for a CPU, sleeps"),
    (_RAMP, "heat: from low to high"),
    ([("12.3", "alarm")], "red: an episode is running here, and this number shows its cost"),
    ([("12.3", "warn")], "amber: near a limit"),
    ([(SUSPECT_SIGN + "12.3", "dim")], "an impossible sample was left out"),
    ([(MISSING, "faint")], "unknown; the reasons are at the end of this page"),
)  # fmt: skip
SHAPES_AND_COLOURS = HelpSection("shapes and colours", [HelpEntry(*shape) for shape in _SHAPES])
EPISODES = HelpSection(
    "episodes", [HelpEntry([(kind.marker, "text")], kind.meaning) for kind in KINDS.values()]
)
FILTERS = HelpSection("filters", [HelpEntry([(example, "key")], words) for example, words in HELP])


def stream_help(session: Session | None, bindings: Sequence[Binding]) -> TextScreen:
    """Returns the help for a stream, with the meaning, formula and counters of each metric."""
    extra: list[HelpSection] = []
    if session is not None:
        entries = []
        for key, metric in METRICS.items():
            origin = session.evaluator.origin(key)
            if origin is not None:
                entries.append(HelpEntry([(metric.label, "key")], metric.help))
                entries.append(HelpEntry([], safe_cells(origin), "dim"))
        extra.append(HelpSection("numbers, and where they come from", entries))
        if lines := [safe_cells(line.removeprefix("n/a: ")) for line in missing_text(session)]:
            extra.append(HelpSection("not available here", [HelpEntry([], line) for line in lines]))
    return help_screen(bindings, [SHAPES_AND_COLOURS, EPISODES, FILTERS], extra)
