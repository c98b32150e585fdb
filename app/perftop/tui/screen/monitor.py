"""The main screen: the machine at the top, one view below it, its keys in the last line."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.dom import DOMNode

from perftop.base.format import duration, when
from perftop.session.interval import Interval
from perftop.session.navigation import typed_moment
from perftop.tui.frame.heights import TINY
from perftop.tui.frame.key_line import KeyLine
from perftop.tui.frame.missing_line import MissingLine
from perftop.tui.frame.status import Status
from perftop.tui.frame.top import Top
from perftop.tui.screen.command_pane import Paned
from perftop.tui.screen.messages import Deepened, Jumped, Marked, Said, State
from perftop.tui.screen.narrowing import Narrowing
from perftop.tui.screen.views import view
from perftop.tui.shared import keys
from perftop.tui.shared.canvas import Canvas
from perftop.tui.shared.choice import Choice
from perftop.tui.shared.order import called

if TYPE_CHECKING:
    from perftop.tui.frame.prompt import Prompt

ASIDE = "PERFTOP_FLEET"
"""Set in the environment of a perftop that a fleet has opened: Esc leads back there."""


class Monitor(Paned):
    AUTO_FOCUS = "#overview"
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings("monitor")]

    def __init__(self, choice: Choice, keymap: Mapping[str, str]) -> None:
        super().__init__()
        self.choice = choice
        self.view = view("overview", choice)
        self._views = {"overview": self.view}
        self._before = "overview"
        """Id of the view to which Esc returns from the page of a core."""
        self.last = State(None, None, Status(0))
        self._prompt: Prompt | None = None
        self._narrowing = Narrowing(choice)
        self._jump_ns = self._mark_ns = 0
        self._jump_from: Interval | None = None
        self.captions = keys.captions(keymap)
        self._top = Top(ascii_=choice.ascii, episodes=self.captions["episodes"], id="top")
        self._missing = MissingLine(ascii_=choice.ascii, id="missing")
        self._keys = KeyLine(self.captions, ascii_=choice.ascii, id="keys")

    def compose(self) -> ComposeResult:
        yield self._top
        yield self.view
        yield self._missing
        yield self._keys

    def on_resize(self, event: events.Resize) -> None:
        bare = event.size.height < TINY
        self.set_class(bare, "-tiny")
        self._missing.lay_out()
        if bare != self.view.bare:
            for view in self._views.values():
                view.bare = bare
            self.view.lay_out()

    # --- new numbers

    def tell(self, state: State) -> None:
        """Draws what is new, at once."""
        before, self.last = self.last, state
        if before.interval is None and state.interval is not None:
            self._tell_machine()  # its lines have other heights than before
            self.lay_out()
        with self.together():
            self._tell_machine()
            stale = state.status.failed is not None
            if stale != self.choice.stale:
                self.choice.stale = stale
                self.view.lay_out()
            found = [m.status.replay and m.status.replay.indexed for m in (before, state)]
            if state.interval is not before.interval or found[0] != found[1]:
                self._narrowing.sift(state.session, state.interval)
                self._show()
            self._tell_keys()

    def _tell_machine(self) -> None:
        self._top.show(self.last.session, self.last.interval, self.last.status)
        self._missing.show(self.last.session)

    def on_deepened(self, _: Deepened) -> None:
        self.again()

    def _show(self) -> None:
        session, interval = self.last.session, self.last.interval
        if session is None or interval is None:
            return
        self.view.show(session, interval)

    def _tell_keys(self) -> None:
        status, order = self.last.status, self.view.sorting.order
        labels = {"longer": duration(status.interval_ns / 1e9), "order": called(order)}
        replay = status.replay
        if status.paused is not None if replay is None else not replay.playing:
            labels["pause"] = "resume" if replay is None else "play"
        if self._prompt and self._prompt.asks("filter") and not self._prompt.wrong:
            self._prompt.tell(self._narrowing.matches(self.last.session))
        hints = self.view.HINTS if self.output is None else ("output", *self.view.HINTS)
        if self.choice.filter is not None:
            labels["clear"] = f"all · {self._narrowing.told(self.last.session)}"
            hints = ("clear", *hints)  # on narrow screens the last hints go first
        self._keys.show(self.view.id or "", hints, labels, replay=replay is not None)

    def again(self) -> None:
        self.view.lay_out()
        self._show()
        self._tell_keys()

    async def on_key_line_clicked(self, message: KeyLine.Clicked) -> None:
        """Does what the key does. A prompt that is open is left as by Esc."""
        key = keys.BY_ID[message.key]
        if self._prompt is not None and self._prompt.display:
            self._prompt.action_leave()
        where: DOMNode = {"app": self.app, "replay": self.app, "monitor": self}.get(
            key.place, self.view
        )
        await self.app.run_action(key.action, where)

    # --- views

    async def action_view(self, name: str) -> None:
        self.uncover()
        if name == self.view.id or (name == "core" and self.choice.cpu is None):
            return
        if name not in self._views:
            made = self._views[name] = view(name, self.choice)
            made.bare = self.view.bare
            await self.mount(made, after=self._top)
        if self.view.id != "core" and self.view.id is not None:
            self._before = self.view.id
        self.view.display = False
        self.view = self._views[name]
        self.view.display = True
        self.view.focus()
        self.again()

    async def action_turn(self, by: int) -> None:
        at = keys.TURN.index(self.view.id or "") if self.view.id in keys.TURN else 0
        await self.action_view(keys.TURN[(at + by) % len(keys.TURN)])

    async def action_open(self) -> None:
        if self.view.open():
            await self.action_view("core")

    async def on_canvas_opened(self, _: Canvas.Opened) -> None:
        await self.action_open()

    async def on_canvas_told(self, message: Canvas.Told) -> None:
        from perftop.tui.views.episodes import Episodes

        await self.action_view("episodes")
        if isinstance(self.view, Episodes):
            self.view.select(message.episode)

    async def action_back(self) -> None:
        if self.view.id == "core":
            await self.action_view(self._before)
        elif self.choice.filter is not None:
            self.action_clear()
        elif os.environ.get(ASIDE):
            await self.app.action_quit()

    # --- the prompt: filter, jump, mark

    async def _ask(self, what: str, text: str, hint: str) -> None:
        from perftop.tui.frame.prompt import Prompt  # Textual's input is slow to import

        if self._prompt is None:
            self._prompt = Prompt(ascii_=self.choice.ascii)
            await self.mount(self._prompt, before=self._keys)
        self._prompt.ask(what, text, hint)

    async def action_filter(self, text: str = "") -> None:
        """Asks for a filter; the prompt begins with `text`."""
        if self.last.session is not None and not (self._prompt and self._prompt.asks("filter")):
            text = self._narrowing.begin(text)
            await self._ask("filter", text, "0-15,32  pkg:1  busy>80  postgres")
            self._heard(text)

    def action_clear(self) -> None:
        self.choice.filter = None
        self._narrowed()

    async def action_jump(self) -> None:
        self._jump_from = self.last.interval
        if self._jump_from is not None:
            await self._ask("jump to", "", "12:03:05  12:03  -30s")

    async def action_mark(self) -> None:
        """Asks for a name for the present moment, which is kept while the user types."""
        session, interval = self.last.session, self.last.interval
        if session is not None and interval is not None:
            past = self.last.status.paused is not None
            self._mark_ns = interval.time_ns if past else session.now_ns
            await self._ask("mark", "", "a name; without one it gets a number")

    def _heard(self, text: str) -> bool:
        """Applies or previews the typed text, or shows its error. Returns whether it is valid."""
        session, prompt = self.last.session, self._prompt
        assert session is not None
        assert prompt is not None
        try:
            if prompt.asked == "filter":
                self._narrowing.to(text)
                prompt.tell("")
                self._narrowed()
            elif prompt.asked == "mark":
                prompt.tell(when(session.unix(self._mark_ns)))
            elif self._jump_from is not None:
                replay = self.last.status.replay
                reach_ns = None if replay is None else replay.reach_ns
                self._jump_ns = typed_moment(text, session, self._jump_from, reach_ns)
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
            if self._prompt.asked == "mark":
                self.app.post_message(Marked(self._mark_ns, message.text))
            elif self._prompt.asked != "filter":
                self.app.post_message(Jumped(self._jump_ns))
                assert self.last.session is not None
                at = when(self.last.session.unix(self._jump_ns))
                goes_on = self.captions["pause"]
                self.app.post_message(Said(f"at {at}; {goes_on} goes on from there"))

    def on_prompt_left(self) -> None:
        assert self._prompt is not None
        if self._prompt.asked == "filter":
            self._narrowing.undo()
            self._narrowed()
        self.view.focus()

    def _narrowed(self) -> None:
        self._narrowing.sift(self.last.session, self.last.interval)
        self.again()

    def action_help(self) -> None:
        from perftop.tui.screen.help import Help

        bindings = [active.binding for active in self.active_bindings.values()]
        self.app.push_screen(Help(self.last.session, bindings, ascii_=self.choice.ascii))
