"""Reports how long tasks were stalled for lack of memory, and how much memory the kernel reclaimed,
from /proc and the files of control groups.

The kernel's memory pressure (PSI) is the time for which at least one task was stalled. The files of
control groups are read only while the pressure of the whole machine increases."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from perfprobe.cpu import files
from perfprobe.kernel.cgroups import Hierarchy, hierarchy, read_counts

REFAULT_KEYS = ("workingset_refault_anon", "workingset_refault_file")
VMSTAT_KEYS = (
    "allocstall_dma32", "allocstall_normal", "allocstall_movable", "pgscan_direct", "pgscan_kswapd",
    "compact_stall", "compact_daemon_wake", "thp_fault_fallback", "numa_hint_faults",
    "numa_pages_migrated", "pswpin", "pswpout", *REFAULT_KEYS,
)  # fmt: skip
"""Keys of /proc/vmstat whose increases are recorded."""
MIN_STALL_US = 2_000
"""Stall time in us since the last scan at which the files of control groups start to be read."""
MAX_GROUPS = 32
_COUNT = re.compile(rf"^({'|'.join(VMSTAT_KEYS)}) (\d{{1,18}})$", re.MULTILINE | re.ASCII)
_STALL_PATTERN = re.compile(r"^some .*total=(\d{1,18})$", re.MULTILINE | re.ASCII)


class MemoryStalls:
    def __init__(self, root: Path) -> None:
        self._proc = f"{root}/proc"
        self._vmstat = files.OpenFile(f"{self._proc}/vmstat")
        self._pressure = files.OpenFile(f"{self._proc}/pressure/memory")
        self._limits, self._unified = hierarchy(root, "memory"), hierarchy(root, "")
        self._stalled_us: int | None = None
        self._last_counts: dict[str, int] = {}
        self._last_groups: dict[str, list[int | None]] = {}
        """By control group: limit, hits, pages and stall time at the last read."""

    def record(self, watched: Iterable[int], pids: Iterable[int] = ()) -> dict[str, Any]:
        """Returns the "memory" record of a frame for the time since the last call; empty if no
        count increased. The control groups of watched processes are always read, those of `pids`
        only if tasks were stalled for MIN_STALL_US."""
        text = self._vmstat.read()
        last = self._last_counts
        self._last_counts = {key: int(n) for key, n in _COUNT.findall(text)}
        counts = {k: n - last[k] for k, n in self._last_counts.items() if n > last.get(k, n)}
        before_us = self._stalled_us
        self._stalled_us = parse_stalled_us(self._pressure.read())
        risen_us = (self._stalled_us or 0) - (before_us or 0) if before_us is not None else 0
        groups: dict[str, list[int | None]] = {}
        members: dict[str, str] = {}
        more_pids = pids if risen_us >= MIN_STALL_US else ()
        for pid in dict.fromkeys([*watched, *more_pids]):
            self._read_group(pid, groups, members)
        last_groups, self._last_groups = self._last_groups, groups
        increases: dict[str, list[int | None]] = {}
        for group, (limit, *now) in groups.items():
            if group in last_groups:
                increases[group] = [limit, *map(_increase, now, last_groups[group][1:])]
        if not counts and risen_us < MIN_STALL_US:
            return {}
        record: dict[str, Any] = {"stalled_us": max(0, risen_us), "counts": counts}
        if increases:
            group_of = {pid: group for pid, group in members.items() if group in increases}
            record |= {"groups": increases, "pids": group_of}
        return record

    def close(self) -> None:
        self._vmstat.close()
        self._pressure.close()

    def _read_group(
        self, pid: int, groups: dict[str, list[int | None]], members: dict[str, str]
    ) -> None:
        """Adds the control group of a process to `groups` and `members`, unless it is the root
        group: its limit in bytes, how often it reached the limit, the pages that it read back, and
        the us for which it was stalled."""
        text = files.read_text(f"{self._proc}/{pid}/cgroup")
        group = self._limits.group_in(text)
        if group is None or group == "/":
            return
        if group not in groups:
            if len(groups) >= MAX_GROUPS:
                return
            group_path, stalled = self._unified.group_in(text), None
            if group_path is not None and group_path != "/":
                path = f"{self._unified.path(group_path)}/memory.pressure"
                stalled = parse_stalled_us(files.read_text(path))
            groups[group] = [*memory_events(self._limits, group), stalled]
        members[str(pid)] = group


def memory_events(hierarchy: Hierarchy, group: str) -> list[int | None]:
    """Returns the memory limit of a control group in bytes, how often its tasks reached it, and the
    number of refaulted pages; None for unknown values."""
    directory = hierarchy.path(group)
    counts = read_counts(f"{directory}/memory.stat")
    pages = [n for key, n in counts.items() if key in REFAULT_KEYS]
    if hierarchy.version == 1:
        # Without a limit, the file has a number of 19 digits.
        limit = files.read_number(f"{directory}/memory.limit_in_bytes")
        hit_count = files.read_number(f"{directory}/memory.failcnt")
    else:
        limit = files.read_number(f"{directory}/memory.max")
        events = read_counts(f"{directory}/memory.events")
        hit_count = sum(events.get(key, 0) for key in ("high", "max")) if events else None
    return [limit, hit_count, sum(pages) if pages else None]


def parse_stalled_us(text: str) -> int | None:
    """Returns the us for which some task was stalled, from a PSI file's text; None if unknown."""
    match = _STALL_PATTERN.search(text)
    return int(match[1]) if match else None


def _increase(value: int | None, last: int | None) -> int | None:
    return None if value is None or last is None else max(0, value - last)
