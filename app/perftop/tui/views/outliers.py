"""Cores whose values differ from the rest of their package.

Outliers are found by median and median deviation. A single core that is far off changes neither of
these, so it cannot hide itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perftop.base.arrays import Floats
from perftop.model.numbers import Number
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.shared.sheet import MIN_AWAKE_UTIL

MIN_PEERS = 4
"""Minimum number of cores of the same package and type among which outliers are searched."""
SIGMAS = 5.0
"""Minimum distance of an outlier from the median, in standard deviations, which are estimated from
the median deviation."""
CROWD = 8
"""Minimum number of cores for each outlier. If more cores than that are far off, none of them
counts as an outlier."""
_SIGMA = 1.4826
"""Ratio of the standard deviation to the median deviation of normally distributed values."""


@dataclass(frozen=True, slots=True)
class Outlier:
    """A core whose value differs from those of its peers."""

    core: int
    """Position of the core in the session's lists."""
    row: int
    """Position of the core's CPU that is furthest from the median."""
    usual: float
    """Median of the CPUs with which the core is compared."""


class Peers:
    """The CPUs of a session, grouped by package and type, so that each is compared with its
    peers."""

    def __init__(self, session: Session) -> None:
        kinds: dict[tuple[int | None, str | None], list[list[int]]] = {}
        self.core = np.full(len(session.topology), -1)
        for core in session.shown_cores():
            rows = [session.position[cpu] for cpu in session.cores[core]]
            self.core[rows] = core
            first = next((r for r in rows if session.topology[r].core is not None), rows[0])
            cpu = session.topology[first]
            kinds.setdefault((cpu.package, cpu.type), []).append(rows)
        compared = [cores for cores in kinds.values() if len(cores) >= MIN_PEERS]
        self._cores = np.array([len(cores) for cores in compared], int)
        flat = [[row for rows in cores for row in rows] for cores in compared]
        self._rows = np.zeros((len(flat), max(map(len, flat), default=0)), np.intp)
        self._is_present = np.zeros(self._rows.shape, bool)
        for kind, rows in enumerate(flat):
            self._rows[kind, : len(rows)] = rows
            self._is_present[kind, : len(rows)] = True

    def judge(self, field: Number, values: Floats, interval: Interval) -> list[Outlier]:
        """Returns the outliers, the furthest first. `values`: by position of the CPU."""
        is_known = self._is_present
        if field.of_running:
            is_known = is_known & (interval.values["util"][self._rows] >= MIN_AWAKE_UTIL)
        peer_values = np.where(is_known, values[self._rows], np.nan)
        medians = _median(peer_values)
        deviations = np.abs(peer_values - medians[:, None])
        score = (
            deviations
            / np.maximum(_noise(field, medians), SIGMAS * _SIGMA * _median(deviations))[:, None]
        )
        score[np.isnan(score)] = 0.0
        outliers: list[tuple[float, Outlier]] = []
        for kind, scores in enumerate(score):
            best_scores: dict[int, int] = {}
            for index in np.argsort(-scores, kind="stable").tolist():
                if scores[index] <= 1:
                    break
                best_scores.setdefault(int(self.core[self._rows[kind, index]]), index)
            if len(best_scores) <= max(1, self._cores[kind] // CROWD):
                outliers += [
                    (
                        float(scores[index]),
                        Outlier(core, int(self._rows[kind, index]), float(medians[kind])),
                    )
                    for core, index in best_scores.items()
                ]
        return [
            outlier
            for _, outlier in sorted(outliers, key=lambda scored: (-scored[0], scored[1].core))
        ]


def _noise(field: Number, medians: Floats) -> Floats:
    """Returns the minimum distance of an outlier from each median, in the field's unit. Smaller
    distances are normal noise among equal CPUs."""
    if field.unit == "ratio":
        return np.full(len(medians), 0.01 if field.small else 0.2)
    if field.key == "busy_hz":
        return np.maximum(0.05 * medians, 1e6)
    return np.maximum(0.25 * medians, 1e8 if field.unit == "Hz" else 0.1)


def _median(values: Floats) -> Floats:
    """Returns the median of every line, ignoring NaN."""
    sorted_values = np.sort(values, axis=1)  # NaN sorts last
    count = np.isfinite(values).sum(axis=1)
    lines = np.arange(len(values))
    low, high = np.maximum(count - 1, 0) // 2, count // 2
    if not values.size:
        return np.full(len(values), np.nan)
    medians: Floats = (
        sorted_values[lines, low]
        + sorted_values[lines, np.minimum(high, len(sorted_values[0]) - 1)]
    ) / 2
    return medians
