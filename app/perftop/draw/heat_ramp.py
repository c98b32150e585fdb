"""The heat ramp: levels as colours, or as characters of growing density."""

from __future__ import annotations

from functools import lru_cache

from perftop.draw import theme
from perftop.draw.strips import Run

UNKNOWN, OFF = -1, -2
"""Values used in place of a level."""
DENSITY = "_:;=+co*#&%@"
"""The ramp in ASCII, from sparse to dense; no character has another meaning on the screen."""
FAINT = 3
"""Steps below this are too close to the background in colour for letters."""
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
    """Two values in one line: one above the other, or in ASCII side by side."""
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
