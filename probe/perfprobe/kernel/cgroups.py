"""Where the control groups of a controller are mounted, and which of them a process is in.

Version 2 has all controllers in one hierarchy, version 1 may have one for each. In a container the
root of the hierarchy that it sees is its own group, and has files, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from perfprobe.cpu import files

MAX_FILE_BYTES = 4096


@dataclass(slots=True)
class Hierarchy:
    """Where groups of a controller are mounted."""

    controller: str
    directory: str
    root: PurePosixPath
    """The group at the mount point."""
    version: int

    def path(self, group: str) -> str:
        """The directory of a group."""
        return self.directory + ("" if group == "/" else group)

    def group(self, text: str) -> str | None:
        """The group in a cgroup file of /proc, as a path below the mount point; None if the
        hierarchy does not show it. A line is `number:controllers:path`; version 2 has no
        controllers."""
        for line in text.splitlines():
            _, controllers, path = [*line.split(":", 2), "", ""][:3]
            mine = self.controller in controllers.split(",")
            mine = mine if self.version == 1 else not controllers
            if not mine or ".." in path:  # the latter is outside our namespace
                continue
            group = PurePosixPath(path)
            if group.is_relative_to(self.root):
                group = "/" / group.relative_to(self.root)
            return str(group)
        return None


def hierarchy(root: Path, controller: str) -> Hierarchy | None:
    """The hierarchy of a controller; None if none is mounted."""
    found: Hierarchy | None = None
    for line in (files.text(f"{root}/proc/self/mountinfo", 1 << 20) or "").splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        at = f"{root}{_unescaped(fields[4])}".replace("//", "/")
        mounted = Hierarchy(controller, at, PurePosixPath(_unescaped(fields[3])), 2)
        if kind[0] == "cgroup" and controller in kind[2].split(","):
            mounted.version = 1
            return mounted
        if kind[0] == "cgroup2" and found is None:
            found = mounted
    return found


def cpuset(hierarchy: Hierarchy | None, cgroup_file: str) -> str:
    """The CPUs that the cpuset of a process allows, as a list such as "0-3,8"; '' if that is not
    known, or if the process is in the outermost group. `cgroup_file`: text of its cgroup file."""
    group = hierarchy.group(cgroup_file) if hierarchy is not None else None
    if hierarchy is None or group is None or group == "/":
        return ""
    names = ("effective_cpus", "cpus") if hierarchy.version == 1 else ("cpus.effective",)
    texts = (files.text(f"{hierarchy.path(group)}/cpuset.{n}", MAX_FILE_BYTES) for n in names)
    return next((text.strip() for text in texts if text and text.strip()), "")


def is_frozen(hierarchy: Hierarchy | None, cgroup_file: str) -> bool:
    """Whether the group of a task is frozen, by version 1. Its tasks then look as if they waited
    for a disk; those of version 2 look as if they slept, and are not recognised."""
    group = hierarchy.group(cgroup_file) if hierarchy is not None else None
    if hierarchy is None or group is None or hierarchy.version != 1:
        return False
    text = files.text(f"{hierarchy.path(group)}/freezer.state", MAX_FILE_BYTES) or ""
    return text.strip() in {"FROZEN", "FREEZING"}


def _unescaped(text: str) -> str:
    """A path of mountinfo, which has blanks and backslashes as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
