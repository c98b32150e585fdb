"""What CPUs with work lose to the hypervisor, which runs somebody else on their time."""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Bools, Ints
from perftop.detect.engine.detector_input import Seen
from perftop.detect.engine.episode_log import Detector
from perftop.detect.neighbours.losses import Losses
from perftop.model.episode import Episode
from perftop.model.evidence import Host
from perftop.model.metrics import INDEX
from perftop.model.sample_reader import Sieve

START, END = 0.05, 0.02
"""Shares of the time. Hosts take up to a twentieth for themselves. Most steal is counted in ticks,
and one now and then keeps a loss going."""
LEAST_S = 0.03
"""Seconds stolen before a loss is told: three ticks of 10 ms, for one may be a rounding."""


class Hypervisor:
    """Begins and ends episodes of a detector."""

    def __init__(self, sieve: Sieve, detector: Detector, groups: Ints) -> None:
        hello = sieve.hello
        self._names = [[row.cpu] for row in hello.topology]
        self._host = hello.virtualisation
        self._known = bool(sieve.evaluator.chosen.get("steal"))
        self.losses = Losses(
            detector, "hypervisor", groups, hello.sample_ns, start=START, end=END, least=LEAST_S
        )

    def sample(self, seen: Seen, busy: Bools) -> list[Episode]:
        if not self._known or (self.losses.quiet and seen.sample.highest.steal < START):
            return []
        at, values = INDEX["steal"], seen.sample.values
        shares = np.where(busy | self.losses.sure, values.all[at], np.nan)
        everywhere: Bools = np.ones(len(busy), bool)
        over = self.losses.step(shares, values.bottom[at], everywhere, seen.since_ns, seen.time_ns)
        self.losses.begin(everywhere, self._names, seen.time_ns)
        for loss in self.losses.running:
            self._tell(loss.episode, loss.members, seen)
        return over

    def _tell(self, episode: Episode, members: list[int], seen: Seen) -> None:
        """Steal is measured; by whom it was taken nobody in a guest can see."""
        evidence = episode.evidence
        evidence["who"], evidence["rests_on"] = Host(self._host), "stat_steal_s"
        doubted = {key for at in members for key, _ in seen.sample.delta.suspect.get(at, ())}
        for key in sorted(doubted):
            evidence[f"{key} doubted"] = evidence.get(f"{key} doubted", 0) + 1
