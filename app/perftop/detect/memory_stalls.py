"""Detects that tasks stand still for memory: at the limit of their control group, while the machine
is short of memory, or while the kernel compacts or moves it.

The probe records about once a second for how long at least one task stood still (PSI), and what the
kernel counted meanwhile. PSI does not name a cause, so the counts decide: the cause is a group that
reached its memory limit, else the counter of the whole machine that increased. PSI does not include
the time of NUMA balancing, which is computed from the number of faults and pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from perftop.base.arrays import first_true
from perftop.base.text import safe_text
from perftop.detect.engine import (
    DetectorInput,
    RecordEpisode,
    RecordEpisodes,
    RunningEpisodes,
    has_task_records,
)
from perftop.model.kinds import Episode
from perftop.model.sample_reader import SampleBatch, SampleReader
from perftop.model.tasks import TaskSnapshot, owner

START, END = 0.03, 0.01
"""Shares of the time, at which an episode starts and below which it ends."""
MIN_REFAULTS_PER_S = 200
"""Pages read back per second from which tasks count as waiting for these pages, not for free
memory."""
NUMA_FAULT_S, NUMA_PAGE_S = 2e-6, 5e-6
"""Typical time in s of a hinting fault of NUMA balancing, and of the move of a page."""
MAX_GROUP = 256


class _Stall(NamedTuple):
    """The stalls with one cause in one record."""

    cause: str
    group: str
    """The control group at its limit; '' for the whole machine."""
    stalled_s: float
    counts: dict[str, float]
    pids: frozenset[int] = frozenset()
    """The processes of the group."""


class MemoryStalls:
    """Detects stalls for memory. An episode has one cause and one group."""

    def __init__(self, reader: SampleReader, episodes: RunningEpisodes) -> None:
        self.is_available = True
        self._cpus = [*reader.position]
        self._stalls = RecordEpisodes(reader, episodes, "memory-stall", START, END)

    def skip_calm_samples(self, batch: SampleBatch, first: int, last: int) -> int:
        return first_true(batch.cached(has_task_records), first, last)

    def sample(self, data: DetectorInput) -> list[Episode]:
        """Returns the episodes that this sample ended."""
        if "tasks" not in data.records:
            return []
        is_whole = self._stalls.note_record(data.time_ns)
        for stall in _stalls(data.records, self._stalls.span_s) if is_whole else ():
            current = self._stalls.add((stall.cause, stall.group), stall.cause, stall.stalled_s)
            if current is not None:
                self._describe(current, stall, data.records)
        return self._stalls.close()

    def _describe(
        self, current: RecordEpisode, stall: _Stall, records: Mapping[str, object]
    ) -> None:
        """Sets the CPU, depth and evidence of an episode. The CPU is one on which a task of the
        group ran, because it is unknown where tasks stood still."""
        episode = current.episode
        if not episode.cpus:
            snapshot = TaskSnapshot.from_records(records) or TaskSnapshot()
            cpus = [
                cpu for cpu in self._cpus
                if any(ran.pid in stall.pids or not stall.group
                       for ran in snapshot.tasks_on(str(cpu)))
            ]  # fmt: skip
            episode.cpus = cpus[:1] or self._cpus[:1]
        episode.depth = min(1.0, current.lost_s / current.span_s)
        evidence = episode.evidence
        if stall.group:
            evidence["owner"], evidence["group"] = owner(stall.group), stall.group
        evidence["stalled_s"] = round(current.lost_s, 3)
        for name, value in stall.counts.items():
            known = name == "memory_limit_mb"
            evidence[name] = round(value if known else evidence.get(name, 0) + value)


def _stalls(records: Mapping[str, object], span_s: float) -> Iterator[_Stall]:
    """Yields the stalls in a record, which is untrusted."""
    match records.get("memory"):
        case {"stalled_us": int() as us, "counts": dict() as named, **rest} if 0 <= us < 1 << 53:
            pass
        case _:
            return
    counts = {str(k): v for k, v in named.items() if type(v) is int and 0 <= v < 1 << 62}
    left_s = min(us / 1e6, span_s)
    groups, pids = rest.get("groups"), rest.get("pids")
    members = pids if isinstance(pids, dict) else {}
    for group, entry in groups.items() if isinstance(groups, dict) else ():
        match entry:
            case [
                int() | None as limit,
                int() | None as hits,
                int() | None as pages,
                int() | None as group_us,
            ] if hits and hits > 0 and limit:
                # The machine's time includes that of the group, if both are up to date.
                stalled_s = min(span_s, left_s if group_us is None else group_us / 1e6)
                left_s = max(0.0, left_s - stalled_s)
                evidence = {"memory_limit_mb": limit / 1e6, "at_limit": hits}
                evidence["pages_read_back"] = pages or 0
                own = [pid for pid in members if re.fullmatch("[0-9]{1,10}", str(pid))]
                yield _Stall(
                    "memory-limit",
                    safe_text(str(group), MAX_GROUP),
                    stalled_s,
                    evidence,
                    frozenset(int(pid) for pid in own if members[pid] == group),
                )
    stalls = sum(n for key, n in counts.items() if key.startswith("allocstall"))
    back = sum(n for key, n in counts.items() if key.startswith("workingset_refault"))
    swapped = counts.get("pswpin", 0)
    if swapped + back >= MIN_REFAULTS_PER_S * span_s and (swapped or stalls):
        evidence = {"pages_read_back": back, "pages_swapped_in": swapped}
        yield _Stall("read-back", "", left_s, evidence)
    elif counts.get("compact_stall", 0) > stalls:
        names = {"compact_stall": "compactions", "thp_fault_fallback": "huge_pages_failed"}
        evidence = {names[key]: n for key, n in counts.items() if key in names}
        yield _Stall("compaction", "", left_s, evidence)
    elif stalls:
        yield _Stall("reclaim", "", left_s, {"direct_reclaims": stalls})
    faults, moved = (counts.get(key, 0) for key in ("numa_hint_faults", "numa_pages_migrated"))
    numa_s = faults * NUMA_FAULT_S + moved * NUMA_PAGE_S
    evidence = {"numa_faults": faults, "numa_pages_moved": moved}
    yield _Stall("numa-balancing", "", min(numa_s, span_s), evidence)
