"""A machine whose CPUs change what they do."""

from __future__ import annotations

from dataclasses import dataclass, field

import made
from fakes import Machine


@dataclass
class Turning(Machine):
    """A machine whose counters go on from where they are when its CPUs change what they do. Each
    frame is a sample later than the one before."""

    sums: dict[int, dict[str, int]] = field(default_factory=dict)

    def _cells(self, cpu: int, _ns: int, _ticks: int) -> dict[str, int]:
        moved = super()._cells(cpu, made.SAMPLE_NS, int(made.TSC_HZ / 10))
        sums = self.sums.setdefault(cpu, dict.fromkeys(moved, 0))
        for key, value in moved.items():
            sums[key] += value
        return dict(sums)
