"""The screen: the machine above, one of the views below it, its keys in the last line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from perftop import keys
from perftop.format import duration, when
from perftop.messages import Jumped, Refreshed
from perftop.screens import views
from perftop.screens.narrowing import Narrowing
from perftop.widgets.choice import UNITS, WINDOWS_S, Choice
from perftop.widgets.cursor import Cursor
from perftop.widgets.keyline import KeyLine
from perftop.widgets.order import called
from perftop.widgets.places import ORDERS
from perftop.widgets.status import Status
from perftop.widgets.top import Top

if TYPE_CHECKING:
    from perftop.session import Interval
    from perftop.widgets.prompt import Prompt

SHORT = 12
"""Lines below which the head of the screen makes room for rows."""
TINY = 8
"""Lines below which all goes that is not a row, but for the first two lines."""


class Monitor(Screen[None]):
    CSS_PATH = "monitor.tcss"
    AUTO_FOCUS = "#overview"
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings("monitor")]

    def __init__(self, choice: Choice, keymap: Mapping[str, str]) -> None:
        super().__init__()
        self.choice = choice
        self.view = views.make("overview", choice)
        self._views = {"overview": self.view}
        self._before = "overview"
        """Where Esc leads from the page of a core."""
        self._last = Refreshed(None, None, Status(0))
        self._prompt: Prompt | None = None
        self._narrowing = Narrowing(choice)
        self._jump_ns = 0
        self._jump_from: Interval | None = None
        self._top = Top(ascii_=choice.ascii, id="top")
        self._keys = KeyLine(keys.captions(keymap), ascii_=choice.ascii, id="keys")

    def compose(self) -> ComposeResult:
        yield self._top
        yield self.view
        yield self._keys

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.height < SHORT, "-short")
        self.set_class(event.size.height < TINY, "-tiny")
        bare = event.size.height < TINY
        if bare != self.view.bare:
            for view in self._views.values():
                view.bare = bare
            self.view.lay_out()

    # --- what there is to show

    def on_refreshed(self, message: Refreshed) -> None:
        before, self._last = self._last, message
        self._top.show(message.session, message.interval, message.status)
        stale = message.status.failed is not None
        if stale != self.choice.stale:
            self.choice.stale = stale
            self.view.lay_out()
        if message.interval is not before.interval:
            self._narrowing.sift(message.session, message.interval)
            self._show()
        self._tell_keys()

    def _show(self) -> None:
        session, interval = self._last.session, self._last.interval
        if session is None or interval is None:
            return
        self.view.show(session, interval)

    def _tell_keys(self) -> None:
        status = self._last.status
        labels = {"longer": duration(status.interval_ns / 1e9), "order": called(self.choice.order)}
        if status.paused is not None:
            labels["pause"] = "resume"
        if self._prompt and self._prompt.asks("filter") and not self._prompt.wrong:
            self._prompt.tell(self._narrowing.matches(self._last.session))
        hints = self.view.HINTS
        if self.choice.filter is not None:
            labels["clear"] = f"all · {self._narrowing.told(self._last.session)}"
            hints = ("clear", *hints)  # the first of them stays longest
        self._keys.show(self.view.id or "", hints, labels)

    def _again(self) -> None:
        """The user has chosen something else."""
        self.view.lay_out()
        self._show()
        self._tell_keys()

    # --- views

    async def action_view(self, name: str) -> None:
        if name == self.view.id or (name == "core" and self.choice.cpu is None):
            return
        if name not in self._views:
            made = self._views[name] = views.make(name, self.choice)
            made.bare = self.view.bare
            await self.mount(made, after=self._top)
        if self.view.id != "core" and self.view.id is not None:
            self._before = self.view.id
        self.view.display = False
        self.view = self._views[name]
        self.view.display = True
        self.view.focus()
        self._again()

    async def action_turn(self, by: int) -> None:
        names = views.TURN
        at = names.index(self.view.id or "") if self.view.id in names else 0
        await self.action_view(names[(at + by) % len(names)])

    async def action_open(self) -> None:
        await self.action_view("core")

    async def on_cursor_opened(self, _: Cursor.Opened) -> None:
        await self.action_view("core")

    async def action_back(self) -> None:
        if self.view.id == "core":
            await self.action_view(self._before)
        elif self.choice.filter is not None:
            self.action_clear()

    # --- what is typed

    async def _ask(self, what: str, text: str, hint: str) -> None:
        if self._prompt is None:
            from perftop.widgets.prompt import Prompt

            self._prompt = Prompt(ascii_=self.choice.ascii)
            await self.mount(self._prompt, before=self._keys)
        self._prompt.ask(what, text, hint)

    async def action_filter(self, text: str = "") -> None:
        """Ask for it; `text` is there already."""
        if self._last.session is not None and not (self._prompt and self._prompt.asks("filter")):
            text = self._narrowing.begin(text)
            await self._ask("filter", text, "0-15,32  pkg:1  util>80  postgres")
            self._heard(text)

    def action_clear(self) -> None:
        self.choice.filter = None
        self._narrowed()

    async def action_jump(self) -> None:
        self._jump_from = self._last.interval
        if self._jump_from is not None:
            await self._ask("jump to", "", "12:03:05  12:03  -30s")

    def _heard(self, text: str) -> bool:
        """Follow what is typed as far as it can be read; else say what is wrong with it."""
        session, prompt = self._last.session, self._prompt
        assert session is not None
        assert prompt is not None
        try:
            if prompt.asked == "filter":
                self._narrowing.to(text)
                prompt.tell("")
                self._narrowed()
            elif self._jump_from is not None:
                from perftop.moment import typed

                self._jump_ns = typed(text, session, self._jump_from)
                prompt.tell(when(session.unix(self._jump_ns)))
        except ValueError as error:
            prompt.tell(str(error) if text else "", getattr(error, "at", 0))
            return False
        return True

    def on_prompt_changed(self, message: Prompt.Changed) -> None:
        self._heard(message.text)

    def on_prompt_accepted(self, message: Prompt.Accepted) -> None:
        assert self._prompt is not None
        if self._heard(message.text):
            self._prompt.close()
            self.view.focus()
            if self._prompt.asked != "filter":
                self.app.post_message(Jumped(self._jump_ns))

    def on_prompt_left(self) -> None:
        assert self._prompt is not None
        if self._prompt.asked == "filter":
            self._narrowing.undo()
            self._narrowed()
        self.view.focus()

    def _narrowed(self) -> None:
        self._narrowing.sift(self._last.session, self._last.interval)
        self._again()

    # --- what is chosen

    def action_order(self) -> None:
        order = self.choice.order
        at = ORDERS.index(order) if order in ORDERS else -1
        self.choice.order = ORDERS[(at + 1) % len(ORDERS)]
        self._again()

    def action_sort(self, key: str) -> None:
        self.choice.order, self.choice.reverse = key, False
        self._again()

    def action_reverse(self) -> None:
        self.choice.reverse = not self.choice.reverse
        self._again()

    def action_metric(self, which: int | str) -> None:
        """The one with this key, or so many further on."""
        if self._last.session is None:
            return
        from perftop.widgets.fields import fields

        known = [field.key for field in fields(self._last.session)]
        if isinstance(which, int):
            at = known.index(self.choice.metric) if self.choice.metric in known else 0
            which = known[(at + which) % len(known)]
        self.choice.metric = which
        self._again()

    def action_goto(self, cpu: int) -> None:
        """The cursor to the core of this CPU."""
        session = self._last.session
        cores = session.splitter.cores if session is not None else []
        self.choice.cpu = next((core[0] for core in cores if cpu in core), self.choice.cpu)
        self._again()

    def action_units(self, name: str = "") -> None:
        at = UNITS.index(self.choice.units)
        self.choice.units = next((u for u in UNITS if u == name), UNITS[(at + 1) % len(UNITS)])
        self._again()

    def action_window(self, by: int) -> None:
        at = WINDOWS_S.index(self.choice.window_s) + by
        self.choice.window_s = WINDOWS_S[max(0, min(len(WINDOWS_S) - 1, at))]
        self._again()

    def action_sort_menu(self) -> None:
        from perftop.screens.menu import sorting

        def chosen(key: str | None) -> None:
            if key is not None:
                self.action_sort(key)

        if self._last.session is not None:
            table = self.view.id == "table"
            self.app.push_screen(sorting(self._last.session, self.choice, table=table), chosen)

    def action_columns(self) -> None:
        from perftop.screens.menu import columns, ordered

        session, choice = self._last.session, self.choice

        def chosen(found: set[str] | None) -> None:
            if found is not None and session is not None:
                choice.columns = ordered(session, choice.columns, found)
                self._again()

        if session is not None:
            self.app.push_screen(columns(session, choice), chosen)

    def action_help(self) -> None:
        from perftop.screens.help import Help

        bindings = [active.binding for active in self.active_bindings.values()]
        self.app.push_screen(Help(self._last.session, bindings, ascii_=self.choice.ascii))
