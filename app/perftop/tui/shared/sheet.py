"""A sheet: one interval as plain numbers by row, from which rows are drawn. All rows are read
together, once a refresh.

The registry of metrics says how a core's CPUs are joined: clock, IPC and kernel share are weighted
means (by what each CPU did), involuntary halts are the worse sibling's, others are plain means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isnan

import numpy as np

from perftop.base.arrays import Bools, Floats
from perftop.samples.metrics import METRICS
from perftop.session.columns import doubted
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.shared.places import Places

AWAKE = 0.1
"""Minimum busy share for a core's clock to mean something; below it, sleep sets the clock."""
NUMBERS = ("net_hz", "idle", "involuntary", "steal", "ipc", "kernel_cycles", "user", "system",
           "iowait")  # fmt: skip
MARKED = ("busy_hz", *NUMBERS)
DROP = 0.05
"""Share below the ceiling, or below the other cores' clock, from which a clock counts as low;
averaging over idle times alone causes smaller differences."""


Kind = tuple[int | None, str | None]
"""Package and type of a core; cores of one kind can be compared."""


@dataclass(slots=True)
class Sheet:
    """Lists with an entry per row; NaN where unknown."""

    util: list[list[float]]
    """Utilisation of each CPU, by row and then by CPU."""
    online: list[list[bool]]
    suspect: list[list[bool]]
    """Whether a counter of its utilisation is doubted, by row and then by CPU."""
    doubted: dict[str, list[bool]]
    """Whether a counter of the row's number is doubted, by key: the clock, and those in `numbers`.
    """
    states: list[list[float]]
    low: list[list[float]]
    method: list[str | None]
    busy: list[float]
    ceiling: list[float]
    numbers: dict[str, list[float]]
    """The other metrics in rows, by key."""
    dropped: list[bool]
    """Whether the row's clock is clearly below its ceiling while at work."""
    alone: list[bool]
    """Whether the row's clock is clearly below the usual one of its kind."""
    limited: dict[int | None, bool]
    """By package, whether half or more of its awake cores are below their ceiling; shown once, not
    in every row."""
    top_hz: float
    """The highest clock or ceiling of all rows, for scales; at least 1 GHz."""
    awake: list[bool]
    """Whether the row is busy enough for its clock to mean something."""
    tasks: dict[str, list[object]] = field(default_factory=dict)
    """Tasks as the probe sends them: by CPU, a list that begins with pid and name."""

    def score(self, row: int) -> float:
        """Sort key, worst first: rows with something wrong come before rows that are only busy.
        Its steps are coarse, so that small changes move no row."""
        wrong = 0.0
        if self.alone[row] or self.dropped[row]:
            wrong += 1 - self.busy[row] / max(self.top_hz, 1.0)
        for key in ("involuntary", "steal"):
            share = self.numbers[key][row]
            wrong += share if share >= METRICS[key].stands_out else 0.0
        busy = sum(share for share in self.util[row] if not isnan(share))
        return -(100 * round(wrong, 1 if wrong > 1 else 2) + round(busy, 1))


class Reader:
    """Makes sheets for one topology."""

    def __init__(self, session: Session, places: Places) -> None:
        self._session, self._places = session, places.places
        n, threads = len(self._places), places.threads
        self._rows = np.zeros((n, threads), np.intp)
        self._there = np.zeros((n, threads), bool)
        for i, place in enumerate(self._places):
            self._rows[i, : len(place.rows)] = place.rows
            self._there[i, : len(place.rows)] = True
        self._at = np.array([place.at for place in self._places], np.intp)
        self._ceiled = self._has_ceiling(session)
        kinds = [(place.package, place.type) for place in self._places]
        self._kinds = {kind: np.array([k == kind for k in kinds]) for kind in kinds}
        every = n == len(session.shown_cores())
        self._every = self if every else Reader(session, Places(session))
        """Reader of all rows, so that a core is compared with the same others under any filter."""
        self._packages = [place.package for place in self._places]

    def read(self, interval: Interval) -> Sheet:
        split = interval.split
        online, util, busy, awake = self._clocks(interval)
        ceiling = np.where(self._ceiled, interval.ceiling_hz[self._at], np.nan)
        dropped, alone = self._drops(busy, ceiling, awake, self._every.usual(interval))
        numbers = {key: self._joined(key, interval, online).tolist() for key in NUMBERS}
        cpus = [place.rows for place in self._places]
        suspect = self._doubted("util", interval).tolist()
        return Sheet(
            util=[row[: len(c)] for row, c in zip(util.tolist(), cpus, strict=True)],
            online=[row[: len(c)] for row, c in zip(online.tolist(), cpus, strict=True)],
            suspect=[row[: len(c)] for row, c in zip(suspect, cpus, strict=True)],
            doubted={key: np.any(self._doubted(key, interval), axis=1).tolist() for key in MARKED},
            states=split.states[self._at].tolist(),
            low=split.low[self._at].tolist(),
            method=[split.method[at] for at in self._at],
            busy=busy.tolist(),
            ceiling=ceiling.tolist(),
            numbers=numbers | {"turbo_ceiling_hz": ceiling.tolist()},
            dropped=dropped.tolist(),
            alone=alone.tolist(),
            limited=self._limited(awake, dropped),
            top_hz=float(np.nanmax(np.concatenate([busy, ceiling, [1e9]]))),
            awake=awake.tolist(),
            tasks=interval.tasks,
        )

    def _clocks(self, interval: Interval) -> tuple[Bools, Floats, Floats, Bools]:
        """By row and CPU: online, utilisation. By row: the clock, whether it means something."""
        online = interval.online[self._rows] & self._there
        util = self._by_cpu(interval.values["util"], online)
        busy = self._joined("busy_hz", interval, online)
        return online, util, busy, (np.fmax.reduce(util, axis=1) >= AWAKE) & np.isfinite(busy)

    def _doubted(self, key: str, interval: Interval) -> Bools:
        """By row and CPU, whether a counter of the metric is doubted."""
        return np.asarray(doubted(key, self._session, interval)[self._rows] & self._there)

    def usual(self, interval: Interval) -> dict[Kind, float]:
        """The median clock of the rows at work, by package and type."""
        *_, busy, awake = self._clocks(interval)
        working = {kind: busy[mine & awake] for kind, mine in self._kinds.items()}
        return {kind: float(np.median(hz)) for kind, hz in working.items() if len(hz)}

    def _by_cpu(self, values: Floats, online: Bools) -> Floats:
        return np.where(online, values[self._rows], np.nan)

    def _joined(self, key: str, interval: Interval, online: Bools) -> Floats:
        """The metric of each row, joined over its CPUs; CPUs where it is unknown are left out."""
        values = self._by_cpu(interval.values[key], online)
        return joined(key, values, lambda weight: interval.values[weight][self._rows])

    def _drops(
        self, busy: Floats, ceiling: Floats, awake: Bools, usual: dict[Kind, float]
    ) -> tuple[Bools, Bools]:
        """The rows clearly below their ceiling, and those clearly below the others of their kind,
        as two masks."""
        dropped: Bools = awake & (busy < ceiling * (1 - DROP))
        alone = np.zeros(len(busy), bool)
        for kind, mine in self._kinds.items():
            alone |= mine & awake & (busy < usual.get(kind, 0.0) * (1 - DROP))
        return dropped, alone

    def _limited(self, awake: Bools, dropped: Bools) -> dict[int | None, bool]:
        counts: dict[int | None, list[int]] = {}
        for package, is_awake, down in zip(
            self._packages, awake.tolist(), dropped.tolist(), strict=True
        ):
            count = counts.setdefault(package, [0, 0])
            count[0] += is_awake
            count[1] += down
        return {package: 0 < n <= 2 * down for package, (n, down) in counts.items()}

    def _has_ceiling(self, session: Session) -> Bools:
        told = session.sieve.turbo.cpus
        return np.array([told[place.rows[0]] for place in self._places], bool)


def joined(key: str, values: Floats, of: Callable[[str], Floats]) -> Floats:
    """A metric's values joined along the last axis; `of` returns the values of another metric."""
    how = METRICS[key].joined
    if how == "worst":
        return np.asarray(np.fmax.reduce(values, axis=-1))
    return joint(values, of(how) if how else np.ones_like(values))


def joint(values: Floats, weights: Floats) -> Floats:
    """Weighted means of the known values along the last axis."""
    known = np.isfinite(values) & np.isfinite(weights)
    total = np.where(known, weights, 0.0).sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean: Floats = np.where(known, values * weights, 0.0).sum(axis=-1) / total
    return mean
