"""Throttling that only the kernel counts, as time. The kernel books all of it when it is over."""

from __future__ import annotations

import numpy as np

from perftop.detect.engine.detector_input import Seen
from perftop.detect.engine.episode_log import Detector
from perftop.samples.episode import Episode
from perftop.samples.evidence import KERNEL
from perftop.samples.sample_reader import Sieve

KEYS = "package_throttled_s", "core_throttled_s"
"""In this order: what a whole package told is not told again for each of its cores."""


class Booked:
    """Ended episodes of streams without polled status bits."""

    def __init__(self, sieve: Sieve, detector: Detector) -> None:
        self._detector = detector
        found = (sieve.counters.columns.get(key) for key in KEYS)
        self._columns = [column for column in found if column is not None]
        self._cpus = {"package": sieve.hello.packages, "core": sieve.hello.cores}
        self._scope = {block.name: block.scope for block in sieve.hello.blocks}
        self._dropped_ns: dict[int, int] = {}
        """By CPU, when it was last in a drop. The drop has told of that throttling."""

    def sample(self, seen: Seen) -> list[Episode]:
        """Those that the kernel booked in this sample."""
        if not self._columns:
            return []
        for drop in self._detector.of("turbo-drop"):
            self._dropped_ns.update(dict.fromkeys(drop.cpus, seen.time_ns))
        told: list[Episode] = []
        for column in self._columns:
            booked_s = seen.sample.delta.tables[column.block].moved[:, column.first]
            rows = self._cpus[self._scope[column.block]]
            for row in np.flatnonzero(booked_s > 0).tolist():
                told += self._told(rows[row], float(booked_s[row]), seen.time_ns, told)
        return told

    def _told(
        self, cpus: list[int], seconds: float, time_ns: int, others: list[Episode]
    ) -> list[Episode]:
        start_ns = time_ns - round(seconds * 1e9)
        left = self._left(cpus, start_ns, others)
        evidence = {"throttled_s": round(seconds, 3), "told_by": KERNEL}
        episode = Episode("throttle", left, start_ns, time_ns, None, "thermal", evidence)
        return [episode] if left else []

    def _left(self, cpus: list[int], start_ns: int, told: list[Episode]) -> list[int]:
        others = {cpu for episode in told for cpu in episode.cpus}
        dropped = self._dropped_ns
        return [c for c in cpus if c not in others and dropped.get(c, start_ns - 1) < start_ns]
