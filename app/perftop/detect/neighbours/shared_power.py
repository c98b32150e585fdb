"""What a watched job loses of its clock because others work in its package. Turbo allows less with
every core that wakes up, and all share the power."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.detect.engine.detector_input import Seen
from perftop.detect.engine.episode_log import Detector
from perftop.detect.neighbours.losses import Losses, accused
from perftop.model.episode import Episode
from perftop.model.running_tasks import Company
from perftop.model.sample_reader import Sieve

START, END = 0.02, 0.01
"""Shares of the clock. The smallest step that turbo makes is 100 MHz of less than 5 GHz."""
COUNTS = 0.1
"""Minimum share of the time that a core works to count for a step of turbo."""
WEIGHT = 0.1
"""Weight of the newest sample in the clock before: the mean of about a second of samples of 100
ms."""


@dataclass(slots=True)
class _Best:
    """How the job ran in a package when the fewest others worked there."""

    own: int
    others: int
    hz: float
    ceiling_hz: float


class Budget:
    """Begins and ends episodes of a detector. Positions are packages."""

    def __init__(self, sieve: Sieve, detector: Detector, company: Company) -> None:
        self._detector, self._company = detector, company
        self._packages = sieve.hello.packages
        self._topology = sieve.hello.topology
        groups: Ints = np.arange(len(self._packages), dtype=np.int64)
        self.losses = Losses(detector, "package", groups, sieve.hello.sample_ns,
                             start=START, end=END)  # fmt: skip
        self._best: dict[int, _Best] = {}

    def sample(self, seen: Seen, mine: Bools, own: set[int]) -> list[Episode]:
        """`mine`: CPUs on which the job works, by position."""
        n = len(self._packages)
        shares, weights = np.full(n, np.nan), np.zeros(n)
        may_begin: Bools = np.zeros(n, bool)
        cores, awake = seen.cores, seen.util() >= COUNTS
        job = awake & (cores.total(mine.astype(float)) > 0)
        ran = seen.ran()
        now = [self._now(seen, ran, job & (cores.package == p), awake) for p in range(n)]
        for p, one in enumerate(now):
            if one is not None:
                best = self._learn(p, one)
                crowded = one.others > best.others
                shares[p] = max(0.0, 1 - one.hz / best.hz) if crowded else 0.0
                weights[p] = (seen.time_ns - seen.since_ns) / 1e9
                may_begin[p] = crowded and bool(
                    one.ceiling_hz <= best.ceiling_hz * (1 - START) or self._limited(p)
                )
        over = self.losses.step(shares, weights, may_begin, seen.since_ns, seen.time_ns)
        used = {self._topology[at].cpu for at in np.flatnonzero(mine)}
        names = [[cpu for cpu in package if cpu in used] for package in self._packages]
        self.losses.begin(np.ones(n, bool), names, seen.time_ns)
        for loss in self.losses.running:
            if (one := now[loss.group]) is not None:
                self._tell(loss.episode, loss.group, one, own)
        return over

    def _now(
        self, seen: Seen, ran: tuple[Floats, Floats], job: Bools, awake: Bools
    ) -> _Best | None:
        """None: the job does not work there, or its clock is not known."""
        if not job.any():
            return None
        cycles, run_s = (float(part[job].sum()) for part in ran)
        if not run_s:
            return None
        ceiling = seen.ceiling_hz[job]
        hz = float(ceiling[np.isfinite(ceiling)].mean()) if np.isfinite(ceiling).any() else np.nan
        package = seen.cores.package == seen.cores.package[job][0]
        return _Best(int(job.sum()), int((awake & package & ~job).sum()), cycles / run_s, hz)

    def _learn(self, package: int, now: _Best) -> _Best:
        """The clock before others came. It starts anew when the job itself grows."""
        best = self._best.get(package)
        if best is None or now.own > best.own or now.others < best.others:
            best = self._best[package] = now
        elif now.others == best.others:
            best.own = now.own
            best.hz += WEIGHT * (now.hz - best.hz)
            best.ceiling_hz = now.ceiling_hz
        return best

    def _limited(self, package: int) -> Episode | None:
        """A drop for want of power that runs there."""
        cpus = {*self._packages[package]}
        drops = self._detector.of("turbo-drop")
        powers = (e for e in drops if e.cause.startswith("power"))
        return next((e for e in powers if not cpus.isdisjoint(e.cpus)), None)

    def _tell(self, episode: Episode, package: int, now: _Best, own: set[int]) -> None:
        best, drop = self._best[package], self._limited(package)
        episode.evidence |= {
            "active_cores": now.own + now.others, "active_cores_before": best.own + best.others,
            "busy_hz": round(now.hz), "before_hz": round(best.hz),
        }  # fmt: skip
        if np.isfinite(now.ceiling_hz) and np.isfinite(best.ceiling_hz):
            episode.evidence["ceiling_hz"] = round(now.ceiling_hz)
            episode.evidence["ceiling_before_hz"] = round(best.ceiling_hz)
        if drop is not None:
            episode.evidence["turbo_drop"] = drop.cause
        episode.confidence = "inferred" if drop is not None else "measured"
        if self._company.time_ns and "who" not in episode.evidence:
            found = [(task, cpu) for cpu in self._packages[package]
                     for task in self._company.on(cpu)[:1] if task.pid not in own]  # fmt: skip
            found.sort(key=lambda one: -one[0].share)
            episode.evidence |= accused(found, own)
