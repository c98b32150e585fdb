"""The past in bins of time, for pictures: what samples showed is added up in each bin."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Floats, Singles
from perftop.model.counters import BlockCounter
from perftop.model.evaluation import STATIC, ratio
from perftop.model.smt import STATES, bounds
from perftop.session.history_chunk import Chunk
from perftop.session.sample_history import CEILING, WEIGHT, Shared, Times


class Binned:
    """Chunks in a row, and what their trails are of."""

    def __init__(self, hello: wire.Hello) -> None:
        self._position = {row.cpu: i for i, row in enumerate(hello.topology)}
        self._rows = [*range(len(hello.topology))]
        self._served: list[str] = []
        """Metrics that this stream has, as they lie in the trail."""
        self._registry = STATIC
        self._of_machine: dict[str, BlockCounter] = {}
        """Counters of the whole machine, by the name of their number, in the same order."""
        self._shared: dict[str, Shared] = {}
        """Counters of packages and L3s, by key, as their rows lie in the trail."""
        self._stamp_hz = 1.0
        self._chunks: list[Chunk] = []

    def times(self) -> Times:
        """Raw ns of the ends of all samples, ascending."""
        return np.concatenate([np.zeros(0, np.int64), *(c.trail.ends for c in self._chunks)])

    def field(self, key: str, rows: Sequence[int], edges_ns: Times) -> Floats:
        """(bins, rows): a metric of CPUs given by position, over each span from one edge to the
        next, its end included; NaN where nothing is known. A bin in which no sample ends has the
        value of the one that covers it."""
        return self.fields([key], rows, edges_ns)[:, 0]

    def fields(self, keys: Sequence[str], rows: Sequence[int], edges_ns: Times) -> Floats:
        """(bins, metrics, rows): `field` of some metrics, which costs little more than of one."""
        served = [i for i, key in enumerate(keys) if key in self._served]
        shape = len(edges_ns) - 1, len(keys), len(rows)
        if not served:
            return np.full(shape, np.nan)
        places = [self._served.index(keys[i]) for i in served]
        at = [*rows]
        every = at == self._rows

        def part(chunk: Chunk, samples: slice) -> Singles:
            both = chunk.trail.parts(places, samples)
            return (both if every else both[..., at]).transpose(2, 0, 1, 3)

        sums = self._sums(edges_ns, (2, len(served), len(at)), part)
        known = [self._registry.index[keys[i]] for i in served]
        low, high = self._registry.low[known, None], self._registry.high[known, None]
        values = ratio(sums[:, 0], sums[:, 1], low, high)
        if len(served) == len(keys):
            return values
        found = np.full(shape, np.nan)
        found[:, served] = values
        return found

    def machine(self, names: Sequence[str], edges_ns: Times) -> Floats:
        """(bins, names): numbers of the whole machine that are TRACED over each span, as in
        `field`."""
        found = np.full((len(edges_ns) - 1, len(names)), np.nan)
        kept = [*self._of_machine]
        served = [i for i, name in enumerate(names) if name in kept]
        if not served:
            return found
        places = [kept.index(names[i]) for i in served]
        gauges = [self._of_machine[names[i]].counter.kind == "gauge" for i in served]
        per = np.where(gauges, 1.0, self._stamp_hz)

        def part(chunk: Chunk, samples: slice) -> Singles:
            return chunk.trail.of_machine(places, samples)

        sums = self._sums(edges_ns, (2, len(served)), part)
        with np.errstate(divide="ignore", invalid="ignore"):
            found[:, served] = per * sums[:, 0] / sums[:, 1]
        return found

    def shared(self, key: str, edges_ns: Times) -> Floats:
        """(bins, rows): what a counter of SHARED moved per second, by package in the order of
        hello, or by L3 in the order of the CPUs that have it; NaN where nothing is known. No
        columns: it is not there. A read covers the bins since the one before it."""
        found = self._shared.get(key)
        if found is None:
            return np.full((len(edges_ns) - 1, 0), np.nan)
        first = 0
        for other, each in self._shared.items():
            if other == key:
                break
            first += len(each.rows)
        last = first + len(found.rows)

        def part(chunk: Chunk, samples: slice) -> Singles:
            return chunk.trail.of_shared(first, last, samples)

        sums = self._sums(edges_ns, (2, last - first), part)
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = self._stamp_hz * sums[:, 0] / sums[:, 1]
        return covering(rates, sums[:, 1] / self._stamp_hz, np.diff(edges_ns) / 1e9)

    def states(self, cores: Sequence[Sequence[int]], edges_ns: Times) -> Floats:
        """(bins, cores, 4): mean SMT states of cores given as lists of CPU numbers."""

        def part(chunk: Chunk, samples: slice) -> Singles:
            return chunk.trail.of_cores(cores, samples)[:, :, : WEIGHT + 1]

        sums = self._sums(edges_ns, (len(cores), WEIGHT + 1), part)
        return _over(sums[:, :, :WEIGHT], sums[:, :, WEIGHT:])

    def bounds(self, cores: Sequence[Sequence[int]], edges_ns: Times) -> tuple[Floats, Floats]:
        """(bins, cores, 4) each: the lowest and highest shares that the siblings' utilisation
        allows, for want of states; NaN for cores that are no pair."""
        pairs = [i for i, core in enumerate(cores) if len(core) == 2]
        shape = len(edges_ns) - 1, len(cores), len(STATES)
        low, high = np.full(shape, np.nan), np.full(shape, np.nan)
        r0, r1 = (
            self.field("util", [self._position[cores[i][thread]] for i in pairs], edges_ns)
            for thread in (0, 1)
        )
        shares = bounds(r0.ravel(), r1.ravel())
        low[:, pairs], high[:, pairs] = (part.reshape(len(low), -1, 4) for part in shares)
        return low, high

    def cores(self, cores: Sequence[Sequence[int]], edges_ns: Times) -> Floats:
        """(bins, cores, 5): `states`, and behind them what turbo allows, Hz."""

        def part(chunk: Chunk, samples: slice) -> Singles:
            known = chunk.trail.of_cores(cores, samples)
            hz = known[:, :, CEILING:]
            moments = chunk.moments()[samples.start : samples.stop + 1]
            weight = np.where(hz > 0, np.diff(moments)[:, None, None], 0).astype(np.float32)
            return np.concatenate([known[:, :, :CEILING], hz * weight, weight], axis=2)

        sums = self._sums(edges_ns, (len(cores), CEILING + 2), part)
        top = [*range(WEIGHT), CEILING]
        bottom = [*[WEIGHT] * WEIGHT, CEILING + 1]
        return _over(sums[:, :, top], sums[:, :, bottom])

    def _sums(
        self, edges_ns: Times, shape: tuple[int, ...], part: Callable[[Chunk, slice], Singles]
    ) -> Floats:
        """(bins, *shape): the parts of all samples that end in a bin, added up. `part`: those of
        some samples of a chunk."""
        chunks = [c for c in self._near(int(edges_ns[0]), int(edges_ns[-1])) if c.trail.count]
        if not chunks:
            return np.zeros((len(edges_ns) - 1, *shape))
        ends = np.concatenate([c.trail.ends for c in chunks])
        starts = ends.searchsorted(edges_ns, side="right")
        first, behind, before = int(starts[0]), int(starts[-1]) + 1, 0
        parts = []
        for chunk in chunks:
            count = chunk.trail.count
            parts.append(part(chunk, slice(max(0, first - before), min(count, behind - before))))
            before += count
        # Past the last sample there is one of which nothing is known. reduceat gives an empty span
        # the part it starts with: the sample that covers it.
        table = np.concatenate([*parts, np.zeros((1, *shape), np.float32)])
        sums: Floats = np.add.reduceat(table, starts - first, axis=0, dtype=np.float64)[:-1]
        if edges_ns[1] <= chunks[0].before_ns:
            sums[edges_ns[1:] <= chunks[0].before_ns] = 0.0
        return sums

    def _near(self, first_ns: int, last_ns: int) -> Sequence[Chunk]:
        """The chunks with samples that end between these moments, and the one behind them."""
        if self._chunks and first_ns >= self._chunks[-1].before_ns:
            return self._chunks[-1:]  # mostly: a picture that moves on asks for its newest bins
        first = bisect_right(self._chunks, first_ns, key=lambda c: c.end_ns)
        last = bisect_left(self._chunks, last_ns, key=lambda c: c.end_ns)
        return self._chunks[first : last + 1]


def covering(rates: Floats, read_s: Floats, bin_s: Floats) -> Floats:
    """Gives a rate that was read over several bins to all of them. (bins, rows) each."""
    for row in range(rates.shape[1]):
        known = np.flatnonzero(np.isfinite(rates[:, row]))
        for at in known[read_s[known, row] > bin_s[known]].tolist():
            first = at - round((read_s[at, row] - bin_s[at]) / max(bin_s[at], 1e-9))
            gap = slice(max(0, first), at)
            rates[gap, row] = np.where(np.isnan(rates[gap, row]), rates[at, row], rates[gap, row])
    return rates


def _over(top: Floats, bottom: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        mean: Floats = np.where(bottom > 0, top / bottom, np.nan)
    return mean
