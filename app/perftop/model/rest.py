"""Which CPUs are at rest: they run so seldom that a number per running time, such as clock or IPC,
tells of a few wake-ups only, and would come and go.
"""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Bools, Floats

RESTS, WAKES = 0.01, 0.02
"""Busy share below which a CPU comes to rest, and from which on it is awake again. In between it
stays what it was, so that its numbers neither come nor go."""


def resting(util: Floats, before: Bools | None = None) -> Bools:
    """Mask of the CPUs at rest. `before`: the mask of the interval before; without it CPUs between
    both shares are awake. A CPU whose share is unknown is not at rest."""
    found: Bools = util < RESTS
    if before is not None and len(before) == len(util):
        found |= before & (util < WAKES)
    return np.asarray(found)
