"""How late the threads of the simulated probe wake, and how long their reads take."""

from __future__ import annotations

import numpy as np

from perfprobe.sources.sim.machine import Ints, Machine
from perfprobe.sources.sim.schedule import noise
from perfprobe.wire import ROW_WIDE

LATE_NS = 52_000
LATER_NS = 300_000
WIDTH_NS = 2_200
WIDE_NS = 60_000


class Lateness:
    def __init__(self, machine: Machine, seed: int, late_ns: int, sample_ns: int) -> None:
        self._seed = seed
        self._late_ns = late_ns
        self._most_ns = sample_ns // 4  # a read never reaches the next one
        self._cpus = np.arange(machine.cpus)
        bits = noise(seed, 3, np.zeros(1, np.int64), self._cpus)[0]
        self.offset: Ints = bits % 400
        """Constant offset of each CPU's TSC, in ticks."""
        self.offset[0] = 0
        self._habit = (bits >> 16) % 20_000

    def at(self, number: int) -> tuple[Ints, Ints, Ints]:
        """Per CPU for the sample with this number: lateness and width of the read in ns, and
        ROW_WIDE where it applies."""
        bits = noise(self._seed, 4, np.array([number]), self._cpus)[0]
        late = LATE_NS + self._habit + bits % 6_000
        rare = (bits >> 16) & 0xFF
        late += np.where(rare == 0, (bits >> 24) % LATER_NS, 0)
        if self._late_ns:
            late += (bits >> 24) % self._late_ns
        wide = ((bits >> 37) & 0x1FF) == 0
        width = np.where(wide, WIDE_NS, WIDTH_NS + (bits >> 40) % 250 * 4)
        return np.minimum(late, self._most_ns), width, np.where(wide, ROW_WIDE, 0)
