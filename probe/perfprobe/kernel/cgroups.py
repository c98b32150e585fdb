"""Control groups: where they are mounted, which groups a process is in, and their CPU quotas.

Version 2 has all controllers in one hierarchy; version 1 may have a hierarchy for each controller.
In a container the visible root of the hierarchy is the container's own group, which has files like
any other group.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path, PurePosixPath

from perfprobe.cpu import files

_COUNT = re.compile(r"^(\w+) (\d{1,18})$", re.MULTILINE | re.ASCII)


@dataclass(slots=True)
class Hierarchy:
    """The hierarchy of control groups for one controller."""

    controller: str
    directory: str = ""
    """The mount point of the hierarchy."""
    root: str = ""
    """The path, within the whole hierarchy, of the group that is mounted there."""
    version: int = 0
    """1 or 2; 0 if no hierarchy of this controller is mounted. Then it has no groups."""

    def path(self, group: str) -> str:
        return self.directory + ("" if group == "/" else group)

    def group_in(self, cgroup_file: str) -> str | None:
        """Returns the group of a process, from the text of its /proc/PID/cgroup, as a path below
        the mount point; None if this hierarchy does not list it. A line of the text is
        `number:controllers:path`, without controllers for version 2."""
        for line in cgroup_file.splitlines() if self.version else ():
            _, controllers, path = [*line.split(":", 2), "", ""][:3]
            is_v1 = self.controller in controllers.split(",")
            is_own = is_v1 if self.version == 1 else not controllers
            if not is_own or ".." in path:  # a path with ".." is outside this process's namespace
                continue
            root = self.root.rstrip("/")
            return (path.removeprefix(root) or "/") if f"{path}/".startswith(f"{root}/") else path
        return None


def hierarchy(root: Path, controller: str) -> Hierarchy:
    result = Hierarchy(controller)
    for line in files.read_text(f"{root}/proc/self/mountinfo", files.MAX_LARGE_BYTES).splitlines():
        mount_fields, _, type_fields = line.partition(" - ")
        fields, kind = mount_fields.split(), type_fields.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        directory = f"{root}{_unescape(fields[4])}".replace("//", "/")
        mounted = Hierarchy(controller, directory, _unescape(fields[3]), 2)
        if kind[0] == "cgroup" and controller in kind[2].split(","):
            mounted.version = 1
            return mounted
        if kind[0] == "cgroup2" and not result.version:
            result = mounted
    return result


def read_counts(path: str) -> dict[str, int]:
    """Returns the numbers by name in a file of lines such as "frozen 1"; empty if unreadable."""
    return {name: int(n) for name, n in _COUNT.findall(files.read_text(path))}


def read_cpuset(hierarchy: Hierarchy, cgroup_file: str) -> str:
    """Returns the CPUs that the cpuset of a process allows, such as "0-3,8"; '' if unknown, or for
    the root group. `cgroup_file` is the text of /proc/PID/cgroup."""
    group = hierarchy.group_in(cgroup_file)
    if group is None or group == "/":
        return ""
    names = ("effective_cpus", "cpus") if hierarchy.version == 1 else ("cpus.effective",)
    texts = (files.read_text(f"{hierarchy.path(group)}/cpuset.{n}") for n in names)
    return next((text.strip() for text in texts if text.strip()), "")


def is_frozen(hierarchy: Hierarchy, cgroup_file: str) -> bool:
    """Returns whether a task's control group is frozen. A frozen task's state is D (waits for a
    disk) in version 1, S (sleeps) in version 2. `cgroup_file` is the text of /proc/PID/cgroup."""
    group = hierarchy.group_in(cgroup_file)
    if group is None:
        return False
    if hierarchy.version == 2:
        return read_counts(f"{hierarchy.path(group)}/cgroup.events").get("frozen") == 1
    text = files.read_text(f"{hierarchy.path(group)}/freezer.state")
    return text.strip() in {"FROZEN", "FREEZING"}


# --- groups by name, and their processes ----------------------------------------------------------

UNIT_SUFFIXES = (".service", ".slice", ".scope")
MAX_SEARCHED_GROUPS = 4096
"""Maximum number of groups that are searched for a unit, or for the subgroups of a group."""


def group_directories(root: Path, text: str) -> list[str]:
    """Returns the directory of the control group with this path (absolute, or below a mount point),
    or the directories of all groups of the systemd unit with this name; empty if there are none."""
    names = ("", "name=systemd", "cpu", "memory", "cpuset")  # "" names the hierarchy of version 2
    hierarchies = (hierarchy(root, name) for name in names)
    mounts = [mounted.directory for mounted in hierarchies if mounted.version]
    if text.startswith("/"):
        paths = [f"{root}{text}".replace("//", "/"), *(f"{mount}{text}" for mount in mounts)]
        return [path for path in paths if Path(path, "cgroup.procs").is_file()][:1]
    for mount in mounts:
        matching_paths = [path for path in _subdirectories(mount) if path.endswith(f"/{text}")]
        if matching_paths:
            return matching_paths
    return []


def member_pids(directories: Iterable[str]) -> set[str]:
    """Returns the PIDs of the processes in these control groups and their subgroups."""
    pids: set[str] = set()
    for directory in directories:
        for group in _subdirectories(directory):
            pids.update(files.read_head(f"{group}/cgroup.procs", files.MAX_LARGE_BYTES).split())
    return pids


def _subdirectories(directory: str) -> list[str]:
    """Returns the directories of a control group and its subgroups, at most MAX_SEARCHED_GROUPS."""
    groups = [directory]
    for group in groups:
        with suppress(OSError), os.scandir(group) as entries:
            groups += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        if len(groups) > MAX_SEARCHED_GROUPS:
            break
    return groups[:MAX_SEARCHED_GROUPS]


def _unescape(text: str) -> str:
    """Decodes a path of mountinfo, in which blanks and backslashes are octal escapes (\\\\040)."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


# --- quotas ---------------------------------------------------------------------------------------
# A quota limits the CPU time of a control group in each period. Once it is used up, all tasks of
# the group are stopped (throttled) until the next period. The quotas of its ancestors also apply.

MAX_GROUPS = 128
"""Maximum number of groups whose quotas are read in a scan; each takes about 15 us."""
MAX_DEPTH = 16
"""Maximum number of groups, from a process's own outwards, whose quotas are read."""
REREAD_SCANS = 5
"""Number of scans after which a group that had no quota is read again."""

QuotaUsage = list[float | int]
"""A group's quota in CPUs, its periods, throttled periods, and throttled us over all CPUs."""


class Quotas:
    """The quotas that apply to given processes. Groups are named by their path in the hierarchy."""

    def __init__(self, root: Path) -> None:
        self._proc = f"{root}/proc"
        self._hierarchy = hierarchy(root, "cpu")
        self._groups: dict[str, tuple[int, str | None, int]] = {}
        """By PID: the scan that read the group, the group, and the scans until the next read."""
        self._unlimited_since: dict[str, int] = {}
        """By group: the scan that found that it has no quota."""
        self._scan_count = 0
        self._recorded_groups: dict[str, list[str]] = {}
        """The groups of each PID in the last record."""

    def record(self, pids: Iterable[int]) -> dict[str, dict[str, object]]:
        """Returns a frame's "quotas" record: the usage of the quotas that apply to these processes,
        and of those that applied to the processes of the last call, which may have ended. Empty if
        there are none."""
        last_groups = self._recorded_groups
        usages, self._recorded_groups = self.read_usages(pids)
        for group in chain.from_iterable(last_groups.values()):
            if group not in usages and (usage := self._usage(group)):
                usages[group] = usage
        return {"groups": {**usages}, "pids": {**self._recorded_groups}} if usages else {}

    def updated_record(self) -> dict[str, dict[str, object]]:
        """Returns the last record's groups with their current counts, even if their processes have
        ended; empty if there are none."""
        names = dict.fromkeys(chain.from_iterable(self._recorded_groups.values()))
        usages = {name: usage for name in names if (usage := self._usage(name))}
        pids: dict[str, object] = {}
        for pid, groups in self._recorded_groups.items():
            pids[pid] = [name for name in groups if name in usages]
        return {"groups": {**usages}, "pids": pids} if usages else {}

    def has_moved(self, pids: Iterable[int]) -> bool:
        """Returns whether one of these processes has moved to another group since its group was
        read. If so, the next `record` reads its group again."""
        is_moved = False
        for pid in pids:
            known_group = self._groups.get(str(pid))
            if known_group is not None and self._read_group(pid) != known_group[1]:
                is_moved = True
                del self._groups[str(pid)]
        return is_moved

    def read_usages(
        self, pids: Iterable[int]
    ) -> tuple[dict[str, QuotaUsage], dict[str, list[str]]]:
        """Returns the usage of each group whose quota applies to any of these processes, and for
        each PID the groups whose quotas apply to it, the innermost first."""
        usages: dict[str, QuotaUsage] = {}
        groups: dict[str, list[str]] = {}
        if not self._hierarchy.version:
            return usages, groups
        self._scan_count += 1
        usage_by_group: dict[str, QuotaUsage | None] = {}
        for pid in dict.fromkeys(pids):
            enclosing = enclosing_groups(self._group(pid) or "")
            for group in enclosing:
                if group not in usage_by_group and len(usage_by_group) < MAX_GROUPS:
                    usage_by_group[group] = self._usage(group)
            limited_groups = {
                group: usage
                for group in enclosing
                if (usage := usage_by_group.get(group)) is not None
            }
            if limited_groups:
                usages |= limited_groups
                groups[str(pid)] = [*limited_groups]
        if len(self._groups) > MAX_GROUPS * MAX_DEPTH:
            known_groups = sorted(self._groups.items(), key=lambda pair: pair[1][0])
            self._groups = dict(known_groups[-MAX_GROUPS * MAX_DEPTH :])
        return usages, groups

    def _group(self, pid: int) -> str | None:
        """Returns the group of a process. It is read again at growing intervals, because processes
        are often moved just after they have started."""
        scan, group, pause = self._groups.get(str(pid), (0, None, 0))
        if self._scan_count - scan >= pause:
            group = self._read_group(pid)
            self._groups[str(pid)] = self._scan_count, group, min(REREAD_SCANS, pause + 1)
        return group

    def _read_group(self, pid: int) -> str | None:
        return self._hierarchy.group_in(files.read_text(f"{self._proc}/{pid}/cgroup"))

    def _usage(self, group: str) -> QuotaUsage | None:
        """Returns the usage of a group; None if the group has no quota."""
        if self._scan_count - self._unlimited_since.get(group, -REREAD_SCANS) < REREAD_SCANS:
            return None
        directory = self._hierarchy.path(group)
        if self._hierarchy.version == 2:
            words = files.read_text(f"{directory}/cpu.max").split()
        else:
            names = "cpu.cfs_quota_us", "cpu.cfs_period_us"
            words = [files.read_text(f"{directory}/{name}").strip() for name in names]
        # Without a quota, a file has "max" or -1, or does not exist.
        is_limited = len(words) == 2 and all(w.isdecimal() and len(w) < 16 for w in words)
        if not is_limited or not int(words[1]):
            self._unlimited_since[group] = self._scan_count
            if len(self._unlimited_since) > MAX_GROUPS * MAX_DEPTH:
                self._unlimited_since.clear()
            return None
        counts = read_counts(f"{directory}/cpu.stat")
        if "nr_throttled" not in counts:
            return None
        throttled_us = counts.get("throttled_usec", 0) or counts.get("throttled_time", 0) // 1000
        cpus = int(words[0]) / int(words[1])
        return [cpus, counts.get("nr_periods", 0), counts["nr_throttled"], throttled_us]


@lru_cache(MAX_GROUPS)
def enclosing_groups(group: str) -> list[str]:
    """Returns a control group and its ancestors, the innermost first; [] for ''."""
    path = PurePosixPath(group)
    return [str(p) for p in (path, *path.parents)][:MAX_DEPTH] if group else []
