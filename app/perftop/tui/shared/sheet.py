"""A sheet: one interval by row, from which rows are drawn. What all rows are needed for is read as
arrays, once a refresh; the rows in sight are read as plain numbers, together.

The registry of metrics says how a core's CPUs are joined: clock, IPC and kernel share are weighted
means (by what each CPU did), involuntary halts are the worse sibling's, others are plain means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.samples.metrics import INDEX, METRICS
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
class Row:
    """A row as plain numbers; NaN where unknown."""

    at: int
    """Which row it is."""
    util: list[float]
    """Utilisation of each CPU."""
    online: list[bool]
    suspect: list[bool]
    """Whether a counter of its utilisation is doubted, by CPU."""
    doubted: frozenset[str]
    """Keys of the numbers, the clock among them, of which a counter is doubted."""
    states: list[float]
    low: list[float]
    method: str | None
    busy: float
    ceiling: float
    numbers: dict[str, float]
    """The other metrics, by key."""
    dropped: bool
    """Whether the clock is clearly below its ceiling while at work."""
    alone: bool
    """Whether the clock is clearly below the usual one of its kind."""
    awake: bool
    """Whether the row is busy enough for its clock to mean something."""


@dataclass(slots=True)
class Sheet:
    """Arrays have an entry per row, those of CPUs one per row and sibling; NaN where unknown."""

    reader: Reader
    interval: Interval
    online: Bools
    util: Floats
    busy: Floats
    ceiling: Floats
    dropped: Bools
    alone: Bools
    awake: Bools
    limited: dict[int | None, bool]
    """By package, whether half or more of its awake cores are below their ceiling; shown once, not
    in every row."""
    top_hz: float
    """The highest clock or ceiling of all rows, for scales; at least 1 GHz."""
    tasks: Mapping[str, Any] = field(default_factory=dict)
    """Tasks as the probe sends them: by CPU, a list that begins with pid and name."""
    _rows: dict[int, Row] = field(default_factory=dict)

    def row(self, i: int) -> Row:
        if i not in self._rows:
            self.fetch([i])
        return self._rows[i]

    def fetch(self, wanted: Iterable[int]) -> None:
        """Reads these rows together, which costs little more than one alone."""
        rows = [i for i in dict.fromkeys(wanted) if i not in self._rows]
        if rows:
            self._rows.update(zip(rows, self.reader.rows(self, rows), strict=True))

    def states(self, rows: Ints) -> Floats:
        """The SMT states of these rows."""
        found: Floats = self.interval.split.states[self.reader.at[rows]]
        return found

    def scores(self) -> list[float]:
        """Sort key by row, worst first: rows with something wrong come before rows that are only
        busy. Its steps are coarse, so that small changes move no row."""
        below = 1 - self.busy / max(self.top_hz, 1.0)
        wrong = np.where(self.alone | self.dropped, below, 0.0)
        for key in ("involuntary", "steal"):
            share = self.reader.joined(key, self.interval, self.online)
            wrong += np.where(share >= METRICS[key].stands_out, share, 0.0)
        busy = np.nansum(self.util, axis=1).tolist()
        both = zip(wrong.tolist(), busy, strict=True)
        return [-(100 * round(bad, 1 if bad > 1 else 2) + round(load, 1)) for bad, load in both]


class Reader:
    """Makes sheets for one topology."""

    def __init__(self, session: Session, places: Places) -> None:
        self._session, self._places = session, places.places
        n, threads = len(self._places), places.threads
        self._cpus = np.zeros((n, threads), np.intp)
        """Positions of each row's CPUs."""
        self._there = np.zeros((n, threads), bool)
        for i, place in enumerate(self._places):
            self._cpus[i, : len(place.rows)] = place.rows
            self._there[i, : len(place.rows)] = True
        asked = np.zeros(len(session.topology), bool)
        asked[[*places.shown]] = True
        self.asked = self._there & asked[self._cpus]
        """The CPUs that the user asked for, by row and sibling."""
        self.at = np.array([place.at for place in self._places], np.intp)
        """Positions of the rows' cores."""
        self._ceiled = self._has_ceiling(session)
        kinds = [(place.package, place.type) for place in self._places]
        self._kinds = {kind: np.array([k == kind for k in kinds]) for kind in dict.fromkeys(kinds)}
        packages = [place.package for place in self._places]
        self._packages = [*dict.fromkeys(packages)]
        self._package = np.array([self._packages.index(it) for it in packages], np.intp)
        """By row, the index of its package."""
        every = n == len(session.shown_cores())
        self._every = self if every else Reader(session, Places(session))
        """Reader of all rows, so that a core is compared with the same others under any filter."""

    def read(self, interval: Interval) -> Sheet:
        online, util, busy, awake = clocks = self.clocks(interval)
        every = self._every
        usual = every.usual(clocks if every is self else every.clocks(interval))
        ceiling = np.where(self._ceiled, interval.ceiling_hz[self.at], np.nan)
        dropped, alone = self._drops(busy, ceiling, awake, usual)
        tops = (np.fmax.reduce(hz, initial=1e9) for hz in (busy, ceiling))
        return Sheet(
            self, interval, online, util, busy, ceiling, dropped, alone, awake,
            limited=self._limited(awake, dropped), top_hz=float(max(tops)), tasks=interval.tasks,
        )  # fmt: skip

    def rows(self, sheet: Sheet, wanted: list[int]) -> list[Row]:
        """These rows of the sheet as plain numbers."""
        interval, rows = sheet.interval, np.array(wanted, np.intp)
        split, at, cpus = interval.split, self.at[rows], self._cpus[rows]
        online, ceiling = sheet.online[rows], sheet.ceiling[rows]
        suspect, marked = self._doubts(interval, rows)
        numbers = np.vstack([self._numbers(interval, cpus, online), ceiling])
        columns = (
            sheet.util[rows], online, suspect, split.states[at], split.low[at],
            sheet.busy[rows], ceiling, numbers.T,
            sheet.dropped[rows], sheet.alone[rows], sheet.awake[rows],
        )  # fmt: skip
        found = zip(
            wanted, at.tolist(), marked, *(column.tolist() for column in columns), strict=True
        )
        return [self._row(split.method, *values) for values in found]

    def _row(
        self, methods: list[str | None], i: int, core: int, marked: frozenset[str],
        util: list[float], online: list[bool], suspect: list[bool], states: list[float],
        low: list[float], busy: float, ceiling: float, numbers: list[float],
        dropped: bool, alone: bool, awake: bool,
    ) -> Row:  # fmt: skip
        n = len(self._places[i].rows)  # rows of cores with fewer threads than others are padded
        by_key = dict(zip(_KEYS, numbers, strict=True))
        return Row(i, util[:n], online[:n], suspect[:n], marked, states, low, methods[core], busy,
                   ceiling, by_key, dropped, alone, awake)  # fmt: skip

    def _doubts(self, interval: Interval, rows: Ints) -> tuple[Bools, list[frozenset[str]]]:
        """By CPU of these rows, whether its utilisation is doubted; and the doubted keys."""
        cpus, there = self._cpus[rows], self._there[rows]
        if not interval.doubts.any():
            return np.zeros_like(there), [frozenset()] * len(rows)

        def mask(key: str) -> Bools:
            return np.asarray(doubted(key, self._session, interval)[cpus] & there)

        by_row = np.array([mask(key).any(axis=1) for key in MARKED]).T.tolist()
        return mask("util"), [frozenset(compress(MARKED, marks)) for marks in by_row]

    def _numbers(self, interval: Interval, cpus: Ints, online: Bools) -> Floats:
        """NUMBERS of some rows, given by their CPUs, joined over those online: (numbers, rows)."""
        every = interval.values.all
        values = np.where(online, every[_AT][:, cpus], np.nan)
        joint_ = joint(values, np.where(_WEIGHTED, every[_WEIGHT][:, cpus], 1.0))
        joint_[_WORST] = np.fmax.reduce(values[_WORST], axis=-1)
        return joint_

    def clocks(self, interval: Interval) -> Clocks:
        """By row and CPU: online, utilisation. By row: the clock, whether it means something."""
        online = interval.online[self._cpus] & self._there
        util = np.where(online, interval.values["util"][self._cpus], np.nan)
        busy = self.joined("busy_hz", interval, online)
        return online, util, busy, (np.fmax.reduce(util, axis=1) >= AWAKE) & np.isfinite(busy)

    def usual(self, clocks: Clocks) -> dict[Kind, float]:
        """The median clock of the rows at work, by package and type."""
        *_, busy, awake = clocks
        working = {kind: busy[mine & awake] for kind, mine in self._kinds.items()}
        return {kind: float(np.median(hz)) for kind, hz in working.items() if len(hz)}

    def joined(self, key: str, interval: Interval, online: Bools) -> Floats:
        """The metric of each row, joined over its CPUs; CPUs where it is unknown are left out."""
        values = np.where(online, interval.values[key][self._cpus], np.nan)
        return joined(key, values, lambda weight: interval.values[weight][self._cpus])

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
        of, most = self._package, len(self._packages)
        counts = (np.bincount(of[mask], minlength=most).tolist() for mask in (awake, dropped))
        return {
            package: 0 < n <= 2 * down
            for package, n, down in zip(self._packages, *counts, strict=True)
        }

    def _has_ceiling(self, session: Session) -> Bools:
        told = session.sieve.turbo.cpus
        return np.array([told[place.rows[0]] for place in self._places], bool)


Clocks = tuple[Bools, Floats, Floats, Bools]
_KEYS = (*NUMBERS, "turbo_ceiling_hz")
_AT = [INDEX[key] for key in NUMBERS]
_HOW = [METRICS[key].joined for key in NUMBERS]
_WORST = [at for at, how in enumerate(_HOW) if how == "worst"]
_WEIGHTED = np.array([how in METRICS for how in _HOW])[:, None, None]
_WEIGHT = [INDEX.get(how, 0) for how in _HOW]


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
