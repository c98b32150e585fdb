"""Bars as runs of text. Pure functions; every bar has exactly the width asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from perftop.draw import theme
from perftop.draw.strips import Run

_SMT = ((theme.BOTH, "both"), (theme.LP0, "lp0"), (theme.LP1, "lp1"))


def stacked(shares: Sequence[float], shapes: Sequence[Run], width: int) -> list[Run]:
    """Shares side by side; the rest of the whole is drawn as `neither`. The ends are rounded, not
    the lengths, so rounding errors do not add up."""
    runs: list[Run] = []
    end, done = 0.0, 0
    for share, (shape, key) in zip(shares, shapes, strict=True):
        end += share
        cells = min(width, round(end * width)) - done
        if cells > 0:
            runs.append((shape * cells, key))
            done += cells
    if done < width:
        runs.append((theme.NEITHER * (width - done), "neither"))
    return runs


def smt(states: Sequence[float], width: int, *, shapes: Sequence[Run] = _SMT) -> list[Run]:
    """The four states of a core, in the order neither, lp0, lp1, both."""
    _, lp0, lp1, both = states
    return stacked((both, lp0, lp1), shapes, width)


def single(share: float, width: int, thread: int | None) -> list[Run]:
    """A core on which one thread runs: full cells if it has no other thread, else half cells."""
    shape = (theme.BOTH, "lp0") if thread is None else _SMT[1 + min(thread, 1)]
    return stacked((share,), (shape,), width)


def possible(low: Sequence[float], width: int) -> list[Run]:
    """States known only by bounds: the least of each state, and the undetermined rest as
    `unknown`."""
    neither, lp0, lp1, both = (0.0 if math.isnan(share) else share for share in low)
    open_ = 1 - neither - lp0 - lp1 - both
    return stacked((both, lp0, lp1, open_), (*_SMT, (theme.UNKNOWN, "unknown")), width)


def account(user: float, kernel: float, steal: float, width: int) -> list[Run]:
    """User, kernel and steal shares of a CPU by the system's account."""
    shapes = ((theme.USER, "lp0"), (theme.KERNEL, "cyan"), (theme.STEAL, "warn"))
    return stacked((user, kernel, steal), shapes, width)


def clock(hz: float, ceiling: float, top: float, width: int, key: str) -> list[Run]:
    """A clock on a scale from 0 to `top`, drawn in half cells; a bar across marks its ceiling."""
    cells = width - 1  # the last cell is for the ceiling of a clock that reaches it
    halves = 0 if math.isnan(hz) else min(2 * cells, round(2 * cells * hz / top))
    line = theme.CLOCK * (halves // 2) + theme.CLOCK_END * (halves % 2)
    if math.isnan(ceiling):
        return [(line.ljust(width), key)]
    at = min(cells, max(len(line), round(cells * ceiling / top)))
    return [
        (line, key),
        (" " * (at - len(line)), "text"),
        (theme.CEILING, "dim"),
        (" " * (width - at - 1), "text"),
    ]


SHADES = 16
"""Factor between the height and the shade in a cell of a history, see `history`."""


@lru_cache(maxsize=4096)
def history(cells: bytes, width: int, part: int, tall: int, *, ascii_: bool) -> tuple[Run, ...]:
    """Line `part`, counted from the top, of a graph that is `tall` lines high. A cell is an
    unsigned 16-bit number: SHADES times its height in eighths of a line plus its step of the heat
    ramp, or 0 where nothing is known. The newest cell is at the right edge; height and luminance
    both show the value."""
    signs = _signs(8 * (tall - 1 - part), ascii_)
    recent = memoryview(cells).cast("H")[-width:]
    runs: list[Run] = []
    text, key = " " * (width - len(recent)), "text"
    for cell in recent:
        sign, its = signs[cell]
        if its == key:
            text += sign
        else:
            runs.append((text, key))
            text, key = sign, its
    return (*runs, (text, key))


@lru_cache(maxsize=64)
def _signs(below: int, ascii_: bool) -> _Signs:
    return _Signs(below, theme.LEVELS_PLAIN if ascii_ else theme.LEVELS)


class _Signs(dict[int, Run]):
    """What stands in a line of a history for each cell; `below`: eighths under that line."""

    def __init__(self, below: int, levels: str) -> None:
        super().__init__()
        self._below, self._levels = below, levels

    def __missing__(self, cell: int) -> Run:
        high, shade = divmod(cell, SHADES)
        level = min(8, high - self._below)
        made: Run = (self._levels[level], f"heat{shade}") if cell and level > 0 else (" ", "text")
        self[cell] = made
        return made
