"""Reasons to doubt a counter of a CPU in a sample, as codes in arrays (CPUs, counters).

A metric is absent exactly if one of its counters is doubted.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np

from perftop.base.arrays import Codes


class Doubt(IntEnum):
    """Reason to doubt a counter; 0 in an array of codes means none."""

    JUMPED = 1
    """It moved further than its unit can in that time, or backwards, so somebody wrote it."""
    FAST = 2
    """Reference cycles ran faster than the TSC."""
    UNLIKE = 3
    """It differs from APERF or MPERF, though it agreed with them before."""
    IPC = 4
    """More instructions than any core retires in so many cycles."""
    ABOVE = 5
    """A part was counted more often than its whole."""
    STILL = 6
    """It did not move, although another counter shows that the CPU worked."""
    OUTSIDE = 7
    """It lies outside the bounds that the unhalted times of the siblings set."""
    APART = 8
    """The siblings' counts of the same time differ."""
    BACKWARDS = 9
    """The time stamps of the read went backwards: nothing of that read counts."""
    TAKEN = 10
    """Its register does not hold what was programmed."""
    SLOTS = 11
    """The parts of the issue slots do not add up to them."""


LASTING = np.isin(
    np.arange(256),
    [Doubt.UNLIKE, Doubt.ABOVE, Doubt.STILL, Doubt.OUTSIDE, Doubt.APART, Doubt.SLOTS],
)
"""Mask by code of the doubts that recur while a counter is taken or dead. Such a counter is used
again only after two samples in a row without a doubt."""


def held_on(fresh: Codes, before: Codes) -> Codes:
    """The codes in force for a sample: its own, else the lasting ones of the sample before it."""
    return np.where((fresh == 0) & LASTING[before], before, fresh)


def merged(older: Codes, newer: Codes) -> Codes:
    """The codes of several samples together; the newest reason wins."""
    return np.where(newer != 0, newer, older)


def listed(codes: Codes, keys: Any) -> dict[int, set[tuple[str, Doubt]]]:
    """The doubted counters with their doubts, by position of the CPU."""
    found: dict[int, set[tuple[str, Doubt]]] = {}
    for row, at in zip(*np.nonzero(codes), strict=True):
        found.setdefault(int(row), set()).add((keys[at], Doubt(codes[row, at])))
    return found
