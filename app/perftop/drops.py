"""Turbo drops: cores that run below what turbo allows them, and why. Pure steps.

Cores are grouped by package and type, for these share a ceiling and a budget. If a group drops as
one it is one episode; else those of its cores that begin to drop in the same sample are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from perftop.believe import Sample, Sieve
from perftop.counters import Bools, Counters, Delta, Floats
from perftop.detect import CAUSES, LEVELS, Detector, Episode
from perftop.metrics import INDEX

START, END = 0.05, 0.03
"""Of the ceiling. It begins with more than a step of 100 MHz, which a clock may waver by, and where
rows are marked; less keeps it going, so that a clock at the edge makes one episode."""
AWAKE, BEFORE = 0.1, 2
"""Of the time, in this sample and so many before. A core that hardly works has a low clock, one
that woke up climbs, and one that was not read has a span that began before the sample."""
MOST = 0.75
"""Of the running time of a group: with so much of it in cores that drop, the group does."""
GAP_NS, GAP_SAMPLES = 5_000_000_000, 3
"""An episode of which nothing is seen for longer than both is over, nobody can tell when."""
ACTS, AT_LIMIT = 0.1, 0.99
"""Of polls or cycles: what limits the clock more seldom takes no START off its mean. Of the power
limit: a controller holds its mean that close."""

Sums = tuple[Floats, Floats]
"""What may tell the cause, to be added up: (cores, SIMD levels) cycles; (packages, ...)."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """One sample, by position of the core."""

    run_s: Floats  # of its threads together, 0 where unknown
    cycles: Floats
    util: Floats  # of its busiest thread; NaN: not read
    ceiling_hz: Floats
    why: Callable[[], Sums]


@dataclass(slots=True, eq=False)
class _Drop:
    """One that runs, with sums over the samples that showed it."""

    episode: Episode
    group: int
    whole: bool  # cores of the group that wake up join
    members: Bools
    sums: Floats  # run_s, cycles, run_s * ceiling, then levels and what else may tell the cause
    last_ns: int = 0
    samples: int = 0


class Drops:
    """Begins and ends episodes of a detector."""

    def __init__(self, sieve: Sieve, detector: Detector) -> None:
        self._sieve, self._detector = sieve, detector
        self._why = Why(sieve.counters)
        self._gap_ns = max(GAP_NS, GAP_SAMPLES * sieve.hello.sample_ns)
        self._running: list[_Drop] = []
        self._regroup()

    def _regroup(self) -> None:
        """Cores are others than they were: CPUs say which of them an episode is about."""
        hello, position = self._sieve.hello, self._sieve.position
        self._cores = cores = self._sieve.splitter.cores
        width = max(map(len, cores), default=1)
        rows = [[position[cpu] for cpu in core] for core in cores]
        self._rows = np.array([row + [-1] * (width - len(row)) for row in rows], int)
        package = {cpu: i for i, group in enumerate(hello.packages) for cpu in group}
        kinds = [(package.get(c[0], -1), hello.topology[position[c[0]]].type) for c in cores]
        number = {kind: i for i, kind in enumerate(dict.fromkeys(kinds))}
        self._package = np.array([kind[0] for kind in kinds], int)
        self._group = np.array([number[kind] for kind in kinds], int)
        self._awake = np.full(len(cores), BEFORE)  # samples in a row
        self._ceiling = np.full(len(cores), np.nan)
        for drop in self._running:
            drop.members = np.array([not {*drop.episode.cpus}.isdisjoint(c) for c in cores], bool)

    def sample(self, sample: Sample, since_ns: int, time_ns: int) -> list[Episode]:
        """The episodes that this sample ended."""
        if self._cores is not self._sieve.splitter.cores:
            self._regroup()
        ceiling = self._sieve.ceiling(sample.delta)
        if np.isnan(ceiling).all() and not self._running:
            return []
        values, at = sample.values, INDEX["busy_hz"]
        both = np.array([values.bottom[at], values.top[at]])
        both[:, ~np.isfinite(both).all(axis=0)] = 0.0
        run_s, cycles = (self._threads(part, 0.0).sum(axis=1) for part in both)
        util = np.fmax.reduce(self._threads(values["util"], np.nan), axis=1)
        clocks = Clocks(run_s, cycles, util, ceiling, partial(self._sums, sample.delta))
        return self.step(clocks, since_ns, time_ns)

    def _sums(self, delta: Delta) -> Sums:
        levels = [self._threads(cycles, 0.0).sum(axis=1) for cycles in self._why.levels(delta)]
        return np.array(levels).reshape(-1, len(self._cores)).T, self._why.packages(delta)

    def _threads(self, values: Floats, none: float) -> Floats:
        """(cores, threads)"""
        return np.asarray(np.append(values, none)[self._rows])

    def step(self, now: Clocks, since_ns: int, time_ns: int) -> list[Episode]:
        """The same, of clocks."""
        if not 0 < time_ns - since_ns <= self._gap_ns:
            return self._close([(drop, drop.last_ns) for drop in self._running])
        # The ceiling may have moved anywhere in the sample: no more is asked for than is certain.
        told = np.isfinite(now.ceiling_hz)
        ceiling = np.where(told, np.fmin(now.ceiling_hz, self._ceiling), 0.0)
        self._ceiling = np.where(told, now.ceiling_hz, self._ceiling)
        awake = now.util >= AWAKE
        known = awake & (self._awake >= BEFORE) & (self._package >= 0)
        known &= (now.run_s > 0) & (ceiling > 0)
        self._awake = np.where(awake, self._awake + 1, 0)

        clocks = np.array([now.run_s, now.cycles, now.run_s * ceiling]) * known
        missing = clocks[2] - clocks[1]
        low, deep = (known & (missing >= share * clocks[2]) for share in (END, START))
        if not self._running and not deep.any():
            return []
        why, ended = now.why(), []
        for drop in self._running:
            if drop.whole:
                self._join(drop, low & (self._group == drop.group) & ~self._taken())
            found = clocks[:, drop.members].sum(axis=1)
            if found[2] == 0:  # nothing is known of it
                if time_ns - drop.last_ns > self._gap_ns:
                    ended.append((drop, drop.last_ns))
            elif found[2] - found[1] < END * found[2]:
                ended.append((drop, since_ns))
            else:
                self._add(drop, found, why, time_ns)
        over = self._close(ended)
        deep &= ~self._taken()
        for group in np.unique(self._group[deep]):
            self._begin(group, clocks, low, deep, why, since_ns, time_ns)
        return over

    def _taken(self) -> Bools:
        members = [np.zeros(len(self._cores), bool), *(d.members for d in self._running)]
        return np.asarray(np.any(members, axis=0))

    def _join(self, drop: _Drop, cores: Bools) -> None:
        if cores.any():
            drop.members |= cores
            found = (self._cores[i] for i in np.flatnonzero(drop.members))
            drop.episode.cpus = sorted(cpu for core in found for cpu in core)

    def _add(self, drop: _Drop, clocks: Floats, why: Sums, time_ns: int) -> None:
        package = self._package[drop.members][0]
        levels, packages = why[0][drop.members].sum(axis=0), why[1][package]
        drop.sums = drop.sums + np.concatenate([clocks, levels, packages])
        drop.samples, drop.last_ns = drop.samples + 1, time_ns
        run_s, cycles, allowed = drop.sums[:3].tolist()
        drop.episode.depth = (allowed - cycles) / run_s
        clock = {"busy_hz": round(cycles / run_s), "ceiling_hz": round(allowed / run_s)}
        clock["active_cores"] = int((self._awake[self._package == package] > 0).sum())
        shares, others = np.split(drop.sums[3:], [len(levels)])
        self._why.tell(drop.episode, clock, shares / cycles, others)

    def _begin(self, group: int, clocks: Floats, low: Bools, deep: Bools, why: Sums,
               since_ns: int, time_ns: int) -> None:  # fmt: skip
        mine = self._group == group
        run_s, cycles, allowed = clocks[:, mine].sum(axis=1)
        dropping_s = clocks[0, mine & low].sum()
        whole = bool(allowed - cycles >= START * allowed and dropping_s >= MOST * run_s)
        young = next((d for d in self._running if d.group == group and d.samples == 2), None)
        if whole and young is not None:  # it began late in the last sample: not all showed it
            young.whole = True
            self._join(young, mine & low & ~self._taken())
            return
        drop = _Drop(Episode("turbo-drop", [], since_ns), group, whole, mine & False, np.zeros(1))
        self._join(drop, mine & (low if whole else deep) & ~self._taken())
        self._add(drop, clocks[:, drop.members].sum(axis=1), why, time_ns)
        self._running.append(drop)
        self._detector.running.append(drop.episode)

    def _close(self, over: list[tuple[_Drop, int]]) -> list[Episode]:
        for drop, _ in over:
            self._running.remove(drop)
        return [self._detector.end(drop.episode, end_ns) for drop, end_ns in over]


class Why:
    """What the counters of a stream say about causes."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        scope = {block.name: block.scope for block in counters.hello.blocks}
        self._found = {k: c for k, c in counters.columns.items() if scope[c.block] == "package"}
        self._levels = [key for key in LEVELS if key in counters.columns]
        limits = self._found.get("limit_reasons")
        parts = limits.counter.parts if limits else []
        plain = [f"bit {i}" for i in range(limits.counter.columns - 1 if limits else 0)]
        self._bits = [*parts, *plain[len(parts) :]][: len(plain)]
        bits = enumerate(self._bits)
        self._names = [n if n == plain[i] else f"{plain[i]} ({n})" for i, n in bits]
        self._rank = [[*CAUSES, name].index(name) for name in self._bits]

    def levels(self, delta: Delta) -> list[Floats]:
        """Cycles at each SIMD level, by CPU."""
        found = (self._counters.moved(delta, key) for key in self._levels)
        return [np.where(np.isfinite(part), part, 0.0) for part in found if part is not None]

    def packages(self, delta: Delta) -> Floats:
        """Energy and its seconds, limit and its ticks, polls, bits."""
        found: list[Floats] = []
        for key, per_s in (("energy_j", self._counters.stamp_hz), ("power_limit_w", 1.0)):
            column, moved = self._found.get(key), self._counters.moved(delta, key)
            if column is None or moved is None:
                found += [np.zeros(len(self._counters.hello.packages))] * 2
            else:
                ticks = delta.tables[column.block].ticks / per_s
                found += [np.where(np.isfinite(moved), moved, 0.0), ticks * np.isfinite(moved)]
        if limits := self._found.get("limit_reasons"):
            last = limits.first + limits.counter.columns
            polls = delta.tables[limits.block].moved[:, limits.first : last].T
            found += [*np.where(np.isfinite(polls), polls, 0.0)]
        return np.array(found).T

    def tell(self, episode: Episode, clock: dict[str, int], levels: Floats, why: Floats) -> None:
        """Its cause and what that rests on; `levels` are shares of its cycles."""
        energy, seconds, limited, ticks, polls, *seen = [*why.tolist(), 0.0][: 5 + len(self._bits)]
        watts, limit = energy / seconds if seconds else 0.0, limited / ticks if ticks else 0.0
        bits = [i for i, n in enumerate(seen) if n >= max(1.0, ACTS * polls)]
        bits.sort(key=lambda i: (self._rank[i] == len(CAUSES), -seen[i], self._rank[i]))
        cause = CAUSES.get(self._bits[bits[0]]) if bits else None
        at_limit = 0 < AT_LIMIT * limit <= watts
        episode.cause = cause or ("power-pl1" if at_limit else "unknown")
        episode.confidence = "measured" if cause else "inferred" if at_limit else "unknown"
        evidence: dict[str, str | float] = {}
        if levels.sum() >= ACTS:
            episode.cause, episode.confidence = "license", "measured"
            most = int(levels.argmax())
            evidence["SIMD"] = f"level {self._levels[most][-1]} in {levels[most]:.0%} of cycles"
        texts = (f"{self._names[i]} in {seen[i]:.0f} of {polls:.0f} polls" for i in bits)
        nothing = f"none in {polls:.0f} polls" if polls else "not told by this source"
        evidence["limit reason"] = ", ".join(texts) or nothing
        told = {"power_w": round(watts, 1), "power_limit_w": round(limit, 1)}
        episode.evidence = evidence | {key: value for key, value in told.items() if value} | clock
