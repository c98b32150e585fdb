"""Tables of turbo ceilings, as a probe tells them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perfprobe import wire
from perfprobe.wire import Rate, Step

ORIGIN = "MSR 1ADH, licence 0"
BASE = Rate(2.1e9, "made")


def table(steps: Sequence[tuple[int, float]], origin: str = ORIGIN, **more: Any) -> wire.Turbo:
    return wire.Turbo([Step(cores, ratio * 1e8) for cores, ratio in steps], origin, **more)


def cpufreq(ratio: float, **more: Any) -> wire.Turbo:
    return table([(1, ratio)], "cpufreq, cpuinfo_max_freq", **more)


def ghz(values: Any) -> list[float]:
    return [round(float(value) / 1e9, 3) for value in values]
