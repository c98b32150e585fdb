"""Detects losses of a watched job: waits in run queues, a lower clock, stopped threads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isnan

import numpy as np

from perftop.base.arrays import Bools, Ints
from perftop.detect.engine import RecordEpisodes, RunningEpisodes, cycles_and_time, util
from perftop.detect.losses import NeighbourLoss, NeighbourLosses, blamed_tasks
from perftop.detect.taken_time import QuotaStops
from perftop.model.confidence import CrowdedCpu, confidence
from perftop.model.kinds import Episode
from perftop.model.numbers import MACHINE
from perftop.model.sample_reader import Sample, SampleReader
from perftop.model.tasks import (
    ACTIVITY_SPAN_NS,
    STOP_REASONS,
    RunningTasks,
    ThreadActivity,
    WatchedJob,
)

# --- Losses of a watched job to other tasks: time in run queues, in which its threads are ready
# while another task runs; and a lower clock, because other tasks work in its package.

QUEUE_START, QUEUE_END = 0.05, 0.02
"""Shares of the time in which threads ran or were ready, at which a loss starts and below which it
ends. Kernel threads and interrupts make every task wait for 1 or 2 %."""
MIN_WAITED_S = 0.02
"""Minimum waiting time in s of a reported loss. Two simultaneous wake-ups may cost a time slice."""
MIN_TASK_SHARE = 0.02
"""Minimum share of the CPU's time that a task must use to be blamed for the waits."""
MIN_JOB_RUN_SHARE = 0.5
"""Minimum share of the waiting time for which the job's own threads must run on a CPU to be blamed
for it."""
CLOCK_START, CLOCK_END = 0.02, 0.01
"""Shares of the clock at which a loss starts and below which it ends. The smallest step of turbo is
100 MHz, of less than 5 GHz."""
MIN_WORK_SHARE = 0.1
"""Minimum busy share of a core that counts as active in the turbo table."""
NEWEST_WEIGHT = 0.1
"""Weight of the newest sample in the average of the earlier clock. With samples of 100 ms, this
average covers about a second."""


class JobWaits:
    """Detects waits of the job's threads in run queues."""

    def __init__(self, reader: SampleReader, episodes: RunningEpisodes, running: RunningTasks,
                 job: WatchedJob, groups: Ints, quotas: QuotaStops) -> None:  # fmt: skip
        self._counters, self._position = reader.counters, reader.position
        self._running, self._job, self._quotas = running, job, quotas
        self._pending_activity: dict[int, ThreadActivity] = {}
        """By CPU, the activity of the job's threads since the last record of quotas."""
        self._pending_since_ns = 0
        """Raw time in ns at which the pending activity began; 0 if there is none."""
        self._quota_ns = 0
        """Raw time in ns of the last record of quotas that was used."""
        self._cpu_lists = reader.single_cpus
        limits = QUEUE_START, QUEUE_END
        self.losses = NeighbourLosses(
            reader, episodes, "scheduler", groups, *limits, min_loss=MIN_WAITED_S
        )
        self._switch_sums: dict[NeighbourLoss, list[float]] = {}
        """For each running loss: the number of involuntary switches of the job's threads on its
        CPUs, and the seconds in which they were counted."""

    def process(self, sample: Sample, job_pids: set[int]) -> list[Episode]:
        if self._job.time_ns != sample.time_ns and self.losses.is_quiet:
            return []
        # By CPU, the activity of the threads in this sample's record. If the job has a quota, it
        # includes the time since the last record of quotas.
        activity, self._pending_activity = self._pending_activity, {}
        since_ns, self._pending_since_ns = self._pending_since_ns or sample.since_ns, 0
        for thread in self._job.last_threads if self._job.time_ns == sample.time_ns else ():
            i = self._position.get(thread.cpu)
            if i is not None:
                activity[i] = activity.get(i, ThreadActivity()) + thread.latest_activity()
        if self._quotas.has_quota(job_pids):
            if self._quotas.time_ns == self._quota_ns:
                self._pending_activity, self._pending_since_ns = activity, since_ns
                return []
            self._quota_ns = self._quotas.time_ns
            # Waiting that the quota explains is left out. The kernel counts it once for each CPU,
            # however many threads are stopped there.
            waited_s = float(np.nansum([work.wait_s for work in activity.values()]))
            threads = max(1.0, len(self._job.threads) / max(1, len(activity)))
            stopped_s = threads * self._quotas.stopped_s(job_pids)
            if waited_s > 0 and stopped_s > 0:
                share = max(0.0, 1 - stopped_s / waited_s)
                activity = {i: replace(a, wait_s=share * a.wait_s) for i, a in activity.items()}
        # A CPU without a thread of the job loses nothing.
        job_cpus = {self._position.get(thread.cpu) for thread in self._job.threads.values()}
        count = len(self._cpu_lists)
        shares, weights = np.full(count, np.nan), np.zeros(count)
        shares[[i for i in range(count) if i not in job_cpus]] = 0.0
        for i, work in activity.items():
            shares[i], weights[i] = work.wait, work.run_s + work.wait_s
        all_cpus: Bools = np.ones(count, bool)
        ended = self.losses.step(shares, weights, all_cpus, since_ns, sample.time_ns)
        self.losses.begin(all_cpus, self._cpu_lists, sample.time_ns)
        self._switch_sums = {run: self._switch_sums.get(run, [0, 0]) for run in self.losses.running}
        for loss in self.losses.running:
            self._describe(loss, activity, sample, job_pids)
        return ended

    def _describe(
        self,
        loss: NeighbourLoss,
        activity: dict[int, ThreadActivity],
        sample: Sample,
        job_pids: set[int],
    ) -> None:
        sums = self._switch_sums[loss]
        threads = [activity[i] for i in loss.members if i in activity]
        sums[0] += sum(thread.involuntary_switches for thread in threads)
        sums[1] += max((thread.elapsed_s for thread in threads), default=0.0)
        evidence = loss.episode.evidence
        if sums[1]:
            evidence["involuntary_switches_per_s"] = round(sums[0] / sums[1], 1)
        if self._running.time_ns == sample.time_ns or "who" not in evidence:
            cpus = [cpu for i in loss.members for cpu in self._cpu_lists[i]]
            ran = ((task, cpu) for cpu in cpus for task in self._running.tasks_on(cpu))
            tasks = [
                (task, cpu)
                for task, cpu in ran
                if task.share >= MIN_TASK_SHARE and task.pid not in job_pids
            ]
            # Threads of the job may also wait for each other. Records of processes do not show
            # this: they assign a process to the CPU of its first thread.
            by_cpu: dict[int, list[ThreadActivity]] = {}
            for thread in self._job.threads.values():
                recent = thread.activity(ACTIVITY_SPAN_NS)
                if recent.run_s > 0 and recent.elapsed_s > 0:
                    by_cpu.setdefault(thread.cpu, []).append(recent)
            crowded = [cpu for cpu in cpus if _do_threads_compete(by_cpu.get(cpu, []))]
            evidence |= blamed_tasks(tasks, job_pids)
            if crowded:
                evidence["self"] = [CrowdedCpu(len(by_cpu[cpu]), cpu) for cpu in crowded]
        pressure = self._counters.rates(sample.delta, MACHINE["pressure_cpu"].counter)
        if pressure is not None and len(pressure) and np.isfinite(share := float(pressure.sum())):
            evidence["machine_pressure_share"] = round(min(1.0, max(0.0, share)), 3)
        has_culprits = not {"who", "self"}.isdisjoint(evidence)
        loss.episode.confidence = confidence("neighbour", "scheduler", counted=has_culprits)


def _do_threads_compete(threads: list[ThreadActivity]) -> bool:
    """Returns whether threads on one CPU wait mainly for each other, and not for other tasks."""
    total = sum(threads, ThreadActivity())
    run_shares = sorted(thread.run_s / thread.elapsed_s for thread in threads)
    explained_s = MIN_JOB_RUN_SHARE * min(total.elapsed_s, total.wait_s)
    return sum(run_shares[:-1]) >= MIN_TASK_SHARE and total.run_s >= explained_s


@dataclass(slots=True)
class _JobClock:
    """The job's clock in one package, and the number of busy cores there."""

    job_cores: int
    """Number of the package's cores that work for the job."""
    other_cores: int
    """Number of the package's cores that work for other tasks."""
    hz: float
    ceiling_hz: float


class TurboBudget:
    """Detects that the clock of a job is lower because other tasks work in its package. With every
    core that wakes up, turbo allows a lower clock, and all cores share the power budget. Positions
    are packages."""

    def __init__(
        self, reader: SampleReader, episodes: RunningEpisodes, running: RunningTasks
    ) -> None:
        self._episodes, self._running = episodes, running
        self._packages = reader.hello.packages
        self._topology = reader.hello.topology
        groups: Ints = np.arange(len(self._packages), dtype=np.int64)
        self.losses = NeighbourLosses(reader, episodes, "package", groups, CLOCK_START, CLOCK_END)
        self._best_clocks: dict[int, _JobClock] = {}
        """By package, the job's clock while the fewest cores ran other tasks."""

    def process(self, sample: Sample, busy: Bools, job_pids: set[int]) -> list[Episode]:
        n = len(self._packages)
        shares, weights = np.full(n, np.nan), np.zeros(n)
        can_start: Bools = np.zeros(n, bool)
        cores, awake = sample.cores, sample.get(util) >= MIN_WORK_SHARE
        job = awake & (cores.sum_of_threads(busy.astype(float)) > 0)
        clocks = [self._job_clock(sample, job & (cores.package == p), awake) for p in range(n)]
        for p, clock in enumerate(clocks):
            if clock is not None:
                # The baseline is the job's clock while the fewest cores ran other tasks. It is
                # learned again when the job uses more cores.
                best = self._best_clocks.setdefault(p, clock)
                if clock.job_cores > best.job_cores or clock.other_cores < best.other_cores:
                    best = self._best_clocks[p] = clock
                elif clock.other_cores == best.other_cores and clock is not best:
                    best.job_cores = clock.job_cores
                    best.hz += NEWEST_WEIGHT * (clock.hz - best.hz)
                    best.ceiling_hz = clock.ceiling_hz
                is_crowded = clock.other_cores > best.other_cores
                shares[p] = max(0.0, 1 - clock.hz / best.hz) if is_crowded else 0.0
                weights[p] = (sample.time_ns - sample.since_ns) / 1e9
                is_low = clock.ceiling_hz <= best.ceiling_hz * (1 - CLOCK_START)
                can_start[p] = is_crowded and bool(is_low or self._power_drop(p))
        ended = self.losses.step(shares, weights, can_start, sample.since_ns, sample.time_ns)
        busy_cpus = {self._topology[i].cpu for i in np.flatnonzero(busy)}
        names = [[cpu for cpu in package if cpu in busy_cpus] for package in self._packages]
        self.losses.begin(np.ones(n, bool), names, sample.time_ns)
        for loss in self.losses.running:
            if (clock := clocks[loss.group]) is not None:
                self._describe(loss.episode, loss.group, clock, job_pids)
        return ended

    def _job_clock(self, sample: Sample, job: Bools, awake: Bools) -> _JobClock | None:
        """Returns the job's clock in a package; None if the job does not work there or it is
        unknown."""
        if not job.any():
            return None
        cycles, run_s = (float(part[job].sum()) for part in sample.get(cycles_and_time))
        if not run_s:
            return None
        ceiling = sample.ceilings.hz[job]
        hz = float(ceiling[np.isfinite(ceiling)].mean()) if np.isfinite(ceiling).any() else np.nan
        package = sample.cores.package == sample.cores.package[job][0]
        return _JobClock(int(job.sum()), int((awake & package & ~job).sum()), cycles / run_s, hz)

    def _power_drop(self, package: int) -> Episode | None:
        """Returns the package's running turbo drop due to a power limit; None if there is none."""
        cpus = {*self._packages[package]}
        drops = (
            e for e in self._episodes.active_episodes("turbo-drop") if e.cause.startswith("power")
        )
        return next((e for e in drops if not cpus.isdisjoint(e.cpus)), None)

    def _describe(
        self, episode: Episode, package: int, clock: _JobClock, job_pids: set[int]
    ) -> None:
        best, drop = self._best_clocks[package], self._power_drop(package)
        episode.evidence |= {
            "active_cores": clock.job_cores + clock.other_cores,
            "active_cores_before": best.job_cores + best.other_cores,
            "busy_hz": round(clock.hz),
            "before_hz": round(best.hz),
        }
        if np.isfinite(clock.ceiling_hz) and np.isfinite(best.ceiling_hz):
            episode.evidence["ceiling_hz"] = round(clock.ceiling_hz)
            episode.evidence["ceiling_before_hz"] = round(best.ceiling_hz)
        if drop is not None:
            episode.evidence["turbo_drop"] = drop.cause
        # A power limit does not show whose work lowered the clock, so the loss is only inferred.
        counted = drop is None and bool(np.isfinite(best.ceiling_hz - clock.ceiling_hz))
        episode.confidence = confidence("neighbour", "package", counted=counted)
        if self._running.time_ns and "who" not in episode.evidence:
            package_tasks = self._running.top_tasks(self._packages[package])
            tasks = [(task, cpu) for task, cpu in package_tasks if task.pid not in job_pids]
            tasks.sort(key=lambda pair: -pair[0].share)
            episode.evidence |= blamed_tasks(tasks, job_pids)


# --- Stopped threads of the watched job. A thread that was asleep anyway loses nothing.

MIN_ACTIVE = 0.05
"""Minimum share of the time for which a thread must have run or waited before it was stopped."""


class JobStops:
    """Detects threads of the job that a signal, a debugger or a frozen group stopped."""

    def __init__(self, reader: SampleReader, episodes: RunningEpisodes, job: WatchedJob) -> None:
        self._job, self._position = job, reader.position
        self._stops = RecordEpisodes(reader, episodes, "stopped", 0.0, 0.0)
        self._states: dict[int, str] = {}
        """The last recorded state of each thread."""
        self._activity: dict[int, float] = {}
        """By stopped thread, the share of the time for which it ran or waited before the stop."""

    def process(self, sample: Sample) -> list[Episode]:
        if self._job.time_ns != sample.time_ns:
            return []
        threads, self._states = self._job.threads, self._states | self._job.states
        self._states = {tid: state for tid, state in self._states.items() if tid in threads}
        stopped_tids = [tid for tid, state in self._states.items() if state in STOP_REASONS]
        activity_before, self._activity = self._activity, {}
        for tid in stopped_tids:
            activity = threads[tid].activity(ACTIVITY_SPAN_NS)
            wanted_s = activity.run_s + (0.0 if isnan(activity.wait_s) else activity.wait_s)
            share = wanted_s / activity.elapsed_s if activity.elapsed_s else 1.0
            self._activity[tid] = activity_before.get(tid, min(1.0, share))
        losing_threads = [tid for tid, share in self._activity.items() if share >= MIN_ACTIVE]
        cpus = sorted({threads[tid].cpu for tid in losing_threads} & {*self._position})
        if self._stops.begin_record(sample.time_ns) and cpus:
            active = min(len(cpus), sum(self._activity[tid] for tid in losing_threads))
            stop = self._stops.add("job", "stopped", active * self._stops.span_s)
            assert stop is not None
            stop.episode.cpus = sorted({*stop.episode.cpus, *cpus})
            stop.episode.depth = min(1.0, stop.lost_s / (stop.span_s * len(stop.episode.cpus)))
            stop_reason = STOP_REASONS[self._states[losing_threads[0]]]
            stop.episode.evidence = {"stopped_by": stop_reason, "threads": len(losing_threads)}
        return self._stops.close()
