"""How many charts fit the overview of a small machine, and how high each of their parts is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perftop.tui.overview.chart_numbers import (
    CAUSES_WIDTH,
    CLOCK_WIDTH,
    NAME_WIDTH,
    SCALE_WIDTH,
    WIDE_CLOCK_WIDTH,
)
from perftop.tui.overview.task_lanes import MIN_WIDTH_FOR_SUMS, SUMS_WIDTH

MAX_CHARTS, MAX_CHARTS_BELOW = 16, 4
"""Maximum number of charts, and of charts one below the other on a screen with room for two sides.
A machine that needs more is shown as a grid."""
MIN_WIDTH, MIN_WIDTH_OF_TWO = 60, 120
"""Minimum width of a screen with charts, and with two charts side by side, in cells."""
MIN_WIDTH_FOR_CAUSES = 100
"""Minimum width of a chart, with its numbers, that lists lost seconds by cause, in cells."""
GAP = 3
"""Cells between two charts side by side, and before the sums of tasks."""
_MIN_HEIGHT_FOR_GAPS, _MIN_HEIGHT_FOR_TIMES = 28, 22
"""Minimum lines of a view with an axis and a gap below each chart of CPU time, and with a separate
line of times."""
_MAX_LINES = ((1, 14), (2, 13), (4, 8), (8, 4))
"""Pairs (charts, lines): up to `charts` charts one below the other have at most `lines` lines each,
or more in a view with more than _GROWTH_HEIGHT lines."""
_MAX_LINES_IF_LOW = ((1, 8), (2, 6), (4, 3))
"""Like _MAX_LINES, for a view with fewer than _MIN_HEIGHT_FOR_TIMES lines."""
_CLOCK_PARTS = ((24, 4, 6, 3), (15, 3, 4, 2), (10, 2, 2, 1), (7, 1, 2, 0), (5, 0, 2, 0),
                (0, 0, 0, 0))  # fmt: skip
"""Of a chart with at least so many rows where clocks are counted: the rows of the IPC, of SMT
states or CPU time, and of tasks. The clock has the others."""
_TIME_PARTS = ((24, 2, 6), (12, 2, 4), (10, 2, 3), (6, 1, 2), (4, 1, 1), (0, 0, 1))
"""Of a chart with at least so many rows without clocks: the rows of waiting tasks and of tasks. CPU
time has the others."""
_MIN_LINES_OF_TITLED, _MIN_LINES_WITH_GAP = (4, 5), 12
"""Minimum lines of a chart of a clock with a title, on one side and on two; and of a chart with a
gap below it, if it has a title."""
_GROWTH_HEIGHT = 36
"""Number of lines of a view beyond which charts become higher."""
_GROWTH_SHARE = 0.75
"""Share of the lines beyond _GROWTH_HEIGHT that charts get; the panels get the rest."""


@dataclass(frozen=True, slots=True)
class ChartLayout:
    """A layout of charts, axes and panels. The parts of a chart are one above the other, in the
    same columns of time."""

    width: int
    sides: int
    """Number of charts side by side: 1 or 2."""
    has_title: bool
    """Whether each chart has a line with its name and numbers above it."""
    queue_rows: int
    """Lines that show waiting tasks."""
    clock_rows: int
    """Lines that show the clock; 0 if clocks are not counted."""
    rate_rows: int
    """Lines that show the IPC."""
    area_rows: int
    """Lines that show SMT states or CPU time."""
    lane_rows: int
    """Lines that show the tasks that ran."""
    has_own_axes: bool
    """Whether each chart has an axis; else only the last chart of each side has one."""
    gap_lines: int
    """Blank lines between charts."""
    has_times_line: bool
    """Whether times have a line below the axis; else they are written into the axis."""
    panel_lines: int
    """Number of lines left for the panels."""

    @property
    def has_counters(self) -> bool:
        return self.clock_rows > 0

    @property
    def rows(self) -> int:
        parts = self.queue_rows, self.clock_rows, self.rate_rows, self.area_rows, self.lane_rows
        return sum(parts)

    @property
    def side_width(self) -> int:
        """Width of a chart with the texts beside it, in cells."""
        return (self.width - GAP * (self.sides - 1)) // self.sides

    @property
    def left_width(self) -> int:
        """Width of the texts to the left of a chart, in cells."""
        return SCALE_WIDTH if self.has_title else NAME_WIDTH

    @property
    def clock_width(self) -> int:
        """Width of the numbers to the right of a clock chart, in cells."""
        is_wide = not self.has_title and self.sides == 1
        return WIDE_CLOCK_WIDTH if is_wide else CLOCK_WIDTH

    @property
    def has_causes(self) -> bool:
        """Whether the seconds lost by cause are listed to the right of each clock chart."""
        return self.clock_rows > 2 and self.side_width >= MIN_WIDTH_FOR_CAUSES

    @property
    def has_sums(self) -> bool:
        """Whether the sums of tasks are listed to the right of each chart of CPU time."""
        return not self.clock_rows and self.rows >= 4 and self.side_width >= MIN_WIDTH_FOR_SUMS

    @property
    def columns(self) -> int:
        """Columns of time of each chart, which are its width in cells."""
        right = self.clock_width + CAUSES_WIDTH * self.has_causes if self.clock_rows else 1
        right += (SUMS_WIDTH + GAP) * self.has_sums
        return self.side_width - self.left_width - right


def chart_layout(
    chart_count: int, height: int, width: int, *, counted: bool, groups: Sequence[object] = (),
    min_panel_lines: int = 4,
) -> ChartLayout | None:  # fmt: skip
    """Returns the most spacious layout for this many charts; None if they do not fit. `counted`:
    whether clocks are counted. `groups`: the package and the L3 of each chart; several of them have
    headings."""
    if not 0 < chart_count <= MAX_CHARTS or width < MIN_WIDTH:
        return None
    sides = 2 if chart_count > MAX_CHARTS_BELOW and width >= MIN_WIDTH_OF_TWO else 1
    charts, is_low = -(-chart_count // sides), height < _MIN_HEIGHT_FOR_TIMES
    table = _MAX_LINES_IF_LOW if is_low else _MAX_LINES
    max_lines = next((lines for max_charts, lines in table if charts <= max_charts), 0)
    max_lines += int(_GROWTH_SHARE * max(0, height - _GROWTH_HEIGHT)) // charts
    groups_of_sides = {*groups[:charts]}, {*groups[charts:]}
    headings = max(map(len, groups_of_sides)) if len({*groups}) > 1 else 0
    # The legend of clocks, headings, the axis, its times, and a blank line before the panels.
    fixed_lines = counted + headings + 1 + 2 * (not is_low)
    for lines in range(max_lines, 1, -1):
        has_title = not counted or lines >= _MIN_LINES_OF_TITLED[sides - 1]
        gap = 1 if lines >= _MIN_LINES_WITH_GAP or (not has_title and lines == 4) else 0
        gap = gap if charts > 1 and height >= _MIN_HEIGHT_FOR_GAPS else 0
        has_own_axes = bool(gap) and not counted
        rows = lines - has_title - gap - has_own_axes
        last_gap = gap + has_own_axes
        panel_lines = height - fixed_lines - charts * lines + last_gap
        if rows < 2 or panel_lines < min_panel_lines:
            continue
        if counted:
            _, *parts = next(row for row in _CLOCK_PARTS if rows >= row[0])
            clock_rows, (rates, area, lanes), queue = rows - sum(parts), parts, 0
        else:
            _, queue, lanes = next(row for row in _TIME_PARTS if rows >= row[0])
            clock_rows, rates, area = 0, 0, rows - queue - lanes
        return ChartLayout(
            width, sides, has_title, queue, clock_rows, rates, area, lanes, has_own_axes, gap,
            has_times_line=not is_low, panel_lines=panel_lines,
        )  # fmt: skip
    return None
