"""Issue slots of a simulated machine, four a cycle, and what they were used for: fixed shares of
what its CPUs did, so that the truth is known.

An instruction takes one slot. Of the others a tenth has no instruction to issue and a twentieth is
thrown away; the back end has the rest. While both threads of a core run, 30 % of the slots that a
thread wanted go to its sibling.
"""

from __future__ import annotations

from perfprobe.sources.sim.cells import Row
from perfprobe.sources.sim.counters import SimCounter
from perfprobe.sources.sim.machine import TSC_HZ, Ints
from perfprobe.wire import Counter

WIDTH = 4
GIVEN = 30
"""Per cent of the slots that go to the sibling while it runs, at the rate of the TSC."""


def _free(t: Ints) -> Ints:
    """Slots x 1000 without an instruction."""
    free: Ints = WIDTH * t[Row.CYCLES] - t[Row.INSTRUCTIONS]
    return free


def columns() -> list[SimCounter]:
    amounts = {
        "slots": lambda t: WIDTH * t[Row.CYCLES] // 1000,
        "topdown_retiring": lambda t: t[Row.INSTRUCTIONS] // 1000,
        "topdown_bad_speculation": lambda t: _free(t) // 20_000,
        "topdown_frontend": lambda t: _free(t) // 10_000,
        "topdown_backend": lambda t: _free(t) * 17 // 20_000,
    }
    given = Counter("smt_contention", "slots given to the sibling", "cycles", "sim")
    rate = TSC_HZ // 100_000_000
    return [
        *(SimCounter(Counter(key, key.replace("_", " "), "events", "sim"), amount)
          for key, amount in amounts.items()),
        SimCounter(given, lambda t: (t[Row.RUN] - t[Row.SMT]) * rate // 10 * GIVEN // 100),
    ]  # fmt: skip
