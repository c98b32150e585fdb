"""The screen of `perftop fleet`, and the source of the app that feeds it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from math import isnan
from time import monotonic_ns, process_time
from typing import ClassVar, Protocol

from textual import events
from textual.binding import BindingType
from textual.worker import Worker

from perftop.base.errors import Failed
from perftop.base.text import duration, safe_text
from perftop.draw.columns import column_at
from perftop.draw.strips import Line
from perftop.model.kinds import cause_of
from perftop.process.job_terminal import wait_for_key
from perftop.session.fleet import ORDERS, Fleet
from perftop.session.fleet_machine import FIELDS
from perftop.tui import fleet_state, fleet_views
from perftop.tui.app import ScreenSource
from perftop.tui.fleet_page import NUMBER_HELP, fleet_page_lines
from perftop.tui.fleet_state import FleetState
from perftop.tui.frame.bottom import KeyPiece, PageScreen, ShownKeys, key_at, key_pieces
from perftop.tui.frame.monitor import FLEET_VARIABLE, cycle
from perftop.tui.frame.top import CpuCost
from perftop.tui.shared import keys
from perftop.tui.shared.canvas import chart_glyphs

_VIEWS = "machines", "heat", "fleet_episodes"
"""The views, by the id of the key that opens each."""
_HINTS = "open", "why", "next_episode", "filter", "sort_next", "metric", "pause"
MIN_SHOWN_HINTS = 1
"""IDs of the keys in the last line besides those of views, most important first, and the minimum
number of these keys that are shown."""
_LABELS = {"open": "open", "metric": "number"}

RunPerftop = Callable[[Sequence[str]], Awaitable[None]]
"""Runs perftop with these arguments, for one machine, and waits for it to end."""
Clock = Callable[[], float]
REFRESH_S = 1.0
MAX_PROBLEM_LENGTH = 200
"""Maximum length of a source's problem, in characters."""
SORT_PERIOD_S = 10.0
PAGE_ROWS = 20
MAX_FILTER_LENGTH = 60
MAX_MACHINES_PER_LINE = 4
"""Maximum machines per line of the screen; if there are more, the heat map is shown first."""


class FleetFeed(Protocol):
    fleet: Fleet
    origin: str
    """Description of the source for the first line, such as "over ssh"."""
    update_s: float
    problem: str
    """Why there are no new numbers; '' if there are."""

    @property
    def shown_time_s(self) -> float:
        """The displayed Unix time in s, by the clock of this or of the recorded machine."""

    @property
    def shown_time_text(self) -> str:
        """The displayed time as text; '' for the current time."""

    def cost_texts(self) -> Sequence[str]:
        """Describes the cost of reading the machines."""

    async def run(self) -> None:
        """Updates `fleet` until cancelled. Raises Failed if no machine can ever be shown."""

    def move_in_time(self, steps: int, /) -> bool:
        """Moves the displayed time by this many refreshes. Returns False if there is no history."""

    def toggle_pause(self) -> None: ...


class FleetScreen(PageScreen):
    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings_by_id(keys.FLEET_KEYS)]
    HELP_ENTRIES = NUMBER_HELP

    def __init__(self, source: FleetSource, state: FleetState) -> None:
        super().__init__()
        self.state, self._source = state, source
        self._has_selected = False
        """Whether the user has selected a machine; until then, it is the worst one."""
        self._order_inputs: object = None
        """The settings and the answering machines for which rows were ordered last."""
        self._ordered_at, self._position_by_name = 0.0, dict[str, int]()
        """Unix time when rows were last ordered, and each machine's position then, by name."""
        self._has_drawn = False
        self._key_pieces: list[KeyPiece] = []

    def page_lines(self, width: int, height: int) -> list[Line]:
        state = self.state
        state.width, state.height = width, height
        self._source.update_state(state)
        state.theme = self.app.current_theme.name
        state.glyphs = chart_glyphs(self.app)
        # The order changes every SORT_PERIOD_S, and immediately if the sort key, the filter or the
        # set of answering machines has changed.
        machines = state.fleet.rows(state.selection, state.now)
        inputs = state.selection, frozenset((m.name, m.is_answering) for m in machines)
        if inputs != self._order_inputs or not 0 <= state.now - self._ordered_at < SORT_PERIOD_S:
            self._order_inputs, self._ordered_at = inputs, state.now
            self._position_by_name = {machine.name: i for i, machine in enumerate(machines)}
        state.machines = sorted(machines, key=lambda m: self._position_by_name[m.name])
        names = [m.name for m in state.machines]
        if not self._has_selected or state.selected_name not in names:
            answering_names = (m.name for m in state.machines if m.is_answering)
            state.selected_name = next(answering_names, names[0] if names else "")
        state.rows = [(m,) for m in state.machines]
        if state.view == "machines":
            state.rows = fleet_state.machine_rows(state)
        if not self._has_drawn and state.fleet.machines:
            self._has_drawn = True
            if len(state.fleet.machines) > MAX_MACHINES_PER_LINE * height:
                state.view = "heat"
        state.click_targets.clear()
        is_folded = any(len(row) > 1 for row in state.rows)
        hints = (*_HINTS, "fold") if is_folded or not state.merges_similar else _HINTS
        shown = ShownKeys(state.view, hints, _LABELS, MIN_SHOWN_HINTS, views=_VIEWS)
        self._key_pieces = key_pieces(shown, state.captions, width)
        key_runs = [(piece.text, piece.style) for piece in self._key_pieces]
        return [*fleet_page_lines(state), (key_runs, "calm")]

    # --- keys

    def action_view(self, name: str) -> None:
        self.state.view = name
        self.page.redraw()

    def _select(self, name: str) -> None:
        self.state.selected_name, self._has_selected = name, True
        self.page.update()

    @property
    def _selected_row(self) -> int:
        """Index of the selected row; 0 if there is none."""
        names = [row[0].name for row in self.state.rows]
        return names.index(self.state.selected_name) if self.state.selected_name in names else 0

    def _select_row(self, index: int) -> None:
        if rows := self.state.rows:
            self._select(rows[max(0, min(len(rows) - 1, index))][0].name)

    def action_move(self, rows: int, columns: int = 0) -> None:
        state = self.state
        if state.view == "heat" and state.grid is not None:
            step = (columns > 0) - (columns < 0), (rows > 0) - (rows < 0)
            name = state.selected_name
            for _ in range(abs(columns) + abs(rows)):
                name = state.grid.neighbour(name, *step)
            self._select(name)
        else:
            self._select_row(self._selected_row + rows)

    def action_page(self, pages: int) -> None:
        self.action_move(pages * PAGE_ROWS)

    def action_end(self, direction: int) -> None:
        self._select_row(len(self.state.rows) if direction > 0 else 0)

    def action_go_to_episode(self, direction: int) -> None:
        """Selects the next (`direction` = 1) or previous machine with a harmful running episode."""
        rows, index = self.state.rows, self._selected_row
        for step in range(1, len(rows) + 1):
            i = (index + direction * step) % len(rows)
            if any(episode.is_wrong for episode in rows[i][0].running):
                self._select_row(i)
                return

    def action_fold(self) -> None:
        """Toggles whether machines with the same verdict share a row."""
        self.state.merges_similar = not self.state.merges_similar
        self.page.update()

    def action_try(self) -> None:
        machine = self.state.selected_machine
        if machine is not None and (remedy := cause_of(machine.cause[1]).remedy):
            self.app.copy_to_clipboard(remedy)

    def action_sort(self, steps: int) -> None:
        self._sort_by_column(cycle(ORDERS, self.state.selection.order, steps))

    def action_reverse(self) -> None:
        self._sort_by_column(self.state.selection.order)

    def _sort_by_column(self, name: str) -> None:
        """Sorts by this column; if it is the current one, reverses the order."""
        selection = self.state.selection
        reverse = name == selection.order and not selection.reverse
        self.state.selection = replace(selection, order=name, reverse=reverse)
        self.page.update()

    def action_metric(self, steps: int) -> None:
        self.state.metric = cycle([*FIELDS], self.state.metric, steps)
        self.page.update()

    async def action_filter(self) -> None:
        state, previous = self.state, self.state.selection.filter

        def preview(text: str) -> str:
            self._apply_filter(text)
            return f"{len(state.machines)} of {len(state.fleet.machines)}"

        hint = "words of names, causes or states: k07  pl1  silent"
        leave = partial(self._apply_filter, previous)
        await self.ask("filter", hint, preview, on_cancel=leave, text=previous)

    def _apply_filter(self, text: str) -> None:
        self.state.selection = replace(self.state.selection, filter=text[:MAX_FILTER_LENGTH])
        self.page.update()

    def action_back(self) -> None:
        if not self.leave_prompt():
            self._apply_filter("")

    async def action_open(self, verb: str = "") -> None:
        machine = self.state.selected_machine
        if machine is not None and machine.open_arguments:
            arguments = verb or machine.open_arguments[0], *machine.open_arguments[1:]

            async def work() -> None:
                await self._source.run_perftop(arguments)
                self.page.redraw()

            # A coroutine would be left over if the worker were replaced before it starts.
            _: Worker[None] = self.run_worker(work, group="open", exclusive=True)

    # --- the mouse

    async def on_click(self, event: events.Click) -> None:
        """Runs a clicked key, selects or opens (double click) a machine, or sorts by a heading."""
        state = self.state
        name = state.click_targets.get(event.y)
        if event.y == state.height - 1:
            await self.run_key(key_at(self._key_pieces, event.x))
        elif name:
            self._select(name)
            if event.chain > 1:
                await self.action_open()
        elif name is not None:
            column = column_at(fleet_views.table_columns(state), event.x)
            if column is not None and column.key in ORDERS:
                self._sort_by_column(column.key)

    def on_mouse_scroll_down(self) -> None:
        self.action_move(3)

    def on_mouse_scroll_up(self) -> None:
        self.action_move(-3)


class FleetSource(ScreenSource):
    def __init__(
        self, feed: FleetFeed, *, opener: RunPerftop | None = None, cpu_clock: Clock = process_time
    ) -> None:
        self._feed, self.run_perftop = feed, opener or self._run_on_terminal
        self._cost = CpuCost(cpu_clock)

    def make_screen(self) -> FleetScreen:
        feed = self._feed
        captions = keys.key_captions(self.app.config.keys)
        state = FleetState(
            feed.fleet, feed.shown_time_s, 80, 24, captions=captions, ascii=self.app.ascii
        )
        self.screen = FleetScreen(self, state)
        return self.screen

    async def read_data(self) -> None:
        try:
            await self._feed.run()
        except Failed as failed:
            self.app.failure = failed
            self.app.end_with_status(failed.status)

    def on_screen_ready(self) -> None:
        self.screen.set_interval(REFRESH_S, self._refresh)
        self._refresh()

    def _refresh(self) -> None:
        if not self.screen.state.pause_text or self._feed.shown_time_text:
            self.screen.page.update()

    def update_state(self, state: FleetState) -> None:
        feed = self._feed
        state.now, state.problem = feed.shown_time_s, safe_text(feed.problem, MAX_PROBLEM_LENGTH)
        state.update_s, state.origin = feed.update_s, feed.origin
        share = self._cost.cpu_share(monotonic_ns())
        own_text = f"own {0.0 if isnan(share) else 100 * share:.1f} % here"
        state.facts = (f"every {duration(feed.update_s)}", own_text, *feed.cost_texts())
        is_paused = state.pause_text == "paused"
        state.pause_text = feed.shown_time_text or ("paused" if is_paused else "")

    def step(self, steps: int) -> None:
        """Moves in time or, in the heat map, to another cell (there, `skip` moves in time)."""
        if self.screen.state.view == "heat":
            self.screen.action_move(0, steps)
        else:
            self.skip(steps)

    def skip(self, seconds: int) -> None:
        if self._feed.move_in_time(seconds):
            self.screen.page.update()

    def toggle_pause(self) -> None:
        state = self.screen.state
        self._feed.toggle_pause()
        if not self._feed.shown_time_text:
            state.pause_text = "" if state.pause_text else "paused"
        self.screen.page.update()

    async def _run_on_terminal(self, arguments: Sequence[str]) -> None:
        """Runs another perftop on this terminal. Meanwhile, the fleet is still read."""
        command = [sys.executable, "-P", "-m", "perftop", *arguments]
        with self.app.suspend():
            if arguments[0] == "why":
                name = safe_text(arguments[-1], MAX_PROBLEM_LENGTH)
                print(f"{name}: measuring for ten seconds …", flush=True)
            environment = os.environ | {FLEET_VARIABLE: "1"}
            child = await asyncio.create_subprocess_exec(*command, env=environment)
            try:
                status = await child.wait()
            except asyncio.CancelledError:
                child.terminate()
                raise
            if status not in {0, 130} or arguments[0] == "why":  # so that its output can be read
                print("\nany key: back to the fleet ", end="", flush=True)
                await wait_for_key()
