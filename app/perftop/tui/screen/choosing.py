"""Actions that change what views show: order, metric, units, window and columns; and those that go
to the next or previous episode."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from perftop.tui.screen.messages import Jumped, Sought, State
from perftop.tui.shared.canvas import Abstract, Canvas
from perftop.tui.shared.choice import UNITS, WINDOWS_S, Choice
from perftop.tui.shared.fields import fields
from perftop.tui.shared.paint import DirectScreen

if TYPE_CHECKING:
    from perftop.tui.views.episodes import Episodes


class Choosing(DirectScreen, metaclass=Abstract):
    choice: Choice
    view: Canvas
    """The visible view."""
    last: State
    """The newest message with numbers to show."""

    @abstractmethod
    def again(self) -> None:
        """Shows the view anew after the user has changed a choice."""

    def action_order(self) -> None:
        sorting, orders = self.view.sorting, self.view.ORDERS
        at = orders.index(sorting.order) if sorting.order in orders else -1
        sorting.order = orders[(at + 1) % len(orders)]
        self.again()

    def action_sort(self, key: str) -> None:
        sorting = self.view.sorting if key in self.view.ORDERS else self.choice
        sorting.order, sorting.reverse = key, False
        self.again()

    def action_reverse(self) -> None:
        self.view.sorting.reverse = not self.view.sorting.reverse
        self.again()

    def action_metric(self, which: int | str) -> None:
        """Chooses the metric with this key, or the one this many further on."""
        if self.last.session is None:
            return
        known = [field.key for field in fields(self.last.session)]
        if isinstance(which, int):
            at = known.index(self.choice.metric) if self.choice.metric in known else 0
            which = known[(at + which) % len(known)]
        self.choice.metric = which
        self.again()

    def action_goto(self, cpu: int) -> None:
        """Moves the cursor to the core of this CPU."""
        session = self.last.session
        cores = session.cores if session is not None else []
        self.choice.cpu = next((core[0] for core in cores if cpu in core), self.choice.cpu)
        self.again()

    def action_units(self, name: str = "") -> None:
        at = UNITS.index(self.choice.units)
        self.choice.units = next((u for u in UNITS if u == name), UNITS[(at + 1) % len(UNITS)])
        self.again()

    def action_window(self, by: int) -> None:
        at = WINDOWS_S.index(self.choice.window_s) + by
        self.choice.window_s = WINDOWS_S[max(0, min(len(WINDOWS_S) - 1, at))]
        self.again()

    def action_sort_menu(self) -> None:
        from perftop.tui.screen.menu import sorting  # Textual's list is slow to import

        def chosen(key: str | None) -> None:
            if key is not None:
                self.action_sort(key)

        if self.last.session is not None:
            self.app.push_screen(sorting(self.last.session, self.choice, self.view), chosen)

    def action_columns(self) -> None:
        from perftop.tui.screen.menu import columns, ordered

        session, choice = self.last.session, self.choice

        def chosen(found: set[str] | None) -> None:
            if found is not None and session is not None:
                choice.columns = ordered(session, choice.columns, found)
                self.again()

        if session is not None:
            self.app.push_screen(columns(session, choice), chosen)

    def action_episode(self, by: int) -> None:
        """Goes to the next or previous episode: on the page of a core among episodes on that core,
        elsewhere among those on CPUs that match the filter."""
        session, choice = self.last.session, self.choice
        if session is None:
            return
        cpus: list[int] | None = None
        if self.view.id == "core":
            cpus = next((core for core in session.cores if choice.cpu in core), [])
        elif choice.mask is not None:
            cpus = [session.topology[row].cpu for row in choice.mask]
        self.app.post_message(Sought(by, cpus))

    def on_episodes_visited(self, message: Episodes.Visited) -> None:
        self.app.post_message(Jumped(message.time_ns))
