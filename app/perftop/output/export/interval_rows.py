"""One interval of the exported CPUs, as lists of plain values; None where unknown."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from perftop.base.arrays import Floats, Ints
from perftop.output.stat_json import number
from perftop.session.interval import Interval
from perftop.session.session import Session


class IntervalRows:
    """The values of an interval. Lists have one entry for each of `rows`; a core's value is given
    for each of its CPUs."""

    def __init__(self, session: Session, interval: Interval) -> None:
        self.session, self.interval, self.rows = session, interval, session.shown
        self.cores: Ints = session.reader.cores.of_cpu[self.rows]
        """Position of the core of each row; -1: not known."""

    def same(self, value: float) -> list[object]:
        """A value of the whole machine, repeated for each row."""
        return [number(value)] * len(self.rows)

    def of_cpu(self, values: Floats | None) -> list[object]:
        return [None] * len(self.rows) if values is None else _numbers(values[self.rows])

    def of_core(self, values: Floats) -> list[object]:
        return _numbers(np.append(values, np.nan)[self.cores])

    def counts(self, key: str) -> list[object]:
        moved = self.interval.counts.get(key)
        if moved is None:
            return [None] * len(self.rows)
        return [int(count) if math.isfinite(count) else None for count in moved[self.rows].tolist()]

    def methods(self) -> list[object]:
        """The method that gave the SMT states of each row's core."""
        found: Sequence[object] = [*self.interval.split.method, None]
        return [found[core] for core in self.cores.tolist()]


def _numbers(values: Floats) -> list[object]:
    return [number(value) for value in values.tolist()]
