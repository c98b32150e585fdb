"""Cells of the heat map as runs. Pure: takes levels, returns shapes and style keys.

A level is a step of the ramp. Half a cell without a level stays empty; if the cell is wide enough,
a sign says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from perftop.draw import theme
from perftop.draw.heat_ramp import OFF, halves, whole
from perftop.draw.strips import Run
from perftop.tui.heat.layout import Cell

NUMBER = 4
"""Width of cells that show values as numbers, in columns."""
_GAP: Run = (" ", "text")


@dataclass(slots=True)
class Marks:
    """Signs beside cells, by row."""

    before: dict[int, Run] = field(default_factory=dict)
    after: dict[int, Run] = field(default_factory=dict)


@dataclass(slots=True)
class Shades:
    """What cells are drawn from; lists are by position of the CPU."""

    levels: list[int]
    numbers: list[str]
    """Values as text; empty unless cells are NUMBER columns wide."""
    of_core: bool
    """All siblings of a core have the same value."""
    inks: Sequence[str]
    """Style of a number in a cell, by the cell's level."""
    ascii_: bool


def cells(rows: Sequence[int], line: int, cell: Cell, cpus: Sequence[tuple[int, ...]],
          shades: Shades, marks: Marks) -> list[Run]:  # fmt: skip
    """One line of adjacent cells with their marks. `cpus`: positions of the CPUs, by row."""
    runs: list[Run] = []
    levels, before, after, close = shades.levels, marks.before, marks.after, _GAP
    for row in rows:
        runs.append(before.get(row, close))
        close = after.get(row, _GAP)
        mine = cpus[row]
        if shades.of_core or len(mine) == 1:
            at = max(mine, key=levels.__getitem__)  # an offline sibling has no value
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
    """A cell line with a single value, as a number if it is wide enough."""
    level = shades.levels[at]
    if told and wide == NUMBER and level >= 0:
        return ((f"{shades.numbers[at]:>3}".ljust(NUMBER), shades.inks[level]),)
    return whole(level, wide, shades.ascii_)


def marks(
    outliers: Sequence[int], suspects: Sequence[int], troubles: Mapping[int, Run],
    chosen: int | None,
) -> Marks:  # fmt: skip
    """Brackets around outliers, the sign of doubt at suspects, and the sign of an episode; the
    cursor replaces any, but the sign of an episode then stands behind the cell."""
    made = Marks()
    for row in outliers:
        made.before[row], made.after[row] = ("[", "bright"), ("]", "bright")
    for row in suspects:
        made.before[row] = (theme.SUSPECT, "dim")
    made.before.update(troubles)
    if chosen is not None:
        made.before[chosen] = (theme.CURSOR[0], "mark")
        made.after.setdefault(chosen, troubles.get(chosen, (theme.CURSOR[1], "mark")))
    return made
