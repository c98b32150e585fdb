"""Which lines the time view has, and how wide their parts are. Only the CPUs shown and the size
decide, so that nothing moves when values change."""

from __future__ import annotations

from collections.abc import Iterable

from perfprobe.frozen import frozen
from perftop.draw.strips import fit
from perftop.tui.shared.places import Line, Places, spans

TALLEST = 16
"""Maximum lines of a CPU; CPUs are this tall only where few are shown."""
BELOW, LOW = 10, 3
"""Lines that are left for panels where each CPU has at least LOW lines even so."""
NUMBER = 7
"""Cells of a number, including the gap to its left."""
MOST_CPUS = 12
"""Maximum cells of a list of CPUs; longer lists (cores with many threads) are cut."""


@frozen
class LaneLine:
    """One line of the part that scrolls."""

    line: Line
    """What the line shows; in a row, `part` counts the lines of its core."""
    lanes: tuple[int, ...] = ()
    """Which of the core's CPUs the line shows: one, or two as the halves of its cells."""
    below: int = 0
    """Line within a CPU that is several lines tall; 0 is the top one."""


@frozen
class TimelineLayout:
    slots: list[LaneLine]
    each: bool
    """Every CPU has lines of its own; else two CPUs share a line."""
    tall: int
    """Lines of a CPU; 1 if two share a line."""
    core: int
    cpus: int
    """Widths of the label's parts `core` and `cpus`, in cells."""

    @property
    def label(self) -> int:
        return 1 + self.core + self.cpus + 1

    @property
    def numbers(self) -> int:
        """Number of values side by side."""
        return 1 if self.each else 2

    @property
    def right(self) -> int:
        """Cells to the right of the strip: values, a blank, a sign, a margin."""
        return NUMBER * self.numbers + 3


def planned(
    places: Places, lines: list[Line], room: int, order: str, *, of_core: bool, ascii_: bool
) -> TimelineLayout:
    """Each CPU gets one or more lines of its own if all of them fit, or if half cells cannot be
    drawn (ASCII)."""
    counts = {
        line.row: 1 if of_core else len(places.places[line.row].cpus)
        for line in lines
        if line.kind == "row"
    }
    lanes, headings = sum(counts.values()), len(lines) - len(counts)
    room -= headings
    each = lanes <= room or ascii_ or max(counts.values(), default=1) == 1
    left = room - BELOW if room - BELOW >= LOW * lanes else room
    tall = max(1, min(TALLEST, left // max(1, lanes))) if each else 1
    core = spans([places.name(row, order) for row in counts], 4)
    cpus = 0
    if places.pairs:
        own = each and not of_core
        names = [str(c) for row in counts for c in places.places[row].cpus] if own else places.cpus
        cpus = 2 + min(MOST_CPUS, spans(names, 4))
    if headings:  # their names use the same cells
        core = max(core, 9 - cpus)
    slots = [slot for line in lines for slot in _slots(line, counts, tall, each=each)]
    return TimelineLayout(slots, each, tall, core, cpus)


def _slots(line: Line, counts: dict[int, int], tall: int, *, each: bool) -> Iterable[LaneLine]:
    if line.kind != "row":
        return [LaneLine(line)]
    count, row = counts[line.row], line.row
    if each:
        return [
            LaneLine(Line("row", row, part), (part // tall,), part % tall)
            for part in range(count * tall)
        ]
    return [
        LaneLine(Line("row", row, part), tuple(range(2 * part, min(2 * part + 2, count))))
        for part in range((count + 1) // 2)
    ]


def label(
    plan: TimelineLayout, slot: LaneLine, places: Places, order: str, *, of_core: bool
) -> str:
    """The core and its CPUs, or the one CPU of the line; only a core's first line names it."""
    row, first = slot.line.row, slot.line.part == 0
    core = places.name(row, order) if first else ""
    cpus = ""
    if plan.each and not of_core:
        cpus = str(places.places[row].cpus[slot.lanes[0]]) if slot.below == 0 else ""
    elif first:
        cpus = places.cpus[row]
    return f"{core:>{plan.core}}" + (fit("  " + cpus, plan.cpus) if plan.cpus else "")


def titles(plan: TimelineLayout, places: Places, *, of_core: bool) -> str:
    own = plan.each and not of_core
    name = f"{'core' if places.pairs else 'cpu':>{plan.core}}"
    return f" {name}" + (fit("  cpu" if own else "  cpus", plan.cpus) if plan.cpus else "")
