"""A machine whose CPUs change what they do."""

from __future__ import annotations

from dataclasses import dataclass, field

import made
from fakes import Machine


@dataclass
class Turning(Machine):
    """A machine whose counters go on from where they are when its CPUs change what they do."""

    sums: dict[int, dict[str, int]] = field(default_factory=dict)

    def _cells(self, cpu: int, ns: int, ticks: int) -> dict[str, int]:
        now = super()._cells(cpu, ns, ticks)
        before = super()._cells(cpu, ns - made.SAMPLE_NS, ticks - int(made.TSC_HZ / 10))
        sums = self.sums.setdefault(cpu, dict.fromkeys(now, 0))
        for key in sums:
            sums[key] += now[key] - before[key] if ns else 0
        return dict(sums)
