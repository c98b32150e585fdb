"""One core over time: its history, as one value for each column of a chart."""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Bools, Floats
from perftop.model.machine_totals import OF_L3
from perftop.model.memory import READ, WRITE
from perftop.model.smt import bounds
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.tui.shared.column_ring import Lookup, Ring
from perftop.tui.shared.places import Place
from perftop.tui.shared.sheet import AWAKE, busiest, of_core
from perftop.tui.shared.time_axis import Axis

L3_TRAFFIC = OF_L3["memory_bytes_per_s"]


class Track:
    """History of one core. Only what is drawn is read, and of that only new bins, since complete
    bins do not change."""

    def __init__(self, session: Session, place: Place) -> None:
        self._history, self._place = session.past, place
        self._package, self._l3 = shared_rows(session, place)
        self._axis: Axis
        self._rings: dict[str, Ring] = {}

    def look(self, axis: Axis) -> None:
        self._axis = axis

    def of(self, key: str) -> Floats:
        """A metric of each CPU: (columns, CPUs)."""
        rows = self._place.rows
        return self._bins(key, lambda history, at: history.field(key, rows, at))

    def _bins(self, key: str, lookup: Lookup) -> Floats:
        """Bins of the axis, from the history."""
        axis, ring = self._axis, self._rings.setdefault(key, Ring({key: lookup}))
        ring.read(self._history, axis.end_ns, axis.bin_ns, axis.bins, axis.now_ns)
        return ring[key]

    def core(self, key: str) -> Floats:
        """(columns): the busiest CPU's number, or of halts and steal the worst, as in other
        views."""
        return of_core(key, self.of(key), busiest(self.of("util"), self.of("busy_hz")))

    def ceiling(self) -> Floats:
        """(columns): the core's ceiling in Hz."""
        return self._of_core()[:, -1]

    def awake(self) -> Bools:
        """Columns in which the core was busy enough for its clock to mean something."""
        found: Bools = np.fmax.reduce(self.of("util"), axis=1) >= AWAKE
        return found

    def states(self) -> Floats:
        """(columns, 4): shares of the SMT states. History stores a lone online thread as the first;
        the thread that had a utilisation says which one it was."""
        found = self._of_core()[:, :-1].copy()
        util = self.of("util")
        if util.shape[1] == 2:
            second = np.isnan(util[:, 0]) & np.isfinite(util[:, 1])
            found[second] = found[second][:, [0, 2, 1, 3]]
        return found

    def _of_core(self) -> Floats:
        """(columns, 5): `states`, and behind them the ceiling."""
        cores = [self._place.cpus]
        return self._bins("core", lambda history, at: history.cores(cores, at)[:, 0])

    def lowest(self) -> Floats:
        """(columns, 4): minimum share of each state, for cores with only bounds."""
        util = self.of("util")
        if util.shape[1] == 2:
            return bounds(util[:, 0], util[:, 1])[0]
        neither = np.maximum(0.0, 1 - util.sum(axis=1))
        return np.stack([neither, 0 * neither, 0 * neither, 0 * neither], axis=1)

    def traffic(self) -> Floats:
        """(columns): bytes per second between its package and memory."""
        return self._shared(READ, self._package) + self._shared(WRITE, self._package)

    def l3(self) -> Floats:
        """(columns): bytes per second between its L3 and memory. Nothing beside a core at work is
        the count of a dead monitor, so it is unknown."""
        moved = self._shared(L3_TRAFFIC, self._l3)
        return np.where((moved == 0) & self.awake(), np.nan, moved)

    def _shared(self, key: str, row: int | None) -> Floats:
        """(columns): a row of a counter of packages or L3s; None: its row is not known. All of it
        is read each time, since a read may cover earlier bins."""
        found = self._history.shared(key, self._axis.edges)
        known = row is not None and row < found.shape[1]
        return found[:, row] if known else np.full(self._axis.bins, np.nan)

    def account(self) -> Floats:
        """(columns, 3): shares of user, kernel and stolen time. The running time is `util`; the
        system's account gives its kernel part."""
        util, system, steal = (self.core(key) for key in ("util", "system", "steal"))
        kernel = np.fmin(util, np.nan_to_num(system))
        return np.stack([util - kernel, kernel, np.nan_to_num(steal)], axis=1)


def shared_rows(session: Session, place: Place) -> tuple[int | None, int | None]:
    """The rows of a core's package and of its L3 among those that are counted."""
    mine = {*place.cpus}
    packages = enumerate(session.hello.packages)
    column = session.counters.columns.get(L3_TRAFFIC)
    having = {*(column.counter.cpus or ())} if column else set()
    caches = [row for row in session.topology if row.cpu in having]
    return (
        next((at for at, cpus in packages if not mine.isdisjoint(cpus)), None),
        next((at for at, row in enumerate(caches) if row.l3 == place.l3), None),
    )


def now(interval: Interval, place: Place, key: str) -> tuple[list[float], float]:
    """A metric in the interval: of each CPU, and what the core shows."""
    rows = list(place.rows)
    there = interval.online[rows]
    values, util, hz = (
        np.where(there, interval.values[name][rows], np.nan) for name in (key, "util", "busy_hz")
    )
    return values.tolist(), float(of_core(key, values, busiest(util, hz)))
