"""Lines and areas of dots over time: a core's clock under its ceiling, and its IPC.

Pure functions from arrays (charts, columns) to cells; a cell holds two columns. Unknown columns are
blank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.draw import braille, theme
from perftop.draw.area_colours import GRADES
from perftop.draw.areas import Look
from perftop.draw.braille import Codes
from perftop.draw.charts import grades, lines_of
from perftop.draw.strips import Run


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


AWAKE, ASLEEP, LOST = 0, 1, 2
"""A column of a line: at work, mostly asleep, during an episode that runs."""
_TALL: Mapping[Look, int] = {
    "colour": braille.TALL, "sixteen": braille.TALL, "shapes": braille.TALL,
    "ascii": len(braille.PLAIN),
}  # fmt: skip
"""Dots in a cell by its height."""
_CLOCK = ("clock", "faint", "alarm/drop-back", "text", "rule", "faint/drop-back", "text/drop-back")
_CLEAR, _LIMIT, _LOST_LIMIT, _LOST_CLEAR = 3, 4, 5, 6


def clock(
    hz: Floats, ceiling: Floats, how: Ints, ends: tuple[Floats, Floats], rows: int,
    look: Look = "colour",
) -> Cells:  # fmt: skip
    """The line of a clock under its ceiling. `ends`: the lowest and highest clock of each chart's
    scale. The first line is the ceiling at the highest; where it is lower, dots below show it.
    `how`: AWAKE, ASLEEP or LOST by column; a lost piece has a ground of its own."""
    charts = len(hz)
    low, high = (np.repeat(end, hz.shape[1] // _wide(look)) for end in ends)
    dots = _TALL[look] * (rows - 1)
    drawn = _columns(hz, look)
    joined = (np.arange(drawn.size) % drawn.shape[1]) > 0  # no line leads from chart to chart
    thick = 1 if look == "ascii" else 2
    line = braille.line(drawn.ravel(), low, high, dots, joined=joined, thick=thick)
    limit = _columns(ceiling, look).ravel()
    at_top = limit >= high - (high - low) / (2 * dots)
    below = braille.line(np.where(at_top, np.nan, limit), low, high, dots, joined=False)
    below[:, 1::2] = False
    codes = _codes(line, below, look)
    there, limited = (_any(part, rows - 1, look) for part in (line, below))
    state = _worst(how).ravel()
    keys = np.where(there, state, np.where(limited, _LIMIT, _CLEAR))
    keys = np.where(state == LOST, np.where(there | limited, LOST, _LOST_CLEAR), keys)
    top = _any(at_top[None], 1, look, tall=1)
    first = np.where(top, ord(theme.LIMIT), ord(" ")).astype(np.uint32)
    first_keys = np.where(
        state == LOST, np.where(top, _LOST_LIMIT, _LOST_CLEAR), np.where(top, _LIMIT, _CLEAR)
    )
    return _cells(np.vstack([first, codes]), np.vstack([first_keys, keys]), charts, _CLOCK)


def rate(values: Floats, how: Ints, high: Floats, rows: int, look: Look = "colour") -> Cells:
    """An area from 0 to `high`, the top of each chart's scale. `how` as `clock` has it; what is
    lost is red."""
    tops = np.repeat(high, values.shape[1] // _wide(look))
    area = braille.area(_columns(values, look).ravel(), tops, _TALL[look] * rows)
    codes = braille.plain_area(area) if look == "ascii" else braille.codes(area)
    lost = _worst(how).ravel() == LOST
    keys = np.where(lost, GRADES, 0) + grades(rows)[::-1, None]
    keys = np.where(codes == ord(" "), len(_RATES) - 1, keys)
    return _cells(codes, keys, len(values), _RATES)


_RATES = [*(f"{area}-{grade}" for area in ("ipc", "loss") for grade in range(GRADES)), "text"]


def _wide(look: Look) -> int:
    """Columns of values of which one column of dots is drawn."""
    return 2 if look == "ascii" else 1


def _columns(values: Floats, look: Look) -> Floats:
    """Values as columns of dots: in ASCII the newer of each pair stands for both."""
    return values[:, 1::2] if look == "ascii" else values


def _codes(line: Bools, limit: Bools, look: Look) -> Codes:
    if look != "ascii":
        return braille.codes(line | limit)
    codes = braille.plain_codes(line)
    limited = limit.reshape(len(codes), len(braille.PLAIN), -1).any(axis=1)
    codes[limited & (codes == ord(" "))] = ord(".")
    return codes


def _any(dots: Bools, rows: int, look: Look, tall: int | None = None) -> Bools:
    """(rows, cells): whether a cell has a dot."""
    wide = 1 if look == "ascii" else braille.WIDE
    return np.asarray(dots.reshape(rows, tall or _TALL[look], -1, wide).any(axis=(1, 3)))


def _worst(how: Ints) -> Ints:
    """The worst of the two columns of each cell."""
    found: Ints = how.reshape(len(how), -1, 2).max(axis=2)
    return found


def _cells(codes: Codes, keys: Ints, charts: int, names: tuple[str, ...] | list[str]) -> Cells:
    shape = len(codes), charts, -1
    return Cells(codes.reshape(shape).swapaxes(0, 1), keys.reshape(shape).swapaxes(0, 1), names)
