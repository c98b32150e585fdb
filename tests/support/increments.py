"""Samples with counter increments that a test specifies, and tables of turbo ceilings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from perfprobe import wire
from perfprobe.wire import Counter, Rate, Step
from perftop.model.counters import Counters
from perftop.model.delta import Delta

Amounts = Mapping[str, Any]
"""Values by counter key. For a counter: the increase per second; for a gauge: the level; for flags:
the number of polls, and for each part the number of polls that saw it. One value for all rows, or
one for each row."""


def seconds_counter(key: str) -> Counter:
    return Counter(key, key, "s", "made")


def delta(counters: Counters, amounts: Amounts, span_s: float = 0.1) -> Delta:
    result = counters.empty_delta()
    for table in result.tables.values():
        table.ticks[:] = span_s * counters.stamp_hz
        table.increments[:] = np.nan
    for key, value in amounts.items():
        column = counters.columns[key]
        counter, table = column.counter, result.tables[column.block]
        if counter.kind == "flags":
            table.increments[:, column.index : column.index + counter.columns] = 0
            for part, times in value.items():
                bit = 0 if part == "polls" else 1 + counter.parts.index(part)
                table.increments[:, column.index + bit] = times
        else:
            weight = table.ticks if counter.kind == "gauge" else span_s
            table.increments[:, column.index] = np.asarray(value, float) * weight
    return result


ORIGIN = "MSR 1ADH, licence 0"
BASE = Rate(2.1e9, "made")


def turbo_table(
    steps: Sequence[tuple[int, float]], origin: str = ORIGIN, **more: Any
) -> wire.Turbo:
    return wire.Turbo([Step(cores, ratio * 1e8) for cores, ratio in steps], origin, **more)


def cpufreq(ratio: float, **more: Any) -> wire.Turbo:
    return turbo_table([(1, ratio)], "cpufreq, cpuinfo_max_freq", **more)


def in_ghz(values: Any) -> list[float]:
    return [round(float(value) / 1e9, 3) for value in values]
