"""The list of episodes, with the start, length, kind, depth, CPUs and cause of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.message import Message

from perftop.base.text import clock_time, count_noun, cut, long_duration
from perftop.detect.low_clock_causes import LICENSE_COUNTERS
from perftop.draw import columns, theme
from perftop.draw.columns import Cell, Column, Run, total_width
from perftop.draw.strips import Line, panel_title, safe_cells
from perftop.model.confidence import evidence_text
from perftop.model.kinds import KINDS, STEAL_CAUSE, Episode
from perftop.output.sentences import (
    cause_name,
    cpus_text,
    depth_text,
    group_key,
    total_cost,
    victims,
)
from perftop.session.selection import is_reachable
from perftop.session.session import Session
from perftop.session.values import UNCOUNTED_REASON, lasting_reasons
from perftop.tui.shared import episode_style
from perftop.tui.shared.canvas import MARKS_WIDTH, CursorCanvas, mark_selected
from perftop.tui.shared.panels import PaneledView, cause_lines

MIN_WIDTH_FOR_KIND, MIN_WIDTH_FOR_DEPTH = 100, 116
"""Minimum widths of the list, in cells, for the columns of kind and depth. On narrower screens only
the sentence about the episode names them."""
MIN_HEIGHT_FOR_DETAILS = 12
"""Minimum height in lines of a view with details of the selected episode, and with a heading."""
MIN_DETAIL_LINES, MAX_DETAIL_LINES, MAX_WIDE_DETAIL_LINES = 5, 10, 7
"""Minimum and maximum number of lines about the selected episode. The third number is the maximum
on a wide screen, where the evidence needs fewer lines."""


def episode_columns(size: int) -> list[Column]:
    columns = [Column("start", "start", 13, is_left=True, gap=1), Column("length", "length", 10)]
    if size >= MIN_WIDTH_FOR_KIND:
        columns.append(Column("kind", "kind", 19, is_left=True))
    if size >= MIN_WIDTH_FOR_DEPTH:
        columns.append(Column("depth", "depth", 11))
    gap = 1 if columns[-1].is_left else 2
    room = max(1, size - MARKS_WIDTH - total_width(columns) - gap)
    return [*columns, Column("what", "what", room - 1 + gap, is_left=True, gap=gap)]


def kind_name(episode: Episode) -> str:
    """Returns the name of the episode's kind. Steal, which several detectors find, has one name."""
    return safe_cells(STEAL_CAUSE[0] if group_key(episode) == STEAL_CAUSE else episode.kind)


def episode_line(
    session: Session, episode: Episode, shown_columns: Sequence[Column], names: Sequence[str] | None
) -> list[Run]:
    """Returns the line of an episode. The line is dim if the episode is older than the history.
    `names`: the tasks that lose time during a running episode."""
    has_ended, in_history = episode.end_ns is not None, is_reachable(session, episode)
    severity = episode_style.severity_style(episode, has_ended=has_ended)
    time_style = severity if not has_ended else "text" if in_history else "dim"
    is_faded = has_ended and not (in_history and episode_style.is_loss(episode))
    style = "dim" if is_faded else severity
    text_style, room = style if has_ended else "bright", shown_columns[-1].room
    styles = style, text_style
    cells: dict[str, Cell] = {
        "start": (clock_time(session.unix_s(episode.start_ns)), time_style),
        "length": (duration_text(session, episode), time_style),
        "kind": (kind_name(episode), style),
        "depth": (depth_text(episode.kind, episode.depth), style),
        "what": episode_style.sentence_runs(session, [episode], room, names, styles),
    }
    return [
        (" ", "text"),
        (episode_style.marker(episode), "dim" if has_ended else severity),
        *columns.join_columns(shown_columns, [cells[column.key] for column in shown_columns]),
    ]


def detail_lines(
    session: Session, episode: Episode, width: int, height: int, names: Sequence[str] | None
) -> list[list[Run]]:
    """Returns exactly `height` lines about an episode: a title with kind, CPUs and times, the
    sentence, the cause and the evidence. `names`: the tasks that lose time."""
    start, end_ns = clock_time(session.unix_s(episode.start_ns)), episode.end_ns
    words = [cpus_text(session.topology, episode.cpus) if episode.cpus else "", start]
    if duration := duration_text(session, episode):
        words += [] if end_ns is None else [f"to {clock_time(session.unix_s(end_ns))}"]
        words.append(f"for {duration}")
    size = max(1, width - 2)
    name = f"{episode_style.marker(episode)} {kind_name(episode)}"
    title = panel_title(name, " ".join(filter(None, words)), size)
    styles = "text", "text"
    sentence = episode_style.sentence_runs(session, [episode], max(0, size - 2), names, styles)
    lines: list[list[Run]] = [
        [(" ", "text"), *title],
        [("   ", "text"), *sentence],
        *cause_lines(episode, size, max(0, height - 2), indent=3),
    ]
    return [*lines, *[[(" ", "text")]] * height][:height]


def heading_line(session: Session, episodes: Sequence[Episode], size: int) -> list[Run]:
    """Returns the heading: the length of the session, and the episodes in all and of each kind."""
    kinds = Counter(map(kind_name, episodes))
    counts = [(f"{kind.marker} {kinds[key]}", key) for key, kind in KINDS.items() if kinds[key]]
    count_texts = [" ".join(count) for count in counts]
    if marks := kinds["mark"]:
        count_texts.append(count_noun(marks, "mark"))
    total = f"{len(episodes)} in {long_duration(max(0, session.until_ns - session.hello.raw_ns))}"
    short_text = "  ".join([total, *(count for count, _ in counts)])
    candidates = ("   ".join([total, *count_texts]), short_text, total)
    length_text = next((text for text in candidates if len(text) <= size - 15), "")
    return [(" ", "text"), *panel_title("episodes", length_text, max(1, size - 2))]


def duration_text(session: Session, episode: Episode) -> str:
    """Returns the length of the episode as text; '' for one without length, such as a mark."""
    end_ns = session.until_ns if episode.end_ns is None else episode.end_ns
    has_length = episode.end_ns != episode.start_ns
    return long_duration(max(0, end_ns - episode.start_ns)) if has_length else ""


_DETECTABLE_KINDS = {
    "turbo-drop": ("turbo drops", (("busy_hz",), ("turbo_ceiling_hz",))),
    "throttle": ("thermal throttling", (
        ("limit_reasons", "core_thermal", "package_thermal", "modulation",
         "core_throttled_s", "package_throttled_s"),
    )),
    "involuntary-halt": ("involuntary halts", (("involuntary",),)),
    "neighbour": ("noisy neighbours", (("ipc", "steal"),)),
    "steal": ("steal", (("steal",),)),
    "license": ("SIMD clock licences", (LICENSE_COUNTERS,)),
    "smi": ("SMIs", (("smi",),)),
    "ramp": ("clock ramps", (("busy_hz",),)),
    "memory-stall": ("memory stalls", (("pressure_memory_s",),)),
    "interrupt": ("time in interrupts", (("tasks",),)),
    "quota": ("CPU quotas", (("tasks",),)),
    "stopped": ("stopped jobs", (("watch",),)),
}  # fmt: skip
"""By key of the kind: its name in the plural, and groups of counters, metrics or records. A kind
can be detected if the stream has at least one of each group."""


def empty_list_lines(session: Session, size: int, *, is_filtered: bool) -> list[list[Run]]:
    """Returns the lines shown if there are no episodes: the kinds that can be detected here, and
    the other kinds with the reasons why they cannot be detected."""
    missing_reasons = {m.what: m.why for m in lasting_reasons(session) if m.cpus is None}
    metrics = [key for key, variants in session.evaluator.variants.items() if variants]
    served_keys = {*session.counters.columns, *metrics}
    served_keys |= {"turbo_ceiling_hz", "tasks"} - missing_reasons.keys()
    served_keys |= {"watch"} if session.hello.watch else set()
    missing_reasons["watch"] = "no job is watched (--watch)"
    names_by_reason: dict[str, list[str]] = {}
    undetected: set[str] = set()
    for kind_key, (name, groups) in _DETECTABLE_KINDS.items():
        if missing_keys := next((keys for keys in groups if served_keys.isdisjoint(keys)), None):
            undetected.add(kind_key)
            reasons = (missing_reasons[key] for key in missing_keys if key in missing_reasons)
            names_by_reason.setdefault(next(reasons, UNCOUNTED_REASON), []).append(name)
    scope_text = "on the CPUs of the filter" if is_filtered else "so far"
    lines: list[list[Run]] = [[(f" no episodes {scope_text}; perftop detects:", "text")]]
    room = 0
    for key, kind in KINDS.items():
        if key not in undetected:
            piece = f"  {kind.marker} {key}"
            if len(piece) >= room:
                lines.append([])
                room = size
            lines[-1].append((piece, "dim"))
            room -= len(piece)
    for reason, names in names_by_reason.items():
        text = safe_cells(f" {theme.RULE} {', '.join(names)}: {reason}")
        lines.append([(cut(text, size), "dim")])
    return lines


class Episodes(PaneledView, CursorCanvas):
    HAS_LOSS_CHART: ClassVar[bool] = True
    HAS_OWN_ITEMS: ClassVar[bool] = True
    HINTS: ClassVar[tuple[str, ...]] = ("open", "previous_episode")

    @dataclass(eq=False)
    class Opened(Message):
        """Message: the user has asked to see the time of an episode."""

        episode: Episode

    OMITTED_PANEL = "happened"

    _columns: Sequence[Column] = ()
    _lines: Sequence[Episode] = ()
    _selected: int | None = None
    """The id() of the selected episode, which stays selected when its line moves."""
    _empty_lines: Sequence[list[Run]] = ()
    _ended_episodes: tuple[object, list[Episode]] = None, []
    """A cache: the sorted ended episodes, and the inputs that they were sorted from."""
    _is_from_click = False
    """Whether the episode was selected by a click in another view. A second click then opens it."""
    _refused: int | None = None
    """The id() of the episode that the user tried to open last, if it is older than the history."""
    _cursor_ns: int | None = None
    """Time of the time cursor (monotonic ns) for which an episode was last selected."""

    # --- lines from an interval

    def make_layout(self) -> None:
        self._columns = episode_columns(self.width)

    def make_lines(self) -> None:
        session = self.session
        self._lines = self._ordered_episodes(session)
        if self._selected_episode is None:
            self._selected = id(self._lines[0]) if self._lines else None
        if self.settings.cursor_ns != self._cursor_ns:
            self._cursor_ns = self.settings.cursor_ns
            at_cursor = set(map(id, episode_style.overlapping_episodes(session, self.interval)))
            candidates = [episode for episode in self._lines if id(episode) in at_cursor]
            is_selected = self._selected in at_cursor
            if self._cursor_ns is not None and candidates and not is_selected:
                self._selected = id(max(candidates, key=lambda e: total_cost([e])))
                self.call_after_refresh(self.scroll_to_cursor)
        self.header_lines = []
        if not self._lines:
            is_filtered = self.settings.mask is not None
            self._empty_lines = empty_list_lines(session, self.width, is_filtered=is_filtered)
        elif not self.is_tiny:
            heads = columns.headings(self._columns)
            if self.size.height >= MIN_HEIGHT_FOR_DETAILS:
                self.header_lines.append(heading_line(session, self._lines, self.width))
            self.header_lines.append([(" " * MARKS_WIDTH, "text"), *heads])
        self.line_count = len(self._lines) or len(self._empty_lines)
        detail_lines = self._selected_episode_lines(session)
        self.footer_lines = [*detail_lines, *self.make_panels(self.spare_lines - len(detail_lines))]

    def _selected_episode_lines(self, session: Session) -> list[Line]:
        episode, refusal = self._selected_episode, list[Run]()
        if episode is None or self.is_tiny:
            return []
        first_ns = session.past.first_ns
        if self._refused == self._selected and first_ns is not None:
            start_text = clock_time(session.unix_s(first_ns))
            text = f" that moment is no longer kept: history begins at {start_text}"
            refusal = [(text, "text")]
        if self.size.height < MIN_HEIGHT_FOR_DETAILS:
            cause = cause_name(episode.kind, episode.cause)
            parts = filter(None, (cause, evidence_text(episode.cause, episode.evidence)))
            reason = cut(safe_cells(" · ".join(parts)), max(1, self.width - 2))
            return [(refusal or [(" ", "text"), (reason, "text")], "chosen")]
        is_wide = self.width >= MIN_WIDTH_FOR_DEPTH
        quarter = (self.size.height - len(self.header_lines)) // 4
        height = min(
            MAX_WIDE_DETAIL_LINES if is_wide else MAX_DETAIL_LINES, max(MIN_DETAIL_LINES, quarter)
        )
        lines = detail_lines(session, episode, self.width, height, self._names(episode))
        lines[-1] = refusal or lines[-1]
        return [(runs, "calm") for runs in lines]

    def _ordered_episodes(self, session: Session) -> list[Episode]:
        """Returns the episodes on the CPUs of the filter: the running ones, the costliest first,
        then the ended ones, the newest first, which do not change and are sorted only once."""
        mask = self.settings.mask
        cpus = None if mask is None else {session.topology[row].cpu for row in mask}

        def key(episode: Episode) -> tuple[float, ...]:
            runs = episode.end_ns is None
            return not runs, -total_cost([episode]) if runs else 0.0, -episode.start_ns

        def sort(episodes: list[Episode]) -> list[Episode]:
            listed = episode_style.drop_duplicate_losses(episodes)
            if cpus is not None:
                listed = [e for e in listed if not e.cpus or not cpus.isdisjoint(e.cpus)]
            return sorted(listed, key=key)

        ended_and_marks = [*session.ended, *session.marks]
        inputs = cpus, len(ended_and_marks), *map(id, (*ended_and_marks[:1], *ended_and_marks[-1:]))
        if inputs != self._ended_episodes[0]:
            self._ended_episodes = inputs, sort(ended_and_marks)
        return [*sort(session.log.listed_running), *self._ended_episodes[1]]

    def line(self, y: int) -> Line:
        if not self._lines:
            return self._empty_lines[y], "calm"
        episode = self._lines[y]
        runs = episode_line(self.session, episode, self._columns, self._names(episode))
        is_selected = id(episode) == self._selected
        return mark_selected((runs, "calm")) if is_selected else (runs, "calm")

    def _names(self, episode: Episode) -> list[str] | None:
        """Returns the tasks that lose time because of a running episode; None for ended ones."""
        is_running = episode.end_ns is None
        return victims(self.session, [episode], self.interval.tasks) if is_running else None

    # --- the cursor

    def select_episode(self, episode: Episode) -> None:
        """Selects this episode, if it is in the list, after a click on it in another view."""
        self._selected, self._is_from_click = id(episode), True
        self.lay_out()

    @property
    def _selected_episode(self) -> Episode | None:
        return next((e for e in self._lines if id(e) == self._selected), None)

    def cpu_of_line(self, _: int) -> int | None:
        """Returns the core that is already selected: only Enter selects an episode's core."""
        return self.settings.cpu

    def item_of_line(self, y: int) -> int | None:
        return id(self._lines[y]) if y < len(self._lines) else None

    def action_move(self, steps: int) -> None:
        self._refused = None
        super().action_move(steps)
        self.draw()

    def on_click(self, event: events.Click) -> None:
        """Opens the episode at the second click if the first click was on another view."""
        if event.chain == 2 and self._is_from_click:
            event.prevent_default()
            self.open_core()
        self._is_from_click = False

    def handle_enter(self) -> bool:
        """Goes to the time of the selected episode, and selects one of its cores, preferably the
        core that is already selected. Returns whether the episode is on a core that is shown."""
        episode = self._selected_episode
        if episode is None:  # nothing is listed, perhaps because there is no sample yet
            return False
        session = self.session
        if not is_reachable(session, episode):
            self._refused = self._selected
            self.draw()
            return False
        affected_cpus = set(episode.cpus)
        rows = [row.cpus for row in self.cores.rows if not affected_cpus.isdisjoint(row.cpus)]
        if rows:
            self.settings.cpu = next((c[0] for c in rows if self.settings.cpu in c), rows[0][0])
        self.post_message(self.Opened(episode))
        return bool(rows)
