"""The base of all detectors: input, running episodes, and rules for pauses within episodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.model.confidence import confidence
from perftop.model.counters import BlockCounter
from perftop.model.delta import distinct, first_true
from perftop.model.evaluation import Values
from perftop.model.kinds import Episode
from perftop.model.numbers import INDEX
from perftop.model.sample_reader import Sample, SampleBatch, SampleReader

GAP_NS, GAP_SAMPLES = 5_000_000_000, 3
"""Longest gap in the stream that does not end an episode: the longer of this time in ns and this
number of sample intervals. A longer gap ends the episode, because its real end is unknown."""
PAUSE_NS = 400_000_000
"""Minimum length in ns of a pause that ends an episode. Power and thermal control loops oscillate
several times a second, and a loss of 5 %, counted in ticks of 10 ms, advances by one tick about
every 200 ms. With a shorter limit, one problem would appear as many episodes.
"""
MIN_SAMPLES = 2
"""Minimum number of consecutive samples that show an episode. A single one may be the start or end
of another episode, or contain a late tick of steal."""


def util(batch: SampleBatch) -> Floats:
    """Returns the utilisation of each core's busiest thread, (samples, cores); NaN if the core was
    not read."""
    return batch.cores.max_of_threads(batch.values["util"])


def cycles_and_time(batch: SampleBatch) -> Floats:
    """Returns the cycles and running seconds of each core's threads together, (samples, 2, cores);
    0 if unknown."""
    values, i = batch.values, INDEX["busy_hz"]
    both = np.array([values.numerators[:, i], values.denominators[:, i]])
    both[:, ~np.logical_and.reduce(np.isfinite(both))] = 0.0
    return batch.cores.sum_of_threads(both).swapaxes(0, 1)


MIN_BUSY = 0.5
"""Minimum busy share of a CPU, including steal. The losses of a less busy CPU do not matter."""


def demand_share(batch: SampleBatch) -> Floats:
    """Returns the share of the time in which each CPU was busy or stolen, (samples, CPUs)."""
    stolen_share = batch.values["steal"]
    return np.asarray(batch.values["util"] + np.where(np.isnan(stolen_share), 0.0, stolen_share))


def busy_cpus(batch: SampleBatch) -> Bools:
    return np.asarray(batch.cached(demand_share) >= MIN_BUSY)


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


class HighestValues(NamedTuple):
    """Maxima over all CPUs in each sample; 0 if all are unknown. Used to skip samples."""

    stolen_s: Floats
    steal: Floats
    util_and_steal: Floats
    """Utilisation plus steal."""
    involuntary: Floats


def highest_values(batch: SampleBatch) -> HighestValues:
    values = batch.values
    stolen_s, busy = values.numerators[:, INDEX["steal"]], batch.cached(demand_share)
    maxima = np.array([stolen_s, values["steal"], busy, values["involuntary"]])
    return HighestValues(*np.fmax.reduce(maxima, axis=-1, initial=0.0))


Trigger = Callable[[SampleBatch], Bools]
"""A function that returns a mask of a batch's samples in which an episode may start or change. A
detector may skip a sample that is in none of its triggers' masks."""


def has_steal(batch: SampleBatch) -> Bools:
    return batch.cached(highest_values).stolen_s > 0


def halts_involuntarily(share: float) -> Trigger:
    """Returns a trigger for involuntary halts of at least this share of the time on any CPU."""
    return lambda batch: batch.cached(highest_values).involuntary >= share


@cache
def has_record(name: str) -> Trigger:
    """Returns the trigger for a record with this name in a frame, which several detectors share."""
    return lambda batch: np.array([name in frame.records for frame in batch.frames], bool)


def counter_advances(counter: BlockCounter, columns: Ints | int | None = None) -> Trigger:
    """Returns a trigger for a counter that advanced on any CPU. `columns`: the columns of its block
    to test; None: its first column."""

    def has_advanced(batch: SampleBatch) -> Bools:
        increments = batch.delta.tables[counter.block].increments
        has_increment = increments[..., counter.index if columns is None else columns] > 0
        return np.asarray(has_increment.any(axis=tuple(range(1, has_increment.ndim))))

    return has_advanced


class Detector(ABC):
    """Detects the episodes of one kind. While calm, it only processes samples of its triggers."""

    is_available = True
    """Whether the stream has the counters that the detector needs."""
    is_calm = True
    """Whether no episode runs or is about to start. `process` updates it."""
    follows_drops = False
    """Whether the detector must process all samples during a turbo drop."""
    triggers: Sequence[Trigger] = ()

    def skip_calm_samples(self, batch: SampleBatch, first: int, last: int) -> int:
        """Skips samples of a batch, from `first` on, in which no episode can start. Returns the
        index of the next sample to process, or `last`. There must be no gap between the samples."""
        if not self.is_calm:
            return first
        for sign in self.triggers:
            last = first_true(batch.cached(sign), first, last)
        return last

    @abstractmethod
    def process(self, sample: Sample) -> list[Episode]:
        """Processes one sample. Returns the episodes that it ended."""


class RunningEpisodes:
    """The running episodes of all detectors."""

    def __init__(self) -> None:
        self.running: list[Episode] = []

    def active_episodes(self, kind: str) -> list[Episode]:
        """Returns the running episodes of one kind that are not pausing."""
        return [e for e in self.running if e.kind == kind and not e.is_calm]

    def apply_hotplug(self, cpu: int, time_ns: int, *, online: bool) -> list[Episode]:
        """Starts or ends the `offline` episode of a CPU. Returns the episodes that ended."""
        offline_episodes = [e for e in self.active_episodes("offline") if e.cpus == [cpu]]
        if online:
            online_episode = self.begin("online", "hotplug", time_ns, [cpu])
            return [self.end(episode, time_ns) for episode in (*offline_episodes, online_episode)]
        if not offline_episodes:
            self.begin("offline", "hotplug", time_ns, [cpu])
        return []

    def begin(self, kind: str, cause: str, start_ns: int, cpus: Sequence[int] = ()) -> Episode:
        episode = Episode(kind, [*cpus], start_ns, cause=cause)
        episode.confidence = confidence(kind, cause)
        self.running.append(episode)
        return episode

    def end(self, episode: Episode, end_ns: int) -> Episode:
        self.running = [e for e in self.running if e is not episode]
        episode.end_ns, episode.is_calm = end_ns, False
        return episode


class PauseLimits:
    """Longest pause, and longest gap in the stream, that do not end an episode, in ns."""

    def __init__(self, sample_ns: int, pause_ns: int = PAUSE_NS) -> None:
        self.pause_ns, self.gap_ns = pause_ns, max(GAP_NS, GAP_SAMPLES * sample_ns)

    def is_gap(self, since_ns: int, time_ns: int) -> bool:
        """Returns whether the stream has a gap between these times, or time runs backwards."""
        return not 0 < time_ns - since_ns <= self.gap_ns

    def has_ended(self, share: HighShare, time_ns: int, *, is_known: bool) -> bool:
        """Returns whether a high share has ended. `is_known`: whether the sample has a value."""
        if not is_known:
            return time_ns - share.last_ns > self.gap_ns
        return share.pause_start_ns is not None and time_ns - share.pause_start_ns >= self.pause_ns


@dataclass(slots=True)
class RecordEpisode:
    """A running episode that is detected from records, and the sums of these records."""

    episode: Episode
    lost_s: float = 0.0
    span_s: float = 0.0
    counts: dict[str, float] = field(default_factory=dict)
    """Additional sums, under names that the detector chooses."""


class RecordEpisodes:
    """The episodes of one kind that are detected from records, which the probe sends about once a
    second. They start and end with a record. A key (CPU or group) has at most one of them."""

    def __init__(
        self, reader: SampleReader, episodes: RunningEpisodes, kind: str, start: float, end: float
    ) -> None:
        """`start`: lost share of the time that starts an episode. `end`: share below which it
        ends."""
        self.time_ns, self.span_s = reader.hello.raw_ns, 0.0
        """Raw time of the newest record, and the time in s that it covers."""
        self._pauses = PauseLimits(reader.hello.sample_ns)
        self.running: dict[Hashable, RecordEpisode] = {}
        self._episodes, self._kind, self._start, self._end = episodes, kind, start, end
        self._updated_keys: set[Hashable] = set()

    def begin_record(self, time_ns: int) -> bool:
        """Stores the time of a new record. Returns whether it covers exactly the time since the
        previous record, or since the start of the stream."""
        since_ns, self.time_ns = self.time_ns, time_ns
        self.span_s = (time_ns - since_ns) / 1e9
        return not self._pauses.is_gap(since_ns, time_ns)

    def add(self, key: Hashable, cause: str, lost_s: float) -> RecordEpisode | None:
        """Adds the seconds that a key lost in the newest record. Returns the key's running episode;
        None if the loss is too small for an episode."""
        current = self.running.get(key)
        if not lost_s >= (self._start if current is None else self._end) * self.span_s:
            return None
        if current is None:
            since_ns = self.time_ns - round(self.span_s * 1e9)
            current = RecordEpisode(self._episodes.begin(self._kind, cause, since_ns))
            self.running[key] = current
        current.lost_s += lost_s
        current.span_s += self.span_s
        self._updated_keys.add(key)
        return current

    def close(self) -> list[Episode]:
        """Ends the episodes to which nothing was added since the last call. Their end is the end of
        the last record that added to them. Returns the ended episodes."""
        ended_keys = [key for key in self.running if key not in self._updated_keys]
        self._updated_keys.clear()
        ended = [self.running.pop(key) for key in ended_keys]
        end = self._episodes.end
        return [end(e.episode, e.episode.start_ns + round(e.span_s * 1e9)) for e in ended]


class RecordDetector(Detector):
    """Detects episodes from a record that is sent with the tasks if there may be a loss."""

    triggers = (has_record("tasks"),)
    record = ""
    """Name of the record."""

    def __init__(
        self, reader: SampleReader, episodes: RunningEpisodes, kind: str, start: float, end: float
    ) -> None:
        self.losses = RecordEpisodes(reader, episodes, kind, start, end)

    def process(self, sample: Sample) -> list[Episode]:
        if "tasks" not in sample.records:
            return []
        if self.losses.begin_record(sample.time_ns) and self.record in sample.records:
            self.add_record(sample.records)
        return self.losses.close()

    @abstractmethod
    def add_record(self, records: Mapping[str, object]) -> None:
        """Adds the losses in a frame's untrusted records."""


@dataclass(slots=True)
class SampleSums:
    """The sums of all samples of a `HighShare`."""

    sample_count: int = 0
    sums: Floats | float = 0.0

    def add_samples(self, sample_sums: Sequence[Floats]) -> None:
        self.sums = self.sums + sum(sample_sums)
        self.sample_count += len(sample_sums)


@dataclass(slots=True)
class InnerSampleSums:
    """The sums of the samples that are certainly within an episode. An episode may start in the
    middle of its first sample and end in the middle of its last, so these two count only if there
    are no others."""

    sample_count: int = 0
    _first: Floats | float = 0.0
    _middle: Floats | float = 0.0
    _latest: Floats | float = 0.0

    @property
    def sums(self) -> Floats | float:
        return self._middle if self.sample_count > 2 else self._first + self._latest

    def add_samples(self, sample_sums: Sequence[Floats]) -> None:
        for sums in sample_sums:
            if self.sample_count == 0:
                self._first = sums
            else:
                self._middle, self._latest = self._middle + self._latest, sums
            self.sample_count += 1

    def add_to_latest(self, sums: Floats) -> None:
        self._latest = self._latest + sums


@dataclass(slots=True, eq=False, kw_only=True)
class HighShare:
    """A share, such as lost time, that is high at one or more positions (CPUs, cores or packages).
    The detector decides which shares are high. This class tracks pauses and adds up the samples
    that count."""

    group: int
    """Number of the group of positions. High shares of one group that start together form one
    episode."""
    last_ns: int = field(default=0, init=False)
    """End of the last sample with a high share."""
    totals: InnerSampleSums | SampleSums
    pause_start_ns: int | None = None
    pause_sums: list[Floats] = field(default_factory=list)
    """Sums of the samples in the current pause. They count if the share becomes high again."""

    @property
    def until_ns(self) -> int:
        """End of the high share if no later sample continues it."""
        return self.last_ns if self.pause_start_ns is None else self.pause_start_ns

    def add_sample(self, sums: Floats, time_ns: int) -> None:
        """Adds a sample with a high share that ends at `time_ns`, and any pause just before it."""
        self.totals.add_samples([*self.pause_sums, sums])
        self.pause_sums.clear()
        self.pause_start_ns, self.last_ns = None, time_ns

    def pause(self, since_ns: int, sums: Floats | None = None) -> None:
        """Adds a sample without a high share. `sums` count if the share becomes high again."""
        self.pause_start_ns = since_ns if self.pause_start_ns is None else self.pause_start_ns
        if sums is not None:
            self.pause_sums.append(sums)


@dataclass(slots=True, eq=False, kw_only=True)
class ShareEpisode(HighShare):
    totals: InnerSampleSums = field(default_factory=InnerSampleSums)
    episode: Episode
    members: Bools

    @property
    def sums(self) -> Floats:
        return np.asarray(self.totals.sums)


S = TypeVar("S", bound=ShareEpisode)


class DetectorEpisodes(Generic[S]):
    """The running episodes of one detector. Each position belongs to at most one of them."""

    def __init__(
        self, reader: SampleReader, episodes: RunningEpisodes, pause_ns: int = PAUSE_NS
    ) -> None:
        self.running: list[S] = []
        self.pauses = PauseLimits(reader.hello.sample_ns, pause_ns)
        self._episodes = episodes

    def member_mask(self, count: int) -> Bools:
        """Returns a mask of the `count` positions: whether each is in a running episode."""
        members = [current.members for current in self.running]
        return np.asarray(np.any([np.zeros(count, bool), *members], axis=0))

    def find_new_episode(self, group: int) -> S | None:
        """Returns the group's episode that started in the previous sample; None if there is none.
        If it started late in that sample, some positions are affected only from this sample on.
        """
        candidates = (e for e in self.running if e.group == group and e.pause_start_ns is None)
        return next((current for current in candidates if current.totals.sample_count == 2), None)

    def begin(self, episode: S) -> None:
        self.running.append(episode)
        self._episodes.running.append(episode.episode)

    def close(self, episodes: Sequence[S]) -> list[Episode]:
        self.running = [current for current in self.running if current not in episodes]
        return [self._episodes.end(current.episode, current.until_ns) for current in episodes]


class ShareEpisodes(DetectorEpisodes[ShareEpisode]):
    """Detects the episodes of positions with a high share. Positions of one group form one episode
    if their shares rise in the same sample or one sample apart."""

    def __init__(
        self,
        reader: SampleReader,
        episodes: RunningEpisodes,
        kind: str,
        start: float,
        end: float,
        *,
        min_samples: int = MIN_SAMPLES,
        pause_ns: int = PAUSE_NS,
    ) -> None:
        """`start`: the share that starts an episode. `end`: the share below which it pauses.
        `min_samples`: number of consecutive samples with a high share that make an episode.
        `pause_ns`: length of a pause that ends an episode, at the start of the pause."""
        super().__init__(reader, episodes, pause_ns)
        self._kind = kind
        self._start, self._end, self._min_samples = start, end, min_samples
        self._cpu_lists: Sequence[Sequence[int]] = ()
        self._high_counts: Ints = np.zeros(0, int)
        """For each position: the number of consecutive high samples, too few for an episode."""
        self._since_ns: Ints = np.zeros(0, int)
        """For each position: raw time in ns at which the first of these samples began."""

    @property
    def is_quiet(self) -> bool:
        """Whether no episode runs or is about to start."""
        return not self.running and not self._high_counts.any()

    def step(
        self,
        shares: Floats,
        weights: Floats,
        groups: Ints,
        cpu_lists: Sequence[Sequence[int]],
        since_ns: int,
        time_ns: int,
        extra_values: Sequence[Floats] = (),
    ) -> list[Episode]:
        """Processes one sample. Returns the episodes that ended; new ones are added to `running`.
        By position: `shares`, NaN where unknown; `weights`; `groups`; `cpu_lists`, the CPUs, which
        must be a new object if they changed; `extra_values`, additional values to add up."""
        if cpu_lists is not self._cpu_lists:
            # The positions changed: assign running episodes to positions by their CPUs.
            self._cpu_lists = cpu_lists
            self._high_counts, self._since_ns = np.zeros((2, len(cpu_lists)), int)
            for current in self.running:
                cpus = {*current.episode.cpus}
                current.members = np.array([not cpus.isdisjoint(name) for name in cpu_lists], bool)
        if self.pauses.is_gap(since_ns, time_ns):
            self._high_counts[:] = 0
            return self.close(self.running)
        is_known = np.isfinite(shares) & (weights > 0)
        share, weight = np.where(is_known, shares, 0.0), np.where(is_known, weights, 0.0)
        further_sums = (np.where(is_known, part, 0.0) for part in extra_values)
        sums = np.array([share * weight, weight, *further_sums])
        ended = self.close(self._extend_running(sums, since_ns, time_ns))
        is_high = is_known & (share >= self._start) & ~self.member_mask(len(cpu_lists))
        # Enough consecutive high samples start an episode. A gap in a position's readings restarts
        # the count.
        self._high_counts[time_ns - self._since_ns > self.pauses.gap_ns] = 0
        self._since_ns[self._high_counts == 0] = since_ns
        high_counts = np.where(is_high, self._high_counts + 1, 0)
        self._high_counts = np.where(is_known, high_counts, self._high_counts)
        is_new = is_high & (self._high_counts >= self._min_samples)
        self._high_counts[is_new] = 0
        for group in distinct(groups[is_new]):
            self._start_or_join(group, is_new & (groups == group), sums, time_ns)
        return ended

    def _extend_running(
        self, by_position: Floats, since_ns: int, time_ns: int
    ) -> list[ShareEpisode]:
        """Adds the sample to the running episodes. Returns those that ended."""
        ended: list[ShareEpisode] = []
        for current in self.running:
            sums = by_position[:, current.members].sum(axis=1)
            if (is_known := bool(sums[1])) and sums[0] < self._end * sums[1]:
                current.pause(since_ns, sums)
            elif is_known:
                current.add_sample(sums, time_ns)
                _set_depth(current)
            ended += [current] if self.pauses.has_ended(current, time_ns, is_known=is_known) else []
        return ended

    def _start_or_join(
        self, group: int, is_rising: Bools, by_position: Floats, time_ns: int
    ) -> None:
        sums = by_position[:, is_rising].sum(axis=1)
        current = self.find_new_episode(group)
        if current is None:
            start_ns = int(self._since_ns[is_rising].min())
            current = ShareEpisode(
                group=group, members=is_rising, episode=Episode(self._kind, [], start_ns)
            )
            self.begin(current)
            current.add_sample(sums, time_ns)
        else:
            current.totals.add_to_latest(sums)
        _set_depth(current)
        current.members |= is_rising
        cpu_lists = [self._cpu_lists[i] for i in np.flatnonzero(current.members).tolist()]
        current.episode.cpus = sorted(cpu for name in cpu_lists for cpu in name)


def _set_depth(share: ShareEpisode) -> None:
    lost, weight = share.sums[:2].tolist()
    share.episode.depth = lost / weight
