"""Who loses a share of something to others, from when to when: episodes of kind neighbour.

What others do comes in pieces - ticks, time slices - so one sample proves little. A loss begins
once it has lasted, and then from its first sample; it ends once it has been over for a while, and
then with its last one. Each position has a spell of its own; those of a group that began together
are one episode. All arrays are by position, of CPUs or of packages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.detect.engine import PAUSE_NS, Detector, Patience, Spell, Whole, gap_ns
from perftop.model.episode import Episode, Ran
from perftop.model.evaluation import Values
from perftop.model.numbers import INDEX
from perftop.model.sample_reader import Verdicts
from perftop.model.tasks import Company, Task

NEIGHBOUR = "neighbour"
MIN_LOSS_SAMPLES = 2
"""Samples that show it: one may be a tick that fell into it, or the edge of something else."""


@dataclass(slots=True, eq=False)
class Loss:
    """An episode that runs."""

    episode: Episode
    group: int
    members: list[int] = field(default_factory=list)
    """Positions, also those for which it is over."""
    lost: float = 0.0
    weight: float = 0.0
    """Sums of those for which it is over."""


class Losses:
    """`start`: the share at which one begins; less, down to `end`, keeps it going. `least`: what
    must be lost in all, in the unit of weights."""

    def __init__(self, detector: Detector, cause: str, groups: Ints, sample_ns: int, *,
                 start: float, end: float, least: float = 0.0) -> None:  # fmt: skip
        self.running: list[Loss] = []
        self._detector, self._cause, self._groups = detector, cause, groups
        self._start, self._end, self._least = start, end, least
        self._sample_ns, self._patience = sample_ns, Patience(PAUSE_NS, gap_ns(sample_ns))
        n = len(groups)
        self.spells: dict[int, Spell] = {}
        """The last one of each position that ever lost anything; its sums: lost and weight."""
        self.quiet = True
        """Whether no position seems to lose anything."""
        self.open: Bools = np.zeros(n, bool)
        """Positions that seem to lose ..."""
        self.sure: Bools = np.zeros(n, bool)
        """... those of them that belong to an episode ..."""
        self.fresh: Bools = np.zeros(n, bool)
        """... and those that have begun to in this sample."""

    def share(self, at: int) -> float:
        """How much a position that loses has lost so far."""
        lost, weight = _total(self.spells[at]).tolist()
        return float(lost / weight) if weight > 0 else float("nan")

    def step(self, shares: Floats, weights: Floats, may_begin: Bools, since_ns: int,
             time_ns: int) -> list[Episode]:  # fmt: skip
        """The episodes that this sample ended. Shares are NaN where they are not known."""
        self.fresh = self.open & False
        if self._patience.gap(since_ns, time_ns):
            return self._close(self.open.copy())
        known = np.isfinite(shares)
        lost = np.where(known, shares, 0.0)
        self.fresh = may_begin & ~self.open & (lost >= self._start)
        if self.quiet and not self.fresh.any():
            return []
        for at in np.flatnonzero(self.fresh).tolist():
            self.spells[at] = Spell(
                group=int(self._groups[at]), start_ns=since_ns, last_ns=since_ns, kept=Whole()
            )
        self.open |= self.fresh
        self.quiet = False
        self._add(self.open & known, lost, weights, time_ns)
        over: Bools = np.zeros(len(known), bool)
        for at in np.flatnonzero(self.open).tolist():
            over[at] = self._over(at, time_ns, known=bool(known[at]))
        return self._close(over)

    def begin(self, proven: Bools, names: Sequence[Sequence[int]], time_ns: int) -> list[Loss]:
        """Makes episodes of losses that have lasted and are proven. Returns the new ones, and those
        that more CPUs have joined. `names`: the CPUs of each position."""
        begun = []
        for at in np.flatnonzero(self.open & ~self.sure & proven).tolist():
            if not self._lasts(self.spells[at], time_ns):
                continue
            loss = self._joined(at)
            if at not in loss.members:
                loss.members.append(at)
            loss.episode.cpus = sorted({*loss.episode.cpus, *names[at]})
            begun += [] if loss in begun else [loss]
            self.sure[at] = True
        for loss in self.running if self.sure.any() else ():
            lost, weight = self._sums([at for at in loss.members if self.sure[at]])
            if loss.weight + weight > 0:
                loss.episode.depth = (loss.lost + lost) / (loss.weight + weight)
        return begun

    def _add(self, seen: Bools, lost: Floats, weights: Floats, time_ns: int) -> None:
        found, high = np.array([lost * weights, weights]).T, lost >= self._end
        for at in np.flatnonzero(seen).tolist():
            spell = self.spells[at]
            if high[at]:
                spell.show(found[at], time_ns)
            else:
                spell.pause(spell.last_ns, found[at])

    def _over(self, at: int, time_ns: int, *, known: bool) -> bool:
        """Whether a loss is over, or turns out to be slight before it was told."""
        spell = self.spells[at]
        if self._patience.over(spell, time_ns, known=known):
            return True
        lost, weight = _total(spell).tolist()
        return bool(not self.sure[at] and lost < self._start * weight)

    def _lasts(self, spell: Spell, time_ns: int) -> bool:
        enough = spell.kept.samples >= MIN_LOSS_SAMPLES and spell.last_ns == time_ns
        return enough and bool(np.asarray(spell.kept.sums)[0] >= self._least)

    def _sums(self, members: Sequence[int]) -> tuple[float, float]:
        """Lost and weight, up to the last samples that showed it."""
        if not members:
            return 0.0, 0.0
        lost, weight = np.array([self.spells[at].kept.sums for at in members]).sum(axis=0).tolist()
        return lost, weight

    def _joined(self, at: int) -> Loss:
        """The one it is part of: one that began with it, or had it before; else a new one."""
        spell = self.spells[at]
        for loss in self.running:
            apart_ns = abs(loss.episode.start_ns - spell.start_ns)
            if loss.group == spell.group and (apart_ns <= self._sample_ns or at in loss.members):
                return loss
        loss = Loss(Episode(NEIGHBOUR, [], spell.start_ns, cause=self._cause), spell.group)
        self.running.append(loss)
        self._detector.running.append(loss.episode)
        return loss

    def _close(self, over: Bools) -> list[Episode]:
        ended = []
        self.open &= ~over
        self.quiet = not self.open.any()
        for loss in [*self.running] if (over & self.sure).any() else ():
            lost, weight = self._sums([at for at in {*loss.members} if over[at] and self.sure[at]])
            loss.lost, loss.weight = loss.lost + lost, loss.weight + weight
            if not any(self.open[at] and self.sure[at] for at in loss.members):
                self.running.remove(loss)
                end_ns = max(self.spells[at].last_ns for at in loss.members)
                ended.append(self._detector.end(loss.episode, end_ns))
        self.sure &= ~over
        return ended


MIN_PRESENT_SHARE = 0.25
"""Minimum share of the time since a loss began that a task must have had to be still there."""


def present(company: Company, tasks: Sequence[Task], start_ns: int) -> bool:
    """Whether the tasks cannot have had all of their share before the loss began."""
    since_ns = max(start_ns, company.since_ns)
    had_ns = sum(one.share for one in tasks) * (company.time_ns - company.since_ns)
    left_ns = had_ns - (since_ns - company.since_ns)
    return left_ns >= MIN_PRESENT_SHARE * (company.time_ns - since_ns) > 0


def accused(found: Sequence[tuple[Task, int]], own: set[int]) -> dict[str, list[Ran]]:
    """Evidence of who it was, with the CPU: strangers, and apart from them the job itself."""
    ran = [Ran(task.pid, task.comm, cpu) for task, cpu in found]
    who, selves = [r for r in ran if r.pid not in own], [r for r in ran if r.pid in own]
    return {key: told for key, told in (("who", who), ("self", selves)) if told}


def _total(spell: Spell) -> Floats:
    """Lost and weight up to now."""
    return np.asarray(spell.kept.sums + sum(spell.calm))


LEARNED_S = 10.0
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
        newer = self.learned * np.exp(-run_s / LEARNED_S)
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


MIN_BUSY = 0.5
"""Minimum share of the time that a CPU works, steal included. A CPU that is idle for half of the
time has time to lose."""
MIN_JOB_BUSY = 0.1
"""The same for CPUs of a watched job, which the user has said to matter."""


def wanted(among: Verdicts) -> Floats:
    """(samples, CPUs): share of the time in which a CPU worked or was robbed."""
    stolen = among.values["steal"]
    return np.asarray(among.values["util"] + np.where(np.isnan(stolen), 0.0, stolen))


def busy_cpus(among: Verdicts) -> Bools:
    return np.asarray(among.once(wanted) >= MIN_BUSY)


class Worked(NamedTuple):
    """What CPUs did, by position, or, with a leading axis, in each of several samples."""

    util: Floats
    """0 where the work does not matter."""
    counted: Bools
    """IPC is known."""
    cycles: Floats
    """0 where it is not."""
    ipc: Floats
    told: Floats
    """(3, ...): what samples add to the first sums of what is learned of a program: instructions,
    cycles, cycles times the square of their ratio."""


def worked(values: Values, busy: Bools) -> Worked:
    """`busy`: CPUs whose work matters."""
    at = INDEX["ipc"]
    top, bottom = values.top[..., at, :], values.bottom[..., at, :]
    util = np.where(busy, values["util"], 0.0)
    counted = np.isfinite(top) & (bottom > 0) & (util > 0)
    cycles = np.where(counted, bottom, 0.0)
    ipc = np.divide(top, cycles, out=np.full(util.shape, np.nan), where=counted)
    return Worked(util, counted, cycles, ipc, np.array([ipc * cycles, cycles, ipc**2 * cycles]))


def busy_work(among: Verdicts) -> Worked:
    return worked(among.values, among.once(busy_cpus))
