"""The tables of a summary: minimum, mean, maximum and fifth percentile of every measure."""

from __future__ import annotations

from collections.abc import Sequence

from perftop.base.format import many, percent
from perftop.base.text import ranges
from perftop.output.stat_columns import Show, Shown
from perftop.output.stat_json import Line
from perftop.output.stat_table import row
from perftop.samples.smt import STATES
from perftop.session.session import Session

SPANS = ("min", "mean", "max", "p5")
EACH_WIDTH = 12
MOST_EACH = 8
"""Most CPUs that the summary of a command lists one by one, in four lines each."""
_GROUPS = {"job": "job CPUs", "rest": "others"}
"""Titles of means over some CPUs; what a CPU did was not all for the job."""


def machine(line: Line, shown: Sequence[Shown]) -> list[str]:
    """The table of measures, with means over the CPUs that the job ran on and over the others."""
    groups = {title: line[key] for key, title in _GROUPS.items() if line[key] is not None}
    titles = (*SPANS, *groups)
    lines = [f"{'':>24}" + "".join(f"{name:>9}" for name in titles)]
    for column in shown:
        key, show = column.key, column.text
        means = [group[key] and group[key]["mean"] for group in groups.values()]
        told = [_at(line["machine"][key], name, show) for name in SPANS]
        cells = [f"{text:>9}" for text in (*told, *(_cell(mean, show) for mean in means))]
        lines.append(f"{' '.join(column.title).rstrip():>24}" + "".join(cells))
    return lines


def states(line: Line) -> list[str]:
    """The mean of each SMT state over the cores for which it is known."""
    parts = []
    most = 0
    for state in STATES:
        known = [c["smt"][state]["mean"] for c in line["cores"] if c["smt"][state] is not None]
        if known:
            parts.append(f"{state} {percent(sum(known) / len(known))} %")
            most = max(most, len(known))
    return [f"SMT states, mean of {many(most, 'core')}: {' · '.join(parts)}"] if parts else []


def each(session: Session, line: Line, shown: Sequence[Shown]) -> list[str]:
    """Lines for each CPU and its core; above MOST_EACH CPUs only for those that the job ran on."""
    cpus = line["cpus"]
    if len(cpus) > MOST_EACH and line["job"] is not None:
        cpus = [cpu for cpu in cpus if cpu["cpu"] in line["job"]["cpus"]]
    cpus = cpus[:MOST_EACH]
    widths, titles = [c.width for c in shown], [c.title for c in shown]
    names = ("cpu", [label for label, _ in titles]), ("", [unit for _, unit in titles])
    lines = ["", *(row(name, cells, [], widths, EACH_WIDTH) for name, cells in names)]
    for cpu in cpus:
        for span in SPANS:
            cells = [_at(cpu[column.key], span, column.text) for column in shown]
            lines.append(row(_named(cpu["cpu"], span), cells, [], widths, EACH_WIDTH))
    if left := len(line["cpus"]) - len(cpus):
        lines.append(f"  … and {many(left, 'CPU')} more: stat --json tells all")
    return [*lines, *_each_core(session, line, {cpu["cpu"] for cpu in cpus}), ""]


def _each_core(session: Session, line: Line, cpus: set[int]) -> list[str]:
    """The states of the cores that have one of these CPUs."""
    lines: list[str] = []
    for i, told in zip(session.shown_cores(), line["cores"], strict=True):
        core, smt = session.cores[i], told["smt"]
        if not cpus.isdisjoint(core) and any(smt.values()):
            for span in SPANS:
                shares = [_at(smt[state], span, percent) for state in STATES]
                lines.append(row(_named(ranges(core), span), [], shares, [], EACH_WIDTH))
    heads = ("core of", STATES), ("", ["%"] * len(STATES))
    title = [row(name, [], cells, [], EACH_WIDTH) for name, cells in heads]
    return ["", *title, *lines] if lines else []


def _named(what: object, span: str) -> str:
    """The label of a line; the name is on the first of its lines only."""
    return f"{what if span == SPANS[0] else ''} {span:>4}"


def _at(measure: Line | None, span: str, show: Show) -> str:
    return _cell(measure[span] if measure else None, show)


def _cell(value: float | None, show: Show) -> str:
    return show(float("nan") if value is None else value)
