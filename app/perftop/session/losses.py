"""Seconds that all busy CPUs, or the watched job, have lost so far, by cause.

The whole is the time that tasks wanted: the time of busy CPUs (see `evaluation.LostSeconds`) plus
the time that tasks waited for a CPU. For a watched job, it is the time for which its threads ran or
waited. A CPU's losses count for the job in proportion to the job's running time on that CPU.

Each second of the whole belongs to at most one cause, in this order:

1. quota, scheduler: a task was ready, but its control group had used up its CPU quota, or its CPU
ran another task; stopped: a signal, a debugger or a frozen group kept it from running. This is time
of the task, in addition to the time of the CPU.

2. steal, involuntary halts, clock below the ceiling: parts of the CPU's time. The cause is that of
an episode on the CPU at that time; without an episode, it is UNEXPLAINED.

3. interrupt, memory-stall, sibling, package: the share of the remaining time that the detector
measured. A loss that a detector attributes to a clock below the ceiling is already in the clock's
part, so it is not counted again. Time for which a job sleeps in a memory stall is added to the
whole.

So the shares of all causes add up to at most 1. Some episodes are detected late, so a sample's
losses are attributed to causes (settled) only LATE_NS after the sample.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.base.text import safe_text
from perftop.model.control_groups import MemoryGroup, memory_groups
from perftop.model.delta import add_samples, first_true
from perftop.model.evaluation import LOSS_PARTS, LostSeconds
from perftop.model.kinds import STEAL_CAUSE, Episode
from perftop.session.episodes import LATE_NS
from perftop.session.loss_history import KINDS_BY_LOSS, MEASURED_KINDS, without_moved_losses
from perftop.session.task_times import RunTimes

CauseKey = tuple[str, str]
"""Kind and cause of the episodes that explain the loss."""
WAIT_CAUSE: CauseKey = ("neighbour", "scheduler")
QUOTA_CAUSE: CauseKey = ("quota", "quota")
STOPPED_CAUSE: CauseKey = ("stopped", "stopped")
SPLIT_LOCK_CAUSE: CauseKey = ("stopped", "split-lock")
UNEXPLAINED = "other"
"""Cause of a loss without an episode."""
CAUSE_ENDED_AFTER_NS = 3_000_000_000
"""Time in ns without a loss after which a cause has ended."""
VERDICT_SPAN_NS, FIRST_VERDICT_NS = 10_000_000_000, 3_000_000_000
"""Length in ns of the last seconds, on which a verdict is given, and age in ns of a session at its
first verdict."""
VERDICT_STEP_NS = 1_000_000_000
"""Minimum time in ns between two verdicts. VERDICT_SPAN_NS is a multiple of it."""
_SHARED_RESOURCES = frozenset({"sibling", "package", "memory", "cache"})
_REMAINING_TIME_KINDS = frozenset({"interrupt", "memory-stall"})
"""Kinds of episodes whose depth is a share of the time without steal, halts and a low clock."""
JOB_SPREAD_NS = 1_000_000_000
"""Time in ns that the probe needs to read all threads of a job, one after the other."""
MAX_UNSETTLED = 256
"""Maximum number of unsettled samples. If there are more, the oldest are settled early."""


class _LossSamples(NamedTuple):
    """Wanted and lost seconds of several samples. The first axis of each array is the samples."""

    since_ns: Ints
    until_ns: Ints
    wanted_s: Floats
    parts_s: Floats

    def between(self, first: int, last: int | None) -> _LossSamples:
        parts: list[Any] = [column[first:last] for column in self]
        return _LossSamples(*parts)


def _join_samples(samples: Sequence[_LossSamples]) -> _LossSamples:
    if len(samples) == 1:
        return samples[0]
    return _LossSamples(*map(np.concatenate, zip(*samples, strict=True)))


def _nonzero(by_cause: dict[CauseKey, Floats]) -> dict[CauseKey, Floats]:
    return {cause: seconds for cause, seconds in by_cause.items() if seconds.any()}


class LossSums(NamedTuple):
    """Seconds over a span of time, by CPU."""

    wanted_s: Floats
    waited_s: Floats
    by_cause: dict[CauseKey, Floats]
    """Lost seconds by cause, without causes that lost nothing."""

    @property
    def whole_s(self) -> float:
        return float(self.wanted_s.sum() + self.waited_s.sum())

    def minus(self, earlier: LossSums) -> LossSums:
        """Returns these sums minus those of `earlier`. Losses of earlier samples that have since
        been attributed to another cause do not count."""
        zeros = np.zeros(len(self.wanted_s))
        old, new = earlier.by_cause, self.by_cause
        by_cause = {c: new.get(c, zeros) - old.get(c, zeros) for c in {**old, **new}}
        rises_s = {cause: lost_s.sum(keepdims=True) for cause, lost_s in by_cause.items()}
        measured = [cause for cause in by_cause if cause[0] in MEASURED_KINDS]
        for cause, rise_s in without_moved_losses(rises_s, measured).items():
            if rise_s != rises_s[cause]:  # all CPUs are scaled alike
                by_cause[cause] = by_cause[cause] * (rise_s / rises_s[cause])
        wanted_s, waited_s = self.wanted_s - earlier.wanted_s, self.waited_s - earlier.waited_s
        return LossSums(wanted_s, waited_s, _nonzero(by_cause))

    def only_cpus(self, positions: Sequence[int]) -> LossSums:
        """Returns the sums of these CPUs; 0 for other CPUs."""
        by_cpu = np.zeros(len(self.wanted_s))
        by_cpu[positions] = 1.0
        by_cause = {cause: lost_s * by_cpu for cause, lost_s in self.by_cause.items()}
        return LossSums(self.wanted_s * by_cpu, self.waited_s * by_cpu, _nonzero(by_cause))

    def with_quotas(self, stopped_s: Floats) -> LossSums:
        """Returns the sums with a part of the waiting attributed to quotas. `stopped_s`: by CPU."""
        if not stopped_s.any():
            return self
        stopped_s = np.minimum(stopped_s, self.waited_s)
        by_cause = {**self.by_cause, QUOTA_CAUSE: stopped_s, WAIT_CAUSE: self.waited_s - stopped_s}
        return self._replace(by_cause=_nonzero(by_cause))

    def with_interrupts(self, taken_s: Mapping[CauseKey, Floats], elapsed_s: float) -> LossSums:
        """Returns the sums with a part of the waiting attributed to interrupts: those while tasks
        of the CPU were ready. `taken_s`: all seconds of interrupts, by cause and CPU."""
        by_cause = dict(self.by_cause)
        ready_share = np.minimum(1.0, (self.wanted_s + self.waited_s) / max(elapsed_s, 1e-9))
        for cause, whole_s in taken_s.items():
            counted_s = by_cause.get(cause, np.zeros(len(whole_s)))
            left_s = by_cause.get(WAIT_CAUSE, np.zeros(len(whole_s)))
            part_s = np.minimum(np.maximum(whole_s * ready_share - counted_s, 0.0), left_s)
            by_cause |= {cause: counted_s + part_s, WAIT_CAUSE: left_s - part_s}
        return self._replace(by_cause=_nonzero(by_cause))

    def with_stops(self, stopped_s: Floats, cause: CauseKey = STOPPED_CAUSE) -> LossSums:
        """Returns the sums plus the time for which tasks were stopped, as lost and as wanted time.
        `stopped_s`: seconds by CPU."""
        if not stopped_s.any():
            return self
        by_cause = {**self.by_cause, cause: stopped_s}
        return self._replace(waited_s=self.waited_s + stopped_s, by_cause=by_cause)

    def with_blocked(self, stalled_s: Mapping[CauseKey, float], blocked_s: Floats) -> LossSums:
        """Returns the sums plus the time for which the job slept in memory stalls although it
        wanted to run. `stalled_s`: all seconds of stalls, by cause. `blocked_s`: seconds of the
        job's uninterruptible sleep, by CPU, which are an upper bound of the added time."""
        by_cause, waited_s = dict(self.by_cause), self.waited_s
        for cause, whole_s in stalled_s.items():
            ran_s = by_cause.get(cause, np.zeros(len(waited_s)))
            missing_s, room_s = whole_s - float(ran_s.sum()), float(blocked_s.sum())
            if missing_s > 0 and room_s > 0:
                part_s = blocked_s * min(1.0, missing_s / room_s)
                by_cause[cause], waited_s = ran_s + part_s, waited_s + part_s
                blocked_s = blocked_s - part_s
        return self._replace(waited_s=waited_s, by_cause=by_cause)

    def share(self, cause: CauseKey) -> float:
        """Returns the share of the whole that a cause took; NaN if no CPU was busy."""
        lost_s = float(self.by_cause[cause].sum()) if cause in self.by_cause else 0.0
        whole_s = self.whole_s  # computed once: each access sums over all CPUs
        return max(0.0, lost_s) / whole_s if whole_s > 0 else float("nan")

    def shares(self) -> dict[CauseKey, float]:
        """Returns the share of the whole that each cause took, largest first."""
        by_cause = {cause: self.share(cause) for cause in self.by_cause}
        return dict(sorted(by_cause.items(), key=lambda pair: -pair[1]))

    @property
    def lost_ratio(self) -> float:
        """Share of the whole that all causes took together; NaN if no CPU was busy."""
        return sum(self.shares().values()) if self.whole_s > 0 else float("nan")


class Losses:
    """Sums of the time that a stream has lost so far, by cause. They never decrease, except because
    of noise in the measurement of involuntary halts."""

    def __init__(self, cpus: Sequence[int]) -> None:
        """`cpus`: CPU numbers in the order of the arrays."""
        self._position = {cpu: index for index, cpu in enumerate(cpus)}
        self._wanted_s, self._ran_s, self._waited_s = np.zeros((3, len(cpus)))
        self._by_cause: dict[CauseKey, Floats] = {}
        """Seconds lost in settled samples, by cause, without waits for a CPU."""
        self._start_open_samples()
        self._unsplit_samples: list[_LossSamples] = []
        """Samples after `_open_samples` for which the job's running time is still unknown."""
        self._run_s = np.zeros(len(cpus))
        """Seconds for which the job ran since the first sample in `_unsplit_samples`."""

    def add_wait(self, waited_s: Floats, ran_s: Floats | None = None) -> None:
        """Adds the seconds for which tasks waited for a CPU. `ran_s`: seconds for which they ran,
        because CPUs that are not busy enough for `evaluation.LostSeconds` lack this wanted time."""
        self._waited_s = self._waited_s + waited_s
        self._ran_s = self._ran_s + (0.0 if ran_s is None else ran_s)

    def add(
        self, lost_seconds: LostSeconds, since_ns: Ints, until_ns: Ints, run_s: Floats | None = None
    ) -> None:
        """Adds samples. `run_s`: seconds for which the watched job ran; None without a job."""
        wanted_s, parts_s = lost_seconds.wanted_s, lost_seconds.parts_s
        is_known = np.isfinite(parts_s.sum(axis=1) + wanted_s)
        if np.count_nonzero(is_known) < is_known.size:
            wanted_s = np.where(is_known, wanted_s, 0.0)
            parts_s = np.where(is_known[:, None], parts_s, 0.0)
        samples = _LossSamples(since_ns, until_ns, wanted_s, parts_s)
        if run_s is None:
            self._open(samples)
            return
        self._unsplit_samples.append(samples)
        self._run_s = self._run_s + run_s
        if int(samples.until_ns[-1] - self._unsplit_samples[0].since_ns[0]) >= JOB_SPREAD_NS:
            self._narrow_to_job()

    def _start_open_samples(self) -> None:
        cpus = len(self._position)
        self._open_samples: list[_LossSamples] = []
        """Samples whose losses are not yet attributed to causes."""
        self._open_count = 0
        self._open_wanted_s, self._open_parts_s = np.zeros(cpus), np.zeros((len(LOSS_PARTS), cpus))
        """The sums of `_open_samples`, which suffice while no episode is a cause."""

    def _open(self, samples: _LossSamples) -> None:
        if not len(samples.since_ns):
            return
        self._open_samples.append(samples)
        self._open_count += len(samples.since_ns)
        self._open_wanted_s = add_samples(self._open_wanted_s, samples.wanted_s)
        self._open_parts_s = add_samples(self._open_parts_s, samples.parts_s)

    def _narrow_to_job(self) -> None:
        """Reduces `_unsplit_samples` to the job's share. The job's running time on a CPU is
        distributed over these samples in proportion to the CPU's busy time."""
        if not self._unsplit_samples:
            return
        samples, self._unsplit_samples = _join_samples(self._unsplit_samples), []
        wanted_s, stolen_s = samples.wanted_s, samples.parts_s[:, LOSS_PARTS.index("steal")]
        worked_s = (wanted_s - stolen_s).sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(worked_s > 0, np.minimum(self._run_s / worked_s, 1.0), 0.0)
            weights = np.where(worked_s > 0, (wanted_s - stolen_s) / worked_s, 1 / len(wanted_s))
        # The kernel does not count known steal time as running time.
        job_wanted_s, parts = self._run_s * weights + stolen_s * share, samples.parts_s * share
        self._open(samples._replace(wanted_s=job_wanted_s, parts_s=parts))
        self._run_s = np.zeros(len(self._run_s))

    def room_for_samples(self, since_ns: Ints, until_ns: Ints) -> int:
        """Returns how many of these samples can be added before `settle` may be due."""
        oldest_ns, count = self._oldest_ns(int(since_ns[0]))
        is_late = until_ns - 2 * LATE_NS > oldest_ns
        is_late |= count + np.arange(1, len(is_late) + 1) > MAX_UNSETTLED
        return min(len(is_late), first_true(is_late) + 1)

    def oldest_due_ns(self, now_ns: int) -> int | None:
        """Returns the raw time of the oldest sample that is due to be settled; None if none is
        due."""
        oldest_ns, count = self._oldest_ns(now_ns)
        return oldest_ns if oldest_ns < now_ns - 2 * LATE_NS or count > MAX_UNSETTLED else None

    def _oldest_ns(self, default_ns: int) -> tuple[int, int]:
        """Returns the start of the oldest open sample (`default_ns` if there is none), and the
        number of open samples."""
        starts = (samples.since_ns for samples in self._open_samples)
        first = next((since_ns for since_ns in starts if len(since_ns)), None)
        return default_ns if first is None else int(first[0]), self._open_count

    def settle(self, episodes: Iterable[Episode], now_ns: int) -> None:
        """Attributes the losses of the samples whose episodes are known. `episodes`: those since
        the time that `oldest_due_ns` returned."""
        samples = _join_samples(self._open_samples)
        count = len(samples.until_ns)
        settled_count = int(samples.until_ns.searchsorted(now_ns - LATE_NS))
        settled_count = min(count, max(settled_count, count - MAX_UNSETTLED // 2))
        self._start_open_samples()
        self._open(samples.between(settled_count, None))
        settled_samples = samples.between(0, settled_count)
        self._wanted_s = self._wanted_s + settled_samples.wanted_s.sum(axis=0)
        self._by_cause = self._by_cause_with(settled_samples, list(episodes))

    @property
    def unsettled_ns(self) -> int:
        """Raw time in ns of the oldest unsettled sample; 0 if there is none."""
        samples = (*self._open_samples, *self._unsplit_samples)
        return min((int(part.since_ns[0]) for part in samples if len(part.since_ns)), default=0)

    def sums(self, episodes: Iterable[Episode]) -> LossSums:
        """Returns the sums so far, attributed to the causes that are known now. `episodes`: those
        since `unsettled_ns`."""
        self._narrow_to_job()
        if (episodes := list(episodes)) and self._open_samples:
            samples = _join_samples(self._open_samples)
        else:
            no_time, sums = np.zeros(1, np.int64), (self._open_wanted_s, self._open_parts_s)
            samples = _LossSamples(no_time, no_time, *(part[None] for part in sums))
        by_cause = self._by_cause_with(samples, episodes)
        wanted_s = self._wanted_s + self._open_wanted_s
        if self._waited_s.any():
            by_cause[WAIT_CAUSE] = self._waited_s
            wanted_s = np.where(self._waited_s > 0, np.maximum(wanted_s, self._ran_s), wanted_s)
        return LossSums(wanted_s, self._waited_s, _nonzero(by_cause))

    def _by_cause_with(
        self, samples: _LossSamples, episodes: Sequence[Episode]
    ) -> dict[CauseKey, Floats]:
        by_cause = dict(self._by_cause)
        if not len(samples.since_ns):
            return by_cause
        for cause, lost_s in self._losses_by_cause(samples, episodes):
            by_cause[cause] = by_cause[cause] + lost_s if cause in by_cause else lost_s
        return by_cause

    def _losses_by_cause(
        self, samples: _LossSamples, episodes: Sequence[Episode]
    ) -> Iterator[tuple[CauseKey, Floats]]:
        """Yields each cause, possibly several times, with the seconds that each CPU lost to it."""
        wanted_s, parts_s = samples.wanted_s, samples.parts_s
        steal = parts_s[:, LOSS_PARTS.index("steal")]
        yield STEAL_CAUSE, steal.sum(axis=0)
        for part, kinds in KINDS_BY_LOSS.items():
            left_s = parts_s[:, LOSS_PARTS.index(part)]
            naming_episodes = [
                episode for kind in kinds for episode in episodes if episode.kind == kind
            ]
            for episode in naming_episodes:
                if left_s.any():
                    mask = self._episode_mask(episode, samples)
                    yield (episode.kind, episode.cause), np.where(mask, left_s, 0.0).sum(axis=0)
                    left_s = np.where(mask, 0.0, left_s)
            kind = "involuntary-halt" if part == "involuntary" else "turbo-drop"
            yield (kind, UNEXPLAINED), left_s.sum(axis=0)
        rest_s: Floats | None = None  # computed only when the first episode takes a part of it
        for episode in episodes:
            is_counted = "turbo_drop" in episode.evidence  # already counted in the clock's part
            is_shared = episode.kind == "neighbour" and episode.cause in _SHARED_RESOURCES
            if (episode.kind in _REMAINING_TIME_KINDS or is_shared) and not is_counted:
                if rest_s is None:
                    rest_s = np.maximum(wanted_s - np.maximum(parts_s, 0.0).sum(axis=1), 0.0)
                mask = self._episode_mask(episode, samples)
                taken_s = np.where(mask, rest_s * (episode.depth or 0.0), 0.0)
                rest_s = rest_s - taken_s
                yield (episode.kind, episode.cause), taken_s.sum(axis=0)

    def _episode_mask(self, episode: Episode, samples: _LossSamples) -> Bools:
        """Returns a mask of the episode's CPUs, in the samples of which it covers at least half,
        (samples, CPUs)."""
        end_ns = samples.until_ns[-1] if episode.end_ns is None else episode.end_ns
        middle_ns = (samples.since_ns + samples.until_ns) / 2
        during = (middle_ns >= episode.start_ns) & (middle_ns <= end_ns)
        cpus: Bools = np.zeros(len(self._position), bool)
        cpus[[self._position[cpu] for cpu in episode.cpus if cpu in self._position]] = True
        return np.asarray(during[:, None] & cpus)


@dataclass(frozen=True)
class TaskTimeSpan:
    """A span of time with the times of its tasks: a run, its last seconds, or a phase of a job."""

    start_ns: int
    end_ns: int
    """Raw times."""
    times: RunTimes

    @property
    def elapsed_s(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


# --- Likely reasons for losses whose cost is not measured.

MAX_NAMES, MAX_NAME_LENGTH = 64, 64
MAX_HINT_ENTRIES = 1024


class KernelWork(NamedTuple):
    """A kernel function in which samples found a process."""

    kind: str
    """Key in `model.kinds.KERNEL_WORK`."""
    function: str
    pid: int
    comm: str


class RecordHints:
    """Likely reasons for losses, from records: kernel messages, programs that manage power, kernel
    functions and memory limits. Records are untrusted: they are checked here, and unprintable
    characters in names are replaced."""

    def __init__(self) -> None:
        self.messages: dict[tuple[str, str], int] = {}
        """Number of kernel messages, by kind and name."""
        self.power_managers: list[str] = []
        """Programs that may lower limits of power and clock, with their PIDs."""
        self.kernel_s: dict[KernelWork, float] = {}
        """Time in s for which samples found a process in a kernel function."""
        self.kernel_span_s = 0.0
        """Time in s that the samples in `kernel_s` cover."""
        self.groups_at_limit: dict[str, MemoryGroup] = {}
        """By name, the control groups that reached their limit and read pages back, summed up."""

    def split_lock_tids(self) -> set[int]:
        names = [name for kind, name in self.messages if kind == "split-lock"]
        return {int(match[1]) for name in names if (match := re.search(r"\[(\d{1,10})\]$", name))}

    def read_records(self, records: Mapping[str, object]) -> None:
        log, managers = records.get("kernel_log"), records.get("managers")
        match records.get("kernel"):
            case {"span_ns": int() as span_ns, "functions": list() as rows} if span_ns > 0:
                self.kernel_span_s += span_ns / 1e9
                for row in rows:
                    match row:
                        case [str(kind), str(function), int(pid), str(comm), int(ns)] if ns > 0:
                            words = (safe_text(name, MAX_NAME_LENGTH) for name in (function, comm))
                            work = KernelWork(kind, next(words), pid, next(words))
                            if work in self.kernel_s or len(self.kernel_s) < MAX_HINT_ENTRIES:
                                self.kernel_s[work] = self.kernel_s.get(work, 0.0) + ns / 1e9
        for group in memory_groups(records) if "memory" in records else ():
            known_group = self.groups_at_limit.get(group.name)
            sums = known_group or group._replace(hits=0, pages_read_back=0)
            if group.hits and group.limit_bytes and group.pages_read_back > 0:
                hits, pages = sums.hits + group.hits, sums.pages_read_back + group.pages_read_back
                sums = group._replace(hits=hits, pages_read_back=pages, pids=sums.pids)
            if sums.hits and (known_group or len(self.groups_at_limit) < MAX_NAMES):
                members = sums.pids | group.pids if len(sums.pids) < MAX_HINT_ENTRIES else sums.pids
                self.groups_at_limit[group.name] = sums._replace(pids=members)
        for message in log if isinstance(log, list) else ():
            match message:
                case [str() as kind, str() as name, int() as count] if count > 0:
                    key = kind, safe_text(name, MAX_NAME_LENGTH)
                    if key in self.messages or len(self.messages) < MAX_NAMES:
                        self.messages[key] = self.messages.get(key, 0) + count
        if isinstance(managers, dict):
            pids = [pid for pid in managers if re.fullmatch("[0-9]{1,10}", str(pid))]
            names = ((safe_text(str(managers[pid]), MAX_NAME_LENGTH), pid) for pid in pids)
            self.power_managers = [f"{name}[{pid}]" for name, pid in names]
