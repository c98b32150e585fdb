"""Charts: functions that turn the values of columns into cells.

A chart has the requested height, and its newest column is at the right. A column without a known
value is blank. Colour only repeats what height, shape or the kind of line shows. In charts of
stacked areas, a column takes one cell. In lines and areas of dots, two columns share a cell.

Values are first rounded, as arrays, to eighths or dots of a cell. This leaves few different columns
of cells, and most of these come from a cache: the charts of a machine have thousands of cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby, pairwise, repeat
from math import isnan
from typing import Literal, NamedTuple

import numpy as np

from perftop.base.arrays import Floats, Ints
from perftop.draw import theme
from perftop.draw.columns import Run
from perftop.draw.strips import make_runs
from perftop.draw.theme import AREA_STEPS


class ChartColumn(NamedTuple):
    """A column of a chart: the characters and the styles of its cells, from the top."""

    chars: str
    styles: tuple[str, ...]
    """The name of the style of each cell."""

    @classmethod
    def from_cells(cls, cells: Iterable[Run]) -> ChartColumn:
        chars, styles = zip(*cells, strict=True)
        return cls("".join(chars), styles)


Glyphs = Literal["colour", "sixteen", "shapes", "ascii"]
"""Ways to draw the cells of charts. "colour": with a foreground and a background colour. "sixteen":
as shapes in the terminal's own 16 colours. "shapes": as shapes without colour."""


def chart_lines(columns: Sequence[ChartColumn]) -> list[list[Run]]:
    """Returns the lines of the chart that consists of these columns, the top line first."""
    chars, styles = "".join([column.chars for column in columns]), [c.styles for c in columns]
    lines = [*zip(*styles, strict=True)]
    return [make_runs(chars[y :: len(lines)], line) for y, line in enumerate(lines)]


def colour_step(row: int, rows: int) -> int:
    """Returns the colour step of a row in a filled area of `rows` rows. Row 0 is at the base."""
    return int((row + 0.5) * AREA_STEPS / rows)


def level_lines(eighths: Floats, rows: int, chars: str = theme.LEVELS) -> list[str]:
    """Returns the lines of a chart, the top line first. `eighths`: heights in eighths of a cell.
    `chars`: the characters for 0 to 8 eighths of a cell."""
    levels = (eighths - 8 * np.arange(rows - 1, -1, -1)[:, None]).clip(0, 8).astype(int).tolist()
    return ["".join([chars[level] for level in line]) for line in levels]


# --- stacked areas

MIN_DRAWN_STEAL = 0.004
"""Minimum share of steal (time taken by the hypervisor) that charts of any height show."""
OUTSIDE_EPISODES, AFTER_EPISODE, DURING_EPISODE = 0, 1, 2
"""Kinds of steal in a column: outside episodes, in an ended episode, in a running one."""
_MIN_ROWS_FOR_CHAR = 8
"""Minimum height in rows of a chart that shows the steal character in cells full of steal."""
_UPPER_BLOCKS = " ▁▂▃▀▅▆▔█"
"""Block characters by the height in eighths of the lower part of a cell, which they leave to the
background. Only the heights in _SHAPES have one; the others are placeholders."""
_SHAPES = frozenset({4, 7})
"""Heights in eighths for which a character of _UPPER_BLOCKS is used, in the colour of the upper
part. They leave no seams in terminals whose glyphs do not fill the cell."""
_USER, _KERNEL, _IDLE, _STEAL = range(4)
_MAX_CACHED = 4096
"""Maximum number of cached columns, and of cached cells, for each kind of chart."""
StealPriority = Literal["equal", "weak", "firm"]
"""Rule for a cell with three kinds of time, one of which is steal. "equal": steal is left out if it
is the smallest. "weak": steal is left out before kernel. "firm": steal is never left out."""


def two_largest_kinds(
    parts: Sequence[int], steal_priority: StealPriority = "equal"
) -> tuple[int, int, int]:
    """Returns the lower and the upper kind of time that a cell shows, and the height of the lower
    one in eighths. `parts`: eighths of user, kernel, idle and steal, from the base of the cell. If
    there are three kinds, the smallest is left out, subject to `steal_priority`."""
    size_by_kind: dict[int, float] = {kind: size for kind, size in enumerate(parts) if size}
    if _STEAL in size_by_kind and steal_priority == "firm":
        size_by_kind[_STEAL] = 9
    elif {_STEAL, _KERNEL} <= size_by_kind.keys() and steal_priority == "weak":
        size_by_kind[_STEAL] = min(size_by_kind[_STEAL], size_by_kind[_KERNEL] - 0.5)
    largest = sorted(size_by_kind, key=lambda kind: (-size_by_kind[kind], kind))[:2]
    lower, upper = min(largest), max(largest)
    return lower, upper, sum(parts[:upper]) if lower != upper else 8


def _eighths_in_cell(ends: Sequence[int], row: int) -> tuple[int, ...]:
    """Returns how many eighths of the cell in this row each stacked area fills, where row 0 is at
    the base. `ends`: upper ends of the areas, in eighths of a cell from the base."""
    tops = [min(max(end - 8 * row, 0), 8) for end in ends]
    return tuple([upper - lower for lower, upper in pairwise((0, *tops))])


def _to_eighths(shares: Floats, rows: int) -> Ints:
    """Returns shares (0 to 1) in eighths of a cell. A share of 1 fills `rows` cells."""
    return np.floor(np.clip(shares, 0.0, 1.0) * (8 * rows) + 0.5).astype(int)


def _draw_columns(
    draw: Callable[..., ChartColumn], columns: Ints, rows: int, glyphs: Glyphs
) -> list[ChartColumn]:
    """Draws each row of `columns`, (columns, numbers), by the cached function `draw`."""
    return [*map(draw, map(tuple, columns.tolist()), repeat(rows), repeat(glyphs))]


def cpu_time_chart(columns: Floats, rows: int, glyphs: Glyphs = "colour") -> list[ChartColumn]:
    """Returns the chart of a CPU's time: user and kernel grow from the bottom, steal hangs from the
    top. `columns`: (columns, 4), the shares of user, kernel and steal, and OUTSIDE_EPISODES,
    AFTER_EPISODE or DURING_EPISODE. A column with an unknown user share is blank."""
    is_unknown = ~np.isfinite(columns[:, 0])
    user, kernel, steal, state = np.fmax(columns, 0.0).T
    user_top, busy_top, steal_height = _to_eighths(np.stack([user, user + kernel, steal]), rows)
    steal_height = np.maximum(steal >= MIN_DRAWN_STEAL, steal_height)
    busy_top = np.minimum(busy_top, 8 * rows - steal_height)
    user_top = np.where(is_unknown, -1, np.minimum(user_top, busy_top))
    ends = np.stack([user_top, busy_top, steal_height, state.astype(int)], axis=1)
    return _draw_columns(_cpu_time_column, ends, rows, glyphs)


@lru_cache(maxsize=_MAX_CACHED)
def _cpu_time_column(column: tuple[int, ...], rows: int, glyphs: Glyphs) -> ChartColumn:
    """Returns one column of `cpu_time_chart`. `column`: in eighths of a cell, the upper ends of
    user (-1 if unknown) and of kernel time, and the height of steal; then the kind of steal."""
    user, busy, steal_height, state = column
    if user < 0:
        return ChartColumn(" " * rows, ("text",) * rows)
    ends = user, busy, 8 * rows - steal_height, 8 * rows
    cell = _cpu_time_cell if glyphs == "colour" else _largest_kind_cell
    return ChartColumn.from_cells(
        cell(_eighths_in_cell(ends, row), state, row, rows, glyphs) for row in reversed(range(rows))
    )


@lru_cache(maxsize=_MAX_CACHED)
def _cpu_time_cell(parts: tuple[int, ...], state: int, row: int, rows: int, _glyphs: Glyphs) -> Run:
    lower, upper, level = two_largest_kinds(parts, "weak" if state == OUTSIDE_EPISODES else "firm")
    step = colour_step(row, rows)
    names = f"user-{step}", f"kernel-{step}", "", ("steal", "steal", "hot")[state]
    below, above = names[lower], names[upper]
    if lower != upper:
        if (lower, upper, state) == (_IDLE, _STEAL, OUTSIDE_EPISODES) and level in _SHAPES:
            return _UPPER_BLOCKS[level], above
        return theme.LEVELS[level], f"{below or 'ground'}/{above}" if above else below
    if lower == _STEAL and state != OUTSIDE_EPISODES and rows >= _MIN_ROWS_FOR_CHAR:
        return theme.STEAL, "alarm/hot-back" if state == DURING_EPISODE else "over/over-back"
    return (" ", "text") if lower == _IDLE else (theme.LEVELS[8], below)


NAMED_TASKS = 5
"""Maximum number of tasks that have their own colour and letter in a chart."""
TASK_PARTS = NAMED_TASKS + 2
"""Number of parts of a column of `task_chart`: named tasks, other tasks, and unknown tasks."""
_TASK_STYLES = (*(f"task{i}" for i in range(NAMED_TASKS + 1)), "rule", "ground")
MIN_TASK_SHARE = 0.1
"""Minimum busy share (0 to 1) of a CPU for a task chart of one row to show a task."""
TASK_LETTERS = "abcde+/ "
"""Characters of a task chart without colour: named tasks, others, unknown tasks, idle time."""
UNKNOWN_TASK = "╱"
"""Character for busy time whose task is unknown."""


def task_chart(columns: Floats, rows: int, glyphs: Glyphs = "colour") -> list[ChartColumn]:
    """Returns the chart of the tasks on a CPU. `columns`: (columns, TASK_PARTS), shares of the
    CPU's time from the bottom; the rest is idle. A column with NaN is blank. A chart of one row
    shows only the largest part of columns that are not nearly idle."""
    parts = np.fmax(columns, 0.0)
    if rows == 1:
        is_largest = np.arange(TASK_PARTS) == parts.argmax(axis=1)[:, None]
        parts = is_largest * (parts.sum(axis=1)[:, None] >= MIN_TASK_SHARE)
    ends = parts.cumsum(axis=1)
    ends[~np.isfinite(columns).all(axis=1)] = 0.0
    return _draw_columns(_task_column, _to_eighths(ends, rows), rows, glyphs)


@lru_cache(maxsize=_MAX_CACHED)
def _task_column(ends: tuple[int, ...], rows: int, glyphs: Glyphs) -> ChartColumn:
    parts = (_eighths_in_cell((*ends, 8 * rows), row) for row in reversed(range(rows)))
    return ChartColumn.from_cells(_task_cell(part, glyphs) for part in parts)


@lru_cache(maxsize=_MAX_CACHED)
def _task_cell(parts: tuple[int, ...], glyphs: Glyphs) -> Run:
    """Returns a cell with its two largest tasks or, without colour, the letter of the largest task.
    `parts`: eighths of the cell for each task, from the bottom."""
    largest = max(range(len(parts)), key=lambda kind: parts[kind])
    if glyphs != "colour":
        return TASK_LETTERS[largest], _TASK_STYLES[largest] if glyphs == "sixteen" else "text"
    unknown = NAMED_TASKS + 1
    if parts[largest] >= 7:
        if largest == unknown:
            return UNKNOWN_TASK, "dim/rule"
        return (" ", "text") if largest > unknown else (theme.LEVELS[8], _TASK_STYLES[largest])
    second = max((k for k in range(len(parts)) if k != largest), key=lambda kind: parts[kind])
    lower, upper = sorted((largest, second))
    level = max(1, min(7, round(8 * parts[lower] / (parts[lower] + parts[upper]))))
    below, above = _TASK_STYLES[lower], _TASK_STYLES[upper]
    return theme.LEVELS[level], below if above == "ground" else f"{below}/{above}"


def _largest_kind_cell(
    parts: Sequence[int], state: int, _row: int, _rows: int, glyphs: Glyphs
) -> Run:
    """Returns a cell in the shape of its largest kind of time. Except in ASCII, the end of the busy
    part is drawn in eighths, and steal below half of the cell is a thin line at its top."""
    user, system, idle, steal = parts
    kind = _STEAL if steal and steal == max(parts) else parts.index(max(parts))
    char = (theme.USER + theme.KERNEL + " " + theme.STEAL)[kind]
    if glyphs != "ascii" and kind != _STEAL:
        if user + system and idle:
            char = theme.LEVELS[user + system]
            kind = _KERNEL if system > user else _USER
        elif steal and idle + steal == 8:
            char, kind = theme.STEAL_EDGE, _STEAL
    step = AREA_STEPS - 1  # without colour, shades would look like stripes
    steal_style = "steal", "over", "alarm"
    return char, (f"user-{step}", f"kernel-{step}", "text", steal_style[state])[kind]


def smt_chart(columns: Floats, rows: int, glyphs: Glyphs = "colour") -> list[ChartColumn]:
    """Returns the chart of a core's SMT states. The first thread is drawn above the middle, the
    second below it, and both around it. Dots are time in which neither ran. A share of 1 fills half
    of `rows`, which is even.

    `columns`: (columns, 4), the shares of both threads, of undetermined states, of only the first,
    and of only the second thread. A column with an unknown share of both is blank.
    """
    # Unknown shares become 0 here; columns with an unknown share of both are made blank below.
    both_share, undetermined_share, lp0, lp1 = np.fmax(columns, 0.0).T
    half_rows = rows // 2
    inner = both_share + undetermined_share
    ends = _to_eighths(np.stack([both_share, inner, inner + lp0, inner + lp1], axis=1), half_rows)
    ends[~np.isfinite(columns[:, 0]), 0] = -1
    return _draw_columns(_smt_column, ends, half_rows, glyphs)


@lru_cache(maxsize=_MAX_CACHED)
def _smt_column(column: tuple[int, ...], half_rows: int, glyphs: Glyphs) -> ChartColumn:
    """Returns one column of `smt_chart`. `column`: in eighths of a cell from the middle, the ends
    of the bars of both threads (-1 if unknown), of undetermined states, and of each thread."""
    both, undetermined, lp0, lp1 = column
    if both < 0:
        return ChartColumn(" " * (2 * half_rows), ("text",) * (2 * half_rows))
    cell = _smt_cell if glyphs == "colour" else _largest_state_cell
    above, below = (
        [cell(_eighths_in_cell((both, undetermined, height, 8 * half_rows), row),
              colour_step(row, half_rows), glyphs, is_upper=is_upper)
         for row in range(half_rows)]
        for height, is_upper in ((lp0, True), (lp1, False))
    )  # fmt: skip
    return ChartColumn.from_cells([*above[::-1], *below])


@lru_cache(maxsize=_MAX_CACHED)
def _smt_cell(parts: tuple[int, ...], step: int, _glyphs: Glyphs, *, is_upper: bool) -> Run:
    lower, upper, level = two_largest_kinds(parts)
    names = f"both-{step}", "unknown", f"lp{0 if is_upper else 1}-{step}", ""
    inner, outer = names[lower], names[upper]
    if lower == upper:
        return (theme.LEVELS[8], inner) if inner else (theme.NEITHER, "neither")
    if is_upper:
        return theme.LEVELS[level], f"{inner}/{outer}" if outer else inner
    level = 8 - level  # blocks grow from the bottom, so the outer kind is in the foreground here
    if not outer and level in _SHAPES:
        return _UPPER_BLOCKS[level], inner
    return theme.LEVELS[level], f"{outer or 'ground'}/{inner}"


def _largest_state_cell(parts: Sequence[int], _step: int, glyphs: Glyphs, *, is_upper: bool) -> Run:
    """Returns a cell in the shape of its largest SMT state. In 16 colours, a single thread has the
    shape of both in another colour. There is one shade: several would look like stripes."""
    kind = parts.index(max(parts))
    thread_key, shape = ("lp0", theme.LP0) if is_upper else ("lp1", theme.LP1)
    if glyphs != "ascii":  # half cells in a tall chart would look like stripes
        shape = theme.BOTH if glyphs == "sixteen" else theme.KERNEL
    chars = theme.BOTH, theme.UNKNOWN, shape, theme.NEITHER
    step = AREA_STEPS - 1
    return chars[kind], (f"both-{step}", "unknown", f"{thread_key}-{step}", "neither")[kind]


# --- lines and areas of dots

AWAKE, ASLEEP, LOSING = 0, 1, 2
"""States of a column: the CPU was busy, it mostly slept, or an episode lowers its clock or IPC."""


CELL_DOT_ROWS, CELL_DOT_COLUMNS = 4, 2
"""Height and width of a cell, in dots."""
_LEFT_BITS, _RIGHT_BITS = (
    [sum(bit for row, bit in enumerate(bits) if dots >> row & 1) for dots in range(16)]
    for bits in ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
)
"""Bits of a braille character, by the dots of a column as bits (bit 0 is the top dot)."""
ASCII_DOTS = "'-_"
"""ASCII characters for a dot in the upper, middle and lower third of a cell."""


def braille_character(left: int, right: int) -> str:
    """Returns the braille character for two columns of dots, whose bit 0 is the top dot."""
    bits = _LEFT_BITS[left] | _RIGHT_BITS[right]
    return chr(0x2800 + bits) if bits else " "


def dots_per_cell(glyphs: Glyphs) -> tuple[int, int]:
    """Returns the height and the width of a cell, in dots."""
    if glyphs == "ascii":
        return len(ASCII_DOTS), 1
    return CELL_DOT_ROWS, CELL_DOT_COLUMNS


GAP_CAUSES = ("unknown", "power", "heat", "licence", "ramp", "policy")
"""Causes of a clock below its ceiling. Their indexes are added to LOSING and ENDED_GAP."""
ENDED_GAP = LOSING + len(GAP_CAUSES)
"""State of a column in an ended episode with the first of GAP_CAUSES."""
GAP_CHARS = "▒▼■◊╱▽"
"""Characters of the causes in GAP_CAUSES, in the same order."""
MIN_GAP_EIGHTHS = 4
"""Minimum height in eighths of a gap below the ceiling that is drawn outside episodes."""
MIN_SIGN_EIGHTHS = 2
"""Minimum height in eighths of a gap that is drawn without colour."""


def clock_chart(
    columns: Floats, ends: tuple[float, float], rows: int, glyphs: Glyphs = "colour"
) -> list[ChartColumn]:
    """Returns the chart of a clock as an area below the gap to its ceiling. `columns`: (columns,
    3), the clock, the ceiling, and AWAKE, ASLEEP, or an index in GAP_CAUSES added to LOSING or
    ENDED_GAP. `ends`: lowest and highest clock of the scale."""
    low, high = ends
    hz, ceiling, states = columns.T
    shares = np.stack([hz - low, ceiling.clip(low, high) - hz.clip(low, high)]) / (high - low)
    # The gap is rounded separately, so that its area equals the loss.
    height, gap = _to_eighths(np.fmax(shares, 0.0), rows)
    height = np.where(np.isfinite(hz), np.maximum(height, 1), -1)
    cells = np.stack([height, np.minimum(gap, 8 * rows - height), states.astype(int)], axis=1)
    return _draw_columns(_clock_column, cells, rows, glyphs)


@lru_cache(maxsize=_MAX_CACHED)
def _clock_column(column: tuple[int, ...], rows: int, glyphs: Glyphs) -> ChartColumn:
    """Returns one column of `clock_chart`. `column`: in eighths of a cell, the heights of the clock
    (-1 if unknown) and of the gap above it; then the state."""
    height, gap, state = column
    blank: Run = " ", "text"
    if state == ASLEEP or height < 0:
        base_cell: Run = (theme.NEITHER, "neither") if state == ASLEEP else blank
        return ChartColumn.from_cells([blank] * (rows - 1) + [base_cell])
    if state == AWAKE and gap < MIN_GAP_EIGHTHS:
        gap = 0
    cause = 0 if state < LOSING else (state - LOSING) % len(GAP_CAUSES)
    gap_key = f"{'' if LOSING <= state < ENDED_GAP else '~'}gap-{GAP_CAUSES[cause]}"
    if glyphs != "colour":
        full, part = (height + 4) // 8, 0
        top = (height + gap + 4) // 8
        if gap >= MIN_SIGN_EIGHTHS:  # at least one row shows the gap's character
            full = max(0, min(full, top - 1))
        elif glyphs != "ascii":
            full, part = divmod(height, 8)
        cells = [(theme.USER if glyphs != "ascii" else "#", "clock")] * full
        if gap >= MIN_SIGN_EIGHTHS:
            cells += [(GAP_CHARS[cause], "alarm")] * (top - full)
        cells += [(theme.LEVELS[part], "clock")] * bool(part)
        return ChartColumn.from_cells([*cells, *[blank] * (rows - len(cells))][::-1])
    cells = []
    for row in reversed(range(rows)):
        clock, lost, _ = _eighths_in_cell((height, height + gap, 8 * rows), row)
        key = f"clock-{colour_step(row, rows)}"
        if clock and lost:  # a cell has only two colours: the gap reaches the cell's top
            cells.append((theme.LEVELS[8 - lost], f"{key}/{gap_key}"))
        elif clock or lost:
            cells.append((theme.LEVELS[clock or lost], key if clock else gap_key))
        else:
            cells.append(blank)
    return ChartColumn.from_cells(cells)


def add_gap_numbers(
    columns: list[ChartColumn], losses: Sequence[float], gap_starts: Iterable[int] = ()
) -> list[ChartColumn]:
    """Adds the cause's character and, where it fits into full cells, the loss to each gap of a
    clock chart, in the row that the gap fills most. `losses`: the loss in each column, in GHz.
    `gap_starts`: columns at which a new gap begins."""
    gaps, new_columns = [*map(_find_gap, columns)], [*columns]

    def gap_at(x: int) -> tuple[str, int]:
        return gaps[x][0], sum(cut <= x for cut in gap_starts)

    for (cause, _), cells in groupby(range(len(columns)), gap_at):
        if cause not in GAP_CAUSES:
            continue
        span = [*cells]
        sums = [sum(parts) for parts in zip(*(gaps[x][1] for x in span), strict=True)]
        row = sums.index(max(sums))
        full = [x for x in span if gaps[x][1][row] == 8]
        text = (
            f"{GAP_CHARS[GAP_CAUSES.index(cause)]} −{losses[full[-1] if full else span[-1]]:.2f} "
        )
        if len(full) <= len(text) or full[-1] - full[0] >= len(full):  # too short, or interrupted
            text = text[0]
        start = full[0] if full else max(span, key=lambda x: gaps[x][1][row])
        for x, char in enumerate(text, start):
            chars, styles = new_columns[x]
            style = styles[row].rpartition("/")[2]
            style = style if style == "alarm" else f"bright/{style}"
            new_columns[x] = ChartColumn(
                chars[:row] + char + chars[row + 1 :], (*styles[:row], style, *styles[row + 1 :])
            )
    return new_columns


@lru_cache(maxsize=_MAX_CACHED)
def _find_gap(column: ChartColumn) -> tuple[str, Sequence[int]]:
    """Returns the cause of a gap, or '', and the eighths of each cell that it fills."""
    cause, eighths = "", list[int]()
    for char, style in zip(column.chars, column.styles, strict=True):
        below, _, above = style.rpartition("/")
        name = above.removeprefix("~").removeprefix("gap-")
        if char in GAP_CHARS:  # without colour, the character shows the cause
            name, size = GAP_CAUSES[GAP_CHARS.index(char)], 8
        else:
            level = theme.LEVELS.find(char)
            size = (8 - level if below else level) if name in GAP_CAUSES else 0
        cause = name if size else cause
        eighths.append(size)
    return cause, eighths


def area_chart(shares: Floats, rows: int, name: str, *, ascii_: bool = False) -> list[ChartColumn]:
    """Returns a chart of columns that grow from the bottom, for shares from 0 to 1. A share of 0 is
    a thin line; an unknown share is blank. `name`: style key of a filled area."""
    is_known = np.isfinite(shares)
    share = np.clip(np.where(is_known, shares, 0.0), 0.0, 1.0)
    eighths = np.maximum(1, np.ceil(share * 8 * rows - 1e-9)).astype(int) * is_known
    return [_area_column(height, rows, name, ascii_) for height in eighths.tolist()]


@lru_cache(maxsize=_MAX_CACHED)
def _area_column(eighths: int, rows: int, name: str, ascii_: bool) -> ChartColumn:
    chars = theme.ASCII_LEVELS if ascii_ else theme.LEVELS
    return ChartColumn.from_cells(
        (chars[level], f"{name}-{colour_step(row, rows)}" if level else "text")
        for row in reversed(range(rows))
        for level in _eighths_in_cell((eighths,), row)
    )


_RULE = "│"
_RISING_CELLS, _FALLING_CELLS = "─▁▄█", "─▔▀█"
"""Characters of a difference without colour, by its size in steps of a third."""


def difference_line(shares: Floats, styles: tuple[str, str], glyphs: Glyphs) -> list[Run]:
    """Returns a line of cells for shares from -1 to 1: positive ones rise from the base of a cell,
    negative ones hang from the top, NaN is blank. `styles`: style keys of positive and of negative
    cells. With colour, an eighth of the cell stays free, so that the direction is visible."""
    cells: list[Run] = []
    for share in shares.tolist():
        steps = (
            0 if isnan(share) else round(min(abs(share), 1.0) * (7 if glyphs == "colour" else 3))
        )
        style = styles[share < 0] if steps else "rule"
        if glyphs == "colour" and steps:
            falls = share < 0
            cell = theme.LEVELS[8 - steps if falls else steps]
            cells.append((cell, f"ground/{style}" if falls else style))
            continue
        chars = ("-+++", "----") if glyphs == "ascii" else (_RISING_CELLS, _FALLING_CELLS)
        cells.append((" " if isnan(share) else chars[share < 0][steps], style))
    return cells


def add_rules(columns: Sequence[ChartColumn], rules: Mapping[int, str]) -> list[ChartColumn]:
    """Adds vertical rules to a chart, below its line. `rules`: the word at the foot of each rule,
    by column, each a line lower than the one before. Words without room are left out."""
    ruled_columns = [[*zip(column.chars, column.styles, strict=True)] for column in columns]
    for x in rules:
        chars = columns[x].chars
        first = next((line for line, char in enumerate(chars) if char != " "), len(chars))
        for line in range(first, len(chars)):
            if chars[line] == " ":
                ruled_columns[x][line] = _RULE, "faint"
    words = {x: word for x, word in rules.items() if word}
    for line, (x, word) in enumerate(words.items(), len(ruled_columns[0]) - len(words)):
        cells = range(x + 1, x + 1 + len(word))
        is_inside_chart = line > 0 and cells.stop <= len(columns)
        if is_inside_chart and all(columns[cell].chars[line] == " " for cell in cells):
            for cell, char in zip(cells, word, strict=True):
                ruled_columns[cell][line] = char, "dim"
    return [*map(ChartColumn.from_cells, ruled_columns)]


# --- upper ends of scales

IPC_SCALE_ENDS = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0)
"""Possible upper ends of a scale of instructions per cycle."""

SCALE_ENDS = tuple(multiple * 10.0**power for power in range(13) for multiple in (1, 2, 5))
"""Possible upper ends of a scale for numbers of any size."""


def scale_top(values: Floats, ends: Sequence[float], previous_top: float | None) -> float:
    """Returns the upper end of a scale from 0: the first of `ends` that covers all values, or
    `previous_top` if that is only one step larger."""
    known_values = values[np.isfinite(values)]
    max_value = float(known_values.max()) if len(known_values) else 0.0
    index = next((i for i, end in enumerate(ends) if max_value <= end), len(ends) - 1)
    if previous_top is not None and previous_top in ends[index : index + 2]:
        return previous_top
    return ends[index]
