"""Detects throttling: cores that report heat, or are asked to halt, although their clock is not
below what turbo allows."""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Bools, any_by_sample, first_true
from perftop.detect.engine import (
    PAUSE_NS,
    DetectorInput,
    RunningEpisodes,
    ShareEpisode,
    ShareEpisodes,
)
from perftop.detect.low_clock_causes import MIN_ACTIVE_SHARE
from perftop.detect.standstill import HEAT_BITS, Modulation, Standstill, Thermal
from perftop.model.belief import confidence
from perftop.model.counters import Cores
from perftop.model.kinds import KERNEL, Episode
from perftop.model.sample_reader import SampleBatch, SampleReader

CAUSES = (*HEAT_BITS, "modulation")
START, END = MIN_ACTIVE_SHARE, MIN_ACTIVE_SHARE / 2
"""Shares of polls or time, at which an episode starts and below which it ends. From START on, a
status counts as the cause of a drop."""
MIN_SAMPLES = 2
"""Number of samples that must show the status. A single sample may be the edge of a drop with the
same cause."""
LOST_S, KNOWN_S, ASKED, STATUS = 2, 3, 4, 5
"""Indices in the sums of an episode: seconds lost, their time base, the share that modulation asked
for, and the share of each cause."""
KERNEL_COUNTERS = "package_throttled_s", "core_throttled_s"
"""Counters of throttled time that the kernel accumulates. The order matters: time that was reported
for a package is not reported again for its cores."""


class Throttles:
    """Detects throttling by polled status bits, or else by the throttled time that the kernel
    accumulates."""

    def __init__(self, reader: SampleReader, episodes: RunningEpisodes) -> None:
        self._episodes = episodes
        self._thermal, self._modulation = Thermal(reader), Modulation(reader)
        self._booked = KernelThrottling(reader, episodes)
        polled = self._thermal.is_available or self._modulation.is_available
        self.is_available = polled or self._booked.is_available
        self._by_kernel = self._booked.is_available and not self._thermal.is_available
        self._standstill = Standstill(reader)
        self._throttles = ShareEpisodes(
            episodes, "throttle", START, END, reader.hello.sample_ns, after=MIN_SAMPLES,
            pause_ns=PAUSE_NS,
        )  # fmt: skip

    def skip_calm_samples(self, batch: SampleBatch, first: int, last: int) -> int:
        if not self._throttles.is_quiet or (self._by_kernel and self._booked.follows_drops):
            return first
        return first_true(batch.cached(self._signs), first, last)

    def _signs(self, batch: SampleBatch) -> Bools:
        signs = batch.cached(self._thermal.shown_by_sample) | batch.cached(
            self._modulation.shown_by_sample
        )
        return signs | self._booked.shown_by_sample(batch) if self._by_kernel else signs

    def sample(self, data: DetectorInput) -> list[Episode]:
        """Returns the episodes that this sample ended."""
        ended = self._booked.sample(data) if self._by_kernel else []
        polled = data.sample.part(self._thermal.shown_by_sample) or data.sample.part(
            self._modulation.shown_by_sample
        )
        if self._throttles.is_quiet and not polled:
            return ended
        cores = data.cores
        asked = cores.max_of_threads(self._modulation.shares(data))
        status = np.array([*self._thermal.shares(data), np.where(asked > 0, 1.0, asked * 0)])
        share = np.fmax.reduce(status, axis=0)
        share[self._is_dropping(cores)] = 0.0
        lost, span_s, _ = self._standstill.shares(data)
        more = [
            cores.total(lost * span_s),
            cores.total(span_s),
            np.nan_to_num(asked),
            *np.nan_to_num(status),
        ]
        times, weight = (data.since_ns, data.time_ns), np.ones(len(cores.lists))
        ended += self._throttles.step(share, weight, cores.package, cores.lists, *times, more)
        for throttle in self._throttles.running:
            _describe(throttle)
        return ended

    def _is_dropping(self, cores: Cores) -> Bools:
        """Returns a mask of the cores in a drop. If its cause is heat, the mask includes all cores
        of the package, because they share the status, and cores that hardly work have no clock to
        lose."""
        dropping = np.zeros(len(cores.lists), bool)
        for episode in self._episodes.of_kind("turbo-drop"):
            members = cores.with_cpus(episode.cpus)
            dropping |= members
            if episode.cause in HEAT_BITS:
                dropping |= np.isin(cores.package, cores.package[members])
        return dropping


def _describe(throttle: ShareEpisode) -> None:
    """Sets cause, evidence and depth. The depth is the lost share, not how often the status was
    set."""
    sums, episode = throttle.sums, throttle.episode
    shares = dict(zip(CAUSES, (sums[STATUS:] / sums[1]).tolist(), strict=True))
    episode.cause = max(shares, key=lambda cause: shares[cause])
    episode.confidence = confidence("throttle", episode.cause)
    episode.evidence = {
        f"{cause}_status_share": round(share, 3) for cause, share in shares.items() if share > 0
    }
    asked = float(sums[ASKED] / sums[1])
    if asked > 0:
        episode.evidence["duty_by_register_19AH_share"] = round(1 - asked, 4)
    if sums[KNOWN_S] > 0:
        episode.depth = max(0.0, float(sums[LOST_S] / sums[KNOWN_S]))
    else:  # standstill is not measured; only the register that asks for it was read
        episode.depth = asked if asked > 0 else None


class KernelThrottling:
    """Detects throttling in streams without polled status bits. There only the kernel counts
    throttling, as time, and adds all of it to a counter when the throttling is over. So these
    episodes have already ended."""

    def __init__(self, reader: SampleReader, episodes: RunningEpisodes) -> None:
        self._episodes = episodes
        columns = (reader.counters.columns.get(key) for key in KERNEL_COUNTERS)
        self._columns = [column for column in columns if column is not None]
        self.is_available = bool(self._columns)
        """Whether the kernel of this stream counts such time."""
        self._cpus = {"package": reader.hello.packages, "core": reader.hello.cores}
        self._dropped_ns: dict[int, int] = {}
        """By CPU, the raw time at which it was last in a drop, which covers throttling at that
        time."""

    @property
    def follows_drops(self) -> bool:
        """Whether a drop runs, whose time must be recorded in each sample that shows it."""
        return any(episode.kind == "turbo-drop" for episode in self._episodes.running)

    def shown_by_sample(self, batch: SampleBatch) -> Bools:
        """Returns, by sample, whether the kernel reported throttling."""
        booked = [batch.delta.tables[c.block].increments[..., c.first] > 0 for c in self._columns]
        return np.asarray(np.logical_or.reduce([any_by_sample(column) for column in booked]))

    def sample(self, data: DetectorInput) -> list[Episode]:
        """Returns the episodes that the kernel reported in this sample."""
        time_ns, dropped_ns = data.time_ns, self._dropped_ns
        for drop in self._episodes.of_kind("turbo-drop"):
            dropped_ns.update(dict.fromkeys(drop.cpus, time_ns))
        ended: list[Episode] = []
        for column in self._columns:
            booked_s = data.sample.delta.tables[column.block].increments[:, column.first]
            groups = self._cpus[column.scope]
            for row in np.flatnonzero(booked_s > 0).tolist():
                seconds = float(booked_s[row])
                start_ns = time_ns - round(seconds * 1e9)
                covered = {cpu for episode in ended for cpu in episode.cpus}
                cpus = [
                    cpu for cpu in groups[row]
                    if cpu not in covered and dropped_ns.get(cpu, start_ns - 1) < start_ns
                ]  # fmt: skip
                evidence = {"throttled_s": round(seconds, 3), "told_by": KERNEL}
                if cpus:
                    ended.append(
                        Episode(
                            "throttle", cpus, start_ns, time_ns, None, "thermal", evidence,
                            confidence("throttle", "thermal"),
                        )
                    )  # fmt: skip
        return ended
