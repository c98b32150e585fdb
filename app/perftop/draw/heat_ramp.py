"""The ramp of heat: levels as colours, or as characters of growing density."""

from __future__ import annotations

from functools import lru_cache

from perftop.draw import theme
from perftop.draw.strips import Run

UNKNOWN, OFF = -1, -2
"""Instead of a level."""
DENSITY = "_:;=+co*#&%@"
"""The ramp in ASCII: the denser the higher; none of them means something else."""
FAINT = 3
"""Steps of the ramp below this are too near to the ground for letters."""
_SIGN: dict[int, Run] = {UNKNOWN: ("–", "faint"), OFF: (theme.NEITHER, "neither")}


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
