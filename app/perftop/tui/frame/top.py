"""The lines above the view: the header, with the machine at the left and the sampling, its cost and
unusual states at the right; the alert line; the machine's numbers; and its SMT states. This module
also defines `AppStatus`, the state of the app that these lines show, and `PlaybackControls`, with
which the screen changes the shown moment."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isinf, isnan
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from textual import events

from perftop.base import files
from perftop.base.text import clock_time, count_noun, cut, duration, player_time
from perftop.draw import theme
from perftop.draw.columns import Run
from perftop.draw.strips import BLANK, Line, Piece, justify, overlay, pieces_that_fit, safe_cells
from perftop.model.confidence import evidence_texts
from perftop.output import sentences
from perftop.tui.frame import machine
from perftop.tui.frame.machine import TileColumn
from perftop.tui.shared import episode_style
from perftop.tui.shared.canvas import PageWidget, chart_glyphs, has_note_rows, note_line
from perftop.tui.shared.row_numbers import ViewSettings
from perftop.tui.shared.verdict import (
    MIN_WARNING_SHARE,
    Verdict,
    loss_line,
    verdict_at,
    verdict_line,
)

if TYPE_CHECKING:
    from perftop.draw.theme import LineState
    from perftop.model.kinds import Episode
    from perftop.process.link import LinkState
    from perftop.session.interval import Interval
    from perftop.session.session import Session


@dataclass(frozen=True, slots=True)
class PlaybackState:
    is_playing: bool
    speed: float
    recording_span_ns: tuple[int, int]
    """Monotonic times in ns of the first and the last moment of the recording."""
    seek_position_ns: int | None
    """Monotonic time in ns up to which a seek has read; None if no seek is under way."""
    is_over: bool
    damage: str | None
    """Why the recording is incomplete; None if it is complete."""
    indexed_share: float | None = None
    """Share of the file that has been searched for episodes; None if the search is complete."""


class AppStatus(NamedTuple):
    """The state of the app, which the screen shows beside measured numbers."""

    interval_ns: int
    own_cpu_share: float = float("nan")
    """CPU seconds per second that the probe and the app use; for a recording, only the probe's."""
    paused_at: float | None = None
    """Unix time of the shown moment while paused, in seconds; None if not paused."""
    is_range: bool = False
    silent_s: float | None = None
    """Seconds since the last message, if that is unusually long; else None."""
    replay: PlaybackState | None = None
    link: LinkState | None = None
    recording_text: str | None = None
    """Size of the recording so far, as text; '' if recording failed; None without a recording."""
    notice: str = ""
    """A message that is shown for some time; '' if there is none."""
    job_text: str = ""
    """Name and state of the command that perftop runs; '' if it runs none."""
    job_status: int | None = None
    failure_text: str | None = None
    """Why the stream has ended; None while the stream runs."""

    @property
    def is_past(self) -> bool:
        """Whether the shown moment is in the past or in a recording."""
        return self.paused_at is not None or self.replay is not None


class ScreenState(NamedTuple):
    session: Session | None
    interval: Interval | None
    status: AppStatus
    now: Interval | None = None
    """The newest interval of a live session while an earlier moment is shown; else None."""


class PlaybackControls(Protocol):
    """Requests from the screen to the source of its numbers. Times are monotonic, in ns."""

    def go_to(self, time_ns: int) -> None:
        """Shows this moment."""

    def select_range(self, first_ns: int, last_ns: int) -> None:
        """Shows the numbers between these moments."""

    def toggle_pause(self) -> None:
        """Pauses at the shown moment, or resumes."""

    def go_to_episode(self, direction: int, cpus: list[int] | None) -> None:
        """Shows the next (`direction` = 1) or previous episode or mark on `cpus`; None: on any."""

    def show_episode(self, episode: Episode) -> None:
        """Selects the range in which this episode ran."""

    def add_mark(self, time_ns: int, label: str) -> None:
        """Sets a mark with this label at this moment; '': the label is a number."""

    def show_notice(self, notice: str) -> None:
        """Shows a message until the user presses a key or some seconds have passed."""


COST_SPAN_NS = 5_000_000_000
"""Time in ns over which the shown cost is averaged. Over less time it varies too much."""
COST_STEP_NS = 1_000_000_000
"""Minimum time between two reads of the cost, in ns, so that the shown number rarely changes."""


class CpuCost:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        """Function that returns the user and kernel CPU seconds that this process has used."""
        self._readings: deque[tuple[int, float]] = deque()
        """Pairs of a monotonic time in ns and the CPU seconds used until then."""
        self._share = float("nan")

    def cpu_share(self, now_ns: int, probe_cpu_s: float = 0.0) -> float:
        """Returns the CPU seconds per second that the probe and the app used together in the last
        COST_SPAN_NS; NaN at the first call. `probe_cpu_s`: those of the probe so far."""
        readings = self._readings
        if not isnan(self._share) and now_ns - readings[-1][0] < COST_STEP_NS:
            return self._share
        readings.append((now_ns, probe_cpu_s + self._clock()))
        while len(readings) > 2 and now_ns - readings[0][0] > COST_SPAN_NS:
            readings.popleft()
        elapsed_s = (now_ns - readings[0][0]) / 1e9
        self._share = (readings[-1][1] - readings[0][1]) / elapsed_s if elapsed_s else float("nan")
        return self._share


# --- the header

STARTING_LINE: list[Run] = [(" perftop", "key"), ("  starting the probe ", "dim")]
MIN_WIDTH_FOR_WORDS, MIN_WIDTH_FOR_WIDE_GAPS = 140, 120
"""Minimum columns of a screen with explanatory words in the header, and with wide gaps."""
MARGIN = 1
MAX_SKEW = 0.1
"""Maximum skew between CPUs that is not highlighted, as a share of the sample period."""
_COMMON_WORDS = re.compile(r"\((?:r|tm)\)|\b(?:cpu|processor)\b|@.*|\b\d+-core\b", re.IGNORECASE)
"""Parts of the name of a CPU model that the header leaves out."""
_SEPARATORS: tuple[Run, ...] = ("", "text"), ("  ", "text"), (" · ", "faint")
"""Separators before the first, the second and every further part at the left of the header."""


def header_line(
    session: Session | None, interval: Interval | None, status: AppStatus, size: int
) -> list[Run]:
    if session is None:
        return STARTING_LINE
    with_words = size >= MIN_WIDTH_FOR_WORDS
    hello, kind = session.hello, session.hello.virtualisation
    cores = len(machine.shown_cpus(session, session.reader.cores).cores)
    cpus = len(session.selected)
    pieces: list[Piece] = [(0, [("perftop", "key")]), (1, [(safe_cells(hello.host), "bright")])]
    if name := short_model(hello.identity.name):
        count = f"{len(hello.packages)} × " if len(hello.packages) > 1 and kind is None else ""
        pieces.append((7, [(safe_cells(count + name), "dim")]))
    if kind is not None:
        guest_text = "guest" if kind == "hypervisor" else f"{kind} guest"
        pieces.append((4, [(safe_cells(guest_text), "dim")]))
    core_text = "" if cores == cpus else f"{count_noun(cores, 'core')}, "
    pieces.append((3, [(f"{core_text}{count_noun(cpus, 'CPU')}", "dim")]))
    if not with_words:
        pieces.append((4, [(duration(status.interval_ns / 1e9), "dim")]))
    left_pieces = [(rank, [_SEPARATORS[min(i, 2)], *runs]) for i, (rank, runs) in enumerate(pieces)]
    gap: Run = (" " * (3 if size >= MIN_WIDTH_FOR_WIDE_GAPS else 2), "text")
    room = size - 2 * MARGIN - len(gap[0])
    parts = _sampling_pieces(session, interval, status, with_words=with_words)
    parts += _badges(status, interval, room, with_words=with_words)
    right = [(rank, [gap, *runs]) for rank, runs in parts]
    fitting_pieces = pieces_that_fit([*left_pieces, *right], size - 2 * MARGIN, 0)
    shown = [[piece for piece in side if piece in fitting_pieces] for side in (left_pieces, right)]
    begin, end = ([run for _, runs in side for run in runs] for side in shown)
    margin: Run = (" " * MARGIN, "text")
    return justify([margin, *begin], [*end[1:], margin], size)


@lru_cache(maxsize=8)
def short_model(name: str) -> str:
    short = " ".join(_COMMON_WORDS.sub(" ", name).split())
    return short.removeprefix("Intel ") or name


def _sampling_pieces(
    session: Session, interval: Interval | None, status: AppStatus, *, with_words: bool
) -> list[Piece]:
    """Returns the parts of the header on the link to a remote probe, the source of counters, the
    method for the SMT states, the interval and the sample period, the cost of monitoring, the skew,
    and the numbers of late samples (no CPU was read on time) and dropped samples so far."""
    hello, link = session.hello, status.link
    pieces: list[Piece] = []
    if link is not None:
        runs: list[Run] = [("socket" if link.remote_name.startswith("unix:") else "ssh", "clock")]
        if not isnan(link.rtt_s):
            runs += [(" ", "dim"), (f"{1e3 * link.rtt_s:.1f}", "text"), (" ms", "dim")]
        if not isnan(link.bytes_per_s):
            runs += [(" ", "dim"), (f"{link.bytes_per_s / 1e3:.1f}", "text"), (" kB/s", "dim")]
        pieces.append((4, runs))
    if hello.source != "os" or hello.virtualisation is None:
        runs = [(safe_cells(hello.source), "clock")]
        # The method used for most cores, with the factor of its counter if that is known.
        method = interval.split.usual_method or "" if interval is not None else ""
        calibration = session.calibrations.get(method.replace("-", "_"))
        if calibration is not None and calibration.state == "settled" and calibration.factor != 1:
            method = f"{method} ×{calibration.factor:g}"
        pieces.append((5, [*runs, (f", {method}", "text")] if method else runs))
    if with_words:
        interval_text, sample = duration(status.interval_ns / 1e9), duration(hello.sample_ns / 1e9)
        runs = [("every ", "dim"), (interval_text, "text"), (", sampled ", "dim"), (sample, "dim")]
        pieces.append((6, runs))
    cost_text = "n/a" if isnan(status.own_cpu_share) else f"{100 * status.own_cpu_share:.1f}"
    name = "own" if status.replay is None else "probe"  # a recording has only the probe's cost
    label = f"{name} ".rjust(len(name) + 5 - len(cost_text))
    pieces.append((3, [(label, "dim"), (cost_text, "text"), (" %", "dim")]))
    if interval is not None and hello.virtualisation is None:
        skew = f"{interval.skew_s * 1e6:.0f}"
        style = "warn" if interval.skew_s * 1e9 > MAX_SKEW * hello.sample_ns else "text"
        label = "skew ".rjust(9 - len(skew))
        pieces.append((6, [(label, "dim"), (skew, style), (" µs", "dim")]))
    if session.late_samples:
        pieces.append((5, [("late ", "dim"), (str(session.late_samples), "warn")]))
    style = "warn" if session.dropped_frames else "text"
    return [*pieces, (2, [("dropped ", "dim"), (str(session.dropped_frames), style)])]


def _badges(
    status: AppStatus, interval: Interval | None, room: int, *, with_words: bool
) -> list[Piece]:
    pieces: list[Piece] = []

    def badge(rank: int, text: str, style: str) -> None:
        pieces.append((rank, [(text, style)]))

    if status.job_text:
        exit_status = status.job_status
        style = "clock" if exit_status is None else "warn" if exit_status else "text"
        badge(1, safe_cells(status.job_text), style)
    if status.recording_text:
        badge(1, f" REC {status.recording_text} ", "paused")
    elif status.recording_text is not None:
        badge(1, " NOT RECORDING ", "lost")
    if status.is_range and interval is not None:
        ends = [clock_time(time) for time in (interval.time - interval.elapsed_s, interval.time)]
        badge(-1, f" {' to '.join(ends)}, {interval.elapsed_s:.1f} s ", "paused")
    elif (replay := status.replay) is not None:
        if interval is not None:
            style = "lost" if replay.is_over and replay.damage else "paused"
            badge(-1, _replay_text(replay, interval, room, " · " if with_words else " "), style)
    elif status.paused_at is not None:
        if status.silent_s is None and status.failure_text is None:
            badge(7, "sampling continues", "dim")
        badge(0, f" PAUSED {clock_time(status.paused_at)} ", "paused")
    elif status.link is not None and status.link.broken_reason:
        badge(0, f" NO LINK FOR {status.link.broken_s:.0f} s ", "lost")
    elif status.silent_s is not None:
        badge(0, f" NO DATA FOR {status.silent_s:.0f} s ", "lost")
    if status.failure_text is not None:
        badge(1, " DEAD ", "lost")
    return pieces


def _replay_text(replay: PlaybackState, interval: Interval, room: int, dot: str) -> str:
    """Returns the time, the position in the recording, the state of the playback, and the progress
    of the search for episodes. Without `room`, the progress is left out, then the position."""
    first_ns, last_ns = replay.recording_span_ns
    if replay.seek_position_ns is not None:
        state = f"seeking {player_time(replay.seek_position_ns - first_ns)}"
    elif replay.is_over:
        state = "end"
    elif replay.is_playing:
        state = "max" if isinf(replay.speed) else f"×{replay.speed:g}"
    else:
        state = "paused"
    elapsed, length_text = (player_time(ns - first_ns) for ns in (interval.time_ns, last_ns))
    position = f"{elapsed:>{len(length_text)}}/{length_text}"
    parts = [f"REPLAY {clock_time(interval.time)}", f"{state:<6}"]
    texts = [parts, [parts[0], position, parts[1]]]
    if replay.indexed_share is not None:
        texts.append([*texts[1], f"finding episodes {100 * replay.indexed_share:2.0f} %"])
    wordings = (f" {dot.join(text)} " for text in reversed(texts))
    return next((text for text in wordings if len(text) <= room), f" {dot.join(parts)} ")


# --- all lines above the view

MIN_HEIGHT_FOR_KEYS, MIN_HEIGHT_FOR_NUMBERS, MIN_HEIGHT_FOR_BLANK = 8, 12, 24
"""Minimum lines of a screen with a line of keys; with more than two lines above the view; and with
a blank line above the view."""
MIN_HEIGHT_FOR_HISTORY, MIN_HEIGHT_FOR_GAPS = 40, 50
"""Minimum lines of a screen with the history of numbers, and with blank lines between blocks."""
MIN_WIDTH_FOR_HISTORY = 160
MIN_HEIGHT_FOR_TALL_HISTORY, TALL_HISTORY_LINES = 60, 3
"""Minimum lines of a screen with a tall history, and the number of lines of that history."""
NOTE_STROKE = "│"
TopLineName = Literal["header", "alert", "loss", "numbers", "states", "history", ""]


def top_line_names(
    height: int, width: int, *, has_states: bool, has_tiles: bool, has_alert: bool
) -> Sequence[TopLineName]:
    """Returns the names of the lines above the view for this screen size. `has_states`: whether
    there are SMT states. `has_tiles`: whether the numbers are tiles, which can have a history.
    `has_alert`: whether the alert line has text."""
    if height < MIN_HEIGHT_FOR_NUMBERS:
        return "header", "alert" if has_alert else "numbers"
    below: Sequence[TopLineName] = ()
    if has_states:
        below = ("states",)
    elif has_tiles and height >= MIN_HEIGHT_FOR_HISTORY and width >= MIN_WIDTH_FOR_HISTORY:
        below = ["history"] * (TALL_HISTORY_LINES if height >= MIN_HEIGHT_FOR_TALL_HISTORY else 1)
    if height >= MIN_HEIGHT_FOR_GAPS:
        return "header", "", "alert", "loss", "", "numbers", *below, ""
    if height >= MIN_HEIGHT_FOR_BLANK:
        return "header", "alert", "loss", "numbers", *below, ""
    return "header", "alert", "numbers", *below


class FrameLines(PageWidget):
    """Lines of the main screen above or below its view."""

    _state = ScreenState(None, None, AppStatus(0))

    def __init__(self, settings: ViewSettings, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self.settings = settings

    def show(self, state: ScreenState) -> None:
        self._state = state
        self.update()


class TopLines(FrameLines):
    verdict: Verdict | None = None
    """The shown verdict; None before the first numbers, and if none can be computed."""
    _cached_loss_line: tuple[object, Line] = None, BLANK
    """A cache: the line below the verdict, and the inputs that it was made from."""
    _tile_history: machine.TileHistory | None = None
    """The history of tiles, if it has been drawn."""
    _line_names: Sequence[TopLineName] = ()

    def page(self, width: int, height: int) -> list[Line]:  # noqa: ARG002 - sets its own height
        session, interval, status, now = self._state
        self.verdict = None
        if session is not None and interval is not None:
            self.verdict = verdict_at(session, interval, is_range=status.is_range)
            if self.verdict is not None and now is not None:
                self.verdict = self.verdict.with_current_state(verdict_at(session, now))
        alert = alert_line(session, interval, status, width, self.verdict)
        # Tiles replace the machine's numbers if no clock is counted.
        has_tiles = session is not None and not session.evaluator.variants["busy_hz"]
        has_states = session is None or session.has_smt
        has_alert = bool(alert[0]) or interval is None
        screen = self.screen.outer_size
        self._line_names = names = top_line_names(
            screen.height, width, has_states=has_states, has_tiles=has_tiles, has_alert=has_alert
        )
        if self.styles.height is None or self.styles.height.value != len(names):
            self.styles.height = len(names)
        # The header and the alert line keep their colours when the other lines turn grey.
        top_state: LineState = "calm" if status.failure_text is None else "stale"
        loss: Line = [], top_state
        if self.verdict is not None and "loss" in names:
            loss = self._loss_line(self.verdict, width)
            if top_state == "stale" or alert[1] != "victim":
                loss = loss[0], top_state
        header = header_line(session, interval, status, width)
        lines: dict[TopLineName, Line] = {"header": (header, "calm"), "alert": alert, "loss": loss}
        history: Iterator[list[Run]] = iter(())
        if session is not None and interval is not None:
            if "states" in names:
                states = machine.state_line(session, interval, width)
                lines["states"] = states, top_state
            if has_tiles:
                columns = machine.tile_columns(machine.machine_values(session, interval), width)
                lines["numbers"] = machine.tile_line(columns), top_state
                history = iter(self._history_lines(session, interval, columns, width))
            else:
                running = episode_style.episodes_during(session, interval)
                numbers = machine.machine_line(session, interval, running, width)
                lines["numbers"] = numbers, top_state
        blank: Line = [], top_state
        page = [lines.get(name, blank) for name in names]
        for y in (y for y, name in enumerate(names) if name == "history"):
            page[y] = next(history, []), top_state
        blank_rows = [y for y, name in enumerate(names) if not name and y > 1]
        first_notes = self.settings.tour_notes[:1]
        notes = [note for note in first_notes if not note or not has_note_rows(screen)]
        if notes and interval is not None and blank_rows:
            row = blank_rows[0]
            page[row] = note_line(self.settings, notes[0], 0, width, is_above=False)
            # A stroke joins the note about the verdict to the verdict, across the numbers between
            # them.
            first = names.index("loss") + 1 if not notes[0] else row
            for y in range(first, row):
                page[y] = overlay(page[y][0], 0, [(NOTE_STROKE, "key")]), page[y][1]
        return page

    def _loss_line(self, verdict: Verdict, width: int) -> Line:
        status = self._state.status
        inputs = verdict, width, status.is_range, status.paused_at is None
        if self._cached_loss_line[0] != inputs:
            keys = [(1, "try", "try")] if verdict.remedy else []
            if status.is_range:
                keys = [(2, "hold", "compare"), (3, "try", "copy range")]
            if status.paused_at is not None:
                keys.append((1, "pause", "live" if status.replay is None else "play"))
            keys += [(0, "report", "why")] if verdict.report is not None else []
            parts: list[Piece] = []
            for rank, key, word in keys:
                parts.append((rank, [(self.settings.captions[key], "key"), (f" {word}", "dim")]))
            line = loss_line(verdict, width, parts, chart_glyphs(self.app))
            self._cached_loss_line = inputs, line
        return self._cached_loss_line[1]

    def _history_lines(
        self, session: Session, interval: Interval, columns: Sequence[TileColumn], width: int
    ) -> list[list[Run]]:
        """Returns the lines with the histories of tiles; [] if there is no room for one."""
        rows = self._line_names.count("history")
        if not rows:
            return []
        history = self._tile_history
        if history is None or history.session is not session:
            history = self._tile_history = machine.TileHistory(session)
        return history.lines(columns, interval, self._state.status.interval_ns, width, rows)

    async def on_click(self, event: events.Click) -> None:
        """Opens the list of episodes (alert line) or the report (the line below it)."""
        y = event.get_content_offset(self)
        name = "" if y is None else next(iter(self._line_names[y.y : y.y + 1]), "")
        if name == "loss":
            await self.run_action("screen.why")
        elif y is not None and name == "alert" and self._lines[y.y][0]:
            await self.run_action("screen.view('episodes')")


# --- the alert line: a message, or the verdict

WARNING_SHOWN_NS = 10_000_000_000


def alert_line(
    session: Session | None,
    interval: Interval | None,
    status: AppStatus,
    size: int,
    verdict: Verdict | None = None,
) -> Line:
    """Returns a message, or else the verdict. If the verdict is not a warning, an episode that
    costs something replaces its sentence, and the other running episodes are listed after it."""
    if status.failure_text is not None:  # why the stream ended, and hints if there is room
        text, suffix = safe_cells(status.failure_text), " · q quits "
        is_newest = interval is not None and status.paused_at is None
        hints = (f" · these are the last numbers{suffix}" if is_newest else suffix, suffix, "")
        hint = next((hint for hint in hints if len(hint) <= size - 3 - len(text)), "")
        text = cut(text, max(8, size - 3))
        return [(f" {theme.DROP_SIGN} {text}", "alarm"), (hint, "text")], "calm"
    if (link := status.link) is not None and link.broken_reason:
        seconds = link.next_attempt_s
        retry_text = f"next try in {seconds:.0f} s" if seconds else "trying again"
        return _message_line(f" {retry_text} · {link.broken_reason}", "alarm", size)
    if status.notice:
        failed = status.recording_text == ""
        return _message_line(f" {status.notice}", "alarm" if failed else "text", size)
    if session is None:
        return [], "calm"
    replay = status.replay
    if replay is not None and replay.is_over and replay.damage is not None:
        return _message_line(f" {theme.DROP_SIGN} the recording is {replay.damage}", "alarm", size)
    if verdict is not None and verdict.level:
        return verdict_line(verdict, size)
    # The newest warning of the probe, then counters that a selftest since this boot found wrong.
    now_ns = interval.time_ns if interval is not None and status.is_past else session.now_ns
    is_recent = session.warnings and 0 <= now_ns - session.last_warning_ns < WARNING_SHOWN_NS
    warning = session.warnings[-1] if is_recent else files.findings_line(session.hello.boot_id)
    if warning:
        return _message_line(f" ! {warning}", "warn", size)
    if verdict is None or interval is None:
        return [], "calm"
    groups = episode_style.group_episodes(episode_style.episodes_during(session, interval))
    # An episode's length is measured up to the end of the interval, as in the panels.
    texts, topology, past = [], session.topology, status.is_past
    for group in groups:
        when = sentences.duration_phrase(session, group, interval.time_ns)
        names = sentences.victims(session, group, interval.tasks)
        parts = sentences.sentence(topology, group, names, past_tense=past, when=when)
        texts.append(sentences.text(parts))
    index = next((i for i, group in enumerate(groups) if episode_style.is_loss(group[0])), None)
    if index is not None:
        worst, text = groups.pop(index)[0], texts.pop(index)
        marker, pieces = episode_style.marker(worst), evidence_texts(worst.cause, worst.evidence)
        evidence = tuple(p for p in pieces if p.removeprefix("clock ") not in text)
        severity = MIN_WARNING_SHARE
        verdict = replace(verdict, text=text, marker=marker, severity=severity, evidence=evidence)
    markers = (episode_style.marker(group[0]) for group in groups)
    episode_texts = [f"{marker} {text}" for marker, text in zip(markers, texts, strict=True)]
    return verdict_line(verdict, size, episode_texts)


def _message_line(text: str, style: str, size: int) -> Line:
    return [(cut(safe_cells(text), size), style)], "calm"
