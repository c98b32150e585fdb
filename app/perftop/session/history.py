"""The past, as far as it fits: raw frames and notes, from which any moment can be had exactly, and
the trail of what each sample showed, from which pictures are drawn.

Both lie in chunks of the same samples, and the oldest chunk goes first. A chunk begins with the
state in which the stream was read, so nothing before it is needed.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import numpy as np

from perfprobe import wire
from perftop.base.arrays import Floats, Singles
from perftop.samples import scopes
from perftop.samples.counters import BlockCounter
from perftop.samples.evaluation import ratio
from perftop.samples.machine_totals import NAMES, SHARED, TRACED
from perftop.samples.registry import STATIC
from perftop.samples.running_tasks import Look
from perftop.samples.sample_reader import Sample, Sieve
from perftop.samples.smt import STATES, bounds
from perftop.session.frame_packing import Layouts, Packer, records
from perftop.session.history_chunk import Chunk
from perftop.session.interval import Span, nothing
from perftop.session.sample_history import CEILING, WEIGHT, Shared, Times, Trail

BYTES = 100_000_000
"""Bytes of a history: ten minutes of 100 ms on 64 CPUs."""
CHUNK = 50
"""Samples: to look at one, those before it in its chunk must be unpacked."""
PARTS = 8
"""No chunk takes a greater part of the budget: what goes at once is little of what is kept."""
TOGETHER_BYTES, WAITING_PART = 1 << 21, 64
"""Most bytes that are packed together, and what part of the budget they may be."""
TASKS_NS = 2_000_000_000
"""Who runs where is told about once a second: what is older is not true any more."""

Message = wire.Frame | wire.Note


def edges(end_ns: int, bin_ns: int, bins: int) -> Times:
    """Edges of bins, the last of which holds `end_ns`. They are multiples of `bin_ns`, so that bins
    stay the same while time goes on."""
    last = -(-end_ns // bin_ns)
    return np.arange(last - bins, last + 1, dtype=np.int64) * bin_ns


class History:
    """Filled by a session, message by message; asked by whoever draws."""

    def __init__(self, hello: wire.Hello, budget: int = BYTES) -> None:
        self._budget = budget
        self._layouts = Layouts(hello)
        self._position = {row.cpu: i for i, row in enumerate(hello.topology)}
        self._served: list[str] = []
        """Metrics that this stream has, as they lie in the trail."""
        self._registry = STATIC
        self._of_machine: dict[str, BlockCounter] = {}
        """Counters of the whole machine, by the name of their number, in the same order."""
        self._shared: dict[str, Shared] = {}
        """Counters of packages and L3s, by key, as their rows lie in the trail."""
        self._stamp_hz = 1.0
        self._chunks: list[Chunk] = []
        self._sealed = 0
        """Bytes of all chunks but the newest."""
        self._now_ns = -1

    # --- filling

    def room(self, sieve: Sieve) -> int:
        """How many frames can be kept until this must be called again; `sieve` has seen none of
        them yet."""
        last = self._chunks[-1].trail if self._chunks else None
        full = last is None or last.count == last.room or last.cores is not sieve.cores
        if full or self._heavy():
            self._begin(sieve)
        trail = self._chunks[-1].trail
        return trail.room - trail.count

    def keep(self, message: Message, sieve: Sieve) -> bool:
        """Keep a note that `sieve` has not seen yet, or a frame for which there is room. False: its
        time cannot be, so it is not kept."""
        is_frame = isinstance(message, wire.Frame)
        if is_frame and not self._now_ns < message.time_ns <= sys.maxsize:
            return False
        if not is_frame and self._heavy():
            self._begin(sieve)
        self._chunks[-1].keep(message)
        if is_frame:
            self._now_ns = message.time_ns
        while self.bytes > self._budget and len(self._chunks) > 1:
            self._sealed -= self._chunks.pop(0).nbytes
        return True

    def trace(self, sample: Sample | None) -> None:
        """What the sieve has made of the frame that was just kept."""
        chunk, now_ns = self._chunks[-1], self._now_ns
        if sample is None or chunk.before_ns < 0:  # the first is only what others begin with
            chunk.before_ns = now_ns
            return
        chunk.trail.add(now_ns, sample)

    def put_before(self, older: History) -> None:
        """Takes over what another history of this stream has from before this one, the newest of it
        if there is no room for all. The other one is not to be used any more."""
        if not self._chunks or older._served != self._served:
            return
        first_ns = self._chunks[0].before_ns
        for chunk in older._chunks:
            chunk.seal()
        earlier = [c for c in older._chunks if c.trail.count and c.end_ns <= first_ns]
        while earlier and self.bytes + sum(c.nbytes for c in earlier) > self._budget:
            del earlier[0]
        self._chunks[:0] = earlier
        self._sealed += sum(c.nbytes for c in earlier)

    @property
    def begin_ns(self) -> int | None:
        """When the oldest sample began."""
        return self._chunks[0].before_ns if self._chunks else None

    @property
    def room_bytes(self) -> int:
        """How much more can be held."""
        return max(0, self._budget - self.bytes)

    def settle(self) -> None:
        """Called after some samples: writes what `keep` and `trace` were given."""
        if self._chunks:
            self._chunks[-1].trail.settle()
            self._chunks[-1].settle_many()

    def _heavy(self) -> bool:
        """No chunk may take more, or there is none."""
        return not self._chunks or self._chunks[-1].nbytes > self._budget // PARTS

    def _begin(self, sieve: Sieve) -> None:
        self._served = [key for key, chosen in sieve.evaluator.chosen.items() if chosen]
        self._registry = sieve.evaluator.registry
        kept = [self._registry.index[key] for key in self._served]
        found = {name: sieve.counters.columns.get(NAMES[name]) for name in TRACED}
        self._of_machine = {name: column for name, column in found.items() if column is not None}
        machine = [*self._of_machine.values()]
        self._stamp_hz = sieve.counters.stamp_hz
        self._shared = self._shared or _shared(sieve)
        shared = [*self._shared.values()]
        size, hz = len(self._position), self._stamp_hz
        sample_bytes = Trail(kept, machine, size, sieve.cores, 1, hz, shared).nbytes
        room = min(CHUNK, max(1, self._budget // PARTS // 2 // sample_bytes))
        trail = Trail(kept, machine, size, sieve.cores, room, hz, shared)
        if self._chunks:
            self._chunks[-1].seal()
            self._sealed += self._chunks[-1].nbytes
        packer = Packer(self._layouts)
        waiting = min(TOGETHER_BYTES, self._budget // WAITING_PART)
        self._chunks.append(Chunk(sieve.state(), self._now_ns, trail, packer, waiting))

    # --- asking

    @property
    def bytes(self) -> int:
        """Held now."""
        newest = self._chunks[-1].nbytes if self._chunks else 0
        packer = self._chunks[-1].packer if self._chunks else None
        return self._sealed + newest + (packer.nbytes if packer else 0) + self._layouts.nbytes

    @property
    def first_ns(self) -> int | None:
        """Raw time of the end of the oldest sample."""
        return next((int(c.trail.ends[0]) for c in self._chunks if c.trail.count), None)

    @property
    def last_ns(self) -> int | None:
        """Raw time of the end of the newest sample."""
        newest = reversed(self._chunks)
        return next((int(c.trail.ends[-1]) for c in newest if c.trail.count), None)

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
        at, places = np.asarray(rows, int), [self._served.index(keys[i]) for i in served]
        every = len(at) == len(self._position) and bool((at[1:] == at[:-1] + 1).all())

        def part(chunk: Chunk) -> Singles:
            both = chunk.trail.parts(places)
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
        shape = 2, len(served)
        sums = self._sums(edges_ns, shape, lambda chunk: chunk.trail.of_machine(places))
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
        shape = 2, last - first
        sums = self._sums(edges_ns, shape, lambda chunk: chunk.trail.of_shared(first, last))
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = self._stamp_hz * sums[:, 0] / sums[:, 1]
        return covering(rates, sums[:, 1] / self._stamp_hz, np.diff(edges_ns) / 1e9)

    def states(self, cores: Sequence[Sequence[int]], edges_ns: Times) -> Floats:
        """(bins, cores, 4): mean SMT states of cores given as lists of CPU numbers."""

        def part(chunk: Chunk) -> Singles:
            return chunk.trail.of_cores(cores)[:, :, : WEIGHT + 1]

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

    def ceiling(self, cores: Sequence[Sequence[int]], edges_ns: Times) -> Floats:
        """(bins, cores): what turbo allows, Hz."""

        def part(chunk: Chunk) -> Singles:
            hz = chunk.trail.of_cores(cores)[:, :, CEILING]
            weight = np.where(hz > 0, np.diff(chunk.moments())[:, None], 0).astype(np.float32)
            return np.stack([hz * weight, weight], axis=2)

        sums = self._sums(edges_ns, (len(cores), 2), part)
        return _over(sums[:, :, 0], sums[:, :, 1])

    def _sums(
        self, edges_ns: Times, shape: tuple[int, ...], part: Callable[[Chunk], Singles]
    ) -> Floats:
        """(bins, *shape): the parts of all samples that end in a bin, added up. `part`: those of
        the samples of a chunk."""
        first = bisect_right(self._chunks, edges_ns[0], key=lambda c: c.end_ns)
        last = bisect_left(self._chunks, edges_ns[-1], key=lambda c: c.end_ns)
        chunks = [c for c in self._chunks[first : last + 1] if c.trail.count]
        if not chunks:
            return np.zeros((len(edges_ns) - 1, *shape))
        ends = np.concatenate([c.trail.ends for c in chunks])
        parts = map(part, chunks)
        # Past the last sample there is one of which nothing is known. reduceat gives an empty span
        # the part it starts with: the sample that covers it.
        table = np.concatenate([*parts, np.zeros((1, *shape), np.float32)])
        starts = np.searchsorted(ends, edges_ns, side="right")
        sums: Floats = np.add.reduceat(table, starts, axis=0, dtype=np.float64)[:-1]
        sums[edges_ns[1:] <= chunks[0].before_ns] = 0.0
        return sums

    def frames(self, start_ns: int, end_ns: int) -> Iterator[Message]:
        """Raw, in their order: those that are kept now, whenever and in whatever thread they are
        read."""
        near = [c for c in self._chunks if c.last_ns >= start_ns and c.first_ns <= end_ns]
        parts = [self._unpacked(chunk) for chunk in near]
        return (m for m in chain.from_iterable(parts) if start_ns <= m.time_ns <= end_ns)

    def _unpacked(self, chunk: Chunk) -> Iterator[Message]:
        chunk.settle()
        return map(Packer(self._layouts).unpack, tuple(chunk.messages))

    # --- going back

    def span(self, time_ns: int, span_ns: int) -> tuple[int, int] | None:
        """When the samples begin and end of which the last is the newest that has ended by then,
        and which last for the time asked for as closely as can be."""
        if not self._chunks:
            return None
        chunk = bisect_right(self._chunks, time_ns, key=lambda c: c.end_ns)
        moments = self._chunks[min(chunk, len(self._chunks) - 1)].moments()
        ended = moments[moments <= time_ns]
        if not len(ended):
            return None
        end_ns = int(ended[-1])
        chunk = bisect_left(self._chunks, end_ns - span_ns, key=lambda c: c.end_ns)
        moments = self._chunks[chunk].moments()
        begun = moments[moments < end_ns][::-1]  # of two as close the later: so does a live one
        if not len(begun):
            return None
        return int(begun[np.argmin(np.abs(begun - (end_ns - span_ns)))]), end_ns

    def rewind(self, sieve: Sieve, begin_ns: int, end_ns: int) -> tuple[Sieve, Span]:
        """The samples between two moments that `span` gave, taken again, and the sieve as they left
        it. Cores and calibrations are those of `sieve`, as they are now."""
        first = bisect_right(self._chunks, begin_ns, key=lambda c: c.end_ns)
        sieve = sieve.resumed(self._chunks[first].state)
        span = nothing(sieve, begin_ns)
        for chunk in self._chunks[first:]:
            frames: list[wire.Frame] = []
            for message in self._unpacked(chunk):
                if isinstance(message, wire.Frame):
                    frames.append(message)
                if isinstance(message, wire.Note) or message.time_ns >= end_ns:
                    _add(frames, begin_ns, sieve, span)
                    frames.clear()
                if isinstance(message, wire.Note):
                    sieve.hotplug(message)
                    sieve.ownership(message)
                elif message.time_ns >= end_ns:
                    return sieve, span
            _add(frames, begin_ns, sieve, span)
        raise AssertionError("no such span")

    def look(self, end_ns: int) -> Look:
        """Who ran where, as it was told last; empty if that was long before."""
        for chunk in reversed(self._chunks):
            chunk.settle()
            for packed in reversed(chunk.messages):
                time_ns, found = records(packed)
                if time_ns <= end_ns and (look := Look.of(found)) is not None:
                    return look if end_ns - time_ns <= TASKS_NS else Look()
            if chunk.first_ns <= end_ns - TASKS_NS:
                break
        return Look()


def _add(frames: Sequence[wire.Frame], begin_ns: int, sieve: Sieve, span: Span) -> None:
    """Take frames again, and add the samples that end after that time."""
    sieve.skip([frame for frame in frames if frame.time_ns <= begin_ns])
    for sample in sieve.samples([frame for frame in frames if frame.time_ns > begin_ns]):
        if sample is not None:
            span.add(sample, sieve)


def _shared(sieve: Sieve) -> dict[str, Shared]:
    """Those of SHARED that the stream has, with their rows."""
    found = {}
    for key in SHARED:
        column = sieve.counters.columns.get(key)
        if column is None:
            continue
        rows = [*range(len(sieve.hello.packages))]
        if key not in scopes.OF["package"]:
            cpus = {*(column.counter.cpus or ())}
            rows = [i for i, row in enumerate(sieve.hello.topology) if row.cpu in cpus]
        found[key] = Shared(column, np.array(rows, int))
    return found


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
