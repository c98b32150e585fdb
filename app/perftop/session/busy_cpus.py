"""How long all CPUs worked together, and how long only one did: that finds a program that leaves
the others idle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perftop.base.arrays import Floats
from perftop.model.tasks import Look

HALF = 0.5
"""Sums of busy shares are rounded to whole CPUs: 15.5 of 16 are all."""
MOST_NAMES = 256


class BusyCpus:
    """Sums over samples, in seconds."""

    def __init__(self) -> None:
        self.all_s = self.one_s = self.none_s = self.between_s = 0.0
        self._alone: dict[str, float] = {}
        """By name of a task, seconds of `one_s` in which it ran most."""

    def take(self, util: Floats, span_s: float, look: Look) -> None:
        """A sample. `util`: busy shares of the CPUs that are looked at; NaN for those that are off
        or not known. `look`: the latest."""
        known = util[np.isfinite(util)]
        if not len(known):
            return
        busy = float(known.sum())
        if busy < HALF:
            self.none_s += span_s
        elif busy >= len(known) - HALF:
            self.all_s += span_s
        elif busy < 1 + HALF:
            self.one_s += span_s
            name = _most(look)
            if name and (name in self._alone or len(self._alone) < MOST_NAMES):
                self._alone[name] = self._alone.get(name, 0.0) + span_s
        else:
            self.between_s += span_s

    @property
    def alone(self) -> str:
        """Who ran for most of the time in which one CPU worked; '' if nobody for half of it."""
        name = max(self._alone, key=lambda one: self._alone[one], default="")
        return name if name and self._alone[name] >= HALF * self.one_s else ""


def _most(look: Look) -> str:
    """Name of the task that ran most on any CPU."""
    first = [look.on(cpu)[:1] for cpu in look.tasks]
    ran: Sequence[tuple[float, str]] = [(r.task.share, r.task.comm) for each in first for r in each]
    return max(ran, default=(0.0, ""))[1]
