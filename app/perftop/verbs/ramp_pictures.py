"""Pictures of a ramp: a chart for the terminal, and an SVG. Both show the clock over the time since
the start of the load, on a logarithmic time axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

import numpy as np

from perftop.base.arrays import Floats
from perftop.base.text import brief_duration, with_style
from perftop.draw import cells as braille
from perftop.draw import charts
from perftop.draw.cells import dot_rows
from perftop.draw.charts import KEY_INDEX, Chart, rows_of
from perftop.verbs.ramp_runs import Climb, Ramp, Trace

LABELS = 6
"""Width in cells of the labels at the left."""
STEP_HZ = 1e8
"""Step in Hz to which the ends of the clock scale are rounded."""
MIN_CHART_WIDTH = 20
DECADES = [10.0**power for power in range(-6, 3)]
"""Times in seconds at which the time axis may have a label."""
_COLOURS = {"clock": "32", "dim": "2", "faint": "2", "warn": "33"}
"""SGR codes by style, from the terminal's own palette; other styles have no colour."""


def columns(parts: Sequence[Trace], width: int) -> tuple[Floats, Floats]:
    """Returns the time at the left end of each column, in seconds, and the clock of each column:
    the median of the chunks that begin in the column, else the clock of the chunk that covers
    it."""
    start = np.concatenate([part.start_s for part in parts])
    end = np.concatenate([part.end_s for part in parts])
    hz = np.concatenate([part.smooth for part in parts])
    edges = np.geomspace(max(end[0] / 2, 1e-7), end[-1], width + 1)
    first, last = np.searchsorted(start, edges[:-1]), np.searchsorted(start, edges[1:])
    covers = np.clip(last - 1, 0, len(hz) - 1)
    values = [
        np.median(hz[a:b]) if b > a else hz[c]
        for a, b, c in zip(first.tolist(), last.tolist(), covers.tolist(), strict=True)
    ]
    return edges[:-1], np.array(values)


def chart(
    ramp: Ramp, climb: Climb, parts: Sequence[Trace], width: int, height: int,
    *, unicode: bool, colour: bool,
) -> list[str]:  # fmt: skip
    """Returns the lines of the chart, empty if there is nothing to draw. `parts`: phases of the run
    `climb`."""

    def styled(text: str, key: str) -> str:
        return with_style(text, _COLOURS.get(key, "") if colour and text.strip() else "")

    def column(at_s: float) -> int:
        return max(0, int(np.searchsorted(edges, at_s, side="right")) - 1)

    room = width - LABELS
    if not sum(len(part.hz) for part in parts) or room < MIN_CHART_WIDTH:
        return []
    edges, hz = columns(parts, room)
    steady_hz = ramp.steady_hz if ramp.steady_hz is not None else math.nan
    low, high = axis_span(np.append(hz, steady_hz))
    graph = clock_graph(hz, steady_hz, low, high, height, ascii_=not unicode)
    moments = {column(at_s): name for name, at_s in climb.moments}  # one a column: the last
    numbers = axis_marks(low, high, height, height // 2)
    lines = []
    for i, line in enumerate(rows_of(charts.with_rules(graph.columns(), moments))):
        label = f"{numbers[i] / 1e9:{LABELS - 1}.2f} " if i in numbers else " " * LABELS
        cells = "".join(styled(text, key) for text, key in line)
        lines.append(styled(label, "dim") + cells.rstrip())
    marks = {"short": "▼" if unicode else "v", "long": "▽" if unicode else "v", "preempted": "x"}
    gaps = [" "] * room
    for gap in climb.gaps:
        gaps[column(gap.at_s)] = marks[gap.kind]
    lines.append(styled(f"{'gaps':<{LABELS}}{''.join(gaps).rstrip()}", "warn"))
    axis = ""
    for decade in DECADES:
        if edges[0] <= decade < edges[-1] and column(decade) < room - 8:
            axis = axis.ljust(column(decade)) + f"{brief_duration(decade).replace('.0', '')} "
    lines.append(styled(f"{'':{LABELS}}{axis}".rstrip(), "dim"))
    return lines


def clock_graph(
    values: Floats, steady_hz: float, low: float, high: float, lines: int, *, ascii_: bool = False
) -> Chart:
    """Returns a chart of a stepped line and the dotted line of the steady clock, with `low` at the
    bottom and `high` at the top; values beyond these ends are drawn at the edge."""
    dots, cell_columns = charts.cell_dots("ascii" if ascii_ else "colour")
    rows = lines * dots
    line = braille.line(np.repeat(values, cell_columns), low, high, rows)
    limits = np.full(len(values) * cell_columns, steady_hz)
    limit = braille.line(limits, low, high, rows, joined=False)
    limit[:, 1::2] = False
    is_known = line.reshape(lines, dots, -1, cell_columns).any(axis=(1, 3))
    limit_known = limit.reshape(lines, dots, -1, cell_columns).any(axis=(1, 3))
    if ascii_:
        codes = braille.ascii_codes(line)
        codes[limit_known & ~is_known] = ord(".")
    else:
        codes = braille.codes(line | limit)
    styles_below = np.where(limit_known, KEY_INDEX["dim"], KEY_INDEX["text"])
    return Chart(codes, np.where(is_known, KEY_INDEX["clock"], styles_below))


# --- the scale of clocks

TICK_STEPS = (1.0, 2.0, 2.5, 5.0)
"""Readable distances between the marks of a scale, as multiples of a power of ten."""


def axis_span(hz: Floats) -> tuple[float, float]:
    """Returns the ends of a scale that covers all clocks, as multiples of STEP_HZ. It spans at
    least two steps; the extra room is below the values, because clocks drop."""
    known_hz = hz[np.isfinite(hz)]
    if not len(known_hz):
        return 0.0, 2 * STEP_HZ
    high = STEP_HZ * max(2, math.ceil(float(known_hz.max()) / STEP_HZ))
    return min(STEP_HZ * math.floor(float(known_hz.min()) / STEP_HZ), high - 2 * STEP_HZ), high


def tick_step(span: float, max_steps: int) -> float:
    """Returns the smallest readable distance between marks that divides `span` into at most
    `max_steps` parts."""
    min_step = span / max(1, max_steps)
    power = 10.0 ** math.floor(math.log10(min_step))
    return next((s * power for s in TICK_STEPS if s * power >= min_step * (1 - 1e-9)), 10 * power)


def axis_marks(low: float, high: float, lines: int, max_marks: int) -> dict[int, float]:
    """Returns the round values to print beside a scale of `lines` lines, by line: at most
    `max_marks`, at multiples of a `tick_step`."""
    mark_step = tick_step(high - low, max_marks)
    first = math.ceil(low / mark_step - 1e-9)
    values: dict[int, float] = {}
    for i in range(first, math.floor(high / mark_step + 1e-9) + 1):
        value = i * mark_step
        line = int(dot_rows(np.array([value]), low, high, 4 * lines)[0]) // 4
        values.setdefault(line, value)
    return values


# --- SVG: each run is a thin line, the median run a thick line

WIDTH, HEIGHT = 960, 420
LEFT_MARGIN, RIGHT_MARGIN, TOP_MARGIN, BOTTOM_MARGIN = 60, 20, 50, 60
MAX_POINTS = 600
"""Approximate maximum number of points of a line; more would look the same."""
_INK, _GRID, _LINE, _THIN_LINE, _GAP = "#24292f", "#d0d7de", "#1a7f37", "#a8d5b5", "#a85400"


def svg(
    heading: str, answer: str, clock: str, ramp: Ramp, runs: Sequence[Sequence[Trace]], shown: int
) -> str:
    """Returns the text of the SVG. `runs`: the phases of each run. `shown`: index of the run with
    the thick line."""
    hz = np.concatenate([part.smooth for parts in runs for part in parts])
    ends = [float(part.end_s[i]) for parts in runs for part, i in ((parts[0], 0), (parts[-1], -1))]
    scale = _Scale(min(ends) / 2, max(ends), *axis_span(hz))
    body = [*_grid_elements(scale), *_mark_elements(scale, ramp, ramp.climbs[shown])]
    order = [i for i in range(len(runs)) if i != shown] + [shown]
    body += [_line_elements(scale, runs[i], thick=i == shown) for i in order]
    body += [
        _text_element(LEFT_MARGIN, 22, heading, 15), _text_element(LEFT_MARGIN, 40, clock, 11),
        _text_element(LEFT_MARGIN, HEIGHT - 12, answer, 12),
    ]  # fmt: skip
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {box}>'
    ground = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    return "\n".join([head, ground, *body, "</svg>", ""])


class _Scale:
    """Maps seconds (logarithmically) and clocks to coordinates in the picture."""

    def __init__(self, first_s: float, last_s: float, low: float, high: float) -> None:
        self.first_s, self.last_s, self.low, self.high = first_s, last_s, low, high

    def x(self, at_s: float) -> float:
        passed = math.log(max(at_s, self.first_s) / self.first_s)
        share = passed / math.log(self.last_s / self.first_s)
        return LEFT_MARGIN + share * (WIDTH - LEFT_MARGIN - RIGHT_MARGIN)

    def y(self, hz: float) -> float:
        share = (self.high - hz) / (self.high - self.low)
        return TOP_MARGIN + min(1.0, max(0.0, share)) * (HEIGHT - TOP_MARGIN - BOTTOM_MARGIN)


def _text_element(x: float, y: float, text: str, size: int, anchor: str = "start") -> str:
    attributes = f'font-size="{size}" fill="{_INK}" text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {attributes}>{escape(text)}</text>'


def _rule_element(x0: float, y0: float, x1: float, y1: float, colour: str, dashed: str = "") -> str:
    dash = f' stroke-dasharray="{dashed}"' if dashed else ""
    ends = f'x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}"'
    return f'<line {ends} stroke="{colour}"{dash}/>'


def _grid_elements(scale: _Scale) -> list[str]:
    bottom, right = HEIGHT - BOTTOM_MARGIN, WIDTH - RIGHT_MARGIN
    elements = []
    for decade in DECADES:
        if scale.first_s <= decade <= scale.last_s:
            x, name = scale.x(decade), brief_duration(decade).replace(".0", "")
            elements += [_rule_element(x, TOP_MARGIN, x, bottom, _GRID),
                      _text_element(x, bottom + 16, name, 11, "middle")]  # fmt: skip
    step = tick_step(scale.high - scale.low, 6)
    for i in range(math.ceil(scale.low / step - 1e-9), math.floor(scale.high / step + 1e-9) + 1):
        y = scale.y(i * step)
        elements += [
            _rule_element(LEFT_MARGIN, y, right, y, _GRID),
            _text_element(LEFT_MARGIN - 6, y + 4, f"{i * step / 1e9:.2f}", 11, "end"),
        ]
    return elements


def _mark_elements(scale: _Scale, ramp: Ramp, climb: Climb) -> list[str]:
    """Returns the SVG elements for the steady clock, the moments of the climb and the gaps."""
    bottom = HEIGHT - BOTTOM_MARGIN
    elements = []
    if ramp.steady_hz is not None:
        y = scale.y(ramp.steady_hz)
        elements.append(_rule_element(LEFT_MARGIN, y, WIDTH - RIGHT_MARGIN, y, _LINE, "2 4"))
    for line, (name, at_s) in enumerate(climb.moments):
        x = scale.x(at_s)
        elements.append(_rule_element(x, TOP_MARGIN, x, bottom, _INK, "4 4"))
        elements.append(_text_element(x + 4, bottom - 34 + 14 * line, name, 11))
    for gap in climb.gaps:
        x = scale.x(gap.at_s)
        elements.append(_rule_element(x, bottom + 22, x, bottom + 30, _GAP))
    if climb.gaps:
        elements.append(_text_element(LEFT_MARGIN - 6, bottom + 30, "gaps", 11, "end"))
    return elements


def _line_elements(scale: _Scale, parts: Sequence[Trace], *, thick: bool) -> str:
    """Returns the line of one run, through the middle of each chunk. A step function would be
    exact, but looks the same at this size."""
    middle_s = np.concatenate([(part.start_s + part.end_s) / 2 for part in parts])
    hz = np.concatenate([part.smooth for part in parts])
    stride = max(1, len(middle_s) // MAX_POINTS)
    points = " ".join(
        f"{scale.x(t):.1f},{scale.y(v):.1f}"
        for t, v in zip(middle_s[::stride].tolist(), hz[::stride].tolist(), strict=True)
    )
    colour, width = (_LINE, 2) if thick else (_THIN_LINE, 1)
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}"/>'
