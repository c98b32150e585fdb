"""Values of numbers in one interval, by key: of the machine, and of CPUs, including the numbers
that a core, package or L3 shares. `CpuColumns` has the numbers of one stream that a table of CPUs
can show.

Names, units and digits of numbers are in `model.numbers`.
"""

from __future__ import annotations

from math import nan

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.base.text import ClockUnit
from perftop.model import numbers
from perftop.model.machine_totals import L3_COUNTERS, PACKAGE_NAMES
from perftop.model.numbers import EVENT, METRICS, NUMBERS, RARE_METRICS, Number
from perftop.model.smt import ANY_COUNTERS, STATES, TRACED_COUNTERS
from perftop.session.interval import Interval
from perftop.session.session import Session

MAX_NAME = 64
"""Maximum number of characters of a task's name in a table."""
_KEYS = (*METRICS, "both", "lp0", "lp1", "neither", "turbo_ceiling_hz", "smi", "task")
COLUMNS_BY_KEY: dict[str, Number] = {key: NUMBERS[key] for key in _KEYS}
"""Numbers that a table of CPUs can have in any stream."""
PACKAGE = dict(zip(numbers.PACKAGE, PACKAGE_NAMES, strict=True))
"""Names in a line of JSON of the numbers of packages, by key."""
L3 = dict(zip(numbers.L3, L3_COUNTERS, strict=True))
"""Names in a line of JSON of the numbers of L3s, by key."""


def is_possible_column(key: str) -> bool:
    """Whether any stream can have this column."""
    return key in COLUMNS_BY_KEY or key in RARE_METRICS or key.startswith(EVENT)


def columns_by_key(session: Session) -> dict[str, Number]:
    """All columns of a stream. Events that the user selected follow the first two columns, since a
    user who selects events wants to see them."""
    events = session.evaluator.registry.events
    first = {key: COLUMNS_BY_KEY[key] for key in ("util", "busy_hz")}
    return first | events | COLUMNS_BY_KEY if events else COLUMNS_BY_KEY


def cpu_values(session: Session, interval: Interval, key: str) -> Floats:
    """Values by position of the CPU: a number of the CPU, of its core, package or L3, or by how
    much a counter advanced per second; NaN where unknown."""
    if key in session.evaluator.metrics:
        return interval.values[key]
    if key in STATES:
        return spread_to_cpus(session, interval.split.states[:, STATES.index(key)])
    match key:
        case "turbo_ceiling_hz":
            return spread_to_cpus(session, interval.ceilings.hz)
        case "turbo_ceiling_low_hz":
            return spread_to_cpus(session, interval.ceilings.low_hz)
        case "turbo_ceiling_high_hz":
            return spread_to_cpus(session, interval.ceilings.high_hz)
        case "active_threads":
            return spread_to_cpus(session, interval.split.active_threads)
        case "core_power_w":
            return spread_to_cpus(session, interval.core_power_w)
    values = np.full(len(session.topology), nan)
    if key in PACKAGE:
        rows = interval.packages.get(PACKAGE[key], np.zeros(0))
        for cpus, value in zip(session.hello.packages, rows, strict=False):
            values[[session.position[cpu] for cpu in cpus]] = value
    elif key in L3:
        rows = interval.caches.get(L3[key], np.zeros(0))
        positions = {
            session.topology[position].l3: position
            for position in np.flatnonzero(np.isfinite(rows)).tolist()
        }
        for row, place in enumerate(session.topology):
            if place.l3 in positions:
                values[row] = rows[positions[place.l3]]
    elif interval.elapsed_s and (count := interval.counts.get(key)) is not None:
        return count / interval.elapsed_s if len(count) == len(values) else values
    return values


def machine_value(session: Session, interval: Interval, key: str) -> float:
    """A number of the machine as a whole, or the mean over the CPUs that the user selected; NaN
    where unknown."""
    if key in interval.machine:
        return interval.machine[key]
    if key in session.evaluator.metrics:
        return interval.values.mean(key, session.shown)
    if key in STATES:
        return interval.split.mean(key, session.shown_cores())
    return nan


def displayed_values(column: Number, session: Session, interval: Interval) -> Floats:
    """Values as in `cpu_values`, but NaN for numbers per running time of CPUs at rest."""
    values = cpu_values(session, interval, column.key)
    return np.where(interval.resting, nan, values) if column.of_running else values


def spread_to_cpus(session: Session, by_core: Floats) -> Floats:
    """Values of cores by position of their CPUs; NaN where unknown, and for all CPUs if the list of
    cores has changed since."""
    cores = session.reader.cores
    if len(by_core) != len(cores.lists):
        return np.full(len(cores.of_cpu), nan)
    return cores.by_cpu(by_core)


def mean_ceiling(ceilings: Floats, util: Floats) -> float:
    """The mean ceiling of CPUs, in Hz, weighted with their busy time, as the mean clock is. If all
    are at rest it is the highest ceiling."""
    is_known = np.isfinite(ceilings) & np.isfinite(util)
    weights = np.where(is_known, util, 0.0)
    total = float(weights.sum())
    if total <= 0:
        return float(np.fmax.reduce(ceilings, axis=None, initial=nan))
    return float((weights * np.where(is_known, ceilings, 0.0)).sum() / total)


def suspect_rows(key: str, session: Session, interval: Interval) -> Bools:
    """Mask by position of the CPUs where a counter used for this number is suspect. A core's states
    depend on the counters of all its CPUs."""
    if not np.count_nonzero(interval.doubts):  # the usual case
        return np.zeros(len(interval.doubts), bool)
    needed_keys = {"tsc", key}
    if key in session.evaluator.metrics:
        needed_keys = {"tsc", *session.evaluator.needs(key)}
    elif key in STATES:
        any_counter = session.reader.splitter.any_counter() or ""
        needed_keys = {"tsc", any_counter, *session.evaluator.needs("util")}
    indexes = [i for i, name in enumerate(interval.keys) if name in needed_keys]
    mask = np.asarray(interval.doubts[:, indexes].any(axis=1), bool)
    if key in STATES and mask.any():
        of_cpu = session.reader.cores.of_cpu
        return np.asarray(np.isin(of_cpu, of_cpu[mask]) & (of_cpu >= 0))
    return mask


class CpuColumns:
    """The numbers that a table of the CPUs of one stream can show, and their values."""

    def __init__(self, session: Session) -> None:
        self._session = session
        cores = session.reader.cores
        positions = zip(session.topology, cores.of_cpu.tolist(), strict=True)
        self.first = [row.cpu if core < 0 else cores.lists[core][0] for row, core in positions]
        """For each CPU the first CPU of its core; the CPU itself if its core is unknown."""
        self.by_key = columns_by_key(session)
        counted_keys = self._counted_keys()
        self._counted_columns = tuple(
            column for key, column in self.by_key.items() if key in counted_keys
        )

    def _counted_keys(self) -> set[str]:
        session, counters = self._session, self._session.counters.columns
        keys = {key for key, variants in session.evaluator.chosen.items() if variants}
        threads = {len(core) for core in session.cores}
        if 2 in threads and any(key in counters for key in (*ANY_COUNTERS, *TRACED_COUNTERS)):
            keys |= set(STATES)
        elif max(threads, default=1) > 2:
            keys.add("neither")
        if session.reader.turbo.cpus.any():
            keys.add("turbo_ceiling_hz")
        return keys | ({"smi"} & counters.keys())

    def columns(self) -> tuple[Number, ...]:
        """The columns that this stream counts, and the task column once tasks are known."""
        task = (COLUMNS_BY_KEY["task"],) if self._session.tasks else ()
        return (*self._counted_columns, *task)

    def values(self, key: str, interval: Interval) -> Floats:
        """Values by position of the CPU; NaN where unknown or not shown."""
        column = self.by_key.get(key)
        if column is None:
            return cpu_values(self._session, interval, key)
        return displayed_values(column, self._session, interval)

    def arranged(
        self, rows: Ints, column: Number, interval: Interval, clock: ClockUnit, *, reverse: bool
    ) -> Ints:
        """The rows sorted by a column: the highest value first, names from a to z, unknown values
        always last. Values that look the same on screen count as equal, so rows do not change
        places without a visible reason."""
        if not column.unit:
            names = {row: self.task(row, interval).casefold() for row in rows.tolist()}
            named = sorted((r for r in names if names[r]), key=lambda r: names[r], reverse=reverse)
            return np.array([*named, *(row for row in names if not names[row])], np.intp)
        scale, digits = column.scale(clock)
        known_values = np.where(interval.online, self.values(column.key, interval), nan)
        values = np.round(known_values[rows] * scale, digits)
        return rows[np.argsort(values if reverse else -values, kind="stable")]

    def task(self, row: int, interval: Interval) -> str:
        """Name and pid of the task that used the CPU most, as they were received: they are
        untrusted and must be made printable before they are drawn."""
        if not interval.online[row]:
            return ""
        match interval.tasks.get(str(self._session.topology[row].cpu)):
            case [int(pid), str(name), *_]:
                return f"{name[:MAX_NAME]}:{pid}"
        return ""
