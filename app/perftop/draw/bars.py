"""Bars as runs of text. All functions are pure; every bar has exactly the requested width."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from perftop.draw import theme
from perftop.draw.columns import Run

_SMT = ((theme.BOTH, "bar-both"), (theme.LP0, "bar-lp0"), (theme.LP1, "bar-lp1"))
"""Shapes and styles of SMT states in a bar. The colours are a step darker than those in legends,
so that red stands out most."""
_ACCOUNT = ((theme.USER, "user-9"), (theme.KERNEL, "kernel-9"), (theme.STEAL, "over"))


def stacked(shares: Sequence[float], shapes: Sequence[Run], width: int) -> list[Run]:
    """Returns a bar of these shares side by side; the remainder up to 1 is drawn as `neither`. The
    ends of the parts are rounded, not their lengths, so rounding errors do not add up."""
    ends: list[int] = []
    end = 0.0
    for share in shares:
        end += share
        ends.append(round(end * width))
    return [*_cached_bar(tuple(ends), tuple(shapes), width)]


@lru_cache(maxsize=4096)
def _cached_bar(ends: Sequence[int], shapes: Sequence[Run], width: int) -> Sequence[Run]:
    """Returns the bar whose parts end at these cells. Cached, as there are few different bars."""
    runs: list[Run] = []
    drawn_cells = 0
    for end, (shape, key) in zip(ends, shapes, strict=True):
        cells = min(width, end) - drawn_cells
        if cells > 0:
            runs.append((shape * cells, key))
            drawn_cells += cells
    if drawn_cells < width:
        runs.append((theme.NEITHER * (width - drawn_cells), "neither"))
    return runs


def smt(states: Sequence[float], width: int) -> list[Run]:
    """Returns the bar of a core's four states, given in the order neither, lp0, lp1, both."""
    _, lp0, lp1, both = states
    return stacked((both, lp0, lp1), _SMT, width)


def single_thread(share: float, width: int, thread: int | None) -> list[Run]:
    """Returns the bar of a core on which only one thread is online: full cells if the core has no
    other thread (`thread` is None), else half cells."""
    shape = (theme.BOTH, "bar-lp0") if thread is None else _SMT[1 + min(thread, 1)]
    return stacked((share,), (shape,), width)


def bounded_smt(lower_bounds: Sequence[float], width: int) -> list[Run]:
    """Returns the bar of states known only within bounds: the lower bound of each state, and the
    undetermined remainder as `unknown`."""
    neither, lp0, lp1, both = (0.0 if math.isnan(share) else share for share in lower_bounds)
    undetermined = 1 - neither - lp0 - lp1 - both
    return stacked((both, lp0, lp1, undetermined), (*_SMT, (theme.UNKNOWN, "unknown")), width)


def slots(retiring: float, frontend: float, speculation: float, width: int) -> list[Run]:
    """Returns the bar of issue slots: slots whose instruction retired, slots that the front end
    left empty, and slots discarded after wrong speculation. The remainder are slots that the back
    end blocked."""
    return stacked((retiring, frontend, speculation), _ACCOUNT, width)


def account(user: float, kernel: float, steal: float, width: int) -> list[Run]:
    """Returns the bar of a CPU's user, kernel and steal shares, as accounted by the system."""
    return stacked((user, kernel, steal), _ACCOUNT, width)
