"""Charts of stacked areas: where a CPU's time goes, and the four states of a core.

Pure functions from the values of a column to its cells. A cell holds two kinds at most, the upper
one as the background of an eighth block. Unknown columns are blank. Values are rounded to eighths
of a cell, so that few columns differ and most are found among those made before.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import isfinite, isnan
from typing import Literal

from perftop.draw import theme
from perftop.draw.area_colours import GRADES
from perftop.draw.moving import Column, blank

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
_HANGING = " ▁▂▃▀▅▆▔█"
"""Cells of which the ground is the lower part, by its height."""
_SHAPES = frozenset({4, 7})
"""Those of these heights that are drawn in the colour of the upper part, which leaves no seams
where a terminal does not fill its cells."""
_USER, _KERNEL, _IDLE, _STEAL = range(4)
_BOTH, _OPEN, _OWN, _REST = range(4)
_MADE = 4096
"""Columns of each chart, and cells of columns, that are kept."""


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


def _in_cell(ends: Sequence[int], row: int) -> tuple[int, ...]:
    """Eighths of each kind in the cell of a row, counted from the base. `ends`: the upper ends of
    the kinds in eighths, from the base."""
    tops = [min(max(end - 8 * row, 0), 8) for end in ends]
    return tuple([upper - lower for lower, upper in pairwise((0, *tops))])


def _rounded(share: float, height: int) -> int:
    return 0 if share <= 0 else height if share >= 1 else int(share * height + 0.5)


def grade(row: int, rows: int) -> int:
    """The step of colour of a row, counted from the base."""
    return int((row + 0.5) * GRADES / rows)


# --- where a CPU's time goes


def account(values: Sequence[float], rows: int, look: Look = "colour") -> Column:
    """The shares of user, kernel and steal, and the heat of steal: QUIET, OVER or HOT. User and
    kernel grow from the floor, steal hangs from the ceiling; idle time is between them. Steal and
    kernel may be NaN where unknown; a column without the user's share is blank."""
    user, kernel, steal, heat = values
    if not isfinite(user):
        return blank(rows)
    kernel, steal = 0.0 if isnan(kernel) else kernel, 0.0 if isnan(steal) else steal
    height = 8 * rows
    hang = max(int(steal >= LEAST_STEAL), _rounded(steal, height))
    busy = min(_rounded(user + kernel, height), height - hang)
    return _account(min(_rounded(user, height), busy), busy, hang, int(heat), rows, look)


@lru_cache(maxsize=_MADE)
def _account(user: int, busy: int, hang: int, heat: int, rows: int, look: Look) -> Column:
    """The upper ends of what users and both do, and the height of steal, in eighths."""
    ends = user, busy, 8 * rows - hang, 8 * rows
    cell = _account_cell if look == "colour" else _account_shape
    return tuple(cell(_in_cell(ends, row), heat, row, rows, look) for row in reversed(range(rows)))


@lru_cache(maxsize=_MADE)
def _account_cell(
    parts: tuple[int, ...], heat: int, row: int, rows: int, _: Look
) -> tuple[str, str]:
    lower, upper, level = kept(parts, "weak" if heat == QUIET else "firm")
    step = grade(row, rows)
    names = f"user-{step}", f"kernel-{step}", "", ("steal", "steal", "hot")[heat]
    below, above = names[lower], names[upper]
    if lower != upper:
        if (lower, upper, heat) == (_IDLE, _STEAL, QUIET) and level in _SHAPES:
            return _HANGING[level], above
        return theme.LEVELS[level], f"{below or 'ground'}/{above}" if above else below
    if lower == _STEAL and heat != QUIET and rows >= SIGNED:
        return theme.STEAL, "alarm/hot-back" if heat == HOT else "over/over-back"
    return (" ", "text") if lower == _IDLE else (theme.LEVELS[8], below)


def _account_shape(
    parts: Sequence[int], heat: int, row: int, rows: int, look: Look
) -> tuple[str, str]:
    """A whole cell of a shape for each kind. Outside of ASCII, eighths show where the busy part
    ends, and a thin line at the ceiling the steal that takes less than half a cell."""
    user, system, idle, lost = parts
    kind = _STEAL if lost and lost == max(parts) else parts.index(max(parts))
    sign = (theme.USER + theme.KERNEL + " " + theme.STEAL)[kind]
    if look != "ascii" and kind != _STEAL:
        if user + system and idle:
            sign = theme.LEVELS[user + system]
            kind = _KERNEL if system > user else _USER
        elif lost and idle + lost == 8:
            sign, kind = theme.EDGE, _STEAL
    step = grade(row, rows)
    stolen = "steal", "over", "alarm"
    return sign, (f"user-{step}", f"kernel-{step}", "text", stolen[heat])[kind]


# --- the four states of a core


def states(values: Sequence[float], rows: int, look: Look = "colour") -> Column:
    """The shares of both, of what may be both or one of them, of the first and of the second
    thread: a core's cell made tall. The first thread is above the middle, the second below it,
    round the middle both; dots are rest. Shares of 1 fill half of the even number of `rows`.
    Columns in which both is unknown are blank."""
    both, open_, lp0, lp1 = values
    if not isfinite(both):
        return blank(rows)
    height, shared = 4 * rows, max(0.0, both)
    near = _rounded(shared, height)
    shared += max(0.0, open_)  # unknown, too
    far, half = _rounded(shared, height), rows // 2
    above, below = (
        _half(near, far, _rounded(shared + max(0.0, own), height), half, look, upwards=upwards)
        for own, upwards in ((lp0, True), (lp1, False))
    )
    return (*above[::-1], *below)


@lru_cache(maxsize=_MADE)
def _half(both: int, open_: int, own: int, rows: int, look: Look, *, upwards: bool) -> Column:
    """Half of a core, from the middle. The upper ends of the kinds in eighths, from there."""
    ends = both, open_, own, 8 * rows
    cell = _half_cell if look == "colour" else _half_shape
    return tuple(
        cell(_in_cell(ends, row), grade(row, rows), look, upwards=upwards) for row in range(rows)
    )


@lru_cache(maxsize=_MADE)
def _half_cell(parts: tuple[int, ...], step: int, _: Look, *, upwards: bool) -> tuple[str, str]:
    lower, upper, level = kept(parts)
    names = f"both-{step}", "unknown", f"lp{0 if upwards else 1}-{step}", ""
    near, far = names[lower], names[upper]
    if lower == upper:
        return (theme.LEVELS[8], near) if near else (theme.NEITHER, "neither")
    if upwards:
        return theme.LEVELS[level], f"{near}/{far}" if far else near
    level = 8 - level  # blocks grow from the floor of a cell, so the far kind is drawn on the near
    if not far and level in _SHAPES:
        return _HANGING[level], near
    return theme.LEVELS[level], f"{far or 'ground'}/{near}"


def _half_shape(parts: Sequence[int], step: int, look: Look, *, upwards: bool) -> tuple[str, str]:
    """A whole cell, in the shapes of the four states; in 16 colours these tell one thread from
    both."""
    kind = parts.index(max(parts))
    own, shape = ("lp0", theme.LP0) if upwards else ("lp1", theme.LP1)
    shape = theme.BOTH if look == "sixteen" else shape
    signs = theme.BOTH, theme.UNKNOWN, shape, theme.NEITHER
    return signs[kind], (f"both-{step}", "unknown", f"{own}-{step}", "neither")[kind]
