"""Reads memory traffic and occupancy of each L3 from resctrl, if it is mounted; never mounts it.

Each control group has a monitor, which also counts its monitoring groups. An L3's traffic is the
sum over control groups. Groups may be created and removed, and a group's counter restarts when the
kernel assigns another monitor to it. So increases are added up here. A read is not valid if a
counter stepped back or a group had no counter.

The traffic of each single group, monitoring groups included, is a record of the frame, which shows
which tasks use the memory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from perfprobe import wire
from perfprobe.cpu import files, identity
from perfprobe.polled.polling import PolledBlock, ReadPace, Values
from perfprobe.wire import Counter, Cpu, Missing

RESCTRL_PATH = "sys/fs/resctrl"
NOT_GROUPS = {"info", "mon_groups", "mon_data"}
"""Directories of resctrl that are not control groups."""
FILES = {
    "mbm_total_bytes": Counter("l3_memory_bytes", "traffic of the L3", "B", "resctrl"),
    "mbm_local_bytes": Counter("l3_local_bytes", "traffic to its own node", "B", "resctrl"),
    "llc_occupancy": Counter("l3_occupancy_bytes", "occupancy", "B", "resctrl", "gauge"),
}
REASON_BY_WORD = {
    "Unavailable": "the kernel has no value at present: Unavailable",
    "Unassigned": "no hardware counter is assigned to it: Unassigned",
    "Error": "the hardware reports an error",
}
MAX_GROUPS = 64
"""Maximum number of control groups that are read; hardware has at most 16 classes of service."""
TRAFFIC_FILE, GROUPS_RECORD = "mbm_total_bytes", "l3_groups"
"""The file with the traffic of a group, and the name of the frame's record with it."""
ONE_GROUP_REASON = "only the default group exists, so all tasks share its monitor"
NO_MONITORING = "resctrl is not mounted, and perftop does not mount it"


@dataclass(slots=True, eq=False)
class GroupSum:
    """The sum of the increases of one kind of file in several groups, for one L3."""

    total: int = 0
    last_values: dict[str, int] = field(default_factory=dict)
    """By group: the value at the last read."""

    def add(self, values: dict[str, int]) -> bool:
        """Adds the increases since the last read, of groups that existed then. Returns False, and
        adds nothing, if a counter stepped back."""
        steps = [
            value - self.last_values[group]
            for group, value in values.items()
            if group in self.last_values
        ]
        self.last_values = values
        if any(step < 0 for step in steps):
            return False
        self.total += sum(steps)
        return True


class Resctrl(PolledBlock):
    """The "l3" block, and the record of groups."""

    def __init__(
        self, root: Path, rows: Sequence[Cpu], clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._directory = f"{root}/{RESCTRL_PATH}"
        self._pace = ReadPace(clock)
        """Limits reads, because each interrupts a CPU of the L3."""
        self.rows = len(rows)
        self._totals: dict[tuple[str, int], int | str | None] = {}
        """By group and L3: values of TRAFFIC_FILE that were read for the current frame."""
        self._row_by_l3: dict[int, int] = {}
        """By L3: its row in the block, which is that of its first online CPU."""
        for number, row in enumerate(rows):
            if row.online and row.l3 is not None:
                self._row_by_l3.setdefault(row.l3, number)
        self._domains = [n for n in self._l3_numbers() if n in self._row_by_l3]
        counters = [name for name in FILES if self._domains and self._is_usable(name)]
        self._file_names = counters
        cpus = sorted(rows[self._row_by_l3[n]].cpu for n in self._domains)
        counters_here = [replace(FILES[name], cpus=cpus) for name in counters]
        self.block = wire.Block("l3", "cpu", counters_here)
        self._sums = {(n, name): GroupSum() for n in self._domains for name in counters}
        self._values: dict[int, list[int | None]] = {}
        self._group_sums: dict[tuple[str, int], GroupSum] = {}
        """By path of the group and L3: the group's traffic since it was first read."""
        self._record: dict[str, list[list[int | None]]] = {}
        groups = [*self._control_groups(), *self._monitoring_groups([""])]
        if not self._domains:
            self._report_missing(root)
        elif TRAFFIC_FILE in counters and len(groups) < 2:
            self.missing.append(Missing(GROUPS_RECORD, ONE_GROUP_REASON))

    def read(self) -> Iterator[tuple[int, Values]]:
        """Yields the row of each L3 if a read is due. Frames without a read have no rows, so the
        next difference covers the whole time."""
        with self._pace.timed_read() as is_due:
            if not is_due:
                return
            groups = list(self._control_groups())
            self._update_groups([*groups, *self._monitoring_groups(groups)])
            for number in self._domains:
                values: list[int | None] = []
                for name in self._file_names:
                    counts = {group: self._read_count(group, number, name) for group in groups}
                    known = {g: count for g, count in counts.items() if isinstance(count, int)}
                    l3_sum = self._sums[number, name]
                    if not known or len(known) < len(counts):
                        values.append(None)
                    elif FILES[name].kind == "gauge":
                        values.append(sum(known.values()))
                    else:
                        values.append(l3_sum.total if l3_sum.add(known) else None)
                yield self._row_by_l3[number], values
            self._totals = {}

    def take_records(self) -> dict[str, object]:
        """Returns the frame's record with the traffic of each group; empty without a read since the
        last call, or if only the default group exists."""
        record, self._record = self._record, {}
        return {GROUPS_RECORD: record} if record else {}

    def _update_groups(self, groups: Sequence[str]) -> None:
        """Adds up the traffic of each single group, and makes the record. The sums of removed
        groups are dropped, so a later group with that name starts from 0."""
        old_sums, self._group_sums = self._group_sums, {}
        self._record = {}
        if TRAFFIC_FILE not in self._file_names or len(groups) < 2:
            self._group_sums = {key: old_sums[key] for key in old_sums if key[0] in groups}
            return
        for group in groups:
            rows: list[list[int | None]] = []
            for number in self._domains:
                key = group, number
                group_sum = self._group_sums[key] = old_sums.get(key, GroupSum())
                value = self._totals[key] = self._read_count(group, number, TRAFFIC_FILE)
                is_valid = isinstance(value, int) and group_sum.add({group: value})
                rows.append([number, group_sum.total if is_valid else None])
            name = group.removeprefix("/").encode(errors="surrogateescape")
            self._record[name.decode(errors="replace")] = rows

    def _read_count(self, group: str, number: int, name: str) -> int | str | None:
        """Returns the number (or the word in its place) in a group's file for an L3; None if it
        cannot be read, because a group may be removed at any time."""
        if name == TRAFFIC_FILE and (group, number) in self._totals:
            return self._totals[group, number]
        text = files.read_word(f"{self._directory}{group}/mon_data/mon_L3_{number:02d}/{name}")
        if text.isdigit() and len(text) <= 20:
            return int(text) % 2**64
        return text or None

    def _control_groups(self) -> Iterator[str]:
        """Yields the control groups as paths below the mount point, the default group '' first."""
        yield ""
        names = (name for name in files.file_names(self._directory) if name not in NOT_GROUPS)
        base = self._directory
        groups = (f"/{n}" for n in names if os.path.isdir(f"{base}/{n}/mon_data"))  # noqa: PTH112
        yield from islice(groups, MAX_GROUPS)

    def _monitoring_groups(self, groups: Sequence[str]) -> Iterator[str]:
        """Yields the monitoring groups in these control groups, as paths below the mount point."""
        directories = (f"{group}/mon_groups" for group in groups)
        paths = (
            f"{d}/{name}" for d in directories for name in files.file_names(self._directory + d)
        )
        yield from islice(paths, MAX_GROUPS)

    def _l3_numbers(self) -> list[int]:
        return files.numbered_entries(f"{self._directory}/mon_data", "mon_L3_")

    def _is_usable(self, name: str) -> bool:
        """Returns whether this file of the default group has a number; if not, reports why."""
        values = [self._read_count("", number, name) for number in self._domains]
        if any(isinstance(value, int) for value in values):
            return True
        word = next((value for value in values if isinstance(value, str)), "")
        reason = f"the file contains {word[:40]!r}" if word else "no monitor of this kind here"
        self.missing.append(Missing(FILES[name].key, REASON_BY_WORD.get(word, reason)))
        return False

    def _report_missing(self, root: Path) -> None:
        """Reports why resctrl is missing, if the CPU supports it."""
        if "cqm_mbm_total" in (identity.cpu_flags(root) or ()):
            fix = "sudo mount -t resctrl resctrl /sys/fs/resctrl"
            mounted = bool(self._l3_numbers())
            reason = "it numbers L3s differently from the topology" if mounted else NO_MONITORING
            self.missing.append(Missing("l3_memory_bytes", reason, None if mounted else fix))
