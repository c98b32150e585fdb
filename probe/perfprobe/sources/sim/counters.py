"""The per-CPU counters: integrals of the schedule in the units and widths of real hardware."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfprobe.frozen import frozen
from perfprobe.sources.sim import machine as hw
from perfprobe.sources.sim.cells import Row
from perfprobe.sources.sim.machine import Ints, Machine
from perfprobe.wire import Block, Counter

STAT_NS = 10_000_000  # a tick of /proc/stat
UPTIME_TICKS = 25_000_000
Words = NDArray[np.uint64]


@frozen
class SimCounter:
    counter: Counter
    amount: Callable[[Ints], Any]
    """Ticks since the start, per CPU, from integrals (Row, CPU)."""
    first: int = 0
    """Value at the start on CPU 0; each further CPU starts `step` higher."""
    step: int = 1000
    """Offset between CPUs; for counters that move in quanta, one quantum."""


_COUNTED = (
    ("cycles", "core cycles", "cycles", Row.CYCLES, 5e9),
    ("instructions", "instructions", "instructions", Row.INSTRUCTIONS, 3e9),
    ("kernel_cycles", "kernel cycles", "cycles", Row.KERNEL_CYCLES, 5e7),
    ("kernel_instructions", "kernel instructions", "instructions", Row.KERNEL_INSTRUCTIONS, 2e7),
)
"""Key, name, unit, what is counted, and ticks before it wraps."""


def crystal(ns: Ints) -> Ints:
    """Ticks of the crystal in so many ns. The core's reference clocks move only with these."""
    return ns // hw.TICK_NS


def cpu_columns(machine: Machine, license_events: bool) -> list[SimCounter]:
    bits = 40 if machine.smt > 2 else 48
    columns = [
        sim_counter(
            "ref", "reference cycles", "cycles", lambda t: crystal(t[Row.RUN]) * hw.TICK_TSC, 6.3e9,
            bits=bits, step=hw.TICK_TSC,
        ),
        *(
            sim_counter(key, name, unit, _thousandth(row), before_wrap, bits=bits)
            for key, name, unit, row, before_wrap in _COUNTED
        ),
        *_smt(machine, bits),
        sim_counter("aperf", "APERF", "cycles", _thousandth(Row.CYCLES)),
        # At the rate of the TSC, but not in quanta of the crystal.
        sim_counter("mperf", "MPERF", "cycles", lambda t: t[Row.RUN] * 21 // 10),
        sim_counter("smi", "SMIs", "1", lambda t: t[Row.SMI], bits=32),
        sim_counter("idle_s", "idle states", "s", _thousandth(Row.IDLE), scale=1e-6),
        sim_counter("poll_s", "idle polling", "s", _thousandth(Row.POLL), scale=1e-6),
        sim_counter("idle_entries", "idle entries", "1", lambda t: t[Row.ENTRIES]),
    ]  # fmt: skip
    if license_events:
        columns += [
            sim_counter("license_1", "license 1 cycles", "cycles", _thousandth(Row.LICENSE_1)),
            sim_counter("license_2", "license 2 cycles", "cycles", _thousandth(Row.LICENSE_2)),
        ]
    if machine.hybrid:
        columns.append(_base_hz(machine))
    return columns


def sim_counter(
    key: str, name: str, unit: str, amount: Callable[[Ints], Any], before_wrap: float = 0,
    *, bits: int = 64, scale: float = 1.0, step: int = 1000,
) -> SimCounter:  # fmt: skip
    """A counter that starts `before_wrap` ticks before it wraps, or at zero if that is 0."""
    first = 2**bits - int(before_wrap) if before_wrap else 0
    return SimCounter(Counter(key, name, unit, "sim", bits=bits, scale=scale), amount, first, step)


def _thousandth(row: Row) -> Callable[[Ints], Any]:
    """Cycles and instructions, which are summed up x 1000; ns as us."""
    return lambda t: t[row] // 1000


def _smt(machine: Machine, bits: int) -> list[SimCounter]:
    if machine.smt == 1:
        return []
    key, name = ("one_thread", "one thread active")
    if machine.smt > 2:
        key, name = ("any_thread", "any thread active")
    cpus = machine.p_cpus if machine.hybrid else None
    counter = Counter(key, name, "1", "sim", bits=bits, cpus=cpus)
    return [SimCounter(counter, lambda t: crystal(t[Row.SMT]), 2**bits - 60_000_000)]


def _base_hz(machine: Machine) -> SimCounter:
    kinds = [machine.row(cpu).type or "P" for cpu in range(machine.cpus)]
    hz = np.array([hw.BASE_MHZ[kind] * 1_000_000 for kind in kinds], np.int64)
    counter = Counter("base_hz", "base clock", "Hz", "cpufreq", kind="gauge")
    return SimCounter(counter, lambda _: hz, step=0)


def stat_columns() -> list[SimCounter]:
    """Counters of /proc/stat. Interrupt times are parts of the kernel's time."""

    def ticks(ns: Ints) -> Ints:
        return ns // STAT_NS

    system, iowait = _thousandth(Row.SYSTEM), _thousandth(Row.IOWAIT)
    amounts: list[tuple[str, Callable[[Ints], Any]]] = [
        ("stat_user_s", lambda t: ticks(t[Row.BUSY] - system(t))),
        ("stat_nice_s", lambda t: 0 * t[Row.BUSY]),
        ("stat_system_s", lambda t: ticks(system(t) - system(t) // 8 - system(t) // 32)),
        ("stat_idle_s", lambda t: ticks(t[Row.IDLE] + t[Row.POLL] - iowait(t))),
        ("stat_iowait_s", lambda t: ticks(iowait(t))),
        ("stat_irq_s", lambda t: ticks(system(t) // 32)),
        ("stat_softirq_s", lambda t: ticks(system(t) // 8)),
        ("stat_steal_s", lambda t: ticks(t[Row.STEAL])),
    ]
    return [
        SimCounter(
            Counter(key, key[5:-2] + " time", "s", "/proc/stat", scale=0.01),
            amount,
            UPTIME_TICKS if key == "stat_idle_s" else 0,
        )
        for key, amount in amounts
    ]


# --- issue slots --------------------------------------------------------------------------------

WIDTH = 4
"""Issue slots of a cycle."""
GIVEN = 30
"""Per cent of the slots that go to the sibling while it runs, at the rate of the TSC."""


def slot_columns() -> list[SimCounter]:
    """What the slots were used for: fixed shares of what the CPUs did, so that the truth is known.
    An instruction takes one slot. Of the others a tenth has no instruction to issue and a twentieth
    is thrown away; the back end has the rest."""
    amounts = {
        "slots": lambda t: WIDTH * t[Row.CYCLES] // 1000,
        "topdown_retiring": lambda t: t[Row.INSTRUCTIONS] // 1000,
        "topdown_bad_speculation": lambda t: _free(t) // 20_000,
        "topdown_frontend": lambda t: _free(t) // 10_000,
        "topdown_backend": lambda t: _free(t) * 17 // 20_000,
    }
    columns = [
        SimCounter(Counter(key, key.replace("_", " "), "events", "sim"), amount)
        for key, amount in amounts.items()
    ]
    given = Counter("smt_contention", "slots given to the sibling", "cycles", "sim")
    rate = hw.TSC_HZ // 100_000_000
    return [
        *columns,
        SimCounter(given, lambda t: (t[Row.RUN] - t[Row.SMT]) * rate // 10 * GIVEN // 100),
    ]


def _free(t: Ints) -> Ints:
    """Slots x 1000 without an instruction."""
    return np.asarray(WIDTH * t[Row.CYCLES] - t[Row.INSTRUCTIONS])


# --- all CPUs -----------------------------------------------------------------------------------


def block(name: str, columns: list[SimCounter]) -> Block:
    return Block(name, "cpu", [column.counter for column in columns])


class CounterBank:
    """Values of some counters for all CPUs."""

    def __init__(self, columns: list[SimCounter], cpus: int) -> None:
        self._columns = columns
        number = np.arange(cpus, dtype=np.uint64)
        self._first = np.stack(
            [np.uint64(c.first) + number * np.uint64(c.step) for c in columns], axis=1
        )
        # 2^64 - 1 as a mask leaves 64 bits as they are.
        masks = [2**c.counter.bits - 1 for c in columns]
        self._mask = np.array(masks, np.uint64)
        self._valid = np.full(cpus, 2 ** len(columns) - 1, np.uint64)
        for i, column in enumerate(columns):
            if column.counter.cpus is not None:
                without = np.ones(cpus, np.bool_)
                without[column.counter.cpus] = False
                self._valid[without] &= np.uint64(2**64 - 1 - 2**i)

    def restart(self, cpus: NDArray[np.bool_]) -> None:
        """Sets the counters of these CPUs to zero."""
        self._first[cpus] = 0

    def values(self, totals: Ints) -> Words:
        out = np.empty((totals.shape[1], len(self._columns)), np.int64)
        for i, column in enumerate(self._columns):
            out[:, i] = column.amount(totals)
        return np.asarray((out.view(np.uint64) + self._first) & self._mask)

    def valid(self, sampled: NDArray[np.bool_]) -> Words:
        return np.where(sampled, self._valid, np.uint64(0))
