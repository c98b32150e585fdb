"""A sheet: one interval as lists by row, plain numbers that rows are drawn from; read once a
refresh, all rows at a time.

A core's clock, IPC and kernel share are those of its CPUs together (weighted with what each did),
others the mean over them, its involuntary halts those of the worse sibling: as the registry says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isnan

import numpy as np

from perftop.base.arrays import Bools, Floats
from perftop.samples.metrics import METRICS
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.shared.places import Places

AWAKE = 0.1
"""A core that is less busy than this runs at whatever clock suits sleeping."""
NUMBERS = ("net_hz", "idle", "involuntary", "steal", "ipc", "kernel_cycles", "user", "system",
           "iowait")  # fmt: skip
DROP = 0.05
"""Of the ceiling, or of the other cores' clock: nearer than this is what averaging over idle
times does to any clock."""


Kind = tuple[int | None, str | None]
"""Package and type: cores of one kind can be compared."""


@dataclass(slots=True)
class Sheet:
    """By row; NaN where unknown."""

    util: list[list[float]]
    """By row, then by its CPUs."""
    online: list[list[bool]]
    suspect: list[list[bool]]
    states: list[list[float]]
    low: list[list[float]]
    method: list[str | None]
    busy: list[float]
    ceiling: list[float]
    numbers: dict[str, list[float]]
    """The other metrics that rows show, by key."""
    dropped: list[bool]
    """Clearly below the ceiling while at work."""
    alone: list[bool]
    """Clearly below what the rest of its package runs at."""
    limited: dict[int | None, bool]
    """Packages of which most cores are below their ceiling: told once, not in every row."""
    top_hz: float
    """The fastest clock or ceiling in sight, for scales."""
    awake: list[bool]
    """Busy enough for its clock to mean something."""
    tasks: dict[str, list[object]] = field(default_factory=dict)
    """Who runs where, as it came: by CPU, pid and name."""

    def score(self, row: int) -> float:
        """Sort key, worst first: what is wrong before what is merely busy, in coarse steps so
        that rows do not change places for a tenth of a percent."""
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
        self._places = places.places
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
        """What a core is compared with does not depend on the filter."""
        self._packages = [place.package for place in self._places]

    def read(self, interval: Interval) -> Sheet:
        split = interval.split
        online, util, busy, awake = self._clocks(interval)
        ceiling = np.where(self._ceiled, interval.ceiling_hz[self._at], np.nan)
        dropped, alone = self._drops(busy, ceiling, awake, self._every.usual(interval))
        numbers = {key: self._joined(key, interval, online).tolist() for key in NUMBERS}
        cpus = [place.rows for place in self._places]
        return Sheet(
            util=[row[: len(c)] for row, c in zip(util.tolist(), cpus, strict=True)],
            online=[row[: len(c)] for row, c in zip(online.tolist(), cpus, strict=True)],
            suspect=[[row in interval.suspect for row in c] for c in cpus],
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
        """By row and CPU: online, used how much. By row: the clock, and whether it means much."""
        online = interval.online[self._rows] & self._there
        util = self._by_cpu(interval.values["util"], online)
        busy = self._joined("busy_hz", interval, online)
        return online, util, busy, (np.fmax.reduce(util, axis=1) >= AWAKE) & np.isfinite(busy)

    def usual(self, interval: Interval) -> dict[Kind, float]:
        """The median clock of those at work, by package and type."""
        *_, busy, awake = self._clocks(interval)
        working = {kind: busy[mine & awake] for kind, mine in self._kinds.items()}
        return {kind: float(np.median(hz)) for kind, hz in working.items() if len(hz)}

    def _by_cpu(self, values: Floats, online: Bools) -> Floats:
        return np.where(online, values[self._rows], np.nan)

    def _joined(self, key: str, interval: Interval, online: Bools) -> Floats:
        """Of each row's CPUs together; those of which it is not known are left out."""
        values = self._by_cpu(interval.values[key], online)
        return joined(key, values, lambda weight: interval.values[weight][self._rows])

    def _drops(
        self, busy: Floats, ceiling: Floats, awake: Bools, usual: dict[Kind, float]
    ) -> tuple[Bools, Bools]:
        """Which rows are clearly below their ceiling, and which below the others of their kind."""
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
    """A metric's values along the last axis as one; `of` tells those of another metric."""
    how = METRICS[key].joined
    if how == "worst":
        return np.asarray(np.fmax.reduce(values, axis=-1))
    return joint(values, of(how) if how else np.ones_like(values))


def joint(values: Floats, weights: Floats) -> Floats:
    """Weighted means along the last axis, of what is known."""
    known = np.isfinite(values) & np.isfinite(weights)
    total = np.where(known, weights, 0.0).sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean: Floats = np.where(known, values * weights, 0.0).sum(axis=-1) / total
    return mean
