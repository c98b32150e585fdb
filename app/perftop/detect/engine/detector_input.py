"""What detectors are shown: one sample, and where its cores are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from perfprobe.frozen import frozen
from perftop.base.arrays import Floats
from perftop.model.cores import Cores
from perftop.model.metrics import INDEX
from perftop.model.sample_reader import Sample, Verdicts


@frozen
class Seen:
    """One sample; `cores` is another object when they were regrouped."""

    sample: Sample
    since_ns: int
    time_ns: int
    cores: Cores
    records: Mapping[str, object]
    """What came with the frame besides counters. It comes from outside: readers must check it."""

    @property
    def ceiling_hz(self) -> Floats:
        """What turbo allows each core for certain; NaN: unknown."""
        return self.sample.ceilings.hz

    def util(self) -> Floats:
        """Utilisation of each core's busiest thread; NaN: not read."""
        return self.sample.part(_util)

    def ran(self) -> tuple[Floats, Floats]:
        """Cycles of each core's threads together and the seconds they took; 0: not known."""
        cycles, run_s = self.sample.part(ran)
        return cycles, run_s


def _util(among: Verdicts) -> Floats:
    return among.cores.most(among.values["util"])


def ran(among: Verdicts) -> Floats:
    """(samples, 2, cores): what `Seen.ran` tells of each."""
    values, at = among.values, INDEX["busy_hz"]
    both = np.array([values.top[:, at], values.bottom[:, at]])
    known = np.logical_and.reduce(np.isfinite(both))
    if np.count_nonzero(known) < known.size:
        both[:, ~known] = 0.0
    return among.cores.total(both).swapaxes(0, 1)
