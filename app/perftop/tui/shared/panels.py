"""Panels, which fill spare lines at the bottom of a view, and the panel "what happened".
A panel is a function that returns lines with click targets."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from math import ceil
from typing import ClassVar, Literal

from perftop.base.text import fit, long_duration
from perftop.draw.columns import Run
from perftop.draw.strips import (
    BLANK,
    Line,
    merge_runs,
    panel_title,
    safe_cells,
    wrap_line,
)
from perftop.model.confidence import evidence_text
from perftop.model.kinds import Episode
from perftop.output.sentences import cause_name
from perftop.output.sentences import group_key as cause_key
from perftop.session.interval import Interval
from perftop.session.losses import FIRST_VERDICT_NS, VERDICT_SPAN_NS
from perftop.session.session import Session
from perftop.session.values import has_few_ticks
from perftop.tui.shared import episode_style, loss_panels, tables
from perftop.tui.shared.canvas import (
    EPISODES_NOTE,
    MIN_HEIGHT_FOR_NEXT_NOTE,
    Canvas,
    ClickTarget,
    PanelLine,
    has_note_rows,
    note_line,
)
from perftop.tui.shared.core_numbers import core_panel
from perftop.tui.shared.episode_style import (
    CLOCK_WIDTH,
    MAX_START_GAP_NS,
    MIN_WIDTH_FOR_EVIDENCE,
    drop_duplicate_losses,
    group_episodes,
)
from perftop.tui.shared.row_numbers import ViewSettings
from perftop.tui.shared.tables import INDENT, MIN_HEIGHT_FOR_HEADINGS, title_key
from perftop.tui.shared.time_axis import REDRAW_PERIOD_NS
from perftop.tui.shared.verdict import Verdict, verdict_at

MIN_HEIGHT, MIN_HEIGHT_BELOW_CHART = 4, 13
"""Minimum height in lines of a panel, for a title and three lines; and of the panels below the
chart of losses, for all lines of the selected core."""
# --- what happened

_LABEL_WIDTH = 10
"""Width of the labels "cause" and "evidence", in cells."""
_EVIDENCE_LINES = 3
"""Lines for the cause and the evidence of a running episode, before those of causes ruled out."""
TASK_RECORD_NS = 1_000_000_000
"""Time in ns between two records of tasks and of the kernel's coarse times."""
MAX_ENDED_EPISODES = 64
"""Maximum number of ended episodes that are read (the newest ones); no panel has more lines."""
MAX_SHORT_STEAL_NS = 1_000_000_000
"""Maximum length in ns of steals that share a line even if they began at different times.
Otherwise, frequent short steals would fill the list."""


@dataclass(frozen=True, slots=True)
class EpisodeGroups:
    """The running and the ended episodes at the end of an interval, in groups of one line each."""

    running_groups: list[list[Episode]]
    ended_groups: list[list[Episode]]
    count: int
    """Number of all episodes so far, as in the list of episodes."""


def episode_panel(
    session: Session, interval: Interval, settings: ViewSettings, size: int, height: int,
    cpus: frozenset[int] | None = None,
) -> list[PanelLine]:  # fmt: skip
    """Returns the panel "what happened", which lists the episodes so far or those of the selected
    range. `cpus`: only episodes on these CPUs; None: all episodes, and the causes that are ruled
    out."""
    since_ns = None if settings.range_ns is None else settings.range_ns[0]
    groups = episode_groups(session, interval, cpus, since_ns)
    start_ns = session.hello.raw_ns if since_ns is None else since_ns
    duration = long_duration(max(0, interval.time_ns - start_ns))
    count_text = f"{groups.count or 'no episode'} in {duration}"
    key = title_key(settings.captions["episodes"], "all", size)
    lines: list[PanelLine] = [(panel_title("what happened", count_text, size, key), None)]
    if height - len(lines) >= MIN_HEIGHT_FOR_HEADINGS - 1 and groups.count:
        heading = fit(" " * INDENT + f"{'since':<{CLOCK_WIDTH}}  what", size - 8)
        lines.append(([(heading + "how long"[: max(0, size)], "dim")], None))
    room = max(0, height - len(lines))
    ruled_out: list[PanelLine] = []
    if cpus is None:
        verdict = verdict_at(session, interval, is_range=settings.range_ns is not None)
        spare_lines = room - len(groups.running_groups) - min(len(groups.ended_groups), room // 2)
        if groups.running_groups and size >= MIN_WIDTH_FOR_EVIDENCE:
            spare_lines = max(min(1, spare_lines), spare_lines - _EVIDENCE_LINES)
        ruled_out = [(runs, None) for runs in ruled_out_lines(verdict, size, spare_lines)]
        ruled_out += [(runs, None) for runs in pending_lines(session, interval, size, spare_lines)]
    room -= len(ruled_out)
    running_groups = groups.running_groups[:room]
    spare_lines = room - len(running_groups) - min(len(groups.ended_groups), room // 2)
    for group in running_groups:
        lines.append((episode_style.group_line(session, interval, group, size), group[0]))
        if size >= MIN_WIDTH_FOR_EVIDENCE and spare_lines > 0:
            reason_lines = cause_lines(group[0], size, spare_lines)
            spare_lines -= len(reason_lines)
            lines += [(runs, group[0]) for runs in reason_lines]
    lines += [
        (episode_style.group_line(session, interval, group, size), group[0])
        for group in groups.ended_groups[: max(0, height - len(lines) - len(ruled_out))]
    ]
    return [*lines, *ruled_out]


def ruled_out_lines(verdict: Verdict | None, size: int, room: int) -> list[list[Run]]:
    """Returns the causes that cost less than those that the verdict names: under a title with its
    span or, if `room` is too little for one, in one line."""
    if verdict is None or verdict.report is None or room < 1:
        return []
    text, width = " · ".join(verdict.report.ruled_out_losses), size - INDENT
    if room <= MIN_HEIGHT or not text:
        return [[(" " * INDENT + fit(f"ruled out: {text}", width), "dim")]] if text else []
    title = panel_title("ruled out", f"in {long_duration(verdict.report.span_ns)}", size)
    lines = [[(" " * INDENT + line, "dim")] for line in wrap_line(text, max(1, width))]
    return [[], title, *lines][:room]


def pending_lines(session: Session, interval: Interval, size: int, room: int) -> list[list[Run]]:
    """Returns what a live session does not know before its first verdict, and when it will be
    known."""
    seen_ns = interval.time_ns - session.run.start_ns
    if session.is_past(interval) or seen_ns >= FIRST_VERDICT_NS:
        return []
    first_s, firm_s = (ceil((ns - seen_ns) / 1e9) for ns in (FIRST_VERDICT_NS, VERDICT_SPAN_NS))
    texts = [f"first verdict in {first_s} s, a firm one in {firm_s} s"]
    if seen_ns < TASK_RECORD_NS:
        has_ticks = not session.evaluator.variants["user"] or not has_few_ticks(interval).any()
        texts += [] if has_ticks else ["user and kernel time within 1 s"]
        texts += [] if interval.snapshot.tasks else ["tasks within 1 s"]
    lines = wrap_line(" · ".join(texts), max(1, size - INDENT))[: max(0, room - 1)]
    title = panel_title("not known yet", "", size)
    return [title, *([(" " * INDENT + line, "dim")] for line in lines)] if lines else []


def episode_groups(
    session: Session, interval: Interval, cpus: frozenset[int] | None = None,
    since_ns: int | None = None,
) -> EpisodeGroups:  # fmt: skip
    """Returns the groups of episodes at the end of the interval. `cpus`: only episodes on these
    CPUs; `since_ns`: only episodes after this raw time in ns. With either, only the newest
    MAX_ENDED_EPISODES ended ones are searched."""
    now_ns = interval.time_ns
    ended, marks = session.ended, session.marks
    ended_count = bisect_right(ended, now_ns, key=lambda e: e.end_ns or 0)
    mark_count = bisect_right(marks, now_ns, key=lambda e: e.start_ns)
    ended_episodes = ended[max(0, ended_count - MAX_ENDED_EPISODES) : ended_count]
    ended_episodes += marks[max(0, mark_count - MAX_ENDED_EPISODES) : mark_count]
    ended_episodes.sort(key=lambda e: -e.start_ns)
    older_count = ended_count + mark_count - len(ended_episodes)
    if session.log.recording is None:  # the log has dropped old episodes
        older_count += session.log.dropped_count
    listed = session.log.listed_in_range(now_ns, now_ns)
    running = [e for e in listed if episode_style.is_running_at(e, now_ns)]
    if cpus is not None:
        running, ended_episodes = (
            [e for e in episodes if e.kind == "mark" or not cpus.isdisjoint(e.cpus)]
            for episodes in (running, ended_episodes)
        )
        older_count = 0
    if since_ns is not None:
        ended_episodes = [e for e in ended_episodes if (e.end_ns or e.start_ns) >= since_ns]
        older_count = 0
    running, ended_episodes = drop_duplicate_losses(running), drop_duplicate_losses(ended_episodes)
    count = len(running) + len(ended_episodes) + older_count
    return EpisodeGroups(group_episodes(running), _group_by_start(ended_episodes), count)


def _group_by_start(newest: Iterable[Episode]) -> list[list[Episode]]:
    """Groups episodes with one cause that began together, and short steals from the same CPUs.
    `newest`: the episodes, the newest first."""
    groups: list[list[Episode]] = []
    last_group: dict[tuple[str, str], list[Episode]] = {}
    for episode in newest:
        key = cause_key(episode)
        group = last_group.get(key) if episode.kind != "mark" else None
        last = group[-1] if group else episode
        is_short = all((e.end_ns or 0) - e.start_ns <= MAX_SHORT_STEAL_NS for e in (episode, last))
        are_short_steals = is_short and episode.kind == "steal" and episode.cpus == last.cpus
        if group and (last.start_ns - episode.start_ns <= MAX_START_GAP_NS or are_short_steals):
            group.append(episode)
        else:
            last_group[key] = [episode]
            groups.append(last_group[key])
    return groups


def cause_lines(
    episode: Episode, size: int, height: int, indent: int = INDENT + CLOCK_WIDTH + 2
) -> list[list[Run]]:
    """Returns the cause and the evidence of an episode in at most `height` lines of `size` cells,
    each with its label. An ellipsis marks cut evidence."""
    cause_text = cause_name(episode.kind, episode.cause)
    if cause_text and episode.confidence != "unknown":
        cause_text = f"{cause_text}, {episode.confidence}"
    text = evidence_text(episode.cause, episode.evidence)
    room = max(1, size - indent - _LABEL_WIDTH)
    pieces = [("cause", cause_text)] if cause_text and episode.cause != "unknown" else []
    more_lines = wrap_line(safe_cells(text), room) if text else []
    lines_left = max(0, height - len(pieces))
    if len(more_lines) > lines_left > 0:
        last_line = more_lines[lines_left - 1]
        last_piece = last_line.split(" · ")[-1]
        is_between_pieces = any(p.endswith(last_piece) for p in safe_cells(text).split(" · "))
        more_lines[lines_left - 1] = fit(f"{last_line} {'·' * is_between_pieces}…", room)
    pieces += [("" if i else "evidence", piece) for i, piece in enumerate(more_lines[:lines_left])]
    return [
        [(f"{'':{indent}}{name:<{_LABEL_WIDTH}}", "dim"), (text, "text")]
        for name, text in pieces[:height]
    ]


# --- side by side


PanelKind = Literal["who", "happened", "selected", "over-time"]
PANEL_KINDS: tuple[PanelKind, ...] = ("who", "happened", "selected")
PanelData = tuple[Session, Interval, ViewSettings]
PanelFunction = Callable[[Session, Interval, ViewSettings, int, int], list[PanelLine]]
"""Draws a panel of a width and a height, in cells."""
AnyPanel = PanelKind | PanelFunction
"""The kind of a panel in this module, or the function of a view's own panel."""
PanelCache = dict[PanelKind, tuple[object, list[PanelLine]]]
"""A cache of drawn panels, with the inputs that they were drawn from."""
PANEL_FUNCTIONS: dict[PanelKind, PanelFunction] = {
    "who": tables.task_panel,
    "happened": episode_panel,
    "selected": core_panel,
    "over-time": loss_panels.loss_chart_panel,
}
GAP, MARGIN = 3, 1
"""Cells between two panels, and to the left and to the right of a row of panels."""
MIN_WIDTH_OF_TWO, MIN_WIDTH_OF_THREE = 64, 200
"""Minimum width in cells of a row of two and of three panels."""
_WIDTH_SHARES = {1: (1,), 2: (5, 4), 3: (5, 6, 4)}


@dataclass
class PanelRow:
    """Panels side by side in `width` cells. Their widths are proportional to `shares`."""

    panels: tuple[AnyPanel, ...]
    """The panels; those of a view's own functions are not cached."""
    shares: tuple[int, ...]
    width: int
    height: int
    cached_panels: PanelCache = field(default_factory=dict)
    _targets: list[tuple[range, list[ClickTarget]]] = field(default_factory=list)
    """For each drawn panel, its columns on the screen and the targets of its lines."""

    def _panel(self, kind: AnyPanel, data: PanelData, size: int) -> list[PanelLine]:
        """Returns the lines of a panel, each exactly as wide as the panel."""
        session, interval, settings = data

        def drawn_panel(draw: PanelFunction) -> list[PanelLine]:
            lines = draw(*data, size, self.height)[: self.height]
            lines += [([], None)] * (self.height - len(lines))
            return [(merge_runs(runs, size), target) for runs, target in lines]

        if callable(kind):
            return drawn_panel(kind)
        # The numbers of this panel are also shown elsewhere, so it is drawn at each refresh.
        if kind == "selected":
            return drawn_panel(core_panel)
        redraw_number = interval.time_ns // (1 if session.is_past(interval) else REDRAW_PERIOD_NS)
        episode_counts = [len(session.running), len(session.ended), len(session.marks)]
        episode_counts.append(session.log.indexed_until_ns)
        used_settings = (  # `settings` itself stays the same object
            settings.grouping, settings.cpu, settings.mask, settings.metric, settings.units,
            settings.window_s, settings.range_ns, settings.ranges_ns, settings.glyphs,
        )  # fmt: skip
        drawn_from = redraw_number, session, episode_counts, used_settings, size, self.height
        if self.cached_panels.get(kind, (None, []))[0] != drawn_from:
            self.cached_panels[kind] = drawn_from, drawn_panel(PANEL_FUNCTIONS[kind])
        return self.cached_panels[kind][1]

    def lines(
        self, session: Session, interval: Interval, settings: ViewSettings
    ) -> list[list[Run]]:
        room = max(0, self.width - 2 * MARGIN - GAP * (len(self.shares) - 1))
        ends = [0, *(room * share_sum // sum(self.shares) for share_sum in accumulate(self.shares))]
        lines: list[list[Run]] = [[] for _ in range(self.height)]
        self._targets = []
        x = MARGIN
        for i, kind in enumerate(self.panels):
            size = ends[i + 1] - ends[i]
            panel = self._panel(kind, (session, interval, settings), size)
            for line, (runs, _) in zip(lines, panel, strict=True):
                line += [(" " * (GAP if i else MARGIN), "text"), *runs]
            self._targets.append((range(x, x + size), [target for _, target in panel]))
            x += size + GAP
        return [[*line, (" " * MARGIN, "text")] for line in lines]

    def first_column(self, kind: PanelKind) -> int:
        return self._targets[self.panels.index(kind)][0].start

    def target_at(self, x: int, y: int) -> ClickTarget:
        """Returns the target at column `x` of line `y`; None if there is none."""
        if 0 <= y < self.height:
            for cells, targets in self._targets:
                if x in cells:
                    return targets[y]
        return None


class PaneledView(Canvas):
    OMITTED_PANEL: ClassVar[PanelKind | None] = None
    """The kind of panel that would repeat the content of the view, and is left out."""
    HAS_LOSS_CHART: ClassVar[bool] = False
    """Whether the losses over time fill lines that panels do not need."""
    _panel_row: PanelRow | None = None
    """The drawn panels with click targets, at the bottom; None if no panel is drawn."""

    @cached_property
    def _cached_panels(self) -> PanelCache:
        return {}

    @property
    def verdict(self) -> Verdict | None:
        is_range = self.settings.range_ns is not None
        return verdict_at(self.session, self.interval, is_range=is_range)

    @property
    def spare_lines(self) -> int:
        """Number of lines below the scrolling ones; negative without room, 0 on a tiny screen."""
        room = self.size.height - len(self.header_lines) - max(1, self.line_count)
        return 0 if self.is_tiny else room

    @property
    def _panels_width(self) -> int:
        return self.width if self.side_width else self.size.width

    def make_panels(
        self, room: int, gap: int = 1, kinds: tuple[PanelKind, ...] = PANEL_KINDS
    ) -> list[Line]:
        """Returns `room` lines: `gap` blank lines, then those panels of `kinds` that fit. All lines
        are blank if none fits."""
        chart_height = min(loss_panels.MAX_CHART_HEIGHT, room - gap - MIN_HEIGHT_BELOW_CHART - 1)
        if not (self.HAS_LOSS_CHART and chart_height >= 2 * MIN_HEIGHT):
            chart_height = 0
        room -= chart_height + bool(chart_height)
        height = room - gap
        if height < MIN_HEIGHT:
            self._panel_row = None
            return [BLANK] * room
        width = self._panels_width
        count = 1 + (width >= MIN_WIDTH_OF_TWO)
        count += width >= MIN_WIDTH_OF_THREE and self.OMITTED_PANEL is None
        kinds = tuple(kind for kind in kinds if kind != self.OMITTED_PANEL)[:count]
        row = PanelRow(kinds, _WIDTH_SHARES[len(kinds)], width, height)
        lines = self.draw_panels(row, gap)
        if chart_height:
            chart_row = PanelRow(("over-time",), (1,), width, chart_height)
            lines = [BLANK, *self._make_row_lines(chart_row), *lines]
        return lines

    def draw_panels(self, row: PanelRow, gap: int = 0) -> list[Line]:
        """Returns these panels below `gap` blank lines, the last of which may have a note. Clicks
        are looked up in these panels from now on."""
        if "B" in self.settings.ranges_ns:
            row.panels = tuple(
                tables.comparison_panel if kind == "who" else kind for kind in row.panels
            )
        lines = self._make_row_lines(row)
        self._panel_row = row
        gap_lines = [BLANK] * gap
        notes, screen = self.settings.tour_notes, self.screen.size
        is_next = EPISODES_NOTE in notes[1:] and has_note_rows(screen, MIN_HEIGHT_FOR_NEXT_NOTE)
        is_due = is_next or (EPISODES_NOTE in notes and has_note_rows(screen))
        if gap and is_due and "happened" in row.panels:
            x, width = row.first_column("happened"), self.width
            gap_lines[-1] = note_line(self.settings, EPISODES_NOTE, x, width, is_above=True)
        return [*gap_lines, *lines]

    def _make_row_lines(self, row: PanelRow) -> list[Line]:
        row.cached_panels = self._cached_panels
        return [(runs, "calm") for runs in row.lines(self.session, self.interval, self.settings)]

    def target_at(self, x: int, y: int) -> ClickTarget:
        row = self._panel_row
        return None if row is None else row.target_at(x, row.height - y)
