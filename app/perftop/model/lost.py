"""The time that working CPUs did not get: `lost_ratio` of the registry, and its parts.

A CPU wants time while the operating system has work for it: wanted = elapsed - idle - polling idle.
A sample counts for a CPU that wants at least WORKS of it. Each moment of the wanted time goes to
one part, in this order:

1. steal: the hypervisor ran somebody else.
2. involuntary: of what is left, the core was halted.
3. clock: it ran, in run = wanted - steal - involuntary, slower than its ceiling allows. The seconds
   that are missing are run * (1 - clock / ceiling).

    lost_ratio = (steal + involuntary + clock) / wanted

All parts are seconds, so they are added up over CPUs and over samples before the division. As clock
is at most run, the sum of the parts is at most wanted. A part that the stream cannot tell is left
out of the sum: `lost_ratio` is what is known to be lost. A part that it tells, but not for this
sample, makes the whole sample unknown for this CPU.

What a task loses while its CPU works for others (waiting, a sibling) is no loss of the CPU; that is
added in `session.losses`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perftop.base.arrays import Bools, Floats
from perftop.model.evaluation import Evaluator, Values, ratio
from perftop.model.metrics import INDEX, METRICS

KEY = "lost_ratio"
PARTS = "steal", "involuntary", "clock"
WORKS = 0.5
"""Minimum share of a sample that a CPU wants. One that wants less has time to spare, and its clock
follows what it needs."""
_SOURCE = {"steal": "steal", "involuntary": "involuntary", "clock": "busy_hz"}
"""The metric that each part rests on."""


class Lost(NamedTuple):
    """Seconds by position of the CPU, or, with a leading axis, of each of several samples. 0 for
    CPUs that do not work, NaN where a counter failed."""

    wanted_s: Floats
    parts_s: Floats
    """(PARTS, CPUs). Involuntary halts are a difference of two clocks: a single sample may be a
    little below 0."""


class Reckoner:
    """What can be told of each CPU of a stream."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._served: dict[str, Bools] = {
            part: evaluator.mask(key) for part, key in _SOURCE.items()
        }
        self._some = {part: bool(mask.any()) for part, mask in self._served.items()}
        """Whether any CPU can tell each part."""

    def reckon(self, values: Values, ceiling_hz: Floats) -> Lost:
        """`ceiling_hz`: by position of the CPU, the minimum that turbo allows it; NaN: not
        known."""
        span_s = values.bottom[..., INDEX["util"], :]
        poll = values["poll"]
        spare = values["idle"] + np.where(np.isnan(poll), 0.0, poll)
        wanted = np.minimum(np.maximum(1 - spare, 0.0), 1.0)
        works = wanted >= WORKS
        parts = np.zeros((*wanted.shape[:-1], len(PARTS), wanted.shape[-1]))
        steal, halted, clock = (parts[..., at, :] for at in range(len(PARTS)))
        served = self._served  # a CPU that can never tell a part keeps its 0
        np.minimum(values["steal"], wanted, out=steal, where=served["steal"])
        left = wanted - steal
        if self._some["involuntary"]:
            most = np.maximum(_unclipped(values, "involuntary"), -wanted)
            most = np.minimum(most, wanted)
            np.minimum(most, left, out=halted, where=served["involuntary"])
        if self._some["clock"]:
            below = np.maximum(1 - values["busy_hz"] / ceiling_hz, 0.0)
            told = served["clock"] & ~np.isnan(ceiling_hz)
            np.minimum(below, 1.0, out=clock, where=told)
        clock *= left - np.maximum(halted, 0.0)
        parts *= span_s[..., None, :]
        np.copyto(parts, 0.0, where=~works[..., None, :])
        return Lost(np.where(works, wanted * span_s, 0.0), parts)

    def told(self, ceiling_hz: Floats) -> dict[str, Bools]:
        """Masks of the CPUs that can tell each part."""
        return self._served | {"clock": self._served["clock"] & np.isfinite(ceiling_hz)}


def fill(values: Values, lost: Lost) -> None:
    """Writes the metric into values that lack it, 0 of 0 s where it is not known."""
    at = INDEX[KEY]
    top, bottom = lost.parts_s.sum(axis=-2), lost.wanted_s
    unknown = ~(np.isfinite(top) & np.isfinite(bottom))
    if np.count_nonzero(unknown):
        top, bottom = np.where(unknown, 0.0, top), np.where(unknown, 0.0, bottom)
    values.top[..., at, :], values.bottom[..., at, :] = top, bottom
    values.all[..., at, :] = ratio(top, bottom, METRICS[KEY].low, METRICS[KEY].high)


def _unclipped(values: Values, key: str) -> Floats:
    """A metric without the limits of its range: clipping each sample would make a loss of noise."""
    top, bottom = values.top[..., INDEX[key], :], values.bottom[..., INDEX[key], :]
    unknown = np.full(top.shape, np.nan)
    return np.asarray(np.divide(top, bottom, out=unknown, where=bottom > 0))
