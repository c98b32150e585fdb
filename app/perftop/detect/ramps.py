"""Detects ramps: how high and how fast a core's clock climbs after the core wakes up.

The result depends only on the samples so far. A ramp is reported once the clock has been steady for
a while, because its final value is unknown before. Only the mean clock of a sample is known, so a
time as short as a sample is an upper bound, and the real climb is at least as high as reported.

A batch consists of the cores of one group that woke up together. Their ramps form one episode.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.detect.engine import GAP_SAMPLES, Detector, PauseLimits, cycles_and_time, util
from perftop.model.confidence import confidence
from perftop.model.counters import Cores
from perftop.model.delta import distinct, first_true, latest_known_values, median
from perftop.model.kinds import Episode
from perftop.model.sample_reader import Sample, SampleBatch, SampleReader

MIN_AWAKE_SHARE = 0.1
"""Minimum busy share of a core that counts as awake. Cores of an idle system are less busy than
this.
"""
MIN_SLEEP_NS = 1_000_000_000
"""Minimum sleep in ns before a wake-up that counts. Builds and databases sleep and wake several
times a second, so their clock never settles."""
MIN_STEADY_NS, MIN_STEADY_SAMPLES = 500_000_000, 3
"""Minimum time in ns and number of samples for which a steady clock must not change. Governors
adjust it every 10 to 100 ms."""
MAX_CLIMB_NS = 10_000_000_000
"""Maximum duration of a climb in ns. A clock that is unsteady for longer has another reason."""
MIN_MEASURED_SAMPLES = 4
"""Minimum number of samples in a climb whose confidence is `measured`. With fewer, the mean clock
of the first sample may exceed the initial clock by more than an eighth of the climb."""
MIN_WORK_SHARE = 0.5
"""Minimum busy share of a core since its wake-up. If it works less, the load sets its clock."""
MAX_STEADY_VARIATION = 0.05
"""Maximum variation of a steady clock, as a share of the clock: about a step of 100 MHz."""
MIN_GAIN = 0.05
"""Minimum gain of a climb, as a share of the steady clock. A smaller gain is variation."""
MIN_CLIMB_SHARE = 0.25
"""Minimum gain of a climb, as a share of the distance from the first clock to the ceiling. Limits
stop real climbs at a third of this distance; a varying low clock gains a few per cent."""
NEVER = -1


class _WakeUps(NamedTuple):
    """Wake-ups of cores, (samples, cores), and the times of the cores' last readings."""

    has_woken: Bools
    was_unread: Bools
    """Mask of the cores that were not read for too long."""
    since_read_ns: Floats
    """Time in ns since the core's previous reading."""
    read_ns: Floats
    awake_ns: Floats
    """(1 + samples, cores): the raw time at which each core was last read (`read_ns`) and at which
    it was last awake or unknown (`awake_ns`), before the first sample and after each."""


class Ramps(Detector):
    """Detects ramps after they have ended."""

    def __init__(self, reader: SampleReader) -> None:
        self.is_available = bool(reader.evaluator.variants["busy_hz"])
        self._pauses = PauseLimits(reader.hello.sample_ns)
        self._stale_ns = (GAP_SAMPLES + 0.5) * reader.hello.sample_ns
        self._reset(reader.cores)

    def _reset(self, cores: Cores) -> None:
        """Resets all state, because of a new core list or a gap in the stream."""
        self._cores, count = cores, len(cores.lists)
        self._awake_ns = np.zeros(count)  # raw time at which each core was last awake or unknown
        self._read_ns = np.zeros(count)  # raw time at which each core was last read
        self._woke = np.full(count, NEVER)  # index in `_hz` of the sample in which the core woke
        # number of the batch of cores that woke together
        self._batch_numbers = np.full(count, NEVER)
        self._end_ns: list[int] = []  # raw end times of the stored samples
        self._hz: list[Floats] = []
        self._util: list[Floats] = []
        self._read_interval_ns: list[Floats] = []  # ns since the previous reading; 0: not read
        # by group: the batch that started in the last sample
        self._new_batches: dict[int, int] = {}
        self._batch_count = 0
        self._ceiling_hz = np.full(count, np.nan)  # the current ceiling
        self._finished_ramps: dict[int, list[Ramp]] = {}

    def process(self, sample: Sample) -> list[Episode]:
        """Processes one sample. Returns the ramps that have ended, as episodes."""
        time_ns, busy = sample.time_ns, sample.get(util)
        is_gap = self._pauses.is_gap(sample.since_ns, time_ns)
        if is_gap or sample.cores is not self._cores:
            self._reset(sample.cores)
        if is_gap:
            return []
        is_known, awake = np.isfinite(busy), busy >= MIN_AWAKE_SHARE
        wake_ups = self._wake_ups(busy[None], np.array([time_ns]))
        has_woken, was_unread = wake_ups.has_woken[0], wake_ups.was_unread[0]
        since_read_ns = wake_ups.since_read_ns[0]
        self._read_ns, self._awake_ns = wake_ups.read_ns[1], wake_ups.awake_ns[1]
        if not (self._hz or has_woken.any()):
            return []
        cycles, run_s = sample.get(cycles_and_time)
        hz = np.divide(cycles, run_s, out=np.full(len(run_s), np.nan), where=run_s > 0)
        has_woken &= np.isfinite(hz)
        if self._hz:
            # A core that was not read keeps its previous values, because a late report is better
            # than a premature one.
            hz = np.where(np.isnan(hz), self._hz[-1], hz)
            busy = np.where(np.isnan(busy), self._util[-1], busy)
        self._hz.append(hz)
        self._util.append(busy)
        self._read_interval_ns.append(np.where(is_known, since_read_ns, 0.0))
        self._end_ns.append(time_ns)
        # Cores that wake up in the next sample join the batch, because they may have woken late in
        # this one.
        self._woke[has_woken] = len(self._hz) - 1
        new_batches, self._new_batches = self._new_batches, {}
        for group in distinct(self._cores.group[has_woken]):
            batch = new_batches.get(group)
            if batch is None:
                batch = self._new_batches[group] = self._batch_count
                self._batch_count += 1
            self._batch_numbers[has_woken & (self._cores.group == group)] = batch
        is_too_long = time_ns - np.array(self._end_ns)[self._woke] > MAX_CLIMB_NS
        self._forget_cores(is_known & ~awake | was_unread | is_too_long)
        self._ceiling_hz = sample.ceilings.hz
        self._end_settled_climbs(time_ns)
        running_batches = set(self._batch_numbers.tolist())
        finished_batches = [batch for batch in self._finished_ramps if batch not in running_batches]
        is_climbing = self._woke != NEVER
        unneeded = int(self._woke[is_climbing].min()) if is_climbing.any() else len(self._hz)
        for samples in (self._hz, self._util, self._read_interval_ns, self._end_ns):
            del samples[:unneeded]
        self._woke[is_climbing] -= unneeded
        return [self._episode_of_batch(self._finished_ramps.pop(n)) for n in finished_batches]

    def unfinished_climbs(self) -> list[Episode]:
        """Returns a ramp for each core that climbs in the newest sample. A climb is reported as a
        ramp once the clock is steady, but before, it is already the likely cause of a low clock."""
        climbs = []
        for core in np.flatnonzero(self._woke != NEVER).tolist():
            wake_sample = int(self._woke[core])
            start_ns = self._end_ns[wake_sample] - int(self._read_interval_ns[wake_sample][core])
            climbs.append(Episode("ramp", self._cores.lists[core], start_ns, cause="-"))
        return climbs

    def skip_calm_samples(self, batch: SampleBatch, first: int, last: int) -> int:
        if batch.cores is not self._cores:
            self._reset(batch.cores)
        if self._hz:
            return first
        part = slice(first, last)
        wake_ups = self._wake_ups(batch.cached(util)[part], batch.time_ns[part])
        count = first_true(wake_ups.has_woken)
        self._read_ns, self._awake_ns = wake_ups.read_ns[count], wake_ups.awake_ns[count]
        return first + count

    def _wake_ups(self, busy: Floats, time_ns: Ints) -> _WakeUps:
        """Returns the wake-ups. `busy`: utilisation of each core's busiest thread, by sample."""
        times = time_ns[:, None].astype(float)
        read_times = np.broadcast_to(times, busy.shape)
        is_known, awake = np.isfinite(busy), busy >= MIN_AWAKE_SHARE
        (read_ns,) = latest_known_values(is_known, (self._read_ns, read_times))
        since_read_ns = times - read_ns[:-1]
        was_unread = ~is_known & (since_read_ns > self._stale_ns)
        (awake_ns,) = latest_known_values(awake | was_unread, (self._awake_ns, read_times))
        has_woken = awake & (read_ns[:-1] - awake_ns[:-1] >= MIN_SLEEP_NS)
        return _WakeUps(has_woken, was_unread, since_read_ns, read_ns, awake_ns)

    def _forget_cores(self, cores: Bools) -> None:
        self._woke[cores] = self._batch_numbers[cores] = NEVER

    def _end_settled_climbs(self, time_ns: int) -> None:
        begin = bisect_right(self._end_ns, time_ns - MIN_STEADY_NS)
        begin = min(begin, len(self._hz) - MIN_STEADY_SAMPLES)
        old_climbs = np.flatnonzero((self._woke != NEVER) & (self._woke < begin))
        if not len(old_climbs):
            return
        window = np.array(self._hz[begin:])[:, old_climbs]
        low, high = window.min(axis=0), window.max(axis=0)
        cores = old_climbs[high - low <= MAX_STEADY_VARIATION * high]
        if not len(cores):
            return
        for ramp in self._ramps(cores, begin):
            self._finished_ramps.setdefault(int(self._batch_numbers[ramp.core]), []).append(ramp)
        self._forget_cores(np.isin(np.arange(len(self._woke)), cores))

    def _ramps(self, cores: Ints, steady_index: int) -> list[Ramp]:
        """Returns the ramps of cores whose clocks stay steady from the sample `steady_index` on.
        Arrays are (samples, cores)."""
        series = self._hz, self._util, self._read_interval_ns
        hz, busy, since_read_ns = (np.array(samples)[:, cores] for samples in series)
        wake_samples, number = self._woke[cores], np.arange(len(hz))[:, None]
        hz[number < wake_samples] = np.nan
        ends_ns, columns = np.array(self._end_ns), np.arange(len(cores))
        first_hz, steady_hz = hz[wake_samples, columns], median(hz[steady_index:])
        at90, at99 = ((hz >= share * steady_hz).argmax(axis=0) for share in (0.9, 0.99))
        # For each core, the first sample from which its clock stays steady.
        unsteady = np.abs(hz - steady_hz) > MAX_STEADY_VARIATION * steady_hz
        unsteady &= number < steady_index
        steady_from = np.maximum(np.where(unsteady, number, -1).max(axis=0) + 1, at99)
        has_fallen = (hz[1:] < hz[:-1] * (1 - MAX_STEADY_VARIATION)) & (number[1:] <= steady_from)
        lost_hz = np.where(has_fallen, hz[:-1] - hz[1:], 0.0).sum(axis=0)
        is_climbing = (number >= wake_samples) & (number <= steady_from)
        resolution_s = np.where(is_climbing, since_read_ns, 0.0).max(axis=0) / 1e9
        # In the sample in which it wakes up, a core works only at the end.
        work = np.minimum(1.0, busy[wake_samples, columns] / busy[wake_samples + 1, columns])
        start_ns = ends_ns[wake_samples] - work * since_read_ns[wake_samples, columns]
        # A core's sample starts at its previous reading, which may be before the last sample.
        starts = [ends_ns[i] - since_read_ns[i, columns] for i in (at90, at99, steady_from)]
        values: Sequence[Floats | Ints] = (
            cores, start_ns.astype(int), starts[2].astype(int), first_hz, steady_hz,
            *(np.maximum(resolution_s, (start - start_ns) / 1e9) for start in starts),
            resolution_s, has_fallen.sum(axis=0), steady_from - wake_samples,
        )  # fmt: skip
        # The clock must gain enough, gain more than it lost on the way, and get closer to its
        # ceiling.
        gained_hz, room_hz = steady_hz - first_hz, self._ceiling_hz[cores] - first_hz
        has_climbed = np.isnan(room_hz) | (gained_hz >= MIN_CLIMB_SHARE * room_hz)
        has_climbed &= (gained_hz >= MIN_GAIN * steady_hz) & (gained_hz > lost_hz)
        util_sum = np.where(number > wake_samples, busy, 0.0).sum(axis=0)
        has_climbed &= util_sum >= MIN_WORK_SHARE * (len(hz) - 1 - wake_samples)
        rows = zip(*(column[has_climbed].tolist() for column in values), strict=True)
        return [Ramp(*row) for row in rows]

    def _episode_of_batch(self, ramps: list[Ramp]) -> Episode:
        """Returns the episode of a batch: numbers of the median core, and a slow outlier."""
        members = np.zeros(len(self._cores.lists), bool)
        members[[ramp.core for ramp in ramps]] = True

        def median_of(key: str) -> float:
            return float(median(np.array([getattr(ramp, key) for ramp in ramps], float)))

        evidence: dict[str, Any] = {key: round(median_of(key)) for key in ("first_hz", "steady_hz")}
        evidence |= {key: round(median_of(key), 4) for key in ("t90_s", "t99_s", "steady_s")}
        slowest = max(ramps, key=lambda ramp: ramp.steady_s)
        if slowest.steady_s - median_of("steady_s") > slowest.resolution_s:
            evidence["slowest_s"] = round(slowest.steady_s, 4)
            evidence["slowest_cpu"] = self._cores.lists[slowest.core][0]
        resolutions_s = sorted(ramp.resolution_s for ramp in ramps)
        evidence["resolution_s"] = round(resolutions_s[len(ramps) // 2], 4)
        if drops := max(ramp.drops for ramp in ramps):
            evidence["drops"] = drops
        if np.isfinite(self._ceiling_hz[members]).all():
            evidence["ceiling_hz"] = round(float(median(self._ceiling_hz[members])))
        measured = median_of("sample_count") >= MIN_MEASURED_SAMPLES
        span = min(ramp.start_ns for ramp in ramps), max(ramp.end_ns for ramp in ramps)
        gain_hz = float(median(np.array([ramp.steady_hz - ramp.first_hz for ramp in ramps])))
        level, cpus = confidence("ramp", "-", counted=measured), self._cores.cpus(members)
        return Episode("ramp", cpus, *span, gain_hz, "-", evidence, level)


@dataclass(slots=True)
class Ramp:
    core: int
    start_ns: int
    end_ns: int
    first_hz: float
    steady_hz: float
    t90_s: float
    t99_s: float
    steady_s: float
    """Seconds from the wake-up until the clock was steady; `t90_s`, `t99_s`: until it reached 90 %
    and 99 % of its steady value."""
    resolution_s: float
    """Resolution of the times in s, which is also the shortest measurable time."""
    drops: int
    sample_count: int
