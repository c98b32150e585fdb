"""How fast the program on each CPU ran while nobody disturbed it, in instructions per cycle, and
whether it is the same one that runs there now."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from perftop.base.arrays import Bools, Floats
from perftop.detect.neighbours.losses import Losses, present
from perftop.model.running_tasks import Company

KEPT_S = 10.0
"""Running time in seconds after which older samples count for e times less, for programs have
phases."""
STABLE_S = 10.0
"""Undisturbed seconds after which a program counts as the same one, in streams that do not tell who
runs."""
CYCLES = 1
"""Row of the sums."""


class Programs:
    """Arrays are by position of the CPU."""

    def __init__(self, losses: Losses, names: Sequence[Sequence[int]], company: Company,
                 *, learned: int, lost: int) -> None:  # fmt: skip
        """`learned`, `lost`: how many sums there are."""
        self._losses, self._names, self._company = losses, names, company
        self.learned: Floats = np.zeros((learned, len(names)))
        """Sums while it was undisturbed: instructions, cycles, cycles times the square of their
        ratio, and what else the caller learns."""
        self.lost: Floats = np.zeros((lost, len(names)))
        """Sums of the losses that run."""
        self.tasks: list[tuple[int, str] | None] = [None] * len(names)
        self.proven: Bools = np.zeros(len(names), bool)
        """The loss is one of the program that was seen undisturbed."""

    def learn(self, quiet: Bools, run_s: Floats, parts: Floats) -> None:
        """Take a sample of the CPUs that were undisturbed in it; `parts` as in `learned`."""
        newer = self.learned * np.exp(-run_s / KEPT_S)
        newer += parts
        np.copyto(self.learned, newer, where=quiet)

    def compared(self, ipc: Floats) -> tuple[Floats, Floats, Floats]:
        """The undisturbed IPC; by what share of it the IPC is lower now; and the share by which it
        varied, as a standard deviation."""
        with np.errstate(invalid="ignore", divide="ignore"):
            before, _, squares = self.learned[:3] / self.learned[CYCLES]
            spread = np.sqrt(np.maximum(squares - before**2, 0.0)) / before
            return before, np.maximum(1 - ipc / before, 0.0), spread

    def lose(self, told: Bools, *parts: Floats) -> None:
        """Add a sample to the sums of losses. Those that have just begun start from 0."""
        fresh = self._losses.fresh
        self.lost[:, fresh], self.proven[fresh] = 0.0, False
        self.lost[:, told] += np.array(parts)[:, told]

    def identify(self, busy: Bools) -> list[int]:
        """Take a new record of who runs on these CPUs. Returns where the program is another one:
        what was learned there is forgotten."""
        rows = np.flatnonzero(busy).tolist()
        cpus, changed = [self._names[at][0] for at in rows], []
        for at, cpu, task in zip(rows, cpus, self._company.firsts(cpus), strict=True):
            if task != self.tasks[at]:
                self.tasks[at] = task
                self.learned[:, at] = 0.0
                changed.append(at)
            elif self._losses.open[at] and not self._losses.sure[at]:
                start_ns = self._losses.spells[at].start_ns
                self.proven[at] |= present(self._company, self._company.on(cpu)[:1], start_ns)
        return changed

    def sound(self, undisturbed_s: Floats) -> Bools:
        """Losses of the program that was seen undisturbed; where no task is ever told of, of a CPU
        that has long been as it was."""
        told = bool(self._company.time_ns)
        return self.proven if told else np.asarray(undisturbed_s >= STABLE_S)
