"""What packages move from and to memory over time: a line each in the time view."""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Floats
from perftop.draw import charts
from perftop.draw.strips import Run, fit, number
from perftop.model.memory import TRAFFIC_KEYS
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
    counted = session.counters.columns.keys() >= {*TRAFFIC_KEYS}
    packages = len(session.hello.packages)
    return 0 if not counted or height < TALL else packages if packages <= MOST else 1


def under_packages(session: Session, height: int) -> bool:
    """Whether each package has its line, which then stands under its heading if it has one."""
    return count(session, height) == len(session.hello.packages)


def lines(
    session: Session, interval: Interval, axis: Axis, left: int, right: int, *,
    named: bool, ascii_: bool,
) -> list[tuple[int | None, list[Run]]]:  # fmt: skip
    """Packages with their lines, as wide as the labels, the axis and the numbers together; None for
    the only line of many packages. `named`: no heading says which package it is."""
    past, now = _past(session, axis), _now(interval)
    names = [session.topology[session.position[c[0]]].package for c in session.hello.packages]
    if len(names) > MOST:
        past, now, names = past.sum(axis=1, keepdims=True), now.sum(keepdims=True), [None]
    top = charts.top(past, charts.ANY, None)
    found = []
    for each, rate, package in zip(past.T, now.tolist(), names, strict=True):
        number_ = f" {package}" if named and len(names) > 1 and package is not None else ""
        name = f" mem{number_} GB/s" if named else "   mem GB/s"
        drawn = strip(Scale(0.0, top).levels(each), ascii_=ascii_)
        told = [number(rate / 1e9, 1, right - 3), ("   ", "text")] if right else []
        found.append((package, [(fit(name, left), "dim"), *drawn, *told]))
    return found


def _past(session: Session, axis: Axis) -> Floats:
    """(bins, packages): bytes per second."""
    read, write = (session.past.shared(key, axis.edges) for key in TRAFFIC_KEYS)
    return np.asarray(read + write)


def _now(interval: Interval) -> Floats:
    read, write = (interval.packages[f"{key}_per_s"] for key in TRAFFIC_KEYS)
    return np.asarray(read + write)
