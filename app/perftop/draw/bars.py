"""Bars as runs of text. Pure functions; every bar has exactly the width asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from perftop.draw import theme
from perftop.draw.columns import Run

_SMT = ((theme.BOTH, "bar-both"), (theme.LP0, "bar-lp0"), (theme.LP1, "bar-lp1"))
"""A step darker than the keys of a legend, so that red is the loudest."""
_ACCOUNT = ((theme.USER, "user-9"), (theme.KERNEL, "kernel-9"), (theme.STEAL, "over"))


def stacked(shares: Sequence[float], shapes: Sequence[Run], width: int) -> list[Run]:
    """Shares side by side; the rest of the whole is drawn as `neither`. The ends are rounded, not
    the lengths, so rounding errors do not add up."""
    ends: list[int] = []
    end = 0.0
    for share in shares:
        end += share
        ends.append(round(end * width))
    return [*_drawn(tuple(ends), tuple(shapes), width)]


@lru_cache(maxsize=4096)
def _drawn(ends: Sequence[int], shapes: Sequence[Run], width: int) -> Sequence[Run]:
    """The bar whose parts end at these cells. Cached, as few differ."""
    runs: list[Run] = []
    done = 0
    for end, (shape, key) in zip(ends, shapes, strict=True):
        cells = min(width, end) - done
        if cells > 0:
            runs.append((shape * cells, key))
            done += cells
    if done < width:
        runs.append((theme.NEITHER * (width - done), "neither"))
    return runs


def smt(states: Sequence[float], width: int) -> list[Run]:
    """The four states of a core, in the order neither, lp0, lp1, both."""
    _, lp0, lp1, both = states
    return stacked((both, lp0, lp1), _SMT, width)


def single(share: float, width: int, thread: int | None) -> list[Run]:
    """A core on which one thread runs: full cells if it has no other thread, else half cells."""
    shape = (theme.BOTH, "bar-lp0") if thread is None else _SMT[1 + min(thread, 1)]
    return stacked((share,), (shape,), width)


def possible(low: Sequence[float], width: int) -> list[Run]:
    """States known only by bounds: the least of each state, and the undetermined rest as
    `unknown`."""
    neither, lp0, lp1, both = (0.0 if math.isnan(share) else share for share in low)
    open_ = 1 - neither - lp0 - lp1 - both
    return stacked((both, lp0, lp1, open_), (*_SMT, (theme.UNKNOWN, "unknown")), width)


def slots(retiring: float, frontend: float, speculation: float, width: int) -> list[Run]:
    """Issue slots that retired, that had no instruction, and that were discarded; the back end
    has the rest."""
    return stacked((retiring, frontend, speculation), _ACCOUNT, width)


def account(user: float, kernel: float, steal: float, width: int) -> list[Run]:
    """User, kernel and steal shares of a CPU by the system's account."""
    return stacked((user, kernel, steal), _ACCOUNT, width)
