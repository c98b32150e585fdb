"""Lines of the table as runs of text. Pure: columns and values in, text and style keys out.

The first columns say which CPU it is and stay; of the others those are drawn that fit, from one of
them on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from perftop import theme
from perftop.widgets.rows import QUIET, number
from perftop.widgets.sheet import INVOLUNTARY, STEAL
from perftop.widgets.strips import Run, fit, foreign

if TYPE_CHECKING:
    from perftop.format import ClockUnit
    from perftop.tabular import Column

RISING, FALLING, LEFT, RIGHT = "▲", "▼", "←", "→"
VALUE = 6
"""Cells of a number, at the least: 100.0 with a sign before it."""
NAME, LONGEST = 18, 32
"""Cells of a task, at the least and at most."""
_LEAST = {"involuntary": INVOLUNTARY, "steal": STEAL}
_OF_WORK = frozenset({"busy_hz", "net_hz", "ipc", "kernel_cycles", "kernel_instructions"})
"""They mean little where a CPU hardly runs."""
_FROM_LOW = frozenset({"cpu", "core", "type", "task"})
"""Sorted from low to high unless reversed; all else begins with the highest."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A column at its place."""

    key: str
    title: str
    width: int
    """With a gap to its left, in which there is room for the mark of the sorted column."""
    scale: float = 1.0
    digits: int = 0
    left: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What of the table is in sight."""

    names: Sequence[Slot]
    slots: Sequence[Slot]
    before: int
    """Columns out of sight at the left."""
    after: int
    spare: int
    """Cells left over."""

    def has(self, key: str) -> bool:
        return any(slot.key == key for slot in self.slots)

    def at(self, x: int) -> str | None:
        """The column that has this cell of a line."""
        end = 1
        for slot in (*self.names, *self.slots):
            if end <= x < end + slot.width:
                return slot.key
            end += slot.width
        return None


@dataclass(slots=True)
class Page:
    """Values by position of the CPU, of the columns in sight."""

    names: dict[str, list[str]]
    values: dict[str, list[float]] = field(default_factory=dict)
    online: Sequence[bool] = ()
    suspect: frozenset[int] = frozenset()
    awake: Sequence[bool] = ()
    """Busy enough for clock and IPC to mean something."""


def slot(column: Column, clock: ClockUnit) -> Slot:
    title = column.name(clock)
    if not column.unit:
        return Slot(column.key, title, NAME + 2, left=True)
    scale, digits = column.scale(clock)
    return Slot(column.key, title, max(VALUE, len(title)) + 2, scale, digits)


def names(page: Page) -> list[Slot]:
    """The columns that stay, as wide as what they hold; the type only where there is more than
    one."""
    found = []
    for key, texts in page.names.items():
        if key != "type" or len(set(texts)) > 1:
            wide = max([len(key), *(len(text) for text in texts)])
            found.append(Slot(key, key, wide + 2, left=key == "type"))
    return found


def plan(stay: Sequence[Slot], slots: Sequence[Slot], first: int, width: int) -> Plan:
    """From column `first` on, or from an earlier one if there is room for all from there."""
    room = width - 2 - sum(slot.width for slot in stay)  # the cursor before, a sign behind
    first = max(0, min(first, _last(slots, room)))
    end = first
    while end < len(slots) and (end == first or slots[end].width <= room):
        room -= slots[end].width
        end += 1
    shown = list(slots[first:end])
    if shown and shown[-1].left and end == len(slots):
        more = max(0, min(LONGEST + 2 - shown[-1].width, room))
        shown[-1] = replace(shown[-1], width=shown[-1].width + more)
        room -= more
    return Plan(stay, shown, first, len(slots) - end, max(0, room))


def _last(slots: Sequence[Slot], room: int) -> int:
    """The first column from which on all fit; the last one, if none do."""
    at = len(slots)
    while at > 0 and slots[at - 1].width <= room:
        room -= slots[at - 1].width
        at -= 1
    return min(at, len(slots) - 1)


def heading(plan: Plan, order: str, *, reverse: bool) -> list[Run]:
    """Titles over their values; the sorted column has a mark, and so have the ends where there is
    more."""
    runs: list[Run] = [(" ", "text")]
    for at, slot in enumerate((*plan.names, *plan.slots)):
        more = plan.before and at == len(plan.names)
        title, key = " " + slot.title, "dim"
        if slot.key == order:
            up = (slot.key in _FROM_LOW) != reverse
            title, key = (RISING if up else FALLING) + slot.title, "bright"
        wide = slot.width - 1
        runs.append((LEFT if more else " ", "key"))
        runs.append((f"{title:<{wide}}" if slot.left else f"{title:>{wide}}", key))
    return [*runs, (" " * plan.spare + RIGHT, "key")] if plan.after else runs


def row(plan: Plan, page: Page, i: int, task: str = "", *, chosen: bool = False) -> list[Run]:
    """The CPU at this position; `task` as it came, not yet fit to be drawn."""
    runs: list[Run] = [(theme.CHOSEN, "mark") if chosen else (" ", "text")]
    for slot in plan.names:
        text = foreign(page.names[slot.key][i])
        text = f"  {text:<{slot.width - 2}}" if slot.left else f"{text:>{slot.width}}"
        runs.append((text, "text" if slot.key == "cpu" else "dim"))
    if page.online[i]:
        runs += _values(plan, page, i, task)
    elif plan.slots:
        runs.append((f"{'off':>{plan.slots[0].width}}", "dim"))
    return runs


def _values(plan: Plan, page: Page, i: int, task: str) -> Iterator[Run]:
    suspect, awake = i in page.suspect, page.awake[i]
    for slot in plan.slots:
        if slot.left:
            yield "  " + fit(foreign(task), slot.width - 2), "dim"
            continue
        value = page.values[slot.key][i]
        text, key = number(value * slot.scale, slot.digits, slot.width, _key(slot, value, awake))
        if suspect and value == value:  # noqa: PLR0124 - not NaN
            text, key = f"{theme.SUSPECT}{text.lstrip()}".rjust(slot.width), "dim"
        yield text, key


def _key(slot: Slot, value: float, awake: bool) -> str:
    if slot.key in _OF_WORK:
        return "text" if awake else "dim"
    if slot.key == "turbo_ceiling_hz":
        return "dim"
    if value >= _LEAST.get(slot.key, 2.0) and slot.key in _LEAST:
        return "warn"
    return "dim" if value < QUIET else "text"


def nothing(text: str) -> list[Run]:
    """Instead of lines, where this filter lets nobody through."""
    return [(" no CPU matches ", "text"), (foreign(text), "bright")]
