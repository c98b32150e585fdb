"""Colours of terminals that know 256. The first 16 of these are the user's, so only the cube of 6 x
6 x 6 and the 24 greys are used.

The nearest colour is chosen by how different the two look. Backgrounds that differ little, as those
of a usual and of the selected line, would become one, so each has its own by name.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

from rich.color import Color
from rich.style import Style

LEVELS = (0, 95, 135, 175, 215, 255)
"""The levels that each part of a colour has in the cube."""
_GREYS = range(232, 256)
Triple = tuple[int, int, int]
"""Red, green and blue, 0 to 255."""
_GROUNDS = {
    "#0d1117": 16, "#1a212b": 235, "#27171c": 52, "#3a1f24": 236,
    "#ffffff": 231, "#e8eef5": 254, "#fdecea": 224, "#f8d5d2": 223,
}  # fmt: skip


def reduced(style: Style) -> Style:
    """The same style in the fixed colours of 256."""
    parts = (style.color, style.bgcolor)
    fore, back = (None if c is None else Color.from_ansi(nearest(c.name)) for c in parts)
    return style + Style(color=fore, bgcolor=back)


@lru_cache(maxsize=512)
def nearest(color: str) -> int:
    """The number of the colour that looks most like `#rrggbb`."""
    if color in _GROUNDS:
        return _GROUNDS[color]
    wanted = int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)
    around = (sorted(range(6), key=lambda i: abs(LEVELS[i] - part))[:2] for part in wanted)
    cube = [16 + 36 * r + 6 * g + b for r, g, b in itertools.product(*around)]
    look = _oklab(wanted)
    found: int = min((*cube, *_GREYS), key=lambda number: math.dist(look, _oklab(parts(number))))
    return found


def parts(number: int) -> Triple:
    """Red, green and blue of a fixed colour."""
    if number in _GREYS:
        grey = 8 + 10 * (number - 232)
        return grey, grey, grey
    r, rest = divmod(number - 16, 36)
    return LEVELS[r], LEVELS[rest // 6], LEVELS[rest % 6]


@lru_cache(maxsize=1024)
def _oklab(color: Triple) -> tuple[float, float, float]:
    """Lightness, green to red, and blue to yellow: Ottosson, "A perceptual color space for image
    processing", 2020."""
    r, g, b = (part / 255 / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4
               for part in color)  # fmt: skip
    long = math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b)
    middle = math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b)
    short = math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b)
    return (
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    )
