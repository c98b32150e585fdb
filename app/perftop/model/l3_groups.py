"""Which groups of resctrl take the bandwidth: what each has moved between its last two looks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from perfprobe.wire import Cpu
from perftop.base.text import safe
from perftop.model.evidence import Took

RECORD = "l3_groups"
DEFAULT = "(default)"
"""Name of the group of all tasks that nobody has put into another."""
MOST, MOST_NAME, TOLD = 256, 60, 3
"""Groups that are kept, characters of a name, and groups that are evidence."""
OLD_NS = 10_000_000_000
"""Looks this far back say nothing of now."""

Moved = dict[tuple[str, int], int]
"""Bytes by group and L3."""


class L3Groups:
    def __init__(self, topology: Sequence[Cpu]) -> None:
        self._l3 = {row.cpu: row.l3 for row in topology}
        self._last: Moved = {}
        self._rates: dict[tuple[str, int], float] = {}
        self._at_ns = self._now_ns = 0

    def take(self, records: Mapping[str, object], time_ns: int) -> None:
        """Take the records of a frame, whoever wrote it."""
        self._now_ns = time_ns
        told = records.get(RECORD)
        if not isinstance(told, dict):
            return
        now = _read(told)
        span_s = (time_ns - self._at_ns) / 1e9
        known = self._last if self._at_ns and 0 < span_s < OLD_NS / 1e9 else {}
        steps = {at: value - known[at] for at, value in now.items() if at in known}
        self._rates = {at: step / span_s for at, step in steps.items() if step >= 0}
        self._last, self._at_ns = now, time_ns

    def took(self, cpus: Collection[int]) -> list[Took]:
        """What groups move in the L3s of these CPUs, most first; empty: not known. Monitoring
        groups are part of their control group, and told beside it."""
        if self._now_ns - self._at_ns > OLD_NS:
            return []
        mine = {self._l3.get(cpu) for cpu in cpus}
        sums: dict[str, float] = {}
        for (group, l3), rate in self._rates.items():
            if l3 in mine:
                sums[group] = sums.get(group, 0.0) + rate
        found = [Took(group, round(rate)) for group, rate in sums.items() if rate > 0]
        return sorted(found, key=lambda one: -one.bytes_per_s)[:TOLD]


def _read(told: Mapping[object, object]) -> Moved:
    """The numbers of a record that are as they should be."""
    found: Moved = {}
    for group, rows in list(told.items())[:MOST]:
        if not isinstance(group, str) or not isinstance(rows, list):
            continue
        name = safe(group, MOST_NAME) if group else DEFAULT
        for row in rows[:MOST]:
            match row:
                case [int(l3), int(moved)] if moved >= 0:
                    found[name, l3] = moved
    return found
