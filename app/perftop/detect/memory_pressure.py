"""Detects that other CPUs slow a CPU down by saturating the memory of its package, or by displacing
its data from the L3. The measure is its IPC (instructions per cycle) before and during the loss.

Traffic is not counted by CPU, so three conditions must all hold: the program is slower than with
less traffic, the traffic is near the highest of this run, and other programs of the package work
more than before. A program that saturates memory alone is not a loss to others. For an L3, misses
per instruction replace traffic, if the user chose to count misses.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.base.text import safe_text
from perftop.detect.engine import CpuWork, RunningEpisodes, busy_cpus, busy_work, cpu_work
from perftop.detect.losses import NeighbourLoss, NeighbourLosses, blamed_tasks
from perftop.detect.siblings import LOSS_END, LOSS_START, MIN_LOSS_DEVIATIONS, UndisturbedPrograms
from perftop.model.confidence import GroupTraffic, confidence
from perftop.model.counters import Cores, with_extra_column
from perftop.model.delta import Delta, first_true
from perftop.model.evaluation import TRAFFIC_KEYS, Values, memory_traffic
from perftop.model.kinds import Episode
from perftop.model.numbers import EVENT_PREFIX
from perftop.model.sample_reader import Sample, SampleBatch, SampleReader
from perftop.model.smt import SmtShares
from perftop.model.tasks import RunningTasks, Task

MIN_SATURATED_SHARE = 0.7
"""Minimum share of this run's highest traffic that counts as saturation. Latency rises steeply from
this share on, whatever the highest traffic is."""
MIN_LIMIT_SHARE = 0.35
"""Share of the channels' capacity below which memory never counts as saturated, because tasks that
crowd an L3 can also cause the highest traffic of this run."""
BYTES_PER_CLOCK = 16
"""Bytes that a 64-bit channel moves in one clock cycle, in two transfers."""
MIN_GROWTH = 1.25
"""Minimum factor by which traffic must have grown. Smaller growth does not change latency."""
MIN_WORK_INCREASE = 0.5
"""Minimum increase of other programs' work, in CPUs: one CPU that is busy half of the time."""
MAX_SIBLING_CHANGE = 0.1
"""Maximum change of the share of running time with an active sibling, which affects IPC."""
MAX_NAMED_TASKS = 8
_BYTES_ROW, _WORK_ROW, _OVERLAP_ROW, _TIME_ROW = range(3, 7)
"""Further rows of the sums that `UndisturbedPrograms` learns, weighted by running time: bytes per
second, work of other programs, share of the time in which the sibling ran, running time."""


class _MemoryWork(NamedTuple):
    """The work of each CPU and its package's traffic. For several samples, with a leading axis."""

    rate: Floats
    util: Floats
    """Utilisation; 0 for CPUs that are left out."""
    work: Floats
    """Utilisation of all CPUs; 0 where unknown."""
    has_unread_cpu: Bools
    """Mask of the CPUs in packages with an unread CPU: the work of other programs is unknown."""
    is_learnable: Bools
    """Mask of the CPUs whose IPC, traffic, and work of the sibling and of others are known."""
    cycles: Floats
    ipc: Floats
    overlap: Floats
    """Share of the running time in which the sibling ran; 0 for a CPU without a sibling."""
    sums: Floats
    """Values to be added to the learned sums once they are weighted by time. The work of other
    programs is not included."""

    def samples(self, samples: int | slice) -> _MemoryWork:
        parts: list[Any] = [part[samples] for part in self]
        return _MemoryWork(*parts)


class MemoryLosses:
    """Detects that other CPUs saturate the memory of a CPU's package."""

    cause, min_growth = "memory", MIN_GROWTH

    def __init__(
        self, reader: SampleReader, episodes: RunningEpisodes, running: RunningTasks, groups: Ints,
        l3_groups: L3Groups, cache: CacheLosses | None = None,
    ) -> None:  # fmt: skip
        self._reader, self._running, self._package = reader, running, groups
        self._cache = cache
        self._l3_groups = l3_groups
        self._cpu_lists = reader.single_cpus
        self.is_available = self._is_counted()
        count = int(groups.max(initial=-1)) + 1
        rows = [np.flatnonzero(groups == n).tolist() for n in range(count)]
        self._members = [[self._cpu_lists[row][0] for row in members] for members in rows]
        self.losses = NeighbourLosses(reader, episodes, self.cause, groups, LOSS_START, LOSS_END)
        self.programs = UndisturbedPrograms(
            self.losses, self._cpu_lists, running, learned_rows=7, loss_rows=5
        )
        """`loss_sums`: instructions, cycles, cycles times earlier IPC, running seconds, bytes."""
        self._in_package: Bools = groups >= 0
        self._packages = len(self._members)
        self._set_programs(np.zeros(len(groups), np.int64))
        self._top_task_ids: Ints = np.zeros(len(groups), np.int64)
        """ID of the task that ran most on each CPU in the last record, as in `RunningTasks`."""
        self._package_tasks: list[set[tuple[int, str]]] = [set() for _ in self._members]
        """The tasks of each package in the last record, as PID and name."""
        self._quiet_tasks: list[list[set[tuple[int, str]]]] = [[set()] * 2 for _ in self._members]
        """The tasks of each package in the last two records before a CPU of the package lost IPC.
        The newer record may already include tasks that cause the loss."""

    def process(self, sample: Sample, busy: Bools, job_pids: set[int] | None) -> list[Episode]:
        """Processes one sample. Returns the episodes that ended. `busy`: mask of the CPUs to
        examine. `job_pids`: PIDs of the watched job; None without a job."""
        if not self.is_available or (self.losses.is_quiet and not np.count_nonzero(busy)):
            return []
        if job_pids is None:
            work = sample.batch.cached(self._work_of_busy_cpus).samples(sample.index)
        else:
            counts = cpu_work(sample.values, busy)
            work = self._work(sample.delta, sample.values, sample.split, sample.cores, counts)
        run_s = work.util * ((sample.time_ns - sample.since_ns) / 1e9)
        learned = self.programs.learned_sums
        (others_work,) = self._others_work(work.work[None])
        with np.errstate(invalid="ignore", divide="ignore"):
            # means over the time while memory was quiet; NaN if nothing was learned
            learned_means = learned[_BYTES_ROW:_TIME_ROW] / learned[_TIME_ROW]
        is_saturated = self._is_saturated(learned, work.rate, others_work)
        is_calm = self.losses.is_quiet and not np.count_nonzero(is_saturated)
        ended: list[Episode] = []
        if not is_calm:
            # A sibling that ran for another share of the time also changes the IPC.
            is_comparable = np.abs(work.overlap - learned_means[2]) <= MAX_SIBLING_CHANGE
            ended = self._compare(sample, work, run_s, is_saturated, is_comparable)
        is_undisturbed = work.is_learnable if is_calm else work.is_learnable & ~is_saturated
        # The traffic is far below what was learned while memory was quiet, so learning starts
        # again.
        is_stale = is_undisturbed & (work.rate * self.min_growth < learned_means[0])
        learned[:, is_stale] = 0.0
        parts = self._contributions(work.sums[None], others_work[None], run_s[None])
        by_sample = self.programs.learned_by_sample(is_undisturbed[None], run_s[None], parts)
        self.programs.learned_sums = by_sample[1]
        self.update_programs(busy, sample.time_ns)
        if not is_calm:
            is_new_record = self._running.time_ns == sample.time_ns
            is_proven = self.programs.is_same_program(learned[_TIME_ROW])
            changed = self.losses.begin(is_proven, self._cpu_lists, sample.time_ns)
            for loss in self.losses.running:
                with_task_names = is_new_record or loss in changed
                self._describe(loss, sample, job_pids or set(), with_task_names=with_task_names)
        return ended

    def _is_counted(self) -> bool:
        return all(key in self._reader.counters.columns for key in TRAFFIC_KEYS)

    def _package_rate(self, delta: Delta) -> Floats:
        """Returns the traffic of each CPU's package in bytes per second."""
        traffic = memory_traffic(self._reader.counters, delta)
        assert traffic is not None
        return self._package_values_by_cpu(traffic[0] / traffic[1])

    def _is_near_limit(self, rate: Floats, delta: Delta, best: Floats | None) -> Bools:
        """Returns a mask of the CPUs whose package has nearly as much traffic as memory can carry,
        without those that lose L3 capacity. `best`: the highest traffic of each package so far."""
        assert best is not None
        is_near: Bools = ~(rate < MIN_SATURATED_SHARE * self._package_values_by_cpu(best))
        clock_hz = self._reader.counters.rates(delta, "memory_clock")
        if clock_hz is not None:
            capacity = BYTES_PER_CLOCK * self._package_values_by_cpu(clock_hz)
            is_near &= ~(rate < MIN_LIMIT_SHARE * capacity)
        return is_near if self._cache is None else is_near & ~self._cache.losses.is_losing

    def _package_values_by_cpu(self, values: Floats) -> Floats:
        return np.asarray(with_extra_column(values, np.nan)[..., self._package])

    def _rate_evidence(self, loss: NeighbourLoss, rate: float, sample: Sample) -> dict[str, Any]:
        evidence: dict[str, Any] = {"memory_bytes_per_s": round(rate)}
        if (best := float(self._highest_rates(sample)[loss.group])) > 0:
            evidence["memory_of_best_share"] = round(min(1.0, rate / best), 3)
        if traffic := self._l3_groups.traffic(self._members[loss.group]):
            evidence["l3_groups"] = traffic
        return evidence

    def _highest_rates(self, sample: Sample) -> Floats:
        """Returns the highest traffic of each package so far, in bytes per second."""
        rates = sample.batch.best_traffic
        return self._reader.memory.best_rate if rates is None else rates[sample.index]

    def skip_calm_samples(self, batch: SampleBatch, first: int, last: int) -> int:
        """Returns the index of the first sample in which a loss may start or traffic has shrunk, or
        `last`. Learns from the samples before it. Not valid during a loss."""
        if first == last:
            return last
        part, spans_ns = slice(first, last), batch.time_ns - batch.since_ns
        work = batch.cached(self._work_of_busy_cpus).samples(part)
        run_s, others_work = work.util * (spans_ns[part, None] / 1e9), self._others_work(work.work)
        parts = self._contributions(work.sums, others_work, run_s)
        busy = batch.cached(busy_cpus)[part]
        any_busy: Bools = np.logical_or.reduce(busy, axis=1, keepdims=True)
        i, count = 0, last - first
        while i < count:
            # Only CPUs without saturated memory learn, but what they have learned decides whether
            # memory is saturated. So the mask is assumed to be constant, up to the first sample in
            # which it changes.
            rest = slice(i, None)
            rate, others = work.rate[rest], others_work[rest]
            assumed = self._is_saturated(self.programs.learned_sums, rate, others) & any_busy[rest]
            usable = work.is_learnable[rest] & ~assumed
            learned = self.programs.learned_by_sample(usable, run_s[rest], parts[rest])
            earlier = learned[:-1]
            is_saturated = self._is_saturated(earlier, rate, others) & any_busy[rest]
            with np.errstate(invalid="ignore", divide="ignore"):
                usual_rate = earlier[:, _BYTES_ROW] / earlier[:, _TIME_ROW]
                usual_overlap = earlier[:, _OVERLAP_ROW] / earlier[:, _TIME_ROW]
            may_start: Bools = is_saturated.copy()
            if np.count_nonzero(may_start):
                samples = slice(first + i, last)
                best = None if batch.best_traffic is None else batch.best_traffic[samples]
                may_start &= self._is_near_limit(rate, batch.delta[samples], best)
                _, shares, spread = self.programs.compare_ipc(earlier, work.ipc[rest])
                may_start &= np.abs(work.overlap[rest] - usual_overlap) <= MAX_SIBLING_CHANGE
                may_start &= shares >= np.maximum(MIN_LOSS_DEVIATIONS * spread, LOSS_START)
            has_shrunk = rate * self.min_growth < usual_rate
            may_start |= work.is_learnable[rest] & ~is_saturated & has_shrunk
            due, valid = first_true(may_start), first_true(is_saturated != assumed)
            self.programs.learned_sums = learned[min(due, valid)].copy()
            i += min(due, valid)
            if due <= valid:
                break
        return first + i

    def _is_saturated(self, learned_sums: Floats, rate: Floats, others_work: Floats) -> Bools:
        """Returns a mask of the CPUs where both the traffic and the work of other programs exceed
        what was learned. `learned_sums`: (..., rows, CPUs)."""
        with np.errstate(invalid="ignore", divide="ignore"):
            learned_means = (
                learned_sums[..., _BYTES_ROW:_OVERLAP_ROW, :]
                / learned_sums[..., None, _TIME_ROW, :]
            )
        has_grown = rate > self.min_growth * learned_means[..., 0, :]
        return np.asarray(has_grown & (others_work > learned_means[..., 1, :] + MIN_WORK_INCREASE))

    def _contributions(self, sums: Floats, others_work: Floats, run_s: Floats) -> Floats:
        """Returns each sample's contribution to the learned sums, (samples, rows, CPUs)."""
        parts = sums.copy()
        parts[:, _WORK_ROW] = others_work
        parts[:, _BYTES_ROW:] *= run_s[:, None]
        return parts

    def _work_of_busy_cpus(self, batch: SampleBatch) -> _MemoryWork:
        counts = batch.cached(busy_work)
        return self._work(batch.delta, batch.values, batch.split, batch.cores, counts)

    def _work(
        self, delta: Delta, values: Values, split: SmtShares, cores: Cores, counts: CpuWork
    ) -> _MemoryWork:
        all_util, (util, counted, cycles, ipc, sums) = values["util"], counts
        with np.errstate(invalid="ignore", divide="ignore"):
            rate = self._package_rate(delta)
            overlap = np.minimum(cores.by_cpu(split.states[..., 3]) / util, 1.0)
        overlap = np.where(cores.is_only_thread, 0.0, overlap)
        is_read = np.isfinite(rate)
        if np.count_nonzero(is_read) < is_read.size:
            counted, cycles = counted & is_read, np.where(is_read, cycles, 0.0)
            ipc = np.where(is_read, ipc, np.nan)
        learned_terms = np.array([*sums, rate, rate, overlap, np.ones(util.shape)]).swapaxes(0, -2)
        unread = np.isnan(all_util) & self._reader.online
        has_unread = np.zeros_like(unread)
        for package in range(self._packages) if unread.any() else ():
            is_in_package = self._package == package
            has_unread[..., is_in_package] = unread[..., is_in_package].any(axis=-1, keepdims=True)
        is_learnable = counted & np.isfinite(overlap) & ~has_unread
        all_util = np.where(np.isfinite(all_util), all_util, 0.0)
        return _MemoryWork(
            rate, util, all_util, has_unread, is_learnable, cycles, ipc, overlap, learned_terms
        )

    def _set_programs(self, program: Ints) -> None:
        """Stores the ID of each CPU's program; 0 where unknown."""
        self._named, self._count = program > 0, int(program.max(initial=0)) + 1
        key = self._package * self._count + program  # one number for each program of each package
        self._in_package_key, self._key = key[self._in_package], np.maximum(key, 0)

    def _others_work(self, work: Floats) -> Floats:
        """Returns the work of other programs in each CPU's package, in CPUs, (samples, CPUs)."""
        count, is_in_package, samples = self._count, self._in_package, len(work)
        size = self._packages * count
        keys = self._in_package_key + size * np.arange(samples)[:, None]
        work_by_program = np.bincount(keys.ravel(), work[:, is_in_package].ravel(), size * samples)
        work_by_program = work_by_program.reshape(samples, size)
        total_work = work_by_program.reshape(samples, -1, count).sum(axis=2)
        named_work = np.where(self._named, work_by_program.take(self._key, axis=1), work)
        return np.where(is_in_package, total_work.take(self._package, axis=1) - named_work, 0.0)

    def _compare(
        self,
        sample: Sample,
        work: _MemoryWork,
        run_s: Floats,
        is_saturated: Bools,
        is_comparable: Bools,
    ) -> list[Episode]:
        """Compares the IPC with the earlier IPC. Returns the episodes that ended."""
        rate, ipc, cycles = work.rate, work.ipc, work.cycles
        ipc_before, shares, spread = self.programs.compare_ipc(self.programs.learned_sums, ipc)
        is_near_limit = self._is_near_limit(rate, sample.delta, self._highest_rates(sample))
        is_unread = np.isnan(sample.values["util"]) | np.isnan(rate)
        is_unread |= work.has_unread_cpu & ~is_saturated
        shares = np.where(np.isnan(shares) | ~is_saturated | ~is_near_limit, 0.0, shares)
        shares = np.where(is_unread | (~is_comparable & is_saturated), np.nan, shares)
        can_start = is_saturated & is_near_limit & (shares >= MIN_LOSS_DEVIATIONS * spread)
        ended = self.losses.step(shares, run_s, can_start, sample.since_ns, sample.time_ns)
        if not self.losses.is_quiet:
            losing = self.losses.is_losing & is_saturated & np.isfinite(ipc * ipc_before)
            parts = ipc * cycles, cycles, cycles * ipc_before, run_s, run_s * rate
            self.programs.add_losses(losing, *parts)
        return ended

    def has_program_changed(self, busy: Bools, top_task_ids: Ints) -> bool:
        """Returns whether a new task record has another program on any CPU than the last one."""
        has_changed = np.count_nonzero(top_task_ids != self._top_task_ids)
        return bool(has_changed and np.count_nonzero(busy))

    def update_programs(self, busy: Bools, time_ns: int) -> None:
        """Updates the program of each CPU if there is a task record at `time_ns`. Must be called
        after the sample at that time was processed.
        """
        is_busy = not self.losses.is_quiet or np.count_nonzero(busy)
        if self._running.time_ns != time_ns or not is_busy:
            return
        if np.count_nonzero(self._running.top_task_ids != self._top_task_ids):
            self._top_task_ids, snapshot = self._running.top_task_ids, self._running.snapshot
            tasks = snapshot.top_task_keys([cpu for (cpu,) in self._cpu_lists])
            names = dict.fromkeys([task[1] for task in tasks if task])
            numbers = {name: number for number, name in enumerate(names, 1)}
            programs = [numbers[task[1]] if task else 0 for task in tasks]
            self._set_programs(np.array(programs, np.int64))
            keys_by_package = map(snapshot.top_task_keys, self._members)
            self._package_tasks = [{key for key in keys if key} for keys in keys_by_package]
        self.programs.update_programs(busy)
        losing = {*self._package[self.losses.is_losing].tolist()}
        for package, tasks_now in enumerate(self._package_tasks):
            if package not in losing:
                self._quiet_tasks[package] = [self._quiet_tasks[package][1], tasks_now]

    def _describe(
        self, loss: NeighbourLoss, sample: Sample, job_pids: set[int], *, with_task_names: bool
    ) -> None:
        episode, members = loss.episode, loss.members
        sums = self.programs.loss_sums[:, members].sum(axis=1)
        instructions, cycles, expected, run_s, bytes_moved = sums
        episode.confidence = confidence("neighbour", self.cause)
        if cycles > 0:
            episode.evidence["ipc"] = round(float(instructions / cycles), 2)
            episode.evidence["ipc_alone"] = round(float(expected / cycles), 2)
        if run_s > 0:
            episode.evidence |= self._rate_evidence(loss, float(bytes_moved / run_s), sample)
        if with_task_names and "who" not in episode.evidence:
            episode.evidence |= blamed_tasks(self._suspects(loss, job_pids), job_pids)

    def _suspects(self, loss: NeighbourLoss, job_pids: set[int]) -> list[tuple[Task, int]]:
        """Returns other programs' tasks that did not run before the loss, busiest first."""
        victims = self._running.snapshot.top_task_keys(loss.episode.cpus)
        names, quiet_tasks = {key[1] for key in victims if key}, self._quiet_tasks[loss.group][0]
        suspects = [
            (task, cpu)
            for task, cpu in self._running.top_tasks(self._members[loss.group])
            if task.comm not in names
            and task.pid not in job_pids
            and (task.pid, task.comm) not in quiet_tasks
        ]
        return sorted(suspects, key=lambda pair: -pair[0].share)[:MAX_NAMED_TASKS]


# --- Losses of L3 capacity.

MISS_KEYS = tuple(EVENT_PREFIX + name for name in ("LLC-load-misses", "LLC-misses", "cache-misses"))
"""Keys of the events that count misses of the last-level cache on Intel, if the user chose them. On
AMD, `cache-misses` counts misses of the L2."""
MIN_MISS_GROWTH = 1.5
"""Minimum factor by which misses per instruction must have grown."""


class CacheLosses(MemoryLosses):
    """Detects that other CPUs displace a CPU's data from the L3. It uses misses per instruction in
    place of traffic, and L3s in place of packages."""

    cause, min_growth = "cache", MIN_MISS_GROWTH

    def __init__(
        self, reader: SampleReader, episodes: RunningEpisodes, running: RunningTasks,
        l3_groups: L3Groups,
    ) -> None:  # fmt: skip
        hello, columns = reader.hello, reader.counters.columns
        l3s = sorted({row.l3 for row in hello.topology if row.l3 is not None})
        groups = [-1 if row.l3 is None else l3s.index(row.l3) for row in hello.topology]
        is_intel = hello.identity.vendor == "GenuineIntel"
        keys = [key for key in MISS_KEYS if key in columns and "instructions" in columns]
        self._miss_key = keys[0] if keys and is_intel else ""
        super().__init__(reader, episodes, running, np.array(groups, np.int64), l3_groups)

    def _is_counted(self) -> bool:
        return bool(self._miss_key)

    def _package_rate(self, delta: Delta) -> Floats:
        keys = self._miss_key, "instructions"
        misses, instructions = (self._reader.counters.increments(delta, key) for key in keys)
        assert misses is not None
        assert instructions is not None
        return np.asarray(np.where(instructions > 0, misses / instructions, np.nan))

    def _is_near_limit(
        self, rate: Floats, delta: Delta, best: Floats | None  # noqa: ARG002
    ) -> Bools:  # fmt: skip
        """Returns True for all CPUs: misses have no upper limit, and saturated memory does not
        increase them.
        """
        return np.ones(rate.shape, bool)

    def _rate_evidence(
        self, loss: NeighbourLoss, rate: float, sample: Sample  # noqa: ARG002
    ) -> dict[str, Any]:  # fmt: skip
        learned = self.programs.learned_sums[[_BYTES_ROW, _TIME_ROW]]
        misses, run_s = learned[:, loss.members].sum(axis=1)
        rate_before = 1000 * float(misses / run_s) if run_s > 0 else 0.0
        return {
            "misses_per_ki": round(1000 * rate, 2),
            "misses_per_ki_before": round(rate_before, 2),
        }


# --- The memory traffic of resctrl groups through each L3, which identifies the groups that cause
# it.

L3_RECORD = "l3_groups"
DEFAULT_GROUP = "(default)"
"""Name of the group of all tasks that are not in another group."""
MAX_L3_GROUPS, MAX_NAME_LENGTH, MAX_NAMED_GROUPS = 256, 60, 3
"""Maximum number of groups used, of characters of a name, and of groups listed as evidence."""
MAX_RECORD_AGE_NS = 10_000_000_000
"""Maximum age in ns of a record that is still reported."""


class L3Groups:
    """The memory bandwidth of each resctrl group, from the last two records."""

    def __init__(self, l3_by_cpu: Mapping[int, int | None]) -> None:
        self._l3_by_cpu = l3_by_cpu
        self._last_values: dict[tuple[str, int], int] = {}
        """Total bytes that each group had moved through each L3 at the last record."""
        self._rates: dict[tuple[str, int], float] = {}
        self._at_ns = self._now_ns = 0

    def read_records(self, records: Mapping[str, object], time_ns: int) -> None:
        """Reads a frame's records, which are untrusted."""
        self._now_ns = time_ns
        record = records.get(L3_RECORD)
        if not isinstance(record, dict):
            return
        bytes_by_group: dict[tuple[str, int], int] = {}
        for group, rows in list(record.items())[:MAX_L3_GROUPS]:
            if not isinstance(group, str) or not isinstance(rows, list):
                continue
            name = safe_text(group, MAX_NAME_LENGTH) if group else DEFAULT_GROUP
            for row in rows[:MAX_L3_GROUPS]:
                match row:
                    case [int(l3), int(increments)] if increments >= 0:
                        bytes_by_group[name, l3] = increments
        span_s = (time_ns - self._at_ns) / 1e9
        last = self._last_values if 0 < span_s < MAX_RECORD_AGE_NS / 1e9 else {}
        steps = {key: value - last[key] for key, value in bytes_by_group.items() if key in last}
        self._rates = {key: step / span_s for key, step in steps.items() if step >= 0}
        self._last_values, self._at_ns = bytes_by_group, time_ns

    def traffic(self, cpus: Collection[int]) -> list[GroupTraffic]:
        """Returns the traffic of each group in the L3s of these CPUs, highest first; [] if unknown.
        A control group's traffic includes its monitoring groups, which are also listed."""
        if self._now_ns - self._at_ns > MAX_RECORD_AGE_NS:
            return []
        l3s = {self._l3_by_cpu.get(cpu) for cpu in cpus}
        rates: dict[str, float] = {}
        for (group, l3), rate in self._rates.items():
            if l3 in l3s:
                rates[group] = rates.get(group, 0.0) + rate
        traffic = [GroupTraffic(group, round(rate)) for group, rate in rates.items() if rate > 0]
        return sorted(traffic, key=lambda item: -item.bytes_per_s)[:MAX_NAMED_GROUPS]
