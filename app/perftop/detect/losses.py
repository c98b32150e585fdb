"""Code shared by the detectors of losses to neighbours: which CPUs have work, the IPC of their
programs without a disturbance, and the start and end of losses.

Other tasks run in short pieces (ticks, time slices), so one sample proves little. A loss is
reported after several samples have shown it. It starts with the first of them and ends with the
last, once no sample has shown it for a while.

Each position (a CPU or a package) has its own high share. High shares of the same group that start
together form one episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.detect.engine import (
    PAUSE_NS,
    AllSums,
    HighShare,
    PauseLimits,
    RunningEpisodes,
    max_gap_ns,
)
from perftop.model.confidence import TaskOnCpu
from perftop.model.evaluation import Values
from perftop.model.kinds import Episode
from perftop.model.numbers import INDEX
from perftop.model.sample_reader import SampleBatch
from perftop.model.tasks import RunningTasks, Task

NEIGHBOUR = "neighbour"
MIN_LOSS_SAMPLES = 2
"""Minimum number of samples that must show a loss before it is reported. A single sample may
contain a stray tick, or the start or end of another disturbance."""
MIN_PRESENT_SHARE = 0.25
"""Minimum share of the time since a loss started for which a task must have run to be involved."""
LEARNING_S = 10.0
"""Running time in s after which a sample's weight is 1/e, because programs have phases."""
STABLE_S = 10.0
"""Minimum time in s for which a CPU without task records must have run undisturbed. After that, the
same program is assumed to run during a loss."""
CYCLES_ROW = 1
"""Row of the cycles in the sums of UndisturbedPrograms."""
MIN_BUSY = 0.5
"""Minimum busy share of a CPU, including steal. The losses of a less busy CPU do not matter."""
MIN_JOB_BUSY = 0.1
"""Minimum busy share of a CPU of a watched job: lower, because the user asked about the job."""


@dataclass(slots=True, eq=False)
class NeighbourLoss:
    """A running episode of losses to one neighbour."""

    episode: Episode
    group: int
    members: list[int] = field(default_factory=list)
    """Positions in the episode, including those whose loss has ended."""
    lost: float = 0.0
    weight: float = 0.0
    """Sums of loss and weight over the positions whose loss has ended."""


class NeighbourLosses:
    """Detects losses to one kind of neighbour, by the high shares of positions."""

    def __init__(self, episodes: RunningEpisodes, cause: str, groups: Ints, sample_ns: int, *,
                 start: float, end: float, min_loss: float = 0.0) -> None:  # fmt: skip
        """`start`: the share that starts a loss. `end`: the share below which it pauses.
        `min_loss`: minimum total loss, in the unit of the weights."""
        self.running: list[NeighbourLoss] = []
        self._episodes, self._cause, self._groups = episodes, cause, groups
        self._start, self._end, self._min_loss = start, end, min_loss
        self._sample_ns, self._pauses = sample_ns, PauseLimits(PAUSE_NS, max_gap_ns(sample_ns))
        n = len(groups)
        self.shares: dict[int, HighShare] = {}
        """The high share of each position that ever lost something, with sums of loss and
        weight."""
        self.is_quiet = True
        """Whether no position appears to lose time or IPC."""
        self.is_losing: Bools = np.zeros(n, bool)
        """Mask of the positions that appear to lose time or IPC."""
        self.is_in_episode: Bools = np.zeros(n, bool)
        self.is_new_loss: Bools = np.zeros(n, bool)

    def lost_share(self, position: int) -> float:
        """Returns the share that a position has lost since its loss started."""
        lost, weight = _total_loss(self.shares[position]).tolist()
        return float(lost / weight) if weight > 0 else float("nan")

    def step(self, shares: Floats, weights: Floats, may_begin: Bools, since_ns: int,
             time_ns: int) -> list[Episode]:  # fmt: skip
        """Processes one sample. Returns the episodes that ended. `shares` are NaN where unknown."""
        self.is_new_loss = self.is_losing & False
        if self._pauses.is_gap(since_ns, time_ns):
            return self._close(self.is_losing.copy())
        known = np.isfinite(shares)
        lost = np.where(known, shares, 0.0)
        self.is_new_loss = may_begin & ~self.is_losing & (lost >= self._start)
        if self.is_quiet and not self.is_new_loss.any():
            return []
        for i in np.flatnonzero(self.is_new_loss).tolist():
            group = int(self._groups[i])
            self.shares[i] = HighShare(
                group=group, start_ns=since_ns, last_ns=since_ns, totals=AllSums()
            )
        self.is_losing |= self.is_new_loss
        self.is_quiet = False
        sums, high = np.array([lost * weights, weights]).T, lost >= self._end
        has_ended: Bools = np.zeros(len(known), bool)
        for i in np.flatnonzero(self.is_losing).tolist():
            high_share = self.shares[i]
            if known[i] and high[i]:
                high_share.add_sample(sums[i], time_ns)
            elif known[i]:
                high_share.pause(high_share.last_ns, sums[i])
            has_ended[i] = self._pauses.has_ended(high_share, time_ns, known=bool(known[i]))
            if not has_ended[i] and not self.is_in_episode[i]:  # the loss may still prove too small
                total, weight = _total_loss(high_share).tolist()
                has_ended[i] = total < self._start * weight
        return self._close(has_ended)

    def begin(
        self, proven: Bools, cpu_lists: Sequence[Sequence[int]], time_ns: int
    ) -> list[NeighbourLoss]:
        """Starts episodes for losses in the mask `proven` that have lasted long enough. Returns
        episodes that started or that further positions joined. `cpu_lists`: each position's
        CPUs."""
        changed = []
        for i in np.flatnonzero(self.is_losing & ~self.is_in_episode & proven).tolist():
            share = self.shares[i]
            enough = share.totals.sample_count >= MIN_LOSS_SAMPLES and share.last_ns == time_ns
            if not (enough and np.asarray(share.totals.sums)[0] >= self._min_loss):
                continue
            loss = self._neighbour_loss(i)
            if i not in loss.members:
                loss.members.append(i)
            loss.episode.cpus = sorted({*loss.episode.cpus, *cpu_lists[i]})
            changed += [] if loss in changed else [loss]
            self.is_in_episode[i] = True
        for loss in self.running if self.is_in_episode.any() else ():
            lost, weight = self._shown_loss([i for i in loss.members if self.is_in_episode[i]])
            if loss.weight + weight > 0:
                loss.episode.depth = (loss.lost + lost) / (loss.weight + weight)
        return changed

    def _shown_loss(self, members: Sequence[int]) -> tuple[float, float]:
        """Returns the loss of these positions and its weight, up to the last sample of each
        loss."""
        if not members:
            return 0.0, 0.0
        lost, weight = np.array([self.shares[i].totals.sums for i in members]).sum(axis=0).tolist()
        return lost, weight

    def _neighbour_loss(self, position: int) -> NeighbourLoss:
        """Returns the episode of this position's loss. It is a running one that started at the same
        time or that already included the position, or a new one."""
        share = self.shares[position]
        for loss in self.running:
            is_near = abs(loss.episode.start_ns - share.start_ns) <= self._sample_ns
            if loss.group == share.group and (is_near or position in loss.members):
                return loss
        episode = self._episodes.begin(NEIGHBOUR, self._cause, share.start_ns)
        self.running.append(NeighbourLoss(episode, share.group))
        return self.running[-1]

    def _close(self, has_ended: Bools) -> list[Episode]:
        ended = []
        self.is_losing &= ~has_ended
        self.is_quiet = not self.is_losing.any()
        for loss in [*self.running] if (has_ended & self.is_in_episode).any() else ():
            ended_here = [i for i in {*loss.members} if has_ended[i] and self.is_in_episode[i]]
            lost, weight = self._shown_loss(ended_here)
            loss.lost, loss.weight = loss.lost + lost, loss.weight + weight
            if not any(self.is_losing[i] and self.is_in_episode[i] for i in loss.members):
                self.running.remove(loss)
                end_ns = max(self.shares[i].last_ns for i in loss.members)
                ended.append(self._episodes.end(loss.episode, end_ns))
        self.is_in_episode &= ~has_ended
        return ended


def _total_loss(share: HighShare) -> Floats:
    """Returns the loss of a position and its weight, including the current pause."""
    return np.asarray(share.totals.sums + sum(share.pause_sums))


def have_run_since(running: RunningTasks, tasks: Sequence[Task], start_ns: int) -> bool:
    """Returns whether the tasks must have run after the loss started, and not only before."""
    since_ns = max(start_ns, running.since_ns)
    had_ns = sum(task.share for task in tasks) * (running.time_ns - running.since_ns)
    left_ns = had_ns - (since_ns - running.since_ns)
    return left_ns >= MIN_PRESENT_SHARE * (running.time_ns - since_ns) > 0


def blamed_tasks(
    tasks: Sequence[tuple[Task, int]], job_pids: set[int]
) -> dict[str, list[TaskOnCpu]]:
    """Returns the tasks to blame, as evidence: `who` lists other tasks, `self` those of the job."""
    ran = [TaskOnCpu(task.pid, task.comm, cpu) for task, cpu in tasks]
    who, selves = [r for r in ran if r.pid not in job_pids], [r for r in ran if r.pid in job_pids]
    return {key: blamed for key, blamed in (("who", who), ("self", selves)) if blamed}


class UndisturbedPrograms:
    """The IPC of the program on each CPU without a disturbance, and whether this program still runs
    there. Arrays have one column per CPU."""

    def __init__(self, losses: NeighbourLosses, cpu_lists: Sequence[Sequence[int]],
                 running: RunningTasks, *, learned_rows: int, loss_rows: int) -> None:  # fmt: skip
        self._losses, self._cpu_lists, self._running = losses, cpu_lists, running
        self.learned_sums: Floats = np.zeros((learned_rows, len(cpu_lists)))
        """Sums while the program was undisturbed: instructions, cycles, cycles times IPC squared,
        and the detector's further rows."""
        self.loss_sums: Floats = np.zeros((loss_rows, len(cpu_lists)))
        self.top_task_ids: Ints = np.zeros(len(cpu_lists), np.int64)
        """ID of the program on each CPU, as in `RunningTasks`."""
        self.is_proven: Bools = np.zeros(len(cpu_lists), bool)
        """Mask of the CPUs on which the program that now loses has been measured undisturbed."""

    def learned_by_sample(self, quiet: Bools, run_s: Floats, parts: Floats) -> Floats:
        """Returns the learned sums before the first sample and after each sample, (1 + samples,
        rows, CPUs). `quiet`: mask of the samples to add, (samples, CPUs). `run_s`: running seconds,
        (samples, CPUs). `parts`: amounts to add, (samples, rows, CPUs)."""
        weights = np.where(quiet, np.exp(-run_s / LEARNING_S), 1.0)
        learned = np.empty((len(parts) + 1, *self.learned_sums.shape))
        learned[0] = self.learned_sums
        np.copyto(learned[1:], np.where(quiet[:, None], parts, 0.0))
        for before, after, weight in zip(learned, learned[1:], weights, strict=False):
            np.add(after, before * weight, out=after)
        return learned

    def compare_ipc(self, learned: Floats, ipc: Floats) -> tuple[Floats, Floats, Floats]:
        """Returns three arrays by CPU: the undisturbed IPC; the share by which `ipc` is lower; the
        relative standard deviation of the undisturbed IPC. `learned`: (..., rows, CPUs)."""
        with np.errstate(invalid="ignore", divide="ignore"):
            parts = learned[..., :3, :] / learned[..., CYCLES_ROW, None, :]
            before, squares = parts[..., 0, :], parts[..., 2, :]
            spread = np.sqrt(np.maximum(squares - before**2, 0.0)) / before
            return before, np.maximum(1 - ipc / before, 0.0), spread

    def add_losses(self, losing: Bools, *parts: Floats) -> None:
        """Adds a sample to the sums of losses, which start at 0 with each new loss."""
        fresh = self._losses.is_new_loss
        self.loss_sums[:, fresh], self.is_proven[fresh] = 0.0, False
        self.loss_sums[:, losing] += np.array(parts)[:, losing]

    def has_program_changed(self, busy: Bools, top_task_ids: Ints) -> bool:
        """Returns whether the program on any of the `busy` CPUs has changed. `top_task_ids`: the
        tasks in a new record, as in `RunningTasks`."""
        return bool(np.count_nonzero((top_task_ids != self.top_task_ids) & busy))

    def update_programs(self, busy: Bools) -> Ints:
        """Updates the programs on the `busy` CPUs from a new record of tasks. Returns the positions
        whose program has changed, and resets their learned sums."""
        is_new = (self._running.top_task_ids != self.top_task_ids) & busy
        changed = np.flatnonzero(is_new)
        if len(changed):
            self.top_task_ids = np.where(is_new, self._running.top_task_ids, self.top_task_ids)
            self.learned_sums[:, changed] = 0.0
        if not self._losses.is_quiet:
            unproven = self._losses.is_losing & ~self._losses.is_in_episode & busy & ~is_new
            for i in np.flatnonzero(unproven).tolist():
                start_ns = self._losses.shares[i].start_ns
                first_tasks = self._running.tasks_on(self._cpu_lists[i][0])[:1]
                self.is_proven[i] |= have_run_since(self._running, first_tasks, start_ns)
        return changed

    def is_same_program(self, undisturbed_s: Floats) -> Bools:
        """Returns a mask of the positions whose current program was certainly measured undisturbed.
        Without task records, these are CPUs that were undisturbed for long enough."""
        known = bool(self._running.time_ns)
        return self.is_proven if known else np.asarray(undisturbed_s >= STABLE_S)


def wanted_share(batch: SampleBatch) -> Floats:
    """Returns the share of the time in which each CPU was busy or stolen, (samples, CPUs)."""
    stolen = batch.values["steal"]
    return np.asarray(batch.values["util"] + np.where(np.isnan(stolen), 0.0, stolen))


def busy_cpus(batch: SampleBatch) -> Bools:
    return np.asarray(batch.cached(wanted_share) >= MIN_BUSY)


class CpuWork(NamedTuple):
    """The work of each CPU. For several samples, arrays have a leading axis."""

    util: Floats
    """Utilisation; 0 for CPUs that are left out."""
    counted: Bools
    """Mask of the CPUs whose IPC is known."""
    cycles: Floats
    """Cycles; 0 where the IPC is unknown."""
    ipc: Floats
    sums: Floats
    """(3, ...): terms of the first three sums in `UndisturbedPrograms.learned_sums`."""


def cpu_work(values: Values, busy: Bools) -> CpuWork:
    """Returns the utilisation, cycles and IPC of each CPU. Only CPUs in the mask `busy` count."""
    i = INDEX["ipc"]
    top, bottom = values.numerators[..., i, :], values.denominators[..., i, :]
    util = np.where(busy, values["util"], 0.0)
    counted = np.isfinite(top) & (bottom > 0) & (util > 0)
    cycles = np.where(counted, bottom, 0.0)
    ipc = np.divide(top, cycles, out=np.full(util.shape, np.nan), where=counted)
    return CpuWork(util, counted, cycles, ipc, np.array([ipc * cycles, cycles, ipc**2 * cycles]))


def busy_work(batch: SampleBatch) -> CpuWork:
    return cpu_work(batch.values, batch.cached(busy_cpus))
