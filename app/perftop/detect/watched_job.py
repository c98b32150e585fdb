"""What a watched job loses in run queues: its threads are ready, and another runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.detect.engine import Detector, Seen
from perftop.detect.losses import Loss, Losses, accused
from perftop.model.episode import Crowd, Episode
from perftop.model.machine_totals import SHARES
from perftop.model.sample_reader import Sieve
from perftop.model.tasks import KEPT_NS, Company, Moved, Watching

QUEUE_START, QUEUE_END = 0.05, 0.02
"""Shares of the time that threads wanted to run. Kernel threads and interrupts make every task wait
for one or two per cent; a twentieth is somebody's work."""
MIN_WAITED_S = 0.02
"""Seconds waited before a loss is told: some time slices, for one may be a wake-up that
collided."""
MIN_TASK_SHARE = 0.02
"""Minimum share of the CPU's time of a task that is told as the one that was waited for."""


class Scheduler:
    """Begins and ends episodes of a detector."""

    def __init__(self, sieve: Sieve, detector: Detector, company: Company, watching: Watching,
                 groups: Ints) -> None:  # fmt: skip
        self._counters, self._position = sieve.counters, sieve.position
        self._company, self._watching = company, watching
        self._names = [[row.cpu] for row in sieve.hello.topology]
        self.losses = Losses(detector, "scheduler", groups, sieve.hello.sample_ns,
                             start=QUEUE_START, end=QUEUE_END, least=MIN_WAITED_S)  # fmt: skip
        self._switches: dict[Loss, list[float]] = {}
        """Involuntary switches and seconds of each loss that runs."""

    def sample(self, seen: Seen, own: set[int]) -> list[Episode]:
        if self._watching.time_ns != seen.time_ns and self.losses.quiet:
            return []
        moved = self._by_cpu(seen.time_ns)
        shares, weights = self._shares(moved)
        everywhere: Bools = np.ones(len(shares), bool)
        over = self.losses.step(shares, weights, everywhere, seen.since_ns, seen.time_ns)
        self.losses.begin(everywhere, self._names, seen.time_ns)
        self._switches = {loss: self._switches.get(loss, [0, 0]) for loss in self.losses.running}
        for loss in self.losses.running:
            self._tell(loss, moved, seen, own)
        return over

    def _by_cpu(self, time_ns: int) -> dict[int, Moved]:
        """What the threads did that this sample told of, by position of the CPU."""
        moved: dict[int, Moved] = {}
        if self._watching.time_ns == time_ns:
            for thread in self._watching.told:
                at = self._position.get(thread.cpu)
                if at is not None:
                    moved[at] = moved.get(at, Moved()) + thread.since_last()
        return moved

    def _shares(self, moved: dict[int, Moved]) -> tuple[Floats, Floats]:
        """Shares and weights by position. A CPU without a thread of the job has share 0."""
        left = {self._position.get(thread.cpu) for thread in self._watching.threads.values()}
        shares, weights = np.full(len(self._names), np.nan), np.zeros(len(self._names))
        shares[[at for at in range(len(shares)) if at not in left]] = 0.0
        for at, one in moved.items():
            shares[at], weights[at] = one.wait, one.run_s + one.wait_s
        return shares, weights

    def _tell(self, loss: Loss, moved: dict[int, Moved], seen: Seen, own: set[int]) -> None:
        sums, here = self._switches[loss], [moved[at] for at in loss.members if at in moved]
        sums[0] += sum(one.involuntary for one in here)
        sums[1] += max((one.elapsed_s for one in here), default=0.0)
        evidence = loss.episode.evidence
        if sums[1]:
            evidence["involuntary_switches_per_s"] = round(sums[0] / sums[1], 1)
        if self._company.time_ns == seen.time_ns or "who" not in evidence:
            cpus = [cpu for at in loss.members for cpu in self._names[at]]
            found = [(task, cpu) for cpu in cpus for task in self._company.on(cpu)
                     if task.share >= MIN_TASK_SHARE and task.pid not in own]  # fmt: skip
            evidence |= accused(found, own) | self._selves(cpus)
        pressure = self._counters.rates(seen.sample.delta, SHARES["pressure_cpu"])
        if pressure is not None and len(pressure) and np.isfinite(share := float(pressure.sum())):
            evidence["machine_pressure_share"] = round(min(1.0, max(0.0, share)), 3)
        loss.episode.confidence = "measured" if {"who", "self"} & {*evidence} else "inferred"

    def _selves(self, cpus: list[int]) -> dict[str, list[Crowd]]:
        """CPUs on which threads of the job wait for each other. What is told of processes does not
        show it, for a whole process counts for the CPU of its first thread."""
        ran: dict[int, list[float]] = {}
        for thread in self._watching.threads.values():
            moved = thread.over(KEPT_NS)
            if moved.run_s > 0 and moved.elapsed_s > 0:
                ran.setdefault(thread.cpu, []).append(moved.run_s / moved.elapsed_s)
        crowded = [cpu for cpu in cpus if sum(sorted(ran.get(cpu, ()))[:-1]) >= MIN_TASK_SHARE]
        return {"self": [Crowd(len(ran[cpu]), cpu) for cpu in crowded]} if crowded else {}


CLOCK_START, CLOCK_END = 0.02, 0.01
"""Shares of the clock. The smallest step that turbo makes is 100 MHz of less than 5 GHz."""
MIN_WORK = 0.1
"""Minimum share of the time that a core works to count for a step of turbo."""
NEWEST_WEIGHT = 0.1
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
                             start=CLOCK_START, end=CLOCK_END)  # fmt: skip
        self._best: dict[int, _Best] = {}

    def sample(self, seen: Seen, mine: Bools, own: set[int]) -> list[Episode]:
        """`mine`: CPUs on which the job works, by position."""
        n = len(self._packages)
        shares, weights = np.full(n, np.nan), np.zeros(n)
        may_begin: Bools = np.zeros(n, bool)
        cores, awake = seen.cores, seen.util() >= MIN_WORK
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
                    one.ceiling_hz <= best.ceiling_hz * (1 - CLOCK_START) or self._limited(p)
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
            best.hz += NEWEST_WEIGHT * (now.hz - best.hz)
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
