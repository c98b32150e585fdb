"""Turns the arrays of an interval into what the heat map draws, for all CPUs together."""

from __future__ import annotations

from math import isfinite, nan

import numpy as np

from perfprobe.frozen import frozen
from perftop.base.format import MISSING, ClockUnit
from perftop.draw.heat_ramp import OFF
from perftop.model.numbers import Number
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.values import doubted, shown
from perftop.tui.heat.outliers import Outlier, Peers
from perftop.tui.shared.choice import Choice
from perftop.tui.shared.fields import Scale, chosen_field, clock_of, scale, unit_in
from perftop.tui.shared.trouble import Troubles, number


@frozen
class Heat:
    """One field at one moment; lists are by position of the CPU."""

    field: Number
    others: list[str]
    """Names of the fields that the metric key shows next, in order."""
    unit: ClockUnit
    clock: ClockUnit
    """Unit of clocks, whatever the field is."""
    scale: Scale
    values: list[float]
    doubted: list[bool]
    """Whether a counter of the value is doubted."""
    levels: list[int]
    outliers: list[Outlier]
    """Furthest first; if none is far off, only the furthest core."""
    troubles: Troubles
    """What runs at this moment."""
    limited: frozenset[int | None]
    """Packages that have lost clock as a whole; their headings show it."""

    def text(self, value: float) -> str:
        return _written(value, self.unit, self.unit.digits)

    def hz(self, value: float) -> str:
        return _written(value, self.clock, self.clock.digits)

    def numbers(self) -> list[str]:
        """Values as text of at most four characters."""
        digits = self.unit.digits
        if self.field.unit == "ratio":
            digits = 1 if self.field.small else 0
        return [_written(value, self.unit, digits)[:4].rstrip(".") for value in self.values]


def _written(value: float, unit: ClockUnit, digits: int) -> str:
    """The value as text; "n/a" also if the unit is a multiple of an unknown base clock."""
    told = value * unit.per_hz
    return f"{told:.{digits}f}" if isfinite(told) else MISSING


class HeatReader:
    """Reads intervals that have the session's present topology."""

    def __init__(self, session: Session) -> None:
        self._peers = Peers(session)
        self._packages = list(dict.fromkeys(cpu.package for cpu in session.topology))
        self._troubles = Troubles(session)

    def read(self, session: Session, interval: Interval, choice: Choice, before: Heat | None
             ) -> Heat:  # fmt: skip
        self._troubles.read(interval)
        clock = clock_of(session, choice.units)
        field, others = chosen_field(session, choice.metric)
        values = np.where(interval.online, shown(field, session, interval), nan)
        held = before.scale if before is not None and before.field == field else None
        fitted = scale(field, values[session.shown], held)
        levels = np.where(interval.online, fitted.levels(values), OFF)
        return Heat(
            field=field,
            others=others,
            unit=unit_in(field, clock, fitted.high),
            clock=clock,
            scale=fitted,
            values=values.tolist(),
            doubted=doubted(field.key, session, interval).tolist(),
            levels=levels.tolist(),
            outliers=self._peers.judge(field, values, interval),
            troubles=self._troubles,
            limited=self._limited(),
        )

    def _limited(self) -> frozenset[int | None]:
        every = ((package, self._troubles.on(package)[1]) for package in self._packages)
        return frozenset(p for p, wide in every if any(number(e) == "busy_hz" for e in wide))
