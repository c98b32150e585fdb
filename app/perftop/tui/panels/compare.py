"""The comparison of the selected range, A, with the range that was held before, B."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import isfinite, nan

from perftop.draw.columns import Column, Run, columns_line, fit_columns, headings
from perftop.draw.strips import safe_cells
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.shared.choice import Choice
from perftop.tui.shared.verdict import Verdict, verdict_at

MIN_DIFFERENCE = 0.01
"""Minimum difference in CPUs that the sentence states, and that is red if it is a loss."""


def comparison_lines(
    session: Session, interval: Interval, choice: Choice, width: int, height: int
) -> list[list[Run]]:
    """Returns a table of rates, because the ranges differ in length: shares of all CPUs' time, and
    the CPUs that tasks used or waited for; and a sentence."""
    assert choice.held is not None
    sides = (interval, verdict_at(session, interval, is_range=True)), choice.held
    columns = fit_columns([
        Column("name", "", 10, is_left=True, gap=1, max_width=24),
        Column("A", "A", 9), Column("B", "B", 9), Column("A - B", "A − B", 10),
        Column("unit", "", 6),
    ], width)  # fmt: skip

    def row(name: str, values: Sequence[float], unit: str, *, is_loss: bool) -> list[Run]:
        a, b = values
        digits = 2 if unit == "CPUs" else 1
        texts = [f"{value:.{digits}f}" if isfinite(value) else "–" for value in (a, b)]
        difference = f"{a - b:+.{digits}f}" if isfinite(a - b) else "–"
        style = "alarm" if is_loss and a - b > MIN_DIFFERENCE else "bright"
        cells = [(name, "text"), (texts[0], "text"), (texts[1], "dim"), (difference, style),
                 (unit, "dim")]  # fmt: skip
        return columns_line(columns, cells)

    busy = [100 * side.values.mean("util", session.shown) for side, _ in sides]
    lost = [nan if verdict is None else 100 * verdict.lost for _, verdict in sides]
    waited = [_waited_cpus(verdict) for _, verdict in sides]
    lines = [
        headings(columns),
        row("busy", busy, "%", is_loss=False),
        row("lost", lost, "%", is_loss=True),
        row("waited", waited, "CPUs", is_loss=True),
    ]
    a, b = (_cpus_by_task(verdict) for _, verdict in sides)
    differences = {name: a[name] - b[name] for name in sorted({*a, *b})}
    order = sorted(differences, key=lambda name: -abs(differences[name]))
    lines += [
        row(safe_cells(name), (a[name], b[name]), "CPUs", is_loss=False)
        for name in order[: max(0, height - len(lines) - 2)]
    ]
    more, less = (choose(order, key=differences.__getitem__, default="") for choose in (max, min))
    parts = [
        f"{safe_cells(name)} {verb} {abs(differences[name]):.2f}"
        for name, verb, sign in ((more, "took", 1), (less, "lost", -1))
        if name and sign * differences[name] >= MIN_DIFFERENCE
    ]
    sentence = f"{', '.join(parts)} CPUs" if parts else "No task used more or less"
    return [*lines, [], [(f" {sentence}", "bright")]]


def _waited_cpus(verdict: Verdict | None) -> float:
    """Returns the mean number of tasks that waited for a CPU; NaN if unknown."""
    if verdict is None or verdict.report is None or not verdict.report.totals.times.has_waits:
        return nan
    return float(verdict.report.sums.waited_s.sum()) / verdict.report.totals.elapsed_s


def _cpus_by_task(verdict: Verdict | None) -> defaultdict[str, float]:
    """Returns the mean number of CPUs on which the tasks of each name ran."""
    cpus = defaultdict[str, float](float)
    if verdict is not None and verdict.report is not None:
        totals = verdict.report.totals
        for times in totals.times.tasks.values():
            cpus[times.comm] += times.run_s / totals.elapsed_s
    return cpus
