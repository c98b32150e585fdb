"""Machines whose state follows a script, as keywords of machine.Spec."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

PL1 = 1 << 10  # bit in the limit reasons
POWER_LIMIT = 1 << 10  # bit in the thermal status


@dataclass(frozen=True)
class PowerLimitDrop:
    """Three busy cores in each of two packages. In each `period_s`, the first package runs at its
    turbo clock, and then at its power limit."""

    fast_s: float = 1.0
    slow_s: float = 1.0
    fast_hz: int = 3_500_000_000  # Model.turbo: 35 for three and four cores
    slow_hz: int = 2_900_000_000

    @property
    def period_s(self) -> float:
        return self.fast_s + self.slow_s

    @property
    def cpus(self) -> list[list[int]]:
        """CPU numbers by package."""
        return [[0, 1, 2], [3, 4, 5]]

    def spec(self) -> dict[str, Any]:
        fast, slow = round(self.fast_s * 1e6), round(self.slow_s * 1e6)
        busy = [[[fast + slow, "U", 1000]]]
        limited = {"us": slow, "hz": self.slow_hz, "limit": PL1, "therm": POWER_LIMIT}
        drops = {"lps": busy, "clock": [{"us": fast, "hz": self.fast_hz}, limited]}
        steady = {"lps": busy, "clock": [{"us": fast + slow, "hz": self.fast_hz}]}
        plans = [drops] * 3 + [steady] * 3
        return {"model": "skylake-sp", "cores": 3, "packages": 2, "threads": 1, "plans": plans}

    def is_limited(self, t_s: float) -> bool:
        """Whether the power limit applies at this time of CLOCK_MONOTONIC_RAW."""
        return t_s % self.period_s >= self.fast_s
