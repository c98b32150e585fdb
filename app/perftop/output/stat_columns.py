"""Which numbers the tables of `stat` have, and their text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import nan

import numpy as np

from perfprobe.frozen import frozen
from perftop.base.arrays import Floats
from perftop.base.format import clock_ghz, percent, plain, prefixed
from perftop.model.machine_totals import MEMORY
from perftop.model.registry import EVENT
from perftop.model.smt import STATES
from perftop.session.columns import by_key, counted, possible
from perftop.session.interval import Interval
from perftop.session.session import Session
from perftop.session.shared_numbers import PACKAGE, of_cpus

USUAL = ("util", "busy_hz", "net_hz", "halt", "idle", "poll", "involuntary", "steal", "ipc",
         "kernel_cycles", "kernel_instructions")  # fmt: skip
"""Columns that nobody has to ask for: the most useful metrics that fit into a line."""
STATE_WIDTH = 8
"""Characters of the widest range: 100..100."""
Show = Callable[[float], str]
SHOWS: dict[str, Show] = {
    "ratio": percent,
    "Hz": clock_ghz,
    "GB/s": lambda rate: plain(rate / 1e9),
    "B": prefixed,
}
UNITS = {"ratio": "%", "Hz": "GHz", "1/s": "/s"}
_WHOLE = {
    "power_w": ("power", "W"), "power_dram_w": ("dram", "W"),
    "power_limit_w": ("limit", "W"), "temperature_c": ("temp", "°C"),
    "pressure_cpu": ("p cpu", "ratio"), "pressure_memory": ("p mem", "ratio"),
    "pressure_io": ("p io", "ratio"), "interrupts_hz": ("intr", "/s"),
    "context_switches_hz": ("ctxt", "/s"), "load_1": ("load 1", ""), "load_5": ("load 5", ""),
    "load_15": ("load 15", ""), "memory_of_best": ("mem", "ratio"),
    **dict(zip(MEMORY, (("mem rd", "GB/s"), ("mem wr", "GB/s")), strict=True)),
}  # fmt: skip
"""Heading and unit of the numbers that only the machine has."""
_SHARED = {
    **{key: (f"p {_WHOLE[name][0]}", _WHOLE[name][1]) for key, name in PACKAGE.items()},
    "l3_memory_bytes_per_s": ("L3 mem", "GB/s"), "l3_local_bytes_per_s": ("L3 local", "GB/s"),
    "l3_occupancy_bytes": ("L3 used", "B"),
}  # fmt: skip
"""The same of the numbers that a CPU shares with its package or its L3."""


@frozen
class Shown:
    """A column, but for the states of cores."""

    key: str
    label: str
    unit: str
    of_machine: bool = False

    @property
    def title(self) -> tuple[str, str]:
        return self.label, UNITS.get(self.unit, "" if self.unit == "1" else self.unit)

    @property
    def width(self) -> int:
        return max(5, len(self.label))

    def text(self, value: float) -> str:
        return SHOWS.get(self.unit, prefixed if self.unit.endswith("/s") else plain)(value)

    def of_cpus(self, session: Session, interval: Interval) -> Floats:
        """Values by position of the CPU."""
        if self.of_machine:
            return np.full(len(session.topology), nan)
        if self.key in _SHARED:
            return of_cpus(session, interval, self.key)
        return counted(self.key, session, interval)

    def of_all(self, session: Session, interval: Interval) -> str:
        """Text of the machine's value; '' for what only a CPU has."""
        if self.of_machine:
            return self.text(interval.machine.get(self.key, nan))
        if self.key not in session.evaluator.metrics:
            return ""
        return self.text(interval.values.over(self.key, session.shown))


def columns(session: Session, asked: Sequence[str] | None) -> tuple[Shown, ...]:
    """The columns asked for by key, else the usual ones that this stream can tell."""
    if asked is None:
        there = [key for key in USUAL if session.evaluator.chosen[key]]
        chosen = session.evaluator.chosen
        there += [key for key in chosen if key.startswith(EVENT) and chosen[key]]
        return tuple(_column(session, key) for key in there)
    left = dict.fromkeys(key for key in asked if key not in {"smt", "task", *STATES})
    return tuple(_column(session, key) for key in left)


def has_states(asked: Sequence[str] | None) -> bool:
    return asked is None or not {"smt", *STATES}.isdisjoint(asked)


def known(key: str) -> bool:
    """Whether a table can have it."""
    return possible(key) or key in _WHOLE or key in _SHARED or key == "smt"


def _column(session: Session, key: str) -> Shown:
    if key in _WHOLE:
        return Shown(key, *_WHOLE[key], of_machine=True)
    if key in _SHARED:
        return Shown(key, *_SHARED[key])
    column = by_key(session)[key]
    return Shown(key, column.label, column.unit)
