"""Shows how a command spent its time: the run as one bar, divided into phases, and a table.

The length of the bar is the elapsed time of the run. The cells of each phase are divided by what
all threads of the command did together: if the only thread sleeps, the whole phase is sleep,
however busy the machine is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from perftop.base.text import safe_text
from perftop.draw.columns import Column
from perftop.output.stat_table import table_line
from perftop.session.losses import RunPhase
from perftop.session.task_times import JobTime

WIDTH = 78
"""Width of the bar in columns."""
MAX_NAME = 15
MIN_SHOWN_S = 0.05
"""Minimum time in s, summed over all threads, that is mentioned or has a column."""


class _TimeUse(NamedTuple):
    """The name and the signs of one use of a job's time."""

    words: str
    heading: str
    sign: str
    ascii_sign: str


TIME_USES = (
    _TimeUse("ran", "ran", "█", "#"),
    _TimeUse("waited for a CPU", "waited", "▓", "w"),
    _TimeUse("stopped by a quota", "quota", "▒", "q"),
    _TimeUse("was blocked (disk)", "disk", "░", "d"),
    _TimeUse("was stopped", "stopped", "╳", "x"),
    _TimeUse("slept", "slept", "·", "."),
)
"""The uses of time, in the order of the fields of JobTime."""


def spent_text(spent: JobTime) -> str:
    """Returns what the threads of a job did as text, without uses shorter than MIN_SHOWN_S."""
    parts = [
        f"{use.words} {spent_s:.1f} s"
        for use, spent_s in zip(TIME_USES, spent, strict=True)
        if spent_s >= MIN_SHOWN_S
    ]
    return f"{', '.join(parts) or 'nothing'} (all threads together)"


def lines(phases: Sequence[RunPhase], *, unicode: bool) -> list[str]:
    """Returns the bar with its legend, and the table if there are several phases; an empty list if
    it is unknown what the threads did, or if they only slept."""
    nothing = JobTime(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    spent_s = [phase.times.job_time() or nothing for phase in phases]
    if sum(sum(times) - times.slept_s for times in spent_s) < MIN_SHOWN_S:
        return []
    shown_uses = [
        index for index in range(len(TIME_USES))
        if sum(times[index] for times in spent_s) >= MIN_SHOWN_S
    ]  # fmt: skip
    signs = [use.sign if unicode else use.ascii_sign for use in TIME_USES]
    cells = _cells_of_parts([phase.elapsed_s for phase in phases], WIDTH)
    bar = "".join(
        "".join(sign * n for sign, n in zip(signs, _cells_of_parts(times, count), strict=True))
        for times, count in zip(spent_s, cells, strict=True)
    )
    legend = "   ".join(f"{2 * signs[index]} {TIME_USES[index].words}" for index in shown_uses)
    return [
        _ruler(phases, cells, unicode=unicode), bar, legend,
        *(_table(phases, spent_s, shown_uses) if len(phases) > 1 else ()),
    ]  # fmt: skip


def _cells_of_parts(parts: Sequence[float], cells: int) -> list[int]:
    """Returns `cells` cells divided in proportion to `parts`."""
    total = sum(parts)
    if total <= 0:
        return [0] * (len(parts) - 1) + [cells]
    edges = [round(cells * end / total) for end in accumulate(parts, initial=0.0)]
    return [last - first for first, last in pairwise(edges)]


def _ruler(phases: Sequence[RunPhase], cells: Sequence[int], *, unicode: bool) -> str:
    """Returns a line that shows the name of each phase above its cells, and the duration of the
    phase if there is room."""
    first, rule, last = "├─┤" if unicode else "|-|"
    pieces = []
    for phase, count in zip(phases, cells, strict=True):
        name = safe_text(phase.label, MAX_NAME)
        duration = _seconds(phase.elapsed_s)
        texts = f" {name} {duration} ", f" {name} "
        text = next((text for text in texts if len(text) + 2 <= count), "")
        pieces.append((first + rule + text).ljust(count, rule)[:count])
    return "".join(pieces)[: WIDTH - 1] + last


def _table(
    phases: Sequence[RunPhase], spent_s: Sequence[JobTime], shown_uses: Sequence[int]
) -> list[str]:
    headings = ["phase", "length", *(TIME_USES[index].heading for index in shown_uses)]
    columns = [Column("", headings[0], MAX_NAME, left=True, gap=0)]
    columns += [Column("", heading, 9) for heading in headings[1:]]
    columns.append(Column("", "largest taker", MAX_NAME + 10, left=True, gap=2))
    rows = ["", table_line(columns, [*headings, "largest taker"])]
    for phase, times in zip(phases, spent_s, strict=True):
        program, run_s = phase.largest()
        largest = (
            f"{safe_text(program, MAX_NAME)} {_seconds(run_s)}" if run_s >= MIN_SHOWN_S else ""
        )
        seconds = [_seconds(s) for s in (phase.elapsed_s, *(times[index] for index in shown_uses))]
        rows.append(table_line(columns, [safe_text(phase.label, MAX_NAME), *seconds, largest]))
    sums = [sum(phase.elapsed_s for phase in phases)]
    sums += [sum(times[index] for times in spent_s) for index in shown_uses]
    return [*rows, table_line(columns, ["all", *map(_seconds, sums), ""])]


def _seconds(seconds: float) -> str:
    """Formats a duration: to 0.1 s below 1000 s, and as 0 below MIN_SHOWN_S."""
    if seconds < MIN_SHOWN_S:
        return "0"
    return f"{seconds:.1f} s" if seconds < 1000 else f"{seconds:.0f} s"
