"""Can a sample be true? What cannot is told apart before it reaches a number on screen.

Each gate looks at one sample and names the CPUs that it spoils. (Counters that moved further than
any clock could drive them are caught earlier, where differences are taken.)
"""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Bools, Floats
from perftop.samples.counter_limits import MAX_IPC
from perftop.samples.counters import Counters, Delta

SLACK = 0.01
"""Of the span: stamps surround a read, the counters are read somewhere between."""
SLACK_TICKS = 200_000.0
"""Some 0.1 ms of TSC: the reference clock moves in quanta, a read takes time."""

BUSY_S = 0.02
"""Of running: our own wake-ups are a thousandth of it, and they too must move a counter."""
RUNNING_TICKS = 1e6


def check(counters: Counters, delta: Delta) -> None:
    """Note reasons in `delta.suspect`, by position of the CPU."""
    found: dict[str, Bools] = {}
    ref = counters.moved(delta, "ref")
    if ref is not None and counters.has_tsc:
        ticks = counters.tsc_ticks(delta, counters.columns["ref"].block)
        found["ref ran faster than the TSC"] = ref > ticks * (1 + SLACK) + SLACK_TICKS
    cycles = counters.moved(delta, "cycles")
    instructions = counters.moved(delta, "instructions")
    if cycles is not None and instructions is not None:
        found["impossible IPC"] = instructions > MAX_IPC * cycles + SLACK_TICKS
    for part, whole in (("kernel_cycles", cycles), ("kernel_instructions", instructions)):
        moved = counters.moved(delta, part)
        if moved is not None and whole is not None:
            found[f"{part} exceed the whole"] = moved > whole * (1 + SLACK) + SLACK_TICKS
    found |= _standstill(counters, delta)
    for reason, rows in found.items():
        for row in np.flatnonzero(rows):
            delta.suspect.setdefault(int(row), set()).add(reason)


def _standstill(counters: Counters, delta: Delta) -> dict[str, Bools]:
    """Counters that are there and do not count: a hypervisor may answer every read with the same
    number, or drop what was programmed."""
    found = {}
    ref, cycles = counters.moved(delta, "ref"), counters.moved(delta, "cycles")
    busy = _busy_s(counters, delta)
    if ref is not None and busy is not None:
        found["ref stands still on a busy CPU"] = (ref == 0) & (busy > BUSY_S)
    if ref is not None and cycles is not None:
        found["cycles stand still while ref moves"] = (cycles == 0) & (ref > RUNNING_TICKS)
    instructions = counters.moved(delta, "instructions")
    if cycles is not None and instructions is not None:
        still = (instructions == 0) & (cycles > RUNNING_TICKS)
        found["instructions stand still while cycles move"] = still
    return found


def _busy_s(counters: Counters, delta: Delta) -> Floats | None:
    """Seconds that the system did not idle, by whichever account there is."""
    busy = counters.moved(delta, "busy_s")
    idle = counters.moved(delta, "idle_s")
    if busy is not None or idle is None:
        return busy
    poll = counters.moved(delta, "poll_s")
    block = counters.columns["idle_s"].block
    elapsed: Floats = delta.tables[block].ticks / counters.stamp_hz
    return elapsed - idle - (0.0 if poll is None else poll)


def remove(counters: Counters, delta: Delta, rows: list[int]) -> None:
    """Leave these CPUs out of the sums: no ticks, nothing moved."""
    for block in counters.hello.blocks:
        if block.scope == "cpu":
            delta.tables[block.name].ticks[rows] = 0.0
            delta.tables[block.name].moved[rows] = 0.0
