"""Two recordings on one time axis: a `Track` for each, their state on the screen, and its lines.
For each number there are charts of A and B with the same scale, and a line of their difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil, isfinite, nan, prod

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Floats
from perftop.base.text import GHZ, clock_time, cut, fit, join_words, percent, signed
from perftop.draw import charts
from perftop.draw.charts import Glyphs, chart_lines
from perftop.draw.columns import Run
from perftop.draw.strips import (
    BLANK,
    Line,
    Piece,
    fit_line,
    justify,
    merge_runs,
    overlay,
    safe_cells,
    text,
    width,
)
from perftop.draw.theme import DROP_SIGN
from perftop.model.kinds import cause_of, kind_of_cause
from perftop.model.numbers import NUMBERS, Number
from perftop.output.compare.answer import (
    answer_sentences,
    loss_sentences,
)
from perftop.output.compare.comparison import Comparison, compare, explaining_cause
from perftop.output.compare.readings import Reading, RecordingReader, format_like, unit_of
from perftop.output.compare.text import change_text, verdict_word
from perftop.output.run_summary import setting_label, value_text
from perftop.session.history import Times
from perftop.session.losses import VERDICT_SPAN_NS
from perftop.tui.shared import time_axis
from perftop.tui.shared.keys import key_captions
from perftop.tui.shared.time_axis import Axis
from perftop.tui.shared.verdict import (
    CALM_SIGN,
    MIN_ALARM_SHARE,
    MIN_WARNING_SHARE,
    Loss,
    Verdict,
    loss_line,
    verdict_line,
)

MIN_AXIS_S = 1.0
CHARTED_NUMBER_KEYS = ("busy_hz", "power_w", "util", "ipc", "lost_ratio", "waited_s", "both",
                       "steal", "kernel_cycles")  # fmt: skip
"""Keys of the numbers with charts, in the order of the screen. If not all fit, those that the
largest differences in losses affect are shown, then the first ones."""
STYLES_BY_NUMBER = {"busy_hz": "clock", "ipc": "ipc", "steal": "loss", "lost_ratio": "loss",
                    "waited_s": "loss", "kernel_cycles": "kernel", "both": "both"}  # fmt: skip
"""Styles of charts by number; all other charts have the style "user"."""
MIN_CHARTED_MEAN = 0.005
"""Minimum mean of a lost, stolen or waited share in A or B to have a chart."""
LABEL_WIDTH = 24
"""Width in cells of the names and values to the left of the axis."""
VERDICT_WIDTH, MIN_WIDTH_WITH_VERDICTS = 26, 110
"""Width in cells of the column of verdicts, and minimum width of the screen to show it."""
MIN_NUMBER_LINES, MAX_CHART_LINES = 3, 10
"""Minimum lines per number, and maximum lines of one chart."""
MIN_LINES_WITH_GAP, MAX_DENSE_NUMBERS = 6, 5
"""Minimum number of lines for each number, one of which is then left blank; and the largest count
of numbers that may have fewer lines each."""
MIN_HEIGHT_FOR_GAPS = 30
"""Minimum height of the screen, in lines, for blank lines around the verdict."""
MIN_SCALE_TOP, MAX_SMALL_SHARE = 0.02, 0.1
"""Minimum upper end of the scale of a share, because smaller shares are noise; and the highest
share above which the scale ends at 1."""
MIN_DIFFERENCE_TOP = 0.1
"""Minimum upper end of the scale of a difference, as a share of the scale of both charts."""
SCALE_HEADROOM = 1.12
"""Factor by which a scale exceeds the highest value, to separate the chart of B from that of A."""
MAX_NAME_LENGTH = 28
CURSOR_STROKE = "│"
WORK_FACTORS = {"clock": "busy_hz", "IPC": "ipc", "busy": "util"}
"""Keys of the numbers whose product is the instructions per second of a CPU, by name."""
DIFFERENCE_LEGEND: tuple[list[Run], ...] = (
    [(" B-A: up where B is more", "dim")],
    [(" ██", "hot"), (" worse  ", "dim"), ("██", "clock-9"), (" better", "dim")],
)
SIDES = ("A", "key"), ("B", "culprit")
"""Name and style of each recording."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """The moment of a recording that is zero on the time axis."""

    kind: str = "start"
    """One of "start", "command" and "mark"."""
    label: str = ""

    @property
    def text(self) -> str:
        names = {"start": "the start", "command": "the start of the command"}
        return names.get(self.kind) or f"mark {self.label}"


class Track(RecordingReader):
    def __init__(self, name: str, hello: wire.Hello) -> None:
        super().__init__(by_mark=False)
        self.name = name
        self.is_read = False
        self.damage: str | None = None
        self._sums_cache: tuple[int, dict[str, tuple[Floats, Floats, Floats]]] = (-1, {})
        self.process([hello])

    def origin_ns(self, alignment: Alignment) -> int | None:
        """Returns the raw time in ns at zero on the axis; None if it has not been read."""
        if alignment.kind == "start":
            return self.session.hello.raw_ns
        if alignment.kind == "command":
            start = self.session.command_run.start
            return None if start is None else start.time_ns
        labels = ((mark.evidence["label"], mark.start_ns) for mark in self.session.marks)
        return next((at_ns for label, at_ns in labels if label == alignment.label), None)

    @property
    def ends_ns(self) -> tuple[int, int]:
        return self.session.hello.raw_ns, self.session.now_ns

    def values(self, key: str, edges_ns: Times) -> Floats:
        """Returns the means of a number between adjacent edges (raw times in ns); NaN where
        unknown. Within a slice of the recording, the value is constant."""
        sums = self._cumulative_sums()
        if key not in sums:
            return np.full(len(edges_ns) - 1, nan)
        ends_ns, *parts = sums[key]
        amounts, sizes = (np.diff(np.interp(edges_ns, ends_ns, part)) for part in parts)
        return np.where(sizes > 0, amounts / np.where(sizes > 0, sizes, 1.0), nan)

    def reading_between(self, start_ns: int, end_ns: int) -> Reading:
        """Returns the numbers of a part of the recording, given by raw times in ns."""
        return self.series.reading_between(self.readings[0], start_ns, end_ns)

    def _cumulative_sums(self) -> dict[str, tuple[Floats, Floats, Floats]]:
        """Returns, by key, the start of the first slice and the ends of all slices, and two
        cumulative sums up to these times, whose quotient is a mean."""
        if self._sums_cache[0] != self.session.frames:
            self._sums_cache = self.session.frames, self.series.sums()
        return self._sums_cache[1]

    @property
    def keys(self) -> set[str]:
        """Keys of the numbers that are known and not too small for a chart."""
        sums = self._cumulative_sums().items()
        means = {key: amounts[-1] / sizes[-1] for key, (_, amounts, sizes) in sums if sizes[-1] > 0}
        min_means = {
            key: MIN_CHARTED_MEAN for key, style in STYLES_BY_NUMBER.items() if style == "loss"
        }
        return {key for key, mean in means.items() if mean > min_means.get(key, 0.0)}


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
    glyphs: Glyphs = "colour"
    captions: Mapping[str, str] = field(default_factory=partial(key_captions, {}))
    range_s: tuple[float, float] | None = None
    """Start and end of the selected range, in seconds on the axis."""
    comparison: Comparison | None = None
    """The result of the comparison; None until both are read, or if one is too short."""
    has_only_alignment: bool = False
    """Whether the user asked for another alignment and there was none."""

    def compare(self) -> None:
        """Compares the recordings, both of which must have been read, or their selected range."""
        a, b = (track.readings for track in self.tracks)
        for start_ns, end_ns in self.ranges_ns if a and b else ():
            sides = zip(self.tracks, self.origins_ns, strict=True)
            a, b = ([track.reading_between(start_ns + ns, end_ns + ns)] for track, ns in sides)
        self.comparison = compare([("", a, b)])[0] if a and b else None

    def select_range(self, start_s: float, end_s: float) -> None:
        if self.is_read:
            self.range_s = min(start_s, end_s), max(start_s, end_s)
            self.compare()

    def clear_range(self) -> None:
        if self.range_s is not None:
            self.range_s = None
            self.compare()

    def align_next(self) -> None:
        """Aligns the recordings at the next moment found in both. The cursor stays at its time in
        A; a range is cleared, because it would no longer be the same."""
        labels = [str(mark.evidence["label"]) for mark in self.tracks[0].session.marks]
        moments = [Alignment(), Alignment("command"), *(Alignment("mark", name) for name in labels)]
        by_origins: dict[tuple[int | None, ...], Alignment] = {}
        for moment in reversed(moments):
            by_origins[tuple(track.origin_ns(moment) for track in self.tracks)] = moment
        choices = [m for origins, m in reversed(by_origins.items()) if None not in origins]
        self.has_only_alignment = len(choices) < 2
        later = choices[choices.index(self.alignment) + 1 :] if self.alignment in choices else []
        origin_ns = self.origins_ns[0]
        self.alignment = [*later, *choices][0]
        self.move_cursor((origin_ns - self.origins_ns[0]) / 1e9)
        self.clear_range()

    @property
    def is_read(self) -> bool:
        return all(track.is_read for track in self.tracks)

    @property
    def origins_ns(self) -> tuple[int, int]:
        """Raw times in ns of A and B at zero on the axis: the alignment or, if a recording does not
        have it (yet), the start."""
        a, b = (track.origin_ns(self.alignment) for track in self.tracks)
        start_a, start_b = (track.ends_ns[0] for track in self.tracks)
        return start_a if a is None else a, start_b if b is None else b

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
        return max(10, self.width - LABEL_WIDTH - 1 - self.verdict_width)

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

    def track_axis(self, track: int) -> Axis:
        """Returns the time axis in raw ns of recording 0 (A) or 1 (B)."""
        axis, (first_ns, last_ns) = self.axis, self.tracks[track].ends_ns
        end_ns = axis.end_ns + self.origins_ns[track]
        return replace(axis, end_ns=end_ns, now_ns=min(end_ns, last_ns), first_ns=first_ns)

    @property
    def ranges_ns(self) -> list[tuple[int, int]]:
        """The selected range in ns since the alignment, if there is one."""
        ranges_s = [] if self.range_s is None else [self.range_s]
        return [(round(1e9 * start_s), round(1e9 * end_s)) for start_s, end_s in ranges_s]

    @property
    def cursor_cell(self) -> int:
        """Cell of the cursor. The end of the axis is in the last cell."""
        return max(0, min(self.axis.cell_after(round(self.cursor_s * 1e9)), self.cells - 1))

    def move_cursor(self, seconds: float) -> None:
        first, last = self.extent_s
        self.cursor_s = min(max(first, self.cursor_s + seconds), last)


def pair_page(pair: PairState) -> list[Line]:
    gap = [BLANK] if pair.height >= MIN_HEIGHT_FOR_GAPS else []
    lines = [_header_line(pair), *gap, *_verdict_lines(pair), *gap]
    room = pair.height - len(lines) - 5
    body = _chart_lines(pair, room)
    body = [*body[:room], *[BLANK] * (room - len(body))]
    for runs, state in body:
        faded = time_axis.fade_outside(runs, pair.axis, pair.ranges_ns, LABEL_WIDTH)
        x, stroke = LABEL_WIDTH + pair.cursor_cell, [(CURSOR_STROKE, "bright")]
        lines.append((overlay(merge_runs(faded, pair.width), x, stroke), state))
    blank: Run = (" " * LABEL_WIDTH, "text")
    ticks = time_axis.ticks(pair.axis, None)
    label = f" {signed(pair.cursor_s, 1)} s "
    x = max(0, min(pair.cells - len(label), pair.cursor_cell - len(label) // 2))
    times = time_axis.times_line(pair.axis, ticks)
    times = overlay(times, x, [(label, "label")], whole_words=True)
    axis_line = [blank, *time_axis.tick_line(pair.axis, (), ticks)]
    lines += [*_episode_lines(pair), (axis_line, "calm"), ([blank, *times], "calm")]
    return [*lines, _key_line(pair)][: pair.height]


def _header_line(pair: PairState) -> Line:
    is_wide = pair.width >= MIN_WIDTH_WITH_VERDICTS
    left_runs: list[Run] = [(" perftop ", "key")] if is_wide else []
    left_runs.append((" ", "text"))
    for (side, style), track in zip(SIDES, pair.tracks, strict=True):
        name = fit(safe_cells(track.name), MAX_NAME_LENGTH).rstrip()
        seconds = (track.ends_ns[1] - track.ends_ns[0]) / 1e9
        left_runs += [(f"{side} ", style), (name, "bright"), (f" {seconds:.0f} s   ", "dim")]
    status = f"aligned at {safe_cells(pair.alignment.text)}"
    sides = zip(SIDES, pair.tracks, strict=True)
    damages = [f"{side} is {t.damage.partition(':')[0]}" for (side, _), t in sides if t.damage]
    if not pair.is_read:
        status = "reading …"
    elif any(track.origin_ns(pair.alignment) is None for track in pair.tracks):
        status = "not aligned: one recording lacks this moment"
    elif damages:
        status = join_words(damages)
    elif pair.has_only_alignment:
        status = f"{status}: no other moment in both"
    times = [clock_time(track.session.unix_s(round(pair.cursor_s * 1e9) + origin))
             for track, origin in zip(pair.tracks, pair.origins_ns, strict=True)]  # fmt: skip
    pieces: list[Piece] = [(0, [(status, "dim")]), (1, [(f"A {times[0]}  B {times[1]}", "text")])]
    right_runs = fit_line(pieces, pair.width - width(left_runs) - 2, 3)
    return justify(left_runs, [*right_runs, (" ", "text")], pair.width), "calm"


def _verdict_lines(pair: PairState) -> list[Line]:
    """Returns the answer of `perftop diff`, and a line of what B lost and of its work."""
    if (comparison := pair.comparison) is None:
        return [BLANK, BLANK]
    verdict = _pair_verdict(comparison)
    if pair.range_s is not None:
        start, end = pair.range_s
        verdict = verdict.with_first_evidence(f"{signed(start, 1)} to {signed(end, 1)} s only")
    report_key: list[Run] = [(pair.captions["report"], "key"), (" diff as text", "dim")]
    keys: list[Piece] = [(1, _work_runs(comparison)), (0, report_key)]
    losses = loss_line(verdict, pair.width, keys, pair.glyphs, "B lost")
    return [verdict_line(verdict, pair.width), losses]


def _work_runs(comparison: Comparison) -> list[Run]:
    """Returns the difference in instructions per second, and its factors; [] if one of them is
    unknown."""
    rows = {row.number.key: row for row in comparison.rows}
    factors = {}
    for name, key in WORK_FACTORS.items():
        if key not in rows or not rows[key].side_a:
            return []
        factors[name] = rows[key].side_b / rows[key].side_a

    def change(key: str, factor: float) -> Run:
        worse = NUMBERS[key].better_sign * (1 - factor)
        style = "alarm" if worse >= MIN_ALARM_SHARE else "text"
        return signed(100 * (factor - 1), 1), style

    runs: list[Run] = [("work per second ", "dim"), change("ipc", prod(factors.values()))]
    runs.append((" %:", "dim"))
    for name, factor in factors.items():
        runs += [(f" {name} ", "dim"), change(WORK_FACTORS[name], factor), (",", "dim")]
    return runs[:-1]


def _pair_verdict(comparison: Comparison) -> Verdict:
    """Returns the answer as a verdict: red if B is worse, orange if nothing is certain."""
    answer, *evidence = (sentence.removesuffix(".") for sentence in answer_sentences([comparison]))
    largest_loss = next(iter(comparison.extra_loss.items()), None)
    is_worse = any(row.verdict == "worse" for row in comparison.rows)
    is_better = any(row.verdict == "better" for row in comparison.rows)
    is_open = answer.startswith("Inconclusive")
    cause_sign = kind_of_cause(*largest_loss[0]).marker if largest_loss else ""
    sign = "?" if is_open else cause_sign or CALM_SIGN
    severity = max(0.0, largest_loss[1]) if largest_loss else 0.0
    if is_worse:
        severity, sign = max(severity, MIN_ALARM_SHARE), DROP_SIGN if sign == CALM_SIGN else sign
    elif not severity and not is_better and (is_open or largest_loss):
        severity = MIN_WARNING_SHARE
    settings = (
        f"{setting_label(s.key)} {value_text(s.key, s.side_a)} / {value_text(s.key, s.side_b)}"
        for s in comparison.differing_states
    )
    sides = comparison.side_a, comparison.side_b
    loss_in_a, loss_in_b = (side[0].numbers.get("lost_ratio", nan) for side in sides)
    text_on_a = f"({percent(loss_in_a)} in A)" if isfinite(loss_in_a) else ""
    pieces = *evidence, *loss_sentences(comparison), *settings
    verdict = Verdict(answer, pieces, sign, severity, span_s=VERDICT_SPAN_NS / 1e9)
    if not isfinite(loss_in_b):
        return verdict
    return replace(verdict, losses=(Loss(loss_in_b, cause_sign, text_on_a),), wanted_s=1.0)


def _chart_lines(pair: PairState, room: int) -> list[Line]:
    known_keys = set[str]().union(*(track.keys for track in pair.tracks))
    ranked: list[str] = []
    for cause in pair.comparison.extra_loss if pair.comparison else ():
        ranked += kind_of_cause(*cause).explained_keys
    ranked = [key for key in dict.fromkeys((*ranked, *CHARTED_NUMBER_KEYS)) if key in known_keys]
    dense_count = min(MAX_DENSE_NUMBERS, max(2, room // MIN_NUMBER_LINES))
    ranked = ranked[: max(dense_count, room // MIN_LINES_WITH_GAP)]
    keys = [key for key in CHARTED_NUMBER_KEYS if key in ranked]
    if not keys:
        return [([(" nothing read yet", "dim")], "calm")]
    lines_per_number = room // len(keys)
    chart_height = (lines_per_number - 1 - (lines_per_number >= MIN_LINES_WITH_GAP)) // 2
    chart_height = max(1, min(MAX_CHART_LINES, chart_height))
    left_lines, gap_lines = room - len(keys) * (2 * chart_height + 1), len(keys) - 1
    gap = [BLANK] if left_lines >= gap_lines else []
    # The first charts are one line higher if that fills the screen.
    higher_count = (left_lines - len(gap) * gap_lines) // 2 * (chart_height < MAX_CHART_LINES)
    lines: list[Line] = []
    for i, key in enumerate(keys):
        lines += [*_chart_band(pair, NUMBERS[key], chart_height + (i < higher_count)), *gap]
    return lines


def chart_top(number: Number, highest: float) -> float:
    is_share = number.unit == "ratio"
    if is_share and highest > MAX_SMALL_SHARE:
        return 1.0
    return max(highest, MIN_SCALE_TOP if is_share else 1e-9) * SCALE_HEADROOM


def _chart_band(pair: PairState, number: Number, chart_height: int) -> list[Line]:
    """Returns the charts of a number, A above B, and the line of their difference."""
    axes = pair.track_axis(0), pair.track_axis(1)
    pairs = zip(pair.tracks, axes, strict=True)
    values = [track.values(number.key, axis.edges) for track, axis in pairs]
    known_values = np.concatenate([series[np.isfinite(series)] for series in values])
    top = chart_top(number, float(known_values.max()) if len(known_values) else 1.0)
    cell = pair.cursor_cell
    unit = f"{number.unit_name(GHZ)}{'/s' * number.is_unbounded}"
    verdicts = iter(_verdict_runs(pair, number.key) if pair.verdict_width else ())
    lines: list[Line] = []

    def add(label: list[Run], runs: list[Run]) -> None:
        lines.append(([*label, *runs, (" ", "text"), *next(verdicts, ())], "calm"))

    name: list[Run] = [(f" {number.plain_name}", "bright"), (f" {unit}", "dim")]
    for (side, style), series in zip(SIDES, values, strict=True):
        area_style = STYLES_BY_NUMBER.get(number.key, "user")
        area = charts.area_chart(series / top, chart_height, area_style, ascii_=pair.ascii)
        at_cursor = float(series[cell])
        number_style = "text" if isfinite(at_cursor) else "faint"
        value: list[Run] = [(number.text(at_cursor, GHZ), number_style), (f"  {side} ", style)]
        for row, runs in enumerate(chart_lines(area), 1):
            head = name if side == "A" and row == 1 else []
            right = value if row == chart_height else []
            room = LABEL_WIDTH - width(right) - 1
            label = head if width(head) <= room else [(cut(text(head), room), "bright")]
            add(justify(label, right, LABEL_WIDTH), runs)
    difference = values[1] - values[0]
    largest = float(np.nan_to_num(np.abs(difference)).max())
    shares = difference / max(largest, MIN_DIFFERENCE_TOP * top)
    styles = {-1: ("hot", "clock-9"), 0: ("unknown", "unknown"), 1: ("clock-9", "hot")}
    runs = charts.difference_line(shares, styles[number.better_sign], pair.glyphs)
    add([(f"{'B-A':>{LABEL_WIDTH - 1}} ", "dim")], runs)
    return lines


def _verdict_runs(pair: PairState, key: str) -> list[list[Run]]:
    """Returns the difference of a number with its verdict, its means, and the cause of the
    difference, if known; [] if the number was not compared."""
    if pair.comparison is None:
        return []
    row = next((row for row in pair.comparison.rows if row.number.key == key), None)
    if row is None:
        return []
    style = "alarm" if row.verdict == "worse" else "bright" if row.is_clear else "dim"
    room = pair.verdict_width - 1
    change = change_text(row, "+-" if pair.ascii else "±").strip()
    a, b = (format_like(row.number, value, row.side_a) for value in (row.side_a, row.side_b))
    texts = [f"{change} {verdict_word(row)}", f"{a}, {b} {unit_of(row.number)}"]
    lines: list[list[Run]] = [[(f" {cut(texts[0], room)}", style)]]
    lines.append([(f" {cut(texts[1], room)}", "dim")])
    # Even if the difference is not certain, name the cause to which B lost more time: it may
    # explain the difference.
    b_minus_a = row.side_b - row.side_a
    worse_side = 1 if b_minus_a * row.number.better_sign < 0 else 0
    cause = row.cause
    if cause is None and worse_side == 1:
        cause = explaining_cause(pair.comparison.extra_loss, row.number, b_minus_a)
    if cause is not None:
        track, origin_ns = pair.tracks[worse_side], pair.origins_ns[worse_side]
        episodes = track.session.episodes(*track.ends_ns)
        starts_s = [(e.start_ns - origin_ns) / 1e9 for e in episodes if (e.kind, e.cause) == cause]
        start = f", {signed(min(starts_s), 0)} s" if starts_s else ""
        name = cut(cause_of(cause[1]).name, room - 2 - len(start))
        sign = f" {kind_of_cause(*cause).marker} ", "alarm" if row.is_clear else "dim"
        lines.append([sign, (name, "text"), (start, "dim")])
    return lines


def _episode_lines(pair: PairState) -> list[Line]:
    """Returns a line for each recording, with its episodes and the labels of its marks."""
    lines: list[Line] = []
    for row, track in enumerate(pair.tracks):
        axis, session = pair.track_axis(row), track.session
        line = time_axis.axis_rule(axis, session.episodes(*track.ends_ns))
        for moment in session.marks:
            time_axis.draw_mark(line, axis, moment)
        name, style = SIDES[row]
        title: Run = (" episodes" if row == 0 else "", "dim")
        legend = DIFFERENCE_LEGEND[row] if pair.verdict_width and pair.glyphs == "colour" else []
        label = justify([title], [(f"{name} ", style)], LABEL_WIDTH)
        lines.append(([*label, *line, (" ", "text"), *legend], "calm"))
    return lines


def _key_line(pair: PairState) -> Line:
    pieces: list[Piece] = [(0, [(f" {pair.captions['step_back']}", "key")])]
    for rank, name, label in (
        (0, "step_on", "move"), (2, "next_episode", "next episode"), (3, "narrower", "less time"),
        (3, "wider", "more"), (1, "align", "align"), (2, "range_start", "range"),
        (2, "range_end", "to"), (1, "report", "diff as text"), (0, "help", "help"),
        (0, "quit", "quit"),
    ):  # fmt: skip
        pieces.append((rank, [(f" {pair.captions[name]}", "key"), (f" {label} ", "dim")]))
    return fit_line(pieces, pair.width, 0), "calm"
