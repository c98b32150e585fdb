"""Cores that are told to be too hot, or to stand still, without a clock below what turbo allows."""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Bools
from perftop.detect.engine import PAUSE_NS, Detector, Seen, Shown, Spells
from perftop.detect.low_clock_causes import ACTS
from perftop.detect.standstill import HOT, Modulation, Standstill, Thermal
from perftop.model.cores import Cores
from perftop.model.episode import KERNEL, Episode
from perftop.model.sample_reader import Sieve

CAUSES = (*HOT, "modulation")
START, END = ACTS, ACTS / 2
"""Shares of polls or time. START is the share from which a status is the cause of a drop."""
AFTER = 2
"""Samples that must show it. One alone may be the edge of a drop of the same cause."""
LOST_S, KNOWN_S, ASKED, STATUS = 2, 3, 4, 5
"""Places in the sums of a spell: seconds lost, seconds they are of, the share that modulation asked
for, and the share of each cause."""
BOOKED = "package_throttled_s", "core_throttled_s"
"""Counters of booked time. The order counts: what a package told is not told again for its
cores."""


class Throttles:
    """Begins and ends episodes of a detector."""

    def __init__(self, sieve: Sieve, detector: Detector) -> None:
        self._detector = detector
        self._thermal, self._modulation = Thermal(sieve), Modulation(sieve)
        self._booked = _Booked(sieve, detector)
        self.there = self._thermal.told or self._modulation.told or self._booked.told
        self._standstill = Standstill(sieve)
        sample_ns = sieve.hello.sample_ns
        self._spells = Spells(
            detector, "throttle", START, END, sample_ns, after=AFTER, pause_ns=PAUSE_NS
        )

    def sample(self, seen: Seen) -> list[Episode]:
        """The episodes that this sample ended."""
        books = self._booked.told and not self._thermal.told
        booked = self._booked.sample(seen) if books else []
        if self._spells.quiet and not self._thermal.any(seen) and not self._modulation.any(seen):
            return booked
        return booked + self._polled(seen)

    def _polled(self, seen: Seen) -> list[Episode]:
        cores = seen.cores
        asked = cores.most(self._modulation.shares(seen))
        status = np.array([*self._thermal.shares(seen), np.where(asked > 0, 1.0, asked * 0)])
        share = np.fmax.reduce(status, axis=0)
        share[self._dropping(cores)] = 0.0
        lost, span_s, _ = self._standstill.shares(seen)
        more = [
            cores.total(lost * span_s),
            cores.total(span_s),
            np.nan_to_num(asked),
            *np.nan_to_num(status),
        ]
        times, weight = (seen.since_ns, seen.time_ns), np.ones(len(cores.lists))
        ended = self._spells.step(share, weight, cores.package, cores.lists, *times, more)
        for spell in self._spells.running:
            self._tell(spell)
        return ended

    def _dropping(self, cores: Cores) -> Bools:
        """Cores of a drop; where heat is its cause, all of the package, for they share the status:
        those that hardly work have no clock to lose."""
        dropping = np.zeros(len(cores.lists), bool)
        for episode in self._detector.of("turbo-drop"):
            mine = cores.of(episode.cpus)
            dropping |= mine
            if episode.cause in HOT:
                dropping |= np.isin(cores.package, cores.package[mine])
        return dropping

    def _tell(self, spell: Shown) -> None:
        """Sets cause, evidence and depth. The depth is what it costs, not how often the status was
        set."""
        sums, episode = spell.sums, spell.episode
        shares = dict(zip(CAUSES, (sums[STATUS:] / sums[1]).tolist(), strict=True))
        episode.cause = max(shares, key=lambda cause: shares[cause])
        told = [name for name, share in shares.items() if share > 0]
        episode.evidence = {f"{name}_status_share": round(shares[name], 3) for name in told}
        asked = float(sums[ASKED] / sums[1])
        if asked > 0:
            episode.evidence["duty_by_register_19AH_share"] = round(1 - asked, 4)
        if sums[KNOWN_S] > 0:
            episode.depth = max(0.0, float(sums[LOST_S] / sums[KNOWN_S]))
        else:  # nothing tells how long cores stood still, but for the register that has them do so
            episode.depth = asked if asked > 0 else None


class _Booked:
    """Ended episodes of streams without polled status bits. Only the kernel counts their
    throttling, as time, and books all of it when it is over."""

    def __init__(self, sieve: Sieve, detector: Detector) -> None:
        self._detector = detector
        found = (sieve.counters.columns.get(key) for key in BOOKED)
        self._columns = [column for column in found if column is not None]
        self.told = bool(self._columns)
        """The kernel of this stream books such time."""
        self._cpus = {"package": sieve.hello.packages, "core": sieve.hello.cores}
        self._scope = {block.name: block.scope for block in sieve.hello.blocks}
        self._dropped_ns: dict[int, int] = {}
        """By CPU, when it was last in a drop. The drop has told of that throttling."""

    def sample(self, seen: Seen) -> list[Episode]:
        """The episodes that the kernel booked in this sample."""
        for drop in self._detector.of("turbo-drop"):
            self._dropped_ns.update(dict.fromkeys(drop.cpus, seen.time_ns))
        told: list[Episode] = []
        for column in self._columns:
            booked_s = seen.sample.delta.tables[column.block].moved[:, column.first]
            rows = self._cpus[self._scope[column.block]]
            for row in np.flatnonzero(booked_s > 0).tolist():
                told += self._told(rows[row], float(booked_s[row]), seen.time_ns, told)
        return told

    def _told(
        self, cpus: list[int], seconds: float, time_ns: int, others: list[Episode]
    ) -> list[Episode]:
        start_ns = time_ns - round(seconds * 1e9)
        left = self._left(cpus, start_ns, others)
        evidence = {"throttled_s": round(seconds, 3), "told_by": KERNEL}
        episode = Episode("throttle", left, start_ns, time_ns, None, "thermal", evidence)
        return [episode] if left else []

    def _left(self, cpus: list[int], start_ns: int, told: list[Episode]) -> list[int]:
        others = {cpu for episode in told for cpu in episode.cpus}
        dropped = self._dropped_ns
        return [c for c in cpus if c not in others and dropped.get(c, start_ns - 1) < start_ns]
