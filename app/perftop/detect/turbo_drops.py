"""Detects turbo drops, in which cores run below the clock that turbo allows, and their causes. Also
detects cores at a lower SIMD level (licence) without a drop.

The result depends only on the samples so far. Cores are grouped by package and type, because such a
group shares a ceiling and a power budget. If a whole group drops, that is one episode. Otherwise,
the cores of a group that start to drop in the same sample form one episode.

A cap is a clock limit that a user or program set. Cores that a cap keeps below turbo's ceiling form
a separate group: their clock is compared with this ceiling, and their cause is the policy. Other
clocks are compared with the lower of ceiling and cap.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.detect.engine import (
    Detector,
    DetectorEpisodes,
    RunningEpisodes,
    ShareEpisode,
    ShareEpisodes,
    counter_advances,
    cycles_and_time,
    util,
)
from perftop.detect.losses import blamed_tasks
from perftop.detect.low_clock_causes import (
    LICENSE_COUNTERS,
    MIN_ACTIVE_SHARE,
    USED_COUNTERS,
    CounterTally,
    DropCase,
    DropCounts,
    SimdTasks,
    evidence,
    find_cause,
)
from perftop.model.confidence import BASE_CLOCK, ClockCap, SimdLevel, TaskOnCpu, confidence
from perftop.model.counters import Cores, Counters
from perftop.model.delta import Delta, distinct, first_true, latest_known_values
from perftop.model.kinds import CLOCK_CAPS, Episode
from perftop.model.numbers import INDEX
from perftop.model.sample_reader import Sample, SampleBatch, SampleReader, task_snapshots
from perftop.model.tasks import WatchedJob
from perftop.model.turbo import ClockCaps

DROP_START, DROP_END = 0.05, 0.03
"""Shares of the ceiling by which a clock must be lower to start and to continue a drop. DROP_START
exceeds a step of 100 MHz, by which a clock may vary. It is also the share from which table rows are
marked. The distance to DROP_END avoids many short episodes."""
MIN_DEVIATIONS = 5.0
"""Minimum number of standard deviations by which a noisy clock must be low for a drop to start, in
addition to DROP_START. With a noise of 2 %, one sample in 160 is 5 % low by chance."""
NOISE_SAMPLES, MEAN_SAMPLES = 100.0, 10.0
"""Numbers of samples after which the weight of older samples has decayed to 1/e: for the noise, and
for the mean of a clock. If a clock is noisy, a low mean also starts a drop."""
MAX_NEW_SHARES = 32
"""Maximum number of waiting arrays, or of samples in one array, before noise is learned from them.
"""
CAP_MARGIN = 0.02
"""Maximum distance of a core's mean clock below a cap that limits it, as a share of the cap."""
MIN_WORK_SHARE, MIN_AWAKE_SAMPLES = 0.5, 2
"""Minimum busy share of a core whose clock is compared with its ceiling, and the number of earlier
samples in which it must have been as busy. The clock of a less busy core follows its load.
"""
MIN_AWAKE_NS = 200_000_000
"""Time in ns after a wake-up in which the clock may still climb. Hardware needs tens of ms, the
kernel's governor a few of its periods."""
MIN_ACTIVE = 0.1
"""Minimum busy share of an active core."""
MIN_WHOLE_SHARE = 0.75
"""Minimum share of a group's running time in dropping cores for a drop of the whole group."""
MAX_LOWERED_RATIO = 0.97
"""Share of the highest power limit so far below which a limit counts as lowered on purpose."""


@dataclass(slots=True)
class _DropSample:
    """A sample in which the clock of a core may drop. Arrays are by core."""

    clock_terms: Floats  # (3, cores): run_s, cycles, run_s * allowed clock; 0 where unknown
    key: Ints  # twice the group, plus 1 where a cap limits the clock
    cap_hz: Floats
    cap: Ints  # index in kinds.CLOCK_CAPS
    sums: Floats
    is_scaled: Bools
    """Mask of the cores whose counts were scaled up, because their events were multiplexed."""
    since_ns: int
    time_ns: int

    def is_below(self, share: float | Floats) -> Bools:
        """Returns a mask of the cores whose clock is lower than allowed by at least this share."""
        run_s, cycles, allowed = self.clock_terms
        return np.asarray((run_s > 0) & (allowed - cycles >= share * allowed))


@dataclass(slots=True, eq=False, kw_only=True)
class _Drop(ShareEpisode):
    """A running drop. `sums` are those of `_DropSample.clock_terms`, `group` one of
    `_DropSample.key`."""

    is_whole: bool  # whether cores of the group that wake up later join the drop
    tally_sums: Floats
    """Sums, over all samples with the drop, of the counters that may show the cause."""
    blamed_tasks: dict[str, list[TaskOnCpu]] = field(default_factory=dict)
    """The tasks whose wide SIMD code was found to lower the clock, as evidence."""
    is_scaled: bool = False
    paused_ns: int = 0
    """Total length in ns of the pauses after which the drop continued."""


class _CoreStates(NamedTuple):
    """The state of each core before the first sample and after each, (1 + samples, cores)."""

    awake_samples: Ints
    """Number of consecutive samples in which the core was busy."""
    awake_ns: Ints
    """Total length in ns of the samples in `awake_samples`."""
    ceiling_hz: Floats
    """The last known ceiling; NaN if it was never known."""
    util: Floats
    """Utilisation at the last reading; NaN if there was none."""

    def state_after(self, samples: int) -> _CoreStates:
        return _CoreStates(*(part[samples] for part in self))


def scaled_cores(counters: Counters, delta: Delta, cores: Cores) -> Bools:
    """Returns a mask of the cores whose counts were scaled up in the span."""
    is_scaled = np.broadcast_to(counters.is_estimated(delta, "cycles"), len(cores.core_by_cpu))
    return np.asarray(cores.max_of_threads(is_scaled.astype(float)) > 0)


def _has_ceiling(batch: SampleBatch) -> Bools:
    """Returns a mask of the samples in which the ceiling of any core is known."""
    return np.asarray((~np.isnan(batch.ceilings.low_hz)).any(axis=-1))


def _decayed_mean(old_mean: Floats, values: Floats, samples: float) -> Floats:
    """Returns exponentially weighted means, updated with `values`, (samples, cores). A value's
    weight decays to 1/e after `samples` samples. NaN leaves a mean unchanged."""
    values = np.where(np.isfinite(values), values, old_mean)
    weights = np.exp(np.arange(1 - len(values), 1) / samples) * -np.expm1(-1 / samples)
    return np.asarray(np.exp(-len(values) / samples) * old_mean + weights @ values)


class TurboDrops(Detector):
    """Detects clocks below the turbo ceiling."""

    def __init__(self, reader: SampleReader, episodes: RunningEpisodes, job: WatchedJob) -> None:
        self._reader, self._job = reader, job
        self.is_available = reader.turbo.has_ceilings
        self._tally = CounterTally(reader.counters, USED_COUNTERS)
        self._drops: DetectorEpisodes[_Drop] = DetectorEpisodes(reader, episodes)
        self._highest_limit_w = np.full(len(reader.hello.packages), np.nan)
        """The highest power limit so far, by package; NaN where unknown."""
        self._regroup(reader.cores)

    def _regroup(self, cores: Cores) -> None:
        """Replaces the core list. Assigns running episodes to cores by their CPUs."""
        self._cores, count = cores, len(cores.lists)
        unknown = np.full(count, np.nan)
        self._core_past = _CoreStates(
            np.full(count, MIN_AWAKE_SAMPLES), np.full(count, MIN_AWAKE_NS), unknown, unknown
        )
        self._is_capped = np.zeros(count, bool)
        self._simd_tasks = SimdTasks(self._tally, cores)
        self._variance, self._mean_share = np.zeros(count), np.ones(count)
        """From samples without a drop: the mean of the clock as a share of its ceiling, and the
        variance of this share from one sample to the next."""
        self._last_share = np.full(count, np.nan)
        """The clock as a share of its ceiling in the newest learned sample."""
        self._new_shares: list[Floats] = []
        """The shares in later samples, from which `_learn_noise` will learn."""
        for drop in self._drops.running:
            drop.members = cores.contains_any(drop.episode.cpus)
            if drop.members.any():
                drop.group = 2 * int(cores.group[drop.members][0]) + drop.group % 2

    def skip_calm_samples(self, batch: SampleBatch, first: int, last: int) -> int:
        if batch.cores is not self._cores:
            self._regroup(batch.cores)
        if self._drops.running:
            return first
        if (limits_w := batch.cached(self._power_limits_w)) is not None:
            highest_w = np.fmax.reduce(limits_w[first:last])
            self._highest_limit_w = np.fmax(self._highest_limit_w, highest_w)
        some_ceiling, i = batch.cached(_has_ceiling), first
        while i < last:
            end = first_true(some_ceiling != some_ceiling[i], i, last)
            if some_ceiling[i]:  # samples without any ceiling are left out
                part = slice(i, end)
                cycles, run_s = batch.cached(cycles_and_time)[part].swapaxes(0, 1)
                ceiling_hz, spans_ns = batch.ceilings.low_hz[part], batch.time_ns - batch.since_ns
                past, ceiling, usable, low = self._compare_clocks(
                    batch.cached(util)[part], ceiling_hz, cycles, run_s, spans_ns[part]
                )
                count = first_true(low)
                allowed = run_s[:count] * ceiling[:count]
                self._add_noise_samples(cycles[:count], allowed, usable[:count])
                self._core_past = past.state_after(count)
                self._is_capped &= count == 0
                if i + count < end:
                    return i + count
            i = end
        return last

    def _add_noise_samples(self, cycles: Floats, allowed_cycles: Floats, usable: Bools) -> None:
        """Adds samples, (samples, cores), in which no drop runs."""
        if not len(cycles):
            return
        unknown = np.full(cycles.shape, np.nan)
        self._new_shares.append(np.divide(cycles, allowed_cycles, out=unknown, where=usable))
        if len(self._new_shares) >= MAX_NEW_SHARES or len(cycles) >= MAX_NEW_SHARES:
            self._learn_noise()

    def _learn_noise(self) -> None:
        """Learns the noise and the mean of the clocks from the new shares. A step of the clock, as
        at the start of a drop, counts for no more than DROP_START."""
        if not self._new_shares:
            return
        series = np.concatenate([self._last_share[None], *self._new_shares])
        self._new_shares, steps = [], np.diff(series, axis=0)
        squares = np.minimum(steps**2, DROP_START**2)
        self._variance = _decayed_mean(self._variance, squares / 2, NOISE_SAMPLES)
        self._mean_share = _decayed_mean(self._mean_share, series[1:], MEAN_SAMPLES)
        self._last_share = series[-1]

    def _power_limits_w(self, batch: SampleBatch) -> Floats | None:
        """Returns the power limits in W, (samples, packages); None if the stream has none."""
        return self._reader.counters.rates(batch.delta, "power_limit_w")

    def process(self, sample: Sample) -> list[Episode]:
        if sample.cores is not self._cores:
            self._regroup(sample.cores)
        if not self._drops.running and not sample.get(_has_ceiling):
            return []
        if self._drops.pauses.is_gap(sample.since_ns, sample.time_ns):
            return self._drops.close(self._drops.running)
        cycles, run_s = sample.get(cycles_and_time)
        past, (ceiling,), (usable,), (low,) = self._compare_clocks(
            sample.get(util)[None],
            sample.ceilings.low_hz[None],
            cycles[None],
            run_s[None],
            np.array([sample.time_ns - sample.since_ns]),
        )
        self._core_past = past.state_after(1)
        if not self._drops.running:
            self._add_noise_samples(cycles[None], (run_s * ceiling)[None], usable[None])
            if not low.any():
                self._is_capped[:] = False
                return []
        self._learn_noise()
        drop_sample = self._drop_sample(sample, ceiling, usable)
        ended = self._drops.close(self._extend_drops(drop_sample))
        min_missing_share = np.maximum(DROP_START, MIN_DEVIATIONS * np.sqrt(self._variance))
        is_deep = low & (self._mean_share < 1 - DROP_START)
        is_deep |= drop_sample.is_below(min_missing_share)
        is_deep &= drop_sample.is_below(DROP_START) & ~self._has_drop()
        for key in distinct(drop_sample.key[is_deep]):
            self._begin(key, drop_sample, is_deep)
        dropping = (drop for drop in self._drops.running if not drop.episode.is_calm)
        licensed = [drop for drop in dropping if drop.episode.cause == "license"]
        if licensed:
            self._find_simd_tasks(licensed, sample, drop_sample.sums)
        return ended

    def _clock_caps(self, batch: SampleBatch) -> ClockCaps:
        return self._reader.turbo.clock_caps(batch.delta)

    def _compare_clocks(
        self, busy: Floats, ceiling_hz: Floats, cycles: Floats, run_s: Floats, spans_ns: Ints
    ) -> tuple[_CoreStates, Floats, Bools, Bools]:
        """Returns four results by sample and core: the core's states; the ceiling in Hz with which
        its clock is compared, 0 where unknown; a mask of the comparable clocks; a mask of the
        clocks that are lower by DROP_END. `spans_ns`: lengths of the samples."""
        awake, past = busy >= MIN_WORK_SHARE, self._core_past
        number = np.arange(1, len(busy) + 1)[:, None]
        # 0: the core was busy in all samples
        last_rest = np.maximum.accumulate(np.where(awake, 0, number))
        ends_ns = np.concatenate([[0], np.cumsum(spans_ns)])
        count = np.where(last_rest == 0, past.awake_samples + number, number - last_rest)
        lasted_ns = ends_ns[1:, None] - np.where(last_rest == 0, -past.awake_ns, ends_ns[last_rest])
        past = _CoreStates(
            np.concatenate([past.awake_samples[None], count]),
            np.concatenate([past.awake_ns[None], lasted_ns]),
            *latest_known_values(np.isfinite(ceiling_hz), (past.ceiling_hz, ceiling_hz)),
            *latest_known_values(np.isfinite(busy), (past.util, busy)),
        )
        # Use the lower of this ceiling and the last: it may have changed anywhere in the sample.
        lower = np.fmin(ceiling_hz, past.ceiling_hz[:-1])
        ceiling = np.where(np.isfinite(ceiling_hz), lower, 0.0)
        is_settled = awake & (self._cores.package >= 0)
        is_settled &= past.awake_samples[:-1] >= MIN_AWAKE_SAMPLES
        is_settled &= past.awake_ns[:-1] >= MIN_AWAKE_NS
        usable = is_settled & (run_s > 0) & (ceiling > 0)
        return past, ceiling, usable, usable & (cycles < (1 - DROP_END) * run_s * ceiling)

    def _find_simd_tasks(self, drops: list[_Drop], sample: Sample, tally_sums: Floats) -> None:
        """Adds the tasks whose wide SIMD code lowers the clock to the evidence of these drops."""
        is_low = np.logical_or.reduce([drop.members for drop in drops])
        self._simd_tasks.add_sample(sample, is_low, tally_sums)
        if (tasks := sample.batch.cached(task_snapshots).get(sample.index)) is not None:
            found_tasks = self._simd_tasks.add_record(tasks)
            for drop in drops:
                on_cpus = [(task, cpu) for task, cpu in found_tasks if cpu in drop.episode.cpus]
                drop.blamed_tasks = blamed_tasks(on_cpus, self._job.pids()) or drop.blamed_tasks
                drop.episode.evidence |= drop.blamed_tasks

    def _drop_sample(self, sample: Sample, ceiling: Floats, usable: Bools) -> _DropSample:
        caps, (cycles, run_s) = sample.get(self._clock_caps), sample.get(cycles_and_time)
        # A clock that was at its cap counts as capped until it is farther below.
        max_distance = np.where(self._is_capped, DROP_START, CAP_MARGIN)
        hz = cycles / np.where(run_s > 0, run_s, np.inf)
        self._is_capped = usable & (caps.hz < ceiling) & (hz >= (1 - max_distance) * caps.hz)
        allowed = np.where(self._is_capped, ceiling, np.minimum(ceiling, caps.hz))
        clock_terms = np.array([run_s, cycles, run_s * allowed]) * usable
        key = 2 * self._cores.group + self._is_capped
        sums = self._tally.sums(sample.delta, self._cores)
        is_scaled = scaled_cores(self._reader.counters, sample.delta, self._cores)
        times = sample.since_ns, sample.time_ns
        return _DropSample(clock_terms, key, caps.hz, caps.cap_index, sums, is_scaled, *times)

    def _extend_drops(self, sample: _DropSample) -> list[_Drop]:
        """Adds the sample to the running drops. Returns the drops that ended."""
        ended_drops, low = [], sample.is_below(DROP_END)
        for drop in self._drops.running:
            if drop.is_whole:
                self._join_drop(drop, low & (sample.key == drop.group) & ~self._has_drop())
            members = drop.members & (sample.key == drop.group)
            known_s = sample.clock_terms[0, drop.members].sum()
            run_s, cycles, allowed = clocks = sample.clock_terms[:, members].sum(axis=1)
            changed = run_s < known_s / 2  # newly capped or no longer capped: a new episode
            if changed or allowed - cycles < DROP_END * allowed:
                drop.pause(sample.since_ns)
                drop.episode.is_calm = True
            elif known_s:
                if drop.pause_start_ns is not None:
                    drop.paused_ns += sample.since_ns - drop.pause_start_ns
                drop.episode.is_calm = False
                self._add_cores(drop, members, clocks, sample)
            ended = self._drops.pauses.has_ended(drop, sample.time_ns, is_known=bool(known_s))
            ended_drops += [drop] if changed or ended else []
        return ended_drops

    def _has_drop(self) -> Bools:
        return self._drops.member_mask(len(self._cores.lists))

    def _join_drop(self, drop: _Drop, cores: Bools) -> None:
        if cores.any():
            drop.members |= cores
            drop.episode.cpus = self._cores.cpus(drop.members)

    def _add_cores(self, drop: _Drop, cores: Bools, clocks: Floats, sample: _DropSample) -> None:
        drop.add_sample(clocks, sample.time_ns)
        drop.tally_sums = drop.tally_sums + sample.sums[cores].mean(axis=0)
        run_s, cycles, allowed = drop.sums.tolist()
        first = int(np.flatnonzero(cores)[0])
        cap = None
        if drop.group % 2:
            cap = ClockCap([*CLOCK_CAPS][sample.cap[first]], float(sample.cap_hz[first]))
        is_guest = self._reader.hello.virtualisation is not None
        drop.is_scaled |= bool((sample.is_scaled & cores).any())
        governor = self._reader.hello.settings.get("governor", "")
        counts = DropCounts(self._tally, drop.tally_sums)
        case = DropCase(counts, cap, is_guest, governor, drop.is_scaled)
        episode = drop.episode
        episode.depth = (allowed - cycles) / run_s
        episode.cause, episode.confidence = find_cause(case)
        episode.evidence = evidence(case, episode.cause) | {
            "busy_hz": round(cycles / run_s),
            "ceiling_hz": round(allowed / run_s),
        }
        if episode.cause == "license":
            episode.evidence |= drop.blamed_tasks
        limit_w, before_w = episode.evidence.get("power_limit_w", 0.0), self._highest_limit_w
        highest_w = float(before_w[self._cores.package[first]])
        if episode.cause == "power-pl1" and 0 < limit_w < MAX_LOWERED_RATIO * highest_w:
            episode.evidence["power_limit_before_w"] = round(highest_w, 1)
        # Number of active cores of the package at their last reading; omitted if a core was never
        # read.
        is_online = self._cores.sum_of_threads(self._reader.online.astype(float)) > 0
        work = self._core_past.util[is_online & (self._cores.package == self._cores.package[first])]
        if np.isfinite(work).all():
            episode.evidence["active_cores"] = int((work >= MIN_ACTIVE).sum())
        if drop.paused_ns:
            dropping_share = 1 - drop.paused_ns / (sample.time_ns - episode.start_ns)
            episode.evidence["dropping_share"] = round(dropping_share, 3)
        if not self._reader.turbo.cpus[self._cores.rows[first, 0]]:
            episode.evidence["ceiling"] = BASE_CLOCK

    def _begin(self, key: int, sample: _DropSample, is_deep: Bools) -> None:
        group, low = sample.key == key, sample.is_below(DROP_END)
        run_s, cycles, allowed = sample.clock_terms[:, group].sum(axis=1)
        dropping_s = sample.clock_terms[0, group & low].sum()
        is_low = allowed - cycles >= DROP_START * allowed
        is_whole = bool(is_low and dropping_s >= MIN_WHOLE_SHARE * run_s)
        started = self._drops.find_new_episode(key)
        if is_whole and started is not None:
            started.is_whole = True
            self._join_drop(started, group & low & ~self._has_drop())
            return
        episode, tally_sums = (
            Episode("turbo-drop", [], sample.since_ns),
            np.zeros(self._tally.width),
        )
        drop = _Drop(
            group=key,
            members=group & False,
            episode=episode,
            is_whole=is_whole,
            tally_sums=tally_sums,
        )
        self._join_drop(drop, group & (low if is_whole else is_deep) & ~self._has_drop())
        self._add_cores(drop, drop.members, sample.clock_terms[:, drop.members].sum(axis=1), sample)
        self._drops.begin(drop)


# --- Detects cores that wide SIMD code keeps at a SIMD level although their clock does not drop.

LICENSE_START, LICENSE_END = MIN_ACTIVE_SHARE, MIN_ACTIVE_SHARE / 2
"""Shares of a core's cycles at SIMD levels at which an episode starts and below which it ends. From
LICENSE_START on, a level can be the cause of a drop."""
MIN_MISSING = 0.01
"""Minimum distance of a clock from its ceiling that is reported, as a share of the ceiling. A step
of the clock is two to three times as large."""
RUN_S, CYCLES, ALLOWED, SCALED_SAMPLES, FIRST_LEVEL = 2, 3, 4, 5, 6
"""Indexes in the sums of an episode: running time, cycles, running time times ceiling, number of
samples with scaled-up counts, and the cycles at the first level."""


class Licenses(Detector):
    """Detects SIMD levels of cores whose clock does not drop."""

    def __init__(self, reader: SampleReader, episodes: RunningEpisodes) -> None:
        self._counters, self._episodes = reader.counters, episodes
        self._levels = [key for key in LICENSE_COUNTERS if key in reader.counters.columns]
        self.is_available = bool(self._levels)
        self.triggers = [counter_advances(reader.counters.columns[key]) for key in self._levels]
        self._licenses = ShareEpisodes(reader, episodes, "license", LICENSE_START, LICENSE_END)

    def process(self, sample: Sample) -> list[Episode]:
        cores = sample.cores
        levels = sample.get(self._level_cycles)
        cycles, run_s = sample.get(cycles_and_time)
        core_hz = cores.max_of_threads(sample.values.numerators[INDEX["busy_hz"]])
        with np.errstate(divide="ignore", invalid="ignore"):
            levels = np.minimum(levels / core_hz, 1.0)
        share = np.minimum(levels.sum(axis=0), 1.0)
        # Cores in a drop are left out, because the drop's evidence includes their level.
        drops = [
            drop for drop in self._episodes.active_episodes("turbo-drop") if drop.cause == "license"
        ]
        share[cores.contains_any([cpu for drop in drops for cpu in drop.cpus])] = 0.0
        is_scaled = scaled_cores(self._counters, sample.delta, cores).astype(float)
        ceilings = run_s * sample.ceilings.hz
        further_sums = [run_s, cycles, ceilings, is_scaled, *np.nan_to_num(levels * cycles)]
        times = sample.since_ns, sample.time_ns
        ended = self._licenses.step(share, cycles, cores.group, cores.lists, *times, further_sums)
        for running in self._licenses.running:
            sums, episode = running.sums, running.episode
            run_s, cycles_sum, allowed = sums[[RUN_S, CYCLES, ALLOWED]].tolist()
            main_level = int(sums[FIRST_LEVEL:].argmax())
            level_share = float(sums[FIRST_LEVEL + main_level] / cycles_sum)
            level = SimdLevel(int(self._levels[main_level][-1]), level_share)
            episode.cause, episode.evidence = "level", {"simd": level}
            is_counted = not sums[SCALED_SAMPLES]
            episode.confidence = confidence("license", "level", counted=is_counted)
            episode.evidence["busy_hz"] = round(cycles_sum / run_s)
            episode.depth = None  # unless a ceiling is known: the distance of the clock from it
            if allowed > 0:
                deficit = allowed - cycles_sum
                is_below = deficit >= MIN_MISSING * allowed
                episode.depth = deficit / run_s if is_below else 0.0
                episode.evidence["ceiling_hz"] = round(allowed / run_s)
        self.is_calm = self._licenses.is_quiet
        return ended

    def _level_cycles(self, batch: SampleBatch) -> Floats:
        """Returns the cycles of each core at each level, (samples, levels, cores). Each thread
        counts those of the whole core (see `low_clock_causes.LEVEL_PREFIX`)."""
        increments = [self._counters.increments(batch.delta, key) for key in self._levels]
        known_counts = (counts for counts in increments if counts is not None)
        by_core = [batch.cores.max_of_threads(counts) for counts in known_counts]
        return np.nan_to_num(np.stack(by_core, axis=1))
