"""Detects involuntary halts and throttling. The measure is standstill: the share of the time in
which a CPU had work but stood still, with its error. Further evidence is the time for which CPUs
reported heat, and the clock modulation that the OS or firmware has set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.detect.engine import (
    Detector,
    RunningEpisodes,
    ShareEpisode,
    ShareEpisodes,
    Trigger,
    counter_advances,
    halts_involuntarily,
    has_steal,
)
from perftop.detect.low_clock_causes import MIN_ACTIVE_SHARE
from perftop.model.confidence import KERNEL, confidence
from perftop.model.counters import BlockCounter, packages, with_extra_column
from perftop.model.evaluation import TICK_S
from perftop.model.kinds import Episode
from perftop.model.numbers import INDEX
from perftop.model.sample_reader import Sample, SampleBatch, SampleReader

MAX_RELIABLE_IDLE = 0.05
"""Maximum idle share at which the error of idle time is too small to hide or fake a loss."""
MAX_READ_S = 20e-6
"""Maximum time in s between the reads of two counters of a row; longer reads are discarded."""
IDLE_PERIOD_ERROR_S, IDLE_ERROR = 2e-6, 0.1
"""Error of idle time. In s for each idle period, because cpuidle rounds both ends to a microsecond.
As a share of idle time where periods are not counted, because hardly any is shorter than 20 us.
Entering and leaving an idle state also counts as idle time, so the computed loss is too small.
"""
UNCOUNTED_STEAL_SPAN_NS = 60_000_000_000
"""Time in ns after a stolen tick in which part of another tick may be stolen but uncounted."""
HEAT_BITS = {
    "thermal": {"thermal", "critical temperature", "running average thermal limit"},
    "prochot": {"PROCHOT"},
}
"""Names of status bits, by the cause that they show."""
STATUS_COUNTERS = "limit_reasons", "package_thermal", "core_thermal"
MODULATION_BIT = 1 << 4
"""Bit of register 19AH: the OS or firmware asks the core to halt part of the time. Bits 3:0 are the
duty cycle in sixteenths. CPUs without CPUID.06H:EAX bit 5 only support eighths: bit 0 is 0."""


class Standstill:
    """Computes the share of the time for which each CPU stood still although it had work."""

    def __init__(self, reader: SampleReader) -> None:
        self._exact: Bools = np.zeros(len(reader.hello.topology), bool)
        for variant, mask in reader.evaluator.variants["involuntary"]:
            if "busy_s" in variant.needs:
                self._exact |= mask
        self._entries = reader.counters.columns.get("idle_entries")

    def shares(self, batch: SampleBatch) -> Floats:
        """Returns three values of each CPU in each sample, (samples, 3, CPUs). Share of standstill:
        NaN where undefined, below 0 where an error outweighs the loss. Length in s of the time to
        which the share refers. Error of the loss in s due to idle time."""
        values = batch.values
        idle = values["idle"]
        sums, index = (values.numerators, values.denominators), INDEX["involuntary"]
        lost_s, span_s = (part[:, index] for part in sums)
        idle_s = idle * span_s
        means = self._exact | (idle < MAX_RELIABLE_IDLE)
        if self._entries is None:
            error_s = IDLE_ERROR * idle_s
        else:
            means |= np.isfinite(idle)
            increments = batch.delta.tables[self._entries.block].increments
            error_s = IDLE_PERIOD_ERROR_S * increments[..., self._entries.index]
        unknown = self._exact | ~np.isfinite(error_s)
        idle_error_s = np.where(unknown, 0.0, np.minimum(error_s, idle_s))
        is_known = means & (span_s > 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(is_known, lost_s / span_s, np.nan)
        return np.stack([share, np.where(is_known, span_s, 0.0), idle_error_s], axis=1)


@dataclass(slots=True)
class _StatusBits:
    """The bits of one counter that show one cause."""

    column: BlockCounter
    cause: int
    """Index of the cause in HEAT_BITS."""
    columns: Ints
    is_per_core: bool


class ThermalStatus:
    """The time for which cores and their packages reported heat, from polled status bits."""

    def __init__(self, reader: SampleReader) -> None:
        columns = reader.counters.columns
        self._status = [
            _StatusBits(column, cause, column.index + 1 + np.array(bits), column.scope == "core")
            for key in STATUS_COUNTERS
            if (column := columns.get(key)) is not None
            for cause, names in enumerate(HEAT_BITS.values())
            if (bits := [i for i, name in enumerate(column.counter.parts) if name in names])
        ]
        self.is_available = bool(self._status)
        self.triggers = [counter_advances(status.column, status.columns) for status in self._status]
        """Triggers for polls that found one of these bits set."""

    def shares(self, batch: SampleBatch) -> Floats:
        """Returns the share of the polls in each sample that found each cause, (samples, HEAT_BITS,
        cores); NaN if there were no polls."""
        cores = batch.cores
        result = np.full((len(batch), len(HEAT_BITS), len(cores.lists)), np.nan)
        for status in self._status:
            increments = batch.delta.tables[status.column.block].increments
            polls = increments[..., status.column.index]
            polls = np.where(polls > 0, polls, np.nan)
            highest_share = increments[..., status.columns].max(axis=-1) / polls
            rows = cores.block_row if status.is_per_core else cores.package
            share = with_extra_column(highest_share, np.nan)[:, rows]  # NaN for row -1
            result[:, status.cause] = np.fmax(result[:, status.cause], share)
        return result


class ClockModulation:
    """The clock modulation of each CPU, as requested by register 19AH."""

    def __init__(self, reader: SampleReader) -> None:
        self._column = reader.counters.columns.get("modulation")
        columns = [] if self._column is None else [self._column]
        self.triggers: list[Trigger] = [counter_advances(column) for column in columns]
        """A trigger for a register that is not 0."""
        self._rows = len(reader.hello.topology)

    def shares(self, batch: SampleBatch) -> Floats:
        """Returns the share of each sample that each CPU is requested to halt, (samples, CPUs)."""
        if self._column is None:
            return np.full((len(batch), self._rows), np.nan)
        table = batch.delta.tables[self._column.block]
        with np.errstate(divide="ignore", invalid="ignore"):
            level = np.rint(table.increments[..., self._column.index] / table.ticks)
        is_known = np.isfinite(level)
        bits = np.where(is_known, level, 0).astype(int)
        duty = (bits & 15) / 16
        # A duty cycle of 0 is reserved and undocumented.
        halt_share = np.where((bits & MODULATION_BIT != 0) & (duty > 0), 1 - duty, 0.0)
        return np.where(is_known, halt_share, np.nan)


# --- Detects involuntary halts and their causes. During such a halt, a CPU executes nothing
# although the operating system has work for it.
#
# For each possible cause, the seconds that it explains are computed. The cause of the episode is
# the first one that explains at least half of the loss.

HALT_START, HALT_END = 0.003, 0.0015
"""Shares of the time, in excess of the possible error, at which an episode starts and below which
it ends. A machine without a fault loses up to 0.0006; losses from about 0.005 matter."""
MIN_EVALUATED_NS = 80_000_000
"""Minimum length in ns of an evaluated span. Shorter samples are joined, because time is lost in
bursts: to SMIs about ten times a second, to a hypervisor in ticks."""
MIN_EXPLAINED = 0.5
"""Minimum share of the loss that a marker must explain for its cause to be reported."""
TRANSITION_S = 8.5e-6
"""Time in s for which a core of the Skylake generation is halted when its clock changes."""
CLOCK_CHANGES_KEY = f"as_if_clock_changes_of_{TRANSITION_S * 1e6:.1f}_us_per_s"
CLOCK_STEP_HZ = 100e6
"""Step in Hz between clocks of Intel cores since Sandy Bridge. Others have finer steps."""
MIN_STEP_DISTANCE = 0.1
"""Minimum distance of a mean clock from the nearest step, in steps, that proves a change."""
MIN_HDC_SHARE = 0.02
"""Minimum share by which MPERF must exceed the reference cycles to prove hardware duty cycling.
MPERF may tick at the nominal frequency, which differs from the TSC by up to 1 %."""
MIN_SMI_S, MAX_SMI_S = 10e-6, 10e-3
"""Minimum and maximum time in s that one SMI can cost. Entering and leaving SMM already takes the
minimum; after the maximum, an operating system would lose ticks."""
LOST_S, ERRORS, SMIS, EXPLAINED = 2, 3, 6, 7
"""Indexes in the sums of an episode: the loss, three errors, SMIs, seconds by marker."""
READ_ERROR, STEAL_ERROR = 3, 4
"""Indexes of the errors of reading and of steal in the sums of samples (see `Halts._sums`)."""


class HaltMarker(NamedTuple):
    cause: str
    is_counted: bool = True
    """Whether the marker counts the quantity in `COUNTED_QUANTITIES`, not a side effect."""


MARKERS = {
    "modulation": HaltMarker("modulation"),
    "thermal": HaltMarker("modulation", is_counted=False),
    "hdc": HaltMarker("hdc"),
    "smi": HaltMarker("smm"),
    "simd": HaltMarker("simd"),
    "pcu": HaltMarker("clock-change"),
    "between": HaltMarker("clock-change", is_counted=False),
}
"""The cause of each marker. The first marker that explains the loss decides."""


class Halts(Detector):
    def __init__(self, reader: SampleReader, episodes: RunningEpisodes) -> None:
        self._counters = reader.counters
        self.is_available = bool(reader.evaluator.variants["involuntary"])
        self._standstill, self._markers = Standstill(reader), HaltMarkers(reader)
        self._cpu_lists = reader.single_cpus
        self._halts = ShareEpisodes(reader, episodes, "involuntary-halt", HALT_START, HALT_END)
        self._joined_samples: tuple[int, Floats] | None = None
        """Start in raw ns and sums of the samples that are being joined; None if there are none."""
        self._guest, rows = reader.hello.virtualisation is not None, len(reader.hello.topology)
        self._steal_ns = np.full(rows, -UNCOUNTED_STEAL_SPAN_NS)
        """By CPU, the raw time of the last sample with steal."""
        self._has_halt = halts_involuntarily(HALT_START)
        self.triggers = self._has_halt, has_steal

    def process(self, sample: Sample) -> list[Episode]:
        if sample.get(has_steal):
            self._steal_ns[sample.values["steal"] > 0] = sample.time_ns
        if self.is_calm and not sample.get(self._has_halt):
            return []
        since_ns, time_ns = sample.since_ns, sample.time_ns
        sums = sample.get(self._sums).copy()
        may_be_stolen = time_ns - self._steal_ns < UNCOUNTED_STEAL_SPAN_NS
        sums[STEAL_ERROR] = TICK_S * (self._guest | may_be_stolen)
        # Previous samples that were too short are joined, but not across a gap in the stream.
        is_gap = self._halts.pauses.is_gap(since_ns, time_ns)
        if self._joined_samples is not None and not is_gap:
            since_ns, earlier_sums = self._joined_samples
            joined_sums = earlier_sums + sums
            # an error in one sample is compensated in the next
            errors = [READ_ERROR, STEAL_ERROR]
            joined_sums[errors] = np.maximum(earlier_sums[errors], sums[errors])
            sums = joined_sums
        if 0 < time_ns - since_ns < MIN_EVALUATED_NS:
            self._joined_samples, self.is_calm = (since_ns, sums), False
            return []
        self._joined_samples = None
        span_s, *further_sums = sums
        lost_s, idle_s, read_s, steal_s = further_sums[:4]
        with np.errstate(divide="ignore", invalid="ignore"):
            excess_share = np.maximum((lost_s - idle_s - read_s - steal_s) / span_s, 0.0)
        group = np.append(sample.cores.group, -1)[sample.cores.core_by_cpu]
        ended = self._halts.step(
            excess_share, span_s, group, self._cpu_lists, since_ns, time_ns, further_sums
        )
        for halt in self._halts.running:
            _describe_halt(halt)
        self.is_calm = self._halts.is_quiet
        return ended

    def _sums(self, batch: SampleBatch) -> Floats:
        """Returns the sums of each single sample, (samples, sums, CPUs): its length in s, the loss,
        three errors, SMIs, and the seconds explained by each marker. The error of steal is 0,
        because it depends on earlier samples."""
        share, span_s, idle_error_s = self._standstill.shares(batch).swapaxes(0, 1)
        smis = self._counters.increments(batch.delta, "smi")
        no_seconds = np.zeros(share.shape)
        counted = no_seconds if smis is None else np.nan_to_num(smis)
        errors_s = idle_error_s, no_seconds + MAX_READ_S, no_seconds
        explained_s = self._markers.explained_s(batch, share, span_s)
        sums = [span_s, np.nan_to_num(share * span_s), *errors_s, counted, *explained_s]
        return np.stack(sums, axis=1)


def _describe_halt(halt: ShareEpisode) -> None:
    sums = halt.sums
    # Measurement errors can shift lost time to later samples, so a sum can be negative.
    span_s, lost_s = np.maximum(sums[[1, LOST_S]], 0.0).tolist()
    shares = sums[EXPLAINED:] / lost_s if lost_s > 0 else 0 * sums[EXPLAINED:]
    explained_shares = dict(zip(MARKERS, shares.tolist(), strict=True))
    cause = next((key for key, share in explained_shares.items() if share >= MIN_EXPLAINED), None)
    marker = MARKERS[cause] if cause else HaltMarker("unknown")
    episode = halt.episode
    episode.depth, episode.cause = lost_s / span_s, marker.cause
    error_s = float(sums[ERRORS:SMIS].sum())
    episode.confidence = confidence(
        episode.kind, marker.cause, counted=marker.is_counted, error=error_s, effect=lost_s
    )
    evidence: dict[str, Any] = {}
    if cause:
        evidence[f"explained_by_{cause}"] = min(explained_shares[cause], 1.0)
    if smis := float(sums[SMIS]):
        evidence["SMIs_per_s"] = round(smis / span_s, 1)
        if cause == "smi":
            evidence["each_SMI_s"] = round(lost_s / smis, 6)
    if episode.cause in {"clock-change", "unknown"}:
        evidence[CLOCK_CHANGES_KEY] = round(episode.depth / TRANSITION_S)
    errors = sums[ERRORS:SMIS] / span_s
    evidence["error_share"] = round(float(errors.sum()), 5)
    for name, share in zip(("idle", "reading", "steal"), errors.tolist(), strict=True):
        evidence[f"error_of_{name}_share"] = round(share, 5)
    episode.evidence = evidence


class HaltMarkers:
    """Markers of possible causes; each returns the seconds that its cause explains."""

    def __init__(self, reader: SampleReader) -> None:
        hello, self._counters = reader.hello, reader.counters
        self._rows = len(hello.topology)
        self._package = packages(hello)
        intel = hello.identity.vendor == "GenuineIntel"
        base = hello.base_hz.hz / CLOCK_STEP_HZ if hello.base_hz else 0.5
        self._steps = intel and abs(base - round(base)) < MIN_STEP_DISTANCE
        self._thermal, self._modulation = ThermalStatus(reader), ClockModulation(reader)

    def explained_s(self, batch: SampleBatch, share: Floats, span_s: Floats) -> Floats:
        """Returns the seconds of standstill that each marker explains, (MARKERS, samples, CPUs); 0
        where unknown. `share`: the share of `span_s` that each CPU lost."""
        lost_s, values = share * span_s, batch.values
        with np.errstate(divide="ignore", invalid="ignore"):
            hot = batch.cores.by_cpu(np.fmax.reduce(self._thermal.shares(batch), axis=1))
            # With hardware duty cycling, MPERF continues to count while the reference counter
            # stops.
            ref = self._tsc_share(batch, "ref")
            mperf_surplus = self._tsc_share(batch, "mperf") - ref
            # An SMI stops all CPUs, so it cost at most the smallest loss of any CPU.
            busy = np.isfinite(share) & (values["idle"] < MAX_RELIABLE_IDLE)
            smallest = np.where(busy, share, np.inf).min(axis=1, keepdims=True)
            all_s = span_s * np.where(np.isfinite(smallest), smallest, 0.0)
            smi_s = all_s / self._increments(batch, "smi")
            # The share of the power control unit's ticks in which it changed a clock.
            keys = "pcu_transition", "pcu_ticks"
            changing, ticks = (self._counters.increments(batch.delta, key) for key in keys)
            pcu_share = np.full(self._rows, np.nan)
            if changing is not None and ticks is not None:
                pcu_share = with_extra_column(changing / ticks, np.nan)[:, self._package]
            steps = values["busy_hz"] / CLOCK_STEP_HZ
            is_between_steps = self._steps & (np.abs(steps - np.rint(steps)) >= MIN_STEP_DISTANCE)
            seconds = {
                "thermal": lost_s * hot,
                "modulation": span_s * self._modulation.shares(batch),
                "hdc": span_s * np.where(mperf_surplus >= MIN_HDC_SHARE * ref, mperf_surplus, 0.0),
                "smi": np.where((smi_s >= MIN_SMI_S) & (smi_s <= MAX_SMI_S), all_s, 0.0),
                "simd": self._increments(batch, "license_throttle") / values["busy_hz"],
                "pcu": span_s * pcu_share,
                "between": lost_s * is_between_steps,
            }
        table = np.array([seconds[key] for key in MARKERS])
        return np.where(np.isfinite(table), table, 0.0)

    def _increments(self, batch: SampleBatch, key: str) -> Floats:
        increments = self._counters.increments(batch.delta, key)
        return np.full(self._rows, np.nan) if increments is None else increments

    def _tsc_share(self, batch: SampleBatch, key: str) -> Floats:
        """Returns a counter as a share of the TSC ticks of its block's span."""
        column = self._counters.columns.get(key)
        if column is None:
            return np.full(self._rows, np.nan)
        ticks = self._counters.tsc_ticks(batch.delta, column.block)
        return self._increments(batch, key) / ticks


# --- Detects throttling: cores report heat, or are requested to halt, although their clock is not
# below the clock that turbo allows.

THROTTLE_CAUSES = (*HEAT_BITS, "modulation")
THROTTLE_START, THROTTLE_END = MIN_ACTIVE_SHARE, MIN_ACTIVE_SHARE / 2
"""Shares of polls or time at which an episode starts and below which it ends. From THROTTLE_START
on, a status can be the cause of a drop."""
KNOWN_S, MODULATION, STATUSES = 3, 4, 5
"""Further indexes in the sums of a throttle: the time in s to which the lost seconds refer, the
share that modulation requested, and the share of each cause."""
KERNEL_COUNTERS = "package_throttled_s", "core_throttled_s"
"""The kernel's counters of throttled time. Packages are first; their cores then skip that time."""


class Throttles(Detector):
    """Detects throttling by polled status bits or, without them, by the kernel's throttled time."""

    def __init__(self, reader: SampleReader, episodes: RunningEpisodes) -> None:
        self._episodes = episodes
        self._thermal, self._modulation = ThermalStatus(reader), ClockModulation(reader)
        columns = (reader.counters.columns.get(key) for key in KERNEL_COUNTERS)
        self._kernel_columns = [column for column in columns if column is not None]
        """The kernel's counters, which are used in streams without polled status bits."""
        if self._thermal.is_available:
            self._kernel_columns = []
        self._cpus = {"package": reader.hello.packages, "core": reader.hello.cores}
        self._dropped_ns: dict[int, int] = {}
        """By CPU, the raw time of its last drop, which already accounts for the throttling."""
        self._polled_triggers = [*self._thermal.triggers, *self._modulation.triggers]
        kernel_triggers = [counter_advances(column) for column in self._kernel_columns]
        self.triggers = [*self._polled_triggers, *kernel_triggers]
        self.is_available, self.follows_drops = bool(self.triggers), bool(self._kernel_columns)
        self._standstill = Standstill(reader)
        self._throttles = ShareEpisodes(reader, episodes, "throttle", THROTTLE_START, THROTTLE_END)

    def process(self, sample: Sample) -> list[Episode]:
        ended = self._kernel_throttles(sample) if self._kernel_columns else []
        if self.is_calm and not any(sample.get(sign) for sign in self._polled_triggers):
            return ended
        cores = sample.cores
        halt_share = cores.max_of_threads(sample.get(self._modulation.shares))
        heat_shares = sample.get(self._thermal.shares)
        status = np.array([*heat_shares, np.where(halt_share > 0, 1.0, halt_share * 0)])
        share = np.fmax.reduce(status, axis=0)
        # Cores in a turbo drop are left out. If its cause is heat, so are all cores of the package:
        # they share the status, and cores that hardly work cannot drop.
        for drop in self._episodes.active_episodes("turbo-drop"):
            members = cores.contains_any(drop.cpus)
            share[members] = 0.0
            if drop.cause in HEAT_BITS:
                share[np.isin(cores.package, cores.package[members])] = 0.0
        lost, span_s, _ = sample.get(self._standstill.shares)
        seconds = [cores.sum_of_threads(lost * span_s), cores.sum_of_threads(span_s)]
        seconds += [*np.nan_to_num([halt_share, *status])]
        times, weight = (sample.since_ns, sample.time_ns), np.ones(len(cores.lists))
        ended += self._throttles.step(share, weight, cores.package, cores.lists, *times, seconds)
        for throttle in self._throttles.running:
            sums, episode = throttle.sums, throttle.episode
            status_shares = (sums[STATUSES:] / sums[1]).tolist()
            shares = dict(zip(THROTTLE_CAUSES, status_shares, strict=True))
            episode.cause = max(shares, key=lambda cause: shares[cause])
            episode.confidence = confidence("throttle", episode.cause)
            present_causes = ((cause, share) for cause, share in shares.items() if share > 0)
            episode.evidence = {
                f"{key}_status_share": round(part, 3) for key, part in present_causes
            }
            requested = float(sums[MODULATION] / sums[1])
            if requested > 0:
                episode.evidence["duty_by_register_19AH_share"] = round(1 - requested, 4)
            if sums[KNOWN_S] > 0:  # the lost share of the time, not of the polls
                episode.depth = max(0.0, float(sums[LOST_S] / sums[KNOWN_S]))
            else:  # standstill was not measured: only the register of modulation was read
                episode.depth = requested if requested > 0 else None
        self.is_calm = self._throttles.is_quiet
        return ended

    def _kernel_throttles(self, sample: Sample) -> list[Episode]:
        """Returns throttles by the kernel's count. It adds the throttled time to a counter when
        throttling ends, so these episodes have already ended."""
        time_ns, dropped_ns = sample.time_ns, self._dropped_ns
        for drop in self._episodes.active_episodes("turbo-drop"):
            dropped_ns.update(dict.fromkeys(drop.cpus, time_ns))
        ended: list[Episode] = []
        for column in self._kernel_columns:
            booked_s = sample.delta.tables[column.block].increments[:, column.index]
            groups = self._cpus[column.scope]
            for row in np.flatnonzero(booked_s > 0).tolist():
                seconds = float(booked_s[row])
                start_ns = time_ns - round(seconds * 1e9)
                counted_cpus = {cpu for episode in ended for cpu in episode.cpus}
                counted_cpus |= {cpu for cpu, ns in dropped_ns.items() if ns >= start_ns}
                cpus = [cpu for cpu in groups[row] if cpu not in counted_cpus]
                if cpus:
                    evidence = {"throttled_s": round(seconds, 3), "told_by": KERNEL}
                    found = None, "thermal", evidence, confidence("throttle", "thermal")
                    ended.append(Episode("throttle", cpus, start_ns, time_ns, *found))
        return ended
