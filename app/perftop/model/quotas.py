"""CPU quotas of control groups: how long each has kept its tasks from running.

The kernel counts, for each group, the periods in which the quota was used up and the time for which
queues of CPUs were throttled. A task that is throttled counts as waiting for a CPU, so without
these counts it would look as if it waited for other tasks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite

from perftop.base.text import safe

MAX_GROUPS, MAX_PIDS = 1024, 4096
MAX_PATH = 256


@dataclass(slots=True)
class Quota:
    """A group with a quota, and what was counted since its first record."""

    group: str
    cpus: float
    """CPUs that the quota allows."""
    periods: int = 0
    throttled: int = 0
    """Periods in which the quota was used up."""
    throttled_s: float = 0.0
    """Time for which the tasks of the group stood still, summed over CPUs."""
    newest_s: float = 0.0
    """The part of `throttled_s` that came with the newest record."""
    _last_counts: tuple[int, int, int] | None = field(default=None, init=False)

    def take(self, cpus: float, counts: tuple[int, int, int]) -> None:
        """Adds a record: periods, throttled periods and throttled time in us, all cumulative."""
        self.cpus, self.newest_s = cpus, 0.0
        if self._last_counts is not None and all(
            a >= b for a, b in zip(counts, self._last_counts, strict=True)
        ):
            periods, throttled, throttled_us = (
                count - last_count
                for count, last_count in zip(counts, self._last_counts, strict=True)
            )
            self.periods += periods
            self.throttled += throttled
            self.newest_s = throttled_us / 1e6
            self.throttled_s += self.newest_s
        self._last_counts = counts

    @property
    def owner(self) -> str:
        return owner(self.group)


class Quotas:
    """The quotas of a stream, and the processes for which they hold."""

    def __init__(self) -> None:
        self.by_group: dict[str, Quota] = {}
        self._groups: dict[int, list[str]] = {}
        """By PID, the groups whose quota holds, the innermost first."""
        self.newest: dict[str, list[int]] = {}
        """The groups in the newest record, each with the processes for which its quota holds."""

    def take(self, records: Mapping[str, object]) -> None:
        """Reads the records of a frame, which come from outside."""
        if "quotas" in records or "tasks" in records:
            self.newest = {}
        match records.get("quotas"):
            case {"groups": dict() as groups, "pids": dict() as pids}:
                for group, counts in groups.items():
                    self._take(group, counts)
                for pid, names in pids.items():
                    if isinstance(names, list) and re.fullmatch("[0-9]{1,10}", str(pid)):
                        known_groups = [
                            n for n in names if isinstance(n, str) and n in self.by_group
                        ]
                        self._groups.pop(int(pid), None)
                        self._groups[int(pid)] = known_groups
                        for group in known_groups:
                            self.newest.setdefault(group, []).append(int(pid))
                while len(self._groups) > MAX_PIDS:
                    del self._groups[next(iter(self._groups))]

    def _take(self, group: object, counts: object) -> None:
        match counts:
            case [int() | float() as cpus, int() as periods, int() as throttled, int() as us]:
                if not isinstance(group, str) or not isfinite(cpus) or cpus <= 0:
                    return
                if group not in self.by_group and len(self.by_group) >= MAX_GROUPS:
                    return
                quota = self.by_group.setdefault(group, Quota(safe(group, MAX_PATH), float(cpus)))
                quota.take(float(cpus), (periods, throttled, us))

    def copy(self) -> Quotas:
        return self.since(Quotas())

    def since(self, earlier: Quotas) -> Quotas:
        """Returns the quotas with what was counted after `earlier`."""
        rest = Quotas()
        rest._groups = self._groups.copy()
        for group, quota in self.by_group.items():
            rest.by_group[group] = now = replace(quota)
            if (before := earlier.by_group.get(group)) is not None:
                now.periods -= before.periods
                now.throttled -= before.throttled
                now.throttled_s -= before.throttled_s
        return rest

    def binding(self, pid: int) -> Quota | None:
        """The quota that stopped a process for longest; None if none stopped it."""
        quotas = [self.by_group[group] for group in self._groups.get(pid, ())]
        worst_quota = max(quotas, key=lambda quota: quota.throttled_s, default=None)
        return worst_quota if worst_quota is not None and worst_quota.throttled_s > 0 else None


_OWNERS = (
    (re.compile(r"/job_(\d+)"), "Slurm job {}"),
    (re.compile(r"pod([0-9a-f]{8})[0-9a-f_-]*"), "pod {}"),
    (
        re.compile(r"(?:docker|libpod|crio|cri-containerd)[-/]([0-9a-f]{12})[0-9a-f]*"),
        "container {}",
    ),
    (re.compile(r"/lxc(?:\.payload\.|/)([^/]+)"), "container {}"),
    (re.compile(r".*/([^/]+\.service)"), "{}"),
    (re.compile(r".*/([^/]+\.scope)"), "{}"),
    (re.compile(r".*/([^/]+\.slice)"), "{}"),
)


def owner(group: str) -> str:
    """Names who a control group belongs to: a job, a pod, a container or a unit; else its path."""
    for pattern, words in _OWNERS:
        if match := pattern.search(group):
            return words.format(match[1])
    return "this container" if group == "/" else group
