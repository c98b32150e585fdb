"""Numbers that a CPU shares with others: those of its package and of its L3."""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Floats
from perftop.model.machine_totals import OF_L3, OF_PACKAGE
from perftop.session.interval import Interval
from perftop.session.session import Session

PACKAGE = {f"package_{name}": name for name in OF_PACKAGE}
"""Keys of the numbers of packages, and their names in a line of JSON."""
L3 = {f"l3_{name}": name for name in OF_L3}
"""The same of L3s."""


def of_cpus(session: Session, interval: Interval, key: str) -> Floats:
    """By position of the CPU, the number of its package or L3; NaN where it is unknown."""
    found = np.full(len(session.topology), np.nan)
    if key in PACKAGE:
        values = interval.packages.get(PACKAGE[key], np.zeros(0))
        for cpus, value in zip(session.hello.packages, values, strict=False):
            found[[session.position[cpu] for cpu in cpus]] = value
        return found
    values = interval.caches.get(L3[key], np.zeros(0))
    known = {session.topology[at].l3: at for at in np.flatnonzero(np.isfinite(values)).tolist()}
    for row, place in enumerate(session.topology):
        if place.l3 in known:
            found[row] = values[known[place.l3]]
    return found
