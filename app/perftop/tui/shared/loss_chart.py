"""The panel "over time": the CPU seconds that were lost in each second, stacked by cause."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from perftop.base.arrays import Floats
from perftop.draw import charts, theme
from perftop.draw.columns import Run
from perftop.draw.strips import join_cells, panel_title
from perftop.model.kinds import cause_of
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.shared import time_axis
from perftop.tui.shared.canvas import PanelLine
from perftop.tui.shared.verdict import losses_between
from perftop.tui.shared.view_settings import ViewSettings

LABEL_WIDTH = 6
"""Width in cells of the scale to the left of the chart."""
FIXED_LINES, MAX_HEIGHT = 3, 12
"""Lines of the panel besides the chart: the title, the axis and its times; and all its lines."""
MIN_CAUSE_SHARE = 0.01
"""Minimum share of the losses in the chart that a cause has; smaller ones are left out."""
SCALES_S = tuple(base * 10.0**power for power in range(-2, 5) for base in (1, 2, 5))
"""Possible upper ends of the scale, in CPU seconds per second."""
_COLOURS = {
    "sibling": ("lp1-4", "lp1-7"), "scheduler": ("loss-11", "loss-8"), "hypervisor": ("steal",),
    "memory": ("both-3", "both-1"), "package": ("gap-heat",), "thermal": ("gap-heat",),
    "cache": ("both-2", "both-4"), "license": ("gap-licence",), "": ("rule",),
}  # fmt: skip
"""Colours by cause. A ribbon of several pairs of tasks has a stripe for each pair, in alternating
colours; a chart has the first colour."""


def cause_colours(cause: str) -> tuple[str, ...]:
    return _COLOURS.get(cause, ("gap-power",) if cause.startswith("power-") else ("over",))


def legend(causes: Iterable[str]) -> list[Run]:
    """Returns the colour and the short name of each cause."""
    return [
        run for cause in causes
        for run in ((f" {theme.LP0 * 2}", cause_colours(cause)[0]),
                    (f" {cause_of(cause).short_text or 'others'} ", "dim"))
    ]  # fmt: skip


def loss_chart_panel(
    session: Session, interval: Interval, settings: ViewSettings, width: int, height: int
) -> list[PanelLine]:
    """Returns the title, the chart with its scale, and the axis with the episodes. Without colour,
    the causes are added up."""
    height, room = max(1, min(height, MAX_HEIGHT) - FIXED_LINES), max(1, width - LABEL_WIDTH)
    axis = time_axis.fit_axis(
        interval.time_ns, settings.window_s, room, first_ns=session.past.first_ns
    )
    known_s, _, lost_s = losses_between(session, axis.edges)
    seconds = np.where(known_s > 0, known_s, np.nan)
    min_lost_s = MIN_CAUSE_SHARE * sum(lost.sum() for lost in lost_s.values())
    rates = {cause: lost / seconds for cause, lost in lost_s.items() if lost.sum() > min_lost_s}
    total = sum(rates.values(), 0.0 * seconds)
    top = charts.scale_top(total, SCALES_S, None)
    columns = charts.area_chart(total / top, height, "loss", ascii_=settings.ascii)
    chart, title_end = charts.chart_lines(columns), []
    if settings.glyphs == "colour" and rates:
        chart = lines_of_eighths(_stacked_columns(rates, top, height))
        title_end = legend(rates)
    title = panel_title("over time", "CPU s lost per second", width, title_end)
    lines: list[PanelLine] = [(title, None)]
    ticks = time_axis.ticks(axis, session.unix)
    episodes = time_axis.visible_episodes(axis, session)
    chart += [time_axis.tick_line(axis, episodes, ticks), time_axis.times_line(axis, ticks)]
    for y, runs in enumerate(chart):
        label = f"{top:g}" if y == 0 else "0" if y == height - 1 else ""
        lines.append(([(f"{label:>{LABEL_WIDTH - 1}} ", "dim"), *runs], None))
    return lines


def _stacked_columns(rates: Mapping[str, Floats], top: float, height: int) -> Iterator[list[str]]:
    """Yields for each column of the chart the colours of its eighths of a cell, from the top."""
    for values in np.nan_to_num(np.array([*rates.values()])).T.tolist():
        colours: list[str] = []
        for cause, value in zip(rates, values, strict=True):
            colours += [cause_colours(cause)[0]] * round(8 * height * value / top)
        yield [""] * (8 * height - len(colours)) + colours[: 8 * height][::-1]


def lines_of_eighths(columns: Iterable[Sequence[str]]) -> list[list[Run]]:
    """Returns the lines of a chart from the colours of its columns, as `_cell_of_eighths`."""
    cells = [[_cell_of_eighths(column[y : y + 8]) for y in range(0, len(column), 8)]
             for column in columns]  # fmt: skip
    return [join_cells(line) for line in zip(*cells, strict=True)]


def _cell_of_eighths(eighths: Sequence[str]) -> Run:
    """Returns a cell with these colours of its eighths, from the top; '' is the background. A block
    character has only two colours: below, that of the lowest eighth; above, the most frequent one.
    A thin band that touches neither edge of the cell is moved to the nearer edge."""
    drawn = [i for i, colour in enumerate(eighths) if colour]
    if drawn and drawn[0] > 0 and drawn[-1] < 7:
        band, blank = [eighths[i] for i in drawn], [""] * (8 - len(drawn))
        eighths = [*blank, *band] if drawn[0] + drawn[-1] > 7 else [*band, *blank]
    lower, count = eighths[-1], 1
    while count < 8 and eighths[-count - 1] == lower:
        count += 1
    if count == 8:
        return (theme.LEVELS[8], lower) if lower else (" ", "text")
    upper_eighths = eighths[: 8 - count]
    upper = max(sorted({*upper_eighths}), key=upper_eighths.count)
    return theme.LEVELS[count], f"{lower or 'ground'}/{upper or 'ground'}"
