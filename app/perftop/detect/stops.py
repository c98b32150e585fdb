"""Detects stops of CPUs that a status or a counter shows by itself: throttling (cores that report
heat, or are asked to halt, although their clock is not below what turbo allows), time that the
hypervisor took, and system management interrupts.
"""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Bools, Floats
from perftop.detect.engine import (
    PAUSE_NS,
    Detector,
    DetectorInput,
    RunningEpisodes,
    ShareEpisode,
    ShareEpisodes,
    advances,
    has_steal,
    max_gap_ns,
)
from perftop.detect.low_clock_causes import MIN_ACTIVE_SHARE
from perftop.detect.standstill import HEAT_BITS, Modulation, Standstill, Thermal
from perftop.model.belief import KERNEL, confidence
from perftop.model.counters import Cores
from perftop.model.evaluation import TICK_S
from perftop.model.kinds import Episode
from perftop.model.numbers import INDEX
from perftop.model.sample_reader import SampleReader

CAUSES = (*HEAT_BITS, "modulation")
START, END = MIN_ACTIVE_SHARE, MIN_ACTIVE_SHARE / 2
"""Shares of polls or time, at which an episode starts and below which it ends. From START on, a
status counts as the cause of a drop."""
MIN_SAMPLES = 2
"""Number of samples that must show the status. A single sample may be the start or end of a drop
with the same cause."""
LOST_S, KNOWN_S, MODULATION, STATUS = 2, 3, 4, 5
"""Indices in the sums of an episode: seconds lost, their time base, the share that modulation asked
for, and the share of each cause."""
KERNEL_COUNTERS = "package_throttled_s", "core_throttled_s"
"""Counters of throttled time that the kernel accumulates. The order matters: time that was reported
for a package is not reported again for its cores."""


class Throttles(Detector):
    """Detects throttling by polled status bits, or else by the throttled time that the kernel
    accumulates."""

    def __init__(self, reader: SampleReader, episodes: RunningEpisodes) -> None:
        self._episodes = episodes
        self._thermal, self._modulation = Thermal(reader), Modulation(reader)
        self._kernel_throttling = KernelThrottling(reader, episodes)
        polled = self._thermal.is_available or self._modulation.is_available
        self.is_available = polled or self._kernel_throttling.is_available
        self._by_kernel = self._kernel_throttling.is_available and not self._thermal.is_available
        self.follows_drops = self._by_kernel
        self._polled_signs = [*self._thermal.signs, *self._modulation.signs]
        kernel_signs = self._kernel_throttling.signs if self._by_kernel else []
        self.signs = [*self._polled_signs, *kernel_signs]
        self._standstill = Standstill(reader)
        self._throttles = ShareEpisodes(
            episodes, "throttle", START, END, reader.hello.sample_ns, min_samples=MIN_SAMPLES,
            pause_ns=PAUSE_NS,
        )  # fmt: skip

    def sample(self, data: DetectorInput) -> list[Episode]:
        ended = self._kernel_throttling.sample(data) if self._by_kernel else []
        if self.is_calm and not any(data.sample.part(sign) for sign in self._polled_signs):
            return ended
        cores = data.cores
        halt_share = cores.max_of_threads(self._modulation.shares(data))
        status = np.array(
            [*self._thermal.shares(data), np.where(halt_share > 0, 1.0, halt_share * 0)]
        )
        share = np.fmax.reduce(status, axis=0)
        share[self._is_dropping(cores)] = 0.0
        lost, span_s, _ = self._standstill.shares(data)
        more = [cores.total(lost * span_s), cores.total(span_s)]
        more += [*np.nan_to_num([halt_share, *status])]
        times, weight = (data.since_ns, data.time_ns), np.ones(len(cores.lists))
        ended += self._throttles.step(share, weight, cores.package, cores.lists, *times, more)
        for throttle in self._throttles.running:
            _describe(throttle)
        self.is_calm = self._throttles.is_quiet
        return ended

    def _is_dropping(self, cores: Cores) -> Bools:
        """Returns a mask of the cores in a drop. If its cause is heat, the mask includes all cores
        of the package, because they share the status, and cores that hardly work cannot drop."""
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
    halt_share = float(sums[MODULATION] / sums[1])
    if halt_share > 0:
        episode.evidence["duty_by_register_19AH_share"] = round(1 - halt_share, 4)
    if sums[KNOWN_S] > 0:
        episode.depth = max(0.0, float(sums[LOST_S] / sums[KNOWN_S]))
    else:  # standstill was not measured: only the register that requests modulation was read
        episode.depth = halt_share if halt_share > 0 else None


class KernelThrottling:
    """Detects throttling in streams without polled status bits. There, only the kernel counts
    throttling, as time, and adds all of it to a counter when the throttling is over. So these
    episodes have already ended."""

    def __init__(self, reader: SampleReader, episodes: RunningEpisodes) -> None:
        self._episodes = episodes
        columns = (reader.counters.columns.get(key) for key in KERNEL_COUNTERS)
        self._columns = [column for column in columns if column is not None]
        self.is_available = bool(self._columns)
        """Whether the kernel of this stream counts such time."""
        self.signs = [advances(column) for column in self._columns]
        self._cpus = {"package": reader.hello.packages, "core": reader.hello.cores}
        self._dropped_ns: dict[int, int] = {}
        """By CPU, the raw time at which it was last in a drop, which covers throttling at that
        time."""

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
                if cpus:
                    evidence = {"throttled_s": round(seconds, 3), "told_by": KERNEL}
                    belief = confidence("throttle", "thermal")
                    span = start_ns, time_ns
                    episode = Episode("throttle", cpus, *span, None, "thermal", evidence, belief)
                    ended.append(episode)
        return ended


# --- Time that the hypervisor took. The guest's kernel accounts for it in ticks of 10 ms.

STEAL_START, STEAL_END = 0.04, 0.02
"""Shares of the time, at which an episode starts and below which it ends. Neighbours on a well-run
host occasionally take up to a tick in 250 ms."""
MIN_TICKS = 3
"""Minimum number of ticks in close succession. A single tick may have accumulated over any time,
and two may be close by chance."""
USUAL_S = 60.0
"""Time in s after which the weight of earlier ticks in the usual share is divided by e."""
MIN_DEVIATIONS = 4.0
"""Minimum number of standard deviations by which ticks must exceed their usual number. Some hosts
take a few per cent of the time throughout, in ticks that may be close to each other by chance."""
MIN_USUAL_SHARE = 0.005
"""Minimum usual share that is reported as evidence."""
STEAL_QUIET_NS = round(TICK_S / STEAL_END * 1e9)
"""Time in ns without a tick after which the share is below STEAL_END."""


class Steals(Detector):
    """Detects steal by its ticks."""

    signs = (has_steal,)

    def __init__(self, reader: SampleReader, episodes: RunningEpisodes) -> None:
        rows = reader.hello.topology
        self.is_available = bool(reader.evaluator.chosen["steal"])
        self._names = reader.single_cpus
        self._host = np.zeros(len(rows), int)
        self._steals = ShareEpisodes(
            episodes, "steal", STEAL_START, STEAL_END, reader.hello.sample_ns
        )
        self._tick_counts = np.zeros(len(rows))
        """By position: number of consecutive ticks, each so soon after the previous tick that it
        makes a high share by itself."""
        self._start_ns = np.zeros(len(rows), int)
        """By position: raw start of the sample with the first of the ticks in `_tick_counts`."""
        self._last_ns = np.full(len(rows), -STEAL_QUIET_NS - 1)
        self._usual_share, self._usual_ns = np.zeros(len(rows)), 0
        """The usual stolen share, by position, as if the hypervisor had taken nothing before the
        stream; and the raw time up to which that share is computed."""

    def sample(self, data: DetectorInput) -> list[Episode]:
        stolen_s = data.sample.values.top[INDEX["steal"]]
        ended = self.step(stolen_s, data.since_ns, data.time_ns)
        self.is_calm = not self._steals.running
        return ended

    def step(self, stolen_s: Floats, since_ns: int, time_ns: int) -> list[Episode]:
        """Advances by one sample, from the stolen seconds by position of the CPU. Returns the
        episodes that the sample ended."""
        if not self._steals.running and not (stolen_s > 0).any():
            return []
        has_tick = stolen_s >= TICK_S / 2
        soon = since_ns - self._last_ns <= STEAL_QUIET_NS
        # A tick covers all the time since the previous tick.
        elapsed_s = (time_ns - np.where(soon, self._last_ns, since_ns)) / 1e9
        share = np.where(has_tick, stolen_s / elapsed_s, np.nan)
        share[~has_tick & np.isfinite(stolen_s) & (time_ns - self._last_ns > STEAL_QUIET_NS)] = 0.0
        is_running = self._steals.member_mask(len(stolen_s))
        near = (since_ns == self._last_ns) | (elapsed_s * STEAL_START <= TICK_S)
        continues = has_tick & soon & (is_running | (near & (share >= STEAL_START)))
        before = np.where(continues, self._tick_counts, 0.0)
        self._start_ns = np.where(has_tick & (before == 0), since_ns, self._start_ns)
        self._tick_counts = np.where(has_tick, before + stolen_s / TICK_S, self._tick_counts)
        self._last_ns = np.where(has_tick, time_ns, self._last_ns)
        usual_ticks = self._usual_share * (time_ns - self._start_ns) / 1e9 / TICK_S
        needed = usual_ticks + MIN_DEVIATIONS * np.sqrt(usual_ticks) + MIN_TICKS - 0.5
        share[has_tick & (self._tick_counts < needed) & ~is_running] = np.nan
        usual_before, elapsed = self._usual_share, (time_ns - self._usual_ns) / 1e9 / USUAL_S
        self._usual_share = usual_before * np.exp(-elapsed) + np.nan_to_num(stolen_s) / USUAL_S
        self._usual_ns = time_ns

        running = {id(steal.episode): steal for steal in self._steals.running}
        ended = self._steals.step(share, elapsed_s, self._host, self._names, since_ns, time_ns)
        for episode in ended:  # an episode ends with its last tick
            episode.end_ns = running[id(episode)].last_ns
        for steal in self._steals.running:
            if id(steal.episode) not in running:
                steal.episode.cause = "hypervisor"
                steal.episode.confidence = confidence("steal", "hypervisor")
                steal.episode.start_ns = int(self._start_ns[steal.members].min())
                if (usual := float(usual_before[steal.members].mean())) >= MIN_USUAL_SHARE:
                    steal.episode.evidence = {"usual_share": round(usual, 3)}
            ticks = float(self._tick_counts[steal.members].sum())
            steal.episode.evidence |= {"ticks": round(ticks), "tick_s": TICK_S}
        return ended


# --- System management interrupts: firmware stops all CPUs at once, and only a counter
# shows it.

SMI_QUIET_NS = 1_000_000_000
"""Time in ns without an SMI that ends an episode. Firmware that polls hardware does so at least
this often; one line for each SMI would hide the other episodes."""
MAX_SPAN_RATIO = 1.5
"""Multiple of the sample's length. A row with a longer span was not read for a while, so it counts
SMIs that other rows have already counted."""


class Smis(Detector):
    """Detects SMIs by the SMI counter of each CPU."""

    def __init__(self, reader: SampleReader, episodes: RunningEpisodes) -> None:
        self._counters, self._episodes = reader.counters, episodes
        self._cpus = np.array([row.cpu for row in reader.hello.topology])
        self._column = reader.counters.columns.get("smi")
        self.is_available = self._column is not None
        self.signs = [] if self._column is None else [advances(self._column)]
        self._gap_ns = max_gap_ns(reader.hello.sample_ns)
        self._episode: Episode | None = None
        self._counts = np.zeros(len(self._cpus))
        self._last_ns = 0

    def sample(self, data: DetectorInput) -> list[Episode]:
        assert self._column is not None
        table = data.sample.delta.tables[self._column.block]
        smi_counts = table.increments[:, self._column.first]
        span_ns = table.ticks / self._counters.stamp_hz * 1e9
        ended = self.step(smi_counts, span_ns, data.since_ns, data.time_ns)
        self.is_calm = self._episode is None
        return ended

    def step(
        self, smi_counts: Floats, span_ns: Floats, since_ns: int, time_ns: int
    ) -> list[Episode]:
        """Advances by one sample, from the number of SMIs that each CPU counted and the CPU's span
        in ns. Returns the episodes that the sample ended."""
        counted = smi_counts > 0
        if self._episode is None and not counted.any():
            return []
        whole = 0 < time_ns - since_ns <= self._gap_ns
        ended = [] if whole else self._end()
        if whole and counted.any():
            stretched = span_ns > MAX_SPAN_RATIO * (time_ns - since_ns)
            begin_ns = np.where(stretched, time_ns - span_ns, since_ns)
            is_new = counted & (begin_ns >= self._last_ns)
            if is_new.any():
                self._last_ns = time_ns
                if self._episode is None:
                    self._counts[:] = 0
                    start_ns = int(begin_ns[is_new].min())
                    self._episode = self._episodes.begin("smi", "firmware", start_ns)
            # without an episode, these are late counts of an earlier one
            if self._episode is not None:
                self._counts += np.where(counted, smi_counts, 0.0)
                self._episode.cpus = self._cpus[self._counts > 0].tolist()
                self._episode.depth = highest_count = float(self._counts.max())
                elapsed_s = (time_ns - self._episode.start_ns) / 1e9
                self._episode.evidence = {"SMIs_per_s": round(highest_count / elapsed_s, 1)}
        if time_ns - self._last_ns >= SMI_QUIET_NS:
            ended += self._end()
        return ended

    def _end(self) -> list[Episode]:
        if self._episode is None:
            return []
        episode, self._episode = self._episode, None
        return [self._episodes.end(episode, self._last_ns)]
