"""Cores that are told to be too hot, or to stand still, without a clock below what turbo allows."""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Bools
from perftop.detect.engine.detector_input import Seen
from perftop.detect.engine.episode_log import Detector
from perftop.detect.engine.hysteresis import PAUSE_NS
from perftop.detect.engine.share_episodes import Shown, Spells
from perftop.detect.engine.standstill import Standstill
from perftop.detect.engine.thermal import HOT, Modulation, Thermal
from perftop.detect.kernel_throttles import Booked
from perftop.detect.low_clock_causes import ACTS
from perftop.samples.cores import Cores
from perftop.samples.episode import Episode
from perftop.samples.sample_reader import Sieve

CAUSES = (*HOT, "modulation")
START, END = ACTS, ACTS / 2
"""Shares of polls or time. START is the share from which a status is the cause of a drop."""
AFTER = 2
"""Samples that must show it. One alone may be the edge of a drop of the same cause."""
LOST_S, KNOWN_S, ASKED, STATUS = 2, 3, 4, 5
"""Places in the sums of a spell: seconds lost, seconds they are of, the share that modulation asked
for, and the share of each cause."""


class Throttles:
    """Begins and ends episodes of a detector."""

    def __init__(self, sieve: Sieve, detector: Detector) -> None:
        self._detector = detector
        self._thermal, self._modulation = Thermal(sieve), Modulation(sieve)
        self._booked = Booked(sieve, detector)
        self._standstill = Standstill(sieve)
        sample_ns = sieve.hello.sample_ns
        self._spells = Spells(
            detector, "throttle", START, END, sample_ns, after=AFTER, pause_ns=PAUSE_NS
        )

    def sample(self, seen: Seen) -> list[Episode]:
        """The episodes that this sample ended."""
        booked = [] if self._thermal.told else self._booked.sample(seen)
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
