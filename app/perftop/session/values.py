"""Values of numbers in one interval, by key: of the machine, and of CPUs, including numbers that a
core, package or L3 shares. `CpuColumns` provides the numbers that a table of CPUs can show.

The second part gives the reasons why a value is missing, as text for all outputs. `model.numbers`
has the names, units and digits of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from math import isfinite, isnan, nan
from operator import attrgetter

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Bools, Floats, Ints
from perftop.base.text import ClockUnit, printable, ranges
from perftop.model import numbers
from perftop.model.counters import MIN_COUNTED_SHARE, with_extra_column
from perftop.model.delta import Doubt, doubts_by_cpu
from perftop.model.evaluation import LOST_RATIO, MEMORY_COUNTERS, MEMORY_SHARE, TICK_S
from perftop.model.numbers import (
    COUNTER_BY_NAME,
    COUNTS,
    EVENT_PREFIX,
    L3_COUNTERS,
    METRICS,
    PACKAGE_NAMES,
    PER_KI,
    RARE_METRICS,
    Number,
)
from perftop.model.smt import ANY_COUNTERS, STATES, TRACED_COUNTERS
from perftop.session.interval import Interval
from perftop.session.session import Session

MAX_NAME_LENGTH = 64
"""Maximum number of characters of a task's name in a table."""
_KEYS = (*METRICS, "both", "lp0", "lp1", "neither", "turbo_ceiling_hz", "smi", "task")
COLUMNS_BY_KEY: dict[str, Number] = {key: numbers.NUMBERS[key] for key in _KEYS}
"""Numbers that a table of CPUs can show in any stream."""
PACKAGE_FIELDS = dict(zip(numbers.PACKAGE, PACKAGE_NAMES, strict=True))
"""The name of a package's number in JSON output, by the number's key."""
L3_FIELDS = dict(zip(numbers.L3, L3_COUNTERS, strict=True))
"""The name of an L3's number in JSON output, by the number's key."""
CORE_ARRAYS = {
    "turbo_ceiling_hz": "ceilings.hz", "turbo_ceiling_low_hz": "ceilings.low_hz",
    "turbo_ceiling_high_hz": "ceilings.high_hz", "active_threads": "split.active_threads",
    "core_power_w": "core_power_w",
}  # fmt: skip
"""The attribute of an interval that holds a core number's values, by the number's key."""


def is_possible_column(key: str) -> bool:
    """Returns whether a stream can have a column with this key."""
    return key in COLUMNS_BY_KEY or numbers.is_event_key(key)


def columns_by_key(session: Session) -> dict[str, Number]:
    """Returns all columns of a stream. Chosen events follow the first two columns."""
    events = session.evaluator.registry.events
    first = {key: COLUMNS_BY_KEY[key] for key in ("util", "busy_hz")}
    return first | events | COLUMNS_BY_KEY if events else COLUMNS_BY_KEY


def cpu_values(session: Session, interval: Interval, key: str) -> Floats:
    """Returns values by CPU; NaN where unknown. The number may be one of the CPU, of its core,
    package or L3, or a counter's rate per second."""
    if key in session.evaluator.metrics:
        return interval.values[key]
    if key in STATES:
        return interval.cores.by_cpu(interval.split.states[:, STATES.index(key)])
    if key in CORE_ARRAYS:
        return interval.cores.by_cpu(attrgetter(CORE_ARRAYS[key])(interval))
    values = np.full(len(session.topology), nan)
    if key in PACKAGE_FIELDS:
        rows = interval.packages.get(PACKAGE_FIELDS[key])
        if rows is not None:
            return with_extra_column(rows, nan)[interval.cores.package_by_cpu]
    elif key in L3_FIELDS:
        rows = interval.caches.get(L3_FIELDS[key], np.zeros(0))
        known_rows = np.flatnonzero(np.isfinite(rows)).tolist()
        positions = {session.topology[row].l3: row for row in known_rows}
        for row, entry in enumerate(session.topology):
            if entry.l3 in positions:
                values[row] = rows[positions[entry.l3]]
    elif interval.elapsed_s and (count := interval.counts.get(key)) is not None:
        return count / interval.elapsed_s if len(count) == len(values) else values
    return values


MIN_TICKS = 5
"""Minimum number of ticks of busy time in an interval that divide it into user and kernel time."""


def has_few_ticks(interval: Interval) -> Bools:
    """Returns, by CPU, whether it was busy for fewer than MIN_TICKS ticks. The shares that the
    kernel counts in ticks (`is_coarse`) then contradict the busy share, which is exact."""
    return np.asarray(interval.values["util"] * interval.elapsed_s < MIN_TICKS * TICK_S)


def machine_value(session: Session, interval: Interval, key: str) -> float:
    """Returns a number of the machine, or its mean over the selected CPUs; NaN where unknown."""
    if key in interval.machine:
        return interval.machine[key]
    if key in session.evaluator.metrics:
        return interval.values.mean(key, session.selected)
    if key in STATES:
        return interval.split.mean(key, session.selected_cores())
    return nan


def displayed_values(column: Number, session: Session, interval: Interval) -> Floats:
    """Returns `cpu_values`, but NaN for a CPU at rest if the number is per running time."""
    values = cpu_values(session, interval, column.key)
    return np.where(interval.is_at_rest, nan, values) if column.while_running else values


def mean_ceiling(ceilings: Floats, util: Floats) -> float:
    """Returns the mean ceiling of CPUs in Hz, weighted with their busy time, like the mean clock.
    If all are at rest, returns the highest ceiling."""
    is_known = np.isfinite(ceilings) & np.isfinite(util)
    weights = np.where(is_known, util, 0.0)
    total = float(weights.sum())
    if total <= 0:
        return float(np.fmax.reduce(ceilings, axis=None, initial=nan))
    return float((weights * np.where(is_known, ceilings, 0.0)).sum() / total)


def suspect_rows(key: str, session: Session, interval: Interval) -> Bools:
    """Returns a mask of the CPUs with a suspect counter for this number. A core's states depend on
    the counters of all its CPUs."""
    if not np.count_nonzero(interval.doubts):  # the usual case
        return np.zeros(len(interval.doubts), bool)
    needed_keys = {"tsc", key}
    if key in session.evaluator.metrics:
        needed_keys = {"tsc", *session.evaluator.needed_counters(key)}
    elif key in STATES:
        any_counter = session.reader.splitter.any_counter() or ""
        needed_keys = {"tsc", any_counter, *session.evaluator.needed_counters("util")}
    indexes = [i for i, name in enumerate(interval.keys) if name in needed_keys]
    mask = np.asarray(interval.doubts[:, indexes].any(axis=1), bool)
    if key in STATES and mask.any():
        of_cpu = interval.cores.core_by_cpu
        return np.asarray(np.isin(of_cpu, of_cpu[mask]) & (of_cpu >= 0))
    return mask


class CpuColumns:
    """The columns that a table of one stream's CPUs can show, with their values."""

    def __init__(self, session: Session) -> None:
        self._session = session
        cores = session.reader.cores
        positions = zip(session.topology, cores.core_by_cpu.tolist(), strict=True)
        self.first_cpus = [row.cpu if core < 0 else cores.lists[core][0] for row, core in positions]
        """For each CPU, the first CPU of its core, or itself if its core is unknown."""
        self.by_key = columns_by_key(session)
        counters, columns = session.counters.columns, self.by_key.items()
        counted_keys = {key for key, variants in session.evaluator.variants.items() if variants}
        threads = {len(core) for core in session.cores}
        if 2 in threads and any(key in counters for key in (*ANY_COUNTERS, *TRACED_COUNTERS)):
            counted_keys |= set(STATES)
        elif max(threads, default=1) > 2:
            counted_keys.add("neither")
        if session.reader.turbo.cpus.any():
            counted_keys.add("turbo_ceiling_hz")
        counted_keys |= {"smi"} & counters.keys()
        self._counted_columns = tuple(column for key, column in columns if key in counted_keys)

    def columns(self) -> tuple[Number, ...]:
        """Returns the columns of this stream. The task column is included once tasks are known."""
        task = (COLUMNS_BY_KEY["task"],) if self._session.tasks else ()
        return (*self._counted_columns, *task)

    def values(self, key: str, interval: Interval) -> Floats:
        """Returns values by CPU; NaN where unknown or not displayed."""
        column = self.by_key.get(key)
        if column is None:
            return cpu_values(self._session, interval, key)
        return displayed_values(column, self._session, interval)

    def sorted_rows(
        self, rows: Ints, column: Number, interval: Interval, clock: ClockUnit, *, reverse: bool
    ) -> Ints:
        """Returns the rows sorted by a column: numbers in descending order, names from a to z,
        unknown values last. Values that are displayed alike count as equal, so that rows do not
        swap without a visible reason."""
        if not column.unit:
            names = {
                row: self._named_task(row, interval).casefold()
                for row in rows.tolist()
                if not self._unaccounted_text(row, interval)
            }
            named_rows = sorted(filter(names.get, names), key=names.__getitem__, reverse=reverse)
            other_rows = (row for row in rows.tolist() if not names.get(row))
            return np.array([*named_rows, *other_rows], np.intp)
        scale, digits = column.scale(clock)
        known_values = np.where(interval.online, self.values(column.key, interval), nan)
        values = np.round(known_values[rows] * scale, digits)
        return rows[np.argsort(values if reverse else -values, kind="stable")]

    def task(self, row: int, interval: Interval) -> str:
        """Returns the untrusted name and PID of the task that used the CPU most; make them
        printable before drawing. If the known tasks together used less than half of the busy time,
        returns a text about the unaccounted part instead."""
        return self._unaccounted_text(row, interval) or self._named_task(row, interval)

    def _unaccounted_text(self, row: int, interval: Interval) -> str:
        if not interval.tasks or not interval.online[row]:
            return ""
        tasks = interval.snapshot.tasks_on(str(self._session.topology[row].cpu))
        known_share = sum(task.share for task in tasks)
        return unaccounted_text(float(interval.values["util"][row]), known_share)

    def _named_task(self, row: int, interval: Interval) -> str:
        if not interval.online[row]:
            return ""
        match interval.tasks.get(str(self._session.topology[row].cpu)):
            case [int(pid), str(name), *_]:
                return f"{name[:MAX_NAME_LENGTH]}:{pid}"
        return ""


MIN_NAMED_UTIL = 0.05
"""Minimum busy share of a CPU whose unaccounted part is described."""


def unaccounted_text(busy: float, known_share: float) -> str:
    """Describes the busy time that known tasks do not account for; '' if it is less than half.
    `busy`, `known_share`: shares of the time for which the CPU was busy, and for which known tasks
    ran."""
    is_unseen = busy > MIN_NAMED_UTIL and known_share < busy / 2
    return f"not seen {100 * (1 - known_share / busy):.0f} %" if is_unseen else ""


# --- Texts for all outputs on why a number is missing, in the whole stream or in one interval.

UNCOUNTED_REASON = "not available from this source"
CPU_OFF_REASON = "the CPU is off"
NEVER_COUNTED_REASON = "other events used the counters all the time"
ESTIMATED_REASON = (
    "other events took turns on the counters, so halts are estimates with large errors"
)
GUESTS_REASON = "guests may run, and their time is not counted, so halts are not known"
UNREAD_REASON = "not read in this interval"
IDLE_REASON = "it had work for less than a tenth of every sample"
THREADS_REASON = "for cores with more than two threads, only the state 'neither' is known"
BOUNDS_REASON = "only their bounds are known"
READ_APART_REASON = "its CPUs were not read over the same time span"
SUM_COUNTERS = {"energy_j": "energy_j", "energy_dram_j": "energy_ram_j",
                "probe_cpu_s": "probe_cpu_s", "core_power_w": "energy_core_j"}  # fmt: skip
"""The key of the counter of a number of a whole run or a core, by the number's key."""
_NAMED_KEYS = ("util", "busy_hz", "ipc", "halt", "involuntary", "kernel_cycles", "turbo_ceiling_hz",
               "idle", "steal")  # fmt: skip
LISTED_NAMES = {key: numbers.NUMBERS[key].plain_name for key in _NAMED_KEYS} | {
    "halt": "halts", "involuntary": "halts", "tasks": "task data",
}  # fmt: skip
"""By key, the names of the numbers that are listed if missing, in display order."""


def lasting_reasons(session: Session) -> list[wire.Missing]:
    """Returns the reasons why numbers are missing in the whole stream, by keys that users see."""
    missing_by_key = {m.what: m for m in session.hello.missing}
    reasons = [*session.hello.missing]
    for key, is_served, text in (
        ("base_hz", session.hello.base_hz, "no register or file here reports it"),
        ("tsc_hz", session.hello.tsc_hz, "the rate of the time-stamp counter is not known here"),
        ("tsc", session.counters.has_tsc or None, "no time-stamp counter is read here"),
    ):
        if is_served is None and key not in missing_by_key:
            reasons.append(wire.Missing(key, text))
    reasons += _metric_reasons(session, missing_by_key)
    columns, explained_keys = session.counters.columns, {m.what for m in reasons}
    missing_keys = [key for key in COUNTS if key not in columns and key not in explained_keys]
    reasons += [wire.Missing(key, UNCOUNTED_REASON) for key in missing_keys]
    for name, counter in (COUNTER_BY_NAME | SUM_COUNTERS).items():
        if counter not in columns and name not in missing_by_key:
            # the hello message has the reason
            kind = "power" if name == "energy_j" else name.partition("_")[0]
            reason = missing_by_key.get(counter) or missing_by_key.get(kind)
            reasons.append(_as_missing(name, reason, UNCOUNTED_REASON))
    has_limits = session.reader.turbo.cpus
    if "turbo_ceiling_hz" not in missing_by_key and not has_limits.all():
        rows = zip(session.topology, has_limits, strict=True)
        cpus = [row.cpu for row, is_served in rows if not is_served]
        # Either the turbo tables or the registers with the limits are missing.
        reason = missing_by_key.get("turbo") or missing_by_key.get("limit_reasons")
        text = "perftop knows no register with the turbo limits of this CPU"
        some_cpus = cpus if has_limits.any() else None
        reasons.append(_as_missing("turbo_ceiling_hz", reason, text, some_cpus))
    return reasons


def _metric_reasons(
    session: Session, missing_by_key: Mapping[str, wire.Missing]
) -> Iterator[wire.Missing]:
    """Yields the reasons why metrics are missing on all CPUs or on some CPUs."""
    for key, variants in session.evaluator.variants.items():
        if key in missing_by_key:
            continue
        if (missing_counter := session.evaluator.first_missing_counter(key)) is not None:
            text = f"this source has no counter {missing_counter}"
            yield _as_missing(key, missing_by_key.get(missing_counter), text)
            continue
        is_served = np.any([mask for _, mask in variants], axis=0)
        if is_served.all():
            continue
        rows = zip(session.topology, is_served, strict=True)
        cpus = [row.cpu for row, has_metric in rows if not has_metric]
        needed_keys = session.evaluator.metrics[key].variants[0].needs
        reasons = (m for m in session.hello.missing if m.what in needed_keys)
        reason = next((m for m in reasons if not set(cpus).isdisjoint(m.cpus or ())), None)
        yield _as_missing(key, reason, "this CPU has no counter for it", cpus)


def _as_missing(
    key: str, reason: wire.Missing | None, default: str, cpus: list[int] | None = None
) -> wire.Missing:
    if reason is None:
        return wire.Missing(key, default, None, cpus)
    return wire.Missing(key, reason.why, reason.fix, cpus)


def doubt_texts(
    interval: Interval, row: int, needed_keys: Container[str] | None = None
) -> list[str]:
    """Returns the reasons why a CPU's counters are suspect. `needed_keys`: only these counters."""
    codes = sorted(doubts_by_cpu(interval.doubts[row : row + 1], interval.keys).get(0, ()))
    if {code for _, code in codes} == {Doubt.BACKWARDS}:  # the whole read is suspect
        return [Doubt.BACKWARDS.text]
    needed_codes = (c for c in codes if needed_keys is None or c[0] in needed_keys)
    return [f"{key}: {code.text}" for key, code in needed_codes]


class Reasons:
    """The reasons why values of one stream are missing."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lasting_reasons: dict[str, list[wire.Missing]] = {}
        for reason in lasting_reasons(session):
            self._lasting_reasons.setdefault(reason.what, []).append(reason)
        self._reason_cache: dict[tuple[str, int | None], wire.Missing | None] = {}
        """Cached results of `lasting_reason`. A table needs one for each empty cell."""

    def lasting_reason(self, key: str, cpu: int | None = None) -> wire.Missing | None:
        """Returns the reason why a value is missing in the whole stream. `cpu`: the CPU with the
        missing value; None: all CPUs."""
        if (key, cpu) not in self._reason_cache:
            lasting = self._lasting_reasons.get(key, ())
            reasons = (m for m in lasting if m.cpus is None or cpu in m.cpus)
            self._reason_cache[key, cpu] = next(reasons, None)
        return self._reason_cache[key, cpu]

    def machine_reason(self, key: str) -> str:
        return _reason_text(self.lasting_reason(key)) or UNREAD_REASON

    def l3_reason(self, name: str) -> str:
        """Returns why a number of L3s is missing. `name`: its name in JSON output."""
        counter = L3_COUNTERS[name]
        if counter in self._session.counters.columns:
            return UNREAD_REASON
        keys = counter, *L3_COUNTERS.values()
        reasons = (_reason_text(self.lasting_reason(key)) for key in keys)
        return next((text for text in reasons if text), UNCOUNTED_REASON)

    def cpu_reason(self, key: str, interval: Interval, row: int, *, count: bool = False) -> str:
        """Returns why a CPU's number is missing. `count`: it is a counter, not a metric."""
        if not interval.online[row]:
            return CPU_OFF_REASON
        cpu = self._session.topology[row].cpu
        metric = self._session.evaluator.metrics.get(key)
        if metric is not None and not count:
            if self._session.evaluator.cpus_with(key)[row]:
                return absence_reason(self._session, interval, row, key)
            needed_keys = (need for variant in metric.variants for need in variant.needs)
            texts = (_reason_text(self.lasting_reason(name, cpu)) for name in (key, *needed_keys))
            return next((text for text in texts if text), "not counted on this CPU")
        lasting = _reason_text(self.lasting_reason(key, cpu))
        return lasting or absence_reason(self._session, interval, row, key)

    def states_reason(self, interval: Interval, row: int) -> str:
        """Returns why the SMT states of the CPU's core are missing."""
        if not interval.online[row]:
            return CPU_OFF_REASON
        core = int(interval.cores.core_by_cpu[row])
        method = interval.split.method[core] if core >= 0 else None
        if method is None:
            return "its core is not known"
        if method == "bounds":
            return BOUNDS_REASON
        reason = state_reasons(self._session, interval, core)
        return next(iter(reason.values()), UNREAD_REASON)

    def short_reason(self, key: str, row: int, *, bounds: bool) -> str:
        """Returns in a few words why a value is missing. `bounds`: whether bounds are known."""
        if (missing := self.lasting_reason(key, self._session.topology[row].cpu)) is not None:
            return missing.why
        metric = self._session.evaluator.metrics.get(key)
        if metric is None:
            return "SMT states are not counted here" if bounds else "SMT states are not known"
        return "it did not run" if metric.while_running else "not measured"


def _reason_text(missing: wire.Missing | None) -> str:
    return missing.why if missing is not None else ""


def absence_reason(session: Session, interval: Interval, row: int, key: str) -> str:
    """Returns why a value that the source generally has is missing in this interval."""
    if not interval.online[row]:
        return CPU_OFF_REASON
    metric = session.evaluator.metrics.get(key)
    needed_keys = {key} if metric is None else session.evaluator.needed_counters(key)
    event_shares = interval.event_counted_shares
    events = [event_shares[name][row] for name in needed_keys & event_shares.keys()]
    is_multiplexed = not needed_keys.isdisjoint(session.counters.multiplexed)
    share = (
        interval.counted_share[row]
        if is_multiplexed and interval.counted_share is not None
        else 1.0
    )
    if suspect_texts := doubt_texts(interval, row, {"tsc", *needed_keys}):
        return "; ".join(suspect_texts)
    if key == "involuntary" and share < MIN_COUNTED_SHARE:
        return ESTIMATED_REASON
    if key == "involuntary" and session.counters.without_guests[row]:
        return GUESTS_REASON
    if key == LOST_RATIO:
        return IDLE_REASON
    halted = interval.values["util"][row] == 0
    if metric is not None and metric.while_running and halted:
        return "the CPU was halted throughout"
    # Rows whose multiplexed events were not counted also count as not read.
    unread = isnan(interval.values["util"][row])
    if any(s == 0 or (isnan(s) and not unread) for s in (share, *events)):
        return NEVER_COUNTED_REASON
    return UNREAD_REASON


def unknown_reason(session: Session, interval: Interval, rows: Sequence[int], key: str) -> str:
    """Returns why a metric that the source generally has is missing for all of these CPUs."""
    served_rows = (row for row in rows if session.evaluator.cpus_with(key)[row])
    reasons = (absence_reason(session, interval, row, key) for row in served_rows)
    texts = dict.fromkeys(text for reason in reasons for text in reason.split("; "))
    return "; ".join(texts) or "not counted on these CPUs"


def state_reasons(session: Session, interval: Interval, core: int) -> dict[str, str]:
    """Returns why a core's SMT states are missing, by key; {} if they or bounds are known."""
    split, cpus = interval.split, interval.cores.lists[core]
    method = split.method[core]
    is_known_by_key = {"smt": all(map(isfinite, split.shares(core).values()))}
    is_known_by_key["smt_method"] = method is not None
    is_known_by_key["active_threads"] = isfinite(split.active_threads[core])
    missing_keys = [key for key, is_known in is_known_by_key.items() if not is_known]
    if not missing_keys or (method == "bounds" and isfinite(split.low[core][0])):
        return {}
    rows = [session.position[cpu] for cpu in cpus]
    online_rows = [row for row in rows if interval.online[row]] or rows
    any_counter = (method or "").replace("-", "_")
    needed_keys = {"tsc", any_counter, *session.evaluator.needed_counters("util")}
    row_texts = (doubt_texts(interval, row, needed_keys) for row in online_rows)
    texts = dict.fromkeys(text for texts in row_texts for text in texts)
    dark = next((row for row in online_rows if isnan(interval.values["util"][row])), None)
    if texts:
        text = "; ".join(texts)
    elif dark is not None and not session.evaluator.cpus_with("util")[dark]:
        text = "busy time is not counted here"
    elif dark is not None or not interval.online[online_rows[0]]:
        text = absence_reason(session, interval, online_rows[0] if dark is None else dark, "util")
    else:
        text = READ_APART_REASON
    reasons = dict.fromkeys(missing_keys, text)
    if cpus[2:] and is_known_by_key["active_threads"]:
        reasons["smt"] = THREADS_REASON
    return reasons


Reason = tuple[str, str | None]
"""A reason, and how to fix it (None if unknown)."""


def names_by_reason(
    reasons: Iterable[wire.Missing], name: Callable[[wire.Missing], str | None]
) -> dict[Reason, list[str]]:
    """Returns the names of missing numbers by reason. `name` returns None or '' to omit one."""
    names: dict[Reason, dict[str, None]] = {}
    for missing in reasons:
        if label := name(missing):
            names.setdefault((missing.why, missing.fix), {})[label] = None
    return {reason: [*labels] for reason, labels in names.items()}


def missing_text(session: Session) -> list[str]:
    """Returns a line for each reason: the missing numbers, the reason and the fix."""
    lines = names_by_reason(lasting_reasons(session), _listed_name).items()
    texts = ((f"n/a: {', '.join(labels)} - {reason}", fix) for (reason, fix), labels in lines)
    return [text + (f" · {fix}" if fix else "") for text, fix in texts]


_MACHINE_KEYS = {"l3_groups", "power_dram_w", "energy_dram_j", "core_power_w"}


_BANDWIDTH = {*MEMORY_COUNTERS, *MEMORY_COUNTERS.values(), MEMORY_SHARE}


def _listed_name(missing: wire.Missing) -> str | None:
    """Returns the label of a missing number; None for numbers per 1000 instructions, because
    instructions themselves are listed, and for numbers that few machines have."""
    key = missing.what
    if key.endswith(PER_KI) or key in _MACHINE_KEYS:
        return None
    if key in _BANDWIDTH:
        return "memory bandwidth"
    metric = METRICS.get(key) or RARE_METRICS.get(key)
    cpus_text = "" if missing.cpus is None else f" on CPUs {ranges(missing.cpus)}"
    return (metric.label if metric else printable(key.removeprefix(EVENT_PREFIX))) + cpus_text
