"""Detects time that tasks lose to the hypervisor, to system management interrupts and, from records
sent about once a second, to other interrupts, memory stalls and CPU quotas."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from perftop.base.arrays import Floats
from perftop.base.text import safe_text
from perftop.detect.engine import (
    Detector,
    PauseLimits,
    RecordDetector,
    RecordEpisodes,
    RunningEpisodes,
    ShareEpisodes,
    Trigger,
    counter_advances,
    has_record,
    has_steal,
)
from perftop.model.confidence import confidence
from perftop.model.control_groups import Quotas, memory_groups, owner
from perftop.model.evaluation import TICK_S
from perftop.model.kinds import Episode
from perftop.model.numbers import INDEX
from perftop.model.sample_reader import Sample, SampleReader
from perftop.model.tasks import TaskSnapshot

# --- CPU time that tasks lose to interrupts and softirqs.
#
# About once a second, the probe records the CPUs with such a loss, and the interrupt lines and
# kinds of softirqs whose counts rose most. The counts do not include times. So the reported source
# is the one with the highest product of count and usual cost. ksoftirqd is excluded, because it is
# a task for which others wait.

INTERRUPT_START, INTERRUPT_END = 0.05, 0.03
MIN_TASKS_SHARE = 0.1
"""Minimum share of time for which tasks run on a CPU. Below it, interrupts are not a loss."""
FULL_SHARE, MIN_TASKS_IF_FULL = 0.9, 0.01
"""Busy share above which a CPU counts as full, and the value of MIN_TASKS_SHARE on a full CPU.
Tasks on a full CPU may get almost no time, and that is a loss."""
MIN_BUSY = 0.5
"""Minimum share of a CPU's time that tasks and interrupts must take together."""
SOFTIRQ_COSTS = {"NET_RX": 5.0, "NET_TX": 3.0, "BLOCK": 2.0, "TASKLET": 2.0, "IRQ_POLL": 2.0}
"""Usual cost of a softirq by kind, relative to a timer softirq."""
MIN_RAISED_RATIO = 0.1
"""Minimum number of a line's interrupts per softirq for the line to be reported as the origin of
the softirqs. A driver that polls causes few interrupts."""
MAX_NAME_LENGTH = 40
ROUTINE_INTERRUPTS = re.compile(
    "local timer|rescheduling|function call|irq work|performance mon|non-maskable"
)
"""Prefixes of interrupt lines that are never reported: they are common and cost little."""


NameCount = tuple[str, int] | None
"""Name and count of an interrupt line or of a kind of softirq; None if there is none."""


class InterruptStorms(RecordDetector):
    record = "interrupts"

    def __init__(self, reader: SampleReader, episodes: RunningEpisodes) -> None:
        super().__init__(reader, episodes, "interrupt", INTERRUPT_START, INTERRUPT_END)
        self._position = reader.position

    def add_record(self, records: Mapping[str, object]) -> None:
        record = records.get("interrupts")
        snapshot = TaskSnapshot.from_records(records) or TaskSnapshot()
        for cpu_text, entry in record.items() if isinstance(record, dict) else ():
            match entry:
                case [
                    int() | float() as tasks,
                    int() | float() as irq,
                    int() | float() as softirq,
                    list() as lines,
                    list() as kinds,
                ] if re.fullmatch("[0-9]{1,6}", cpu_text) and int(cpu_text) in self._position:
                    name, ran = f"ksoftirqd/{cpu_text}", snapshot.tasks_on(cpu_text)
                    daemon_share = sum(task.share for task in ran if task.comm == name)
                    softirq = max(0.0, _valid_share(softirq) - daemon_share)
                    shares = _valid_share(tasks), _valid_share(irq), softirq
                    sources = _costliest_source(lines), _costliest_source(kinds)
                    self._add_shares(int(cpu_text), *shares, *sources)

    def _add_shares(
        self, cpu: int, tasks: float, irq: float, softirq: float, line: NameCount, kind: NameCount
    ) -> None:
        """Adds the shares of a CPU's time that tasks, interrupts and softirqs took. `line`, `kind`:
        its costliest interrupt line and kind of softirq."""
        interrupt_share = min(1.0, irq + softirq)
        busy_share = tasks + interrupt_share
        least_tasks = MIN_TASKS_SHARE if busy_share < FULL_SHARE else MIN_TASKS_IF_FULL
        if busy_share < MIN_BUSY or tasks < least_tasks:
            return
        cause, span_s = "irq" if irq > softirq else "softirq", self.losses.span_s
        storm = self.losses.add(cpu, cause, interrupt_share * span_s)
        if storm is None:
            return
        storm.episode.cpus = [cpu]
        storm.episode.depth = storm.lost_s / storm.span_s
        cause, evidence = storm.episode.cause, storm.episode.evidence
        source = line if cause == "irq" else kind
        # The first record decides which source is reported. Later ones only update its counts.
        if source is not None and evidence.setdefault("line", source[0]) == source[0]:
            counts = storm.counts
            counts["interrupts"] = counts.get("interrupts", 0) + source[1]
            counts["seconds"] = counts.get("seconds", 0) + span_s
            evidence["came_per_s"] = round(counts["interrupts"] / counts["seconds"])
        if cause == "softirq" and line and kind and line[1] >= MIN_RAISED_RATIO * kind[1]:
            evidence.setdefault("raised_by", line[0])


def _valid_share(value: float) -> float:
    return min(1.0, value) if value > 0 else 0.0  # NaN becomes 0


def _costliest_source(entries: list[object]) -> NameCount:
    """Returns the name and count of the entry with the highest product of count and usual cost."""
    counts = {}
    for entry in entries:
        match entry:
            case [str() as name, int() as count] if (
                0 < count < 1 << 62 and not ROUTINE_INTERRUPTS.match(name)
            ):
                counts[safe_text(name, MAX_NAME_LENGTH)] = count
    if not counts:
        return None
    name = max(counts, key=lambda name: counts[name] * SOFTIRQ_COSTS.get(name, 1.0))
    return name, counts[name]


# --- Tasks that stall on memory: at the limit of their control group, while the machine is short of
# memory, or while the kernel compacts or moves it.
#
# About once a second, the probe records for how long at least one task stalled (PSI), and the
# increments of the kernel's counters. PSI does not name a cause, so the counters decide: the cause
# is a group that reached its memory limit, or else the counter of the whole machine that increased.
# PSI does not include NUMA balancing. Its time is computed from the number of faults and pages.

STALL_START, STALL_END = 0.03, 0.01
MIN_REFAULTS_PER_S = 200
"""Minimum number of refaulted pages per second at which tasks wait for them, not for memory."""
NUMA_FAULT_S, NUMA_PAGE_S = 2e-6, 5e-6
"""Typical time in s of a hinting fault of NUMA balancing, and of the move of a page."""


class _Stall(NamedTuple):
    cause: str
    group: str
    """The control group at its limit; '' for the whole machine."""
    stalled_s: float
    counts: dict[str, float]
    pids: frozenset[int] = frozenset()


class MemoryStalls(RecordDetector):
    """Detects stalls on memory. Each episode has one cause and one group."""

    record = "memory"

    def __init__(self, reader: SampleReader, episodes: RunningEpisodes) -> None:
        super().__init__(reader, episodes, "memory-stall", STALL_START, STALL_END)
        self._cpus = [*reader.position]

    def add_record(self, records: Mapping[str, object]) -> None:
        for stall in _valid_stalls(records, self.losses.span_s):
            current = self.losses.add((stall.cause, stall.group), stall.cause, stall.stalled_s)
            if current is None:
                continue
            episode, evidence = current.episode, current.episode.evidence
            if not episode.cpus:
                # The CPU of a stalled task is unknown, so one on which a task of the group ran is
                # used.
                snapshot = TaskSnapshot.from_records(records) or TaskSnapshot()
                tasks = (task for cpu in self._cpus for task in snapshot.tasks_on(str(cpu)))
                pids = stall.pids if stall.group else {task.pid for task in tasks}
                episode.cpus = (snapshot.cpus_of(pids, self._cpus) or self._cpus)[:1]
            episode.depth = current.lost_s / current.span_s
            if stall.group:
                evidence["owner"], evidence["group"] = owner(stall.group), stall.group
            evidence["stalled_s"] = round(current.lost_s, 3)
            for name, value in stall.counts.items():
                is_limit = name == "memory_limit_mb"
                evidence[name] = round(value if is_limit else evidence.get(name, 0) + value)


def _valid_stalls(records: Mapping[str, object], span_s: float) -> Iterator[_Stall]:
    """Yields the stalls in the untrusted record of memory, which covers `span_s`."""
    match records.get("memory"):
        case {"stalled_us": int() as us, "counts": dict() as named} if 0 <= us < 1 << 53:
            pass
        case _:
            return
    counts = {str(k): v for k, v in named.items() if type(v) is int and 0 <= v < 1 << 62}
    left_s = min(us / 1e6, span_s)
    for group in memory_groups(records):
        if group.hits and group.limit_bytes:
            # The machine's time includes the group's, if both are up to date.
            group_us = group.stalled_us
            stalled_s = min(span_s, left_s if group_us is None else group_us / 1e6)
            left_s = max(0.0, left_s - stalled_s)
            evidence = {"memory_limit_mb": group.limit_bytes / 1e6, "at_limit": group.hits}
            evidence["pages_read_back"] = group.pages_read_back
            yield _Stall("memory-limit", group.name, stalled_s, evidence, group.pids)
    stalls = sum(n for key, n in counts.items() if key.startswith("allocstall"))
    refaults = sum(n for key, n in counts.items() if key.startswith("workingset_refault"))
    swap_ins = counts.get("pswpin", 0)
    if swap_ins + refaults >= MIN_REFAULTS_PER_S * span_s and (swap_ins or stalls):
        evidence = {"pages_read_back": refaults, "pages_swapped_in": swap_ins}
        yield _Stall("read-back", "", left_s, evidence)
    elif counts.get("compact_stall", 0) > stalls:
        names = {"compact_stall": "compactions", "thp_fault_fallback": "huge_pages_failed"}
        evidence = {names[key]: n for key, n in counts.items() if key in names}
        yield _Stall("compaction", "", left_s, evidence)
    elif stalls:
        yield _Stall("reclaim", "", left_s, {"direct_reclaims": stalls})
    keys = "numa_hint_faults", "numa_pages_migrated"
    faults, pages_moved = (counts.get(key, 0) for key in keys)
    numa_s = faults * NUMA_FAULT_S + pages_moved * NUMA_PAGE_S
    evidence = {"numa_faults": faults, "numa_pages_moved": pages_moved}
    yield _Stall("numa-balancing", "", min(numa_s, span_s), evidence)


# --- Detects control groups that are stopped by their CPU quota.
#
# For each group, the kernel counts the time for which the run queues of CPUs were throttled. The
# probe reads these counts about once a second, so an episode starts and ends with a record. Its
# CPUs are those on which tasks of the group ran. Its depth is the share of the time for which the
# group was stopped on the CPUs that it used at the same time: a single task that migrates uses one
# CPU.

QUOTA_START, QUOTA_END = 0.05, 0.02


class QuotaStops(Detector):
    triggers: Sequence[Trigger] = (has_record("quotas"),)

    def __init__(self, reader: SampleReader, episodes: RunningEpisodes) -> None:
        self._cpus, self.quotas = [*reader.position], Quotas()
        self._stops = RecordEpisodes(reader, episodes, "quota", QUOTA_START, QUOTA_END)

    @property
    def time_ns(self) -> int:
        """Raw time of the newest record that can show stops."""
        return self._stops.time_ns

    def has_quota(self, pids: Collection[int]) -> bool:
        return bool(self._limiting_groups(pids))

    def stopped_s(self, pids: Collection[int]) -> float:
        """Returns the seconds for which quotas stopped these processes in the newest record, summed
        over CPUs. If groups are nested, only the largest value counts."""
        by_group = self.quotas.by_group
        return max((by_group[group].newest_s for group in self._limiting_groups(pids)), default=0.0)

    def _limiting_groups(self, pids: Collection[int]) -> list[str]:
        """Returns the groups in the newest record whose quotas apply to one of these processes."""
        newest_pids = self.quotas.newest_pids.items()
        return [group for group, members in newest_pids if not {*pids}.isdisjoint(members)]

    def process(self, sample: Sample) -> list[Episode]:
        return self.process_records(sample.records, sample.time_ns)

    def process_records(self, records: Mapping[str, object], time_ns: int) -> list[Episode]:
        """Processes a frame's records, also the first frame's. Returns the episodes that ended."""
        if "tasks" not in records and "quotas" not in records:
            return []
        self.quotas.read_records(records)
        if self.quotas.by_group:  # an episode may also end with a record of tasks alone
            self.triggers = has_record("quotas"), has_record("tasks")
        is_whole = self._stops.begin_record(time_ns)
        snapshot = TaskSnapshot.from_records(records) or TaskSnapshot()
        for group, pids in self.quotas.newest_pids.items() if is_whole else ():
            quota = self.quotas.by_group[group]
            cpus = snapshot.cpus_of(pids, self._cpus)
            if cpus or group in self._stops.running:
                stop = self._stops.add(group, "quota", quota.newest_s)
                if stop is None:
                    continue
                episode, counts = stop.episode, stop.counts
                episode.cpus = sorted({*episode.cpus, *cpus})
                cpu_s = self._stops.span_s * max(1, len(cpus))
                counts["cpu_s"] = counts.get("cpu_s", 0.0) + cpu_s
                episode.depth = min(1.0, stop.lost_s / counts["cpu_s"])
                for key, count in zip(("periods", "throttled"), quota.newest_periods, strict=True):
                    counts[key] = counts.get(key, 0) + count
                episode.evidence = {
                    "owner": quota.owner,
                    "group": quota.group,
                    "CPUs_allowed": round(quota.cpus, 3),
                    "throttled_periods": counts["throttled"],
                    "periods": counts["periods"],
                    "throttled_s": round(stop.lost_s, 3),
                }
        return self._stops.close()


# --- Time that the hypervisor took. The guest's kernel counts it in ticks of 10 ms.

STEAL_START, STEAL_END = 0.04, 0.02
"""Shares of the time at which an episode starts and below which it ends. Neighbours on a well-run
host occasionally take up to a tick in 250 ms."""
MIN_TICKS = 3
"""Minimum number of ticks in close succession. A single tick may have accumulated over any time,
and two may be close by chance."""
DECAY_S = 60.0
"""Time in s after which the weight of older ticks in the usual share has decayed to 1/e."""
MIN_DEVIATIONS = 4.0
"""Minimum number of standard deviations by which ticks must exceed their usual number. Some hosts
always take a few per cent of the time, and their ticks may be close together by chance.
"""
MIN_USUAL_SHARE = 0.005
"""Minimum usual share that is reported as evidence."""
STEAL_QUIET_NS = round(TICK_S / STEAL_END * 1e9)
"""Time in ns without a tick after which the share is below STEAL_END."""


class Steals(Detector):
    """Detects time that the hypervisor took, from ticks of steal."""

    triggers = (has_steal,)

    def __init__(self, reader: SampleReader, episodes: RunningEpisodes) -> None:
        rows = reader.hello.topology
        self.is_available = bool(reader.evaluator.variants["steal"])
        self._cpu_lists = reader.single_cpus
        self._host = np.zeros(len(rows), int)
        self._steals = ShareEpisodes(
            reader, episodes, "steal", STEAL_START, STEAL_END, min_samples=1, pause_ns=0
        )
        self._tick_counts = np.zeros(len(rows))
        """For each CPU: number of consecutive ticks that are close enough for a high share."""
        self._start_ns = np.zeros(len(rows), int)
        """For each CPU: raw time in ns at which the sample with the first of these ticks began."""
        self._last_ns = np.full(len(rows), -STEAL_QUIET_NS - 1)
        self._usual_share, self._usual_ns = np.zeros(len(rows)), 0
        """The usual stolen share of each CPU, 0 at the start of the stream, and the raw time in
        ns up to which it is computed."""

    def process(self, sample: Sample) -> list[Episode]:
        stolen_s = sample.values.numerators[INDEX["steal"]]
        """Stolen seconds by CPU."""
        since_ns, time_ns = sample.since_ns, sample.time_ns
        if not self._steals.running and not (stolen_s > 0).any():
            return []
        has_tick = stolen_s >= TICK_S / 2
        is_soon = since_ns - self._last_ns <= STEAL_QUIET_NS
        # A tick covers all the time since the previous tick.
        elapsed_s = (time_ns - np.where(is_soon, self._last_ns, since_ns)) / 1e9
        share = np.where(has_tick, stolen_s / elapsed_s, np.nan)
        share[~has_tick & np.isfinite(stolen_s) & (time_ns - self._last_ns > STEAL_QUIET_NS)] = 0.0
        is_running = self._steals.member_mask(len(stolen_s))
        is_near = (since_ns == self._last_ns) | (elapsed_s * STEAL_START <= TICK_S)
        continues = has_tick & is_soon & (is_running | (is_near & (share >= STEAL_START)))
        before = np.where(continues, self._tick_counts, 0.0)
        self._start_ns = np.where(has_tick & (before == 0), since_ns, self._start_ns)
        self._tick_counts = np.where(has_tick, before + stolen_s / TICK_S, self._tick_counts)
        self._last_ns = np.where(has_tick, time_ns, self._last_ns)
        usual_ticks = self._usual_share * (time_ns - self._start_ns) / 1e9 / TICK_S
        min_ticks = usual_ticks + MIN_DEVIATIONS * np.sqrt(usual_ticks) + MIN_TICKS - 0.5
        share[has_tick & (self._tick_counts < min_ticks) & ~is_running] = np.nan
        usual_before, elapsed = self._usual_share, (time_ns - self._usual_ns) / 1e9 / DECAY_S
        self._usual_share = usual_before * np.exp(-elapsed) + np.nan_to_num(stolen_s) / DECAY_S
        self._usual_ns = time_ns

        running = {id(steal.episode): steal for steal in self._steals.running}
        ended = self._steals.step(share, elapsed_s, self._host, self._cpu_lists, since_ns, time_ns)
        for episode in ended:  # an episode ends with its last tick
            episode.end_ns = running[id(episode)].last_ns
        for steal in self._steals.running:
            if id(steal.episode) not in running:
                steal.episode.cause = "hypervisor"
                steal.episode.confidence = confidence("steal", "hypervisor")
                steal.episode.start_ns = int(self._start_ns[steal.members].min())
                if (usual := float(usual_before[steal.members].mean())) >= MIN_USUAL_SHARE:
                    steal.episode.evidence = {"usual_share": round(usual, 3)}
            ticks = float(self._tick_counts[steal.members].sum())
            steal.episode.evidence |= {"ticks": round(ticks), "tick_s": TICK_S}
        self.is_calm = not self._steals.running
        return ended


# --- System management interrupts: firmware stops all CPUs at once. Only a counter shows it.

SMI_QUIET_NS = 1_000_000_000
"""Time in ns without an SMI that ends an episode. Firmware that polls hardware does so at least
this often, so that it causes one long episode."""
MAX_SPAN_RATIO = 1.5
"""Maximum span of a CPU's count, as a multiple of the sample. A CPU that was not read for longer
may count SMIs that other CPUs have already reported."""


class Smis(Detector):
    def __init__(self, reader: SampleReader, episodes: RunningEpisodes) -> None:
        self._counters, self._episodes = reader.counters, episodes
        self._cpus = np.array([row.cpu for row in reader.hello.topology])
        self._column = reader.counters.columns.get("smi")
        self.is_available = self._column is not None
        self.triggers = [] if self._column is None else [counter_advances(self._column)]
        self._pauses = PauseLimits(reader.hello.sample_ns)
        self._episode: Episode | None = None
        self._counts = np.zeros(len(self._cpus))
        self._last_ns = 0

    def process(self, sample: Sample) -> list[Episode]:
        assert self._column is not None
        table = sample.delta.tables[self._column.block]
        smi_counts = table.increments[:, self._column.index]
        span_ns = table.ticks / self._counters.stamp_hz * 1e9
        ended = self.step(smi_counts, span_ns, sample.since_ns, sample.time_ns)
        self.is_calm = self._episode is None
        return ended

    def step(
        self, smi_counts: Floats, span_ns: Floats, since_ns: int, time_ns: int
    ) -> list[Episode]:
        """Processes one sample. Returns the episodes that ended. `smi_counts`, `span_ns`: number of
        SMIs and span in ns, by CPU."""
        counted = smi_counts > 0
        if self._episode is None and not counted.any():
            return []
        is_whole = not self._pauses.is_gap(since_ns, time_ns)
        ended = [] if is_whole else self._end()
        if is_whole and counted.any():
            is_too_long = span_ns > MAX_SPAN_RATIO * (time_ns - since_ns)
            begin_ns = np.where(is_too_long, time_ns - span_ns, since_ns)
            is_new = counted & (begin_ns >= self._last_ns)
            if is_new.any():
                self._last_ns = time_ns
                if self._episode is None:
                    self._counts[:] = 0
                    start_ns = int(begin_ns[is_new].min())
                    self._episode = self._episodes.begin("smi", "firmware", start_ns)
            # without an episode, these are late counts of an earlier one
            if self._episode is not None:
                self._counts += np.where(counted, smi_counts, 0.0)
                self._episode.cpus = self._cpus[self._counts > 0].tolist()
                self._episode.depth = highest_count = float(self._counts.max())
                elapsed_s = (time_ns - self._episode.start_ns) / 1e9
                self._episode.evidence = {"SMIs_per_s": round(highest_count / elapsed_s, 1)}
        if time_ns - self._last_ns >= SMI_QUIET_NS:
            ended += self._end()
        return ended

    def _end(self) -> list[Episode]:
        if self._episode is None:
            return []
        episode, self._episode = self._episode, None
        return [self._episodes.end(episode, self._last_ns)]
