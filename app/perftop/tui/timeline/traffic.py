"""What packages move from and to memory over time: a line each above the CPUs of the time view.
Imports numpy, as the session does."""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Floats
from perftop.draw import charts
from perftop.draw.strips import Run, fit, number
from perftop.samples.memory import KEYS
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.shared.fields import Scale
from perftop.tui.shared.time_axis import Axis
from perftop.tui.timeline.lanes import strip

TALL = 24
"""Minimum lines of a view that has room for these."""
MOST = 4
"""Lines; more packages share one."""


def count(session: Session, height: int) -> int:
    """Number of lines: it depends on the machine and the room alone, so that nothing moves."""
    counted = session.counters.columns.keys() >= {*KEYS}
    packages = len(session.hello.packages)
    return 0 if not counted or height < TALL else packages if packages <= MOST else 1


def lines(
    session: Session, interval: Interval, axis: Axis, left: int, right: int, *, ascii_: bool
) -> list[list[Run]]:
    """The lines, as wide as the labels, the axis and the numbers together."""
    past, now = _past(session, axis), _now(interval)
    names = [session.topology[session.position[c[0]]].package for c in session.hello.packages]
    if len(session.hello.packages) > MOST:
        past, now, names = past.sum(axis=1, keepdims=True), now[:1] * 0 + now.sum(), [None]
    top = charts.top(past, charts.ANY, None)
    found = []
    for each, rate, package in zip(past.T, now.tolist(), names, strict=True):
        several = len(names) > 1 and package is not None
        name = f" mem {package} GB/s" if several else " mem GB/s"
        drawn = strip(Scale(0.0, top).levels(each), ascii_=ascii_)
        told = [number(rate / 1e9, 1, right - 3), ("   ", "text")] if right else []
        found.append([(fit(name, left), "dim"), *drawn, *told])
    return found


def _past(session: Session, axis: Axis) -> Floats:
    """(bins, packages): bytes per second."""
    history = session.history
    if history is None:
        return np.full((axis.bins, len(session.hello.packages)), np.nan)
    read, write = (history.shared(key, axis.edges) for key in KEYS)
    return np.asarray(read + write)


def _now(interval: Interval) -> Floats:
    read, write = (interval.packages[f"{key}_per_s"] for key in KEYS)
    return np.asarray(read + write)
