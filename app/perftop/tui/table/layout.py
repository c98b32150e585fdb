"""Which columns of the table fit, and where each begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from perfprobe.frozen import frozen, replace
from perftop.base.format import ClockUnit
from perftop.model.numbers import Number
from perftop.tui.shared.placed_column import Placed

BEFORE = 2
"""Cells before the columns: the mark of the selected line, and the sign of an episode."""
VALUE = 6
"""Minimum cells of a number: 100.0 with a sign before it."""
NAME, LONGEST = 18, 32
"""Minimum and maximum cells of a task."""


@frozen
class TableLayout:
    """The part of the table that is in sight."""

    names: Sequence[Placed]
    slots: Sequence[Placed]
    before: int
    """Number of columns hidden at the left; `after`: at the right."""
    after: int
    spare: int
    """Unused cells at the right."""

    def has(self, key: str) -> bool:
        return any(slot.key == key for slot in self.slots)

    def at(self, x: int) -> str | None:
        """Key of the column at cell `x` of a line; None if there is none."""
        end = BEFORE
        for slot in (*self.names, *self.slots):
            if end <= x < end + slot.width:
                return slot.key
            end += slot.width
        return None


@dataclass(slots=True)
class Page:
    """Values of the columns in sight, by position of the CPU."""

    names: dict[str, list[str]]
    values: dict[str, list[float]] = field(default_factory=dict)
    online: Sequence[bool] = ()
    doubted: dict[str, list[bool]] = field(default_factory=dict)
    """Like `values`: a counter of the value is doubted."""
    awake: Sequence[bool] = ()
    """Whether each CPU is busy enough for its clock and IPC to mean something."""
    idle: Sequence[bool] = ()
    """Whether it does so little that its line recedes."""
    resting: Sequence[bool] = ()
    """Whether its numbers per running time are not shown."""
    estimated: dict[str, list[bool]] = field(default_factory=dict)
    """Like `values`: the event took turns on the counters."""


def slot(column: Number, clock: ClockUnit) -> Placed:
    title = column.name(clock)
    if not column.unit:
        return Placed(column.key, title, NAME + 2, left=True)
    scale, digits = column.scale(clock)
    return Placed(
        column.key, title, max(VALUE, len(title)) + 2, scale=scale, digits=digits, column=column
    )


def names(page: Page) -> list[Placed]:
    """The columns that stay, as wide as their contents; the type only if there is more than
    one."""
    found = []
    for key, texts in page.names.items():
        if key != "type" or len(set(texts)) > 1:
            wide = max([len(key), *(len(text) for text in texts)])
            found.append(Placed(key, key, wide + 2, left=key == "type"))
    return found


def plan(stay: Sequence[Placed], slots: Sequence[Placed], first: int, width: int) -> TableLayout:
    """Columns in sight from `first` on, or from an earlier one if all from there fit."""
    room = width - BEFORE - 1 - sum(slot.width for slot in stay)  # an arrow at the end
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
    return TableLayout(stay, shown, first, len(slots) - end, max(0, room))


def _last(slots: Sequence[Placed], room: int) -> int:
    """Index of the first column from which all others fit; the last one if none do."""
    at = len(slots)
    while at > 0 and slots[at - 1].width <= room:
        room -= slots[at - 1].width
        at -= 1
    return min(at, len(slots) - 1)
