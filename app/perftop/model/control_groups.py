"""Control groups: owners, memory limits, CPU quotas, the time for which quotas stopped tasks, and
the CPUs that tasks may use.

For each group with a quota, the kernel counts the periods in which the quota was used up, and the
time for which the run queues of CPUs were throttled. A throttled task counts as waiting for a CPU.
Without these counts, it would seem to wait for other tasks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from math import isfinite
from typing import NamedTuple

from perftop.base.text import is_digits, safe_text
from perftop.model.tasks import MAX_NAME_LENGTH, drop_oldest

MAX_GROUPS, MAX_PIDS = 1024, 4096
MAX_PATH_LENGTH = 256


@dataclass(slots=True)
class Quota:
    """A control group with a quota, and the kernel's counts since the group's first record."""

    group: str
    cpus: float
    """The quota, as a number of CPUs."""
    period_count: int = 0
    throttled_count: int = 0
    """Number of periods in which the quota was used up."""
    throttled_s: float = 0.0
    """Time in s for which the group's tasks were throttled, summed over CPUs."""
    newest_s: float = 0.0
    """Part of `throttled_s` that the newest record added."""
    newest_periods: tuple[int, int] = 0, 0
    """Periods and throttled periods that the newest record added."""
    _last_counts: tuple[int, int, int] | None = field(default=None, init=False)

    def add_record(self, cpus: float, counts: tuple[int, int, int]) -> None:
        """Adds a record of cumulative counts: periods, throttled periods, throttled time in us."""
        self.cpus, self.newest_s, self.newest_periods = cpus, 0.0, (0, 0)
        last_counts = self._last_counts or counts
        increments = [count - last for count, last in zip(counts, last_counts, strict=True)]
        periods, throttled, throttled_us = increments
        if min(increments) >= 0:
            self.period_count += periods
            self.throttled_count += throttled
            self.newest_s, self.newest_periods = throttled_us / 1e6, (periods, throttled)
            self.throttled_s += self.newest_s
        self._last_counts = counts

    @property
    def owner(self) -> str:
        return owner(self.group)


class Quotas:
    """The CPU quotas in a stream, and the processes to which they apply."""

    def __init__(self) -> None:
        self.by_group: dict[str, Quota] = {}
        self._groups: dict[int, list[str]] = {}
        """By PID, the groups whose quotas apply, innermost first."""
        self.newest_pids: dict[str, list[int]] = {}
        """For each group in the newest record, the PIDs to which its quota applies."""

    def read_records(self, records: Mapping[str, object]) -> None:
        """Reads a frame's records, which are untrusted."""
        if "quotas" in records or "tasks" in records:
            self.newest_pids = {}
        match records.get("quotas"):
            case {"groups": dict() as groups, "pids": dict() as pids}:
                for group, entry in groups.items():
                    match entry:
                        case [
                            int() | float() as cpus,
                            int() as periods,
                            int() as used,
                            int() as us,
                        ]:
                            has_room = group in self.by_group or len(self.by_group) < MAX_GROUPS
                            if isinstance(group, str) and isfinite(cpus) and cpus > 0 and has_room:
                                empty = Quota(safe_text(group, MAX_PATH_LENGTH), float(cpus))
                                quota = self.by_group.setdefault(group, empty)
                                quota.add_record(float(cpus), (periods, used, us))
                for pid, names in pids.items():
                    if isinstance(names, list) and re.fullmatch("[0-9]{1,10}", str(pid)):
                        known_groups = [
                            n for n in names if isinstance(n, str) and n in self.by_group
                        ]
                        self._groups.pop(int(pid), None)
                        self._groups[int(pid)] = known_groups
                        for group in known_groups:
                            self.newest_pids.setdefault(group, []).append(int(pid))
                drop_oldest(self._groups, MAX_PIDS)

    def copy(self) -> Quotas:
        return self.minus(Quotas())

    def minus(self, earlier: Quotas) -> Quotas:
        """Returns the quotas with only the counts after `earlier`."""
        difference = Quotas()
        difference._groups = self._groups.copy()
        for group, quota in self.by_group.items():
            difference.by_group[group] = new_quota = replace(quota)
            if (old_quota := earlier.by_group.get(group)) is not None:
                new_quota.period_count -= old_quota.period_count
                new_quota.throttled_count -= old_quota.throttled_count
                new_quota.throttled_s -= old_quota.throttled_s
        return difference

    def quotas_of(self, pid: int) -> list[Quota]:
        """Returns the quotas that apply to a process, innermost group first."""
        return [self.by_group[group] for group in self._groups.get(pid, ())]

    def most_limiting_quota(self, pid: int) -> Quota | None:
        """Returns the quota that stopped a process for the longest time; None if it has no
        quota."""
        worst_quota = max(self.quotas_of(pid), key=lambda quota: quota.throttled_s, default=None)
        return worst_quota if worst_quota is not None and worst_quota.throttled_s > 0 else None


class MemoryGroup(NamedTuple):
    """Memory limit and stalls of a control group, since the previous record."""

    name: str
    limit_bytes: int
    """0 if no limit is known."""
    hits: int
    """Number of times that the group reached its limit."""
    pages_read_back: int
    stalled_us: int | None
    """Time in us for which at least one task of the group stalled; None if unknown."""
    pids: frozenset[int]
    """The watched processes in the group."""


def memory_groups(records: Mapping[str, object]) -> Iterator[MemoryGroup]:
    """Yields the valid control groups in the untrusted record of memory."""
    match records.get("memory"):
        case {"groups": dict() as groups, **rest}:
            pass
        case _:
            return
    pids_by_group: dict[object, set[int]] = {}
    members = rest.get("pids")
    for pid, group in members.items() if isinstance(members, dict) else ():
        if isinstance(group, str) and re.fullmatch("[0-9]{1,10}", str(pid)):
            pids_by_group.setdefault(group, set()).add(int(pid))
    for group, entry in groups.items():
        match entry:
            case [
                int() | None as limit,
                int() | None as hits,
                int() | None as pages,
                int() | None as stalled_us,
            ]:
                yield MemoryGroup(
                    safe_text(str(group), MAX_PATH_LENGTH), max(0, limit or 0), max(0, hits or 0),
                    pages or 0, stalled_us, frozenset(pids_by_group.get(group, ())),
                )  # fmt: skip


_OWNERS = (
    (re.compile(r"/job_(\d+)"), "Slurm job {}"),
    (re.compile(r"pod([0-9a-f]{8})[0-9a-f_-]*"), "pod {}"),
    (
        re.compile(r"(?:docker|libpod|crio|cri-containerd)[-/]([0-9a-f]{12})[0-9a-f]*"),
        "container {}",
    ),
    (re.compile(r"/lxc(?:\.payload\.|/)([^/]+)"), "container {}"),
    (re.compile(r".*/(?!user@)([^/]+\.(?:service|scope))"), "{}"),
    (re.compile(r".*/([^/]+\.slice)"), "{}"),
)
"""Patterns of a control group's path, and the owner's name, which includes the match."""
_LONG_ID = re.compile(r"(?<![0-9a-z])([0-9a-f]{12})[0-9a-f]{8,}(?![0-9a-z])")
_ONLY_ID = re.compile(r"/[0-9a-f]{12,}$")
"""End of an owner's name that is an identifier, cut by _LONG_ID, and says nothing in evidence."""


def has_only_id(owner: str) -> bool:
    """Returns whether the name of an owner of a task ends with a mere identifier."""
    return _ONLY_ID.search(owner) is not None


def is_pid(watched: str) -> bool:
    """Returns whether a watched job is a process, not all processes of a name or a group."""
    return is_digits(watched)


def is_group(watched: str) -> bool:
    """Returns whether the watched job is a control group or a unit, not a process."""
    return watched.startswith("/") or watched.endswith((".service", ".scope", ".slice"))


@lru_cache(maxsize=256)
def owner(group: str) -> str:
    """Returns the owner of a control group: a job, a pod, a container or a unit. Without one,
    returns the path, with long identifiers cut to twelve digits, as container engines do."""
    for pattern, words in _OWNERS:
        if match := pattern.search(group):
            return words.format(match[1])
    return "this container" if group == "/" else _LONG_ID.sub(r"\1", group)


def short_owner(group: str) -> str:
    """Returns `owner`, but only the last part of a path."""
    return owner(group).rpartition("/")[2] or group


def process_owner(details: Mapping[str, object]) -> str:
    """Returns the `owner` of a process's control group; '' if the group is unknown or the root
    group. `details`: the untrusted record of the process."""
    group = details.get("group")
    return safe_text(owner(group), MAX_NAME_LENGTH) if isinstance(group, str) and group else ""


def allowed_cpus(
    details: Mapping[str, Mapping[str, object]], pids: Iterable[int], online: set[int]
) -> tuple[str, set[int]]:
    """Returns how these processes are restricted to some CPUs ("mask" or "cpuset"; '' if they are
    not, or if it is unknown), and the CPUs that they may use. `details`: of processes, by PID."""
    usable_cpus: set[int] = set()
    by_cpuset = True
    for pid in pids:
        process = details.get(str(pid), {})
        mask, cpuset = (parse_cpu_list(process.get(key), online) for key in ("affinity", "cpuset"))
        if not mask:
            continue  # only the processes that ran most are described
        usable_cpus |= mask
        by_cpuset &= bool(cpuset) and mask >= cpuset
    if not usable_cpus or usable_cpus == online:
        return "", online
    return "cpuset" if by_cpuset else "mask", usable_cpus


def parse_cpu_list(text: object, online: set[int]) -> set[int]:
    """Parses a list of CPUs such as 0-3,8. Returns the online ones; an empty set for other text."""
    bounds = re.findall(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", text) if isinstance(text, str) else []
    end = max(online, default=0) + 1
    spans = (range(int(first), min(int(last or first) + 1, end)) for first, last in bounds)
    return online.intersection(chain.from_iterable(spans))
