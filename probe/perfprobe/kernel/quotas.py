"""CPU quotas of control groups, and how often they have stopped their tasks.

A group with a quota may use so many CPUs; once it has used up a period's share, all its tasks stand
still until the next period. The quota of each ancestor holds as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from perfprobe.cpu import files
from perfprobe.kernel.cgroups import MAX_FILE_BYTES, Hierarchy, hierarchy

MAX_GROUPS = 128
"""Groups that are looked at in a scan: each costs a read, some 15 us."""
MAX_DEPTH = 16
REREAD = 5
"""A group without a quota is looked at again after so many scans."""

Usage = list[float | int]
"""CPUs that the quota allows; periods, throttled periods and throttled microseconds so far, the
last summed over CPUs."""


class Quotas:
    """The quotas that hold for some processes. Groups are named by their path in the hierarchy."""

    def __init__(self, root: Path) -> None:
        self._proc = f"{root}/proc"
        self._hierarchy = hierarchy(root, "cpu")
        self._groups: dict[str, tuple[int, str | None, int]] = {}
        """By PID: the scan in which it was read, the group, and after how many scans it is read
        again."""
        self._free: dict[str, int] = {}
        """Groups without a quota, by the scan in which that was read."""
        self._scan = 0

    def record(self, pids: Iterable[int]) -> dict[str, dict[str, object]]:
        """The record for the wire; empty if no quota holds for these processes."""
        usages, groups = self.held(pids)
        return {"groups": {**usages}, "pids": {**groups}} if usages else {}

    def held(self, pids: Iterable[int]) -> tuple[dict[str, Usage], dict[str, list[str]]]:
        """The usage of the groups with a quota that holds for any of these processes; and by PID,
        the groups whose quota holds for it, the innermost first."""
        usages: dict[str, Usage] = {}
        groups: dict[str, list[str]] = {}
        hierarchy = self._hierarchy
        if hierarchy is None:
            return usages, groups
        self._scan += 1
        read: dict[str, Usage | None] = {}
        for pid in dict.fromkeys(pids):
            chain = _chain(self._group(hierarchy, pid))
            for group in chain:
                if group not in read and len(read) < MAX_GROUPS:
                    read[group] = self._usage(hierarchy, group)
            limited = {group: usage for group in chain if (usage := read.get(group)) is not None}
            if limited:
                usages |= limited
                groups[str(pid)] = [*limited]
        known = sorted(self._groups.items(), key=lambda pair: pair[1][0])
        self._groups = dict(known[-MAX_GROUPS * MAX_DEPTH :])
        return usages, groups

    def _group(self, hierarchy: Hierarchy, pid: int) -> str | None:
        """The group of a process, which is read again now and then: soon at first, since a process
        is often moved just after it has started."""
        scan, group, pause = self._groups.get(str(pid), (0, None, 0))
        if self._scan - scan >= pause:
            group = hierarchy.group(files.text(f"{self._proc}/{pid}/cgroup") or "")
            self._groups[str(pid)] = self._scan, group, min(REREAD, pause + 1)
        return group

    def _usage(self, hierarchy: Hierarchy, group: str) -> Usage | None:
        """None if the group has no quota."""
        if self._scan - self._free.get(group, -REREAD) < REREAD:
            return None
        at = hierarchy.path(group)
        cpus = _allowed_cpus(at, hierarchy.version)
        if cpus is None:
            self._free[group] = self._scan
            if len(self._free) > MAX_GROUPS * MAX_DEPTH:
                self._free.clear()
            return None
        text = files.text(f"{at}/cpu.stat", MAX_FILE_BYTES) or ""
        counts = dict(re.findall(r"^(\w+) (\d{1,19})$", text, re.MULTILINE))
        if "nr_throttled" not in counts:
            return None
        throttled_us = (
            int(counts.get("throttled_usec", 0)) or int(counts.get("throttled_time", 0)) // 1000
        )
        return [cpus, int(counts.get("nr_periods", 0)), int(counts["nr_throttled"]), throttled_us]


def _chain(group: str | None) -> list[str]:
    """A group and its ancestors up to the mount point."""
    if group is None:
        return []
    path = PurePosixPath(group)
    return [str(each) for each in (path, *path.parents)][:MAX_DEPTH]


def _allowed_cpus(directory: str, version: int) -> float | None:
    """CPUs that a group's quota allows; None: it has none."""
    if version == 2:
        words = (files.text(f"{directory}/cpu.max", MAX_FILE_BYTES) or "").split()
    else:
        names = "cpu.cfs_quota_us", "cpu.cfs_period_us"
        texts = [files.text(f"{directory}/{name}", MAX_FILE_BYTES) or "" for name in names]
        words = [text.strip() for text in texts]
    if len(words) != 2 or not all(word.isdecimal() and len(word) < 16 for word in words):
        return None  # "max", or -1, or no such file
    quota, period = map(int, words)
    return quota / period if period else None
