"""Detects involuntary halts, in which a CPU stands still although the operating system has work for
it, and their causes.

For each possible cause, the seconds of the loss that it explains are computed. The cause of the
episode is the first one that explains at least half of the loss.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from perftop.base.arrays import Floats, first_true
from perftop.detect.engine import (
    PAUSE_NS,
    DetectorInput,
    RunningEpisodes,
    ShareEpisode,
    ShareEpisodes,
    gap_ns,
    highest,
)
from perftop.detect.standstill import SMALL_IDLE, Modulation, Standstill, Thermal
from perftop.model.cores import packages
from perftop.model.episode import Episode
from perftop.model.sample_reader import SampleBatch, SampleReader

START, END = 0.003, 0.0015
"""Shares of the time lost beyond the possible error, at which an episode starts and below which it
ends. A machine without a fault loses up to 0.0006; the smallest loss ever worth reporting is about
0.005."""
MIN_SAMPLES = 2
"""Number of samples that must show the loss. A single sample may contain a tick of steal that was
accounted late."""
MIN_PACKET_NS = 80_000_000
"""Minimum length in ns of a span that is judged; shorter samples are joined. Time is lost in
pieces: to SMIs some ten times a second, to a hypervisor in ticks."""
MIN_EXPLAINED = 0.5
"""Share of the loss that a marker must explain to be its cause."""
TRANSITION_S = 8.5e-6
"""Time in s for which a core of the Skylake generation stands still when its clock changes."""
CHANGES = f"as_if_clock_changes_of_{TRANSITION_S * 1e6:.1f}_us_per_s"
STEP_HZ = 100e6
"""Step in Hz between two clocks of an Intel core since Sandy Bridge. Other cores have finer
steps."""
MIN_BETWEEN = 0.1
"""Share of a step. If the mean clock of a core is at least this far from both neighbouring steps,
the core has changed its clock."""
MIN_HDC = 0.02
"""Share of the reference cycles by which MPERF must exceed them. MPERF may tick at the nameplate
frequency, which differs from the TSC by up to a per cent."""
MIN_SMI_S, MAX_SMI_S = 10e-6, 10e-3
"""Shortest and longest time in s that one SMI may cost. Entering and leaving SMM already takes the
shortest; with the longest, an operating system would lose ticks."""
LOST_S, ERRORS, SMIS, EXPLAINED = 2, 3, 6, 7
"""Indices in the sums of an episode: the loss, the three errors, SMIs, and the seconds that each
marker explains."""
Sums = list[Floats]
"""Sums of some samples by position of the CPU: the seconds that the samples last, then the sums at
the indices above."""
READ, STEAL = 3, 4
"""Indices of two errors in Sums."""


class Sign(NamedTuple):
    cause: str
    confidence: Literal["measured", "inferred"] = "inferred"


SIGNS = {
    "modulation": Sign("modulation", "measured"),
    "thermal": Sign("modulation"),
    "hdc": Sign("hdc"),
    "smi": Sign("smm"),
    "simd": Sign("simd"),
    "pcu": Sign("clock-change", "measured"),
    "between": Sign("clock-change"),
}
"""The cause that each marker shows and its confidence, in the order in which the markers are
checked."""


class Halts:
    """Detects involuntary halts."""

    def __init__(self, reader: SampleReader, episodes: RunningEpisodes) -> None:
        self._counters = reader.counters
        self.available = bool(reader.evaluator.chosen["involuntary"])
        self._standstill, self._signs = Standstill(reader), Signs(reader)
        self._names = reader.single_cpus
        sample_ns = reader.hello.sample_ns
        self._halts = ShareEpisodes(
            episodes, "involuntary-halt", START, END, sample_ns, after=MIN_SAMPLES,
            pause_ns=PAUSE_NS,
        )  # fmt: skip
        self._gap_ns = gap_ns(sample_ns)
        self._packet: tuple[int, Sums] | None = None
        """Start of the samples that are being joined, and their sums; None if there are none."""

    def calm(self, batch: SampleBatch, first: int, last: int) -> int:
        due = first
        if self._halts.quiet and self._packet is None:
            due = first_true(batch.once(highest).involuntary >= START, first, last)
        self._standstill.note_steal(batch, first, due)
        return due

    def sample(self, data: DetectorInput) -> list[Episode]:
        """Returns the episodes that this sample ended."""
        at = data.sample.index
        self._standstill.note_steal(data.sample.batch, at, at + 1)
        since_ns, sums = self._joined(data)
        if 0 < data.time_ns - since_ns < MIN_PACKET_NS:
            self._packet = since_ns, sums
            return []
        self._packet = None
        span_s, *more = sums
        lost_s, idle_s, read_s, steal_s = more[:4]
        with np.errstate(divide="ignore", invalid="ignore"):
            beyond = np.maximum((lost_s - idle_s - read_s - steal_s) / span_s, 0.0)
        times, cores = (since_ns, data.time_ns), data.cores
        group = np.append(cores.group, -1)[cores.of_cpu]
        ended = self._halts.step(beyond, span_s, group, self._names, *times, more)
        for halt in self._halts.running:
            _describe(halt)
        return ended

    def _joined(self, data: DetectorInput) -> tuple[int, Sums]:
        """Returns the start and the sums of the sample, joined with the previous samples that were
        too short. Samples are not joined across a gap in the stream."""
        share, span_s, error_s = self._standstill.shares(data)
        smis = self._counters.increments(data.sample.delta, "smi")
        counted = np.zeros(len(share)) if smis is None else np.nan_to_num(smis)
        explained = self._signs.explained(data, share, span_s)
        now = [span_s, np.nan_to_num(share * span_s), *error_s, counted, *explained]
        if self._packet is None or not 0 < data.time_ns - data.since_ns <= self._gap_ns:
            return data.since_ns, now
        since_ns, before = self._packet
        both = [old + new for old, new in zip(before, now, strict=True)]
        for error in (READ, STEAL):  # an error in one sample is compensated in the next
            both[error] = np.maximum(before[error], now[error])
        return since_ns, both


def _describe(halt: ShareEpisode) -> None:
    sums = halt.sums
    # Later samples may have gained by errors what the first ones lost.
    span_s, lost_s = np.maximum(sums[[1, LOST_S]], 0.0).tolist()
    shares = sums[EXPLAINED:] / lost_s if lost_s > 0 else 0 * sums[EXPLAINED:]
    explained = dict(zip(SIGNS, shares.tolist(), strict=True))
    cause = next((key for key, share in explained.items() if share >= MIN_EXPLAINED), None)
    episode = halt.episode
    episode.depth = lost_s / span_s
    episode.cause = SIGNS[cause].cause if cause else "unknown"
    episode.confidence = SIGNS[cause].confidence if cause else "unknown"
    evidence: dict[str, float] = {}
    if cause:
        evidence[f"explained_by_{cause}"] = min(explained[cause], 1.0)
    if smis := float(sums[SMIS]):
        evidence["SMIs_per_s"] = round(smis / span_s, 1)
        if cause == "smi":
            evidence["each_SMI_s"] = round(lost_s / smis, 6)
    if episode.cause in {"clock-change", "unknown"}:
        evidence[CHANGES] = round(episode.depth / TRANSITION_S)
    errors = sums[ERRORS:SMIS] / span_s
    evidence["error_share"] = round(float(errors.sum()), 5)
    for name, share in zip(("idle", "reading", "steal"), errors.tolist(), strict=True):
        evidence[f"error_of_{name}_share"] = round(share, 5)
    episode.evidence = dict(evidence)


class Signs:
    """Markers of the possible causes, each as the seconds of standstill that it explains."""

    def __init__(self, reader: SampleReader) -> None:
        hello, self._counters = reader.hello, reader.counters
        self._rows = len(hello.topology)
        self._package = packages(hello)
        intel = hello.identity is not None and hello.identity.vendor == "GenuineIntel"
        base = hello.base_hz.hz / STEP_HZ if hello.base_hz else 0.5
        self._steps = intel and abs(base - round(base)) < MIN_BETWEEN
        self._thermal, self._modulation = Thermal(reader), Modulation(reader)

    def explained(self, data: DetectorInput, share: Floats, span_s: Floats) -> Floats:
        """Returns the seconds of standstill that each marker explains, (SIGNS, CPUs), for CPUs that
        lose this share of a span. 0 if it explains nothing, or if the stream does not have the
        marker."""
        lost_s, values = share * span_s, data.sample.values
        with np.errstate(divide="ignore", invalid="ignore"):
            hot = data.cores.by_cpu(np.fmax.reduce(self._thermal.shares(data), axis=0))
            # With hardware duty cycling, MPERF continues to count while the reference counter
            # stops.
            ref = self._tsc_share(data, "ref")
            ahead = self._tsc_share(data, "mperf") - ref
            # An SMI stops all CPUs, so it cost at most the smallest loss among the CPUs.
            busy = share[np.isfinite(share) & (values["idle"] < SMALL_IDLE)]
            all_s = span_s * (busy.min() if len(busy) else 0.0)
            smi_s = all_s / self._moved(data, "smi")
            steps = values["busy_hz"] / STEP_HZ
            between = self._steps & (np.abs(steps - np.rint(steps)) >= MIN_BETWEEN)
            seconds = {
                "thermal": lost_s * hot,
                "modulation": span_s * self._modulation.shares(data),
                "hdc": span_s * np.where(ahead >= MIN_HDC * ref, ahead, 0.0),
                "smi": np.where((smi_s >= MIN_SMI_S) & (smi_s <= MAX_SMI_S), all_s, 0.0),
                "simd": self._moved(data, "license_throttle") / values["busy_hz"],
                "pcu": span_s * self._transition_share(data),
                "between": lost_s * between,
            }
        table = np.array([seconds[key] for key in SIGNS])
        return np.where(np.isfinite(table), table, 0.0)

    def _moved(self, data: DetectorInput, key: str) -> Floats:
        moved = self._counters.increments(data.sample.delta, key)
        return np.full(self._rows, np.nan) if moved is None else moved

    def _tsc_share(self, data: DetectorInput, key: str) -> Floats:
        """Returns a counter as a share of the TSC ticks in the span of its block."""
        column = self._counters.columns.get(key)
        if column is None:
            return np.full(self._rows, np.nan)
        ticks = self._counters.tsc_ticks(data.sample.delta, column.block)
        return self._moved(data, key) / ticks

    def _transition_share(self, data: DetectorInput) -> Floats:
        """Returns the share of the power control unit's own ticks that it spent changing a
        clock."""
        changing, ticks = (
            self._counters.increments(data.sample.delta, key)
            for key in ("pcu_transition", "pcu_ticks")
        )
        if changing is None or ticks is None:
            return np.full(self._rows, np.nan)
        return np.asarray(np.append(changing / ticks, np.nan)[self._package])
