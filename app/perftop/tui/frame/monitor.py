"""The main screen: lines about the machine, one view, the output of a command, and the line of
keys. The screen changes the settings that all views share."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType

from perftop.base.text import UNITS, clock_time, cut, duration
from perftop.draw.strips import safe_cells
from perftop.session.interval import Interval
from perftop.session.selection import typed_moment
from perftop.tui.frame import top
from perftop.tui.frame.bottom import KeyLine, MissingMetricsLine, PromptScreen, ShownKeys
from perftop.tui.frame.top import AppStatus, PlaybackControls, ScreenState, TopLines
from perftop.tui.shared import keys
from perftop.tui.shared.canvas import TOUR_NOTES, Canvas
from perftop.tui.shared.cores import ORDERS
from perftop.tui.shared.row_numbers import (
    GROUPINGS,
    WINDOWS_S,
    ViewSettings,
    metric_fields,
    order_name,
)

if TYPE_CHECKING:
    from perftop.process.job_terminal import OutputLines
    from perftop.tui.frame.command_output import Extent, OutputPane
    from perftop.tui.views.episodes import Episodes

FLEET_VARIABLE = "PERFTOP_FLEET"
"""Environment variable with which `perftop fleet` makes Esc return to the fleet."""
_EXTENTS: Sequence[Extent] = "small", "whole", "hidden"
MAX_CPUS_IN_ROWS = 64
"""Maximum number of CPUs of a machine that is first shown in the overview, not in the heat map."""
MAX_FILTER_LENGTH = 24
"""Maximum characters of the filter in the line of keys."""


_VIEWS = {
    "overview": "overview.overview:Overview", "heat": "views.heat_map:HeatMap",
    "time": "views.timeline:Timeline", "table": "views.table:Table",
    "episodes": "views.episodes:Episodes", "neighbours": "views.neighbours:Neighbours",
    "core": "overview.core_page:CorePage",
}  # fmt: skip


def make_view(name: str, settings: ViewSettings) -> Canvas:
    """Returns a new view with this name, which is also its id. Its module is imported only now, so
    that the first numbers do not wait for the modules of all views."""
    module, _, class_name = _VIEWS[name].partition(":")
    view_class: type[Canvas] = getattr(import_module(f"perftop.tui.{module}"), class_name)
    return view_class(settings, id=name)


_VALUES: Mapping[str, Sequence[str]] = {"order": ORDERS, "units": UNITS, "grouping": GROUPINGS}
"""The values of settings through which a key cycles."""
Value = TypeVar("Value")


def cycle(
    values: Sequence[Value], value: object, steps: int = 1, *, default_index: int = -1
) -> Value:
    """Returns the value `steps` after `value`, cyclically, or after the value at `default_index` if
    `value` is not in the list."""
    index = values.index(value) if value in values else default_index
    return values[(index + steps) % len(values)]


class Monitor(PromptScreen):
    AUTO_FOCUS = "#overview"
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [*keys.bindings("monitor")]

    def __init__(self, settings: ViewSettings, controls: PlaybackControls) -> None:
        super().__init__()
        self.settings, self._controls = settings, controls
        self.view = make_view("overview", settings)
        self._views = {"overview": self.view}
        self._previous_view_id = "overview"
        """The id of the view to which Esc returns from the page of a core."""
        self.last_state = ScreenState(None, None, AppStatus(0))
        self.output_pane: OutputPane | None = None
        self._offered_remedy = ""
        """The remedy that was shown last, which a second press of the key copies; '' if none."""
        self._range_start_ns: int | None = None
        """Start of the range that the user has begun to select (monotonic ns), if any."""
        self._top = TopLines(settings, id="top")
        self._missing_line = MissingMetricsLine(settings, id="missing")
        self._keys = KeyLine(settings, id="keys")

    def compose(self) -> ComposeResult:
        yield self._top
        yield self.view
        yield self._missing_line
        yield self._keys

    def on_resize(self, _: events.Resize) -> None:
        hides_keys = self.app.size.height < top.MIN_HEIGHT_FOR_KEYS
        self.set_class(hides_keys, "-tiny")
        self._missing_line.lay_out()
        if hides_keys != self.view.is_tiny:
            for view in self._views.values():
                view.is_tiny = hides_keys
            self.view.lay_out()

    # --- new numbers

    def show_state(self, state: ScreenState) -> None:
        """Stores this state, and immediately draws the lines that have changed."""
        previous_state, self.last_state = self.last_state, state
        if state.session is not previous_state.session:
            self._missing_line.show(state)
        if previous_state.interval is None and state.interval is not None:
            self._top.show(state)  # the lines above the view now have other heights
            self._clear_arrangement_cache()
            self._refresh_layout()  # Textual alone would wait 25 ms for further changes
            session = state.session
            if session is not None and len(session.selected) > MAX_CPUS_IN_ROWS:
                self.call_later(self.action_view, "heat")
        self._place_cursor(previous_state.interval)
        with self.collect_lines():
            self._top.show(state)
            is_stale = state.status.failure_text is not None
            if is_stale != self.settings.is_stale:
                self.settings.is_stale = is_stale
                self.view.lay_out()
            is_new = state.interval is not previous_state.interval
            is_new |= state.now is not previous_state.now
            replays = [s.status.replay for s in (state, previous_state)]
            indexed, previously_indexed = (replay and replay.indexed_share for replay in replays)
            if is_new or indexed != previously_indexed:
                self.settings.update_mask(state.session, state.interval)
                self._show_view()
            self._show_keys()

    def _place_cursor(self, previous: Interval | None = None) -> None:
        """Puts the time cursor at the shown moment while paused. Charts do not move as long as the
        cursor and the selected range are within their window, which is widened for a long range."""
        settings, interval, status = self.settings, self.last_state.interval, self.last_state.status
        settings.now = self.last_state.now
        if status.paused_at is None or interval is None:
            settings.pinned_ns = settings.cursor_ns = settings.range_ns = None
            settings.held_range = self._range_start_ns = None
            return
        settings.cursor_ns = time_ns = interval.time_ns
        settings.range_ns, start_ns = None, time_ns
        if status.is_range:
            start_ns = time_ns - round(interval.elapsed_s * 1e9)
            settings.range_ns = start_ns, time_ns
        fitting_s = (s for s in WINDOWS_S if s * 1e9 >= time_ns - start_ns)
        settings.window_s = max(settings.window_s, next(fitting_s, WINDOWS_S[-1]))
        if settings.pinned_ns is None and previous is not None:
            settings.pinned_ns = previous.time_ns
        newest_ns = settings.pinned_ns or time_ns
        if not newest_ns - settings.window_s * 1e9 <= start_ns <= time_ns <= newest_ns:
            settings.pinned_ns = time_ns

    def on_canvas_time_picked(self, message: Canvas.TimePicked) -> None:
        if message.first_ns == message.last_ns:
            self._controls.go_to(message.last_ns)
        else:
            self._controls.select_range(message.first_ns, message.last_ns)

    def action_set_range(self, end: bool) -> None:
        """Starts a range at the shown moment, or ends it there and shows its numbers."""
        session, interval = self.last_state.session, self.last_state.interval
        if session is None or interval is None:
            return
        if not end:
            self._range_start_ns = interval.time_ns
            self._controls.go_to(interval.time_ns)
            ends = self.settings.captions["range_end"]
            self._controls.show_notice(
                f"range from {clock_time(interval.time)}: move, then {ends} ends it"
            )
        elif self._range_start_ns is None or self._range_start_ns == interval.time_ns:
            self._controls.show_notice(
                f"{self.settings.captions['range_start']} starts a range, then move"
            )
        else:
            self._controls.select_range(*sorted((self._range_start_ns, interval.time_ns)))

    def action_hold_range(self) -> None:
        """Keeps the selected range as A, with which the next selected range, B, is compared."""
        settings, interval = self.settings, self.last_state.interval
        if settings.range_ns is None or interval is None:
            self._controls.show_notice("select a range first: drag in a chart")
            return
        settings.held_range = interval, self._top.verdict
        self._controls.show_notice("range held as A: now select B to compare them")
        self.refresh_view()

    def refresh_view(self) -> None:
        """Lays out and draws the view after a setting has changed or earlier samples were added."""
        self._show_view(settings_changed=True)
        self._show_keys()

    def _show_view(self, *, settings_changed: bool = False) -> None:
        session, interval = self.last_state.session, self.last_state.interval
        if session is not None and interval is not None:
            self.view.show_interval(session, interval, settings_changed=settings_changed)

    def _show_keys(self) -> None:
        status, settings, view = self.last_state.status, self.settings, self.view.id or ""
        order = order_name(settings.order) + " reversed" * settings.reverse
        labels = {"longer": duration(status.interval_ns / 1e9), "order": order}
        replay = status.replay
        if status.paused_at is not None if replay is None else not replay.is_playing:
            labels["pause"] = "resume" if replay is None else "play"
        min_hints = [] if self.output_pane is None else ["output"]
        if (shown_filter := self.settings.filter) is not None:
            prompt, matches = self.prompt, self.settings.match_text(self.last_state.session)
            if prompt and prompt.is_asking("filter") and prompt.text.strip() == shown_filter.text:
                prompt.explain(matches)
            text = cut(safe_cells(shown_filter.text), MAX_FILTER_LENGTH)
            labels["clear"] = f"all · {text} · {matches}"
            min_hints.insert(0, "clear")
        if view in keys.SORTABLE_VIEWS and (settings.order != ORDERS[0] or settings.reverse):
            min_hints.append("order")
        hints = *min_hints, *self.view.hints
        shown = ShownKeys(view, hints, labels, len(min_hints), replay is not None)
        if shown != self._keys.shown:
            self._keys.shown = shown
            self._keys.update()

    @property
    def main_widget(self) -> Canvas:
        return self.view

    def _end_notes(self, key: str = "") -> None:
        """Removes the note that explains this key to new users; '': all notes."""
        notes = self.settings.tour_notes
        remaining_notes = [note for note in notes if key and TOUR_NOTES[note][0] != key]
        if remaining_notes != notes:
            self.settings.tour_notes = remaining_notes
            self._top.show(self.last_state)
            self._missing_line.redraw()
            self._show_view()

    # --- views

    async def action_view(self, name: str) -> None:
        if not self.is_attached:  # a click or the first numbers came just before the app quit
            return
        self._end_notes(name)
        pane = self.output_pane
        if pane is not None and pane.extent == "whole":  # the command's output hides the view
            self._set_output_extent("small")
        if name == self.view.id or (name == "core" and self.settings.cpu is None):
            return
        if name not in self._views:
            new_view = self._views[name] = make_view(name, self.settings)
            new_view.is_tiny = self.view.is_tiny
            await self.mount(new_view, after=self._top)
        if self.view.id != "core" and self.view.id is not None:
            self._previous_view_id = self.view.id
        self.view.display = False
        self.view = self._views[name]
        self.view.display = True
        self.view.focus()
        self.refresh_view()

    async def action_cycle_view(self, steps: int) -> None:
        await self.action_view(cycle(keys.VIEW_ORDER, self.view.id, steps, default_index=0))

    async def action_open(self) -> None:
        if self.view.handle_enter():
            await self.action_view("core")

    async def on_canvas_episode_clicked(self, message: Canvas.EpisodeClicked) -> None:
        from perftop.tui.views.episodes import Episodes

        await self.action_view("episodes")
        if isinstance(self.view, Episodes):
            self.view.select_episode(message.episode)

    async def action_back(self) -> None:
        if self.leave_prompt():
            return
        if self.settings.tour_notes:
            self._end_notes()
        elif self.view.id == "core":
            await self.action_view(self._previous_view_id)
        elif self.settings.filter is not None:
            self.action_clear()
        elif self.settings.held_range is not None:
            self.settings.held_range = None
            self.refresh_view()
        elif self.last_state.status.paused_at is not None:
            if self.settings.range_ns is not None:
                self._controls.go_to(self.settings.range_ns[1])
            else:
                self._controls.toggle_pause()
        elif os.environ.get(FLEET_VARIABLE):
            await self.app.action_quit()

    def action_help(self) -> None:
        from perftop.tui.frame.overlays import stream_help

        bindings = [active_binding.binding for active_binding in self.active_bindings.values()]
        session = self.last_state.session
        self.app.push_screen(stream_help(session, bindings))

    def action_why(self) -> None:
        """Shows the report whose first line is the verdict."""
        from perftop.tui.frame.overlays import why_screen

        self._end_notes("report")
        session, verdict = self.last_state.session, self._top.verdict
        if session is None or verdict is None or verdict.report is None:
            self._controls.show_notice("no verdict yet")
        else:
            self.app.push_screen(why_screen(verdict.report))

    def action_try(self) -> None:
        """Shows the remedy for the loss selected in the view, or for the worst loss; when repeated,
        copies it. With a selected range, copies the range."""
        session, range_ns = self.last_state.session, self.settings.range_ns
        if session is not None and range_ns is not None:
            start, end = (clock_time(session.unix_s(ns)) for ns in range_ns)
            self.app.copy_to_clipboard(f"--from {start} --to {end}")
            self._controls.show_notice(f"copied: --from {start} --to {end}")
            return
        remedy = self.view.remedy
        if remedy is None:
            remedy = self._top.verdict.remedy if self._top.verdict is not None else ""
        if not remedy:
            self._controls.show_notice("no remedy is known for this")
        elif remedy == self._offered_remedy:
            self._offered_remedy = ""
            self.app.copy_to_clipboard(remedy)
            self._controls.show_notice(f"copied: {remedy}")
        else:
            self._offered_remedy = remedy
            self._controls.show_notice(f"try: {remedy} ({self.settings.captions['try']} copies it)")

    # --- the output of a command, below the view or instead of it

    async def show_output(
        self, output_lines: OutputLines, resize: Callable[[int, int], None]
    ) -> None:
        """Shows new output of the command in a pane, which is created at the first call. `resize`:
        called with the pane's size, in columns and lines of output."""
        if self.output_pane is None:
            from perftop.tui.frame.command_output import OutputPane

            caption = self.settings.captions["output"]
            self.output_pane = OutputPane(output_lines, caption, resize)
            await self.mount(self.output_pane, after=self.view)
            self.refresh_view()
        self.output_pane.show()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        is_available = action != "output" or self.output_pane is not None
        if action in {"sort_menu", "reverse"} or parameters == ("order",):
            is_available = self.view.id in keys.SORTABLE_VIEWS
        return is_available and super().check_action(action, parameters)

    def action_output(self) -> None:
        if self.output_pane is not None:
            self._set_output_extent(cycle(_EXTENTS, self.output_pane.extent))

    def _set_output_extent(self, extent: Extent) -> None:
        """Sets how much of the screen the output fills; "whole" hides the view."""
        assert self.output_pane is not None
        self.output_pane.set_extent(extent)
        self.view.display = extent != "whole"
        (self.output_pane if extent == "whole" else self.view).focus()
        self.refresh_view()

    # --- choices: order, metric, units, window and columns

    def action_cycle(self, setting: str, value: str = "") -> None:
        """Sets this setting to this value, or to the next value if none is given."""
        value = value or cycle(_VALUES[setting], getattr(self.settings, setting))
        setattr(self.settings, setting, value)
        self.refresh_view()

    def action_sort(self, key: str | None) -> None:
        """Sorts in this order; None, from a menu that the user has left, changes nothing."""
        if key is not None:
            self.settings.order, self.settings.reverse = key, False
            self.refresh_view()

    def action_reverse(self) -> None:
        self.settings.reverse = not self.settings.reverse
        self.refresh_view()

    def action_metric(self, metric: int | str) -> None:
        """Shows the metric with this key, or the metric this many places further in the list."""
        if self.last_state.session is None:
            return
        field_keys = [field.key for field in metric_fields(self.last_state.session)]
        if isinstance(metric, int):
            metric = cycle(field_keys, self.settings.metric, metric, default_index=0)
        self.settings.metric = metric
        self.refresh_view()

    def action_go_to_cpu(self, cpu: int) -> None:
        session = self.last_state.session
        cores = session.cores if session is not None else []
        self.settings.cpu = next((core[0] for core in cores if cpu in core), self.settings.cpu)
        self.refresh_view()

    def action_resize_window(self, steps: int) -> None:
        index = WINDOWS_S.index(self.settings.window_s) + steps
        self.settings.window_s = WINDOWS_S[max(0, min(len(WINDOWS_S) - 1, index))]
        self._place_cursor()
        self.refresh_view()

    def action_sort_menu(self) -> None:
        # imported late, because Textual's list is slow to import
        from perftop.tui.frame.overlays import sort_menu

        if (session := self.last_state.session) is not None:
            menu = sort_menu(session, self.settings, is_table=self.view.id == "table")
            self.app.push_screen(menu, self.action_sort)

    def action_columns(self) -> None:
        from perftop.tui.frame.overlays import column_chooser, column_order

        session, settings = self.last_state.session, self.settings

        def apply_choice(ticked_keys: set[str] | None) -> None:
            if ticked_keys is not None and session is not None:
                settings.columns = column_order(session, settings.columns, ticked_keys)
                self.refresh_view()

        if session is not None:
            self.app.push_screen(column_chooser(session, settings), apply_choice)

    # --- other moments

    def action_go_to_episode(self, direction: int) -> None:
        """Goes to the next (`direction` = 1) or previous (-1) episode on the core whose page is
        shown, or on CPUs that match the filter."""
        self._end_notes("next_episode")
        session, settings = self.last_state.session, self.settings
        if session is None:
            return
        cpus: list[int] | None = None
        if self.view.id == "core":
            cpus = next((core for core in session.cores if settings.cpu in core), [])
        elif settings.mask is not None:
            cpus = [session.topology[row].cpu for row in settings.mask]
        self._controls.go_to_episode(direction, cpus)

    def on_episodes_opened(self, message: Episodes.Opened) -> None:
        self._controls.show_episode(message.episode)

    # --- the prompt: a time, a name, a filter

    async def action_jump(self) -> None:
        session, shown_interval = self.last_state.session, self.last_state.interval
        if session is None or shown_interval is None:
            return

        def moment(text: str) -> int:
            replay = self.last_state.status.replay
            recording_span_ns = None if replay is None else replay.recording_span_ns
            return typed_moment(text, session, shown_interval, recording_span_ns)

        def preview(text: str) -> str:
            return clock_time(session.unix_s(moment(text)))

        def go(text: str) -> None:
            self._controls.go_to(moment(text))

        await self.ask("jump to", "12:03:05  12:03  -30s", preview, on_accept=go)

    async def action_mark(self) -> None:
        """Asks for the label of a mark at the shown moment, or of two marks at the start and the
        end of the selected range. The time of the mark is that of the key press."""
        session, interval = self.last_state.session, self.last_state.interval
        if session is None or interval is None:
            return
        time_ns = session.now_ns if self.last_state.status.paused_at is None else interval.time_ns
        range_ns = self.settings.range_ns
        time_text = " to ".join(clock_time(session.unix_s(ns)) for ns in range_ns or (time_ns,))

        def accept(text: str) -> None:
            self._controls.add_mark(time_ns if range_ns is None else range_ns[0], text)
            if range_ns is not None:
                self._controls.add_mark(range_ns[1], f"{text} end" if text else "")
                self._controls.select_range(*range_ns)

        hint = "a name; if empty, the mark gets a number"
        await self.ask("mark", hint, lambda _: time_text, on_accept=accept)

    async def action_filter(self, text: str = "") -> None:
        """Asks for a filter. The prompt contains `text` or, without it, the current filter."""
        settings = self.settings
        if self.last_state.session is None or (self.prompt and self.prompt.is_asking("filter")):
            return
        previous = settings.filter, settings.cpu

        def preview(text: str) -> str:
            """Applies the text if it is a filter and some CPU matches it."""
            try:
                settings.set_filter(text, previous[1])  # an earlier text may have hidden this core
            except ValueError:
                leave()
                raise
            settings.update_mask(self.last_state.session, self.last_state.interval)
            matches = settings.match_text(self.last_state.session)
            if settings.filter is not None and not settings.mask:
                settings.filter, settings.cpu = previous
            self._apply_filter()
            return matches

        def accept(text: str) -> None:
            settings.set_filter(text, previous[1])
            self._apply_filter()

        def leave() -> None:
            settings.filter, settings.cpu = previous
            self._apply_filter()

        text = text or (settings.filter.text if settings.filter else "")
        hint = "0-15,32  pkg:1  busy>80  postgres"
        await self.ask("filter", hint, preview, on_accept=accept, on_cancel=leave, text=text)

    def action_clear(self) -> None:
        self.settings.filter = None
        self._apply_filter()

    def _apply_filter(self) -> None:
        self.settings.update_mask(self.last_state.session, self.last_state.interval)
        self.refresh_view()
