"""Which lines stand around the view, by the height of the screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

TINY, SHORT, LOW, ROOMY, AIRY = 8, 12, 24, 40, 50
"""Heights in lines. Below TINY the keys go, below SHORT most of the head, below LOW the blank line
under it; from ROOMY on numbers may have their past, from AIRY on blocks are apart."""
TALL = 160
"""Columns from which numbers may have their past below them."""
LAVISH, PASTS = 60, 3
"""Height from which the past has so many lines."""
Line = Literal["header", "alert", "numbers", "strip", "past", ""]
"""A line at the top of the screen; '': a blank one."""


def head(height: int, width: int, *, strip: bool, tiles: bool, alerted: bool) -> Sequence[Line]:
    """The lines above the view. `strip`: there are SMT states to show; `tiles`: the numbers can
    have their past below them; `alerted`: the alert line says something."""
    if height < SHORT:  # only one of the two fits
        return "header", "alert" if alerted else "numbers"
    under: Sequence[Line] = ("strip",) if strip else ()
    if tiles and not strip and height >= ROOMY and width >= TALL:
        under = ["past"] * (PASTS if height >= LAVISH else 1)
    if height >= AIRY:
        return "header", "", "alert", "", "numbers", *under, ""
    blank: Sequence[Line] = ("",) if height >= LOW else ()
    return "header", "alert", "numbers", *under, *blank
