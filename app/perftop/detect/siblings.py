"""What a CPU loses to its sibling: instructions per cycle alone and together.

The same program may be slower for reasons of its own, so one and the same task must be seen in
both; and it must lose more than it wavers by when it is alone.
"""

from __future__ import annotations

from math import nan
from typing import NamedTuple

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.detect.engine import Detector, Seen
from perftop.detect.losses import CYCLES, Loss, Losses, Programs, Worked, accused, busy_work, worked
from perftop.model.episode import Episode
from perftop.model.sample_reader import Sieve, Verdicts
from perftop.model.smt import Split
from perftop.model.tasks import Company

START, END = 0.1, 0.05
"""Shares of the IPC alone. Programs waver by some per cent from sample to sample, and nobody moves
a job for less than a tenth. Half of that keeps a loss going, so that one at the edge is one
episode."""
ALONE, TOGETHER = 0.1, 0.5
"""Share of a CPU's running time in which its sibling ran, too. Below ALONE the loss is below START
even if both were half as fast together; from TOGETHER on the mean is mostly that of both."""
SPREADS = 2.0
"""Standard deviations of the IPC alone. A smaller loss may be the program's own variation."""
CONTENTION = "smt_contention_ratio"
GIVEN = 0.02
"""Share of the slots given to the sibling from which on its contention counts as measured."""
OLD_NS = 60_000_000_000
"""Age from which a baseline may be of another phase of the program."""


class _Look(NamedTuple):
    """What CPUs did, by position, or, with a leading axis, in each of several samples."""

    util: Floats
    """0 where the work does not matter."""
    alone: Bools
    """IPC is known, and the sibling hardly ran."""
    together: Bools
    """The sibling mostly ran."""
    cycles: Floats
    ipc: Floats
    overlap: Floats
    """Share of the running time in which the sibling ran; 0 without one."""
    sums: Floats
    """What is learned alone."""


class Siblings:
    """Begins and ends episodes of a detector."""

    def __init__(self, sieve: Sieve, detector: Detector, company: Company, groups: Ints) -> None:
        self._names = [[row.cpu] for row in sieve.hello.topology]
        self._company = company
        self.losses = Losses(
            detector, "sibling", groups, sieve.hello.sample_ns, start=START, end=END
        )
        n = len(groups)
        self._programs = Programs(self.losses, self._names, company, learned=3, lost=6)
        """What was learned alone. Sums of a loss: instructions, cycles, cycles times IPC alone,
        seconds run, seconds run together, cycles whose slots the sibling had."""
        self._alone_s: Floats = np.zeros(n)
        self._alone_ns: Ints = np.zeros(n, np.int64)
        """How long it was alone, and when last."""
        self._given = CONTENTION in sieve.evaluator.metrics
        """The slots that go to the sibling are counted here."""
        self._cores: object = None

    def _regroup(self, seen: Seen) -> None:
        self._cores = seen.cores
        rows = seen.cores.rows
        pairs = np.flatnonzero((rows[:, 1:2] >= 0).all(axis=1) & (rows[:, 2:] < 0).all(axis=1)
                               ) if rows.shape[1] > 1 else np.zeros(0, int)  # fmt: skip
        self._pairs = pairs
        self._rows = rows[pairs][:, :2]
        self.other: Ints = np.full(len(self._alone_s), -1, np.int64)
        """By position, that of the sibling; -1: there is none, or more than one."""
        self.other[self._rows] = self._rows[:, ::-1]

    def sample(self, seen: Seen, busy: Bools, own: set[int] | None) -> list[Episode]:
        """`busy`: CPUs whose work matters; `own`: PIDs that are no strangers to each other; None:
        no job is watched, and all CPUs matter that are busy."""
        if seen.cores is not self._cores:
            self._regroup(seen)
        if self.losses.quiet and not (len(self._pairs) and np.count_nonzero(busy)):
            return []
        sample = seen.sample
        look = (
            sample.part(self._of_busy)
            if own is None
            else self._look(worked(sample.values, busy), sample.split)
        )
        run_s = look.util * ((seen.time_ns - seen.since_ns) / 1e9)
        alone = look.alone
        if np.count_nonzero(alone):
            self._programs.learn(alone, run_s, look.sums)
            self._alone_s[alone] += run_s[alone]
            self._alone_ns[alone] = seen.time_ns
        together, over = look.together & (self._programs.learned[CYCLES] > 0), []
        if np.count_nonzero(together) or not self.losses.quiet:
            over = self._compare(seen, look, run_s, together, own or set())
        if self._company.time_ns == seen.time_ns:
            self._alone_s[self._programs.identify(busy)] = 0.0
        return over

    def alone(self, at: int) -> float:
        """IPC of the CPU at this position while its sibling was idle, as far as it was learned of
        the program that runs there; NaN if it was not."""
        instructions, cycles = self._programs.learned[:2, at].tolist()
        return float(instructions / cycles) if cycles > 0 else nan

    def _compare(
        self, seen: Seen, look: _Look, run_s: Floats, together: Bools, own: set[int]
    ) -> list[Episode]:
        """The episodes that this sample ended, by what is lost against the IPC alone."""
        ipc, cycles, overlap = look.ipc, look.cycles, look.overlap
        alone, shares, spread = self._programs.compared(ipc)
        # Nothing is lost to a sibling that is not there, nor by one that has left.
        unread = np.isnan(seen.sample.values["util"])
        unknown = unread | (cycles > 0) & np.isnan(overlap)
        shares = np.where(np.isnan(shares) | (overlap < ALONE), 0.0, shares)
        shares = np.where(unknown, np.nan, shares)
        may_begin = together & (shares >= SPREADS * spread)
        over = self.losses.step(shares, run_s, may_begin, seen.since_ns, seen.time_ns)
        if self.losses.quiet:  # mostly
            return over
        given = np.zeros(len(cycles))
        if self._given:
            given = cycles * np.nan_to_num(seen.sample.values[CONTENTION])
        lost = self.losses.open & np.isfinite(ipc * alone * overlap)
        parts = ipc * cycles, cycles, cycles * alone, run_s, run_s * overlap, given
        self._programs.lose(lost, *parts)
        sound = self._programs.sound(self._alone_s)
        begun = self.losses.begin(sound, self._names, seen.time_ns)
        news = self._company.time_ns == seen.time_ns
        for loss in self.losses.running:
            self._tell(loss, seen.time_ns, own, who=news or loss in begun)
        return over

    def _of_busy(self, among: Verdicts) -> list[_Look]:
        """What the CPUs that are busy did in each sample."""
        look = self._look(among.once(busy_work), among.split)
        return [_Look(*each) for each in zip(*look, strict=True)]

    def _look(self, work: Worked, split: Split) -> _Look:
        util, counted, cycles, ipc, told = work
        overlap = np.empty(util.shape)
        overlap[...] = np.where(self.other < 0, 0.0, np.nan)
        both = split.states[..., self._pairs, 3]
        with np.errstate(invalid="ignore", divide="ignore"):
            overlap[..., self._rows] = np.minimum(both[..., None] / util[..., self._rows], 1.0)
        alone, together = counted & (overlap < ALONE), overlap >= TOGETHER
        return _Look(util, alone, together, cycles, ipc, overlap, told.swapaxes(0, -2))

    def _tell(self, loss: Loss, now_ns: int, own: set[int], *, who: bool) -> None:
        members, episode = loss.members, loss.episode
        sums = self._programs.lost[:, members].sum(axis=1)
        instructions, cycles, expected, run_s, together_s, given = sums
        age_ns = now_ns - int(self._alone_ns[members].min())
        known = all(self._programs.tasks[at] is not None for at in members)
        episode.confidence = "measured" if age_ns <= OLD_NS and known else "inferred"
        episode.evidence |= {
            "ipc": round(float(instructions / cycles), 2),
            "ipc_alone": round(float(expected / cycles), 2),
            "sibling_active_share": round(float(together_s / run_s), 3),
        }
        if self._given:
            episode.evidence["slots_to_sibling"] = round(float(given / cycles), 3)
            if given >= GIVEN * cycles:  # seen, not concluded from how it was without
                episode.confidence = "measured"
        if age_ns > OLD_NS:
            episode.evidence["since_alone_s"] = round(age_ns / 1e9)
        if who:
            found = [(task, cpu) for at in members if self.other[at] >= 0
                     for cpu in self._names[self.other[at]]
                     for task in self._company.on(cpu)[:1]]  # fmt: skip
            episode.evidence |= accused(found, own)
