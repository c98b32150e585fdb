"""Cells of the heat map as runs. Pure: levels in, shapes and style keys out.

A level is a step of the ramp. A half of a cell that has none stays bare, and a sign says why if the
cell is wide enough for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from perftop import theme
from perftop.widgets.heatplan import Cell
from perftop.widgets.strips import Run

UNKNOWN, OFF = -1, -2
"""Instead of a level."""
DENSITY = "_:;=+co*#&%@"
"""The ramp in ASCII: the denser the higher; none of them means something else."""
FAINT = 3
"""Steps of the ramp below this are too near to the ground for letters."""
NUMBER = 4
"""Columns of the cells into which values are written."""
_SIGN: dict[int, Run] = {UNKNOWN: ("–", "faint"), OFF: (theme.NEITHER, "neither")}
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


@lru_cache(maxsize=256)
def whole(level: int, wide: int, ascii_: bool) -> tuple[Run, ...]:
    if level < 0:
        sign, key = _SIGN[level]
        return ((f"{sign:^{wide}}", key),)
    if ascii_:
        return ((DENSITY[level] * wide, f"heat{max(FAINT, level)}"),)
    return ((theme.BOTH * wide, f"heat{level}"),)


@lru_cache(maxsize=1024)
def halves(upper: int, lower: int, wide: int, ascii_: bool) -> tuple[Run, ...]:
    """Two values in one line: above each other, or in ASCII beside each other."""
    if ascii_:
        return (*whole(upper, wide // 2, ascii_), *whole(lower, wide // 2, ascii_))
    if upper == lower or max(upper, lower) < 0:
        return whole(max(upper, lower), wide, ascii_)
    if min(upper, lower) >= 0:
        return ((theme.LP0 * wide, f"heat{upper}/heat{lower}"),)
    shape = theme.LP0 if upper >= 0 else theme.LP1
    known: Run = (shape * max(1, wide - 1), f"heat{max(upper, lower)}")
    return (known, _SIGN[min(upper, lower)]) if wide > 1 else (known,)


def ramp(*, ascii_: bool) -> list[Run]:
    return [whole(level, 1, ascii_)[0] for level in range(theme.HEAT)]


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
