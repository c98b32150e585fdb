"""Stacked areas over time for small machines: where a CPU's time goes, and the four states of a
core.

Pure functions from arrays (charts, columns) to cells: charts of one kind are computed together,
which costs little more than one. A cell holds two kinds at most, the upper one as the background of
an eighth block. Unknown columns are blank. The cells are looked up in tables, so the module imports
numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.draw import theme
from perftop.draw.area_colours import GRADES
from perftop.draw.braille import Codes, codes_of
from perftop.draw.charts import grades, lines_of
from perftop.draw.strips import Run

Look = Literal["colour", "sixteen", "shapes", "ascii"]
"""What cells are made of: two colours; shapes in colours of the terminal, whose background is not
known; shapes that need no colour; those that ASCII has."""


def look(theme_name: str, *, no_color: bool, ascii_: bool) -> Look:
    if ascii_ or no_color:
        return "ascii" if ascii_ else "shapes"
    return "sixteen" if theme.PALETTES[theme_name].ansi else "colour"


LEAST_STEAL = 0.004
"""Share from which steal is seen, however low the chart is."""
QUIET, OVER, HOT = 0, 1, 2
"""Steal of a column: outside of episodes, during one that is over, during one that runs."""
SIGNED = 8
"""Minimum rows of a chart whose full hot cells carry the sign of steal."""
_EIGHTHS = codes_of(theme.LEVELS)
_HANGING = codes_of(" ▁▂▃▀▅▆▔█")
"""Cells of which the ground is the lower part, by its height."""
_IS_SHAPE = np.isin(np.arange(9), (4, 7))
"""Those of these heights that are drawn in the colour of the upper part, which leaves no seams
where a terminal does not fill its cells."""
_BLANK = ord(" ")
_USER, _KERNEL, _IDLE, _STEAL = range(4)
_BOTH, _OPEN, _OWN, _REST = range(4)
_KINDS = 6
"""Kinds of a cell: the first three of four, and three variants of the last."""


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of some charts of one size."""

    codes: Codes
    """(charts, rows, columns): code points; row 0 is the top one."""
    keys: Ints
    """(charts, rows, columns): styles, as positions in `names`."""
    names: Sequence[str]

    def lines(self) -> list[list[list[Run]]]:
        """By chart, its lines."""
        charts, rows, columns = self.codes.shape
        flat = charts * rows, columns
        found = lines_of(self.codes.reshape(flat), self.keys.reshape(flat), self.names)
        return [found[at : at + rows] for at in range(0, charts * rows, rows)]


# --- two kinds a cell

Last = Literal["equal", "weak", "firm"]
"""What becomes of the last kind in a cell of three: it goes if it is the smallest, it goes before
the second kind, or it stays."""


def kept(parts: Sequence[int], last: Last = "equal") -> tuple[int, int, int]:
    """The two kinds that are drawn in a cell, lower and upper, and the height of the lower one.
    `parts`: eighths by kind, from the base of the cell. The smallest of three goes."""
    sizes: dict[int, float] = {kind: size for kind, size in enumerate(parts) if size}
    if _STEAL in sizes and last == "firm":
        sizes[_STEAL] = 9
    elif {_STEAL, _KERNEL} <= sizes.keys() and last == "weak":
        sizes[_STEAL] = min(sizes[_STEAL], sizes[_KERNEL] - 0.5)
    largest = sorted(sizes, key=lambda kind: (-sizes[kind], kind))[:2]
    lower, upper = min(largest), max(largest)
    return lower, upper, sum(parts[:upper]) if lower != upper else 8


@lru_cache(maxsize=3)
def _table(last: Last) -> Ints:
    """(729, 3): `kept` by the eighths of the first three kinds, as digits of base 9."""
    found = np.zeros((9**3, 3), np.intp)
    for code in range(9**3):
        first, (second, third) = code // 81, divmod(code % 81, 9)
        rest = 8 - first - second - third
        if rest >= 0:
            found[code] = kept((first, second, third, rest), last)
    return found


def _in_cells(ends: Ints, rows: int) -> Ints:
    """(kinds, rows, charts, columns): eighths of each kind in each cell; `ends` (kinds, charts,
    columns): the upper ends of the kinds in eighths, from the base. Row 0 is at the base."""
    base = 8 * np.arange(rows)[None, :, None, None]
    tops = np.clip(ends[:, None] - base, 0, 8)
    found: Ints = np.diff(tops, axis=0, prepend=0)
    return found


def _code(parts: Ints) -> Ints:
    """Indices into a `_table`."""
    found: Ints = parts[0] * 81 + parts[1] * 9 + parts[2]
    return found


def _rounded(shares: Floats, height: int) -> Ints:
    return np.floor(np.clip(shares, 0.0, 1.0) * height + 0.5).astype(np.intp)


def _drawn(codes: Codes, keys: Ints, names: Sequence[str], known: Bools) -> Cells:
    """Cells (rows, charts, columns) from the base as cells from the top; the last of `names` is
    that of blank cells."""
    codes = np.where(known, codes, _BLANK).astype(np.uint32)
    keys = np.where(known, keys, len(names) - 1)
    return Cells(codes[::-1].swapaxes(0, 1), keys[::-1].swapaxes(0, 1), names)


def _pairs(lower: Ints, upper: Ints) -> Ints:
    """Positions in names by step, lower and upper kind."""
    grade = grades(len(lower))[:, None, None]
    return (grade * _KINDS + lower) * _KINDS + upper


# --- where a CPU's time goes


def account(
    user: Floats, kernel: Floats, steal: Floats, heat: Ints, rows: int, look: Look = "colour"
) -> Cells:
    """User's and kernel's shares grow from the floor, steal hangs from the ceiling; idle time is
    between them. `heat`: QUIET, OVER or HOT by column. Steal and kernel may be NaN where unknown;
    a column without the user's share is blank."""
    known = np.isfinite(user)
    use, system, lost = (np.where(np.isnan(part), 0.0, part) for part in (user, kernel, steal))
    height = 8 * rows
    hang = _rounded(lost, height)
    hang = np.where(lost >= LEAST_STEAL, np.maximum(1, hang), hang)
    busy = np.minimum(_rounded(use + system, height), height - hang)
    ends = (
        np.minimum(_rounded(use, height), busy),
        busy,
        height - hang,
        np.full_like(hang, height),
    )
    parts = _in_cells(np.stack(ends), rows)
    if look != "colour":
        return _account_shapes(parts, heat, known, look)
    table = np.stack([_table("weak"), _table("firm")])
    last = np.where(heat == QUIET, 0, 1)
    lower, upper, level = np.moveaxis(table[last[None], _code(parts)], -1, 0)
    lower, upper = (kind + np.where(kind == _STEAL, heat, 0) for kind in (lower, upper))
    whole = lower == upper
    codes = np.where(whole & (lower == _IDLE), _BLANK, _EIGHTHS[level])
    thin = (lower == _IDLE) & (upper == _STEAL) & _IS_SHAPE[level]
    codes, lower = np.where(thin, _HANGING[level], codes), np.where(thin, _STEAL, lower)
    if rows >= SIGNED:
        codes[whole & (lower > _STEAL)] = ord(theme.STEAL)
    return _drawn(codes, _pairs(lower, upper), _account_names(rows >= SIGNED), known)


@lru_cache(maxsize=2)
def _account_names(signed: bool) -> list[str]:
    """Style keys by step, lower and upper kind; idle cells are the ground."""
    names = []
    for grade in range(GRADES):
        kinds = (f"user-{grade}", f"kernel-{grade}", "", "steal", "steal", "hot")
        for lower in kinds:
            for upper in kinds:
                alone = lower if lower == upper or not upper else ""
                names.append(alone or (f"{lower or 'ground'}/{upper}" if upper else "text"))
        if signed:
            names[-1], names[-1 - _KINDS - 1] = "alarm/hot-back", "over/over-back"
    return [*names, "text"]


_ACCOUNT = codes_of(theme.USER + theme.KERNEL + " " + theme.STEAL)


def _account_shapes(parts: Ints, heat: Ints, known: Bools, look: Look) -> Cells:
    """Whole cells of a shape for each kind. Outside of ASCII, eighths show where the busy part
    ends, and a thin line at the ceiling the steal that takes less than half a cell."""
    user, system, idle, lost = parts
    kind = np.where((lost > 0) & (lost == parts.max(axis=0)), _STEAL, parts.argmax(axis=0))
    codes = _ACCOUNT[kind]
    if look != "ascii":
        ends = (user + system > 0) & (idle > 0) & (kind != _STEAL)
        codes = np.where(ends, _EIGHTHS[user + system], codes)
        kind = np.where(ends, np.where(system > user, _KERNEL, _USER), kind)
        thin = (lost > 0) & (idle + lost == 8) & (kind != _STEAL)
        codes, kind = np.where(thin, ord(theme.EDGE), codes), np.where(thin, _STEAL, kind)
    kind = kind + np.where(kind == _STEAL, heat, 0)
    grade = grades(parts.shape[1])[:, None, None]
    keys = np.where(kind < _IDLE, kind * GRADES + grade, 2 * GRADES + kind - _IDLE)
    return _drawn(codes, keys, _ACCOUNT_SHAPES, known)


_ACCOUNT_SHAPES = (
    *(f"{area}-{grade}" for area in ("user", "kernel") for grade in range(GRADES)),
    "text", "steal", "over", "alarm", "text",
)  # fmt: skip


# --- the four states of a core


def states(
    both: Floats, open_: Floats, lp0: Floats, lp1: Floats, rows: int, look: Look = "colour"
) -> Cells:
    """A core's cell made tall: the first thread above the middle, the second below it, round the
    middle both; dots are rest. `open_` is the share that may be both or one of them. Shares of 1
    fill half of the even number of `rows`. Columns without `both` are blank."""
    known = np.isfinite(both)
    height = 4 * rows
    halves = []
    for own, upwards in ((lp0, True), (lp1, False)):
        shares = np.stack([both, open_, own])
        ends = _rounded(np.cumsum(np.where(np.isnan(shares), 0.0, shares), axis=0), height)
        parts = _in_cells(np.concatenate([ends, np.full_like(ends[:1], height)]), rows // 2)
        halves.append(
            _half(parts, known, upwards=upwards) if look == "colour"
            else _half_shapes(parts, known, upwards=upwards, solid=look == "sixteen")
        )  # fmt: skip
    above, below = halves
    return Cells(
        np.concatenate([above.codes, below.codes[:, ::-1]], axis=1),
        np.concatenate([above.keys, below.keys[:, ::-1] + len(above.names)], axis=1),
        [*above.names, *below.names],
    )


def _half(parts: Ints, known: Bools, *, upwards: bool) -> Cells:
    """Half of a core, its base at the middle."""
    lower, upper, level = np.moveaxis(_table("equal")[_code(parts)], -1, 0)
    if not upwards:  # blocks grow from the floor of a cell, so the upper kind is drawn on the lower
        level = np.where(lower == upper, 8, 8 - level)
    rest = (lower == _REST) & (upper == _REST)
    codes = np.where(rest, ord(theme.NEITHER), _EIGHTHS[level])
    if not upwards:
        thin = (lower != upper) & (upper == _REST) & _IS_SHAPE[level]
        codes, upper = np.where(thin, _HANGING[level], codes), np.where(thin, lower, upper)
    return _drawn(codes, _pairs(lower, upper), _half_names(upwards), known)


@lru_cache(maxsize=2)
def _half_names(upwards: bool) -> list[str]:
    names = []
    for grade in range(GRADES):
        own = f"lp0-{grade}" if upwards else f"lp1-{grade}"
        kinds = (f"both-{grade}", "unknown", own, "", "", "")
        for lower in kinds:
            for upper in kinds:
                if lower == upper:
                    names.append(lower or "neither")
                elif upwards:
                    names.append(f"{lower}/{upper}" if upper else lower)
                else:
                    names.append(f"{upper or 'ground'}/{lower}")
    return [*names, "text"]


def _half_shapes(parts: Ints, known: Bools, *, upwards: bool, solid: bool) -> Cells:
    """Whole cells, in the shapes of the four states; `solid`: colours tell one thread from both."""
    kind = parts.argmax(axis=0)
    own, shape = ("lp0", theme.LP0) if upwards else ("lp1", theme.LP1)
    shape = theme.BOTH if solid else shape
    codes = codes_of(theme.BOTH + theme.UNKNOWN + shape + theme.NEITHER)[kind]
    grade = grades(parts.shape[1])[:, None, None]
    keys = np.where(kind == _BOTH, grade, np.where(kind == _OWN, GRADES + grade, 2 * GRADES + kind))
    names = [f"{area}-{step}" for area in ("both", own) for step in range(GRADES)]
    return _drawn(codes, keys, [*names, "", "unknown", "", "neither", "text"], known)
