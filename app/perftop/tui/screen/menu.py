"""Short lists over a view, which stays visible around them: a list for a single choice, and a list
for several choices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import nan
from typing import ClassVar, Generic, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import BindingType
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from perftop.base.format import ClockUnit, clock_unit
from perftop.base.text import plain
from perftop.draw import theme
from perftop.draw.columns import FALLING, RISING
from perftop.model.numbers import Number
from perftop.session.session import Session
from perftop.session.values import CpuColumns
from perftop.tui.shared.canvas import Canvas
from perftop.tui.shared.choice import Choice
from perftop.tui.shared.fields import fields
from perftop.tui.shared.keys import bindings

Result = TypeVar("Result")
Options = Sequence[tuple[str, str]]
"""Key and label of each option."""


class _Options(OptionList):
    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Disables paging while the list has no room, because Textual's action would then fail."""
        return "page" not in action or bool(self.scrollable_content_region)


class _List(ModalScreen[Result | None], Generic[Result]):
    CSS_PATH = "menu.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("menu")]
    HINT: ClassVar[str]
    """The keys that are named on the lower edge of the list."""

    def __init__(self, title: str, options: Options, *, ascii_: bool = False) -> None:
        super().__init__()
        self._ascii = ascii_
        self._keys = [key for key, _ in options]
        self._labels = [label for _, label in options]
        self.list = _Options(markup=False)
        self.list.border_title = title
        self.list.border_subtitle = self.HINT
        self.set_class(ascii_, "-ascii")

    def compose(self) -> ComposeResult:
        self.list.add_options(Option(self.text(at)) for at in range(len(self._keys)))
        yield self.list

    def text(self, at: int) -> str:
        label = self._labels[at]
        return plain(label) if self._ascii else label

    def dismiss(self, result: Result | None = None) -> AwaitComplete:
        """Closes the list if it is the top screen; a second key may arrive after the list has
        closed."""
        if self.app.screen_stack[-1] is not self:
            return AwaitComplete()
        return super().dismiss(result)

    def action_move(self, by: int) -> None:
        if by > 0:
            self.list.action_cursor_down()
        else:
            self.list.action_cursor_up()

    def on_click(self, event: events.Click) -> None:
        if event.widget is self:  # the click was outside the list
            self.dismiss(None)


class Menu(_List[str]):
    """A list for one choice. The result is the key of the chosen option; None if the user left
    without a choice."""

    HINT = "enter, esc"

    def __init__(self, title: str, options: Options, chosen: str, *, ascii_: bool = False) -> None:
        super().__init__(title, options, ascii_=ascii_)
        self._chosen = chosen

    def on_mount(self) -> None:
        self.list.highlighted = self._keys.index(self._chosen) if self._chosen in self._keys else 0

    def text(self, at: int) -> str:
        mark = theme.CHOSEN if self._keys[at] == self._chosen else " "
        return (plain(mark) if self._ascii else mark) + " " + super().text(at)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._keys[event.option_index])


class Chooser(_List[set[str]]):
    """A list for several choices. The result is the set of the ticked keys; None if the user left
    without applying the choices."""

    HINT = "space, a: all, enter"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("chooser")]

    def __init__(
        self, title: str, options: Options, chosen: Iterable[str], *, ascii_: bool = False
    ) -> None:
        super().__init__(title, options, ascii_=ascii_)
        self.chosen = set(chosen)

    def on_mount(self) -> None:
        self.list.highlighted = 0

    def text(self, at: int) -> str:
        return f"[{'x' if self._keys[at] in self.chosen else ' '}] {super().text(at)}"

    def action_turn(self) -> None:
        at = self.list.highlighted
        if at is not None:
            self.chosen ^= {self._keys[at]}
            self._draw()

    def action_all(self) -> None:
        """Ticks all options, or unticks all if all are ticked."""
        self.chosen = set() if self.chosen >= set(self._keys) else set(self._keys)
        self._draw()

    def _draw(self) -> None:
        for at in range(len(self._keys)):
            self.list.replace_option_prompt_at_index(at, self.text(at))

    def on_option_list_option_selected(self, _: OptionList.OptionSelected) -> None:
        self.action_turn()  # the event is from a click, because Enter is bound to `accept`

    def action_accept(self) -> None:
        self.dismiss(self.chosen)


# --- the lists


def sorting(session: Session, choice: Choice, view: Canvas) -> Menu:
    """Returns the list of orders for this view; only the table can be sorted by every column."""
    options = [(order, order) for order in view.ORDERS]
    if view.sorting is choice:
        table, known = view.id == "table", {field.key for field in fields(session)}
        clock = clock_unit(choice.units, nan)  # only its name counts here
        every = CpuColumns(session).columns()
        options += [(c.key, full_name(c, clock)) for c in every if table or c.key in known]
    chosen, arrow = view.sorting.order, RISING if view.sorting.reverse else FALLING
    options = [(key, f"{name}  {arrow}" if key == chosen else name) for key, name in options]
    return Menu("sort by", options, chosen, ascii_=choice.ascii)


def full_name(column: Number, clock: ClockUnit) -> str:
    """Returns the full name of a metric, with its unit."""
    if column.rate:
        return f"{column.words} {column.unit.removesuffix('/s').removeprefix('1')} per second"
    unit = column.unit_name(clock)
    return f"{column.words}, {unit}" if unit else column.words


def columns(session: Session, choice: Choice) -> Chooser:
    """Returns the list of the table's columns."""
    clock = clock_unit(choice.units, nan)  # only its name counts here
    options = [(column.key, full_name(column, clock)) for column in CpuColumns(session).columns()]
    keys = {key for key, _ in options}
    chosen = keys.intersection(choice.columns) or keys
    return Chooser("columns", options, chosen, ascii_=choice.ascii)


def ordered(session: Session, before: Sequence[str], ticked: set[str]) -> tuple[str, ...]:
    """Returns the ticked keys, first those in `before`, in its order, then the others; empty if all
    keys are ticked. Keys in `before` that this stream does not have are kept, because they were not
    in the list."""
    keys = [column.key for column in CpuColumns(session).columns()]
    if ticked >= set(keys):
        return ()
    kept = [key for key in before if key in ticked or key not in keys]
    return (*kept, *(key for key in keys if key in ticked and key not in kept))
