"""Two columns of clock charts, for nine to sixteen cores. Each chart shows the clock of a core and
its ceiling over time. Beside it are the numbers of the core and the task that runs there. Cores of
one L3 share a heading."""

from __future__ import annotations

from collections.abc import Sequence

from perftop.base.text import ClockUnit, count_noun
from perftop.draw import charts, theme
from perftop.draw.charts import Glyphs
from perftop.draw.columns import Run, fit
from perftop.draw.strips import merge_runs, width
from perftop.tui.overview.chart_cells import UnitCharts
from perftop.tui.overview.chart_numbers import (
    SELECTION_BAR,
    ChartUnit,
    UnitReader,
    UnitValues,
    row_of_clock,
)
from perftop.tui.shared.cores import Cores, package_name

MIN_CORES = 9
MIN_WIDTH = 120
"""Minimum width of a screen with two columns, in cells."""
NAME_WIDTH, SIDE_WIDTH, GAP = 11, 17, 3
"""Widths in cells: of the name and the scale left of a chart, of the numbers right of it, and of
the gap between the columns."""


def column_width(width: int) -> int:
    return (width - GAP) // 2


def chart_width(width: int) -> int:
    return column_width(width) - NAME_WIDTH - SIDE_WIDTH


CoreGroup = tuple[int | None, int | None]
"""Package and L3."""


def group_of(cores: Cores, index: int) -> CoreGroup:
    core = cores.rows[index]
    return core.package, core.l3


def heading_count(cores: Cores) -> int:
    """Returns the number of headings in the column with more headings."""
    groups = [group_of(cores, index) for index in range(len(cores.rows))]
    half = (len(groups) + 1) // 2
    return max(len({*groups[:half]}), len({*groups[half:]}))


def legend_line(clock: ClockUnit, size: int, glyphs: Glyphs) -> list[Run]:
    """Returns the line above the columns, which explains the colours."""
    runs: list[Run] = [
        (" clock", "bright"), (f" and its ceiling, {clock.name}   ", "dim"),
        (theme.USER, "clock-9" if glyphs == "colour" else "text"),
        (" clock   between them: ", "dim"),
    ]  # fmt: skip
    for name, char in zip(charts.GAP_CAUSES, charts.GAP_CHARS, strict=True):
        style = f"bright/gap-{name}" if glyphs == "colour" else "text"
        runs += [("  ", "text"), (char, style), (f" {name}", "dim")]
    return merge_runs(runs, size)


def group_heading(
    cores: Cores, units: Sequence[ChartUnit], reader: UnitReader, size: int
) -> list[Run]:
    """Returns the heading of the cores of one L3, or of a package that has only one L3."""
    package, l3 = group_of(cores, units[0].row)
    has_caches = len(cores.rows_by_group) > cores.package_count
    name = f"L3 {l3}" if has_caches and l3 is not None else package_name(package)
    marker = reader.common_marker(units)
    left: list[Run] = [(" ", "text"), marker, (f" {name}", "bright"),
                       (f"  {count_noun(len(units), 'core')}   ", "dim")]  # fmt: skip
    return [*left, (theme.RULE * max(0, size - width(left)), "rule")]


def unit_lines(values: UnitValues, chart: UnitCharts, rows: int) -> list[list[Run]]:
    """Returns the lines of a core: its name, the ends of the scale, its chart, and its numbers."""
    lines = []
    scale = {0: chart.high_hz, rows - 1: chart.low_hz}
    numbers = _numbers(values, chart, rows)
    for row, area in enumerate(chart.clock_lines):
        end = f"{scale[row] * values.clock.per_hz:.4g}" if row in scale else ""
        bar: Run = (SELECTION_BAR, "key") if values.is_selected else (" ", "text")
        name = values.name.partition(" ")[2] if row == 0 else ""
        marker = values.marker if row == 0 else (" ", "text")
        left: list[Run] = [bar, marker, (f"{name:>4}", "bright"), (f"{end:>4} ", "faint")]
        lines.append([*merge_runs(left, NAME_WIDTH), *area, *merge_runs(numbers[row], SIDE_WIDTH)])
    return lines


def _numbers(values: UnitValues, chart: UnitCharts, rows: int) -> list[list[Run]]:
    """Returns the lines to the right of a chart: the ceiling with the difference to the clock, and
    the clock, each at its height on the scale; and the task in the last line. A clock at its
    ceiling has no second number."""
    lines: list[list[Run]] = [[] for _ in range(rows)]
    clock, hz, ceiling_hz = values.clock, values.hz, values.ceiling_hz
    task = values.tasks[0] if values.tasks else "idle"
    if len(task) > SIDE_WIDTH - 1:
        task = task.rpartition(" ")[0]  # leaves out the share, which must not be cut
    lines[-1] = [(f" {fit(task, SIDE_WIDTH - 1)}", "dim")]
    if not values.is_online:
        return [[(" off", "dim")], *lines[1:-1], []]
    if not hz > 0:
        return lines

    def row_of(value_hz: float, max_row: int) -> int:
        return min(max_row, row_of_clock(value_hz, (chart.low_hz, chart.high_hz), rows))

    def number(value_hz: float) -> str:
        return f"{value_hz * clock.per_hz:>5.{clock.digits}f}"

    style = "alarm" if "clock" in values.lowered_names else "dim" if values.is_asleep else "bright"
    if values.drop_marker[0] == " " or not ceiling_hz > hz:
        at_clock = row_of(hz, rows - 2)
        lines[at_clock] = [(number(hz), style)]
    else:
        at_ceiling = row_of(ceiling_hz, max(0, rows - 3))
        at_clock = max(at_ceiling + 1, row_of(hz, rows - 2))
        loss = f" −{(ceiling_hz - hz) * clock.per_hz:.{clock.digits}f}"
        lines[at_ceiling] = [(number(ceiling_hz), "dim"), (loss, style)]
        lines[at_clock] = [(number(hz), style), (" ", "text"), values.drop_marker]
    if values.ipc_marker[0] != " ":
        lines[at_clock] += [(f"  IPC {values.ipc:.2f} ", "alarm"), values.ipc_marker]
    return lines
