"""What a CPU loses to others that press its package's memory: instructions per cycle before and
since.

Who moves the bytes is not counted by CPU, so three things must come together: the program runs
slower than when there was less traffic, the memory moves nearly as much as it ever did in this run,
and other programs of the package work more than before. A program that presses the memory by itself
blames nobody.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints
from perftop.detect.engine import Detector, Seen
from perftop.detect.losses import Loss, Losses, Programs, Worked, accused, busy_work, worked
from perftop.model import memory
from perftop.model.cores import Cores, extended
from perftop.model.delta import Delta
from perftop.model.episode import Episode
from perftop.model.evaluation import Values
from perftop.model.memory import L3Groups
from perftop.model.sample_reader import Sieve, Verdicts
from perftop.model.smt import Split
from perftop.model.tasks import Company, Task

START, END = 0.1, 0.05
"""Shares of the IPC before, as for siblings: programs waver by some per cent."""
SPREADS = 2.0
"""Standard deviations of the IPC before. A smaller loss may be the program's own variation."""
NEAR = 0.7
"""Minimum share of the best traffic of this run. Latency rises steeply from there on, whatever the
best may be."""
MORE = 1.25
"""Traffic that is so many times as much as before is more. Less than that changes no latency."""
WORK = 0.5
"""CPUs' worth of others' work that must have come: one that is busy for half of the time."""
ALIKE = 0.1
"""Shares of running time. With the sibling at work for so much more or less, the IPC is another."""
MOST_NAMED = 8
"""Tasks that are kept as evidence."""
_BYTES, _WORK, _BOTH, _TIME = range(3, 7)
"""Further rows of what was learned while it was quiet, weighted by running time: bytes per second,
others' work, share beside a running sibling, and that time itself."""


class _Look(NamedTuple):
    """What CPUs did, by position, or, with a leading axis, in each of several samples."""

    rate: Floats
    """Traffic of the package in bytes per second."""
    util: Floats
    """0 where the work does not matter."""
    work: Floats
    """Utilisation, 0 where it is not known."""
    known: Bools
    """There is something to learn: IPC, traffic and what the sibling did."""
    cycles: Floats
    ipc: Floats
    both: Floats
    """Share of the running time in which the sibling ran; 0 without one."""
    sums: Floats
    """What is learned of it, all but what others did; by running time, where it is weighted by
    that."""


class Memory:
    """Begins and ends episodes of a detector."""

    def __init__(
        self, sieve: Sieve, detector: Detector, company: Company, groups: Ints, l3_groups: L3Groups
    ) -> None:
        self._sieve, self._company, self._package = sieve, company, groups
        self._l3_groups = l3_groups
        self._names = [[row.cpu] for row in sieve.hello.topology]
        n = len(groups)
        self._known = all(key in sieve.counters.columns for key in memory.TRAFFIC_KEYS)
        self.losses = Losses(
            detector, "memory", groups, sieve.hello.sample_ns, start=START, end=END
        )
        self._programs = Programs(self.losses, self._names, company, learned=7, lost=5)
        """Sums of a loss: instructions, cycles, cycles times IPC before, seconds run, bytes per
        second times those."""
        self._inside: Bools = groups >= 0
        self._packages = len(sieve.hello.packages)
        self._run_by(np.zeros(n, np.int64))
        self._before: list[list[set[tuple[int, str]]]] = [[set()] * 2 for _ in sieve.hello.packages]
        """Tasks of each package when nobody there lost anything, by the last two records. The newer
        one may have the first of those that came."""

    def sample(self, seen: Seen, busy: Bools, own: set[int] | None) -> list[Episode]:
        """`busy`: CPUs whose work matters; `own`: PIDs that are no strangers to each other; None:
        no job is watched, and all CPUs matter that are busy."""
        if not self._known or (self.losses.quiet and not np.count_nonzero(busy)):
            return []
        sample = seen.sample
        look = (
            sample.part(self._of_busy)
            if own is None
            else self._look(
                sample.delta, sample.values, sample.split, seen.cores, worked(sample.values, busy)
            )
        )
        run_s, learned = look.util * ((seen.time_ns - seen.since_ns) / 1e9), self._programs.learned
        others = self._others(look.work)
        with np.errstate(invalid="ignore", divide="ignore"):
            # What was learned while it was quiet; NaN where nothing was.
            before = learned[_BYTES:_TIME] / learned[_TIME]
        crowded = (look.rate > MORE * before[0]) & (others > before[1] + WORK)
        calm = self.losses.quiet and not np.count_nonzero(crowded)
        over = [] if calm else self._compare(seen, look, run_s, before[2], crowded)
        quiet = look.known if calm else look.known & ~crowded
        # Much less traffic than before: quiet is what comes nearest to it.
        if np.count_nonzero(stale := quiet & (look.rate * MORE < before[0])):
            learned[:, stale] = 0.0
        parts = look.sums.copy()
        parts[_WORK] = others
        parts[_BYTES:] *= run_s
        self._programs.learn(quiet, run_s, parts)
        news = self._company.time_ns == seen.time_ns
        if news:
            self._identify(busy)
        if not calm:
            self._end(seen, own or set(), news=news)
        return over

    def _of_busy(self, among: Verdicts) -> list[_Look]:
        """What the CPUs that are busy did in each sample."""
        work = among.once(busy_work)
        look = self._look(among.delta, among.values, among.split, among.cores, work)
        return [_Look(*each) for each in zip(*look, strict=True)]

    def _look(
        self, delta: Delta, values: Values, split: Split, cores: Cores, work: Worked
    ) -> _Look:
        found, every = memory.moved(self._sieve.counters, delta), values["util"]
        assert found is not None
        util, counted, cycles, ipc, told = work
        with np.errstate(invalid="ignore", divide="ignore"):
            rate = extended(found[0] / found[1], np.nan).take(self._package, axis=-1)
            both = np.minimum(cores.by_cpu(split.states[..., 3]) / util, 1.0)
        both = np.where(cores.alone, 0.0, both)
        read = np.isfinite(rate)
        if np.count_nonzero(read) < read.size:
            counted, cycles, ipc = (
                counted & read,
                np.where(read, cycles, 0.0),
                np.where(read, ipc, np.nan),
            )
        sums = np.array([*told, rate, rate, both, np.ones(util.shape)]).swapaxes(0, -2)
        known, every = counted & np.isfinite(both), np.where(np.isfinite(every), every, 0.0)
        return _Look(rate, util, every, known, cycles, ipc, both, sums)

    def _run_by(self, program: Ints) -> None:
        """`program`: by position, a number for each name of a program that runs now; 0: not
        known."""
        self._named, self._count = program > 0, int(program.max(initial=0)) + 1
        key = self._package * self._count + program  # a number for each program of each package
        self._inside_key, self._key = key[self._inside], np.maximum(key, 0)

    def _others(self, work: Floats) -> Floats:
        """By position: how many CPUs of the package's worth of work other programs do."""
        count, inside = self._count, self._inside
        of = np.bincount(self._inside_key, work[inside], self._packages * count)
        whole = of.reshape(-1, count).sum(axis=1)
        mine = np.where(self._named, of.take(self._key), work)
        return np.where(inside, whole.take(self._package) - mine, 0.0)

    def _compare(self, seen: Seen, look: _Look, run_s: Floats, both_before: Floats,
                 crowded: Bools) -> list[Episode]:  # fmt: skip
        """The episodes that this sample ended, by what is lost against the IPC before."""
        rate, ipc, cycles = look.rate, look.ipc, look.cycles
        best = extended(self._sieve.memory.rate, np.nan)[self._package]
        before, shares, spread = self._programs.compared(ipc)
        near = ~(rate < NEAR * best)
        unread = np.isnan(seen.sample.values["util"]) | np.isnan(rate)
        unlike = ~(np.abs(look.both - both_before) <= ALIKE)
        shares = np.where(np.isnan(shares) | ~crowded | ~near, 0.0, shares)
        shares = np.where(unread | (unlike & crowded), np.nan, shares)
        may_begin = crowded & near & (shares >= SPREADS * spread)
        over = self.losses.step(shares, run_s, may_begin, seen.since_ns, seen.time_ns)
        if self.losses.quiet:
            return over
        lost = self.losses.open & crowded & np.isfinite(ipc * before)
        parts = ipc * cycles, cycles, cycles * before, run_s, run_s * rate
        self._programs.lose(lost, *parts)
        return over

    def _end(self, seen: Seen, own: set[int], *, news: bool) -> None:
        """Tell what was found; with a new record of who runs, look whether it is still the same."""
        sound = self._programs.sound(self._programs.learned[_TIME])
        begun = self.losses.begin(sound, self._names, seen.time_ns)
        for loss in self.losses.running:
            self._tell(loss, own, who=news or loss in begun)

    def _identify(self, busy: Bools) -> None:
        tasks = self._company.firsts([cpu for (cpu,) in self._names])
        names = dict.fromkeys([task[1] for task in tasks if task])
        numbers = {name: number for number, name in enumerate(names, 1)}
        self._run_by(np.array([numbers[task[1]] if task else 0 for task in tasks], np.int64))
        self._programs.identify(busy)
        lost = {*self._package[self.losses.open].tolist()}
        for package, cpus in enumerate(self._sieve.hello.packages):
            if package not in lost:
                now = {task for task in self._company.firsts(cpus) if task}
                self._before[package] = [self._before[package][1], now]

    def _tell(self, loss: Loss, own: set[int], *, who: bool) -> None:
        episode, members = loss.episode, loss.members
        instructions, cycles, expected, run_s, moved = self._programs.lost[:, members].sum(axis=1)
        best = float(self._sieve.memory.rate[loss.group])
        episode.confidence = "inferred"
        if cycles > 0:
            episode.evidence["ipc"] = round(float(instructions / cycles), 2)
            episode.evidence["ipc_alone"] = round(float(expected / cycles), 2)
        if run_s > 0:
            rate = float(moved / run_s)
            episode.evidence["memory_bytes_per_s"] = round(rate)
            if best > 0:
                episode.evidence["memory_of_best_share"] = round(min(1.0, rate / best), 3)
        if took := self._l3_groups.took(self._sieve.hello.packages[loss.group]):
            episode.evidence["l3_groups"] = took
        if who and "who" not in episode.evidence:
            episode.evidence |= accused(self._suspects(loss, own), own)

    def _suspects(self, loss: Loss, own: set[int]) -> list[tuple[Task, int]]:
        """Tasks of other programs that have come to the package since it was quiet, the busiest
        first."""
        names = {task[1] for task in self._company.firsts(loss.episode.cpus) if task}
        found = [
            (task, cpu)
            for cpu in self._sieve.hello.packages[loss.group]
            for task in self._company.on(cpu)[:1]
            if task.comm not in names and task.pid not in own
            and (task.pid, task.comm) not in self._before[loss.group][0]
        ]  # fmt: skip
        return sorted(found, key=lambda one: -one[0].share)[:MOST_NAMED]
