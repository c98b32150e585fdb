"""What a table of CPUs can tell of each: every metric of the stream, the SMT states of its core and
what turbo allows it, counts per second, and who runs there. No screen here."""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.base.format import ClockUnit
from perftop.model.numbers import EVENT, METRICS, RARE, Number
from perftop.model.smt import COUNTED, STATES, TRACED
from perftop.session.interval import Interval
from perftop.session.session import Session

_STATES = (
    Number(
        "both", "both", "ratio", "Both threads of its core were active.", title="both active",
        scope="core",
    ),
    Number(
        "lp0", "lp0 only", "ratio", "Only the first thread of its core was active.",
        scope="core",
    ),
    Number(
        "lp1", "lp1 only", "ratio", "Only the second thread of its core was active.",
        scope="core",
    ),
    Number("neither", "neither", "ratio", "No thread of its core was active.", scope="core"),
)  # fmt: skip
_CEILING = Number("turbo_ceiling_hz", "ceil", "Hz", "What turbo allows with as many active cores.")
_SMI = Number("smi", "SMI", "1/s", "System management interrupts per second.")
_TASK = Number("task", "task", "", "Which task used the CPU most.")
ALL: tuple[Number, ...] = (*METRICS.values(), *_STATES, _CEILING, _SMI, _TASK)
BY_KEY = {column.key: column for column in ALL}


def possible(key: str) -> bool:
    """Whether some stream can have this column."""
    return key in BY_KEY or key in RARE or key.startswith(EVENT)


_FIRST = ("util", "busy_hz")


def by_key(session: Session) -> dict[str, Number]:
    """All columns of a stream. Its chosen events stand behind the first of those that every stream
    may have: who asks for them wants to see them."""
    events = session.evaluator.registry.events
    if not events:
        return BY_KEY
    first = {key: BY_KEY[key] for key in _FIRST}
    return first | events | BY_KEY


def measured(column: Number, session: Session, interval: Interval) -> Floats:
    """A metric or an SMT state, by position of the CPU."""
    if not column.of_core:
        return interval.values[column.key]
    return spread(session, interval.split.states[:, STATES.index(column.key)])


def counted(key: str, session: Session, interval: Interval) -> Floats:
    """Any number of a CPU, by position; NaN where unknown."""
    if key in session.evaluator.metrics or key in STATES:
        return measured(by_key(session)[key], session, interval)
    if key == _CEILING.key:
        return spread(session, interval.ceiling_hz)
    cpus, count = len(session.sieve.cores.of_cpu), interval.counts.get(key)
    if count is None or len(count) != cpus or not interval.elapsed_s:
        return np.full(cpus, np.nan)
    return count / interval.elapsed_s


def shown(column: Number, session: Session, interval: Interval) -> Floats:
    """Values as in `measured`; NaN also where a CPU at rest has a number per running time."""
    values = measured(column, session, interval)
    if not column.of_running:
        return values
    return np.where(interval.resting, np.nan, values)


def spread(session: Session, by_core: Floats) -> Floats:
    """What cores have, by position of their CPUs; NaN where none is known, and for all if a core
    has come since."""
    cores = session.sieve.cores
    if len(by_core) != len(cores.lists):
        return np.full(len(cores.of_cpu), np.nan)
    return cores.by_cpu(by_core)


def ceiling_over(ceilings: Floats, util: Floats) -> float:
    """The ceiling of CPUs together, in Hz: each counts as long as it runs, as in their clock. Of
    CPUs at rest it is the highest."""
    known = np.isfinite(ceilings) & np.isfinite(util)
    told = np.where(known, util, 0.0)
    total = float(told.sum())
    if total <= 0:
        return float(np.fmax.reduce(ceilings, axis=None, initial=np.nan))
    return float((told * np.where(known, ceilings, 0.0)).sum() / total)


def doubted(key: str, session: Session, interval: Interval) -> Bools:
    """Mask by position of the CPUs of which a counter is doubted that this column is made of. A
    core's states depend on the counters of all its CPUs."""
    if not np.count_nonzero(interval.doubts):  # mostly
        return np.zeros(len(interval.doubts), bool)
    needs = {"tsc", *_needs(key, session)}
    at = [i for i, name in enumerate(interval.keys) if name in needs]
    found = np.asarray(interval.doubts[:, at].any(axis=1), bool)
    if key in STATES and found.any():
        cores = session.sieve.cores
        of_core = np.isin(cores.of_cpu, cores.of_cpu[found])
        return np.asarray(of_core & (cores.of_cpu >= 0))
    return found


def _needs(key: str, session: Session) -> set[str]:
    """The counters of a column, without the TSC."""
    if key in session.evaluator.metrics:
        return session.evaluator.needs(key)
    if key in STATES:
        return {session.sieve.splitter.counted() or "", *session.evaluator.needs("util")}
    return {key}


class Tabular:
    """The columns of one stream, and their values."""

    def __init__(self, session: Session) -> None:
        self._session = session
        cores = session.sieve.cores
        self._core = cores.of_cpu
        held = zip(session.topology, cores.of_cpu.tolist(), strict=True)
        self.first = [row.cpu if core < 0 else cores.lists[core][0] for row, core in held]
        """The first CPU of its core; of what is in no known core, itself."""
        keys = self._can()
        self.by_key = by_key(session)
        self._counted = tuple(column for key, column in self.by_key.items() if key in keys)
        self._told = (*self._counted, _TASK)

    def columns(self) -> tuple[Number, ...]:
        """What this stream can tell, as far as is known by now."""
        return self._told if self._session.tasks else self._counted

    def _can(self) -> set[str]:
        """Keys of what is counted here."""
        session, counters = self._session, self._session.counters.columns
        keys = {key for key, chosen in session.evaluator.chosen.items() if chosen}
        threads = {len(core) for core in session.cores}
        if 2 in threads and any(key in counters for key in (*COUNTED, *TRACED)):
            keys |= set(STATES)
        elif max(threads, default=1) > 2:
            keys.add("neither")
        if self._session.sieve.turbo.cpus.any():
            keys.add(_CEILING.key)
        return keys | ({_SMI.key} & counters.keys())

    def values(self, key: str, interval: Interval) -> Floats:
        """Values by position of the CPU; NaN where unknown or not shown."""
        if key in self._session.evaluator.metrics or key in STATES:
            return shown(self.by_key[key], self._session, interval)
        return counted(key, self._session, interval)

    def arranged(
        self, rows: Ints, column: Number, interval: Interval, clock: ClockUnit, *, reverse: bool
    ) -> Ints:
        """The highest first, names from a to z; what is not known last, whichever way. Equal as
        shown is equal: rows do not change places for what nobody sees."""
        if not column.unit:
            return self._by_name(rows, interval, reverse=reverse)
        scale, digits = column.scale(clock)
        known = np.where(interval.online, self.values(column.key, interval), np.nan)
        values = np.round(known[rows] * scale, digits)
        return rows[np.argsort(values if reverse else -values, kind="stable")]

    def _by_name(self, rows: Ints, interval: Interval, *, reverse: bool) -> Ints:
        names = {row: self.task(row, interval).casefold() for row in rows.tolist()}
        some = sorted((row for row in names if names[row]), key=lambda r: names[r], reverse=reverse)
        return np.array([*some, *(row for row in names if not names[row])], np.intp)

    def task(self, row: int, interval: Interval) -> str:
        """Its name and pid as the wire has them: not to be drawn as they are."""
        if not interval.online[row]:
            return ""
        match interval.tasks.get(str(self._session.topology[row].cpu)):
            case [int(pid), str(name), *_]:
                return f"{name[:64]}:{pid}"
        return ""
