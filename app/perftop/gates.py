"""Can a sample be true? What cannot is told apart before it reaches a number on screen.

Each gate looks at one sample and names the CPUs that it spoils. (Counters that moved further than
any clock could drive them are caught earlier, where differences are taken.)
"""

from __future__ import annotations

import numpy as np

from perftop.counters import MAX_IPC, Bools, Counters, Delta, Floats

SLACK = 0.01
"""Of the span: stamps surround a read, the counters are read somewhere between."""
SLACK_TICKS = 200_000.0
"""Some 0.1 ms of TSC: the reference clock moves in quanta, a read takes time."""


def check(counters: Counters, delta: Delta) -> None:
    """Note reasons in `delta.suspect`, by position of the CPU."""
    found: dict[str, Bools] = {}
    ref = _moved(counters, delta, "ref")
    if ref is not None and counters.has_tsc:
        ticks = counters.tsc_ticks(delta, counters.columns["ref"].block)
        found["ref ran faster than the TSC"] = ref > ticks * (1 + SLACK) + SLACK_TICKS
    cycles = _moved(counters, delta, "cycles")
    instructions = _moved(counters, delta, "instructions")
    if cycles is not None and instructions is not None:
        found["impossible IPC"] = instructions > MAX_IPC * cycles + SLACK_TICKS
    for part, whole in (("kernel_cycles", cycles), ("kernel_instructions", instructions)):
        moved = _moved(counters, delta, part)
        if moved is not None and whole is not None:
            found[f"{part} exceed the whole"] = moved > whole * (1 + SLACK) + SLACK_TICKS
    for reason, rows in found.items():
        for row in np.flatnonzero(rows):
            delta.suspect.setdefault(int(row), set()).add(reason)


def remove(counters: Counters, delta: Delta, rows: list[int]) -> None:
    """Leave these CPUs out of the sums: no ticks, nothing moved."""
    for block in counters.hello.blocks:
        if block.scope == "cpu":
            delta.tables[block.name].ticks[rows] = 0.0
            delta.tables[block.name].moved[rows] = 0.0


def _moved(counters: Counters, delta: Delta, key: str) -> Floats | None:
    column = counters.columns.get(key)
    if column is None:
        return None
    moved: Floats = delta.tables[column.block].moved[:, column.first]
    return moved
