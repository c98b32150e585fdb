"""Which CPUs have so much work that they lose something if others get in their way."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perftop.base.arrays import Bools, Floats
from perftop.model.evaluation import Values
from perftop.model.metrics import INDEX
from perftop.model.sample_reader import Verdicts

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


class Worked(NamedTuple):
    """What CPUs did, by position, or, with a leading axis, in each of several samples."""

    util: Floats
    """0 where the work does not matter."""
    counted: Bools
    """IPC is known."""
    cycles: Floats
    """0 where it is not."""
    ipc: Floats
    told: Floats
    """(3, ...): what samples add to the first sums of what is learned of a program: instructions,
    cycles, cycles times the square of their ratio."""


def worked(values: Values, busy: Bools) -> Worked:
    """`busy`: CPUs whose work matters."""
    at = INDEX["ipc"]
    top, bottom = values.top[..., at, :], values.bottom[..., at, :]
    util = np.where(busy, values["util"], 0.0)
    counted = np.isfinite(top) & (bottom > 0) & (util > 0)
    cycles = np.where(counted, bottom, 0.0)
    ipc = np.divide(top, cycles, out=np.full(util.shape, np.nan), where=counted)
    return Worked(util, counted, cycles, ipc, np.array([ipc * cycles, cycles, ipc**2 * cycles]))


def busy_work(among: Verdicts) -> Worked:
    return worked(among.values, among.once(busy_cpus))
