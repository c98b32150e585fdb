"""The numbers of a machine among many: which there are, and how they are read off an interval.

A machine's row has one value of each for a span of some seconds. NaN is what is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, nan

import numpy as np

from perfprobe.frozen import frozen
from perftop.detect.turbo_drops import START
from perftop.model.smt import STATES
from perftop.session.interval import Interval
from perftop.session.session import Session

Numbers = Mapping[str, float]


@frozen
class Field:
    key: str
    label: str
    unit: str
    """ratio, Hz or W."""
    help: str
    digits: int = 1
    stands_out: float = 1e12
    """Value from which on it is highlighted."""
    of_work: bool = False
    """It describes the time at work, so means over time and machines are weighted with `busy`."""


FIELDS: dict[str, Field] = {
    field.key: field
    for field in (
        Field("lost", "lost", "ratio", "share of the time that working CPUs did not get",
              of_work=True),
        Field("busy", "busy", "ratio", "share of the time in which CPUs were not halted"),
        Field("clock_hz", "clock", "Hz", "clock of the CPUs at work", 2, of_work=True),
        Field("ceiling_hz", "ceiling", "Hz", "what turbo allows the cores at work", 2,
              of_work=True),
        Field("below", "below", "ratio", "share of the working time with a clock below its ceiling",
              of_work=True),
        Field("both", "both", "ratio", "share of the time in which both threads of a core ran"),
        Field("lp0", "lp0", "ratio", "share of the time in which only the first thread ran"),
        Field("lp1", "lp1", "ratio", "share of the time in which only the second thread ran"),
        Field("neither", "neither", "ratio", "share of the time in which no thread ran"),
        Field("involuntary", "inv", "ratio", "halted although there was work", 2, 0.005),
        Field("steal", "steal", "ratio", "share of the time that the hypervisor took", 1, 0.01),
        Field("power_w", "W", "W", "power of all packages", 0),
        Field("power_limit_w", "of", "W", "limit of that power", 0),
    )
}  # fmt: skip
NOTHING: Numbers = dict.fromkeys(FIELDS, nan)


def read(session: Session, interval: Interval) -> Numbers:
    """The numbers of one interval of a machine."""
    rows = session.shown
    found = dict(NOTHING)
    values = interval.values
    for key, metric in (("busy", "util"), ("clock_hz", "busy_hz"), ("lost", "lost_ratio"),
                        ("involuntary",) * 2, ("steal",) * 2):  # fmt: skip
        found[key] = values.over(metric, rows)
    cores = session.shown_cores()
    work = np.array([_work(session, interval, core) for core in cores])
    if len(work):
        weight, clock, ceiling = work.T
        known = (weight > 0) & np.isfinite(clock) & np.isfinite(ceiling)
        if total := weight[known].sum():
            weight, clock, ceiling = weight[known], clock[known], ceiling[known]
            found["ceiling_hz"] = float((weight * ceiling).sum() / total)
            found["below"] = float(weight[clock < ceiling * (1 - START)].sum() / total)
    pairs = [core for core in cores if len(session.cores[core]) > 1]
    states = interval.split.states[pairs]
    states = states[np.isfinite(states).all(axis=1)]
    if len(states):
        found |= dict(zip(STATES, states.mean(axis=0).tolist(), strict=True))
    found["power_w"] = interval.machine.get("power_w", nan)
    found["power_limit_w"] = interval.machine.get("power_limit_w", nan)
    return found


def _work(session: Session, interval: Interval, core: int) -> tuple[float, float, float]:
    """Busy share of a core's CPUs together, the clock of its busiest one, and its ceiling."""
    at = [session.position[cpu] for cpu in session.cores[core]]
    util = np.nan_to_num(interval.values["util"][at])
    clock = interval.values["busy_hz"][at][int(util.argmax())]
    return float(util.sum()), float(clock), float(interval.ceiling_hz[core])


def lost(found: Numbers) -> float:
    """What a machine loses, from its means alone, where no samples are at hand: steal, involuntary
    halts and a clock below its ceiling exclude each other. NaN if none of them is known."""
    busy, clock, ceiling = found["busy"], found["clock_hz"], found["ceiling_hz"]
    halted = [found[key] for key in ("involuntary", "steal") if isfinite(found[key])]
    slow = max(0.0, 1 - clock / ceiling) if isfinite(clock / ceiling if ceiling else nan) else nan
    if not halted and not isfinite(slow):
        return nan
    wanted = busy + sum(halted)
    if not wanted > 0:
        return 0.0
    return (sum(halted) + busy * (slow if isfinite(slow) else 0.0)) / wanted


def mean(several: Sequence[Numbers]) -> Numbers:
    """Means over spans of one length, or over machines, of the values that are known."""
    found = dict(NOTHING)
    for field in FIELDS.values():
        total = weights = 0.0
        for numbers in several:
            value = numbers[field.key]
            weight = numbers["busy"] if field.of_work else 1.0
            if isfinite(value) and isfinite(weight):
                total += weight * value
                weights += weight
        found[field.key] = total / weights if weights > 0 else nan
    return found
