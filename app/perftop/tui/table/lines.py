"""Lines of the table as runs of text. Pure: takes columns and values, returns text and style keys.

The first columns identify the CPU and always stay; the others scroll, and as many as fit are drawn.
"""

from __future__ import annotations

from collections.abc import Iterator

from perftop.draw import theme
from perftop.draw.strips import QUIET, Run, at_rest, doubted, estimated, fit, foreign, number, rate
from perftop.model.numbers import Metric, Number
from perftop.tui.shared.trouble import Trouble
from perftop.tui.table.layout import BEFORE, Page, TableLayout

LEFT, RIGHT = "←", "→"
_FROM_LOW = frozenset({"cpu", "core", "type", "task"})
"""Columns sorted from low to high unless reversed; all others begin with the highest."""


def heading(plan: TableLayout, order: str, *, reverse: bool) -> list[Run]:
    """Titles above their values; arrows mark the sorted column and the ends where more columns are
    hidden."""
    runs: list[Run] = [(" " * BEFORE, "text")]
    for at, slot in enumerate((*plan.names, *plan.slots)):
        more = plan.before and at == len(plan.names)
        title, key = " " + slot.title, "dim"
        if slot.key == order:
            up = (slot.key in _FROM_LOW) != reverse
            title, key = (theme.RISING if up else theme.FALLING) + slot.title, "bright"
        wide = slot.width - 1
        runs.append((LEFT if more else " ", "key"))
        runs.append((f"{title:<{wide}}" if slot.left else f"{title:>{wide}}", key))
    return [*runs, (" " * plan.spare + RIGHT, "key")] if plan.after else runs


def row(
    plan: TableLayout, page: Page, i: int, task: str = "", trouble: Trouble | None = None,
    *, chosen: bool = False,
) -> tuple[list[Run], theme.Mood]:  # fmt: skip
    """Line of the CPU at position `i`, and how it is drawn; `task` may be raw text, which is made
    safe to draw here. `trouble`: what runs on this CPU."""
    runs: list[Run] = [(theme.CHOSEN, "mark") if chosen else (" ", "text")]
    runs.append((trouble.sign, trouble.key) if trouble else (" ", "text"))
    for slot in plan.names:
        text = foreign(page.names[slot.key][i])
        text = f"  {text:<{slot.width - 2}}" if slot.left else f"{text:>{slot.width}}"
        runs.append((text, "text" if slot.key == "cpu" else "dim"))
    if page.online[i]:
        runs += _values(plan, page, i, task, trouble)
    elif plan.slots:
        runs.append((f"{'off':>{plan.slots[0].width}}", "dim"))
    if trouble is not None and trouble.victim:
        return runs, "chosen victim" if chosen else "victim"
    return runs, "chosen" if chosen else "calm"


def _values(
    plan: TableLayout, page: Page, i: int, task: str, trouble: Trouble | None
) -> Iterator[Run]:
    awake = page.awake[i]
    for slot in plan.slots:
        if slot.left or slot.column is None:
            yield "  " + fit(foreign(task), slot.width - 2), "dim"
            continue
        if page.resting[i] and slot.column.of_running:
            yield at_rest(slot.width)
            continue
        value = page.values[slot.key][i]
        lost = trouble is not None and (i, slot.key) in trouble.lost
        key = "alarm" if lost else _key(slot.column, value, awake, idle=page.idle[i])
        if slot.column.rate:
            told = rate(value, slot.width, key)
        else:
            told = number(value * slot.scale, slot.digits, slot.width, key)
        if slot.key in page.estimated and page.estimated[slot.key][i]:
            told = estimated(told)
        yield doubted(told) if page.doubted[slot.key][i] else told


def _key(column: Number, value: float, awake: bool, *, idle: bool) -> str:
    if idle and not value >= column.stands_out:
        return "faint"
    if isinstance(column, Metric) and (column.of_running or column.unit == "Hz"):
        return "text" if awake else "dim"
    if column.unit == "Hz":
        return "dim"
    if value >= column.stands_out:
        return "warn"
    return "dim" if value < QUIET else "text"
