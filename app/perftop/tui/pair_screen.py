"""`perftop replay A B`: two recordings on one time axis, with the result of `perftop diff`. For
each number there are charts of A and B with the same scale, and a line of their difference.
`PairSource` reads both recordings into a `PairState`, which has a `Track` for each; `pair_page`
draws it, and `PairScreen` handles keys."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from math import ceil, isfinite, nan
from pathlib import Path
from typing import ClassVar

import numpy as np
from textual.app import ComposeResult
from textual.binding import BindingType

from perfprobe import wire
from perftop.base.arrays import Floats
from perftop.base.errors import USAGE, Failed
from perftop.base.text import GHZ, clock_time, supports_unicode
from perftop.draw import charts
from perftop.draw.charts import chart_lines
from perftop.draw.columns import Run, fit
from perftop.draw.strips import BLANK, Line, justify, safe_cells
from perftop.draw.theme import LineState
from perftop.model.kinds import cause_of
from perftop.model.numbers import NUMBERS, Number
from perftop.output.compare.comparison import Comparison, compare, headline, loss_sentences
from perftop.output.compare.readings import RecordingReader
from perftop.output.compare.text import change_text, verdict_word
from perftop.output.run_summary import (
    SETTING_NAMES,
    is_different,
    machine_state,
    setting_label,
    value_text,
)
from perftop.recording.file import Recording
from perftop.session.history import Times
from perftop.session.session import MAX_BATCH
from perftop.tui.app import PerfTopApp, ScreenSource, run_app
from perftop.tui.config import Config
from perftop.tui.shared import time_axis
from perftop.tui.shared.canvas import PageWidget
from perftop.tui.shared.keys import PAIR_KEYS, bindings_by_id, key_captions
from perftop.tui.shared.paint import DirectScreen
from perftop.tui.shared.time_axis import Axis

BATCH_S, REFRESH_S = 0.03, 0.25
"""Maximum seconds for which reading delays keys, and minimum seconds between two updates of the
screen while reading."""
ZOOM_FACTOR, MAX_ZOOM = 2.0, 4096.0
MIN_AXIS_S = 1.0
CHARTED_NUMBER_KEYS = ("busy_hz", "util", "ipc", "steal", "both", "power_w", "kernel_cycles")
"""Keys of the numbers with charts, the most important first; as many as fit are shown."""
STYLES_BY_NUMBER = {"ipc": "ipc", "steal": "loss", "kernel_cycles": "kernel", "both": "both"}
"""Styles of charts by number; all other charts have the style "user"."""
LABEL_WIDTH, VALUE_WIDTH = 20, 8
"""Width in cells of the labels to the left of the axis and of the values to its right."""
VERDICT_WIDTH, MIN_WIDTH_WITH_VERDICTS = 24, 120
"""Width in cells of the column of verdicts, and minimum width of the screen to show it."""
MIN_NUMBER_LINES, MAX_CHART_LINES = 6, 8
"""Minimum lines per number, and maximum lines of one chart."""
MIN_SCALE_TOP = 0.02
"""Minimum upper end of the scale of a share; less is noise."""
SCALE_HEADROOM = 1.12
"""Factor by which a scale exceeds the highest value, to separate the chart of B from that of A."""
MAX_NAME_LENGTH = 28


@dataclass(frozen=True, slots=True)
class Alignment:
    """The moment of a recording that is zero on the time axis."""

    kind: str = "start"
    """One of "start", "command" and "mark"."""
    label: str = ""

    @property
    def words(self) -> str:
        names = {"start": "the start", "command": "the start of the command"}
        return names.get(self.kind) or f"mark {self.label}"


class Track(RecordingReader):
    def __init__(self, name: str, hello: wire.Hello) -> None:
        super().__init__(by_mark=False)
        self.name = name
        self.command_ns: int | None = None
        self.is_read = False
        self.damage: str | None = None
        self._sums_cache: tuple[int, dict[str, tuple[Floats, Floats, Floats]]] = (-1, {})
        self.process([hello])

    def on_message(self, message: wire.Message) -> bool:
        if isinstance(message, wire.Note) and message.kind == "run-start":
            self.command_ns = self.command_ns or message.time_ns
        return super().on_message(message)

    def origin_ns(self, alignment: Alignment) -> int | None:
        """Returns the raw time in ns at zero on the axis; None if it is not in the part that was
        read."""
        if alignment.kind == "start":
            return self.session.hello.raw_ns
        if alignment.kind == "command":
            return self.command_ns
        labels = ((mark.evidence["label"], mark.start_ns) for mark in self.session.marks)
        return next((at_ns for label, at_ns in labels if label == alignment.label), None)

    @property
    def ends_ns(self) -> tuple[int, int]:
        return self.session.hello.raw_ns, self.session.now_ns

    def event_times_ns(self) -> list[int]:
        """Returns the sorted raw times in ns of marks and of the starts of episodes."""
        episodes = self.session.episodes(*self.ends_ns), self.session.marks
        return sorted(episode.start_ns for episode_list in episodes for episode in episode_list)

    def values(self, key: str, edges_ns: Times) -> Floats:
        """Returns the means of a number between adjacent edges (raw times in ns); NaN where
        unknown. A span shorter than a slice of the recording has the value of that slice."""
        sums = self._cumulative_sums()
        if key not in sums:
            return np.full(len(edges_ns) - 1, nan)
        ends_ns, amounts, sizes = sums[key]
        first = np.searchsorted(ends_ns[1:], edges_ns[:-1], "right")
        last = np.maximum(np.searchsorted(ends_ns[1:], edges_ns[1:], "right"), first + 1)
        overlaps = (edges_ns[1:] > ends_ns[0]) & (first < len(ends_ns) - 1)
        first, last = (np.minimum(indexes, len(ends_ns) - 1) for indexes in (first, last))
        size = sizes[last] - sizes[first]
        with np.errstate(divide="ignore", invalid="ignore"):
            means: Floats = (amounts[last] - amounts[first]) / size
        return np.where(overlaps & (size > 0), means, nan)

    def _cumulative_sums(self) -> dict[str, tuple[Floats, Floats, Floats]]:
        """Returns, by key, the start of the first slice and the ends of all slices, and two
        cumulative sums up to these times, whose quotient is a mean."""
        if self._sums_cache[0] != self.session.frames:
            self._sums_cache = self.session.frames, self.series.sums()
        return self._sums_cache[1]

    @property
    def keys(self) -> set[str]:
        """Keys of the numbers that are known and not always 0."""
        sums = self._cumulative_sums().items()
        return {key for key, (_, amounts, sizes) in sums if sizes[-1] > 0 and amounts.any()}


@dataclass(slots=True)
class PairState:
    tracks: tuple[Track, Track]
    alignment: Alignment
    width: int = 80
    height: int = 24
    cursor_s: float = 0.0
    """Time at the cursor, in seconds on the axis, whose zero is the alignment."""
    zoom: float = 1.0
    """Length of both recordings together, as a multiple of the length of the axis."""
    ascii: bool = False
    captions: Mapping[str, str] = field(default_factory=partial(key_captions, {}))
    comparison: Comparison | None = None
    """The result of the comparison; None until both are read, or if one is too short."""

    def compare(self) -> None:
        """Compares the recordings, both of which must have been read."""
        a, b = (track.readings for track in self.tracks)
        self.comparison = compare([("", a, b)])[0] if a and b else None

    @property
    def origins_ns(self) -> tuple[int, int]:
        """Raw times in ns of A and B at zero on the axis: the alignment or, if a recording does not
        have it (yet), the start."""
        origins = [track.origin_ns(self.alignment) for track in self.tracks]
        a, b = (track.ends_ns[0] if origin is None else origin
                for track, origin in zip(self.tracks, origins, strict=True))  # fmt: skip
        return a, b

    @property
    def extent_s(self) -> tuple[float, float]:
        """Earliest start and latest end of the recordings, in seconds on the axis."""
        pairs = [*zip(self.tracks, self.origins_ns, strict=True)]
        first_ns = min(track.ends_ns[0] - origin for track, origin in pairs)
        last_ns = max(track.ends_ns[1] - origin for track, origin in pairs)
        return first_ns / 1e9, max(last_ns / 1e9, first_ns / 1e9 + MIN_AXIS_S)

    @property
    def window_s(self) -> tuple[float, float]:
        """Times at both ends of the axis, in seconds; the cursor is between them."""
        first, last = self.extent_s
        span = max(MIN_AXIS_S, (last - first) / self.zoom)
        start = min(max(first, self.cursor_s - span / 2), max(first, last - span))
        return start, start + span

    @property
    def cells(self) -> int:
        return max(10, self.width - LABEL_WIDTH - VALUE_WIDTH - self.verdict_width)

    @property
    def verdict_width(self) -> int:
        """Width of the column of verdicts in cells; 0 if it does not fit."""
        return VERDICT_WIDTH if self.width >= MIN_WIDTH_WITH_VERDICTS else 0

    @property
    def axis(self) -> Axis:
        """The time axis, in ns since the alignment."""
        first_ns, last_ns = (round(end * 1e9) for end in self.window_s)
        bin_ns = max(1, ceil((last_ns - first_ns) / self.cells))
        end_ns = first_ns + self.cells * bin_ns
        return Axis(end_ns, bin_ns, self.cells, end_ns)

    def axis_of_track(self, track: int) -> Axis:
        """Returns the time axis in raw ns of recording 0 (A) or 1 (B)."""
        axis, (first_ns, last_ns) = self.axis, self.tracks[track].ends_ns
        end_ns = axis.end_ns + self.origins_ns[track]
        return replace(axis, end_ns=end_ns, now_ns=min(end_ns, last_ns), first_ns=first_ns)

    @property
    def cursor_cell(self) -> int:
        """Cell of the cursor. The end of the axis is in the last cell."""
        return max(0, min(self.axis.cell_after(round(self.cursor_s * 1e9)), self.cells - 1))

    def move_cursor(self, seconds: float) -> None:
        first, last = self.extent_s
        self.cursor_s = min(max(first, self.cursor_s + seconds), last)


class PairPage(PageWidget, can_focus=True):
    def __init__(self, pair: PairState) -> None:
        super().__init__(id="pair", ascii_=pair.ascii)
        self.pair = pair

    def page(self, width: int, height: int) -> list[Line]:
        self.pair.width, self.pair.height = width, height
        return pair_page(self.pair)


def pair_page(pair: PairState) -> list[Line]:
    lines = [_header_line(pair), *_answer_lines(pair), _settings_line(pair), _cursor_line(pair)]
    room = pair.height - len(lines) - 5
    body = _chart_lines(pair, room)
    body = [*body[:room], *[BLANK] * (room - len(body))]
    lines += [*body, *_episode_lines(pair), *_axis_lines(pair), _key_line(pair)]
    return lines[: pair.height]


def _header_line(pair: PairState) -> Line:
    left_runs: list[Run] = []
    for badge, track in zip((" A ", " B "), pair.tracks, strict=True):
        name = fit(safe_cells(track.name), MAX_NAME_LENGTH).rstrip()
        left_runs += [(badge, "badge"), (f" {name}  ", "bright")]
    status = f"aligned at {safe_cells(pair.alignment.words)}"
    if not all(track.is_read for track in pair.tracks):
        status = "reading …"
    elif any(track.origin_ns(pair.alignment) is None for track in pair.tracks):
        status = "not aligned: one recording lacks this moment"
    elif any(track.damage for track in pair.tracks):
        status = "damaged: shown up to the damage"
    return justify(left_runs, [(f"{status} ", "dim")], pair.width), "calm"


def _answer_lines(pair: PairState) -> list[Line]:
    """Returns a line with the first sentence of `perftop diff`, and one with the losses that
    differ."""
    if (comparison := pair.comparison) is None:
        return [BLANK, BLANK]
    answer, losses = headline([comparison]), "; ".join(loss_sentences(comparison))
    is_worse = any(row.verdict == "worse" for row in comparison.rows)
    state: LineState = "victim" if is_worse else "calm"
    cut = fit(losses, min(len(losses), pair.width - 9))
    return [([(f" {fit(answer, pair.width - 2)}", "bright")], state),
            ([("   lost ", "dim"), (cut, "alarm")] if losses else [], state)]  # fmt: skip


def _settings_line(pair: PairState) -> Line:
    """Returns a line with the settings that differ between the machines, the most important first,
    cut to fit."""
    a, b = (machine_state(track.session) for track in pair.tracks)
    texts = [f"{setting_label(key)} {value_text(key, a[key])} / {value_text(key, b[key])}"
             for key in dict.fromkeys((*SETTING_NAMES, *a))
             if key in a and key in b and is_different(a[key], b[key])]  # fmt: skip
    text = "differs: " + ", ".join(texts) if texts else "the machine has the same settings in both"
    return [(f" {fit(text, pair.width - 2)}", "warn" if texts else "dim")], "calm"


def _cursor_line(pair: PairState) -> Line:
    """Returns a line with the times at the cursor and the meaning of ±."""
    times = [clock_time(track.session.unix(round(pair.cursor_s * 1e9) + origin))
             for track, origin in zip(pair.tracks, pair.origins_ns, strict=True)]  # fmt: skip
    moment: Run = (f" {pair.cursor_s:+.1f} s", "bright")
    left_runs = [moment, (f"   A {times[0]}   B {times[1]}", "text")]
    is_compared = pair.verdict_width and pair.comparison is not None
    sign = "+-" if pair.ascii else "±"
    right_runs: list[Run] = [(f"{sign}: 95 % for all rows together ", "dim")] if is_compared else []
    return justify(left_runs, right_runs, pair.width), "calm"


def _chart_lines(pair: PairState, room: int) -> list[Line]:
    known_keys = set[str]().union(*(track.keys for track in pair.tracks))
    keys = [key for key in CHARTED_NUMBER_KEYS if key in known_keys]
    keys = keys[: max(2, room // MIN_NUMBER_LINES)]
    if not keys:
        return [([(" nothing read yet", "dim")], "calm")]
    chart_height = max(1, min(MAX_CHART_LINES, (room // len(keys) - 2) // 2))
    gap = [BLANK] if room >= len(keys) * (2 * chart_height + 2) else []
    lines: list[Line] = []
    for key in keys:
        lines += [*_chart_band(pair, NUMBERS[key], chart_height), *gap]
    return lines


def _chart_band(pair: PairState, number: Number, chart_height: int) -> list[Line]:
    """Returns the charts of a number, A above B, and the line of their difference."""
    values = [track.values(number.key, pair.axis_of_track(side).edges)
              for side, track in enumerate(pair.tracks)]  # fmt: skip
    top, cell = _scale_top(number, values), pair.cursor_cell
    verdicts = _verdicts(pair, number.key) if pair.verdict_width else None
    values_now = [float(series[cell]) for series in values]
    lines: list[Line] = []
    for side, series in enumerate(values):
        style = STYLES_BY_NUMBER.get(number.key, "user")
        area = charts.area_chart(series / top, chart_height, style, ascii_=pair.ascii)
        chart_rows = chart_lines(charts.add_rules(area, {cell: ""}))
        for row, runs in enumerate(chart_rows):
            title = f"{number.plain_name} {number.unit_name(GHZ)}" if side == row == 0 else ""
            name = "AB"[side] if row == 0 else ""
            value = number.text(values_now[side], GHZ) if row == 0 else ""
            key = "faint" if row == 0 and not isfinite(values_now[side]) else "text"
            verdict = verdicts[side] if verdicts and row == 0 else []
            label: Run = (f" {fit(title, LABEL_WIDTH - 4)}", "dim")
            lines.append(([label, (f"{name:<3}", "bright"), *runs,
                           (f"{value:>{VALUE_WIDTH - 1}} ", key), *verdict], "calm"))  # fmt: skip
    styles = {-1: ("alarm", "good"), 0: ("unknown", "unknown"), 1: ("good", "alarm")}
    difference_rows = (values[1] - values[0]) * chart_height / top
    runs = charts.difference_line(difference_rows, styles[number.better_sign], ascii_=pair.ascii)
    lines.append(([(f"{'B-A':>{LABEL_WIDTH - 1}} ", "dim"), *runs], "calm"))
    return lines


def _verdicts(pair: PairState, key: str) -> tuple[list[Run], list[Run]]:
    """Returns the difference of a number with its verdict, and the cause of the difference; both
    empty if the number was not compared."""
    rows = [] if pair.comparison is None else pair.comparison.rows
    row = next((row for row in rows if row.number.key == key), None)
    if row is None:
        return [], []
    style = "alarm" if row.verdict == "worse" else "bright" if row.is_sure else "dim"
    room = pair.verdict_width - 1
    change = change_text(row, "+-" if pair.ascii else "±").strip()
    cause = "" if row.cause is None else cause_of(row.cause[1]).name
    change_run = f" {fit(f'{change} {verdict_word(row)}', room)}", style
    return [change_run], [(f" {fit(cause, room)}", "text")]


def _scale_top(number: Number, values: list[Floats]) -> float:
    """Returns the upper end of the scale of both charts, in base units."""
    known_values = np.concatenate([series[np.isfinite(series)] for series in values])
    highest = float(known_values.max()) if len(known_values) else 1.0
    if number.unit == "ratio" and highest > 0.1:
        return 1.0
    return max(highest, MIN_SCALE_TOP if number.unit == "ratio" else 1e-9) * SCALE_HEADROOM


def _episode_lines(pair: PairState) -> list[Line]:
    """Returns a line for each recording, with the starts and the lengths of episodes and the labels
    of marks."""
    lines: list[Line] = []
    for row, track in enumerate(pair.tracks):
        axis, session = pair.axis_of_track(row), track.session
        line: list[Run] = [(" ", "text")] * axis.cells
        time_axis.draw_episodes(line, axis, session.episodes(*track.ends_ns))
        for moment in session.marks:
            time_axis.draw_mark(line, axis, moment)
        title = "episodes" if row == 0 else ""
        label: Run = (f" {fit(title, LABEL_WIDTH - 4)}", "dim")
        lines.append(([label, (f"{'AB'[row]:<3}", "bright"), *line], "calm"))
    return lines


def _axis_lines(pair: PairState) -> list[Line]:
    """Returns the axis with the cursor, and the line of its times."""
    blank: Run = (" " * LABEL_WIDTH, "text")
    ticks = time_axis.ticks(pair.axis, None)
    line = [(char, key) for text, key in time_axis.tick_line(pair.axis, (), ticks) for char in text]
    line[pair.cursor_cell] = ("▲", "bright")
    return [([blank, *line], "calm"), ([blank, *time_axis.times_line(pair.axis, ticks)], "calm")]


def _key_line(pair: PairState) -> Line:
    runs: list[Run] = []
    for name, text in (("step_on", "move"), ("next_episode", "next episode"),
                       ("narrower", "less time"), ("wider", "more"), ("help", "help"),
                       ("quit", "quit")):  # fmt: skip
        runs += [(f" {pair.captions[name]}", "key"), (f" {text} ", "dim")]
    return runs, "calm"


class PairScreen(DirectScreen):
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_by_id(PAIR_KEYS)]

    def __init__(self, page: PairPage) -> None:
        super().__init__()
        self.page = page

    def compose(self) -> ComposeResult:
        yield self.page

    def action_help(self) -> None:
        from perftop.tui.frame.overlays import HelpScreen

        bindings = [active.binding for active in self.active_bindings.values()]
        self.app.push_screen(HelpScreen(bindings, [], ascii_=self.page.pair.ascii))

    def action_window(self, steps: int) -> None:
        pair = self.page.pair
        pair.zoom = min(MAX_ZOOM, max(1.0, pair.zoom * ZOOM_FACTOR**-steps))
        self.page.update()

    def action_go_to_episode(self, direction: int) -> None:
        """Moves to the next (`direction` = 1) or previous (-1) mark or start of an episode in A or
        B."""
        pair = self.page.pair
        starts = sorted(
            (start_ns - origin) / 1e9
            for track, origin in zip(pair.tracks, pair.origins_ns, strict=True)
            for start_ns in track.event_times_ns()
        )
        starts_beyond = [start for start in starts if (start - pair.cursor_s) * direction > 1e-6]
        if starts_beyond:
            pair.cursor_s = starts_beyond[0] if direction > 0 else starts_beyond[-1]
            self.page.update()


class PairSource(ScreenSource):
    def __init__(self, recordings: tuple[Recording, Recording], alignment: Alignment) -> None:
        self._recordings, self._alignment = recordings, alignment

    def make_screen(self) -> PairScreen:
        a, b = (Track(recording.path.name, recording.hello) for recording in self._recordings)
        pair = PairState((a, b), self._alignment, ascii=self.app.ascii,
                    captions=key_captions(self.app.config.keys))  # fmt: skip
        self.page = PairPage(pair)
        return PairScreen(self.page)

    async def read_data(self) -> None:
        """Reads both recordings alternately, so that both appear from the start."""
        pairs = zip(self.page.pair.tracks, self._recordings, strict=True)
        streams = [(track, recording, recording.messages()) for track, recording in pairs]
        shown_s = began_s = time.monotonic()
        while streams:
            for stream in list(streams):
                track, recording, messages = stream
                if batch := list(islice(messages, MAX_BATCH)):
                    track.process(batch)
                else:
                    track.on_end()
                    track.is_read, track.damage = True, recording.damage
                    streams.remove(stream)
            now_s = time.monotonic()
            if now_s - began_s > BATCH_S:
                if now_s - shown_s > REFRESH_S:
                    self.page.update()
                    shown_s = now_s
                await asyncio.sleep(0.001)
                began_s = time.monotonic()
        self.page.pair.compare()
        self.page.update()

    def step(self, steps: int) -> None:
        pair = self.page.pair
        first, last = pair.window_s
        self._move_cursor(steps * (last - first) / pair.cells)

    skip = step

    def go_to_start(self) -> None:
        self._move_cursor(-float("inf"))

    def go_to_end(self) -> None:
        self._move_cursor(float("inf"))

    def _move_cursor(self, seconds: float) -> None:
        self.page.pair.move_cursor(seconds)
        self.page.update()


def run(paths: tuple[Path, Path], alignment: Alignment, config: Config, *, mouse: bool) -> int:
    """Runs the app; returns the exit status. Raises Failed if there is nothing to show."""
    with ExitStack() as files:
        a, b = (files.enter_context(Recording(path)) for path in paths)
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise Failed("the screen needs a terminal; for pipes and files: perftop diff", USAGE)
        source = PairSource((a, b), alignment)
        return run_app(PerfTopApp(source, config, ascii_=not supports_unicode()), mouse=mouse)
