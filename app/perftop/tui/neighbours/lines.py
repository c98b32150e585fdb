"""Lines of the neighbour view as runs of text. Pure."""

from __future__ import annotations

from math import isnan, nan

from perftop.base.format import MISSING, ClockUnit, many, percent
from perftop.base.text import ranges
from perftop.draw import theme
from perftop.draw.strips import Run, number, shed
from perftop.tui.neighbours.values import Job, Runner
from perftop.tui.panels import losses, panel
from perftop.tui.panels.pairs import Pair
from perftop.tui.panels.panel import title
from perftop.tui.panels.who import bar
from perftop.tui.shared.placed_column import Placed

BARS = 110
"""Minimum width for the bars of threads."""
MOST_ON = 24
"""Columns of a list of CPUs; a longer one is told by their number."""
WAITS = 0.2
"""Share of waiting from which it is bold."""


def summary(pairs: int, width: int) -> list[Run]:
    rest = many(pairs, "pair") if pairs else ""
    return [(" ", "text"), *title("noisy neighbours", rest, max(1, width - 2))]


def runner_columns(width: int) -> list[Placed]:
    """The columns of a thread: CPU, name, runs, waits, a bar of both, IPC, preempted, beside it."""
    bar = 0 if width < BARS else 24
    wide = 20 if width < BARS else 28
    found = [Placed("", "CPU", 6), Placed("", "thread", wide, left=True), Placed("", "runs %", 8),
             Placed("", "waits %", 8), Placed("", "", bar), Placed("", "IPC", 7),
             Placed("", "preempted/s", 13)]  # fmt: skip
    room = width - 1 - sum(column.width for column in found)
    return [*found, Placed("", "on the sibling", max(16, room), left=True)]


def heading(columns: list[Placed]) -> list[Run]:
    return [(" ", "text"), *((c.text(c.title), "dim") for c in columns if c.width)]


def pair(one: Pair, columns: losses.Columns, since: str, *, chosen: bool) -> list[Run]:
    """Line of a pair, with the mark of the selected one before its sign."""
    return [_mark(chosen), *losses.line(one, columns, since)]


def runner(one: Runner, columns: list[Placed], *, chosen: bool) -> list[Run]:
    moved, elapsed_s = one.moved, one.moved.elapsed_s
    idle = moved.run_s == 0
    ran = moved.run_s / elapsed_s if elapsed_s else nan
    waited = moved.wait_s / elapsed_s if elapsed_s else nan
    runs: list[Run] = [
        _mark(chosen),
        (columns[0].text(str(one.cpu)), "text"),
        (columns[1].text(f"{one.comm} {one.tid}"), "dim" if idle else "text"),
        _share(ran, columns[2].width),
        _share(moved.wait, columns[3].width, WAITS) if not idle or moved.wait_s > 0
        else (f"{'-':>{columns[3].width}}", "faint"),
    ]  # fmt: skip
    if columns[4].width:
        size = columns[4].width - 4
        known = [] if isnan(ran) else bar(ran, waited, size)
        runs += [("    ", "text"), *known, (" " * (0 if known else size), "text")]
    return [
        *runs,
        number(one.ipc, 2, columns[5].width),
        number(moved.involuntary / elapsed_s if elapsed_s else nan, 0, columns[6].width),
        (columns[7].text(one.beside), "dim"),
    ]


def _mark(chosen: bool) -> Run:
    return (theme.CHOSEN, "mark") if chosen else (" ", "text")


def _share(value: float, width: int, least: float = 2.0) -> Run:
    return number(100 * value, 1, width, "bright" if value >= least else "text")


def job(one: Job, unit: ClockUnit, width: int) -> list[Run]:
    """The watched job in one line; the least important parts are dropped if it is too long."""
    if not one.threads:
        none = "  is not running"
        looks = "  its threads are not known yet"
        return [(f" {one.name}", "bright"), (looks if one.threads is None else none, "dim")]
    moved = one.moved
    threads = many(one.threads, "thread")
    pieces: list[tuple[int, list[Run]]] = [
        (0, [(f" {one.name}", "bright"), (f"  {threads}", "text")]),
        (3, [("on ", "dim"), (_on(one.cpus), "text")]),
    ]
    if moved.elapsed_s:
        pieces.append((1, [("runs ", "dim"), (f"{moved.run_s / moved.elapsed_s:.2f}", "text"),
                           (" CPUs", "dim")]))  # fmt: skip
        waits = moved.wait
        wait = MISSING if isnan(waits) else f"{percent(waits)} %"
        key = "bright" if waits >= WAITS else "text"
        pieces.append((1, [("waits ", "dim"), (wait, key)]))
    if not isnan(one.busy_hz):
        pieces.append((2, [(f"{one.busy_hz * unit.per_hz:.{unit.digits}f}", "text"),
                           (f" {unit.name}", "dim")]))  # fmt: skip
    if not isnan(one.ipc):
        pieces.append((2, [("IPC ", "dim"), (f"{one.ipc:.2f}", "text")]))
    if moved.elapsed_s:
        asleep, aside = moved.voluntary / moved.elapsed_s, moved.involuntary / moved.elapsed_s
        pieces.append((4, [("sleeps ", "dim"), (f"{asleep:.0f}/s", "text")]))
        pieces.append((4, [("preempted ", "dim"), (f"{aside:.0f}/s", "text")]))
    return shed(pieces, width, 3)


def _on(cpus: list[int]) -> str:
    text = ranges(cpus)
    if len(text) > MOST_ON:
        return f"{len(cpus)} CPUs"
    return f"CPU{'s' if len(cpus) > 1 else ''} {text}"


def calm(name: str | None, looked_at: list[str], width: int) -> list[list[Run]]:
    """Lines for the case that nobody loses, with what was looked at to say so."""
    text = losses.NOBODY if name is None else f"{name} is losing no time to a neighbour"
    return [[(f" {text}", "text")], *wrapped("looked at: ", looked_at, width)]


def untold(reasons: list[str], width: int) -> list[list[Run]]:
    """What cannot be seen here; each reason begins a new line and may take several."""
    return [line for reason in reasons for line in wrapped("not checked: ", [reason], width)]


def wrapped(before: str, texts: list[str], width: int) -> list[list[Run]]:
    """Texts one after the other, as many in a line as fit."""
    parts = panel.wrapped(" · ".join(texts), max(1, width - len(before) - 5))
    return [
        [(f" {' ' * len(before) if i else before}{part}", "dim")] for i, part in enumerate(parts)
    ]
