"""Cells of the heat map as runs. Pure: levels in, shapes and style keys out.

A level is a step of the ramp. A half of a cell that has none stays bare, and a sign says why if the
cell is wide enough for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from perftop.draw import theme
from perftop.draw.heat_ramp import OFF, halves, whole
from perftop.draw.strips import Run
from perftop.tui.heat.layout import Cell

NUMBER = 4
"""Columns of the cells into which values are written."""
_GAP: Run = (" ", "text")


@dataclass(slots=True)
class Marks:
    """What stands beside cells, by row."""

    before: dict[int, Run] = field(default_factory=dict)
    after: dict[int, Run] = field(default_factory=dict)


@dataclass(slots=True)
class Shades:
    """What cells are drawn from; lists by position of the CPU."""

    levels: list[int]
    numbers: list[str]
    """Values as they stand in large cells."""
    of_core: bool
    """Siblings have the value in common."""
    inks: Sequence[str]
    """By level, the style of a number on it."""
    ascii_: bool


def cells(rows: Sequence[int], line: int, cell: Cell, cpus: Sequence[tuple[int, ...]],
          shades: Shades, marks: Marks) -> list[Run]:  # fmt: skip
    """One line of cells next to each other, and their marks. `cpus`: positions, by row."""
    runs: list[Run] = []
    levels, before, after, close = shades.levels, marks.before, marks.after, _GAP
    for row in rows:
        runs.append(before.get(row, close))
        close = after.get(row, _GAP)
        mine = cpus[row]
        if shades.of_core or len(mine) == 1:
            at = max(mine, key=levels.__getitem__)  # a sibling that is off knows nothing
            runs += _one(shades, at, cell.wide, told=not line)
        elif cell.halves:
            pair = [levels[at] for at in mine[2 * line : 2 * line + 2]]
            runs += halves(*pair, *[OFF] * (2 - len(pair)), cell.wide, shades.ascii_)
        elif line < len(mine):
            runs += _one(shades, mine[line], cell.wide, told=True)
        else:
            runs += whole(OFF, cell.wide, shades.ascii_)
    return [*runs, close]


def _one(shades: Shades, at: int, wide: int, *, told: bool) -> tuple[Run, ...]:
    """A value that has the line to itself; written out where there is room."""
    level = shades.levels[at]
    if told and wide == NUMBER and level >= 0:
        return ((f"{shades.numbers[at]:>3}".ljust(NUMBER), shades.inks[level]),)
    return whole(level, wide, shades.ascii_)


def marks(outliers: Sequence[int], suspects: Sequence[int], chosen: int | None,
          *, ascii_: bool) -> Marks:  # fmt: skip
    """Brackets around what is out of line, the sign of doubt, and the cursor before both."""
    made = Marks()
    for row in outliers:
        made.before[row], made.after[row] = ("[", "bright"), ("]", "bright")
    for row in suspects:
        made.before[row] = (theme.SUSPECT, "dim")
    if chosen is not None:
        made.before[chosen] = (theme.CHOSEN, "mark")
        made.after.setdefault(chosen, ("<" if ascii_ else "◂", "mark"))
    return made
