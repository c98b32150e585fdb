"""Turbo drops: cores that run below what turbo allows them, and why. Pure steps.

Cores are grouped by package and type, for these share a ceiling and a budget. If a group drops as
one it is one episode; else those of its cores that begin to drop in the same sample are. Cores that
something set holds below turbo's ceiling are a group apart: they miss that ceiling by policy,
others the lower of the two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perftop.base.arrays import Bools, Floats, Ints, distinct
from perftop.detect.engine import PAUSE_NS, Detector, Patience, Running, Seen, Shown, gap_ns, ran
from perftop.detect.low_clock_causes import COUNTED, Case, Facts, Tally, evidence, verdict
from perftop.model.cores import Cores
from perftop.model.delta import Delta
from perftop.model.episode import BASE_CLOCK, Cap, Episode
from perftop.model.sample_reader import Sieve, Verdicts
from perftop.model.turbo import CAPS

START, END = 0.05, 0.03
"""Shares of the ceiling that the clock misses. START is more than a step of 100 MHz, by which a
clock may waver, and the share from which rows are marked. Between END and START a drop goes on, so
that a clock at the edge makes one episode."""
BINDS = 0.02
"""Share of a cap. The mean of a clock that is held at a cap comes this near to it."""
AT_WORK, BEFORE = 0.5, 2
"""Minimum share of the time that a core works, in this sample and in BEFORE samples before it. A
core that works less is clocked by what it needs. The span of a core that was not read began before
the sample."""
CLIMB_NS = 200_000_000
"""Time after a core woke in which its clock still climbs. Hardware takes tens of ms, the kernel's
governor some of its periods."""
ACTIVE = 0.1
"""Minimum share of the time that a core works to be told as active."""
MOST = 0.75
"""Minimum share of a group's running time in cores that drop; from there the whole group drops."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """One sample; arrays by position of the core."""

    run_s: Floats  # of its threads together, 0 where unknown
    cycles: Floats
    util: Floats  # of its busiest thread; NaN: not read
    ceiling_hz: Floats
    delta: Delta
    """Everything that was counted in the sample."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What a sample shows where something may drop, by position of the core."""

    clocks: Floats  # (3, cores): run_s, cycles, run_s * what was allowed; 0 where not known
    key: Ints  # twice the group, and 1 where a cap holds the clock
    cap_hz: Floats
    cap: Ints  # place in CAPS
    sums: Floats
    since_ns: int
    time_ns: int

    def missing(self, share: float) -> Bools:
        """Cores that miss this share of what was allowed."""
        run_s, cycles, allowed = self.clocks
        return np.asarray((run_s > 0) & (allowed - cycles >= share * allowed))


@dataclass(slots=True, eq=False, kw_only=True)
class _Drop(Shown):
    """One that runs. It sums up clocks; its group is a key of _Look."""

    whole: bool  # cores of the group that wake up join
    told: Floats
    """Sums of what may tell the cause, over all samples that showed it."""
    paused_ns: int = 0
    """Sum of the pauses after which it showed again."""


def _some_ceiling(among: Verdicts) -> list[bool]:
    """Whether that of any core is known."""
    known: list[bool] = np.logical_or.reduce(~np.isnan(among.ceilings.low_hz), axis=-1).tolist()
    return known


def _slow(among: Verdicts) -> list[bool]:
    """Whether any core may be below its ceiling by END."""
    cycles, run_s = among.once(ran).swapaxes(0, 1)
    slow = cycles < (1 - END) * run_s * among.ceilings.low_hz
    told: list[bool] = np.logical_or.reduce(slow, axis=-1).tolist()
    return told


class Drops:
    """Begins and ends episodes of a detector."""

    def __init__(self, sieve: Sieve, detector: Detector) -> None:
        self._sieve = sieve
        self.there = sieve.turbo.some
        self._tally = Tally(sieve.counters, COUNTED)
        patience = Patience(PAUSE_NS, gap_ns(sieve.hello.sample_ns))
        self._drops: Running[_Drop] = Running(detector, patience)
        self._regroup(sieve.cores)

    def _regroup(self, cores: Cores) -> None:
        """Cores are others than they were: CPUs say which of them an episode is about."""
        self._cores, count = cores, len(cores.lists)
        self._awake = np.full(count, BEFORE)  # samples in a row
        self._awake_ns = np.full(count, CLIMB_NS)
        self._ceiling = np.full(count, np.nan)
        self._held = np.zeros(count, bool)
        self._work = np.full(count, np.nan)  # as last read; NaN: never
        for drop in self._drops.running:
            drop.members = cores.of(drop.episode.cpus)
            if drop.members.any():
                drop.group = 2 * int(cores.group[drop.members][0]) + drop.group % 2

    def sample(self, seen: Seen) -> list[Episode]:
        """The episodes that this sample ended."""
        if seen.cores is not self._cores:
            self._regroup(seen.cores)
        ceiling = seen.sample.ceilings.low_hz
        if not self._drops.running and not seen.sample.part(_some_ceiling):
            return []
        if not self._drops.running and not seen.sample.part(_slow):
            if not self._drops.patience.gap(seen.since_ns, seen.time_ns):
                self._held[:] = False
                self._pass(seen.util(), ceiling, seen.time_ns - seen.since_ns)
            return []
        cycles, run_s = seen.ran()
        clocks = Clocks(run_s, cycles, seen.util(), ceiling, seen.sample.delta)
        return self.step(clocks, seen.since_ns, seen.time_ns)

    def step(self, now: Clocks, since_ns: int, time_ns: int) -> list[Episode]:
        """The same, of clocks."""
        if self._drops.patience.gap(since_ns, time_ns):
            return self._drops.close(self._drops.running)
        ceiling = self._certain(now.ceiling_hz)
        known = self._settled(now.util) & (now.run_s > 0) & (ceiling > 0)
        low = known & (now.cycles < (1 - END) * now.run_s * ceiling)
        self._pass(now.util, now.ceiling_hz, time_ns - since_ns)
        if not self._drops.running and not low.any():
            self._held[:] = False
            return []
        look = self._look(now, ceiling, known, since_ns, time_ns)
        over = self._drops.close(self._follow(look))
        deep = look.missing(START) & ~self._taken()
        for key in distinct(look.key[deep]):
            self._begin(key, look, deep)
        return over

    def _pass(self, util: Floats, ceiling_hz: Floats, span_ns: int) -> None:
        """Remembers of a sample what later ones need to know."""
        self._work = np.where(np.isfinite(util), util, self._work)
        self._ceiling = np.where(np.isfinite(ceiling_hz), ceiling_hz, self._ceiling)
        awake = util >= AT_WORK
        self._awake = np.where(awake, self._awake + 1, 0)
        self._awake_ns = np.where(awake, self._awake_ns + span_ns, 0)

    def _certain(self, ceiling: Floats) -> Floats:
        """The lower of this ceiling and the last one: it may have moved anywhere within the
        sample."""
        return np.where(np.isfinite(ceiling), np.fmin(ceiling, self._ceiling), 0.0)

    def _settled(self, util: Floats) -> Bools:
        settled = (util >= AT_WORK) & (self._awake >= BEFORE) & (self._awake_ns >= CLIMB_NS)
        return np.asarray(settled & (self._cores.package >= 0))

    def _look(
        self, now: Clocks, ceiling: Floats, known: Bools, since_ns: int, time_ns: int
    ) -> _Look:
        caps = self._sieve.turbo.caps(now.delta)
        near = np.where(self._held, START, BINDS)  # once held, until it is a drop below the cap
        hz = now.cycles / np.where(now.run_s > 0, now.run_s, np.inf)
        self._held = known & (caps.hz < ceiling) & (hz >= (1 - near) * caps.hz)
        allowed = np.where(self._held, ceiling, np.minimum(ceiling, caps.hz))
        return _Look(
            np.array([now.run_s, now.cycles, now.run_s * allowed]) * known,
            2 * self._cores.group + self._held, caps.hz, caps.by,
            self._tally.sums(now.delta, self._cores), since_ns, time_ns,
        )  # fmt: skip

    def _follow(self, look: _Look) -> list[_Drop]:
        """Adds the sample to the drops that run. Returns those that are over."""
        over, low = [], look.missing(END)
        for drop in self._drops.running:
            if drop.whole:
                self._join(drop, low & (look.key == drop.group) & ~self._taken())
            mine = drop.members & (look.key == drop.group)
            known_s = look.clocks[0, drop.members].sum()
            run_s, cycles, allowed = clocks = look.clocks[:, mine].sum(axis=1)
            held = run_s < known_s / 2  # or free again: it is another one from now on
            if known_s and (held or allowed - cycles < END * allowed):
                drop.pause(look.since_ns)
                drop.episode.calm = True
            elif known_s:
                drop.paused_ns += 0 if drop.calm_ns is None else look.since_ns - drop.calm_ns
                drop.episode.calm = False
                self._add(drop, mine, clocks, look)
            known = bool(known_s)
            done = (known and held) or self._drops.patience.over(drop, look.time_ns, known=known)
            over += [drop] if done else []
        return over

    def _taken(self) -> Bools:
        return self._drops.taken(len(self._cores.lists))

    def _join(self, drop: _Drop, cores: Bools) -> None:
        if cores.any():
            drop.members |= cores
            drop.episode.cpus = self._cores.cpus(drop.members)

    def _add(self, drop: _Drop, cores: Bools, clocks: Floats, look: _Look) -> None:
        drop.show(clocks, look.time_ns)
        drop.told = drop.told + look.sums[cores].mean(axis=0)
        run_s, cycles, allowed = drop.sums.tolist()
        first = int(np.flatnonzero(cores)[0])
        held = Cap(CAPS[look.cap[first]], float(look.cap_hz[first])) if drop.group % 2 else None
        guest = self._sieve.hello.virtualisation is not None
        case = Case(Facts(self._tally, drop.told), held, guest)
        episode = drop.episode
        episode.depth = (allowed - cycles) / run_s
        episode.cause, episode.confidence = verdict(case)
        episode.evidence = evidence(case, episode.cause) | {
            "busy_hz": round(cycles / run_s),
            "ceiling_hz": round(allowed / run_s),
        }
        if (active := self._active(first)) is not None:
            episode.evidence["active_cores"] = active
        if drop.paused_ns:
            shown = 1 - drop.paused_ns / (look.time_ns - episode.start_ns)
            episode.evidence["dropping_share"] = round(shown, 3)
        if not self._sieve.turbo.cpus[self._cores.rows[first, 0]]:
            episode.evidence["ceiling"] = BASE_CLOCK

    def _active(self, core: int) -> int | None:
        """Active cores of its package, as each was last read. None: some of them are never read."""
        cores = self._cores
        on = cores.total(self._sieve.online.astype(float)) > 0
        work = self._work[on & (cores.package == cores.package[core])]
        return int((work >= ACTIVE).sum()) if np.isfinite(work).all() else None

    def _begin(self, key: int, look: _Look, deep: Bools) -> None:
        mine, low = look.key == key, look.missing(END)
        run_s, cycles, allowed = look.clocks[:, mine].sum(axis=1)
        dropping_s = look.clocks[0, mine & low].sum()
        whole = bool(allowed - cycles >= START * allowed and dropping_s >= MOST * run_s)
        young = self._drops.young(key)
        if whole and young is not None:
            young.whole = True
            self._join(young, mine & low & ~self._taken())
            return
        drop = _Drop(
            group=key, start_ns=look.since_ns, last_ns=look.time_ns, members=mine & False,
            episode=Episode("turbo-drop", [], look.since_ns), whole=whole,
            told=np.zeros(self._tally.width),
        )  # fmt: skip
        self._join(drop, mine & (low if whole else deep) & ~self._taken())
        self._add(drop, drop.members, look.clocks[:, drop.members].sum(axis=1), look)
        self._drops.begin(drop)
