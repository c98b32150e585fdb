"""A sheet: the numbers of one interval by row, from which rows are drawn. At each refresh, numbers
of all rows are read as arrays; numbers of the visible rows are converted to Python numbers.

Every number is the number of a CPU, as in `stat`. A row shows the numbers of all its CPUs, or the
number of the busiest CPU; for halts and steal, the highest number. Nothing is averaged over
siblings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import nan

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.model.numbers import METRICS
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.values import doubted
from perftop.tui.shared import episode_style
from perftop.tui.shared.places import Places

IDLE = 0.05
"""Busy share below which a row is dim; the share is that of the row's busiest CPU."""
AWAKE = 0.1
"""Minimum busy share for a core's clock to be meaningful; with less, the clock mainly reflects
sleep."""
NUMBERS = ("util", "busy_hz", "net_hz", "idle", "involuntary", "steal", "ipc", "kernel_cycles",
           "user", "system", "iowait")  # fmt: skip
_WORST = frozenset({"involuntary", "steal"})
"""Keys of the numbers for which a row shows the highest value of its CPUs."""
LEAD = -1
"""Stands for the number of the busiest CPU, or for the highest number if its key is in
`_WORST`."""
DROP = 0.05
"""Minimum share by which a clock must be below its ceiling, or below the clock of other cores, to
count as low. Smaller differences are caused by averaging over idle times."""


Kind = tuple[int | None, str | None]
"""The package and the type of a core; cores of one kind can be compared."""


@dataclass
class Sheet:
    """The numbers of all rows in one interval. Arrays have an entry for each row; arrays of CPUs
    have an entry for each row and sibling. Unknown values are NaN. Properties are computed at their
    first use."""

    reader: Reader
    interval: Interval
    online: Bools
    util: Floats
    ceiling: Floats

    @cached_property
    def lead(self) -> Ints:
        """By row: index of the busiest CPU."""
        return busiest(self.util, self._hz)

    @cached_property
    def busy(self) -> Floats:
        """By row: the clock of the busiest CPU, in Hz."""
        return of_core("busy_hz", self._hz, self.lead)

    @cached_property
    def awake(self) -> Bools:
        """By row: whether the clock of the busiest CPU is meaningful."""
        found: Bools = (np.fmax.reduce(self.util, axis=1) >= AWAKE) & np.isfinite(self.busy)
        return found

    @cached_property
    def dropped(self) -> Bools:
        """By row: whether the clock is clearly below its ceiling."""
        return self.awake & (self.busy < self.ceiling * (1 - DROP))

    @cached_property
    def _hz(self) -> Floats:
        hz = self.interval.values["busy_hz"][self.reader.cpus]
        return np.where(self.online, hz, np.nan)

    def states(self, rows: Ints) -> Floats:
        """Returns the SMT states of these rows."""
        return self.interval.split.states[self.reader.at[rows]]

    @property
    def alone(self) -> Bools:
        """By row: whether the clock is clearly below the usual clock of cores of the same kind."""
        return self.reader.alone(self)

    def scores(self) -> list[float]:
        """Returns a sort key for each row, for the order "worst first". Rows with a problem come
        before rows that are only busy. The key has coarse steps, so that small changes move no
        row."""
        top_hz = max(np.fmax.reduce(hz, initial=1e9) for hz in (self.busy, self.ceiling))
        below = 1 - self.busy / top_hz
        wrong = np.where(self.alone | self.dropped, below, 0.0)
        for key in ("involuntary", "steal"):
            share = self.reader.worst(key, self.interval, self.online)
            wrong += np.where(share >= METRICS[key].stands_out, share, 0.0)
        wrong += self.reader.taken(self.interval)
        busy = np.nansum(self.util, axis=1).tolist()
        both = zip(wrong.tolist(), busy, strict=True)
        return [-(100 * round(bad, 1 if bad > 1 else 2) + round(load, 1)) for bad, load in both]


class VisibleRows:
    """Some rows of a sheet as Python numbers. Lists have an entry for each row, in the order of
    `rows`. Entries for siblings that a core does not have are False or NaN."""

    def __init__(self, sheet: Sheet, rows: Sequence[int]) -> None:
        at = np.array(rows, np.intp)
        self._sheet, self._at, self.rows = sheet, at, rows
        self._cpus, self._online, util = sheet.reader.cpus[at], sheet.online[at], sheet.util[at]
        self._numbers: dict[str, list[list[float]]] = {"util": util.tolist()}
        self.online: list[list[bool]] = self._online.tolist()
        self.resting: list[list[bool]] = sheet.interval.resting[self._cpus].tolist()
        """By CPU: whether numbers that are relative to its running time are hidden."""
        self.lead: list[int] = busiest(util, self._values("busy_hz")).tolist()
        """By row: index of the busiest CPU."""
        self.idle: list[bool] = (np.fmax.reduce(util, axis=1) < IDLE).tolist()
        """By row: whether all its CPUs are almost idle, so that most numbers mean little."""

    def numbers(self, key: str) -> list[list[float]]:
        """Returns a metric of each CPU, or the ceiling of its clock. A metric is read when it is
        first needed, because a screen shows only a few metrics."""
        if key not in self._numbers:
            self._numbers[key] = self._values(key).tolist()
        return self._numbers[key]

    def _values(self, key: str) -> Floats:
        if key == "turbo_ceiling_hz":
            values = np.broadcast_to(self._sheet.ceiling[self._at, None], self._cpus.shape)
        else:
            values = self._sheet.interval.values[key][self._cpus]
        return np.where(self._online, values, np.nan)

    def which(self, key: str) -> list[int]:
        """Returns, by row, the index of the CPU whose number the row shows: the busiest CPU, or,
        for numbers in `_WORST`, the CPU with the highest number."""
        if key not in _WORST:
            return self.lead
        found: list[int] = np.fmax(self._values(key), -1.0).argmax(axis=1).tolist()
        return found

    def doubted(self, key: str) -> list[list[bool]] | None:
        """Returns, by CPU, whether a counter of this metric is suspect; None if no counter of any
        CPU is suspect."""
        session, interval = self._sheet.reader.session, self._sheet.interval
        if key not in NUMBERS or not interval.doubts.any():
            return None
        found: list[list[bool]] = doubted(key, session, interval)[self._cpus].tolist()
        return found

    def split(self) -> tuple[list[list[float]], list[list[float]], list[int]]:
        """Returns the SMT states of each core, the lower bound of each state, and the method by
        which the states were measured."""
        split, at = self._sheet.interval.split, self._sheet.reader.at[self._at]
        return split.states[at].tolist(), split.low[at].tolist(), split.how[at].tolist()


class Reader:
    """A reader that makes sheets for one topology."""

    def __init__(self, session: Session, places: Places) -> None:
        self.session, self._places = session, places.places
        n, threads = len(self._places), places.threads
        self.cpus = np.zeros((n, threads), np.intp)
        """Positions of the CPUs, by row and sibling."""
        self._there = np.zeros((n, threads), bool)
        for i, place in enumerate(self._places):
            self.cpus[i, : len(place.rows)] = place.rows
            self._there[i, : len(place.rows)] = True
        asked = np.zeros(len(session.topology), bool)
        asked[[*places.shown]] = True
        self.asked = self._there & asked[self.cpus]
        """Whether the user asked for a CPU, by row and sibling."""
        self.at = np.array([place.at for place in self._places], np.intp)
        """Position of each row's core in the session's lists."""
        self._row_of = {cpu: i for i, place in enumerate(self._places) for cpu in place.cpus}
        ceiled = session.reader.turbo.cpus
        self._ceiled = np.array([ceiled[place.rows[0]] for place in self._places], bool)
        kinds = [(place.package, place.type) for place in self._places]
        self._kinds = {kind: np.array([k == kind for k in kinds]) for kind in dict.fromkeys(kinds)}
        every = n == len(session.shown_cores())
        self._every = self if every else Reader(session, Places(session))
        """The reader of all rows, so that a core is compared with the same cores under any
        filter."""

    def read(self, interval: Interval) -> Sheet:
        online = interval.online[self.cpus] & self._there
        util = np.where(online, interval.values["util"][self.cpus], np.nan)
        ceiling = np.where(self._ceiled, interval.ceiling_hz[self.at], np.nan)
        return Sheet(self, interval, online, util, ceiling)

    def of_rows(self, key: str, by_cpu: Floats, interval: Interval) -> Floats:
        """Returns the number of each row. `by_cpu`: the numbers by position of the CPU."""
        sheet = self.read(interval)
        return of_core(key, np.where(sheet.online, by_cpu[self.cpus], np.nan), sheet.lead)

    def usual(self, sheet: Sheet) -> dict[Kind, float]:
        """Returns the median clock of the busy rows, by kind of core, in Hz."""
        working = {kind: sheet.busy[members & sheet.awake] for kind, members in self._kinds.items()}
        return {kind: float(np.median(hz)) for kind, hz in working.items() if len(hz)}

    def worst(self, key: str, interval: Interval, online: Bools) -> Floats:
        """Returns the highest value of each row's CPUs."""
        values = np.where(online, interval.values[key][self.cpus], np.nan)
        return np.asarray(np.fmax.reduce(values, axis=1))

    def taken(self, interval: Interval) -> Floats:
        """Returns, by row, the largest share of IPC, clock or time that a neighbour takes from one
        of the row's CPUs. Episodes of the hypervisor are left out, because steal covers them."""
        found = np.zeros(len(self._places))
        for episode in episode_style.during(self.session, interval):
            if episode.kind != "neighbour" or episode.cause == "hypervisor":
                continue
            for cpu in self._row_of.keys() & set(episode.cpus):
                share = self.session.neighbours.share(episode, cpu) if interval.seq else None
                lost = (episode.depth or 0.0) if share is None else share
                found[self._row_of[cpu]] = max(found[self._row_of[cpu]], lost)
        return found

    def alone(self, sheet: Sheet) -> Bools:
        """Returns, by row, whether the clock is clearly below the usual clock of cores of the same
        kind."""
        every = self._every
        usual = every.usual(sheet if every is self else every.read(sheet.interval))
        found = np.zeros(len(sheet.busy), bool)
        for kind, members in self._kinds.items():
            found |= members & sheet.awake & (sheet.busy < usual.get(kind, 0.0) * (1 - DROP))
        return found


def busiest(util: Floats, hz: Floats) -> Ints:
    """Returns the index of the busiest CPU along the last axis. Busy shares are rounded to one per
    cent; of equally busy CPUs, the first with a known clock is chosen, so that the index seldom
    changes."""
    rank = np.where(np.isnan(util), -1.0, np.round(util, 2)) + 0.001 * np.isfinite(hz)
    found: Ints = np.argmax(rank, axis=-1)
    return found


def of_package(session: Session, interval: Interval, cpu: int, *keys: str) -> list[float]:
    """Returns the numbers with these keys for the package that contains a CPU; NaN where
    unknown."""
    at = next((i for i, cpus in enumerate(session.hello.packages) if cpu in cpus), -1)
    found = (interval.packages.get(key) for key in keys)
    return [
        nan if values is None or not 0 <= at < len(values) else float(values[at])
        for values in found
    ]


def of_core(key: str, values: Floats, lead: Ints) -> Floats:
    """Returns the value of a core from the values of its CPUs along the last axis: for numbers in
    `_WORST` the highest value, else the value of the CPU with the index `lead`."""
    if key in _WORST:
        return np.asarray(np.fmax.reduce(values, axis=-1))
    return np.take_along_axis(values, lead[..., None], axis=-1)[..., 0]
