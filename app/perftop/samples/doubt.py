"""Why a counter of a CPU cannot be believed in a sample, as codes in arrays (CPUs, counters).

A number is absent when a counter that it is made of is doubted, and only then.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.uint8]


class Doubt(IntEnum):
    """0 in an array of codes: nothing speaks against it."""

    JUMPED = 1
    """It moved further than its unit can in that time, or backwards: written by somebody."""
    FAST = 2
    """Reference cycles ran faster than the TSC."""
    UNLIKE = 3
    """It differs from APERF or MPERF, with which it had agreed before."""
    IPC = 4
    """More instructions than any core retires in so many cycles."""
    ABOVE = 5
    """A part was counted more often than its whole."""
    STILL = 6
    """It did not move although another counter says that the CPU worked."""
    OUTSIDE = 7
    """Its siblings ran more, or less, than it says."""
    APART = 8
    """The siblings' counts of the same time differ."""
    BACKWARDS = 9
    """The time stamps of the read went backwards: nothing of that read counts."""
    TAKEN = 10
    """Its register does not hold what was programmed."""


LASTING = np.isin(
    np.arange(256), [Doubt.UNLIKE, Doubt.ABOVE, Doubt.STILL, Doubt.OUTSIDE, Doubt.APART]
)
"""By code: kinds that a counter shows again and again while it is taken or dead. It is believed
anew only when two samples in a row say nothing against it."""


def held_on(fresh: Codes, before: Codes) -> Codes:
    """The codes that count in a sample: its own, and where there are none the lasting ones of the
    sample before it."""
    result: Codes = np.where((fresh == 0) & LASTING[before], before, fresh)
    return result


def merged(older: Codes, newer: Codes) -> Codes:
    """Of several samples together: the newest reason."""
    result: Codes = np.where(newer != 0, newer, older)
    return result


def listed(codes: Codes, keys: Any) -> dict[int, set[tuple[str, Doubt]]]:
    """By position of the CPU: counters and what speaks against them."""
    found: dict[int, set[tuple[str, Doubt]]] = {}
    for row, at in zip(*np.nonzero(codes), strict=True):
        found.setdefault(int(row), set()).add((keys[at], Doubt(codes[row, at])))
    return found
