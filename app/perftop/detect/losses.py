"""The start and end of losses to neighbours, and the tasks to blame. All detectors of such losses
use this module.

Other tasks run in short pieces (ticks, time slices), so a single sample proves little. A loss is
reported after several samples with the loss. It starts with the first of these samples and ends
with the last, once samples without the loss have followed for a while.

Each position (a CPU or a package) has its own high share. High shares of the same group that start
together form one episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.detect.engine import MIN_SAMPLES, HighShare, PauseLimits, RunningEpisodes, SampleSums
from perftop.model.confidence import TaskOnCpu
from perftop.model.kinds import Episode
from perftop.model.sample_reader import SampleReader
from perftop.model.tasks import Task


@dataclass(slots=True, eq=False, kw_only=True)
class PositionLoss(HighShare):
    """The loss of one position. Its sums are the loss and the weight."""

    totals: SampleSums = field(default_factory=SampleSums)
    start_ns: int


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

    def __init__(
        self,
        reader: SampleReader,
        episodes: RunningEpisodes,
        cause: str,
        groups: Ints,
        start: float,
        end: float,
        *,
        min_loss: float = 0.0,
    ) -> None:
        """`start`: the share that starts a loss. `end`: the share below which it pauses.
        `min_loss`: minimum total loss, in the unit of the weights."""
        self.running: list[NeighbourLoss] = []
        self._episodes, self._cause, self._groups = episodes, cause, groups
        self._start, self._end, self._min_loss = start, end, min_loss
        self._sample_ns = reader.hello.sample_ns
        self._pauses = PauseLimits(self._sample_ns)
        n = len(groups)
        self.position_losses: dict[int, PositionLoss] = {}
        """The latest loss of each position."""
        self.is_quiet = True
        """Whether no position appears to lose time or IPC."""
        self.is_losing: Bools = np.zeros(n, bool)
        """Mask of the positions that appear to lose time or IPC."""
        self.is_in_episode: Bools = np.zeros(n, bool)
        self.is_new_loss: Bools = np.zeros(n, bool)

    def lost_share(self, position: int) -> float:
        """Returns the share that a position has lost since its loss started."""
        lost, weight = _total_loss(self.position_losses[position]).tolist()
        return float(lost / weight) if weight > 0 else float("nan")

    def step(
        self, shares: Floats, weights: Floats, can_start: Bools, since_ns: int, time_ns: int
    ) -> list[Episode]:
        """Processes one sample. Returns the episodes that ended. `shares` are NaN where unknown."""
        if self._pauses.is_gap(since_ns, time_ns):
            return self._close(self.is_losing.copy())
        is_known = np.isfinite(shares)
        lost = np.where(is_known, shares, 0.0)
        self.is_new_loss = can_start & ~self.is_losing & (lost >= self._start)
        if self.is_quiet and not self.is_new_loss.any():
            return []
        for i in np.flatnonzero(self.is_new_loss).tolist():
            self.position_losses[i] = PositionLoss(group=int(self._groups[i]), start_ns=since_ns)
        self.is_losing |= self.is_new_loss
        self.is_quiet = False
        sums, high = np.array([lost * weights, weights]).T, lost >= self._end
        has_ended: Bools = np.zeros(len(is_known), bool)
        for i in np.flatnonzero(self.is_losing).tolist():
            loss = self.position_losses[i]
            if high[i]:
                loss.add_sample(sums[i], time_ns)
            elif is_known[i]:
                loss.pause(loss.last_ns, sums[i])
            has_ended[i] = self._pauses.has_ended(loss, time_ns, is_known=bool(is_known[i]))
            if not has_ended[i] and not self.is_in_episode[i]:  # the loss may still prove too small
                total, weight = _total_loss(loss).tolist()
                has_ended[i] = total < self._start * weight
        return self._close(has_ended)

    def begin(
        self, is_proven: Bools, cpu_lists: Sequence[Sequence[int]], time_ns: int
    ) -> list[NeighbourLoss]:
        """Starts episodes for losses in the mask `is_proven` that have lasted long enough. Returns
        episodes that started or that further positions joined. `cpu_lists`: each position's
        CPUs."""
        changed = []
        for i in np.flatnonzero(self.is_losing & ~self.is_in_episode & is_proven).tolist():
            position_loss = self.position_losses[i]
            totals = position_loss.totals
            is_long = totals.sample_count >= MIN_SAMPLES and position_loss.last_ns == time_ns
            if not (is_long and np.asarray(totals.sums)[0] >= self._min_loss):
                continue
            loss = self._neighbour_loss(i)
            if i not in loss.members:
                loss.members.append(i)
            loss.episode.cpus = sorted({*loss.episode.cpus, *cpu_lists[i]})
            changed += [] if loss in changed else [loss]
            self.is_in_episode[i] = True
        for loss in self.running if self.is_in_episode.any() else ():
            lost, weight = self._member_loss([i for i in loss.members if self.is_in_episode[i]])
            if loss.weight + weight > 0:
                loss.episode.depth = (loss.lost + lost) / (loss.weight + weight)
        return changed

    def _member_loss(self, members: Sequence[int]) -> tuple[float, float]:
        """Returns the total loss of these positions and its weight, up to the last sample of each
        loss."""
        sums = np.array([self.position_losses[i].totals.sums for i in members]).reshape(-1, 2)
        lost, weight = sums.sum(axis=0).tolist()
        return lost, weight

    def _neighbour_loss(self, position: int) -> NeighbourLoss:
        """Returns the episode of this position's loss. It is a running one that started at the same
        time or that already included the position, or a new one."""
        position_loss = self.position_losses[position]
        for loss in self.running:
            is_near = abs(loss.episode.start_ns - position_loss.start_ns) <= self._sample_ns
            if loss.group == position_loss.group and (is_near or position in loss.members):
                return loss
        episode = self._episodes.begin("neighbour", self._cause, position_loss.start_ns)
        self.running.append(NeighbourLoss(episode, position_loss.group))
        return self.running[-1]

    def _close(self, has_ended: Bools) -> list[Episode]:
        ended = []
        self.is_losing &= ~has_ended
        self.is_quiet = not self.is_losing.any()
        for loss in [*self.running] if (has_ended & self.is_in_episode).any() else ():
            ended_here = [i for i in {*loss.members} if has_ended[i] and self.is_in_episode[i]]
            lost, weight = self._member_loss(ended_here)
            loss.lost, loss.weight = loss.lost + lost, loss.weight + weight
            if not any(self.is_losing[i] and self.is_in_episode[i] for i in loss.members):
                self.running.remove(loss)
                end_ns = max(self.position_losses[i].last_ns for i in loss.members)
                ended.append(self._episodes.end(loss.episode, end_ns))
        self.is_in_episode &= ~has_ended
        return ended


def _total_loss(loss: PositionLoss) -> Floats:
    """Returns the sums of a loss (the loss and its weight), including the current pause."""
    return np.asarray(loss.totals.sums + sum(loss.pause_sums))


def blamed_tasks(
    tasks: Sequence[tuple[Task, int]], job_pids: set[int]
) -> dict[str, list[TaskOnCpu]]:
    """Returns the tasks to blame, as evidence: `who` lists other tasks, `self` those of the job."""
    blamed = [TaskOnCpu(task.pid, task.comm, cpu) for task, cpu in tasks]
    other_tasks = [task for task in blamed if task.pid not in job_pids]
    own_tasks = [task for task in blamed if task.pid in job_pids]
    return {key: group for key, group in (("who", other_tasks), ("self", own_tasks)) if group}
