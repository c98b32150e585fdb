"""The base of all detectors: their input, the list of running episodes, and the hysteresis that
joins a high share with short pauses into one episode.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.model.belief import confidence
from perftop.model.counters import BlockCounter, Cores
from perftop.model.delta import distinct, first_true
from perftop.model.kinds import Episode
from perftop.model.numbers import INDEX
from perftop.model.sample_reader import Sample, SampleBatch, SampleReader

GAP_NS, GAP_SAMPLES = 5_000_000_000, 3
"""A gap in the stream that is longer than both this time in ns and this number of sample intervals
ends an episode, since the real end of the episode is unknown."""
PAUSE_NS = 400_000_000
"""Length in ns of a pause that ends an episode. Control loops of power and heat oscillate several
times a second, and time that is counted in ticks of 10 ms shows a tick more often than that at a
loss of 5 %. One line for each oscillation or tick would hide the other episodes."""


@dataclass(slots=True)
class DetectorInput:
    """The input of detectors: one sample and its times. `cores` becomes a new object when a hotplug
    changes the list of cores."""

    sample: Sample
    since_ns: int
    time_ns: int
    cores: Cores
    records: Mapping[str, object]
    """Records of the frame other than counters. They are untrusted: check them before use."""

    @property
    def ceiling_hz(self) -> Floats:
        """The lowest clock that turbo may have allowed each core; NaN where unknown."""
        return self.sample.ceilings.hz

    def util(self) -> Floats:
        """Returns the utilisation of each core's busiest thread; NaN if it was not read."""
        return self.sample.part(util)

    def cycles_and_time(self) -> tuple[Floats, Floats]:
        """Returns, for each core, the cycles of all its threads and the seconds for which these
        threads ran; 0 where unknown."""
        cycles, run_s = self.sample.part(cycles_and_time)
        return cycles, run_s


def util(batch: SampleBatch) -> Floats:
    """Returns `DetectorInput.util` of each sample, (samples, cores)."""
    return batch.cores.max_of_threads(batch.values["util"])


def cycles_and_time(batch: SampleBatch) -> Floats:
    """Returns `DetectorInput.cycles_and_time` of each sample, (samples, 2, cores)."""
    values, i = batch.values, INDEX["busy_hz"]
    both = np.array([values.top[:, i], values.bottom[:, i]])
    both[:, ~np.logical_and.reduce(np.isfinite(both))] = 0.0
    return batch.cores.total(both).swapaxes(0, 1)


def has_task_records(batch: SampleBatch) -> Bools:
    """Returns a mask of the samples whose frame has records of tasks or quotas."""
    return np.array([not {"tasks", "quotas"}.isdisjoint(f.records) for f in batch.frames], bool)


class HighestValues(NamedTuple):
    """The highest values among the CPUs, by sample; 0 where no value is known. Detectors use them
    to skip samples."""

    stolen_s: Floats
    steal: Floats
    busy: Floats
    """The sum of utilisation and steal."""
    involuntary: Floats


def highest_values(batch: SampleBatch) -> HighestValues:
    values = batch.values
    steal = values["steal"]
    busy = values["util"] + np.where(np.isnan(steal), 0.0, steal)
    stolen_s = values.top[:, INDEX["steal"]]
    maxima = np.array([stolen_s, steal, busy, values["involuntary"]])
    return HighestValues(*np.fmax.reduce(maxima, axis=-1, initial=0.0))


Sign = Callable[[SampleBatch], Bools]
"""A test of a batch: returns a mask of the samples in which an episode may start or change. A
sample without any sign can be skipped."""


def has_steal(batch: SampleBatch) -> Bools:
    return batch.cached(highest_values).stolen_s > 0


def reaches_involuntary(share: float) -> Sign:
    """Returns a sign: whether any CPU was halted involuntarily for at least this share of time."""
    return lambda batch: batch.cached(highest_values).involuntary >= share


def advances(counter: BlockCounter, columns: Ints | int | None = None) -> Sign:
    """Returns a sign: whether a counter advanced on any CPU. `columns`: the columns of its block
    that matter; by default only its first."""

    def has_advanced(batch: SampleBatch) -> Bools:
        increments = batch.delta.tables[counter.block].increments
        moved = increments[..., counter.first if columns is None else columns] > 0
        return np.asarray(moved.any(axis=tuple(range(1, moved.ndim))))

    return has_advanced


class Detector(ABC):
    """A detector, which starts and ends the episodes of one kind. While it is calm, it processes
    only samples that show one of its signs."""

    is_available = True
    """Whether this stream has the counters that the detector needs."""
    is_calm = True
    """Whether no episode runs or is about to start, so that samples without a sign cannot change
    the detector. Set by `sample`."""
    follows_drops = False
    """Whether the detector must process all samples during a turbo drop, even those without a sign.
    """
    signs: Sequence[Sign] = ()

    def skip_calm_samples(self, batch: SampleBatch, first: int, last: int) -> int:
        """Processes the samples of a batch, from `first` on, in which no episode can start. Returns
        the index of the first sample in which one can, or `last`. There must be no gap between the
        samples."""
        if not self.is_calm:
            return first
        for sign in self.signs:
            last = first_true(batch.cached(sign), first, last)
        return last

    @abstractmethod
    def sample(self, data: DetectorInput) -> list[Episode]:
        """Processes one sample. Returns the episodes that it ended."""


class RunningEpisodes:
    """The running episodes of all kinds. A method that ends episodes returns them."""

    def __init__(self) -> None:
        self.running: list[Episode] = []

    def of_kind(self, kind: str) -> list[Episode]:
        """Returns the running episodes of one kind that are visible now."""
        return [e for e in self.running if e.kind == kind and not e.is_calm]

    def apply_hotplug(self, cpu: int, time_ns: int, *, online: bool) -> list[Episode]:
        """Starts or ends the episode of a CPU that went offline or online. Returns the episodes
        that have ended."""
        offline_episodes = [e for e in self.of_kind("offline") if e.cpus == [cpu]]
        if online:
            online_episode = self.begin("online", "hotplug", time_ns, [cpu])
            return [self.end(episode, time_ns) for episode in (*offline_episodes, online_episode)]
        if not offline_episodes:
            self.begin("offline", "hotplug", time_ns, [cpu])
        return []

    def begin(self, kind: str, cause: str, start_ns: int, cpus: Sequence[int] = ()) -> Episode:
        """Starts an episode whose cause is known, and returns it."""
        episode = Episode(kind, [*cpus], start_ns, cause=cause)
        episode.confidence = confidence(kind, cause)
        self.running.append(episode)
        return episode

    def end(self, episode: Episode, end_ns: int) -> Episode:
        self.running = [e for e in self.running if e is not episode]
        episode.end_ns, episode.is_calm = end_ns, False
        return episode


def max_gap_ns(sample_ns: int) -> int:
    """Returns the length in ns of the longest gap that does not end an episode."""
    return max(GAP_NS, GAP_SAMPLES * sample_ns)


@dataclass(slots=True)
class RecordEpisode:
    """A running episode that is detected from records, with the sums of those records."""

    episode: Episode
    lost_s: float = 0.0
    span_s: float = 0.0
    counts: dict[str, float] = field(default_factory=dict)
    """Sums that only this kind of episode needs; the detector chooses their names."""


class RecordEpisodes:
    """Episodes of one kind that are detected from records, which the probe sends about once a
    second. A record has exact bounds, so an episode starts and ends with a record. Each key (a CPU,
    a control group) has at most one running episode."""

    def __init__(
        self, reader: SampleReader, episodes: RunningEpisodes, kind: str, start: float, end: float
    ) -> None:
        """`start`: the lost share of the time at which an episode starts; a lower share, down to
        `end`, keeps it running."""
        self.time_ns, self.span_s = reader.hello.raw_ns, 0.0
        """Raw time of the newest record, and seconds that it covers."""
        self._gap_ns = max_gap_ns(reader.hello.sample_ns)
        self.running: dict[Hashable, RecordEpisode] = {}
        self._episodes, self._kind, self._start, self._end = episodes, kind, start, end
        self._shown: set[Hashable] = set()

    def note_record(self, time_ns: int) -> bool:
        """Stores the time of a record. Returns whether the record covers all the time since the
        previous record, or since the start of the stream, without a gap."""
        span_ns, self.time_ns = time_ns - self.time_ns, time_ns
        self.span_s = span_ns / 1e9
        return 0 < span_ns <= self._gap_ns

    def add(self, key: Hashable, cause: str, lost_s: float) -> RecordEpisode | None:
        """Adds the seconds that a key lost in the newest record. Returns the running episode of
        that key; None if the loss is too small for an episode."""
        current = self.running.get(key)
        if not lost_s >= (self._start if current is None else self._end) * self.span_s:
            return None
        if current is None:
            since_ns = self.time_ns - round(self.span_s * 1e9)
            current = RecordEpisode(self._episodes.begin(self._kind, cause, since_ns))
            self.running[key] = current
        current.lost_s += lost_s
        current.span_s += self.span_s
        self._shown.add(key)
        return current

    def close(self) -> list[Episode]:
        """Ends the episodes to which nothing was added since the last call, at the last record that
        showed them. Returns them."""
        ended_keys = [key for key in self.running if key not in self._shown]
        self._shown.clear()
        ended = [self.running.pop(key) for key in ended_keys]
        return [
            self._episodes.end(one.episode, one.episode.start_ns + round(one.span_s * 1e9))
            for one in ended
        ]


@dataclass(slots=True)
class AllSums:
    """The sums of a high share (see `HighShare`) over all samples that showed it."""

    sample_count: int = 0
    sums: Floats | float = 0.0

    def add_samples(self, sample_sums: Sequence[Floats]) -> None:
        """Adds the sums of samples, oldest first."""
        self.sums = self.sums + sum(sample_sums)
        self.sample_count += len(sample_sums)


@dataclass(slots=True)
class InnerSums:
    """Sums over the samples that are certainly within an episode. The episode may have started and
    ended in the middle of its first and its last sample, so these two samples count only if there
    are no further samples."""

    sample_count: int = 0
    _first: Floats | float = 0.0
    _between: Floats | float = 0.0
    _latest: Floats | float = 0.0

    @property
    def sums(self) -> Floats | float:
        return self._between if self.sample_count > 2 else self._first + self._latest

    def add_samples(self, sample_sums: Sequence[Floats]) -> None:
        """Adds the sums of samples, oldest first."""
        for sums in sample_sums:
            if self.sample_count == 0:
                self._first = sums
            else:
                self._between, self._latest = self._between + self._latest, sums
            self.sample_count += 1

    def add_to_latest(self, sums: Floats) -> None:
        """Adds more sums of the latest sample."""
        self._latest = self._latest + sums


@dataclass(slots=True, eq=False, kw_only=True)
class HighShare:
    """A share, such as lost time, of one or more positions (CPUs, cores or packages) that has been
    high since `start_ns`. The detector decides which shares are high; this class tracks the pauses,
    and the sums of the samples that count."""

    group: int
    """Number of the group to which the position belongs. High shares of one group that start
    together are one episode."""
    start_ns: int
    last_ns: int
    """End of the last sample that showed the high share."""
    totals: InnerSums | AllSums
    pause_start_ns: int | None = None
    """Start of the current pause; None if there is no pause."""
    pause_sums: list[Floats] = field(default_factory=list)
    """Sums of the samples of the current pause. They count once the share is high again."""

    @property
    def until_ns(self) -> int:
        """The end of the high share if it does not continue."""
        return self.last_ns if self.pause_start_ns is None else self.pause_start_ns

    def add_sample(self, sums: Floats, time_ns: int) -> None:
        """Records that the sample that ended at `time_ns` shows the high share. The pause before
        that sample counts as part of the episode."""
        self.totals.add_samples([*self.pause_sums, sums])
        self.pause_sums.clear()
        self.pause_start_ns, self.last_ns = None, time_ns

    def pause(self, since_ns: int, sums: Floats | None = None) -> None:
        """Records a sample without the high share. If `sums` is None, it never counts."""
        self.pause_start_ns = since_ns if self.pause_start_ns is None else self.pause_start_ns
        if sums is not None:
            self.pause_sums.append(sums)


@dataclass(frozen=True, slots=True)
class AllowedPauses:
    """Limits, in ns, up to which an episode continues although no sample shows it."""

    pause_ns: int
    gap_ns: int

    def is_gap(self, since_ns: int, time_ns: int) -> bool:
        """Returns whether the stream has a gap between these times, or goes back in time."""
        return not 0 < time_ns - since_ns <= self.gap_ns

    def has_ended(self, high: HighShare, time_ns: int, *, known: bool) -> bool:
        """Returns whether a high share is over after a sample. `known`: whether the share is known
        in that sample."""
        if not known:
            return time_ns - high.last_ns > self.gap_ns
        return high.pause_start_ns is not None and time_ns - high.pause_start_ns >= self.pause_ns


@dataclass(slots=True, eq=False, kw_only=True)
class ShareEpisode(HighShare):
    """A high share of several positions (CPUs, cores or packages) that forms one episode."""

    totals: InnerSums = field(default_factory=InnerSums)
    episode: Episode
    members: Bools

    @property
    def sums(self) -> Floats:
        return np.asarray(self.totals.sums)


S = TypeVar("S", bound=ShareEpisode)


class OpenEpisodes(Generic[S]):
    """The running episodes of one detector. Each position is in at most one episode."""

    def __init__(self, episodes: RunningEpisodes, pauses: AllowedPauses) -> None:
        self.running: list[S] = []
        self.pauses = pauses
        self._episodes = episodes

    def member_mask(self, count: int) -> Bools:
        """Returns a mask of `count` positions: the positions in a running episode."""
        members = [current.members for current in self.running]
        return np.asarray(np.any([np.zeros(count, bool), *members], axis=0))

    def just_started(self, group: int) -> S | None:
        """Returns the episode of this group that started in the previous sample. It may have
        started in the middle of that sample, so that some positions show it only now."""
        same = (
            current
            for current in self.running
            if current.group == group and current.pause_start_ns is None
        )
        return next((current for current in same if current.totals.sample_count == 2), None)

    def begin(self, started: S) -> None:
        self.running.append(started)
        self._episodes.running.append(started.episode)

    def close(self, ended: Sequence[S]) -> list[Episode]:
        """Ends these episodes, and returns them."""
        self.running = [current for current in self.running if current not in ended]
        return [self._episodes.end(current.episode, current.until_ns) for current in ended]


class ShareEpisodes(OpenEpisodes[ShareEpisode]):
    """Detects episodes of one kind: positions whose share is high. Positions of one group whose
    shares rise in the same sample, or one sample apart, form one episode."""

    def __init__(
        self, episodes: RunningEpisodes, kind: str, start: float, end: float, sample_ns: int, *,
        min_samples: int = 1, pause_ns: int = 0,
    ) -> None:  # fmt: skip
        """`start`: the share at which an episode starts; a lower share, down to `end`, keeps it
        running. `min_samples`: number of consecutive samples that must show it; the episode started
        with the first of them. It is over once no sample has shown it for `pause_ns`; it then ends
        at the start of that pause."""
        super().__init__(episodes, AllowedPauses(pause_ns, max_gap_ns(sample_ns)))
        self._kind = kind
        self._start, self._end, self._min_samples = start, end, min_samples
        self._names: Sequence[Sequence[int]] = ()
        self._high_counts: Ints = np.zeros(0, int)
        """By position: the number of consecutive samples with a high share. They are too few for an
        episode so far."""
        self._since_ns: Ints = np.zeros(0, int)
        """By position: raw time at which the first of the samples in `_high_counts` started."""

    @property
    def is_quiet(self) -> bool:
        """Whether no episode runs or is about to start, so that samples may be skipped."""
        return not self.running and not self._high_counts.any()

    def step(
        self, shares: Floats, weights: Floats, groups: Ints, names: Sequence[Sequence[int]],
        since_ns: int, time_ns: int, further_values: Sequence[Floats] = (),
    ) -> list[Episode]:  # fmt: skip
        """Advances by one sample. Returns the episodes that the sample ended. By position: the
        shares, NaN where unknown; their weights; the groups; `names`, the CPUs of each position, a
        new object after they change; `further_values`, values that are added up, too. Episodes that
        were not in `running` before have just started."""
        if names is not self._names:
            # The positions changed: re-attach running episodes by their CPUs.
            self._names = names
            self._high_counts, self._since_ns = np.zeros((2, len(names)), int)
            for current in self.running:
                cpus = {*current.episode.cpus}
                current.members = np.array([not cpus.isdisjoint(name) for name in names], bool)
        if self.pauses.is_gap(since_ns, time_ns):
            self._high_counts[:] = 0
            return self.close(self.running)
        known = np.isfinite(shares) & (weights > 0)
        share, weight = np.where(known, shares, 0.0), np.where(known, weights, 0.0)
        sums = np.array(
            [share * weight, weight, *(np.where(known, part, 0.0) for part in further_values)]
        )
        ended = self.close(self._extend_running(sums, since_ns, time_ns))
        high = known & (share >= self._start) & ~self.member_mask(len(names))
        # Positions that have been high for long enough start an episode.
        # A position that has not been read for too long starts counting again.
        self._high_counts[time_ns - self._since_ns > self.pauses.gap_ns] = 0
        self._since_ns[self._high_counts == 0] = since_ns
        self._high_counts = np.where(
            known, np.where(high, self._high_counts + 1, 0), self._high_counts
        )
        rises = high & (self._high_counts >= self._min_samples)
        self._high_counts[rises] = 0
        for group in distinct(groups[rises]):
            self._start_or_join(group, rises & (groups == group), sums, time_ns)
        return ended

    def _extend_running(
        self, by_position: Floats, since_ns: int, time_ns: int
    ) -> list[ShareEpisode]:
        """Adds the sample to the running episodes. Returns the episodes that have ended."""
        ended: list[ShareEpisode] = []
        for current in self.running:
            sums = by_position[:, current.members].sum(axis=1)
            if (known := bool(sums[1])) and sums[0] < self._end * sums[1]:
                current.pause(since_ns, sums)
            elif known:
                current.add_sample(sums, time_ns)
                _set_depth(current)
            ended += [current] if self.pauses.has_ended(current, time_ns, known=known) else []
        return ended

    def _start_or_join(self, group: int, rising: Bools, by_position: Floats, time_ns: int) -> None:
        sums = by_position[:, rising].sum(axis=1)
        current = self.just_started(group)
        if current is None:
            start_ns = int(self._since_ns[rising].min())
            current = ShareEpisode(
                group=group, start_ns=start_ns, last_ns=time_ns, members=rising & False,
                episode=Episode(self._kind, [], start_ns),
            )  # fmt: skip
            self.begin(current)
            current.add_sample(sums, time_ns)
        else:
            current.totals.add_to_latest(sums)
        _set_depth(current)
        current.members |= rising
        names = [self._names[i] for i in np.flatnonzero(current.members).tolist()]
        current.episode.cpus = sorted(cpu for name in names for cpu in name)


def _set_depth(share: ShareEpisode) -> None:
    lost, weight = share.sums[:2].tolist()
    share.episode.depth = lost / weight
