"""Which CPUs have so much work that they lose something if others get in their way."""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Bools, Floats
from perftop.samples.sample_reader import Verdicts

BUSY = 0.5
"""Minimum share of the time that a CPU works, steal included. A CPU that is idle for half of the
time has time to lose."""
JOB_BUSY = 0.1
"""The same for CPUs of a watched job, which the user has said to matter."""


def wanted(among: Verdicts) -> Floats:
    """(samples, CPUs): share of the time in which a CPU worked or was robbed."""
    stolen = among.values["steal"]
    return np.asarray(among.values["util"] + np.where(np.isnan(stolen), 0.0, stolen))


def busy_cpus(among: Verdicts) -> Bools:
    return np.asarray(among.once(wanted) >= BUSY)
