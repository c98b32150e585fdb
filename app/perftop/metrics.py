"""The registry of metrics: the one table that columns, sort keys, exports and help are made from.

A metric is a ratio of two sums. Both are kept apart, so that the same formula serves a sample, an
interval, a core, a package and the machine: add the numerators, add the denominators, divide once.
A metric may have several variants for different counters; each CPU uses the first of which it has
all counters, decided once from hello - a variant never steps in for another halfway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from perftop.counters import Bools, Counters, Delta, Floats


class Quantities:
    """What formulas may use: by key, how far each counter moved, by CPU; and elapsed time."""

    def __init__(self, counters: Counters, delta: Delta, base_hz: float) -> None:
        self._counters = counters
        self._delta = delta
        self.base_hz = base_hz

    def __getitem__(self, key: str) -> Floats:
        column = self._counters.columns[key]
        parts = self._delta.tables[column.block].moved[:, column.first :]
        moved: Floats = parts[:, : column.counter.columns].sum(axis=1)
        return moved

    @property
    def tsc(self) -> Floats:
        """TSC ticks that the reads of a row lie apart."""
        return self._counters.tsc_ticks(self._delta)

    @property
    def tsc_hz(self) -> float:
        rate = self._counters.hello.tsc_hz
        return rate.hz if rate else float("nan")

    def seconds(self, key: str) -> Floats:
        """Elapsed seconds of the span in which `key` was counted."""
        block = self._counters.columns[key].block
        elapsed: Floats = self._delta.tables[block].ticks / self._counters.stamp_hz
        return elapsed


Formula = Callable[[Quantities], Floats]


@dataclass(frozen=True, slots=True)
class Variant:
    needs: tuple[str, ...]
    origin: str
    numerator: Formula
    denominator: Formula
    needs_tsc: bool = False


@dataclass(frozen=True, slots=True)
class Metric:
    key: str
    label: str
    """Column heading."""
    unit: str
    """"ratio" (shown in %), "Hz", "1"."""
    help: str
    variants: tuple[Variant, ...]
    low: float = 0.0
    high: float = np.inf
    """What a value may be clipped to: read skew makes 1.0003 of a full second."""


def _os_idle(q: Quantities) -> Floats:
    return q["idle_s"] + q["poll_s"]


METRICS: dict[str, Metric] = {
    metric.key: metric
    for metric in (
        Metric(
            "util", "util", "ratio",
            "Share of elapsed time in which the CPU was not halted. Without a reference counter: "
            "not idle by the operating system's account, and not taken by the hypervisor.",
            (
                Variant(("ref",), "ref / tsc", lambda q: q["ref"], lambda q: q.tsc, True),
                Variant(
                    ("busy_s", "stat_steal_s"), "not idle - steal",
                    lambda q: q["busy_s"]
                    - q["stat_steal_s"] / q.seconds("stat_steal_s") * q.seconds("busy_s"),
                    lambda q: q.seconds("busy_s"),
                ),
                Variant(
                    ("idle_s", "poll_s", "stat_steal_s"), "1 - cpuidle - steal",
                    lambda q: q.seconds("idle_s")
                    * (1 - q["stat_steal_s"] / q.seconds("stat_steal_s")) - _os_idle(q),
                    lambda q: q.seconds("idle_s"),
                ),
                Variant(
                    ("idle_s", "stat_steal_s"), "1 - cpuidle - steal",  # no state that polls
                    lambda q: q.seconds("idle_s")
                    * (1 - q["stat_steal_s"] / q.seconds("stat_steal_s")) - q["idle_s"],
                    lambda q: q.seconds("idle_s"),
                ),
                Variant(
                    ("stat_idle_s", "stat_iowait_s", "stat_steal_s"), "1 - /proc/stat idle - steal",
                    lambda q: q.seconds("stat_idle_s") - q["stat_idle_s"] - q["stat_iowait_s"]
                    - q["stat_steal_s"],
                    lambda q: q.seconds("stat_idle_s"),
                ),
            ),
            high=1.0,
        ),
        Metric(
            "busy_hz", "busy", "Hz",
            "Clock while not halted: what the core really ran at, averaged over its running time.",
            (
                Variant(("cycles", "ref"), "cycles / ref * tsc_hz",
                        lambda q: q["cycles"] * q.tsc_hz, lambda q: q["ref"], True),
                Variant(("aperf", "mperf"), "aperf / mperf * base_hz",
                        lambda q: q["aperf"] * q.base_hz, lambda q: q["mperf"]),
            ),
        ),
        Metric(
            "net_hz", "net", "Hz",
            "Cycles per elapsed second: busy clock times utilisation.",
            (Variant(("cycles",), "cycles / tsc * tsc_hz",
                     lambda q: q["cycles"] * q.tsc_hz, lambda q: q.tsc, True),),
        ),
        Metric(
            "halt", "halt", "ratio",
            "Share of elapsed time in which the CPU was halted, wanted or not.",
            (Variant(("ref",), "1 - ref / tsc",
                     lambda q: q.tsc - q["ref"], lambda q: q.tsc, True),),
            high=1.0,
        ),
        Metric(
            "idle", "idle", "ratio",
            "Share of elapsed time that the operating system chose to be idle; polling excluded "
            "where the kernel tells it apart.",
            (
                Variant(("busy_s", "poll_s"), "1 - not idle - cpuidle's polling",
                        lambda q: q.seconds("busy_s") - q["busy_s"] - q["poll_s"],
                        lambda q: q.seconds("busy_s")),
                Variant(("busy_s",), "1 - not idle", lambda q: q.seconds("busy_s") - q["busy_s"],
                        lambda q: q.seconds("busy_s")),
                Variant(("idle_s",), "cpuidle", lambda q: q["idle_s"],
                        lambda q: q.seconds("idle_s")),
                Variant(("stat_idle_s", "stat_iowait_s"), "/proc/stat idle + iowait",
                        lambda q: q["stat_idle_s"] + q["stat_iowait_s"],
                        lambda q: q.seconds("stat_idle_s")),
            ),
            high=1.0,
        ),
        Metric(
            "poll", "poll", "ratio",
            "Share of elapsed time idle but polling: idle to the system, running to the core.",
            (Variant(("poll_s",), "cpuidle", lambda q: q["poll_s"],
                     lambda q: q.seconds("poll_s")),),
            high=1.0,
        ),
        Metric(
            "involuntary", "invol", "ratio",
            "Halted although the operating system had work: clock changes, SIMD power-up, SMM, "
            "clock modulation. Halt less idle less steal; the error is that of idle.",
            (Variant(("ref", "busy_s", "stat_steal_s"), "not idle - ref / tsc - steal",
                     lambda q: (q["busy_s"] / q.seconds("busy_s")
                                - q["stat_steal_s"] / q.seconds("stat_steal_s")) * q.tsc
                     - q["ref"],
                     lambda q: q.tsc, True),
             Variant(("ref", "idle_s", "stat_steal_s"), "1 - ref / tsc - cpuidle - steal",
                     lambda q: q.tsc - q["ref"] - q["idle_s"] / q.seconds("idle_s") * q.tsc
                     - q["stat_steal_s"] / q.seconds("stat_steal_s") * q.tsc,
                     lambda q: q.tsc, True)),
            high=1.0,
        ),
        Metric(
            "steal", "steal", "ratio",
            "Share of elapsed time in which the hypervisor ran something else. Steps of 10 ms.",
            (Variant(("stat_steal_s",), "/proc/stat", lambda q: q["stat_steal_s"],
                     lambda q: q.seconds("stat_steal_s")),),
            high=1.0,
        ),
        Metric(
            "ipc", "IPC", "1",
            "Instructions retired per cycle while not halted.",
            (Variant(("instructions", "cycles"), "instructions / cycles",
                     lambda q: q["instructions"], lambda q: q["cycles"]),),
        ),
        Metric(
            "kernel_cycles", "krn", "ratio",
            "Share of the cycles that were spent in the kernel.",
            (Variant(("kernel_cycles", "cycles"), "kernel cycles / cycles",
                     lambda q: q["kernel_cycles"], lambda q: q["cycles"]),),
            high=1.0,
        ),
        Metric(
            "kernel_instructions", "krn ins", "ratio",
            "Share of the instructions that were retired in the kernel.",
            (Variant(("kernel_instructions", "instructions"), "kernel instructions / instructions",
                     lambda q: q["kernel_instructions"], lambda q: q["instructions"]),),
            high=1.0,
        ),
    )
}  # fmt: skip

INDEX = {key: i for i, key in enumerate(METRICS)}

COUNTS = ("ref", "cycles", "instructions", "kernel_cycles", "kernel_instructions")
"""Counters that are also given as they are."""


class Evaluator:
    """The registry, bound to the counters of one stream."""

    def __init__(self, counters: Counters) -> None:
        hello = counters.hello
        self._counters = counters
        self._base_hz = hello.base_hz.hz if hello.base_hz else float("nan")
        self._rows = {row.cpu: i for i, row in enumerate(hello.topology)}
        self.chosen: dict[str, list[tuple[Variant, Bools]]] = {}
        """For each metric, which variant serves which CPUs (a mask by position)."""
        for metric in METRICS.values():
            self.chosen[metric.key] = self._choose(metric)

    def _has(self, key: str) -> Bools:
        column = self._counters.columns.get(key)
        n = len(self._rows)
        if column is None:
            return np.zeros(n, bool)
        cpus = column.counter.cpus
        if cpus is None:
            return np.ones(n, bool)
        return np.isin(np.array(list(self._rows)), cpus)

    def _choose(self, metric: Metric) -> list[tuple[Variant, Bools]]:
        left = np.ones(len(self._rows), bool)
        chosen = []
        for variant in metric.variants:
            if variant.needs_tsc and not self._counters.has_tsc:
                continue
            mask = left.copy()
            for key in variant.needs:
                mask &= self._has(key)
            if mask.any():
                chosen.append((variant, mask))
                left &= ~mask
        return chosen

    def origin(self, key: str) -> str | None:
        """Where a metric comes from on this stream; None if from nowhere."""
        parts = [f"{v.origin} ({self._sources(v.needs)})" for v, _ in self.chosen[key]]
        return " | ".join(parts) or None

    def _sources(self, needs: Iterable[str]) -> str:
        return ", ".join(dict.fromkeys(self._counters.columns[k].counter.origin for k in needs))

    def serves(self, key: str, row: int) -> bool:
        """This CPU has the counters for the metric."""
        return any(mask[row] for _, mask in self.chosen[key])

    def lacking(self, key: str) -> str | None:
        """The first counter for want of which the metric is not there on any CPU."""
        if self.chosen[key]:
            return None
        needs = METRICS[key].variants[0].needs
        return next((k for k in needs if k not in self._counters.columns), "tsc")

    def evaluate(self, delta: Delta) -> Values:
        """All metrics over a span."""
        q = Quantities(self._counters, delta, self._base_hz)
        top = np.full((len(METRICS), len(self._rows)), np.nan)
        bottom = top.copy()
        with np.errstate(divide="ignore", invalid="ignore"):
            for key, chosen in self.chosen.items():
                for variant, mask in chosen:
                    top[INDEX[key], mask] = variant.numerator(q)[mask]
                    bottom[INDEX[key], mask] = variant.denominator(q)[mask]
        return Values(top, bottom)


class Values:
    """Metrics over one span, by CPU, and over any group of CPUs."""

    def __init__(self, top: Floats, bottom: Floats) -> None:
        """Numerators and denominators, (metrics, CPUs)."""
        self._top, self._bottom = top, bottom
        self.all = _ratio(top, bottom, _LOW[:, None], _HIGH[:, None])
        """(metrics, CPUs), in the order of METRICS."""

    def __getitem__(self, key: str) -> Floats:
        """By position of the CPU; NaN where unknown, also where nothing ran."""
        values: Floats = self.all[INDEX[key]]
        return values

    def over(self, key: str, rows: list[int] | slice) -> float:
        """One value for a group: of those of its CPUs where it is known."""
        return float(self.group(rows)[INDEX[key]])

    def group(self, rows: list[int] | slice) -> Floats:
        """All metrics for a group."""
        top, bottom = self._top[:, rows], self._bottom[:, rows]
        known = np.isfinite(top) & np.isfinite(bottom)
        total, base = (np.where(known, part, 0.0).sum(axis=1) for part in (top, bottom))
        return _ratio(total, base, _LOW, _HIGH)


_LOW = np.array([metric.low for metric in METRICS.values()])
_HIGH = np.array([metric.high for metric in METRICS.values()])


def _ratio(top: Floats, bottom: Floats, low: Floats, high: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.where(bottom > 0, top / bottom, np.nan)
    return np.clip(values, low, high)
