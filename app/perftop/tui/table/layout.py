"""Which columns of the table fit, and where each begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from perftop.base.format import ClockUnit
from perftop.samples.metrics import Column
from perftop.tui.shared.placed_column import Placed

VALUE = 6
"""Cells of a number, at the least: 100.0 with a sign before it."""
NAME, LONGEST = 18, 32
"""Cells of a task, at the least and at most."""


@dataclass(frozen=True, slots=True)
class TableLayout:
    """What of the table is in sight."""

    names: Sequence[Placed]
    slots: Sequence[Placed]
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


def slot(column: Column, clock: ClockUnit) -> Placed:
    title = column.name(clock)
    if not column.unit:
        return Placed(column.key, title, NAME + 2, left=True)
    scale, digits = column.scale(clock)
    return Placed(column.key, title, max(VALUE, len(title)) + 2, scale=scale, digits=digits)


def names(page: Page) -> list[Placed]:
    """The columns that stay, as wide as what they hold; the type only where there is more than
    one."""
    found = []
    for key, texts in page.names.items():
        if key != "type" or len(set(texts)) > 1:
            wide = max([len(key), *(len(text) for text in texts)])
            found.append(Placed(key, key, wide + 2, left=key == "type"))
    return found


def plan(stay: Sequence[Placed], slots: Sequence[Placed], first: int, width: int) -> TableLayout:
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
    return TableLayout(stay, shown, first, len(slots) - end, max(0, room))


def _last(slots: Sequence[Placed], room: int) -> int:
    """The first column from which on all fit; the last one, if none do."""
    at = len(slots)
    while at > 0 and slots[at - 1].width <= room:
        room -= slots[at - 1].width
        at -= 1
    return min(at, len(slots) - 1)
