"""Checks the tracing of SMT states where no core has two threads, on two CPUs declared siblings.

It shows that the states are told apart, not that these CPUs share a core. No number on the screen
comes from it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from perfprobe.instruments.selftest.known_code import Spell
from perfprobe.instruments.selftest.load import Times
from perfprobe.instruments.selftest.resting import STATES, WAKING, overlapping
from perfprobe.instruments.selftest.verdict import Check, Seen
from perfprobe.kernel.idle_trace import IdleTrace, States

CHECKS = {
    key: Check(key, "at work in turns and together, taken for siblings", "s", 0.02, WAKING,
               in_use=False)
    for key in STATES
}  # fmt: skip


class Declared:
    """A separate trace of two CPUs, used for each pattern in turn."""

    def __init__(self, cpus: tuple[int, int]) -> None:
        """Raises OSError with the reason if tracing is not possible."""
        self._cpus = cpus
        self._trace = IdleTrace({cpus[0]: (0, 0), cpus[1]: (0, 1)})
        self._before = self._read()

    def begin(self) -> None:
        self._before = self._read()

    def see(self, times: Times) -> Iterator[tuple[Check, Seen]]:
        (begin, a), (end, b) = self._before, self._read()
        if not set(self._cpus) <= times.spells.keys():
            return
        first, second = (times.spells[cpu] for cpu in self._cpus)
        scale, doubt = (end - begin) / 1e9, times.doubt_s(self._cpus)
        telling = times.telling(self._cpus, scale)
        moved = (b.neither - a.neither, b.lp0 - a.lp0, b.lp1 - a.lp1, b.both - a.both)
        for key, ns, expected in zip(STATES, moved, expected_s(first, second, scale), strict=True):
            yield CHECKS[key], Seen(self._cpus[0], expected, ns / 1e9, scale, doubt, doubt, telling)

    def close(self) -> None:
        self._trace.close()

    def _read(self) -> tuple[int, States]:
        return time.monotonic_ns(), self._trace.states(0)


def expected_s(first: Sequence[Spell], second: Sequence[Spell], whole: float) -> list[float]:
    """Expected seconds in the order of STATES, from the tasks' own clocks."""
    on0, on1 = ([(s.begin_ns, s.end_ns) for s in spells] for spells in (first, second))
    return [ns / 1e9 for ns in overlapping(on0, on1, round(whole * 1e9)).states()]
