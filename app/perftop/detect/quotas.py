"""Detects control groups that their CPU quota stops.

The kernel counts, for each group, for how long the queues of CPUs stood still. The probe reads the
counts about once a second, so an episode starts and ends with a record. Its CPUs are those on which
tasks of the group ran, and its depth is the share of the time for which each of them stood still.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from perftop.base.arrays import Bools, first_true
from perftop.detect.engine import DetectorInput, RunningEpisodes, gap_ns, with_tasks
from perftop.model.kinds import Episode
from perftop.model.sample_reader import SampleBatch, SampleReader
from perftop.model.tasks import Quota, Quotas, TaskSnapshot

START, END = 0.05, 0.02
"""Shares of a CPU's time, at which an episode starts and below which it ends."""


@dataclass(slots=True)
class _Stop:
    """A running episode, and the sums since its start."""

    episode: Episode
    stopped_s: float = 0.0
    span_s: float = 0.0
    periods: int = 0
    throttled: int = 0


class QuotaStops:
    """Detects stops by quotas. `time_ns` is the raw time of the newest record that may have some.
    Neighbours ask it which part of a wait a quota explains."""

    def __init__(self, reader: SampleReader, episodes: RunningEpisodes) -> None:
        self.available = True
        self.time_ns = 0
        self._cpus = [*reader.position]
        self._gap_ns = gap_ns(reader.hello.sample_ns)
        self._episodes, self.quotas = episodes, Quotas()
        self._last: dict[str, tuple[int, int, int]] = {}
        """By group: raw time, periods and throttled periods of its last record."""
        self._running: dict[str, _Stop] = {}

    def hold(self, pids: Collection[int]) -> bool:
        """Returns whether a quota holds for any of these processes."""
        return any(not {*pids}.isdisjoint(members) for members in self.quotas.newest.values())

    def stopped_s(self, pids: Collection[int]) -> float:
        """Returns the seconds of the newest record for which quotas stopped these processes, summed
        over CPUs. Where one group is inside another, both count the same time."""
        quotas = self.quotas
        stopped = [quotas.by_group[group].newest_s for group, members in quotas.newest.items()
                   if not {*pids}.isdisjoint(members)]  # fmt: skip
        return max(stopped, default=0.0)

    def calm(self, batch: SampleBatch, first: int, last: int) -> int:
        if self.quotas.newest:
            return first_true(batch.once(with_tasks), first, last)
        return first_true(batch.once(_with_quotas), first, last)

    def sample(self, data: DetectorInput) -> list[Episode]:
        """Returns the episodes that this sample ended."""
        return self.take(data.records, data.time_ns)

    def take(self, records: Mapping[str, object], time_ns: int) -> list[Episode]:
        """Does what `sample` does, from the records of a frame, which may be the first one."""
        ended: list[Episode] = []
        if not 0 < time_ns - self.time_ns <= self._gap_ns:
            ended = [self._end(group) for group in [*self._running]]
        if "tasks" not in records and "quotas" not in records:
            return ended
        self.quotas.take(records)
        since_ns, self.time_ns = self.time_ns, time_ns
        newest = self.quotas.newest
        ended += [self._end(group) for group in [*self._running] if group not in newest]
        snapshot = TaskSnapshot.from_records(records) or TaskSnapshot()
        for group, pids in newest.items():
            quota = self.quotas.by_group[group]
            last_ns, periods, throttled = self._last.get(group, (0, 0, 0))
            self._last[group] = time_ns, quota.periods, quota.throttled
            if not 0 < time_ns - last_ns <= self._gap_ns:
                continue
            span_s = (time_ns - last_ns) / 1e9
            cpus = [cpu for cpu in self._cpus
                    if any(ran.pid in pids for ran in snapshot.tasks_on(str(cpu)))]  # fmt: skip
            stop = self._running.get(group)
            if quota.newest_s < (START if stop is None else END) * span_s:
                ended += [self._end(group)] if stop else []
                continue
            if stop is None:
                if not cpus:
                    continue
                stop = _Stop(Episode("quota", [], max(last_ns, since_ns), cause="quota"))
                self._running[group] = stop
                self._episodes.running.append(stop.episode)
            stop.stopped_s += quota.newest_s
            stop.span_s += span_s
            stop.periods += quota.periods - periods
            stop.throttled += quota.throttled - throttled
            _describe(stop, quota, cpus)
        return ended

    def _end(self, group: str) -> Episode:
        """Ends the episode of a group, at its last record that showed a stop."""
        stop = self._running.pop(group)
        return self._episodes.end(stop.episode, stop.episode.start_ns + round(stop.span_s * 1e9))


def _describe(stop: _Stop, quota: Quota, cpus: list[int]) -> None:
    episode = stop.episode
    episode.cpus = sorted({*episode.cpus, *cpus})
    episode.depth = min(1.0, stop.stopped_s / (stop.span_s * len(episode.cpus)))
    episode.evidence = {
        "owner": quota.owner, "group": quota.group, "CPUs_allowed": round(quota.cpus, 3),
        "throttled_periods": stop.throttled, "periods": stop.periods,
        "throttled_s": round(stop.stopped_s, 3),
    }  # fmt: skip


def _with_quotas(batch: SampleBatch) -> Bools:
    return np.array(["quotas" in frame.records for frame in batch.frames], bool)
