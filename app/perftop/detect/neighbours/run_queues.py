"""What a watched job loses in run queues: its threads are ready, and another runs."""

from __future__ import annotations

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.detect.engine.detector_input import Seen
from perftop.detect.engine.episode_log import Detector
from perftop.detect.neighbours.losses import Loss, Losses, accused
from perftop.model.episode import Episode
from perftop.model.evidence import Crowd
from perftop.model.job_threads import KEPT_NS, Moved, Watching
from perftop.model.machine_totals import SHARES
from perftop.model.running_tasks import Company
from perftop.model.sample_reader import Sieve

START, END = 0.05, 0.02
"""Shares of the time that threads wanted to run. Kernel threads and interrupts make every task wait
for one or two per cent; a twentieth is somebody's work."""
LEAST_S = 0.02
"""Seconds waited before a loss is told: some time slices, for one may be a wake-up that
collided."""
BESIDE = 0.02
"""Minimum share of the CPU's time of a task that is told as the one that was waited for."""


class Scheduler:
    """Begins and ends episodes of a detector."""

    def __init__(self, sieve: Sieve, detector: Detector, company: Company, watching: Watching,
                 groups: Ints) -> None:  # fmt: skip
        self._counters, self._position = sieve.counters, sieve.position
        self._company, self._watching = company, watching
        self._names = [[row.cpu] for row in sieve.hello.topology]
        self.losses = Losses(detector, "scheduler", groups, sieve.hello.sample_ns,
                             start=START, end=END, least=LEAST_S)  # fmt: skip
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
                     if task.share >= BESIDE and task.pid not in own]  # fmt: skip
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
        crowded = [cpu for cpu in cpus if sum(sorted(ran.get(cpu, ()))[:-1]) >= BESIDE]
        return {"self": [Crowd(len(ran[cpu]), cpu) for cpu in crowded]} if crowded else {}
