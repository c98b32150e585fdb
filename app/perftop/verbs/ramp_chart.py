"""The chart of a ramp: the clock over the time since the start of the load, on a logarithmic time
axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.base.text import brief_duration, terminal_text
from perftop.draw import charts
from perftop.draw.charts import (
    ASCII_DOTS,
    CELL_DOT_COLUMNS,
    CELL_DOT_ROWS,
    ChartColumn,
    braille_character,
)
from perftop.verbs.ramp_runs import Climb, PhaseTrace, Ramp

LABEL_WIDTH = 6
STEP_HZ = 1e8
MIN_CHART_WIDTH = 20
DECADES = [10.0**power for power in range(-6, 3)]
"""Times in seconds that may have a label on the time axis."""
_COLOURS = {"clock": "32", "dim": "2", "faint": "2", "warn": "33"}
"""SGR codes by style, in colours of the terminal's palette; other styles have none."""


def chart_lines(
    ramp: Ramp, climb: Climb, phases: Sequence[PhaseTrace], width: int, height: int,
    *, unicode: bool, colour: bool,
) -> list[str]:  # fmt: skip
    """Returns the lines of the chart, ready to be printed; none if there is nothing to draw.
    `phases`: those of the run that `climb` describes."""

    def styled(text: str, key: str) -> str:
        code = _COLOURS.get(key, "") if colour and text.strip() else ""
        return terminal_text(text, code, unicode=unicode)

    def column(at_s: float) -> int:
        return max(0, int(np.searchsorted(edges, at_s, side="right")) - 1)

    room = width - LABEL_WIDTH
    if not sum(len(part.hz) for part in phases) or room < MIN_CHART_WIDTH:
        return []
    start, end, smooth = (
        np.concatenate([getattr(part, name) for part in phases])
        for name in ("start_s", "end_s", "smooth")
    )
    edges = np.geomspace(max(end[0] / 2, 1e-7), end[-1], room + 1)
    """Times in s at the edges of the columns."""
    first, last = np.searchsorted(start, edges[:-1]), np.searchsorted(start, edges[1:])
    covering_chunk = np.clip(last - 1, 0, len(smooth) - 1)
    chunks = zip(first.tolist(), last.tolist(), covering_chunk.tolist(), strict=True)
    # the median of the chunks that begin in the column, else the chunk that covers it
    hz = np.array([np.median(smooth[a:b]) if b > a else smooth[c] for a, b, c in chunks])
    edges = edges[:-1]
    steady_hz = ramp.steady_hz if ramp.steady_hz is not None else math.nan
    low, high = axis_span(np.append(hz, steady_hz))
    graph = clock_graph(hz, steady_hz, low, high, height, ascii_=not unicode)
    # each column shows one mark: the last
    moments = {column(at_s): name for name, at_s in climb.moments}
    numbers = axis_marks(low, high, height, height // 2)
    lines = []
    for i, line in enumerate(charts.chart_lines(charts.add_rules(graph, moments))):
        label = f"{numbers[i] / 1e9:{LABEL_WIDTH - 1}.2f} " if i in numbers else " " * LABEL_WIDTH
        cells = "".join(styled(text, key) for text, key in line)
        lines.append(styled(label, "dim") + cells.rstrip())
    marks = {"short": "▼" if unicode else "v", "long": "▽" if unicode else "v", "preempted": "x"}
    gaps = [" "] * room
    for gap in climb.gaps:
        gaps[column(gap.at_s)] = marks[gap.kind]
    lines.append(styled(f"{'gaps':<{LABEL_WIDTH}}{''.join(gaps).rstrip()}", "warn"))
    axis = ""
    for decade in DECADES:
        if edges[0] <= decade < edges[-1] and column(decade) < room - 8:
            axis = axis.ljust(column(decade)) + f"{brief_duration(decade).replace('.0', '')} "
    lines.append(styled(f"{'':{LABEL_WIDTH}}{axis}".rstrip(), "dim"))
    return lines


def clock_graph(
    values: Floats, steady_hz: float, low: float, high: float, lines: int, *, ascii_: bool = False
) -> list[ChartColumn]:
    """Returns a chart with the clock as a stepped line and the steady clock as a dotted line. `low`
    is at the bottom and `high` at the top; values beyond them are drawn at the edge."""
    dots, cell_columns = charts.dots_per_cell("ascii" if ascii_ else "colour")
    rows = lines * dots
    line = dots_of_line(np.repeat(values, cell_columns), low, high, rows)
    limit = np.zeros_like(line)
    if math.isfinite(steady_hz):
        limit[dot_rows(np.array([steady_hz]), low, high, rows), ::2] = True
    is_known = line.reshape(lines, dots, -1, cell_columns).any(axis=(1, 3))
    limit_known = limit.reshape(lines, dots, -1, cell_columns).any(axis=(1, 3))
    signs = np.array(dot_signs(line if ascii_ else line | limit, ascii_=ascii_))
    if ascii_:
        signs[limit_known & ~is_known] = "."
    styles = np.where(is_known, "clock", np.where(limit_known, "dim", "text"))
    cells = zip(signs.T.tolist(), styles.T.tolist(), strict=True)
    return [ChartColumn("".join(column), tuple(keys)) for column, keys in cells]


# --- the scale of clocks

TICK_STEPS = (1.0, 2.0, 2.5, 5.0)
"""Distances between the marks of a scale, as multiples of a power of ten."""


def axis_span(hz: Floats) -> tuple[float, float]:
    """Returns the ends of a scale for these clocks: multiples of STEP_HZ, at least two steps apart.
    Extra room is at the bottom, because clocks drop."""
    known_hz = hz[np.isfinite(hz)]
    if not len(known_hz):
        return 0.0, 2 * STEP_HZ
    high = STEP_HZ * max(2, math.ceil(float(known_hz.max()) / STEP_HZ))
    return min(STEP_HZ * math.floor(float(known_hz.min()) / STEP_HZ), high - 2 * STEP_HZ), high


def axis_marks(low: float, high: float, lines: int, max_marks: int) -> dict[int, float]:
    """Returns the values beside a scale of `lines` lines, by line: at most `max_marks` multiples of
    the smallest of TICK_STEPS."""
    min_step = (high - low) / max(1, max_marks)
    power = 10.0 ** math.floor(math.log10(min_step))
    steps = (step * power for step in (*TICK_STEPS, 10.0))
    mark_step = next(step for step in steps if step >= min_step * (1 - 1e-9))
    first = math.ceil(low / mark_step - 1e-9)
    values: dict[int, float] = {}
    for i in range(first, math.floor(high / mark_step + 1e-9) + 1):
        value = i * mark_step
        line = int(dot_rows(np.array([value]), low, high, 4 * lines)[0]) // 4
        values.setdefault(line, value)
    return values


# --- Arrays of dots: the first index counts dots from the top, the second from the left.


def dot_rows(values: Floats, low: float, high: float, rows: int) -> Ints:
    """Returns the row of each value, 0 to `rows` - 1 from the top; -1 for unknown values."""
    is_known = np.isfinite(values)
    share = np.clip((high - np.where(is_known, values, low)) / (high - low), 0.0, 1.0)
    return np.where(is_known, np.floor(share * (rows - 1) + 0.5), -1).astype(np.int64)


def dots_of_line(values: Floats, low: float, high: float, rows: int) -> Bools:
    """Returns the dots of a line, (rows, values), which join a value and the previous value.
    Unknown values have no dots."""
    value_rows = dot_rows(values, low, high, rows)
    previous_rows = np.concatenate([value_rows[:1], value_rows[:-1]])
    previous_rows = np.where(previous_rows >= 0, previous_rows, value_rows)
    row = np.arange(rows)[:, None]
    first, last = np.minimum(value_rows, previous_rows), np.maximum(value_rows, previous_rows)
    dots: Bools = (value_rows >= 0) & (row >= first) & (row <= last)
    return dots


def dot_signs(dots: Bools, *, ascii_: bool) -> list[list[str]]:
    """Returns the characters of these dots, by line and cell; cells without dots are blank."""
    rows, columns = (len(ASCII_DOTS), 1) if ascii_ else (CELL_DOT_ROWS, CELL_DOT_COLUMNS)
    cells = dots.reshape(len(dots) // rows, rows, -1, columns)
    bits = (cells << np.arange(rows)[:, None, None]).sum(axis=1).tolist()
    if ascii_:
        signs = {0: " "} | {1 << row: sign for row, sign in enumerate(ASCII_DOTS)}
        return [[signs.get(column, "|") for (column,) in line] for line in bits]
    return [[braille_character(*columns) for columns in line] for line in bits]
