"""One interval of the exported CPUs, as lists of plain values; None where unknown."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Literal

import numpy as np

from perfprobe.frozen import frozen
from perftop.base.arrays import Floats, Ints
from perftop.base.errors import USAGE, Failed
from perftop.model import machine_totals
from perftop.model.metrics import COUNTS, METRICS, Metric
from perftop.model.registry import EVENT, PER_KI, RARE
from perftop.model.smt import STATES
from perftop.output.stat_json import number
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.shared_numbers import L3, PACKAGE, of_cpus


class IntervalRows:
    """The values of an interval. Lists have one entry for each of `rows`; a core's value is given
    for each of its CPUs."""

    def __init__(self, session: Session, interval: Interval) -> None:
        self.session, self.interval, self.rows = session, interval, session.shown
        self.cores: Ints = session.sieve.cores.of_cpu[self.rows]
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


Scope = Literal["cpu", "core", "l3", "package", "machine"]
Kind = Literal["number", "whole", "count", "total", "truth", "text"]
"""`whole`: a number without decimals; `count`: events of the interval; `total`: events so far."""
Values = Callable[[IntervalRows], Sequence[object]]


@frozen
class Field:
    name: str
    help: str
    values: Values
    key: str = ""
    """The key in a line of `stat --json`."""
    kind: Kind = "number"
    scope: Scope = "cpu"
    explained: bool = True
    """The table gives a reason for each missing value."""


def _place(name: str) -> Values:
    return lambda now: [getattr(now.session.topology[row], name) for row in now.rows]


TIME = Field(
    "time_unix_s", "End of the interval, Unix time.",
    lambda now: [now.interval.time] * len(now.rows), scope="machine",
)  # fmt: skip
ELAPSED = Field(
    "elapsed_s", "Length of the interval.",
    lambda now: now.same(now.interval.elapsed_s), scope="machine",
)  # fmt: skip
PLACES = (
    Field("package", "Package of the CPU.", _place("package"), kind="count", explained=False),
    Field("core", "Core of the CPU, as the kernel numbers those of a package.", _place("core"),
          kind="count", explained=False),
    Field("cpu", "Number of the CPU.", _place("cpu"), kind="count"),
)  # fmt: skip
ONLINE = Field(
    "online", "Whether the CPU was on at the end.",
    lambda now: now.interval.online[now.rows].tolist(), kind="truth",
)  # fmt: skip
BELIEF = (
    Field(
        "lost_frames_total", "Frames that were lost on the way so far.",
        lambda now: [now.session.lost] * len(now.rows), "lost", "total", "machine",
    ),
    Field(
        "late_frames_total", "Frames so far of which every CPU missed the time.",
        lambda now: [now.session.late] * len(now.rows), "late", "total", "machine",
    ),
    Field(
        "suspect_counters", "Number of counters of which samples of the interval were left out.",
        lambda now: np.count_nonzero(now.interval.doubts[now.rows], axis=1).tolist(),
        "suspect", "whole",
    ),
)  # fmt: skip
"""How far to believe an interval; these are in every export, whatever measures are chosen."""


def _metric(metric: Metric) -> Field:
    key = metric.key
    ratio = metric.unit == "ratio" and not key.endswith("_ratio")
    name = f"{key}_ratio" if ratio else key
    return Field(name, metric.help, lambda now: now.of_cpu(now.interval.values[key]), key)


def _states() -> Iterable[Field]:
    for i, state in enumerate(STATES):
        yield Field(
            f"smt_{state}_ratio", f"Share of the time in which its core was in state {state}.",
            partial(_state, i), "smt", scope="core",
        )  # fmt: skip
    for end, what in (("low", "least"), ("high", "most")):
        for i, state in enumerate(STATES):
            yield Field(
                f"smt_{state}_{end}_ratio", f"The {what} that {state} can be, by method bounds.",
                partial(_bound, end, i), f"smt_{end}", scope="core", explained=False,
            )  # fmt: skip


def _state(i: int, now: IntervalRows) -> list[object]:
    return now.of_core(now.interval.split.states[:, i])


def _bound(end: str, i: int, now: IntervalRows) -> list[object]:
    values = now.of_core(getattr(now.interval.split, end)[:, i])
    told = zip(values, now.methods(), strict=True)
    return [value if method == "bounds" else None for value, method in told]


_THREADS = Field(
    "active_threads", "Mean number of threads of its core that were not halted.",
    lambda now: now.of_core(now.interval.split.active_threads), "active_threads", scope="core",
)  # fmt: skip
_METHOD = Field(
    "smt_method", "How the states of its core were told.", IntervalRows.methods,
    "smt_method", "text", "core",
)  # fmt: skip


def _ceiling(part: str, now: IntervalRows) -> list[object]:
    return now.of_core(getattr(now.interval.ceilings, part))


_CEILINGS = tuple(
    Field(name, text, partial(_ceiling, part), name, scope="core")
    for name, part, text in (
        ("turbo_ceiling_hz", "hz", "What turbo allows its core for certain."),
        ("turbo_ceiling_low_hz", "low_hz", "The least that its core is allowed to run at."),
        ("turbo_ceiling_high_hz", "high_hz", "The most that its core is allowed to run at."),
    )
)  # fmt: skip


_POWER = Field(
    "core_power_w", "Power of its core, where the CPU tells it.",
    lambda now: now.of_core(now.interval.core_power_w), "core_power_w", scope="core",
)  # fmt: skip


def _count(key: str) -> Field:
    text = f"How far the counter {key} moved, of samples that could be believed."
    return Field(f"{key}_count", text, lambda now: now.counts(key), key, "count")


_COUNTED = Field(
    "counted_ratio", "Share of the time for which perf counted, where it takes turns.",
    lambda now: now.of_cpu(now.interval.counted), "counted", explained=False,
)  # fmt: skip
_MACHINE = {
    "power_w": "Power of all packages.",
    "power_limit_w": "What the power of all packages is limited to.",
    "power_dram_w": "Power of the memory of all packages.",
    "memory_read_bytes_per_s": "What all packages read from memory.",
    "memory_write_bytes_per_s": "What all packages wrote to memory.",
    "memory_of_best": "Traffic to memory as a share of the most in any second of this run.",
    "temperature_c": "Temperature of the hottest package.",
    "interrupts_hz": "Interrupts of all CPUs, per second.",
    "context_switches_hz": "Context switches of all CPUs, per second.",
    "load_1": "Load average of 1 minute, as the kernel tells it.",
    "load_5": "Load average of 5 minutes.",
    "load_15": "Load average of 15 minutes.",
}


def _whole(key: str) -> Field:
    ratio = key in machine_totals.SHARES or key == machine_totals.OF_BEST
    name = f"machine_{key}_ratio" if ratio else f"machine_{key}"
    text = _MACHINE.get(key, "Share of the time in which some task had to wait.")
    return Field(
        name, text, lambda now: now.same(now.interval.machine.get(key, math.nan)), key,
        scope="machine",
    )  # fmt: skip


_OF_PACKAGE = {
    "power_w": "Power of its package.",
    "power_limit_w": "What the power of its package is limited to.",
    "power_dram_w": "Power of the memory of its package.",
    "memory_read_bytes_per_s": "What its package read from memory.",
    "memory_write_bytes_per_s": "What its package wrote to memory.",
    "memory_of_best": "Traffic of its package as a share of the most in any second of this run.",
    "temperature_c": "Temperature of its package.",
}
_OF_L3 = {
    "memory_bytes_per_s": "What its L3 moved from and to memory, where resctrl is mounted.",
    "local_bytes_per_s": "The part of it with memory of its own node.",
    "occupancy_bytes": "How much of its L3 was in use.",
}


def _shared(key: str, name: str, scope: Scope) -> Field:
    column = f"{key}_ratio" if name == machine_totals.OF_BEST else key
    text = (_OF_PACKAGE if scope == "package" else _OF_L3)[name]
    return Field(
        column, text, lambda look: look.of_cpu(of_cpus(look.session, look.interval, key)), key,
        scope=scope,
    )  # fmt: skip


_SHARED = (
    *(_shared(key, name, "package") for key, name in PACKAGE.items()),
    *(_shared(key, name, "l3") for key, name in L3.items()),
)


def _ran(what: str, now: IntervalRows) -> list[object]:
    """A field of the task that ran most on each CPU."""
    cpus = (now.session.topology[row].cpu for row in now.rows)
    found = (now.interval.look.on(str(cpu))[:1] for cpu in cpus)
    return [getattr(each[0].task, what) if each else None for each in found]


def _job(what: str, now: IntervalRows) -> list[object]:
    moved = now.interval.watched
    return now.same(math.nan if moved is None else getattr(moved, what))


_WHO = (
    Field("task", "Name of the task that ran most.", partial(_ran, "comm"), "task", "text",
          explained=False),
    Field("task_pid", "Its process.", partial(_ran, "pid"), "task", "whole", explained=False),
    Field("task_ratio", "Share of the time that it ran.", partial(_ran, "share"), "task",
          explained=False),
    Field("job_run_s", "How long the watched job ran.", partial(_job, "run_s"), "watched",
          scope="machine", explained=False),
    Field("job_wait_s", "How long it waited for a CPU.", partial(_job, "wait_s"), "watched",
          scope="machine", explained=False),
    Field("job_preemptions", "How often it lost its CPU.", partial(_job, "involuntary"),
          "watched", scope="machine", explained=False),
)  # fmt: skip


MEASURES = (
    *map(_metric, METRICS.values()), _METHOD, *_states(), _THREADS, *_CEILINGS, _POWER,
    *map(_count, ("tsc", *COUNTS)), _COUNTED, *map(_whole, machine_totals.NAMES), *_SHARED, *_WHO,
)  # fmt: skip


def chosen(names: Sequence[str] | None) -> tuple[Field, ...]:
    """The measures with these column names or keys; None: all. Those of chosen events, which only
    a session knows, come by `with_events`. Raises Failed."""
    if names is None:
        return MEASURES
    counts = {field.key for field in MEASURES if field.kind == "count"}
    known = {field.name for field in MEASURES}
    known |= {field.key for field in MEASURES if field.kind != "count"}
    for name in names:
        if name not in known and not name.startswith(EVENT) and name not in RARE:
            near = difflib.get_close_matches(name, sorted(known | counts), 3, 0.5)
            there = near or [field.key for field in MEASURES if field.kind != "count"]
            text = f"--metrics: no {name!r}; there is {', '.join(dict.fromkeys(there))}"
            raise Failed(text, USAGE)
    return _asked(MEASURES, names)


def _asked(fields: Iterable[Field], names: Sequence[str]) -> tuple[Field, ...]:
    """Those with these names or keys; a count has the key of its rate, so it goes by its name."""
    return tuple(f for f in fields if f.name in names or (f.key in names and f.kind != "count"))


def with_events(
    session: Session, measures: tuple[Field, ...], names: Sequence[str] | None
) -> tuple[Field, ...]:
    """The measures, and those of the chosen events of a stream that are asked for. Raises
    Failed."""
    events = [field for key in session.evaluator.registry.counters for field in _of_event(key)]
    rare = [_metric(m) for m in session.evaluator.registry.events.values() if m.key in RARE]
    if names is None:
        return (*measures, *events, *rare)
    events += rare
    for name in names:
        if name in RARE and name not in session.evaluator.metrics:
            raise Failed(f"--metrics: {name!r} is not counted here", USAGE)
        if name.startswith(EVENT) and all(name not in {f.name, f.key} for f in events):
            there = ", ".join(session.evaluator.registry.counters) or "none: they come by -e"
            raise Failed(f"--metrics: no event {name!r} here; there is {there}", USAGE)
    return (*measures, *_asked(events, names))


def _of_event(key: str) -> tuple[Field, ...]:
    name, per_ki = key.removeprefix(EVENT), key + PER_KI
    return (
        Field(f"{key}_hz", f"Events {name} per second.",
              lambda now: now.of_cpu(now.interval.values[key]), key),
        Field(f"{key}_per_ki", f"Events {name} per thousand instructions.",
              lambda now: now.of_cpu(now.interval.values[per_ki]), per_ki),
        _count(key),
        Field(f"{key}_counted_ratio", f"Share of the time for which {name} was counted.",
              lambda now: now.of_cpu(now.interval.shares.get(key)), key, explained=False),
    )  # fmt: skip
