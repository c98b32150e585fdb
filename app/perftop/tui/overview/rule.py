"""The line below the rows: the time axis of the past beside them."""

from __future__ import annotations

from perftop.base.times import clock
from perftop.draw import theme
from perftop.draw.strips import Run
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.overview.layout import BEFORE
from perftop.tui.overview.lines import Picture
from perftop.tui.overview.recent import axis
from perftop.tui.shared import episode_style, time_axis

NAMED = 24
"""Minimum cells of an axis with a clock time in it."""
_TICK = "┬"


def rule(picture: Picture, session: Session, interval: Interval) -> list[Run]:
    runs: list[Run] = [(" " * BEFORE, "text")]
    for column in picture.columns:
        runs.append((" " * (column.gap if column.left else column.width), "text"))
        if column.key in {"work", "past ipc"}:
            runs += _axis(session, interval, column.width - column.gap)
        elif column.left:
            runs.append((" " * (column.width - column.gap), "text"))
    return runs


def _axis(session: Session, interval: Interval, cells: int) -> list[Run]:
    along = axis(session, interval, cells)
    episodes = [
        episode for episode in time_axis.episodes(along, session) if episode_style.wrong(episode)
    ]
    line = time_axis.rule(along, episodes, interval.time_ns)
    if cells >= NAMED:
        at = cells // 6
        text = _TICK + clock(session.unix(along.start_ns + at * along.bin_ns))
        free = [run[0] == theme.RULE for run in line[at : at + len(text) + 1]]
        if all(free):
            line[at : at + len(text)] = [(sign, "dim") for sign in text]
    return line
