"""Involuntary halts: CPUs that stand still although the system has work for them, and why.

What may have halted a CPU is told in seconds that it explains. The first that explains most of the
loss is the cause.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from perftop.base.arrays import Floats
from perftop.detect.engine import PAUSE_NS, Detector, Seen, Shown, Spells, gap_ns
from perftop.detect.standstill import SMALL_IDLE, Modulation, Standstill, Thermal
from perftop.model.cores import packages
from perftop.model.episode import Episode
from perftop.model.sample_reader import Sieve

START, END = 0.003, 0.0015
"""Shares of the time lost, beyond what the error may have made. A machine without a fault loses up
to 0.0006; the least loss that was ever worth telling is about 0.005."""
AFTER = 2
"""Samples that must show it. One alone may be a tick of steal that was booked late."""
PACKET_NS = 80_000_000
"""Samples shorter than this are taken together: time is lost at once and not evenly, to SMIs some
ten times a second, and to a hypervisor by the tick."""
MOST = 0.5
"""Minimum share of the loss that a sign must explain to be its cause."""
TRANSITION_S = 8.5e-6
"""Time that a core of the Skylake generation stands still when its clock changes."""
CHANGES = f"as_if_clock_changes_of_{TRANSITION_S * 1e6:.1f}_us_per_s"
LOST_S, ERRORS, SMIS, EXPLAINED = 2, 3, 6, 7
"""Places in the sums of a spell: the loss, the three errors, SMIs, and what explains the loss."""
Sums = list[Floats]
"""Sums of some samples by position of the CPU: the seconds they last, then the places above."""
READ, STEAL = 3, 4
"""Places of two errors in Sums."""


class Halts:
    """Begins and ends episodes of a detector."""

    def __init__(self, sieve: Sieve, detector: Detector) -> None:
        self._counters = sieve.counters
        self.there = bool(sieve.evaluator.chosen["involuntary"])
        self._standstill, self._signs = Standstill(sieve), Signs(sieve)
        self._names = [[row.cpu] for row in sieve.hello.topology]
        sample_ns = sieve.hello.sample_ns
        self._spells = Spells(
            detector, "involuntary-halt", START, END, sample_ns, after=AFTER, pause_ns=PAUSE_NS
        )
        self._gap_ns = gap_ns(sample_ns)
        self._begun: tuple[int, Sums] | None = None
        """Since when samples are taken together, and their sums."""

    def sample(self, seen: Seen) -> list[Episode]:
        """The episodes that this sample ended."""
        calm = not self._standstill.any(seen, START)
        if calm and self._spells.quiet and self._begun is None:
            return []
        since_ns, sums = self._together(seen)
        if 0 < seen.time_ns - since_ns < PACKET_NS:
            self._begun = since_ns, sums
            return []
        self._begun = None
        span_s, *more = sums
        lost_s, idle_s, read_s, steal_s = more[:4]
        with np.errstate(divide="ignore", invalid="ignore"):
            beyond = np.maximum((lost_s - idle_s - read_s - steal_s) / span_s, 0.0)
        times, cores = (since_ns, seen.time_ns), seen.cores
        group = np.append(cores.group, -1)[cores.of_cpu]
        ended = self._spells.step(beyond, span_s, group, self._names, *times, more)
        for spell in self._spells.running:
            _tell(spell)
        return ended

    def _together(self, seen: Seen) -> tuple[int, Sums]:
        """The sample with those before it that were too short. Nothing is joined across a gap in
        the stream."""
        now = self._sums(seen)
        if self._begun is None or not 0 < seen.time_ns - seen.since_ns <= self._gap_ns:
            return seen.since_ns, now
        since_ns, before = self._begun
        both = [old + new for old, new in zip(before, now, strict=True)]
        for error in (READ, STEAL):  # what one sample lacks the next one has
            both[error] = np.maximum(before[error], now[error])
        return since_ns, both

    def _sums(self, seen: Seen) -> Sums:
        share, span_s, error_s = self._standstill.shares(seen)
        smis = self._counters.moved(seen.sample.delta, "smi")
        counted = np.zeros(len(share)) if smis is None else np.nan_to_num(smis)
        explained = self._signs.explained(seen, share, span_s)
        return [span_s, np.nan_to_num(share * span_s), *error_s, counted, *explained]


def _tell(spell: Shown) -> None:
    sums = spell.sums
    span_s, lost_s = sums[[1, LOST_S]].tolist()
    shares = sums[EXPLAINED:] / lost_s if lost_s > 0 else 0 * sums[EXPLAINED:]
    explained = dict(zip(SIGNS, shares.tolist(), strict=True))
    cause = next((key for key, share in explained.items() if share >= MOST), None)
    episode = spell.episode
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


STEP_HZ = 100e6
"""Step between two clocks of an Intel core since Sandy Bridge. Steps of others are finer."""
BETWEEN = 0.1
"""Share of a step. A core whose mean clock is further from both neighbours has changed its
clock."""
HDC = 0.02
"""Minimum share of reference cycles by which MPERF must be ahead. MPERF may tick by the nameplate
frequency, up to a per cent off the TSC."""
SMI_S = 10e-6, 10e-3
"""Shortest and longest time that one SMI may cost. Entering and leaving alone takes the first; an
operating system would lose ticks by the second."""


@dataclass(frozen=True, slots=True)
class Sign:
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
"""Causes and how sure they are, in the order in which they are believed."""


class Signs:
    def __init__(self, sieve: Sieve) -> None:
        hello, self._counters = sieve.hello, sieve.counters
        self._rows = len(hello.topology)
        self._package = packages(hello)
        intel = hello.identity is not None and hello.identity.vendor == "GenuineIntel"
        base = hello.base_hz.hz / STEP_HZ if hello.base_hz else 0.5
        self._steps = intel and abs(base - round(base)) < BETWEEN
        self._thermal, self._modulation = Thermal(sieve), Modulation(sieve)

    def explained(self, seen: Seen, share: Floats, span_s: Floats) -> Floats:
        """Seconds of standstill that each sign explains, (SIGNS, CPUs), for CPUs that lose this
        share of a span. 0: none, or the stream has no such sign."""
        lost_s = share * span_s
        found: dict[str, Callable[[], Any]] = {
            "thermal": lambda: lost_s * self._hot(seen),
            "modulation": lambda: span_s * self._modulation.shares(seen),
            "hdc": lambda: span_s * self._forced(seen),
            "smi": lambda: self._stopped_s(seen, share, span_s),
            "simd": lambda: self._moved(seen, "license_throttle") / seen.sample.values["busy_hz"],
            "pcu": lambda: span_s * self._transition(seen),
            "between": lambda: lost_s * self._between(seen),
        }
        with np.errstate(divide="ignore", invalid="ignore"):
            seconds = np.array([found[key]() for key in SIGNS])
        return np.where(np.isfinite(seconds), seconds, 0.0)

    def _moved(self, seen: Seen, key: str) -> Floats:
        moved = self._counters.moved(seen.sample.delta, key)
        return np.full(self._rows, np.nan) if moved is None else moved

    def _share(self, seen: Seen, key: str) -> Floats:
        """Share of the TSC's ticks in the span of its block."""
        column = self._counters.columns.get(key)
        if column is None:
            return np.full(self._rows, np.nan)
        ticks = self._counters.tsc_ticks(seen.sample.delta, column.block)
        return self._moved(seen, key) / ticks

    def _hot(self, seen: Seen) -> Floats:
        most = np.fmax.reduce(self._thermal.shares(seen), axis=0)
        return seen.cores.by_cpu(most)

    def _forced(self, seen: Seen) -> Floats:
        """Under hardware duty cycling MPERF counts on where the reference counter stops."""
        ref = self._share(seen, "ref")
        more = self._share(seen, "mperf") - ref
        return np.where(more >= HDC * ref, more, 0.0)

    def _stopped_s(self, seen: Seen, share: Floats, span_s: Floats) -> Floats:
        """The loss of the CPU that loses least, for an SMI stops all."""
        busy = share[np.isfinite(share) & (seen.sample.values["idle"] < SMALL_IDLE)]
        all_s = span_s * (busy.min() if len(busy) else 0.0)
        each_s = all_s / self._moved(seen, "smi")
        return np.where((each_s >= SMI_S[0]) & (each_s <= SMI_S[1]), all_s, 0.0)

    def _transition(self, seen: Seen) -> Floats:
        delta = seen.sample.delta
        changing, ticks = (
            self._counters.moved(delta, key) for key in ("pcu_transition", "pcu_ticks")
        )
        if changing is None or ticks is None:
            return np.full(self._rows, np.nan)
        return np.asarray(np.append(changing / ticks, np.nan)[self._package])

    def _between(self, seen: Seen) -> Floats:
        if not self._steps:
            return np.zeros(self._rows)
        step = seen.sample.values["busy_hz"] / STEP_HZ
        return np.where(np.abs(step - np.rint(step)) >= BETWEEN, 1.0, 0.0)
